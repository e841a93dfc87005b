"""Which faults are known, and what helps? How does another remediator show that it works on a node?

The answers are data with their sources, in the YAML files here, read on first use and kept. ``decide`` may
import it, since it does not change while the program runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Any, TypeVar, cast

from recovery.catalog import codes
from recovery.model import (
    CatalogueRow,
    ConditionRow,
    Detector,
    Ends,
    Latch,
    MetricRow,
    Named,
    NodeEvent,
    NodeView,
    Polarity,
    Rung,
    Step,
    Then,
)
from recovery.short import LONGEST_TYPE
from recovery.units import parse_bound, parse_duration

Taints = tuple[tuple[str, str, str], ...]
RECOMMENDS_NOTHING, CUT_SHORT = "_NONE", "_CUT"
"""The ends of NVSentinel's reasons where it recommends nothing, and where its message was cut."""
Asked = TypeVar("Asked", bound=Callable[..., Any])
OF_A_MACHINE = ("_COMPONENT_RESET", "_RESTART_VM", "_RESTART_BM", "_REPLACE_VM")
"""How NVSentinel's reasons end where something can be done, short of a person."""
OF_EKS = "AcceleratedHardwareReady"
"""The condition in which EKS's node monitoring agent states what is wrong with GPUs."""
LOST_ITS_ENGINE = frozenset({"GpuDcgmConnectivityFailure", "GpuDcgmUnresponsive"})


@dataclass(frozen=True)
class Claim:
    """A mark on a Node by which one system shows that it is at work. ``kind``: label, annotation or taint.

    A ``key`` that ends in ``/*`` stands for every key with that prefix. Without ``values`` any value counts
    that is not empty. For a taint an empty one counts too.
    """

    system: str
    kind: str
    key: str
    values: frozenset[str]
    why: str
    source: str


@dataclass(frozen=True)
class EventClaim:
    """A system that puts no mark on a node, but posts Events (with source ``source``) about what it does.

    Such Events are read only for machines of ``provider``. The system counts as at work for ``within`` after
    an Event whose reason matches ``begins`` (a shell pattern). After any other Event it counts as at work for
    ``afterwards``, since its next step may follow.
    """

    system: str
    provider: str
    source: str
    begins: str
    within: timedelta
    afterwards: timedelta
    why: str
    documented: str


@dataclass(frozen=True)
class Default:
    """What ends a fault, and how long it stays after its source has taken it back. ``types``: patterns."""

    detector: Detector
    types: tuple[str, ...]
    latch: Latch
    hold: timedelta


def _remembered(found: Asked) -> Asked:
    """``found``, from memory for a type of common length: strangers write conditions, of any type."""
    kept = lru_cache(1024)(found)

    def asked(type: str, *more: Any) -> Any:
        return (kept if len(type) <= LONGEST_TYPE else found)(type, *more)

    return cast(Asked, asked)


@cache
def polarities() -> tuple[Polarity, ...]:
    """What the known Node conditions say."""
    return tuple(
        Polarity(
            writer=row["writer"],
            types=tuple(row["types"]),
            bad=row["bad"],
            takes_back=row["takesBack"],
            only_named=row.get("onlyNamed", False),
            first=row.get("first", ""),
            first_after=parse_duration(row["firstAfter"]) if "firstAfter" in row else None,
        )
        for row in _data("conditions.yaml")
    )


def polarity(
    type: str, more: Iterable[ConditionRow] = (), named: Collection[str] | None = None
) -> Polarity | None:
    """What a condition of ``type`` says; None where that is not known.

    ``more``: a policy's own rows, of which the first that fits counts.

    ``named``: the types that the policy's rules name, where it matters that some say nothing without that.
    """
    own = next((row for row in more if fnmatchcase(type, row.type)), None)
    row = _by_policy(type, own) if own is not None else _known_polarity(type)
    unasked = row is not None and row.only_named and named is not None and type not in named
    return None if unasked else row


@_remembered
def _by_policy(type: str, own: ConditionRow) -> Polarity:
    """A row that changes one thing leaves all else as it is known. A polarity that it turned round by leaving
    it out would make a fault of a healthy machine's good status."""
    known = _known_polarity(type) or Polarity("the policy", (type,), "True", takes_back=True)
    if own.type == type:  # the policy names it, if in a row and not in a rule
        known = replace(known, only_named=False)
    bad = known.bad if own.bad is None else own.bad
    return replace(known, bad=bad, takes_back=known.takes_back if own.takes_back is None else own.takes_back)


def turned_round(row: ConditionRow) -> tuple[str, ...]:
    """The known conditions of which ``row`` says that the status is bad that is good by the catalogue."""
    known = {t for each in polarities() for t in each.types if row.bad not in (None, each.bad)}
    exact = _known_polarity(row.type)
    if exact is not None and row.bad not in (None, exact.bad):
        known.add(row.type)
    return tuple(sorted(t for t in known if fnmatchcase(t, row.type)))


@_remembered
def _known_polarity(type: str) -> Polarity | None:
    return next((row for row in polarities() if _any(row.types, type)), None)


