"""The one seam to the SDK: credentials, clients, their limits in time, and calls whose errors are ours.

azure-identity and azure-mgmt-compute are imported when the first call is made. The SDK's own pipeline is put
together here, without its retries (a POST is tried four times by default, and a Retry-After of any length is
slept through), without redirects, and without the registration of resource providers, so that a call is one
request. The token goes to the configured endpoint and nowhere else, whatever an answer says.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from providers.azure import errors
from providers.azure.settings import MANAGER, PUBLIC
from providers.azure.throttle import Throttled
from recovery.clock import Clock
from recovery.deadline import adapter_class, sent_while
from recovery.errors import Ambiguous, Refused, Retry, SettingsError
from recovery.provider.address import is_at
from recovery.provider.late import not_late

INSTALL = "PROVIDER=azure needs the Azure SDK: install node-recovery[azure]"
PREPARE = 3.0  # seconds allowed for a token, before a call that changes something
RESOLVE = 3.0  # seconds allowed for finding an address
ADDRESSES = 4  # urllib3 tries each address of a name in turn, each with the whole connect timeout
LARGEST = 4 * 1024 * 1024  # bytes of an answer; a page of a list of VMs has about one
PAGES = 100  # of a list
REQUEST_IDS = ("x-ms-request-id", "x-ms-correlation-request-id")
UNREADABLE = (TypeError, AttributeError, ValueError, LookupError, ArithmeticError, RecursionError)
"""Errors by which the SDK, and our readers of what it returns, fail on an answer that is malformed."""
WORKLOAD = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to connect (per address) and until the whole answer is there. So, too, for a token."""

    connect: float = 3.0
    read: float = 5.0

    @property
    def look(self) -> float:
        """Seconds that a look at the machine may take before a call."""
        return RESOLVE + ADDRESSES * self.connect + self.read

    @property
    def connected(self) -> float:
        """Seconds after which a call that changes something is not sent any more, from its token on."""
        return PREPARE + RESOLVE + ADDRESSES * self.connect

    @property
    def longest(self) -> float:
        """Seconds after which a call has surely ended: a look at the machine, and then the call itself."""
        return self.look + self.connected + self.read


def require_sdk() -> None:
    """Raise ``SettingsError`` if there is no SDK, without importing it."""
    try:
        found = importlib.util.find_spec("azure.mgmt.compute")
    except ModuleNotFoundError:  # a package above it
        found = None
    if found is None:
        raise SettingsError([INSTALL])


def check_identity(environ: Mapping[str, str]) -> None:
    """Raise ``SettingsError`` if the variables name no identity. Nothing is connected to."""
    given = [name for name in WORKLOAD if environ.get(name)]
    if "AZURE_CLIENT_ID" not in given:
        raise SettingsError(
            [
                "AZURE_CLIENT_ID: expected the client ID of the identity to act as; with workload identity "
                "the pod's label azure.workload.identity/use brings it, with AZURE_TENANT_ID and "
                "AZURE_FEDERATED_TOKEN_FILE"
            ]
        )
    if len(given) == 2:
        (missing,) = set(WORKLOAD) - set(given)
        raise SettingsError([f"{missing}: expected beside {' and '.join(given)}, for workload identity"])


