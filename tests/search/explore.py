"""Two agents, two sick nodes, one slot: every order in which their effects can come, to the last state.

The real core and the real functions of the gate, on objects that are values. The shell around them is a few
lines here: compare-and-swap, a Lease, a call. An agent looks, decides, and carries its decision out in single
writes; between any two of them the other agent may act, the process may die, an answer may be lost, a person
may pause and resume, the machine may boot, time may pass. States that are equal are explored once.

``python -m tests.search.explore`` says how many states there are, and what they break.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from recovery.decide import budget
from recovery.decide.assessment import assess
from recovery.decide.census import count
from recovery.decide.decision import (
    ClaimReplacement,
    Decision,
    FreeSlot,
    Join,
    Mark,
    RestoreSlot,
    Submit,
    TakeSlot,
    Unmark,
    WriteRecord,
)
from recovery.decide.history import HistoryEvent
from recovery.decide.in_flight import settled
from recovery.decide.needs import needed
from recovery.decide.orphan import conclude
from recovery.decide.own_node import decide
from recovery.decide.provider_step import not_now
from recovery.decide.situation import Counted, Lease, Preflighted, Progressed, Role, Situation
from recovery.model import (
    CORDONED_BY,
    OWNER_OF_MARKS,
    TAINT,
    Gate,
    Intent,
    IntentState,
    Machine,
    Marks,
    NodeView,
    Pause,
    Phase,
    Preflight,
    Reading,
    Record,
    Reference,
    Running,
)
from tests.builders.faults import problem
from tests.builders.nodes import FAKE
from tests.builders.policies import policy
from tests.builders.times import NOW

TICK = 30
HORIZON = 1500
"""Seconds after which everything has to be over."""
LEASE = 60
LONGEST, LONGEST_PAUSE = 3, 1
"""A dead process is started again, and a pause is over, before time has passed so often: longer changes nothing
but the moments. Three times is longer than a Lease."""
NODES = ("node-0", "node-1")
MACHINES = tuple(Machine("fake", f"m-{i}", f"fake:///workers/m-{i}", "workers") for i in range(2))
POLICY = policy(
    "\n  - name: hardware\n    match: {type: NeuronHealth}\n"
    "    remedy: [{do: reboot, within: 5m}]\n    probation: 1m\n",
    limits="{cooldown: 0s, brake: 100%, brakePer: {}, budget: 1, budgetPer: {}}",
)
ENDS = (Phase.RECOVERED, Phase.HANDED_OVER)
"""Where the answer to the intent's write is lost, or the process dies behind it, nobody knows whether the call
was made. If no boot comes, a person is asked."""
PAUSE = Pause("ada", "a network change", None)
OPEN_GATE = Gate(uid="g", resource_version="0", stamp="g")


@dataclass(frozen=True)
class Doing:
    """A decision that is being carried out. ``line``: how many of its writes are done. ``record``: as this
    agent last wrote it. ``intended``: when the intent was written."""

    of: int
    s: Situation
    d: Decision
    line: int = 0
    record: Record | None = None
    intended: int = 0
    accepted: str = ""


@dataclass(frozen=True)
class Process:
    """One agent's process. ``life``: how many there were before it on this node."""

    alive: bool = True
    life: int = 0
    doing: Doing | None = None
    watching: int | None = None
    intents: tuple[tuple[str, int], ...] = ()
    gone_since: int | None = None


@dataclass(frozen=True)
class State:
    """Everything: the API server's objects, the machines, the processes, and what may still go wrong."""

    t: int
    nodes: tuple[NodeView, ...]
    records: tuple[Record | None, ...]
    gate: Gate
    leases: tuple[tuple[int, int, int], ...]  # holder, its life, when renewed; -1: nobody
    processes: tuple[Process, ...]
    sick: tuple[bool, ...]
    asked: tuple[int, ...]  # calls accepted, and not carried out yet
    calls: tuple[tuple[str, int], ...] = ()  # record and attempt of each call
    crashes: int = 1
    lost: int = 1
    pauses: int = 1
    stalls: int = 0
    paused_for: int = 0  # how often time has passed in the pause
    dead_for: int = 0  # ... and while a process was dead


