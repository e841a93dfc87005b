"""What breaks while a node is being recovered: the API server, its store, tokens, the detector, patience."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fleet_site import ACCOUNT, NAMESPACE, Site, let_go, training
from history import THIEF
from kubelets import LEEWAY, claims
from plane import Plane

CACHED = 11
"""Seconds for which an API server believes a token that it has just seen (10), and one more."""
EVERYTHING = {
    "verbs": ["*"],
    "apiGroups": ["*"],
    "resources": ["*"],
    "clusterScope": True,
    "namespaces": ["*"],
}
# At a limit of none, one request at a time is let through.
ONE_SEAT = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0}
LEVEL = {"type": "Limited", "limited": {**ONE_SEAT, "limitResponse": {"type": "Reject"}}}
AGENTS = {"kind": "ServiceAccount", "serviceAccount": {"name": ACCOUNT, "namespace": NAMESPACE}}
SCHEMA = {
    "priorityLevelConfiguration": {"name": "one-seat"},
    "matchingPrecedence": 2,
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


def test_the_store_stands_still_for_longer_than_any_timeout(site: Site) -> None:
    sick = broken(site)
    site.breaks(sick)
    site.until("it is seen", lambda: "was seen" in site.log(sick))
    site.plane.freeze("etcd")
    try:
        asked = len(site.marked())
        time.sleep(12)
        assert len(site.marked()) == asked, "without its intent written, nothing is asked for"
    finally:
        site.plane.thaw("etcd")
    recovered_once(site, sick)


def test_a_lost_answer_of_the_cloud_is_observed_and_the_call_not_repeated(site: Site) -> None:
    sick = broken(site)
    site.proxy.lose_answer("SetInstanceHealth")
    site.breaks(sick)
    recovered_once(site, sick)
    history = [line["event"] for line in site.records()[sick]["history"]]
    assert "ambiguous" in history


def test_a_token_that_has_expired_is_read_anew_when_the_kubelet_has_renewed_it(site: Site) -> None:
    site.allowed.add(401)
    site.recovering()
    site.kubelets.lifetime = 15
    try:
        sick = next(iter(site.group(2)))
    finally:
        site.kubelets.lifetime = 0
    refused_from = claims(site.kubelets.of(sick).token)["exp"] + LEEWAY
    time.sleep(max(0.0, refused_from - time.time()) + CACHED)
    site.breaks(sick)
    site.until("the API server refuses it", lambda: "401" in site.log(sick))
    assert site.marked() == []
    for node in site.instances:
        site.kubelets.rotate(node)
    recovered_once(site, sick)


class Crowd:
    """A level of priority and fairness with one seat for all agents, and a crowd that wants it all the time.

    Who does not get the seat is answered 429.
    """

    def __init__(self, plane: Plane, token: str) -> None:
        self._plane = plane
        self._token = token
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(4)]
        self.refused = 0

    def __enter__(self) -> Crowd:
        self._make("prioritylevelconfigurations", "PriorityLevelConfiguration", "one-seat", LEVEL)
        self._make("flowschemas", "FlowSchema", "agents", SCHEMA)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        for path in ("flowschemas/agents", "prioritylevelconfigurations/one-seat"):
            self._plane.request("DELETE", f"/apis/flowcontrol.apiserver.k8s.io/v1/{path}")

    def _make(self, plural: str, kind: str, name: str, spec: dict[str, Any]) -> None:
        group = "flowcontrol.apiserver.k8s.io/v1"
        body = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
        answer = self._plane.request("POST", f"/apis/{group}/{plural}", body=body)
        assert answer.status == 201, answer.body

    def _ask(self) -> None:
        while not self._over.is_set():
            answer = self._plane.request("GET", "/api/v1/pods", bearer=self._token, agent=THIEF)
            self.refused += answer.status == 429


def test_an_api_server_that_says_too_many_requests_is_asked_again_later(site: Site) -> None:
    sick = broken(site)
    with Crowd(site.plane, site.kubelets.of(sick).token) as crowd:
        site.until("the seat is fought for", lambda: crowd.refused > 10)
        site.breaks(sick)
        site.until("agents are refused too", lambda: len(too_many(site)) >= 5, 90)
    recovered_once(site, sick)


def too_many(site: Site) -> list[Any]:
    return [r for r in site.audit.ours() if r.status == 429 and r.resource != "pods/eviction"]


def test_twenty_sidecars_that_break_in_the_same_second_cross_neither_budget_nor_brake(site: Site) -> None:
    """One slot for all; and ten of them are guarded by a brake that lets three be sick."""
    site.recovering(brake_per="{guarded: 30%}")
    free, guarded = site.group(10), site.group(10, guarded="yes")
    for node in (*guarded, *free):
        site.breaks(node)
    site.until("all have records", lambda: len(site.records()) == 20, 90)
    site.until("three were recovered", lambda: ended(site) >= 3, 180)
    asked = site.marked()
    assert len(asked) == len(set(asked))
    assert len(asked) <= ended(site) + 1
    braked = "the brake is on: 10 of 10 nodes with guarded=yes are sick or unknown"
    assert any(braked in site.log(node) for node in guarded)
    # While the faults were coming in, the first guarded one may have seen three sick or fewer.
    assert len(set(asked) & set(guarded.values())) <= 1
    assert [r for r in site.audit.ours() if r.status == 409], "nobody fought"
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
    site.until("it is missed", lambda: "does not listen there" in site.log(well))
    site.breaks(sick)
    site.detectors.of(sick).kill()
    time.sleep(2)
    site.detectors.of(sick).start_again()
    site.detectors.of(well).start_again()
    recovered_once(site, sick)
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
