"""The Azure Monitor alert rules ask for what the agents publish, and are raised by it. Azure is not asked.

How a rule is weighed: the Azure Monitor documentation, "Types of Azure Monitor alerts" (each series of the
chosen dimensions by itself, over the window, at each evaluation) and "Troubleshoot metric alerts" (the window
longer than the frequency, for a metric that is seldom there). Nothing there says what no data at all counts
as: here it raises nothing and ends nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from armtemplate import Deployment, TemplateError, asked_for, declared

from providers.azure.monitor import NAMESPACE
from recovery.decide import brakes
from recovery.provider.monitor import Metric
from recovery.report.metrics import Metrics
from recovery.report.publish import Publisher

ROOT = Path(__file__).parents[2]
ALARMS = ROOT / "deploy" / "alarms"
TEMPLATE = json.loads((ALARMS / "azure" / "alerts.json").read_text())
README = (ALARMS / "README.md").read_text()
FREQUENCIES = {"PT1M": 1, "PT5M": 5, "PT15M": 15, "PT30M": 30, "PT1H": 60}
WINDOWS = FREQUENCIES | {"PT6H": 360, "PT12H": 720, "P1D": 1440}
CLUSTER = "/subscriptions/s/resourceGroups/gpu/providers/Microsoft.ContainerService/managedClusters/gpu-7"
PAGES, NEWS = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Insights/actionGroups/" + x for x in "pn"
)
START = datetime(2026, 1, 1, tzinfo=UTC)
ONCE = {"action-started", "action-failed", "action-refused", "handed-over"}


def rules(**given: Any) -> dict[str, dict[str, Any]]:
    """Each rule's properties, by its name without cluster."""
    given = {"clusterName": "gpu-7", "resourceId": CLUSTER, "actionGroupId": PAGES, **given}
    found = Deployment(TEMPLATE, "monitoring", given=given).resources()
    assert {(r.type, r.body["apiVersion"], r.body["location"]) for r in found} == {
        ("Microsoft.Insights/metricAlerts", "2018-03-01", "global")
    }
    names = [r.name for r in found]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"node-recovery-gpu-7-[\w-]+", name) for name in names)
    return {r.name.removeprefix("node-recovery-gpu-7-"): r.properties for r in found}


RULES = rules(heartbeatMinutes=5)
each_rule = pytest.mark.parametrize("name", RULES)


def criterion(rule: dict[str, Any]) -> dict[str, Any]:
    (found,) = rule["criteria"]["allOf"]
    assert isinstance(found, dict)
    return found


class Kept:
    """A monitor that keeps what it is told."""

    name = "kept"

    def __init__(self) -> None:
        self.metrics: list[Metric] = []

    def publish(self, metrics: Sequence[Metric]) -> None:
        self.metrics += metrics


def published(outcomes: Iterable[str] = ("started",), reasons: Iterable[str] = ("brake",)) -> list[Metric]:
    """What the agents publish, of each kind."""
    kept = Kept()
    publisher = Publisher(
        None,  # type: ignore[arg-type]  # no Event is posted
        lambda: kept,
        Metrics(),
        cluster_name="gpu-7",
        threaded=False,
    )
    publisher.fault("GPUMissing", START)
    for outcome in outcomes:
        publisher.outcome("azure", "redeploy", outcome, START)
    for reason in reasons:
        publisher.held(reason, START)
    publisher.heartbeat(True, START)
    publisher.drain()
    return kept.metrics


# ---------------------------------------------------------------- the template


def test_the_template_uses_what_it_declares_and_declares_what_it_uses() -> None:
    assert asked_for(TEMPLATE) == declared(TEMPLATE)
    for given in TEMPLATE["parameters"].values():
        assert given["metadata"]["description"].endswith(".")


