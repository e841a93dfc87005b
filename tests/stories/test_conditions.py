"""Faults that a Node's condition states: alone, and beside node-problem-detector's page."""

from __future__ import annotations

from datetime import timedelta

import pytest
from recovery_testkit.kubefaults import Asked, lost_request
from recovery_testkit.stage import Stage, npd_page

from recovery.errors import Refused
from recovery.model import Phase
from recovery.report.own_view import explanation
from tests.builders.faults import DMA
from tests.builders.policies import HEAD
from tests.stories.scenery import Cloud, alive, change_node, judge, sentences, to_the_end
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
    plugin_page,
    record_sentences,
    release_by_command,
    remove_pod,
    sayings,
    stubborn_pod,
    the_record,
)

NEURON = ("NeuronHealth", "True", DMA)
EKS = ("AcceleratedHardwareReady", "False", "NvidiaXID79Error")
EKS_GOOD = ("AcceleratedHardwareReady", "True", "NvidiaAcceleratedHardwareIsReady")
COUNT, COUNT_GOOD = ("GpuNvlink", "True", "GpuNvlinkBad"), ("GpuNvlink", "False", "GpuNvlinkGood")


def policy(match: str = "{}", remedy: str = "{do: drain, within: 10m, then: force}, {do: replace}") -> bytes:
    rule = f"  - name: hardware\n    match: {match}\n    remedy: [{remedy}]\n    probation: 2m\n"
    return f"{HEAD}sources: [conditions]\nlimits: {{cooldown: 0s}}\nrules:\n{rule}".encode()


def both(remedy: str = "{do: drain, within: 10m, then: force}, {do: replace}") -> bytes:
    return policy(remedy=remedy).replace(b"[conditions]", b"[npd, conditions]")


def writes(s: Stage, *conditions: tuple[str, ...], node: str = "node-0", behind: float = 0.0) -> None:
    """The detector writes its conditions, or renews them. Its clock is so many seconds ``behind``."""
    now = f"{s.clock.true_time() - timedelta(seconds=behind):%Y-%m-%dT%H:%M:%SZ}"

    def change(obj: dict[str, object]) -> None:
        listed: list[dict[str, str]] = obj["status"]["conditions"]  # type: ignore[index]
        for type_, status, reason, *message in conditions:
            old = next((c for c in listed if c["type"] == type_), {})
            same = (old.get("status"), old.get("reason")) == (status, reason)
            new = {"type": type_, "status": status, "reason": reason, "message": (*message, "found")[0]}
            times = {
                "lastHeartbeatTime": now,
                "lastTransitionTime": old.get("lastTransitionTime", now) if same else now,
            }
            listed[:] = [c for c in listed if c["type"] != type_] + [new | times]

    change_node(s, node, change)


def renewed(s: Stage, minutes: int, *conditions: tuple[str, str, str], node: str = "node-0") -> None:
    """So long, while the detector renews its conditions once a minute."""
    for _ in range(minutes):
        writes(s, *conditions, node=node)
        s.run(60, step=5)


# ---------------------------------------------------------------- alone


@pytest.mark.parametrize("condition", [NEURON, EKS, COUNT], ids=["NPD's log rule", "EKS's agent", "a plugin"])
def test_a_condition_alone_ends_in_a_replacement(condition: tuple[str, str, str]) -> None:
    s = cast(policy())
    cloud = Cloud(s)
    writes(s, condition)
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert phase(s) is Phase.RECOVERED
    judge(s)


OFF_THE_BUS = "detected XID-79 on the instance, review kernel logs for additional information."
NO_ENGINE = "failed to connect to nv-hostengine"


