"""What is the core given? A ``Situation``. (What it answers is in ``decision``.) PURE.

The agent reads the cluster, the provider and the clock into a ``Situation``: once a cycle, and once more
right before a destructive call. The same situation always gives the same decision, so a situation is a bug
report and a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from recovery.model import (
    Alerts,
    Cause,
    Census,
    Gate,
    GroupStart,
    IntentState,
    JobView,
    Machine,
    NodeView,
    PodView,
    Policy,
    Preflight,
    Problem,
    ProviderFacts,
    Reading,
    Record,
    Reference,
    Standing,
    Statement,
    Step,
)
from recovery.quick import quick

MOST_SLOTS = 50
"""The most slots of any budget. With more, agents spend their time on 409 conflicts over the gate: 300 agents
needed 15,307 writes that failed, and 142 s, until each had one of 300 slots."""
ABOUT_NOW = timedelta(seconds=3)
"""How exactly the API server's time is known (``clock.ApiTime``): it has whole seconds, and an answer takes
up to two. The next answer may set it back, so that a moment that was now is in the future."""
ABREAST = 2
"""How many from the head of the queue may start at the same time, where there are slots for all of them. With
fifty in the queue, a third one makes it slower: too many compare-and-swaps of the gate fail. In fleet mode
one process writes for many nodes at once, so it has no such conflicts."""


class Role(StrEnum):
    """An *owner* recovers its own node. A *concluder* ends the recovery of a node whose agent is gone."""

    OWNER = "owner"
    CONCLUDER = "concluder"


@quick
@dataclass(frozen=True, slots=True)
class Lease:
    """Who works on a record. ``stale``: not renewed for its whole duration, on *this* agent's clock.

    ``silent``: not renewed for half of it, by its own timestamp. No decision goes by that.
    ``idle``: from when to when nobody renewed it before its holder did, in the API server's time.
    """

    holder: str = ""
    mine: bool = False
    stale: bool = True
    silent: bool = False
    idle: tuple[datetime, datetime] | None = None


@dataclass(frozen=True, slots=True)
class PageThere:
    """What the agent of a new node tells of its detector's page.

    ``unreadable``: why it cannot be read; empty where it can. ``sick``: the fault that makes the node sick.
    ``heard``: it has told something since this process listens. ``silent``: it has not, for too long.
    """

    unreadable: str = ""
    since: datetime | None = None
    heard: bool = True
    silent: bool = False
    sick: str = ""


@dataclass(frozen=True, slots=True)
class Unwritten:
    """What came of the call of the intent ``token``, which this very process could not write down. Where it
    was not made, ``state`` is ABANDONED."""

    token: str
    state: IntentState
    reference: Reference
    sentence: str


# ---------------------------------------------------------------- needs: what may have to be read


@dataclass(frozen=True, slots=True)
class GateMadeReady:
    """The gate: created where there is none, and rebuilt from the records where it was emptied."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """How the call in flight stands, by a poll of its provider."""


@dataclass(frozen=True, slots=True)
class NewNode:
    """The Node that the replacement machine has joined as."""


@dataclass(frozen=True, slots=True)
class ValidationJob:
    """The validation Job that the record names."""


@dataclass(frozen=True, slots=True)
class PowerState:
    """Whether a machine that is not Ready surely runs nothing: it is powered down, stopped or terminated."""


@dataclass(frozen=True, slots=True)
class PodsLeft:
    """The pods on the node. ``evicting``: also how many evictions are left now."""

    evicting: bool = True


@dataclass(frozen=True, slots=True)
class FiringAlerts:
    """Which alerts fire, where nobody asks for them in the background."""


@dataclass(frozen=True, slots=True)
class ClaimsByEvent:
    """Whether another remediator's Events say that it is at work on the node."""


@dataclass(frozen=True, slots=True)
class Preflighted:
    """The provider's preflight: whether it could do ``action`` now."""

    action: Step


@dataclass(frozen=True, slots=True)
class WitnessAsked:
    """What the second witness says of these reasons."""

    witness: str
    reasons: tuple[str, ...]


