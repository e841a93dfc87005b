"""Nothing destructive starts outside the policy's windows, or while an alert or a pod blocks it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.kubefaults import lost_request, refused
from recovery_testkit.stage import Stage, npd_page

from recovery.model import Alerts, Phase
from recovery.units import parse_moment
from tests.builders.faults import DMA
from tests.builders.objects import budget_object
from tests.builders.policies import HEAD, MATCH, REMEDY
from tests.stories.prometheus_server import Server, serving
from tests.stories.scenery import Cloud, alive, judge, pass_time, sentences, slots, to_the_end
from tests.stories.scenes import (
    NO_MARKS,
    calls,
    cast,
    marked,
    messages,
    new_process,
    patch_node,
    phase,
    plugin_page,
    remove_pod,
    stubborn_pod,
    the_record,
    value,
)
from tests.stories.test_fleet_prometheus import Scene
from tests.stories.test_last_reads import while_listing

HOUR = 3600.0
NIGHT = "2026-11-21T03:00:00Z"
"""When every story begins: the night to a Saturday."""
OFFICE = "windows: [{days: [mon, tue, wed, thu, fri], from: 09:00, to: 17:00, timeZone: Europe/Berlin}]"
MORNING = "windows: [{from: 06:00, to: 08:00}]"
CLOSING = "windows: [{from: 22:00, to: 03:02}]"
"""It closes two minutes after the story begins."""
TRAIN = "blockers: [{pods: {namespaces: default, labels: {app: train}}}]"
UPGRADE = "blockers: [{alerts: ClusterUpgrade*}]"
OUT_OF_WINDOW = "NeuronHasError_DMA_ERROR: waiting: outside its windows: next opens"


def policy(limits: str = "", rule: str = "", rules: str = "", sources: str = "") -> bytes:
    """One rule for the Neuron device's own faults; ``rules`` come before it."""
    own = f"  - name: neuron-hardware\n    match: {{{MATCH}}}\n    remedy: [{REMEDY}]\n"
    own += f"    probation: 2m\n{f'    {rule}' if rule else ''}\n"
    return f"{HEAD}{sources}limits: {{cooldown: 0s, {limits}}}\nrules:\n{rules}{own}".encode()


HBM = "NeuronHasError_HBM_UNCORRECTABLE_ERROR"
URGENT = f"  - {{name: hbm, match: {{reason: {HBM}}}, urgent: true, remedy: [{{do: reboot}}]}}\n"


def until(s: Stage, moment: str, cloud: Cloud | None = None, step: float = 60.0) -> None:
    """Time passes until this moment."""
    left = (parse_moment(moment) - s.clock.true_time()).total_seconds()
    pass_time(s, left - left % step, cloud, step=step)
    pass_time(s, left % step, cloud, step=left % step)


def nothing_has_started(s: Stage) -> bool:
    return (phase(s), slots(s), calls(s), marked(s)) == (Phase.WAITING, [], [], NO_MARKS)


def at(moment: str, limits: str) -> Stage:
    """A stage whose story begins at another moment."""
    s = Stage(policy(limits))
    s.clock.advance((parse_moment(moment) - s.clock.true_time()).total_seconds())
    for name in s.nodes(4):
        s.agent(name)
    s.run(3)
    return s


# ---------------------------------------------------------------- windows


def test_a_fault_at_night_waits_for_the_morning_and_then_starts() -> None:
    s = cast(policy(MORNING), agents=1)
    cloud = Cloud(s)
    s.fault("node-0")
    s.run(10)
    assert sentences(s)[-1] == f"{OUT_OF_WINDOW} Sat 2026-11-21 06:00 UTC"
    until(s, "2026-11-21T05:59:59Z", cloud)
    assert nothing_has_started(s)
    assert value(alive(s, "node-0"), "node_recovery_held", reason="window") == 1
    pass_time(s, 5, cloud)
    assert calls(s) == [("replace", "m-0")]
    to_the_end(s, cloud)
    assert phase(s) is Phase.RECOVERED
    judge(s)


