"""Which systems leave marks on a Node, and how each is read."""

from __future__ import annotations

from recovery.signals import autopilot, aznhc, konduktor

_SYSTEMS = (autopilot, aznhc, konduktor)
MARKS = {each.SOURCE: each.read for each in _SYSTEMS}
"""What each system writes to a Node. Autopilot has a gauge as well, on a page of its pod."""
LABELS = frozenset(label for each in _SYSTEMS for label in each.LABELS)
"""The labels among those marks."""
