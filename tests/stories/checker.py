"""What must be true of any story, judged from what was written and what was called. Nothing else is believed.

It reads the API's history as JSON and the provider's list of calls, and knows no line of the agent's code, so
that a mistake there cannot be repeated here.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

TAINT = "noderecovery.dev/unhealthy"
BY = "noderecovery.dev/cordoned-by"
TAINTED = "noderecovery.dev/taints"
RECORDS = "/apis/noderecovery.dev/v1alpha1/noderecoveries"
GATES = "/apis/noderecovery.dev/v1alpha1/recoverygates"
ENDS = {"recovered", "withdrawn", "superseded", "handedOver", "released", "lost"}
IN_A_PERSONS_HANDS = {"handedOver", "lost"}
WAITED_FOR = {"version", "sentence", "history", "progress", "release", "nodeGoneSince", "recoveredAt"}
"""All that a peer writes on a record whose recovery has not begun, and does not end either."""
FRUITLESS = {"abandoned", "refused", "notApplied"}
Json = Mapping[str, Any]


def _conclusions() -> dict[str, list[str]]:
    """From which phase to which a peer may take a record, by the admission policy that is shipped."""
    policies = yaml.safe_load_all((Path(__file__).parents[2] / "deploy/rbac/admission.yaml").read_text())
    (found,) = (
        variable["expression"]
        for policy in policies
        for variable in policy["spec"].get("variables", ())
        if variable["name"] == "conclusions"
    )
    return dict(json.loads(found))


CONCLUSIONS = _conclusions()


@dataclass
class Replay:
    """The objects as they were after each write."""

    records: dict[str, Json] = field(default_factory=dict)
    nodes: dict[str, Json] = field(default_factory=dict)
    gate: Json | None = None
    tokens: dict[str, tuple[str, int]] = field(default_factory=dict)  # token -> record uid, attempt
    states: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    born: dict[str, int] = field(default_factory=dict)  # token -> the write that first bore it
    rungs: dict[str, int] = field(default_factory=dict)  # token -> the rung of its step
    settled: dict[str, int] = field(default_factory=dict)  # token -> the write that said it was fruitless
    ended: set[str] = field(default_factory=set)  # uids of records that were terminal when last written
    cordoned: set[str] = field(default_factory=set)  # nodes whose cordon an agent put on


def check(
    history: Iterable[Any],
    calls: Iterable[tuple[Any, str, str]],
    *,
    budget: Mapping[str, int] | None = None,
    brake: int | None = None,
    faulty: Iterable[str] = (),
    finished: bool = True,
) -> Replay:
    """Raises ``AssertionError`` with the write that broke a law. ``budget`` maps a scope to its slots;
    ``brake`` is how many nodes may be sick when a slot is granted."""
    world = Replay()
    allowed = brake
    for write in history:
        _apply(world, write, budget or {"fleet": 1}, allowed)
    _calls(world, list(calls))
    if finished:
        _finished(world, faulty)
    return world


def _apply(world: Replay, write: Any, budget: Mapping[str, int], brake: int | None) -> None:
    obj, gone = write.object, write.verb == "delete"
    kind, name = obj.get("kind"), obj["metadata"]["name"]
    where = f"{write.time:%H:%M:%S.%f} {write.actor}: {write.verb} {write.path}"
    if kind == "Node":
        before = world.nodes.pop(name, None)
        if gone:
            world.cordoned.discard(name)
        else:
            world.nodes[name] = obj
            _node(world, before, write, where)
    elif kind == "NodeRecovery":
        before = world.records.pop(name, None)
        if not gone:
            _concluded(before, write, where)
            world.records[name] = obj
            _remember(world, write)
    elif kind == "RecoveryGate":
        before, world.gate = world.gate, None if gone else obj
        if not gone:
            _gate(world, before, obj, budget, where)
            _braked(world, before, obj, brake, where)
    else:
        return
    _marked_have_slots(world, where)


def conclusions_are_allowed(history: Iterable[Any]) -> None:
    """That no shipped admission policy refuses what was written on other nodes' records."""
    records: dict[str, Json] = {}
    for write in history:
        if write.object.get("kind") == "NodeRecovery":
            name = write.object["metadata"]["name"]
            before = records.pop(name, None)
            if write.verb != "delete":
                _concluded(
                    before, write, f"{write.time:%H:%M:%S.%f} {write.actor}: {write.verb} {write.path}"
                )
                records[name] = write.object


