"""Disturbances that came later: what else clusters do around a recovery.

No older seed draws one of them. Their seeds are those from ``seeds.FIELD_FROM`` on, and directed ones that lean
towards one.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.search import facts
from tests.search.acts import (
    ACTS,
    PERSON,
    PODS,
    TAINT,
    _touch,
    change,
    kind,
    lay,
    machine_of,
    policy_changed,
    seat_of,
    some,
)
from tests.search.boundary import Trap
from tests.search.machines import LOG, LOG_REASONS, OFTEN, PLUGIN_TYPE, XID_TYPE, Machine, Sickness
from tests.search.policies import FIELD as REWRITTEN
from tests.search.policies import NAMED_TAINT, POLICIES
from tests.search.script import Act
from tests.search.world import SILENT, World

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NOTED = ("noderecovery.dev/cordoned-by", "noderecovery.dev/taints")
"""The annotations that say which marks are ours."""
SCALES_IN = "ToBeDeletedByClusterAutoscaler"
FAULTS_OF = ("fault", "plugin fault", "flash", "eks fault", "marked")
OLDER = frozenset(ACTS)


# ---------------------------------------------------------------- machines


@kind("machine hangs", some(60.0, 300.0, 1500.0), weight=0, lasts=True)
def machine_hangs(w: World, a: Act) -> bool:
    """It stands still, its kubelet and its agent with it, until somebody boots it."""
    m = machine_of(w, a)
    return not m.hangs and w.boot(m, "unasked", a.args[0], hangs=True)


@kind("a reboot hangs", some(400.0, 1500.0), weight=0, lasts=True, placed=False)
def a_reboot_hangs(w: World, a: Act) -> None:
    """The next machine that is asked to reboot goes down, and does not come up for so long."""
    w.cloud.stuck.append(a.args[0])


@kind(
    "kubelet flaps",
    lambda d: (d.choice(("Unknown", "False")), d.randint(1, 4), d.choice((8.0, 25.0, 70.0))),
    weight=0,
)
def kubelet_flaps(w: World, a: Act) -> bool:
    """The Node is not Ready, and is again, while its machine runs."""
    m, (status, times, every) = machine_of(w, a), a.args
    for i in range(times):
        w.later(2 * i * every, lambda: _says(w, m, status))
        w.later((2 * i + 1) * every, lambda: _says(w, m, "True"))
    return m.up and not m.gone


def _says(w: World, m: Machine, status: str) -> None:
    if m.up and not m.gone:
        w.kubelet(m, status)


@kind("cut off", some(30.0, 150.0, 500.0), weight=0, lasts=True)
def cut_off(w: World, a: Act) -> bool:
    """Who works there goes on, and reaches neither the API server nor the cloud; nor does the kubelet there."""
    place, until = seat_of(w, a), w.now + a.args[0]
    w.boundary.cut[place] = until
    if not w.scene.replicas:
        m = w.places[place]
        if a.args[0] > SILENT:
            w.later(SILENT, lambda: _says(w, m, "Unknown"))
        w.later(a.args[0], lambda: _says(w, m, "True"))
    return True


@kind("new ones are raw", some(5.0, 40.0, 150.0), weight=0, lasts=True, placed=False)
def raw_new(w: World, a: Act) -> None:
    """The next new Node is registered without a providerID, and not Ready, for so long."""
    w.new_are_raw.append(a.args[0])


@kind("autoscaler", lambda d: (d.choice((5.0, 30.0, 90.0)), d.random() < 0.6), weight=0)
def autoscaler(w: World, a: Act) -> bool:
    """The autoscaler wants the node away, drains it, and removes it for good, or thinks better of it."""
    m, (seconds, removes) = machine_of(w, a), a.args
    group, node = w.cloud.groups[m.group], m.node
    if m.gone or not node or (removes and group.desired <= 2):
        return False
    _tainted(w, node, lambda taints: [*taints, {"key": SCALES_IN, "value": "1", "effect": "NoSchedule"}])

    def ends() -> None:
        if not removes:
            _tainted(w, node, lambda taints: [t for t in taints if t["key"] != SCALES_IN])
        elif not m.gone and group.desired > 2:
            _removed_for_good(w, m)

    w.later(seconds, ends)
    return True


def _removed_for_good(w: World, m: Machine) -> None:
    group = w.cloud.groups[m.group]
    group.desired -= 0 if group.shrinks else 1
    scaled = {} if group.shrinks else {"scaled": "in"}
    w.terminate_machine(m, "unasked", refill=False)
    if group.shrinks:  # whoever sets its capacity back to what it was gets a machine for that
        w.cloud.waiting.append(m.place)
    w.note(facts.CAPACITY, m.group, desired=group.desired, can_launch=not w.cloud.short, **scaled)


@kind("nodes linger", some(200.0, 900.0), weight=0, lasts=True, placed=False)
def nodes_linger(w: World, a: Act) -> None:
    """Nobody deletes the Node of the next machine that is gone for so long."""
    w.linger.append(a.args[0])


# ---------------------------------------------------------------- detectors


@kind("happens often", lambda d: (d.choice((1, 2, 3, 3, 4)), d.choice((2.0, 40.0, 140.0))), weight=0)
def happens_often(w: World, a: Act) -> bool:
    """What a temporary rule counts happens so many times."""
    m, (times, every) = machine_of(w, a), a.args
    for i in range(times):
        w.later(i * every, lambda: _happens(w, m))
    return m.detector.counts_often


def _happens(w: World, m: Machine) -> None:
    d = m.detector
    if m.gone or not m.up or not d.counts_often:
        return
    d.counts[OFTEN] = d.counts.get(OFTEN, 0) + 1
    m.happened = [at for at in m.happened if w.now - at < 300.0 and at > m.booted] + [w.now]
    if len(m.happened) >= 3 and OFTEN not in m.sick:
        m.sick[OFTEN] = Sickness(OFTEN, ("reboot",), w.now)
        w.note(
            facts.FAULT_BEGAN, m.id, type="", reason=OFTEN, cure=["reboot"], shown=False, first=m.happened[-3]
        )
        w.heal(m, OFTEN, "itself")  # it was so, and nothing takes that back in this boot
    w.refresh(m)


@kind("detector loses a rule", lambda d: (d.choice((LOG, PLUGIN_TYPE, XID_TYPE)), d.choice((60.0, 400.0))), weight=0, lasts=True)  # fmt: skip
def loses_a_rule(w: World, a: Act) -> bool:
    """Its configuration is rolled out without one: it is started anew, and says nothing of that type."""
    m = machine_of(w, a)
    if m.gone or not m.up:
        return False
    w.restart_detector(m)
    m.detector.lacks = frozenset({a.args[0]})
    w.refresh(m, "removed")
    w.later(a.args[1], lambda: has_its_rules(w, m))
    return w.reads_detector


def has_its_rules(w: World, m: Machine) -> None:
    if m.detector.lacks:
        w.restart_detector(m)
        m.detector.lacks = frozenset()
        w.refresh(m)


# ---------------------------------------------------------------- what others do to our marks


def _tainted(w: World, node: str, changed: Any) -> bool:
    """Somebody who keeps taints writes the whole list anew, as a merge patch does."""
    found = w.store.request("GET", f"/api/v1/nodes/{node}")
    if not node or not found.ok:
        return False
    taints = found.body["spec"].get("taints") or []
    new = changed(taints)
    return new != taints and change(w, f"/api/v1/nodes/{node}", {"spec": {"taints": new or None}})


def marked_again(w: World, node: str, asked: str) -> None:
    """A person puts back what the sentence asks for."""
    ours = {"key": TAINT, "effect": "NoSchedule"}
    if "took the taint" in asked:
        _tainted(w, node, lambda taints: [*(t for t in taints if t["key"] != TAINT), ours])
    if "annotate it" in asked:
        change(w, f"/api/v1/nodes/{node}", {"metadata": {"annotations": {NOTED[0]: "node-recovery"}}})


@kind("our marks removed", lambda d: (d.choice(("taint", "annotation", "all")),), weight=0)
def marks_removed(w: World, a: Act) -> bool:
    node, what = machine_of(w, a).node, a.args[0]
    done = False
    if what in ("taint", "all"):
        done = _tainted(w, node, lambda taints: [t for t in taints if t["key"] not in (TAINT, NAMED_TAINT)])
    found = w.store.request("GET", f"/api/v1/nodes/{node}")
    notes = (found.body["metadata"].get("annotations") or {}) if node and found.ok else {}
    if what in ("annotation", "all") and any(key in notes for key in NOTED):
        patch: dict[str, Any] = {"metadata": {"annotations": dict.fromkeys(NOTED)}}
        done = change(w, f"/api/v1/nodes/{node}", {**patch, **({"spec": {"unschedulable": None}} if what == "all" else {})})  # fmt: skip
    if done:
        w.note(facts.PERSON, node, did=f"remove our marks: {what}")
    return done


@kind("old taints back", some(5.0, 30.0, 120.0), weight=0)
def old_taints_back(w: World, a: Act) -> bool:
    """A controller writes the taints of a Node as it read them so many seconds ago."""
    node = machine_of(w, a).node
    found = w.store.request("GET", f"/api/v1/nodes/{node}")
    if not node or not found.ok:
        return False
    old, uid = found.body["spec"].get("taints") or [], found.body["metadata"]["uid"]

    def writes() -> None:
        if w._uid(node) == uid:
            _tainted(w, node, lambda taints: old)

    w.later(a.args[0], writes)
    return True


@kind(
    "relabelled",
    lambda d: (d.choice(("topology.kubernetes.io/zone", "node.kubernetes.io/instance-type")), d.choice(("a", "b", ""))),
    weight=0,
)  # fmt: skip
def relabelled(w: World, a: Act) -> bool:
    key, value = a.args
    return change(w, f"/api/v1/nodes/{machine_of(w, a).node}", {"metadata": {"labels": {key: value or None}}})


# ---------------------------------------------------------------- policy and people


@kind(
    "policy rewritten",
    lambda d: (d.choice((*sorted(REWRITTEN), *sorted(REWRITTEN), *sorted(POLICIES))), d.choice((0.0, 20.0, 90.0))),
    weight=0,
    placed=False,
)  # fmt: skip
def policy_rewritten(w: World, a: Act) -> None:
    """Rules are gone, narrower, renamed or in another order; some agents go by the old ones for a while."""
    policy_changed(w, replace(a, what="policy"))


@kind("approved", lambda d: (d.choice(LOG_REASONS),), weight=0, placed=False)
def approved(w: World, a: Act) -> None:
    """A person approves a reason, whether anything of it is held or not."""
    w.approve(a.args[0])


# ---------------------------------------------------------------- pods


@kind("a pod comes back", some(60.0, 200.0), weight=0, lasts=True)
def a_pod_comes_back(w: World, a: Act) -> bool:
    """A pod that tolerates all taints is made again where it was, whenever it is gone."""
    m = machine_of(w, a)
    name, until = f"tolerant-{a.place}", w.now + a.args[0]
    if not m.node or m.gone or name in w.tolerant:
        return False
    w.tolerant.add(name)

    def again() -> None:
        if name not in w.tolerant or m.gone or w.now > until:
            w.tolerant.discard(name)
            return
        if m.up and w._uid(m.node) and not w.store.request("GET", f"{PODS}/{name}").ok:
            w.add_pod(name, m.node)
        w.later(4.0, again)

    again()
    return True


@kind("two budgets", some(60.0, 200.0), weight=0, lasts=True, placed=False)
def two_budgets(w: World, a: Act) -> None:
    """Two budgets cover the same pods: each eviction is answered with an error."""
    for name in ("one", "two"):
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}
        made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": spec}
        w.write("POST", BUDGETS, {**made, "metadata": {"name": name, "namespace": "default"}}, PERSON)
    w.later(a.args[0], lambda: one_budget(w))


def one_budget(w: World) -> None:
    for name in ("one", "two"):
        w.write("DELETE", f"{BUDGETS}/{name}", None, PERSON)


# ---------------------------------------------------------------- the API server


@kind(
    "watches are late",
    lambda d: (
        d.choice(("nodes", "nodes", "noderecoveries", "recoverygates")),
        d.choice((20.0, 60.0, 140.0)),
    ),
    weight=0,
    lasts=True,
)
def watches_are_late(w: World, a: Act) -> bool:
    """The API server's watch cache falls behind, and its bookmarks come all the same."""
    if not w.scene.replicas:
        return False
    w.boundary.late[seat_of(w, a), a.args[0]] = w.now + a.args[1]
    w.note(facts.LATE, a.args[0], seconds=a.args[1])
    return True


