"""An error that nobody expected ends no round: it is counted, and logged with its traceback."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from recovery.errors import NodeRecoveryError, Retry
from recovery.report.metrics import Metrics

log = logging.getLogger(__name__)

ASKED_AGAIN = timedelta(seconds=30)
"""How long a provider that failed on a bug is not asked again: each time there is a traceback in the log."""


def survived(metrics: Metrics, whose: str, then: str) -> None:
    """Tell of the bug that is being handled. ``whose``: its node or thread; ``then``: how that goes on."""
    metrics.errors.labels("bug").inc()
    log.exception("%s: a bug; %s", whose, then)


@contextmanager
def looking(survived: Callable[[str, str], None], node: str, provider: str) -> Iterator[None]:
    """A bug of ``provider`` in a look at the cloud is a look without an answer, as a cloud's 500 is.

    If it ended the cycle, nothing would be decided as long as it lasts: the deadline of the step would never
    come, and no person would get the fault (law 6).
    """
    try:
        yield
    except NodeRecoveryError:
        raise
    except Exception as error:
        survived(node, f"provider {provider} is asked again")
        why = f"provider {provider} failed on a bug, see the log ({type(error).__name__})"
        raise Retry(why, ASKED_AGAIN) from error
