"""Power from outside, which no machine's own agent may switch, once it is dead; and orders called off."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, refused
from recovery_testkit.provider import FakeProvider
from recovery_testkit.stage import Stage, npd_page

from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.errors import Refused, Retry
from recovery.model import (
    Failed,
    Machine,
    Phase,
    Poll,
    Preflight,
    Reference,
    Running,
    Step,
    Unfinished,
    Unseen,
)
from recovery.provider.protocol import Started
from recovery.quick import replace
from tests.builders.policies import policy_file
from tests.stories.scenery import judge
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    boot,
    calls,
    cast,
    events_of,
    exclude,
    marked,
    no_place,
    patch_node,
    pause,
    phase,
    ready,
    record_sentences,
    remove_pod,
    resume,
    stubborn_pod,
    swap_record,
    the_record,
)
from tests.stories.test_conditions import NEURON, policy, renewed, writes

REBOOT = "{do: drain, within: 30m}, {do: reboot, within: 10m}"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
NEVER = b"drain: {pods: [{match: {labels: {role: coordinator}}, mode: never}]}\n"


class Powered(FakeProvider):
    """Machines behind controllers of their own, which only another machine may ask."""

    out_of_band = frozenset({Step.REBOOT})

    def __init__(self) -> None:
        super().__init__()
        self.power_off: str = ""
        self.unseen: Retry | None = None
        self.looked_at: Callable[[], None] = lambda: None

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        found = super().preflight(machine, action)
        self.looked_at()
        return found

    def down(self, machine: Machine) -> str | None:
        if self.unseen is not None:
            raise self.unseen
        return "its BMC says that the power is off" if machine.id == self.power_off else None


class OffAndOn(Powered):
    """Their controllers can only switch off, and on. ``orders``: what was asked of that of ``m-0``."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[str] = []
        self.accepted: Callable[[], None] = lambda: None

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> Started:
        super().start(machine, action, token, reference)
        self.orders.append("off")
        self.accepted()
        return replace(reference, data={**reference.data, "accepted": True})

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        if self.orders[-1] == "on":
            return Running("it is on; a new boot ID is the proof")
        known = reference.data.get("accepted")
        return Unfinished("it was switched off") if known else Unseen("it is off; by whom is not known")

    def finish(self, machine: Machine, reference: Reference) -> None:
        self.orders.append("on")


