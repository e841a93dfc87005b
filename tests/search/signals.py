"""Sources beyond node-problem-detector's page: the Node's conditions, and the mark of another system.

They are written to the Node in the API, as their writers do it, and are read there: what a fault is shown by is
what stands on the Node. A condition is written when it changes, and renewed every minute while its writer lives.
It stays when its writer dies and when the machine boots. A mark stays until somebody takes it off.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import yaml

from tests.search import facts
from tests.search.machines import (
    EKS,
    EKS_GOOD,
    EKS_TYPE,
    LOG,
    MARK,
    MARK_TYPE,
    PLUGIN_TYPE,
    TYPES,
    XID_TYPE,
    Machine,
)
from tests.search.policies import policy_of

if TYPE_CHECKING:
    from tests.search.world import World

Json = dict[str, Any]
TAINT = "trainy.konduktor.ai/faulty"
RENEWED_EVERY = 60.0
RENEWED = timedelta(minutes=15)
"""What was not renewed for so long says nothing: docs/sources.md."""
CONDITIONS: Json = {"conditions": {"rows": [{"type": XID_TYPE, "bad": "True", "takesBack": False}]}}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, ten times as fast: each process reads some two hundred policies."""
BAD = {LOG: "True", PLUGIN_TYPE: "True", XID_TYPE: "True", EKS_TYPE: "False"}


@dataclass(frozen=True)
class Sources:
    """What the policy reads, and who writes: the detector its ``conditions``, ``eks``'s agent, ``konduktor``."""

    named: tuple[Any, ...]
    page: bool = True
    writer: str = "conditions"


SOURCES = {
    "conditions": Sources((CONDITIONS,), page=False),
    "npd, conditions": Sources(("npd", CONDITIONS)),
    "EKS": Sources(("npd", "conditions"), writer="eks"),
    "konduktor": Sources(("npd", "conditions", "konduktor"), writer="konduktor"),
    "EKS alone": Sources(("conditions",), page=False, writer="eks"),
    "konduktor alone": Sources(("conditions", "konduktor"), page=False, writer="konduktor"),
}
OFF_THE_NODE = ("conditions", "EKS alone", "konduktor alone")
"""What a controller goes by: it reads no page."""


@functools.cache
def policy_text(name: str, sources: str) -> bytes:
    """A policy that goes by these sources. Its first remedy is that of what only they state, too."""
    if not sources:
        return policy_of(name)
    read = yaml.load(policy_of(name), Loader=LOADER)  # noqa: S506 - a safe one
    more = {"eks": EKS_TYPE, "konduktor": MARK_TYPE}.get(SOURCES[sources].writer)
    rules = [{**read["rules"][0], "name": "more", "match": {"type": more}}] if more else []
    named = list(SOURCES[sources].named)
    return yaml.safe_dump({**read, "sources": named, "rules": [*read["rules"], *rules]}).encode()


@dataclass
class Life:
    """One process that writes conditions, from its start to its end."""

    machine: Machine
    begun: bool = False
    dead: bool = False
    unknown: frozenset[str] = frozenset()
    """The types that it can say nothing of."""
    written: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """By type: status, reason, and since when."""


