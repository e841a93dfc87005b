"""Whose marks are on a node: ours come and go, others' stay (law 5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from recovery_testkit.kubefaults import refused
from recovery_testkit.stage import Stage, npd_page

from recovery.catalog import claims
from recovery.errors import Retry
from recovery.model import Marks, Phase
from tests.builders.faults import DMA
from tests.builders.policies import HEAD, policy_file
from tests.stories.scenery import judge
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    PERSON,
    PLUGIN,
    REBOOTS,
    TAINT,
    boot,
    calls,
    cast,
    dies_once_it_has_marked,
    marked,
    messages,
    new_process,
    no_place,
    patch_node,
    phase,
    plugin_page,
    ready,
    rebooted_and_proved,
    record_sentences,
    remove_pod,
    stubborn_pod,
    taints,
    the_record,
)
from tests.stories.test_probation import NO_XID, UP, booted_in_fleet_mode, renewed

FOREIGN: list[dict[str, Any]] = [
    {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
    {"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-11-20T00:00:00Z"},
]


def test_our_marks_come_before_the_call_and_go_with_the_proof() -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(5)
    assert marked(s) == ALL_MARKS
    assert s.node("node-0")["metadata"]["annotations"]["noderecovery.dev/cordoned-by"] == "node-recovery"
    rebooted_and_proved(s)
    assert marked(s) == NO_MARKS


def test_a_foreign_cordon_is_there_afterwards_as_it_was_before() -> None:
    s = cast(REBOOTS)
    patch_node(s, "node-0", {"spec": {"unschedulable": True}})
    s.fault("node-0")
    s.run(5)
    assert marked(s) == (True, True, False)
    rebooted_and_proved(s)
    assert marked(s) == (True, False, False)


def test_a_foreign_cordon_stays_when_the_fault_is_withdrawn() -> None:
    s = cast(PLUGIN, plugin=True)
    patch_node(s, "node-0", {"spec": {"unschedulable": True}})
    stubborn_pod(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(5)
    assert marked(s) == (True, True, False)
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(5)
    assert phase(s) is Phase.WITHDRAWN
    assert marked(s) == (True, False, False)


def test_foreign_taints_stay_as_they_were_to_the_letter() -> None:
    s = cast(REBOOTS)
    patch_node(s, "node-0", {"spec": {"taints": FOREIGN}})
    before = taints(s)
    s.fault("node-0")
    s.run(5)
    assert taints(s) == [*before, TAINT]
    rebooted_and_proved(s)
    assert taints(s) == before


def test_a_taint_set_between_our_read_and_our_patch_is_not_lost() -> None:
    s = cast(REBOOTS)

    def meanwhile(asked: Any, go: Any) -> Any:
        patch_node(s, "node-0", {"spec": {"taints": FOREIGN}})
        return go()

    s.api.fail_next(lambda a: a.method == "PATCH" and a.path == "/api/v1/nodes/node-0", meanwhile)
    s.fault("node-0")
    s.run(5)
    assert s.api.pending == 0
    assert [t["key"] for t in taints(s)] == ["gpu", "maintenance", TAINT["key"]]


def test_a_taint_set_while_ours_comes_off_is_not_lost() -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(5)

    def meanwhile(asked: Any, go: Any) -> Any:
        patch_node(s, "node-0", {"spec": {"taints": [*FOREIGN, TAINT]}})
        return go()

    s.api.fail_next(lambda a: a.method == "PATCH" and a.path == "/api/v1/nodes/node-0", meanwhile)
    rebooted_and_proved(s)
    assert s.api.pending == 0
    assert [t["key"] for t in taints(s)] == ["gpu", "maintenance"]


def test_a_crash_between_the_marks_and_the_record_leaves_no_mark_behind() -> None:
    s = cast(REBOOTS)
    dies_once_it_has_marked(s)
    s.fault("node-0")
    s.run(3)
    assert marked(s) == ALL_MARKS
    new_process(s, "node-0")
    s.run(5)
    assert calls(s) == [("reboot", "m-0")]
    rebooted_and_proved(s)
    assert marked(s) == NO_MARKS


# ---------------------------------------------------------------- somebody undoes ours


def draining() -> Stage:
    s = cast()
    stubborn_pod(s)
    s.fault("node-0")
    s.run(5)
    assert marked(s) == ALL_MARKS
    return s


def it_goes_on_once_it_is_cordoned_again(s: Stage) -> None:
    (sentence,) = messages(s, "Held")
    assert sentence.startswith(f"{DMA}: drain: somebody uncordoned node-0; exclude or release it")
    patch_node(s, "node-0", {"spec": {"unschedulable": True}})
    s.run(5)
    assert calls(s) == [("replace", "m-0")]


def test_a_node_that_somebody_uncordoned_is_held_until_it_is_cordoned_again() -> None:
    s = draining()
    patch_node(s, "node-0", {"spec": {"unschedulable": None}})
    remove_pod(s)
    s.run(30)
    assert calls(s) == []
    assert marked(s) == (False, True, True)
    it_goes_on_once_it_is_cordoned_again(s)


def test_so_is_one_that_somebody_had_cordoned_before_the_recovery() -> None:
    s = cast()
    patch_node(s, "node-0", {"spec": {"unschedulable": True}})
    stubborn_pod(s)
    s.fault("node-0")
    s.run(5)
    assert marked(s) == (True, True, False)
    patch_node(s, "node-0", {"spec": {"unschedulable": None}})
    s.run(15)
    assert marked(s) == (False, True, False), "it is not cordoned over a person's head"
    remove_pod(s)
    s.run(15)
    assert calls(s) == []
    it_goes_on_once_it_is_cordoned_again(s)


def test_a_node_whose_taint_somebody_took_off_is_held_until_it_is_back() -> None:
    s = draining()
    patch_node(s, "node-0", {"spec": {"taints": FOREIGN}})
    remove_pod(s)
    s.run(30)
    assert calls(s) == []
    assert [t["key"] for t in taints(s)] == ["gpu", "maintenance"]
    assert "somebody took the taint noderecovery.dev/unhealthy off node-0" in messages(s, "Held")[0]
    patch_node(s, "node-0", {"spec": {"taints": [*FOREIGN, TAINT]}})
    s.run(5)
    assert calls(s) == [("replace", "m-0")]


# ---------------------------------------------------------------- claims of others

MARKS = [(c.system, c.kind, c.key, sorted(c.values)[0] if c.values else "yes") for c in claims()]
FIRST = {system: (system, kind, key, text) for system, kind, key, text in reversed(MARKS)}


def put_claim(s: Stage, kind: str, key: str, text: str) -> None:
    key = key[:-1] + "x" if key.endswith("/*") else key
    if kind == "taint":
        there = [t for t in taints(s) if t["key"] != key]
        patch_node(
            s, "node-0", {"spec": {"taints": [*there, {"key": key, "value": text, "effect": "NoSchedule"}]}}
        )
        return
    patch_node(s, "node-0", {"metadata": {f"{kind}s": {key: text}}}, actor=PERSON)


def take_off(s: Stage, kind: str, key: str) -> None:
    if kind == "taint":
        patch_node(s, "node-0", {"spec": {"taints": [t for t in taints(s) if t["key"] != key] or None}})
        return
    patch_node(s, "node-0", {"metadata": {f"{kind}s": {key: None}}})


@pytest.mark.parametrize(("system", "kind", "key", "text"), MARKS)
def test_a_node_that_another_remediator_has_claimed_is_left_alone_and_it_is_named(
    system: str, kind: str, key: str, text: str
) -> None:
    s = cast(count=1)
    put_claim(s, kind, key, text)
    before = s.node("node-0")
    s.fault("node-0")
    s.run(4)
    assert phase(s) is Phase.WAITING
    assert s.node("node-0") == before
    assert messages(s, "Held")[0].startswith(f"{DMA}: waiting: {system} holds node-0 ({kind} ")
    assert s.gate().slots == ()


@pytest.mark.parametrize("system", FIRST)
def test_a_claim_in_the_middle_stops_the_next_step_until_it_is_gone(system: str) -> None:
    _, kind, key, text = FIRST[system]
    s = draining()
    put_claim(s, kind, key, text)
    s.run(2)
    remove_pod(s)
    s.run(15)
    assert calls(s) == []
    assert marked(s) == ALL_MARKS
    assert f"{system} holds node-0" in messages(s, "Held")[0]
    take_off(s, kind, key[:-1] + "x" if key.endswith("/*") else key)
    s.run(5)
    assert calls(s) == [("replace", "m-0")]


def test_a_claim_after_the_call_stops_no_proof() -> None:
    s = cast()
    s.fault("node-0")
    s.run(5)
    put_claim(s, "taint", "karpenter.sh/disrupted", "")
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.agent("node-9")
    s.run(260)
    assert phase(s) is Phase.RECOVERED
    assert the_record(s).replacement == "node-9"


def test_a_cordon_that_somebody_makes_their_own_holds_the_recovery_until_it_is_given_back() -> None:
    """Without our annotation the cordon is not ours to take off: the node would stay cordoned for ever."""
    s = cast(REBOOTS)
    stubborn_pod(s)
    s.fault("node-0")
    s.run(20)
    assert marked(s)
    owner = {"metadata": {"annotations": {"noderecovery.dev/cordoned-by": None}}}
    patch_node(s, "node-0", owner)
    remove_pod(s)
    s.run(60)
    assert calls(s) == []
    assert "somebody made the cordon of node-0 their own" in s.actors["agent of node-0"].sentences[-1]
    owner["metadata"]["annotations"] = {"noderecovery.dev/cordoned-by": "node-recovery"}
    patch_node(s, "node-0", owner)
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]


@pytest.mark.parametrize("seconds", [5, 300])
def test_what_came_to_a_node_that_was_uncordoned_after_its_drain_is_drained_as_well(seconds: int) -> None:
    """Else it would end with the machine, once that somebody has cordoned the node again."""
    s = draining()
    s.provider.preflight_error = Retry("its cloud does not answer")
    remove_pod(s)
    s.run(30)
    assert the_record(s).rung == 1, "it is drained"
    patch_node(s, "node-0", {"spec": {"unschedulable": None}})
    s.run(seconds)
    s.add_pod("came-since", "node-0", app="other")
    patch_node(s, "node-0", {"spec": {"unschedulable": True}})
    s.provider.preflight_error = None
    s.run(60)
    pods = s.store.request("GET", "/api/v1/pods").body["items"]
    assert (calls(s), [p["metadata"]["name"] for p in pods]) == ([("replace", "m-0")], [])
    assert [str(x) for x in the_record(s).ladder] == ["drain", "replace"]


def test_a_person_who_uncordons_while_a_call_is_put_off_holds_it_as_ever() -> None:
    """The cordon was theirs before. The provider has said from when it could succeed."""
    s = cast(policy_file("{do: reboot, within: 2h}, {do: replace, within: 30m}"))
    patch_node(s, "node-0", {"spec": {"unschedulable": True}})
    s.run(3)
    until = s.clock.now() + timedelta(minutes=40)
    s.provider.start_error = Retry("in its grace period", timedelta(seconds=60), not_before=until)
    s.fault("node-0")
    s.run(60)
    turned_away = calls(s)
    patch_node(s, "node-0", {"spec": {"unschedulable": None}})
    s.provider.start_error = None
    s.run(3000, step=2)
    assert calls(s) == turned_away
    assert not s.node("node-0")["spec"].get("unschedulable")
    assert "somebody uncordoned node-0" in s.actors["agent of node-0"].sentences[-1]


def handed_over_by_another() -> Stage:
    """The agent of node-0 died right after it had marked the Node, and another one handed the node over."""
    s = cast(REBOOTS, agents=2)
    s.concluder()
    dies_once_it_has_marked(s)
    s.fault("node-0")
    s.run(5)
    assert (s.actors["agent of node-0"].alive, the_record(s).marks) == (False, Marks())
    ready(s, "node-0", "Unknown")
    s.run(1800, step=5)
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)
    ready(s, "node-0", "True")
    return s


def boots_well(s: Stage) -> None:
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()


def shows_another_fault(s: Stage) -> None:
    s.fault("node-0", "DMA_ERROR", "HBM_UNCORRECTABLE_ERROR")


@pytest.mark.parametrize("then", [boots_well, shows_another_fault])
def test_marks_that_a_crash_kept_off_the_record_keep_the_node_in_a_persons_hands(
    then: Callable[[Stage], None],
) -> None:
    s = handed_over_by_another()
    then(s)
    new_process(s, "node-0")
    s.run(200)
    assert (phase(s), marked(s), calls(s)) == (Phase.HANDED_OVER, ALL_MARKS, [])
    assert the_record(s).marks == Marks(cordoned=True, tainted=True)
    judge(s, faulty=["node-0"])


# ---------------------------------------------------------------- ours, put back by somebody


def _put_back(s: Stage) -> None:
    """A controller that had read the Node during the recovery writes all its taints as they were then."""
    patch_node(s, "node-0", {"spec": {"taints": [*(taints(s) or ()), TAINT]}})


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("sources", ["", "sources: [npd]\n"])
def test_our_taint_that_somebody_puts_back_after_the_recovery_comes_off_again(
    sources: str, restarted: bool
) -> None:
    s = cast(REBOOTS + sources.encode())
    s.fault("node-0")
    s.run(5)
    rebooted_and_proved(s)
    s.run(60)
    assert marked(s) == NO_MARKS
    if restarted:
        new_process(s, "node-0")
        s.run(60)
    _put_back(s)
    s.run(120)
    assert marked(s) == NO_MARKS


TOLERATES = f"""{HEAD}limits: {{cooldown: 0s}}
rules:
  - name: device
    match: {{type: NeuronHealth}}
    remedy: [{{do: drain, within: 10m, then: force}}, {{do: reboot}}]
    probation: 2m
  - name: link
    match: {{type: GpuNvlink}}
    after: 5m
    remedy: [{{do: replace}}]
