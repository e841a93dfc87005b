"""Machines that fall together: what holds them, under the next leader as well, and what does not (law 10)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

import pytest
from recovery_testkit.kubefaults import Asked, server_error
from recovery_testkit.stage import Stage

from recovery.agent.fleet import outbreaks
from recovery.agent.fleet.outbreaks import Outbreaks
from recovery.decide.correlated import Trait, counted
from recovery.model import Fault, NodeView, Phase
from tests.stories.console import Terminal
from tests.stories.scenery import RECORDS, Slow, pass_time, records, slots
from tests.stories.scenes import (
    NO_MARKS,
    calls,
    label,
    marked,
    phase,
    record_sentences,
    remove_pod,
    stubborn_pod,
    the_record,
)
from tests.stories.test_conditions import EKS, policy, writes
from tests.stories.test_marks_of_others import put
from tests.stories.test_one_controller import JOBSET, LIMITS, Group

TAINTS = policy("{source: konduktor}").replace(b"[conditions]", b"[konduktor]")


def rack(text: bytes = TAINTS, replicas: int = 2) -> tuple[Stage, Group]:
    """Sixty nodes, of which the first five stand in one rack, and a pod of node-0 that does not go away."""
    s = Stage(text.replace(b"{cooldown: 0s}", LIMITS))
    for i in range(60):
        s.add_node(f"node-{i}", f"m-{i}", rack="r7" if i < 5 else f"r{8 + i // 5}")
    stubborn_pod(s)
    for i in range(replicas):
        s.fleet(f"controller-{i}")
    s.run(5)
    return s, Group(s)


def falls(s: Stage, cloud: Group, *nodes: int) -> None:
    for i in nodes:
        put(s, "konduktor", f"node-{i}")
    pass_time(s, 20, cloud, step=1)


def resigns(s: Stage) -> None:
    """A rolling upgrade: the leader gives its Lease away, and the other replica leads at once."""
    s.actors["controller-0"].replica.leader.resign()
    s.kill(s.actors["controller-0"])


def drained_and_held() -> tuple[Stage, Group]:
    """node-0 drains as three more of its rack fall, so that it is held before it is replaced."""
    s, cloud = rack()
    falls(s, cloud, 0)
    falls(s, cloud, 1, 2, 3)
    remove_pod(s)
    pass_time(s, 60, cloud, step=1)
    assert (calls(s), slots(s), phase(s)) == ([], ["node-0"], Phase.RECOVERING)
    return s, cloud


def test_what_one_leader_held_as_correlated_the_next_one_holds_from_its_first_look_on() -> None:
    s, cloud = drained_and_held()
    resigns(s)
    pass_time(s, 120, cloud, step=1)
    assert (calls(s), slots(s)) == ([], ["node-0"])
    assert "4 of the 4 machines have rack=r7" in seen_by_the_next(s, "node-0")


def seen_by_the_next(s: Stage, node: str) -> str:
    view = s.actors["controller-1"].replica.view(node)
    assert not isinstance(view, str), view
    return view.decision.reason


def test_those_that_fall_at_once_are_held_as_well_where_the_api_server_is_slow() -> None:
    """The first of them would begin before what the others have is known."""
    s = Stage(policy().replace(b"{cooldown: 0s}", LIMITS))
    for i in range(40):
        s.add_node(f"node-{i}", f"m-{i}", rack="r7" if i < 5 else f"r{8 + i % 6}")
    slow = Slow(s)
    s.fleet()
    s.run(5)
    for i in range(5):
        writes(s, EKS, node=f"node-{i}")
    slow.seconds = 0.3
    pass_time(s, 40, Group(s), step=1)
    assert (calls(s), slots(s), set(records(s).values())) == ([], [], {"waiting"})


def test_once_it_is_approved_no_record_goes_on_to_say_that_it_has_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of them drains, and the budget of its zone holds the others."""
    s, cloud = rack()
    falls(s, cloud, 0)
    falls(s, cloud, 1, 2, 3)
    terminal = Terminal(s, monkeypatch)
    assert terminal.run("status").out.count("node-recovery approve KonduktorFaulty lets it start") == 4
    assert terminal.run("approve", "KonduktorFaulty", "--for", "10m", "--yes").code == 0
    pass_time(s, 60, cloud, step=1)
    said = terminal.run("status").out
    assert said.count("approve") == said.count("approved KonduktorFaulty until") == 1
    assert said.count("waiting for a slot of the budget: it is not held as one of many any more") == 3
    pass_time(s, 660, cloud, step=1)
    held = [n for n in ("node-1", "node-2", "node-3") if the_record(s, n).phase is Phase.WAITING]
    assert all("approve KonduktorFaulty lets it start" in the_record(s, n).sentence for n in held)
    assert held


