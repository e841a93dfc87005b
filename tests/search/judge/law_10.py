"""Law 10, the brake: the sick and unknown by the ground truth, when something is started or goes on."""

from __future__ import annotations

from tests.search.facts import Wrote
from tests.search.judge.law import Law
from tests.search.judge.limits import Limits, of
from tests.search.judge.objects import Json, labels
from tests.search.judge.recoveries import Call


class Brake(Law):
    """Nothing is started or called above the brake. Who became sick a moment ago is not counted."""

    name = "law 10"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.gone: dict[str, tuple[float, Json]] = {}  # Nodes that were deleted: when, and as they were

    def node(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        if after is None and before is not None:
            self.gone[w.name] = (w.at, before)

    def gate(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        if not self.world.ours(w.actor):
            return
        for (node, uid), since in self.world.slots.items():
            r = self.world.by_uid.get(uid)
            if since == w.at and r is not None and r.slot == w.at and r.begun is None:
                self._judge(node, w.actor, w.at, "was started", r)

    def called(self, call: Call) -> None:
        intent = call.intent
        if intent is not None:
            self._judge(
                intent.recovery.node, call.asked.actor, intent.at, f"{call.asked.action} was asked", intent
            )

    def _judge(self, node: str, actor: str, at: float, what: str, about: object) -> None:
        world = self.world
        if at - world.policy_changed < self.bounds.submit:
            return
        sick = sorted({*self._sick(at), node})
        if len(sick) < 2:
            return
        told = ""
        for rules in world.policies_of(actor, at - self.bounds.submit):
            told = self._over(rules, node, sick, at)
            if not told:
                return
        self.breaks("braked", node, f"{what} while {told}", about)

    def _sick(self, at: float) -> list[str]:
        """Nodes that have been sick for long enough to be counted, or of which too long nothing is known."""
        world = self.world
        before = at - self.bounds.census
        sick = {n for n in world.sick if world.sick_since[n] <= before and n in world.nodes}
        blind = at - self.bounds.unknown - self.bounds.submit
        for node, (state, since) in world.pages.items():
            if state in ("unreadable", "wrong") and since <= blind and node in world.nodes:
                agent = world.agent_of(node)
                if agent is None or (agent.on and agent.state != "stopped" and agent.since <= blind):
                    sick.add(node)
        return sorted(sick)

    def _over(self, rules: Limits, node: str, sick: list[str], at: float) -> str:
        late = at - self.bounds.census  # who counts knows of a Node that was deleted since
        every = {name: was for name, (gone, was) in self.gone.items() if gone > late} | self.world.nodes
        mine = labels(every.get(node))
        nodes = {name: x for name, x in every.items() if rules.counted(labels(x))}
        groups = [(nodes, "")]
        if not rules.counted(mine):
            groups.append(({name: x for name, x in every.items() if name not in nodes}, "outside "))
        for group, which in groups:
            bad = [n for n in sick if n in group]
            if len(bad) > rules.sick_allowed(len(group), rules.brake):
                return f"{len(bad)} of {len(group)} nodes {which}are sick or unknown: {bad}"
        if not rules.counted(mine):
            return ""
        for key, per in rules.brake_per.items():
            value = mine.get(key)
            share = of(per, value) if value is not None else None
            if share is None:
                continue
            alike = [n for n, x in nodes.items() if labels(x).get(key) == value]
            bad = [n for n in sick if n in set(alike)]
            if len(bad) > rules.sick_allowed(len(alike), share):
                return f"{len(bad)} of {len(alike)} nodes of {key}={value} are sick or unknown: {bad}"
        return ""


LAWS = (Brake,)
