"""Every error of the SDK becomes one of ours; and none that may have been applied becomes a ``Retry``."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.exceptions
import botocore.parsers
import pytest

from providers.aws.errors import LONGEST, Fate, brief, fate_of, translate
from recovery.errors import Ambiguous, NodeRecoveryError, Refused, Retry

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
WHAT = "autoscaling:SetInstanceHealth on group workers"
CALL = "SetInstanceHealth"
_MODULES = (botocore.exceptions, botocore.parsers)
CLASSES = sorted(
    {
        c
        for module in _MODULES
        for _, c in inspect.getmembers(module, inspect.isclass)
        if issubclass(c, Exception) and c.__module__.startswith("botocore.")
    },
    key=lambda c: c.__name__,
)


def _made(cls: Any) -> Exception:
    """An instance, whatever its constructor wants."""
    if issubclass(cls, botocore.exceptions.ClientError):
        return _client_error(cls)
    error: Exception = cls.__new__(cls, "made by a test")
    error.args = ("made by a test",)
    return error


def _client_error(cls: Any) -> Exception:
    error: Exception = cls({"Error": {"Code": "C", "Message": "m"}}, CALL)
    return error


def answered(code: str, message: str = "m", status: int = 400, operation: str = CALL) -> Exception:
    response = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    error: Exception = botocore.exceptions.ClientError(response, operation)
    return error


def translated(error: Exception, mutating: bool = True) -> NodeRecoveryError:
    return translate(error, CALL, WHAT, NOW, mutating)


def test_botocore_still_has_many_errors() -> None:
    assert len(CLASSES) > 90


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_error_of_the_sdk_has_a_fate(cls: type[Exception]) -> None:
    error = _made(cls)
    assert isinstance(translated(error), Retry | Ambiguous | Refused)
    assert not isinstance(translated(error, mutating=False), Ambiguous), "a question is never ambiguous"
    assert WHAT in str(translated(error))


@pytest.mark.parametrize(
    ("name", "fate"),
    [
        ("EndpointConnectionError", Fate.UNSENT),
        ("ConnectTimeoutError", Fate.UNSENT),
        ("ProxyConnectionError", Fate.UNSENT),
        ("ReadTimeoutError", Fate.LOST),
        ("ConnectionClosedError", Fate.LOST),
        ("HTTPClientError", Fate.LOST),
        ("IncompleteReadError", Fate.LOST),
        ("ResponseStreamingError", Fate.LOST),
        ("NoCredentialsError", Fate.CREDENTIALS),
        ("CredentialRetrievalError", Fate.CREDENTIALS),
        ("UnauthorizedSSOTokenError", Fate.CREDENTIALS),
        ("NoRegionError", Fate.MISUSE),
        ("ParamValidationError", Fate.MISUSE),
        ("BotoCoreError", Fate.LOST),
    ],
)
def test_only_what_surely_was_not_sent_counts_as_not_sent(name: str, fate: Fate) -> None:
    assert fate_of(_made(getattr(botocore.exceptions, name)), CALL) is fate


def test_an_answer_that_cannot_be_parsed_is_lost() -> None:
    assert fate_of(botocore.parsers.ResponseParserError("no xml"), CALL) is Fate.LOST


@pytest.mark.parametrize(
    ("text", "fate"),
    [
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unknown issuer",
            Fate.UNSENT,
        ),
        ("[SSL: SSLV3_ALERT_HANDSHAKE_FAILURE] sslv3 alert handshake failure", Fate.UNSENT),
        ("[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed", Fate.LOST),
        ("EOF occurred in violation of protocol (_ssl.c:2427)", Fate.LOST),
    ],
)
def test_a_failed_handshake_sent_nothing_and_a_broken_record_may_have(text: str, fate: Fate) -> None:
    error = botocore.exceptions.SSLError(endpoint_url="https://x", error=text)
    assert fate_of(error, CALL) is fate


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("Throttling", 400, Retry),
        ("RequestLimitExceeded", 503, Retry),
        ("ResourceContention", 500, Retry),
        ("ScalingActivityInProgress", 400, Retry),
        ("ExpiredToken", 403, Retry),
        ("AccessDenied", 403, Refused),
        ("UnauthorizedOperation", 403, Refused),
        ("SomethingNew", 403, Refused),
        ("SomethingNew", 400, Refused),
        ("SomethingNew", 500, Ambiguous),
        ("SomethingNew", 0, Ambiguous),
        ("SomethingNew", 302, Ambiguous),
        ("InternalFailure", 500, Ambiguous),
        ("ServiceUnavailable", 503, Ambiguous),
        ("RequestTimeout", 400, Ambiguous),
    ],
)
def test_the_code_decides_first_and_then_the_status(
    code: str, status: int, expected: type[NodeRecoveryError]
) -> None:
    assert type(translated(answered(code, status=status))) is expected


def test_an_error_of_another_call_means_that_ours_was_not_made() -> None:
    error = translated(answered("InternalFailure", status=500, operation="AssumeRoleWithWebIdentity"))
    assert isinstance(error, Retry)
    assert error.after == timedelta(seconds=60)


def test_the_two_ages_say_when_the_grace_period_ends() -> None:
    text = "The age of the instance (986 seconds) is less than the configured grace period of 1500 seconds"
    error = translated(answered("ValidationError", text))
    assert isinstance(error, Retry)
    assert error.not_before == NOW + timedelta(seconds=515)
    assert error.after == timedelta(seconds=515)


def test_a_grace_period_told_in_other_words_is_still_not_yet() -> None:
    error = translated(answered("ValidationError", "Instance is within its health check grace period."))
    assert isinstance(error, Retry)
    assert error.not_before is None
    assert error.after == timedelta(seconds=60)


def test_what_the_sdk_trips_over_is_an_answer_that_was_lost() -> None:
    """Its parser raises a bare KeyError for a well-formed page without the wrapper of the result."""
    error = KeyError("DescribeAutoScalingInstancesResult")
    assert isinstance(translated(error), Ambiguous)
    assert isinstance(translated(error, mutating=False), Retry)
    assert "KeyError" in str(translated(error))


def test_awss_words_are_told_without_what_could_be_abused() -> None:
    text = (
        "User: arn:aws:sts::123456789012:assumed-role/r/s is not authorized\n to perform x. Encoded "
        + "A1b2" * 40
        + " with ASIAIOSFODNN7EXAMPLE at https://internal.example/x for 123456789012"
    )
    told_text = brief(text)
    for secret in ("arn:", "123456789012", "ASIA", "A1b2A1b2", "internal.example", "\n"):
        assert secret not in told_text
    assert "is not authorized to perform x." in told_text


def test_awss_words_are_bounded() -> None:
    assert len(brief("many words " * 1000)) == LONGEST
    assert len(str(translated(answered("ValidationError", "many words " * 1000)))) < 400
