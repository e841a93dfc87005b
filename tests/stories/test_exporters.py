"""Faults that a pod on the node shows by its metrics: dcgm-exporter and Autopilot's daemon."""

from __future__ import annotations

from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, lost_request
from recovery_testkit.stage import Page, Stage, npd_page

from recovery.errors import Unreadable
from recovery.model import Phase
from tests.builders.exporters import UUIDS, WATCHES, autopilot_page, dcgm_page
from tests.builders.policies import HEAD
from tests.stories.scenery import Cloud, change_node, judge, sentences, to_the_end
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    boot,
    calls,
    cast,
    marked,
    messages,
    new_process,
    phase,
    remove_pod,
    sayings,
    stubborn_pod,
    the_record,
)

DCGM = {"app": "nvidia-dcgm-exporter"}
REPLACE = "{do: drain, within: 10m, then: force}, {do: replace}"
REBOOT = "{do: drain, within: 10m, then: force}, {do: reboot}, {do: replace}"
FAILED = dcgm_page(health={(2, "PCIE"): (20, "DCGM_FR_PCI_REPLAY_RATE")})
GOOD = dcgm_page(health={})


def policy(
    match: str = "{source: dcgm}", remedy: str = REPLACE, sources: str = "[npd, dcgm]", more: str = ""
) -> bytes:
    rule = f"  - name: gpu\n    match: {match}\n    remedy: [{remedy}]\n    probation: 2m\n{more}"
    return f"{HEAD}sources: {sources}\nlimits: {{cooldown: 0s}}\nrules:\n{rule}".encode()


def exporter(s: Stage, body: bytes = b"", **pod: Any) -> Page:
    return s.add_exporter("node-0", body or dcgm_page(), 9400, DCGM, **pod)


def staged(*args: str, page: bytes = b"", **kwargs: str) -> tuple[Stage, Page]:
    """Healthy nodes, one of which has an exporter that was read a few times."""
    s = cast(policy(*args, **kwargs), agents=0)
    exported = exporter(s, page)
    s.agent("node-0")
    s.run(90, step=5)
    return s, exported


def remove(s: Stage, name: str = "exporter", namespace: str = "gpu-operator") -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}-node-0"
    assert s.store.request("DELETE", path, body={"gracePeriodSeconds": 0}).ok


def lists(s: Stage) -> list[Asked]:
    """The lists of a node's pods that are asked for, from now on."""
    asked: list[Asked] = []

    def look(one: Asked) -> bool:
        if one.method == "GET" and one.path == "/api/v1/pods":
            asked.append(one)
        return False

    s.api.fail_next(look, lost_request, times=10**6)
    return asked


# ---------------------------------------------------------------- what it states


@pytest.mark.parametrize(
    ("sick", "reason"),
    [
        (dcgm_page(xids={5: 79}), "GpuXid79"),
        (dcgm_page(remap_failed=[1]), "GpuRowRemapFailed"),
        (dcgm_page(rows={1: 1}), "GpuRowRemapPending"),
        (FAILED, "GpuHealthPcie"),
        (dcgm_page(actions={0: 2}), "GpuRecoveryReboot"),
    ],
)
def test_what_it_shows_alone_ends_in_a_replacement(sick: bytes, reason: str) -> None:
    s, page = staged()
    page.body = sick
    to_the_end(s, Cloud(s))
    assert calls(s) == [("replace", "m-0")]
    assert the_record(s).faults[0].reason == reason
    assert the_record(s).faults[0].device.startswith("GPU ")
    judge(s)


def test_an_xid_that_is_overwritten_a_moment_later_is_recovered_to_its_end() -> None:
    s, page = staged()
    stubborn_pod(s)
    page.body = dcgm_page(xids={5: 79})
    s.run(30)
    page.body = dcgm_page()  # the exporter starts anew and has forgotten it
    s.run(120)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    remove_pod(s)
    to_the_end(s, Cloud(s))
    assert calls(s) == [("replace", "m-0")]
    judge(s)


