"""What the agent reports: Events and metrics (``publish``), HTTP endpoints (``http``), its own view as JSON.

Nothing here decides. The agent imports all of it, the console ``publish`` (Events) alone. May import decide,
provider (the monitors' protocol), units, model, errors and clock.
"""
