"""Names and IDs that are too long: always the same short one, and never that of another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from recovery_testkit.provider import FakeProvider

from recovery.kube.bounded import bounded as bounded_node
from recovery.model import Ends, Latch, Machine, NodeView, Problem, Reading
from recovery.provider.registry import Providers
from recovery.report.notice import event_name
from recovery.short import (
    LONGEST_BOOT,
    LONGEST_ID,
    LONGEST_OBJECT,
    LONGEST_REASON,
    LONGEST_TYPE,
    MOST_WORDS,
    identified,
    named,
    object_name,
    shortened,
    size,
)
from recovery.signals.names import bounded, reason_name, type_name
from recovery.store.lease import InstanceLock
from recovery.store.record_codec import decode, whole
from tests.builders.faults import fault
from tests.builders.nodes import node
from tests.builders.records import record
from tests.builders.times import NOW

LETTERS = ["x", "<", '"', "\N{SNOWMAN}", "\N{GRINNING FACE}"]
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("longest", [40, LONGEST_REASON, LONGEST_TYPE])
@pytest.mark.parametrize("length", [1, 21, 22, 40, 100, 256, 257, 2048])
def test_a_name_fits_and_is_not_shortened_again(letter: str, longest: int, length: int) -> None:
    text = (letter * length)[:length]
    name = named(text, longest)
    assert size(name) <= longest
    assert named(name, longest) == name
    assert (name == text) is (size(text) <= longest), "what fits is left as it is"


def test_two_long_names_stay_two_and_one_stays_one() -> None:
    texts = [f"{'x' * 500}{i}{'y' * 500}" for i in range(100)]
    assert len({named(text, LONGEST_REASON) for text in texts}) == len(texts)
    assert named(texts[0], LONGEST_REASON) == named("".join([*texts[0]]), LONGEST_REASON)
    assert named(texts[0], LONGEST_REASON) == f"{'x' * 159}~{identified(texts[0], 20)[-12:]}~{'y' * 78}"


def test_a_pattern_still_matches_a_long_name_by_its_begin_and_its_end() -> None:
    name = reason_name(f"NeuronHasError_{'X' * 1100}_UNCORRECTABLE_ERROR")
    assert fnmatchcase(name, "NeuronHasError_*_UNCORRECTABLE_ERROR")
    assert not fnmatchcase(name, "NeuronHasError_*_CORRECTABLE_ERROR")


def test_a_text_that_cannot_be_encoded_has_a_name_too() -> None:
    assert size(named("\ud800" * 999, LONGEST_REASON)) <= LONGEST_REASON


@pytest.mark.parametrize("length", [1, 127, 128, 129, 5000])
def test_an_id_fits_and_keeps_no_end(length: int) -> None:
    text = "i" * (length - 1) + "Z"
    found = identified(text, LONGEST_BOOT)
    assert len(found) <= LONGEST_BOOT
    assert identified(found, LONGEST_BOOT) == found
    assert (found == text) is (length <= LONGEST_BOOT)
    assert found.endswith("Z") is (length <= LONGEST_BOOT)
    assert identified(text + "a", LONGEST_BOOT) != found


def test_words_are_cut() -> None:
    assert shortened("word " * 100, 12) == "word word "
    assert shortened("\N{SNOWMAN}", 2) == ""


# ---------------------------------------------------------------- names of objects


@pytest.mark.parametrize("name", ["n", "a" * 253, ".".join(["a" * 63] * 4)[:253], "a-b." * 60 + "a" * 13])
def test_an_event_of_a_node_with_any_name_has_a_name(name: str) -> None:
    for unique in ("6544a4f1b2c3d4.ffff", "0123456789abcdef"):
        found = event_name(name, unique)
        assert len(found) <= LONGEST_OBJECT
        assert SUBDOMAIN.fullmatch(found)
        assert found.endswith(f".{unique}")
    assert event_name("node-0", "1.2") == "node-0.1.2"


def test_two_long_names_of_objects_stay_two() -> None:
    assert object_name("a" * 252 + "b", 200) != object_name("a" * 252 + "c", 200)


def test_a_process_of_a_node_with_a_long_name_has_its_place_alone() -> None:
    """A socket's address has 107 bytes; without the lock no process would be taken for its successor."""
    first, second = InstanceLock(), InstanceLock()
    long = "n" * 252
    try:
        assert first.take(long + "1")
        assert not second.take(long + "1")
        assert second.take(long + "2")
    finally:
        first.close()
        second.close()


