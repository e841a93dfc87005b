"""The disturbances: what each does to the world, and what a seed may choose for it.

An act with ``lasts`` has its length in seconds as its last argument, and undoes itself then. What a person or
the weather leaves behind is put right when the calm begins (``calm.py``).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.search import facts
from tests.search.boundary import Trap
from tests.search.machines import (
    EKS,
    EKS_TYPE,
    LOG,
    LOG_REASONS,
    MARK,
    PLUGIN_REASON,
    PLUGIN_TYPE,
    XID_TYPE,
    Machine,
)
from tests.search.policies import NAMED_TAINT, POLICIES
from tests.search.script import Act
from tests.search.world import PLUGIN_EVERY, Process, World

PERSON = "a person"
API = "/apis/noderecovery.dev/v1alpha1"
RECORDS, GATE = f"{API}/noderecoveries", f"{API}/recoverygates/fleet"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
PODS = "/api/v1/namespaces/default/pods"
TAINT = "noderecovery.dev/unhealthy"
LEADER = "node-recovery-fleet"
CLAIM = "dgxc.nvidia.com/nvsentinel-state"
"""The label by which NVSentinel says that it works on a node."""

Dice = random.Random
CURES: tuple[tuple[str, ...], ...] = ((), (), ("reboot",), ("reboot",), ("itself",))


Does = Callable[[World, Act], bool | None]
"""What an act does. False: there was nothing to do it to, and nothing goes on (``reach``)."""


@dataclass(frozen=True)
class Kind:
    """One kind of disturbance. ``choose`` makes the arguments; ``weight``: how often a seed takes it."""

    do: Does
    choose: Callable[[Dice], tuple[Any, ...]]
    weight: int = 2
    lasts: bool = False
    placed: bool = True


ACTS: dict[str, Kind] = {}


def kind(
    name: str,
    choose: Callable[[Dice], tuple[Any, ...]] = lambda d: (),
    *,
    weight: int = 2,
    lasts: bool = False,
    placed: bool = True,
) -> Callable[[Does], Does]:
    def known(do: Does) -> Does:
        ACTS[name] = Kind(do, choose, weight, lasts, placed)
        return do

    return known


def perform(w: World, a: Act) -> bool:
    """Do what the act says, to what its place is now. Whether there was anything to do it to."""
    return ACTS[a.what].do(w, a) is not False


def machine_of(w: World, a: Act) -> Machine:
    return w.places[a.place % len(w.places)]


def seat_of(w: World, a: Act) -> int:
    return w.seats[a.place % len(w.seats)]


def agent_of(w: World, a: Act) -> Process | None:
    return next(iter(w.agents_at(seat_of(w, a))), None)


def some(*seconds: float) -> Callable[[Dice], tuple[Any, ...]]:
    return lambda d: (d.choice(seconds),)


# ---------------------------------------------------------------- faults and their detectors


def _fault(d: Dice) -> tuple[Any, ...]:
    return d.choice(LOG_REASONS), d.choice(CURES)


@kind("fault", _fault, weight=14)
def fault(w: World, a: Act) -> bool:
    """Something breaks, and a log rule states it until its detector is restarted."""
    return w.sicken(machine_of(w, a), a.args[0], tuple(a.args[1]))


@kind("plugin fault", lambda d: (d.choice(CURES),), weight=4)
def plugin_fault(w: World, a: Act) -> bool:
    return w.sicken(machine_of(w, a), PLUGIN_REASON, tuple(a.args[0]))


@kind("flash", some(PLUGIN_EVERY), weight=2)
def flash(w: World, a: Act) -> None:
    """A plugin finds something in one run, and nothing in the next."""
    m = machine_of(w, a)
    w.sicken(m, PLUGIN_REASON, ("itself",))
    w.later(a.args[0], lambda: _well(w, m))


@kind("flapping", lambda d: (d.randint(2, 5), d.choice((30.0, 45.0))), weight=2)
def flapping(w: World, a: Act) -> None:
    m, (times, every) = machine_of(w, a), a.args
    for i in range(times):
        w.later(2 * i * every, lambda: w.sicken(m, PLUGIN_REASON, ("itself",)))
        w.later((2 * i + 1) * every, lambda: _well(w, m))


def _well(w: World, m: Machine) -> None:
    if not m.gone and PLUGIN_REASON in m.sick and m.sick[PLUGIN_REASON].cure == ("itself",):
        w.heal(m, PLUGIN_REASON, "itself", cleared=True)
        w.state(m, PLUGIN_REASON)


@kind("burst", lambda d: (d.randint(2, 3), d.choice(LOG_REASONS), d.choice(CURES)), weight=2)
def burst(w: World, a: Act) -> None:
    """One reason on several nodes within a second."""
    for i in range(a.args[0]):
        m = w.places[(a.place + i) % len(w.places)]
        w.later(0.3 * i, lambda m=m: w.sicken(m, a.args[1], tuple(a.args[2])))  # type: ignore[misc]


@kind("xid flash", some(PLUGIN_EVERY, 90.0), weight=2)
def xid_flash(w: World, a: Act) -> None:
    w.flash_xid(machine_of(w, a), a.args[0])


@kind("many reasons", some(8, 25, 300), weight=1)
def many_reasons(w: World, a: Act) -> bool:
    """Reasons that no rule of the policy treats, all at once."""
    m = machine_of(w, a)
    m.detector.many = int(a.args[0])
    w.refresh(m)
    return w.reads_page


@kind("second reason", lambda d: (d.choice(LOG_REASONS), d.choice(CURES)), weight=2)
def second_reason(w: World, a: Act) -> bool:
    """Another reason of the type hides the first."""
    m = machine_of(w, a)
    return bool(m.sick) and w.sicken(m, a.args[0], tuple(a.args[1]))


@kind("new ones are sick", lambda d: (d.choice(LOG_REASONS),), weight=1)
def sick_new(w: World, a: Act) -> None:
    w.new_are_sick.append(a.args[0])


@kind("detector restarts", weight=3)
def detector_restarts(w: World, a: Act) -> bool:
    w.restart_detector(machine_of(w, a))
    return w.reads_detector


@kind("detector lies still", some(60.0, 400.0), lasts=True)
def lies_still(w: World, a: Act) -> bool:
    place = a.place % len(w.places)
    w.frozen.add(place)
    w.note_page(w.places[place].node, "frozen")
    w.later(a.args[0], lambda: moves_again(w, place))
    return w.reads_page or w.signals.conditions


def moves_again(w: World, place: int) -> None:
    if place in w.frozen:
        w.frozen.discard(place)
        w.note_page(w.places[place].node, "fresh")
        w.refresh(w.places[place])


@kind("page away", some(20.0, 120.0, 700.0), lasts=True)
def page_away(w: World, a: Act) -> bool:
    m = machine_of(w, a)
    if m.node in w.pages:
        w.hide_page(m, a.args[0])
    return w.reads_page and m.node in w.pages


@kind("new ones are blind", some(120.0, 700.0), weight=1, placed=False)
def blind_new(w: World, a: Act) -> bool:
    """The page of the next new machine cannot be read for so long after it has joined."""
    w.new_are_blind.append(a.args[0])
    return w.reads_page


@kind("rubbish page", some(20.0, 120.0), lasts=True)
def rubbish_page(w: World, a: Act) -> bool:
    m = machine_of(w, a)
    if page := w.pages.get(m.node):
        w.frozen.add(m.place)
        page.body = b"<html>503 Service Unavailable</html>\n"
        w.wake(m.node)
        w.note_page(m.node, "wrong")
        w.later(a.args[0], lambda: moves_again(w, m.place))
    return w.reads_page and page is not None


# ---------------------------------------------------------------- processes


def _touch(d: Dice) -> int:
    return d.choice((1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 30, 40))


def lay(w: World, a: Act, trap: Trap) -> bool:
    """Lay a trap for the agent of this place. False: none runs there."""
    p = agent_of(w, a)
    if p is None:
        return False
    p.traps.append(trap)
    return True


@kind("crash", lambda d: (_touch(d), d.random() < 0.5, d.choice((1.0, 15.0, 90.0, 300.0))), weight=6)
def crash(w: World, a: Act) -> bool:
    """The agent is killed right before or after one of its next touches, and comes back in the same pod."""
    touch, after, back = a.args
    place = seat_of(w, a)
    return lay(w, a, Trap(touch, "crash", after, then=lambda: w.later(back, lambda: back_again(w, place))))


@kind("lost pod", lambda d: (_touch(d), d.random() < 0.5, d.choice((5.0, 40.0, 600.0))), weight=3)
def lost_pod(w: World, a: Act) -> bool:
    """As ``crash``, but another pod comes in its place."""
    touch, after, back = a.args
    place = seat_of(w, a)
    again = lambda: w.later(back, lambda: back_again(w, place, new_pod=True))  # noqa: E731
    return lay(w, a, Trap(touch, "crash", after, then=again))


def back_again(w: World, place: int, *, new_pod: bool = False) -> None:
    if not w.agents_at(place) and place not in w.absent:
        w.start(place, new_pod=new_pod, on=place not in w.off)


@kind("stop", lambda d: (_touch(d), d.random() < 0.5, d.choice((3.0, 12.0, 70.0, 200.0, 700.0))), weight=6)
def stop(w: World, a: Act) -> bool:
    """The process is stopped in the middle of one of its next requests, for so long."""
    return lay(w, a, Trap(a.args[0], "stop", a.args[1], seconds=a.args[2]))


@kind("second pod", weight=1)
def second_pod(w: World, a: Act) -> bool:
    """A pod was deleted by force: its process lives on beside the new one's."""
    p = agent_of(w, a)
    return p is not None and w.start(p.place, new_pod=True, on=p.on) is not None