class Ordering(FakeProvider):
    """Leaves an order that somebody else carries out, when they like."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled: list[str] = []
        self.cancel_error: Exception | None = None
        self.failed = ""

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        if reference.action == Step.REPLACE:
            return super().poll(machine, reference)
        return Failed(self.failed) if self.failed else Running(f"{machine.id} waits for its reboot")

    def cancel(self, machine: Machine, reference: Reference) -> None:
        if self.cancel_error is not None:
            raise self.cancel_error
        self.cancelled.append(machine.id)


def powered(remedy: str = REBOOT, *, concluder: bool = True, provider: Powered | None = None) -> Stage:
    s = cast(policy_file(remedy), provider=provider or Powered())
    if concluder:
        s.concluder()
    return s


def dies(s: Stage, node: str = "node-0") -> None:
    """The machine hangs: its agent and its kubelet are silent."""
    for actor in s.actors.values():
        if actor.node == node:
            s.kill(actor)
    s.store.stop_kubelet(node)
    ready(s, node, "Unknown")


def draining(s: Stage) -> None:
    stubborn_pod(s)
    s.fault("node-0")
    s.run(6)
    assert (phase(s), the_record(s).rung) == (Phase.RECOVERING, 0)


def taints(s: Stage) -> set[str]:
    return {t["key"] for t in s.node("node-0")["spec"].get("taints") or []}


# ---------------------------------------------------------------- from outside


def test_a_living_node_is_never_power_cycled_by_its_own_agent_but_drained_and_handed_over() -> None:
    s = powered()
    s.fault("node-0")
    s.run(6)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [], ALL_MARKS)
    never = (
        "reboot of node-0 is never asked for by the node's own agent, only once that is dead: a person has"
    )
    assert never in the_record(s).sentence


def controlled(match: str = "{}", provider: Powered | None = None) -> Stage:
    s = Stage(policy(match, REBOOT))
    s.provider = provider or Powered()
    s.nodes(4)
    s.fleet()
    s.run(5)
    return s


def test_the_controller_of_all_nodes_asks_for_it_once_a_living_node_is_drained() -> None:
    s = controlled()
    stubborn_pod(s)
    writes(s, NEURON)
    s.run(60)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, []), "its pod is still there"
    remove_pod(s)
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    renewed(s, 6, ("NeuronHealth", "False", "NeuronHasNoError"))
    assert (phase(s), marked(s), no_place(s)) == (Phase.RECOVERED, NO_MARKS, True)
    assert calls(s) == [("reboot", "m-0")]
    judge(s, faulty=["node-0"])


def test_the_controller_gives_up_the_pods_of_a_dead_machine_that_is_down_and_has_its_power_cycled() -> None:
    s = controlled("{type: Ready}")
    stubborn_pod(s)
    dies(s)
    powered_off(s)
    s.run(30)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, []), "its pod is evicted first"
    stuck(s)
    s.run(60)
    assert OUT_OF_SERVICE in taints(s)
    given_up(s)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    ready(s, "node-0", "True")
    s.store.start_kubelet("node-0")
    s.run(5 * 60, step=2)

    assert (phase(s), marked(s), no_place(s)) == (Phase.RECOVERED, NO_MARKS, True)
    assert (taints(s), calls(s)) == (set(), [("reboot", "m-0")])
    judge(s, faulty=["node-0"])


SLOWLY = "{do: drain, within: 60m, then: force}, {do: reboot, within: 10m}"


@pytest.mark.parametrize("dead", [SLOWLY, "{do: cordon}", ""], ids=["reboots", "cordons", "no rule"])
def test_a_machine_that_died_in_its_drain_is_reset_by_the_rule_for_dead_nodes_where_its_devices_say_no_more(
    dead: str,
) -> None:
    rule = f"  - name: dead\n    match: {{type: Ready}}\n    after: 1m\n    remedy: [{dead}]\n"
    s = Stage(policy("{type: NeuronHealth}", SLOWLY) + (rule if dead else "").encode())
    s.provider = Powered()
    s.nodes(4)
    s.fleet()
    s.run(5)
    stubborn_pod(s)
    writes(s, NEURON)
    s.run(60)
    s.store.stop_kubelet("node-0")
    writes(s, ("Ready", "Unknown", "NodeStatusUnknown"))
    s.run(40 * 60, step=5)
    remove_pod(s)
    s.run(60)
    if dead == SLOWLY:
        assert calls(s) == [("reboot", "m-0")]
        return
    s.run(11 * 60, step=5)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    assert "could not be asked for within 10 min: NeuronHealth is True, but was" in the_record(s).sentence


@pytest.mark.parametrize("status", [500, 409])
@pytest.mark.parametrize("mode", ["controller", "concluder"])
def test_a_machine_is_switched_on_again_also_where_it_could_not_be_written_that_it_was_switched_off(
    mode: str, status: int
) -> None:
    provider = OffAndOn()
    s = controlled(provider=provider) if mode == "controller" else powered(provider=provider)
    provider.accepted = lambda: s.api.fail_next(_writes_record, refused(status, "Conflict"))
    if mode == "controller":
        writes(s, NEURON)
    else:
        draining(s)
        dies(s)
    s.run(12 * 60, step=2)
    assert provider.orders == ["off", "on"]
    assert "reboot of m-0 was accepted by fake" in record_sentences(s)


def _writes_record(asked: Asked) -> bool:
    return asked.method == "PUT" and "/noderecoveries/" in asked.path


def test_a_living_node_whose_bmc_never_answers_is_a_persons_once_its_reboot_has_had_its_time() -> None:
    s = controlled()
    s.provider.preflight_error = Retry("its BMC did not answer")
    renewed(s, 9, NEURON)
    assert (phase(s), marked(s)) == (Phase.WAITING, NO_MARKS)
    renewed(s, 3, NEURON)
    assert (phase(s), calls(s), marked(s), no_place(s)) == (Phase.HANDED_OVER, [], NO_MARKS, True)
    late = "handed over to a person: reboot could not be asked for within 10 min: its BMC did not answer"
    assert the_record(s).sentence == late
    judge(s, faulty=["node-0"])


def test_the_time_in_which_nobody_asked_its_bmc_is_none_in_which_it_did_not_answer() -> None:
    s = controlled()
    s.provider.preflight_error = Retry("its BMC did not answer")
    renewed(s, 1, NEURON)
    pause(s)
    renewed(s, 30, NEURON)
    resume(s)
    renewed(s, 5, NEURON)
    assert phase(s) is Phase.WAITING
    s.provider.preflight_error = None
    renewed(s, 2, NEURON)
    assert calls(s) == [("reboot", "m-0")]


def test_a_dead_machine_whose_bmc_does_not_answer_waits_until_it_has_power_again() -> None:
    """So many in a rack would else be a person's, each to be released."""
    s = controlled("{type: Ready}")
    s.provider.preflight_error = Retry("its BMC did not answer")
    dies(s)
    s.run(60 * 60, step=5)
    assert (phase(s), calls(s)) == (Phase.WAITING, [])
    s.provider.preflight_error = None
    s.run(3 * 60, step=2)
    assert calls(s) == [("reboot", "m-0")]


