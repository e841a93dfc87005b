"""The proxy of pods: `GET .../pods/name:port/proxy/path` asks the pod at its own address."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from recovery_testkit.kubestatus import ApiError, Json

TIMEOUT = 5.0
_PATH = re.compile(
    r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<name>[^/:]+)(?::(?P<port>\d+))?/proxy(?P<rest>/.*)?"
)


@dataclass(frozen=True)
class Proxied:
    """A request to a pod: whose path, which port (0: the first it declares), and what is asked there."""

    pod: str
    port: int
    rest: str


def proxied(path: str) -> Proxied | None:
    """What a path asks of a pod, or None for any other path."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    namespace, name = unquote(found["namespace"]), unquote(found["name"])
    return Proxied(
        f"/api/v1/namespaces/{namespace}/pods/{name}", int(found["port"] or 0), found["rest"] or "/"
    )


KEPT = frozenset({"authorization", "connection", "content-length", "host", "accept-encoding"})
"""Header fields that stay here: who the caller is at the API server is not the pod's to know."""


def ask(
    asked: Proxied, pod: Json, query: str, headers: Mapping[str, str]
) -> tuple[int, Mapping[str, str], bytes]:
    """The pod's own answer: status, header fields, body. Raises `ApiError` 400 or 503."""
    address = (pod.get("status") or {}).get("podIP")
    port = asked.port or _first_port(pod)
    if not address or not port:
        raise ApiError(400, "BadRequest", "address not allowed")
    connection = http.client.HTTPConnection(str(address), port, timeout=TIMEOUT)
    try:
        passed = {name: value for name, value in headers.items() if name.lower() not in KEPT}
        connection.request("GET", asked.rest + (f"?{query}" if query else ""), headers=passed)
        answer = connection.getresponse()
        kind = answer.headers.get("Content-Type", "application/octet-stream")
        return answer.status, {"Content-Type": kind}, answer.read()
    except (OSError, http.client.HTTPException) as error:
        message = f"error trying to reach service: dial tcp {address}:{port}: {error}"
        raise ApiError(503, "ServiceUnavailable", message) from None
    finally:
        connection.close()


def _first_port(pod: Json) -> int:
    containers = (pod.get("spec") or {}).get("containers") or []
    return next((int(p["containerPort"]) for c in containers for p in c.get("ports") or []), 0)