""".encode()


@pytest.mark.parametrize("booted", [False, True])
def test_so_it_does_where_a_fault_that_is_tolerated_ends_meanwhile(booted: bool) -> None:
    s = cast(TOLERATES)
    s.fault("node-0")
    s.run(5)
    rebooted_and_proved(s)
    s.run(60)
    s.pages["node-0"].body = npd_page() + plugin_page(True, 1)
    s.run(30)
    _put_back(s)
    s.run(30)
    assert (phase(s), marked(s)) == (Phase.SUSPECT, (False, True, False))
    if booted:
        boot(s, "node-0", "boot-3")
    s.pages["node-0"].body = npd_page() + plugin_page(False, 1)
    s.run(300)
    assert (phase(s), marked(s)) == (Phase.WITHDRAWN, NO_MARKS)
    assert not messages(s, "HandedOver", "node-0")


@pytest.mark.parametrize("on", [True, False])
def test_by_its_page_alone_an_agent_reads_its_node_for_that_no_longer_than_an_hour(on: bool) -> None:
    s = cast(REBOOTS + b"sources: [npd]\n")
    s.fault("node-0")
    s.run(5)
    rebooted_and_proved(s)
    s.run(60)
    if not on:
        new_process(s, "node-0", on=False)

    def reads(seconds: float) -> int:
        before = s.store.requests["get", "nodes"]
        s.run(seconds)
        return s.store.requests["get", "nodes"] - before

    assert reads(600) <= (21 if on else 3)
    s.run(3600)
    assert reads(600) == 0


def test_so_it_does_in_fleet_mode_though_the_controller_looks_after_the_node_no_more() -> None:
    s = booted_in_fleet_mode()
    renewed(s, NO_XID, UP, minutes=20)
    assert phase(s) is Phase.RECOVERED
    _put_back(s)
    s.run(30)
    assert not taints(s)


@pytest.mark.parametrize("status", [403, 500], ids=["denied", "the webhook is down"])
def test_marks_that_may_not_come_off_are_told_with_the_reason_and_come_off_once_they_may(status: int) -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(5)
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    why = "only SREs may uncordon"
    s.api.fail_next(
        lambda a: a.method == "PATCH" and a.path == "/api/v1/nodes/node-0",
        refused(status, "", why),
        times=10**6,
    )
    s.run(130)
    tries = s.api.pending
    s.run(1200, step=2)
    assert (phase(s), marked(s)) == (Phase.PROVING, ALL_MARKS)
    said = s.actors["agent of node-0"].sentences[-1]
    proved = "proved: node-0 was healthy for 2 min on its own page"
    assert said.startswith(f"{proved}; but our marks do not come off: ")
    assert said.endswith(why)
    assert any(why in message for message in messages(s, "Held"))
    assert messages(s, "Uncordoned") == []
    assert tries - s.api.pending < 150, "not in a loop"
    s.api.heal()
    s.run(35)
    assert (phase(s), marked(s), no_place(s)) == (Phase.RECOVERED, NO_MARKS, True)


def test_it_is_not_said_that_a_node_took_pods_where_another_mark_than_the_cordon_was_off() -> None:
    s = draining()
    s.provider.preflight_error = Retry("its cloud does not answer")
    remove_pod(s)
    s.run(30)
    owner = {"metadata": {"annotations": {"noderecovery.dev/cordoned-by": None}}}
    patch_node(s, "node-0", owner)
    s.run(20)
    owner["metadata"]["annotations"] = {"noderecovery.dev/cordoned-by": "node-recovery"}
    patch_node(s, "node-0", owner)
    s.provider.preflight_error = None
    s.run(60)
    (again,) = [x for x in record_sentences(s) if x.endswith("it is drained once more")]
    assert again == f"{DMA}: replace: somebody had taken marks off node-0: it is drained once more"
    assert calls(s) == [("replace", "m-0")]
