"""Azure: scale sets, VMs, AKS, and Azure Monitor. Importing this package imports no SDK."""

from __future__ import annotations

from providers.azure.aks import resource_of
from providers.azure.monitor import AzureMonitor
from providers.azure.options import options_of
from providers.azure.session import AzureSession, checked_manager, require_sdk
from providers.azure.vmss import AzureProvider
from recovery.errors import SettingsError
from recovery.provider.monitor import Monitor
from recovery.provider.protocol import Provider, ProviderContext


def create(context: ProviderContext) -> Provider:
    """The provider ``azure``. Raises ``SettingsError`` without an SDK or with wrong settings."""
    require_sdk()
    mistakes: list[str] = []
    for check in (options_of, checked_manager):
        try:
            check(context.environ)
        except SettingsError as error:
            mistakes += error.mistakes
    if mistakes:
        raise SettingsError(mistakes)
    session = AzureSession(context.clock, context.environ)
    return AzureProvider(session, context.clock, options_of(context.environ))


def create_monitor(context: ProviderContext) -> Monitor:
    """Azure Monitor, about the resource AZURE_CLUSTER_ID in AZURE_REGION. Raises ``SettingsError``."""
    require_sdk()
    session = AzureSession(context.clock, context.environ)
    subject, region = resource_of(context.environ), context.environ.get("AZURE_REGION", "")
    return AzureMonitor(
        context.clock,
        lambda scope: session.token("the metrics for Azure Monitor", scope),
        lambda: (subject, region) if subject and region else None,
        context.environ.get("AZURE_MONITOR_ENDPOINT", ""),
    )
