"""One controller for the whole fleet: no agent on any node, the same records, gate and laws."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import pytest
from recovery_testkit.kubefaults import Asked, lost_request, refused, throttled
from recovery_testkit.provider import FakeProvider
from recovery_testkit.stage import FleetActor, Stage

from recovery.agent.cycle import Agent
from recovery.agent.fleet.controller import AT_REST
from recovery.agent.fleet.leader import LEASE
from recovery.agent.fleet.sources import Says
from recovery.decide.decision import Decision
from recovery.errors import ApiUnavailable
from recovery.kube.cluster import Cluster
from recovery.kube.transport import Streams
from recovery.model import Machine, NodeView, Phase, Preflight, Step
from recovery.report.own_view import View
from tests.builders.faults import DMA
from tests.builders.objects import budget_object, pod_object
from tests.stories.console import Terminal
from tests.stories.scenery import (
    GATE,
    RECORDS,
    REPORTS,
    Cloud,
    Reaper,
    change_gate,
    judge,
    pass_time,
    settled,
    slots,
    to_the_end,
)
from tests.stories.scenes import (
    ALL_MARKS,
    MERGE,
    NO_MARKS,
    PERSON,
    boot,
    calls,
    exclude,
    marked,
    messages,
    pause,
    phase,
    ready,
    record_sentences,
    release_by_command,
    remove_pod,
    resume,
    sayings,
    stubborn_pod,
    the_record,
    value,
)
from tests.stories.test_conditions import (
    COUNT,
    COUNT_GOOD,
    EKS,
    EKS_GOOD,
    NEURON,
    policy,
    renewed,
    writes,
)
from tests.stories.test_marks_of_others import put, take_off

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
DEAD = policy("{type: Ready}", "{do: drain, within: 2m, then: force}, {do: replace}")


class Group(Cloud):
    """An Auto Scaling group whose new machines have no agent."""

    def _join(self, group: str, machine: str) -> None:
        self.stage.register(machine.replace("m-", "node-"), machine, group)


def fleet(text: bytes | None = None, count: int = 4, replicas: int = 1) -> tuple[Stage, Group]:
    s = Stage(text or policy())
    s.nodes(count)
    for i in range(replicas):
        s.fleet(f"controller-{i}")
    s.run(5)
    return s, Group(s)


def leaders(s: Stage) -> list[str]:
    return [
        a.name for a in s.actors.values() if isinstance(a, FleetActor) and a.alive and a.replica.leader.leads
    ]


@pytest.mark.parametrize("condition", [NEURON, EKS], ids=["NPD's log rule", "EKS's agent"])
def test_a_condition_ends_in_a_replacement_without_an_agent_on_any_node(
    condition: tuple[str, str, str],
) -> None:
    s, cloud = fleet()
    writes(s, condition)
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert phase(s) is Phase.RECOVERED
    judge(s)


@pytest.mark.parametrize("source", ["autopilot", "aznhc", "konduktor"])
def test_a_replacement_is_not_proved_while_a_mark_is_on_it_whose_record_was_deleted(source: str) -> None:
    chosen = policy(f"{{source: {source}}}").replace(b"[conditions]", f"[{source}]".encode())
    s, cloud = fleet(chosen)
    put(s, source, "node-0")
    s.run(5)
    pass_time(s, 120, cloud, until=lambda: the_record(s).phase is Phase.PROVING)
    new = the_record(s).replacement_machine.replace("m-", "node-")
    pass_time(s, 60, cloud, until=lambda: the_record(s).replacement == new)
    put(s, source, new)
    pass_time(s, 10, until=lambda: s.record(new) is not None, step=0.1)
    s.store.request("DELETE", f"{RECORDS}/{new}", user_agent=PERSON)
    pass_time(s, 300, cloud)
    assert phase(s) is Phase.PROVING
    take_off(s, source, new)
    to_the_end(s, cloud)
    assert phase(s) is Phase.RECOVERED


def test_a_replacement_is_not_proved_while_a_condition_on_it_states_what_a_rule_treats() -> None:
    """No record names it: somebody deleted that, or the one of this name is about the machine before."""
    s, cloud = fleet()
    writes(s, EKS)
    s.run(5)
    pass_time(s, 120, cloud, until=lambda: the_record(s).phase is Phase.PROVING)
    new = the_record(s).replacement_machine.replace("m-", "node-")
    pass_time(s, 60, cloud, until=lambda: the_record(s).replacement == new)
    writes(s, EKS, node=new)
    pass_time(s, 10, until=lambda: s.record(new) is not None, step=0.1)
    s.store.request("DELETE", f"{RECORDS}/{new}", user_agent=PERSON)
    pass_time(s, 300, cloud)
    assert phase(s) is Phase.PROVING


def test_of_two_new_machines_of_which_the_first_dies_before_it_joins_the_second_is_proved() -> None:
    s, cloud = fleet()
    cloud.joins_after = 60.0
    writes(s, EKS)
    s.run(5)
    pass_time(s, 60, cloud, until=lambda: the_record(s).replacement_machine == "m-100")
    cloud._joining.clear()
    cloud._end("workers", "m-100", s.clock.monotonic())
    to_the_end(s, cloud)
    assert (phase(s), the_record(s).replacement_machine) == (Phase.RECOVERED, "m-101")
    judge(s)


def test_a_reboot_is_proved_by_the_new_boot_and_the_node_goes_back_to_service() -> None:
    s, cloud = fleet(policy(remedy="{do: drain, within: 10m, then: force}, {do: reboot}, {do: replace}"))
    writes(s, EKS)
    pass_time(s, 60, cloud)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    writes(s, EKS_GOOD)
    to_the_end(s, cloud)
    assert (phase(s), marked(s), calls(s)) == (Phase.RECOVERED, NO_MARKS, [("reboot", "m-0")])
    judge(s)


def asked_for(s: Stage, seconds: float) -> Counter[tuple[str, str]]:
    """How often each verb of each kind, in that time; of watches, that there were any."""
    before = s.store.requests.copy()
    s.run(seconds)
    asked = s.store.requests - before
    return Counter({key: 1 if key[0] == "watch" else n for key, n in asked.items()})


WATCHES = {("watch", kind): 1 for kind in ("nodes", "noderecoveries", "recoverygates")}


def test_a_boot_that_the_node_named_late_is_no_proof_of_a_reboot_that_was_asked_for_then() -> None:
    """A kubelet that cannot read its machine names no boot, and a Node that was made beforehand has none."""
    rule = policy(remedy="{do: drain, within: 2m, then: force}, {do: reboot, within: 5m}, {do: replace}")
    s, _ = fleet(rule.replace(b"match: {}", b"match: {}\n    after: 30s"))
    boot(s, "node-0", "")
    writes(s, EKS)
    s.run(10)
    assert the_record(s).boot_id == ""
    boot(s, "node-0", "m-0-boot-1")
    for _ in range(4):
        writes(s, EKS)
        pass_time(s, 60, step=5)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [("reboot", "m-0")])
    boot(s, "node-0", "m-0-boot-2")
    writes(s, EKS_GOOD)
    pass_time(s, 10, step=1)
    assert phase(s) is Phase.PROVING


@pytest.mark.parametrize("count", [3, 30])
def test_a_healthy_fleet_costs_its_watches_and_one_lease_however_large_it_is(count: int) -> None:
    s, _ = fleet(count=count)
    s.run(60)
    assert asked_for(s, 600) == {**WATCHES, ("update", "leases"): 150}


def test_so_does_one_in_which_all_has_been_recovered() -> None:
    s, cloud = fleet()
    writes(s, EKS)
    to_the_end(s, cloud)
    s.run(600)
    assert phase(s) is Phase.RECOVERED
    assert s.gate() is not None
    asked = asked_for(s, 600)
    gates = asked.pop(("get", "recoverygates"))
    assert asked == {**WATCHES, ("update", "leases"): 150}
    assert gates <= 2, "in five minutes one, for a watch may be wrong"


def test_what_others_write_on_gate_and_records_is_heard_of_though_they_are_not_read() -> None:
    s, _ = fleet(policy(remedy="{do: cordon}"))
    writes(s, EKS)
    s.run(60)
    assert phase(s) is Phase.HANDED_OVER
    pause(s)
    writes(s, EKS, node="node-1")
    s.run(30)
    assert phase(s, "node-1") is Phase.WAITING
    resume(s)
    s.run(30)
    assert phase(s, "node-1") is Phase.HANDED_OVER
    s.store.request("DELETE", GATE)
    s.run(15)
    assert s.gate() is not None, "one that somebody deleted is made anew"


def test_a_controller_that_may_not_watch_them_reads_them_as_before() -> None:
    """Its image is newer than its rights."""
    s, cloud = fleet()
    s.api.fail_next(
        lambda asked: asked.method == "WATCH" and "noderecovery.dev" in asked.path,
        refused(403, "Forbidden", "may not watch"),
        times=100_000,
    )
    writes(s, EKS)
    to_the_end(s, cloud)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("replace", "m-0")])
    assert asked_for(s, 120)["get", "recoverygates"] >= 10
    judge(s)


def test_a_cordon_reads_nothing_twice_and_its_hand_over_is_said_once_and_each_minute_after() -> None:
    s, _ = fleet(policy(remedy="{do: cordon}"), count=30)
    writes(s, EKS, node="node-9")  # the first of all makes the gate
    s.run(30)
    before = s.store.requests.copy()
    writes(s, EKS)
    s.run(3)
    asked = s.store.requests - before
    assert phase(s) is Phase.HANDED_OVER
    assert asked["create", "events"] == 5
    assert asked["get", "leases"] == 1  # whether a sidecar has it
    assert asked["get", "recoverygates"] == 0
    assert (asked["create", "noderecoveries"], asked["update", "noderecoveries"]) == (1, 2)
    assert sum(n for (verb, _), n in asked.items() if verb != "watch") <= 22
    s.run(62)
    assert (s.store.requests - before)["create", "events"] > 5


def phases_written(s: Stage, node: str = "node-0") -> list[str]:
    """In which phases its record was written, one after the other."""
    written = (w.object for w in s.store.history if w.path.startswith(RECORDS))
    return [x["status"]["phase"] for x in written if x["metadata"]["name"] == node]


def test_what_follows_at_once_is_written_with_it_and_told_as_before() -> None:
    s, _ = fleet(policy(remedy="{do: cordon}"))
    writes(s, EKS)
    s.run(5)
    assert phases_written(s) == ["waiting", "recovering", "handedOver"]
    said = ["suspect", "confirmed", "started", "handedOver"]
    assert [line.event for line in the_record(s).history] == said
    told = {reason for reason, _ in s.events("node-0")}
    assert told == {"FaultSeen", "Confirmed", "RecoveryStarted", "Cordoned", "HandedOver"}
    assert (the_record(s).marks.cordoned, marked(s)) == (True, ALL_MARKS)
    counted = s.actors["controller-0"].metrics.registry.get_sample_value(
        "node_recovery_recovery_duration_seconds_count", {"action": "cordon", "outcome": "handedOver"}
    )
    assert counted == 1
    judge(s)


def test_a_step_of_marks_alone_ends_with_the_patch_and_the_next_one_begins() -> None:
    s, cloud = fleet(policy(remedy="{do: cordon}, {do: replace}"))
    writes(s, EKS)
    to_the_end(s, cloud)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("replace", "m-0")])
    assert phases_written(s)[:3] == ["waiting", "recovering", "recovering"]
    judge(s)


def test_a_fault_that_is_tolerated_or_only_told_or_of_a_node_that_is_not_ready_begins_as_suspect() -> None:
    s, _ = fleet(policy(remedy="{do: cordon}").replace(b"    remedy", b"    after: 5s\n    remedy"))
    writes(s, EKS)
    s.run(30)
    assert phases_written(s)[:2] == ["suspect", "waiting"]
    s, _ = fleet(policy("{type: Ready}", "{do: cordon}"))
    ready(s, "node-0", "Unknown")
    s.run(30)
    assert phases_written(s)[:2] == ["suspect", "waiting"]
    s, _ = fleet(policy(remedy="{do: notify}"))
    writes(s, EKS)
    s.run(30)
    assert phases_written(s) == ["suspect", "handedOver"]
    judge(s)


def test_where_a_taint_is_refused_the_step_has_not_ended_with_it() -> None:
    s, _ = fleet(policy(remedy='{do: taint, key: example.com/sick, value: "true"}, {do: cordon}'))
    why = "admission: no such taint here"
    s.api.fail_next(lambda a: a.method == "PATCH" and a.path == "/api/v1/nodes/node-0", refused(403, "", why))
    writes(s, EKS)
    s.run(10)
    said = "node-0: the taint example.com/sick=true:NoSchedule was not set; the recovery goes on without it"
    assert any(told.startswith(said) for told in messages(s, "Cordoned"))
    assert phase(s) is Phase.HANDED_OVER
    assert the_record(s).marks.taints == ()
    assert any("but not example.com/sick=true:NoSchedule: " in line for line in record_sentences(s))
    judge(s)


def lists_of_pods(s: Stage) -> list[str | None]:
    """The ``resourceVersion`` of each list of a node's pods from now on: "0" is the API server's memory."""
    seen: list[str | None] = []

    def look(asked: Asked) -> bool:
        if asked.path == "/api/v1/pods" and asked.method == "GET":
            seen.append(asked.query.get("resourceVersion"))
        return False

    s.api.fail_next(look, lost_request)
    return seen


def test_what_runs_on_a_sick_node_is_asked_of_memory_and_what_is_evicted_is_not() -> None:
    s, _ = fleet(policy(remedy="{do: cordon}, {do: drain}"))
    stubborn_pod(s)
    seen = lists_of_pods(s)
    writes(s, EKS)
    s.run(5)
    assert seen[0] == "0"
    assert set(seen[1:]) == {None}


def test_that_no_sidecar_has_a_record_is_found_out_once_for_all_threads() -> None:
    """Those that look after nodes ask whose it is, and the one that sweeps over the records on the gate."""
    s, _ = fleet(policy(remedy="{do: cordon}"))
    writes(s, EKS)
    s.run(3)
    pause(s)
    before = s.store.requests.copy()
    writes(s, EKS, node="node-1")
    s.run(45)
    assert phase(s, "node-1") is Phase.WAITING
    assert (s.store.requests - before)["get", "leases"] == 1


@pytest.mark.parametrize("changed", [False, True], ids=["unchanged", "excluded meanwhile"])
def test_a_node_read_long_ago_is_cordoned_without_a_read_but_not_where_it_has_changed(
    monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    """The patch names the version, so the API server refuses it, though no watch has told of the change."""
    s = Stage(policy(remedy="{do: cordon}"))
    s.wrap_streams = Silent
    s.nodes(30)
    s.fleet()
    s.run(5)
    writes(s, EKS, node="node-9")
    s.run(30)
    pause(s)
    writes(s, EKS)
    s.run(30)
    assert (phase(s), marked(s)) == (Phase.WAITING, NO_MARKS)
    if changed:
        monkeypatch.setattr(Silent, "of", "/nodes")
        exclude(s)
    before = s.store.requests.copy()
    resume(s)
    s.run(30)
    asked = s.store.requests - before
    said = [reason for reason, _ in s.events("node-0")]
    if changed:
        assert ("RecoveryStarted" in said, "Cordoned" in said, phase(s)) == (True, False, Phase.WITHDRAWN)
    else:
        assert (phase(s), asked["get", "nodes"]) == (Phase.HANDED_OVER, 0)


def test_of_several_workers_that_ask_what_the_records_tell_one_lists_them() -> None:
    s, _ = fleet(policy(remedy="{do: cordon}"), count=30)
    writes(s, EKS, node="node-9")  # the first of all makes the gate
    s.run(30)
    listed: list[str] = []
    whole = Cluster.list_records

    def list_records(self: Cluster, selector: str = "") -> Iterator[dict[str, object]]:
        listed.append(selector)
        return whole(self, selector)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "list_records", list_records)
        writes(s, EKS, node="node-0")
        writes(s, EKS, node="node-4")  # another worker's
        s.run(1.5)
    assert (phase(s, "node-0"), phase(s, "node-4")) == (Phase.HANDED_OVER, Phase.HANDED_OVER)
    assert listed.count("") == 1


def test_a_node_whose_kubelet_died_is_replaced() -> None:
    s, cloud = fleet(DEAD)
    s.add_pod("train", "node-0")
    s.store.stop_kubelet("node-0")
    ready(s, "node-0", "Unknown")
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert phase(s) is Phase.RECOVERED
    judge(s)


def test_no_pod_is_evicted_by_a_node_read_long_ago_that_a_person_has_excluded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An eviction names no version of the Node, and no watch has told of the label."""
    s = Stage(policy(remedy="{do: drain, within: 30m}"))
    s.wrap_streams = Silent
    s.nodes(3)
    s.fleet()
    stubborn_pod(s)
    s.run(5)
    writes(s, EKS)
    s.run(5)
    assert phase(s) is Phase.RECOVERING
    pause(s)
    s.run(30)
    monkeypatch.setattr(Silent, "of", "/nodes")
    exclude(s)
    s.add_pod("web", "node-0", app="web")
    resume(s)
    s.run(30)
    assert s.node("node-0")["metadata"]["labels"]["noderecovery.dev/exclude"] == "true"
    assert s.store.request("GET", "/api/v1/namespaces/default/pods/web").status == 200


