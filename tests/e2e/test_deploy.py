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
from fleet_site import uncomment
from toolbox import program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "node-recovery"
NAMESPACE = "neuron-healthcheck-system"
CONCLUDER = "node-recovery-concluder"
"""Of the concluder: its namespace, its account, its Deployment."""
CONTROLLER = "node-recovery-fleet"
"""The same of fleet mode's controller, and its Lease."""
OVERLAYS = {"eks-neuron": NAMESPACE, "eks-gpu": "node-recovery", "aks-gpu": "gpu-healthcheck-system"}
overlays = pytest.mark.parametrize("overlay", OVERLAYS)
POLICY = ROOT / "recovery" / "catalog" / "default-policy.yaml"
LATER = ("--kube-version", "1.36.0")
IMAGE = ("--set", "image.repository=node-recovery")
"""Where the kustomizations have it; a chart without one is refused."""
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
image: {repository: "registry.example.com:5000/team/node-recovery", tag: v2}
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
IN_COMPUTE = "Compute/virtualMachineScaleSets/gpu"
SCALE_SET = CLUSTER.replace("ContainerService/managedClusters/training", IN_COMPUTE)
VMSS = (CHART / "values-vmss-gpu.yaml").read_text() + AZURE.replace(CLUSTER, SCALE_SET)
FLEET = (CHART / "values-fleet.yaml").read_text()
NPD = "node-recovery-npd"
"""node-problem-detector's own account in the agent's pod, and the policies that limit it."""
CASES = {
    "as it ships": "{}",
    "GPUs": GPU,
    "beside a detector": ALREADY_THERE,
    "otherwise": OTHERWISE,
    "turned on": "settings: {ENABLE_RECOVERY: true}",
    "on AKS": AKS,
    "in scale sets": VMSS,
}
cases = pytest.mark.parametrize("values", CASES.values(), ids=CASES)


def run(*command: str | Path, home: Path) -> str:
    environ = {**os.environ, "HOME": str(home), "KUBECONFIG": str(home / "none")}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environ)  # noqa: S603
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


GPU_DETECTOR = "gpu-problem-detector"


def of_the_detector(document: Document) -> bool:
    """Whether it is of ``deploy/npd-gpu``."""
    meta = document["metadata"]
    ours = meta.get("labels", {}).get("app.kubernetes.io/component") == "detector"
    return ours or GPU_DETECTOR in (meta["name"], meta.get("namespace"))


class Tools:
    """kubectl and Helm, without a cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def kustomize(self, path: Path) -> list[Document]:
        """What is made of ``path``, without the detector that comes along, which is nobody's agent."""
        found = documents(run(program("kubectl"), "kustomize", path, home=self.folder))
        return [d for d in found if not of_the_detector(d)]

    def kubectl(self, *words: str | Path) -> str:
        return run(program("kubectl"), *words, home=self.folder)

    def helm(self, verb: str, *words: str | Path) -> str:
        return run(program("helm"), verb, *words, home=self.folder)

    def template(self, values: str, *words: str | Path) -> list[Document]:
        (self.folder / "values.yaml").write_text(values)
        image = () if "repository: " in values else IMAGE
        place = ("--namespace", NAMESPACE, "--no-hooks", *image, *LATER)
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
            if source.get("configMap", {}).get("name", CA) != CA:
                yield "ConfigMap", source["configMap"]["name"]


def sound(
    found: list[Document],
    given: tuple[str, ...] = (),
    namespace: str = NAMESPACE,
    of_deployments: str = CONCLUDER,
) -> None:
    """Valid, each thing once, in two namespaces, and everything that is named is there or ``given``."""
    version = kubernetes_validate.latest_version()
    for document in found:
        kubernetes_validate.validate(document, version, strict=True)
    names = [(d["kind"], d["metadata"].get("namespace", ""), d["metadata"]["name"]) for d in found]
    assert len(names) == len(set(names))
    there = {*names, *(("ServiceAccount", namespace, name) for name in given)}
    for document in found:
        place = document["metadata"].get("namespace", "")
        assert place in ("", namespace, of_deployments)
        if document["kind"] in ("ClusterRoleBinding", "RoleBinding"):
            role = document["roleRef"]
            assert (role["kind"], place if role["kind"] == "Role" else "", role["name"]) in there
            for subject in document["subjects"]:
                assert (subject["kind"], subject["namespace"], subject["name"]) in there
        if document["kind"] in ("DaemonSet", "Deployment"):
            assert place == (of_deployments if document["kind"] == "Deployment" else namespace)
            assert {(kind, place, name) for kind, name in references(document)} <= there
            containers = (*pod(document)["containers"], *pod(document).get("initContainers", ()))
            mounts = {m["name"] for c in containers for m in c.get("volumeMounts", [])}
            assert mounts == {volume["name"] for volume in pod(document).get("volumes", [])}


def renamed(deploy: Path, installation: str, before: str, after: str) -> None:
    """By the command that deploy/README.md has for the agents' namespace, or for the concluder's."""
    commands = re.findall(r"(?m)^(grep -rl 'namespace: .*)$", (DEPLOY / "README.md").read_text())
    shipped, new = (CONCLUDER, "apart") if before == CONCLUDER else (NAMESPACE, "mine")
    (command,) = [x for x in commands if shipped in x]
    for word, is_ in (("eks-neuron", installation), (shipped, before), (f": {new}/", f": {after}/")):
        assert word in command
        command = command.replace(word, is_)
    subprocess.run(command, shell=True, cwd=deploy, check=True)  # noqa: S602


PARTS = {
    "eks-neuron": ("irsa", "policy"),
    "eks-gpu": (),
    "aks-gpu": ("policy",),
    "baremetal": ("components/policy", "components/redfish"),
}


