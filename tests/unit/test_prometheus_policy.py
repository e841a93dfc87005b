"""The rows of the source ``prometheus`` in a policy: what is said of them, with file, line and field."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from recovery.catalog import metric_rows
from recovery.cli import group
from recovery.config.policy_file import PolicyFile, check_for, parse_policy
from recovery.errors import SettingsError
from recovery.model import Bound, Latch, Named
from tests.builders.policies import HEAD
from tests.builders.times import MINUTE

OWN = """
      - name: ib
        query: max by (node) (ib_dev)
        node: node
        bad: "> 0"
        type: IbDev
        reason: {label: why}
        hold: 10m
        latch: source
"""
FIELD = "p.yaml:{line}: field sources[0].prometheus.rows"


def parsed(rows: str = OWN) -> PolicyFile:
    rules = "rules: [{name: any, match: {}, remedy: [{do: notify}]}]\n"
    return parse_policy(
        f"{HEAD}sources:\n  - prometheus:\n      rows:{rows.rstrip()}\n{rules}".encode(), "p.yaml"
    )


def mistakes(rows: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parsed(rows)
    return list(caught.value.mistakes)


def test_a_row_that_is_spelled_out_is_as_it_says() -> None:
    source = parsed().policy.source("prometheus")
    assert source is not None
    (row,) = source.metrics
    assert (row.bad, row.type, row.reason) == (Bound(">", 0), Named("IbDev"), Named(label="why"))
    assert (row.ends.latch, row.ends.hold) == (Latch.SOURCE, 10 * MINUTE)
    assert parsed().warnings == ()


COMMENTED = """|
          # a link that is down
          max by (node) (ib_dev{job=~"ib # 1|ib  2"})  # one for each node; don't add them up
            unless on (node) node_under_maintenance == 1
