"""What the judge finds, and how much time it allows for what cannot be at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A law that was broken: when, which, on what, and a sentence that says how."""

    at: float
    law: str  # "law 1" ... "law 11", "ends", "words"
    subject: str
    sentence: str
    kind: str = ""
    """A short name of what went wrong, the same for all that are of a kind: to count by, and to shrink to."""

    def __str__(self) -> str:
        return f"{self.at:10.3f}  {self.law:6}  {self.subject}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds that the judge allows. Each says what takes that long; a harness that is slower says so."""

    in_flight: float = 2.0
    """Between the last read of pause, exclusion and brake, and the call that follows it."""
    submit: float = 10.0
    """Between an intent that was written and its call: past it the author must not make the call."""
    stale: float = 10.0
    """A page that nobody has read for so long is stale (the longer of three polls and this)."""
    census: float = 3.0
    """From a fault that a source shows to a count of the sick that has it: a poll, a settle time, a write."""
    unknown: float = 600.0
    """A node of which nothing is known for so long counts as unknown."""
    told: float = 150.0
    """A hand-over that nobody took is said again each minute; a busy agent may miss one."""
    ends: float = 9000.0
    """From the end of the disturbance until every fault has come to its end."""
    unseen: float = 600.0
    """From the moment that a source states a fault until it is on a record, when nothing is disturbed."""
    cleanup: float = 120.0
    """From the end of a recovery until our marks are off, when nothing is disturbed."""
    sickness: float = 15.0
    """Fresh signals lag behind the machine: a fault that ended or began that long ago may be judged as
    before."""
    lag: float = 0.0
    """What is said on the Node is read now and then: a fault is seen there so much later than on a page."""
    announced: bool = False
    """Whether each call has to be announced by an Event that names it, while the agent's requests succeed. The
    harness says so whose facts have ``trouble``: an actor's request that was lost or refused."""
