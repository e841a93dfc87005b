"""What was so in the world, one plain fact after the other: what the search writes down and the judge reads.

Four sources: the writes that the API server applied, the calls that arrived at the cloud, what only the
harness knows (the ground truth, which no agent is told), and what the agents said. A history is a list of
facts in the order of ``at``: seconds of true time since the history began, whatever any clock said.
Everything in a fact is JSON, so that a history is a file and a test. Objects of the API are not copied: who
makes a fact gives it an object that nobody changes afterwards, and nobody changes one of a fact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wrote:
    """An API write that was applied. One that was refused is none; one that was applied and whose answer was
    lost is one. Controllers and people write, too, and so does a restored etcd (``actor`` is ``etcd``: one
    write for each object that is another one, is gone or is back).

    ``verb``: ``create``, ``update``, ``patch``, ``delete``; ``evict`` for a write that a granted eviction
    makes to its pod. An eviction that was refused is a fact as well, of kind ``Eviction``: name and
    namespace of its pod, the pod as ``before``, the ``status`` of the answer, ``after`` None. That it was
    asked is what counts.
    """

    at: float
    actor: str
    verb: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    before: Json | None = field(default=None, repr=False)
    after: Json | None = field(default=None, repr=False)
    status: int = 200
    dry: bool = False  # dryRun: nothing was stored


ACCEPTED, REFUSED, THROTTLED = "accepted", "refused", "throttled"
LOST_AFTER = "lost-after"  # applied, and the answer was lost or came too late
LOST_BEFORE = "lost-before"  # it never arrived: nothing was applied
FAILED = "failed"  # the cloud answered with an error of its own (5xx), and nothing was applied
FAILED_AFTER = "failed-after"  # the same answer, but it was applied
APPLIED = frozenset({ACCEPTED, LOST_AFTER, FAILED_AFTER})


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that changes something, as it arrived at the cloud (or at the BMC, or at kured).

    ``machine`` is the cloud's own name of it: what the record calls ``machine.id``. ``token`` is the intent's
    where the harness can know it, else empty.
    """

    at: float
    actor: str
    machine: str
    action: str  # reboot, reimage, redeploy, replace, finish (the capacity set back)
    token: str = ""
    answer: str = ACCEPTED
    detail: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A call that takes an earlier request back (SetInstanceHealth Healthy), as it arrived at the cloud."""

    at: float
    actor: str
    machine: str
    action: str
    answer: str = ACCEPTED


# What ``Happened.what`` may be; the subject and the detail of each.
BEGAN = "began"
"""Subject empty. ``wall``: the moment (RFC 3339, UTC) that ``at`` 0 is in true time. Without it the judge
takes no
pause to have ended."""
FAULT_BEGAN = "fault began"
"""Subject: the machine. ``type`` (empty for an edge), ``reason``; ``cure``: what mends it, a list of
``reboot``, ``reimage``, ``redeploy``, ``replace``, ``itself``; empty: nothing but another machine. ``treat``:
whether the policy of now does more than notify about it. ``shown`` false: no source says so as yet. ``first``: the
moment of the first time that is counted, of what happens too often."""
FAULT_SHOWN = "fault shown"
"""Subject: the machine. ``type``, ``reason``, ``node``: from now on a source of the node's agent states
it. ``by``: the sources that do, ``npd`` alone where it is not said; said again when others do. A condition or a mark
states it that stands on the Node, of this boot, and where its writer renews it, renewed."""
FAULT_HIDDEN = "fault hidden"
"""Subject: the machine. ``type``, ``reason``: no source states it any more, and it is there all the same.
``because``: ``masked``, ``restart`` (the detector was restarted), or ``removed`` (somebody took its condition off
the Node)."""
FAULT_STATED = "fault stated"
"""Subject: the machine. ``type``, ``reason``: its source states it again (the kernel logs its line once more,
the
plugin finds it anew): the counter rises. A harness that says this says it each time, the first time too.
``rule``: ``log`` or ``plugin``; ``none`` where its detector has no rule of that type now, so nobody hears it."""
FAULT_ENDED = "fault ended"
"""Subject: the machine. ``type``, ``reason``, ``by``: ``reboot``, ``itself``, ``person``. A machine that is
gone
has no fault: that needs no fact."""
PAGE = "page"
"""Subject: the node. ``state``: ``fresh`` (readable, and its detector is at work), ``frozen`` (readable, its
detector lies still), ``unreadable``, ``wrong`` (not to be parsed). Fresh until it is said otherwise."""
MACHINE_BOOTED = "machine booted"
"""Subject: the machine. ``boot``: the kernel's boot ID; ``node``; ``by``: the token or action that it came
from,
``unasked`` for a boot that no agent asked for."""
SURPLUS = "surplus"
"""By whom a machine is gone that its group had launched beside another, to remove one of the two again."""
MACHINE_GONE = "machine gone"
"""Subject: the machine. ``group``, ``node``, ``by`` as above (``unasked``: by others, scaled in, spot)."""
MACHINE_LAUNCHED = "machine launched"
"""Subject: the machine. ``group``, ``boot``."""
MACHINE_JOINED = "machine joined"
"""Subject: the machine. ``node``, ``group``, ``boot``: its kubelet registered a Node (again)."""
DETECTOR_RESTARTED = "detector restarted"
"""Subject: the node."""
POLICY = "policy"
"""Subject: the actor whose policy it is from now on, empty for all. The detail is the policy file as YAML
reads
it: ``limits``, ``exclude``, ``rules``."""
SWITCHED = "switched"
"""Subject: the actor. ``on``: its ENABLE_RECOVERY from now on. An actor of which nothing was said is on."""
PROCESS = "process"
"""Subject: the actor. ``state``: ``started``, ``killed``, ``stopped`` (SIGSTOP), ``resumed``; ``node`` (empty
for a
concluder); ``version`` where agents of several versions run."""
CLOCK = "clock"
"""Subject: the actor, or an API server. ``off``: how many seconds it is ahead of true time, 0 when right."""
RESTORED = "restored"
"""Subject: ``etcd``. ``to``: the moment (``at``) that it was restored to. Its writes follow as ``Wrote``."""
CAPACITY = "capacity"
"""Subject: the group. ``desired``, ``can_launch``; ``scaled``: ``in`` where somebody made it want fewer for good."""
PERSON = "person"
"""Subject: the node. ``did``: ``release``, ``cordon``, ``uncordon``, ``taint``, ``delete record``, ...: for
people who
read the history; what it did to objects is a ``Wrote`` of its own."""
TROUBLE = "trouble"
"""Subject: the actor. A request of its was lost, refused or throttled, whatever came of it; said of one a minute."""
LATE = "late"
"""Subject: what is watched. ``seconds``: for so long a replica's watch of it shows what was there at first."""
CALM = "calm"
"""Subject empty: the disturbance is over. Nothing goes wrong from now on but the faults that are there."""
ENDED = "ended"
"""Subject empty: the history ends here. ``because``: ``settled`` or ``time``."""


@dataclass(frozen=True, slots=True)
class Happened:
    """Ground truth: known to the harness, told to no agent."""

    at: float
    what: str
    subject: str
    detail: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence of an agent as people read it: a decision's reason, a log line. What is in an Event or on a
    record is in its ``Wrote`` already."""

    at: float
    actor: str
    node: str
    key: str  # the decision's key, where it has one
    sentence: str


Fact = Wrote | Asked | TakenBack | Happened | Said
KINDS: dict[str, type[Fact]] = {k.__name__: k for k in (Wrote, Asked, TakenBack, Happened, Said)}


def to_line(fact: Fact) -> str:
    """One line of a history's file."""
    return json.dumps({"fact": type(fact).__name__, **asdict(fact)}, sort_keys=True)


def from_line(line: str) -> Fact:
    read = json.loads(line)
    return KINDS[read.pop("fact")](**read)


def to_file(facts: Iterable[Fact]) -> str:
    return "".join(f"{to_line(fact)}\n" for fact in facts)


def from_file(text: str) -> Iterator[Fact]:
    return (from_line(line) for line in text.splitlines() if line)
