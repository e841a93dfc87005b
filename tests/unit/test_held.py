"""What may hold a recovery has one list: pages, settings and alerts go by it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.agent.reporter import EVENT_OF
from recovery.config.environment import Variables
from recovery.decide import brakes
from recovery.decide.held import HELD, OTHERWISE

CODE = Path(__file__).resolve().parents[2] / "recovery"
ASKED = (brakes.STARTING, brakes.GOING_ON, brakes.UNASKED)


def holds() -> Iterator[str]:
    """The key of each call of ``hold`` in the code that has it as a word, without the fault behind it."""
    for file in CODE.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "hold":
                given = [x.value for x in call.keywords if x.arg == "key"] or call.args[2:3]
                for key in given:
                    first = key.values[0] if isinstance(key, ast.JoinedStr) else key
                    if isinstance(first, ast.Constant):
                        yield str(first.value).split(" ")[0]


def test_each_key_of_a_hold_is_in_the_list_and_no_other() -> None:
    asked = {key for questions in ASKED for key, _ in questions}
    assert {*holds(), *asked} - {"off"} == {*HELD, *OTHERWISE}  # off, nothing is held


def test_each_has_the_event_that_the_list_says() -> None:
    assert not HELD.keys() & OTHERWISE.keys()
    assert {key for key in OTHERWISE if not key.startswith("would")} == EVENT_OF.keys()


@pytest.mark.parametrize("key", HELD)
def test_a_webhook_may_be_told_of_whatever_holds(key: str) -> None:
    (told,) = Variables.read({"WEBHOOK_EVENTS": f"Held:{key}"}).WEBHOOK_EVENTS
    assert told == f"Held:{key}"
