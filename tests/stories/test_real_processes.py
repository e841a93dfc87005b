"""Real processes of the shipped program: kill -9, and twenty faults in one second.

What is asserted is read from the Kubernetes API's history and from the proxy in front of moto: nothing here
shares code with the agent.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real import DMA_ERROR, HBM_ERROR, RealStage

POLICY = """
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits:
  budget: {budget}
  brake: {brake}
  brakePer: {{guarded: 30%}}
  budgetPer: {{}}
  cooldown: 0s
  perGroup: {{max: 100, within: 1h}}
rules:
  - name: neuron
    match: {{type: NeuronHealth, reason: "NeuronHasError_*_ERROR"}}
    remedy: [{{do: replace, within: 30m}}]
    probation: 2s
"""


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RealStage]:
    with RealStage(tmp_path, POLICY.format(**request.param)) as found:
        yield found


def gate_writes(stage: RealStage) -> list[dict[str, Any]]:
    return [
        w.object for w in stage.store.history if w.path.startswith("/apis/") and "recoverygates" in w.path
    ]


def replaced_by_its_group(stage: RealStage, node: str, instance: str) -> str:
    """What the Auto Scaling group and the cloud do: kill, terminate, launch, join. Returns the new node."""
    stage.kill(node)
    new = stage.aws.replace(instance, stage.group_name)
    stage.store.request("DELETE", f"/api/v1/nodes/{node}")
    return stage.join(new[0])


@pytest.mark.slow(16)
@pytest.mark.parametrize("stage", [{"budget": 2, "brake": "100%"}], indirect=True)
def test_twenty_sidecars_that_fault_in_the_same_second_cross_neither_budget_nor_brake(
    stage: RealStage,
) -> None:
    # A group each, since one that is short of a machine starts no second replacement. Half of the nodes are
    # guarded by a brake of their own, of which all ten are sick: none of them may start.
    free = [node for _ in range(10) for node in stage.group(1)]
    guarded = list(stage.group(10, guarded="yes"))
    for node in (*free, *guarded):
        stage.fork(node)
    stage.ready()
    for node in (*guarded, *free):
        stage.pages.bodies[node] = DMA_ERROR
    stage.until("every fault has a record", lambda: len(stage.records()) == 20, 60)
    stage.until("two are asked for", lambda: stage.proxy.count("SetInstanceHealth") == 2, 60)
    braked = "the brake is on: 10 of 10 nodes with guarded=yes are sick or unknown"
    time.sleep(2)
    assert stage.proxy.count("SetInstanceHealth") == 2
    held = [[x["node"] for x in gate["status"]["slots"]] for gate in gate_writes(stage) if gate.get("status")]
    assert max(len(nodes) for nodes in held) == 2
    # While the faults are still coming in, the first guarded ones may see three sick or fewer: 30% allows it.
    early = {node for nodes in held for node in nodes if node in guarded}
    assert early == set() or len(early) <= 3
    marked = {
        w.object["metadata"]["name"] for w in stage.store.history if w.verb == "patch" and "/nodes/" in w.path
    }
    assert len(marked) == 2
    assert early or any(braked in stage.log(node) or "budget" in stage.log(node) for node in guarded)


@pytest.mark.slow(16)
@pytest.mark.parametrize("stage", [{"budget": 1, "brake": "100%"}], indirect=True)
def test_a_machine_that_dies_with_its_agent_is_proved_by_a_peer_and_the_next_fault_has_its_turn(
    stage: RealStage,
) -> None:
    nodes = stage.group(3)
    first, second, _ = list(nodes)
    for node in nodes:
        stage.fork(node)
    stage.ready()
    stage.pages.bodies[first] = DMA_ERROR
    stage.until("the first is asked for", lambda: stage.proxy.count("SetInstanceHealth") == 1)
    stage.pages.bodies[second] = HBM_ERROR
    stage.until(
        "the second waits and says so", lambda: "the budget of the fleet is used up" in stage.log(second)
    )
    stage.until("the answer is on record", lambda: "was accepted by aws" in stage.log(first))
    replaced_by_its_group(stage, first, nodes[first])
    stage.until("the first is proved", lambda: stage.phase(first) == "recovered", 60)
    stage.until("the second is asked for", lambda: stage.proxy.count("SetInstanceHealth") == 2)
    slots = [len(gate["status"]["slots"]) for gate in gate_writes(stage) if gate.get("status")]
    assert max(slots) == 1


@pytest.mark.slow(10)
@pytest.mark.parametrize("stage", [{"budget": 1, "brake": "100%"}], indirect=True)
def test_an_agent_killed_at_random_moments_asks_for_its_machine_once(stage: RealStage) -> None:
    seed = random.SystemRandom().randrange(10_000)
    chance = random.Random(seed)  # noqa: S311
    print(f"seed {seed}")
    nodes = stage.group(2)
    node = next(iter(nodes))
    stage.fork(node)
    stage.ready()
    stage.pages.bodies[node] = DMA_ERROR
    for _ in range(6):
        time.sleep(chance.uniform(0.3, 1.6))
        stage.kill(node)
        stage.fork(node)
    stage.until("the machine is asked for", lambda: stage.aws.health(nodes[node]) == "Unhealthy")
    stage.until("it is followed", lambda: "marked unhealthy in group" in stage.log(node), 60)
    assert stage.proxy.count("SetInstanceHealth") == 1


@pytest.mark.slow(3)
@pytest.mark.parametrize("stage", [{"budget": 1, "brake": "100%"}], indirect=True)
def test_a_lost_answer_of_set_instance_health_is_observed_and_never_repeated(stage: RealStage) -> None:
    nodes = stage.group(2)
    node = next(iter(nodes))
    stage.fork(node)
    stage.ready()
    stage.proxy.lose_answer("SetInstanceHealth")
    stage.pages.bodies[node] = DMA_ERROR
    stage.until("the answer is lost", lambda: "the answer was lost, observing" in stage.log(node))
    stage.until("the effect is seen", lambda: "replace is under way" in stage.log(node))
    assert stage.proxy.count("SetInstanceHealth") == 1
    intent = stage.records()[node]["intent"]
    assert (intent["state"], intent["attempt"]) == ("submitted", 1)


@pytest.mark.slow(4)
@pytest.mark.parametrize("stage", [{"budget": 1, "brake": "100%"}], indirect=True)
def test_switched_off_the_program_tells_what_it_would_do_and_changes_nothing(stage: RealStage) -> None:
    nodes = stage.group(2)
    node = next(iter(nodes))
    before = len([w for w in stage.store.history if "/events" not in w.path])
    stage.sidecar(node, ENABLE_RECOVERY="false")
    stage.ready()
    stage.pages.bodies[node] = DMA_ERROR
    stage.until(
        "it says so", lambda: f"would have replaced {node}: NeuronHasError_DMA_ERROR" in stage.log(node)
    )
    stage.until("the fault is a metric", lambda: stage.proxy.count("PutMetricData") >= 1)
    assert len([w for w in stage.store.history if "/events" not in w.path]) == before
    assert stage.proxy.count("SetInstanceHealth") == 0
    assert stage.stop(node) == 0
