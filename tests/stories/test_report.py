"""The report: what was seen while recovery was off, kept in the cluster for those who ask a week later."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from recovery_testkit.kubefaults import refused
from recovery_testkit.stage import Stage

from recovery.decide.sightings import Report, Sighting, Would
from recovery.model import Says, Statement, Step
from recovery.store.sightings import Reports, decode, encode, fitted
from tests.builders.faults import DMA, HANG
from tests.builders.policies import policy_file
from tests.builders.sightings import sighting
from tests.stories.console import Terminal
from tests.stories.scenery import REPORTS
from tests.stories.scenes import (
    MERGE,
    PERSON,
    boot,
    cast,
    controller,
    counted_page,
    exclude,
    messages,
    new_process,
    patch_node,
    plugin_page,
    remove_pod,
)
from tests.stories.test_conditions import NEURON, policy, writes

FLEET = f"{REPORTS}/fleet"
PLUGIN = policy_file(match="type: GpuNvlink")
HOUR, DAY = 3600, 24 * 3600


def report(s: Stage) -> Report:
    return decode(s.store.request("GET", FLEET).body)


def only(s: Stage) -> Sighting:
    (found,) = report(s).sightings
    return found


def puts(s: Stage) -> int:
    return sum(w.path == FLEET for w in s.store.history)


def off(rules: bytes | None = None, count: int = 2, **options: Any) -> Stage:
    return cast(rules or policy_file(), count, on=False, **options)


# ---------------------------------------------------------------- what it says


def test_that_somebody_looks_is_on_the_report_before_any_fault_is() -> None:
    s = off()
    assert report(s).sightings == ()
    assert s.clock.true_time().timestamp() - report(s).since.timestamp() < 5


def test_a_fault_is_on_it_with_what_would_have_been_done_and_when() -> None:
    s = off(policy_file(after="5m"))
    s.fault("node-0")
    s.run(10)
    assert (only(s).would, only(s).due) == (Would.TOLERATE, None)
    s.run(300, step=1)
    x = only(s)
    assert (x.node, x.machine, x.reason, x.rule) == ("node-0", "m-0", DMA, "neuron-hardware")
    assert (x.would, x.steps) == (Would.RECOVER, (Step.DRAIN, Step.REPLACE))
    assert x.due is not None
    assert 299 <= (x.due - x.since).total_seconds() <= 302


def test_what_its_source_takes_back_has_become_well_by_itself() -> None:
    s = off(PLUGIN, plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(10)
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(60)
    assert only(s).how == "its source took it back"
    assert only(s).ended is not None


def test_what_comes_and_goes_within_the_hour_is_one_line_that_counts() -> None:
    s = off(PLUGIN, plugin=True)
    for _ in range(5):
        s.pages["node-0"].body = plugin_page(True, 1)
        s.run(60, step=1)
        s.pages["node-0"].body = plugin_page(False, 1)
        s.run(600, step=5)
    assert only(s).times == 5
    s.run(HOUR + 60, step=60)
    s.pages["node-0"].body = plugin_page(True, 2)
    s.run(60, step=1)
    assert [x.times for x in report(s).sightings] == [5, 1]


def test_a_fault_that_nothing_more_is_known_of_has_not_ended() -> None:
    s = off()
    s.fault("node-0")
    s.run(10)
    s.pages["node-0"].error = OSError("no answer")
    s.run(300, step=1)
    dma = next(x for x in report(s).sightings if x.reason == DMA)
    assert dma.ended is None


def test_a_boot_ends_it_and_says_so() -> None:
    s = off()
    s.fault("node-0")
    s.run(10)
    s.pages["node-0"].body = counted_page()
    boot(s, "node-0")
    s.run(120)
    assert only(s).how == "the machine has booted"


def test_what_would_hold_it_is_said() -> None:
    s = off()
    exclude(s)
    s.fault("node-0")
    s.run(10)
    assert only(s).would is Would.LEAVE_ALONE
    assert "excluded by its label" in only(s).why


def test_a_window_that_is_closed_is_what_it_would_have_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    s = off(policy_file(limits="cooldown: 0s, windows: [{from: 06:00, to: 08:00}]"))
    s.fault("node-0")
    s.run(10)
    shut = "outside its windows: next opens Sat 2026-11-21 06:00 UTC"
    assert (only(s).would, only(s).due, only(s).why) == (Would.RECOVER, None, shut)
    said = Terminal(s, monkeypatch).run("report", "--since", "1h").out
    assert "1 would have waited first." in said
    assert f"would drain node-0; then replace, but would wait: {shut}; it is there now" in said
    s.run(4 * HOUR, step=60)
    assert (only(s).due is not None, only(s).why) == (True, "")


def test_a_pod_that_blocks_is_what_it_would_have_waited_for() -> None:
    s = off(
        policy_file(limits="cooldown: 0s, blockers: [{pods: {namespaces: default, labels: {app: train}}}]")
    )
    s.add_pod("train-1", "node-0")
    s.fault("node-0")
    s.run(10)
    assert (only(s).due, only(s).why) == (None, "blocked: pod default/train-1 runs on it")
    (said,) = messages(s, "WouldRecover")
    assert "but would wait: blocked: pod default/train-1 runs on it" in said
    remove_pod(s, "train-1")
    s.run(120, step=5)
    assert (only(s).due is not None, only(s).why) == (True, "")


@pytest.mark.parametrize(
    ("says", "due", "why"),
    [
        (Says.AGREES, True, ""),
        (Says.DISAGREES, False, "npd and neuron-sysfs disagree: all counters are 0"),
        (Says.UNREADABLE, False, "neuron-sysfs cannot confirm it: all counters are 0"),
    ],
)
def test_the_second_witness_is_asked_as_it_would_be(says: Says, due: bool, why: str) -> None:
    s = off(policy_file(witness="source: neuron-sysfs"))
    s.witnesses["neuron-sysfs"] = lambda reasons: Statement(says, "all counters are 0")
    s.fault("node-0", "HBM_UNCORRECTABLE_ERROR")
    s.run(10)
    assert (only(s).would, only(s).due is not None, only(s).why) == (Would.RECOVER, due, why)


def test_what_no_rule_speaks_of_is_on_it_too() -> None:
    s = off()
    s.fault("node-0", "HANG_ON_COLLECTIVES")
    s.run(10)
    assert (only(s).reason, only(s).would, only(s).steps) == (HANG, Would.REPORT, ())


def test_a_rule_that_only_a_label_keeps_from_matching_is_named() -> None:
    rules = policy_file(match="type: NeuronHealth, nodeLabels: {pool: trn*}")
    s = off(rules)
    s.fault("node-0")
    s.run(10)
    label = "on a node with pool=trn* (it has none)"
    assert only(s).why == f"no rule of the policy speaks of it; rule neuron-hardware would, {label}"
    patch_node(s, "node-0", {"metadata": {"labels": {"pool": "trn2"}}})
    s.run(90)
    assert only(s).would is Would.RECOVER


# ---------------------------------------------------------------- kept, durably and small


def test_a_fault_that_lasts_a_week_is_written_down_once_an_hour() -> None:
    s = off()
    before = puts(s)
    s.fault("node-0")
    s.run(7 * DAY, step=600)
    x = only(s)
    assert (x.times, x.ended) == (1, None)
    assert s.clock.true_time().timestamp() - x.seen.timestamp() <= HOUR + 600
    assert puts(s) - before <= 7 * 24 + 2


def test_healthy_nodes_write_nothing() -> None:
    s = off()
    before = puts(s)
    s.run(DAY, step=60)
    assert puts(s) == before


def test_a_process_that_starts_anew_goes_on_with_the_same_line() -> None:
    s = off()
    s.fault("node-0")
    s.run(10)
    since = only(s).since
    new_process(s, "node-0", on=False)
    s.run(30)
    assert (only(s).since, only(s).times, only(s).ended) == (since, 1, None)


def test_what_ended_while_no_agent_ran_is_ended_by_the_next_one() -> None:
    s = off(PLUGIN, plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(10)
    s.pages["node-0"].body = plugin_page(False, 1)
    new_process(s, "node-0", on=False)
    s.run(60)
    assert only(s).ended is not None


def test_agents_of_two_nodes_keep_each_others_lines() -> None:
    s = off()
    for node in ("node-0", "node-1"):
        s.fault(node)
    s.run(30)
    assert {x.node for x in report(s).sightings} == {"node-0", "node-1"}


def test_a_report_that_somebody_deletes_is_made_anew() -> None:
    s = off()
    s.store.request("DELETE", FLEET, user_agent=PERSON)
    s.fault("node-0")
    s.run(30)
    assert only(s).reason == DMA


def test_a_write_that_is_refused_stops_no_observation_and_is_made_up_for() -> None:
    s = off()
    s.api.fail_next(lambda a: a.path == FLEET and a.method == "PUT", refused(403, "Forbidden"), times=1000)
    s.fault("node-0")
    s.run(120, step=1)
    assert messages(s, "WouldRecover")
    assert report(s).sightings == ()
    s.api.heal()
    s.run(700, step=1)
    assert only(s).reason == DMA


def test_a_bug_in_the_report_stops_no_observation_and_what_it_kept_from_it_is_made_up_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    s = off()

    def broken(*_: object) -> None:
        raise KeyError("nobody expected this")

    with monkeypatch.context() as patched:
        patched.setattr(Reports, "write", broken)
        s.fault("node-0")
        s.run(120, step=1)
    assert messages(s, "WouldRecover")
    assert report(s).sightings == ()
    told = [r for r in caplog.records if "the RecoveryReport: a bug" in r.getMessage()]
    assert 2 <= len(told) < 20, "ever more seldom"
    assert all(r.exc_info for r in told)
    s.run(700, step=1)
    assert only(s).reason == DMA


def test_a_report_of_a_later_version_is_not_touched_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    s = off()
    later = {"status": {"version": 2}}
    s.store.request("PATCH", FLEET, body=later, content_type=MERGE, user_agent=PERSON)
    s.fault("node-0")
    before = puts(s)
    s.run(300, step=1)
    assert puts(s) == before
    (said,) = [r.getMessage() for r in caplog.records if "RecoveryReport" in r.getMessage()]
    assert said.endswith("kubectl delete recoveryreport fleet begins a new one")
    s.store.request("DELETE", FLEET, user_agent=PERSON)
    s.run(700, step=1)
    assert only(s).reason == DMA


def test_how_a_fault_ended_is_not_forgotten_while_a_write_is_refused() -> None:
    s = off()
    s.fault("node-0")
    s.run(10)
    s.api.fail_next(lambda a: a.path == FLEET and a.method == "PUT", refused(403, "Forbidden"), times=1000)
    s.pages["node-0"].body = counted_page()
    boot(s, "node-0")
    s.run(130)
    s.api.heal()
    s.run(700, step=1)
    assert only(s).how == "the machine has booted"


def test_a_report_that_is_full_is_read_and_not_written() -> None:
    s = off()
    there = report(s)
    others = tuple(sighting(node=f"other-{i}", why="w" * 200) for i in range(400))
    full = fitted(replace(there, sightings=others), s.clock.true_time())
    made = encode(full, s.store.request("GET", FLEET).body)
    assert s.store.request("PUT", FLEET, body=made, user_agent=PERSON).ok
    before = s.store.requests["update", "recoveryreports"]
    s.run(DAY, step=60)
    s.fault("node-0")
    s.run(600, step=1)
    assert s.store.requests["update", "recoveryreports"] == before
    assert report(s).full_since == full.full_since


def test_switched_on_what_was_open_ends_and_nothing_more_is_written() -> None:
    s = off()
    s.fault("node-0")
    s.run(10)
    new_process(s, "node-0")
    s.run(30)
    assert only(s).how == "recovery was switched on"
    before = puts(s)
    s.run(600, step=5)
    assert puts(s) == before


def test_with_recovery_on_there_is_no_report() -> None:
    s = cast(policy_file(), 2)
    s.fault("node-0")
    s.run(60)
    assert s.store.request("GET", FLEET).status == 404


# ---------------------------------------------------------------- one controller


def test_two_replicas_that_observe_write_one_line() -> None:
    s = Stage(policy())
    s.nodes(3)
    for name in ("controller-0", "controller-1"):
        s.fleet(name, on=False)
    s.run(5)
    writes(s, NEURON)
    s.run(60)
    assert only(s).node == "node-0"
    before = puts(s)
    s.run(300)
    assert puts(s) == before


def test_a_controller_that_starts_ends_what_is_over_meanwhile() -> None:
    s = Stage(policy())
    s.nodes(3)
    s.fleet(on=False)
    s.run(5)
    writes(s, NEURON)
    s.run(30)
    s.kill(s.actors["controller"])
    s.delete_node("node-0")
    s.fleet("controller-1", on=False)
    s.run(60)
    assert only(s).how == "its Node is gone"


def test_what_is_remembered_of_a_node_that_is_gone_is_not_said_to_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller keeps its agent for some minutes, and a sidecar may outlive its Node."""
    s = Stage(policy())
    s.nodes(3)
    s.fleet(on=False)
    s.run(5)
    writes(s, NEURON)
    s.run(60)
    s.delete_node("node-0")
    s.run(300)
    assert (only(s).machine, only(s).times, only(s).how) == ("m-0", 1, "its Node is gone")
    terminal = Terminal(s, monkeypatch)
    assert "there now" not in terminal.run("report").out + terminal.run("status").out
    view = controller(s).replica.view("node-0")
    assert not isinstance(view, str)
    assert f"{DMA} was seen, and the Node is not there" in view.decision.reason


