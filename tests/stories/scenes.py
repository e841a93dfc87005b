"""What several stories share: policies, pages, people's hands, and a node brought to a given point."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from recovery_testkit.provider import FakeProvider
from recovery_testkit.stage import QUICK, REASONS, Actor, FleetActor, Killed, Stage, npd_page

from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.errors import Unreadable
from recovery.model import Outcome, Phase, Record
from recovery.report.notice import Teller
from recovery.store.record_codec import encode
from tests.builders.objects import budget_object, gate_object
from tests.builders.policies import policy_file
from tests.stories.scenery import GATES, RECORDS

NODES = "/api/v1/nodes"
MERGE = "application/merge-patch+json"
PERSON = "a person"
TAINT = {"key": "noderecovery.dev/unhealthy", "effect": "NoSchedule"}
REBOOTS = policy_file(
    "{do: drain, within: 10m, then: force}, {do: reboot, within: 10m}, {do: replace, within: 30m}"
)
PLUGIN = policy_file(match="type: GpuNvlink")


def plugin_page(bad: bool, count: int) -> bytes:
    """A page of a custom plugin's type: its healthy reason has a gauge and no counter."""
    return (
        f'problem_counter{{reason="GpuNvlinkBad"}} {count}\n'
        f'problem_gauge{{reason="GpuNvlinkBad",type="GpuNvlink"}} {int(bad)}\n'
        'problem_gauge{reason="GpuNvlinkGood",type="GpuNvlink"} 0\n'
    ).encode()


def counted_page(shown: str = "", **counters: int) -> bytes:
    """Neuron's page with ``shown`` at 1, and counters of its own."""
    lines = []
    for reason in REASONS:
        lines += [
            f'problem_counter{{reason="NeuronHasError_{reason}"}} {counters.get(reason, 0)}',
            f'problem_gauge{{reason="NeuronHasError_{reason}",type="NeuronHealth"}} {int(reason == shown)}',
        ]
    return ("\n".join(lines) + "\n").encode()


def cast(
    policy: bytes | None = QUICK,
    count: int = 4,
    *,
    agents: int = 2,
    plugin: bool = False,
    provider: FakeProvider | None = None,
    tellers: tuple[Teller, ...] = (),
    **options: Any,
) -> Stage:
    """Nodes, the first ones with their agents, all healthy and looked at."""
    s = Stage(policy)
    s.tellers = tellers
    s.provider = provider or s.provider
    for i, name in enumerate(s.nodes(count)):
        if plugin:
            s.pages[name].body = plugin_page(False, 0)
        if i < agents:
            s.agent(name, **options)
    s.run(3)
    return s


# ---------------------------------------------------------------- people's hands


def patch_node(s: Stage, node: str, patch: dict[str, Any], part: str = "", actor: str = PERSON) -> None:
    path = f"{NODES}/{node}" + (f"/{part}" if part else "")
    answer = s.store.request("PATCH", path, body=patch, content_type=MERGE, user_agent=actor)
    assert answer.status == 200, answer.body


def label(s: Stage, node: str, **labels: str | None) -> None:
    patch_node(s, node, {"metadata": {"labels": labels}})


def exclude(s: Stage, node: str = "node-0") -> None:
    patch_node(s, node, {"metadata": {"labels": {"noderecovery.dev/exclude": "true"}}})


def boot(s: Stage, node: str, boot_id: str = "m-0-boot-2") -> None:
    """The machine comes up again, under another boot ID."""
    patch_node(s, node, {"status": {"nodeInfo": {"bootID": boot_id}}}, "status", "kubelet")


def dies_once_it_has_marked(s: Stage) -> None:
    """The agent of node-0 is killed right after its next patch of the Node, before it writes that down."""

    def die(asked: Any, go: Any) -> Any:
        go()
        raise Killed

    s.api.fail_next(lambda a: a.method == "PATCH" and a.path == "/api/v1/nodes/node-0", die)


