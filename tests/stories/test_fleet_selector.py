"""The controller looks after the nodes of a label selector: one of them loses the label."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.stories.scenery import judge, pass_time, slots
from tests.stories.scenes import (
    NO_MARKS,
    calls,
    label,
    marked,
    pause,
    phase,
    record_sentences,
    release_by_command,
    remove_pod,
    resume,
    stubborn_pod,
    the_record,
)
from tests.stories.test_conditions import EKS, NEURON, policy, writes
from tests.stories.test_one_controller import Group, Silent
from tests.stories.test_power import Powered, dies


def begun(within: str = "15m") -> tuple[Stage, Group]:
    s = Stage(policy(remedy=f"{{do: drain, within: {within}, then: force}}, {{do: replace, within: 10m}}"))
    for i in range(4):
        s.add_node(f"node-{i}", f"m-{i}", pool="gpu")
    s.fleet(selector="pool=gpu")
    s.run(5)
    return s, Group(s)


def test_a_drain_ends_and_its_marks_go_when_its_node_leaves_the_selector_and_others_have_their_turn() -> None:
    s, cloud = begun()
    stubborn_pod(s)
    writes(s, EKS)
    pass_time(s, 60, cloud)
    assert (phase(s), slots(s)) == (Phase.RECOVERING, ["node-0"])
    label(s, "node-0", pool=None)
    pass_time(s, 60, cloud)
    assert not the_record(s).phase.open
    assert "none of FLEET_SELECTOR any more" in the_record(s).sentence
    assert (marked(s), slots(s), calls(s)) == (NO_MARKS, [], [])
    writes(s, EKS, node="node-3")
    pass_time(s, 60, cloud)
    assert calls(s) == [("replace", "m-3")]


def test_what_waits_behind_a_pause_starts_nothing_on_a_node_that_has_left_the_selector() -> None:
    s, cloud = begun()
    pause(s)
    writes(s, EKS)
    pass_time(s, 30, cloud)
    assert phase(s) is Phase.WAITING
    label(s, "node-0", pool=None)
    s.run(5)
    resume(s)
    pass_time(s, 600, cloud)
    assert (marked(s), slots(s), calls(s)) == (NO_MARKS, [], [])
    assert not the_record(s).phase.open


def test_what_was_asked_of_the_cloud_is_followed_to_its_end_though_the_node_has_left_the_selector() -> None:
    s, cloud = begun()
    writes(s, EKS)
    pass_time(s, 30, cloud, until=lambda: bool(calls(s)))
    label(s, "node-0", pool=None)
    pass_time(s, 900, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert the_record(s).phase is Phase.RECOVERED
    judge(s, faulty=["node-0"])


def test_a_node_that_registers_anew_has_not_left_the_selector() -> None:
    s, cloud = begun()
    stubborn_pod(s)
    writes(s, EKS)
    pass_time(s, 60, cloud)
    node = s.node("node-0")
    s.store.request("DELETE", "/api/v1/nodes/node-0")
    node["metadata"].pop("resourceVersion")
    node["metadata"].pop("uid")
    s.store.load(node)
    pass_time(s, 60, cloud)
    assert the_record(s).phase.open
    assert marked(s) != NO_MARKS


def test_a_record_of_a_node_that_was_never_one_of_ours_is_not_ended_as_one_that_has_left() -> None:
    """Its sidecar died in a drain, and nobody but the controller's sweep is there to go on."""
    s = Stage(policy(remedy="{do: drain, within: 15m, then: force}, {do: replace, within: 10m}"))
    for i in range(4):
        s.add_node(f"node-{i}", f"m-{i}", pool="other" if i == 0 else "gpu")
    stubborn_pod(s)
    sidecar = s.agent("node-0")
    s.run(5)
    writes(s, EKS)
    s.run(60)
    assert phase(s) is Phase.RECOVERING
    s.kill(sidecar)
    s.fleet(selector="pool=gpu")
    pass_time(s, 300, Group(s))
    assert the_record(s).phase.open
    assert marked(s) != NO_MARKS


def test_the_power_of_a_node_that_was_never_one_of_ours_is_not_cycled_by_the_sweep() -> None:
    """It would be by a concluder, where one runs. FLEET_SELECTOR says which nodes are the controller's."""
    s = Stage(policy(remedy="{do: drain, within: 15m}, {do: reboot, within: 10m}"))
    s.provider = Powered()
    for i in range(4):
        s.add_node(f"node-{i}", f"m-{i}", pool="other" if i == 0 else "gpu")
    stubborn_pod(s)
    s.agent("node-0")
    s.run(5)
    writes(s, NEURON)
    s.run(60)
    assert phase(s) is Phase.RECOVERING
    dies(s)
    s.fleet(selector="pool=gpu")
    s.run(30 * 60, step=2)
    assert (phase(s), calls(s), slots(s)) == (Phase.HANDED_OVER, [], [])


