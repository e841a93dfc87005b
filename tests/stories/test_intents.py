"""What an intent says, what is adopted instead of called for, and what is counted and read for a decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, Effect, lost_answer, lost_request
from recovery_testkit.kubestatus import Response
from recovery_testkit.stage import Actor, Stage

from recovery.agent.complaint import condition
from recovery.agent.memory import Memory
from recovery.agent.observe import Observer
from recovery.decide.census import count
from recovery.decide.situation import Role
from recovery.errors import Conflict, Refused, Retry
from recovery.model import Census, IntentState, Machine, NodeView, Reference, Share, Step
from tests.builders.faults import DMA
from tests.builders.nodes import TYPE, ZONE, node
from tests.builders.records import intent, record
from tests.builders.times import NOW
from tests.stories.scenery import RECORDS, alive, writes
from tests.stories.scenes import (
    ALL_MARKS,
    REBOOTS,
    calls,
    cast,
    marked,
    messages,
    new_process,
    record_sentences,
    the_record,
)


def unreadable(s: Stage, name: str) -> None:
    """A later version has written this node's record."""
    body = dict(s.store.request("GET", f"{RECORDS}/{name}").body)
    body["status"] = {**body["status"], "version": 99}
    assert s.store.request("PUT", f"{RECORDS}/{name}", body=body, user_agent="somebody").ok


NOT_ASKED = "reboot was not asked for: the API server did not answer a write about it"


def writes_an_intent(asked: Asked) -> bool:
    status = asked.body.get("status", {}) if isinstance(asked.body, dict) else {}
    return RECORDS in asked.path and (status.get("intent") or {}).get("state") == "written"


def applied_and_refused(asked: Asked, go: Callable[[], Response]) -> Response:
    """A proxy asked twice: the first write was applied, and its repetition is a conflict."""
    go()
    return go()


def eyes(s: Stage) -> tuple[Actor, Observer]:
    actor = alive(s, "node-0")
    assert actor.agent is not None
    return actor, actor.agent._observer


# ---------------------------------------------------------------- the intent


def test_an_intent_says_for_how_long_its_call_may_still_begin() -> None:
    """Law 2: a peer waits for that long before it takes the call for lost."""
    s = cast()
    s.provider.call_timeout = 33.0
    s.fault("node-0")
    s.run(5)
    found = the_record(s).intent
    assert found is not None
    assert (found.submit_within, found.call_timeout) == (10.0, 33.0)


def test_what_the_call_said_of_its_action_is_on_the_intent() -> None:
    s = cast()
    start = s.provider.start

    def ticket(machine: Machine, action: Step, token: str, reference: Reference) -> Reference:
        start(machine, action, token, reference)
        return replace(reference, data={**reference.data, "ticket": "t-1"})

    s.provider.start = ticket  # type: ignore[assignment, method-assign]
    s.fault("node-0")
    s.run(5)
    found = the_record(s).intent
    assert found is not None
    assert (found.state, found.reference.data["ticket"]) == (IntentState.SUBMITTED, "t-1")


def test_what_is_under_way_already_is_adopted_and_nothing_is_announced() -> None:
    s = cast()
    s.provider.groups["workers"].unhealthy.add("m-0")
    s.fault("node-0")
    s.run(5)
    assert (calls(s), marked(s)) == ([], ALL_MARKS)
    assert messages(s, "Replacing") == []
    assert messages(s, "Adopted") == ["m-0 is unhealthy already; nothing more is asked for"]


def test_the_faults_are_published_once_more_right_before_the_call() -> None:
    """Law 9: the node that reports them may be gone before the minute is over."""
    s = cast()
    s.fault("node-0")
    s.run(5)
    assert len([m for m in s.told.metrics if m.name == DMA]) == 2


@pytest.mark.parametrize("answer", [lost_answer, applied_and_refused])
def test_an_intent_whose_write_got_no_answer_is_given_up_by_the_process_that_did_not_call(
    answer: Effect,
) -> None:
    """It knows that it made no call: nothing has to be watched for, and the same step is tried again."""
    s = cast(REBOOTS)
    s.api.fail_next(writes_an_intent, answer)
    s.fault("node-0")
    s.run(20)
    assert calls(s) == [("reboot", "m-0")]
    assert NOT_ASKED in record_sentences(s)


@pytest.mark.parametrize("error", [Retry("it is busy"), Refused("it is out of order")])
def test_a_call_that_was_turned_away_is_not_watched_for_where_that_could_not_be_written(
    error: Exception,
) -> None:
    s = cast(REBOOTS)
    start = s.provider.start

    def turned_away(*_: Any) -> None:
        s.provider.start = start  # type: ignore[method-assign]
        s.api.fail_next(writes(RECORDS), lost_request)
        raise error

    s.provider.start = turned_away  # type: ignore[assignment, method-assign]
    s.fault("node-0")
    s.run(20)
    assert calls(s) == [("reboot", "m-0")]
    assert NOT_ASKED in record_sentences(s)


def test_an_intent_without_an_answer_is_watched_for_by_the_next_process() -> None:
    s = cast(REBOOTS)
    s.api.fail_next(writes_an_intent, lost_answer)
    s.fault("node-0")
    for _ in range(20):
        s.run(0)
        if s.api.pending == 0:
            break
        s.clock.advance(0.5)
    new_process(s, "node-0")
    s.run(60)
    assert calls(s) == []
    assert (found := the_record(s).intent) is not None
    assert found.attempt == 1


