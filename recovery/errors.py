"""Every error this program raises on purpose, in one tree.

::

    NodeRecoveryError
    ├── SettingsError            wrong settings or policy: exit code 2, all mistakes at once
    ├── Retry                    nothing was submitted: look again after a while
    ├── Ambiguous                something may have been submitted: observe, never resubmit
    ├── Refused                  it cannot be done: hand over, with the reason
    │   └── KnowsNothing         whoever was asked knows no such thing, as one that is starting does not yet
    │       └── KnowsNobody      a BMC refuses its user, as some do now and then to good credentials
    ├── Unreadable               a detector's page cannot be read, or is no page of metrics
    │   └── NoAnswer             a server could not be reached, so that it need not be asked anything else
    ├── Undecodable              a record or gate that this version cannot decode
    ├── Dropped                  the API server did not store what it was given: its CRDs are older
    ├── GateTooLarge             the gate would be larger than it may be: it is not written
    ├── IllegalMove              the lifecycle has no such move from the record's phase: a bug
    ├── NotInstalled             the CRDs are not there
    ├── UnknownNode              there is neither a Node nor a record of this name
    ├── CannotRelease            the release would do harm, or record something untrue
    ├── WouldHarm                a test fault would, or might, be acted on
    ├── Declined                 the person said no
    └── ApiError                 the Kubernetes API server refused a request, or gave no answer
        ├── NotFound             404
        ├── Conflict             409, or 422 on a precondition: another writer was first
        ├── Fenced               403: an admission policy keeps the pods of a namespace from every drain
        ├── Expired              410: a list whose pages are too old to go on with
        ├── TooManyRequests      429: an eviction refused by a budget, or priority and fairness
        └── ApiUnavailable       no answer (a write may or may not have happened)
            └── TooLong          an answer that is longer than is read: a list comes in smaller pages

Any other exception is a bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta


class NodeRecoveryError(Exception):
    """Base of all errors raised on purpose. Its text is a sentence for people."""


class SettingsError(NodeRecoveryError):
    """Settings or a policy that cannot be used; ``mistakes`` holds one sentence for each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(self.mistakes))


class Retry(NodeRecoveryError):
    """Nothing was submitted; it may work later.

    ``after``: how long to wait. ``not_before``: when it could first succeed, where that is known.
    """

    def __init__(
        self, reason: str, after: timedelta = timedelta(seconds=15), not_before: datetime | None = None
    ) -> None:
        self.reason = reason
        self.after = after
        self.not_before = not_before
        super().__init__(reason)


class Ambiguous(NodeRecoveryError):
    """The answer was lost, and the request may have been accepted. Wait for evidence, never repeat it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Refused(NodeRecoveryError):
    """The provider, or the machine's owner, refuses it for good. A person has to do it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class KnowsNothing(Refused):
    """Whoever was asked knows no such thing. One that is starting knows nothing for a while."""


class KnowsNobody(KnowsNothing):
    """The BMC refuses its user. Some do so now and then to good credentials: HPE's, and NVIDIA's of
    GB200, GB300 and Vera Rubin (dsx-ai-factory/infra-controller#69 and #5349)."""


class ApiError(NodeRecoveryError):
    """The Kubernetes API server refused a request. ``status`` is the HTTP code, 0 for no answer."""

    def __init__(self, reason: str, status: int = 0, retry_after: float | None = None) -> None:
        self.reason = reason
        self.status = status
        self.retry_after = retry_after
        super().__init__(reason)

    @property
    def unanswered(self) -> bool:
        """Whether nothing is known of the request, and the next one may be answered."""
        return False


class NotFound(ApiError):
    """404: the object does not exist."""


class Conflict(ApiError):
    """409, or 422 on a precondition: another writer was first. Read again and decide again."""


class Fenced(ApiError):
    """403: an admission policy keeps the pods of this namespace from every drain. ``reason`` says why."""


class Expired(ApiError):
    """410: the pages of a list are too old to go on with. It has to be read from its start again."""


class TooManyRequests(ApiError):
    """429. ``retry_after``: the seconds of the server's ``Retry-After``, where it gave one."""


class ApiUnavailable(ApiError):
    """No usable answer: refused, timed out, cut off, or a 5xx. A write may have happened."""

    @property
    def unanswered(self) -> bool:
        """Not with a 500: that server is there, and fails on this very request, as where an admission webhook
        is down, or a pod has two disruption budgets. The next try may end in the same way for hours."""
        return self.status != 500


class TooLong(ApiUnavailable):
    """The answer is longer than is read. A page of a list: ask for a smaller one."""


class Undecodable(NodeRecoveryError):
    """A record or gate that this version cannot decode: hold, say so, touch nothing. ``name``: its name."""

    name: str = ""


class Dropped(NodeRecoveryError):
    """The API server said yes, and did not store all that it was given: its CRDs are older than this program,
    or something stands between."""


class GateTooLarge(NodeRecoveryError):
    """The gate would be larger than it may be, and is not written. ``reason`` is a sentence for people."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class IllegalMove(NodeRecoveryError):
    """The lifecycle's table has no such move from the record's phase. A bug: nothing was changed."""


class Unreadable(NodeRecoveryError):
    """A detector's page could not be read, or is no page of metrics. ``reason`` is a sentence for people."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class NoAnswer(Unreadable):
    """The server could not be reached, or did not answer in time: it need not be asked anything else now."""


class NotInstalled(NodeRecoveryError):
    """The CRDs are not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the API server knows no NodeRecovery: the CRDs are not installed (kubectl apply -k deploy/crds)"
        )


class UnknownNode(NodeRecoveryError):
    """There is neither a Node nor a record of this name."""


class CannotRelease(NodeRecoveryError):
    """The release would do harm or record something untrue. Nothing was changed."""


class WouldHarm(NodeRecoveryError):
    """A test fault would, or might, be acted on. Nothing was changed."""


class Declined(NodeRecoveryError):
    """The person answered no when asked to confirm."""
