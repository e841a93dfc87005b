"""The size of a record: 16 KiB while it is open, 4 KiB once it is closed, whatever is put on it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from recovery.decide.history import note
from recovery.decide.remembered import MOST_DIGESTS, WIDTH, digest
from recovery.decide.room import kept
from recovery.decide.standing import left_behind
from recovery.model import (
    Attempt,
    Cause,
    Evidence,
    Fault,
    Held,
    Holding,
    Intent,
    Machine,
    Marks,
    Phase,
    Progress,
    Record,
    Reference,
    ReleaseRequest,
    Start,
    Step,
    Validation,
    ValidationRun,
)
from recovery.provider.known import ALL, KEY, has, pack
from recovery.short import size
from recovery.store.compact import CLOSED, OPEN
from recovery.store.record_codec import FIRST, FOURTH, bounded, decode, encode
from tests.builders.faults import fault
from tests.builders.nodes import MACHINE
from tests.builders.records import intent, record
from tests.builders.times import MINUTE, NOW

GROUP = tuple(f"i-0{x:016x}" for x in range(1_000))
SERIALS = tuple(f"GPU-8f2c4c44-0000-0000-0000-{x:012x}" for x in range(16))
LONG_NAME = "n" * 253


def hostile(phase: Phase, text: str = "x") -> Record:
    """The longest of everything that the schema lets through, but for IDs of a kilobyte."""
    many = tuple(
        fault(f"Reason{x:03}" + text * 100, message=text * 4096, machine="i-0123456789abcdef0")
        for x in range(200)
    )
    asked = intent()
    reference = replace(asked.reference, data={**asked.reference.data, KEY: pack(GROUP)})
    made = record(
        phase,
        node=LONG_NAME,
        machine=replace(MACHINE, group="g" * 253, route={"region": "eu-central-1", "asg": "g" * 253}),
        faults=many,
        acknowledged=many,
        starts=tuple(
            Start(NOW + x * MINUTE, "i-0123456789abcdef0", "R" * 60, "g" * 253, SERIALS) for x in range(60)
        ),
        intent=replace(asked, reference=reference),
        progress=Progress(submitted=(Attempt(1, "replace"),), boots=("b" * 36,) * 3),
        scopes=("fleet", "topology.kubernetes.io/zone=a"),
    )
    for _ in range(25):
        made = note(made, NOW, "e", text * 5000)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("text", ["x", "\N{SNOWMAN}", "<", '"'])
@pytest.mark.parametrize("phase", Phase)
def test_a_record_fits_whatever_is_put_on_it(phase: Phase, text: str) -> None:
    made = hostile(phase, text)
    body = encode(made)
    assert size(body) <= (OPEN if phase.open else CLOSED)
    assert len(json.dumps(body).encode()) <= (OPEN if phase.open else CLOSED) * 1.05
    there = decode(json.loads(json.dumps(body)))
    same = ("node", "phase", "node_uid", "boot_id", "marks", "phase_since", "attempt", "rule")
    assert [getattr(there, x) for x in same] == [getattr(made, x) for x in same]
    assert there.machine.id == made.machine.id
    assert there.sentence
    assert there.faults
    assert there.starts[-1].at == made.starts[-1].at
    assert there.progress.submitted == made.progress.submitted
    assert bounded(there) == there


@pytest.mark.parametrize("phase", [p for p in Phase if p.open])
def test_an_open_record_keeps_its_call_and_what_its_group_was(phase: Phase) -> None:
    there = decode(encode(hostile(phase)))
    assert there.intent is not None
    known = there.intent.reference.data[KEY]
    assert all(has(known, machine) for machine in GROUP)
    assert not has(known, "i-0fffffffffffffff0")


@pytest.mark.parametrize("phase", [Phase.HANDED_OVER, Phase.RELEASED])
def test_a_call_that_may_have_to_be_taken_back_stays_and_no_machine_is_its_replacement(phase: Phase) -> None:
    there = decode(encode(hostile(phase)))
    assert there.intent is not None
    assert there.intent.reference.data[KEY] == ALL
    assert has(ALL, "i-0fffffffffffffff0")
    assert there.intent.reference.data["group"] == "workers"


def a_name(dice: random.Random, longest: int = 200) -> str:
    return ("n-" * longest)[: dice.choice((5, 40, longest))]


def a_text(dice: random.Random, longest: int) -> str:
    letters = dice.choice(("x", '"', "<", "\N{SNOWMAN}", "word "))
    return (letters * longest)[: dice.choice((0, 8, longest // 2, longest))]


def some(dice: random.Random, make: Callable[[int], Any], most: int) -> tuple[Any, ...]:
    return tuple(make(i) for i in range(dice.choice((0, 1, most // 2, most))))


def any_intent(dice: random.Random, attempt: int) -> Intent:
    asked = intent(action=dice.choice(("replace", "reboot")))
    known = pack(f"i-0{x:016x}" for x in range(dice.choice((2, 60, 90, 1_000))))
    data = {"group": a_name(dice), "machine": a_name(dice, 64), "desired": 1000, KEY: known}
    return replace(
        asked,
        attempt=attempt,
        token=a_name(dice, 36),
        machine=a_name(dice, 64),
        boot_id="b" * 36,
        reference=replace(asked.reference, data=data),
    )


def any_record(dice: random.Random, phase: Phase) -> Record:
    """Of any field nothing, a little, or all that there may be."""

    def a_fault(i: int) -> Fault:
        reason, life = f"R{i}{a_name(dice, 100)}", a_name(dice, 20)
        return fault(reason, type=f"T{a_name(dice, 60)}", message=a_text(dice, 5000), life=life, treated=True)

    def a_start(i: int) -> Start:
        at, reason = NOW + i * MINUTE, f"R{a_name(dice, 100)}"
        serials = SERIALS[: dice.choice((0, 8, 16))]
        return Start(at, a_name(dice, 64), reason, a_name(dice), serials, a_name(dice, 64))

    machine = Machine(
        "aws",
        a_name(dice, 64),
        f"aws:///{a_name(dice)}",
        a_name(dice),
        {key: a_name(dice, 100) for key in ("region", "asg", "endpoint")[: dice.randint(0, 3)]},
    )
    made = record(
        phase,
        node=a_name(dice),
        rule=a_name(dice, 63),
        machine=machine,
        faults=some(dice, a_fault, 60) or (a_fault(0),),
        acknowledged=some(dice, a_fault, 60),
        acknowledged_more="abcdef" * dice.choice((0, 20, MOST_DIGESTS)),
        starts=some(dice, a_start, 60),
        scopes=some(dice, lambda i: f"topology.kubernetes.io/{a_name(dice, 60)}={a_name(dice, 63)}", 8),
        replacement=a_name(dice),
        replacement_machine=a_name(dice, 64),
        tried=some(dice, lambda i: Step.REBOOT, 4),
        validate=Validation(a_name(dice, 100), MINUTE) if dice.random() < 0.3 else None,
        validation=ValidationRun(a_name(dice, 63), NOW) if dice.random() < 0.3 else None,
        release=ReleaseRequest(a_name(dice), NOW, a_text(dice, 3000)) if dice.random() < 0.3 else None,
        marks=Marks(cordoned=True, tainted=True),
        boot_confirmed=True,
        recovered_at=NOW,
        node_gone_since=NOW,
        progress=Progress(
            submitted=some(dice, lambda i: Attempt(i, "redeploy"), 30),
            boots=some(dice, lambda i: "b" * 36, 5),
            evidence=Evidence(1, NOW, a_text(dice, 1000)),
            step_since=NOW,
            proving_since=NOW,
            retry_at=NOW,
            taken_back=some(dice, lambda i: i, 30),
            taking_back=NOW,
            held=tuple(Held(cause, MINUTE) for cause in Cause),
            holding=Holding(Cause.PAUSE, NOW),
            accounted=NOW,
        ),
    )
    for attempt in range(dice.choice((0, 1, 8))):
        made = left_behind(replace(made, intent=any_intent(dice, attempt)))
    made = replace(made, intent=any_intent(dice, 9) if dice.random() < 0.7 else None)
    for _ in range(dice.choice((0, 3, 25))):
        made = note(made, NOW, "e", a_text(dice, 3000))  # type: ignore[arg-type]
    return replace(made, sentence=a_text(dice, 3000) or "s")


@pytest.mark.parametrize("phase", [p for p in Phase if not p.open])
def test_every_closed_record_fits(phase: Phase) -> None:
    """Whatever is on it, and also what several earlier calls left. The newest call that may come stays."""
    for seed in range(8):
        made = any_record(random.Random(f"{phase} {seed}"), phase)  # noqa: S311 - not a secret
        body = encode(made)
        assert size(body) <= CLOSED, f"seed {seed}"
        there = decode(json.loads(json.dumps(body)))
        assert bounded(there) == there, f"seed {seed}"
        may_come = [x.attempt for x in made.progress.left if x.attempt not in made.progress.taken_back]
        assert [x.attempt for x in there.progress.left][-1:] == may_come[-1:], f"seed {seed}"
        assert [x.at for x in there.starts][-1:] == [x.at for x in made.starts][-1:], f"seed {seed}"


def test_what_was_asked_of_a_large_group_and_left_takes_no_room() -> None:
    """A list of machines and a filter alike: neither is needed to take the request back."""
    for count in (2, 1_000):
        reference = Reference("fake", "replace", {"group": "g", KEY: pack(GROUP[:count])})
        made = record(Phase.RECOVERING, intent=replace(intent(), reference=reference))
        (asked,) = left_behind(made).progress.left
        assert asked.reference.data == {"group": "g"}


def test_a_record_that_fits_is_not_cut() -> None:
    for phase in Phase:
        made = record(phase, intent=intent(), starts=(Start(NOW, "m-0", "DMA"),), acknowledged=(fault(),))
        assert decode(encode(made)) == made


def test_what_repeat_offenders_need_goes_last() -> None:
    """Three starts with the serials of eight devices, and three faults that were dealt with."""
    starts = tuple(
        Start(NOW + x * MINUTE, "i-0123456789abcdef0", "R", "workers", SERIALS[:8]) for x in range(3)
    )
    dealt = tuple(fault(f"reason-{x}") for x in range(3))
    made = record(Phase.RECOVERED, starts=starts, acknowledged=dealt, faults=dealt)
    for _ in range(20):
        made = note(made, NOW, "e", "what happened " * 20)  # type: ignore[arg-type]
    there = decode(encode(made))
    assert there.starts == starts
    assert {*digests(there), *map(digest, there.acknowledged)} == set(map(digest, dealt))
    assert len(there.history) >= 1
    assert size(encode(made)) <= CLOSED


# ---------------------------------------------------------------- faults that were dealt with


def test_two_hundred_faults_that_were_dealt_with_are_all_known_again() -> None:
    dealt = tuple(fault(f"NeuronHasError_{x}") for x in range(200))
    there = decode(encode(record(Phase.RELEASED, acknowledged=dealt)))
    marks, whole = digests(there), set(there.acknowledged)
    assert all(f in whole or digest(f) in marks for f in dealt)
    assert encode(there)["status"]["version"] == FOURTH, "an older program would start all of them again"
    assert encode(record(Phase.RELEASED, acknowledged=dealt[:3]))["status"]["version"] == FIRST


def test_no_more_digests_are_kept_than_fit_and_the_newest_stay() -> None:
    dealt = tuple(fault(f"r{x}") for x in range(MOST_DIGESTS + 100))
    there = decode(encode(record(Phase.RELEASED, acknowledged=dealt)))
    assert len(digests(there)) <= MOST_DIGESTS
    assert there.acknowledged_more.endswith(digest(dealt[len(dealt) - len(there.acknowledged) - 1]))


def digests(r: Record) -> set[str]:
    more = r.acknowledged_more
    return {more[at : at + WIDTH] for at in range(0, len(more), WIDTH)}


def test_long_messages_are_cut_before_a_fault_is() -> None:
    def long(x: int) -> Fault:
        return fault(f"reason-{x}", message="m" * 4000)

    many = kept(map(long, range(20)))
    assert len(many) == 20
    assert kept(many) == many
    assert len(kept(fault("r" * 1000 + str(x)) for x in range(20))) in range(5, 10)
    assert len(kept([fault("r" * 20_000)])) == 1


# ---------------------------------------------------------------- the machines of a group


@pytest.mark.parametrize("count", [0, 1, 80, 100, 1_000, 5_000])
def test_a_known_machine_is_never_taken_for_a_new_one(count: int) -> None:
    group = [f"i-0{x:016x}" for x in range(count)]
    known = json.loads(json.dumps(pack(group)))
    assert all(has(known, machine) for machine in group)
    assert len(json.dumps(known)) <= 5_600
    assert isinstance(known, list) is (count < 100)


def test_a_new_machine_is_hardly_ever_taken_for_a_known_one() -> None:
    new = [f"i-1{x:016x}" for x in range(20_000)]
    for count, most in ((1_000, 5), (3_000, 200), (5_000, 1_600)):
        known = pack(f"i-0{x:016x}" for x in range(count))
        assert sum(has(known, machine) for machine in new) <= most


def test_uuids_of_machines_fit_as_well() -> None:
    group = [f"8f2c4c44-0000-4000-8000-{x:012x}" for x in range(1_000)]
    known = pack(group)
    assert pack(reversed(group)) == known, "the same for the same machines"
    assert isinstance(known, str)
    assert len(known) <= 5_600
