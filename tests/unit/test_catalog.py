"""What is known of faults and of other remediators: well-formed, and never more than its source says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery.catalog import (
    Claim,
    claim_by_events,
    claims,
    event_claims,
    faults,
    foreign_claim,
    lookup,
    types,
)
from recovery.kube.views import event_view, node_view
from recovery.model import CORDONED_BY, EXCLUDE, TAINT, CatalogueRow, NodeEvent, NodeView, Step, Then
from tests.builders.nodes import node, ready_since

NODE = "ip-10-0-1-5"


def worn(claim: Claim, value: str) -> NodeView:
    key = claim.key.replace("/*", "/anything")
    if claim.kind == "taint":
        return node(NODE, taints=((key, value, "NoSchedule"),))
    return node(NODE, **{f"{claim.kind}s": {key: value}})


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("row", faults(), ids=lambda row: f"{row.type}/{row.reason}")
def test_every_fault_says_why_and_who_says_so(row: CatalogueRow) -> None:
    assert row.reason
    assert row.why.endswith(".")
    assert "\n" not in row.why
    assert row.source.startswith("https://") or row.source == "this program"


def test_every_fault_is_known_once() -> None:
    keys = [(row.type, row.reason) for row in faults()]
    assert len(keys) == len(set(keys))


def test_what_is_not_this_nodes_fault_is_only_told() -> None:
    for row in faults():
        if not row.this_node:
            assert row.remedy is not None
            assert [rung.do for rung in row.remedy] == [Step.NOTIFY]


def test_only_faults_of_neurons_hardware_and_of_gpus_have_a_remedy_that_destroys() -> None:
    destroyed = [row for row in faults() for rung in row.remedy or () if rung.do.provider_action]
    assert {row.reason for row in destroyed if row.type.startswith("Neuron")} == {
        "NeuronHasError_SRAM_UNCORRECTABLE_ERROR",
        "NeuronHasError_NC_UNCORRECTABLE_ERROR",
        "NeuronHasError_HBM_UNCORRECTABLE_ERROR",
        "NeuronHasError_DMA_ERROR",
    }
    assert {row.type for row in destroyed if not row.type.startswith("Neuron")} == {
        *("GpuHang", "GpuEcc", "GpuRowRemapPending", "GpuRowRemapFailed", "GpuNvlink", "GpuXid", "NvSwitch"),
        *("GpuRecoveryReset", "GpuRecoveryReboot", "GpuRecoveryDrainAndReset", "FabricManagerDown"),
    }


def test_a_remedy_drains_before_it_replaces() -> None:
    row = lookup("NeuronHealth", "NeuronHasError_DMA_ERROR")
    assert row is not None
    assert row.remedy is not None
    assert [rung.do for rung in row.remedy] == [Step.DRAIN, Step.REPLACE]
    assert row.remedy[0].then is Then.FORCE


def test_an_edge_is_looked_up_without_a_type() -> None:
    edge = lookup("", "UnregisterNetDevice")
    level = lookup("FrequentUnregisterNetDevice", "UnregisterNetDevice")
    assert edge is not None
    assert level is not None
    assert edge != level


def test_a_fault_that_nobody_described_is_not_known() -> None:
    assert lookup("NeuronHealth", "NeuronHasError_OTHER") is None
    assert lookup("", "NeuronHasError_DMA_ERROR") is None


@pytest.mark.parametrize(
    ("type", "reason"),
    [("IbDev", "IbDevBad"), ("IbDev", "IbPortDown"), ("IbLinkFlapping", "IbLinkFlapping")],
)
def test_an_infiniband_link_is_never_a_reason_to_reboot(type: str, reason: str) -> None:
    row = lookup(type, reason)
    assert row is not None
    assert row.remedy is not None
    assert [rung.do for rung in row.remedy] == [Step.CORDON]


def test_types_are_those_of_conditions() -> None:
    assert {"NeuronHealth", "KernelDeadlock", "ReadonlyFilesystem", "SignalUnknown"} <= types()
    assert "" not in types()


@pytest.mark.parametrize(
    ("type", "reason"),
    [
        ("KernelDeadlock", "DockerHung"),
        ("XfsShutdown", "XfsHasShutdown"),
        ("CperHardwareErrorFatal", "CperHardwareErrorFatal"),
        ("ReadonlyFilesystem", "FilesystemIsReadOnly"),
        ("CorruptDockerOverlay2", "CorruptDockerOverlay2"),
        ("KubeletUnhealthy", "KubeletUnhealthy"),
        ("ContainerRuntimeUnhealthy", "ContainerdUnhealthy"),
        ("ContainerRuntimeUnhealthy", "DockerUnhealthy"),
        ("FrequentKubeletRestart", "FrequentKubeletRestart"),
        ("FrequentDockerRestart", "FrequentDockerRestart"),
        ("FrequentContainerdRestart", "FrequentContainerdRestart"),
        ("FrequentUnregisterNetDevice", "UnregisterNetDevice"),
        ("NTPProblem", "NTPIsDown"),
        *[("", reason) for reason in ("OOMKilling", "TaskHung", "KernelOops", "Ext4Error", "Ext4Warning")],
        *[("", reason) for reason in ("IOError", "MemoryReadError", "ConntrackFull", "DNSUnreachable")],
        *[("", f"CperHardwareError{grade}") for grade in ("Corrected", "Recoverable")],
    ],
)
def test_what_node_problem_detector_finds_by_default_is_told(type: str, reason: str) -> None:
    row = lookup(type, reason)
    assert row is not None
    assert row.remedy is not None
    assert [rung.do for rung in row.remedy] == [Step.NOTIFY]


# ---------------------------------------------------------------- claims


def test_nobody_claims_a_plain_node() -> None:
    assert foreign_claim(node()) is None


def test_our_own_marks_are_no_claim() -> None:
    ours = node(labels={EXCLUDE: "true"}, annotations={CORDONED_BY: "x"}, taints=((TAINT, "", "NoSchedule"),))
    assert foreign_claim(ours) is None


def test_a_cordon_and_a_sick_nodes_taints_are_no_claim() -> None:
    keys = ("unschedulable", "not-ready", "unreachable", "disk-pressure")
    taints = tuple((f"node.kubernetes.io/{key}", "", "NoSchedule") for key in keys)
    assert foreign_claim(node(unschedulable=True, taints=taints)) is None


def test_other_systems_signals_are_no_claim() -> None:
    taints = (("trainy.konduktor.ai/faulty", "true", "NoSchedule"), ("aznhc", "failed", "NoSchedule"))
    assert foreign_claim(node(NODE, taints=taints, labels={"autopilot.ibm.com/gpuhealth": "EVICT"})) is None


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: f"{claim.system}: {claim.key}")
def test_each_mark_is_a_claim_and_says_whose(claim: Claim) -> None:
    value = min(claim.values) if claim.values else "x"
    sentence = foreign_claim(worn(claim, value))
    assert sentence is not None
    assert sentence.startswith(f"{claim.system} holds ip-10-0-1-5 ({claim.kind} {claim.key.rstrip('*')}")


@pytest.mark.parametrize(
    "claim", [claim for claim in claims() if claim.values], ids=lambda claim: f"{claim.system}: {claim.key}"
)
def test_a_mark_with_another_value_is_no_claim(claim: Claim) -> None:
    assert foreign_claim(worn(claim, "something-else")) is None


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: f"{claim.system}: {claim.key}")
def test_every_claim_says_what_it_means_and_who_says_so(claim: Claim) -> None:
    assert claim.kind in ("label", "annotation", "taint")
    assert claim.why.endswith(".")
    assert claim.source.startswith("https://")


@pytest.mark.parametrize(
    ("marks", "sentence"),
    [
        (
            {"labels": {"dgxc.nvidia.com/nvsentinel-state": "draining"}},
            "NVSentinel holds ip-10-0-1-5 (label dgxc.nvidia.com/nvsentinel-state=draining)",
        ),
        (
            {"annotations": {"quarantineHealthEvent": '[{"errorCode": ["79"]}]'}},
            "NVSentinel holds ip-10-0-1-5 (annotation quarantineHealthEvent)",
        ),
        (
            {"taints": (("nvsentinel.dgxc.nvidia.com/external-remediation", "extrr-7", "NoSchedule"),)},
            "NVSentinel holds ip-10-0-1-5 (taint nvsentinel.dgxc.nvidia.com/external-remediation=extrr-7)",
        ),
        (
            {"taints": (("medik8s.io/remediation", "self-node-remediation", "NoExecute"),)},
            "medik8s holds ip-10-0-1-5 (taint medik8s.io/remediation=self-node-remediation)",
        ),
        (
            {"taints": (("karpenter.sh/disrupted", "", "NoSchedule"),)},
            "Karpenter holds ip-10-0-1-5 (taint karpenter.sh/disrupted)",
        ),
        (
            {"taints": (("aws-node-termination-handler/spot-itn", "", "NoSchedule"),)},
            "AWS Node Termination Handler holds ip-10-0-1-5 (taint aws-node-termination-handler/spot-itn)",
        ),
    ],
)
def test_a_claim_names_the_system_and_its_mark(marks: dict[str, object], sentence: str) -> None:
    assert foreign_claim(node(NODE, **marks)) == sentence


@pytest.mark.parametrize(
    "marks",
    [
        {"annotations": {"quarantineHealthEvent": ""}},
        {"labels": {"sagemaker.amazonaws.com/node-health-status": "Schedulable"}},
        {"labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}},
        {"annotations": {"machineconfiguration.openshift.io/state": "Done"}},
        {"taints": (("DeletionCandidateOfClusterAutoscaler", "1", "PreferNoSchedule"),)},
        {"labels": {"medik8s.io/remediation": "x"}},
    ],
    ids=repr,
)
def test_a_mark_of_a_system_at_rest_is_no_claim(marks: dict[str, object]) -> None:
    assert foreign_claim(node(NODE, **marks)) is None


# ---------------------------------------------------------------- claims by Events

(AKS,) = (each for each in event_claims() if each.system == "AKS auto-repair")
NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


AKS_1 = node("aks-1")


def ago(reason: str, minutes: float) -> NodeEvent:
    return NodeEvent(reason, NOW - timedelta(minutes=minutes))


def test_without_events_there_is_no_claim() -> None:
    assert claim_by_events(AKS, AKS_1, (), NOW) is None


def test_a_repair_that_has_begun_is_a_claim_that_names_it() -> None:
    claim = claim_by_events(AKS, AKS_1, (ago("NodeReimageEnd", 40), ago("NodeRedeployStart", 12)), NOW)
    assert claim == "AKS auto-repair holds aks-1 (its Event NodeRedeployStart at 09:48:00Z)"


@pytest.mark.parametrize(
    ("reason", "minutes", "claims"),
    [
        *(("NodeRebootStart", minutes, held) for minutes, held in ((0, True), (60, True), (61, False))),
        *(("NodeRebootEnd", minutes, held) for minutes, held in ((0, True), (15, True), (16, False))),
        *(("NodeReimageError", minutes, held) for minutes, held in ((14, True), (16, False))),
        ("SomethingNew", 5, True),
        ("NodeRebootStart", -2, True),
    ],
)
def test_its_claim_ends_a_while_after_its_last_event(reason: str, minutes: float, claims: bool) -> None:
    assert (claim_by_events(AKS, AKS_1, (ago(reason, minutes),), NOW) is not None) is claims


@pytest.mark.parametrize(
    ("ready_for", "minutes", "believed"),
    [
        (5, 10, True),  # it was not Ready when that began, and is again
        (65, 10, True),  # it may have been treated for as long as that
        (75, 10, False),
        (61, 0, False),
        (61, -600, False),  # of the future: it counts as of now
        (None, 0, True),  # it is not Ready, or does not say since when
    ],
)
def test_an_event_about_a_node_that_had_long_been_ready_is_not_believed(
    ready_for: float | None, minutes: float, believed: bool
) -> None:
    """Whoever may write Events could hold any node by one."""
    since = None if ready_for is None else NOW - timedelta(minutes=ready_for)
    ready = node("aks-1", stated=ready_since(since))
    claim = claim_by_events(AKS, ready, (ago("NodeRebootStart", minutes),), NOW)
    assert (claim is not None) is believed


def test_the_claim_names_the_program_that_wrote_the_event() -> None:
    event = event_view(
        {
            "reason": "NodeRebootStart",
            "lastTimestamp": "2026-11-21T09:59:00Z",
            "metadata": {"managedFields": [{"manager": "kubectl-create"}]},
        }
    )
    claim = claim_by_events(AKS, AKS_1, (event,), NOW)
    assert claim is not None
    assert claim.endswith("(its Event NodeRebootStart at 09:59:00Z, written by kubectl-create)")


def test_a_node_is_ready_since_its_condition_changed_and_since_never_while_it_is_not() -> None:
    for status, since in {"True": NOW, "False": None, "Unknown": None}.items():
        ready = {"type": "Ready", "status": status, "lastTransitionTime": "2026-11-21T10:00:00Z"}
        assert node_view({"status": {"conditions": [ready]}}, whole=True).ready_since == since
    unsaid = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert node_view(unsaid, whole=True).ready_since is None


def test_the_latest_event_counts_in_whatever_order_they_are_listed() -> None:
    ended = (ago("NodeRebootEnd", 20), ago("NodeRebootStart", 30))
    assert claim_by_events(AKS, AKS_1, ended, NOW) is claim_by_events(AKS, AKS_1, ended[::-1], NOW) is None
