"""The manifests under deploy/: what an API server would refuse, and what it would silently drop.

A server prunes every field that a schema does not name, so a field that the codec writes and the CRD lacks
is a memory that is lost without an error. That is why the codec's fullest objects are laid beside the schema.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from recovery_testkit.kubeschema import settle, violations

from recovery.decide import budget, remembered, room
from recovery.decide.decision import WriteRecord
from recovery.decide.orphan import conclude
from recovery.decide.situation import Role
from recovery.model import (
    GROUP,
    VERSION,
    Attempt,
    Cause,
    Census,
    Claim,
    Evidence,
    Fault,
    Gate,
    GroupStart,
    Held,
    Holding,
    Intent,
    IntentState,
    Kind,
    Line,
    Machine,
    Marks,
    Outcome,
    Phase,
    Progress,
    Record,
    Reference,
    ReleaseRequest,
    Rung,
    Slot,
    Start,
    Step,
    Taint,
    Then,
    Validation,
    ValidationRun,
)
from recovery.store import gate as gates
from recovery.store import record_codec as records
from tests.builders.gates import gate, slot
from tests.builders.manifests import CRDS, DEPLOY, crd, documents, manifest
from tests.builders.nodes import node
from tests.builders.situations import situation

KUSTOMIZATIONS = sorted(DEPLOY.rglob("kustomization.yaml"))
AT = datetime(2026, 11, 21, 10, 15, 0, 250_000, tzinfo=UTC)


def resources(kustomization: Path) -> list[str]:
    (found,) = documents(kustomization)
    listed: list[str] = found.get("resources", [])
    return listed


FILES = sorted(k.parent / name for k in KUSTOMIZATIONS for name in resources(k) if name.endswith(".yaml"))


def relative(path: Path) -> str:
    return str(path.relative_to(DEPLOY))


def schema_of(plural: str) -> dict[str, Any]:
    schema: dict[str, Any] = crd(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


# ---------------------------------------------------------------- every manifest


def test_the_patch_in_the_docs_adds_a_key_where_the_policy_lists_them() -> None:
    """docs/security.md names the variable by its place, since a JSON patch cannot by its name."""
    (nodes,) = [
        d
        for d in documents(DEPLOY / "rbac" / "admission.yaml")
        if d["kind"] == "ValidatingAdmissionPolicy" and d["metadata"]["name"].endswith("-nodes")
    ]
    said = (DEPLOY.parent / "docs" / "security.md").read_text()
    (place,) = [i for i, each in enumerate(nodes["spec"]["variables"]) if each["name"] == "taintKeys"]
    assert f"path: /spec/variables/{place}/expression" in said
    assert f"path: /spec/variables/{place}/name" in said


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_a_manifest_is_valid_for_the_newest_kubernetes_we_have_schemas_of(path: Path) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=relative)
def test_a_kustomization_lists_each_of_its_files_once_and_nothing_else(path: Path) -> None:
    listed = resources(path)
    missing = [name for name in listed if not (path.parent / name).exists()]
    assert missing == []
    assert len(listed) == len(set(listed))
    named = path.read_text()
    left_out = [p.name for p in path.parent.glob("*.yaml") if p != path and p.name not in named]
    assert left_out == [], "`kubectl apply -k` would leave these out"


def test_there_are_manifests_to_look_at() -> None:
    folders = {relative(p.parent) for p in KUSTOMIZATIONS}
    assert {
        "crds",
        "rbac",
        "concluder",
        "joined",
        "eks-neuron",
        "eks-neuron/agents",
        "eks-neuron/irsa",
        "eks-neuron/policy",
    } <= folders
    assert {"aks-gpu", "aks-gpu/policy", "options/checkpoint", "options/validation"} <= folders
    powers = {f"baremetal/components/{name}" for name in ("kured", "metal3", "redfish", "power", "policy")}
    assert {"baremetal", *powers} <= folders
    assert len(FILES) >= 12


# ---------------------------------------------------------------- CRDs


@pytest.mark.parametrize("plural", CRDS)
def test_a_crd_is_named_as_the_design_promises(plural: str) -> None:
    found = crd(plural)
    spec, names = found["spec"], found["spec"]["names"]
    kind, short = {
        "noderecoveries": ("NodeRecovery", "nr"),
        "recoverygates": ("RecoveryGate", "rg"),
        "recoveryreports": ("RecoveryReport", "rr"),
    }[plural]
    assert found["metadata"]["name"] == f"{plural}.{GROUP}"
    assert (spec["group"], spec["scope"]) == (GROUP, "Cluster")
    assert (names["kind"], names["plural"], names["shortNames"]) == (kind, plural, [short])
    assert [v["name"] for v in spec["versions"]] == [VERSION]


@pytest.mark.parametrize("plural", CRDS)
def test_one_put_writes_the_whole_object_so_there_is_no_status_subresource(plural: str) -> None:
    assert "subresources" not in crd(plural)["spec"]["versions"][0]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in ``schema``, itself included, with its path."""
    yield path or ".", schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