@dataclass
class Explored:
    states: int = 0
    moves: int = 0
    last: int = 0
    broken: dict[str, tuple[str, ...]] = field(default_factory=dict)


# ---------------------------------------------------------------- values


_texts: dict[int, tuple[object, str]] = {}


def text_of(value: object) -> str:
    """``repr``, remembered: objects go from state to state unchanged."""
    known = _texts.get(id(value))
    if known is None or known[0] is not value:
        known = _texts[id(value)] = (value, repr(value))
        if len(_texts) > 200_000:
            _texts.clear()
    return known[1]


def key(x: State) -> int:
    parts = [*x.nodes, *x.records, x.gate, *x.processes]
    rest = (
        x.t,
        x.leases,
        x.sick,
        x.asked,
        x.calls,
        x.crashes,
        x.lost,
        x.pauses,
        x.stalls,
        x.paused_for,
        x.dead_for,
    )
    return hash((tuple(text_of(p) for p in parts), rest))


def version(value: object) -> str:
    """A version that is the same for equal objects: what was read is what is there."""
    return format(hash(text_of(value)) & 0xFFFFFFFF, "x")


def kept(r: Record) -> Record:
    """A record as the server keeps it. Its history is for people, and would keep equal states apart."""
    plain = replace(r, history=(), resource_version="", uid=r.uid or f"uid-{r.node}")
    return replace(plain, resource_version=version(plain))


def kept_gate(g: Gate) -> Gate:
    plain = replace(g, resource_version="")
    return replace(plain, resource_version=version(plain))


def kept_node(n: NodeView) -> NodeView:
    plain = replace(n, resource_version="")
    return replace(plain, resource_version=version(plain))


def put(values: tuple, i: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:i], value, *values[i + 1 :])


def now_of(x: State) -> datetime:
    return NOW + timedelta(seconds=x.t)


def first() -> State:
    """Both nodes have just broken."""
    nodes = tuple(
        kept_node(
            NodeView(
                name=name,
                uid=f"uid-{name}",
                resource_version="",
                provider_id=m.provider_id,
                boot_id="boot-1",
                conditions={"Ready": ("True", "KubeletReady")},
            )
        )
        for name, m in zip(NODES, MACHINES, strict=True)
    )
    nobody = (-1, 0, 0)
    return State(
        0,
        nodes,
        (None, None),
        kept_gate(OPEN_GATE),
        (nobody, nobody),
        (Process(), Process()),
        (True, True),
        (0, 0),
    )


# ---------------------------------------------------------------- looking


def lease_of(x: State, i: int, node: int) -> Lease:
    holder, life, renewed = x.leases[node]
    if holder == -1:
        return Lease("", mine=False, stale=True)
    name = f"agent-{holder}/{life}"
    mine = (holder, life) == (i, x.processes[i].life) and x.t - renewed < LEASE
    dead_in_this_pod = holder == i and life != x.processes[i].life
    yields = node == i and holder != i
    return Lease(name, mine=mine, stale=not mine and (x.t - renewed >= LEASE or dead_in_this_pod or yields))


def reading(x: State, i: int) -> Reading:
    now = now_of(x)
    fresh = now + timedelta(seconds=10)
    shown = (problem(since=NOW, fresh_until=fresh),) if x.sick[i] else ()
    return Reading("npd", now, shown, listed=frozenset({("NeuronHealth", "NeuronHasError_DMA_ERROR")}))


