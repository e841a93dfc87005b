"""Bare metal's settings: who may switch the power, and that nothing of the others is imported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from providers.baremetal import create
from providers.baremetal.base import BareMetalProvider
from providers.baremetal.redfish import FORCE_OFF, FORCED, GRACEFUL, INSTALL, Limits, RedfishProvider
from providers.baremetal.settings import DIRECTORY, POWERS
from recovery.cli import group
from recovery.clock import SystemClock
from recovery.config.policy_file import check_for, load_policy
from recovery.config.settings import describe, load_settings
from recovery.model import Step
from recovery.provider.protocol import ProviderContext, load_provider
from tests.builders.mistakes import mistakes

GUIDE = (Path(__file__).parents[2] / "docs" / "baremetal.md").read_text()
START = {"NODE_NAME": "node-3"}


def made(**environ: str) -> Any:
    return create(ProviderContext(SystemClock(), environ))


# ---------------------------------------------------------------- who may switch the power


@pytest.mark.parametrize("environ", [{}, {"BAREMETAL_POWER": ""}, {"BAREMETAL_POWER": "none"}])
def test_by_default_nobody_but_a_person_may(environ: dict[str, str]) -> None:
    provider = made(**environ)
    assert type(provider) is BareMetalProvider
    assert provider.actions == frozenset()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("redfsh", '; did you mean "redfish"?'),
        ("Redfish", '; did you mean "redfish"?'),
        ("metal", '; did you mean "metal3"?'),
        ("ipmi", ""),
    ],
)
def test_a_word_that_is_none_is_told_with_those_that_are(text: str, hint: str) -> None:
    expected = f"expected one of none, redfish, kured, metal3{hint}"
    told = [f'BAREMETAL_POWER: found "{text}", {expected}']
    assert mistakes(lambda environ: made(**environ), BAREMETAL_POWER=text) == told
    assert mistakes(load_settings, **START, BAREMETAL_POWER=text) == told


def test_the_defaults_are_nobody_and_the_directory_of_the_manifests() -> None:
    defaults = {name: default for name, default, _ in describe()}
    assert defaults["BAREMETAL_POWER"] == POWERS[0]
    assert defaults["BMC_CREDENTIALS"] == DIRECTORY


@pytest.mark.parametrize("power", POWERS)
def test_the_default_remedy_stays_what_it_is(power: str) -> None:
    provider = made(BAREMETAL_POWER=power, **START)
    assert provider.name == "baremetal"
    assert isinstance(provider, BareMetalProvider)
    assert provider.default_remedy == BareMetalProvider.default_remedy
    assert provider.actions == (frozenset() if power == "none" else {Step.REBOOT})


def test_in_fleet_mode_kured_reboots_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is made on the node. A policy that asks for a reboot is refused, not each reboot of a node."""
    assert made(BAREMETAL_POWER="kured", RECOVERY_MODE="fleet").actions == frozenset()
    file = tmp_path / "policy.yaml"
    rule = "{name: gpu, match: {type: Gpu}, remedy: [{do: reboot}]}"
    head = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\nsources: [conditions]\n"
    file.write_text(f"{head}rules: [{rule}]\n")
    monkeypatch.setenv("BAREMETAL_POWER", "kured")
    check = ["policy", "check", str(file), "--provider", "baremetal", "--mode"]
    assert CliRunner().invoke(group, [*check, "sidecar"]).exit_code == 0
    refused = CliRunner().invoke(group, [*check, "fleet"]).exception
    assert 'found "reboot", which provider baremetal cannot do' in str(refused)
    assert "kured is asked by a file on the node, where no agent runs in fleet mode" in str(refused)


LOADED = """
import sys
from recovery.clock import SystemClock
from recovery.provider.protocol import ProviderContext, load_provider

load_provider("baremetal", ProviderContext(SystemClock(), {"BAREMETAL_POWER": sys.argv[1], "NODE_NAME": "n"}))
print(*sorted(name for name in sys.modules if name.startswith(("providers.baremetal.", "sushy", "requests"))))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("power", "modules"),
    [
        ("none", "base machine settings"),
        ("redfish", "aside base bmc inventory machine redfish settings system"),
    ],
)
def test_only_what_was_chosen_is_imported_and_the_sdk_only_when_it_is_needed(
    power: str, modules: str
) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", LOADED, power], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [f"providers.baremetal.{name}" for name in modules.split()]


# ---------------------------------------------------------------- redfish


def test_without_the_sdk_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert mistakes(lambda environ: made(**environ), BAREMETAL_POWER="redfish") == [INSTALL]
    assert "install node-recovery[metal]" in INSTALL


@pytest.mark.parametrize(
    ("text", "wrong"), [("10.0.7.0/24, fd00::/8,", ""), ("", ""), ("10.0.7.1/24", "x"), ("rack-1", "x")]
)
def test_networks_are_networks(text: str, wrong: str) -> None:
    if not wrong:
        assert load_settings({**START, "BMC_NETWORKS": text}).warnings == ()
        assert isinstance(made(BAREMETAL_POWER="redfish", BMC_NETWORKS=text), RedfishProvider)
        return
    told = [f'BMC_NETWORKS: found "{text}", expected networks such as 10.0.7.0/24, with commas between']
    assert mistakes(load_settings, **START, BMC_NETWORKS=text) == told
    assert mistakes(lambda environ: made(**environ), BAREMETAL_POWER="redfish", BMC_NETWORKS=text) == told


def test_what_is_none_of_redfishs_business_is_not_looked_at() -> None:
    assert made(BMC_INVENTORY="/nowhere", BMC_NETWORKS="x").actions == frozenset()


def test_a_provider_without_inventory_may_be_made_for_its_policy_alone() -> None:
    """A sidecar asks no BMC, and has to know the step."""
    provider = load_provider("baremetal", ProviderContext(SystemClock(), {"BAREMETAL_POWER": "redfish"}))
    assert provider.actions == {Step.REBOOT}


def test_a_call_ends_before_others_may_believe_that_it_cannot_begin() -> None:
    assert Limits().longest == RedfishProvider.call_timeout or Limits().longest <= 60
    assert made(BAREMETAL_POWER="redfish").call_timeout == Limits().longest


# ---------------------------------------------------------------- the guide


def test_the_guide_has_every_power_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| .* \|", GUIDE, re.MULTILINE)
    assert tuple(row for row in rows if row in POWERS) == POWERS


def test_the_policy_of_the_guide_is_one_that_any_power_can_follow(tmp_path: Path) -> None:
    shown = [
        block for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL) if "RecoveryPolicy" in block
    ]
    (tmp_path / "policy.yaml").write_text(shown[0])
    loaded = load_policy(str(tmp_path / "policy.yaml"))
    assert loaded.warnings == ()
    assert check_for(loaded, made(BAREMETAL_POWER="redfish").actions, "baremetal", "sidecar") == []
    assert check_for(loaded, made().actions, "baremetal", "sidecar") != []


def test_the_order_of_resets_is_that_of_the_guide() -> None:
    numbered = re.findall(r"^\d\. `(\w+)`", GUIDE, re.MULTILINE)
    assert numbered == [*FORCED, FORCE_OFF, GRACEFUL]
