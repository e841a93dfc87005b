"""What a watch says has not changed is not read again; and where the watch may be wrong, it is."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock

from recovery.agent.backoff import Backoff
from recovery.agent.fleet.nodes import SILENT, round_of
from recovery.agent.fleet.objects import Object, Objects
from recovery.agent.fleet.recent import RECENT, UNCHANGED, Recent
from recovery.errors import ApiError, ApiUnavailable, Expired
from recovery.kube.watch import watch_failed_pods, watch_nodes, watch_ours

PATH = "/apis/noderecovery.dev/v1alpha1/noderecoveries"
GO_ON = threading.Event()


def at(version: str, name: str) -> Object:
    return {"metadata": {"name": name, "resourceVersion": version}}


def event(kind: str, version: str, name: str = "") -> bytes:
    return json.dumps({"type": kind, "object": at(version, name)}).encode()


class Server:
    """Lists what ``there`` says, and streams ``events`` once; or a bookmark, as an API server does."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.version = "10"
        self.events: list[bytes] = []
        self.watched_from: list[str] = []
        self.listed = 0
        self.error: ApiError | None = None

    def list(self) -> tuple[str, dict[str, Object]]:
        self.listed += 1
        return self.version, {name: at(version, name) for name, version in self.there.items()}

    def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        self.watched_from.append(query["resourceVersion"])
        if self.error is not None:
            raise self.error
        events, self.events = self.events, []
        yield from events or [event("BOOKMARK", query["resourceVersion"])]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def objects(server: Server, clock: FakeClock) -> Objects:
    return Objects("records", server.list, lambda since: watch_ours(server, PATH, {}, since), clock)


def told(objects: Objects, server: Server, *events: bytes) -> None:
    server.events += events
    objects.round(GO_ON)


def test_before_the_first_list_nothing_is_known(objects: Objects) -> None:
    assert objects.all() is None
    assert not objects.is_still("node-0", "7")


def test_what_was_listed_is_known_until_the_watch_tells_of_a_change(objects: Objects, server: Server) -> None:
    server.there = {"node-0": "7"}
    objects.round(GO_ON)
    assert objects.is_still("node-0", "7")
    told(objects, server, event("MODIFIED", "12", "node-0"))
    assert not objects.is_still("node-0", "7")
    assert objects.is_still("node-0", "12")
    told(objects, server, event("DELETED", "13", "node-0"))
    assert objects.all() == []
    assert (server.listed, server.watched_from) == (1, ["10", "10", "12"])


def test_what_this_process_wrote_is_known_before_the_watch_tells_of_it(
    objects: Objects, server: Server
) -> None:
    objects.round(GO_ON)
    assert objects.all() == []
    objects.written(at("14", "node-0"))
    assert objects.all() == [at("14", "node-0")]
    told(objects, server, event("MODIFIED", "12", "node-0"), event("DELETED", "13", "node-0"))
    assert objects.is_still("node-0", "14"), "those are older"
    told(objects, server, event("MODIFIED", "14", "node-0"), event("DELETED", "14", "node-0"))
    assert objects.all() == [], "one that is selected no more has the version of the write that did it"


def test_an_answer_that_comes_after_what_followed_brings_nothing_back(
    objects: Objects, server: Server
) -> None:
    """The watch has told of a deletion already, and tells no more of the object: it would count for ever."""
    objects.round(GO_ON)
    told(objects, server, event("ADDED", "12", "node-0"), event("DELETED", "13", "node-0"))
    objects.written(at("12", "node-0"))
    assert objects.all() == []
    assert not objects.is_still("node-0", "12")


def test_an_answer_that_comes_after_a_list_of_later_brings_nothing_back(
    objects: Objects, server: Server
) -> None:
    server.version = "20"
    objects.round(GO_ON)
    objects.written(at("12", "node-0"))
    assert objects.all() == []


def test_a_list_that_was_begun_before_a_write_does_not_hide_it(objects: Objects, server: Server) -> None:
    objects.written(at("14", "node-0"))
    objects.round(GO_ON)
    assert objects.is_still("node-0", "14")


