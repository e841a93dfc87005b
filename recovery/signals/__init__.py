"""The sources of signals about a node. What is read of each becomes a ``Reading``; most of it is pure.

``npd`` (``page``, ``tracker``) reads node-problem-detector's page; ``conditions``, ``kubelet``, ``marks`` and
``device_counts`` the Node; ``dcgm`` and ``autopilot_gauge`` a pod's page (``pod_page``); in fleet mode there
are ``prometheus``, ``loki``, ``black_hole`` and ``never_joined``. Two modules are second witnesses.
"""
