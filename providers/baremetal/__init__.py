"""Bare metal. By default nobody but a person can repair a machine: the node is cordoned and handed over.

BAREMETAL_POWER names who may reboot one: its BMC (``redfish``), or a controller that is there already
(``kured``, ``metal3``). Only that one's module is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from importlib import import_module

from providers.baremetal.machine import NAME, identify
from recovery.errors import Refused, SettingsError
from recovery.model import ClusterDelete, Machine, NodeView, Poll, Preflight, Reference, Rung, Step
from recovery.provider.protocol import Provider, ProviderContext

NONE = "none"
POWERS = (NONE, "redfish", "kured", "metal3")


class BareMetalProvider:
    """The provider ``baremetal``. It can identify a machine, and do nothing to it."""

    name = NAME
    actions: frozenset[Step] = frozenset()
    permissions: Mapping[str, frozenset[str]] = {"preflight": frozenset(), "poll": frozenset()}
    default_remedy: tuple[Rung, ...] = (Rung(Step.CORDON, timedelta(minutes=15)),)
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


def power_of(environ: Mapping[str, str]) -> str:
    """BAREMETAL_POWER. Raises ``SettingsError``."""
    power = environ.get("BAREMETAL_POWER") or NONE
    if power not in POWERS:
        near = get_close_matches(power.lower(), POWERS, n=1, cutoff=0.6)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise SettingsError([f"BAREMETAL_POWER={power}: expected one of {', '.join(POWERS)}{hint}"])
    return power


def create(context: ProviderContext) -> Provider:
    """The provider ``baremetal``, with the power that is set. Raises ``SettingsError``."""
    power = power_of(context.environ)
    if power == NONE:
        return BareMetalProvider()
    made: Provider = import_module(f"{__name__}.{power}").make(context)
    return made
