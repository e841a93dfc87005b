"""A NodeRecovery, as the API server answers with it: read alone and in a list, and what can be read is written back."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from recovery.errors import NodeRecoveryError
from recovery.store.record import Records
from recovery.store.record_codec import decode, encode
from tests.fuzz.api import OneAnswer, cluster_of, typed
from tests.fuzz.engine import Input
from tests.unit.test_record_codec import FULL

WEIGHT = 10
CAPTURE = Path(__file__).parents[2] / "captures/records-6cf9989.jsonl"
WORDS = tuple(
    word.encode()
    for word in (
        "recovering", "waiting", "suspect", "handedOver", "released", "proved", "submitted", "abandoned", "notApplied", "drain",
        "reboot", "replace", "force", "hold", "handOver", "level", "edge", "600s", "status", "version", "progress", "*", "2", "4",
    )
)  # fmt: skip


class Store:
    def __init__(self) -> None:
        self.api = OneAnswer()
        self.records = Records(cluster_of(self.api))

    def feed(self, case: bytes) -> None:
        self.api.body = case = typed(case)
        with suppress(NodeRecoveryError):
            found = self.records.read("node-0")
            if found is not None:
                self.records.write(found)
                again = decode(json.loads(json.dumps(encode(found))))
                assert encode(again) == encode(found), "it changes by being written twice"
        if case.startswith(b"{"):
            self.api.body = b'{"items": [' + case + b"]}"
            with suppress(NodeRecoveryError):
                list(self.records.all())


def make() -> Input:
    captured = [json.dumps(json.loads(line)["record"]).encode() for line in CAPTURE.read_text().splitlines()]
    full = json.dumps(encode(FULL)).encode()
    deep = b'{"metadata": {"name": "n"}, "status": {"intent": ' + b'{"data":' * 3000 + b"1" + b"}" * 3002
    modules = tuple(
        f"recovery.store.{name}" for name in ("record_codec", "codec", "upgrade", "compact", "carried")
    )
    return Input(
        "record", Store().feed, [full, *captured[::4], deep, b"[" * 10_000], None, WORDS, WEIGHT, modules
    )
