"""The types of a policy's fields: each says of a wrong value what it expected, and has its JSON schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, time, timedelta, tzinfo
from difflib import get_close_matches
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from recovery.catalog import metric_rows
from recovery.model import (
    DAYS,
    EVERY_OTHER,
    GROUP,
    VERSION,
    Absent,
    Bound,
    Latch,
    Named,
    PodMode,
    Says,
    Share,
    Step,
    Then,
    UnderWay,
)
from recovery.short import LONGEST_OBJECT
from recovery.signals.memory import EDGE_LIMIT
from recovery.units import (
    BOUND_PATTERN,
    DURATION_PATTERN,
    SHARE_PATTERN,
    parse_bound,
    parse_duration,
    parse_share,
)

KIND = "RecoveryPolicy"
WITNESSES = ("neuron-sysfs", "dcgm")
"""The second witnesses that a rule may name."""
SOURCES = ("npd", "conditions", "autopilot", "aznhc", "konduktor", "dcgm", "prometheus", "loki", "api")
"""The sources of signals that a rule may name."""
ADMITTED_TAINTS = ("amd-gpu-unhealthy", "aznhc", "trainy.konduktor.ai/faulty")
"""Keys of taints that the admission policies in ``deploy/`` let an agent set; more are added there."""
NAMESPACE_PATTERN = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
MOST_STEPS = 20
"""Steps of a remedy. Records have room for 64, and the report for 20."""
MOST_LABELS = 32
"""Labels with limits of their own. A slot and a record have room for 64 scopes, those of other labels and of
the whole fleet among them."""
A_DURATION = "a duration such as 10s or 5m"
A_SHARE = 'a count such as 1 or a percentage such as "30%"'


def _expected(what: str) -> PydanticCustomError:
    return PydanticCustomError("expected", "{what}", {"what": what})


def _text(value: Any) -> str:
    if isinstance(value, str) and value.strip() and value.isprintable():
        return value
    _no_scalar(value)
    raise _expected("text")


def _object(value: Any) -> str:
    text = _text(value)
    if len(text) > LONGEST_OBJECT:
        raise _expected(f"at most {LONGEST_OBJECT} characters, and not {len(text)}")
    return text


def _no_scalar(value: Any) -> None:
    """YAML reads what is not quoted as a number or a truth value, where it looks like one."""
    if isinstance(value, bool | int | float):
        raise PydanticCustomError("quote", "")


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


def _times(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= EDGE_LIMIT:
        return value
    raise _expected(f"a whole number from 1 to {EDGE_LIMIT}, because an agent remembers no more")


def _natural(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise _expected("a whole number of at least 0")


def _port(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535:
        return value
    raise _expected("a port from 1 to 65535")


def _namespace(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(NAMESPACE_PATTERN, value):
        return value
    raise _expected("the name of a namespace, without wildcards, because pods in it are believed")


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


def by_name(value: Any) -> Any:
    """A source without options is its name."""
    return {_choice(*SOURCES)(value): {}} if not isinstance(value, dict) else value


_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*"
_ANY_CASE = _DOMAIN.replace("a-z", "A-Za-z")
KEY_PATTERN = rf"^({_DOMAIN}/)?{_NAME}$"
VALUE_PATTERN = rf"^({_NAME})?$"
LONGEST_DOMAIN = 253
EFFECTS = ("NoSchedule", "PreferNoSchedule")
"""Not NoExecute: it ends pods at once, past the drain and their disruption budgets."""


def _taint_key(value: Any) -> str:
    """By Kubernetes' rules for a label's key (k8s.io/apimachinery, util/validation: IsQualifiedName)."""
    _no_scalar(value)
    if not isinstance(value, str) or not re.fullmatch(KEY_PATTERN, value):
        raise _expected("the key of a taint, such as example.com/faulty")
    domain = value.rpartition("/")[0]
    if len(domain) > LONGEST_DOMAIN:
        raise _expected(f"a domain of at most {LONGEST_DOMAIN} characters before the /")
    if domain == GROUP or domain.endswith(f".{GROUP}"):
        raise _expected(f"a key outside {GROUP}; the taint {GROUP}/unhealthy is always set")
    for theirs in ("kubernetes.io", "k8s.io"):
        if domain == theirs or domain.endswith(f".{theirs}"):
            raise _expected(f"a key outside {theirs}, whose taints belong to the cluster")
    return value


def _taint_value(value: Any) -> str:
    _no_scalar(value)
    if isinstance(value, str) and re.fullmatch(VALUE_PATTERN, value):
        return value
    raise _expected("at most 63 letters, digits, dots, dashes and underscores; leave it out for none")


def _effect(value: Any) -> str:
    if value == "NoExecute":
        why = "NoExecute ends pods at once, without the drain and their disruption budgets"
        raise _expected(f"{' or '.join(EFFECTS)}; {why}")
    return _choice(*EFFECTS)(value)


LABEL_PATTERN = r"^[a-zA-Z_][a-zA-Z0-9_]*$"
LONGEST_QUERY = 4000
"""It is sent in a URL."""


def row_name(value: Any) -> str:
    """The name of a ready-made row."""
    return _choice(*metric_rows())(value)


_IN_QUOTES = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`'
_QUERYS_BLANK = re.compile(rf"({_IN_QUOTES})|(?:#[^\n]*|\s)+")
_QUERYS_COMMENT = re.compile(rf"(?:{_IN_QUOTES})|(#[^\n]*)")
_CLOSES = {")": "(", "]": "[", "}": "{"}


def on_one_line(query: str) -> str:
    """Without its comments, which would go on to the end of it."""
    return _QUERYS_BLANK.sub(lambda x: x[1] or " ", query).strip()


def comments(query: str) -> list[str]:
    """Its comments, each to the end of its line."""
    return [x[1] for x in _QUERYS_COMMENT.finditer(query) if x[1]]


def _query(value: Any) -> str:
    text = on_one_line(value) if isinstance(value, str) else ""
    if not text or not text.isprintable() or len(text) > LONGEST_QUERY:
        raise _expected(f"a PromQL query of at most {LONGEST_QUERY} characters")
    if _is_torn(text):
        raise _expected("a PromQL query whose brackets and quotes are closed")
    return text


def _is_torn(query: str) -> bool:
    opened: list[str] = []
    for sign in re.sub(_IN_QUOTES, "", query):
        if sign in "\"'`" or (sign in _CLOSES and (not opened or opened.pop() != _CLOSES[sign])):
            return True
        if sign in _CLOSES.values():
            opened.append(sign)
    return bool(opened)


_MATCHER = r'[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*(?:"(?:[^"\\]|\\.)*"|`[^`]*`)'
SELECTOR_PATTERN = rf"^\{{\s*{_MATCHER}(?:\s*,\s*{_MATCHER})*\s*\}}$"


def _selector(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if text.isprintable() and len(text) <= LONGEST_QUERY and re.fullmatch(SELECTOR_PATTERN, text, re.ASCII):
        return text
    raise _expected('only a selector of Loki\'s streams, such as {k8s_daemonset_name="dmesg"}')


def _label(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(LABEL_PATTERN, value, re.ASCII):
        return value
    raise _expected("the name of a label, such as node")


def _bound(value: Any) -> Bound:
    if isinstance(value, Bound):
        return value
    try:
        return parse_bound(value if isinstance(value, str) else "")
    except ValueError:
        raise _expected('a comparison such as "> 0", ">= 5", "== 1", "!= 0" or "<= 4"') from None


def _named(value: Any) -> Named:
    if isinstance(value, Named):
        return value
    if isinstance(value, dict):
        if list(value) != ["label"]:
            raise _expected("a word, or a mapping with the name of a label: {label: NAME}")
        return Named(label=_label(value["label"]))
    text = _text(value)
    if len(text) > LONGEST_NAME or re.search(r"\s", text):
        raise _expected(f"one word of at most {LONGEST_NAME} characters, or {{label: NAME}}")
    return Named(text)


LONGEST_NAME = 128


TIME_PATTERN = "^([01][0-9]|2[0-3]):[0-5][0-9]$"
END_PATTERN = "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"


def _time(pattern: str) -> Callable[[Any], time]:
    """A time of day. ``24:00``, which only an end may be, is the midnight after it."""

    def check(value: Any) -> time:
        if isinstance(value, time):
            return value
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
            short = isinstance(value, str) and re.fullmatch("[0-9]:[0-5][0-9]", value, re.ASCII)
            raise _expected(
                'a time of day such as "09:00"' + (f'; did you mean "0{value}"?' if short else "")
            )
        return time.fromisoformat("00:00" if value == "24:00" else value)

    return check


def _zone(value: Any) -> tzinfo:
    """A time zone by its name in the tz database, which a machine without tzdata does not have."""
    if isinstance(value, tzinfo):
        return value
    if value == "UTC":
        return UTC
    if isinstance(value, str):
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(value)
    if not (known := sorted(available_timezones())):
        raise _expected("UTC: this machine has no other time zone (install tzdata)")
    near = get_close_matches(value, known, n=1, cutoff=0.6) if isinstance(value, str) else []
    raise _expected("a time zone such as Europe/Berlin" + (f'; did you mean "{near[0]}"?' if near else ""))


def at_least_one(what: str) -> AfterValidator:
    def check(value: Any) -> Any:
        if not value:
            raise _expected(what)
        return value

    return AfterValidator(check)


def at_most(most: int, what: str) -> AfterValidator:
    def check(value: Any) -> Any:
        if len(value) > most:
            raise _expected(f"at most {most} {what}, and not {len(value)}")
        return value

    return AfterValidator(check)


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


_DURATION_SCHEMA = WithJsonSchema({"type": "string", "minLength": 2, "pattern": DURATION_PATTERN})
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": "string", "minLength": 1})]
ObjectName = Annotated[
    str,
    BeforeValidator(_object),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": LONGEST_OBJECT}),
]
Duration = Annotated[timedelta, BeforeValidator(_duration(positive=False)), _DURATION_SCHEMA]
Deadline = Annotated[timedelta, BeforeValidator(_duration(positive=True)), _DURATION_SCHEMA]
Count = Annotated[int, BeforeValidator(_count), WithJsonSchema({"type": "integer", "minimum": 1})]
Times = Annotated[
    int, BeforeValidator(_times), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": EDGE_LIMIT})
]
"""A window of no more than what is counted is remembered for."""


def _in_place_of_many(value: Any, spelled_out: ValidatorFunctionWrapHandler) -> Any:
    """One limit is the same one for each value."""
    return spelled_out(value) if isinstance(value, dict) else {EVERY_OTHER: _share(value)}


def _values(per: dict[str, Share]) -> dict[str, Share]:
    if wrong := [value for value in per if value != EVERY_OTHER and not re.fullmatch(VALUE_PATTERN, value)]:
        raise _expected(f'values of the label, or "*" for every other value, and not {_quoted(wrong)}')
    return per


def _keys(
    per: dict[str, Any], *, of: str = "labels", such: str = "topology.kubernetes.io/zone"
) -> dict[str, Any]:
    """By Kubernetes' rules: under another key nothing is ever found, and an exclusion excludes nothing."""
    if wrong := [key for key in per if not re.fullmatch(KEY_PATTERN, key)]:
        raise _expected(f"keys of {of}, such as {such}, and not {_quoted(wrong)}")
    if any(len(key.rpartition("/")[0]) > LONGEST_DOMAIN for key in per):
        raise _expected(f"keys of {of} with at most {LONGEST_DOMAIN} characters before the /")
    return per


