"""What an object becomes on its way into the store: identity checks, server-set metadata, generation.
Pure."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from recovery_testkit import kubeschema, kubevalidate
from recovery_testkit.kubepatch import (
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    PatchError,
    json_patch,
    merge_patch,
    strategic_merge,
)
from recovery_testkit.kubepaths import Target
from recovery_testkit.kuberesources import Resource
from recovery_testkit.kubestatus import (
    ApiError,
    Cause,
    Json,
    bad_request,
    conflict,
    invalid,
    unsupported_media_type,
)

_SERVER_SET = ("creationTimestamp", "generation", "resourceVersion", "deletionGracePeriodSeconds")
_DROPPED = ("selfLink", "managedFields")
_METADATA = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "labels", "annotations",
    "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers",
)  # fmt: skip
_CLEARED_ON_CREATE = ("PodDisruptionBudget", "DaemonSet", "ReplicaSet", "Deployment", "StatefulSet", "Job")


def timestamp(moment: datetime) -> str:
    """RFC 3339 with whole seconds, as metadata carries times."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def check_identity(target: Target, body: Any) -> Json:
    """The body as an object of the target's kind, with a metadata map. Raises `ApiError` 400 or 422 if it
    is none, or is about another namespace or (where the path names one) another name."""
    if not isinstance(body, dict):
        raise bad_request("couldn't get version/kind; json parse error: the body must be a JSON object")
    resource = target.resource
    _check_kind(resource, body)
    meta = body.get("metadata") or {}
    if not isinstance(meta, dict):
        raise bad_request("json: cannot unmarshal metadata into Go value of type v1.ObjectMeta")
    name, namespace = meta.get("name") or "", meta.get("namespace") or ""
    if target.name and name and name != target.name:
        why = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        raise bad_request(why)
    if namespace and namespace != target.namespace:
        why = "the namespace of the provided object does not match the namespace sent on the request"
        raise bad_request(why)
    return {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": dict(meta)}


def _check_kind(resource: Resource, body: Json) -> None:
    kind, version = body.get("kind"), body.get("apiVersion")
    if resource.custom and not (kind and version):
        missing = "Kind" if not kind else "apiVersion"
        shown = json.dumps(body)[:60]
        why = f"the object provided is unrecognized (must be of type {resource.kind}): "
        raise bad_request(f"{why}Object '{missing}' is missing in '{shown}'")
    if version and version != resource.api_version:
        expected = f"does not match the expected API version ({resource.api_version})"
        why = f"the API version in the data ({version}) {expected}"
        raise bad_request(why)
    if kind and kind != resource.kind:
        if resource.custom:
            name = (body.get("metadata") or {}).get("name", "")
            cause = Cause("FieldValueInvalid", f'Invalid value: "{kind}": must be {resource.kind}', "kind")
            raise invalid(f"{kind}.{resource.group}", name, [cause])
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}')


def patched(target: Target, current: Json, patch: Any, content_type: str) -> Json:
    """The current object with a patch applied. Raises `ApiError` 400, 415 or 422."""
    accepted = [JSON_PATCH, MERGE] if target.resource.custom else [JSON_PATCH, MERGE, STRATEGIC]
    if content_type not in accepted:
        raise unsupported_media_type(accepted)
    if content_type != JSON_PATCH and not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}"
        )
    apply = {MERGE: merge_patch, STRATEGIC: strategic_merge, JSON_PATCH: json_patch}[content_type]
    try:
        result = apply(current, patch)
    except PatchError as error:
        reason = "Invalid" if error.status == 422 else "BadRequest"
        raise ApiError(error.status, reason, str(error)) from None
    return check_identity(target, result)


def check_version(resource: Resource, current: Json, proposed: Json, *, put: bool) -> None:
    """Raises `ApiError` when the write is about another state or another object than the stored one: 409,
    or 422 for a PUT that must name a version and does not."""
    name, meta, wanted = current["metadata"]["name"], current["metadata"], proposed["metadata"]
    if put and wanted.get("uid") and wanted["uid"] != meta["uid"]:
        why = f"Precondition failed: UID in precondition: {wanted['uid']}, UID in object meta: {meta['uid']}"
        raise conflict(resource.qualified, name, why)
    version = read_version(wanted.get("resourceVersion"))
    if version == 0:
        if put and not resource.unconditional:
            words = "Invalid value: 0: must be specified for an update"
            raise invalid(
                resource.qualified, name, [Cause("FieldValueInvalid", words, "metadata.resourceVersion")]
            )
    elif str(version) != meta["resourceVersion"]:
        raise conflict(resource.qualified, name)


