"""Can what was asked of Azure still come? What Azure has accepted it takes back never; it is waited for.

Azure shows an operation from its acceptance on: by its own status, and by the provisioning state of what it
works on. So a VM that is settled has no operation before it.
"""

from __future__ import annotations

from collections.abc import Callable

from providers.azure import aks
from providers.azure.machines import ENDED, Vm, named
from providers.azure.outcome import Data, operation
from providers.azure.session import AzureSession
from providers.azure.settings import Cluster
from recovery.errors import Refused
from recovery.model import Machine, Step

Look = Callable[[], Vm | None]
"""Looks at the VM. None: it is surely not there. Raises ``Retry`` or ``Refused``."""


def of_vm(session: AzureSession, machine: Machine, look: Look, data: Data, action: str) -> str:
    """What shows that ``action`` is not to come any more. Raises ``Retry`` or ``Refused``."""
    what = named(data)
    known = operation(session, data)
    found = look()
    if found is None or found.id != machine.id:
        return f"{what} is gone"
    verb = "deletion" if action == Step.REPLACE else action
    if known is not None and known.state not in ENDED:
        raise Refused(_waiting(f"Azure has accepted the {verb} of {what}, and has not ended it"))
    if found.state not in ENDED:
        raise Refused(_waiting(f"{what} is {found.state}"))
    ended = f", and the {verb} has {known.state.lower()}" if known is not None else ""
    return f"{what} is {found.state}{ended}: no operation is under way"


def of_aks(session: AzureSession, machine: Machine, look: Look, data: Data, cluster: Cluster) -> str:
    """What shows that AKS does not delete the machine any more. Raises ``Retry`` or ``Refused``."""
    name, pool_name = str(data["node"]), str(data["pool"])
    pool = aks.pool(session, cluster, pool_name)
    found = look()
    if found is None or found.id != machine.id:
        return f"machine {name} of pool {pool_name} is gone"
    if pool.state not in ENDED or found.state not in ENDED:
        raise Refused(_waiting(f"pool {pool_name} is {pool.state}, and the VM of {name} is {found.state}"))
    return f"pool {pool_name} is {pool.state}, and the VM of {name} is {found.state}: nothing is under way"


def _waiting(what: str) -> str:
    return (
        f"{what}; Azure takes nothing back that it has accepted: wait until it has ended, and release it then"
    )