# ---------------------------------------------------------------- what sources say


LONG_TYPE, LONG_REASON = "T" * 999, "R" * 999


def reading(type_: str, reason: str) -> Reading:
    """One in which every field names the fault."""
    said: Mapping[str, str] = {type_: "why"}
    pairs = frozenset({(type_, reason)})
    return Reading(
        "npd",
        NOW,
        problems=(Problem("npd", type_, reason, "m", NOW, NOW),),
        unknown=said,
        unknown_since={type_: NOW},
        cleared=pairs,
        listed=pairs,
        gone=pairs,
        unconfirmed=said,
        counters={reason: 1.0},
        silent=said,
        ends={(type_, reason): Ends(Latch.BOOT)},
        ended=said,
        early=said,
    )


def test_a_fault_has_one_name_wherever_its_source_names_it() -> None:
    short = reading(type_name(LONG_TYPE), reason_name(LONG_REASON))
    assert bounded(reading(LONG_TYPE, LONG_REASON)) == short
    assert bounded(short) is short


@pytest.mark.parametrize("field", [f for f in Reading.__dataclass_fields__ if f not in ("source", "at")])
def test_no_field_alone_is_overlooked(field: str) -> None:
    """A fault that is gone from the page is named where it is cleared, and nowhere else."""
    plain, long = Reading("npd", NOW), reading(LONG_TYPE, LONG_REASON)
    short = reading(type_name(LONG_TYPE), reason_name(LONG_REASON))
    found = bounded(replace(plain, **{field: getattr(long, field)}))
    assert getattr(found, field) == getattr(short, field)


def test_a_source_as_a_whole_keeps_its_name() -> None:
    said = Reading("npd", NOW, unknown={"*": "why"}, cleared=frozenset({("T", "*")}))
    assert bounded(said) is said


def test_a_record_of_before_has_the_name_that_its_source_states_now() -> None:
    """Else a fault that is under way would be another one after an upgrade."""
    old = fault(LONG_REASON, type="T" * 316)
    made = record(faults=(old,), acknowledged=(old,))
    there = decode(whole(made))
    for found in (there.faults[0], there.acknowledged[0]):
        assert (found.type, found.reason) == (type_name("T" * 316), reason_name(LONG_REASON))


# ---------------------------------------------------------------- nodes and machines


def test_the_ids_of_a_node_have_room_on_records() -> None:
    plain = node()
    assert bounded_node(plain) is plain
    for field, longest in (
        ("boot_id", LONGEST_BOOT),
        ("system_uuid", LONGEST_BOOT),
        ("provider_id", LONGEST_ID),
    ):
        found = bounded_node(replace(plain, **{field: "x" * 2000}))
        assert len(getattr(found, field)) == longest
        assert replace(found, **{field: ""}) == replace(plain, **{field: ""}), "all else is as it was"


def route(words: int) -> dict[str, str]:
    return {f"key-{i}": "v" for i in range(words)}


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (Machine("fake", "i" * 513), "the machine of node-0 has an ID of 513 characters, and may have 512"),
        (
            Machine("fake", "i", group="g" * 513),
            "the machine of node-0 has a group of 513 characters, and may have 512",
        ),
        (
            Machine("fake", "i", route={"zone": "z" * 513}),
            "the machine of node-0 has a zone of 513 characters, and may have 512",
        ),
        (
            Machine("fake", "i", route=route(MOST_WORDS + 1)),
            "the machine of node-0 is found by 11 words, of 10 at most",
        ),
        (Machine("fake", "i" * 512, group="g" * 512, route=route(MOST_WORDS)), ""),
    ],
)
def test_a_machine_that_could_not_be_written_down_is_a_persons(machine: Machine, why: str) -> None:
    class Odd(FakeProvider):
        def identify(self, node: NodeView) -> Machine:
            return machine

    found = Providers("fake", lambda _: Odd()).identify(node())
    assert (found.problem, found.machine) == (why, None if why else machine)
