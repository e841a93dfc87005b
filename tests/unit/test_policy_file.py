"""A policy file is read whole, or every mistake in it is told at once, each in one sentence with its line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import jsonschema
import pytest
import yaml

from recovery.config import policy_schema
from recovery.config.policy_file import (
    PolicyFile,
    check_for,
    load_builtin,
    load_policy,
    parse_policy,
    schema,
    warnings_in,
)
from recovery.errors import SettingsError
from recovery.model import (
    Absent,
    DrainPolicy,
    Limits,
    Match,
    PodChoice,
    PodMode,
    PodRule,
    Rate,
    Rule,
    Rung,
    Share,
    Step,
    Taint,
    Then,
    Witness,
)

HEAD = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
ROOT = Path(__file__).parents[2]
ANY = "rules: [{name: a, match: {}}]\n"


def parsed(body: str, head: str = HEAD) -> PolicyFile:
    return parse_policy((head + dedent(body)).encode(), "p.yaml")


def mistakes(body: str, head: str = HEAD) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parsed(body, head)
    return list(caught.value.mistakes)


def rule(text: str) -> str:
    """A policy of one rule whose further fields are ``text``, one a line from line 6 on."""
    return "rules:\n  - name: a\n    match: {}\n" + "".join(f"    {line}\n" for line in text.splitlines())


# ---------------------------------------------------------------- what is right


def test_the_built_in_policy_is_the_example_of_the_design() -> None:
    policy = load_builtin().policy
    assert policy.limits == Limits(
        budget=Share(count=1),
        budget_per={"topology.kubernetes.io/zone": {"*": Share(count=1)}},
        brake=Share(percent=30),
        brake_per={"node.kubernetes.io/instance-type": {"*": Share(percent=30)}},
        cooldown=timedelta(minutes=2),
        attempts=Rate(3, timedelta(hours=24)),
        per_group=Rate(3, timedelta(hours=6)),
    )
    assert policy.exclude == ({"noderecovery.dev/exclude": "true"},)
    assert policy.rules[0] == Rule(
        name="neuron-hardware",
        match=Match("NeuronHealth", ("NeuronHasError_*_UNCORRECTABLE_ERROR", "NeuronHasError_DMA_ERROR")),
        after=timedelta(0),
        remedy=(
            Rung(Step.DRAIN, timedelta(minutes=10), Then.FORCE),
            Rung(Step.REPLACE, timedelta(minutes=30)),
        ),
        probation=timedelta(minutes=2),
        witness=Witness("neuron-sysfs", Absent.ACT),
    )


def test_the_built_in_policy_only_tells_of_a_hang_on_collectives_and_of_silence() -> None:
    told = {rule.name: rule.remedy for rule in load_builtin().policy.rules[1:]}
    notify = (Rung(Step.NOTIFY, timedelta(minutes=15)),)
    assert told == {"neuron-hang-on-collectives": notify, "signal-unknown": notify}


def test_the_built_in_policy_has_no_warnings_and_says_its_name() -> None:
    assert load_builtin().warnings == ()
    assert load_builtin().policy.name == "built-in"


def test_limits_left_out_are_those_of_the_built_in_policy() -> None:
    assert parsed(ANY).policy.limits == load_builtin().policy.limits


def test_the_brake_per_instance_type_follows_the_brake_where_it_is_left_out() -> None:
    limits = parsed("limits: {brake: 50%}\n" + ANY).policy.limits
    assert limits.brake_per == {"node.kubernetes.io/instance-type": {"*": Share(percent=50)}}
    assert parsed("limits: {brakePer: {}}\n" + ANY).policy.limits.brake_per == {}


def test_a_budget_of_nothing_is_kept_as_it_is_written() -> None:
    assert parsed("limits: {budget: 0}\n" + ANY).policy.limits.budget == Share(count=0)


@pytest.mark.parametrize(
    ("step", "minutes"),
    [
        ("notify", 15),
        ("cordon", 15),
        ("taint", 15),
        ("drain", 15),
        ("reboot", 10),
        ("reimage", 30),
        ("redeploy", 30),
        ("replace", 30),
    ],
)
def test_a_step_without_a_deadline_has_its_default(step: str, minutes: int) -> None:
    remedy = parsed(rule(f"remedy: [{{do: {step}}}]")).policy.rules[0].remedy
    assert remedy == (Rung(Step(step), timedelta(minutes=minutes), Then.HAND_OVER),)


def test_a_rule_says_little_and_gets_defaults() -> None:
    assert parsed(ANY).policy.rules == (
        Rule("a", Match("*", ("*",), {}, None), timedelta(0), None, timedelta(minutes=2)),
    )


def test_a_rule_may_count_edges() -> None:
    body = "rules: [{name: a, match: {reason: TaskHung, times: {count: 3, within: 10m}}}]"
    match = parsed(body).policy.rules[0].match
    assert match == Match("*", ("TaskHung",), {}, Rate(3, timedelta(minutes=10)))


def test_a_rule_may_ask_for_labels_of_the_node() -> None:
    body = 'rules: [{name: a, match: {nodeLabels: {pool: "trn*"}}}]'
    assert parsed(body).policy.rules[0].match.node_labels == {"pool": "trn*"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("500ms", 0.5), ("90s", 90), ("10m", 600), ("24h", 86400), ("1h30m", 5400), ("1.5h", 5400)],
)
def test_durations_are_written_with_units(text: str, seconds: float) -> None:
    assert parsed(rule(f"after: {text}")).policy.rules[0].after == timedelta(seconds=seconds)


def test_anchors_and_merges_are_written_out() -> None:
    body = """\
    rules:
      - &first
        name: a
        match: {type: A}
        remedy: &ladder [{do: drain, within: 5m}]
      - {<<: *first, name: b, remedy: *ladder}
    """
    first, second = parsed(body).policy.rules
    assert second == replace(first, name="b")


def test_json_is_read_with_its_tabs() -> None:
    data = {"apiVersion": "noderecovery.dev/v1alpha1", "kind": "RecoveryPolicy", "rules": []}
    assert parse_policy(json.dumps(data, indent="\t").encode(), "p.json").policy.rules == ()


def test_a_byte_order_mark_is_no_mistake() -> None:
    assert parse_policy(b"\xef\xbb\xbf" + (HEAD + ANY).encode(), "p").policy.rules[0].name == "a"


def test_every_field_has_its_line() -> None:
    lines = parsed("rules:\n  - name: a\n    match:\n      type: A\n    remedy:\n      - do: drain\n").lines
    assert lines["rules[0]"] == 4
    assert lines["rules[0].match.type"] == 6
    assert lines["rules[0].remedy[0].do"] == 8


# ---------------------------------------------------------------- what is wrong

STEPS = "notify, cordon, taint, drain, reboot, reimage, redeploy, replace"
MISTAKES = {
    "a misspelt action": (
        rule("remedy:\n  - {do: drian}"),
        f'7: field rules[0].remedy[0].do: found "drian", expected one of {STEPS}; did you mean "drain"?',
    ),
    "an action in capitals": (
        rule("remedy: [{do: Reboot}]"),
        f'6: field rules[0].remedy[0].do: found "Reboot", expected one of {STEPS}; did you mean "reboot"?',
    ),
    "an action nothing is like": (
        rule("remedy: [{do: pray}]"),
        f'6: field rules[0].remedy[0].do: found "pray", expected one of {STEPS}',
    ),
    "an action that YAML takes for a boolean": (
        rule("remedy: [{do: on}]"),
        f"6: field rules[0].remedy[0].do: found the boolean true, expected one of {STEPS}",
    ),
    "a misspelt key": (
        rule("remdy: [{do: drain}]"),
        "6: field rules[0].remdy: unknown, expected one of name, match, after, hold, latch, witness, "
        'budget, windows, urgent, remedy, probation, validate; did you mean "remedy"?',
    ),
    "a label of an exclusion that no Node can have": (
        'exclude:\n  - labels: {"bad key!": x, good: y}\n' + ANY,
        "4: field exclude[0].labels: found a mapping, expected keys of labels, such as "
        'topology.kubernetes.io/zone, and not "bad key!"',
    ),
    "a label of a rule that no Node can have": (
        "rules:\n  - {name: a, match: {nodeLabels: {-a: x}}}\n",
        "4: field rules[0].match.nodeLabels: found a mapping, expected keys of labels, such as "
        'topology.kubernetes.io/zone, and not "-a"',
    ),
    "a label of a population that no Node can have": (
        "limits: {population: {labels: {a/b/c: x}}}\n" + ANY,
        "3: field limits.population.labels: found a mapping, expected keys of labels, such as "
        'topology.kubernetes.io/zone, and not "a/b/c"',
    ),
    "a label that no pod can have": (
        f"drain: {{pods: [{{match: {{labels: {{{'a' * 64}: x}}}}, mode: never}}]}}\n" + ANY,
        "3: field drain.pods[0].match.labels: found a mapping, expected keys of labels, such as "
        f'topology.kubernetes.io/zone, and not "{"a" * 64}"',
    ),
    "an annotation that no pod can have": (
        "drain: {pods: [{match: {}, mode: wait, within: 5m, annotate: {a b: x}}]}\n" + ANY,
        "3: field drain.pods[0].annotate: found a mapping, expected keys of annotations, such as "
        'example.com/leave-by, and not "a b"',
    ),
    "a key that is no label's": (
        'limits: {budgetPer: {"a b": 1}}\n' + ANY,
        "3: field limits.budgetPer: found a mapping, expected keys of labels, such as "
        'topology.kubernetes.io/zone, and not "a b"',
    ),
    "a pattern for a value": (
        'limits: {budgetPer: {pool: {"h1*": 1}}}\n' + ANY,
        "3: field limits.budgetPer.pool: found a mapping, expected values of the label, "
        'or "*" for every other value, and not "h1*"',
    ),
    "no value at all": (
        "limits: {brakePer: {pool: {}}}\n" + ANY,
        "3: field limits.brakePer.pool: found an empty mapping, expected a limit for at least one value, "
        'or for "*"',
    ),
    "a wrong limit of a value": (
        "limits: {budgetPer: {pool: {h100: 1.5}}}\n" + ANY,
        "3: field limits.budgetPer.pool.h100: found 1.5, expected a count such as 1 or a percentage such as "
        '"30%"',
    ),
    "too long a name for a rule with a budget": (
        f"rules: [{{name: {'a' * 64}, match: {{}}, budget: 1}}]\n",
        "3: field rules[0].name: expected at most 63 characters in a rule with a budget",
    ),
    "a rule's name that no record has room for": (
        f"rules: [{{name: {'a' * 254}, match: {{}}}}]\n",
        f'3: field rules[0].name: found "{"a" * 60}…", expected at most 253 characters, and not 254',
    ),
    "a CronJob's name that no object has": (
        f"rules: [{{name: x, match: {{}}, validate: {{cronJob: {'a' * 254}}}}}]\n",
        f'3: field rules[0].validate.cronJob: found "{"a" * 60}…", expected at most 253 characters, '
        "and not 254",
    ),
    "a remedy of too many steps": (
        f"rules: [{{name: x, match: {{}}, remedy: [{', '.join(['{do: drain}'] * 21)}]}}]\n",
        "3: field rules[0].remedy: found a list, expected at most 20 steps, and not 21",
    ),
    "budgets of too many labels": (
        f"limits: {{budgetPer: {{{', '.join(f'label-{i}: 1' for i in range(33))}}}}}\n" + ANY,
        "3: field limits.budgetPer: found a mapping, expected at most 32 labels, and not 33",
    ),
    "a label of too long a domain": (
        f"limits: {{budgetPer: {{{'a.' * 127}b/c: 1}}}}\n" + ANY,
        "3: field limits.budgetPer: found a mapping, expected keys of labels with at most 253 characters "
        "before the /",
    ),
    "a key of another case": (
        "limits: {BudgetPer: {}}\n" + ANY,
        "3: field limits.BudgetPer: unknown, expected one of budget, budgetPer, brake, brakePer, population, "
        "cooldown, attempts, perGroup, sameIncident, records, windows, blockers, underWay; did you mean "
        '"budgetPer"?',
    ),
    "a key nothing is like": (
        ANY + "zzz: 1",
        "4: field zzz: unknown, expected one of apiVersion, kind, sources, limits, drain, exclude, rules",
    ),
    "a misspelt key of the drain": (
        "drain: {froce: true}\n" + ANY,
        "3: field drain.froce: unknown, expected one of force, deleteEmptydirData, evictionsPerSecond, "
        'pods; did you mean "force"?',
    ),
    "a misspelt key of a match of pods": (
        "drain: {pods: [{match: {namespace: a}, mode: evict}]}\n" + ANY,
        "3: field drain.pods[0].match.namespace: unknown, expected one of namespaces, labels; "
        'did you mean "namespaces"?',
    ),
    "a misspelt option of a source": (
        "sources: [{dcgm: {namespace: gpu}}]\n" + ANY,
        "3: field sources[0].dcgm.namespace: unknown, expected one of namespaces, selector, port; "
        'did you mean "namespaces"?',
    ),
    "any namespace at all": (
        "sources: [{dcgm: {namespaces: ['*']}}]\n" + ANY,
        '3: field sources[0].dcgm.namespaces[0]: found "*", expected the name of a namespace, without '
        "wildcards, because pods in it are believed",
    ),
    "no namespace at all": (
        "sources: [{autopilot: {namespaces: []}}]\n" + ANY,
        "3: field sources[0].autopilot.namespaces: found an empty list, expected at least one namespace",
    ),
    "a port that is none": (
        "sources: [{autopilot: {port: 80810}}]\n" + ANY,
        "3: field sources[0].autopilot.port: found 80810, expected a port from 1 to 65535",
    ),
    "a selector of nothing": (
        "sources: [{dcgm: {selector: {}}}]\n" + ANY,
        "3: field sources[0].dcgm.selector: found an empty mapping, expected at least one label",
    ),
    "a bandwidth of nothing": (
        "sources: [{autopilot: {pcieBandwidth: 0}}]\n" + ANY,
        "3: field sources[0].autopilot.pcieBandwidth: found 0, expected a whole number of at least 1",
    ),
    "a misspelt mode": (
        "drain: {pods: [{match: {}, mode: nevr}]}\n" + ANY,
        '3: field drain.pods[0].mode: found "nevr", expected one of evict, wait, never; '
        'did you mean "never"?',
    ),
    "a pod that waits without an end": (
        "drain: {pods: [{match: {}, mode: wait}]}\n" + ANY,
        "3: field drain.pods[0]: given without within; say how long these pods may take to finish",
    ),
    "a deadline for a pod that does not wait": (
        "drain: {pods: [{match: {}, mode: evict, within: 5m}]}\n" + ANY,
        "3: field drain.pods[0].within: given with mode evict; only wait has it",
    ),
    "a flag that is a word": (
        "drain: {force: please}\n" + ANY,
        '3: field drain.force: found "please", expected true or false',
    ),
    "no eviction at all": (
        "drain: {evictionsPerSecond: 0}\n" + ANY,
        "3: field drain.evictionsPerSecond: found 0, expected a whole number of at least 1",
    ),
    "a validation without a Job": (
        rule("validate: {within: 5m}"),
        "6: field rules[0].validate.cronJob: missing",
    ),
    "a misspelt then": (
        rule("remedy: [{do: drain, then: handover}]"),
        '6: field rules[0].remedy[0].then: found "handover", expected one of force, handOver, hold; '
        'did you mean "handOver"?',
    ),
    "then on another step than drain": (
        rule("remedy: [{do: replace, then: force}]"),
        "6: field rules[0].remedy[0].then: given on replace; only drain has a then",
    ),
    "a key on another step than taint": (
        rule("remedy: [{do: cordon, key: aznhc}]"),
        "6: field rules[0].remedy[0].key: given on cordon; only taint has a key",
    ),
    "an effect without a key": (
        rule("remedy: [{do: taint, effect: NoSchedule}]"),
        "6: field rules[0].remedy[0].effect: given without key; without one the step sets "
        "only noderecovery.dev/unhealthy",
    ),
    "one taint twice": (
        rule('remedy: [{do: taint, key: a, value: "1"}, {do: taint, key: a, value: "2"}]'),
        '6: field rules[0].remedy[1].key: found "a" with NoSchedule again; remedy[0] sets that taint',
    ),
    "a taint that evicts": (
        rule("remedy: [{do: taint, key: aznhc, effect: NoExecute}]"),
        '6: field rules[0].remedy[0].effect: found "NoExecute", expected NoSchedule or PreferNoSchedule; '
        "NoExecute ends pods at once, without the drain and their disruption budgets",
    ),
    "a misspelt effect": (
        rule("remedy: [{do: taint, key: aznhc, effect: noschedule}]"),
        '6: field rules[0].remedy[0].effect: found "noschedule", expected one of NoSchedule, '
        'PreferNoSchedule; did you mean "NoSchedule"?',
    ),
    "a value that YAML takes for a boolean": (
        rule("remedy: [{do: taint, key: aznhc, value: true}]"),
        '6: field rules[0].remedy[0].value: found the boolean true; quote it: "true"',
    ),
    "a value that no taint has": (
        rule("remedy: [{do: taint, key: aznhc, value: a b}]"),
        '6: field rules[0].remedy[0].value: found "a b", expected at most 63 letters, digits, dots, dashes '
        "and underscores; leave it out for none",
    ),
    "a key that no taint has": (
        rule("remedy: [{do: taint, key: a/b/c}]"),
        '6: field rules[0].remedy[0].key: found "a/b/c", expected the key of a taint, such as '
        "example.com/faulty",
    ),
    "a key with a long domain": (
        rule(f"remedy: [{{do: taint, key: {'a.' * 126}abc/b}}]"),
        f'6: field rules[0].remedy[0].key: found "{"a." * 30}…", expected a domain of at most 253 characters '
        "before the /",
    ),
    "a taint of the cluster's own": (
        rule("remedy: [{do: taint, key: node.kubernetes.io/unreachable}]"),
        '6: field rules[0].remedy[0].key: found "node.kubernetes.io/unreachable", expected a key outside '
        "kubernetes.io, whose taints belong to the cluster",
    ),
    "a taint that is set anyway": (
        rule("remedy: [{do: taint, key: noderecovery.dev/unhealthy}]"),
        '6: field rules[0].remedy[0].key: found "noderecovery.dev/unhealthy", expected a key outside '
        "noderecovery.dev; the taint noderecovery.dev/unhealthy is always set",
    ),
    "a number for a duration": (
        rule("after: 10"),
        "6: field rules[0].after: found 10, expected a duration such as 10s or 5m",
    ),
    "minutes and seconds with a colon": (
        rule("after: 1:30"),
        '6: field rules[0].after: found "1:30", expected a duration such as 10s or 5m',
    ),
    "a duration in days": (
        rule("after: 2d"),
        '6: field rules[0].after: found "2d", expected a duration such as 10s or 5m; did you mean "48h"?',
    ),
    "units in the wrong order": (
        rule("after: 5s1m"),
        '6: field rules[0].after: found "5s1m", expected a duration such as 10s or 5m',
    ),
    "more than a year": (
        rule("after: 9000h"),
        '6: field rules[0].after: found "9000h", expected a duration such as 10s or 5m',
    ),
    "a deadline of nothing": (
        rule("remedy: [{do: drain, within: 0s}]"),
        '6: field rules[0].remedy[0].within: found "0s", expected a duration of more than 0s',
    ),
    "a fraction for a share": (
        "limits: {brake: 0.3}\n" + ANY,
        '3: field limits.brake: found 0.3, expected a count such as 1 or a percentage such as "30%"; '
        'did you mean "30%"?',
    ),
    "more than all": (
        "limits: {brake: 130%}\n" + ANY,
        '3: field limits.brake: found "130%", expected a count such as 1 or a percentage such as "30%"',
    ),
    "less than none": (
        "limits: {budget: -1}\n" + ANY,
        '3: field limits.budget: found -1, expected a count such as 1 or a percentage such as "30%"',
    ),
    "a number that YAML reads in base eight": (
        "limits: {budget: 010}\n" + ANY,
        '3: field limits.budget: found "010", expected a count such as 1 or a percentage such as "30%"',
    ),
    "no attempts": (
        "limits: {attempts: {max: 0, within: 24h}}\n" + ANY,
        "3: field limits.attempts.max: found 0, expected a whole number of at least 1",
    ),
    "half a rate": (
        "limits: {perGroup: {max: 3}}\n" + ANY,
        "3: field limits.perGroup.within: missing",
    ),
    "a reason that YAML takes for a boolean": (
        "rules:\n  - name: a\n    match: {reason: NO}\n",
        '5: field rules[0].match.reason: found the boolean false; quote it: "NO"',
    ),
    "a reason in a list that YAML takes for a boolean": (
        "rules:\n  - name: a\n    match:\n      reason:\n        - A\n        - off\n",
        '8: field rules[0].match.reason[1]: found the boolean false; quote it: "off"',
    ),
    "a reason that is a number": (
        "rules: [{name: a, match: {reason: 79}}]",
        '3: field rules[0].match.reason: found the number 79; quote it: "79"',
    ),
    "a label that YAML takes for a boolean": (
        "exclude:\n  - labels:\n      noderecovery.dev/exclude: true\n" + ANY,
        '5: field exclude[0].labels.noderecovery.dev/exclude: found the boolean true; quote it: "true"',
    ),
    "no reasons": (
        "rules: [{name: a, match: {reason: []}}]",
        "3: field rules[0].match.reason: found an empty list, expected at least one pattern",
    ),
    "an exclusion of everything": (
        "exclude: [{labels: {}}]\n" + ANY,
        "3: field exclude[0].labels: found an empty mapping, expected at least one label",
    ),
    "an empty remedy": (
        rule("remedy: []"),
        "6: field rules[0].remedy: found an empty list, expected at least one step; "
        "leave remedy out for the default one",
    ),
    "a remedy that was begun": (
        rule("remedy:"),
        "6: field rules[0].remedy: found nothing, expected a value; leave the field out for its default",
    ),
    "a step where a list was expected": (
        rule("remedy: {do: drain}"),
        "6: field rules[0].remedy: found a mapping, expected a list",
    ),
    "a word where a mapping was expected": (
        "limits: none\n" + ANY,
        '3: field limits: found "none", expected a mapping',
    ),
    "a step without an action": (
        rule("remedy: [{within: 5m}]"),
        "6: field rules[0].remedy[0].do: missing",
    ),
    "a rule without a name": ("rules:\n  - match: {}\n", "4: field rules[0].name: missing"),
    "a name of nothing": (
        'rules: [{name: "", match: {}}]',
        '3: field rules[0].name: found "", expected text',
    ),
    "a name used twice": (
        "rules:\n  - {name: a, match: {}}\n  - {name: a, match: {type: B}}\n",
        '5: field rules[1].name: found "a" again; rules[0] has that name',
    ),
    "times beside a type": (
        "rules: [{name: a, match: {type: A, reason: B, times: {count: 3, within: 10m}}}]",
        "3: field rules[0].match.type: given with times; what times counts has no type",
    ),
    "a misspelt witness": (
        rule("witness: {source: neuron-sysf}"),
        '6: field rules[0].witness.source: found "neuron-sysf", expected one of neuron-sysfs, dcgm; '
        'did you mean "neuron-sysfs"?',
    ),
    "a witness in one word": (
        rule("witness: neuron-sysfs"),
        '6: field rules[0].witness: found "neuron-sysfs", expected a mapping',
    ),
    "a misspelt key of the witness": (
        rule("witness:\n  source: neuron-sysfs\n  absnt: act"),
        '8: field rules[0].witness.absnt: unknown, expected one of source, absent; did you mean "absent"?',
    ),
    "what no witness can be told": (
        rule("witness: {source: neuron-sysfs, absent: acts}"),
        '6: field rules[0].witness.absent: found "acts", expected one of hold, act; did you mean "act"?',
    ),
    "a witness that has no word for any of the rule's faults": (
        "rules:\n  - name: a\n    match: {reason: [NeuronHasError_DMA_ERROR, GpuEccBad]}\n"
        "    witness:\n      source: neuron-sysfs\n",
        '7: field rules[0].witness.source: found "neuron-sysfs", which cannot confirm any fault of this '
        "rule; it can confirm NeuronHasError_SRAM_UNCORRECTABLE_ERROR, "
        "NeuronHasError_HBM_UNCORRECTABLE_ERROR",
    ),
    "more times than are remembered": (
        "rules: [{name: a, match: {reason: A, times: {count: 101, within: 24h}}}]",
        "3: field rules[0].match.times.count: found 101, expected a whole number from 1 to 100, because an "
        "agent remembers no more",
    ),
    "a blocker of all pods without a word": (
        "limits: {blockers: [{pods: {labels: {}}}]}\n" + ANY,
        "3: field limits.blockers[0].pods: found a mapping, expected namespaces or labels",
    ),
    "times of nothing": (
        "rules: [{name: a, match: {times: {count: 3, within: 10m}}}]",
        "3: field rules[0].match.times: given without reason; name the reason to count",
    ),
    "a key given twice": (
        "rules:\n  - name: a\n    match: {}\n    after: 0s\n    after: 1h\n",
        "7: field rules[0].after: given twice, first on line 6",
    ),
    "a list as a key": (
        ANY + "? [a]\n: b\n",
        "4: the whole file: a list or mapping as a key; expected a word",
    ),
    "a merge of a number": (
        "rules: [{name: a, match: {<<: 7}}]",
        "3: field rules[0].match.<<: merges something that is not a mapping",
    ),
    "a tag of a program": (
        ANY + "exclude: !!python/name:os.system []",
        "4: field exclude: the tag tag:yaml.org,2002:python/name:os.system is not used here",
    ),
}


@pytest.mark.parametrize(("body", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence_with_its_line(body: str, sentence: str) -> None:
    assert mistakes(body) == [f"p.yaml:{sentence}"]


UNREADABLE = {
    "nothing": (b"", ": empty"),
    "only a comment": (b"# rules\n", ": empty"),
    "no mapping": (b"just words\n", ':1: the whole file: found "just words", expected a mapping'),
    "broken YAML": (
        b"kind: a\nrules: [\n",
        ":3: not YAML: expected the node content, but found '<stream end>'",
    ),
    "a tab": (b"limits:\n\tbudget: 1\n", ":2: not YAML: found a tab, expected spaces"),
    "an unknown anchor": (b"kind: *a\n", ":1: not YAML: found undefined alias 'a'"),
    "two documents": (
        b"a: 1\n---\nb: 1\n",
        ":2: not YAML: a second document begins here; one file holds one",
    ),
    "another encoding": (b"# ok\nname: caf\xe9\n", ":2: not UTF-8 text"),
    "a control character": (b"a: b\nc: \x01\n", ":2: not YAML: special characters are not allowed"),
    "too much": (b"#" * (256 * 1024 + 1), ": larger than 262144 bytes, which no policy needs"),
    "a list in itself": (b"rules: &a [*a]\n", ": nested too deeply"),
    "a mapping merged into itself": (b"&a {<<: *a}\n", ": nested too deeply"),
    "brackets without end": (b"[" * 100_000, ": nested too deeply"),
    "a flood of aliases": (
        b"a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + b"".join(b"%c: &%c [%s]\n" % (n + 1, n + 1, b",".join([b"*%c" % n] * 10)) for n in range(97, 104)),
        ": more than 20000 values, counting aliases",
    ),
    "a flood of values": (b"a: [" + b"1," * 120_000 + b"1]", ": more than 20000 values"),
}


@pytest.mark.parametrize(("content", "sentence"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_cannot_be_read_is_one_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_policy(content, "p.yaml")
    assert caught.value.mistakes == (f"p.yaml{sentence}",)


def test_of_a_flood_of_values_no_more_are_read_than_a_policy_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To read all of them took half a minute, before anybody counted them."""
    read = []
    monkeypatch.setattr(
        yaml.SafeLoader,
        "compose_scalar_node",
        lambda self, anchor, compose=yaml.SafeLoader.compose_scalar_node: (
            read.append(1) or compose(self, anchor)
        ),
    )
    with pytest.raises(SettingsError):
        parse_policy(b"a: [" + b"1," * 120_000 + b"1]", "p.yaml")
    assert len(read) < 20_000


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    body = """\
    limits: {budget: some, cooldwn: 2m}
    rules:
      - name: a
        match: {reason: NO}
        after: 10
        remedy: [{do: drian, then: never}, {do: cordon, then: force, within: 5}]
      - name: a
        after: 1h
        after: 2h
    """
    assert [sentence.split(": ")[1] for sentence in mistakes(body, HEAD.replace("v1alpha1", "v1"))] == [
        "field apiVersion",
        "field limits.budget",
        "field limits.cooldwn",
        "field rules[0].match.reason",
        "field rules[0].after",
        "field rules[0].remedy[0].do",
        "field rules[0].remedy[0].then",
        "field rules[0].remedy[1].then",
        "field rules[0].remedy[1].within",
        "field rules[1].match",
        "field rules[1].name",
        "field rules[1].after",
    ]