def test_a_gpu_that_falls_off_the_bus_and_so_off_the_page_is_replaced_all_the_same() -> None:
    s, page = staged()
    stubborn_pod(s)
    page.body = dcgm_page(xids={5: 79})
    s.run(30)
    page.body = dcgm_page(gpus=[0, 1, 2, 3, 4, 6, 7])
    s.run(60)
    remove_pod(s)
    to_the_end(s, Cloud(s))
    assert calls(s) == [("replace", "m-0")]
    judge(s)


def test_what_an_application_causes_drains_no_node_whatever_the_rule_is() -> None:
    s, page = staged()
    for _ in range(4):
        page.body = dcgm_page(xids={5: 31})
        s.run(30)
        page.body = dcgm_page(xids={5: 13})
        s.run(30)
    assert (calls(s), marked(s), s.record("node-0")) == ([], NO_MARKS, None)


def test_an_application_that_fails_again_and_again_is_seen_by_a_rule_with_times() -> None:
    s, page = staged("{reason: GpuXid31, times: {count: 3, within: 10m}}", "{do: cordon}")
    for n in range(6):
        page.body = dcgm_page(xids={5: 31 if n % 2 == 0 else 0})
        s.run(30)
    assert marked(s)[0]


def test_a_failure_of_one_interval_is_over_after_the_hold_and_touches_nothing_by_then() -> None:
    rule = "    after: 5m\n    hold: 2m\n"
    s, page = staged(page=GOOD, more=rule)
    page.body = FAILED
    s.run(20)
    page.body = GOOD
    s.run(100, step=1)
    assert phase(s) is Phase.SUSPECT, "its hold has not passed"
    s.run(240, step=1)
    assert (phase(s), calls(s), marked(s)) == (Phase.WITHDRAWN, [], NO_MARKS)


def test_a_failure_that_passes_in_the_drain_gives_the_node_back() -> None:
    s, page = staged(page=GOOD)
    stubborn_pod(s)
    page.body = FAILED
    s.run(60)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    page.body = GOOD
    s.run(40)
    assert phase(s) is Phase.RECOVERING
    s.run(120)
    assert (phase(s), marked(s), calls(s)) == (Phase.WITHDRAWN, NO_MARKS, [])
    judge(s)


def test_a_failure_that_passed_a_moment_ago_holds_the_call() -> None:
    s, page = staged(page=GOOD)
    stubborn_pod(s)
    page.body = FAILED
    s.run(60)
    page.body = GOOD
    s.run(20)
    remove_pod(s)
    s.run(10)
    assert calls(s) == []
    assert "GpuHealthPcie is good since " in sentences(s)[-1]


def test_after_the_reboot_the_exporter_has_forgotten_and_the_node_is_proved() -> None:
    s, page = staged(remedy=REBOOT)
    page.body = dcgm_page(xids={5: 79})
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]
    page.body = dcgm_page()
    boot(s, "node-0")
    s.run(300, step=5)
    assert (phase(s), marked(s), calls(s)) == (Phase.RECOVERED, NO_MARKS, [("reboot", "m-0")])
    judge(s)


def test_rows_that_cannot_be_remapped_after_the_reboot_either_lead_to_the_next_step() -> None:
    s, page = staged(remedy=REBOOT)
    page.body = dcgm_page(remap_failed=[1])
    s.run(60)
    boot(s, "node-0")
    s.run(90)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_an_agent_that_starts_anew_takes_an_old_xid_for_the_past_and_goes_on_with_its_record() -> None:
    s, page = staged()
    stubborn_pod(s)
    page.body = dcgm_page(xids={5: 79})
    s.run(60)
    new_process(s, "node-0")
    s.run(120)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    s.run(600, step=5)
    assert calls(s) == [("replace", "m-0")]


def test_an_xid_that_was_told_is_told_again_only_when_it_happens_again() -> None:
    s, page = staged(remedy="{do: notify}")
    page.body = dcgm_page(xids={5: 79})
    s.run(60)
    new_process(s, "node-0")
    s.run(120)
    assert sayings(s, "FaultSeen") == 1
    page.body = dcgm_page()
    s.run(30)
    page.body = dcgm_page(xids={5: 79})
    s.run(60)
    assert sayings(s, "FaultSeen") == 2