@kind("answers with an error", lambda d: (_touch(d), d.choice((500, 504)), d.randint(1, 3)), weight=0)
def answers_with_an_error(w: World, a: Act) -> bool:
    """What was asked is done, and the answer is an error: etcd was slow, or a proxy gave up."""
    touch, status, times = a.args
    return lay(w, a, Trap(touch, "status", after=True, status=status, times=times))


WRITTEN = ("/nodes/", "/eviction", "/noderecoveries", "/recoverygates", "/leases", "/events")


@kind(
    "writes refused",
    lambda d: (d.choice(WRITTEN), d.choice((403, 422, 500)), d.choice((30.0, 150.0))),
    weight=0,
    lasts=True,
    placed=False,
)
def writes_refused(w: World, a: Act) -> None:
    """A role is taken away for a while, or a webhook refuses."""
    part, status, seconds = a.args
    w.boundary.refused.append((part, status, w.now + seconds))


@kind("api is slow", lambda d: (d.choice((0.5, 1.5, 4.0)), d.choice((60.0, 200.0))), weight=0, lasts=True, placed=False)  # fmt: skip
def api_is_slow(w: World, a: Act) -> None:
    """API server and cloud take so many seconds for each request."""
    w.boundary.slow, w.boundary.slow_until = a.args[0], w.now + a.args[1]


