"""The gate: one RecoveryGate named ``fleet``, shared by all agents through the API server.

It holds the head of the queue (``open``), who is out (``slots``), when recoveries were started, the last
census, and the pause. Every change is a pure function of ``decide.budget``, and is written by
compare-and-swap, so that budgets hold over any number of agents. A slot is freed by evidence only: its record
was swapped to a terminal phase first.
"""

from __future__ import annotations

import json
from base64 import b32encode
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Protocol

from recovery.decide.budget import bounded, noted_scopes, rebuild
from recovery.errors import Conflict, GateTooLarge, NotFound, Undecodable
from recovery.kube.paging import folded
from recovery.model import (
    GROUP,
    VERSION,
    Approval,
    Census,
    Claim,
    Gate,
    GroupStart,
    Line,
    Pause,
    Record,
    Slot,
)
from recovery.quick import replace
from recovery.short import LONGEST_REASON, named
from recovery.store.carried import carried
from recovery.store.codec import Reader, Unchanged
from recovery.store.room import GATE, MOST_SLOTS, within
from recovery.units import moment, parse_moment

FIRST, CODEC = 1, 2
"""Versions of the layout. Version 2 keeps the labels of slots, and of queue, starts and census no more
than everybody may have to read. A program of before would count too few sick nodes and starts: it holds."""
NAME = "fleet"
SELECTED = "selectedCensus"
"""Where a census of some nodes only is: a program of before would take it for one of all of them."""
RULE, AT, LAST = "(rule)", "(at)", "(last)"
"""A slot's rule, and its providerID up to the last slash and after it, are written as if they were labels, by
keys that no label can have: a program of before, which knows of none there, keeps them as they are."""
BESIDES = (RULE, AT, LAST)
MOST_BYTES = 31 * 512
"""Bytes of the gate's status. All agents read the gate each minute, so it has to stay below 16 KiB with all
that the API server adds to it."""
FEWEST_CLAIMS = 5
"""Claims that are kept even if the gate gets too large: those of recoveries that are just being proved."""


# ---------------------------------------------------------------- encode


