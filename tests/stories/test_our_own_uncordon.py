"""A recovery takes its marks off, and something goes wrong just then: nobody else has uncordoned the node."""

from __future__ import annotations

from typing import Any

import pytest
from recovery_testkit.kubefaults import throttled
from recovery_testkit.stage import Killed, Stage

from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenery import RECORDS, pass_time, slots
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    NODES,
    boot,
    calls,
    cast,
    exclude,
    label,
    marked,
    new_process,
    phase,
    plugin_page,
    remove_pod,
    stubborn_pod,
)

ONE = "cooldown: 0s, budget: 1"
DRAINS = policy_file("{do: drain, within: 10m}, {do: replace}", match="type: GpuNvlink", limits=ONE)
REBOOTS = policy_file("{do: reboot}, {do: replace}", match="type: GpuNvlink", limits=ONE)


def draining() -> Stage:
    s = cast(DRAINS, plugin=True)
    stubborn_pod(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(8)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    return s


def dies_at(s: Stage, when: str) -> None:
    """The agent of node-0 dies before or after the patch that takes the marks off; or it goes on, and the API
    server asks for rest instead of taking its next write of the record."""

    def die(asked: Any, go: Any) -> Any:
        if when == "after the patch":
            go()
        raise Killed

    def rest(asked: Any, go: Any) -> Any:
        answer = go()
        s.api.fail_next(lambda a: a.method == "PUT" and a.path == f"{RECORDS}/node-0", throttled(20))
        return answer

    def takes_off(a: Any) -> bool:
        return a.method == "PATCH" and a.path == f"{NODES}/node-0" and "spec" in a.body

    s.api.fail_next(takes_off, rest if when == "never" else die)


WHEN = pytest.mark.parametrize("when", ["before the patch", "after the patch", "never"])


@WHEN
def test_a_fault_that_is_back_as_our_marks_come_off_is_treated(when: str) -> None:
    s = draining()
    dies_at(s, when)
    s.pages["node-0"].body = plugin_page(False, 1)
    pass_time(s, 20, until=lambda: marked(s) == NO_MARKS or not s.actors["agent of node-0"].alive, step=0.5)
    s.pages["node-0"].body = plugin_page(True, 2)
    if when != "never":
        new_process(s, "node-0")
    s.run(60)
    assert (phase(s), marked(s), slots(s)) == (Phase.RECOVERING, ALL_MARKS, ["node-0"])
    remove_pod(s)
    pass_time(s, 60, until=lambda: calls(s) != [])
    assert calls(s) == [("replace", "m-0")]


@WHEN
def test_an_exclusion_that_is_taken_back_as_our_marks_come_off_leaves_nothing_held(when: str) -> None:
    s = draining()
    exclude(s)
    dies_at(s, when)
    pass_time(s, 20, until=lambda: marked(s) == NO_MARKS or not s.actors["agent of node-0"].alive, step=0.5)
    label(s, "node-0", **{"noderecovery.dev/exclude": None})
    if when != "never":
        new_process(s, "node-0")
    s.run(90)
    assert (phase(s), marked(s), slots(s)) == (Phase.RECOVERING, ALL_MARKS, ["node-0"])


@WHEN
def test_a_fault_that_is_back_right_at_the_proof_goes_on_to_the_next_step(when: str) -> None:
    s = cast(REBOOTS, plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(8)
    boot(s, "node-0")
    s.pages["node-0"].body = plugin_page(False, 0)
    s.run(60)
    assert (phase(s), calls(s)) == (Phase.PROVING, [("reboot", "m-0")])
    dies_at(s, when)
    pass_time(s, 150, until=lambda: marked(s) == NO_MARKS or not s.actors["agent of node-0"].alive, step=0.5)
    s.pages["node-0"].body = plugin_page(True, 1)
    if when != "never":
        new_process(s, "node-0")
    pass_time(s, 60, until=lambda: len(calls(s)) > 1)
    assert (calls(s)[1:], marked(s)) == ([("replace", "m-0")], ALL_MARKS)
