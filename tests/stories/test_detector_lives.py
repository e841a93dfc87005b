"""A detector is started anew, or was sick from its start: what is news, and what a person has dealt with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from recovery_testkit.kubefaults import lost_request
from recovery_testkit.stage import Stage

from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.errors import Refused
from recovery.model import Phase
from recovery.quick import replace
from recovery.signals.memory import SETTLE
from tests.builders.policies import policy_file
from tests.stories.scenery import RECORDS, alive, sentences
from tests.stories.scenes import (
    PLUGIN,
    boot,
    calls,
    cast,
    counted_page,
    new_process,
    pause,
    phase,
    plugin_page,
    release_by_command,
    resume,
    stubborn_pod,
    swap_record,
    the_record,
)
from tests.stories.test_clocks import SetBack
from tests.stories.test_conditions import COUNT, COUNT_GOOD, writes

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


REPLACES_PLUGINS = policy_file("{do: replace, within: 30m}", match="type: GpuNvlink")


def paused_with_a_plugins_fault() -> Stage:
    s = cast(REPLACES_PLUGINS)
    pause(s)
    s.pages["node-0"].body = sick_page(True, 1)
    s.run(20)
    assert phase(s) is Phase.WAITING
    return s


def test_nothing_is_asked_for_a_plugins_fault_that_its_restarted_detector_does_not_state_yet() -> None:
    s = paused_with_a_plugins_fault()
    s.pages["node-0"].body = sick_page(False, 0)
    s.run(2)
    resume(s)
    s.run(60, step=1)
    assert (phase(s), calls(s)) == (Phase.WAITING, [])
    s.pages["node-0"].body = sick_page(True, 1)
    s.run(10)
    assert calls(s) == REPLACED


def rolled_out(s: Stage) -> None:
    """Agent and detector are started anew together. One check of the plugin has run; the one that found the
    fault is slow."""
    s.pages["node-0"].body = plugin_page(False, 0)
    new_process(s, "node-0")
    s.run(90, step=1)


def test_a_rollout_of_agent_and_detector_does_not_treat_a_released_node_again() -> None:
    s = cast(REPLACES_PLUGINS)
    s.provider.preflight_error = Refused("not allowed")
    s.pages["node-0"].body = plugin_page(True, 1)
    released(s)
    rolled_out(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(60, step=1)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


def test_a_rollout_of_agent_and_detector_begins_no_drain_anew() -> None:
    s = cast(PLUGIN)
    stubborn_pod(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(20)
    began = the_record(s).rung_since
    assert phase(s) is Phase.RECOVERING
    rolled_out(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(10)
    assert (phase(s), the_record(s).rung_since) == (Phase.RECOVERING, began)


def test_what_a_plugin_finds_gone_after_a_rollout_is_taken_back_after_five_minutes() -> None:
    s = cast(PLUGIN)
    stubborn_pod(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(20)
    rolled_out(s)
    assert phase(s) is Phase.RECOVERING
    s.run(SETTLE.total_seconds(), step=1)
    assert (phase(s), calls(s)) == (Phase.WITHDRAWN, [])


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


CORDONS = policy_file("{do: cordon}")
PLUGINS = policy_file("{do: cordon}", match="type: GpuNvlink")
DMA_ONCE, DMA_TWICE = (counted_page("DMA_ERROR", DMA_ERROR=count) for count in (1, 2))


def cordoned(policy: bytes = CORDONS, page: bytes = DMA_ONCE) -> Stage:
    """A person has the cordoned node, so that nothing changes its record until it is released."""
    s = cast(policy)
    s.pages["node-0"].body = page
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER
    return s


def stopped(s: Stage, seconds: float) -> None:
    """The agent of node-0 is stopped for so long; in the middle of it the kernel repeats its line."""
    (agent,) = (actor for actor in s.actors.values() if actor.node == "node-0")
    agent.alive = False
    s.run(seconds / 2, step=1)
    s.pages["node-0"].body = DMA_TWICE
    s.run(seconds / 2, step=1)
    agent.alive = True


def released_once_its_agent_had_seen_more() -> Stage:
    """The agent was stopped, and so found it in the very second of the release."""
    s = cordoned()
    stopped(s, 100)
    s.turns()
    release_by_command(s)
    return s


def test_what_an_agent_has_seen_before_it_read_the_open_record_is_what_is_released() -> None:
    s = released_once_its_agent_had_seen_more()
    s.run(120)
    assert phase(s) is Phase.RELEASED


def test_what_is_stated_in_the_second_of_the_release_and_after_it_is_a_new_fault() -> None:
    s = released_once_its_agent_had_seen_more()
    s.clock.advance(0.5)
    s.pages["node-0"].body = counted_page("DMA_ERROR", DMA_ERROR=3)
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER


def test_a_restored_record_dates_no_release_that_was_made_long_before() -> None:
    """etcd is restored to the release: what was stated since is a new fault."""
    s = cordoned()
    release_by_command(s)
    s.run(10)
    before = the_record(s)
    s.pages["node-0"].body = DMA_TWICE
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER
    swap_record(s, replace(before, resource_version=the_record(s).resource_version))
    s.run(120)
    assert phase(s) is Phase.HANDED_OVER


def test_a_detector_that_was_restarted_right_before_the_release_leaves_nothing_to_treat() -> None:
    """What it had counted is a memory of the agent's by then: the release is about that, too."""
    s = cordoned()
    s.pages["node-0"].body = DMA_TWICE
    s.run(10)
    s.pages["node-0"].body = counted_page()
    s.run(0.5)
    release_by_command(s)
    s.run(60)
    assert phase(s) is Phase.RELEASED
    assert [(f.counter, f.cleared) for f in the_record(s).acknowledged] == [(2, True)]
    s.pages["node-0"].body = DMA_TWICE
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER


