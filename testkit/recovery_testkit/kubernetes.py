"""A Kubernetes API for tests and the demo, in memory or over HTTP. `python -m recovery_testkit.kubernetes`
serves one.

    store = KubernetesStore(now=clock.now)
    store.load({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    store.request("PATCH", "/api/v1/nodes/n1", body={...}, content_type="application/merge-patch+json")

`recovery_testkit.cluster_kit` states what such an API must do, and runs on this one and on a real one alike.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import yaml

from recovery_testkit.kubefaults import (
    Asked,
    FaultyApi,
    NoAnswerError,
    lost_answer,
    lost_request,
    refused,
    server_error,
    throttled,
)
from recovery_testkit.kuberesources import node_claim_crd
from recovery_testkit.kubeserver import KubernetesServer
from recovery_testkit.kubeshelf import Write
from recovery_testkit.kubestatus import ApiError, Response
from recovery_testkit.kubestore import Client, KubernetesApi, KubernetesStore
from recovery_testkit.kubewatch import Watch

__all__ = [
    "ApiError",
    "Asked",
    "Client",
    "FaultyApi",
    "KubernetesApi",
    "KubernetesServer",
    "KubernetesStore",
    "NoAnswerError",
    "Response",
    "Watch",
    "Write",
    "lost_answer",
    "lost_request",
    "main",
    "node_claim_crd",
    "refused",
    "server_error",
    "throttled",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves a store until SIGTERM or SIGINT; prints its address first. Returns the exit code, 0."""
    parser = argparse.ArgumentParser(prog="python -m recovery_testkit.kubernetes", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: a free one (default)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig for it here")
    parser.add_argument(
        "--load", type=Path, action="append", default=[], help="YAML objects to begin with; CRDs first"
    )
    asked = parser.parse_args(arguments)
    store = KubernetesStore(kubelets_by_ready=True)
    for file in asked.load:
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            store.load(document)
    server = KubernetesServer(store, host=asked.host, port=asked.port)
    if asked.kubeconfig:
        server.write_kubeconfig(asked.kubeconfig)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
