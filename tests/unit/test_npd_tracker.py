"""What pages mean one after the other: what latches, what clears, what is unknown."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from recovery.errors import Unreadable
from recovery.model import Kind, Problem, Reading
from recovery.signals.compare import EDGE_LIMIT
from recovery.signals.memory import LOOKS_BACK, SETTLE, State
from recovery.signals.npd import NpdSource, stale_after
from recovery.signals.page import EDGES, WHOLE, Page, Pair, parse
from recovery.signals.tracker import missed, observe

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
FRESH = timedelta(seconds=10)
POLL = timedelta(milliseconds=500)

HBM, HANG, DMA = ("NeuronHealth", "HBM"), ("NeuronHealth", "HANG"), ("NeuronHealth", "DMA")
BAD, GOOD = ("GpuCount", "GpuCountBad"), ("GpuCount", "GpuCountGood")
LOST = ("GpuCount", "GpuCountLost")
NOTHING = ("", "")


def page(
    gauges: dict[Pair, float], counters: dict[str, float], unknown: dict[str, str] | None = None
) -> Page:
    return Page(gauges=gauges, counters=counters, pairs=frozenset(gauges), unknown=unknown or {})


def neuron(shown: Pair | None = None, **counters: float) -> Page:
    """A log rule's type with three reasons; ``shown`` is the one at 1."""
    gauges = {pair: float(pair == shown) for pair in (HBM, HANG, DMA)}
    return page(gauges, {"HBM": 0, "HANG": 0, "DMA": 0} | counters)


def gpu(bad: float, counter: float) -> Page:
    """A plugin's type."""
    return page({BAD: bad, GOOD: 0}, {"GpuCountBad": counter})


def edges(**counters: float) -> Page:
    return page({}, counters)


@dataclass
class Story:
    """Pages fed half a second apart."""

    boot_id: str = "boot-1"
    at: datetime = START
    state: State = field(default_factory=State)
    read_at: datetime | None = None

    def see(self, *pages: Page, after: timedelta = POLL) -> Reading:
        for each in pages:
            self.at += after
            self.read_at = self.at
            self.state, reading = observe(self.state, each, self.at, self.boot_id, FRESH)
        return reading

    def miss(self, why: str = "refused", after: timedelta = POLL) -> Reading:
        self.at += after
        age = None if self.read_at is None else self.at - self.read_at
        self.state, reading = missed(self.state, why, self.at, age, self.boot_id, FRESH)
        return reading


def levels(reading: Reading) -> dict[Pair, Problem]:
    return {(p.type, p.reason): p for p in reading.problems if p.kind is Kind.LEVEL}


def times(reading: Reading, reason: str) -> tuple[datetime, ...]:
    return next((p.times for p in reading.problems if p.kind is Kind.EDGE and p.reason == reason), ())


# ---------------------------------------------------------------- log rules


def test_a_healthy_page_has_no_problems_and_lists_what_the_source_can_name() -> None:
    reading = Story().see(neuron())
    assert reading.problems == ()
    assert reading.unknown == {}
    assert reading.cleared == frozenset()
    assert reading.listed == {HBM, HANG, DMA}


def test_a_log_rules_fault_is_latched_fresh_and_told_with_its_count() -> None:
    story = Story()
    reading = story.see(neuron(), neuron(DMA, DMA=1))
    fault = levels(reading)[DMA]
    assert (fault.latched, fault.masked, fault.counter) == (True, False, 1)
    assert fault.since == story.at
    assert fault.fresh_until == story.at + FRESH
    assert fault.source == "npd"


def test_a_log_rules_fault_outlives_its_detectors_restart() -> None:
    story = Story()
    story.see(neuron(), neuron(DMA, DMA=1))
    since = story.at
    reading = story.see(neuron(), neuron(), neuron(), neuron(), neuron(), after=timedelta(minutes=1))
    fault = levels(reading)[DMA]
    assert (fault.latched, fault.masked, fault.since, fault.counter) == (True, False, since, 1)
    assert fault.fresh_until == story.at + FRESH
    assert reading.cleared == frozenset()
    assert reading.unknown == {}


