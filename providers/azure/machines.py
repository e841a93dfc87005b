"""VMs and scale sets as Azure describes them, and the calls that change them: one VM at a time.

Everything goes through operations on one instance. Those on a scale set act on *every* instance where they
are given none (Azure/azure-cli#6388), so no call here names a scale set but for reading it and for its
capacity.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from providers.azure.errors import does_not_exist
from providers.azure.identity import NAME, UNIFORM, canonical, group_of
from providers.azure.session import AzureSession, all_of
from recovery.errors import Refused, Retry
from recovery.model import GroupMembers, Machine, Member, Step

READY = "Succeeded"
MADE = "Creating"
RUNS = "running"
POWER, PROVISIONING = "PowerState/", "ProvisioningState/"
ENDED = frozenset({READY, "Failed", "Canceled"})
"""The provisioning states in which nothing is under way ("Provisioning states", the Resource Manager
documentation). Any other is Azure at work: AKS alone has Scaling, Upgrading, Starting and more."""
Route = Mapping[str, str]
Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Vm:
    """One VM. ``state`` is its provisioning state: Succeeded, Updating, Deleting, Failed, Creating.

    ``since``: from when it is in that state, as Azure writes it; "" where that was not asked, or is not said.
    ``why``: the code of what it is Failed by, likewise.
    """

    id: str  # canonical
    name: str
    state: str
    location: str = ""
    set_id: str = ""
    ephemeral: bool = False
    created: datetime | None = None
    since: str = ""
    why: str = ""

    @property
    def settled(self) -> bool:
        return self.state == READY

    @property
    def there(self) -> bool:
        """Nothing is under way with it. One that is Failed is there, too, if it runs: an extension that fails
        is enough, and Azure makes no other in its place."""
        return self.state in ENDED


@dataclass(frozen=True)
class ScaleSet:
    """A scale set. ``capacity`` is how many VMs it wants.

    ``overprovision``: when it grows it makes more at first, and deletes some of them again once enough have
    been provisioned ("Design considerations for scale sets", Overprovisioning). Which ones is not said.
    """

    name: str
    capacity: int
    sku: tuple[str, str]  # name, tier
    state: str
    flexible: bool
    etag: str = ""
    overprovision: bool = False

    @property
    def under_way(self) -> bool:
        """Whether Azure is at work on it: a write shows late, and another one would be the next in line."""
        return self.state not in ENDED


def vm(session: AzureSession, route: Route, *, since: bool = False) -> Vm | None:
    """The VM of a route; None where Azure knows none. Raises ``Retry`` or ``Refused``.

    An answer without a unique ID does not say which VM it is about: neither the same one nor another. One
    without a state does not say whether something is under way.
    ``since``: ask from when it is in its state, too, which takes Azure a look at the VM's host.
    """
    more = {"expand": "instanceView"} if since else {}
    found = named_or_not(session, route, **more)
    if found is not None and not found.id:
        raise Retry(f"Azure's answer about {named(route)} has no unique ID: which VM that is is not known")
    if found is not None and not found.state:
        raise Retry(f"Azure's answer about {named(route)} does not say in which state it is")
    return found


def named_or_not(session: AzureSession, route: Route, **more: str) -> Vm | None:
    """As ``vm``, also without a unique ID: of one that is being made."""
    found: Vm | None = _asked(session, route, _vm, **more)
    return found


def power(session: AzureSession, route: Route) -> tuple[str, str]:
    """The ID of the VM of a route, and its power state: running, stopping, stopped, deallocated and others
    ("States and billing of Azure Virtual Machines"); "" where Azure does not say. One answer has both.

    Raises ``Retry`` or ``Refused``.
    """
    found: tuple[str, str] | None = _asked(session, route, _power, expand="instanceView")
    return found or ("", "")


def has_machine(session: AzureSession, route: Route, vm: Vm) -> bool:
    """Whether nothing is under way with ``vm``, which is that of the route, and it got a machine.

    Of a VM that is Failed its power is asked: a failing extension is enough for that, and so is want of room.
    """
    if vm.settled or not vm.there:
        return vm.settled
    return power(session, route)[1] == RUNS


def with_machine(session: AzureSession, route: Route, of: Sequence[Vm]) -> list[Vm]:
    """Those of these VMs of the route's scale set that ``has_machine`` is true of, in the same order.

    All that are Failed are asked about by one list: an extension may fail on each machine of a large set, and
    a VM may be read 12 times a minute, by whoever waits ("Compute throttling limits").
    """
    run: set[tuple[str, str]] = set()
    if any(vm.there and not vm.settled for vm in of):
        found = _list(session, route, lambda x: (_vm(x), _power(x)[1]), expand="instanceView")
        run = {(vm.name, vm.id) for vm, power in found if vm.there and power == RUNS}
    return [vm for vm in of if vm.settled or (vm.there and (vm.name, vm.id) in run)]


def _power(found: Any) -> tuple[str, str]:
    states = [code.removeprefix(POWER) for code, _ in _statuses(found) if code.startswith(POWER)]
    return canonical(str(_under(found, "vm_id") or "")), states[0] if len(states) == 1 else ""


def _since(found: Any) -> str:
    times = [at for code, at in _statuses(found) if code.startswith(PROVISIONING)]
    return times[0].isoformat() if len(times) == 1 and isinstance(times[0], datetime) else ""


def _why(found: Any) -> str:
    """``ProvisioningState/failed/VMExtensionProvisioningError`` names it."""
    codes = [code.split("/", 2) for code, _ in _statuses(found) if code.startswith(PROVISIONING)]
    return codes[0][2] if len(codes) == 1 and len(codes[0]) == 3 else ""


def _statuses(found: Any) -> list[tuple[str, Any]]:
    """Code and time of each status in the instance view; none without one."""
    statuses = getattr(_under(found, "instance_view"), "statuses", None) or ()
    return [(str(getattr(x, "code", "") or ""), getattr(x, "time", None)) for x in statuses]


def _asked(session: AzureSession, route: Route, read: Callable[[Any], Any], **more: str) -> Any:
    """What ``read`` makes of Azure's answer; None where Azure knows no VM. Errors as those of ``vm``.

    An answer about another resource, or about none, is no answer: it would show that the VM is gone.
    """

    def ask(client: Any) -> tuple[str, Any] | None:
        of_kind = (
            client.virtual_machine_scale_set_vms if route["kind"] == UNIFORM else client.virtual_machines
        )
        try:
            found = of_kind.get(*where(route), **more)
            return str(getattr(found, "id", "") or ""), read(found)
        except Exception as error:
            if does_not_exist(error):
                return None
            raise

    answer: tuple[str, Any] | None = session.read(route["subscription"], f"a look at {named(route)}", ask)
    if answer is None:
        return None
    about, told = answer
    if about.lower() != path_of(route).lower():  # Azure writes the letters as it likes
        raise Retry(f"Azure's answer about {named(route)} is about another resource, or says of none")
    return told


def members(session: AzureSession, route: Route) -> list[Vm]:
    """All VMs of the route's scale set, oldest first."""
    found = _list(session, route, _vm)
    return sorted(found, key=lambda x: (x.created or datetime.max.replace(tzinfo=UTC), x.name))


