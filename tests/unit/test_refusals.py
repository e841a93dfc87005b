"""What is asked for again and again, ever more seldom."""

from __future__ import annotations

from recovery.agent.memory import Asked, Memory


def test_who_is_refused_for_a_day_is_asked_as_seldom_as_ever_and_no_number_overflows() -> None:
    memory, asked, now = Memory(), Asked(), 0.0
    for _ in range(3000):
        memory.refuse("default/web", "its budget keeps it", now)
        asked = asked.once_more("token", now)
        now += 30.0
    assert memory.refused["default/web"].until - (now - 30.0) == 10.0
    assert asked.until - (now - 30.0) == 60.0
