"""What a Prometheus server says of the fleet: faults, flashes, silence, and series that are nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.kubefaults import Asked, Effect, refused, server_error, throttled
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.builders.http_server import answering
from tests.builders.policies import HEAD
from tests.stories.prometheus_server import Server, serving
from tests.stories.scenery import RECORDS, Slow, judge, pass_time, records, to_the_end
from tests.stories.scenes import (
    NO_MARKS,
    another_leader,
    boot,
    calls,
    controller,
    label,
    marked,
    messages,
    patch_node,
    pause,
    phase,
    release_by_command,
    the_record,
    value,
)
from tests.stories.test_one_controller import Group

IB = '{name: ib, query: "max by (node) (ib_dev)", node: node, bad: "> 0", type: IbDev, reason: IbDevBad}'
REPLACE = "{do: drain, within: 10m, then: force}, {do: replace}"
REBOOT = "{do: drain, within: 10m, then: force}, {do: reboot}, {do: replace}"


def asking(
    row: str = IB, match: str = "{source: prometheus}", remedy: str = REPLACE, more: str = ""
) -> bytes:
    rule = f"  - name: hardware\n    match: {match}\n    remedy: [{remedy}]\n    probation: 2m\n{more}"
    silent = "  - {name: silent, match: {type: SignalUnknown}, remedy: [{do: notify}]}\n"
    sources = f"sources: [conditions, {{prometheus: {{rows: [{row}]}}}}]"
    return f"{HEAD}{sources}\nlimits: {{cooldown: 0s}}\nrules:\n{silent}{rule}".encode()


class Scene:
    """A fleet without agents, one controller, and a Prometheus server that scrapes every 15 s."""

    def __init__(self, server: Server, policy: bytes, count: int = 4, metric: str = "ib_dev") -> None:
        self.server = server
        self.s = Stage(policy)
        server.clock = self.s.clock
        self.s.prometheus = server.client()
        self.names = self.s.nodes(count)
        self.metric = metric

    def start(self) -> Scene:
        self.s.fleet()
        self.cloud = Group(self.s)
        self.s.run(5)
        return self

    def well(self, *nodes: str) -> None:
        for node in nodes or self.names:
            self.server.put(self.metric, 0, node=node)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(FakeClock()) as made:
        yield made


def scene(server: Server, policy: bytes | None = None, count: int = 4, metric: str = "ib_dev") -> Scene:
    made = Scene(server, policy or asking(), count, metric)
    made.well()
    return made.start()


# ---------------------------------------------------------------- faults


def test_a_bad_value_ends_in_a_replacement_without_an_agent_on_any_node(server: Server) -> None:
    w = scene(server)
    w.server.put("ib_dev", 3, node="node-0")
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-0")]
    assert phase(w.s) is Phase.RECOVERED
    judge(w.s)


def test_a_value_that_is_bad_when_the_controller_starts_is_a_fault(server: Server) -> None:
    w = Scene(server, asking())
    w.well("node-1", "node-2", "node-3")
    w.server.put("ib_dev", 3, node="node-0")
    w.start()
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-0")]


def test_nothing_starts_before_all_that_fail_at_once_are_on_record_however_slow_the_api_server_is(
    server: Server,
) -> None:
    """No condition shows it, so that only their records count: two in three are sick (law 10)."""
    limits = b"cooldown: 0s, brake: 30%, budget: 5, budgetPer: {}"
    w = Scene(server, asking(match="{}").replace(b"cooldown: 0s", limits), 30)
    w.well()
    slow = Slow(w.s)
    w.start()
    for node in w.names[:20]:
        w.server.put("ib_dev", 3, node=node)
    slow.seconds = 0.2
    pass_time(w.s, 60, w.cloud, step=1)
    assert (calls(w.s), set(records(w.s).values()), len(records(w.s))) == ([], {"waiting"}, 20)


CROWD = asking(match="{}", remedy="{do: replace}").replace(
    b"cooldown: 0s", b"cooldown: 0s, brake: 30%, budget: 5, budgetPer: {}"
)


def turned_away(w: Scene, effect: Effect, times: int, *but: str) -> None:
    """So many records are not created: ``effect``. Those of the nodes ``but`` are."""

    def creates(a: Asked) -> bool:
        return (a.method, a.path) == ("POST", RECORDS) and a.body["metadata"]["name"] not in but

    w.s.api.fail_next(creates, effect, times=times)


@pytest.mark.parametrize("effect", [throttled(1), server_error()], ids=["429", "500"])
def test_nothing_starts_while_the_records_of_others_that_fail_at_once_are_turned_away(
    server: Server, effect: Effect
) -> None:
    """So does an API server that gets twenty of them at once."""
    w = scene(server, CROWD, count=30)
    turned_away(w, effect, 18, "node-0", "node-1")
    for node in w.names[:20]:
        w.server.put("ib_dev", 3, node=node)
    pass_time(w.s, 60, w.cloud, step=1)
    assert w.s.api.pending == 0
    assert (calls(w.s), set(records(w.s).values()), len(records(w.s))) == ([], {"waiting"}, 20)


def test_a_node_whose_record_is_never_written_keeps_no_other_from_its_recovery(server: Server) -> None:
    w = scene(server, CROWD, count=30)
    turned_away(w, refused(422, "Invalid", "no such field"), 9999, "node-0", "node-2")
    w.server.put("ib_dev", 3, node="node-1")
    pass_time(w.s, 20, w.cloud, step=1)
    w.server.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 90, w.cloud, step=1)
    assert calls(w.s) == [("replace", "m-0")]
    w.server.put("ib_dev", 3, node="node-2")
    pass_time(w.s, 30, w.cloud, step=1)
    assert calls(w.s) == [("replace", "m-0"), ("replace", "m-2")]


def test_an_alert_that_fires_ends_in_a_drain_and_a_replacement(server: Server) -> None:
    w = scene(server, asking("alerts", "{type: GpuFellOffTheBus}"))
    w.s.add_pod("train", "node-0")
    w.server.put(
        "ALERTS", 1, alertname="GpuFellOffTheBus", alertstate="firing", node="node-0", severity="page"
    )
    w.server.put("ALERTS", 1, alertname="GpuFellOffTheBus", alertstate="pending", node="node-1")
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-0")]
    assert phase(w.s) is Phase.RECOVERED
    assert w.s.record("node-1") is None
    judge(w.s)


def test_an_alert_that_is_over_has_mended_nothing(server: Server) -> None:
    w = scene(server, asking("alerts", "{type: GpuHot}", more="    after: 2m\n"))
    w.server.put("ALERTS", 1, alertname="GpuHot", alertstate="firing", node="node-0")
    pass_time(w.s, 60, w.cloud)
    w.server.drop("ALERTS")
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-0")]


def test_an_alert_that_looks_back_is_no_reason_to_replace_what_was_rebooted(server: Server) -> None:
    w = scene(server, asking("alerts", "{type: GpuHot}", REBOOT))
    w.server.put("ALERTS", 1, alertname="GpuHot", alertstate="firing", node="node-0")
    pass_time(w.s, 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]
    boot(w.s, "node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s), marked(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED, NO_MARKS)
    w.server.drop("ALERTS")
    pass_time(w.s, 1800, w.cloud)
    w.server.put("ALERTS", 1, alertname="GpuHot", alertstate="firing", node="node-0")  # it is news by now
    pass_time(w.s, 300, w.cloud)
    assert calls(w.s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_a_gauge_that_is_still_bad_after_the_boot_goes_on_to_the_next_step(server: Server) -> None:
    w = scene(server, asking(remedy=REBOOT))
    w.server.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 60, w.cloud)
    assert calls(w.s) == [("reboot", "m-0")]
    boot(w.s, "node-0")
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("reboot", "m-0"), ("replace", "m-0")]
    judge(w.s)


def test_a_reboot_is_proved_only_once_the_node_was_scraped_in_its_new_boot(server: Server) -> None:
    w = scene(server, asking(remedy=REBOOT))
    w.server.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 60, w.cloud)
    w.server.drop("ib_dev", node="node-0")
    boot(w.s, "node-0")
    pass_time(w.s, 300, w.cloud)
    assert phase(w.s) is Phase.PROVING
    w.well("node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s), marked(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED, NO_MARKS)


def test_a_reboot_is_not_proved_by_a_controller_that_has_never_seen_the_series_that_was_bad(
    server: Server,
) -> None:
    """It was started in the middle of the reboot, after which the exporter did not come up again."""
    w = scene(server, asking(remedy=REBOOT))
    w.server.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 60, w.cloud)
    w.server.drop("ib_dev", node="node-0")
    another_leader(w.s)
    boot(w.s, "node-0")
    pass_time(w.s, 300, w.cloud)
    why = "probation: Prometheus, row ib: no series says anything of IbDevBad since the node was booted"
    view = controller(w.s).replica.view("node-0")
    assert not isinstance(view, str)
    assert phase(w.s) is Phase.PROVING
    assert view.decision.reason.startswith(why)
    w.well("node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s), marked(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED, NO_MARKS)


def test_whose_series_never_comes_again_after_its_reboot_is_a_persons(server: Server) -> None:
    w = scene(server, asking(remedy="{do: reboot, within: 10m}"))
    w.server.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 60, w.cloud)
    w.server.drop("ib_dev", node="node-0")
    another_leader(w.s)
    boot(w.s, "node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([("reboot", "m-0")], Phase.HANDED_OVER)
    assert "was not proved within" in the_record(w.s).sentence


def test_an_alert_that_a_reboot_has_ended_is_proved_by_a_controller_that_never_saw_it(server: Server) -> None:
    w = scene(server, asking("alerts", "{type: GpuHot}", REBOOT))
    w.server.put("ALERTS", 1, alertname="GpuHot", alertstate="firing", node="node-0")
    pass_time(w.s, 60, w.cloud)
    w.server.drop("ALERTS")
    another_leader(w.s)
    boot(w.s, "node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s), marked(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED, NO_MARKS)


# ---------------------------------------------------------------- what is over, and what is not known


def test_a_flash_is_tolerated_for_as_long_as_the_rule_says(server: Server) -> None:
    w = scene(server, asking(more="    after: 2m\n"))
    w.server.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 20, w.cloud)
    assert phase(w.s) is Phase.SUSPECT
    w.well("node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s), marked(w.s)) == ([], Phase.WITHDRAWN, NO_MARKS)


def test_the_rows_own_hold_keeps_a_fault_that_comes_and_goes(server: Server) -> None:
    w = scene(server, asking(IB[:-1] + ", hold: 10m, latch: source}", more="    after: 5m\n"))
    for _ in range(4):
        w.server.put("ib_dev", 3, node="node-0")
        pass_time(w.s, 30, w.cloud, step=5)
        w.well("node-0")
        pass_time(w.s, 60, w.cloud, step=5)
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-0")]


@pytest.mark.parametrize("how", ["vanishes", "stale", "nan", "warned of", "partial", "refused"])
def test_what_is_not_known_neither_ends_a_fault_nor_treats_it(server: Server, how: str) -> None:
    w = scene(server, asking(more="    after: 5m\n"))
    w.server.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 40, w.cloud)
    assert phase(w.s) is Phase.SUSPECT
    if how == "vanishes":
        w.server.drop("ib_dev", node="node-0")
    elif how == "stale":
        w.server.scrapes = False
    elif how == "nan":
        w.server.put("ib_dev", "NaN", node="node-0")
    elif how == "refused":
        w.server.answer = (503, b"{}")
    else:
        w.server.more = {"warnings": ["cut"]} if how == "warned of" else {"isPartial": True}
    pass_time(w.s, 900, w.cloud)
    assert calls(w.s) == []
    assert marked(w.s) == NO_MARKS
    assert phase(w.s) not in (Phase.WITHDRAWN, Phase.RECOVERED)
    assert any("nothing is known from prometheus" in m for m in messages(w.s, "FaultSeen"))


class StandsStill(Server):
    """From some moment on it answers as of then: a cache in front of it, or a clock that was set back."""

    still: float | None = None
    ahead = 0.0

    def _now(self) -> float:
        return super()._now() + self.ahead if self.still is None else self.still


@pytest.fixture
def stands_still() -> Iterator[StandsStill]:
    made = StandsStill(FakeClock())
    with answering(made):
        yield made


def test_old_answers_that_look_new_say_nothing_of_a_machine_that_was_mended_since(
    stands_still: StandsStill,
) -> None:
    w = scene(stands_still, asking(remedy=REBOOT))
    w.server.put("ib_dev", 3, node="node-0")
    pass_time(w.s, 60, w.cloud)
    stands_still.still = stands_still._now()
    pass_time(w.s, 40, w.cloud)
    boot(w.s, "node-0")
    pass_time(w.s, 300, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([("reboot", "m-0")], Phase.PROVING)
    w.well("node-0")
    stands_still.still = None
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED)


def test_answers_that_do_not_get_newer_are_told_and_a_clock_that_goes_on_is_believed(
    stands_still: StandsStill,
) -> None:
    w = scene(stands_still)
    stands_still.still = stands_still._now() - 3600
    pass_time(w.s, 900, w.cloud)
    assert {f.type for name in w.names if (r := w.s.record(name)) for f in r.faults} == {"SignalUnknown"}
    stands_still.still = None
    pass_time(w.s, 120, w.cloud)
    w.server.put("ib_dev", 3, node="node-1")
    pass_time(w.s, 600, w.cloud)
    assert calls(w.s) == [("replace", "m-1")]


def test_a_servers_clock_that_was_put_right_is_believed_at_once(stands_still: StandsStill) -> None:
    w = scene(stands_still)
    stands_still.ahead = 86400.0
    pass_time(w.s, 60, w.cloud)
    stands_still.ahead = 0.0
    w.well()
    w.server.put("ib_dev", 3, node="node-1")
    pass_time(w.s, 120, w.cloud)
    assert calls(w.s) == [("replace", "m-1")]


def test_a_healthy_node_whose_series_vanishes_is_told_after_ten_minutes_and_left_alone(
    server: Server,
) -> None:
    w = scene(server)
    w.server.drop("ib_dev", node="node-0")
    pass_time(w.s, 900, w.cloud)
    assert calls(w.s) == []
    record = w.s.record("node-0")
    assert record is not None
    assert [f.type for f in record.faults] == ["SignalUnknown"]
    assert w.s.record("node-1") is None
    w.well("node-0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), marked(w.s)) == ([], NO_MARKS)


def test_a_server_that_is_down_is_told_and_nothing_is_done(server: Server) -> None:
    w = scene(server)
    w.server.answer = (503, b"{}")
    pass_time(w.s, 1200, w.cloud)
    assert calls(w.s) == []
    assert value(controller(w.s), "node_recovery_prometheus_unknown", row="ib") == 1
    assert {f.type for name in w.names if (r := w.s.record(name)) for f in r.faults} == {"SignalUnknown"}
    w.server.answer = None
    pass_time(w.s, 60, w.cloud)
    assert value(controller(w.s), "node_recovery_prometheus_unknown", row="ib") == 0
    w.server.put("ib_dev", 3, node="node-1")
    pass_time(w.s, 600, w.cloud)
    assert calls(w.s) == [("replace", "m-1")]


def test_of_a_large_fleet_a_silent_server_is_told_once_and_not_on_each_node(server: Server) -> None:
    w = scene(server, count=25)
    w.server.drop("ib_dev")
    pass_time(w.s, 1200, w.cloud)
    assert value(controller(w.s), "node_recovery_prometheus_unknown", row="ib") == 1
    assert all(w.s.record(name) is None for name in w.names)
    assert sum(c.agents for c in controller(w.s).replica.controllers) == 0


def test_other_sources_go_on_while_the_server_is_silent(server: Server) -> None:
    w = scene(
        server,
        asking(match="{}", more="limits: {cooldown: 0s, brake: 100%}\n").replace(
            b"limits: {cooldown: 0s}\n", b"", 1
        ),
    )
    w.server.answer = (503, b"{}")
    pass_time(w.s, 120, w.cloud)
    now = f"{w.s.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"
    stated = {"type": "GpuCount", "status": "True", "reason": "GpuCountBad", "lastHeartbeatTime": now}
    patch_node(
        w.s, "node-0", {"status": {"conditions": [{"type": "Ready", "status": "True"}, stated]}}, "status"
    )
    pass_time(w.s, 240, w.cloud)
    assert calls(w.s) == [("replace", "m-0")]


# ---------------------------------------------------------------- whose series it is


def addressed(w: Scene, node: str, *addresses: str) -> None:
    listed = [{"type": "InternalIP", "address": a} for a in addresses]
    patch_node(w.s, node, {"status": {"addresses": listed}}, "status")


def test_a_series_of_no_node_or_of_several_is_nobodys_and_told(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    w = scene(server, asking(IB.replace("(node)", "(node, instance)")))
    addressed(w, "node-2", "10.0.0.2")
    w.s.run(5)
    for nobody in ("node-9", "10.0.0.1:9100"):  # all but one node of the stage have this address
        w.server.put("ib_dev", 3, node=nobody)
    w.server.put("ib_dev", 3, instance="10.0.0.1:9100")
    w.server.put("ib_dev", 3, node="node-8", instance="10.0.0.2:9100")  # of a machine that had the address
    w.server.put("ib_dev", 3, job="x")
    pass_time(w.s, 600, w.cloud)
    assert calls(w.s) == []
    assert all(w.s.record(name) is None for name in w.names)
    assert value(controller(w.s), "node_recovery_prometheus_unresolved_series", row="ib") == 5
    told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and "row ib" in r.getMessage()]
    assert sorted(told) == [
        "Prometheus, row ib: 10.0.0.1:9100 is the address of several Nodes",
        "Prometheus, row ib: a series names no node",
        "Prometheus, row ib: node-8 is no Node, and no Node's address",
        "Prometheus, row ib: node-9 is no Node, and no Node's address",
    ]


def test_the_series_of_nodes_outside_the_selector_are_not_counted_as_nobodys(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """An alert says that they belong to no node, and sends people to the log."""
    w = Scene(server, asking(IB.replace("(node)", "(node, error)").replace("IbDevBad", "{label: error}")))
    for i, name in enumerate(w.names):
        label(w.s, name, pool="gpu" if i < 2 else "cpu")
        w.server.put("ib_dev", 0, node=name, error="LinkDown")
    w.s.fleet(selector="pool=gpu")
    w.s.run(40, step=5)
    shown = ("node_recovery_prometheus_unresolved_series", {"row": "ib"})
    assert value(controller(w.s), shown[0], **shown[1]) == 0
    assert "row ib" not in caplog.text
    w.server.put("ib_dev", 3, node="node-0")
    w.s.run(40, step=5)
    assert value(controller(w.s), shown[0], **shown[1]) == 1
    assert "row ib: a bad series has no label error that is a name" in caplog.text


def test_a_series_without_the_label_that_names_its_fault_is_told_and_not_left_out_in_silence(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    w = scene(server, asking(IB.replace("(node)", "(node, error)").replace("IbDevBad", "{label: error}")))
    w.s.run(5)
    w.server.put("ib_dev", 3, node="node-0")
    w.server.put("ib_dev", 3, node="node-1", error="x" * 300)
    w.server.put("ib_dev", 3, node="node-2", error="LinkDown")
    w.s.run(40, step=5)
    assert [name for name in w.names if w.s.record(name) is not None] == ["node-2"]
    assert value(controller(w.s), "node_recovery_prometheus_unresolved_series", row="ib") == 2
    told = [r.getMessage() for r in caplog.records if "row ib: a bad" in r.getMessage()]
    assert told == [
        "Prometheus, row ib: a bad series has no label error that is a name, so it finds no fault"
    ]


@pytest.mark.parametrize(
    "host", ["10.0.0.2:9100", "10.0.0.2", "[fd00::2]:9100", "FD00:0::2", "gpu-2.example:9100"]
)
def test_a_series_without_the_label_is_of_the_one_node_with_its_address(server: Server, host: str) -> None:
    w = scene(server, asking(IB.replace("(node)", "(node, instance)")))
    addressed(w, "node-2", "10.0.0.2", "fd00::2", "gpu-2.example")
    w.s.run(5)
    w.server.put("ib_dev", 3, instance=host)
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-2")]


def test_the_server_is_asked_twice_a_round_whatever_the_fleet(server: Server) -> None:
    w = scene(server, count=12)
    before = len(w.server.asked)
    pass_time(w.s, 600, w.cloud, step=1)
    assert 76 <= len(w.server.asked) - before <= 82  # every 15 s: the values, and the time of their samples


def test_who_takes_over_knows_what_was_there(server: Server) -> None:
    w = scene(server)
    w.s.fleet("second")
    w.s.run(30)
    w.s.kill(w.s.actors["controller"])
    w.server.drop("ib_dev", node="node-0")
    pass_time(w.s, 900, w.cloud)
    record = w.s.record("node-0")
    assert record is not None
    assert calls(w.s) == []


PORTS = (
    '{name: ib, query: "max by (node, device) (ib_dev)", node: node, bad: "> 0", '
    "type: IbDev, reason: IbDevBad}"
)


class OwnLookback(Server):
    """It goes by a lookback of five minutes, whatever it is asked for: VictoriaMetrics, or a cached query."""

    def _evaluate(self, query: str, at: float, lookback: float) -> Any:
        return super()._evaluate(query, at, 300.0)


@pytest.fixture
def own_lookback() -> Iterator[OwnLookback]:
    made = OwnLookback(FakeClock())
    with answering(made):
        yield made


def scraped(w: Scene, *broken: str) -> None:
    """New samples of all ports come, but of node-0's mlx5_0 only where it is ``broken``."""
    for name in w.names:
        for port in ("mlx5_0", "mlx5_1"):
            if (name, port) != ("node-0", "mlx5_0"):
                w.server.put("ib_dev", 0, node=name, device=port)
    for port in broken:
        w.server.put("ib_dev", 1, node="node-0", device=port)


