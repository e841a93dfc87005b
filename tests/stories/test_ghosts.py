"""A node that was handed over counts for the brake until its machine is gone, and no longer."""

from __future__ import annotations

from datetime import timedelta

import pytest
from recovery_testkit.provider import FakeProvider
from recovery_testkit.stage import Stage, npd_page

from recovery.errors import Refused, Retry
from recovery.model import Gone, Machine, Phase
from tests.builders.policies import policy_file
from tests.stories.scenery import pass_time, records, slots
from tests.stories.scenes import boot, calls, cast, messages, patch_node, phase, ready, the_record

REPLACES = policy_file(
    "{do: replace, within: 30m}", limits="cooldown: 0s, budget: 1, budgetPer: {}, brakePer: {}"
)
SICK = 6


class Blind(FakeProvider):
    """A provider that cannot tell whether a machine still exists."""

    gone = None  # type: ignore[assignment]


class Throttled(FakeProvider):
    def gone(self, machine: Machine) -> str | None:
        raise Retry("Throttling: rate exceeded")


def handed_over(provider: FakeProvider | None = None, *, concluder: bool) -> Stage:
    """Six of sixteen nodes are in a person's hands."""
    s = cast(REPLACES, 16, agents=16, provider=provider)
    if concluder:
        s.concluder()
    s.provider.preflight_error = Refused("capacity reservation")
    for i in range(SICK):
        s.fault(f"node-{i}")
        s.run(6, step=1)
    s.provider.preflight_error = None
    assert [phase(s, f"node-{i}") for i in range(SICK)] == [Phase.HANDED_OVER] * SICK
    return s


def terminate(s: Stage) -> None:
    """A person ends the machines in the cloud, and the Nodes go with them."""
    for i in range(SICK):
        s.kill(s.actors[f"agent of node-{i}"])
        s.delete_node(f"node-{i}")
        s.provider.terminate("workers", f"m-{i}")
        s.provider.groups["workers"].desired -= 1


def phases(s: Stage) -> set[Phase]:
    return {phase(s, f"node-{i}") for i in range(SICK)}


@pytest.mark.parametrize("concluder", [True, False], ids=["with a concluder", "agents alone"])
def test_handed_over_nodes_whose_machines_a_person_ended_hold_the_brake_no_longer(concluder: bool) -> None:
    s = handed_over(concluder=concluder)
    terminate(s)
    s.run(20)
    s.fault("node-9")
    pass_time(s, 400, until=lambda: bool(calls(s)))
    assert calls(s) == [("replace", "m-9")]
    assert phases(s) == {Phase.SUPERSEDED}
    assert the_record(s).sentence == "m-0 is in no group any more: the hand-over of m-0 has ended"
    assert messages(s, "Superseded") == [the_record(s).sentence]


@pytest.mark.parametrize("provider", [Blind, Throttled])
def test_where_no_provider_can_tell_a_node_that_is_gone_for_an_hour_counts_no_more(
    provider: type[FakeProvider],
) -> None:
    s = handed_over(provider(), concluder=True)
    terminate(s)
    s.run(3000, step=10)
    assert phases(s) == {Phase.HANDED_OVER}, "fifty minutes prove nothing"
    s.run(900, step=10)
    assert phases(s) == {Phase.SUPERSEDED}
    assert the_record(s).sentence == "Node node-0 has been gone for 60 min: the hand-over of m-0 has ended"


def test_a_node_that_comes_back_within_the_hour_is_still_in_a_persons_hands() -> None:
    s = handed_over(Blind(), concluder=True)
    s.kill(s.actors["agent of node-0"])
    s.delete_node("node-0")
    s.run(1800, step=10)
    assert the_record(s).node_gone_since is not None
    s.register("node-0", "m-0")
    s.agent("node-0", name="node-0 again")
    s.run(180, step=5)
    assert the_record(s).node_gone_since is None
    s.delete_node("node-0")
    s.run(3000, step=10)
    assert phase(s) is Phase.HANDED_OVER


def test_a_machine_that_is_there_counts_though_its_node_is_gone_or_not_ready() -> None:
    s = handed_over(concluder=True)
    s.delete_node("node-0")
    ready(s, "node-1", "Unknown")
    s.run(600, step=5)
    assert {phase(s, f"node-{i}") for i in range(2)} == {Phase.HANDED_OVER}
    s.fault("node-9")
    s.run(60, step=1)
    assert calls(s) == []


