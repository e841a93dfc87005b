"""One request to the Kubernetes API server and its answer. Nothing else imports the Kubernetes client.

It uses the client's connection, credentials and proxies, and plain JSON: the generated model classes cost
17 MiB and drop fields that they do not know. Every answer is bounded in size and time. Nothing is retried or
rate-limited here: the API server's priority and fairness does the latter (429 and Retry-After).
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import ssl
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from recovery.clock import Clock
from recovery.deadline import bound, may_be_sent, patient
from recovery.errors import (
    ApiError,
    ApiUnavailable,
    Conflict,
    Expired,
    Fenced,
    NotFound,
    SettingsError,
    TooLong,
    TooManyRequests,
)
from recovery.kube.kubeconfig import (
    IN_CLUSTER,
    USUAL,
    Broken,
    Place,
    Target,
    harmless,
    host,
    place,
    sendable,
    unusable,
)
from recovery.visible import visible

log = logging.getLogger(__name__)

VALIDATOR = "kubernetes_validate"
CONNECT_TIMEOUT = 3.0
READ_TIMEOUT = 10.0
"""Seconds until the whole answer is there."""
LAST_TIMEOUT = 5.0
"""The same while the agent stops, for which the kubelet gives it half a minute in all."""
MAX_BODY = 32 * 1024 * 1024
MAX_PAGE, MAX_ROWS = 2 * 1024 * 1024, 8 * 1024 * 1024
"""Bytes of a page of several objects. As Python's objects it takes some ten times as much; rows that are read
from its bytes take less than these."""
MAX_LINE = 4 * 1024 * 1024
"""Bytes of one event of a watch. etcd holds no object of more than 1.5 MB."""
WATCH_TIMEOUT = 90.0
"""Seconds without a whole event after which a watch counts as broken. The API server sends a bookmark each
minute. A byte now and then is no event."""
UNAUTHORIZED = 401
Reads = Callable[[bytes | bytearray], Any]
"""What is made of an answer's bytes. Raises ``ValueError`` where it is none of those."""
NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


@dataclass(frozen=True)
class Response:
    """An answer: HTTP status, headers (any case), parsed JSON body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


class Transport(Protocol):
    """One request, one answer. Raises ``ApiUnavailable`` when there is none."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        read: Reads | None = None,
    ) -> Any:
        """``read`` makes the body of a success of its bytes. One that keeps objects in memory has it made."""


class Streams(Protocol):
    """What can be watched."""

    def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """The lines of a watch as they come, until the server ends it. Raises ``ApiError``."""