def test_a_policy_of_another_version_or_kind_says_which_is_right() -> None:
    assert mistakes(ANY, "apiVersion: noderecovery.dev/v1\nkind: Policy\n") == [
        'p.yaml:1: field apiVersion: found "noderecovery.dev/v1", expected "noderecovery.dev/v1alpha1"',
        'p.yaml:2: field kind: found "Policy", expected "RecoveryPolicy"',
    ]


def _places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield from _places(data[key], (*path, key))


def _put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = _put(data[path[0]], path[1:], value)
    return copy


REMEDY = [{"do": "drain", "then": "hold"}, {"do": "taint", "key": "a", "value": "b", "effect": "NoSchedule"}]
SMALL = yaml.safe_load(HEAD) | {
    "limits": {"budget": 1, "attempts": {"max": 3, "within": "1h"}},
    "exclude": [{"labels": {"a": "b"}}],
    "rules": [{"name": "a", "match": {"reason": ["A"]}, "remedy": REMEDY}],
}


@pytest.mark.parametrize("value", [None, True, 0, -1, 0.5, "", "x", [], {}, [[]], {"a": None}], ids=repr)
def test_no_value_in_any_place_is_more_than_a_sentence(value: object) -> None:
    told: list[str] = []
    for place in _places(SMALL):
        try:
            parse_policy(json.dumps(_put(SMALL, place, value)).encode(), "p")
        except SettingsError as error:
            told += error.mistakes
    assert told
    assert all(sentence.startswith("p:1: ") for sentence in told)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    with pytest.raises(SettingsError) as caught:
        load_policy(path)
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"


