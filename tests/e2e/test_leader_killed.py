"""The leader of a fleet dies at every boundary of a recovery: ``kill -9`` right after a write has arrived.

Proxies before the API server and the cloud kill who sent it, before it can read an answer. A boundary's name
is what was written. At each name it happens once, so whatever a recovery writes besides is a boundary, too.
``make e2e`` kills at ``FIRST`` alone; with ``KILLED=after`` at every one, which takes five minutes. With
``KILLED=before`` right before each write arrives: a leader that has read the answer to the last one, and no
more.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs

import pytest
from fleet_site import GATE, RECORDS, training
from front import CUT, PASS, Front, Sent
from plane import Plane
from test_fleet_mode import LEASE, FleetSite

from recovery.agent.fleet.nodes import BOOTS_IN

POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions]
limits: {budget: 2, cooldown: 0s, brake: 100%, brakePer: {}, budgetPer: {}}
rules:
  - name: neuron
    match: {type: NeuronHealth}
    remedy: [{do: drain, within: 5m, then: force}, {do: replace, within: 10m}]
    probation: 1s
  - name: kernel
    match: {type: KernelDeadlock}
    remedy: [{do: drain, within: 5m, then: force}, {do: reboot, within: 10m}]
    probation: 1s
"""
REPLACED = ("NeuronHealth", "NeuronHasError_DMA_ERROR")
REBOOTED = ("KernelDeadlock", "DockerHung")
WRITES = ("POST", "PUT", "PATCH", "DELETE")
TOLD = ("/events", "/leases", "/tokenreviews")
"""Writes that no recovery goes by: what is said of it, and who leads."""
REPLACE, REBOOT = "call: SetInstanceHealth", "call: RebootInstances"
BOUNDARIES = {
    *("record: waiting, confirmed", "record: recovering, started"),
    *("gate: made", "gate: in the queue", "gate: slot taken", "gate: claimed", "gate: slot freed"),
    *("node: marked", "eviction 1", "eviction 2", "record: recovering, rung", "node: marks off"),
    *("record: recovering, intent, written", REPLACE, "record: recovering, ambiguous, ambiguous"),
    *("record: recovering, notApplied, notApplied", "record: proving, joined, submitted"),
    *("record: recovering, submitted, submitted", "record: proving, evidence, submitted"),
    "record: recovered, recovered, submitted",
}
"""What the two recoveries write: of the node that is replaced, and of the one that is rebooted.

Nobody is killed at REBOOT: EC2 does not say whether it was asked, so one that never came is waited for until
its deadline.
"""
FIRST = {
    *("gate: slot taken", "node: marked", "record: recovering, intent, written", REPLACE),
    *("record: recovering, submitted, submitted", "gate: slot freed"),
}
"""Where most can go wrong."""
WHOLE_SECONDS = 1.0
"""A Node's times have no fractions, and its last one may be a second old when its machine goes down."""