@each_rule
def test_a_rule_has_the_form_of_one_on_a_single_resource(name: str) -> None:
    rule, one = RULES[name], criterion(RULES[name])
    assert set(rule) == {
        "description",
        "severity",
        "enabled",
        "scopes",
        "evaluationFrequency",
        "windowSize",
        "criteria",
        "autoMitigate",
        "actions",
    }
    assert rule["enabled"] is True
    assert rule["scopes"] == [CLUSTER]
    assert rule["criteria"]["odata.type"] == "Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria"
    assert set(one) == {
        "name",
        "criterionType",
        "metricNamespace",
        "metricName",
        "dimensions",
        "operator",
        "threshold",
        "timeAggregation",
        "skipMetricValidation",
    }
    assert one["criterionType"] == "StaticThresholdCriterion"
    assert one["metricNamespace"] == NAMESPACE
    assert one["timeAggregation"] == "Total"
    assert one["operator"] in ("GreaterThan", "LessThan")
    assert type(one["threshold"]) is int
    assert one["skipMetricValidation"] is True, "a quiet fleet has never published it"


@each_rule
def test_a_window_is_longer_than_the_time_between_two_evaluations(name: str) -> None:
    """Else the first point of a series that was not there for a day may be missed."""
    rule = RULES[name]
    assert FREQUENCIES[rule["evaluationFrequency"]] < WINDOWS[rule["windowSize"]]


@each_rule
def test_a_rule_begins_with_what_to_do(name: str) -> None:
    assert RULES[name]["description"].startswith("First: ")


def test_who_is_told_and_how_loudly_is_given() -> None:
    found = rules(infoActionGroupId=NEWS, severity=0, infoSeverity=4)
    started = found.pop("action-started")
    assert (started["severity"], started["actions"]) == (4, [{"actionGroupId": NEWS}])
    assert all((r["severity"], r["actions"]) == (0, [{"actionGroupId": PAGES}]) for r in found.values())
    assert RULES["action-started"]["actions"] == []
    with pytest.raises(TemplateError):
        rules(severity=5)


@pytest.mark.parametrize("auto", [True, False])
def test_an_alert_on_what_happens_once_never_ends_so_that_the_next_one_is_told(auto: bool) -> None:
    found = rules(heartbeatMinutes=1, autoResolve=auto)
    assert {name for name in found if found[name]["autoMitigate"] is False} == (ONCE if auto else set(found))


def test_without_heartbeats_there_is_no_rule_on_silence() -> None:
    assert set(rules()) == set(RULES) - {"agent-silent"}


def test_the_rules_are_those_of_cloudwatch_with_azures_faults() -> None:
    template = (ALARMS / "cloudformation" / "alarms.yaml").read_text()
    alarms = set(re.findall(r"AlarmName: !Sub node-recovery-\$\{ClusterName\}-([\w-]+)", template))
    faults = {f"fault-{reason}" for reason in TEMPLATE["parameters"]["faults"]["defaultValue"]}
    assert set(RULES) - faults == {name for name in alarms if not name.startswith("fault-")}
    assert faults < set(RULES)


# ---------------------------------------------------------------- what is asked for is there


@each_rule
def test_metric_and_dimensions_are_as_the_agents_publish_them(name: str) -> None:
    one = criterion(RULES[name])
    if name.startswith("fault-"):
        assert one["metricName"] == name.removeprefix("fault-")
        assert one["dimensions"] == []
        return
    (sample,) = (m for m in published() if m.name == one["metricName"])
    assert {d["name"] for d in one["dimensions"]} <= set(sample.dimensions)
    assert all(d["operator"] == "Include" for d in one["dimensions"])


def test_a_fault_is_a_metric_of_its_own_without_dimensions() -> None:
    (sample,) = (m for m in published() if m.name == "GPUMissing")
    assert sample.dimensions == {}


def values_of(metric: str, dimension: str) -> set[str]:
    asked = [criterion(r) for r in RULES.values() if criterion(r)["metricName"] == metric]
    return {v for one in asked for d in one["dimensions"] if d["name"] == dimension for v in d["values"]}


