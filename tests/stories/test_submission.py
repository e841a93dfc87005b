"""The one destructive call: at most once, on the right machine, and only while nobody has said stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from recovery_testkit.stage import Killed, Stage, npd_page

from recovery.errors import Ambiguous, Refused, Retry
from recovery.model import Machine, NotApplied, Preflight, Reference, Step, Unseen
from recovery.store.lease import lease_name
from tests.builders.faults import DMA
from tests.builders.policies import policy_file
from tests.stories.scenery import (
    GATE,
    Cloud,
    Reaper,
    change_gate,
    change_node,
    judge,
    pass_time,
    reboot,
    records,
    to_the_end,
)
from tests.stories.scenes import messages, pause, record_sentences

REBOOTS = policy_file("{do: reboot, within: 10m}")
REBOOTS_THEN_REPLACES = policy_file("{do: reboot, within: 10m}, {do: replace, within: 30m}")


def faulty(count: int = 3, policy: bytes | None = None) -> tuple[Stage, Cloud]:
    """Agents on some nodes; the first one is about to be found faulty."""
    stage = Stage(policy) if policy else Stage()
    for name in stage.nodes(count):
        stage.agent(name)
    stage.run(0)
    stage.fault("node-0")
    return stage, Cloud(stage)


def intents(stage: Stage) -> list[tuple[int, str]]:
    """Attempt and state of each intent of node-0, as they followed each other."""
    seen: list[tuple[int, str]] = []
    for write in stage.store.history:
        intent = write.object.get("status", {}).get("intent") if "/noderecoveries" in write.path else None
        if intent and (intent["attempt"], intent["state"]) not in seen[-1:]:
            seen.append((intent["attempt"], intent["state"]))
    return seen


class Meddler:
    """A connection on which something happens once, right after the first request that fits was answered."""

    def __init__(self, transport: Any, fits: Callable[[str, str, Any], bool], happens: Callable[[], object]):
        self._transport = transport
        self._actor = transport._actor
        self._fits = fits
        self._happens = happens

    def request(self, method: str, path: str, **more: Any) -> Any:
        answer = self._transport.request(method, path, **more)
        if self._fits(method, path, more.get("body")):
            self._fits = lambda *_: False
            self._happens()
        return answer


def meddled(fits: Callable[[str, str, Any], bool], happens: Callable[[Stage], object]) -> tuple[Stage, Cloud]:
    """As ``faulty``, with a meddler on the connection of node-0's agent."""
    stage, cloud = faulty()
    stage.wrap = lambda transport: Meddler(transport, fits, lambda: happens(stage))
    stage.agent("node-0")
    return stage, cloud


def announced(method: str, path: str, body: Any) -> bool:
    return method == "POST" and path.endswith("/events") and body["reason"] == "Replacing"


def intended(method: str, path: str, body: Any) -> bool:
    return (
        method == "PUT"
        and "/noderecoveries/" in path
        and body["status"].get("intent", {}).get("state") == "written"
    )


# ---------------------------------------------------------------- answers


def test_an_answer_lost_after_the_call_was_accepted_is_observed_and_never_asked_again() -> None:
    stage, cloud = faulty()
    stage.provider.start_error = Ambiguous("read timed out")
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    assert len(stage.provider.calls) == 1
    assert intents(stage)[:3] == [(1, "written"), (1, "ambiguous"), (1, "submitted")]
    assert "replace of m-0: the answer was lost, observing: read timed out" in record_sentences(stage)


def test_a_lost_call_that_had_no_effect_is_closed_after_a_minute_and_asked_again_as_a_new_attempt() -> None:
    stage, cloud = faulty()
    stage.provider.start_error = Ambiguous("read timed out")
    stage.provider.after_call = lambda: stage.provider.groups["workers"].unhealthy.clear()
    pass_time(stage, 59, cloud, step=1)
    assert intents(stage) == [(1, "written"), (1, "ambiguous")]
    stage.provider.start_error = None
    stage.provider.after_call = lambda: None
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert intents(stage)[2:5] == [(1, "notApplied"), (2, "written"), (2, "submitted")]
    assert len({token for _, _, token in stage.provider.calls}) == 2
    assert records(stage) == {"node-0": "recovered"}


