"""What came of a call to AWS: every error of the SDK and of the services, as one of ours.

One question decides: *may the request have been applied?* A fate says what is known of it. Errors are told
apart by the names of their classes, so that this module costs nothing until an SDK is there to fail.

Sources: botocore's ``exceptions.py`` and ``httpsession.py`` (which error is raised at which moment), the Auto
Scaling API reference, "Common errors", and aws/aws-cli#171 for the text of a refusal within the grace period.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

from recovery.errors import Ambiguous, NodeRecoveryError, Refused, Retry
from recovery.provider.words import LONGEST, one_line


class Fate(Enum):
    """What is known of a request that ended in an error."""

    UNSENT = auto()  # it never left: no connection
    BUSY = auto()  # the service turned it away before doing anything
    CREDENTIALS = auto()  # it could not be signed, or its signature was not accepted
    GRACE = auto()  # turned away: the instance is younger than its group's grace period
    DENIED = auto()  # no permission
    MISSING = auto()  # the service does not know the thing
    REJECTED = auto()  # turned away for another reason that a person has to see
    MISUSE = auto()  # the SDK would not make such a call: settings
    LOST = auto()  # it may have been applied


_CLASSES = {
    # botocore/httpsession.py: raised before a byte of the request was written
    "EndpointConnectionError": Fate.UNSENT,
    "ConnectTimeoutError": Fate.UNSENT,
    "ProxyConnectionError": Fate.UNSENT,
    "NoCredentialsError": Fate.CREDENTIALS,
    "PartialCredentialsError": Fate.CREDENTIALS,
    "CredentialRetrievalError": Fate.CREDENTIALS,
    "UnknownCredentialError": Fate.CREDENTIALS,
    "NoAuthTokenError": Fate.CREDENTIALS,
    "TokenRetrievalError": Fate.CREDENTIALS,
    "UnknownTokenProviderError": Fate.CREDENTIALS,
    "MetadataRetrievalError": Fate.CREDENTIALS,
    "RefreshWithMFAUnsupportedError": Fate.CREDENTIALS,
    "SSOError": Fate.CREDENTIALS,
    "LoginError": Fate.CREDENTIALS,
    "ProfileNotFound": Fate.CREDENTIALS,
    "ConfigNotFound": Fate.CREDENTIALS,
    "ConfigParseError": Fate.CREDENTIALS,
    "InfiniteLoopConfigError": Fate.CREDENTIALS,
    "InvalidIMDSEndpointError": Fate.CREDENTIALS,
    "InvalidIMDSEndpointModeError": Fate.CREDENTIALS,
    # raised while a request is being put together
    "DataNotFoundError": Fate.MISUSE,
    "UnknownRegionError": Fate.MISUSE,
    "ServiceNotInRegionError": Fate.MISUSE,
    "BaseEndpointResolverError": Fate.MISUSE,
    "EndpointProviderError": Fate.MISUSE,
    "InvalidEndpointConfigurationError": Fate.MISUSE,
    "InvalidHostLabelError": Fate.MISUSE,
    "ValidationError": Fate.MISUSE,
    "ParamValidationError": Fate.MISUSE,
    "MissingParametersError": Fate.MISUSE,
    "InvalidConfigError": Fate.MISUSE,
    "InvalidRetryConfigurationError": Fate.MISUSE,
    "InvalidProxiesConfigError": Fate.MISUSE,
    "InvalidDefaultsMode": Fate.MISUSE,
    "UnknownSignatureVersionError": Fate.MISUSE,
    "UnsupportedSignatureVersionError": Fate.MISUSE,
    "MissingDependencyException": Fate.MISUSE,
}

_CODES = {
    Fate.BUSY: frozenset(
        [
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "RequestLimitExceeded",
            "TooManyRequestsException",
            "LimitExceededException",
            "BandwidthLimitExceeded",
            "SlowDown",
            "PriorRequestNotComplete",
            "EC2ThrottledException",
            "ResourceContention",
            "ResourceContentionFault",
            "ScalingActivityInProgress",
            "ScalingActivityInProgressFault",
        ]
    ),
    Fate.CREDENTIALS: frozenset(
        [
            "ExpiredToken",
            "ExpiredTokenException",
            "RequestExpired",
            "InvalidClientTokenId",
            "InvalidIdentityToken",
            "InvalidAccessKeyId",
            "UnrecognizedClientException",
            "SignatureDoesNotMatch",
            "IncompleteSignature",
            "MissingAuthenticationToken",
            "MissingAuthenticationTokenException",
            "AuthFailure",
            "IDPCommunicationError",
        ]
    ),
    Fate.DENIED: frozenset(
        [
            "AccessDenied",
            "AccessDeniedException",
            "UnauthorizedOperation",
            "Client.UnauthorizedOperation",
            "UnauthorizedAccess",
            "NotAuthorized",
            "OptInRequired",
        ]
    ),
    Fate.MISSING: frozenset(["InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"]),
    Fate.LOST: frozenset(["RequestTimeout", "RequestTimeoutException", "InternalFailure", "InternalError"]),
}

_GRACE = re.compile(r"age of the instance \((\d+) seconds\).{0,80}?grace period of (\d+) seconds", re.DOTALL)
_MISSING = re.compile(r"not found|does not exist|no managed instance|not part of", re.IGNORECASE)
_FORBIDDEN = re.compile(r"explicit deny(?: in an? [A-Za-z -]{1,40}?(?:policy|boundary))?")
_BOUNDED = re.compile(
    r"because no ((?:VPC endpoint|service control|resource control|session) policy|permissions boundary) "
    "allows"
)
"""What has to allow a call besides the role's own policy."""
_OF_A_MEMBER = frozenset({"SetInstanceHealth"})
"""Calls about an instance that was looked at just before. If it is not known, its group has just ended it, or
one of the answers is old: the next look tells."""
_HANDSHAKE = ("CERTIFICATE_VERIFY_FAILED", "HANDSHAKE", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL")


def fate_of(error: Exception, operation: str) -> Fate | None:
    """What is known of ``operation``, which ended in ``error``. None: it is no error of the SDK's."""
    names = [c.__name__ for c in type(error).__mro__ if c.__module__.partition(".")[0] == "botocore"]
    if not names:
        return None
    if "ClientError" in names:
        return _answered(error, operation)
    if "SSLError" in names:
        # The handshake comes before the request; a broken record may come after it.
        return Fate.UNSENT if any(mark in str(error).upper() for mark in _HANDSHAKE) else Fate.LOST
    return next((_CLASSES[name] for name in names if name in _CLASSES), Fate.LOST)


def _answered(error: Exception, operation: str) -> Fate:
    code, message, status = code_of(error), message_of(error), status_of(error)
    if getattr(error, "operation_name", operation) != operation:
        return Fate.CREDENTIALS  # STS would not give the credentials: our own call was never made
    for fate, codes in _CODES.items():
        if code in codes:
            return fate
    if status == 429:
        return Fate.BUSY
    if not 400 <= status < 500 or not code or code.isdigit():
        return Fate.LOST  # each error of AWS has a code: a page without one is a proxy's, or a gateway's
    if status == 403:
        return Fate.DENIED
    if "grace period" in message.lower():
        return Fate.GRACE
    return Fate.MISSING if code == "ValidationError" and _MISSING.search(message) else Fate.REJECTED


def _field(error: Exception, part: str, name: str) -> Any:
    response: Any = getattr(error, "response", None)
    inner = response.get(part) if isinstance(response, dict) else None
    return inner.get(name) if isinstance(inner, dict) else None


def code_of(error: Exception) -> str:
    """AWS's error code, or an empty string."""
    return str(_field(error, "Error", "Code") or "")


def message_of(error: Exception) -> str:
    """AWS's own words, unabridged."""
    return str(_field(error, "Error", "Message") or "")


def status_of(error: Exception) -> int:
    """The HTTP status of the answer, 0 for none."""
    status = _field(error, "ResponseMetadata", "HTTPStatusCode")
    return status if isinstance(status, int) else 0


_SECRETS = (
    (re.compile(r"arn:[^\s,;\"']+"), "(an ARN)"),
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}"), "(a key)"),
    (re.compile(r"https?://\S+"), "(an address)"),
    (re.compile(r"[A-Za-z0-9+/=_-]{40,}"), "(left out)"),
    (re.compile(r"\b\d{12}\b"), "(an account)"),
)


