"""deploy/eks-neuron: what it starts, with which rights, and what it calls a fault of the hardware.

How kustomize puts it together is for ``make e2e``; here its files are read as they are.
"""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botocore
import pytest
from prometheus_client.parser import text_string_to_metric_families

from providers.aws.session import Limits
from providers.aws.settings import NAMESPACE
from recovery.cli import group
from recovery.config.environment import Mode
from recovery.config.policy_file import load_builtin
from recovery.config.settings import Settings, describe, load_settings
from recovery.decide.diagnosis import matches
from recovery.model import Fault, Step
from recovery.units import parse_duration
from tests.builders.kernel_lines import FORGED, forged
from tests.builders.manifests import (
    DEPLOY,
    Manifest,
    container,
    documents,
    environment_of,
    manifest,
    pod_spec,
    settings_of,
    where_it_runs,
)

ROOT = Path(__file__).parents[2]
EKS = ROOT / "deploy" / "eks-neuron"
CONCLUDES = ROOT / "deploy" / "concluder"
CAPTURED = ROOT / "tests" / "captures" / "neuron-dma-error" / "00-healthy.prom"
DRIVER = "neuron:ncdev: NEURON_HW_ERR={} instance-id=i-0abc hostname=h nd-id=0 action=TERMINATE_INSTANCE"


ACCOUNT = "node-recovery-npd"
"""node-problem-detector's own."""
TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"
DAEMONSET = manifest(EKS / "agents" / "daemonset.yaml")
CONCLUDER = manifest(CONCLUDES / "deployment.yaml")
KUSTOMIZATION = manifest(EKS / "kustomization.yaml")
AGENTS = manifest(EKS / "agents" / "kustomization.yaml")
MONITOR = json.loads((EKS / "agents" / "neuron-monitor.json").read_text())


NPD = container(DAEMONSET, "node-problem-detector")
SIDECAR = container(DAEMONSET)
CONCLUDERS = container(CONCLUDER)
OURS = pytest.mark.parametrize("ours", [SIDECAR, CONCLUDERS], ids=["sidecar", "concluder"])


def environment(ours: Manifest) -> dict[str, str]:
    fields = {"spec.nodeName": "ip-10-0-1-5.ec2.internal", "metadata.namespace": "neuron-healthcheck-system"}
    return environment_of(ours, settings_of(EKS / "settings.env"), fields)


def started(ours: Manifest) -> Settings:
    return load_settings(environment(ours))


# ---------------------------------------------------------------- the switch


@OURS
def test_it_ships_with_recovery_off(ours: Manifest) -> None:
    assert started(ours).enable_recovery is False
    assert started(ours).warnings == ()


@OURS
def test_every_variable_is_one_that_the_program_reads(ours: Manifest) -> None:
    assert environment(ours).keys() <= {name for name, _, _ in describe()}


@OURS
def test_one_file_holds_the_switch_for_every_pod(ours: Manifest) -> None:
    assert ours["envFrom"] == [{"configMapRef": {"name": "node-recovery"}}]
    assert "ENABLE_RECOVERY" not in {entry["name"] for entry in ours["env"]}
    made = {each["namespace"]: each for each in KUSTOMIZATION["configMapGenerator"]}
    assert made.keys() == {AGENTS["namespace"], "node-recovery-concluder"}
    assert all((each["name"], each["envs"]) == ("node-recovery", ["settings.env"]) for each in made.values())
    assert "disableNameSuffixHash" not in AGENTS["generatorOptions"], "an edit starts pods again"


def test_a_sidecar_knows_its_node_and_a_concluder_has_none() -> None:
    sidecar, concluder = started(SIDECAR), started(CONCLUDERS)
    assert (sidecar.mode, sidecar.node_name) == (Mode.SIDECAR, "ip-10-0-1-5.ec2.internal")
    assert (concluder.mode, concluder.node_name) == (Mode.CONCLUDER, "")
    assert sidecar.agents_namespace == AGENTS["namespace"]
    assert concluder.agents_namespace == "node-recovery", "deploy/joined says the agents' own"


def test_faults_go_where_the_alarms_of_neurons_users_look() -> None:
    assert NAMESPACE.of(environment(SIDECAR)) == "NeuronHealthCheck"


