"""A Prometheus server: several rows that state one fault, and series whose labels change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from recovery_testkit.clock import FakeClock

from recovery.model import Phase
from tests.builders.http_server import answering
from tests.stories.prometheus_server import Server, serving
from tests.stories.scenery import pass_time, to_the_end
from tests.stories.scenes import (
    NO_MARKS,
    another_leader,
    boot,
    calls,
    marked,
    patch_node,
    pause,
    phase,
    release_by_command,
    resume,
)
from tests.stories.test_fleet_loki import ready_now
from tests.stories.test_fleet_prometheus import IB, REBOOT, REPLACE, Scene, asking, scene

SOFT = '{name: soft, query: "max by (node) (soft)", node: node, bad: "> 0", type: Gpu, reason: GpuBad}'
HARD = SOFT.replace("soft", "hard").replace("}", ", latch: boot}")
ROWS = pytest.mark.parametrize("rows", [(SOFT, HARD), (HARD, SOFT)], ids=["soft first", "hard first"])
TOLERATED = "    after: 3m\n"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(FakeClock()) as made:
        yield made


# ---------------------------------------------------------------- two rows, one fault


def two_rows(server: Server, rows: tuple[str, ...], remedy: str = REPLACE, more: str = TOLERATED) -> Scene:
    """Both rows state the same fault: a good value ends that of the one, only a boot that of the other."""
    w = scene(server, asking(", ".join(rows), "{type: Gpu}", remedy, more))
    for node in w.names:
        server.put("soft", 0, node=node)
        server.put("hard", 0, node=node)
    pass_time(w.s, 60, w.cloud)
    return w


@ROWS
def test_what_only_a_boot_ends_is_not_ended_by_a_good_value_since_another_row_states_it_too(
    server: Server, rows: tuple[str, ...]
) -> None:
    w = two_rows(server, rows)
    server.put("hard", 1, node="node-0")
    pass_time(w.s, 60, w.cloud)
    server.put("hard", 0, node="node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([("replace", "m-0")], Phase.RECOVERED)


@ROWS
def test_a_flash_of_the_row_whose_fault_a_good_value_ends_takes_no_node_out(
    server: Server, rows: tuple[str, ...]
) -> None:
    w = two_rows(server, rows)
    server.put("soft", 1, node="node-0")
    pass_time(w.s, 60, w.cloud)
    server.put("soft", 0, node="node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([], Phase.WITHDRAWN)


@ROWS
def test_a_new_leader_that_does_not_know_which_row_stated_it_neither_ends_nor_treats_it(
    server: Server, rows: tuple[str, ...]
) -> None:
    w = two_rows(server, rows, more="")
    pause(w.s)
    server.put("soft", 1, node="node-0")
    pass_time(w.s, 60, w.cloud)
    server.put("soft", 0, node="node-0")
    another_leader(w.s)
    pass_time(w.s, 120, w.cloud)
    assert phase(w.s) is Phase.WAITING
    resume(w.s)
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([], Phase.HANDED_OVER)


@ROWS
@pytest.mark.parametrize("metric", ["soft", "hard"])
def test_a_boot_ends_what_either_row_has_stated(server: Server, rows: tuple[str, ...], metric: str) -> None:
    w = two_rows(server, rows, REBOOT, more="")
    server.put(metric, 1, node="node-0")
    pass_time(w.s, 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]
    for each in ("soft", "hard"):
        server.drop(each, node="node-0")
    pass_time(w.s, 30, w.cloud)
    boot(w.s, "node-0")
    for each in ("soft", "hard"):
        server.put(each, 0, node="node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s), marked(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED, NO_MARKS)


@pytest.mark.parametrize("first", [True, False], ids=["alerts first", "alerts last"])
def test_an_alert_that_goes_away_is_not_ended_by_a_row_of_its_name(server: Server, first: bool) -> None:
    own = SOFT.replace("type: Gpu,", "type: GpuBad,")
    rows = f"alerts, {own}" if first else f"{own}, alerts"
    w = scene(server, asking(rows, "{type: GpuBad}", more=TOLERATED), metric="soft")
    server.put("ALERTS", 1, alertname="GpuBad", alertstate="firing", node="node-0")
    pass_time(w.s, 60, w.cloud)
    server.drop("ALERTS")
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-0")]


@pytest.mark.parametrize("first", [True, False], ids=["alerts first", "alerts last"])
def test_a_gauge_that_is_bad_after_the_boot_is_no_old_word_though_an_alert_of_its_name_fires(
    server: Server, first: bool
) -> None:
    """The controller was started anew meanwhile, so that it does not know since when either says so."""
    own = SOFT.replace("type: Gpu,", "type: GpuBad,")
    w = scene(
        server,
        asking(f"alerts, {own}" if first else f"{own}, alerts", "{type: GpuBad}", REBOOT),
        metric="soft",
    )
    server.put("ALERTS", 1, alertname="GpuBad", alertstate="firing", node="node-0")
    server.put("soft", 1, node="node-0")
    pass_time(w.s, 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]
    server.drop("soft", node="node-0")
    pass_time(w.s, 30, w.cloud)
    boot(w.s, "node-0")
    server.put("soft", 1, node="node-0")
    another_leader(w.s)
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("reboot", "m-0"), ("replace", "m-0")]


# ---------------------------------------------------------------- labels that change

XID = (
    '{name: xid, query: DCGM_FI_DEV_XID_ERRORS, node: Hostname, bad: "!= 0", type: GpuXid, '
    "reason: GpuXidSeen, latch: boot}"
)


def states(w: Scene, node: str, xid: int, pod: str = "") -> None:
    """What dcgm-exporter says of a GPU, and Prometheus of the pod that it was given to."""
    w.server.drop("DCGM_FI_DEV_XID_ERRORS", Hostname=node)
    labels = {"Hostname": node, "gpu": "3", "UUID": "GPU-3"}
    labels |= {"err_code": str(xid), "err_msg": "No Error" if not xid else "GPU has fallen off the bus"}
    labels |= {"exported_pod": pod, "exported_namespace": "ml"} if pod else {}
    w.server.put("DCGM_FI_DEV_XID_ERRORS", xid, ago=0.0, **labels)


def exporting(server: Server, remedy: str) -> Scene:
    w = Scene(server, asking(XID, "{type: GpuXid}", remedy))
    for node in w.names:
        states(w, node, 0, "train-1")
    return w.start()


def test_a_reboot_is_proved_though_the_gpu_has_lost_its_pod_and_its_code_since(server: Server) -> None:
    w = exporting(server, REBOOT)
    states(w, "node-0", 79, "train-1")
    pass_time(w.s, 20, w.cloud)
    states(w, "node-0", 79)  # its pod was evicted
    pass_time(w.s, 30, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]
    w.server.drop("DCGM_FI_DEV_XID_ERRORS", Hostname="node-0")
    pass_time(w.s, 30, w.cloud)
    boot(w.s, "node-0")
    states(w, "node-0", 0)
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s), marked(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED, NO_MARKS)


def test_what_a_person_released_is_no_news_because_the_gpu_has_another_pod(server: Server) -> None:
    w = exporting(server, "{do: cordon}")
    states(w, "node-0", 79, "train-1")
    pass_time(w.s, 60, w.cloud)
    release_by_command(w.s)
    pass_time(w.s, 60, w.cloud)
    states(w, "node-0", 79, "train-2")
    pass_time(w.s, 120, w.cloud)
    assert (phase(w.s), marked(w.s)) == (Phase.RELEASED, NO_MARKS)


# ---------------------------------------------------------------- queries that look back

FLAPS = IB.replace("ib_dev", "max_over_time(ib_dev[30m])")
SLOWLY = "{do: drain, within: 10m, then: force}, {do: reboot, within: 2h}, {do: replace}"


class LookingBack(Server):
    """Says of ``max_over_time(ib_dev[30m])`` what was put there; which value that is, the story says."""

    def _evaluate(self, query: str, at: float, lookback: float) -> list[tuple[dict[str, str], str]]:
        return super()._evaluate(query.replace("max_over_time(ib_dev[30m])", "ib_dev"), at, lookback)


@pytest.fixture
def looking_back() -> Iterator[LookingBack]:
    made = LookingBack(FakeClock())
    with answering(made):
        yield made


def rebooted_for_flaps(server: Server) -> Scene:
    """A node that was bad within half an hour before the reboot that it got for that."""
    w = scene(server, asking(FLAPS, remedy=SLOWLY))
    pass_time(w.s, 31 * 60, w.cloud)
    server.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]
    boot(w.s, "node-0")
    pass_time(w.s, 25 * 60, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([("reboot", "m-0")], Phase.PROVING)
    return w


def test_what_a_query_still_says_of_the_time_before_the_boot_is_no_fault_of_this_one(
    looking_back: LookingBack,
) -> None:
    w = rebooted_for_flaps(looking_back)
    looking_back.put("ib_dev", 0, node="node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s), marked(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED, NO_MARKS)


def test_what_it_says_of_this_boot_alone_is_one(looking_back: LookingBack) -> None:
    w = rebooted_for_flaps(looking_back)
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("reboot", "m-0"), ("replace", "m-0")]


@pytest.mark.parametrize("by_itself", [False, True], ids=["rebooted", "booted by itself"])
@pytest.mark.parametrize("bad_on", [False, True], ids=["mended", "still bad"])
def test_a_controller_that_did_not_see_the_boot_goes_by_the_record(
    looking_back: LookingBack, by_itself: bool, bad_on: bool
) -> None:
    w = scene(looking_back, asking(FLAPS, remedy=SLOWLY))
    pass_time(w.s, 31 * 60, w.cloud)
    if by_itself:
        pause(w.s)
    looking_back.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 60, w.cloud)
    boot(w.s, "node-0")
    pass_time(w.s, 60, w.cloud)
    assert phase(w.s) is Phase.PROVING
    another_leader(w.s)
    if by_itself:
        resume(w.s)
    pass_time(w.s, 25 * 60, w.cloud)
    first = [] if by_itself else [("reboot", "m-0")]
    assert (calls(w.s), phase(w.s)) == (first, Phase.PROVING)
    if not bad_on:
        looking_back.put("ib_dev", 0, node="node-0")
    pass_time(w.s, 15 * 60, w.cloud)
    next_step = [("reboot" if by_itself else "replace", "m-0")] if bad_on else []
    assert calls(w.s) == first + next_step
    assert bad_on or phase(w.s) in (Phase.RECOVERED, Phase.WITHDRAWN)


def test_what_a_query_says_only_after_the_boot_may_be_of_the_time_before_it(
    looking_back: LookingBack,
) -> None:
    """A query that asks for what is above 0, of two minutes ago: of a node that is well it has no series."""
    w = Scene(looking_back, asking(FLAPS, remedy=SLOWLY))
    w.well("node-1", "node-2", "node-3")
    w.start()
    pass_time(w.s, 31 * 60, w.cloud)
    boot(w.s, "node-0")
    pass_time(w.s, 60, w.cloud)
    looking_back.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 25 * 60, w.cloud)
    assert calls(w.s) == []
    pass_time(w.s, 10 * 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]


def test_a_controller_that_did_not_see_the_boot_goes_by_since_when_the_node_is_ready(
    looking_back: LookingBack,
) -> None:
    """A person has rebooted it before there was a record."""
    w = scene(looking_back, asking(FLAPS, remedy=SLOWLY))
    pass_time(w.s, 31 * 60, w.cloud)
    looking_back.put("ib_dev", 3, node="node-0")
    boot(w.s, "node-0")
    ready_now(w, "node-0")
    pass_time(w.s, 60, w.cloud)
    another_leader(w.s)
    pass_time(w.s, 25 * 60, w.cloud)
    assert calls(w.s) == []
    another_leader(w.s)
    pass_time(w.s, 10 * 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]


GPU = FLAPS.replace("max_over_time(ib_dev[30m])", "gpu").replace("ib,", "gpu,").replace("IbDev", "Gpu")
TOLD = "  - {name: told, match: {type: IbDev}, remedy: [{do: notify}]}\n"


def test_what_looks_back_to_before_the_boot_silences_no_other_row(looking_back: LookingBack) -> None:
    w = scene(looking_back, asking(f"{FLAPS}, {GPU}", "{type: Gpu}", more=TOLERATED + TOLD))
    for node in w.names:
        looking_back.put("gpu", 0, node=node)
    pass_time(w.s, 31 * 60, w.cloud)
    looking_back.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 60, w.cloud)
    boot(w.s, "node-0")
    pass_time(w.s, 120, w.cloud)
    looking_back.put("gpu", 1, node="node-0")
    pass_time(w.s, 15 * 60, w.cloud)
    assert calls(w.s) == [("replace", "m-0")]


# ---------------------------------------------------------------- whose series it is


def test_a_series_that_names_no_node_is_not_that_of_the_node_with_an_empty_address(server: Server) -> None:
    w = scene(server, asking(IB.replace("(node)", "(node, instance)")))
    listed = [{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "ExternalDNS", "address": ""}]
    patch_node(w.s, "node-2", {"status": {"addresses": listed}}, "status")
    w.s.run(5)
    server.put("ib_dev", 3, job="x")
    server.put("ib_dev", 3, instance=":9100")
    pass_time(w.s, 300, w.cloud)
    assert (calls(w.s), w.s.record("node-2")) == ([], None)
