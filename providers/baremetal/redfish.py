"""Reboots by Redfish: a machine's BMC is asked to reset it, by a process that runs on another machine."""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from providers.baremetal.aside import Aside
from providers.baremetal.base import ASKED_LATELY, BareMetalProvider, unable
from providers.baremetal.bmc import LATER, Limits, brief
from providers.baremetal.inventory import Inventory
from providers.baremetal.machine import NAME, SYSTEM_PATH, canonical
from providers.baremetal.system import (
    CHANGING,
    FORCE_OFF,
    FORCED,
    GRACEFUL,
    OFF,
    ON,
    SWITCH_ON,
    UNSAID,
    Talk,
    chosen,
    power_of,
    stated,
    who,
)
from recovery.clock import Clock
from recovery.errors import Ambiguous, KnowsNobody, KnowsNothing, Refused, Retry, SettingsError
from recovery.model import (
    Gone,
    Machine,
    NotApplied,
    Poll,
    Preflight,
    Reference,
    Running,
    Step,
    Unfinished,
    Unseen,
)
from recovery.provider.lacking import Lacking
from recovery.provider.late import not_late
from recovery.provider.protocol import Finding, ProviderContext

log = logging.getLogger(__name__)

INSTALL = "BAREMETAL_POWER=redfish needs sushy: install node-recovery[metal]"
ASKED_AGAIN = 5.0  # seconds for which an answer of preflight or poll is kept: BMCs are slow
SWITCHED_ON_AGAIN = 15.0  # seconds between two requests to switch on what was switched off
TAKES_TO_SWITCH_ON = 300.0  # seconds for which a BMC may say that it is off, and refuse to switch it on again
READ = frozenset({"redfish:Login"})
RESET = READ | {"redfish:ConfigureComponents"}
Seen = TypeVar("Seen")


def require_sdk() -> None:
    """Raise ``SettingsError`` if there is no sushy, without importing it."""
    if importlib.util.find_spec("sushy") is None:
        raise SettingsError([INSTALL])


def make(context: ProviderContext) -> RedfishProvider:
    """The provider over Redfish. Raises ``SettingsError`` without sushy, or with wrong settings."""
    require_sdk()
    return RedfishProvider(context.clock, context.environ, Inventory(context.environ))


