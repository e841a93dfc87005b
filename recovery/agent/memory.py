"""What an agent remembers of a node between cycles. Losing it costs time, never safety."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from recovery.agent.backoff import pause_after
from recovery.errors import Retry
from recovery.model import Census, Record
from recovery.store.lease import Gone

FIRST_REFUSAL, WORST_REFUSAL = 2.0, 10.0
"""Seconds until a refused eviction is asked for again: the first pause, and how long it gets by doubling."""
LONGEST_REFUSAL = 30.0
"""The longest Retry-After that is obeyed, in seconds. What is forbidden is tried again after as long."""
LAST_READS = 2.0
"""Seconds: what was read longer ago is read again before an intent is written, its call made, or a pod
evicted."""
LONGEST_CLOUD_PAUSE = 60.0
"""The longest pause after errors of the provider, in seconds, where it does not ask for a longer one."""
RATE_WINDOW = 1.0
"""Seconds over which evictions are counted against the policy's evictions per second."""


@dataclass(frozen=True)
class Refusal:
    """Why a request was refused (an eviction, mostly), how often in a row, and until when to wait."""

    reason: str
    times: int
    until: float


@dataclass
class Memory:
    """Of one node. Moments are seconds on the monotonic clock, those of ``intents`` on the boot clock."""

    refused: dict[str, Refusal] = field(default_factory=dict)
    evicted: list[float] = field(default_factory=list)  # when evictions were asked for, lately
    intents: dict[str, float] = field(default_factory=dict)
    looked_at: float = 0.0  # when the latest reads of Node, record, gate and Lease began
    gone: Gone = field(default_factory=Gone)  # for how long the node's own agent was seen gone
    gone_seen_at: float | None = None  # when that was last noted
    cloud_refused: str = ""  # why the provider gave no answer
    cloud_failures: int = 0  # how often in a row
    cloud_again: float = 0.0  # when it may be asked again
    turn: tuple[str, float] | None = None  # the head of the queue, and since when a slot is free for it
    census: Census | None = None
    proving_since: float | None = None  # since when this agent watches the probation
    seek_again: float = 0.0  # when to search for the Node of the new machine again
    down: tuple[float, str] | None = None  # when that was asked, and what shows that the machine is down
    job_problem: str = ""  # why the validation Job could not be made
    job_again: float = 0.0  # when to try to make it again
    claim: tuple[float, str] | None = None  # when Events were read, and which other remediator they show
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

    def cloud_failed(self, error: Retry, now: float, chance: random.Random) -> None:
        """The provider gave no answer: leave it alone, for as long as it said if it is throttled."""
        pause = pause_after(self.cloud_failures, FIRST_REFUSAL, LONGEST_CLOUD_PAUSE, chance)
        throttled = error.after if error.after > Retry(error.reason).after else timedelta(0)
        self.cloud_refused, self.cloud_failures = error.reason, self.cloud_failures + 1
        self.cloud_again = now + max(pause, throttled.total_seconds() * chance.uniform(1.0, 1.25))

    def cloud_rests(self, now: float) -> str:
        """Why the provider is left alone for now; empty if it may be asked."""
        return self.cloud_refused if now < self.cloud_again else ""

    def evictions_free(self, most: int | None, now: float) -> int | None:
        """How many of ``most`` evictions a second are left now; None is no limit."""
        if most is None:
            return None
        self.evicted = [at for at in self.evicted if now - at < RATE_WINDOW]
        return max(0, most - len(self.evicted))

    def note_gone(self, now: float, before: Gone, *, paused: bool) -> Gone:
        """How long the node's own agent was seen gone: ``before`` this agent first looked, and since."""
        since = now - self.gone_seen_at if self.gone_seen_at is not None else 0.0
        known = before if self.gone_seen_at is None else self.gone
        self.gone = Gone(known.seconds + since, known.paused + (since if paused else 0.0))
        self.gone_seen_at = now
        return self.gone

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