def test_over_a_weekend_the_sentence_names_monday_in_the_windows_own_zone() -> None:
    s = cast(policy(OFFICE), agents=1)
    s.fault("node-0")
    s.run(10)
    assert sentences(s)[-1] == f"{OUT_OF_WINDOW} Mon 2026-11-23 09:00 Europe/Berlin"
    until(s, "2026-11-23T07:59:50Z", step=600)
    assert nothing_has_started(s)
    s.run(15)
    assert calls(s) == [("replace", "m-0")]


def test_status_reads_on_the_record_what_it_waits_for() -> None:
    s = cast(policy(OFFICE), agents=1)
    s.fault("node-0")
    s.run(10)
    assert the_record(s).sentence == f"{OUT_OF_WINDOW} Mon 2026-11-23 09:00 Europe/Berlin"
    before = len(s.store.history)
    s.run(600, step=5)
    written = [w for w in s.store.history[before:] if "noderecoveries" in w.path]
    assert written == []  # it is said once


@pytest.mark.parametrize(
    ("limits", "words"), [(MORNING, "its window is open"), (TRAIN, "nothing blocks it any more")]
)
def test_a_record_does_not_go_on_to_say_what_holds_it_no_longer(limits: str, words: str) -> None:
    """``status`` reads it there. The budget holds it by then, as it does many others."""
    s = cast(policy(f"{limits}, budget: 0"), agents=1)
    s.add_pod("train", "node-0")
    s.fault("node-0")
    s.run(10)
    held = the_record(s).sentence
    assert held.startswith((f"{DMA}: waiting: outside its windows", f"{DMA}: waiting: blocked: pod"))
    remove_pod(s)
    until(s, "2026-11-21T06:30:00Z")
    assert the_record(s).sentence == f"{DMA}: waiting for a slot of the budget: {words}"
    before = len(s.store.history)
    s.run(1200, step=10)
    assert [w for w in s.store.history[before:] if "noderecoveries" in w.path] == []
    s.add_pod("train", "node-0")
    until(s, "2026-11-21T08:30:00Z")
    assert the_record(s).sentence.split(": waiting: ")[1][:7] == held.split(": waiting: ")[1][:7]


def test_a_rule_may_have_windows_of_its_own() -> None:
    s = cast(policy(OFFICE, rule="windows: [{from: 04:00, to: 05:00}]"), agents=1)
    s.fault("node-0")
    until(s, "2026-11-21T03:59:00Z")
    assert nothing_has_started(s)
    until(s, "2026-11-21T04:00:10Z", step=5)
    assert calls(s) == [("replace", "m-0")]


def test_two_windows_of_two_zones_open_each_at_its_own_hour() -> None:
    """Four in the morning in Berlin is three in London, and Tokyo has had its lunch."""
    zones = (
        "{from: 04:30, to: 05:00, timeZone: Europe/Berlin}, {from: 12:10, to: 12:20, timeZone: Asia/Tokyo}"
    )
    s = cast(policy(f"windows: [{zones}], budget: 2, budgetPer: {{}}, brake: 90%"), agents=2)
    s.fault("node-0")
    s.run(10)
    assert sentences(s)[-1] == f"{OUT_OF_WINDOW} Sat 2026-11-21 12:10 Asia/Tokyo"
    until(s, "2026-11-21T03:10:10Z", step=5)
    assert calls(s) == [("replace", "m-0")]
    until(s, "2026-11-21T03:20:00Z", step=20)
    s.fault("node-1")
    s.run(10)
    assert sentences(s, "node-1")[-1] == f"{OUT_OF_WINDOW} Sat 2026-11-21 04:30 Europe/Berlin"
    until(s, "2026-11-21T03:30:10Z", step=5)
    assert calls(s) == [("replace", "m-0"), ("replace", "m-1")]


