"""What should be done about a node now, and why? The core is PURE: no clock, no I/O, no cloud.

``own_node.decide`` (for the agent's own node) and ``orphan.conclude`` (for a node whose agent is gone) turn a
``Situation`` into a ``Decision``. ``needs`` says what to read for it, and ``assessment`` what it means.
Other folders import these, ``situation``, and what changes values (``budget``, ``history``, ``marks``).
This folder imports model, units, errors and catalog.
"""