def eks_goes_on(s: Stage, reason: str, *messages: str) -> None:
    """EKS's agent has found one more thing, which is its reason now. Its condition has not turned since."""

    def change(obj: dict[str, object]) -> None:
        listed: list[dict[str, str]] = obj["status"]["conditions"]  # type: ignore[index]
        now = f"{s.clock.true_time():%Y-%m-%dT%H:%M:%SZ}"
        said = {"reason": reason, "message": "; ".join(messages), "lastHeartbeatTime": now}
        next(c for c in listed if c["type"] == EKS[0]).update(said)

    change_node(s, "node-0", change)


def test_a_gpu_that_fell_off_the_bus_is_replaced_though_eks_has_lost_its_engine_since() -> None:
    """Both come within the 15 s in which its agent writes once: the reason is that of the last one."""
    s = cast(policy('{type: AcceleratedHardwareReady, reason: "NvidiaXID*"}'))
    cloud = Cloud(s)
    writes(s, (*EKS[:2], "DCGMError", f"{OFF_THE_BUS}; {NO_ENGINE}"))
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert {f.reason for f in the_record(s).faults} == {"NvidiaXID79Error", "DCGMError"}
    judge(s)


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
def test_what_stands_in_a_message_of_eks_since_before_the_release_starts_nothing_again(anew: bool) -> None:
    s = cast(policy('{type: AcceleratedHardwareReady, reason: "NvidiaXID*"}'))
    s.provider.preflight_error = Refused("its group is gone")
    writes(s, (*EKS, OFF_THE_BUS))
    s.run(60)
    assert phase(s) is Phase.HANDED_OVER
    release_by_command(s)
    s.run(90)
    eks_goes_on(s, "DCGMError", OFF_THE_BUS, NO_ENGINE)
    if anew:
        new_process(s, "node-0")
    s.run(600, step=5)
    assert [f.reason for f in the_record(s).faults] == ["DCGMError"]
    assert (the_record(s).sentence, calls(s)) == ("DCGMError: no rule of the policy speaks of it", [])


def test_the_condition_of_a_replaced_machine_starts_nothing_again() -> None:
    s = cast(policy())
    writes(s, EKS)
    to_the_end(s, Cloud(s))
    s.run(1800, step=30)
    assert calls(s) == [("replace", "m-0")]


def test_a_condition_that_was_never_taken_back_is_latched_until_a_boot() -> None:
    s = cast(policy(remedy="{do: drain, within: 10m, then: force}, {do: reboot}, {do: replace}"))
    writes(s, EKS)
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    writes(s, EKS_GOOD)  # its agent starts with the boot
    s.run(300, step=5)
    assert (phase(s), marked(s), calls(s)) == (Phase.RECOVERED, NO_MARKS, [("reboot", "m-0")])
    assert any(
        "by its own signals" in sentence for sentence in s.actors["agent of node-0"].sentences
    )  # it has no page
    judge(s)


def test_a_condition_that_is_still_there_from_before_the_boot_proves_nothing_until_its_writer_speaks() -> (
    None
):
    s = cast(policy(remedy="{do: drain, within: 10m, then: force}, {do: reboot}, {do: replace}"))
    writes(s, EKS)
    s.run(60)
    boot(s, "node-0")  # its writer does not come up again
    s.run(300, step=5)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.PROVING)
    writes(s, EKS_GOOD)
    s.run(300, step=5)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERED)
    judge(s)


def test_where_its_writer_never_speaks_again_the_machine_goes_to_a_person() -> None:
    s = cast(policy(remedy="{do: drain, within: 10m, then: force}, {do: reboot}"))
    writes(s, EKS)
    s.run(60)
    boot(s, "node-0")
    s.run(3600, step=10)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.HANDED_OVER)
    assert "AcceleratedHardwareReady is False from before this boot" in the_record(s).sentence
    judge(s, faulty=["node-0"])


