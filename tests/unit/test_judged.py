"""What many Nodes' conditions have alike is judged once, and strangers' long ones take no memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from recovery.catalog import own_fault, polarity
from recovery.decide.census import Kept
from recovery.judged import MOST, Judged
from recovery.model import ConditionRow, NodeView

GOOD = {"Ready": ("True", "KubeletReady")}


def node(number: int, conditions: dict[str, tuple[str, str]]) -> NodeView:
    return NodeView(f"node-{number}", f"u-{number}", "1", f"m-{number}", conditions=conditions)


def test_nodes_with_the_very_same_conditions_are_judged_once() -> None:
    asked: list[str] = []
    judged = Judged(lambda x: bool(asked.append(x.name)) or x.ready)
    assert [judged(node(i, GOOD)) for i in range(3)] == [True, True, True]
    assert asked == ["node-0"]
    assert not judged(node(4, {"Ready": ("False", "KubeletReady")}))


def test_no_others_are_taken_for_conditions_that_were_judged_before() -> None:
    judged = Judged(lambda x: x.ready)
    for i in range(3 * MOST):  # each is freed unless it is kept, and the next one may take its place
        status = "True" if i % 2 else "False"
        assert judged(node(i, {"Ready": (status, f"R{i}")})) is (status == "True")


def of_strangers(look_at: Callable[[NodeView], object]) -> int:
    """Bytes that are still in memory after Nodes with long reasons have come and gone."""
    gc.collect()
    tracemalloc.start()
    try:
        for i in range(200):
            long = f"{i}" + "x" * 100_000
            look_at(node(i, GOOD | {"NeuronHealth": ("False", long)}))
            look_at(node(i, GOOD | {long: ("False", "")}))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_nor_is_a_long_name_of_a_condition_with_what_it_says() -> None:
    own = ConditionRow("*", bad="False")
    assert (
        of_strangers(lambda x: [polarity(t, more) for t in x.conditions for more in ((), (own,))])
        < 1024 * 1024
    )


@pytest.mark.parametrize("kept", [True, False], ids=["the count that is kept", "one that is judged"])
def test_what_a_stranger_writes_at_length_is_not_remembered(kept: bool) -> None:
    def counted(new: NodeView) -> None:
        count.change(None, new)
        count.change(new, None)

    count = Kept(own_fault, [])
    assert of_strangers(counted if kept else Judged(lambda x: x.ready)) < 1024 * 1024
