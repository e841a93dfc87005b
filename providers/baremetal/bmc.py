"""One request to one BMC: bounded in time and size, never repeated, and led nowhere else.

It takes the place of sushy's own connector, which makes a request up to three times, a POST too, follows
redirects to any host and takes proxies from the environment.

Sources: DMTF DSP0266 (Redfish) and its privilege registry; sushy's connector.py.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urljoin

from providers.baremetal.machine import Bmc, Credentials
from recovery.clock import Clock
from recovery.deadline import adapter_class, sent_while
from recovery.errors import Ambiguous, KnowsNobody, KnowsNothing, NodeRecoveryError, Refused, Retry
from recovery.provider.address import is_at
from recovery.provider.words import one_line

RESOLVE = 3.0  # seconds allowed for finding an address
ADDRESSES = 4  # urllib3 tries each address of a name in turn, each with the whole connect timeout
LARGEST = 1024 * 1024  # bytes of an answer
LATER = timedelta(seconds=15)
MOST_PATIENCE = timedelta(minutes=10)  # a longer Retry-After is not believed


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to connect (per address), until the whole answer is there, that a look may take before a reset,
    and that is waited for the first look at a BMC, or for one that gave no answer last time."""

    connect: float = 5.0
    read: float = 5.0
    look: float = 15.0
    patience: float = 0.5

    @property
    def connected(self) -> float:
        """Seconds after which a request that changes something is not sent any more."""
        return RESOLVE + ADDRESSES * self.connect + self.read

    @property
    def longest(self) -> float:
        """Seconds after which a reset has surely been sent or was not, and its answer is not waited for."""
        return self.look + self.connected + self.read


@dataclass(frozen=True)
class Answer:
    """As much of an answer as sushy looks at. ``content`` is None where it broke off or was too long."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes | None
    found: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> Mapping[str, Any]:
        """The document; empty for none."""
        return self.found

    @property
    def retry_after(self) -> timedelta:
        """The BMC's wish in seconds, or ours."""
        text = self.headers.get("Retry-After", "").strip()
        seconds = int(text[:9]) if text.isascii() and text.isdigit() else LATER.seconds
        return min(timedelta(seconds=seconds), MOST_PATIENCE)


