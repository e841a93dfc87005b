"""Karpenter itself beside the controller of fleet mode: its nodes are instances of moto, played by KWOK.

The program is ``tools/karpenter``: Karpenter's own controllers, and a cloud of the tests. KARPENTER_BINARY
names it.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import yaml
from launcher import bound_to_us, launch
from plane import free_port
from test_fleet_mode import FleetSite

BINARY = os.environ.get("KARPENTER_BINARY", "")
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
POOLS = "/apis/karpenter.sh/v1/nodepools"
MERGE = "application/merge-patch+json"
REPAIR_AFTER = 20
"""Seconds of Karpenter's patience with a condition, where its node repair is on: minutes on AWS."""
POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions, api]
limits:
  budget: 1
  cooldown: 0s
  brake: 100%
  brakePer: {}
  budgetPer: {}
  attempts: {max: 1000, within: 1h}
  perGroup: {max: 1000, within: 1h}
rules:
  - name: replaced
    match: {type: NeuronHealth}
    remedy: [{do: drain, within: 30s, then: force}, {do: replace, within: 1m}]
    probation: 5s
  - name: rebooted-first
    match: {type: AcceleratedHardwareReady}
    remedy: [{do: drain, within: 1m, then: force}, {do: reboot, within: 1m}, {do: replace, within: 1m}]
    probation: 5s