def bad_status(type: str) -> str:
    """The status of a condition of ``type`` that is a fault. What is not known is one when True."""
    known = _known_polarity(type)
    return known.bad if known is not None else "True"


@cache
def metric_rows() -> Mapping[str, tuple[MetricRow, ...]]:
    """What a Prometheus server may be asked, by the names that policies use."""
    found: dict[str, tuple[MetricRow, ...]] = {}
    for row in _data("prometheus.yaml"):
        made = MetricRow(
            name=row["name"],
            query=row["query"],
            node=row["node"],
            bad=parse_bound(row["bad"]),
            type=_named(row["type"]),
            reason=_named(row["reason"]),
            ends=Ends(
                Latch(row["latch"]) if "latch" in row else None,
                parse_duration(row["hold"]) if "hold" in row else None,
            ),
            plugins_only=row.get("pluginsOnly", False),
        )
        found[made.name] = (*found.get(made.name, ()), made)
    return found


def _named(value: str | Mapping[str, str]) -> Named:
    return Named(value) if isinstance(value, str) else Named(label=value["label"])


@cache
def faults() -> tuple[CatalogueRow, ...]:
    """Every known fault. No two have the same (type, reason)."""
    return tuple(
        CatalogueRow(
            type=row["type"],
            reason=row["reason"],
            remedy=_remedy(row.get("remedy")),
            this_node=row["thisNode"],
            why=row["why"],
            source=row["source"],
            software=row.get("kind") == "software",
            detector=_detector(row),
            latch=Latch(row["latch"]) if "latch" in row else None,
            hold=parse_duration(row["hold"]) if "hold" in row else None,
        )
        for row in (*_data("faults.yaml"), *codes.rows())
    )


def _detector(row: Mapping[str, Any]) -> Detector | None:
    """A fault without a type is a temporary rule's: nothing else has only a counter."""
    if not row["type"]:
        return Detector.TEMPORARY
    return Detector(row["detector"]) if "detector" in row else None


def default_for(detector: Detector, type: str) -> Default:
    """What ends a fault of this type, by what states it, where neither its rule nor its row says so."""
    return next(d for d in _defaults() if d.detector is detector and _any(d.types, type))


