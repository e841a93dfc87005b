"""Metrics for Azure Monitor: custom metrics over REST, for which there is no SDK (in preview).

Sources: the REST API reference, "Metrics - Custom - Create" (``documents`` says how it takes many at once);
the Azure Monitor documentation, "Custom metrics in Azure Monitor (preview)" (the audience with its slash, a
service of its own in each region, 20 minutes back and 5 ahead) and its REST article (the subject is a
resource); influxdata/telegraf#16448 and MicrosoftDocs/azure-docs#107730 (30 minutes back and 4 ahead were
seen; what is out of the window is answered with 400, however often it is sent).
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3

from providers.azure.documents import bodies_of, lines_of
from providers.azure.endpoint import pool_to, trust
from providers.azure.errors import brief
from providers.azure.settings import MONITOR
from recovery.clock import Clock
from recovery.errors import Refused, Retry
from recovery.provider.monitor import Metric

log = logging.getLogger(__name__)

NAMESPACE = "NodeRecovery"
AUDIENCE = "https://monitoring.azure.com/"
ROLE = "Monitoring Metrics Publisher"
OLDEST = timedelta(minutes=20)
FURTHEST = timedelta(minutes=4)
TIMEOUT = 2.0
_REST = 60.0  # seconds, where a throttled request is not told how long
_LONGEST_REST = 86_400.0
_ANSWER = 16 * 1024  # bytes of an answer that are read

_SERVICE = re.compile(r"(?:[a-z0-9-]+\.)?(monitoring\.[a-z0-9.-]+)")
_REGION = re.compile(r"[a-z0-9]{1,40}")
_TOKEN = re.compile(r"[!-~]+")
_NAME = r"/[-\w.()~]{1,260}"
_RESOURCE = re.compile(
    rf"/subscriptions/[0-9a-f-]{{36}}/resourcegroups{_NAME}/providers{_NAME}(?:{_NAME}{_NAME})+",
    re.IGNORECASE,
)
_MACHINE = re.compile(
    r".*/providers/microsoft\.compute/(?:virtualmachinescalesets/[^/]+/)?virtualmachines/.*", re.IGNORECASE
)

Subject = Callable[[], tuple[str, str] | None]
"""The ARM ID of the resource that metrics are told of, and its region; None while there is none."""


def scope_of(endpoint: str) -> str:
    """The scope of a token for the metrics service at ``endpoint``; for an unknown one, the public cloud's.

    The audience ends in a slash and the scope is ``.default`` below it, hence two slashes.
    """
    found = _SERVICE.fullmatch(urlsplit(endpoint).hostname or "")
    audience = f"https://{found[1]}/" if found else AUDIENCE
    return f"{audience}/.default"


class AzureMonitor:
    """Publishes with one attempt and at most a few seconds per request, so that recovery is not held up.

    ``token`` gives a bearer token for a scope, and raises ``Retry`` or ``Refused``. ``endpoint`` is
    AZURE_MONITOR_ENDPOINT, empty for the public cloud's service in the subject's region; ``scope`` is derived
    from it where not given. ``timeout``, in seconds, holds for connecting and for each wait for an answer.
    ``dropped`` counts points that were too old or too far ahead by ``clock`` to be taken.
    """

    name = "azuremonitor"

    def __init__(
        self,
        clock: Clock,
        token: Callable[[str], str],
        subject: Subject,
        endpoint: str = "",
        *,
        scope: str = "",
        namespace: str = NAMESPACE,
        timeout: float = TIMEOUT,
    ) -> None:
        self._clock = clock
        self._token = token
        self._subject = subject
        self._endpoint = MONITOR.of({MONITOR.name: endpoint})
        self._scope = scope or scope_of(self._endpoint)
        self._namespace = namespace
        self._timeout = urllib3.Timeout(connect=timeout, read=timeout)
        self._trusted: ssl.SSLContext | None = None
        self._rest: tuple[float, str] = (-math.inf, "")
        self._dropping = False
        self.dropped = 0

    def publish(self, metrics: Sequence[Metric]) -> None:
        """Send all that Azure Monitor takes. Raises ``Retry`` or ``Refused``; nothing is to be sent again.

        What it does not take is refused once the rest is sent. A request whose answer was lost may have been
        stored: ``Retry`` all the same.
        """
        if not metrics:
            return
        self._respect_rest()
        lines, refusal = lines_of(self._within(metrics), self._namespace)
        if lines:
            self._send(lines)
        if refusal:
            raise Refused(refusal)

    # ------------------------------------------------------------ what is sent

    def _within(self, metrics: Sequence[Metric]) -> list[Metric]:
        """Those whose moment Azure Monitor still takes. The others are said once for as long as there are."""
        now = self._clock.now()
        kept = [m for m in metrics if now - OLDEST <= m.at <= now + FURTHEST]
        lost = len(metrics) - len(kept)
        self.dropped += lost
        if lost and not self._dropping:
            log.warning(
                "%s: %d of %d metrics are dropped: they are older than 20 minutes or more than 4 minutes "
                "ahead of this machine's clock, and Azure Monitor takes no such",
                self.name,
                lost,
                len(metrics),
            )
        self._dropping = lost > 0
        return kept

    # ------------------------------------------------------------ sending

    def _send(self, lines: list[bytes]) -> None:
        subject, endpoint = self._where()
        token = self._token(self._scope)
        if not _TOKEN.fullmatch(token):  # its text must not get into an error of the HTTP library's
            raise Refused("the credential gave a token for Azure Monitor that is none")
        if self._trusted is None and endpoint.startswith("https:"):
            self._trusted = trust()
        with pool_to(endpoint, self._trusted) as pool:
            for body in bodies_of(lines):
                self._post(pool, endpoint, subject, token, body)

    def _where(self) -> tuple[str, str]:
        """Subject and endpoint. Raises ``Refused`` for a subject that would not do."""
        found = self._subject()
        if found is None:
            raise Refused(
                "there is no resource to tell Azure Monitor about: set AZURE_CLUSTER_ID and AZURE_REGION"
            )
        subject, region = found[0].rstrip("/"), found[1].replace(" ", "").lower()
        if not _RESOURCE.fullmatch(subject) or any(set(part) == {"."} for part in subject.split("/")):
            raise Refused(
                f"Azure Monitor takes metrics of a resource, and {subject[:200]!r} is the ID of none: "
                "check AZURE_CLUSTER_ID"
            )
        if _MACHINE.fullmatch(subject):
            raise Refused(f"{subject} is a machine, which may be gone tomorrow: set AZURE_CLUSTER_ID instead")
        if not self._endpoint and not _REGION.fullmatch(region):
            raise Refused(
                f"Azure Monitor needs the region of {subject}, found {region[:40]!r}: set AZURE_REGION"
            )
        return subject, self._endpoint or f"https://{region}.monitoring.azure.com"

    def _post(self, pool: urllib3.PoolManager, endpoint: str, subject: str, token: str, body: bytes) -> None:
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/x-ndjson",
            "User-Agent": "node-recovery",
        }
        try:
            answer = pool.request(
                "POST",
                f"{endpoint}{quote(subject, safe='/().~-_')}/metrics",
                body=body,
                headers=headers,
                timeout=self._timeout,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise Retry(_unanswered(error, endpoint, subject)) from None
        try:
            if not 200 <= answer.status < 300:
                raise self._error(answer, subject, endpoint, _words(self._read(answer), token))
        finally:
            answer.close()

    def _read(self, answer: urllib3.BaseHTTPResponse) -> bytes:
        """The beginning of the answer's body, as it is on the wire; of a slow or broken one what has come."""
        end = self._clock.monotonic() + TIMEOUT
        said = b""
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            while len(said) < _ANSWER and self._clock.monotonic() < end:
                piece = answer.read1(_ANSWER - len(said))
                if not piece:
                    break
                said += piece
        return said

    # ------------------------------------------------------------ what came of it

    def _respect_rest(self) -> None:
        until, why = self._rest
        if (left := until - self._clock.monotonic()) > 0:
            raise Retry(why, timedelta(seconds=left))

    def _error(
        self, answer: urllib3.BaseHTTPResponse, subject: str, endpoint: str, words: str
    ) -> Retry | Refused:
        """What the answer means. A sentence stays the same while its cause does, since it is said once."""
        status = answer.status
        if status == 429 or (status == 503 and "Retry-After" in answer.headers):
            why = f"Azure Monitor turns metrics of {subject} away ({status}): it is told nothing for a while"
            rest = _seconds(answer.headers, self._clock.now())
            self._rest = (self._clock.monotonic() + rest, why)
            return Retry(why, timedelta(seconds=rest))
        if status >= 500 or status == 408:
            return Retry(f"Azure Monitor failed to take metrics of {subject} ({status}): {words}")
        return Refused(_refusal(answer, subject, endpoint, words))


