"""How much of anything the schemas of our objects have room for, so that no object is refused for it. PURE.

Whatever is too long for its schema gets 422 for as long as it is sent, and the fault beside it is neither
recorded nor recovered. So names are bounded where they are read (``recovery.short``), words where they are
made, and ``within`` is the last fence, for what nobody has thought of. ``tests/meta/test_room.py`` compares
these shapes with ``deploy/crds``. Some are smaller than the schema, but not than what a policy may ask for:
a record that is full of everything has to be one that is read back (``record_codec.MOST``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from recovery.decide.room import MOST_RUNGS
from recovery.short import LONGEST_ID, MOST_WORDS, identified

HIGHEST = 2**53 - 1
"""The highest whole number that every reader of JSON keeps as it is."""


class Name(int):
    """Characters of a text that is compared with others: of a longer one a digest is kept."""


class Words(int):
    """Characters of a text for people: a longer one is cut."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number of at least so much."""

    least: int


@dataclass(frozen=True, slots=True)
class Most:
    """A list of at most so many. Of more, the first are kept, or the ``last``."""

    count: int
    item: Shape
    last: bool = False


@dataclass(frozen=True, slots=True)
class Map:
    """An object of at most so many keys, with values alike."""

    count: int
    value: Shape


@dataclass(frozen=True, slots=True)
class Free:
    """What has no length, or is the program's own choice among few."""


Shape: TypeAlias = "Name | Words | Whole | Most | Map | Free | Mapping[str, Shape]"

FREE = Free()
COUNT = Whole(0)
AT = SPAN = Name(64)
NODE = RULE = PROVIDER = Name(253)
UID = Name(128)
MACHINE = Name(LONGEST_ID)
TAINT: Shape = {"key": Name(317), "value": Name(63), "effect": Name(64)}
FAULT: Shape = {
    "source": PROVIDER,
    "type": Name(316),
    "reason": Name(1024),
    "message": Words(4096),
    "since": AT,
    "machine": MACHINE,
    "bootID": UID,
    "counter": FREE,
    "kind": FREE,
    "latched": FREE,
    "cleared": FREE,
    "life": Name(64),
    "quietSince": AT,
    "treated": FREE,
    "device": Words(512),
    "handedOver": FREE,
}
INTENT: Shape = {
    "action": PROVIDER,
    "attempt": COUNT,
    "token": Name(253),
    "at": AT,
    "machine": MACHINE,
    "bootID": UID,
    "kernelBootID": UID,
    "state": FREE,
    "submitWithin": FREE,
    "callTimeout": FREE,
    "reference": {"provider": PROVIDER, "action": PROVIDER, "data": FREE},
}
RECORD: Shape = {
    "version": Whole(1),
    "machine": {
        "provider": PROVIDER,
        "id": MACHINE,
        "providerID": MACHINE,
        "group": MACHINE,
        "route": Map(MOST_WORDS, Name(LONGEST_ID)),
    },
    "nodeUID": UID,
    "bootID": UID,
    "faults": Most(500, FAULT),
    "rule": RULE,
    "ladder": Most(MOST_RUNGS, {"do": FREE, "within": SPAN, "then": FREE, "taint": TAINT}),
    "probation": SPAN,
    "after": SPAN,
    "rung": COUNT,
    "rungSince": AT,
    "attempt": COUNT,
    "phase": FREE,
    "phaseSince": AT,
    "intent": INTENT,
    "replacement": NODE,
    "replacementMachine": MACHINE,
    "marks": {"cordoned": FREE, "tainted": FREE, "outOfService": FREE, "taints": Most(22, TAINT)},
    "sentence": Words(4096),
    "history": Most(20, {"at": AT, "attempt": COUNT, "event": Name(253), "sentence": Words(4096)}, last=True),
    "starts": Most(
        200,
        {
            "at": AT,
            "machine": MACHINE,
            "reason": Name(1024),
            "group": MACHINE,
            "hardware": Most(32, Name(128)),
            "replacement": MACHINE,
        },
        last=True,
    ),
    "acknowledged": Most(500, FAULT, last=True),
    "scopes": Most(34, Name(384)),
    "validate": {"cronJob": Name(253), "within": SPAN},
    "validation": {"job": Name(253), "since": AT},
    "tried": Most(24, Name(64)),
    "progress": {
        "submitted": Most(20, {"attempt": COUNT, "action": Name(64)}, last=True),
        "tries": COUNT,
        "boots": Most(20, UID, last=True),
        "evidence": {"attempt": COUNT, "at": AT, "what": Words(1024)},
        "calledOff": COUNT,
        "stepSince": AT,
        "provingSince": AT,
        "retryAt": AT,
        "left": Most(5, INTENT, last=True),
        "takenBack": Most(20, COUNT, last=True),
        "takingBack": AT,
        "held": Map(32, SPAN),
        "holding": {"cause": Name(64), "since": AT},
        "accounted": AT,
    },
    "recoveredAt": AT,
    "nodeGoneSince": AT,
    "acknowledgedMore": Words(4096),
    "bootConfirmed": FREE,
    "releaseHeard": FREE,
    "release": {"by": Words(1024), "at": AT, "reason": Words(1024)},
}

