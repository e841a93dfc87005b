"""The provider ``baremetal`` where nobody but a person may reboot a machine. Those with a power extend it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from providers.baremetal.machine import NAME, identify
from recovery.errors import Refused
from recovery.model import ClusterDelete, Machine, NodeView, Poll, Preflight, Reference, Rung, Step

ASKED_LATELY = 300.0
"""Seconds. While it matters what is wrong with a machine's BMC, it is asked once a minute at least."""


class BareMetalProvider:
    """The provider ``baremetal``. It can identify a machine, and do nothing to it."""

    name = NAME
    actions: frozenset[Step] = frozenset()
    permissions: Mapping[str, frozenset[str]] = {"preflight": frozenset(), "poll": frozenset()}
    default_remedy: tuple[Rung, ...] = (Rung(Step.CORDON, timedelta(minutes=15)),)
    note = "BAREMETAL_POWER is none; set it to who may reboot a machine"
    call_timeout = 1.0  # there are no calls

    def identify(self, node: NodeView) -> Machine:
        """The machine with the Node's system UUID. Raises ``Refused`` for a cloud's, and without a UUID."""
        return identify(node)

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        """Always ``Refused``."""
        raise unable(machine, action)

    def start(
        self, machine: Machine, action: Step, token: str, reference: Reference
    ) -> ClusterDelete | Reference | None:
        """Always ``Refused``."""
        raise unable(machine, action)

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        """Always ``Refused``."""
        raise unable(machine, reference.action)


def unable(machine: Machine, action: str) -> Refused:
    """What is said of a step that nothing here can do."""
    return Refused(f"{machine} is bare metal: a person has to {action} it")
