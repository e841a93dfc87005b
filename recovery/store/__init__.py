"""What must survive an agent, as objects of the API server: ``record``, ``gate`` and ``lease``.

Others import these three, and ``record_codec``. Records and the gate are decoded strictly (``codec``) and
written by compare-and-swap; ``upgrade`` completes older records. Imports decide's values, model, units,
errors and clock.
"""
