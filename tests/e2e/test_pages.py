"""The commands of the pages, run as they are written: on a real API server, by bash, kubectl and helm.

``STAGES`` says what has to be there for which commands, and what is put in the place of which word.
``ELSEWHERE`` has those that cannot run here, and why. A new command on a page belongs in one of the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from detectors import CAPTURES, PlayedBack
from fleet_site import DEPLOY, GATE, NAMESPACE, RECORDS, Site, infrastructure, uncomment
from pages import Command, Reader, commands, like
from plane import Plane, free_port
from test_explain import address

Json = dict[str, Any]
COMMANDS = commands()
MERGE = "application/merge-patch+json"
VERSION = "noderecovery.dev/v1alpha1"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
AZURE = (
    "azure:///subscriptions/0/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/s"
    "/virtualMachines/0"
)
TYPE = "node.kubernetes.io/instance-type"


@dataclass(frozen=True)
class Case:
    """The commands that begin like this, and what becomes of them."""

    begins: str  # a regular expression
    prints: str = ""  # another; the answer that a page shows is compared in any case
    types: str = ""  # what a person answers at the terminal
    code: int = 0
    words: Mapping[str, str] = field(default_factory=dict)  # in the place of the page's own


# ---------------------------------------------------------------- what cannot run here

NAMES = {
    *("helm rollback", "helm template", "helm template -s templates/sidecar-patch.yaml", "helm uninstall"),
    *("helm uninstall --no-hooks", "helm upgrade", "helm upgrade ... --reset-then-reuse-values"),
    *("kubectl annotate", "kubectl apply --validate=false", "kubectl apply -k", "kubectl cordon"),
    *("kubectl create job --from", "kubectl delete -f", "kubectl delete -k", "kubectl delete crd"),
    *("kubectl drain", "kubectl drain --ignore-daemonsets", "kubectl drain -l", "kubectl exec"),
    *("kubectl label", "kubectl logs", "node-recovery ...", "node-recovery explain", "node-recovery inject"),
    *("node-recovery inject NODE", "node-recovery pause", "node-recovery policy check"),
    *(
        "kubectl rollout status",
        "node-recovery npd-token",
        "kubectl apply --server-side --force-conflicts -k",
    ),
}
"""A command's name, in a sentence about it."""
ELSEWHERE = {
    r"helm upgrade RELEASE oci://": "AWS's chart is in AWS's registry",
    r".* port-forward ": "no kubelet forwards a port",
    r"kubectl -n NAMESPACE logs ": "no kubelet shows a log; test_uninstall reads it",
    r"kubectl edit rg fleet$": "it opens an editor; test_deleted_records takes such an entry out",
    r"kubectl delete -k deploy/": "test_uninstall deletes each folder so",
    r"kubectl delete namespace,.*\n.*gpu-problem-detector": "test_uninstall runs it",
    r"kubectl -n node-recovery-fleet exec \S+ -- node-recovery doctor --node gpu-1": "no BMC is there",
    r"helm install .*\n.*fleet.bmcInventory": "test_deploy_fleet renders the chart with such files",
    r"node-recovery replay ": "test_prometheus does it, where there is a Prometheus server",
    r"node-recovery demo$": "the tests of the image and of the demo run it",
    r"node-recovery run$": "the kubelets here run it in each container",
}

# ---------------------------------------------------------------- sidecars on EKS that watch

REPORT = {"...": "report"}
"""What an agent has the rights for, also with recovery off."""
OBSERVED = "With recovery off, since"
WOULD = "gpu-7: would drain gpu-7; then replace: NeuronHasError_DMA_ERROR"
WATCHING = [
    Case(r"kubectl apply -k deploy/eks-neuron\n.*\nPOD=", "✓"),
    Case(r"kubectl -n neuron-healthcheck-system exec -it ", OBSERVED, words=REPORT),
    Case(r"kubectl (-n neuron-healthcheck-system )?exec ", "✓"),
    Case(r"kubectl -n NAMESPACE exec POD", "✓", words={"NAMESPACE": "neuron-healthcheck-system"}),
    Case(r"node-recovery inject gpu-7 .*\n.*\n.*--remove", "the drill GpuVbios is removed"),
    Case(r"node-recovery inject NODE --fault", "marked as a drill", words={"REASON": "GpuXidBad"}),
    Case(r"node-recovery status  .*\n.*\n.*\n.*WouldRecover", f"{OBSERVED}.*\n{WOULD}.*WouldRecover"),
    Case(r"node-recovery report .* > report.json"),
    Case(r"node-recovery report", "1 would have been treated, beginning with drain"),
    Case(r"kubectl get pods -A -o wide -l ", "node-problem-detector-.*gpu-7"),
    Case(r"kubectl get events -A "),
    Case(r"kubectl get validatingadmissionpolicies -l ", "node-recovery"),
    Case(r"kubectl annotate serviceaccount ", "annotated"),
    Case(r"for NAMESPACE in ", "node-recovery-webhook created\n.*node-recovery-webhook created"),
    Case(r"kubectl describe node$", "gpu-7"),
    Case(r"kubectl get nodes$", "gpu-7"),
    Case(r"kubectl get node NODE -o jsonpath", "Ready"),
    Case(r"node-recovery doctor( --|$)"),
]


