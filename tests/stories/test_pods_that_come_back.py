"""Pods that the cordon does not keep off a node that is drained."""

from __future__ import annotations

from recovery_testkit.kubefaults import Asked
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenery import sentences
from tests.stories.scenes import calls, cast, phase, stubborn_pod


def operator(s: Stage, name: str, tolerations: list[dict[str, str]]) -> None:
    """A pod of a Deployment, made now."""
    controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u", "controller": True}
    made = s.clock.true_time().strftime("%Y-%m-%dT%H:%M:%SZ")
    s.store.load(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": {"app": "operator"},
                "creationTimestamp": made,
                "ownerReferences": [controller],
            },
            "spec": {
                "nodeName": "node-0",
                "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "c"}],
                "tolerations": tolerations,
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )


def comes_back(s: Stage, tolerations: list[dict[str, str]]) -> list[str]:
    """From now on, what is evicted is made anew on the same node a second later, as the scheduler does with a
    pod that tolerates everything: an empty node has most room. Returns the names."""
    made: list[str] = []
    due: list[float] = []

    def again(asked: Asked) -> bool:
        if asked.path.endswith("/eviction") and not asked.query:
            due.append(s.clock.monotonic() + 1)
        if due and s.clock.monotonic() >= due[0]:
            due.clear()
            made.append(f"operator-{len(made) + 1}")
            operator(s, made[-1], tolerations)
        return False

    s.api.fail_next(again, lambda asked, go: go(), times=10**6)
    return made


EVERYTHING = [{"operator": "Exists"}]


def test_a_pod_that_tolerates_everything_and_comes_back_is_named_and_the_recovery_goes_on() -> None:
    """It was evicted each second, for as long as the drain lasted. Then a person had the node."""
    s = cast(policy_file("{do: drain, within: 5m}, {do: replace, within: 30m}"))
    operator(s, "operator-0", EVERYTHING)
    s.run(3)
    made = comes_back(s, EVERYTHING)
    s.fault("node-0")
    s.run(60)
    assert (calls(s), phase(s)) == ([("replace", "m-0")], Phase.RECOVERING)
    assert len(made) == 1, "it is evicted once"
    (drained,) = [x for x in sentences(s) if x.startswith("drained in ")]
    stays = f"default/{made[-1]} stays: it tolerates our cordon and taint, and came after the drain began"
    assert drained.endswith(f"; {stays}; next: replace")


def test_one_that_may_never_be_evicted_keeps_the_node_though_it_came_after_the_drain_began() -> None:
    never = b"drain: {pods: [{match: {labels: {app: operator}}, mode: never}]}\n"
    s = cast(policy_file("{do: drain, within: 5m, then: force}, {do: replace, within: 30m}") + never)
    stubborn_pod(s)  # the drain goes on
    s.fault("node-0")
    s.run(30)
    operator(s, "operator-0", EVERYTHING)
    s.run(10)
    assert (calls(s), phase(s)) == ([], Phase.HANDED_OVER)
