"""What this program cannot end itself is handed to a person, and said until it is taken (law 6)."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.errors import Refused, Unreadable
from recovery.model import Phase
from tests.builders.policies import HEAD, policy_file
from tests.stories.scenery import RECORDS
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    PERSON,
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
    phase,
    plugin_page,
    ready,
    release_by_command,
    remove_pod,
    sayings,
    says,
    stubborn_pod,
    the_record,
    value,
)


def gone_and_not_replaced() -> Stage:
    """The machine was taken out of its group, which launches nothing."""
    s = at("after the call", 3)
    s.provider.terminate("workers", "m-0")
    s.delete_node("node-0")
    for actor in s.actors.values():
        if actor.node == "node-0":
            s.kill(actor)
    s.run(34 * 60, step=10)  # nobody was at work until a peer took the Lease
    return s


def test_a_group_that_launches_nothing_is_handed_over_with_the_reason() -> None:
    s = gone_and_not_replaced()
    assert phase(s) is Phase.HANDED_OVER
    why = "replace did not succeed within 30 min: m-0 is gone, and group workers has not launched another"
    assert messages(s, "HandedOver") == [f"handed over to a person: {why}"]


def test_a_hand_over_of_a_node_whose_agent_is_gone_is_said_again_each_minute() -> None:
    s = gone_and_not_replaced()
    since = len(s.store.history)
    s.run(601, step=3)
    assert 8 <= sayings(s, "HandedOver", since) <= 12


def test_a_hand_over_of_a_node_whose_agent_is_gone_is_a_gauge_of_the_peer_that_told_it() -> None:
    s = gone_and_not_replaced()
    s.run(70, step=1)
    assert sum(value(actor, "node_recovery_open_handovers") for actor in s.actors.values()) == 1


def test_a_hand_over_frees_the_slot_and_the_node_goes_on_counting_as_sick() -> None:
    s = gone_and_not_replaced()
    assert no_place(s)
    s.provider.groups["workers"].desired = 2
    s.fault("node-1")
    s.run(10)
    census = s.gate().census
    assert census is not None
    assert (sorted(census.sick), census.population) == (["node-0", "node-1"], 3)
    assert "the brake is on: 2 of 3 nodes in the fleet" in messages(s, "Held", "node-1")[0]
    assert calls(s) == [("replace", "m-0")]


def test_a_refusal_that_is_known_beforehand_hands_over_before_the_node_bears_a_mark() -> None:
    s = cast()
    s.provider.preflight_error = Refused("m-0 is not in an Auto Scaling group")
    since = len(s.store.history)
    s.fault("node-0")
    s.run(30)
    assert (phase(s), calls(s), marked(s), no_place(s)) == (Phase.HANDED_OVER, [], NO_MARKS, True)
    assert [w for w in s.store.history[since:] if w.path.startswith("/api/v1/nodes")] == []
    assert says(s, "HandedOver", "handed over to a person: m-0 is not in an Auto Scaling group")


def test_a_refusal_of_the_call_itself_is_handed_over_with_the_marks_kept() -> None:
    s = cast()
    s.provider.start_error = Refused("you are not authorized to perform this operation")
    s.fault("node-0")
    s.run(30)
    assert (phase(s), len(calls(s)), marked(s)) == (Phase.HANDED_OVER, 1, ALL_MARKS)
    assert says(s, "HandedOver", "handed over to a person: you are not authorized")


def test_an_own_hand_over_is_said_each_minute_and_is_a_gauge() -> None:
    s = cast()
    s.provider.preflight_error = Refused("it is protected")
    s.fault("node-0")
    s.run(601, step=3)
    assert 9 <= sayings(s, "HandedOver") <= 12
    assert value(s.actors["agent of node-0"], "node_recovery_open_handovers") == 1
    outcomes = [dict(m.dimensions)["Outcome"] for m in s.told.metrics if m.name == "RecoveryAction"]
    assert outcomes == ["observed", "refused"]


def test_a_step_that_its_provider_refuses_before_the_start_is_told_by_its_own_name() -> None:
    """The metrics said that the drain was refused, which was the first step and was never asked about."""
    s = cast()
    s.provider.preflight_error = Refused("the role may not do that")
    s.fault("node-0")
    s.run(30)
    assert phase(s) is Phase.HANDED_OVER
    assert [step.do.value for step in the_record(s).ladder] == ["drain", "replace"]
    told = [m.dimensions for m in s.told.metrics if m.name == "RecoveryAction"]
    assert [(x["Action"], x["Outcome"]) for x in told] == [("replace", "observed"), ("replace", "refused")]


# ---------------------------------------------------------------- a drain that does not end


def late(then: str) -> Stage:
    s = cast(policy_file(f"{{do: drain, within: 5m, then: {then}}}, {{do: replace, within: 30m}}"))
    stubborn_pod(s)
    s.fault("node-0")
    s.run(5 * 60 + 20, step=5)
    return s


def test_a_late_drain_that_hands_over_keeps_the_node_out_of_service() -> None:
    s = late("handOver")
    assert (phase(s), calls(s), marked(s), no_place(s)) == (Phase.HANDED_OVER, [], ALL_MARKS, True)
    why = "the drain did not end within 5 min: 1 pod left"
    assert says(s, "HandedOver", f"handed over to a person: {why}")


def test_a_late_drain_that_holds_goes_on_trying_and_keeps_its_slot() -> None:
    s = late("hold")
    asked = s.store.requests["create", "pods/eviction"]
    s.run(60)
    assert (phase(s), calls(s), no_place(s)) == (Phase.RECOVERING, [], False)
    assert s.store.requests["create", "pods/eviction"] > asked
    remove_pod(s)
    s.run(5)
    assert calls(s) == [("replace", "m-0")]


def test_a_late_drain_that_forces_goes_on_without_the_pods_and_deletes_none() -> None:
    s = late("force")
    assert calls(s) == [("replace", "m-0")]
    assert s.store.request("GET", "/api/v1/namespaces/default/pods/train").status == 200
    assert s.store.requests["delete", "pods"] == 0


def test_what_follows_a_late_drain_is_a_hand_over_if_nothing_else_is_said() -> None:
    s = cast(policy_file("{do: drain, within: 5m}, {do: replace, within: 30m}"))
    stubborn_pod(s)
    s.fault("node-0")
    s.run(5 * 60 + 20, step=5)
    assert phase(s) is Phase.HANDED_OVER


@pytest.mark.parametrize("steps", ["{do: cordon}", "{do: taint}"])
def test_a_ladder_that_ends_with_a_mark_is_handed_over_with_the_mark_kept(steps: str) -> None:
    s = cast(policy_file(steps))
    s.fault("node-0")
    s.run(200, step=1)
    assert (phase(s), calls(s), no_place(s)) == (Phase.HANDED_OVER, [], True)
    assert marked(s) == (ALL_MARKS if "cordon" in steps else (False, True, False))
    assert sayings(s, "HandedOver") >= 3


def test_a_machine_handed_over_is_not_treated_again_by_a_restarted_agent() -> None:
    s = late("handOver")
    remove_pod(s)
    s.agent("node-0", name="again", place="pod-of-node-0", alone=True)
    s.run(120, step=1)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])


def test_a_hand_over_ends_when_a_person_puts_another_machine_there() -> None:
    s = late("handOver")
    s.replace_machine("node-0", "m-0", "node-0", "m-9")
    s.pages["node-0"].body = s.pages["node-1"].body
    s.agent("node-0", name="on m-9", place="pod-2")
    s.run(70, step=1)
    assert phase(s) is Phase.SUPERSEDED


def test_after_as_many_attempts_as_allowed_a_person_is_asked() -> None:
    s = cast(
        policy_file(
            "{do: reboot, within: 2m}",
            limits="cooldown: 0s, sameIncident: 0s, attempts: {max: 2, within: 24h}",
        )
    )
    boots = iter(range(2, 9))
    for _ in range(3):
        s.fault("node-0")
        s.run(5)
        s.store.request(
            "PATCH",
            "/api/v1/nodes/node-0/status",
            body={"status": {"nodeInfo": {"bootID": f"m-0-boot-{next(boots)}"}}},
            content_type="application/merge-patch+json",
        )
        s.pages["node-0"].body = s.pages["node-1"].body
        s.run(140)
    assert len(calls(s)) == 2
    assert the_record(s).phase in (Phase.HANDED_OVER, Phase.WITHDRAWN)
    assert any("2 recoveries of it within 24 h have not helped" in x for x in messages(s, "HandedOver"))


# ---------------------------------------------------------------- what comes after it, and ends

HBM = "NeuronHasError_HBM_UNCORRECTABLE_ERROR"
DRAIN_FIRST = "{do: drain, within: 10m}, {do: replace, within: 30m}"
THEIRS = f"; a person was told of {HBM} before, and has not released node-0"


def told_and_another(*, after: str = "5m", remedy: str = DRAIN_FIRST) -> Stage:
    """A fault was only reported. Another one came since."""
    rules = (
        "  - {name: hbm, match: {reason: NeuronHasError_HBM*}, remedy: [{do: notify}]}\n"
        f"  - {{name: nvlink, match: {{type: GpuNvlink}}, after: {after}, remedy: [{remedy}]}}\n"
    )
    s = cast(f"{HEAD}rules:\n{rules}".encode())
    stubborn_pod(s)
    shows(s, nvlink=False)
    s.run(5)
    assert phase(s) is Phase.HANDED_OVER
    shows(s, nvlink=True)
    s.run(10)
    return s


def shows(s: Stage, *, hbm: bool = True, nvlink: bool) -> None:
    said = npd_page("HBM_UNCORRECTABLE_ERROR") if hbm else npd_page()
    s.pages["node-0"].body = said + plugin_page(nvlink, 1)


@pytest.mark.parametrize(("after", "meanwhile"), [("5m", Phase.SUSPECT), ("0s", Phase.RECOVERING)])
def test_a_fault_that_ends_gives_the_node_back_to_the_person_who_had_it(after: str, meanwhile: Phase) -> None:
    s = told_and_another(after=after)
    assert phase(s) is meanwhile
    shows(s, nvlink=False)
    s.run(60)
    assert (phase(s), [f.reason for f in the_record(s).faults]) == (Phase.HANDED_OVER, [HBM])
    assert marked(s) == NO_MARKS
    assert messages(s, "HandedOver")[-1].endswith(THEIRS)
    assert the_record(s).rule == "hbm"
    agent = s.actors["agent of node-0"]
    assert value(agent, "node_recovery_actions_total", action="none", outcome="handedOver") == 2
    since = len(s.store.history)
    s.run(300)
    assert 4 <= sayings(s, "HandedOver", since) <= 6


def test_so_does_one_that_was_only_reported_as_well() -> None:
    s = told_and_another(after="0s", remedy="{do: notify}")
    assert (phase(s), the_record(s).faults[0].reason) == (Phase.HANDED_OVER, "GpuNvlinkBad")
    shows(s, nvlink=False)
    s.run(60)
    assert (phase(s), [f.reason for f in the_record(s).faults]) == (Phase.HANDED_OVER, [HBM])


@pytest.mark.parametrize("detector", ["goes on", "starts anew"])
def test_a_restarted_agent_gives_it_back_too(detector: str) -> None:
    s = told_and_another()
    shows(s, hbm=detector == "goes on", nvlink=False)
    new_process(s, "node-0")
    s.run(60)
    assert (phase(s), [f.reason for f in the_record(s).faults]) == (Phase.HANDED_OVER, [HBM])


def test_what_a_person_had_released_is_not_given_back() -> None:
    s = told_and_another()
    release_by_command(s)
    shows(s, nvlink=False)
    s.run(60)
    shows(s, nvlink=True)
    s.run(10)
    assert phase(s) is Phase.SUSPECT
    shows(s, nvlink=False)
    s.run(60)
    assert phase(s) is Phase.WITHDRAWN


def test_nor_is_what_a_boot_has_ended() -> None:
    s = told_and_another()
    shows(s, hbm=False, nvlink=False)
    boot(s, "node-0")
    s.run(300)
    assert phase(s) is Phase.WITHDRAWN


def test_a_new_fault_of_a_node_that_was_given_back_is_treated() -> None:
    s = told_and_another()
    shows(s, nvlink=False)
    s.run(60)
    shows(s, nvlink=True)
    remove_pod(s)
    s.run(320)
    assert calls(s) == [("replace", "m-0")]


def test_a_replacement_that_is_proved_is_given_to_nobody_though_the_old_node_is_still_there() -> None:
    s = told_and_another(after="0s", remedy="{do: replace, within: 30m}")
    remove_pod(s)
    s.run(60)
    s.provider.terminate("workers", "m-0")
    s.provider.launch("workers", "m-9")
    s.kill(s.actors["agent of node-0"])
    s.register("node-9", "m-9")
    s.agent("node-9")
    ready(s, "node-0", "False")
    s.run(1800, step=5)
    assert phase(s) is Phase.RECOVERED


def two_plugins(*, nvlink: bool, other: bool) -> bytes:
    return npd_page() + plugin_page(nvlink, 1) + plugin_page(other, 1).replace(b"GpuNvlink", b"Other")


@pytest.mark.parametrize("ends", ["latch: boot", "hold: 1h"])
def test_what_ends_it_is_what_its_rule_says_while_another_fault_comes_and_goes(ends: str) -> None:
    rules = (
        f"  - {{name: nvlink, match: {{type: GpuNvlink}}, {ends}, remedy: [{{do: notify}}]}}\n"
        "  - {name: other, match: {type: Other}, after: 30m, remedy: [{do: reboot}]}\n"
    )
    s = cast(f"{HEAD}rules:\n{rules}".encode())
    for nvlink, other in ((False, False), (True, False), (True, True), (False, True), (False, False)):
        s.pages["node-0"].body = two_plugins(nvlink=nvlink, other=other)
        s.run(60)
    assert (phase(s), [f.type for f in the_record(s).faults]) == (Phase.HANDED_OVER, ["GpuNvlink"])
    assert the_record(s).rule == "nvlink"
    s.run(4000, step=10)
    assert phase(s) is (Phase.HANDED_OVER if "boot" in ends else Phase.WITHDRAWN)


def test_an_edge_that_a_person_was_told_of_keeps_its_rule() -> None:
    rules = (
        "  - {name: oom, match: {reason: OOMKilling, times: {count: 2, within: 5m}}, "
        "remedy: [{do: notify}]}\n"
        "  - {name: nvlink, match: {type: GpuNvlink}, after: 5m, remedy: [{do: reboot}]}\n"
    )
    s = cast(f"{HEAD}rules:\n{rules}".encode())
    for count, nvlink in ((0, False), (1, False), (2, False), (3, False), (3, True), (3, False)):
        edges = f'problem_counter{{reason="OOMKilling"}} {count}\n'
        s.pages["node-0"].body = npd_page() + plugin_page(nvlink, 1) + edges.encode()
        s.run(30)
    assert (phase(s), the_record(s).rule) == (Phase.HANDED_OVER, "oom")


def test_a_fault_that_came_once_the_node_had_named_its_boot_is_not_settled_with_the_record() -> None:
    """The record was opened before."""
    rules = "  - {name: plugins, match: {}, after: 10m, remedy: [{do: reboot}]}\n"
    s = Stage(f"{HEAD}rules:\n{rules}".encode())
    s.nodes(4)
    boot(s, "node-0", "")
    s.pages["node-0"].body = two_plugins(nvlink=False, other=False)
    s.agent("node-0")
    s.run(5)
    s.pages["node-0"].body = two_plugins(nvlink=True, other=False)
    s.run(10)
    boot(s, "node-0")
    s.run(10)
    s.pages["node-0"].body = two_plugins(nvlink=True, other=True)
    s.run(10)
    exclude(s)
    s.run(700)
    assert phase(s) is Phase.WITHDRAWN
    label(s, "node-0", **{"noderecovery.dev/exclude": None})
    s.pages["node-0"].body = two_plugins(nvlink=False, other=True)
    s.run(1500)
    assert calls(s) == [("reboot", "m-0")]


# ---------------------------------------------------------------- what is refused, and what comes besides

HANG = "NeuronHasError_HANG_ON_COLLECTIVES"
PROTECTED = "handed over to a person: its group is protected"
READY = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
BESIDES = f"""{HEAD}limits: {{cooldown: 0s, budget: 2, budgetPer: {{}}, brake: 30%}}
rules:
  - {{name: hang, match: {{type: NeuronHealth, reason: {HANG}}}, remedy: [{{do: notify}}]}}
  - {{name: nvlink, match: {{type: GpuNvlink}}, remedy: [{{do: replace}}]}}
  - {{name: neuron, match: {{type: NeuronHealth}}, after: 1h, remedy: [{{do: replace}}]}}
