"""Time in which a step was held is not time in which it was tried, whatever held it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from recovery_testkit.kubefaults import lost_request, refused
from recovery_testkit.stage import Killed, Stage, npd_page

from recovery.errors import Unreadable
from recovery.model import Phase, Record
from recovery.store.record_codec import encode
from tests.builders.policies import policy_file
from tests.stories.scenery import GATES, RECORDS, sentences, slots, writes
from tests.stories.scenes import (
    PERSON,
    REBOOTS,
    boot,
    calls,
    cast,
    label,
    messages,
    new_process,
    no_place,
    pause,
    phase,
    remove_pod,
    resume,
    stubborn_pod,
    the_record,
    value,
)

MINUTE = 60.0
PODS = 2
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
NODE = "node-0"


def evictions(s: Stage) -> int:
    """How many of the pods of this story were evicted."""
    pods = s.store.request("GET", "/api/v1/namespaces/default/pods").body["items"]
    return PODS - sum(1 for pod in pods if "deletionTimestamp" not in pod["metadata"])


def record_writes(s: Stage, since: int) -> int:
    return sum(1 for w in s.store.history[since:] if w.path == f"{RECORDS}/{NODE}")


def draining(policy: bytes | None = None, *, agents: int = 1) -> Stage:
    """The drain of node-0 is under way: one pod that its disruption budget keeps."""
    s = cast(policy, agents=agents) if policy else cast(agents=agents)
    stubborn_pod(s)
    s.fault(NODE)
    s.run(5)
    assert (phase(s), the_record(s).rung, calls(s)) == (Phase.RECOVERING, 0, [])
    return s


def still_draining(s: Stage) -> bool:
    return (phase(s), the_record(s).rung, calls(s)) == (Phase.RECOVERING, 0, [])


def brake_on(s: Stage) -> None:
    for node in ("node-1", "node-2"):
        patch_condition(s, node, "True")


def brake_off(s: Stage) -> None:
    for node in ("node-1", "node-2"):
        patch_condition(s, node, "False")


def patch_condition(s: Stage, node: str, status: str) -> None:
    """A catalogued condition of another node, which the brake counts."""
    found = s.node(node)
    others = [c for c in found["status"]["conditions"] if c["type"] != "NeuronHealth"]
    bad = {"type": "NeuronHealth", "status": status, "reason": "NeuronHasError_DMA_ERROR"}
    found["status"]["conditions"] = [*others, bad]
    found["metadata"].pop("resourceVersion")
    path = f"/api/v1/nodes/{node}/status"
    assert s.store.request("PUT", path, body=found, user_agent="npd").ok


def claim(s: Stage, on: bool) -> None:
    label(s, NODE, **{"dgxc.nvidia.com/nvsentinel-state": "quarantined" if on else None})


# ---------------------------------------------------------------- the drain


def test_a_drain_that_was_paused_before_its_first_eviction_asks_for_them_all_after_the_pause() -> None:
    s = cast(agents=1)
    s.add_pod("web-1", NODE)
    s.add_pod("web-2", NODE)
    ask = s.api.request

    def pause_at_the_cordon(method: str, path: str, **more: object) -> object:
        answer = ask(method, path, **more)  # type: ignore[arg-type]
        if method == "PATCH" and path.endswith(f"/nodes/{NODE}"):
            pause(s)
        return answer

    s.api.request = pause_at_the_cordon  # type: ignore[method-assign,assignment]
    s.fault(NODE)
    s.run(5)
    s.run(11 * MINUTE, step=6)
    assert (evictions(s), still_draining(s)) == (0, True)
    resume(s)
    s.run(3)
    assert (evictions(s), still_draining(s)) == (2, True)
    s.run(10)
    assert (the_record(s).rung, calls(s)) == (1, [("replace", "m-0")])


def test_what_is_left_of_the_drain_after_a_pause_is_all_that_was_left_before() -> None:
    s = draining()
    s.run(3 * MINUTE, step=2)
    pause(s)
    s.run(11 * MINUTE, step=6)
    resume(s)
    s.run(6 * MINUTE, step=2)
    assert still_draining(s)
    s.run(90, step=2)
    assert calls(s) == [("replace", "m-0")]
    assert "held 11 min by a pause" in "\n".join(x.sentence for x in the_record(s).history)


def test_the_sentence_says_how_much_of_its_time_the_drain_has_used_and_what_held_it() -> None:
    s = draining()
    s.run(3 * MINUTE, step=2)
    pause(s)
    s.run(11 * MINUTE, step=6)
    said = sentences(s)[-1]
    assert said.startswith("NeuronHasError_DMA_ERROR: drain: ada paused all recoveries")
    assert said.endswith("drain: 3 min of 10 used, held 11 min by a pause")
    resume(s)
    s.run(5)
    assert sentences(s)[-1].endswith("drain: 3 min of 10 used, held 11 min by a pause")
    assert "the recovery goes on; drain: 3 min of 10 used, held 11 min by a pause" in sentences(s)


@pytest.mark.parametrize(
    ("begin", "end", "by"),
    [
        (pause, resume, "a pause"),
        (brake_on, brake_off, "the brake"),
        (lambda s: claim(s, True), lambda s: claim(s, False), "another remediator"),
    ],
    ids=["pause", "brake", "claim"],
)
@pytest.mark.parametrize("then", ["force", "handOver", "hold"])
def test_nothing_follows_from_time_in_which_the_drain_was_held(
    begin: object, end: object, by: str, then: str
) -> None:
    s = draining(policy_file(f"{{do: drain, within: 10m, then: {then}}}, {{do: replace, within: 30m}}"))
    s.run(3 * MINUTE, step=2)
    begin(s)  # type: ignore[operator]
    s.run(30 * MINUTE, step=6)
    assert still_draining(s)
    end(s)  # type: ignore[operator]
    s.run(6 * MINUTE, step=2)
    assert still_draining(s)
    assert by in sentences(s)[-1]
    s.run(2 * MINUTE, step=2)
    assert still_draining(s) is (then == "hold")


def test_two_causes_one_after_the_other_are_each_on_the_record() -> None:
    s = draining()
    s.run(3 * MINUTE, step=2)
    pause(s)
    s.run(5 * MINUTE, step=2)
    brake_on(s)
    s.run(30)
    resume(s)
    s.run(7 * MINUTE, step=2)
    brake_off(s)
    s.run(30, step=2)
    assert "3 min of 10 used, held 6 min by a pause and 7 min by the brake" in sentences(s)[-1].replace(
        "4 min of 10", "3 min of 10"
    )
    s.run(5 * MINUTE, step=2)
    assert still_draining(s)


def test_a_brake_that_goes_on_and_off_all_the_time_uses_up_no_more_than_the_time_between() -> None:
    s = draining()
    since = len(s.store.history)
    for _ in range(75):  # ten minutes
        brake_on(s)
        s.run(4, step=2)
        brake_off(s)
        s.run(4, step=2)
    s.run(60, step=2)
    assert still_draining(s)
    assert record_writes(s, since) <= 25
    s.run(10 * MINUTE, step=6)
    assert calls(s) == [("replace", "m-0")]


def test_a_hold_costs_one_write_of_the_record_when_it_begins_and_one_when_it_ends() -> None:
    s = draining()
    since = len(s.store.history)
    pause(s)
    s.run(30 * MINUTE, step=6)
    assert record_writes(s, since) == 1
    resume(s)
    s.run(60, step=2)
    assert record_writes(s, since) == 2
    s.run(4, step=2)
    pause(s)
    s.run(3)
    resume(s)
    s.run(20)
    assert record_writes(s, since) == 2, "a hold of a few seconds is not worth a write"


# ---------------------------------------------------------------- nobody could write


def test_time_in_which_recovery_was_off_is_not_time_in_which_the_drain_was_tried() -> None:
    s = draining()
    s.run(3 * MINUTE, step=2)
    new_process(s, NODE, on=False)
    s.run(30 * MINUTE, step=6)
    new_process(s, NODE)
    s.run(6 * MINUTE, step=2)
    assert still_draining(s)
    assert "while nobody was at work" in sentences(s)[-1]
    s.run(2 * MINUTE, step=2)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4])
def test_a_gap_is_not_forgotten_if_the_next_process_dies_at_once(after: int) -> None:
    s = draining()
    s.run(3 * MINUTE, step=2)
    s.kill(s.actors[f"agent of {NODE}"])
    s.run(30 * MINUTE, step=6)
    writes = 0
    doomed = new_process(s, NODE)
    ask = s.api.request

    def lost(method: str, path: str, **more: object) -> object:
        nonlocal writes
        if method != "GET" and doomed.alive and more.get("user_agent") == doomed.name:
            writes += 1
            if writes > after:
                raise Killed
        return ask(method, path, **more)  # type: ignore[arg-type]

    s.api.request = lost  # type: ignore[method-assign,assignment]
    s.run(30)
    new_process(s, NODE)
    s.run(6 * MINUTE, step=2)
    assert still_draining(s)


def test_time_in_which_the_api_server_was_away_is_not_time_in_which_the_drain_was_tried() -> None:
    s = draining()
    s.run(3 * MINUTE, step=2)
    s.api.fail_next(lambda asked: True, lost_request, times=10**6)
    s.run(30 * MINUTE, step=6)
    s.api.heal()
    s.run(6 * MINUTE, step=2)
    assert still_draining(s)
    assert "while the API server did not answer, or refused" in sentences(s)[-1]


def test_time_in_which_the_way_back_is_refused_is_told_as_that_and_it_goes_on_afterwards() -> None:
    s = cast(REBOOTS)
    s.fault(NODE)
    s.run(5)
    boot(s, NODE)
    s.pages[NODE].body = npd_page()
    s.run(5)
    forbidden = refused(403, "Forbidden", 'admission webhook "guard" denied the request')
    s.api.fail_next(writes("/nodes/", "PATCH"), forbidden, times=10**6)
    s.run(8 * MINUTE, step=2)
    assert (phase(s), slots(s)) == (Phase.PROVING, [NODE])
    refusal = 'our marks do not come off: PATCH /api/v1/nodes/node-0: 403 admission webhook "guard" denied'
    assert refusal in sentences(s)[-1]
    assert any(refusal in said for said in messages(s, "Held"))
    s.api.heal()
    s.run(5 * MINUTE, step=2)
    assert (phase(s), slots(s)) == (Phase.RECOVERED, [])


def test_time_between_a_snapshot_of_etcd_and_its_restore_is_not_time_in_which_the_drain_was_tried() -> None:
    s = draining()
    s.run(3 * MINUTE, step=2)
    record, leases = the_record(s), s.store.request("GET", LEASES).body["items"]
    pause(s)
    s.run(30 * MINUTE, step=6)
    restore(s, record, leases)
    s.run(6 * MINUTE, step=2)
    assert still_draining(s)


def restore(s: Stage, record: Record, leases: list[dict[str, Any]]) -> None:
    body = encode(record)
    body["metadata"]["resourceVersion"] = the_record(s).resource_version
    assert s.store.request("PUT", f"{RECORDS}/{NODE}", body=body, user_agent="etcd").ok
    for lease in leases:
        path = f"{LEASES}/{lease['metadata']['name']}"
        now = s.store.request("GET", path).body
        lease["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
        lease |= {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        assert s.store.request("PUT", path, body=lease, user_agent="etcd").ok
    resume(s)


def test_a_drain_whose_lease_was_deleted_while_its_agent_was_dead_still_has_its_time() -> None:
    s = draining()
    s.run(3 * MINUTE, step=2)
    s.kill(s.actors[f"agent of {NODE}"])
    s.run(30 * MINUTE, step=6)
    for lease in s.store.request("GET", LEASES).body["items"]:
        s.store.request("DELETE", f"{LEASES}/{lease['metadata']['name']}", user_agent="somebody")
    new_process(s, NODE)
    s.run(6 * MINUTE, step=2)
    assert still_draining(s)


# ---------------------------------------------------------------- pods that end by themselves


WAITS = b"""drain:
  pods:
    - match: {labels: {app: train}}
      mode: wait
      within: 5m
      annotate: {training/stop: now}
