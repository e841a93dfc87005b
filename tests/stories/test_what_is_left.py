"""One of two faults ends before anything destructive: what is left is treated as its own rule says."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.model import Phase
from recovery.signals.memory import SETTLE
from tests.builders.faults import DMA
from tests.builders.policies import HEAD
from tests.stories.scenery import sentences, slots
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    calls,
    cast,
    marked,
    messages,
    no_place,
    pause,
    phase,
    plugin_page,
    record_sentences,
    remove_pod,
    resume,
    stubborn_pod,
    the_record,
)
from tests.stories.test_conditions import EKS, renewed, writes

FULL = "{do: drain, within: 10m}, {do: replace, within: 30m}"
FORCED = "{do: drain, within: 10m, then: force}, {do: replace, within: 30m}"


def two_rules(second: str, after: str = "0s") -> bytes:
    return f"""{HEAD}limits: {{cooldown: 0s, budget: 1}}
rules:
  - {{name: nvlink, match: {{type: GpuNvlink}}, remedy: [{FULL}], probation: 2m}}
  - {{name: neuron, match: {{type: NeuronHealth}}, after: {after}, remedy: [{second}], probation: 2m}}
""".encode()


def shows(s: Stage, nvlink: bool, dma: bool) -> None:
    """The detector's page: the first fault is a plugin's, which takes it back; the second is latched."""
    page = plugin_page(nvlink, 1) + npd_page(*(["DMA_ERROR"] if dma else []))
    s.pages["node-0"].body = page


def first_ends(
    second: str, after: str = "0s", *, started: bool = False, together: bool = False, stays: bool = True
) -> Stage:
    """The first fault waits for the end of a pause, or for a pod that stays; the second one comes; then the
    first one is taken back. ``stays``: whether the detector states the second one to the end."""
    s = cast(two_rules(second, after), agents=0)
    for node in ("node-0", "node-1"):
        s.pages[node].body = plugin_page(False, 0) + npd_page()
        s.agent(node)
    s.run(5)
    stubborn_pod(s) if started else pause(s)
    shows(s, nvlink=True, dma=together)
    s.run(20)
    assert phase(s) is (Phase.RECOVERING if started else Phase.WAITING)
    shows(s, nvlink=True, dma=True)
    s.run(20)
    shows(s, nvlink=True, dma=stays)
    s.run(10)
    shows(s, nvlink=False, dma=stays)
    s.run(30 if stays else 30 + SETTLE.total_seconds())
    return s


def goes_on(s: Stage) -> None:
    remove_pod(s)
    resume(s)
    s.run(60)


def test_what_is_left_in_the_queue_gets_the_remedy_of_its_own_rule() -> None:
    s = first_ends("{do: cordon}")
    assert (the_record(s).rule, phase(s)) == ("neuron", Phase.WAITING)
    assert f"GpuNvlinkBad was taken back by its own source; {DMA}: rule neuron says cordon" in sentences(s)
    goes_on(s)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [], ALL_MARKS)
    assert [x.reason for x in the_record(s).starts] == [DMA]


def test_a_fault_that_comes_again_in_the_queue_is_a_new_one_and_its_earlier_rule_takes_over() -> None:
    s = first_ends("{do: cordon}")
    shows(s, nvlink=True, dma=True)
    s.run(5)
    assert the_record(s).rule == "nvlink"
    goes_on(s)
    assert calls(s) == [("replace", "m-0")]


WINDOW = "windows: [{from: 06:00, to: 08:00}]"


@pytest.mark.parametrize(
    ("limits", "rule"),
    [("cooldown: 0s", ""), (WINDOW, "urgent: true, ")],
    ids=["an earlier rule", "an urgent rule"],
)
def test_a_fault_that_ended_while_its_rule_tolerated_it_takes_nothing_over_when_it_would_be_due(
    limits: str, rule: str
) -> None:
    """The story begins at three, outside the window."""
    nvlink = f"  - {{name: nvlink, match: {{type: GpuNvlink}}, after: 5m, {rule}remedy: [{FULL}]}}\n"
    neuron = "  - {name: neuron, match: {type: NeuronHealth}, remedy: [{do: reboot}]}\n"
    rules = neuron + nvlink if rule else nvlink + neuron
    s = cast(f"{HEAD}limits: {{{limits}}}\nrules:\n{rules}".encode(), agents=0)
    for node in ("node-0", "node-1"):
        s.pages[node].body = plugin_page(False, 0) + npd_page()
        s.agent(node)
    s.run(5)
    pause(s) if not rule else None
    for nvlink_is_bad in (False, True, False):
        shows(s, nvlink=nvlink_is_bad, dma=True)
        s.run(60)
    s.run(300, step=2)
    assert (phase(s), the_record(s).rule) == (Phase.WAITING, "neuron")
    assert messages(s, "Confirmed") == [f"{DMA}: rule neuron says reboot"]


@pytest.mark.parametrize("started", [False, True], ids=["waiting", "draining"])
def test_what_is_tolerated_still_keeps_no_recovery_going_and_gets_a_record_of_its_own(started: bool) -> None:
    s = first_ends(FULL, "1h", started=started)
    goes_on(s)
    assert (phase(s), calls(s), marked(s), slots(s)) == (Phase.SUSPECT, [], NO_MARKS, [])
    assert no_place(s)
    assert any(m.startswith("GpuNvlinkBad was taken back") for m in messages(s, "Withdrawn"))
    assert f"{DMA}: tolerated for 60 min by rule neuron" in sentences(s)[-1]
    s.run(3600, step=5)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize("started", [False, True], ids=["waiting", "draining"])
def test_what_is_tolerated_and_only_remembered_waits_and_is_not_lost(started: bool) -> None:
    """Its detector was started anew, and states it no more: a record of its own would not come about."""
    s = first_ends(FULL, "1h", started=started, stays=False)
    goes_on(s)
    assert (phase(s), calls(s)) == (Phase.RECOVERING if started else Phase.WAITING, [])
    assert f"{DMA}: tolerated for 60 min by rule neuron" in sentences(s)[-1]
    assert DMA in [f.reason for f in the_record(s).faults]


def test_what_came_after_the_start_and_calls_for_less_is_a_persons() -> None:
    s = first_ends("{do: cordon}", started=True)
    goes_on(s)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [], ALL_MARKS)
    assert the_record(s).sentence == (
        f"handed over to a person: GpuNvlinkBad was taken back by its own source; {DMA} is there: "
        "the next step is drain, which its own rule neuron does not call for"
    )


def test_what_came_after_the_start_and_calls_for_the_same_step_goes_by_the_ladder() -> None:
    s = first_ends("{do: drain}, {do: replace}", started=True)
    goes_on(s)
    assert (the_record(s).rule, calls(s)) == ("nvlink", [("replace", "m-0")])


def test_what_was_there_at_the_start_goes_by_the_ladder_though_its_own_rule_says_less() -> None:
    s = first_ends("{do: cordon}", started=True, together=True)
    goes_on(s)
    assert calls(s) == [("replace", "m-0")]


TOLERANT = f"""{HEAD}sources: [npd, conditions]
limits: {{cooldown: 0s, budget: 1, budgetPer: {{}}, brake: 100%}}
rules:
  - {{name: nvlink, match: {{type: GpuNvlink}}, remedy: [{FORCED}]}}
  - {{name: eks, match: {{type: AcceleratedHardwareReady}}, after: 20m, remedy: [{FORCED}]}}
""".encode()


def test_a_drain_is_not_forced_by_the_time_in_which_nothing_was_stated() -> None:
    """What is left is tolerated, and its condition is Unknown: the drain was tried for seconds."""
    s = cast(TOLERANT, plugin=True)
    stubborn_pod(s)
    writes(s, EKS)
    s.run(3)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(10)
    assert phase(s) is Phase.RECOVERING
    s.pages["node-0"].body = plugin_page(False, 1)
    renewed(s, 22, ("AcceleratedHardwareReady", "Unknown", "NoAnswer"))
    assert calls(s) == []
    assert not any("going on without them" in said for said in record_sentences(s))
