"""What the reader asks Loki for from round to round, and what it remembers of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from recovery.agent.fleet import loki
from recovery.agent.fleet.loki import EVERY, LATE_EVERY, LINES, LOOK_BACK, OVERLAP, PAGES, LogReader
from recovery.agent.fleet.nodes import Nodes
from recovery.errors import NoAnswer, Unreadable
from recovery.model import LogChoice, NodeView
from recovery.report.metrics import Metrics
from recovery.signals.loki import observe
from tests.builders.nodes import node, ready_since
from tests.builders.times import NOW
from tests.stories.loki_server import xid

ROUND, SECOND = timedelta(seconds=EVERY), timedelta(seconds=1)


class Fleet:
    """Two nodes, a Loki and a clock."""

    def __init__(self, counted: Callable[[str], bool] = lambda _: True) -> None:
        self.nodes = {name: node(name) for name in ("a", "b")}
        self.at = NOW
        self.known = NOW - timedelta(hours=1)
        self.told: datetime | None = None
        self.wrote: tuple[datetime, datetime] | None = None
        self.lines: list[tuple[datetime, str, str]] = []
        self.error: Exception | None = None
        self.windows: list[tuple[timedelta, timedelta]] = []
        self.changed: list[str] = []
        self.metrics = Metrics()
        choice = LogChoice("{}", "n")
        nodes = cast("Nodes", self)
        self.reader = LogReader(choice, self, nodes, self.changed.append, self.metrics, counted)

    # the server

    def ask(self, query: str, start: int, end: int, limit: int) -> Any:
        assert query == '{} |= "Xid (PCI:"'
        self.windows.append((self.at - _time(start), self.at - _time(end)))
        if self.error is not None:
            raise self.error
        found = sorted((loki._ns(at), name, text) for at, name, text in self.lines)
        found = [x for x in found if start <= x[0] < end][:limit]
        return [{"stream": {"n": name}, "values": [[str(ns), text]]} for ns, name, text in found]

    # the Nodes

    def all(self) -> Iterator[NodeView]:
        return iter(self.nodes.values())

    def get(self, name: str) -> NodeView | None:
        return self.nodes.get(name)

    def now(self) -> datetime:
        return self.at

    def known_since(self, name: str, boot_id: str) -> datetime:
        return self.known

    def booted_at(self, name: str) -> datetime | None:
        return self.told or self.nodes[name].ready_since

    def between(self, name: str) -> tuple[datetime, datetime] | None:
        return self.wrote

    def told_at(self, name: str) -> datetime | None:
        return self.told

    def silent(self) -> str:
        return ""

    # what happens

    def log(self, text: str, name: str = "a", ago: timedelta = SECOND) -> None:
        self.lines.append((self.at - ago, name, text))

    def round(self, after: timedelta = ROUND) -> None:
        self.at += after
        self.windows.clear()
        self.reader.once()

    def faults(self, name: str = "a") -> list[str]:
        return [s.reason for s in self.reader.look(name, "").stated]

    def why(self) -> str:
        return observe(self.reader.look("a", "")).unknown.get("*", "")


def _time(ns: int) -> datetime:
    return loki._moment(ns)


def test_each_round_asks_from_the_end_of_the_one_before_with_an_overlap() -> None:
    f = Fleet()
    f.round()
    assert f.windows == [(LOOK_BACK, timedelta(0))]
    f.round()
    assert f.windows == [(ROUND + OVERLAP, timedelta(0))]


def test_a_line_that_is_read_twice_is_one_and_two_of_one_moment_are_two() -> None:
    f = Fleet()
    for pid in (1, 2):  # without the kernel's own time
        f.log(f"NVRM: Xid (PCI:0000:4e:00): 31, pid={pid}", ago=timedelta(0))
    for _ in range(3):
        f.round()
    (stated,) = f.reader.look("a", "").stated
    assert (stated.reason, len(stated.times)) == ("GpuXid31", 2)


def test_a_line_that_is_read_before_its_node_is_known_is_told_once_and_counts_then() -> None:
    f = Fleet()
    f.log(xid(79), "c", ago=timedelta(0))
    for _ in range(2):
        f.round()
    assert f.metrics.registry.get_sample_value("node_recovery_loki_unresolved_lines_total") == 1
    f.nodes["c"] = node("c")
    f.round()
    assert f.faults("c") == ["GpuXid79"]


@pytest.mark.parametrize(
    "before",
    [
        "[Sun Nov 29 13:51:41 2026] ",
        "2026-11-29T13:51:41,123456+00:00 ",
        "Nov 29 13:51:41 gpu-1 kernel: [ 12.3] ",
        "2026-11-29T13:51:41.123Z stderr F [ 12.3] ",
        'overlayfs: unrecognized mount option "',
        "overlayfs: unrecognized mount option\n",
    ],
)
def test_a_line_in_a_form_that_is_not_read_is_no_fault_and_is_told(
    before: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It was dropped without a word: a broken GPU was never found. Some of these a tenant may write."""
    f = Fleet()
    for pid in (1, 2):
        f.log(f"{before}NVRM: Xid (PCI:0000:4e:00): 79, pid={pid}")
    f.round()
    f.round()
    assert f.faults() == []
    assert f.metrics.registry.get_sample_value("node_recovery_loki_unresolved_lines_total") == 2
    (told,) = [r.message for r in caplog.records]
    assert told.startswith("Loki: a: a line that names an XID is in a form that is not read: ")
    assert "79, pid=1" in told
    assert "\n" not in told


