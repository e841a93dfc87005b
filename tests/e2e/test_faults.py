"""What breaks of the control plane in the middle of a recovery: API server, store, tokens, patience."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fleet_site import ACCOUNT, NAMESPACE, Site, broken, recovered_once
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
    site.plane.controllers_anew()
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
    site.plane.controllers_anew()
    recovered_once(site, sick)


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
