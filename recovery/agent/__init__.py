"""The shell. ``program`` puts it together, ``cycle`` is for its own node, ``peers`` for those of dead agents.

``observe`` and ``fetch`` read what the core needs; ``execute`` does its one effect (``submit``, ``evict``);
``reporter`` says so. Nothing is decided here. May import all folders but ``console``; ``cli`` and the console
import it.
"""
