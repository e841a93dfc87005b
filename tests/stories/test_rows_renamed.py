"""The rows of a policy's Prometheus source are renamed, added or removed while records name their faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.stage import read_policy

from recovery.model import Phase
from tests.stories.prometheus_server import Server, serving
from tests.stories.scenery import pass_time
from tests.stories.scenes import (
    another_leader,
    boot,
    calls,
    phase,
    release_by_command,
    the_record,
)
from tests.stories.test_fleet_prometheus import IB, REBOOT, Scene, asking, scene


def row(name: str, query: str = 'ALERTS{alertstate="firing"}') -> str:
    return (
        f"{{name: {name}, query: '{query}', node: node, bad: \"== 1\", "
        f"type: {{label: alertname}}, reason: {{label: alertname}}, latch: boot}}"
    )


def port(name: str) -> str:
    return IB.replace("name: ib", f"name: {name}")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(FakeClock()) as made:
        yield made


def fires(w: Scene) -> None:
    w.server.put("ALERTS", 1, alertname="GpuHot", alertstate="firing", node="node-0")


def changed(w: Scene, policy: bytes) -> None:
    w.s.policy = read_policy(policy)
    another_leader(w.s)


def test_a_released_fault_is_the_same_when_its_row_is_called_otherwise(server: Server) -> None:
    w = scene(server, asking("alerts", "{type: GpuHot}", "{do: cordon}"))
    fires(w)
    pass_time(w.s, 60, w.cloud)
    assert phase(w.s) is Phase.HANDED_OVER
    release_by_command(w.s)
    pass_time(w.s, 60, w.cloud)
    changed(w, asking(row("gpu-alerts"), "{type: GpuHot}"))
    pass_time(w.s, 600, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([], Phase.RELEASED), the_record(w.s).sentence


def test_a_released_fault_is_the_same_when_the_first_of_its_rows_falls_silent(server: Server) -> None:
    rows = f"{row('a', 'gpu_hot')}, {row('b', 'gpu_hot_too')}"
    w = scene(server, asking(rows, "{type: GpuHot}", "{do: cordon}"))
    for metric in ("gpu_hot", "gpu_hot_too"):
        for name in w.names:
            w.server.put(metric, int(name == "node-0"), alertname="GpuHot", node=name)
    pass_time(w.s, 60, w.cloud)
    assert phase(w.s) is Phase.HANDED_OVER
    release_by_command(w.s)
    pass_time(w.s, 60, w.cloud)
    another_leader(w.s)
    pass_time(w.s, 120, w.cloud)
    w.server.put("gpu_hot", 0, alertname="GpuHot", node="node-0")
    pass_time(w.s, 600, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([], Phase.RELEASED), the_record(w.s).sentence


def test_an_alert_from_before_the_boot_is_still_that_when_its_row_is_called_otherwise(server: Server) -> None:
    w = scene(server, asking("alerts", "{type: GpuHot}", REBOOT))
    fires(w)
    pass_time(w.s, 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]
    boot(w.s, "node-0")
    pass_time(w.s, 30, w.cloud)
    changed(w, asking(row("gpu-alerts"), "{type: GpuHot}", REBOOT))
    pass_time(w.s, 600, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED), the_record(w.s).sentence


def test_a_reboot_is_not_proved_by_silence_when_the_row_is_called_otherwise(server: Server) -> None:
    w = scene(server, asking(port("ib"), remedy=REBOOT))
    w.server.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]
    w.server.drop("ib_dev", node="node-0")
    boot(w.s, "node-0")
    pass_time(w.s, 20, w.cloud)
    changed(w, asking(port("infiniband"), remedy=REBOOT))
    pass_time(w.s, 400, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([("reboot", "m-0")], Phase.PROVING), the_record(w.s).sentence
    w.server.put("ib_dev", 0, node="node-0")
    pass_time(w.s, 400, w.cloud)
    assert phase(w.s) is Phase.RECOVERED