class Boundaries:
    """What the controllers write, as it passes; and who dies of it."""

    def __init__(self, site: Mortal) -> None:
        self.site = site
        self.api = Front(site.plane.port, site.plane.certificate.parent, self._before, self._after)
        self.cloud = Front(site.proxy.port, None, self._before_call, self._after_call)
        self.deadly_after = self.deadly_before = lambda boundary: False
        self.deaths: dict[str, str] = {}
        """Boundary -> the pod whose process died there."""
        self._lock = threading.RLock()
        self._evicted: set[str] = set()
        self._gate: dict[str, int] = {}
        self._writer = ""

    def __enter__(self) -> Boundaries:
        self.api.start()
        self.cloud.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.api.stop()
        self.cloud.stop()

    # ------------------------------------------------------------ what is written

    def _before(self, sent: Sent) -> int:
        if not self._is_a_step(sent):
            return PASS
        with self._lock:
            return CUT if self._dies(self._named(sent), sent.bearer, self.deadly_before) else PASS

    def _after(self, sent: Sent, status: int) -> bool:
        if not self._is_a_step(sent) or status >= 300:
            return False
        with self._lock:
            named = self._named(sent)
            if sent.path.startswith(RECORDS):
                self._writer = sent.bearer
            if sent.path == GATE:
                self._gate = held(sent)
            if sent.path.endswith("/eviction"):
                self._evicted.add(sent.path)
            return self._dies(named, sent.bearer, self.deadly_after)

    def _before_call(self, sent: Sent) -> int:
        with self._lock:
            return CUT if self._dies(asked(sent), self._writer, self.deadly_before) else PASS

    def _after_call(self, sent: Sent, status: int) -> bool:
        with self._lock:  # who asks has just written its intent
            return status < 300 and self._dies(asked(sent), self._writer, self.deadly_after)

    def _is_a_step(self, sent: Sent) -> bool:
        return sent.method in WRITES and not any(part in sent.path for part in TOLD)

    def _named(self, sent: Sent) -> str:
        """The boundary's name."""
        if sent.path.startswith(RECORDS):
            status = sent.json()["status"]
            said = [status["phase"], (status.get("history") or [{"event": ""}])[-1]["event"]]
            return ", ".join(
                ["record: " + said[0], said[1], *filter(None, [(status.get("intent") or {}).get("state")])]
            )
        if sent.path.startswith("/apis/noderecovery.dev/v1alpha1/recoverygates"):
            return f"gate: {self._of_gate(sent)}"
        if sent.path.endswith("/eviction"):
            return f"eviction {min(2, len(self._evicted | {sent.path}))}"
        if sent.path.startswith("/api/v1/nodes/"):
            return "node: marked" if sent.json()["spec"].get("unschedulable") else "node: marks off"
        return f"{sent.method} {sent.path}"

    def _of_gate(self, sent: Sent) -> str:
        if sent.method == "POST":
            return "made"
        now, was = held(sent), self._gate
        more = [what for what in now if now[what] > was.get(what, 0)]
        words = {"slots": "slot taken", "open": "in the queue", "replacementsClaimed": "claimed"}
        if more:
            return words[more[0]]
        return "slot freed" if now["slots"] < was.get("slots", 0) else "census"

    # ------------------------------------------------------------ who dies

    def _dies(self, boundary: str, bearer: str, deadly: Callable[[str], bool]) -> bool:
        """Whether who sent this is killed; then it is, before anybody reads an answer."""
        if not boundary or boundary in self.deaths or not deadly(boundary):
            return False
        (process,) = (c for c in self.site.replicas() if c.token == bearer)
        self.site.kubelets.kill(process)
        self.site.plane.request("DELETE", LEASE)  # how long it is waited for: test_fleet_mode
        self.deaths[boundary] = process.pod
        return True


def held(sent: Sent) -> dict[str, int]:
    """How much the gate holds of each, the most telling first."""
    status = sent.json().get("status", {})
    return {what: len(status.get(what) or ()) for what in ("slots", "open", "replacementsClaimed")}


def asked(sent: Sent) -> str:
    """The call, where one changes something."""
    found = parse_qs(sent.body.decode(errors="replace"))
    name = f"call: {found.get('Action', [''])[0]}"
    return name if name in (REPLACE, REBOOT) and "DryRun" not in found else ""


class Mortal(FleetSite):
    """A site whose controllers reach the API server and the cloud through proxies that kill."""

    policy = POLICY
    boundaries: Boundaries

    def _beside(self, node: str) -> dict[str, str]:
        api, cloud = self.boundaries.api.port, self.boundaries.cloud.port
        ways = {"KUBERNETES_SERVICE_PORT": str(api), "AWS_ENDPOINT_URL": f"http://127.0.0.1:{cloud}"}
        return super()._beside(node) | ways

    def boots(self, node: str) -> None:
        body = {"status": {"nodeInfo": {"bootID": "another-boot"}}}
        path, kind = f"/api/v1/nodes/{node}/status", "application/merge-patch+json"
        answer = self.plane.request("PATCH", path, body=body, content_type=kind, user="kubelet")
        assert answer.status == 200, answer.body

    def left_on_nodes(self) -> list[str]:
        found: list[str] = []
        for node in self.plane.get("/api/v1/nodes")["items"]:
            meta, spec = node["metadata"], node["spec"]
            marks = [*meta.get("annotations", {}), *(taint["key"] for taint in spec.get("taints", ()))]
            marks += ["noderecovery.dev: a cordon"] if spec.get("unschedulable") else []
            found += [f"{meta['name']}: {mark}" for mark in marks if "noderecovery.dev" in mark]
        return found

    def asked_for(self, action: str) -> list[str]:
        """The instances that a change was asked for, in order, with those whose answer nobody read."""
        sent = (Sent("POST", "/", r.body, "") for r in self.proxy.requests)
        fields = [parse_qs(x.body.decode()) for x in sent if asked(x) == action]
        return [(found.get("InstanceId") or found["InstanceId.1"])[0] for found in fields]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    folder = tmp_path_factory.mktemp("mortal")
    (folder / "plane").mkdir()
    with (
        Plane(folder / "plane") as plane,
        Mortal(plane, folder / "site") as site,
        Boundaries(site) as site.boundaries,
    ):
        site.clear()
        site.installed()
        yield site