def test_a_folder_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        load_policy(tmp_path)


def test_a_policy_is_named_after_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + ANY)
    assert load_policy(path).policy.name == str(path)


def test_a_taint_step_names_key_value_and_effect() -> None:
    taints = [
        (
            f'{{do: taint, key: {TAINT}, value: "true", effect: NoSchedule}}',
            Taint(TAINT, "true", "NoSchedule"),
        ),
        (f"{{do: taint, key: {TAINT}}}", Taint(TAINT, "", "NoSchedule")),
        ("{do: taint, key: aznhc, effect: PreferNoSchedule}", Taint("aznhc", "", "PreferNoSchedule")),
        ("{do: taint}", None),
    ]
    for written, taint in taints:
        file = parsed(rule(f"remedy: [{written}]"))
        assert file.policy.rules[0].remedy == (Rung(Step.TAINT, timedelta(minutes=15), taint=taint),)
        assert file.warnings == ()
        assert (
            list(
                jsonschema.Draft202012Validator(schema()).iter_errors(
                    yaml.safe_load(HEAD + rule(f"remedy: [{written}]"))
                )
            )
            == []
        )


TAINT = "trainy.konduktor.ai/faulty"

# ---------------------------------------------------------------- what is surprising

WARNINGS = {
    "a taint of the user's own": (
        rule("remedy: [{do: taint, key: example.com/faulty}]"),
        [
            "6: field rules[0].remedy[0].key: example.com/faulty is not among the keys that the shipped "
            "admission policies let an agent set: add it there (in the chart: taintKeys)"
        ],
    ),
    "a taint by which another claims a node": (
        rule("remedy: [{do: taint, key: amd-gpu-unhealthy}]"),
        [
            "6: field rules[0].remedy[0].key: AMD GPU Operator sets amd-gpu-unhealthy while it works on a "
            "node, so others may take our taint for its own"
        ],
    ),
    "a rule behind a wider one": (
        "rules:\n  - {name: wide, match: {type: Neuron*}}\n"
        "  - {name: late, match: {type: NeuronHealth, reason: [X, Y*]}}\n",
        ['5: field rules[1]: never used: rules[0] "wide" already matches everything that it matches'],
    ),
    "a rule behind one for fewer nodes": (
        "rules:\n  - {name: wide, match: {nodeLabels: {pool: trn}}}\n  - {name: late, match: {type: A}}\n",
        [],
    ),
    "a rule behind one for the nodes that have a label at all": (
        'rules:\n  - {name: wide, match: {nodeLabels: {pool: "*"}}}\n  - {name: late, match: {}}\n',
        [],
    ),
    "a rule for the same nodes": (
        "rules:\n  - {name: wide, match: {nodeLabels: {pool: trn*}}}\n"
        "  - {name: late, match: {nodeLabels: {pool: trn1}}}\n",
        ['5: field rules[1]: never used: rules[0] "wide" already matches everything that it matches'],
    ),
    "a counting rule behind one that does not count": (
        "rules:\n  - {name: wide, match: {}}\n"
        "  - {name: late, match: {reason: Q, times: {count: 3, within: 1m}}}\n",
        [],
    ),
    "patterns that only look alike": (
        'rules:\n  - {name: wide, match: {reason: "*ab*"}}\n  - {name: late, match: {reason: "[ab]"}}\n',
        [],
    ),
    "no rules": ("rules: []\n", ["3: field rules: there are none, so every fault is only reported"]),
    "no budget": (
        "limits: {budget: 0%}\n" + ANY,
        ["3: field limits.budget: 0%, so nothing is ever started"],
    ),
    "no budget of a rule": (
        "rules: [{name: a, match: {}, budget: 0}]\n",
        ["3: field rules[0].budget: 0, so this rule starts nothing"],
    ),
    "a budget of a rule that only notifies": (
        "rules: [{name: a, match: {}, budget: 1, remedy: [{do: notify}]}]\n",
        ["3: field rules[0].budget: never used: the rule only notifies"],
    ),
    "a brake that is always on": (
        "limits: {brake: 0}\n" + ANY,
        ["3: field limits.brake: 0, so nothing is ever started: one sick node already exceeds it"],
    ),
    "a brake of no share": (
        "limits: {brake: 0%}\n" + ANY,
        ["3: field limits.brake: 0%, so nothing is ever started: one sick node already exceeds it"],
    ),
    "a brake of no share for a pool": (
        'limits: {brakePer: {pool: {gpu: 0%, "*": 30%}}}\n' + ANY,
        ["3: field limits.brakePer.pool: 0% for gpu, so nothing is ever started there"],
    ),
    "times for longer than they are remembered": (
        "rules: [{name: a, match: {reason: X, times: {count: 3, within: 48h}}, remedy: [{do: cordon}]}]\n",
        ["3: field rules[0].match.times.within: 48h, but an agent remembers the last 24h only"],
    ),
    "more attempts than a record remembers": (
        "limits: {attempts: {max: 20, within: 1h}}\n" + ANY,
        [
            "3: field limits.attempts.max: 20, but a closed record has room for 10 to 20 starts: those that "
            "it forgets are not counted"
        ],
    ),
    "a reason for a type": (
        "rules: [{name: a, match: {type: XfsHasShutdown}}]",
        ["3: field rules[0].match.type: XfsHasShutdown is a reason, not a type; its type is XfsShutdown"],
    ),
    "a type for a reason": (
        "rules: [{name: a, match: {reason: NeuronHealth}}]",
        ["3: field rules[0].match.reason: NeuronHealth is a type, not a reason"],
    ),
    "names in another case than their detectors write them": (
        "rules: [{name: a, match: {type: gpuxid, reason: [gpuxid79, GpuXid48]}}]",
        [
            "3: field rules[0].match.type: gpuxid is not GpuXid: upper and lower case count",
            "3: field rules[0].match.reason: gpuxid79 is not GpuXid79: upper and lower case count",
        ],
    ),
    "regular expressions": (
        "rules: [{name: a, match: {type: ^GpuXid$, reason: ['GpuXid(79|48)', 'GpuEcc.*', 'Gpu[A-Z]*']}}]",
        [
            f"3: field rules[0].match.{found} looks like a regular expression, but patterns are a shell's: * "
            f"stands for any characters, [79] for one of them{more}"
            for found, more in (
                ('type: "^GpuXid$"', ""),
                ('reason: "GpuXid(79|48)"', "; several reasons are a list"),
                ('reason: "GpuEcc.*"', "; several reasons are a list"),
            )
        ],
    ),
    "a counted reason that nobody counts": (
        "rules: [{name: a, match: {reason: KernelOops}}]",
        ["3: field rules[0].match.reason: KernelOops is only counted, so a rule without times never sees it"],
    ),
    "a witness of what is not destructive": (
        "rules: [{name: a, match: {}, witness: {source: neuron-sysfs}, remedy: [{do: cordon}]}]",
        ["3: field rules[0].witness: never used: the remedy does nothing destructive"],
    ),
    "a witness that knows some of the faults": (
        "rules:\n  - name: a\n    match: {reason: [NeuronHasError_HBM_*, NeuronHasError_DMA_ERROR]}\n"
        "    witness: {source: neuron-sysfs}\n",
        [
            "6: field rules[0].witness: neuron-sysfs cannot confirm NeuronHasError_DMA_ERROR, so this fault "
            "only goes to a person; set absent: act, or give it a rule of its own"
        ],
    ),
    "a witness that knows some, and is not needed for the others": (
        "rules:\n  - name: a\n    match: {reason: [NeuronHasError_HBM_*, NeuronHasError_DMA_ERROR]}\n"
        "    witness: {source: neuron-sysfs, absent: act}\n",
        [],
    ),
    "a type of a source that reads marks": (
        "sources: [conditions, aznhc]\nrules: [{name: a, match: {type: AzureNHC}}]\n",
        [],
    ),
    "a type that no source states": (
        "sources: [conditions]\nrules: [{name: a, match: {type: AzureNHC}}]\n",
        ["4: field rules[0].match.type: no source of the policy states AzureNHC, so the rule never matches"],
    ),
    "a machine's remedy for whatever there is": (
        'rules:\n  - name: a\n    match: {type: "*", nodeLabels: {b: c}}\n'
        "    remedy: [{do: drain}, {do: reboot}, {do: replace}]\n",
        [
            "5: field rules[0].match: it names neither type nor reason, so reboot, replace is for every "
            "fault of a node, also for those that are only reported by default, such as DockerHung"
        ],
    ),
    "a machine's remedy for one type": (
        "rules: [{name: a, match: {type: Gpu*}, remedy: [{do: reboot}]}]",
        [],
    ),
    "the default remedy for whatever there is": (ANY, []),
    "times that no source counts": (
        "sources: [conditions]\n"
        "rules: [{name: a, match: {reason: A, times: {count: 3, within: 1m}}, remedy: [{do: cordon}]}]",
        [
            "4: field rules[0].match.times: no source of the policy counts (npd, dcgm and loki do), so the "
            "rule never matches"
        ],
    ),
    "times of a source that counts nothing": (
        "rules: [{name: a, match: {source: conditions, reason: A, times: {count: 3, within: 1m}}, "
        "remedy: [{do: cordon}]}]",
        [
            "3: field rules[0].match.times: conditions does not count (npd, dcgm and loki do), so the rule "
            "never matches"
        ],
    ),
    "a source that the policy does not list": (
        "rules: [{name: a, match: {source: aznhc}, remedy: [{do: cordon}]}]",
        [
            "3: field rules[0].match.source: aznhc is not among the policy's sources, so the rule never "
            "matches"
        ],
    ),
    "as often and as long as times are remembered": (
        "rules: [{name: a, match: {reason: A, times: {count: 100, within: 24h}}, remedy: [{do: cordon}]}]",
        [],
    ),
    "a known condition turned round": (
        'sources: [npd, {conditions: {rows: [{type: "A*Ready", bad: "True"}]}}]\n' + ANY,
        [
            "3: field sources[1].conditions.rows[0].bad: True, which for AcceleratedHardwareReady is the "
            "good status by the catalogue: then healthy machines are recovered"
        ],
    ),
    "what is different about a known condition": (
        'sources: [{conditions: {rows: [{type: "A*Ready"}, {type: KernelReady, bad: "False"}]}}]\n' + ANY,
        [],
    ),
    "a wildcard over another node's fault": (
        'rules: [{name: a, match: {reason: "NeuronHasError_*"}, remedy: [{do: replace}]}]',
        [
            '3: field rules[0].match.reason: "NeuronHasError_*" also matches '
            "NeuronHasError_HANG_ON_COLLECTIVES, which is not this node's fault: "
            "it is only reported unless a rule names it"
        ],
    ),
}


