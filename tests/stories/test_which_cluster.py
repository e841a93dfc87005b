"""A person who names another cluster than the usual one is asked before anything is changed there."""

from __future__ import annotations

import json

import pytest
import yaml

from recovery.kube.kubeconfig import Place
from recovery.model import Phase
from tests.stories.console import Terminal, pod_of
from tests.stories.scenes import GATES, at, cast, handed_over, phase

PAUSE = ("pause", "--for", "1h", "--reason", "x")
ELSEWHERE = "prod (prod.example:443) is not your current context."


def elsewhere(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """--context names a cluster that a plain kubectl would not use."""
    terminal.reach.place = Place("prod", "prod.example:443")
    monkeypatch.setattr("recovery.console.api.is_usual", lambda target, place: not target.context)
    return terminal


@pytest.mark.parametrize(
    "command", [PAUSE, ("resume",), ("release", "node-0", "--yes"), ("approve", "XID", "--for", "1h")]
)
def test_a_command_that_changes_something_says_first_in_which_cluster(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Terminal(handed_over(), monkeypatch).run(*command)
    assert (said.code, said.cluster) == (0, "Cluster: here (127.0.0.1:6443)")


def test_a_pause_in_another_cluster_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    s = cast()
    terminal = elsewhere(Terminal(s, monkeypatch), monkeypatch)
    said = terminal.run(*PAUSE, "--context", "prod", answer="n\n")
    assert (said.code, said.cluster) == (1, "Cluster: prod (prod.example:443)")
    assert f"{ELSEWHERE} Pause all recoveries there? [y/N]" in said.err
    assert s.store.request("GET", f"{GATES}/fleet").status == 404, "nothing was written"
    assert terminal.run(*PAUSE, "--context", "prod", answer="y\n").code == 0
    assert s.gate().pause is not None


@pytest.mark.parametrize("command", [PAUSE, ("resume",), ("release", "node-0"), ("approve", "XID")])
def test_a_script_has_to_say_yes_to_another_cluster(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = handed_over()
    Terminal(s, monkeypatch).run("pause", "--for", "2h", "--reason", "mine")
    terminal = elsewhere(Terminal(s, monkeypatch), monkeypatch)
    terminal.attended = False
    before = len(s.store.history)
    said = terminal.run(*command, "--context", "prod")
    assert (said.code, said.out, len(s.store.history)) == (2, "", before)
    assert ELSEWHERE in said.err
    assert said.err.endswith("There is no terminal to ask at. Use --yes.\n")
    assert phase(s) is Phase.HANDED_OVER
    assert terminal.run(*command, "--context", "prod", "--yes").code == 0


def test_a_release_asks_one_question_and_not_two(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = elsewhere(Terminal(handed_over(), monkeypatch), monkeypatch)
    said = terminal.run("release", "node-0", "--context", "prod", answer="y\n")
    assert (said.code, said.err.count("[y/N]"), ELSEWHERE in said.err) == (0, 1, True)


def test_the_usual_cluster_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = elsewhere(Terminal(cast(), monkeypatch), monkeypatch)
    terminal.attended = False
    assert terminal.run(*PAUSE).code == 0


def test_programs_are_told_the_cluster_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(cast(), monkeypatch)
    assert terminal.run(*PAUSE, "-o", "json").json["cluster"] == {
        "context": "here",
        "server": "127.0.0.1:6443",
    }


# ---------------------------------------------------------------- how it is printed


@pytest.mark.parametrize("command", [("status",), ("explain", "node-0"), ("resume",)])
def test_yaml_says_the_same_as_json(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    s = at("draining")
    pod_of(s, "node-0")
    terminal = Terminal(s, monkeypatch)
    as_yaml = yaml.safe_load(terminal.run(*command, "-o", "yaml").out)
    assert as_yaml == terminal.run(*command, "-o", "json").json
    assert json.dumps(as_yaml)


def test_wide_shows_the_machine_its_group_and_its_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(at("draining"), monkeypatch)
    head, row = terminal.run("status", "-o", "wide").out.splitlines()[:2]
    assert head.split() == ["NODE", "PHASE", "RULE", "STEP", "TRY", "SINCE", *WIDE, "WHY"]
    assert row.split()[6] == "m-0"
    narrow = terminal.run("status", "-o", "human").out.splitlines()
    assert not set(WIDE) & set(narrow[0].split())
    assert narrow == terminal.run("status").out.splitlines()


WIDE = ["MACHINE", "GROUP", "REPLACEMENT"]