def look(x: State, i: int, node: int) -> Situation:
    """What agent ``i`` sees of ``node``, with all that the core asks for."""
    p, r, now = x.processes[i], x.records[node], now_of(x)
    role = Role.OWNER if i == node else Role.CONCLUDER
    s = Situation(
        now=now,
        node_name=NODES[node],
        policy=POLICY,
        role=role,
        readings=(reading(x, i),) if role is Role.OWNER else (),
        node=x.nodes[node],
        machine=MACHINES[node],
        provider=FAKE,
        record=r,
        gate=x.gate,
        lease=lease_of(x, i, node),
        settle=timedelta(0),
    )
    if r is not None and r.phase.open:
        seen = next((at for token, at in p.intents if r.intent and token == r.intent.token), x.t)
        watched = timedelta(seconds=x.t - p.watching) if p.watching is not None else timedelta(0)
        s = replace(
            s,
            intent_seen_for=timedelta(seconds=x.t - seen),
            owner_gone_for=timedelta(seconds=x.t - p.gone_since)
            if p.gone_since is not None
            else timedelta(0),
            watched_for=watched if r.phase is Phase.PROVING else None,
        )
    while (need := needed(s)) is not None:
        s = replace(s, read=(*s.read, need))
        match need:
            case Counted():
                known = [r for r in x.records if r is not None]
                s = replace(s, census=count(x.nodes, known, lambda kind, reason: True, (), now))
            case Preflighted():
                s = replace(s, preflight=Preflight(Reference("fake", "reboot"), "workers"))
            case Progressed():
                s = replace(s, poll=Running("asked to reboot"))
            case _:
                s = replace(s, pods=())
    return s


def ask(s: Situation, place: str = "") -> Decision:
    return decide(s, assess(s)) if s.role is Role.OWNER else conclude(s, place=place)


# ---------------------------------------------------------------- moves


def moves(x: State) -> Iterator[tuple[str, State]]:
    """Every state that may come next, and what leads there."""
    for i, p in enumerate(x.processes):
        if not p.alive:
            yield f"agent {i} is started again", with_process(x, i, Process(life=p.life + 1))
            continue
        if p.doing is not None:
            yield from steps(x, i, p, p.doing)
        else:
            yield from looks(x, i, p)
        if x.crashes and (p.doing is not None or x.records[i] is not None):
            dead = replace(p, alive=False, doing=None, watching=None, intents=(), gone_since=None)
            yield f"agent {i} is killed", replace(with_process(x, i, dead), crashes=x.crashes - 1)
        if x.asked[i]:
            yield f"m-{i} boots", booted(x, i)
    if x.gate.pause is not None:
        yield "a person resumes", replace(x, gate=kept_gate(replace(x.gate, pause=None)))
    elif x.pauses:
        paused = replace(x, gate=kept_gate(replace(x.gate, pause=PAUSE)), pauses=x.pauses - 1)
        yield "a person pauses", paused
    if x.t < HORIZON:
        yield from passes(x)


def with_process(x: State, i: int, p: Process) -> State:
    return replace(x, processes=put(x.processes, i, p))


def booted(x: State, i: int) -> State:
    """The machine comes up under another boot ID, mended; its agent starts anew."""
    node = x.nodes[i]
    boot = f"boot-{int(node.boot_id.rpartition('-')[2]) + 1}"
    return replace(
        x,
        nodes=put(x.nodes, i, kept_node(replace(node, boot_id=boot))),
        sick=put(x.sick, i, False),
        asked=put(x.asked, i, x.asked[i] - 1),
        processes=put(x.processes, i, Process(life=x.processes[i].life + 1)),
    )


def passes(x: State) -> Iterator[tuple[str, State]]:
    """Time passes: when nobody has anything to do, and once while somebody is stopped in the middle."""
    busy = [p for p in x.processes if p.alive and p.doing is not None]
    waiting = any(True for i, p in enumerate(x.processes) if p.alive and not busy for _ in looks(x, i, p))
    if waiting or any(x.asked) or (busy and not x.stalls):
        return
    dead, paused = not all(p.alive for p in x.processes), x.gate.pause is not None
    if (dead and x.dead_for == LONGEST) or (paused and x.paused_for == LONGEST_PAUSE):
        return
    later = replace(
        x,
        t=x.t + TICK,
        stalls=x.stalls - bool(busy),
        dead_for=x.dead_for + dead,
        paused_for=x.paused_for + paused,
    )
    leases = list(later.leases)
    processes = list(later.processes)
    for i, p in enumerate(later.processes):
        if not p.alive or p.doing is not None:
            continue  # a process that is stopped renews nothing
        own = x.records[i]
        if own is not None and own.phase.open and lease_of(x, i, i).stale:
            leases[i] = (i, p.life, later.t)  # an owner that only waits takes its Lease as well
        for node in range(2):
            if leases[node][:2] == (i, p.life) and x.t - leases[node][2] < LEASE:
                leases[node] = (i, p.life, later.t)
        processes[i] = remembered(x, i, p)
    yield f"{TICK} s pass", replace(later, leases=tuple(leases), processes=tuple(processes))


