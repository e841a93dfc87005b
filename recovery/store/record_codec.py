"""The NodeRecovery object: ``encode`` writes a record as one, ``decode`` reads one. PURE.

Reading is strict. A record that cannot be understood, or that a newer version of the program wrote, raises
``Undecodable``: its recovery is held, and nothing is done to the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from recovery.decide.history import HISTORY, LONGEST_LINE
from recovery.decide.remembered import MOST_KEPT as ACKNOWLEDGED
from recovery.decide.remembered import digested
from recovery.decide.room import LONGEST_DEVICE, heavier, kept
from recovery.errors import Undecodable
from recovery.model import (
    GROUP,
    PHASE_LABEL,
    VERSION,
    Attempt,
    Cause,
    Evidence,
    Fault,
    Held,
    Holding,
    Intent,
    IntentState,
    Kind,
    Machine,
    Marks,
    Outcome,
    Phase,
    Progress,
    Record,
    Reference,
    ReleaseRequest,
    Rung,
    Start,
    Step,
    Taint,
    Then,
    Validation,
    ValidationRun,
)
from recovery.provider.known import packed
from recovery.quick import replace
from recovery.short import LONGEST_REASON, LONGEST_TYPE, named
from recovery.store.carried import carried
from recovery.store.codec import Reader
from recovery.store.compact import fitted
from recovery.store.room import RECORD, within
from recovery.store.upgrade import upgraded
from recovery.units import duration, moment

FIRST, SECOND, THIRD, FOURTH, FIFTH = 1, 2, 3, 4, 5
"""Versions of the schema. A record is written in the oldest version that can hold its content: an older agent
goes on with a version it knows, and holds a newer one. Version 2 added validation, steps tried in vain and
the out-of-service taint. Version 3 added the progress of open records. Version 4 added digests of
the faults that were dealt with, what is to be taken back at the provider before the node goes back to
service, what held the steps, and filters in place of long lists of machines. Version 5 added the taints
that a remedy names: an older agent would forget or misread them."""

STARTS = 50
TAKEN_BACK = 20
MOST = 64 * 1024
"""Bytes of a record's status, about. Nobody here writes one of a quarter of that; thousands of larger ones
would not fit into an agent's memory."""


# ---------------------------------------------------------------- encode


def _version(r: Record) -> int:
    p = r.progress
    if r.marks.taints or any(rung.taint for rung in r.ladder):
        return FIFTH
    taking_back = r.release or p.left or p.taking_back
    held = r.phase.open and (p.held or p.holding or p.accounted)
    filtered = r.intent is not None and packed(r.intent.reference.data)
    if r.acknowledged_more or taking_back or held or filtered:
        return FOURTH
    if r.phase.open and p != Progress():
        return THIRD
    return SECOND if r.validate or r.validation or r.tried or r.marks.out_of_service else FIRST


def _fault(f: Fault) -> dict[str, Any]:
    late = {
        "life": f.life,
        "quietSince": _maybe(f.quiet_since),
        "device": f.device,
        "handedOver": f.handed_over,
    }  # written where they say something
    said = {} if f.treated is None else {"treated": f.treated}
    return {
        "source": f.source,
        "type": f.type,
        "reason": f.reason,
        "message": f.message,
        "since": moment(f.since),
        "machine": f.machine,
        "bootID": f.boot_id,
        "counter": f.counter,
        "kind": f.kind.value,
        "latched": f.latched,
        "cleared": f.cleared,
        **{key: value for key, value in late.items() if value},
        **said,
    }


def _intent(i: Intent) -> dict[str, Any]:
    return {
        "action": i.action,
        "attempt": i.attempt,
        "token": i.token,
        "at": moment(i.at),
        "machine": i.machine,
        "bootID": i.boot_id,
        **({"kernelBootID": i.kernel_boot} if i.kernel_boot else {}),
        "state": i.state.value,
        "submitWithin": i.submit_within,
        "callTimeout": i.call_timeout,
        "reference": {
            "provider": i.reference.provider,
            "action": i.reference.action,
            "data": dict(i.reference.data),
        },
    }


def _taint(t: Taint) -> dict[str, str]:
    return {"key": t.key, "effect": t.effect, **({"value": t.value} if t.value else {})}


def _maybe(at: datetime | None) -> str | None:
    return moment(at) if at else None


