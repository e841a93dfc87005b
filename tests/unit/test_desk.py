"""What several agents of one process want of the gate at the same time is one write of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from recovery_testkit.clock import FakeClock

from recovery.agent.desk import GATHER, MOST, TOO_OLD, Desk, Wish
from recovery.decide.decision import ClaimReplacement, FreeSlot, Join, RestoreSlot, TakeSlot, act, wait
from recovery.decide.own_node import decide
from recovery.decide.situation import Situation
from recovery.errors import ApiUnavailable, Conflict, GateTooLarge
from recovery.model import Gate, Line, Pause, Phase, Record
from recovery.quick import replace
from tests.builders.gates import census, gate, slot
from tests.builders.nodes import MACHINE, node
from tests.builders.policies import RULES, policy
from tests.builders.records import record
from tests.builders.situations import situation
from tests.builders.times import NOW, SECOND

EVERYBODY = 24
"""So many may start abreast, as in fleet mode."""


@dataclass
class Gates:
    """A gate in memory. ``fails``: what the next writes raise, one after the other."""

    gate: Gate | None
    fails: list[Exception] = field(default_factory=list)
    between: Callable[[], None] = lambda: None
    room: int = 100
    written: list[Gate] = field(default_factory=list)

    def read(self) -> Gate | None:
        return self.gate

    def ready(self, gate: Gate | None, now: datetime) -> Gate:
        self.gate = Gate(uid="g", resource_version="1", stamp="g")
        return self.gate

    def write(self, gate: Gate) -> Gate:
        if len(gate.slots) > self.room:
            raise GateTooLarge("there is no room")
        return self.write_in_any_case(gate)

    def write_in_any_case(self, gate: Gate) -> Gate:
        self.between()
        if self.fails:
            raise self.fails.pop(0)
        assert self.gate is None or gate.resource_version == self.gate.resource_version
        self.gate = replace(gate, resource_version=str(int(gate.resource_version) + 1))
        self.written.append(self.gate)
        return self.gate

    def somebody_else(self, **changes: object) -> None:
        assert self.gate is not None
        version = str(int(self.gate.resource_version) + 1)
        self.gate = replace(self.gate, resource_version=version, **changes)


class Records(dict[str, Record]):
    """Those that can be read, and which were forgotten, to be read anew."""

    def __init__(self, *records: Record) -> None:
        super().__init__({r.node: r for r in records})
        self.forgotten: list[str] = []
        self.reads = 0
        self.slow: Callable[[], object] = lambda: None

    def read(self, node: str) -> Record | None:
        assert node in self.forgotten
        self.reads += 1
        self.slow()
        return self.get(node)

    def forget_record(self, node: str) -> None:
        self.forgotten.append(node)


class Scene:
    def __init__(self, queue: int = 0, **gate_changes: object) -> None:
        lines = tuple(Line(f"node-{i}", f"record-{i}", NOW - 10 * SECOND) for i in range(queue))
        self.gates = Gates(gate(**{"open": lines, **gate_changes}))
        self.records = Records()
        self.clock = FakeClock()
        self.leads = True
        self.answered: list[str] = []
        self.desk = Desk(
            self.clock,
            self.gates,
            self.records,
            self.records,
            lambda: NOW,
            lambda: self.leads,
            self.answered.append,
        )

    @property
    def gate(self) -> Gate:
        assert self.gates.gate is not None
        return self.gates.gate

    def waits(self, i: int, budget: int = 1) -> Situation:
        """node-i waits for a slot, and so many may be out."""
        at = f"fake:///group-{i}/m-{i}"
        machine = replace(MACHINE, id=f"m-{i}", provider_id=at, group=f"group-{i}")
        limits = f"{{budget: {budget}, budgetPer: {{}}, brake: 100%, brakePer: {{}}, cooldown: 0s}}"
        return situation(
            node_name=f"node-{i}",
            node=node(f"node-{i}", provider_id=machine.provider_id),
            machine=machine,
            record=record(node=f"node-{i}", uid=f"record-{i}", machine=machine, node_uid=f"uid-node-{i}"),
            policy=policy(RULES, limits),
            gate=self.gates.gate,
            census=census(1),
            abreast=EVERYBODY,
            preflight=None,
        )

    def takes(self, i: int, budget: int = 1) -> Wish:
        s = self.waits(i, budget)
        d = decide(s)
        assert isinstance(d.effect, TakeSlot), d
        return self.desk.hand_in(s, d.effect, decide)

    def joins(self, i: int) -> Wish:
        s = self.waits(i)
        d = decide(s)
        assert isinstance(d.effect, Join), d
        return self.desk.hand_in(s, d.effect, decide)

    def frees(self, i: int, phase: Phase = Phase.HANDED_OVER) -> Wish:
        s = self.waits(i)
        assert s.record is not None
        self.records[s.node_name] = replace(s.record, phase=phase)
        return self.desk.hand_in(s, FreeSlot(f"record-{i}"), never)

    def out(self) -> list[str]:
        return [x.node for x in self.gate.slots]


def never(s: Situation) -> object:
    raise AssertionError("it is decided by its record alone")


def done(wish: Wish) -> bool:
    return wish.done and wish.result() is None


def test_of_many_that_take_the_one_slot_at_once_the_first_in_the_queue_has_it() -> None:
    """Each was told by the gate as it was that the slot is free."""
    scene = Scene(queue=3)
    queue = scene.gate.open
    wishes = []
    for i in (2, 1, 0):
        scene.gates.somebody_else(open=(queue[i],))  # each has seen the gate when nobody was ahead
        wishes.append(scene.takes(i))
    scene.gates.somebody_else(open=queue)
    assert scene.desk.write()
    assert (scene.out(), done(wishes[2]), len(scene.gates.written)) == (["node-0"], True, 1)
    for refused in wishes[:2]:
        with pytest.raises(Conflict):
            refused.result()


def test_where_there_is_room_for_all_they_start_with_one_write() -> None:
    scene = Scene(queue=5)
    wishes = [scene.takes(i, budget=5) for i in range(5)]
    scene.desk.write()
    assert scene.out() == [f"node-{i}" for i in range(5)]
    assert (len(scene.gates.written), all(map(done, wishes))) == (1, True)
    assert sorted(scene.answered) == scene.out()


def test_who_joins_is_decided_on_again_on_the_gate_that_the_others_leave() -> None:
    """The queue has room for one more."""
    scene = Scene(queue=23)
    wishes = [scene.joins(i) for i in (30, 31, 32)]
    scene.desk.write()
    assert [line.node for line in scene.gate.open][22:] == ["node-22", "node-30"]
    assert done(wishes[0])
    for refused in wishes[1:]:
        with pytest.raises(Conflict):
            refused.result()


def test_a_slot_that_is_freed_is_taken_in_the_same_write() -> None:
    scene = Scene(queue=1, slots=(slot("node-9", "record-9"),))
    assert decide(scene.waits(0)).effect is None, "the budget is used up"
    scene.gates.somebody_else(slots=())
    taken = scene.takes(0)
    scene.gates.somebody_else(slots=(slot("node-9", "record-9"),))
    freed = scene.frees(9)
    scene.desk.write()
    assert (scene.out(), done(taken), done(freed), len(scene.gates.written)) == (["node-0"], True, True, 1)


@pytest.mark.parametrize("phase", [Phase.RECOVERING, None], ids=["open again", "deleted"])
def test_a_slot_whose_record_needs_it_stays_and_the_others_go_on(phase: Phase | None) -> None:
    scene = Scene(queue=0, slots=tuple(slot(f"node-{i}", f"record-{i}") for i in (1, 2)))
    stays, goes = scene.frees(1), scene.frees(2)
    if phase is None:
        del scene.records["node-1"]
    else:
        scene.records["node-1"] = replace(scene.records["node-1"], phase=phase)
    scene.desk.write()
    told = stays.result()
    assert (scene.out(), done(goes)) == (["node-1"], True)
    assert told is not None
    assert told.reason == "the record of node-1 is not closed: its slot stays"


def test_a_lost_answer_is_one_for_all() -> None:
    scene = Scene(queue=3)
    wishes = [scene.takes(0, budget=5), scene.joins(7), scene.frees(2)]
    scene.gates.fails = [ApiUnavailable("no answer")]
    scene.desk.write()
    for wish in wishes:
        with pytest.raises(ApiUnavailable):
            wish.result()
    assert sorted(scene.answered) == ["node-0", "node-2", "node-7"]


def test_an_api_server_that_does_not_answer_is_asked_once_for_all() -> None:
    """Fifty that wait for its answer one after the other would take minutes."""
    scene = Scene(slots=tuple(slot(f"node-{i}", f"record-{i}") for i in range(9)))
    wishes = [scene.frees(i) for i in range(9)]

    def away() -> None:
        raise ApiUnavailable("no answer")

    scene.records.slow = away
    scene.desk.write()
    assert scene.records.reads == 1
    for wish in wishes:
        with pytest.raises(ApiUnavailable):
            wish.result()


def test_of_an_api_server_that_is_slow_no_more_is_asked_for_one_write() -> None:
    scene = Scene(slots=tuple(slot(f"node-{i}", f"record-{i}") for i in range(9)))
    wishes = [scene.frees(i) for i in range(9)]
    scene.records.slow = lambda: scene.clock.advance(0.9)
    scene.desk.write()
    assert [done(wish) for wish in wishes[:3]] == [True] * 3
    assert scene.out() == [f"node-{i}" for i in range(3, 9)]
    for wish in wishes[3:]:
        with pytest.raises(Conflict):
            wish.result()


def test_a_pause_in_between_stops_the_starts_and_no_way_back() -> None:
    scene = Scene(queue=2, slots=(slot("node-9", "record-9"),))
    starts, freed = scene.takes(0, budget=5), scene.frees(9)

    def pauses() -> None:
        scene.gates.between = lambda: None
        scene.gates.somebody_else(pause=Pause("ada", "a network change", None))
        raise Conflict("somebody was first")

    scene.gates.between = pauses
    scene.desk.write()
    assert (scene.out(), done(freed)) == ([], True)
    with pytest.raises(Conflict):
        starts.result()


def test_after_a_second_conflict_all_decide_again() -> None:
    scene = Scene(queue=2)
    wishes = [scene.takes(0, budget=5), scene.joins(7)]
    scene.gates.fails = [Conflict("first"), Conflict("second")]
    scene.desk.write()
    for wish in wishes:
        with pytest.raises(Conflict):
            wish.result()


def test_starts_that_the_gate_has_no_room_for_are_left_out_from_the_end_and_no_way_back_is() -> None:
    scene = Scene(queue=4, slots=tuple(slot(f"node-{i}", f"record-{i}") for i in (7, 8, 9)))
    scene.gates.room = 3
    joins = scene.joins(30)
    starts, freed = [scene.takes(i, budget=50) for i in (2, 1, 0)], scene.frees(8)
    scene.desk.write()
    assert scene.out() == ["node-7", "node-9", "node-0"]
    assert (done(freed), done(starts[2])) == (True, True)
    for wish in (*starts[:2], joins):
        with pytest.raises(GateTooLarge):
            wish.result()


def test_on_a_gate_that_is_too_large_already_what_frees_a_slot_is_written() -> None:
    scene = Scene(queue=1, slots=tuple(slot(f"node-{i}", f"record-{i}") for i in range(5, 10)))
    scene.gates.room = 2
    start, freed = scene.takes(0, budget=50), scene.frees(8)
    scene.desk.write()
    assert scene.out() == ["node-5", "node-6", "node-7", "node-9"]
    assert done(freed)
    with pytest.raises(GateTooLarge):
        start.result()


def test_a_bug_with_one_is_no_others() -> None:
    scene = Scene(queue=2)
    s = scene.waits(1)
    broken = scene.desk.hand_in(s, RestoreSlot(slot("node-1", "record-1")), never)
    scene.gates.somebody_else()
    good = scene.takes(0, budget=5)
    scene.desk.write()
    assert done(good)
    with pytest.raises(AssertionError):
        broken.result()


def test_what_a_wish_is_about_is_decided_on_again_whatever_it_is() -> None:
    """Another has claimed the machine meanwhile."""
    scene = Scene()
    s = scene.waits(1)
    free = act(ClaimReplacement("m-5", "m-1"), "so")
    taken = wait("another has it")
    wishes = [
        scene.desk.hand_in(s, free.effect, lambda s: free if s.gate and not s.gate.claimed else taken),  # type: ignore[arg-type]
        scene.desk.hand_in(
            scene.waits(2),
            ClaimReplacement("m-5", "m-2"),
            lambda s: free if s.gate and not s.gate.claimed else taken,
        ),
    ]
    scene.desk.write()
    assert [(c.machine, c.instead_of) for c in scene.gate.claimed] == [("m-5", "m-1")]
    assert done(wishes[0])
    with pytest.raises(Conflict):
        wishes[1].result()


@pytest.mark.parametrize("why", ["it is old", "it leads no more"])
def test_nothing_is_written_of_what_was_decided_on_long_ago_or_under_a_lease_that_is_lost(why: str) -> None:
    scene = Scene(queue=1)
    wish = scene.takes(0)
    scene.leads = why == "it is old"
    scene.clock.advance(TOO_OLD + 0.1 if scene.leads else 0.0)
    scene.desk.write()
    assert scene.gates.written == []
    with pytest.raises(Conflict):
        wish.result()


def test_no_slot_is_taken_by_a_look_that_began_long_ago_though_it_was_handed_in_just_now() -> None:
    scene = Scene(queue=1)
    s = scene.waits(0)
    effect = decide(s).effect
    assert isinstance(effect, TakeSlot)
    wish = scene.desk.hand_in(s, effect, decide, read_at=scene.clock.monotonic() - TOO_OLD - 0.1)
    scene.desk.write()
    assert scene.out() == []
    with pytest.raises(Conflict):
        wish.result()


def test_a_slot_is_freed_however_long_that_waited() -> None:
    """An API server that takes seconds for a write must not keep slots (law 8): the record is read again."""
    scene = Scene(queue=0, slots=(slot("node-1", "record-1"),))
    wish = scene.frees(1)
    scene.clock.advance(TOO_OLD + 10)
    scene.desk.write()
    assert (scene.out(), done(wish)) == ([], True)


def test_a_gate_that_somebody_deleted_is_made_ready_before_anything_is_granted_on_it() -> None:
    scene = Scene(queue=1)
    wish = scene.takes(0)
    scene.gates.gate = None
    scene.desk.write()
    assert scene.out() == []
    instead = wish.result()
    assert instead is not None
    assert isinstance(instead.effect, Join)
    assert [line.node for line in scene.gate.open] == [wish.s.node_name], "it joins the queue that is new"


def test_a_census_goes_with_the_next_write_and_where_there_is_none_by_itself() -> None:
    scene = Scene(queue=1)
    age = timedelta(seconds=0.5)
    scene.desk.share(replace(census(3), at=NOW), age)
    scene.joins(7)
    scene.desk.write()
    assert len(scene.gates.written) == 1
    assert scene.gate.census == census(3)
    scene.desk.share(replace(census(4), at=NOW + age / 2), age)
    assert scene.desk.write()
    assert scene.gate.census == census(3), "it is younger by less than the age"
    scene.desk.share(replace(census(4), at=NOW + age), age)
    scene.gates.fails = [Conflict("first"), Conflict("second")]
    scene.desk.write()  # nobody waits for it
    scene.desk.share(replace(census(4), at=NOW + age), age)
    scene.desk.write()
    assert scene.gate.census == replace(census(4), at=NOW + age)
    assert not scene.desk.write()


def test_a_thread_with_other_nodes_to_look_after_lets_wishes_gather_for_a_moment() -> None:
    scene = Scene(queue=5)
    assert not scene.desk.is_due()
    scene.takes(0, budget=50)
    assert not scene.desk.is_due()
    scene.clock.advance(GATHER)
    assert scene.desk.is_due()
    scene.desk.write()
    for _ in range(MOST):
        scene.joins(7)
    assert scene.desk.is_due()


def test_threads_that_wait_for_their_wish_have_it_whoever_writes_it() -> None:
    scene = Scene(slots=tuple(slot(f"node-{i}", f"record-{i}") for i in range(40)))
    wishes = [scene.frees(i) for i in range(40)]
    results: list[object] = []
    threads = [
        threading.Thread(target=lambda wish=wish: results.append(scene.desk.carry_out(wish)))
        for wish in wishes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert results == [None] * 40
    assert (scene.out(), len(scene.gates.written)) == ([], 1)
