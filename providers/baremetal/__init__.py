"""Machines that nobody but a person can repair: the node is cordoned and handed over."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from recovery.errors import Refused
from recovery.model import ClusterDelete, Machine, NodeView, Poll, Preflight, Reference, Rung, Step
from recovery.provider import Provider, ProviderContext

NAME = "baremetal"
_CLOUDS = ("aws://", "azure://")
# What firmware gives out when nobody has set a UUID: every such machine would be the same one.
_PLACEHOLDERS = frozenset(
    {
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "03000200-0400-0500-0006-000700080009",
    }
)


class BareMetalProvider:
    """The provider ``baremetal``. It can identify a machine, and do nothing to it."""

    name = NAME
    actions: frozenset[Step] = frozenset()
    permissions: Mapping[str, frozenset[str]] = {"preflight": frozenset(), "poll": frozenset()}
    default_remedy: tuple[Rung, ...] = (Rung(Step.CORDON, timedelta(minutes=15)),)
    call_timeout = 1.0  # there are no calls

    def identify(self, node: NodeView) -> Machine:
        """The machine with the Node's system UUID. Raises ``Refused`` for a cloud's, and without a UUID."""
        if node.provider_id.startswith(_CLOUDS):
            raise Refused(f"node {node.name} has the providerID {node.provider_id!r}: it is not bare metal")
        uuid = node.system_uuid.strip().lower()
        if not uuid or uuid in _PLACEHOLDERS:
            raise Refused(
                f"node {node.name} has the system UUID {node.system_uuid!r}; expected was one of its own, "
                "by which the machine could be told from others"
            )
        return Machine(NAME, uuid, node.provider_id)

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        """Always ``Refused``."""
        raise _unable(machine, action)

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> ClusterDelete | None:
        """Always ``Refused``."""
        raise _unable(machine, action)

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        """Always ``Refused``."""
        raise _unable(machine, reference.action)


def _unable(machine: Machine, action: str) -> Refused:
    return Refused(f"{machine} is bare metal: a person has to {action} it")


def create(context: ProviderContext) -> Provider:
    """The provider ``baremetal``. It needs no settings."""
    return BareMetalProvider()
