"""A scale set of Azure's on the control plane: a local Resource Manager, nodes by KWOK, ``deploy/aks-gpu``.

Played here is what lies between Azure and the cluster: the kubelet that shows a new boot ID after a boot, the
node controller that deletes the Node of a deleted VM, and the detector's page.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import laws
from detectors import PlayedBack
from fleet_site import DEPLOY, RECORDS, ROOT, delete_node, edit, infrastructure, register, uncomment
from history import Audit
from kubelets import Kubelets, shipped
from plane import Plane
from recovery_testkit.arm import FakeArm

NAMESPACE, ACCOUNT = "gpu-healthcheck-system", "node-recovery"
PAGES = ROOT / "tests" / "captures" / "neuron-dma-error"
SICK = PAGES / "01-dma-error.prom"
HEALTHY = PAGES / "00-healthy.prom"
POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits: {{budget: 1, budgetPer: {{}}, brake: 100%, brakePer: {{}}, cooldown: 0s}}
rules:
  - name: hardware
    match: {{type: NeuronHealth, reason: NeuronHasError_DMA_ERROR}}
    remedy: [{remedy}]
    probation: 2s
"""
MERGE = "application/merge-patch+json"


class AzureSite:
    """Use as a context manager on a plane that runs and that nobody else has installed anything on."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        folder.mkdir()
        self.audit = Audit(plane.audit_log, f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
        self.arm = FakeArm(operation_seconds=2)
        self.kubelets = Kubelets(plane, folder / "containers", self._beside, shipped())
        self.pages: dict[str, PlayedBack] = {}
        self.known: dict[str, Any] = {}
        self.sets: dict[str, dict[str, str]] = {}  # scale set -> the labels of its nodes
        self.trouble: list[str] = []
        self._infrastructure = False
        self._stopping = threading.Event()
        self._player = threading.Thread(target=self._play, daemon=True)

    def __enter__(self) -> AzureSite:
        self.arm.start()
        self.kubelets.start()
        self._player.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._player.join()
        self.kubelets.stop()
        for page in self.pages.values():
            page.kill()
        self.arm.stop()

    def install(self, remedy: str, **settings: str) -> None:
        """``kubectl apply -k deploy/aks-gpu``, after the edits that its comments describe."""
        copy = self.folder / "deploy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(DEPLOY, copy)
        place = copy / "aks-gpu"
        lines = (f"{name}={value}" for name, value in settings.items())
        edit(place / "settings.env", "ENABLE_RECOVERY=true", "LEASE_DURATION=5s", *lines)
        (place / "policy" / "policy.yaml").write_text(POLICY.format(remedy=remedy))
        uncomment(place / "kustomization.yaml", "policy")
        if not self._infrastructure:
            infrastructure(self.plane)
            self._infrastructure = True
        self.plane.apply(place)

    def _beside(self, node: str) -> dict[str, str]:
        page = self.pages.get(node)
        url = {"NPD_METRICS_URL": f"http://127.0.0.1:{page.port}/metrics"} if page else {}
        return {**self.arm.environ(), **url}

    # ------------------------------------------------------------ machines

    def set_of(self, name: str, size: int, **labels: str) -> str:
        """A scale set whose instances become nodes with sidecars. From here on a story begins."""
        self.arm.forget()
        self.audit.mark()
        made = self.arm.scale_set(name, size=size)
        self.sets[made] = {"kubernetes.azure.com/accelerator": "nvidia", **labels}
        for vm in self.arm.instances(made):
            node = vm.computer_name
            self.until(f"the sidecar of {node} works", lambda n=node: "healthy" in self.kubelets.log(n))
        return made

    def _play(self) -> None:
        while not self._stopping.wait(0.2):
            try:
                self._follow()
            except Exception as error:
                self.trouble.append(f"{type(error).__name__}: {error}")

    def _follow(self) -> None:
        found = [vm for scale_set in list(self.sets) for vm in self.arm.instances(scale_set)]
        present = {vm.id: vm for vm in found if vm.boots}
        for path, vm in list(self.known.items()):
            if path not in present or present[path].vm_id != vm.vm_id:
                self.kubelets.power_off(vm.computer_name)
                delete_node(self.plane, vm.computer_name, self._stopping)
                del self.known[path]
        for path, vm in present.items():
            before = self.known.get(path)
            if before is None:
                self._joined(vm)
            elif before.boot_id != vm.boot_id:
                self._booted(before, vm)
            self.known[path] = vm

    def _joined(self, vm: Any) -> None:
        node = vm.computer_name
        if node not in self.pages:  # a new machine of the same name has its page at the same place
            self.pages[node] = PlayedBack(node, self.folder)
        self.pages[node].page = HEALTHY.read_bytes()
        self.kubelets.power_on(node)
        labels = self.sets[vm.scale_set]
        register(self.plane, node, vm.vm_id, f"azure://{vm.id}", labels, vm.boot_id)

    def _booted(self, before: Any, vm: Any) -> None:
        """Another host has no broken hardware; a new system on the same one has."""
        node = vm.computer_name
        if before.host != vm.host:
            self.pages[node].page = HEALTHY.read_bytes()
        body = {"status": {"nodeInfo": {"bootID": vm.boot_id}}}
        path = f"/api/v1/nodes/{node}/status"
        answer = self.plane.request("PATCH", path, body=body, content_type=MERGE, user="kubelet")
        assert answer.status == 200, answer.body
        self.kubelets.kill(self.kubelets.of(node))

    def breaks(self, node: str) -> None:
        self.pages[node].page = SICK.read_bytes()

    # ------------------------------------------------------------ looking

    def phase(self, node: str) -> str:
        found = self.plane.request("GET", f"{RECORDS}/{node}")
        return str(found.body["status"]["phase"]) if found.status == 200 else ""

    def asked(self) -> list[str]:
        """What Azure was asked to change: method, and the last part of a path that is a verb."""
        found = []
        for r in self.arm.mutating():
            last = r.path.rsplit("/", 1)[-1]
            found.append(f"{r.method} {last}" if r.method == "POST" else r.method)
        return found

    def until(self, what: str, true: Callable[[], object], seconds: float = 120) -> None:
        try:
            self.plane.until(what, true, seconds)
        except AssertionError as error:
            logs = [c.log.read_text()[-1500:] for c in self.kubelets.all() if c.log.exists()]
            raise AssertionError("\n".join([str(error), *logs, *self.trouble[-3:]])) from None

    def check_laws(self, machine: str, faulty: str) -> None:
        """What holds on any cloud. ``machine`` is the one VM that was acted on."""
        uuid = UUID(machine)
        name = min(str(uuid), str(UUID(bytes=uuid.bytes_le)))
        calls = [(what, name) for what in self.asked() if what.startswith(("POST", "DELETE"))]
        laws.catch_up(self.plane, self.audit)
        laws.check(self.audit, calls, budget=1, allowed=set(), faulty=[faulty], finished=True)
        assert self.arm.whole_set_calls == 0
        assert self.arm.scaled_in == 0