def test_the_kernels_line_and_the_exporter_are_two_witnesses_of_one_fault() -> None:
    s, page = staged("{type: GpuXid, reason: GpuXid79}", "{do: drain, within: 2h, then: hold}, {do: replace}")
    stubborn_pod(s)
    s.pages[
        "node-0"
    ].body = b'problem_counter{reason="GpuXid79"} 1\nproblem_gauge{reason="GpuXid79",type="GpuXid"} 1\n'
    page.body = dcgm_page(xids={5: 79})
    s.run(120)
    assert {(f.source, f.reason) for f in the_record(s).faults} == {("npd", "GpuXid79"), ("dcgm", "GpuXid79")}
    assert sayings(s, "FaultSeen") == 1


# ---------------------------------------------------------------- what is not known


@pytest.mark.parametrize(
    "body", [b"", b"\x00" * 999, b"<html></html>\n", FAILED[:-7]], ids=["empty", "bytes", "html", "cut"]
)
def test_rubbish_takes_nothing_back_and_holds_the_call(body: bytes) -> None:
    s, page = staged(page=GOOD)
    stubborn_pod(s)
    page.body = FAILED
    s.run(60)
    page.body = body
    remove_pod(s)
    s.run(120)
    assert (calls(s), marked(s)) == ([], ALL_MARKS)
    assert "exporter-node-0" in sentences(s)[-1]
    page.body = FAILED
    s.run(60)
    assert calls(s) == [("replace", "m-0")]


def test_an_exporter_that_hangs_is_told_after_ten_minutes_and_nothing_is_done() -> None:
    s, page = staged("{type: GpuXid}")
    page.error = Unreadable("no complete answer within 3 s")
    s.run(500, step=5)
    assert not messages(s, "FaultSeen")
    s.run(200, step=5)
    (told,) = messages(s, "FaultSeen")
    assert "nothing is known from dcgm: the page of gpu-operator/exporter-node-0 cannot be read: no " in told
    assert (calls(s), marked(s)) == ([], NO_MARKS)


def test_a_node_that_never_had_the_pod_is_not_missed() -> None:
    s = cast(policy())
    s.run(1800, step=5)
    assert not messages(s, "FaultSeen")
    assert (calls(s), marked(s), s.record("node-0")) == ([], NO_MARKS, None)
    assert sentences(s)[-1] == "healthy: no confirmed problem"


def test_a_pod_that_goes_away_clears_nothing_and_is_told() -> None:
    s, page = staged(page=GOOD)
    stubborn_pod(s)
    page.body = FAILED
    s.run(60)
    remove(s)
    s.exporters.clear()
    remove_pod(s)
    s.run(300, step=5)
    assert (calls(s), marked(s)) == ([], ALL_MARKS)
    assert "there is no such pod on the node" in sentences(s)[-1]


def test_a_pod_that_was_there_is_missed_on_a_healthy_node_too() -> None:
    s, _ = staged()
    remove(s)
    s.exporters.clear()
    s.run(800, step=5)
    (told,) = messages(s, "FaultSeen")
    assert "nothing is known from dcgm: there is no such pod on the node" in told
    assert (calls(s), marked(s)) == ([], NO_MARKS)


def test_a_pod_that_is_replaced_is_found_within_two_minutes() -> None:
    s, page = staged()
    remove(s)
    s.exporters.clear()
    s.run(20)
    after = exporter(s, dcgm_page(), name="another", ip="10.1.0.9")
    s.run(120)
    after.body = dcgm_page(xids={5: 79})
    s.run(30)
    assert calls(s) == [("replace", "m-0")]
    assert page.body == dcgm_page()


def test_two_pods_that_could_be_it_are_none() -> None:
    s = cast(policy(), agents=0)
    exporter(s, dcgm_page(remap_failed=[1]))
    exporter(s, dcgm_page(remap_failed=[1]), name="other", ip="10.1.0.8")
    s.agent("node-0")
    s.run(120)
    assert calls(s) == []
    assert "2 pods could be it: gpu-operator/exporter-node-0, gpu-operator/other-node-0" in sentences(s)[-1]


