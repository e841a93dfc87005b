"""A machine that two Nodes claim, or that its Node was not before, is nobody's (law 4)."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage

from recovery.decide.claims import same_machine
from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.model import Machine, NodeView, Phase, Record
from tests.builders.policies import policy_file
from tests.stories.scenery import Cloud, to_the_end
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    at,
    calls,
    cast,
    marked,
    messages,
    patch_node,
    phase,
    remove_pod,
    says,
    swap_record,
    the_record,
)
from tests.stories.test_power import REBOOT, Powered, dies, draining, powered, powered_off, stuck, tainted

NOBODYS = (
    "node-0 and node-1 claim to be one machine, m-0: nothing is asked for it until a person has found out "
    "which of them it is"
)


class Racked(Powered):
    """Bare metal: a machine is who its Node says it is."""

    def identify(self, node: NodeView) -> Machine:
        return Machine(self.name, node.system_uuid, node.provider_id, "workers")


def claims(s: Stage, node: str, machine: str) -> None:
    """The kubelet of ``node``, or who has root there, writes another machine into its own Node."""
    patch_node(s, node, {"status": {"nodeInfo": {"systemUUID": machine}}}, "status", "kubelet")


def closed(s: Stage, event: Event) -> Record:
    return close(the_record(s), s.clock.now(), event, "by a story")


def draining_metal() -> Stage:
    s = cast(policy_file(REBOOT), provider=Racked())
    s.concluder()
    draining(s)
    return s


# ---------------------------------------------------------------- two Nodes, one machine


def test_a_machine_that_two_nodes_claim_is_not_replaced_and_a_person_is_told_of_both() -> None:
    s = cast()
    claims(s, "node-1", "m-0")
    s.fault("node-0")
    s.run(30)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    assert NOBODYS in the_record(s).sentence
    assert says(s, "HandedOver", f"handed over to a person: {NOBODYS}")
    refused = [m for m in s.told.metrics if m.dimensions.get("Outcome") == "refused"]
    assert refused


def test_a_claim_that_is_made_in_the_drain_is_seen_right_before_the_call() -> None:
    s = at("draining")
    claims(s, "node-1", "m-0")
    remove_pod(s)
    s.run(30)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    assert NOBODYS in the_record(s).sentence


@pytest.mark.parametrize("provider_id", ["fake:///workers/m-0", "FAKE:///elsewhere/M-0"])
def test_a_node_that_registered_with_anothers_provider_id_claims_its_machine(provider_id: str) -> None:
    """The zone in a providerID names no machine, and neither does its case."""
    s = cast(agents=1)
    s.delete_node("node-3")
    s.register("node-3", "m-3")
    node = s.node("node-3")
    s.delete_node("node-3")
    node["metadata"] = {"name": "node-3", "labels": node["metadata"]["labels"]}
    node["spec"]["providerID"] = provider_id
    s.store.load(node)
    s.fault("node-0")
    s.run(30)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])


def test_once_only_one_node_claims_it_the_next_fault_is_treated() -> None:
    s = cast()
    claims(s, "node-1", "m-0")
    s.fault("node-0")
    s.run(30)
    claims(s, "node-1", "m-1")
    s.fault("node-0", "HBM_UNCORRECTABLE_ERROR")
    swap_record(s, closed(s, Event.RELEASED))
    s.run(30)
    assert calls(s) == [("replace", "m-0")]


def test_root_on_one_node_does_not_have_anothers_power_switched() -> None:
    s = draining_metal()
    dies(s)
    claims(s, "node-1", "m-0")
    s.run(12 * 60, step=2)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    assert NOBODYS in the_record(s).sentence


@pytest.mark.parametrize("rival", [False, True])
def test_pods_are_not_given_up_because_of_the_power_of_a_machine_that_two_nodes_claim(rival: bool) -> None:
    s = powered()
    draining(s)
    dies(s)
    stuck(s)
    if rival:
        claims(s, "node-1", "m-0")
    powered_off(s)
    s.run(90)
    assert tainted(s) == (0 if rival else 1)


# ---------------------------------------------------------------- one Node, two machines


def test_a_node_that_says_in_its_drain_that_it_is_another_machine_is_a_persons() -> None:
    s = draining_metal()
    claims(s, "node-0", "m-8")
    remove_pod(s)
    s.run(30)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    assert "node-0 was the machine m-0 and claims to be m-8 now" in the_record(s).sentence
    assert the_record(s).machine.id == "m-0", "what it was at first stays on record"


def test_a_node_that_died_as_another_machine_is_not_power_cycled() -> None:
    s = draining_metal()
    dies(s)
    claims(s, "node-0", "m-8")
    s.run(12 * 60, step=2)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])


def test_of_a_node_in_a_persons_hands_is_said_that_it_is_another_machine_now_and_what_to_do() -> None:
    """It stayed out of service, by the sentence about the machine before it."""
    s = cast(policy_file("{do: drain, within: 10m}"), provider=Racked())
    s.fault("node-0")
    s.run(30)
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)
    claims(s, "node-0", "m-8")
    s.run(60)
    last = messages(s, "HandedOver")[-1]
    assert "node-0 was the machine m-0 and claims to be m-8 now" in last
    assert "delete the Node if its machine was exchanged" in last
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)


def test_what_a_node_was_is_known_from_its_closed_record_until_it_registers_anew() -> None:
    s = cast(policy_file("{do: replace, within: 10m}"), provider=Racked())
    s.fault("node-0")
    s.run(3)
    swap_record(s, closed(s, Event.CLEARED))
    before = calls(s)
    claims(s, "node-0", "m-8")
    s.fault("node-0", "HBM_UNCORRECTABLE_ERROR")
    s.run(30)
    assert (phase(s), marked(s), calls(s)) == (Phase.HANDED_OVER, NO_MARKS, before)
    assert "node-0 was the machine m-0 and claims to be m-8 now" in the_record(s).sentence
    s.provider.launch("workers", "m-8")
    s.delete_node("node-0")
    s.register("node-0", "m-8")
    s.run(60)
    assert calls(s)[len(before) :] == [("replace", "m-8")]


def test_both_byte_orders_of_a_uuid_and_all_ways_to_write_it_are_one_machine() -> None:
    one = "4C4C4544-0033-3510-8052-B4C04F4A4E32"
    assert same_machine(one, "44454c4c-3300-1035-8052-b4c04f4a4e32")
    assert same_machine(one, "{4c4c4544003335108052b4c04f4a4e32}")
    assert not same_machine(one, "44454c4c-3300-1035-8052-b4c04f4a4e33")
    assert same_machine("i-0ABC", "i-0abc")
    assert not same_machine("i-0abc", "i-0abd")


def test_what_was_done_to_one_machine_is_not_counted_for_another_with_the_same_placeholder_uuid() -> None:
    """A person would have to take the other one, to which nothing was done."""
    once = "cooldown: 0s, attempts: {max: 1, within: 24h}"
    s = Stage(policy_file("{do: replace, within: 30m}", limits=once))
    for node in s.nodes(8):
        s.agent(node)
        many = "11111111-1111-1111-1111-111111111111"
        patch_node(s, node, {"status": {"nodeInfo": {"systemUUID": many}}}, "status", "kubelet")
    cloud = Cloud(s)
    s.run(3)
    for node in ("node-0", "node-1"):
        s.fault(node)
        s.run(2)
        to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0"), ("replace", "m-1")]