def test_of_an_entry_of_several_lines_the_first_is_read_and_the_others_are_told() -> None:
    f = Fleet()
    f.log(f"{xid(79)}\n{xid(48)}")
    f.log("NVRM: Xid (PCI:0000:4e:00): 31, pid=1\n")
    f.log("[ 12.3] nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 28006, a mere note")
    f.round()
    assert sorted(f.faults()) == ["GpuXid31", "GpuXid79"]
    assert f.metrics.registry.get_sample_value("node_recovery_loki_unresolved_lines_total") == 1


def test_what_no_rule_counts_is_not_kept() -> None:
    f = Fleet(counted=lambda reason: reason == "GpuXid13")
    for code in (13, 31, 999, 79):
        f.log(xid(code, 3600 + code))
    f.round()
    assert sorted(f.faults()) == ["GpuXid13", "GpuXid79"]


def test_what_is_shipped_late_is_found_by_a_look_at_all_of_the_last_quarter() -> None:
    f = Fleet()
    for _ in range(10):
        f.round()
    f.log(xid(79), ago=5 * timedelta(minutes=1))
    f.round()
    assert f.faults() == []
    for _ in range(int(LATE_EVERY / ROUND)):
        f.round()
    assert f.faults() == ["GpuXid79"]


def test_a_full_answer_is_followed_by_the_next_page() -> None:
    f = Fleet()
    f.round()
    for n in range(2 * LINES + 500):
        f.log(xid(31, n), ago=timedelta(milliseconds=n))
    f.log(xid(79), "b", ago=timedelta(0))
    f.round()
    assert len(f.windows) == 3
    assert (f.faults("b"), f.why()) == (["GpuXid79"], "")


def test_more_than_one_round_reads_is_told_and_read_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loki, "LINES", 10)
    f = Fleet()
    f.round()
    for n in range(10 * (PAGES + 3)):
        f.log(xid(31, n), ago=timedelta(milliseconds=1000 - n))
    f.log(xid(79), "b", ago=timedelta(0))
    f.round()
    assert (len(f.windows), f.faults("b")) == (PAGES, [])
    assert f.why().startswith("Loki: there are more lines than are read in a round; all up to ")
    f.round(SECOND)
    assert (f.faults("b"), f.why()) == (["GpuXid79"], "")


