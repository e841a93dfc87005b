"""The soak's site in fleet mode: two replicas of the controller, and nothing of ours on any node.

What is on the nodes is played here: a detector that writes conditions and renews them, kubelets that die, and
machines that boot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet_site import RECORDS, training
from history import CONTROLLER
from kubelets import Container
from plane import Plane
from recovery_testkit.proxy import Request
from soak_site import OUTCOMES, SoakSite
from test_fleet_mode import FleetSite

from recovery.agent.fleet.nodes import BOOTS_IN
from recovery.model import TAINT
from tests.search import facts
from tests.search.facts import Asked, Fact, Happened, Wrote

POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions]
limits:
  budget: {budget}
  budgetPer: {{}}
  brake: 100%
  brakePer: {{}}
  cooldown: 0s
  attempts: {{max: 1000, within: 1h}}
  perGroup: {{max: 1000, within: 1h}}
rules:
  - name: neuron-hardware
    match: {{type: NeuronHealth}}
    remedy: [{{do: drain, within: 1m, then: force}}, {{do: replace, within: 10m}}]
    probation: 2s
  - name: kernel
    match: {{type: KernelDeadlock}}
    remedy: [{{do: drain, within: 1m, then: force}}, {{do: reboot, within: 1m}}, {{do: replace, within: 10m}}]
    probation: 2s
  - name: dead-node
    match: {{type: Ready}}
    after: 5s
    remedy: [{{do: drain, within: 20s, then: force}}, {{do: replace, within: 10m}}]
    probation: 2s
"""
REPLACED = ("NeuronHealth", "NeuronHasError_DMA_ERROR")
REBOOTED = ("KernelDeadlock", "DockerHung")
DEAD = ("Ready", "NodeStatusUnknown")
CURES = {REPLACED: ["replace"], REBOOTED: ["reboot", "replace"], DEAD: ["replace"]}
GOOD = {"NeuronHealth": "NeuronHasNoError", "KernelDeadlock": "KernelHasNoDeadlock"}
CALLS = {"SetInstanceHealth": "replace", "RebootInstances": "reboot"}
DOWN = BOOTS_IN.total_seconds() + 2.0
"""Seconds for which a machine that boots is silent: none boots faster than ``BOOTS_IN``."""
HEARTBEAT = 10.0
"""Seconds between two words of a kubelet. A real one may be silent for five minutes, and who leads anew
waits for it for one, after a gap."""
STRATEGIC = "application/strategic-merge-patch+json"
Json = dict[str, Any]