@kind("off", some(60.0, 400.0, 900.0), lasts=True)
def switched_off(w: World, a: Act) -> None:
    place = seat_of(w, a)
    _again(w, place, on=False)
    w.later(a.args[0], lambda: _again(w, place, on=True))


def _again(w: World, place: int, *, on: bool) -> None:
    (w.off.discard if on else w.off.add)(place)
    w.end_agents(place)
    w.start(place, on=on, new_pod=True)


@kind("all off", some(60.0, 400.0), weight=1, lasts=True, placed=False)
def all_off(w: World, a: Act) -> None:
    for place in w.seats:
        _again(w, place, on=False)
        w.later(a.args[0], lambda place=place: _again(w, place, on=True))  # type: ignore[misc]


@kind("no agent", some(120.0, 600.0, 1500.0), lasts=True)
def no_agent(w: World, a: Act) -> None:
    place = seat_of(w, a)
    w.absent.add(place)
    w.end_agents(place)
    w.later(a.args[0], lambda: agent_again(w, place))


def agent_again(w: World, place: int) -> None:
    if place in w.absent:
        w.absent.discard(place)
        back_again(w, place, new_pod=True)


# ---------------------------------------------------------------- requests


@kind("lost request", lambda d: (_touch(d),), weight=4)
def lost_request(w: World, a: Act) -> bool:
    return lay(w, a, Trap(a.args[0], "lose"))


