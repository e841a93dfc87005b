"""Where an agent touches the world: what can go wrong right before or after each request and each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from recovery_testkit.kubepatch import pack_json
from recovery_testkit.kubestatus import ApiError as Refusal
from recovery_testkit.kubestatus import Response
from recovery_testkit.stage import Killed

from recovery.errors import ApiUnavailable
from tests.search import facts

if TYPE_CHECKING:
    from tests.search.world import Process, World

LATENCY = 0.004
PATIENCE = 8.0
"""Seconds that a client waits for an answer."""
MANY = "the server has received too many requests and has asked us to try again later"


@dataclass
class Trap:
    """Strikes at the ``left``-th touch from now on. ``kind``: crash, stop, lose, slow, status; ``slow read``: at
    the first one that only reads. ``after``: when the
    touch has had its effect."""

    left: int
    kind: str
    after: bool = False
    seconds: float = 0.0
    status: int = 0
    times: int = 1
    calls: bool = False
    """Whether it strikes at calls that change something at the cloud only: ``left`` counts them."""
    then: Callable[[], None] = lambda: None


def _loses(trap: Trap) -> bool:
    """Whether the client never hears what came of it."""
    if trap.kind == "slow" and trap.seconds <= PATIENCE:
        return False
    return trap.after and trap.kind in ("lose", "slow", "status")


class LostError(Exception):
    """The request or its answer was lost."""


class Boundary:
    """Stands between all agents and the API server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.away_until = self.throttled_until = 0.0
        self.cut: dict[int, float] = {}
        """Until when each of these seats reaches neither the API server nor the cloud."""
        self.refused: list[tuple[str, int, float]] = []
        """Writes whose path has this in it are refused with this status, until then."""
        self.slow = self.slow_until = 0.0
        """So many seconds each touch takes, until then."""
        self.late: dict[tuple[int, str], float] = {}
        """Until when watches of this, by a replica on this seat, show what was there at first."""
        self.ahead = 0.0
        """How many seconds one of three API servers is ahead of true time."""
        self.will_lose = False
        """Whether the touch that is under way is applied, and its answer lost."""
        self._answers = 0
        self._troubled: dict[str, float] = {}

    def around(self, transport: Any) -> Any:
        return _Transport(transport, self)

    def around_streams(self, streams: Any) -> Any:
        return _Streams(streams, self)

    # ------------------------------------------------------------ touches

    def touched(self, go: Callable[[], Any], *, reading: bool = False, calling: bool = False) -> Any:
        """Do ``go``, with what was laid for the process whose turn it is. Raises ``LostError``."""
        p = self.world.acting
        self.world.clock.advance(LATENCY)
        if p is not None and self._is_cut(p):
            raise LostError("there is no route to it")
        if p is not None and self.world.now < self.slow_until:
            self._stopped(p, self.slow)
        self.will_lose = False
        if p is None or not p.traps:  # nearly always
            return go()
        struck = self._struck(p, reading, calling)
        for trap in struck:
            if not trap.after:
                self._strike(p, trap)
                if calling and trap.kind == "stop" and trap.seconds > PATIENCE:
                    # No program can look at its clock once more in the middle of its call.
                    raise LostError("the cloud has closed a connection that brought no request")
        self.will_lose = any(_loses(t) for t in struck)
        answer = go()
        self.will_lose = False
        for trap in struck:
            if trap.after:
                self._strike(p, trap)
        return answer

    def _struck(self, p: Process, reading: bool, calling: bool) -> list[Trap]:
        for trap in (t for t in p.traps if calling or not t.calls):
            trap.left -= 1
        struck = [
            t
            for t in p.traps
            if t.left <= 0 and (reading or t.kind != "slow read") and (calling or not t.calls)
        ]
        for trap in struck:
            trap.times -= 1
        p.traps = [t for t in p.traps if t.left > 0 or t.times > 0]
        return struck

    def _strike(self, p: Process, trap: Trap) -> None:
        if trap.kind == "crash":
            trap.then()
            raise Killed
        if trap.kind == "stop":
            self._stopped(p, trap.seconds)
        if trap.kind in ("slow", "slow read"):
            trap.then()
            self.world.stop_here(p, trap.seconds if trap.after else min(trap.seconds, PATIENCE - 1.0))
            if _loses(trap):
                raise LostError("the answer came too late")
        if trap.kind == "lose":
            raise LostError("the answer was lost" if trap.after else "the request was lost")
        if trap.kind == "status":
            raise StatusError(trap.status)

    def _stopped(self, p: Process, seconds: float) -> None:
        """It is in the middle of a request for so long."""
        self.world.note("process", p.actor.name, state="stopped", node=p.actor.node)
        self.world.stop_here(p, seconds)
        self.world.note("process", p.actor.name, state="resumed", node=p.actor.node)

    def _is_cut(self, p: Process) -> bool:
        return self.world.now < self.cut.get(p.place, 0.0)

    # ------------------------------------------------------------ requests

    def request(self, transport: Any, method: str, path: str, **more: Any) -> Any:
        if self._away():
            raise ApiUnavailable("the API server did not answer: connection refused")
        if self.world.now < self.throttled_until:
            return _refusal(429, "TooManyRequests", MANY, 3)
        if (status := self._refused(method, path)) is not None:
            self._trouble()
            return _refusal(status, "Forbidden", "a webhook or a role is in the way", 1)
        try:
            answer = self.touched(lambda: transport.request(method, path, **more), reading=method == "GET")
        except LostError as error:
            self._trouble()
            raise ApiUnavailable(f"the API server did not answer: {error}") from None
        except StatusError as error:
            self._trouble()
            return _refusal(error.status, "Injected", f"injected {error.status}", 1)
        return self._dated(answer)

    def _refused(self, method: str, path: str) -> int | None:
        """The status with which all writes of this kind are refused for now."""
        writes = (s for part, s, until in self.refused if part in path and self.world.now < until)
        return None if method == "GET" else next(writes, None)

    def watch(self, streams: Any, path: str, query: Any) -> list[bytes]:
        """What a watch shows until the server ends it."""
        if self._away() or self.world.now < self.throttled_until:
            raise ApiUnavailable("the API server did not answer: connection refused")
        if self._is_late(path):
            self.world.clock.advance(LATENCY)
            where = {"metadata": {"resourceVersion": query["resourceVersion"]}}
            return [pack_json({"type": "BOOKMARK", "object": where})]
        try:
            return self.touched(lambda: list(streams.stream(path, query)), reading=True)  # type: ignore[no-any-return]
        except (LostError, StatusError) as error:
            self._trouble()
            raise ApiUnavailable(f"the watch broke: {error}") from None

    def is_still(self, path: str, version: str) -> bool:
        """Whether a watch shows nothing new to who acts, and nothing befalls it: it need not be asked."""
        p, w = self.world.acting, self.world
        if p is None or p.traps or w.now < max(self.away_until, self.throttled_until) or self._is_cut(p):
            return False
        if not self._is_late(path) and not w.store.is_still(path, version):
            return False
        w.clock.advance(LATENCY)
        return True

    def _is_late(self, path: str) -> bool:
        """Whether the API server's cache of this has fallen behind, for who watches it now."""
        place = self.world.acting.place if self.world.acting else -1
        return self.world.now < self.late.get((place, path.rpartition("/")[2]), 0.0)

    def _away(self) -> bool:
        """Whether the API server cannot be reached. It costs a moment to find out."""
        now = self.world.now
        if now < max(self.away_until, self.throttled_until):
            self._trouble()
        if now < self.away_until:
            self.world.clock.advance(LATENCY)
        return now < self.away_until

    def _trouble(self) -> None:
        """Say, once a minute, that a request of who acts has failed."""
        who = self.world.acting.actor.name if self.world.acting else ""
        if self.world.now - self._troubled.get(who, -60.0) >= 60.0:
            self._troubled[who] = self.world.now
            self.world.note(facts.TROUBLE, who)

    def _dated(self, answer: Any) -> Any:
        """Every third answer comes from another API server, whose clock may be wrong."""
        self._answers += 1
        if not self.ahead or self._answers % 3:
            return answer
        date = parsedate_to_datetime(answer.headers["Date"]) + timedelta(seconds=self.ahead)
        headers = {**answer.headers, "Date": format_datetime(date, usegmt=True)}
        return Response(answer.status, headers, answer.body)


class StatusError(Exception):
    """The API server answers with an error of its own, and nothing is applied."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _refusal(status: int, reason: str, message: str, retry_after: int) -> Response:
    error = Refusal(status, reason, message, retry_after=retry_after)
    return Response(status, error.headers, error.body)


class _Transport:
    """One agent's connection."""

    def __init__(self, transport: Any, boundary: Boundary) -> None:
        self.request = partial(boundary.request, transport)


class _Streams:
    """The watches of one replica of the controller."""

    def __init__(self, streams: Any, boundary: Boundary) -> None:
        self._streams = streams
        self._boundary = boundary

    def stream(self, path: str, query: Any) -> Iterator[bytes]:
        yield from self._boundary.watch(self._streams, path, query)