@pytest.mark.parametrize("started", ["", "2"], ids=["by its counts", "by its start"])
def test_what_a_restarted_detector_hides_and_has_not_counted_is_what_the_one_before_stated(
    started: str,
) -> None:
    """Another reason of its type is stated anew. A count of 0 and the new life are not this one's."""
    first, other = (("NeuronHealth", f"NeuronHasError_{x}_UNCORRECTABLE_ERROR") for x in ("HBM", "NC"))

    def shows(shown: Pair, one: float, two: float, life: str) -> Page:
        gauges = {pair: float(pair == shown) for pair in (first, other)}
        return replace(page(gauges, {first[1]: one, other[1]: two}), started=started and life)

    story = Story()
    story.see(shows(NOTHING, 0, 0, "1"), shows(first, 2, 0, "1"))
    story.see(shows(NOTHING, 0, 0, "2"), shows(other, 0, 1, "2"))
    later = story.see(*[shows(other, 0, 1, "2")] * 3)
    assert later.gone == {first}
    found = levels(later)
    assert [(found[x].counter, found[x].life) for x in (first, other)] == [
        (2.0, started and "1"),
        (1.0, started and "2"),
    ]
    later = story.see(shows(other, 1, 2, "2"))
    assert later.gone == set()
    found = levels(later)
    assert (found[first].counter, found[first].life) == (1.0, started and "2")


def test_a_detectors_restart_is_said_once_with_what_is_still_held() -> None:
    story = Story()
    story.see(neuron(DMA, DMA=1), neuron())
    assert story.state.said == (
        "node-problem-detector was restarted: its counters begin again; still held: DMA (NeuronHealth)",
    )
    story.see(neuron())
    assert not story.state.said


def test_a_new_boot_takes_a_log_rules_fault_back() -> None:
    story = Story()
    story.see(neuron(DMA, DMA=1), neuron())
    story.boot_id = "boot-2"
    assert story.see(neuron()).problems == ()


def test_a_fault_that_is_still_shown_after_a_new_boot_is_a_new_one() -> None:
    story = Story()
    story.see(neuron(DMA, DMA=1))
    story.boot_id = "boot-2"
    reading = story.see(neuron(DMA, DMA=1))
    assert levels(reading)[DMA].since == story.at


def test_an_unknown_boot_id_is_no_new_boot() -> None:
    story = Story()
    story.see(neuron(DMA, DMA=1))
    for boot_id in ("", "boot-1", ""):
        story.boot_id = boot_id
        assert DMA in levels(story.see(neuron()))
    story.boot_id = "boot-2"
    assert story.see(neuron()).problems == ()


def test_a_boot_id_learned_late_is_no_new_boot() -> None:
    story = Story(boot_id="")
    story.see(neuron(DMA, DMA=1))
    story.boot_id = "boot-1"
    assert DMA in levels(story.see(neuron()))


def test_a_second_reason_masks_the_first_which_stays_a_fault_with_its_own_beginning() -> None:
    story = Story()
    story.see(neuron(), neuron(HBM, HBM=1))
    since = story.at
    reading = story.see(neuron(HANG, HBM=1, HANG=1))
    faults = levels(reading)
    assert (faults[HBM].masked, faults[HBM].latched, faults[HBM].since) == (True, True, since)
    assert (faults[HANG].masked, faults[HANG].since) == (False, story.at)
    assert reading.unknown == {}


def test_a_masked_fault_is_seen_on_the_first_page_too() -> None:
    reading = Story().see(neuron(HANG, HBM=1, HANG=1))
    assert {pair: p.masked for pair, p in levels(reading).items()} == {HBM: True, HANG: False}


