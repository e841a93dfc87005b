"""Machines that no cloud stands behind, on the control plane: ``deploy/baremetal``, and emulated BMCs.

Played here is what a machine does when its power changes: its agent is gone with it; after a boot it has a
new boot ID, an empty ``/run``, a healthy page, and an agent again. Its kubelet is KWOK; that of the one
machine that dies is a KWOK of its own, and dies with it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import uuid
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import laws
import yaml
from detectors import PlayedBack
from fleet_site import DEPLOY, GATE, INFRA, RECORDS, ROOT, edit, infrastructure, register, uncomment
from history import CONCLUDER, OF_CONCLUDER, Audit, Request, Write
from kubelets import Kubelets
from plane import Plane, free_port
from recovery_testkit.redfish import PASSWORD, USERNAME, Emulator, certify

NAMESPACE, ACCOUNT = "node-recovery", "node-recovery"
PAGES = ROOT / "tests" / "captures" / "neuron-dma-error"
SICK, HEALTHY = PAGES / "01-dma-error.prom", PAGES / "00-healthy.prom"
MERGE = "application/merge-patch+json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
RACK = "bmc-rack-1"
MISSED_AFTER = 12
"""Seconds without a heartbeat until a Node is not Ready; 50 by default."""
ALONE = "alone"
"""The KWOK that plays the kubelet of the machine that dies."""
POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits: {{budget: 1, budgetPer: {{}}, brake: 100%, brakePer: {{}}, cooldown: 0s}}
rules:
  - name: hardware
    match: {{type: NeuronHealth, reason: NeuronHasError_DMA_ERROR}}
    remedy: [{{do: drain, within: 1m}}, {{do: reboot, within: 10m}}]
    probation: 2s
{more}"""