@pytest.mark.parametrize("error", [ApiUnavailable("it broke"), ApiError("403 Forbidden", 403)])
def test_while_the_watch_is_broken_or_refused_nothing_is_known(
    objects: Objects, server: Server, error: ApiError
) -> None:
    objects.round(GO_ON)
    server.error = error
    assert objects.round(GO_ON) > 0, "and it is left alone for a while"
    assert objects.all() is None
    server.error = None
    told(objects, server, event("BOOKMARK", "15"))
    assert objects.all() == []
    assert server.watched_from[-1] == "10", "it goes on where it was"


def test_a_watch_that_is_silent_for_too_long_vouches_for_nothing(objects: Objects, clock: FakeClock) -> None:
    objects.round(GO_ON)
    clock.advance(SILENT + 1)
    assert objects.all() is None


@pytest.mark.parametrize("ended", [[], [b"\n"]], ids=["nothing", "an empty line"])
@pytest.mark.parametrize(
    "watch",
    [
        watch_failed_pods,
        lambda s, since: watch_nodes(s, "", since),
        lambda s, since: watch_ours(s, PATH, {}, since),
    ],
    ids=["pods", "nodes", "ours"],
)
def test_a_watch_that_ends_and_has_told_nothing_is_no_answer_of_the_api_server(
    watch: Any, ended: list[bytes]
) -> None:
    """A proxy that ends each at once would be watched without a pause, and all would count as unchanged."""

    class Proxy:
        def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
            yield from ended

    with pytest.raises(ApiUnavailable, match="had told nothing, not even a bookmark"):
        list(watch(Proxy(), "10"))


OF_NO_API_SERVER: list[dict[str, Any]] = [
    {},
    {"type": "MODIFIED"},
    {"object": {"metadata": {"name": "x", "resourceVersion": "11"}}},
    {"type": "MODIFIED", "object": {}},
    {"type": "MODIFIED", "object": None},
    {"type": "MODIFIED", "object": {"metadata": {}}},
    {"type": "MODIFIED", "object": {"metadata": "x"}},
    {"type": "MODIFIED", "object": {"metadata": {"name": "x"}}},
    {"type": "MODIFIED", "object": {"metadata": {"resourceVersion": "11"}}},
    {"type": "MODIFIED", "object": {"metadata": {"name": "x", "resourceVersion": 11}}},
    {"type": "MODIFIED", "object": {"metadata": {"name": "x", "resourceVersion": "11"}, "status": "x"}},
    {"type": "DELETED", "object": {"metadata": {"resourceVersion": "11"}}},
    {"type": "BOOKMARK", "object": {"metadata": {}}},
    {"type": "RESTARTED", "object": {"metadata": {"name": "x", "resourceVersion": "11"}}},
    {"type": "ERROR", "object": {"code": "x", "metadata": {}}},
    {"type": "ERROR", "object": {"code": 429, "details": "x"}},
]


@pytest.mark.parametrize("garbled", OF_NO_API_SERVER, ids=json.dumps)
@pytest.mark.parametrize(
    "watch",
    [
        watch_failed_pods,
        lambda s, since: watch_nodes(s, "", since),
        lambda s, since: watch_ours(s, PATH, {}, since),
    ],
    ids=["pods", "nodes", "ours"],
)
def test_an_event_that_no_api_server_sends_ends_the_watch_with_a_declared_error(
    watch: Any, garbled: dict[str, Any], server: Server
) -> None:
    server.events = [event("BOOKMARK", "10"), json.dumps(garbled).encode()]
    told = watch(server, "10")
    assert next(told).version == "10"
    with pytest.raises(ApiError):
        next(told)


