"""A node that swallows every pod it is given, while it says that it is Ready."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.stories.scenery import judge, pass_time, to_the_end
from tests.stories.scenes import MERGE, boot, calls, patch_node, phase, record_sentences
from tests.stories.test_conditions import policy
from tests.stories.test_one_controller import Group

MINUTES = 60
PODS = "/api/v1/namespaces/default/pods"
REJECTED = "UnexpectedAdmissionError"
HOLE = policy("{type: BlackHole}", "{do: drain, within: 2m, then: force}, {do: replace}").replace(
    b"[conditions]", b"[api]"
)


def fleet(text: bytes = HOLE) -> tuple[Stage, Group]:
    """Nodes that have been Ready for a while, and two jobs that run on one of them."""
    s = Stage(text)
    for name in s.nodes(4):
        since = f"{s.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"
        conditions = [{"type": "Ready", "status": "True", "reason": "Kubelet", "lastTransitionTime": since}]
        patch_node(s, name, {"status": {"conditions": conditions}}, "status", "kubelet")
    s.fleet()
    cloud = Group(s)
    pass_time(s, 12 * MINUTES, cloud, step=10)
    for job in ("a", "b"):
        pod(s, f"runs-{job}", job, "node-3", running(s.clock.true_time()))
    return s, cloud


def running(since: datetime, **state: object) -> dict[str, object]:
    """The status of a pod whose container runs since then, or is in another ``state``."""
    statuses = [{"name": "main", "state": state or {"running": {"startedAt": at(since)}}}]
    return {"phase": "Running", "startTime": at(since), "containerStatuses": statuses}


def pod(s: Stage, name: str, job: str, node: str, status: dict[str, object]) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"job-{job}", "controller": True}
    s.store.load(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
            "status": {"phase": "Pending"},
        }
    )
    path = f"/api/v1/namespaces/default/pods/{name}/status"
    assert s.store.request("PATCH", path, body={"status": status}, content_type=MERGE).ok


def loses(s: Stage, cloud: Group, count: int, jobs: str = "ab", apart: int = 20) -> None:
    """The kubelet of node-0 rejects so many pods, one after the other."""
    for i in range(count):
        now = f"{s.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"
        rejected = {"phase": "Failed", "reason": REJECTED, "startTime": now}
        pod(s, f"lost-{s.clock.monotonic():.0f}-{i}", jobs[i % len(jobs)], "node-0", rejected)
        pass_time(s, apart, cloud, step=1)


def test_it_is_drained_and_replaced_once_five_pods_of_two_jobs_are_lost_that_run_elsewhere() -> None:
    s, cloud = fleet()
    loses(s, cloud, 4)
    assert s.record("node-0") is None
    loses(s, cloud, 1)
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert phase(s) is Phase.RECOVERED
    assert any("PodsLost" in x for x in record_sentences(s))
    judge(s)


@pytest.mark.parametrize("why", ["the jobs run nowhere else", "one job", "in one moment"])
def test_what_may_be_the_pods_own_fault_takes_no_node_out(why: str) -> None:
    s, cloud = fleet()
    if why == "the jobs run nowhere else":
        for job in ("a", "b"):
            s.store.request("DELETE", f"/api/v1/namespaces/default/pods/runs-{job}")
    loses(s, cloud, 10, jobs="a" if why == "one job" else "ab", apart=0 if why == "in one moment" else 20)
    pass_time(s, 5 * MINUTES, cloud, step=5)
    assert (calls(s), s.record("node-0")) == ([], None)


def test_pods_that_are_rejected_while_the_plugins_come_up_after_a_boot_take_no_node_out() -> None:
    """The machine booted so fast that its Node stayed Ready."""
    s, cloud = fleet()
    boot(s, "node-0")
    loses(s, cloud, 6, apart=30)
    pass_time(s, 5 * MINUTES, cloud, step=10)
    assert (calls(s), s.record("node-0")) == ([], None)
    pass_time(s, 5 * MINUTES, cloud, step=10)
    loses(s, cloud, 6)
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]


def test_a_controller_that_takes_over_has_seen_it_too() -> None:
    s, cloud = fleet()
    s.fleet("second")
    s.run(5)
    s.kill(s.actors["controller"])
    loses(s, cloud, 10, apart=10)
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]


def test_where_no_rule_names_it_no_pod_is_watched() -> None:
    s, cloud = fleet(HOLE.replace(b"BlackHole", b"DeviceCount"))
    loses(s, cloud, 10)
    assert (calls(s), s.record("node-0")) == ([], None)
    assert not any(verb == "watch" and "pods" in what for verb, what in s.store.requests)


def at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def failed(began: datetime, lasted: int, code: int) -> dict[str, object]:
    over = {"exitCode": code, "startedAt": at(began), "finishedAt": at(began + timedelta(seconds=lasted))}
    statuses = [{"name": "main", "state": {"terminated": over}}]
    return {"phase": "Failed", "startTime": at(began), "containerStatuses": statuses}


def said(s: Stage) -> list[str]:
    return record_sentences(s, "node-0") if s.record("node-0") is not None else []


def test_pods_that_failed_hours_ago_and_are_only_labelled_now_take_no_node_out() -> None:
    s, cloud = fleet()
    hours_ago = s.clock.true_time() - timedelta(hours=3)
    for i in range(5):
        pod(s, f"old-{i}", "ab"[i % 2], "node-0", failed(hours_ago, 5, 1))
    pass_time(s, 10 * MINUTES, cloud, step=5)
    assert (calls(s), said(s)) == ([], [])
    for i in range(5):  # a sweeper of old pods, a policy engine or a person writes to them
        body = {"metadata": {"annotations": {"seen": "yes"}}}
        assert s.store.request("PATCH", f"{PODS}/old-{i}", body=body, content_type=MERGE).ok
        pass_time(s, 20, cloud, step=1)
    pass_time(s, 10 * MINUTES, cloud, step=5)
    assert (calls(s), said(s)) == ([], [])


def test_pods_that_somebody_deletes_soon_after_their_start_take_no_node_out() -> None:
    """Since Kubernetes 1.27 a kubelet writes the phase Failed before it removes a deleted pod whose container
    did not end with 0, as none does that SIGTERM ends."""
    s, cloud = fleet()
    for i in range(8):  # two jobs are preempted, restarted by their JobSet or rolled out, again and again
        began = s.clock.true_time() - timedelta(seconds=10)
        pod(s, f"short-{i}", "ab"[i % 2], "node-0", {"phase": "Running", "startTime": at(began)})
        assert s.store.request("DELETE", f"{PODS}/short-{i}").ok
        body = {"status": failed(began, 10, 143)}
        answer = s.store.request("PATCH", f"{PODS}/short-{i}/status", body=body, content_type=MERGE)
        assert answer.body["metadata"]["deletionTimestamp"]
        pass_time(s, 20, cloud, step=1)
    pass_time(s, 10 * MINUTES, cloud, step=5)
    assert (calls(s), said(s)) == ([], [])


def fails_everywhere(s: Stage, cloud: Group, lives: int, minutes: int) -> None:
    """The pods of two jobs fail some seconds after their start wherever they run: on node-0, and a little
    later on node-1. Their jobs make them anew."""
    there: dict[tuple[str, str], tuple[str, datetime]] = {}
    began = s.clock.true_time()
    while s.clock.true_time() - began < timedelta(minutes=minutes):
        now = s.clock.true_time()
        for node, job in [(node, job) for node in ("node-0", "node-1") for job in "ab"]:
            name, since = there.get((node, job), ("", began))
            if name and now - since >= timedelta(seconds=lives):
                del there[node, job]
                body = {"status": failed(since, lives, 1)}
                assert s.store.request("PATCH", f"{PODS}/{name}/status", body=body, content_type=MERGE).ok
            elif not name and (node == "node-0" or now - began >= timedelta(seconds=10)):
                there[node, job] = f"{job}-on-{node}-{now:%H%M%S}", now
                pod(s, there[node, job][0], job, node, running(now))
        pass_time(s, 5, cloud, step=5)


def only_fails(s: Stage) -> None:
    for job in "ab":
        s.store.request("DELETE", f"{PODS}/runs-{job}")


@pytest.mark.parametrize("and_some_run", [False, True], ids=["none runs", "some have run for long"])
def test_pods_that_fail_on_every_node_take_none_out(and_some_run: bool) -> None:
    s, cloud = fleet()
    if not and_some_run:
        only_fails(s)
    fails_everywhere(s, cloud, 20, minutes=8)
    assert (calls(s), [n for n in ("node-0", "node-1") if s.record(n) is not None]) == ([], [])


@pytest.mark.parametrize(
    "state",
    [{}, {"waiting": {"reason": "CrashLoopBackOff"}}],
    ids=["it has run for seconds", "it crashes again and again in its place"],
)
def test_a_pod_elsewhere_that_may_be_about_to_fail_proves_nothing(state: dict[str, object]) -> None:
    s, cloud = fleet()
    only_fails(s)
    for i in range(8):
        for job in "ab":
            if i:
                s.store.request("DELETE", f"{PODS}/young-{job}-{i - 1}")
            pod(s, f"young-{job}-{i}", job, "node-3", running(s.clock.true_time(), **state))
        loses(s, cloud, 1, jobs="ab"[i % 2], apart=20)
    pass_time(s, 5 * MINUTES, cloud, step=5)
    assert (calls(s), s.record("node-0")) == ([], None)


def test_two_nodes_that_reject_the_pods_of_the_same_jobs_are_both_broken() -> None:
    s, cloud = fleet()
    for i in range(6):
        now = s.clock.true_time()
        for node in ("node-0", "node-1"):
            rejected = {"phase": "Failed", "reason": REJECTED, "startTime": at(now)}
            pod(s, f"lost-{node}-{i}", "ab"[i % 2], node, rejected)
        pass_time(s, 20, cloud, step=1)
    pass_time(s, 10, cloud, step=1)
    assert [n for n in ("node-0", "node-1") if s.record(n) is not None] == ["node-0", "node-1"]
