"""Structural schemas of custom resources: what a server prunes, fills in and refuses. Pure.

Covers types, required, enum, bounds, patterns, formats `date-time`, defaults, nullable, additionalProperties,
`x-kubernetes-preserve-unknown-fields` and `x-kubernetes-int-or-string`. CEL rules
(`x-kubernetes-validations`) are not weighed. Words and causes are those seen from a kube-apiserver v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from recovery_testkit.kubestatus import Cause

Schema = Mapping[str, Any]

_ROOT_FIELDS = ("apiVersion", "kind", "metadata")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def settle(schema: Schema, document: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The document as a server would keep it: unknown fields pruned, defaults filled in, nulls that may
    not be dropped. Also the paths of the pruned fields (a server names them in `Warning` headers)."""
    if _quick(schema)(document):
        return document, []
    pruned: list[str] = []
    known = {**(schema.get("properties") or {}), **dict.fromkeys(_ROOT_FIELDS, _KEEP)}
    return _settle({**schema, "properties": known}, document, "", pruned), pruned


def violations(schema: Schema, document: Mapping[str, Any]) -> list[Cause]:
    """Everything in the document that the schema forbids, each with its field. Empty: valid."""
    known = {key: value for key, value in document.items() if key not in _ROOT_FIELDS}
    if _quick(schema)(known):
        return []
    return list(_violations({"type": "object", **schema}, known, ""))


_KEEP: Schema = {"x-kubernetes-preserve-unknown-fields": True}

Check = Callable[[Any], bool]

_WORDS = frozenset({"type", "description", "nullable", "default"})
_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_MOST_CHECKS = 100
_quick_checks: dict[int, tuple[Schema, Check]] = {}


def _quick(schema: Schema) -> Check:
    """A check of whole documents that is True only where `settle` changes and `violations` finds nothing.
    Made once per schema, which is kept so that its identity is not given to another."""
    held = _quick_checks.get(id(schema))
    if held is None or held[0] is not schema:
        alike = (check for known, check in list(_quick_checks.values()) if known == schema)
        held = schema, next(alike, None) or _made_check(schema)
        if len(_quick_checks) >= _MOST_CHECKS:
            _quick_checks.clear()
        _quick_checks[id(schema)] = held
    return held[1]


def _made_check(schema: Schema) -> Check:
    known = {**(schema.get("properties") or {}), **dict.fromkeys(_ROOT_FIELDS, _KEEP)}
    return _quick_check({"type": "object", **schema, "properties": known})


def _quick_check(schema: Schema) -> Check:
    kind, words = schema.get("type"), schema.keys() - _WORDS
    check: Check = _unsure
    if schema == _KEEP:
        check = _anything
    elif kind in _SCALARS and words <= {"maxLength", "minimum", "maximum", "enum"}:
        check = _quick_scalar(_SCALARS[kind], schema)
    elif kind == "array" and words <= {"items", "maxItems"}:
        check = _quick_array(_quick_check(schema.get("items") or _KEEP), schema.get("maxItems"))
    elif kind == "object" and words <= _OBJECT_WORDS:
        check = _quick_object(schema)
    if not schema.get("nullable"):
        return check
    return lambda value: value is None or check(value)


_OBJECT_WORDS = frozenset(
    (
        "properties",
        "required",
        "additionalProperties",
        "maxProperties",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-map-type",
        "x-kubernetes-validations",
    )
)
"""The last two change nothing here: rules of CEL are not weighed."""


def _anything(value: Any) -> bool:
    return True


def _unsure(value: Any) -> bool:
    return False


def _quick_scalar(types: tuple[type, ...], schema: Schema) -> Check:
    longest, enum = schema.get("maxLength"), schema.get("enum")
    least, most = schema.get("minimum"), schema.get("maximum")

    def check(value: Any) -> bool:
        if type(value) not in types or (enum is not None and value not in enum):
            return False
        if type(value) is str:
            return longest is None or len(value) <= longest
        return (least is None or value >= least) and (most is None or value <= most)

    return check


def _quick_array(item: Check, most: int | None) -> Check:
    def check(value: Any) -> bool:
        return type(value) is list and (most is None or len(value) <= most) and all(map(item, value))

    return check


def _quick_object(schema: Schema) -> Check:
    properties = schema.get("properties") or {}
    below = {key: _quick_check(each) for key, each in properties.items()}
    needed = {*(schema.get("required") or ()), *(k for k, each in properties.items() if "default" in each)}
    most = schema.get("maxProperties")
    other: Check = _unsure
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        other = _quick_check(extra)
    elif extra is True or schema.get("x-kubernetes-preserve-unknown-fields"):
        other = _anything

    def check(value: Any) -> bool:
        if type(value) is not dict or not needed <= value.keys() or (most is not None and len(value) > most):
            return False
        for key, item in value.items():  # noqa: SIM110 - half the time of an all() of a generator
            if not below.get(key, other)(item):
                return False
        return True

    return check


