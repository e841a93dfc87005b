"""A second source states what another has stated: is it only late to say so?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.stage import Page, Stage

from recovery.errors import Refused, Unreadable
from recovery.model import Phase
from tests.builders.exporters import dcgm_page
from tests.stories import prometheus_server
from tests.stories import test_fleet_prometheus as fleet_prometheus
from tests.stories.loki_server import Server, serving, xid
from tests.stories.scenery import pass_time
from tests.stories.scenes import (
    calls,
    cast,
    messages,
    phase,
    release_by_command,
    remove_pod,
    sayings,
    stubborn_pod,
    the_record,
)
from tests.stories.test_conditions import writes
from tests.stories.test_exporters import exporter, policy
from tests.stories.test_fleet_loki import scene

REPLACED = [("replace", "m-0")]


def line(times: int) -> bytes:
    """node-problem-detector's page, whose rule has found XID 79 in the kernel's log so many times."""
    page = f'problem_counter{{reason="GpuXid79"}} {times}\nproblem_counter{{reason="GpuXid48"}} 0\n'
    page += f'problem_gauge{{reason="GpuXid79",type="GpuXid"}} {min(times, 1)}\n'
    return (page + 'problem_gauge{reason="GpuXid48",type="GpuXid"} 0\n').encode()


def staged(match: str) -> tuple[Stage, Page]:
    s = cast(policy(match), agents=0)
    page = exporter(s, dcgm_page())
    s.pages["node-0"].body = line(0)
    s.agent("node-0")
    s.run(60, step=5)
    return s, page


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(FakeClock()) as one:
        yield one


def test_a_rule_for_one_source_treats_what_another_was_only_reported_to_say() -> None:
    s, page = staged("{source: dcgm, reason: GpuXid79}")
    s.pages["node-0"].body = line(1)
    s.run(3)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    page.body = dcgm_page(xids={5: 79})
    s.run(60)
    assert calls(s) == REPLACED


def test_a_rule_for_the_log_treats_its_lines_after_a_condition_that_no_rule_speaks_of(server: Server) -> None:
    w = scene(server)
    pass_time(w.s, 30, w.cloud)
    writes(w.s, ("GpuXid", "True", "GpuXid79"))
    pass_time(w.s, 60, w.cloud)
    assert (phase(w.s), calls(w.s)) == (Phase.HANDED_OVER, [])
    server.put(xid(79, 40.0), node="node-0")
    pass_time(w.s, 60, w.cloud)
    assert calls(w.s) == REPLACED


def test_what_no_rule_treats_of_either_source_is_told_once() -> None:
    s, page = staged("{source: dcgm, reason: GpuXid48}")
    s.pages["node-0"].body = line(1)
    s.run(3)
    page.body = dcgm_page(xids={5: 79})
    s.run(60)
    assert (phase(s), calls(s), sayings(s, "FaultSeen")) == (Phase.HANDED_OVER, [], 1)
    assert [f.treated for f in the_record(s).acknowledged] == [False, False]


def released_of_the_kernels_line() -> tuple[Stage, Page]:
    """The exporter's page could not be read as the kernel wrote its line, and a new one shows no past."""
    s, page = staged("{type: GpuXid}")
    s.provider.preflight_error = Refused("not allowed")
    page.error = Unreadable("refused")
    s.pages["node-0"].body = line(1)
    s.run(60)
    page.error = None
    s.run(60, step=5)
    assert phase(s) is Phase.HANDED_OVER
    release_by_command(s)
    s.run(60, step=5)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])
    return s, page


def two_witnesses(server: prometheus_server.Server, more: str = "") -> fleet_prometheus.Scene:
    """Prometheus and a condition state one fault of node-0, whose pod may not be evicted yet."""
    w = fleet_prometheus.scene(server, fleet_prometheus.asking(match="{}", more=more))
    stubborn_pod(w.s)
    server.put("ib_dev", 3, node="node-0")
    for _ in range(3):
        writes(w.s, ("IbDev", "True", "IbDevBad"))
        pass_time(w.s, 30, w.cloud, step=5)
    assert {f.source for f in the_record(w.s).faults} == {"prometheus", "conditions"}
    return w


@pytest.mark.parametrize("more", ["", "    after: 5m\n"], ids=["before the call", "while it is tolerated"])
def test_the_silence_of_one_source_holds_no_step_while_another_states_the_fault(more: str) -> None:
    with prometheus_server.serving(FakeClock()) as server:
        w = two_witnesses(server, more)
        server.respond = lambda *_: (503, b"")  # type: ignore[method-assign]
        for _ in range(7):
            writes(w.s, ("IbDev", "True", "IbDevBad"))
            pass_time(w.s, 60, step=5)
        remove_pod(w.s)
        pass_time(w.s, 60, step=5)
        assert calls(w.s) == REPLACED


def test_a_source_that_is_well_again_holds_the_step_though_another_says_nothing() -> None:
    """The condition is good, which counts once it is renewed; the server that states the fault is away."""
    with prometheus_server.serving(FakeClock()) as server:
        w = two_witnesses(server)
        server.respond = lambda *_: (503, b"")  # type: ignore[method-assign]
        pass_time(w.s, 60, w.cloud, step=5)
        writes(w.s, ("IbDev", "False", "IbDevGood"))
        remove_pod(w.s)
        pass_time(w.s, 120, w.cloud, step=5)
        assert calls(w.s) == []


def test_what_a_second_source_states_days_after_a_release_is_a_fault_of_its_own() -> None:
    s, page = released_of_the_kernels_line()
    s.run(2 * 86400, step=600)
    page.body = dcgm_page(xids={5: 79})
    s.run(120, step=5)
    assert calls(s) == REPLACED


def test_what_a_second_source_states_soon_after_a_release_is_what_was_released() -> None:
    s, page = released_of_the_kernels_line()
    s.run(1800, step=30)
    page.body = dcgm_page(xids={5: 79})
    s.run(120, step=5)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


@pytest.mark.parametrize("released", [False, True])
def test_the_silence_of_each_source_is_told_by_itself(released: bool) -> None:
    s, page = staged("{type: GpuXid}")
    page.error = Unreadable("refused")
    s.run(900, step=5)
    assert (phase(s), [f.source for f in the_record(s).faults]) == (Phase.HANDED_OVER, ["dcgm"])
    if released:
        release_by_command(s)
        s.run(60, step=5)
    s.pages["node-0"].error = Unreadable("the detector is dead")
    s.run(900, step=5)
    assert (phase(s), [f.source for f in the_record(s).faults]) == (Phase.HANDED_OVER, ["npd"])
    assert [x for x in messages(s, "HandedOver") if x.startswith("nothing is known from npd")]
    s.pages["node-0"].error = None
    s.run(60, step=5)
    assert phase(s) is (Phase.WITHDRAWN if released else Phase.HANDED_OVER)
    assert released or [f.source for f in the_record(s).faults] == ["dcgm"]
