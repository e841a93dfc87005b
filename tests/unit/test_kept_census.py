"""The count that is kept up to date is the one that a look at all Nodes would make."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from recovery.agent.fleet.identities import Identities
from recovery.catalog import own_fault
from recovery.decide.census import Kept, count
from recovery.decide.claims import rival
from recovery.model import Machine, NodeView, Phase, Record
from tests.builders.faults import HANG, fault
from tests.builders.nodes import TYPE, ZONE, node
from tests.builders.records import record
from tests.builders.times import NOW

NAMES = [f"node-{i}" for i in range(12)]
CONDITIONS: list[dict[str, tuple[str, str]]] = [
    {"Ready": ("True", "KubeletReady")},
    {"Ready": ("False", "KubeletNotReady")},
    {"Ready": ("True", "KubeletReady"), "NeuronHealth": ("True", "NeuronHasError_DMA_ERROR")},
    {"Ready": ("True", "KubeletReady"), "NeuronHealth": ("Unknown", "NoHeartbeat")},
    {"Ready": ("True", "KubeletReady"), "NeuronHealth": ("True", HANG)},
    {},
]
LABELS: list[dict[str, str]] = [
    {},
    {ZONE: "a", TYPE: "x"},
    {ZONE: "b", TYPE: "x", "pool": "gpu"},
    {TYPE: "y"},
]
UUIDS = [str(UUID(int=0x11112222333344445555666677778888 + i)) for i in range(3)]
CLAIMS = ["", "m-1", "m-2", *UUIDS, *(str(UUID(bytes=UUID(u).bytes_le)) for u in UUIDS)]


class Fleet(dict[str, NodeView]):
    """The Nodes, and who is told of each change."""

    def __init__(self, told: Callable[[NodeView | None, NodeView | None], None]) -> None:
        super().__init__()
        self._told = told

    def replaced(self, name: str, new: NodeView | None) -> None:
        self._told(self.get(name), new)
        if new is None:
            self.pop(name, None)
        else:
            self[name] = new


def some_record(chance: random.Random, name: str) -> Record:
    phase = chance.choice([Phase.SUSPECT, Phase.WAITING, Phase.HANDED_OVER, Phase.RECOVERED, Phase.WITHDRAWN])
    reported = chance.random() < 0.3
    made = record(phase, node=name, scopes=chance.choice([(), ("fleet", "pool=gpu"), ("fleet", "pool=cpu")]))
    return replace(made, ladder=(), faults=(fault(HANG, treated=False),)) if reported else made


def changed(chance: random.Random, old: NodeView | None, name: str) -> NodeView | None:
    if chance.random() < 0.15:
        return None
    conditions = chance.choice(CONDITIONS)
    if old is not None and chance.random() < 0.4:
        return replace(old, resource_version="8", conditions=chance.choice([conditions, dict(conditions)]))
    claim, last = chance.choice(CLAIMS), chance.choice(CLAIMS)
    at = f"azure:///Set/{last}" if last else ""
    more: dict[str, Any] = {"system_uuid": claim.upper(), "provider_id": at}
    return node(name, labels=chance.choice(LABELS), conditions=conditions, **more)


@pytest.mark.parametrize("wanted", [{}, {"pool": "gpu"}, {"pool": "g*", TYPE: "x"}], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_the_count_that_is_kept_is_that_of_all_nodes_after_any_change(
    seed: int, wanted: dict[str, str]
) -> None:
    chance = random.Random(seed)  # noqa: S311
    kept = Kept(own_fault, [ZONE, TYPE], wanted)
    fleet = Fleet(kept.change)
    for _ in range(300):
        name = chance.choice(NAMES)
        fleet.replaced(name, changed(chance, fleet.get(name), name))
        records = [some_record(chance, x) for x in chance.sample([*NAMES, "gone-1", "gone-2"], 4)]
        unknown = chance.sample([*NAMES, "nobody"], 2)
        whole = count(fleet.values(), records, own_fault, [ZONE, TYPE], NOW, unknown, wanted)
        assert kept.census(fleet.get, records, NOW, unknown) == whole


@pytest.mark.parametrize("seed", range(4))
def test_who_claims_the_same_machine_is_found_as_by_a_look_at_all_nodes(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    looks = [0]

    def all_nodes() -> list[NodeView]:
        looks[0] += 1
        return list(fleet.values())

    identities = Identities(all_nodes)
    fleet = Fleet(identities.change)
    found = asked = 0
    for _ in range(400):
        name = chance.choice(NAMES)
        fleet.replaced(name, changed(chance, fleet.get(name), name))
        name, unique = chance.choice(NAMES), chance.choice(CLAIMS)
        machine = Machine("azure", unique, f"azure:///set/{unique}" if unique else "")
        looked = looks[0]
        rivals = list(identities.rivals(name, machine, fleet.get(name)))
        assert rivals == [x.name for x in fleet.values() if rival(x, name, machine)]
        found += bool(rivals)
        asked += looks[0] > looked
    assert 50 < found <= asked <= found + 1, "all Nodes are looked at where there is a rival, and once"
