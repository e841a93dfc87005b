"""Fault injection in front of a Kubernetes API: lost requests, lost answers, throttling, server errors.

`FaultyApi` is an API itself, so it stands between a client and a store, or under the HTTP front.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recovery_testkit.kubestatus import ApiError, Response
from recovery_testkit.kubestore import KubernetesApi, Query
from recovery_testkit.kubewatch import Watch


class NoAnswerError(ConnectionError):
    """The connection ended before an answer came. Whether the request was applied, the client cannot know."""


@dataclass(frozen=True)
class Asked:
    """A request as a fault's predicate sees it. A watch has the method `WATCH`."""

    method: str
    path: str
    query: Query
    body: Any = None
    content_type: str | None = None
    user_agent: str = ""


Predicate = Callable[[Asked], bool]
Effect = Callable[[Asked, Callable[[], Response]], Response]


def lost_request(asked: Asked, go: Callable[[], Response]) -> Response:
    """Effect: nothing was applied and nothing is answered."""
    raise NoAnswerError(f"{asked.method} {asked.path}: connection reset before the request was read")


def lost_answer(asked: Asked, go: Callable[[], Response]) -> Response:
    """Effect: the request was applied, the answer is lost."""
    go()
    raise NoAnswerError(f"{asked.method} {asked.path}: connection reset before the answer was read")


def refused(status: int, reason: str = "", message: str = "", *, retry_after: int = 0) -> Effect:
    """Effect: this answer instead, nothing applied. `retry_after` in seconds goes into the header and the
    Status."""

    def effect(asked: Asked, go: Callable[[], Response]) -> Response:
        error = ApiError(status, reason, message or f"injected {status}", retry_after=retry_after)
        return Response(status, error.headers, error.body)

    return effect


def denied(policy: str, why: str) -> Effect:
    """Effect: HTTP 403 as a ValidatingAdmissionPolicy and its binding of the same name make it of a request
    about one pod."""

    def effect(asked: Asked, go: Callable[[], Response]) -> Response:
        pod = asked.path.split("/pods/")[1].split("/")[0]
        said = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {why}"
        return refused(403, "Forbidden", f'pods "{pod}" is forbidden: {said}')(asked, go)

    return effect


def throttled(retry_after: int = 1) -> Effect:
    """Effect: HTTP 429 as API priority and fairness sends it, with Retry-After in seconds."""
    why = "the server has received too many requests and has asked us to try again later"
    return refused(429, "TooManyRequests", why, retry_after=retry_after)


def server_error() -> Effect:
    """Effect: HTTP 500."""
    return refused(500, "InternalError", "Internal error occurred: injected")


@dataclass
class _Fault:
    predicate: Predicate
    effect: Effect
    left: int


class FaultyApi:
    """An API whose next matching requests go wrong. Everything else goes through to `api`."""

    def __init__(self, api: KubernetesApi) -> None:
        self.api = api
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []

    def fail_next(self, predicate: Predicate, effect: Effect, *, times: int = 1) -> None:
        """The next `times` requests for which `predicate` is true get `effect`. Earlier faults go first."""
        with self._lock:
            self._faults.append(_Fault(predicate, effect, times))

    def heal(self) -> None:
        """Drops every fault that has not struck yet."""
        with self._lock:
            self._faults.clear()

    @property
    def pending(self) -> int:
        """How many more requests are to go wrong. A story checks that it is 0 in the end."""
        with self._lock:
            return sum(fault.left for fault in self._faults)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str | None = None,
        user_agent: str = "",
    ) -> Response:
        """As `KubernetesStore.request`, unless a fault strikes. Raises `NoAnswerError` when the answer is
        lost."""
        if not self._faults:
            return self.api.request(
                method, path, query=query, body=body, content_type=content_type, user_agent=user_agent
            )

        def go() -> Response:
            return self.api.request(
                method, path, query=query, body=body, content_type=content_type, user_agent=user_agent
            )

        asked = Asked(method, path, query or {}, body, content_type, user_agent)
        effect = self._struck(asked)
        return effect(asked, go) if effect else go()

    def watch(self, path: str, query: Query | None = None, *, user_agent: str = "") -> Watch:
        """As `KubernetesStore.watch`; an effect that answers becomes the `ApiError` of a watch that does
        not open."""
        asked = Asked("WATCH", path, query or {}, user_agent=user_agent) if self._faults else None
        effect = self._struck(asked) if asked is not None else None
        if asked is not None and effect is not None:
            answer = effect(asked, lambda: Response(200))
            raise ApiError(answer.status, answer.body.get("reason", ""), answer.body.get("message", ""))
        return self.api.watch(path, query, user_agent=user_agent)

    def _struck(self, asked: Asked) -> Effect | None:
        with self._lock:
            for fault in self._faults:
                if fault.predicate(asked):
                    fault.left -= 1
                    if not fault.left:
                        self._faults.remove(fault)
                    return fault.effect
            return None
