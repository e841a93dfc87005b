"""One object with an odd field, which kube-apiserver takes, must not blind the agents to all others.

Tried on kube-apiserver 1.36: a condition's time of ``0001-01-01T00:00:00+05:00`` is stored, and given back as
``0000-12-31T19:00:00Z``; ``9999-12-31T23:59:59-05:00`` as ``10000-01-01T04:59:59Z``. A pod may have a grace
period of 2^63-1 seconds.
"""

from __future__ import annotations

import pytest
from recovery_testkit.stage import QUICK, Stage

from tests.builders.policies import policy_file
from tests.stories.scenes import MERGE, calls, cast, controller, patch_node

ODD_TIMES = (
    "0000-12-31T19:00:00Z",
    "10000-01-01T04:59:59Z",
    "-0001-12-31T19:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
)
READY = {"type": "Ready", "status": "True", "reason": "Kubelet"}
TREATED = [("replace", "m-0")]


def condition(s: Stage, node: str, **fields: str) -> None:
    found = {"type": "Odd", "status": "False", "reason": "x", **fields}
    patch_node(s, node, {"status": {"conditions": [READY, found]}}, "status", "kubelet")


@pytest.mark.parametrize("time", ODD_TIMES)
def test_a_time_that_python_cannot_hold_on_one_node_keeps_no_other_from_being_recovered(time: str) -> None:
    s = cast()
    condition(s, "node-3", lastHeartbeatTime=time)
    s.fault("node-0")
    s.run(60)
    assert calls(s) == TREATED


@pytest.mark.parametrize("time", ODD_TIMES)
def test_a_time_that_python_cannot_hold_on_one_node_does_not_blind_the_controller(time: str) -> None:
    s = Stage(QUICK)
    s.nodes(4)
    condition(s, "node-3", lastHeartbeatTime=time)
    s.fleet()
    s.run(3)
    assert controller(s).replica.nodes.in_sync
    condition(s, "node-0", type="NeuronHealth", status="True", reason="NeuronHasError_DMA_ERROR")
    s.run(60)
    assert calls(s) == TREATED


@pytest.mark.parametrize("time", ODD_TIMES)
def test_such_a_time_that_comes_while_the_controller_watches_does_not_blind_it(time: str) -> None:
    s = Stage(QUICK)
    s.nodes(4)
    s.fleet()
    s.run(3)
    condition(s, "node-3", lastHeartbeatTime=time)
    s.run(3)
    condition(s, "node-0", type="NeuronHealth", status="True", reason="NeuronHasError_DMA_ERROR")
    s.run(60)
    assert calls(s) == TREATED


@pytest.mark.parametrize("time", ODD_TIMES)
@pytest.mark.parametrize("field", ["lastHeartbeatTime", "lastTransitionTime"])
def test_a_fault_at_such_a_time_is_told_and_no_bug(field: str, time: str) -> None:
    s = Stage(policy_file(match="type: NeuronHealth", after="1m"))
    s.nodes(4)
    s.fleet()
    s.run(3)
    sick = {"type": "NeuronHealth", "status": "True", "reason": "NeuronHasError_DMA_ERROR"}
    condition(s, "node-0", **sick, **{field: time})
    s.run(20 * 60, step=2)
    agents = [x for c in controller(s).replica.controllers for x in c._agents.values()]
    assert agents
    assert not any("a bug" in x.last.reason for x in agents)


def test_a_pod_with_a_grace_period_of_a_lifetime_is_drained_like_any_other() -> None:
    s = cast()
    s.add_pod("train", "node-0")
    grace = {"spec": {"terminationGracePeriodSeconds": 2**63 - 1}}
    path = "/api/v1/namespaces/default/pods/train"
    assert s.store.request("PATCH", path, body=grace, content_type=MERGE).status == 200
    s.fault("node-0")
    s.run(20)
    agent = s.actors["agent of node-0"]
    assert "a bug in this program, see the log" not in agent.sentences
    assert calls(s) == TREATED


def test_a_node_with_the_longest_name_has_events_like_any_other() -> None:
    name = ".".join(("a" * 63, "b" * 63, "c" * 63, "d" * 61))
    s = Stage(QUICK)
    for node, machine in ((name, "m-0"), ("node-1", "m-1"), ("node-2", "m-2")):
        s.add_node(node, machine)
    s.agent(name)
    s.run(3)
    s.fault(name)
    s.run(30)
    assert calls(s) == TREATED
    assert "Replacing" in [reason for reason, _ in s.events(name)]


@pytest.mark.parametrize("time", ODD_TIMES)
def test_an_event_at_a_time_that_python_cannot_hold_keeps_no_node_from_being_recovered(time: str) -> None:
    s = cast(policy_file())
    s.provider.name = "azure"  # whose own repairer tells in Events that it is at work
    s.store.load(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "odd", "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": "node-0"},
            "source": {"component": "aks-auto-repair"},
            "reason": "SomethingElse",
            "message": "x",
            "type": "Normal",
            "lastTimestamp": time,
        }
    )
    s.fault("node-0")
    s.run(20 * 60, step=2)  # a repairer that says nothing more for a quarter of an hour holds nothing
    assert calls(s) == TREATED
