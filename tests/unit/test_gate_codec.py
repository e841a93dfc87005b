"""The gate as it is stored, and its pure changes."""

from __future__ import annotations

import contextlib
import json
from dataclasses import fields, replace
from typing import Any

import pytest
from recovery_testkit.kubestore import KubernetesStore

from recovery.decide import budget
from recovery.decide.budget import CLAIMS, STARTS
from recovery.errors import Conflict, NotFound, Undecodable
from recovery.model import (
    Approval,
    Census,
    Claim,
    Gate,
    GroupStart,
    Line,
    Marks,
    Pause,
    Phase,
    Record,
    Slot,
    Start,
)
from recovery.store.gate import CODEC, Gates, decode, encode, size
from tests.builders.faults import DMA
from tests.builders.gates import slot
from tests.builders.nodes import MACHINE
from tests.builders.records import intent, record
from tests.builders.rubbish import RUBBISH, paths, with_rubbish
from tests.builders.stores import store_with_crds
from tests.builders.times import HOUR, NOW, SECOND

COLLECTION = "/apis/noderecovery.dev/v1alpha1/recoverygates"
PAUSED = {
    "pause": {"owner": "ada", "reason": "a network change", "until": "2026-11-21T04:00:00Z"},
    "approved": [{"reason": DMA, "by": "bob", "until": "2026-11-21T04:00:00Z"}],
}
FULL = Gate(
    uid="u",
    resource_version="7",
    stamp="u",
    pause=Pause("ada", "a network change", NOW + HOUR),
    open=(Line("node-0", "record-0", NOW), Line("node-1", "record-1", NOW + SECOND)),
    slots=(slot(),),
    last_start=NOW,
    starts=(GroupStart(NOW, "node-0", "workers", "m-0", DMA),),
    census=Census(NOW, 10, ("node-0",), {"zone=a": (1, 4)}, seconds=3),
    claimed=(Claim("m-9", "m-0"),),
    approved=(Approval(DMA, "bob", NOW + HOUR),),
)


def test_the_gate_of_these_tests_fills_every_field() -> None:
    assert all(getattr(FULL, f.name) for f in fields(Gate))


OF_SOME = replace(FULL, census=Census(NOW, 10, ("node-0",), {"zone=a": (1, 4)}, of="l", outside=(1, 9)))
TOLD = Slot("node-2", "r", 1, ("fleet", "zone=a"), NOW, {"zone": "a", "rack": None}, "m", "g")
SLOTS = (
    slot(),
    replace(slot("node-3", "r-3"), rule="x=y"),
    TOLD,
    replace(TOLD, rule="a rule"),
    replace(TOLD, rule="node-2"),
    *(
        replace(each, machine=machine, provider_id=provider_id)
        for each in (slot(), TOLD)
        for machine, provider_id in (
            ("i-0123456789abcdef0", "aws:///us-west-2a/i-0123456789abcdef0"),
            ("0f8fad5b", "azure:///subscriptions/s/virtualMachineScaleSets/v=w/virtualMachines/12"),
            ("0f8fad5b", "azure:///subscriptions/s/virtualMachines/node-2"),
            ("", "metal"),
        )
    ),
)


@pytest.mark.parametrize(
    "made",
    [
        FULL,
        replace(FULL, slots=SLOTS),
        OF_SOME,
        replace(FULL, census=None, last_start=None, starts=(), slots=()),
    ],
)
def test_a_gate_comes_back_as_it_went(made: Gate) -> None:
    assert decode(json.loads(json.dumps(encode(made, PAUSED)))) == made


def test_a_program_of_before_keeps_what_it_does_not_know_of_a_slot() -> None:
    """What it reads as a label it writes as that label, and no node has one with such a key."""
    made = replace(TOLD, rule="a rule", provider_id="azure:///sets/v/12")
    words = encode(replace(FULL, slots=(made,)), PAUSED)["status"]["words"]
    unknown = [text for text in words.values() if text.startswith("(")]
    assert unknown == ["(rule)=a rule", "(at)=azure:///sets/v/", "(last)=12"]


def test_a_program_of_before_finds_no_census_that_is_of_some_nodes_only() -> None:
    assert "census" in encode(FULL, PAUSED)["status"]
    assert "census" not in encode(OF_SOME, PAUSED)["status"]


@pytest.fixture
def store() -> KubernetesStore:
    return store_with_crds()