def test_a_drain_that_is_too_short_for_a_pod_is_told_once_as_its_eviction_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    s, cloud = fleet(policy(remedy="{do: drain, within: 2m, then: force}, {do: replace}"))
    for name in ("train", "later"):
        slow = {**pod_object(name, on="node-0"), "spec": {"nodeName": "node-0"}}
        s.store.load({**slow, "spec": {**slow["spec"], "terminationGracePeriodSeconds": 3600}})
    s.store.load(budget_object(minAvailable=1))  # so that they are asked for twice
    writes(s, EKS)
    with caplog.at_level("INFO"):
        to_the_end(s, cloud)
    (told,) = [r.getMessage() for r in caplog.records if "terminationGracePeriodSeconds" in r.getMessage()]
    assert (
        ", the drain has 2 min, but pod default/train may take 60 min to end "
        "(terminationGracePeriodSeconds): the drain is over before such a pod is [key=Evict]"
    ) in told.replace("default/later", "default/train")
    assert [x for x in messages(s, "Draining") if "terminationGracePeriodSeconds" in x]


def test_a_dead_node_that_comes_back_in_time_is_left_alone() -> None:
    s, cloud = fleet(DEAD.replace(b"    probation", b"    after: 5m\n    probation"))
    ready(s, "node-0", "Unknown")
    pass_time(s, 200, cloud)
    ready(s, "node-0", "True")
    to_the_end(s, cloud)
    assert (calls(s), phase(s), marked(s)) == ([], Phase.WITHDRAWN, NO_MARKS)