def test_the_command_that_lets_a_reason_of_several_words_start_is_one_that_a_shell_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = Stage(policy("{type: AcceleratedHardwareReady}").replace(b"{cooldown: 0s}", LIMITS))
    for i in range(40):
        s.add_node(f"node-{i}", f"m-{i}", rack="r7" if i < 5 else f"r{8 + i % 6}")
    s.fleet()
    s.run(5)
    for i in range(5):
        writes(s, ("AcceleratedHardwareReady", "False", "GPU fell off the bus; see dmesg"), node=f"node-{i}")
    pass_time(s, 20, Group(s), step=1)
    told = the_record(s).sentence.partition("; node-recovery ")[2].removesuffix(" lets it start")
    assert Terminal(s, monkeypatch).run(*shlex.split(told)).code == 0
    pass_time(s, 60, Group(s), step=1)
    assert slots(s)


def test_while_a_new_leader_cannot_list_the_records_it_starts_nothing_and_then_it_goes_by_them() -> None:
    s, cloud = drained_and_held()

    def listed(asked: Asked) -> bool:
        return asked.method == "GET" and asked.path == RECORDS

    s.api.fail_next(listed, server_error())
    resigns(s)
    pass_time(s, 10, cloud, step=0.1, until=lambda: not s.api.pending)
    s.run(0.2, step=0.1)
    assert "is not known: the records could not be listed" in seen_by_the_next(s, "node-0")
    assert s.actors["controller-1"].replica.refused.startswith("the records could not be listed")
    pass_time(s, 60, cloud, step=1)
    assert (calls(s), slots(s)) == ([], ["node-0"])
    assert "4 of the 4 machines have rack=r7" in seen_by_the_next(s, "node-0")
    assert s.actors["controller-1"].replica.refused == ""


CORDONS = TAINTS.replace(b"{do: drain, within: 10m, then: force}, {do: replace}", b"{do: cordon}")


def test_a_node_that_would_only_be_cordoned_takes_no_slot_where_its_fault_is_that_of_two_others() -> None:
    """Those are in a person's hands by then."""
    s, cloud = rack(CORDONS, replicas=1)
    for i in range(5):
        falls(s, cloud, i)
    assert [i for i in range(5) if marked(s, f"node-{i}") != NO_MARKS] == [0, 1]
    assert slots(s) == []
    assert "3 of the 3 machines have rack=r7" in " ".join(record_sentences(s, "node-2"))


def test_a_new_leader_holds_those_that_fall_together_with_ones_that_a_person_has_already() -> None:
    """Those were cordoned and handed over, so their records are closed."""
    s, cloud = rack(CORDONS)
    falls(s, cloud, 0, 1)
    assert [phase(s, f"node-{i}") for i in range(2)] == [Phase.HANDED_OVER] * 2
    resigns(s)
    pass_time(s, 20, cloud, step=1)
    falls(s, cloud, 2)
    assert "3 of the 3 machines have rack=r7" in seen_by_the_next(s, "node-2")
    assert marked(s, "node-2") == NO_MARKS


