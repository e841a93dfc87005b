"""One answer that lacks something proves nothing; those of a minute do, for as long as they go on."""

from __future__ import annotations

import pytest
from recovery_testkit.clock import FakeClock

from recovery.provider.lacking import LATELY, SURE, Lacking


def lacking() -> tuple[FakeClock, Lacking]:
    clock = FakeClock()
    return clock, Lacking(clock)


def test_something_is_gone_once_all_answers_of_a_minute_have_lacked_it() -> None:
    clock, answers = lacking()
    found = []
    for _ in range(5):
        found.append(answers.surely("vm", lacks=True))
        clock.advance(SURE / 3)
    assert found == [False, False, False, True, True]


def test_an_answer_that_has_it_begins_the_minute_anew() -> None:
    clock, answers = lacking()
    answers.surely("vm", lacks=True)
    clock.advance(SURE)
    assert not answers.surely("vm", lacks=False)
    assert not answers.surely("vm", lacks=True)


@pytest.mark.parametrize("other", [False, True], ids=["alone", "another is asked for"])
def test_what_is_gone_stays_gone_for_as_long_as_it_is_asked_for(other: bool) -> None:
    clock, answers = lacking()
    answers.surely("vm", lacks=True)
    for _ in range(10):
        clock.advance(LATELY / 2)
        if other:
            answers.surely("another", lacks=True)
        assert answers.surely("vm", lacks=True)


def test_what_nobody_asks_for_any_more_is_forgotten() -> None:
    clock, answers = lacking()
    answers.surely("vm", lacks=True)
    clock.advance(LATELY + 1)
    assert not answers.surely("vm", lacks=True)