@pytest.mark.parametrize(("body", "sentences"), WARNINGS.values(), ids=WARNINGS)
def test_what_is_legal_and_surprising_is_a_warning(body: str, sentences: list[str]) -> None:
    assert list(parsed(body).warnings) == [f"p.yaml:{sentence}" for sentence in sentences]


# ---------------------------------------------------------------- what provider and mode can do


def test_a_step_that_the_provider_does_not_have_is_told_with_its_line() -> None:
    file = parsed(rule("remedy:\n  - {do: drain}\n  - {do: reimage}\n  - {do: replace}"))
    assert check_for(file, frozenset({Step.REPLACE}), "aws", "sidecar") == [
        'p.yaml:8: field rules[0].remedy[1].do: found "reimage", which provider aws cannot do; '
        "its actions are replace"
    ]


def test_a_rule_without_a_remedy_asks_nothing_of_the_provider() -> None:
    assert check_for(parsed(ANY), frozenset(), "baremetal", "sidecar") == []


@pytest.mark.parametrize(("mode", "count"), [("sidecar", 1), ("concluder", 0)])
def test_a_sidecar_takes_a_budget_of_fifty(mode: str, count: int) -> None:
    assert check_for(parsed("limits: {budget: 50}\n" + ANY), frozenset(), "aws", mode) == []
    told = check_for(parsed("limits: {budget: 51}\n" + ANY), frozenset(), "aws", mode)
    sentence = "found 51, expected at most 50 in sidecar mode; more needs fleet mode"
    assert told == [f"p.yaml:3: field limits.budget: {sentence}"] * count


