"""A drain that people trust with training jobs: some pods have time, some may never go, gangs go together."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, refused
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.builders.faults import DMA
from tests.builders.objects import budget_object
from tests.builders.policies import policy_file
from tests.stories.scenery import sentences
from tests.stories.scenes import MERGE, PERSON, calls, cast, marked, phase, remove_pod, the_record

PODS = "/api/v1/namespaces/default/pods"
WORKERS = """drain:
  pods:
    - match: {labels: {role: worker}}
      mode: wait
      within: 5m
      annotate: {example.com/checkpoint: now}
"""


def train(drain: str, *pods: dict[str, str], remedy: str = "") -> Stage:
    """node-0 with these pods, each given by its labels and ``name``; its device has just failed."""
    s = cast(policy_file(remedy) + drain.encode())
    for labels in pods:
        s.add_pod(labels["name"], "node-0", **{k: v for k, v in labels.items() if k != "name"})
    s.fault("node-0")
    return s


def read_pod(s: Stage, name: str) -> dict[str, Any] | None:
    answer = s.store.request("GET", f"{PODS}/{name}")
    return answer.body if answer.status == 200 else None


def ends(s: Stage, name: str) -> None:
    """The job has written its checkpoint, and exits."""
    path, body = f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}}
    assert s.store.request("PATCH", path, body=body, content_type=MERGE, user_agent="kubelet").status == 200


def evictions(s: Stage) -> list[str]:
    """The pods whose eviction was granted, in that order."""
    granted = (w.object["metadata"]["name"] for w in s.store.history if w.path.endswith("/eviction"))
    return list(dict.fromkeys(granted))  # each writes its condition, and then its end


def when_asked(s: Stage) -> list[float]:
    """From now on: when evictions are asked for, in seconds, whatever is answered."""
    times: list[float] = []

    def notes(asked: Asked) -> bool:
        if asked.path.endswith("/eviction"):
            times.append(s.clock.monotonic())
        return False

    s.api.fail_next(notes, refused(500))
    return times


# ---------------------------------------------------------------- time to end by themselves


def test_a_job_that_ends_in_its_time_is_never_evicted_and_its_node_is_replaced_at_once() -> None:
    s = train(WORKERS, {"name": "w", "role": "worker"})
    s.run(60)
    assert evictions(s) == []
    assert any(x.startswith(f"{DMA}: draining, 1 pod left; default/w has until ") for x in sentences(s))
    ends(s, "w")
    s.run(4)
    assert (evictions(s), calls(s)) == ([], [("replace", "m-0")])


def test_it_is_told_by_the_policys_annotation_and_until_when() -> None:
    s = train(WORKERS, {"name": "w", "role": "worker"}, {"name": "other"})
    s.run(10)
    found = read_pod(s, "w")
    assert found is not None
    began = the_record(s).rung_since
    assert began is not None
    annotations = found["metadata"]["annotations"]
    assert annotations["example.com/checkpoint"] == "now"
    assert annotations["noderecovery.dev/evict-after"].startswith(
        f"{began.replace(tzinfo=None):%Y-%m-%dT%H:}"
    )
    writes = [w for w in s.store.history if w.path == f"{PODS}/w" and w.verb == "patch"]
    assert len(writes) == 1, "it is told once"


def test_a_job_that_does_not_end_is_evicted_when_its_time_is_over() -> None:
    s = train(WORKERS, {"name": "w", "role": "worker"}, {"name": "other", "app": "web"})
    s.run(8)
    assert read_pod(s, "other") is None, "the others do not wait for it"
    s.run(280)
    assert calls(s) == []
    s.run(25)
    assert read_pod(s, "w") is None
    assert calls(s) == [("replace", "m-0")]


def test_a_pod_that_cannot_be_told_has_its_time_all_the_same_and_that_is_said() -> None:
    s = cast(policy_file() + WORKERS.encode())
    s.add_pod("w", "node-0", role="worker")
    forbidden = refused(403, "Forbidden", "pods is forbidden")
    s.api.fail_next(lambda asked: asked.method == "PATCH" and "/pods/" in asked.path, forbidden, times=99)
    s.fault("node-0")
    s.run(60)
    untold = [
        x for x in sentences(s) if x.startswith("default/w could not be annotated before its eviction: ")
    ]
    assert 1 <= len(untold) <= 3, "said, and not tried in a loop"
    assert evictions(s) == []
    ends(s, "w")
    s.run(4)
    assert calls(s) == [("replace", "m-0")]


def test_an_agent_that_dies_while_a_job_has_its_time_goes_on_where_it_was() -> None:
    s = train(WORKERS, {"name": "w", "role": "worker"})
    s.run(100)
    s.kill(s.actors["agent of node-0"])
    s.agent("node-0", name="its successor", place="pod-of-node-0", alone=True)
    s.run(180)
    assert evictions(s) == []
    s.run(40)
    assert calls(s) == [("replace", "m-0")]


# ---------------------------------------------------------------- never


def test_a_node_with_a_pod_that_may_never_go_is_a_persons_and_nothing_is_evicted_from_it() -> None:
    never = "drain: {pods: [{match: {labels: {role: master}}, mode: never}]}\n"
    s = train(never, {"name": "other", "app": "web"}, {"name": "master", "role": "master"})
    s.run(10)
    assert (phase(s), evictions(s), calls(s)) == (Phase.HANDED_OVER, [], [])
    assert marked(s) == (True, True, True), "nothing new lands on it"
    assert "default/master may never be evicted (drain.pods[0] of the policy)" in the_record(s).sentence


# ---------------------------------------------------------------- kubectl's flags


@pytest.mark.parametrize(("then", "after"), [("force", Phase.RECOVERING), ("handOver", Phase.HANDED_OVER)])
def test_a_pod_without_a_controller_stays_where_the_policy_says_so_and_then_decides(
    then: str, after: Phase
) -> None:
    remedy = f"{{do: drain, within: 2m, then: {then}}}, {{do: replace, within: 30m}}"
    s = cast(policy_file(remedy) + b"drain: {force: false}\n")
    s.add_pod("bare", "node-0", owner="")
    s.fault("node-0")
    s.run(60)
    words = "default/bare may not go: cannot delete Pods that declare no controller (drain.force is false)"
    assert f"{DMA}: draining, 1 pod left; {words}" in sentences(s)
    s.run(70)
    assert (phase(s), read_pod(s, "bare") is not None) == (after, True)
    assert calls(s) == ([("replace", "m-0")] if then == "force" else [])


# ---------------------------------------------------------------- gangs


def gang(s: Stage, *names: str) -> None:
    for name in names:
        s.add_pod(name, "node-0", **{"jobset.sigs.k8s.io/jobset-name": "llm", "app": name})


def keeps(s: Stage, app: str) -> None:
    s.store.load(budget_object(f"keep-{app}", app=app, minAvailable=1))


def test_while_one_of_a_workloads_pods_may_not_go_none_of_them_is_evicted() -> None:
    s = cast()
    gang(s, "w-0", "w-1", "w-2")
    keeps(s, "w-2")
    s.fault("node-0")
    s.run(60)
    assert evictions(s) == []
    assert any(
        "default/w-0 goes together with default/w-2, which may not go yet: " in x for x in sentences(s)
    )
    s.store.request("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep-w-2")
    times = when_asked(s)
    s.run(35)
    assert evictions(s) == ["w-0", "w-1", "w-2"]
    assert times[-1] - times[-3] < 0.5
    assert calls(s) == [("replace", "m-0")]


def test_a_workload_has_the_time_of_the_one_of_its_pods_that_has_most() -> None:
    s = cast(policy_file() + WORKERS.encode())
    s.add_pod("w-0", "node-0", **{"jobset.sigs.k8s.io/jobset-name": "llm", "role": "worker"})
    s.add_pod("w-1", "node-0", **{"jobset.sigs.k8s.io/jobset-name": "llm", "role": "leader"})
    s.fault("node-0")
    s.run(200)
    assert evictions(s) == []
    s.run(120)
    assert len(evictions(s)) == 2


# ---------------------------------------------------------------- pace


def test_evictions_are_no_faster_than_the_policy_says() -> None:
    s = cast(policy_file() + b"drain: {evictionsPerSecond: 2}\n")
    for i in range(10):
        s.add_pod(f"p{i}", "node-0", app=f"p{i}")
    times = when_asked(s)
    s.fault("node-0")
    s.run(20)
    assert len(evictions(s)) == len(times) == 10
    assert all(sum(1 for t in times if start <= t < start + 1) <= 2 for start in times)


def test_a_pod_that_its_budget_keeps_is_asked_for_less_and_less_often() -> None:
    s = cast()
    s.add_pod("train", "node-0")
    keeps(s, "train")
    asked = when_asked(s)
    s.fault("node-0")
    s.run(300)
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses[0] < 4
    assert 9 <= pauses[-1] <= 12
    assert len(asked) < 36
    remove_pod(s)


@pytest.mark.parametrize("what", ["eviction", "annotation"])
def test_what_changes_nothing_is_not_asked_for_in_a_loop(what: str) -> None:
    """A webhook that refuses with 409, or that takes annotations off again."""
    s = cast(policy_file() + (WORKERS.encode() if what == "annotation" else b""))
    s.add_pod("w", "node-0", role="worker")
    asked: list[str] = []
    kept = s.store.request

    def stubborn(method: str, path: str, **more: Any) -> Any:
        if path.startswith(f"{PODS}/w") and method in ("PATCH", "POST"):
            asked.append(path)
            if what == "annotation":
                return kept("GET", f"{PODS}/w")
            return refused(409, "Conflict", "a webhook says so")(None, lambda: None)  # type: ignore[arg-type]
        return kept(method, path, **more)

    s.store.request = stubborn  # type: ignore[method-assign]
    s.fault("node-0")
    s.run(60)
    assert 2 <= len(asked) < 12


def test_a_pod_that_may_never_go_and_goes_by_itself_is_waited_for() -> None:
    s = cast(policy_file() + b"drain: {pods: [{match: {labels: {role: master}}, mode: never}]}\n")
    s.add_pod("master", "node-0", role="master")
    s.store.request("DELETE", f"{PODS}/master")
    s.fault("node-0")
    s.run(20)
    assert calls(s) == [("replace", "m-0")]


def test_someone_who_uncordons_in_the_middle_is_respected() -> None:
    s = train(WORKERS, {"name": "w", "role": "worker"})
    s.run(30)
    s.store.request(
        "PATCH",
        "/api/v1/nodes/node-0",
        body={"spec": {"unschedulable": None}},
        content_type=MERGE,
        user_agent=PERSON,
    )
    s.run(400)
    assert (evictions(s), calls(s)) == ([], [])
    assert any("somebody uncordoned node-0" in x for x in sentences(s))