def test_more_lines_of_one_moment_than_one_answer_has_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loki, "LINES", 10)
    f = Fleet()
    f.round()
    for n in range(25):
        f.log(xid(31, n))
    f.log(xid(79), "b", ago=timedelta(0))
    f.round()
    assert f.faults("b") == ["GpuXid79"]
    assert "more than 10 lines at " in f.why()


def test_a_server_that_was_down_for_less_than_a_quarter_has_lost_nothing() -> None:
    f = Fleet()
    f.round()
    f.log(xid(79))
    f.error = NoAnswer("no connection")
    f.round(LOOK_BACK - timedelta(minutes=1))
    assert (f.faults(), f.why()) == ([], "Loki: no connection")
    f.error = None
    f.round()
    assert (f.faults(), f.why()) == (["GpuXid79"], "")


def test_what_was_not_read_for_longer_is_a_gap_that_is_told_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    f = Fleet()
    f.round()
    f.error = NoAnswer("no connection")
    f.round()
    f.error = None
    f.round(timedelta(minutes=20))
    gap = "Loki: the lines from 03:00:15Z to 03:05:30Z were not read: 15 min are the most that is looked back"
    assert f.why() == gap
    assert f.windows == [(LOOK_BACK, timedelta(0))]
    assert [r.getMessage() for r in caplog.records].count(gap) == 1
    reading = observe(f.reader.look("a", ""))
    assert reading.unknown_since["*"] == NOW + 2 * ROUND, "since the outage began"
    f.round(timedelta(minutes=1))
    assert f.why() == gap
    for _ in range(70):
        f.round()
    assert f.why() == ""


def test_a_server_that_is_down_from_the_first_round_on_leaves_a_gap_as_well() -> None:
    f = Fleet()
    f.error = NoAnswer("no connection")
    f.round()
    f.error = None
    f.round(LOOK_BACK + timedelta(minutes=5))
    assert "were not read" in f.why()


@pytest.mark.parametrize("error", [Unreadable("422"), RuntimeError("oops")])
def test_an_error_ends_no_round_and_takes_back_nothing(error: Exception) -> None:
    f = Fleet()
    f.log(xid(79))
    f.round()
    f.error = error
    f.round(timedelta(minutes=5))
    assert f.faults() == ["GpuXid79"]
    assert f.why() in ("Loki: 422", "Loki: RuntimeError: oops")
    assert f.metrics.registry.get_sample_value("node_recovery_loki_unknown") == 1


def test_a_boot_ends_what_was_stated_before_it_but_not_what_was_read_too_early() -> None:
    f = Fleet()
    f.log(xid(79), "a")
    f.log(xid(79), "b")
    f.round()
    f.log(xid(119, 5.0), "b")
    f.known = f.at - 2 * SECOND
    for name in ("a", "b"):
        f.nodes[name] = replace(f.nodes[name], boot_id="boot-2")
    assert f.faults("a") == []
    assert f.reader.look("a", "").behind == "the log was not read yet since the node was booted"
    f.round()
    assert (f.faults("a"), f.faults("b")) == ([], ["GpuXid119"])


def test_what_was_read_before_the_watch_showed_the_boot_is_kept() -> None:
    f = Fleet()
    f.log(xid(119, 5.0), ago=SECOND)
    f.round()
    f.nodes["a"] = replace(f.nodes["a"], boot_id="boot-2")
    f.known = f.lines[0][0] - SECOND
    f.round()
    assert f.faults() == ["GpuXid119"]


def test_a_line_of_before_the_boot_is_no_fault_but_of_before_the_reader_it_may_be() -> None:
    f = Fleet()
    f.known = NOW
    f.nodes["a"] = replace(f.nodes["a"], stated=ready_since(NOW - timedelta(hours=3)))
    f.log(xid(79), "a", ago=timedelta(minutes=5))
    f.log(xid(79), "b", ago=timedelta(minutes=5))
    f.round()
    assert (f.faults("a"), f.faults("b")) == (["GpuXid79"], [])
    assert f.reader.look("a", "").stated[0].anew is None


