"""The sources of signals about a node: one module or a few for each. What is read becomes a ``Reading``.

``npd`` is node-problem-detector's page: ``scrape`` reads it, ``page`` parses it, ``tracker`` follows it over
time (``memory``, ``compare``). The Node itself is read for ``conditions``, ``kubelet``, ``marks``
(``systems``) and ``device_counts``; a pod's metrics (``pod_page``) for ``dcgm`` and ``autopilot_gauge``. In
fleet mode there are ``prometheus``, ``loki``, ``black_hole`` and ``never_joined``, too. ``dcgm_witness`` and
``neuron_sysfs`` are second witnesses. Most are pure: the agent does the reading.
"""
