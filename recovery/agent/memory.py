"""What an agent remembers of a node between cycles. Losing it costs time, never safety."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from recovery.model import Census, Record

FIRST_REFUSAL, WORST_REFUSAL = 2.0, 10.0
"""Seconds after which a pod that a disruption budget kept is asked for again; each time twice as many."""
LONGEST_REFUSAL = 30.0
"""Seconds for which a server may send us away; and between two tries of what it forbids."""
RATE_WINDOW = 1.0


@dataclass(frozen=True)
class Refusal:
    """What was said when a pod was asked for, how often in a row, and until when it is left alone."""

    reason: str
    times: int
    until: float


@dataclass
class Memory:
    """Of one node; moments are seconds on the monotonic clock, but for ``intents`` (boot time)."""

    refused: dict[str, Refusal] = field(default_factory=dict)
    evicted: list[float] = field(default_factory=list)  # when evictions were asked for, of late
    intents: dict[str, float] = field(default_factory=dict)
    gone_since: float | None = None
    turn: tuple[str, float] | None = None  # who is at the head of the queue, and since when
    census: Census | None = None
    proving_since: float | None = None
    seek_again: float = 0.0  # when to look for its new machine again
    down: tuple[float, str] | None = None  # by what a machine was seen to be down, and when that was asked
    job_problem: str = ""  # why the validation Job could not be made
    job_again: float = 0.0  # when to try again
    claim: tuple[float, str] | None = None  # what other remediators say in Events, and when that was read
    finish_refused: tuple[str, str] = ("", "")  # the token of an intent, and why its rest was refused

    def refuse(self, what: str, reason: str, now: float, retry_after: float | None = None) -> None:
        """``what`` is not asked for again for a while, which doubles with each time."""
        before = self.refused.get(what)
        times = before.times + 1 if before else 1
        pause = min(FIRST_REFUSAL * 2 ** (times - 1), WORST_REFUSAL)
        pause = max(pause, min(retry_after or 0.0, LONGEST_REFUSAL))
        self.refused[what] = Refusal(reason, times, now + pause)

    def refusals(self, now: float) -> Mapping[str, str]:
        """What is refused now, and why."""
        return {what: each.reason for what, each in self.refused.items() if now < each.until}

    def evictions_free(self, most: int | None, now: float) -> int | None:
        """How many of ``most`` evictions a second are left now."""
        if most is None:
            return None
        self.evicted = [at for at in self.evicted if now - at < RATE_WINDOW]
        return max(0, most - len(self.evicted))

    def gone_for(self, now: float) -> timedelta:
        """How long its own agent has been seen gone."""
        self.gone_since = now if self.gone_since is None else self.gone_since
        return timedelta(seconds=now - self.gone_since)

    def watched_for(self, now: float) -> timedelta:
        """How long this very agent has looked on at its probation."""
        self.proving_since = now if self.proving_since is None else self.proving_since
        return timedelta(seconds=now - self.proving_since)

    def head_waits(self, head: str, now: float) -> timedelta:
        """How long ``head`` has been seen at the head of the queue, with a slot free for it."""
        known = self.turn is not None and self.turn[0] == head
        return timedelta(seconds=now - self.turn[1]) if known and self.turn else timedelta(0)

    def intent_seen_for(self, r: Record, boottime: float) -> timedelta:
        """How long this very intent was seen, on the clock that a stopped process cannot fool."""
        assert r.intent is not None
        first = self.intents.setdefault(f"{r.intent.token}/{r.intent.attempt}", boottime)
        return timedelta(seconds=boottime - first)
