"""The servers that are asked of the whole fleet, around a boot of a node, a new controller and an outage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from recovery_testkit.clock import FakeClock

from recovery.model import Phase
from tests.stories import prometheus_server
from tests.stories.scenery import pass_time, to_the_end
from tests.stories.scenes import NO_MARKS, another_leader, boot, calls, marked, phase
from tests.stories.test_fleet_loki import REBOOT
from tests.stories.test_fleet_prometheus import Scene, asking, scene


@pytest.fixture
def server() -> Iterator[prometheus_server.Server]:
    with prometheus_server.serving(FakeClock()) as made:
        yield made


# ---------------------------------------------------------------- a server that forgets its alerts


def fires(w: Scene) -> None:
    w.server.put("ALERTS", 1, alertname="GpuHot", alertstate="firing", node="node-0")


def rebooted_for_an_alert(server: prometheus_server.Server) -> Scene:
    """It looks back to before the boot, and fires on."""
    w = scene(server, asking("alerts", "{type: GpuHot}", REBOOT))
    fires(w)
    pass_time(w.s, 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]
    boot(w.s, "node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED)
    return w


@pytest.mark.parametrize(
    ("down", "forgets", "new"),
    [(20, 120, False), (240, 400, False), (240, 120, True), (0, 400, True)],
)
def test_a_server_that_is_started_anew_states_no_alert_of_before_the_boot_anew(
    server: prometheus_server.Server, down: int, forgets: int, new: bool
) -> None:
    w = rebooted_for_an_alert(server)
    if down:
        server.answer = (503, b"Service Unavailable")
        pass_time(w.s, down, w.cloud, step=5)
        server.answer = None
    server.drop("ALERTS")
    if new:
        another_leader(w.s)
    pass_time(w.s, forgets, w.cloud, step=5)
    fires(w)
    pass_time(w.s, 300, w.cloud, step=5)
    assert (calls(w.s), phase(w.s), marked(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED, NO_MARKS)