"""
Json = dict[str, Any]


class KarpenterSite(FleetSite):
    """A fleet whose nodes Karpenter makes."""

    policy = POLICY
    sidecars = False

    def __enter__(self) -> KarpenterSite:
        super().__enter__()
        self._karpenter: subprocess.Popen[bytes] | None = None
        self._rebooted: set[float] = set()
        self._boots = threading.Thread(target=self._play_boots, daemon=True)
        self._boots.start()
        crds = self.folder / "crds.yaml"
        crds.write_bytes(subprocess.run([BINARY, "crds"], check=True, capture_output=True).stdout)  # noqa: S603
        self.plane.kubectl("apply", "--server-side", "-f", str(crds))
        self.plane.kubectl("wait", "--for=condition=Established", "-f", str(crds), "--timeout=30s")
        return self

    def __exit__(self, *args: object) -> None:
        self.karpenter_stops()
        super().__exit__(*args)
        self._boots.join()

    # ------------------------------------------------------------ Karpenter

    @property
    def its_log(self) -> Path:
        return self.folder / "karpenter.log"

    def karpenter_runs(self, repair: bool = False) -> None:
        self.karpenter_stops()
        where = {
            "topology.kubernetes.io/zone": f"{self.aws.region}a",
            "karpenter.sh/capacity-type": "on-demand",
        }
        needs = [{"key": key, "operator": "In", "values": [value]} for key, value in where.items()]
        zones = [{"Price": 1, "Available": True, "Requirements": needs}]
        offered = {"name": "trn1.2xlarge", "architecture": "amd64", "operatingSystems": ["linux"]}
        size = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        types = self.folder / "types.json"
        types.write_text(json.dumps([{**offered, "offerings": zones, "resources": size}]))
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.plane.kubeconfig("cloud")),
            "AWS_ENDPOINT_URL": self.aws.url,
            "AWS_REGION": self.aws.region,
            "INSTANCE_TYPES_FILE_PATH": str(types),
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": str(free_port()),
            "HEALTH_PROBE_PORT": str(free_port()),
            "FEATURE_GATES": f"NodeRepair={str(repair).lower()}",
            "REPAIR_AFTER": f"{REPAIR_AFTER}s",
            "LOG_LEVEL": "debug",
        }
        with self.its_log.open("ab") as log:
            self._karpenter = launch(bound_to_us([BINARY]), env=environ, stdout=log, stderr=log)

    def karpenter_stops(self) -> None:
        if self._karpenter is not None:
            self._karpenter.kill()
            self._karpenter.wait()
            self._karpenter = None

    def pool(self, consolidate_after: str = "Never", grace: str = "", **template: Any) -> None:
        """The NodePool ``trn``. ``grace``: its terminationGracePeriod; ``template``: more of its spec."""
        named = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
        arch = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
        spec = {"nodeClassRef": named, "requirements": [arch], "expireAfter": "Never", **template}
        if grace:
            spec["terminationGracePeriod"] = grace
        often = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": consolidate_after}
        often["budgets"] = [{"nodes": "100%"}]
        documents = [
            {
                "apiVersion": "karpenter.kwok.sh/v1alpha1",
                "kind": "KWOKNodeClass",
                "metadata": {"name": "default"},
            },
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {"name": "trn"},
                "spec": {"template": {"spec": spec}, "disruption": often},
            },
        ]
        file = self.folder / "pool.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        self.plane.kubectl("apply", "-f", str(file))

    def work(self, replicas: int, most_out: int = 1, **annotations: str) -> list[str]:
        """A Deployment with a node for each pod, and a disruption budget. Returns the nodes when all run."""
        labels = {"app": "work"}
        apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        spec = {
            "containers": [{"name": "w", "image": "w", "resources": {"requests": {"cpu": "1"}}}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
            "nodeSelector": {"karpenter.sh/nodepool": "trn"},
            "terminationGracePeriodSeconds": 1,
        }
        meta = {"name": "work", "namespace": "default"}
        pod = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
        select = {"selector": {"matchLabels": labels}}
        documents = [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": meta,
                "spec": {**select, "replicas": replicas, "template": pod},
            },
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": meta,
                "spec": {**select, "maxUnavailable": most_out},
            },
        ]
        file = self.folder / "work.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        self.plane.kubectl("apply", "-f", str(file))
        self.until("the work runs", lambda: len(self.working()) == replicas, 90)
        self.until("its nodes are initialized", lambda: len(self.nodes(initialized=True)) >= replicas, 60)
        return sorted(self.working().values())

    def most_out(self, count: int) -> None:
        body = {"spec": {"maxUnavailable": count}}
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/work"
        assert self.plane.request("PATCH", path, body=body, content_type=MERGE).status == 200

    def working(self) -> dict[str, str]:
        """Pod -> node, of the pods that run and stay."""
        found = self.plane.get("/api/v1/namespaces/default/pods", labelSelector="app=work")["items"]
        return {
            p["metadata"]["name"]: p["spec"]["nodeName"]
            for p in found
            if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"]
        }

    def nodes(self, initialized: bool = False) -> dict[str, Json]:
        """Karpenter's nodes."""
        wanted = "karpenter.sh/nodepool=trn" + (",karpenter.sh/initialized=true" if initialized else "")
        found = self.plane.get("/api/v1/nodes", labelSelector=wanted)["items"]
        return {n["metadata"]["name"]: n for n in found}

    def claim_of(self, node: str) -> str:
        return next(o["name"] for o in self.nodes()[node]["metadata"]["ownerReferences"])

    def taints(self, node: str) -> set[str]:
        found = self.nodes().get(node, {})
        return {t["key"] for t in found.get("spec", {}).get("taints", [])}

    def annotate(self, path: str, **annotations: str) -> None:
        keys = {f"karpenter.sh/{name.replace('_', '-')}": value for name, value in annotations.items()}
        body = {"metadata": {"annotations": keys}}
        assert self.plane.request("PATCH", path, body=body, content_type=MERGE).status == 200

    def clear(self) -> None:
        """No work, no NodePool; Karpenter takes its nodes away, and is stopped."""
        if self._karpenter is not None:
            for kind in ("deployments", "poddisruptionbudgets"):
                self.plane.kubectl("delete", kind, "--all", "-n", "default", "--ignore-not-found")
            for path in (POOLS, CLAIMS):
                self.plane.request("DELETE", path)
            self.until("Karpenter has taken its nodes away", lambda: not self.plane.get(CLAIMS)["items"], 90)
            self.karpenter_stops()
        super().clear()

    # ------------------------------------------------------------ the machine's part

    def _play_boots(self) -> None:
        """A machine that EC2 was asked to reboot has another boot, half a second later."""
        while not self._stopping.wait(0.5):
            for r in self.proxy.requests:
                if r.action == "RebootInstances" and r.at not in self._rebooted:
                    self._rebooted.add(r.at)
                    for name, node in self.nodes().items():
                        if node["spec"]["providerID"].endswith(r.params["InstanceId.1"]):
                            self.boots(name)

    def boots(self, node: str) -> None:
        body = {"status": {"nodeInfo": {"bootID": f"boot-{time.time()}"}}}
        path = f"/api/v1/nodes/{node}/status"
        assert self.plane.request("PATCH", path, body=body, content_type=MERGE, user="kubelet").status == 200

    def told(self) -> str:
        return super().told() + "\n--- Karpenter\n" + self.its_log.read_text()[-3000:]
