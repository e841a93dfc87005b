"""Situations, records and gates for tables: whole and plain, to be changed in one place by each row."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from recovery.config.policy_file import parse_policy
from recovery.decide.history import note
from recovery.decide.situation import Lease, Situation
from recovery.model import (
    Census,
    Fault,
    Gate,
    Intent,
    IntentState,
    Kind,
    Line,
    Machine,
    NodeView,
    Phase,
    Policy,
    Preflight,
    Problem,
    ProviderFacts,
    Reading,
    Record,
    Reference,
    Rung,
    Slot,
    Step,
    Then,
)

NOW = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
DMA, HBM = "NeuronHasError_DMA_ERROR", "NeuronHasError_HBM_UNCORRECTABLE_ERROR"
HANG = "NeuronHasError_HANG_ON_COLLECTIVES"
ZONE, TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
RULES = """
  - name: neuron-hardware
    match: {type: NeuronHealth, reason: ["NeuronHasError_*_UNCORRECTABLE_ERROR", NeuronHasError_DMA_ERROR]}
    remedy:
      - {do: drain, within: 10m, then: force}
      - {do: replace, within: 30m}
    probation: 2m
"""
LADDER = (
    Rung(Step.DRAIN, 10 * MINUTE, Then.FORCE),
    Rung(Step.REPLACE, 30 * MINUTE),
)


@functools.cache
def policy(rules: str = RULES, limits: str = "{}", exclude: str = "[]") -> Policy:
    head = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
    text = f"{head}limits: {limits}\nexclude: {exclude}\nrules:{rules if rules.strip() else ' []'}\n"
    return parse_policy(text.encode(), "table").policy


def node(name: str = "node-0", **changes: Any) -> NodeView:
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


def problem(reason: str = DMA, **changes: Any) -> Problem:
    plain = Problem(
        source="npd",
        type="NeuronHealth",
        reason=reason,
        message=f"node-problem-detector reports {reason}",
        since=NOW,
        fresh_until=NOW + 10 * SECOND,
        latched=True,
        counter=1.0,
    )
    return replace(plain, **changes)


def edge(reason: str, *ago: timedelta) -> Problem:
    times = tuple(NOW - x for x in ago)
    return problem(reason, type="", kind=Kind.EDGE, latched=False, times=times, counter=float(len(ago)))


def reading(*problems: Problem, **changes: Any) -> Reading:
    return replace(Reading("npd", NOW, tuple(problems)), **changes)


def silent(since: datetime, why: str = "the page cannot be read") -> Reading:
    return reading(unknown={"*": why}, unknown_since={"*": since})


def fault(reason: str = DMA, **changes: Any) -> Fault:
    plain = Fault(
        source="npd",
        type="NeuronHealth",
        reason=reason,
        message=f"node-problem-detector reports {reason}",
        since=NOW,
        machine="m-0",
        boot_id="boot-1",
        counter=1.0,
        latched=True,
    )
    return replace(plain, **changes)


MACHINE = Machine("fake", "m-0", "fake:///workers/m-0", "workers")


def record(phase: Phase = Phase.WAITING, **changes: Any) -> Record:
    started = phase not in (Phase.SUSPECT, Phase.WITHDRAWN)
    plain = Record(
        node="node-0",
        phase=phase,
        machine=MACHINE,
        node_uid="uid-node-0",
        boot_id="boot-1",
        faults=(fault(),),
        phase_since=NOW,
        uid="record-0",
        resource_version="11",
        rule="neuron-hardware" if started else "",
        ladder=LADDER if started else (),
        probation=2 * MINUTE,
        scopes=("fleet", f"{ZONE}=a"),
    )
    return note(replace(plain, **changes), NOW, "suspect", f"{DMA} was seen")


def intent(state: IntentState = IntentState.SUBMITTED, action: str = "replace") -> Intent:
    reference = Reference("fake", action, {"group": "workers", "known": ["m-0", "m-1"], "desired": 2})
    return Intent(action, 1, "token", NOW, "m-0", "boot-1", reference, state)


def gate(**changes: Any) -> Gate:
    line = Line("node-0", "record-0", NOW - 10 * SECOND)
    return replace(Gate(uid="g", resource_version="5", stamp="g", open=(line,)), **changes)


def slot(name: str = "node-0", uid: str = "record-0", *scopes: str) -> Slot:
    return Slot(name, uid, 1, scopes or ("fleet", f"{ZONE}=a"), NOW)


def census(sick: int = 1, population: int = 10, **by_label: tuple[int, int]) -> Census:
    labels = {f"{TYPE}=trn1.32xlarge": (sick, population), f"{ZONE}=a": (sick, population)}
    return Census(NOW, population, tuple(f"node-{i}" for i in range(sick)), labels | by_label)


FAKE = ProviderFacts(
    "fake",
    frozenset({Step.REPLACE, Step.REBOOT}),
    (Rung(Step.DRAIN, 15 * MINUTE), Rung(Step.REPLACE, 30 * MINUTE)),
)


def situation(**changes: Any) -> Situation:
    """A node with a DMA error whose record waits, a slot that is free, and nothing in the way."""
    plain = Situation(
        now=NOW,
        node_name="node-0",
        policy=policy(),
        readings=(reading(problem()),),
        node=node(),
        machine=MACHINE,
        provider=FAKE,
        record=record(),
        gate=gate(),
        census=census(),
        preflight=Preflight(Reference("fake", "replace"), "workers"),
        lease=Lease("owner/node-0", mine=True, stale=False),
    )
    return replace(plain, **changes)


# ---------------------------------------------------------------- stored objects gone wrong

RUBBISH = (None, 7, -7, 1.5, "", "rubbish", True, [], [7], {}, {"x": 7}, ...)


def paths(value: Any, at: str = "") -> list[str]:
    """Every field of a JSON object, as ``status.slots.0.node``; keys with a dot in them are left out."""
    below: list[str] = []
    if isinstance(value, dict):
        keys = [key for key in value if "." not in key]
        below = [p for key in keys for p in paths(value[key], f"{at}.{key}" if at else key)]
    if isinstance(value, list):
        below = [p for i, v in enumerate(value) for p in paths(v, f"{at}.{i}")]
    return [*([at] if at else []), *below]


def with_rubbish(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of ``obj`` with ``value`` at ``path``; `...` takes the field off."""
    made: Any = copy.deepcopy(obj)
    at = made
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in way:
        at = at[key]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return dict(made)