WORDS = {
    *("type", "description", "required", "properties", "additionalProperties", "items", "enum", "nullable"),
    *("minimum", "maxLength", "maxItems", "maxProperties"),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
    "x-kubernetes-map-type",  # atomic: managedFields, which everybody reads too, do not list each key
}


@pytest.mark.parametrize("plural", CRDS)
def test_a_crds_schema_is_structural(plural: str) -> None:
    wrong = []
    for path, schema in nodes(schema_of(plural)):
        kind = schema.get("type")
        if kind not in ("object", "array", "string", "integer", "number", "boolean"):
            wrong.append(f"{path}: has no type")
        if unknown := schema.keys() - WORDS:
            wrong.append(f"{path}: says {sorted(unknown)}, which this test has not weighed")
        if "properties" in schema and "additionalProperties" in schema:
            wrong.append(f"{path}: properties and additionalProperties exclude each other")
        if ("properties" in schema or "additionalProperties" in schema) and kind != "object":
            wrong.append(f"{path}: has properties and is no object")
        if (kind == "array") != ("items" in schema):
            wrong.append(f"{path}: an array, and only an array, has items")
        if schema.get("x-kubernetes-preserve-unknown-fields") not in (None, True):
            wrong.append(f"{path}: x-kubernetes-preserve-unknown-fields can only be true")
        if "x-kubernetes-preserve-unknown-fields" in schema and kind != "object":
            wrong.append(f"{path}: only an object preserves unknown fields")
        if absent := set(schema.get("required", ())) - schema.get("properties", {}).keys():
            wrong.append(f"{path}: requires {sorted(absent)}, which it would prune")
    assert wrong == []


@pytest.mark.parametrize("plural", CRDS)
def test_everything_in_a_crd_has_a_bound(plural: str) -> None:
    bounds = {"string": ("maxLength", "enum"), "array": ("maxItems",)}
    unbounded = [
        path
        for path, schema in nodes(schema_of(plural))
        if path not in (".apiVersion", ".kind")
        and (
            (schema["type"] in bounds and not any(word in schema for word in bounds[schema["type"]]))
            or ("additionalProperties" in schema and "maxProperties" not in schema)
        )
    ]
    assert unbounded == []


@pytest.mark.parametrize("plural", CRDS)
def test_only_a_providers_own_data_escapes_pruning(plural: str) -> None:
    free = [p for p, s in nodes(schema_of(plural)) if s.get("x-kubernetes-preserve-unknown-fields")]
    data = [".status.intent.reference.data", ".status.progress.left[].reference.data"]
    assert free == (data if plural == "noderecoveries" else [])


@pytest.mark.parametrize("plural", CRDS)
def test_every_field_of_a_crd_is_explained(plural: str) -> None:
    """`kubectl explain` is the documentation that is at hand at 3 a.m."""
    silent = [
        path
        for path, schema in nodes(schema_of(plural))
        if "description" not in schema
        and not path.endswith(("[]", "{}"))
        and path not in (".apiVersion", ".kind", ".metadata")
    ]
    assert silent == []


def test_enums_of_the_crd_are_those_of_the_vocabulary() -> None:
    status = schema_of("noderecoveries")["properties"]["status"]["properties"]
    rung = status["ladder"]["items"]["properties"]
    assert status["phase"]["enum"] == [p.value for p in Phase]
    assert status["intent"]["properties"]["state"]["enum"] == [s.value for s in IntentState]
    assert rung["do"]["enum"] == [s.value for s in Step]
    assert rung["then"]["enum"] == [t.value for t in Then]
    for faults in ("faults", "acknowledged"):
        assert status[faults]["items"]["properties"]["kind"]["enum"] == [k.value for k in Kind]