@pytest.mark.parametrize("installation", PARTS)
@pytest.mark.parametrize("agents", ["", "mine"], ids=["as it ships", "the agents in another namespace"])
@pytest.mark.parametrize(
    "concluder", ["", "apart"], ids=["as it ships", "the concluder in another namespace"]
)
def test_everything_that_names_a_namespace_moves_with_it(
    tools: Tools, tmp_path: Path, installation: str, agents: str, concluder: str
) -> None:
    deploy = tmp_path / "deploy"
    shutil.copytree(DEPLOY, deploy)
    place = deploy / installation
    (shipped,) = re.findall(r"(?m)^namespace: (.*)$", (place / "agents" / "kustomization.yaml").read_text())
    for component in PARTS[installation]:
        uncomment(place / "kustomization.yaml", component)
    for option in ("checkpoint", "validation"):
        uncomment(place / "agents" / "kustomization.yaml", f"../../options/{option}")
    renamed(deploy, installation, CONCLUDER, concluder or CONCLUDER)
    renamed(deploy, installation, shipped, agents or shipped)
    found = tools.kustomize(place)

    of_agents, of_concluder = agents or shipped, concluder or CONCLUDER
    accounts = {
        d["metadata"]["name"]: d["metadata"]["namespace"] for d in found if d["kind"] == "ServiceAccount"
    }
    assert accounts.pop(CONCLUDER) == of_concluder
    assert accounts.pop(NPD, of_agents) == of_agents
    ((account, its_namespace),) = accounts.items()
    assert its_namespace == of_agents
    limited = {
        "": f"{of_agents}:{account}",
        "concluder": f"{of_concluder}:{CONCLUDER}",
        "npd": f"{of_agents}:{NPD}",
    }
    for policy in (d for d in found if d["kind"] == "ValidatingAdmissionPolicy"):
        name = limited[policy["metadata"]["labels"].get("app.kubernetes.io/component", "")]
        (condition,) = policy["spec"]["matchConditions"]
        # One is for everybody but the agents: the port of AKS's detector.
        is_ = "!=" if policy["metadata"]["name"] == "node-recovery-host-port" else "=="
        assert condition["expression"] == f'request.userInfo.username {is_} "system:serviceaccount:{name}"'
    (deployment,) = [d for d in found if d["kind"] == "Deployment"]
    said = {e["name"]: e.get("value") for e in container(deployment)["env"]}
    assert (deployment["metadata"]["namespace"], said["AGENTS_NAMESPACE"]) == (of_concluder, of_agents)
    for binding in (d for d in found if d["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        for subject in binding["subjects"]:
            assert subject["namespace"] == {CONCLUDER: of_concluder}.get(subject["name"], of_agents)
    leases = one(found, "RoleBinding", CONCLUDER)
    assert leases["metadata"]["namespace"] == of_agents
    for workload in workloads(found):
        for kind, name in references(workload):
            (there,) = [
                d for d in found if (d["kind"], d["metadata"]["name"]) == (kind, name) and same(d, workload)
            ]
            assert there
    namespaces = {d["metadata"]["name"]: d["metadata"]["labels"] for d in found if d["kind"] == "Namespace"}
    assert namespaces.keys() == {of_agents, of_concluder}
    assert namespaces[of_concluder]["noderecovery.dev/evict"] == "never"


@pytest.mark.parametrize("component", ["metal3", "redfish"])
def test_policies_that_an_overlay_brings_name_the_accounts_where_they_are(
    tools: Tools, tmp_path: Path, component: str
) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    renamed(tmp_path / "deploy", "baremetal", CONCLUDER, "apart")
    renamed(tmp_path / "deploy", "baremetal", "node-recovery", "mine")
    mine, base = tmp_path / "overlay", "../deploy/baremetal"
    mine.mkdir()
    text = f"resources: [{base}]\ncomponents: [{base}/components/{component}]\n"
    (mine / "kustomization.yaml").write_text(text)
    named = {
        d["spec"]["matchConditions"][0]["expression"].split(":")[2]
        for d in tools.kustomize(mine)
        if d["kind"] == "ValidatingAdmissionPolicy"
    }
    assert named == {"mine", "apart"}


def same(one_: Document, other: Document) -> bool:
    """In one namespace."""
    return bool(one_["metadata"].get("namespace") == other["metadata"].get("namespace"))


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        ("namespace: mine\n", "namespace transformation produces ID conflict"),
        (
            "configMapGenerator: [{name: node-recovery, behavior: merge, literals: [CLUSTER_NAME=x]}]\n",
            "found multiple objects",
        ),
    ],
    ids=["one namespace for both", "settings of one of them"],
)
def test_an_overlay_that_would_do_half_of_it_is_refused(tools: Tools, overlay: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        tools.overlay("resources: [BASE]\n" + overlay)


@overlays
def test_the_kustomization_is_sound(tools: Tools, overlay: str) -> None:
    sound(tools.kustomize(DEPLOY / overlay), namespace=OVERLAYS[overlay])


def test_the_detector_that_comes_along_on_aks_has_no_identity_on_azure(tools: Tools) -> None:
    found = documents(tools.kubectl("kustomize", DEPLOY / "aks-gpu"))
    (account,) = [d for d in found if d["kind"] == "ServiceAccount" and of_the_detector(d)]
    (workload,) = [d for d in workloads(found) if of_the_detector(d)]
    assert "annotations" not in account["metadata"]
    assert "azure.workload.identity/use" not in workload["spec"]["template"]["metadata"]["labels"]
    for document in found:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def account_of_the_detectors_policy(found: list[Document]) -> str:
    policy = one(found, "ValidatingAdmissionPolicy", "node-recovery-detector")
    (condition,) = policy["spec"]["matchConditions"]
    return str(condition["expression"].split('"')[1])


def test_the_policy_of_the_detector_that_comes_along_limits_the_detectors_account(
    tools: Tools, tmp_path: Path
) -> None:
    """The namespaces of agents and concluder are put into all other policies; its own moves with it."""
    its = f"system:serviceaccount:{{}}:{GPU_DETECTOR}"
    aks = documents(tools.kubectl("kustomize", DEPLOY / "aks-gpu"))
    assert account_of_the_detectors_policy(aks) == its.format(GPU_DETECTOR)
    shutil.copytree(DEPLOY / "npd-gpu", tmp_path / "npd-gpu")
    file = tmp_path / "npd-gpu" / "kustomization.yaml"
    file.write_text(file.read_text().replace(f"namespace: {GPU_DETECTOR}", "namespace: mine"))
    moved = documents(tools.kubectl("kustomize", tmp_path / "npd-gpu"))
    assert account_of_the_detectors_policy(moved) == its.format("mine")


def both(setting: str, namespace: str = NAMESPACE) -> str:
    """An overlay's change of a setting, as deploy/README.md has it."""
    made = [
        f"{{name: node-recovery, namespace: {place}, behavior: merge, literals: ['{setting}']}}"
        for place in (namespace, CONCLUDER)
    ]
    return f"configMapGenerator: [{', '.join(made)}]\n"


def beside(found: list[Document], workload: Document, name: str) -> Document:
    """The ConfigMap of this name in the workload's namespace."""
    return one([d for d in found if same(d, workload)], "ConfigMap", name)


COMPONENTS = "resources: [BASE]\ncomponents: [BASE/irsa, BASE/policy]\n"


def test_an_overlay_takes_a_role_a_policy_and_an_image_and_turns_recovery_on(tools: Tools) -> None:
    switch = both("ENABLE_RECOVERY=true")
    image = "images: [{name: node-recovery, newName: registry.example.com/nr, newTag: v2}]\n"
    found = tools.overlay(COMPONENTS + switch + image)
    sound(found)
    for name in ("node-problem-detector", CONCLUDER):
        account = one(found, "ServiceAccount", name)
        assert account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].startswith("arn:aws:iam::")
    for workload in workloads(found):
        ours = container(workload)
        settings = beside(found, workload, ours["envFrom"][0]["configMapRef"]["name"])["data"]
        assert (settings["ENABLE_RECOVERY"], settings["CLUSTER_NAME"]) == ("true", "default")
        assert ours["image"] == "registry.example.com/nr:v2"
        (mount,) = [m for m in ours["volumeMounts"] if m["name"] == "policy"]
        assert settings["POLICY_FILE"].startswith(mount["mountPath"] + "/")
        (volume,) = [v for v in pod(workload)["volumes"] if v["name"] == mount["name"]]
        policy = beside(found, workload, volume["configMap"]["name"])["data"]
        assert policy == {Path(settings["POLICY_FILE"]).name: POLICY.read_text()}


