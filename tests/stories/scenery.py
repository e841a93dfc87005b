"""What stories share: a cloud that replaces unhealthy machines, a killer, and time that passes in strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recovery_testkit.kubefaults import Asked
from recovery_testkit.stage import Actor, Killed, Stage

from tests.stories.checker import check

RECORDS = "/apis/noderecovery.dev/v1alpha1/noderecoveries"
GATES = "/apis/noderecovery.dev/v1alpha1/recoverygates"
GATE = f"{GATES}/fleet"
REPORTS = "/apis/noderecovery.dev/v1alpha1/recoveryreports"


class Cloud:
    """Acts like an Auto Scaling group: ends an unhealthy machine after ``ends_after`` seconds (its node and
    agent go with it), launches another at once, and that one joins ``joins_after`` seconds later."""

    def __init__(self, stage: Stage, ends_after: float = 6.0, joins_after: float = 8.0) -> None:
        self.stage = stage
        self.ends_after = ends_after
        self.joins_after = joins_after
        self.next = 100
        self.fault_of_new = ""
        self.late: dict[str, float] = {}  # machines that end so many seconds later than others
        self.hidden: dict[str, float] = {}  # accepted calls whose effect shows at that moment
        self._seen: dict[str, float] = {}
        self._joining: list[tuple[float, str, str]] = []

    def act(self) -> None:
        now = self.stage.clock.monotonic()
        for machine in [m for m, at in self.hidden.items() if at <= now]:
            del self.hidden[machine]
            self.stage.provider.groups["workers"].unhealthy.add(machine)
        for group in self.stage.provider.groups.values():
            for machine in sorted(group.unhealthy & set(group.in_service)):
                delay = self.ends_after + self.late.get(machine, 0.0)
                if now - self._seen.setdefault(machine, now) >= delay:
                    self._end(group.name, machine, now)
        for due in [x for x in self._joining if x[0] <= now]:
            self._joining.remove(due)
            self._join(due[1], due[2])

    def _end(self, group: str, machine: str, now: float) -> None:
        self.stage.provider.terminate(group, machine)
        for node in nodes(self.stage):
            if node["spec"]["providerID"].endswith(f"/{machine}"):
                name = node["metadata"]["name"]
                self.stage.delete_node(name)
                for actor in self.stage.actors.values():
                    actor.alive = actor.alive and actor.node != name
        self._in_its_place(group, now)

    def _in_its_place(self, group: str, now: float) -> None:
        new = f"m-{self.next}"
        self.next += 1
        self.stage.provider.launch(group, new)
        self._joining.append((now + self.joins_after, group, new))

    def _join(self, group: str, machine: str) -> None:
        name = machine.replace("m-", "node-")
        self.stage.register(name, machine, group)
        self.stage.agent(name)
        if self.fault_of_new:
            self.stage.fault(name, self.fault_of_new)


class Reaper:
    """Counts the writes and calls of the actors it ``hunts``; kills one right before or after the n-th."""

    def __init__(
        self, stage: Stage, hunts: Callable[[str], bool], at: int | None = None, side: str = ""
    ) -> None:
        self.hunts = hunts
        self.at = at
        self.side = side
        self.seen: list[str] = []
        self.fired = False
        self.acting = ""
        stage.wrap = lambda transport: _Watched(transport, self)
        stage.provider.before_call = lambda: self.before("call")
        stage.provider.after_call = self.after

    def before(self, what: str) -> None:
        if self.fired or not self.hunts(self.acting):
            return
        self.seen.append(what)
        self._strike("before")

    def after(self) -> None:
        if not self.fired and self.hunts(self.acting):
            self._strike("after")

    def _strike(self, side: str) -> None:
        if side == self.side and len(self.seen) - 1 == self.at:
            self.fired = True
            raise Killed


class _Watched:
    def __init__(self, transport: Any, reaper: Reaper) -> None:
        self._transport = transport
        self._reaper = reaper
        self._actor = transport._actor

    def request(self, method: str, path: str, **more: Any) -> Any:
        self._reaper.acting = self._actor
        if method == "GET":
            return self._transport.request(method, path, **more)
        self._reaper.before(f"{method} {path}")
        answer = self._transport.request(method, path, **more)
        self._reaper.after()
        return answer


class Slow:
    """An API server that takes ``seconds`` for each answer to an actor that is started from now on."""

    def __init__(self, stage: Stage) -> None:
        self.seconds = 0.0
        self._stage = stage
        stage.wrap = lambda transport: _SlowlyAnswered(transport, self)

    def pass_by(self) -> None:
        self._stage.clock.advance(self.seconds)


class _SlowlyAnswered:
    def __init__(self, transport: Any, slow: Slow) -> None:
        self._transport = transport
        self._slow = slow

    def request(self, method: str, path: str, **more: Any) -> Any:
        self._slow.pass_by()
        return self._transport.request(method, path, **more)


def nodes(stage: Stage) -> list[dict[str, Any]]:
    return list(stage.store.request("GET", "/api/v1/nodes").body["items"])


def change_node(stage: Stage, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Somebody else writes the Node, status included."""
    node = stage.node(name)
    change(node)
    for path in (f"/api/v1/nodes/{name}", f"/api/v1/nodes/{name}/status"):
        node["metadata"].pop("resourceVersion")
        answer = stage.store.request("PUT", path, body=node, user_agent="somebody")
        assert answer.ok, answer.body
        node["metadata"]["resourceVersion"] = answer.body["metadata"]["resourceVersion"]