def test_another_leader_asks_no_bmc_again_for_what_the_one_before_it_asked() -> None:
    s = controlled()
    writes(s, NEURON)
    s.run(30)
    assert calls(s) == [("reboot", "m-0")]
    s.kill(s.actors["controller"])
    s.fleet("another", place="another")
    s.run(5 * 60, step=2)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [("reboot", "m-0")])
    boot(s, "node-0")
    renewed(s, 6, ("NeuronHealth", "False", "NeuronHasNoError"))
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])
    judge(s, faulty=["node-0"])


def test_a_node_that_hangs_in_its_drain_is_power_cycled_from_outside_once_it_is_dead_and_proves_itself() -> (
    None
):
    s = powered()
    draining(s)
    dies(s)
    s.run(5 * 60)
    assert calls(s) == [], "not before it is surely dead"
    s.run(5 * 60)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    ready(s, "node-0", "True")
    s.store.start_kubelet("node-0")
    s.pages["node-0"].body = npd_page()
    s.agent("node-0", name="its agent after the boot", place="pod-of-node-0", alone=True)
    s.run(5 * 60)
    assert (phase(s), marked(s), no_place(s)) == (Phase.RECOVERED, NO_MARKS, True)
    judge(s, faulty=["node-0"])


def test_no_other_nodes_agent_starts_it_and_none_takes_the_record_from_the_concluder() -> None:
    s = powered(concluder=False)
    draining(s)
    dies(s)
    s.run(15 * 60, step=2)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [])
    s.concluder()
    s.run(8 * 60, step=2)
    assert calls(s) == [("reboot", "m-0")]


def test_without_a_concluder_it_is_a_persons_in_the_end() -> None:
    s = powered("{do: drain, within: 5m}, {do: reboot, within: 10m}", concluder=False)
    draining(s)
    dies(s)
    s.run(45 * 60, step=5)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])


def test_a_node_that_is_ready_though_its_agent_is_gone_is_not_power_cycled() -> None:
    s = powered("{do: drain, within: 5m}, {do: reboot, within: 10m}")
    draining(s)
    s.kill(s.actors["agent of node-0"])
    s.run(30 * 60, step=5)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])