def test_a_new_machine_under_the_old_name_does_not_inherit_what_was_wrong_with_the_one_before() -> None:
    s, _ = fleet(policy(remedy="{do: cordon}"))
    writes(s, EKS)
    s.run(60)
    assert phase(s) is Phase.HANDED_OVER
    assert s.store.request("DELETE", "/api/v1/nodes/node-0").ok
    s.run(30)
    s.register("node-0", "m-9")  # nothing has written its condition yet
    s.run(120)
    assert (phase(s), marked(s)) == (Phase.SUPERSEDED, NO_MARKS)


def test_what_a_person_released_is_not_what_the_next_machine_of_that_name_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s, cloud = fleet(policy(remedy="{do: cordon}"))
    writes(s, EKS)
    s.run(60)
    released = Terminal(s, monkeypatch).run("release", "node-0", "--yes")
    assert released.code == 0
    s.run(120)
    assert phase(s) is Phase.RELEASED
    assert s.store.request("DELETE", "/api/v1/nodes/node-0").ok
    s.register("node-0", "m-9")  # before anybody has looked
    pass_time(s, 300, cloud)
    assert (phase(s), marked(s), calls(s)) == (Phase.RELEASED, NO_MARKS, [])


def test_a_node_that_names_the_boot_before_the_last_is_in_the_last_one() -> None:
    s, _ = fleet()
    boot(s, "node-0")
    s.run(5)
    boot(s, "node-0", "m-0-boot-1")  # etcd was restored, and its kubelet has not written yet
    s.run(5)
    writes(s, NEURON)
    s.run(1)
    record = s.record("node-0")
    assert record is not None
    assert record.boot_id == "m-0-boot-2"


