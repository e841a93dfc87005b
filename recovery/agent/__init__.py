"""The shell. ``program`` puts it together, ``cycle`` is for its own node, ``peers`` for those of dead agents.

``observe`` and ``fetch`` read what the core needs; ``execute`` does its one effect (``submit``, ``evict``);
``reporter`` says so. Nothing is decided here. ``fleet`` is the same for all nodes in one process.
"""
