"""Marks of ours on a Node without a record: somebody deleted it. They stay until a person says so."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.model import Phase
from tests.builders.policies import HEAD
from tests.stories.console import Terminal, pod_of
from tests.stories.scenes import (
    ALL_MARKS,
    GATES,
    NO_MARKS,
    RECORDS,
    at,
    boot,
    calls,
    cast,
    handed_over,
    marked,
    messages,
    new_process,
    phase,
    plugin_page,
    sayings,
    value,
)
from tests.stories.test_probation import NO_XID, UP, booted_in_fleet_mode, renewed
from tests.stories.test_uninstall import delete

SENTENCE = (
    "node-0 has marks of ours, and no record says why. They keep pods off until a person has looked at the "
    "node: node-recovery release node-0 takes them off"
)


def without_a_record(*, restarted: bool = False) -> Stage:
    """A person has node-0; it boots well, and somebody deletes its record."""
    s = handed_over()
    pod_of(s, "node-0")
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(120)
    delete(s, f"{RECORDS}/node-0")
    if restarted:
        new_process(s, "node-0")
    s.run(130)
    return s


@pytest.mark.parametrize("restarted", [False, True])
def test_its_agent_says_so_each_minute_and_leaves_them(
    restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = without_a_record(restarted=restarted)
    assert messages(s, "Held", "node-0")[-1] == SENTENCE
    before = len(s.store.history)
    s.run(300)
    assert sayings(s, "Held", before) in (4, 5)
    agent = [a for a in s.actors.values() if a.alive and a.node == "node-0"][-1]
    assert value(agent, "node_recovery_held", reason="marked") == 1
    assert Terminal(s, monkeypatch).run("explain", "node-0").out.startswith(f"node-0: {SENTENCE}")
    assert (s.record("node-0"), marked(s), calls(s)) == (None, ALL_MARKS, [])


def test_explain_says_so_where_the_agent_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    s = without_a_record()
    for actor in s.actors.values():
        s.kill(actor)
    assert Terminal(s, monkeypatch).run("explain", "node-0").out.startswith(f"node-0: {SENTENCE}; its agent")


def test_with_recovery_off_nothing_is_said_of_them() -> None:
    s = without_a_record()
    new_process(s, "node-0", on=False)
    before = len(s.store.history)
    s.run(130)
    assert sayings(s, "Held", before) == 0


def test_a_fault_that_shows_again_is_treated_as_any_other() -> None:
    s = without_a_record()
    s.fault("node-0")
    s.run(20)
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)


CORDONS = f"""{HEAD}limits: {{cooldown: 0s}}
rules:
  - name: device
    match: {{type: NeuronHealth}}
    remedy: [{{do: cordon}}]
  - name: link
    match: {{type: GpuNvlink}}
    after: 5m
    remedy: [{{do: replace}}]
    probation: 2m
""".encode()


@pytest.mark.parametrize("booted", [False, True])
def test_another_fault_that_ends_without_us_takes_them_off_no_node_that_a_person_had(
    booted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device may be as broken as before: nothing shows that any more."""
    s = cast(CORDONS)
    pod_of(s, "node-0")
    s.fault("node-0")
    s.run(10)
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page() + plugin_page(False, 0)
    s.run(120)
    delete(s, f"{RECORDS}/node-0")
    new_process(s, "node-0")
    s.run(10)
    s.pages["node-0"].body = npd_page() + plugin_page(True, 1)
    s.run(60)
    assert phase(s) is Phase.SUSPECT
    if booted:
        boot(s, "node-0", "boot-3")
    s.pages["node-0"].body = npd_page() + plugin_page(False, 1)
    s.run(300)
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)
    assert SENTENCE in messages(s, "HandedOver", "node-0")[-1]
    assert Terminal(s, monkeypatch).run("release", "node-0", "--yes").code == 0
    assert (phase(s), marked(s)) == (Phase.RELEASED, NO_MARKS)


def test_in_fleet_mode_the_controller_says_so_too() -> None:
    s = booted_in_fleet_mode()
    assert marked(s) == ALL_MARKS
    s.kill(s.actors["controller"])
    s.pages["node-0"].body = npd_page()
    delete(s, f"{RECORDS}/node-0")
    delete(s, f"{GATES}/fleet")
    s.fleet("another")
    renewed(s, NO_XID, UP, minutes=5)
    assert messages(s, "Held", "node-0")[-1] == SENTENCE
    assert marked(s) == ALL_MARKS


# ---------------------------------------------------------------- a person looks


def test_a_release_takes_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    s = without_a_record()
    said = Terminal(s, monkeypatch).run("release", "node-0", "--yes", "--reason", "reseated")
    assert (said.code, said.err) == (0, "")
    assert said.out == "node-0 is back in service, our marks are off: released by ada@laptop: reseated.\n"
    assert marked(s) == NO_MARKS
    assert messages(s, "Released", "node-0") == ["released by ada@laptop: reseated"]
    s.run(70)
    before = len(s.store.history)
    s.run(300)
    assert (sayings(s, "Held", before), marked(s)) == (0, NO_MARKS)


def test_a_release_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    s = without_a_record()
    terminal = Terminal(s, monkeypatch)
    said = terminal.run("release", "node-0", answer="n\n")
    assert said.code == 1
    assert "node-0 has marks of ours, and no record says why" in said.out + said.err
    assert marked(s) == ALL_MARKS


def test_it_is_refused_while_a_deleted_records_slot_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what was asked for. Its peers write it down as lost first."""
    s = at("after the call")
    delete(s, f"{RECORDS}/node-0")
    said = Terminal(s, monkeypatch).run("release", "node-0", "--yes")
    assert (said.code, said.out, marked(s)) == (1, "", ALL_MARKS)
    assert said.err.startswith("nothing was changed: the record of node-0 was deleted while it was open")
