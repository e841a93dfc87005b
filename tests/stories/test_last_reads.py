"""The last reads before a destructive call: what a person says while the fleet is counted is heard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked
from recovery_testkit.stage import Stage

from recovery.agent.submit import SLOW_READS
from recovery.model import Machine, Phase, Preflight, Step
from tests.builders.policies import policy_file
from tests.stories.scenery import RECORDS, alive, change_gate
from tests.stories.scenes import (
    calls,
    cast,
    exclude,
    label,
    messages,
    pause,
    phase,
    record_sentences,
    stubborn_pod,
    value,
)

REPLACES = policy_file("{do: replace, within: 30m}")
NODES = "/api/v1/nodes"
Person = Callable[[Stage], None]


def takes_the_slot(s: Stage) -> None:
    change_gate(s, lambda gate: gate["status"].update(slots=[]))


def claims(s: Stage) -> None:
    label(s, "node-0", **{"sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReplacement"})


def deletes_the_record(s: Stage) -> None:
    s.store.request("DELETE", f"{RECORDS}/node-0")


PEOPLE = {"pause": pause, "exclusion": exclude, "slot": takes_the_slot, "claim": claims}
PEOPLE |= {"record": deletes_the_record}


def announced(s: Stage) -> bool:
    return any(reason == "Replacing" for reason, _ in s.events("node-0"))


def while_listing(s: Stage, path: str, person: Person, seconds: float = 5.0) -> list[str]:
    """The first list of ``path`` after the call was announced takes long, and ``person`` acts meanwhile."""
    done: list[str] = []

    def slowly(asked: Asked, go: Callable[[], Any]) -> Any:
        answer = go()
        if not done:
            done.append(asked.path)
            s.clock.advance(seconds)
            person(s)
        return answer

    def the_list(asked: Asked) -> bool:
        return not done and (asked.method, asked.path) == ("GET", path) and announced(s)

    s.api.fail_next(the_list, slowly, times=99)
    return done


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("path", [NODES, RECORDS])
def test_what_is_said_while_the_fleet_is_counted_stops_the_call(path: str, who: str) -> None:
    s = cast(REPLACES, agents=1)
    done = while_listing(s, path, PEOPLE[who])
    s.fault("node-0")
    s.run(8)
    assert done == [path]
    if who == "slot":  # it is put back, since the node is out of service; then the call may be made
        assert sum("about to ask" in line for line in record_sentences(s)) == 1
    else:
        assert calls(s) == []


@pytest.mark.parametrize("who", ["pause", "exclusion", "record"])
def test_what_is_said_during_a_slow_preflight_stops_the_call(
    who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = cast(REPLACES, agents=1)
    preflight, done = s.provider.preflight, list[str]()

    def slow(machine: Machine, action: Step) -> Preflight:
        found = preflight(machine, action)
        if announced(s) and not done:
            done.append(machine.id)
            s.clock.advance(5)
            PEOPLE[who](s)
        return found

    monkeypatch.setattr(s.provider, "preflight", slow)
    s.fault("node-0")
    s.run(8)
    assert (done, calls(s)) == (["m-0"], [])


def slots_written(s: Stage) -> list[str]:
    """The nodes that get a slot from now on."""
    found: list[str] = []

    def look(asked: Asked) -> bool:
        if asked.method in ("POST", "PUT") and "/recoverygates" in asked.path:
            found.extend(slot["node"] for slot in asked.body["status"].get("slots") or ())
        return False

    s.api.fail_next(look, lambda asked, go: go())
    return found


@pytest.mark.parametrize("who", ["exclusion", "claim", "pause"])
@pytest.mark.parametrize("slow", [1, SLOW_READS, 99], ids=["one answer", "some answers", "every answer"])
def test_what_is_said_while_all_is_read_for_the_start_takes_no_slot(who: str, slow: int) -> None:
    s = cast(REPLACES, agents=1)
    slots, done = slots_written(s), list[str]()

    def slowly(asked: Asked, go: Callable[[], Any]) -> Any:
        answer = go()
        done.append(asked.path)
        s.clock.advance(5)
        if len(done) == min(slow, 30):
            PEOPLE[who](s)
        return answer

    def waits(asked: Asked) -> bool:
        r = s.record("node-0")
        waiting = r is not None and r.phase is Phase.WAITING
        return waiting and asked.method == "GET" and len(done) < slow

    s.api.fail_next(waits, slowly, times=99)
    s.fault("node-0")
    s.run(30)
    assert len(done) >= slow or slow == 99
    assert (slots, calls(s)) == ([], [])


@pytest.mark.parametrize("changed", [True, False], ids=["and changed", "and unchanged"])
def test_no_slot_is_taken_where_the_gate_took_long_to_be_read_again(changed: bool) -> None:
    """Another agent writes the gate first. It is read again, and meanwhile a person excludes the node."""
    s = cast(REPLACES, agents=1)
    slots, lost = slots_written(s), list[str]()

    def conflict(asked: Asked, go: Callable[[], Any]) -> Any:
        lost.append(asked.path)
        change_gate(s, lambda gate: gate["metadata"].update(labels={"team": "a"}))
        return go()

    def slowly(asked: Asked, go: Callable[[], Any]) -> Any:
        answer = go()
        s.clock.advance(5)
        if changed:
            exclude(s)
        return answer

    def takes(asked: Asked) -> bool:
        return asked.method == "PUT" and bool((asked.body.get("status") or {}).get("slots")) and not lost

    s.api.fail_next(lambda a: bool(lost) and a.method == "GET" and "/recoverygates" in a.path, slowly)
    s.api.fail_next(takes, conflict)
    s.fault("node-0")
    s.run(20)
    assert lost
    assert (slots[1:], calls(s)) == (([], []) if changed else (slots[1:], [("replace", "m-0")]))


def test_what_the_count_says_is_read_again_where_the_preflight_took_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three of four nodes fail while the cloud is asked: that many are not replaced."""
    s = cast(REPLACES, agents=1)
    preflight, done = s.provider.preflight, list[str]()

    def slow(machine: Machine, action: Step) -> Preflight:
        found = preflight(machine, action)
        if announced(s) and not done:
            done.append(machine.id)
            s.clock.advance(5)
            for node in ("node-1", "node-2", "node-3"):
                status = {"conditions": [{"type": "Ready", "status": "False", "reason": "Kubelet"}]}
                s.store.request(
                    "PATCH",
                    f"{NODES}/{node}/status",
                    body={"status": status},
                    content_type="application/merge-patch+json",
                )
        return found

    monkeypatch.setattr(s.provider, "preflight", slow)
    s.fault("node-0")
    s.run(8)
    assert (done, calls(s)) == (["m-0"], [])


