"""What a person types at 3 a.m.: status, explain, pause, resume, release."""

from __future__ import annotations

import json
from collections.abc import Callable

import click
import pytest
from recovery_testkit.kubernetes import lost_request, refused
from recovery_testkit.stage import Stage, npd_page, read_policy

from recovery.errors import Unreadable
from recovery.model import Phase
from recovery.signals.names import reason_name
from recovery.store.gate import read_approvals
from tests.builders.faults import DMA
from tests.builders.policies import policy_file
from tests.stories.console import Said, Terminal, pod_of
from tests.stories.scenery import pass_time
from tests.stories.scenes import (
    ALL_MARKS,
    GATES,
    NO_MARKS,
    RECORDS,
    at,
    boot,
    calls,
    cast,
    exclude,
    handed_over,
    label,
    marked,
    messages,
    new_process,
    no_place,
    patch_node,
    pause,
    phase,
    ready,
    rebooted_and_proved,
    stubborn_pod,
)
from tests.stories.test_conditions import writes

Sit = Callable[[Stage], Terminal]


@pytest.fixture
def sit(monkeypatch: pytest.MonkeyPatch) -> Sit:
    """Sit down in front of a stage; the nodes' agents run in pods."""

    def made(stage: Stage) -> Terminal:
        for node in ("node-0", "node-1"):
            pod_of(stage, node)
        return Terminal(stage, monkeypatch)

    return made


def of_another_version(s: Stage, path: str) -> None:
    """The object at ``path`` was written by a program from the future."""
    obj = s.store.request("GET", path).body
    obj["status"]["version"] = 99
    assert s.store.request("PUT", path, body=obj).ok


def ok(said: Said) -> str:
    assert (said.code, said.err) == (0, "")
    return said.out


# ---------------------------------------------------------------- status


def test_a_quiet_fleet_is_said_to_be_one(sit: Sit) -> None:
    out = ok(sit(cast()).run("status"))
    assert out.startswith("No node is being recovered, and none is in a person's hands.\n")
    assert "Gate:    not there yet: no agent has needed it. Nothing is paused.\n" in out


def test_status_shows_each_open_record_with_its_sentence_and_who_is_out(sit: Sit) -> None:
    out = ok(sit(at("draining")).run("status"))
    head, row = out.splitlines()[:2]
    assert head.split() == ["NODE", "PHASE", "RULE", "STEP", "TRY", "SINCE", "WHY"]
    assert row.split()[:5] == ["node-0", "recovering", "neuron-hardware", "drain", "0"]
    assert f"{DMA}: recovery starts (drain, replace)" in row
    assert "Out:     node-0 (" in out
    assert "fleet, topology.kubernetes.io/zone=a, node.kubernetes.io/instance-type=trn1.32xlarge)" in out
    assert "Brake:   1 of 4 nodes were sick or unknown when last counted" in out


def test_status_says_for_how_long_a_drain_goes_on_and_who_knows_which_pods_are_left(sit: Sit) -> None:
    """A budget may keep it for hours, and its record said no more than that the recovery starts."""
    s = cast(policy_file("{do: drain, within: 5m, then: hold}, {do: replace}"))
    stubborn_pod(s)
    s.fault("node-0")
    s.run(60 * 60, step=2)
    terminal = sit(s)
    out = ok(terminal.run("status"))
    assert "; draining for 60 min: node-recovery explain node-0 says which pods are left\n" in out
    assert "1 pod left; default/train may not go yet: " in ok(terminal.run("explain", "node-0"))


def test_status_does_not_say_that_a_drain_goes_on_while_a_pause_holds_it(sit: Sit) -> None:
    s = cast(policy_file("{do: drain, within: 5m}, {do: replace}"))
    stubborn_pod(s)
    s.fault("node-0")
    s.run(2 * 60, step=2)
    pause(s)
    s.run(60 * 60, step=2)
    out = ok(sit(s).run("status"))
    assert "held 60 min by a pause; draining for 118 s: node-recovery explain node-0 says" in out


def test_status_and_explain_show_who_states_a_fault_by_what_and_of_which_device(sit: Sit) -> None:
    s = cast(policy_file("{do: drain, within: 2h, then: handOver}, {do: replace}", match='type: "SysLogs*"'))
    stubborn_pod(s)
    xid = "ErrorCode:79 GPU:5 PCI:0000:c5:00.0 fell off Recommended Action=RESTART_BM;"
    writes(s, ("SysLogsXIDError", "True", "SysLogsXIDErrorIsNotHealthy", xid))
    s.run(60)
    reason = "SysLogsXIDErrorIsNotHealthy_79_RESTART_BM"
    found = f"the Node's condition SysLogsXIDError is True: {xid.partition(' Recommended')[0]}"
    by = f"conditions of GPU 5 0000:c5:00.0: {found}"
    terminal = sit(s)
    assert f"Fault:   node-0: SysLogsXIDError {reason}; {by}\n" in ok(terminal.run("status"))
    assert f"           {by}\n" in ok(terminal.run("explain", "node-0"))
    (record,) = terminal.run("status", "-o", "json").json["records"]
    assert record["faults"][0]["device"] == "GPU 5 0000:c5:00.0"


def test_status_leaves_closed_records_out_and_says_so(sit: Sit) -> None:
    s = handed_over()
    terminal = sit(s)
    assert "handedOver" in ok(terminal.run("status"))
    ok(terminal.run("release", "node-0", "--yes"))
    out = ok(terminal.run("status"))
    assert "(1 closed record is left out; --all shows them.)" in out
    assert "released by ada@laptop" not in out
    assert "released by ada@laptop" in ok(terminal.run("status", "--all"))


def test_status_for_programs_has_records_gate_and_pause(sit: Sit) -> None:
    terminal = sit(at("draining"))
    ok(terminal.run("pause", "--for", "1h", "--reason", "a network change"))
    found = terminal.run("status", "-o", "json").json
    assert [(r["node"], r["phase"], r["step"]) for r in found["records"]] == [
        ("node-0", "recovering", "drain")
    ]
    assert [slot["node"] for slot in found["gate"]["slots"]] == ["node-0"]
    assert found["gate"]["pause"]["owner"] == "ada@laptop"