def brief(text: str, longest: int = LONGEST) -> str:
    """AWS's own words, on one line, bounded, without ARNs, keys, tokens, addresses or account numbers."""
    return one_line(text, _SECRETS, longest)


def _words(error: Exception) -> str:
    code, message = code_of(error), message_of(error)
    if not code and not message:
        return brief(f"{type(error).__name__}: {error}")
    return brief(f"{code}: {message}" if message else code)


def translate(
    error: Exception, operation: str, what: str, now: datetime, mutating: bool
) -> NodeRecoveryError:
    """The error to raise instead of ``error``, which the SDK raised while it made the call.

    ``what`` names the call for people, as in "autoscaling:SetInstanceHealth on group workers". A lost answer
    is ``Ambiguous`` only if the call is ``mutating``, else ``Retry``. An error that is none of the SDK's own
    is one, too: what goes wrong in sending it wraps, but not what its parser trips over, such as the
    KeyError for a well-formed page of somebody else's (a login page, a gateway's).
    """
    fate, words = fate_of(error, operation), _words(error)
    if fate is None:
        fate, words = Fate.LOST, f"it is none of AWS's, the SDK cannot read it ({words})"
    if fate is Fate.LOST and not mutating:
        return Retry(f"{what} got no usable answer: {words}")
    if fate is Fate.GRACE:
        return _grace(error, what, now)
    if fate is Fate.DENIED:
        return _denied(error, what)
    if fate is Fate.MISSING and operation in _OF_A_MEMBER:
        return Retry(f"{what} was not done, Auto Scaling does not know what it listed a moment ago: {words}")
    return _SAY[fate](what, words)