def _concluded(before: Json | None, write: Any, where: str) -> None:
    """What the shipped admission policies let an agent write on the record of another node.

    A reboot out of band has a policy of its own, under which the concluder goes on to that step.
    """
    name, status = write.object["metadata"]["name"], _status(write.object)
    ours = write.actor == "concluder" or write.actor.startswith("agent of ")
    if not ours or re.match(rf"agent of {re.escape(name)}( |,|$)", write.actor):
        return
    if before is None:
        assert status["phase"] == "lost", f"{where}: another node's record is made as {status['phase']}"
        return
    was, now = _status(before), status["phase"]
    released = now == "released" and was.get("release") and was["phase"] in {*CONCLUSIONS}
    allowed = released or now in CONCLUSIONS.get(was["phase"], ()) or _left_as_it_is(was, now)
    assert allowed, f"{where}: no admission policy lets a peer make {was['phase']} {now}"
    kept = {"machine", "attempt", "ladder", "rung", "marks"}
    if write.actor == "concluder" and [x["do"] for x in status["ladder"][status["rung"] :][:1]] == ["reboot"]:
        kept -= {"attempt", "rung"}
    for field_ in sorted(kept):
        assert was.get(field_) == status.get(field_), f"{where}: a peer changed {field_}"
    _faults_kept(was, status, where)
    if now in {"suspect", "waiting"}:
        words = {"faults", "acknowledged", "acknowledgedMore", "starts"}
        for field_ in sorted({*was, *status} - WAITED_FOR - words):
            same = was.get(field_) == status.get(field_) or not (field_ in was or status[field_])
            assert same, f"{where}: a peer changed {field_} of a record that is {now}"


def _left_as_it_is(was: Json, now: str) -> bool:
    """A peer withdraws a record of an excluded node only if no call stands, and it names no marks."""
    state = (was.get("intent") or {}).get("state")
    stands = state is not None and state not in FRUITLESS
    return now == "withdrawn" and was["phase"] not in ENDS and not stands and not any(was["marks"].values())


def _faults_kept(was: Json, now: Json, where: str) -> None:
    """A peer invents no fault, and forgets none while the record is open."""
    named = {name: {_named_fault(f) for f in was.get(name) or []} for name in ("faults", "acknowledged")}
    added = {_named_fault(f) for f in now.get("faults") or []} - named["faults"]
    assert not added, f"{where}: a peer wrote the fault {added}"
    known = named["faults"] | named["acknowledged"]
    more = {_named_fault(f) for f in now.get("acknowledged") or []} - known
    assert not more, f"{where}: a peer wrote that {more} was dealt with"
    if now["phase"] not in ENDS:
        assert _without_words(was, "faults") == _without_words(now, "faults"), (
            f"{where}: a peer changed faults"
        )
    if now["phase"] in {"suspect", "waiting"}:
        before, after = _without_words(was, "acknowledged"), _without_words(now, "acknowledged")
        assert all(f in before for f in after), f"{where}: a peer changed what was dealt with"
        if was.get("acknowledgedMore") != now.get("acknowledgedMore"):
            assert len(after) < len(before), f"{where}: a peer wrote a digest of nothing"
        starts = [_but_hardware(x) for x in was.get("starts") or []]
        kept = all(_but_hardware(x) in starts for x in now.get("starts") or [])
        assert kept, f"{where}: a peer wrote a start"
    if was["phase"] != "recovering":
        assert was.get("bootID") == now.get("bootID"), f"{where}: a peer wrote a boot"


def _but_hardware(start: Json) -> dict[str, Any]:
    return {k: v for k, v in start.items() if k != "hardware"}


def _named_fault(fault: Json) -> tuple[Any, ...]:
    return tuple(fault.get(name) for name in ("source", "type", "reason", "machine"))


def _without_words(status: Json, name: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in f.items() if k not in {"message", "device"}} for f in status.get(name) or []]


def _node(world: Replay, before: Json | None, write: Any, where: str) -> None:
    name, after = write.object["metadata"]["name"], write.object
    by_agent = write.actor.startswith(("agent", "concluder"))
    if before is not None and by_agent:
        _only_ours_changed(before, after, where)
    was = bool(before and before["spec"].get("unschedulable"))
    if not after["spec"].get("unschedulable"):
        world.cordoned.discard(name)
    elif by_agent and not was:
        world.cordoned.add(name)