def waiting(page: bytes) -> Stage:
    """All is paused, so that a record waits."""
    s = cast(CORDONS)
    pause(s)
    s.pages["node-0"].body = page
    s.run(20)
    assert phase(s) is Phase.WAITING
    return s


STARTED = pytest.mark.parametrize("started", ["", "1.7639e+09"], ids=["by its counts", "by its start"])
OPEN_OR_NOT = pytest.mark.parametrize("made", [cordoned, waiting], ids=["handed over", "waiting"])


def of_a_process(page: bytes, started: str) -> bytes:
    return started_at(started, page) if started else page


@OPEN_OR_NOT
@STARTED
def test_that_a_detector_was_restarted_before_the_release_is_known_to_the_next_agent(
    made: Callable[..., Stage], started: str
) -> None:
    """The kernel repeats its line once the agent is another one: the count is that of the first time."""
    s = made(page=of_a_process(DMA_ONCE, "1.7638e+09" if started else ""))
    s.pages["node-0"].body = of_a_process(counted_page(), started)
    s.run(10)
    release_by_command(s)
    s.pages["node-0"].body = of_a_process(DMA_ONCE, started)
    new_process(s, "node-0")
    resume(s)
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER


@OPEN_OR_NOT
@STARTED
def test_what_a_restarted_detector_had_stated_by_the_release_starts_nothing_under_the_next_agent(
    made: Callable[..., Stage], started: str
) -> None:
    s = made(page=of_a_process(DMA_TWICE, "1.7638e+09" if started else ""))
    s.pages["node-0"].body = of_a_process(counted_page(), started)
    s.run(10)
    s.pages["node-0"].body = of_a_process(DMA_ONCE, started)
    s.run(10)
    release_by_command(s)
    new_process(s, "node-0")
    resume(s)
    s.run(20)
    assert phase(s) is Phase.RELEASED


