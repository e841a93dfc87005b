"""A BMC that does not answer is asked beside whoever asks, who goes on."""

from __future__ import annotations

import threading

import pytest
from recovery_testkit.clock import FakeClock

from providers.baremetal.aside import GOOD_FOR, Aside
from recovery.errors import Refused, Retry

LONG = 10.0
"""Seconds within which a look ends that nothing holds up."""


class Bmc:
    """Answers once it may. ``looks``: how often it was asked."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.answer: str | Exception = "On"
        self.looks = 0
        self.ended = threading.Semaphore(0)

    def look(self) -> str:
        self.looks += 1
        try:
            assert self.may.wait(LONG)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer
        finally:
            self.ended.release()


def ask(aside: Aside, bmc: Bmc, question: str = "power") -> str:
    return str(aside.ask("m-0", question, "the BMC of node-0", bmc.look))


def asked_in_vain(aside: Aside, bmc: Bmc) -> None:
    with pytest.raises(Retry, match="the BMC of node-0 was asked, and has not answered yet"):
        ask(aside, bmc)


def answers(bmc: Bmc) -> None:
    bmc.may.set()
    assert bmc.ended.acquire(timeout=LONG)


def settled(aside: Aside) -> Aside:
    """Once every look that has ended is known to have."""
    for look in aside._looks.values():
        assert look.done.wait(LONG)
    return aside


def test_a_bmc_that_has_not_answered_yet_keeps_nobody_waiting_and_is_asked_once() -> None:
    aside, bmc = Aside(FakeClock(), 0.0, LONG), Bmc()
    asked_in_vain(aside, bmc)
    asked_in_vain(aside, bmc)
    answers(bmc)
    assert (ask(settled(aside), bmc), bmc.looks) == ("On", 1)


def test_for_one_that_answered_last_time_it_is_waited() -> None:
    aside, bmc = Aside(FakeClock(), 0.0, LONG), Bmc()
    asked_in_vain(aside, bmc)
    answers(bmc)
    assert ask(settled(aside), bmc) == "On"
    bmc.may.clear()
    threading.Timer(0.05, bmc.may.set).start()
    assert (ask(aside, bmc), bmc.looks) == ("On", 2)


def test_for_one_that_answered_yesterday_it_is_not_waited() -> None:
    """Its rack may have lost its power with all the others in it."""
    clock = FakeClock()
    aside, bmc = Aside(clock, 0.0, LONG), Bmc()
    asked_in_vain(aside, bmc)
    answers(bmc)
    assert ask(settled(aside), bmc) == "On"
    bmc.may.clear()
    clock.advance(24 * 3600)
    threading.Timer(0.2, bmc.may.set).start()
    asked_in_vain(aside, bmc)


def test_for_one_that_gave_no_answer_last_time_it_is_not_waited_again() -> None:
    aside, bmc = Aside(FakeClock(), LONG, LONG), Bmc()
    bmc.answer = Retry("no route to it")
    bmc.may.set()
    with pytest.raises(Retry, match="no route"):
        ask(aside, bmc)
    aside._patience = 0.0
    bmc.may.clear()
    threading.Timer(0.2, bmc.may.set).start()
    asked_in_vain(aside, bmc)


def test_one_that_answered_once_and_hangs_now_is_waited_for_one_time() -> None:
    aside, bmc = Aside(FakeClock(), LONG, 0.0), Bmc()
    bmc.may.set()
    assert ask(aside, bmc) == "On"
    bmc.may.clear()
    asked_in_vain(aside, bmc)
    threading.Timer(0.05, bmc.may.set).start()
    assert (ask(aside, bmc), bmc.looks) == ("On", 2), "with the patience for those that may not answer"


def test_a_refusal_is_an_answer_and_reaches_who_asks_later() -> None:
    aside, bmc = Aside(FakeClock(), 0.0, LONG), Bmc()
    bmc.answer = Refused("it states another UUID")
    asked_in_vain(aside, bmc)
    answers(bmc)
    with pytest.raises(Refused, match="another UUID"):
        ask(settled(aside), bmc)


def test_an_answer_that_nobody_came_for_in_time_is_asked_for_again() -> None:
    clock = FakeClock()
    aside, bmc = Aside(clock, 0.0, LONG), Bmc()
    asked_in_vain(aside, bmc)
    answers(bmc)
    settled(aside)
    clock.advance(GOOD_FOR + 1)
    bmc.answer, aside._patience = "Off", LONG
    assert (ask(aside, bmc), bmc.looks) == ("Off", 2)


@pytest.mark.parametrize("pause", [60.0, 240.0])
def test_a_bmc_that_answers_slowly_is_waited_for_where_it_is_asked_seldom(pause: float) -> None:
    """It gave no answer for long, so it is asked once in minutes: each answer would come too late."""
    clock = FakeClock()
    aside, bmc = Aside(clock, 0.0, LONG), Bmc()
    asked_in_vain(aside, bmc)
    answers(bmc)
    settled(aside)
    clock.advance(pause + 1)
    bmc.may.clear()
    threading.Timer(0.05, bmc.may.set).start()
    assert (ask(aside, bmc), bmc.looks) == ("On", 2)


def test_one_whose_look_ended_in_no_answer_is_not_waited_for() -> None:
    clock = FakeClock()
    aside, bmc = Aside(clock, 0.0, LONG), Bmc()
    bmc.answer = Retry("no route to it")
    asked_in_vain(aside, bmc)
    answers(bmc)
    settled(aside)
    clock.advance(GOOD_FOR + 1)
    bmc.may.clear()
    asked_in_vain(aside, bmc)
    bmc.may.set()


def test_what_was_seen_before_a_reset_is_not_what_is_there_after_it() -> None:
    aside, bmc = Aside(FakeClock(), 0.0, LONG), Bmc()
    asked_in_vain(aside, bmc)
    answers(bmc)
    settled(aside).forget("m-0")
    bmc.answer, aside._patience = "Off", LONG
    assert (ask(aside, bmc), bmc.looks) == ("Off", 2)
