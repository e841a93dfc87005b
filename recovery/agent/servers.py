"""The servers that are asked: those that the policy needs, where the settings name them."""

from __future__ import annotations

from recovery.config.settings import Settings
from recovery.signals import loki, prometheus
from recovery.signals.loki_http import LokiClient
from recovery.signals.prometheus_http import PrometheusClient


def prometheus_of(settings: Settings) -> PrometheusClient | None:
    policy = settings.policy
    asked = policy.source(prometheus.SOURCE) is not None or policy.limits.goes_by_alerts
    if settings.prometheus_url is None or not asked:
        return None
    return PrometheusClient(
        settings.prometheus_url, settings.prometheus_token_file, settings.prometheus_ca_file
    )


def loki_of(settings: Settings) -> LokiClient | None:
    if settings.loki_url is None or settings.policy.source(loki.SOURCE) is None:
        return None
    return LokiClient(
        settings.loki_url, settings.loki_token_file, settings.loki_ca_file, settings.loki_tenant
    )
