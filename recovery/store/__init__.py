"""What must survive an agent, as objects of the API server: ``record``, ``gate``, ``lease`` and
``sightings``.

Records and the gate are decoded strictly (``codec``, ``record_codec``) and written by compare-and-swap.
``compact`` and ``room`` keep them small enough; ``upgrade`` completes older records. Others import the first
four, and ``record_codec``.
"""
