"""A fault that another system states by a mark on the Node: it outlasts boots, and is not ours to remove."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.builders.policies import HEAD
from tests.stories.scenery import Cloud, alive, change_node, judge, to_the_end
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    boot,
    calls,
    cast,
    exclude,
    label,
    marked,
    messages,
    new_process,
    phase,
    plugin_page,
    release_by_command,
    remove_pod,
    sayings,
    stubborn_pod,
    taints,
    the_record,
)

REBOOT = "{do: drain, within: 10m, then: force}, {do: reboot}, {do: replace}"
TAINTS = {
    "aznhc": {"key": "aznhc", "value": "failed", "effect": "NoSchedule"},
    "konduktor": {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"},
}
HEALTH = "autopilot.ibm.com/gpuhealth"


def policy(source: str, remedy: str = REBOOT) -> bytes:
    rule = f"  - name: marked\n    match: {{source: {source}}}\n    remedy: [{remedy}]\n    probation: 2m\n"
    return f"{HEAD}sources: [npd, {source}]\nlimits: {{cooldown: 0s}}\nrules:\n{rule}".encode()


def put(s: Stage, source: str, node: str = "node-0") -> None:
    """The other system marks the node."""
    if source == "autopilot":
        change_node(s, node, lambda n: n["metadata"]["labels"].update({HEALTH: "EVICT"}))
    else:
        change_node(s, node, lambda n: n["spec"].setdefault("taints", []).append(TAINTS[source]))


def take_off(s: Stage, source: str, node: str) -> None:
    """Somebody takes the mark off."""
    if source == "autopilot":
        change_node(s, node, lambda n: n["metadata"]["labels"].pop(HEALTH))
    else:
        change_node(s, node, lambda n: n["spec"]["taints"].remove(TAINTS[source]))


def overwrite(s: Stage, value: str) -> None:
    change_node(s, "node-0", lambda n: n["metadata"]["labels"].update({HEALTH: value}))


SYSTEMS = pytest.mark.parametrize("source", ["aznhc", "konduktor", "autopilot"])


@SYSTEMS
def test_a_mark_that_is_still_there_after_the_reboot_has_nothing_replaced(source: str) -> None:
    s = cast(policy(source))
    put(s, source)
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    s.run(300, step=5)
    assert (phase(s), marked(s), calls(s)) == (Phase.RECOVERED, NO_MARKS, [("reboot", "m-0")])
    if source != "autopilot":
        assert TAINTS[source] in taints(s), "the mark of another is not ours to remove"
    new_process(s, "node-0")
    s.run(1800, step=30)
    assert calls(s) == [("reboot", "m-0")]
    judge(s)


@pytest.mark.parametrize("source", TAINTS)
def test_one_that_was_taken_off_and_put_there_again_before_the_reboot_is_from_before_it_too(
    source: str,
) -> None:
    s = cast(policy(source))
    stubborn_pod(s)
    put(s, source)
    s.run(60)
    again = {**TAINTS[source], "timeAdded": "2026-11-21T03:01:00Z"}
    others = [t for t in taints(s) if t != TAINTS[source]]
    change_node(s, "node-0", lambda n: n["spec"].update(taints=others))
    s.run(60)
    change_node(s, "node-0", lambda n: n["spec"].update(taints=[*others, again]))
    s.run(60)
    remove_pod(s)
    s.run(30)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    s.run(300, step=5)
    assert (phase(s), marked(s), calls(s)) == (Phase.RECOVERED, NO_MARKS, [("reboot", "m-0")])
    new_process(s, "node-0")
    s.run(1800, step=30)
    assert calls(s) == [("reboot", "m-0")]
    judge(s)


@SYSTEMS
def test_a_mark_that_is_put_there_in_the_new_boot_leads_to_the_next_step(source: str) -> None:
    s = cast(policy(source))
    put(s, source)
    s.run(60)
    boot(s, "node-0")
    if source == "autopilot":
        overwrite(s, "PASS")
    else:
        change_node(
            s, "node-0", lambda n: n["spec"].update(taints=[t for t in taints(s) if t != TAINTS[source]])
        )
    s.run(60)
    put(s, source)
    s.run(60)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


@pytest.mark.parametrize("source", TAINTS)
def test_one_that_its_system_renews_after_the_boot_before_any_agent_looks_leads_to_the_next_step(
    source: str,
) -> None:
    """A check that runs at boot is done before the agent's pod is started. A mark that is another one than
    before is no late word of the boot before, where nothing says that it is that old."""
    s = cast(policy(source))
    put(s, source)
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    renewed = {**TAINTS[source], "timeAdded": f"{s.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"}
    others = [t for t in taints(s) if t != TAINTS[source]]
    change_node(s, "node-0", lambda n: n["spec"].update(taints=[*others, renewed]))
    s.run(60)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


@SYSTEMS
def test_the_mark_of_a_replaced_machine_starts_nothing_again(source: str) -> None:
    s = cast(policy(source, "{do: drain, within: 10m, then: force}, {do: replace}"))
    put(s, source)
    to_the_end(s, Cloud(s))
    s.run(900, step=15)
    assert calls(s) == [("replace", "m-0")]
    judge(s)


RAN = "autopilot.ibm.com/dcgm.level.3"


def put_at(s: Stage, source: str, at: datetime) -> None:
    """The other system marks the node, and the mark says when."""
    if source == "autopilot":
        change_node(
            s, "node-0", lambda n: n["metadata"]["labels"].update({RAN: f"{at:ERR_%Y-%m-%d_%H.%M.%SUTC}"})
        )
    else:
        timed = {**TAINTS[source], "timeAdded": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
        change_node(s, "node-0", lambda n: n["spec"].setdefault("taints", []).append(timed))


def started(s: Stage, source: str, booted: float, put: float, kernel: str = "m-0-boot-1") -> None:
    """An agent starts. Its kernel booted, and the mark was put there, so many seconds ago."""
    s.clock.advance(1000)
    put_at(s, source, s.clock.true_time() - timedelta(seconds=put))
    s.kernels["node-0"] = kernel
    s.clock._booted = s.clock.monotonic() - booted
    s.agent("node-0")
    s.run(90)


@SYSTEMS
def test_a_mark_that_says_it_was_put_there_before_the_boot_is_told_and_nothing_is_done(source: str) -> None:
    """Recovery was off meanwhile, so that no record says in which boot it was put there."""
    s = cast(policy(source), agents=0)
    started(s, source, booted=300, put=600)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [], NO_MARKS)
    assert "and the machine has booted at 03:11:43Z: that may have mended it" in the_record(s).sentence


def test_a_mark_of_days_ago_is_told_with_the_days_of_it_and_of_the_boot() -> None:
    """A time alone is taken for one of today, by a person who gets the node in the night."""
    s = cast(policy("aznhc"), agents=0)
    started(s, "aznhc", booted=86400.0 * 4, put=86400.0 * 5)
    told = "it was put there at 2026-11-16 03:16:43Z, and the machine has booted at 2026-11-17 03:16:43Z: "
    assert told in the_record(s).sentence


@SYSTEMS
@pytest.mark.parametrize(
    ("booted", "put", "kernel"),
    [(600, 300, "m-0-boot-1"), (300, 310, "m-0-boot-1"), (300, 600, "another's")],
    ids=["in this boot", "clocks that differ", "a kernel that is not the Node's"],
)
def test_where_it_may_be_of_this_boot_it_is_treated(
    source: str, booted: float, put: float, kernel: str
) -> None:
    s = cast(policy(source), agents=0)
    started(s, source, booted, put, kernel)
    assert calls(s) == [("reboot", "m-0")]


@SYSTEMS
def test_the_same_mark_on_the_next_machine_of_that_name_is_no_memory_of_the_one_before(source: str) -> None:
    """Its agent was started after it was put there. The mark itself says nothing of when that was."""
    s = cast(policy(source, "{do: drain, within: 10m, then: force}, {do: replace}"))
    put(s, source)
    s.run(60)
    s.provider.terminate("workers", "m-0")
    s.delete_node("node-0")
    s.provider.launch("workers", "m-9")
    s.register("node-0", "m-9")
    s.kill(alive(s, "node-0"))
    s.agent("node-0", name="that of m-9", place="a pod on m-9")
    s.run(300, step=5)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("replace", "m-0")])
    s.kill(alive(s, "node-0"))
    put(s, source)
    s.agent("node-0", name="the next one", place="another pod on m-9")
    s.run(90)
    assert calls(s) == [("replace", "m-0"), ("replace", "m-9")]


def test_an_eviction_that_autopilots_hourly_pass_overwrites_is_recovered_to_its_end() -> None:
    s = cast(policy("autopilot"))
    stubborn_pod(s)
    put(s, "autopilot")
    s.run(60)
    overwrite(s, "PASS")
    s.run(120)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    s.run(600, step=5)
    assert calls(s) == [("reboot", "m-0")]


@SYSTEMS
def test_a_mark_is_told_once_where_the_policy_only_reports_it(source: str) -> None:
    s = cast(policy(source, "{do: notify}"))
    put(s, source)
    s.run(600, step=5)
    new_process(s, "node-0")
    s.run(600, step=5)
    assert (sayings(s, "FaultSeen"), calls(s)) == (1, [])


# ---------------------------------------------------------------- two marks of one fault


LOG = "aznhc-results"
FAILED = "ERROR:  nhc:  Health check failed:  check_gpu_count: GPU count 7, expected 8. FaultCode: NHC2009"
PASSED = "SUCCESS:  nhc:  check_gpu_count\nHealth checks completed with exit code: 0."


def write_log(s: Stage, log: str) -> None:
    change_node(s, "node-0", lambda n: n["metadata"].setdefault("annotations", {}).update({LOG: log}))


def rebooted_by_taint_and_log() -> Stage:
    """Azure's checks left both, and the reboot is proved."""
    s = cast(policy("aznhc"))
    write_log(s, FAILED)
    put(s, "aznhc")
    s.run(60)
    boot(s, "node-0")
    s.run(300, step=5)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])
    return s


