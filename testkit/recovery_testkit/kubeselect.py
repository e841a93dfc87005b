"""Label and field selectors, as the API server reads them. Pure; what it cannot read raises
`SelectorError`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Match = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"^(?P<key>[^\s()!=,]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s()!=,]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s()!=,]*)$")
_KEY = re.compile(r"^(?P<absent>!?)\s*(?P<key>[^\s()!=,<>]+)$")


class SelectorError(ValueError):
    """A selector that cannot be read (the server answers 400)."""


def label_selector(text: str) -> Match:
    """`a=b,c!=d,e in (x,y),f notin (z),g,!h` as a predicate on a label map. As in Kubernetes, `!=` and
    `notin` also match when the label is absent."""
    terms = [_label_term(part) for part in _split(text)] if text else []
    return (lambda labels: all(term(labels) for term in terms)) if terms else _everything


def _everything(_: object) -> bool:
    return True


def object_selector(selector: Mapping[str, Any] | None) -> Match:
    """A `LabelSelector` object (matchLabels, matchExpressions). None matches nothing, an empty one
    everything."""
    if selector is None:
        return lambda labels: False
    terms = [_is_in(key, {value}) for key, value in (selector.get("matchLabels") or {}).items()]
    terms += [_expression(each) for each in selector.get("matchExpressions") or []]
    return lambda labels: all(term(labels) for term in terms)


def field_selector(
    text: str, supported: Mapping[str, str], read: Callable[[Any, str], str]
) -> Callable[[Any], bool]:
    """`metadata.name=a,status.phase!=Failed` as a predicate on an object.

    `supported` maps each field this kind may be selected by to what an absent one reads as; `read(obj,
    field)` gives the object's value as text. Another field raises `SelectorError`, as the server refuses it.
    """
    terms = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        found = _EQUAL.match(part)
        if not found:
            raise SelectorError(f'invalid selector: "{text}"; can\'t understand "{part}"')
        if found["key"] not in supported:
            raise SelectorError(f"field label not supported: {found['key']}")
        terms.append((found["key"], found["value"], found["op"] != "!="))
    if not terms:
        return _everything
    return lambda obj: all(
        ((read(obj, key) or supported[key]) == value) is wanted for key, value, wanted in terms
    )


def _split(text: str) -> list[str]:
    parts = re.split(r",(?![^()]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def _label_term(text: str) -> Match:
    if found := _SET.match(text):
        values = {value.strip() for value in found["values"].split(",")}
        return _is_in(found["key"], values, wanted=found["op"] == "in")
    if found := _EQUAL.match(text):
        return _is_in(found["key"], {found["value"]}, wanted=found["op"] != "!=")
    if found := _KEY.match(text):
        return _exists(found["key"], wanted=not found["absent"])
    raise SelectorError(f"unable to parse requirement: {text}")


def _expression(each: Mapping[str, Any]) -> Match:
    key, values = str(each.get("key")), set(each.get("values") or [])
    operators: dict[str, Match] = {
        "In": _is_in(key, values),
        "NotIn": _is_in(key, values, wanted=False),
        "Exists": _exists(key),
        "DoesNotExist": _exists(key, wanted=False),
    }
    if each.get("operator") not in operators:
        raise SelectorError(f"{each.get('operator')!r} is not a valid label selector operator")
    return operators[each["operator"]]


def _is_in(key: str, values: set[str], *, wanted: bool = True) -> Match:
    return lambda labels: (labels.get(key) in values if key in labels else False) is wanted


def _exists(key: str, *, wanted: bool = True) -> Match:
    return lambda labels: (key in labels) is wanted
