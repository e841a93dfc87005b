"""What the poller remembers of all series, from round to round."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import pytest

from recovery.agent.fleet.nodes import Nodes
from recovery.agent.fleet.prometheus import Poller
from recovery.errors import NoAnswer, Unreadable
from recovery.model import Bound, MetricRow, Named, NodeView
from recovery.report.metrics import Metrics
from recovery.signals.prometheus_answer import State
from tests.builders.nodes import node
from tests.builders.times import NOW

ASKED = 1_800_000_000.0
IB = MetricRow("ib", "ib_dev", "node", Bound(">", 0), Named("IbDev"), Named("IbDevBad"))
GPU = MetricRow("gpu", "gpu_lost", "node", Bound(">", 0), Named("Gpu"), Named("GpuLost"))


class Fleet:
    """Two nodes, a server and a clock."""

    def __init__(self, *rows: MetricRow) -> None:
        self.nodes = {name: node(name) for name in ("a", "b")}
        self.at = NOW
        self.values: list[tuple[dict[str, str], str]] = []
        self.error: Unreadable | None = None
        self.asked = 0
        self.changed: list[str] = []
        self.metrics = Metrics()
        self.poller = Poller(rows or (IB,), self, cast("Nodes", self), self.changed.append, self.metrics)

    def ask(self, query: str, at: float | None = None) -> list[Any]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        value = str(ASKED) if "timestamp" in query else ""
        return [{"metric": labels, "value": [ASKED, value or v]} for labels, v in self.values]

    def all(self) -> Iterator[NodeView]:
        return iter(self.nodes.values())

    def get(self, name: str) -> NodeView | None:
        return self.nodes.get(name)

    def now(self) -> Any:
        return self.at

    def known_since(self, name: str, boot_id: str) -> None:
        return None

    def booted_at(self, name: str) -> None:
        return None

    def silent(self) -> str:
        return ""

    def round(self, after: timedelta = timedelta(seconds=15), **values: str | None) -> None:
        """What the series of each node say now; None: it is gone."""
        self.at += after
        self.values = [({"node": name, "gpu": "0"}, v) for name, v in values.items() if v is not None]
        self.poller.once()

    def states(self, name: str) -> list[State]:
        return [s.state for s in self.poller.look(name, "").stated]

    def why(self) -> str:
        return self.poller.look("a", "").rows[0].why


HOUR = timedelta(hours=1)


def test_a_good_series_that_is_gone_for_an_hour_is_one_that_nobody_exports() -> None:
    f = Fleet()
    f.round(a="0", b="0")
    f.round(a="0", b=None)
    assert (f.states("b"), f.poller.anything("b"), f.changed) == ([State.UNKNOWN], True, ["b"])
    f.round(HOUR - timedelta(seconds=20), a="0")
    assert f.states("b") == [State.UNKNOWN]
    f.round(a="0")
    f.round(a="0")
    assert (f.states("b"), f.poller.anything("b")) == ([], False)


def test_a_bad_one_that_is_gone_is_not_forgotten_until_the_node_boots() -> None:
    f = Fleet()
    f.round(a="0", b="1")
    for _ in range(3):
        f.round(HOUR, a="0")
        assert f.states("b") == [State.UNKNOWN]
    f.nodes["b"] = node("b", boot_id="boot-2")
    f.round(a="0")
    f.round(HOUR, a="0")
    assert f.states("b") == []


def test_another_node_of_the_same_name_has_no_past() -> None:
    f = Fleet()
    f.round(a="0", b="1")
    f.nodes["b"] = node("b", uid="another")
    f.round(a="0")
    assert (f.states("b"), f.poller.anything("b")) == ([], False)


def test_an_answer_that_names_no_node_any_more_says_nothing_of_any() -> None:
    f = Fleet()
    f.round(a="0", b="0")
    f.round()
    assert f.why() == "the answer names no node; the one before named 2"
    assert f.states("a") == [State.GOOD]
    f.round(a="0", b="0")
    assert f.why() == ""


def test_a_first_answer_that_names_no_node_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The metric may be misspelt. A query that has only faults names none while all is well."""
    bad_alone = MetricRow("bad", "x > 0", "node", Bound(">", 0), Named("X"), Named("XBad"))
    f = Fleet(IB, bad_alone)
    f.round()
    f.round()
    assert [r.message for r in caplog.records] == [
        "Prometheus, row ib: the answer names no node, so it finds no fault"
    ]
    assert f.why() == ""


def test_of_two_series_of_one_device_the_worse_one_counts() -> None:
    for order in ((0, 1), (1, 0)):
        f = Fleet()
        both = [({"node": "a", "gpu": "0", "pod": pod}, v) for pod, v in (("x", "1"), ("y", "0"))]
        f.values = [both[i] for i in order]
        f.poller.once()
        assert f.states("a") == [State.BAD]


@pytest.mark.parametrize(("error", "asked"), [(NoAnswer("no connection"), 1), (Unreadable("422"), 2)])
def test_a_server_that_is_not_there_is_asked_once_a_round(error: Unreadable, asked: int) -> None:
    f = Fleet(IB, GPU)
    f.error = error
    f.round()
    assert f.asked == asked
    assert {w.why for w in f.poller.look("a", "").rows} == {error.reason}


def test_a_bug_of_the_poller_is_no_answer() -> None:
    f = Fleet()
    f.nodes["a"] = node("a")
    f.error = cast("Unreadable", RuntimeError("oops"))
    f.round()
    assert f.why() == "RuntimeError: oops"


def test_a_bad_one_that_says_nothing_and_is_then_gone_is_not_forgotten_either() -> None:
    f = Fleet()
    f.round(a="0", b="1")
    f.round(a="0", b="NaN")
    for _ in range(3):
        f.round(HOUR, a="0")
        assert f.states("b") == [State.UNKNOWN]