def test_nothing_is_begun_while_nobody_sees_the_nodes() -> None:
    broken: list[bool] = []

    class Watches:
        def __init__(self, streams: Streams) -> None:
            self.streams = streams

        def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
            if broken:
                raise ApiUnavailable("the connection was reset")
            return self.streams.stream(path, query)

    s = Stage(policy().replace(b"    probation", b"    after: 4m\n    probation"))
    s.wrap_streams = Watches
    s.nodes(4)
    s.fleet()
    s.run(5)
    cloud = Group(s)
    writes(s, NEURON)
    s.run(60)
    broken.append(True)
    pass_time(s, 600, cloud)
    assert (phase(s), marked(s), calls(s)) == (Phase.SUSPECT, NO_MARKS, [])
    broken.clear()
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]


def test_a_controller_whose_watches_end_at_once_and_tell_nothing_says_that_it_does_not_see() -> None:
    """So does a proxy that knows no streams: nobody must take its silence for a fleet that is well."""

    class Proxy:
        def __init__(self, streams: Streams) -> None:
            self.streams = streams

        def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
            return iter(())

    s = Stage()
    s.wrap_streams = Proxy
    s.nodes(4)
    replica = s.fleet().replica
    s.run(60)
    assert (asked_for(s, 60)["get", "nodes"], replica.nodes.silent()) == (0, "")
    s.run(60)
    assert "the watch of Nodes has been silent" in replica.nodes.silent()
    assert not replica.nodes.in_sync


def test_of_two_replicas_one_leads_and_the_other_takes_its_place_within_twenty_seconds() -> None:
    s, cloud = fleet(replicas=2)
    (leader,) = leaders(s)
    s.kill(s.actors[leader])
    began = s.clock.monotonic()
    while leaders(s) == [leader] or not leaders(s):
        s.run(0.5, step=0.1)
        assert s.clock.monotonic() - began <= 18
    writes(s, NEURON)
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    judge(s)


def test_who_takes_over_looks_first_at_the_nodes_that_nobody_has_cordoned() -> None:
    """A thousand that wait for a person are not looked at before one that has just broken."""
    s, _ = fleet(policy(remedy="{do: cordon}"), replicas=2)
    writes(s, NEURON)
    s.run(5)
    assert phase(s) is Phase.HANDED_OVER
    s.kill(s.actors[leaders(s)[0]])
    writes(s, NEURON, node="node-3")
    s.run(20)
    (other,) = (a for a in s.actors.values() if isinstance(a, FleetActor) and a.alive)
    looked_at = [name for c in other.replica.controllers for name in c._agents]
    assert looked_at == ["node-3", "node-0"]


def test_a_replica_that_does_not_lead_is_not_kept_awake_by_news() -> None:
    s, _ = fleet(replicas=2)
    other = next(a for a in s.actors.values() if isinstance(a, FleetActor) and not a.replica.leader.leads)
    writes(s, NEURON)
    s.run(1)
    assert not any(c.woken.is_set() for c in other.replica.controllers)


def test_a_leader_may_be_killed_at_any_boundary_and_nothing_is_done_twice() -> None:
    seen = 0
    for at in range(40):
        for side in ("before", "after"):
            s = Stage(policy())
            s.nodes(3)
            reaper = Reaper(s, lambda actor: actor == "controller-0", at, side)
            s.fleet("controller-0")
            s.run(3)
            s.fleet("controller-1")
            cloud = Group(s)
            writes(s, NEURON)
            to_the_end(s, cloud)
            assert calls(s) == [("replace", "m-0")], (at, side, record_sentences(s))
            assert phase(s) is Phase.RECOVERED, (at, side)
            assert settled(s)
            judge(s)
            seen = max(seen, len(reaper.seen))
        if not reaper.fired:
            break
    assert seen > 10


def test_off_means_off_no_lease_either() -> None:
    s = Stage(policy())
    s.nodes(3)
    for name in ("controller-0", "controller-1"):
        s.fleet(name, on=False)
    s.run(5)
    writes(s, NEURON)
    s.run(300)
    written = [w.path for w in s.store.history if w.actor.startswith("controller")]
    assert written
    assert all(path.endswith("/events") or path.startswith(REPORTS) for path in written)
    assert calls(s) == []
    assert s.record("node-0") is None


def test_a_leader_whose_lease_another_has_calls_nothing_though_its_own_time_is_not_over() -> None:
    s, cloud = fleet(policy(remedy="{do: drain, within: 10m, then: force}, {do: replace}"))
    writes(s, NEURON)
    actor = next(a for a in s.actors.values() if isinstance(a, FleetActor))
    taken = {"spec": {"holderIdentity": "another"}}
    answer = s.store.request("PATCH", f"{LEASES}/{LEASE}", body=taken, content_type=MERGE, user_agent=PERSON)
    assert answer.status == 200, answer.body
    assert actor.replica.leader.leads
    assert not actor.replica.leader.still_leads()
    s.turns()
    assert calls(s) == []
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    judge(s)