def read_version(text: Any) -> int:
    """A resourceVersion in a body; absent or empty is 0. Rubbish raises `ApiError` 500, as a real server
    answers."""
    if not text:
        return 0
    if not str(text).isdecimal():
        raise ApiError(500, "", f'strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def created(
    target: Target, proposed: Json, *, uid: str, suffix: str, now: datetime
) -> tuple[Json, list[str]]:
    """A new object with its server-set fields, and the paths that pruning took away. Raises `ApiError` 422
    or 500."""
    resource, meta = target.resource, proposed["metadata"]
    if read_version(meta.get("resourceVersion")):
        raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
    name = (
        meta.get("name") or target.name or (meta["generateName"] + suffix if meta.get("generateName") else "")
    )
    if not name:
        words = "Required value: name or generateName is required"
        raise invalid(resource.qualified_kind, "", [Cause("FieldValueRequired", words, "metadata.name")])
    fresh = {
        key: value for key, value in meta.items() if key not in (*_SERVER_SET, *_DROPPED, "deletionTimestamp")
    }
    fresh.update(name=name, uid=uid, creationTimestamp=timestamp(now))
    if resource.namespaced:
        fresh["namespace"] = target.namespace
    if resource.generation:
        fresh["generation"] = 1
    obj, pruned = _cleaned(resource, {**proposed, "metadata": fresh})
    if resource.status and (resource.custom or resource.kind in _CLEARED_ON_CREATE):
        obj.pop("status", None)
    _defaults(resource, obj)
    _validate(resource, obj, None)
    return obj, pruned


def updated(target: Target, current: Json, proposed: Json) -> tuple[Json, list[str]]:
    """The object that a write makes of the current one, and what pruning took away. Equal to `current`:
    nothing to do. The resourceVersion is still the old one. Raises `ApiError` 422."""
    resource = target.resource
    obj, pruned = _cleaned(
        resource, {**proposed, "metadata": _kept_metadata(current["metadata"], proposed["metadata"])}
    )
    if target.subresource == "status":
        kept = current["metadata"] if resource.custom else obj["metadata"]
        status = {"status": obj["status"]} if "status" in obj else {}
        obj = {
            **{key: value for key, value in current.items() if key != "status"},
            "metadata": kept,
            **status,
        }
    elif resource.status:
        obj.pop("status", None)
        if "status" in current:
            obj["status"] = current["status"]
    _validate(resource, obj, current)
    if (
        resource.generation
        and target.subresource != "status"
        and _content(resource, obj) != _content(resource, current)
    ):
        obj["metadata"]["generation"] = current["metadata"].get("generation", 1) + 1
    return obj, pruned


def _kept_metadata(old: Json, new: Json) -> Json:
    """The new metadata, with what only the server sets as it was."""
    meta = {key: value for key, value in new.items() if key not in (*_SERVER_SET, *_DROPPED)}
    meta.update({key: old[key] for key in (*_SERVER_SET, "name", "namespace") if key in old})
    meta["uid"] = new.get("uid") or old["uid"]
    if "deletionTimestamp" in old:
        meta["deletionTimestamp"] = old["deletionTimestamp"]
    return meta


def _cleaned(resource: Resource, obj: Json) -> tuple[Json, list[str]]:
    """Without what the server does not keep: unknown fields of custom kinds, nulls and empty metadata
    maps."""
    meta = {
        key: value
        for key, value in obj["metadata"].items()
        if value not in (None, {}, [], "") and key in _METADATA
    }
    pruned = [f"metadata.{key}" for key in obj["metadata"] if key not in (*_METADATA, *_DROPPED)]
    obj = {**obj, "metadata": meta}
    if resource.custom:
        settled, more = kubeschema.settle(resource.schema or {}, obj)
        return settled, pruned + more
    obj, more = kubevalidate.pruned_spec(resource, _without_nulls(obj))
    pruned += more
    if resource.kind == "Node":
        spec = obj.get("spec") or {}
        obj["spec"] = {
            key: value for key, value in spec.items() if key not in ("unschedulable", "taints") or value
        }
    return obj, pruned


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _defaults(resource: Resource, obj: Json) -> None:
    if resource.kind == "Pod":
        obj["spec"] = {
            "terminationGracePeriodSeconds": 30,
            "restartPolicy": "Always",
            **(obj.get("spec") or {}),
        }
        obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    if resource.kind == "Namespace":
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
        obj["status"] = {"phase": "Active"}


def _validate(resource: Resource, obj: Json, old: Json | None) -> None:
    kubevalidate.check_form(resource, obj)
    causes = kubevalidate.causes(resource, obj, old)
    if resource.custom:
        causes += kubeschema.violations(resource.schema or {}, obj)
    if causes:
        raise invalid(resource.qualified_kind, obj["metadata"].get("name", ""), causes)


def _content(resource: Resource, obj: Json) -> Json:
    skipped = ("metadata", "status") if resource.status else ("metadata",)
    return {key: value for key, value in obj.items() if key not in skipped}
