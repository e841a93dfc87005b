"""A record, a gate and a report with every field set, to compare with the schemas that a cluster serves.

A test compares them with the CRDs in ``deploy/crds``: every field of those is set here.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from recovery.decide.sightings import Report, Sighting, Would
from recovery.model import (
    Attempt,
    Cause,
    Census,
    Claim,
    Evidence,
    Fault,
    Gate,
    GroupStart,
    Held,
    Holding,
    Intent,
    Line,
    Machine,
    Marks,
    Outcome,
    Phase,
    Progress,
    Record,
    Reference,
    ReleaseRequest,
    Rung,
    Slot,
    Start,
    Step,
    Taint,
    Validation,
    ValidationRun,
)
from recovery.quick import replace
from recovery.store import gate as gates
from recovery.store import record_codec as records
from recovery.store import sightings

AT = datetime(2026, 1, 1, tzinfo=UTC)
MOMENT = timedelta(seconds=1)
TAINT = Taint("k", "v", "NoSchedule")


def full_objects() -> dict[str, dict[str, Any]]:
    """By kind, a record, a gate and a report with every field set, without their metadata."""
    gate, census = gates.encode(_gate(), _PAUSED), Census(AT, 1, ("n",), {"label=value": (1, 1)}, of="l")
    gate["status"] |= gates.encode(replace(_gate(), census=census), {})["status"]
    objects = (records.encode(_record()), gate, sightings.encode(_report()))
    return {obj["kind"]: {k: v for k, v in obj.items() if k in ("spec", "status")} for obj in objects}


_PAUSED = {
    "pause": {"owner": "o", "reason": "r", "until": "2026-01-01T00:00:00Z"},
    "approved": [{"reason": "r", "by": "o", "until": "2026-01-01T00:00:00Z"}],
}


def _report() -> Report:
    seen = Sighting(
        node="n",
        machine="m",
        boot="b",
        source="s",
        type="t",
        reason="r",
        rule="r",
        would=Would.LEAVE_ALONE,
        steps=(Step.DRAIN,),
        why="w",
        since=AT,
        seen=AT,
        due=AT,
        ended=AT,
        how="h",
    )
    return Report(AT, (seen,), dropped=1, dropped_until=AT, full_since=AT)


def _record() -> Record:
    fault = Fault(
        "npd",
        "T",
        "R",
        "m",
        AT,
        "i",
        "b",
        counter=1.0,
        life="1",
        quiet_since=AT,
        treated=True,
        device="d",
        handed_over=True,
    )
    intent = Intent(
        "replace", 1, "t", AT, "i", "b", Reference("p", "replace", {"group": "g"}), kernel_boot="b"
    )
    held = (Held(Cause.PAUSE, MOMENT),)
    return Record(
        node="n",
        phase=Phase.RECOVERING,
        machine=Machine("p", "i", "p://i", "g", {"region": "r"}),
        node_uid="u",
        boot_id="b",
        faults=(fault,),
        phase_since=AT,
        rule="r",
        ladder=(Rung(Step.TAINT, MOMENT, taint=TAINT), Rung(Step.REPLACE, MOMENT)),
        probation=MOMENT,
        after=MOMENT,
        rung_since=AT,
        intent=intent,
        replacement="n2",
        replacement_machine="i2",
        marks=Marks(cordoned=True, tainted=True, out_of_service=True, taints=(TAINT,)),
        sentence="s",
        history=(Outcome(AT, 1, "e", "s"),),
        starts=(Start(AT, "i", "R", "g", ("h",), "i2"),),
        acknowledged=(fault,),
        scopes=("fleet",),
        validate=Validation("c", MOMENT),
        validation=ValidationRun("j", AT),
        tried=(Step.REBOOT,),
        progress=Progress(
            *((Attempt(1, "a"),), 1, ("b",), Evidence(1, AT, "e"), 1, AT, AT, AT, (intent,), (1,), AT),
            held=held,
            holding=Holding(Cause.PAUSE, AT),
            accounted=AT,
        ),
        recovered_at=AT,
        node_gone_since=AT,
        acknowledged_more="digest",
        boot_confirmed=True,
        release=ReleaseRequest("o", AT, "r"),
        release_heard=True,
    )


def _gate() -> Gate:
    return Gate(
        uid="g",
        resource_version="",
        stamp="g",
        open=(Line("n", "u", AT),),
        slots=(
            Slot("n", "u", 1, ("fleet",), AT, None, "i", "g"),
            Slot("m", "v", 1, ("fleet", "l=v"), AT, {"l": "v"}, "i", "g", "rule", "p://a/1"),
        ),
        last_start=AT,
        starts=(GroupStart(AT, "n", "g", "i", "R", ("h",)),),
        census=Census(AT, 1, ("n",), {"label=value": (1, 1)}, seconds=1),
        claimed=(Claim("i2", "i"),),
    )