def test_a_record_that_cannot_be_read_is_listed_with_the_reason(sit: Sit) -> None:
    s = at("draining")
    terminal = sit(s)
    of_another_version(s, f"{RECORDS}/node-0")
    out = ok(terminal.run("status"))
    assert "node-0   ?" in out
    assert "was written in version 99 of the record" in out


def test_a_node_whose_record_was_deleted_is_listed_until_it_is_released(sit: Sit) -> None:
    s = at("draining")
    terminal = sit(s)
    assert s.store.request("DELETE", f"{RECORDS}/node-0").ok
    s.run(120)
    said = (
        "lost: somebody deleted the record of a recovery that was open; nothing starts on it until it boots"
    )
    by_now = ", is replaced or is released: node-recovery explain node-0 says whether it has\n"
    assert f"{said}{by_now}" in ok(terminal.run("status"))
    terminal.reach.deaf.add("node-0")
    assert f": {said}" in ok(terminal.run("explain", "node-0")).splitlines()[0]
    pass_time(s, 600, step=5, until=lambda: no_place(s))
    ok(terminal.run("release", "node-0", "--yes"))
    assert "lost" not in ok(terminal.run("status"))


@pytest.mark.parametrize("command", [("status",), ("explain", "node-0")])
def test_a_gate_that_was_deleted_is_not_one_that_nobody_has_needed(
    command: tuple[str, ...], sit: Sit
) -> None:
    s = at("draining")
    assert s.store.request("DELETE", f"{GATES}/fleet").ok
    assert "Gate:    gone: agents make it again" in ok(sit(s).run(*command))


def test_a_gate_that_cannot_be_read_is_said_to_stop_everything(sit: Sit) -> None:
    s = at("draining")
    terminal = sit(s)
    of_another_version(s, f"{GATES}/fleet")
    assert "Gate:    cannot be read, and nothing starts anywhere: RecoveryGate fleet was written in" in ok(
        terminal.run("status")
    )


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("explain", "node-0"),
        ("pause", "--for", "1h", "--reason", "x"),
        ("resume",),
        ("approve", DMA),
        ("release", "node-0", "--yes"),
    ],
)
def test_without_the_crds_a_command_says_what_to_install(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = Stage(crds=False)
    s.nodes(1)
    said = Terminal(s, monkeypatch).run(*command)
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "the API server knows no NodeRecovery: the CRDs are not installed (kubectl apply -k deploy/crds)\n"
    )


def test_an_api_server_that_does_not_answer_is_one_sentence(sit: Sit) -> None:
    s = cast()
    terminal = sit(s)
    s.api.fail_next(lambda asked: True, lost_request)
    said = terminal.run("status")
    assert (said.code, said.out) == (1, "")
    assert said.err.count("\n") == 1


# ---------------------------------------------------------------- explain


def test_explain_says_the_agents_own_sentence_and_the_facts_under_it(sit: Sit) -> None:
    s = at("waiting")
    out = ok(sit(s).run("explain", "node-0"))
    first, second = out.splitlines()[:2]
    assert first == (f"node-0: {DMA}: waiting: the budget of the fleet is used up: 0 of 0 may be out (none)")
    assert second == "  Next: the policy lets none start: a budget in it is 0."
    assert "Agent:   default/npd-node-0, version 1.2.3, recovery on, policy built-in" in out
    assert f"NeuronHealth {DMA} for " in out
    assert "(latched)" in out
    assert f"Fault:   NeuronHealth {DMA}: rule neuron-hardware, remedy drain, replace" in out
    assert "Record:  waiting for " in out
    assert "Node:    Ready; fake:///workers/m-0" in out


def test_explain_works_while_recovery_is_off_and_nothing_is_written(sit: Sit) -> None:
    s = cast(on=False)
    s.fault("node-0")
    s.run(3)
    assert s.record("node-0") is None
    out = ok(sit(s).run("explain", "node-0"))
    assert out.startswith(
        f"node-0: would drain node-0; then replace: {DMA} (rule neuron-hardware), "
        "if budget and brake allow; recovery is off (ENABLE_RECOVERY=false)\n"
        "  Next: set ENABLE_RECOVERY=true to let it act"
    )
    assert "recovery off, it only observes" in out
    assert "Record:  none" in out


@pytest.mark.parametrize("left", ["no rule speaks of it", "excluded"])
def test_explain_does_not_say_that_the_switch_would_change_what_would_be_left_alone(
    left: str, sit: Sit
) -> None:
    s = cast(on=False)
    s.fault("node-0", *(["HANG_ON_COLLECTIVES"] if left != "excluded" else []))
    if left == "excluded":
        exclude(s)
    s.run(40)
    out = ok(sit(s).run("explain", "node-0"))
    assert ("would only report" if left != "excluded" else "would leave") in out
    assert "ENABLE_RECOVERY=true" not in out
    assert "Next: it is decided again at" in out


def test_explain_finds_in_the_report_what_the_agent_cannot_be_asked_for(sit: Sit) -> None:
    """Rights to ask the agent are the exception; with recovery off nothing else knows of the fault."""
    s = cast(on=False)
    s.fault("node-0")
    s.run(60)
    terminal = sit(s)
    terminal.reach.deaf.add("node-0")
    head, *_ = ok(terminal.run("explain", "node-0")).splitlines()
    assert head.startswith(
        f"node-0: {DMA}: would drain node-0; then replace; it is there now; recovery is off, "
        "says the report; its agent cannot be asked ("
    )


@pytest.mark.parametrize(
    "command",
    [
        *(
            ("status",),
            ("report",),
            ("explain", "node-0"),
            ("resume",),
            ("approve", DMA),
            ("release", "node-0"),
        ),
        *(
            ("pause", "--for", "1h", "--reason", "x"),
            ("inject", "node-0", "--fault", DMA),
            ("uninstall", "--yes"),
        ),
    ],
)
@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "The cluster does not accept your credentials: log in again."),
        (403, "Your user lacks this right. An administrator can bind it to one of the ClusterRoles "),
    ],
)
def test_who_may_not_is_told_what_to_do(sit: Sit, command: tuple[str, ...], status: int, advice: str) -> None:
    s = cast()
    terminal = sit(s)
    s.api.fail_next(lambda _: True, refused(status, "No", "ada may not"), times=100)
    said = terminal.run(*command)
    first, second = said.err.splitlines()
    assert f": {status} ada may not" in first
    assert second.startswith(advice)


