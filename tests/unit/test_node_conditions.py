"""What a Node's conditions say: by polarity, by who renews them, and by the boot they were written in."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from recovery.catalog import bad_status, faults, polarities, polarity
from recovery.decide.census import ill
from recovery.model import Condition, ConditionRow, Reading
from recovery.signals.conditions import MOST_HELD, RENEWED, Look, State, observe
from recovery.signals.own_node import EVIDENCE
from tests.builders.nodes import node
from tests.builders.times import MINUTE, NOW, SECOND

FRESH = timedelta(minutes=2)


def condition(
    type: str, status: str, reason: str = "", *, ago: timedelta = SECOND, **changes: object
) -> Condition:
    """As its writer renewed it a moment ago; its status is an hour old."""
    plain = Condition(type, status, reason, "what it found", NOW - ago, NOW - timedelta(hours=1))
    return replace(plain, **changes)  # type: ignore[arg-type]


def looks(
    *each: Condition | tuple[Condition, ...],
    state: State | None = None,
    every: timedelta = MINUTE,
    boots: tuple[str, ...] = (),
    began: datetime | None = None,
    rows: tuple[ConditionRow, ...] = (),
) -> tuple[State, Reading]:
    """The Node is looked at once for each of these, so far apart, and renewed each time. The last reading."""
    state, reading = state or State(), None
    for i, seen in enumerate(each):
        at = NOW + i * every
        conditions = tuple(
            replace(c, heartbeat=c.heartbeat + i * every if c.heartbeat else None)
            for c in (seen if isinstance(seen, tuple) else (seen,))
        )
        boot = boots[i] if boots else "boot-1"
        state, reading = observe(state, Look(at, conditions, boot, began, FRESH), lambda t: polarity(t, rows))
    assert reading is not None
    return state, reading


def stated(reading: Reading) -> list[tuple[str, str]]:
    return [(p.type, p.reason) for p in reading.problems]


GPU_BAD, GPU_GOOD = (
    condition("GpuCount", "True", "GpuCountBad"),
    condition("GpuCount", "False", "GpuCountGood"),
)
NMA_BAD = condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error")
NMA_GOOD = condition("AcceleratedHardwareReady", "True", "NvidiaAcceleratedHardwareIsReady")
LOG_BAD = condition("KernelDeadlock", "True", "DockerHung")
LOG_GOOD = condition("KernelDeadlock", "False", "KernelHasNoDeadlock")


# ---------------------------------------------------------------- polarity


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (GPU_BAD, [("GpuCount", "GpuCountBad")]),
        (GPU_GOOD, []),
        (NMA_BAD, [("AcceleratedHardwareReady", "NvidiaXID79Error")]),
        (NMA_GOOD, []),
        (condition("SysLogsXIDError", "True", "NotHealthy"), [("SysLogsXIDError", "NotHealthy")]),
        (condition("AMDGPUXgmi", "True", "AMDGPUXgmiBad"), [("AMDGPUXgmi", "AMDGPUXgmiBad")]),
        (condition("RdmaLink", "True", "RdmaLinkHasIssues"), [("RdmaLink", "RdmaLinkHasIssues")]),
        (condition("FabricManagerDown", "True", "NotActive"), [("FabricManagerDown", "NotActive")]),
        (condition("SomebodysOwn", "True", "Anything"), []),
        (condition("GpuCount", "True", ""), [("GpuCount", "GpuCount")]),
    ],
    ids=lambda x: x.type + x.status if isinstance(x, Condition) else "",
)  # fmt: skip
def test_a_condition_is_a_fault_by_the_polarity_of_its_writer(
    seen: Condition, says: list[tuple[str, str]]
) -> None:
    assert stated(looks(seen)[1]) == says


def test_a_policy_may_name_a_condition_of_ones_own() -> None:
    own = ConditionRow("Somebodys*", "False")
    reading = looks(condition("SomebodysOwn", "False", "No"), rows=(own,))[1]
    assert stated(reading) == [("SomebodysOwn", "No")]


@pytest.mark.parametrize(
    ("row", "type", "bad", "takes_back"),
    [
        (ConditionRow("AcceleratedHardwareReady"), "AcceleratedHardwareReady", "False", False),
        (
            ConditionRow("AcceleratedHardwareReady", takes_back=True),
            "AcceleratedHardwareReady",
            "False",
            True,
        ),
        (ConditionRow("AcceleratedHardwareReady", "True"), "AcceleratedHardwareReady", "True", False),
        (ConditionRow("*Ready", takes_back=True), "KernelReady", "False", True),
        (ConditionRow("*"), "AMDGPUXgmi", "True", True),
        (ConditionRow("GpuXid"), "GpuXid", "True", False),
        (ConditionRow("Acme*"), "AcmeFans", "True", True),
        (ConditionRow("Acme*", "False", takes_back=False), "AcmeFans", "False", False),
    ],
    ids=str,
)
def test_what_a_policys_row_leaves_out_is_as_the_catalogue_has_it_of_that_condition(
    row: ConditionRow, type: str, bad: str, takes_back: bool
) -> None:
    found = polarity(type, (row,))
    assert found is not None
    assert (found.bad, found.takes_back) == (bad, takes_back)


def test_a_policys_row_lets_no_condition_speak_that_no_rule_names() -> None:
    assert polarity("Ready", (ConditionRow("*Ready"),), named={"GpuXid"}) is None
    assert polarity("Ready", (ConditionRow("*Ready"),), named={"Ready"}) is not None


def test_the_evidence_is_what_the_writer_said_cut_short() -> None:
    (problem,) = looks(replace(GPU_BAD, message="x" * 5000))[1].problems
    assert problem.message == "the Node's condition GpuCount is True: " + "x" * EVIDENCE


def test_every_polarity_says_its_writer_and_no_exact_type_has_two() -> None:
    exact = [t for row in polarities() for t in row.types]
    assert len(exact) == len(set(exact))
    assert all(row.bad in ("True", "False") and row.writer for row in polarities())


def test_every_type_of_the_catalogue_that_a_detector_sets_has_a_polarity() -> None:
    assert {row.type for row in faults() if row.type and row.detector and polarity(row.type) is None} == set()


def test_the_brake_counts_a_condition_by_its_polarity() -> None:
    ready = {"Ready": ("True", "KubeletReady")}
    hardware = "AcceleratedHardwareReady"
    assert bad_status(hardware) == "False"
    assert ill(node(conditions=ready | {hardware: ("False", "NvidiaXID79Error")}), lambda _, __: True)
    assert not ill(node(conditions=ready | {hardware: ("True", "Fine")}), lambda _, __: True)


# ---------------------------------------------------------------- EKS's agent joins its messages

XID_79 = "detected XID-79 on the instance, review kernel logs for additional information."
NO_ENGINE = "failed to reconcile DCGM: connection refused; is nv-hostengine running?"
"""An error of the engine, in whatever words."""


def eks(reason: str, *messages: str) -> list[tuple[str, str]]:
    """What is stated of a condition whose agent found so much, and ``reason`` last: with its evidence."""
    said = condition("AcceleratedHardwareReady", "False", reason, message="; ".join(messages))
    reading = looks(said)[1]
    assert all(p.type == "AcceleratedHardwareReady" and p.latched for p in reading.problems)
    found = [(p.reason, p.message.partition("is False: ")[2]) for p in reading.problems]
    return sorted(found, key=lambda x: x[0] != reason)  # the one of its reason first


def test_a_fault_that_a_later_one_took_the_reason_from_is_still_in_the_message_of_eks() -> None:
    assert eks("DCGMError", XID_79, NO_ENGINE) == [("DCGMError", NO_ENGINE), ("NvidiaXID79Error", XID_79)]
    assert eks("NvidiaXID79Error", XID_79) == [("NvidiaXID79Error", XID_79)]
    assert eks("NvidiaXID79Error", NO_ENGINE, XID_79) == [("NvidiaXID79Error", XID_79)]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("detected 2 Nvidia Double Bit error(s) on location Device", "NvidiaDoubleBitError"),
        ("detected 7 NVLink errors on fieldId 409", "NvidiaNVLinkError"),
        ("DCGM detected 7 GPUs but 8 nvidia device files were detected", "NvidiaDeviceCountMismatch"),
        (
            "expected 8 GPUs for this instance type but only 7 were detected — possible hardware failure",
            "NvidiaDeviceCountMismatch",
        ),
        ("GPU fabric health mask 0x4: route_unhealthy=1", "NvidiaFabricError"),
        ("Fabric Manager status: Failure", "FabricManagerNotRunning"),
        ("DCGM detected issues in health check system with error code 96", "DCGMHealthCode96"),
        ("DCGM Diagnostic failed for test Inforom with error: none", "DCGMDiagnosticFailure"),
        ("Discovered HBM Uncorrectable Error", "NeuronHBMUncorrectableError"),
        ("Discovered DMA Error", "NeuronDMAError"),
        ("detected XID-31 on the instance, review kernel logs", "NvidiaXID31Error"),
    ],
    ids=lambda x: x if x.isalnum() else "",
)
def test_each_message_of_eks_is_known_by_its_words(message: str, reason: str) -> None:
    assert eks("NvidiaXID79Error", message, XID_79) == [("NvidiaXID79Error", XID_79), (reason, message)]


def test_of_what_else_stands_in_a_message_of_eks_only_the_reason_is_stated() -> None:
    assert eks("SomethingNew", "what XID-79 did: detected XID-79 on the instance") == [
        ("SomethingNew", "what XID-79 did: detected XID-79 on the instance")
    ]
    assert eks("", XID_79) == [("AcceleratedHardwareReady", XID_79)]
    many = [f"detected XID-{n} on the instance, review" for n in range(100, 140)]
    assert len(eks("DCGMError", *many, NO_ENGINE)) == 10
    kernel = condition("KernelReady", "False", "ForkFailedOutOfPIDs", message=f"no more; {XID_79}")
    assert stated(looks(kernel)[1]) == [("KernelReady", "ForkFailedOutOfPIDs")]


# ---------------------------------------------------------------- what ends a fault


def test_a_plugins_good_status_ends_its_fault_when_it_was_seen_twice_and_renewed() -> None:
    turned = replace(GPU_GOOD, transition=NOW + MINUTE, heartbeat=NOW + MINUTE)
    once = looks(GPU_BAD, replace(turned, heartbeat=NOW))  # the builder adds a minute: as old as its flip
    why = "GpuCount is good now, which counts once it is renewed and seen again"
    assert once[1].unknown == {"GpuCount": why}
    assert stated(once[1]) == [("GpuCount", "GpuCountBad")]
    never_renewed = looks(GPU_BAD, *[replace(turned, heartbeat=NOW + (1 - i) * MINUTE) for i in range(1, 9)])
    assert not never_renewed[1].cleared
    renewed = looks(GPU_BAD, turned, turned, turned)
    assert renewed[1].took_back("GpuCount", "GpuCountBad")
    assert (renewed[1].unknown, stated(renewed[1])) == ({}, [])


@pytest.mark.parametrize(("bad", "good"), [(LOG_BAD, LOG_GOOD), (NMA_BAD, NMA_GOOD)], ids=["log rule", "EKS"])
def test_what_is_never_taken_back_stays_however_often_it_is_good(bad: Condition, good: Condition) -> None:
    reading = looks(bad, *[replace(good, transition=NOW + MINUTE)] * 5)[1]
    assert stated(reading) == [(bad.type, bad.reason)]
    assert not reading.cleared
    assert reading.gone == {(bad.type, bad.reason)}


def test_a_reason_that_another_one_hides_is_not_taken_back() -> None:
    other = replace(GPU_BAD, reason="GpuHang", transition=NOW + MINUTE)
    reading = looks(GPU_BAD, other, other, other)[1]
    assert {(p.reason, p.masked) for p in reading.problems} == {("GpuCountBad", True), ("GpuHang", False)}
    assert not reading.cleared


def test_a_condition_that_is_removed_ends_nothing() -> None:
    reading = looks(GPU_BAD, ())[1]
    assert stated(reading) == [("GpuCount", "GpuCountBad")]
    assert reading.unknown == {"GpuCount": "GpuCount is no longer on the Node"}


def test_a_statement_after_a_good_one_is_a_new_life() -> None:
    again = replace(LOG_BAD, transition=NOW + 2 * MINUTE)
    first, second = looks(LOG_BAD)[1].problems[0], looks(LOG_BAD, LOG_GOOD, again)[1].problems[0]
    assert first.life != second.life
    assert (first.stated, second.stated) == (LOG_BAD.transition, NOW + 2 * MINUTE)
    assert second.since == NOW


# ---------------------------------------------------------------- what says nothing


def test_unknown_is_neither() -> None:
    reading = looks(condition("GpuCount", "Unknown", "ToolTimedOut"))[1]
    assert (stated(reading), reading.unknown) == ([], {"GpuCount": "GpuCount is Unknown: ToolTimedOut"})


def test_a_bad_condition_that_nobody_renews_is_unknown_and_a_good_one_is_not_confirmed() -> None:
    old = RENEWED + SECOND
    bad = looks(replace(GPU_BAD, heartbeat=NOW - old))[1]
    assert stated(bad) == []
    assert bad.unknown["GpuCount"].startswith("GpuCount is True, but was last renewed at ")
    good = looks(replace(GPU_GOOD, heartbeat=NOW - old))[1]
    assert (good.problems, good.unknown, good.cleared) == ((), {}, frozenset())
    assert good.unconfirmed["GpuCount"].startswith("GpuCount is False, but was last renewed at ")


def test_a_fault_whose_writer_falls_silent_stays_and_is_unknown() -> None:
    state, _ = looks(GPU_BAD)
    silent = replace(GPU_BAD, heartbeat=NOW - RENEWED - SECOND)
    _, reading = looks(silent, state=state)
    assert stated(reading) == [("GpuCount", "GpuCountBad")]
    assert "GpuCount" in reading.unknown


def test_a_heartbeat_that_is_yet_to_come_counts_from_when_it_was_first_seen() -> None:
    """The node's clock is hours ahead, and the writer is gone."""
    ahead = replace(GPU_BAD, heartbeat=NOW + timedelta(hours=3))
    state, reading = State(), None
    for minutes in (0, 15, 16):
        look = Look(NOW + minutes * MINUTE, (ahead,), "boot-1", None, FRESH)
        state, reading = observe(state, look, polarity)
        assert ("GpuCount" in reading.unknown) is (minutes > 15)
    renewed = replace(ahead, heartbeat=NOW + timedelta(hours=3, minutes=16))
    _, reading = observe(state, Look(NOW + 17 * MINUTE, (renewed,), "boot-1", None, FRESH), polarity)
    assert (stated(reading), reading.unknown) == ([("GpuCount", "GpuCountBad")], {})