@pytest.mark.parametrize("unanswered", [Retry("throttled"), Refused("not authorized")], ids=str)
@pytest.mark.parametrize("policy", [None, REBOOTS], ids=["replace", "reboot"])
def test_a_look_without_an_answer_does_not_make_a_lost_call_an_accepted_one(
    policy: bytes | None, unanswered: Retry | Refused
) -> None:
    """Once the provider answers again, and shows no sign of the call, it is made again as a new attempt."""
    stage, cloud = faulty(policy=policy)
    stage.provider.start_error = Ambiguous("connection reset")
    stage.provider.after_call = lambda: stage.provider.groups["workers"].unhealthy.clear()
    looks: list[Retry | Refused | NotApplied] = [unanswered, unanswered, NotApplied("m-0 is as it was")]

    def poll(machine: object, reference: object) -> NotApplied:
        if isinstance(found := looks.pop(0) if len(looks) > 1 else looks[0], NotApplied):
            return found
        raise found

    stage.provider.poll = poll  # type: ignore[assignment,method-assign]
    pass_time(stage, 20, cloud, step=1)
    assert intents(stage) == [(1, "written"), (1, "ambiguous")]
    assert any(str(unanswered) in x for x in stage.actors["agent of node-0"].sentences)
    pass_time(stage, 70, cloud, step=1)
    assert intents(stage)[2:4] == [(1, "notApplied"), (2, "written")]


def test_a_lost_reboot_of_which_the_provider_never_tells_is_followed_by_no_other_step() -> None:
    """Ruling 18: it may have been accepted, so a person decides, who is told that it is not known."""
    stage, cloud = faulty(policy=REBOOTS_THEN_REPLACES)
    stage.provider.start_error = Ambiguous("connection reset")
    stage.provider.poll = lambda *_: Unseen("m-0 runs")  # type: ignore[assignment,method-assign]
    pass_time(stage, 1200, cloud)
    assert [step.value for step, _, _ in stage.provider.calls] == ["reboot"]
    assert records(stage) == {"node-0": "handedOver"}
    record = stage.record("node-0")
    assert record is not None
    assert record.sentence.endswith(
        "reboot did not succeed within 10 min: m-0 runs; it is not known whether it was ever accepted"
    )


def test_a_call_that_is_put_off_is_not_asked_again_in_a_loop() -> None:
    stage, cloud = faulty()
    stage.provider.start_error = Retry("throttled")
    pass_time(stage, 59, cloud, step=0.5)
    assert 2 <= len(stage.provider.calls) <= 5
    assert "replace of m-0: not yet: throttled" in record_sentences(stage)
    stage.provider.start_error = None
    stage.provider.groups["workers"].unhealthy.clear()
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}


def test_a_throttled_provider_is_asked_again_when_it_says_and_the_start_is_told_once() -> None:
    stage, cloud = faulty()
    stage.provider.start_error = Retry("throttled", timedelta(seconds=60))
    pass_time(stage, 290, cloud, step=1)
    assert len(stage.provider.calls) == 5
    assert messages(stage, "Replacing") == [f"replace of m-0 is requested from fake now: {DMA}"]
    told = [m for m in stage.told.metrics if m.name == "RecoveryAction"]
    assert [m.dimensions["Outcome"] for m in told].count("started") == 1
    pass_time(stage, 1800, cloud)
    assert records(stage) == {"node-0": "handedOver"}


def test_a_provider_that_is_throttled_at_each_last_look_has_the_start_told_once() -> None:
    """Nothing was asked of it. An Event, a webhook and a metric told of each try that it was about to be."""
    stage, cloud = faulty()
    stage.provider.groups["workers"].unhealthy.clear()
    look, asked = stage.provider.preflight, list[None]()

    def throttled(machine: Machine, action: Step) -> Preflight:
        asked.append(None)
        if len(asked) % 2 == 0:
            raise Retry("throttled", timedelta(seconds=30))
        return look(machine, action)

    stage.provider.preflight = throttled  # type: ignore[method-assign]
    pass_time(stage, 290, cloud, step=1)
    assert not stage.provider.calls
    events = stage.store.request("GET", "/api/v1/namespaces/default/events").body["items"]
    assert sum(e["count"] for e in events if e["reason"] == "Replacing") == 1
    told = [m for m in stage.told.metrics if m.name == "RecoveryAction"]
    assert [m.dimensions["Outcome"] for m in told].count("started") == 1