"""


def test_pods_that_may_end_by_themselves_have_their_time_after_a_pause() -> None:
    rules = policy_file() + WAITS
    s = cast(rules, agents=1)
    s.add_pod("train", NODE)
    s.add_pod("web", "node-3", app="web")
    pause_once = [True]
    ask = s.api.request

    def pause_at_the_cordon(method: str, path: str, **more: object) -> object:
        answer = ask(method, path, **more)  # type: ignore[arg-type]
        if method == "PATCH" and path.endswith(f"/nodes/{NODE}") and pause_once:
            pause_once.clear()
            pause(s)
        return answer

    s.api.request = pause_at_the_cordon  # type: ignore[method-assign,assignment]
    s.fault(NODE)
    s.run(11 * MINUTE, step=6)
    resume(s)
    s.run(4 * MINUTE, step=2)
    assert evictions(s) == 0
    pod = s.store.request("GET", "/api/v1/namespaces/default/pods/train").body
    assert "training/stop" in pod["metadata"]["annotations"]
    s.run(70, step=2)
    assert evictions(s) == 1


# ---------------------------------------------------------------- provider's steps


REBOOT = policy_file("{do: reboot, within: 10m}, {do: replace, within: 30m}")


def test_a_call_in_flight_is_given_up_only_after_its_time_without_the_pause() -> None:
    s = cast(REBOOT, agents=1)
    s.fault(NODE)
    s.run(5)
    assert calls(s) == [("reboot", "m-0")]
    pause(s)
    s.run(30 * MINUTE, step=6)
    assert the_record(s).rung == 0
    resume(s)
    s.run(9 * MINUTE, step=2)
    assert calls(s) == [("reboot", "m-0")]
    s.run(2 * MINUTE, step=2)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def newer_gate(s: Stage) -> None:
    """An agent of a newer version writes the gate, which this one then cannot read."""
    gate = s.store.request("GET", f"{GATES}/fleet").body
    gate["status"]["version"] = 99
    assert s.store.request("PUT", f"{GATES}/fleet", body=gate, user_agent=PERSON).status == 200


@pytest.mark.parametrize("step", ["drain", "call"])
def test_a_gate_that_cannot_be_read_is_what_a_recovery_under_way_is_said_to_be_held_by(step: str) -> None:
    if step == "drain":
        s = draining()
    else:
        s = cast(agents=1)
        s.fault(NODE)
        s.run(5)
        assert calls(s) == [("replace", "m-0")]
    newer_gate(s)
    s.run(10 * MINUTE)
    told = sentences(s)[-1]
    assert "held 9 min by a gate that cannot be read" in told or "held 10 min by a gate that" in told
    assert "by a pause" not in told


def test_a_drain_that_a_gate_holds_is_told_each_minute_as_any_other_hold_is() -> None:
    """Else nobody would hear of it: its own clock stands still, so no deadline comes."""
    s = draining()
    newer_gate(s)
    s.run(30)
    agent, before = s.actors[f"agent of {NODE}"], len(s.told.metrics)
    s.run(10 * MINUTE)
    assert value(agent, "node_recovery_held", reason="gate") == 1
    held = [m for m in s.told.metrics[before:] if m.dimensions.get("Reason") == "gate"]
    assert 9 <= len(held) <= 11
    assert any("the gate cannot be read" in each for each in messages(s, "Held"))


def test_evidence_counts_while_everything_is_paused() -> None:
    s = cast(REBOOT, agents=1)
    s.fault(NODE)
    s.run(5)
    pause(s)
    s.run(30 * MINUTE, step=6)
    boot(s, NODE)
    s.pages[NODE].body = s.pages["node-1"].body
    s.run(3 * MINUTE, step=2)
    assert phase(s) is Phase.RECOVERED


def test_a_page_that_cannot_be_read_stops_the_step_and_has_an_end_of_its_own() -> None:
    s = draining()
    s.pages[NODE].error = Unreadable("connection refused")
    s.run(12)
    remove_pod(s)
    s.run(10 * MINUTE, step=6)
    pause(s)
    s.run(60 * MINUTE, step=6)
    assert phase(s) is Phase.RECOVERING
    resume(s)
    s.run(15 * MINUTE, step=6)
    assert phase(s) is Phase.RECOVERING
    assert "by a page that cannot be read and 60 min by a pause" in sentences(s)[-1]
    s.run(10 * MINUTE, step=6)
    assert phase(s) is Phase.HANDED_OVER
    assert calls(s) == []
    assert messages(s, "HandedOver")


# ---------------------------------------------------------------- the way back


VALIDATED = policy_file("{do: reboot, within: 10m}", validate="{cronJob: burn-in, within: 5m}")


def test_a_validation_that_nobody_could_begin_is_not_late() -> None:
    s = cast(VALIDATED, agents=1)
    s.fault(NODE)
    s.run(5)
    boot(s, NODE)
    s.pages[NODE].body = s.pages["node-1"].body
    while the_record(s).validation is None:
        s.run(1)
    s.pages[NODE].error = Unreadable("connection refused")
    s.run(8 * MINUTE, step=2)
    assert phase(s) is Phase.PROVING
    s.pages[NODE].error = None
    s.run(4 * MINUTE, step=2)
    assert phase(s) is Phase.PROVING
    assert "no Job was made of CronJob burn-in" in sentences(s)[-1]


def test_probation_is_not_over_by_time_in_which_nobody_looked() -> None:
    """The new machine joined; then everybody was away."""
    s = cast(agents=2)
    s.fault(NODE)
    s.run(5)
    s.replace_machine(NODE, "m-0", "node-9", "m-9")
    while the_record(s).replacement != "node-9":
        s.run(1)
    for actor in s.actors.values():
        s.kill(actor)
    s.run(60 * MINUTE, step=5)
    s.concluder()
    began = s.clock.monotonic()
    while phase(s) is Phase.PROVING and s.clock.monotonic() - began < 600:
        s.run(1)
    assert phase(s) is Phase.RECOVERED
    assert s.clock.monotonic() - began >= 120


# ---------------------------------------------------------------- a dead agent's record


def test_a_pause_is_not_time_in_which_a_dead_agent_could_have_come_back() -> None:
    s = draining(agents=2)
    s.kill(s.actors[f"agent of {NODE}"])
    s.run(5 * MINUTE, step=2)
    pause(s)
    s.run(60 * MINUTE, step=6)
    assert phase(s) is Phase.RECOVERING
    resume(s)
    s.run(8 * MINUTE, step=2)
    assert phase(s) is Phase.RECOVERING
    s.run(10 * MINUTE, step=6)
    assert phase(s) is Phase.HANDED_OVER


def test_the_time_in_which_its_agent_was_dead_is_not_time_in_which_a_step_was_tried() -> None:
    s = draining(agents=2)
    s.run(3 * MINUTE, step=2)
    s.kill(s.actors[f"agent of {NODE}"])
    s.run(12 * MINUTE, step=6)
    new_process(s, NODE)
    s.run(6 * MINUTE, step=2)
    assert still_draining(s)
    s.run(2 * MINUTE, step=2)
    assert calls(s) == [("replace", "m-0")]


def test_a_concluder_that_starts_again_every_few_minutes_still_hands_over() -> None:
    s = draining(agents=1)
    s.kill(s.actors[f"agent of {NODE}"])
    for n in range(30):
        again = s.concluder(f"concluder-{n}")
        s.run(2.5 * MINUTE, step=2)
        s.kill(again)
    assert phase(s) is Phase.HANDED_OVER


@pytest.mark.parametrize("lasts", [5, 25, 60])
def test_a_record_that_no_gate_lists_is_handed_over_however_short_leases_are(lasts: int) -> None:
    """Its agent died before it joined the queue. A concluder finds it once a minute, by a list of all."""
    s = Stage(policy_file(after="5m"))
    s.lease = timedelta(seconds=lasts)
    for node in s.nodes(2):
        s.agent(node)
    s.concluder()
    s.run(3)
    s.fault(NODE)
    s.run(3)
    assert (phase(s), no_place(s)) == (Phase.SUSPECT, True)
    s.kill(s.actors[f"agent of {NODE}"])
    s.run(25 * MINUTE, step=2)
    assert phase(s) is Phase.HANDED_OVER


# ---------------------------------------------------------------- clocks


@pytest.mark.parametrize("step", [timedelta(minutes=30), timedelta(minutes=-30)])
def test_a_step_of_the_machines_clock_uses_up_none_of_the_drains_time(step: timedelta) -> None:
    s = draining()
    s.run(3 * MINUTE, step=2)
    s.clock.step(step)
    s.run(30, step=2)
    s.clock.step(-step)
    s.run(5 * MINUTE, step=2)
    assert still_draining(s)