def controller(s: Stage) -> FleetActor:
    """The one replica of fleet mode's controller."""
    found = s.actors["controller"]
    assert isinstance(found, FleetActor)
    return found


def another_leader(s: Stage) -> None:
    """The controller ends in order, and another replica of it takes its place."""
    old = controller(s)
    old.replica.leader.resign()
    s.kill(old)
    del s.actors["controller"]
    s.fleet("controller")


def rebooted_and_proved(s: Stage) -> None:
    """node-0 comes up well, and its probation passes."""
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(130)
    assert phase(s) is Phase.RECOVERED


def ready(s: Stage, node: str, status: str) -> None:
    conditions = [{"type": "Ready", "status": status, "reason": "Kubelet"}]
    patch_node(s, node, {"status": {"conditions": conditions}}, "status", "kubelet")


def pause(s: Stage, until: str = "") -> None:
    spec = {"pause": {"owner": "ada", "reason": "a network change", "until": until}}
    answer = s.store.request("GET", f"{GATES}/fleet")
    if answer.status == 404:
        s.store.load(gate_object(spec=spec))
        return
    s.store.request("PATCH", f"{GATES}/fleet", body={"spec": spec}, content_type=MERGE, user_agent=PERSON)


def resume(s: Stage) -> None:
    body = {"spec": {"pause": None}}
    s.store.request("PATCH", f"{GATES}/fleet", body=body, content_type=MERGE, user_agent=PERSON)


def swap_record(s: Stage, made: Record) -> None:
    answer = s.store.request("PUT", f"{RECORDS}/{made.node}", body=encode(made), user_agent=PERSON)
    assert answer.status == 200, answer.body


def release_by_command(s: Stage) -> None:
    """The command closes the record. It cannot read the node's page, and its time may be a second behind."""
    now = s.clock.true_time() - timedelta(seconds=1)
    swap_record(s, close(the_record(s), now, Event.RELEASED, "released by ada: looked at"))
    s.provider.preflight_error = None


def stubborn_pod(s: Stage, node: str = "node-0", name: str = "train") -> None:
    """A pod that its disruption budget keeps."""
    s.add_pod(name, node)
    s.store.load(budget_object("keep", app="train", minAvailable=1))


def remove_pod(s: Stage, name: str = "train") -> None:
    path = f"/api/v1/namespaces/default/pods/{name}"
    s.store.request("DELETE", path, body={"gracePeriodSeconds": 0})


def new_process(s: Stage, node: str, *, on: bool = True) -> Actor:
    """The agent of ``node`` dies, and another process starts in its place."""
    for actor in s.actors.values():
        if actor.node == node:
            s.kill(actor)
    name = f"agent of {node}, {len(s.actors)}"
    return s.agent(node, on=on, name=name, place=f"pod-of-{node}", alone=True)


# ---------------------------------------------------------------- looking


def the_record(s: Stage, node: str = "node-0") -> Record:
    found = s.record(node)
    assert found is not None
    return found


def phase(s: Stage, node: str = "node-0") -> Phase:
    return the_record(s, node).phase


def calls(s: Stage) -> list[tuple[str, str]]:
    return [(step.value, machine) for step, machine, _ in s.provider.calls]


def taints(s: Stage, node: str = "node-0") -> list[dict[str, str]]:
    return list(s.node(node)["spec"].get("taints") or [])


def marked(s: Stage, node: str = "node-0") -> tuple[bool, bool, bool]:
    """Whether the node is cordoned, bears our taint, and our annotation."""
    found = s.node(node)
    return (
        bool(found["spec"].get("unschedulable")),
        any(t["key"] == TAINT["key"] for t in taints(s, node)),
        "noderecovery.dev/cordoned-by" in (found["metadata"].get("annotations") or {}),
    )


ALL_MARKS, NO_MARKS = (True, True, True), (False, False, False)


def messages(s: Stage, reason: str, node: str = "node-0") -> list[str]:
    """What the Events of one reason say about a node."""
    return [message for event, message in s.events(node) if event == reason]


