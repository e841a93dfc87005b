"""Item 20 without its mend: nodes that were handed over count for the brake when they exist no more."""

from __future__ import annotations

from collections.abc import Callable

from recovery.agent import peers
from recovery.decide.decision import REPEAT, Decision, leave
from recovery.decide.situation import Situation

STORY = (
    "tests/stories/test_ghosts.py::"
    "test_handed_over_nodes_whose_machines_a_person_ended_hold_the_brake_no_longer"
)
PLOTS = ("ghosts", "ghosts_alone")


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(peers, "lay_to_rest", _nothing)


def _nothing(s: Situation) -> Decision:
    return leave(f"{s.node_name} is in a person's hands", REPEAT, "no-ghost")