def _refusal(answer: urllib3.BaseHTTPResponse, subject: str, endpoint: str, words: str) -> str:
    status = answer.status
    if status in (401, 403):
        return (
            f"Azure Monitor denied metrics of {subject} ({status}): give the agent's identity the role "
            f"{ROLE} on it; Azure says {words}"
        )
    if status == 404:
        return (
            f"Azure Monitor at {endpoint} does not know {subject} (404): check AZURE_CLUSTER_ID, and that "
            f"AZURE_REGION is where it is; Azure says {words}"
        )
    if 300 <= status < 400:
        where = brief(urlsplit(answer.headers.get("Location", "")).netloc.rpartition("@")[2]) or "nowhere"
        return (
            f"{endpoint} redirects to {where} ({status}), and a token does not follow: "
            "check AZURE_MONITOR_ENDPOINT"
        )
    return f"Azure Monitor refused metrics of {subject} ({status}): {words}"


def _unanswered(error: urllib3.exceptions.HTTPError, endpoint: str, subject: str) -> str:
    """Why there is no answer, without the error's own words: they hold addresses that change each time."""
    unreached = (
        urllib3.exceptions.ConnectTimeoutError,
        urllib3.exceptions.NewConnectionError,
        urllib3.exceptions.ProxyError,
        urllib3.exceptions.SSLError,
        urllib3.exceptions.LocationValueError,
    )
    if isinstance(error, unreached):
        return f"Azure Monitor at {endpoint} could not be reached: {type(error).__name__}"
    return (
        f"metrics of {subject} may have been stored, Azure Monitor's answer was lost: {type(error).__name__}"
    )


def _words(said: bytes, token: str) -> str:
    """Azure's own words: code and message of its error, or the beginning of what it sent instead."""
    text = said.decode(errors="replace")
    try:
        error: Any = json.loads(text)["error"]
        text = f"{error['code']}: {error['message']}"
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return brief(text.replace(token, "(the token)")) or "nothing"


def _seconds(headers: Mapping[str, str], now: datetime) -> float:
    """Retry-After (RFC 9110, 10.2.3) in seconds, a day at most; a minute for none, or one not understood."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), _LONGEST_REST)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return _REST
    left = (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds()
    return min(max(left, 0.0), _LONGEST_REST)