def test_names_are_those_of_the_detector_whose_place_it_takes() -> None:
    assert AGENTS["namespace"] == "neuron-healthcheck-system"
    assert DAEMONSET["metadata"]["name"] == "node-problem-detector"
    # A selector cannot be changed: with another one, `kubectl apply` over AWS's DaemonSet would be refused.
    assert DAEMONSET["spec"]["selector"] == {"matchLabels": {"app": "node-problem-detector"}}
    assert "value: node-problem-detector}" in AGENTS["patches"][0]["patch"]


# ---------------------------------------------------------------- rights and limits of the pods


@OURS
def test_an_agent_has_no_privilege(ours: Manifest) -> None:
    assert ours["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_an_agent_mounts_its_token_and_writes_the_detectors_and_a_concluder_mounts_nothing() -> None:
    mounts = {m["name"]: (m["mountPath"], m.get("readOnly", False)) for m in SIDECAR["volumeMounts"]}
    assert mounts == {"api-token": (TOKENS, True), "npd-token": (started(SIDECAR).npd_token_dir, False)}
    assert "volumeMounts" not in CONCLUDERS


def test_the_detectors_container_has_a_token_of_its_own_account_before_it_starts() -> None:
    (first,) = pod_spec(DAEMONSET)["initContainers"]
    assert (first["image"], first["args"]) == (SIDECAR["image"], ["npd-token"])
    assert first["securityContext"] == SIDECAR["securityContext"]
    assert first["volumeMounts"] == SIDECAR["volumeMounts"]
    assert first["env"] == SIDECAR["env"]
    npd = container(DAEMONSET, "node-problem-detector")
    assert [m["name"] for m in npd["volumeMounts"] if m["mountPath"] == TOKENS] == ["npd-token"]
    assert "npd-token" in group.commands
    assert started(SIDECAR).npd_account == ACCOUNT
    assert pod_spec(DAEMONSET)["automountServiceAccountToken"] is False


def test_the_detectors_account_has_the_rights_of_a_detector_and_the_agents_may_ask_for_its_tokens() -> None:
    bound = {d["kind"]: d for d in documents(EKS / "agents" / "npd-rbac.yaml")}["ClusterRoleBinding"]
    assert [s["name"] for s in bound["subjects"]] == [ACCOUNT]
    account = manifest(DEPLOY / "npd-account" / "serviceaccount.yaml")
    assert account["metadata"]["name"] == ACCOUNT
    role, binding = documents(DEPLOY / "npd-account" / "rbac.yaml")
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts/token"],
            "resourceNames": [ACCOUNT],
            "verbs": ["create"],
        }
    ]
    assert [s["name"] for s in binding["subjects"]] == ["node-recovery"]


def test_nothing_of_the_node_is_in_a_pod_but_the_kernel_log_and_only_the_detector_sees_it() -> None:
    host = [v for v in pod_spec(DAEMONSET)["volumes"] if "hostPath" in v]
    assert [v["hostPath"]["path"] for v in host] == ["/dev/kmsg"]
    assert all(mount["readOnly"] for mount in NPD["volumeMounts"])
    for spec in (pod_spec(DAEMONSET), pod_spec(CONCLUDER)):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()


@pytest.mark.parametrize("each", [NPD, SIDECAR, CONCLUDERS], ids=["detector", "sidecar", "concluder"])
def test_no_container_has_a_cpu_limit_and_each_has_one_of_memory(each: dict[str, Any]) -> None:
    assert each["resources"]["limits"].keys() == {"memory"}
    assert each["resources"]["requests"].keys() == {"cpu", "memory"}


@OURS
def test_an_agent_may_use_what_was_measured_and_half_as_much_again(ours: Manifest) -> None:
    assert ours["resources"] == {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}