def test_a_field_that_is_not_there_has_the_line_of_what_is_around_it() -> None:
    file = parsed(rule("after: 0s"))
    assert file.mistake("rules[0].remedy[0].do", "x") == "p.yaml:4: field rules[0].remedy[0].do: x"


@pytest.mark.parametrize(
    ("match", "field"),
    [
        ("source: npd", "source"),
        ("source: npd, type: GpuXid", "source"),
        ("type: SomebodysOwn", "type"),
        ("reason: GpuXid31, times: {count: 3, within: 1m}", "times"),
        ("type: GpuXid", ""),
        ("", ""),
        ("type: NeverJoined", ""),
    ],
)
def test_a_rule_whose_sources_fleet_mode_does_not_read_is_warned_of_in_that_mode(
    match: str, field: str
) -> None:
    file = parsed(f"rules: [{{name: a, match: {{{match}}}, remedy: [{{do: notify}}]}}]\n")
    text = "in fleet mode no source is read that has such faults, so the rule never matches"
    expected = [f"p.yaml:3: field rules[0].match.{field}: {text}"] if field else []
    assert (file.warnings, warnings_in(file, "fleet"), warnings_in(file, "sidecar")) == ((), expected, [])


def test_what_no_source_of_the_policy_has_is_not_told_again_for_the_mode() -> None:
    file = parsed("rules: [{name: a, match: {source: aznhc}, remedy: [{do: notify}]}]\n")
    assert (len(file.warnings), warnings_in(file, "fleet")) == (1, [])


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/fleet").rglob("policy.yaml")), ids=str)
def test_a_policy_that_is_shipped_for_fleet_mode_has_no_rule_without_a_source(path: Path) -> None:
    assert warnings_in(load_policy(path), "fleet") == []


