"""A drain as training jobs need it: time to save, a gang that goes together, a person who gets in between.

What the option ``deploy/options/checkpoint`` grants is all that the agent needs for it, and all that its
token is good for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from fleet_site import ACCOUNT, NAMESPACE, POLICY, Site, any_right, recovered_once
from history import Request, moment
from test_admission import MERGE, Thief, denied

from recovery.kube.transport import Response

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
OPTION = "checkpoint"
BY_NAME = "application/strategic-merge-patch+json"  # containers are told apart by their names
SAVE = "example.com/save-a-checkpoint"
EVICT_AFTER = "noderecovery.dev/evict-after"
TRAINING = f"""\
{POLICY.format(budget=1, brake_per="{}")}
drain:
  pods:
    - match: {{namespaces: default, labels: {{job: training}}}}
      mode: wait
      within: 8s
      annotate: {{{SAVE}: now}}
"""
SEEN = "example.com/seen"
"""A finalizer: what is evicted is still there to be looked at."""


@pytest.fixture(scope="module")
def granted(_site: Site) -> Iterator[Site]:
    """The site with the option, which the other tests do not have."""
    _site.clear()
    _site.install(TRAINING, OPTION, ENABLE_RECOVERY="true", LEASE_DURATION="5s")
    yield _site
    folder = _site.folder / "deploy" / "options" / OPTION
    for file in ("rbac.yaml", "admission.yaml"):
        _site.plane.kubectl("delete", "-f", str(folder / file))


def runs(site: Site, name: str, node: str, finalizers: list[str], **labels: str) -> None:
    """A pod that nobody makes again."""
    body = {
        "metadata": {"name": name, "labels": labels, "finalizers": finalizers},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "worker", "image": "worker"}],
        },
    }
    answer = site.plane.request("POST", PODS, body=body)
    assert answer.status == 201, answer.body
    site.until(f"{name} runs", lambda: pod(site, name)["status"].get("phase") == "Running")


def pod(site: Site, name: str) -> Any:
    return site.plane.get(f"{PODS}/{name}")


def told(site: Site, name: str) -> dict[str, str]:
    return dict(pod(site, name)["metadata"].get("annotations", {}))


def target(site: Site, name: str) -> str:
    """Why a pod goes, as Jobs' failure policies read it."""
    found = pod(site, name)["status"].get("conditions", [])
    return "".join(c["reason"] for c in found if (c["type"], c["status"]) == ("DisruptionTarget", "True"))


def evictions(site: Site) -> list[Request]:
    """Those that were carried out, in order; the concluder's is none of ours."""
    asked = [r for r in site.audit.ours() if r.resource == "pods/eviction" and r.path.startswith(PODS)]
    return [r for r in asked if r.status == 201 and "dryRun" not in r.query]


def evicted(site: Site) -> list[str]:
    return [r.name for r in evictions(site)]


def kept(site: Site, name: str, **labels: str) -> None:
    """A budget of disruption that lets none of these pods go."""
    body = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}
    assert site.plane.request("POST", BUDGETS, body=body).status == 201
    path = f"{BUDGETS}/{name}"
    site.until("the budget is known", lambda: site.plane.get(path)["status"].get("currentHealthy") == 1)


