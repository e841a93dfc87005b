"""What becomes of a fault: none is lost (law 6), none is acted on that is not known (law 3)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.errors import Unreadable
from recovery.model import Phase
from tests.builders.faults import DMA, HANG, HBM
from tests.builders.policies import HEAD, policy_file
from tests.stories.scenery import alive, sentences
from tests.stories.scenes import (
    NO_MARKS,
    PLUGIN,
    REBOOTS,
    at,
    boot,
    calls,
    cast,
    counted_page,
    events_of,
    marked,
    messages,
    new_process,
    no_place,
    pause,
    phase,
    plugin_page,
    remove_pod,
    resume,
    sayings,
    says,
    stubborn_pod,
    swap_record,
    the_record,
    value,
)

GONE = Unreadable("connection refused")
ANY_AND_TOLD = policy_file(match="type: NeuronHealth, reason: NeuronHasError_HBM_*")


def reasons(s: Stage) -> list[str]:
    return [f.reason for f in the_record(s).faults]


# ---------------------------------------------------------------- masked, restarted, unreadable


def test_a_fault_that_another_one_hides_on_the_page_is_treated() -> None:
    s = cast()
    s.pages["node-0"].body = counted_page(
        "HANG_ON_COLLECTIVES", HANG_ON_COLLECTIVES=1, HBM_UNCORRECTABLE_ERROR=1
    )
    s.run(5)
    assert calls(s) == [("replace", "m-0")]
    assert HBM in reasons(s)


def test_a_fault_that_is_hidden_later_keeps_its_record() -> None:
    s = cast(policy_file(after="30s"))
    s.pages["node-0"].body = counted_page("HBM_UNCORRECTABLE_ERROR", HBM_UNCORRECTABLE_ERROR=1)
    s.run(20)
    s.pages["node-0"].body = counted_page(
        "HANG_ON_COLLECTIVES", HANG_ON_COLLECTIVES=1, HBM_UNCORRECTABLE_ERROR=1
    )
    s.run(15)
    assert calls(s) == [("replace", "m-0")]


def test_a_detectors_restart_takes_nothing_back() -> None:
    s = at("draining")
    s.pages["node-0"].body = npd_page()
    s.run(60)
    assert phase(s) is Phase.RECOVERING
    remove_pod(s)
    s.run(5)
    assert calls(s) == [("replace", "m-0")]


def test_an_agents_restart_together_with_its_detectors_takes_nothing_back() -> None:
    s = at("draining")
    s.pages["node-0"].body = npd_page()
    new_process(s, "node-0")
    s.run(20)
    remove_pod(s)
    s.run(5)
    assert calls(s) == [("replace", "m-0")]


def test_an_unreadable_page_delays_the_call_until_it_is_back() -> None:
    s = at("before the call")
    s.run(120)
    assert calls(s) == []
    assert "replace waits for a fresh signal" in s.actors["agent of node-0"].sentences[-1]
    s.pages["node-0"].error = None
    s.run(3)
    assert calls(s) == [("replace", "m-0")]


def test_a_page_that_never_comes_back_is_a_persons() -> None:
    s = at("before the call")
    s.run(31 * 60, step=10)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    assert the_record(s).sentence.startswith(
        "handed over to a person: replace could not be asked for within 30 min"
    )


def test_a_page_that_cannot_be_read_starts_nothing() -> None:
    s = cast()
    s.pages["node-0"].error = GONE
    s.run(300, step=2)
    assert (s.record("node-0"), calls(s)) == (None, [])
    assert value(s.actors["agent of node-0"], "node_recovery_signal_unknown", source="npd") == 1


# ---------------------------------------------------------------- in the queue


def test_a_fault_in_the_queue_that_may_be_gone_waits_for_its_page_and_then_for_a_person() -> None:
    """Its source could take it back, and is silent: nothing is drained for a fault that may be gone."""
    s = cast(PLUGIN, plugin=True)
    pause(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(10)
    assert phase(s) is Phase.WAITING
    s.pages["node-0"].error = GONE
    s.run(20)
    resume(s)
    asked = len(s.provider.reads)
    s.run(60, step=1)
    assert (phase(s), calls(s), marked(s)) == (Phase.WAITING, [], NO_MARKS)
    assert len(s.provider.reads) == asked
    assert "waiting: node-problem-detector's page cannot be read" in alive(s, "node-0").sentences[-1]
    s.run(600, step=2)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [], NO_MARKS)
    assert "GpuNvlinkBad was seen, and nothing is known of it since" in the_record(s).sentence


def test_a_fault_in_the_queue_starts_once_its_page_says_that_it_is_there() -> None:
    s = cast(PLUGIN, plugin=True)
    pause(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(10)
    s.pages["node-0"].error = GONE
    s.run(20)
    resume(s)
    s.run(60, step=1)
    s.pages["node-0"].error = None
    s.run(10)
    assert calls(s) != []


# ---------------------------------------------------------------- withdrawn


@pytest.mark.parametrize("rules", [PLUGIN, policy_file(match="type: GpuNvlink", after="10m")])
def test_a_plugins_fault_that_clears_before_the_call_is_withdrawn(rules: bytes) -> None:
    s = cast(rules, plugin=True)
    stubborn_pod(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(5)
    assert phase(s) in (Phase.SUSPECT, Phase.RECOVERING)
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(10)
    assert (phase(s), marked(s), no_place(s), calls(s)) == (Phase.WITHDRAWN, NO_MARKS, True, [])
    assert "GpuNvlinkBad was taken back by its own source" in the_record(s).sentence


def test_a_fault_that_flaps_is_news_each_time() -> None:
    s = cast(PLUGIN, plugin=True)
    stubborn_pod(s)
    for count in (1, 2):
        s.pages["node-0"].body = plugin_page(True, count)
        s.run(5)
        assert phase(s) is Phase.RECOVERING
        s.pages["node-0"].body = plugin_page(False, count)
        s.run(10)
        assert phase(s) is Phase.WITHDRAWN
    assert events_of(the_record(s)).count("started") == 2


def test_a_fault_that_clears_after_the_call_is_not_withdrawn() -> None:
    s = cast(PLUGIN, plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(5)
    assert len(calls(s)) == 1
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(20)
    assert phase(s) is Phase.RECOVERING


# ---------------------------------------------------------------- several


def test_a_fault_in_the_middle_is_appended_and_does_not_restart_the_ladder() -> None:
    s = at("draining")
    began = the_record(s).rung_since
    s.pages["node-0"].body = counted_page("HBM_UNCORRECTABLE_ERROR", DMA_ERROR=1, HBM_UNCORRECTABLE_ERROR=1)
    s.run(5)
    r = the_record(s)
    assert reasons(s) == [DMA, HBM]
    assert (r.rung, r.rung_since, r.phase) == (0, began, Phase.RECOVERING)
    remove_pod(s)
    s.run(5)
    assert calls(s) == [("replace", "m-0")]
    assert any(HBM in sentence for sentence in messages(s, "FaultSeen"))


def test_a_fault_that_no_rule_matches_is_told_and_told_again() -> None:
    s = cast(ANY_AND_TOLD)
    s.fault("node-0")
    s.run(190, step=1)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [], NO_MARKS)
    assert says(s, "HandedOver", f"{DMA}: no rule of the policy speaks of it")
    assert sayings(s, "HandedOver") >= 3


# ---------------------------------------------------------------- not this node's fault


def test_a_hang_on_collectives_is_told_and_its_node_is_left_in_service() -> None:
    s = cast(None)
    s.fault("node-0", "HANG_ON_COLLECTIVES")
    s.run(200, step=1)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [], NO_MARKS)
    assert says(s, "HandedOver", f"{HANG}: rule neuron-hang-on-collectives: notify")


def test_a_broad_rule_does_not_touch_the_node_that_waits_for_another() -> None:
    s = cast(policy_file(match="type: NeuronHealth, reason: 'NeuronHasError_*'"))
    s.fault("node-0", "HANG_ON_COLLECTIVES")
    s.run(30)
    assert (calls(s), marked(s)) == ([], NO_MARKS)
    assert says(s, "HandedOver", f"{HANG}: it is not this node's own fault")


def test_a_node_that_hung_is_treated_when_it_breaks_itself() -> None:
    s = cast(None)
    s.fault("node-0", "HANG_ON_COLLECTIVES")
    s.run(120, step=1)
    s.pages["node-0"].body = counted_page("DMA_ERROR", HANG_ON_COLLECTIVES=1, DMA_ERROR=1)
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


def test_nodes_that_hang_do_not_brake_the_broken_ones_recovery() -> None:
    s = cast(None, 6, agents=6)
    for node in ("node-1", "node-2", "node-3", "node-4", "node-5"):
        s.fault(node, "HANG_ON_COLLECTIVES")
    s.run(5)
    s.fault("node-0")
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


# ---------------------------------------------------------------- unknown for long


def test_ten_minutes_of_silence_are_told_and_taken_back_when_the_page_returns() -> None:
    s = cast(None)
    s.pages["node-0"].error = GONE
    s.run(590, step=2)
    assert s.record("node-0") is None
    s.run(100, step=2)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [], NO_MARKS)
    assert says(s, "HandedOver", "nothing is known from npd: node-problem-detector's page cannot be read")
    s.pages["node-0"].error = None
    s.run(70, step=1)
    assert phase(s) is Phase.WITHDRAWN


def test_a_second_silence_is_told_like_the_first() -> None:
    s = cast(None)
    for _ in range(2):
        s.pages["node-0"].error = GONE
        s.run(720, step=2)
        assert phase(s) is Phase.HANDED_OVER
        s.pages["node-0"].error = None
        s.run(70, step=1)
        assert phase(s) is Phase.WITHDRAWN


# ---------------------------------------------------------------- acknowledged


def released(s: Stage) -> None:
    """A person takes the record off this program's hands."""
    r = the_record(s)
    swap_record(s, replace(r, phase=Phase.RELEASED, acknowledged=r.faults))
    for actor in s.actors.values():
        if actor.node == "node-0":
            s.kill(actor)
    new_process(s, "node-0")


