"""What `kubectl apply -k` of the overlays and `helm install` would send, put together by the real tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from toolbox import program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "node-recovery"
NAMESPACE = "neuron-healthcheck-system"
OVERLAYS = {"eks-neuron": NAMESPACE, "aks-gpu": "gpu-healthcheck-system"}
overlays = pytest.mark.parametrize("overlay", OVERLAYS)
POLICY = ROOT / "recovery" / "catalog" / "default-policy.yaml"
LATER = ("--kube-version", "1.36.0")
Document = dict[str, Any]

GPU = """
npd:
  neuron: false
  instanceTypes: []
  nodeSelector: {accelerator: "true"}
  pluginMonitors: {gpu-count.json: "{}", gpu-xid.json: "{}"}
  plugins: {gpu-count.sh: "#!/bin/sh\\ntrue\\n"}
  extraArgs: [--v=2]
"""
ALREADY_THERE = """
npd: {create: false, name: detector}
serviceAccount: {create: false, name: detector}
imagePullSecrets: [mirror]
"""
OTHERWISE = """
image: {repository: registry.example.com:5000/team/node-recovery, tag: v2}
imagePullSecrets: [mirror]
settings: {ENABLE_RECOVERY: true, POLL_INTERVAL: 0.5, AWS_REGION: us-west-2}
serviceAccount: {annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::111122223333:role/r"}}
sidecar: {extraEnv: [{name: LOG, value: "1"}]}
concluder: {create: false}
podAnnotations: {prometheus.io/scrape: "true"}
"""
CLUSTER = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/training"
IDENTITY = "11111111-2222-3333-4444-555555555555"
AZURE = f"azure: {{clusterId: {CLUSTER}, region: eastus2, clientId: {IDENTITY}}}\n"
AKS = (CHART / "values-aks-gpu.yaml").read_text() + AZURE
CASES = {
    "as it ships": "{}",
    "GPUs": GPU,
    "beside a detector": ALREADY_THERE,
    "otherwise": OTHERWISE,
    "on AKS": AKS,
}
cases = pytest.mark.parametrize("values", CASES.values(), ids=CASES)


def run(*command: str | Path, home: Path) -> str:
    environ = {**os.environ, "HOME": str(home), "KUBECONFIG": str(home / "none")}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environ)  # noqa: S603
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


class Tools:
    """kubectl and Helm, without a cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def kustomize(self, path: Path) -> list[Document]:
        return documents(run(program("kubectl"), "kustomize", path, home=self.folder))

    def kubectl(self, *words: str | Path) -> str:
        return run(program("kubectl"), *words, home=self.folder)

    def helm(self, verb: str, *words: str | Path) -> str:
        return run(program("helm"), verb, *words, home=self.folder)

    def template(self, values: str, *words: str | Path) -> list[Document]:
        (self.folder / "values.yaml").write_text(values)
        place = ("--namespace", NAMESPACE, "--include-crds", *LATER)
        return documents(
            self.helm("template", "node-recovery", CHART, *place, "-f", self.folder / "values.yaml", *words)
        )

    def overlay(self, text: str, over: str = "eks-neuron") -> list[Document]:
        """A kustomization of one's own beside ours."""
        mine = self.folder / "overlay"
        mine.mkdir(exist_ok=True)
        base = os.path.relpath(DEPLOY / over, mine.resolve())
        (mine / "kustomization.yaml").write_text(text.replace("BASE", base))
        return self.kustomize(mine)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def documents(text: str) -> list[Document]:
    return [d for d in yaml.safe_load_all(text) if d]


def one(found: list[Document], kind: str, name: str) -> Document:
    matching = [d for d in found if (d["kind"], d["metadata"]["name"]) == (kind, name)]
    assert len(matching) == 1, [(d["kind"], d["metadata"]["name"]) for d in found]
    return matching[0]


def pod(workload: Document) -> Document:
    spec: Document = workload["spec"]["template"]["spec"]
    return spec


def workloads(found: list[Document]) -> list[Document]:
    return [d for d in found if d["kind"] in ("DaemonSet", "Deployment")]


def container(workload: Document, name: str = "node-recovery") -> Document:
    (found,) = [c for c in pod(workload)["containers"] if c["name"] == name]
    return dict(found)


# ---------------------------------------------------------------- whatever is rendered


def references(workload: Document) -> Iterator[tuple[str, str]]:
    """(kind, name) of what a pod cannot start without."""
    spec = pod(workload)
    yield "ServiceAccount", spec["serviceAccountName"]
    for each in spec["containers"]:
        for source in each.get("envFrom", []):
            yield "ConfigMap", source["configMapRef"]["name"]
    for volume in spec.get("volumes", []):
        for source in (volume, *volume.get("projected", {}).get("sources", [])):
            if "configMap" in source:
                yield "ConfigMap", source["configMap"]["name"]


def sound(found: list[Document], given: tuple[str, ...] = (), namespace: str = NAMESPACE) -> None:
    """Valid, each thing once, in one namespace, and everything that is named is there or ``given``."""
    version = kubernetes_validate.latest_version()
    for document in found:
        kubernetes_validate.validate(document, version, strict=True)
    names = [(d["kind"], d["metadata"]["name"]) for d in found]
    assert len(names) == len(set(names))
    there = {*names, *(("ServiceAccount", name) for name in given)}
    for document in found:
        assert document["metadata"].get("namespace", namespace) == namespace
        if document["kind"] in ("ClusterRoleBinding", "RoleBinding"):
            assert (document["roleRef"]["kind"], document["roleRef"]["name"]) in there
            for subject in document["subjects"]:
                assert subject["namespace"] == namespace
                assert (subject["kind"], subject["name"]) in there
        if document["kind"] in ("DaemonSet", "Deployment"):
            assert set(references(document)) <= there
            mounts = {m["name"] for c in pod(document)["containers"] for m in c.get("volumeMounts", [])}
            assert mounts == {volume["name"] for volume in pod(document).get("volumes", [])}


@pytest.mark.parametrize("installation", [*OVERLAYS, "baremetal"])
@pytest.mark.parametrize("namespace", ["", "mine"], ids=["as it ships", "in another namespace"])
def test_the_admission_policies_name_the_agents_account_wherever_it_is(
    tools: Tools, tmp_path: Path, installation: str, namespace: str
) -> None:
    deploy = tmp_path / "deploy"
    shutil.copytree(DEPLOY, deploy)
    file = deploy / installation / "kustomization.yaml"
    if namespace:
        file.write_text(re.sub(r"(?m)^namespace: .*", f"namespace: {namespace}", file.read_text()))
    found = tools.kustomize(file.parent)
    (account,) = (d["metadata"] for d in found if d["kind"] == "ServiceAccount" and "concluder" not in str(d))
    assert not namespace or account["namespace"] == namespace
    name = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    policies = [d["spec"] for d in found if d["kind"] == "ValidatingAdmissionPolicy"]
    conditions = [p["matchConditions"][0]["expression"] for p in policies]
    # One is for everybody but the agents: the port of AKS's detector.
    others = [f'request.userInfo.username != "{name}"'] * (installation == "aks-gpu")
    assert sorted(conditions) == [*others, *[f'request.userInfo.username == "{name}"'] * 6]


@overlays
def test_the_kustomization_is_sound(tools: Tools, overlay: str) -> None:
    sound(tools.kustomize(DEPLOY / overlay), namespace=OVERLAYS[overlay])


COMPONENTS = "resources: [BASE]\ncomponents: [BASE/irsa, BASE/policy]\n"


def test_an_overlay_takes_a_role_a_policy_and_an_image_and_turns_recovery_on(tools: Tools) -> None:
    switch = (
        "configMapGenerator: [{name: node-recovery, behavior: merge, literals: [ENABLE_RECOVERY=true]}]\n"
    )
    image = "images: [{name: node-recovery, newName: registry.example.com/nr, newTag: v2}]\n"
    found = tools.overlay(COMPONENTS + switch + image)
    sound(found)
    account = one(found, "ServiceAccount", "node-problem-detector")
    assert account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].startswith("arn:aws:iam::")
    for workload in workloads(found):
        ours = container(workload)
        settings = one(found, "ConfigMap", ours["envFrom"][0]["configMapRef"]["name"])["data"]
        assert (settings["ENABLE_RECOVERY"], settings["CLUSTER_NAME"]) == ("true", "default")
        assert ours["image"] == "registry.example.com/nr:v2"
        (mount,) = ours["volumeMounts"]
        assert settings["POLICY_FILE"].startswith(mount["mountPath"] + "/")
        (volume,) = [v for v in pod(workload)["volumes"] if v["name"] == mount["name"]]
        policy = one(found, "ConfigMap", volume["configMap"]["name"])["data"]
        assert policy == {Path(settings["POLICY_FILE"]).name: POLICY.read_text()}