class RedfishProvider(BareMetalProvider):
    """The provider ``baremetal``, with BMCs. sushy is imported at the first preflight."""

    actions = frozenset({Step.REBOOT})
    note = ""
    out_of_band = frozenset({Step.REBOOT})
    permissions: Mapping[str, frozenset[str]] = {"preflight": READ, "poll": READ, Step.REBOOT: RESET}

    def __init__(
        self, clock: Clock, environ: Mapping[str, str], inventory: Inventory, limits: Limits | None = None
    ) -> None:
        self._clock, self._inventory, self._limits = clock, inventory, limits or Limits()
        self._asks = environ.get("RECOVERY_MODE") in ("concluder", "fleet")
        self._own = "" if self._asks else environ.get("NODE_NAME", "")
        self._known: dict[tuple[str, str], tuple[float, object, Any]] = {}
        self._switched_on: dict[str, float] = {}
        """When each machine's BMC took the last order to switch it on, or may have."""
        self._lacking = Lacking(clock, ASKED_LATELY)
        if self._asks and not inventory.path and not inventory.follows:
            log.warning(
                "BMC_INVENTORY is not set, and BMC_NETWORKS names no network for annotations: no machine is "
                "rebooted, and each node whose remedy is reboot is handed over to a person"
            )
        self._looks = Aside(clock, self._limits.patience, self._limits.longest)
        self.call_timeout = self._limits.longest

    # ------------------------------------------------------------ preflight, start

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        """Look at the machine through its BMC. Raises ``Refused`` or ``Retry``."""
        self._check(machine, action)
        look = partial(self._aside, machine, "preflight", partial(self._preflight, machine))
        found: Preflight = self._recent("preflight", machine, "", partial(self._patiently, machine, look))
        return found

    def _preflight(self, machine: Machine) -> Preflight:
        talk = self._talk(machine)
        system = talk.same()
        offered, power = talk.offered(system), power_of(system)
        reset = chosen(power, offered)
        busy = f"{talk.who} says that its power is changing ({power})" if power.startswith(CHANGING) else ""
        if not reset:
            raise _none_fits(talk.who, power, busy, ", ".join(sorted(offered)))
        data = {"machine": machine.id, "system": system.path, "reset": reset, "power": power}
        self._path(data)  # else the reset would be refused for it
        if last := last_reset(system):
            data["last_reset"] = last
        notes = [] if talk.bmc.verify else [f"the certificate of {talk.who} is not verified"]
        if reset == GRACEFUL:
            notes.append("only a graceful restart is offered, which a system that hangs ignores")
        return Preflight(Reference(NAME, Step.REBOOT, data), not_yet=busy, notes=tuple(notes))

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> Reference:
        """Look who is there, and reset it by one request. The reference then says that it was accepted.

        Redfish takes no idempotency token, so ``token`` goes nowhere.
        """
        self._check(machine, action)
        data = self._checked(machine, reference)
        begun = self._clock.boottime()
        self._forget(machine)
        talk = self._talk(machine)
        path = self._path(data)
        system = self._patiently(machine, lambda: talk.same(path))
        power = power_of(system)
        if power.startswith(CHANGING) or chosen(power, talk.offered(system)) != data.get("reset"):
            raise Retry(f"{talk.who} says something else than a moment ago: looking again before a reset")
        not_late(self._clock, begun, self._limits.look, "the reset", f"a look at {talk.who}")
        self._patiently(machine, partial(talk.reset, system, str(data["reset"])), "reset")
        return Reference(NAME, Step.REBOOT, {**data, "accepted": True})

    # ------------------------------------------------------------ poll, finish

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        """How far the reset is, as the BMC says. That it has booted is proved by the boot ID, not here."""
        data = self._checked(machine, reference)
        asked = f"poll {sorted(data.items())}"
        look = partial(self._aside, machine, asked, partial(self._poll, machine, data))
        found: Poll = self._recent("poll", machine, dict(data), look)
        return found

    def _poll(self, machine: Machine, data: Mapping[str, Any]) -> Poll:
        talk, system = self._asked(machine, self._path(data))
        if stated(system) != canonical(machine.id):
            return Gone(f"another machine is behind {talk.who}: {brief(str(system.uuid), talk.wire.known)}")
        return outcome(talk.who, system, data)

    def finish(self, machine: Machine, reference: Reference) -> None:
        """Switch on what was switched off for its reboot. Raises ``Retry`` or ``Refused``."""
        data = self._checked(machine, reference)
        self._forget(machine)
        if data.get("reset") != FORCE_OFF:
            return
        talk, asked = self._asked(machine, self._path(data))
        system = talk.own(asked)
        if not isinstance(outcome(talk.who, system, data), Unfinished):
            return
        since = self._clock.monotonic() - self._switched_on.get(machine.id, -math.inf)
        if since < SWITCHED_ON_AGAIN:
            left = timedelta(seconds=SWITCHED_ON_AGAIN - since)
            raise Retry(
                f"{talk.who} was asked {since:.0f} s ago to switch it on, and says that it is off", left
            )
        try:
            self._patiently(machine, partial(self._switch_on, machine, talk, system), "switching on")
        except Refused as error:
            if since < TAKES_TO_SWITCH_ON:  # it took the order before this one, and is behind
                raise Retry(error.reason, LATER) from error
            raise

    def _switch_on(self, machine: Machine, talk: Talk, system: Any) -> None:
        offered = talk.offered(system) or UNSAID
        try:
            talk.reset(system, next((kind for kind in SWITCH_ON if kind in offered), ON))
        except Ambiguous as lost:  # to switch on what is on does nothing
            self._switched_on[machine.id] = self._clock.monotonic()
            raise Retry(lost.reason, LATER) from lost
        except Refused:
            if power_of(talk.same(system.path)) == OFF:  # else some BMCs refuse it because it is done
                raise
        self._switched_on[machine.id] = self._clock.monotonic()

    # ------------------------------------------------------------ witness, doctor

    def down(self, machine: Machine) -> str | None:
        """That its power is off. It is so for moments while a reset is carried out, too."""
        power: str = self._aside(machine, "power", lambda: power_of(self._talk(machine).same()))
        return "its BMC says that the power is off" if power == OFF else None

    def examine(self, machine: Machine | None, steps: frozenset[Step], own: bool) -> Iterator[Finding]:
        """Inventory, BMC, credentials, UUID, resets. Whether one may reset shows only when it is done."""
        from providers.baremetal import examine

        asks, missing = own and self._asks, False if Step.REBOOT in steps else None
        yield from examine.told_of(self._inventory, missing if asks else True)
        if self._inventory.is_broken:
            return
        if machine is None:
            yield from examine.unmounted(self._inventory, missing) if asks else ()
            return
        if Step.REBOOT not in steps:
            return
        try:
            self._check(machine, Step.REBOOT)
        except Refused as error:
            yield Finding(NAME, True, error.reason, "run doctor where the peer is, to try its BMC")
            return
        yield examine.of_a_node(self._inventory, machine, own, self._preflight)

    def check_listed(self, machine: Machine) -> None:
        """Raises ``Refused`` or ``Retry`` where nothing says where its BMC is."""
        self._inventory.find(machine)

    # ------------------------------------------------------------ guards

    def _check(self, machine: Machine, action: Step) -> None:
        if action not in self.actions:
            raise unable(machine, action)
        if self._own and machine.route.get("node") == self._own:
            raise Refused(
                f"{self._own} is this agent's own node: its power is never switched from itself; a peer does "
                "it once the node is dead"
            )

    def _checked(self, machine: Machine, reference: Reference) -> Mapping[str, Any]:
        """Raise ``Refused`` for a reference to another machine or action: it must not reach a BMC."""
        if (reference.provider, reference.action) != (NAME, Step.REBOOT):
            raise Refused(
                f"the reference of {reference.provider} {reference.action} is not one of a reboot here"
            )
        if reference.data.get("machine") != machine.id:
            raise Refused(f"the reference is one of {reference.data.get('machine')}, not of {machine}")
        return reference.data

    @staticmethod
    def _path(data: Mapping[str, Any]) -> str:
        path = str(data.get("system", ""))
        if not SYSTEM_PATH.fullmatch(path):
            raise Refused(f"the reference names the system {path[:80]!r}, which is no path of Redfish")
        return path

    def _talk(self, machine: Machine) -> Talk:
        """The BMC, by its address and credentials of now: neither is ever taken from a record."""
        bmc = self._inventory.find(machine)
        return Talk(machine, bmc, self._inventory.credentials_for(bmc), self._limits, self._clock)

    def _asked(self, machine: Machine, path: str) -> tuple[Talk, Any]:
        """The BMC, and the system that something was asked of. Raises ``Retry``: a BMC that is starting knows
        nobody and nothing for a while, an inventory has mistakes. Neither ends what was begun."""
        try:
            talk = self._talk(machine)
            system = talk.system(path)
        except Refused as error:
            raise Retry(error.reason, LATER) from error
        if not stated(system):
            raise Retry(f"{talk.who} states no UUID: whose power it shows is not known", LATER)
        return talk, system

    def _patiently(self, machine: Machine, ask: Callable[[], Seen], use: str = "look") -> Seen:
        """What ``ask`` returns. That a BMC knows nothing, or nobody, counts once each answer of a minute says
        so. It is asked three times by then: some lock a user out after a few more."""
        try:
            found = ask()
        except KnowsNothing as error:
            if self._lacking.surely((machine.id, use), lacks=True):
                raise
            nobody = isinstance(error, KnowsNobody)
            some = (
                "some refuse good credentials now and then"
                if nobody
                else "one that is starting knows nothing"
            )
            raise Retry(f"{error.reason}; asking again, for {some}", 2 * LATER) from error
        self._lacking.surely((machine.id, use), lacks=False)
        return found

    def _aside(self, machine: Machine, use: str, look: Callable[[], Seen]) -> Seen:
        """What ``look`` returns, and nobody waits for a BMC that does not answer. One at another address, or
        asked with other credentials, is another one."""
        bmc = self._inventory.find(machine)
        found: Seen = self._looks.ask(machine.id, (use, bmc), who(machine, bmc), look)
        return found

    def _forget(self, machine: Machine) -> None:
        """Something is about to be asked of it: nothing that was seen before counts."""
        self._known.clear()
        self._looks.forget(machine.id)

    def _recent(self, use: str, machine: Machine, what: object, ask: Callable[[], Any]) -> Any:
        """An answer of a moment ago to the same question, or a new one."""
        now = self._clock.monotonic()
        at, same, answer = self._known.get((use, machine.id), (0.0, None, None))
        if answer is None or same != what or now - at >= ASKED_AGAIN:
            answer = ask()
            self._known[use, machine.id] = (now, what, answer)
        return answer