def at_release() -> Stage:
    s = cast(ANY_AND_TOLD)
    s.fault("node-0", "HBM_UNCORRECTABLE_ERROR")
    s.provider.groups["workers"].in_service.remove("m-0")
    s.run(5)
    assert phase(s) is Phase.HANDED_OVER
    s.provider.groups["workers"].in_service.append("m-0")
    released(s)
    return s


def test_a_released_node_is_not_treated_again_for_the_same_fault() -> None:
    s = at_release()
    s.run(300, step=1)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


def test_a_released_node_is_treated_when_the_fault_is_counted_again() -> None:
    s = at_release()
    s.run(10)
    s.pages["node-0"].body = counted_page("HBM_UNCORRECTABLE_ERROR", HBM_UNCORRECTABLE_ERROR=2)
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


def test_a_released_node_is_treated_when_the_fault_is_there_after_a_boot() -> None:
    s = at_release()
    s.run(10)
    boot(s, "node-0")
    s.run(70, step=1)
    assert calls(s) == [("replace", "m-0")]


def test_a_node_that_recovered_by_a_reboot_is_not_treated_for_the_old_boots_fault() -> None:
    s = at("proving")
    s.run(300, step=1)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


def test_a_recovered_node_is_treated_for_a_new_fault() -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(5)
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(200, step=1)
    assert phase(s) is Phase.RECOVERED
    s.fault("node-0", "HBM_UNCORRECTABLE_ERROR")
    s.run(10)
    assert calls(s) == [("reboot", "m-0"), ("reboot", "m-0")]


