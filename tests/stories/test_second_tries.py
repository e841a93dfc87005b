"""What was too late or was not answered is tried again, and given up where the answer is another one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from recovery_testkit.stage import QUICK, Stage, npd_page

from recovery.decide.decision import Decision, FreeSlot, TakeSlot, act
from recovery.decide.situation import Role
from recovery.errors import Refused, Retry, Undecodable
from recovery.model import Attempt, Done, Phase
from recovery.store.record import Records
from tests.builders.objects import gate_object
from tests.stories.scenery import (
    GATE,
    RECORDS,
    Cloud,
    alive,
    change_gate,
    pass_time,
    records,
    slots,
    to_the_end,
)
from tests.stories.scenes import REBOOTS, boot, calls, cast, pause, phase, sayings, the_record
from tests.stories.test_power import ordering
from tests.stories.test_second_steps import scale_set


class Late:
    """Right before the node's agent writes the gate for the n-th time, somebody else does."""

    def __init__(self, transport: Any, fits: Callable[[Any], bool], happens: Callable[[], object]) -> None:
        self._transport, self._fits, self._happens = transport, fits, happens
        self._actor = transport._actor

    def request(self, method: str, path: str, **more: Any) -> Any:
        if method == "PUT" and path == GATE and self._fits(more["body"]["status"]):
            self._fits = lambda _: False
            self._happens()
        return self._transport.request(method, path, **more)


def too_late(fits: Callable[[Any], bool], happens: Callable[[Stage], object], policy: bytes = QUICK) -> Stage:
    s = cast(policy, agents=0)
    s.wrap = lambda transport: Late(transport, fits, lambda: happens(s))  # type: ignore[assignment, return-value]
    s.agent("node-0")
    s.run(1)
    s.fault("node-0")
    return s


def touched(s: Stage) -> None:
    """The gate is another version, and says the same."""
    body = dict(s.store.request("GET", GATE).body)
    body["metadata"] = {**body["metadata"], "annotations": {"after": body["metadata"]["resourceVersion"]}}
    assert s.store.request("PUT", GATE, body=body, user_agent="somebody").ok


def takes(status: Any) -> bool:
    return bool(status["slots"])


def frees(status: Any) -> bool:
    return bool(status["starts"]) and not status["slots"]


def claims_one(status: Any) -> bool:
    return bool(status["replacementsClaimed"])


def test_who_was_too_late_for_a_slot_that_is_still_free_takes_it_at_once() -> None:
    s = too_late(takes, touched)
    s.run(5)
    assert calls(s) == [("replace", "m-0")]
    assert not any("409 Conflict" in x for x in alive(s, "node-0").sentences)


def test_who_was_too_late_and_finds_a_pause_takes_no_slot() -> None:
    s = too_late(takes, pause)
    s.run(5)
    assert (s.gate().slots, s.gate().starts, calls(s)) == ((), (), [])
    assert phase(s) is Phase.WAITING
    assert any("409 Conflict" in x for x in alive(s, "node-0").sentences)
    assert "ada paused all recoveries" in alive(s, "node-0").sentences[-1]


def test_a_second_try_is_the_last_one() -> None:
    """Asked once more on the gate as it is, not again and again."""
    s = cast()
    agent = alive(s, "node-0").agent
    assert agent is not None
    executor, asked = agent._executor, list[str]()
    perform, gates = executor.perform, executor._w.gates

    def performs(situation: Any, d: Any, again: Any, ask: Any) -> Any:
        def asks(of: Any) -> Any:
            asked.append(d.key)
            return ask(of)

        if isinstance(d.effect, TakeSlot):
            write = gates.write
            gates.write = lambda gate, **how: (touched(s), write(gate, **how))[1]  # type: ignore[method-assign]
            try:
                return perform(situation, d, again, asks)
            finally:
                gates.write = write  # type: ignore[method-assign]
        return perform(situation, d, again, asks)

    executor.perform = performs  # type: ignore[method-assign]
    s.fault("node-0")
    agent.cycle()
    for _ in range(20):
        s.clock.advance(0.5)
        agent.cycle()
        if asked:
            break
    assert asked == ["TakeSlot"]
    assert agent.last.key == "conflict"
    assert s.gate().slots == ()