def test_a_masked_fault_stays_masked_while_its_type_cannot_be_read() -> None:
    story = Story()
    before = levels(story.see(neuron(HANG, HBM=1, HANG=1)))
    broken = page({HBM: 0, DMA: 0}, {"HBM": 1, "DMA": 0}, {"NeuronHealth": "broken"})
    assert levels(story.see(broken)) == before


def test_flip_flop_of_two_reasons_resets_neither_beginning() -> None:
    story = Story()
    story.see(neuron(), neuron(HBM, HBM=1))
    first = story.at
    story.see(neuron(HANG, HBM=1, HANG=1))
    second = story.at
    reading = story.see(neuron(HBM, HBM=2, HANG=1), neuron(HANG, HBM=2, HANG=2), neuron(HBM, HBM=3, HANG=2))
    faults = levels(reading)
    assert (faults[HBM].since, faults[HANG].since) == (first, second)
    assert (faults[HBM].masked, faults[HANG].masked) == (False, True)


def test_a_bare_counter_on_the_first_page_is_the_baseline() -> None:
    story = Story()
    for _ in range(3):
        reading = story.see(neuron(None, DMA=7))
        assert (reading.problems, reading.unknown) == ((), {})


def test_a_counter_that_rises_while_nothing_is_shown_makes_its_type_unknown_for_that_read() -> None:
    story = Story()
    reading = story.see(neuron(), neuron(None, DMA=1))
    why = "DMA was counted again but NeuronHealth shows nothing: its check may not have run through"
    assert reading.unknown == {"NeuronHealth": why}
    assert reading.unknown_since == {"NeuronHealth": story.at}
    assert reading.problems == ()
    assert story.see(neuron(DMA, DMA=1)).unknown == {}
    assert DMA in levels(story.see(neuron(DMA, DMA=1)))


def test_a_reason_that_two_types_share_is_not_taken_for_masked() -> None:
    gauges: dict[Pair, float] = {("A", "X"): 1, ("B", "X"): 0, ("B", "Y"): 1}
    reading = Story().see(page(gauges, {"X": 1, "Y": 1}))
    assert set(levels(reading)) == {("A", "X"), ("B", "Y")}


def test_gauges_without_any_counter_are_taken_for_log_rules() -> None:
    story = Story()
    story.see(page({DMA: 1}, {}))
    reading = story.see(*[page({DMA: 0}, {})] * 5)
    assert levels(reading)[DMA].latched
    assert reading.cleared == frozenset()


# ---------------------------------------------------------------- plugins


def test_a_plugins_fault_is_not_latched_and_its_healthy_reason_is_no_fault() -> None:
    reading = Story().see(gpu(0, 0), gpu(1, 1))
    assert set(levels(reading)) == {BAD}
    assert not levels(reading)[BAD].latched


def test_a_healthy_reason_with_a_nonzero_gauge_is_a_fault_all_the_same() -> None:
    assert GOOD in levels(Story().see(page({BAD: 0, GOOD: 1}, {"GpuCountBad": 0})))


def test_a_plugins_fault_clears_at_the_third_fresh_zero_and_not_before() -> None:
    story = Story()
    story.see(gpu(1, 1))
    fresh_until = story.at + FRESH
    for _ in range(2):
        reading = story.see(gpu(0, 1))
        assert levels(reading)[BAD].fresh_until == fresh_until
        assert reading.cleared == frozenset()
        assert "for too short a time" in reading.unconfirmed[BAD[0]]
    reading = story.see(gpu(0, 1))
    assert BAD in reading.cleared
    assert reading.problems == ()
    assert reading.unconfirmed == {}


@pytest.mark.parametrize(
    ("last", "unconfirmed"),
    [
        (gpu(1, 1), False),
        (gpu(0, 0), True),
        (page({BAD: 0, GOOD: 0, (BAD[0], "Other"): 1}, {"GpuCountBad": 0, "Other": 1}), False),
        (page({BAD: 0, GOOD: 0}, {"GpuCountBad": 0}, {BAD[0]: "damaged"}), False),
    ],
    ids=["shown", "not shown", "another reason is shown", "unknown"],
)
def test_what_a_restarted_detector_does_not_show_of_a_plugins_fault_counts_for_nothing_yet(
    last: Page, unconfirmed: bool
) -> None:
    story = Story()
    story.see(gpu(1, 4))
    reading = story.see(last)
    assert ("was restarted" in reading.unconfirmed.get(BAD[0], "")) is unconfirmed