def encode(gate: Gate, spec: dict[str, Any], was: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The whole object. ``spec`` (the pause) belongs to people, and is written back as it was read.

    ``was``: the object as it was read. What others put on it stays.
    """
    foreign = carried(was)
    metadata: dict[str, Any] = {**foreign.get("metadata", {}), "name": NAME}
    if gate.resource_version:
        metadata |= {"resourceVersion": gate.resource_version, "uid": gate.uid}
    if len(gate.slots) > MOST_SLOTS:
        # Without one of them a node that is out would not count, so that too many would be (law 1).
        raise GateTooLarge(f"the gate has room for {MOST_SLOTS} slots, and {len(gate.slots)} nodes are out")
    words: dict[str, str] = {}
    status: dict[str, Any] = {
        "version": CODEC,
        "stamp": gate.stamp,
        "open": [{"node": x.node, "recordUID": x.record_uid, "since": moment(x.since)} for x in gate.open],
        "slots": [_slot(s, words) for s in gate.slots],
        "starts": [_start(s) for s in gate.starts],
        "replacementsClaimed": [_claim(c) for c in gate.claimed],
    }
    if words:
        status["words"] = words
    if gate.last_start:
        status["lastStart"] = moment(gate.last_start)
    if gate.census:
        status[SELECTED if gate.census.of else "census"] = _census(gate.census)
    return {
        **foreign,
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "RecoveryGate",
        "metadata": metadata,
        "spec": spec,
        "status": within(status, GATE),
    }


def _slot(s: Slot, words: dict[str, str]) -> dict[str, Any]:
    """A slot. Labels and groups are the same on many, so each is written once, among ``words``.

    A slot of before is written as it was read: an agent may not change another's slot.
    """
    found: dict[str, Any] = {
        "node": s.node,
        "recordUID": s.record_uid,
        "attempt": s.attempt,
        "scopes": list(s.scopes),
        "since": moment(s.since),
    }
    if s.machine:
        found["machine"] = s.machine
    more = tuple(_label(key, value, s.node) for key, value in _besides(s).items())
    if s.labels is not None:
        labels = (_label(key, value, s.node) for key, value in s.labels.items())
        group = (f"@{s.group}",) if s.group else ()
        found["scopes"] = ["fleet", *(_word(text, words) for text in (*labels, *more, *group))]
        return found
    found["scopes"] += more
    return found | ({"group": s.group} if s.group else {})


def _besides(s: Slot) -> dict[str, str]:
    """What is written as if it were labels. Machines of a zone or scale set have the begin of their
    providerIDs in common, and its end is mostly the machine's ID."""
    at, slash, last = s.provider_id.rpartition("/")
    found = {RULE: s.rule, AT: at + slash, LAST: last if last != s.machine else ""}
    return {key: value for key, value in found.items() if value}


def _label(key: str, value: str | None, node: str) -> str:
    """A label as a word. A value that is the node's own name would be another word for each slot."""
    if value is None:
        return f"!{key}"
    return f"={key}" if value == node else f"{key}={value}"


def _word(text: str, words: dict[str, str]) -> str:
    """The short name of ``text``: always the same one, so that no slot changes with another."""
    short = _short(text)
    if words.setdefault(short, text) != text:
        raise GateTooLarge(f"{text} and {words[short]} have the same short name on the gate, {short}")
    return short


@lru_cache(1024)  # the same few labels at each write
def _short(text: str) -> str:
    return b32encode(sha256(text.encode(errors="surrogatepass")).digest())[:6].decode().lower()


def _start(s: GroupStart) -> dict[str, Any]:
    """A start. Serial numbers are on its record only."""
    found = {"at": moment(s.at), "node": s.node, "group": s.group, "machine": s.machine, "reason": s.reason}
    return found | ({"hardware": list(s.hardware)} if s.hardware else {})


def _claim(c: Claim) -> dict[str, Any]:
    return {"machine": c.machine, "insteadOf": c.instead_of}


def _census(c: Census) -> dict[str, Any]:
    return {
        "at": moment(c.at),
        "population": c.population,
        "sick": list(c.sick),
        "sickTotal": c.how_many,
        "byLabel": {label: _counted(sums) for label, sums in c.by_label.items()},
        "seconds": c.seconds,
    } | ({"of": c.of, "outside": {"sick": c.outside[0], "population": c.outside[1]}} if c.of else {})


def _counted(sums: tuple[int, int]) -> dict[str, int]:
    sick, population = sums
    return {"sick": sick, "population": population}


def size(body: Mapping[str, Any]) -> int:
    """Bytes of a gate's status as it is sent. What others put on the gate is not ours to limit."""
    return len(_sent(body.get("status")))


def _sent(part: Any) -> bytes:
    return json.dumps(part, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")


def fitted(gate: Gate, encoded: Callable[[Gate], dict[str, Any]]) -> dict[str, Any]:
    """``gate`` as an object, without what is least needed if it were too large: starts, then names of sick
    nodes and label values of the census, then claims. All of it is on the records, or counted again.

    What is left may still be too large: ``Gates.write`` refuses it.
    """
    body = encoded(gate)
    while (over := size(body) - MOST_BYTES) > 0 and (less := _less(gate, over)) is not None:
        gate, body = less, encoded(less)
    return body


def _less(gate: Gate, over: int) -> Gate | None:
    """``gate`` without what is least needed of what it still has; None where it has nothing to spare. Of a
    list, as much as makes ``over`` bytes."""
    c = gate.census
    if gate.starts:
        return replace(gate, starts=gate.starts[_enough(map(_start, gate.starts), over) :])
    if c is not None and (c.sick or c.by_label):
        values = list(c.by_label.items())
        enough = 1 if c.sick else _enough(({x[0]: _counted(x[1])} for x in reversed(values)), over)
        kept = dict(values[: max(0, len(values) - enough)])
        return replace(gate, census=replace(c, total=c.how_many, sick=(), by_label=kept))
    if len(gate.claimed) > FEWEST_CLAIMS:
        enough = _enough(map(_claim, gate.claimed), over)
        return replace(gate, claimed=gate.claimed[min(enough, len(gate.claimed) - FEWEST_CLAIMS) :])
    return None


def _enough(items: Iterable[dict[str, Any]], over: int) -> int:
    """How many of these items make ``over`` bytes; all of them where that is not enough. One too few may be
    said, where an item is sent shorter than it is here; never one too many."""
    count = 0
    for item in items:
        if over <= 0:
            break
        over -= len(_sent(item)) + 1  # and a comma
        count += 1
    return count


# ---------------------------------------------------------------- decode


def read_pause(spec: Any) -> Pause | None:
    """The pause in a gate's spec. What cannot be understood is a pause without end."""
    raw = spec.get("pause") if isinstance(spec, dict) else None
    if raw is None:
        return None
    if not isinstance(raw, dict):
        return Pause("somebody", f"spec.pause cannot be read ({raw!r}), which counts as paused", None)
    owner, reason = str(raw.get("owner") or "somebody"), str(raw.get("reason") or "no reason given")
    until = raw.get("until")
    if until in (None, ""):
        return Pause(owner, reason, None)
    try:
        return Pause(owner, reason, parse_moment(str(until)))
    except ValueError:
        return Pause(owner, f"{reason}; its end {until!r} cannot be read, which counts as paused", None)


def read_approvals(spec: Any) -> tuple[Approval, ...]:
    """Which correlated faults people have let go. One that cannot be understood lets nothing go."""
    raw = spec.get("approved") if isinstance(spec, dict) else None
    found = []
    for each in raw if isinstance(raw, list) else ():
        try:
            reason = named(str(each["reason"]), LONGEST_REASON)
            found.append(Approval(reason, str(each["by"]), parse_moment(str(each["until"]))))
        except (ValueError, KeyError, TypeError):
            continue
    return tuple(found)


def _read_census(r: Reader | None) -> Census | None:
    if r is None:
        return None
    by_label = {}
    for key, value in r.mapping("byLabel").items():
        pair = Reader(value, f"status.census.byLabel[{key}]")
        by_label[key] = (pair.integer("sick"), pair.integer("population"))
    sick, total = r.strings("sick"), r.integer("sickTotal")
    total = total if total > len(sick) else 0
    seconds = max(0, r.integer("seconds"))
    others = r.child("outside")
    outside = (others.integer("sick"), others.integer("population")) if others is not None else (0, 0)
    return Census(r.at("at"), r.integer("population"), sick, by_label, total, seconds, r.text("of"), outside)


def _read_slot(r: Reader, words: Mapping[str, str]) -> Slot:
    """A slot: its labels and group by their words, or as an older program wrote it."""
    node, scopes = r.text("node", ...), r.strings("scopes")
    told = [words[x] for x in scopes if x in words]
    group = next((x[1:] for x in told if x.startswith("@")), r.text("group"))
    labels = dict(_read_label(x, node) for x in told if not x.startswith("@"))
    if told:
        besides = {key: labels.pop(key, None) or "" for key in BESIDES}
    else:
        literal = [x for x in scopes if x.lstrip("=").startswith(BESIDES)]
        scopes = tuple(x for x in scopes if x not in literal)
        besides = {key: value or "" for key, value in (_read_label(x, node) for x in literal)}
    slot = Slot(
        node,
        r.text("recordUID", ...),
        r.integer("attempt"),
        scopes,
        r.at("since"),
        labels if told else None,
        r.text("machine"),
        group,
        besides.get(RULE, ""),
    )
    at, last = besides.get(AT, ""), besides.get(LAST, "")
    whole = f"{at}{last or slot.machine}" if at else last
    return replace(slot, scopes=noted_scopes(slot), provider_id=whole)


def _read_label(word: str, node: str) -> tuple[str, str | None]:
    if word.startswith("!"):
        return word[1:], None
    if word.startswith("="):
        return word[1:], node
    key, _, value = word.partition("=")
    return key, value


def decode(obj: Any) -> Gate:
    """The gate in ``obj``. Raises ``Undecodable``."""
    meta = Reader(obj.get("metadata"), "metadata")
    pause, approvals = read_pause(obj.get("spec") or {}), read_approvals(obj.get("spec"))
    uid, version = meta.text("uid"), meta.text("resourceVersion")
    s = Reader(obj, "RecoveryGate").child("status")
    if s is None:
        return Gate(uid=uid, resource_version=version, stamp="", pause=pause, approved=approvals)
    codec = s.integer("version", CODEC)
    if codec not in (FIRST, CODEC):
        raise Undecodable(
            f"RecoveryGate {NAME} was written in version {codec}; this program understands version {CODEC}"
        )
    words = {key: str(value) for key, value in s.mapping("words").items()}
    return Gate(
        uid=uid,
        resource_version=version,
        stamp=s.text("stamp"),
        pause=pause,
        approved=approvals,
        open=tuple(
            Line(x.text("node", ...), x.text("recordUID", ...), x.at("since")) for x in s.children("open")
        ),
        slots=tuple(_read_slot(x, words) for x in s.children("slots")),
        last_start=s.maybe_at("lastStart"),
        starts=tuple(
            GroupStart(
                x.at("at"),
                x.text("node"),
                x.text("group"),
                x.text("machine"),
                x.text("reason"),
                x.strings("hardware"),
            )
            for x in s.children("starts")
        ),
        census=_read_census(s.child("census") or s.child(SELECTED)),
        claimed=tuple(
            Claim(c.text("machine", ...), c.text("insteadOf")) for c in s.children("replacementsClaimed")
        ),
    )


# ---------------------------------------------------------------- store


class GateObjects(Protocol):
    """The part of the cluster that the store of the gate needs."""

    def get_gate(self) -> dict[str, Any]: ...
    def create_gate(self, body: dict[str, Any]) -> dict[str, Any]: ...
    def replace_gate(self, body: dict[str, Any]) -> dict[str, Any]: ...


class Gates:
    """Reads and swaps the gate. ``known``: what others of this process decoded that read the same one."""

    def __init__(
        self,
        cluster: GateObjects,
        records: Callable[[], Iterable[Record]],
        known: Unchanged[Gate] | None = None,
    ) -> None:
        self._cluster = cluster
        self._records = records
        self._decode = known or Unchanged(decode)
        self._was: dict[str, Any] = {}

    def read(self) -> Gate | None:
        """The gate, or None where there is none yet. Raises ``Undecodable``. Changes nothing."""
        try:
            return self._take(self._cluster.get_gate())
        except NotFound:
            return None

    def _take(self, obj: dict[str, Any]) -> Gate:
        self._was = obj
        return self._decode(obj)

    def write(self, gate: Gate) -> Gate:
        """Swap the gate. Raises ``Conflict`` when another writer was first, ``GateTooLarge`` if it would be
        larger than it may be, and not smaller than it is."""
        body = self._fitted(gate)
        if MOST_BYTES < size(body) >= size(self._was):
            kib = f"{size(body) / 1024:.1f} KiB, and may have {MOST_BYTES / 1024:g}"
            raise GateTooLarge(f"the gate would have {kib}: {len(gate.slots)} nodes are out")
        return self._take(self._cluster.replace_gate(body))

    def write_in_any_case(self, gate: Gate) -> Gate:
        """Swap the gate, however large it is: nothing starts by it, and a recovery waits for it (law 8)."""
        return self._take(self._cluster.replace_gate(self._fitted(gate)))

    def _fitted(self, gate: Gate) -> dict[str, Any]:
        spec = self._was.get("spec")
        told = dict(spec) if isinstance(spec, dict) else {}
        return fitted(bounded(gate), lambda less: encode(less, told, self._was))

    def ready(self, gate: Gate | None, now: datetime) -> Gate:
        """A gate that slots may be taken from: created if missing, rebuilt from the records if made anew."""
        if gate is None:
            empty = Gate(uid="", resource_version="", stamp="")
            try:
                gate = self._take(self._cluster.create_gate(encode(empty, {})))
            except Conflict:
                gate = self._take(self._cluster.get_gate())
        if gate.stamp != gate.uid:
            harmed = gate
            rebuilt = folded(lambda: rebuild(harmed, self._records()))
            gate = self.write_in_any_case(rebuilt)
        return gate
