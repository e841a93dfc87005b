"""Which alerts fire, as a Prometheus server last said: what is old, or cannot be read, is not known."""

from __future__ import annotations

from typing import Any

import pytest
from recovery_testkit.clock import FakeClock

from recovery.agent.alerts import FORGETS, QUERY, AlertWatch
from recovery.errors import NoAnswer, Unreadable
from recovery.model import Alerts


class Server:
    """Answers with ``result``, or fails with it."""

    def __init__(self, *names: object) -> None:
        self.result: list[Any] | Unreadable = [{"metric": {"alertname": name}} for name in names]

    def ask(self, query: str, at: float | None = None) -> list[Any]:
        assert (query, at) == (QUERY, None)
        if isinstance(self.result, Unreadable):
            raise self.result
        return self.result


def heard(server: Server) -> Alerts:
    watch = AlertWatch(server, FakeClock())
    watch.once()
    return watch.now()


def test_what_fires_is_known_by_name() -> None:
    assert heard(Server("B", "A")) == Alerts(("A", "B"), unknown="")
    assert heard(Server()) == Alerts((), unknown="")


def test_before_it_has_been_asked_nothing_is_known() -> None:
    assert AlertWatch(Server(), FakeClock()).now() == Alerts((), "Prometheus has not been asked yet")


def test_an_answer_counts_for_a_minute() -> None:
    server, clock = Server("A"), FakeClock()
    watch = AlertWatch(server, clock)
    watch.once()
    server.result = NoAnswer("connection refused")
    clock.advance(60)
    watch.once()
    assert watch.now() == Alerts(("A",), unknown="")
    clock.advance(1)
    assert watch.now() == Alerts((), "connection refused, for 61 s")


def test_what_fired_before_an_outage_counts_for_a_while_after_it() -> None:
    """The server may have been started anew."""
    server, clock = Server("A", "B"), FakeClock()
    watch = AlertWatch(server, clock)
    watch.once()
    server.result = NoAnswer("connection refused")
    watch.once()
    server.result = [{"metric": {"alertname": "B"}}]
    watch.once()
    assert watch.now() == Alerts(("A", "B"), unknown="")
    server.result = []
    watch.once()
    assert watch.now() == Alerts(("A",), unknown="")
    clock.advance(FORGETS.total_seconds())
    watch.once()
    assert watch.now() == Alerts((), unknown="")


def test_what_a_sidecar_heard_long_before_an_outage_does_not() -> None:
    server, clock = Server("A"), FakeClock()
    watch = AlertWatch(server, clock)
    watch.once()
    clock.advance(3600)
    server.result = NoAnswer("connection refused")
    watch.once()
    server.result = []
    watch.once()
    assert watch.now() == Alerts((), unknown="")


def test_a_thread_that_asks_no_more_leaves_nothing_known() -> None:
    clock = FakeClock()
    watch = AlertWatch(Server("A"), clock)
    watch.once()
    clock.advance(600)
    assert watch.now() == Alerts((), "Prometheus was not asked, for 10 min")


@pytest.mark.parametrize(
    "names",
    [(7,), ("",), ("a" * 201,), ("bad\nname",), (None,), tuple(f"A{n}" for n in range(1001))],
    ids=["a number", "empty", "long", "of two lines", "missing", "too many"],
)
def test_of_an_answer_that_cannot_be_read_nothing_counts(names: tuple[object, ...]) -> None:
    assert heard(Server(*names)).unknown
    assert heard(Server("good", *names)).firing == ()


def test_a_series_without_labels_is_no_answer() -> None:
    server = Server()
    for result in ([7], [{}], [{"metric": []}]):
        server.result = result
        assert heard(server).unknown == "a series of ALERTS has no name that can be read"