class Signals:
    """What is written to the Nodes of one world, and what it shows."""

    def __init__(self, world: World) -> None:
        self.w = world
        chosen = SOURCES.get(world.scene.sources)
        self.writer = chosen.writer if chosen else ""
        self.lives: dict[str, Life] = {}

    @property
    def conditions(self) -> bool:
        return self.writer in ("conditions", "eks")

    # ------------------------------------------------------------ who writes conditions

    def up_after(self, machine: Machine) -> float:
        """Seconds from a machine's boot to the first word of its writer: the old ones stand there meanwhile."""
        return self.w.dice("writer", machine.id, machine.boots).uniform(2, 45)

    def start(self, machine: Machine, after: float) -> None:
        """A writer is started (anew). It writes that all is well, or what it has found by then."""
        if not self.conditions:
            return
        life = self.lives[machine.id] = Life(machine)
        if after:
            self.w.later(after, lambda: self._begin(life))
        else:
            self._begin(life)

    def _begin(self, life: Life) -> None:
        if self._writes(life):
            life.begun = True
            self._write(life)
        self.w.later(RENEWED_EVERY, lambda: self._again(life))

    def _again(self, life: Life) -> None:
        if self.lives.get(life.machine.id) is not life or life.machine.gone:
            return
        if not life.begun:
            self._begin(life)
            return
        if self._writes(life):
            self._write(life)
        self.w.later(RENEWED_EVERY, lambda: self._again(life))

    def _writes(self, life: Life) -> bool:
        m = life.machine
        current = self.lives.get(m.id) is life and not life.dead
        return current and m.up and not m.gone and bool(m.node) and m.place not in self.w.frozen

    def die(self, machine: Machine) -> Life | None:
        """Its writer dies. What it wrote stays, and grows old."""
        life = self.lives.get(machine.id)
        if life is None or life.dead:
            return None
        life.dead = True
        self.w.later(RENEWED.total_seconds() + 1.0, lambda: self.note(machine))
        return life

    def restart(self, machine: Machine) -> None:
        """Its writer is started anew, which repairs nothing."""
        if self.writer == "eks" and not machine.gone and machine.up:
            machine.not_ready = False
            self.w.note(facts.DETECTOR_RESTARTED, machine.node)
            self.start(machine, 0.0)
            if EKS in machine.sick:
                self.w.later(20.0, lambda: self.w.state(machine, EKS))
        elif self.writer == "conditions":
            self.w.restart_detector(machine)

    def calm(self, machine: Machine) -> None:
        """Nothing goes wrong any more with who writes."""
        life = self.lives.get(machine.id)
        if life is None:
            return
        if life.dead and machine.up and not machine.gone:
            self.restart(machine)
        self.says_nothing(machine, frozenset())

    def says_nothing(self, machine: Machine, types: frozenset[str]) -> None:
        """From now on its writer writes these as Unknown; none: it knows them again."""
        life = self.lives.get(machine.id)
        if life is not None:
            life.unknown = types
            self.renew(machine)

    def renew(self, machine: Machine) -> None:
        """Its writer writes all its conditions, as it does each minute."""
        life = self.lives.get(machine.id)
        if life is not None and life.begun and self._writes(life):
            self._write(life)
        else:
            self.note(machine)

    def stuck(self, machine: Machine, type_: str) -> bool:
        """Whether its writer cannot take back what a condition says: it is not there, or does not know."""
        life = self.lives.get(machine.id)
        return life is not None and (not life.begun or not self._writes(life) or type_ in life.unknown)

    def changed(self, machine: Machine) -> None:
        """Its detector may say something else. It is written only where it does."""
        life = self.lives.get(machine.id)
        if life is None or not life.begun or not self._writes(life):
            return
        if any(life.written.get(type_, ("", ""))[:2] != (s, r) for type_, s, r in self._says(life)):
            self._write(life, note=False)  # its caller says what is shown

    def _says(self, life: Life) -> Iterator[tuple[str, str, str]]:
        m = life.machine
        if self.writer == "eks":
            found = [(EKS_TYPE, "False" if m.not_ready else "True", EKS if m.not_ready else EKS_GOOD)]
        else:
            found = m.detector.conditions()
        for type_, status, reason in found:
            yield (type_, "Unknown", "NoAnswer") if type_ in life.unknown else (type_, status, reason)

    def _write(self, life: Life, *, note: bool = True) -> None:
        now = _moment(self.w.clock.true_time())
        mine = []
        for type_, status, reason in self._says(life):
            old = life.written.get(type_)
            since = old[2] if old is not None and old[:2] == (status, reason) else now
            life.written[type_] = (status, reason, since)
            times = {"lastHeartbeatTime": now, "lastTransitionTime": since}
            mine.append({"type": type_, "status": status, "reason": reason, **times})
        node = self._node(life.machine)
        if node is not None:
            types = {c["type"] for c in mine}
            kept = [c for c in _conditions(node) if c["type"] not in types]
            self._patch(life.machine, [*kept, *mine], "a detector")
        if note:
            self.note(life.machine)

    def others(self, machine: Machine) -> list[Json]:
        """The conditions of its Node that are not the kubelet's."""
        node = self._node(machine) if self.writer else None
        return [c for c in _conditions(node) if c["type"] != "Ready"] if node else []

    def remove(self, machine: Machine) -> None:
        """Somebody takes the writer's conditions off the Node."""
        node = self._node(machine) if self.conditions else None
        if node is not None:
            self._patch(machine, [c for c in _conditions(node) if c["type"] not in BAD], "a person")
            self.note(machine, "removed")

    def _patch(self, machine: Machine, conditions: list[Json], actor: str) -> None:
        path = f"/api/v1/nodes/{machine.node}/status"
        self.w.write("PATCH", path, {"status": {"conditions": conditions}}, actor)

    # ------------------------------------------------------------ what is found

    def state(self, machine: Machine, reason: str) -> None:
        """EKS's agent finds a fault, or Konduktor's controller marks its Node for it."""
        if not (self._find(machine) if reason == EKS else self._put(machine)):
            return
        self.w.note(facts.FAULT_STATED, machine.id, type=TYPES[reason], reason=reason, rule="log")
        self.renew(machine)

    def _find(self, machine: Machine) -> bool:
        """EKS's agent looks. One that is not there yet looks later."""
        life = self.lives.get(machine.id)
        if machine.not_ready or life is None or life.dead:
            return False
        if not life.begun or not self._writes(life):
            self.w.later(15.0, lambda: self.w.state(machine, EKS))
            return False
        machine.not_ready = True
        return True

    def _put(self, machine: Machine) -> bool:
        node = self._node(machine)
        taints = (node["spec"].get("taints") or []) if node else []
        if node is None or any(t["key"] == TAINT for t in taints):
            return False
        mark = {"key": TAINT, "effect": "NoSchedule", "timeAdded": _moment(self.w.clock.true_time())}
        self._taint(machine, [*taints, mark], "konduktor")
        return True

    def take_off(self, machine: Machine) -> bool:
        """A person takes the mark off, whether it was mended or not."""
        node = self._node(machine) if self.writer == "konduktor" else None
        taints = (node["spec"].get("taints") or []) if node else []
        rest = [t for t in taints if t["key"] != TAINT]
        if len(rest) == len(taints):
            return False
        self._taint(machine, rest, "a person")
        self.w.note(facts.PERSON, machine.node, did="take the mark off")
        self.note(machine)
        return True

    def _taint(self, machine: Machine, taints: list[Json], actor: str) -> None:
        self.w.write("PATCH", f"/api/v1/nodes/{machine.node}", {"spec": {"taints": taints or None}}, actor)

    # ------------------------------------------------------------ what it shows

    def showing(self, machine: Machine) -> Iterator[tuple[str, str]]:
        """(reason, source) of each fault of the machine that stands on its Node, and was put there in this boot."""
        node = self._node(machine) if self.writer else None
        if node is None:
            return
        now = self.w.clock.true_time()
        booted = now - timedelta(seconds=self.w.now - machine.booted + 1.0)  # the API knows whole seconds
        for c in _conditions(node):
            if BAD.get(c["type"]) == c["status"] and TYPES.get(c["reason"]) == c["type"]:
                renewed = datetime.fromisoformat(c["lastHeartbeatTime"])
                if c["reason"] in machine.sick and booted <= renewed and now - renewed <= RENEWED:
                    yield c["reason"], "conditions"
        for t in node["spec"].get("taints") or []:
            put = t["key"] == TAINT and datetime.fromisoformat(t["timeAdded"])
            if put and MARK in machine.sick and booted <= put:
                yield MARK, "konduktor"

    def note(self, machine: Machine, because: str = "masked") -> None:
        """What stands on its Node may show something else now. ``because``: why it may state a fault no more."""
        if self.writer and machine.up and not machine.gone and machine.node:
            self.w.note_sources(machine, because)

    def _node(self, machine: Machine) -> Json | None:
        """Its Node as it is now, if it is this machine's."""
        answer = self.w.store.request("GET", f"/api/v1/nodes/{machine.node}") if machine.node else None
        if answer is None or not answer.ok:
            return None
        ours = str(answer.body["spec"].get("providerID", "")).endswith(f"/{machine.id}")
        return dict(answer.body) if ours else None


def _conditions(node: Json) -> list[Json]:
    return list((node.get("status") or {}).get("conditions") or [])


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