# ---------------------------------------------------------------- the commands


def test_report_says_what_would_have_been_done(monkeypatch: pytest.MonkeyPatch) -> None:
    s = off(PLUGIN, plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(10)
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(HOUR, step=60)
    s.pages["node-1"].body = plugin_page(True, 1)
    s.run(10)
    said = Terminal(s, monkeypatch).run("report", "--since", "7d")
    assert (said.code, said.err) == (0, "")
    for line in (
        "2 faults on 2 nodes.",
        "2 would have been treated, beginning with drain.",
        "1 of these became well by themselves afterwards.",
        "1 is there now.",
    ):
        assert line in said.out.split("\n")
    assert "would drain node-0; then replace; gone: its source took it back" in said.out
    assert "would drain node-1; then replace; it is there now" in said.out


def test_report_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    s = off()
    s.fault("node-0")
    s.run(10)
    found = json.loads(Terminal(s, monkeypatch).run("report", "-o", "json").out)
    (x,) = found["sightings"]
    assert (x["node"], x["would"], x["steps"]) == ("node-0", "recover", ["drain", "replace"])
    assert found["keptSince"] is not None


def test_what_is_older_than_asked_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    s = off(PLUGIN, plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(10)
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(2 * DAY, step=600)
    assert "No fault was seen." in Terminal(s, monkeypatch).run("report", "--since", "24h").out


def test_where_nobody_observes_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    s = cast(policy_file(), 1)
    assert (
        Terminal(s, monkeypatch)
        .run("report")
        .out.startswith("No report is kept. Either no agent has run here")
    )


def test_status_shows_what_would_be_done_now(monkeypatch: pytest.MonkeyPatch) -> None:
    s = off()
    s.fault("node-0")
    s.run(10)
    out = Terminal(s, monkeypatch).run("status").out
    assert "No node is being recovered" not in out
    row = next(line for line in out.split("\n") if line.startswith("node-0"))
    assert row.split()[:4] == ["node-0", "observed", "neuron-hardware", "drain"]
    assert f"{DMA}: would drain node-0; then replace; it is there now" in row
    assert "recovery is off there" in out


def test_a_node_that_nobody_looks_at_any_more_is_not_said_to_be_sick_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = off()
    s.fault("node-0")
    s.run(10)
    s.kill(s.actors["agent of node-0"])
    s.run(3 * HOUR, step=600)
    terminal = Terminal(s, monkeypatch)
    assert "no agent looks at the node" in terminal.run("report").out
    assert "recovery is off" not in terminal.run("status").out
    assert terminal.run("status", "-o", "json").json["observed"] == []
    assert "no agent looks at the node; recovery was off then, says the report" in (
        terminal.run("explain", "node-0").out
    )


def test_what_would_have_begun_in_a_window_does_not_wait_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = off(policy_file(limits='cooldown: 0s, windows: [{days: [sat], from: "03:01", to: "03:05"}]'))
    s.fault("node-0")
    s.run(30)
    assert only(s).due is None
    s.run(120, step=1)
    assert only(s).due is not None
    assert only(s).why == ""
    s.run(300, step=1)
    said = Terminal(s, monkeypatch).run("report")
    assert "1 would have been treated" in said.out
    assert "would wait" not in said.out


def test_why_a_node_would_be_left_alone_is_said_also_where_its_recovery_would_have_begun_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = off()
    s.fault("node-0")
    s.run(30)
    assert only(s).due is not None
    exclude(s)
    s.run(90)
    told = "would leave it alone: the node is excluded by its label noderecovery.dev/exclude=true"
    assert told in Terminal(s, monkeypatch).run("report").out


def test_a_fault_that_is_there_now_is_in_the_report_of_the_last_half_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = off()
    s.fault("node-0")
    s.run(10)
    s.run(HOUR - 600, step=20)
    assert only(s).ended is None
    status = Terminal(s, monkeypatch).run("status")
    assert "it is there now" in status.out
    said = Terminal(s, monkeypatch).run("report", "--since", "30m")
    assert "1 fault on 1 node." in said.out


def test_one_fault_of_a_node_that_was_just_made_is_one_line() -> None:
    s = Stage(policy_file())
    s.nodes(2)
    t = [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]
    patch_node(s, "node-0", {"spec": {"taints": t}})
    s.agent("node-0", on=False)
    s.run(5)
    s.fault("node-0")
    s.run(60, step=1)
    patch_node(s, "node-0", {"spec": {"taints": None}})
    s.run(120, step=1)
    assert len(report(s).sightings) == 1


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        (("node-0",), "1 became well while its rule still tolerated it."),
        (("node-0", "node-1"), "2 became well while their rules still tolerated them."),
    ],
)
def test_what_its_rule_tolerated_to_the_end_is_counted_as_that(
    nodes: tuple[str, ...], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = off(policy_file(match="type: GpuNvlink", after="2h"), plugin=True)
    for node in nodes:
        s.pages[node].body = plugin_page(True, 1)
    s.run(10)
    for node in nodes:
        s.pages[node].body = plugin_page(False, 1)
    s.run(HOUR, step=60)
    assert line in Terminal(s, monkeypatch).run("report", "--since", "7d").out.split("\n")
