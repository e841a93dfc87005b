"""From an earlier program to this one in the middle of recoveries, and back: both run, each by its own chart.

The earlier one is that of the commit ``EARLIER``, from the history of the repository. Its dependencies are
among those of today, so it runs in the same environment. Helm and the control plane are real; the roll-out of
the DaemonSet is the controller's.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet_site import NAMESPACE, POLICY, Site
from kubelets import shipped
from plane import Plane
from test_deploy import CHART, IMAGE, run
from test_helm_upgrade import EARLIER, earlier
from toolbox import program

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


class Versions(Site):
    """A site installed by a chart: the earlier one with its program, or today's with today's."""

    earlier: Path
    """The tree of the earlier commit."""

    def goes_to(self, tree: Path | None, *words: str) -> None:
        """``helm upgrade`` to the chart of ``tree``, and each new pod runs its program; None: today's."""
        chart = CHART if tree is None else tree / "deploy/helm/node-recovery"
        policy = self.folder / "policy.yaml"
        policy.write_text(POLICY.format(budget=2, brake_per="{}"))
        place = (
            "--namespace",
            NAMESPACE,
            "--create-namespace",
            "--kubeconfig",
            self.plane.kubeconfig("admin"),
        )
        said = ("--set", "settings.ENABLE_RECOVERY=true,settings.LEASE_DURATION=5s", *words)
        install = ("upgrade", "--install", "node-recovery", chart, *IMAGE, *place, *said)
        run(program("helm"), *install, "--set-file", f"policy={policy}", home=self.folder)
        self.kubelets._command = shipped() if tree is None else [*self.of(tree), "run"]
        self.plane.kubectl("wait", "--for=condition=Established", "crd/noderecoveries.noderecovery.dev")
        self.plane.kubectl("delete", "pods", "-n", NAMESPACE, "--all", "--wait=false")
        self.plane.kubectl("delete", "pods", "-n", "node-recovery-concluder", "--all", "--wait=false")

    def of(self, tree: Path) -> list[str]:
        return ["env", f"PYTHONPATH={tree}", sys.executable, "-m", "recovery"]

    def versions(self) -> dict[str, int]:
        return {node: int(status["version"]) for node, status in self.records().items()}

    def begins_three(self) -> tuple[str, str, str]:
        """Nodes of which one has asked its group, one is drained, and one waits. Nothing goes on after that:
        Auto Scaling answers that it is busy, and ends no machine."""
        asked, _ = self.group(2)
        drained, waits, _ = self.group(3)
        self.held, self.groups = list(self.groups), []
        self.keeps("worker", drained)
        self.breaks(asked)
        self.until("its group is asked", lambda: "was accepted by aws" in self.log(asked), 120)
        self.breaks(drained)
        self.until("its drain waits", lambda: "asked for the eviction" in self.log(drained), 120)
        self.breaks(waits)
        self.until("it waits", lambda: self.phase(waits) == "waiting", 120)
        self.proxy.fail("DescribeAutoScaling*", 503, "ServiceUnavailable", "try again later", times=10**6)
        self.plane.request("DELETE", f"{BUDGETS}/worker")
        self.until("it is drained", lambda: "drained in" in self.log(drained), 120)
        assert [self.phase(n) for n in (asked, drained, waits)] == ["recovering", "recovering", "waiting"]
        return asked, drained, waits

    def lets_go_on(self) -> None:
        self.proxy.forgive()
        self.groups += self.held

    def keeps(self, name: str, node: str) -> None:
        """A pod that its disruption budget keeps."""
        labels = {"app": name}
        spec = {"nodeName": node, "containers": [{"name": "a", "image": "a"}]}
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        assert self.plane.request("POST", PODS, body=body).status == 201
        budget = {"selector": {"matchLabels": labels}, "maxUnavailable": 0}
        made = self.plane.request("POST", BUDGETS, body={"metadata": {"name": name}, "spec": budget})
        assert made.status == 201, made.body
        self.until("it runs", lambda: self.plane.get(f"{PODS}/{name}")["status"].get("phase") == "Running")


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> Iterator[Versions]:
    folder = tmp_path_factory.mktemp("versions")
    try:
        earlier(folder, "recovery", "providers")
    except pytest.skip.Exception:
        tell(
            f"From the program of {EARLIER} to this one, and back: NOT RUN, the repository's history has no "
            "such commit"
        )
        raise
    (folder / "plane").mkdir()
    with Plane(folder / "plane") as plane, Versions(plane, folder / "site") as found:
        found.earlier = folder
        found.lawless = True  # two programs write, and a person pauses
        found.clear()
        yield found


def test_what_an_earlier_program_began_is_ended_by_this_one(
    site: Versions, tell: Callable[[str], None]
) -> None:
    site.goes_to(site.earlier)
    sick = asked, *_ = site.begins_three()
    assert max(site.versions().values()) <= 2, "the earlier program wrote them"

    with pytest.raises(
        AssertionError, match="belong to no release; an earlier chart or kubectl installed them"
    ) as refused:
        site.goes_to(None)
    for step in re.findall(r"^ +kubectl (.*)$", str(refused.value), re.MULTILINE):
        site.plane.kubectl(*step.split())
    site.goes_to(None)
    site.until("this program has them", lambda: all("[key=" in site.log(n) for n in sick), 180)
    assert site.marked() == [site.instances[asked]]
    each_ends_with_one_call(site, sick)
    tell(f"Upgrade from the program of {EARLIER}: waiting, drained and asked for, each ended with one call")


def test_an_earlier_program_leaves_alone_what_this_one_began_and_this_one_ends_it(
    site: Versions, tell: Callable[[str], None]
) -> None:
    site.goes_to(None)
    sick = asked, drained, waits = site.begins_three()
    before = site.versions()
    assert (before[asked] > 2, before[drained] > 2, before[waits]) == (True, True, 1)

    site.goes_to(site.earlier)
    unread = (
        f"was written in version {before[asked]} of the record; this program understands versions up to 2"
    )
    shut = "RecoveryGate fleet was written in version 2; this program understands version 1"
    for node, why in ((asked, unread), (drained, unread), (waits, shut)):
        site.until(f"the earlier program holds {node}", lambda n=node, w=why: w in site.log(n), 180)
    site.proxy.forgive()  # nothing but the record keeps it from a call
    time.sleep(15)
    assert (site.marked(), site.versions()) == ([site.instances[asked]], before)

    site.goes_to(None)
    each_ends_with_one_call(site, sick)
    tell(f"Back to the program of {EARLIER} and forward again: it held all three; each ended with one call")


def each_ends_with_one_call(site: Versions, sick: tuple[str, ...]) -> None:
    site.lets_go_on()
    for node in sick:
        site.until(f"{node} is recovered", lambda n=node: site.phase(n) == "recovered", 240)
    site.until("no slot is held", lambda: not site.slots())
    assert sorted(site.marked()) == sorted(site.instances[n] for n in sick), "one call each"
