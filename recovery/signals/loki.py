"""What the kernel's log says of a node, as lines in Loki, as a source of signals. Pure but for the look at
what was read.

A line that states a code is a fault until the next boot. No line, and no silence, ever takes one back or
shows that a node is well. What comes again soon is the same statement; after a quiet while it is another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.catalog.codes import GPU, SWITCH
from recovery.catalog.kernel_lines import Said
from recovery.model import Kind, Problem, Reading
from recovery.quick import replace
from recovery.signals.memory import recent
from recovery.signals.own_node import EVIDENCE, Complaints, devices
from recovery.units import hour
from recovery.visible import visible

SOURCE = "loki"
TYPES = frozenset({GPU, SWITCH})
FRESH_FOR = timedelta(seconds=60)
"""An answer may be relied on for so long: four rounds of the reader."""
QUIET = timedelta(minutes=15)
"""How long after the last line of its reason a line counts as a new statement."""
MOST_DEVICES = 16


@dataclass(frozen=True, slots=True)
class Stated:
    """What the lines of one boot of a node state under one (type, reason).

    ``line``: the latest. ``since``: when the first was written, ``last``: the latest. ``anew``: when it was
    last stated anew; None where it was there at the reader's first look. ``stamp``: the latest by the
    kernel's own clock, None where it is not on the lines. ``times``: when an edge happened.
    """

    type: str
    reason: str
    line: str
    since: datetime
    last: datetime
    anew: datetime | None
    stamp: float | None
    devices: frozenset[str]
    times: tuple[datetime, ...] = ()

    @property
    def pair(self) -> tuple[str, str]:
        return (self.type, self.reason)

    def quiet(self, now: datetime) -> bool:
        return now - self.last >= QUIET


def stated(old: Stated | None, said: Said, line: str, at: datetime, *, past: bool) -> Stated:
    """What is stated after a line of ``at``. ``past``: it was there at the reader's first look.

    A ``dmesg`` that is started anew prints all that the kernel still has, and each line looks as if it were
    of now. By the kernel's own clock it is not.
    """
    line = visible(line)[:EVIDENCE]
    if old is None:
        device = frozenset({said.device})
        anew = None if past else at
        return Stated(said.type, said.reason, line, at, at, anew, said.stamp, device, (at,))
    if said.stamp is not None and old.stamp is not None and said.stamp <= old.stamp:
        return old
    late = at <= old.last
    return replace(
        old,
        line=old.line if late else line,
        since=min(old.since, at),
        last=max(old.last, at),
        anew=at if at - old.last >= QUIET else old.anew,
        stamp=said.stamp if said.stamp is not None else old.stamp,
        devices=frozenset(sorted(old.devices | {said.device})[:MOST_DEVICES]),
        times=recent(sorted((*old.times, at)), max(old.last, at)),
    )


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of one node ``at`` this moment. ``answered``: when the server was last read up to then,
    None: never. ``why``: why nothing is known by the source, ``since`` when; ``behind``: why nothing of all
    this counts now, since the Node itself is not known."""

    at: datetime
    stated: Sequence[Stated]
    answered: datetime | None
    why: str = ""
    since: datetime | None = None
    behind: str = ""


def observe(look: Look) -> Reading:
    """What the lines say now."""
    unknown = look.behind or _why(look)
    fresh_until = (look.answered or look.at) + FRESH_FOR
    return Reading(
        source=SOURCE,
        at=look.at,
        problems=tuple(_problem(s, fresh_until) for s in sorted(look.stated, key=lambda s: s.pair)),
        unknown={"*": unknown} if unknown else {},
        # That the API server is silent is told by itself.
        unknown_since={"*": look.since or look.at} if unknown and not look.behind else {},
        listed=frozenset({*((t, "") for t in TYPES), *(s.pair for s in look.stated)}),
        gone=frozenset(s.pair for s in look.stated if s.type and s.quiet(look.at)),
    )


def _why(look: Look) -> str:
    if look.why or look.answered is None:
        return f"Loki: {look.why or 'not asked yet'}"
    if look.at - look.answered > FRESH_FOR:
        return f"Loki: last answered at {hour(look.answered, look.at)}"
    return ""


def _problem(s: Stated, fresh_until: datetime) -> Problem:
    edge = not s.type
    return Problem(
        source=SOURCE,
        type=s.type,
        reason=s.reason,
        message=s.line,
        since=s.since,
        fresh_until=fresh_until,
        kind=Kind.EDGE if edge else Kind.LEVEL,
        latched=not edge,
        # Every reader of the same log has the same, so that one does not take for news what another knew.
        counter=s.last.timestamp() if edge else None,
        times=s.times if edge else (),
        stated=s.anew,
        # Who has just begun to read may not know that the machine has booted since. A record may.
        put=s.last if s.anew is None else None,
        device=devices(f"PCI {each}" for each in s.devices),
    )


class LokiSource:
    """What the log says of one node. ``look`` has it, for a boot ID."""

    name = SOURCE

    def __init__(self, node: str, look: Callable[[str], Look]) -> None:
        self._node = node
        self._look = look
        self._complaints = Complaints()

    def poll(self, boot_id: str, within: float | None = None) -> Reading:
        """What is known now. The server is asked at the reader's own pace."""
        look = self._look(boot_id)
        reading = observe(look)
        self._complaints.of(self._node, reading, but=look.behind)
        return reading
