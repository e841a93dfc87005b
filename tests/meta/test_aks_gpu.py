"""deploy/aks-gpu: what it starts, whose page it reads, who it is on Azure; what is known of AKS's faults.

How kustomize puts it together is for ``make e2e``; here its files are read as they are.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from providers.azure.options import Options, options_of
from providers.azure.session import Limits, check_identity
from recovery.catalog import foreign_claim, lookup
from recovery.config.environment import Mode
from recovery.config.policy_file import load_builtin, load_policy
from recovery.config.settings import Settings, describe, load_settings
from recovery.model import Step
from recovery.signals.page_url import check_url
from tests.builders.manifests import (
    DEPLOY,
    Manifest,
    container,
    environment_of,
    manifest,
    pod_spec,
    settings_of,
    where_it_runs,
)
from tests.builders.nodes import node

OF_THE_PACK = ("gpu-xid", "gpu-pack", "gpu-pack-links")
"""Rules for what ``deploy/npd-gpu`` states: ``test_gpu_policies`` looks at those."""
AKS, EKS = DEPLOY / "aks-gpu", DEPLOY / "eks-neuron"
CLUSTER = (
    "/subscriptions/11111111-2222-3333-4444-555555555555/resourcegroups/gpu"
    "/providers/Microsoft.ContainerService/managedClusters/training"
)
NODE, HOST_IP, NAMESPACE = "aks-gpu-12345678-vmss000000", "10.224.0.4", "gpu-healthcheck-system"
OF_AZURE = {"AZURE_CLUSTER_ID", "AZURE_REGION", "AZURE_ALLOW", "AZURE_AUTOSCALER"}


DAEMONSET = manifest(AKS / "agents" / "daemonset.yaml")
CONCLUDER = manifest(DEPLOY / "concluder" / "deployment.yaml")
KUSTOMIZATION = manifest(AKS / "kustomization.yaml")
AGENTS = manifest(AKS / "agents" / "kustomization.yaml")


AGENT, CONCLUDERS = container(DAEMONSET), container(CONCLUDER)
OURS = pytest.mark.parametrize("ours", [AGENT, CONCLUDERS], ids=["agent", "concluder"])


def settings() -> dict[str, str]:
    return settings_of(AKS / "settings.env")


def environment(ours: Manifest) -> dict[str, str]:
    fields = {"spec.nodeName": NODE, "metadata.namespace": NAMESPACE, "status.hostIP": HOST_IP}
    return environment_of(ours, settings(), fields)


def started(ours: Manifest) -> Settings:
    return load_settings(environment(ours))


def patch(kind: str) -> list[dict[str, Any]]:
    """What the kustomization changes in its things of this kind."""
    patches = [*KUSTOMIZATION["patches"], *AGENTS["patches"]]
    (found,) = [p["patch"] for p in patches if p["target"]["kind"] == kind]
    operations: list[dict[str, Any]] = yaml.safe_load(found)
    return operations


# ---------------------------------------------------------------- the switch


@OURS
def test_it_ships_with_recovery_off_and_says_its_provider(ours: Manifest) -> None:
    assert started(ours).enable_recovery is False
    assert started(ours).provider == "azure"
    assert started(ours).warnings == ()


@OURS
def test_every_variable_is_one_that_is_read(ours: Manifest) -> None:
    assert environment(ours).keys() - {"HOST_IP"} <= {name for name, _, _ in describe()} | OF_AZURE
    assert settings().keys() >= OF_AZURE


@OURS
def test_one_file_holds_the_switch_for_every_pod(ours: Manifest) -> None:
    assert ours["envFrom"] == [{"configMapRef": {"name": "node-recovery"}}]
    assert not {"ENABLE_RECOVERY", "PROVIDER", *OF_AZURE} & {entry["name"] for entry in ours["env"]}
    made = {each["namespace"]: each for each in KUSTOMIZATION["configMapGenerator"]}
    assert made.keys() == {NAMESPACE, "node-recovery-concluder"}
    assert all((each["name"], each["envs"]) == ("node-recovery", ["settings.env"]) for each in made.values())
    assert "disableNameSuffixHash" not in AGENTS["generatorOptions"], "an edit starts pods again"


def test_as_it_ships_nothing_is_asked_of_azure() -> None:
    assert options_of(settings()) == Options()


@pytest.mark.parametrize("allowed", ["aks-replace", "aks-compute"])
def test_what_the_settings_say_may_be_allowed_is_known(allowed: str) -> None:
    assert f"#   {allowed} " in (AKS / "settings.env").read_text()
    given = settings() | {"AZURE_ALLOW": allowed, "AZURE_CLUSTER_ID": CLUSTER}
    assert options_of(given).allow == {allowed}


def test_an_agent_knows_its_node_and_a_concluder_has_none() -> None:
    agent, concluder = started(AGENT), started(CONCLUDERS)
    assert (agent.mode, agent.node_name) == (Mode.SIDECAR, NODE)
    assert (concluder.mode, concluder.node_name) == (Mode.CONCLUDER, "")
    assert agent.agents_namespace == AGENTS["namespace"] == NAMESPACE
    assert concluder.agents_namespace == "node-recovery", "deploy/joined says the agents' own"


# ---------------------------------------------------------------- whose page it reads


def test_it_reads_the_page_on_its_own_nodes_address_and_no_others() -> None:
    url = started(AGENT).npd_metrics_url
    assert url == f"http://{HOST_IP}:20257/metrics"
    assert check_url(url, [NODE, HOST_IP]) is None
    assert check_url(url, [NODE, "10.224.0.5"]) is not None


def test_it_brings_no_detector_and_nothing_of_the_node() -> None:
    assert [c["name"] for c in pod_spec(DAEMONSET)["containers"]] == ["node-recovery"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & pod_spec(DAEMONSET).keys()


# ---------------------------------------------------------------- who it is on Azure


def test_every_pod_asks_for_a_token_and_its_account_is_told_who_it_is() -> None:
    label = {"azure.workload.identity/use": "true"}
    assert label.items() <= DAEMONSET["spec"]["template"]["metadata"]["labels"].items()
    labelled = {"op": "add", "path": "/spec/template/metadata/labels/azure.workload.identity~1use"}
    assert {**labelled, "value": "true"} in patch("Deployment")
    (annotated,) = patch("ServiceAccount")
    assert annotated["path"] == "/metadata/annotations"
    assert annotated["value"].keys() == {"azure.workload.identity/client-id"}
    (target,) = [p["target"] for p in KUSTOMIZATION["patches"] if p["target"]["kind"] == "ServiceAccount"]
    assert target["labelSelector"] == "app.kubernetes.io/name=node-recovery", "both accounts"


def test_what_the_webhook_adds_is_all_that_an_agent_needs_to_say_who_it_is() -> None:
    (annotated,) = patch("ServiceAccount")
    added = {
        "AZURE_CLIENT_ID": annotated["value"]["azure.workload.identity/client-id"],
        "AZURE_TENANT_ID": "22222222-2222-2222-2222-222222222222",
        "AZURE_FEDERATED_TOKEN_FILE": "/var/run/secrets/azure/tokens/azure-identity-token",
        "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/",
    }
    check_identity(environment(AGENT) | added)


def test_the_client_id_is_said_in_one_place() -> None:
    said = [p for p in AKS.rglob("*") if p.is_file() and re.search(r"client.?id:", p.read_text(), re.I)]
    assert said == [AKS / "kustomization.yaml"]
    assert "AZURE_CLIENT_ID" not in settings()


def test_the_policies_of_the_api_server_move_with_the_namespace_of_whom_they_limit() -> None:
    sources = {
        "node-recovery": (DEPLOY / "rbac" / "admission.yaml", AKS / "agents" / "host-port.yaml"),
        "node-recovery-concluder": (DEPLOY / "concluder" / "admission.yaml",),
    }
    for moved in manifest(DEPLOY / "joined" / "kustomization.yaml")["replacements"]:
        account = moved["source"]["name"]
        admission = [d for file in sources[account] for d in yaml.safe_load_all(file.read_text())]
        policies = [d for d in admission if d["kind"] == "ValidatingAdmissionPolicy"]
        assert all(len(p["spec"]["matchConditions"]) == 1 for p in policies)
        assert moved["source"]["fieldPath"] == "metadata.namespace"
        (target,) = [t for t in moved["targets"] if t["select"]["kind"] == "ValidatingAdmissionPolicy"]
        assert target["fieldPaths"] == ["spec.matchConditions.0.expression"]
        for policy in policies:
            said = policy["spec"]["matchConditions"][0]["expression"].split(target["options"]["delimiter"])
            assert said[target["options"]["index"]] == account, "the namespace, which has the same name here"


@pytest.mark.parametrize("installation", ["eks-neuron", "aks-gpu", "baremetal"])
def test_the_agents_and_the_concluder_are_told_of_each_other_last(installation: str) -> None:
    assert manifest(DEPLOY / installation / "kustomization.yaml")["components"] == ["../joined"]
    uncommented = re.sub(r"(?m)^  # - ", "  - ", (DEPLOY / installation / "kustomization.yaml").read_text())
    assert yaml.safe_load(uncommented)["components"][-1] == "../joined"


# ---------------------------------------------------------------- rights, limits and places of the pods


def test_the_agent_is_the_sidecar_of_eks_but_for_where_it_reads() -> None:
    sidecar = container(manifest(EKS / "agents" / "daemonset.yaml"))
    more = [entry for entry in AGENT["env"] if entry not in sidecar["env"]]
    assert [entry["name"] for entry in more] == ["HOST_IP", "NPD_METRICS_URL"]
    # No detector is in its pod, so it has nobody's token to keep, and the kubelet mounts its own.
    mounts = sidecar.pop("volumeMounts")
    assert AGENT | {"env": sidecar["env"]} == sidecar
    assert {m["name"] for m in mounts} == {"api-token", "npd-token"}


def test_the_pods_live_as_those_of_eks_do() -> None:
    here, there = pod_spec(DAEMONSET), pod_spec(manifest(EKS / "agents" / "daemonset.yaml"))
    for same in ("priorityClassName", "dnsPolicy", "tolerations"):
        assert here[same] == there[same]


def test_a_call_that_was_begun_can_end_before_a_pod_is_killed() -> None:
    grace = pod_spec(DAEMONSET)["terminationGracePeriodSeconds"]
    assert grace > Limits().longest
    given = {"op": "replace", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": grace}
    assert given in patch("Deployment")


def test_the_namespace_lets_no_privileged_pod_in() -> None:
    (level,) = patch("Namespace")
    assert level["path"].endswith("pod-security.kubernetes.io~1enforce")
    assert level["value"] == "restricted"


def test_it_runs_on_linux_nodes_with_nvidia_gpus_whatever_their_taints() -> None:
    assert {each["key"]: each["values"] for each in where_it_runs(DAEMONSET)} == {
        "kubernetes.io/os": ["linux"],
        "kubernetes.azure.com/accelerator": ["nvidia"],
    }
    assert pod_spec(DAEMONSET)["tolerations"] == [{"operator": "Exists"}]


def test_the_concluder_may_run_where_a_system_pool_takes_add_ons_only() -> None:
    tolerated = {"op": "add", "path": "/spec/template/spec/tolerations/-"}
    assert {**tolerated, "value": {"key": "CriticalAddonsOnly", "operator": "Exists"}} in patch("Deployment")


def test_the_concluder_runs_on_none_of_the_nodes_that_have_an_agent() -> None:
    (value,) = [op["value"] for op in patch("Deployment") if "required" in op["path"]]
    (kept_off,) = value["nodeSelectorTerms"][0]["matchExpressions"]
    (chosen,) = [e for e in where_it_runs(DAEMONSET) if e["key"] == kept_off["key"]]
    assert kept_off == {**chosen, "operator": "NotIn"}


# ---------------------------------------------------------------- the policy that one may add


def test_the_policy_has_the_limits_of_the_built_in_one_and_nothing_to_warn_of() -> None:
    ours, built_in = load_policy(str(AKS / "policy" / "policy.yaml")), load_builtin()
    assert ours.warnings == ()
    assert ours.policy.limits == built_in.policy.limits
    assert ours.policy.exclude == built_in.policy.exclude


def test_the_policy_names_no_step_that_azure_has_to_do() -> None:
    """Without AZURE_ALLOW a policy with one would be refused at start."""
    rules = load_policy(str(AKS / "policy" / "policy.yaml")).policy.rules
    assert not [r for r in rules for rung in r.remedy or () if rung.do.provider_action]


def test_the_policy_treats_every_gpu_fault_that_the_catalogue_would_treat() -> None:
    rules = load_policy(str(AKS / "policy" / "policy.yaml")).policy.rules
    named = {reason for rule in rules if rule.name not in OF_THE_PACK for reason in rule.match.reasons}
    treated = {
        reason for (_, reason), (steps, software) in OF_AKS.items() if not software and steps != NOTIFY
    }
    assert named - {"*"} == treated


def test_the_policy_is_mounted_where_its_variable_says() -> None:
    component = manifest(AKS / "policy" / "kustomization.yaml")
    (mount,) = container(manifest(AKS / "policy" / "mount.yaml"))["volumeMounts"]
    *settings_, policy, concluders = component["configMapGenerator"]
    for given in settings_:
        assert given["literals"] == [f"POLICY_FILE={mount['mountPath']}/{policy['files'][0]}"]
    places = [NAMESPACE, "node-recovery-concluder"]
    assert [g["namespace"] for g in settings_] == [policy["namespace"], concluders["namespace"]] == places
    names = {DAEMONSET["metadata"]["name"], CONCLUDER["metadata"]["name"]}
    assert {p["target"]["name"] for p in component["patches"]} == names
    assert (AKS / "policy" / "mount.yaml").read_text() == (EKS / "policy" / "mount.yaml").read_text()


# ---------------------------------------------------------------- what is known of AKS's own faults

NOTIFY, CORDON, DEFAULT = [Step.NOTIFY], [Step.CORDON], None
OF_AKS = {
    ("FilesystemCorruptionProblem", "FilesystemCorruptionDetected"): (DEFAULT, True),
    ("KubeletProblem", "KubeletIsDown"): (NOTIFY, True),
    ("ContainerRuntimeProblem", "ContainerRuntimeIsDown"): (NOTIFY, True),
    ("VMEventScheduled", "VMEventScheduled"): (NOTIFY, False),
    ("FrequentUnregisterNetDevice", "UnregisterNetDevice"): (NOTIFY, True),
    ("FrequentKubeletRestart", "FrequentKubeletRestart"): (NOTIFY, True),
    ("FrequentContainerdRestart", "FrequentContainerdRestart"): (NOTIFY, True),
    ("FrequentDockerRestart", "FrequentDockerRestart"): (NOTIFY, True),
    ("KernelDeadlock", "DockerHung"): (NOTIFY, True),
    ("ReadonlyFilesystem", "FilesystemIsReadOnly"): (NOTIFY, True),
    ("GPUMissing", "GPUMissing"): (DEFAULT, False),
    ("NVLinkStatusInactive", "NVLinkStatusInactive"): (DEFAULT, False),
    ("XIDErrors", "XIDErrors"): (DEFAULT, False),
    ("GPUXIDErrors", "GPUXIDErrors"): (DEFAULT, False),
    ("XIDError", "XIDError"): (DEFAULT, False),
    ("IBLinkFlapping", "IBLinkFlapping"): (CORDON, False),
    ("GPUClockThrottling", "GPUClockThrottling"): (NOTIFY, False),
    ("UnhealthyNvidiaDevicePlugin", "UnhealthyNvidiaDevicePlugin"): (NOTIFY, True),
    ("UnhealthyNvidiaDCGMServices", "UnhealthyNvidiaDCGMServices"): (NOTIFY, True),
}
"""(type, reason) -> the steps of its remedy, None for the provider's; whether it is a fault of software."""