def test_cleared_is_told_as_long_as_it_holds_also_to_one_who_never_saw_the_fault() -> None:
    story = Story()
    story.see(*[gpu(0, 5)] * 2)
    for _ in range(3):
        assert BAD in story.see(gpu(0, 5)).cleared
    assert story.see(gpu(1, 6)).cleared == frozenset()


def test_zeros_must_follow_each_other() -> None:
    story = Story()
    story.see(gpu(1, 1), gpu(0, 1), gpu(0, 1))
    story.see(gpu(1, 2), gpu(0, 2), gpu(0, 2))
    story.miss()
    reading = story.see(gpu(0, 2), gpu(0, 2))
    assert BAD in levels(reading)
    assert BAD in story.see(gpu(0, 2)).cleared


def test_a_plugin_that_could_not_run_is_unknown_and_its_zero_does_not_count() -> None:
    story = Story()
    story.see(gpu(1, 6))
    story.see(gpu(0, 6), gpu(0, 6))
    reading = story.see(gpu(0, 8))
    assert list(reading.unknown) == ["GpuCount"]
    assert BAD in levels(reading)
    story.see(gpu(0, 8), gpu(0, 8))
    assert BAD in levels(story.see(gpu(0, 9)))
    assert BAD in levels(story.see(gpu(0, 9), gpu(0, 9), gpu(0, 9)))
    story.see(gpu(0, 9), after=SETTLE)
    assert BAD in story.see(gpu(0, 9), gpu(0, 9)).cleared


def test_a_plugins_zero_after_its_detectors_restart_says_nothing_at_first() -> None:
    story = Story()
    story.see(gpu(1, 1))
    story.see(gpu(0, 0))
    reading = story.see(*[gpu(0, 0)] * 10)
    assert BAD in levels(reading)
    assert reading.cleared == frozenset()
    story.at += SETTLE
    reading = story.see(*[gpu(0, 0)] * 3)
    assert BAD in reading.cleared
    assert reading.problems == ()


def test_a_plugins_zero_counts_only_where_its_healthy_reason_is_listed() -> None:
    story = Story()
    story.see(gpu(1, 1))
    restarted = page({BAD: 0}, {"GpuCountBad": 0})
    story.see(restarted)
    story.at += SETTLE
    reading = story.see(*[restarted] * 5)
    assert BAD in levels(reading)
    assert not levels(reading)[BAD].latched
    assert reading.cleared == frozenset()


def test_zeros_of_a_type_with_an_unreadable_gauge_do_not_count() -> None:
    story = Story()
    story.see(gpu(1, 1))
    half = page(
        {BAD: 0, GOOD: 0}, {"GpuCountBad": 1}, {"GpuCount": "the gauge of GpuCountGood is not a number"}
    )
    assert story.see(*[half] * 5).cleared == frozenset()
    assert BAD in story.see(*[gpu(0, 1)] * 3).cleared


def test_a_plugin_that_nobody_knows_is_latched_until_its_healthy_reason_shows() -> None:
    bad, good = ("Fans", "FansBad"), ("Fans", "FansGood")
    story = Story()
    reading = story.see(page({bad: 1}, {"FansBad": 1}))
    assert levels(reading)[bad].latched
    assert not levels(story.see(page({bad: 1, good: 0}, {"FansBad": 1})))[bad].latched
    assert bad in story.see(*[page({bad: 0, good: 0}, {"FansBad": 1})] * 3).cleared


def test_a_plugin_that_the_catalogue_knows_is_never_latched() -> None:
    story = Story()
    assert not levels(story.see(page({BAD: 1}, {"GpuCountBad": 1})))[BAD].latched
    assert story.see(*[page({BAD: 0}, {"GpuCountBad": 1})] * 5).cleared == frozenset()


