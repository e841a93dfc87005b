"""What a BMC answers, read by sushy through the agent's own wire: the service, its systems, one system, errors, heads.

A look resets nothing, whatever the answer; and a reset goes to a BMC that states the machine's own UUID (law 4).
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from zlib import crc32

from providers.baremetal.bmc import Limits
from providers.baremetal.inventory import Inventory
from providers.baremetal.redfish import RedfishProvider
from recovery.clock import SystemClock
from recovery.errors import NodeRecoveryError
from recovery.model import Machine, NodeView, Reference, Step
from tests.fuzz.engine import Called, Input
from tests.fuzz.inputs.provider_ids import UUID
from tests.fuzz.server import Answering

WEIGHT = 0.4
SYSTEM = "/redfish/v1/Systems/1"
NODE = NodeView("node-3", "u", "1", system_uuid=UUID)
WORDS = (
    b"On", b"Off", b"PoweringOn", b"PoweringOff", b"ForceRestart", b"ForceOff", b"GracefulRestart", b"PowerCycle", b"UUID", b"@odata.id",
    b"Members", b"Actions", b"#ComputerSystem.Reset", b"target", b"ResetType@Redfish.AllowableValues", b"@Redfish.ActionInfo", b"PowerState",
    b"http://evil.example/redfish/v1", b"//evil.example/x", b"/redfish/v1/../../x", b"@Message.ExtendedInfo", b"Location", UUID.encode(),
)  # fmt: skip


class Site:
    def __init__(self) -> None:
        self.server = Answering()
        folder = Path(mkdtemp())
        (folder / "rack-1").mkdir()
        (folder / "rack-1" / "username").write_text("operator")
        (folder / "rack-1" / "password").write_text("secret")
        self.inventories = [
            self._inventory(folder, name, path) for name, path in (("with", SYSTEM), ("without", ""))
        ]

    def _inventory(self, folder: Path, name: str, path: str) -> Inventory:
        file = folder / f"{name}.yaml"
        machine = f"{{systemUUID: {UUID}, address: 'http://127.0.0.1:{self.server.port}{path}', credentials: rack-1}}"
        file.write_text(
            f"apiVersion: noderecovery.dev/v1alpha1\nkind: BMCInventory\nmachines:\n  - {machine}\n"
        )
        return Inventory({"BMC_INVENTORY": str(file), "BMC_CREDENTIALS": str(folder)})

    def feed(self, case: bytes) -> None:
        choice, self.server.raw, self.server.asked = crc32(case), None, []
        try:
            told = json.loads(case)
        except (ValueError, RecursionError):
            told = None
        if isinstance(told, dict):
            self.server.answer = lambda method, path: answered(told, path)
        elif case.startswith(b"HTTP/"):
            self.server.raw = case
        else:
            self.server.answer = lambda method, path: (200, {}, case)
        limits = Limits(connect=0.5, read=0.5, look=1.0, patience=60.0)
        inventory = self.inventories[choice % 2]
        provider = RedfishProvider(SystemClock(), {"RECOVERY_MODE": "concluder"}, inventory, limits)
        machine = provider.identify(NODE)
        self._look(provider, machine, choice // 2)
        self._change(provider, machine, choice // 2, told)

    def _look(self, provider: RedfishProvider, machine: Machine, choice: int) -> None:
        looks = (
            lambda: provider.preflight(machine, Step.REBOOT),
            lambda: provider.poll(machine, reference_to(machine, choice)),
            lambda: provider.down(machine),
            lambda: list(provider.examine(machine, frozenset({Step.REBOOT}), True)),
        )
        with suppress(NodeRecoveryError):
            looks[choice % 4]()
        if changed := [x for x in self.server.asked if x[0] != "GET"]:
            raise Called(f"a look asked for {changed}")

    def _change(self, provider: RedfishProvider, machine: Machine, choice: int, told: Any) -> None:
        with suppress(NodeRecoveryError):
            if choice % 5:
                provider.start(machine, Step.REBOOT, "token", reference_to(machine, choice))
            else:
                provider.finish(machine, reference_to(machine, choice))
        changed = [x for x in self.server.asked if x[0] != "GET"]
        if len(changed) > 1:
            raise Called(f"asked more than once: {changed}")
        if changed and not states_it(told.get("system", told) if isinstance(told, dict) else self._body()):
            raise Called(f"asked of another machine: {changed}")

    def _body(self) -> Any:
        """The document behind the head of an answer that is a case as a whole."""
        raw = self.server.raw or b""
        try:
            return json.loads(raw[raw.find(b"{") :].decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None


def reference_to(machine: Machine, choice: int) -> Reference:
    reset = ("ForceRestart", "ForceOff", "PowerCycle", "GracefulRestart", "On")[choice // 8 % 5]
    return Reference(
        "baremetal",
        Step.REBOOT,
        {"machine": machine.id, "system": SYSTEM, "reset": reset, "power": "On", "last_reset": "x"},
    )


def states_it(system: Any) -> bool:
    """Whether this document has the machine's UUID, in either order of bytes, and a reset."""
    if not isinstance(system, dict) or not isinstance(system.get("UUID"), str):
        return False
    told = system["UUID"].strip().lower()
    return told.strip("{}").replace("urn:uuid:", "").replace("-", "") in {
        UUID.replace("-", ""),
        uuid.UUID(bytes_le=uuid.UUID(UUID).bytes).hex,
    }