# ---------------------------------------------------------------- records of nodes that are out

BOOKS = [
    Case(r"node-recovery explain ip-10-0-1-5"),
    Case(r"node-recovery explain", "handedOver"),
    Case(r"node-recovery release ", "is back in service|is released", types="y\n"),
    Case(r"(node-recovery|kubectl node-recovery) status", "handedOver", words={"prod": "e2e"}),
    Case(r"node-recovery (pause|resume|approve)"),
    Case(r"node-recovery uninstall --dry-run", "would"),
    Case(r"node-recovery uninstall", "Nothing of node-recovery is left", types="y\n"),
    Case(r"node-recovery COMMAND --help", "Usage", words={"COMMAND": "status"}),
    Case(r"node-recovery policy test FILE", words={"FILE": "deploy/eks-gpu/policy/tests/policy_test.yaml"}),
    Case(r"node-recovery policy check FILE --mode fleet", words={"FILE": "deploy/fleet/policy.yaml"}),
    Case(r"export BAREMETAL_POWER=redfish .*\nnode-recovery policy check", "a valid policy: 8 rules"),
    Case(r"node-recovery policy "),
    Case(r"kubectl apply -f - <<EOF", "fleet +admin +20"),
    Case(r"kubectl get (nr|rg|nr,rg)\b"),
    Case(r"kubectl delete nr NODE\n.* release ", "deleted.*(is back in service|is released)", types="y\n"),
    Case(r"kubectl delete (nr NODE|rg fleet)", "deleted"),
    Case(r"kubectl label nodes -l POOL ", "labeled", words={"POOL": "pool=gpu"}),
    Case(r"kubectl (label|annotate|taint) node", "labeled|annotated|untainted|not labeled"),
    Case(r"kubectl label namespace (vault|NAME)", "labeled", words={"NAME": "vault"}),
    Case(r"kubectl get deployments -A -l app.kubernetes.io/name=karpenter", "NodeRepair=false"),
    Case(r"\{ printf 'apiVersion: monitoring", "node-recovery created"),
]

# ---------------------------------------------------------------- the other folders, one after the other

FOLDERS = [
    Case(r"kubectl apply -k deploy/crds"),
    Case(r"kubectl apply -k deploy/npd-gpu"),
    Case(r"kubectl apply -k deploy/baremetal"),
    Case(r"kubectl -n node-recovery exec -it ds/node-recovery ", words=REPORT),
    Case(r"kubectl apply -k deploy/aks-gpu\n", "✗ doctor's question was not sent: AZURE_CLIENT_ID", code=1),
    Case(r"kubectl -n gpu-healthcheck-system exec -it ds/node-recovery ", words=REPORT),
    Case(r"kubectl apply -k deploy/eks-gpu"),
    Case(r"kubectl -n node-recovery exec -it ds/node-problem-detector ", words=REPORT),
    Case(r"kubectl -n neuron-healthcheck-system delete deployment", "deleted"),
    Case(r"kubectl apply -k deploy/fleet"),
    Case(r"kubectl -n node-recovery-fleet exec -it deploy/node-recovery-fleet ", words=REPORT),
    Case(r"kubectl delete namespace,.*\n.*component=fleet", "deleted"),
    Case(r"kubectl -n neuron-healthcheck-system delete daemonset", "deleted"),
    Case(r"kubectl -n node-recovery-concluder delete deployment", "deleted"),
]

# ---------------------------------------------------------------- the chart

