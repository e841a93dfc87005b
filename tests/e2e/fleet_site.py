"""A fleet on the control plane: machines in moto, nodes by KWOK, the shipped manifests, the shipped program.

Of what happens between the kernel's line and the replaced instance, two parts are played here: the Auto
Scaling group (moto marks an instance and does nothing about it), and the detector where no real one is given.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import laws
import yaml
from detectors import Detectors
from history import CONCLUDER, THIEF, Audit
from kubelets import Kubelets, shipped
from plane import Plane
from recovery_testkit.aws import CREDENTIALS, LocalAws
from recovery_testkit.proxy import CountingProxy

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NAMESPACE = "neuron-healthcheck-system"
ACCOUNT = "node-problem-detector"
INFRA = "infra-0"
"""The node that the concluder runs on: it has no Neuron device, and so no agent."""
RECORDS = "/apis/noderecovery.dev/v1alpha1/noderecoveries"
GATE = "/apis/noderecovery.dev/v1alpha1/recoverygates/fleet"
BOOT = 0.5
"""Seconds from the launch of an instance to its Node. A real one takes minutes, which prove nothing here."""
Json = dict[str, Any]

POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits:
  budget: {budget}
  budgetPer: {{}}
  brake: 100%
  brakePer: {brake_per}
  cooldown: 0s
  attempts: {{max: 1000, within: 1h}}
  perGroup: {{max: 1000, within: 1h}}
rules:
  - name: neuron-hardware
    match: {{type: NeuronHealth, reason: ["NeuronHasError_*_UNCORRECTABLE_ERROR", NeuronHasError_DMA_ERROR]}}
    remedy:
      - {{do: drain, within: 1m, then: handOver}}
      - {{do: replace, within: 10m}}
    probation: 2s
"""


