"""Who is told what the agent thinks of its node: whoever the API server lets make a token for asking it.

Whoever reaches the agent's port may read its metrics. Its own view names machines and faults, so it is for
those who may make a token in the agents' namespace. The token says that this node's agent is to be asked, and
nothing else: no API server takes it, and no other agent (decision 0025).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from recovery.errors import ApiError
from recovery.model import GROUP

log = logging.getLogger(__name__)

PATH = "/api/v1/explain"
"""With ``?node=NAME`` where one process looks after many."""
HEADER = "Noderecovery-Token"
"""The API server takes ``Authorization`` away from what it passes on to a pod."""
ACCOUNT = "default"
"""The account whose tokens are asked for: every namespace has it, and no right is bound to it here."""
TURN = 2.0
"""Seconds that a request waits while another's token is looked at."""
PAUSE = 0.25
"""Seconds after a wrong token until the next one is looked at: the API server is not asked for each guess."""


def audience(node: str) -> str:
    """Whom a token for asking the agent of ``node`` is made for."""
    return f"{GROUP}/explain/{node}"


class AskedBy:
    """Looks at the tokens that callers bring, one at a time. ``whose``: (token, audience) -> user name.

    ``node``: the only one that may be asked about; "" is each, by a token for that one.
    """

    def __init__(self, whose: Callable[[str, str], str], namespace: str, node: str) -> None:
        self._whose = whose
        self._node = node
        self._account = f"system:serviceaccount:{namespace}:{ACCOUNT}"
        self._one = threading.Lock()
        self._wait = threading.Event().wait

    def refused(self, token: str, node: str = "") -> str | None:
        """Why who brings ``token`` to ask about ``node`` is not answered; None if they are."""
        if not token:
            return "this is for those who bring a token for it, as node-recovery explain does"
        if not self._one.acquire(timeout=TURN):
            return "others are asking just now; ask again"
        try:
            return self._wrong(token, audience(self._node or node))
        finally:
            self._one.release()

    def _wrong(self, token: str, wanted: str) -> str | None:
        try:
            user = self._whose(token, wanted)
        except ApiError as error:
            log.warning("somebody asks for explain, and it cannot be found out who: %s", error)
            self._wait(PAUSE)
            return "whose token this is cannot be found out: the agent's log says why"
        if user == self._account:
            return None
        self._wait(PAUSE)
        return f"this token is not one of {self._account} for {wanted}"
