"""The Kubernetes API as one answer of any bytes, read by the agent's own transport and cluster."""

from __future__ import annotations

import json
from typing import Any

from recovery_testkit.clock import FakeClock

from recovery.kube import transport
from recovery.kube.cluster import Cluster
from tests.fuzz.engine import Called


class OneAnswer:
    """Every GET gets ``body``. A write is answered with what was sent."""

    def __init__(self) -> None:
        self.body = b""
        self.may_write = True

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> transport.Response:
        if method == "GET":
            return transport.answered(200, {}, self.body)
        if not self.may_write:
            raise Called(f"{method} {path}: nothing may be written because of this")
        metadata = {"uid": "u-1", "resourceVersion": "8", **body["metadata"]}
        return transport.Response(200, {}, {**body, "metadata": metadata})


def cluster_of(answers: OneAnswer) -> Cluster:
    return Cluster(answers, FakeClock(), "node-recovery")


def typed(case: bytes) -> bytes:
    """The object with metadata of the right types: those the API server holds everybody to."""
    try:
        obj = json.loads(case)
    except (ValueError, RecursionError):
        return case
    if not isinstance(obj, dict):
        return case
    told = obj.get("metadata") if isinstance(obj.get("metadata"), dict) else {}
    texts = {key: str(told.get(key) or "x")[:200] for key in ("name", "uid", "resourceVersion")}
    maps = {
        key: {k: str(v) for k, v in told[key].items()}
        for key in ("labels", "annotations")
        if isinstance(told.get(key), dict)
    }
    return json.dumps({**obj, "metadata": {**texts, **maps}}).encode()
