"""AKS auto-repair marks no node: it tells in Events that it is at work, and this program stands back."""

from __future__ import annotations

from datetime import timedelta

from recovery_testkit.kubefaults import refused, server_error
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenes import (
    NO_MARKS,
    at,
    calls,
    cast,
    events_of,
    marked,
    messages,
    phase,
    remove_pod,
    the_record,
)


def on_azure(s: Stage) -> Stage:
    """Machines that AKS may repair."""
    s.provider.name = "azure"
    return s


def repairer_tells(s: Stage, reason: str, node: str = "node-0", name: str = "") -> None:
    at = s.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    s.store.load(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name or reason.lower(), "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": node},
            "source": {"component": "aks-auto-repair"},
            "reason": reason,
            "message": "told by auto-repair",
            "type": "Normal",
            "lastTimestamp": at,
        }
    )


def test_nothing_starts_on_a_node_that_auto_repair_works_on_and_it_is_said_whose_turn_it_is() -> None:
    s = on_azure(cast(policy_file()))
    repairer_tells(s, "NodeRebootStart")
    s.fault("node-0")
    s.run(60)
    assert (phase(s), calls(s), marked(s)) == (Phase.WAITING, [], NO_MARKS)
    (said,) = {sentence for sentence in messages(s, "Held") if "AKS auto-repair" in sentence}
    assert "AKS auto-repair holds node-0 (its Event NodeRebootStart at " in said


def test_a_forged_repair_of_a_node_that_has_long_been_ready_holds_nothing() -> None:
    s = on_azure(cast(policy_file()))
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    long_ago = (s.clock.now() - timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    node = dict(s.store.request("GET", "/api/v1/nodes/node-0").body)
    node["status"]["conditions"] = [{**ready, "lastTransitionTime": long_ago}]
    assert s.store.request("PUT", "/api/v1/nodes/node-0/status", body=node).ok
    repairer_tells(s, "NodeRebootStart")
    s.fault("node-0")
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


def test_another_nodes_repair_is_nothing_to_this_one() -> None:
    s = on_azure(cast(policy_file()))
    repairer_tells(s, "NodeRebootStart", "node-1")
    s.fault("node-0")
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


def test_a_while_after_its_last_event_the_node_is_ours_again() -> None:
    s = on_azure(cast(policy_file()))
    repairer_tells(s, "NodeRebootEnd")
    s.fault("node-0")
    s.run(14 * 60)
    assert calls(s) == []
    s.run(3 * 60)
    assert calls(s) == [("replace", "m-0")]


def test_a_repair_that_begins_while_we_drain_stops_the_call() -> None:
    s = on_azure(at("draining"))
    s.run(2)
    repairer_tells(s, "NodeRedeployStart")
    remove_pod(s)  # within the seconds for which the last look at the Events is taken as read
    s.run(10)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [])
    assert "started" in events_of(the_record(s))
    s.run(61 * 60)
    assert calls(s) == [("replace", "m-0")]


def test_where_its_events_may_not_be_read_nothing_is_assumed() -> None:
    s = on_azure(cast(policy_file()))
    s.api.fail_next(
        lambda asked: "/events" in asked.path and asked.method == "GET", refused(403, "Forbidden"), times=99
    )
    s.fault("node-0")
    s.run(10)
    assert (phase(s), calls(s)) == (Phase.WAITING, [])
    assert any("whether AKS auto-repair is at work here cannot be read" in x for x in messages(s, "Held"))


def test_elsewhere_than_on_azure_nobody_asks() -> None:
    s = cast(policy_file())
    s.api.fail_next(lambda asked: "/events" in asked.path and asked.method == "GET", server_error())
    s.fault("node-0")
    s.run(10)
    assert (calls(s), s.api.pending) == ([("replace", "m-0")], 1)


def test_a_healthy_fleet_asks_for_no_events() -> None:
    s = on_azure(cast(policy_file()))
    s.api.fail_next(lambda asked: "/events" in asked.path, server_error())
    s.run(120)
    assert s.api.pending == 1, "nobody asked for Events"