def test_another_reason_of_a_plugin_is_not_taken_for_masked_by_its_count() -> None:
    reading = Story().see(page({BAD: 0, LOST: 1, GOOD: 0}, {"GpuCountBad": 4, "GpuCountLost": 1}))
    assert set(levels(reading)) == {LOST}


def test_a_plugins_fault_hidden_by_another_reason_is_not_cleared() -> None:
    counters = {"GpuCountBad": 1.0, "GpuCountLost": 1.0}
    story = Story()
    story.see(page({BAD: 1, LOST: 0, GOOD: 0}, counters))
    reading = story.see(*[page({BAD: 0, LOST: 1, GOOD: 0}, counters)] * 5)
    assert set(levels(reading)) == {BAD, LOST}
    assert levels(reading)[BAD].masked
    reading = story.see(*[page({BAD: 0, LOST: 0, GOOD: 0}, counters)] * 3)
    assert reading.cleared >= {BAD, LOST}


def test_a_flip_flop_that_moves_a_counter_under_another_reason_is_not_unknown() -> None:
    story = Story()
    story.see(page({BAD: 1, LOST: 0, GOOD: 0}, {"GpuCountBad": 1, "GpuCountLost": 0}))
    reading = story.see(page({BAD: 0, LOST: 1, GOOD: 0}, {"GpuCountBad": 2, "GpuCountLost": 2}))
    assert reading.unknown == {}


def test_a_lost_counter_does_not_turn_a_log_rule_into_a_plugin() -> None:
    story = Story()
    story.see(neuron(DMA, DMA=1))
    damaged = page({HBM: 0, HANG: 0, DMA: 0}, {"HBM": 0, "HANG": 0})
    reading = story.see(*[damaged] * 6)
    assert levels(reading)[DMA].latched
    assert list(reading.unknown) == ["NeuronHealth"]
    assert reading.cleared == frozenset()


# ---------------------------------------------------------------- temporary rules


def test_the_first_page_of_a_temporary_rule_is_its_baseline() -> None:
    reading = Story().see(edges(OOMKilling=5))
    assert reading.problems == ()
    assert (EDGES, "OOMKilling") in reading.listed


def test_a_rise_by_three_is_three_events_at_the_moment_it_was_seen() -> None:
    story = Story()
    reading = story.see(edges(OOMKilling=5), edges(OOMKilling=8))
    (edge,) = reading.problems
    assert (edge.kind, edge.type, edge.times) == (Kind.EDGE, "", (story.at,) * 3)
    assert (edge.latched, edge.since, edge.counter) == (False, story.at, story.at.timestamp())
    assert times(story.see(edges(OOMKilling=8)), "OOMKilling") == edge.times
    assert len(times(story.see(edges(OOMKilling=9)), "OOMKilling")) == 4


def test_a_falling_counter_is_a_restart_and_makes_no_events() -> None:
    story = Story()
    story.see(edges(OOMKilling=5, TaskHung=2), edges(OOMKilling=6, TaskHung=2))
    reading = story.see(edges(OOMKilling=1, TaskHung=4))
    assert len(times(reading, "OOMKilling")) == 1
    assert times(reading, "TaskHung") == ()
    assert len(story.state.said) == 1
    later = story.see(edges(OOMKilling=2, TaskHung=4), after=LOOKS_BACK)
    assert len(times(later, "OOMKilling")) == 2


def test_what_a_detector_counts_right_after_its_start_may_be_what_it_had_counted_before() -> None:
    story = Story()
    story.see(edges(OOMKilling=0), edges(OOMKilling=1))
    reading = story.see(edges(OOMKilling=0), edges(OOMKilling=1))
    assert len(times(reading, "OOMKilling")) == 1


