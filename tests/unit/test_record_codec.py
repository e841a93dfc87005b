"""The record as it is stored: whole, never pruned, and never a crash."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from recovery_testkit.kubestore import KubernetesStore

from recovery.decide.history import HISTORY, note
from recovery.decide.remembered import digest
from recovery.errors import Dropped, Undecodable
from recovery.model import (
    Attempt,
    Cause,
    Evidence,
    Fault,
    Held,
    Holding,
    Intent,
    IntentState,
    Kind,
    Marks,
    Outcome,
    Phase,
    Progress,
    Record,
    Reference,
    ReleaseRequest,
    Rung,
    Start,
    Step,
    Taint,
    Validation,
    ValidationRun,
)
from recovery.store import record_codec
from recovery.store.record import Records
from recovery.store.record_codec import ACKNOWLEDGED, FIFTH, MOST, STARTS, decode, encode
from recovery.units import duration, moment, parse_moment
from tests.builders.faults import fault
from tests.builders.nodes import MACHINE
from tests.builders.policies import LADDER
from tests.builders.records import intent, record
from tests.builders.rubbish import RUBBISH, paths, with_rubbish
from tests.builders.stores import store_with_crds
from tests.builders.times import HOUR, MINUTE, NOW, SECOND

COLLECTION = "/apis/noderecovery.dev/v1alpha1/noderecoveries"
KONDUKTOR = Taint("trainy.konduktor.ai/faulty", "true", "NoSchedule")
FULL = Record(
    node="ip-10-0-1-5.ec2.internal",
    phase=Phase.RECOVERING,
    machine=replace(MACHINE, route={"asg": "workers", "region": "eu-central-1"}),
    node_uid="uid-1",
    boot_id="boot-1",
    faults=(
        fault(
            counter=2.5,
            cleared=True,
            life="1763800000.5",
            quiet_since=NOW,
            treated=True,
            device="GPU 3",
            handed_over=True,
        ),
        fault("OOMKilling", type="", kind=Kind.EDGE, counter=None),
    ),
    phase_since=NOW + timedelta(microseconds=1),
    uid="u",
    resource_version="7",
    rule="neuron-hardware",
    ladder=(Rung(Step.TAINT, MINUTE, taint=KONDUKTOR), *LADDER),
    probation=timedelta(seconds=90, microseconds=500),
    after=10 * MINUTE,
    rung=1,
    rung_since=NOW,
    attempt=3,
    intent=replace(intent(IntentState.AMBIGUOUS), kernel_boot="boot-1"),
    replacement="ip-10-0-1-9",
    replacement_machine="m-9",
    marks=Marks(cordoned=True, tainted=True, out_of_service=True, taints=(KONDUKTOR,)),
    sentence="replace may or may not have been asked for",
    history=(Outcome(NOW, 2, "started", "recovery starts"), Outcome(NOW, 3, "intent", "about to")),
    starts=(Start(NOW, "m-0", "DMA", "workers", ("serial-1",)),),
    acknowledged=(fault(latched=False),),
    scopes=("fleet", "topology.kubernetes.io/zone=a"),
    validate=Validation("gpu-burn", 20 * MINUTE),
    validation=ValidationRun("nr-1", NOW),
    tried=(Step.REIMAGE,),
    progress=Progress(
        submitted=(Attempt(2, "reboot"), Attempt(3, "replace")),
        tries=2,
        boots=("boot-0",),
        evidence=Evidence(2, NOW, "reboot is proved by a new boot ID"),
        called_off=1,
        step_since=NOW,
        proving_since=NOW,
        retry_at=NOW + SECOND,
        left=(Intent("reboot", 2, "tok2", NOW, "i-1", "boot-1", Reference("aws", "reboot", {"group": "g"})),),
        taken_back=(1,),
        taking_back=NOW,
        held=(Held(Cause.PAUSE, 11 * MINUTE), Held(Cause.NOBODY, SECOND)),
        holding=Holding(Cause.BRAKE, NOW),
        accounted=NOW,
    ),
    recovered_at=NOW,
    node_gone_since=NOW,
    acknowledged_more="aB3dE9",
    boot_confirmed=True,
    release=ReleaseRequest("ada", NOW, "card reseated"),
    release_heard=True,
)
DEFAULTS = Record("n", Phase.SUSPECT, MACHINE, "", "", (fault(),), NOW)


def differs_everywhere(made: Any, plain: Any) -> list[str]:
    return [f.name for f in fields(made) if getattr(made, f.name) == getattr(plain, f.name)]


def test_the_record_of_these_tests_fills_every_field() -> None:
    same = differs_everywhere(FULL, DEFAULTS)
    assert same == []
    assert FULL.intent is not None
    assert all(getattr(FULL.intent, f.name) for f in fields(Intent))
    assert all(getattr(FULL.faults[0], f.name) for f in fields(Fault))
    assert all(getattr(FULL.progress, f.name) for f in fields(Progress))


@pytest.mark.parametrize("made", [FULL, DEFAULTS, record(), replace(FULL, intent=None, rung_since=None)])
def test_a_record_comes_back_as_it_went(made: Record) -> None:
    stored = replace(made, uid="u", resource_version="7")
    assert decode(json.loads(json.dumps(encode(stored)))) == stored


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("state", IntentState)
def test_every_phase_and_every_state_of_an_intent_comes_back(phase: Phase, state: IntentState) -> None:
    made = replace(FULL, phase=phase, intent=intent(state))
    assert decode(encode(made)) == made


@pytest.fixture
def store() -> KubernetesStore:
    return store_with_crds()


@pytest.mark.parametrize("made", [FULL, DEFAULTS])
def test_the_api_server_keeps_every_field_that_is_written(store: KubernetesStore, made: Record) -> None:
    body = encode(replace(made, uid="", resource_version=""))
    created = store.request("POST", COLLECTION, body=body)
    assert created.status == 201, created.body
    assert created.body["status"] == body["status"]
    found = store.request("GET", f"{COLLECTION}/{made.node}").body
    there = decode(found)
    assert there == replace(made, uid=there.uid, resource_version=there.resource_version)
    changed = encode(replace(there, attempt=9))
    assert store.request("PUT", f"{COLLECTION}/{made.node}", body=changed).body["status"] == changed["status"]


def test_the_api_server_prunes_what_the_schema_does_not_know(store: KubernetesStore) -> None:
    body = encode(replace(FULL, uid="", resource_version=""))
    body["status"]["unheardOf"] = 1
    assert "unheardOf" not in store.request("POST", COLLECTION, body=body).body["status"]


def test_the_longest_record_is_accepted(store: KubernetesStore) -> None:
    long = replace(FULL, uid="", resource_version="", history=(), node="n" * 253)
    for _ in range(HISTORY + 5):
        long = note(long, NOW, "e", "x" * 5000)
    long = replace(
        long,
        acknowledged=(fault(message="m" * 9000),) * (ACKNOWLEDGED + 5),
        starts=FULL.starts * (STARTS + 5),
    )
    answer = store.request("POST", COLLECTION, body=encode(long))
    assert answer.status == 201, answer.body


def test_what_is_remembered_is_bounded_and_the_newest_stays() -> None:
    made = FULL
    for at in range(HISTORY + 5):
        made = note(made, NOW + at * SECOND, "e", f"line {at}")
    assert [x.sentence for x in decode(encode(made)).history] == [f"line {x}" for x in range(5, HISTORY + 5)]
    assert made.sentence == f"line {HISTORY + 4}"
    many = tuple(fault(str(x)) for x in range(ACKNOWLEDGED + 5))
    there = decode(encode(replace(made, acknowledged=many)))
    assert there.acknowledged == many[5:]
    assert there.acknowledged_more == FULL.acknowledged_more + "".join(map(digest, many[:5]))


# ---------------------------------------------------------------- what cannot be read


def broken(path: str, value: Any) -> dict[str, Any]:
    return with_rubbish(encode(FULL), path, value)


def test_a_record_of_a_later_version_is_held_and_names_both_versions() -> None:
    why = "was written in version 6 of the record; this program understands versions up to 5"
    with pytest.raises(Undecodable, match=why):
        decode(broken("status.version", FIFTH + 1))


def test_a_record_that_is_larger_than_any_of_ours_is_held() -> None:
    why = f"NodeRecovery {FULL.node} is larger than {MOST} bytes: this program wrote no such record"
    for path, value in {
        "status.sentence": "x" * MOST,
        "status.intent.reference.data": {"x" * MOST: 1},
        "status.intent.reference.data.known": [{}] * (MOST // 8),
    }.items():
        with pytest.raises(Undecodable, match=why):
            decode(broken(path, value))
    assert decode(broken("status.sentence", "x" * (MOST // 2)))


def test_an_error_shows_no_more_of_a_value_than_a_person_reads() -> None:
    for path in ("status.phase", "status.phaseSince", "status.rung", "status.probation", "status.tried.0"):
        with pytest.raises(Undecodable) as caught:
            decode(broken(path, "x" * 4000))
        assert len(str(caught.value)) < 500, path


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("status", ..., "has no status"),
        ("status.version", ..., "status.version: is missing"),
        ("status.version", True, "status.version: found True"),
        ("metadata.name", ..., "metadata.name: is missing"),
        ("metadata", [], "metadata: found list, expected an object"),
        ("status.phase", ..., "status.phase: is missing"),
        ("status.phase", "thinking", "status.phase: found 'thinking', expected one of suspect, waiting"),
        ("status.phaseSince", ..., "status.phaseSince: is missing"),
        ("status.phaseSince", "yesterday", "status.phaseSince: found 'yesterday', expected a moment"),
        ("status.phaseSince", "2026-11-21T03:00:00", "has no time zone"),
        ("status.phaseSince", "0001-01-01T00:00:00+23:59", "is out of range"),
        ("status.faults", {}, "status.faults: found {}, expected list"),
        ("status.faults.0", 7, r"status.faults\[0\]: found int, expected an object"),
        ("status.faults.0.source", ..., r"status.faults\[0\].source: is missing"),
        ("status.faults.0.reason", None, r"status.faults\[0\].reason: is missing"),
        ("status.faults.0.kind", "wave", r"status.faults\[0\].kind: found 'wave'"),
        ("status.faults.0.counter", "many", r"status.faults\[0\].counter: found 'many'"),
        ("status.faults.0.latched", 1, r"status.faults\[0\].latched: found 1, expected bool"),
        ("status.ladder.1.do", "pray", r"status.ladder\[1\].do: found 'pray'"),
        ("status.ladder.1.within", "30m", r"status.ladder\[1\].within: found '30m', expected seconds"),
        ("status.ladder.1.within", "nans", "expected seconds"),
        ("status.ladder.1.within", "infs", "expected seconds"),
        ("status.ladder.1.then", ..., r"status.ladder\[1\].then: is missing"),
        ("status.rung", -1, "status.rung: found -1, expected at least 0"),
        ("status.rung", 0.5, "status.rung: found 0.5, expected int"),
        ("status.attempt", "3", "status.attempt: found '3', expected int"),
        ("status.attempt", True, "status.attempt: found True, expected int"),
        ("status.rungSince", 3, "status.rungSince: found 3, expected str"),
        ("status.intent", "soon", "status.intent: found str, expected an object"),
        ("status.intent.state", "maybe", "status.intent.state: found 'maybe'"),
        ("status.intent.attempt", ..., "status.intent.attempt: is missing"),
        ("status.intent.machine", ..., "status.intent.machine: is missing"),
        ("status.intent.reference", ..., "status.intent.reference: is missing"),
        ("status.intent.reference.provider", ..., "status.intent.reference.provider: is missing"),
        ("status.intent.reference.data", [], r"status.intent.reference.data: found \[\], expected dict"),
        ("status.marks", True, "status.marks: found bool, expected an object"),
        ("status.marks.cordoned", "yes", "status.marks.cordoned: found 'yes', expected bool"),
        ("status.machine", "m-0", "status.machine: found str, expected an object"),
        ("status.machine.route", "x", "status.machine.route: found 'x', expected dict"),
        ("status.history.0.at", ..., r"status.history\[0\].at: is missing"),
        ("status.starts.0", None, r"status.starts\[0\]: found NoneType"),
        ("status.acknowledged.0.since", "x", r"status.acknowledged\[0\].since: found 'x'"),
        ("status.faults", [], "status.faults: an open record names no fault"),
        ("status.scopes", "fleet", "status.scopes: found 'fleet', expected list"),
    ],
)
def test_what_cannot_be_understood_is_named(path: str, value: Any, why: str) -> None:
    with pytest.raises(Undecodable, match=why):
        decode(broken(path, value))


@pytest.mark.parametrize("path", paths(encode(FULL)))
def test_rubbish_in_a_field_is_never_a_crash(path: str) -> None:
    for value in RUBBISH:
        with contextlib.suppress(Undecodable):
            decode(broken(path, value))


@pytest.mark.parametrize("obj", [{}, {"metadata": {}}, {"metadata": None, "status": None}, {"status": 7}])
def test_an_object_that_is_no_record_is_not_a_crash(obj: dict[str, Any]) -> None:
    with pytest.raises(Undecodable):
        decode(obj)


# ---------------------------------------------------------------- moments and durations


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(0), "0s"),
        (10 * MINUTE, "600s"),
        (timedelta(milliseconds=500), "0.5s"),
        (timedelta(days=30), "2592000s"),
        (timedelta(hours=3, microseconds=1), "10800.000001s"),
    ],
)
def test_a_duration_is_written_exactly(value: timedelta, text: str) -> None:
    assert duration(value) == text


def test_a_moment_is_written_in_utc_whatever_its_zone() -> None:
    there = datetime.fromisoformat("2026-11-21T04:00:00.250+01:00")
    assert moment(there) == "2026-11-21T03:00:00.250000Z"
    assert parse_moment(moment(there)) == NOW + timedelta(milliseconds=250)
    assert parse_moment("2026-11-21T03:00:00Z").tzinfo is UTC


def test_a_missing_time_limit_of_an_intent_is_the_usual_one() -> None:
    made = decode(broken("status.intent.callTimeout", ...))
    assert made.intent is not None
    assert made.intent.call_timeout == 10.0


def test_a_rung_beyond_the_ladder_is_no_step() -> None:
    assert replace(FULL, rung=3, phase_since=NOW + HOUR).step is None


class Shelf:
    """One record, as the API server gives it: a copy each time."""

    def __init__(self) -> None:
        self.body = encode(FULL)

    def get_record(self, node: str) -> dict[str, Any]:
        return dict(json.loads(json.dumps(self.body)))

    def create_record(self, body: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def replace_record(self, body: dict[str, Any]) -> dict[str, Any]:
        self.body = body
        return self.get_record("")


def test_a_record_that_fits_is_encoded_once_for_each_write(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, made, status_of = Shelf(), [], record_codec._status

    def counted(r: Record) -> dict[str, Any]:
        made.append(r)
        return status_of(r)

    monkeypatch.setattr(record_codec, "_status", counted)
    shelf.body["metadata"]["resourceVersion"] = "7"
    Records(shelf).write(replace(FULL, resource_version="7", uid="u"))
    assert len(made) == 1


def test_a_record_is_decoded_again_only_when_anything_in_it_has_changed() -> None:
    shelf = Shelf()
    records = Records(shelf)
    first = records.read(FULL.node)
    assert first == decode(shelf.body)
    assert records.read(FULL.node) is first
    shelf.body["status"]["attempt"] = 4  # under the same resourceVersion, as after a restored backup
    second = records.read(FULL.node)
    assert second is not None
    assert second.attempt == 4
    assert records.write(replace(second, attempt=5)).attempt == 5
    del shelf.body["status"]["phase"]
    for _ in range(2):
        with pytest.raises(Undecodable, match="phase"):
            records.read(FULL.node)


# ---------------------------------------------------------------- agents of before


@pytest.mark.parametrize(
    "said",
    [
        {"validate": Validation("c", MINUTE)},
        {"validation": ValidationRun("j", NOW)},
        {"tried": (Step.REBOOT,)},
        {"marks": Marks(out_of_service=True)},
    ],
    ids=lambda said: next(iter(said)),
)
def test_what_an_agent_of_before_would_write_away_makes_it_hold_the_record(said: dict[str, Any]) -> None:
    """It knows version 1, and says of any other that it touches nothing."""
    made = encode(replace(DEFAULTS, **said))
    assert made["status"]["version"] == 2
    assert decode(made) == replace(DEFAULTS, **said)


@pytest.mark.parametrize(
    "said",
    [{"marks": Marks(taints=(KONDUKTOR,))}, {"ladder": (Rung(Step.TAINT, MINUTE, taint=KONDUKTOR),)}],
    ids=lambda said: next(iter(said)),
)
def test_a_taint_that_a_remedy_names_makes_an_agent_of_before_hold_the_record(said: dict[str, Any]) -> None:
    """It would leave the taint on the node for ever."""
    made = encode(replace(DEFAULTS, **said))
    assert made["status"]["version"] == FIFTH
    assert decode(made) == replace(DEFAULTS, **said)


def test_a_record_that_says_nothing_new_is_as_it_was_before() -> None:
    assert encode(DEFAULTS)["status"]["version"] == 1


# ---------------------------------------------------------------- what a server does not keep


class Pruning:
    """A server whose CRD lacks a field."""

    def __init__(self, *path: str) -> None:
        self.path = path

    def list_records(self, selector: str = "") -> list[dict[str, Any]]:
        raise NotImplementedError

    def get_record(self, node: str) -> dict[str, Any]:
        return encode(FULL)

    def create_record(self, body: dict[str, Any]) -> dict[str, Any]:
        kept = copy.deepcopy(body)
        inner: Any = kept["status"]
        for key in self.path[:-1]:
            inner = inner[int(key)] if key.isdigit() else inner[key]
        inner.pop(self.path[-1], None)
        kept["metadata"] |= {"uid": "u", "resourceVersion": "8"}
        return kept

    replace_record = create_record


@pytest.mark.parametrize(
    "path", ["validate", "marks.outOfService", "starts.0.hardware", "tried", "progress.submitted"]
)
def test_a_server_that_drops_what_it_is_given_is_an_error_that_names_it(path: str) -> None:
    told = path.replace(".0.", "[0].")
    with pytest.raises(
        Dropped, match=re.escape(f"dropped status.{told} of NodeRecovery {FULL.node}: its CRDs")
    ):
        Records(Pruning(*path.split("."))).write(FULL)


def test_a_field_that_says_nothing_is_no_loss() -> None:
    assert Records(Pruning("tried")).write(DEFAULTS).tried == ()


def test_a_number_that_no_float_can_hold_is_held_by_name() -> None:
    with pytest.raises(
        Undecodable, match=r"status\.faults\[0\]\.counter: found a number of more than 300 digits"
    ):
        decode(with_rubbish(encode(FULL), "status.faults.0.counter", 10**400))