def test_a_provider_that_says_when_it_could_first_succeed_is_asked_then_and_its_step_is_not_late() -> None:
    """Ruling 31: a grace period is "not yet", and no time in which the step was tried."""
    stage, cloud = faulty()
    stage.provider.groups["workers"].unhealthy.clear()
    grace = timedelta(minutes=40)
    until = stage.clock.now() + grace
    stage.provider.start_error = Retry("in its grace period", grace, not_before=until)
    pass_time(stage, 39 * 60, cloud)
    assert len(stage.provider.calls) == 1
    assert "not yet: in its grace period; " in stage.actors["agent of node-0"].sentences[-1]
    stage.provider.start_error = None
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert len(stage.provider.calls) == 2
    assert records(stage) == {"node-0": "recovered"}


def test_a_call_that_was_accepted_and_came_too_soon_is_made_again_then_and_is_no_fruitless_try() -> None:
    """Ruling 31: accepted but still Healthy inside a grace period is "not yet"."""
    stage, cloud = faulty()
    stage.provider.after_call = lambda: stage.provider.groups["workers"].unhealthy.clear()
    end = stage.clock.now() + timedelta(minutes=40)
    stage.provider.poll = lambda *_: NotApplied("m-0 is healthy, in its grace period", end)  # type: ignore[method-assign]
    pass_time(stage, 39 * 60, cloud)
    assert len(stage.provider.calls) == 1
    assert intents(stage) == [(1, "written"), (1, "submitted"), (1, "abandoned")]
    assert "in its grace period" in stage.actors["agent of node-0"].sentences[-1]
    del stage.provider.poll
    stage.provider.after_call = lambda: None
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert len(stage.provider.calls) == 2
    assert records(stage) == {"node-0": "recovered"}


def test_a_refused_call_goes_to_a_person_with_the_reason() -> None:
    stage, cloud = faulty()
    stage.provider.start_error = Refused("not authorized to perform fake:Replace")
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    record = stage.record("node-0")
    assert record is not None
    assert record.phase.value == "handedOver"
    assert "not authorized to perform fake:Replace" in record.sentence
    assert len(stage.provider.calls) == 1


def test_a_machine_that_somebody_condemned_since_the_decision_is_followed_and_not_called_for() -> None:
    stage, cloud = meddled(announced, lambda s: s.provider.groups["workers"].unhealthy.add("m-0"))
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    assert "m-0 is unhealthy already; nothing more is asked for" in record_sentences(stage)
    assert not stage.provider.calls


def test_a_lease_that_another_took_since_the_decision_keeps_the_record_as_it_is() -> None:
    def taken(stage: Stage) -> None:
        body = {"metadata": {"name": lease_name("node-0"), "namespace": "default"}}
        spec = {"holderIdentity": "owner/node-0/elsewhere/1234", "leaseDurationSeconds": 60}
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        assert stage.store.request("POST", leases, body={**body, "spec": spec}).ok

    stage, _ = meddled(lambda method, path, _: method == "GET" and "/leases/" in path, taken)
    stage.run(1)
    told = "another agent works on this node (owner/node-0/elsewhere/1234)"
    assert any(told in sentence for sentence in stage.actors["agent of node-0"].sentences)
    assert records(stage) == {}


@pytest.mark.parametrize("error", [Retry("throttled"), Refused("m-0 is protected now")], ids=str)
def test_a_provider_that_says_no_since_the_decision_is_not_called_and_its_reason_is_told(
    error: Retry | Refused,
) -> None:
    def says_no(stage: Stage) -> None:
        stage.provider.preflight_error = error

    stage, cloud = meddled(announced, says_no)
    pass_time(stage, 5, cloud)
    assert f"replace is not asked for: {error}" in stage.actors["agent of node-0"].sentences
    assert not stage.provider.calls
    assert not intents(stage)


# ---------------------------------------------------------------- stopped processes


