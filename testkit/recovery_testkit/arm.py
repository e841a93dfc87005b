"""A fake Azure Resource Manager: scale sets, virtual machines, AKS pools, and what may go wrong with them.

::

    with FakeArm() as arm:
        workers = arm.scale_set("workers", size=4)
        os.environ.update(arm.environ())
        arm.lose_answer()                       # carried out, and then the connection is cut
        ...
        assert len(arm.mutating()) == 1
        assert arm.whole_set_calls == 0

It speaks HTTP on the loopback interface, with Azure's own paths, and gives out tokens as App Service's
managed identity does. It has what an agent that recovers nodes can ask for, and answers 501 to the rest.
It has been compared with azure-cli's recordings of the real Azure, and with nothing else.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from recovery_testkit.arm_front import CLIENT_ID, Front
from recovery_testkit.arm_http import Answer, Request
from recovery_testkit.arm_state import (
    AKS,
    COMPUTE,
    EFFECTS,
    ArmState,
    Cluster,
    Hook,
    Instance,
    Operation,
    ScaleSet,
)

__all__ = ["CLIENT_ID", "SUBSCRIPTION", "Answer", "FakeArm", "Instance", "Operation", "Request"]

SUBSCRIPTION = "5b5c0de0-0000-4000-8000-000000000001"
_SKU = "Standard_ND96isr_H100_v5"


class FakeArm(Front):
    """What exists in this Azure, and what happens to it. Permissions are in ``Front``; the requests that were
    made, and faults for single requests, are in ``RequestLog``.

    ``now`` is the clock of everything (Unix time) but tokens: SDKs compare those with the real time.
    """

    def __init__(self, *, now: Callable[[], float] = time.time, operation_seconds: float = 0.2) -> None:
        super().__init__(ArmState(now, SUBSCRIPTION, operation_seconds))

    def start(self) -> FakeArm:
        self._start()
        return self

    def __enter__(self) -> FakeArm:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ------------------------------------------------------------ what there is

    def scale_set(
        self,
        name: str,
        *,
        size: int,
        orchestration: Literal["Uniform", "Flexible"] = "Uniform",
        resource_group: str = "nodes",
        location: str = "westus3",
        ephemeral: bool = False,
        sku: str = _SKU,
        overprovision: int = 0,
    ) -> str:
        """A scale set with ``size`` running instances. Returns its resource id.

        ``overprovision``: when it grows it makes so many more at first, and then deletes as many of the new
        ones, the oldest first ("Overprovisioning" in the design considerations of scale sets; which ones go
        is not documented).
        """
        with self._state.lock:
            path = self._state.new_id(resource_group, f"{COMPUTE}/virtualMachineScaleSets/{name}")
            new = ScaleSet(path, name, orchestration, location, sku, ephemeral, size, self._state.now())
            new.overprovision = overprovision
            self._state.scale_sets[path.lower()] = new
            for machine in [self._state.launch(new) for _ in range(size)]:
                self._boot(machine)
        self._state.tell()
        return path

    def vm(
        self,
        name: str,
        *,
        resource_group: str = "nodes",
        location: str = "westus3",
        ephemeral: bool = False,
        sku: str = _SKU,
    ) -> str:
        """A running virtual machine on its own. Returns its resource id."""
        vm_id, now = str(uuid.uuid4()), self._state.now()
        with self._state.lock:
            path = self._state.new_id(resource_group, f"{COMPUTE}/virtualMachines/{name}")
            new = Instance(path, name, "", name, location, sku, "", ephemeral, now, vm_id)
            self._boot(self._state.add(new))
        self._state.tell()
        return path

    def managed_cluster(
        self,
        name: str,
        *,
        pools: Mapping[str, str],
        resource_group: str = "clusters",
        location: str = "westus3",
        autoscaler: bool = False,
    ) -> str:
        """An AKS cluster with scale sets behind its pools. Returns its resource id."""
        with self._state.lock:
            path = self._state.new_id(resource_group, f"{AKS}/managedClusters/{name}")
            self._state.clusters[path.lower()] = Cluster(path, name, location, dict(pools), autoscaler)
        return path

    def instances(self, scale_set: str = "") -> tuple[Instance, ...]:
        """The machines of a scale set in the order of their ids; all machines, without one."""
        self._state.settle()
        with self._state.lock:
            found = self._state.members(scale_set) if scale_set else self._state.instances.values()
            return tuple(found)

    def instance(self, resource_id: str) -> Instance:
        """A machine as it is now. KeyError if it has gone."""
        self._state.settle()
        with self._state.lock:
            return self._state.instances[resource_id.lower()]

    def capacity(self, scale_set: str) -> int:
        """How many instances the scale set wants."""
        return self._state.scale_sets[scale_set.lower()].capacity

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All that were accepted, in their order."""
        self._state.settle()
        with self._state.lock:
            return tuple(replace(o) for o in self._state.operations.values())

    # ------------------------------------------------------------ what was asked

    @property
    def whole_set_calls(self) -> int:
        """How many calls acted on every instance of a scale set at once."""
        return self._state.whole_set_calls

    @property
    def scaled_in(self) -> int:
        """How many instances were deleted because a capacity was lowered."""
        return self._state.scaled_in

    # ------------------------------------------------------------ how long operations take, and how they end

    @property
    def operation_seconds(self) -> float:
        """How long an operation takes from being accepted to its end."""
        return self._state.operation_seconds

    @operation_seconds.setter
    def operation_seconds(self, seconds: float) -> None:
        self._state.operation_seconds = seconds

    def hold(self) -> None:
        """An operation accepted from now on does not end before ``release``, ``finish`` or ``fail``."""
        self._state.held = True

    def release(self) -> None:
        """End what is held, and hold no more."""
        self._state.held = False
        self.finish()

    def finish(self, operation: str = "") -> None:
        """Carry out what is under way, or one operation, now. It returns when the hooks are called."""
        self._end(operation, None)

    def fail(self, code: str, message: str = "It failed.", operation: str = "") -> None:
        """Let what is under way, or one operation, fail now."""
        self._end(operation, (code, message))

    def _end(self, wanted: str, failure: tuple[str, str] | None) -> None:
        with self._state.lock:
            for operation in self._state.operations.values():
                if operation.ended is None and wanted in ("", operation.id):
                    operation.failure = failure or operation.failure
                    self._state.end(operation)
        self._state.tell()

    def show_capacity_late(self, late: bool = True) -> None:
        """A larger capacity shows once its operation has ended, and not from its acceptance on."""
        self._state.capacity_shows_late = late

    def late(self, seconds: float) -> None:
        """The next operation is accepted, and takes so many seconds."""
        self._state.next_late.append(seconds)

    def fail_next(self, code: str, message: str = "It failed.", *, carried_out: bool = False) -> None:
        """The next operation is accepted and ends as Failed. It has no effect, unless it is ``carried_out``:
        then something in the machine has failed, such as an extension."""
        self._state.next_failure.append((code, message, carried_out))

    def hollow_next(self) -> None:
        """The next operation is accepted and ends as Succeeded. It has no effect."""
        self._state.next_hollow += 1

    def forget_operations(self) -> None:
        """ARM knows none of the ended operations any more: their status is a 404."""
        self._state.settle()
        with self._state.lock:
            for operation in [o for o in self._state.operations.values() if o.ended is not None]:
                del self._state.operations[operation.id]

    # ------------------------------------------------------------ what Azure or somebody else does unasked

    def reboot(self, resource_id: str) -> None:
        """The machine boots without a request to this Azure."""
        self._change(resource_id, EFFECTS["restart"])

    def put(self, resource_id: str, **fields: Any) -> None:
        """Change fields of a machine: ``power``, ``provisioning``, ``host`` and the rest of ``Instance``."""
        self._change(resource_id, lambda machine: replace(machine, **fields))

    def remove(self, resource_id: str) -> None:
        """The machine is gone, at once; the capacity of its scale set sinks."""
        with self._state.lock:
            self._state.remove(resource_id.lower())
        self._state.tell()

    def remove_set(self, scale_set: str) -> None:
        """The scale set is gone, at once, with all its machines."""
        for machine in self.instances(scale_set):
            self.remove(machine.id)
        with self._state.lock:
            del self._state.scale_sets[scale_set.lower()]
        self._state.tell()

    def scale(self, scale_set: str, capacity: int) -> tuple[str, ...]:
        """Somebody raises the capacity; the new instances run at once. Returns their ids."""
        with self._state.lock:
            found = self._state.scale_sets[scale_set.lower()]
            assert capacity >= found.capacity, "to take one away, use remove"
            new = [self._state.launch(found) for _ in range(capacity - found.capacity)]
            found.capacity, found.version = capacity, found.version + 1
            for machine in new:
                self._boot(machine)
        self._state.tell()
        return tuple(machine.id for machine in new)

    def _boot(self, machine: Instance) -> None:
        self._state.change(
            machine.id.lower(), lambda m: EFFECTS["create"](replace(m, provisioning="Succeeded"))
        )

    def _change(self, resource_id: str, effect: Callable[[Instance], Instance]) -> None:
        self._state.settle()
        with self._state.lock:
            self._state.change(resource_id.lower(), effect)
        self._state.tell()

    def on_boot(self, hook: Hook) -> None:
        """Call ``hook(resource id, instance)`` at each boot, a new machine's first included.

        Hooks are called outside the lock, one at a time, in the order of what happened: on the server's own
        thread, or on that of a call like ``finish``, which waits for them.
        """
        self._state.hooks["boot"].append(hook)

    def on_create(self, hook: Hook) -> None:
        """When a machine comes into being; it boots later."""
        self._state.hooks["create"].append(hook)

    def on_delete(self, hook: Hook) -> None:
        """When a machine is gone."""
        self._state.hooks["delete"].append(hook)