def test_a_pause_holds_a_power_cycle_from_outside_too() -> None:
    s = powered()
    draining(s)
    dies(s)
    pause(s)
    s.run(12 * 60, step=2)
    assert (phase(s), the_record(s).rung, calls(s)) == (Phase.RECOVERING, 0, [])
    resume(s)
    s.run(60)
    assert calls(s) == [("reboot", "m-0")]


def test_a_pause_in_the_last_moment_holds_it_too() -> None:
    s = powered()
    assert isinstance(s.provider, Powered)
    s.provider.looked_at = lambda: pause(s)
    draining(s)
    dies(s)
    s.run(12 * 60, step=2)
    assert (phase(s), the_record(s).rung, calls(s)) == (Phase.RECOVERING, 1, [])


def test_a_node_that_is_ready_again_in_the_last_moment_is_not_power_cycled() -> None:
    s = powered()
    assert isinstance(s.provider, Powered)
    s.provider.looked_at = lambda: ready(s, "node-0", "True")
    draining(s)
    dies(s)
    s.run(12 * 60, step=2)
    assert calls(s) == []


def _agents_list_of_pods(asked: Asked) -> bool:
    return asked.path == "/api/v1/pods" and asked.user_agent != "concluder"


def test_the_power_is_not_switched_under_a_pod_that_may_never_go() -> None:
    """Its agent could not list the pods, and was then cut off together with the kubelet."""
    s = cast(policy_file(REBOOT) + NEVER, provider=Powered())
    s.concluder()
    s.add_pod("coordinator", "node-0", role="coordinator")
    s.api.fail_next(_agents_list_of_pods, refused(500), times=99)
    s.fault("node-0")
    s.run(6)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    dies(s)
    s.run(12 * 60, step=2)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [])
    assert "no reboot is asked for: default/coordinator may never be evicted (drain.pods[0] of the " in (
        the_record(s).sentence
    )


@pytest.mark.parametrize("pods", ["others", "unknown"])
def test_where_pods_may_never_go_the_power_is_switched_only_if_none_of_them_is_there(pods: str) -> None:
    s = cast(policy_file(REBOOT) + NEVER, provider=Powered())
    s.concluder()
    draining(s)
    dies(s)
    if pods == "unknown":
        s.api.fail_next(lambda a: a.path == "/api/v1/pods", refused(403, "Forbidden"), times=10**6)
    s.run(32 * 60, step=3)
    assert phase(s) is Phase.HANDED_OVER
    assert calls(s) == ([] if pods == "unknown" else [("reboot", "m-0")])


def test_the_second_time_a_node_hangs_it_is_left_to_the_concluder_as_the_first_time() -> None:
    s = powered("{do: drain, within: 5m}, {do: reboot, within: 10m}")
    draining(s)
    dies(s)
    s.run(10 * 60, step=2)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    ready(s, "node-0", "True")
    s.store.start_kubelet("node-0")
    remove_pod(s)
    s.pages["node-0"].body = npd_page()
    s.agent("node-0", name="its agent after the boot", place="pod-of-node-0", alone=True)
    s.run(20 * 60, step=5)
    assert phase(s) is Phase.RECOVERED
    s.kill(s.actors["concluder"])
    s.add_pod("train", "node-0")
    s.fault("node-0", "HBM_UNCORRECTABLE_ERROR")
    s.run(6)
    assert phase(s) is Phase.RECOVERING
    dies(s)
    s.run(18 * 60, step=2)
    assert phase(s) is Phase.RECOVERING, "no agent has taken it, and handed it over"


def test_a_power_cycle_that_brings_nothing_back_is_a_persons_and_is_not_repeated() -> None:
    s = powered()
    draining(s)
    dies(s)
    s.run(30 * 60, step=2)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [("reboot", "m-0")])
    judge(s, faulty=["node-0"])


# ---------------------------------------------------------------- out of service


def stuck(s: Stage) -> None:
    """The pod is being deleted, and no kubelet reports its end."""
    s.store.request("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep")
    s.store.request("DELETE", "/api/v1/namespaces/default/pods/train")
    s.run(30)
    assert s.store.request("GET", "/api/v1/namespaces/default/pods/train").status == 200