@quick
@dataclass(frozen=True, slots=True)
class Counted:
    """The census of sick nodes, no older than ``age`` and made at ``since`` or later.

    ``known``: only one that this agent or another has made already; nothing is counted for it. ``own``: one
    that this agent has made by itself, which also looked for other Nodes that claim the same machine.
    """

    age: timedelta
    since: datetime | None = None
    known: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class PastStarts:
    """The starts on all records, which the limits on attempts and per group count."""


@dataclass(frozen=True, slots=True)
class HolderLabels:
    """The labels of the Nodes of slots that do not tell theirs. ``nodes``: name and machine of each."""

    nodes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MachineLeft:
    """Whether a machine that no agent or open record looks after is gone, or something is asked of it."""


Need = (
    GateMadeReady
    | Progressed
    | NewNode
    | ValidationJob
    | PowerState
    | PodsLeft
    | FiringAlerts
    | ClaimsByEvent
    | Preflighted
    | WitnessAsked
    | Counted
    | PastStarts
    | HolderLabels
    | MachineLeft
)


@quick
@dataclass(frozen=True, slots=True)
class Situation:
    """All that one decision may depend on. What ``needs`` did not ask for was not read: None or empty."""

    now: datetime
    node_name: str
    policy: Policy
    on: bool = True
    role: Role = Role.OWNER
    skew: timedelta = timedelta(0)
    clock_steps: tuple[tuple[datetime, datetime], ...] = ()  # the API server's: the time before, and then
    start_ahead_for: timedelta = timedelta(0)  # how long the gate's last start was seen to be in the future
    readings: tuple[Reading, ...] = ()
    node: NodeView | None = None
    machine: Machine | None = None
    machine_problem: str = ""  # why the machine behind the node cannot be named, or is not ours to treat
    machine_wait: str = ""  # the node is not initialised yet
    provider: ProviderFacts | None = None
    record: Record | None = None
    record_problem: str = ""
    vanished: bool = False  # this agent had an open record, and somebody deleted it
    gate: Gate | None = None
    gate_problem: str = ""
    census: Census | None = None
    rivals: tuple[str, ...] = ()  # other Nodes that claim the same machine, as this agent last counted them
    starts: tuple[GroupStart, ...] = ()  # those on the records
    holder_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by node
    machine_gone: str = ""  # what shows that the machine does not exist any more; empty: nothing does
    asked_of_cloud: str = ""  # what is asked of the provider for the machine, or why it cannot be seen
    preflight: Preflight | None = None
    preflight_refused: str = ""
    preflight_retry: str = ""
    unanswered_for: timedelta = timedelta(0)  # how long each preflight was put off, while it was asked for
    witness_says: Statement | None = None  # of the second witness that the record's rule names
    pods: tuple[PodView, ...] | None = None
    pods_problem: str = ""  # why they cannot be listed, where that is no reason to end the cycle
    alerts: Alerts = field(default_factory=Alerts)
    refusals: Mapping[str, str] = field(default_factory=dict)  # pod or taint -> why it was refused just now
    fenced: Mapping[str, str] = field(default_factory=dict)  # pod -> why this drain leaves it where it is
    evictions_free: int | None = None  # how many may be asked for now; None: without a limit
    poll: Standing | None = None
    replacement: NodeView | None = None
    replacement_is_me: bool = False
    replacement_problem: str = ""  # a condition of the new node that counts against it
    replacement_page: PageThere | None = None  # None: no agent on the new node tells of a page
    tells_within: timedelta = timedelta(0)  # an agent there has told of its page by then, in a small fleet
    unjoined_for: timedelta = timedelta(0)  # how long this agent has seen no Node of the new machine
    unlisted_for: timedelta = timedelta(0)  # and, from then on, its group complete without it
    replacement_record: str = ""  # the sentence of the new node's own record, if it is sick
    lease: Lease = Lease()
    # The next four are on this agent's own clock.
    turn_waited: timedelta = timedelta(0)  # how long the head of the queue has not taken a free slot
    intent_seen_for: timedelta = timedelta(0)  # how long this very intent was seen
    owner_gone_for: timedelta = timedelta(0)  # how long the node's own agent was seen gone
    # What this agent saw hold the current step, and the record does not say: until a moment ago, and before.
    held_last: tuple[Cause, timedelta] | None = None
    held_before: Mapping[Cause, timedelta] = field(default_factory=dict)
    job: JobView | None = None  # the validation Job that the record names
    job_problem: str = ""  # why it cannot be read or created
    job_due: bool = True  # whether it may be created now, if it does not exist
    may_be_down: bool = False  # for less than a minute there was no answer whether it is
    down: str = ""  # what shows that the machine runs nothing; empty: nothing does
    apart: bool = False  # this agent has no node of its own (RECOVERY_MODE=concluder)
    afar: bool = False  # who looks after the node does not run on it (RECOVERY_MODE=fleet)
    finish_refused: str = ""  # why the provider refused the last step of an unfinished action
    finish_put_off: str = ""  # why it put that off when it was asked last
    unwritten: Unwritten | None = None  # what came of the intent on the record, by what this process knows
    take_back_refused: str = ""  # why what was asked of the provider cannot be taken back
    watched_for: timedelta | None = None  # how long this very process has watched the probation
    settle: timedelta = timedelta(seconds=0.5)  # how long to wait in the queue for other faults to show
    outside: bool = False  # the Node is none of FLEET_SELECTOR any more
    forbidden: str = ""  # another remediator's claim on the node
    kernel_boot: str = ""  # the boot ID of this agent's own kernel; only of its own node
    elsewhere: str = ""  # this agent does not run on the machine that the Node is now
    node_behind: str = ""  # the Node says another boot than its kernel, which ``node`` has then
    booted: datetime | None = None  # when that kernel booted, by the API server's time
    kernel_began: datetime | None = None  # when that kernel booted, by this machine's own clock
    back_for: timedelta | None = None  # since the API server is back that was away; None: it was not
    unheard_since: datetime | None = None  # the controller looks since then, and heard nothing of the kubelet
    unseen_since: datetime | None = None  # since then there is news of another node, on no record yet
    most_slots: int = MOST_SLOTS  # of any budget
    abreast: int = ABREAST  # so many at the head of the queue may start at the same time
    # By reason of a fault on the record: what the machines with it share. Only fleet mode sees all of them.
    correlated: Mapping[str, str] = field(default_factory=dict)
    unsaid: tuple[Problem, ...] = ()  # seen by this process, over meanwhile, and not on a record yet
    # When it saw the faults (source, type, reason) stated again that were taken back before, and that the
    # record takes for what it was about.
    restated: Mapping[tuple[str, str, str], datetime] = field(default_factory=dict)
    open_at: datetime | None = None  # this process last read the record, not closed yet, after this moment
    read: tuple[Need, ...] = ()  # the needs that have been read

    def reading_of(self, source: str) -> Reading | None:
        """What ``source`` says of the node; None where it has not been read."""
        return next((r for r in self.readings if r.source == source), None)

    def set_forward(self, since: datetime) -> timedelta:
        """How far the API server's clock was set forward since ``since``. In that time nothing has lasted,
        and nobody has tried anything."""
        ahead = timedelta(0)
        for before, after in self.clock_steps:
            if since <= min(before, after):
                ahead = max(ahead + (after - before), timedelta(0))
        return ahead

    def from_within(self, step: Step) -> bool:
        """Whether the node's own agent, which runs on the machine, would start a step that only somebody
        outside of the machine may (docs/decisions/0013)."""
        outside = self.provider.out_of_band if self.provider is not None else frozenset()
        return self.role is Role.OWNER and not self.afar and step in outside

    @property
    def may_power(self) -> bool:
        """Whether this concluder may start out-of-band steps, which a node's own agent never may.

        In fleet mode the agents of the controller start them. Its sweep looks after nodes outside of
        FLEET_SELECTOR, and those that are gone.
        """
        outside = self.provider.out_of_band if self.provider is not None else frozenset()
        return self.role is Role.CONCLUDER and self.apart and not self.afar and bool(outside)