def test_on_the_night_on_which_clocks_jump_the_window_is_as_long_as_the_clocks_say() -> None:
    """In Berlin 02:00 is 03:00 on 28 March 2027: from 01:00 to 04:00 are two hours, from 00:00Z."""
    s = at("2027-03-27T22:00:00Z", "windows: [{from: 01:00, to: 04:00, timeZone: Europe/Berlin}]")
    s.fault("node-0")
    s.run(10)
    assert sentences(s)[-1] == f"{OUT_OF_WINDOW} Sun 2027-03-28 01:00 Europe/Berlin"
    until(s, "2027-03-27T23:59:59Z")
    assert nothing_has_started(s)
    until(s, "2027-03-28T00:00:10Z", step=5)
    assert calls(s) == [("replace", "m-0")]
    late = at("2027-03-28T02:00:01Z", "windows: [{from: 01:00, to: 04:00, timeZone: Europe/Berlin}]")
    late.fault("node-0")
    late.run(10)
    assert nothing_has_started(late)
    assert sentences(late)[-1] == f"{OUT_OF_WINDOW} Mon 2027-03-29 01:00 Europe/Berlin"


def test_what_is_taken_back_while_it_waits_is_withdrawn_at_once() -> None:
    """A window never holds the way back."""
    plugin = (
        f"{HEAD}limits: {{cooldown: 0s, {OFFICE}}}\nrules:\n  - name: links\n    match: {{type: GpuNvlink}}\n"
    )
    s = cast(f"{plugin}    remedy: [{REMEDY}]\n".encode(), agents=1, plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(20)
    assert nothing_has_started(s)
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(20)
    assert (phase(s), calls(s), marked(s)) == (Phase.WITHDRAWN, [], NO_MARKS)
    assert s.gate().open == ()


def test_a_new_process_waits_for_the_window_as_the_one_before_it() -> None:
    s = cast(policy(MORNING), agents=1)
    s.fault("node-0")
    s.run(10)
    new_process(s, "node-0")
    until(s, "2026-11-21T05:59:50Z")
    assert nothing_has_started(s)
    s.run(15)
    assert calls(s) == [("replace", "m-0")]


# ---------------------------------------------------------------- what is under way


def draining_as_the_window_closes(more: str = "") -> Stage:
    """The drain of node-0 has begun, and a disruption budget keeps one pod, as the window closes."""
    s = cast(policy(f"{CLOSING}{more}"), agents=1)
    stubborn_pod(s)
    s.fault("node-0")
    s.run(10)
    assert (phase(s), slots(s)) == (Phase.RECOVERING, ["node-0"])
    until(s, "2026-11-21T03:03:00Z", step=5)
    assert calls(s) == []
    return s


def test_what_is_under_way_when_its_window_closes_is_finished() -> None:
    s = draining_as_the_window_closes()
    remove_pod(s)
    s.run(10)
    assert calls(s) == [("replace", "m-0")]


def test_with_under_way_stop_the_next_step_waits_for_the_next_window() -> None:
    s = draining_as_the_window_closes(", underWay: stop")
    remove_pod(s)
    s.run(30)
    assert (calls(s), the_record(s).rung) == ([], 1)  # that it is empty is only seen
    assert "outside its windows: next opens Sat 2026-11-21 22:00 UTC" in sentences(s)[-1]
    until(s, "2026-11-21T21:59:50Z", step=300)
    assert (calls(s), phase(s)) == ([], Phase.RECOVERING)
    s.run(20)
    assert calls(s) == [("replace", "m-0")]
    assert "by its windows" in "\n".join(sentences(s))


def test_with_under_way_stop_no_pod_is_evicted_outside_and_the_drain_has_its_time_left() -> None:
    """The drain has ten minutes. Nineteen hours later it has used two of them."""
    s = draining_as_the_window_closes(", underWay: stop")
    s.add_pod("late", "node-0", app="web")
    s.run(60)
    pods = s.store.request("GET", "/api/v1/namespaces/default/pods").body["items"]
    assert len(pods) == 2
    assert "drain: 114 s of 10 min used, held 2 min by its windows" in sentences(s)[-1]
    until(s, "2026-11-21T22:00:10Z", step=300)
    s.run(10)
    pods = s.store.request("GET", "/api/v1/namespaces/default/pods").body["items"]
    assert [p["metadata"]["name"] for p in pods if "deletionTimestamp" not in p["metadata"]] == ["train"]
    assert (phase(s), the_record(s).rung) == (Phase.RECOVERING, 0)
    s.run(9 * 60, step=5)
    assert calls(s) == [("replace", "m-0")]  # its ten minutes are over now


@pytest.mark.parametrize(("under_way", "called"), [("finish", [("replace", "m-0")]), ("stop", [])])
def test_a_window_that_closes_while_the_fleet_is_counted_stops_the_call_only_where_the_policy_says_so(
    under_way: str, called: list[tuple[str, str]]
) -> None:
    s = cast(policy(f"{CLOSING}, underWay: {under_way}").replace(REMEDY.encode(), b"{do: replace}"), agents=1)
    done = while_listing(s, "/api/v1/nodes", lambda _: None, seconds=20)
    until(s, "2026-11-21T03:01:45Z", step=5)
    s.fault("node-0")
    s.run(60)
    assert (len(done), calls(s)) == (1, called)


def test_an_alert_that_begins_to_fire_while_the_fleet_is_counted_stops_the_call() -> None:
    s = cast(policy(f"{UPGRADE}, underWay: stop").replace(REMEDY.encode(), b"{do: replace}"), agents=1)
    world = alive(s, "node-0").agent._w
    world.alerts = lambda: Alerts(unknown="")

    def fires_now(_: Stage) -> None:
        world.alerts = lambda: Alerts(("ClusterUpgradeRunning",), unknown="")

    done = while_listing(s, "/api/v1/nodes", fires_now, seconds=5)
    s.fault("node-0")
    s.run(8)
    assert (len(done), calls(s)) == (1, [])


# ---------------------------------------------------------------- urgent


def test_an_urgent_fault_goes_at_once() -> None:
    s = cast(policy(f"{OFFICE}, {TRAIN}", rule="urgent: true"), agents=1)
    s.add_pod("train", "node-0")
    s.fault("node-0")
    s.run(30)
    assert calls(s) == [("replace", "m-0")]


def test_an_urgent_fault_on_a_node_that_waits_takes_the_lead() -> None:
    """Of the two faults it is the urgent one whose remedy is followed, and it waits for nobody."""
    s = cast(policy(OFFICE, rules=URGENT), agents=1)
    s.fault("node-0")
    s.run(20)
    assert nothing_has_started(s)
    s.fault("node-0", "HBM_UNCORRECTABLE_ERROR")
    s.run(20)
    assert calls(s) == [("reboot", "m-0")]
    assert the_record(s).rule == "hbm"
    assert {f.reason for f in the_record(s).faults} == {
        "NeuronHasError_DMA_ERROR",
        HBM,
    }


def test_those_who_wait_at_the_head_of_the_queue_keep_nobody_waiting_for_long() -> None:
    """Three nodes wait for the morning. A fourth, whose rule is urgent, comes after them."""
    s = cast(policy(f"{OFFICE}, budget: 4, budgetPer: {{}}, brake: 100%", rules=URGENT), count=6, agents=4)
    for node in ("node-0", "node-1", "node-2"):
        s.fault(node)
    s.run(20)
    s.fault("node-3", "HBM_UNCORRECTABLE_ERROR")
    s.run(15)
    assert calls(s) == [("reboot", "m-3")]


# ---------------------------------------------------------------- pods that block


def test_a_pod_on_the_node_blocks_until_it_has_ended() -> None:
    s = cast(policy(TRAIN), agents=1)
    s.add_pod("train", "node-0")
    s.fault("node-0")
    s.run(60, step=5)
    assert nothing_has_started(s)
    assert sentences(s)[-1].endswith("waiting: blocked: pod default/train runs on it")
    assert value(alive(s, "node-0"), "node_recovery_held", reason="blocked") == 1
    remove_pod(s)
    s.run(20)
    assert calls(s) == [("replace", "m-0")]


def test_what_comes_and_goes_all_the_time_is_not_written_each_time() -> None:
    s = cast(policy(f"{TRAIN}, budget: 0"), agents=1)
    s.fault("node-0")
    s.run(10)
    before = len(s.store.history)
    for _ in range(30):
        s.add_pod("train", "node-0")
        s.run(60, step=5)
        remove_pod(s)
        s.run(60, step=5)
    written = [w for w in s.store.history[before:] if "noderecoveries" in w.path]
    assert len(written) <= 2 * 7
    said = [x.event for x in the_record(s).history]
    assert said == ["suspect", "confirmed", "blocked", "queued", "blocked"], (
        "of the rest the last word is enough"
    )


def test_a_pod_on_another_node_or_of_another_kind_blocks_nothing() -> None:
    s = cast(policy(TRAIN), agents=1)
    s.add_pod("train", "node-1")
    s.add_pod("web", "node-0", app="web")
    s.fault("node-0")
    s.run(20)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize(
    ("limits", "lists"),
    [(f"{OFFICE}, {TRAIN}", False), ("budget: 0", False), (f"{TRAIN}, budget: 0", True)],
    ids=["held by a window", "no such blocker", "such a blocker"],
)
def test_pods_are_listed_only_where_they_may_block_what_may_start_otherwise(limits: str, lists: bool) -> None:
    s = cast(policy(limits), agents=1)
    s.fault("node-0")
    s.run(5)
    asked: list[str] = []
    s.api.fail_next(lambda a: asked.append(a.path) is not None, lost_request, times=1)
    s.run(60, step=2)
    assert ("/api/v1/pods" in asked) is lists


def test_pods_that_may_not_be_listed_block_and_the_sentence_says_so() -> None:
    s = cast(policy(TRAIN), agents=1)
    no = refused(403, "Forbidden", "pods is forbidden")
    s.api.fail_next(lambda a: a.path == "/api/v1/pods", no, times=100)
    s.fault("node-0")
    s.run(30)
    assert nothing_has_started(s)
    assert "blocked: the pods on the node are not known: they cannot be listed" in sentences(s)[-1]


def test_with_under_way_stop_a_pod_that_comes_stops_the_drain_until_it_has_ended() -> None:
    s = cast(policy(f"{TRAIN}, underWay: stop"), agents=1)
    s.add_pod("web", "node-0", app="web")
    s.store.load(budget_object("keep", app="web", minAvailable=1))
    s.fault("node-0")
    s.run(10)
    s.add_pod("train", "node-0")
    remove_pod(s, "web")
    s.run(60)
    assert calls(s) == []
    assert "drain: blocked: pod default/train runs on it" in sentences(s)[-1]
    assert "by a blocker" in sentences(s)[-1]
    remove_pod(s)
    s.run(20)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize("why", ["window", "pod"])
@pytest.mark.parametrize(("remedy", "goes_on"), [(REMEDY, True), ("{do: reboot}", False)])
def test_with_under_way_stop_an_urgent_fault_that_comes_lets_the_steps_go_on_that_its_own_rule_has(
    remedy: str, goes_on: bool, why: str
) -> None:
    hbm = URGENT.replace("{do: reboot}", remedy)
    s = cast(policy(f"{CLOSING if why == 'window' else TRAIN}, underWay: stop", rules=hbm), agents=1)
    s.add_pod("web", "node-0", app="web")
    s.store.load(budget_object("keep", app="web", minAvailable=1))
    s.fault("node-0")
    s.run(10)
    s.add_pod("train", "node-0") if why == "pod" else None
    s.run(120)
    remove_pod(s, "web")
    s.run(30)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [])
    s.fault("node-0", "DMA_ERROR", "HBM_UNCORRECTABLE_ERROR")
    s.run(60)
    assert calls(s) == ([("replace", "m-0")] if goes_on else [])


