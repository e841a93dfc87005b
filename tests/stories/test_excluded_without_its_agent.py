"""Somebody excludes a node whose agent is dead: the recovery ends, and its slot is free."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.checker import conclusions_are_allowed
from tests.stories.scenery import pass_time, slots
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    cast,
    exclude,
    marked,
    messages,
    new_process,
    pause,
    phase,
    ready,
    record_sentences,
    remove_pod,
    resume,
    stubborn_pod,
)

STEPS = "{do: drain, within: 10m, then: hold}, {do: replace, within: 30m}"
ONE = "cooldown: 0s, budget: 1"


def draining(who: str) -> Stage:
    """node-0 is being drained; its agent dies, and then the node is excluded."""
    s = cast(policy_file(STEPS, limits=ONE), agents=3)
    if who == "a concluder":
        s.concluder()
    stubborn_pod(s)
    s.fault("node-0")
    s.run(8)
    assert (phase(s), slots(s)) == (Phase.RECOVERING, ["node-0"])
    s.kill(s.actors["agent of node-0"])
    exclude(s)
    return s


@pytest.mark.parametrize("who", ["peers", "a concluder"])
def test_a_node_with_our_marks_is_given_to_a_person_and_its_slot_to_the_next(who: str) -> None:
    s = draining(who)
    ready(s, "node-0", "Unknown")
    s.fault("node-1")
    s.run(60)
    assert slots(s) == ["node-0"], "its own agent may come back, and take the marks off"
    pass_time(s, 3600, until=lambda: slots(s) != ["node-0"], step=10)
    assert (phase(s), slots(s), marked(s)) == (Phase.HANDED_OVER, ["node-1"], ALL_MARKS)
    said = record_sentences(s)[-1]
    assert (
        "the node is excluded by its label noderecovery.dev/exclude=true, but nobody has looked after" in said
    )
    assert said.endswith("so our marks are on it still")
    assert any("our marks are on it still" in x for x in messages(s, "HandedOver"))


def test_an_agent_that_is_back_in_time_takes_the_marks_off_and_closes_the_record() -> None:
    s = draining("a concluder")
    s.run(120)
    remove_pod(s)
    new_process(s, "node-0")
    s.run(90)
    assert (phase(s), slots(s), marked(s)) == (Phase.WITHDRAWN, [], NO_MARKS)


@pytest.mark.parametrize("after", ["0s", "5m"])
def test_a_node_to_which_nothing_was_done_is_closed_without_waiting_for_its_agent(after: str) -> None:
    s = cast(policy_file(STEPS, limits=ONE, after=after), agents=3)
    s.concluder()
    pause(s)
    s.fault("node-0")
    s.run(8)
    assert phase(s) is (Phase.WAITING if after == "0s" else Phase.SUSPECT)
    s.kill(s.actors["agent of node-0"])
    exclude(s)
    resume(s)
    s.run(300, step=2)
    assert (phase(s), slots(s)) == (Phase.WITHDRAWN, [])
    assert record_sentences(s)[-1].startswith("closed without a destructive step: the node is excluded")
    conclusions_are_allowed(s.store.history)
