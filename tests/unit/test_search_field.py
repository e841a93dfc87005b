"""What came later to the search (``field.py``): it disturbs what it says, and no older seed draws it."""

from __future__ import annotations

import pytest

from tests.search import facts
from tests.search.directed import DIRECTED_FROM
from tests.search.facts import Asked, Happened, Wrote
from tests.search.field import FIELD, LATEST
from tests.search.play import History
from tests.search.script import Act, Scene, act
from tests.search.seeds import DENSE_FROM, FIELD_FROM, FLEET_FROM, LATEST_FROM, script_of
from tests.search.story import judged, played

DMA = "NeuronHasError_DMA_ERROR"
LATE = act(400, "foreign marks", 1)
"""The calm begins after the last disturbance."""


def asked(h: History) -> list[str]:
    return [f.action for f in h.facts if isinstance(f, Asked)]


def nodes(h: History, name: str) -> list[Wrote]:
    return [f for f in h.facts if isinstance(f, Wrote) and (f.kind, f.name) == ("Node", name)]


def sound(scene: Scene, *acts: Act) -> History:
    h = played(scene, *acts)
    assert judged(h) == []
    return h


@pytest.mark.parametrize("family", [0, FLEET_FROM, DENSE_FROM, DIRECTED_FROM])
def test_no_older_seed_draws_any_of_it(family: int) -> None:
    scripts = [script_of(family + n) for n in range(60)]
    assert not [s.seed for s in scripts if s.scene.lives_on or any(a.what in FIELD for a in s.acts)]


def test_seeds_of_its_own_draw_all_of_it() -> None:
    scripts = [script_of(FIELD_FROM + family + n) for family in (0, FLEET_FROM) for n in range(150)]
    assert {a.what for s in scripts for a in s.acts} >= {*FIELD}
    assert not {a.what for s in scripts for a in s.acts} & {*LATEST}


def test_later_seeds_have_what_came_later_still_beside_all_that_was_there_before() -> None:
    for n in range(20):
        before, after = script_of(FIELD_FROM + n).acts, script_of(LATEST_FROM + FIELD_FROM + n).acts
        assert {a.what for a in set(after) - set(before)} <= {*LATEST}
        assert set(before) < set(after)


@pytest.mark.parametrize("shrinks", [False, True])
def test_an_upgrade_has_one_machine_more_before_it_ends_an_old_one(shrinks: bool) -> None:
    scene = Scene(nodes=3, policy="drain, replace, wide", shrinks=shrinks)
    told = act(5, "upgraded", 0, 2, 40.0), act(60, "fault", 2, DMA, ())
    h = sound(scene, *told, LATE)
    happened = [f for f in h.facts if isinstance(f, Happened)]
    joined = [f.at for f in happened if f.what == facts.MACHINE_JOINED and f.at > 0]
    gone = {f.subject: f.at for f in happened if f.what == facts.MACHINE_GONE and f.detail["by"] == "unasked"}
    assert list(gone) == ["m-0", "m-1"]
    assert gone["m-0"] - joined[0] > 40
    assert asked(h).count("replace") == 1


def test_a_machine_that_hangs_is_booted_by_whoever_asks_for_it() -> None:
    scene = Scene(nodes=3, policy="drain, reboot, replace, wide", sources="conditions", replicas=1)
    h = sound(scene, act(10, "fault", 0, DMA, ("reboot",)), act(12, "machine hangs", 0, 1500.0), LATE)
    boots = [f.at for f in h.facts if isinstance(f, Happened) and f.what == facts.MACHINE_BOOTED]
    assert asked(h) == ["reboot"]
    assert len(boots) == 1
    assert boots[0] < 600


def test_a_reboot_that_hangs_calls_for_the_next_step() -> None:
    scene = Scene(nodes=3, policy="drain, reboot, replace, wide", sources="conditions", replicas=1)
    h = sound(scene, act(5, "a reboot hangs", -1, 1500.0), act(10, "fault", 0, DMA, ()), LATE)
    assert asked(h) == ["reboot", "replace"]


def test_a_kubelet_that_is_cut_off_says_nothing_though_its_machine_boots() -> None:
    h = sound(Scene(nodes=3), act(10, "cut off", 0, 150.0), act(60, "boots", 0, 5.0), LATE)
    said = {
        f.at: f.after["status"]["conditions"] for f in nodes(h, "node-0") if f.after and f.actor == "kubelet"
    }
    assert {x["status"] for at, there in said.items() for x in there if 45 < at < 160} == {"Unknown"}
    assert [x["status"] for x in said[160.0]] == ["True"]


def test_the_machine_that_takes_the_place_of_one_that_was_cut_off_is_not_cut_off() -> None:
    scene = Scene(nodes=3, policy="replace at once")
    told = act(10, "fault", 0, DMA, ()), act(14, "cut off", 0, 500.0)
    h = sound(scene, *told, act(75, "fault", 0, "NeuronHasError_HBM_UNCORRECTABLE_ERROR", ()), LATE)
    assert asked(h)[:2] == ["replace", "replace"]


def test_a_raw_node_has_no_provider_id_and_is_not_ready_at_first() -> None:
    scene = Scene(nodes=3, policy="drain, replace, wide")
    h = sound(scene, act(5, "new ones are raw", -1, 150.0), act(10, "fault", 0, DMA, ()), LATE)
    first, last = nodes(h, "node-3")[0], nodes(h, "node-3")[-1]
    assert first.after is not None
    assert last.after is not None
    assert "providerID" not in first.after["spec"]
    assert last.after["spec"]["providerID"].endswith("m-3")


def test_what_is_counted_is_treated_once_it_has_happened_often_enough() -> None:
    scene = Scene(nodes=3, policy="counted first")
    assert asked(sound(scene, act(10, "happens often", 0, 2, 2.0), LATE)) == []
    assert asked(sound(scene, act(10, "happens often", 0, 3, 2.0), LATE)) == ["reboot"]


def test_a_mark_that_is_put_back_comes_off_though_no_agent_is_started_anew() -> None:
    scene = Scene(nodes=3, policy="drain, reboot, replace, wide", lives_on=True)
    h = sound(scene, act(10, "fault", 0, DMA, ("reboot",)), act(50, "old taints back", 0, 60.0), LATE)
    last = nodes(h, "node-0")[-1]
    assert last.after is not None
    assert not last.after["spec"].get("taints")


def test_two_budgets_over_the_same_pods_keep_them_where_they_are() -> None:
    scene = Scene(nodes=3, policy="drain, hold, wide")
    h = sound(scene, act(5, "two budgets", -1, 60.0), act(10, "fault", 0, DMA, ()), LATE)
    assert min(f.at for f in h.facts if isinstance(f, Asked)) > 65


def test_a_pod_that_comes_back_is_there_again_after_its_eviction() -> None:
    scene = Scene(nodes=3, policy="drain, replace, wide")
    h = sound(scene, act(5, "a pod comes back", 0, 60.0), act(10, "fault", 0, DMA, ()), LATE)
    made = [f for f in h.facts if isinstance(f, Wrote) and f.name == "tolerant-0" and f.before is None]
    assert len(made) > 1


def test_a_dead_node_is_rebooted_and_one_that_is_ready_again_in_time_is_not() -> None:
    scene = Scene(nodes=3, policy="dead nodes", sources="conditions", replicas=1)
    assert asked(sound(scene, act(10, "machine hangs", 0, 1500.0), LATE)) == ["reboot"]
    assert asked(sound(scene, act(10, "kubelet flaps", 0, "Unknown", 1, 25.0), LATE)) == []