def _list(session: AzureSession, route: Route, read: Callable[[Any], Seen], **more: str) -> list[Seen]:
    """What ``read`` makes of each VM of the route's scale set."""

    def ask(client: Any) -> Any:
        group = route["resource_group"]
        if route["kind"] == UNIFORM:
            listed = client.virtual_machine_scale_set_vms.list(group, route["scale_set"], **more)
        else:
            only = f"'virtualMachineScaleSet/id' eq '{set_id(route)}'"
            listed = client.virtual_machines.list(group, filter=only, **more)
        return [read(x) for x in all_of(listed)]

    found: list[Seen] = session.read(route["subscription"], f"the list of {route['scale_set']}", ask)
    return found


def listed(session: AzureSession, route: Route, now: datetime) -> GroupMembers | None:
    """All VMs of the route's Uniform scale set, with what they are at, by Azure's own clock; None where Azure
    knows no such set. One that is not answered for says so itself: other sets may be in another resource
    group, with rights of its own."""
    group, at = group_of(route), Moment()

    def ask(client: Any) -> list[Member] | None:
        of_set = client.virtual_machine_scale_set_vms
        try:
            found = of_set.list(
                route["resource_group"], route["scale_set"], expand="instanceView", raw_response_hook=at
            )
            return [_member(route, group, x) for x in all_of(found)]
        except Exception as error:
            if does_not_exist(error):
                return None
            raise

    what = f"the list of {route['scale_set']}"
    try:
        members: list[Member] | None = session.read(route["subscription"], what, ask)
        if members is None and scale_set(session, route) is None:
            return None
    except (Retry, Refused) as error:
        return GroupMembers(group, now, unknown=error.reason)
    if members is None:
        return GroupMembers(group, now, unknown=f"{what} is not there, and the scale set is")
    if at.first is None:
        return GroupMembers(group, now, unknown=f"{what} does not say when it was given")
    return GroupMembers(group, at.first, tuple(members))