def test_a_process_stopped_between_intent_and_call_abandons_the_intent() -> None:
    called: list[int] = []

    def stopped(stage: Stage) -> None:
        stage.clock.advance(30)
        called.append(len(stage.provider.calls))

    stage, cloud = meddled(intended, stopped)
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert called == [0]
    assert "replace was not asked for: too late after its intent" in record_sentences(stage)
    assert intents(stage)[:3] == [(1, "written"), (1, "abandoned"), (2, "written")]
    assert len(stage.provider.calls) == 1
    assert records(stage) == {"node-0": "recovered"}


def test_a_process_stopped_until_others_have_concluded_calls_nothing() -> None:
    """Stopped for two minutes right after its intent: by then its peers have written on."""

    def stopped(stage: Stage) -> None:
        stage.actors["agent of node-0"].alive = False
        stage.concluder()
        for _ in range(130):
            stage.clock.advance(1)
            stage.turns()
        stage.actors["agent of node-0"].alive = True

    stage, cloud = meddled(intended, stopped)
    pass_time(stage, 30, cloud)
    assert not [t for t in stage.provider.calls if intents(stage)[0] == t]
    first = next(w for w in stage.store.history if intended("PUT", w.path, w.object))
    assert first.object["status"]["intent"]["token"] not in {token for _, _, token in stage.provider.calls}
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])


def test_a_call_whose_effect_shows_late_is_not_repeated_by_the_restarted_agent() -> None:
    stage, cloud = faulty()
    reaper = Reaper(stage, "agent of node-0".__eq__)
    stage.agent("node-0")

    def accepted() -> None:
        stage.provider.groups["workers"].unhealthy.clear()
        cloud.hidden["m-0"] = stage.clock.monotonic() + 30
        reaper.fired = True
        raise Killed

    stage.provider.after_call = accepted
    pass_time(stage, 60, cloud, until=lambda: reaper.fired)
    stage.agent("node-0", name="agent of node-0, again", alone=True)
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert len(stage.provider.calls) == 1
    assert records(stage) == {"node-0": "recovered"}


