"""The one seam to the SDK: clients, their limits in time and number, and calls whose errors are ours.

botocore is imported when the first call is made (23 MiB, and 11 MiB more with an Auto Scaling client), and
straight, without boto3 on top of it: that is 3 MiB less. It reads its own environment variables.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from providers.aws import errors
from recovery.clock import Clock
from recovery.deadline import in_time, sent_while
from recovery.errors import Ambiguous, Refused, Retry, SettingsError
from recovery.provider.late import not_late

INSTALL = "PROVIDER=aws needs the AWS SDK: install node-recovery[aws]"
PREPARE = 3.0  # seconds allowed for a client and its credentials, before a call that changes something
RESOLVE = 3.0  # seconds allowed for finding an address
ADDRESSES = 4  # urllib3 tries each address of a name in turn, each with the whole connect timeout


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to connect (per address) and until the whole answer is there; how often a *read* may be tried.

    The same holds for a question to STS for credentials.
    """

    connect: float = 3.0
    read: float = 5.0
    attempts: int = 3

    @property
    def connected(self) -> float:
        """Seconds after which a call that changes something is not sent any more."""
        return PREPARE + RESOLVE + ADDRESSES * self.connect

    @property
    def longest(self) -> float:
        """Seconds after which a call that is tried once has surely ended."""
        return self.connected + self.read


def require_sdk() -> None:
    """Raise ``SettingsError`` if there is no SDK, without importing it."""
    if importlib.util.find_spec("botocore") is None:
        raise SettingsError([INSTALL])


def region_of(environ: Mapping[str, str], otherwise: str = "") -> str:
    """AWS_REGION, else AWS_DEFAULT_REGION, else ``otherwise``."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or otherwise


class AwsSession:
    """Makes calls. ``limits`` holds for all of them; a call that changes something is tried exactly once."""

    def __init__(self, clock: Clock, limits: Limits = Limits()) -> None:
        self._clock = clock
        self._limits = limits
        self._sdk: Any = None
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self.knowing: set[str] = set()
        """Regions in which a machine of the cluster was known: the credentials are of its account."""

    @property
    def longest(self) -> float:
        """Seconds after which a call that changes something has surely ended, connecting included."""
        return self._limits.longest

    def now(self) -> datetime:
        """The agent's time: what AWS says of moments is compared with it."""
        return self._clock.now()

    def read(self, service: str, operation: str, region: str, what: str, **params: Any) -> Mapping[str, Any]:
        """Call what changes nothing. ``what`` names the call for people. Raises ``Retry`` or ``Refused``."""
        client = self._client(service, region, what, mutating=False)
        return self._call(client, operation, what, params, mutating=False)

    def submit(
        self, service: str, operation: str, region: str, what: str, **params: Any
    ) -> Mapping[str, Any]:
        """Call what changes something, once. Raises ``Retry``, ``Refused`` or ``Ambiguous``.

        Fetching credentials can take minutes (STS has timeouts of its own). After more than ``PREPARE``
        seconds the call is not made: other agents may already take it for one that was never sent.
        """
        begun = self._clock.boottime()
        client = self._client(service, region, what, mutating=True)
        not_late(self._clock, begun, PREPARE, what, "getting credentials")
        try:
            with sent_while(lambda: self._clock.boottime() - begun <= self._limits.connected):
                answer = self._call(client, operation, what, params, mutating=True)
        finally:
            client.close()  # if AWS closes an idle connection, the next call would look lost
        # These calls have empty answers, and to the SDK any well-formed page is one.
        if not (answer.get("ResponseMetadata") or {}).get("RequestId"):
            raise Ambiguous(
                f"{what} may have been done, but not AWS answered: every answer of AWS has a request ID, and "
                "this one has none; see what is between here and AWS (a proxy, AWS_ENDPOINT_URL)"
            )
        return answer

    def _call(
        self, client: Any, operation: str, what: str, params: dict[str, Any], mutating: bool
    ) -> Mapping[str, Any]:
        call = getattr(client, self._method(operation))
        try:
            answer: Mapping[str, Any] = call(**params)
        except Exception as error:
            if errors.fate_of(error, operation) is errors.Fate.CREDENTIALS:
                self._forget_static()
            raise errors.translate(error, operation, what, self._clock.now(), mutating) from error
        return answer

    def _forget_static(self) -> None:
        """The SDK renews what comes from a role, and reads a file once: one that is rotated is read anew."""
        if self._sdk is not None and not hasattr(self._sdk.get_credentials(), "refresh_needed"):
            self._forget()

    def _forget(self) -> None:
        self._sdk = None
        self._clients.clear()

    def _client(self, service: str, region: str, what: str, mutating: bool) -> Any:
        """A client that can sign requests. An error here means that nothing was sent."""
        try:
            sdk = self._session()
            # Asked for here because a lost answer of STS must not look like a lost answer of the call's, and
            # first because a client keeps for good what there is when it is made, also if that is nothing.
            if (credentials := sdk.get_credentials()) is None:
                from botocore.exceptions import NoCredentialsError

                raise NoCredentialsError
            credentials.get_frozen_credentials()
            key = (service, region, mutating)
            if key not in self._clients:
                self._clients[key] = sdk.create_client(
                    service, region_name=region, config=self._config(mutating)
                )
            return self._clients[key]
        except ImportError as error:
            raise SettingsError([INSTALL]) from error
        except Exception as error:
            if errors.code_of(error):  # STS gives no role for what was read of a file
                self._forget()
            raise self._not_ready(error, what) from error

    def _not_ready(self, error: Exception, what: str) -> Exception:
        words = errors.brief(f"{type(error).__name__}: {error}")
        if errors.fate_of(error, "") is errors.Fate.MISUSE or isinstance(error, ValueError):
            return Refused(f"the AWS SDK would not make {what}, check its settings: {words}")
        # Also a KeyError, which is what the SDK makes of a page that is not STS's.
        return Retry(
            f"{what} was not sent, there are no good AWS credentials: {words}", timedelta(seconds=60)
        )

    @staticmethod
    def _method(operation: str) -> str:
        import botocore

        return str(botocore.xform_name(operation))

    def _session(self) -> Any:
        if self._sdk is None:
            import botocore.awsrequest
            import botocore.session

            # The classes, not each client: the SDK makes some on its own, to ask for credentials.
            for pool in (
                botocore.awsrequest.AWSHTTPConnectionPool,
                botocore.awsrequest.AWSHTTPSConnectionPool,
            ):
                pool.ConnectionCls = in_time(pool.ConnectionCls)
            self._sdk = botocore.session.get_session()
            self._sdk.set_default_client_config(self._config(mutating=False))
        return self._sdk

    def _config(self, mutating: bool) -> Any:
        from botocore.config import Config

        attempts = 1 if mutating else self._limits.attempts
        return Config(
            connect_timeout=self._limits.connect,
            read_timeout=self._limits.read,
            retries={"mode": "standard", "total_max_attempts": attempts},
            max_pool_connections=2,
            user_agent_extra="node-recovery",
        )
