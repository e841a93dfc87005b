"""What the kernel's log in Loki says of the fleet: faults, repeats, silence, and lines that are nobody's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.stage import Stage

from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.errors import Refused
from recovery.model import Phase
from tests.builders.policies import HEAD
from tests.stories.loki_server import Server, serving, xid
from tests.stories.scenery import judge, pass_time, to_the_end
from tests.stories.scenes import (
    NO_MARKS,
    another_leader,
    boot,
    calls,
    controller,
    marked,
    messages,
    patch_node,
    phase,
    release_by_command,
    swap_record,
    the_record,
    value,
)
from tests.stories.test_one_controller import Group

REPLACE = "{do: drain, within: 10m, then: force}, {do: replace}"
REBOOT = "{do: drain, within: 10m, then: force}, {do: reboot}, {do: replace}"


def reading(remedy: str = REPLACE, match: str = "{source: loki, type: GpuXid}", more: str = "") -> bytes:
    rule = f"  - name: gpu\n    match: {match}\n    remedy: [{remedy}]\n    probation: 2m\n{more}"
    silent = "  - {name: silent, match: {type: SignalUnknown}, remedy: [{do: notify}]}\n"
    return f"{HEAD}sources: [conditions, loki]\nlimits: {{cooldown: 0s}}\nrules:\n{silent}{rule}".encode()


class Scene:
    """A fleet without agents, one controller, and a Loki that has the kernels' logs."""

    def __init__(self, server: Server, policy: bytes, count: int = 4) -> None:
        self.server = server
        self.s = Stage(policy)
        server.clock = self.s.clock
        self.s.loki = server.client()
        self.names = self.s.nodes(count)

    def start(self) -> Scene:
        self.s.fleet()
        self.cloud = Group(self.s)
        self.s.run(5)
        return self


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(FakeClock()) as made:
        yield made


def scene(server: Server, policy: bytes | None = None, count: int = 4) -> Scene:
    return Scene(server, policy or reading(), count).start()


# ---------------------------------------------------------------- faults


def test_an_xid_in_the_log_ends_in_one_replacement_without_an_agent_on_any_node(server: Server) -> None:
    w = scene(server)
    w.s.add_pod("train", "node-0")
    for up in (10.0, 10.5, 11.0):
        server.put(xid(79, up), node="node-0")
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-0")]
    assert phase(w.s) is Phase.RECOVERED
    assert [w.s.record(name) for name in w.names[1:]] == [None] * 3
    judge(w.s)


def test_what_an_application_or_a_victim_states_takes_no_node_out(server: Server) -> None:
    w = scene(server, reading(match="{source: loki}"))
    for node, code in zip(w.names, (13, 31, 45, 145), strict=True):
        for n in range(50):
            server.put(xid(code, 10.0 + n), node=node)
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), [w.s.record(name) for name in w.names]) == ([], [None] * 4)


def test_a_rule_may_count_what_is_only_told(server: Server) -> None:
    match = "{source: loki, reason: GpuXid31, times: {count: 3, within: 10m}}"
    w = scene(server, reading(match=match))
    for n in range(3):
        server.put(xid(31, 10.0 + n), node="node-0")
        server.put(xid(31, 10.0), node="node-1", ago=60 * n)
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-0")], "one line that is shipped three times is one"


def test_a_reboot_ends_what_was_stated_before_it(server: Server) -> None:
    w = scene(server, reading(REBOOT))
    server.put(xid(119, 500.0), node="node-0")
    pass_time(w.s, 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]
    server.put(xid(119, 505.0), node="node-0")
    w.s.clock.advance(30)
    boot(w.s, "node-0")
    server.put(xid(119, 510.0), node="node-0", ago=20)  # the end of the boot before, shipped late
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s), marked(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED, NO_MARKS)


def test_the_same_line_in_the_new_boot_goes_on_to_the_next_step(server: Server) -> None:
    w = scene(server, reading(REBOOT))
    server.put(xid(119, 500.0), node="node-0")
    pass_time(w.s, 60, w.cloud)
    boot(w.s, "node-0")
    pass_time(w.s, 30, w.cloud)
    server.put(xid(119, 20.0), node="node-0")
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("reboot", "m-0"), ("replace", "m-0")]
    judge(w.s)


