"""What the search has reached: how it is counted and summed up, what is said to be impossible, and seeds that
lean towards what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.search import __main__ as search
from tests.search import directed, reach
from tests.search.acts import ACTS
from tests.search.directed import LEANS, leaning, seed_of
from tests.search.play import play
from tests.search.reach import NOT_REACHED, Never, Reach
from tests.search.script import Act, Scene, Script, act
from tests.search.seeds import script_of
from tests.search.story import judged

DMA = "NeuronHasError_DMA_ERROR"


def reached(scene: Scene, *acts: Act) -> Reach:
    """What a history of these disturbances reaches. It breaks no law."""
    found = Reach()
    assert not judged(play(Script(1, scene, acts), found))
    return found


# ---------------------------------------------------------------- what is counted


def test_what_happens_is_counted_beside_the_disturbances_that_go_on() -> None:
    found = reached(Scene(nodes=2, pods=0), act(5, "cloud hides", -1, 15.0), act(10, "fault", 0, DMA, ()))
    assert found.crossed["move waiting granted", "cloud hides"]
    assert found.crossed["move waiting granted", "fault"]
    assert not found.crossed["move waiting granted", "pause"]


def test_a_disturbance_that_finds_nothing_to_disturb_does_not_count() -> None:
    found = reached(
        Scene(nodes=2, pods=0),
        act(4, "record deleted", 0),
        act(5, "eks fault", 0, ()),
        act(6, "watches expire"),
        act(10, "fault", 0, DMA, ()),
    )
    assert not [t for t in found.counts if t in ("act record deleted", "act eks fault", "act watches expire")]
    assert {what for _, what in found.crossed} == {"fault"}


def test_a_record_that_a_person_makes_without_a_status_is_refused() -> None:
    found = reached(Scene(nodes=2, pods=0), act(4, "record made", 0), act(10, "fault", 0, DMA, ()))
    assert not found.counts["act record made"]


def test_every_effect_of_the_core_is_one_to_reach() -> None:
    effects = {t for t in reach.everything() if t.startswith("effect ")}
    assert {"effect Disown", "effect TakeBack", "effect RemoveRecord", "effect Submit"} <= effects


# ---------------------------------------------------------------- what is said to be impossible


def test_an_explanation_that_lies_is_told_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lie = Never(frozenset({"effect Mark"}), frozenset({"pause", "stop"}), "nobody marks while all is paused")
    monkeypatch.setattr(reach, "NEVER_BESIDE", (lie,))
    monkeypatch.setattr(search, "NEVER_BESIDE", (lie,))
    total = search.Sum()
    assert not search.failed(total)
    total.reach.add("effect Mark", ["pause"])
    search.report(total, pairs=False)
    assert "said to be impossible, and reached: effect Mark beside pause" in capsys.readouterr().out
    assert search.failed(total)


def test_a_thing_that_is_said_to_be_out_of_reach_and_is_reached_is_told_too() -> None:
    found = Reach()
    found.add(next(iter(NOT_REACHED)))
    assert found.lies() == [next(iter(NOT_REACHED))]


def test_what_is_explained_is_not_listed_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    every = frozenset(ACTS)
    monkeypatch.setattr(reach, "NEVER_BESIDE", (Never(frozenset({"effect Mark"}), every, "a test"),))
    assert "effect Mark" not in Reach().uncrossed()
    assert Reach().uncrossed()["effect Unmark"] == list(ACTS)


def test_every_explanation_is_about_things_and_disturbances_that_there_are() -> None:
    for rule in reach.NEVER_BESIDE:
        assert rule.things <= set(reach.everything())
        assert rule.whats <= set(ACTS)


def test_nothing_that_is_said_to_be_impossible_is_in_the_sum_of_all_runs() -> None:
    kept = Reach.of_file(Path(reach.__file__).with_name("reached.json"))
    assert not kept.lies()
    assert {what for _, what in kept.crossed} <= set(ACTS)
    assert not kept.missing()


# ---------------------------------------------------------------- over several runs


def test_a_file_sums_up_what_several_runs_have_reached(tmp_path: Path) -> None:
    file = tmp_path / "reach.json"
    for what in ("pause", "stop"):
        one = Reach()
        one.add("effect Mark", [what])
        one.merge_file(file)
    both = Reach.of_file(file)
    assert both.counts["effect Mark"] == 2
    assert set(both.crossed) == {("effect Mark", "pause"), ("effect Mark", "stop")}


def test_what_runs_before_have_reached_is_not_missing() -> None:
    before = Reach()
    before.add("effect Mark", ["pause"])
    assert "pause" in Reach().uncrossed()["effect Mark"]
    assert "pause" not in Reach().uncrossed(before)["effect Mark"]


# ---------------------------------------------------------------- seeds that lean


def test_a_seed_names_what_it_leans_towards() -> None:
    seed = seed_of("brake heir", "boots", 17)
    assert leaning(seed) == ("brake heir", "boots")
    assert seed % directed.DISTURBANCE == 17
    assert directed.DIRECTED_FROM <= seed < 2 * directed.DIRECTED_FROM


def test_the_same_seed_makes_the_same_script() -> None:
    seed = seed_of("move proving requeued", "crash", 3)
    assert script_of(seed) == script_of(seed)
    assert script_of(seed) != script_of(seed + 1)


def test_there_is_a_lean_towards_all_that_can_be_reached() -> None:
    things = {t for t, _ in reach.pairs_of()}
    assert things == set(LEANS)


@pytest.mark.parametrize("what", ACTS)
def test_a_disturbance_that_a_seed_leans_towards_is_in_its_script_and_has_something_to_disturb(
    what: str,
) -> None:
    for number in range(4):
        script = script_of(seed_of("effect Mark", what, number))
        assert any(a.what == what for a in script.acts)
        assert directed.can_befall(what, script.scene)


def test_new_seeds_lean_towards_what_is_missing() -> None:
    whole = Reach()
    for thing, what in reach.pairs_of():
        if (thing, what) not in (("brake heir", "boots"), ("effect Mark", "pause")):
            whole.crossed[thing, what] = 1
    seeds = search._leaning(Reach(), whole)
    assert {leaning(next(seeds)) for _ in range(40)} == {("brake heir", "boots"), ("effect Mark", "pause")}
    whole.crossed["brake heir", "boots"] = whole.crossed["effect Mark", "pause"] = 1
    assert not list(search._leaning(Reach(), whole))


# ---------------------------------------------------------------- what was rare


def test_where_a_group_can_launch_none_the_machine_is_kept() -> None:
    found = reached(
        Scene(nodes=3, pods=1),
        act(5, "group cannot launch", -1, 60.0),
        act(10, "fault", 0, DMA, ()),
    )
    assert found.counts["brake no-launch"]


def test_a_trainer_on_the_node_holds_what_its_policy_names_as_a_blocker() -> None:
    found = reached(
        Scene(nodes=2, policy="windows"),
        act(190, "a trainer runs", 0, 120.0),
        act(195, "fault", 0, DMA, ()),
    )
    assert found.counts["brake blocked"]


def test_a_taint_of_the_policys_that_a_person_changed_is_theirs() -> None:
    found = reached(
        Scene(nodes=2, policy="a taint of its own"),
        act(5, "budget never allows", -1, 120.0),
        act(10, "fault", 0, DMA, ()),
        act(40, "taint changed", 0),
    )
    assert found.counts["effect Disown"]


def test_a_fault_of_one_rack_is_held_until_a_person_approves_it() -> None:
    sick = [act(20 + 0.4 * i, "fault", i, DMA, ()) for i in range(5)]
    scene = Scene(
        nodes=15, alike=5, policy="drain, replace, wide", sources="conditions", replicas=1, patient=True
    )
    found = reached(scene, *sick)
    assert found.counts["brake correlated"]
    assert found.counts["move proving proved"] >= 5
