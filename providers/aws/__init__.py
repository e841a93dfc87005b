"""AWS: Auto Scaling groups, Karpenter's instances, and CloudWatch. Importing this package imports no SDK."""

from __future__ import annotations

from providers.aws.asg import AwsProvider
from providers.aws.cloudwatch import CloudWatchMonitor, namespace_of
from providers.aws.session import AwsSession, Limits, region_of, require_sdk
from recovery.provider.monitor import Monitor
from recovery.provider.protocol import Provider, ProviderContext


def create(context: ProviderContext) -> Provider:
    """The provider ``aws``. Raises ``SettingsError`` if the AWS SDK is not installed."""
    require_sdk()
    return AwsProvider(AwsSession(context.clock), context.clock, context.environ)


def create_monitor(context: ProviderContext) -> Monitor:
    """CloudWatch. Raises ``SettingsError`` without an SDK or with a namespace that CloudWatch refuses."""
    require_sdk()
    session = AwsSession(context.clock, Limits(connect=2.0, read=2.0, attempts=1))
    return CloudWatchMonitor(
        session, context.clock, namespace_of(context.environ), region_of(context.environ)
    )