@overlays
def test_the_components_can_be_uncommented_where_they_stand(
    tools: Tools, tmp_path: Path, overlay: str
) -> None:
    parts = ("crds", "users", "rbac", "concluder", "joined", "observe", "npd-gpu", "npd-account", "options")
    for folder in dict.fromkeys((*parts, "eks-neuron", overlay)):
        shutil.copytree(DEPLOY / folder, tmp_path / folder)
    file = tmp_path / overlay / "kustomization.yaml"
    file.write_text(re.sub(r"^  # (- [\w./-]+ #)", r"  \1", file.read_text(), flags=re.MULTILINE))
    found = tools.kustomize(tmp_path / overlay)
    sound(found, namespace=OVERLAYS[overlay])
    accounts = [d for d in found if d["kind"] == "ServiceAccount"]
    detectors = [d for d in accounts if d["metadata"]["name"] == NPD]
    assert not [d for d in detectors if "annotations" in d["metadata"]], "no role in the cloud for it"
    accounts = [d for d in accounts if d not in detectors]
    assert len(accounts) == 2
    assert all(account["metadata"]["annotations"] for account in accounts)
    assert all(container(w)["volumeMounts"] for w in workloads(found))


IDENTIFIED = """
patches:
  - target: {kind: ServiceAccount, labelSelector: app.kubernetes.io/name=node-recovery}
    patch: |
      - op: replace
        path: /metadata/annotations/azure.workload.identity~1client-id
        value: 11111111-2222-3333-4444-555555555555
"""


def test_an_overlay_on_aks_takes_an_identity_a_cluster_and_a_policy(tools: Tools) -> None:
    settings = both("AZURE_REGION=eastus2", OVERLAYS["aks-gpu"])
    text = "resources: [BASE]\ncomponents: [BASE/policy]\n" + settings + IDENTIFIED
    found = tools.overlay(text, over="aks-gpu")
    sound(found, namespace=OVERLAYS["aks-gpu"])
    for name in ("node-recovery", CONCLUDER):
        account = one(found, "ServiceAccount", name)
        assert account["metadata"]["annotations"] == {"azure.workload.identity/client-id": IDENTITY}
    for workload in workloads(found):
        given = beside(found, workload, container(workload)["envFrom"][0]["configMapRef"]["name"])["data"]
        assert (given["AZURE_REGION"], given["ENABLE_RECOVERY"]) == ("eastus2", "false")
        (volume,) = pod(workload)["volumes"]
        policy = beside(found, workload, volume["configMap"]["name"])["data"]
        assert policy[Path(given["POLICY_FILE"]).name] == (DEPLOY / "aks-gpu/policy/policy.yaml").read_text()


@cases
def test_the_chart_is_sound_and_helms_linter_has_nothing_to_say(tools: Tools, values: str) -> None:
    given = ("detector",) if values == ALREADY_THERE else ()
    sound(tools.template(values), given)
    sound(tools.template(values, "--set-file", f"policy={POLICY}"), given)
    assert "0 chart(s) failed" in tools.helm(
        "lint", "--strict", CHART, *IMAGE, *LATER, "-f", tools.folder / "values.yaml"
    )


# ---------------------------------------------------------------- Helm and kustomize


def settings_of(found: list[Document]) -> dict[str, str]:
    """Of the agents and of the concluder: they are the same."""
    agents, concluder = (
        d["data"] for d in found if (d["kind"], d["metadata"]["name"]) == ("ConfigMap", "node-recovery")
    )
    assert agents == concluder
    return dict(agents)


