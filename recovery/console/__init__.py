"""The commands of people: ``status``, ``explain``, ``pause``, ``resume``, ``release``, ``doctor``.

They act with the caller's own Kubernetes credentials, and say in one sentence on standard error what went
wrong. Each module has one command; ``desk`` asks the API server, ``output`` prints.
"""