def test_a_condition_without_a_heartbeat_counts_from_when_it_was_first_seen() -> None:
    bare = replace(GPU_BAD, heartbeat=None, transition=None)
    assert stated(looks(bare, bare, bare)[1]) == [("GpuCount", "GpuCountBad")]
    assert "GpuCount" in looks(*[bare] * 17)[1].unknown


def test_what_was_written_before_the_boot_says_nothing_of_it() -> None:
    reading = looks(GPU_BAD, began=NOW)[1]
    assert stated(reading) == []
    before = "from before this boot, or before etcd was restored, and was not renewed since"
    assert reading.unknown == {"GpuCount": f"GpuCount is True {before}"}
    assert stated(looks(replace(GPU_BAD, heartbeat=NOW + SECOND), began=NOW)[1]) == [
        ("GpuCount", "GpuCountBad")
    ]


def test_a_change_that_is_yet_to_come_makes_no_condition_one_of_this_boot() -> None:
    """A clock that takes local time for UTC is hours ahead until it is set, maybe after the first check."""
    ahead = replace(GPU_BAD, transition=NOW + timedelta(hours=2))
    reading = looks(ahead, began=NOW)[1]
    assert (stated(reading), set(reading.unknown)) == ([], {"GpuCount"})
    assert stated(looks(ahead, ahead, began=NOW + SECOND)[1]) == [("GpuCount", "GpuCountBad")]
    still_ahead = replace(ahead, heartbeat=NOW + timedelta(hours=2))
    assert stated(looks(still_ahead, began=NOW)[1]) == [("GpuCount", "GpuCountBad")]