def comparable(found: list[Document]) -> Mapping[tuple[str, str, str], Document]:
    """Without what tells how a thing was put together: labels, hashes, Helm's own names and defaults."""
    text = json.dumps(found)
    text = re.sub(r"(node-recovery(?:-policy)?|node-problem-detector-config)-[a-z0-9]{10}\b", r"\1", text)
    text = text.replace("neuron-node-problem-detector", "node-recovery-npd")
    text = re.sub(r"node-problem-detector-gpu-pack|gpu-pack-[a-z0-9]{10}\b", "gpu-pack", text)
    plain = {}
    for document in json.loads(text):
        meta = document["metadata"]
        if document["kind"] == "Namespace" and meta["name"] not in (CONCLUDER, CONTROLLER):
            continue  # Helm is told the agents'
        kept = {k: v for k, v in meta.pop("labels", {}).items() if "noderecovery" in k or "security" in k}
        meta |= {"labels": kept} if kept else {}
        if document["kind"] == "CustomResourceDefinition":
            meta.pop("annotations", None)  # the chart's are kept when it goes
        if document["kind"].startswith(
            "ValidatingAdmissionPolicy"
        ):  # kustomize gives a namespace to what has none
            meta.pop("namespace", None)
        plain[document["kind"], meta.get("namespace", ""), meta["name"]] = document
        if document["kind"] in ("DaemonSet", "Deployment"):
            document["spec"]["template"]["metadata"].pop("annotations", None)
            if not pod(document).get("initContainers"):
                pod(document).pop("initContainers", None)
            pod(document)["containers"].sort(key=lambda c: c["name"])
            pod(document)["volumes"] = sorted(pod(document).get("volumes", []), key=lambda v: v["name"])
            for each in (*pod(document)["containers"], *pod(document).get("initContainers", ())):
                each.pop("imagePullPolicy", None)
                each["volumeMounts"] = sorted(each.get("volumeMounts", []), key=lambda m: m["mountPath"])
        for file, content in document.get("data", {}).items():
            document["data"][file] = content.strip()
    return plain


OPTIONS = "BASE/../options/checkpoint, BASE/../options/validation"
WRITES = {"events", "recoveryreports", "tokenreviews"}
"""What is written by who only observes."""


@pytest.mark.parametrize(
    ("over", "components"),
    [
        ("eks-neuron", OPTIONS),
        ("eks-gpu", OPTIONS),
        ("aks-gpu", OPTIONS),
        ("baremetal", f"{OPTIONS}, BASE/components/metal3"),
        ("baremetal", "BASE/components/redfish, BASE/components/kured"),
        ("fleet", ""),
    ],
)
def test_over_every_installation_and_all_its_options_observing_leaves_no_right_to_change_anything(
    tools: Tools, over: str, components: str
) -> None:
    before = tools.overlay(f"resources: [BASE]\ncomponents: [{components}]\n", over=over)
    after = tools.overlay(
        f"resources: [BASE]\ncomponents: [{f'{components}, ' if components else ''}BASE/../observe]\n",
        over=over,
    )
    assert written(before) > WRITES | {"nodes", "pods/eviction", "leases"}
    beside = {"serviceaccounts/token"} if over in ("eks-neuron", "eks-gpu", "baremetal") else set()
    assert written(after) - WRITES == beside, "a token of the detector's account, where it has one"
    assert {(d["kind"], d["metadata"]["name"]) for d in before} == {
        (d["kind"], d["metadata"]["name"]) for d in after
    }, "what kubectl applied before is written anew"


def written(found: list[Document]) -> set[str]:
    """The kinds that a bound role lets an account change; the detector's own role is the detector's."""
    bound = {(d["roleRef"]["kind"], d["roleRef"]["name"]) for d in found if "roleRef" in d}
    return {
        kind
        for d in found
        if (d["kind"], d["metadata"]["name"]) in bound and "problem-detector" not in d["metadata"]["name"]
        for rule in d["rules"] or ()
        for kind in rule["resources"]
        if set(rule["verbs"]) - {"get", "list", "watch"}
    }


ALL_RIGHTS = ("--set", "rbac.mode=recover")
"""What the kustomizations grant, whatever the switch says."""


def the_same(ours: Mapping[Any, Document], charts: Mapping[Any, Document]) -> None:
    assert ours.keys() == charts.keys()
    for which in ours:
        assert charts[which] == ours[which], which


def test_the_chart_with_all_rights_is_the_kustomization(tools: Tools) -> None:
    charts = tools.template("{}", *ALL_RIGHTS)
    the_same(comparable(tools.kustomize(DEPLOY / "eks-neuron")), comparable(charts))


def without_empty_roles(found: list[Document]) -> list[Document]:
    """kubectl takes away what was granted before by a role that grants nothing; Helm deletes the role."""
    empty = {(d["kind"], d["metadata"]["name"]) for d in found if d.get("rules", True) == []}
    return [
        d
        for d in found
        if (d["kind"], d["metadata"]["name"]) not in empty
        and (d.get("roleRef", {}).get("kind"), d.get("roleRef", {}).get("name")) not in empty
    ]


@pytest.mark.parametrize("over", ["eks-neuron", "fleet"])
def test_the_chart_as_it_ships_is_the_kustomization_with_observe_only_rights(tools: Tools, over: str) -> None:
    mine = "resources: [BASE]\ncomponents: [BASE/../observe]\n"
    observing = without_empty_roles(tools.overlay(mine, over=over))
    values = "{}" if over == "eks-neuron" else f"{FLEET}  create: false\n"
    charts = dict(comparable(tools.template(values)))
    if over == "fleet":
        charts["ConfigMap", CONTROLLER, "node-recovery"]["data"].pop("CLOUDWATCH_NAMESPACE")
        container(charts["Deployment", CONTROLLER, CONTROLLER])["env"].pop()
    the_same(comparable(observing), charts)


def test_the_chart_with_its_values_for_gpus_on_eks_is_that_kustomization(tools: Tools) -> None:
    values = (CHART / "values-eks-gpu.yaml").read_text()
    policy = ("--set-file", f"policy={DEPLOY / 'eks-gpu/policy/policy.yaml'}")
    ours = comparable(tools.kustomize(DEPLOY / "eks-gpu"))
    charts = comparable(tools.template(values, *policy, *ALL_RIGHTS, "--namespace", OVERLAYS["eks-gpu"]))
    the_same(ours, charts)