def test_a_gate_that_nobody_has_needed_yet_is_not_told_as_one_that_is_gone(sit: Sit) -> None:
    s = cast(policy_file("{do: replace}", after="5m"))
    s.fault("node-0")
    s.run(8)
    assert (phase(s), s.store.request("GET", f"{GATES}/fleet").status) == (Phase.SUSPECT, 404)
    terminal = sit(s)
    assert "there is no RecoveryGate yet" in terminal.run("approve", DMA).err
    assert "Gate:    gone" not in ok(terminal.run("status"))


def test_a_gate_that_somebody_has_deleted_is_not_told_as_one_that_nobody_needs(sit: Sit) -> None:
    s = cast()
    terminal = sit(s)
    ok(terminal.run("pause", "--for", "1h", "--reason", "network"))
    s.fault("node-0")
    s.run(8)
    assert phase(s) is Phase.WAITING
    assert s.store.request("DELETE", f"{GATES}/fleet").ok
    said = terminal.run("approve", DMA)
    assert said.code == 1
    assert "there is no RecoveryGate now, though recoveries are open" in said.err
    assert "Gate:    gone" in ok(terminal.run("status"))


def test_a_gate_that_nobody_has_needed_yet_is_not_taken_for_missing_crds(sit: Sit) -> None:
    terminal = sit(cast(on=False))
    said = terminal.run("approve", DMA)
    assert said.code == 1
    assert said.err.startswith("nothing was approved: there is no RecoveryGate yet")
    assert ok(terminal.run("resume")) == "Nothing was paused.\n"


def test_explain_of_a_tolerated_fault_says_when_that_ends(sit: Sit) -> None:
    s = at("suspect")
    out = ok(sit(s).run("explain", "node-0"))
    assert f"node-0: {DMA}: tolerated for 60 min by rule neuron-hardware, " in out
    assert "tolerated until " in out
    assert "  Next: it is decided again at " in out


def test_explain_names_the_command_that_ends_a_pause_an_exclusion_or_a_hand_over(sit: Sit) -> None:
    s = at("waiting")
    terminal = sit(s)
    ok(terminal.run("pause", "--for", "1h", "--reason", "a network change"))
    s.run(15)
    out = ok(terminal.run("explain", "node-0"))
    assert "ada@laptop paused all recoveries until" in out.splitlines()[0]
    assert "  Next: node-recovery resume ends the pause; it is decided again at " in out
    handed = sit(handed_over())
    assert "node-recovery release node-0 returns it to service" in ok(handed.run("explain", "node-0"))


def test_explain_of_a_node_whose_agent_is_silent_says_so_and_lets_the_record_speak(sit: Sit) -> None:
    s = at("after the call")
    terminal = sit(s)
    terminal.reach.deaf.add("node-0")
    out = ok(terminal.run("explain", "node-0"))
    assert out.startswith("node-0: recovering since ")
    assert "its agent cannot be asked (pod default/npd-node-0 does not answer: " in out
    assert "connection refused" in out


def test_explain_of_a_node_without_an_agent_says_what_its_node_shows(sit: Sit) -> None:
    terminal = sit(cast())
    out = ok(terminal.run("explain", "node-3"))
    assert out.startswith(
        "node-3: nothing is going on: no open record, and its Node shows no fault; its agent cannot be asked "
        "(no pod on the node has a container node-recovery)"
    )
    patch_node(
        terminal.stage,
        "node-3",
        {"status": {"conditions": [{"type": "NeuronHealth", "status": "True", "reason": DMA}]}},
        "status",
    )
    assert f"node-3: its condition NeuronHealth is True ({DMA}), and nothing is recorded of it" in ok(
        terminal.run("explain", "node-3")
    )


def test_explain_of_a_node_without_an_agent_goes_by_what_is_bad_for_each_condition(sit: Sit) -> None:
    """EKS's agent writes False for a fault, and True for none."""
    terminal = sit(cast())
    bad = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error"}
    good = {"type": "KernelReady", "status": "True", "reason": "KernelIsReady"}
    for conditions in ([good], [bad, good]):
        patch_node(terminal.stage, "node-3", {"status": {"conditions": conditions}}, "status")
        out = ok(terminal.run("explain", "node-3"))
        assert "its condition KernelReady" not in out
    sentence = (
        "its condition AcceleratedHardwareReady is False (NvidiaXID79Error), and nothing is recorded of it"
    )
    assert f"node-3: {sentence}" in out


def test_explain_tells_why_a_node_that_is_gone_was_replaced(sit: Sit) -> None:
    s = at("after the call")
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.run(300)
    assert phase(s) is Phase.RECOVERED
    out = ok(sit(s).run("explain", "node-0"))
    assert out.startswith("node-0: recovered since ")
    assert "proved: m-0 is gone and node-9 (m-9) was healthy" in out.splitlines()[0]
    assert f"           for NeuronHealth {DMA}; npd: node-problem-detector reports {DMA} (Neuron" in out
    assert "Node:    not there" in out


def test_explain_names_a_fault_that_is_over_by_its_record_and_one_that_is_there_once(sit: Sit) -> None:
    of_record = f"           for NeuronHealth {DMA}; npd: "
    s = cast(policy_file("{do: reboot, within: 10m}"))
    s.fault("node-0")
    s.run(5)
    terminal = sit(s)
    out = ok(terminal.run("explain", "node-0"))
    assert f"Fault:   NeuronHealth {DMA}: rule neuron-hardware" in out
    assert of_record not in out
    rebooted_and_proved(s)
    out = ok(terminal.run("explain", "node-0"))
    assert out.startswith("node-0: healthy: no confirmed problem")
    assert of_record in out


def test_explain_of_a_handed_over_node_says_what_ends_it_where_its_agent_is_silent(sit: Sit) -> None:
    terminal = sit(handed_over())
    terminal.reach.deaf.add("node-0")
    out = ok(terminal.run("explain", "node-0"))
    assert "  Next: node-recovery release node-0 returns it to service; a new machine ends this, too." in out