@kind("lost answer", lambda d: (_touch(d),), weight=6)
def lost_answer(w: World, a: Act) -> bool:
    return lay(w, a, Trap(a.args[0], "lose", after=True))


CALLS: dict[str, Trap] = {
    "lost": Trap(1, "lose", calls=True),
    "answer lost": Trap(1, "lose", after=True, calls=True),
    "slow": Trap(1, "slow", after=True, seconds=14.0, calls=True),
    "killed before": Trap(1, "crash", calls=True),
    "killed after": Trap(1, "crash", after=True, calls=True),
    "stopped before": Trap(1, "stop", seconds=70.0, calls=True),
    "stopped after": Trap(1, "stop", after=True, seconds=70.0, calls=True),
}


@kind("call", lambda d: (d.choice(sorted(CALLS)), d.choice((1, 1, 2))), weight=3)
def at_the_call(w: World, a: Act) -> bool:
    """Something goes wrong at one of the next calls that the node's agent makes to the cloud."""
    place = seat_of(w, a)
    back = lambda: w.later(15.0, lambda: back_again(w, place))  # noqa: E731
    return lay(w, a, replace(CALLS[a.args[0]], left=a.args[1], then=back))


@kind("slow", lambda d: (_touch(d), d.random() < 0.5, d.choice((1.0, 4.0, 9.0, 14.0))), weight=4)
def slow(w: World, a: Act) -> bool:
    return lay(w, a, Trap(a.args[0], "slow", a.args[1], seconds=a.args[2]))