TRIED = {
    "helm install": "helm install --dry-run=server",  # the chart refuses to be there twice
    "SUBSCRIPTION": "s",
    "GROUP": "g",
    "CLIENT_ID_OF_THE_MANAGED_IDENTITY": "11111111-2222-3333-4444-555555555555",
}
SET = {"NAME": "CLUSTER_NAME", "VALUE": "training"}
CHART = [
    Case(r"helm install .*--namespace (kube-system|node-recovery|gpu-)", "pending-install", words=TRIED),
    Case(r"helm install .*--namespace neuron-", "deployed"),
    Case(r"kubectl label namespace neuron-healthcheck-system pod-security"),
    Case(r"helm upgrade node-recovery .* settings.NAME=VALUE", words=SET),
    Case(r"helm upgrade node-recovery .* (webhook|settings.ENABLE)"),
    Case(r"kubectl create clusterrolebinding oncall"),
    Case(r"kubectl -n NAMESPACE exec -it ds/", words=REPORT),
    Case(r"helm upgrade node-recovery .* mode=fleet"),
    Case(r"kubectl -n node-recovery-fleet exec -it deploy/RELEASE-fleet ", words=REPORT),
]

STAGES = {"watching": WATCHING, "books": BOOKS, "folders": FOLDERS, "chart": CHART}


def meant(cases: Iterable[Case]) -> Iterator[tuple[Case, Command]]:
    """The commands of these cases, in their order: each belongs to the first case that it begins like."""
    for case in cases:
        for command in COMMANDS.values():
            if case_of(command) is case:
                yield case, command


def case_of(command: Command) -> Case | None:
    if command.text in NAMES or any(re.match(x, command.text) for x in ELSEWHERE):
        return None
    found = (case for cases in STAGES.values() for case in cases if re.match(case.begins, command.text))
    return next(found, None)


def test_every_command_of_the_pages_is_run_or_somebody_says_why_not() -> None:
    left = [f"{c.page}: {text}" for text, c in COMMANDS.items() if case_of(c) is None]
    told = [c for c in left if c.partition(": ")[2] not in NAMES]
    assert [c for c in told if not any(re.match(x, c.partition(": ")[2]) for x in ELSEWHERE)] == []
    assert {*COMMANDS} >= NAMES
    assert [x for x in ELSEWHERE if not any(re.match(x, text) for text in COMMANDS)] == []
    assert [x.begins for cases in STAGES.values() for x in cases if not [*meant([x])]] == []


