"""A detector is started anew, or was sick from its start: what is news, and what a person has dealt with."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage

from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.errors import Refused
from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenes import (
    calls,
    cast,
    counted_page,
    new_process,
    phase,
    swap_record,
    the_record,
)

REPLACES = policy_file("{do: replace, within: 30m}")
REPLACED = [("replace", "m-0")]


def released(s: Stage) -> None:
    """The provider refuses, and a person gives the node back."""
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER
    swap_record(s, close(the_record(s), s.clock.true_time(), Event.RELEASED, "released by ada: looked at"))
    s.provider.preflight_error = None
    s.run(5)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


def a_released_log_fault(page: bytes) -> Stage:
    s = cast(REPLACES)
    s.provider.preflight_error = Refused("not allowed")
    s.pages["node-0"].body = page
    released(s)
    return s


def started_at(seconds: str, page: bytes) -> bytes:
    return page + f"process_start_time_seconds {seconds}\n".encode()


# ---------------------------------------------------------------- log rules


@pytest.mark.parametrize("restarted", [False, True], ids=["the agent goes on", "the agent restarts too"])
def test_the_same_count_in_a_new_life_of_the_detector_is_a_new_fault(restarted: bool) -> None:
    s = a_released_log_fault(counted_page("DMA_ERROR", DMA_ERROR=1))
    s.pages["node-0"].body = counted_page()
    if restarted:
        new_process(s, "node-0")
    s.run(10)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])
    if restarted:
        new_process(s, "node-0")
    s.run(60, step=1)
    s.pages["node-0"].body = counted_page("DMA_ERROR", DMA_ERROR=1)
    s.run(10)
    assert calls(s) == REPLACED


def test_an_agent_that_was_down_while_the_fault_came_anew_knows_the_life_that_ended() -> None:
    s = a_released_log_fault(counted_page("DMA_ERROR", DMA_ERROR=1))
    s.pages["node-0"].body = counted_page()
    s.run(5)
    assert [f.cleared for f in the_record(s).acknowledged] == [True]
    s.pages["node-0"].body = counted_page("DMA_ERROR", DMA_ERROR=1)
    new_process(s, "node-0")
    s.run(10)
    assert calls(s) == REPLACED


def test_another_process_of_the_detector_is_a_new_life_whatever_it_counts() -> None:
    page = counted_page("DMA_ERROR", DMA_ERROR=1)
    s = a_released_log_fault(started_at("1.7638e+09", page))
    new_process(s, "node-0")
    s.run(10)
    assert calls(s) == []
    s.pages["node-0"].body = started_at("1.7639e+09", page)
    new_process(s, "node-0")
    s.run(10)
    assert calls(s) == REPLACED


def test_a_detectors_restart_alone_treats_no_released_node_again() -> None:
    s = a_released_log_fault(counted_page("DMA_ERROR", DMA_ERROR=1))
    s.pages["node-0"].body = counted_page()
    writes = len(s.store.history)
    s.run(300, step=1)
    changed = [w for w in s.store.history[writes:] if "noderecoveries" in w.path]
    assert (phase(s), calls(s), len(changed)) == (Phase.RELEASED, [], 1)
    s.pages["node-0"].error = OSError("away")
    s.run(30, step=1)
    s.pages["node-0"].error = None
    s.run(30, step=1)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


def test_a_page_that_is_half_written_ends_no_life() -> None:
    """The detector writes 0 before it writes 1, also for a fault that goes on."""
    s = a_released_log_fault(counted_page("DMA_ERROR", DMA_ERROR=1))
    for _ in range(5):
        s.pages["node-0"].body = counted_page(DMA_ERROR=1)
        s.run(0.5)
        s.pages["node-0"].body = counted_page("DMA_ERROR", DMA_ERROR=1)
        s.run(5)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


def test_a_detector_that_restarts_while_a_fault_is_tolerated_does_not_begin_its_time_anew() -> None:
    s = cast(policy_file("{do: replace, within: 30m}", after="3m"))
    s.fault("node-0")
    s.run(100, step=1)
    s.pages["node-0"].body = counted_page()
    new_process(s, "node-0")
    s.run(70, step=1)
    assert (phase(s), calls(s)) == (Phase.SUSPECT, [])
    s.run(20, step=1)
    assert calls(s) == REPLACED


# ---------------------------------------------------------------- plugins


def sick_page(bad: bool, count: int, kind: str = "GpuNvlink", *, listed: bool = False) -> bytes:
    """A plugin whose healthy reason shows only where it was healthy since the detector's start."""
    healthy = f'problem_gauge{{reason="{kind}Good",type="{kind}"}} 0\n' if listed else ""
    return (
        f'problem_counter{{reason="{kind}Bad"}} {count}\n'
        f'problem_gauge{{reason="{kind}Bad",type="{kind}"}} {int(bad)}\n{healthy}'
    ).encode()