def answered(told: dict[str, Any], path: str) -> tuple[int, dict[str, str], bytes]:
    if "system" not in told:
        return 200, {}, json.dumps(told).encode()
    plain = path.rstrip("/")
    part = {"/redfish/v1": "root", "/redfish/v1/Systems": "systems", SYSTEM: "system"}.get(plain, "info")
    status, headers = told.get("status"), told.get("headers")
    if not (isinstance(status, int) and 200 <= status < 600):
        status = 200
    known = (
        {k: v for k, v in headers.items() if isinstance(v, str) and k.isascii()}
        if isinstance(headers, dict)
        else {}
    )
    plainly = {
        k: v for k, v in known.items() if k.replace("-", "").isalnum() and v.isprintable() and v.isascii()
    }
    return status, plainly, json.dumps(told.get(part)).encode()


def example(**more: Any) -> bytes:
    system = {
        "@odata.id": SYSTEM, "Id": "1", "Name": "s", "UUID": UUID, "PowerState": "On", "LastResetTime": "2026-11-21T10:00:00Z",
        "BootProgress": {"LastState": "OSRunning"}, "Status": {"State": "Enabled", "Health": "OK"},
        "Actions": {"#ComputerSystem.Reset": {
            "target": f"{SYSTEM}/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "ForceRestart", "GracefulRestart"],
        }},
    }  # fmt: skip
    told = {
        "status": None,
        "headers": {"Location": SYSTEM},
        "root": {
            "@odata.id": "/redfish/v1/",
            "Id": "R",
            "Name": "r",
            "RedfishVersion": "1.6.0",
            "Systems": {"@odata.id": "/redfish/v1/Systems"},
        },
        "systems": {
            "@odata.id": "/redfish/v1/Systems",
            "Name": "S",
            "Members": [{"@odata.id": SYSTEM}],
            "Members@odata.count": 1,
        },
        "system": system,
        "info": {
            "Id": "i",
            "Name": "i",
            "Parameters": [{"Name": "ResetType", "AllowableValues": ["On", "PowerCycle"]}],
        },
    }
    return json.dumps(told | more).encode()


def make() -> Input:
    error = {
        "error": {
            "code": "c",
            "message": "m",
            "@Message.ExtendedInfo": [{"MessageId": "Base.1.0.ResourceInUse", "Message": "x"}],
        }
    }
    statuses = [example(status=s, system=error) for s in (301, 307, 400, 401, 403, 404, 409, 429, 500, 503)]
    read = json.loads(example())["system"]
    info = {
        **read,
        "Actions": {
            "#ComputerSystem.Reset": {"target": "/redfish/v1/r", "@Redfish.ActionInfo": "/redfish/v1/info"}
        },
    }
    heads = [
        b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(read).encode(),
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 3_000_000,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nx",
    ]
    deep = [b"[" * 3000, b'{"a":' * 3000]
    modules = ("providers.baremetal.redfish", "providers.baremetal.system", "providers.baremetal.bmc")
    return Input(
        "Redfish",
        Site().feed,
        [example(), example(system=info), *statuses, *heads, *deep],
        None,
        WORDS,
        WEIGHT,
        modules,
    )
