"""How often is a provider asked? Ever more seldom while its answer stays the same.

A cloud's API is shared by all nodes of an account, and throttles. While a group launches a machine nothing
changes for minutes, so an agent that asks every two seconds learns nothing and keeps others from asking. The
first answer is always asked for at once, and so is the one right before a destructive call.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from recovery.decide.situation import Situation
from recovery.errors import Retry
from recovery.model import Done, Intent, IntentState, Preflight, Record, Running, Standing, Step, Unseen
from recovery.quick import replace

FIRST, LONGEST, SOON = 2.0, 10.0, 4.0
"""Seconds until a provider is asked again: at first, at most, and at most where the end is near."""
LONGEST_WITHOUT_ANSWER = 60.0
"""Seconds, at most, until a provider is asked again that had no answer: it may be overloaded."""
SLOWER = 1.5
LEFT_OFF = 60.0
"""Seconds, after an answer was good no more, in which nobody asked: something held the recovery, say. How it
was before counts no more."""


@dataclass(frozen=True)
class Paced:
    """An answer, to which question, and until when it is good enough. ``seen``: what to compare it by.

    ``since``: when answers like this one began.
    """

    question: str = ""
    answer: Any = None
    seen: object = None
    pause: float = 0.0
    until: float = 0.0
    since: float = 0.0

    def good(self, question: str, now: float) -> bool:
        return question == self.question and now < self.until

    def then(self, question: str, answer: Any, seen: object, now: float, longest: float) -> Paced:
        """The next answer: if it is like this one, it is good for longer."""
        same = question == self.question and seen == self.seen
        pause = min(self.pause * SLOWER if same else FIRST, longest)
        since = self.since if same and now - self.until < LEFT_OFF else now
        return Paced(question, answer, seen, pause, now + pause, since)

    def as_long_as(self, found: object, now: float) -> Paced:
        """Good for as long as the provider asked to be left alone, if it did."""
        if not isinstance(found, Retry):
            return self
        return replace(self, until=max(self.until, now + found.after.total_seconds()))


def about_call(intent: Intent) -> str:
    return f"poll {intent.token} {intent.state.value}"


def longest_for(intent: Intent, found: Standing) -> float:
    """Seconds for which this answer to a poll may be good; 0 where the next decision hangs on it."""
    if isinstance(found, Unseen):
        return LONGEST
    if intent.state is not IntentState.SUBMITTED or not isinstance(found, Running | Done):
        return 0.0
    if isinstance(found, Done):
        return SOON if not found.complete else 0.0
    return SOON if found.soon else LONGEST


def about_step(r: Record, action: Step) -> str:
    return f"preflight {r.uid} {r.machine.id} {r.phase.value} {r.rung} {r.attempt} {action.value}"


def seen_before(found: Preflight | Retry) -> object:
    """What of a preflight is compared: its reference has a time in it, and no answer is like any other."""
    if isinstance(found, Retry):
        return Retry
    asked = (found.group, found.short_by, found.adopt, found.not_before, found.not_yet, found.alone)
    return (*asked, bool(found.cannot_launch), found.loses_one)


def longest_before(found: Preflight | Retry) -> float:
    """Seconds for which this answer to a preflight may be good."""
    return LONGEST_WITHOUT_ANSWER if isinstance(found, Retry) else LONGEST


def due(s: Situation, known: Preflight | Retry) -> bool:
    """Whether the moment has come that the provider named."""
    return isinstance(known, Preflight) and known.not_before is not None and s.now >= known.not_before


def answered(s: Situation, known: Paced, now: float) -> Situation:
    if isinstance(known.answer, Retry):
        unanswered = timedelta(seconds=now - known.since)
        return replace(s, preflight_retry=known.answer.reason, unanswered_for=unanswered)
    return replace(s, preflight=known.answer)
