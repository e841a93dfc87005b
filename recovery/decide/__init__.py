"""The core, PURE: same situation, same decision. No clock, no I/O, no cloud.

``own_node.decide`` and ``orphan.conclude`` answer a ``situation`` with a ``decision``. ``needs`` says what to
read for it, ``assessment`` what it means. Others import these, and what changes values (``budget``,
``history``, ``marks``).
"""
