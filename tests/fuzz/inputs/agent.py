"""Record, gate, Node and page together, to a whole agent that may act: what can be read may still be nonsense.

A record or gate that cannot be read holds everything: nothing is asked of the provider, and the Node is not touched.
"""

from __future__ import annotations

import json
from typing import Any

from recovery_testkit.stage import Stage, npd_page

from recovery.errors import Undecodable
from recovery.store.gate import decode as decode_gate
from recovery.store.record_codec import decode as decode_record
from tests.fuzz.api import typed
from tests.fuzz.engine import Called, Input
from tests.stories.scenery import GATES, RECORDS
from tests.stories.scenes import POINTS, at

WEIGHT = 0.25
NODE = "node-0"
DEEPEST = 60
"""Of an object: the API in memory goes through it by recursion. Other inputs try deeper ones."""
WORDS = (
    b"recovering",
    b"waiting",
    b"proving",
    b"drain",
    b"replace",
    b"reboot",
    b"submitted",
    b"abandoned",
    b"fleet",
    b"node-0",
    b"m-0",
    b"m-1",
)


def feed(case: bytes) -> None:
    try:
        told = json.loads(case)
        record, gate, node, page = told["record"], told["gate"], told["node"], told["page"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if not isinstance(record, dict) or not isinstance(gate, dict) or not isinstance(page, str):
        return
    if max(_depth(record), _depth(gate), _depth(node)) > DEEPEST:
        return
    record, gate = (json.loads(typed(json.dumps(x).encode())) for x in (record, gate))
    s = Stage(crds=False)
    for crd in CRDS:
        s.store.install_crd(crd)
    s.nodes(3)
    patch = {
        key: node[key]
        for key in ("annotations", "labels")
        if isinstance(node, dict) and isinstance(node.get(key), dict)
    }
    s.store.request(
        "PATCH",
        f"/api/v1/nodes/{NODE}",
        body={"metadata": patch},
        content_type="application/merge-patch+json",
        user_agent="somebody",
    )
    record["metadata"]["name"], gate["metadata"]["name"] = NODE, "fleet"
    for obj in (record, gate):
        del obj["metadata"]["resourceVersion"]
    try:
        for kind, obj in (("NodeRecovery", _known_reference(record)), ("RecoveryGate", gate)):
            s.store.load({**obj, "apiVersion": "noderecovery.dev/v1alpha1", "kind": kind})
    except AssertionError:  # an API server would not have it
        return
    s.pages[NODE].body = page.encode("utf-8", "replace")
    holds = not (
        _readable(decode_record, s, f"{RECORDS}/{NODE}") and _readable(decode_gate, s, f"{GATES}/fleet")
    )
    before = s.node(NODE)["metadata"]["resourceVersion"]
    actor = s.agent(NODE)
    for _ in range(6):
        actor.turn()
        s.clock.advance(0.5)
    if holds and s.provider.calls:
        raise Called(f"nothing can be read, and it asked for {s.provider.calls}")
    if holds and s.node(NODE)["metadata"]["resourceVersion"] != before:
        raise Called("nothing can be read, and it wrote to the Node")
    if len(s.provider.calls) > 1:
        raise Called(f"asked more than once: {s.provider.calls}")
    if any(machine != "m-0" for _, machine, _ in s.provider.calls):
        raise Called(f"asked of another machine: {s.provider.calls}")


def _depth(tree: Any) -> int:
    """How deep it is, or one more than DEEPEST."""
    level, depth = [tree], 0
    while level and depth <= DEEPEST:
        level = [
            x
            for at in level
            for x in (at.values() if isinstance(at, dict) else at if isinstance(at, list) else ())
        ]
        depth += 1
    return depth


def _known_reference(record: dict[str, Any]) -> dict[str, Any]:
    """With data that the provider of this stage can read; what real ones make of theirs is tried by other inputs."""
    found = record
    for key in ("status", "intent", "reference"):
        found = found.get(key) if isinstance(found.get(key), dict) else {}
    if found:
        found["data"] = {"group": "workers", "known": ["m-0", "m-1", "m-2"], "desired": 3, "machine": "m-0"}
    return record


def _readable(decode: Any, s: Stage, path: str) -> bool:
    try:
        decode(s.store.request("GET", path).body)
    except Undecodable:
        return False
    return True


def _open(crd: dict[str, Any]) -> dict[str, Any]:
    """The definition without its schema: as one of another version may have it."""
    made: dict[str, Any] = json.loads(json.dumps(crd))
    for version in made["spec"]["versions"]:
        version["schema"] = {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        }
    return made


def example(point: str) -> bytes:
    s = at(point, 3)
    told = {
        "record": s.store.request("GET", f"{RECORDS}/{NODE}").body,
        "gate": s.store.request("GET", f"{GATES}/fleet").body,
        "node": {"annotations": {"a": "b"}, "labels": {"noderecovery.dev/exclude": "false"}},
        "page": npd_page("DMA_ERROR").decode(),
    }
    return json.dumps(told).encode()


CRDS: list[dict[str, Any]] = []


def make() -> Input:
    from recovery_testkit.crds import read_crds

    CRDS[:] = [_open(crd) for crd in read_crds()]
    modules = (
        "recovery.agent.cycle",
        "recovery.agent.execute",
        "recovery.decide.own_node",
        "recovery.decide.ladder",
        "recovery.decide.idle",
        "recovery.decide.in_flight",
    )
    return Input("agent", feed, [example(point) for point in POINTS], None, WORDS, WEIGHT, modules)