@pytest.mark.parametrize("garbled", OF_NO_API_SERVER[:-2], ids=json.dumps)
def test_a_watch_of_our_objects_goes_on_after_such_an_event(
    garbled: dict[str, Any], objects: Objects, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.there = {"node-0": "5"}
    objects.round(GO_ON)
    server.events = [json.dumps(garbled).encode()]
    assert objects.round(GO_ON) > 0, "it waits before it asks again"
    assert objects.all() is None, "and vouches for nothing until then"
    assert "a bug" not in caplog.text
    objects.round(GO_ON)
    assert objects.is_still("node-0", "5")


def test_a_version_that_is_too_old_makes_a_new_list(objects: Objects, server: Server) -> None:
    objects.round(GO_ON)
    server.error = Expired("too old", 410)
    assert objects.round(GO_ON) == 0.0
    assert objects.all() is None
    server.error, server.there = None, {"node-1": "20"}
    objects.round(GO_ON)
    assert objects.is_still("node-1", "20")
    assert server.listed == 2


def test_who_rests_knows_nothing_and_lists_again(objects: Objects, server: Server) -> None:
    objects.round(GO_ON)
    objects.rest()
    assert objects.all() is None
    objects.round(GO_ON)
    assert (objects.all() == [], server.listed) == (True, 2)


def test_a_restored_etcd_makes_a_new_list_for_its_watch_tells_nothing(
    objects: Objects, server: Server
) -> None:
    """It is at an earlier version, and tells only of what comes after the one that it was asked for."""
    server.version = "1000"
    objects.round(GO_ON)
    server.version, server.there = "260", {"node-0": "255"}
    told(objects, server, event("BOOKMARK", "250"))
    assert objects.all() is None
    objects.round(GO_ON)
    assert objects.is_still("node-0", "255")


def test_of_what_was_written_after_the_moment_that_etcd_is_restored_to_nothing_stays(
    objects: Objects, server: Server
) -> None:
    """Its versions are later than those of the list, and no watch tells that it is not there."""
    server.version, server.there = "1000", {"node-0": "990"}
    objects.round(GO_ON)
    objects.written(at("1001", "node-1"))
    server.version, server.there = "260", {"node-0": "255"}
    told(objects, server, event("BOOKMARK", "250"))
    objects.round(GO_ON)
    assert objects.all() == [at("255", "node-0")]
    objects.written(at("261", "node-1"))
    assert objects.is_still("node-1", "261")


@pytest.mark.parametrize("kind", ["BOOKMARK", "MODIFIED", "DELETED"])
@pytest.mark.parametrize(
    "watch", [watch_failed_pods, lambda s, since: watch_nodes(s, "", since)], ids=["pods", "nodes"]
)
def test_no_watch_goes_on_from_a_version_before_its_own(kind: str, watch: Any, server: Server) -> None:
    server.events = [event(kind, "1001", "x"), event(kind, "1001", "x"), event(kind, "250", "x")]
    told = watch(server, "1000")
    assert [next(told).version for _ in range(2)] == ["1001", "1001"]
    with pytest.raises(Expired, match="is at version 250, and was at 1001: etcd was restored"):
        next(told)


# ---------------------------------------------------------------- what goes by it


def test_what_has_not_changed_is_remembered_with_its_age(clock: FakeClock) -> None:
    same = {"gate": True}
    recent = Recent(clock, lambda key, found: same["gate"])
    began = clock.monotonic()
    recent.read(("gate", "fleet"), lambda: "first")
    clock.advance(RECENT + 5)
    assert recent.read(("gate", "fleet"), lambda: "second") == "first"
    assert recent.since(("gate", "fleet")) == began, "who needs one of just now reads it anew"
    same["gate"] = False
    assert recent.since(("gate", "fleet")) == clock.monotonic()
    assert recent.read(("gate", "fleet"), lambda: "second") == "second"


def test_nothing_is_remembered_for_ever(clock: FakeClock) -> None:
    recent = Recent(clock, lambda key, found: True)
    recent.read(("gate", "fleet"), lambda: "first")
    clock.advance(UNCHANGED + 1)
    assert recent.read(("gate", "fleet"), lambda: "second") == "second"


def test_a_watch_that_has_expired_lists_anew_at_once_and_one_that_expires_again_and_again_waits() -> None:
    """Where a list takes longer than the API server keeps what has changed, each is too old at its end."""

    def expires() -> None:
        raise Expired("too old resource version", 410)

    backoff = Backoff(FakeClock(), 1.0, 30.0, random.Random(1))  # noqa: S311 - jitter
    pauses = [round_of("nodes", expires, lambda: None, backoff) for _ in range(8)]
    assert pauses[0] == 0.0
    assert all(pause > 0 for pause in pauses[1:])
    assert pauses[-1] >= 15.0
    assert round_of("nodes", lambda: None, lambda: None, backoff) == 0.0
    assert round_of("nodes", expires, lambda: None, backoff) == 0.0, "it had answered meanwhile"
