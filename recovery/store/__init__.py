"""What must survive an agent, as objects of the API server: ``record``, ``gate`` and ``lease``.

Each is decoded strictly (``codec``) and swapped by compare-and-swap; ``upgrade`` reads older records. Others
import these three. Imports decide's values, model, units, errors and clock.
"""