def test_the_chart_with_its_values_for_aks_is_the_other_kustomization(tools: Tools) -> None:
    identified = "resources: [BASE]\n" + IDENTIFIED
    cluster = both(f"AZURE_CLUSTER_ID={CLUSTER}", OVERLAYS["aks-gpu"])
    ours = comparable(tools.overlay(identified + cluster, over="aks-gpu"))
    place = ("--namespace", OVERLAYS["aks-gpu"])
    charts = comparable(tools.template(AKS, "--set", "azure.region=", *ALL_RIGHTS, *place))
    assert ours.keys() == charts.keys()
    for place in (OVERLAYS["aks-gpu"], CONCLUDER):
        settings = ours["ConfigMap", place, "node-recovery"]["data"]
        for name in ("AZURE_REGION", "AZURE_ALLOW", "AZURE_AUTOSCALER"):
            assert settings.pop(name) in ("", "false"), "the chart leaves out what is off"
    # One label, in a selector here and in an affinity there.
    (daemonset,) = [pod(d) for (kind, *_), d in charts.items() if kind == "DaemonSet"]
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
        found = tools.template(values, "--set", "settings.ENABLE_RECOVERY=true")
        assert one(found, "ClusterRole", "node-recovery")["rules"] == role["rules"]


# ---------------------------------------------------------------- the chart's own


@pytest.mark.parametrize("name", ["777", "1e5"])
@pytest.mark.parametrize("values", [*CASES.values(), FLEET], ids=[*CASES, "fleet"])
def test_a_release_a_namespace_and_an_account_may_have_a_name_that_yaml_takes_for_something_else(
    tools: Tools, values: str, name: str
) -> None:
    file = tools.folder / "values.yaml"
    file.write_text(values)
    own = ("--set-string", f"serviceAccount.name={name},npd.name={name},webhook.secretName={name}")
    place = ("--namespace", name, *IMAGE, *LATER, *own)
    found = documents(tools.helm("template", name, CHART, *place, "-f", file))
    for document in found:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        assert document["metadata"]["labels"].get("app.kubernetes.io/instance", name) == name


def test_a_policy_may_begin_with_a_line_that_is_indented(tools: Tools) -> None:
    text = "    # ours\nlimits: {budget: 1}\nrules: []\n"
    file = tools.folder / "policy.yaml"
    file.write_text(text)
    found = tools.template("{}", "--set-file", f"policy={file}")
    maps = [d for d in found if d["metadata"]["name"] == "node-recovery-policy"]
    assert [d["data"]["policy.yaml"] for d in maps] == [text, text]


def test_turning_the_switch_starts_every_pod_again(tools: Tools) -> None:
    off, on = tools.template("{}"), tools.template("settings: {ENABLE_RECOVERY: true}")
    assert settings_of(on)["ENABLE_RECOVERY"] == "true"
    for before, after in zip(workloads(off), workloads(on), strict=True):
        assert pod(before) == pod(after)
        assert before["spec"]["template"] != after["spec"]["template"]


def test_a_long_number_is_a_setting_as_it_was_written(tools: Tools) -> None:
    found = tools.template("settings: {CLUSTER_NAME: 123456789012, ENABLE_RECOVERY: true}")
    settings = settings_of(found)
    assert (settings["CLUSTER_NAME"], settings["ENABLE_RECOVERY"]) == ("123456789012", "true")


def test_another_role_in_the_cloud_starts_every_pod_again(tools: Tools) -> None:
    role = "serviceAccount: {annotations: {eks.amazonaws.com/role-arn: 'arn:one'}}"
    one_, other = tools.template(role), tools.template(role.replace("arn:one", "arn:two"))
    for before, after in zip(workloads(one_), workloads(other), strict=True):
        assert before["spec"]["template"] != after["spec"]["template"]


def test_a_plugin_without_a_monitor_file_of_ones_own_refers_to_no_map_that_is_not_there(tools: Tools) -> None:
    found = tools.template("npd: {neuron: false, gpu: true, plugins: {x.sh: 'echo'}}")
    made = {d["metadata"]["name"] for d in found if d["kind"] == "ConfigMap"}
    (volume,) = [
        v["projected"]
        for v in pod(one(found, "DaemonSet", "node-problem-detector"))["volumes"]
        if v["name"] == "config"
    ]
    assert {source["configMap"]["name"] for source in volume["sources"]} <= made


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
    (volume,) = [v["projected"] for v in pod(daemonset)["volumes"] if v["name"] == "config"]
    assert {"key": "gpu-count.sh", "path": "plugin/gpu-count.sh", "mode": 0o555} in [
        item for source in volume["sources"] for item in source["configMap"].get("items", [])
    ]


def test_what_is_said_of_azure_reaches_every_agent(tools: Tools) -> None:
    more = AKS.replace("region:", "allow: [aks-replace, aks-compute], autoscaler: true, region:")
    found = tools.template(more)
    settings = settings_of(found)
    assert {name: value for name, value in settings.items() if name.startswith("AZURE_")} == {
        "AZURE_CLUSTER_ID": CLUSTER,
        "AZURE_REGION": "eastus2",
        "AZURE_ALLOW": "aks-replace,aks-compute",
        "AZURE_AUTOSCALER": "true",
    }
    for name in ("node-recovery", CONCLUDER):
        account = one(found, "ServiceAccount", name)
        assert account["metadata"]["annotations"] == {"azure.workload.identity/client-id": IDENTITY}
    for workload in workloads(found):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert labels["azure.workload.identity/use"] == "true"
        assert pod(workload)["terminationGracePeriodSeconds"] == 60


def test_in_scale_sets_the_detector_comes_along_and_no_label_of_aks_is_asked_for(tools: Tools) -> None:
    size = "Standard_ND96isr_H100_v5"
    found = tools.template(VMSS, "--set", f"npd.gpuSku={size}")
    assert "kubernetes.azure.com" not in json.dumps(found)
    assert not [d for d in found if "host-port" in d["metadata"]["name"]], "its port is reserved on AKS alone"
    daemonset = one(found, "DaemonSet", "node-problem-detector")
    assert {c["name"] for c in pod(daemonset)["containers"]} == {"node-problem-detector", "node-recovery"}
    assert "nodeSelector" not in pod(daemonset)
    places = pod(daemonset)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (of_type,) = [
        each
        for term in places["nodeSelectorTerms"]
        for each in term["matchExpressions"]
        if each["key"] == "node.kubernetes.io/instance-type"
    ]
    assert size in of_type["values"]
    assert one(found, "ConfigMap", "node-problem-detector-gpu-pack")["data"]["GPU_SKU"] == size
    settings = settings_of(found)
    assert (settings["PROVIDER"], settings["AZURE_CLUSTER_ID"]) == ("azure", SCALE_SET)
    assert "NPD_METRICS_URL" not in {e["name"] for e in container(daemonset)["env"]}, "it reads loopback"