def test_events_are_kept_for_a_day_and_of_more_than_a_hundred_the_first_and_the_last() -> None:
    story = Story()
    reading = story.see(edges(X=0), edges(X=1e9))
    first = times(reading, "X")
    assert len(first) == EDGE_LIMIT
    for count in range(2, 5):
        reading = story.see(edges(X=count * 1e9), after=timedelta(minutes=1))
        assert times(reading, "X") == (*first, *[times(reading, "X")[-1]] * EDGE_LIMIT)
    assert story.see(edges(X=4e9), after=timedelta(hours=24)).problems != ()
    assert story.see(edges(X=4e9), after=timedelta(minutes=1)).problems == ()


def test_what_happened_while_the_page_could_not_be_read_is_counted_afterwards() -> None:
    story = Story()
    story.see(edges(X=1))
    story.miss(after=timedelta(minutes=1))
    assert len(times(story.see(edges(X=3)), "X")) == 2


def test_no_events_are_made_while_a_broken_gauge_hides_which_reasons_are_temporary() -> None:
    story = Story()
    story.see(edges(X=1, Y=1))
    reading = story.see(page({}, {"X": 3, "Y": 1}, {EDGES: "broken", "T": "broken"}))
    assert reading.problems == ()
    assert len(times(story.see(edges(X=3, Y=1)), "X")) == 2


def test_a_new_boot_takes_a_new_baseline() -> None:
    story = Story()
    story.see(edges(X=1), edges(X=2))
    story.boot_id = "boot-2"
    assert story.see(edges(X=9)).problems == ()


# ---------------------------------------------------------------- unknown


def test_a_page_that_was_never_read_is_unknown_and_not_healthy() -> None:
    story = Story()
    reading = story.miss("the connection was refused")
    assert reading.unknown == {
        WHOLE: "node-problem-detector's page cannot be read: the connection was refused"
    }
    assert not reading.readable


def test_the_last_reading_stands_while_its_page_is_fresh_and_no_longer() -> None:
    story = Story()
    last = story.see(neuron(DMA, DMA=1))
    assert story.miss(after=timedelta(seconds=5)) == last
    assert story.miss(after=timedelta(seconds=5)) == last
    reading = story.miss(after=timedelta(seconds=1))
    assert not reading.readable
    fault = levels(reading)[DMA]
    assert fault.latched
    assert fault.fresh_until < story.at


def test_the_beginning_of_not_knowing_is_the_first_missed_read() -> None:
    story = Story()
    story.see(neuron())
    story.miss()
    began = story.at
    story.miss(after=timedelta(minutes=4))
    reading = story.miss(after=timedelta(minutes=6))
    assert reading.unknown_since == {WHOLE: began}
    assert story.see(neuron()).unknown_since == {}
    story.miss()
    assert story.miss(after=timedelta(minutes=1)).unknown_since[WHOLE] > began


def test_the_beginning_of_a_types_unknown_is_kept_per_type() -> None:
    story = Story()
    broken = page({DMA: 0, BAD: 0, GOOD: 0}, {"DMA": 0, "GpuCountBad": 0}, {"NeuronHealth": "broken"})
    story.see(broken)
    began = story.at
    reading = story.see(*[broken] * 3)
    assert reading.unknown_since == {"NeuronHealth": began}
    fine = page({DMA: 0, BAD: 0, GOOD: 0}, {"DMA": 0, "GpuCountBad": 0})
    assert story.see(fine).unknown_since == {}
    story.see(broken)
    assert story.see(broken).unknown_since["NeuronHealth"] > began


def test_an_unknown_type_keeps_its_faults_as_they_were_and_hides_no_other_types() -> None:
    story = Story()
    story.see(page({DMA: 1, BAD: 0, GOOD: 0}, {"DMA": 1, "GpuCountBad": 0}))
    fresh_until = story.at + FRESH
    reading = story.see(
        page({BAD: 1, GOOD: 0}, {"DMA": 1, "GpuCountBad": 1}, {"NeuronHealth": "broken", EDGES: "broken"})
    )
    assert levels(reading)[DMA].fresh_until == fresh_until
    assert levels(reading)[BAD].fresh_until == story.at + FRESH


