"""The agent. ``cli`` is the way in; each folder's own lines say what lives there and what it may import.

``model`` (the vocabulary), ``errors`` (the whole tree), ``units`` and ``clock`` are for all. ``agent`` asks
``decide``, which is pure, and does what it answers with what ``store``, ``kube`` and ``provider`` can do.
"""