def test_explain_of_a_record_that_cannot_be_read_says_so_where_the_agent_is_silent(sit: Sit) -> None:
    s = handed_over()
    of_another_version(s, f"{RECORDS}/node-0")
    terminal = sit(s)
    terminal.reach.deaf.add("node-0")
    head, *facts = ok(terminal.run("explain", "node-0")).splitlines()
    why = "NodeRecovery node-0 was written in version 99 of the record"
    assert head.startswith(f"node-0: the record cannot be read, and is not touched: {why}")
    assert any(line.startswith(f"Record:  cannot be read: {why}") for line in facts)


def test_explain_of_a_node_that_is_not_ready_says_so_where_its_agent_is_silent(sit: Sit) -> None:
    terminal = sit(cast())
    ready(terminal.stage, "node-3", "Unknown")
    assert "node-3: the Node is not Ready, and nothing is recorded of it; its agent cannot be asked" in ok(
        terminal.run("explain", "node-3")
    )


def test_explain_of_a_page_that_cannot_be_read_says_since_when_and_why(sit: Sit) -> None:
    s = cast()
    s.pages["node-0"].error = Unreadable("connection refused")
    s.run(60)
    out = ok(sit(s).run("explain", "node-0"))
    why = "node-problem-detector's page cannot be read: connection refused"
    assert f"nothing is known since 60 s ago: {why}" in out


def test_explain_of_a_fault_that_is_only_told_says_why(sit: Sit) -> None:
    s = cast(policy_file(match="type: Other"), on=False)
    s.fault("node-0")
    s.run(10)
    assert f"Fault:   NeuronHealth {DMA}: no rule, only reported: no rule of the policy speaks of it" in ok(
        sit(s).run("explain", "node-0")
    )


NOT_LOOKED = "; the agent has not looked since"
LOOKS = "; its agent is looking again just now"


def test_explain_right_after_a_release_says_released_though_the_agent_has_not_looked_since(sit: Sit) -> None:
    s = handed_over()
    terminal = sit(s)
    before = ok(terminal.run("explain", "node-0"))
    assert before.startswith("node-0: in a person's hands since ")
    ok(terminal.run("release", "node-0", "--yes"))
    head, after, *_ = ok(terminal.run("explain", "node-0")).splitlines()
    assert head.startswith("node-0: released since ")
    assert head.endswith(f": released by ada@laptop{NOT_LOOKED}")
    assert after.startswith("  Next: it is decided again at ")
    assert "release node-0" not in after
    s.run(61)
    again = ok(terminal.run("explain", "node-0")).splitlines()[0]
    assert NOT_LOOKED not in again
    assert "in a person's hands" not in again


def test_explain_right_after_a_record_was_deleted_says_so(sit: Sit) -> None:
    s = handed_over()
    s.store.request("DELETE", f"{RECORDS}/node-0")
    head, after, *facts = ok(sit(s).run("explain", "node-0")).splitlines()
    assert head == f"node-0: its record was deleted{NOT_LOOKED}"
    assert after.startswith("  Next: it is decided again at ")
    assert "Record:  none" in facts


def test_explain_of_a_record_that_became_unreadable_or_is_so_no_longer_does_not_repeat_the_agent(
    sit: Sit,
) -> None:
    s = handed_over()
    of_another_version(s, f"{RECORDS}/node-0")
    terminal = sit(s)
    unreadable = (
        "the record cannot be read, and is not touched: NodeRecovery node-0 was written in version 99"
    )
    found = terminal.run("explain", "node-0", "-o", "json").json
    assert found["sentence"].startswith(unreadable)
    assert found["sentence"].endswith(NOT_LOOKED)
    s.run(70)
    agents_own = ok(terminal.run("explain", "node-0")).splitlines()[0]
    assert agents_own.startswith("node-0: the record cannot be used, and is not touched: ")
    assert NOT_LOOKED not in agents_own
    s.store.request("DELETE", f"{RECORDS}/node-0")
    assert ok(terminal.run("explain", "node-0")).startswith(f"node-0: its record was deleted{NOT_LOOKED}\n")


def test_explain_of_a_node_that_was_handed_over_since_its_agent_looked_names_what_ends_that(sit: Sit) -> None:
    s = at("waiting")
    obj = s.store.request("GET", f"{RECORDS}/node-0").body
    obj["status"] |= {"phase": "handedOver", "sentence": "handed over to a person: by hand"}
    assert s.store.request("PUT", f"{RECORDS}/node-0", body=obj).ok
    head, after, *_ = ok(sit(s).run("explain", "node-0")).splitlines()
    assert head.endswith(f": handed over to a person: by hand{NOT_LOOKED}")
    assert after.startswith("  Next: node-recovery release node-0 returns it to service")


def test_explain_believes_an_agent_that_looked_at_no_record_because_nothing_is_wrong(sit: Sit) -> None:
    s = handed_over()
    terminal = sit(s)
    ok(terminal.run("release", "node-0", "--yes"))
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    new_process(s, "node-0")
    s.run(70)
    calm = ok(terminal.run("explain", "node-0")).splitlines()[0]
    assert s.store.request("DELETE", f"{RECORDS}/node-0").ok
    assert ok(terminal.run("explain", "node-0")).splitlines()[0] == calm
    assert calm == "node-0: healthy: no confirmed problem"


def test_explain_never_takes_the_agents_own_writing_for_somebody_elses(sit: Sit) -> None:
    s = cast()
    terminal = sit(s)
    s.fault("node-0")
    agent = next(a for a in s.actors.values() if a.node == "node-0")
    said = set[str]()
    for _ in range(40):
        while (d := agent.turn()) is not None and d.effect is not None:
            said.add(terminal.run("explain", "node-0", "-o", "json").json["sentence"])
        said.add(terminal.run("explain", "node-0", "-o", "json").json["sentence"])
        s.clock.advance(0.5)
    assert {"replace of m-0 was accepted by fake", f"{DMA} was seen"} <= said
    assert not [sentence for sentence in said if NOT_LOOKED in sentence or LOOKS in sentence]


