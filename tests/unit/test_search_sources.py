"""The search's sources beyond the page: what stands on a Node, what is true of it, which seeds have them."""

from __future__ import annotations

from typing import Any

from tests.search import facts
from tests.search.facts import Happened, Wrote
from tests.search.play import History
from tests.search.script import Scene, act
from tests.search.seeds import BESIDE_THE_PAGE, FLEET_FROM, OF_REPLICAS, SOURCES_FROM, script_of
from tests.search.signals import OFF_THE_NODE, TAINT
from tests.search.story import judged, played

DMA = "NeuronHasError_DMA_ERROR"
EKS = "NvidiaXID79Error"
BEYOND = {
    "eks fault", "marked", "mark taken off", "writer dies", "writer starts anew", "conditions removed",
    "conditions unknown",
}  # fmt: skip


def truth(h: History, what: str, machine: str = "m-1") -> list[dict[str, Any]]:
    return [
        dict(f.detail) for f in h.facts if isinstance(f, Happened) and (f.what, f.subject) == (what, machine)
    ]


def moments(h: History, what: str) -> list[float]:
    return [f.at for f in h.facts if isinstance(f, Happened) and f.what == what]


def condition(f: Wrote, type_: str) -> dict[str, Any]:
    status = (f.after or {}).get("status") or {}
    return next((c for c in status.get("conditions") or [] if c["type"] == type_), {})


def writes(h: History, node: str = "node-1", actor: str = "a detector") -> list[Wrote]:
    """What somebody wrote to a Node."""
    return [f for f in h.facts if isinstance(f, Wrote) and (f.kind, f.name, f.actor) == ("Node", node, actor)]


# ---------------------------------------------------------------- which seeds have them


def test_a_smaller_seed_draws_none_of_them() -> None:
    scripts = [script_of(seed) for seed in range(300)]
    assert not [s.seed for s in scripts if s.scene.sources or any(a.what in BEYOND for a in s.acts)]


def test_a_larger_one_has_one_in_half_of_its_histories_and_reaches_all() -> None:
    scripts = [script_of(seed) for seed in range(SOURCES_FROM, SOURCES_FROM + 300)]
    beyond = [s for s in scripts if s.scene.sources]
    assert 100 < len(beyond) < 200
    assert {s.scene.sources for s in beyond} == set(BESIDE_THE_PAGE)
    assert {a.what for s in beyond for a in s.acts} >= BEYOND


def test_from_a_still_larger_one_on_replicas_of_the_controller_do_the_work() -> None:
    scripts = [script_of(seed) for seed in range(FLEET_FROM, FLEET_FROM + 200)]
    assert {s.scene.replicas for s in scripts} == {1, 2}
    assert {s.scene.sources for s in scripts} == set(OFF_THE_NODE)
    assert {a.what for s in scripts for a in s.acts} >= {*OF_REPLICAS}
    assert not [s for s in scripts if s.scene.concluder]


# ---------------------------------------------------------------- what is true


def test_a_detector_without_a_page_shows_its_fault_on_the_node_and_renews_it() -> None:
    h = played(Scene(policy="notify", sources="conditions"), act(10, "fault", 1, DMA, ()))
    assert [(x["reason"], x["by"]) for x in truth(h, facts.FAULT_SHOWN)] == [(DMA, ["conditions"])]
    assert not [f for f in h.facts if isinstance(f, Happened) and f.what == facts.PAGE]
    found = [condition(f, "NeuronHealth") for f in writes(h)]
    bad = [c for c in found if c["status"] == "True"]
    assert len({c["lastHeartbeatTime"] for c in bad}) > 3
    assert len({c["lastTransitionTime"] for c in bad}) == 1


def test_with_a_page_both_state_it() -> None:
    h = played(Scene(policy="notify", sources="npd, conditions"), act(10, "fault", 1, DMA, ()))
    assert truth(h, facts.FAULT_SHOWN)[-1]["by"] == ["npd", "conditions"]


def test_a_writer_that_starts_anew_hides_its_fault_and_repairs_nothing() -> None:
    h = played(
        Scene(policy="notify", sources="EKS"), act(10, "eks fault", 1, ()), act(40, "writer starts anew", 1)
    )
    assert len(truth(h, facts.FAULT_SHOWN)) == 2
    assert [x["reason"] for x in truth(h, facts.FAULT_HIDDEN)] == [EKS]
    assert truth(h, facts.FAULT_ENDED) == []