def test_what_a_damaged_page_shows_is_a_fault_and_what_it_does_not_show_is_unknown() -> None:
    story = Story()
    story.see(neuron())
    cut = page({DMA: 1}, {"HBM": 0, "HANG": 0, "DMA": 1}, {WHOLE: "the page ends in the middle of a line"})
    reading = story.see(cut)
    assert set(levels(reading)) == {DMA}
    assert not reading.readable
    assert reading.listed >= {HBM, HANG, DMA}


def test_a_series_that_is_gone_makes_its_type_unknown_until_it_is_back() -> None:
    story = Story()
    less = page({HBM: 0, HANG: 0}, {"HBM": 0, "HANG": 0, "DMA": 0})
    reading = story.see(neuron(), less)
    assert reading.unknown == {"NeuronHealth": "DMA (NeuronHealth) is no longer on the page"}
    assert list(story.see(less).unknown) == ["NeuronHealth"]
    assert story.see(neuron()).unknown == {}


def test_a_detector_with_another_configuration_after_a_gap_is_believed_but_for_held_faults() -> None:
    story = Story()
    less = page({HBM: 0, HANG: 0}, {"HBM": 0, "HANG": 0})
    story.see(neuron())
    story.miss()
    assert story.see(less).unknown == {}
    held = Story()
    held.see(neuron(DMA, DMA=1))
    held.miss()
    reading = held.see(less)
    assert list(reading.unknown) == ["NeuronHealth"]
    assert DMA in levels(reading)


def test_a_new_boot_without_a_page_is_unknown_at_once() -> None:
    story = Story()
    story.see(neuron(DMA, DMA=1))
    story.boot_id = "boot-2"
    reading = story.miss()
    assert not reading.readable
    assert reading.problems == ()


def test_a_stale_source_clears_nothing() -> None:
    story = Story()
    story.see(*[gpu(0, 0)] * 3)
    assert story.miss(after=timedelta(minutes=1)).cleared == frozenset()


# ---------------------------------------------------------------- the source