class Site:
    """Use as a context manager on a plane that runs. ``install`` first, then ``group``."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        folder.mkdir()
        self.audit = Audit(plane.audit_log, f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
        self.aws = LocalAws()
        self.detectors = Detectors(folder)
        self.kubelets = Kubelets(plane, folder / "containers", self._beside, shipped())
        self.instances: dict[str, str] = {}  # node -> instance, of all that ever joined
        self.groups: list[str] = []
        self._terminated: set[str] = set()  # instances
        self._installed: object = None
        self.budget = 1
        self.budgets: dict[str, int] = {}  # and of label=value, where a test's policy has such ones
        self.lawless = False  # a test that breaks the laws itself
        self.allowed: set[int] = set()  # refusals that a test provokes, by HTTP status
        self.played: list[tuple[float, str]] = []  # what the group did, and when
        self._stopping = threading.Event()
        self._group_part = threading.Thread(target=self._play_groups, daemon=True)
        self._joins: list[threading.Timer] = []
        self.trouble: list[str] = []

    def __enter__(self) -> Site:
        self.aws.start()
        self.proxy = CountingProxy(self.aws.address)
        self.proxy.start()
        self.kubelets.start()
        self._group_part.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._group_part.join()
        for timer in self._joins:
            timer.cancel()
            timer.join()
        self.kubelets.stop()
        self.detectors.stop()
        self.proxy.stop()
        self.aws.stop()

    # ------------------------------------------------------------ installing

    def recovering(self, budget: int = 1, brake_per: str = "{}") -> None:
        """Installed, with recovery on, ``budget`` nodes out at a time, and short patience."""
        self.budget = budget
        policy = POLICY.format(budget=budget, brake_per=brake_per)
        self.install(policy, ENABLE_RECOVERY="true", LEASE_DURATION="5s")

    def watching(self) -> None:
        """As it ships."""
        self.install()

    def install(
        self, policy: str = "", option: str = "", *, meanwhile: bool = False, **settings: str
    ) -> None:
        """``kubectl apply -k deploy/eks-neuron``, after the edits that its comments describe.

        ``option``: one of ``deploy/options``, for a policy that needs it. ``meanwhile``: in the middle of a
        test, whose history goes on.
        """
        wanted = (policy, option, tuple(settings.items()))
        if wanted == self._installed:
            return
        copy = self.folder / "deploy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(DEPLOY, copy)
        place = copy / "eks-neuron"
        if settings:
            edit(place / "settings.env", *(f"{name}={value}" for name, value in settings.items()))
        if policy:
            (place / "policy" / "policy.yaml").write_text(policy)
            uncomment(place / "kustomization.yaml", "policy")
        if option:
            uncomment(place / "agents" / "kustomization.yaml", f"../../options/{option}")
        self.plane.apply(place)
        self.until("the concluder runs as installed", self._concluder_is_new)
        self._installed = wanted
        if not meanwhile:
            self.audit.mark()  # what the concluder of before wrote is not of this installation

    def _concluder_is_new(self) -> bool:
        """It is made from the Deployment as it is now, and no process of the one before runs on."""
        of = self.plane.get(f"/apis/apps/v1/namespaces/{CONCLUDER}/deployments/node-recovery-concluder")
        status = of.get("status", {})
        if status.get("observedGeneration") != of["metadata"]["generation"]:
            return False
        now = self.kubelets.concluder()
        running = [c for c in self.kubelets.concluders() if c.running]
        return status.get("updatedReplicas") == status.get("replicas") == 1 and running == [now]

    def clear(self) -> None:
        """No machine, no node, no record: the manifests stay applied."""
        self.groups.clear()
        self.allowed.clear()
        self.budgets.clear()
        self.lawless = False
        for timer in self._joins:
            timer.join()
        for node in list(self.instances):
            self.power_off(node)
        self.instances.clear()
        self._delete_all("/api/v1/nodes")
        self._delete_all("/apis/apps/v1/namespaces/default/deployments")
        self._delete_all("/apis/policy/v1/namespaces/default/poddisruptionbudgets")
        for namespace in ("default", NAMESPACE, CONCLUDER):
            self._delete_all(f"/api/v1/namespaces/{namespace}/pods")
        # One that still runs sees a slot without a record, and says of it that it is lost, in the next test.
        self.until("no concluder runs", lambda: not any(c.running for c in self.kubelets.concluders()))
        for path in (*(f"{RECORDS}/{node}" for node in self._known("noderecoveries")), GATE):
            self.plane.request("DELETE", path)
        infrastructure(self.plane)
        self.kubelets.forget()
        self.proxy.forget()
        self.played.clear()
        self.trouble.clear()
        self.kubelets.trouble.clear()
        self.audit.mark()

    def _delete_all(self, path: str) -> None:
        now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        answer = self.plane.request("DELETE", path, body=now)
        assert answer.status in (200, 404), answer.body

    def _known(self, plural: str) -> list[str]:
        found = self.plane.request("GET", f"/apis/noderecovery.dev/v1alpha1/{plural}").body
        return [x["metadata"]["name"] for x in found.get("items", [])]

    def _beside(self, node: str) -> dict[str, str]:
        found = {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": self.proxy.url,
            "AWS_REGION": self.aws.region,
        }
        url = self.detectors.url(node)
        return found | ({"NPD_METRICS_URL": url} if url else {})

    # ------------------------------------------------------------ machines

    def group(self, size: int, **labels: str) -> dict[str, str]:
        """An Auto Scaling group whose instances are nodes with sidecars. Returns node -> instance."""
        name = self.aws.create_group(size=size, HealthCheckGracePeriod=1)  # moto takes 0 for 300
        self.groups.append(name)
        made = {self.join(instance, **labels): instance for instance in self.aws.instances(name)}
        self.ready(made)
        return made

    def ready(self, nodes: Iterable[str], seconds: float = 90) -> None:
        """Until the sidecar of each has looked at its node once."""
        for node in nodes:
            self.until(f"the sidecar of {node} works", lambda n=node: "healthy" in self.log(n), seconds)

    def join(self, instance: str, **labels: str) -> str:
        """The Node of an instance, as its kubelet registers it."""
        node = f"ip-{instance[-8:]}"
        self.detectors.install(node)
        zone = self.aws.zone(instance)
        self.register(
            node,
            instance,
            self.aws.provider_id(instance),
            {
                "topology.kubernetes.io/zone": zone,
                "node.kubernetes.io/instance-type": "trn1.32xlarge",
                **labels,
            },
        )
        return node

    def register(self, node: str, machine: str, provider_id: str, labels: dict[str, str]) -> None:
        register(self.plane, node, machine, provider_id, labels, f"boot-of-{machine}")
        self.instances[node] = machine

    def breaks(self, node: str, code: str = "DMA_ERROR") -> None:
        """The Neuron driver reports a hardware error in the node's kernel log."""
        self.detectors.kernel(node, code, self.instances[node])

    def power_off(self, node: str) -> None:
        self.kubelets.power_off(node)
        self.detectors.kill(node)

    # ------------------------------------------------------------ the Auto Scaling group's part

    def _play_groups(self) -> None:
        while not self._stopping.wait(0.1):
            if set(self.marked()) <= self._terminated:
                continue
            for group in list(self.groups):
                try:
                    self._play(group)
                except Exception as error:
                    self.trouble.append(f"{type(error).__name__}: {error}")

    def _play(self, group: str) -> None:
        """An instance that is Unhealthy is terminated, and another one launched."""
        for member in self.aws.members(group):
            instance = str(member["InstanceId"])
            node = next((n for n, i in self.instances.items() if i == instance), "")
            if member["HealthStatus"] == "Healthy" or not node:
                continue
            self.power_off(node)
            delete_node(self.plane, node, self._stopping)
            (new,) = self.aws.replace(instance, group)
            self._terminated.add(instance)
            self.played.append((time.time(), f"{instance} terminated, {new} launched"))
            timer = threading.Timer(BOOT, self._joined, (new,))
            self._joins = [t for t in self._joins if t.is_alive()] + [timer]
            timer.start()

    def _joined(self, instance: str) -> None:
        while not self._stopping.is_set():
            try:
                node = self.join(instance)
                self.played.append((time.time(), f"{node} ({instance}) joined"))
                return
            except Exception as error:
                self.trouble.append(f"{type(error).__name__}: {error}")
                self._stopping.wait(0.3)

    # ------------------------------------------------------------ looking

    def records(self) -> dict[str, Json]:
        """Node -> the status of its record."""
        return {x["metadata"]["name"]: x["status"] for x in self.plane.get(RECORDS)["items"]}

    def phase(self, node: str) -> str:
        found = self.plane.request("GET", f"{RECORDS}/{node}")
        return str(found.body["status"]["phase"]) if found.status == 200 else ""

    def slots(self) -> list[str]:
        return [slot["node"] for slot in self.gate().get("slots", [])]

    def gate(self) -> Json:
        """The status of the gate; empty where there is none."""
        found = self.plane.request("GET", GATE)
        return dict(found.body.get("status", {})) if found.status == 200 else {}

    def log(self, node: str) -> str:
        return self.kubelets.log(node)

    def marked(self) -> list[str]:
        """The instances that SetInstanceHealth was asked for, in order."""
        return [r.params["InstanceId"] for r in self.proxy.requests if r.action == "SetInstanceHealth"]

    def check_laws(self, faulty: Iterable[str] = (), *, finished: bool = False) -> None:
        """What must hold of any run, read from the audit log and from the calls that the cloud received."""
        if self.lawless:
            return
        if finished:
            laws.catch_up(self.plane, self.audit)
        asked = [r for r in self.proxy.requests if r.action == "SetInstanceHealth"]
        assert {r.params["HealthStatus"] for r in asked} <= {"Unhealthy"}
        laws.check(
            self.audit,
            [(r.action, r.params["InstanceId"]) for r in asked],
            budget=self.budget,
            budgets=self.budgets,
            allowed=self.allowed,
            faulty=faulty,
            finished=finished,
        )

    def until(self, what: str, true: Callable[[], object], seconds: float = 120) -> None:
        """Wait for something observable. Fails with all that is known."""
        try:
            self.plane.until(what, true, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None

    def told(self) -> str:
        """Records, the ends of the logs, and what went wrong on the stage itself."""
        with contextlib.suppress(Exception):
            phases = "\n".join(f"{n}: {r['phase']}: {r['sentence']}" for n, r in self.records().items())
            logs = "\n".join(
                f"--- {c.pod} on {c.node}, {c.starts} starts\n{c.log.read_text()[-700:]}"
                for c in self.kubelets.all()
                if c.log.exists()
            )
            return f"{phases}\n{logs}\n{self.trouble[-3:]} {self.kubelets.trouble[-3:]}"[-9000:]
        return "nothing more is known"


def register(
    plane: Plane,
    node: str,
    machine: str,
    provider_id: str,
    labels: dict[str, str],
    boot: str,
    kubelet: str = "fake",
    taints: Iterable[Json] = (),
) -> None:
    """A Node, as a kubelet registers it. ``machine`` is its system UUID, ``kubelet`` the KWOK that is one."""
    body = {
        "metadata": {
            "name": node,
            "labels": {"kubernetes.io/os": "linux", "kubernetes.io/hostname": node, **labels},
            "annotations": {"kwok.x-k8s.io/node": kubelet},
        },
        "spec": {"providerID": provider_id, "taints": list(taints)},
        "status": {
            "nodeInfo": {
                "bootID": boot,
                "systemUUID": machine,
                "machineID": machine,
                "kernelVersion": "6.1",
                "osImage": "Amazon Linux 2023",
                "containerRuntimeVersion": "containerd://2.1",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        },
    }
    answer = plane.request("POST", "/api/v1/nodes", body=body, user="kubelet")
    assert answer.status == 201, answer.body


@contextlib.contextmanager
def any_right(plane: Plane, namespace: str, account: str, token: str) -> Iterator[None]:
    """An administrator's rights for ``account``: nothing but admission policies stands in the way then."""
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    body = {"metadata": {"name": "any-right"}, "roleRef": role, "subjects": [subject]}

    def secrets() -> int:
        return plane.request("GET", "/api/v1/secrets", bearer=token, agent=THIEF).status

    assert plane.request("POST", bindings, body=body).status == 201
    try:
        plane.until("the rights are known", lambda: secrets() == 200)
        yield
    finally:
        plane.request("DELETE", f"{bindings}/any-right")
        plane.until("the rights are gone", lambda: secrets() == 403)


def delete_node(plane: Plane, node: str, stopping: threading.Event) -> None:
    """The cloud's node controller: a Node whose instance is gone goes too. It asks until answered."""
    while not stopping.is_set():
        with contextlib.suppress(Exception):
            answer = plane.request("DELETE", f"/api/v1/nodes/{node}", user="cloud")
            if answer.status in (200, 202, 404):
                return
        time.sleep(0.2)


def states(
    plane: Plane, node: str, type_: str, status: str, reason: str, ago: timedelta = timedelta(0)
) -> int:
    """A condition, as a detector writes it. The HTTP status of the answer."""
    at = f"{datetime.now(UTC) - ago:%Y-%m-%dT%H:%M:%SZ}"
    condition = {"type": type_, "status": status, "reason": reason, "message": "found"}
    times = {"lastHeartbeatTime": at, "lastTransitionTime": at}
    return plane.request(
        "PATCH",
        f"/api/v1/nodes/{node}/status",
        body={"status": {"conditions": [condition | times]}},
        content_type="application/strategic-merge-patch+json",
    ).status


def infrastructure(plane: Plane, role: str = "infra") -> None:
    """A node for what is nobody's workload, the concluder among it. It has its role's taint."""
    key = f"node-role.kubernetes.io/{role}"
    taints = [{"key": key, "effect": "NoSchedule"}]
    register(
        plane, INFRA, "an-infrastructure-machine", "kwok://infra-0", {key: ""}, "boot-of-infra", taints=taints
    )


def uncomment(kustomization: Path, component: str) -> None:
    """Use a component that the file lists in a comment, as the comment has one do it."""
    text = kustomization.read_text()
    listed = text.replace(f"  # - {component} #", f"  - {component} #")
    listed = listed.replace("# components:", "components:").replace(
        f"#   - {component} #", f"  - {component} #"
    )
    assert listed != text, f"{component} is listed in no comment"
    kustomization.write_text(listed)


def edit(path: Path, *lines: str) -> None:
    """Set variables in an env file, where they are or at its end."""
    text = path.read_text()
    for line in lines:
        name = line.partition("=")[0]
        text, found = re.subn(rf"(?m)^{name}=.*$", line, text)
        if not found:
            text += f"{line}\n"
    path.write_text(text)


def broken(site: Site, size: int = 2) -> str:
    """A fleet with recovery on, and the node of it that is about to break."""
    site.recovering()
    return next(iter(site.group(size)))


def recovered_once(site: Site, node: str) -> None:
    """The end of it: recovered, asked for once, nothing left behind."""
    site.until("it is recovered", lambda: site.phase(node) == "recovered", 120)
    site.until("its slot is free", lambda: not site.slots())
    assert site.marked() == [site.instances[node]]
    site.check_laws([node], finished=True)


def training(plane: Plane, replicas: int, most_out: int) -> None:
    """A Deployment of pods that a drain must move, and the budget that says how many may be out."""
    labels = {"app": "training"}
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "worker", "image": "worker"}],
            "terminationGracePeriodSeconds": 1,
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": labels},
                }
            ],
        },
    }
    documents = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "training", "namespace": "default"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "training", "namespace": "default"},
            "spec": {"maxUnavailable": most_out, "selector": {"matchLabels": labels}},
        },
    ]
    file = plane.folder / "training.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    plane.kubectl("apply", "-f", str(file))
    plane.kubectl("rollout", "status", "deployment/training", "--timeout=60s")


def let_go(plane: Plane, most_out: int) -> None:
    """Let so many of the training's pods be out at a time."""
    patch = f'{{"spec": {{"maxUnavailable": {most_out}}}}}'
    plane.kubectl("patch", "pdb", "training", "-n", "default", "--type=merge", "-p", patch)