# ---------------------------------------------------------------- the first look


def test_a_bare_counter_on_the_first_page_is_the_baseline() -> None:
    s = Stage(policy_file())
    s.nodes(4)
    s.pages["node-0"].body = counted_page(DMA_ERROR=3)
    s.agent("node-0")
    s.run(60)
    assert (s.record("node-0"), calls(s)) == (None, [])


def test_a_live_gauge_on_the_first_page_is_a_fault() -> None:
    s = Stage(policy_file())
    s.nodes(4)
    s.pages["node-0"].body = counted_page("DMA_ERROR", DMA_ERROR=3)
    s.agent("node-0")
    s.run(5)
    assert calls(s) == [("replace", "m-0")]


# ---------------------------------------------------------------- a fault that comes while its node waits

TWO_RULES = f"""{HEAD}limits: {{cooldown: 0s}}
rules:
  - {{name: dma, match: {{reason: NeuronHasError_DMA_ERROR}}, after: AFTER, remedy: [{{do: replace}}]}}
  - {{name: hbm, match: {{reason: "*_HBM_*"}}, remedy: [{{do: reboot}}, {{do: replace}}]}}
"""


HARD, SOFT = "DMA_ERROR", "HBM_UNCORRECTABLE_ERROR"


def waiting_for_two(first: str, second: str, after: str = "0s", pause_for: float = 60.0) -> Stage:
    """The first fault waits for the end of a pause, and the second one is stated meanwhile."""
    s = cast(TWO_RULES.replace("AFTER", after).encode())
    pause(s)
    s.fault("node-0", first)
    s.run(5)
    assert phase(s) is Phase.WAITING
    s.fault("node-0", first, second)
    s.run(pause_for)
    resume(s)
    s.run(15)
    return s


