"""A provider that gives no answer for long, or whose settings have to be mended first: who reads of it?"""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage

from recovery.errors import Retry
from recovery.model import Machine, Phase, Preflight, Step
from tests.stories.scenery import pass_time
from tests.stories.scenes import calls, controller, events_of, phase, record_sentences, the_record, value
from tests.stories.test_conditions import COUNT, policy, writes

BROKEN = "the inventory of BMCs is broken, and nothing is powered by guess: bmc.yaml:6: field x: missing"
REBOOT = "{do: drain, within: 10m, then: force}, {do: reboot, within: 30m}"


def waiting_for_it(count: int = 4) -> Stage:
    s = Stage(policy("{type: GpuNvlink}", REBOOT))
    s.nodes(count)
    s.provider.preflight_error = Retry(BROKEN)
    s.fleet()
    s.run(5)
    writes(s, COUNT)
    return s


def goes_on(s: Stage, minutes: int) -> None:
    for _ in range(minutes):
        s.run(60, step=5)
        writes(s, COUNT)


def test_what_a_recovery_in_the_queue_waits_for_is_on_its_record_once() -> None:
    """``status`` said of it "rule hardware says drain, reboot", for hours."""
    s = waiting_for_it()
    goes_on(s, 1)
    assert "unanswered" not in events_of(the_record(s)), "most are over in a moment"
    goes_on(s, 30)
    assert (calls(s), phase(s)) == ([], Phase.WAITING)
    assert the_record(s).sentence == f"GpuNvlinkBad: waiting: {BROKEN}"
    assert events_of(the_record(s)).count("unanswered") == 1
    assert value(controller(s), "node_recovery_held", reason="preflight") == 1
    s.provider.preflight_error = None
    goes_on(s, 2)
    assert calls(s) == [("reboot", "m-0")]


def test_what_one_waits_for_after_its_drain_is_there_too() -> None:
    s = waiting_for_it()
    s.provider.preflight_error = None
    s.add_pod("train", "node-0")
    s.run(3, step=1)
    s.provider.preflight_error = Retry(BROKEN)
    goes_on(s, 10)
    assert (calls(s), phase(s)) == ([], Phase.RECOVERING)
    assert the_record(s).sentence == f"GpuNvlinkBad: reboot: {BROKEN}"
    assert events_of(the_record(s)).count("unanswered") == 1
    s.provider.preflight_error = None
    goes_on(s, 2)
    assert calls(s) == [("reboot", "m-0")]


def test_one_that_waits_for_something_else_by_then_says_so_no_more() -> None:
    s = waiting_for_it()
    goes_on(s, 4)
    assert events_of(the_record(s))[-1] == "unanswered"
    for node in ("node-1", "node-2"):
        writes(s, COUNT, node=node)
    s.provider.preflight_error = None
    goes_on(s, 3)
    assert (calls(s), phase(s)) == ([], Phase.WAITING)
    assert record_sentences(s)[-1] == "GpuNvlinkBad: waiting for a slot of the budget: its provider answers"


@pytest.mark.parametrize("broken", [5, 40])
def test_those_that_wait_for_that_keep_no_other_waiting(broken: int) -> None:
    """Neither of its turn nor of a place in the queue, which has room for 24."""
    limits = b"cooldown: 0s, budget: 1, budgetPer: {}, brake: 100%, brakePer: {}"
    s = Stage(policy("{type: GpuNvlink}", REBOOT).replace(b"cooldown: 0s", limits))
    names, plain = s.nodes(50), s.provider.preflight

    def preflight(machine: Machine, action: Step) -> Preflight:
        if int(machine.id.removeprefix("m-")) < broken:
            raise Retry(BROKEN)
        return plain(machine, action)

    s.provider.preflight = preflight  # type: ignore[method-assign]
    s.fleet()
    s.run(5)
    for name in names[:broken]:
        writes(s, COUNT, node=name)
    s.run(150, step=5)
    writes(s, COUNT, node=names[broken])
    pass_time(s, 30, until=lambda: bool(calls(s)), step=1)
    assert calls(s) == [("reboot", f"m-{broken}")]
