"""The RecoveryGate, as the API server answers with it: read, and what can be read is written back."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

from recovery.decide import budget
from recovery.errors import NodeRecoveryError
from recovery.store.gate import Gates, encode
from tests.builders.gates import slot
from tests.builders.times import NOW
from tests.fuzz.api import OneAnswer, cluster_of, typed
from tests.fuzz.engine import Input
from tests.unit.test_gate_codec import FULL, PAUSED

WEIGHT = 22
WORDS = (
    b"fleet",
    b"slots",
    b"words",
    b"scopes",
    b"pause",
    b"until",
    b"census",
    b"byLabel",
    b"=zone",
    b"!zone",
    b"@workers",
    b"zone=a",
)


class Store:
    def __init__(self) -> None:
        self.api = OneAnswer()
        self.gates = Gates(cluster_of(self.api), list)

    def feed(self, case: bytes) -> None:
        self.api.body = typed(case)
        with suppress(NodeRecoveryError):
            found = self.gates.read()
            if found is not None:
                now = self.gates.ready(found, NOW)
                self.gates.write(budget.join(now, "node-7", "record-7", NOW))
                self.gates.write_in_any_case(now)


def make() -> Input:
    labelled = replace(FULL, slots=(replace(slot(), labels={"zone": "a", "rack": None}, group="workers"),))
    examples = [json.dumps(encode(gate, PAUSED)).encode() for gate in (FULL, labelled)]
    pauses = [
        b'{"metadata": {"name": "fleet", "uid": "u"}, "spec": {"pause": {"until": "2026-11-21"}}, "status": {"version": 2}}'
    ]
    modules = ("recovery.store.gate", "recovery.store.codec", "recovery.decide.budget")
    return Input("gate", Store().feed, [*examples, *pauses, b"[" * 10_000], None, WORDS, WEIGHT, modules)
