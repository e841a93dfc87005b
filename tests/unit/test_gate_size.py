"""How large does the gate get that all agents of a large fleet read each minute? Counted in bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from recovery.decide import budget
from recovery.decide.census import count
from recovery.model import Claim, Gate, GroupStart, Line, NodeView, Slot
from recovery.store.gate import FEWEST_CLAIMS, MOST_BYTES, Gates, decode, encode, fitted, size
from tests.builders.nodes import TYPE, ZONE
from tests.builders.times import NOW, SECOND

FLEET, WAITING, OUT, STARTED = 50_000, 7_500, 50, 600
REASON = "NeuronHasError_HBM_UNCORRECTABLE_ERROR"
HOST = "kubernetes.io/hostname"
UID = "0f8fad5b-d9cb-469f-a165-{:012x}"


def aws(i: int) -> tuple[str, str]:
    """The node's name and its machine's ID."""
    return (
        f"ip-10-{100 + i // 22500}-{100 + i // 150 % 150}-{100 + i % 150}.eu-central-1.compute.internal",
        f"i-{i:017x}",
    )


def aks(i: int) -> tuple[str, str]:
    return f"aks-gpunodepool01-26174305-vmss{i:06x}", UID.format(i)


def provider_id(cloud: str, i: int) -> str:
    if cloud == "aws":
        return f"aws:///eu-central-1{'abc'[i % 3]}/{aws(i)[1]}"
    group = "resourceGroups/mc_trainium-production_trainium_westeurope"
    scale_set = "virtualMachineScaleSets/aks-gpunodepool01-26174305-vmss"
    where = f"subscriptions/{UID.format(0)}/{group}/providers/Microsoft.Compute/{scale_set}"
    return f"azure:///{where}/virtualMachines/{i}"


CLOUDS = {"aws": aws, "aks": aks}


def labels_of(name: str, i: int) -> dict[str, str]:
    return {
        ZONE: f"eu-central-1{'abc'[i % 3]}",
        TYPE: ["trn1.32xlarge", "inf2.48xlarge", "p5.48xlarge"][i % 3],
        HOST: name,
        "eks.amazonaws.com/nodegroup": f"trainium-production-{i % 5}",
    }


def group_of(i: int) -> str:
    return f"eks-trainium-production-{i % 5}-7ac6d8a1-5a0b-4c1e-9f5e-2d6a0b1c{i % 5}"


def crowded(cloud: str, keys: tuple[str, ...], out: int = OUT) -> Gate:
    """What the worst day of a large fleet asks the gate to keep. ``keys``: what the policy budgets by."""
    named = CLOUDS[cloud]
    gate = Gate(uid=UID.format(1), resource_version="123456789", stamp=UID.format(1), last_start=NOW)
    slots, starts, claims = [], [], []
    for i in range(STARTED):
        node, machine = named(i)
        at = NOW - (STARTED - i) * SECOND
        serials = (machine, *(f"GPU-{UID.format(x)}" for x in range(8)))
        starts.append(GroupStart(at, node, group_of(i), machine, REASON, serials))
        claims.append(Claim(named(i + 1000)[1], machine))
    for i in range(out):
        node, machine = named(i)
        labels = budget.kept_labels(labels_of(node, i), keys)
        since = NOW - i * SECOND * 1.234567
        made = Slot(node, UID.format(i), 12, ("fleet",), since, labels, machine, group_of(i))
        slots.append(replace(made, provider_id=provider_id(cloud, i) if out <= budget.PLACED else ""))
    lines = tuple(Line(named(i)[0], UID.format(i), NOW) for i in range(out, out + WAITING))
    return replace(gate, slots=tuple(slots), starts=tuple(starts), claimed=tuple(claims), open=lines)


def counted(cloud: str, keys: tuple[str, ...]) -> Any:
    names = [CLOUDS[cloud](i)[0] for i in range(FLEET)]
    nodes = (
        NodeView(
            name=name,
            uid="",
            resource_version="",
            labels=labels_of(name, i),
            conditions={"Ready": ("True" if i > WAITING else "False", "")},
        )
        for i, name in enumerate(names)
    )
    return count(nodes, (), lambda kind, reason: False, (*keys, TYPE), NOW)


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("keys", [(ZONE,), (HOST, ZONE)], ids=["by zone", "by node"])
def test_the_gate_of_the_largest_fleet_on_its_worst_day_is_below_16_kib(
    cloud: str, keys: tuple[str, ...]
) -> None:
    gate = replace(crowded(cloud, keys), census=counted(cloud, keys))
    written: list[dict[str, Any]] = []

    class Cluster:
        def get_gate(self) -> dict[str, Any]:
            return encode(replace(gate, slots=(), open=(), starts=(), claimed=(), census=None), {})

        def create_gate(self, body: dict[str, Any]) -> dict[str, Any]:
            raise NotImplementedError

        def replace_gate(self, body: dict[str, Any]) -> dict[str, Any]:
            written.append(body)
            return body

    store = Gates(Cluster(), list)
    store.read()
    kept = store.write(gate)
    assert len(json.dumps(written[0], separators=(",", ":"))) <= 16 * 1024
    assert [(s.node, s.labels, s.machine, s.group) for s in kept.slots] == [
        (s.node, s.labels, s.machine, s.group) for s in gate.slots
    ], "of the slots nothing is left out"
    assert kept.census is not None
    assert (kept.census.how_many, kept.census.population) == (WAITING + 1, FLEET)
    assert kept.claimed[-FEWEST_CLAIMS:] == gate.claimed[-FEWEST_CLAIMS:]
    assert len(kept.open) >= budget.LEAST_QUEUE


def test_what_is_left_out_first_is_what_is_least_needed() -> None:
    gate = budget.bounded(replace(crowded("aws", (ZONE,)), census=counted("aws", (ZONE,))))
    body = fitted(gate, lambda less: encode(less, {}))
    assert size(body) <= MOST_BYTES
    assert len(decode({**body, "metadata": {}}).starts) < len(gate.starts)


def test_label_values_are_left_out_at_once_too_and_no_more_than_have_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounded = budget.bounded(replace(crowded("aws", (ZONE,)), starts=(), census=counted("aws", (ZONE,))))
    census = bounded.census
    assert census is not None
    values = {f"topology.kubernetes.io/zone=zone-{i}": (i, 100) for i in range(60)}
    gate = replace(bounded, census=replace(census, by_label=values))
    nameless = replace(gate, census=replace(census, sick=(), by_label=values))
    most = size(encode(nameless, {})) - 1500
    monkeypatch.setattr("recovery.store.gate.MOST_BYTES", most)
    tried: list[Gate] = []

    def encoded(less: Gate) -> dict[str, Any]:
        tried.append(less)
        return encode(less, {})

    assert size(fitted(gate, encoded)) <= most
    assert len(tried) <= 5
    kept = tried[-1].census
    assert kept is not None
    assert (kept.sick, kept.how_many) == ((), census.how_many)
    one_more = dict(list(values.items())[: len(kept.by_label) + 1])
    assert size(encode(replace(tried[-1], census=replace(kept, by_label=one_more)), {})) > most
    assert tried[-1].claimed == gate.claimed


@pytest.mark.parametrize("over", [1, 150, 700, 100_000])
def test_as_little_is_left_out_as_if_it_were_tried_one_by_one_and_it_is_tried_only_a_few_times(
    over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate is encoded in some milliseconds, and in a crowd it is full for minutes."""
    gate = budget.bounded(replace(crowded("aws", (ZONE,)), census=None))
    most = size(encode(gate, {})) - over
    monkeypatch.setattr("recovery.store.gate.MOST_BYTES", most)
    tried: list[Gate] = []

    def encoded(less: Gate) -> dict[str, Any]:
        tried.append(less)
        return encode(less, {})

    body = fitted(gate, encoded)
    assert len(tried) <= 5
    kept = tried[-1]
    if size(body) <= most:
        more = replace(kept, starts=gate.starts[-len(kept.starts) - 1 :])
        if kept.claimed != gate.claimed:
            more = replace(kept, claimed=gate.claimed[-len(kept.claimed) - 1 :])
        assert size(encode(more, {})) > most
    else:
        assert (kept.starts, len(kept.claimed)) == ((), FEWEST_CLAIMS)