# ---------------------------------------------------------------- alerts that block


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(FakeClock()) as made:
        yield made


def scene(server: Server, limits: str = UPGRADE) -> Scene:
    made = Scene(server, policy(limits, sources="sources: [conditions]\n"))
    return made.start()


def sick(w: Scene, node: str = "node-0") -> None:
    conditions = [
        {"type": "Ready", "status": "True", "reason": "Kubelet"},
        {"type": "NeuronHealth", "status": "True", "reason": "NeuronHasError_DMA_ERROR"},
    ]
    patch_node(w.s, node, {"status": {"conditions": conditions}}, "status", "npd")


def fires(w: Scene, name: str = "ClusterUpgradeRunning", state: str = "firing") -> None:
    w.server.put("ALERTS", 1, alertname=name, alertstate=state, severity="page")


def said(w: Scene) -> str:
    view = w.s.actors["controller"].replica.view("node-0")
    return str(view.decision.reason)


def test_an_alert_that_fires_blocks_and_lets_go(server: Server) -> None:
    w = scene(server)
    fires(w)
    pass_time(w.s, 20)
    sick(w)
    pass_time(w.s, 120)
    assert nothing_has_started(w.s)
    assert said(w).endswith("waiting: blocked: alert ClusterUpgradeRunning fires")
    w.server.drop("ALERTS")
    pass_time(w.s, 60)
    assert calls(w.s) == [("replace", "m-0")]