@kind(
    "said meanwhile",
    lambda d: (d.randint(2, 60), d.choice(("pause", "excluded")), 700.0),
    weight=2,
    lasts=True,
)
def said_meanwhile(w: World, a: Act) -> bool:
    """All is paused, or the node excluded, while one of its agent's next reads is slow."""
    touch, word, seconds = a.args
    said = Act(a.at, word, a.place, (seconds,))
    return lay(
        w, a, Trap(touch, "slow read", seconds=6.0, then=lambda: w.later(0.5, lambda: perform(w, said)))
    )


@kind("refused request", lambda d: (_touch(d), d.choice((409, 429, 500, 503)), d.randint(1, 6)), weight=4)
def refused_request(w: World, a: Act) -> bool:
    return lay(w, a, Trap(a.args[0], "status", status=a.args[1], times=a.args[2]))


@kind("api away", some(5.0, 30.0, 120.0, 500.0), weight=3, lasts=True, placed=False)
def api_away(w: World, a: Act) -> None:
    w.boundary.away_until = w.now + a.args[0]


@kind("api throttles", some(20.0, 120.0), lasts=True, placed=False)
def api_throttles(w: World, a: Act) -> None:
    w.boundary.throttled_until = w.now + a.args[0]


# ---------------------------------------------------------------- clocks and etcd


@kind(
    "clock steps",
    lambda d: (d.choice((-600.0, -40.0, 40.0, 600.0, 90000.0)), d.choice((60.0, 500.0))),
    lasts=True,
)
def clock_steps(w: World, a: Act) -> None:
    by, seconds = a.args
    place = seat_of(w, a)
    set_clock(w, place, w.offsets.get(place, 0.0) + by)
    w.later(seconds, lambda: set_clock(w, place, 0.0))


def set_clock(w: World, place: int, off: float) -> None:
    if w.offsets.get(place, 0.0) != off:
        w.offsets[place] = off
        w.note(facts.CLOCK, w.places[place].node, off=off)


@kind(
    "one server ahead",
    lambda d: (d.choice((-300.0, 300.0, 3600.0)), d.choice((120.0, 600.0))),
    lasts=True,
    placed=False,
)
def one_server_ahead(w: World, a: Act) -> None:
    w.boundary.ahead = a.args[0]
    w.note(facts.CLOCK, "an API server", off=a.args[0])
    w.later(a.args[1], lambda: servers_agree(w))


def servers_agree(w: World) -> None:
    if w.boundary.ahead:
        w.boundary.ahead = 0.0
        w.note(facts.CLOCK, "an API server", off=0.0)


@kind("etcd restored", some(20.0, 60.0, 240.0), weight=2, placed=False)
def etcd_restored(w: World, a: Act) -> None:
    """All objects are as they were so many seconds ago; machines and processes are not. Another number, where
    there is one, says how many seconds the slowest kubelet takes until it writes again."""
    w.restore(*a.args)


# ---------------------------------------------------------------- objects in foreign hands


def change(w: World, path: str, patch: Any) -> bool:
    """Whether there was such an object."""
    return bool(w.write("PATCH", path, patch, PERSON).ok)


@kind("record deleted", weight=2)
def record_deleted(w: World, a: Act) -> bool:
    was = w.write("DELETE", f"{RECORDS}/{machine_of(w, a).node}", None, PERSON)
    w.note(facts.PERSON, machine_of(w, a).node, did="delete record")
    return bool(was.ok)


