"""The independent judge: the laws, on the history of a world. It shares no line with the agent.

    violations = judge(facts, ours=lambda actor: actor.startswith(("agent", "concluder")))

It imports nothing of ``recovery``: a mistake there cannot be repeated here. Objects are read by their
documented fields alone: the CRDs, the marks on a node, the policy file as docs/policy.md has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.search.facts import Asked, Fact, Happened, Said, TakenBack, Wrote
from tests.search.judge import ends, law_1, law_2_3_4, law_5, law_7_8_9, law_10, law_11, starts, words
from tests.search.judge.law import Law
from tests.search.judge.objects import status
from tests.search.judge.violation import Bounds, Violation
from tests.search.judge.world import World

__all__ = ["Bounds", "Judge", "Violation", "judge"]

MODULES = (law_1, law_2_3_4, law_5, law_7_8_9, law_10, law_11, starts, ends, words)
LAWS: tuple[type[Law], ...] = tuple(law for module in MODULES for law in module.LAWS)


def judge(
    facts: Iterable[Fact], *, ours: Callable[[str], bool], bounds: Bounds | None = None
) -> list[Violation]:
    """Every law that the history breaks, in the order in which it breaks them.

    ``ours``: whether an actor (a user agent, a user's name) is an agent or concluder. A person's command
    (``node-recovery release``) is not: its author is a person.
    """
    taking = Judge(ours, bounds)
    for fact in facts:
        taking.see(fact)
    return taking.end()


class Judge:
    """The same, fact by fact: ``see`` each, then ``end``. ``found`` grows meanwhile."""

    def __init__(self, ours: Callable[[str], bool], bounds: Bounds | None = None) -> None:
        self.found: list[Violation] = []
        self.world = World(ours, bounds or Bounds())
        laws = [law(self.world, self.found.append) for law in LAWS]
        self._by = {
            name: [getattr(law, name) for law in laws if getattr(type(law), name) is not getattr(Law, name)]
            for name in (
                "node", "record", "phase", "gate", "event", "eviction", "ours", "called", "asked", "happened",
                "said", "end",
            )
        }  # fmt: skip
        self._kinds = {
            "Node": self._by["node"],
            "NodeRecovery": self._by["record"],
            "RecoveryGate": self._by["gate"],
        }

    def see(self, fact: Fact) -> None:
        """The next fact; facts come in the order of their moments."""
        if isinstance(fact, Wrote):
            self._wrote(fact)
        elif isinstance(fact, Happened):
            self.world.happened(fact)
            for law in self._by["happened"]:
                law(fact)
        elif isinstance(fact, Asked):
            for law in self._by["asked"]:
                law(fact)
            call = self.world.asked(fact)
            if call is not None:
                for law in self._by["called"]:
                    law(call)
                self.world.settle(call)
        elif isinstance(fact, TakenBack):
            self.world.taken_back(fact)
        elif isinstance(fact, Said):
            self.world.at = fact.at
            for law in self._by["said"]:
                law(fact)

    def end(self) -> list[Violation]:
        """After the last fact: what is left is judged, too."""
        for law in self._by["end"]:
            law()
        return self.found

    def _wrote(self, w: Wrote) -> None:
        world = self.world
        ours = world.ours(w.actor)
        if w.kind == "Event":
            if ours:
                for law in self._by["event"]:
                    law(w, w.before, w.after)
            return
        if w.kind == "Eviction":
            if ours and not w.dry:
                world.at = w.at
                for law in self._by["eviction"]:
                    law(w)
            return
        if w.dry or w.status >= 300:
            return
        before = world.wrote(w)
        if ours and w.verb == "evict":
            for law in self._by["eviction"]:
                law(w)
        elif ours:
            for law in self._by["ours"]:
                law(w, before, w.after)
        for law in self._kinds.get(w.kind, ()):
            law(w, before, w.after)
        if w.kind == "NodeRecovery" and w.after is not None:
            self._phase(w, status(before).get("phase"), status(w.after).get("phase"))

    def _phase(self, w: Wrote, was: object, now: object) -> None:
        if was == now:
            return
        r = self.world.recoveries[w.name]
        for law in self._by["phase"]:
            law(w, r, str(was or ""), str(now or ""))
