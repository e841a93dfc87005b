"""What ``doctor`` finds of BMCs: where they are, by whose credentials they are asked, what one says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from providers.baremetal.inventory import Inventory
from providers.baremetal.machine import NAME
from recovery.errors import Refused, Retry, SettingsError
from recovery.model import Machine, Preflight
from recovery.provider.protocol import Finding


def told_of(inventory: Inventory, needed: bool | None) -> Iterator[Finding]:
    """Where the BMCs are. ``needed``: what it is where nothing says so."""
    try:
        count = len(inventory.entries())
    except SettingsError as error:
        yield from (Finding(NAME, False, mistake, "mend BMC_INVENTORY") for mistake in error.mistakes)
        return
    ok: bool | None = True
    told = f"machines in {inventory.path}: {count}"
    if not inventory.path and inventory.follows:
        told = "BMC_INVENTORY is not set, annotations may lead there"
    elif not inventory.path:
        told = "BMC_INVENTORY is not set, and BMC_NETWORKS names no network for annotations"
        ok = needed
    yield Finding(NAME, ok, f"power by Redfish; {told}", "" if ok else "set BMC_INVENTORY")


def unmounted(inventory: Inventory, missing: bool | None) -> Iterator[Finding]:
    """Each Secret that the inventory names and that is not there. ``missing``: what that is."""
    for bmc in {entry.bmc.credentials: entry.bmc for entry in inventory.entries()}.values():
        try:
            inventory.credentials_for(bmc)
        except (Refused, Retry) as error:
            yield Finding(NAME, missing, error.reason, "make that Secret in this namespace, and mount it")


def of_a_node(
    inventory: Inventory, machine: Machine, own: bool, look: Callable[[Machine], Preflight]
) -> Finding:
    """Whether its BMC would be asked for a reboot now, by a look at it."""
    broken = False if own else None
    elsewhere = "see docs/baremetal.md" if own else "run doctor in the agent's pod, with its credentials"
    try:
        inventory.credentials_for(inventory.find(machine))
    except (Refused, Retry) as error:
        return Finding(NAME, broken, error.reason, elsewhere)
    try:
        ready = look(machine)
    except Retry as error:
        return Finding(NAME, None, error.reason, "look at the BMC, and at the network that leads to it")
    except Refused as error:
        return Finding(NAME, broken, error.reason, elsewhere)
    data, node = ready.reference.data, machine.route.get("node")
    told = f"the BMC of {node} takes the credentials and states the UUID of the machine, which is "
    told += f"{data['power'] or 'there'}; its reboot would be {data['reset']}"
    return Finding(NAME, True, told, "; ".join(ready.notes))