def test_another_intent_is_seen_from_its_own_first_look() -> None:
    memory, first = Memory(), record(intent=intent())
    second = record(intent=replace(intent(), attempt=2))
    assert memory.intent_seen_for(first, 100.0).total_seconds() == 0
    assert memory.intent_seen_for(first, 130.0).total_seconds() == 30
    assert memory.intent_seen_for(second, 130.0).total_seconds() == 0


def test_a_peer_reads_the_world_anew_before_a_call(monkeypatch: Any) -> None:
    s = cast()
    sweeper = alive(s, "node-1").sweeper
    asked: list[dict[str, Any]] = []

    def situation(name: str, role: Role, **rest: Any) -> None:
        asked.append({"name": name, "role": role, **rest})

    monkeypatch.setattr(sweeper._observer, "situation", situation)
    sweeper._again("node-0")
    assert asked == [{"name": "node-0", "role": Role.CONCLUDER, "me": "node-1", "fresh": True}]


# ---------------------------------------------------------------- the count


def test_a_node_whose_record_cannot_be_read_counts_as_sick() -> None:
    """Laws 3 and 10: nothing is known of it."""
    found = count([node(), node("node-1")], [], lambda *_: False, [], NOW, ["node-1"])
    assert found.sick == ("node-1",)
    s = cast(agents=2)
    s.fault("node-1")
    s.run(0.5)
    unreadable(s, "node-1")
    _, observer = eyes(s)
    assert counted(s, observer).sick == ("node-1",)


def counted(s: Stage, observer: Observer, **limits: Any) -> Census:
    looked = observer.situation("node-0", Role.OWNER, me="node-0")
    policy = replace(looked.policy, limits=replace(looked.policy.limits, **limits))
    return observer._fetcher._count(replace(looked, policy=policy), Memory())


def test_the_sick_are_counted_for_each_label_that_a_limit_names() -> None:
    s = cast(agents=1)
    _, observer = eyes(s)
    zone, kind = ZONE, TYPE
    share = Share(count=1)
    assert list(counted(s, observer, budget_per={zone: share}, brake_per={}).by_label) == [f"{zone}=a"]
    assert list(counted(s, observer, budget_per={}, brake_per={kind: share}).by_label) == [
        f"{kind}=trn1.32xlarge"
    ]


def test_a_count_of_the_future_or_under_another_policy_is_not_known() -> None:
    s = cast(agents=1)
    actor, observer = eyes(s)
    assert actor.agent is not None
    looked = observer.situation("node-0", Role.OWNER, me="node-0")

    def known(at: Any, **by_label: Any) -> Census | None:
        seen = replace(counted(s, observer), at=at, **by_label)
        memory = Memory(census=seen)
        return observer._fetcher._known_census(replace(looked, gate=None), memory, NOW - NOW)

    assert known(looked.now) is not None
    assert known(looked.now, by_label={}) is None
    assert known(looked.now, of='{"pool":"gpu"}') is None
    assert known(looked.now + (NOW - NOW.replace(hour=0))) is None


def test_a_node_outside_the_population_goes_by_the_count_of_others() -> None:
    s = cast(agents=1)
    _, observer = eyes(s)
    looked = observer.situation("node-0", Role.OWNER, me="node-0")
    limits = replace(looked.policy.limits, population={"pool": "gpu"})
    outside = replace(looked, policy=replace(looked.policy, limits=limits), gate=None)
    memory = Memory(census=counted(s, observer, population={"pool": "gpu"}))
    assert observer._fetcher._known_census(outside, memory, NOW - NOW) is not None


def test_a_count_that_cannot_be_shared_holds_nothing_up() -> None:
    s = cast(agents=1)
    s.fault("node-0")
    s.run(5)
    actor, observer = eyes(s)
    assert actor.agent is not None
    looked = observer.situation("node-0", Role.OWNER, me="node-0")
    looked = replace(looked, census=counted(s, observer), gate=replace(s.gate(), census=None))

    def conflict(_: Any) -> Any:
        raise Conflict("somebody wrote first")

    actor.agent._executor._w.gates.write = conflict  # type: ignore[method-assign]
    actor.agent._executor.share_census(looked, NOW - NOW)


# ---------------------------------------------------------------- a new node


def test_a_record_of_another_machine_says_nothing_of_a_new_node() -> None:
    s = cast(agents=2)
    s.fault("node-1")
    s.run(0.5)
    _, observer = eyes(s)
    node_1 = observer.situation("node-1", Role.OWNER, me="node-1").node
    assert node_1 is not None
    assert observer._fetcher._own_record(node_1) == the_record(s, "node-1")
    other: NodeView = replace(node_1, provider_id="fake:///workers/m-9", system_uuid="m-9")
    assert observer._fetcher._own_record(other) is None


def test_a_new_node_that_says_that_it_is_sick_is_complained_of() -> None:
    sick = {"Ready": ("True", ""), "NeuronHealth": ("True", DMA)}
    assert condition(node(conditions=sick)) == f"its condition NeuronHealth is True ({DMA})"
    assert condition(node(conditions=sick | {"NeuronHealth": ("False", DMA)})) == ""