class FakeClock:
    """Moments set by hand; ``boottime`` moves with them."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def boottime(self) -> float:
        return self.seconds


class Script:
    """A reader that gives what it is told: bytes are a page, an exception is raised."""

    def __init__(self, clock: FakeClock, answers: Iterable[bytes | Exception], takes: float = 0.0) -> None:
        self.clock = clock
        self.answers = iter(answers)
        self.takes = takes

    def __call__(self) -> bytes:
        self.clock.seconds += self.takes
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


BAD_PAGE = (
    b'problem_counter{reason="GpuCountBad"} 1\n'
    b'problem_gauge{reason="GpuCountBad",type="GpuCount"} 1\n'
    b'problem_gauge{reason="GpuCountGood",type="GpuCount"} 0\n'
)
GOOD_PAGE = BAD_PAGE.replace(b'GpuCount"} 1', b'GpuCount"} 0')


def source(answers: Iterable[bytes | Exception], takes: float = 0.0) -> tuple[NpdSource, FakeClock]:
    clock = FakeClock()
    return NpdSource(Script(clock, answers, takes), clock, clock.now, POLL), clock


def test_a_page_goes_stale_after_three_polls_and_at_least_ten_seconds() -> None:
    assert stale_after(POLL) == timedelta(seconds=10)
    assert stale_after(timedelta(seconds=30)) == timedelta(seconds=90)


def test_identical_bytes_are_parsed_once_and_still_counted_as_fresh_zeros(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[str] = []

    def counting(text: str) -> Page:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr("recovery.signals.npd.parse", counting)
    npd_source, _ = source([BAD_PAGE, *[GOOD_PAGE] * 3])
    readings = [npd_source.poll("b") for _ in range(4)]
    assert [len(r.problems) for r in readings] == [1, 1, 1, 0]
    assert BAD in readings[-1].cleared
    assert len(parsed) == 2


def test_whatever_the_reader_raises_makes_the_source_unknown() -> None:
    npd_source, _ = source([Unreadable("a sentence"), RuntimeError("a bug"), OSError("no route")])
    sentences = [npd_source.poll("b").unknown[WHOLE] for _ in range(3)]
    assert [s.partition("read: ")[2] for s in sentences] == [
        "a sentence",
        "RuntimeError: a bug",
        "OSError: no route",
    ]


def test_a_process_that_was_stopped_while_reading_does_not_use_the_old_page() -> None:
    npd_source, _ = source([BAD_PAGE], takes=60)
    reading = npd_source.poll("b")
    assert reading.problems == ()
    assert "it was out of date before it could be looked at" in reading.unknown[WHOLE]


def test_the_age_of_a_page_runs_on_while_the_process_stands_still() -> None:
    npd_source, clock = source([BAD_PAGE, Unreadable("gone"), Unreadable("gone")])
    npd_source.poll("b")
    clock.seconds += 9
    assert npd_source.poll("b").readable
    clock.seconds += 2
    assert not npd_source.poll("b").readable


def test_a_complaint_is_logged_when_it_changes_and_not_every_cycle(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="recovery.signals.npd")
    npd_source, _ = source([*[Unreadable("one")] * 5, *[Unreadable("two")] * 5, BAD_PAGE, BAD_PAGE])
    for _ in range(12):
        npd_source.poll("b")
    told = [record.getMessage() for record in caplog.records]
    assert len([t for t in told if "read: one" in t]) == 1
    assert len([t for t in told if "read: two" in t]) == 1
    assert told[-1] == "npd: the page is readable again"
    assert len(told) == len(set(told))


def test_a_readers_bug_is_logged_with_its_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    npd_source, _ = source([RuntimeError("a bug")] * 3)
    for _ in range(3):
        npd_source.poll("b")
    assert len([record for record in caplog.records if record.exc_info]) == 1


# ---------------------------------------------------------------- the same page again


@pytest.mark.parametrize("seed", range(20))
def test_a_page_that_is_known_to_change_nothing_means_what_it_would_mean_if_it_were_looked_at_again(
    seed: int,
) -> None:
    chance = random.Random(seed)  # noqa: S311
    damaged = page({HBM: 0}, {"HBM": 0}, unknown={"*": "cut off"})
    pages = [
        neuron(),
        neuron(HBM, HBM=1),
        gpu(0, 0),
        gpu(1, 1),
        gpu(0, 1),
        edges(OOM=3),
        edges(OOM=4),
        damaged,
    ]
    known, anew, shown = Story(), Story(), pages[0]
    for _ in range(300):
        after = timedelta(seconds=chance.choice((0.5, 0.5, 0.5, 20)))
        if chance.random() < 0.1:
            known.boot_id = anew.boot_id = chance.choice(("boot-1", "", "boot-2"))
        if chance.random() < 0.1:
            shown = chance.choice(pages)
        if chance.random() < 0.1:
            assert known.miss(after=after) == anew.miss(after=after)
        else:
            assert known.see(shown, after=after) == anew.see(replace(shown), after=after)


def test_a_page_that_stays_is_looked_at_twice_unless_it_counts_events() -> None:
    for shown in (neuron(), neuron(HBM, HBM=1)):
        story = Story()
        story.see(shown, shown)
        assert story.state.steady is shown
    story, events = Story(), edges(OOM=1)
    story.see(edges(OOM=0), events, events, events)
    assert story.state.steady is None


def test_the_faults_of_a_page_that_stays_are_relied_on_for_as_long_as_any() -> None:
    story, faulty = Story(), neuron(HBM, HBM=1)
    story.see(faulty, faulty, faulty)
    assert story.state.steady is faulty
    reading = story.see(faulty)
    assert [p.fresh_until for p in reading.problems] == [story.at + FRESH]
    assert [p.fresh_until for p in story.miss().problems] == [story.at - POLL + FRESH]