def a_released_plugin_fault(kind: str, *, listed: bool = False) -> Stage:
    s = cast(policy_file("{do: replace, within: 30m}", match=f"type: {kind}"), agents=0)
    s.pages["node-0"].body = sick_page(True, 1, kind, listed=listed)
    s.provider.preflight_error = Refused("not allowed")
    s.agent("node-0")
    released(s)
    return s


@pytest.mark.parametrize("kind", ["GpuNvlink", "Fans"], ids=["catalogued", "of nobody's knowledge"])
@pytest.mark.parametrize("restarted", [False, True], ids=["the agent goes on", "the agent restarts"])
def test_a_plugin_that_was_sick_at_the_start_counts_its_runs_and_not_its_faults(
    kind: str, restarted: bool
) -> None:
    s = a_released_plugin_fault(kind)
    for count in range(2, 8):
        s.run(30, step=1)
        s.pages["node-0"].body = sick_page(True, count, kind)
        if restarted:
            new_process(s, "node-0")
    s.run(20)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


@pytest.mark.parametrize("kind", ["GpuNvlink", "Fans"], ids=["catalogued", "of nobody's knowledge"])
@pytest.mark.parametrize("listed", [False, True], ids=["never healthy", "once healthy"])
def test_a_plugin_that_states_the_same_at_its_next_start_states_nothing_new(kind: str, listed: bool) -> None:
    s = a_released_plugin_fault(kind, listed=listed)
    for _ in range(3):
        s.pages["node-0"].body = sick_page(False, 0, kind)
        new_process(s, "node-0")
        s.run(12)
        s.pages["node-0"].body = sick_page(True, 1, kind)
        s.run(60, step=1)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


@pytest.mark.parametrize("kind", ["GpuNvlink", "Fans"], ids=["catalogued", "of nobody's knowledge"])
def test_a_plugin_that_was_well_in_between_states_a_new_fault(kind: str) -> None:
    s = a_released_plugin_fault(kind)
    s.pages["node-0"].body = sick_page(False, 1, kind, listed=True)
    s.run(60, step=1)
    s.pages["node-0"].body = sick_page(True, 2, kind, listed=True)
    s.run(10)
    assert calls(s) == REPLACED


# ---------------------------------------------------------------- what a release is about


def repeated(s: Stage, times: int) -> None:
    """The kernel's lines alternate, so that each is counted again."""
    for count in range(2, 2 + times):
        s.pages["node-0"].body = counted_page("DMA_ERROR", DMA_ERROR=count)
        s.run(10)


def in_a_persons_hands() -> Stage:
    s = cast(REPLACES)
    s.provider.preflight_error = Refused("not allowed")
    s.pages["node-0"].body = counted_page("DMA_ERROR", DMA_ERROR=1)
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER
    return s


def release_by_command(s: Stage) -> None:
    """The command closes the record. It cannot read the node's page."""
    swap_record(s, close(the_record(s), s.clock.true_time(), Event.RELEASED, "released by ada: looked at"))
    s.provider.preflight_error = None


@pytest.mark.parametrize("restarted", [False, True], ids=["the agent goes on", "the agent restarts"])
def test_a_release_covers_what_had_been_stated_again_by_then(restarted: bool) -> None:
    s = in_a_persons_hands()
    repeated(s, 3)
    release_by_command(s)
    if restarted:
        new_process(s, "node-0")
    s.run(120)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])
    assert [f.counter for f in the_record(s).acknowledged] == [4]


def test_what_is_stated_after_the_release_is_a_new_fault() -> None:
    s = in_a_persons_hands()
    repeated(s, 2)
    release_by_command(s)
    s.run(3)
    s.pages["node-0"].body = counted_page("DMA_ERROR", DMA_ERROR=4)
    s.run(20)
    assert calls(s) == REPLACED


def test_an_agent_that_was_away_for_long_takes_a_higher_count_for_a_new_fault() -> None:
    s = in_a_persons_hands()
    release_by_command(s)
    s.run(3)
    for actor in s.actors.values():
        actor.alive = False
    s.pages["node-0"].body = counted_page("DMA_ERROR", DMA_ERROR=2)
    s.run(600, step=5)
    new_process(s, "node-0")
    s.run(20)
    assert calls(s) == REPLACED