FIELD = tuple(name for name in ACTS if name not in OLDER)


# ---------------------------------------------------------------- what came later still


@kind("upgraded", lambda d: (d.choice((1, 2)), d.choice((0.0, 40.0, 120.0))), weight=0)
def upgraded(w: World, a: Act) -> bool:
    """The machines of the group are exchanged for newer ones. For each, one more is launched; once that has
    joined, the old one is cordoned, and is ended so many seconds later."""
    count, seconds = a.args
    old = [m for i in range(count) if not (m := w.places[(a.place + i) % len(w.places)]).gone]
    if not old or len(w.places) > w.scene.nodes + 2:
        return False
    _exchanged(w, old, seconds)
    return True


def _exchanged(w: World, old: list[Machine], seconds: float) -> None:
    if not old:
        return
    m, *others = old
    w.scale_out()
    place, until = len(w.places) - 1, w.now + 400.0
    w.cloud.waiting.insert(0, w.cloud.waiting.pop())  # it is the first that gets a machine

    def joins() -> None:
        if w.places[place].node and not w.places[place].gone:
            change(w, f"/api/v1/nodes/{m.node}", {"spec": {"unschedulable": True}})
            w.later(seconds, ends)
        elif w.now < until:
            w.later(10.0, joins)

    def ends() -> None:
        if not m.gone:  # if somebody replaces it, its group keeps the one that is too many
            _removed_for_good(w, m)
        _exchanged(w, others, seconds)

    w.later(10.0, joins)


LATEST = tuple(name for name in ACTS if name not in OLDER and name not in FIELD)


def beside(dice: random.Random, what: str, fault: Act, nodes: int) -> Act:
    """One of these around a fault: mostly at its node, and while it is dealt with."""
    at = fault.at + (dice.uniform(-10, 10) if dice.random() < 0.3 else dice.uniform(0, 150))
    place = fault.place if dice.random() < 0.75 else dice.randrange(nodes)
    return Act(round(max(1.0, at), 1), what, place if ACTS[what].placed else -1, ACTS[what].choose(dice))