class KubernetesTransport:
    """The official client's connection, credentials and proxies, without its models.

    ``stopping``: whether the agent was told to stop. Then no answer is waited for as long as otherwise, and
    after one that did not come the server is asked nothing more: what is left to say would use up the time in
    which a process is to end.
    """

    stopping: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, clock: Clock, target: Target = USUAL) -> None:
        configuration = _configuration()
        self._target = target
        self.place = _load_credentials(configuration, target)
        self.namespace = self.place.namespace
        configuration.retries = False
        if not configuration.verify_ssl:
            _warn_once_of_insecurity()
        self._client = _client(configuration, target)
        self._client.user_agent = "node-recovery"
        bound(self._client.rest_client.pool_manager)
        self.ca_file: str | None = configuration.ssl_ca_cert
        """Whom to trust for the API server; None where that is the machine's own list."""
        self._clock = clock
        self._given_up = False

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        read: Reads | None = None,
    ) -> Response:
        from urllib3.exceptions import HTTPError

        seconds = self._seconds()
        wanted = {"Accept": "application/json", **(headers or {})}
        if body is not None:
            wanted["Content-Type"] = content_type or "application/json"
        url, sent = self._prepared(method, path, query or {}, wanted)
        payload = None if body is None else json.dumps(body).encode()
        if not may_be_sent():
            raise ApiUnavailable("the API server was not asked: its credentials came late, nothing was sent")
        try:
            answer = self._client.rest_client.pool_manager.request(
                method,
                url,
                body=payload,
                headers=sent,
                timeout=_timeout(seconds),
                preload_content=False,
                redirect=False,
            )
            try:
                raw = _read_bounded(answer, self._clock, _most(query, rows=read is not None), seconds)
            except BaseException:
                answer.close()  # the rest of it would be taken for the next one's answer
                raise
            finally:
                answer.release_conn()
        except (HTTPError, OSError) as error:
            self._given_up = self.stopping()
            raise ApiUnavailable(f"the API server did not answer: {_why(error)}") from None
        except ValueError as error:  # its text may have a header in it, and so the token
            raise ApiUnavailable(f"the API server was not asked: {type(error).__name__}") from None
        if answer.status == UNAUTHORIZED:
            self._read_credentials_again()
        return answered(answer.status, answer.headers, raw, read)

    def _prepared(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[str, Mapping[str, str]]:
        """The address to ask and the headers, with a token that can be sent. Raises ``ApiUnavailable``.

        Here the client reads a token's file again, or runs a plugin, where the token is old: it may be gone
        or broken since the start.
        """
        try:
            request = self._client.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params=dict(headers),
                auth_settings=["BearerToken"],
            )
            sent: dict[str, str] = request[2]
            if "authorization" in sent:
                sent["authorization"] = sendable(sent["authorization"])
        except Exception as error:  # whatever the client makes of a broken file
            why = f"the API server was not asked: the credentials cannot be used: {harmless(error)}"
            raise ApiUnavailable(why) from None
        return request[1], _with_all(sent, self.place.as_whom) if self.place.as_whom else sent

    def _seconds(self) -> float:
        """How long an answer may take. Raises ``ApiUnavailable`` where none is to be asked for."""
        if not self.stopping():
            return READ_TIMEOUT
        if self._given_up:
            raise ApiUnavailable("the agent stops, and the API server did not answer what it asked last")
        return LAST_TIMEOUT

    def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """The lines of a watch as they come, until the server ends it. Raises ``ApiError``."""
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        url, sent = self._prepared("GET", path, query, {"Accept": "application/json"})
        try:
            with patient(WATCH_TIMEOUT) as silence:
                answer = self._client.rest_client.pool_manager.request(
                    "GET",
                    url,
                    headers=sent,
                    timeout=Timeout(connect=CONNECT_TIMEOUT, read=WATCH_TIMEOUT),
                    preload_content=False,
                    redirect=False,
                )
            try:
                if answer.status != 200:
                    if answer.status == UNAUTHORIZED:
                        self._read_credentials_again()
                    silence.renew(READ_TIMEOUT)
                    raw = _read_bounded(answer, self._clock, MAX_BODY, READ_TIMEOUT)
                    found = answered(answer.status, answer.headers, raw)
                    raise api_error(found.status, found.body, found.headers, f"GET {path}")
                for line in lines_of(answer.stream(65536)):
                    yield line
                    silence.renew()
            finally:
                answer.close()  # what is left of a watch is nobody's answer
        except (HTTPError, OSError) as error:
            raise ApiUnavailable(f"the watch of {path} broke: {_short(error)}") from None
        except ValueError as error:  # its text may have a header in it, and so the token
            raise ApiUnavailable(f"the watch of {path} broke: {type(error).__name__}") from None

    def _read_credentials_again(self) -> None:
        """For the next request: the client itself reads a renewed token once a minute, or never."""
        with contextlib.suppress(SettingsError):
            _load_credentials(self._client.configuration, self._target)


def _configuration() -> Any:
    """The Kubernetes client's configuration, imported without its validator.

    The import brings the dynamic client along, which nothing here uses. Where a validator is installed, as
    for the tests, that would load it and cost an agent 3 MiB of its 64.
    """
    loaded = sys.modules.get(VALIDATOR)
    sys.modules[VALIDATOR] = None  # type: ignore[assignment]  # not to be imported
    try:
        from kubernetes.client import Configuration
    finally:
        del sys.modules[VALIDATOR]
        if loaded is not None:
            sys.modules[VALIDATOR] = loaded
    return Configuration()


