"""Whoever runs a pod can write the kernel's log. A rule may want a second witness, which has to agree."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Page, Stage, StoreTransport, read_policy

from recovery.config.policy_file import exporter
from recovery.kube.cluster import Cluster
from recovery.model import Phase, Says, Statement
from recovery.signals.dcgm_witness import DcgmWitness
from tests.builders.exporters import dcgm_line
from tests.builders.policies import MATCH, policy_file
from tests.stories.scenes import (
    NO_MARKS,
    calls,
    cast,
    label,
    marked,
    new_process,
    no_place,
    phase,
    record_sentences,
    remove_pod,
    says,
    stubborn_pod,
    the_record,
    value,
)

HBM, DMA = "HBM_UNCORRECTABLE_ERROR", "DMA_ERROR"
AGREES = Statement(Says.AGREES, "mem_ecc_uncorrected of neuron3 is 2")
DISAGREES = Statement(Says.DISAGREES, "mem_ecc_uncorrected of all 16 devices is 0")
UNREADABLE = Statement(Says.UNREADABLE, "the Neuron driver did not answer within 5 s")
ABSENT = Statement(Says.ABSENT, "no Neuron device here shows mem_ecc_uncorrected")


class Sysfs:
    """The Neuron driver's counters, and what it was asked."""

    def __init__(self, testimony: Statement) -> None:
        self.testimony = testimony
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, reasons: tuple[str, ...]) -> Statement:
        self.asked.append(reasons)
        return self.testimony


def witnessed(testimony: Statement, *, absent: str = "", remedy: str = "") -> tuple[Stage, Sysfs]:
    witness = "source: neuron-sysfs" + (f", absent: {absent}" if absent else "")
    s, sysfs = cast(policy_file(remedy, witness=witness)), Sysfs(testimony)
    s.witnesses["neuron-sysfs"] = sysfs
    return s, sysfs


def test_where_both_agree_the_machine_is_replaced_and_the_sentences_name_both() -> None:
    s, sysfs = witnessed(AGREES)
    s.fault("node-0", HBM)
    s.run(6)
    assert calls(s) == [("replace", "m-0")]
    both = "npd and neuron-sysfs agree: mem_ecc_uncorrected of neuron3 is 2"
    assert next(x for x in record_sentences(s) if "recovery starts" in x).endswith(
        f"(drain, replace); {both}"
    )
    assert any(both in x for x in s.actors["agent of node-0"].sentences)
    assert says(s, "RecoveryStarted", f"NeuronHasError_{HBM}: recovery starts (drain, replace); {both}")
    assert {x for reasons in sysfs.asked for x in reasons} == {f"NeuronHasError_{HBM}"}


def test_a_forged_line_that_the_hardware_does_not_bear_out_has_nothing_done_and_a_person_asked() -> None:
    s, _ = witnessed(DISAGREES)
    stubborn_pod(s)
    s.fault("node-0", HBM)
    s.run(9 * 60, step=2)
    assert (phase(s), marked(s), calls(s)) == (Phase.WAITING, NO_MARKS, [])
    why = "npd and neuron-sysfs disagree: mem_ecc_uncorrected of all 16 devices is 0"
    assert s.actors["agent of node-0"].sentences[-1].endswith(why)
    assert says(s, "Held", f"NeuronHasError_{HBM}: waiting: {why}")
    s.run(2 * 60, step=2)
    assert (phase(s), marked(s), calls(s), no_place(s)) == (Phase.HANDED_OVER, NO_MARKS, [], True)
    assert the_record(s).sentence == f"handed over to a person: NeuronHasError_{HBM}: {why}"


@pytest.mark.parametrize("testimony", [UNREADABLE, ABSENT])
def test_unknown_is_no_agreement(testimony: Statement) -> None:
    s, _ = witnessed(testimony)
    s.fault("node-0", HBM)
    s.run(60)
    assert (phase(s), marked(s), calls(s)) == (Phase.WAITING, NO_MARKS, [])
    assert (
        s.actors["agent of node-0"]
        .sentences[-1]
        .endswith(f"neuron-sysfs cannot confirm it: {testimony.sentence}")
    )
    s.run(10 * 60, step=2)
    assert phase(s) is Phase.HANDED_OVER


def test_a_rule_may_say_that_it_acts_where_there_is_no_witness() -> None:
    s, _ = witnessed(ABSENT, absent="act")
    s.fault("node-0", HBM)
    s.run(6)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize("testimony", [DISAGREES, UNREADABLE])
def test_a_witness_that_is_there_is_never_passed_over(testimony: Statement) -> None:
    s, _ = witnessed(testimony, absent="act")
    s.fault("node-0", HBM)
    s.run(60)
    assert (phase(s), calls(s)) == (Phase.WAITING, [])


def test_a_fault_that_it_has_no_word_for_is_acted_on_where_the_rule_says_so_and_it_is_not_asked() -> None:
    s, sysfs = witnessed(DISAGREES, absent="act")
    s.fault("node-0", DMA)
    s.run(6)
    assert (calls(s), sysfs.asked) == ([("replace", "m-0")], [])


def test_a_fault_that_the_witness_has_no_word_for_is_held_where_the_rule_does_not_say_so() -> None:
    s, _ = witnessed(AGREES)
    s.fault("node-0", DMA)
    s.run(60)
    assert (phase(s), calls(s)) == (Phase.WAITING, [])
    assert "neuron-sysfs cannot confirm NeuronHasError_DMA_ERROR" in s.actors["agent of node-0"].sentences[-1]


