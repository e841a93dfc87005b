"""What came of a call to Azure: every error of the SDK and of Resource Manager, as one of ours.

One question decides: *may the request have been applied?* Errors are told apart by the names of their
classes, so that this module costs nothing until an SDK is there to fail.

Sources: azure-core's ``pipeline/transport/_requests_basic.py`` (which error is raised at which moment), the
Resource Manager documentation, "Throttling Resource Manager requests" and "Troubleshoot common errors", and
the Compute troubleshooting page for throttling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum, auto
from typing import Any

from recovery.errors import Ambiguous, NodeRecoveryError, Refused, Retry
from recovery.provider.words import LONGEST, one_line

BUSY_FOR = timedelta(seconds=30)
MOST_PATIENCE = timedelta(minutes=10)
"""The longest Retry-After that is obeyed. After that the call is made again, and may be turned away again."""
LOCKED = "DenyAssignmentAuthorizationFailed"
DISALLOWED = "RequestDisallowedByPolicy"
LINKED = "LinkedAuthorizationFailed"
"""The role is there, and the call is about something else, too: the subnet of a pool, say."""
_LACKS = re.compile(r"not have permission to perform action(?:\(s\))? '([\w./*-]{1,120})'")
_ON_WHAT = re.compile(r"on the linked scope\(s\) '[^']{0,600}?/([\w.-]{1,80}/[\w.-]{1,80})'")
NOT_SEEN = "SubscriptionNotFound"
"""The code of a 404 that says nothing of the thing that was asked for: its subscription is of another cloud,
or of another tenant than the token's."""
NO_INSTANCE = "is not an active Virtual Machine Scale Set VM"
"""Compute's words about an instance of a scale set that is gone, or whose deletion has begun (cloud-provider-
azure, ``vmssVMNotActiveErrorMessage``), with the code InvalidParameter and status 400 or 404."""
_BY_A_PERSON = {
    "ScopeLocked": "a lock on it forbids it, until a person removes the lock",
    "ReadOnlyDisabledSubscription": "its subscription is disabled, until a person enables it",
}
"""Conflicts that no waiting ends ("Lock your resources", "Troubleshoot common errors")."""
_NOT_RUNNING = "requires the VM to be running"
"""Compute's words about a VM that somebody has stopped, or that Azure has deallocated, with the same code
OperationNotAllowed as of another operation, a quota that is used up and more."""
_AT_WORK = re.compile(r"another operation|in progress|concurrent|ongoing", re.IGNORECASE)
_AT_WORK_CODES = frozenset({"AnotherOperationInProgress", "ConflictingConcurrentWriteNotAllowed"})


class Fate(Enum):
    """What is known of a request that ended in an error."""

    UNSENT = auto()  # it never left: no connection
    BUSY = auto()  # turned away before anything was done: throttled, or another operation runs
    CREDENTIALS = auto()  # there was no token, or it was not accepted
    DENIED = auto()  # no permission
    MISSING = auto()  # Azure does not know the thing
    ELSEWHERE = auto()  # it was looked for in the wrong place: whether the thing exists is not known
    REJECTED = auto()  # turned away for another reason that a person has to see
    LOST = auto()  # it may have been applied


