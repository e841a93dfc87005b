"""The end of the disturbance: what people and the weather left behind is put right, then every fault has time
to come to its end."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tests.search import acts, facts, field
from tests.search.world import WHOLE, World

OPEN = {"suspect", "waiting", "recovering", "proving"}
LOOK_EVERY = 30.0
STILL, TOLD = 3, 7
"""After so many looks in a row at which nothing is open, and no person did anything, everything has come to its
end: an agent waits a minute for the Lease of a dead one, and looks at a closed record once a minute. Where a node
is in a person's hands, after so many that it has to have been told again."""

TAKEN = 10
"""After so many looks in a row at which somebody waits and nothing moves, a person takes a node that was handed over."""


def begin(w: World) -> None:
    """Nothing goes wrong from now on, but for the faults that are there."""
    w.boundary.away_until = w.boundary.throttled_until = 0.0
    w.cloud.throttled_until = w.cloud.calls_throttled_until = 0.0
    w.cloud.refuse = w.cloud.late = 0
    w.cloud.hide.clear()
    w.cloud.stuck.clear()
    w.boundary.cut.clear()
    w.boundary.refused.clear()
    w.boundary.slow_until = 0.0
    w.new_are_raw.clear()
    w.linger.clear()
    w.boundary.late.clear()
    field.one_budget(w)
    w.tolerant.clear()
    w.new_are_sick.clear()
    w.new_are_blind.clear()
    w.cloud.surplus = 0
    acts.servers_agree(w)
    acts.group_launches(w)
    acts.resume(w)
    acts.budget_gone(w)
    for place, machine in enumerate(w.places):
        acts.set_clock(w, place, 0.0)
        acts.moves_again(w, place)
        acts.trainer_ends(w, place)
        field.has_its_rules(w, machine)
        if machine.hangs:
            w.boot(machine, acts.PERSON, 30.0)
        w.show_page(machine)
        w.signals.calm(machine)
        acts.agent_again(w, place)
        if machine.node:
            acts.included(w, machine.node)
            acts.unclaimed(w, machine.node)
            w.store.start_kubelet(machine.node)
    for p in w.processes.values():
        p.traps.clear()
    _take_back_edits(w)
    if w.policy_name != "a low brake, hand over" and not w.scene.lives_on:
        w.lift_brake()
    off, w.off = w.off, set()
    _all_start_anew(w, [p for p in w.seats if p in off or not w.agents_at(p) or not w.scene.lives_on])
    w.note(facts.CALM, "")


def _all_start_anew(w: World, seats: Iterable[int] | None = None) -> None:
    for place in w.seats if seats is None else seats:
        w.end_agents(place)
        w.start(place, delay=1.0 + place)


def _take_back_edits(w: World) -> None:
    """Finalizers of others come off, and a record that nobody can read is deleted: a person's work."""
    for record in w.store.request("GET", acts.RECORDS).body["items"]:
        path = f"{acts.RECORDS}/{record['metadata']['name']}"
        if record["metadata"].get("finalizers"):
            acts.change(w, path, {"metadata": {"finalizers": None}})
        status = record.get("status") or {}
        if not status or status.get("version", 1) == 99:
            w.write("DELETE", path, None, acts.PERSON)
    acts.change(w, acts.GATE, {"metadata": {"finalizers": None}})


def _restart_stopped(w: World, place: int) -> bool:
    """An agent that stopped, because its record was deleted, is restarted by a person."""
    working = w.agent_on(place)
    if working is None or working[1].last.key != "vanished":
        return False
    w.end_agents(working[0].place)
    w.start(working[0].place)
    return True


def _cordon_again(w: World, place: int) -> bool:
    """Somebody uncordoned a node that is being recovered, or took a mark of ours off, and now does what the sentence
    asks for."""
    working = w.agent_on(place)
    if working is None or working[1].last.key != "undone":
        return False
    acts.change(w, f"/api/v1/nodes/{working[1].node}", {"spec": {"unschedulable": True}})
    field.marked_again(w, working[1].node, working[1].last.reason)
    return True