def powered_off(s: Stage) -> None:
    assert isinstance(s.provider, Powered)
    s.provider.power_off = "m-0"


def tainted(s: Stage) -> int:
    """How often the taint was put on."""
    with_it = [
        any(t["key"] == OUT_OF_SERVICE for t in w.object["spec"].get("taints") or [])
        for w in s.store.history
        if w.path == "/api/v1/nodes/node-0"
    ]
    return sum(1 for before, after in pairwise([False, *with_it]) if after and not before)


def given_up(s: Stage) -> None:
    """What the pod garbage collector does on a node with the taint."""
    if OUT_OF_SERVICE in taints(s):
        body = {"gracePeriodSeconds": 0}
        s.store.request("DELETE", "/api/v1/namespaces/default/pods/train", body=body)


def test_stuck_pods_of_a_machine_that_is_down_are_given_up_and_the_taint_comes_off_again() -> None:
    s = powered()
    draining(s)
    dies(s)
    stuck(s)
    s.run(120)
    assert OUT_OF_SERVICE not in taints(s), "nothing proves that it is down"
    powered_off(s)
    s.run(90)
    assert OUT_OF_SERVICE in taints(s)
    assert the_record(s).marks.out_of_service
    (taint,) = [t for t in s.node("node-0")["spec"]["taints"] if t["key"] == OUT_OF_SERVICE]
    assert (taint["value"], taint["effect"]) == ("nodeshutdown", "NoExecute")
    assert tainted(s) == 1, "put on once, and not off and on again"
    given_up(s)
    s.run(10)
    assert OUT_OF_SERVICE not in taints(s)
    assert not the_record(s).marks.out_of_service


@pytest.mark.parametrize("why", ["power is on", "the BMC does not answer", "it is Ready"])
def test_without_proof_that_the_machine_is_down_nothing_is_given_up(why: str) -> None:
    s = powered()
    draining(s)
    dies(s)
    stuck(s)
    assert isinstance(s.provider, Powered)
    if why == "the BMC does not answer":
        powered_off(s)
        s.provider.unseen = Retry("the BMC did not answer")
    if why == "it is Ready":
        powered_off(s)
        ready(s, "node-0", "True")
    s.run(4 * 60)
    assert OUT_OF_SERVICE not in taints(s)


@pytest.mark.parametrize("why", ["paused", "excluded"])
def test_where_somebody_says_hands_off_no_pods_are_given_up(why: str) -> None:
    s = powered()
    draining(s)
    dies(s)
    stuck(s)
    pause(s) if why == "paused" else exclude(s)
    powered_off(s)
    s.run(120)
    assert OUT_OF_SERVICE not in taints(s)


@pytest.mark.parametrize("seconds", [10, 300])
def test_a_new_leader_takes_off_no_taint_before_its_first_look_has_its_answer(seconds: int) -> None:
    """A BMC takes seconds for it. One that gives none for a minute proves nothing any more."""
    s = controlled("{type: Ready}")
    stubborn_pod(s)
    dies(s)
    powered_off(s)
    s.run(30)
    s.provider.preflight_error = Retry("it is busy")
    stuck(s)
    s.run(60)
    assert (OUT_OF_SERVICE in taints(s), tainted(s)) == (True, 1)
    s.kill(s.actors["controller"])
    assert isinstance(s.provider, Powered)
    s.provider.unseen = Retry("its BMC was asked, and has not answered yet")
    s.fleet("another", place="another")
    s.run(20 + seconds)
    assert (OUT_OF_SERVICE in taints(s)) == (seconds == 10)
    s.provider.unseen = None
    s.run(300, step=2)
    assert (OUT_OF_SERVICE in taints(s), tainted(s)) == (True, 1 if seconds == 10 else 2)


