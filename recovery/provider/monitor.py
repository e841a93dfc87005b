"""A data point, and the cloud's own metric service that it is sent to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class Metric:
    """One data point. ``at`` is timezone-aware. Without dimensions it is another metric than with some."""

    name: str
    value: float
    at: datetime
    dimensions: Mapping[str, str]


class Monitor(Protocol):
    """A cloud's metric service. Publishing never delays a recovery: every call is bounded in time (law 9)."""

    name: str

    def publish(self, metrics: Sequence[Metric]) -> None:
        """Send once. Raises ``Retry`` or ``Refused`` with a sentence."""
