"""VMs of Azure: in scale sets of both kinds, standing alone, and AKS's.

There is no such call as "mark unhealthy" here: what is asked for is done to one VM. *reboot* restarts it,
*reimage* gives it a new system disk on the same host, *redeploy* moves it to another host, *replace* deletes
it and sets the capacity of its scale set back. Azure takes no idempotency token for any of them, so ``token``
goes nowhere: a repetition is prevented by the intent on the record, and seen by asking for the VM.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from providers.azure import aks, machines, outcome
from providers.azure.identity import NAME, POOL_LABELS, UNIFORM, VM, group_of, identify
from providers.azure.machines import ScaleSet, Vm, listed, named, set_id
from providers.azure.options import Options
from providers.azure.permissions import PERMISSIONS
from providers.azure.session import AzureSession
from providers.azure.settings import COMPUTE, DELETE, REIMAGE, Cluster
from recovery.clock import Clock
from recovery.errors import Ambiguous, Refused, Retry
from recovery.model import (
    Gone,
    GroupMembers,
    Machine,
    NodeView,
    Poll,
    Preflight,
    Reference,
    Rung,
    Step,
    Unseen,
)
from recovery.provider.known import KEY, pack
from recovery.provider.lacking import Lacking
from recovery.provider.late import not_late
from recovery.provider.protocol import Abilities, Finding

QUARTER, HALF = timedelta(minutes=15), timedelta(minutes=30)
DRAIN = Rung(Step.DRAIN, QUARTER)
IN_PLACE = frozenset({Step.REBOOT, Step.REIMAGE, Step.REDEPLOY})
HARDWARE = (DRAIN, Rung(Step.REDEPLOY, HALF))
"""Only another host helps against broken hardware: a reimaged VM stays where it is."""
SOFTWARE = (DRAIN, Rung(Step.REIMAGE, HALF))
ASKED_AGAIN: Mapping[str, float] = {"preflight": 2.0, "poll": 5.0}
"""Seconds for which an answer is kept: a VM may be read 12 times a minute ("Compute throttling limits").
Right before a call nothing older than two seconds counts."""

Found = TypeVar("Found")
AT_IT_AGAIN = timedelta(seconds=15)
"""When to look again whether Azure has ended what it is at."""


class AzureProvider:
    """The provider ``azure``. Nothing is imported or connected to before the first preflight."""

    name = NAME
    actions = IN_PLACE | {Step.REPLACE}
    permissions = PERMISSIONS
    default_remedy: tuple[Rung, ...] = HARDWARE

    def __init__(self, session: AzureSession, clock: Clock, options: Options) -> None:
        self._session = session
        self._clock = clock
        self._options = options
        self._known: dict[tuple[str, str, str], tuple[float, Any]] = {}
        self._lacking = Lacking(clock)
        self._restoring: dict[str, str] = {}
        """Operations that set a capacity back, by the machine that they are for."""
        self._sets: dict[str, dict[str, str]] = {}
        """The scale sets that a machine was seen in."""
        self.call_timeout = session.longest

    # ------------------------------------------------------------ what a machine can have

    def identify(self, node: NodeView) -> Machine:
        """The VM behind ``node``. Raises ``Refused`` for any other."""
        return identify(node)

    def abilities(self, machine: Machine) -> Abilities:
        """By route: Uniform, a VM with a name (in a Flexible set, or alone), and AKS with what is allowed."""
        if "aks" in machine.route:
            return self._on_aks(machine)
        if machine.route["kind"] == VM:
            able = frozenset({Step.REBOOT, Step.REDEPLOY, Step.REPLACE})
            more = frozenset({Step.REIMAGE}) if REIMAGE in self._options.allow else frozenset()
            note = (
                "" if more else f"a VM outside Uniform scale sets is reimaged only with AZURE_ALLOW={REIMAGE}"
            )
            return Abilities(able | more, HARDWARE, SOFTWARE if more else (), note)
        return Abilities(self.actions, HARDWARE, SOFTWARE)

    def _on_aks(self, machine: Machine) -> Abilities:
        able: frozenset[Step] = frozenset()
        if COMPUTE in self._options.allow:
            vm = machine.route["kind"] == VM and REIMAGE not in self._options.allow
            able |= IN_PLACE - ({Step.REIMAGE} if vm else set())
        if DELETE in self._options.allow:
            able |= {Step.REPLACE}
        return Abilities(able, (DRAIN,), note=self._options.about_aks)

    def gone(self, machine: Machine) -> str | None:
        """Azure knows no VM there for a while, since one answer may be an old one; or another one with its
        number."""
        if not machine.route:
            return None
        found = machines.vm(self._session, machine.route)
        if self._lacking.surely(machine.id, lacks=found is None):
            return f"{named(machine.route)} does not exist any more"
        same = found is None or found.id == machine.id
        return None if same else f"another VM is {named(machine.route)} now"

    def down(self, machine: Machine) -> str | None:
        """By the power state of the very VM: stopped, or deallocated."""
        if not machine.route:
            return None
        vm, state = machines.power(self._session, machine.route)
        surely = vm == machine.id and state in ("stopped", "deallocated")
        return f"Azure says that {named(machine.route)} is {state}" if surely else None

    def members(self, machines: Sequence[Machine]) -> Iterator[GroupMembers]:
        """Of Uniform scale sets, AKS's included: *in service* is running, with nothing under way: one that
        is Failed counts, too. Of a VM with a name its ID does not say which set it is in. A set that was
        deleted is no group any more."""
        for machine in machines:
            if machine.route.get("kind") == UNIFORM:
                route = {k: machine.route[k] for k in ("kind", "subscription", "resource_group", "scale_set")}
                self._sets.setdefault(set_id(route).lower(), route)
        for name, of_set in sorted(self._sets.items()):
            found = listed(self._session, of_set, self._clock.now())
            if found is None:
                del self._sets[name]
            else:
                yield found

    # ------------------------------------------------------------ preflight

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        """Look at the VM, and for *replace* at its scale set. Raises ``Refused`` or ``Retry``."""
        able = self.abilities(machine)
        if action not in able.actions:
            raise Refused(
                f"{named(machine.route)} cannot have {action.value}: {able.note or 'not this kind'}"
            )
        found: Preflight = self._recent(
            "preflight", machine, action, lambda: self._preflight(machine, action)
        )
        return found

    def _preflight(self, machine: Machine, action: Step) -> Preflight:
        found = self._same_machine(machine) if action is Step.REPLACE else self._since_when(machine)
        data = self._data(machine, found)
        group = _group(machine, found)
        if action is Step.REPLACE:
            if "aks" in machine.route:
                return self._preflight_delete(machine, found, data, group)
            return self._preflight_replace(machine, found, data, group)
        if action is Step.REIMAGE and machine.route["kind"] == VM and not found.ephemeral:
            raise Refused(f"{named(machine.route)} has no ephemeral system disk: Azure does not reimage it")
        data |= {"was": found.state, "since": found.since}
        not_yet = _busy(machine, found)
        if found.state == "Deleting":  # its Node goes with it, and needs no person
            not_yet = f"{named(machine.route)} is being deleted: there is nothing to {action.value}"
        return Preflight(Reference(NAME, action, data), group, not_yet=not_yet)

    def _preflight_replace(self, machine: Machine, found: Vm, data: dict[str, Any], name: str) -> Preflight:
        data |= _set_of(found, machine)
        if not data.get("scale_set"):
            raise Refused(f"{named(machine.route)} is in no scale set: nothing would take its place")
        group = self._scale_set(data)
        others = [m for m in machines.members(self._session, data) if m.id != machine.id]
        adopt = _adopted(machine, found)
        # What is being made while somebody else's deletion runs has never served, and may be for its place.
        known = [m.id for m in others if not (adopt and m.state == machines.MADE)]
        data |= {
            "adopted": bool(adopt),
            "capacity": group.capacity,
            KEY: pack(known),
            # Somebody else's deletion may be a scale-in, whose capacity shows only at its end.
            "restore": not (self._options.autoscaler or (adopt and group.under_way)),
        }
        leaving = next((m.name for m in others if m.state == "Deleting"), "")
        not_yet = "" if adopt else _busy(machine, found)
        if leaving and not adopt:
            not_yet = f"{leaving} of scale set {group.name} is being deleted"
        if group.under_way and not (adopt or not_yet):
            not_yet = f"scale set {group.name} is {group.state}: what it wants may show only once that ends"
        return Preflight(
            Reference(NAME, Step.REPLACE, data),
            name,
            short_by=max(0, group.capacity - 1 - len(machines.with_machine(self._session, data, others))),
            adopt=adopt,
            not_yet=not_yet,
            alone=not self._options.autoscaler,
        )

    def _preflight_delete(self, machine: Machine, found: Vm, data: dict[str, Any], group: str) -> Preflight:
        """AKS's own way; the machine that AKS knows by the node's name must be the VM behind the node.

        Somebody else's deletion may be the autoscaler's, whose count shows late: it is not set back.
        """
        cluster, pool_name, name = self._cluster(), machine.route["pool"], machine.route["node"]
        if not pool_name:
            other = "and not what Karpenter makes (node auto-provisioning)"
            raise Refused(
                f"node {name} has no label {POOL_LABELS[0]}: AKS deletes only machines of its pools, {other}"
            )
        path, adopt = machine.provider_id.removeprefix("azure://"), _adopted(machine, found)
        what = f"machine {name} of pool {pool_name}"
        there = "" if adopt else self._sure(what, aks.machine(self._session, cluster, pool_name, name))
        if not adopt and (there is None or there.lower() != path.lower()):
            raise Refused(f"AKS knows no {what} with the VM of this node")
        pool = aks.pool(self._session, cluster, pool_name)
        present = aks.machines(self._session, cluster, pool_name)
        restore = not (self._options.autoscaler or pool.scaled or adopt)
        data |= {
            "adopted": bool(adopt),
            "pool": pool_name,
            "was": pool.state,
            "capacity": pool.count,
            KEY: pack(x for x in present if x != name),
            "restore": restore,
        }
        return Preflight(
            Reference(NAME, Step.REPLACE, data),
            group,
            short_by=max(0, pool.count - len(present)),
            adopt=adopt,
            not_yet=f"pool {pool_name} is {pool.state}" if outcome.stands_still(pool.state) else "",
            alone=restore,
        )

    # ------------------------------------------------------------ start, poll, finish

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> Reference:
        """Check that it is the same VM, and submit once. Returns the reference with the operation's ID.

        A look that took too long says nothing of the VM that would be asked for now.
        """
        data = self._checked(machine, reference, action)
        if action not in self.abilities(machine).actions:
            raise Refused(f"{named(machine.route)} cannot have {action.value}")
        begun, what = self._clock.boottime(), named(machine.route)
        self._same_machine(machine)
        not_late(self._clock, begun, self._session.look, f"{action.value} of {what}", "a look at it")
        self._known.clear()
        if action is Step.REPLACE and "aks" in machine.route:
            done = aks.delete(self._session, self._cluster(), str(data["pool"]), str(data["node"]))
        else:
            done = machines.submit(self._session, machine.route, action)
        return Reference(NAME, action, {**data, "operation": done})

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        """How the action stands. Raises ``Retry`` or ``Refused`` where Azure does not say."""
        data = self._checked(machine, reference, reference.action)
        found: Poll = self._recent(
            "poll", machine, reference.action, lambda: self._poll(machine, reference, data)
        )
        return found

    def _poll(self, machine: Machine, reference: Reference, data: Mapping[str, Any]) -> Poll:
        if reference.action != Step.REPLACE:
            found = outcome.in_place(self._session, machine, data, reference.action)
            if isinstance(found, Gone) and self.gone(machine) is None:
                return Unseen(_lacked_once(named(machine.route)))
            return found
        if "aks" in machine.route:
            return outcome.deleted(self._session, machine, data, self._cluster())
        return outcome.replaced(self._session, machine, data, self._surely_set)

    def finish(self, machine: Machine, reference: Reference) -> None:
        """Set the capacity back to what it was, unless somebody else has changed it meanwhile.

        Raises ``Retry`` or ``Refused``.
        """
        data = self._checked(machine, reference, Step.REPLACE)
        self._known.clear()
        try:
            self._restore(machine, data, int(data["capacity"]))
        except Ambiguous as lost:  # it is set, not added to: it may be asked for again
            raise Retry(lost.reason) from lost

    def _restore(self, machine: Machine, data: Mapping[str, Any], wanted: int) -> None:
        if "aks" in machine.route:
            cluster = self._cluster()
            pool = aks.pool(self._session, cluster, str(data["pool"]))
            if pool.count == wanted - 1:
                self._not_at_it(f"pool {pool.name}", pool.state, data)
                aks.set_count(self._session, cluster, pool, wanted)
            return
        group = self._scale_set(data)
        if group.capacity == wanted - 1:
            self._not_at_it(f"scale set {group.name}", group.state, data)
            self._restoring[machine.id] = machines.set_capacity(self._session, data, group, wanted)

    def _not_at_it(self, what: str, state: str, data: Mapping[str, Any]) -> None:
        """Raise ``Retry`` while Azure is at work on it: a capacity that was set may show only at its end."""
        asked = self._restoring.get(str(data["machine"]), "")
        known = outcome.operation(self._session, {**data, "operation": asked}) if asked else None
        busy = state if outcome.stands_still(state) else ""
        if known is not None and known.state == "InProgress":
            busy = busy or "still being changed"
        if busy:
            raise Retry(f"{what} is {busy}: nothing more is asked of it before that ends", AT_IT_AGAIN)

    def take_back(self, machine: Machine, reference: Reference) -> str:
        """What shows that nothing of it is to come any more. Raises ``Retry`` or ``Refused``."""
        from providers.azure import take_back

        data = self._checked(machine, reference, reference.action)
        look = partial(self._surely, machine)
        if reference.action == Step.REPLACE and "aks" in machine.route:
            return take_back.of_aks(self._session, machine, look, data, self._cluster())
        return take_back.of_vm(self._session, machine, look, data, reference.action)

    # ------------------------------------------------------------ doctor

    def examine(self, machine: Machine | None, steps: frozenset[Step], own: bool) -> Iterator[Finding]:
        """What is missing for ``steps``."""
        from providers.azure.examine import examine

        return examine(self, self._session, self._options, machine, steps, own)

    # ------------------------------------------------------------ guards

    def _cluster(self) -> Cluster:
        if self._options.cluster is None:
            raise Refused("AKS is asked by the name of the cluster: set AZURE_CLUSTER_ID")
        return self._options.cluster

    def _since_when(self, machine: Machine) -> Vm:
        """The VM, and from when it is in its state, which Azure may not see where the VM's host is broken. It
        keeps nobody from what can be done without it."""
        try:
            return self._same_machine(machine, since=True)
        except (Retry, Refused) as unseen:
            with contextlib.suppress(Retry):
                return self._same_machine(machine)
            raise unseen

    def _same_machine(self, machine: Machine, *, since: bool = False) -> Vm:
        """The VM as it is now. Another one with the same number or name is nobody's business here (law 4)."""
        found = self._surely(machine, since=since)
        if found is None:
            raise Refused(f"{named(machine.route)} does not exist")
        if found.id != machine.id:
            raise Refused(f"{named(machine.route)} is another machine now: nothing is asked of it")
        return found

    def _surely(self, machine: Machine, *, since: bool = False) -> Vm | None:
        """The VM there; None once each answer of a minute has lacked it. Raises ``Retry`` before that."""
        found = machines.vm(self._session, machine.route, since=since)
        return self._sure(named(machine.route), found, machine.id)

    def _scale_set(self, route: Mapping[str, Any]) -> ScaleSet:
        found = self._surely_set(route)
        if found is None:
            raise Refused(f"scale set {route['scale_set']} does not exist any more")
        return found

    def _surely_set(self, route: Mapping[str, Any]) -> ScaleSet | None:
        found = machines.scale_set(self._session, route)
        return self._sure(f"scale set {route['scale_set']}", found, set_id(route).lower())

    def _sure(self, what: str, found: Found | None, key: str = "") -> Found | None:
        """``found``; None once each answer of a minute has lacked it. Raises ``Retry`` before that."""
        surely = self._lacking.surely(key or what, lacks=found is None)
        if found is None and not surely:
            raise Retry(_lacked_once(what))
        return found

    def _checked(self, machine: Machine, reference: Reference, action: str) -> Mapping[str, Any]:
        """Raise ``Refused`` for a reference to another machine or action: it must not reach Azure.

        Which VM is meant is read off the machine, not off the reference.
        """
        if (reference.provider, reference.action) != (NAME, action) or action not in self.actions:
            raise Refused(f"the reference of {reference.provider} {reference.action} is not one of {action}")
        if reference.data.get("machine") != machine.id:
            raise Refused(f"the reference is one of {reference.data.get('machine')}, not of {machine}")
        data = {**reference.data, **machine.route}
        if action == Step.REPLACE:
            needed = {"capacity": int, "pool" if "aks" in machine.route else "scale_set": str}
            if wrong := [key for key, kind in needed.items() if not isinstance(data.get(key), kind)]:
                raise Refused(f"the reference of {machine} lacks its {wrong[0]}")
        return data

    def _data(self, machine: Machine, found: Vm) -> dict[str, Any]:
        """What identifies the action later, also once the VM is gone. Plain values: it becomes JSON."""
        return {**machine.route, "machine": machine.id, "location": found.location}

    def _recent(self, use: str, machine: Machine, action: str, ask: Callable[[], Any]) -> Any:
        """An answer of a moment ago, or a new one."""
        key, now = (use, machine.id, action), self._clock.monotonic()
        if key in self._known and now - self._known[key][0] < ASKED_AGAIN[use]:
            return self._known[key][1]
        answer = ask()
        self._known[key] = (now, answer)
        return answer


def _lacked_once(what: str) -> str:
    return f"Azure's answer lacks {what}: asking again, for one answer may be an old one"


def _busy(machine: Machine, found: Vm) -> str:
    if outcome.stands_still(found.state):
        return f"{named(machine.route)} is {found.state}: another operation is under way"
    return ""


def _adopted(machine: Machine, found: Vm) -> str:
    """A sentence if somebody else has begun to delete the VM."""
    return f"{named(machine.route)} is already being deleted" if found.state == "Deleting" else ""


def _group(machine: Machine, found: Vm) -> str:
    """The group of a machine, the same for all that may be done to it: limits count by it."""
    if "aks" in machine.route:
        return f"{machine.route['aks']}/{machine.route['pool']}".lower()
    return machine.group or group_of({**machine.route, **_set_of(found, machine)})


def _set_of(found: Vm, machine: Machine) -> dict[str, str]:
    """The scale set that a VM with a name says it is in."""
    if machine.route["kind"] != VM or not found.set_id:
        return {}
    group = found.set_id.lower().split("/")[3:5]
    if group != ["resourcegroups", machine.route["resource_group"].lower()]:
        return {}
    return {"scale_set": found.set_id.rpartition("/")[2]}