@pytest.mark.parametrize("restarted", [False, True])
def test_taking_off_azures_taint_and_leaving_its_log_is_no_new_fault(restarted: bool) -> None:
    s = rebooted_by_taint_and_log()
    take_off(s, "aznhc", "node-0")
    if restarted:
        new_process(s, "node-0")
    s.run(600, step=5)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])
    put(s, "aznhc")
    s.run(120)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")], "a check has failed again"


def test_nor_is_one_of_its_two_taints() -> None:
    s = cast(policy("aznhc"))
    other = {**TAINTS["aznhc"], "effect": "NoExecute", "timeAdded": "2026-11-21T02:59:00Z"}
    write_log(s, FAILED)
    put(s, "aznhc")
    change_node(s, "node-0", lambda n: n["spec"]["taints"].append(other))
    s.run(60)
    boot(s, "node-0")
    s.run(300, step=5)
    take_off(s, "aznhc", "node-0")
    s.run(300, step=5)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


@pytest.mark.parametrize("restarted", [False, True])
def test_nor_is_it_after_a_release_without_a_boot(restarted: bool) -> None:
    s = cast(policy("aznhc", "{do: drain, within: 1m, then: handOver}"))
    stubborn_pod(s)
    write_log(s, FAILED)
    put(s, "aznhc")
    s.run(180)
    assert phase(s) is Phase.HANDED_OVER
    release_by_command(s)
    s.run(60)
    take_off(s, "aznhc", "node-0")
    if restarted:
        new_process(s, "node-0")
    s.run(600, step=5)
    assert (phase(s), marked(s)) == (Phase.RELEASED, NO_MARKS)