def test_another_identity_starts_every_pod_again(tools: Tools) -> None:
    one_, other = tools.template(AKS), tools.template(AKS.replace("11111111", "22222222"))
    for before, after in zip(workloads(one_), workloads(other), strict=True):
        assert before["spec"]["template"] != after["spec"]["template"]


@pytest.mark.parametrize("values", [GPU + AZURE, VMSS], ids=["other hardware", "in scale sets"])
def test_a_privileged_detector_gets_no_token_for_azure(tools: Tools, values: str) -> None:
    template = one(tools.template(values), "DaemonSet", "node-problem-detector")["spec"]["template"]
    assert template["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    skipped = template["metadata"]["annotations"]["azure.workload.identity/skip-containers"]
    privileged = [c["name"] for c in template["spec"]["containers"] if c["securityContext"].get("privileged")]
    assert privileged == [skipped]


def test_who_is_no_azure_client_in_a_pod_can_be_said_once(tools: Tools) -> None:
    """The same key twice is refused by some parsers, and for others one of the two counts."""
    skip = "azure.workload.identity/skip-containers"
    found = tools.template(f"{VMSS}podAnnotations: {{{skip}: node-problem-detector;mine}}\n")
    (agents,) = [d for d in found if d["kind"] == "DaemonSet"]
    assert agents["spec"]["template"]["metadata"]["annotations"][skip] == "node-problem-detector;mine"


@pytest.mark.parametrize("over", ["eks-neuron", "eks-gpu"])
def test_a_privileged_detector_gets_no_credentials_of_aws(tools: Tools, over: str) -> None:
    """EKS's webhook leaves out the containers that this annotation names, for IRSA and for Pod Identity."""
    values = "{}" if over == "eks-neuron" else (CHART / f"values-{over}.yaml").read_text()
    for found in (tools.template(values), tools.kustomize(DEPLOY / over)):
        template = one(found, "DaemonSet", "node-problem-detector")["spec"]["template"]
        skipped = template["metadata"]["annotations"]["eks.amazonaws.com/skip-containers"]
        assert [skipped] == [
            c["name"] for c in template["spec"]["containers"] if c["securityContext"].get("privileged")
        ]


CA = "kube-root-ca.crt"
"""The ConfigMap that the controller manager puts into every namespace."""
TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKENLESS = "resources: [BASE]\ncomponents: [BASE/../options/npd-without-token]\n"


def sources_of_the_token(workload: Document) -> Document:
    """What stands where a client in the agent's container looks for its account, by its kind."""
    (mount,) = [m for m in container(workload)["volumeMounts"] if m["mountPath"] == TOKENS]
    assert mount["readOnly"]
    (volume,) = [v for v in pod(workload)["volumes"] if v["name"] == mount["name"]]
    return {kind: what for source in volume["projected"]["sources"] for kind, what in source.items()}


@pytest.mark.parametrize("over", ["eks-neuron", "eks-gpu", "baremetal"])
def test_a_detector_that_writes_no_conditions_has_no_token_and_its_pods_account_no_right_for_them(
    tools: Tools, over: str
) -> None:
    by_kustomize = tools.overlay(TOKENLESS, over)
    rendered = [by_kustomize]
    if over != "baremetal":
        values = "{}" if over == "eks-neuron" else (CHART / f"values-{over}.yaml").read_text()
        rendered.append(tools.template(values, "--set", "npd.conditions=false", *ALL_RIGHTS))
    for found in rendered:
        sound(found, namespace=OVERLAYS.get(over, "node-recovery") if found is by_kustomize else NAMESPACE)
        (workload,) = [w for w in workloads(found) if w["kind"] == "DaemonSet"]
        assert pod(workload)["automountServiceAccountToken"] is False
        assert container(workload, "node-problem-detector")["args"] == ["--enable-k8s-exporter=false"]
        assert sources_of_the_token(workload) == {
            "serviceAccountToken": {"path": "token", "expirationSeconds": 3607},
            "configMap": {"name": CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]},
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
            },
        }
        token = next(m["name"] for m in container(workload)["volumeMounts"] if m["mountPath"] == TOKENS)
        theirs = container(workload, "node-problem-detector")["volumeMounts"]
        assert token not in [m["name"] for m in theirs]
        assert not [
            d["metadata"]["name"]
            for d in found
            if d["kind"] == "ClusterRole" and "nodes/status" in str(d.get("rules"))
        ]
        # Who has the node to itself is left as it was.
        (concluder,) = [w for w in workloads(found) if w["kind"] == "Deployment"]
        assert "automountServiceAccountToken" not in pod(concluder)


def test_a_kubernetes_that_binds_no_token_to_a_node_is_refused_where_the_detector_would_need_one(
    tools: Tools,
) -> None:
    on = ("--kube-version", "1.30.4")
    with pytest.raises(AssertionError, match=r"needs Kubernetes 1\.31 or later, and this is v1\.30\.4"):
        tools.template("{}", *on)
    for values in ("npd: {conditions: false}", ALREADY_THERE, FLEET):
        assert tools.template(values, *on)


def test_two_releases_in_one_namespace_share_no_object(tools: Tools) -> None:
    shared = ("serviceAccount: {create: false}", "concluder: {create: false}", "crds: {enabled: false}")
    beside = "\n".join(("npd: {name: second}", *shared))
    first = names_of(tools.template("{}"))
    place = ("--namespace", NAMESPACE, "--no-hooks", *IMAGE, *LATER)
    (tools.folder / "second.yaml").write_text(beside)
    second = tools.helm("template", "second", CHART, *place, "-f", tools.folder / "second.yaml")
    assert first & names_of(documents(second)) == set()