class Detector:
    """States the faults of two nodes, and renews them: who leads anew goes by no condition that it finds.

    It is silent while its machine boots. No machine boots faster than ``BOOTS_IN``: what was written later
    than that before a boot was seen counts as of this boot, for a leader that did not see it before.
    """

    def __init__(self, site: Mortal) -> None:
        self.site = site
        self.sick: dict[str, tuple[str, str]] = {}
        self.booted: set[str] = set()
        self._at = 0.0
        self._down_since: dict[str, float] = {}

    def renews(self) -> None:
        if time.monotonic() - self._at < 1:
            return
        self._at = time.monotonic()
        for node, (type_, reason) in self.sick.items():
            if node not in self.booted and self.site.instances[node] in self.site.asked_for(REBOOT):
                down_since = self._down_since.setdefault(node, self._at)
                if self._at - down_since <= BOOTS_IN.total_seconds() + WHOLE_SECONDS:
                    continue
                self.site.boots(node)
                self.booted.add(node)
            status = "False" if node in self.booted else "True"
            self.site.states(node, type_, status, reason, may_be_gone=True)  # its machine is replaced


def test_a_leader_that_is_killed_after_each_write_of_a_recovery_has_it_ended_by_the_next(
    mortal: Mortal, tell: Callable[[str], None]
) -> None:
    deaths, detector = mortal.boundaries, Detector(mortal)
    killed = os.environ.get("KILLED", "")
    deadly = FIRST if not killed else BOUNDARIES
    replaced, rebooted, _ = mortal.group(3)
    training(mortal.plane, replicas=6, most_out=6)
    mortal.until("pods run on both", lambda: mortal.pods_on(replaced) and mortal.pods_on(rebooted))

    def deadly_at(boundary: str) -> bool:
        return boundary in FIRST if not killed else boundary != REBOOT

    if killed == "before":
        deaths.deadly_before = deadly_at
    else:
        deaths.deadly_after = deadly_at
    began = time.monotonic()

    def until(what: str, true: Callable[[], object], seconds: float = 240) -> None:
        def looked() -> object:
            detector.renews()
            assert "handedOver" not in [mortal.phase(node) for node in detector.sick], "a person has it"
            return true()

        mortal.until(what, looked, seconds)

    detector.sick[replaced] = REPLACED
    until("its intent is written", lambda: "record: recovering, intent, written" in deaths.deaths)
    detector.sick[rebooted] = REBOOTED
    until("both are recovered", lambda: {mortal.phase(n) for n in detector.sick} == {"recovered"})
    until("their slots are free", lambda: not mortal.slots() and "gate: slot freed" in deaths.deaths)
    took = time.monotonic() - began

    assert mortal.asked_for(REPLACE) == [mortal.instances[replaced]], "asked for once"
    assert mortal.asked_for(REBOOT) == [mortal.instances[rebooted]], "asked for once"
    assert mortal.left_on_nodes() == []
    assert mortal.gate().get("open") == []
    assert mortal.refused() == []
    assert deaths.api.trouble == deaths.cloud.trouble == []
    assert deadly - set(deaths.deaths) == set(), "nobody was killed there"
    when = killed or "after"
    tell(
        f"Leader killed right {when} each of {len(deaths.deaths)} writes: "
        f"two recoveries in {took:.0f} s, one call each"
    )
