"""Blind nodes count for the brake; any number of faults is told without writing for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.decide.remembered import SURE, WIDTH
from recovery.errors import Refused, Unreadable
from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenes import calls, cast, new_process, phase, swap_record, the_record

TEN = "cooldown: 0s, budget: 5, budgetPer: {}"
ALL = "cooldown: 0s, brake: 100%"


def test_nodes_of_which_nothing_is_known_for_ten_minutes_count_for_the_brake() -> None:
    s = cast(policy_file("{do: replace, within: 30m}", TEN), count=10, agents=10)
    for i in range(8):
        s.pages[f"node-{i}"].error = Unreadable("the connection was refused")
    s.run(12 * 60, step=5)
    s.fault("node-9")
    s.run(20)
    assert calls(s) == []
    assert "the brake is on: 9 of 10 nodes" in s.actors["agent of node-9"].sentences[-1]
    for i in range(8):
        s.pages[f"node-{i}"].error = None
    s.run(40)
    assert calls(s) == [("replace", "m-9")]


def test_a_node_counts_from_the_moment_that_nothing_was_known_of_it_for_ten_minutes() -> None:
    """And not from its agent's next look, which may be a minute later."""
    s = cast(agents=1)
    s.run(30)  # its next looks are once a minute from now on
    s.pages["node-0"].error = Unreadable("the connection was refused")
    s.run(10 * 60 + 3)
    assert phase(s) is Phase.HANDED_OVER


def test_a_blind_node_that_a_person_released_counts_no_more() -> None:
    s = cast(policy_file("{do: replace, within: 30m}", "cooldown: 0s, brake: 1"), agents=2)
    s.pages["node-0"].error = Unreadable("the connection was refused")
    s.run(11 * 60, step=5)
    swap_record(
        s, close(the_record(s), s.clock.true_time(), Event.RELEASED, "released by ada: being rebuilt")
    )
    s.fault("node-1")
    s.run(20)
    assert calls(s) == [("replace", "m-1")]


# ---------------------------------------------------------------- more faults than a record remembers


def many(count: int, kind: str = "T") -> bytes:
    lines = []
    for i in range(count):
        lines.append(f'problem_counter{{reason="R{i}"}} 1')
        lines.append(f'problem_gauge{{reason="R{i}",type="{kind}{i}"}} 1')
    return ("\n".join(lines) + "\n").encode()


def written(s: Stage, since: int) -> int:
    return sum(1 for w in s.store.history[since:] if "noderecoveries" in w.path or "/events" in w.path)


@pytest.mark.parametrize("count", [20, 21, 25, 105, 300])
def test_any_number_of_faults_that_are_only_told_is_told_and_then_quiet(count: int) -> None:
    s = cast(agents=1)
    s.pages["node-0"].body = many(count)
    s.run(10)
    since = len(s.store.history)
    s.run(50)
    assert written(s, since) <= 2  # once a minute that a person has it
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    r = the_record(s)
    assert len(r.faults) <= 20
    assert len(r.acknowledged) + len(r.acknowledged_more) // WIDTH >= min(count, SURE)
    since = len(s.store.history)
    new_process(s, "node-0")
    s.run(30)
    assert written(s, since) <= 2


def test_a_fault_to_treat_is_treated_beside_more_told_ones_than_can_be_remembered() -> None:
    s = cast(agents=2)
    s.pages["node-0"].body = many(300) + npd_page()
    s.run(20)
    s.pages["node-0"].body = many(300) + npd_page("DMA_ERROR")
    s.run(20)
    assert calls(s) == [("replace", "m-0")]


def test_one_release_is_about_all_the_faults_that_the_node_shows() -> None:
    s = cast(policy_file("{do: replace, within: 30m}", ALL, match='type: "T*"'), agents=2)
    s.provider.preflight_error = Refused("not allowed")
    s.pages["node-0"].body = many(60)
    s.run(30)
    assert phase(s) is Phase.HANDED_OVER
    swap_record(s, close(the_record(s), s.clock.true_time(), Event.RELEASED, "released by ada: a test bench"))
    s.provider.preflight_error = None
    s.run(120)
    new_process(s, "node-0")
    s.run(60)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


def test_a_record_with_digests_is_held_by_older_agents_and_read_by_this_one() -> None:
    s = cast(agents=1)
    s.pages["node-0"].body = many(30)
    s.run(20)
    body = s.store.request("GET", "/apis/noderecovery.dev/v1alpha1/noderecoveries/node-0").body
    assert body["status"]["version"] == 4
    r = the_record(s)
    assert replace(r, acknowledged_more="") != r
