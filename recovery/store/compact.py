"""A record of at most 16 KiB while it is open, and 4 KiB once it is closed. PURE.

What does not fit is cut, in the order of ``OPEN_CUTS`` and ``CLOSED_CUTS``: words for people first, what
decides last. Machine, node, boot, phase and marks are never cut. So a record is never refused for its size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from recovery.decide.remembered import SURE, WIDTH, digested
from recovery.decide.room import LEAST_STARTS, with_short_message
from recovery.model import Phase, Record, Start
from recovery.provider.known import forgotten, packed
from recovery.quick import replace
from recovery.short import shortened, size

ADDED = 76
"""Bytes of room for what the API server adds to an object: its moment of creation, generation, versions."""
SHORT = 60
"""Bytes of a text that somebody wrote, where a record has room for no more."""
OPEN, CLOSED = 16 * 1024 - ADDED, 4 * 1024 - ADDED

Cut = Callable[[Record], Record]
"""The record with a little less. Given one that it cannot make smaller, it gives back the same."""


def fitted(r: Record, encode: Callable[[Record], Mapping[str, Any]]) -> Record:
    """``r``, cut until it fits. ``encode`` makes the object that is stored."""
    limit, cuts = (OPEN, OPEN_CUTS) if r.phase.open else (CLOSED, CLOSED_CUTS)
    if size(encode(r)) <= limit:  # nearly always
        return r
    for cut in cuts:
        while (less := cut(r)) != r:
            r = less
            if size(encode(r)) <= limit:
                return r
    return r


# ---------------------------------------------------------------- words for people


def _fewer_lines(r: Record, least: int) -> Record:
    return replace(r, history=r.history[1:]) if len(r.history) > least else r


def _short_lines(r: Record, longest: int) -> Record:
    return replace(r, history=tuple(replace(x, sentence=shortened(x.sentence, longest)) for x in r.history))


def _short_sentence(r: Record, longest: int) -> Record:
    return replace(r, sentence=shortened(r.sentence, longest))


def _short_messages(r: Record) -> Record:
    return replace(r, faults=tuple(map(with_short_message, r.faults)))


def _short_release(r: Record) -> Record:
    if r.release is None:
        return r
    by, reason = shortened(r.release.by, SHORT), shortened(r.release.reason, SHORT)
    return replace(r, release=replace(r.release, by=by, reason=reason))


def _short_evidence(r: Record) -> Record:
    e = r.progress.evidence
    return _progressed(r, evidence=replace(e, what=shortened(e.what, SHORT))) if e else r


# ---------------------------------------------------------------- faults


def _short_acknowledged(r: Record) -> Record:
    return replace(r, acknowledged=tuple(map(with_short_message, r.acknowledged)))


def _digest_oldest(r: Record) -> Record:
    """The oldest fault that was dealt with, as a digest. It starts nothing again all the same."""
    return digested(r, r.acknowledged[:1]) if r.acknowledged else r


def _fewer_digests(r: Record, least: int) -> Record:
    """Without the eight oldest digests."""
    more = r.acknowledged_more
    return replace(r, acknowledged_more=more[8 * WIDTH :]) if len(more) > least * WIDTH else r


def _no_messages(r: Record) -> Record:
    return replace(r, faults=tuple(replace(f, message="", device="") for f in r.faults))


def _fewer_faults(r: Record, least: int) -> Record:
    return replace(r, faults=r.faults[:-1]) if len(r.faults) > least else r


# ---------------------------------------------------------------- starts


def _fewer_starts(r: Record, least: int) -> Record:
    return replace(r, starts=r.starts[1:]) if len(r.starts) > least else r


def _few_serials(r: Record, most: int) -> Record:
    def fewer(start: Start) -> Start:
        return replace(start, hardware=start.hardware[:most])

    return replace(r, starts=tuple(map(fewer, r.starts)))


# ---------------------------------------------------------------- calls that were made


def _left_forgotten(r: Record) -> Record:
    """Calls that were left, without what the group was. None that a read has proved to be over."""
    p = r.progress
    asked = {x.attempt for x in (*p.left, *((r.intent,) if r.intent else ()))}
    over = tuple(x for x in p.taken_back if x in asked)
    left = tuple(
        replace(x, reference=replace(x.reference, data=forgotten(x.reference.data)))
        for x in p.left
        if x.attempt not in over
    )
    return _progressed(r, left=left, taken_back=over)


def _fewer_left(r: Record, least: int) -> Record:
    left = r.progress.left
    return _progressed(r, left=left[1:]) if len(left) > least else r


def _fewer_submitted(r: Record, least: int) -> Record:
    made = r.progress.submitted
    return _progressed(r, submitted=made[1:]) if len(made) > least else r


# ---------------------------------------------------------------- what only an open record needs


def _progressed(r: Record, **changes: Any) -> Record:
    return replace(r, progress=replace(r.progress, **changes))


def _filter_forgotten(r: Record) -> Record:
    return _group_forgotten(r) if r.intent is not None and packed(r.intent.reference.data) else r


def _group_forgotten(r: Record) -> Record:
    """Without the machines that the group had: nothing more counts as the replacement."""
    if r.intent is None:
        return r
    reference = replace(r.intent.reference, data=forgotten(r.intent.reference.data))
    return replace(r, intent=replace(r.intent, reference=reference))


def _work_forgotten(r: Record) -> Record:
    """Without what only the steps of an open record go by."""
    e = r.progress.evidence
    times = {"step_since": None, "proving_since": None, "retry_at": None, "accounted": None}
    held: dict[str, Any] = {"held": (), "holding": None}
    less = _progressed(r, boots=(), evidence=replace(e, what="") if e else None, **times, **held)
    return replace(less, scopes=())


def _intent_forgotten(r: Record) -> Record:
    """A node that was handed over or released may still have a call to take back."""
    return r if r.phase in (Phase.HANDED_OVER, Phase.RELEASED) else replace(r, intent=None)


def _validation_forgotten(r: Record) -> Record:
    """Without the Job that validated the machine: it is over, or stays for a person to look at."""
    return replace(r, validate=None, validation=None)


def _remedy_forgotten(r: Record) -> Record:
    """A handed-over node counts as sick by its ladder, and its provider is asked by its route."""
    if r.phase is Phase.HANDED_OVER:
        return r
    return replace(r, ladder=(), machine=replace(r.machine, route={}))


OPEN_CUTS: tuple[Cut, ...] = (
    _short_acknowledged,
    partial(_short_lines, longest=300),
    partial(_fewer_lines, least=8),
    _digest_oldest,
    _short_messages,
    partial(_fewer_starts, least=20),
    partial(_fewer_lines, least=3),
    partial(_short_sentence, longest=480),
    partial(_fewer_starts, least=5),
    partial(_few_serials, most=4),
    partial(_fewer_starts, least=1),
    partial(_fewer_lines, least=1),
    partial(_short_lines, longest=80),
    _no_messages,
    partial(_fewer_digests, least=0),
    _short_release,
    _short_evidence,
    _left_forgotten,
    partial(_fewer_submitted, least=20),
    partial(_fewer_left, least=1),
)
CLOSED_CUTS: tuple[Cut, ...] = (
    _filter_forgotten,
    _left_forgotten,
    partial(_short_lines, longest=300),
    partial(_fewer_lines, least=5),
    _short_acknowledged,
    _short_messages,
    partial(_short_lines, longest=160),
    partial(_fewer_lines, least=3),
    partial(_short_lines, longest=100),
    _intent_forgotten,
    _work_forgotten,
    partial(_fewer_faults, least=3),
    _group_forgotten,
    _digest_oldest,
    partial(_short_sentence, longest=480),
    partial(_fewer_lines, least=1),
    partial(_fewer_starts, least=LEAST_STARTS),
    partial(_few_serials, most=4),
    partial(_fewer_starts, least=5),
    _remedy_forgotten,
    partial(_fewer_faults, least=1),
    partial(_short_sentence, longest=160),
    partial(_short_lines, longest=80),
    partial(_few_serials, most=2),
    partial(_fewer_starts, least=3),
    partial(_fewer_digests, least=SURE),
    partial(_fewer_starts, least=1),
    partial(_fewer_digests, least=0),
    partial(_fewer_lines, least=0),
    _short_release,
    _no_messages,
    partial(_fewer_submitted, least=1),
    partial(_few_serials, most=0),
    partial(_short_sentence, longest=80),
    _validation_forgotten,
    partial(_fewer_left, least=1),
)