def test_a_broken_port_that_falls_silent_is_not_well_because_the_other_one_is(
    own_lookback: OwnLookback,
) -> None:
    own_lookback.scrapes = False
    w = Scene(own_lookback, asking(PORTS))
    scraped(w)
    w.start()
    pause(w.s)
    scraped(w, "mlx5_0")
    pass_time(w.s, 30, w.cloud)
    assert phase(w.s) is Phase.WAITING
    for _ in range(75 * 4):  # its exporter is gone, and with it all that is said of this port
        scraped(w)
        pass_time(w.s, 15, w.cloud, step=5)
    assert calls(w.s) == []
    assert phase(w.s) is Phase.WAITING


def test_a_new_leader_takes_no_good_word_of_one_port_for_that_of_the_broken_one(server: Server) -> None:
    w = Scene(server, asking(PORTS, more="    after: 5m\n"))
    scraped(w)
    w.start()
    scraped(w, "mlx5_0")
    pass_time(w.s, 30, w.cloud)
    w.server.drop("ib_dev", node="node-0", device="mlx5_0")
    another_leader(w.s)
    pass_time(w.s, 500, w.cloud, step=5)
    assert (calls(w.s), phase(w.s)) == ([], Phase.SUSPECT)
    pass_time(w.s, 300, w.cloud, step=5)
    assert (calls(w.s), phase(w.s)) == ([], Phase.HANDED_OVER)
    assert "nothing is known of it since" in the_record(w.s).sentence


