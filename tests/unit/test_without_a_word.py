"""Which faults on a record has their source no word on, in the process that would act on them?"""

from __future__ import annotations

from datetime import timedelta

import pytest

from recovery.decide.diagnosis import UNKNOWN_TOO_LONG, silent_sources
from recovery.decide.doubt import unheard, unreadable, without_a_word
from recovery.decide.situation import Situation
from recovery.model import Fault, Kind, Phase, Problem, Reading
from recovery.quick import replace
from tests.builders.records import record
from tests.builders.situations import situation
from tests.builders.times import NOW

SHORT = Fault("api", "DeviceCount", "DevicesMissing", "m", NOW, machine="m-0", boot_id="boot-1")
SHOWN = Problem("api", "DeviceCount", "DevicesMissing", "m", NOW, NOW)


def seen(reading: Reading | None = None, phase: Phase = Phase.WAITING, **changes: object) -> Situation:
    s = situation()
    assert s.node is not None
    fault = replace(SHORT, **{"boot_id": s.node.boot_id, **changes})
    return replace(s, readings=(reading or Reading("api", NOW),), record=record(faults=(fault,), phase=phase))


@pytest.mark.parametrize("phase", [Phase.SUSPECT, Phase.WAITING, Phase.RECOVERING])
def test_a_fault_that_its_source_neither_states_nor_takes_back_has_no_word(phase: Phase) -> None:
    assert [f.reason for f in without_a_word(seen(phase=phase))] == ["DevicesMissing"]


@pytest.mark.parametrize(
    "reading",
    [
        Reading("api", NOW, (SHOWN,)),
        Reading("api", NOW, (replace(SHOWN, reason="DevicesAbsent"),)),
        Reading("api", NOW, cleared=frozenset({("DeviceCount", "*")})),
        Reading("api", NOW, early={"DeviceCount": "7 of 8"}),
        Reading("api", NOW, unknown={"*": "so"}),
        Reading("api", NOW, silent={"DeviceCount": "so"}),
        Reading("api", NOW, unconfirmed={"DeviceCount": "so"}),
    ],
    ids=["stated", "hidden", "taken back", "short now", "unknown", "silent", "good, but not for long"],
)
def test_a_source_that_says_something_of_it_is_heard(reading: Reading) -> None:
    assert without_a_word(seen(reading)) == ()


@pytest.mark.parametrize(
    "changes",
    [{"latched": True}, {"kind": Kind.EDGE}, {"boot_id": "an earlier one"}, {"type": "SignalUnknown"}],
    ids=["a log rule's", "what is only counted", "of a boot before", "a silence"],
)
def test_of_what_no_source_takes_back_the_record_is_the_evidence(changes: dict[str, object]) -> None:
    assert without_a_word(seen(**changes)) == ()


@pytest.mark.parametrize("phase", [Phase.PROVING, Phase.HANDED_OVER, Phase.WITHDRAWN])
def test_a_proof_and_a_closed_record_have_their_own_questions(phase: Phase) -> None:
    assert without_a_word(seen(phase=phase)) == ()


def test_it_is_unknown_and_after_ten_minutes_that_is_a_fault_of_its_own() -> None:
    s = seen()
    (fault,) = without_a_word(s)
    for ago, told in ((timedelta(minutes=9), 0), (UNKNOWN_TOO_LONG, 1)):
        known = replace(s, readings=unheard(s.readings, {fault: NOW - ago}))
        assert (
            unreadable(known, fault)
            == "api has said nothing of DevicesMissing since this agent began to look"
        )
        assert len(list(silent_sources(known))) == told