def _client(configuration: Any, target: Target) -> Any:
    """Raises ``SettingsError`` for a proxy that cannot be used: the client looks at nothing else here."""
    from urllib.request import getproxies

    from kubernetes.client import ApiClient

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # urllib3's, of what it needs for SOCKS
            return ApiClient(configuration)
    except Exception as error:
        proxy = configuration.proxy  # not shown: there may be a password in it
        if target.in_cluster or proxy in getproxies().values():
            named = f"{'HTTPS_PROXY' if configuration.host.startswith('https') else 'HTTP_PROXY'}: it"
        else:
            named = f"{target.named_by}: {target.path} cannot be used: its proxy-url"
        if isinstance(error, ImportError):
            what = "is a SOCKS proxy, for which PySocks is needed, and this program comes without it"
        else:
            what = f"is no address of a proxy ({type(error).__name__})"
        raise SettingsError([f"{named} {what}; expected http://HOST:PORT or https://HOST:PORT"]) from None


def _warn_once_of_insecurity() -> None:
    """A kubeconfig may skip TLS verification. That is logged once, not with every request."""
    from urllib3 import disable_warnings
    from urllib3.exceptions import InsecureRequestWarning

    disable_warnings(InsecureRequestWarning)
    log.warning("the kubeconfig says not to verify the API server's certificate: anybody may answer for it")


def _timeout(read: float) -> Any:
    from urllib3 import Timeout

    return Timeout(connect=CONNECT_TIMEOUT, read=read)


def _load_credentials(configuration: Any, target: Target) -> Place:
    """Fill in address and credentials; returns whose they are."""
    from kubernetes import config
    from kubernetes.config.config_exception import ConfigException

    if not target.in_cluster:
        found = place(target)
        try:
            # The path is passed on: the client itself uses what KUBECONFIG was when it was imported.
            with _complaints() as complaints:
                config.load_kube_config(target.path, found.context, configuration)  # type: ignore[no-untyped-call]
            if complaints and not configuration.cert_file and not configuration.api_key:
                raise Broken(f"its plugin gave no credentials: {complaints[0]}")
            for complaint in complaints:
                log.warning("the kubeconfig's plugin failed: %s", visible(complaint))
            _check_token(configuration)
            _check_tls(configuration)
        except Exception as error:  # TypeError, YAMLError, UnicodeDecodeError ...: as the file is broken
            raise unusable(target, error) from None
        return found
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        _check_token(configuration)
        with open(NAMESPACE_FILE, encoding="utf-8") as file:
            return Place(IN_CLUSTER, host(configuration.host), file.read().strip() or "default")
    except (ConfigException, OSError, ValueError) as error:
        mistake = f"in-cluster credentials: {_short(error)}; expected a service account's token in this pod"
        raise SettingsError([f"{mistake} (automountServiceAccountToken)"]) from None