def test_a_condition_that_nobody_renews_shows_nothing_after_a_quarter_of_an_hour() -> None:
    h = played(
        Scene(policy="notify", sources="EKS"),
        act(10, "eks fault", 1, ()),
        act(20, "writer dies", 1, 1300.0),
        act(900, "fault", 0, DMA, ()),  # a history goes on for some minutes after its last disturbance
    )
    (hidden,) = moments(h, facts.FAULT_HIDDEN)
    assert 20 + 840 < hidden < 20 + 910


def test_a_condition_of_the_boot_before_stays_and_is_not_true_of_this_one() -> None:
    h = played(
        Scene(policy="drain, reboot, replace", sources="EKS"),
        act(10, "eks fault", 1, ("reboot",)),
        act(12, "writer dies", 1, 700.0),
    )
    asked = [f.action for f in h.facts if isinstance(f, facts.Asked)]
    assert asked == ["reboot"]
    (booted,) = moments(h, facts.MACHINE_BOOTED)
    after = next(f for f in writes(h, actor="kubelet") if f.at >= booted)
    assert condition(after, "AcceleratedHardwareReady")["status"] == "False"
    assert judged(h) == []


def test_nor_is_one_whose_fault_the_boot_has_not_mended_before_its_writer_has_looked_again() -> None:
    h = played(Scene(policy="notify", sources="EKS"), act(10, "eks fault", 1, ()), act(30, "boots", 1, 5.0))
    assert moments(h, facts.FAULT_HIDDEN) == moments(h, facts.MACHINE_BOOTED)
    first, again = moments(h, facts.FAULT_SHOWN)
    assert first < 30 < 37 < again


def test_a_mark_stays_over_a_boot_until_a_person_takes_it_off_and_is_a_new_word_then() -> None:
    h = played(
        Scene(policy="notify", sources="konduktor"),
        act(10, "marked", 1, ()),
        act(30, "boots", 1, 5.0),
        act(90, "mark taken off", 1, 40.0),
    )
    assert [x["by"] for x in truth(h, facts.FAULT_SHOWN)] == [["konduktor"], ["konduktor"]]
    assert moments(h, facts.FAULT_HIDDEN) == moments(h, facts.MACHINE_BOOTED)
    off = next(f for f in writes(h, actor="a person") if TAINT in str((f.before or {}).get("spec")))
    assert 90 <= off.at < 91
    assert len(writes(h, actor="konduktor")) == 2


def test_a_condition_that_is_taken_off_is_not_a_fault_that_has_ended() -> None:
    h = played(
        Scene(policy="notify", sources="conditions"),
        act(10, "plugin fault", 1, ()),
        act(40, "conditions removed", 1),
    )
    assert [x["because"] for x in truth(h, facts.FAULT_HIDDEN)] == ["removed"]
    assert truth(h, facts.FAULT_ENDED) == []
    assert len(truth(h, facts.FAULT_SHOWN)) == 2


def test_a_plugin_that_says_it_does_not_know_hides_its_fault() -> None:
    h = played(
        Scene(policy="notify", sources="conditions"),
        act(10, "plugin fault", 1, ()),
        act(40, "conditions unknown", 1, "GpuNvlink", 200.0),
    )
    assert [x["because"] for x in truth(h, facts.FAULT_HIDDEN)] == ["masked"]
    assert len(truth(h, facts.FAULT_SHOWN)) == 2


def test_one_whose_writer_is_dead_takes_nothing_back() -> None:
    h = played(
        Scene(policy="notify", sources="npd, conditions"),
        act(5, "writer dies", 1, 700.0),
        act(10, "flash", 1, 60.0),
    )
    assert [x["cleared"] for x in truth(h, facts.FAULT_ENDED)] == [False]


def test_a_plugin_takes_its_own_fault_back() -> None:
    h = played(
        Scene(sources="conditions"), act(5, "budget never allows", -1, 600.0), act(10, "flash", 1, 60.0)
    )
    assert [x["cleared"] for x in truth(h, facts.FAULT_ENDED)] == [True]
    assert [f for f in h.facts if isinstance(f, facts.Asked)] == []
    assert judged(h) == []
