"""Bare metal passes the kit of all providers, and does nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest
from recovery_testkit.provider_kit import ProviderKit

from recovery.clock import SystemClock
from recovery.errors import Refused
from recovery.model import NodeView, Reference, Step
from recovery.provider.protocol import Provider, ProviderContext, load_provider

UUID = "4C4C4544-0047-4A10-8051-B7C04F484433"
NODE = NodeView("metal-1", "node-uid", "1", system_uuid=UUID)


class NoWorld:
    """There is no far end."""

    def calls(self) -> int:
        return 0

    mutating_calls = calls

    def lose_answer(self) -> None: ...
    def delay(self) -> None: ...
    def refuse(self, kind: str) -> None: ...
    def remove_machine(self) -> None: ...
    def finish_action(self, action: Step) -> Sequence[str]:
        return ()


SHARED_BY_MANY = (
    "FEFEFEFE-FEFE-FEFE-FEFE-FEFEFEFEFEFE",
    "01010101-0101-0101-0101-010101010101",
    "00010203-0405-0607-0809-0A0B0C0D0E0F",
    "03020100-0504-0706-0809-0A0B0C0D0E0F",
    "01020304-0506-0708-090A-0B0C0D0E0F10",
    "10000000-0000-8000-0040-000000000000",
)
"""As systemd (``id128_bogus``) and osquery (#4374, #8887) know them."""


class TestBareMetal(ProviderKit):
    rubbish = (
        "aws:///us-west-2a/i-0123456789abcdef0",
        "azure:///subscriptions/x",
        replace(NODE, system_uuid=""),
        replace(NODE, system_uuid="  "),
        replace(NODE, system_uuid="00000000-0000-0000-0000-000000000000"),
        replace(NODE, system_uuid="03000200-0400-0500-0006-000700080009"),
        replace(NODE, system_uuid="00020003-0004-0005-0006-000700080009"),  # the same, swapped
        *(replace(NODE, system_uuid=x) for x in SHARED_BY_MANY),
    )

    @pytest.fixture
    def world(self) -> NoWorld:
        return NoWorld()

    @pytest.fixture
    def provider(self) -> Provider:
        return load_provider("baremetal", ProviderContext(SystemClock(), os.environ))

    @pytest.fixture
    def node(self) -> NodeView:
        return NODE

    def test_the_machine_is_its_system_uuid_however_it_is_written(self, provider: Provider) -> None:
        assert provider.identify(NODE).id == UUID.lower()
        assert provider.identify(replace(NODE, system_uuid=UUID.lower())) == provider.identify(NODE)

    def test_the_way_to_it_is_the_name_of_its_node(self, provider: Provider) -> None:
        assert dict(provider.identify(NODE).route) == {"node": "metal-1"}

    def test_a_person_is_asked_for_whatever_is_to_be_done(self, provider: Provider) -> None:
        machine = provider.identify(NODE)
        with pytest.raises(Refused, match="is bare metal: a person has to reboot it"):
            provider.preflight(machine, Step.REBOOT)
        with pytest.raises(Refused, match="a person has to replace it"):
            provider.poll(machine, Reference("baremetal", Step.REPLACE))

    def test_a_node_it_cannot_tell_from_others_is_refused_with_what_was_found(
        self, provider: Provider
    ) -> None:
        with pytest.raises(Refused, match="node metal-1 has the providerID 'aws:///x': it is not bare metal"):
            provider.identify(replace(NODE, provider_id="aws:///x"))
        with pytest.raises(Refused) as caught:
            provider.identify(replace(NODE, system_uuid=" "))
        assert caught.value.reason == (
            "node metal-1 has the system UUID ' '; expected was one of its own, by which the machine could "
            "be told from others"
        )

    def test_it_cordons_and_hands_over(self, provider: Provider) -> None:
        assert [rung.do for rung in provider.default_remedy] == [Step.CORDON]
