"""What is said once, what is repeated each minute, and what is no news."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock

from recovery.agent.reporter import Reporter
from recovery.decide.assessment import assess
from recovery.decide.decision import Decision, WriteRecord, act, hold, leave, wait
from recovery.model import Phase
from recovery.report.metrics import Metrics
from recovery.report.notice import Notice
from tests.builders.faults import edge, problem, reading, silent
from tests.builders.records import record
from tests.builders.situations import situation
from tests.builders.times import MINUTE, NOW, SECOND


class Told:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.faults: list[str] = []
        self.holding: list[str] = []

    def event(self, notice: Notice) -> None:
        self.events.append(notice.reason)

    def fault(self, reason: str, at: Any) -> None:
        self.faults.append(reason)

    def held(self, kind: str, at: Any) -> None:
        self.holding.append(kind)


class Desk:
    """A reporter with a clock, and all that it said."""

    def __init__(self) -> None:
        self.clock, self.told, self.metrics = FakeClock(), Told(), Metrics()
        told: Any = self.told
        self.reporter = Reporter("node-0", self.clock, told, self.metrics)

    def decides(self, *decisions: Decision, **changes: Any) -> list[str]:
        """The Events that a row of cycles gives, a second apart."""
        before = len(self.told.events)
        s = situation(**changes)
        for d in decisions:
            self.reporter.decision(s, assess(s), d)
            self.clock.advance(1)
        return self.told.events[before:]

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


REPEATED = {
    "undecodable": "Held",
    "handedOver": "HandedOver",
    "abandoned": "AbandonedBySwitchOff",
    "vanished": "Held",
    "lost": "Held",
    "deleted": "Held",
}


@pytest.mark.parametrize("key", REPEATED)
def test_what_a_person_has_to_take_is_said_each_minute(key: str) -> None:
    desk = Desk()
    assert desk.decides(*[hold("so", key=key)] * 60) == [REPEATED[key]]
    assert desk.decides(hold("so", key=key)) == [REPEATED[key]]


@pytest.mark.parametrize(
    ("d", "event"), [(hold("so", key="paused"), "Held"), (wait("so", key="gate"), "Waiting")]
)
def test_anything_else_is_said_once(d: Decision, event: str) -> None:
    assert Desk().decides(*[d] * 200) == [event]


def test_what_came_between_makes_the_same_news_again() -> None:
    paused, budget = hold("so", key="paused"), hold("so", key="budget")
    assert Desk().decides(paused, budget, paused) == ["Held"] * 3


@pytest.mark.parametrize("key", ["settle", "turn", "conflict", "lease"])
def test_a_moments_wait_is_no_news(key: str) -> None:
    assert Desk().decides(wait("so", key=key)) == []
    assert Desk().decides(hold("so", key=key)) == ["Held"]


def test_an_effect_speaks_for_itself_and_health_is_no_event() -> None:
    assert Desk().decides(act(WriteRecord(record()), "so"), leave("healthy")) == []


def test_what_holds_is_published_each_minute_whatever_else_is_said() -> None:
    desk = Desk()
    brake, paused = hold("so", key="brake"), hold("so", key="paused")
    desk.decides(*[brake, paused] * 30)
    assert desk.told.holding == ["brake", "paused"]
    desk.decides(brake, paused)
    assert desk.told.holding == ["brake", "paused"] * 2


def test_switched_off_nothing_is_held() -> None:
    desk = Desk()
    d = hold("so", key="would ('npd', 'NeuronHealth', 'x')")
    assert desk.decides(d, d, on=False) == ["WouldRecover"]
    assert desk.decides(hold("so", key="tell x"), on=False) == ["Held"]
    assert desk.told.holding == []
    assert desk.value("node_recovery_would_act_total", rule="neuron-hardware", action="drain") == 1.0


def test_a_fault_is_published_each_minute_and_an_edge_each_time_that_it_happens() -> None:
    desk = Desk()
    level, happened = problem(), edge("OOMKilling", MINUTE)
    again = edge("OOMKilling", MINUTE, SECOND)
    for found in [(level, happened)] * 60:
        desk.reporter.faults([reading(*found)], NOW)
        desk.clock.advance(1)
    assert desk.told.faults == [level.reason, "OOMKilling"]
    desk.reporter.faults([reading(level, happened)], NOW)
    assert desk.told.faults[2:] == [level.reason]
    desk.reporter.faults([reading(level, again)], NOW)
    assert desk.told.faults[3:] == ["OOMKilling"]


def test_a_fault_that_is_over_is_not_remembered_for_ever() -> None:
    desk = Desk()
    for number in range(500):
        desk.reporter.faults([reading(problem(reason=f"Bad{number}"))], NOW)
        desk.clock.advance(60)
    assert len(desk.told.faults) == 500
    assert len(desk.reporter._sent_at) <= 3


def test_what_happens_once_a_day_or_all_the_time_is_published_each_time() -> None:
    desk = Desk()
    for ago in (2 * MINUTE, MINUTE):  # the one before was forgotten meanwhile
        desk.reporter.faults([reading(edge("OOMKilling", ago))], NOW)
    many = [MINUTE] * 99
    for last in (3 * SECOND, 2 * SECOND, SECOND):  # no more are remembered
        desk.reporter.faults([reading(edge("OOMKilling", *many, last))], NOW)
    assert desk.told.faults == ["OOMKilling"] * 5


def test_what_only_happened_is_an_event_at_most_once_a_minute() -> None:
    desk = Desk()
    for ago in range(120, 0, -1):
        desk.reporter.faults([reading(edge("OOMKilling", ago * SECOND))], NOW)
        desk.decides(hold("so", key="paused"))
    assert desk.told.events.count("FaultSeen") == 2


def test_a_sentence_makes_no_fault_news_again() -> None:
    desk = Desk()
    desk.reporter.faults([reading(problem())], NOW)
    desk.decides(hold("so", key="paused"))
    desk.reporter.faults([reading(problem())], NOW)
    assert len(desk.told.faults) == 1


def test_a_failure_is_logged_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk()
    for _ in range(3):
        desk.reporter.failure(wait("the API server: no answer", key="api"), NOW)
    assert desk.told.events == ["Failed"]
    said = [(x.levelname, x.getMessage()) for x in caplog.records]
    assert said == [("WARNING", "node-0: the API server: no answer [key=api]")]


def test_the_log_has_a_line_for_each_key_and_for_each_effect(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first, second = act(WriteRecord(record()), "first"), act(WriteRecord(record()), "second")
    Desk().decides(wait("2 to go", key="x"), wait("1 to go", key="x"), hold("so", key="x"), first, second)
    assert [x.getMessage() for x in caplog.records] == [
        "node-0: 2 to go [key=x]",
        "node-0: so [key=x]",
        "node-0: first [key=WriteRecord]",
        "node-0: second [key=WriteRecord]",
    ]


def test_gauges_show_the_last_cycle() -> None:
    desk = Desk()
    faults = {"type": "NeuronHealth", "reason": problem().reason}
    desk.reporter.faults([reading(problem())], NOW)
    assert desk.value("node_recovery_faults", **faults) == 1.0
    desk.reporter.faults([reading()], NOW)
    assert desk.value("node_recovery_faults", **faults) is None
    desk.reporter.faults([silent(NOW)], NOW)
    assert desk.value("node_recovery_signal_unknown", source="npd") == 1.0
    desk.reporter.faults([reading()], NOW)
    assert desk.value("node_recovery_signal_unknown", source="npd") == 0.0
    desk.decides(hold("so", key="abandoned"))
    assert desk.value("node_recovery_abandoned") == 1.0
    desk.decides(leave("so"), record=replace(record(), phase=Phase.RECOVERED))
    assert desk.value("node_recovery_abandoned") == 0.0
    assert not desk.value("node_recovery_phase", phase="recovered")


def test_in_three_hours_no_minute_is_left_out_of_a_fault_that_lasts() -> None:
    """A cycle comes half a second too late now and then: that does not add up."""
    desk, minutes = Desk(), set[int]()
    readings = [reading(problem())]
    while (now := desk.clock.monotonic()) < 3 * 3600:
        before = len(desk.told.faults)
        desk.reporter.faults(readings, NOW)
        if len(desk.told.faults) > before:
            minutes.add(int(now // 60))
        desk.clock.advance(0.95)
    assert len(desk.told.faults) == len(minutes) == 3 * 60


def test_a_fault_that_could_not_be_told_for_a_while_is_not_told_twice_at_once() -> None:
    desk = Desk()
    for seconds in (0, 300, 1):
        desk.clock.advance(seconds)
        desk.reporter.faults([reading(problem())], NOW)
    assert len(desk.told.faults) == 2