def _annotations(found: dict[str, str]) -> dict[str, str]:
    """The API server refuses others, and a pod that cannot be annotated is not evicted. It looks at a key's
    lower case."""
    _keys({key.lower(): value for key, value in found.items()}, of="annotations", such="example.com/leave-by")
    return found


def _quoted(words: list[str]) -> str:
    return ", ".join(json.dumps(word, ensure_ascii=False) for word in words)


_PERCENTAGE = {"type": "string", "pattern": SHARE_PATTERN}
Natural = Annotated[int, BeforeValidator(_natural), WithJsonSchema({"type": "integer", "minimum": 0})]
Portion = Annotated[
    Share,
    BeforeValidator(_share),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, _PERCENTAGE]}),
]
_SHARES_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "integer", "minimum": 0}, _PERCENTAGE]}
LimitPer = Annotated[
    dict[
        str,
        Annotated[
            dict[str, Portion],
            at_least_one('a limit for at least one value, or for "*"'),
            AfterValidator(_values),
            WrapValidator(_in_place_of_many),
        ],
    ],
    AfterValidator(_keys),
    at_most(MOST_LABELS, "labels"),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MOST_LABELS,
            "propertyNames": {"pattern": KEY_PATTERN},
            "additionalProperties": {
                "anyOf": [
                    *_SHARES_SCHEMA["anyOf"],
                    {
                        "type": "object",
                        "minProperties": 1,
                        "propertyNames": {"anyOf": [{"const": EVERY_OTHER}, {"pattern": VALUE_PATTERN}]},
                        "additionalProperties": _SHARES_SCHEMA,
                    },
                ]
            },
        }
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


