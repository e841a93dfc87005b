"""Heartbeats: one in every interval, whatever the pace of the loop that asks for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from recovery_testkit.clock import FakeClock

from recovery.provider.monitor import Metric
from recovery.report.heartbeat import Heartbeat
from recovery.report.metrics import Metrics
from recovery.report.publish import Publisher
from tests.builders.times import NOW


class Stand:
    """A heartbeat of a minute. ``told``: what has come to the monitor, and on which second."""

    name = "told"

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.began = self.clock.monotonic()
        self.told: list[tuple[float, Metric]] = []
        events: Any = None
        self.publisher = Publisher(events, lambda: self, Metrics(), cluster_name="c", threaded=False)
        self.heart = Heartbeat(self.publisher, self.clock, lambda: NOW, timedelta(minutes=1))

    def publish(self, metrics: Any) -> None:
        self.told += [(self.clock.monotonic() - self.began, m) for m in metrics]

    def run(self, seconds: float, step: float, watching: bool = True) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.heart.beat(watching)
            self.publisher.drain()

    @property
    def beats(self) -> list[float]:
        return [round(at, 1) for at, _ in self.told]


def test_a_beat_is_one_for_an_agent_that_sees_and_zero_for_a_blind_one() -> None:
    stand = Stand()
    stand.run(60, 30)
    stand.run(60, 30, watching=False)
    metrics = [m for _, m in stand.told]
    assert metrics == [Metric("Heartbeat", value, NOW, {"ClusterName": "c"}) for value in (1.0, 0.0)]


def test_the_first_beat_comes_after_a_whole_interval() -> None:
    stand = Stand()
    stand.run(59, 1)
    assert stand.beats == []
    stand.run(1, 1)
    assert stand.beats == [60]


def test_late_beats_do_not_add_up() -> None:
    stand = Stand()
    stand.run(595, 7)
    minutes = [int(at // 60) for at in stand.beats]
    assert minutes == list(range(1, 10))


def test_beats_that_were_slept_through_are_not_made_up_for() -> None:
    stand = Stand()
    stand.run(330, 330)
    assert stand.beats == [330]
    stand.run(60, 10)
    assert stand.beats == [330, 360]
