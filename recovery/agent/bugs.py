"""An error that nobody expected ends no round: it is counted, and logged with its traceback."""

from __future__ import annotations

import logging

from recovery.report.metrics import Metrics

log = logging.getLogger(__name__)


def survived(metrics: Metrics, whose: str, then: str) -> None:
    """Tell of the bug that is being handled. ``whose``: its node or thread; ``then``: how that goes on."""
    metrics.errors.labels("bug").inc()
    log.exception("%s: a bug; %s", whose, then)
