"""Nothing that is written down is larger than its CRD lets through: 422 would be for ever (law 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from recovery_testkit.crds import read_crds
from recovery_testkit.kubeschema import settle, violations

from recovery.config.policy_fields import MOST_LABELS, MOST_STEPS
from recovery.console import approve
from recovery.decide.budget import KEPT
from recovery.decide.room import MOST_BOOTS
from recovery.decide.sightings import Report
from recovery.errors import GateTooLarge
from recovery.model import Gate, Phase, Record, Slot
from recovery.short import LONGEST_BOOT, LONGEST_ID, LONGEST_REASON, LONGEST_TYPE, LONGEST_WORDS
from recovery.store import gate as gates
from recovery.store import record_codec as records
from recovery.store import sightings as reports
from recovery.store.room import FREE, GATE, MOST_SLOTS, RECORD, REPORT, Map, Most, Shape, Whole, within
from tests.builders.filler import overfull
from tests.builders.times import NOW

Schema = Mapping[str, Any]
SCHEMAS: dict[str, Schema] = {
    crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for crd in read_crds()
}
SHAPES: dict[str, Shape] = {"NodeRecovery": RECORD, "RecoveryGate": GATE, "RecoveryReport": REPORT}
KINDS = sorted(SCHEMAS)
TURNS = range(12)
"""At least as many as any enum has members."""
BOUNDS = {"string": "maxLength", "array": "maxItems"}


def status_of(kind: str) -> Schema:
    found: Schema = SCHEMAS[kind]["properties"]["status"]
    return found


def test_every_kind_has_a_shape() -> None:
    assert sorted(SHAPES) == KINDS


# ---------------------------------------------------------------- the schemas and the shapes


def parts(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Each part of a schema, with its path."""
    yield path, schema
    for key, below in (schema.get("properties") or {}).items():
        yield from parts(below, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            yield from parts(schema[key], f"{path}[]")


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_schema_has_a_bound(kind: str) -> None:
    """Who may write one of our objects, or can make an agent do it, must not fill etcd with it."""
    for path, schema in parts(SCHEMAS[kind], kind):
        if path in (f"{kind}.apiVersion", f"{kind}.kind"):
            continue
        if (bound := BOUNDS.get(schema["type"])) and "enum" not in schema:
            assert bound in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path


@pytest.mark.parametrize("kind", KINDS)
def test_no_part_of_a_schema_has_a_bound_that_no_shape_can_hold(kind: str) -> None:
    """A bound of another kind needs a shape of its own: see ``recovery.store.room``."""
    known = {"maxLength", "maxItems", "maxProperties", "minimum", "enum", "required", "type", "nullable"}
    known |= {"description", "properties", "items", "additionalProperties"}
    for path, schema in parts(status_of(kind), kind):
        assert {key for key in schema if not key.startswith("x-kubernetes-")} <= known, path


def misfits(shape: Shape, schema: Schema, path: str) -> Iterator[str]:
    """The paths at which ``shape`` lets more through than ``schema``, or has other fields."""
    below: list[tuple[Shape, Schema, str]] = []
    if schema["type"] == "array":
        fits = isinstance(shape, Most) and shape.count <= schema["maxItems"]
        below = [(shape.item, schema["items"], "[]")] if isinstance(shape, Most) else []
    elif "additionalProperties" in schema:
        fits = isinstance(shape, Map) and shape.count <= schema["maxProperties"]
        below = [(shape.value, schema["additionalProperties"], "[]")] if isinstance(shape, Map) else []
    elif schema["type"] == "object" and "properties" in schema:
        known, there = shape if isinstance(shape, Mapping) else {}, schema["properties"]
        fits = known.keys() == there.keys()
        below = [(known[key], there[key], f".{key}") for key in known.keys() & there.keys()]
    elif schema["type"] == "integer":
        fits = isinstance(shape, Whole) and shape.least >= schema.get("minimum", shape.least)
    elif "maxLength" in schema:
        fits = isinstance(shape, int) and shape <= schema["maxLength"]
    else:
        fits = shape == FREE
    if not fits:
        yield path
    for each, part, name in below:
        yield from misfits(each, part, path + name)


@pytest.mark.parametrize("kind", KINDS)
def test_no_shape_lets_more_through_than_its_schema(kind: str) -> None:
    assert list(misfits(SHAPES[kind], status_of(kind), kind)) == []


# ---------------------------------------------------------------- the fence


def too_much(schema: Schema) -> Any:
    """One more of everything than ``schema`` lets through."""
    kind = schema["type"]
    if "enum" in schema:
        return schema["enum"][-1]
    if kind == "string":
        return "\N{SNOWMAN}" * (schema["maxLength"] + 1)
    if kind == "array":
        return [too_much(schema["items"])] * (schema["maxItems"] + 1)
    if kind == "integer":
        return schema.get("minimum", 0) - 1
    if "additionalProperties" in schema:
        one = too_much(schema["additionalProperties"])
        return {f"key-{i}": one for i in range(schema["maxProperties"] + 1)}
    if kind == "object":
        return {key: too_much(each) for key, each in (schema.get("properties") or {}).items()}
    return {"boolean": True, "number": 1.0}[kind]


def small(schema: Schema) -> Any:
    """``schema`` with room for a hundredth of very long lists: the test would take a minute."""
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: min(value, 100) if key in ("maxItems", "maxProperties") else small(value)
        for key, value in schema.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_too_much_for_a_schema_is_cut_until_it_fits(kind: str) -> None:
    found = too_much(small(status_of(kind)))
    fit = within(found, SHAPES[kind])
    assert violations(SCHEMAS[kind], {"status": found})
    assert not violations(SCHEMAS[kind], {"status": fit})
    assert within(fit, SHAPES[kind]) is fit, "what fits is left alone"


@pytest.mark.parametrize(("shape", "last"), [(Most(3, FREE), 2), (Most(3, FREE, last=True), 9)])
def test_of_a_long_list_the_first_are_kept_or_the_last(shape: Most, last: int) -> None:
    assert within([*map(str, range(10))], shape)[-1] == str(last)
    assert len(within(["x"] * 10_000, shape)) == 3


# ---------------------------------------------------------------- the encoders


def everything(kind: str, document: Mapping[str, Any]) -> None:
    """``document`` is valid, and nothing of it would be pruned."""
    assert not violations(SCHEMAS[kind], document)
    assert settle(SCHEMAS[kind], dict(document))[1] == []


def names_of(schema: Schema) -> set[str]:
    return {path.rpartition(".")[2] for path, _ in parts(schema, "")} - {"", "[]"}


def keys_of(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if isinstance(value, dict):
        return {str(key) for key in value}.union(*map(keys_of, value.values()))
    return set()


@pytest.mark.parametrize(
    ("turn", "letter"), [*((turn, "x") for turn in TURNS), (0, "<"), (0, "\N{GRINNING FACE}")]
)
def test_no_record_is_too_large_whatever_is_on_it(turn: int, letter: str) -> None:
    body = records.encode(overfull(Record, turn, letter, uid="u", resource_version="1"))
    everything("NodeRecovery", body)
    assert records.decode(body).faults, "it is read back"


def test_the_filler_fills_every_field_of_a_record() -> None:
    whole: set[str] = set()
    for turn in TURNS:
        record = overfull(Record, turn)
        whole |= keys_of(records.whole(record)["status"])
    missing = {name.removesuffix("[]") for name in names_of(status_of("NodeRecovery"))} - whole
    assert not missing


@pytest.mark.parametrize("phase", Phase)
def test_a_record_as_it_is_kept_is_the_record_as_it_would_be_read_again(phase: Phase) -> None:
    """Else an agent and the one after it would go by different names."""
    made = overfull(Record, 0, phase=phase, node="node-0", uid="u", resource_version="1")
    kept = records.bounded(made)
    assert records.decode(records.whole(kept)) == kept
    assert kept.phase is phase


def gate(turn: int, letter: str) -> Gate:
    return overfull(Gate, turn, letter, pause=None, approved=())


@pytest.mark.parametrize("encode", [gates.encode, lambda g, spec: gates.encode(gates.bounded(g), spec)])
@pytest.mark.parametrize("turn", [0, 1])
def test_no_gate_is_too_large_whatever_is_on_it(
    turn: int, encode: Callable[[Gate, dict[str, Any]], dict[str, Any]]
) -> None:
    made = gate(turn, "\N{SNOWMAN}")
    for of in ("", "x" * 300):
        census = replace(made.census, of=of) if made.census else None
        body = encode(replace(made, census=census), {})
        everything("RecoveryGate", body)
        assert gates.decode(body).slots


def test_no_slot_is_left_out() -> None:
    slot = Slot("n", "u", 1, ("fleet",), NOW)
    most = replace(gate(0, "x"), slots=(slot,) * MOST_SLOTS)
    assert len(gates.encode(most, {})["status"]["slots"]) == MOST_SLOTS
    with pytest.raises(GateTooLarge):
        gates.encode(replace(most, slots=(*most.slots, slot)), {})


@pytest.mark.parametrize("turn", TURNS)
def test_no_report_is_too_large_whatever_is_on_it(turn: int) -> None:
    body = reports.encode(overfull(Report, turn, "\N{SNOWMAN}"))
    everything("RecoveryReport", body)
    assert reports.decode(body).sightings


# ---------------------------------------------------------------- what names are bounded to


def test_names_are_bounded_to_what_all_objects_have_room_for() -> None:
    record, report = status_of("NodeRecovery")["properties"], status_of("RecoveryReport")["properties"]
    fault, seen = (
        record["faults"]["items"]["properties"],
        report["sightings"]["items"]["properties"],
    )
    for room in (fault, seen):
        assert room["type"]["maxLength"] >= LONGEST_TYPE
        assert room["reason"]["maxLength"] >= LONGEST_REASON
        assert room["machine"]["maxLength"] >= LONGEST_ID
    assert record["bootID"]["maxLength"] >= LONGEST_BOOT
    assert record["progress"]["properties"]["boots"]["items"]["maxLength"] >= LONGEST_BOOT


def test_what_a_policy_may_ask_for_is_never_cut() -> None:
    """A remedy in another order of steps, or a slot in fewer budgets, would be another recovery."""
    shape = RECORD
    assert isinstance(shape, Mapping)
    ladder, scopes, boots = shape["ladder"], shape["scopes"], shape["progress"]
    assert isinstance(ladder, Most)
    assert isinstance(scopes, Most)
    assert isinstance(boots, Mapping)
    assert isinstance(boots["boots"], Most)
    assert ladder.count > MOST_STEPS, "and a reboot that no policy names"
    assert scopes.count > MOST_LABELS, "and that of the whole fleet"
    assert boots["boots"].count >= MOST_BOOTS
    room = status_of("RecoveryReport")["properties"]["sightings"]["items"]["properties"]["steps"]
    assert room["maxItems"] >= MOST_STEPS
    slots = status_of("RecoveryGate")["properties"]["slots"]["items"]["properties"]["scopes"]
    assert slots["maxItems"] >= MOST_LABELS + len(KEPT) + len(("fleet", "rule", "group"))


def test_what_people_write_on_the_gate_fits() -> None:
    spec = SCHEMAS["RecoveryGate"]["properties"]["spec"]["properties"]
    pause, approved = spec["pause"]["properties"], spec["approved"]
    assert min(pause["owner"]["maxLength"], pause["reason"]["maxLength"]) >= LONGEST_WORDS
    assert approved["items"]["properties"]["by"]["maxLength"] >= LONGEST_WORDS
    assert approved["items"]["properties"]["reason"]["maxLength"] >= LONGEST_REASON
    assert approved["maxItems"] > approve.MOST