def test_a_machine_that_is_gone_counts_no_more_though_its_node_stayed_behind() -> None:
    s = handed_over(concluder=True)
    ready(s, "node-1", "Unknown")
    s.provider.terminate("workers", "m-1")
    s.kill(s.actors["agent of node-1"])
    s.run(150, step=5)
    assert phase(s, "node-1") is Phase.SUPERSEDED


def test_a_machine_that_somebody_ended_during_its_reboot_calls_no_person_and_holds_no_slot() -> None:
    """As an Auto Scaling group does with an instance whose health check fails while it boots."""
    s = cast(policy_file("{do: reboot, within: 30m}", limits="cooldown: 0s, budgetPer: {}"), 4, agents=4)
    s.concluder()
    s.fault("node-0")
    s.run(5, step=1)
    assert calls(s) == [("reboot", "m-0")]
    s.provider.poll = lambda *_: Gone("m-0 is terminated: it will not boot again")  # type: ignore[method-assign]
    s.run(120, step=5)
    assert phase(s) is Phase.RECOVERING, "its Node is there"
    s.kill(s.actors["agent of node-0"])
    s.delete_node("node-0")
    s.run(90, step=5)
    assert phase(s) is Phase.RECOVERING, "nothing proves that the machine is gone"
    s.provider.terminate("workers", "m-0")
    s.run(90, step=5)
    assert the_record(s).sentence == (
        "m-0 is in no group any more, and its Node node-0 is gone: there is nothing left to reboot"
    )
    assert phase(s) is Phase.SUPERSEDED
    assert s.gate().slots == ()


def test_a_rebooted_machine_that_somebody_ended_in_its_probation_calls_no_person() -> None:
    """As Karpenter does with a node that our drain has emptied, where it may consolidate at once."""
    s = cast(policy_file("{do: reboot, within: 10m}", limits="cooldown: 0s, budgetPer: {}"), 4, agents=4)
    s.concluder()
    s.fault("node-0")
    s.run(5, step=1)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(3, step=1)
    assert phase(s) is Phase.PROVING
    s.kill(s.actors["agent of node-0"])
    s.delete_node("node-0")
    s.provider.terminate("workers", "m-0")
    pass_time(s, 3600, until=lambda: not phase(s).open)
    assert the_record(s).sentence == (
        "m-0 is in no group any more, and its Node node-0 is gone: nothing is left to prove"
    )
    assert (phase(s), messages(s, "HandedOver")) == (Phase.SUPERSEDED, [])


TYPE = "node.kubernetes.io/instance-type"


@pytest.mark.parametrize("nodes", ["there", "gone", "without their label"])
def test_nodes_that_are_gone_hold_the_brake_of_their_label(nodes: str) -> None:
    s = Stage(
        policy_file(
            "{do: replace, within: 30m}",
            limits="cooldown: 0s, budget: 5, budgetPer: {}, brake: 30%, perGroup: {max: 99, within: 1h}",
        )
    )
    for i in range(40):  # brakePer is left out: 30% of each instance type
        s.add_node(f"node-{i}", f"m-{i}", **{TYPE: "p5" if i < 10 else "m5"})
    for i in range(10):
        s.agent(f"node-{i}")
    s.concluder()
    s.run(3)
    s.provider.preflight_error = Refused("capacity reservation")
    for i in range(3):
        s.fault(f"node-{i}")
        s.run(6, step=1)
    s.provider.preflight_error = None
    assert [phase(s, f"node-{i}") for i in range(3)] == [Phase.HANDED_OVER] * 3
    if nodes == "without their label":  # somebody takes it off, or they are registered anew
        for i in range(3):
            patch_node(s, f"node-{i}", {"metadata": {"labels": {TYPE: None}}})
    if nodes == "gone":  # the machines are not
        for i in range(3):
            s.kill(s.actors[f"agent of node-{i}"])
            s.delete_node(f"node-{i}")
        s.run(20)
        assert [phase(s, f"node-{i}") for i in range(3)] == [Phase.HANDED_OVER] * 3
    s.fault("node-9")
    s.run(60, step=1)
    assert calls(s) == []


ZONE = "topology.kubernetes.io/zone"
MANY = "cooldown: 0s, budget: 9, perGroup: {max: 99, within: 1h}"