def test_a_gate_that_fits_keeps_all_that_it_may() -> None:
    gate = budget.bounded(replace(crowded("aws", (ZONE,)), slots=(), census=counted("aws", (ZONE,))))
    kept = decode({**fitted(gate, lambda less: encode(less, {})), "metadata": {}})
    assert (len(kept.open), len(kept.starts), len(kept.claimed)) == (
        budget.QUEUE,
        budget.STARTS,
        budget.CLAIMS,
    )
    assert kept.starts == gate.starts


def test_a_healthy_gate_is_small() -> None:
    assert size(encode(Gate(UID.format(1), "1", UID.format(1)), {})) < 200


@pytest.mark.parametrize("out", [budget.PLACED, OUT])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_all_slots_have_room_for_the_names_of_their_rules_and_few_for_their_providerids(
    cloud: str, out: int
) -> None:
    gate = replace(crowded(cloud, (ZONE,), out), census=counted(cloud, (ZONE,)))
    assert all(bool(x.provider_id) is (out == budget.PLACED) for x in gate.slots)
    names = ("gpu-xid", "gpu-hardware", "eks-monitoring-agent")
    named = tuple(replace(x, rule=names[i % 3]) for i, x in enumerate(gate.slots))
    body = fitted(budget.bounded(replace(gate, slots=named)), lambda less: encode(less, {}))
    assert size(body) <= MOST_BYTES
    assert decode({**body, "metadata": {}}).slots == tuple(
        replace(x, scopes=budget.noted_scopes(x)) for x in named
    )