# ---------------------------------------------------------------- the schema


def test_the_schema_takes_what_the_parser_takes() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    validator = jsonschema.Draft202012Validator(schema())
    bodies = [body for body, _ in WARNINGS.values()]
    one_day = f'limits: {{windows: [{{days: mon, from: "22:00", to: "24:00"}}]}}\n{ANY}'
    for body in [ANY, one_day, rule("after: 1h30m\nremedy: [{do: drain, then: hold}]"), *bodies]:
        parsed(body)
        assert list(validator.iter_errors(yaml.safe_load(HEAD + body))) == []


NO_DATA = ("given twice", "the tag", "as a key", "merges something")
"""Mistakes of the YAML itself: a schema is laid over what another reader made of it, if that could."""


@pytest.mark.parametrize("name", [n for n in MISTAKES if not any(x in MISTAKES[n][1] for x in NO_DATA)])
def test_the_schema_refuses_what_the_parser_refuses(name: str) -> None:
    beyond = {
        "then on another step than drain",
        "a key on another step than taint",
        "an effect without a key",
        "one taint twice",
        "a key with a long domain",
        "a label of too long a domain",
        "a taint of the cluster's own",
        "a taint that is set anyway",
        "a pod that waits without an end",
        "a deadline for a pod that does not wait",
        "more than a year",
        "a deadline of nothing",
        "more than all",
        "a name used twice",
        "too long a name for a rule with a budget",
        "times beside a type",
        "times of nothing",
        "a blocker of all pods without a word",
        "times for longer than they are remembered",
        "a witness that has no word for any of the rule's faults",
        "a number that YAML reads in base eight",
    }
    errors = list(
        jsonschema.Draft202012Validator(schema()).iter_errors(yaml.safe_load(HEAD + MISTAKES[name][0]))
    )
    assert bool(errors) is (name not in beyond)