HANG = ("NeuronHealth", "True", "NeuronHasError_HANG_ON_COLLECTIVES")
EKS_DMA = ("AcceleratedHardwareReady", "False", "NeuronDMAError")


def test_a_fault_that_is_only_told_of_does_not_hold_the_recovery_of_the_machine_that_is_broken() -> None:
    """All machines of its job hang, which no rule treats. One of them has a fault of its own."""
    s = Stage(policy("{type: AcceleratedHardwareReady}").replace(b"{cooldown: 0s}", LIMITS))
    for i in range(60):
        s.add_node(f"node-{i}", f"m-{i}", rack=f"r{i % 12}")
    for i in range(6):
        s.add_pod(f"worker-{i}", f"node-{i}", **{JOBSET: "llama"})
    s.fleet()
    s.run(5)
    writes(s, EKS_DMA)
    s.run(0.2, step=0.1)
    for i in range(6):
        writes(s, HANG, node=f"node-{i}")
    pass_time(s, 60, Group(s), step=1)
    assert {f.reason for f in the_record(s).faults} == {HANG[2], EKS_DMA[2]}
    assert calls(s) == [("replace", "m-0")]


def apart(source: str) -> Stage:
    """Sixty nodes in twelve racks: the first ones share no rack."""
    text = policy(f"{{source: {source}}}", "{do: reboot}").replace(b"[conditions]", f"[{source}]".encode())
    s = Stage(text.replace(b"{cooldown: 0s}", LIMITS))
    for i in range(60):
        s.add_node(f"node-{i}", f"m-{i}", rack=f"r{i % 12}", **{"nvidia.com/gpu.count": "8"})
    s.fleet()
    s.run(5)
    return s


@pytest.mark.parametrize("source", ["autopilot", "konduktor"])
def test_what_a_detector_writes_on_the_nodes_is_not_taken_for_what_made_them_sick(source: str) -> None:
    s = apart(source)
    for i in range(4):
        put(s, source, f"node-{i}")
    pass_time(s, 120, Group(s))
    assert calls(s) == [("reboot", "m-0")]  # one of their zone at a time
    assert not [i for i in range(4) if "one cause" in " ".join(record_sentences(s, f"node-{i}"))]


def test_neither_is_how_many_devices_are_left() -> None:
    """gpu-feature-discovery writes how many GPUs it finds. Each of four machines has lost one."""
    s = apart("konduktor")
    for i in range(4):
        label(s, f"node-{i}", **{"nvidia.com/gpu.count": "7"})
        put(s, "konduktor", f"node-{i}")
    pass_time(s, 120, Group(s))
    assert calls(s) == [("reboot", "m-0")]  # one of their zone at a time
    assert not [i for i in range(4) if "one cause" in " ".join(record_sentences(s, f"node-{i}"))]


def test_what_cannot_be_told_of_one_record_keeps_no_other_from_being_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s, cloud = drained_and_held()
    tell = Outbreaks.tell

    def stumbles(known: Outbreaks, name: str, machine: str, faults: Iterable[Fault]) -> None:
        if name == "node-3":
            raise TypeError("what is this")
        tell(known, name, machine, faults)

    monkeypatch.setattr(Outbreaks, "tell", stumbles)
    resigns(s)
    pass_time(s, 60, cloud, step=1)
    assert (calls(s), slots(s)) == ([], ["node-0"])
    assert "3 of the 3 machines have rack=r7" in seen_by_the_next(s, "node-0")


def test_the_nodes_are_counted_before_the_third_machine_falls_so_it_does_not_wait_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []

    def noted(nodes: Iterable[NodeView]) -> tuple[Mapping[Trait, int], int]:
        counts.append(1)
        return counted(nodes)

    monkeypatch.setattr(outbreaks, "counted", noted)
    s, cloud = rack()
    falls(s, cloud, 0)
    assert not counts, "one machine shares nothing"
    falls(s, cloud, 1)
    assert counts
    falls(s, cloud, 2, 3)
    assert "has one cause on many machines" in str(s.record("node-3"))