def replicas_pods(s: Stage) -> None:
    labels = {"app.kubernetes.io/name": "node-recovery", "app.kubernetes.io/component": "fleet"}
    ours = [{"name": "node-recovery"}]
    for name in [a.name for a in s.actors.values() if isinstance(a, FleetActor)]:
        s.store.load(pod_object(name, on="infra", labels=labels, containers=ours))


def test_explain_asks_the_replica_that_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    s, _ = fleet(policy(remedy="{do: drain, within: 10m, then: force}, {do: replace}"), replicas=2)
    replicas_pods(s)
    writes(s, NEURON)
    s.run(5)
    terminal = Terminal(s, monkeypatch)
    said = terminal.run("explain", "node-0")
    assert said.code == 0
    assert "m-0 is being taken out of group workers" in said.out.splitlines()[0]
    assert "conditions" in said.out
    well = terminal.run("explain", "node-1")
    assert "healthy: nothing that is read says otherwise" in well.out
    (leader,) = leaders(s)
    s.kill(s.actors[leader])
    nobody = terminal.run("explain", "node-0")
    assert "this replica does not lead" in nobody.out


def test_explain_works_while_the_controller_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Stage(policy())
    s.nodes(3)
    s.fleet(on=False)
    s.run(5)
    replicas_pods(s)
    writes(s, NEURON)
    s.run(5)
    assert "would drain node-0; then replace" in Terminal(s, monkeypatch).run("explain", "node-0").out


# ---------------------------------------------------------------- from sidecars to the controller, and back

BOTH = policy().replace(b"[conditions]", b"[npd, conditions]")


@pytest.mark.parametrize("after", [2, 8, 15, 40])
def test_sidecars_may_be_taken_away_in_the_middle_of_a_recovery(after: int) -> None:
    s = Stage(BOTH)
    s.nodes(3)
    for node in ("node-0", "node-1", "node-2"):
        s.agent(node)
    s.run(3)
    cloud = Group(s)
    writes(s, NEURON)
    s.fault("node-0")
    pass_time(s, after, cloud, step=1)
    for actor in s.actors.values():
        s.kill(actor)
    s.fleet()
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert phase(s) is Phase.RECOVERED
    judge(s)


@pytest.mark.parametrize("after", [2, 4, 8])
def test_sidecars_may_come_in_the_middle_of_a_recovery_and_the_controller_stands_back(after: int) -> None:
    s, cloud = fleet(BOTH)
    s.add_pod("train", "node-0")
    writes(s, NEURON)
    s.fault("node-0")
    pass_time(s, after, cloud, step=1)
    s.agent("node-0")
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert phase(s) is Phase.RECOVERED
    judge(s)


def test_a_record_whose_sidecar_lives_is_that_ones_alone() -> None:
    s, cloud = fleet(BOTH)
    s.agent("node-0")
    s.run(5)
    s.fault("node-0")
    s.run(5)
    writes(s, NEURON)
    s.run(60)  # nobody replaces it: its sidecar lives on
    assert calls(s) == [("replace", "m-0")]
    written = {w.actor for w in s.store.history if "/noderecoveries" in w.path}
    assert written == {s.actors["agent of node-0"].name}
    to_the_end(s, cloud)
    judge(s)


# ---------------------------------------------------------------- correlated faults

LIMITS = b"{cooldown: 0s, budget: 10, brake: 100%, brakePer: {}, perGroup: {max: 50, within: 6h}}"
MANY = policy().replace(b"{cooldown: 0s}", LIMITS)


def racks(sick: int, count: int = 60) -> tuple[Stage, Group]:
    """Sixty nodes, of which the first five stand in one rack, and ``sick`` of those have a fault at once."""
    s = Stage(MANY)
    for i in range(count):
        s.add_node(f"node-{i}", f"m-{i}", rack="r7" if i < 5 else f"r{8 + i // 5}")
    s.fleet()
    s.run(5)
    for i in range(sick):
        writes(s, NEURON, node=f"node-{i}")
    return s, Group(s)


def test_a_fault_on_machines_of_one_rack_is_held_until_a_person_lets_it_go() -> None:
    s, cloud = racks(4)
    pass_time(s, 300, cloud)
    assert calls(s) == []
    said = " ".join(record_sentences(s, "node-3"))
    assert "4 of the 4 machines have rack=r7, as 5 of 60 do" in said
    assert "node-recovery approve NeuronHasError_DMA_ERROR lets it start" in said
    approve(s, DMA)
    to_the_end(s, cloud)
    assert sorted(calls(s)) == [("replace", f"m-{i}") for i in range(4)]
    judge(s)


