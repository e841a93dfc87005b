"""A JSON client for the demo's Kubernetes API, for the demo itself and for the simulator."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
TIMEOUT = 10.0  # seconds for one request


class Refusal(Exception):
    """The API's answer was no. ``status`` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status


class KubeApi:
    """A client named ``who``. A connection per request: nothing is shared between threads."""

    def __init__(self, url: str, who: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._address = parts.hostname, parts.port
        self._who = who
        self.url = url

    def get(self, path: str, **query: str) -> Json:
        return self._request("GET", path + (f"?{urlencode(query)}" if query else ""))

    def items(self, path: str, **query: str) -> list[Json]:
        """The objects of a collection."""
        found: list[Json] = self.get(path, **query)["items"]
        return found

    def post(self, path: str, body: Json) -> Json:
        return self._request("POST", path, body)

    def put(self, path: str, body: Json) -> Json:
        return self._request("PUT", path, body)

    def patch(self, path: str, body: Json) -> Json:
        return self._request("PATCH", path, body, MERGE)

    def delete(self, path: str, *, at_once: bool = False) -> None:
        """``at_once`` leaves out the grace period. What is gone already is no error."""
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if at_once:
            body["gracePeriodSeconds"] = 0
        try:
            self._request("DELETE", path, body)
        except Refusal as refusal:
            if refusal.status != 404:
                raise

    def watch(self, path: str) -> Iterator[Json]:
        """Every change of a collection from now on, what is there first. Ends with the connection."""
        connection = http.client.HTTPConnection(*self._address, timeout=None)
        try:
            connection.request("GET", f"{path}?watch=true", headers={"User-Agent": self._who})
            answer = connection.getresponse()
            if answer.status != 200:
                raise _refusal(answer.status, answer.read())
            while line := answer.readline():
                yield json.loads(line)
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()

    def _request(self, method: str, path: str, body: Json | None = None, kind: str = "") -> Json:
        connection = http.client.HTTPConnection(*self._address, timeout=TIMEOUT)
        headers = {"User-Agent": self._who, "Content-Type": kind or "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise _refusal(answer.status, raw)
        found: Json = json.loads(raw) if raw else {}
        return found


def _refusal(status: int, raw: bytes) -> Refusal:
    try:
        return Refusal(status, str(json.loads(raw).get("message", "")))
    except ValueError:
        return Refusal(status, raw[:200].decode("utf-8", "replace"))