def test_a_pause_while_the_intent_is_written_stops_the_call() -> None:
    s = cast(REPLACES, agents=1)

    def the_intent(asked: Asked) -> bool:
        mine = asked.method == "PUT" and asked.path == f"{RECORDS}/node-0"
        return mine and asked.body["status"].get("intent", {}).get("state") == "written"

    def slowly(asked: Asked, go: Callable[[], Any]) -> Any:
        answer = go()
        s.clock.advance(5)
        pause(s)
        return answer

    s.api.fail_next(the_intent, slowly)
    s.fault("node-0")
    s.run(30)
    assert s.api.pending == 0
    assert calls(s) == []
    assert any("replace is not asked for: ada paused all recoveries" in line for line in record_sentences(s))


def test_where_every_answer_takes_seconds_nothing_is_asked_for_and_the_sentence_says_so() -> None:
    s = cast(REPLACES, agents=1)

    def slowly(asked: Asked, go: Callable[[], Any]) -> Any:
        s.clock.advance(1)
        return go()

    s.api.fail_next(lambda asked: asked.method == "GET" and announced(s), slowly, times=10_000)
    s.fault("node-0")
    s.run(60)
    assert calls(s) == []
    assert any("the API server takes seconds to answer" in m for m in s.actors["agent of node-0"].sentences)
    s.api.heal()
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


def test_a_pause_while_the_fleet_is_counted_for_a_drain_stops_the_evictions() -> None:
    s = cast(agents=1)
    stubborn_pod(s)
    s.fault("node-0")
    s.run(5)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [])
    paused: list[str] = []
    evicted: list[str] = []

    def slowly(asked: Asked, go: Callable[[], Any]) -> Any:
        answer = go()
        paused.append(asked.path)
        s.clock.advance(5)
        pause(s)
        return answer

    def an_eviction(asked: Asked) -> bool:
        if paused and asked.path.endswith("/eviction"):
            evicted.append(asked.path)
        return False

    s.api.fail_next(an_eviction, slowly)
    s.api.fail_next(lambda asked: (asked.method, asked.path) == ("GET", NODES), slowly)
    s.clock.advance(11)  # the count is too old to go on by
    s.add_pod("web", "node-0", app="web")
    s.run(30)
    assert paused == [NODES]
    assert evicted == []