def sayings(s: Stage, reason: str, since: int = 0) -> int:
    """How often an Event of this reason was posted or counted up."""
    return sum(1 for w in s.store.history[since:] if "/events" in w.path and w.object.get("reason") == reason)


def record_sentences(s: Stage, node: str = "node-0") -> list[str]:
    """What the node's record says became of it, line by line."""
    return [line.sentence for line in the_record(s, node).history]


def events_of(r: Record) -> list[str]:
    return [line.event for line in r.history]


def line_of(r: Record, event: str) -> Outcome:
    return next(line for line in reversed(r.history) if line.event == event)


def says(s: Stage, reason: str, start: str, node: str = "node-0") -> bool:
    """Whether an Event of this reason begins so."""
    return any(message.startswith(start) for message in messages(s, reason, node))


def no_place(s: Stage, node: str = "node-0") -> bool:
    if s.store.request("GET", f"{GATES}/fleet").status == 404:
        return True
    gate = s.gate()
    return not any(x.node == node for x in (*gate.slots, *gate.open))


def value(actor: Actor, name: str, **labels: str) -> float:
    return actor.metrics.registry.get_sample_value(name, labels) or 0.0


# ---------------------------------------------------------------- a stage brought to a point


def braked() -> Stage:
    """Three of four nodes fail at once."""
    s = cast(agents=3)
    for node in ("node-0", "node-1", "node-2"):
        s.fault(node)
    s.run(4)
    return s


def handed_over() -> Stage:
    """node-0 is kept out of the way, and a person asked."""
    s = cast(policy_file("{do: cordon}"))
    s.fault("node-0")
    s.run(10)
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)
    return s


def beating(every: timedelta, *, on: bool = True) -> Stage:
    """Two agents that tell the monitor so often that they live."""
    s = Stage()
    s.heartbeat = every
    for node in s.nodes(2):
        s.agent(node, on=on)
    return s


def _suspect(s: Stage) -> None:
    s.fault("node-0")
    s.run(3)
    assert phase(s) is Phase.SUSPECT


def _waiting(s: Stage) -> None:
    s.fault("node-0")
    s.run(3)
    assert phase(s) is Phase.WAITING


def _draining(s: Stage) -> None:
    stubborn_pod(s)
    s.fault("node-0")
    s.run(5)
    assert (phase(s), the_record(s).rung, calls(s), marked(s)) == (Phase.RECOVERING, 0, [], ALL_MARKS)


def _before_the_call(s: Stage) -> None:
    """Drained; the page cannot be read, so that the call waits."""
    _draining(s)
    s.pages["node-0"].error = Unreadable("connection refused")
    s.run(12)
    remove_pod(s)
    s.run(3)
    assert (phase(s), the_record(s).rung, calls(s)) == (Phase.RECOVERING, 1, [])


def _after_the_call(s: Stage) -> None:
    s.fault("node-0")
    s.run(5)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [("replace", "m-0")])


def _proving(s: Stage) -> None:
    """Rebooted, and on probation."""
    s.fault("node-0")
    s.run(5)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(5)
    assert phase(s) is Phase.PROVING


POINTS: dict[str, tuple[bytes, Callable[[Stage], None]]] = {
    "suspect": (policy_file(after="1h"), _suspect),
    "waiting": (policy_file(limits="budget: 0"), _waiting),
    "draining": (QUICK, _draining),
    "before the call": (QUICK, _before_the_call),
    "after the call": (QUICK, _after_the_call),
    "proving": (REBOOTS, _proving),
}
BEFORE = ("suspect", "waiting", "draining", "before the call")


def at(point: str, count: int = 4, *, kernel: bool = False) -> Stage:
    """A stage whose node-0 has come to ``point``. ``kernel``: its agent reads its kernel's boot ID, too."""
    rules, bring = POINTS[point]
    s = cast(rules, count)
    if kernel:
        s.kernels["node-0"] = s.node("node-0")["status"]["nodeInfo"]["bootID"]
        s.run(1)
    bring(s)
    return s