def test_each_outcome_is_one_that_is_told() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    row = next(line for line in page.splitlines() if "`RecoveryAction`" in line)
    known = set(re.findall(r"`(\w+)`", row[row.index("Outcome (") :]))
    assert values_of("RecoveryAction", "Outcome") == {"started", "failed", "refused", "handedOver"} <= known


def test_each_reason_to_hold_is_one_that_holds() -> None:
    others = {"handedOver", "abandoned"}  # what test_lasting.py shows
    assert values_of("RecoveryHeld", "Reason") - others == {"brake"} <= {n for n, _ in brakes.STARTING}


def test_each_fault_is_one_that_the_catalogue_holds_against_the_node() -> None:
    rows = yaml.safe_load((ROOT / "recovery" / "catalog" / "faults.yaml").read_text())
    against = {row["reason"] for row in rows if row["thisNode"]}
    assert set(TEMPLATE["parameters"]["faults"]["defaultValue"]) <= against


# ---------------------------------------------------------------- what raises a rule


def raised(rule: dict[str, Any], points: Sequence[tuple[float, Metric]], until: int) -> list[int]:
    """The minutes at which the rule's condition is met, by any series. ``points``: when they are there."""
    one, window = criterion(rule), WINDOWS[rule["windowSize"]]
    found = []
    for now in range(0, until, FREQUENCIES[rule["evaluationFrequency"]]):
        sums: dict[tuple[str, ...], float] = {}
        for arrived, metric in points:
            minute = (metric.at - START) / timedelta(minutes=1)
            if metric.name != one["metricName"] or arrived > now or not now - window < minute <= now:
                continue
            if all({"*", metric.dimensions[d["name"]]} & set(d["values"]) for d in one["dimensions"]):
                series = tuple(metric.dimensions[d["name"]] for d in one["dimensions"])
                sums[series] = sums.get(series, 0.0) + metric.value
        beyond = float.__gt__ if one["operator"] == "GreaterThan" else float.__lt__
        if any(beyond(total, float(one["threshold"])) for total in sums.values()):
            found.append(now)
    return found


def at(minute: float, metric: Metric, late: float = 1.0) -> tuple[float, Metric]:
    moment = START + timedelta(minutes=minute)
    return minute + late, Metric(metric.name, metric.value, moment, metric.dimensions)


def action(outcome: str) -> Metric:
    return next(m for m in published(outcomes=[outcome]) if m.name == "RecoveryAction")


def held(reason: str) -> Metric:
    return next(m for m in published(reasons=[reason]) if m.name == "RecoveryHeld")


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("action-started", "started"),
        ("action-failed", "failed"),
        ("action-refused", "refused"),
        ("handed-over", "handedOver"),
    ],
)
def test_one_point_raises_a_rule_on_an_action_also_when_it_comes_late(name: str, outcome: str) -> None:
    """A new metric takes up to three minutes to appear."""
    assert raised(RULES[name], [at(10, action(outcome), late=3.0)], 60)
    assert not raised(RULES[name], [at(10, action("succeeded"))], 60)


@pytest.mark.parametrize("name", ["brake", "abandoned"])
def test_what_is_held_raises_its_rule_while_it_lasts(name: str) -> None:
    points = [at(minute * 61 / 60, held(name)) for minute in range(10, 30)]
    found = raised(RULES[name], points, 60)
    assert found == list(range(found[0], found[-1] + 1)), "without a gap, though a minute may have no point"
    assert found[0] <= 13
    assert found[-1] <= 36
    assert not raised(RULES[name], [at(m, held("paused")) for m in range(30)], 60)


def test_a_fault_raises_its_rule_and_no_other() -> None:
    points = [at(minute, next(m for m in published() if m.name == "GPUMissing")) for minute in range(10, 20)]
    assert [name for name in RULES if raised(RULES[name], points, 60)] == ["fault-GPUMissing"]


