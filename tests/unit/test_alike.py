"""Thousands of Nodes are held in little memory, and nothing of what they say is lost by that."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from recovery.kube import alike
from recovery.kube.alike import Conditions, Texts, turned_back
from recovery.kube.views import node_view
from recovery.model import Condition, NodeView

MOMENTS = [
    None,
    datetime(2026, 11, 23, 10, 15, 3, tzinfo=UTC),
    datetime(2026, 11, 23, 10, 15, 3, 250001, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),  # Go's zero time
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2106, 2, 7, 6, 28, 16, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]


@pytest.mark.parametrize("at", MOMENTS)
def test_a_condition_comes_back_as_it_was_put_in_to_the_microsecond(at: datetime | None) -> None:
    said = ("NeuronHealth", "True", "NeuronHasError_DMA_ERROR", "on device 3")
    row = Conditions(alike.said([said, said]), [at, None, None, at])
    assert row == (Condition(*said, at, None), Condition(*said, None, at))
    assert (len(row), row[1]) == (2, Condition(*said, None, at))
    assert (row.heartbeat("NeuronHealth"), row.heartbeat("Ready")) == (at, None)


WHOLE = datetime(2026, 11, 23, 10, 15, 3, tzinfo=UTC)
FAR = datetime(2300, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "times",
    [
        [WHOLE] * 28,
        [WHOLE] * 27 + [None],
        [WHOLE, WHOLE + timedelta(hours=3)],
        [WHOLE.astimezone(timezone(timedelta(hours=-5))), WHOLE],
        [None] * 4 + [FAR] * 5 + [WHOLE],  # as long, as msgspec writes them, as ten whole seconds
        [*MOMENTS, WHOLE],
    ],
    ids=["whole", "one unwritten", "one condition", "another zone", "as long as whole ones", "of each kind"],
)
def test_all_times_of_a_node_come_back_whatever_is_among_them(times: list[datetime | None]) -> None:
    said = [(f"T{i}", "True", "", "") for i in range(len(times) // 2)]
    row = Conditions(alike.said(said), times)
    assert [at for c in row for at in (c.heartbeat, c.transition)] == times


LATER = datetime(2026, 11, 23, 10, 15, 4, tzinfo=UTC)
EARLIER = LATER - timedelta(seconds=1)


def a_view(status: str, at: datetime | None, machine: str = "m-0", packed: bool = True) -> NodeView:
    """A Node with two conditions; the second was renewed ``at``."""
    said = [("Ready", "True", "KubeletReady", ""), ("NeuronHealth", status, "DMA", "")]
    row = Conditions(alike.said(said), [LATER, LATER, at, LATER])
    return NodeView("n", "u", "1", machine, stated=row if packed else tuple(row))


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "written out"])
@pytest.mark.parametrize("status", ["True", "False"], ids=["the same", "another"])
@pytest.mark.parametrize("of_a_second", [0, 500_000], ids=["whole seconds", "others"])
def test_a_node_has_turned_back_where_a_heartbeat_did(status: str, packed: bool, of_a_second: int) -> None:
    now, then = LATER.replace(microsecond=of_a_second), EARLIER.replace(microsecond=of_a_second)
    was = a_view("True", now, packed=packed)
    assert turned_back(was, a_view(status, then))
    assert not turned_back(was, a_view(status, now))
    assert not turned_back(was, a_view(status, now + timedelta(seconds=1)))
    assert not turned_back(was, a_view(status, None))
    assert not turned_back(a_view("True", None, packed=packed), a_view(status, then))
    assert not turned_back(was, a_view(status, then, machine="m-9"))


def test_labels_of_one_node_never_show_on_another_with_the_same_keys() -> None:
    a, b = Texts({"zone": "a", "rack": "r1"}), Texts({"zone": "b", "rack": "r2"})
    assert (dict(a), dict(b)) == ({"zone": "a", "rack": "r1"}, {"zone": "b", "rack": "r2"})
    assert a != b
    assert a == {"rack": "r1", "zone": "a"}
    assert (a.get("none"), "zone" in a, "none" in a) == (None, True, False)


def node(number: int) -> dict[str, Any]:
    """A Node with fourteen conditions, each with a transition of its own, and twelve labels."""
    hour, second = number % 24, number % 60
    return {
        "metadata": {
            "name": f"node-{number}",
            "uid": f"{number:036d}",
            "labels": {f"example.com/label-{i}": f"value-{number % 7 * i}" for i in range(12)},
            "annotations": {"csi.volume.kubernetes.io/nodeid": f"i-{number:017x}"},
        },
        "status": {
            "nodeInfo": {"bootID": f"boot-{number:031d}", "kernelVersion": "6.1", "osImage": "Linux"},
            "conditions": [
                {
                    "type": f"Condition{i}",
                    "status": "False",
                    "reason": f"Condition{i}IsGood",
                    "message": f"condition {i} is as it should be, as far as its detector sees",
                    "lastHeartbeatTime": f"2026-11-23T10:15:{second:02d}Z",
                    "lastTransitionTime": f"2026-11-{1 + i:02d}T{hour:02d}:{number % 50:02d}:{second:02d}Z",
                }
                for i in range(14)
            ],
        },
    }


def views(count: int) -> list[NodeView]:
    return [node_view(node(number), whole=True) for number in range(count)]


def kept(make: Callable[[], object]) -> int:
    """Bytes that are in memory since ``make``, with what it returned. The smaller figure of two: the table of
    interned texts grows in leaps, and never in two tries."""
    found = []
    for _ in range(2):
        gc.collect()
        tracemalloc.start()
        try:
            held = make()
            gc.collect()
            found.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        del held
    return min(found)


def test_a_node_of_fourteen_conditions_takes_less_than_900_bytes() -> None:
    views(10)
    assert kept(lambda: views(2000)) / 2000 < 900


def test_what_csi_drivers_write_on_each_node_is_not_kept_and_what_most_have_alike_is_there_once() -> None:
    ours = {"noderecovery.dev/cordoned-by": "node-recovery"}
    a, b = (
        node_view({"metadata": {"name": x, "annotations": {"csi.volume.kubernetes.io/nodeid": x, **ours}}})
        for x in ("a", "b")
    )
    assert dict(a.annotations) == ours
    assert a.annotations is b.annotations


def test_what_a_stranger_writes_at_length_is_not_remembered_after_its_node() -> None:
    long, numbers = "x" * 100_000, itertools.count()
    views(10)

    def seen() -> None:
        for number in itertools.islice(numbers, 100):
            obj = node(number)
            for place in obj["status"]["conditions"]:
                place["message"] = place["reason"] = f"{number} {long}"
            obj["metadata"]["annotations"] = {f"{number}-{i}.{'y' * 200}/key": long for i in range(50)}
            obj["status"]["nodeInfo"]["kernelVersion"] = f"{number} {long}"
            node_view(obj, whole=True)

    assert kept(seen) < 1024 * 1024
