"""A node that swallows every pod it is given, while it says that it is Ready."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.stories.scenery import judge, pass_time, to_the_end
from tests.stories.scenes import MERGE, calls, patch_node, phase, record_sentences
from tests.stories.test_conditions import policy
from tests.stories.test_one_controller import Group

MINUTES = 60
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
        pod(s, f"runs-{job}", job, "node-3", {"phase": "Running"})
    return s, cloud


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