def remembered(x: State, i: int, p: Process) -> Process:
    """What a process keeps of what it has seen up to now."""
    own = x.records[i]
    watching = (p.watching if p.watching is not None else x.t) if own and own.phase is Phase.PROVING else None
    tokens = [r.intent.token for r in x.records if r and r.intent and r.intent.state is IntentState.WRITTEN]
    known = dict(p.intents)
    other = 1 - i
    holds = x.leases[other][:2] == (i, p.life)
    gone = (p.gone_since if p.gone_since is not None else x.t) if holds else None
    return replace(
        p, watching=watching, intents=tuple((t, known.get(t, x.t)) for t in sorted(tokens)), gone_since=gone
    )


def looks(x: State, i: int, p: Process) -> Iterator[tuple[str, State]]:
    """What agent ``i`` would do now: about its own node, and about the other's if that agent is gone."""
    for node in (i, 1 - i):
        if node != i:
            on_gate = [uid for name, uid in budget.places(x.gate) if name == NODES[node]]
            lease = lease_of(x, i, node)
            if not on_gate or not (lease.mine or lease.stale):
                continue
            if not lease.mine:
                taken = replace(x, leases=put(x.leases, node, (i, p.life, x.t)))
                yield f"agent {i} takes the Lease of {NODES[node]}", taken
                continue
            d = ask(s := look(x, i, node), on_gate[0])
        else:
            d = ask(s := look(x, i, node))
        if d.effect is not None:
            name = type(d.effect).__name__
            yield (
                f"agent {i} decides on {name} of {NODES[node]}",
                with_process(x, i, replace(p, doing=Doing(node, s, d))),
            )


def steps(x: State, i: int, p: Process, doing: Doing) -> Iterator[tuple[str, State]]:
    """The next write of what agent ``i`` is doing; the same with its answer lost."""
    if doing.line == 0 and not isinstance(doing.d.effect, FreeSlot):
        lease = lease_of(x, i, doing.of)
        if not lease.mine and not lease.stale:
            yield f"agent {i}: another has the Lease", done(x, i)
            return
        x = replace(x, leases=put(x.leases, doing.of, (i, p.life, x.t)))
    what, after = write(x, i, doing)
    yield f"agent {i} {what}", after
    if x.lost and after.processes[i].doing is not doing:
        lost = lose(x, after, i, doing)
        if lost is not None:
            yield f"agent {i} {what}, and the answer is lost", replace(lost, lost=x.lost - 1)


def lose(before: State, after: State, i: int, doing: Doing) -> State | None:
    """The write was applied, and this agent does not know."""
    if isinstance(doing.d.effect, Submit) and doing.line == 2:
        now = after.processes[i].doing
        return (
            with_process(after, i, replace(after.processes[i], doing=replace(now, accepted="lost")))
            if now
            else None
        )
    if (after.records, after.gate, after.nodes) == (before.records, before.gate, before.nodes):
        return None
    return done(after, i)


def done(x: State, i: int) -> State:
    return with_process(x, i, replace(x.processes[i], doing=None))