class AzureSession:
    """Makes calls, each once. ``limits`` holds for all of them."""

    def __init__(self, clock: Clock, environ: Mapping[str, str], limits: Limits = Limits()) -> None:
        self._clock = clock
        self._environ = environ
        self._limits = limits
        self.endpoint = MANAGER.of(environ)
        self._credential: Any = None
        self._clients: dict[tuple[str, str], Any] = {}
        self._throttled = Throttled(clock)

    @property
    def longest(self) -> float:
        """Seconds after which a call that changes something has surely ended, connecting included."""
        return self._limits.longest

    @property
    def look(self) -> float:
        """Seconds that a look at the machine may take before such a call."""
        return self._limits.look

    # ------------------------------------------------------------ calls

    def read(self, subscription: str, what: str, ask: Callable[[Any], Any], service: str = "compute") -> Any:
        """``ask`` a client for something, and read all of it there. Raises ``Retry`` or ``Refused``."""
        client = self._client(service, subscription, what)
        return self._call(lambda: ask(client), what, (service, subscription), mutating=False)

    def get(self, subscription: str, path: str, what: str) -> Mapping[str, Any]:
        """A JSON document of Resource Manager's by its path, which begins with a slash."""
        from azure.core.rest import HttpRequest

        def ask(client: Any) -> Any:
            answer = client.send_request(HttpRequest("GET", self.endpoint + path))
            answer.raise_for_status()
            return answer.json()

        found = self.read(subscription, what, ask)
        return found if isinstance(found, Mapping) else {}

    def submit(
        self, subscription: str, what: str, ask: Callable[[Any], Any], service: str = "compute"
    ) -> str:
        """Ask for what changes something, once. Returns the ID of Azure's operation, empty where it has none.

        Raises ``Retry`` (nothing was done), ``Refused`` or ``Ambiguous``. Fetching a token can take minutes.
        After more than ``PREPARE`` seconds the call is not made: other agents may already take it for one
        that was never sent.
        """
        begun = self._clock.boottime()
        self.token(what)
        client = self._made(service, subscription)  # with a new connection: Azure may have closed an idle one
        seen = Seen()
        try:
            not_late(self._clock, begun, PREPARE, what, "getting a token")
            hook = {"polling": False, "raw_response_hook": seen}
            with sent_while(lambda: self._clock.boottime() - begun <= self._limits.connected):
                self._call(lambda: ask(client)(**hook), what, (service, subscription), mutating=True)
        finally:
            client.close()
        if not seen.azures:  # these calls need no document, and to the SDK any page is an acceptance
            raise Ambiguous(
                f"{what} may have been done, but not Azure answered: a web page came, without a request ID; "
                "see what is between here and Azure (a proxy, AZURE_RESOURCE_MANAGER_ENDPOINT)"
            )
        return seen.operation

    def _call(self, ask: Callable[[], Any], what: str, of: tuple[str, str], mutating: bool) -> Any:
        left, why = self._throttled.left((*of, mutating), what)
        if left > 0:
            raise Retry(f"{what} was not sent: {why}", timedelta(seconds=left))
        try:
            return ask()
        except UNREADABLE as error:
            words = errors.brief(f"{type(error).__name__}: {error}")
            if mutating:
                raise Ambiguous(f"{what} may have been done, its answer cannot be read: {words}") from error
            raise Retry(f"{what} got an answer that cannot be read: {words}") from error
        except Exception as error:
            translated = errors.translate(error, what, mutating)
            if errors.status_of(error) == 429 and isinstance(translated, Retry):
                after = translated.after.total_seconds()
                self._throttled.hold((*of, mutating), what, after, translated.reason)
            raise translated from error

    # ------------------------------------------------------------ clients and tokens

    def token(self, what: str, scope: str = "") -> str:
        """A token for Resource Manager, or for ``scope``. Raises ``Retry`` or ``Refused``."""
        try:
            found = self._identity().get_token(scope or f"{self.endpoint_audience}/.default")
        except ImportError as error:
            raise SettingsError([INSTALL]) from error
        except SettingsError as error:
            raise Refused(f"{what} was not sent: {error}") from error
        except Exception as error:
            if errors.fate_of(error) is None and not isinstance(error, OSError | ValueError):
                raise
            words = errors.brief(f"{type(error).__name__}: {errors.message_of(error) or error}")
            why = f"{what} was not sent, there is no token for Azure: {words}"
            raise Retry(why, timedelta(seconds=60)) from error
        return str(found.token)

    @cached_property
    def endpoint_audience(self) -> str:
        """Whom a token for Resource Manager is for: as the SDK has it for its clouds, else the endpoint.

        On a local server it is the public cloud's.
        """
        from azure.core import AzureClouds
        from azure.mgmt.core.tools import get_arm_endpoints

        endpoint = PUBLIC if self.endpoint.startswith("http://") else self.endpoint
        for cloud in AzureClouds:
            known = get_arm_endpoints(cloud)
            if known["resource_manager"].rstrip("/") == endpoint:
                return str(known["credential_scopes"][0]).removesuffix("/.default")
        return endpoint

    def _identity(self) -> Any:
        """Workload identity where all its variables are there, else the managed identity that is named."""
        if self._credential is None:
            import azure.identity

            check_identity(self._environ)
            client, tenant, file = (self._environ.get(name, "") for name in WORKLOAD)
            way = {"transport": transport(self._limits, self._clock), "retry_total": 0}
            if tenant and file:
                self._credential = azure.identity.WorkloadIdentityCredential(
                    tenant_id=tenant, client_id=client, token_file_path=file, **way
                )
            else:
                self._credential = azure.identity.ManagedIdentityCredential(client_id=client, **way)
        return self._credential

    def _client(self, service: str, subscription: str, what: str) -> Any:
        self.token(what)
        key = (service, subscription)
        if key not in self._clients:
            self._clients[key] = self._made(service, subscription)
        return self._clients[key]

    def _made(self, service: str, subscription: str) -> Any:
        # The SDK logs a traceback for each error whose page it cannot read. What became of a request is said.
        logging.getLogger("azure.mgmt").setLevel(logging.ERROR)
        if service == "compute":
            from azure.mgmt.compute import ComputeManagementClient as Client
        else:
            from azure.mgmt.containerservice import (  # type: ignore[assignment]
                ContainerServiceClient as Client,
            )
        return Client(
            self._identity(),
            subscription,
            base_url=self.endpoint,
            policies=pipeline(self),
            transport=transport(self._limits, self._clock),
            connection_timeout=self._limits.connect,
            read_timeout=self._limits.read,
        )