def test_a_taint_that_may_not_be_set_holds_up_nothing() -> None:
    s = powered()
    s.api.fail_next(
        lambda a: a.method == "PATCH" and a.path == "/api/v1/nodes/node-0" and a.user_agent == "concluder",
        refused(403, "Forbidden"),
        times=10**6,
    )
    draining(s)
    dies(s)
    stuck(s)
    powered_off(s)
    s.run(10 * 60, step=2)
    assert (OUT_OF_SERVICE in taints(s), calls(s)) == (False, [("reboot", "m-0")])


def test_a_taint_that_may_not_be_taken_off_is_not_tried_in_a_loop() -> None:
    s = powered()
    draining(s)
    dies(s)
    stuck(s)
    powered_off(s)
    s.run(90)
    assert OUT_OF_SERVICE in taints(s)
    asked: list[str] = []

    def patches(a: Asked) -> bool:
        found = a.method == "PATCH" and a.path == "/api/v1/nodes/node-0"
        asked.extend([a.user_agent] if found else [])
        return found

    s.api.fail_next(patches, refused(403, "Forbidden"), times=10**6)
    given_up(s)
    s.run(60)
    assert 1 <= len(asked) < 40


def test_no_pods_are_given_up_on_another_machine_under_the_nodes_name() -> None:
    s = powered()
    draining(s)
    dies(s)
    stuck(s)
    s.delete_node("node-0")
    s.provider.groups["workers"].in_service.append("m-9")
    s.register("node-0", "m-9")
    ready(s, "node-0", "Unknown")
    assert isinstance(s.provider, Powered)
    s.provider.power_off = "m-9"
    s.run(90)
    assert tainted(s) == 0
    assert phase(s) is Phase.SUPERSEDED


def test_a_machine_that_is_off_for_the_moment_of_its_power_cycle_is_not_taken_for_down() -> None:
    s = powered()
    draining(s)
    dies(s)
    stuck(s)
    s.run(10 * 60)
    assert calls(s) == [("reboot", "m-0")]
    powered_off(s)
    s.run(60)
    assert OUT_OF_SERVICE not in taints(s)


def test_a_persons_out_of_service_taint_is_never_taken_off() -> None:
    s = powered()
    draining(s)
    theirs = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
    old: list[dict[str, Any]] = s.node("node-0")["spec"]["taints"]
    patch_node(s, "node-0", {"spec": {"taints": [*old, theirs]}})
    dies(s)
    stuck(s)
    powered_off(s)
    writes = len(s.store.history)
    s.run(90)
    assert len(s.store.history) - writes < 60, "and it is not tried in a loop"
    given_up(s)
    s.run(60)
    assert OUT_OF_SERVICE in taints(s)
    s.run(10 * 60, step=2)
    assert calls(s) == [("reboot", "m-0")], "it holds up nothing"


def test_a_machine_that_is_up_again_loses_the_taint_by_its_own_agent() -> None:
    s = powered()
    draining(s)
    dies(s)
    stuck(s)
    powered_off(s)
    s.run(90)
    assert OUT_OF_SERVICE in taints(s)
    s.kill(s.actors["concluder"])
    ready(s, "node-0", "True")
    s.run(61)
    s.agent("node-0", name="its agent after the boot", place="pod-of-node-0", alone=True)
    s.turns(limit=1)
    assert (OUT_OF_SERVICE in taints(s), phase(s)) == (False, Phase.RECOVERING), "the first thing it does"


def test_pods_that_are_not_given_up_hold_nothing_up_and_the_taint_goes_when_the_machine_is_back() -> None:
    s = powered("{do: drain, within: 5m}")
    draining(s)
    dies(s)
    stuck(s)
    powered_off(s)
    s.run(25 * 60, step=2)
    assert (phase(s), no_place(s)) == (Phase.HANDED_OVER, True)
    assert OUT_OF_SERVICE in taints(s), "it is down, and they are stuck: what is proved stays so"
    s.kill(s.actors["concluder"])
    ready(s, "node-0", "True")
    s.agent("node-0", name="its agent after the boot", place="pod-of-node-0", alone=True)
    s.run(10)
    assert OUT_OF_SERVICE not in taints(s)
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS), "the rest is a person's"


