"""AKS's own way to be rid of a machine, and to have its pool want as many as before.

The Machines API removes a machine and puts none in its place ("Delete specific VMs", the AKS documentation),
and takes nothing off the node first. It works on the managed cluster, not on its locked node resource group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from providers.azure.errors import does_not_exist
from providers.azure.machines import unchanged
from providers.azure.session import AzureSession, all_of
from providers.azure.settings import Cluster

SERVICE = "containerservice"


@dataclass(frozen=True)
class Pool:
    """A node pool. ``count`` is how many machines it wants."""

    name: str
    count: int
    scaled: bool  # by the cluster's autoscaler
    state: str
    etag: str
    body: Any


def machine(session: AzureSession, cluster: Cluster, pool: str, name: str) -> str | None:
    """The resource ID of the VM behind a machine of a pool; None where AKS has no such machine."""

    def ask(client: Any) -> Any:
        try:
            found = client.machines.get(cluster.group, cluster.name, pool, name)
            return str(getattr(found.properties, "resource_id", "") or "")
        except Exception as error:
            if does_not_exist(error):
                return None
            raise

    what = f"a look at machine {name} of pool {pool}"
    found: str | None = session.read(cluster.subscription, what, ask, SERVICE)
    return found


def machines(session: AzureSession, cluster: Cluster, pool: str) -> dict[str, str]:
    """All machines of a pool: names, and the resource IDs of the VMs behind them as far as AKS says them."""

    def ask(client: Any) -> Any:
        listed = all_of(client.machines.list(cluster.group, cluster.name, pool))
        return {str(m.name): str(getattr(m.properties, "resource_id", "") or "") for m in listed}

    found: dict[str, str] = session.read(cluster.subscription, f"the machines of pool {pool}", ask, SERVICE)
    return found


def pool(session: AzureSession, cluster: Cluster, name: str) -> Pool:
    """A node pool of the cluster."""

    def ask(client: Any) -> Pool:
        return _pool(name, client.agent_pools.get(cluster.group, cluster.name, name))

    found: Pool = session.read(cluster.subscription, f"a look at pool {name}", ask, SERVICE)
    return found


def _pool(name: str, found: Any) -> Pool:
    if str(found.name).lower() != name.lower():
        raise ValueError("it is about another pool")
    inner = found.properties
    if not isinstance(count := getattr(inner, "count", None), int):
        raise ValueError("it does not say how many machines it wants")
    return Pool(
        name=name,
        count=count,
        scaled=bool(getattr(inner, "enable_auto_scaling", False)),
        state=str(getattr(inner, "provisioning_state", "") or ""),
        etag=str(getattr(inner, "e_tag", "") or getattr(found, "etag", "") or ""),
        body=found,
    )


def delete(session: AzureSession, cluster: Cluster, pool_name: str, name: str) -> str:
    """Ask AKS to delete one machine, once. Returns the operation's ID, or an empty string."""

    def ask(client: Any) -> Callable[..., Any]:
        body = {"machineNames": [name]}
        begin = client.agent_pools.begin_delete_machines
        return lambda **hook: begin(cluster.group, cluster.name, pool_name, body, **hook)

    what = f"the deletion of machine {name} of pool {pool_name}"
    return session.submit(cluster.subscription, what, ask, SERVICE)


def set_count(session: AzureSession, cluster: Cluster, found: Pool, count: int) -> str:
    """Have the pool want ``count`` machines, unless it was changed since it was read.

    Returns the operation's ID, or an empty string.
    """

    def ask(client: Any) -> Callable[..., Any]:
        found.body.properties.count = count
        begin = client.agent_pools.begin_create_or_update
        return lambda **hook: begin(
            cluster.group, cluster.name, found.name, found.body, **unchanged(found.etag), **hook
        )

    return session.submit(cluster.subscription, f"the count of pool {found.name}, to {count}", ask, SERVICE)