@pytest.mark.parametrize("heard", [True, False], ids=["an agent had looked", "none had"])
def test_what_is_stated_after_an_agent_has_looked_at_the_release_is_new_to_the_next_one(heard: bool) -> None:
    """It dies before it can write of it. Where none had looked, the next takes what it finds for released."""
    s = waiting(DMA_ONCE)
    (agent,) = (actor for actor in s.actors.values() if actor.node == "node-0")
    agent.alive = heard
    release_by_command(s)
    s.run(40)
    resume(s)
    assert the_record(s).release_heard is heard
    s.kill(agent)
    s.pages["node-0"].body = DMA_TWICE
    new_process(s, "node-0")
    s.run(20)
    assert (phase(s), the_record(s).release_heard) == (
        (Phase.HANDED_OVER, False) if heard else (Phase.RELEASED, True)
    )


def test_a_release_is_not_heard_of_while_the_page_of_its_fault_cannot_be_read() -> None:
    s = cordoned()
    s.pages["node-0"].error = OSError("away")
    s.run(15)
    release_by_command(s)
    s.run(70)
    assert not the_record(s).release_heard
    s.pages["node-0"].error = None
    s.run(70)
    assert (phase(s), the_record(s).release_heard) == (Phase.RELEASED, True)


def test_what_a_restarted_detector_hides_without_having_counted_it_is_no_new_fault_until_it_has() -> None:
    """A person has released both. A third, which is only told, is stated in the new life, and hides them."""
    both = counted_page("HBM_UNCORRECTABLE_ERROR", DMA_ERROR=1, HBM_UNCORRECTABLE_ERROR=1)
    s = cordoned(page=both)
    release_by_command(s)
    s.run(70)
    assert phase(s) is Phase.RELEASED
    s.pages["node-0"].body = counted_page("HANG_ON_COLLECTIVES", HANG_ON_COLLECTIVES=1)
    s.run(70)
    assert [f.reason for f in the_record(s).faults] == ["NeuronHasError_HANG_ON_COLLECTIVES"]
    assert phase(s) is Phase.HANDED_OVER
    s.pages["node-0"].body = counted_page("DMA_ERROR", DMA_ERROR=1, HANG_ON_COLLECTIVES=1)
    s.run(20)
    assert "NeuronHasError_DMA_ERROR" in [f.reason for f in the_record(s).faults]


ANEW = pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
HBM = "HBM_UNCORRECTABLE_ERROR"


@ANEW
def test_a_detector_that_restarts_while_a_record_waits_for_another_fault_states_a_new_one(anew: bool) -> None:
    """A person has released what it states again."""
    s = a_released_log_fault(DMA_ONCE)
    pause(s)
    s.pages["node-0"].body = counted_page(HBM, DMA_ERROR=1, **{HBM: 1})
    s.run(20)
    assert (phase(s), [f.reason for f in the_record(s).faults]) == (Phase.WAITING, [f"NeuronHasError_{HBM}"])
    s.pages["node-0"].body = counted_page()
    s.run(20)
    if anew:
        new_process(s, "node-0")
        s.run(5)
    s.pages["node-0"].body = DMA_ONCE
    s.run(20)
    assert "NeuronHasError_DMA_ERROR" in [f.reason for f in the_record(s).faults]


BOTH = PLUGINS + b"  - {name: fans, match: {type: Fans}, after: 0s, remedy: [{do: cordon}]}\n"


@ANEW
def test_a_plugin_that_was_well_while_a_record_waited_for_another_fault_states_a_new_one(anew: bool) -> None:
    """A person has released what it states again."""
    s = cordoned(BOTH, sick_page(True, 1) + sick_page(False, 0, "Fans"))
    release_by_command(s)
    s.run(10)
    assert phase(s) is Phase.RELEASED
    pause(s)
    s.pages["node-0"].body = sick_page(True, 1) + sick_page(True, 1, "Fans")
    s.run(20)
    assert (phase(s), [f.reason for f in the_record(s).faults]) == (Phase.WAITING, ["FansBad"])
    s.pages["node-0"].body = sick_page(False, 1, listed=True) + sick_page(True, 1, "Fans")
    s.run(60)
    s.pages["node-0"].body = sick_page(True, 2, listed=True) + sick_page(True, 1, "Fans")
    if anew:
        new_process(s, "node-0")
    s.run(20)
    assert "GpuNvlinkBad" in [f.reason for f in the_record(s).faults]