def test_a_condition_that_comes_back_after_the_boot_leads_to_the_next_step() -> None:
    s = cast(policy(remedy="{do: drain, within: 10m, then: force}, {do: reboot}, {do: replace}"))
    writes(s, EKS)
    s.run(60)
    boot(s, "node-0")
    writes(s, EKS_GOOD)
    s.run(30)
    writes(s, EKS)
    s.run(60)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_what_a_dead_writer_left_starts_nothing_and_is_told() -> None:
    s = cast(policy(), agents=0)
    writes(s, EKS)
    s.run(3600, step=60)
    s.agent("node-0")
    s.run(900, step=5)
    assert calls(s) == []
    assert any("AcceleratedHardwareReady is False, but was last renewed at " in x for x in sentences(s))


def test_a_plugins_condition_that_becomes_good_in_the_drain_gives_the_node_back() -> None:
    s = cast(policy())
    stubborn_pod(s)
    writes(s, COUNT)
    s.run(60)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    renewed(s, 4, COUNT_GOOD)
    assert (phase(s), marked(s), calls(s)) == (Phase.WITHDRAWN, NO_MARKS, [])
    judge(s)


@pytest.mark.parametrize("odd", ["true", "TRUE", "1", ""])
def test_a_status_that_is_none_takes_no_fault_back_and_is_told(odd: str) -> None:
    s = cast(policy())
    stubborn_pod(s)
    writes(s, COUNT)
    s.run(60)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    renewed(s, 5, (COUNT[0], odd, COUNT[2]))
    assert (phase(s), marked(s), calls(s)) == (Phase.RECOVERING, ALL_MARKS, [])
    remove_pod(s)
    renewed(s, 1, (COUNT[0], odd, COUNT[2]))
    assert calls(s) == []
    assert f"GpuNvlink is Unknown: its status is {odd!r}" in " ".join(sentences(s))
    renewed(s, 1, COUNT)
    assert calls(s) == [("replace", "m-0")]


def test_a_condition_that_turned_good_a_moment_ago_holds_the_call() -> None:
    s = cast(policy())
    stubborn_pod(s)
    writes(s, COUNT)
    s.run(60)
    writes(s, COUNT_GOOD)
    s.run(10)
    remove_pod(s)
    s.run(30)
    assert calls(s) == []
    assert "GpuNvlink is good now, which counts once it is renewed and seen again" in sentences(s)[-1]


def test_an_agent_that_starts_then_holds_the_call_too_and_gives_the_node_back() -> None:
    """It never saw the condition bad, and its record says that it was."""
    s = cast(policy())
    stubborn_pod(s)
    writes(s, COUNT)
    s.run(60)
    writes(s, COUNT_GOOD)
    s.run(10)
    new_process(s, "node-0")
    remove_pod(s)
    s.run(30)
    assert calls(s) == []
    assert "GpuNvlink is good now, which counts once it is renewed and seen again" in sentences(s)[-1]
    renewed(s, 4, COUNT_GOOD)
    assert (phase(s), marked(s), calls(s)) == (Phase.WITHDRAWN, NO_MARKS, [])
    judge(s)


def test_what_turns_good_while_the_fleet_is_counted_is_seen_before_the_call() -> None:
    s = cast(policy())
    stubborn_pod(s)
    writes(s, COUNT)
    s.run(60)
    turned: list[str] = []

    def counting(asked: Asked) -> bool:
        if asked.method == "GET" and asked.path == "/api/v1/nodes" and not turned:
            turned.append(asked.path)
            writes(s, COUNT_GOOD)
        return False

    remove_pod(s)
    s.api.fail_next(counting, lost_request)
    s.run(30)
    assert turned
    assert calls(s) == []


# ---------------------------------------------------------------- etcd is restored


def backup(s: Stage) -> list[dict[str, str]]:
    """The conditions of the Node, to be put back as they were."""
    return [dict(c) for c in s.node("node-0")["status"]["conditions"]]


def restore(s: Stage, conditions: list[dict[str, str]]) -> None:
    change_node(s, "node-0", lambda obj: obj["status"].update(conditions=conditions))