@kind(
    "record edited", lambda d: (d.choice(("label", "annotation", "finalizer", "rubbish", "phase")),), weight=2
)
def record_edited(w: World, a: Act) -> bool:
    node = machine_of(w, a).node
    patches: dict[str, Any] = {
        "label": {"metadata": {"labels": {"team": "storage"}}},
        "annotation": {"metadata": {"annotations": {"ticket": "4711"}}},
        "finalizer": {"metadata": {"finalizers": ["example.com/keep"]}},
        "rubbish": {"status": {"version": 99}},
        "phase": {"status": {"sentence": "edited by hand"}},
    }
    changed = change(w, f"{RECORDS}/{node}", patches[a.args[0]])
    w.note(facts.PERSON, node, did=f"edit record: {a.args[0]}")
    return changed


@kind("record made", weight=1)
def record_made(w: World, a: Act) -> bool:
    """Somebody applies a record of a node that has none, without a word of what it is about."""
    made = {"apiVersion": "noderecovery.dev/v1alpha1", "kind": "NodeRecovery"}
    node = machine_of(w, a).node
    if not node or not w.write("POST", RECORDS, {**made, "metadata": {"name": node}}, PERSON).ok:
        return False
    w.note(facts.PERSON, node, did="make record")
    return True


@kind("gate edited", lambda d: (d.choice(("label", "annotation", "finalizer", "slots")),), placed=False)
def gate_edited(w: World, a: Act) -> bool:
    patches: dict[str, Any] = {
        "label": {"metadata": {"labels": {"team": "storage"}}},
        "annotation": {"metadata": {"annotations": {"ticket": "4711"}}},
        "finalizer": {"metadata": {"finalizers": ["example.com/keep"]}},
        "slots": {"status": {"slots": []}},
    }
    return change(w, GATE, patches[a.args[0]])


@kind("gate deleted", weight=1, placed=False)
def gate_deleted(w: World, a: Act) -> bool:
    return bool(w.write("DELETE", GATE, None, PERSON).ok)


@kind("gate emptied", weight=1, placed=False)
def gate_emptied(w: World, a: Act) -> None:
    """Somebody applies a manifest of an empty gate over it: ``kubectl replace --force``."""
    w.write("DELETE", GATE, None, PERSON)
    made = {
        "apiVersion": "noderecovery.dev/v1alpha1",
        "kind": "RecoveryGate",
        "metadata": {"name": "fleet"},
        "spec": {},
    }
    w.write("POST", GATE.rpartition("/")[0], made, PERSON)


@kind("leases deleted", weight=1, placed=False)
def leases_deleted(w: World, a: Act) -> bool:
    leases = w.store.request("GET", LEASES).body["items"]
    for lease in leases:
        w.write("DELETE", f"{LEASES}/{lease['metadata']['name']}", None, PERSON)
    return bool(leases)


@kind("leases taken", weight=1, placed=False)
def leases_taken(w: World, a: Act) -> bool:
    """Somebody else's program takes all Leases, and renews none."""
    leases = w.store.request("GET", LEASES).body["items"]
    for lease in leases:
        change(w, f"{LEASES}/{lease['metadata']['name']}", {"spec": {"holderIdentity": "another program"}})
    return bool(leases)


# ---------------------------------------------------------------- policy and people


@kind("policy", lambda d: (d.choice(sorted(POLICIES)), d.choice((0.0, 5.0, 60.0))), weight=2, placed=False)
def policy_changed(w: World, a: Act) -> None:
    """Another policy, rolled out agent by agent."""
    name, pause = a.args
    w.use_policy(name)
    for i in w.seats:
        w.later(1.0 + pause * i, lambda i=i: _again(w, i, on=True) if i not in w.absent else None)  # type: ignore[misc]


@kind("pause", some(30.0, 200.0, 700.0, 1500.0), weight=4, lasts=True, placed=False)
def pause(w: World, a: Act) -> None:
    spec = {"pause": {"owner": "ada", "reason": "a network change", "until": ""}}
    if not w.write("PATCH", GATE, {"spec": spec}, PERSON).ok:
        made = {
            "apiVersion": "noderecovery.dev/v1alpha1",
            "kind": "RecoveryGate",
            "metadata": {"name": "fleet"},
        }
        w.write("POST", GATE.rpartition("/")[0], {**made, "spec": spec}, PERSON)
    w.later(a.args[0], lambda: resume(w))