def test_the_api_server_keeps_every_field_that_is_written(store: KubernetesStore) -> None:
    body = encode(replace(FULL, resource_version=""), PAUSED)
    created = store.request("POST", COLLECTION, body=body)
    assert created.status == 201, created.body
    assert (created.body["status"], created.body["spec"]) == (body["status"], PAUSED)
    there = decode(store.request("GET", f"{COLLECTION}/fleet").body)
    assert there == replace(FULL, uid=there.uid, resource_version=there.resource_version)


@pytest.mark.parametrize(
    "spec", [{}, PAUSED, {"pause": {"until": "tomorrow"}}, {"pause": {}}, {"pause": None}]
)
def test_a_persons_spec_is_passed_through_as_it_was_read(spec: dict[str, Any]) -> None:
    held = encode(FULL, spec)
    written: list[dict[str, Any]] = []

    class Cluster:
        def get_gate(self) -> dict[str, Any]:
            return held

        def create_gate(self, body: dict[str, Any]) -> dict[str, Any]:
            raise Conflict("it is there")

        def replace_gate(self, body: dict[str, Any]) -> dict[str, Any]:
            written.append(body)
            return body

    store = Gates(Cluster(), list)
    found = store.read()
    assert found is not None
    store.write(budget.join(found, "node-7", "record-7", NOW))
    assert written[0]["spec"] == spec


# ---------------------------------------------------------------- what cannot be read


def broken(path: str, value: Any) -> dict[str, Any]:
    return with_rubbish(encode(FULL, PAUSED), path, value)


def test_a_gate_of_a_later_version_is_held_and_names_both_versions() -> None:
    why = f"was written in version {CODEC + 1}; this program understands version {CODEC}"
    with pytest.raises(Undecodable, match=why):
        decode(broken("status.version", CODEC + 1))


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("metadata", None, "metadata: found NoneType, expected an object"),
        ("status", "fine", "status: found str, expected an object"),
        ("status.open", {}, "status.open: found {}, expected list"),
        ("status.open.1.node", ..., r"status.open\[1\].node: is missing"),
        ("status.open.1.since", "x", r"status.open\[1\].since: found 'x', expected a moment"),
        ("status.slots.0.recordUID", 7, r"status.slots\[0\].recordUID: found 7, expected str"),
        ("status.slots.0.scopes", "fleet", r"status.slots\[0\].scopes: found 'fleet', expected list"),
        ("status.slots.0.attempt", -1, r"status.slots\[0\].attempt: found -1, expected at least 0"),
        ("status.lastStart", 7, "status.lastStart: found 7, expected str"),
        ("status.starts.0", "x", r"status.starts\[0\]: found str, expected an object"),
        ("status.census.at", ..., "status.census.at: is missing"),
        ("status.census.population", "ten", "status.census.population: found 'ten'"),
        ("status.census.byLabel", [], r"status.census.byLabel: found \[\], expected dict"),
        ("status.replacementsClaimed.0", "m-9", r"status.replacementsClaimed\[0\]: found str"),
        ("status.replacementsClaimed.0.machine", ..., r"replacementsClaimed\[0\].machine: is missing"),
    ],
)
def test_what_cannot_be_understood_is_named(path: str, value: Any, why: str) -> None:
    with pytest.raises(Undecodable, match=why):
        decode(broken(path, value))


@pytest.mark.parametrize("path", paths(encode(FULL, PAUSED)))
def test_rubbish_in_a_field_is_never_a_crash(path: str) -> None:
    for value in RUBBISH:
        with contextlib.suppress(Undecodable):
            decode(broken(path, value))


def test_a_gate_without_a_status_is_one_that_was_emptied() -> None:
    found = decode(broken("status", ...))
    assert (found.stamp, found.open, found.pause) == ("", (), FULL.pause)


# ---------------------------------------------------------------- changes


def test_a_line_is_joined_once_and_gives_way_to_a_later_record_of_its_node() -> None:
    assert budget.join(FULL, "node-0", "record-0", NOW + HOUR) is FULL
    moved = budget.join(FULL, "node-0", "record-7", NOW + HOUR)
    assert [(x.node, x.record_uid) for x in moved.open] == [("node-1", "record-1"), ("node-0", "record-7")]


