"""What a policy would have done about a recorded past, told as ``report`` tells it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recovery.cli import main
from recovery.config.policy_file import parse_policy
from recovery.console.replay import FIRES_NO_MORE, GOOD_AGAIN, SERIES_GONE, Replay, at_once, replay
from recovery.decide.sightings import TAKEN_BACK
from recovery.errors import NodeRecoveryError, SettingsError, Unreadable
from recovery.model import NodeView

START = datetime(2026, 11, 1, tzinfo=UTC)
STEP = timedelta(minutes=1)
RULES = """\
rules:
  - {name: neuron, match: {type: NeuronHealth}, remedy: [{do: drain}, {do: replace}]}
  - {name: heat, match: {type: Heat}, after: 5m, remedy: [{do: cordon}]}
  - {name: alert, match: {type: GpuLost}, remedy: [{do: reboot}]}
  - {name: pool, match: {type: Pool, nodeLabels: {pool: h100}}, remedy: [{do: drain}]}
"""
SOURCES = """\
sources:
  - npd
  - conditions
  - prometheus:
      rows:
        - alerts
        - {name: heat, query: temperature, node: node, bad: "> 90", type: Heat, reason: TooHot, latch: source}
        - {name: pool, query: pool_bad, node: node, bad: "> 0", type: Pool, reason: Bad, latch: source}