# ---------------------------------------------------------------- who lies


@pytest.mark.parametrize(
    "pod",
    [
        {"namespace": "tenant"},
        {"owner": "ReplicaSet"},
        {"owner": ""},
        {"ip": "169.254.169.254"},
        {"ip": "127.0.0.1"},
        {"ip": "metadata.internal"},
        {"phase": "Pending"},
    ],
    ids=lambda pod: next(iter(pod.items())),
)
def test_a_pod_that_anybody_may_make_is_not_believed(pod: dict[str, str]) -> None:
    s = cast(policy(), agents=0)
    exporter(s, dcgm_page(remap_failed=[1]), **pod)
    s.agent("node-0")
    s.run(180, step=5)
    assert (calls(s), marked(s), s.record("node-0")) == ([], NO_MARKS, None)


def test_a_tenants_pod_beside_the_real_one_blinds_nobody() -> None:
    s, page = staged()
    exporter(s, dcgm_page(), name="forged", namespace="tenant", ip="10.1.0.8")
    page.body = dcgm_page(xids={5: 79})
    s.run(60)
    assert calls(s) == [("replace", "m-0")]


def test_who_gets_the_address_of_the_pod_is_not_believed() -> None:
    s, page = staged(page=GOOD)
    remove(s)
    s.add_exporter("node-0", b"", 80, {"app": "tenant"}, name="tenant", namespace="tenant")
    page.body = FAILED  # what answers at the address now
    s.run(300, step=5)
    assert (calls(s), marked(s), s.record("node-0")) == ([], NO_MARKS, None)


def test_who_gets_the_address_of_the_pod_takes_nothing_back() -> None:
    s, page = staged(page=FAILED)
    stubborn_pod(s)
    s.run(30)
    remove(s)
    page.body = GOOD
    s.run(300, step=5)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)


# ---------------------------------------------------------------- what it costs


def test_a_healthy_node_lists_its_pods_once_and_never_again() -> None:
    s = cast(policy(), agents=0)
    exporter(s, GOOD)
    asked = lists(s)
    s.agent("node-0")
    s.run(3600, step=5)
    assert len(asked) == 2, "once to find the pod, once to make sure of the first good word"


def test_a_node_without_the_pod_lists_at_most_once_a_minute() -> None:
    s = cast(policy(), agents=0)
    asked = lists(s)
    s.agent("node-0")
    s.run(3600, step=5)
    assert 40 <= len(asked) <= 60


def test_the_page_is_read_every_fifteen_seconds_and_right_before_a_call() -> None:
    s, page = staged()
    read: list[float] = []
    plain = page.read

    def noted() -> bytes:
        read.append(s.clock.monotonic())
        return plain()

    page.read = noted  # type: ignore[method-assign]
    s.run(300)
    assert 19 <= len(read) <= 21
    stubborn_pod(s)
    page.body = dcgm_page(xids={5: 79})
    s.run(60)
    remove_pod(s)
    s.provider.before_call = lambda: read.append(-s.clock.monotonic())
    s.run(30)
    (call,) = [i for i, at in enumerate(read) if at < 0]
    assert -read[call] - read[call - 1] <= 5


@pytest.mark.parametrize("answers", [False, True])
def test_a_slow_page_keeps_no_other_fault_from_being_treated(answers: bool) -> None:
    """A driver that hangs is why the node is replaced, and why its exporter answers late or never."""
    s, page = staged("{type: NeuronHealth}")
    plain = page.read

    def slow() -> bytes:
        s.clock.advance(2.9)
        if not answers:
            raise Unreadable("no complete answer within 3 s")
        return plain()

    page.read = slow  # type: ignore[method-assign]
    s.fault("node-0")
    to_the_end(s, Cloud(s))
    assert calls(s) == [("replace", "m-0")]


# ---------------------------------------------------------------- Autopilot: its gauge beside its labels

HEALTH = "autopilot.ibm.com/gpuhealth"