def test_a_slot_is_granted_once_and_counts_one_start() -> None:
    start = GroupStart(NOW + HOUR, "node-1", "workers", "m-1", DMA)
    given = budget.grant(FULL, slot("node-1", "record-1"), start, None)
    assert (given.last_start, given.starts[-1], len(given.slots)) == (NOW + HOUR, start, 2)
    assert budget.grant(given, slot("node-1", "record-1"), start, None) is given


def test_a_slot_put_back_is_no_start() -> None:
    back = budget.restore(FULL, slot("node-1", "record-1"))
    assert (len(back.slots), back.starts, back.last_start) == (2, FULL.starts, FULL.last_start)
    assert budget.restore(back, slot("node-1", "record-1")) is back


def test_only_the_very_record_is_taken_off() -> None:
    assert budget.free(FULL, "node-0", "record-7") == FULL
    freed = budget.free(FULL, "node-0", "record-0")
    assert (freed.slots, [x.node for x in freed.open]) == ((), ["node-1"])


def test_lists_of_the_past_are_bounded() -> None:
    made = FULL
    for at in range(STARTS + 5):
        made = budget.grant(made, slot(f"n{at}", "r"), GroupStart(NOW, f"n{at}", "", "m", DMA), None)
    for at in range(CLAIMS + 5):
        made = budget.claim(made, f"new-{at}", f"old-{at}")
    assert (len(made.starts), len(made.claimed)) == (STARTS, CLAIMS)
    assert budget.replacement_of(made, f"old-{CLAIMS + 4}") == f"new-{CLAIMS + 4}"


def test_a_machines_lineage_is_newest_first() -> None:
    made = budget.claim(budget.claim(FULL, "m-10", "m-9"), "m-11", "m-10")
    assert budget.lineage(made, "m-11") == ("m-11", "m-10", "m-9", "m-0")


REBUILT: dict[str, tuple[Record, bool, bool]] = {
    "suspect": (record(Phase.SUSPECT), False, False),
    "waiting": (record(Phase.WAITING), True, False),
    "recovering": (record(Phase.RECOVERING), True, True),
    "waiting with marks": (record(Phase.WAITING, marks=Marks(True, True)), True, True),
    "proving after a call": (record(Phase.PROVING, intent=intent()), True, True),
    "handed over": (record(Phase.HANDED_OVER, marks=Marks(True, True)), False, False),
    "recovered": (record(Phase.RECOVERED), False, False),
}


@pytest.mark.parametrize("row", REBUILT)
def test_a_gate_is_rebuilt_from_the_records(row: str) -> None:
    made, in_line, out = REBUILT[row]
    started = replace(made, starts=(Start(NOW, "m-0", DMA, MACHINE.group),))
    empty = Gate(uid="new", resource_version="1", stamp="")
    rebuilt = budget.rebuild(empty, [started])
    assert rebuilt.stamp == "new"
    assert (bool(rebuilt.open), bool(rebuilt.slots)) == (in_line, out)
    assert (rebuilt.last_start, [x.group for x in rebuilt.starts]) == (NOW, ["workers"])


def test_a_missing_gate_is_made_and_filled_before_anything_is_granted(store: KubernetesStore) -> None:
    class Cluster:
        def get_gate(self) -> dict[str, Any]:
            answer = store.request("GET", f"{COLLECTION}/fleet")
            if answer.status == 404:
                raise NotFound("there is none")
            return dict(answer.body)

        def create_gate(self, body: dict[str, Any]) -> dict[str, Any]:
            return dict(store.request("POST", COLLECTION, body=body).body)

        def replace_gate(self, body: dict[str, Any]) -> dict[str, Any]:
            return dict(store.request("PUT", f"{COLLECTION}/fleet", body=body).body)

    held = Gates(Cluster(), lambda: [record(Phase.RECOVERING)])
    assert held.read() is None
    made = held.ready(None, NOW)
    assert made.stamp == made.uid != ""
    assert [x.node for x in made.slots] == ["node-0"]
    assert held.ready(made, NOW) is made


def test_half_a_character_is_carried_and_not_a_crash() -> None:
    """JSON may write one; the API server makes another character of it."""
    half = replace(FULL, slots=(replace(slot(), labels={"zone": "\ud800"}),))
    assert decode(encode(half, PAUSED)).slots[0].labels == {"zone": "\ud800"}
    assert size(encode(half, PAUSED))