_SAY: dict[Fate, Callable[[str, str], NodeRecoveryError]] = {
    Fate.UNSENT: lambda what, words: Retry(f"{what} was not sent, AWS could not be reached: {words}"),
    Fate.BUSY: lambda what, words: Retry(f"AWS turned {what} away for now: {words}", timedelta(seconds=30)),
    Fate.CREDENTIALS: lambda what, words: Retry(
        f"{what} was not done, there are no good AWS credentials: {words}", timedelta(seconds=60)
    ),
    Fate.MISSING: lambda what, words: Refused(
        f"{what} cannot be done, AWS does not know the machine any more: {words}"
    ),
    Fate.REJECTED: lambda what, words: Refused(f"AWS refused {what}: {words}"),
    Fate.MISUSE: lambda what, words: Refused(
        f"the AWS SDK would not make {what}, check its settings: {words}"
    ),
    Fate.LOST: lambda what, words: Ambiguous(f"{what} may have been done, its answer was lost: {words}"),
}


def _grace(error: Exception, what: str, now: datetime) -> Retry:
    """Turned away because of the grace period. The message may say how long it still lasts."""
    found = _GRACE.search(message_of(error))
    if found is None:
        return Retry(f"{what} is not yet possible: {_words(error)}", timedelta(seconds=60))
    left = timedelta(seconds=max(1, int(found[2]) - int(found[1]) + 1))
    return Retry(f"{what} is not yet possible: {_words(error)}", left, not_before=now + left)


def _denied(error: Exception, what: str) -> Refused:
    """Not permitted. What to do depends on whether a permission is missing or a policy denies it.

    The IAM user guide, "Troubleshoot access denied error messages": AWS says "because no identity-based
    policy allows", or which other kind does not, or "with an explicit deny in" and which kind that is.
    """
    if forbidden := _FORBIDDEN.search(message_of(error)):
        todo = f"there is an {forbidden[0]}, and no grant outweighs that"
    elif bounded := _BOUNDED.search(message_of(error)):
        todo = f"no {bounded[1]} allows it, and a grant to the agent's role does not change that"
    else:
        todo = "allow that to the agent's role, as iam/aws/policy.json does"
    return Refused(f"AWS denied {what}: {todo}; AWS says {_words(error)}")
