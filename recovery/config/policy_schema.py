"""The shape of a policy file: strict models that say of each wrong value what they expected instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from recovery.model import GROUP, VERSION, PodMode, Share, Step, Then
from recovery.units import DURATION_PATTERN, SHARE_PATTERN, parse_duration, parse_share

WITHIN: Mapping[Step, str] = {
    Step.NOTIFY: "15m",
    Step.CORDON: "15m",
    Step.TAINT: "15m",
    Step.DRAIN: "15m",
    Step.REBOOT: "10m",
    Step.REIMAGE: "30m",
    Step.REDEPLOY: "30m",
    Step.REPLACE: "30m",
}

KIND = "RecoveryPolicy"
A_DURATION = "a duration such as 10s or 5m"
A_STEP = "at least one step; leave remedy out for the default one"
A_SHARE = 'a count such as 1 or a percentage such as "30%"'


# ---------------------------------------------------------------- leaves


def _expected(what: str) -> PydanticCustomError:
    return PydanticCustomError("expected", "{what}", {"what": what})


def _text(value: Any) -> str:
    if isinstance(value, str) and value.strip() and value.isprintable():
        return value
    scalar = isinstance(value, bool | int | float)
    raise PydanticCustomError("quote", "") if scalar else _expected("text")


def _given(value: Any) -> Any:
    """``remedy:`` with nothing behind it is half a sentence, and must not mean that it was left out."""
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


def _at_least_one(what: str) -> AfterValidator:
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
    _at_least_one("at least one pattern"),
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
Afterwards = Annotated[str, BeforeValidator(_choice(*Then)), WithJsonSchema({"enum": [*Then]})]
Version = Annotated[
    str, BeforeValidator(_choice(f"{GROUP}/{VERSION}")), WithJsonSchema({"const": f"{GROUP}/{VERSION}"})
]
KindName = Annotated[str, BeforeValidator(_choice(KIND)), WithJsonSchema({"const": KIND})]
Given = BeforeValidator(_given)
Labels = dict[str, Text]
SomeLabels = Annotated[
    Labels, _at_least_one("at least one label"), Field(json_schema_extra={"minProperties": 1})
]


# ---------------------------------------------------------------- the file


def _default(value: Any, description: str) -> Any:
    """A default is written, and checked, as it would be in the file."""
    return Field(default=value, description=description)


def _optional(description: str, **schema: Any) -> Any:
    """None when it is left out; it may not be given as null."""
    return Field(default=None, validate_default=False, description=description, json_schema_extra=schema)


class Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_default=True,
        arbitrary_types_allowed=True,
    )


class RateModel(Strict):
    """At most this many within a sliding window."""

    max: Count
    within: Deadline


class TimesModel(Strict):
    """Only when it happened this often within a sliding window."""

    count: Count
    within: Deadline


class LimitsModel(Strict):
    """What holds a recovery back."""

    budget: Portion = _default(1, "nodes out of service at once, whole fleet")
    budget_per: dict[str, Portion] = _default(
        {"topology.kubernetes.io/zone": 1}, "the same per value of a node label"
    )
    brake: Portion = _default("30%", "above this share sick or unknown nothing is started")
    brake_per: Annotated[dict[str, Portion] | None, Given] = _optional(
        "the same per value of a node label; left out: instance type, at brake's share"
    )
    cooldown: Duration = _default("2m", "between two starts")
    attempts: RateModel = _default(
        {"max": 3, "within": "24h"}, "per machine and its replacements; then a person"
    )
    per_group: RateModel = _default(
        {"max": 3, "within": "6h"}, "starts per Auto Scaling group, scale set or pool"
    )
    same_incident: Duration = _default(
        "1h", "a fault that returns this soon after its recovery goes on with the remedy's next step"
    )


class PodMatchModel(Strict):
    """Which pods; what is left out matches any. Values are shell patterns."""

    namespaces: Patterns = _default(["*"], "one pattern, or a list of which one must match")
    labels: Labels = _default({}, "labels the pod must have")


class PodRuleModel(Strict):
    """What a drain does about some pods. The first one that matches wins."""

    match: PodMatchModel
    mode: Treatment
    within: Annotated[Deadline | None, Given] = _optional(
        "wait only: how long they may take to end by themselves, from the drain's begin"
    )
    annotate: Annotated[Labels, Given] = _default(
        {}, "wait only: annotations that announce the eviction to these pods"
    )


class DrainModel(Strict):
    """How nodes are drained."""

    force: Flag = _default(True, "evict pods that declare no controller, which nobody makes again")
    delete_emptydir_data: Flag = _default(True, "evict pods with local storage (emptyDir), which is lost")
    evictions_per_second: Annotated[Count | None, Given] = _optional(
        "at most so many, by one agent; left out: as many as the API server takes"
    )
    pods: list[PodRuleModel] = _default([], "exceptions; all other pods are evicted at once")


class ExcludeModel(Strict):
    """Nodes that are left alone: those that have all of these labels. Values are patterns."""

    labels: SomeLabels


class MatchModel(Strict):
    """Which faults a rule is about; what is left out matches anything. Patterns are shell patterns."""

    type: Text = _default("*", "condition type")
    reason: Patterns = _default(["*"], "one pattern, or a list of which one must match")
    node_labels: Labels = _default({}, "labels the node must have; values are patterns")
    times: Annotated[TimesModel | None, Given] = _optional("for temporary rules, which only have counters")


class RungModel(Strict):
    """One step of a remedy."""

    do: Action
    within: Annotated[Deadline | None, Given] = _optional("deadline, from the step's first effect")
    then: Afterwards = _default(Then.HAND_OVER.value, "drain only: when pods remain after within")


class ValidateModel(Strict):
    """A Job that must succeed on the node before it is given back."""

    cron_job: Text
    within: Deadline = _default("30m", "how long it may take")


class RuleModel(Strict):
    """What to do about some faults. The first rule that matches a fault wins."""

    name: Text
    match: MatchModel
    after: Duration = _default("0s", "how long the fault is tolerated")
    remedy: Annotated[Annotated[list[RungModel], _at_least_one(A_STEP)] | None, Given] = _optional(
        "steps, tried in order; left out: the catalogue's, then the provider's", minItems=1
    )
    probation: Duration = _default("2m", "healthy this long before the node is trusted again")
    # Not `validate`: pydantic's own, under that name in Python.
    validation: Annotated[ValidateModel | None, Given] = Field(
        default=None,
        validate_default=False,
        alias="validate",
        description="after probation a Job made of this CronJob (in the agents' namespace) must succeed here",
    )


class PolicyModel(Strict):
    """A RecoveryPolicy."""

    api_version: Version
    kind: KindName
    limits: LimitsModel = Field(default_factory=LimitsModel)
    drain: DrainModel = Field(default_factory=DrainModel)
    exclude: list[ExcludeModel] = _default([], "nodes that are left alone, whatever they have")
    rules: list[RuleModel]


def schema() -> dict[str, Any]:
    """The JSON schema of the file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{GROUP}/{VERSION}/recoverypolicy.json",
        **_without_null(PolicyModel.model_json_schema()),
    }


def _without_null(part: Any) -> Any:
    """A field may be left out; it may not be null, whatever its model says. Generated titles say nothing."""
    if isinstance(part, list):
        return [_without_null(each) for each in part]
    if not isinstance(part, dict):
        return part
    noise = (("default", None), ("title", part.get("title")))
    clean = {key: _without_null(value) for key, value in part.items() if (key, value) not in noise}
    options = [each for each in clean.get("anyOf", ()) if each != {"type": "null"}]
    if len(options) == 1:
        del clean["anyOf"]
        clean = {**options[0], **clean}
    return clean