# ---------------------------------------------------------------- sources that read a pod


def test_a_source_that_reads_a_pod_knows_where_it_is_without_a_word() -> None:
    npd, autopilot, dcgm = parsed("sources: [npd, autopilot, dcgm]\n" + ANY).policy.sources
    assert npd.pod is None
    assert autopilot.pod == PodChoice(("autopilot",), ({"app": "autopilot"},), 8081)
    assert autopilot.slow_pcie == 4
    assert dcgm.pod is not None
    assert (dcgm.pod.port, dcgm.pod.namespaces[0]) == (9400, "gpu-operator")
    assert {"app": "nvidia-dcgm-exporter"} in dcgm.pod.selectors


def test_its_options_are_read_as_they_are_written() -> None:
    body = """sources:
  - dcgm: {namespaces: [gpu], selector: {app: mine}, port: 9500}
  - autopilot: {namespaces: [ap], pcieBandwidth: 15}
"""
    dcgm, autopilot = parsed(body + ANY).policy.sources
    assert dcgm.pod == PodChoice(("gpu",), ({"app": "mine"},), 9500)
    assert autopilot.pod == PodChoice(("ap",), ({"app": "autopilot"},), 8081)
    assert autopilot.slow_pcie == 15


@pytest.mark.parametrize(
    ("sources", "match", "warned"),
    [
        ("[dcgm]", "type: GpuXid", False),
        ("[dcgm]", "type: GpuRecoveryReboot", False),
        ("[aznhc]", "type: AzureNHC", False),
        ("[autopilot]", "type: AutopilotRemap", False),
        ("[dcgm]", "type: AutopilotRemap", True),
        ("[autopilot, dcgm]", "source: autopilot, type: GpuXid", True),
    ],
)
def test_a_type_that_no_source_states_is_warned_of(sources: str, match: str, warned: bool) -> None:
    body = f"sources: {sources}\nrules: [{{name: a, match: {{{match}}}, remedy: [{{do: cordon}}]}}]\n"
    told = [x for x in parsed(body).warnings if "no source of the policy states" in x]
    assert bool(told) is warned


