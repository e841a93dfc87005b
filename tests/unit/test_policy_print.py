"""A policy is printed with all that it leaves out, and what is printed is that same policy."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from recovery.cli import main
from recovery.config.policy_file import PolicyFile, load_policy, parse_policy
from recovery.config.policy_print import effective, printed
from recovery.model import Policy
from recovery.units import format_duration, parse_duration

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(
    path
    for path in (*ROOT.glob("deploy/**/*.yaml"), ROOT / "recovery/catalog/default-policy.yaml")
    if "\nkind: RecoveryPolicy\n" in path.read_text() and "{{" not in path.read_text()
)
HEAD = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
FULL = """
    sources:
      - npd
      - conditions: {rows: [{type: RackBad, bad: "False", takesBack: false}]}
      - autopilot: {port: 80, pcieBandwidth: 5}
      - dcgm: {selector: {app: x}}
      - prometheus:
          rows:
            - npd
            - name: mine
              query: up == 0
              node: node
              bad: ">= 0.25"
              type: Mine
              reason: {label: reason}
              hold: 5m
      - loki: {node: host}
    limits:
      budget: 12.5%
      budgetPer: {zone: 1, pool: {h100: 2, a10g: 12.5%, "*": 1}, rack: {"7": 0}}
      population: {labels: {pool: "gpu*"}}
      brake: 0.00001%
      cooldown: 0s
      records: {max: 7}
      windows:
        - {days: [mon, sat], from: "09:00", to: 17:30, timeZone: America/New_York}
        - {days: sun, from: 00:00, to: "24:00"}
      blockers: [{alerts: Upgrade*}, {pods: {namespaces: [a, "b*"], labels: {app: train}}}]
      underWay: stop
    drain:
      evictionsPerSecond: 3
      pods:
        - {match: {namespaces: a}, mode: evict}
        - {match: {labels: {x: "y"}}, mode: wait, within: 90s, annotate: {please: "yes"}}
    exclude: [{labels: {a: "010"}}]
    rules:
      - {name: "on", match: {reason: TaskHung, times: {count: 3, within: 10m}}, hold: 0s, latch: boot,
         budget: 10%}
      - name: b
        match: {source: npd, type: A*, nodeLabels: {x: "1"}}
        after: 0.5ms
        witness: {source: dcgm}
        windows: [{from: "22:00", to: "06:00"}]
        remedy:
          - {do: cordon}
          - {do: taint}
          - {do: taint, key: aznhc, value: v}
          - {do: drain, then: hold}
          - {do: reboot}
        validate: {cronJob: check}
"""


def parsed(body: str, head: str = HEAD) -> PolicyFile:
    return parse_policy((head + dedent(body)).encode(), "p.yaml")


def again(file: PolicyFile, form: str) -> Policy:
    """The policy as it is read back from what is printed."""
    return replace(parse_policy(printed(file.model, form).encode(), "again").policy, name=file.policy.name)


def test_there_are_policies_that_are_shipped() -> None:
    assert len(SHIPPED) >= 6


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_shipped_policy_is_read_back_as_it_was(path: Path, form: str) -> None:
    file = load_policy(path)
    assert again(file, form) == file.policy


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_policy_with_every_kind_of_field_is_read_back_as_it_was(form: str) -> None:
    file = parsed(FULL)
    assert again(file, form) == file.policy


def test_what_a_policy_leaves_out_is_printed() -> None:
    file = parsed("rules: [{name: a, match: {}, remedy: [{do: drain}, {do: replace}]}]")
    shown = effective(file.model)
    assert shown["limits"]["brakePer"] == {"node.kubernetes.io/instance-type": "30%"}
    assert (shown["limits"]["budget"], shown["limits"]["cooldown"]) == (1, "2m")
    assert shown["sources"] == ["npd", {"conditions": {"rows": []}}]
    (rule,) = shown["rules"]
    assert rule == {
        "name": "a",
        "match": {"type": "*", "reason": ["*"], "nodeLabels": {}},
        "after": "0s",
        "urgent": False,
        "remedy": [{"do": "drain", "within": "15m", "then": "handOver"}, {"do": "replace", "within": "30m"}],
        "probation": "2m",
    }


@pytest.mark.parametrize(("after", "shown"), [("", "15m"), ("after: 0s, ", "0s")])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_rule_about_machines_without_a_node_is_printed_as_it_is_in_effect(
    after: str, shown: str, form: str
) -> None:
    file = parsed(f"rules: [{{name: a, {after}match: {{type: NeverJoined}}, remedy: [{{do: notify}}]}}]")
    (rule,) = effective(file.model)["rules"]
    assert (rule["after"], rule["match"]) == (shown, {"type": "NeverJoined", "reason": ["*"]})
    assert again(file, form) == file.policy


def test_a_printed_policy_prints_as_itself() -> None:
    file = parsed(FULL)
    once = printed(file.model, "yaml")
    assert printed(parse_policy(once.encode(), "again").model, "yaml") == once


def test_the_command_prints_it_and_says_warnings_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(f"{HEAD}limits: {{budget: 0}}\nrules: []\n")
    assert main(["policy", "check", str(path), "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["limits"]["budget"] == 0
    assert "so nothing is ever started" in err
    assert main(["policy", "check", str(path), "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["kind"] == "RecoveryPolicy"


@pytest.mark.parametrize("text", ["0.5ms", "1h1ms", "0.001ms", "8784h"])
def test_a_duration_is_printed_exactly(text: str) -> None:
    assert format_duration(parse_duration(text)) == text
    assert parse_duration(format_duration(timedelta(microseconds=1_000_001))) == timedelta(
        microseconds=1_000_001
    )
