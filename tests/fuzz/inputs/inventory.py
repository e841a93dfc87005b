"""The file that says where BMCs are."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from urllib.parse import urlsplit

from providers.baremetal.inventory import Inventory
from providers.baremetal.machine import identify
from recovery.errors import NodeRecoveryError
from recovery.model import NodeView
from tests.contract.test_bmc_inventory import HEAD, one
from tests.fuzz.engine import Called, Input
from tests.fuzz.inputs.provider_ids import UUID
from tests.fuzz.mutate import TEXTS

WEIGHT = 1
NODE = NodeView("node-3", "u", "1", system_uuid=UUID)
WORDS = (
    b"machines:", b"systemUUID: ", b"node: ", b"address: ", b"credentials: ", b"verify: false", b"https://", b"http://127.0.0.1",
    b"- ", b"  ", b"\n", b"&a ", b"*a", b"!!str ", b"~", b"../../etc", b"4c4c4544-0047-4a10-8051-b7c04f484433", b"{", b"}", b"@", b"\\",
)  # fmt: skip


class Site:
    def __init__(self) -> None:
        self.path = Path(mkdtemp()) / "bmc.yaml"
        self.environ = {"BMC_INVENTORY": str(self.path), "BMC_CREDENTIALS": "/nowhere"}

    def feed(self, content: bytes) -> None:
        self.path.write_bytes(content)
        with suppress(NodeRecoveryError):
            found = Inventory(self.environ)
            for entry in found.entries():
                parts = urlsplit(entry.bmc.origin)
                safe = (
                    parts.scheme == "https"
                    or parts.hostname in ("localhost", "::1")
                    or (parts.hostname or "").startswith("127.")
                )
                if (
                    not safe
                    or parts.username
                    or "/" in entry.bmc.credentials
                    or entry.bmc.credentials.startswith(".")
                ):
                    raise Called(f"credentials would go elsewhere: {entry}")
            found.find(identify(NODE))


def made(rng: Random) -> bytes:
    fields = {
        "systemUUID": rng.choice((UUID, UUID.upper(), *TEXTS[:8])),
        "node": rng.choice(("", "node-3", "node-4", *TEXTS[:8])),
        "address": rng.choice(
            (
                "https://10.0.0.7",
                "http://10.0.0.7",
                "https://[::1]:8443/x",
                "https://a@b",
                f"https://{rng.choice(TEXTS)}",
            )
        ),
        "credentials": rng.choice(("rack-1", "..", "a/b", *TEXTS[:8])),
        "verify": rng.choice(("", "true", "false", "no", "0")),
    }
    again = one(**fields).removeprefix(HEAD + "machines:\n") if rng.random() < 0.3 else ""
    return (one(**fields) + again).encode("utf-8", "replace")


def make() -> Input:
    many = (
        HEAD
        + "machines:\n"
        + "".join(
            f"  - {{systemUUID: 4c4c4544-0047-4a10-8051-{n:012x}, address: 'https://10.0.0.7', credentials: r}}\n"
            for n in range(300)
        )
    )
    bomb = HEAD + "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))
    plain = [
        one(),
        one(node="node-3", verify="false"),
        f"{HEAD}machines: []\n",
        bomb,
        many,
        "[" * 5000,
        "machines: " + "{a: " * 3000,
    ]
    modules = ("providers.baremetal.inventory", "recovery.provider.address")
    return Input(
        "BMC inventory", Site().feed, [text.encode() for text in plain], made, WORDS, WEIGHT, modules
    )