@dataclass
class Seen:
    """What the answer to a submission says of its operation: the ID alone, never the address.

    ``azures``: whether the answer is Azure's. Each answer of Resource Manager and of what is behind it has a
    request ID (azure-resource-manager-rpc, "Common API Response Details"). A proxy may remove that, so any
    answer that is no web page counts as well.
    """

    operation: str = ""
    azures: bool = False

    def __call__(self, response: Any) -> None:
        headers = response.http_response.headers
        page = "html" in headers.get("Content-Type", "").lower()
        self.azures = not page or any(headers.get(name) for name in REQUEST_IDS)
        where = headers.get("Azure-AsyncOperation") or headers.get("Location") or ""
        self.operation = operation_id(where)


def operation_id(url: str) -> str:
    """The last part of an operation's address, if it looks like an ID; else empty."""
    last = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    plain = last.replace("-", "")
    return last if plain.isascii() and plain.isalnum() and 8 <= len(last) <= 64 else ""


def all_of(found: Any) -> list[Any]:
    """Every item of a list that comes in pages, once: one that moves to another page meanwhile is on both.

    Raises ``ValueError`` for a list that does not end.
    """
    pages, items, asked = found.by_page(), dict[str, Any](), set[str]()
    for number, page in enumerate(pages):
        if number == PAGES:
            raise ValueError(f"the list has more than {PAGES} pages")
        for item in page:
            items[str(getattr(item, "id", "") or len(items)).lower()] = item
        if (after := pages.continuation_token) in asked:
            raise ValueError("the list leads back to a page that was read")
        asked.add(after)
    return list(items.values())


def transport(limits: Limits, clock: Clock) -> Any:
    """The SDK's own way to the network, with answers that are bounded in size and time.

    ``read_timeout`` alone would bound each piece of an answer and not their sum, hence ``adapter_class``.
    """
    import requests
    from azure.core.pipeline.transport import RequestsTransport

    class Bounded(adapter_class()):  # type: ignore[misc]
        def send(self, request: Any, **options: Any) -> Any:
            answer = super().send(request, **{**options, "stream": True})
            until, content = clock.monotonic() + limits.read, bytearray()
            for piece in answer.iter_content(65536):
                content += piece
                if len(content) > LARGEST or clock.monotonic() > until:
                    answer.close()
                    raise requests.ReadTimeout(
                        f"the answer has more than {LARGEST} bytes, or took more than {limits.read:g} s"
                    )
            answer._content = bytes(content)
            return answer

    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, Bounded())
    return RequestsTransport(session=session, connection_timeout=limits.connect, read_timeout=limits.read)


def pipeline(session: AzureSession) -> list[Any]:
    """What every request goes through."""
    from azure.core.pipeline import policies

    class Bearer(policies.SansIOHTTPPolicy):  # type: ignore[type-arg]
        """The token, for our endpoint only."""

        def on_request(self, request: Any) -> None:
            # Resource Manager names its port where it says how a list goes on, after some fifty VMs:
            # https://management.azure.com:443/... (azure-xplat-cli#2961, azure-sdk-for-java#36506).
            if not is_at(request.http_request.url, session.endpoint):
                raise Refused("Azure's answer names an address outside AZURE_RESOURCE_MANAGER_ENDPOINT")
            request.http_request.headers["Authorization"] = f"Bearer {session.token('a request')}"

    return [
        policies.RequestIdPolicy(),
        policies.HeadersPolicy(),
        policies.UserAgentPolicy(base_user_agent="node-recovery"),
        policies.ContentDecodePolicy(),
        Bearer(),
        policies.CustomHookPolicy(),
    ]