class FleetSoak(SoakSite, FleetSite):
    """``sick``: node -> the fault that its machine has."""

    rules = POLICY
    leases_in = CONTROLLER

    def __init__(self, plane: Plane, folder: Path) -> None:
        super().__init__(plane, folder)
        self.sick: dict[str, tuple[str, str]] = {}
        self.shown: set[str] = set()  # nodes whose fault was on the Node
        self.boots: dict[str, int] = {}  # machine -> how often it was booted since it was launched
        self.down: dict[str, float] = {}  # node -> until when its machine boots
        self._turned: dict[tuple[str, str], tuple[str, str]] = {}
        self._heard: dict[str, float] = {}  # node -> when its kubelet wrote last
        self._rebooted = 0
        self._field = threading.Thread(target=self._play_field, daemon=True)

    def seed(self, seed: int) -> None:
        super().seed(seed)
        self._field.start()

    def __exit__(self, *problem: object) -> None:
        self._stopping.set()
        if self._field.ident is not None:
            self._field.join()
        super().__exit__(*problem)

    # ------------------------------------------------------------ what is written down

    def facts(self) -> list[Fact]:
        found = super().facts()
        return sorted([*found, *who_led(found)], key=lambda fact: fact.at)

    def _calls(self) -> list[Asked]:
        """Who asked is who had written an intent of that machine last."""
        asked = []
        intents = [w for w in self.log_of_writes.facts() if intent_of(w)]
        for r in self.proxy.requests:
            machine, at = instance_of(r), r.at - self.began
            if r.action in CALLS and machine:
                by = [w for w in intents if w.at <= at + 1 and intent_of(w) == machine]
                who = max(by, key=lambda w: w.at).actor if by else ""
                asked.append(Asked(at, who, machine, CALLS[r.action], answer=OUTCOMES[r.outcome]))
        return asked

    # ------------------------------------------------------------ processes

    def actor(self, container: Container) -> str:
        return f"controller {container.pod}"

    def of_process(self, container: Container) -> Json:
        return {"node": "", "everywhere": True}

    def apply_policy(self) -> None:
        self.installed()
        self.until("records can be read", lambda: self.plane.request("GET", RECORDS).status == 200)

    # ------------------------------------------------------------ machines

    def group(self, size: int, *, sidecars: bool = False, **labels: str) -> dict[str, str]:
        made = super().group(size, sidecars=sidecars, **labels)
        training(self.plane, replicas=2 * size, most_out=size)
        return made

    def boot_of(self, machine: str) -> str:
        booted = self.boots.get(machine, 0)
        return super().boot_of(machine) + (f"-{booted}" if booted else "")

    def well(self) -> list[str]:
        return [n for n in list(self.alive) if n not in self.sick and n not in self.down and self._is_good(n)]

    def _is_good(self, node: str) -> bool:
        found = self.plane.request("GET", f"/api/v1/nodes/{node}").body.get("status", {})
        said = {c["type"]: c["status"] for c in found.get("conditions", ())}
        return said.get("Ready") == "True" and all(said.get(type_) == "False" for type_ in GOOD)

    def is_marked(self, node: str) -> bool:
        found = self.plane.request("GET", f"/api/v1/nodes/{node}").body
        return any(taint["key"] == TAINT for taint in found.get("spec", {}).get("taints") or ())

    def falls_sick(self, node: str, fault: tuple[str, str]) -> None:
        about = {"type": fault[0], "reason": fault[1]}
        told = {**about, "cure": CURES[fault], "treat": True, "shown": False}
        self.note(facts.FAULT_BEGAN, self.instances[node], **told)
        self.sick[node] = fault

    def power_off(self, node: str) -> None:
        self.sick.pop(node, None)
        self.down.pop(node, None)
        self.shown.discard(node)
        super().power_off(node)

    def detector_dies(self, node: str, seconds: float) -> None:
        """What it wrote stays on the Node, and is not renewed."""
        if self.dark.setdefault(node, until := time.monotonic() + seconds) == until:
            self.done["detector killed"] += 1

    def detectors_again(self, *, everybody: bool = False) -> None:
        for node, until in list(self.dark.items()):
            if everybody or time.monotonic() >= until:
                del self.dark[node]

    def reconcile(self) -> None:
        super().reconcile()
        for node in list(self.alive):  # what a kubelet says of its machine, once it can
            if self.sick.get(node) != DEAD:
                self._says_boot(node)

    # ------------------------------------------------------------ the field

    def _play_field(self) -> None:
        while not self._stopping.wait(0.5):
            try:
                self._reboots()
                for node in list(self.alive):
                    self._on(node)
            except Exception as error:  # the API server may be down: everybody there tries again
                self.trouble.append(f"{type(error).__name__}: {error}")

    def _reboots(self) -> None:
        """What EC2 was asked to boot goes down, and comes up."""
        nodes = {machine: node for node, machine in self.instances.items()}
        asked = [r for r in self.proxy.requests if r.action == "RebootInstances"]
        for r in asked[self._rebooted :]:
            self._rebooted += 1
            node = nodes.get(instance_of(r), "")
            if OUTCOMES[r.outcome] in facts.APPLIED and node in self.alive and node not in self.down:
                self.down[node] = time.monotonic() + DOWN
        for node, until in list(self.down.items()):
            if time.monotonic() >= until:
                self._comes_up(node)

    def _comes_up(self, node: str) -> None:
        machine = self.instances[node]
        self.boots[machine] = self.boots.get(machine, 0) + 1
        self.down.pop(node, None)
        self._turned = {key: x for key, x in self._turned.items() if key[0] != node}
        told = {"boot": self.boot_of(machine), "node": node, "by": "reboot"}
        self.note(facts.MACHINE_BOOTED, machine, **told)
        if self.sick.get(node) == REBOOTED:
            del self.sick[node]
            self.shown.discard(node)
            self.note(facts.FAULT_ENDED, machine, type=REBOOTED[0], reason=REBOOTED[1], by="reboot")
        self._says_boot(node)

    def _says_boot(self, node: str) -> None:
        """As a kubelet does when it starts. Its Ready says when it wrote."""
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at}
        info = {"bootID": self.boot_of(self.instances[node])}
        body, path = {"status": {"nodeInfo": info, "conditions": [ready]}}, f"/api/v1/nodes/{node}/status"
        self.plane.request("PATCH", path, body=body, content_type=STRATEGIC, user="kubelet")

    def _on(self, node: str) -> None:
        """The detector of a node writes what it finds. Of a node whose kubelet is dead, others write."""
        fault = self.sick.get(node)
        if node in self.down or node in self.dark:
            return
        if fault == DEAD:
            self.dies(node)
            if self._writes(node, {"Ready": ("Unknown", DEAD[1])}):
                self._seen(node, fault)
            return
        if time.monotonic() - self._heard.get(node, 0.0) >= HEARTBEAT:
            self._heard[node] = time.monotonic()
            self._says_boot(node)
        found = {type_: ("False", reason) for type_, reason in GOOD.items()}
        if fault is not None:
            found[fault[0]] = ("True", fault[1])
        if self._writes(node, found) and fault is not None:
            self._seen(node, fault)

    def _writes(self, node: str, found: dict[str, tuple[str, str]]) -> bool:
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        conditions = []
        for type_, (status, reason) in found.items():
            was = self._turned.get((node, type_))
            turned = was[1] if was is not None and was[0] == status else at
            self._turned[node, type_] = (status, turned)
            times = {"lastHeartbeatTime": at, "lastTransitionTime": turned}
            conditions.append({"type": type_, "status": status, "reason": reason, "message": "", **times})
        path, body = f"/api/v1/nodes/{node}/status", {"status": {"conditions": conditions}}
        return self.plane.request("PATCH", path, body=body, content_type=STRATEGIC).status == 200

    def _seen(self, node: str, fault: tuple[str, str]) -> None:
        if node in self.shown or self.sick.get(node) != fault:
            return
        self.shown.add(node)
        told = {"type": fault[0], "reason": fault[1], "node": node, "by": ["conditions"]}
        self.note(facts.FAULT_SHOWN, self.instances[node], **told)


