"""What an agent keeps between cycles, and for how long: its Lease, refusals, conflicts and bugs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.decide.decision import Cancel, FreeSlot, act
from recovery.decide.situation import Role
from recovery.errors import Retry
from recovery.model import Machine, Phase
from tests.builders.nodes import MACHINE
from tests.builders.policies import policy_file
from tests.stories.scenery import GATE, RECORDS, REPORTS, alive, slots
from tests.stories.scenes import REBOOTS, boot, calls, cast, phase, stubborn_pod, the_record
from tests.stories.test_conditions import EKS, both, writes
from tests.stories.test_power import dies, ordering, powered


def test_a_steps_time_begins_with_its_first_call_however_often_it_is_made() -> None:
    s = cast()
    s.provider.start_error = Retry("throttled")
    s.fault("node-0")
    s.run(45)
    first, *others = [x.at for x in the_record(s).history if x.event == "intent"]
    assert others
    assert the_record(s).rung_since == first
    assert the_record(s).intent is not None


def test_conflicts_in_a_row_are_ever_further_apart_and_forgotten_by_a_success() -> None:
    s = cast()
    agent = alive(s, "node-0").agent
    assert agent is not None
    executor = agent._executor
    executor._chance.uniform = lambda _, most: most  # type: ignore[method-assign]

    def pause_after_a_conflict() -> float:
        return executor._back_off("node-0").total_seconds()

    assert [pause_after_a_conflict() for _ in range(6)] == [0.3, 0.6, 1.2, 2.4, 4.8, 5.0]
    s.fault("node-0")
    s.run(1)
    assert pause_after_a_conflict() == 0.3


def test_what_was_remembered_of_a_record_is_forgotten_with_it() -> None:
    s = cast(REBOOTS)
    agent = alive(s, "node-0").agent
    assert agent is not None
    s.fault("node-0")
    s.run(5)
    agent._observer.memory("node-0").refuse("default/train", "a disruption budget", 1e9)
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(140)
    assert phase(s) is Phase.RECOVERED
    assert agent._observer.memory("node-0").refused == {}


def test_whether_a_machine_is_down_is_asked_of_its_controller_only_so_often() -> None:
    s = powered()
    stubborn_pod(s)
    asked: list[str] = []
    s.provider.down = lambda machine: asked.append(machine.id)  # type: ignore[attr-defined]
    s.fault("node-0")
    s.run(5)
    dies(s)
    observer = s.actors["concluder"].sweeper._observer
    for _ in range(30):
        observer.situation("node-0", Role.CONCLUDER)
        s.clock.advance(1)
    assert asked == ["m-0", "m-0"]


class Bmc:
    """The one of a machine that has died. It takes 20 s for each answer, or for none."""

    def __init__(self, *, answers: bool) -> None:
        self.asked, self.answers = list[float](), answers
        self.stage = s = powered()
        stubborn_pod(s)
        s.provider.down = self.down  # type: ignore[attr-defined]
        s.fault("node-0")
        s.run(5)
        dies(s)
        self.observer = s.actors["concluder"].sweeper._observer

    def down(self, machine: Machine) -> str | None:
        self.asked.append(self.stage.clock.monotonic())
        self.stage.clock.advance(20)
        if not self.answers:
            raise Retry("it did not answer")
        return None

    def looks(self, seconds: float) -> int:
        """How often it is asked in so many seconds of looks at its node."""
        before, until = len(self.asked), self.stage.clock.monotonic() + seconds
        while self.stage.clock.monotonic() < until:
            self.observer.situation("node-0", Role.CONCLUDER)
            self.stage.clock.advance(1)
        return len(self.asked) - before


@pytest.mark.parametrize("answers", [True, False])
def test_a_controller_that_takes_long_to_say_whether_a_machine_is_down_is_not_asked_without_a_pause(
    answers: bool,
) -> None:
    """A dead BMC takes longer to time out than its answer is good for, and so may one that is slow."""
    assert Bmc(answers=answers).looks(30) == 1


def test_a_controller_that_does_not_answer_whether_a_machine_is_down_is_asked_ever_more_seldom() -> None:
    bmc = Bmc(answers=False)
    assert 15 <= bmc.looks(3600) <= 20, "every four minutes at last"
    bmc.stage.clock.advance(3600)
    assert bmc.looks(90) == 3, "that is another time, in which it is asked as it was at first"


# ---------------------------------------------------------------- the Lease, and bugs


def renewals(s: Stage) -> int:
    return sum(1 for w in s.store.history if "/leases/" in w.path and w.actor == "agent of node-0")


def test_while_a_fault_is_tolerated_the_lease_is_renewed_each_quarter_of_its_length() -> None:
    s = cast(policy_file(after="1h"), agents=1)
    s.fault("node-0")
    s.run(20)
    before = renewals(s)
    s.run(120)
    assert renewals(s) - before in (7, 8)


def test_a_record_that_cannot_be_read_any_more_is_not_let_go_of() -> None:
    s = cast(policy_file(after="1h"), agents=1)
    s.fault("node-0")
    s.run(5)
    body = dict(s.store.request("GET", f"{RECORDS}/node-0").body)
    body["status"] = {**body["status"], "version": 99}
    assert s.store.request("PUT", f"{RECORDS}/node-0", body=body, user_agent="somebody").ok
    s.run(20)
    assert "cannot be used, and is not touched" in alive(s, "node-0").sentences[-1]
    assert alive(s, "node-0").leases.held("node-0")


def test_a_node_that_is_gone_is_left_to_its_peers_at_once() -> None:
    s = cast(policy_file(after="1h"), agents=1)
    s.fault("node-0")
    s.run(5)
    assert alive(s, "node-0").leases.held("node-0")
    s.delete_node("node-0")
    s.run(40)
    assert not alive(s, "node-0").leases.held("node-0")


def test_a_cycle_that_succeeds_forgets_the_bugs_before_it() -> None:
    s = cast(agents=1)
    agent = alive(s, "node-0").agent
    assert agent is not None
    look = agent._look

    def broken(_: Any) -> Any:
        raise ZeroDivisionError

    agent._look = broken  # type: ignore[method-assign]
    s.fault("node-0")
    s.run(10)
    assert agent.bugs > 1
    agent._look = look  # type: ignore[method-assign]
    s.run(60)
    assert agent.bugs == 0


def test_a_bug_in_one_source_costs_no_other_ones_word() -> None:
    s = cast(both(), agents=1)
    agent = alive(s, "node-0").agent
    assert agent is not None
    page = agent._sources[0]

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    page.poll = broken  # type: ignore[method-assign]
    writes(s, EKS)
    s.run(60)
    assert phase(s) is Phase.RECOVERING
    assert agent.view.readings[0].unknown == {"*": "a bug in this program, see the log"}
    del page.poll
    s.run(90)
    assert calls(s) == [("replace", "m-0")]


def test_a_source_that_fails_on_a_bug_for_long_is_told_as_one_that_is_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    s = cast(agents=1)
    agent = alive(s, "node-0").agent
    assert agent is not None

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    agent._sources[0].poll = broken  # type: ignore[method-assign]
    s.run(900)
    assert the_record(s).faults[0].type == "SignalUnknown"
    assert sum("ZeroDivisionError" in (x.exc_text or "") for x in caplog.records) == 1


# ---------------------------------------------------------------- a peer


def test_an_agent_that_is_off_takes_no_dead_peers_lease() -> None:
    """Law 7: nothing is written but Events and the report, by its sweep either."""
    s = cast(agents=1)
    s.fault("node-0")
    s.run(5)
    s.kill(alive(s, "node-0"))
    off = s.agent("node-1", on=False)
    s.run(200, step=1)
    written = {w.path for w in s.store.history if w.actor == off.name and "/events" not in w.path}
    assert written == {REPORTS}


def test_a_peer_makes_a_gate_that_somebody_deleted_with_the_places_of_the_dead() -> None:
    """Law 1: who is out holds its place, though nobody else is about to start anything."""
    s = cast()
    s.fault("node-0")
    s.run(5)
    s.kill(alive(s, "node-0"))
    peer = alive(s, "node-1").sweeper
    peer._gate()
    s.store.request("DELETE", GATE, user_agent="somebody")
    made = peer._gate()
    assert made is not None
    assert [x.node for x in made.slots] == slots(s) == ["node-0"]


@pytest.mark.parametrize("machine", ["m-0", "m-9", ""])
def test_an_order_is_called_off_of_the_machine_on_record_as_it_is_now(machine: str) -> None:
    s, provider = ordering()
    actor = alive(s, "node-0")
    assert actor.agent is not None
    seen: list[Machine] = []
    provider.cancel = lambda found, _: seen.append(found)  # type: ignore[method-assign]
    looked = actor.agent._observer.situation("node-0", Role.OWNER, me="node-0")
    known = replace(MACHINE, id=machine, group="as it is now") if machine else None
    never: Any = None
    actor.agent._executor.perform(replace(looked, machine=known), act(Cancel(), "so"), never, never)
    assert [x.id for x in seen] == ["m-0"]
    assert (seen[0].group == "as it is now") is (machine == "m-0")


def test_a_record_is_read_after_the_gate_that_its_place_is_taken_off() -> None:
    """Law 1: read before, it could be opened again and granted a slot in between."""
    s = cast()
    s.fault("node-0")
    s.run(5)
    sweeper = alive(s, "node-1").sweeper
    looked = sweeper._observer.situation("node-0", Role.CONCLUDER, me="node-1")
    order: list[str] = []
    world = sweeper._executor._w
    read_gate, read_record = world.gates.read, world.records.read
    world.gates.read = lambda: (order.append("gate"), read_gate())[1]  # type: ignore[method-assign]
    world.records.read = lambda name: (order.append("record"), read_record(name))[1]  # type: ignore[method-assign]
    never: Any = None
    sweeper._executor.perform(looked, act(FreeSlot(the_record(s).uid), "so"), never, never)
    assert order == ["gate", "record"]