def test_a_record_with_as_much_history_as_the_codec_keeps_is_accepted() -> None:
    status = schema_of("noderecoveries")["properties"]["status"]["properties"]
    assert status["history"]["maxItems"] == records.HISTORY
    assert status["starts"]["maxItems"] >= records.STARTS
    assert status["acknowledged"]["maxItems"] >= records.ACKNOWLEDGED
    gate = schema_of("recoverygates")["properties"]["status"]["properties"]
    assert gate["starts"]["maxItems"] >= budget.STARTS
    assert gate["replacementsClaimed"]["maxItems"] >= budget.CLAIMS


# ---------------------------------------------------------------- what the codec writes


def fault(counter: float | None) -> Fault:
    return Fault(
        source="npd",
        type="NeuronHealth",
        reason="NeuronHasError_DMA_ERROR",
        message="NEURON_HW_ERR=DMA_ERROR",
        since=AT,
        machine="i-0abc",
        boot_id="b-1",
        counter=counter,
        latched=True,
        life="1763800000.5",
        quiet_since=AT,
        handed_over=True,
        treated=True,
        device="GPU 3",
    )


KONDUKTOR = Taint("trainy.konduktor.ai/faulty", "true", "NoSchedule")
FULL_RECORD = Record(
    node="ip-10-0-1-5.ec2.internal",
    phase=Phase.RECOVERING,
    machine=Machine("aws", "i-0abc", "aws:///us-east-1a/i-0abc", "trn-group", {"region": "us-east-1"}),
    node_uid="u-1",
    boot_id="b-1",
    faults=(fault(3.0), fault(None)),
    phase_since=AT,
    rule="neuron-hardware",
    ladder=(
        Rung(Step.TAINT, timedelta(minutes=15), taint=KONDUKTOR),
        Rung(Step.DRAIN, timedelta(minutes=10), Then.FORCE),
        Rung(Step.REPLACE, timedelta(minutes=30)),
    ),
    probation=timedelta(minutes=2),
    after=timedelta(seconds=0.5),
    rung=2,
    rung_since=AT,
    attempt=1,
    intent=Intent(
        action="replace",
        attempt=1,
        token="t-1",  # noqa: S106
        at=AT,
        machine="i-0abc",
        boot_id="b-1",
        kernel_boot="b-1",
        reference=Reference("aws", "replace", {"group": "trn-group", "before": ["i-0abc"], "wanted": 2}),
    ),
    replacement="ip-10-0-1-6.ec2.internal",
    replacement_machine="i-0def",
    marks=Marks(cordoned=True, tainted=True, out_of_service=True, taints=(KONDUKTOR,)),
    sentence="replacing i-0abc: NeuronHasError_DMA_ERROR",
    history=(Outcome(AT, 1, "started", "drained in 12 s"),),
    starts=(Start(AT, "i-0abc", "NeuronHasError_DMA_ERROR", "trn-group", ("GPU-1",), "i-0def"),),
    acknowledged=(fault(2.0),),
    scopes=("fleet", "topology.kubernetes.io/zone=us-east-1a"),
    validate=Validation("node-validation", timedelta(minutes=20)),
    validation=ValidationRun("node-recovery-1", AT),
    tried=(Step.REBOOT,),
    progress=Progress(
        submitted=(Attempt(1, "replace"),),
        tries=1,
        boots=("b-0",),
        evidence=Evidence(1, AT, "i-0abc is gone"),
        called_off=1,
        step_since=AT,
        proving_since=AT,
        retry_at=AT,
        left=(
            Intent(
                action="reboot",
                attempt=1,
                token="t-0",  # noqa: S106
                at=AT,
                machine="i-0abc",
                boot_id="b-0",
                kernel_boot="b-0",
                reference=Reference("aws", "reboot", {"region": "us-east-1"}),
            ),
        ),
        taken_back=(1,),
        taking_back=AT,
        held=(Held(Cause.PAUSE, timedelta(minutes=11)),),
        holding=Holding(Cause.BRAKE, AT),
        accounted=AT,
    ),
    recovered_at=AT,
    node_gone_since=AT,
    acknowledged_more="aB3dE9",
    boot_confirmed=True,
    release=ReleaseRequest("ada", AT, "card reseated"),
    release_heard=True,
)