def _settle(schema: Schema, value: Any, path: str, pruned: list[str]) -> Any:
    if isinstance(value, list):
        items = schema.get("items") or _KEEP
        return [_settle(items, item, f"{path}[{index}]", pruned) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return _settle_object(schema, value, path, pruned)
    if isinstance(value, float) and value.is_integer() and schema.get("type") == "integer":
        return int(value)
    return value


def _settle_object(schema: Schema, value: dict[str, Any], path: str, pruned: list[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, item in value.items():
        below = _child(schema, key)
        if below is None:
            pruned.append(_join(path, key))
        elif item is not None or below.get("nullable") or below is _KEEP:
            kept[key] = _settle(below, item, _join(path, key), pruned)
    for key, below in (schema.get("properties") or {}).items():
        if key not in kept and "default" in below:
            kept[key] = _settle(below, below["default"], _join(path, key), pruned)
    return kept


def _child(schema: Schema, key: str) -> Schema | None:
    """The schema of one field; None when the field is unknown and not to be kept."""
    properties = schema.get("properties") or {}
    if key in properties:
        found: Schema = properties[key]
        return found
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        return extra
    return _KEEP if extra is True or schema.get("x-kubernetes-preserve-unknown-fields") else None


def _violations(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    if value is None and schema.get("nullable"):
        return
    wrong = _type_violation(schema, value, path)
    if wrong:
        yield wrong
        return
    yield from _value_violations(schema, value, path)
    if isinstance(value, dict):
        for name in schema.get("required") or []:
            if name not in value:
                yield Cause("FieldValueRequired", "Required value", _join(path, name))
        for key, item in value.items():
            yield from _violations(_child(schema, key) or {}, item, _join(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _violations(schema.get("items") or {}, item, f"{path}[{index}]")


def _type_violation(schema: Schema, value: Any, path: str) -> Cause | None:
    if schema.get("x-kubernetes-int-or-string"):
        wanted, fits = "integer,string", _type_of(value) in ("integer", "string")
    else:
        wanted = schema.get("type") or ""
        fits = (
            not wanted or _type_of(value) == wanted or (wanted == "number" and _type_of(value) == "integer")
        )
    if not fits:
        found = _type_of(value)
        words = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
        return Cause("FieldValueTypeInvalid", words, path)
    if schema.get("format") == "date-time" and not _DATE_TIME.fullmatch(str(value)):
        words = f'Invalid value: "{value}": {path} in body must be of type date-time: "{value}"'
        return Cause("FieldValueTypeInvalid", words, path)
    return None


def _value_violations(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    if "enum" in schema and value not in schema["enum"]:
        listed = ", ".join(f'"{each}"' for each in schema["enum"])
        yield Cause(
            "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}', path
        )
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        words = f"Invalid value: \"{value}\": {path} in body should match '{schema['pattern']}'"
        yield Cause("FieldValueInvalid", words, path)
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_violations(schema, value, path)
    yield from _size_violations(schema, value, path)


def _number_violations(schema: Schema, value: float, path: str) -> Iterator[Cause]:
    if "minimum" in schema and value < schema["minimum"]:
        words = f"{path} in body should be greater than or equal to {schema['minimum']}"
        yield Cause("FieldValueInvalid", f"Invalid value: {value}: {words}", path)
    if "maximum" in schema and value > schema["maximum"]:
        words = f"{path} in body should be less than or equal to {schema['maximum']}"
        yield Cause("FieldValueInvalid", f"Invalid value: {value}: {words}", path)


def _size_violations(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    names = {"string": "Length", "array": "Items", "object": "Properties"}
    name = names.get(_type_of(value))
    if not name:
        return
    least, most = schema.get(f"min{name}"), schema.get(f"max{name}")
    if least is not None and len(value) < least:
        words = f"{path} in body should be at least {least} {name.lower()} long"
        yield Cause("FieldValueInvalid", f"Invalid value: {words}", path)
    if most is not None and len(value) > most:
        unit = "bytes" if name == "Length" else "items"
        reason = "FieldValueTooLong" if name == "Length" else "FieldValueTooMany"
        yield Cause(
            reason,
            f"{'Too long' if unit == 'bytes' else 'Too many'}: may not be more than {most} {unit}",
            path,
        )


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number"}
    return names.get(type(value), "null")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
