"""The servers that are asked of the whole fleet, around a boot of a node, a new controller and an outage."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.builders.http_server import answering
from tests.stories import loki_server, prometheus_server
from tests.stories.loki_server import xid
from tests.stories.scenery import pass_time, to_the_end
from tests.stories.scenes import NO_MARKS, another_leader, boot, calls, controller, marked, patch_node, phase
from tests.stories.test_fleet_loki import REBOOT, reading, ready_now
from tests.stories.test_fleet_loki import Scene as LogScene
from tests.stories.test_fleet_prometheus import Scene, asking, scene
from tests.stories.test_rows_and_labels import FLAPS, SLOWLY, LookingBack


@pytest.fixture
def loki() -> Iterator[loki_server.Server]:
    with loki_server.serving(FakeClock()) as made:
        yield made


@pytest.fixture
def server() -> Iterator[prometheus_server.Server]:
    with prometheus_server.serving(FakeClock()) as made:
        yield made


@pytest.fixture
def looking_back() -> Iterator[LookingBack]:
    made = LookingBack(FakeClock())
    with answering(made):
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


# ---------------------------------------------------------------- a boot in which the Node stays Ready


def long_ready(w: LogScene | Scene) -> None:
    for name in w.names:
        ready_now(w, name)
    pass_time(w.s, 4 * 3600, w.cloud, step=60)


def boots_quickly(w: LogScene | Scene, number: int = 2) -> None:
    """Its kubelet is Ready again within seconds, and says what it always says of a boot."""
    boot(w.s, "node-0", f"m-0-boot-{number}")
    w.s.store.load(rebooted_event(w.s, number))


def boots_unseen(w: LogScene | Scene, ago: int) -> None:
    """In a minute, while no controller runs. One is started so many seconds after it."""
    w.s.clock.advance(60)
    boots_quickly(w)
    w.s.clock.advance(ago)
    w.s.fleet("controller")


def rebooted_event(s: Stage, number: int) -> dict[str, Any]:
    now = f"{s.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"node-0.rebooted.{number}", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "node-0", "uid": "node-0"},
        "reason": "Rebooted",
        "message": f"Node node-0 has been rebooted, boot id: m-0-boot-{number}",
        "source": {"component": "kubelet", "host": "node-0"},
        "type": "Warning",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def log_scene(server: loki_server.Server) -> LogScene:
    w = LogScene(server, reading(REBOOT)).start()
    long_ready(w)
    return w


def test_a_line_from_before_a_boot_that_nobody_saw_treats_no_machine(loki: loki_server.Server) -> None:
    w = log_scene(loki)
    w.s.kill(controller(w.s))
    w.s.clock.advance(120)
    loki.put(xid(79, 14500.0), node="node-0")
    boots_unseen(w, 120)
    pass_time(w.s, 300, w.cloud, step=5)
    assert calls(w.s) == []


@pytest.mark.parametrize(("ago", "later"), [(120, 20), (3000, 900), (3000, 20)])
def test_a_line_of_a_boot_that_nobody_saw_is_a_fault(loki: loki_server.Server, ago: int, later: int) -> None:
    w = log_scene(loki)
    w.s.kill(controller(w.s))
    boots_unseen(w, ago)
    pass_time(w.s, later, w.cloud, step=5)
    loki.put(xid(79, ago + later), node="node-0")
    pass_time(w.s, 60, w.cloud, step=5)
    assert calls(w.s) == [("reboot", "m-0")]


def test_what_looks_back_to_before_a_boot_that_nobody_saw_treats_no_machine(
    looking_back: LookingBack,
) -> None:
    w = scene(looking_back, asking(FLAPS, remedy=SLOWLY))
    long_ready(w)
    w.s.kill(controller(w.s))
    looking_back.put("ib_dev", 3, node="node-0")
    boots_unseen(w, 300)
    pass_time(w.s, 1200, w.cloud, step=5)
    assert calls(w.s) == []


# ---------------------------------------------------------------- a dmesg that is started anew


DAY = 86400.0


def ready_for(w: LogScene, node: str, seconds: float) -> None:
    since = f"{w.s.clock.true_time() - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": since}
    patch_node(w.s, node, {"status": {"conditions": [condition]}}, "status", "kubelet")


@pytest.mark.parametrize("after", [600, 2400, 7200])
def test_a_line_of_hours_before_the_controller_that_is_printed_once_more_treats_no_machine(
    loki: loki_server.Server, after: float
) -> None:
    """Its machine has been up for ten days, and a person has looked at it two hours ago."""
    w = LogScene(loki, reading(REBOOT))
    ready_for(w, "node-0", 10 * DAY)
    w.start()
    pass_time(w.s, after, w.cloud, step=30)
    loki.put(xid(79, 10 * DAY - 7200), node="node-0")  # the DaemonSet of ``dmesg -w`` is rolled out
    pass_time(w.s, 120, w.cloud, step=5)
    assert calls(w.s) == []


def test_a_line_of_days_after_a_boot_that_nobody_saw_is_a_fault_once_another_agrees(
    loki: loki_server.Server,
) -> None:
    """No Event is left of that boot. Of two lines neither is printed once more where both say when the kernel
    began."""
    w = LogScene(loki, reading(REBOOT))
    ready_for(w, "node-0", 10 * DAY)
    w.start()
    pass_time(w.s, 60, w.cloud, step=30)
    for up in (2 * DAY, 2 * DAY + 30, 2 * DAY + 61):
        assert calls(w.s) == []
        loki.put(xid(79, up), node="node-0")
        pass_time(w.s, 30 if up < 2 * DAY + 30 else 31, w.cloud, step=1)
    pass_time(w.s, 30, w.cloud, step=5)
    assert calls(w.s) == [("reboot", "m-0")]


def test_lines_that_a_dmesg_prints_again_and_again_agree_on_nothing(loki: loki_server.Server) -> None:
    """Its container is in a crash loop of 100 s, and so were the lines apart."""
    w = LogScene(loki, reading(REBOOT))
    ready_for(w, "node-0", 10 * DAY)
    w.start()
    for _ in range(8):
        for n in range(5):
            loki.put(xid(79, 2 * DAY + 100 * n), node="node-0", ago=1 - n / 1000)
        pass_time(w.s, 100, w.cloud, step=5)
    assert calls(w.s) == []


# ---------------------------------------------------------------- clocks of nodes that are minutes off


def clock_off(w: LogScene, seconds: float, boot_id: str = "m-0-boot-1") -> None:
    """The kubelet of node-0 writes, by its clock, that its machine is well."""
    now = f"{w.s.clock.true_time() + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
    (old,) = w.s.node("node-0")["status"]["conditions"]
    written = {"conditions": [old | {"lastHeartbeatTime": now}], "nodeInfo": {"bootID": boot_id}}
    patch_node(w.s, "node-0", {"status": written}, "status", "kubelet")


@pytest.mark.parametrize("line", [xid(79, 14500.0), xid(79).partition("] ")[2]], ids=["stamp", "no stamp"])
@pytest.mark.parametrize("ahead", [30, 300])
def test_a_line_of_the_boot_before_by_a_clock_that_is_ahead_treats_no_machine(
    loki: loki_server.Server, ahead: int, line: str
) -> None:
    w = log_scene(loki)
    clock_off(w, ahead)
    pass_time(w.s, 10, w.cloud, step=1)
    loki.put(line, node="node-0", ago=-ahead)
    pass_time(w.s, 20, w.cloud, step=1)
    clock_off(w, ahead, "m-0-boot-2")
    pass_time(w.s, 600, w.cloud, step=5)
    assert calls(w.s) == []


@pytest.mark.parametrize("behind", [30, 300])
def test_a_line_of_the_boot_of_now_by_a_clock_that_is_behind_is_a_fault(
    loki: loki_server.Server, behind: int
) -> None:
    w = log_scene(loki)
    clock_off(w, -behind)
    pass_time(w.s, 20, w.cloud, step=1)
    clock_off(w, -behind, "m-0-boot-2")
    pass_time(w.s, 10, w.cloud, step=1)
    loki.put(xid(79, 25.0), node="node-0", ago=behind)
    pass_time(w.s, 600, w.cloud, step=5)
    assert calls(w.s) == [("reboot", "m-0")]


@pytest.mark.parametrize("behind", [0, 30, 300])
def test_one_of_the_boot_before_by_such_a_clock_treats_no_machine(
    loki: loki_server.Server, behind: int
) -> None:
    w = log_scene(loki)
    clock_off(w, -behind)
    pass_time(w.s, 20, w.cloud, step=1)
    loki.put(xid(79, 25.0), node="node-0", ago=behind)  # a dmesg that was started anew has printed it
    loki.put(xid(79, 14500.0), node="node-0", ago=behind)
    w.s.clock.advance(20)
    clock_off(w, -behind, "m-0-boot-2")
    pass_time(w.s, 600, w.cloud, step=5)
    assert calls(w.s) == []
