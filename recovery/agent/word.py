"""What the agent of a new node tells its peers, who prove it: whether its detector's page can be read, and
whether a fault is on it. Its own record need not say so: somebody may have deleted it.

Nobody but that agent can read the page. It tells that in the Lease of its own node, and only while its
machine is the replacement of one whose record is open: a fleet in which nothing is replaced writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from recovery.agent.world import World
from recovery.decide.budget import is_to_be_proved
from recovery.decide.situation import PageThere
from recovery.errors import ApiError
from recovery.model import Gate, Reading
from recovery.store import lease as leases
from recovery.units import moment, parse_moment

Readings = Callable[[], Sequence[Reading]]
Complaint = Callable[[], str]
"""The fault that speaks against the own node now; empty if none does."""


class Word:
    """Tells of the page of ``me``. An empty ``me`` has none."""

    def __init__(self, world: World, me: str, readings: Readings, complaint: Complaint) -> None:
        self._w = world
        self._me = me
        self._readings = readings
        self._complaint = complaint
        self._machine = ""
        self._wanted = False

    def ask(self, gate: Gate) -> None:
        """See on the gate whether peers wait for this machine to be proved. May raise ``ApiError``."""
        wanted = False
        if self._me and gate.claimed and (gate.slots or gate.open):
            wanted = is_to_be_proved(gate, self._own_machine())
        before, self._wanted = self._wanted, wanted
        if before and not wanted:
            self._fall_silent()

    def tell(self) -> None:
        """Renew what was told, or tell what has changed."""
        if not self._wanted:
            return
        readings = self._readings()
        if not readings:
            return  # nothing has been read yet
        try:
            blind = not all(r.readable for r in readings)
            sick = self._complaint()
            told = worded(self._machine, readings, sick)
            self._w.leases.tell(self._me, told, at_once=blind or bool(sick))
        except ApiError:
            return  # the next round tries again; peers wait for a renewed one

    def _fall_silent(self) -> None:
        """Nobody waits any more. The Lease stays ours where our own node has a recovery by now."""
        self._w.leases.fall_silent(self._me)
        record = self._w.records.read(self._me)
        if record is None or not record.phase.open:
            self._w.leases.release(self._me)

    def _own_machine(self) -> str:
        if not self._machine:
            node = self._w.node(self._me)
            found = self._w.providers.identify(node).machine if node is not None else None
            self._machine = found.id if found is not None else ""
        return self._machine


def worded(machine: str, readings: Sequence[Reading], sick: str = "") -> str:
    """The Lease's annotation. The same for as long as nothing changes."""
    bad = next((r for r in readings if not r.readable), None)
    told: dict[str, Any] = {"machine": machine, "unreadable": ""}
    if bad is not None:
        since = bad.unknown_since.get("*", bad.at)
        told |= {"unreadable": bad.unknown["*"][:500], "since": moment(since)}
    if sick:
        told["sick"] = sick
    return json.dumps(told, sort_keys=True)


def heard(lease: leases.Word, machine: str) -> PageThere | None:
    """What the agent on ``machine`` tells of its page. None: no agent there tells anything.

    Where an agent of the node holds its Lease and has told nothing of this machine, it may be one that has
    died, and the agent there waits for its Lease: it is not heard yet.
    """
    try:
        told = json.loads(lease.text)
        if told["machine"] == machine:
            why = str(told["unreadable"])
            since = parse_moment(told["since"]) if why else None
            sick = str(told.get("sick", ""))
            return PageThere(why, since, heard=lease.again, silent=lease.dead, sick=sick)
    except (ValueError, KeyError, TypeError):
        pass
    return PageThere(heard=False) if lease.owned and not lease.dead else None
