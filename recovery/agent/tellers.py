"""Who is told of Events beside the API server, as the settings name them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from recovery.config.settings import Settings
from recovery.report.notice import Teller

if TYPE_CHECKING:
    from recovery.report.webhook import Webhook

log = logging.getLogger(__name__)


def tellers_of(settings: Settings) -> tuple[Teller, ...]:
    """The webhook, where there is one. A URL that is not there yet is logged, and nothing waits for it."""
    made = webhook_of(settings)
    if made is not None and (why := made.problem()):
        log.warning("webhook: %s", why)
    return (made,) if made is not None else ()


def webhook_of(settings: Settings) -> Webhook | None:
    if not settings.webhook_url_file:
        return None
    # Only where it is used: it keeps memory that no other sidecar needs.
    from recovery.report.webhook import Webhook

    return Webhook(
        settings.webhook_url_file,
        settings.webhook_format == "slack",
        settings.webhook_events,
        settings.cluster_name,
        settings.webhook_ca_file,
    )
