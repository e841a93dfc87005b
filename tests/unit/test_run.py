"""When the loop is taken for stuck, and the kubelet may restart it."""

from __future__ import annotations

from datetime import timedelta

from recovery.run import stuck


def test_a_loop_that_came_round_a_minute_ago_is_alive() -> None:
    assert stuck(60, timedelta(seconds=0.5)) is None


def test_a_loop_that_has_not_come_round_for_two_minutes_is_stuck() -> None:
    assert stuck(120, timedelta(seconds=0.5)) == "the loop has not come round for 120 s"


def test_a_loop_that_is_told_to_pause_for_five_minutes_is_not_stuck_meanwhile() -> None:
    assert stuck(310, timedelta(minutes=5)) is None
    assert stuck(400, timedelta(minutes=5)) == "the loop has not come round for 400 s"
