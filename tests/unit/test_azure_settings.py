"""Azure's settings: each mistake has its sentence, all are told at once, and none repeats a secret."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from providers.azure import create, create_monitor
from providers.azure.identity import identify
from providers.azure.options import Options, options_of
from providers.azure.session import (
    INSTALL,
    AzureSession,
    check_identity,
    require_sdk,
)
from providers.azure.settings import ALLOWED, CLUSTER_ID, MANAGER, PUBLIC, Cluster, endpoint
from recovery.clock import SystemClock
from recovery.config.policy_file import check_for, load_policy
from recovery.config.settings import load_settings
from recovery.errors import SettingsError
from recovery.model import NodeView, Step
from recovery.provider.declaration import Expected
from recovery.provider.protocol import ProviderContext, load_provider
from tests.builders.mistakes import mistakes
from tests.builders.nodes import node

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/gpu/providers"
CLUSTER = f"{GROUP}/Microsoft.ContainerService/managedClusters/gpu-7"
SCALE_SET = f"{GROUP}/Microsoft.Compute/virtualMachineScaleSets/gpu-nodes"
WORKLOAD = {
    "AZURE_CLIENT_ID": "a-client",
    "AZURE_TENANT_ID": "a-tenant",
    "AZURE_FEDERATED_TOKEN_FILE": "/var/run/secrets/azure/tokens/azure-identity-token",
}
SUBJECT = {"AZURE_CLUSTER_ID": CLUSTER, "AZURE_REGION": "westeurope"}
EXPECTED = "expected https:// and a host, with a port at most (http:// on loopback only)"
NAME = "AZURE_RESOURCE_MANAGER_ENDPOINT"


def made(**environ: str) -> Any:
    return create(ProviderContext(SystemClock(), environ))


# ---------------------------------------------------------------- what is allowed


def test_without_settings_nothing_is_allowed_and_nothing_else_sets_the_capacity_back() -> None:
    assert options_of({}) == Options(frozenset(), autoscaler=False, cluster=None)
    assert options_of(dict.fromkeys(("AZURE_ALLOW", "AZURE_AUTOSCALER", "AZURE_CLUSTER_ID"), "")) == Options()


@pytest.mark.parametrize("text", ["aks-compute,flexible-reimage", " flexible-reimage , aks-compute ,", ",,"])
def test_words_are_parted_by_commas_and_blanks_do_not_matter(text: str) -> None:
    found = options_of({"AZURE_ALLOW": text})
    assert found.allow == {word for word in ("aks-compute", "flexible-reimage") if word in text}


def test_a_word_that_allows_nothing_is_named_with_those_that_do() -> None:
    (mistake,) = mistakes(options_of, AZURE_ALLOW="replace,aks-compute,AKS-replace")
    expected = 'expected any of aks-replace, aks-compute, flexible-reimage; did you mean "aks-replace"?'
    assert mistake == f'AZURE_ALLOW: found "replace,aks-compute,AKS-replace", {expected}'


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("", False)])
def test_an_autoscaler_is_there_or_not(text: str, value: bool) -> None:
    assert options_of({"AZURE_AUTOSCALER": text}).autoscaler is value


@pytest.mark.parametrize("text", ["True", "yes", "1", " true"])
def test_no_other_word_says_so(text: str) -> None:
    assert mistakes(options_of, AZURE_AUTOSCALER=text) == [
        f'AZURE_AUTOSCALER: found "{text}", expected "true" or "false"'
    ]


def test_aks_can_be_asked_to_delete_only_where_it_is_known_which_cluster() -> None:
    beside = "AZURE_ALLOW=aks-replace: expected AZURE_CLUSTER_ID beside it, the cluster that is asked"
    assert mistakes(options_of, AZURE_ALLOW="aks-replace") == [beside]
    assert mistakes(options_of, AZURE_ALLOW="aks-replace", AZURE_CLUSTER_ID=SCALE_SET) == [beside]
    found = options_of({"AZURE_ALLOW": "aks-replace", "AZURE_CLUSTER_ID": CLUSTER})
    assert found.cluster == Cluster(SUBSCRIPTION, "gpu", "gpu-7")


@pytest.mark.parametrize(
    ("allow", "about"),
    [
        (
            "",
            "AKS supports only that it deletes a machine itself, which AZURE_CLUSTER_ID and AZURE_ALLOW=aks-",
        ),
        ("aks-replace", "does not cover, take AZURE_ALLOW=aks-compute"),
        ("aks-replace,aks-compute", ""),
    ],
)
def test_what_more_could_be_allowed_on_aks_is_said(allow: str, about: str) -> None:
    told = options_of({"AZURE_ALLOW": allow, "AZURE_CLUSTER_ID": CLUSTER}).about_aks
    assert (about in told) if about else (told == "")


# ---------------------------------------------------------------- whose cluster, whose metrics


@pytest.mark.parametrize("text", [CLUSTER, CLUSTER.upper(), CLUSTER.lower()])
def test_a_cluster_is_known_by_its_resource_id_in_any_case(text: str) -> None:
    found = CLUSTER_ID.of({"AZURE_CLUSTER_ID": text}).cluster
    assert found is not None
    assert (found.group.lower(), found.name.lower()) == ("gpu", "gpu-7")


def test_a_scale_set_may_stand_there_for_its_metrics() -> None:
    found = CLUSTER_ID.of({"AZURE_CLUSTER_ID": SCALE_SET})
    assert (found.id, found.cluster) == (SCALE_SET, None)


@pytest.mark.parametrize(
    "text",
    [
        "gpu-7",
        f"/subscriptions/{SUBSCRIPTION}",
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/gpu",
        f"https://management.azure.com{CLUSTER}",
        f"{CLUSTER}/",
        f"{CLUSTER}/agentPools/a",
        f"{CLUSTER}\n",
        f"{SCALE_SET}/virtualMachines/0",
        f"{GROUP}/Microsoft.Compute/virtualMachines/alone",
        CLUSTER.replace("gpu-7", ".."),
        CLUSTER.replace(SUBSCRIPTION, "sub"),
    ],
)
def test_anything_else_is_quoted_with_the_form_that_was_expected(text: str) -> None:
    (mistake,) = mistakes(options_of, AZURE_CLUSTER_ID=text)
    found, _, expected = mistake.partition(", expected ")
    assert found == f"AZURE_CLUSTER_ID: found {json.dumps(text)}"
    assert expected in (
        "a resource ID: /subscriptions/ID/resourceGroups/GROUP/providers/...",
        "the resource ID of an AKS cluster (.../Microsoft.ContainerService/managedClusters/NAME) or of a "
        "scale set (.../Microsoft.Compute/virtualMachineScaleSets/NAME)",
    )
    whole = text.startswith("/subscriptions/") and "/providers/" in text and not text.endswith("/")
    assert expected.startswith("the resource ID of an AKS cluster") is whole
    assert mistakes(load_settings, NODE_NAME="n", AZURE_CLUSTER_ID=text) == [mistake]


# ---------------------------------------------------------------- where a token may go


def test_without_an_endpoint_it_is_the_public_clouds() -> None:
    assert MANAGER.of({}) == MANAGER.of({NAME: ""}) == PUBLIC == "https://management.azure.com"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("https://management.usgovcloudapi.net/", "https://management.usgovcloudapi.net"),
        ("HTTPS://Management.ChinaCloudAPI.cn", "https://management.chinacloudapi.cn"),
        ("https://arm.example.com:8443", "https://arm.example.com:8443"),
        ("http://127.0.0.1:4577", "http://127.0.0.1:4577"),
        ("http://localhost", "http://localhost"),
    ],
)
def test_an_endpoint_is_https_or_this_machine(text: str, found: str) -> None:
    assert MANAGER.of({NAME: text}) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("https://management.azure.com/subscriptions", "the path '/subscriptions'"),
        ("https://ada:secret@management.azure.com", "a user name or password"),
        ("https://management.azure.com?key=secret", "a query or a fragment"),
        ("https://management.azure.com /", "a blank, or another character that no address holds"),
    ],
)
def test_an_address_that_no_token_may_go_to_is_named_without_its_secrets(text: str, found: str) -> None:
    (mistake,) = mistakes(MANAGER.of, **{NAME: text})
    assert mistake == f"{NAME}: found {found}; {EXPECTED}"
    assert "secret" not in mistake


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("management.azure.com", "expected an http:// or https:// URL"),
        (
            "http://management.azure.com",
            "expected https://, for a token is sent there (http:// on loopback only)",
        ),
    ],
)
def test_an_address_that_is_not_https_is_repeated(text: str, expected: str) -> None:
    assert mistakes(MANAGER.of, **{NAME: text}) == [f'{NAME}: found "{text}", {expected}']


def test_nothing_is_no_address_where_one_was_asked_for() -> None:
    with pytest.raises(Expected) as caught:
        endpoint("")
    assert (caught.value.found, f"expected {caught.value.what}") == ("nothing", EXPECTED)


def test_a_secret_in_an_address_is_told_neither_at_the_start_nor_by_the_factory() -> None:
    environ = {
        **WORKLOAD,
        **START,
        "AZURE_MONITOR_ENDPOINT": "https://x?sig=hunter2",
        NAME: "https://a:hunter2@x",
    }
    told = mistakes(load_settings, **environ)
    assert told == [
        f"{NAME}: found a user name or password; {EXPECTED}",
        f"AZURE_MONITOR_ENDPOINT: found a query or a fragment; {EXPECTED}",
    ]
    assert mistakes(lambda e: create_monitor(ProviderContext(SystemClock(), e)), **environ) == told


def test_a_token_is_for_the_endpoint_it_goes_to() -> None:
    gov = AzureSession(SystemClock(), {NAME: "https://management.usgovcloudapi.net"})
    assert gov.endpoint_audience == "https://management.core.usgovcloudapi.net"  # as the SDK has it
    own = AzureSession(SystemClock(), {NAME: "https://arm.example.com"})
    assert own.endpoint_audience == "https://arm.example.com"
    assert AzureSession(SystemClock(), {NAME: "http://127.0.0.1:1"}).endpoint_audience == PUBLIC


# ---------------------------------------------------------------- as whom to ask


@pytest.mark.parametrize("names", [("AZURE_CLIENT_ID",), tuple(WORKLOAD)])
def test_one_acts_as_a_managed_identity_by_its_name_or_by_workload_identity(names: tuple[str, ...]) -> None:
    check_identity({name: WORKLOAD[name] for name in names})


@pytest.mark.parametrize(
    "given", [{}, {"AZURE_CLIENT_ID": ""}, {k: v for k, v in WORKLOAD.items() if "CLIENT" not in k}]
)
def test_without_a_client_id_nobody_is_asked_for(given: dict[str, str]) -> None:
    """Else it would be whatever identity the machine has."""
    assert mistakes(check_identity, **given) == [
        "AZURE_CLIENT_ID: expected the client ID of the identity to act as; with workload identity the pod's "
        "label azure.workload.identity/use brings it, with AZURE_TENANT_ID and AZURE_FEDERATED_TOKEN_FILE"
    ]


@pytest.mark.parametrize(
    ("missing", "beside"),
    [
        ("AZURE_TENANT_ID", "AZURE_CLIENT_ID and AZURE_FEDERATED_TOKEN_FILE"),
        ("AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_ID and AZURE_TENANT_ID"),
    ],
)
def test_half_a_workload_identity_is_a_mistake_and_not_another_identity(missing: str, beside: str) -> None:
    given = {name: value for name, value in WORKLOAD.items() if name != missing}
    assert mistakes(check_identity, **given) == [
        f"{missing}: expected beside {beside}, for workload identity"
    ]


# ---------------------------------------------------------------- all at once


def test_every_mistake_is_told_at_once() -> None:
    wrong = {
        "AZURE_ALLOW": "everything",
        "AZURE_AUTOSCALER": "maybe",
        "AZURE_CLUSTER_ID": "gpu-7",
        NAME: "http://example.com",
    }
    told = mistakes(lambda environ: made(**environ), **wrong)
    assert {mistake.partition(":")[0].partition("=")[0] for mistake in told} == set(wrong)


def test_a_provider_and_a_monitor_are_made_without_the_sdk_being_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("azure", "msal")]:
        monkeypatch.delitem(sys.modules, name)
    context = ProviderContext(SystemClock(), {**WORKLOAD, **SUBJECT})
    assert load_provider("azure", context).name == "azure"
    monitor = create_monitor(context)
    assert monitor is not None
    assert monitor.name == "azuremonitor"
    assert {"azure.core", "azure.identity", "msal"}.isdisjoint(sys.modules)


def test_without_the_sdk_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"install node-recovery\[azure\]") as caught:
        require_sdk()
    assert caught.value.mistakes == (INSTALL,)


@pytest.mark.parametrize("missing", [["AZURE_CLUSTER_ID"], ["AZURE_REGION"], list(SUBJECT)])
def test_without_a_resource_to_tell_of_there_is_no_monitor_and_nothing_is_undelivered(
    missing: list[str],
) -> None:
    """Recovery works without, as the page says; each batch counted as one that could not be delivered."""
    environ = {**WORKLOAD, **{name: value for name, value in SUBJECT.items() if name not in missing}}
    assert create_monitor(ProviderContext(SystemClock(), environ)) is None


def test_a_monitor_checks_where_it_would_send_a_token() -> None:
    environ = {**WORKLOAD, "AZURE_MONITOR_ENDPOINT": "http://example.com"}
    with pytest.raises(SettingsError, match=r'AZURE_MONITOR_ENDPOINT: found "http://example\.com", exp'):
        create_monitor(ProviderContext(SystemClock(), environ))


# ---------------------------------------------------------------- the same at the agent's start

START = {"NODE_NAME": "aks-gpu-1"}
AT_START = [
    (
        "AZURE_ALLOW",
        "aks-repalce",
        f'expected any of {", ".join(ALLOWED)}; did you mean "aks-replace"?',
    ),
    ("AZURE_AUTOSCALER", "yes", 'expected "true" or "false"'),
    (
        "AZURE_CLUSTER_ID",
        "gpu-7",
        "expected a resource ID: /subscriptions/ID/resourceGroups/GROUP/providers/...",
    ),
    ("AZURE_REGION", "west/us", "expected the name of a region such as westeurope"),
    (NAME, "http://example.com", "expected https://, for a token is sent there (http:// on loopback only)"),
    ("AZURE_MONITOR_ENDPOINT", "metrics", "expected an http:// or https:// URL"),
]


def test_an_agent_with_wrong_settings_does_not_start() -> None:
    told = mistakes(load_settings, **START, **{name: text for name, text, _ in AT_START})
    assert sorted(told) == sorted(f'{name}: found "{text}", {sentence}' for name, text, sentence in AT_START)


@pytest.mark.parametrize(
    "given",
    [
        {"AZURE_ALLOW": ",".join(ALLOWED), "AZURE_CLUSTER_ID": CLUSTER, "AZURE_REGION": "West US 3"},
        {"AZURE_ALLOW": " aks-compute, ", "AZURE_CLUSTER_ID": SCALE_SET, "AZURE_AUTOSCALER": "true"},
        {NAME: "https://management.usgovcloudapi.net", "AZURE_MONITOR_ENDPOINT": "http://127.0.0.1:1"},
        dict.fromkeys([name for name, _, _ in AT_START], ""),
    ],
)
def test_what_the_provider_takes_the_agent_starts_with(given: dict[str, str]) -> None:
    assert made(**WORKLOAD, **given).name == "azure"
    assert load_settings(START | WORKLOAD | given).warnings == ()


# ---------------------------------------------------------------- the guide

UNIFORM = node(provider_id=f"azure://{SCALE_SET}/virtualMachines/0", system_uuid=SUBSCRIPTION)
VM = replace(UNIFORM, provider_id=f"azure://{GROUP}/Microsoft.Compute/virtualMachines/gpu-0")
AKS = replace(UNIFORM, labels={"kubernetes.azure.com/cluster": "MC_gpu"})
GUIDE = (Path(__file__).parents[2] / "docs" / "azure.md").read_text()


def test_the_policy_of_the_guide_is_one_that_a_uniform_scale_set_can_follow(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "policy.yaml").write_text(shown)
    loaded = load_policy(str(tmp_path / "policy.yaml"))
    assert loaded.warnings == ()
    assert check_for(loaded, made(**WORKLOAD).abilities(identify(UNIFORM)).actions, "azure", "sidecar") == []


@pytest.mark.parametrize("where", [UNIFORM, VM], ids=["Uniform", "Flexible"])
def test_the_policy_for_the_gpu_pack_is_one_that_scale_sets_can_follow(where: NodeView) -> None:
    """The chart's values for them name it, though its folder is AKS's."""
    loaded = load_policy(str(Path(__file__).parents[2] / "deploy" / "aks-gpu" / "policy" / "policy.yaml"))
    assert check_for(loaded, made(**WORKLOAD).abilities(identify(where)).actions, "azure", "sidecar") == []


@pytest.mark.parametrize(
    ("row", "where", "allow"),
    [
        ("an instance of a Uniform scale set", UNIFORM, ""),
        ("a VM of a Flexible scale set", VM, ""),
        ("a VM of a Flexible scale set or a single VM, with `flexible-reimage`", VM, "flexible-reimage"),
        ("a node of AKS", AKS, ""),
        ("a node of AKS, with `aks-replace`", AKS, "aks-replace"),
        ("a node of AKS, with `aks-compute`", AKS, "aks-compute"),
    ],
)
def test_what_a_node_can_have_is_as_the_guide_says(row: str, where: NodeView, allow: str) -> None:
    able = made(**WORKLOAD, AZURE_ALLOW=allow, AZURE_CLUSTER_ID=CLUSTER).abilities(identify(where))
    (line,) = [line for line in GUIDE.splitlines() if line.startswith(f"| {row} |")]
    _, _, steps, hardware, software = (cell.strip() for cell in line.strip("|").split("|"))
    named = {Step(step) for step in re.findall(r"`(\w+)`", steps)}
    assert able.actions >= named if "too" in steps else able.actions == named
    if hardware != "the same":
        told = [rung.do.value for rung in able.default_remedy]
        assert told == [word for word in re.split(r", (?:then )?", hardware) if word != "a person"]
    if software != "the same":
        assert [rung.do.value for rung in able.software_remedy] == software.split(", ")
    else:
        assert able.software_remedy == ()
