"""The source ``loki`` in a policy, and the settings that belong to it."""

from __future__ import annotations

import pytest

from recovery.config.policy_file import PolicyFile, check_for, parse_policy
from recovery.config.settings import load_settings
from recovery.errors import SettingsError
from recovery.model import LogChoice
from tests.builders.policies import HEAD

RULES = "rules: [{name: gpu, match: {source: loki, type: GpuXid}, remedy: [{do: cordon}]}]\n"
FIELD = "p.yaml:3: field sources"
FLEET = {"RECOVERY_MODE": "fleet"}


def parsed(sources: str = "[conditions, loki]", rules: str = RULES) -> PolicyFile:
    return parse_policy(f"{HEAD}sources: {sources}\n{rules}".encode(), "p.yaml")


def mistakes(sources: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parsed(sources)
    return list(caught.value.mistakes)


def test_by_its_name_it_reads_what_konduktor_reads() -> None:
    source = parsed().policy.source("loki")
    assert source is not None
    assert source.logs == LogChoice('{k8s_daemonset_name="dmesg"}', "k8s_node_name")
    assert parsed().warnings == ()


@pytest.mark.parametrize(
    "selector",
    [
        '{job="kernel"}',
        '{ job = "kernel" , host=~"gpu-.+|x\\\\d", level!="info", a!~"}" }',
        '{job=`a"b`}',
        '{job="a\\"b"}',
    ],
)
def test_another_selector_and_label_are_as_they_say(selector: str) -> None:
    source = parsed(f"[conditions, {{loki: {{selector: '{selector}', node: host}}}}]").policy.source("loki")
    assert source is not None
    assert source.logs == LogChoice(selector, "host")


@pytest.mark.parametrize(
    ("options", "field", "sentence"),
    [
        ("selector: '{}'", "selector", "only a selector of Loki's streams, such as {k8s_daemonset_name="),
        ('selector: \'{job="x"} |= "y"\'', "selector", "only a selector of Loki's streams"),
        ("selector: 'rate({job=\"x\"}[1m])'", "selector", "only a selector of Loki's streams"),
        ("selector: '{job=x}'", "selector", "only a selector of Loki's streams"),
        ("selector: '{job=\"x}'", "selector", "only a selector of Loki's streams"),
        ("selector: 5", "selector", "only a selector of Loki's streams"),
        ("node: the node", "node", "the name of a label, such as node"),
        ("node: k8s.node.name", "node", "the name of a label, such as node"),
    ],
)
def test_a_mistake_names_the_field(options: str, field: str, sentence: str) -> None:
    (told,) = mistakes(f"[conditions, {{loki: {{{options}}}}}]")
    assert told.startswith(f"{FIELD}[1].loki.{field}: found ")
    assert f"expected {sentence}" in told


def test_an_unknown_option_is_told_with_those_that_there_are() -> None:
    assert mistakes("[conditions, {loki: {query: x}}]") == [
        f"{FIELD}[1].loki.query: unknown, expected one of selector, node"
    ]


def test_alone_it_would_prove_nodes_by_silence() -> None:
    assert mistakes("[loki]") == [
        f"{FIELD}: found a list, expected another source beside loki: a log without a fault shows no node to "
        "be well"
    ]


def test_it_runs_in_fleet_mode_only() -> None:
    assert check_for(parsed(), frozenset(), "aws", "fleet") == []
    assert check_for(parsed(), frozenset(), "aws", "sidecar") == [
        f'{FIELD}[1]: found "loki", which works only in fleet mode (RECOVERY_MODE=fleet)'
    ]


def test_a_rule_for_what_it_never_states_is_warned_of() -> None:
    (told,) = parsed(rules=RULES.replace("GpuXid", "GpuEcc")).warnings
    assert told.endswith("no source of the policy states GpuEcc, so the rule never matches")


@pytest.fixture
def policy(tmp_path: object) -> dict[str, str]:
    file = tmp_path / "p.yaml"  # type: ignore[operator]
    file.write_text(f"{HEAD}sources: [conditions, loki]\n{RULES}")
    return {**FLEET, "POLICY_FILE": str(file)}


def test_the_settings_are_as_they_say(policy: dict[str, str]) -> None:
    given = {
        "LOKI_URL": "https://loki:3100",
        "LOKI_TENANT": "a|b",
        "LOKI_TOKEN_FILE": "/t",
        "LOKI_CA_FILE": "/c",
    }
    s = load_settings({**policy, **given})
    assert (s.loki_url, s.loki_tenant, s.loki_token_file, s.loki_ca_file, s.warnings) == (
        *("https://loki:3100", "a|b", "/t", "/c"),
        (),
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "LOKI_URL: missing, and the policy's source loki needs it"),
        ({"LOKI_URL": "loki:3100"}, 'LOKI_URL: found "loki:3100", expected an http:// or https:// URL'),
        ({"LOKI_URL": "http://u:p@loki"}, "expected a URL without a user name; LOKI_TOKEN_FILE is for"),
        (
            {"LOKI_URL": "http://x", "LOKI_TENANT": "a b"},
            'LOKI_TENANT: found "a b", expected the ID of a tenant',
        ),
        ({"LOKI_URL": "http://x", "LOKI_TENANT": "a\nb"}, "expected the ID of a tenant"),
        ({"LOKI_URL": "http://x", "LOKI_TENANT": ".."}, "expected the ID of a tenant"),
    ],
)
def test_a_wrong_setting_is_told(policy: dict[str, str], given: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({**policy, **given})
    assert sentence in str(caught.value)


def test_what_is_ignored_or_can_be_read_on_the_way_is_warned_of(policy: dict[str, str]) -> None:
    (told,) = load_settings({**policy, "LOKI_URL": "http://x", "LOKI_TOKEN_FILE": "/t"}).warnings
    assert told == "LOKI_URL: http lets others on the network read the token of LOKI_TOKEN_FILE"
    (told,) = load_settings({"NODE_NAME": "n", "LOKI_URL": "http://x"}).warnings
    assert told == "LOKI_URL: ignored; it is for fleet mode (RECOVERY_MODE=fleet)"
