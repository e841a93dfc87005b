"""One API server of several has a wrong clock: no timer is shortened by it, and it is reported."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.stage import Stage, npd_page

from recovery.clock import ApiTime
from recovery.errors import Ambiguous, Retry
from recovery.kube.transport import Response
from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenes import REBOOTS, boot, calls, phase, stubborn_pod, the_record, value

TOLERANT = policy_file("{do: replace, within: 30m}", after="5m")
DRAINS = policy_file("{do: drain, within: 5m, then: force}, {do: replace, within: 30m}")
Chosen = Callable[[int], bool]


class SeveralServers:
    """A connection whose answers come from several API servers, one of them wrong by ``off`` seconds."""

    def __init__(self, transport: Any, stage: Stage, wrong: Chosen, off: float) -> None:
        self._transport, self._stage, self._wrong, self._off = transport, stage, wrong, off
        self._asked = 0

    def request(self, *args: Any, **more: Any) -> Response:
        answer = self._transport.request(*args, **more)
        self._asked += 1
        date = self._stage.clock.true_time()
        if self._wrong(self._asked):
            date += timedelta(seconds=self._off)
        return dated(answer, date)


def dated(answer: Response, date: datetime) -> Response:
    """``answer``, as a server whose clock shows ``date`` gives it."""
    headers = {k: v for k, v in answer.headers.items() if k.lower() != "date"}
    headers["Date"] = format_datetime(date.replace(microsecond=0), usegmt=True)
    return Response(answer.status, headers, answer.body)


def in_turn(first: int) -> Chosen:
    return lambda asked: asked % 3 == first


def by_chance(seed: int) -> Chosen:
    chance = random.Random(seed)  # noqa: S311
    return lambda asked: chance.random() < 1 / 3


def with_one_wrong(policy: bytes, wrong: Chosen, off: float) -> Stage:
    s = Stage(policy)
    s.wrap = lambda transport: SeveralServers(transport, s, wrong, off)
    s.nodes(4)
    return s


def until_called(s: Stage, limit: float = 900.0) -> float:
    began = s.clock.monotonic()
    while not s.provider.calls and s.clock.monotonic() - began < limit:
        s.run(0.5)
    return s.clock.monotonic() - began


SERVERS = [in_turn(0), in_turn(1), in_turn(2), by_chance(1), by_chance(2), by_chance(3)]


@pytest.mark.parametrize("wrong", SERVERS)
@pytest.mark.parametrize("off", [300.0, -300.0])
def test_a_fault_tolerated_for_five_minutes_is_tolerated_for_five_minutes(wrong: Chosen, off: float) -> None:
    s = with_one_wrong(TOLERANT, wrong, off)
    s.fault("node-0")  # from the very first look on
    s.agent("node-0")
    assert 300 <= until_called(s) <= 310
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize("first", [4, 10, 20])
def test_it_is_also_where_all_first_answers_come_from_a_server_that_is_behind(first: int) -> None:
    """As they do, over one connection that is kept."""
    s = with_one_wrong(TOLERANT, lambda asked: asked <= first, -300.0)
    s.fault("node-0")
    s.agent("node-0")
    assert 300 <= until_called(s) <= 310


def test_a_fault_is_tolerated_no_shorter_because_all_clocks_were_set_forward() -> None:
    s = Stage(TOLERANT)
    clocks = SetBack(s, timedelta(0))
    s.nodes(4)
    s.agent("node-0")
    s.fault("node-0")
    s.run(10)
    s.clock.step(timedelta(minutes=10))
    clocks.ahead = timedelta(minutes=10)
    assert 285 <= until_called(s) <= 300


@pytest.mark.parametrize("off", [300.0, -300.0])
def test_a_drain_has_its_five_minutes(off: float) -> None:
    s = with_one_wrong(DRAINS, in_turn(0), off)
    s.agent("node-0")
    stubborn_pod(s)
    s.run(3)
    s.fault("node-0")
    assert 300 <= until_called(s) <= 315


class SetBack:
    """A connection to API servers whose clocks, and those of all machines, are ``ahead`` until set right."""

    def __init__(self, stage: Stage, ahead: timedelta) -> None:
        self._stage, self.ahead = stage, ahead
        stage.clock.step(ahead)
        stage.wrap = lambda transport: _Dated(transport, self)

    def set_right(self) -> None:
        self._stage.clock.step(-self.ahead)
        self.ahead = timedelta(0)

    def date(self) -> datetime:
        return self._stage.clock.true_time() + self.ahead


class _Dated:
    def __init__(self, transport: Any, clocks: SetBack) -> None:
        self._transport, self._clocks = transport, clocks

    def request(self, *args: Any, **more: Any) -> Response:
        return dated(self._transport.request(*args, **more), self._clocks.date())


def all_ahead(policy: bytes) -> tuple[Stage, SetBack]:
    s = Stage(policy)
    clocks = SetBack(s, timedelta(hours=3))
    s.nodes(4)
    s.agent("node-0")
    s.run(3)
    return s, clocks


def test_a_drain_does_not_wait_for_hours_because_all_clocks_were_set_back_by_hours() -> None:
    s, clocks = all_ahead(DRAINS)
    stubborn_pod(s)
    s.fault("node-0")
    s.run(70)  # the kubelet has not written since the clocks were put ahead
    assert phase(s) is Phase.RECOVERING
    clocks.set_right()
    assert until_called(s) <= 400


def test_a_probation_does_not_last_for_hours_because_all_clocks_were_set_back_by_hours() -> None:
    s, clocks = all_ahead(REBOOTS)
    s.fault("node-0")
    s.run(70)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(5)
    assert phase(s) is Phase.PROVING
    clocks.set_right()
    s.run(100)
    assert phase(s) is Phase.PROVING, "nor is it shortened"
    s.run(120)
    assert phase(s) is Phase.RECOVERED


def test_a_start_before_all_clocks_were_set_back_holds_others_for_no_longer_than_a_cooldown() -> None:
    s = Stage(policy_file(limits="cooldown: 5m, budget: 2, budgetPer: {}, perGroup: {max: 9, within: 1h}"))
    clocks = SetBack(s, timedelta(hours=3))
    for name in s.nodes(8):
        s.agent(name)
    s.run(3)
    s.fault("node-0")
    s.run(70)
    assert calls(s) == [("replace", "m-0")]
    clocks.set_right()
    s.fault("node-1")
    s.run(200)
    assert calls(s) == [("replace", "m-0")], "nor is it shortened"
    s.run(200)
    assert calls(s) == [("replace", "m-0"), ("replace", "m-1")]


def set_forward(policy: bytes, hours: float, own: float, *, stubborn: bool = False) -> Stage:
    """In the middle of a step the API servers' clock is set forward, and the machines' by ``own`` hours. A
    minute later all is right again."""
    s = Stage(policy)
    clocks = SetBack(s, timedelta(0))
    s.nodes(4)
    s.agent("node-0")
    s.run(3)
    if stubborn:
        stubborn_pod(s)
    s.fault("node-0")
    s.run(8)
    s.clock.step(timedelta(hours=own))
    clocks.ahead = timedelta(hours=hours)
    s.run(60)
    s.clock.step(-timedelta(hours=own))
    clocks.ahead = timedelta(0)
    return s


@pytest.mark.parametrize("own", [0, 2], ids=["of the servers alone", "of all"])
def test_a_reboot_does_not_miss_its_deadline_because_clocks_were_set_forward(own: float) -> None:
    s = set_forward(REBOOTS, 2, own)
    s.run(300)
    assert calls(s) == [("reboot", "m-0")]
    s.run(600)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")], "ten minutes have passed"


@pytest.mark.parametrize("own", [0, 2], ids=["of the servers alone", "of all"])
def test_a_drain_is_not_cut_short_because_clocks_were_set_forward(own: float) -> None:
    s = set_forward(DRAINS, 2, own, stubborn=True)
    s.run(200)
    assert calls(s) == []
    assert until_called(s) <= 300


def test_the_server_that_is_wrong_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    s = with_one_wrong(TOLERANT, in_turn(0), 300.0)
    actor = s.agent("node-0")
    s.fault("node-0")
    s.run(120)
    told = [r.getMessage() for r in caplog.records if "the clock of an API server" in r.getMessage()]
    assert told == ["the clock of an API server is 300 s ahead of the others: its time is not used"]
    assert 299 <= value(actor, "node_recovery_api_clock_outlier_seconds") <= 301


def truth(clock: FakeClock) -> datetime:
    return clock.true_time().replace(microsecond=0)


@pytest.mark.parametrize("seconds", [-600, 600])
def test_a_step_of_all_api_servers_is_followed_after_some_twenty_answers(seconds: int) -> None:
    clock = FakeClock()
    time = ApiTime(clock)
    for _ in range(40):
        time.learn(truth(clock), clock.monotonic())
        clock.advance(1)
    step = timedelta(seconds=seconds)
    answers = 0
    while abs(time.now() - clock.true_time() - step) > timedelta(seconds=1):
        time.learn(truth(clock) + step, clock.monotonic())
        clock.advance(1)
        answers += 1
    assert 10 <= answers <= 25


def test_after_an_hour_without_an_outlier_the_next_one_is_reported_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    time = ApiTime(clock)
    for answer in range(12):
        off = timedelta(minutes=5) if answer in (5, 11) else timedelta(0)
        time.learn(truth(clock) + off, clock.monotonic())
        assert (time.outlier > timedelta(0)) is (answer in (5, 6, 11))
        clock.advance(3000)
    assert len(caplog.records) == 2


# ---------------------------------------------------------------- all clocks are set back by hours


def test_a_lost_call_is_asked_again_though_all_clocks_were_set_back_by_hours() -> None:
    s, clocks = all_ahead(policy_file("{do: replace, within: 30m}"))

    def lose() -> None:
        s.provider.before_call = lambda: None
        raise Ambiguous("the connection was reset")

    s.provider.before_call = lose
    s.fault("node-0")
    while (r := s.record("node-0")) is None or r.intent is None:
        s.run(0.5)
    clocks.set_right()
    assert 60 <= until_called(s) <= 80


def test_a_call_that_was_put_off_is_made_though_all_clocks_were_set_back_by_hours() -> None:
    s, clocks = all_ahead(policy_file("{do: replace, within: 30m}"))
    s.provider.start_error = Retry("throttled", timedelta(minutes=5))
    s.fault("node-0")
    until_called(s)
    s.provider.start_error = None
    s.provider.calls.clear()
    clocks.set_right()
    assert until_called(s) <= 60


def test_a_node_that_is_gone_is_laid_to_rest_though_all_clocks_were_set_back_by_hours() -> None:
    s, clocks = all_ahead(policy_file("{do: cordon}"))
    s.agent("node-1")
    s.concluder()
    s.fault("node-0")
    s.run(100)
    s.provider.gone = lambda machine: None
    s.delete_node("node-0")
    s.kill(s.actors["agent of node-0"])
    s.run(300, step=5)
    assert (phase(s), the_record(s).node_gone_since is None) == (Phase.HANDED_OVER, False)
    clocks.set_right()
    s.run(3000, step=10)
    assert phase(s) is Phase.HANDED_OVER
    s.run(1200, step=10)
    assert phase(s) is Phase.SUPERSEDED
