"""The commands for people, each a module that ``cli`` imports: status, explain, pause, release, doctor.

They use the caller's own credentials. ``api`` and ``recoveries`` read the cluster, ``output`` prints.
May import every other package but ``cli`` and ``agent.program``; only ``cli`` imports from here.
"""
