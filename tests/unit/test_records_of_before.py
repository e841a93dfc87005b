"""Records of the version before ``progress``: commit 6cf9989, written by its own codec as its stories ran.

Each line of the capture has a record, and what that version's own functions answered about it. There is one
for each phase, each state of an intent in it, and each last line of history.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from recovery.decide.idle import recovered_at
from recovery.model import Phase, Progress, Record
from recovery.store.record_codec import THIRD, decode, encode

CAPTURE = Path(__file__).resolve().parents[1] / "captures/records-6cf9989.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    row["was"]: row for row in map(json.loads, CAPTURE.read_text().splitlines())
}


def answers(r: Record) -> dict[str, Any]:
    """What that version asked of history, asked of progress."""
    p = r.progress

    def at(moment: datetime | None) -> str:
        return (moment or r.phase_since).isoformat()

    settled = {p.called_off, p.evidence.attempt if p.evidence else 0}
    return {
        "acted": p.acted,
        "tries": p.tries,
        "boots": len(p.boots),
        "stepSince": at(p.step_since),
        "evidenceAt": p.evidence.at.isoformat() if p.evidence else None,
        "provingSince": at(p.proving_since),
        "recoveredAt": recovered_at(r).isoformat(),
        "putOff": p.retry_at is not None,
        "settled": r.intent is not None and r.intent.attempt in settled,
    }


def test_there_is_a_record_of_every_phase() -> None:
    assert {row["record"]["status"]["phase"] for row in ROWS.values()} == {phase.value for phase in Phase}


@pytest.mark.parametrize("was", ROWS)
def test_what_a_record_of_before_says_it_did_is_known_of_it(was: str) -> None:
    assert answers(decode(ROWS[was]["record"])) == ROWS[was]["answers"]


@pytest.mark.parametrize("was", ROWS)
def test_a_record_of_before_is_written_and_read_again_without_a_change(was: str) -> None:
    """But for what makes a closed one small: older lines of its history, and long ones."""
    read = decode(ROWS[was]["record"])
    again = decode(json.loads(json.dumps(encode(read))))
    if read.phase.open:
        assert again == read
    assert answers(again) == answers(read)
    lines = read.history[-len(again.history) :]
    assert replace(again, history=()) == replace(read, history=())
    assert [(x.at, x.event) for x in again.history] == [(x.at, x.event) for x in lines]


@pytest.mark.parametrize("was", ROWS)
def test_an_agent_of_before_can_go_on_with_a_record_that_says_nothing_new(was: str) -> None:
    """It understands versions 1 and 2, writes away what it does not know, and holds any other version."""
    before = ROWS[was]["record"]["status"]
    read = decode(ROWS[was]["record"])
    written = encode(read)["status"]
    new = read.phase.open and read.progress != Progress()
    assert written["version"] == (THIRD if new else before["version"])


def test_a_record_without_progress_is_not_one_with_an_empty_progress() -> None:
    """Ours always says what was done, be it nothing: its history is never asked."""
    row = ROWS["recovering/submitted/reboot/1/submitted"]["record"]
    ours = replace(decode(row), progress=Progress())
    assert decode(json.loads(json.dumps(encode(ours)))).progress == Progress()
