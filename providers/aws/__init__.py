"""AWS: Auto Scaling groups, Karpenter's instances, and CloudWatch.

Every agent imports this package to read its ``settings``, so nothing else is imported here: each factory
imports what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.provider.monitor import Monitor
    from recovery.provider.protocol import Provider, ProviderContext


def create(context: ProviderContext) -> Provider:
    """The provider ``aws``. Raises ``SettingsError`` if the AWS SDK is not installed."""
    from providers.aws.asg import AwsProvider
    from providers.aws.session import AwsSession, require_sdk

    require_sdk()
    return AwsProvider(AwsSession(context.clock), context.clock, context.environ)


def create_monitor(context: ProviderContext) -> Monitor:
    """CloudWatch. Raises ``SettingsError`` without an SDK or with a wrong namespace."""
    from providers.aws.cloudwatch import CloudWatchMonitor
    from providers.aws.session import AwsSession, Limits, region_of, require_sdk
    from providers.aws.settings import NAMESPACE

    require_sdk()
    session = AwsSession(context.clock, Limits(connect=2.0, read=2.0, attempts=1))
    return CloudWatchMonitor(
        session, context.clock, NAMESPACE.of(context.environ), region_of(context.environ)
    )