@OURS
def test_a_kubelet_asks_where_the_agent_answers(ours: Manifest) -> None:
    assert ours["ports"] == [{"name": "metrics", "containerPort": started(ours).metrics_address[1]}]  # type: ignore[index]
    paths = {kind: ours[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {probe["port"] for probe in paths.values()} == {"metrics"}
    assert {kind: probe["path"] for kind, probe in paths.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }


@pytest.mark.parametrize("workload", [DAEMONSET, CONCLUDER], ids=["sidecar", "concluder"])
def test_a_call_that_was_begun_can_end_before_the_pod_is_killed(workload: dict[str, Any]) -> None:
    assert pod_spec(workload)["terminationGracePeriodSeconds"] > Limits().longest


def test_no_taint_drives_the_agent_off_its_node_and_nothing_preempts_it() -> None:
    assert pod_spec(DAEMONSET)["tolerations"] == [{"operator": "Exists"}]
    assert pod_spec(DAEMONSET)["priorityClassName"] == "system-node-critical"


def test_it_runs_on_every_type_of_instance_that_has_neuron_devices() -> None:
    model = max(Path(botocore.__file__).parent.glob("data/ec2/*/service-2.json.gz"))
    known = re.findall(r'"((?:inf|trn)\d\w*\.\w+)"', gzip.decompress(model.read_bytes()).decode())
    wanted = {each["key"]: each["values"] for each in where_it_runs(DAEMONSET)}
    types = wanted["node.kubernetes.io/instance-type"]
    assert len(known) > 10
    assert sorted(types) == sorted(set(known)), "AWS has other types by now"


def test_the_concluder_runs_on_none_of_the_nodes_that_have_an_agent() -> None:
    (patch,) = KUSTOMIZATION["patches"]
    (kept_off,) = where_it_runs(manifest(EKS / patch["path"]))
    (chosen,) = [e for e in where_it_runs(DAEMONSET) if e["key"] == "node.kubernetes.io/instance-type"]
    assert kept_off == {**chosen, "operator": "NotIn"}


# ---------------------------------------------------------------- the detector


def test_the_detector_is_one_that_cannot_lose_the_kernel_log() -> None:
    version = re.fullmatch(r"registry\.k8s\.io/.+:v(\d+)\.(\d+)\.(\d+)@sha256:[0-9a-f]{64}", NPD["image"])
    assert version is not None
    assert tuple(map(int, version.groups())) >= (1, 36, 0)


def test_the_detectors_page_is_where_the_sidecar_reads_and_nobody_else_can() -> None:
    flags = dict(word.removeprefix("--").split("=") for word in NPD["command"] if "=" in word)
    page = f"http://{flags['prometheus-address']}:{flags['prometheus-port']}/metrics"
    assert page == started(SIDECAR).npd_metrics_url == "http://127.0.0.1:20257/metrics"


def test_the_detector_is_given_the_file_that_it_is_told_to_read() -> None:
    (file,) = [w.split("=")[1] for w in NPD["command"] if w.startswith("--config.system-log-monitor=")]
    (volume,) = [v for v in pod_spec(DAEMONSET)["volumes"] if v["name"] == "config"]
    maps = {each["name"]: each for each in AGENTS["configMapGenerator"]}
    assert file == f"/config/{maps[volume['configMap']['name']]['files'][0]}"
    assert {"name": "config", "mountPath": "/config", "readOnly": True} in NPD["volumeMounts"]


def test_the_reasons_are_the_names_that_a_real_detector_lists_and_the_hang_has_a_condition_of_its_own() -> (
    None
):
    """A hang is another worker's fault, and would mask this node's: of a type's reasons one shows."""
    families = text_string_to_metric_families(CAPTURED.read_text())
    (gauge,) = [family for family in families if family.name == "problem_gauge"]
    listed = {(s.labels["type"], s.labels["reason"]) for s in gauge.samples}
    ours = {(rule["condition"], rule["reason"]) for rule in MONITOR["rules"]}
    hang = "NeuronHasError_HANG_ON_COLLECTIVES"
    assert ours == listed - {("NeuronHealth", hang)} | {("NeuronCollectives", hang)}
    good = [("NeuronHealth", "NeuronHasNoError"), ("NeuronCollectives", "NeuronCollectivesGoOn")]
    assert [(c["type"], c["reason"]) for c in MONITOR["conditions"]] == good


def of_the_node(rule: dict[str, str]) -> bool:
    return rule["condition"] == "NeuronHealth"


@pytest.mark.parametrize("rule", MONITOR["rules"], ids=lambda rule: rule["reason"])
def test_what_the_detector_calls_a_fault_of_the_node_is_replaced_by_the_built_in_policy(
    rule: dict[str, str],
) -> None:
    fault = Fault("npd", rule["condition"], rule["reason"], "", datetime(2026, 1, 1, tzinfo=UTC), "i-1", "b")
    first = next(r for r in load_builtin().policy.rules if matches(r, fault, None))
    assert first.remedy is not None
    steps = [Step.DRAIN, Step.REPLACE] if of_the_node(rule) else [Step.NOTIFY]
    assert [rung.do for rung in first.remedy] == steps
    assert rule["type"] == "permanent", "a temporary rule has no condition"


def reasons_of(line: str) -> list[str]:
    """As node-problem-detector matches: at the end of the lines that it holds."""
    return [r["reason"] for r in MONITOR["rules"] if re.search(r["pattern"] + r"\Z", line, re.ASCII)]


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "NEURON_HW_ERR={} instance-id=i-0abc action=TERMINATE_INSTANCE",
        "kernel: NEURON_HW_ERR={} affecting neuron devices",
        "kernel: NEURON_HW_ERR={}",
        "an earlier line\nkernel: NEURON_HW_ERR={} nd-id=0",
        "2025-03-04T05:06:07Z NEURON_HW_ERR={} instance-id=i-0abc nd-id=0",
        "2025-03-04 05:06:07.123 NEURON_HW_ERR={} instance-id=i-0abc nd-id=0",
        "neuron0: NEURON_HW_ERR={} device=0",
        "[  726.415485] neuron:ncdev_printk: NEURON_HW_ERR={} nd-id=0",
        DRIVER,
    ],
)
@pytest.mark.parametrize("code", ["SRAM_UNCORRECTABLE_ERROR", "NC_UNCORRECTABLE_ERROR", "DMA_ERROR"])
def test_the_drivers_line_is_a_fault_wherever_in_it_the_code_stands(line: str, code: str) -> None:
    text = line.format(code if "=" in line else f"NEURON_HW_ERR={code}")
    assert reasons_of(text) == [f"NeuronHasError_{code}"]