class World:
    """A cluster, and somebody who reads the pages in front of it."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.plane = site, site.plane
        self.reader = Reader(site.plane, folder, site.folder / "containers")
        self.wrong: list[str] = []

    def run(self, case: Case, command: Command, words: Mapping[str, str]) -> None:
        text, shown = command.text, command.shown.replace("[y/N]: y", "[y/N]:")  # the terminal shows the y
        for word, is_ in {**words, **case.words}.items():
            name = re.compile(rf"(?<![$\w]){re.escape(word)}(?!\w)")
            text, shown = name.sub(is_, text), name.sub(is_, shown)
        code, printed = self.reader.types(text, case.types)
        if code != case.code:
            why = f"with exit code {code}, not {case.code}"
        elif not re.search(case.prints, printed, re.DOTALL):
            why = f"and not {case.prints}"
        elif not like(shown).search(" ".join(printed.split())):
            why = f"and not what it shows:\n{shown}"
        else:
            return
        self.wrong.append(f"{command.page} has one type\n{text}\nand it prints\n{printed}{why}")

    def made(self, path: str, body: Json) -> None:
        answer = self.plane.request("POST", path, body=body)
        assert answer.status == 201, answer.body

    def machine(self, node: str, provider_id: str = "", **labels: str) -> None:
        """A node with a detector. Without another ``provider_id`` it is of an Auto Scaling group."""
        aws = self.site.aws
        (instance,) = aws.instances(aws.create_group(size=1))
        self.site.detectors.install(node)
        zone = {"topology.kubernetes.io/zone": aws.zone(instance)}
        self.site.register(node, instance, provider_id or aws.provider_id(instance), zone | labels)

    def gone(self, node: str) -> None:
        self.site.power_off(node)
        self.plane.request("DELETE", f"/api/v1/nodes/{node}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "plane").mkdir()
    with Plane(tmp_path / "plane") as plane, Site(plane, tmp_path / "site") as site:
        infrastructure(plane, "control-plane")
        yield World(site, tmp_path / "reader")


def test_the_commands_of_the_pages_do_what_the_pages_say(world: World, tell: Callable[[str], None]) -> None:
    for stage in (by_the_chart, about_nodes_that_are_out, on_eks, in_the_other_folders):
        stage(world)
    assert world.wrong == [], "\n\n".join(world.wrong)
    ran = [*meant(case for cases in STAGES.values() for case in cases)]
    left = len(COMMANDS) - len(ran) - len(NAMES)
    tell(f"Commands of the pages: {len(ran)} ran as they are written, {left} cannot here")


# ---------------------------------------------------------------- what each stage needs

NEURON = {TYPE: "trn1.32xlarge"}


def by_the_chart(world: World) -> None:
    world.machine("gpu-7", **NEURON)
    words = {"REGISTRY": "registry.example.com", "RELEASE": "node-recovery", "NAMESPACE": NAMESPACE}
    for case, command in meant(CHART):
        world.run(case, command, words)
    code, printed = world.reader.types(f"helm uninstall node-recovery --namespace {NAMESPACE} --no-hooks")
    assert code == 0, printed


FAULT = {
    "source": "npd",
    "type": "NeuronHealth",
    "reason": "NeuronHasError_DMA_ERROR",
    "message": "node-problem-detector reports NeuronHasError_DMA_ERROR (NeuronHealth)",
    "since": "2026-11-21T15:11:20Z",
    "machine": "i-bcaca4f360efc0822",
    "bootID": "boot",
    "kind": "level",
}
PROVED = (
    "proved: i-bcaca4f360efc0822 is gone and ip-10-0-1-58 (i-6f7bf8b3ec8633222) was healthy for 2 s, by its "
    "own detector's page"
)
TOLD = (
    ("33", "evidence", "i-bcaca4f360efc0822 is gone from group neuron-workers; it has launched another one"),
    ("36", "joined", "ip-10-0-1-58 (i-6f7bf8b3ec8633222) is Ready"),
    ("38", "recovered", PROVED),
)
"""The lines that a closed record has room for: when, event, sentence."""
OVER = "handed over to a person: 3 recoveries of it have not helped"
OUT = ("ip-10-0-1-5", "broken", "never-joined.i-1")


def record(name: str, phase: str, sentence: str) -> Json:
    status = {
        "version": 1,
        "machine": {"provider": "aws", "id": FAULT["machine"], "group": "neuron-workers"},
        "faults": [FAULT],
        "rule": "neuron-hardware",
        "attempt": 1,
        "phase": phase,
        "phaseSince": f"{datetime.now(UTC) - timedelta(minutes=12):%Y-%m-%dT%H:%M:%SZ}",
        "sentence": sentence,
        "history": [
            {"at": f"2026-11-21T15:11:{at}Z", "attempt": 1, "event": event, "sentence": text}
            for at, event, text in TOLD
        ],
    }
    labels = {"noderecovery.dev/phase": phase}
    meta = {"name": name, "labels": labels}
    return {"apiVersion": VERSION, "kind": "NodeRecovery", "metadata": meta, "status": status}


def marked(name: str) -> Json:
    """A Node with our marks, and with others'."""
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("noderecovery.dev/unhealthy", "aznhc")]
    notes = {"noderecovery.dev/cordoned-by": "node-recovery", "weave.works/kured-reboot-in-progress": "x"}
    return {
        "metadata": {"name": name, "labels": {"pool": "gpu"}, "annotations": notes},
        "spec": {"unschedulable": True, "taints": taints},
    }


def as_before(world: World, *, proved: bool) -> None:
    """Nodes that a person has in hand, whatever the last command has made of them; or that are replaced."""
    for name in OUT:
        for path in (f"{RECORDS}/{name}", f"/api/v1/nodes/{name}"):
            world.plane.request("DELETE", path)
        world.made(RECORDS, record(name, "recovered", PROVED) if proved else record(name, "handedOver", OVER))
        if not proved and not name.startswith("never-joined"):
            world.made("/api/v1/nodes", marked(name))
    world.plane.request("DELETE", GATE)
    gate = {"apiVersion": VERSION, "kind": "RecoveryGate", "metadata": {"name": "fleet"}}
    world.made(GATE.rpartition("/")[0], gate)


