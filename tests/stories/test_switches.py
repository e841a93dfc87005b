"""ENABLE_RECOVERY, pause and exclusion, at each point of a recovery (laws 7 and 8)."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.model import Phase
from tests.stories.scenery import REPORTS
from tests.stories.scenes import (
    ALL_MARKS,
    BEFORE,
    NO_MARKS,
    POINTS,
    REBOOTS,
    at,
    boot,
    calls,
    cast,
    exclude,
    label,
    marked,
    messages,
    new_process,
    no_place,
    pause,
    phase,
    remove_pod,
    resume,
    sayings,
    stubborn_pod,
    the_record,
    value,
)

OFF = "recovery is off (ENABLE_RECOVERY=false)"


def switch_off(s: Stage, *, alone: bool = True) -> str:
    """Node-0's agent starts again with recovery off. Returns the new process's name."""
    if alone:
        for actor in s.actors.values():
            s.kill(actor)
    return new_process(s, "node-0", on=False).name


# ---------------------------------------------------------------- off


@pytest.mark.parametrize("point", POINTS)
def test_off_in_the_middle_writes_nothing_but_events_and_the_report(point: str) -> None:
    s = at(point)
    before, node = the_record(s), s.node("node-0")
    off = switch_off(s)
    since = len(s.store.history)
    s.run(150, step=1)
    written = [w.path for w in s.store.history[since:] if w.actor == off]
    assert written
    assert [path for path in written if "/events" not in path and "/recoveryreports" not in path] == []
    assert (the_record(s), s.node("node-0")) == (before, node)


@pytest.mark.parametrize("point", POINTS)
def test_off_in_the_middle_starts_and_continues_nothing(point: str) -> None:
    s = at(point)
    done = calls(s)
    switch_off(s)
    remove_pod(s)
    s.pages["node-0"].error = None
    s.run(90, step=1)
    assert calls(s) == done


@pytest.mark.parametrize("point", POINTS)
def test_what_off_abandons_is_said_each_minute(point: str) -> None:
    s = at(point)
    off = switch_off(s)
    since = len(s.store.history)
    s.run(185, step=1)
    assert sayings(s, "AbandonedBySwitchOff", since) in (3, 4)
    (sentence,) = messages(s, "AbandonedBySwitchOff")
    assert sentence.startswith(
        f"{OFF}: the recovery of this node is left as it is, abandoned by switching recovery off ("
    )
    assert value(s.actors[off], "node_recovery_abandoned") == 1


def test_off_from_the_start_writes_nothing_but_events_and_the_report() -> None:
    s = cast(on=False)
    since = len(s.store.history)
    s.fault("node-0")
    s.run(120, step=1)
    assert {w.path for w in s.store.history[since:] if "/events" not in w.path} == {f"{REPORTS}/fleet"}
    assert s.record("node-0") is None


def test_on_again_goes_on_where_it_was_left() -> None:
    s = at("draining")
    switch_off(s)
    s.run(30)
    new_process(s, "node-0")
    remove_pod(s)
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


def test_peers_that_are_on_conclude_what_off_abandoned() -> None:
    s = at("after the call")
    switch_off(s, alone=False)
    s.provider.terminate("workers", "m-0")
    s.delete_node("node-0")
    s.provider.launch("workers", "m-9")
    s.register("node-9", "m-9")
    s.agent("node-9")
    s.run(300, step=1)
    assert phase(s) is Phase.RECOVERED
    assert no_place(s)


def test_peers_that_are_off_conclude_nothing() -> None:
    s = at("after the call")
    for node in ("node-0", "node-1", "node-2", "node-3"):
        new_process(s, node, on=False)
    since = len(s.store.history)
    s.provider.terminate("workers", "m-0")
    s.provider.launch("workers", "m-9")
    s.register("node-9", "m-9")
    s.run(300, step=2)
    written = {w.path for w in s.store.history[since:] if w.actor.startswith("agent")}
    assert [path for path in written if "/events" not in path and not path.startswith(REPORTS)] == []


def test_peers_that_are_off_make_no_deleted_record_again() -> None:
    s = at("draining")
    for node in ("node-0", "node-1", "node-2", "node-3"):
        new_process(s, node, on=False)
    s.store.request("DELETE", "/apis/noderecovery.dev/v1alpha1/noderecoveries/node-0")
    gate = s.gate()
    s.run(200, step=2)
    assert (s.record("node-0"), s.gate()) == (None, gate)


# ---------------------------------------------------------------- pause


def test_a_pause_before_the_fault_starts_nothing_and_is_the_sentence() -> None:
    s = cast()
    pause(s)
    s.fault("node-0")
    s.run(60)
    assert (phase(s), calls(s), marked(s), s.gate().slots) == (Phase.WAITING, [], NO_MARKS, ())
    assert messages(s, "Held")[0].endswith("ada paused all recoveries without an end: a network change")
    resume(s)
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


def test_a_pause_ends_by_itself() -> None:
    s = cast()
    pause(s, until="2026-11-21T03:01:00Z")
    s.fault("node-0")
    s.run(50)
    assert calls(s) == []
    s.run(15)
    assert calls(s) == [("replace", "m-0")]


def test_a_pause_in_the_middle_of_a_drain_stops_new_evictions() -> None:
    s = at("draining")
    pause(s)
    s.run(5)
    asked = s.store.requests["create", "pods/eviction"]
    assert asked > 0
    s.run(20)
    assert s.store.requests["create", "pods/eviction"] == asked
    remove_pod(s)
    s.run(30)
    assert (phase(s), calls(s), marked(s)) == (Phase.RECOVERING, [], ALL_MARKS)
    resume(s)
    s.run(5)
    assert calls(s) == [("replace", "m-0")]


def test_a_pause_right_before_the_call_stops_it() -> None:
    s = at("before the call")
    pause(s)
    s.pages["node-0"].error = None
    s.run(60)
    assert calls(s) == []
    resume(s)
    s.run(5)
    assert calls(s) == [("replace", "m-0")]


def test_a_pause_after_the_call_stops_no_proof() -> None:
    s = at("after the call")
    pause(s)
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.agent("node-9")
    s.run(260, step=1)
    assert phase(s) is Phase.RECOVERED
    assert no_place(s)


def test_a_pause_in_probation_stops_no_uncordon() -> None:
    s = at("proving")
    pause(s)
    s.run(130)
    assert (phase(s), marked(s), no_place(s)) == (Phase.RECOVERED, NO_MARKS, True)


def test_a_pause_stops_the_next_rung() -> None:
    s = at("proving")
    pause(s)
    s.pages["node-0"].body = npd_page("DMA_ERROR")
    s.run(30)
    assert (phase(s), the_record(s).rung, calls(s)) == (Phase.RECOVERING, 2, [("reboot", "m-0")])
    resume(s)
    s.run(5)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


# ---------------------------------------------------------------- exclusion


@pytest.mark.parametrize("point", ["waiting", "draining", "before the call"])
def test_exclusion_before_the_call_undoes_our_marks_and_frees_the_slot(point: str) -> None:
    s = at(point)
    exclude(s)
    s.run(30)
    assert (phase(s), marked(s), no_place(s), calls(s)) == (Phase.WITHDRAWN, NO_MARKS, True, [])
    assert the_record(s).sentence.startswith("closed without a destructive step: the node is excluded by its")


def test_an_excluded_node_is_treated_when_the_label_is_gone() -> None:
    s = at("draining")
    exclude(s)
    s.run(10)
    assert phase(s) is Phase.WITHDRAWN
    s.store.request(
        "PATCH",
        "/api/v1/nodes/node-0",
        body={"metadata": {"labels": {"noderecovery.dev/exclude": None}}},
        content_type="application/merge-patch+json",
    )
    remove_pod(s)
    s.run(70)
    assert calls(s) == [("replace", "m-0")]


def test_an_excluded_node_is_told_of_and_not_marked() -> None:
    s = cast()
    exclude(s)
    s.fault("node-0")
    s.run(30)
    assert (s.record("node-0"), calls(s), marked(s)) == (None, [], NO_MARKS)
    assert messages(s, "Held")[0].startswith(
        "NeuronHasError_DMA_ERROR: nothing is done: the node is excluded"
    )


@pytest.mark.parametrize("value", ["True", "yes", "INC-1234", ""])
def test_a_node_is_excluded_whatever_a_person_writes_but_no(value: str) -> None:
    s = cast(count=8, agents=2)
    label(s, "node-0", **{"noderecovery.dev/exclude": value})
    label(s, "node-1", **{"noderecovery.dev/exclude": "false"})
    s.fault("node-0")
    s.fault("node-1")
    s.run(60)
    assert calls(s) == [("replace", "m-1")]
    assert messages(s, "Held")[0].endswith(
        f"the node is excluded by its label noderecovery.dev/exclude={value}"
    )


def test_exclusion_after_the_call_stops_no_proof() -> None:
    s = at("after the call")
    exclude(s)
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.agent("node-9")
    s.run(260, step=1)
    assert phase(s) is Phase.RECOVERED


def test_exclusion_in_probation_stops_no_uncordon() -> None:
    s = at("proving")
    exclude(s)
    s.run(130)
    assert (phase(s), marked(s), no_place(s)) == (Phase.RECOVERED, NO_MARKS, True)


def test_the_slot_of_an_excluded_node_goes_to_the_next_in_line() -> None:
    s = at("draining")
    s.fault("node-1")
    s.run(5)
    assert calls(s) == []
    exclude(s)
    s.run(15)
    assert calls(s) == [("replace", "m-1")]


# ---------------------------------------------------------------- brake


@pytest.mark.parametrize("point", [p for p in BEFORE if p not in ("suspect", "waiting")])
def test_a_brake_that_comes_on_in_the_middle_stops_the_call(point: str) -> None:
    s = at(point)
    for node in ("node-1", "node-2"):
        s.store.request(
            "PATCH",
            f"/api/v1/nodes/{node}/status",
            body={"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}]}},
            content_type="application/merge-patch+json",
        )
    s.pages["node-0"].error = None
    s.run(12)
    remove_pod(s)
    s.run(30)
    assert calls(s) == []
    assert any("the brake is on: 3 of 4 nodes in the fleet" in sentence for sentence in messages(s, "Held"))


def test_a_brake_stops_no_proof() -> None:
    s = cast(REBOOTS, agents=3)
    stubborn_pod(s)
    remove_pod(s)
    s.fault("node-0")
    s.run(5)
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    for node in ("node-1", "node-2"):
        s.fault(node)
    s.run(130)
    assert (phase(s), marked(s)) == (Phase.RECOVERED, NO_MARKS)
    assert calls(s)[0] == ("reboot", "m-0")