def autopilot(
    match: str = "{source: autopilot}", remedy: str = REPLACE, more: str = ""
) -> tuple[Stage, Page]:
    s = cast(policy(match, remedy, "[npd, autopilot]", more), agents=0)
    page = s.add_exporter(
        "node-0", autopilot_page(), 8081, {"app": "autopilot"}, name="autopilot", namespace="autopilot"
    )
    s.agent("node-0")
    s.run(60, step=5)
    return s, page


def mark(s: Stage, value: str) -> None:
    change_node(s, "node-0", lambda n: n["metadata"]["labels"].update({HEALTH: value}))


def test_rows_that_wait_to_be_remapped_by_the_gauge_alone_end_in_a_replacement() -> None:
    s, page = autopilot()
    page.body = autopilot_page(remapped=[4])
    to_the_end(s, Cloud(s))
    assert calls(s) == [("replace", "m-0")]
    assert the_record(s).faults[0].device == "GPU 4"
    judge(s)


def test_a_link_that_was_in_use_in_one_run_touches_nothing_where_the_rule_waits_for_another() -> None:
    s, page = autopilot("{type: AutopilotPCIe}", more="    after: 65m\n")
    page.body = autopilot_page(pciebw={2: 2.1})
    s.run(3600, step=15)
    page.body = autopilot_page()
    s.run(900, step=15)
    assert (phase(s), calls(s), marked(s)) == (Phase.WITHDRAWN, [], NO_MARKS)
    page.body = autopilot_page(pciebw={2: 2.1})
    s.run(4200, step=15)
    assert calls(s) == [("replace", "m-0")]


def test_level_1_that_a_change_of_the_node_sets_to_zero_is_not_taken_back() -> None:
    s, page = autopilot("{type: AutopilotDcgm, reason: DcgmLevel1}")
    stubborn_pod(s)
    page.body = autopilot_page(dcgm=1)
    s.run(60)
    mark(s, "WARN")  # its daemon writes 0 with every change of its Node
    page.body = autopilot_page()
    s.run(300, step=5)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)


@pytest.mark.parametrize(
    "page", [autopilot_page(dcgm=1), autopilot_page(pvc=1), autopilot_page(ping={"node-1": 1})]
)
def test_what_does_not_accuse_this_node_touches_nothing_by_a_rule_for_all(page: bytes) -> None:
    s, served = autopilot()
    served.body = page
    s.run(300, step=5)
    assert (calls(s), marked(s)) == ([], NO_MARKS)


def test_a_gauge_that_cannot_be_read_leaves_the_label_its_word() -> None:
    s, page = autopilot("{source: autopilot, reason: AutopilotEvict}")
    page.error = Unreadable("the answer was cut")
    s.run(60)
    mark(s, "EVICT")
    to_the_end(s, Cloud(s))
    assert calls(s) == [("replace", "m-0")]
    judge(s)


def test_a_gauge_that_cannot_be_read_is_told_after_ten_minutes() -> None:
    s, page = autopilot()
    page.body = autopilot_page("another-node", remapped=[1])
    s.run(700, step=5)
    (told,) = messages(s, "FaultSeen")
    assert "it is about the node 'another-node'" in told
    assert calls(s) == []


def test_without_the_daemon_the_labels_are_read_all_the_same() -> None:
    s = cast(policy("{source: autopilot, reason: AutopilotEvict}", sources="[npd, autopilot]"))
    s.run(900, step=5)
    assert s.record("node-0") is None
    mark(s, "EVICT")
    to_the_end(s, Cloud(s))
    assert calls(s) == [("replace", "m-0")]


# ---------------------------------------------------------------- found by hunt 4