def instance_of(request: Request) -> str:
    """The instance that a call is about; empty for a dry run."""
    if "DryRun" in request.params:
        return ""
    return request.params.get("InstanceId") or request.params.get("InstanceId.1") or ""


def intent_of(w: Wrote) -> str:
    """The machine of which a record says that it is about to be asked for."""
    status = (w.after or {}).get("status") or {}
    written = w.kind == "NodeRecovery" and (status.get("intent") or {}).get("state") == "written"
    return str((status.get("machine") or {}).get("id") or "") if written else ""


def who_led(history: list[Fact]) -> Iterator[Happened]:
    """Who leads from when on, by the writes of the Lease."""
    leads, holder = "", ""
    states: dict[str, str] = {}

    def leading(at: float, so: bool) -> Happened:
        return Happened(at, facts.PROCESS, leads, {"state": states.get(leads, "started"), "leads": so})

    for fact in history:
        if isinstance(fact, Happened) and fact.what == facts.PROCESS:
            states[fact.subject] = fact.detail["state"]
        if not isinstance(fact, Wrote) or (fact.kind, fact.name) != ("Lease", CONTROLLER):
            continue
        now = str(((fact.after or {}).get("spec") or {}).get("holderIdentity") or "")
        if now == holder:
            continue
        holder = now
        if leads:
            yield leading(fact.at, False)
        leads = fact.actor if now and fact.actor.startswith("controller ") else ""
        if leads:
            yield leading(fact.at, True)
