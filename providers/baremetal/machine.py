"""Which machine is behind a Node, and what is known of its BMC. Nobody is asked.

Credentials are directories below BMC_CREDENTIALS, as a Secret is mounted: ``username``, ``password``, and
``ca.crt`` where the BMC's certificate is one of one's own authority. They are read for each call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from recovery.errors import Refused, Retry
from recovery.model import GROUP, Machine, NodeView, is_nobodys
from recovery.provider.address import NO_SCHEME, parsed

NAME = "baremetal"
BMC_ADDRESS, BMC_CREDENTIALS = f"{GROUP}/bmc-address", f"{GROUP}/bmc-credentials"
_CLOUDS = ("aws://", "azure://")

LARGEST_SECRET = 4096  # bytes
LONGEST = 512  # characters of an annotation: a record that holds 256 KiB of one would not be taken
EXPECTED = (
    "expected https:// and a host, with the path of its Redfish system at most (http:// on loopback only)"
)
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}", re.ASCII)
SYSTEM_PATH = re.compile(r"/redfish(?:/(?!\.+(?:/|$))[\w.~:+-]+)+/?", re.ASCII)


@dataclass(frozen=True)
class Bmc:
    """``origin`` is scheme, host and port; ``path`` the Redfish system, or empty; ``credentials`` a name."""

    origin: str
    path: str = ""
    credentials: str = ""
    verify: bool = True

    @property
    def host(self) -> str:
        """As it is named in sentences."""
        return self.origin.partition("://")[2]


@dataclass(frozen=True)
class Credentials:
    """``authority``: by whom the BMC is certified; None where a public authority is to be believed."""

    username: str
    password: str = field(repr=False)
    directory: str = ""
    authority: str | None = None


# ---------------------------------------------------------------- the machine


def identify(node: NodeView) -> Machine:
    """The machine with the Node's system UUID. Raises ``Refused`` for a cloud's, and without a UUID.

    ``route``: node, and where the Node has the annotations, bmc (an address) and bmc_credentials (a name).
    """
    if node.provider_id.startswith(_CLOUDS):
        raise Refused(f"node {node.name} has the providerID {node.provider_id!r}: it is not bare metal")
    uuid = node.system_uuid.strip().lower()
    if not uuid or is_nobodys(uuid):
        raise Refused(
            f"node {node.name} has the system UUID {node.system_uuid!r}; expected was one of its own, "
            "by which the machine could be told from others"
        )
    told = {"bmc": BMC_ADDRESS, "bmc_credentials": BMC_CREDENTIALS}
    given = {
        key: node.annotations[name][:LONGEST] for key, name in told.items() if node.annotations.get(name)
    }
    route = {"node": node.name, **given}
    return Machine(NAME, uuid, node.provider_id, route=route)


def canonical(uuid: str) -> str:
    """The same text for both byte orders of a UUID; empty for what is none, or nobody's own.

    SMBIOS keeps the first three fields with the lowest byte first since 2.6, and not every firmware does, so
    the kernel and the BMC may show one UUID in two ways (DMTF DSP0134, "System - UUID").
    """
    try:
        found = UUID(uuid.strip())
    except ValueError:
        return ""
    return "" if is_nobodys(str(found)) else min(str(found), str(UUID(bytes=found.bytes_le)))


# ---------------------------------------------------------------- its BMC


def address_of(text: str) -> Bmc | str:
    """The BMC at this address, or what is wrong with it. A password is sent there, hence https."""
    found = parsed(text)
    if found == NO_SCHEME:
        return f"{text[:80]!r}, which begins with neither"
    if isinstance(found, str):
        return found
    if found.readable:
        return f"http://{found.host}, over which a password could be read by others"
    if found.path and not SYSTEM_PATH.fullmatch(found.path):
        return f"the path {found.path[:80]!r}, which does not begin with /redfish/ or leads elsewhere"
    return Bmc(found.origin, found.path)


def credentials_in(directory: Path) -> Credentials:
    """The credentials in ``directory``, read now. Raises ``Refused``, and ``Retry`` where they are missing: a
    kubelet mounts a Secret that is made later. No sentence holds any of them."""
    username, password = _secret(directory / "username"), _secret(directory / "password")
    if ":" in username:
        raise Refused(f"{directory / 'username'} holds a colon, which no user name may (RFC 7617)")
    authority = directory / "ca.crt"
    return Credentials(username, password, str(directory), str(authority) if authority.exists() else None)


def _secret(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_SECRET + 1)
    except OSError as error:
        raise Retry(
            f"the BMC's credentials cannot be read from {path} ({error.strerror or type(error).__name__}): "
            "expected a Secret with username and password, mounted there"
        ) from None
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable() or len(content) > LARGEST_SECRET:
        raise Refused(f"{path}: expected one line of printable text, of at most {LARGEST_SECRET} bytes")
    return text
