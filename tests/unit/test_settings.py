"""Settings come from the environment; every mistake is told at once, that of the policy file included."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path

import pytest

from recovery.config.settings import Mode, Settings, describe, load_settings
from recovery.errors import SettingsError
from tests.builders.mistakes import mistakes as mistakes_of

SIDECAR = {"NODE_NAME": "ip-10-0-1-5.ec2.internal"}


def settings(**environ: str) -> Settings:
    return load_settings(SIDECAR | environ)


def mistakes(**environ: str) -> list[str]:
    return mistakes_of(load_settings, **SIDECAR | environ)


def test_a_sidecar_needs_only_its_nodes_name() -> None:
    found = settings()
    assert found.enable_recovery is False
    assert found.mode is Mode.SIDECAR
    assert found.node_name == "ip-10-0-1-5.ec2.internal"
    assert found.npd_metrics_url == "http://127.0.0.1:20257/metrics"
    assert found.prometheus_url is None
    assert found.provider == "auto"
    assert found.cluster_name == "default"
    assert found.poll_interval == timedelta(seconds=0.5)
    assert found.heartbeat_interval is None
    assert found.metrics_address == ("", 9108)
    assert found.agents_namespace == ""
    assert found.lease_duration == timedelta(seconds=60)
    assert found.policy.name == "built-in"
    assert found.warnings == ()


def test_a_concluder_needs_nothing() -> None:
    assert load_settings({"RECOVERY_MODE": "concluder"}).node_name == ""


def test_only_the_environment_that_is_given_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENABLE_RECOVERY", "true")
    monkeypatch.setenv("NODE_NAME", "other")
    assert settings().enable_recovery is False
    assert settings().node_name == SIDECAR["NODE_NAME"]


def test_settings_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings().enable_recovery = True  # type: ignore[misc]


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False)])
def test_recovery_is_switched_by_true_and_false(text: str, value: bool) -> None:
    assert settings(ENABLE_RECOVERY=text).enable_recovery is value


@pytest.mark.parametrize("text", ["", "True", "TRUE", "yes", "1", "on", " true", "enabled"])
def test_recovery_is_switched_by_no_other_word(text: str) -> None:
    assert mistakes(ENABLE_RECOVERY=text) == [f'ENABLE_RECOVERY: found "{text}", expected "true" or "false"']


@pytest.mark.parametrize(
    ("text", "seconds"), [("0.5", 0.5), ("500ms", 0.5), ("2s", 2), ("2", 2), ("0.1", 0.1), ("5m", 300)]
)
def test_the_poll_interval_may_be_a_plain_number_of_seconds(text: str, seconds: float) -> None:
    assert settings(POLL_INTERVAL=text).poll_interval == timedelta(seconds=seconds)


@pytest.mark.parametrize(("text", "seconds"), [("1m", 60), ("60s", 60), ("5m", 300), ("1h", 3600)])
def test_the_heartbeat_is_a_duration_that_an_alarm_can_wait_for(text: str, seconds: float) -> None:
    assert settings(HEARTBEAT_INTERVAL=text).heartbeat_interval == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["59s", "61m", "0", "0s", "5", "five minutes", "-5m"])
def test_a_heartbeat_that_no_alarm_could_wait_for_is_a_mistake(text: str) -> None:
    (mistake,) = mistakes(HEARTBEAT_INTERVAL=text)
    expected = "expected a duration from 1m to 1h such as 5m, or nothing for off"
    assert mistake == f'HEARTBEAT_INTERVAL: found "{text}", {expected}'


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":9108", ("", 9108)),
        (":0", ("", 0)),
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:9108", ("::1", 9108)),
        ("", None),
    ],
)
def test_metrics_are_served_at_an_address_or_nowhere(text: str, address: tuple[str, int] | None) -> None:
    assert settings(METRICS_ADDRESS=text).metrics_address == address


def test_an_empty_cluster_name_is_default() -> None:
    assert settings(CLUSTER_NAME="").cluster_name == "default"


def test_empty_paths_and_urls_are_as_if_left_out() -> None:
    found = settings(POLICY_FILE="", PROMETHEUS_URL="")
    assert found.policy.name == "built-in"
    assert found.prometheus_url is None


MISTAKES = [
    ("RECOVERY_MODE", "sidcar", 'expected "sidecar", "fleet" or "concluder"; did you mean "sidecar"?'),
    ("RECOVERY_MODE", "", 'expected "sidecar", "fleet" or "concluder"'),
    (
        "FLEET_SELECTOR",
        "pool in gpu",
        "expected a label selector such as node.kubernetes.io/instance-type=p5.48xlarge",
    ),
    ("NODE_NAME", "", "expected the name of a Node (from spec.nodeName)"),
    ("NODE_NAME", "a/b", "expected the name of a Node (from spec.nodeName)"),
    ("NODE_NAME", "a\n", "expected the name of a Node (from spec.nodeName)"),
    ("NPD_METRICS_URL", "", "expected an http:// or https:// URL"),
    ("NPD_METRICS_URL", "127.0.0.1:20257/metrics", "expected an http:// or https:// URL"),
    ("NPD_METRICS_URL", "ftp://127.0.0.1/", "expected an http:// or https:// URL"),
    ("NPD_METRICS_URL", "http://127.0.0.1:99999/", "expected an http:// or https:// URL"),
    ("NPD_METRICS_URL", "http://[::1/", "expected an http:// or https:// URL"),
    ("NPD_METRICS_URL", "http://h..example/", "expected an http:// or https:// URL"),
    ("LOKI_URL", "http://h..example", "expected an http:// or https:// URL"),
    ("PROMETHEUS_URL", f"https://{'a' * 64}.example", "expected an http:// or https:// URL"),
    ("PROMETHEUS_URL", "prometheus:9090", "expected an http:// or https:// URL"),
    ("CLUSTER_NAME", ":a", "expected at most 255 printable ASCII characters, not beginning with a colon"),
    ("CLUSTER_NAME", "é", "expected at most 255 printable ASCII characters, not beginning with a colon"),
    ("POLL_INTERVAL", "", "expected a duration such as 0.5s or 2s"),
    ("POLL_INTERVAL", "fast", "expected a duration such as 0.5s or 2s"),
    ("POLL_INTERVAL", "10ms", "expected 100ms to 5m"),
    ("POLL_INTERVAL", "301", "expected 100ms to 5m"),
    ("POLL_INTERVAL", "nan", "expected a duration such as 0.5s or 2s"),
    ("CLOUDWATCH_NAMESPACE", "AWS/EC2", "expected a namespace of your own; AWS/ belongs to AWS"),
    (
        "CLOUDWATCH_NAMESPACE",
        "",
        "expected 1 to 255 letters, digits and ._-/#: not beginning with a colon",
    ),
    ("METRICS_ADDRESS", "9108", "expected host:port such as :9108, or nothing for off"),
    ("METRICS_ADDRESS", ":65536", "expected host:port such as :9108, or nothing for off"),
    ("METRICS_ADDRESS", "::1:80", "expected host:port such as :9108, or nothing for off"),
    ("POD_NAMESPACE", "Kube", "expected the name of a namespace (from metadata.namespace)"),
    ("AGENTS_NAMESPACE", "Kube", "expected the name of a namespace (from metadata.namespace)"),
    ("LEASE_DURATION", "60", "expected a duration such as 60s or 2m"),
    ("LEASE_DURATION", "1s", "expected 5s to 10m"),
]


@pytest.mark.parametrize(("name", "text", "sentence"), MISTAKES)
def test_a_wrong_value_is_one_sentence(name: str, text: str, sentence: str) -> None:
    shown = text.replace("\n", "\\n")
    assert mistakes(**{name: text}) == [f'{name}: found "{shown}", {sentence}']


def test_a_provider_that_is_not_installed_is_told_with_those_that_are() -> None:
    (sentence,) = mistakes(PROVIDER="aw")
    assert sentence.startswith('PROVIDER: found "aw", expected one of auto, aws, ')
    assert sentence.endswith('; did you mean "aws"?')


def test_a_sidecar_without_a_name_is_told_where_it_comes_from() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({})
    sentence = "NODE_NAME: missing, expected this Node's name (from spec.nodeName) in sidecar mode"
    assert caught.value.mistakes == (sentence,)


def test_a_password_in_a_url_is_not_told() -> None:
    (sentence,) = mistakes(PROMETHEUS_URL="ftp://user:secret@host/")
    assert "secret" not in sentence
    assert 'found "ftp://***@host/"' in sentence


def test_mistakes_of_the_environment_and_of_the_policy_are_told_together(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\nrules: [{nam: a, match: {}}]\n"
    )
    with pytest.raises(SettingsError) as caught:
        load_settings({"ENABLE_RECOVERY": "yes", "POLL_INTERVAL": "0", "POLICY_FILE": str(path)})
    assert [sentence.split(": ")[0] for sentence in caught.value.mistakes] == [
        "ENABLE_RECOVERY",
        "POLL_INTERVAL",
        "NODE_NAME",
        f"{path}:3",
        f"{path}:3",
    ]


def test_a_policy_file_replaces_the_built_in_policy_whole(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\nrules: []\n")
    found = settings(POLICY_FILE=str(path))
    assert found.policy.rules == ()
    assert found.policy.exclude == ()
    assert found.warnings == (f"{path}:3: field rules: there are none, so every fault is only reported",)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ENABLE_RECOVRY", "ENABLE_RECOVERY"),
        ("POLL_INTERVALL", "POLL_INTERVAL"),
        ("enable_recovery", "ENABLE_RECOVERY"),
        ("POLICYFILE", "POLICY_FILE"),
        ("RECOVERY_ENABLED", "ENABLE_RECOVERY"),
    ],
)
@pytest.mark.parametrize(
    "beside", [{}, {"ENABLE_RECOVERY": "false", "POLL_INTERVAL": "1s"}], ids=["", "both"]
)
def test_a_variable_that_looks_like_ours_misspelt_is_a_warning(
    name: str, near: str, beside: dict[str, str]
) -> None:
    """Also beside the right one: a manifest sets ENABLE_RECOVERY=false, and somebody adds a line."""
    told = settings(**beside, **{name: "x"}).warnings
    assert told == (f"{name}: unknown, and ignored; did you mean {near}?",)


@pytest.mark.parametrize(
    "name",
    [
        "PATH", "HOSTNAME", "AWS_REGION", "POD_NAME", "NODE_IP", "KUBERNETES_SERVICE_HOST", "NPD_BINARY",
        "AZURE_CLIENT_ID", "POLICY_FILE_SERVICE_HOST", "POLICY_FIL_PORT", "POLICY_FILE_PORT_80_TCP_ADDR",
    ],
)  # fmt: skip
def test_other_variables_are_left_alone(name: str) -> None:
    """Kubernetes adds some for each Service of the namespace."""
    assert settings(**{name: "x"}).warnings == ()


@pytest.mark.parametrize("mode", ["sidecar", "concluder"])
def test_a_selector_of_nodes_is_of_no_use_without_fleet_mode(mode: str) -> None:
    told = settings(RECOVERY_MODE=mode, FLEET_SELECTOR="pool=gpu").warnings
    assert told == ("FLEET_SELECTOR: ignored; it is for fleet mode (RECOVERY_MODE=fleet)",)
    assert settings(RECOVERY_MODE="fleet", FLEET_SELECTOR="pool=gpu").warnings == ()


def test_heartbeats_are_of_no_use_in_fleet_mode() -> None:
    (told,) = settings(RECOVERY_MODE="fleet", HEARTBEAT_INTERVAL="5m").warnings
    assert told == "HEARTBEAT_INTERVAL: ignored; only sidecars send heartbeats, so leave out alarms on them"
    assert settings(HEARTBEAT_INTERVAL="5m").warnings == ()


def test_a_prometheus_server_is_of_no_use_without_fleet_mode() -> None:
    (warning,) = settings(PROMETHEUS_URL="http://prometheus:9090").warnings
    assert warning == (
        "PROMETHEUS_URL: ignored; it is for fleet mode (RECOVERY_MODE=fleet) and for alerts of the policy's "
        "limits.blockers"
    )


def test_a_url_with_a_password_in_it_is_refused_and_not_repeated() -> None:
    assert mistakes(PROMETHEUS_URL="https://me:secret@monitoring:9090") == [
        'PROMETHEUS_URL: found "https://***@monitoring:9090", expected a URL without a user name; '
        "PROMETHEUS_TOKEN_FILE is for credentials"
    ]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:secret@127.0.0.1:20257/metrics", "http://***@127.0.0.1:20257/metrics"),
        ("http://me@127.0.0.1/metrics", "http://***@127.0.0.1/metrics"),
        ("http://me:sec/ret@127.0.0.1/metrics", "http://***@127.0.0.1/metrics"),
        ("http://me:se@cret@127.0.0.1/metrics", "http://***@127.0.0.1/metrics"),
        ("http:/me:secret@127.0.0.1/metrics", "http:/***@127.0.0.1/metrics"),
        ("me:secret@127.0.0.1/metrics", "***@127.0.0.1/metrics"),
    ],
)
def test_a_password_in_the_pages_url_is_refused_with_all_other_mistakes(url: str, shown: str) -> None:
    found = mistakes(NPD_METRICS_URL=url, POLL_INTERVAL="soon")
    assert [sentence.partition(":")[0] for sentence in found] == ["NPD_METRICS_URL", "POLL_INTERVAL"]
    assert f'NPD_METRICS_URL: found "{shown}", expected ' in found[0]


def test_a_token_that_goes_over_http_is_warned_of() -> None:
    found = settings(
        RECOVERY_MODE="fleet",
        PROMETHEUS_URL="http://prometheus:9090",
        PROMETHEUS_TOKEN_FILE="/run/token",  # noqa: S106
    )
    assert found.warnings == (
        "PROMETHEUS_URL: http lets others on the network read the token of PROMETHEUS_TOKEN_FILE",
    )
    assert found.prometheus_token_file == "/run/token"  # noqa: S105


ASKS = """apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources:
  - conditions
  - prometheus: {rows: [dcgm]}
