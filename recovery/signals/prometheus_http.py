"""Asks a Prometheus server, by prometheus-api-client, which is imported when the first question is asked.

By itself that waits for ever, asks again after errors, follows redirects with the token, and drops what the
server says of its own answer: warnings, and that it is partial. Here each question is asked once, with a
deadline and a bound in size, and an answer with any such word is none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from recovery.deadline import adapter_class
from recovery.errors import NoAnswer, Unreadable
from recovery.signals import server_http
from recovery.signals.prometheus_answer import OLDEST
from recovery.signals.server_http import MAX_BYTES, TIMEOUT

if TYPE_CHECKING:
    from prometheus_api_client import PrometheusConnect
    from requests import Response


_CALLED = {"vector": "instant vector", "matrix": "range of samples"}


class PrometheusClient:
    """Asks the server at ``url``. ``token_file``: a bearer token, read for each question, since it is
    rotated; "" for none. ``ca_file``: whom to trust; "" is the system's list. One thread at a time."""

    def __init__(self, url: str, token_file: str = "", ca_file: str = "", timeout: float = TIMEOUT) -> None:
        self._url = url.rstrip("/")
        self._token_file = token_file
        self._ca_file = ca_file
        self._timeout = timeout
        self._client: PrometheusConnect | None = None
        self._answer: Any = None

    def ask(self, query: str, at: float | None = None) -> list[Any]:
        """The series that ``query`` returns ``at`` this moment (by the server's clock), or now.

        Raises ``Unreadable``, nothing else.
        """
        params = {} if at is None else {"time": f"{at:.3f}"}
        return self._asked("vector", params, lambda client, more: client.custom_query(query, more))

    def ask_range(self, query: str, start: datetime, end: datetime, step: timedelta) -> list[Any]:
        """The series that ``query`` returned at each ``step`` from ``start`` to ``end``.

        Raises ``Unreadable``, nothing else.
        """
        every = f"{step.total_seconds():g}"

        def over(client: PrometheusConnect, more: dict[str, str]) -> Any:
            return client.custom_query_range(query, start, end, every, more)

        return self._asked("matrix", {}, over)

    def _asked(
        self, kind: str, params: dict[str, str], question: Callable[[PrometheusConnect, dict[str, str]], Any]
    ) -> list[Any]:
        """What ``question`` asks the client for, which has to be of this ``kind``."""
        from prometheus_api_client.exceptions import PrometheusApiClientException

        always = {"lookback_delta": f"{OLDEST.total_seconds():g}s", "timeout": f"{self._timeout:g}s"}
        self._answer = None
        try:
            client = self._client = self._client or self._made()
            client.headers = server_http.headers(self._token_file, "PROMETHEUS_TOKEN_FILE")
            result = question(client, {**always, **params})
        except PrometheusApiClientException:
            raise Unreadable(self._refusal()) from None
        except OSError as error:  # those of requests are such, too
            raise NoAnswer(server_http.said(error)) from None
        except (KeyError, TypeError, ValueError, RecursionError):
            raise Unreadable("the answer is not Prometheus' JSON") from None
        answer, self._answer = self._answer, None
        if word := _word(answer, kind):
            raise Unreadable(word)
        if not isinstance(result, list):
            raise Unreadable("the answer is no list of series")
        return result

    def _made(self) -> PrometheusConnect:
        from prometheus_api_client import PrometheusConnect

        session = server_http.session(self._ca_file, self._keep)
        made = PrometheusConnect(self._url, session=session, timeout=self._timeout)
        session.mount(made.url, adapter_class()())  # in place of its own, which asks again after errors
        return made

    def _keep(self, response: Response, began: float) -> None:
        """Read the body of ``response``, parse it once, and give it to the library so."""
        body = server_http.body(response, self._timeout - (time.monotonic() - began), MAX_BYTES)
        response._content = body
        self._answer = (response.status_code, body)
        if response.status_code == 200:
            parsed = self._answer = json.loads(body)
            answer: Callable[..., Any] = lambda **_: parsed  # noqa: E731
            response.json = answer  # type: ignore[method-assign]

    def _refusal(self) -> str:
        status, body = self._answer if isinstance(self._answer, tuple) else (0, b"")
        return server_http.refusal(status, server_http.said_in(body))


def _word(answer: Any, kind: str) -> str:
    """What the server says of its own answer; "" where nothing speaks against it."""
    if not isinstance(answer, dict) or answer.get("status") != "success":
        return "the answer is no success"
    if word := server_http.warned_of(answer):
        return word
    data = answer.get("data")
    if answer.get("isPartial") or (isinstance(data, dict) and data.get("isPartial")):
        return "the server says that its answer is partial"
    if not isinstance(data, dict) or data.get("resultType") != kind:
        return f"the answer is no {_CALLED[kind]}"
    return ""
