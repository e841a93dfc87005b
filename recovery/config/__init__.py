"""Settings from the environment and the policy file, checked and turned into what the agent is given.

Others import ``settings`` (all of them, checked), ``environment`` and ``policy_file``; ``policy_*`` and
``yaml_lines`` are its parts. Imports decide, provider, catalog, units, model and errors; opens only files.
"""
