"""Answers of a Kubernetes API: the `Response` and the refusals (`Status` objects) with their usual words.

The wording and the codes are those of `k8s.io/apimachinery/pkg/api/errors`, as a kube-apiserver v1.36 sends
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recovery.quick import quick

Json = dict[str, Any]

OPTIMISTIC_LOCK = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


@quick
@dataclass(frozen=True, slots=True)
class Response:
    """One answer: HTTP status code, header fields, and the decoded JSON body (always an object)."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Json = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300


@dataclass(frozen=True)
class Cause:
    """One `details.causes` entry of a Status: a machine-readable reason, a sentence and the field it is
    about."""

    reason: str
    message: str
    field: str = ""

    def json(self) -> Json:
        """The entry as it is sent; an empty field is left out."""
        entry = {"reason": self.reason, "message": self.message}
        return {**entry, "field": self.field} if self.field else entry


class ApiError(Exception):
    """A refusal. `status` is the HTTP code, `body` the Status object, `headers` what goes with it
    (Retry-After)."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        causes: Iterable[Cause] = (),
        retry_after: int = 0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {"Retry-After": str(retry_after)} if retry_after else {}
        self.body = status_object(status, reason, message, details, causes, retry_after)


def status_object(
    code: int,
    reason: str,
    message: str,
    details: Json | None = None,
    causes: Iterable[Cause] = (),
    retry_after: int = 0,
) -> Json:
    """A `kind: Status` object with `status: Failure`."""
    every = {key: value for key, value in (details or {}).items() if value}
    listed = [cause.json() for cause in causes]
    if listed:
        every["causes"] = listed
    if retry_after:
        every["retryAfterSeconds"] = retry_after
    body: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "code": code,
    }
    if reason:
        body["reason"] = reason
    if every:
        body["details"] = every
    return body


def success(code: int = 200, details: Json | None = None) -> Json:
    """A `kind: Status` object with `status: Success`."""
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if code != 200:
        body["code"] = code
    if details:
        body["details"] = details
    return body


def bad_request(message: str) -> ApiError:
    """400: the request itself makes no sense."""
    return ApiError(400, "BadRequest", message)


def no_such_resource() -> ApiError:
    """404: the path is not served (no such group, version, resource or subresource)."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def not_found(qualified: str, name: str) -> ApiError:
    """404: the path is served, the object is not there. `qualified` is `plural` or `plural.group`."""
    return ApiError(404, "NotFound", f'{qualified} "{name}" not found', details=_named(qualified, name))


def already_exists(qualified: str, held: Json) -> ApiError:
    """409: a create met an object of this name; `held` is that object's metadata."""
    prefix = "object is being deleted: " if held.get("deletionTimestamp") else ""
    message = f'{prefix}{qualified} "{held["name"]}" already exists'
    return ApiError(409, "AlreadyExists", message, details=_named(qualified, held["name"]))


def conflict(qualified: str, name: str, why: str = OPTIMISTIC_LOCK) -> ApiError:
    """409: a version or a precondition does not fit the stored object."""
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=_named(qualified, name))


def method_not_allowed() -> ApiError:
    """405: the resource is there, the verb is not."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def invalid(qualified_kind: str, name: str, causes: Iterable[Cause]) -> ApiError:
    """422: one or more fields are wrong; each cause names its field. `qualified_kind` is `Kind` or
    `Kind.group`."""
    listed = list(causes)
    each = [f"{cause.field}: {cause.message}" for cause in listed]
    words = each[0] if len(each) == 1 else f"[{', '.join(each)}]"
    message = f'{qualified_kind} "{name}" is invalid: {words}'
    return ApiError(422, "Invalid", message, details=_named(qualified_kind, name), causes=listed)


def unsupported_media_type(accepted: Iterable[str]) -> ApiError:
    """415: the patch (or body) is of a form that this resource does not take."""
    listed = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return ApiError(415, "UnsupportedMediaType", message)


def expired(message: str) -> ApiError:
    """410: the version asked for is no longer kept. Read the list again and start from there."""
    return ApiError(410, "Expired", message)


def _named(qualified: str, name: str) -> Json:
    kind, _, group = qualified.partition(".")
    return {"name": name, "group": group, "kind": kind}