def test_explain_in_the_middle_of_a_cycle_says_that_the_agent_is_looking(sit: Sit) -> None:
    """What is on the record then may be the agent's own writing, or somebody else's a moment ago."""
    s = handed_over()
    terminal = sit(s)
    ok(terminal.run("release", "node-0", "--yes"))
    s.clock.advance(61)
    head, after, *_ = ok(terminal.run("explain", "node-0")).splitlines()
    assert head.endswith(f": released by ada@laptop{LOOKS}")
    assert not after.startswith("  Next: ")


def at_the_brake() -> Stage:
    s = cast(count=4)
    for node in ("node-1", "node-2"):
        ready(s, node, "False")
    s.fault("node-0")
    s.run(10)
    return s


def claimed() -> Stage:
    s = at("draining")
    label(s, "node-0", **{"dgxc.nvidia.com/nvsentinel-state": "draining"})
    s.run(10)
    return s


def excluded() -> Stage:
    s = cast()
    exclude(s)
    s.fault("node-0")
    s.run(10)
    return s


def excluded_by_the_policy() -> Stage:
    s = cast(policy_file() + b"exclude: [{labels: {pool: old}}]\n")
    label(s, "node-0", pool="old")
    s.fault("node-0")
    s.run(10)
    return s


def vanished() -> Stage:
    s = at("suspect")
    s.store.request("DELETE", f"{RECORDS}/node-0")
    s.run(70)
    return s


def off(point: str, **labels: str) -> Callable[[], Stage]:
    def brought() -> Stage:
        s = at(point)
        label(s, "node-0", **labels)
        new_process(s, "node-0", on=False)
        s.run(70)
        return s

    return brought


def seen_while_off(rules: bytes | None = None, **labels: str) -> Callable[[], Stage]:
    def brought() -> Stage:
        s = cast(rules or policy_file(), on=False)
        label(s, "node-0", **labels)
        s.fault("node-0")
        s.run(10)
        return s

    return brought


def of_another_version_while_off() -> Stage:
    s = handed_over()
    of_another_version(s, f"{RECORDS}/node-0")
    new_process(s, "node-0", on=False)
    s.run(70)
    return s


SWITCH = "ENABLE_RECOVERY=true"
WHILE_OFF: dict[str, tuple[Callable[[], Stage], str]] = {
    "nothing yet": (seen_while_off(policy_file(after="1h")), f"set {SWITCH} to let it act; it is decided"),
    "an exclusion": (seen_while_off(**{"noderecovery.dev/exclude": "true"}), "it is decided again at "),
    "no rule": (seen_while_off(policy_file(match="type: Other")), "it is decided again at "),
    "an unreadable record": (of_another_version_while_off, "it is decided again at "),
    "a drain": (off("draining"), f"{SWITCH} continues it; node-recovery release node-0 closes it; "),
    "a call": (off("after the call"), f"{SWITCH} continues it; it is decided again at "),
}


@pytest.mark.parametrize(("scene", "hint"), WHILE_OFF.values(), ids=WHILE_OFF)
def test_explain_names_the_switch_only_where_it_would_change_something(
    scene: Callable[[], Stage], hint: str, sit: Sit
) -> None:
    assert f"  Next: {hint}" in ok(sit(scene()).run("explain", "node-0"))


HINTS: dict[str, tuple[Callable[[], Stage], str]] = {
    "the brake": (
        at_the_brake,
        "it starts by itself when fewer nodes are sick, or when the policy allows more",
    ),
    "another's claim": (claimed, "the other remediator must remove its mark"),
    "a deleted record": (vanished, "restart the agent to start a new recovery"),
    "an exclusion": (excluded, "kubectl label node node-0 noderecovery.dev/exclude- includes it again"),
    "the policy's exclusion": (
        excluded_by_the_policy,
        "exclude in the policy says so: change it there, or the node's labels; it is decided",
    ),
}


def test_where_the_brake_may_hold_status_says_who_knows_and_explain_how_old_its_count_is(sit: Sit) -> None:
    s = at_the_brake()
    terminal = sit(s)
    assert "node-recovery explain node-0" in next(
        line for line in ok(terminal.run("status")).splitlines() if line.startswith("Brake:")
    )
    fresh = ok(terminal.run("explain", "node-0")).splitlines()[0]
    assert "the brake is on: 3 of 4 nodes in the fleet are sick or unknown, more than" in fresh
    assert "decided" not in fresh
    s.clock.advance(120)
    assert ok(terminal.run("explain", "node-0")).splitlines()[0].startswith(f"{fresh} (decided 2")


def test_where_nothing_waits_status_says_where_the_limit_of_the_brake_stands(sit: Sit) -> None:
    out = ok(sit(at("proving")).run("status"))
    assert "ago; limits.brake of the policy says how many may be" in out


@pytest.mark.parametrize(("scene", "hint"), HINTS.values(), ids=HINTS)
def test_explain_says_what_would_change_it(scene: Callable[[], Stage], hint: str, sit: Sit) -> None:
    assert f"  Next: {hint}" in ok(sit(scene()).run("explain", "node-0"))


def test_explain_promises_no_place_of_a_budget_that_was_made_0_while_a_node_is_out(sit: Sit) -> None:
    s = at("draining")
    s.policy = read_policy(policy_file(limits="cooldown: 0s, budget: 0"))
    new_process(s, "node-1")
    s.fault("node-1")
    s.run(10)
    first, second = ok(sit(s).run("explain", "node-1")).splitlines()[:2]
    assert first.endswith("1 of 0 may be out (node-0)")
    assert second.startswith("  Next: the policy lets none start: a budget in it is 0")


def test_explain_promises_no_start_where_the_policy_counts_nobody(sit: Sit) -> None:
    s = cast(policy_file(limits="cooldown: 0s, population: {labels: {pool: nobodys}}"))
    s.fault("node-0")
    s.run(10)
    out = ok(sit(s).run("explain", "node-0"))
    assert out.splitlines()[0].endswith(
        "limits.population selects no node in the cluster: nothing starts until it selects one"
    )
    assert "by itself when fewer nodes are sick" not in out


