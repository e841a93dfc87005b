"""What else gets in the way of a recovery: the cloud, the detector, a budget of disruption, a fence."""

from __future__ import annotations

import time
from typing import Any

from fleet_site import Site, broken, let_go, recovered_once, training


def test_a_lost_answer_of_the_cloud_is_observed_and_the_call_not_repeated(site: Site) -> None:
    sick = broken(site)
    site.proxy.lose_answer("SetInstanceHealth")
    site.breaks(sick)
    recovered_once(site, sick)
    assert "ambiguous" in events(site, sick)


def events(site: Site, node: str) -> set[str]:
    return {line["event"] for line in history(site, node)}


def history(site: Site, node: str) -> list[dict[str, Any]]:
    """All that the history of the node's record ever said: a closed record keeps its last lines only."""
    written = [w.object for w in site.audit.writes() if w.object.get("kind") == "NodeRecovery"]
    own = [each["status"] for each in written if each["metadata"]["name"] == node]
    return [line for status in own for line in status.get("history", [])]


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


def test_a_pod_of_a_fenced_namespace_is_left_and_named(site: Site) -> None:
    """Its end is the machine's end: that of the Node, whose pods are collected."""
    sick = broken(site)
    site.allowed.add(403)  # the fence is only known by asking
    vault = "/api/v1/namespaces/vault"
    meta = {"name": "vault", "labels": {"noderecovery.dev/evict": "never"}}
    assert site.plane.request("POST", "/api/v1/namespaces", body={"metadata": meta}).status in (201, 409)
    has_account = f"{vault}/serviceaccounts/default"
    site.until("pods can be made", lambda: site.plane.request("GET", has_account).status == 200)
    spec = {"nodeName": sick, "containers": [{"name": "db", "image": "db"}]}
    made = site.plane.request("POST", f"{vault}/pods", body={"metadata": {"name": "db-0"}, "spec": spec})
    assert made.status == 201, made.body
    site.breaks(sick)
    recovered_once(site, sick)
    why = "vault/db-0 stays: namespace vault is fenced: its label noderecovery.dev/evict says never"
    told = [line["sentence"] for line in history(site, sick)]
    assert any(sentence.endswith(f"; {why}; next: replace") for sentence in told), told
    assert why in site.plane.kubectl("get", "events", "--field-selector", f"involvedObject.name={sick}")
    assert [r.status for r in evictions(site) if "/vault/" in r.path] == [403], "asked for once"


def test_a_pod_that_the_scheduler_puts_there_again_is_evicted_once(site: Site) -> None:
    """It tolerates everything, and may run on that node alone. Its end is the machine's end."""
    sick = broken(site)
    labels, here = {"app": "operator"}, {"key": "metadata.name", "operator": "In", "values": [sick]}
    spec = {
        "containers": [{"name": "operator", "image": "operator"}],
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [here]}]
                }
            }
        },
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    wanted = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": "operator"}, "spec": wanted}
    path = "/apis/apps/v1/namespaces/default/deployments"
    assert site.plane.request("POST", path, body=body).status == 201
    site.until("it runs", lambda: site.plane.get(f"{path}/operator").get("status", {}).get("readyReplicas"))
    time.sleep(3)  # what is about as young as the drain may have come after it
    site.breaks(sick)
    recovered_once(site, sick)
    assert len([r for r in evictions(site) if r.status == 201]) == 1


def evictions(site: Site) -> list[Any]:
    return [r for r in site.audit.ours() if r.resource == "pods/eviction"]
