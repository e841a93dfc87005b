"""An API server or a cloud that asks for rest gets it: clients back off, and honour Retry-After."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, Effect, lost_request, refused, server_error, throttled
from recovery_testkit.stage import Actor, Stage

from recovery.agent import peers
from recovery.errors import Retry
from recovery.model import Machine, Phase, Poll, Reference
from tests.builders.policies import policy_file
from tests.stories.scenery import records
from tests.stories.scenes import calls, cast, messages, pause, phase, resume, stubborn_pod
from tests.stories.test_crowds import a_gate, queue_of

DRAINS = policy_file("{do: drain, within: 1m, then: hold}, {do: replace, within: 30m}")
REPLACES = policy_file("{do: replace, within: 30m}")
BUSY = {
    "429": throttled(30),
    "429 without Retry-After": refused(429, "TooManyRequests"),
    "503": refused(503, "ServiceUnavailable", retry_after=30),
    "500": server_error(),
    "no answer": lost_request,
}


def asked_by(s: Stage, actor: str, effect: Effect | None = None) -> list[float]:
    """When ``actor`` asked for something, from now on. Each of its requests gets ``effect``."""
    times: list[float] = []

    def look(asked: Asked) -> bool:
        if asked.user_agent == actor:
            times.append(s.clock.monotonic())
        return effect is not None and asked.user_agent == actor

    s.api.fail_next(look, effect or lost_request, times=10**6)
    return times


# ---------------------------------------------------------------- the API server


@pytest.mark.parametrize("answer", BUSY)
def test_an_overloaded_server_is_asked_no_more_than_one_that_answers(answer: str) -> None:
    s = cast(agents=1)
    healthy = asked_by(s, "agent of node-0")
    s.run(600, step=1)
    s.api.heal()
    turned_away = asked_by(s, "agent of node-0", BUSY[answer])
    s.run(600, step=1)
    assert len(healthy) <= 32, "its gate once a minute, its Node twice"
    assert len(turned_away) <= len(healthy) + 3


@pytest.mark.parametrize("answer", ["429", "503"])
def test_retry_after_is_waited_for_by_an_agent_whose_node_is_sick(answer: str) -> None:
    s = cast(agents=1)
    times = asked_by(s, "agent of node-0", BUSY[answer])
    s.run(30)
    times.clear()
    s.fault("node-0")
    s.run(300)
    pauses = [b - a for a, b in pairwise(times)]
    own, sweeps = len(times), 300 / 30
    assert own <= 2 * sweeps + 300 / 60 + 3, (
        "its own cycle and the sweep at most once in 30 s, its Node in 60"
    )
    assert sum(p < 5 for p in pauses) <= 1.5 * sweeps
    s.api.heal()
    s.run(45)
    assert calls(s) == [], "what other agents have to tell is waited for first"
    s.run(45)
    assert calls(s) == [("replace", "m-0")]


def test_who_was_turned_away_together_does_not_come_back_together() -> None:
    s = cast(count=8, agents=8)
    asked: dict[str, list[float]] = {}

    def look(request: Asked) -> bool:
        if request.user_agent.startswith("agent") and "/events" not in request.path:
            asked.setdefault(request.user_agent, []).append(s.clock.monotonic())
            return True
        return False

    s.api.fail_next(look, throttled(20), times=10**6)
    for node in s.pages:
        s.fault(node)
    s.run(90, step=0.1)
    second = {times[1] for times in asked.values()}
    assert len(asked) == 8
    assert len(second) >= 6


def test_a_record_that_cannot_be_read_for_now_is_not_asked_for_every_two_seconds() -> None:
    s = cast(DRAINS, agents=2)
    stubborn_pod(s)
    s.fault("node-0")
    s.run(10)
    s.kill(s.actors["agent of node-0"])
    s.run(150)
    times = asked_by(s, "agent of node-1", throttled(30))
    s.run(300)
    assert len(times) <= 18


# ---------------------------------------------------------------- the cloud


def test_a_cloud_that_throttles_is_polled_when_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    s = cast(REPLACES, agents=1)
    s.fault("node-0")
    s.run(5)
    assert calls(s) == [("replace", "m-0")]
    times: list[float] = []

    def poll(machine: Machine, reference: Reference) -> Poll:
        times.append(s.clock.monotonic())
        raise Retry("AWS turned DescribeAutoScalingGroups away for now", timedelta(seconds=30))

    monkeypatch.setattr(s.provider, "poll", poll)
    s.run(300)
    assert 5 <= len(times) <= 11


def test_a_preflight_without_an_answer_is_made_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    s = cast(policy_file("{do: drain, within: 10m}, {do: replace, within: 30m}"), agents=1)
    s.fault("node-0")
    times: list[float] = []

    def preflight(machine: Machine, action: Any) -> Any:
        times.append(s.clock.monotonic())
        raise Retry("no usable answer")

    monkeypatch.setattr(s.provider, "preflight", preflight)
    s.run(600)
    assert 5 <= len(times) <= 25


# ---------------------------------------------------------------- a concluder


def restarted(s: Stage, every: float, until: Callable[[], bool], limit: float) -> float:
    """A concluder that is killed and started again, in another pod each time. How long it took."""
    began, number = s.clock.monotonic(), 0
    while not until() and s.clock.monotonic() - began < limit:
        actor: Actor = s.concluder(f"concluder {number}")
        s.run(every, step=1)
        s.kill(actor)
        number += 1
    return s.clock.monotonic() - began


def dead_while_draining(s: Stage) -> None:
    stubborn_pod(s)
    s.fault("node-0")
    s.run(8)
    assert phase(s) is Phase.RECOVERING
    s.kill(s.actors["agent of node-0"])


def test_a_concluder_that_is_restarted_every_two_minutes_still_concludes() -> None:
    s = cast(DRAINS, agents=1)
    dead_while_draining(s)
    took = restarted(s, 120, lambda: records(s) == {"node-0": "handedOver"}, 3600)
    assert 15 * 60 <= took <= 30 * 60
    assert any("nobody has looked after node-0 for 16 min" in m for m in messages(s, "HandedOver"))


def test_an_agent_that_came_back_in_between_has_all_its_time_again() -> None:
    s = cast(DRAINS, agents=1)
    dead_while_draining(s)
    restarted(s, 120, lambda: False, 10 * 60)
    back = s.agent("node-0", name="back")
    s.run(120, step=1)
    s.kill(back)
    took = restarted(s, 120, lambda: records(s) == {"node-0": "handedOver"}, 3600)
    assert took >= 15 * 60


def test_a_pause_is_not_time_in_which_an_agent_could_come_back() -> None:
    s = cast(DRAINS, agents=1)
    dead_while_draining(s)
    pause(s)
    s.concluder()
    s.run(30 * 60, step=2)
    assert phase(s) is Phase.RECOVERING
    resume(s)
    s.run(20 * 60, step=2)
    assert phase(s) is Phase.HANDED_OVER
    assert any("28 min by a pause besides" in m for m in messages(s, "HandedOver"))


def test_a_sweep_over_hundreds_of_records_ends_in_time_and_goes_on_where_it_stopped() -> None:
    s = Stage()
    s.nodes(1)
    concluder = s.concluder()
    a_gate(s)
    queue_of(s, 260)
    beats: list[float] = []
    concluder.sweeper._beat = lambda: beats.append(s.clock.monotonic())
    seen: set[str] = set()

    def slowly(asked: Asked, go: Callable[[], Any]) -> Any:
        s.clock.advance(0.25)
        seen.add(asked.path.rsplit("/", 1)[-1])
        return go()

    s.api.fail_next(lambda a: a.user_agent == "concluder" and "/leases/" in a.path, slowly, times=10**6)
    longest, sweeps = 0.0, 0
    while len(seen) < 260 and sweeps < 30:
        began = s.clock.monotonic()
        concluder.sweeper.sweep()
        longest, sweeps = max(longest, s.clock.monotonic() - began), sweeps + 1
    assert len(seen) == 260
    assert longest <= peers.LONGEST_SWEEP + 1
    assert 260 <= len(beats) <= 300
