"""Settings from the environment and the policy file, checked and turned into what the agent is given.

Others import ``settings`` (all of them, checked), ``environment`` and ``policy_file``; ``policy_*`` and
``yaml_lines`` are its parts. It opens files and nothing else.
"""
