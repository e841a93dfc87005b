"""Annotations, labels and taints of a Node, and of a BareMetalHost: where they lead, and what is written because of them.

Marks of others stay (law 5), and no credentials go where BMC_NETWORKS does not allow it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from random import Random
from typing import Any
from urllib.parse import urlsplit

from recovery_testkit.metal3 import baremetal_host

from providers.baremetal.inventory import Inventory
from providers.baremetal.machine import BMC_ADDRESS, BMC_CREDENTIALS, identify
from providers.baremetal.metal3 import Metal3Provider
from providers.baremetal.metal3_host import HOST, REBOOT
from recovery.catalog import foreign_claim
from recovery.clock import SystemClock
from recovery.decide import marks
from recovery.errors import NodeRecoveryError
from recovery.model import (
    CORDONED_BY,
    OUT_OF_SERVICE_BY,
    TAINT,
    TAINTED,
    Marks,
    NodeView,
    Reference,
    Step,
    Taint,
)
from recovery.provider.protocol import ObjectRef
from tests.fuzz.engine import Called, Input
from tests.fuzz.inputs.provider_ids import UUID
from tests.fuzz.mutate import TEXTS

WEIGHT = 12
NETWORKS = "10.0.7.0/24,fd00:7::/64"
OURS = {CORDONED_BY, OUT_OF_SERVICE_BY, TAINTED}
NAMED = Taint("aznhc", "failed", "NoSchedule")
WORDS = (
    BMC_ADDRESS.encode(), BMC_CREDENTIALS.encode(), HOST.encode(), REBOOT.encode(), CORDONED_BY.encode(), TAINT.encode(), b"node-recovery",
    b"https://10.0.7.9/redfish/v1/Systems/1", b"https://10.0.7.9@evil.example", b"https://[fd00:7::1%25eth0]", b"https://0x0a000709",
    b"https://10.0.7.9\\@10.0.8.9/", b"http://10.0.7.9", b"https://[::ffff:10.0.7.9]", b"https://10.0.7.9:443", b"/../", b"?", b"//",
    TAINTED.encode(), b"a=b:NoExecute", b"aznhc=failed:NoSchedule", b"reboot.metal3.io/x", b'{"by": "node-recovery"}', b"provisioned", b"error", b"servicing",
)  # fmt: skip


class Objects:
    """The API as the provider of Metal3 knows it."""

    def __init__(self, host: Any) -> None:
        self.host, self.written = host, list[Mapping[str, Any]]()

    def get(self, ref: ObjectRef) -> Any:
        return self.host

    def annotate(
        self, ref: ObjectRef, annotations: Mapping[str, Any], *, uid: str, resource_version: str
    ) -> None:
        self.written.append(annotations)


class Site:
    def __init__(self) -> None:
        self.inventory = Inventory({"BMC_NETWORKS": NETWORKS, "BMC_CREDENTIALS": "/nowhere"})
        self.networks = [ip_network(x) for x in NETWORKS.split(",")]

    def feed(self, case: bytes) -> None:
        read = _read(case)
        if read is not None:
            view, host = read
            foreign_claim(view)
            self._marks(view)
            self._bmc(view)
            self._metal3(view, host)

    def _marks(self, view: NodeView) -> None:
        marks.marked(view)
        for cordoned in (True, False):
            marks.undone(view, Marks(cordoned, True))
            named = Marks(cordoned, True, taints=(NAMED,))
            patches = [marks.mark_patch(view, x) for x in (Marks(cordoned, True), named)]
            patches += [marks.unmark_patch(view), marks.disown_patch(view, (NAMED,))]
            patches += [marks.out_of_service_patch(view, on) for on in (True, False)]
            for patch in filter(None, patches):
                if (patch["metadata"].get("annotations") or {}).keys() - OURS:
                    raise Called(f"an annotation of somebody else's: {patch}")
                kept = (
                    {t["key"] for t in patch["spec"].get("taints") or []}
                    if "taints" in patch["spec"]
                    else None
                )
                foreign = {key for key, _, _ in view.taints_of_others} - {TAINT, marks.OUT_OF_SERVICE}
                if kept is not None and not foreign <= kept:
                    raise Called(f"a taint of somebody else's: {patch}")

    def _bmc(self, view: NodeView) -> None:
        with suppress(NodeRecoveryError):
            bmc = self.inventory.find(identify(view))
            where = ip_address(urlsplit(bmc.origin).hostname or "")
            if (
                not bmc.origin.startswith("https://")
                or not bmc.verify
                or not any(where in n for n in self.networks)
            ):
                raise Called(f"credentials go elsewhere: {bmc}")
            if "/" in bmc.credentials or bmc.credentials in ("..", "."):
                raise Called(f"credentials of another directory: {bmc}")

    def _metal3(self, view: NodeView, host: Any) -> None:
        objects = Objects(host)
        provider = Metal3Provider(objects, SystemClock())
        with suppress(NodeRecoveryError):
            machine = provider.identify(view)
            reference = Reference(
                provider.name, Step.REBOOT, {"machine": machine.id, "uid": "host-uid", "version": "1"}
            )
            for ask in (
                lambda: provider.preflight(machine, Step.REBOOT),
                lambda: provider.poll(machine, reference),
                lambda: provider.down(machine),
            ):
                with suppress(NodeRecoveryError):
                    ask()
            if objects.written:
                raise Called(f"a look wrote {objects.written}")
            provider.cancel(machine, reference)
            if objects.written and host["metadata"]["uid"] != "host-uid":
                raise Called(f"another host was written to: {objects.written}")
            provider.start(machine, Step.REBOOT, "t", reference)
            if {key for written in objects.written for key in written} - {REBOOT}:
                raise Called(f"an annotation that is not ours: {objects.written}")


def _read(case: bytes) -> tuple[NodeView, Any] | None:
    """The Node and the host, if they have the types that the API server holds all objects to."""
    try:
        told = json.loads(case)
        texts: dict[str, Any] = {
            **told["labels"],
            **told["annotations"],
            **(told["host"]["metadata"].get("annotations") or {}),
        }
        taints = tuple((t["key"], t["value"], t["effect"]) for t in told["taints"])
        if not all(
            isinstance(x, str) for x in (*texts.values(), *(x for t in taints for x in t), told["providerID"])
        ):
            return None
        meta = told["host"]["metadata"]
        if not all(isinstance(meta.get(key) or "", str) for key in ("uid", "resourceVersion", "name")):
            return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    view = NodeView(
        "node-3", "u", "1", told["providerID"], "boot-1", UUID,
        bool(told.get("unschedulable")), told["labels"], told["annotations"], taints, addresses=("10.0.0.1",),
    )  # fmt: skip
    return view, told["host"]


def example(**more: Any) -> bytes:
    host = baremetal_host("rack-1", consumer="workers-abc", addresses=["10.0.0.1"], annotations={})
    host["metadata"] |= {"uid": "host-uid", "resourceVersion": "1"}
    told: dict[str, Any] = {
        "providerID": "metal3://metal3/rack-1/workers-abc",
        "labels": {"noderecovery.dev/exclude": "false", "x": "y"},
        "annotations": {BMC_ADDRESS: "https://10.0.7.9/redfish/v1/Systems/1", BMC_CREDENTIALS: "rack-1"},
        "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
        "host": host,
    }
    return json.dumps(told | more).encode()


def made(rng: Random) -> bytes:
    """A Node that leads to a BMC, by addresses of every shape. Little of it is odd at a time: what is, is looked at first."""
    hosts = (
        "10.0.8.9", "10.0.7.256", "010.0.7.9", "0x0a000709", "167774985", "10.7.9", "[fd00:7::1]", "[fd00:8::1]", "evil.example", "localhost",
        "[::ffff:10.0.7.9]", "[fd00:7::1%eth0]", "127.0.0.1", "10.0.7.9.evil.example", "169.254.169.254", *TEXTS[:9],
    )  # fmt: skip
    scheme = _plain_or(rng, "https://", "HTTPS://", "http://", "//", "")
    user = _plain_or(rng, "", "u:p@", "10.0.7.9@", "10.0.7.9\\@")
    path = _plain_or(
        rng,
        "/redfish/v1/Systems/1",
        "",
        "/",
        "/../x",
        ":443",
        ":0",
        ":x",
        "?a",
        "#a",
        "/redfish/v1/Systems/1/../../x",
    )
    credentials = _plain_or(rng, "rack-1", "..", "a/b", "", "/etc", *TEXTS[:12])
    host = "10.0.7.9" if rng.random() < 0.4 else rng.choice(hosts)
    told = {BMC_ADDRESS: f"{scheme}{user}{host}{path}", BMC_CREDENTIALS: credentials}
    return example(annotations=told, providerID="")


def _plain_or(rng: Random, plain: str, *odd: str) -> str:
    return plain if rng.random() < 0.75 else rng.choice(odd)


def make() -> Input:
    marked = {CORDONED_BY: "node-recovery", OUT_OF_SERVICE_BY: "node-recovery", HOST: "metal3/rack-1"}
    ours = [
        {"key": TAINT, "value": "", "effect": "NoSchedule"},
        {"key": "a", "value": "b", "effect": "NoExecute"},
    ]
    named = {**marked, TAINTED: f"a=b:NoExecute,{NAMED}"}
    examples = [
        example(),
        example(annotations=marked, taints=ours, unschedulable=True, providerID=""),
        example(annotations=named, taints=ours, unschedulable=True, providerID=""),
    ]
    modules = (
        "recovery.decide.marks",
        "providers.baremetal.metal3_host",
        "providers.baremetal.metal3",
        "recovery.provider.address",
    )
    return Input("annotations", Site().feed, examples, made, WORDS, WEIGHT, modules)