_UNSENT = ("NewConnectionError", "ConnectTimeout", "NameResolutionError", "ProxyError", "LocationParseError")
_HANDSHAKE = ("CERTIFICATE_VERIFY_FAILED", "HANDSHAKE", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL")
_STATUS = {
    401: Fate.CREDENTIALS,
    403: Fate.DENIED,
    404: Fate.MISSING,
    408: Fate.LOST,
    409: Fate.BUSY,
    412: Fate.BUSY,
    429: Fate.BUSY,
}


def fate_of(error: Exception) -> Fate | None:
    """What is known of a request that ended in ``error``. None: it is no error of the SDK's."""
    names = [c.__name__ for c in type(error).__mro__ if c.__module__.partition(".")[0] == "azure"]
    if not names:
        return None
    if "ServiceRequestError" in names:
        return Fate.UNSENT if _never_left(error) else Fate.LOST
    status = status_of(error)
    if not status:
        return Fate.CREDENTIALS if "ClientAuthenticationError" in names else Fate.LOST
    if status == 404 and code_of(error) == NOT_SEEN:
        return Fate.ELSEWHERE
    if status in (400, 403, 404, 407) and not code_of(error):
        return Fate.LOST  # it is no answer of Resource Manager's, but a proxy's or a gateway's
    if status in _STATUS:
        return _STATUS[status]
    if status == 400 and NO_INSTANCE in message_of(error):
        return Fate.MISSING
    return Fate.REJECTED if 400 <= status < 500 else Fate.LOST


def _never_left(error: Exception) -> bool:
    """No connection, or none that was trusted. A connection that broke may have broken after the request."""
    text = f"{error!r} {error} {getattr(error, 'inner_exception', '')!r}"
    return any(name in text for name in _UNSENT) or any(mark in text.upper() for mark in _HANDSHAKE)


def status_of(error: Exception) -> int:
    """The HTTP status of the answer, 0 for none."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else 0


def code_of(error: Exception) -> str:
    """Azure's error code, or an empty string."""
    return str(getattr(getattr(error, "error", None), "code", None) or "")


def does_not_exist(error: Exception) -> bool:
    """Whether Azure says that the thing asked for is not there.

    A bare 404 does not: it may be a gateway's. Nor does a 400, or one about the subscription or the resource
    provider ("Troubleshoot common errors"): of the thing itself nothing is said.
    """
    return status_of(error) == 404 and fate_of(error) is Fate.MISSING and _not_there(error)


def _not_there(error: Exception) -> bool:
    return code_of(error).endswith("NotFound") or NO_INSTANCE in message_of(error)


def message_of(error: Exception) -> str:
    """Azure's own words, unabridged."""
    inner = getattr(getattr(error, "error", None), "message", None)
    return str(inner or getattr(error, "message", "") or "")


def headers_of(error: Exception) -> Mapping[str, str]:
    """The answer's headers; empty where there was none."""
    headers: Mapping[str, str] = getattr(getattr(error, "response", None), "headers", None) or {}
    return headers


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Retry-After in seconds, as Resource Manager gives it. None for none, or for what is no number."""
    text = next((v for k, v in headers.items() if k.lower() == "retry-after"), "")
    if not text.strip().isdigit():
        return None
    return min(timedelta(seconds=int(text)), MOST_PATIENCE)


def left_of(headers: Mapping[str, str]) -> dict[str, int]:
    """What is left of each rate limit of Compute: ``{"HighCostGet3Min": 46}``.

    From ``x-ms-ratelimit-remaining-resource``, which is sent once for each limit; they arrive joined.
    """
    text = ",".join(v for k, v in headers.items() if k.lower() == "x-ms-ratelimit-remaining-resource")
    return {name: int(left) for name, left in re.findall(r"Microsoft\.Compute/(\w+);(\d+)", text)}


_SECRETS = (
    (re.compile(r"eyJ[A-Za-z0-9_\-.]{20,}"), "(a token)"),
    (re.compile(r"https?://\S+"), "(an address)"),
    (re.compile(r"/subscriptions/[0-9a-fA-F-]{36}"), "(a subscription)"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "(an id)"),
    (re.compile(r"(?=\S*\d)[A-Za-z0-9+/=_-]{60,}"), "(left out)"),
)


def brief(text: str, longest: int = LONGEST) -> str:
    """Azure's own words, on one line, bounded, without tokens, addresses, subscriptions or ids."""
    return one_line(text, _SECRETS, longest)


def words_of(error: Exception) -> str:
    """Code and message, fit for a sentence."""
    code, message = code_of(error), message_of(error)
    if not code and not message:
        return brief(f"{type(error).__name__}: {error}")
    return brief(f"{code}: {message}" if code and not message.startswith(f"({code})") else message)


def translate(error: Exception, what: str, mutating: bool) -> NodeRecoveryError:
    """The error to raise instead of ``error``.

    ``what`` names the call for people. A lost answer is ``Ambiguous`` only if the call is ``mutating``, else
    ``Retry``. An error that is not the SDK's is a bug, and is raised as it is. That Azure does not know a
    thing refuses nothing: one answer may be older than it (cloud-provider-azure asks again after a 404,
    "because of ARM replication latency"). Who must know that it is gone asks ``does_not_exist`` for a while.
    """
    fate = fate_of(error)
    if fate is None:
        raise error
    unsaid = fate is Fate.LOST or (fate is Fate.MISSING and not _not_there(error))
    if unsaid and not mutating:
        return Retry(f"{what} got no usable answer: {words_of(error)}")
    if fate is Fate.BUSY and (why := _by_a_person(error)):
        return Refused(f"Azure refused {what}: {why}; Azure says {words_of(error)}")
    if fate is Fate.BUSY:
        return _busy(error, what)
    if fate is Fate.DENIED:
        return _denied(error, what)
    return _SAY[fate](what, words_of(error))


_SAY: dict[Fate, Callable[[str, str], NodeRecoveryError]] = {
    Fate.UNSENT: lambda what, words: Retry(f"{what} was not sent, Azure could not be reached: {words}"),
    Fate.CREDENTIALS: lambda what, words: Retry(
        f"{what} was not done, there is no good token for Azure: {words}", timedelta(seconds=60)
    ),
    Fate.MISSING: lambda what, words: Retry(
        f"{what} was not done, Azure does not know it; one answer may be an old one: {words}"
    ),
    Fate.ELSEWHERE: lambda what, words: Refused(
        f"{what} says nothing of the machine: Azure does not know its subscription; is it of the tenant and "
        f"the cloud that AZURE_TENANT_ID and AZURE_RESOURCE_MANAGER_ENDPOINT name? Azure says {words}"
    ),
    Fate.REJECTED: lambda what, words: Refused(f"Azure refused {what}: {words}"),
    Fate.LOST: lambda what, words: Ambiguous(f"{what} may have been done, its answer was lost: {words}"),
}


def _by_a_person(error: Exception) -> str:
    """Why no waiting ends it; empty where it may."""
    if status_of(error) == 409 and _NOT_RUNNING in message_of(error):
        return "it does not run, until a person starts it"
    return _BY_A_PERSON.get(code_of(error), "")


def _busy(error: Exception, what: str) -> Retry:
    """Turned away for now. The headers may say which rate limit is used up."""
    headers = headers_of(error)
    after = retry_after(headers) or BUSY_FOR
    if status_of(error) == 429:
        spent = ", ".join(name for name, left in left_of(headers).items() if left == 0)
        limit = f" (limit {spent})" if spent else ""
        return Retry(f"Azure throttles {what}{limit}: {words_of(error)}", after)
    if status_of(error) == 412:
        return Retry(f"{what} was not done, somebody else changed it meanwhile: {words_of(error)}", after)
    if code_of(error) in _AT_WORK_CODES or _AT_WORK.search(message_of(error)):
        return Retry(f"{what} is not yet possible, another operation is under way: {words_of(error)}", after)
    return Retry(f"{what} is not possible now, Azure says {words_of(error)}", after)


def _denied(error: Exception, what: str) -> Refused:
    """Not permitted: by a missing role, by AKS, which locks its node resource group, or by Azure Policy
    ("Troubleshoot common errors"), which denies changes and deletions to whoever may make them."""
    if code_of(error) == LOCKED:
        todo = "a deny assignment forbids it, as AKS locks its node resource group: no role outweighs that"
    elif code_of(error) == DISALLOWED:
        todo = "an assignment of Azure Policy forbids it: no role outweighs that"
    elif code_of(error) == LINKED:
        lacks, on = _LACKS.search(message_of(error)), _ON_WHAT.search(message_of(error))
        right, what_else = lacks[1] if lacks else "a right", on[1] if on else "what is linked to it"
        todo = f'the identity needs {right} on {what_else}, too ("Linked permissions" in iam/azure)'
    else:
        todo = "give the agent's identity the role in iam/azure"
    return Refused(f"Azure denied {what}: {todo}; Azure says {words_of(error)}")


def operation_failed(error: Any) -> str:
    """Why an operation failed, from the ``error`` of its status, which comes with HTTP 200."""
    if not isinstance(error, Mapping):
        return "Azure gives no reason"
    code, message = str(error.get("code") or ""), str(error.get("message") or "")
    return brief(": ".join(part for part in (code, message) if part)) or "Azure gives no reason"