def test_a_training_node_is_drained_as_its_jobs_need_it_and_not_while_somebody_uncordons_it(
    granted: Site, site: Site
) -> None:
    sick, _ = site.group(2)
    runs(site, "lone", sick, [SEEN])
    runs(site, "training", sick, [SEEN], job="training")
    gang = {"jobset.sigs.k8s.io/jobset-name": "big"}
    runs(site, "worker-0", sick, [SEEN], **gang)
    runs(site, "worker-1", sick, [SEEN], keep="me", **gang)
    kept(site, "worker-1", keep="me")

    site.breaks(sick)
    site.until("the job is told", lambda: SAVE in told(site, "training"))
    assert told(site, "training")[SAVE] == "now"
    its_time = moment(told(site, "training")[EVICT_AFTER])
    began = moment(site.records()[sick]["rungSince"])
    assert (its_time - began).total_seconds() == pytest.approx(8, abs=1), "both are whole seconds"
    site.until("who needs no time is evicted", lambda: evicted(site) == ["lone"])
    assert target(site, "lone") == "EvictionByEvictionAPI"
    site.until("the gang is asked about", lambda: asked_only(site) == {("worker-0", 201), ("worker-1", 429)})

    site.plane.kubectl("uncordon", sick)
    held = f"somebody uncordoned {sick}; exclude or release it, or cordon it again to go on"
    site.until("it holds", lambda: held in site.log(sick))
    site.until("the job's time is over", lambda: (datetime.now(UTC) - its_time).total_seconds() > 1)
    assert evicted(site) == ["lone"]
    site.plane.kubectl("cordon", sick)
    site.until("it goes on", lambda: evicted(site) == ["lone", "training"])
    for name in ("worker-0", "worker-1"):
        assert "deletionTimestamp" not in pod(site, name)["metadata"], "half a gang is worth nothing"

    site.plane.request("DELETE", f"{BUDGETS}/worker-1")
    site.until("the gang goes together", lambda: len(evicted(site)) == 4)
    assert evicted(site)[2:] == ["worker-0", "worker-1"]
    assert min(r.time for r in evictions(site) if r.name == "training") >= its_time
    for name in evicted(site):
        assert target(site, name) == "EvictionByEvictionAPI", name
        patch = {"metadata": {"finalizers": None}}
        site.plane.request("PATCH", f"{PODS}/{name}", body=patch, content_type=MERGE)
    recovered_once(site, sick)
    assert not [r for r in site.audit.ours() if r.resource == "pods" and r.verb == "delete"]


def asked_only(site: Site) -> set[tuple[str, int]]:
    """Of whom it was asked whether they might go, and the answer."""
    asked = [r for r in site.audit.ours() if r.resource == "pods/eviction" and "dryRun" in r.query]
    return {(r.name, r.status) for r in asked}


def test_a_stolen_token_tells_the_pods_of_its_own_node_and_changes_nothing_else(
    granted: Site, site: Site
) -> None:
    site.allowed.add(403)
    mine, other = site.group(2)
    thief = Thief(site, mine, other)
    runs(site, "of-mine", mine, [], app="web")
    runs(site, "of-the-other", other, [], app="web")
    site.until("the option works", lambda: denied(tells(thief, "of-the-other")))
    assert tells(thief, "of-mine").status == 200
    refused = tells(thief, "of-the-other").body["message"]
    assert f"an agent annotates pods of its own node only; this token is of a pod on '{mine}'" in refused
    with any_right(site.plane, NAMESPACE, ACCOUNT, site.kubelets.of(mine).token):
        assert denied(tells(thief, "of-the-other")), "with any right"
        for what, patch in FORGED.items():
            answer = thief.asks("PATCH", f"{PODS}/of-mine", patch, BY_NAME)
            assert denied(answer), (what, answer.body)
            assert "an agent changes nothing of a pod but annotations" in answer.body["message"]
        made = {"metadata": {"name": "made-up"}, "spec": pod(site, "of-mine")["spec"]}
        assert denied(thief.asks("POST", PODS, made))
        status = {"status": {"phase": "Succeeded"}}
        assert denied(thief.asks("PATCH", f"{PODS}/of-mine/status", status, MERGE))
        assert tells(thief, "of-mine").status == 200
    assert pod(site, "of-mine")["spec"]["containers"][0]["image"] == "worker"


FORGED: dict[str, Any] = {
    "another image": {"spec": {"containers": [{"name": "worker", "image": "miner"}]}},
    "another label": {"metadata": {"labels": {"app": "none-that-a-budget-knows"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/never"]}},
    "an annotation taken away": {"metadata": {"annotations": {EVICT_AFTER: None}}},
}


def tells(thief: Thief, name: str) -> Response:
    patch = {"metadata": {"annotations": {EVICT_AFTER: "2026-01-01T00:00:00Z"}}}
    return thief.asks("PATCH", f"{PODS}/{name}", patch, MERGE)


def test_the_expressions_of_the_option_pass_the_servers_own_check_of_types(granted: Site) -> None:
    path = f"{POLICIES}/node-recovery-pods"

    def checked() -> Any:
        return granted.plane.get(path).get("status", {}).get("typeChecking")

    granted.plane.until("it is checked", lambda: checked() is not None)
    assert checked().get("expressionWarnings", []) == []