@overlays
def test_the_components_can_be_uncommented_where_they_stand(
    tools: Tools, tmp_path: Path, overlay: str
) -> None:
    for folder in ("crds", "rbac", "base", overlay):
        shutil.copytree(DEPLOY / folder, tmp_path / folder)
    file = tmp_path / overlay / "kustomization.yaml"
    file.write_text(re.sub(r"^# (components:|  - \w+ #)", r"\1", file.read_text(), flags=re.MULTILINE))
    found = tools.kustomize(tmp_path / overlay)
    sound(found, namespace=OVERLAYS[overlay])
    (account,) = [d for d in found if d["kind"] == "ServiceAccount"]
    assert account["metadata"]["annotations"]
    assert all(container(w)["volumeMounts"] for w in workloads(found))


IDENTIFIED = """
patches:
  - target: {kind: ServiceAccount, name: node-recovery}
    patch: |
      - op: replace
        path: /metadata/annotations/azure.workload.identity~1client-id
        value: 11111111-2222-3333-4444-555555555555
"""


def test_an_overlay_on_aks_takes_an_identity_a_cluster_and_a_policy(tools: Tools) -> None:
    settings = (
        "configMapGenerator: [{name: node-recovery, behavior: merge, literals: [AZURE_REGION=eastus2]}]\n"
    )
    text = "resources: [BASE]\ncomponents: [BASE/policy]\n" + settings + IDENTIFIED
    found = tools.overlay(text, over="aks-gpu")
    sound(found, namespace=OVERLAYS["aks-gpu"])
    account = one(found, "ServiceAccount", "node-recovery")
    assert account["metadata"]["annotations"] == {"azure.workload.identity/client-id": IDENTITY}
    for workload in workloads(found):
        given = one(found, "ConfigMap", container(workload)["envFrom"][0]["configMapRef"]["name"])["data"]
        assert (given["AZURE_REGION"], given["ENABLE_RECOVERY"]) == ("eastus2", "false")
        (volume,) = pod(workload)["volumes"]
        policy = one(found, "ConfigMap", volume["configMap"]["name"])["data"]
        assert policy[Path(given["POLICY_FILE"]).name] == (DEPLOY / "aks-gpu/policy/policy.yaml").read_text()


