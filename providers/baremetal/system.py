"""One system behind a BMC: which it is, what it can do, and whether it is on. sushy reads what the BMC says.

Source: DMTF's schema ComputerSystem.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from providers.baremetal.bmc import LATER, Limits, Wire, brief
from providers.baremetal.machine import Bmc, Credentials, canonical
from recovery.clock import Clock
from recovery.errors import KnowsNobody, KnowsNothing, Refused, Retry
from recovery.model import Machine

MOST_SYSTEMS = 32  # behind one BMC, which are looked at to find the machine's

OFF, ON, CHANGING = "Off", "On", "Powering"
FORCED = ("PowerCycle", "ForceRestart")
FORCE_OFF, GRACEFUL = "ForceOff", "GracefulRestart"
SWITCH_ON = ("On", "ForceOn")
UNSAID = frozenset({"ForceRestart", "On"})
"""What is tried where a BMC does not say which resets it takes: those that most of them take."""


def who(machine: Machine, bmc: Bmc) -> str:
    """The BMC, as people are told of it."""
    return f"the BMC of {machine.route.get('node') or machine.id} at {bmc.host}"


class Talk:
    """The BMC of one machine, while it is asked."""

    def __init__(self, machine: Machine, bmc: Bmc, known: Credentials, limits: Limits, clock: Clock) -> None:
        self.machine, self.bmc = machine, bmc
        self.who = who(machine, bmc)
        self._known, self._limits, self._clock = known, limits, clock
        self.wire = Wire(self.who, bmc, known, limits, clock)

    def system(self, path: str = "") -> Any:
        """sushy's ``System`` that the inventory names, or at ``path``, or the one that is the machine."""
        if wanted := self.bmc.path or path:
            return self._read(wanted)
        import sushy
        from sushy.auth import BasicAuth

        auth = BasicAuth(self._known.username, self._known.password)
        with self._understood():
            root = sushy.Sushy(self.bmc.origin, auth=auth, connector=self.wire)
            paths = root.get_system_collection().members_identities
        if not 0 < len(paths) <= MOST_SYSTEMS:
            raise KnowsNothing(
                f"{self.who} has {len(paths)} systems: put the path of the right one into the inventory"
            )
        return self._mine(paths)

    def _mine(self, paths: Sequence[str]) -> Any:
        """The system that is the machine. Another one may give no answer: beside the host, the BMCs of GPU
        servers have the board with the GPUs, which may be what is broken. Without the machine it is looked
        again where any of them may answer later: that one may be the machine."""
        begun, unread = self._clock.monotonic(), None
        for path in paths:
            try:
                found = self._read(path)
            except (Retry, Refused) as error:
                if unread is None or isinstance(error, Retry):
                    unread = error
                if self._clock.monotonic() - begun > self._limits.look:
                    break
                continue
            if len(paths) == 1 or stated(found) == canonical(self.machine.id):
                return found
        if unread is not None:
            raise unread
        raise KnowsNothing(f"{self.who} has {len(paths)} systems, and none of them is {self.machine.id}")

    def same(self, path: str = "") -> Any:
        """The same, if the BMC says that it is this very machine (law 4). Raises ``Refused`` naming both."""
        return self.own(self.system(path))

    def own(self, found: Any) -> Any:
        """``found``, if it is this very machine."""
        mine = canonical(self.machine.id)
        if not mine:
            raise Refused(
                f"{self.machine.id} is no UUID, by which {self.who} could be known for the right one"
            )
        if stated(found) == mine:
            return found
        told = brief(str(found.uuid), self._known) if found.uuid else "none"
        raise (Refused if stated(found) else KnowsNothing)(
            f"{self.who} states the UUID {told}, and the machine is {self.machine.id}: nothing is asked"
        )

    def offered(self, system: Any) -> frozenset[str]:
        """The resets it takes, from the action or its ActionInfo; empty where it does not say."""
        import sushy

        try:
            with self._understood():
                found = system.get_allowed_reset_system_values()
        except KnowsNobody:
            raise
        except KnowsNothing:  # the system is there, and its ActionInfo is not
            return frozenset()
        return frozenset() if found == set(sushy.ResetType) else frozenset(kind.value for kind in found)

    def reset(self, system: Any, kind: str) -> None:
        """One POST. Raises ``Retry``, ``Refused`` or ``Ambiguous``."""
        try:
            target = system.json["Actions"]["#ComputerSystem.Reset"]["target"]
        except (KeyError, TypeError):
            target = None
        if not isinstance(target, str) or not target:
            raise Refused(f"{self.who} offers no reset of its system")
        self.wire.post(target, {"ResetType": kind})

    def _read(self, path: str) -> Any:
        from sushy.resources.system.system import System

        with self._understood():
            return System(self.wire, path)

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """sushy's own errors, and what its readers stumble over, as ours: a BMC may be starting."""
        from sushy.exceptions import SushyError

        try:
            yield
        except (SushyError, TypeError, AttributeError, ValueError, LookupError, RecursionError) as error:
            words = brief(f"{type(error).__name__}: {error}", self._known)
            raise Retry(f"{self.who} gave an answer that cannot be understood: {words}", LATER) from error


def stated(system: Any) -> str:
    """The system's UUID as its BMC states it, canonical; empty for none."""
    return canonical(str(system.uuid or ""))


def power_of(system: Any) -> str:
    """On, Off, PoweringOn, PoweringOff, Paused; empty where the BMC does not say."""
    return str(system.power_state.value) if system.power_state is not None else ""


def chosen(power: str, offered: frozenset[str]) -> str:
    """The reset that makes a reboot; empty for none. The order is that of ``docs/baremetal.md``."""
    offered = offered or UNSAID
    switch_on = [kind for kind in SWITCH_ON if kind in offered]
    if power == OFF:
        return switch_on[0] if switch_on else ""
    two_steps = [FORCE_OFF] if switch_on and power == ON else []
    return next((kind for kind in (*FORCED, *two_steps, GRACEFUL) if kind in offered), "")