@pytest.mark.parametrize("restarted", [False, True], ids=["the same process", "a new process"])
def test_a_fault_that_only_the_exporter_states_is_not_proved_gone_while_it_is_not_there(
    restarted: bool,
) -> None:
    """It was proved "on its own page", which nobody had read since the boot."""
    s, page = staged(remedy=REBOOT)
    page.body = dcgm_page(remap_failed=[1])
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]
    remove(s)
    s.exporters.clear()
    boot(s, "node-0")
    if restarted:
        new_process(s, "node-0")
    s.run(300, step=5)
    assert (phase(s), marked(s)) == (Phase.PROVING, ALL_MARKS)
    assert "there is no such pod on the node" in sentences(s)[-1]
    exporter(s, dcgm_page(remap_failed=[1]), name="another", ip="10.1.0.9")
    s.run(600, step=5)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_the_exporter_of_another_node_at_the_old_address_blinds_nobody_for_ever() -> None:
    """Its GPUs were missed from then on, until the next boot, and no fault of the own ones was treated."""
    s, page = staged()
    remove(s)
    page.body = dcgm_page().replace(b"GPU-604ac76c", b"GPU-00000000").replace(b"node-0", b"node-9")
    s.run(60)
    s.exporters.clear()
    after = exporter(s, dcgm_page(), name="another", ip="10.1.0.9")
    s.run(300, step=5)
    after.body = dcgm_page(xids={5: 79})
    s.run(60)
    assert calls(s) == [("replace", "m-0")]


def test_a_driver_that_reports_no_xid_drains_no_node_by_a_rule_that_counts_them() -> None:
    """dcgm-exporter's own count has a line for XID 0 of each healthy GPU, and rises as its window moves."""
    rule = "{source: dcgm, reason: 'GpuXid*', times: {count: 5, within: 10m}}"
    s, page = staged(rule, page=dcgm_page(counted={}))
    page.body = dcgm_page(counted={(gpu, 0): 1 for gpu in range(8)})
    s.run(60)
    assert (calls(s), marked(s), messages(s, "FaultSeen")) == ([], NO_MARKS, [])


def test_a_gpu_that_is_off_the_page_is_not_well_because_the_others_are_to_an_agent_that_starts_then() -> None:
    s, page = staged(page=GOOD)
    stubborn_pod(s)
    page.body = FAILED
    s.run(60)
    page.body = dcgm_page(gpus=without(2), health={})
    s.run(30)
    new_process(s, "node-0")
    s.run(300)
    assert (phase(s), marked(s), calls(s)) == (Phase.RECOVERING, ALL_MARKS, [])


def without(gpu: int) -> list[int]:
    return [n for n in range(8) if n != gpu]


def boots(s: Stage, anew: bool) -> None:
    """``anew``: its agent is another process then."""
    boot(s, "node-0")
    if anew:
        new_process(s, "node-0")


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
def test_a_gpu_that_does_not_come_back_with_the_boot_is_not_mended_by_it(anew: bool) -> None:
    """The exporter shows the other seven, and they are well."""
    s, page = staged("{source: dcgm}", REBOOT)
    page.body = dcgm_page(xids={5: 79})
    s.run(30)
    assert calls(s) == [("reboot", "m-0")]
    page.body = dcgm_page(gpus=without(5))
    boots(s, anew)
    s.run(300)
    assert (phase(s), marked(s)) == (Phase.PROVING, ALL_MARKS)
    assert f"dcgm shows other devices, but not GPU 5 {UUIDS[5]}" in sentences(s)[-1]
    s.run(3600, step=10)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [("reboot", "m-0")])
    judge(s, faulty=["node-0"])


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
def test_nor_is_it_where_the_kernels_log_stated_the_same_which_says_nothing_of_a_gpu_that_is_gone(
    anew: bool,
) -> None:
    """The GPU pack and dcgm-exporter have one name for it. The new boot's log has no line of that GPU."""
    s, page = staged("{type: GpuXid}", REBOOT)
    xid = b'problem_counter{reason="GpuXid79"} %d\nproblem_gauge{reason="GpuXid79",type="GpuXid"} %d\n'
    log = [npd_page() + xid % (n, n) for n in (0, 1)]
    s.pages["node-0"].body = log[0]
    s.run(30)
    s.pages["node-0"].body, page.body = log[1], dcgm_page(xids={5: 79})
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]
    assert {f.source for f in the_record(s).faults} == {"npd", "dcgm"}
    s.pages["node-0"].body, page.body = log[0], dcgm_page(gpus=without(5))
    boots(s, anew)
    s.run(300)
    assert (phase(s), marked(s)) == (Phase.PROVING, ALL_MARKS)
    assert f"dcgm shows other devices, but not GPU 5 {UUIDS[5]}" in sentences(s)[-1]
    page.body = dcgm_page()
    s.run(300)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