@cases
def test_the_chart_is_sound_and_helms_linter_has_nothing_to_say(tools: Tools, values: str) -> None:
    given = ("detector",) if values == ALREADY_THERE else ()
    sound(tools.template(values), given)
    sound(tools.template(values, "--set-file", f"policy={POLICY}"), given)
    assert "0 chart(s) failed" in tools.helm(
        "lint", "--strict", CHART, *LATER, "-f", tools.folder / "values.yaml"
    )


# ---------------------------------------------------------------- Helm and kustomize


def comparable(found: list[Document]) -> Mapping[tuple[str, str], Document]:
    """Without what tells how a thing was put together: labels, hashes, Helm's own names and defaults."""
    text = json.dumps(found)
    text = re.sub(r"(node-recovery|node-problem-detector-config)-[a-z0-9]{10}\b", r"\1", text)
    text = text.replace("neuron-node-problem-detector", "node-recovery-npd")
    plain = {(d["kind"], d["metadata"]["name"]): d for d in json.loads(text) if d["kind"] != "Namespace"}
    for document in plain.values():
        del document["metadata"]["labels"]
        if document["kind"].startswith(
            "ValidatingAdmissionPolicy"
        ):  # kustomize gives a namespace to what has none
            document["metadata"].pop("namespace", None)
        if document["kind"] in ("DaemonSet", "Deployment"):
            document["spec"]["template"]["metadata"].pop("annotations", None)
            pod(document)["containers"].sort(key=lambda c: c["name"])
            pod(document)["volumes"] = sorted(pod(document).get("volumes", []), key=lambda v: v["name"])
            for each in pod(document)["containers"]:
                each.pop("imagePullPolicy", None)
        for file, content in document.get("data", {}).items():
            document["data"][file] = content.strip()
    return plain


def test_the_chart_as_it_ships_is_the_kustomization(tools: Tools) -> None:
    ours, charts = comparable(tools.kustomize(DEPLOY / "eks-neuron")), comparable(tools.template("{}"))
    assert ours.keys() == charts.keys()
    for which in ours:
        assert charts[which] == ours[which], which