@pytest.mark.parametrize("why", ["another leader", "another selector"])
def test_a_leader_that_never_saw_the_node_ends_as_well_what_was_begun_before_it_left(why: str) -> None:
    """The leader that began it is dead by the time that the node is none of FLEET_SELECTOR."""
    s, cloud = begun()
    stubborn_pod(s)
    writes(s, EKS)
    pass_time(s, 60, cloud)
    assert (phase(s), slots(s)) == (Phase.RECOVERING, ["node-0"])
    s.kill(s.actors["controller"])
    if why == "another leader":
        label(s, "node-0", pool="other")
    else:
        for i in range(1, 4):
            label(s, f"node-{i}", team="research")
    s.fleet("next", selector="pool=gpu" if why == "another leader" else "team=research")
    pass_time(s, 60, cloud)
    assert "none of FLEET_SELECTOR any more" in the_record(s).sentence
    assert (marked(s), slots(s), calls(s)) == (NO_MARKS, [], [])


def test_so_does_one_that_finds_a_call_and_follows_that_to_its_end() -> None:
    s, cloud = begun()
    writes(s, EKS)
    pass_time(s, 30, cloud, until=lambda: bool(calls(s)))
    s.kill(s.actors["controller"])
    label(s, "node-0", pool="other")
    s.fleet("next", selector="pool=gpu")
    pass_time(s, 900, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert the_record(s).phase is Phase.RECOVERED
    judge(s, faulty=["node-0"])


def test_what_a_sidecar_of_long_ago_did_makes_the_next_record_none_of_a_sidecar() -> None:
    """Its Lease of the node's record is there for good."""
    s, cloud = begun()
    s.kill(s.actors["controller"])
    stubborn_pod(s)
    sidecar = s.agent("node-0")
    writes(s, EKS)
    s.run(30)
    release_by_command(s)
    s.run(5)
    s.kill(sidecar)
    s.run(120)
    s.fleet("second", selector="pool=gpu")
    s.run(30)
    writes(s, NEURON)
    pass_time(s, 60, cloud)
    assert the_record(s).phase.open
    s.kill(s.actors["second"])
    label(s, "node-0", pool="other")
    s.fleet("third", selector="pool=gpu")
    pass_time(s, 120, cloud)
    assert "none of FLEET_SELECTOR any more" in the_record(s).sentence
    assert (marked(s), slots(s)) == (NO_MARKS, [])


def test_a_node_that_has_left_the_selector_is_not_replaced_though_no_watch_has_told_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The drain is over in the same moment. An API server whose own watch is late sends bookmarks."""
    s = Stage(policy(remedy="{do: drain, within: 15m, then: force}, {do: replace, within: 10m}"))
    s.wrap_streams = Silent
    for i in range(4):
        s.add_node(f"node-{i}", f"m-{i}", pool="gpu")
    stubborn_pod(s)
    s.fleet(selector="pool=gpu")
    s.run(5)
    writes(s, EKS)
    s.run(60)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [])
    monkeypatch.setattr(Silent, "of", "/nodes")
    label(s, "node-0", pool="other")
    s.run(5)
    remove_pod(s)
    s.run(60)
    assert "none of FLEET_SELECTOR any more" in the_record(s).sentence
    assert (marked(s), slots(s), calls(s)) == (NO_MARKS, [], [])


@pytest.mark.parametrize("sick", [False, True])
def test_a_replacement_that_registers_under_the_old_name_without_the_label_is_proved_by_its_node(
    sick: bool,
) -> None:
    """Whoever labels the nodes has not come to it, or the pool is another one by now."""
    s, cloud = begun()
    writes(s, EKS)
    pass_time(s, 30, until=lambda: bool(calls(s)))
    s.replace_machine("node-0", "m-0", "node-0", "m-9")
    if sick:
        writes(s, EKS)
    pass_time(s, 300, cloud, step=1)
    assert not any("no such Node" in line for line in record_sentences(s))
    if sick:
        assert phase(s) is Phase.PROVING, "a condition says what is wrong with it"
        return
    assert phase(s) is Phase.RECOVERED
    assert the_record(s).sentence.endswith("by its Node alone: it is none of FLEET_SELECTOR")
