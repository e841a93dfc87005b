"""What the agent reports: Events and metrics (``publish``), webhooks, HTTP endpoints (``http``), its own
view.

Nothing here decides. The agent imports all of it; the console imports ``notice`` and ``asked_by``.
"""