""".encode()


def refused_then(*besides: str) -> Stage:
    """Of four nodes two are handed over before they bear a mark. Then their pages show more."""
    s = cast(BESIDES, agents=3)
    s.provider.preflight_error = Refused("its group is protected")
    for node in ("node-0", "node-1"):
        s.pages[node].body = npd_page() + plugin_page(True, 1)
    s.run(10)
    assert (phase(s), the_record(s).sentence) == (Phase.HANDED_OVER, PROTECTED)
    for node in ("node-0", "node-1"):
        s.pages[node].body = npd_page(*besides) + plugin_page(True, 1)
    s.provider.preflight_error = None
    return s


def test_what_is_only_told_besides_takes_no_refused_node_from_its_person_or_from_the_brake() -> None:
    s = refused_then("HANG_ON_COLLECTIVES")
    s.run(300)
    assert the_record(s).sentence == PROTECTED
    assert messages(s, "HandedOver")[-1].endswith(f"{PROTECTED}; seen since: {HANG}")
    s.fault("node-2", "DMA_ERROR")
    s.pages["node-2"].body += plugin_page(True, 1)
    s.run(60)
    assert (calls(s), phase(s, "node-2")) == ([], Phase.WAITING)
    assert says(s, "Held", "GpuNvlinkBad: waiting: the brake is on: 3 of 4 nodes", "node-2")


def test_a_person_is_told_each_minute_of_a_refused_node_while_another_fault_is_tolerated() -> None:
    s = refused_then("DMA_ERROR")
    since = len(s.store.history)
    s.run(601, step=3)
    assert sayings(s, "HandedOver", since) >= 2 * 9
    assert value(s.actors["agent of node-0"], "node_recovery_open_handovers") == 1
    s.run(3100, step=5)
    assert calls(s)[0] == ("replace", "m-0"), "it was tolerated for an hour, and is treated all the same"


def test_a_refused_fault_that_ends_makes_room_for_the_one_that_is_tolerated() -> None:
    s = refused_then("DMA_ERROR")
    s.run(60)
    s.pages["node-0"].body = npd_page("DMA_ERROR") + plugin_page(False, 1)
    s.run(60)
    assert says(s, "Withdrawn", "GpuNvlinkBad was taken back by its own source")
    assert (phase(s), the_record(s).faults[0].type) == (Phase.SUSPECT, "NeuronHealth")


def test_a_node_of_which_nothing_is_known_counts_on_while_another_fault_is_told() -> None:
    s = cast(BESIDES.replace(b"rules:", b"sources: [npd, conditions]\nrules:"), agents=3, plugin=True)
    for node in ("node-0", "node-1"):
        s.pages[node].error = Unreadable("connection refused")
    s.run(700, step=1)
    for node in ("node-0", "node-1"):
        hang = {"type": "NeuronHealth", "status": "True", "reason": HANG}
        patch_node(s, node, {"status": {"conditions": [*READY, hang]}}, "status", "detector")
    s.run(120, step=1)
    assert the_record(s).faults[0].reason == HANG
    s.pages["node-2"].body = plugin_page(True, 1)
    s.run(60)
    assert (calls(s), phase(s, "node-2")) == ([], Phase.WAITING)
    for node in ("node-0", "node-1"):
        s.pages[node].error = None
    s.run(120, step=1)
    assert calls(s) == [("replace", "m-2")], "their pages can be read again"


def test_a_hand_over_whose_record_cannot_be_read_keeps_none_of_the_others_from_being_told() -> None:
    """Of nodes whose agents are dead the concluder tells. An agent of a newer version wrote one record."""
    limits = "budget: 2, budgetPer: {}, brake: 100%, brakePer: {}, cooldown: 0s"
    s = cast(policy_file("{do: cordon}", limits=limits), agents=2)
    for node in ("node-0", "node-1"):
        s.fault(node)
    s.run(30)
    assert (phase(s), phase(s, "node-1")) == (Phase.HANDED_OVER, Phase.HANDED_OVER)
    concluder = s.concluder()
    for actor in [x for x in s.actors.values() if x.node]:
        s.kill(actor)
    s.run(200, step=2)
    newer = s.store.request("GET", f"{RECORDS}/node-0").body
    newer["status"]["version"] = 99
    assert s.store.request("PUT", f"{RECORDS}/node-0", body=newer, user_agent=PERSON).status == 200
    since = len(s.store.history)
    s.run(600, step=2)
    assert 16 <= sayings(s, "HandedOver", since) <= 22
    told = messages(s, "HandedOver")[-1]
    assert told.startswith("handed over to a person: NeuronHasError_DMA_ERROR: node-0 is cordoned")
    assert "its record cannot be read now: NodeRecovery node-0 was written in version 99" in told
    assert value(concluder, "node_recovery_open_handovers") == 2
    assert value(concluder, "node_recovery_errors_total", kind="Undecodable") == 0


def test_a_node_that_is_gone_is_not_said_to_show_since_then_what_was_handed_over() -> None:
    s = handed_over()
    s.delete_node("node-0")
    s.run(120)
    (told,) = set(messages(s, "HandedOver")[-1:])
    assert "seen since" not in told
