"""What an agent remembers of a node between cycles. Losing it costs time, never safety."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recovery.agent.backoff import doubled
from recovery.agent.paced import Paced
from recovery.decide.budget import Past
from recovery.decide.situation import Unwritten, WitnessAsked
from recovery.model import Cause, Census, Intent, NodeView, Record, Statement
from recovery.quick import replace

FIRST_REFUSAL, WORST_REFUSAL = 2.0, 10.0
"""Seconds until a refused eviction is asked for again: the first pause, and how long it gets by doubling."""
LONGEST_REFUSAL = 30.0
"""The longest Retry-After that is obeyed, in seconds. What is forbidden is tried again after as long."""
LAST_READS = 2.0
"""Seconds: what was read longer ago is read again before a slot is taken, an intent is written, its call is
made, or a pod is evicted."""
FIRST_ASKED_AGAIN, WORST_ASKED_AGAIN = 15.0, 60.0
"""Seconds until the last step of an action is asked for again: the first pause doubles up to the longest."""
LONGEST_GAP = 60.0
"""Seconds between two looks at a node, above which nobody has watched its probation."""
RATE_WINDOW = 1.0
"""Seconds over which evictions are counted against the policy's evictions per second."""


@dataclass(frozen=True)
class Refusal:
    """Why a request was refused (an eviction, mostly), how often in a row, and until when to wait."""

    reason: str
    times: int
    until: float


@dataclass(frozen=True)
class Watch:
    """A probation that is watched: of which Node and boot, since when, and the last look."""

    what: str
    since: float
    at: float


@dataclass(frozen=True)
class Down:
    """When it was answered, or not, whether the machine is down, what shows that it is, and the seconds until
    that is asked again. ``unseen_since``: since when there was no answer; None where the last try had one."""

    at: float
    says: str
    pause: float
    unseen_since: float | None = None


@dataclass(frozen=True)
class Asked:
    """When the last step of an action may be asked for again: ever more seldom, up to once a minute."""

    token: str = ""
    times: int = 0
    until: float = 0.0

    def left(self, token: str, now: float) -> float:
        """Seconds until it may be asked for again."""
        return self.until - now if token == self.token else 0.0

    def no_sooner(self, until: float) -> Asked:
        """The same, where the provider says how long it is not to be asked."""
        return replace(self, until=max(self.until, until))

    def once_more(self, token: str, now: float) -> Asked:
        times = self.times + 1 if token == self.token else 1
        return Asked(token, times, now + doubled(FIRST_ASKED_AGAIN, times - 1, WORST_ASKED_AGAIN))


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
        """How long each cause held it before that."""
        if self.of != _step(r) or r.progress.holding is not None:
            return {}
        return {cause: timedelta(seconds=time) for cause, time in self.before.items()}


def _step(r: Record) -> object:
    return (r.uid, r.phase, r.rung, r.progress.held, r.progress.holding)


def _drain(r: Record) -> object:
    return (r.uid, r.rung, r.rung_since)