def _progress(p: Progress) -> dict[str, Any]:
    """The fields with a value. An empty object is written too: without it, history would be read."""
    e, h = p.evidence, p.holding
    said = {
        "submitted": [{"attempt": x.number, "action": x.action} for x in p.submitted],
        "tries": p.tries,
        "boots": list(p.boots),
        "evidence": {"attempt": e.attempt, "at": moment(e.at), "what": e.what} if e else None,
        "calledOff": p.called_off,
        "stepSince": _maybe(p.step_since),
        "provingSince": _maybe(p.proving_since),
        "retryAt": _maybe(p.retry_at),
        "left": [_intent(x) for x in p.left],
        "takenBack": list(p.taken_back),
        "takingBack": _maybe(p.taking_back),
        "held": {x.cause.value: duration(x.time) for x in p.held},
        "holding": {"cause": h.cause.value, "since": moment(h.since)} if h else None,
        "accounted": _maybe(p.accounted),
    }
    return {key: value for key, value in said.items() if value}


def _validate(v: Validation | None) -> dict[str, Any] | None:
    return {"cronJob": v.cron_job, "within": duration(v.within)} if v else None


def _validation(v: ValidationRun | None) -> dict[str, Any] | None:
    return {"job": v.job, "since": moment(v.since)} if v else None


def _release(x: ReleaseRequest | None) -> dict[str, Any] | None:
    return {"by": x.by, "at": moment(x.at), "reason": x.reason} if x else None


def bounded(record: Record) -> Record:
    """``record`` with no more than is kept: the latest lines and starts, no endless message, nothing that the
    schema has no room for, and a size that fits."""
    return _as_kept(record)[0]


def _as_kept(record: Record) -> tuple[Record, dict[str, Any]]:
    """``bounded``, and its whole object. That is made once, unless something has to be cut."""
    record = digested(record, record.acknowledged[:-ACKNOWLEDGED])
    kept_record = replace(
        record,
        faults=kept(map(_short, record.faults)),
        history=record.history[-HISTORY:],
        starts=record.starts[-STARTS:],
        acknowledged=tuple(map(_short, record.acknowledged)),
        progress=_answered(record),
    )
    roomy, body = _with_room(kept_record)
    fitting = fitted(roomy, lambda r: body if r is roomy else whole(r))
    return fitting, body if fitting is roomy else whole(fitting)


def _answered(r: Record) -> Progress:
    """Its progress. Of many calls that never will be carried out, those go first that are named nowhere else:
    one of the others would be waited for again."""
    p = r.progress
    if len(p.taken_back) <= TAKEN_BACK:
        return p
    asked = {x.attempt for x in (*p.left, *((r.intent,) if r.intent else ()))}
    named_last = sorted(p.taken_back, key=lambda attempt: (attempt in asked, attempt))
    return replace(p, taken_back=tuple(sorted(named_last[-TAKEN_BACK:])))


def _with_room(record: Record) -> tuple[Record, dict[str, Any]]:
    """``record``, as it would be read back if nothing in it were larger than the schema lets through, and its
    whole object."""
    body = whole(record)
    status = within(body["status"], RECORD)
    if status is body["status"]:  # nearly always
        return record, body
    read = _decoded({**body, "status": status})
    read = replace(read, uid=record.uid, resource_version=record.resource_version)
    return read, whole(read)


def _short(f: Fault) -> Fault:
    """``f`` without endless words, and with the names that sources give it (``signals.names``)."""
    type_, reason = named(f.type, LONGEST_TYPE), named(f.reason, LONGEST_REASON)
    words_fit = len(f.message) <= LONGEST_LINE and len(f.device) <= LONGEST_DEVICE
    if words_fit and type_ is f.type and reason is f.reason:
        return f
    message, device = f.message[:LONGEST_LINE], f.device[:LONGEST_DEVICE]
    return replace(f, type=type_, reason=reason, message=message, device=device)