def test_what_is_printed_once_more_by_a_dmesg_that_is_started_anew_is_no_statement() -> None:
    f = Fleet()
    f.round()
    f.log(xid(79, 3700.0))
    f.round()
    before = f.reader.look("a", "").stated
    assert before
    f.at += timedelta(minutes=10)
    for up in (3690.0, 3700.0):
        f.log(xid(79, up))
    f.round()
    assert f.reader.look("a", "").stated == before


def test_what_comes_again_after_a_while_is_news_and_what_comes_soon_is_not() -> None:
    f = Fleet()
    f.round()
    f.log(xid(79, 3700.0))
    f.round()
    reading = observe(f.reader.look("a", ""))
    first = reading.problems[0].stated
    f.changed.clear()
    f.log(xid(79, 3715.0))
    f.round()
    assert observe(f.reader.look("a", "")).problems[0].stated == first
    assert f.changed == []
    for _ in range(61):
        f.round()
    assert observe(f.reader.look("a", "")).gone == {("GpuXid", "GpuXid79")}
    f.log(xid(79, 9000.0))
    f.round()
    reading = observe(f.reader.look("a", ""))
    assert (reading.gone, reading.problems[0].stated) == (frozenset(), f.lines[-1][0])
    assert f.changed == ["a"]


def test_what_is_only_counted_is_forgotten_after_a_day() -> None:
    f = Fleet()
    f.log(xid(31))
    f.round()
    assert f.reader.anything("a")
    f.reader._read_to = loki._ns(f.at + timedelta(hours=25))
    f.round(timedelta(hours=25))
    assert not f.reader.anything("a")


def test_what_was_seen_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loki, "MOST_SEEN", 50)
    f = Fleet()
    for _ in range(25):
        for n in range(5):
            f.log(xid(31, n), ago=timedelta(milliseconds=n))
        f.round()
        assert len(f.reader._seen) <= 50
    assert f.windows == [(ROUND + OVERLAP, timedelta(0))], "no look at all of the last quarter"


def test_a_reading_never_takes_back_and_is_as_old_as_the_last_answer() -> None:
    f = Fleet()
    f.log(xid(79))
    f.round()
    f.lines.clear()
    for _ in range(100):
        f.round()
    reading = observe(f.reader.look("a", ""))
    assert (reading.cleared, [p.latched for p in reading.problems]) == (frozenset(), [True])
    f.at += timedelta(minutes=2)
    reading = observe(f.reader.look("a", ""))
    assert reading.unknown["*"].startswith("Loki: last answered at")
    assert reading.problems[0].fresh_until < reading.at


def test_what_happened_now_and_then_in_weeks_is_not_counted_as_of_now() -> None:
    f = Fleet()
    f.known = began = f.at - timedelta(days=30)
    f.round()
    lines = []
    for _ in range(5):  # one every other day; each is forgotten after a day
        lines.append(xid(31, (f.at - began).total_seconds()))
        f.log(lines[-1])
        f.round()
        assert f.faults("a") == ["GpuXid31"]
        f.at += timedelta(days=2)
        f.round()
    assert f.faults("a") == []
    for line in lines:  # a dmesg that is started anew prints them all once more
        f.log(line)
    f.round()
    assert f.faults("a") == []


@pytest.mark.parametrize("ahead", [timedelta(minutes=10), timedelta(hours=1)])
def test_a_time_of_the_api_server_that_is_set_back_stops_no_reading(ahead: timedelta) -> None:
    """Loki refuses a question whose end is before its start."""
    f = Fleet()
    f.round()
    f.round(ahead)
    f.lines.append((f.at - ahead, "a", xid(79)))
    f.round()
    f.at -= ahead
    f.lines.append((f.at, "b", xid(79)))
    f.round()
    assert all(start > end for start, end in f.windows)
    assert (f.faults("a"), f.faults("b")) == (["GpuXid79"], ["GpuXid79"])
