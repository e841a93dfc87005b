"""A release is of what the person was told of: what agents and others do while the command is at work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from recovery_testkit.kubefaults import Asked, Effect, lost_request, refused
from recovery_testkit.kubernetes import Response
from recovery_testkit.stage import Stage

from recovery.console import wanted_back
from recovery.model import Phase
from tests.stories.console import Said, Terminal
from tests.stories.scenery import RECORDS
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    at,
    boot,
    calls,
    exclude,
    handed_over,
    marked,
    messages,
    patch_node,
    phase,
    stubborn_pod,
)
from tests.stories.test_taken_back import never_came

OTHER = "HBM_UNCORRECTABLE_ERROR"
Act = Callable[[Stage], None]


def released(s: Stage, monkeypatch: pytest.MonkeyPatch, meanwhile: Act, *, seconds: float = 130) -> Said:
    """``release`` asks, and ``meanwhile`` happens before the person says yes."""
    terminal = Terminal(s, monkeypatch)

    def confirm(question: str, err: bool) -> bool:
        meanwhile(s)
        s.run(seconds)
        return True

    monkeypatch.setattr("click.confirm", confirm)
    return terminal.run("release", "node-0")


@pytest.mark.parametrize(
    ("point", "meanwhile", "ended"),
    [
        ("draining", exclude, "withdrawn"),
        ("waiting", lambda s: s.delete_node("node-0"), "superseded"),
        ("proving", lambda s: None, "recovered"),
    ],
)
def test_a_recovery_that_ended_while_the_question_stood_there_was_not_released(
    point: str, meanwhile: Act, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = at(point)
    said = released(s, monkeypatch, meanwhile)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"nothing was changed: node-0 is {ended} by now: ")
    assert messages(s, "Released") == []


@pytest.mark.parametrize("meanwhile", [lambda s: s.fault("node-0", OTHER), lambda s: boot(s, "node-0")])
def test_a_fault_that_came_while_the_question_stood_there_is_not_released_unseen(
    meanwhile: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = at("waiting")
    said = released(s, monkeypatch, meanwhile, seconds=10)
    assert (said.code, said.out, phase(s).open) == (1, "", True)
    assert said.err.startswith("nothing was changed: NeuronHasError_")
    assert " was seen since you were asked. node-0 is waiting by now: " in said.err


def test_a_recovery_that_only_went_on_while_the_question_stood_there_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = at("suspect")
    said = released(s, monkeypatch, stubborn_pod, seconds=3600)
    assert (said.code, phase(s), calls(s)) == (0, Phase.RELEASED, [])


@pytest.mark.parametrize("scene", [lambda: at("draining"), handed_over])
def test_a_release_takes_no_marks_off_that_a_new_recovery_has_put_on(
    scene: Callable[[], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene()
    closed = False

    def closed_already(asked: Asked) -> bool:
        nonlocal closed
        closed |= (asked.method, asked.user_agent) == ("PUT", "ada")
        return closed and (asked.method, asked.user_agent) == ("GET", "ada")

    def breaks(asked: Asked, go: Callable[[], Response]) -> Response:
        s.fault("node-0", OTHER)
        s.run(10)
        return go()

    s.api.fail_next(closed_already, breaks)
    said = Terminal(s, monkeypatch).run("release", "node-0", "--yes")
    assert (said.code, said.out) == (1, "")
    assert f"the record of node-0 was closed, and is {phase(s).value} again by now: " in said.err
    assert said.err.endswith("node-recovery release node-0\n")
    assert (phase(s).sick, marked(s)) == (True, ALL_MARKS)


def test_a_node_that_goes_while_its_marks_come_off_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    s = handed_over()

    def go_away(asked: Asked, go: Callable[[], Response]) -> Response:
        s.delete_node("node-0")
        return go()

    s.api.fail_next(lambda a: (a.method, a.path) == ("PATCH", "/api/v1/nodes/node-0"), go_away)
    said = Terminal(s, monkeypatch).run("release", "node-0", "--yes")
    assert (said.code, phase(s)) == (0, Phase.RELEASED)
    assert said.out.startswith("node-0 is released; its Node is not there")


def test_a_cordon_that_a_colleague_set_while_an_agent_was_waited_for_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = never_came()
    terminal = Terminal(s, monkeypatch)

    def wait(seconds: float) -> None:
        s.run(seconds, step=1.0)
        if phase(s) is Phase.RELEASED:
            patch_node(s, "node-0", {"spec": {"unschedulable": True}})

    monkeypatch.setattr(wanted_back, "sleep", wait)
    said = terminal.run("release", "node-0", "--yes")
    assert (said.code, marked(s)[0]) == (0, True)
    assert "somebody else's cordon stays (kubectl uncordon node-0)" in said.out


def test_who_may_not_take_the_marks_off_is_told_that_the_record_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = handed_over()
    for actor in s.actors.values():
        s.kill(actor)
    s.api.fail_next(lambda a: a.method == "PATCH", refused(403, "Forbidden", "ada may not"))
    said = Terminal(s, monkeypatch).run("release", "node-0", "--yes")
    assert (said.code, phase(s), marked(s)) == (1, Phase.RELEASED, ALL_MARKS)
    first, second = said.err.splitlines()
    assert first.endswith(
        "403 ada may not; the record of node-0 is closed. Its marks, or its place in the budget, may be "
        "left: run the command again"
    )
    assert second.startswith("Your user lacks this right.")


# ---------------------------------------------------------------- an agent is waited for


def waiting(s: Stage, monkeypatch: pytest.MonkeyPatch, first: Act) -> Said:
    """``release`` waits for an agent, which has not looked yet when ``first`` happens."""
    acts = [first]

    def wait(seconds: float) -> None:
        if acts:
            acts.pop()(s)
        else:
            s.run(seconds, step=1.0)

    terminal = Terminal(s, monkeypatch)
    monkeypatch.setattr(wanted_back, "sleep", wait)
    return terminal.run("release", "node-0", "--yes")


@pytest.mark.parametrize("fails", [lost_request, refused(429, "TooManyRequests", "please wait")])
def test_one_lost_answer_ends_no_release(fails: Effect, monkeypatch: pytest.MonkeyPatch) -> None:
    s = never_came()
    said = waiting(s, monkeypatch, lambda s: s.api.fail_next(lambda a: a.user_agent == "ada", fails))
    assert (said.code, phase(s), marked(s)) == (0, Phase.RELEASED, NO_MARKS)


def test_a_record_that_is_deleted_while_an_agent_is_waited_for_is_not_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def deleted(s: Stage) -> None:
        assert s.store.request("DELETE", f"{RECORDS}/node-0").ok

    said = waiting(never_came(), monkeypatch, deleted)
    assert said.code == 1
    assert said.err.endswith("node-0 is not released: its record was deleted by now\n")
