"""``node-recovery doctor``: read-only checks of what recovery needs, each a module that yields findings.

``command`` lists the checks, ``runner`` runs them within their time, ``context`` hands facts from one to the
next, ``printer`` prints. ``cli`` imports ``command`` and nothing else from here.
"""
