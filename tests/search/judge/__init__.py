"""The independent judge: the laws, on the history of a world. It shares no line with the agent.

    violations = judge(facts, ours=lambda actor: actor.startswith(("agent", "concluder")))

It imports nothing of ``recovery``: a mistake there cannot be repeated here. Objects are read by their
documented fields alone: the CRDs, the marks on a node, the policy file as the README has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.search.facts import Fact
from tests.search.judge.violation import Bounds, Violation

__all__ = ["Bounds", "Violation", "judge"]


def judge(
    facts: Iterable[Fact], *, ours: Callable[[str], bool], bounds: Bounds | None = None
) -> list[Violation]:
    """Every law that the history breaks, in the order in which it breaks them.

    ``ours``: whether an actor (a user agent, a user's name) is an agent or concluder. A person's command
    (``node-recovery release``) is not: its author is a person.
    """
    return []