def names_of(found: list[Document]) -> set[tuple[str, str, str]]:
    return {(d["kind"], d["metadata"].get("namespace", ""), d["metadata"]["name"]) for d in found}


def test_the_chart_without_the_detectors_token_is_the_kustomization_with_that_component(tools: Tools) -> None:
    ours = [d for d in without_empty_roles(tools.overlay(TOKENLESS)) if NPD not in d["metadata"]["name"]]
    charts = tools.template("npd: {conditions: false}", *ALL_RIGHTS)
    the_same(comparable(ours), comparable(charts))


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
    ours = container(made)
    ours["env"] = [e for e in ours["env"] if not e["name"].startswith("NPD_")]
    ours["volumeMounts"] = [m for m in ours["volumeMounts"] if not m["name"].endswith("-token")]
    assert container(after) == ours, "but for the tokens: that detector has its pod's"

    again = tmp_path / "patched.yaml"
    again.write_text(patched)
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    off = json.loads(re.findall(r'\$off := (".*") \}\}', notes)[0])
    (gone,) = documents(tools.kubectl("patch", "--local", "-f", again, "--patch", off, "-o", "yaml"))
    assert pod(gone)["containers"] == pod(before)["containers"]


def place_of(found: list[Document]) -> Document:
    """Where the concluder may run, by the chart."""
    affinity: Document = pod(one(found, "Deployment", CONCLUDER))["affinity"]
    return affinity


@pytest.mark.parametrize(
    ("values", "kept_off"),
    [
        ("npd: {instanceTypes: [trn1.2xlarge]}", [("node.kubernetes.io/instance-type", "NotIn")]),
        (GPU, [("accelerator", "NotIn")]),
        (
            "npd: {instanceTypes: [a], nodeSelector: {pool: gpu}}",
            [("node.kubernetes.io/instance-type", "NotIn"), ("pool", "NotIn")],
        ),
        (
            "npd: {instanceTypes: []}",
            [
                ("node-role.kubernetes.io/control-plane", "Exists"),
                ("node-role.kubernetes.io/infra", "Exists"),
            ],
        ),
    ],
    ids=["types of instances", "a label", "either", "every node is judged"],
)
def test_the_concluder_stays_off_the_nodes_that_run_agents(
    tools: Tools, values: str, kept_off: list[tuple[str, str]]
) -> None:
    required = place_of(tools.template(values))["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    terms = [term["matchExpressions"] for term in required["nodeSelectorTerms"]]
    assert [(e["key"], e["operator"]) for (e,) in terms] == kept_off, "any one of them will do"


def test_where_the_concluder_runs_can_be_said(tools: Tools) -> None:
    mine = "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}"
    found = tools.template(
        f"concluder: {{affinity: {mine}, nodeSelector: {{pool: system}}, tolerations: [{{key: own}}]}}"
    )
    assert place_of(found) == yaml.safe_load(mine)
    spec = pod(one(found, "Deployment", CONCLUDER))
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"pool": "system"}, [{"key": "own"}])


def test_another_namespace_for_the_concluder_moves_all_that_is_its_own(tools: Tools) -> None:
    found = tools.template("concluder: {namespace: apart, createNamespace: false}", *ALL_RIGHTS)
    assert not [d for d in found if d["kind"] == "Namespace"]
    assert CONCLUDER not in {d["metadata"].get("namespace") for d in found}
    assert one(found, "Deployment", CONCLUDER)["metadata"]["namespace"] == "apart"
    (leases,) = one(found, "RoleBinding", CONCLUDER)["subjects"]
    assert leases["namespace"] == "apart"
    policies = json.dumps([d for d in found if d["kind"] == "ValidatingAdmissionPolicy"])
    assert policies.count(f"system:serviceaccount:apart:{CONCLUDER}") == 4