def test_it_is_asked_again_before_the_machine_is_replaced_and_held_there_if_it_has_changed_its_mind() -> None:
    s, sysfs = witnessed(AGREES, remedy="{do: drain, within: 10m}, {do: replace, within: 5m}")
    stubborn_pod(s)
    s.fault("node-0", HBM)
    s.run(6)
    assert phase(s) is Phase.RECOVERING
    sysfs.testimony = UNREADABLE
    remove_pod(s)
    s.run(4 * 60, step=2)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [])
    assert "held" in the_record(s).sentence or the_record(s).progress.holding is not None
    s.run(3 * 60, step=2)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    assert (
        "replace could not be asked for within 5 min: neuron-sysfs cannot confirm it"
        in the_record(s).sentence
    )


@pytest.mark.parametrize("what", ["the rule is called otherwise", "the node has lost the label of its rule"])
def test_so_it_is_whatever_was_changed_meanwhile(what: str) -> None:
    steps, witness = "{do: drain, within: 10m}, {do: replace, within: 5m}", "source: neuron-sysfs"
    policy = policy_file(steps, match=f"{MATCH}, nodeLabels: {{pool: a}}", witness=witness)
    s, sysfs = cast(policy, agents=0), Sysfs(AGREES)
    s.witnesses["neuron-sysfs"] = sysfs
    label(s, "node-0", pool="a")
    s.agent("node-0")
    s.run(3)
    stubborn_pod(s)
    s.fault("node-0", HBM)
    s.run(6)
    assert phase(s) is Phase.RECOVERING
    if "rule is" in what:
        s.policy = read_policy(policy.replace(b"neuron-hardware", b"devices"))
    else:
        label(s, "node-0", pool=None)
    new_process(s, "node-0")
    sysfs.testimony = DISAGREES
    remove_pod(s)
    s.run(4 * 60, step=2)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [])


def test_one_that_agrees_late_is_believed() -> None:
    s, sysfs = witnessed(DISAGREES)
    s.fault("node-0", HBM)
    s.run(120, step=2)
    sysfs.testimony = AGREES
    s.run(20)
    assert calls(s) == [("replace", "m-0")]


def test_nobody_is_asked_while_a_pause_holds_it_and_not_in_each_cycle_either() -> None:
    s, sysfs = witnessed(DISAGREES)
    s.run(60)
    assert sysfs.asked == []
    s.fault("node-0", HBM)
    s.run(100)
    assert 5 <= len(sysfs.asked) <= 12, "every ten seconds"
    assert value(s.actors["agent of node-0"], "node_recovery_errors_total", kind="bug") == 0


def test_the_built_in_policy_acts_on_a_machine_without_the_witness_and_not_against_it() -> None:
    for testimony, called in (
        (ABSENT, [("replace", "m-0")]),
        (AGREES, [("replace", "m-0")]),
        (DISAGREES, []),
    ):
        s = cast(None)
        s.witnesses["neuron-sysfs"] = Sysfs(testimony)
        s.fault("node-0", HBM)
        s.run(10)
        assert calls(s) == called, testimony
    s = cast(None)
    s.fault("node-0", DMA)
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


# ---------------------------------------------------------------- of a GPU


XID_LINE = b"""\
problem_counter{reason="GpuXid79"} 1
problem_gauge{reason="GpuXid79",type="GpuXid"} 1
"""
NO_LINE = XID_LINE.replace(b"} 1", b"} 0")
LAST_XID = "DCGM_FI_DEV_XID_ERRORS"


def page_of(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def gpu_node(*lines: str) -> tuple[Stage, Page]:
    """A GPU node, and the page of its dcgm-exporter."""
    rule = policy_file(match="type: GpuXid", witness="source: dcgm, absent: act")
    s = cast(rule)
    s.pages["node-0"].body = NO_LINE
    exporter_page = s.add_exporter("node-0", page_of(*lines), 9400, {"app": "nvidia-dcgm-exporter"})
    pods = Cluster(StoreTransport(s.api, "agent of node-0"), s.clock, "default")
    choice = exporter(s.policy)
    s.witnesses["dcgm"] = DcgmWitness(lambda: pods.list_pods("node-0"), choice, s.open_page)
    s.run(5)
    return s, exporter_page


def test_an_xid_in_the_kernels_log_that_the_driver_knows_nothing_of_takes_no_node_out() -> None:
    s, _ = gpu_node(*(dcgm_line(LAST_XID, gpu, 0) for gpu in range(8)))
    s.pages["node-0"].body = XID_LINE
    s.run(60)
    assert (phase(s), marked(s), calls(s)) == (Phase.WAITING, NO_MARKS, [])
    why = "npd and dcgm disagree: no GPU has had XID 79 since the exporter was started"
    assert s.actors["agent of node-0"].sentences[-1].endswith(why)


def test_an_xid_that_both_know_of_has_the_machine_replaced_and_the_sentence_names_both() -> None:
    s, page = gpu_node(*(dcgm_line(LAST_XID, gpu, 0) for gpu in range(8)))
    page.body = page_of(*(dcgm_line(LAST_XID, gpu, 79 * (gpu == 5)) for gpu in range(8)))
    s.pages["node-0"].body = XID_LINE
    s.run(6)
    assert calls(s) == [("replace", "m-0")]
    assert any("npd and dcgm agree: the last XID of GPU 5 is 79" in x for x in record_sentences(s))


def test_a_node_without_an_exporter_goes_by_the_log_where_the_rule_says_so() -> None:
    s, _ = gpu_node()
    s.witnesses["dcgm"] = DcgmWitness(tuple, exporter(s.policy), s.open_page)
    s.pages["node-0"].body = XID_LINE
    s.run(6)
    assert calls(s) == [("replace", "m-0")]