def emptied(s: Stage) -> None:
    """Somebody took the lines of the queue off."""
    change_gate(s, lambda gate: gate["status"].update(open=[]))


def test_who_was_too_late_and_has_no_line_any_more_joins_in_a_cycle_of_its_own() -> None:
    s = too_late(takes, emptied)
    s.run(5)
    said = alive(s, "node-0").sentences
    late = next(i for i, x in enumerate(said) if "409 Conflict" in x)
    assert "for a slot of the budget" in said[late + 1]
    assert calls(s) == [("replace", "m-0")]


def test_a_place_is_freed_at_once_though_somebody_wrote_the_gate_meanwhile() -> None:
    s = too_late(frees, touched, REBOOTS)
    s.run(5)
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(140)
    assert (phase(s), s.gate().slots) == (Phase.RECOVERED, ())
    assert any(w.actor == "somebody" for w in s.store.history)  # it was too late
    assert not any("409 Conflict" in x for x in alive(s, "node-0").sentences)


def while_the_cloud_answers(happens: Callable[[Stage], object]) -> tuple[Stage, Cloud]:
    """Each time that the cloud says who has replaced node-0, which takes long, somebody writes the gate."""
    s = Stage(QUICK)
    for name in s.nodes(4):
        s.agent(name)
    s.run(0)
    polls = s.provider.poll

    def poll(*about: Any) -> Any:
        found = polls(*about)
        if isinstance(found, Done):
            happens(s)
        return found

    s.provider.poll = poll  # type: ignore[method-assign]
    s.fault("node-0")
    return s, Cloud(s)


def test_a_new_machine_is_claimed_though_the_gate_is_written_each_time_that_the_cloud_is_asked() -> None:
    """As where many nodes join the queue. The place in the budget waits for the claim."""
    s, cloud = while_the_cloud_answers(touched)
    to_the_end(s, cloud)
    assert (records(s), calls(s)) == ({"node-0": "recovered"}, [("replace", "m-0")])
    assert s.gate().slots == ()


def test_a_new_machine_that_another_record_has_claimed_meanwhile_is_not_claimed_as_well() -> None:
    def taken(s: Stage) -> None:
        claims = [{"machine": "m-100", "insteadOf": "m-9"}]
        change_gate(s, lambda gate: gate["status"].update(replacementsClaimed=claims))

    s = Stage(QUICK)
    s.wrap = lambda transport: Late(transport, claims_one, lambda: taken(s))  # type: ignore[assignment, return-value]
    for name in s.nodes(4):
        s.agent(name)
    s.run(0)
    s.fault("node-0")
    pass_time(s, 600, Cloud(s), until=lambda: bool(calls(s) and s.gate().claimed))
    s.run(60)
    assert [(c.machine, c.instead_of) for c in s.gate().claimed] == [("m-100", "m-9")]
    assert phase(s) is Phase.RECOVERING


def free(s: Stage, uid: str) -> Decision:
    """A peer takes the place of node-0's record ``uid`` off the gate, as it decided a moment ago."""
    sweeper = alive(s, "node-1").sweeper
    situation = sweeper._observer.situation("node-0", Role.CONCLUDER, me="node-1")
    never: Any = None
    return sweeper._executor.perform(situation, act(FreeSlot(uid), "so"), never, never)


def test_a_place_is_freed_by_evidence_alone_and_under_no_lease() -> None:
    """Law 1. Another agent holds the Lease all the time: the gate guards itself."""
    s = cast()
    s.fault("node-0")
    s.run(5)
    uid = the_record(s).uid
    assert free(s, uid).key == "conflict"  # it is open
    assert slots(s) == ["node-0"]
    s.kill(alive(s, "node-0"))
    s.store.request("DELETE", f"{RECORDS}/node-0", user_agent="somebody")
    assert free(s, uid).key == "conflict"  # nothing says that it was closed
    assert slots(s) == ["node-0"]