def test_an_agent_of_another_node_is_not_believed(sit: Sit) -> None:
    s = cast()
    terminal = sit(s)
    answer = terminal.reach._answer
    terminal.reach._answer = lambda actor, path: {**answer(actor, path), "node": "node-7"}  # type: ignore[method-assign]
    out = ok(terminal.run("explain", "node-0"))
    assert "answers for node node-7, not for node-0: is NODE_NAME right?" in out


def test_a_pod_that_serves_something_else_is_not_believed(sit: Sit) -> None:
    terminal = sit(cast())
    terminal.reach._answer = lambda actor, path: {"hello": "world"}  # type: ignore[method-assign]
    assert "does not answer as an agent does" in ok(terminal.run("explain", "node-0"))


def test_a_pod_that_does_not_run_is_not_asked(sit: Sit) -> None:
    s = cast()
    pod_of(s, "node-2", phase="Pending")
    assert "(pod default/npd-node-2 does not run)" in ok(sit(s).run("explain", "node-2"))


def test_a_caller_who_may_not_use_the_proxy_gets_the_servers_words(sit: Sit) -> None:
    s = cast()
    terminal = sit(s)
    s.api.fail_next(lambda asked: "/pods" in asked.path, refused(403, "Forbidden", "ada may not list pods"))
    assert "its pod cannot be looked up: GET /api/v1/pods: 403 ada may not list pods" in ok(
        terminal.run("explain", "node-0")
    )


def test_a_node_nobody_knows_is_an_error(sit: Sit) -> None:
    said = sit(cast()).run("explain", "node-77")
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "there is no Node node-77, and no record of one; kubectl get nodes and "
        "node-recovery status --all list what there is\n"
    )


def test_explain_for_programs_is_one_object(sit: Sit) -> None:
    found = sit(at("waiting")).run("explain", "node-0", "-o", "json").json
    assert found["node"] == "node-0"
    assert found["sentence"].startswith(f"{DMA}: waiting: the budget of the fleet is used up")
    assert found["agent"]["faults"][0]["rule"] == "neuron-hardware"
    assert found["record"]["phase"] == "waiting"
    assert found["agentProblem"] is None


# ---------------------------------------------------------------- pause and resume


def test_a_pause_stops_the_next_start_and_ends_by_itself(sit: Sit) -> None:
    s = cast()
    terminal = sit(s)
    out = ok(terminal.run("pause", "--for", "10m", "--reason", "a network change"))
    assert out.startswith("Paused until ")
    assert "by ada@laptop: a network change." in out
    s.fault("node-0")
    s.run(300)
    assert calls(s) == []
    s.run(320)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize(
    "command",
    [
        ("pause", "--for", "10m", "--reason", "x" * 10_000),
        ("pause", "--for", "10m", "--reason", "x", "--owner", "x" * 10_000),
        ("release", "node-0", "--yes", "--reason", "x" * 10_000),
    ],
)
def test_a_reason_that_nobody_has_room_for_is_refused_at_once(sit: Sit, command: tuple[str, ...]) -> None:
    said = sit(cast()).run(*command)
    assert said.code == 2
    assert "found 10000 characters, expected at most 1024" in said.err


@pytest.mark.parametrize("whole", [True, False])
def test_a_long_fault_is_approved_by_its_whole_name_or_by_that_on_its_record(sit: Sit, whole: bool) -> None:
    s = cast()
    s.fault("node-0")
    s.run(60)  # there is a gate
    reason = "R" * 2000
    name = reason_name(reason)
    ok(sit(s).run("approve", reason if whole else name))
    (found,) = read_approvals(s.store.request("GET", f"{GATES}/fleet").body["spec"])
    assert found.reason == name
    assert (
        read_approvals({"approved": [{"reason": reason, "by": "a", "until": "2999-01-01T00:00:00Z"}]})[
            0
        ].reason
        == name
    )


def test_status_shows_who_approved_what_until_that_is_over(sit: Sit) -> None:
    s = cast()
    s.fault("node-0")
    s.run(60)  # there is a gate
    terminal = sit(s)
    assert "Let go:" not in ok(terminal.run("status"))
    ok(terminal.run("approve", DMA, "--for", "10m"))
    assert f"Let go:  ada@laptop approved {DMA} until 2026-11-21 03:11:03Z\n" in ok(terminal.run("status"))
    for command in (("status",), ("explain", "node-0")):
        (found,) = json.loads(ok(terminal.run(*command, "-o", "json")))["gate"]["approved"]
        assert found == {"reason": DMA, "by": "ada@laptop", "until": "2026-11-21T03:11:03.000000Z"}
    s.run(600)
    assert "Let go:" not in ok(terminal.run("status"))


def test_an_approval_that_takes_the_place_of_another_says_so(sit: Sit) -> None:
    s = cast()
    s.fault("node-0")
    s.run(60)  # there is a gate
    terminal = sit(s)
    assert "It replaces" not in ok(terminal.run("approve", DMA, "--for", "24h"))
    out = ok(terminal.run("approve", DMA))
    assert " It replaces that of ada@laptop, until 2026-11-22 03:01:03Z." in out


def test_resume_ends_it_earlier(sit: Sit) -> None:
    s = cast()
    terminal = sit(s)
    ok(terminal.run("pause", "--for", "10h", "--reason", "a network change"))
    s.fault("node-0")
    s.run(30)
    assert calls(s) == []
    assert ok(terminal.run("resume")) == (
        "Recoveries go on: the pause of ada@laptop (a network change) has ended.\n"
    )
    s.run(30)
    assert calls(s) == [("replace", "m-0")]


def test_resume_without_a_pause_says_that_there_was_none(sit: Sit) -> None:
    assert ok(sit(cast()).run("resume")) == "Nothing was paused.\n"


def test_a_shorter_pause_does_not_shorten_one_in_force(sit: Sit) -> None:
    terminal = sit(cast())
    ok(terminal.run("pause", "--for", "2h", "--reason", "a network change", "--owner", "grace"))
    out = ok(terminal.run("pause", "--for", "1h", "--reason", "mine"))
    assert out.startswith("Another pause stays, which ends no earlier: grace paused all recoveries until ")
    out = ok(terminal.run("pause", "--for", "3h", "--reason", "mine"))
    assert out.endswith("It replaces the pause of grace (a network change).\n")


