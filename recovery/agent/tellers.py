"""Who is told of Events beside the API server, as the settings name them."""

from __future__ import annotations

import logging

from recovery.config.settings import Settings
from recovery.report.notice import Teller

log = logging.getLogger(__name__)


def tellers_of(settings: Settings) -> tuple[Teller, ...]:
    """The webhook, where there is one. A URL that is not there yet is logged, and nothing waits for it."""
    if not settings.webhook_url_file:
        return ()
    # Only where it is used: it keeps memory that no other sidecar needs.
    from recovery.report.webhook import Webhook

    made = Webhook(
        settings.webhook_url_file,
        settings.webhook_format == "slack",
        settings.webhook_events,
        settings.cluster_name,
        settings.webhook_ca_file,
    )
    if why := made.problem():
        log.warning("webhook: %s", why)
    return (made,)