def _release_lost(w: World, place: int) -> bool:
    """Somebody deleted an open record, and now releases the node: nothing else ends what is lost."""
    record = w.store.request("GET", f"{acts.RECORDS}/{w.places[place].node}")
    if not record.ok or (record.body.get("status") or {}).get("phase") != "lost":
        return False
    w.release(w.places[place].node)
    return True


def _approve(w: World, place: int) -> bool:
    """Somebody has looked at what is held as correlated, and lets it go."""
    working = w.agent_on(place)
    if working is None or working[1].last.key != "correlated":
        return False
    for reason in sorted(w.places[place].sick):
        w.approve(reason)
    return True


BY_HAND = (_restart_stopped, _cordon_again, _release_lost, _approve)
"""What a person does at each look. Says whether anything was done."""


def _phases(w: World) -> dict[str, str]:
    """The phase of each record, by node."""
    records = w.store._shelf.objects[("noderecovery.dev", "noderecoveries")].values()
    return {r["metadata"]["name"]: str((r.get("status") or {}).get("phase") or "") for r in records}


def _take_one(w: World, phases: dict[str, str]) -> None:
    """Nodes that nobody takes hold the brake or a limit. A person ends a machine that was handed over. Where none
    was, and so many are sick that the brake is on for good, a person lifts it."""
    mine = (m for m in w.places if phases.get(m.node) == "handedOver" and not m.gone and m.up)
    if machine := next(mine, None):
        w.terminate_machine(machine, "a person")
    elif w.policy.limits.brake != WHOLE and _so_many_are_sick(w, phases):
        w.lift_brake()
        _all_start_anew(w)


def _so_many_are_sick(w: World, phases: dict[str, str]) -> bool:
    """Whether the machines that are there are reason enough for the brake. What is gone is none."""
    limits = w.policy.limits
    if limits.brake.percent is None or limits.population:
        return True
    there = [m for m in w.places if not m.gone]
    sick = [m for m in there if m.sick or not m.up or phases.get(m.node) in OPEN]
    return len(sick) > max(1, math.ceil(limits.brake.percent * len(there) / 100))


def run_to_the_end(w: World, limit: float) -> str:
    """Until nothing is open any more, at most ``limit`` seconds. Why it ended: ``settled`` or ``time``."""
    end, quiet, same, phases = w.now + limit, 0, 0, _phases(w)
    while w.now < end:
        w.run_until(w.now + LOOK_EVERY)
        by_hand = [do(w, i) for i in range(len(w.places)) for do in BY_HAND]
        before, phases = phases, _phases(w)
        same = same + 1 if phases == before and any(p in OPEN for p in phases.values()) else 0
        if same >= TAKEN:
            same = 0
            _take_one(w, phases)
        quiet = quiet + 1 if _nothing_open(w) and not any(by_hand) else 0
        if quiet >= (TOLD if _in_hands(w) else STILL):
            return "settled"
    return "time"


def _in_hands(w: World) -> bool:
    """Whether a node is in a person's hands. Every fourth history waits to hear it said again."""
    if w.seed % 4:
        return False
    records = w.store._shelf.objects[("noderecovery.dev", "noderecoveries")].values()
    return any((r.get("status") or {}).get("phase") in ("handedOver", "lost") for r in records)


def _nothing_open(w: World) -> bool:
    records = w.store._shelf.objects[("noderecovery.dev", "noderecoveries")].values()
    if any((r.get("status") or {}).get("phase") in OPEN for r in records):
        return False
    working = filter(None, (w.agent_on(i) for i in range(len(w.places))))
    if any(agent.last.key == "lease" for _, agent in working):
        return False  # it has something to write, and waits for the Lease of a dead one
    gates = w.store._shelf.objects[("noderecovery.dev", "recoverygates")].values()
    return not any((g.get("status") or {}).get("slots") or (g.get("status") or {}).get("open") for g in gates)