def test_who_pauses_beside_anothers_longer_pause_is_told_that_a_resume_ends_it_for_both(sit: Sit) -> None:
    terminal = sit(cast())
    ok(terminal.run("pause", "--for", "2h", "--reason", "a network change"))
    out = ok(terminal.run("pause", "--for", "1h", "--reason", "mine", "--owner", "grace"))
    assert out.endswith(": a network change. If somebody ends it before, pause again.\n")
    ok(terminal.run("resume"))
    assert "Pause:   none" in ok(terminal.run("status"))


def test_a_pause_keeps_what_the_agents_have_agreed_on(sit: Sit) -> None:
    s = at("draining")
    before = s.gate()
    ok(sit(s).run("pause", "--for", "1h", "--reason", "a network change"))
    assert (s.gate().slots, s.gate().open, s.gate().stamp) == (before.slots, before.open, before.stamp)


def test_a_pause_that_somebody_else_was_quicker_than_is_written_again(sit: Sit) -> None:
    s = at("draining")
    terminal = sit(s)
    s.api.fail_next(lambda asked: asked.method == "PUT", refused(409, "Conflict", "it has been modified"))
    assert ok(terminal.run("pause", "--for", "1h", "--reason", "x")).startswith("Paused until")


def test_somebody_elses_pause_is_asked_about_before_it_ends(sit: Sit) -> None:
    s = cast()
    terminal = sit(s)
    ok(terminal.run("pause", "--for", "2h", "--reason", "a network change", "--owner", "grace"))
    said = terminal.run("resume", answer="n\n")
    assert said.code == 1
    assert "grace paused all recoveries: a network change. End it for everybody?" in said.err
    assert said.err.endswith("Nothing was changed.\n")
    assert s.gate().pause is not None
    terminal.attended = False
    said = terminal.run("resume")
    assert (said.code, said.out) == (2, "")
    assert said.err.endswith("There is no terminal to ask at. Use --yes.\n")
    assert terminal.run("resume", "--yes").code == 0
    assert s.gate().pause is None


@pytest.mark.parametrize("length", ["2", "soon", "0s", "-1h", ""])
def test_a_pause_needs_a_length_that_can_be_read(sit: Sit, length: str) -> None:
    said = sit(cast()).run("pause", f"--for={length}", "--reason", "x")
    assert (said.code, said.out) == (2, "")
    assert f"found {length!r}, expected a duration such as 30m, 2h or 1h30m" in said.err


def test_a_pause_needs_a_reason(sit: Sit) -> None:
    terminal = sit(cast())
    assert "Missing option '--reason'" in terminal.run("pause", "--for", "1h").err
    said = terminal.run("pause", "--for", "1h", "--reason", "  ")
    assert (said.code, "found nothing, expected a few words" in said.err) == (2, True)


def test_pause_for_programs_says_what_holds(sit: Sit) -> None:
    found = sit(cast()).run("pause", "--for", "1h", "--reason", "x", "-o", "json").json
    assert (found["pause"]["owner"], found["pause"]["reason"]) == ("ada@laptop", "x")


# ---------------------------------------------------------------- release


def test_a_node_handed_over_is_given_back_to_service(sit: Sit) -> None:
    s = handed_over()
    said = sit(s).run("release", "node-0", "--reason", "card reseated", answer="y\n")
    assert said.code == 0
    assert f"A release removes our cordon and taint, frees its place in the budget, and remembers {DMA}" in (
        said.err + said.out
    )
    assert said.out.endswith(
        "node-0 is back in service, our marks are off: released by ada@laptop: card reseated.\n"
    )
    assert (phase(s), marked(s), no_place(s)) == (Phase.RELEASED, NO_MARKS, True)
    assert messages(s, "Released") == ["released by ada@laptop: card reseated"]


def test_the_fault_of_a_released_node_starts_nothing_again_until_a_new_boot(sit: Sit) -> None:
    s = handed_over()
    ok(sit(s).run("release", "node-0", "--yes"))
    s.run(600)
    assert (phase(s), marked(s)) == (Phase.RELEASED, NO_MARKS)
    boot(s, "node-0")
    s.run(70)
    assert phase(s) is Phase.HANDED_OVER


def test_a_no_changes_nothing(sit: Sit) -> None:
    s = handed_over()
    said = sit(s).run("release", "node-0", answer="n\n")
    assert (said.code, said.err.endswith("Nothing was changed.\n")) == (1, True)
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)


