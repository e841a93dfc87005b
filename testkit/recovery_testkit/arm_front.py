"""The entrance of the fake Azure: authenticates and authorises, and passes on to identity, metrics or ARM."""

from __future__ import annotations

import posixpath
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote, urlsplit

from recovery_testkit import arm_clusters, arm_scale_sets
from recovery_testkit.arm_answers import Call, find
from recovery_testkit.arm_http import TOKEN, Answer, Arrived, CutError, Request, RequestLog, Server
from recovery_testkit.arm_state import ArmError, ArmState

CLIENT_ID = "c11e0000-0000-4000-8000-000000000002"
"""Of the only managed identity there is. It is user-assigned: it has to be asked for by this."""
TOKEN_SECONDS = 86400

Metrics = Callable[[str, Mapping[str, str], bytes], tuple[int, dict[str, str], bytes]]
_HEADER = "the-identity-header"
_PRINCIPAL = "0b1ec700-0000-4000-8000-000000000003"
_ROUTED_BY = (arm_clusters, arm_scale_sets)  # importing them has put their routes into the table


class Front(RequestLog):
    """Listens on a free port from ``start`` to ``stop``."""

    def __init__(self, azure: ArmState) -> None:
        super().__init__()
        self._state = azure
        self._server = Server(("127.0.0.1", 0), self._serve)
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True),
            threading.Thread(target=azure.tick, daemon=True),
        ]
        self._bugs: list[str] = []
        self._denied: list[tuple[str, str]] = []
        self._tokens_refused = 0
        self.tokens: Counter[str] = Counter()
        """How many tokens were given out, by their audience."""
        self.metrics: Metrics | None = None
        """Answers each POST whose path ends in /metrics: (path, headers, body) -> (status, headers, body)."""
        self.role: frozenset[str] | None = None
        """If set, the only permissions that the caller has, as a role definition lists them."""
        self.remaining: dict[str, int] = {}
        """What is left of Compute's limits, by their names: the header x-ms-ratelimit-remaining-resource."""
        self.retry_after: float | None = None
        """Seconds that a client is asked to wait between two looks at an operation."""
        self.page_size = 100
        """The length of one page of a list."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environ(self) -> dict[str, str]:
        """The environment variables by which an agent finds this Azure."""
        return {
            "AZURE_RESOURCE_MANAGER_ENDPOINT": self.url,
            "IDENTITY_ENDPOINT": f"{self.url}/msi/token",
            "IDENTITY_HEADER": _HEADER,
            "AZURE_CLIENT_ID": CLIENT_ID,
        }

    def _start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Also raises what went wrong in the fake itself, if anything did."""
        self.stopping.set()
        self._state.stop()
        if self._threads[0].is_alive():
            self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        assert not self._bugs, "".join(self._bugs)

    # ------------------------------------------------------------ who may do what

    def deny(self, action: str, code: str = "AuthorizationFailed") -> None:
        """403 for each permission that ends so (``operations/read``) or fits as a pattern; see ``permit``."""
        self._denied.append((action.lower(), code))

    def permit(self) -> None:
        """Take back every ``deny``."""
        self._denied.clear()

    def refuse_tokens(self, status: int = 400) -> None:
        """Give out no token; 0 to give them out again. Those that clients hold stay good."""
        self._tokens_refused = status

    def require_signatures(self, required: bool = True) -> None:
        """403 for whoever asks for an operation's status without the query that came with its address.

        The real ARM ties that query to the caller; whether it may be left out is not known.
        """
        self._state.signatures_required = required

    def _authorise(self, request: Request) -> None:
        """What ARM asks before it looks for the resource."""
        if not request.bearer:
            challenge = 'Bearer authorization_uri="https://login.windows.net/", error="invalid_token"'
            message = "Authentication failed. The 'Authorization' header is missing."
            raise ArmError(401, "AuthenticationFailed", message, headers={"WWW-Authenticate": challenge})
        if request.audience and not self._is_own(request.audience):
            message = (
                f"The access token has been obtained for wrong audience or resource '{request.audience}'."
            )
            raise ArmError(401, "InvalidAuthenticationTokenAudience", message)
        if "api-version" not in request.query:
            message = "The api-version query parameter (?api-version=) is required for all requests."
            raise ArmError(400, "MissingApiVersionParameter", message)
        action = request.action.lower()
        denied = (code for a, code in self._denied if action.endswith(a) or fnmatchcase(action, a))
        refusal = next(denied, "")
        if self.role is not None and action not in {a.lower() for a in self.role}:
            refusal = refusal or "AuthorizationFailed"
        if refusal:
            who = f"The client '{CLIENT_ID}' with object id '{_PRINCIPAL}' does not have authorization to "
            what = f"perform action '{request.action}' over scope '{request.path}' or the scope is invalid. "
            last = "If access was recently granted, please refresh your credentials."
            raise ArmError(403, refusal, who + what + last)

    def _is_own(self, audience: str) -> bool:
        host = urlsplit(audience).hostname or ""
        return host.startswith("management.") or host in ("127.0.0.1", "localhost")

    # ------------------------------------------------------------ who answers

    def _serve(self, arrived: Arrived) -> Answer:
        """Raises nothing but ``CutError``. An error of the fake itself is raised by ``stop``."""
        try:
            if arrived.path == "/msi/token":
                return self._give_token(arrived)
            if arrived.method == "POST" and arrived.path.endswith("/metrics"):
                return self._take_metrics(arrived)
            return self._manage(arrived)
        except CutError:
            raise
        except Exception:
            self._bugs.append(traceback.format_exc())
            return Answer(500, {"error": {"code": "FakeArmBug", "message": self._bugs[-1]}})

    def _give_token(self, arrived: Arrived) -> Answer:
        """As App Service's managed identity endpoint does. The time is the real one: SDKs go by it."""
        self.note(arrived.note("token", "", self._state.now()))
        audience = arrived.query.get("resource", "")
        problem = ""
        if arrived.query.get("api-version") != "2019-08-01" or not audience:
            problem = "api-version 2019-08-01 and a resource are needed."
        elif arrived.headers.get("x-identity-header") != _HEADER:
            problem = "The X-IDENTITY-HEADER is wrong."
        elif arrived.query.get("client_id") != CLIENT_ID:
            problem = "No managed identity with this client_id is assigned, and no system-assigned one."
        if problem or self._tokens_refused:
            status = self._tokens_refused or 400
            return Answer(status, {"statusCode": status, "message": problem or "No token is given out."})
        with self._state.lock:
            self.tokens[audience] += 1
        ends = int(time.time()) + TOKEN_SECONDS
        body = {"access_token": TOKEN + audience, "expires_on": str(ends), "resource": audience}
        return Answer(200, {**body, "token_type": "Bearer", "client_id": CLIENT_ID})

    def _take_metrics(self, arrived: Arrived) -> Answer:
        self.note(arrived.note("metrics", "", self._state.now()))
        if self.metrics is None:
            return Answer(404, {"error": {"code": "NotFound", "message": "Nothing takes metrics here."}})
        status, headers, body = self.metrics(arrived.path, arrived.headers, arrived.body)
        return Answer(status, body, headers)

    def _manage(self, arrived: Arrived) -> Answer:
        """Azure Resource Manager."""
        path = posixpath.normpath(unquote(arrived.path))  # as Azure's own entrance does, and many clients
        handler, parts, action = find(arrived.method, path)
        request = arrived.note("arm", action, self._state.now())
        fault = self.note(request)
        if fault.reset:
            raise CutError(reset=True)
        answer = fault.answer or self._carry_out(request, handler, self._call(arrived, parts, path))
        if fault.delay:
            self.stopping.wait(fault.delay)
        if fault.lose:
            raise CutError
        return Answer(answer.status, answer.body, {**self._usual(request), **answer.headers})

    def _call(self, arrived: Arrived, parts: Mapping[str, str], path: str) -> Call:
        return Call(
            parts,
            arrived.query,
            arrived.headers,
            arrived.body,
            path,
            arrived.base,
            self.page_size,
            self.retry_after,
        )

    def _carry_out(self, request: Request, handler: Any, call: Call) -> Answer:
        self._state.settle()
        try:
            self._authorise(request)
            if handler is None:
                raise ArmError(501, "NotImplemented", f"recovery_testkit.arm does not know {request.line}.")
            with self._state.lock:
                answer: Answer = handler(self._state, call)
                return answer
        except ArmError as error:
            return Answer(error.status, error.body, error.headers)

    def _usual(self, request: Request) -> dict[str, str]:
        """The headers of each answer."""
        headers = {"x-ms-correlation-request-id": str(uuid.uuid4())}
        if request.headers.get("x-ms-return-client-request-id", "").lower() == "true":
            headers["x-ms-client-request-id"] = request.headers.get("x-ms-client-request-id", "")
        if self.remaining:
            left = (f"Microsoft.Compute/{name};{number}" for name, number in self.remaining.items())
            headers["x-ms-ratelimit-remaining-resource"] = ",".join(left)
        return headers