def test_the_earliest_rule_of_all_faults_at_the_start_chooses_the_ladder() -> None:
    s = waiting_for_two(SOFT, HARD)
    assert (the_record(s).rule, calls(s)) == ("dma", [("replace", "m-0")])
    assert reasons(s) == [HBM, DMA]


def test_a_later_rule_changes_no_ladder_while_its_node_waits() -> None:
    s = waiting_for_two(HARD, SOFT)
    assert (the_record(s).rule, calls(s)) == ("dma", [("replace", "m-0")])


def test_a_fault_that_is_tolerated_still_at_the_start_changes_no_ladder() -> None:
    s = waiting_for_two(SOFT, HARD, after="10m")
    assert (the_record(s).rule, calls(s)) == ("hbm", [("reboot", "m-0")])


def test_after_the_start_no_rule_changes_the_ladder() -> None:
    s = waiting_for_two(SOFT, SOFT, pause_for=1)
    s.fault("node-0", HARD, SOFT)
    s.run(30)
    assert (the_record(s).rule, calls(s)) == ("hbm", [("reboot", "m-0")])


def test_a_released_node_whose_page_still_shows_the_fault_is_not_called_free_of_problems() -> None:
    s = at_release()
    s.run(60)
    said = [a for a in s.actors.values() if a.node == "node-0"][-1].sentences[-1]
    assert said.startswith(f"no new problem: {HBM} was dealt with before, and is stated still")


def test_what_comes_while_a_person_has_the_node_is_named_to_them() -> None:
    """Nothing is done about it before the release, so who releases the node has to know."""
    hbm = b"  - {name: hbm, match: {reason: %s}, remedy: [{do: cordon}]}\n" % HBM.encode()
    s = cast(policy_file().replace(b"rules:\n", b"rules:\n" + hbm))
    s.fault("node-0", "HBM_UNCORRECTABLE_ERROR")
    s.run(5)
    assert phase(s) is Phase.HANDED_OVER
    s.fault("node-0", "HBM_UNCORRECTABLE_ERROR", "DMA_ERROR")
    s.run(150)
    assert sentences(s)[-1].endswith(f"; seen since: {DMA}")
    assert any(m.endswith(f"; seen since: {DMA}") for m in messages(s, "HandedOver"))