@pytest.mark.parametrize("error", [KeyError, OSError])  # before Python 3.13, and since
def test_who_has_no_name_on_this_machine_either_releases_a_node_all_the_same(
    error: type[Exception], sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a pod of ours, whose user is a number alone, on a Kubernetes that says nobody who they are."""

    def nameless() -> str:
        raise error("getpwuid(): uid not found: 65532")

    s = handed_over()
    terminal = sit(s)
    monkeypatch.setattr("getpass.getuser", nameless)
    whose = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    s.api.fail_next(lambda a: a.path == whose, refused(404))
    said = terminal.run("release", "node-0", "--yes")
    assert (said.code, phase(s)) == (0, Phase.RELEASED)
    assert "released by somebody@laptop" in said.out


def test_a_script_has_to_say_yes(sit: Sit) -> None:
    s = handed_over()
    terminal = sit(s)
    terminal.attended = False
    said = terminal.run("release", "node-0")
    assert (said.code, said.out) == (2, "")
    assert said.err.endswith("There is no terminal to ask at. Use --yes.\n")
    assert phase(s) is Phase.HANDED_OVER


def test_a_recovery_in_the_middle_can_be_released_before_its_call(sit: Sit) -> None:
    s = at("draining")
    ok(sit(s).run("release", "node-0", "--yes"))
    s.run(120)
    assert (phase(s), marked(s), no_place(s), calls(s)) == (Phase.RELEASED, NO_MARKS, True, [])


def test_a_replacement_that_was_asked_for_cannot_be_released(sit: Sit) -> None:
    s = at("after the call")
    said = sit(s).run("release", "node-0", "--yes")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(
        "nothing was changed: replace of m-0 has been asked for, and a release does not call it back. "
        "An agent with ENABLE_RECOVERY=true ends it, proved or in a person's hands, at its deadline ("
    )
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)


def test_what_a_switched_off_agent_left_is_cleaned_up(sit: Sit) -> None:
    s = at("draining")
    new_process(s, "node-0", on=False)
    s.run(70)
    assert marked(s) == ALL_MARKS
    ok(sit(s).run("release", "node-0", "--yes"))
    assert (phase(s), marked(s), no_place(s)) == (Phase.RELEASED, NO_MARKS, True)


def test_a_release_that_was_cut_off_is_finished_by_the_next_one(sit: Sit) -> None:
    s = handed_over()
    for actor in s.actors.values():
        s.kill(actor)
    terminal = sit(s)
    s.api.fail_next(lambda asked: asked.method == "PATCH" and "/nodes/" in asked.path, lost_request)
    said = terminal.run("release", "node-0", "--yes")
    assert (said.code, phase(s), marked(s)) == (1, Phase.RELEASED, ALL_MARKS)
    assert ok(terminal.run("release", "node-0", "--yes")).startswith("node-0 is back in service")
    assert marked(s) == NO_MARKS


def test_somebody_elses_cordon_stays_and_is_named(sit: Sit) -> None:
    s = cast(policy_file("{do: cordon}"))
    patch_node(s, "node-0", {"spec": {"unschedulable": True}})
    s.fault("node-0")
    s.run(10)
    out = ok(sit(s).run("release", "node-0", "--yes"))
    assert "somebody else's cordon stays (kubectl uncordon node-0)" in out
    assert s.node("node-0")["spec"]["unschedulable"] is True


def test_a_node_that_is_gone_can_be_released_from_the_books(sit: Sit) -> None:
    s = handed_over()
    s.delete_node("node-0")
    for actor in s.actors.values():
        s.kill(actor)
    out = ok(sit(s).run("release", "node-0", "--yes"))
    assert out.startswith("node-0 is released; its Node is not there")


def test_there_is_nothing_to_release_where_nothing_is_held(sit: Sit) -> None:
    s = cast()
    terminal = sit(s)
    said = terminal.run("release", "node-0", "--yes")
    assert said.code == 1
    assert said.err == (
        "there is nothing to release: node-0 has no record; "
        "node-recovery status --all lists the nodes that do\n"
    )
    s = handed_over()
    terminal = sit(s)
    ok(terminal.run("release", "node-0", "--yes"))
    said = terminal.run("release", "node-0", "--yes")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("there is nothing to release: node-0 is released: released by ada@laptop")


def test_a_release_without_the_right_to_write_events_releases_all_the_same(sit: Sit) -> None:
    s = handed_over()
    for actor in s.actors.values():
        s.kill(actor)
    terminal = sit(s)
    s.api.fail_next(lambda asked: "/events" in asked.path, refused(403, "Forbidden", "ada may not"))
    said = terminal.run("release", "node-0", "--yes")
    assert (said.code, phase(s)) == (0, Phase.RELEASED)
    assert said.err.startswith("(no Event was written: ")


def test_release_for_programs_says_what_was_done(sit: Sit) -> None:
    found = sit(handed_over()).run("release", "node-0", "--yes", "-o", "json").json
    assert (found["released"], found["marksTakenOff"]) == (True, True)


def test_a_record_that_cannot_be_read_is_not_released(sit: Sit) -> None:
    s = handed_over()
    terminal = sit(s)
    of_another_version(s, f"{RECORDS}/node-0")
    said = terminal.run("release", "node-0", "--yes")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(
        "nothing was changed: the record of node-0 cannot be read: NodeRecovery node-0 was"
    )
    assert said.err.endswith(
        "kubectl get noderecovery node-0 -o yaml; deleting it ends the recovery unproved\n"
    )


def test_a_gate_that_cannot_be_read_keeps_a_node_from_being_released(sit: Sit) -> None:
    s = handed_over()
    of_another_version(s, f"{GATES}/fleet")
    said = sit(s).run("release", "node-0", "--yes")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(
        "nothing was changed: the gate cannot be read: RecoveryGate fleet was written in"
    )
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)


def test_what_a_cut_off_release_left_is_told_before_it_is_cleared_away(sit: Sit) -> None:
    s = handed_over()
    for actor in s.actors.values():
        s.kill(actor)
    terminal = sit(s)
    s.api.fail_next(lambda asked: asked.method == "PATCH" and "/nodes/" in asked.path, lost_request)
    terminal.run("release", "node-0", "--yes")
    said = terminal.run("release", "node-0", answer="y\n")
    assert "What was left of it, marks or a place in the budget, is cleared away. Release it?" in said.err
    assert marked(s) == NO_MARKS


def test_a_pause_that_was_made_while_resume_asked_about_another_is_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = cast(agents=1)
    bob = Terminal(s, monkeypatch)
    assert bob.run("pause", "--for", "10m", "--reason", "a switch is exchanged", "--owner", "bob").code == 0

    def confirm(question: str, err: bool) -> bool:  # while the question stands there, carol pauses for a day
        assert bob.run("pause", "--for", "24h", "--reason", "new network", "--owner", "carol").code == 0
        return True

    monkeypatch.setattr(click, "confirm", confirm)
    assert Terminal(s, monkeypatch).run("resume").code != 0
    pause = s.gate().pause
    assert pause is not None
    assert pause.owner == "carol"


def test_explain_counts_one_reason_as_one(sit: Sit) -> None:
    s = Stage()
    s.nodes(1)
    s.pages["node-0"].body = b'problem_gauge{reason="DockerHung",type="KernelDeadlock"} 0\n'
    s.agent("node-0", on=False)
    s.run(3)
    out = ok(sit(s).run("explain", "node-0"))
    assert "ago, can name 1 reason\n" in out


def test_explain_of_a_fault_that_is_tolerated_for_days_names_the_day(sit: Sit) -> None:
    s = cast(policy_file("{do: drain}", after="72h"))
    s.fault("node-0")
    s.run(3)
    assert "tolerated until 2026-11-24 03:00:0" in ok(sit(s).run("explain", "node-0"))