class Wire:
    """What sushy asks through, in place of its ``Connector``. ``who`` names the BMC for people."""

    def __init__(self, who: str, bmc: Bmc, known: Credentials, limits: Limits, clock: Clock) -> None:
        import requests
        import urllib3

        self._who, self._bmc, self.known = who, bmc, known
        self._limits, self._clock = limits, clock
        self._session = requests.Session()
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, adapter_class()())
        self._session.trust_env = False  # neither proxies nor .netrc nor REQUESTS_CA_BUNDLE
        self._session.verify = (known.authority or True) if bmc.verify else False
        # As sushy's own does. "identity": nothing that is short on the way is long here.
        self._session.headers.update(
            {"Connection": "close", "Accept-Encoding": "identity", "OData-Version": "4.0"}
        )
        self.set_http_basic_auth(known.username, known.password)
        if not bmc.verify:  # a warning was logged when the inventory was read
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    def set_auth(self, auth: Any) -> None:
        """For sushy's ``BasicAuth``, which then gives what was given here already."""

    def set_http_basic_auth(self, username: str, password: str) -> None:
        token = base64.b64encode(f"{username}:{password}".encode()).decode()
        self._session.headers["Authorization"] = f"Basic {token}"

    def get(self, path: str = "", **_: Any) -> Answer:
        """A document. One redirect is followed, to the same BMC. Raises ``Retry`` or ``Refused``."""
        answer = self._send("GET", path, None)
        if answer.status_code in (301, 302, 307, 308) and "Location" in answer.headers:
            answer = self._send("GET", urljoin(path, answer.headers["Location"]), None)
        if answer.status_code != 200:
            error = self._turned_away(answer, "a look at it")
            raise KnowsNothing(error.reason) if answer.status_code == 404 else error
        try:
            found = json.loads(answer.content or b"")
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Retry(
                f"{self._who} gave no usable answer: it was not a JSON object of at most 1 MiB", LATER
            )
        return Answer(200, answer.headers, answer.content, found)

    def post(self, path: str, data: Mapping[str, Any]) -> None:
        """What changes something, once. Raises ``Retry`` (nothing was done), ``Refused`` or ``Ambiguous``."""
        begun = self._clock.boottime()
        with sent_while(lambda: self._clock.boottime() - begun <= self._limits.connected):
            answer = self._send("POST", path, data)
        if 200 <= answer.status_code < 300:  # 202 too: what became of the task is seen on the machine
            return
        if answer.status_code == 408 or not 400 <= answer.status_code < 500:
            words = self._words(answer)
            raise Ambiguous(
                f"{self._who} may have reset it: it answered HTTP {answer.status_code}{words}; observing"
            )
        raise self._turned_away(answer, "the reset")

    def _send(self, method: str, path: str, data: Mapping[str, Any] | None) -> Answer:
        import requests
        import urllib3

        url = self._address(path)
        timeout = (self._limits.connect, self._limits.read)
        try:
            with self._session.request(
                method, url, json=data, timeout=timeout, allow_redirects=False, stream=True
            ) as response:
                return Answer(response.status_code, response.headers, self._content(response.raw))
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._no_answer(error, method != "GET") from error
        finally:
            self._session.close()  # if the BMC closes an idle connection, the next call would look lost

    def _address(self, path: str) -> str:
        """On the one BMC: what an answer or a record names leads nowhere else."""
        try:
            url = urljoin(f"{self._bmc.origin}/", path)
        except ValueError:
            url = ""
        if not is_at(url, self._bmc.origin):
            raise Refused(f"{self._who} names an address that is not its own: no credentials are sent there")
        return url

    def _content(self, raw: Any) -> bytes | None:
        """The body. A BMC that sends it byte by byte is not listened to for longer than a silent one."""
        import urllib3

        until, found = self._clock.monotonic() + self._limits.read, b""
        try:
            while chunk := raw.read1(65536):
                found += chunk
                if len(found) > LARGEST or self._clock.monotonic() > until:
                    return None
        except (urllib3.exceptions.HTTPError, OSError):
            return None  # the status has come, and says more
        return found

    def _no_answer(self, error: Exception, mutating: bool) -> NodeRecoveryError:
        words, text = brief(cause(error), self.known), f"{error!r}"
        if "CERTIFICATE_VERIFY_FAILED" in text:
            return Refused(
                f"{self._who} is not who it should be, by its certificate ({words}), and was told nothing: "
                f"put the certificate of its authority into {self.known.directory}/ca.crt"
            )
        if mutating and not never_left(error):
            return Ambiguous(f"{self._who} may have reset it, its answer was lost: {words}")
        return Retry(f"{self._who} did not answer: {words}", LATER)

    def _turned_away(self, answer: Answer, what: str) -> Retry | Refused:
        """The error for an answer by which nothing was changed."""
        status, words = answer.status_code, self._words(answer)
        if status in (401, 403):
            kind = KnowsNobody if status == 401 else Refused
            return kind(
                f"{self._who} did not permit {what} (HTTP {status}) to the user in {self.known.directory}: "
                f"check its name, its password, and its role, which has to be Operator at least{words}"
            )
        if status == 429 or status in (409, 412, 423) or b"ResourceInUse" in (answer.content or b""):
            return Retry(
                f"{self._who} is busy: {what} was not done (HTTP {status}){words}", answer.retry_after
            )
        if status >= 500:
            return Retry(f"{self._who} did not answer usably (HTTP {status}){words}", answer.retry_after)
        return Refused(f"{self._who} refused {what} (HTTP {status}){words}")

    def _words(self, answer: Answer) -> str:
        """The BMC's own, as the end of a sentence."""
        try:
            error = json.loads(answer.content or b"")["error"]
            told = [f"{error.get('code', '')}: {error.get('message', '')}"]
            told += [f"{m.get('MessageId')}: {m.get('Message', '')}" for m in error["@Message.ExtendedInfo"]]
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            return ""
        return f"; it says {brief(told[-1] if len(told) > 1 else told[0], self.known)}"


def never_left(error: Exception) -> bool:
    """No connection, or none that was trusted. One that broke may have broken after the request."""
    import requests
    from urllib3 import exceptions

    if isinstance(error, requests.ConnectTimeout):
        return True
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    return isinstance(reason, exceptions.NewConnectionError | exceptions.ConnectTimeoutError)


def cause(error: Exception) -> str:
    """The innermost reason, without the client's own frame around it."""
    within = (getattr(error, "reason", None), *error.args)
    if (inner := next((e for e in within if isinstance(e, Exception)), None)) is not None:
        return cause(inner)
    text = str(getattr(error, "verify_message", "") or error) or type(error).__name__
    return re.sub(r"^<?HTTPS?Connection[^:]*(Pool)?\(.*?\)>?: ", "", text)


def brief(text: str, known: Credentials, longest: int = 200) -> str:
    """A BMC's words, on one line, bounded, and without what it was asked with."""
    text = re.sub(r"(?i)\bbasic\s+\S+", "(credentials)", text.replace(known.password, "(the password)"))
    return one_line(text, longest=longest)