def test_the_concluders_namespace_is_fenced_by_its_name_where_the_chart_does_not_make_it(
    tools: Tools,
) -> None:
    """Its label is the chart's only where the namespace is."""
    for namespace in ("apart", CONCLUDER):
        found = tools.template(
            f"concluder: {{namespace: {namespace}, createNamespace: false}}\nadmissionPolicies: true"
        )
        policy = one(found, "ValidatingAdmissionPolicy", "node-recovery-evictions")
        fences = [check["expression"] for check in policy["spec"]["validations"]]
        assert f'request.namespace != "{namespace}"' in fences


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
        (
            "{settings: {ENABLE_RECOVERY: true}, rbac: {mode: observe}}",
            "rbac.mode: observe grants no right to recover a node, but settings.ENABLE_RECOVERY is true. "
            "Set rbac.mode=auto, or settings.ENABLE_RECOVERY=false",
        ),
        ("rbac: {mode: read}", "at '/rbac/mode': value must be one of 'auto', 'observe', 'recover'"),
        (
            "sidecar: {extraEnv: [{name: ENABLE_RECOVERY, value: 'true'}]}",
            "sidecar.extraEnv: ENABLE_RECOVERY must be the same in every pod, and the chart grants rights "
            "by it. Set settings.ENABLE_RECOVERY instead",
        ),
        *(
            (
                f"sidecar: {{extraEnv: [{{name: {name}, value: a}}]}}",
                f"sidecar.extraEnv: {name} is set by the chart, or its probes rely on it. Leave it out",
            )
            for name in ("NODE_NAME", "NPD_TOKEN_DIR", "RECOVERY_MODE", "METRICS_ADDRESS")
        ),
        (
            "sidecar: {extraEnv: [{name: NPD_METRICS_URL, value: a}]}\nnpd: {onNode: true, neuron: false}",
            "sidecar.extraEnv: NPD_METRICS_URL is set by the chart with npd.onNode=true. Leave it out, or "
            "set settings.NPD_METRICS_URL",
        ),
        *(
            (
                f"podAnnotations: {{{name}: a}}",
                f"podAnnotations: {name} is the chart's own annotation, by which pods are started again",
            )
            for name in ("checksum/settings", "checksum/config")
        ),
        (
            "serviceAccount: {name: node-recovery-uninstall}",
            "serviceAccount.name: node-recovery-uninstall is the account of the uninstall hook, which is "
            "made and deleted with it. Choose another name",
        ),
        ("enableRecovery: true", "additional properties 'enableRecovery' not allowed"),
        ("npd: {maxUnavailable: 0}", "at '/npd/maxUnavailable': minimum: got 0, want 1"),
        ("concluder: {create: 1}", "at '/concluder/create': got number, want boolean"),
        (
            f"concluder: {{namespace: {NAMESPACE}}}",
            "concluder.namespace: this is also the agents' namespace.",
        ),
        (
            "npd: {neuron: false}",
            "npd: node-problem-detector has nothing to watch. Set npd.neuron, npd.gpu, npd.logMonitors or "
            "npd.pluginMonitors",
        ),
        (
            f"settings: {{AZURE_CLUSTER_ID: {CLUSTER}}}",
            "settings.AZURE_CLUSTER_ID: set azure.clusterId instead",
        ),
        (
            "npd: {onNode: true, create: false}",
            "npd.onNode: true makes a DaemonSet for the agent alone, but npd.create=false says that you",
        ),
        (
            "webhook: {format: slack}",
            "webhook.format: slack, but webhook.secretName is empty, so no message would be sent.",
        ),
        (
            "settings: {WEBHOOK_EVENTS: all}",
            "settings.WEBHOOK_EVENTS: webhook.secretName is empty, so no message would be sent.",
        ),
        (
            "npd: {onNode: true, neuron: false, conditions: false}",
            "npd.conditions: false, but this chart does not install your node-problem-detector.",
        ),
        (
            "npd: {create: false, conditions: false}\nserviceAccount: {create: false}",
            "npd.conditions: false, but this chart does not install your node-problem-detector.",
        ),
        (
            f"serviceAccount: {{name: {NPD}}}",
            f"serviceAccount.name: {NPD} is the account that node-problem-detector gets for itself",
        ),
        (
            "npd: {extraArgs: [--enable-k8s-exporter=false]}",
            "npd.extraArgs: --enable-k8s-exporter=false keeps node-problem-detector from writing conditions, "
            "and it would get an account for nothing. Set npd.conditions=false instead",
        ),
        (
            "azure: {allow: [reimage]}",
            "at '/azure/allow/0': value must be one of 'aks-compute', 'aks-replace'",
        ),
        *(
            (f"{group}: null", f"{group}: null, expected a mapping. Leave it out for the chart's own values")
            for group in (
                "settings",
                "npd",
                "sidecar",
                "concluder",
                "serviceAccount",
                "networkPolicy",
                "options",
            )
        ),
    ],
)
def test_wrong_values_are_refused_in_a_sentence(tools: Tools, values: str, message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        tools.template(values)


def test_labels_and_look_ups_may_be_null(tools: Tools) -> None:
    assert tools.template("labels: null\npodLabels: null\nlookups: null")


# ---------------------------------------------------------------- the webhook


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ("", ["DaemonSet", "Deployment"]),
        ("npd: {onNode: true, neuron: false}\n", ["DaemonSet", "Deployment"]),
        ("npd: {create: false}\nserviceAccount: {create: false}\n", ["Deployment"]),
        ("mode: fleet\n", ["Deployment"]),
    ],
    ids=["sidecars", "detector on the node", "patch", "fleet"],
)
@pytest.mark.parametrize("policy", ["", "policy: |\n  rules: []\n"], ids=["built-in policy", "own policy"])
def test_a_secret_with_a_webhooks_url_is_mounted_where_the_program_looks(
    tools: Tools, values: str, policy: str, named: list[str]
) -> None:
    """A pod starts without it, so that a wrong name keeps no node from being looked after."""
    found = tools.template(f"{values}{policy}webhook: {{secretName: hook, format: slack}}\n")
    told = [w for w in workloads(found) if any(c["name"] == "node-recovery" for c in pod(w)["containers"])]
    assert [w["kind"] for w in told] == named
    volume = {"name": "webhook", "secret": {"secretName": "hook", "optional": True}}
    for workload in told:
        (mount,) = [m for m in container(workload)["volumeMounts"] if m["name"] == "webhook"]
        assert mount["readOnly"]
        assert volume in pod(workload)["volumes"]
        settings = [d["data"] for d in found if d["kind"] == "ConfigMap" and "ENABLE_RECOVERY" in d["data"]]
        for each in settings:
            assert (each["WEBHOOK_URL_FILE"], each["WEBHOOK_FORMAT"]) == (
                f"{mount['mountPath']}/url",
                "slack",
            )
    if "create: false" in values:
        patch = yaml.safe_load(one(found, "ConfigMap", "node-recovery-sidecar")["data"]["patch.yaml"])
        assert volume in pod(patch)["volumes"]
        assert "webhook" in [m["name"] for m in container(patch)["volumeMounts"]]


@pytest.mark.parametrize("over", ["eks-neuron", "eks-gpu", "aks-gpu", "baremetal", "fleet"])
def test_the_component_mounts_a_webhooks_url_into_every_pod_of_ours_and_no_other(
    tools: Tools, over: str
) -> None:
    text = "resources: [BASE]\ncomponents: [BASE/../options/webhook]\n"
    plain, told = (workloads(tools.overlay(x, over)) for x in ("resources: [BASE]\n", text))
    assert told
    for workload, before in zip(told, plain, strict=True):
        ours, was = container(workload), container(before)
        (mount,) = [m for m in ours["volumeMounts"] if m["name"] == "webhook"]
        (volume,) = [v for v in pod(workload)["volumes"] if v["name"] == "webhook"]
        assert volume["secret"] == {"secretName": "node-recovery-webhook", "optional": True}
        (url,) = [e["value"] for e in ours["env"] if e["name"] == "WEBHOOK_URL_FILE"]
        assert (url, mount["readOnly"]) == (f"{mount['mountPath']}/url", True)
        assert [e for e in ours["env"] if e["name"] != "WEBHOOK_URL_FILE"] == was["env"]
        names = {(c["name"], c["image"]) for c in pod(workload)["containers"]}
        assert names == {(c["name"], c["image"]) for c in pod(before)["containers"]}


def test_without_a_webhook_nothing_of_it_is_in_the_chart(tools: Tools) -> None:
    assert "webhook" not in str(tools.template(""))