@pytest.mark.parametrize(
    "line",
    [
        DRIVER.format("HANG_ON_COLLECTIVES_TWICE"),
        DRIVER.format("DMA_ERROR_RECOVERED"),
        DRIVER.format("DMA_ERRORS"),
        "kernel: MY_NEURON_HW_ERR=DMA_ERROR 1",
        "kernel: NEURON_HW_ERR DMA_ERROR",
        "kernel: NEURON_HW_ERR=DMA_ERROR nd-id=0\na later line",
    ],
)
def test_no_other_line_is_a_fault(line: str) -> None:
    assert reasons_of(line) == []


@pytest.mark.parametrize("line", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize(
    "code",
    [
        "NEURON_HW_ERR=DMA_ERROR",
        "neuron: NEURON_HW_ERR=DMA_ERROR nd-id=0",
        "kernel: NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR",
        "[  1.0] neuron:ncdev: NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR",
        "\\x0aNEURON_HW_ERR=NC_UNCORRECTABLE_ERROR",
    ],
)
def test_a_process_without_privileges_forges_no_fault(line: str, code: str) -> None:
    said = forged(line, code)
    assert reasons_of(said) == []
    assert reasons_of(f"an earlier line\n{said}") == []


def test_a_restart_forgets_nothing_that_was_logged_since_the_boot() -> None:
    assert parse_duration(MONITOR["lookback"]) >= parse_duration("2160h")
    assert (MONITOR["plugin"], MONITOR["logPath"]) == ("kmsg", "/dev/kmsg")
    assert MONITOR["metricsReporting"] is True


# ---------------------------------------------------------------- what one may add


def test_a_policy_of_ones_own_begins_as_a_copy_of_the_built_in_one() -> None:
    built_in = ROOT / "recovery" / "catalog" / "default-policy.yaml"
    assert (EKS / "policy" / "policy.yaml").read_bytes() == built_in.read_bytes()


def test_a_policy_is_mounted_where_its_variable_says() -> None:
    component = manifest(EKS / "policy/kustomization.yaml")
    (mount,) = container(manifest(EKS / "policy/mount.yaml"))["volumeMounts"]
    settings_ = [g for g in component["configMapGenerator"] if g["name"] == "node-recovery"]
    policies = [g for g in component["configMapGenerator"] if g["name"] == "node-recovery-policy"]
    places = [AGENTS["namespace"], "node-recovery-concluder"]
    assert [g["namespace"] for g in settings_] == [g["namespace"] for g in policies] == places
    assert {str(g["literals"]) for g in settings_} == {f"['POLICY_FILE={mount['mountPath']}/policy.yaml']"}
    assert {str(g["files"]) for g in policies} == {"['policy.yaml']"}
    assert {p["target"]["name"] for p in component["patches"]} == {
        DAEMONSET["metadata"]["name"],
        CONCLUDER["metadata"]["name"],
    }
