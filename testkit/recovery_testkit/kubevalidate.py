"""The part of the API server's validation that an agent of ours can run into. Pure; every rule was seen on
v1.36.

Names, labels, annotations, finalizers, taints, providerID, Lease times and the namespace of an Event. Other
fields of built-in kinds are taken as they come: a real server would also prune unknown ones and fill in many
defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from recovery_testkit.kuberesources import Resource
from recovery_testkit.kubestatus import Cause, Json, bad_request

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_QUALIFIED = re.compile(rf"({_SUBDOMAIN}/)?{_WORD}")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MAX_ANNOTATIONS = 256 * 1024
_POD_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
# The specs an agent of ours writes; another field in them is a mistake, which a real server prunes with a
# warning.
_SPECS = {
    "Node": {"podCIDR", "podCIDRs", "providerID", "unschedulable", "taints", "configSource", "externalID"},
    "Lease": {
        "holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions", "strategy",
        "preferredHolder",
    },
}  # fmt: skip


def pruned_spec(resource: Resource, obj: Json) -> tuple[Json, list[str]]:
    """The object without unknown fields in its spec, for the kinds of which all are known; and their
    paths."""
    known, spec = _SPECS.get(resource.kind), obj.get("spec")
    if resource.custom or known is None or not isinstance(spec, dict):
        return obj, []
    kept = {key: value for key, value in spec.items() if key in known}
    return {**obj, "spec": kept}, [f"spec.{key}" for key in spec if key not in known]


def check_form(resource: Resource, obj: Json) -> None:
    """Raises `ApiError` 400 for a value that does not even decode (times of a Lease need six decimals)."""
    if resource.kind != "Lease":
        return
    for name in ("acquireTime", "renewTime"):
        value = (obj.get("spec") or {}).get(name)
        if value is not None and not _MICRO_TIME.fullmatch(str(value)):
            layout = "2006-01-02T15:04:05.000000Z07:00"
            why = f'parsing time "{value}" as "{layout}": cannot parse'
            raise bad_request(f'Lease in version "v1" cannot be handled as a Lease: {why}')


def causes(resource: Resource, obj: Json, old: Json | None) -> list[Cause]:
    """What is wrong with the object, each with its field; `old` is the stored one of an update."""
    found = [*_metadata(obj["metadata"], old["metadata"] if old else None)]
    spec = obj.get("spec") or {}
    if resource.kind == "Node":
        found += _node(spec, (old or {}).get("spec") or {})
    if resource.kind == "Pod" and old is not None:
        found += _pod(spec, old.get("spec") or {})
    if resource.kind == "Event":
        found += _event(obj)
    if resource.kind == "Lease":
        found += _lease(spec)
    return found


def _invalid(field: str, value: Any, why: str) -> Cause:
    shown = value if isinstance(value, int) else f'"{value}"'
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)


def _metadata(meta: Json, old: Json | None) -> Iterator[Cause]:
    name = meta.get("name") or ""
    if old is None and not (len(name) <= 253 and re.fullmatch(_SUBDOMAIN, name)):
        why = f"a lowercase RFC 1123 subdomain must fit {_SUBDOMAIN}"
        yield _invalid("metadata.name", name, why)
    for field in ("uid", "deletionTimestamp"):
        if old is not None and meta.get(field) and meta[field] != old.get(field):
            yield _invalid(f"metadata.{field}", meta[field], "field is immutable")
    yield from _pairs(meta)
    added = [
        each for each in meta.get("finalizers") or [] if each not in ((old or {}).get("finalizers") or [])
    ]
    if old is not None and old.get("deletionTimestamp") and added:
        why = "Forbidden: no new finalizers can be added if the object is being deleted"
        yield Cause("FieldValueForbidden", f"{why}, found new finalizers {added}", "metadata.finalizers")


def _pairs(meta: Json) -> Iterator[Cause]:
    for key, value in (meta.get("labels") or {}).items():
        if not _qualified(key):
            yield _invalid(
                "metadata.labels", key, "name part must consist of alphanumeric characters, '-', '_' or '.'"
            )
        if not isinstance(value, str) or len(value) > 63 or not re.fullmatch(f"({_WORD})?", value):
            why = "a valid label must be empty or at most 63 alphanumeric characters, '-', '_' or '.'"
            yield _invalid("metadata.labels", value, why)
    annotations = meta.get("annotations") or {}
    for key, value in annotations.items():
        if not _qualified(key) or not isinstance(value, str):
            yield _invalid(
                "metadata.annotations",
                key,
                "name part must consist of alphanumeric characters, '-', '_' or '.'",
            )
    if sum(len(key) + len(str(value)) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        yield Cause(
            "FieldValueTooLong",
            f"Too long: may not be more than {_MAX_ANNOTATIONS} bytes",
            "metadata.annotations",
        )


def _qualified(key: str) -> bool:
    return bool(_QUALIFIED.fullmatch(key)) and len(key.rpartition("/")[2]) <= 63


def _node(spec: Json, old: Json) -> Iterator[Cause]:
    seen: set[tuple[Any, Any]] = set()
    for index, taint in enumerate(spec.get("taints") or []):
        field = f"metadata.taints[{index}]"
        pair = taint.get("key"), taint.get("effect")
        if not _qualified(str(pair[0] or "")):
            yield _invalid(f"{field}.key", pair[0] or "", "name part must be non-empty")
        if pair[1] not in _EFFECTS:
            listed = ", ".join(f'"{each}"' for each in _EFFECTS)
            words = f'Unsupported value: "{pair[1]}": supported values: {listed}'
            yield Cause("FieldValueNotSupported", words, f"{field}.effect")
        if pair in seen:
            words = f"Duplicate value: {taint}: taints must be unique by key and effect pair"
            yield Cause("FieldValueDuplicate", words, field)
        seen.add(pair)
    if old.get("providerID") and spec.get("providerID") != old["providerID"]:
        words = 'Forbidden: node updates may not change providerID except from "" to valid'
        yield Cause("FieldValueForbidden", words, "spec.providerID")


def _pod(spec: Json, old: Json) -> Iterator[Cause]:
    def fixed(spec: Json) -> Json:
        kept = {key: value for key, value in spec.items() if key not in _POD_MAY_CHANGE}
        containers = [{**each, "image": ""} for each in spec.get("containers") or []]
        return {**kept, "containers": containers}

    if fixed(spec) != fixed(old):
        may = ", ".join(f"`spec.{name}`" for name in ("containers[*].image", *_POD_MAY_CHANGE))
        yield Cause(
            "FieldValueForbidden", f"Forbidden: pod updates may not change fields other than {may}", "spec"
        )


def _event(obj: Json) -> Iterator[Cause]:
    about = (obj.get("involvedObject") or {}).get("namespace") or ""
    held = obj["metadata"].get("namespace")
    if about != held and not (about == "" and held == "default"):
        yield _invalid("involvedObject.namespace", about, "does not match event.namespace")


def _lease(spec: Json) -> Iterator[Cause]:
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield _invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
