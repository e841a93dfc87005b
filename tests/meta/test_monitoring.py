"""Alert rules and dashboard ask for metrics and labels that the agents really have. promtool has the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase
from promql import read

from recovery.decide import brakes
from recovery.report.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
ALARMS = ROOT / "deploy" / "alarms"
DASHBOARD = json.loads((ALARMS / "grafana" / "node-recovery.json").read_text())
SCRAPED = frozenset({"cluster", "node", "job", "instance"})
"""Labels that come from the scrape, as deploy/alarms/README.md sets it up."""


def families() -> dict[str, frozenset[str]]:
    """Each series' name, and the labels the agent gives it."""
    found = {}
    for metric in vars(Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            labels = frozenset(metric._labelnames)  # it has no public name for them
            suffix = {"counter": "_total", "histogram": "_bucket"}.get(family.type, "")
            found[family.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


FAMILIES = families() | {"up": frozenset[str]()}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ALARMS / "prometheus" / "node-recovery.rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Where each query stands, and the query."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if found := re.fullmatch(r"label_values\((.+), (\w+)\)", variable.get("definition", "")):
            yield f"variable {variable['name']}", f"count by ({found[2]}) ({found[1]})"


QUERIES = dict(queries())
every_query = pytest.mark.parametrize("where", QUERIES)


# ---------------------------------------------------------------- what is asked for is there


@every_query
def test_each_metric_is_one_that_the_agents_have(where: str) -> None:
    metrics = read(QUERIES[where]).metrics
    assert metrics
    assert metrics <= set(FAMILIES)


@every_query
def test_each_label_is_one_that_its_metric_has(where: str) -> None:
    found = read(QUERIES[where])
    for metric, label, _ in found.matchers:
        assert label in FAMILIES[metric] | SCRAPED, metric
    there = SCRAPED.union(*(FAMILIES[metric] for metric in found.metrics))
    assert found.grouped <= there


def test_each_outcome_is_one_that_is_told() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    row = next(line for line in page.splitlines() if "`RecoveryAction`" in line)
    told = set(re.findall(r"`(\w+)`", row[row.index("Outcome (") :]))
    asked = {
        outcome
        for expr in QUERIES.values()
        for _, label, value in read(expr).matchers
        if label == "outcome"
        for outcome in value.split("|")
    }
    assert asked
    assert asked <= told


def test_each_reason_to_hold_is_one_that_holds() -> None:
    others = {"handedOver", "abandoned", "would.*", "tell"}  # what test_lasting.py shows
    asked = {
        reason
        for expr in QUERIES.values()
        for metric, label, value in read(expr).matchers
        if (metric, label) == ("node_recovery_held", "reason")
        for reason in value.split("|")
    }
    assert "brake" in asked
    assert asked - others <= {name for name, _ in brakes.STARTING}


def test_every_metric_is_on_the_dashboard() -> None:
    shown = frozenset().union(*(read(t["expr"]).metrics for p in panels() for t in p["targets"]))
    assert set(FAMILIES) - {"up"} <= shown


def test_all_that_needs_a_person_is_an_alert() -> None:
    asked = frozenset().union(*(read(rule["expr"]).metrics for rule in rules()))
    silent = {
        "node_recovery_build_info",
        "node_recovery_phase",
        "node_recovery_would_act_total",
        "node_recovery_cycles_total",
        "node_recovery_census_sick",
        "node_recovery_census_population",
        "node_recovery_recovery_duration_seconds_bucket",
    }
    assert set(FAMILIES) - asked == silent


@pytest.mark.parametrize(
    ("text", "metrics", "labels"),
    [
        ("a", {"a"}, set()),
        ('sum by (x, y) (rate(a_total{z=~"b{c}|d"}[$__rate_interval])) > 0.5', {"a_total"}, {"x", "y", "z"}),
        ("a offset 15m unless on (x) b or vector(0)", {"a", "b"}, {"x"}),
        ("time() - max without (x) (a) > bool 1e3", {"a"}, {"x"}),
        ("0 * a", {"a"}, set()),
    ],
)
def test_an_expression_is_taken_apart(text: str, metrics: set[str], labels: set[str]) -> None:
    found = read(text)
    assert found.metrics == metrics
    assert {label for _, label, _ in found.matchers} | found.grouped == labels


# ---------------------------------------------------------------- what is said


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_alert_begins_with_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["annotations"]["description"].startswith("First: ")
    assert rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_alert_names_only_labels_that_its_expression_keeps(rule: dict[str, Any]) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    found = read(rule["expr"])
    assert named <= (found.grouped or SCRAPED)


def test_the_dashboard_can_be_imported_anywhere() -> None:
    assert DASHBOARD["id"] is None
    first = DASHBOARD["templating"]["list"][0]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    sources = {str(p["datasource"]["uid"]) for p in panels()}
    sources |= {str(t["datasource"]["uid"]) for p in panels() for t in p["targets"]}
    assert sources == {"${datasource}"}


def test_no_two_panels_lie_on_one_another() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_each_panel_says_what_it_shows() -> None:
    assert all(panel["description"] for panel in panels())


# ---------------------------------------------------------------- the README beside them


def test_every_alarm_and_alert_is_in_the_readme_and_no_other() -> None:
    text = (ALARMS / "README.md").read_text()
    template = (ALARMS / "cloudformation" / "alarms.yaml").read_text()
    alarms = set(re.findall(r"AlarmName: !Sub node-recovery-\$\{ClusterName\}-([\w-]+)", template))
    rows = set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE))
    assert rows == alarms | {rule["alert"] for rule in rules()}
