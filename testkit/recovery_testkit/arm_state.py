"""The state of the fake Azure: scale sets, machines, managed clusters, and the operations that run on them.

An accepted operation takes ``operation_seconds`` by the clock ``now``, or until a test ends it. What is due
is carried out at the next request, and while the server runs also by a thread. Until then the machine is as
it was, and its provisioning state shows that an operation is under way.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

COMPUTE = "Microsoft.Compute"
AKS = "Microsoft.ContainerService"
TRIM = "trim"
"""Azure's own deletion of the machines that a scale set made too many."""
_TICK = 0.02  # seconds between two looks for what is due

_hosts = itertools.count(1)


class ArmError(Exception):
    """An error answer: ``{"error": {"code": ..., "message": ...}}`` under an HTTP status."""

    def __init__(
        self, status: int, code: str, message: str, target: str = "", headers: Mapping[str, str] = {}
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status, self.headers = status, headers
        self.body = {"error": {"code": code, "message": message, **({"target": target} if target else {})}}


@dataclass(frozen=True)
class Instance:
    """One machine, from its creation to its end. What comes in its place has another ``vm_id``, even if it
    has its id. A copy: it does not change when the machine does."""

    id: str
    """Its resource id."""
    name: str
    instance_id: str
    """Of a Uniform scale set's instance, a decimal number. Else empty."""
    computer_name: str
    location: str
    size: str
    scale_set: str
    """The resource id of its scale set, or empty."""
    ephemeral: bool
    """Its OS disk is on its host."""
    created: float
    """Unix time."""
    vm_id: str
    boot_id: str = ""
    """The kernel's, new at each boot. Empty before the first."""
    boots: int = 0
    host: int = field(default_factory=lambda: next(_hosts))
    """The number of the physical host under it. No two machines share one."""
    disks: int = 1
    """How many OS disks it has had."""
    provisioning: str = "Creating"
    since: float = 0.0
    """Unix time from which it is in its provisioning state."""
    why: str = ""
    """Why it is Failed, as a code; its instance view shows it."""
    power: str = "starting"


@dataclass
class ScaleSet:
    id: str
    name: str
    orchestration: str
    location: str
    size: str
    ephemeral: bool
    capacity: int
    created: float
    version: int = 1
    overprovision: int = 0
    """How many more it makes at first when it grows, to delete as many again once enough are there."""

    @property
    def uniform(self) -> bool:
        return self.orchestration == "Uniform"


@dataclass(frozen=True)
class Cluster:
    id: str
    name: str
    location: str
    pools: Mapping[str, str]
    """The resource id of the scale set behind each pool, by the pool's name."""
    autoscaler: bool


@dataclass
class Operation:
    """One accepted change. ``due`` is None while it is held."""

    verb: str
    targets: Sequence[str]
    provider: str
    location: str
    owner: str
    """The scale set or agent pool whose provisioning state shows it. May be empty."""
    started: float
    due: float | None
    failure: tuple[str, str] | None = None
    hollow: bool = False
    carried_out: bool = False
    """Although it failed: what runs in the machine has."""
    ended: float | None = None
    capacity: int | None = None
    """What the capacity of ``owner`` is once it ends, where that shows late."""
    surplus: int = 0
    """How many of its targets are deleted again once it has ended."""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    signature: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def status(self) -> str:
        if self.ended is None:
            return "InProgress"
        return "Failed" if self.failure else "Succeeded"


Hook = Callable[[str, Instance], None]


def _boot(machine: Instance) -> Instance:
    return replace(machine, boot_id=str(uuid.uuid4()), boots=machine.boots + 1, power="running")


def _start(machine: Instance) -> Instance:
    if machine.power == "running":
        return machine
    return _boot(replace(machine, host=next(_hosts)) if machine.power == "deallocated" else machine)


EFFECTS: Mapping[str, Callable[[Instance], Instance]] = {
    "create": _boot,
    "restart": _boot,
    "reimage": lambda machine: _boot(replace(machine, disks=machine.disks + 1)),
    "reimageAll": lambda machine: _boot(replace(machine, disks=machine.disks + 1)),
    "redeploy": lambda machine: _boot(replace(machine, host=next(_hosts))),
    "start": _start,
    "powerOff": lambda machine: replace(machine, power="stopped"),
    "deallocate": lambda machine: replace(machine, power="deallocated"),
    "reapply": lambda machine: machine,
}
"""The effect of an operation on a machine. A reimage stays on the host; a redeploy leaves it."""


class ArmState:
    """All that exists. Callers hold ``lock``, except for ``settle``, ``tell``, ``tick`` and ``stop``."""

    def __init__(self, now: Callable[[], float], subscription: str, operation_seconds: float) -> None:
        self.now, self.subscription, self.operation_seconds = now, subscription, operation_seconds
        self.lock = threading.RLock()
        self.groups: set[str] = set()
        self.scale_sets: dict[str, ScaleSet] = {}
        self.instances: dict[str, Instance] = {}
        self.clusters: dict[str, Cluster] = {}
        self.operations: dict[str, Operation] = {}
        self.whole_set_calls = self.scaled_in = 0
        self.held = self.signatures_required = self.capacity_shows_late = False
        self.next_late: deque[float] = deque()
        self.next_failure: deque[tuple[str, str, bool]] = deque()
        self.next_hollow = 0
        self.hooks: dict[str, list[Hook]] = {"create": [], "boot": [], "delete": []}
        self._happened: deque[tuple[str, Instance]] = deque()
        self._telling = threading.RLock()
        self._begun = threading.Condition(self.lock)
        self._stopping = False

    # ------------------------------------------------------------ what there is

    def new_id(self, group: str, path: str) -> str:
        """The id of a resource that is about to be. What had it, and its machines, are gone."""
        self.groups.add(group.lower())
        found = f"/subscriptions/{self.subscription}/resourceGroups/{group}/providers/{path}"
        for key in [k for k, i in self.instances.items() if found.lower() in (k, i.scale_set.lower())]:
            self.remove(key)
        return found

    def members(self, scale_set: str) -> list[Instance]:
        """The instances of a scale set, those that are being deleted too, in the order of their ids."""
        found = (i for i in self.instances.values() if i.scale_set.lower() == scale_set.lower())
        return sorted(found, key=lambda i: (int(i.instance_id or 0), i.name))

    def running(self, *ids: str) -> Operation | None:
        """An operation that is not at its end, on one of these machines, scale sets or pools."""
        wanted = {i.lower() for i in ids}
        under_way = (o for o in self.operations.values() if o.ended is None)
        return next((o for o in under_way if wanted & {o.owner.lower(), *o.targets}), None)

    def launch(self, scale_set: ScaleSet) -> Instance:
        """A new machine that has not booted. Uniform takes the lowest free number."""
        taken = {i.instance_id for i in self.members(scale_set.id)}
        number = next(n for n in itertools.count() if str(n) not in taken)
        if scale_set.uniform:
            name, path = f"{scale_set.name}_{number}", f"{scale_set.id}/virtualMachines/{number}"
        else:
            name = f"{scale_set.name}_{uuid.uuid4().hex[:8]}"
            path = f"{scale_set.id.rsplit('/', 2)[0]}/virtualMachines/{name}"
        prefix = scale_set.name.lower()
        computer = f"{prefix}{_base36(number)}" if scale_set.uniform else name.replace("_", "-")
        return self.add(
            Instance(
                id=path,
                name=name,
                instance_id=str(number) if scale_set.uniform else "",
                computer_name=computer,
                location=scale_set.location,
                size=scale_set.size,
                scale_set=scale_set.id,
                ephemeral=scale_set.ephemeral,
                created=self.now(),
                vm_id=str(uuid.uuid4()),
            )
        )

    def add(self, machine: Instance) -> Instance:
        self.instances[machine.id.lower()] = machine
        self._happened.append(("create", machine))
        return machine

    # ------------------------------------------------------------ operations

    def begin(
        self, verb: str, targets: Iterable[str], location: str, owner: str = "", provider: str = COMPUTE
    ) -> Operation:
        """Accept a change of ``targets``. The capacity of a scale set whose machine goes drops at once."""
        now, keys = self.now(), tuple(t.lower() for t in targets)
        operation = Operation(verb, keys, provider, location, owner, now, due=None)
        if not self.held:
            operation.due = now + (self.next_late.popleft() if self.next_late else self.operation_seconds)
        if self.next_failure:
            code, message, operation.carried_out = self.next_failure.popleft()
            operation.failure = (code, message)
        elif self.next_hollow:
            self.next_hollow, operation.hollow = self.next_hollow - 1, True
        state = {"delete": "Deleting", "create": "Creating"}.get(verb, "Updating")
        for target in operation.targets:
            machine = self.instances[target]
            if verb != TRIM:  # those that are too many show nothing of it until they are gone
                self.instances[target] = replace(machine, provisioning=state, since=now)
            if verb == "delete":
                self.count(machine, -1)
        self.operations[operation.id] = operation
        self._begun.notify_all()
        return operation

    def count(self, machine: Instance, by: int) -> None:
        """Change the capacity of the machine's scale set, if it is in one."""
        if (scale_set := self.scale_sets.get(machine.scale_set.lower())) is not None:
            scale_set.capacity += by
            scale_set.version += 1

    def end(self, operation: Operation) -> None:
        """Carry it out, or let it fail."""
        operation.ended = self.now()
        for target in operation.targets:
            if operation.failure and operation.verb != TRIM:
                self._finish(target, "Failed", operation.failure[0])
                self.count(self.instances[target], +1 if operation.verb == "delete" else 0)
                if operation.carried_out:
                    self.change(target, EFFECTS[operation.verb])
            elif operation.hollow:
                self._finish(target, "Succeeded")
            elif operation.verb in ("delete", TRIM):
                self._happened.append(("delete", self.instances.pop(target)))
            else:
                self._finish(target, "Succeeded")
                self.change(target, EFFECTS[operation.verb])
        if not operation.failure and not operation.hollow:
            self._settle_capacity(operation)

    def _settle_capacity(self, operation: Operation) -> None:
        """A scale set that grew wants as many as it was told, and deletes the oldest of what is too many."""
        owner = self.scale_sets.get(operation.owner.lower())
        if owner is None:
            return
        if operation.capacity is not None:
            owner.capacity, owner.version = operation.capacity, owner.version + 1
        if operation.surplus:
            extra = operation.targets[: operation.surplus]
            self.begin(TRIM, extra, operation.location, operation.owner, operation.provider)

    def _finish(self, target: str, provisioning: str, why: str = "") -> None:
        machine, now = self.instances[target], self.now()
        self.instances[target] = replace(machine, provisioning=provisioning, since=now, why=why)

    def change(self, target: str, effect: Callable[[Instance], Instance]) -> None:
        """Apply ``effect`` to a machine. A boot is reported to the hooks."""
        before = self.instances[target]
        self.instances[target] = after = effect(before)
        if after.boots > before.boots:
            self._happened.append(("boot", after))

    def remove(self, target: str) -> None:
        """Take a machine away at once, also from the operation on it. The capacity of its scale set drops."""
        machine = self.instances.pop(target)
        if machine.provisioning != "Deleting":
            self.count(machine, -1)
        for operation in self.operations.values():
            if operation.ended is None:
                operation.targets = [t for t in operation.targets if t != target]
        self._happened.append(("delete", machine))

    # ------------------------------------------------------------ time

    def settle(self) -> None:
        """Carry out what is due. ``tell`` calls the hooks."""
        with self.lock:
            now = self.now()
            for operation in list(self.operations.values()):
                if operation.ended is None and operation.due is not None and operation.due <= now:
                    self.end(operation)

    def tell(self) -> None:
        """Call the hooks for what has happened, in its order, outside the lock."""
        with self._telling:
            while self._happened:
                what, machine = self._happened.popleft()
                for hook in self.hooks[what]:
                    hook(machine.id, machine)

    def tick(self) -> None:
        """``settle`` and ``tell`` until ``stop``. Waits while no operation has a time at which it ends."""
        while not self._stopping:
            with self._begun:
                timed = any(o.ended is None and o.due is not None for o in self.operations.values())
                if not self._happened:
                    self._begun.wait(_TICK if timed else None)
            self.settle()
            self.tell()

    def stop(self) -> None:
        """End ``tick``."""
        with self._begun:
            self._stopping = True
            self._begun.notify_all()


def _base36(number: int) -> str:
    """The end of a Uniform instance's computer name: six digits to the base of 36."""
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits.rjust(6, "0")
