"""What the cloud's monitor is told for as long as it lasts: what holds a recovery, and that agents live."""

from __future__ import annotations

from datetime import timedelta

import pytest
from recovery_testkit.kubefaults import lost_request
from recovery_testkit.stage import Stage

from recovery.errors import Retry, Unreadable
from tests.builders.faults import DMA
from tests.builders.policies import policy_file
from tests.stories.scenes import (
    at,
    beating,
    braked,
    calls,
    cast,
    handed_over,
    new_process,
    pause,
    remove_pod,
    resume,
    says,
    stubborn_pod,
    value,
)

FIVE_MINUTES = timedelta(minutes=5)
SICK = ("node-0", "node-1", "node-2")


def held(s: Stage) -> list[str]:
    """The reasons of all ``RecoveryHeld`` that were published, one by one."""
    found = [m for m in s.told.metrics if m.name == "RecoveryHeld"]
    assert {(m.value, m.dimensions["ClusterName"]) for m in found} <= {(1.0, "default")}
    assert all(set(m.dimensions) == {"ClusterName", "Reason"} for m in found)
    return [m.dimensions["Reason"] for m in found]


def beats(s: Stage) -> list[float]:
    return [m.value for m in s.told.metrics if m.name == "Heartbeat"]


# ---------------------------------------------------------------- what holds


def test_the_brake_is_told_each_minute_while_it_holds() -> None:
    s = braked()
    s.run(185, step=1)
    told = held(s)
    assert set(told) == {"brake"}
    assert 3 * len(SICK) <= len(told) <= 5 * len(SICK)


def test_the_brake_is_a_gauge_with_its_reason() -> None:
    s = braked()
    agents = [s.actors[f"agent of {node}"] for node in SICK]
    assert [value(a, "node_recovery_held", reason="brake") for a in agents] == [1, 1, 1]


def test_what_holds_no_longer_is_told_no_longer() -> None:
    s = cast(policy_file(limits="cooldown: 0s"))
    pause(s)
    s.fault("node-0")
    s.run(65, step=1)
    assert held(s) == ["paused", "paused"]
    resume(s)
    s.run(65, step=1)
    assert held(s) == ["paused", "paused"]


def test_reasons_that_take_turns_are_each_told_once_a_minute() -> None:
    s = braked()
    for _ in range(2):
        pause(s)
        s.run(12)
        resume(s)
        s.run(12)
    assert sorted(held(s)) == ["brake"] * len(SICK) + ["paused"] * len(SICK)


def test_a_hand_over_is_told_each_minute_until_it_is_taken() -> None:
    s = cast(policy_file("{do: cordon}"))
    s.fault("node-0")
    s.run(185, step=1)
    assert held(s)[:1] == ["handedOver"]
    assert set(held(s)) == {"handedOver"}
    assert len(held(s)) in (3, 4)


def test_a_hand_over_whose_agent_is_gone_is_told_by_another() -> None:
    s = handed_over()
    s.kill(s.actors["agent of node-0"])
    s.concluder()
    s.run(70, step=2)  # its Lease runs out
    before = len(held(s))
    s.run(180, step=2)
    assert held(s)[before:] == ["handedOver"] * 3


def test_what_off_abandons_is_told() -> None:
    s = at("draining")
    new_process(s, "node-0", on=False)
    s.run(65, step=1)
    assert held(s)[-1] == "abandoned"


def test_a_drain_that_goes_on_past_its_time_keeps_its_slot_and_is_told_each_minute() -> None:
    s = cast(policy_file("{do: drain, within: 5m, then: hold}, {do: replace, within: 30m}"))
    stubborn_pod(s)
    s.fault("node-0")
    s.run(4 * 60, step=1)
    assert held(s) == [], "in its time it only waits"
    s.run(4 * 60, step=1)
    assert held(s) == ["drain-late"] * len(held(s))
    assert len(held(s)) in (3, 4)
    late = f"{DMA}: the drain did not end within 5 min and goes on, as the policy says, 1 pod left; "
    assert says(s, "Held", f"{late}default/train may not go yet: The disruption budget keep needs 1")
    agent = s.actors["agent of node-0"]
    for _ in range(20):
        agent.turn()
        assert value(agent, "node_recovery_held", reason="drain-late") == 1, "between two evictions, too"
        s.clock.advance(1)
    remove_pod(s)
    s.run(65, step=1)
    assert calls(s) == [("replace", "m-0")]
    assert len(held(s)) in (3, 4)


def test_observing_holds_nothing() -> None:
    s = cast(on=False)
    s.fault("node-0")
    s.fault("node-1", "HANG_ON_COLLECTIVES")
    s.run(125, step=1)
    assert held(s) == []


@pytest.mark.parametrize(("reason", "label"), [("DMA_ERROR", "would"), ("HANG_ON_COLLECTIVES", "tell")])
def test_the_gauge_of_what_holds_names_no_fault(reason: str, label: str) -> None:
    """Its label would grow with the faults there are."""
    s = cast(on=False)
    s.fault("node-0", reason)
    s.run(3)
    assert value(s.actors["agent of node-0"], "node_recovery_held", reason=label) == 1


def test_a_monitor_that_fails_delays_no_recovery_that_was_held() -> None:
    s = at("draining")
    pause(s)
    s.told.error = Retry("throttled")
    s.run(65, step=1)
    remove_pod(s)
    resume(s)
    s.run(3)
    assert [step.value for step, _, _ in s.provider.calls] == ["replace"]


# ---------------------------------------------------------------- heartbeats


@pytest.mark.parametrize("on", [True, False])
def test_each_agent_beats_once_in_every_interval(on: bool) -> None:
    s = beating(FIVE_MINUTES, on=on)
    s.run(1210, step=7)
    assert beats(s) == [1.0] * 2 * 4


def test_by_default_nothing_beats() -> None:
    s = cast()
    s.run(1210, step=7)
    assert s.told.metrics == []


def test_an_agent_that_cannot_read_its_page_beats_zero() -> None:
    s = beating(FIVE_MINUTES)
    s.pages["node-0"].error = Unreadable("connection refused")
    s.run(305, step=5)
    assert sorted(beats(s)) == [0.0, 1.0]


def test_an_agent_whose_cycles_fail_beats_zero() -> None:
    s = beating(FIVE_MINUTES)
    s.run(200, step=5)
    s.fault("node-0")
    s.api.fail_next(lambda asked: "/nodes/node-0" in asked.path, lost_request, times=1000)
    s.run(105, step=5)
    assert sorted(beats(s)) == [0.0, 1.0]


def test_a_dead_agent_beats_no_more() -> None:
    s = beating(FIVE_MINUTES)
    s.run(301, step=1)
    s.kill(s.actors["agent of node-0"])
    s.run(300, step=5)
    assert len(beats(s)) == 3