@pytest.mark.parametrize("sick", [False, True], ids=["it was taken back", "it is there again"])
def test_a_condition_from_before_etcd_was_restored_starts_nothing_until_its_writer_renews_it(
    sick: bool,
) -> None:
    s = cast(policy(), agents=0)
    writes(s, COUNT)
    before = backup(s)
    s.run(60, step=5)
    writes(s, COUNT_GOOD)
    s.agent("node-0")
    s.agent("node-1")
    renewed(s, 3, COUNT_GOOD)
    restore(s, before)
    s.run(240, step=5)
    assert (calls(s), marked(s)) == ([], NO_MARKS)
    writes(s, COUNT if sick else COUNT_GOOD)
    s.run(60, step=5)
    assert calls(s) == ([("replace", "m-0")] if sick else [])


def test_a_good_condition_from_before_etcd_was_restored_takes_nothing_back() -> None:
    s = cast(policy())
    stubborn_pod(s)
    writes(s, COUNT_GOOD)
    s.run(60, step=5)
    writes(s, COUNT_GOOD)
    before = backup(s)
    s.run(60, step=5)
    writes(s, COUNT)
    s.run(60, step=5)
    assert phase(s) is Phase.RECOVERING
    restore(s, before)
    s.run(240, step=5)
    remove_pod(s)
    s.run(30)
    assert (phase(s), marked(s), calls(s)) == (Phase.RECOVERING, ALL_MARKS, [])
    assert "GpuNvlink is False from before this boot, or before etcd was restored" in sentences(s)[-1]
    renewed(s, 1, COUNT)
    assert calls(s) == [("replace", "m-0")]


# ---------------------------------------------------------------- two witnesses


def test_what_two_sources_state_is_one_fault_told_once() -> None:
    s = cast(both())
    stubborn_pod(s)
    s.fault("node-0")
    writes(s, NEURON)
    s.run(90)
    assert {(f.source, f.reason) for f in the_record(s).faults} == {("npd", DMA), ("conditions", DMA)}
    assert sayings(s, "FaultSeen") == 1
    assert not [x for x in record_sentences(s) if "seen too" in x]
    remove_pod(s)
    to_the_end(s, Cloud(s))
    assert [x for x in messages(s, "Replacing") if x.count(DMA) == 1]
    judge(s)


def test_explain_names_each_witness_with_its_evidence_and_what_ends_it() -> None:
    s = cast(both())
    stubborn_pod(s)
    s.fault("node-0")
    writes(s, NEURON)
    s.run(90)
    agent = alive(s, "node-0").agent
    assert agent is not None
    (found,) = explanation(agent.view, "node-0", {})["faults"]
    assert found["stated"] == [
        {"source": "npd", "evidence": f"node-problem-detector reports {DMA} (NeuronHealth)", "device": ""},
        {
            "source": "conditions",
            "evidence": "the Node's condition NeuronHealth is True: found",
            "device": "",
        },
    ]
    assert found["ends"] == "another boot or machine ends it"