def reboot(stage: Stage, name: str) -> None:
    """The machine boots: the same machine, a new boot ID."""
    change_node(stage, name, lambda n: n["status"]["nodeInfo"].update(bootID="another-boot"))


def change_gate(stage: Stage, change: Callable[[dict[str, Any]], object]) -> None:
    """Somebody else writes the gate."""
    gate = dict(stage.store.request("GET", GATE).body)
    change(gate)
    answer = stage.store.request("PUT", GATE, body=gate, user_agent="somebody")
    assert answer.ok, answer.body


def records(stage: Stage) -> dict[str, str]:
    """Each record's phase, by node."""
    items = stage.store.request("GET", RECORDS).body["items"]
    return {x["metadata"]["name"]: x["status"]["phase"] for x in items}


def settled(stage: Stage) -> bool:
    """No record is open and the gate is empty."""
    if any(p in ("suspect", "waiting", "recovering", "proving") for p in records(stage).values()):
        return False
    gate = stage.store.request("GET", GATE)
    status = gate.body.get("status", {}) if gate.status == 200 else {}
    return not status.get("slots") and not status.get("open")


def pass_time(
    stage: Stage,
    seconds: float,
    cloud: Cloud | None = None,
    *,
    until: Callable[[], bool] = lambda: False,
    step: float = 0.0,
) -> float:
    """Let up to ``seconds`` pass; the strides grow with the story's length. Returns how many passed."""
    began = stage.clock.monotonic()
    while (gone := stage.clock.monotonic() - began) < seconds and not until():
        stage.run(0)
        if cloud:
            cloud.act()
        stage.clock.advance(step or (0.5 if gone < 10 else 2.0 if gone < 40 else 10.0 if gone < 90 else 15.0))
        stage.store.tick()
    stage.run(0)
    return gone


def to_the_end(stage: Stage, cloud: Cloud | None = None, limit: float = 3600.0, step: float = 0.0) -> None:
    """Until everything is settled; a story that is not within ``limit`` seconds is an error."""
    looked = [-1]

    def over() -> bool:
        if looked[0] == len(stage.store.history):
            return False
        looked[0] = len(stage.store.history)
        return bool(records(stage)) and settled(stage)

    pass_time(stage, limit, cloud, until=over, step=step)


def judge(stage: Stage, **more: Any) -> None:
    """The independent checker, on all that was written and called."""
    calls = [(str(action.value), machine, token) for action, machine, token in stage.provider.calls]
    check(stage.store.history, calls, **more)


def writes(kind: str = "", verb: str = "") -> Callable[[Asked], bool]:
    """Requests that change something, on paths with ``kind``."""
    return lambda asked: asked.method != "GET" and kind in asked.path and verb in asked.method


def alive(stage: Stage, node: str) -> Actor:
    return next(a for a in stage.actors.values() if a.node == node and a.alive)


def sentences(stage: Stage, node: str = "node-0") -> list[str]:
    """What the node's agent has decided, sentence by sentence."""
    return alive(stage, node).sentences


def slots(stage: Stage) -> list[str]:
    """The nodes that hold a slot of the budget."""
    return [slot.node for slot in stage.gate().slots]
