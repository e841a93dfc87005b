"""What breaks while a node is being recovered: the API server, its store, tokens, the detector, patience."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fleet_site import ACCOUNT, NAMESPACE, Site, let_go, training
from kubelets import claims
from plane import Plane

EVERYTHING = {
    "verbs": ["*"],
    "apiGroups": ["*"],
    "resources": ["*"],
    "clusterScope": True,
    "namespaces": ["*"],
}
NO_ROOM = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0}
LEVEL = {"type": "Limited", "limited": {**NO_ROOM, "limitResponse": {"type": "Reject"}}}
AGENTS = {"kind": "ServiceAccount", "serviceAccount": {"name": ACCOUNT, "namespace": NAMESPACE}}
SCHEMA = {
    "priorityLevelConfiguration": {"name": "jail"},
    "matchingPrecedence": 1,
    "rules": [{"subjects": [AGENTS], "resourceRules": [EVERYTHING]}],
}


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


MOMENTS: dict[str, Callable[[Site, str], object]] = {
    "before anything was done": lambda site, node: "was seen" in site.log(node),
    "cordoned": lambda site, node: "cordoned for" in site.log(node),
    "asked for": lambda site, node: site.marked(),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_api_server_is_killed_in_the_middle_and_comes_back(site: Site, moment: str) -> None:
    site.allowed.add(403)  # in its first seconds an API server has not read the rights of anybody yet
    sick = broken(site)
    site.breaks(sick)
    site.until(moment, lambda: MOMENTS[moment](site, sick))
    site.plane.kill("kube-apiserver")
    time.sleep(3)
    site.plane.start_again("kube-apiserver")
    recovered_once(site, sick)


@pytest.mark.parametrize("moment", ["before anything was done", "asked for"])
def test_the_store_stands_still_for_longer_than_any_timeout(site: Site, moment: str) -> None:
    site.allowed |= {500, 503, 504}
    sick = broken(site)
    site.breaks(sick)
    site.until(moment, lambda: MOMENTS[moment](site, sick))
    asked = len(site.marked())
    site.plane.freeze("etcd")
    try:
        time.sleep(12)
        assert len(site.marked()) == asked, "without its intent written, nothing is asked for"
    finally:
        site.plane.thaw("etcd")
    recovered_once(site, sick)


def test_a_token_that_has_expired_is_read_anew_when_the_kubelet_has_renewed_it(site: Site) -> None:
    site.allowed.add(401)
    site.recovering()
    site.kubelets.lifetime = 20
    try:
        sick = next(iter(site.group(2)))
    finally:
        site.kubelets.lifetime = 0
    end = claims(site.kubelets.of(sick).token)["exp"]
    time.sleep(max(0.0, end - time.time()) + 1)
    site.breaks(sick)
    site.until("the API server refuses it", lambda: "401" in site.log(sick))
    assert site.marked() == []
    for node in site.instances:
        site.kubelets.rotate(node)
    recovered_once(site, sick)


class Jail:
    """A level of priority and fairness with no room, and the agents in it: 429 for everything."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def close(self) -> None:
        self._make("prioritylevelconfigurations", "PriorityLevelConfiguration", "jail", LEVEL)
        self._make("flowschemas", "FlowSchema", "agents-in-jail", SCHEMA)

    def _make(self, plural: str, kind: str, name: str, spec: dict[str, Any]) -> None:
        group = "flowcontrol.apiserver.k8s.io/v1"
        body = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
        answer = self._plane.request("POST", f"/apis/{group}/{plural}", body=body)
        assert answer.status == 201, answer.body

    def open(self) -> None:
        for path in ("flowschemas/agents-in-jail", "prioritylevelconfigurations/jail"):
            self._plane.request("DELETE", f"/apis/flowcontrol.apiserver.k8s.io/v1/{path}")


@pytest.fixture
def jail(site: Site) -> Iterator[Jail]:
    found = Jail(site.plane)
    yield found
    found.open()


def test_an_api_server_that_says_too_many_requests_is_asked_again_later(site: Site, jail: Jail) -> None:
    sick = broken(site)
    jail.close()

    def refused() -> list[Any]:
        return [r for r in site.audit.ours() if r.status == 429 and r.resource != "pods/eviction"]

    site.breaks(sick)
    site.until("it is refused", refused)
    time.sleep(4)
    assert site.records() == {}
    assert site.marked() == []
    asked = len(refused())
    jail.open()
    recovered_once(site, sick)
    assert asked < 100, f"{asked} requests in the seconds in which all were refused"


def test_twenty_sidecars_fight_for_one_slot(site: Site) -> None:
    site.recovering()
    nodes = site.group(20)
    for node in nodes:
        site.breaks(node)
    site.until("all have records", lambda: len(site.records()) == 20, 90)
    site.until("three were recovered", lambda: ended(site) >= 3, 180)
    asked = site.marked()
    assert len(asked) == len(set(asked))
    assert len(asked) <= ended(site) + 1
    conflicts = [r for r in site.audit.ours() if r.status == 409]
    assert conflicts, "nobody fought"
    held = [
        [slot["node"] for slot in r.object["status"]["slots"]]
        for r in site.audit.ours()
        if r.resource == "recoverygates" and r.verb == "update" and r.status == 200
    ]
    assert max(len(slots) for slots in held) == 1


def ended(site: Site) -> int:
    return sum(1 for record in site.records().values() if record["phase"] == "recovered")


def test_a_detector_that_is_killed_flooded_and_restarted_loses_no_fault_and_harms_nobody(site: Site) -> None:
    site.recovering()
    sick, well = site.group(2)
    for node in (sick, well):
        site.detectors.of(node).flood(5000)
    site.detectors.of(well).kill()
    site.until("it is missed", lambda: "cannot be read" in site.log(well) or "refused" in site.log(well))
    site.breaks(sick)
    site.detectors.of(sick).kill()
    time.sleep(2)
    site.detectors.of(sick).start_again()
    recovered_once(site, sick)
    site.detectors.of(well).start_again()
    site.until("it is healthy again", lambda: site.log(well).rstrip().endswith("no confirmed problem"))
    assert well not in site.records()


def test_a_budget_of_disruption_is_waited_for_and_never_gone_around(site: Site) -> None:
    sick = broken(site, 3)
    training(site.plane, replicas=3, most_out=0)
    site.breaks(sick)
    site.until("an eviction was refused", lambda: any(r.status == 429 for r in evictions(site)))
    site.until(
        "it says whose budget",
        lambda: "disruption budget training" in site.log(sick),
    )
    assert site.marked() == []
    let_go(site.plane, 1)
    recovered_once(site, sick)
    assert not [r for r in site.audit.ours() if r.resource == "pods" and r.verb == "delete"]


def evictions(site: Site) -> list[Any]:
    return [r for r in site.audit.ours() if r.resource == "pods/eviction"]
