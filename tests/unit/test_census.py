"""Who counts as sick."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from recovery.catalog import own_fault
from recovery.decide.census import count
from recovery.decide.diagnosis import SIGNAL_UNKNOWN
from recovery.decide.selector import LONGEST, identity
from recovery.model import Census, Fault, Marks, NodeView, Phase, Record
from tests.builders.faults import HANG, fault
from tests.builders.nodes import TYPE, ZONE, node
from tests.builders.policies import LADDER
from tests.builders.records import intent, record
from tests.builders.times import NOW

READY = {"Ready": ("True", "KubeletReady")}


def counted(nodes: list[NodeView], records: tuple[Record, ...] = ()) -> Census:
    return count(nodes, records, own_fault, [ZONE, TYPE], NOW)


def conditions(**more: tuple[str, str]) -> NodeView:
    return node(conditions=READY | more)


NODES: dict[str, tuple[NodeView, bool]] = {
    "Ready": (conditions(), False),
    "NotReady": (node(conditions={"Ready": ("False", "KubeletNotReady")}), True),
    "Ready unknown": (node(conditions={"Ready": ("Unknown", "NodeStatusUnknown")}), True),
    "no condition at all": (node(conditions={}), True),
    "catalogued and True": (conditions(NeuronHealth=("True", "NeuronHasError_DMA_ERROR")), True),
    "catalogued and False": (conditions(NeuronHealth=("False", "NeuronHasNoError")), False),
    "catalogued and Unknown": (conditions(NeuronHealth=("Unknown", "NoHeartbeat")), True),
    "catalogued type, new reason": (conditions(NeuronHealth=("True", "NeuronHasError_NEW")), True),
    "hang on collectives": (conditions(NeuronHealth=("True", HANG)), False),
    "not catalogued": (conditions(DiskPressure=("True", "KubeletHasDiskPressure")), False),
    "cordoned": (node(unschedulable=True), False),
}


@pytest.mark.parametrize("row", NODES)
def test_a_node_is_sick_by_what_its_conditions_say(row: str) -> None:
    view, sick = NODES[row]
    assert bool(counted([view]).sick) is sick


HUNG = (fault(HANG),)


def in_hands(it: Fault, handed_over: bool = True) -> dict[str, Any]:
    """A record of a hang, on a node that a person has for another fault."""
    known = (replace(it, handed_over=handed_over),)
    return {"phase": Phase.SUSPECT, "ladder": (), "faults": HUNG, "acknowledged": known}


RECORDS: dict[str, tuple[dict[str, Any], bool]] = {
    "suspect": ({"phase": Phase.SUSPECT}, True),
    "waiting": ({"phase": Phase.WAITING}, True),
    "recovering": ({"phase": Phase.RECOVERING}, True),
    "proving": ({"phase": Phase.PROVING}, True),
    "handed over": ({"phase": Phase.HANDED_OVER}, True),
    "recovered": ({"phase": Phase.RECOVERED}, False),
    "withdrawn": ({"phase": Phase.WITHDRAWN}, False),
    "superseded": ({"phase": Phase.SUPERSEDED}, False),
    "released": ({"phase": Phase.RELEASED}, False),
    "lost": ({"phase": Phase.LOST}, False),
    "hang only": ({"phase": Phase.SUSPECT, "ladder": (), "faults": HUNG}, False),
    "hang handed over": ({"phase": Phase.HANDED_OVER, "ladder": (), "faults": HUNG}, False),
    "hang and more": ({"phase": Phase.SUSPECT, "ladder": (), "faults": (*HUNG, fault())}, True),
    "hang under treatment": ({"phase": Phase.WAITING, "ladder": LADDER, "faults": HUNG}, True),
    "hang with marks": (
        {"phase": Phase.HANDED_OVER, "ladder": (), "faults": HUNG, "marks": Marks(True, True)},
        True,
    ),
    "hang with an intent": (
        {"phase": Phase.HANDED_OVER, "ladder": (), "faults": HUNG, "intent": intent()},
        True,
    ),
    "hang, and a treated one in a person's hands": (in_hands(fault("Odd", type="Odd", treated=True)), True),
    "hang, and one of its own in a person's hands": (in_hands(fault()), True),
    "hang, and silence in a person's hands": (in_hands(fault(SIGNAL_UNKNOWN, type=SIGNAL_UNKNOWN)), True),
    "hang, and a hang in a person's hands": (in_hands(fault(HANG, source="conditions")), False),
    "hang, and one that was released": (in_hands(fault(), handed_over=False), False),
    "hang, and one of another boot": (in_hands(fault(boot_id="boot-0")), False),
    "hang, and one of another machine": (in_hands(fault(machine="m-9")), False),
    "no fault named": ({"phase": Phase.HANDED_OVER, "ladder": (), "faults": ()}, True),
}


@pytest.mark.parametrize("row", RECORDS)
def test_a_node_is_sick_by_what_its_record_says(row: str) -> None:
    changes, sick = RECORDS[row]
    made = replace(record(), **changes)
    assert bool(counted([node()], (made,)).sick) is sick


def test_a_node_that_is_sick_twice_over_counts_once() -> None:
    view = conditions(NeuronHealth=("True", "NeuronHasError_DMA_ERROR"))
    assert counted([view], (record(),)).sick == ("node-0",)


def test_a_record_whose_node_is_gone_counts_in_numerator_and_denominator() -> None:
    gone = record(Phase.HANDED_OVER)
    found = counted([node("node-1"), node("node-2")], (gone,))
    assert (found.sick, found.population) == (("node-0",), 3)


def test_a_record_that_cannot_be_decoded_counts_for_a_node_that_is_there_and_for_no_other() -> None:
    """Whoever may write records could hold the brake for ever by names that nobody has."""
    nodes = [node("node-1"), node("node-2")]
    found = count(nodes, (), own_fault, [], NOW, ["node-1", *(f"made-up-{i}" for i in range(8))])
    assert (found.sick, found.population) == (("node-1",), 2)


def test_a_closed_record_whose_node_is_gone_counts_nowhere() -> None:
    found = counted([node("node-1")], (record(Phase.RECOVERED),))
    assert (found.sick, found.population) == ((), 1)


def test_each_labels_value_has_its_own_share() -> None:
    nodes = [
        node("node-0", labels={ZONE: "a", TYPE: "trn1"}),
        node("node-1", labels={ZONE: "b", TYPE: "trn1"}),
        node("node-2", labels={ZONE: "b"}),
    ]
    assert counted(nodes, (record(),)).by_label == {
        f"{TYPE}=trn1": (1, 2),
        f"{ZONE}=a": (1, 1),
        f"{ZONE}=b": (0, 2),
    }


def test_an_empty_fleet_has_nobody_sick() -> None:
    assert counted([]) == Census(NOW, 0, ())


def test_nodes_that_are_read_one_at_a_time_are_each_judged_by_their_own_conditions() -> None:
    def read() -> Iterator[NodeView]:
        for number in range(50):  # none is kept by whoever reads them, so the next may be where it was
            bad = number % 2 == 1
            yield replace(
                conditions(NeuronHealth=("True" if bad else "False", "NeuronHasError_DMA_ERROR")),
                name=f"node-{number}",
            )

    found = count(read(), (), own_fault, [], NOW)
    assert found.sick == tuple(sorted(f"node-{number}" for number in range(1, 50, 2)))


# ---------------------------------------------------------------- a population

GPU = {"pool": "gpu*"}


def in_pool(name: str, pool: str = "", *, sick: bool = False) -> NodeView:
    ready = ("False", "") if sick else ("True", "")
    labels = {ZONE: "a"} | ({"pool": pool} if pool else {})
    return replace(node(), name=name, labels=labels, conditions={"Ready": ready})


def of_gpus(nodes: list[NodeView], *records: Record) -> Census:
    return count(nodes, records, own_fault, [ZONE], NOW, (), GPU)


def test_only_the_nodes_of_the_population_are_counted_and_the_others_for_themselves() -> None:
    found = of_gpus(
        [
            in_pool("g-0", "gpu-a", sick=True),
            in_pool("g-1", "gpu-b"),
            in_pool("c-0", "cpu", sick=True),
            in_pool("c-1", "cpu", sick=True),
            in_pool("c-2"),
        ]
    )
    assert (found.sick, found.population, found.outside, found.nodes) == (("g-0",), 2, (2, 3), 5)
    assert found.by_label == {f"{ZONE}=a": (1, 2)}
    assert found.of == '{"pool":"gpu*"}'


@pytest.mark.parametrize(
    ("scopes", "sick", "population", "outside"),
    [
        (("fleet", "pool=gpu-a"), ("gone",), 2, (0, 0)),
        (("fleet", "pool=cpu"), (), 1, (1, 1)),
        (("fleet", f"{ZONE}=a"), ("gone",), 1, (0, 0)),
        ((), ("gone",), 1, (0, 0)),
    ],
    ids=["inside", "outside", "not told", "nothing told"],
)
def test_a_node_that_is_gone_is_where_its_record_says(
    scopes: tuple[str, ...], sick: tuple[str, ...], population: int, outside: tuple[int, int]
) -> None:
    gone = replace(record(Phase.RECOVERING), node="gone", scopes=scopes)
    found = of_gpus([in_pool("g-0", "gpu-a")], gone)
    assert (found.sick, found.population, found.outside) == (sick, population, outside)


@pytest.mark.parametrize(
    ("pool", "sick", "outside"), [("", ("g-1",), (0, 0)), ("gpu-b", ("g-1",), (0, 0)), ("cpu", (), (1, 1))]
)
def test_of_a_node_that_has_lost_a_label_its_record_tells_it(
    pool: str, sick: tuple[str, ...], outside: tuple[int, int]
) -> None:
    """Where the Node has the label, that counts."""
    out = replace(record(Phase.RECOVERING), node="g-1", scopes=("fleet", "pool=gpu-a", f"{ZONE}=b"))
    lost = replace(in_pool("g-1"), labels={"pool": pool} if pool else {})
    found = of_gpus([in_pool("g-0", "gpu-a"), lost], out)
    assert (found.sick, found.outside) == (sick, outside)
    assert found.by_label.get(f"{ZONE}=b") == (None if pool == "cpu" else (1, 1))


def test_the_same_selector_is_known_again_however_it_is_written() -> None:
    assert identity({"a": "1", "b": "2"}) == identity({"b": "2", "a": "1"})
    assert len({identity(x) for x in ({}, {"a": "1"}, {"a": "1,b=2"}, {"a": "1", "b": "2"})}) == 4
    assert len(identity({"a": "x" * 5000})) <= LONGEST