def _with_all(sent: Mapping[str, str], more: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """``sent`` and ``more``, in which a header may be there several times."""
    from urllib3 import HTTPHeaderDict

    headers = HTTPHeaderDict(sent)
    for name, value in more:
        headers.add(name, value)
    return headers


@contextlib.contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the client says of a plugin (``exec``) that failed. It logs that, and goes on as nobody."""
    said: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        said.append(_of_plugin(record.getMessage()))
        return False

    root = logging.getLogger()
    root.addFilter(keep)
    try:
        yield said
    finally:
        root.removeFilter(keep)


def _of_plugin(text: str) -> str:
    """Not what the client says of the entry itself, which has arguments and variables in it."""
    known = text.startswith(("exec: ", "[Errno "))
    return _short(text) if known else "its entry, or what it answers, cannot be read"


def _check_token(configuration: Any) -> None:
    """Raises ``Broken``. The header itself is made anew for each request, by what the client read last."""
    if header := configuration.api_key.get("BearerToken"):
        sendable(header)


def _check_tls(configuration: Any) -> None:
    """Raises ``Broken``. With each request it would be told as that the server does not answer."""
    if not isinstance(configuration.tls_server_name, str | None):
        raise Broken("its tls-server-name is no text")
    try:
        what = "certificate-authority holds no certificate"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if configuration.ssl_ca_cert:
            context.load_verify_locations(cafile=configuration.ssl_ca_cert)
        what = "client-certificate and client-key are no certificate with its key, or the key is encrypted"
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file, password="")
    except ssl.SSLError:
        raise Broken(f"its {what}") from None


def _most(query: Mapping[str, str] | None, *, rows: bool) -> int:
    """How long an answer may be. One object is asked for by its name, or as a page of one."""
    several = MAX_ROWS if rows else MAX_PAGE
    return MAX_BODY if (query or {}).get("limit", "1") == "1" else several


def _read_bounded(answer: Any, clock: Clock, most: int, seconds: float) -> bytearray:
    """The body, at most ``most`` bytes within ``seconds`` in all. Raises ``TooLong``."""
    end = clock.monotonic() + seconds
    body = bytearray()  # to join the pieces of a long one would take its memory twice
    for chunk in answer.stream(65536):
        body += chunk
        if len(body) > most:
            raise TooLong(f"the API server's answer is longer than {most} bytes")
        if clock.monotonic() > end:
            raise ApiUnavailable(f"the API server's answer took longer than {seconds:g} s")
    return body


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines in ``chunks``, each once it is whole. Raises ``TooLong``. One that is cut off is lost."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > MAX_LINE:
            raise TooLong(f"an event of a watch is longer than {MAX_LINE} bytes")


def answered(
    status: int, headers: Mapping[str, str], raw: bytes | bytearray, read: Reads | None = None
) -> Response:
    """The answer that these bytes are. Raises ``ApiUnavailable`` for a success that is no JSON object.

    The API server always answers with one. Whatever else says 200 stands between it and the agent. ``read``
    makes a success of its bytes, and raises ``ValueError`` where it cannot.
    """
    if read is not None and 200 <= status < 300:
        with contextlib.suppress(ValueError, RecursionError):
            return Response(status, headers, read(raw))
    try:
        body = json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, dict):
        return Response(status, headers, body)
    words = _short(raw[:200].decode("utf-8", "replace"))
    if 200 <= status < 300:
        raise ApiUnavailable(f"the answer with status {status} is not the API server's: {words or 'nothing'}")
    return Response(status, headers, {"message": words})


def _short(error: object) -> str:
    return " ".join(str(error).split())[:200]


LIBRARYS = re.compile(
    r"^<[^>]*>: |^\w+\(host=[^)]*\): |Failed to establish a new connection: |\[Errno -?\d+\] "
)
"""What urllib3 says around a cause: its own objects, and the server, which is said elsewhere."""


def _why(error: object) -> str:
    """Why there was no answer, without what only who wrote the library understands."""
    if (cause := getattr(error, "original_error", None)) is not None:  # urllib3's ProxyError
        return f"no way through the proxy: {_why(cause)}"
    return LIBRARYS.sub("", LIBRARYS.sub("", _short(error))).removesuffix(".")


# ---------------------------------------------------------------- refusals


FENCED = re.compile(r"ValidatingAdmissionPolicy .* denied request: (namespace \S+ is fenced: .+)", re.DOTALL)
"""How ``deploy/rbac/admission.yaml`` refuses an eviction. RBAC, and policies of others, refuse otherwise."""


def api_error(status: int, body: Any, headers: Mapping[str, str], what: str) -> ApiError:
    """The error for a refused request. A 422 on a uid precondition is a conflict."""
    message = str((body or {}).get("message") or "") if isinstance(body, dict) else ""
    reason = f"{what}: {status} {_short(message)}".strip()
    if status == 403 and (fenced := FENCED.search(message)):
        return Fenced(_short(fenced[1]), status)
    if status == 404:
        return NotFound(reason, status)
    if status == 409 or (status == 422 and "uid" in message.lower() and "precondition" in message.lower()):
        return Conflict(reason, status)
    if status == 422 and "metadata.uid" in message:
        return Conflict(reason, status)
    if status == 410:
        return Expired(reason, status)
    if status == 429:
        return TooManyRequests(_refusal(body) or reason, status, _retry_after(headers))
    if status >= 500:
        return ApiUnavailable(reason, status, _retry_after(headers))
    return ApiError(reason, status)


def _refusal(body: Any) -> str:
    """The disruption budget's own words, where a 429 is its refusal."""
    details = body.get("details") if isinstance(body, dict) else None
    causes = details.get("causes") if isinstance(details, dict) else None
    told = [cause for cause in causes or () if isinstance(cause, dict)] if isinstance(causes, list) else []
    return next((str(c.get("message")) for c in told if c.get("reason") == "DisruptionBudget"), "")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return float(headers.get("Retry-After") or headers.get("retry-after") or "")
    except ValueError:
        return None
