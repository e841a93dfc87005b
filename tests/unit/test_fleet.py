"""PROVIDER=auto, decided for each node."""

from __future__ import annotations

from datetime import timedelta

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.provider import FakeProvider

from providers.aws import create as create_aws
from providers.baremetal import create as create_baremetal
from recovery.errors import SettingsError
from recovery.model import UNINITIALIZED, NodeView, Rung, Step
from recovery.provider.protocol import Provider, ProviderContext
from recovery.provider.registry import Identified, Providers
from tests.builders.nodes import node

EC2 = "aws:///eu-central-1a/i-0123456789abcdef0"
UUID = "ec2d3f4a-0000-4000-8000-0123456789ab"
CONTEXT = ProviderContext(FakeClock(), {})
FOR_NOTHING = (Rung(Step.CORDON, timedelta(minutes=1)),)


def load(name: str) -> Provider:
    if name == "fake":
        return FakeProvider()
    if name not in ("aws", "baremetal"):
        raise SettingsError([f"PROVIDER={name}: there is no such provider"])
    return create_aws(CONTEXT) if name == "aws" else create_baremetal(CONTEXT)


def identified(view: NodeView, configured: str = "auto") -> Identified:
    return Providers(configured, load).identify(view)


UNDONE = ((UNINITIALIZED, "true", "NoSchedule"),)
TABLE: dict[str, tuple[NodeView, str, str, str]] = {
    "aws": (node(provider_id=EC2), "aws", "i-0123456789abcdef0", ""),
    "aws, broken": (node(provider_id="aws:///a/not-an-instance"), "aws", "", "not-an-instance"),
    "azure, not there": (
        node(provider_id="azure:///subscriptions/s/x"),
        "",
        "",
        "PROVIDER=azure: there is no such provider",
    ),
    "bare metal": (node(provider_id="", system_uuid=UUID), "baremetal", UUID, ""),
    "another cloud": (
        node(provider_id="gce://project/zone/name"),
        "",
        "",
        "node-0 has the providerID 'gce://project/zone/name', whose cloud no provider here knows",
    ),
    "no scheme": (node(provider_id="i-0123"), "", "", "whose cloud no provider here knows"),
    "capital letters": (node(provider_id="AWS:///a/i-0123"), "", "", "whose cloud no provider here knows"),
    "kind": (node(provider_id="kind://docker/kind/node"), "", "", "whose cloud no provider here knows"),
    "auto mode": (
        node(provider_id=EC2, labels={"eks.amazonaws.com/compute-type": "auto"}),
        "aws",
        "",
        "Auto Mode",
    ),
    "hyperpod": (
        node(provider_id=EC2, labels={"sagemaker.amazonaws.com/node-health-status": "Schedulable"}),
        "aws",
        "",
        "HyperPod",
    ),
}


@pytest.mark.parametrize("row", TABLE)
def test_the_machine_behind_a_node_is_named_or_a_sentence_says_why_not(row: str) -> None:
    view, provider, machine, problem = TABLE[row]
    found = identified(view)
    assert (found.provider.name if found.provider else "") == provider
    assert (found.machine.id if found.machine else "") == machine
    assert problem in found.problem
    assert bool(found.problem) is not bool(machine)


@pytest.mark.parametrize("provider_id", ["", EC2, "gce://x"])
@pytest.mark.parametrize("configured", ["auto", "aws", "baremetal"])
def test_a_node_that_its_cloud_has_not_initialised_is_waited_for(provider_id: str, configured: str) -> None:
    found = identified(node(provider_id=provider_id, taints=UNDONE), configured)
    assert (found.provider, found.machine, found.problem) == (None, None, "")
    assert found.wait == f"node-0 is not initialised by its cloud yet (taint {UNINITIALIZED})"


def test_a_configured_provider_is_not_second_guessed() -> None:
    found = identified(node(provider_id=EC2), "fake")
    assert found.provider is not None
    assert found.provider.name == "fake"
    assert found.problem == f"node-0 has the providerID {EC2!r}, expected fake:///GROUP/m-ID"


def test_the_choice_is_made_anew_for_each_node() -> None:
    providers = Providers("auto", load)
    names = [providers.identify(node(provider_id=x, system_uuid=UUID)).provider for x in ("", EC2, "")]
    assert [p.name if p else "" for p in names] == ["baremetal", "aws", "baremetal"]


def test_a_provider_is_loaded_once_and_only_when_asked_for() -> None:
    loaded: list[str] = []

    def counting(name: str) -> Provider:
        loaded.append(name)
        return load(name)

    providers = Providers("auto", counting)
    assert (loaded, providers.in_use()) == ([], "")
    for _ in range(3):
        providers.identify(node(provider_id=EC2))
    assert (loaded, providers.in_use()) == (["aws"], "aws")


def test_a_configured_provider_is_in_use_from_the_start() -> None:
    assert Providers("aws", load).in_use() == "aws"


def test_what_a_provider_declares_is_what_the_core_sees() -> None:
    found = identified(node(), "fake")
    assert found.facts is not None
    fake = FakeProvider()
    assert (found.facts.name, found.facts.actions) == (fake.name, fake.actions)
    assert (found.facts.default_remedy, found.facts.call_timeout) == (fake.default_remedy, fake.call_timeout)
    assert Identified().facts is None
