"""How often a cloud is asked while nodes wait: it is shared by all nodes of an account, and throttles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recovery_testkit.stage import Stage

from recovery.agent import paced
from recovery.model import Machine, Preflight, Step
from tests.builders.policies import policy_file
from tests.stories.scenery import Cloud, judge, pass_time, records, to_the_end
from tests.stories.scenes import calls, cast, pause


def asked(stage: Stage, use: str) -> int:
    return sum(1 for kind, _ in stage.provider.reads if kind == use)


def submitted() -> Stage:
    """A replacement was asked for a moment ago, and nothing happens."""
    stage = cast(policy_file("{do: replace, within: 30m}"), agents=1)
    stage.fault("node-0")
    pass_time(stage, 30, until=lambda: bool(stage.provider.calls), step=0.5)
    assert calls(stage) == [("replace", "m-0")]
    stage.provider.reads.clear()
    return stage


def test_while_nothing_changes_after_a_call_the_cloud_is_asked_every_ten_seconds() -> None:
    stage = submitted()
    pass_time(stage, 600, step=0.5)
    assert 55 <= asked(stage, "poll") <= 70
    assert asked(stage, "preflight") == 0


def test_a_change_is_seen_within_the_longest_pause_and_then_asked_about_often_again() -> None:
    stage = submitted()
    pass_time(stage, 300, step=0.5)
    stage.provider.reads.clear()
    stage.provider.terminate("workers", "m-0")  # the Node and its agent stay for a while
    pass_time(stage, paced.LONGEST + 6, step=0.5)
    assert asked(stage, "poll") >= 3


def test_a_step_that_is_held_does_not_ask_the_cloud_in_every_cycle() -> None:
    stage = cast(policy_file("{do: drain, within: 1m, then: force}, {do: replace, within: 30m}"), agents=1)
    stage.fault("node-0")
    stage.provider.groups["workers"].desired += 1  # short by one: a replacement waits
    pass_time(stage, 30, step=0.5)
    stage.provider.reads.clear()
    pass_time(stage, 600, step=0.5)
    assert calls(stage) == []
    assert 50 <= asked(stage, "preflight") <= 75
    stage.provider.groups["workers"].desired -= 1
    pass_time(stage, paced.LONGEST + 15, step=0.5, until=lambda: bool(stage.provider.calls))
    assert calls(stage) == [("replace", "m-0")]


def test_a_cloud_that_takes_long_to_answer_is_not_asked_again_at_once() -> None:
    """Its answer was good from when it was asked for, and too old once it came: it was asked without a pause,
    and a controller came to nothing else."""
    stage = cast(policy_file("{do: drain, within: 1m, then: force}, {do: replace, within: 30m}"), agents=1)
    stage.fault("node-0")
    stage.provider.groups["workers"].desired += 1  # short by one: a replacement waits
    pass_time(stage, 30, step=0.5)
    began = stage.clock.monotonic()
    busy = slowed(stage, "preflight", 12.0)
    pass_time(stage, 600, step=0.5)
    assert busy() <= 0.6 * (stage.clock.monotonic() - began)


def test_a_cloud_that_takes_long_to_say_how_a_step_stands_is_not_asked_again_at_once() -> None:
    stage = submitted()
    began = stage.clock.monotonic()
    busy = slowed(stage, "poll", 12.0)
    pass_time(stage, 600, step=0.5)
    assert busy() <= 0.6 * (stage.clock.monotonic() - began)


def slowed(stage: Stage, use: str, takes: float) -> Callable[[], float]:
    """How many seconds the agents waited for answers that take so long."""
    ask, waited = getattr(stage.provider, use), [0.0]

    def slow(*asked: Any) -> Any:
        stage.clock.advance(takes)
        waited[0] += takes
        return ask(*asked)

    setattr(stage.provider, use, slow)
    return lambda: waited[0]


def test_the_cloud_is_asked_once_more_right_before_the_call_however_lately_it_was_asked() -> None:
    stage = cast(policy_file("{do: replace, within: 30m}"), agents=1)
    last: list[tuple[float, str]] = []
    read = stage.provider.preflight

    def noted(machine: Machine, action: Step) -> Preflight:
        last.append((stage.clock.monotonic(), machine.id))
        return read(machine, action)

    stage.provider.preflight = noted  # type: ignore[method-assign]
    at_the_call: list[float] = []
    stage.provider.before_call = lambda: at_the_call.append(stage.clock.monotonic() - last[-1][0])
    stage.fault("node-0")
    pass_time(stage, 30, until=lambda: bool(stage.provider.calls), step=0.5)
    assert at_the_call == [0.0]


def test_a_pause_asks_the_cloud_no_more_often() -> None:
    stage = cast(policy_file("{do: replace, within: 30m}"), agents=1)
    pause(stage)
    stage.fault("node-0")
    pass_time(stage, 300, step=0.5)
    assert (calls(stage), asked(stage, "preflight")) == ([], 0)


def test_a_replacement_is_found_as_well_as_before() -> None:
    stage = Stage(policy_file(limits="cooldown: 0s"))
    for name in stage.nodes(4):
        stage.agent(name)
    stage.run(0)
    stage.fault("node-0")
    to_the_end(stage, Cloud(stage), step=1.0)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