def resume(w: World) -> None:
    change(w, GATE, {"spec": {"pause": None}})


@kind("excluded", some(30.0, 200.0, 700.0), weight=2, lasts=True)
def excluded(w: World, a: Act) -> bool:
    node = machine_of(w, a).node
    there = change(w, f"/api/v1/nodes/{node}", {"metadata": {"labels": {"noderecovery.dev/exclude": "true"}}})
    w.later(a.args[0], lambda: included(w, node))
    return there


def included(w: World, node: str) -> None:
    change(w, f"/api/v1/nodes/{node}", {"metadata": {"labels": {"noderecovery.dev/exclude": None}}})


@kind("claimed", some(60.0, 400.0, 1000.0), weight=2, lasts=True)
def claimed(w: World, a: Act) -> bool:
    """Another remediator says that it works on the node."""
    node = machine_of(w, a).node
    there = change(w, f"/api/v1/nodes/{node}", {"metadata": {"labels": {CLAIM: "draining"}}})
    w.later(a.args[0], lambda: unclaimed(w, node))
    return there


def unclaimed(w: World, node: str) -> None:
    change(w, f"/api/v1/nodes/{node}", {"metadata": {"labels": {CLAIM: None}}})


@kind("released", weight=3)
def released(w: World, a: Act) -> bool:
    """A person ends the recovery of a node: ``node-recovery release``."""
    return w.release(machine_of(w, a).node)


@kind("person cordons", weight=1)
def person_cordons(w: World, a: Act) -> bool:
    return change(w, f"/api/v1/nodes/{machine_of(w, a).node}", {"spec": {"unschedulable": True}})


@kind("person uncordons", weight=1)
def person_uncordons(w: World, a: Act) -> bool:
    return change(w, f"/api/v1/nodes/{machine_of(w, a).node}", {"spec": {"unschedulable": None}})


@kind("foreign marks", weight=1)
def foreign_marks(w: World, a: Act) -> bool:
    patch = {
        "metadata": {
            "labels": {"rack": "r7"},
            "annotations": {"ticket": "4712"},
            "finalizers": ["example.com/n"],
        }
    }
    node = machine_of(w, a).node
    return change(
        w,
        f"/api/v1/nodes/{node}",
        {"metadata": {k: v for k, v in patch["metadata"].items() if k != "finalizers"}},
    )


# ---------------------------------------------------------------- nodes and machines


@kind("node deleted", weight=1)
def node_deleted(w: World, a: Act) -> bool:
    """The Node object goes, and its kubelet registers it again: the same machine, another UID."""
    return w.register_again(machine_of(w, a))


@kind("boots", lambda d: (d.choice((5.0, 40.0, 200.0)),), weight=3)
def boots(w: World, a: Act) -> bool:
    return w.boot(machine_of(w, a), "unasked", a.args[0])


@kind("machine lost", weight=2)
def machine_lost(w: World, a: Act) -> bool:
    """The machine is taken away (spot, a person), and its group launches another."""
    return w.terminate_machine(machine_of(w, a), "unasked")


@kind("scaled in", weight=1)
def scaled_in(w: World, a: Act) -> bool:
    """The group wants one machine less: the next that goes has no successor. Back at the calm."""
    group = w.cloud.groups["workers"]
    if group.desired <= 2:
        return False
    group.desired -= 1
    scaled = {} if group.shrinks else {"scaled": "in"}
    w.note(facts.CAPACITY, "workers", desired=group.desired, can_launch=not w.cloud.short, **scaled)
    return True


@kind("scaled out", weight=1, placed=False)
def scaled_out(w: World, a: Act) -> bool:
    if len(w.places) >= w.scene.nodes + 2:
        return False
    w.scale_out()
    return True


@kind("group is short", some(120.0, 900.0, 2400.0), weight=2, lasts=True, placed=False)
def group_is_short(w: World, a: Act) -> None:
    w.cloud.short = True
    w.note(facts.CAPACITY, "workers", desired=w.cloud.groups["workers"].desired, can_launch=False)
    w.later(a.args[0], lambda: group_has_room(w))


