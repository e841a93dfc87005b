"""What is told to a cloud's own metric service, and what such a service is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class Metric:
    """One data point. ``at`` is timezone-aware; no dimensions is a metric of its own."""

    name: str
    value: float
    at: datetime
    dimensions: Mapping[str, str]


class Monitor(Protocol):
    """A cloud's metric service. Telling never blocks doing: every call is bounded in time (law 9)."""

    name: str

    def publish(self, metrics: Sequence[Metric]) -> None:
        """Send once. Raises ``Retry`` or ``Refused`` with a sentence."""