def booted_in_a_persons_hands(policy: bytes, before: bytes, after: bytes) -> Stage:
    """A person has a cordoned node whose page was ``before``. It boots, and its page is ``after`` now."""
    s = cordoned(policy, before)
    boot(s, "node-0")
    s.pages["node-0"].body = after
    new_process(s, "node-0")
    s.run(20)
    assert (phase(s), the_record(s).boot_id) == (Phase.HANDED_OVER, "m-0-boot-1")
    return s


KINDS = pytest.mark.parametrize(
    ("policy", "page", "well", "again"),
    [
        (CORDONS, DMA_ONCE, counted_page(), DMA_TWICE),
        (PLUGINS, sick_page(True, 1), sick_page(False, 0), b""),
    ],
    ids=["a log rule", "a plugin"],
)


@KINDS
def test_a_release_covers_what_a_boot_had_shown_again_that_the_record_does_not_know(
    policy: bytes, page: bytes, well: bytes, again: bytes
) -> None:
    s = booted_in_a_persons_hands(policy, page, well)
    s.pages["node-0"].body = page
    s.run(10)
    release_by_command(s)
    if not again:  # a plugin counts each of its runs, and that is no news
        s.pages["node-0"].body = sick_page(True, 2)
    s.run(120)
    assert phase(s) is Phase.RELEASED
    s.pages["node-0"].body = again or sick_page(True, 3)
    s.run(20)
    assert phase(s) is (Phase.HANDED_OVER if again else Phase.RELEASED)


@KINDS
def test_a_release_covers_what_a_boot_had_shown_again_though_the_agent_that_saw_it_ends_with_it(
    policy: bytes, page: bytes, well: bytes, again: bytes
) -> None:
    s = booted_in_a_persons_hands(policy, page, well)
    s.pages["node-0"].body = page
    s.run(10)
    (reason,) = (f.reason for f in the_record(s).faults)
    assert f"a detector that was started anew states {reason} again" in sentences(s)
    release_by_command(s)
    new_process(s, "node-0")
    s.run(120)
    assert phase(s) is Phase.RELEASED
    if again:  # of a plugin its word alone is no news
        s.pages["node-0"].body = again
        s.run(20)
        assert phase(s) is Phase.HANDED_OVER


def test_a_plugins_fault_that_was_well_before_the_release_is_a_new_one_to_the_next_agent() -> None:
    s = cordoned(PLUGINS, sick_page(True, 1, listed=True))
    s.pages["node-0"].body = sick_page(False, 1, listed=True)
    s.run(60)
    release_by_command(s)
    s.run(70)
    assert (phase(s), the_record(s).acknowledged) == (Phase.RELEASED, ())
    s.pages["node-0"].body = sick_page(True, 2, listed=True)
    new_process(s, "node-0")
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER


@KINDS
def test_what_a_boot_shows_only_after_the_release_is_a_new_fault(
    policy: bytes, page: bytes, well: bytes, again: bytes
) -> None:
    s = booted_in_a_persons_hands(policy, page, well)
    release_by_command(s)
    s.run(5)
    assert phase(s) is Phase.RELEASED
    s.pages["node-0"].body = page
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER


def test_a_plugins_next_run_makes_no_new_fault_of_what_was_found_soon_after_a_release() -> None:
    """It came again in the boot that a reboot had caused, and nobody had seen it by then. Who comes soon
    after the release finds it, and cannot write for a while."""
    s = cast(policy_file("{do: reboot, within: 10m}", match="type: GpuNvlink"), plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(30)
    assert calls(s) == [("reboot", "m-0")]
    s.pages["node-0"].body = plugin_page(False, 0)
    boot(s, "node-0")
    s.run(10)
    assert phase(s) is Phase.PROVING
    s.kill(alive(s, "node-0"))
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(60)
    release_by_command(s)
    s.run(20)
    s.api.fail_next(lambda asked: asked.method == "PUT" and RECORDS in asked.path, lost_request, times=1000)
    s.agent("node-0", name="the next one", place="another pod")
    for count in range(2, 8):
        s.pages["node-0"].body = plugin_page(True, count)
        s.run(20)
    s.api.heal()
    s.run(120)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [("reboot", "m-0")])


# ---------------------------------------------------------------- what a detector says in a new boot

NOTHING_YET = (
    b'problem_counter{reason="GpuNvlinkBad"} 0\nproblem_gauge{reason="GpuNvlinkBad",type="GpuNvlink"} 0\n'
)
ANOTHER = b'problem_counter{reason="Other"} 0\nproblem_gauge{reason="Other",type="Others"} 0\n'


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
@pytest.mark.parametrize(
    ("page", "why"),
    [
        (NOTHING_YET, "the check of GpuNvlink has had no result since the boot"),
        (ANOTHER, "npd shows nothing of GpuNvlink since the boot"),
    ],
    ids=["not run", "not there"],
)
def test_a_boot_is_not_proved_before_the_plugin_has_run_in_it(page: bytes, why: str, anew: bool) -> None:
    s = cast(policy_file(match="type: GpuNvlink", remedy="{do: reboot}"))
    s.pages["node-0"].body = plugin_page(False, 0)
    s.run(10)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]
    s.pages["node-0"].body = page
    boot(s, "node-0")
    if anew:
        new_process(s, "node-0")
    s.run(200)
    assert (phase(s), why in sentences(s)[-1]) == (Phase.PROVING, True)
    s.pages["node-0"].body = plugin_page(False, 0)
    s.run(200)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
def test_nor_by_the_good_condition_that_its_detector_writes_as_it_starts(anew: bool) -> None:
    """Page and condition are of one detector, and by default both are read."""
    s = cast(policy_file(match="type: GpuNvlink", remedy="{do: reboot}"))
    s.pages["node-0"].body = plugin_page(False, 0)
    writes(s, COUNT_GOOD)
    s.run(10)
    s.pages["node-0"].body = plugin_page(True, 1)
    writes(s, COUNT)
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]
    assert {f.source for f in the_record(s).faults} == {"npd", "conditions"}
    s.pages["node-0"].body = NOTHING_YET
    boot(s, "node-0")
    s.run(5)
    writes(s, COUNT_GOOD)
    if anew:
        new_process(s, "node-0")
    s.run(200)
    assert phase(s) is Phase.PROVING
    assert "the check of GpuNvlink has had no result since the boot" in sentences(s)[-1]
    s.pages["node-0"].body = plugin_page(False, 0)
    s.run(200)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


# ---------------------------------------------------------------- clocks that are set back


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
def test_a_plugin_is_heard_within_minutes_though_all_clocks_were_set_back_by_hours(anew: bool) -> None:
    """Its detector was started a moment before, which was hours to come by then."""
    s = Stage(policy_file("{do: cordon}, {do: replace}", match="type: GpuNvlink", after="20m"))
    clocks = SetBack(s, timedelta(hours=3))
    s.nodes(4)
    s.pages["node-0"].body = plugin_page(False, 0)
    s.agent("node-0")
    s.run(10)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(60)
    assert phase(s) is Phase.SUSPECT
    s.pages["node-0"].body = plugin_page(False, 0)
    if anew:
        new_process(s, "node-0")
    s.run(20)
    clocks.set_right()
    s.run(SETTLE.total_seconds() + 60, step=1)
    assert (phase(s), calls(s)) == (Phase.WITHDRAWN, [])