OTHERS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: karpenter, namespace: default, labels: {app.kubernetes.io/name: karpenter}}
spec:
  replicas: 0
  selector: {matchLabels: {app: karpenter}}
  template:
    metadata: {labels: {app: karpenter}}
    spec:
      containers:
        - {name: controller, image: karpenter, env: [{name: FEATURE_GATES, value: NodeRepair=false}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: prometheusrules.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {plural: prometheusrules, kind: PrometheusRule}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def about_nodes_that_are_out(world: World) -> None:
    plane, others = world.plane, world.reader.clone / "others.yaml"
    for name in ("vault", "monitoring"):
        plane.kubectl("create", "namespace", name)
    others.write_text(OTHERS)
    plane.kubectl("apply", "-f", str(others))
    plane.apply(DEPLOY / "crds")
    words = {
        "NODE": "broken",
        "ID": "i-1",
        "DURATION": "2h",
        "REASON": "NeuronHasError_DMA_ERROR",
        "FILE": "deploy/eks-gpu/policy/policy.yaml",
        "ada": "admin",
    }
    for case, command in meant(BOOKS):
        as_before(world, proved=case is BOOKS[0])
        world.run(case, command, words)
    for name in OUT:
        world.gone(name)


def on_eks(world: World) -> None:
    """The agent of the one node is where the API server reaches it, and so has another port: ours may be
    taken here."""
    site, clone, here, port = world.site, world.reader.clone, address(), free_port()
    uncomment(clone / "deploy" / "eks-neuron" / "kustomization.yaml", "../observe")
    daemonset = clone / "deploy" / "eks-neuron" / "agents" / "daemonset.yaml"
    text = daemonset.read_text()
    assert "containerPort: 9108" in text
    daemonset.write_text(text.replace("containerPort: 9108", f"containerPort: {port}"))
    beside = site.kubelets._beside
    site.kubelets._beside = lambda node: {**beside(node), "METRICS_ADDRESS": f"{here}:{port}"}
    (clone / "webhook-url").write_text("https://hooks.example.com/one")
    words = {
        "NODE": "gpu-7",
        '"$NAMESPACE" "$SERVICE_ACCOUNT"': f"{NAMESPACE} node-problem-detector",
        "kubectl exec POD": f"kubectl -n {NAMESPACE} exec daemonset/node-problem-detector",
        "exec POD": "exec daemonset/node-problem-detector",
    }
    first, *others = meant(WATCHING)
    world.run(*first, words)
    (pod,) = world.plane.get(PODS, labelSelector="app=node-problem-detector")["items"]
    status = {"podIP": here, "podIPs": [{"ip": here}]}
    path = f"{PODS}/{pod['metadata']['name']}/status"
    done = world.plane.request("PATCH", path, body={"status": status}, content_type=MERGE)
    assert done.status == 200, done.body
    site.breaks("gpu-7")
    site.until("it is seen", lambda: "would drain" in site.log("gpu-7"))
    for case, command in others:
        world.run(case, command, words)
    site.kubelets._beside = beside
    world.gone("gpu-7")


def concluder_of_before(plane: Plane) -> None:
    """What is left of an installation that had its concluder, with the power over BMCs, beside the agents."""
    power, role = "node-recovery-power", "--clusterrole=view"
    account = f"--serviceaccount=node-recovery:{power}"
    for words in (
        ("deployment", "node-recovery-concluder", "-n", NAMESPACE, "--image=node-recovery", "--replicas=0"),
        ("serviceaccount", power, "-n", "node-recovery"),
        ("rolebinding", power, "-n", "node-recovery", role, account),
        ("clusterrolebinding", power, role, account),
    ):
        plane.kubectl("create", *words)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
    limits = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}
    binds = {"policyName": f"{power}-nodes", "validationActions": ["Deny"]}
    for kind, spec in (("policies", limits), ("policybindings", binds)):
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmission{kind}"
        body = {"metadata": {"name": f"{power}-nodes"}, "spec": spec}
        assert plane.request("POST", path, body=body).status == 201


EVERYTHING = CAPTURES / "full-page" / "00-healthy.prom"
EDITS = {
    "baremetal": ("components/policy", "../observe"),
    "aks-gpu": ("policy", "../observe"),
    "eks-gpu": ("../observe",),
    "fleet": ("../observe",),
}


def in_the_other_folders(world: World) -> None:
    """Each as its page has one edit it, and over the ones before it: nobody asks any more whose rights those
    have by then."""
    for name, components in EDITS.items():
        for component in components:
            uncomment(world.reader.clone / "deploy" / name / "kustomization.yaml", component)
    machines = {
        "baremetal": ("metal-1", "metal://", {}),
        "aks-gpu": ("aks-1", AZURE, {"kubernetes.azure.com/accelerator": "nvidia"}),
        "eks-gpu": ("gpu-8", "", {TYPE: "p5.48xlarge"}),
    }
    for case, command in meant(FOLDERS):
        for name, (node, provider_id, labels) in machines.items():
            if f"apply -k deploy/{name}" in command.text and node not in world.site.instances:
                world.machine(node, provider_id, **labels)
                world.site.detectors.kill(node)
                found = PlayedBack(node, world.reader.clone)
                found.page = EVERYTHING.read_bytes()  # of a detector that knows what these policies are about
                world.site.detectors.of_another_kind(node, found)
        if "delete deployment" in command.text:
            concluder_of_before(world.plane)
        world.run(case, command, {})
