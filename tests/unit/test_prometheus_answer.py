"""What a Prometheus server's answer says: values, their age, types and reasons, and what is no answer at
all."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from recovery.catalog import metric_rows
from recovery.errors import Unreadable
from recovery.model import Bound, Ends, Latch, MetricRow, Named
from recovery.model.sources import looks_back
from recovery.signals.prometheus_answer import LOOKBACK, State, ages, read, time_of
from recovery.units import parse_bound
from tests.builders.times import NOW, SECOND

ASKED = 1_800_000_000.0
IB = MetricRow(
    "ib", "max by (node, device) (ib_dev)", "node", Bound(">", 0), Named("IbDev"), Named("IbDevBad")
)


def series(value: Any, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [ASKED, value]}


def only(value: Any, *, age: float = 5.0, row: MetricRow = IB, **labels: str) -> tuple[State, str]:
    (found,) = read(row, [series(value, **labels)], ages([series(str(ASKED - age), **labels)]), NOW)
    return found.stated.state, found.stated.said


@pytest.mark.parametrize(
    ("text", "holding", "not_holding"),
    [
        ("> 0", (1, 0.1, math.inf), (0, -1)),
        (">= 5", (5, 6), (4.9,)),
        ("== 1", (1,), (0, 2)),
        ("!= 0", (1, -1), (0,)),
        ("<= 4", (4, -3), (4.01,)),
        ("<-1.5", (-2,), (-1.5, 0)),
    ],
)
def test_a_comparison_holds_or_not(
    text: str, holding: tuple[float, ...], not_holding: tuple[float, ...]
) -> None:
    bound = parse_bound(text)
    assert all(bound.holds(x) for x in holding)
    assert not any(bound.holds(x) for x in not_holding)


def test_a_sample_is_older_by_what_the_answer_is_late() -> None:
    times = ages([series(str(ASKED - 20))])
    for old, at in ((times, 20), (None, 300)):
        (found,) = read(IB, [series(1)], old, NOW, 100.0)
        assert (found.stated.state, found.stated.at) == (State.BAD, NOW - (at + 100) * SECOND)
        (found,) = read(IB, [series(1)], old, NOW, 200.0)
        assert found.stated.state is State.UNKNOWN


@pytest.mark.parametrize(
    "text", ["", "0", "=> 0", "> x", "= 1", "> 1e3", "> 0 ", " > 0", "> 0; < 3", "> nan"]
)
def test_what_is_no_comparison_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_bound(text)


@pytest.mark.parametrize(
    ("value", "age", "state"),
    [
        ("1", 5, State.BAD),
        ("0", 5, State.GOOD),
        ("1", 180, State.BAD),
        ("1", 181, State.UNKNOWN),
        ("0", 181, State.UNKNOWN),
        ("NaN", 5, State.UNKNOWN),
        ("+Inf", 5, State.UNKNOWN),
        ("many", 5, State.UNKNOWN),
        (None, 5, State.UNKNOWN),
        ("0", math.nan, State.UNKNOWN),
    ],
)
def test_a_value_is_good_or_bad_or_says_nothing(value: Any, age: float, state: State) -> None:
    assert only(value, age=age, node="node-0")[0] is state


def test_a_value_whose_own_time_is_missing_says_nothing() -> None:
    (found,) = read(IB, [series("1", node="node-0")], ages([series("1", node="node-1")]), NOW)
    assert (found.stated.state, found.stated.said) == (State.UNKNOWN, "the time of its sample is not known")


def test_a_sample_is_as_old_as_it_says_by_the_servers_own_clock() -> None:
    (found,) = read(IB, [series("1", node="n")], ages([series(str(ASKED - 30), node="n")]), NOW)
    assert found.stated.at == NOW - 30 * SECOND
    (found,) = read(IB, [series("1", node="n")], None, NOW)
    assert found.stated.at == NOW - LOOKBACK


def test_type_and_reason_may_be_what_the_series_labels_say() -> None:
    (npd,) = metric_rows()["npd"]
    labels = {"node": "n", "instance": "10.0.0.1:20257", "type": "GpuCount", "reason": "GpuCountBad"}
    (found,) = read(npd, [series("1", **labels)], ages([series(str(ASKED), **labels)]), NOW)
    assert found.stated.pair == ("GpuCount", "GpuCountBad")
    assert (found.node, found.instance, found.stated.device) == ("n", "10.0.0.1:20257", "")
    assert read(npd, [series("1", node="n", type="GpuCount")], {}, NOW) == []


def test_what_is_left_of_the_labels_is_the_device() -> None:
    (found,) = read(IB, [series("1", node="n", device="mlx5_0", pod="x", job="y")], None, NOW)
    assert found.stated.device == "device=mlx5_0"


@pytest.mark.parametrize(
    "result",
    [
        [ASKED, "1"],
        ["x"],
        [{}],
        [{"metric": {}}],
        [{"metric": {"a": 1}, "value": [ASKED, "1"]}],
        [{"metric": {}, "value": ["x", "1"]}],
        [{"metric": {}, "values": [[ASKED, "1"]]}],
        [{"metric": {}, "histogram": [ASKED, {}]}],
    ],
)
def test_what_is_no_instant_vector_is_no_answer(result: list[Any]) -> None:
    with pytest.raises(Unreadable):
        read(IB, result, None, NOW)


@pytest.mark.parametrize(
    ("query", "when"),
    [
        ("up", "timestamp(up)"),
        ('ALERTS{alertstate="firing"}', 'timestamp(ALERTS{alertstate="firing"})'),
        ('a{b="}{",c=~\'"x\'}', 'timestamp(a{b="}{",c=~\'"x\'})'),
        ("max by (node, gpu) (x)", "min by (node, gpu) (timestamp(x))"),
        ('sum by(node)(x{a="b"})', 'min by (node) (timestamp(x{a="b"}))'),
        ("x > 0", ""),
        ("max by (node) (rate(x[5m]))", ""),
        ("max by (node) (x) + max by (node) (y)", ""),
        ("a{b='c'} or d", ""),
        ("x offset 1h", ""),
        ("x[5m]", ""),
    ],
)
def test_the_samples_time_is_asked_for_where_the_query_shows_them(query: str, when: str) -> None:
    assert time_of(query) == when


@pytest.mark.parametrize(
    ("query", "minutes"),
    [
        ("max by (node) (x)", 0),
        ('max by (node) (x{job=~"[5m]|offset 5m"})', 0),
        ("max by (node) (increase(x[30m]))", 30),
        ("max by (node) (max_over_time(rate(x[5m])[1h30m:1m]))", 95),
        ("max by (node) (changes(x[ 600 ]) offset 10m)", 20),
        ("max by (node) (x offset -5m)", 0),
        ("max by (node) (rate(x[30m]) / rate(y[20m] OFFSET 5m))", 30),
        ("max by (node) (rate(x[5m]) > 0 unless on (node) (y offset 1h)[10m:])", 70),
        ("max by (node) (x[5m] / (y[30m]))", 30),
    ],
)
def test_how_far_a_query_looks_back_is_its_ranges_and_offsets(query: str, minutes: int) -> None:
    assert looks_back(query) == timedelta(minutes=minutes)


def test_no_ready_made_row_looks_back() -> None:
    assert {row.looks_back for rows in metric_rows().values() for row in rows} == {timedelta(0)}


def test_all_ready_made_rows_say_how_old_their_samples_are() -> None:
    rows = [row for rows in metric_rows().values() for row in rows]
    assert {row.name for row in rows} == {"npd", "dcgm", "autopilot", "alerts"}
    assert all(time_of(row.query) for row in rows)
    assert all(row.node in row.query or row.of_alerts for row in rows)


def test_an_alert_takes_nothing_back_and_a_gauge_does() -> None:
    (alerts,) = metric_rows()["alerts"]
    assert alerts.of_alerts
    assert not alerts.takes_back
    assert IB.takes_back
    assert not MetricRow(**{**_fields(IB), "ends": Ends(Latch.PROOF)}).takes_back


def _fields(row: MetricRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}
