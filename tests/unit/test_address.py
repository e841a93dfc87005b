"""Is an address that a server names its own? What is secret goes there."""

from __future__ import annotations

import pytest

from recovery.provider.address import is_at

AZURE, BMC, LOCAL = "https://management.azure.com", "https://[fd00::7]", "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("origin", "url"),
    [
        (AZURE, f"{AZURE}/subscriptions/1"),
        (AZURE, f"{AZURE}:443/subscriptions/1"),
        (f"{AZURE}:443", f"{AZURE}/subscriptions/1"),
        (f"{AZURE}:443", f"{AZURE}:443/subscriptions/1"),
        (AZURE, "https://Management.Azure.com/subscriptions/1"),
        (BMC, f"{BMC}:443/redfish/v1/"),
        ("http://127.0.0.1", "http://127.0.0.1:80/redfish/v1/"),
        (LOCAL, f"{LOCAL}/redfish/v1/"),
    ],
)
def test_an_address_is_a_servers_own_with_and_without_the_port_that_its_scheme_has(
    origin: str, url: str
) -> None:
    assert is_at(url, origin)


@pytest.mark.parametrize(
    ("origin", "url"),
    [
        (AZURE, f"{AZURE}:8443/subscriptions/1"),
        (AZURE, f"{AZURE}:80/subscriptions/1"),
        (AZURE, f"{AZURE}:443@elsewhere.example/subscriptions/1"),
        (AZURE, f"{AZURE}.elsewhere.example/subscriptions/1"),
        (AZURE, f"{AZURE}:443.elsewhere.example/subscriptions/1"),
        (AZURE, "http://management.azure.com:443/subscriptions/1"),
        (AZURE, AZURE),
        (BMC, "https://[fd00::8]/redfish/v1/"),
        (LOCAL, "http://127.0.0.1/redfish/v1/"),
        (LOCAL, "http://127.0.0.1:80/redfish/v1/"),
    ],
)
def test_no_other_address_is_a_servers_own(origin: str, url: str) -> None:
    assert not is_at(url, origin)
