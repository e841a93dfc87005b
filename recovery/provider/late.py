"""How long it may be between a call's ``start`` and its request: for every provider the same question.

A process may be stopped, or its machine suspended, while it waits for an answer: of a look at the machine, or
for a token. Others conclude meanwhile that the call was never sent (``Provider.call_timeout``), and act.
"""

from __future__ import annotations

from recovery.clock import Clock
from recovery.errors import Retry


def not_late(clock: Clock, begun: float, most: float, what: str, awaited: str) -> None:
    """Raise ``Retry`` if ``awaited`` took more than ``most`` seconds since the boottime ``begun``.

    Ask this right before the request, and count ``most`` in ``call_timeout``.
    """
    if clock.boottime() - begun > most:
        raise Retry(f"{what} was not sent: {awaited} took more than {most:g} s")