def write(x: State, i: int, doing: Doing) -> tuple[str, State]:
    """Carry out one write, by compare-and-swap against what was seen."""
    effect, s, node = doing.d.effect, doing.s, doing.of
    match effect:
        case WriteRecord(record):
            return "writes the record", done(swap_record(x, node, record), i)
        case Join() | TakeSlot() | RestoreSlot() | ClaimReplacement() | FreeSlot():
            return f"swaps the gate ({type(effect).__name__})", done(swap_gate(x, s, effect), i)
        case Mark(marks) if doing.line == 0:
            return "marks the Node", next_line(cas_node(x, node, s, marked(s.node, marks)), i, doing, x)
        case Mark(marks):
            assert s.record is not None
            changed = replace(s.record, marks=marks, rung_since=s.record.rung_since or now_of(x))
            return "writes that it did", done(swap_record(x, node, changed), i)
        case Unmark() if doing.line == 0:
            return "takes the marks off", next_line(
                cas_node(x, node, s, marked(s.node, Marks())), i, doing, x
            )
        case Unmark():
            assert s.record is not None
            return "writes that it did", done(swap_record(x, node, replace(s.record, marks=Marks())), i)
        case Submit():
            return submit(x, i, doing)
    raise AssertionError(f"{effect} is not explored")


def next_line(after: State | None, i: int, doing: Doing, before: State) -> State:
    if after is None:
        return done(before, i)
    going_on = replace(doing, line=doing.line + 1)
    return with_process(after, i, replace(after.processes[i], doing=going_on))


def marked(node: NodeView | None, marks: Marks) -> NodeView:
    assert node is not None
    taints = ((TAINT, "", "NoSchedule"),) if marks.tainted or marks.cordoned else ()
    notes = {CORDONED_BY: OWNER_OF_MARKS} if marks.cordoned else {}
    return replace(node, unschedulable=marks.cordoned, taints=taints, annotations=notes)


def cas_node(x: State, node: int, s: Situation, changed: NodeView) -> State | None:
    if s.node is None or s.node.resource_version != x.nodes[node].resource_version:
        return None
    return replace(x, nodes=put(x.nodes, node, kept_node(changed)))


def swap_record(x: State, node: int, record: Record) -> State:
    there = x.records[node]
    if (there.resource_version if there else "") != record.resource_version:
        return x
    return replace(x, records=put(x.records, node, kept(record)))


def swap_gate(x: State, s: Situation, effect: object) -> State:
    gate, now = x.gate, now_of(x)
    match effect:
        case FreeSlot(uid):
            r = next((r for r in x.records if r is not None and r.node == s.node_name), None)
            if r is None or (r.uid == uid and r.phase.open):
                return x
            changed = budget.free(gate, s.node_name, uid)
        case _ if s.gate is None or s.gate.resource_version != gate.resource_version:
            return x
        case Join(uid):
            changed = budget.join(gate, s.node_name, uid, now)
        case TakeSlot(slot, start):
            changed = budget.grant(gate, slot, start, None)
        case RestoreSlot(slot):
            changed = budget.restore(gate, slot)
        case ClaimReplacement(machine, instead_of):
            changed = budget.claim(gate, machine, instead_of)
        case _:
            raise AssertionError(effect)
    return replace(x, gate=kept_gate(changed))


def submit(x: State, i: int, doing: Doing) -> tuple[str, State]:
    """Read again and ask, write the intent, call, write the outcome."""
    node, action, now = doing.of, doing.d.effect.action, now_of(x)  # type: ignore[union-attr]
    if doing.line == 0:
        fresh = look(x, i, node)
        if fresh.record is None or not_now(fresh, assess(fresh), action) is not None:
            return "reads again, and does not call", done(x, i)
        return "reads again", next_line(x, i, replace(doing, s=fresh, record=fresh.record), x)
    r = doing.record
    assert r is not None
    if doing.line == 1:
        intent = Intent(
            action=action.value,
            attempt=r.attempt + 1,
            token=f"{NODES[node]}/{r.attempt + 1}",
            at=now,
            machine=r.machine.id,
            boot_id=r.boot_id,
            reference=Reference("fake", action.value),
            submit_within=10.0,
            call_timeout=8.0,
        )
        changed = replace(r, attempt=r.attempt + 1, intent=intent, rung_since=r.rung_since or now)
        after = swap_record(x, node, changed)
        if after is x:
            return "does not get its intent written", done(x, i)
        there = after.records[node]
        return "writes the intent", next_line(after, i, replace(doing, record=there, intended=x.t), x)
    if doing.line == 2:
        if x.t - doing.intended > 10:
            return "is too late to call", next_line(x, i, replace(doing, accepted="late"), x)
        asked = put(x.asked, node, x.asked[node] + 1)
        calls = (*x.calls, (r.uid, r.attempt))
        after = replace(x, asked=asked, calls=calls)
        return "calls", next_line(after, i, replace(doing, accepted="yes"), x)
    state, event = {
        "yes": (IntentState.SUBMITTED, HistoryEvent.SUBMITTED),
        "late": (IntentState.ABANDONED, HistoryEvent.ABANDONED),
        "lost": (IntentState.AMBIGUOUS, HistoryEvent.AMBIGUOUS),
    }[doing.accepted]
    return "writes what came of it", done(swap_record(x, node, settled(r, now, state, event, "")), i)