def test_two_gpus_that_do_not_come_back_with_the_boot_are_missed(anew: bool) -> None:
    """A switch takes several off the bus at once. The six others have the indexes of those two as well."""
    s, page = staged("{source: dcgm}", REBOOT)
    page.body = dcgm_page(xids={4: 79, 5: 79})
    s.run(30)
    assert calls(s) == [("reboot", "m-0")]
    left = dcgm_page(gpus=[0, 1, 2, 3, 6, 7])
    page.body = left.replace(b'gpu="6"', b'gpu="4"').replace(b'gpu="7"', b'gpu="5"')
    boots(s, anew)
    s.run(300)
    assert (phase(s), marked(s)) == (Phase.PROVING, ALL_MARKS)
    assert "dcgm shows other devices, but not GPU 4 0000:62:00.0" in sentences(s)[-1]
    page.body = dcgm_page()
    s.run(300)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


@pytest.mark.parametrize("several", [3, 8])
def test_of_many_gpus_each_is_missed_by_a_record_of_many_faults(several: int) -> None:
    """A switch takes all of a machine off the bus. Their names gave way before the messages did."""
    s, page = staged("{source: dcgm}", REBOOT, page=dcgm_page(counted={}, health={}, actions={}))
    gpus, codes = range(several), (46, 48, 62, 64, 74, 79, 95, 109, 119, 120)
    page.body = dcgm_page(
        counted={(gpu, code): 1 for code in codes for gpu in gpus},
        health={(gpu, watch): (20, "DCGM_FR_PCI_REPLAY_RATE") for watch in WATCHES for gpu in gpus},
        actions=dict.fromkeys(gpus, 2),
        remap_failed=gpus,
    )
    s.run(100)
    assert calls(s) == [("reboot", "m-0")]
    page.body = dcgm_page(gpus=without(several - 1), counted={}, health={}, actions={})
    boot(s, "node-0")
    s.run(300)
    assert (phase(s), marked(s)) == (Phase.PROVING, ALL_MARKS)
    assert f"dcgm shows other devices, but not GPU {several - 1} 0000:" in sentences(s)[-1]
    page.body = dcgm_page(counted={}, health={}, actions={})
    s.run(300)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


def test_of_two_gpus_only_the_one_that_does_not_come_back_is_said_to_be_missed() -> None:
    s, page = staged("{source: dcgm}", REBOOT)
    page.body = dcgm_page(xids={4: 79, 5: 79})
    s.run(30)
    page.body = dcgm_page(gpus=without(5))
    boot(s, "node-0")
    s.run(300)
    assert sentences(s)[-1].startswith("probation: dcgm shows other devices, but not GPU 5 0000:63:00.0")
    assert "GPU 4" not in sentences(s)[-1]


def test_a_gpu_is_missed_by_a_record_of_so_many_faults_that_their_words_are_cut() -> None:
    """All that its GPU has is on the record, and its name is shorter there."""
    s, page = staged("{source: dcgm}", REBOOT, page=dcgm_page(counted={}, health={}, actions={}))
    codes = (46, 48, 62, 64, 74, 79, 95, 109, 119, 120)
    sick = {(5, watch): (20, "DCGM_FR_PCI_REPLAY_RATE") for watch in WATCHES}
    page.body = dcgm_page(
        counted={(5, code): 1 for code in codes}, health=sick, actions={5: 2}, remap_failed=[5]
    )
    s.run(100)
    assert calls(s) == [("reboot", "m-0")]
    (name,) = {f.device for f in the_record(s).faults}
    assert UUIDS[5] not in name
    page.body = dcgm_page(gpus=without(5), counted={}, health={}, actions={})
    boot(s, "node-0")
    s.run(300)
    assert (phase(s), marked(s)) == (Phase.PROVING, ALL_MARKS)
    assert f"dcgm shows other devices, but not {name}" in sentences(s)[-1]
    page.body = dcgm_page(counted={}, health={}, actions={})
    s.run(300)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


