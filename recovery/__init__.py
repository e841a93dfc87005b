"""The agent. ``cli`` is the way in; each folder's own lines say what lives there.

Each folder imports only those below it. ``pyproject.toml`` has the layers, and ``make check`` enforces them.
``model`` (the vocabulary), ``errors`` (the whole tree), ``units`` and ``clock`` are for all. ``agent`` asks
``decide``, which is pure, and does what it answers with what ``store``, ``kube`` and ``provider`` can do.
"""
