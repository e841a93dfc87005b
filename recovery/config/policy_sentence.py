"""One sentence for each way to get a field of a policy file wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic_core import ErrorDetails

from recovery.config.policy_schema import (
    ApiModel,
    AutopilotModel,
    BlockerModel,
    ConditionModel,
    ConditionsModel,
    DcgmModel,
    DrainModel,
    ExcludeModel,
    LimitsModel,
    LokiModel,
    MarksModel,
    MatchModel,
    MetricModel,
    NpdModel,
    PodMatchModel,
    PodRuleModel,
    PodsModel,
    PolicyModel,
    PopulationModel,
    PrometheusModel,
    RateModel,
    RecordsModel,
    RuleModel,
    RungModel,
    SourceModel,
    Strict,
    TimesModel,
    ValidateModel,
    WindowModel,
    WitnessModel,
)
from recovery.config.yaml_lines import Document, Mistake, Path, field_named

Models = Mapping[str, type[Strict]]
"""The model of each field that holds one; "" is the file's own."""


def sentence(document: Document, error: ErrorDetails, models: Models | None = None) -> Mistake:
    """What pydantic found, as one sentence about a field, with its line. ``models``: those of another file
    than a policy."""
    path: Path = error["loc"]
    if error["type"] == "extra_forbidden":
        fields = _model_at(path[:-1], models).model_fields
        known = [field.alias or name for name, field in fields.items()]
        text = f"unknown, expected one of {', '.join(known)}{did_you_mean(str(path[-1]), known)}"
    elif error["type"] == "missing":
        text = "missing"
    else:
        path = document.nearest(path)
        text = f"found {_found(document, path, error)}"
    return Mistake(document.line(path), f"{field_named(path)}: {text}")


def did_you_mean(found: str, choices: list[str]) -> str:
    """``; did you mean "drain"?``, or nothing where no choice is near."""
    lower = {choice.lower(): choice for choice in choices}
    near = get_close_matches(found.lower(), lower, n=1, cutoff=0.6)
    return f'; did you mean "{lower[near[0]]}"?' if near else ""


_MODELS: Mapping[str, type[Strict]] = {
    "": PolicyModel,
    "limits": LimitsModel,
    "population": PopulationModel,
    "attempts": RateModel,
    "perGroup": RateModel,
    "records": RecordsModel,
    "windows": WindowModel,
    "blockers": BlockerModel,
    "pods": PodsModel,
    "exclude": ExcludeModel,
    "sources": SourceModel,
    "npd": NpdModel,
    "conditions": ConditionsModel,
    "api": ApiModel,
    "autopilot": AutopilotModel,
    "aznhc": MarksModel,
    "dcgm": DcgmModel,
    "konduktor": MarksModel,
    "loki": LokiModel,
    "rows": ConditionModel,
    "rules": RuleModel,
    "match": MatchModel,
    "times": TimesModel,
    "remedy": RungModel,
    "validate": ValidateModel,
    "witness": WitnessModel,
}
_OF_DRAIN: Mapping[str, type[Strict]] = {
    "drain": DrainModel,
    "pods": PodRuleModel,
    "match": PodMatchModel,
}
_OF_PROMETHEUS: Mapping[str, type[Strict]] = {"prometheus": PrometheusModel, "rows": MetricModel}
_SHAPES = {"model_type": "a mapping", "dict_type": "a mapping", "list_type": "a list"}


def _model_at(path: Path, models: Models | None) -> type[Strict]:
    if models is None:
        models = _OF_DRAIN if path[:1] == ("drain",) else _MODELS
        models = _OF_PROMETHEUS if "prometheus" in path else models
    return models[next((part for part in reversed(path) if isinstance(part, str)), "")]


def _found(document: Document, path: Path, error: ErrorDetails) -> str:
    value, written = _value_at(document.data, path), document.written.get(path, "")
    kind, context = error["type"], error.get("ctx", {})
    shown = _shown(value, written)
    if kind == "quote":
        what = f"the number {written}" if not isinstance(value, bool) else shown
        return f"{what}; quote it: {json.dumps(written)}"
    if kind == "choice":
        choices: list[str] = context["choices"]
        wanted = f"one of {', '.join(choices)}" if len(choices) > 1 else json.dumps(choices[0])
        hint = did_you_mean(value, choices) if isinstance(value, str) and len(choices) > 1 else ""
        return f"{shown}, expected {wanted}{hint}"
    shape: str | None = context["what"] if kind == "expected" else _SHAPES.get(kind)
    return f"{shown}, expected {shape}" if shape else f"{shown}: {error['msg']}"


def _value_at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def _shown(value: Any, written: str) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 60 else value[:60] + "…", ensure_ascii=False)
    if isinstance(value, list | dict):
        name = "list" if isinstance(value, list) else "mapping"
        return f"a {name}" if value else f"an empty {name}"
    return written