def _status(obj: Json | None) -> Json:
    return (obj or {}).get("status") or {}


def _remember(world: Replay, write: Any) -> None:
    meta, status = write.object["metadata"], _status(write.object)
    uid = meta["uid"]
    (world.ended.add if status["phase"] in ENDS else world.ended.discard)(uid)
    intent = status.get("intent")
    if not intent:
        return
    token = intent["token"]
    owner = (uid, intent["attempt"])
    assert world.tokens.setdefault(token, owner) == owner, f"one token, two attempts: {owner}"
    if token not in world.born:
        world.born[token] = write.resource_version
        world.rungs[token] = status["rung"]
        _may_begin(world, write)
    if not world.states[token] or world.states[token][-1] != intent["state"]:
        world.states[token].append(intent["state"])
    if intent["state"] in FRUITLESS:
        world.settled.setdefault(token, write.resource_version)


def _may_begin(world: Replay, write: Any) -> None:
    """Laws 1, 4 and 8, at the moment the intent is written."""
    name, status = write.object["metadata"]["name"], _status(write.object)
    where = f"{write.time:%H:%M:%S.%f} the intent of {name}"
    node, gate = world.nodes.get(name), world.gate
    assert status["phase"] == "recovering", f"{where}: the record is {status['phase']}"
    assert node is not None, f"{where}: there is no such node"
    assert (name, write.object["metadata"]["uid"]) in _places(gate), f"{where}: no slot is held"
    machine = status["machine"]["id"]
    assert _runs_on(node, machine), f"{where}: {machine} is not its machine"
    assert status["intent"]["machine"] == machine, f"{where}: is about {status['intent']['machine']}"
    boot = node["status"]["nodeInfo"]["bootID"]
    assert status["intent"]["bootID"] == boot, f"{where}: the machine has booted"
    assert not ((gate or {}).get("spec") or {}).get("pause"), f"{where}: recoveries are paused"
    excluded = (node["metadata"].get("labels") or {}).get("noderecovery.dev/exclude")
    assert excluded != "true", f"{where}: the node is excluded"


def _runs_on(node: Json, machine: str) -> bool:
    """Whether a Node is of this machine: by its providerID, or by its system UUID in either byte order."""
    if node["spec"].get("providerID", "").endswith("/" + machine):
        return True
    try:
        shown, meant = UUID(node["status"]["nodeInfo"].get("systemUUID", "")), UUID(machine)
    except ValueError:
        return False
    return meant.bytes in (shown.bytes, shown.bytes_le)


def _only_ours_changed(before: Json, after: Json, where: str) -> None:
    """Law 5: a foreign cordon, taint, label or annotation stays."""
    taken = _named(after) - _named(before)
    there = {_text(t) for t in before["spec"].get("taints") or []}
    assert not taken & there, f"{where}: {taken & there} was there already, and is called ours"
    named = _named(after) | _named(before)

    def taints(node: Json) -> list[Any]:
        return [t for t in node["spec"].get("taints") or [] if t["key"] != TAINT and _text(t) not in named]

    def notes(node: Json) -> dict[str, str]:
        return {
            k: v for k, v in (node["metadata"].get("annotations") or {}).items() if k not in (BY, TAINTED)
        }

    assert taints(before) == taints(after), f"{where}: a foreign taint was changed"
    assert notes(before) == notes(after), f"{where}: a foreign annotation was changed"
    assert before["metadata"].get("labels") == after["metadata"].get("labels"), (
        f"{where}: a label was changed"
    )
    if before["spec"].get("unschedulable") and not after["spec"].get("unschedulable"):
        ours = BY in (before["metadata"].get("annotations") or {})
        assert ours, f"{where}: a foreign cordon was removed"


def _text(taint: Json) -> str:
    """As kubectl writes it."""
    return taint["key"] + (f"={taint['value']}" if taint.get("value") else "") + f":{taint['effect']}"


def _named(node: Json) -> set[str]:
    """The taints that a remedy has set, by the annotation."""
    return {*filter(None, (node["metadata"].get("annotations") or {}).get(TAINTED, "").split(","))}


def _places(gate: Json | None) -> set[tuple[str, str]]:
    return {(s["node"], s["recordUID"]) for s in _status(gate).get("slots") or []}