def test_what_holds_a_rack_that_falls_one_after_the_other_is_on_its_records_before_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first had begun its drain before the others fell. It keeps the only slot, and is held as well."""
    s = Stage(MANY.replace(b"budget: 10", b"budget: 1"))
    for i in range(60):
        s.add_node(f"node-{i}", f"m-{i}", rack="r7" if i < 5 else f"r{8 + i // 5}")
    stubborn_pod(s)
    s.fleet()
    s.run(5)
    cloud = Group(s)
    for i in range(4):
        writes(s, NEURON, node=f"node-{i}")
        pass_time(s, 15, cloud, step=1)
    pass_time(s, 300, cloud)
    assert (slots(s), calls(s)) == (["node-0"], [])
    lines = Terminal(s, monkeypatch).run("status").out.splitlines()
    for i in range(4):
        line = next(x for x in lines if x.startswith(f"node-{i} "))
        assert f"{DMA} is held: {DMA} has one cause on many machines" in line
    approve(s, DMA)
    pass_time(s, 60, cloud)
    remove_pod(s)
    pass_time(s, 60, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert "goes on, as it is not held any more" in " ".join(record_sentences(s))


def test_who_lets_one_reason_go_lets_no_other_go_that_the_same_machine_has() -> None:
    """A rack falls with one fault. One of its machines has another fault as well, alone."""
    s, cloud = racks(0)
    writes(s, EKS, NEURON)
    for i in range(1, 4):
        writes(s, NEURON, node=f"node-{i}")
    pass_time(s, 60, cloud)
    said = s.actors["controller"].replica.view("node-0")  # type: ignore[union-attr]
    assert said.decision.reason.endswith(f"node-recovery approve {DMA} lets it start")
    approve(s, EKS[2])
    pass_time(s, 200, cloud)
    assert calls(s) == []
    approve(s, DMA)
    pass_time(s, 200, cloud)
    assert ("replace", "m-0") in calls(s)


def test_the_same_fault_on_machines_that_share_nothing_is_not_held() -> None:
    s = Stage(MANY)
    for i in range(60):
        s.add_node(f"node-{i}", f"m-{i}", rack=f"r{i % 12}")
    s.fleet()
    s.run(5)
    cloud = Group(s)
    for i in range(4):
        writes(s, NEURON, node=f"node-{i}")
    to_the_end(s, cloud)
    assert len(calls(s)) == 4


@pytest.mark.parametrize("population", [False, True], ids=["of all nodes", "of the accelerators"])
def test_what_all_accelerators_share_is_no_cause_where_the_policy_counts_them_alone(population: bool) -> None:
    """Five of twenty among sixty others: of all nodes few have what all of the twenty have."""
    wanted = b"population: {labels: {accelerator: gpu}}, " if population else b""
    s = Stage(MANY.replace(b"{cooldown: 0s,", b"{" + wanted + b"cooldown: 0s,"))
    for i in range(80):
        more = {"accelerator": "gpu"} if i < 20 else {}
        s.add_node(f"node-{i}", f"m-{i}", rack=f"r{i % 12}", **more)
    s.fleet()
    s.run(5)
    cloud = Group(s)
    for i in range(5):
        writes(s, NEURON, node=f"node-{i}")
    pass_time(s, 300, cloud)
    said = " ".join(line for i in range(5) for line in record_sentences(s, f"node-{i}"))
    assert ("have accelerator=gpu, as 20 of 80 do" in said) is not population
    assert bool(calls(s)) is population


def test_of_accelerators_alone_those_of_one_rack_are_held_as_well() -> None:
    s = Stage(MANY.replace(b"{cooldown: 0s,", b"{population: {labels: {accelerator: gpu}}, cooldown: 0s,"))
    for i in range(80):
        more = {"accelerator": "gpu"} if i < 60 else {}
        s.add_node(f"node-{i}", f"m-{i}", rack="r7" if i < 5 else f"r{8 + i // 5}", **more)
    s.fleet()
    s.run(5)
    for i in range(4):
        writes(s, NEURON, node=f"node-{i}")
    pass_time(s, 120, Group(s))
    assert calls(s) == []
    assert "4 of the 4 machines have rack=r7, as 5 of 60 do" in " ".join(record_sentences(s, "node-3"))


JOBSET = "jobset.sigs.k8s.io/jobset-name"


def job_on(count: int, sick: int, of: int = 60, **labels: str) -> tuple[Stage, Group]:
    """``of`` nodes that share nothing but one job. It runs on the first ``count``, and leaves a fault on the
    first ``sick`` of them."""
    s = Stage(MANY)
    for i in range(of):
        s.add_node(f"node-{i}", f"m-{i}", rack=f"r{i % 12}")
    for i in range(count):
        s.add_pod(f"worker-{i}", f"node-{i}", **{JOBSET: "llama", "batch.kubernetes.io/job-name": f"w-{i}"})
    s.fleet()
    s.run(5)
    for i in range(sick):
        writes(s, NEURON, node=f"node-{i}")
    return s, Group(s)


def test_a_fault_on_the_machines_of_one_job_is_held_since_the_job_may_be_its_cause() -> None:
    s, cloud = job_on(6, 4)
    pass_time(s, 300, cloud)
    assert calls(s) == []
    said = " ".join(record_sentences(s, "node-3"))
    assert "4 of the 4 machines have workload=default/llama, as 6 of 60 do" in said


def test_a_job_that_runs_nearly_everywhere_is_no_cause() -> None:
    s, cloud = job_on(40, 4)
    to_the_end(s, cloud)
    assert sorted(calls(s)) == [("replace", f"m-{i}") for i in range(4)]


def test_pods_are_listed_once_for_each_machine_with_a_fault_and_not_in_each_round() -> None:
    s, cloud = job_on(6, 4)
    pass_time(s, 600, cloud)
    assert s.store.requests["list", "pods"] < 60


def test_a_mistyped_reason_that_is_approved_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    s, cloud = racks(4)
    pass_time(s, 300, cloud)
    said = Terminal(s, monkeypatch).run("approve", "NeuronHasError_DMA").out
    assert "No recovery is open for NeuronHasError_DMA now, only for NeuronHasError_DMA_ERROR." in said
    said = Terminal(s, monkeypatch).run("approve", DMA).out
    assert said.endswith("within budget and brake.\n")


def approve(s: Stage, reason: str) -> None:
    body = {"spec": {"approved": [{"reason": reason, "by": "ada", "until": "2999-01-01T00:00:00Z"}]}}
    answer = s.store.request("PATCH", GATE, body=body, content_type=MERGE, user_agent=PERSON)
    assert answer.status == 200, answer.body


def test_a_node_that_nobody_understands_keeps_no_other_from_being_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    anything = Says.anything

    def stumbles(self: Says, node: NodeView) -> bool:
        if node.name == "node-1":
            raise TypeError("what is this")
        return anything(self, node)

    monkeypatch.setattr(Says, "anything", stumbles)
    s, cloud = fleet()
    writes(s, NEURON, node="node-1")
    writes(s, NEURON)
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]


def leases_read(s: Stage) -> int:
    return sum(n for (verb, resource), n in s.store.requests.items() if (verb, resource) == ("get", "leases"))


def test_what_the_leader_wrote_itself_makes_it_read_no_lease_again() -> None:
    s, cloud = fleet(policy(remedy="{do: cordon}"))
    s.run(60)
    idle = -leases_read(s)
    s.run(60)
    idle += leases_read(s)
    began = leases_read(s)
    writes(s, EKS)
    pass_time(s, 60, cloud)
    assert phase(s) is Phase.HANDED_OVER
    assert leases_read(s) - began - idle <= 6


def test_the_heartbeat_of_a_node_that_is_well_wakes_nobody_and_a_fault_does() -> None:
    s, _ = fleet()
    (actor,) = (a for a in s.actors.values() if isinstance(a, FleetActor))

    def woken() -> bool:
        actor.replica.nodes.once(threading.Event())
        return any(controller.woken.is_set() for controller in actor.replica.controllers)

    writes(s, EKS_GOOD)
    assert not woken()
    writes(s, EKS)
    assert woken()


def crowd(count: int, budget: int) -> Stage:
    """As many nodes as ``count``, each of a group of its own, have a fault in the same moment."""
    limits = f"{{cooldown: 0s, budget: {budget}, brake: 100%, brakePer: {{}}, budgetPer: {{}}}}"
    text = policy(remedy="{do: cordon}").replace(b"{cooldown: 0s}", limits.encode())
    s = Stage(text)
    for i in range(count):
        s.add_node(f"node-{i}", f"m-{i}", f"group-{i}")
    s.fleet()
    s.run(5)
    for i in range(count):
        writes(s, NEURON, node=f"node-{i}")
    return s


@pytest.mark.parametrize(
    ("count", "budget"),
    [(20, 20), (8, 1), (60, 60)],
    ids=["room for all", "one slot", "more than the queue holds"],
)
def test_of_a_crowd_the_next_one_is_started_as_soon_as_it_is_its_turn(count: int, budget: int) -> None:
    s = crowd(count, budget)
    s.run(4 if count > 50 else 2, step=0.05)
    out = [i for i in range(count) if s.node(f"node-{i}")["spec"].get("unschedulable")]
    assert len(out) == count


class LookedAt(FakeProvider):
    """A cloud that lets something happen while it is asked for the last preflight."""

    happens: Callable[[], None] = staticmethod(lambda: None)

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        found = super().preflight(machine, action)
        self.happens()
        return found


@pytest.mark.parametrize("what", ["a pause", "an exclusion"])
def test_what_happens_in_the_last_moment_is_read_though_all_was_read_a_moment_ago(what: str) -> None:
    s = Stage(policy(remedy="{do: replace}"))
    s.provider = provider = LookedAt()
    s.nodes(4)
    s.fleet()
    s.run(5)
    provider.happens = lambda: (
        None if marked(s) == NO_MARKS else {"a pause": pause, "an exclusion": exclude}[what](s)
    )
    writes(s, NEURON)
    s.run(30)
    assert calls(s) == []


class Silent:
    """Streams that are open, and of what has ``of`` in its path tell nothing but bookmarks."""

    of = "nothing"

    def __init__(self, streams: Streams) -> None:
        self.streams = streams

    def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        if self.of in path:
            here = query["resourceVersion"]
            yield json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": here}}}).encode()
        else:
            yield from self.streams.stream(path, query)


def test_no_second_step_is_asked_of_the_cloud_for_a_record_that_is_deleted_though_no_watch_has_told_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = Stage(policy(remedy="{do: replace}"))
    s.wrap_streams = Silent
    s.nodes(4)
    s.provider.groups["workers"].shrinks = True
    s.fleet()
    s.run(5)
    writes(s, EKS)
    s.run(30)
    assert calls(s) == [("replace", "m-0")]
    monkeypatch.setattr(Silent, "of", "noderecovery.dev")
    assert s.store.request("DELETE", f"{RECORDS}/node-0").ok
    s.provider.terminate("workers", "m-0")
    s.delete_node("node-0")
    s.run(100)
    assert s.provider.finished == []


def draining_behind_a_late_watch(monkeypatch: pytest.MonkeyPatch, fault: tuple[str, ...]) -> Stage:
    """An API server whose own watch of etcd is late sends bookmarks, and the Node of minutes ago."""
    s = Stage(policy())
    s.wrap_streams = Silent
    s.nodes(4)
    stubborn_pod(s)
    s.fleet()
    s.run(5)
    writes(s, fault)
    s.run(60)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    monkeypatch.setattr(Silent, "of", "/nodes")
    return s


def test_a_node_that_is_well_again_is_not_replaced_though_no_watch_has_told_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = draining_behind_a_late_watch(monkeypatch, COUNT)
    writes(s, COUNT_GOOD)
    remove_pod(s)
    s.run(60)
    assert calls(s) == []
    renewed(s, 4, COUNT_GOOD)
    assert (phase(s), marked(s), calls(s)) == (Phase.WITHDRAWN, NO_MARKS, [])


def test_while_the_api_server_asks_for_rest_a_node_whose_watch_is_late_is_looked_at_as_last_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = draining_behind_a_late_watch(monkeypatch, EKS)
    writes(s, EKS)
    remove_pod(s)
    s.run(3)
    assert calls(s) == [("replace", "m-0")]
    s.api.fail_next(lambda asked: RECORDS in asked.path, throttled(10), times=1000)
    s.run(30)
    assert value(s.actors["controller"], "node_recovery_errors_total", kind="api") > 0
    assert value(s.actors["controller"], "node_recovery_errors_total", kind="bug") == 0


def test_a_replacement_that_has_ended_is_not_proved_though_no_watch_has_told_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = Stage(policy())
    s.wrap_streams = Silent
    s.nodes(4)
    s.fleet()
    cloud = Group(s)
    s.run(5)
    writes(s, EKS)
    s.run(5)
    pass_time(s, 120, cloud, until=lambda: the_record(s).replacement != "")
    s.run(5)
    monkeypatch.setattr(Silent, "of", "/nodes")
    s.delete_node(the_record(s).replacement)
    s.run(300)
    assert phase(s) is Phase.PROVING


def test_a_slot_that_somebody_takes_off_is_put_back_though_the_node_is_gone() -> None:
    """Its record was looked at once a minute, which watches no probation: it was never proved."""
    s, cloud = fleet()
    writes(s, EKS)
    pass_time(s, 120, cloud, until=lambda: not s.store.request("GET", "/api/v1/nodes/node-0").ok)
    pass_time(s, 15, cloud)
    assert phase(s) in (Phase.RECOVERING, Phase.PROVING)
    change_gate(s, lambda gate: gate["status"].update(slots=[]))
    s.kill(s.actors["controller-0"])
    s.fleet("controller-1")
    pass_time(s, 90, cloud)
    assert slots(s) == ["node-0"]
    to_the_end(s, cloud)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("replace", "m-0")])


def test_what_came_back_after_a_boot_and_was_released_starts_nothing_under_a_new_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s, _ = fleet(policy(remedy="{do: drain, within: 10m, then: force}, {do: replace}"))
    pause(s)
    writes(s, EKS)
    s.run(20)
    boot(s, "node-0")
    s.run(20)
    writes(s, EKS_GOOD)
    s.run(5)
    writes(s, EKS)
    s.run(30)
    assert phase(s) is Phase.WAITING
    s.kill(s.actors["controller-0"])
    assert Terminal(s, monkeypatch).run("release", "node-0", "--yes").code == 0
    s.run(2)
    s.fleet("controller-1")
    resume(s)
    s.run(20)
    writes(s, EKS)  # renewed: it is of this boot
    s.run(120)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


def test_a_node_that_is_gone_for_good_is_not_asked_for_every_two_seconds() -> None:
    """Its fault was the last thing that it said, and nobody takes it back any more."""
    s, cloud = fleet()
    writes(s, NEURON)
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert not s.store.request("GET", "/api/v1/nodes/node-0").ok
    pass_time(s, 60, cloud)
    before = s.store.requests["get", "nodes"]
    pass_time(s, 120, cloud, step=2.0)
    assert s.store.requests["get", "nodes"] - before <= 8  # it was 60: one in two seconds
    pass_time(s, AT_REST, cloud)
    (controller,) = (a for a in s.actors.values() if isinstance(a, FleetActor))
    assert sum(c.agents for c in controller.replica.controllers) == 0


def test_a_node_that_comes_back_is_looked_at_at_once() -> None:
    s, cloud = fleet()
    exclude(s)
    writes(s, NEURON)
    pass_time(s, 10, cloud)
    held = s.node("node-0")
    s.delete_node("node-0")
    pass_time(s, 120, cloud)
    s.store.load(
        {k: held[k] for k in ("apiVersion", "kind", "spec", "status")} | {"metadata": {"name": "node-0"}}
    )
    pass_time(s, 5, cloud)
    assert phase(s) is not None


def seen_by(s: Stage, node: str) -> View:
    """What the leader last saw and decided of ``node``."""
    views = [a.replica.view(node) for a in s.actors.values() if isinstance(a, FleetActor)]
    (found,) = [view for view in views if isinstance(view, View)]
    return found


def test_an_outage_is_one_though_the_watches_stay_open_and_nothing_has_to_be_read() -> None:
    """A connection that carries nothing is not broken at once. What it showed last counts as unchanged."""
    s, _ = fleet(policy(remedy="{do: cordon}"))
    writes(s, EKS, node="node-1")
    pause(s)
    s.run(30)
    assert phase(s, "node-1") is Phase.WAITING
    s.api.fail_next(lambda asked: asked.method != "WATCH", lost_request, times=100_000)
    s.run(40)
    s.api.heal()
    resume(s)
    s.run(30)
    assert phase(s, "node-1") is Phase.WAITING
    view = seen_by(s, "node-1")
    assert "the API server was away" in view.decision.reason
    s.run(45)
    assert phase(s, "node-1") is Phase.HANDED_OVER


@pytest.mark.parametrize("before", [0, 2], ids=["for the first time", "two of them had it before"])
def test_machines_of_a_rack_that_fall_together_are_held_whatever_they_had_before(before: int) -> None:
    s = Stage(policy(remedy="{do: reboot}").replace(b"{cooldown: 0s}", LIMITS))
    for i in range(60):
        s.add_node(f"node-{i}", f"m-{i}", rack="r7" if i < 5 else f"r{8 + i // 5}")
    s.fleet()
    s.run(5)
    cloud = Group(s)
    for i in range(before):  # two are no outbreak: they are rebooted, and proved
        writes(s, EKS, node=f"node-{i}")
        pass_time(s, 60, cloud)
        boot(s, f"node-{i}")
        for _ in range(6):
            writes(s, EKS_GOOD, node=f"node-{i}")
            pass_time(s, 60, cloud, step=5)
        assert phase(s, f"node-{i}") is Phase.RECOVERED
    done = calls(s)
    assert len(done) == before
    pass_time(s, 15 * 60, cloud, step=5)
    for i in range(4):  # all four in one moment
        writes(s, EKS, node=f"node-{i}")
    pass_time(s, 120, cloud)
    assert calls(s) == done, record_sentences(s, "node-3")
    controller = s.actors["controller"].replica
    assert any("have rack=r7" in controller.view(f"node-{i}").decision.reason for i in range(4))


@pytest.mark.parametrize("another", [False, True], ids=["the same leader", "another leader"])
def test_what_a_person_released_and_is_gone_since_is_a_new_fault_when_it_comes_again(another: bool) -> None:
    """A Node that says nothing bad has no agent with a new leader, so nobody saw that the fault was gone."""
    s = Stage(policy("{type: GpuNvlink}", "{do: reboot}"))
    for name in s.nodes(3):
        writes(s, COUNT_GOOD, node=name)
    s.fleet("first")
    s.run(5)
    pause(s)
    writes(s, COUNT)
    s.run(60)
    assert phase(s) is Phase.WAITING
    release_by_command(s)
    resume(s)
    s.run(5)
    writes(s, COUNT_GOOD)
    s.run(5)
    if another:
        s.kill(s.actors["first"])
        s.fleet("second")
    renewed(s, 5, COUNT_GOOD)
    writes(s, COUNT)
    s.run(90)
    assert calls(s) == [("reboot", "m-0")]


def test_a_node_with_which_nothing_can_be_done_for_a_bug_keeps_its_turn_and_others_have_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s, cloud = fleet()
    cycle = Agent.cycle

    def broken(agent: Agent) -> Decision:
        if agent.node == "node-0":
            raise OverflowError("int too large to convert to float")
        return cycle(agent)

    monkeypatch.setattr(Agent, "cycle", broken)
    writes(s, NEURON)
    writes(s, NEURON, node="node-1")
    pass_time(s, 60, cloud)
    assert calls(s) == [("replace", "m-1")]
    to_the_end(s, cloud)
    monkeypatch.undo()
    pass_time(s, 120, cloud)
    assert ("replace", "m-0") in calls(s)


def test_what_a_person_has_is_said_each_minute_though_the_node_changes_right_before_the_minute_is_over() -> (
    None
):
    s, _ = fleet(policy(remedy="{do: cordon}"))
    writes(s, EKS)
    s.run(5)
    assert phase(s) is Phase.HANDED_OVER
    said = []
    for second in range(600):
        if second % 60 in (25, 52):  # its conditions are renewed, and another one comes and goes
            writes(s, EKS, COUNT if second % 120 < 60 else COUNT_GOOD)
        before = len(s.store.history)
        s.run(1)
        said += [second] * bool(sayings(s, "HandedOver", before))
    assert max(b - a for a, b in itertools.pairwise(said)) <= 62
    assert said[0] <= 62