def test_a_fault_with_two_witnesses_ends_when_both_have_ended() -> None:
    s = cast(both(), plugin=True)
    stubborn_pod(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    writes(s, COUNT)
    s.run(60)
    s.pages["node-0"].body = plugin_page(False, 1)
    renewed(s, 2, COUNT)
    assert phase(s) is Phase.RECOVERING
    renewed(s, 4, COUNT_GOOD)
    assert (phase(s), marked(s), calls(s)) == (Phase.WITHDRAWN, NO_MARKS, [])
    judge(s)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_second_witness_that_comes_late_says_nothing_new(restarted: bool) -> None:
    s = cast(both(remedy="{do: notify}"))
    s.fault("node-0")
    s.run(5)
    before = sayings(s, "FaultSeen")
    assert (phase(s), before) == (Phase.HANDED_OVER, 1)
    writes(s, NEURON)
    s.run(120)
    if restarted:
        new_process(s, "node-0")
        s.run(60)
    assert sayings(s, "FaultSeen") == before
    assert phase(s) is Phase.HANDED_OVER


def test_after_a_late_witness_its_next_statement_is_a_new_fault() -> None:
    s = cast(both(remedy="{do: notify}"))
    s.fault("node-0")
    writes(s, NEURON)
    s.run(120)
    writes(s, ("NeuronHealth", "False", "NeuronHasNoError"))
    s.run(60)
    writes(s, NEURON)
    s.run(60)
    assert sayings(s, "FaultSeen") == 2


def test_a_late_witness_keeps_the_node_with_the_person_who_has_it() -> None:
    """The first one takes back what both state."""
    s = cast(both(remedy="{do: notify}"), plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(5)
    renewed(s, 2, COUNT)
    assert [f.source for f in the_record(s).faults] == ["npd"]
    s.pages["node-0"].body = plugin_page(False, 1)
    renewed(s, 2, COUNT)
    assert (phase(s), [f.source for f in the_record(s).faults]) == (Phase.HANDED_OVER, ["conditions"])
    renewed(s, 4, COUNT_GOOD)
    assert phase(s) is Phase.WITHDRAWN


def test_with_recovery_off_a_late_witness_is_no_news_either() -> None:
    s = cast(both(remedy="{do: notify}"))
    s.fault("node-0")
    s.run(5)
    new_process(s, "node-0", on=False)
    writes(s, NEURON)
    s.run(120)
    assert not any("would only report" in x for x in sentences(s))


# ---------------------------------------------------------------- NVSentinel's codes and actions

XID_31 = "ErrorCode:31 GPU:4 PCI:0000:c4:00.0 Xid 31 Recommended Action=NONE;"
XID_79 = "ErrorCode:79 GPU:5 PCI:0000:c5:00.0 Xid 79 Recommended Action=RESTART_BM;"


def xids(message: str) -> tuple[str, ...]:
    return ("SysLogsXIDError", "True", "SysLogsXIDErrorIsNotHealthy", message)


def test_what_nvsentinel_recommends_nothing_for_is_only_told_by_a_rule_for_all_of_its_type() -> None:
    s = cast(policy('{type: "SysLogs*"}'))
    writes(s, xids(XID_31))
    s.run(120)
    assert (calls(s), marked(s)) == ([], NO_MARKS)
    assert messages(s, "FaultSeen")
    writes(s, xids(XID_31 + XID_79))
    s.run(60)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize("watch", ["GpuAllWatch", "GpuNvswitchFatalWatch"])
def test_a_watch_of_nvsentinels_over_a_whole_gpu_or_switch_is_heard(watch: str) -> None:
    s = cast(policy('{reason: "*IsNotHealthy*_RESTART_BM"}'))
    writes(s, (watch, "True", f"{watch}IsNotHealthy", "ErrorCode:X GPU:5 Recommended Action=RESTART_BM;"))
    to_the_end(s, Cloud(s))
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize("code", ["45", "145.0h"])
def test_what_a_broken_other_end_leads_to_takes_no_node_out_by_a_rule_for_all_of_its_type(code: str) -> None:
    """One node with XID 149 had 63 GPUs state 145; one crash had 77 healthy nodes state 45."""
    s = cast(policy('{type: "SysLogs*"}'))
    writes(s, xids(f"ErrorCode:{code} PCI:0000:29:00 Xid Recommended Action=CONTACT_SUPPORT;"))
    s.run(120)
    assert (calls(s), marked(s)) == ([], NO_MARKS)
    assert messages(s, "FaultSeen")


@pytest.mark.parametrize(
    ("reason", "called"),
    [("NvidiaXID13Error", 0), ("NvidiaXID45Error", 0), ("NvidiaXID145Error", 0), ("NvidiaXID149Error", 1)],
)
def test_what_eks_states_of_an_application_or_of_another_machine_takes_no_node_out(
    reason: str, called: int
) -> None:
    """Agents of 2024 state 13 and 31 like any other. The shipped policies have a rule for all XIDs of EKS."""
    s = cast(policy('{type: AcceleratedHardwareReady, reason: "NvidiaXID*Error"}'))
    writes(s, (EKS[0], "False", reason))
    s.run(120)
    assert len(calls(s)) == called
    assert messages(s, "FaultSeen")
    named = cast(policy(f"{{reason: {reason}}}"))
    writes(named, (EKS[0], "False", reason))
    named.run(120)
    assert calls(named) == [("replace", "m-0")]


@pytest.mark.parametrize(("reason", "called"), [("*_RESTART_BM", 1), ("*_79_*", 1), ("*_REPLACE_VM", 0)])
def test_a_rule_may_go_by_the_action_or_by_the_code(reason: str, called: int) -> None:
    s = cast(policy(f'{{type: SysLogsXIDError, reason: "{reason}"}}'))
    writes(s, xids(XID_31 + XID_79))
    to_the_end(s, Cloud(s))
    assert len(calls(s)) == called


# ---------------------------------------------------------------- what it costs


def test_a_healthy_node_is_read_every_half_minute() -> None:
    s = cast(policy(), count=1, agents=1)
    reads: list[str] = []
    s.api.fail_next(lambda asked: bool(reads.append(asked.path)), lost_request, times=10**6)  # type: ignore[func-returns-value]
    s.run(300, step=0.5)
    assert sum(path.endswith("/nodes/node-0") for path in reads) in (9, 10, 11)


# ---------------------------------------------------------------- the table of docs/sources.md, row by row

XID_OF_EKS = ("AcceleratedHardwareReady", "False", "NvidiaXID79Error")
ROWS = {
    "azurehpc": ("", "type: GpuNvlink", ("GpuNvlink", "True", "GpuNvlinkBad")),
    "a condition of ones own": (
        '[npd, {conditions: {rows: [{type: "Acme*", bad: "True", takesBack: false}]}}]',
        'type: "Acme*"',
        ("AcmeFans", "True", "FansStopped"),
    ),
    "EKS": ("", 'type: AcceleratedHardwareReady, reason: "NvidiaXID*"', XID_OF_EKS),
    "NVSentinel": (
        "",
        'reason: ["*IsNotHealthy*_RESTART_[BV]M", "*IsNotHealthy*_REPLACE_VM"]',
        (
            "SysLogsXIDError",
            "True",
            "SysLogsXIDErrorIsNotHealthy",
            "ErrorCode:79 Recommended Action=RESTART_BM;",
        ),
    ),
    "AKS": ("", "type: GPUMissing", ("GPUMissing", "True", "GPUMissing")),
}


@pytest.mark.parametrize(("sources", "match", "condition"), ROWS.values(), ids=ROWS)
def test_each_row_of_the_table_recovers_what_it_is_for(
    sources: str, match: str, condition: tuple[str, ...]
) -> None:
    rules = policy(f"{{{match}}}").decode().replace("sources: [conditions]\n", "")
    s = cast((f"sources: {sources}\n" + rules if sources else rules).encode())
    writes(s, condition)
    to_the_end(s, Cloud(s))
    assert calls(s) == [("replace", "m-0")]
    judge(s)


def stated_anew_in_a_persons_hands(before: float, behind: float) -> Stage:
    """A person has the node for a plugin's fault on its page. A condition states it as well, takes it back,
    and states it anew ``before`` seconds before the node is released (below 0: after that)."""
    s = cast(both("{do: cordon}"))
    s.pages["node-0"].body = npd_page() + plugin_page(True, 1)
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER
    renewed(s, 2, COUNT)
    renewed(s, 3, COUNT_GOOD)
    assert [f.source for f in the_record(s).acknowledged if f.cleared] == ["conditions"]
    if before > 0:
        writes(s, COUNT)
        s.run(before, step=1)
    release_by_command(s)
    if before < 0:
        s.run(-before, step=1)
        writes(s, COUNT, behind=behind)
    return s


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
@pytest.mark.parametrize(
    ("before", "behind", "ends"),
    [(90, 0, Phase.RELEASED), (-5, 0, Phase.HANDED_OVER), (-5, 20, Phase.HANDED_OVER)],
    ids=["before it", "after it", "after it, by a clock that is behind"],
)
def test_what_a_condition_stated_anew_before_the_release_is_released_and_after_it_is_new(
    before: float, behind: float, ends: Phase, anew: bool
) -> None:
    s = stated_anew_in_a_persons_hands(before, behind)
    if anew:
        new_process(s, "node-0")
    s.run(30)
    assert phase(s) is ends
    s.run(600, step=5)
    assert phase(s) is ends


def test_so_is_what_a_condition_had_stated_and_taken_back_before_the_record_that_is_released() -> None:
    """It was not good for long enough to be forgotten when the page stated it again."""
    s = cast(both("{do: cordon}"))
    s.pages["node-0"].body = npd_page() + plugin_page(True, 1)
    writes(s, COUNT)
    s.run(60)
    release_by_command(s)
    s.pages["node-0"].body = npd_page() + plugin_page(False, 1)
    writes(s, COUNT_GOOD)
    s.run(10)
    s.pages["node-0"].body = npd_page() + plugin_page(True, 2)
    writes(s, COUNT)
    s.run(20)
    assert phase(s) is Phase.HANDED_OVER
    renewed(s, 3, COUNT_GOOD)
    dealt_with = [(f.source, f.cleared) for f in the_record(s).acknowledged]
    assert dealt_with == [("conditions", True), ("npd", False)]
    writes(s, COUNT)
    s.run(90, step=1)
    release_by_command(s)
    s.run(600, step=5)
    assert phase(s) is Phase.RELEASED
    renewed(s, 3, COUNT_GOOD)
    writes(s, COUNT)
    s.run(30)
    assert phase(s) is Phase.HANDED_OVER


def test_of_two_who_stated_it_one_that_is_heard_after_the_boot_is_enough() -> None:
    s = cast(both("{do: drain, within: 10m, then: force}, {do: reboot}, {do: replace}"))
    stubborn_pod(s)
    s.fault("node-0")
    writes(s, NEURON)
    s.run(90)
    assert {f.source for f in the_record(s).faults} == {"npd", "conditions"}
    remove_pod(s)
    s.run(30)
    assert calls(s) == [("reboot", "m-0")]
    s.pages["node-0"].body = npd_page()  # its page is new, and the condition is as it was
    boot(s, "node-0")
    s.run(300, step=5)
    assert (calls(s), phase(s)) == ([("reboot", "m-0")], Phase.RECOVERED)


def test_no_machine_is_replaced_on_a_condition_that_became_unknown_before_its_writer_died() -> None:
    """After a quarter of an hour without a renewal nothing is known of it all the more."""
    s = cast(policy(remedy="{do: drain, within: 5m, then: force}, {do: replace, within: 30m}"))
    stubborn_pod(s)
    writes(s, NEURON)
    s.run(60)
    assert phase(s) is Phase.RECOVERING
    writes(s, ("NeuronHealth", "Unknown", "NoAnswer"))
    for _ in range(70):
        s.run(60, step=2)
    assert (calls(s), phase(s)) == ([], Phase.HANDED_OVER)
    assert "NeuronHealth is Unknown" in the_record(s).sentence


def test_a_fault_that_is_only_told_and_became_unknown_holds_no_step_for_another() -> None:
    told = b"  - {name: told, match: {type: KernelDeadlock}, remedy: [{do: notify}]}\n"
    s = cast(
        both("{do: drain, within: 5m, then: force}, {do: replace, within: 30m}").replace(
            b"rules:\n", b"rules:\n" + told
        )
    )
    stubborn_pod(s)
    s.fault("node-0")
    s.run(5)
    writes(s, ("KernelDeadlock", "True", "DockerHung"))
    s.run(90)
    assert [f.reason for f in the_record(s).faults] == [DMA, "DockerHung"]
    writes(s, ("KernelDeadlock", "Unknown", "NoAnswer"))
    s.run(300, step=1)
    assert calls(s) == [("replace", "m-0")]


# ---------------------------------------------------------------- rows of the policy about known conditions


@pytest.mark.parametrize(
    "row",
    [
        "{type: AcceleratedHardwareReady, takesBack: true}",
        "{type: AcceleratedHardwareReady}",
        '{type: "*Ready"}',
        '{type: "*Ready", takesBack: true}',
    ],
)
def test_a_row_that_does_not_say_what_is_bad_takes_no_healthy_node_for_a_sick_one(row: str) -> None:
    """EKS's condition is bad when False, and a row is about what is different."""
    sources = f"[npd, {{conditions: {{rows: [{row}]}}}}]".encode()
    s = cast(policy("{type: AcceleratedHardwareReady}").replace(b"[conditions]", sources), count=10)
    writes(s, EKS_GOOD)
    renewed(s, 5, EKS_GOOD)
    assert (calls(s), s.record("node-0"), marked(s)) == ([], None, NO_MARKS)
    writes(s, EKS)
    to_the_end(s, Cloud(s))
    assert calls(s) == [("replace", "m-0")]


def test_a_row_that_names_a_condition_is_as_good_as_a_rule_that_does() -> None:
    """A kubelet's pressure is read only where the policy names it; a wildcard rule does not."""
    pressure = ("DiskPressure", "True", "KubeletHasDiskPressure")
    for sources, expected in (
        (b"[conditions]", []),
        (b"[{conditions: {rows: [{type: DiskPressure}]}}]", [("reboot", "m-0")]),
    ):
        s = cast(policy('{type: "Disk*"}', "{do: reboot}").replace(b"[conditions]", sources))
        writes(s, pressure)
        s.run(30)
        assert calls(s) == expected


@pytest.mark.parametrize("anew", [False, True], ids=["the agent goes on", "the agent restarts"])
def test_a_node_without_the_condition_is_not_proved_before_its_writer_speaks(
    anew: bool,
) -> None:
    """Its Node was deleted and registered anew, and the detector has not written there yet."""
    s = cast(policy("{type: GpuNvlink}", "{do: reboot}"))
    writes(s, COUNT)
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]

    def lose(obj: dict[str, object]) -> None:
        listed: list[dict[str, str]] = obj["status"]["conditions"]  # type: ignore[index]
        listed[:] = [c for c in listed if c["type"] != COUNT[0]]

    boot(s, "node-0")
    change_node(s, "node-0", lose)
    if anew:
        new_process(s, "node-0")
    s.run(200)
    assert (phase(s), marked(s)) == (Phase.PROVING, ALL_MARKS)
    assert "conditions shows nothing of GpuNvlink since the boot" in sentences(s)[-1]
    writes(s, COUNT_GOOD)
    s.run(200)
    assert (phase(s), marked(s)) == (Phase.RECOVERED, NO_MARKS)


def test_a_machine_that_boots_again_and_again_is_a_persons() -> None:
    """It was handed over, and withdrawn in the same second: the last boot passed for one that ended it."""
    s = cast(policy().replace(b"    remedy", b"    after: 10m\n    remedy"))
    writes(s, COUNT)
    s.run(10)
    for number in range(2, 7):
        boot(s, "node-0", f"m-0-boot-{number}")
        s.run(20, step=1)
    assert (calls(s), phase(s)) == ([], Phase.HANDED_OVER)
    assert "booted 4 times" in the_record(s).sentence