def test_other_gpus_at_the_same_addresses_are_those_of_another_host() -> None:
    """The machine was moved there by its provider, and its GPUs have other UUIDs."""
    s, page = staged("{source: dcgm}", REBOOT)
    page.body = dcgm_page(xids={5: 79})
    s.run(30)
    page.body = dcgm_page().replace(b"GPU-604ac76c", b"GPU-11111111")
    boot(s, "node-0")
    s.run(300)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


def test_the_gauge_of_autopilot_does_not_prove_a_gpu_that_it_does_not_show() -> None:
    s, page = autopilot(remedy=REBOOT)
    page.body = autopilot_page(remapped=[7])
    s.run(60)
    page.body = autopilot_page(gpus=without(7))
    boot(s, "node-0")
    s.run(300)
    assert phase(s) is Phase.PROVING
    assert "autopilot shows other devices, but not GPU 7" in sentences(s)[-1]
    page.body = autopilot_page()
    s.run(300)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
@pytest.mark.parametrize(
    "page_after",
    [dcgm_page(xids={5: 79}), dcgm_page(counted={(5, 79): 1})],
    ids=["the last XID", "its count"],
)
def test_an_xid_of_the_new_boot_from_before_the_first_look_is_no_proof_of_it(
    page_after: bytes, anew: bool
) -> None:
    """The GPU was off the bus again before its exporter was read for the first time. What a first page shows
    counts as old; but in a boot that is to be proved nothing is older than it."""
    s, page = staged(remedy=REBOOT)
    page.body = dcgm_page(xids={5: 79})
    s.run(60)
    page.body = page_after
    boots(s, anew)
    s.run(600)
    assert phase(s) is Phase.PROVING
    assert "has had XID 79 in this boot" in sentences(s)[-1]
    s.run(3600, step=10)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [("reboot", "m-0")])


def test_an_old_xid_on_a_healthy_node_is_nothing_to_an_agent_that_starts() -> None:
    s = staged(page=dcgm_page(xids={5: 79}))[0]
    s.run(600, step=5)
    assert (s.record("node-0"), marked(s), calls(s)) == (None, NO_MARKS, [])


REMAP_FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
@pytest.mark.parametrize(
    ("sick", "after", "reason"),
    [
        (FAILED, dcgm_page(), "GpuHealthPcie"),
        (dcgm_page(remap_failed=[1]), dcgm_page(without=[REMAP_FAILURE]), "GpuRowRemapFailed"),
        (dcgm_page(actions={0: 2}), dcgm_page(), "GpuRecoveryReboot"),
    ],
    ids=["health", "rows", "action"],
)
def test_a_page_that_says_nothing_of_the_fault_does_not_prove_the_boot(
    sick: bytes, after: bytes, reason: str, anew: bool
) -> None:
    """The exporter leaves out what it cannot ask DCGM for when it starts."""
    s, page = staged("{source: dcgm}", REBOOT)
    page.body = sick
    s.run(100)
    assert calls(s) == [("reboot", "m-0")]
    page.body = after
    boots(s, anew)
    s.run(300)
    assert (phase(s), marked(s)) == (Phase.PROVING, ALL_MARKS)
    assert f"dcgm shows nothing of {reason} since the boot" in sentences(s)[-1]
    page.body = dcgm_page(health={}, actions={})
    s.run(300)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
def test_the_boot_is_not_proved_before_autopilots_check_has_run_in_it(anew: bool) -> None:
    s, page = autopilot(remedy=REBOOT)
    page.body = autopilot_page(remapped=[7])
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]
    page.body = autopilot_page(without=["remapped"])
    boots(s, anew)
    s.run(300)
    assert (phase(s), marked(s)) == (Phase.PROVING, ALL_MARKS)
    assert "autopilot shows nothing of RowRemapPending since the boot" in sentences(s)[-1]
    page.body = autopilot_page(remapped=[7])
    s.run(60)
    assert phase(s) is not Phase.RECOVERED
    assert calls(s)[0] == ("reboot", "m-0")
