"""The API server's time as agents share it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from recovery_testkit.clock import FakeClock

from recovery.clock import ApiTime, SystemClock

START = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
HALF = timedelta(milliseconds=500)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


def learned(clock: FakeClock, date: datetime = START, took: float = 0.0) -> ApiTime:
    time = ApiTime(clock)
    time.learn(date, clock.monotonic() - took)
    return time


def test_until_an_answer_has_come_the_machines_own_clock_is_believed(clock: FakeClock) -> None:
    time = ApiTime(clock)
    clock.step(timedelta(hours=1))
    assert time.now() == START + timedelta(hours=1)
    assert time.skew() == timedelta(0)


def test_between_answers_time_goes_on(clock: FakeClock) -> None:
    time = learned(clock)
    clock.advance(7.25)
    assert time.now() == START + timedelta(seconds=7.25)


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_step_of_the_wall_clock_moves_no_timer(clock: FakeClock, hours: int) -> None:
    time = learned(clock)
    clock.step(timedelta(hours=hours))
    assert time.now() == START
    assert time.skew() == timedelta(hours=3)


def test_a_date_within_its_resolution_changes_nothing(clock: FakeClock) -> None:
    time = learned(clock)
    clock.advance(0.75)
    time.learn(START, clock.monotonic())
    assert time.now() == START + timedelta(seconds=0.75)


def test_a_date_ahead_of_what_was_believed_is_nearer_to_the_truth(clock: FakeClock) -> None:
    time = learned(clock)
    clock.advance(0.5)
    time.learn(START + timedelta(seconds=1), clock.monotonic())
    assert time.now() == START + timedelta(seconds=1)


def test_a_date_behind_by_more_than_its_resolution_is_believed(clock: FakeClock) -> None:
    time = learned(clock, START + timedelta(seconds=9))
    time.learn(START, clock.monotonic())
    assert time.now() == START


def test_many_answers_find_the_truth_within_half_a_second(clock: FakeClock) -> None:
    clock.advance(0.9)
    time = ApiTime(clock)
    for _ in range(8):
        time.learn(clock.true_time().replace(microsecond=0), clock.monotonic())
        clock.advance(0.3)
    assert abs(time.now() - clock.true_time()) <= HALF


def test_a_slow_answer_says_nothing_about_now(clock: FakeClock) -> None:
    clock.advance(10)
    time = learned(clock, START, took=2.5)
    assert time.now() == clock.now()


def test_a_slow_answer_does_not_replace_a_quick_one(clock: FakeClock) -> None:
    time = learned(clock)
    clock.advance(60)
    time.learn(START + timedelta(hours=5), clock.monotonic() - 2.5)
    assert time.now() == START + timedelta(seconds=60)


def test_skew_is_positive_in_both_directions(clock: FakeClock) -> None:
    assert learned(clock, START + timedelta(seconds=40)).skew() == timedelta(seconds=40)
    assert learned(clock, START - timedelta(seconds=40)).skew() == timedelta(seconds=40)


def test_the_systems_clocks_go_forward_and_know_their_zone() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()
    assert clock.boottime() <= clock.boottime()