@dataclass
class Memory:
    """Of one node. Moments are seconds on the monotonic clock, those of ``intents`` on the boot clock."""

    refused: dict[str, Refusal] = field(default_factory=dict)
    fences: tuple[object, dict[str, str]] | None = None  # a drain, and pod -> why it leaves it
    told_slow: object = None  # the drain of which it was said that a pod may outlast it
    evicted: list[float] = field(default_factory=list)  # when evictions were asked for, lately
    intents: dict[str, float] = field(default_factory=dict)
    look_began: float = 0.0  # when the latest look at the node began
    looked_at: float = 0.0  # when the latest reads of Node, record, gate and Lease began
    ours_looked_at: float = 0.0  # the same of record, gate and Lease
    gone_since: float | None = None  # since when the node's own agent is seen gone
    turn: tuple[str, float] | None = None  # the head of the queue, and since when a slot is free for it
    census: Census | None = None
    rivals: tuple[str, ...] = ()  # who else claimed the node's machine when that was counted
    witness_said: tuple[float, WitnessAsked, Statement] | None = None  # when it was asked what
    past: tuple[float, Past] | None = None  # when the records were listed, and what they tell of the past
    labels: dict[tuple[str, str], Mapping[str, str] | None] = field(default_factory=dict)  # of slots' Nodes
    watch: Watch | None = None  # of the probation
    unjoined: dict[str, float] = field(default_factory=dict)  # since when which new machine has no Node
    unlisted: dict[str, float] = field(default_factory=dict)  # and its group is complete without it
    seek_again: float = 0.0  # when to search for the Node of the new machine again
    down: Down | None = None
    job_problem: str = ""  # why the validation Job could not be made
    job_again: float = 0.0  # when to try to make it again
    claim: tuple[float, str] | None = None  # when Events were read, and which other remediator they show
    finish_asked: Asked = Asked()
    poll: Paced = field(default_factory=Paced)  # what the provider last said of the call in flight
    preflight: Paced = field(default_factory=Paced)  # and of the next step
    take_back_asked: Asked = Asked()
    take_back_refused: tuple[str, str] = ("", "")  # which requests, and why they cannot be taken back
    version: str = ""  # of the record, when it was last read
    pods_blind_since: float | None = None  # since when the node's pods cannot be listed
    ahead: tuple[str, float] | None = None  # its version with moments in the future, and since when
    open_at: datetime | None = None  # see ``Situation``
    holds: Holds = field(default_factory=Holds)
    missed: dict[tuple[str, str, str], datetime] = field(default_factory=dict)  # faults without a word: since
    finish_refused: tuple[str, str] = ("", "")  # the token of an intent, and why its second step was refused
    finish_put_off: tuple[str, str] = ("", "")  # likewise, and why it was put off when it was asked for last
    announced: object = None  # the step that was announced last
    unwritten: Unwritten | None = None  # what came of the latest call, whatever the record says of it

    def refuse(self, what: str, reason: str, now: float, retry_after: float | None = None) -> None:
        """Do not ask for ``what`` again for a while, which doubles each time."""
        before = self.refused.get(what)
        times = before.times + 1 if before else 1
        pause = doubled(FIRST_REFUSAL, times - 1, WORST_REFUSAL)
        pause = max(pause, min(retry_after or 0.0, LONGEST_REFUSAL))
        self.refused[what] = Refusal(reason, times, now + pause)

    def fence(self, r: Record, pod: str, reason: str) -> None:
        """The drain of ``r`` leaves ``pod`` where it is. The next drain asks again."""
        self.fences = (_drain(r), {**self.fenced_in(r), pod: reason})

    def fenced_in(self, r: Record) -> Mapping[str, str]:
        """Which pods the drain of ``r`` leaves, and why."""
        return self.fences[1] if self.fences is not None and self.fences[0] == _drain(r) else {}

    def tells_slow(self, r: Record) -> bool:
        """Whether it is asked for the first time about the drain of ``r``: so people are told once."""
        before, self.told_slow = self.told_slow, _drain(r)
        return before != self.told_slow

    def refusals(self, now: float) -> Mapping[str, str]:
        """What is refused now, and why."""
        return {what: each.reason for what, each in self.refused.items() if now < each.until}

    def evictions_free(self, most: int | None, now: float) -> int | None:
        """How many of ``most`` evictions a second are left now; None is no limit."""
        if most is None:
            return None
        self.evicted = [at for at in self.evicted if now - at < RATE_WINDOW]
        return max(0, most - len(self.evicted))

    def ahead_for(self, r: Record, now: float) -> timedelta:
        """How long this version of ``r`` has been seen to have moments in the future."""
        if self.ahead is None or self.ahead[0] != r.resource_version:
            self.ahead = (r.resource_version, now)
        return timedelta(seconds=now - self.ahead[1])

    def gone_for(self, now: float) -> timedelta:
        """How long this agent has seen the node's own agent gone; from the first call on."""
        self.gone_since = now if self.gone_since is None else self.gone_since
        return timedelta(seconds=now - self.gone_since)

    def watched_for(self, node: NodeView, now: float) -> timedelta:
        """How long this very agent has watched ``node`` in its probation; from the first call on.

        It begins anew with another Node, with another boot, once it is Ready again, and after a time in which
        nobody looked.
        """
        what, last = f"{node.uid}/{node.boot_id}/{node.ready}", self.watch
        since = last.since if last and last.what == what and now - last.at <= LONGEST_GAP else now
        self.watch = Watch(what, since, now)
        return timedelta(seconds=now - since)

    def unjoined_for(self, machine: str, now: float) -> timedelta:
        """How long this agent has seen no Node of the new ``machine``; from the first call on."""
        self.unjoined = {machine: self.unjoined.get(machine, now)}
        return timedelta(seconds=now - self.unjoined[machine])

    def unlisted_for(self, machine: str, now: float) -> timedelta:
        """How long each answer of the provider has shown the group complete without the new ``machine``."""
        self.unlisted = {machine: self.unlisted.get(machine, now)}
        return timedelta(seconds=now - self.unlisted[machine])

    def head_waits(self, head: str, now: float) -> timedelta:
        """How long ``head`` has been seen at the head of the queue, with a slot free for it."""
        known = self.turn is not None and self.turn[0] == head
        return timedelta(seconds=now - self.turn[1]) if known and self.turn else timedelta(0)

    def outcome_of(self, intent: Intent) -> Unwritten | None:
        """What came of the call of ``intent``, where this process made it."""
        return self.unwritten if self.unwritten is not None and self.unwritten.token == intent.token else None

    def intent_seen_for(self, r: Record, boottime: float) -> timedelta:
        """How long this agent has known this intent. Boot time goes on while a machine is suspended."""
        assert r.intent is not None
        first = self.intents.setdefault(f"{r.intent.token}/{r.intent.attempt}", boottime)
        return timedelta(seconds=boottime - first)


def asked_of(r: Record) -> str:
    """Names the requests on ``r`` and who wants the node back: a refusal to take them back is for these."""
    tokens = [x.token for x in (*r.progress.left, *((r.intent,) if r.intent else ()))]
    return " ".join([*tokens, str(r.release.at) if r.release else ""])