FULL_GATE = Gate(
    uid="g-1",
    resource_version="",
    stamp="g-1",
    open=(Line("a", "u-1", AT),),
    slots=(
        Slot("a", "u-1", 1, ("fleet", "zone=a"), AT, {"zone": "a", "pool": None}, "i-0abc", "trn-group"),
        Slot("b", "u-2", 1, ("fleet",), AT, None, "i-0def", "trn-group"),
    ),
    last_start=AT,
    starts=(GroupStart(AT, "a", "trn-group", "i-0abc", "NeuronHasError_DMA_ERROR", ("GPU-1",)),),
    census=Census(AT, 10, ("a",), {"node.kubernetes.io/instance-type=trn1.32xlarge": (1, 4)}, seconds=3),
    claimed=(Claim("i-0def", "i-0abc"),),
)

CENSUS_OF_SOME = Census(AT, 8, ("a",), {"zone=a": (1, 4)}, seconds=3, of='{"pool":"gpu*"}', outside=(1, 20))
SELECTED_GATE = replace(FULL_GATE, census=CENSUS_OF_SOME)
PAUSE = {"pause": {"owner": "ops", "reason": "a long training run ends tonight", "until": "whenever it ends"}}


@pytest.mark.parametrize(
    ("plural", "written"),
    [
        pytest.param("noderecoveries", records.encode(FULL_RECORD), id="a full record"),
        pytest.param(
            "noderecoveries",
            records.encode(Record("n", Phase.SUSPECT, Machine("aws", "i-1"), "", "", (), AT)),
            id="the smallest record",
        ),
        pytest.param("recoverygates", gates.encode(FULL_GATE, PAUSE), id="a full, paused gate"),
        pytest.param("recoverygates", gates.encode(SELECTED_GATE, {}), id="a census of some nodes"),
        pytest.param("recoverygates", gates.encode(Gate("", "", ""), {}), id="a new gate"),
    ],
)
def test_a_server_keeps_every_field_that_the_codec_writes(plural: str, written: dict[str, Any]) -> None:
    schema = schema_of(plural)
    kept, pruned = settle(schema, written)
    assert violations(schema, kept) == []
    assert pruned == []


def test_what_the_codec_wrote_last_is_what_a_server_gives_back() -> None:
    kept, _ = settle(schema_of("noderecoveries"), records.encode(FULL_RECORD))
    assert records.decode(kept) == FULL_RECORD


def missing(schema: dict[str, Any], written: Any, path: str = "") -> Iterator[str]:
    """Fields that the schema names and ``written`` does not hold anywhere."""
    samples = written if isinstance(written, list) else [written]
    for name, child in schema.get("properties", {}).items():
        values = [s[name] for s in samples if isinstance(s, dict) and name in s]
        if not values:
            yield f"{path}.{name}"
        below = [v for value in values for v in (value if isinstance(value, list) else [value])]
        inner = child.get("items", child)
        if isinstance(inner.get("additionalProperties"), dict):
            inner, below = (
                inner["additionalProperties"],
                [v for b in below if isinstance(b, dict) for v in b.values()],
            )
        yield from missing(inner, below, f"{path}.{name}")


def test_the_schema_names_no_field_that_the_codec_never_writes() -> None:
    record = schema_of("noderecoveries")["properties"]["status"]
    gate = schema_of("recoverygates")["properties"]["status"]
    assert list(missing(record, records.encode(FULL_RECORD)["status"])) == []
    written = gates.encode(FULL_GATE, PAUSE)["status"] | gates.encode(SELECTED_GATE, {})["status"]
    assert list(missing(gate, written)) == []


@pytest.mark.parametrize("until", ["", "tomorrow", "2026-11-21T10:15:00Z", "２１日", " "])
def test_a_pause_is_accepted_whatever_its_end_says(until: str) -> None:
    """An unreadable end is a pause without end: it may not be lost on the way."""
    schema = schema_of("recoverygates")
    kept, pruned = settle(schema, gates.encode(FULL_GATE, {"pause": {"until": until}}))
    assert (violations(schema, kept), pruned) == ([], [])
    pause = gates.read_pause(kept["spec"])
    assert pause is not None
    assert pause.until is None or until.startswith("2026")