def group_has_room(w: World) -> None:
    if w.cloud.short:
        w.cloud.short = False
        w.note(facts.CAPACITY, "workers", desired=w.cloud.groups["workers"].desired, can_launch=True)
        w.cloud.refill("workers")


@kind("cloud throttles", some(20.0, 120.0, 400.0), weight=2, lasts=True, placed=False)
def cloud_throttles(w: World, a: Act) -> None:
    w.cloud.throttled_until = w.now + a.args[0]


@kind("calls throttle", some(120.0, 600.0), weight=2, lasts=True, placed=False)
def calls_throttle(w: World, a: Act) -> None:
    """Calls that change something have a quota of their own, and it is used up."""
    w.cloud.calls_throttled_until = w.now + a.args[0]


@kind("one too many", weight=2, placed=False)
def one_too_many(w: World, a: Act) -> None:
    """The group launches two machines for the next one that is gone, and removes the first again."""
    w.cloud.surplus += 1


@kind("cloud refuses", weight=1, placed=False)
def cloud_refuses(w: World, a: Act) -> None:
    w.cloud.refuse += 1


@kind("cloud hides", some(15.0, 40.0), weight=2, placed=False)
def cloud_hides(w: World, a: Act) -> None:
    """What is accepted next does not show in the cloud's answers for a while."""
    w.cloud.hide.append(a.args[0])


@kind("done late", weight=2, placed=False)
def done_late(w: World, a: Act) -> None:
    """The next call is accepted, and carried out twenty minutes later."""
    w.cloud.late += 1


# ---------------------------------------------------------------- pods


@kind("budget never allows", some(120.0, 600.0, 1500.0), weight=3, lasts=True, placed=False)
def budget_never_allows(w: World, a: Act) -> None:
    made = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"app": "train"}}},
    }
    w.write("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", made, PERSON)
    w.later(a.args[0], lambda: budget_gone(w))


def budget_gone(w: World) -> None:
    w.write("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep", None, PERSON)


@kind("pods never go", some(120.0, 600.0, 1500.0), weight=2, lasts=True)
def pods_never_go(w: World, a: Act) -> None:
    node = machine_of(w, a).node
    w.store.stop_kubelet(node)
    w.later(a.args[0], lambda: w.store.start_kubelet(node))


@kind("new pods", weight=2)
def new_pods(w: World, a: Act) -> bool:
    m = machine_of(w, a)
    if m.node and not m.gone:
        names = itertools.count(
            int(w.now * 10)
        )  # two acts may meet at one moment, after a process was stopped
        path = "/api/v1/namespaces/default/pods/late-{}-{}"
        number = next(n for n in names if not w.store.request("GET", path.format(n, m.place)).ok)
        w.add_pod(f"late-{number}-{m.place}", m.node)
    return bool(m.node) and not m.gone


# ---------------------------------------------------------------- what only directed histories have
#
# Their weight is 0, as that of those below.


@kind("a trainer runs", some(40.0, 120.0, 200.0), weight=0, lasts=True)
def a_trainer_runs(w: World, a: Act) -> bool:
    """A pod that some policies' blockers name (``policies.TRAINERS``). It ends by itself."""
    m = machine_of(w, a)
    name = f"trainer-{a.place}"
    if not m.node or m.gone or w.store.request("GET", f"{PODS}/{name}").ok:
        return False
    w.add_pod(name, m.node, app="trainer")
    w.later(a.args[0], lambda: trainer_ends(w, a.place))
    return True


def trainer_ends(w: World, place: int) -> None:
    w.write("DELETE", f"{PODS}/trainer-{place}", {"gracePeriodSeconds": 0}, "its job")


@kind("group cannot launch", some(60.0, 200.0), weight=0, lasts=True, placed=False)
def group_cannot_launch(w: World, a: Act) -> None:
    """The group's image is gone, and its cloud says so. What ends has no successor before there is one."""
    w.cloud.groups["workers"].cannot_launch = "the image of group workers is gone"
    w.later(a.args[0], lambda: group_launches(w))
    group_is_short(w, a)