# ---------------------------------------------------------------- what must be true


def broken(before: State, x: State) -> str:
    """What is wrong with this state; empty if nothing is."""
    with_a_person = [r is not None and r.phase is Phase.HANDED_OVER for r in x.records]
    marked = (n for n, given in zip(x.nodes, with_a_person, strict=True) if not given)
    out = [n for n in marked if n.annotations.get(CORDONED_BY)]
    if len(out) > 1:
        return "law 1: two nodes are out, and one may be"
    if len(set(x.calls)) < len(x.calls):
        return "law 2: two calls for one attempt"
    if any(n > 1 for n in x.asked):
        return "law 2: a second call while the first is not carried out"
    if len(x.calls) > len(before.calls):
        called = next(r for r in x.records if r is not None and r.uid == x.calls[-1][0])
        node = x.nodes[NODES.index(called.node)]
        if called.intent is None or called.intent.boot_id != node.boot_id:
            return "law 4: a call for a boot that is over"
    for was, r, sick in zip(before.records, x.records, x.sick, strict=True):
        if (
            r is not None
            and r.phase is Phase.RECOVERED
            and (was is None or was.phase is not r.phase)
            and sick
        ):
            return "law 11: recovered, and the fault is there"
    if any(r is not None and not r.phase.open and r.phase not in ENDS for r in x.records):
        return "law 6: it ended neither recovered nor with a person"
    if any(with_a_person) and x.lost and x.crashes:
        return "law 6: a person was asked, though it is known whether the call was made"
    if x.t >= HORIZON and not over(x):
        return "law 6: it does not end"
    return ""


def over(x: State) -> bool:
    """Each node is recovered, or with a person; only such a one keeps its marks."""
    if not all(r is not None and r.phase in ENDS for r in x.records) or x.gate.slots or x.gate.open:
        return False
    back = [n for n, r in zip(x.nodes, x.records, strict=True) if r and r.phase is Phase.RECOVERED]
    return not any(n.taints or n.unschedulable for n in back)


def explore(limit: float) -> Explored:
    """All states, depth first. ``limit``: seconds after which it is given up."""
    found, end = Explored(), time.monotonic() + limit
    start = first()
    seen = {key(start)}
    stack: list[tuple[State, Iterator[tuple[str, State]], str]] = [(start, moves(start), "")]
    while stack:
        x, following, _ = stack[-1]
        step = next(following, None)
        if step is None:
            stack.pop()
            continue
        found.moves += 1
        name, after = step
        mark = key(after)
        if mark in seen:
            continue
        seen.add(mark)
        if why := broken(x, after):
            found.broken.setdefault(why, (*(n for _, _, n in stack[1:]), name))
            continue
        if over(after) and not any(p.doing for p in after.processes):
            found.last += 1
            continue
        stack.append((after, moves(after), name))
        if len(seen) % 5000 == 0 and time.monotonic() > end:
            raise SystemExit(f"not all explored after {limit:g} s: {len(seen)} states")
    found.states = len(seen)
    return found


def main() -> int:
    began = time.monotonic()
    found = explore(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0)
    seconds = time.monotonic() - began
    print(f"{found.states} states, {found.moves} moves, {found.last} last states in {seconds:.0f} s")
    for why, path in found.broken.items():
        print(f"{why}, after {len(path)} moves:")
        print("".join(f"  {move}\n" for move in path), end="")
    return int(bool(found.broken))


if __name__ == "__main__":
    sys.exit(main())