def _none_fits(who: str, power: str, busy: str, offered: str) -> Retry | Refused:
    """Why none of the resets that are offered makes a reboot. Some fit only a machine that is on, or off."""
    if busy:
        return Retry(busy, LATER)
    if not power:
        return KnowsNothing(
            f"{who} says nothing of its power, on which the reset depends: it offers: {offered}"
        )
    return Refused(f"{who} offers no reset that makes a reboot of a machine that is {power}: {offered}")


def last_reset(system: Any) -> str:
    """When its BMC says that it was reset last (Redfish 2020.2), as it writes it; empty where it does not."""
    found = system.json.get("LastResetTime")
    return found[:64] if isinstance(found, str) else ""


def outcome(who: str, system: Any, data: Mapping[str, Any]) -> Poll:
    """What a system's power says of a reset that was, or may have been, asked for."""
    power, reset = power_of(system), data.get("reset")
    before, last = data.get("last_reset"), last_reset(system)
    unseen = Running if data.get("accepted") or power.startswith(CHANGING) else Unseen
    if reset == FORCE_OFF:
        if power == OFF and (data.get("accepted") or (before and last and last != before)):
            return Unfinished(f"{who} has switched it off, and is to switch it on again")
        if power == OFF:  # the answer was lost, and somebody else may be at work on it
            return Unseen(f"{who} says that it is off; by whom is not known")
        return unseen(f"{who} says that it is {power}: not off yet, or on again; a new boot ID is the proof")
    if power != ON:
        if reset in SWITCH_ON and power == OFF and not data.get("accepted"):
            return NotApplied(f"{who} says that it is off, as it was")
        return unseen(f"{who} says that it is {power or 'there'}")
    if reset in FORCED and before and last == before and not data.get("accepted") and runs(system):
        return NotApplied(
            f"{who} says that its system runs, and was last reset at {last}, before it was asked"
        )
    if before and last and last != before:
        return Running(f"{who} says that it is on, and was reset at {last}; a new boot ID is the proof")
    return unseen(f"{who} says that it is on; a new boot ID is the proof")


def runs(system: Any) -> bool:
    """Whether its BMC reports the progress of a boot, and says that a system runs. A LastResetTime alone
    might never change."""
    progress = system.json.get("BootProgress")
    return isinstance(progress, dict) and progress.get("LastState") == "OSRunning"
