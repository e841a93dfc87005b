"""An API server that says yes and does not store all of it: no command says that it was done."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from recovery_testkit.crds import read_crds
from recovery_testkit.kubefaults import Asked, FaultyApi, refused
from recovery_testkit.kubestatus import Response
from recovery_testkit.stage import Stage

from recovery.console.stored import missing
from tests.stories.console import Said, Terminal
from tests.stories.scenes import GATES, NO_MARKS, NODES, RECORDS, calls, cast, handed_over, marked, value
from tests.stories.test_conditions import NEURON, writes

Json = dict[str, Any]
Change = Callable[[Json], None]
PAUSE = ("pause", "--for", "1h", "--reason", "network", "--yes")
APPROVE = ("approve", "GpuXidBad", "--yes")
RELEASE = ("release", "node-0", "--yes")
UNINSTALL = ("uninstall", "--yes")
DRILL = ("inject", "node-0", "--fault", "GpuXidBad", "--really", "--yes")


def answered_without(s: Stage, method: str, path: str, change: Change, times: int = 1) -> None:
    """The next writes are answered, and stored, but for what ``change`` takes off the answer."""

    def effect(asked: Asked, go: Callable[[], Response]) -> Response:
        answer = go()
        body = copy.deepcopy(answer.body)
        change(body)
        return replace(answer, body=body)

    assert isinstance(s.api, FaultyApi)
    s.api.fail_next(lambda asked: asked.method == method and asked.path.startswith(path), effect, times=times)


def without(*path: str) -> Change:
    def change(body: Json) -> None:
        for key in path[:-1]:
            body = body[key]
        del body[path[-1]]

    return change


def failed(said: Said, words: str) -> None:
    assert (said.code, said.out) == (1, ""), said
    assert words in said.err


def at(s: Stage, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(s, monkeypatch)


def older(**lacks: str) -> Stage:
    """A cluster whose CRDs know no such field of a kind: ``RecoveryGate="pause"``."""
    stage = Stage(crds=False)
    for crd in map(copy.deepcopy, read_crds()):
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        if lacking := lacks.get(crd["spec"]["names"]["kind"]):
            found = [
                part for part in ("spec", "status") if lacking in schema.get(part, {}).get("properties", {})
            ]
            assert found, f"there is no {lacking}"
            del schema[found[0]]["properties"][lacking]
        stage.store.install_crd(crd)
    return stage


@pytest.mark.parametrize(
    ("command", "field", "words"),
    [
        (PAUSE, "pause", "did not store spec.pause of RecoveryGate fleet: nobody will act on it"),
        (APPROVE, "approved", "did not store spec.approved of RecoveryGate fleet: nobody will act on it"),
        (UNINSTALL, "pause", "did not store spec.pause of RecoveryGate fleet: nobody will act on it"),
    ],
)
def test_what_older_crds_drop_is_said_with_what_to_do(
    command: tuple[str, ...], field: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = older(RecoveryGate=field)
    terminal = at(s, monkeypatch)
    if command is APPROVE:
        assert terminal.run(*PAUSE).code == 0, "which makes the gate"
    said = terminal.run(*command)
    failed(said, words)
    assert "older than this program? Apply those of version " in said.err
    assert "kubectl apply -k deploy/crds" in said.err


def test_a_gate_that_a_pause_has_to_make_first_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Stage()
    answered_without(s, "POST", GATES, without("status", "version"))
    failed(at(s, monkeypatch).run(*PAUSE), "did not store status.version of RecoveryGate fleet")


def test_a_pause_that_is_still_there_is_not_said_to_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    s = cast()
    terminal = at(s, monkeypatch)
    assert terminal.run(*PAUSE).code == 0
    paused = s.store.request("GET", f"{GATES}/fleet").body["spec"]
    answered_without(s, "PUT", GATES, lambda body: body.update(spec=paused))
    failed(terminal.run("resume", "--yes"), "has not taken spec.pause off RecoveryGate fleet")


def test_a_pause_of_another_length_than_was_written_is_not_told_as_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = cast()
    s.run(3)
    answered_without(s, "PUT", GATES, lambda body: body["spec"]["pause"].update(until="2020-01-01T00:00:00Z"))
    failed(at(s, monkeypatch).run(*PAUSE), "did not store spec.pause.until of RecoveryGate fleet")


def test_a_release_that_the_record_does_not_show_is_not_told_as_done(monkeypatch: pytest.MonkeyPatch) -> None:
    s = handed_over()
    answered_without(s, "PUT", RECORDS, without("status", "history"))
    failed(at(s, monkeypatch).run(*RELEASE), "did not store status.history of NodeRecovery node-0")


HALF = "f\udcfcr"
"""What the byte 0xFC between two letters is to a program whose terminal has UTF-8."""


@pytest.mark.parametrize(
    "command",
    [
        ("pause", "--for", "2h", "--yes", "--reason", HALF, "--owner", HALF),
        (*RELEASE, "--reason", HALF),
        ("approve", HALF, "--yes"),
        ("inject", "node-0", "--fault", HALF, "--type", "GpuXid", "--really", "--yes"),
    ],
    ids=lambda command: command[0],
)
def test_bytes_that_are_no_text_are_sent_as_the_api_server_stores_them(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stores U+FFFD for half a character. What was sent otherwise was taken for what it did not store."""
    s = handed_over()
    assert at(s, monkeypatch).run(*PAUSE).code == 0, "which makes the gate"
    sent = list[str]()

    def noted(asked: Asked) -> bool:
        sent.append(json.dumps(asked.body, ensure_ascii=False))
        return False

    assert isinstance(s.api, FaultyApi)
    s.api.fail_next(noted, lambda _, go: go())
    said = at(s, monkeypatch).run(*command)
    assert (said.code, said.err) == (0, ""), said
    assert any("f\N{REPLACEMENT CHARACTER}r" in body for body in sent)
    assert not any("\udcfc" in body for body in sent)