def group_launches(w: World) -> None:
    w.cloud.groups["workers"].cannot_launch = ""
    group_has_room(w)


@kind("taint changed", weight=0)
def taint_changed(w: World, a: Act) -> bool:
    """Somebody gives our taints another value. One that the policy names is theirs from then on."""
    name = machine_of(w, a).node
    node = f"/api/v1/nodes/{name}"
    found = w.store.request("GET", node)
    taints = (found.body["spec"].get("taints") or []) if name and found.ok else []
    changed = [{**t, "value": "by-hand"} if t["key"] in (TAINT, NAMED_TAINT) else t for t in taints]
    if changed == taints:
        return False
    w.note(facts.PERSON, name, did="change our taint")
    return change(w, node, {"spec": {"taints": changed}})


# ---------------------------------------------------------------- sources beyond the page, and fleet mode
#
# Their weight is 0: a seed that names none of them draws the same as before they were there (``seeds.py``).

SICK_BEYOND: tuple[tuple[str, ...], ...] = ((), (), ("reboot",), ("reboot",))


@kind("eks fault", lambda d: (d.choice(SICK_BEYOND),), weight=0)
def eks_fault(w: World, a: Act) -> bool:
    """EKS's agent finds something in the kernel's log, and says so until its pod is started anew."""
    return w.signals.writer == "eks" and w.sicken(machine_of(w, a), EKS, tuple(a.args[0]))


@kind("marked", lambda d: (d.choice(SICK_BEYOND),), weight=0)
def marked(w: World, a: Act) -> bool:
    """Konduktor's controller finds something in a pod's log, and marks the Node."""
    return w.signals.writer == "konduktor" and w.sicken(machine_of(w, a), MARK, tuple(a.args[0]))


@kind("mark taken off", lambda d: (d.choice((0.0, 0.0, 40.0, 200.0)),), weight=0)
def mark_taken_off(w: World, a: Act) -> bool:
    """A person takes the mark off; seconds later, where that is not 0, it is put there again if it is true."""
    m, again = machine_of(w, a), a.args[0]
    taken = w.signals.take_off(m)
    if taken and again:
        w.later(again, lambda: w.state(m, MARK))
    return taken


@kind("writer dies", some(120.0, 700.0, 1300.0), weight=0, lasts=True)
def writer_dies(w: World, a: Act) -> bool:
    """Who writes a Node's conditions is gone: nothing renews them. It is started anew later."""
    m = machine_of(w, a)
    life = w.signals.die(m)
    if life is not None:
        w.later(a.args[0], lambda: w.signals.restart(m) if w.signals.lives.get(m.id) is life else None)
    return life is not None


@kind("writer starts anew", weight=0)
def writer_starts_anew(w: World, a: Act) -> bool:
    """It says that all is well before it has looked."""
    w.signals.restart(machine_of(w, a))
    return w.signals.conditions


@kind("conditions removed", weight=0)
def conditions_removed(w: World, a: Act) -> bool:
    """Somebody takes them off the Node; its writer puts them back within a minute."""
    w.signals.remove(machine_of(w, a))
    return w.signals.conditions


@kind(
    "conditions unknown",
    lambda d: (d.choice((LOG, PLUGIN_TYPE, XID_TYPE, EKS_TYPE)), d.choice((40.0, 200.0, 700.0))),
    weight=0,
    lasts=True,
)
def conditions_unknown(w: World, a: Act) -> bool:
    m = machine_of(w, a)
    w.signals.says_nothing(m, frozenset({a.args[0]}))
    w.later(a.args[1], lambda: w.signals.says_nothing(m, frozenset()))
    return w.signals.conditions


@kind("watches expire", weight=0, placed=False)
def watches_expire(w: World, a: Act) -> bool:
    """etcd is compacted: the next watch is too old, and all Nodes have to be listed again."""
    w.store.compact()
    return bool(w.scene.replicas)


@kind("a replica in vain", weight=0, placed=False)
def a_replica_in_vain(w: World, a: Act) -> bool:
    """The controller's Lease is taken by somebody who does nothing with it."""
    return change(w, f"{LEASES}/{LEADER}", {"spec": {"holderIdentity": "another program"}})
