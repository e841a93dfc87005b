"""The objects of the demo, as a kubelet, a Deployment and an operator would have written them. Plain data."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

Json = dict[str, Any]

NAMESPACE = "training"
APP = "trainer"
HOME, DETECTOR = "default", "node-problem-detector"
GRACE = 2  # seconds a trainer takes to stop
CHECKPOINT = "example.com/checkpoint"
"""The annotation by which a trainer on bare metal is told to write one: the demo's, as any word would do."""
CHECKPOINTED = 75
"""The exit code of a trainer that has written its checkpoint and wants to be started elsewhere."""
VALIDATION = "node-validation"


def page(name: str) -> bytes:
    """A page captured from a real node-problem-detector: ``healthy``, ``dma-error``, ``hbm-error``; of one
    with a plugin that counts GPUs, ``gpu-healthy`` and ``gpu-count-bad``; of one that reads the
    kernel's log for XIDs, ``kernel-healthy`` and ``xid-79``."""
    return (files("recovery_demo") / "pages" / f"{name}.prom").read_bytes()


_NEURON = 'type: NeuronHealth, reason: ["NeuronHasError_*_UNCORRECTABLE_ERROR", NeuronHasError_DMA_ERROR]'
_RULES = {  # its name, what it matches, its remedy
    "aws": (
        "neuron-hardware",
        _NEURON,
        "[{do: drain, within: 1m, then: force}, {do: replace, within: 2m}]",
    ),
    "aws-gpu": (
        "gpu-xid",
        "type: GpuXid, reason: [GpuXid79, GpuXid48]",
        "[{do: drain, within: 1m, then: force}, {do: reboot, within: 2m}, {do: replace, within: 2m}]",
    ),
    "azure": (
        "gpu-hardware",
        "type: GpuCount, reason: GpuCountBad",
        "[{do: drain, within: 1m, then: force}, {do: reimage, within: 2m}, {do: redeploy, within: 2m}]",
    ),
    "baremetal": (
        "gpu-missing",
        "type: GpuCount, reason: GpuCountBad",
        "[{do: drain, within: 1m}, {do: reboot, within: 1m}]",
    ),
}
_DRAINS = {
    "baremetal": f"""\
drain:
  pods:
    - match: {{namespaces: [{NAMESPACE}], labels: {{role: worker}}}}
      mode: wait               # time to end by themselves; then they are evicted
      within: 30s
      annotate: {{{CHECKPOINT}: requested}}
"""
}
_HOLDS = {
    "aws-gpu": """\
    after: {after}        # tolerated for this long, counted from the first statement
    latch: proof     # a page that has forgotten it ends nothing: a boot with its probation does
"""
}
_VALIDATIONS = {
    "baremetal": f"""\
    validate: {{cronJob: {VALIDATION}, within: 1m}}    # must succeed on the node before it is given back
"""
}


def policy(cloud: str, probation: str, after: str) -> str:
    """The demo's policy: the shipped one in short, with the waits of a demo."""
    name, match, remedy = _RULES[cloud]
    return f"""\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits:
  budget: 1          # nodes out of service at once, over the whole fleet
  brake: 50%         # more sick than this: nothing is started
  cooldown: 2s       # between two starts (default: 2m)
{_DRAINS.get(cloud, "")}rules:
  - name: {name}
    match: {{{match}}}
{_HOLDS.get(cloud, "").format(after=after)}\
    remedy: {remedy}
    probation: {probation}    # healthy this long before the node is trusted (default: 2m)
{_VALIDATIONS.get(cloud, "")}"""


@dataclass(frozen=True)
class Hardware:
    """What a kubelet and a cloud's controller find out about a machine. ``device``: an extended resource."""

    kind: str
    zone: str
    region: str
    provider_id: str = ""
    device: str = "aws.amazon.com/neuron"
    devices: int = 16
    system_uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    boot_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    labels: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[Json, ...] = ()
    """Those beside Ready."""


def node(name: str, machine: Hardware) -> Json:
    """A Node as its kubelet and cloud controller register it; ``status`` is to be written after it."""
    spec: Json = {"providerID": machine.provider_id} if machine.provider_id else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": machine.kind,
                "topology.kubernetes.io/region": machine.region,
                "topology.kubernetes.io/zone": machine.zone,
                **machine.labels,
            },
        },
        "spec": spec,
        "status": node_status(name, machine),
    }


def node_status(name: str, machine: Hardware) -> Json:
    """A Node's status while its kubelet is well."""
    resources = {machine.device: str(machine.devices), "cpu": "128", "memory": "512Gi", "pods": "110"}
    return {
        "capacity": resources,
        "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": name},
        ],
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
            },
            *machine.conditions,
        ],
        "nodeInfo": {
            "bootID": machine.boot_id,
            "systemUUID": machine.system_uuid,
            "machineID": machine.system_uuid.replace("-", ""),
            "kubeletVersion": "v1.36.0",
            "operatingSystem": "linux",
            "architecture": "amd64",
            "kernelVersion": "6.12.0",
            "osImage": "simulated",
            "containerRuntimeVersion": "simulated://0",
            "kubeProxyVersion": "",
        },
    }


SILENT: Json = {
    "conditions": [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        }
    ]
}
"""What the node controller makes of a Node's status once its kubelet is not heard of any more."""


def workload(replicas: int, spared: int = 1) -> list[tuple[str, Json]]:
    """(collection, object): a namespace, a ReplicaSet of trainers, and their disruption budget, which spares
    so many at a time."""
    inside = f"namespaces/{NAMESPACE}"
    labels = {"app": APP}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": APP, "image": APP}]}}
    return [
        (
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        ),
        (
            f"/apis/apps/v1/{inside}/replicasets",
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": APP, "namespace": NAMESPACE, "labels": labels},
                "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
            },
        ),
        (
            f"/apis/policy/v1/{inside}/poddisruptionbudgets",
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": APP, "namespace": NAMESPACE},
                "spec": {"maxUnavailable": spared, "selector": {"matchLabels": labels}},
            },
        ),
    ]


def pod(name: str, on: str, *, app: str, owner: Json) -> Json:
    """A pod that its controller made and the scheduler has bound to node ``on``. It is Pending."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"app": app},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "nodeName": on,
            "terminationGracePeriodSeconds": GRACE,
            "containers": [{"name": app, "image": app}],
        },
    }


RUNNING: Json = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def detector_pod(on: str, port: int) -> Json:
    """The DaemonSet's pod on node ``on``; its container node-recovery serves on ``port``."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": DETECTOR, "uid": "detector"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{DETECTOR}-{on}",
            "namespace": HOME,
            "labels": {"app": DETECTOR},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "nodeName": on,
            "containers": [
                {"name": DETECTOR, "image": DETECTOR},
                {
                    "name": "node-recovery",
                    "image": "node-recovery",
                    "ports": [{"name": "metrics", "containerPort": port}],
                },
            ],
        },
    }
