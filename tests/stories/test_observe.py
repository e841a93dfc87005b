"""Observe mode, which is the default: what would have been done, and what is wrong."""

from __future__ import annotations

from itertools import pairwise

from recovery_testkit.stage import Actor, Stage, npd_page

from recovery.decide.sightings import Would
from recovery.store.sightings import decode
from tests.builders.faults import DMA, HANG
from tests.builders.policies import policy_file
from tests.stories.scenery import REPORTS
from tests.stories.scenes import (
    NO_MARKS,
    calls,
    cast,
    counted_page,
    exclude,
    marked,
    messages,
    new_process,
    plugin_page,
    sayings,
    value,
)

WEEK = 7 * 24 * 3600


def observed(rules: bytes | None = None, count: int = 2) -> tuple[Stage, Actor]:
    s = cast(rules or policy_file(), count, on=False)
    return s, s.actors["agent of node-0"]


def test_off_for_a_week_leaves_one_event_and_one_count_of_what_would_have_been_done() -> None:
    s, agent = observed()
    s.fault("node-0")
    s.run(WEEK, step=1800)
    (sentence,) = messages(s, "WouldRecover")
    assert sentence.startswith(f"would drain node-0; then replace: {DMA} (rule neuron-hardware)")
    assert "if budget and brake allow" in sentence
    assert value(agent, "node_recovery_would_act_total", rule="neuron-hardware", action="drain") == 1
    assert (s.record("node-0"), calls(s), marked(s)) == (None, [], NO_MARKS)


def test_two_faults_would_have_been_two_recoveries() -> None:
    s, agent = observed()
    for reason in ("DMA_ERROR", "HBM_UNCORRECTABLE_ERROR"):
        s.fault("node-0", reason)
        s.run(60, step=1)
        s.pages["node-0"].body = counted_page()
        s.run(60, step=1)
    assert value(agent, "node_recovery_would_act_total", rule="neuron-hardware", action="drain") >= 1
    assert messages(s, "WouldRecover")[0].startswith(f"would drain node-0; then replace: {DMA}")


def test_a_fault_that_lasts_is_a_data_point_each_minute() -> None:
    s, _ = observed()
    s.fault("node-0")
    s.run(601, step=1)
    points = [m.at for m in s.told.metrics if m.name == DMA]
    gaps = [(b - a).total_seconds() for a, b in pairwise(points)]
    assert len(points) >= 10
    assert all(60 <= gap <= 62 for gap in gaps), gaps


def test_a_fault_that_is_over_is_no_data_point_any_more() -> None:
    s, agent = observed()
    s.fault("node-0")
    s.run(10)
    assert value(agent, "node_recovery_faults", type="NeuronHealth", reason=DMA) == 1
    s.pages["node-0"].body = counted_page()
    s.store.request(
        "PATCH",
        "/api/v1/nodes/node-0/status",
        body={"status": {"nodeInfo": {"bootID": "m-0-boot-2"}}},
        content_type="application/merge-patch+json",
    )
    s.run(130)
    before = len(s.told.metrics)
    s.run(130)
    assert len(s.told.metrics) == before
    assert value(agent, "node_recovery_faults", type="NeuronHealth", reason=DMA) == 0


def test_what_would_be_left_alone_is_not_counted_as_what_would_be_done() -> None:
    s, agent = observed()
    exclude(s)
    s.fault("node-0")
    s.run(10)
    assert messages(s, "WouldRecover") == [
        f"recovery is off (ENABLE_RECOVERY=false): would leave {DMA} alone: "
        "the node is excluded by its label noderecovery.dev/exclude=true"
    ]
    assert value(agent, "node_recovery_would_act_total", rule="neuron-hardware", action="drain") == 0


def test_what_is_only_told_is_told_in_observe_mode_too() -> None:
    s, agent = observed()
    s.fault("node-0", "HANG_ON_COLLECTIVES")
    s.run(70, step=1)
    assert any(HANG in sentence for _, sentence in s.events("node-0"))
    assert [m.name for m in s.told.metrics] == [HANG, HANG]
    assert value(agent, "node_recovery_would_act_total", rule="no rule", action="notify") == 0


def test_a_tolerated_fault_would_be_nothing_before_its_time() -> None:
    s, _ = observed(policy_file(after="5m"))
    s.fault("node-0")
    s.run(290, step=1)
    assert messages(s, "WouldRecover") == []
    s.run(40, step=1)
    assert len(messages(s, "WouldRecover")) == 1


PATIENT = b"""
  - {name: patient, match: {type: GpuNvlink}, after: 12h, remedy: [{do: drain}, {do: reboot}]}"""


def test_a_fault_that_is_tolerated_hides_none_that_would_be_treated_now() -> None:
    """The first rule of the policy is patient for half a day. Switched on, the second one starts at once."""
    s, agent = observed(policy_file().replace(b"rules:", b"rules:" + PATIENT))
    for page in s.pages.values():
        page.body = npd_page() + plugin_page(False, 0)
    s.run(5)
    s.pages["node-0"].body = npd_page("DMA_ERROR") + plugin_page(True, 1)
    s.run(10)
    would = f"would drain node-0; then replace: {DMA} (rule neuron-hardware), if budget and brake allow"
    assert [m.startswith(would) for m in messages(s, "WouldRecover")] == [True]
    assert value(agent, "node_recovery_would_act_total", rule="neuron-hardware", action="drain") == 1
    (seen,) = decode(s.store.request("GET", f"{REPORTS}/fleet").body).sightings
    assert (seen.reason, seen.would) == (DMA, Would.RECOVER)
    new_process(s, "node-0")
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


def test_a_hand_over_from_before_is_said_on_in_observe_mode() -> None:
    s = cast(count=2)
    s.provider.groups["workers"].in_service.remove("m-0")
    s.fault("node-0")
    s.run(5)
    assert sayings(s, "HandedOver") >= 1
    for actor in s.actors.values():
        s.kill(actor)
    since = len(s.store.history)
    off = s.agent("node-0", on=False, name="off")
    s.run(130, step=1)
    assert sayings(s, "HandedOver", since) >= 2
    assert value(off, "node_recovery_open_handovers") == 1


def test_a_healthy_node_asks_the_api_server_for_nothing_but_the_gate_and_its_own_node() -> None:
    s = cast(count=1)
    before = dict(s.store.requests)
    s.run(600, step=1)
    asked = {key: n - before.get(key, 0) for key, n in s.store.requests.items() if n > before.get(key, 0)}
    assert set(asked) == {("get", "recoverygates"), ("get", "nodes")}
    assert asked["get", "recoverygates"] <= 14
    assert asked["get", "nodes"] <= 20
