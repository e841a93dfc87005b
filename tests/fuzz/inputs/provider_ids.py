"""What a Node says of its machine: providerID, system UUID, labels, annotations. Nobody is asked.

Another machine than the providerID's must never come out: a call would go there.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from providers.aws.identity import identify as identify_aws
from providers.azure import machines
from providers.azure.identity import identify as identify_azure
from providers.baremetal.kured import KuredProvider
from providers.baremetal.metal3_host import host_of, ref_of
from recovery.errors import NodeRecoveryError, Refused
from recovery.kube.views import node_view
from recovery.model import Machine, NodeView
from tests.fuzz.engine import Called, Input
from tests.fuzz.mutate import TEXTS

WEIGHT = 40
UUID = "4c4c4544-0047-4a10-8051-b7c04f484433"
GROUP = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/rg-1/providers/Microsoft.Compute"
IDS = (
    "aws:///us-west-2a/i-0123456789abcdef0", "aws:///us-east-1-wl1-bos-wlz-1/i-01234567", f"azure://{GROUP}/virtualMachines/vm-1",
    f"azure://{GROUP}/virtualMachineScaleSets/set-1/virtualMachines/7", "", f"metal3://{UUID}", "metal3://metal3/rack-1/workers-abc",
    f"baremetalhost:///metal3/rack-1/{UUID}", "gce://project/zone/name", "fake:///workers/m-1",
)  # fmt: skip
WORDS = (
    b"aws:///", b"azure:///", b"/subscriptions/", b"/resourceGroups/", b"/virtualMachines/", b"virtualMachineScaleSets", b"..", b"%2e%2e",
    b"/", b"?api-version=1", b"#", b"i-0123456789abcdef0", b"us-west-2a", b"metal3://", b"\n", b"\xd9\xa3", b"karpenter.sh/nodepool",
)  # fmt: skip


def node(provider_id: str, **more: Any) -> bytes:
    labels = {"karpenter.sh/nodepool": "gpu", "kubernetes.azure.com/cluster": "MC_x", "agentpool": "gpu"}
    told = {
        "metadata": {
            "name": "node-3",
            "uid": "u",
            "resourceVersion": "1",
            "labels": labels,
            "annotations": {},
        },
        "spec": {"providerID": provider_id},
        "status": {
            "nodeInfo": {"bootID": "boot-1", "systemUUID": UUID},
            "addresses": [{"address": "10.0.0.1"}],
        },
    }
    return json.dumps(told | more).encode()


def feed(case: bytes) -> None:
    view = read(case)
    if view is None:
        return
    for identify, same in ((lambda n: identify_aws(n, {}), _aws), (identify_azure, _azure), (_bare, _metal)):
        try:
            machine = identify(view)
        except Refused:
            continue
        if not same(machine, view):
            raise Called(f"another machine: {machine!r} of {view.provider_id!r}")
    host_of(view)


def read(case: bytes) -> NodeView | None:
    """The Node, if it has the types that the API server holds Nodes to."""
    try:
        obj = json.loads(case)
        meta, spec, info = obj["metadata"], obj["spec"], obj["status"]["nodeInfo"]
        texts = [
            meta["name"],
            spec["providerID"],
            info["systemUUID"],
            *meta["labels"].items(),
            *meta["annotations"].items(),
        ]
        texts += [x["address"] for x in obj["status"]["addresses"]]
        plain = all(isinstance(x, str) for t in texts for x in (t if isinstance(t, tuple) else (t,)))
        return node_view(obj) if plain and _nothing_else(obj) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _nothing_else(obj: dict[str, Any]) -> bool:
    known = {"metadata": {"name", "uid", "resourceVersion", "labels", "annotations"}, "spec": {"providerID"}}
    return obj.keys() <= {*known, "status"} and all(obj[key].keys() <= names for key, names in known.items())


def _bare(view: NodeView) -> Machine:
    return KuredProvider.identify(object.__new__(KuredProvider), view)


def _aws(machine: Machine, view: NodeView) -> bool:
    zone, instance = view.provider_id.removeprefix("aws:///").split("/")
    return (machine.id, machine.route["zone"]) == (instance, zone) and zone.startswith(
        machine.route["region"]
    )


def _azure(machine: Machine, view: NodeView) -> bool:
    """Its parts make the same path again, and name one VM."""
    route = machine.route
    kind = (
        "virtualMachineScaleSets/{scale_set}/virtualMachines/{instance}"
        if "instance" in route
        else "virtualMachines/{vm}"
    )
    path = f"/subscriptions/{route['subscription']}/resourceGroups/{route['resource_group']}/providers/Microsoft.Compute"
    again = f"azure://{path}/{kind.format(**route)}"
    return again.lower() == view.provider_id.lower() and ".." not in machines.where(route) and again.isascii()


def _metal(machine: Machine, view: NodeView) -> bool:
    if not view.provider_id.startswith(("aws://", "azure://")):
        try:
            ref = ref_of(
                Machine(
                    "baremetal", machine.id, machine.provider_id, route={**machine.route, **host_of(view)}
                )
            )
        except NodeRecoveryError:
            return True
        return "/" not in ref.namespace + ref.name and ".." not in (ref.namespace, ref.name)
    return False


def made(rng: Random) -> bytes:
    """A real one with some of its parts odd, missing, twice, or of another one."""
    parts = rng.choice(IDS).split("/")
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(parts := parts or [""]))
        draw = rng.random()
        if draw < 0.2:
            parts[at : at + 1] = rng.choice(((), (parts[at], parts[at]), rng.choice(IDS).split("/")))
        elif draw < 0.6:
            middle, odd = (
                rng.randint(0, len(parts[at])),
                rng.choice(("A", "x7", ".", "..", "%2f", "-", " ", "é", "٣", "\n", "?", "#")),
            )
            parts[at] = parts[at][:middle] + odd + parts[at][middle:]
        else:
            parts[at] = rng.choice(
                (*TEXTS, "7", "i-0123456789abcdef0", "us-west-2a", parts[at].upper(), parts[at][::-1])
            )
    annotations = {
        "noderecovery.dev/bare-metal-host": rng.choice(("metal3/rack-1", "../x", "a/b/c", *TEXTS[:12]))
    }
    metadata = {
        "name": "node-3" if rng.random() < 0.8 else rng.choice(TEXTS[:9]),
        "labels": {},
        "annotations": annotations if rng.random() < 0.3 else {},
    }
    return node("/".join(parts), metadata=metadata)


def make() -> Input:
    modules = ("providers.aws.identity", "providers.azure.identity", "providers.baremetal.machine")
    return Input("provider IDs", feed, [node(x) for x in IDS], made, WORDS, WEIGHT, modules)