@pytest.mark.parametrize(
    ("match", "after", "warned"),
    [
        ("source: autopilot", "0s", True),
        ("type: AutopilotPCIe", "59m", True),
        ("type: AutopilotPCIe", "65m", False),
        ("source: autopilot, reason: AutopilotEvict", "0s", False),
        ("source: dcgm", "0s", False),
    ],
)
def test_a_rule_that_acts_on_one_measurement_of_a_link_is_warned_of(
    match: str, after: str, warned: bool
) -> None:
    made = f"{{name: a, match: {{{match}}}, after: {after}, remedy: [{{do: cordon}}]}}"
    told = [x for x in parsed(f"sources: [autopilot, dcgm]\nrules: [{made}]\n").warnings if ".after" in x]
    assert bool(told) is warned
    assert all("LowPCIeBandwidth is measured once an hour: write after: 65m" in x for x in told)


@pytest.mark.parametrize(
    ("match", "told"),
    [
        ("type: AzureNHC", "type: only the source aznhc states AzureNHC, and the policy does not list it"),
        ("type: Konduktor", "type: only the source konduktor states Konduktor"),
        ("type: BlackHole", "type: only the source api states BlackHole"),
        ("type: GpuHealth", "type: only the source dcgm states GpuHealth"),
        ("reason: AutopilotEvict", "reason: only the source autopilot states AutopilotEvict"),
        ("reason: [NHC2009, NHC2013]", "reason: only the source aznhc states NHC2009, NHC2013"),
        ("reason: [NHC2009, AcmeFell]", ""),  # a check of one's own may state that
        ("type: GpuXid", ""),  # dcgm does, and so does the GPU pack
        ("type: AcmeFell", ""),
        ("reason: NHC20*", ""),
        ("source: npd, type: AzureNHC", ""),
    ],
)
def test_a_rule_for_a_source_that_the_policy_forgets_is_warned_of(match: str, told: str) -> None:
    """node-problem-detector, which is among the sources by default, may state any type."""
    said = parsed(f"rules: [{{name: a, match: {{{match}}}, remedy: [{{do: cordon}}]}}]\n").warnings
    assert bool(said) is bool(told)
    assert all(f"field rules[0].match.{told}" in x for x in said)


def test_a_rule_for_a_source_that_the_policy_lists_is_not() -> None:
    body = "sources: [npd, aznhc]\nrules: [{name: a, match: {type: AzureNHC}, remedy: [{do: cordon}]}]\n"
    assert parsed(body).warnings == ()
    row = "{conditions: {rows: [{type: Konduktor}]}}"
    body = (
        f"sources: [npd, {row}]\nrules: [{{name: a, match: {{type: Konduktor}}, remedy: [{{do: cordon}}]}}]\n"
    )
    assert parsed(body).warnings == ()


def test_a_warning_about_what_a_rule_does_not_say_has_the_rules_line() -> None:
    rule = "rules:\n  - name: a\n    match: {source: autopilot}\n    remedy: [{do: cordon}]\n"
    (told,) = (x for x in parsed(f"sources: [autopilot]\n{rule}").warnings if ".after" in x)
    assert told.startswith("p.yaml:5: field rules[0].after: ")


# ---------------------------------------------------------------- the drain


def test_the_drain_is_read_as_it_is_written() -> None:
    body = """drain:
  force: false
  deleteEmptydirData: false
  evictionsPerSecond: 20
  pods:
    - match: {namespaces: "train-*", labels: {role: worker}}
      mode: wait
      within: 5m
      annotate: {example.com/checkpoint: now, Example.com/leave: x}
    - {match: {labels: {role: master}}, mode: never}
"""
    assert parsed(ANY + body).policy.drain == DrainPolicy(
        force=False,
        delete_emptydir_data=False,
        evictions_per_second=20,
        pods=(
            PodRule(
                PodMode.WAIT,
                ("train-*",),
                {"role": "worker"},
                timedelta(minutes=5),
                {"example.com/checkpoint": "now", "Example.com/leave": "x"},
            ),
            PodRule(PodMode.NEVER, ("*",), {"role": "master"}),
        ),
    )


def test_without_a_word_on_it_every_pod_is_evicted_at_once() -> None:
    assert parsed(ANY).policy.drain == DrainPolicy()


def test_a_pod_that_may_take_longer_than_the_drain_is_warned_of() -> None:
    pods = "drain: {pods: [{match: {}, mode: wait, within: 10m}]}\n"
    (warning,) = parsed(pods + rule("remedy: [{do: drain, within: 10m}]")).warnings
    assert warning.startswith("p.yaml:3: field drain.pods[0].within: 10 min, and the drain of rule ")


def test_a_validation_that_nothing_leads_to_is_warned_of() -> None:
    (_, warning) = parsed(rule("validate: {cronJob: burn}\nremedy: [{do: replace}]")).warnings
    never = "field rules[0].validate: never used: no step of the remedy gives the same machine back"
    assert warning.endswith(never)


@pytest.mark.parametrize(
    ("after", "step", "warned"),
    [
        (
            "30s",
            "reboot",
            "a node that boots is not Ready for some minutes, which is then the same",
        ),
        (
            "0s",
            "replace",
            "a machine that joins is not Ready for some minutes, and would be replaced",
        ),
        ("10m", "reboot", ""),
        ("10m", "replace", ""),
        ("0s", "cordon", ""),
    ],
)
def test_a_rule_for_ready_that_takes_a_boot_or_a_new_machine_for_a_fault_is_warned_of(
    after: str, step: str, warned: str
) -> None:
    text = rule(f"after: {after}\nremedy: [{{do: drain}}, {{do: {step}}}]")
    text = text.replace("match: {}", "match: {type: Ready}")
    told = [w for w in parsed(text).warnings if "not Ready for some minutes" in w]
    assert all(warned in w and w.endswith(": write after: 10m") for w in told)
    assert [w.partition("field ")[2].partition(":")[0] for w in told] == ["rules[0].after"] * bool(warned)


def test_a_validation_that_meets_the_pods_of_others_is_warned_of() -> None:
    (_, warning) = parsed(rule("validate: {cronJob: burn}\nremedy: [{do: reboot}]")).warnings
    assert warning.endswith("the remedy has no drain: pods may still hold the devices that the Job needs")


def _mappings(model: type[policy_schema.Strict], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every mapping that a policy may have."""
    yield at
    for name, field in model.model_fields.items():
        for inner in re.findall(r"\w+Model", str(field.annotation)):
            yield from _mappings(getattr(policy_schema, inner), (*at, field.alias or name))


LISTS = ("sources", "rows", "rules", "remedy", "exclude", "pods", "windows", "blockers")


@pytest.mark.parametrize("path", list(_mappings(policy_schema.PolicyModel)), ids=".".join)
def test_an_unknown_key_is_told_in_every_mapping_of_a_policy(path: tuple[str, ...]) -> None:
    """One of them was forgotten, and a KeyError."""
    made: Any = {"nonsense": 1}
    for name in reversed(path):
        made = {name: [made] if name in LISTS and not (name == "pods" and "blockers" in path) else made}
    with pytest.raises(SettingsError, match="nonsense"):
        parse_policy(json.dumps(made).encode(), "p.yaml")
