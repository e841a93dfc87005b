"""What ends a fault, by rule, catalogue and source; the policy's words for it; the kernel's boot ID."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from recovery.agent.boot_id import KernelBoot
from recovery.catalog import default_for, faults
from recovery.config.policy_file import parse_policy
from recovery.decide.acknowledged import dealt_with, late_witness
from recovery.decide.diagnosis import SIGNAL_UNKNOWN, diagnosed
from recovery.decide.endings import close
from recovery.decide.latch import hold_of, latch_of, over, what_ends
from recovery.decide.lifecycle import Event
from recovery.decide.remembered import closed_with, digest, digested, forgotten, remembered
from recovery.errors import SettingsError
from recovery.model import Detector, Ends, Fault, Kind, Latch, Phase
from recovery.signals import (
    autopilot,
    autopilot_gauge,
    aznhc,
    black_hole,
    dcgm,
    device_counts,
    konduktor,
    never_joined,
)
from tests.builders.faults import DMA, fault, problem, reading
from tests.builders.policies import HEAD, policy
from tests.builders.records import record
from tests.builders.situations import situation
from tests.builders.times import HOUR, MINUTE, NOW, SECOND

XID = fault("GpuXidBad", type="GpuXid", latched=False)
LINK = fault("IbDevBad", type="IbDev", latched=False)
FANS = fault("FansBad", type="Fans", latched=False)
BACK = reading(cleared=frozenset((f.type, f.reason) for f in (XID, LINK, FANS)))


def rules(**more: str) -> str:
    fields = "".join(f"\n    {key}: {value}" for key, value in more.items())
    return f"\n  - name: a\n    match: {{}}{fields}\n    remedy: [{{do: drain}}]\n"


@pytest.mark.parametrize(
    ("it", "latch"),
    [
        (fault(DMA), Latch.BOOT),
        (XID, Latch.PROOF),
        (LINK, Latch.SOURCE),
        (FANS, Latch.SOURCE),
        (fault("FansBad", type="Fans"), Latch.BOOT),
        (fault("OOMKilling", type="", kind=Kind.EDGE, latched=False), Latch.BOOT),
    ],
    ids=["log rule", "XID", "plugin", "unknown plugin", "unknown log rule", "temporary"],
)
def test_the_catalogue_says_what_ends_a_fault(it: object, latch: Latch) -> None:
    assert latch_of(it, None, situation(readings=(reading(),))) is latch  # type: ignore[arg-type]


def test_who_takes_a_fault_back_is_a_plugin_whatever_it_looked_like_at_first() -> None:
    looked_latched = fault("FansBad", type="Fans", latched=True)
    assert over(looked_latched, None, situation(readings=(BACK,)))


@pytest.mark.parametrize("latch", Latch)
def test_a_rule_says_it_before_the_catalogue(latch: Latch) -> None:
    s = situation(policy=policy(rules(latch=latch.value)), readings=(BACK,))
    for it in (XID, LINK, FANS):
        assert over(it, diagnosed(it, s).rule, s) is (latch is Latch.SOURCE)


@pytest.mark.parametrize("latch", Latch)
def test_a_row_of_the_source_says_it_before_the_catalogue_and_after_a_rule(latch: Latch) -> None:
    said = replace(BACK, ends={("GpuXid", "GpuXidBad"): Ends(latch, 7 * MINUTE)})
    s = situation(readings=(said,))
    assert (latch_of(XID, None, s), hold_of(XID, None, s)) == (latch, 7 * MINUTE)
    assert latch_of(LINK, None, s) is Latch.SOURCE
    ruled = situation(policy=policy(rules(latch="boot", hold="1m")), readings=(said,))
    rule = ruled.policy.rules[0]
    assert (latch_of(XID, rule, ruled), hold_of(XID, rule, ruled)) == (Latch.BOOT, MINUTE)


def test_a_hold_counts_from_the_moment_that_is_on_the_record() -> None:
    s = situation(policy=policy(rules(hold="10m")), readings=(BACK,))
    rule = diagnosed(FANS, s).rule
    for since, is_over in ((None, False), (NOW - 9 * MINUTE, False), (NOW - 10 * MINUTE, True)):
        it = fault("FansBad", type="Fans", latched=False, quiet_since=since)
        assert over(it, rule, s) is is_over
    held = fault("FansBad", type="Fans", latched=False, quiet_since=NOW)
    assert what_ends(held, rule, s) == f"held until {NOW + 10 * MINUTE:%H:%M:%SZ} since it was last stated"
    assert what_ends(FANS, rule, s) == "held for 10 min after its source takes it back"


def test_every_row_of_the_catalogue_says_what_states_it() -> None:
    others = {"SignalUnknown", aznhc.TYPE, konduktor.TYPE, dcgm.HEALTH}
    others |= autopilot.TYPES | autopilot_gauge.TYPES | device_counts.TYPES | black_hole.TYPES
    others |= {never_joined.TYPE, "AcceleratedHardwareReady"}
    assert {row.type for row in faults() if row.detector is None} == others
    assert all(default_for(d, "Any").hold == timedelta(0) for d in Detector)


def test_a_check_of_xids_is_latched_whoever_wrote_it() -> None:
    assert default_for(Detector.PLUGIN, "GpuXid").latch is Latch.PROOF
    assert default_for(Detector.PLUGIN, "GcmXidErrorsProblem").latch is Latch.PROOF
    assert default_for(Detector.PLUGIN, "GPUXIDErrors").latch is Latch.PROOF
    assert default_for(Detector.LOG, "GpuXid").latch is Latch.BOOT


# ---------------------------------------------------------------- the policy file


KEYS = "name, match, after, hold, latch, witness, budget, windows, urgent, remedy, probation, validate"
WRONG = {
    "latch: prof": 'latch: found "prof", expected one of source, boot, proof; did you mean "proof"?',
    "latch: null": "latch: found nothing, expected a value; leave the field out for its default",
    "hold: 10": "hold: found 10, expected a duration such as 10s or 5m",
    "lach: proof": f'lach: unknown, expected one of {KEYS}; did you mean "latch"?',
}


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_word_is_said_with_its_line_and_the_nearest_right_one(field: str) -> None:
    text = f"{HEAD}rules:\n  - name: a\n    match: {{}}\n    {field}\n"
    with pytest.raises(SettingsError) as caught:
        parse_policy(text.encode(), "p.yaml")
    assert list(caught.value.mistakes) == [f"p.yaml:6: field rules[0].{WRONG[field]}"]


def test_a_source_that_is_not_there_is_a_mistake() -> None:
    text = f"{HEAD}rules:\n  - name: a\n    match: {{source: ndp}}\n"
    with pytest.raises(SettingsError) as caught:
        parse_policy(text.encode(), "p.yaml")
    choices = (
        "expected one of npd, conditions, autopilot, aznhc, konduktor, dcgm, prometheus, loki, api; "
        'did you mean "npd"?'
    )
    assert list(caught.value.mistakes) == [f'p.yaml:5: field rules[0].match.source: found "ndp", {choices}']


@pytest.mark.parametrize(
    ("match", "warning"),
    [
        (f"reason: {DMA}", f"source, but {DMA} is a log rule's; a new boot or another machine ends it"),
        (
            "reason: OOMKilling, times: {count: 3, within: 10m}",
            "source, but what is only counted is never ended by its source; a boot or another machine does",
        ),
        ("reason: GpuXidBad", None),
    ],
)
def test_a_log_rule_takes_nothing_back_whatever_the_policy_says(match: str, warning: str | None) -> None:
    text = (
        f"{HEAD}rules:\n  - name: a\n    match: {{{match}}}\n    latch: source\n    remedy: [{{do: drain}}]\n"
    )
    found = [x for x in parse_policy(text.encode(), "p.yaml").warnings if ".latch" in x]
    assert found == ([f"p.yaml:6: field rules[0].latch: {warning}"] if warning else [])


# ---------------------------------------------------------------- memory


def test_the_faults_to_treat_stay_whole_and_the_others_become_digests() -> None:
    first, later = [fault(f"A{i}") for i in range(15)], [fault(f"B{i}") for i in range(15)]
    r = remembered(record(Phase.RELEASED, acknowledged=tuple(first)), tuple(later))
    assert {f.reason for f in r.acknowledged} == {
        *(f"B{i}" for i in range(15)),
        *(f"A{i}" for i in range(10, 15)),
    }
    assert r.acknowledged_more == "".join(digest(f) for f in first[:10])


def test_a_closed_record_is_about_all_that_was_remembered_last() -> None:
    """Whatever of it the record has room to name; not what was dealt with before."""
    before, on_it = fault("A0"), tuple(fault(f"B{i}") for i in range(4))
    closed = close(record(Phase.WAITING, faults=on_it, acknowledged=(before,)), NOW, Event.GAVE_UP, "so")
    named = replace(closed, faults=on_it[:1])
    assert closed_with(named) == on_it
    assert closed_with(close(named, NOW, Event.RELEASED, "so")) == on_it  # handed over before
    short = digested(named, (before, *on_it[:1]))
    assert closed_with(short) == on_it[1:]
    assert closed_with(replace(named, acknowledged=(before, *on_it[1:]))) == ()  # taken back: nobody knows


def test_what_its_source_took_back_is_new_though_another_source_was_dealt_with() -> None:
    """And is forgotten as a whole once that one has taken it back as well."""
    condition = replace(XID, source="conditions")
    r = forgotten(record(Phase.RELEASED, acknowledged=(XID, condition)), (XID,))
    page = problem(XID.reason, type=XID.type)
    shown = (reading(page), reading(replace(page, source="conditions"), source="conditions"))
    stated = situation(record=r, readings=shown)
    assert [dealt_with(f, stated) for f in (XID, condition)] == [False, True]
    assert not late_witness(XID, situation(record=r))
    assert forgotten(r, r.acknowledged).acknowledged == ()
    withdrawn = close(replace(r, phase=Phase.WAITING, faults=(XID,)), NOW, Event.CLEARED, "so")
    assert not late_witness(XID, situation(record=withdrawn))


def test_a_second_witness_that_only_a_digest_remembers_is_not_late_again() -> None:
    """Remembered in full again, it would put the other one out, which would then be late: in each cycle."""
    page, condition = fault(), fault(source="conditions")
    assert late_witness(condition, situation(record=record(Phase.RELEASED, acknowledged=(page,))))
    r = record(Phase.RELEASED, acknowledged=(page,), acknowledged_more=digest(condition))
    assert not late_witness(condition, situation(record=r))
    assert dealt_with(condition, situation(record=r))


@pytest.mark.parametrize(
    ("old", "stated", "late"),
    [
        pytest.param(fault(), NOW + HOUR, True, id="within an hour"),
        pytest.param(fault(), NOW + HOUR + SECOND, False, id="later"),
        pytest.param(fault(), None, True, id="nobody knows when"),
        pytest.param(fault(latched=False), NOW + 24 * HOUR, True, id="of what is there still"),
        pytest.param(fault(latched=False, cleared=True), NOW + 24 * HOUR, False, id="of what was taken back"),
    ],
)
def test_a_second_witness_may_be_late_by_an_hour(old: Fault, stated: datetime | None, late: bool) -> None:
    condition = fault(source="conditions")
    shown = reading(problem(source="conditions", stated=stated), source="conditions")
    s = situation(record=record(Phase.RECOVERED, faults=(), acknowledged=(old,)), readings=(shown,))
    assert bool(late_witness(condition, s)) is late


def test_what_the_record_is_about_was_dealt_with_when_it_was_closed() -> None:
    shown = reading(problem(source="conditions", stated=NOW + 24 * HOUR), source="conditions")
    r = record(Phase.RELEASED, acknowledged=(fault(),), phase_since=NOW + 24 * HOUR)
    assert late_witness(fault(source="conditions"), situation(record=r, readings=(shown,)))


def test_a_source_that_can_be_read_again_is_forgotten_though_another_is_silent() -> None:
    silent = fault(SIGNAL_UNKNOWN, type=SIGNAL_UNKNOWN, latched=False, counter=None)
    other = replace(silent, source="dcgm")
    r = record(Phase.RELEASED, acknowledged=(silent, other))
    assert forgotten(r, (silent,)).acknowledged == (other,)
    assert not late_witness(silent, situation(record=forgotten(r, (silent,))))


# ---------------------------------------------------------------- the kernel's boot ID


def test_the_kernels_boot_id_is_read_until_it_could_be_read(tmp_path: Path) -> None:
    path = tmp_path / "boot_id"
    kernel = KernelBoot(str(path))
    assert kernel() == ""
    path.write_text("5a9a6c1e-1f0e-4b7e-8a0e-0f4d5c1f2a3b\n")
    assert kernel() == "5a9a6c1e-1f0e-4b7e-8a0e-0f4d5c1f2a3b"
    path.unlink()
    assert kernel() == "5a9a6c1e-1f0e-4b7e-8a0e-0f4d5c1f2a3b"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"x" * 200, b"a\x00b"])
def test_a_file_without_a_boot_id_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "boot_id"
    path.write_bytes(content)
    assert KernelBoot(str(path))() == ""
