"""Machines that are alike, and how many devices most of them have."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping

from recovery.agent.fleet.nodes import Nodes
from recovery.clock import Clock
from recovery.model import NodeView
from recovery.signals.device_counts import Norm, Norms

FEWEST = 5
"""Machines that must have the same count, before it is what a machine should have."""
MANY = 10
"""One in so many machines, and at least ``FEWEST``, have a count that is a usual one."""
REMEMBERED = 24 * 3600.0
"""Seconds for which a usual count is remembered: the last machines of a change are few."""
COUNTED_AGAIN = 30.0
"""Seconds for which it is not counted again."""
TYPE = "node.kubernetes.io/instance-type"
SHARED_OUT = ("nvidia.com/mig.config", "nvidia.com/device-plugin.config")
"""Labels by which machines of one type divide their devices differently
(https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-mig.html)."""
Kind = tuple[str, ...]


def kind_of(node: NodeView) -> Kind:
    """What machines have to have in common to be alike; () for one of which no type is known."""
    type_ = node.labels.get(TYPE, "")
    return (type_, *(node.labels.get(label, "") for label in SHARED_OUT)) if type_ else ()


class Alike:
    """What most machines of each kind have. Any thread may ask."""

    def __init__(self, nodes: Nodes, clock: Clock) -> None:
        self._nodes = nodes
        self._clock = clock
        self._counted: tuple[float, Mapping[Kind, Norms]] | None = None
        self._lock = threading.Lock()
        self._usual: dict[tuple[Kind, str, int], float] = {}

    def norms(self, node: NodeView) -> Norms:
        """Of each resource of machines like ``node``: how many more than half of them have, and at least
        ``FEWEST``; None where so many do not agree."""
        if not self._nodes.in_sync:
            return {}  # not all are listed yet
        now = self._clock.monotonic()
        with self._lock:
            if self._counted is None or now - self._counted[0] > COUNTED_AGAIN:
                self._usual = {key: at for key, at in self._usual.items() if now - at <= REMEMBERED}
                self._counted = (now, self._count())
            return self._counted[1].get(kind_of(node), {})

    def _count(self) -> Mapping[Kind, Norms]:
        machines: Counter[Kind] = Counter()
        counts: dict[Kind, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
        for node in self._nodes.all():
            if kind := kind_of(node):
                machines[kind] += 1
                for resource, (there, _) in node.devices.items():
                    counts[kind][resource][there] += 1
        return {
            kind: {
                resource: _norm(found, machines[kind], self._usual_of(kind, resource, found, machines[kind]))
                for resource, found in of_kind.items()
            }
            for kind, of_kind in counts.items()
        }

    def _usual_of(self, kind: Kind, resource: str, found: Counter[int], of: int) -> frozenset[int]:
        """The usual counts. Devices are shared out by whole numbers: 8 and 32 are, and 7 of 8 lacks one."""
        now, (most, _) = self._clock.monotonic(), found.most_common(1)[0]
        for count, have in found.items():
            if have >= FEWEST and MANY * have >= of and _are_multiples(count, most):
                self._usual[kind, resource, count] = now
        return frozenset(count for k, r, count in self._usual if (k, r) == (kind, resource))


def _are_multiples(one: int, other: int) -> bool:
    return bool(one and other) and not (one % other and other % one)


def _norm(found: Counter[int], of: int, usual: frozenset[int]) -> Norm | None:
    """What most have, of those that list the resource; one that does not is none of those who agree."""
    count, have = found.most_common(1)[0]
    return Norm(count, have, of, usual - {count}) if have >= FEWEST and 2 * have > of else None