def test_a_later_run_that_passes_beside_the_old_taint_is_no_new_fault_and_is_told() -> None:
    s = rebooted_by_taint_and_log()
    write_log(s, PASSED)
    s.run(300, step=5)
    new_process(s, "node-0")
    s.run(900, step=5)
    assert (calls(s), marked(s)) == ([("reboot", "m-0")], NO_MARKS)
    assert any("beside a log of checks that passed" in text for text in messages(s, "FaultSeen"))
    write_log(s, FAILED.replace("7", "6"))
    s.run(120)
    assert calls(s) == [("reboot", "m-0")] * 2


@pytest.mark.parametrize("source", TAINTS)
def test_the_same_taints_in_another_order_are_no_new_fault(source: str) -> None:
    s = cast(policy(source))
    one, other = (
        TAINTS[source],
        {**TAINTS[source], "effect": "NoExecute", "timeAdded": "2026-11-21T02:59:00Z"},
    )
    change_node(s, "node-0", lambda n: n["spec"].setdefault("taints", []).extend([one, other]))
    s.run(60)
    boot(s, "node-0")
    s.run(300, step=5)
    change_node(s, "node-0", lambda n: n["spec"].update(taints=[other, one]))
    s.run(300, step=5)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])


# ---------------------------------------------------------------- a boot while no record could be opened