def test_a_good_condition_whose_change_is_yet_to_come_takes_its_fault_back_once_it_was_renewed() -> None:
    ahead = replace(GPU_GOOD, transition=NOW + timedelta(hours=2))
    assert stated(looks(GPU_BAD, ahead, ahead)[1]) == []


def test_after_a_boot_that_was_seen_a_condition_that_has_not_changed_says_nothing() -> None:
    same = replace(GPU_BAD, heartbeat=None)
    assert stated(looks(same, same, boots=("boot-1", "boot-2"))[1]) == []
    renewed = looks(GPU_BAD, GPU_BAD, boots=("boot-1", "boot-2"))[1]  # each look finds it renewed
    assert stated(renewed) == [("GpuCount", "GpuCountBad")]


def test_a_boot_ends_what_was_held() -> None:
    assert stated(looks(LOG_BAD, LOG_GOOD, boots=("boot-1", "boot-2"))[1]) == []


# ---------------------------------------------------------------- many


def test_a_detector_whose_reason_is_a_new_one_each_time_does_not_pile_up_faults() -> None:
    """Each was held until the condition was good, and had a metric. Root on one node could have had the
    controller of all nodes run out of memory."""
    other = condition("RdmaLink", "True", "RdmaLinkHasIssues")
    many = [condition("GpuCount", "True", f"Bad{i:03}") for i in range(200)]
    state, reading = looks(*((c, other) for c in many), every=SECOND)
    kept = [("GpuCount", f"Bad{i:03}") for i in (*range(MOST_HELD - 1), 199)]
    assert stated(reading) == [*kept, ("RdmaLink", "RdmaLinkHasIssues")]
    assert set(state.held) == {*kept, ("RdmaLink", "RdmaLinkHasIssues")}
    _, reading = looks(GPU_GOOD, GPU_GOOD, state=state)
    assert stated(reading) == [("RdmaLink", "RdmaLinkHasIssues")]
