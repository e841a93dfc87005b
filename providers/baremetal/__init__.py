"""Bare metal. By default nobody but a person can repair a machine: the node is cordoned and handed over.

BAREMETAL_POWER names who may reboot one: its BMC (``redfish``), or a controller that is there already
(``kured``, ``metal3``). Only that one's module is imported.

Every agent imports this package to read its ``settings``, so nothing else is imported here: the factory
imports what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.provider.protocol import Provider, ProviderContext


def create(context: ProviderContext) -> Provider:
    """The provider ``baremetal``, with the power that is set. Raises ``SettingsError``."""
    from providers.baremetal.base import BareMetalProvider
    from providers.baremetal.settings import NONE, POWER

    power = POWER.of(context.environ)
    if power == NONE:
        return BareMetalProvider()
    made: Provider = import_module(f"{__name__}.{power}").make(context)
    return made