Port = Annotated[
    int, BeforeValidator(_port), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 65535})
]
_NAMESPACE_SCHEMA = WithJsonSchema({"type": "string", "pattern": NAMESPACE_PATTERN})
Namespaces = Annotated[
    list[Annotated[str, BeforeValidator(_namespace), _NAMESPACE_SCHEMA]],
    at_least_one("at least one namespace"),
    Field(json_schema_extra={"minItems": 1}),
]
Query = Annotated[
    str,
    BeforeValidator(_query),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": LONGEST_QUERY}),
]
StreamSelector = Annotated[
    str,
    BeforeValidator(_selector),
    WithJsonSchema({"type": "string", "pattern": SELECTOR_PATTERN, "maxLength": LONGEST_QUERY}),
]
LabelName = Annotated[
    str, BeforeValidator(_label), WithJsonSchema({"type": "string", "pattern": LABEL_PATTERN})
]
Bad = Annotated[Bound, BeforeValidator(_bound), WithJsonSchema({"type": "string", "pattern": BOUND_PATTERN})]
Day = Annotated[str, BeforeValidator(_choice(*DAYS)), WithJsonSchema({"enum": [*DAYS]})]
Days = Annotated[
    list[Day],
    BeforeValidator(_listed),
    at_least_one("at least one day"),
    WithJsonSchema(
        {"anyOf": [{"enum": [*DAYS]}, {"type": "array", "minItems": 1, "items": {"enum": [*DAYS]}}]}
    ),
]
Opens = Annotated[
    time, BeforeValidator(_time(TIME_PATTERN)), WithJsonSchema({"type": "string", "pattern": TIME_PATTERN})
]
Closes = Annotated[
    time, BeforeValidator(_time(END_PATTERN)), WithJsonSchema({"type": "string", "pattern": END_PATTERN})
]
Zone = Annotated[tzinfo, BeforeValidator(_zone), WithJsonSchema({"type": "string", "minLength": 1})]
Running = Annotated[str, BeforeValidator(_choice(*UnderWay)), WithJsonSchema({"enum": [*UnderWay]})]
Wording = Annotated[
    Named,
    BeforeValidator(_named),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME},
                {
                    "type": "object",
                    "properties": {"label": {"type": "string", "pattern": LABEL_PATTERN}},
                    "required": ["label"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
RowName = Annotated[str, WithJsonSchema({"enum": [*metric_rows()]})]
Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "boolean"})]
Treatment = Annotated[str, BeforeValidator(_choice(*PodMode)), WithJsonSchema({"enum": [*PodMode]})]
Action = Annotated[str, BeforeValidator(_choice(*Step)), WithJsonSchema({"enum": [*Step]})]
End = Annotated[str, BeforeValidator(_choice(*Latch)), WithJsonSchema({"enum": [*Latch]})]
Status = Annotated[
    str, BeforeValidator(_choice("True", "False")), WithJsonSchema({"enum": ["True", "False"]})
]
SourceName = Annotated[str, BeforeValidator(_choice(*SOURCES)), WithJsonSchema({"enum": [*SOURCES]})]
WitnessName = Annotated[str, BeforeValidator(_choice(*WITNESSES)), WithJsonSchema({"enum": [*WITNESSES]})]
WitnessAnswer = Annotated[str, BeforeValidator(_choice(*Says)), WithJsonSchema({"enum": [*Says]})]
WhereAbsent = Annotated[str, BeforeValidator(_choice(*Absent)), WithJsonSchema({"enum": [*Absent]})]
Afterwards = Annotated[str, BeforeValidator(_choice(*Then)), WithJsonSchema({"enum": [*Then]})]
TaintKey = Annotated[
    str, BeforeValidator(_taint_key), WithJsonSchema({"type": "string", "pattern": KEY_PATTERN})
]
TaintValue = Annotated[
    str, BeforeValidator(_taint_value), WithJsonSchema({"type": "string", "pattern": VALUE_PATTERN})
]
Effect = Annotated[str, BeforeValidator(_effect), WithJsonSchema({"enum": [*EFFECTS]})]
Version = Annotated[
    str, BeforeValidator(_choice(f"{GROUP}/{VERSION}")), WithJsonSchema({"const": f"{GROUP}/{VERSION}"})
]
KindName = Annotated[str, BeforeValidator(_choice(KIND)), WithJsonSchema({"const": KIND})]
Given = BeforeValidator(_given)
_KEYS_SCHEMA = {
    "type": "object",
    "propertyNames": {"pattern": KEY_PATTERN},
    "additionalProperties": {"type": "string", "minLength": 1},
}
Labels = Annotated[dict[str, Text], AfterValidator(_keys), WithJsonSchema(_KEYS_SCHEMA)]
SomeLabels = Annotated[
    dict[str, Text],
    AfterValidator(_keys),
    at_least_one("at least one label"),
    WithJsonSchema({**_KEYS_SCHEMA, "minProperties": 1}),
]
_ANNOTATIONS_SCHEMA = {**_KEYS_SCHEMA, "propertyNames": {"pattern": rf"^({_ANY_CASE}/)?{_NAME}$"}}
Annotations = Annotated[dict[str, Text], AfterValidator(_annotations), WithJsonSchema(_ANNOTATIONS_SCHEMA)]