"""
Value = Callable[[float], float | None]


class Recorded:
    """A Prometheus server with these series, each a function of the minutes since ``START``."""

    def __init__(self) -> None:
        self.series: list[tuple[str, dict[str, str], Value]] = []
        self.asked: list[str] = []
        self.why = ""

    def put(self, word: str, value: Value, **labels: str) -> None:
        """Answer queries that name ``word`` with a series."""
        self.series.append((word, labels, value))

    def gauge(self, node: str, type_: str, reason: str, value: Value) -> None:
        self.put("problem_gauge", value, node=node, type=type_, reason=reason)

    def ask_range(self, query: str, start: datetime, end: datetime, step: timedelta) -> list[Any]:
        self.asked.append(query)
        if self.why:
            raise Unreadable(self.why)
        found = []
        for word, labels, value in self.series:
            values, at = [], start
            while at <= end:
                said = value((at - START) / timedelta(minutes=1))
                if said is not None:
                    values.append([at.timestamp(), f"{said:g}"])
                at += step
            if word in query and values:
                found.append({"metric": labels, "values": values})
        return found


def between(first: float, last: float, bad: float = 1, good: float | None = 0) -> Value:
    """Bad from this minute on, and before that one."""
    return lambda minute: bad if first <= minute < last else good


@pytest.fixture
def server() -> Recorded:
    return Recorded()


def played(
    server: Recorded,
    hours: float = 12,
    nodes: Iterable[NodeView] | None = None,
    policy: str = SOURCES + RULES,
) -> Replay:
    head = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
    file = parse_policy((head + policy).encode(), "policy.yaml")
    known = None if nodes is None else {node.name: node for node in nodes}
    return Replay(file, START, START + timedelta(hours=hours), STEP, None, known)


def told(server: Recorded, capsys: pytest.CaptureFixture[str], **more: Any) -> dict[str, Any]:
    replay(played(server, **more), server, "json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_kernels_fault_would_have_been_treated_and_is_over_when_its_series_is_good_again(
    server: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    server.gauge("node-1", "NeuronHealth", "NeuronHasError_DMA_ERROR", between(60, 90))
    (x,) = told(server, capsys)["sightings"]
    assert (x["source"], x["rule"], x["would"], x["steps"]) == (
        "npd",
        "neuron",
        "recover",
        ["drain", "replace"],
    )
    assert x["due"] == "2026-11-01T01:00:00.000000Z"
    assert x["how"] == GOOD_AGAIN, (
        "no agent takes a good gauge of a log rule for the end: a boot would be that"
    )


def test_what_was_over_before_its_rule_would_have_begun_is_told_as_tolerated(
    server: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    server.put("temperature", between(60, 63, bad=95, good=50), node="node-1")
    server.put("temperature", between(60, 120, bad=95, good=50), node="node-2")
    short, long = sorted(told(server, capsys)["sightings"], key=lambda x: str(x["node"]))
    assert (short["would"], short["due"], short["how"]) == ("tolerate", None, TAKEN_BACK)
    assert (long["would"], long["due"]) == ("recover", "2026-11-01T01:05:00.000000Z")


def test_a_node_whose_series_end_is_not_said_to_be_sick_still(
    server: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    server.gauge("node-1", "NeuronHealth", "Bad", lambda m: None if m > 200 else float(m > 100))
    (x,) = told(server, capsys)["sightings"]
    assert (x["ended"], x["how"]) == ("2026-11-01T03:20:00.000000Z", SERIES_GONE)


def test_a_gap_in_a_series_is_no_end_of_its_fault(
    server: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    server.gauge("node-1", "NeuronHealth", "Bad", lambda m: None if 120 < m < 150 else float(60 < m < 300))
    (x,) = told(server, capsys)["sightings"]
    assert (x["times"], x["ended"]) == (1, "2026-11-01T05:00:30.000000Z")


def test_a_fault_that_is_there_at_the_end_is_there_now_though_its_past_was_read_in_pieces(
    server: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    server.gauge("node-1", "NeuronHealth", "Bad", between(60, 10_000))
    (x,) = told(server, capsys, hours=20)["sightings"]
    assert (x["since"], x["times"], x["ended"]) == ("2026-11-01T01:00:00.000000Z", 1, None)
    assert x["sentence"] == "would drain node-1; then replace; it is there now"
    assert sum("problem_gauge" in query for query in server.asked) == 4


def test_a_reason_that_is_longer_than_a_report_has_room_for_is_told_all_the_same(
    server: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    server.gauge("node-1", "NeuronHealth", "x" * 128, between(60, 10_000))
    (x,) = told(server, capsys)["sightings"]
    assert (x["node"], x["rule"], x["ended"]) == ("node-1", "neuron", None)
    assert x["reason"].startswith("xxx")


def test_an_alert_is_over_when_it_fires_no_more(server: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    server.put("ALERTS", between(60, 80, good=None), node="node-1", alertname="GpuLost", alertstate="firing")
    (x,) = told(server, capsys)["sightings"]
    assert (x["rule"], x["steps"], x["ended"] is not None) == ("alert", ["reboot"], True)
    assert x["how"] == FIRES_NO_MORE


def test_rules_by_label_hold_where_the_cluster_is_asked_and_the_others_say_so(
    server: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    server.put("pool_bad", between(60, 90), node="10.0.0.7:9400")
    replay(played(server), server, "human")
    out = capsys.readouterr().out
    assert "1 would only have been reported" in out
    assert "use --cluster" in out
    node = NodeView("node-7", "u", "1", labels={"pool": "h100"}, addresses=("10.0.0.7",))
    (x,) = told(server, capsys, nodes=[node])["sightings"]
    assert (x["node"], x["rule"], x["would"]) == ("node-7", "pool", "recover")


def test_how_many_nodes_were_sick_at_once_stands_beside_budget_and_brake(
    server: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    for node, first, last in (("node-1", 60, 120), ("node-2", 100, 160), ("node-3", 130, 150)):
        server.gauge(node, "NeuronHealth", "Bad", between(first, last))
    replay(played(server), server, "human")
    out = capsys.readouterr().out
    assert (
        "At most 2 nodes had a fault to treat at one moment, at 2026-11-01 01:40Z; limits.budget is 1" in out
    )
    assert "Not recorded, and left out: conditions." in out
    assert at_once((), START) == (0, None)


def test_only_nodes_that_had_a_fault_are_asked_for(server: Recorded) -> None:
    replay(played(server), server, "human")
    first = next(query for query in server.asked if "temperature" in query)
    assert first == (
        "(temperature) and on (node, instance) (max_over_time(((temperature) > 90)[22200s:60s] @ end()))"
    )


def test_a_server_that_does_not_answer_is_named_with_the_row_and_the_time(server: Recorded) -> None:
    server.why = "no connection"
    with pytest.raises(NodeRecoveryError, match="row npd, 2026-11-01 00:00Z to 2026-11-01 06:00Z: no conn"):
        replay(played(server), server, "human")


def test_a_policy_that_reads_nothing_which_is_recorded_is_refused(server: Recorded) -> None:
    with pytest.raises(SettingsError, match=r"policy.yaml: field sources: expected npd or prometheus"):
        replay(played(server, policy="sources: [conditions]\n" + RULES), server, "human")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--step", "5s"), "--step: found 5 s, expected 15 s to 3 h, and no more than --since"),
        (
            ("--step", "2h", "--since", "1h"),
            "--step: found 2 h, expected 15 s to 3 h, and no more than --since",
        ),
        (("--prometheus", "ftp://x"), "expected an http:// or https:// URL"),
        (("--prometheus", "http://u:secret@x"), "expected a URL without a user name; --token-file is for"),
        (
            ("--token-file", "/nowhere"),
            "'--token-file': the file cannot be read: FileNotFoundError; expected",
        ),
        (("--token-file", "/dev/null"), "'--token-file': the file holds no token; expected a file with a"),
        (("--ca-file", "/nowhere"), "'--ca-file': the file cannot be used: No such file or directory; expec"),
        (("--ca-file", __file__), "'--ca-file': the file cannot be used: it holds none; expected certificat"),
    ],
)
def test_wrong_options_are_named_with_what_was_expected(
    given: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n{RULES}")
    assert main(["replay", str(file), "--prometheus", "http://127.0.0.1:1", *given]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert said in err
    assert "secret" not in err


WINDOW = """\
sources: [npd]
limits: {windows: [{days: [mon], from: "09:00", to: "17:00"}]}
rules:
  - {name: neuron, match: {type: NeuronHealth}, remedy: [{do: drain}, {do: replace}]}
"""


def test_what_lasts_over_a_window_would_have_begun_in_it(server: Recorded, capsys: Any) -> None:
    # 2026-11-01 is a Sunday: the fault lasts from Sunday 01:00 to Tuesday 01:00, all of Monday's window
    server.gauge("node-1", "NeuronHealth", "NeuronHasError_DMA_ERROR", between(60, 49 * 60))
    (x,) = told(server, capsys, policy=WINDOW, hours=72)["sightings"]
    assert x["due"] == "2026-11-02T09:00:00.000000Z", x["sentence"]
