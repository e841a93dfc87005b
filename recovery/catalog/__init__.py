"""What is known beforehand: faults and what helps, and the marks by which others claim a node.

Data, with its sources, in the YAML files beside this module; read when first asked for, and kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

import yaml

from recovery.model import CatalogueRow, NodeEvent, NodeView, Rung, Step, Then
from recovery.units import parse_duration


@dataclass(frozen=True)
class Claim:
    """One mark of one system. ``kind`` is label, annotation or taint; no ``values``: any but the empty one.

    A ``key`` that ends in ``/*`` stands for every key of that prefix. A taint's values are not looked at when
    none are named, the empty one included.
    """

    system: str
    kind: str
    key: str
    values: frozenset[str]
    why: str
    source: str


@dataclass(frozen=True)
class Teller:
    """A system that marks no node, and tells in Events what it does to one: those whose source is ``source``.

    It is asked for on machines of ``provider`` alone.
    It is at work for ``within`` after an Event whose reason matches ``begins`` (a shell pattern), and for
    ``afterwards`` after any other: it may go on with its next step.
    """

    system: str
    provider: str
    source: str
    begins: str
    within: timedelta
    afterwards: timedelta
    why: str
    documented: str


@cache
def faults() -> tuple[CatalogueRow, ...]:
    """Every known fault; (type, reason) is unique."""
    return tuple(
        CatalogueRow(
            type=row["type"],
            reason=row["reason"],
            remedy=_remedy(row.get("remedy")),
            this_node=row["thisNode"],
            why=row["why"],
            source=row["source"],
            software=row.get("kind") == "software",
        )
        for row in _data("faults.yaml")
    )


@cache
def types() -> frozenset[str]:
    """The condition types that are known: one that is True counts its node as sick."""
    return frozenset(row.type for row in faults() if row.type)


def lookup(type: str, reason: str) -> CatalogueRow | None:
    """The row for a fault; ``type`` is empty for an edge."""
    return _index().get((type, reason))


@cache
def claims() -> tuple[Claim, ...]:
    """The marks of every known remediator."""
    return tuple(
        Claim(
            system=system["system"],
            kind=mark["kind"],
            key=mark["key"],
            values=frozenset(mark.get("values", ())),
            why=mark["why"],
            source=mark["source"],
        )
        for system in _data("claims.yaml")
        for mark in system.get("marks", ())
    )


@cache
def tellers() -> tuple[Teller, ...]:
    """Every known remediator whose Events say that it is at work."""
    return tuple(
        Teller(
            system=system["system"],
            provider=told["provider"],
            source=told["source"],
            begins=told["begins"],
            within=parse_duration(told["within"]),
            afterwards=parse_duration(told["afterwards"]),
            why=told["why"],
            documented=told["documented"],
        )
        for system in _data("claims.yaml")
        for told in system.get("events", ())
    )


def told_claim(teller: Teller, node: str, events: Iterable[NodeEvent], now: datetime) -> str | None:
    """What ``teller`` is doing to ``node``, by its latest Event; None when it is at rest.

    ``AKS auto-repair holds aks-gpu-1 (its Event NodeRebootStart at 10:15:03Z)``.
    """
    last = max(events, key=lambda event: event.at, default=None)
    if last is None:
        return None
    begun = fnmatchcase(last.reason, teller.begins)
    if now - last.at > (teller.within if begun else teller.afterwards):
        return None
    return f"{teller.system} holds {node} (its Event {last.reason} at {last.at:%H:%M:%SZ})"


def foreign_claim(node: NodeView) -> str | None:
    """Who else is at work on this node, by which mark; None when nobody is.

    ``NVSentinel holds ip-10-0-1-5 (label dgxc.nvidia.com/nvsentinel-state=draining)``.
    """
    for claim in claims():
        mark = _mark(claim, node)
        if mark:
            return f"{claim.system} holds {node.name} ({claim.kind} {mark})"
    return None


def _mark(claim: Claim, node: NodeView) -> str | None:
    """The mark as the node wears it, or None. An annotation's value may be long: its key says enough."""
    for key, value in _worn(claim, node):
        if _claims(claim, value):
            return key if claim.kind == "annotation" or not value else f"{key}={value}"
    return None


def _worn(claim: Claim, node: NodeView) -> list[tuple[str, str]]:
    """The node's marks of the claim's kind and key."""
    if claim.kind == "taint":
        return [(key, value) for key, value, _ in node.taints if _same_key(claim.key, key)]
    marks = node.labels if claim.kind == "label" else node.annotations
    if claim.key.endswith("/*"):
        return sorted((key, value) for key, value in marks.items() if _same_key(claim.key, key))
    return [(claim.key, marks[claim.key])] if claim.key in marks else []


def _same_key(pattern: str, key: str) -> bool:
    return key.startswith(pattern[:-1]) if pattern.endswith("/*") else key == pattern


def _claims(claim: Claim, value: str) -> bool:
    return value in claim.values if claim.values else bool(value) or claim.kind == "taint"


@cache
def _index() -> Mapping[tuple[str, str], CatalogueRow]:
    return {(row.type, row.reason): row for row in faults()}


def _remedy(steps: list[dict[str, str]] | None) -> tuple[Rung, ...] | None:
    if steps is None:
        return None
    return tuple(
        Rung(Step(step["do"]), parse_duration(step["within"]), Then(step.get("then", Then.HAND_OVER)))
        for step in steps
    )


def _data(name: str) -> list[dict[str, Any]]:
    text = resources.files(__name__).joinpath(name).read_text("utf-8")
    # libyaml, where PyYAML was built with it, saves a tenth of a second of every start.
    rows: list[dict[str, Any]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return rows
