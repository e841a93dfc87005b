"""Recovery is switched off, and a node's own agent, or its Node, is not there to say what was begun
(rulings 15 and 33)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from recovery_testkit.kubefaults import refused
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenery import RECORDS
from tests.stories.scenes import at, boot, calls, controller, handed_over, patch_node, phase, sayings

NVLINK = "type: GpuNvlink"


def says(s: Stage, status: str) -> None:
    """What node-problem-detector writes of node-0."""
    at = f"{s.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"
    reason = "GpuNvlinkBad" if status == "True" else "GpuNvlinkGood"
    times = {"lastHeartbeatTime": at, "lastTransitionTime": at}
    ready = {"type": "Ready", "status": "True", "reason": "Kubelet"}
    nvlink = {"type": "GpuNvlink", "status": status, "reason": reason, **times}
    patch_node(s, "node-0", {"status": {"conditions": [ready, nvlink]}}, "status", "npd")


def treated(remedy: str, selector: str = "") -> Stage:
    """The controller has begun with node-0."""
    s = Stage(policy_file(remedy, match=NVLINK))
    s.nodes(3)
    s.fleet(selector=selector)
    says(s, "False")
    s.run(3)
    says(s, "True")
    s.run(8)
    return s


def switched_off(s: Stage, **options: Any) -> Any:
    s.kill(controller(s))
    off = s.fleet("off", on=False, **options)
    s.run(185, step=1)
    return off.metrics.registry


def proving() -> Stage:
    s = treated("{do: reboot}")
    boot(s, "node-0")
    says(s, "False")
    s.run(5)
    assert (phase(s), calls(s)) == (Phase.PROVING, [("reboot", "m-0")])
    return s


def being_replaced() -> Stage:
    s = treated("{do: replace}")
    s.delete_node("node-0")
    s.run(2)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [("replace", "m-0")])
    return s


@pytest.mark.parametrize("begun", [proving, being_replaced])
def test_the_controller_says_what_it_left_of_a_node_that_looks_well_or_is_gone(begun: Any) -> None:
    s = begun()
    since = len(s.store.history)
    metrics = switched_off(s)
    assert sayings(s, "AbandonedBySwitchOff", since) in (3, 4)
    assert metrics.get_sample_value("node_recovery_abandoned") == 1
    written = {w.path for w in s.store.history[since:] if w.actor == "off" and "/events" not in w.path}
    assert all("/recoveryreports" in path for path in written)


@pytest.mark.parametrize("there", [True, False])
def test_the_controller_says_that_a_person_has_a_node_that_looks_well_or_is_gone(there: bool) -> None:
    s = treated("{do: cordon}")
    assert phase(s) is Phase.HANDED_OVER
    says(s, "False")
    s.run(2)
    if not there:
        s.delete_node("node-0")
    since = len(s.store.history)
    metrics = switched_off(s)
    assert sayings(s, "HandedOver", since) in (3, 4)
    assert metrics.get_sample_value("node_recovery_open_handovers") == 1


def test_a_controller_says_nothing_of_nodes_that_are_not_its_own() -> None:
    s = proving()
    metrics = switched_off(s, selector="pool=a")
    assert metrics.get_sample_value("node_recovery_abandoned") == 0


def test_a_controller_without_the_right_to_list_records_says_that_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    s = proving()
    lists = lambda a: a.method == "GET" and a.path == RECORDS  # noqa: E731
    s.api.fail_next(lists, refused(403, "Forbidden", "rights of before"), times=9)
    with caplog.at_level(logging.WARNING):
        switched_off(s)
    assert caplog.text.count("what was left when recovery was switched off is not known") == 1


@pytest.mark.parametrize(
    ("begun", "event", "gauge"),
    [
        (lambda: at("after the call"), "AbandonedBySwitchOff", "node_recovery_abandoned"),
        (handed_over, "HandedOver", "node_recovery_open_handovers"),
    ],
)
def test_a_concluder_that_is_off_says_it_of_nodes_that_are_gone(begun: Any, event: str, gauge: str) -> None:
    s = begun()
    for actor in s.actors.values():
        s.kill(actor)
    off = s._start("concluder", "", False, "concluder", False)
    s.run(125, step=1)
    assert off.metrics.registry.get_sample_value(gauge) == 0  # its own agent is to say it
    s.delete_node("node-0")
    since = len(s.store.history)
    s.run(185, step=1)
    assert sayings(s, event, since) in (3, 4)
    assert off.metrics.registry.get_sample_value(gauge) == 1
    assert {
        w.path for w in s.store.history[since:] if w.actor == "concluder" and "/events" not in w.path
    } == set()
