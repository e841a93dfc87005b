"""What a story made by the search needs: the script written out, played and judged."""

from __future__ import annotations

from tests.search.judge import Bounds, Violation, judge
from tests.search.play import History, play
from tests.search.script import Act, Scene, Script, act
from tests.search.world import is_ours

__all__ = ["Scene", "act", "judged", "played"]


LOOKED_AT_EVERY = 45.0
"""Seconds: an agent reads its own Node every thirty, and goes its round every twelve."""


def played(scene: Scene, *acts: Act, seed: int = 0) -> History:
    """The history of these disturbances in this scene."""
    return play(Script(seed, scene, acts))


def judged(history: History) -> list[Violation]:
    """Every law that the history breaks."""
    lag = LOOKED_AT_EVERY if history.script.scene.sources else 0.0
    return judge(history.facts, ours=is_ours, bounds=Bounds(unseen=40.0 + lag, lag=lag, announced=True))