def test_a_hand_over_that_nobody_takes_is_told_after_half_an_hour() -> None:
    def open_for(minutes: int) -> list[int]:
        points = [at(m * 61 / 60, held("handedOver")) for m in range(minutes)]
        return raised(RULES["hand-over-open"], points, 120)

    assert not open_for(20)
    assert 25 <= open_for(60)[0] <= 32


# ---------------------------------------------------------------- silence

AGENTS = 10
UNTIL = 240


def beats(minutes: int, agents: Iterable[int], every: int, gone: int = 1000) -> list[tuple[float, Metric]]:
    """The beats of agents that began at different moments and are told up to three minutes later."""
    beat = next(m for m in published() if m.name == "Heartbeat")
    return [
        at(minute, beat, late=3.0 * (agent % 2))
        for agent in agents
        for minute in range(agent % every, minutes, every)
        if minute < gone
    ]


def silence(points: list[tuple[float, Metric]], every: int) -> list[int]:
    """From the second hour on: a window is not full before."""
    rule = rules(heartbeatMinutes=every, minimumAgents=AGENTS)["agent-silent"]
    return [minute for minute in raised(rule, points, UNTIL) if minute >= 60]


@pytest.mark.parametrize("every", [1, 5])
def test_agents_that_beat_raise_nothing_and_neither_does_one_restart_of_all(every: int) -> None:
    assert not silence(beats(UNTIL, range(AGENTS), every), every)
    before = beats(UNTIL // 2, range(AGENTS), every)
    pause = timedelta(minutes=UNTIL // 2 + every)
    after = [
        (arrived + pause / timedelta(minutes=1), Metric(m.name, m.value, m.at + pause, m.dimensions))
        for arrived, m in before
    ]
    assert not silence(before + after, every)


@pytest.mark.parametrize(("every", "within"), [(1, 10), (5, 20)])
def test_all_agents_gone_are_told_while_their_last_beats_are_in_the_window(every: int, within: int) -> None:
    found = silence(beats(UNTIL, range(AGENTS), every, gone=120), every)
    assert 120 < found[0] <= 120 + within
    assert found[-1] - found[0] >= 15, "for several evaluations, before there is no data at all"


@pytest.mark.parametrize("every", [1, 5])
def test_a_fifth_of_the_agents_gone_is_told(every: int) -> None:
    left = beats(UNTIL, range(AGENTS * 4 // 5), every)
    lost = beats(UNTIL, range(AGENTS * 4 // 5, AGENTS), every, gone=120)
    assert silence(left + lost, every)


def test_agents_that_live_and_cannot_see_count_as_silent() -> None:
    seeing = beats(UNTIL, range(AGENTS), 5)
    blind = [(arrived, Metric(m.name, 0.0, m.at, m.dimensions)) for arrived, m in seeing]
    assert silence(blind, 5)


# ---------------------------------------------------------------- the README beside it


def test_the_readmes_command_deploys() -> None:
    command = re.search(r"^az deployment group create .*?(?<!\\)$", README, re.MULTILINE | re.DOTALL)
    assert command is not None
    words = shlex.split(command[0].replace("\\\n", " "))
    assert words[words.index("--template-file") + 1] == "deploy/alarms/azure/alerts.json"
    given: dict[str, Any] = dict(w.split("=", 1) for w in words[words.index("--parameters") + 1 :])
    minutes = {name: int(given.pop(name)) for name in ("heartbeatMinutes", "minimumAgents")}
    assert Deployment(TEMPLATE, "monitoring", given={**given, **minutes}).resources()


def test_every_parameter_is_in_the_readme() -> None:
    section = README[README.index("## Azure Monitor") : README.index("## Prometheus")]
    for name in TEMPLATE["parameters"]:
        assert f"`{name}`" in section, name