def stays_sick(w: Scene, seconds: int) -> None:
    """Its detector renews what it says."""
    for _ in range(seconds // 20):
        now = f"{w.s.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"
        said = {"type": "NeuronHealth", "status": "True", "reason": "NeuronHasError_DMA_ERROR"}
        conditions = [{"type": "Ready", "status": "True"}, {**said, "lastHeartbeatTime": now}]
        patch_node(w.s, "node-0", {"status": {"conditions": conditions}}, "status", "npd")
        pass_time(w.s, 20, step=5)


def starts_anew(w: Scene) -> None:
    """The server. It states no alert until it has evaluated it again."""
    w.server.answer = (503, b"Service Unavailable")
    stays_sick(w, 40)
    w.server.answer = None
    w.server.drop("ALERTS")


def test_an_alert_that_its_server_has_forgotten_for_some_minutes_still_blocks(server: Server) -> None:
    w = scene(server)
    fires(w)
    pass_time(w.s, 20)
    starts_anew(w)
    stays_sick(w, 600)
    assert nothing_has_started(w.s)
    assert said(w).endswith("waiting: blocked: alert ClusterUpgradeRunning fires")
    fires(w)
    stays_sick(w, 60)
    w.server.drop("ALERTS")
    stays_sick(w, 60)
    assert calls(w.s) == [("replace", "m-0")]


def test_one_that_ended_while_its_server_was_away_blocks_for_a_quarter_of_an_hour(server: Server) -> None:
    w = scene(server)
    fires(w)
    pass_time(w.s, 20)
    for _ in range(2):
        starts_anew(w)
        stays_sick(w, 400)
    assert nothing_has_started(w.s)
    stays_sick(w, 120)
    assert calls(w.s) == [("replace", "m-0")]


def test_alerts_of_another_name_and_those_that_are_pending_block_nothing(server: Server) -> None:
    w = scene(server)
    fires(w, "Watchdog")
    fires(w, state="pending")
    pass_time(w.s, 30)
    sick(w)
    pass_time(w.s, 60)
    assert calls(w.s) == [("replace", "m-0")]


def test_a_prometheus_that_is_gone_blocks_and_the_sentence_says_so(server: Server) -> None:
    w = scene(server)
    pass_time(w.s, 30)
    server.answer = (503, b"{}")
    pass_time(w.s, 120)
    sick(w)
    pass_time(w.s, 600)
    assert nothing_has_started(w.s)
    assert "blocked: whether ClusterUpgrade* fires is not known:" in said(w)
    server.answer = None
    pass_time(w.s, 60)
    assert calls(w.s) == [("replace", "m-0")]


def test_an_answer_that_says_it_is_partial_is_no_answer(server: Server) -> None:
    w = scene(server)
    w.server.more = {"warnings": ["one replica did not answer"]}
    pass_time(w.s, 120)
    sick(w)
    pass_time(w.s, 120)
    assert nothing_has_started(w.s)


# ---------------------------------------------------------------- alerts that block, and sidecars


def sidecars(server: Server, limits: str = UPGRADE, **more: Any) -> Stage:
    """Agents on their nodes, which ask a Prometheus server for alerts."""
    s = Stage(policy(limits, **more))
    server.clock, s.prometheus = s.clock, server.client()
    for name in s.nodes(4):
        s.agent(name)
    s.run(3)
    return s


def test_a_sidecar_asks_for_alerts_only_while_its_own_node_waits(server: Server) -> None:
    s = sidecars(server)
    cloud = Cloud(s)
    server.put("ALERTS", 1, alertname="ClusterUpgradeRunning", alertstate="firing")
    s.run(120)
    assert server.asked == []
    s.fault("node-0")
    s.run(120)
    assert nothing_has_started(s)
    assert sentences(s)[-1].endswith("waiting: blocked: alert ClusterUpgradeRunning fires")
    assert len(server.asked) in range(7, 10)  # every 15 s, of one node
    server.drop("ALERTS")
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert phase(s) is Phase.RECOVERED
    judge(s)


def test_a_sidecar_that_cannot_ask_for_alerts_starts_nothing_and_says_so(server: Server) -> None:
    s = sidecars(server)
    server.answer = (503, b"{}")
    s.fault("node-0")
    s.run(300)
    assert nothing_has_started(s)
    assert "blocked: whether ClusterUpgrade* fires is not known: " in sentences(s)[-1]
    server.answer = None
    s.run(30)
    assert calls(s) == [("replace", "m-0")]


def test_an_alert_stops_a_sidecar_under_way_where_the_policy_says_so(server: Server) -> None:
    s = sidecars(server, f"{UPGRADE}, underWay: stop")
    stubborn_pod(s)
    s.fault("node-0")
    s.run(30)
    assert the_record(s).phase is Phase.RECOVERING
    server.put("ALERTS", 1, alertname="ClusterUpgradeRunning", alertstate="firing")
    s.run(30)
    remove_pod(s)
    s.run(120)
    assert calls(s) == []
    assert "replace: blocked: alert ClusterUpgradeRunning fires" in sentences(s)[-1]
    server.drop("ALERTS")
    s.run(30)
    assert calls(s) == [("replace", "m-0")]


def test_an_urgent_fault_asks_a_sidecar_for_no_alerts(server: Server) -> None:
    s = sidecars(server, rule="urgent: true")
    s.fault("node-0")
    s.run(30)
    assert (calls(s), server.asked) == ([("replace", "m-0")], [])


BESIDE_URGENT = f"""{HEAD}
limits: {{cooldown: 0s, windows: [{{days: [mon], from: "09:00", to: "10:00"}}]}}
rules:
  - {{name: deadlock, match: {{type: KernelDeadlock}}, remedy: [{{do: replace}}]}}
  - {{name: hbm, match: {{type: NeuronHealth, reason: "*_HBM_*"}}, urgent: true, remedy: [{{do: reboot}}]}}
""".encode()


def deadlock(on: int) -> bytes:
    return (
        f'problem_counter{{reason="DockerHung"}} {on}\n'
        f'problem_gauge{{reason="DockerHung",type="KernelDeadlock"}} {on}\n'
    ).encode()


@pytest.mark.parametrize("on", [True, False])
def test_an_urgent_fault_beside_one_that_waits_for_its_window(on: bool) -> None:
    s = cast(BESIDE_URGENT, agents=1, on=on)
    s.pages["node-0"].body = npd_page() + deadlock(0)
    s.run(5, step=1)
    s.pages["node-0"].body = npd_page() + deadlock(1)
    s.run(20, step=1)
    s.pages["node-0"].body = npd_page("HBM_UNCORRECTABLE_ERROR") + deadlock(1)
    s.run(60, step=1)
    if on:
        assert calls(s) == [("reboot", "m-0")]  # at 3 a.m. on a Saturday
    else:
        assert any("would reboot node-0" in m for m in messages(s, "WouldRecover"))