class Moment:
    """When Azure gave the first page of an answer, by its own clock."""

    def __init__(self) -> None:
        self.first: datetime | None = None

    def __call__(self, response: Any) -> None:
        if self.first is None:
            with contextlib.suppress(ValueError):
                at = parsedate_to_datetime(str(response.http_response.headers.get("Date")))
                self.first = at if at.tzinfo else at.replace(tzinfo=UTC)


def _member(route: Route, group: str, found: Any) -> Member:
    vm, (_, power) = _vm(found), _power(found)
    number = vm.name
    where = {**route, "instance": number}
    machine = Machine(NAME, vm.id, f"azure://{path_of(where)}", group, where)
    ours = vm.there and power == RUNS and bool(vm.id)
    state = vm.state if not vm.settled else power or "of no known power state"
    if ours and not vm.settled:
        state = f"{vm.state}, and {power}"
    return Member(machine, ours, state, vm.created, f"{route['scale_set']}_{number}")


def scale_set(session: AzureSession, route: Route) -> ScaleSet | None:
    """The route's scale set; None where Azure knows none. Raises ``Retry`` or ``Refused``."""
    what = f"a look at scale set {route['scale_set']}"

    def ask(client: Any) -> ScaleSet | None:
        try:
            found = _set(client.virtual_machine_scale_sets.get(route["resource_group"], route["scale_set"]))
        except Exception as error:
            if does_not_exist(error):
                return None
            raise
        if found.name.lower() != str(route["scale_set"]).lower():
            raise ValueError("it is about another scale set")
        return found

    found: ScaleSet | None = session.read(route["subscription"], what, ask)
    return found


def _set(found: Any) -> ScaleSet:
    flexible = str(_under(found, "orchestration_mode") or "").lower() == "flexible"
    more = _under(found, "overprovision")
    if not isinstance(capacity := getattr(found.sku, "capacity", None), int):
        raise ValueError("it does not say how many VMs it wants")
    return ScaleSet(
        name=str(found.name),
        capacity=capacity,
        sku=(str(found.sku.name or ""), str(found.sku.tier or "")),
        state=str(_under(found, "provisioning_state") or ""),
        flexible=flexible,
        etag=str(getattr(found, "etag", "") or ""),
        overprovision=bool(more) if more is not None else not flexible,  # Uniform ones do unless told not to
    )