class MetalPlane(Plane):
    """Jobs are run on it, and a kubelet that has died is missed soon."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        manager = self._commands["kube-controller-manager"]
        manager[:] = [f"{x},job" if x.startswith("--controllers=") else x for x in manager]
        manager.append(f"--node-monitor-grace-period={MISSED_AFTER}s")
        kwok = self._commands["kwok"]
        kwok[:] = [x.replace("-duration-seconds=40", f"-duration-seconds={MISSED_AFTER}") for x in kwok]
        alone = [x.replace("=kwok.x-k8s.io/node=fake", f"=kwok.x-k8s.io/node={ALONE}") for x in kwok]
        self._commands[ALONE] = [x for x in alone if not x.startswith("--server-address=")]
        self._commands[ALONE].append(f"--server-address=127.0.0.1:{free_port()}")

    def __enter__(self) -> MetalPlane:
        super().__enter__()
        return self

    def stop(self) -> None:
        self.kill(ALONE)
        super().stop()


class MetalAudit(Audit):
    """A Node of bare metal has no providerID, where the checker looks for one; and the concluder may do more
    than an agent may: ``test_baremetal`` says what."""

    def _actor(self, r: Request) -> str:
        return r.user if r.user == OF_CONCLUDER else super()._actor(r)

    def writes(self) -> list[Write]:
        found = super().writes()
        for write in found:
            if write.object.get("kind") == "Node":
                write.object.setdefault("spec", {}).setdefault("providerID", "")
        return found


class BareMetalSite:
    """Use as a context manager on a plane that runs and that nobody else has installed anything on.

    ``dead_after``: seconds after which a machine is taken for dead; 0: as it ships.
    """

    own = CONCLUDER  # the namespace of who asks the BMCs

    def __init__(self, plane: MetalPlane, folder: Path, dead_after: float = 0) -> None:
        self.plane = plane
        self.folder = folder
        folder.mkdir()
        self.machines = Path(tempfile.mkdtemp(dir="/dev/shm"))  # in memory, as /run is
        self.audit = MetalAudit(plane.audit_log, f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
        self.kubelets = Kubelets(plane, folder / "containers", self._beside, program(dead_after))
        self.kubelets.machines = self.machines
        self.uuids = [str(uuid.uuid4()) for _ in range(4)]
        self.bmc = Emulator(folder / "bmc", dict.fromkeys(self.uuids, "On"), certify(folder / "tls"))
        self._installed: object = None
        self._asked = 0  # of a BMC, before this story
        self.pages: dict[str, PlayedBack] = {}
        self.nodes: dict[str, str] = {}  # node -> UUID of its machine

    def __enter__(self) -> BareMetalSite:
        self.bmc.start()
        self.kubelets.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kubelets.stop()
        for page in self.pages.values():
            page.kill()
        self.bmc.stop()
        shutil.rmtree(self.machines)

    # ------------------------------------------------------------ installing

    def install(self, *parts: str, rule: str = "", **settings: str) -> None:
        """``kubectl apply -k deploy/baremetal``, after the edits that its comments describe.

        ``parts``: components by their paths from there. ``rule``: more of the policy's one rule.
        """
        wanted = (parts, rule, tuple(settings.items()))
        if wanted == self._installed:
            return
        copy = self.folder / "deploy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(DEPLOY, copy)
        place = copy / "baremetal"
        lines = (f"{name}={value}" for name, value in settings.items())
        edit(place / "settings.env", "ENABLE_RECOVERY=true", "LEASE_DURATION=5s", *lines)
        (place / "components" / "policy" / "policy.yaml").write_text(POLICY.format(more=rule))
        (place / "components" / "redfish" / "inventory.yaml").write_text(self._inventory())
        for part in ("components/policy", *parts):
            agents = part.startswith("../../")
            uncomment(place / ("agents" if agents else "") / "kustomization.yaml", part)
        if any("redfish" in part for part in parts):
            self.credentials()
        self.plane.apply(place)
        self._installed = wanted

    def _inventory(self) -> str:
        """Where the BMCs are: one that knows all machines."""
        machines = [{"systemUUID": u, "address": self.bmc.url, "credentials": RACK} for u in self.uuids]
        head = {"apiVersion": "noderecovery.dev/v1alpha1", "kind": "BMCInventory"}
        return yaml.safe_dump({**head, "machines": machines})

    def credentials(self) -> None:
        """The Secret that the component's comments have one make. It is there before the pods: these kubelets
        mount a Secret as it is when its pod starts."""
        authority = (self.folder / "tls" / "ca.crt").read_bytes()
        files = {"username": USERNAME.encode(), "password": PASSWORD.encode(), "ca.crt": authority}
        coded = {name: b64encode(content).decode() for name, content in files.items()}
        body = {"metadata": {"name": RACK}, "data": coded}
        namespace, secret = {"metadata": {"name": self.own}}, {"metadata": {"name": RACK}, "data": coded}
        for path, body in (("", namespace), (f"/{self.own}/secrets", secret)):
            answer = self.plane.request("POST", f"/api/v1/namespaces{path}", body=body)
            assert answer.status in (201, 409), answer.body

    def clear(self) -> None:
        """No node, no record: the manifests stay applied. From here on a story begins."""
        for node in self.nodes:
            self.kubelets.power_off(node)
        self.plane.kill(ALONE)
        self.nodes.clear()
        now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        for path in (
            "/api/v1/nodes",
            "/api/v1/namespaces/default/pods",
            f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
            f"/api/v1/namespaces/{NAMESPACE}/pods",
            f"/api/v1/namespaces/{self.own}/pods",
            *(f"{RECORDS}/{name}" for name in self.records()),
            GATE,
        ):
            assert self.plane.request("DELETE", path, body=now).status in (200, 404), path
        self._boot_id(INFRA).parent.mkdir(exist_ok=True)
        self._boot_id(INFRA).write_text("boot-of-infra\n")
        infrastructure(self.plane, "control-plane")
        self.kubelets.forget()
        self.kubelets.trouble.clear()
        self.bmc.reset()
        self._asked = len(self.bmc.requests)
        self.audit.mark()

    def _beside(self, node: str) -> dict[str, str]:
        page = self.pages.get(node)
        url = {"NPD_METRICS_URL": f"http://127.0.0.1:{page.port}/metrics"} if page else {}
        return {"BOOT_ID_FILE": str(self._boot_id(node)), **url}

    # ------------------------------------------------------------ machines

    def join(self, *nodes: str, kubelet: str = "fake") -> None:
        """Machines that are on, and their sidecars, which have looked at them."""
        if kubelet == ALONE:
            self.plane.start_again(ALONE)
        for node in nodes:
            self.nodes[node] = self.uuids[len(self.nodes)]
            self._fresh(node)
            register(self.plane, node, self.nodes[node], "", {}, self.boot_id(node), kubelet)
        self.until("their sidecars work", lambda: all("healthy" in self.log(node) for node in nodes))

    def _fresh(self, node: str) -> None:
        """As a machine is after its boot."""
        if node not in self.pages:
            self.pages[node] = PlayedBack(node, self.folder)
        self.pages[node].page = HEALTHY.read_bytes()
        shutil.rmtree(self.machines / node, ignore_errors=True)
        (self.machines / node / "var" / "run" / "node-recovery").mkdir(parents=True)  # by its tmpfiles.d
        self._boot_id(node).write_text(f"{uuid.uuid4()}\n")
        self.kubelets.power_on(node)

    def _boot_id(self, node: str) -> Path:
        return self.machines / node / "boot_id"

    def boot_id(self, node: str) -> str:
        return self._boot_id(node).read_text().strip()

    def sentinel(self, node: str) -> Path:
        """What asks kured for a reboot."""
        return self.machines / node / "var" / "run" / "node-recovery" / "reboot-required"

    def breaks(self, node: str) -> None:
        self.pages[node].page = SICK.read_bytes()

    def claims(self, node: str, unique: str) -> None:
        """Who has root on the node writes another machine's UUID into its Node, as its kubelet would."""
        path, body = f"/api/v1/nodes/{node}/status", {"status": {"nodeInfo": {"systemUUID": unique}}}
        answer = self.plane.request("PATCH", path, body=body, content_type=MERGE, user="kubelet")
        assert answer.status == 200, answer.body

    def kubelet_dies(self) -> None:
        """That of the machine whose kubelet is a KWOK of its own."""
        self.plane.kill(ALONE)

    def hangs(self, node: str) -> None:
        """The machine has power, and nothing runs on it any more."""
        self.plane.kill(ALONE)
        self.kubelets.power_off(node)

    def power_fails(self, node: str) -> None:
        """As its BMC says."""
        self.bmc.change(self.nodes[node], power_state="Off")

    def boots(self, node: str, kubelet: str = "fake") -> None:
        """It has been switched off and on: another boot, and what runs on it starts again. Its kubelet tells
        of both at once, as real ones do."""
        self.kubelets.power_off(node)
        self._fresh(node)
        up = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        body = {"status": {"nodeInfo": {"bootID": self.boot_id(node)}, "conditions": [up]}}
        path, kind = f"/api/v1/nodes/{node}/status", "application/strategic-merge-patch+json"
        answer = self.plane.request("PATCH", path, body=body, content_type=kind, user="kubelet")
        assert answer.status == 200, answer.body
        if kubelet == ALONE:
            self.plane.start_again(ALONE)

    # ------------------------------------------------------------ looking

    def log(self, node: str) -> str:
        return self.kubelets.log(node)

    def node(self, name: str) -> Any:
        return self.plane.get(f"/api/v1/nodes/{name}")

    def taints(self, name: str) -> list[str]:
        return [taint["key"] for taint in self.node(name)["spec"].get("taints", [])]

    def records(self) -> dict[str, Any]:
        """Node -> the status of its record."""
        found = self.plane.request("GET", RECORDS)
        return {x["metadata"]["name"]: x["status"] for x in found.body.get("items", [])}

    def phase(self, node: str) -> str:
        return str(self.records().get(node, {}).get("phase", ""))

    def ends(self, node: str, phase: str) -> str:
        """Its record ends so, and the books are closed. The record's sentence."""
        self.until(f"it is {phase}", lambda: self.phase(node) == phase)
        self.until("its place is free", lambda: not self.plane.get(GATE)["status"].get("slots"))
        return str(self.records()[node]["sentence"])

    def looks(self) -> int:
        """How often it was looked for a machine behind a BMC."""
        return len([r for r in self.bmc.requests[self._asked :] if r.rstrip("/") == "GET /redfish/v1"])

    def resets(self) -> list[str]:
        """What the BMCs were asked to change, and of which machine."""
        return [r.split("/")[4] for r in self.bmc.requests[self._asked :] if r.startswith("POST")]

    def until(self, what: str, true: Callable[[], object], seconds: float = 90) -> None:
        """Wait for something observable. Fails with what everybody has said."""
        try:
            self.plane.until(what, true, seconds)
        except AssertionError as error:
            logs = [
                f"--- {c.pod} on {c.node}\n{c.log.read_text()[-1500:]}"
                for c in self.kubelets.all()
                if c.log.exists()
            ]
            told = [str(error), *logs, *self.kubelets.trouble[-3:]]
            raise AssertionError("\n".join(told)) from None

    def check_laws(self, faulty: str, action: str = "") -> None:
        """What holds anywhere. ``action``: what was asked for, once, of the machine that was ``faulty``."""
        calls = [(action, self.nodes[faulty])] if action else []
        laws.catch_up(self.plane, self.audit)
        laws.check(self.audit, calls, budget=1, allowed=set(), faulty=[faulty], finished=True)


def program(dead_after: float) -> list[str]:
    """The shipped program, in a pod of its own: with a host name, and the boot ID of its node's kernel."""
    run = [str(Path(sys.executable).with_name("node-recovery")), "run"]
    if dead_after:
        run = [sys.executable, "-c", SOONER.format(seconds=dead_after), "run"]
    script = f'hostname "$(basename "$HOME")" && mount --bind "$BOOT_ID_FILE" {BOOT_ID} && exec "$@"'
    return ["unshare", "--uts", "--", "sh", "-c", script, "sh", *run]


SOONER = """\
import sys
from datetime import timedelta
from recovery.decide import orphan as conclude
from recovery.agent import fetch
conclude.DEAD_AFTER = timedelta(seconds={seconds})
fetch.DOWN_AGE = 1.0  # or its BMC is asked only twice before
from recovery.cli import main
sys.exit(main())
"""
