"""What the controller read or wrote a moment ago is not read again, and never for long."""

from __future__ import annotations

from typing import Any

import pytest
from recovery_testkit.clock import FakeClock

from recovery.agent.fleet.recent import MOST, RECENT, Recent
from recovery.errors import Conflict

GATE, NODE = ("gate", ""), ("node", "gpu-1")


class Asked:
    """Answers with how often it was asked."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> int:
        self.times += 1
        return self.times


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def recent(clock: FakeClock) -> Recent:
    return Recent(clock)


def test_what_was_read_a_moment_ago_is_not_asked_for_again(recent: Recent, clock: FakeClock) -> None:
    ask = Asked()
    assert [recent.read(GATE, ask), recent.read(GATE, ask)] == [1, 1]
    clock.advance(RECENT + 0.01)
    assert recent.read(GATE, ask) == 2


def test_its_age_counts_from_when_it_was_asked_for(recent: Recent, clock: FakeClock) -> None:
    def slowly() -> str:
        clock.advance(RECENT + 0.01)
        return "old by the time it comes"

    recent.read(GATE, slowly)
    assert recent.read(GATE, Asked()) == 1


def test_what_was_written_is_what_is_read(recent: Recent) -> None:
    recent.read(GATE, Asked())
    recent.write(GATE, lambda: "written")
    assert recent.read(GATE, Asked()) == "written"


def test_after_a_write_that_failed_nothing_is_known(recent: Recent) -> None:
    def refused() -> Any:
        raise Conflict("another was first")

    recent.read(GATE, lambda: "before")
    with pytest.raises(Conflict):
        recent.write(GATE, refused)
    assert recent.read(GATE, Asked()) == 1


def test_an_answer_that_comes_late_takes_the_place_of_no_later_one(recent: Recent, clock: FakeClock) -> None:
    def slowly() -> str:
        clock.advance(0.1)
        recent.write(GATE, lambda: "written meanwhile")
        return "as it was before"

    assert recent.read(GATE, slowly) == "as it was before"
    assert recent.read(GATE, Asked()) == "written meanwhile"


def test_what_is_to_be_read_anew_is(recent: Recent) -> None:
    recent.read(GATE, lambda: "before")
    recent.read(NODE, lambda: "before")
    recent.forget(GATE)
    assert (recent.read(GATE, Asked()), recent.read(NODE, Asked())) == (1, "before")


def test_what_another_thread_asked_for_before_is_not_what_is_read_anew(clock: FakeClock) -> None:
    """Its answer may be seconds on its way. A pause that was set meanwhile is not on it."""
    recent = Recent(clock, lambda key, found: True)

    def slowly() -> str:
        clock.advance(3)
        recent.forget(GATE)
        clock.advance(0.1)
        return "as it was before"

    recent.read(GATE, slowly)
    assert recent.since(GATE) == clock.monotonic()
    assert recent.read(GATE, lambda: "paused") == "paused"
    assert recent.read(GATE, Asked()) == "paused"


def test_another_version_that_the_watch_shows_is_read_anew_and_the_same_one_is_not(recent: Recent) -> None:
    recent.read(NODE, lambda: "7")
    recent.forget_other(NODE, lambda known: bool(known == "7"))
    assert recent.read(NODE, Asked()) == "7"
    recent.forget_other(NODE, lambda known: bool(known == "8"))
    assert recent.read(NODE, Asked()) == 1


def test_the_oldest_of_several_says_how_old_they_are(recent: Recent, clock: FakeClock) -> None:
    began = clock.monotonic()
    assert recent.since(GATE, NODE) == began
    recent.read(GATE, Asked())
    clock.advance(0.2)
    recent.read(NODE, Asked())
    assert recent.since(GATE, NODE) == began
    clock.advance(RECENT - 0.1)
    assert recent.since(GATE, NODE) == began + 0.2, "the gate is read anew"


def test_it_does_not_grow_with_the_fleet(recent: Recent, clock: FakeClock) -> None:
    for i in range(3 * MOST):
        recent.read(("node", str(i)), Asked())
        clock.advance(RECENT / MOST)
    assert len(recent._objects) <= MOST