_SICK: Mapping[str, Shape] = {"sick": COUNT, "population": COUNT}
_CENSUS: Mapping[str, Shape] = {
    "at": AT,
    "population": COUNT,
    "seconds": COUNT,
    "sick": Most(100_000, NODE),
    "sickTotal": COUNT,
    "byLabel": Map(10_000, _SICK),
}
MOST_SLOTS = 10_000
GATE: Shape = {
    "version": Whole(1),
    "stamp": UID,
    "open": Most(100_000, {"node": NODE, "recordUID": UID, "since": AT}),
    "slots": Most(
        MOST_SLOTS,
        {
            "node": NODE,
            "recordUID": UID,
            "attempt": COUNT,
            "scopes": Most(64, Name(512)),
            "since": AT,
            "machine": MACHINE,
            "group": MACHINE,
        },
    ),
    "words": Map(10_000, Name(1024)),
    "lastStart": AT,
    "starts": Most(
        5000,
        {
            "at": AT,
            "node": NODE,
            "group": MACHINE,
            "machine": MACHINE,
            "reason": Name(1024),
            "hardware": Most(32, Name(128)),
        },
        last=True,
    ),
    "census": _CENSUS,
    "selectedCensus": {**_CENSUS, "of": Name(256), "outside": _SICK},
    "replacementsClaimed": Most(5000, {"machine": MACHINE, "insteadOf": MACHINE}, last=True),
}

REPORT: Shape = {
    "version": Whole(1),
    "since": AT,
    "dropped": COUNT,
    "droppedUntil": AT,
    "fullSince": AT,
    "sightings": Most(
        1000,
        {
            "node": NODE,
            "machine": Name(512),
            "boot": Name(512),
            "source": Name(512),
            "type": Name(512),
            "reason": Name(512),
            "rule": Name(512),
            "would": FREE,
            "steps": Most(20, Name(64)),
            "why": Words(512),
            "since": AT,
            "due": AT,
            "seen": AT,
            "times": COUNT,
            "ended": AT,
            "how": Words(512),
        },
        last=True,
    ),
}


def within(value: Any, shape: Shape) -> Any:
    """``value``, no larger than ``shape``; the very same where it fits.

    What has no shape is left as it is: the API server prunes it, and says so.
    """
    return value if _fits(value, shape) else _cut_down(value, shape)


def _fits(value: Any, shape: Any) -> bool:
    """Whether ``value`` is no larger, as nearly always. Asked for each write: it copies nothing, and loops
    plainly, which takes half the time of ``all``."""
    kind = type(shape)
    if isinstance(value, str):
        return not (kind is Name or kind is Words) or len(value) <= shape
    if isinstance(value, dict):
        if kind is dict:
            for key, x in value.items():
                if key in shape and not _fits(x, shape[key]):
                    return False
        elif kind is Map:
            return len(value) <= shape.count and _all_fit(value.values(), shape.value)
    elif isinstance(value, list):
        return kind is not Most or (len(value) <= shape.count and _all_fit(value, shape.item))
    elif kind is Whole and isinstance(value, int):
        return bool(shape.least <= value <= HIGHEST)
    return True


def _all_fit(values: Iterable[Any], shape: Any) -> bool:
    for x in values:  # noqa: SIM110 - see above
        if not _fits(x, shape):
            return False
    return True


def _cut_down(value: Any, shape: Shape) -> Any:
    if isinstance(value, str):
        return _text(value, shape)
    if isinstance(value, dict):
        return _object(value, shape)
    if isinstance(value, list) and isinstance(shape, Most):
        kept = value if len(value) <= shape.count else _cut(value, shape)
        return [within(x, shape.item) for x in kept]
    if isinstance(value, int) and isinstance(shape, Whole):
        return max(shape.least, min(value, HIGHEST))
    return value


def _text(value: str, shape: Shape) -> str:
    if isinstance(shape, Words):
        return value[:shape] if len(value) > shape else value
    return identified(value, shape) if isinstance(shape, Name) else value


def _object(value: dict[str, Any], shape: Shape) -> dict[str, Any]:
    if isinstance(shape, Map):
        kept = dict(list(value.items())[: shape.count]) if len(value) > shape.count else value
        return {key: within(x, shape.value) for key, x in kept.items()}
    if isinstance(shape, Mapping):
        return {key: within(x, shape[key]) if key in shape else x for key, x in value.items()}
    return value


def _cut(value: list[Any], shape: Most) -> list[Any]:
    return value[-shape.count :] if shape.last else value[: shape.count]