# ---------------------------------------------------------------- RBAC


def rbac() -> list[dict[str, Any]]:
    """What is granted wherever this is installed: to the agents, and to the concluder."""
    return [d for path in FILES if path.parent.name in ("rbac", "concluder") for d in documents(path)]


def test_no_role_grants_everything_of_anything() -> None:
    rules = [rule for d in rbac() for rule in d.get("rules", ())]
    assert rules
    for rule in rules:
        for words in (rule["apiGroups"], rule["resources"], rule["verbs"]):
            assert "*" not in words, rule


def test_a_binding_binds_a_role_and_an_account_that_ship_with_it() -> None:
    shipped = {(d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in rbac()}
    bindings = [d for d in rbac() if "roleRef" in d]
    assert len(bindings) == 4
    for binding in bindings:
        namespace = binding["metadata"].get("namespace")
        assert (binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]) in shipped
        for subject in binding["subjects"]:
            assert (subject["kind"], subject["namespace"], subject["name"]) in shipped
            assert ("Namespace", None, subject["namespace"]) in shipped


POLICIES: dict[Path, str] = runpy.run_path(str(DEPLOY / "admission.py"))["rendered"]()


def test_the_policies_know_the_layouts_and_the_fields_that_the_program_writes() -> None:
    said = runpy.run_path(str(DEPLOY / "admission.py"))
    assert (said["RECORD_VERSION"], said["GATE_VERSION"]) == (records.FIFTH, gates.CODEC)
    schema = crd("noderecoveries")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert {*said["CONCLUDED"], *said["LOST_FIELDS"]} <= set(schema["properties"]["status"]["properties"])
    assert said["RECORD_COUNTS"] == {
        "faults": room.MOST_FAULTS,
        "acknowledged": remembered.MOST_KEPT,
        "starts": records.STARTS,
    }


def test_the_policies_let_every_field_of_a_lost_record_pass_that_who_sees_its_slot_writes() -> None:
    said = runpy.run_path(str(DEPLOY / "admission.py"))
    taken = replace(slot("node-0", "record-1"), machine="m-0", provider_id="fake:///workers/m-0")
    for there in (node(), None):
        seen = situation(record=None, node=there, role=Role.CONCLUDER, gate=gate(slots=(taken,)))
        effect = conclude(seen).effect
        assert isinstance(effect, WriteRecord)
        status = records.encode(effect.record)["status"]
        written = {field for field, value in status.items() if value not in ([], {}, "", 0, "0s")}
        assert "scopes" in written
        assert written <= set(said["LOST_FIELDS"])


def test_from_outside_nothing_of_the_pods_is_reached_but_the_port_of_metrics_and_probes() -> None:
    guard, concluders = (
        manifest(DEPLOY / folder / "networkpolicy.yaml")["spec"] for folder in ("rbac", "concluder")
    )
    assert guard == concluders
    (rule,) = guard["ingress"]
    assert guard["policyTypes"] == ["Ingress"]
    workloads = [DEPLOY / "concluder" / "deployment.yaml"]
    for installation in ("eks-neuron", "aks-gpu", "baremetal"):
        assert "../concluder" in manifest(DEPLOY / installation / "kustomization.yaml")["resources"]
        agents = DEPLOY / installation / "agents"
        assert "../../rbac" in manifest(agents / "kustomization.yaml")["resources"]
        workloads.append(agents / "daemonset.yaml")
    for file in workloads:
        pod = manifest(file)["spec"]["template"]
        assert guard["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items(), file
        assert not pod["spec"].get("hostNetwork"), f"{file}: no network policy would guard it"
        ports = {port["containerPort"] for c in pod["spec"]["containers"] for port in c.get("ports", ())}
        assert [{"protocol": "TCP", "port": port} for port in ports] == rule["ports"], file


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_the_admission_policies_are_what_their_one_source_says(path: Path) -> None:
    assert path.read_text() == POLICIES[path], "run: python deploy/admission.py and deploy/helm/render.py"