def test_no_silence_of_the_log_ends_a_fault(server: Server) -> None:
    w = scene(server, reading(more="    after: 30m\n"))
    server.put(xid(79), node="node-0")
    pass_time(w.s, 30, w.cloud)
    assert phase(w.s) is Phase.SUSPECT
    server.lines.clear()
    pass_time(w.s, 1500, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([], Phase.SUSPECT)
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-0")]


# ---------------------------------------------------------------- who reads


def test_who_takes_over_has_lost_no_line_and_acts_on_none_twice(server: Server) -> None:
    w = scene(server, reading(REBOOT))
    w.s.fleet("second")
    w.s.run(30)
    server.put(xid(119, 500.0), node="node-0")
    pass_time(w.s, 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]
    w.s.kill(w.s.actors["controller"])
    server.put(xid(79, 700.0), node="node-1")
    boot(w.s, "node-0")
    pass_time(w.s, 300, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([("reboot", "m-0"), ("reboot", "m-1")], Phase.RECOVERED)
    boot(w.s, "node-1", "m-1-boot-2")
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("reboot", "m-0"), ("reboot", "m-1")]
    judge(w.s)


@pytest.mark.parametrize("booted_since", [False, True])
def test_a_controller_that_was_down_finds_what_was_logged_in_the_boot_of_now(
    server: Server, booted_since: bool
) -> None:
    w = scene(server)
    ready_now(w, "node-0")
    w.s.kill(w.s.actors["controller"])
    w.s.clock.advance(300)
    server.put(xid(79), node="node-0")
    w.s.clock.advance(60)
    if booted_since:
        boot(w.s, "node-0")
        ready_now(w, "node-0")
    w.s.clock.advance(240)
    w.s.fleet("second")
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == ([] if booted_since else [("replace", "m-0")])


def ready_now(w: Scene, node: str) -> None:
    now = f"{w.s.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now}
    patch_node(w.s, node, {"status": {"conditions": [condition]}}, "status", "kubelet")


def test_a_release_is_not_undone_by_a_controller_that_reads_the_same_lines_again(server: Server) -> None:
    w = scene(server, reading("{do: drain, within: 10m, then: force}"))
    ready_now(w, "node-0")
    server.put(xid(79), node="node-0")
    pass_time(w.s, 120, w.cloud)
    assert phase(w.s) is Phase.HANDED_OVER
    swap_record(w.s, close(the_record(w.s), w.s.clock.true_time(), Event.RELEASED, "released by ada"))
    pass_time(w.s, 60, w.cloud)
    w.s.kill(w.s.actors["controller"])
    w.s.fleet("second")
    server.put(xid(79), node="node-0")  # by a dmesg that was started anew
    pass_time(w.s, 300, w.cloud)
    assert (phase(w.s), marked(w.s)) == (Phase.RELEASED, NO_MARKS)


# ---------------------------------------------------------------- what is not known


def test_a_loki_that_is_down_is_told_and_nothing_is_done_or_ended(server: Server) -> None:
    w = scene(server, reading(more="    after: 5m\n"))
    server.put(xid(79), node="node-0")
    pass_time(w.s, 40, w.cloud)
    assert phase(w.s) is Phase.SUSPECT
    server.answer = (503, b"too many outstanding requests\n")
    pass_time(w.s, 780, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([], Phase.RECOVERING)
    assert any("nothing is known from loki: Loki: the server answers 503" in m for m in told(w))
    assert value(controller(w.s), "node_recovery_loki_unknown") == 1
    assert w.s.record("node-1") is None
    server.answer = None
    server.put(xid(119), node="node-1", ago=600)  # it was logged while nobody could read it
    to_the_end(w.s, w.cloud)
    assert value(controller(w.s), "node_recovery_loki_unknown") == 0
    assert sorted(calls(w.s)) == [("replace", "m-0"), ("replace", "m-1")]


def told(w: Scene) -> list[str]:
    return [m for reason in ("FaultSeen", "RecoveryHeld") for m in messages(w.s, reason)]


def test_lines_that_are_nobodys_are_told_and_counted(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    w = scene(server)
    server.put(xid(79), node="node-9")
    server.put(xid(79))
    server.put(xid(79), node="10.0.0.1")  # the nodes of the stage have one address
    pass_time(w.s, 300, w.cloud)
    assert calls(w.s) == []
    assert value(controller(w.s), "node_recovery_loki_unresolved_lines_total") == 3
    said = [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and "Loki" in r.getMessage()]
    assert sorted(said) == [
        "Loki: 10.0.0.1 is the address of several Nodes",
        "Loki: a line names no node",
        "Loki: node-9 is no Node, and no Node's address",
    ]


def test_a_line_that_is_read_before_its_node_is_known_counts_once_it_is(server: Server) -> None:
    w = scene(server)
    server.put(xid(79), node="node-8")
    pass_time(w.s, 20, w.cloud)
    w.s.add_node("node-8", "m-8")
    w.s.clock.advance(1)
    server.put(xid(79, 1235799.0), node="node-8")
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-8")]


def test_a_line_of_days_ago_that_a_new_dmesg_prints_once_more_takes_no_node_out(server: Server) -> None:
    """The controller has seen the node in this boot for three hours, so what the kernel stamped 1000 s after
    the boot was written two hours ago at least."""
    w = scene(server)
    ready_now(w, "node-0")
    pass_time(w.s, 3 * 3600, w.cloud, step=30)
    server.put(xid(79, 1000.0), node="node-0")  # the DaemonSet of ``dmesg -w`` is rolled out
    pass_time(w.s, 600, w.cloud)
    assert (calls(w.s), w.s.record("node-0")) == ([], None)


def test_a_release_is_not_undone_by_a_new_controller_and_a_new_dmesg(server: Server) -> None:
    w = scene(server, reading("{do: drain, within: 10m, then: force}"))
    ready_now(w, "node-0")
    server.put(xid(48, 1000.0), node="node-0")
    pass_time(w.s, 120, w.cloud)
    assert phase(w.s) is Phase.HANDED_OVER
    swap_record(w.s, close(the_record(w.s), w.s.clock.true_time(), Event.RELEASED, "released by ada"))
    pass_time(w.s, 20 * 60, w.cloud, step=10)
    w.s.kill(w.s.actors["controller"])
    w.s.fleet("second")  # an upgrade
    pass_time(w.s, 2 * 3600, w.cloud, step=30)
    server.put(xid(48, 1000.0), node="node-0")  # the very line that was released, from a new dmesg
    pass_time(w.s, 300, w.cloud)
    assert (phase(w.s), marked(w.s)) == (Phase.RELEASED, NO_MARKS)


def test_lines_that_a_rule_counts_are_new_after_a_release_though_it_was_never_quiet(server: Server) -> None:
    match = "{source: loki, reason: GpuXid31, times: {count: 3, within: 10m}}"
    w = scene(server, reading(match=match))
    w.s.provider.preflight_error = Refused("not allowed")

    def written(first: float, times: int) -> None:
        for n in range(times):
            server.put(xid(31, first + n), node="node-0")
            pass_time(w.s, 20, w.cloud)

    written(10.0, 3)
    assert phase(w.s) is Phase.HANDED_OVER
    release_by_command(w.s)
    written(100.0, 2)
    assert (phase(w.s), calls(w.s)) == (Phase.RELEASED, [])
    written(200.0, 1)
    assert calls(w.s) == [("replace", "m-0")]


# ---------------------------------------------------------------- after a boot in which the Node stayed Ready


def rebooted_while_ready(server: Server) -> Scene:
    """Long after the nodes were Ready one has an XID. It is rebooted so fast that it stays Ready, and a
    controller that is started anew sees nothing of a boot."""
    w = scene(server, reading(REBOOT))
    ready_since = {"type": "Ready", "lastTransitionTime": f"{w.s.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"}
    for name in w.names:
        (old,) = w.s.node(name)["status"]["conditions"]
        patch_node(w.s, name, {"status": {"conditions": [old | ready_since]}}, "status", "kubelet")
    pass_time(w.s, 1200, w.cloud, step=60)
    server.put(xid(79, 1100.0), node="node-0")
    pass_time(w.s, 60, w.cloud, step=1)
    assert calls(w.s) == [("reboot", "m-0")]
    boot(w.s, "node-0")
    pass_time(w.s, 20, w.cloud, step=1)
    assert phase(w.s) is Phase.PROVING
    return w


@pytest.mark.parametrize("proved", [False, True])
def test_a_line_from_before_the_boot_treats_no_machine_again_that_a_new_controller_finds_ready(
    server: Server, proved: bool
) -> None:
    w = rebooted_while_ready(server)
    if proved:
        pass_time(w.s, 150, w.cloud, step=1)
        assert phase(w.s) is Phase.RECOVERED
    another_leader(w.s)
    pass_time(w.s, 300, w.cloud, step=5)
    assert (calls(w.s), phase(w.s), marked(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED, NO_MARKS)
    judge(w.s)


@pytest.mark.parametrize("proved", [False, True])
def test_a_line_that_came_after_the_boot_is_a_fault_to_a_new_controller(server: Server, proved: bool) -> None:
    w = rebooted_while_ready(server)
    if proved:
        pass_time(w.s, 150, w.cloud, step=1)
    controller(w.s).alive = False
    pass_time(w.s, 10, w.cloud, step=1)
    server.put(xid(79).partition("] ")[2], node="node-0")
    pass_time(w.s, 10, w.cloud, step=1)
    another_leader(w.s)
    pass_time(w.s, 120, w.cloud, step=2)
    assert calls(w.s)[1:] == [("replace", "m-0")]
