"""What the soak says of its own run, and how it keeps to the machine's pace. Without a control plane."""

from __future__ import annotations

import gc
import socket
import struct
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fleet_soak import who_led
from history import CONTROLLER
from phases import PLACES, moments, table
from test_soak import Chaos
from tls_server import TlsServer

from tests.builders.tls import certified
from tests.search.facts import PROCESS, Asked, Happened, Wrote

AGENT = "agent on node-0"


def wrote(at: float, phase: str) -> Wrote:
    after = {"status": {"phase": phase}}
    return Wrote(at, AGENT, "update", "NodeRecovery", "", "node-0", after=after)


def recovery(asked: float = 3.0) -> list[Any]:
    """One, a place a second, but for the call at ``asked``."""
    return [
        Happened(-5.0, "machine joined", "i-0", {"node": "node-0"}),
        Happened(0.0, "fault began", "i-0", {}),
        wrote(1.0, "suspect"),
        wrote(2.0, "recovering"),
        Asked(asked, AGENT, "i-0", "replace"),
        Happened(4.0, "machine gone", "i-0", {"node": "node-0"}),
        wrote(5.0, "proving"),
        wrote(6.0, "recovered"),
    ]


def test_each_place_of_a_recovery_has_its_moment() -> None:
    assert moments(recovery()) == [dict(zip(PLACES, range(7), strict=True))]


def test_what_comes_again_counts_from_the_first_time() -> None:
    again = [*recovery(), Asked(7.0, AGENT, "i-0", "replace"), wrote(8.0, "recovering")]
    assert moments(again) == moments(recovery())


def test_a_recovery_that_has_not_ended_is_in_no_table() -> None:
    assert "of 0 recoveries" in table(recovery()[:-1])
    assert "3.9     3.9     3.9  asked for" not in table(recovery(asked=0.1)[:-1])
    assert "3.9     3.9     3.9  asked for" in table(recovery(asked=0.1))


@dataclass
class Agents:
    """Containers of agents that have spoken."""

    there: list[Any] = field(default_factory=list)

    def all(self) -> list[Any]:
        return self.there

    def start(self, pod: str, seconds_ago: float) -> None:
        began = time.monotonic() - seconds_ago
        self.there.append(SimpleNamespace(pod=pod, node=pod, starts=1, began=began, speaks=True))


def chaos(agents: Agents) -> Chaos:
    site: Any = SimpleNamespace(kubelets=agents, kill=lambda container: None)
    return Chaos(site, seed=1)


def test_where_agents_start_slowly_everything_is_disturbed_more_seldom() -> None:
    found = chaos(agents := Agents())
    agents.start("first", 1.0)
    found.kills_some()
    agents.start("second", 4.0)
    found.kills_some()
    assert round(found.pace, 1) == 2.0


def test_what_spoke_before_the_first_look_says_nothing_of_the_pace() -> None:
    found = chaos(agents := Agents())
    agents.start("first", 60.0)
    found.kills_some()
    assert found.pace == 1.0


def took_lease(at: float, who: str) -> Wrote:
    after = {"spec": {"holderIdentity": f"owner/{who}"}}
    return Wrote(at, f"controller {who}", "update", "Lease", CONTROLLER, CONTROLLER, after=after)


def test_who_leads_is_who_took_the_lease_and_to_lose_it_wakes_nobody() -> None:
    stopped = Happened(2.0, PROCESS, "controller a", {"state": "stopped"})
    history = [took_lease(1.0, "a"), stopped, took_lease(3.0, "b"), took_lease(4.0, "b")]
    told = [(x.at, x.subject, x.detail["state"], x.detail["leads"]) for x in who_led(history)]
    assert told == [
        (1.0, "controller a", "started", True),
        (3.0, "controller a", "stopped", False),
        (3.0, "controller b", "started", True),
    ]


def test_a_client_that_was_killed_before_it_was_heard_leaves_no_socket_open(tmp_path: Path) -> None:
    with TlsServer(BaseHTTPRequestHandler, certified(tmp_path)[0]) as server:
        killed = socket.create_connection(server.server_address)
        killed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        killed.close()
        with pytest.raises(OSError, match="not connected"):
            server.get_request()
        gc.collect()  # an open socket that nobody has is a warning here, and so an error