def test_nor_does_it_prove_a_reboot_by_the_other_port(server: Server) -> None:
    w = Scene(server, asking(PORTS, remedy=REBOOT))
    scraped(w)
    w.start()
    scraped(w, "mlx5_0")
    pass_time(w.s, 60, w.cloud)
    w.server.drop("ib_dev", node="node-0", device="mlx5_0")
    another_leader(w.s)
    boot(w.s, "node-0")
    pass_time(w.s, 300, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([("reboot", "m-0")], Phase.PROVING)
    w.server.put("ib_dev", 0, node="node-0", device="mlx5_0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([("reboot", "m-0")], Phase.RECOVERED)


def test_a_new_leader_takes_a_good_word_of_the_port_itself(server: Server) -> None:
    w = Scene(server, asking(PORTS, more="    after: 5m\n"))
    scraped(w)
    w.start()
    scraped(w, "mlx5_0")
    pass_time(w.s, 30, w.cloud)
    another_leader(w.s)
    w.server.put("ib_dev", 0, node="node-0", device="mlx5_0")
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([], Phase.WITHDRAWN)


def test_two_ports_whose_labels_begin_with_the_same_words_are_well_once_both_are(server: Server) -> None:
    """They passed for one port of a third name, of which no series ever said a good word."""
    w = Scene(server, asking(PORTS.replace("(node, device)", "(model, node, port)"), more="    after: 5m\n"))

    def put(value: int) -> None:
        for name in w.names:
            for port in "123":
                bad = value if name == "node-0" and port != "3" else 0
                w.server.put("ib_dev", bad, node=name, model="NVIDIA ConnectX-7 HCA", port=port)

    put(0)
    w.start()
    put(1)
    pass_time(w.s, 60, w.cloud)
    ports = [f"model=NVIDIA ConnectX-7 HCA,port={port}" for port in "12"]
    assert [f.device for f in the_record(w.s).faults] == [", ".join(ports)]
    put(0)
    to_the_end(w.s, w.cloud)
    assert (calls(w.s), phase(w.s)) == ([], Phase.WITHDRAWN)


def test_a_released_port_that_was_silent_for_a_while_is_no_news_to_a_new_leader(server: Server) -> None:
    w = Scene(server, asking(PORTS, remedy="{do: cordon}"))
    scraped(w)
    w.start()
    scraped(w, "mlx5_0")
    pass_time(w.s, 60, w.cloud)
    release_by_command(w.s)
    pass_time(w.s, 60, w.cloud)
    w.server.drop("ib_dev", node="node-0", device="mlx5_0")
    another_leader(w.s)
    pass_time(w.s, 120, w.cloud)
    scraped(w, "mlx5_0")
    pass_time(w.s, 120, w.cloud)
    assert (phase(w.s), marked(w.s)) == (Phase.RELEASED, NO_MARKS)
    w.server.put("ib_dev", 0, node="node-0", device="mlx5_0")
    pass_time(w.s, 120, w.cloud)
    scraped(w, "mlx5_0")  # it was well: this is another fault
    pass_time(w.s, 60, w.cloud)
    assert phase(w.s) is Phase.HANDED_OVER