def test_the_place_of_an_earlier_record_is_freed_while_a_later_one_is_open() -> None:
    s = cast()
    s.fault("node-0")
    s.run(5)

    def of_an_earlier_one(gate: dict[str, Any]) -> None:
        (held,) = gate["status"]["slots"]
        gate["status"]["slots"] = [held, {**held, "recordUID": "an earlier one"}]

    change_gate(s, of_an_earlier_one)
    assert free(s, "an earlier one").key == "FreeSlot"
    assert [x.record_uid for x in s.gate().slots] == [the_record(s).uid]


def test_of_two_that_make_the_gate_at_once_the_slower_takes_the_others() -> None:
    s = cast(agents=1)
    agent = alive(s, "node-0").agent
    assert agent is not None
    s.store.load(gate_object())
    made = agent._w.gates.ready(None, s.clock.now())
    assert made.stamp == made.uid == s.gate().uid


# ---------------------------------------------------------------- orders and second steps


def test_an_order_that_cannot_be_called_off_for_a_moment_is_called_off_then() -> None:
    s, provider = ordering()
    provider.cancel_error = Retry("no answer")
    s.run(330)
    assert (provider.cancelled, calls(s)) == ([], [("reboot", "m-0")])
    assert sayings(s, "CalledOff") == 0
    before = the_record(s).progress
    provider.cancel_error = None
    s.run(20)
    assert provider.cancelled == ["m-0"]
    assert the_record(s).progress.submitted == (*before.submitted, Attempt(2, "replace"))
    assert the_record(s).progress.called_off == 1
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_an_order_that_is_refused_to_be_called_off_is_given_up_at_once() -> None:
    s, provider = ordering()
    provider.cancel_error = Refused("it is on another node")
    s.run(305)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
    assert sayings(s, "CalledOff") == 1


def test_the_order_of_a_second_attempt_is_the_one_that_was_called_off() -> None:
    s, provider = ordering("{do: reboot, within: 2m}, {do: reboot, within: 5m}, {do: replace, within: 30m}")
    s.run(120)
    assert (provider.cancelled, the_record(s).attempt) == (["m-0"], 2)
    s.run(305)
    assert (provider.cancelled, the_record(s).progress.called_off) == (["m-0", "m-0"], 2)
    assert calls(s)[2:] == [("replace", "m-0")]


def test_a_second_step_is_noted_once_it_was_asked_for() -> None:
    stage, cloud = scale_set()
    pass_time(stage, 600, cloud, until=lambda: bool(stage.provider.finished))
    assert [x.sentence for x in the_record(stage).history if x.event == "finished"] == [
        "asked fake for what was left of replace"
    ]


# ---------------------------------------------------------------- records and the log


def test_in_place_of_a_record_that_cannot_be_read_there_is_an_error_with_its_name() -> None:
    s = cast(agents=3)
    for node in ("node-0", "node-1", "node-2"):
        s.fault(node)
    s.run(2)
    body = dict(s.store.request("GET", f"{RECORDS}/node-1").body)
    body["status"] = {**body["status"], "version": 99}
    assert s.store.request("PUT", f"{RECORDS}/node-1", body=body, user_agent="somebody").ok
    agent = alive(s, "node-0").agent
    assert agent is not None
    found = list(Records(agent._w.cluster).all())
    assert [x.name if isinstance(x, Undecodable) else x.node for x in found] == ["node-0", "node-1", "node-2"]
    assert isinstance(found[1], Undecodable)


def test_the_log_has_each_sentence_once_with_its_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    s = cast(agents=1)
    pause(s)
    s.fault("node-0")
    s.run(30)
    said = [x.getMessage() for x in caplog.records if x.name == "recovery.agent.reporter"]
    assert [x.rsplit(" [", 1)[1] for x in said] == [
        "key=leave]",
        "key=WriteRecord]",
        "key=WriteRecord]",
        "key=Join]",
        "key=paused]",
    ]
    assert said[-1].startswith("node-0: NeuronHasError_DMA_ERROR: waiting: ada paused all recoveries")
