"""The types of a policy's fields: each says of a wrong value what it expected, and has its JSON schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from recovery.model import GROUP, VERSION, Absent, Latch, PodMode, Share, Step, Then
from recovery.units import DURATION_PATTERN, SHARE_PATTERN, parse_duration, parse_share

KIND = "RecoveryPolicy"
WITNESSES = ("neuron-sysfs",)
"""The second witnesses that a rule may name."""
SOURCES = ("npd", "conditions", "autopilot", "aznhc", "konduktor")
"""The sources of signals that a rule may name."""
A_DURATION = "a duration such as 10s or 5m"
A_SHARE = 'a count such as 1 or a percentage such as "30%"'


def _expected(what: str) -> PydanticCustomError:
    return PydanticCustomError("expected", "{what}", {"what": what})


def _text(value: Any) -> str:
    if isinstance(value, str) and value.strip() and value.isprintable():
        return value
    scalar = isinstance(value, bool | int | float)
    raise PydanticCustomError("quote", "") if scalar else _expected("text")


def _given(value: Any) -> Any:
    """``remedy:`` with nothing behind it is a mistake. It must not mean the same as leaving it out."""
    if value is None:
        raise _expected("a value; leave the field out for its default")
    return value


def _duration(positive: bool) -> Callable[[Any], timedelta]:
    def check(value: Any) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            duration = parse_duration(value if isinstance(value, str) else "")
        except ValueError:
            raise _expected(A_DURATION + _in_hours(value)) from None
        if positive and not duration:
            raise _expected("a duration of more than 0s")
        return duration

    return check


def _in_hours(value: Any) -> str:
    days = re.fullmatch(r"([0-9]{1,3})d", value) if isinstance(value, str) else None
    return f'; did you mean "{int(days[1]) * 24}h"?' if days else ""


def _share(value: Any) -> Share:
    if isinstance(value, Share):
        return value
    try:
        return parse_share(value)
    except ValueError:
        fraction = isinstance(value, float) and 0 < value < 1
        hint = f'; did you mean "{value * 100:g}%"?' if fraction else ""
        raise _expected(A_SHARE + hint) from None


def _count(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise _expected("a whole number of at least 1")


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _expected("true or false")


def _choice(*choices: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise PydanticCustomError("choice", "", {"choices": list(choices)})

    return check


def _by_name(value: Any) -> Any:
    """A source without options is its name."""
    return {_choice(*SOURCES)(value): {}} if not isinstance(value, dict) else value


def at_least_one(what: str) -> AfterValidator:
    def check(value: Any) -> Any:
        if not value:
            raise _expected(what)
        return value

    return AfterValidator(check)


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


_DURATION_SCHEMA = WithJsonSchema({"type": "string", "minLength": 2, "pattern": DURATION_PATTERN})
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": "string", "minLength": 1})]
Duration = Annotated[timedelta, BeforeValidator(_duration(positive=False)), _DURATION_SCHEMA]
Deadline = Annotated[timedelta, BeforeValidator(_duration(positive=True)), _DURATION_SCHEMA]
Count = Annotated[int, BeforeValidator(_count), WithJsonSchema({"type": "integer", "minimum": 1})]
Portion = Annotated[
    Share,
    BeforeValidator(_share),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": SHARE_PATTERN}]}
    ),
]
Patterns = Annotated[
    list[Text],
    BeforeValidator(_listed),
    at_least_one("at least one pattern"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
            ]
        }
    ),
]


Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "boolean"})]
Treatment = Annotated[str, BeforeValidator(_choice(*PodMode)), WithJsonSchema({"enum": [*PodMode]})]
Action = Annotated[str, BeforeValidator(_choice(*Step)), WithJsonSchema({"enum": [*Step]})]
End = Annotated[str, BeforeValidator(_choice(*Latch)), WithJsonSchema({"enum": [*Latch]})]
ByName = BeforeValidator(_by_name)
Status = Annotated[
    str, BeforeValidator(_choice("True", "False")), WithJsonSchema({"enum": ["True", "False"]})
]
SourceName = Annotated[str, BeforeValidator(_choice(*SOURCES)), WithJsonSchema({"enum": [*SOURCES]})]
WitnessName = Annotated[str, BeforeValidator(_choice(*WITNESSES)), WithJsonSchema({"enum": [*WITNESSES]})]
WhereAbsent = Annotated[str, BeforeValidator(_choice(*Absent)), WithJsonSchema({"enum": [*Absent]})]
Afterwards = Annotated[str, BeforeValidator(_choice(*Then)), WithJsonSchema({"enum": [*Then]})]
Version = Annotated[
    str, BeforeValidator(_choice(f"{GROUP}/{VERSION}")), WithJsonSchema({"const": f"{GROUP}/{VERSION}"})
]
KindName = Annotated[str, BeforeValidator(_choice(KIND)), WithJsonSchema({"const": KIND})]
Given = BeforeValidator(_given)
Labels = dict[str, Text]
SomeLabels = Annotated[
    Labels, at_least_one("at least one label"), Field(json_schema_extra={"minProperties": 1})
]