"""


def test_a_comment_in_a_query_ends_with_its_line() -> None:
    """All is asked on one line, where a comment would go on to the end: without what tells healthy nodes."""
    source = parsed(OWN.replace("max by (node) (ib_dev)\n", COMMENTED)).policy.source("prometheus")
    assert source is not None
    assert source.metrics[0].query == (
        'max by (node) (ib_dev{job=~"ib # 1|ib  2"}) unless on (node) node_under_maintenance == 1'
    )


SPARED = "max by (node) (ib_dev) # one for each\n            unless on (node) node_under_maintenance == 1"
LAST = "max by (node)\n            (ib_dev{{a={0}b\n            c{0}}})  # one for each"
ON_SEVERAL_LINES = {
    "folded": (">-\n            {}", '"'),
    "in double quotes": ('"{}"', '\\"'),
    "in quotes": ("'{}'", "''"),
    "plain": ("{}", '"'),
}


@pytest.mark.parametrize(("form", "quote"), ON_SEVERAL_LINES.values(), ids=ON_SEVERAL_LINES)
def test_a_comment_in_a_query_of_which_yaml_makes_one_line_is_told_where_more_follows_it(
    form: str, quote: str
) -> None:
    """YAML makes one line of it, before anybody can tell where the comment ended."""
    spared = SPARED.replace(" #", "#") if form == "{}" else SPARED  # else it is a comment of YAML's
    (told,) = mistakes(OWN.replace("max by (node) (ib_dev)\n", f"{form.format(spared)}\n"))
    assert told.endswith("a comment goes on to its end, for YAML makes one line of it: write it after |")
    lines = form.format(LAST.format(quote))
    source = parsed(OWN.replace("max by (node) (ib_dev)\n", f"{lines}\n")).policy.source("prometheus")
    assert source is not None
    assert re.fullmatch(r"""max by \(node\) \(ib_dev\{a=(["'])b c\1\}\)""", source.metrics[0].query)


@pytest.mark.parametrize(
    "query", ["ib_dev{", "max by (node) (ib_dev))", "rate(ib_dev[5m)]", "ib_dev{a='b}", "'ib_dev{a=\"b\\\"}'"]
)
def test_a_query_that_is_torn_is_told(query: str) -> None:
    (told,) = mistakes(OWN.replace("max by (node) (ib_dev)", query if query[0] == "'" else f'"{query}"'))
    shown = query.strip("'") if query[0] == "'" else query
    assert told == (
        f"{FIELD.format(line=7)}[0].query: found {json.dumps(shown)}, "
        "expected a PromQL query whose brackets and quotes are closed"
    )


def test_a_ready_made_row_is_its_name() -> None:
    source = parsed(" [npd, autopilot]").policy.source("prometheus")
    assert source is not None
    assert source.metrics == (*metric_rows()["npd"], *metric_rows()["autopilot"])


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ('"> 0"', "0", 9, '[0].bad: found 0, expected a comparison such as "> 0", ">= 5", "== 1", "!= 0" or'),
        ('"> 0"', '"=> 0"', 9, '[0].bad: found "=> 0", expected a comparison such as'),
        ("        node: node\n", "", 6, "[0].node: missing"),
        ("node: node", "node: the node", 8, '[0].node: found "the node", expected the name of a label'),
        (
            "{label: why}",
            "{labl: why}",
            11,
            "[0].reason: found a mapping, expected a word, or a mapping with",
        ),
        ("type: IbDev", "type: Ib Dev", 10, '[0].type: found "Ib Dev", expected one word of at most 128'),
        ("hold: 10m", "hold: 600", 12, "[0].hold: found 600, expected a duration such as 10s or 5m"),
        (
            "latch: source",
            "latch: never",
            13,
            '[0].latch: found "never", expected one of source, boot, proof',
        ),
        (
            "hold:",
            "held:",
            12,
            "[0].held: unknown, expected one of name, query, node, bad, type, reason, hold",
        ),
        (
            "max by (node) (ib_dev)",
            "ALERTS{alertname='x'}",
            13,
            '[0].latch: found "source" for alerts, whose going away proves nothing; expected boot or proof',
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(old: str, new: str, line: int, sentence: str) -> None:
    (told,) = mistakes(OWN.replace(old, new))
    assert told.startswith(FIELD.format(line=line) + sentence)


def test_a_name_that_is_not_known_or_given_twice_is_told() -> None:
    assert mistakes(" [dcmg]") == [
        FIELD.format(line=5)
        + '[0]: found "dcmg", expected one of npd, dcgm, autopilot, alerts; did you mean "dcgm"?'
    ]
    assert mistakes(" [npd, dcgm, npd]") == [
        FIELD.format(line=5) + '[2]: found "npd" again; rows[0] has that name'
    ]
    again = OWN.replace("name: ib", "name: dcgm")
    assert mistakes(f"\n      - dcgm{again}") == [
        FIELD.format(line=7) + '[1].name: found "dcgm" again; rows[0] has that name'
    ]
    assert mistakes(" []") == [FIELD.format(line=5) + ": found an empty list, expected at least one row"]


def test_a_source_that_is_given_twice_is_told_with_its_line() -> None:
    rules = "rules: [{name: any, match: {}, remedy: [{do: notify}]}]\n"
    again = "sources:\n  - npd\n  - prometheus: {rows: [npd]}\n  - npd\n  - prometheus: {rows: [dcgm]}\n"
    with pytest.raises(SettingsError) as caught:
        parse_policy(f"{HEAD}{again}{rules}".encode(), "p.yaml")
    assert list(caught.value.mistakes) == [
        'p.yaml:6: field sources[2]: found "npd" again; sources[0] is that source',
        'p.yaml:7: field sources[3]: found "prometheus" again; sources[1] is that source',
    ]


@pytest.mark.parametrize(
    ("query", "warning"),
    [
        ("max by (gpu) (x)", "no by (...) keeps the label node, so its series may name no node"),
        ("max by (instance, gpu) (x)", ""),
        ("max by (gpu) (x) * on (gpu) max by (node, gpu) (y)", ""),
        ("max by (node) (x) > 0", "it returns only some values, and a series that goes away proves nothing"),
        ("max by (node) (x > bool 0)", ""),
    ],
)
def test_a_query_that_leaves_something_open_is_warned_of(query: str, warning: str) -> None:
    rows = f"\n      - npd{OWN.rstrip()}".replace("max by (node) (ib_dev)", query)
    told = [w for w in parsed(rows).warnings if "query" in w]
    assert [w.startswith(FIELD.format(line=8) + f"[1].query: {warning}") for w in told] == [True] * bool(
        warning
    )


def test_it_runs_in_fleet_mode_only() -> None:
    assert check_for(parsed(), frozenset(), "aws", "fleet") == []
    assert check_for(parsed(), frozenset(), "aws", "sidecar") == [
        'p.yaml:4: field sources[0]: found "prometheus", which works only in fleet mode (RECOVERY_MODE=fleet)'
    ]


def test_policy_check_takes_the_mode(tmp_path: Path) -> None:
    runner = CliRunner()
    file = tmp_path / "p.yaml"
    file.write_text(f"{HEAD}sources: [{{prometheus: {{rows: [npd]}}}}]\nrules: []\n")
    assert runner.invoke(group, ["policy", "check", str(file), "--mode", "fleet"]).exit_code == 0
    assert runner.invoke(group, ["policy", "check", str(file)]).exit_code != 0
    by_the_environment = runner.invoke(group, ["policy", "check", str(file)], env={"RECOVERY_MODE": "fleet"})
    assert by_the_environment.exit_code == 0