def test_the_chart_with_its_values_for_aks_is_the_other_kustomization(tools: Tools) -> None:
    identified = "resources: [BASE]\n" + IDENTIFIED
    cluster = f"{{name: node-recovery, behavior: merge, literals: [AZURE_CLUSTER_ID={CLUSTER}]}}"
    ours = comparable(tools.overlay(f"{identified}configMapGenerator: [{cluster}]\n", over="aks-gpu"))
    charts = comparable(tools.template(AKS, "--set", "azure.region=", "--namespace", OVERLAYS["aks-gpu"]))
    assert ours.keys() == charts.keys()
    settings = ours[("ConfigMap", "node-recovery")]["data"]
    for name in ("AZURE_REGION", "AZURE_ALLOW", "AZURE_AUTOSCALER"):
        assert settings.pop(name) in ("", "false"), "the chart leaves out what is off"
    # One label, in a selector here and in an affinity there.
    (daemonset,) = [pod(d) for (kind, _), d in charts.items() if kind == "DaemonSet"]
    (term,) = daemonset["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    for key, value in daemonset.pop("nodeSelector").items():
        term["matchExpressions"].append({"key": key, "operator": "In", "values": [value]})
    for which in ours:
        assert charts[which] == ours[which], which


def test_the_agents_rights_are_those_of_deploy_rbac_however_it_is_installed(tools: Tools) -> None:
    (role,) = documents((DEPLOY / "rbac" / "clusterrole.yaml").read_text())
    for values in CASES.values():
        assert one(tools.template(values), "ClusterRole", "node-recovery")["rules"] == role["rules"]


# ---------------------------------------------------------------- the chart's own


def test_turning_the_switch_starts_every_pod_again(tools: Tools) -> None:
    off, on = tools.template("{}"), tools.template("settings: {ENABLE_RECOVERY: true}")
    assert one(on, "ConfigMap", "node-recovery")["data"]["ENABLE_RECOVERY"] == "true"
    for before, after in zip(workloads(off), workloads(on), strict=True):
        assert pod(before) == pod(after)
        assert before["spec"]["template"] != after["spec"]["template"]


def test_other_monitors_reach_the_detector_by_their_files_and_flags(tools: Tools) -> None:
    found = tools.template(GPU)
    daemonset = one(found, "DaemonSet", "node-problem-detector")
    command = container(daemonset, "node-problem-detector")["command"]
    assert "--config.custom-plugin-monitor=/config/gpu-count.json,/config/gpu-xid.json" in command
    assert not [word for word in command if "system-log-monitor" in word]
    assert command[-1] == "--v=2"
    assert one(found, "ConfigMap", "node-problem-detector-config")["data"].keys() == {
        "gpu-count.json",
        "gpu-xid.json",
    }
    (volume,) = [v["projected"] for v in pod(daemonset)["volumes"] if "projected" in v]
    assert {"key": "gpu-count.sh", "path": "plugin/gpu-count.sh", "mode": 0o555} in [
        item for source in volume["sources"] for item in source["configMap"].get("items", [])
    ]


def test_what_is_said_of_azure_reaches_every_agent(tools: Tools) -> None:
    more = AKS.replace("region:", "allow: [aks-replace, aks-compute], autoscaler: true, region:")
    found = tools.template(more)
    settings = one(found, "ConfigMap", "node-recovery")["data"]
    assert {name: value for name, value in settings.items() if name.startswith("AZURE_")} == {
        "AZURE_CLUSTER_ID": CLUSTER,
        "AZURE_REGION": "eastus2",
        "AZURE_ALLOW": "aks-replace,aks-compute",
        "AZURE_AUTOSCALER": "true",
    }
    account = one(found, "ServiceAccount", "node-recovery")
    assert account["metadata"]["annotations"] == {"azure.workload.identity/client-id": IDENTITY}
    for workload in workloads(found):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert labels["azure.workload.identity/use"] == "true"
        assert pod(workload)["terminationGracePeriodSeconds"] == 60


def test_another_identity_starts_every_pod_again(tools: Tools) -> None:
    one_, other = tools.template(AKS), tools.template(AKS.replace("11111111", "22222222"))
    for before, after in zip(workloads(one_), workloads(other), strict=True):
        assert before["spec"]["template"] != after["spec"]["template"]


def test_a_privileged_detector_gets_no_token_for_azure(tools: Tools) -> None:
    template = one(tools.template(GPU + AZURE), "DaemonSet", "node-problem-detector")["spec"]["template"]
    assert template["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    skipped = template["metadata"]["annotations"]["azure.workload.identity/skip-containers"]
    privileged = [c["name"] for c in template["spec"]["containers"] if c["securityContext"].get("privileged")]
    assert privileged == [skipped]


def test_the_patch_for_a_detector_that_is_there_asks_for_the_token_too(tools: Tools) -> None:
    found = tools.template(ALREADY_THERE + AZURE)
    patch = yaml.safe_load(one(found, "ConfigMap", "node-recovery-sidecar")["data"]["patch.yaml"])
    assert patch["spec"]["template"]["metadata"]["labels"] == {"azure.workload.identity/use": "true"}
    assert patch["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 60


def test_a_page_that_is_named_is_the_one_that_is_read(tools: Tools) -> None:
    daemonset = one(
        tools.template(AKS, "--set", "settings.NPD_METRICS_URL=http://127.0.0.1:1/"),
        "DaemonSet",
        "node-recovery",
    )
    assert "NPD_METRICS_URL" not in {entry["name"] for entry in container(daemonset)["env"]}


DETECTOR = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: detector, namespace: neuron-healthcheck-system}
spec:
  selector: {matchLabels: {app: detector}}
  template:
    metadata: {labels: {app: detector}}
    spec:
      serviceAccountName: detector
      containers:
        - {name: npd, image: "example.com/npd:v1.36.0", volumeMounts: [{name: kmsg, mountPath: /dev/kmsg}]}
      volumes: [{name: kmsg, hostPath: {path: /dev/kmsg}}]
"""


def test_a_detector_that_is_already_there_takes_the_sidecar_by_one_patch(
    tools: Tools, tmp_path: Path
) -> None:
    there = tmp_path / "detector.yaml"
    there.write_text(DETECTOR)
    policy = ("--set-file", f"policy={POLICY}")
    patch = tmp_path / "patch.yaml"
    found = tools.template(ALREADY_THERE, *policy)
    patch.write_text(one(found, "ConfigMap", "node-recovery-sidecar")["data"]["patch.yaml"])
    patched = tools.kubectl("patch", "--local", "-f", there, "--patch-file", patch, "-o", "yaml")
    (before,), (after,) = documents(DETECTOR), documents(patched)

    sound([*found, after], ("detector",))
    assert container(after, "npd") == container(before, "npd")
    made = one(tools.template("{}", *policy), "DaemonSet", "node-problem-detector")
    assert container(after) == container(made)

    again = tmp_path / "patched.yaml"
    again.write_text(patched)
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    off = json.loads(re.findall(r'\$off := (".*") \}\}', notes)[0])
    (gone,) = documents(tools.kubectl("patch", "--local", "-f", again, "--patch", off, "-o", "yaml"))
    assert pod(gone)["containers"] == pod(before)["containers"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            "settings: {ENABLE_RECOVERY: 'yes'}",
            "at '/settings/ENABLE_RECOVERY': value must be one of true, false",
        ),
        (
            "settings: {ENABLE_RECOVRY: true}",
            "at '/settings': additional properties 'ENABLE_RECOVRY' not allowed",
        ),
        ("enableRecovery: true", "additional properties 'enableRecovery' not allowed"),
        ("npd: {maxUnavailable: 0}", "at '/npd/maxUnavailable': minimum: got 0, want 1"),
        ("concluder: {create: 1}", "at '/concluder/create': got number, want boolean"),
        (
            "npd: {neuron: false}",
            "npd has nothing to watch: set npd.neuron, npd.logMonitors or npd.pluginMonitors",
        ),
        (
            f"settings: {{AZURE_CLUSTER_ID: {CLUSTER}}}",
            "settings.AZURE_CLUSTER_ID: say azure.clusterId instead",
        ),
        (
            "npd: {onNode: true, create: false}",
            "npd.onNode makes a DaemonSet for the agent alone, and npd.create=false says that there is one",
        ),
        (
            "azure: {allow: [reimage]}",
            "at '/azure/allow/0': value must be one of 'aks-compute', 'aks-replace'",
        ),
    ],
)
def test_wrong_values_are_refused_in_a_sentence(tools: Tools, values: str, message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        tools.template(values)
