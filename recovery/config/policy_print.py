"""A policy as it is in effect: with every default, in the shape of its file, so that it loads to the same.

What a rule leaves to the catalogue (``hold``, ``latch``, ``remedy``) stays out: it differs by fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import time, timedelta, tzinfo
from decimal import Decimal
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from recovery.config.policy_schema import BRAKED_BY_DEFAULT, WITHIN, LimitsModel, PolicyModel
from recovery.model import EVERY_OTHER, Bound, Named, PodMode, Share, Step
from recovery.signals import never_joined
from recovery.units import format_duration


def printed(model: PolicyModel, form: str) -> str:
    """The policy as text: ``json`` or ``yaml``."""
    found = effective(model)
    if form == "json":
        return json.dumps(found, indent=2)
    return str(yaml.safe_dump(found, sort_keys=False, width=110)).rstrip()


def effective(model: PolicyModel) -> dict[str, Any]:
    """Plain values for YAML or JSON, with the keys in the order of the reference."""
    found: dict[str, Any] = _plain(model)
    found["limits"] = _limits(found["limits"])
    found["sources"] = [_source(source) for source in found["sources"]]
    for rule in found["drain"]["pods"]:
        if rule["mode"] != PodMode.WAIT:
            del rule["annotate"]
    for rule, of in zip(found["rules"], model.rules, strict=True):
        rule["after"] = _plain(of.tolerated)
        if of.match.type == never_joined.TYPE:
            del rule["match"]["nodeLabels"]  # such a machine has none
        if "times" in rule["match"]:
            del rule["match"]["type"]  # an edge has none
        if "remedy" in rule:
            rule["remedy"] = [_rung(rung) for rung in rule["remedy"]]
    return found


def _limits(limits: dict[str, Any]) -> dict[str, Any]:
    """The limits with ``brakePer``, which stands where a file would have it."""
    per = {
        "budgetPer": _per(limits["budgetPer"]),
        "brakePer": _per(limits.get("brakePer", {BRAKED_BY_DEFAULT: limits["brake"]})),
    }
    order = (field.alias or name for name, field in LimitsModel.model_fields.items())
    return {key: (limits | per)[key] for key in order if key in limits | per}


def _per(limits: dict[str, Any]) -> dict[str, Any]:
    """One limit for all values is written without them."""
    alone = {key: isinstance(per, dict) and list(per) == [EVERY_OTHER] for key, per in limits.items()}
    return {key: per[EVERY_OTHER] if alone[key] else per for key, per in limits.items()}


def _source(source: dict[str, Any]) -> Any:
    """A source without options is its name."""
    (name, options), *_ = source.items()
    return source if options else name


def _rung(rung: dict[str, Any]) -> dict[str, Any]:
    """A step with its deadline, and with the fields that such a step has."""
    step = Step(rung["do"])
    named = ("key", "value", "effect") if "key" in rung else ()
    shown = {"do": rung["do"], "within": rung.get("within", WITHIN[step])}
    if step is Step.DRAIN:
        shown["then"] = rung["then"]
    return shown | {field: rung[field] for field in named}


def _fields(model: BaseModel) -> Iterable[tuple[str, FieldInfo]]:
    return type(model).model_fields.items()


def _plain(value: Any) -> Any:
    match value:
        case BaseModel():
            given = ((field.alias or name, getattr(value, name)) for name, field in _fields(value))
            return {name: _plain(each) for name, each in given if each is not None}
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case timedelta():
            return format_duration(value)
        case time():
            return f"{value:%H:%M}"
        case tzinfo():
            return str(value)
        case Share():
            return f"{_number(value.percent or 0.0)}%" if value.count is None else value.count
        case Bound():
            return f"{value.sign} {_number(value.number)}"
        case Named():
            return {"label": value.label} if value.label else value.text
    return value


def _number(value: float) -> str:
    """All its digits, and never an exponent, which a policy does not have."""
    return format(Decimal(repr(value)), "f").removesuffix(".0")