def _sound(gate: Json | None) -> bool:
    return gate is not None and _status(gate).get("stamp") == gate["metadata"]["uid"]


def _gate(world: Replay, before: Json | None, gate: Json, budget: Mapping[str, int], where: str) -> None:
    if not _sound(gate):
        assert before is None or gate["metadata"]["uid"] != before["metadata"]["uid"], f"{where}: unstamped"
        return
    slots = _status(gate).get("slots") or []
    for scope, most in budget.items():
        words = _status(gate).get("words") or {}
        out = [s["node"] for s in slots if scope in [words.get(x, x) for x in s["scopes"]]]
        assert len(out) <= most, f"{where}: {out} are out in {scope}, {most} may be"
    claims = [c["machine"] for c in _status(gate).get("replacementsClaimed") or []]
    assert len(claims) == len(set(claims)), f"{where}: a machine is two machines' replacement: {claims}"
    if not _sound(before) or before is None or before["metadata"]["uid"] != gate["metadata"]["uid"]:
        return
    for node, uid in _places(before) - _places(gate):
        now = world.records.get(node)
        replaced = now is not None and now["metadata"]["uid"] != uid and _status(now)["phase"] in ENDS
        assert uid in world.ended or replaced, (
            f"{where}: the slot of {node} was freed while its record was open"
        )


def _braked(world: Replay, before: Json | None, gate: Json, brake: int | None, where: str) -> None:
    """Law 10: nothing new is started above the brake."""
    if brake is None or len(_status(gate).get("starts") or []) <= len(_status(before).get("starts") or []):
        return
    sick = [n for n, r in world.records.items() if _status(r)["phase"] not in ENDS - {"handedOver"}]
    assert len(sick) <= brake, f"{where}: started with {len(sick)} sick, {brake} may be"


def _marks(node: Json) -> bool:
    ours = any(t["key"] == TAINT for t in node["spec"].get("taints") or [])
    return ours or bool({BY, TAINTED} & {*(node["metadata"].get("annotations") or {})})


def _marked_have_slots(world: Replay, where: str) -> None:
    """Law 1: slots are a superset of the nodes that are out."""
    if not _sound(world.gate):
        return
    held = {node for node, _ in _places(world.gate)}
    for name, node in world.nodes.items():
        record = world.records.get(name)
        if _marks(node) and name not in held:
            phase = _status(record).get("phase")
            assert phase in IN_A_PERSONS_HANDS, f"{where}: {name} ({phase}) bears our marks without a slot"


def _calls(world: Replay, calls: list[tuple[Any, str, str]]) -> None:
    """Law 2: at most one call per record and attempt; the same again only after the first had no effect."""
    seen: set[tuple[str, int]] = set()
    last: dict[str, str] = {}
    asked: dict[str, Any] = {}  # token -> action
    for action, machine, token in calls:
        assert token in world.tokens, f"{action} of {machine} was called without an intent"
        attempt = world.tokens[token]
        assert attempt not in seen, f"{action} of {machine} was called twice for {attempt}"
        seen.add(attempt)
        asked[token] = action
        before = last.get(machine)
        last[machine] = token
        if before is not None and asked[before] != action:
            told = f"{action} of {machine} was called on the rung of {asked[before]}"
            assert world.rungs[before] != world.rungs[token], told
        elif before is not None:
            settled = world.settled.get(before)
            told = f"{action} of {machine} was called again while the first call was not settled"
            assert settled is not None, told
            assert settled < world.born[token], told


def _finished(world: Replay, faulty: Iterable[str]) -> None:
    """Law 6: every fault has an end, and nothing is left behind."""
    for node in faulty:
        assert node in world.records, f"the fault of {node} left no record"
    for name, record in world.records.items():
        status = _status(record)
        assert status["phase"] in ENDS, f"{name} is still {status['phase']}: {status['sentence']}"
        node = world.nodes.get(name)
        if node is None or status["phase"] in IN_A_PERSONS_HANDS:
            continue
        same = _runs_on(node, status["machine"]["id"])
        assert not (same and _marks(node)), f"{name} is {status['phase']} and still bears our marks"
        cordon = f"{name} is {status['phase']} and our cordon is still on it"
        assert not (same and name in world.cordoned), cordon
    left = _status(world.gate)
    assert not left.get("slots"), f"slots are left: {left['slots']}"
    assert not left.get("open"), f"lines are left: {left['open']}"