@pytest.mark.parametrize("slow", range(4, 26))
def test_a_pause_while_it_is_read_again_before_the_mark_stops_the_mark(slow: int) -> None:
    """The slot is taken. Then ``slow`` answers take a second each. The pause comes with the last of them."""
    s = cast(REPLACES, agents=1)
    has_slot: list[bool] = []
    reads: list[str] = []

    def before_the_mark(asked: Asked) -> bool:
        if asked.method == "PUT" and asked.path == f"{RECORDS}/node-0":
            has_slot[:] = [asked.body["status"]["phase"] == "recovering"]
        return any(has_slot) and asked.method == "GET" and len(reads) < slow

    def slowly(asked: Asked, go: Callable[[], Any]) -> Any:
        answer = go()
        reads.append(asked.path)
        s.clock.advance(1)
        if len(reads) == slow:
            pause(s)
        return answer

    s.api.fail_next(before_the_mark, slowly, times=99)
    s.fault("node-0")
    s.run(30)
    assert len(reads) == slow
    assert not s.node("node-0")["spec"].get("unschedulable")
    assert calls(s) == []


def slowly(s: Stage, pauses: list[float]) -> Callable[[Asked, Callable[[], Any]], Any]:
    """The answer comes after the first of ``pauses``, in seconds."""

    def answered(asked: Asked, go: Callable[[], Any]) -> Any:
        answer = go()
        s.clock.advance(pauses[0])
        return answer

    return answered


@pytest.mark.parametrize(
    ("marked", "sentence"),
    [
        (False, "nothing is done to node-0: the API server takes seconds to answer"),
        (True, "node-0: replace is not asked for: the API server takes seconds to answer"),
    ],
    ids=["before its marks", "before its call"],
)
def test_an_api_server_that_is_too_slow_for_the_last_reads_holds_the_recovery(
    marked: bool, sentence: str
) -> None:
    s, pauses = cast(REPLACES, agents=1), [0.8]

    def reads(asked: Asked) -> bool:
        record = s.record("node-0")
        begun = record is not None and record.phase is Phase.RECOVERING
        cordoned = bool(s.node("node-0")["spec"].get("unschedulable"))
        return asked.method == "GET" and begun and cordoned is marked

    s.api.fail_next(reads, slowly(s, pauses), times=9999)
    s.fault("node-0")
    s.run(300)
    assert calls(s) == []
    assert [m for m in messages(s, "Held") if m.startswith(sentence)]
    assert value(alive(s, "node-0"), "node_recovery_held", reason="slow") == 1
    pauses[0] = 0.1
    s.run(60)
    assert calls(s) == [("replace", "m-0")]
    assert value(alive(s, "node-0"), "node_recovery_held", reason="slow") == 0


def test_a_call_that_waits_for_an_api_server_is_announced_before_the_wait_and_right_before_the_call() -> None:
    s, pauses = cast(REPLACES, agents=1), [0.8]

    def reads(asked: Asked) -> bool:
        return asked.method == "GET" and bool(s.node("node-0")["spec"].get("unschedulable"))

    def announced() -> tuple[int, int]:
        events = s.store.request("GET", "/api/v1/namespaces/default/events").body["items"]
        counted = [m for m in s.told.metrics if m.dimensions.get("Outcome") == "started"]
        return sum(e["count"] for e in events if e["reason"] == "Replacing"), len(counted)

    s.api.fail_next(reads, slowly(s, pauses), times=9999)
    s.fault("node-0")
    s.run(600)
    assert (calls(s), announced()) == ([], (1, 1))
    pauses[0] = 0.05
    s.run(60)
    assert (calls(s), announced()) == ([("replace", "m-0")], (2, 1))


@pytest.mark.parametrize("then", ["force", "handOver"])
def test_a_drain_that_an_api_server_holds_which_is_too_slow_is_not_over_before_a_pod_was_asked(
    then: str,
) -> None:
    """The pods' disruption budgets would be asked by nobody, or a person would have the node for nothing."""
    drains = f"{{do: drain, within: 2m, then: {then}}}, {{do: replace, within: 30m}}"
    s, pauses, told = cast(policy_file(drains), agents=1), [0.8], set[float]()
    s.add_pod("train", "node-0")

    def slowly(asked: Asked, go: Callable[[], Any]) -> Any:
        answer = go()
        s.clock.advance(pauses[0])
        if s.clock.monotonic() > 30:
            told.add(value(alive(s, "node-0"), "node_recovery_held", reason="slow"))
        return answer

    def reads(asked: Asked) -> bool:
        record = s.record("node-0")
        return asked.method == "GET" and record is not None and record.rung_since is not None

    s.api.fail_next(reads, slowly, times=9999)
    s.fault("node-0")
    s.run(400)
    assert (calls(s), phase(s), told) == ([], Phase.RECOVERING, {1})
    pauses[0] = 0.05
    s.run(60)
    assert calls(s) == [("replace", "m-0")]
    assert [x for x in record_sentences(s) if x.startswith("drained in ") and " (held " in x]
    assert s.store.request("GET", "/api/v1/pods").body["items"] == []
