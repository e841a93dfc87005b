"""Azure: scale sets, VMs, AKS, and Azure Monitor.

Every agent imports this package to read its ``settings``, so nothing else is imported here: each factory
imports what it needs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.provider.monitor import Monitor
    from recovery.provider.protocol import Provider, ProviderContext

log = logging.getLogger(__name__)


def create(context: ProviderContext) -> Provider:
    """The provider ``azure``. Raises ``SettingsError`` without an SDK or with wrong settings."""
    from providers.azure import settings
    from providers.azure.options import options_of
    from providers.azure.session import AzureSession, require_sdk
    from providers.azure.vmss import AzureProvider
    from recovery.provider.declaration import check_all

    require_sdk()
    check_all((settings.ALLOW, settings.AUTOSCALER, settings.CLUSTER_ID, settings.MANAGER), context.environ)
    session = AzureSession(context.clock, context.environ)
    return AzureProvider(session, context.clock, options_of(context.environ))


def create_monitor(context: ProviderContext) -> Monitor | None:
    """Azure Monitor, about the resource AZURE_CLUSTER_ID in AZURE_REGION; None without these two settings,
    which is no mistake: nothing is to be sent then, and nothing is undelivered. Raises ``SettingsError``."""
    from providers.azure import settings
    from providers.azure.monitor import AzureMonitor
    from providers.azure.session import AzureSession, require_sdk
    from recovery.provider.declaration import check_all

    require_sdk()
    check_all((settings.CLUSTER_ID, settings.REGION, settings.MANAGER, settings.MONITOR), context.environ)
    subject, region = settings.CLUSTER_ID.of(context.environ).id, settings.REGION.of(context.environ)
    if not (subject and region):
        log.info("no metrics are sent to Azure Monitor: AZURE_CLUSTER_ID and AZURE_REGION are not both set")
        return None
    session = AzureSession(context.clock, context.environ)
    return AzureMonitor(
        context.clock,
        lambda scope: session.token("the metrics for Azure Monitor", scope),
        lambda: (subject, region),
        settings.MONITOR.of(context.environ),
    )