def excluded_with_a_mark(source: str) -> Stage:
    """In fleet mode. No record is opened of a node that is excluded."""
    s = cast(policy(source).replace(b"[npd, ", b"["), agents=0)
    s.fleet("controller-0")
    s.run(3)
    exclude(s)
    put(s, source)
    s.run(10)
    assert s.record("node-0") is None
    return s


def booted(s: Stage) -> None:
    boot(s, "node-0")
    s.run(10)


def no_longer_excluded(s: Stage) -> None:
    label(s, "node-0", **{"noderecovery.dev/exclude": None})
    s.run(90)


@SYSTEMS
def test_a_mark_that_was_seen_before_the_boot_is_told_and_nothing_is_done(source: str) -> None:
    s = excluded_with_a_mark(source)
    s.run(60)
    booted(s)
    no_longer_excluded(s)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [], NO_MARKS)
    assert "it was there before the machine booted, and that may have mended it" in the_record(s).sentence


@SYSTEMS
def test_one_that_was_first_seen_within_seconds_of_the_boot_may_be_of_it_and_is_treated(source: str) -> None:
    s = excluded_with_a_mark(source)
    booted(s)
    no_longer_excluded(s)
    assert calls(s) == [("reboot", "m-0")]


@SYSTEMS
def test_so_is_one_that_was_put_there_again_within_seconds_of_it(source: str) -> None:
    s = excluded_with_a_mark(source)
    s.run(60)
    take_off(s, source, "node-0")
    s.run(600)
    put(s, source)
    s.run(5)
    booted(s)
    no_longer_excluded(s)
    assert calls(s) == [("reboot", "m-0")]


def test_one_that_says_it_is_older_is_told_though_the_controller_saw_it_only_seconds_before() -> None:
    s = cast(policy("konduktor").replace(b"[npd, ", b"["), agents=0)
    exclude(s)
    put_at(s, "konduktor", s.clock.true_time() - timedelta(minutes=10))
    s.fleet("controller-0")
    s.run(10)
    booted(s)
    no_longer_excluded(s)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])


@SYSTEMS
def test_one_that_was_put_there_again_since_the_boot_is_treated(source: str) -> None:
    s = excluded_with_a_mark(source)
    s.run(60)
    booted(s)
    take_off(s, source, "node-0")
    s.run(10)
    put(s, source)
    no_longer_excluded(s)
    assert calls(s) == [("reboot", "m-0")]


@SYSTEMS
def test_so_is_the_same_mark_on_a_node_that_was_registered_anew_since(source: str) -> None:
    s = excluded_with_a_mark(source)
    s.run(60)
    s.delete_node("node-0")
    s.register("node-0", "m-0", boot="boot-2")
    put(s, source)
    s.run(90)
    assert calls(s) == [("reboot", "m-0")]


@SYSTEMS
@pytest.mark.parametrize("remedy", [REBOOT, "{do: notify}"], ids=["treated", "only reported"])
def test_a_mark_that_a_boot_has_ended_is_no_part_of_the_next_faults_recovery(
    source: str, remedy: str
) -> None:
    nvlink = f"  - {{name: nvlink, match: {{type: GpuNvlink}}, remedy: [{REBOOT}], probation: 2m}}\n"
    s = cast(policy(source, remedy) + nvlink.encode(), plugin=True)
    stubborn_pod(s)
    put(s, source)
    s.run(60)
    boot(s, "node-0")
    s.run(300, step=5)
    new_process(s, "node-0")
    s.run(20)
    assert phase(s) is Phase.WITHDRAWN
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(10)
    assert [f.type for f in the_record(s).faults] == ["GpuNvlink"]
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(60)
    assert (phase(s), calls(s), marked(s)) == (Phase.WITHDRAWN, [], NO_MARKS)
