"""A node and a pod as the agent sees them, the machine behind the node, and what its provider can do."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from recovery.model import Condition, Machine, NodeView, PodView, ProviderFacts, Rung, Step
from tests.builders.times import MINUTE

ZONE, TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
MACHINE = Machine("fake", "m-0", "fake:///workers/m-0", "workers")
FAKE = ProviderFacts(
    "fake",
    frozenset({Step.REPLACE, Step.REBOOT}),
    (Rung(Step.DRAIN, 15 * MINUTE), Rung(Step.REPLACE, 30 * MINUTE)),
)


def node(name: str = "node-0", **changes: Any) -> NodeView:
    """A Ready node that nobody has marked."""
    plain = NodeView(
        name=name,
        uid=f"uid-{name}",
        resource_version="7",
        provider_id="fake:///workers/m-0",
        boot_id="boot-1",
        labels={ZONE: "a", TYPE: "trn1.32xlarge"},
        conditions={"Ready": ("True", "KubeletReady")},
    )
    return replace(plain, **changes)


def ready_since(at: datetime | None) -> tuple[Condition, ...]:
    """What a Node states (``stated``) that is Ready since then; None: it does not say since when."""
    return (Condition("Ready", "True", "KubeletReady", transition=at),)


def pod(name: str = "train", **changes: Any) -> PodView:
    """A running pod that its owner would start again elsewhere."""
    plain = PodView("default", name, f"uid-{name}", "Running", "ReplicaSet")
    return replace(plain, **changes)
