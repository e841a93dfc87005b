"""Asks a Loki server for the lines of some time: once, with a deadline and a bound in size."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from recovery.errors import NoAnswer, Unreadable
from recovery.signals import server_http
from recovery.signals.server_http import MAX_BYTES, TIMEOUT

if TYPE_CHECKING:
    from requests import Response, Session

PATH = "/loki/api/v1/query_range"


class LokiClient:
    """Asks the server at ``url``. ``tenant``: whose lines, where the server has several tenants; "" for none.
    ``token_file``, ``ca_file``: see ``server_http``. One thread at a time."""

    def __init__(
        self, url: str, token_file: str = "", ca_file: str = "", tenant: str = "", timeout: float = TIMEOUT
    ) -> None:
        self._url = url.rstrip("/") + PATH
        self._token_file = token_file
        self._ca_file = ca_file
        self._tenant = tenant
        self._timeout = timeout
        self._session: Session | None = None
        self._body = b""

    def ask(self, query: str, start: int, end: int, limit: int) -> Any:
        """The streams with the first ``limit`` lines from ``start`` on and before ``end`` (nanoseconds).

        Raises ``Unreadable``, nothing else.
        """
        headers = server_http.headers(self._token_file, "LOKI_TOKEN_FILE")
        if self._tenant:
            headers["X-Scope-OrgID"] = self._tenant
        params = {
            "query": query,
            "start": str(start),
            "end": str(end),
            "limit": str(limit),
            "direction": "forward",
        }
        session = self._session = self._session or server_http.session(self._ca_file, self._keep)
        try:
            response = session.get(self._url, params=params, headers=headers, timeout=self._timeout)
        except OSError as error:  # those of requests are such, too
            raise NoAnswer(server_http.said(error)) from None
        body, self._body = self._body, b""
        if response.status_code != 200:
            # Loki's refusals are plain text; those of a gateway before it may be a page.
            why = server_http.said_in(body) or body[: server_http.LONGEST_WORD].decode("utf-8", "replace")
            said = "".join(c if c.isprintable() else " " for c in why).strip()
            raise Unreadable(server_http.refusal(response.status_code, said))
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise Unreadable("the answer is not Loki's JSON") from None
        return _result(answer)

    def _keep(self, response: Response, began: float) -> None:
        left = self._timeout - (time.monotonic() - began)
        self._body = server_http.body(response, left, MAX_BYTES)
        response._content = b""


def _result(answer: Any) -> Any:
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise Unreadable("the answer is no success")
    if word := server_http.warned_of(answer):
        raise Unreadable(word)
    data = answer.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "streams":
        raise Unreadable("the answer has no streams of lines")
    return data.get("result")
