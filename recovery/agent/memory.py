"""What an agent remembers of a node between cycles. Losing it costs time, never safety."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from recovery.model import Cause, Census, Record

FIRST_REFUSAL, WORST_REFUSAL = 2.0, 10.0
"""Seconds until a refused eviction is asked for again: the first pause, and how long it gets by doubling."""
LONGEST_REFUSAL = 30.0
"""The longest Retry-After that is obeyed, in seconds. What is forbidden is tried again after as long."""
RATE_WINDOW = 1.0
"""Seconds over which evictions are counted against the policy's evictions per second."""


@dataclass(frozen=True)
class Refusal:
    """Why a request was refused (an eviction, mostly), how often in a row, and until when to wait."""

    reason: str
    times: int
    until: float


@dataclass
class Holds:
    """What held the step of a record, as far as the record does not say it. Moments are monotonic seconds.

    Time between two looks counts as tried only if nothing held the step at either.
    """

    of: object = None  # the step, and what its record says
    at: float = 0.0  # the last look
    cause: Cause | None = None
    since: float = 0.0  # the last look before ``cause`` began
    before: dict[Cause, float] = field(default_factory=dict)

    def looked(self, r: Record, cause: Cause | None, now: float) -> None:
        """``cause`` (or nothing) holds the step now."""
        if self.of != _step(r):
            self.of, self.at, self.cause, self.before = _step(r), now, None, {}
        if cause is not self.cause:
            self._end(now)
            self.cause, self.since = cause, self.at if self.cause is None else now
        self.at = now

    def _end(self, now: float) -> None:
        if self.cause is not None:
            self.before[self.cause] = self.before.get(self.cause, 0.0) + now - self.since

    def last(self, r: Record, now: float) -> tuple[Cause, timedelta] | None:
        """What held the step at the last look, and for how long, until now."""
        if self.of != _step(r) or self.cause is None or r.progress.holding is not None:
            return None
        return self.cause, timedelta(seconds=now - self.since)

    def before_that(self, r: Record) -> Mapping[Cause, timedelta]:
        """For how long which cause held it before."""
        if self.of != _step(r) or r.progress.holding is not None:
            return {}
        return {cause: timedelta(seconds=time) for cause, time in self.before.items()}


def _step(r: Record) -> object:
    return (r.uid, r.phase, r.rung, r.progress.held, r.progress.holding)


@dataclass
class Memory:
    """Of one node. Moments are seconds on the monotonic clock, those of ``intents`` on the boot clock."""

    refused: dict[str, Refusal] = field(default_factory=dict)
    evicted: list[float] = field(default_factory=list)  # when evictions were asked for, lately
    intents: dict[str, float] = field(default_factory=dict)
    gone_since: float | None = None  # since when the node's own agent is seen gone
    turn: tuple[str, float] | None = None  # the head of the queue, and since when a slot is free for it
    census: Census | None = None
    proving_since: float | None = None  # since when this agent watches the probation
    seek_again: float = 0.0  # when to search for the Node of the new machine again
    down: tuple[float, str] | None = None  # when that was asked, and what shows that the machine is down
    job_problem: str = ""  # why the validation Job could not be made
    job_again: float = 0.0  # when to try to make it again
    claim: tuple[float, str] | None = None  # when Events were read, and which other remediator they show
    version: str = ""  # of the record, when it was last read
    holds: Holds = field(default_factory=Holds)
    finish_refused: tuple[str, str] = ("", "")  # the token of an intent, and why its second step was refused

    def refuse(self, what: str, reason: str, now: float, retry_after: float | None = None) -> None:
        """Do not ask for ``what`` again for a while, which doubles each time."""
        before = self.refused.get(what)
        times = before.times + 1 if before else 1
        pause = min(FIRST_REFUSAL * 2 ** (times - 1), WORST_REFUSAL)
        pause = max(pause, min(retry_after or 0.0, LONGEST_REFUSAL))
        self.refused[what] = Refusal(reason, times, now + pause)

    def refusals(self, now: float) -> Mapping[str, str]:
        """What is refused now, and why."""
        return {what: each.reason for what, each in self.refused.items() if now < each.until}

    def evictions_free(self, most: int | None, now: float) -> int | None:
        """How many of ``most`` evictions a second are left now; None is no limit."""
        if most is None:
            return None
        self.evicted = [at for at in self.evicted if now - at < RATE_WINDOW]
        return max(0, most - len(self.evicted))

    def gone_for(self, now: float) -> timedelta:
        """How long this agent has seen the node's own agent gone; from the first call on."""
        self.gone_since = now if self.gone_since is None else self.gone_since
        return timedelta(seconds=now - self.gone_since)

    def watched_for(self, now: float) -> timedelta:
        """How long this very agent has watched the probation; from the first call on."""
        self.proving_since = now if self.proving_since is None else self.proving_since
        return timedelta(seconds=now - self.proving_since)

    def head_waits(self, head: str, now: float) -> timedelta:
        """How long ``head`` has been seen at the head of the queue, with a slot free for it."""
        known = self.turn is not None and self.turn[0] == head
        return timedelta(seconds=now - self.turn[1]) if known and self.turn else timedelta(0)

    def intent_seen_for(self, r: Record, boottime: float) -> timedelta:
        """How long this agent has known this intent. Boot time goes on while a machine is suspended."""
        assert r.intent is not None
        first = self.intents.setdefault(f"{r.intent.token}/{r.intent.attempt}", boottime)
        return timedelta(seconds=boottime - first)
