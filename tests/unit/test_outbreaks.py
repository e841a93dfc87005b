"""What the leader remembers of faults that began together, when a whole rack falls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import cast

import pytest
from recovery_testkit.clock import FakeClock

from recovery.agent.fleet import outbreaks
from recovery.agent.fleet.nodes import Nodes
from recovery.agent.fleet.outbreaks import Outbreaks
from recovery.decide.correlated import Case, Shared, Trait, shared
from recovery.model import Kind, NodeView, PodView
from tests.builders.faults import DMA, fault
from tests.builders.nodes import node
from tests.builders.times import HOUR, NOW


class Fleet:
    """Nodes in racks of twenty."""

    looks = 0

    def __init__(self, count: int) -> None:
        self.nodes = {f"node-{i}": node(f"node-{i}", labels={"rack": f"r{i // 20}"}) for i in range(count)}

    def now(self) -> datetime:
        return NOW

    def all(self) -> Iterator[NodeView]:
        self.looks += 1
        return iter(self.nodes.values())

    def get(self, name: str) -> NodeView | None:
        return self.nodes.get(name)


class NoPods:
    def pods_lately(self, node: str) -> tuple[PodView, ...]:
        return ()

    def nodes_running(self, namespace: str, label: str, value: str) -> frozenset[str]:
        return frozenset()


def said(known: Outbreaks, machine: str) -> str:
    return known.shared_by(machine, [DMA]).get(DMA, "")


def test_what_a_rack_shares_is_found_out_once_for_all_its_machines_and_anew_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found_out: list[int] = []

    def counting(cases: tuple[Case, ...], have: Mapping[Trait, int], population: int) -> Shared | None:
        found_out.append(len(cases))
        return shared(cases, have, population)

    monkeypatch.setattr(outbreaks, "shared", counting)
    known = Outbreaks(cast(Nodes, Fleet(200)), FakeClock(), NoPods, {})
    rack = [f"node-{i}" for i in range(10)]
    for name in rack:
        known.tell(name, f"m of {name}", [fault(DMA)])
    for _ in range(3):
        for name in rack:
            known.tell(name, f"m of {name}", [fault(DMA)])
            assert "10 of the 10 machines have rack=r0, as 20 of 200 do" in said(known, f"m of {name}")
    assert found_out == [10]
    known.tell("node-10", "m of node-10", [fault(DMA)])
    assert "11 of the 11 machines have rack=r0" in said(known, "m of node-0")
    assert found_out == [10, 11]


class Counted(dict[str, object]):
    """The cases of a reason, which are gone through only where that is needed."""

    looks = 0

    def values(self):  # type: ignore[no-untyped-def]
        Counted.looks += 1
        return super().values()


def test_all_cases_are_gone_through_once_for_all_while_none_changes() -> None:
    clock = FakeClock()
    known = Outbreaks(cast(Nodes, Fleet(200)), clock, NoPods, {})
    Counted.looks = 0
    known._cases[DMA] = cast(dict[str, outbreaks._Known], Counted())
    for i in range(10):
        known.tell(f"node-{i}", f"m-{i}", [fault(DMA)])
    first = said(known, "m-0")
    assert "10 of the 10 machines have rack=r0" in first
    for i in range(10):
        known.tell(f"node-{i}", f"m-{i}", [fault(DMA)])  # as before
        assert said(known, f"m-{i}") == first
    assert Counted.looks == 1
    known.tell("node-10", "m-10", [fault(DMA)])
    assert "11 of the 11 machines have rack=r0" in said(known, "m-0")
    assert Counted.looks == 2
    clock.advance(outbreaks.ANSWERED_AGAIN + 1)
    said(known, "m-0")
    assert Counted.looks == 3


def test_a_machine_that_fell_at_another_time_is_not_told_what_the_others_share() -> None:
    known = Outbreaks(cast(Nodes, Fleet(200)), FakeClock(), NoPods, {})
    for i in range(10):
        known.tell(f"node-{i}", f"m-{i}", [fault(DMA)])
    known.tell("node-11", "m-11", [fault(DMA, since=NOW - HOUR)])
    for _ in range(2):
        assert "10 of the 10 machines have rack=r0" in said(known, "m-0")
        assert said(known, "m-11") == ""


def test_machines_that_had_the_fault_once_before_fall_together_with_the_others_this_time() -> None:
    clock = FakeClock()
    known = Outbreaks(cast(Nodes, Fleet(200)), clock, NoPods, {})
    for i in range(2):  # too few to have one cause: they are rebooted, and are well again
        known.tell(f"node-{i}", f"m-{i}", [fault(DMA)])
    clock.advance(1800)
    later = NOW + timedelta(minutes=30)
    for i in range(4):  # now four machines of the rack fall in one moment
        known.tell(f"node-{i}", f"m-{i}", [fault(DMA, since=later)])
    for i in range(4):
        assert "4 of the 4 machines have rack=r0" in said(known, f"m-{i}")


def test_what_is_counted_falls_together_where_it_was_counted_often_enough_whenever_it_was_counted_first() -> (
    None
):
    known = Outbreaks(cast(Nodes, Fleet(200)), FakeClock(), NoPods, {})
    met = NOW.timestamp()
    for i in range(4):  # a pod that was killed hours before; now each node has too many
        counted = fault(DMA, kind=Kind.EDGE, since=NOW - i * HOUR, counter=met + i)
        known.tell(f"node-{i}", f"m-{i}", [counted])
    for i in range(4):
        assert "4 of the 4 machines have rack=r0" in said(known, f"m-{i}")


def test_while_the_cases_are_not_known_every_fault_may_be_one_of_many() -> None:
    known = Outbreaks(cast(Nodes, Fleet(200)), FakeClock(), NoPods, {})
    known.unknown = "the records could not be listed"
    assert said(known, "m-0") == (
        f"whether {DMA} has one cause on many machines is not known: the records could not be listed"
    )
    known.unknown = ""
    assert said(known, "m-0") == ""


def test_no_machine_waits_for_a_count_of_all_nodes_that_another_thread_makes_again_and_again() -> None:
    clock, fleet = FakeClock(), Fleet(200)
    known = Outbreaks(cast(Nodes, fleet), clock, NoPods, {})
    known.tell("node-0", "m-0", [fault(DMA)])
    known.count()
    assert fleet.looks == 0, "one machine may share nothing"
    known.tell("node-1", "m-1", [fault(DMA)])
    known.count()
    for i in range(2, 30):
        known.tell(f"node-{i}", f"m-{i}", [fault(DMA)])
        assert "rack=r0, as 20 of 200 do" in said(known, "m-0") or i < 3
        clock.advance(outbreaks.LOOKS_EVERY)
        known.count()
    assert fleet.looks == 5
    fleet.nodes |= Fleet(400).nodes
    clock.advance(outbreaks.COUNTED_AGAIN + 1)
    known.count()
    assert "as 20 of 400 do" in said(known, "m-0")


def test_where_no_thread_has_counted_for_minutes_who_asks_counts() -> None:
    clock, fleet = FakeClock(), Fleet(200)
    known = Outbreaks(cast(Nodes, fleet), clock, NoPods, {})
    for i in range(5):
        known.tell(f"node-{i}", f"m-{i}", [fault(DMA)])
    said(known, "m-0")
    fleet.nodes |= Fleet(400).nodes
    clock.advance(outbreaks.COUNTED_LATE + 1)
    assert "as 20 of 400 do" in said(known, "m-0")


def test_what_fell_long_ago_has_nobody_count() -> None:
    fleet = Fleet(200)
    known = Outbreaks(cast(Nodes, fleet), FakeClock(), NoPods, {})
    for i in range(5):
        known.tell(f"node-{i}", f"m-{i}", [fault(DMA, since=NOW - HOUR)])
    known.count()
    assert fleet.looks == 0
