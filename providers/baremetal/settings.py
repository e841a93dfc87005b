"""What the provider ``baremetal`` reads. Machines without a providerID are its own."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from recovery.provider.declaration import Declaration, Expected, Setting, did_you_mean

NONE = "none"
POWERS = (NONE, "redfish", "kured", "metal3")
DIRECTORY = "/etc/node-recovery/bmc"

Network = IPv4Network | IPv6Network


def _power(text: str) -> str:
    power = text or NONE
    if power not in POWERS:
        raise Expected(f"one of {', '.join(POWERS)}{did_you_mean(power, POWERS)}")
    return power


def _networks(text: str) -> tuple[Network, ...]:
    words = (word.strip() for word in text.split(","))
    try:
        return tuple(ip_network(word) for word in words if word)
    except ValueError:
        raise Expected("networks such as 10.0.7.0/24, with commas between") from None


def _file(text: str) -> Path:
    if not re.fullmatch(r"(/[^/\s]+)+", text) or "/../" in f"{text}/":
        raise Expected("the absolute path of a file")
    return Path(text)


POWER = Setting(
    "BAREMETAL_POWER",
    NONE,
    "who reboots a bare-metal machine: `none` (a person), `redfish` (its BMC), `kured`, `metal3`",
    _power,
)
INVENTORY = Setting(
    "BMC_INVENTORY", "", "for `redfish`: the path of a BMCInventory file, which lists each machine's BMC", str
)
CREDENTIALS = Setting(
    "BMC_CREDENTIALS",
    DIRECTORY,
    "for `redfish`: the directory that holds the BMCs' credentials, one mounted Secret for each",
    lambda text: Path(text or DIRECTORY),
)
NETWORKS = Setting(
    "BMC_NETWORKS",
    "",
    "for `redfish`: networks, separated by commas; a Node's annotation `noderecovery.dev/bmc-address` is "
    "used only inside them; empty: never",
    _networks,
)
SENTINEL = Setting(
    "KURED_SENTINEL",
    "/var/run/reboot-required",
    "for `kured`: the file that asks kured for a reboot; it must be on a tmpfs",
    _file,
)

DECLARATION = Declaration((POWER, INVENTORY, CREDENTIALS, NETWORKS, SENTINEL), schemes=("",))