def test_what_is_given_up_stays_so_in_a_persons_hands_though_a_controller_looks_after_the_node() -> None:
    s = controlled("{type: Ready}")
    stubborn_pod(s)
    dies(s)
    powered_off(s)
    s.run(30)
    stuck(s)
    s.run(20 * 60, step=2)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [("reboot", "m-0")])
    assert (OUT_OF_SERVICE in taints(s), tainted(s)) == (True, 1)
    ready(s, "node-0", "True")
    s.store.start_kubelet("node-0")
    s.run(30)
    assert (OUT_OF_SERVICE in taints(s), phase(s), marked(s)) == (False, Phase.HANDED_OVER, ALL_MARKS)


# ---------------------------------------------------------------- called off


def ordering(remedy: str = "{do: reboot, within: 5m}, {do: replace, within: 30m}") -> tuple[Stage, Ordering]:
    provider = Ordering()
    s = cast(policy_file(remedy), provider=provider)
    s.fault("node-0")
    s.run(5)
    assert calls(s) == [("reboot", "m-0")]
    return s, provider


def test_an_order_that_nobody_carried_out_in_time_is_called_off_before_the_next_step() -> None:
    s, provider = ordering()
    s.run(290)
    assert provider.cancelled == []
    s.run(15)
    assert provider.cancelled == ["m-0"]
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
    assert events_of(the_record(s)).index("calledOff") < events_of(the_record(s)).index("rung")


def test_an_order_that_failed_is_called_off_too() -> None:
    s, provider = ordering()
    provider.failed = "its host says that it cannot"
    s.run(5)
    assert provider.cancelled == ["m-0"]
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (Refused("it is on another node"), "it is on another node"),
        (Retry("no answer"), "no answer"),
        (KeyError("a bug"), "provider fake failed on a bug, see the log (KeyError)"),
    ],
)
def test_an_order_that_cannot_be_called_off_is_said_and_holds_nothing_up_for_ever(
    error: Exception, why: str
) -> None:
    s, provider = ordering("{do: reboot, within: 5m}")
    provider.cancel_error = error
    s.run(15 * 60)
    assert phase(s) is Phase.HANDED_OVER
    (said,) = [x.sentence for x in the_record(s).history if x.event == "calledOff"]
    assert said == f"reboot of m-0 could not be called off, and may still come: {why}"


def test_an_order_on_a_node_that_a_person_releases_is_called_off() -> None:
    s, provider = ordering()
    swap_record(s, close(the_record(s), s.clock.now(), Event.RELEASED, "released by ada"))
    s.run(3)
    assert provider.cancelled == ["m-0"]
    assert (phase(s), the_record(s).sentence) == (Phase.RELEASED, "released by ada")
    s.run(60)
    assert provider.cancelled == ["m-0"]


def test_an_order_on_a_node_that_has_booted_since_is_nobodys_to_call_off() -> None:
    s, provider = ordering()
    s.kill(s.actors["agent of node-0"])
    swap_record(s, close(the_record(s), s.clock.now(), Event.RELEASED, "released by ada"))
    boot(s, "node-0")
    s.agent("node-0", name="its agent after the boot", place="pod-of-node-0", alone=True)
    s.run(10)
    assert provider.cancelled == []


def test_an_order_that_was_carried_out_is_not_called_off_by_a_later_hand_over() -> None:
    s, provider = ordering("{do: reboot, within: 5m}")
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(20)
    s.fault("node-0", "HBM_UNCORRECTABLE_ERROR")
    s.run(10)
    assert provider.cancelled == []
    assert the_record(s).sentence.startswith("handed over")


def test_an_order_that_was_carried_out_is_not_called_off() -> None:
    s, provider = ordering()
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(130)
    assert (phase(s), provider.cancelled) == (Phase.RECOVERED, [])