rules: [{name: any, match: {}, remedy: [{do: notify}]}]
"""


def test_a_policy_that_asks_prometheus_needs_fleet_mode_and_a_server(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(ASKS)
    there = {"POLICY_FILE": str(file), "PROMETHEUS_URL": "https://prometheus:9090"}
    assert mistakes(POLICY_FILE=str(file)) == [
        f'{file}:5: field sources[1]: found "prometheus", which works only in fleet mode '
        "(RECOVERY_MODE=fleet)",
    ]
    assert mistakes(RECOVERY_MODE="fleet", POLICY_FILE=str(file)) == [
        "PROMETHEUS_URL: missing, and the policy's source prometheus needs it",
    ]
    assert settings(RECOVERY_MODE="fleet", **there).prometheus_url == "https://prometheus:9090"
    assert settings(RECOVERY_MODE="concluder", **there).policy.source("prometheus") is not None


def test_what_a_mode_cannot_read_is_told_beside_every_other_mistake(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(ASKS)
    told = mistakes(RECOVERY_MODE="fleet", POLICY_FILE=str(file), POLL_INTERVAL="soon")
    assert [x.partition(":")[0] for x in told] == ["POLL_INTERVAL", "PROMETHEUS_URL"]
    file.write_text(ASKS.replace("any, match", "any, mach") + "limits: {budget: 51}\n")
    told = mistakes(POLICY_FILE=str(file), POLL_INTERVAL="soon")
    for sentence in (
        "POLL_INTERVAL: ",
        'found "prometheus", which works only in',
        "rules[0].mach: ",
        "at most 50",
    ):
        assert len([x for x in told if sentence in x]) == 1, sentence
    told = mistakes(POLICY_FILE=str(file), RECOVERY_MODE="fleed")
    assert not [x for x in told if "at most 50" in x], "nobody knows which mode is meant"


def test_what_only_an_agent_on_the_node_could_read_is_no_source_in_fleet_mode(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(ASKS.replace("prometheus: {rows: [dcgm]}", "dcgm").replace("  - conditions", "  - npd"))
    why = "which is read on the node itself, and in fleet mode no agent runs there"
    assert mistakes(RECOVERY_MODE="fleet", POLICY_FILE=str(file)) == [
        f'{file}:4: field sources[0]: found "npd", {why}',
        f'{file}:5: field sources[1]: found "dcgm", {why}',
    ]
    assert settings(RECOVERY_MODE="fleet").policy.source("npd") is not None, "the default is no mistake"
    assert settings(POLICY_FILE=str(file)).policy.source("dcgm") is not None


def test_every_variable_is_described_with_a_default_that_is_right() -> None:
    rows = describe()
    assert [name for name, _, _ in rows] == [
        "ENABLE_RECOVERY",
        "RECOVERY_MODE",
        "FLEET_SELECTOR",
        "NODE_NAME",
        "NPD_METRICS_URL",
        "PROMETHEUS_URL",
        "PROMETHEUS_TOKEN_FILE",
        "PROMETHEUS_CA_FILE",
        "LOKI_URL",
        "LOKI_TOKEN_FILE",
        "LOKI_CA_FILE",
        "LOKI_TENANT",
        "WEBHOOK_URL_FILE",
        "WEBHOOK_FORMAT",
        "WEBHOOK_EVENTS",
        "WEBHOOK_CA_FILE",
        "PROVIDER",
        "POLICY_FILE",
        "CLUSTER_NAME",
        "POLL_INTERVAL",
        "HEARTBEAT_INTERVAL",
        "METRICS_ADDRESS",
        "BOOT_ID_FILE",
        "POD_NAMESPACE",
        "AGENTS_NAMESPACE",
        "NPD_ACCOUNT",
        "NPD_TOKEN_DIR",
        "LEASE_DURATION",
        "CLOUDWATCH_NAMESPACE",
        "AZURE_CLUSTER_ID",
        "AZURE_REGION",
        "AZURE_ALLOW",
        "AZURE_AUTOSCALER",
        "AZURE_RESOURCE_MANAGER_ENDPOINT",
        "AZURE_MONITOR_ENDPOINT",
        "BAREMETAL_POWER",
        "BMC_INVENTORY",
        "BMC_CREDENTIALS",
        "BMC_NETWORKS",
        "KURED_SENTINEL",
    ]
    assert all(description for _, _, description in rows)
    assert load_settings({name: default for name, default, _ in rows} | SIDECAR) == settings()


@pytest.mark.parametrize(
    ("given", "leases"),
    [
        ({}, ""),
        ({"POD_NAMESPACE": "agents"}, "agents"),
        ({"POD_NAMESPACE": "concluder", "AGENTS_NAMESPACE": "agents"}, "agents"),
    ],
)
def test_leases_are_in_this_pods_namespace_unless_the_agents_is_another(
    given: dict[str, str], leases: str
) -> None:
    assert load_settings({"RECOVERY_MODE": "concluder", **given}).agents_namespace == leases


# ---------------------------------------------------------------- the webhook


def test_a_webhook_is_a_file_with_its_url() -> None:
    found = settings(
        WEBHOOK_URL_FILE="/etc/hook/url", WEBHOOK_FORMAT="slack", WEBHOOK_EVENTS="Held:brake, Re*"
    )
    assert (found.webhook_url_file, found.webhook_format) == ("/etc/hook/url", "slack")
    assert found.webhook_events == ("Held:brake", "Re*")
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", "at least one reason of an Event, such as HandedOver, or * for all"),
        (" , ", "at least one reason of an Event, such as HandedOver, or * for all"),
        ("Handedover", 'reasons of Events; there is no Handedover; did you mean "HandedOver"?'),
        ("HandedOver,Nope*", "reasons of Events; there is no Nope*"),
        ("Held:brakes", "Held:REASON; there is no REASON 'brakes'; did you mean \"brake\"?"),
        ("Waiting:brake", "Waiting without :brake; only Held says what holds, as in Held:brake"),
        ("*:brake", "* without :brake; only Held says what holds, as in Held:brake"),
    ],
)
def test_events_that_no_webhook_would_ever_be_told_are_a_mistake(value: str, expected: str) -> None:
    assert mistakes(WEBHOOK_URL_FILE="/x", WEBHOOK_EVENTS=value) == [
        f'WEBHOOK_EVENTS: found "{value}", expected {expected}'
    ]


def test_a_format_that_there_is_not_is_a_mistake() -> None:
    assert mistakes(WEBHOOK_URL_FILE="/x", WEBHOOK_FORMAT="slak") == [
        'WEBHOOK_FORMAT: found "slak", expected "json" or "slack"; did you mean "slack"?'
    ]


def test_a_url_in_the_environment_is_not_used_and_not_repeated() -> None:
    assert settings(WEBHOOK_URL="https://hooks.example/hunter2", WEBHOOK_FORMAT="slack").warnings == (
        "WEBHOOK_URL: ignored: it is a secret; put it into a file, and its path into WEBHOOK_URL_FILE",
        "WEBHOOK_FORMAT: ignored; without WEBHOOK_URL_FILE there is no webhook",
    )