@pytest.mark.parametrize("command", [RELEASE, UNINSTALL])
def test_marks_that_are_still_on_the_node_are_not_said_to_be_off(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = handed_over()
    marked = s.node("node-0")
    answered_without(
        s,
        "PATCH",
        NODES,
        lambda body: body.update(copy.deepcopy({k: marked[k] for k in ("metadata", "spec")})),
    )
    said = at(s, monkeypatch).run(*command)
    assert said.code == 1
    assert "our marks are still on Node node-0" in said.out + said.err
    assert "back in service" not in said.out
    assert "may be deleted" not in said.out


def test_marks_without_a_record_that_are_still_there_are_left_and_not_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = handed_over()
    marked = s.node("node-0")
    s.actors["agent of node-0"].alive = False
    s.store.request("DELETE", f"{RECORDS}/node-0")
    answered_without(s, "PATCH", NODES, lambda body: body.update(copy.deepcopy(marked)), times=3)
    said = at(s, monkeypatch).run(*UNINSTALL)
    assert said.code == 1
    assert "left  node-0: our marks are still on Node node-0" in said.out


def test_a_drill_that_was_not_stored_is_not_told_as_made(monkeypatch: pytest.MonkeyPatch) -> None:
    s = cast(on=False)
    answered_without(s, "PATCH", NODES, without("status", "conditions"))
    failed(at(s, monkeypatch).run(*DRILL), "the condition GpuXid of Node node-0 was not stored")


def test_a_drill_that_is_still_there_is_not_told_as_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    s = cast(on=False)
    terminal = at(s, monkeypatch)
    assert terminal.run(*DRILL).code == 0
    made = s.node("node-0")["status"]
    answered_without(s, "PATCH", NODES, lambda body: body.update(status=copy.deepcopy(made)))
    failed(
        terminal.run("inject", "node-0", "--remove", "--yes"),
        "condition GpuXid of Node node-0 is still there",
    )


@pytest.mark.parametrize(
    ("sent", "kept", "lost"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, ""),
        ({"a": 1}, {}, "x.a"),
        ({"a": 1}, None, "x.a"),
        ({"a": 1}, {"a": 2}, "x.a"),
        ({"a": ""}, {}, ""),
        ({"a": {"b": []}}, {"a": {}}, ""),
        ({"a": {"b": 1}}, {}, "x.a"),
        ({"a": {"b": [1]}}, {"a": {}}, "x.a.b"),
        ({"a": [1, 2]}, {"a": [1]}, "x.a"),
        ({"a": [{"b": 1}]}, {"a": [{}]}, "x.a[0].b"),
        ({"a": []}, {"a": [1]}, "x.a"),
        ({"a": "b"}, {"a": ["b"]}, "x.a"),
    ],
)
def test_the_first_thing_that_was_not_kept_is_named(sent: Any, kept: Any, lost: str) -> None:
    assert missing(sent, kept, "x") == lost


def pruned(mode: str) -> Stage:
    """A fault of node-0 has a record that was not stored as it was written, for a minute."""
    s = older(NodeRecovery="progress")
    s.nodes(4)
    if mode == "fleet":
        s.fleet()
    else:
        for i in range(4):
            s.agent(f"node-{i}")
    s.add_pod("train", "node-0")
    s.run(3)
    if mode == "fleet":
        writes(s, NEURON)
    else:
        s.fault("node-0")
    s.run(60)
    return s


def applied(s: Stage) -> None:
    for crd in read_crds():
        s.store.install_crd(crd)


@pytest.mark.parametrize("mode", ["sidecar", "fleet"])
def test_while_the_crds_are_older_no_node_is_marked_and_no_pod_is_evicted(mode: str) -> None:
    s = pruned(mode)
    assert (marked(s), calls(s)) == (NO_MARKS, [])
    assert not [w for w in s.store.history if w.verb == "evict"]
    applied(s)
    s.run(90)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize("mode", ["sidecar", "fleet"])
def test_a_race_that_is_lost_as_it_is_stored_at_last_is_no_failure_of_the_api_server(mode: str) -> None:
    s = pruned(mode)
    applied(s)
    assert isinstance(s.api, FaultyApi)
    s.api.fail_next(
        lambda asked: asked.method == "PUT" and asked.path.startswith(RECORDS), refused(409, "Conflict")
    )
    s.run(90)
    assert (calls(s), s.api.pending) == ([("replace", "m-0")], 0)
    assert all(value(actor, "node_recovery_errors_total", kind="api") == 0 for actor in s.actors.values())