def ten_in_the_queue(limits: str, sick: int) -> Stage:
    """Ten nodes of one type among forty. The first ``sick`` wait, since their provider does not answer."""
    s = Stage(policy_file("{do: replace, within: 30m}", limits=f"{MANY}, {limits}"))
    for i in range(40):
        s.add_node(f"node-{i}", f"m-{i}", **{TYPE: "p5" if i < 10 else "m5"})
    for i in range(10):
        s.agent(f"node-{i}")
    s.run(3)
    s.provider.preflight_error = Retry("throttled", timedelta(seconds=2))
    for i in range(sick):
        s.fault(f"node-{i}")
    s.run(5)
    assert set(records(s).values()) == {"waiting"}
    return s


def loses(s: Stage, node: str, label: str) -> None:
    """Somebody takes the label off, or the Node is registered anew without it."""
    patch_node(s, node, {"metadata": {"labels": {label: None}}})


def tolerated(limits: str, sick: int) -> Stage:
    """The same ten; what the first ``sick`` have is tolerated for a minute."""
    s = Stage(policy_file("{do: replace, within: 30m}", after="1m", limits=f"{MANY}, {limits}"))
    for i in range(40):
        s.add_node(f"node-{i}", f"m-{i}", **{TYPE: "p5" if i < 10 else "m5"})
    for i in range(10):
        s.agent(f"node-{i}")
    s.run(3)
    for i in range(sick):
        s.fault(f"node-{i}")
    s.run(5)
    assert set(records(s).values()) == {"suspect"}
    return s


def test_nodes_that_lose_a_label_while_their_fault_is_tolerated_are_held_by_the_brake_of_that_label() -> None:
    s = tolerated("budgetPer: {}, brake: 30%", sick=5)
    for node in list(records(s)):
        loses(s, node, TYPE)
    s.run(90)
    assert (calls(s), set(records(s).values())) == ([], {"waiting"})
    assert f"5 of 10 nodes with {TYPE}=p5 are sick" in s.actors["agent of node-0"].sentences[-1]


def test_nodes_that_lose_their_zone_while_their_fault_is_tolerated_count_for_its_budget() -> None:
    s = tolerated(f"budgetPer: {{{ZONE}: 1}}, brake: 90%", sick=3)
    for node in ("node-0", "node-1"):
        loses(s, node, ZONE)
    s.run(90)
    assert len(calls(s)) == len(slots(s)) == 1


def test_a_node_that_has_lost_its_label_in_the_queue_is_held_by_the_brake_of_that_label() -> None:
    s = ten_in_the_queue("budgetPer: {}, brake: 30%", sick=5)
    loses(s, "node-0", TYPE)
    s.provider.preflight_error = None
    s.run(20)
    assert (calls(s), set(records(s).values())) == ([], {"waiting"})
    assert f"5 of 10 nodes with {TYPE}=p5 are sick" in s.actors["agent of node-0"].sentences[-1]


def test_a_node_that_has_lost_its_zone_in_the_queue_counts_for_the_budget_of_that_zone() -> None:
    s = ten_in_the_queue(f"budgetPer: {{{ZONE}: 1}}, brake: 90%", sick=3)
    for node in ("node-0", "node-1"):
        loses(s, node, ZONE)
    s.provider.preflight_error = None
    s.run(20)
    assert len(calls(s)) == len(slots(s)) == 1


def test_a_node_that_started_without_its_label_goes_on_to_count_for_the_brake_of_that_label() -> None:
    s = ten_in_the_queue("budgetPer: {}, brake: 30%", sick=2)
    for node in ("node-0", "node-1"):
        loses(s, node, TYPE)
    s.provider.preflight_error = None
    s.run(10)
    assert sorted(calls(s)) == [("replace", "m-0"), ("replace", "m-1")]
    for node in ("node-2", "node-3"):
        s.fault(node)
    s.run(20)
    assert (len(calls(s)), phase(s, "node-2"), phase(s, "node-3")) == (2, Phase.WAITING, Phase.WAITING)


def test_a_second_fault_of_a_node_in_a_persons_hands_lets_no_label_be_forgotten_that_it_has_lost() -> None:
    s = ten_in_the_queue("budgetPer: {}, brake: 30%", sick=3)
    s.provider.preflight_error = Refused("capacity reservation")
    s.run(10)
    assert set(records(s).values()) == {"handedOver"}
    for node in records(s):
        loses(s, node, TYPE)
    s.provider.preflight_error = None
    s.fault("node-0", "DMA_ERROR", "HBM_UNCORRECTABLE_ERROR")
    s.run(5)
    s.fault("node-9")
    s.run(20)
    assert (calls(s), phase(s, "node-9")) == ([("replace", "m-0")], Phase.WAITING)
    assert f"4 of 10 nodes with {TYPE}=p5 are sick" in s.actors["agent of node-9"].sentences[-1]
