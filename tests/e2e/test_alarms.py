"""Prometheus's own promtool on the alert rules, their stories, and every query of the dashboard."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import yaml
from toolbox import program

HERE = Path(__file__).parent
ALARMS = HERE.parents[1] / "deploy" / "alarms"
RULES = ALARMS / "prometheus" / "node-recovery.rules.yaml"
STORIES = HERE / "alarms" / "node-recovery.test.yaml"
GRAFANA = {"$__rate_interval": "5m", "$__range": "6h", "$cluster": ".*", "$node": ".*"}


def promtool(*arguments: str | Path) -> str:
    """What it says; an answer other than 0 fails the test, with all that it said."""
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_sound() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert f"{len(rules)} rules found" in promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)


def test_the_rules_alert_when_they_should_and_not_otherwise() -> None:
    assert "SUCCESS" in promtool("test", "rules", STORIES)


def test_each_alert_has_a_story() -> None:
    told = STORIES.read_text()
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    names = re.findall(r"alertname(?:: |=~?\")([\w()|]+)", told)
    assert [r["alert"] for r in rules if not any(re.fullmatch(name, r["alert"]) for name in names)] == []


def test_each_query_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    dashboard = json.loads((ALARMS / "grafana" / "node-recovery.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for variable, value in GRAFANA.items():
        asked = [expr.replace(variable, value) for expr in asked]
    assert not [expr for expr in asked if "$" in expr]
    rules = [{"record": f"dashboard:query:{i}", "expr": expr} for i, expr in enumerate(asked)]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(asked)} rules found" in promtool("check", "rules", file)
