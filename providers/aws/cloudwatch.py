"""Metrics for CloudWatch.

Sources: the CloudWatch API reference, ``PutMetricData`` and ``MetricDatum``: at most 1,000 metrics of 30
dimensions each per request, no NaN or infinity, values within 2**360, timestamps from two weeks ago until
two hours ahead, names and values of at most 255 and 1,024 printable ASCII characters. ``settings`` checks the
namespace.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from providers.aws.session import AwsSession
from recovery.clock import Clock
from recovery.errors import Ambiguous, Refused, Retry
from recovery.provider.monitor import Metric

BATCH = 1000
DIMENSIONS = 30
OLDEST = timedelta(days=14)
FURTHEST = timedelta(hours=2)
_SLACK = timedelta(minutes=1)  # for latency and clock skew
_LARGEST = 2.0**360


class CloudWatchMonitor:
    """Publishes with one attempt and at most a few seconds per request, so that recovery is not held up."""

    name = "cloudwatch"

    def __init__(self, session: AwsSession, clock: Clock, namespace: str, region: str = "") -> None:
        self._session = session
        self._clock = clock
        self._namespace = namespace
        self.region = region

    def publish(self, metrics: Sequence[Metric]) -> None:
        """Send all, in requests of at most 1,000. Raises ``Retry`` or ``Refused`` at the first that fails.

        A request whose answer was lost may have been stored. It is ``Retry`` all the same: sending a data
        point twice changes neither a maximum nor an alarm.
        """
        data = [self._datum(metric) for metric in metrics]
        if data and not self.region:
            raise Refused("CloudWatch needs a region: set AWS_REGION")
        for batch in _batches(data):
            self._send(batch)

    def _send(self, batch: list[dict[str, Any]]) -> None:
        what = f"cloudwatch:PutMetricData in namespace {self._namespace}"
        try:
            self._session.submit(
                "cloudwatch",
                "PutMetricData",
                self.region,
                what,
                Namespace=self._namespace,
                MetricData=batch,
            )
        except Ambiguous as lost:
            raise Retry(lost.reason) from lost

    def _datum(self, metric: Metric) -> dict[str, Any]:
        if not math.isfinite(metric.value) or abs(metric.value) > _LARGEST:
            raise Refused(
                f"metric {metric.name} has the value {metric.value}, which CloudWatch does not take"
            )
        if not metric.name:
            raise Refused("a metric has no name")
        if len(metric.dimensions) > DIMENSIONS:
            raise Refused(f"metric {metric.name} has {len(metric.dimensions)} dimensions, not at most 30")
        return {
            "MetricName": _ascii(metric.name)[:255],
            "Value": float(metric.value),
            "Timestamp": self._within(metric.at),
            "StorageResolution": 60,
            "Dimensions": [
                # CloudWatch refuses an empty value
                {"Name": _ascii(name)[:255], "Value": (_ascii(value).strip() or "none")[:1024]}
                for name, value in sorted(metric.dimensions.items())
            ],
        }

    def _within(self, at: datetime) -> datetime:
        """``at``, moved into what CloudWatch accepts."""
        now = self._clock.now()
        return min(max(at, now - OLDEST + _SLACK), now + FURTHEST - _SLACK)


def _ascii(text: str) -> str:
    """``text`` without what CloudWatch refuses in names and values, and the whole request with it."""
    return "".join(c if " " <= c <= "~" else "?" for c in text)


def _batches(data: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(data), BATCH):
        yield data[start : start + BATCH]