def _any(patterns: tuple[str, ...], text: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


@cache
def _defaults() -> tuple[Default, ...]:
    return tuple(
        Default(
            detector=Detector(row["detector"]),
            types=tuple(row.get("types", ("*",))),
            latch=Latch(row["latch"]),
            hold=parse_duration(row["hold"]),
        )
        for row in _data("latches.yaml")
    )


@cache
def types() -> frozenset[str]:
    """The known condition types. A node with one of them True counts as sick."""
    return frozenset(row.type for row in faults() if row.type)


def lookup(type: str, reason: str) -> CatalogueRow | None:
    """The row for a fault, or None. ``type`` is empty for an edge.

    What is not this node's fault when it is only counted is not when a condition states it, either.
    """
    known = _index().get((type, reason))
    if known is None and reason.startswith(f"{type}IsNotHealthy"):
        return _of_nvsentinel(type, reason)
    if known is None and type == OF_EKS:
        return _of_eks(reason)
    counted = _index().get(("", reason))
    return known or (counted if counted is not None and not counted.this_node else None)


def _of_eks(reason: str) -> CatalogueRow | None:
    """The XID of an application, or one that follows what broke elsewhere, of EKS's monitoring agent: earlier
    ones state some of them as they do a broken GPU's."""
    code = re.fullmatch("NvidiaXID([0-9]{1,4})Error", reason)
    why = _accuses_another(int(code[1])) if code else ""
    source = "https://github.com/aws/eks-node-monitoring-agent"
    return _only_told(OF_EKS, reason, why, source) if why else None


def _of_nvsentinel(type: str, reason: str) -> CatalogueRow | None:
    """What NVSentinel's conditions state that accuses no machine: their reasons have the code and the action,
    so there is no end of them."""
    why = _accuses_nobody(type, reason)
    source = "https://github.com/NVIDIA/NVSentinel/issues/911"
    return _only_told(type, reason, why, source) if why else None


def _only_told(type: str, reason: str, why: str, source: str) -> CatalogueRow:
    remedy = (Rung(Step.NOTIFY, timedelta(minutes=15)),)
    return CatalogueRow(type=type, reason=reason, remedy=remedy, this_node=False, why=why, source=source)


def _accuses_nobody(type: str, reason: str) -> str:
    said = reason.removeprefix(f"{type}IsNotHealthy")
    if said.endswith(RECOMMENDS_NOTHING):
        return "NVSentinel recommends no action for it."
    if said == CUT_SHORT:
        return "NVSentinel's message was cut, and accuses no machine as far as it goes."
    if said.endswith(OF_A_MACHINE):
        return ""
    if type in LOST_ITS_ENGINE:
        return "NVSentinel has lost its connection to DCGM's engine; that says nothing of the GPUs."
    if said.startswith("_DCGM_FR_IMEX_UNHEALTHY_"):
        return "IMEX does not run on an idle node, nor where a machine has no part in a domain of several."
    return _of_another(said) if type == "SysLogsXIDError" else ""


def _of_another(said: str) -> str:
    """What an XID means that an application causes, or what broke elsewhere; "" for all others."""
    code = re.match("_([0-9]{1,4})[._]", said)
    why = _accuses_another(int(code[1])) if code else ""
    return why and f"{why} NVSentinel asks for no reset or restart."


def _accuses_another(xid: int) -> str:
    """What it means, where it accuses an application or another machine; else ""."""
    known = [c for c in codes.xids() if c.number == xid]
    return "" if not known or any(c.this_node for c in known) else f"XID {xid}: {known[0].why}"


def spoken_of(witness: str, reason: str) -> tuple[str, ...]:
    """The counters by which ``witness`` can say something of a fault; none where it has no word for it."""
    return _witnesses().get((witness, reason), ())


def reasons_known_to(witness: str) -> tuple[str, ...]:
    """The reasons that ``witness`` can say something of."""
    return tuple(reason for name, reason in _witnesses() if name == witness)


@cache
def _witnesses() -> Mapping[tuple[str, str], tuple[str, ...]]:
    return {
        (row["witness"], fault.reason): tuple(row["counters"])
        for row in _data("witnesses.yaml")
        for fault in faults()
        if fnmatchcase(fault.reason, row["reason"])
    }


def own_fault(type: str, reason: str) -> bool:
    """Whether a condition or fault is catalogued as the node's own, or at least its type is."""
    row = lookup(type, reason)
    return row.this_node if row is not None else type in types()


@cache
def claims() -> tuple[Claim, ...]:
    """The marks by which known remediators show that they are at work."""
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
def symptoms() -> tuple[str, ...]:
    """Patterns of the labels that change with a fault: what is found of it, and who is at work for it."""
    found = (label for row in _data("symptoms.yaml") for label in row["labels"])
    return (*found, *(claim.key for claim in claims() if claim.kind == "label"))


@cache
def event_claims() -> tuple[EventClaim, ...]:
    """The known remediators that show it by Events."""
    return tuple(
        EventClaim(
            system=system["system"],
            provider=entry["provider"],
            source=entry["source"],
            begins=entry["begins"],
            within=parse_duration(entry["within"]),
            afterwards=parse_duration(entry["afterwards"]),
            why=entry["why"],
            documented=entry["documented"],
        )
        for system in _data("claims.yaml")
        for entry in system.get("events", ())
    )


def claim_by_events(
    claim: EventClaim, node: NodeView, events: Iterable[NodeEvent], now: datetime
) -> str | None:
    """A sentence that ``claim.system`` is at work on ``node``, by its latest Event; None when it is not.

    ``AKS auto-repair holds aks-gpu-1 (its Event NodeRebootStart at 10:15:03Z)``.

    Anybody who may write Events may post one of any source. The system treats nodes that are not Ready, for
    ``claim.within`` at most. So an Event about a node that had been Ready for longer by then is not its own.
    """
    last = max(events, key=lambda event: event.at, default=None)
    if last is None:
        return None
    at, begun = min(last.at, now), fnmatchcase(last.reason, claim.begins)
    if now - at > (claim.within if begun else claim.afterwards):
        return None
    if node.ready_since is not None and at - node.ready_since > claim.within:
        return None
    by = f", written by {last.by}" if last.by else ""
    return f"{claim.system} holds {node.name} (its Event {last.reason} at {at:%H:%M:%SZ}{by})"


def foreign_claim(node: NodeView, but: str = "") -> str | None:
    """A sentence: which other remediator is at work on this node, by which mark; None when none is.

    ``NVSentinel holds ip-10-0-1-5 (label dgxc.nvidia.com/nvsentinel-state=draining)``. A taint that a remedy
    of ours has set is no claim of another. ``but``: the system that is at work because we asked it.
    """
    taints = node.taints_of_others if node.taints else ()
    for claim in claims():
        mark = _mark(claim, node, taints) if claim.system != but else None
        if mark:
            return f"{claim.system} holds {node.name} ({claim.kind} {mark})"
    return None


def _mark(claim: Claim, node: NodeView, taints: Taints) -> str | None:
    """The mark as it is on the node, or None. Of an annotation it is the key alone: the value may be long.

    ``taints``: the node's, but for ours.
    """
    for key, value in _candidates(claim, node, taints):
        if _claims(claim, value):
            return key if claim.kind == "annotation" or not value else f"{key}={value}"
    return None


def _candidates(claim: Claim, node: NodeView, taints: Taints) -> Sequence[tuple[str, str]]:
    """The node's marks of the claim's kind and key."""
    if claim.kind == "taint":
        return [(key, value) for key, value, _ in taints if _same_key(claim.key, key)] if taints else ()
    marks = node.labels if claim.kind == "label" else node.annotations
    if claim.key.endswith("/*"):
        return sorted((key, value) for key, value in marks.items() if _same_key(claim.key, key))
    return [(claim.key, marks[claim.key])] if claim.key in marks else ()


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
    rows: list[dict[str, Any]] = codes.data(name)
    return rows
