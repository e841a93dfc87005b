"""Item 19 without its mend: limits count the starts on the gate only, which forgets after a few others."""

from __future__ import annotations

from collections.abc import Callable

from recovery.decide import brakes
from recovery.decide.situation import Situation
from recovery.model import GroupStart

STORY = "tests/stories/test_gate_keeps.py::test_attempts_are_remembered_whatever_was_started_elsewhere"
PLOTS = ("again_and_again",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(brakes, "starts_known", _on_the_gate)


def _on_the_gate(s: Situation) -> tuple[GroupStart, ...]:
    return s.gate.starts if s.gate is not None else ()