def encode(record: Record, was: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The whole object, ready for POST or PUT, of no more than is kept.

    ``was``: the object as it was read. What others put on it stays.
    """
    return as_written(record, was)[1]


def as_written(record: Record, was: Mapping[str, Any] | None = None) -> tuple[Record, dict[str, Any]]:
    """``record``, as ``bounded``, and the object for it, as ``encode``."""
    kept_record, body = _as_kept(record)
    return kept_record, _object(kept_record, body["status"], was)


def whole(record: Record) -> dict[str, Any]:
    """As ``encode``, of a record that is ``bounded`` already."""
    return _object(record, _status(record), None)


def _object(record: Record, status: dict[str, Any], was: Mapping[str, Any] | None) -> dict[str, Any]:
    foreign = carried(was)
    metadata: dict[str, Any] = {**foreign.get("metadata", {}), "name": record.node}
    metadata["labels"] = {**metadata.get("labels", {}), PHASE_LABEL: record.phase.value}
    if record.resource_version:
        metadata |= {"resourceVersion": record.resource_version, "uid": record.uid}
    return {
        **foreign,
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "NodeRecovery",
        "metadata": metadata,
        "status": status,
    }


def _status(record: Record) -> dict[str, Any]:
    m = record.machine
    status = {
        "version": _version(record),
        "machine": {
            "provider": m.provider,
            "id": m.id,
            "providerID": m.provider_id,
            "group": m.group,
            "route": dict(m.route),
        },
        "nodeUID": record.node_uid,
        "bootID": record.boot_id,
        "faults": [_fault(f) for f in record.faults],
        "rule": record.rule,
        "ladder": [
            {
                "do": r.do.value,
                "within": duration(r.within),
                "then": r.then.value,
                **({"taint": _taint(r.taint)} if r.taint else {}),
            }
            for r in record.ladder
        ],
        "probation": duration(record.probation),
        "after": duration(record.after),
        "rung": record.rung,
        "rungSince": _maybe(record.rung_since),
        "attempt": record.attempt,
        "phase": record.phase.value,
        "phaseSince": moment(record.phase_since),
        "intent": _intent(record.intent) if record.intent else None,
        "replacement": record.replacement,
        "replacementMachine": record.replacement_machine,
        "marks": {
            "cordoned": record.marks.cordoned,
            "tainted": record.marks.tainted,
            "outOfService": record.marks.out_of_service,
            **({"taints": [_taint(t) for t in record.marks.taints]} if record.marks.taints else {}),
        },
        "sentence": record.sentence,
        "history": [
            {"at": moment(o.at), "attempt": o.attempt, "event": o.event, "sentence": o.sentence}
            for o in record.history
        ],
        "starts": [
            {
                "at": moment(s.at),
                "machine": s.machine,
                "reason": s.reason,
                "group": s.group,
                "hardware": list(s.hardware),
                **({"replacement": s.replacement} if s.replacement else {}),
            }
            for s in record.starts
        ],
        "acknowledged": [_fault(f) for f in record.acknowledged],
        "scopes": list(record.scopes),
        "validate": _validate(record.validate),
        "validation": _validation(record.validation),
        "tried": [step.value for step in record.tried],
        "progress": _progress(record.progress),
        "recoveredAt": _maybe(record.recovered_at),
        "nodeGoneSince": _maybe(record.node_gone_since),
        "acknowledgedMore": record.acknowledged_more or None,
        "bootConfirmed": record.boot_confirmed or None,
        "release": _release(record.release),
        "releaseHeard": record.release_heard or None,
    }
    return {k: v for k, v in status.items() if v is not None}


# ---------------------------------------------------------------- decode


def _read_fault(r: Reader) -> Fault:
    return Fault(
        source=r.text("source", ...),
        type=named(r.text("type"), LONGEST_TYPE),
        reason=named(r.text("reason", ...), LONGEST_REASON),
        message=r.text("message"),
        since=r.at("since"),
        machine=r.text("machine"),
        boot_id=r.text("bootID"),
        counter=r.number("counter"),
        kind=r.member("kind", Kind),
        latched=r.flag("latched"),
        cleared=r.flag("cleared"),
        life=r.text("life"),
        quiet_since=r.maybe_at("quietSince"),
        treated=r.maybe_flag("treated"),
        device=r.text("device"),
        handed_over=r.flag("handedOver"),
    )


def _read_intent(r: Reader) -> Intent:
    ref = r.child("reference")
    if ref is None:
        raise Undecodable("status.intent.reference: is missing")
    return Intent(
        action=r.text("action", ...),
        attempt=r.integer("attempt", ...),
        token=r.text("token"),
        at=r.at("at"),
        machine=r.text("machine", ...),
        boot_id=r.text("bootID"),
        state=r.member("state", IntentState),
        submit_within=r.number("submitWithin") or 10.0,
        call_timeout=r.number("callTimeout") or 10.0,
        kernel_boot=r.text("kernelBootID"),
        reference=Reference(ref.text("provider", ...), ref.text("action"), ref.mapping("data")),
    )


def _read_taint(r: Reader) -> Taint:
    return Taint(r.text("key", ...), r.text("value"), r.text("effect", ...))


def _read_rung(r: Reader) -> Rung:
    taint = r.child("taint")
    return Rung(
        r.member("do", Step), r.span("within"), r.member("then", Then), _read_taint(taint) if taint else None
    )


def _read_progress(r: Reader) -> Progress:
    e, h, held = r.child("evidence"), r.child("holding"), r.child("held")
    return Progress(
        submitted=tuple(
            Attempt(x.integer("attempt", ...), x.text("action")) for x in r.children("submitted")
        ),
        tries=r.integer("tries"),
        boots=r.strings("boots"),
        evidence=Evidence(e.integer("attempt", ...), e.at("at"), e.text("what")) if e else None,
        called_off=r.integer("calledOff"),
        step_since=r.maybe_at("stepSince"),
        proving_since=r.maybe_at("provingSince"),
        retry_at=r.maybe_at("retryAt"),
        left=tuple(_read_intent(x) for x in r.children("left")),
        taken_back=r.integers("takenBack"),
        taking_back=r.maybe_at("takingBack"),
        held=tuple(Held(cause, held.span(cause.value)) for cause in held.keys_of(Cause)) if held else (),
        holding=Holding(h.member("cause", Cause), h.at("since")) if h else None,
        accounted=r.maybe_at("accounted"),
    )


def decode(obj: Any) -> Record:
    """The record in ``obj``. Raises ``Undecodable``, naming the field."""
    meta = Reader(obj.get("metadata"), "metadata")
    if heavier(obj.get("status"), MOST):
        raise Undecodable(
            f"NodeRecovery {meta.text('name')} is larger than {MOST} bytes: this program wrote no such record"
        )
    return _decoded(obj)


def _decoded(obj: Any) -> Record:
    top = Reader(obj, "NodeRecovery")
    meta = Reader(obj.get("metadata"), "metadata")
    s = top.child("status")
    if s is None:
        raise Undecodable(f"NodeRecovery {meta.text('name')} has no status")
    version = s.integer("version", ...)
    if version not in (FIRST, SECOND, THIRD, FOURTH, FIFTH):
        raise Undecodable(
            f"NodeRecovery {meta.text('name')} was written in version {version} of the record; "
            f"this program understands versions up to {FIFTH}"
        )
    machine = s.child("machine") or Reader({}, "status.machine")
    marks = s.child("marks") or Reader({}, "status.marks")
    intent, check, run = s.child("intent"), s.child("validate"), s.child("validation")
    release = s.child("release")
    phase, faults = s.member("phase", Phase), tuple(_read_fault(f) for f in s.children("faults"))
    if phase.open and not faults:
        raise Undecodable("status.faults: an open record names no fault")
    record = Record(
        node=meta.text("name", ...),
        uid=meta.text("uid"),
        resource_version=meta.text("resourceVersion"),
        phase=phase,
        machine=Machine(
            provider=machine.text("provider"),
            id=machine.text("id"),
            provider_id=machine.text("providerID"),
            group=machine.text("group"),
            route={k: str(v) for k, v in machine.mapping("route").items()},
        ),
        node_uid=s.text("nodeUID"),
        boot_id=s.text("bootID"),
        faults=faults,
        phase_since=s.at("phaseSince"),
        rule=s.text("rule"),
        ladder=tuple(_read_rung(r) for r in s.children("ladder")),
        probation=s.span("probation"),
        after=s.span("after"),
        rung=s.integer("rung"),
        rung_since=s.maybe_at("rungSince"),
        attempt=s.integer("attempt"),
        intent=_read_intent(intent) if intent else None,
        replacement=s.text("replacement"),
        replacement_machine=s.text("replacementMachine"),
        marks=Marks(
            marks.flag("cordoned"),
            marks.flag("tainted"),
            marks.flag("outOfService"),
            tuple(_read_taint(t) for t in marks.children("taints")),
        ),
        sentence=s.text("sentence"),
        history=tuple(
            Outcome(o.at("at"), o.integer("attempt"), o.text("event"), o.text("sentence"))
            for o in s.children("history")
        ),
        starts=tuple(
            Start(
                x.at("at"),
                x.text("machine"),
                x.text("reason"),
                x.text("group"),
                x.strings("hardware"),
                x.text("replacement"),
            )
            for x in s.children("starts")
        ),
        acknowledged=tuple(_read_fault(f) for f in s.children("acknowledged")),
        scopes=s.strings("scopes"),
        validate=Validation(check.text("cronJob", ...), check.span("within")) if check else None,
        validation=ValidationRun(run.text("job", ...), run.at("since")) if run else None,
        tried=s.members("tried", Step),
        recovered_at=s.maybe_at("recoveredAt"),
        node_gone_since=s.maybe_at("nodeGoneSince"),
        acknowledged_more=s.text("acknowledgedMore"),
        boot_confirmed=s.flag("bootConfirmed"),
        release=ReleaseRequest(release.text("by", ...), release.at("at"), release.text("reason"))
        if release
        else None,
        release_heard=s.flag("releaseHeard"),
    )
    progress = s.child("progress")
    return upgraded(record) if progress is None else replace(record, progress=_read_progress(progress))