@pytest.mark.parametrize("key", OF_AKS, ids=lambda key: key[0])
def test_a_condition_of_aks_is_known(key: tuple[str, str]) -> None:
    steps, software = OF_AKS[key]
    row = lookup(*key)
    assert row is not None
    assert (None if row.remedy is None else [rung.do for rung in row.remedy]) == steps
    assert row.software is software
    assert row.this_node is (key[0] != "VMEventScheduled")


def test_an_xid_is_the_same_fault_by_each_of_its_names() -> None:
    rows = [lookup(name, name) for name in ("XIDErrors", "GPUXIDErrors", "XIDError")]
    assert len({(row.remedy, row.this_node, row.why, row.software) for row in rows if row}) == 1
    assert None not in rows


@pytest.mark.parametrize(
    "other", ["NeuronHealth/NeuronHasError_DMA_ERROR", "GpuCount/GpuCountBad", "/IOError"]
)
def test_what_another_machine_would_help_is_of_hardware(other: str) -> None:
    row = lookup(*other.split("/"))
    assert row is not None
    assert row.software is False


# ---------------------------------------------------------------- and of who else is at work there


@pytest.mark.parametrize(
    ("kind", "mark", "who"),
    [
        ("taint", "remediator.kubernetes.azure.com/unschedulable", "AKS"),
        ("taint", "remediator.aks.microsoft.com/unschedulable", "AKS"),
        (
            "annotation",
            "kubernetes.azure.com/azure-cluster-autoscaler-scale-down-disabled-reason=upgrade",
            "AKS",
        ),
        ("label", "kubernetes.azure.com/upgrade-status=Quarantined", "AKS"),
        ("taint", "ToBeDeletedByClusterAutoscaler=1763700000", "Cluster Autoscaler"),
        ("taint", "node.cloudprovider.kubernetes.io/shutdown", "the cloud controller manager"),
    ],
)
def test_it_stands_back_from_what_others_are_at_work_on(kind: str, mark: str, who: str) -> None:
    key, _, value = mark.partition("=")
    worn: Any = ((key, value, "NoSchedule"),) if kind == "taint" else {key: value}
    claim = foreign_claim(node(NODE, **{f"{kind}s": worn}))
    assert claim is not None
    assert claim.startswith(f"{who} holds {NODE} ({kind} {key}")


@pytest.mark.parametrize(
    "marks",
    [
        {"labels": {"kubernetes.azure.com/accelerator": "nvidia", "kubernetes.azure.com/mode": "user"}},
        {"taints": (("sku", "gpu", "NoSchedule"), ("nvidia.com/gpu", "present", "NoSchedule"))},
        {"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}},
    ],
    ids=repr,
)
def test_a_node_of_aks_at_rest_is_nobodys(marks: dict[str, Any]) -> None:
    assert foreign_claim(node(NODE, **marks)) is None