@pytest.mark.parametrize("gone", [False, True], ids=["machine still there", "machine gone"])
def test_a_concluder_waits_until_a_written_intent_can_no_longer_be_carried_out(gone: bool) -> None:
    stage, cloud = faulty()
    reaper = Reaper(stage, "agent of node-0".__eq__)
    reaper.hunts = lambda actor: actor == "agent of node-0" and bool(intents(stage))
    reaper.at, reaper.side = 0, "before"
    stage.agent("node-0")
    pass_time(stage, 60, cloud, until=lambda: reaper.fired)
    assert intents(stage) == [(1, "written")]
    assert not stage.provider.calls
    killed_at, writes = stage.clock.monotonic(), len(stage.store.history)
    if gone:
        stage.replace_machine("node-0", "m-0", "node-9", "m-9")
        writes = len(stage.store.history)
    concluder = stage.concluder()
    lease, fence = 60, 10 + 8 + 5

    def watch_until(second: float) -> list[str]:
        while stage.clock.monotonic() - killed_at < second:
            concluder.sweeper.sweep(next_in_queue=True)
            pass_time(stage, 1, step=1)
        written = [w.path for w in stage.store.history[writes:] if w.actor == "concluder"]
        return [path for path in written if "/leases/" not in path]  # it holds the Lease while it waits

    assert watch_until(lease + fence - 1) == []
    assert watch_until(lease + fence + 10) != []
    to_the_end(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert not stage.provider.calls


# ---------------------------------------------------------------- between decision and call


def swapped(stage: Stage) -> None:
    stage.delete_node("node-0")
    stage.register("node-0", "m-77")


def swapped_under_our_marks(stage: Stage) -> None:
    """Another machine under the same node name, boot ID and marks: only its own name tells. It is as sick."""
    stage.provider.launch("workers", "m-77")
    node = stage.node("node-0")
    stage.delete_node("node-0")
    for made_by_the_server in ("uid", "resourceVersion", "creationTimestamp"):
        del node["metadata"][made_by_the_server]
    node["spec"]["providerID"] = "fake:///workers/m-77"
    stage.store.load(node)


def excluded(stage: Stage) -> None:
    label = {"noderecovery.dev/exclude": "true"}
    change_node(stage, "node-0", lambda n: n["metadata"]["labels"].update(label))


def paused_unreadably(stage: Stage) -> None:
    pause(stage, until="tomorrow")


def others_sick(stage: Stage) -> None:
    def not_ready(node: dict[str, Any]) -> None:
        node["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]

    change_node(stage, "node-1", not_ready)
    change_node(stage, "node-2", not_ready)


def lease_lost(stage: Stage) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{lease_name('node-0')}"
    lease = stage.store.request("GET", path).body
    lease["spec"]["holderIdentity"] = "owner/node-0/elsewhere/1234"
    assert stage.store.request("PUT", path, body=lease).ok


def uncordoned(stage: Stage) -> None:
    change_node(stage, "node-0", lambda n: n["spec"].pop("unschedulable"))


def claimed(stage: Stage) -> None:
    taint = {"key": "medik8s.io/remediation", "value": "x", "effect": "NoExecute"}
    taints = stage.node("node-0")["spec"]["taints"]
    change_node(stage, "node-0", lambda n: n["spec"].update(taints=[*taints, taint]))


def released(stage: Stage) -> None:
    path = "/apis/noderecovery.dev/v1alpha1/noderecoveries/node-0"
    record = stage.store.request("GET", path).body
    record["status"].update(phase="released", acknowledged=record["status"]["faults"])
    assert stage.store.request("PUT", path, body=record).ok


def deleted(stage: Stage) -> None:
    assert stage.store.request("DELETE", "/apis/noderecovery.dev/v1alpha1/noderecoveries/node-0").ok


def group_short(stage: Stage) -> None:
    stage.provider.terminate("workers", "m-2")


def booted(stage: Stage) -> None:
    stage.pages["node-0"].body = npd_page()
    reboot(stage, "node-0")


CHANGES = [
    swapped,
    swapped_under_our_marks,
    booted,
    excluded,
    pause,
    paused_unreadably,
    others_sick,
    lease_lost,
    uncordoned,
    claimed,
    released,
    deleted,
    group_short,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_what_changes_between_decision_and_call_is_seen_and_nothing_is_called(
    change: Callable[[Stage], None],
) -> None:
    happened: list[str] = []

    def happens(stage: Stage) -> None:
        happened.append(change.__name__)
        change(stage)

    stage, cloud = meddled(announced, happens)
    pass_time(stage, 20, cloud)
    assert happened == [change.__name__]
    assert "m-0" not in {machine for _, machine, _ in stage.provider.calls}
    assert not [intent for intent in intents(stage) if change is not swapped_under_our_marks]


def test_a_slot_lost_between_decision_and_call_is_put_back_before_anything_is_called() -> None:
    stage, cloud = meddled(announced, lambda s: change_gate(s, lambda g: g["status"].update(slots=[])))
    to_the_end(stage, cloud)
    gates = [w.object["status"] for w in stage.store.history if w.path == GATE]
    assert any(g.get("slots") == [] for g in gates)
    calls = [(a.value, m, t) for a, m, t in stage.provider.calls]
    assert len(calls) == 1
    born = next(w for w in stage.store.history if intended("PUT", w.path, w.object))
    before = [w for w in stage.store.history if w.path == GATE and w.resource_version < born.resource_version]
    assert [s["node"] for s in before[-1].object["status"]["slots"]] == ["node-0"]


def test_when_nothing_changes_the_same_story_calls_once() -> None:
    stage, cloud = meddled(announced, lambda _: None)
    pass_time(stage, 20, cloud)
    assert len(stage.provider.calls) == 1


def test_an_intent_names_where_its_action_would_be_seen() -> None:
    stage, _ = faulty()
    stage.run(3)
    record = stage.record("node-0")
    assert record is not None
    assert record.intent is not None
    data = {"group": "workers", "known": ["m-0", "m-1", "m-2"], "desired": 3, "machine": "m-0", "had": 3}
    assert replace(record.intent.reference, data=dict(record.intent.reference.data)) == Reference(
        "fake", "replace", data
    )