def submit(session: AzureSession, route: Route, action: Step) -> str:
    """Ask for ``action`` on the one VM, once. Returns the operation's ID, or an empty string."""
    what = f"{action.value} of {named(route)}"
    verb = "delete" if action is Step.REPLACE else {Step.REBOOT: "restart"}.get(action, action.value)

    def ask(client: Any) -> Callable[..., Any]:
        kind = "virtual_machine_scale_set_vms" if route["kind"] == UNIFORM else "virtual_machines"
        begin = getattr(getattr(client, kind), f"begin_{verb}")
        return lambda **hook: begin(*where(route), **hook)

    return session.submit(route["subscription"], what, ask)


def set_capacity(session: AzureSession, route: Route, found: ScaleSet, capacity: int) -> str:
    """Have the scale set want ``capacity`` VMs, unless it was changed since it was read.

    Returns the operation's ID, or an empty string.

    Raises ``Retry`` or ``Refused``: it is set and not added to, so that a lost answer does no harm.
    """
    what = f"the capacity of scale set {found.name}, to {capacity}"
    body = {"sku": {"name": found.sku[0], "tier": found.sku[1], "capacity": capacity}}

    def ask(client: Any) -> Callable[..., Any]:
        begin = client.virtual_machine_scale_sets.begin_update
        return lambda **hook: begin(
            route["resource_group"], route["scale_set"], body, **unchanged(found.etag), **hook
        )

    return session.submit(route["subscription"], what, ask)


def unchanged(etag: str) -> dict[str, Any]:
    """Arguments for a write that fails if the object changed since it was read; none without an ETag."""
    if not etag:
        return {}
    from azure.core import MatchConditions

    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


# ---------------------------------------------------------------- paths and names


def where(route: Route) -> tuple[str, ...]:
    """Arguments that name the VM. Raises ``Refused`` for a route that names none: it must not reach Azure."""
    names = ("scale_set", "instance") if route["kind"] == UNIFORM else ("vm",)
    found = tuple(str(route.get(name, "")) for name in ("resource_group", *names))
    if not all(part.strip(".") for part in found) or (route["kind"] == UNIFORM and not found[-1].isdigit()):
        raise Refused(f"{'/'.join(found)} does not name one VM")
    return found


def set_id(route: Route) -> str:
    """The scale set's Resource Manager ID."""
    return f"{_compute(route)}/virtualMachineScaleSets/{route['scale_set']}"


def path_of(route: Route) -> str:
    """The VM's Resource Manager ID."""
    if route["kind"] == UNIFORM:
        return f"{set_id(route)}/virtualMachines/{route['instance']}"
    return f"{_compute(route)}/virtualMachines/{route['vm']}"


def _compute(route: Route) -> str:
    group = f"/subscriptions/{route['subscription']}/resourceGroups/{route['resource_group']}"
    return f"{group}/providers/Microsoft.Compute"


def named(route: Route) -> str:
    """The VM's name for sentences."""
    if route["kind"] == UNIFORM:
        return f"instance {route['instance']} of scale set {route['scale_set']}"
    return f"VM {route['vm']}"


def _vm(found: Any) -> Vm:
    disk = getattr(_under(found, "storage_profile"), "os_disk", None)
    local = getattr(getattr(disk, "diff_disk_settings", None), "option", None)
    owner, created = _under(found, "virtual_machine_scale_set"), _under(found, "time_created")
    return Vm(
        id=canonical(str(_under(found, "vm_id") or "")),
        name=str(getattr(found, "instance_id", "") or found.name or ""),
        state=str(_under(found, "provisioning_state") or ""),
        location=str(getattr(found, "location", "") or ""),
        set_id=str(getattr(owner, "id", "") or ""),
        ephemeral=bool(local),
        created=created if isinstance(created, datetime) and created.tzinfo else None,
        since=_since(found),
        why=_why(found),
    )


def _under(found: Any, name: str) -> Any:
    """A field where this version of the SDK has it: on the object, or on its properties."""
    value = getattr(found, name, None)
    return value if value is not None else getattr(getattr(found, "properties", None), name, None)
