"""Defects that a review found, each with the story that would have shown it."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from typing import Any

import pytest
from recovery_testkit.kubefaults import refused
from recovery_testkit.stage import Stage, npd_page

from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.errors import Refused, Retry, SettingsError
from recovery.model import CORDONED_BY, EXCLUDE, TAINT, Phase
from tests.builders.objects import gate_object
from tests.stories.scenery import GATES, change_node, writes
from tests.stories.scenes import value


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def handed_over(stage: Stage) -> None:
    """node-0 is handed over untouched, for its group refuses it."""
    stage.provider.preflight_error = Refused("its group refuses")
    stage.fault("node-0")
    stage.run(10)
    record = stage.record("node-0")
    assert record is not None
    assert record.phase is Phase.HANDED_OVER


def test_a_released_fault_is_not_treated_again_because_another_one_opens_a_record() -> None:
    stage = Stage()
    stage.nodes(4)
    actor = stage.agent("node-0")
    handed_over(stage)
    stage.provider.preflight_error = None
    records = actor.agent._w.records  # type: ignore[union-attr]
    record = records.read("node-0")
    assert record is not None
    records.write(close(record, stage.clock.now(), Event.RELEASED, "released"))
    stage.run(120)
    stage.pages["node-0"].body = npd_page("DMA_ERROR", "HANG_ON_COLLECTIVES")
    stage.run(60)
    assert stage.provider.calls == []


def cordoned_by_ann(node: dict[str, Any]) -> None:
    node["metadata"].setdefault("annotations", {})[CORDONED_BY] = "ann"
    node["spec"]["unschedulable"] = True


def test_a_foreign_cordoned_by_annotation_is_left_alone_and_the_record_is_closed() -> None:
    stage = Stage()
    stage.nodes(4)
    stage.agent("node-0")
    stage.add_pod("p", "node-0")
    change_node(stage, "node-0", cordoned_by_ann)
    stage.fault("node-0")
    stage.run(1)
    change_node(stage, "node-0", lambda node: node["metadata"]["labels"].update({EXCLUDE: "true"}))
    stage.run(30)
    node = stage.node("node-0")
    assert node["metadata"]["annotations"][CORDONED_BY] == "ann"
    assert node["spec"]["unschedulable"]
    record = stage.record("node-0")
    assert record is None or not record.phase.open


def test_an_agent_whose_node_object_is_deleted_lets_its_peers_conclude() -> None:
    stage = Stage()
    stage.nodes(4)
    stage.agent("node-0")
    stage.agent("node-1")
    stage.add_pod("stays", "node-0")
    stage.fault("node-0")
    stage.run(3)
    stage.delete_node("node-0")
    stage.run(200, step=2)
    assert stage.gate().slots == ()
    record = stage.record("node-0")
    assert record is not None
    assert record.phase is Phase.SUPERSEDED


def test_a_provider_that_only_says_later_ends_with_a_person() -> None:
    stage = Stage()
    stage.nodes(4)
    stage.agent("node-0")
    stage.add_pod("p", "node-0")
    stage.fault("node-0")
    stage.run(3)
    stage.provider.preflight_error = Retry("the cloud is throttling")
    stage.run(3600, step=10)
    record = stage.record("node-0")
    assert record is not None
    assert record.phase is Phase.HANDED_OVER
    assert "the cloud is throttling" in record.sentence


@pytest.mark.parametrize(
    "error", [Refused("AccessDenied"), SettingsError(["boto3 is not installed"]), KeyError("a bug")]
)
def test_a_provider_that_cannot_say_how_a_call_stands_ends_with_a_person_at_the_deadline(
    error: Exception,
) -> None:
    stage = Stage()
    stage.nodes(4)
    stage.agent("node-0")
    stage.fault("node-0")
    stage.run(5)
    assert len(stage.provider.calls) == 1

    def cannot(*_: object) -> None:
        raise error

    stage.provider.poll = cannot  # type: ignore[assignment]
    stage.run(1900, step=5)
    record = stage.record("node-0")
    assert record is not None
    assert record.phase is Phase.HANDED_OVER
    assert stage.gate().slots == ()


def test_without_our_crds_a_fault_is_still_told() -> None:
    stage = Stage(crds=False)
    stage.nodes(2)
    stage.agent("node-0")
    stage.fault("node-0")
    stage.run(70)
    assert [m.name for m in stage.told.metrics].count("NeuronHasError_DMA_ERROR") == 2
    assert any(reason == "Failed" and "noderecoveries" in told for reason, told in stage.events("node-0"))


def test_a_bug_with_one_node_keeps_no_other_from_being_concluded(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.nodes(4)
    for node in ("node-0", "node-1"):
        stage.agent(node)
    stage.fault("node-0")
    stage.run(5)
    stage.fault("node-1")
    stage.run(5)
    for name in ("agent of node-0", "agent of node-1"):
        stage.kill(stage.actors[name])
    stage.delete_node("node-1")

    stage.provider.poll = lambda *_: "no standing"  # type: ignore[assignment, return-value]
    stage.concluder()
    stage.run(300, step=5)
    assert "node-0: a bug; trying again later" in logged(caplog)
    record = stage.record("node-1")
    assert record is not None
    assert record.phase is Phase.SUPERSEDED


def test_a_bug_in_a_sweep_is_logged_with_its_traceback_and_ends_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    concluder = stage.concluder()

    def bug() -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(concluder.sweeper._w.gates, "read", bug)
    stage.run(1)
    assert logged(caplog) == ["sweep: a bug; trying again later"]
    assert caplog.records[0].exc_info is not None
    monkeypatch.undo()
    stage.run(120, step=5)
    assert logged(caplog) == ["sweep: a bug; trying again later"]


def test_a_bug_in_a_cycle_is_told_and_tried_again_ever_more_slowly(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    stage.nodes(2)
    actor = stage.agent("node-0")
    stage.run(1)
    tried: list[float] = []

    def bug(*_: object, **__: object) -> None:
        tried.append(stage.clock.monotonic())
        raise ValueError("a bug")

    monkeypatch.setattr(actor.agent._observer, "situation", bug)  # type: ignore[union-attr]
    stage.fault("node-0")
    stage.run(40)
    gaps = [late - early for early, late in itertools.pairwise(tried)]
    assert gaps == [4, 8, 16]
    assert actor.sentences[-1] == "a bug in this program, see the log"
    assert ("Failed", "a bug in this program, see the log") in stage.events("node-0")
    assert logged(caplog)[0] == "node-0: a bug; trying again, ever more slowly"
    assert caplog.records[0].exc_info is not None


def test_a_provider_whose_sdk_is_missing_is_told_and_asked_again() -> None:
    stage = Stage()
    stage.nodes(2)
    actor = stage.agent("node-0")
    stage.fault("node-0")
    preflight = stage.provider.preflight

    def no_sdk(*_: object) -> None:
        raise SettingsError(["PROVIDER=fake needs its SDK: install it"])

    stage.provider.preflight = no_sdk  # type: ignore[assignment, method-assign]
    stage.run(5)
    assert actor.sentences[-1] == "PROVIDER=fake needs its SDK: install it"
    assert ("Failed", "PROVIDER=fake needs its SDK: install it") in stage.events("node-0")
    stage.provider.preflight = preflight  # type: ignore[method-assign]
    stage.run(10)
    assert len(stage.provider.calls) == 1


def test_a_gate_that_cannot_be_read_starts_nothing_and_says_why() -> None:
    stage = Stage()
    stage.nodes(2)
    actor = stage.agent("node-0")
    stage.store.load(gate_object(spec={}, version=99))
    stage.fault("node-0")
    stage.run(10)
    why = "RecoveryGate fleet was written in version 99; this program understands version 2"
    told = f"NeuronHasError_DMA_ERROR: waiting: the gate cannot be used: {why}"
    assert actor.sentences[-1] == told
    assert ("Held", told) in stage.events("node-0")
    assert stage.provider.calls == []


def test_a_gate_that_may_not_be_written_starts_nothing_and_says_why() -> None:
    stage = Stage()
    stage.nodes(2)
    actor = stage.agent("node-0")
    forbidden = refused(403, "Forbidden", 'admission webhook "guard" denied the request')
    stage.api.fail_next(writes(GATES), forbidden, times=10**6)
    stage.fault("node-0")
    stage.run(10)
    why = f'POST {GATES}: 403 admission webhook "guard" denied the request'
    told = f"NeuronHasError_DMA_ERROR: waiting: the gate cannot be used: {why}"
    assert actor.sentences[-1] == told
    assert ("Held", told) in stage.events("node-0")
    stage.api.heal()
    stage.run(40)
    assert len(stage.provider.calls) == 1


def test_a_record_that_cannot_be_concluded_yet_is_logged_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    for node in stage.nodes(4):
        stage.agent(node)
    stage.fault("node-0")
    stage.run(5)
    stage.kill(stage.actors["agent of node-0"])
    forbidden = refused(403, "Forbidden", "nodes is forbidden")
    stage.api.fail_next(lambda asked: asked.path.endswith("/nodes/node-0"), forbidden, times=10**6)
    with caplog.at_level(logging.INFO):
        stage.run(120, step=2)
    why = "GET /api/v1/nodes/node-0: 403 nodes is forbidden"
    assert f"node-0: not concluded yet: {why}" in logged(caplog)


def test_deleting_a_closed_record_does_not_stop_the_agent() -> None:
    stage = Stage()
    stage.nodes(4)
    stage.agent("node-0")
    handed_over(stage)
    stage.store.request("DELETE", "/apis/noderecovery.dev/v1alpha1/noderecoveries/node-0")
    stage.provider.preflight_error = None
    stage.pages["node-0"].body = npd_page("HBM_UNCORRECTABLE_ERROR")
    stage.run(70)
    assert len(stage.provider.calls) == 1


def test_one_peer_at_a_time_asks_the_cloud_how_a_dead_agents_call_stands() -> None:
    stage = Stage()
    for node in stage.nodes(12):
        stage.agent(node)
    stage.run(1)
    stage.fault("node-0")
    stage.run(5)
    stage.kill(stage.actors["agent of node-0"])
    stage.run(200, step=2)
    asked = [0]
    poll = stage.provider.poll

    def counted(*arguments: object) -> object:
        asked[0] += 1
        return poll(*arguments)  # type: ignore[arg-type]

    stage.provider.poll = counted  # type: ignore[assignment, method-assign]
    stage.run(60, step=1)
    assert 0 < asked[0] <= 40


def test_a_node_that_waits_for_the_budget_asks_the_cloud_for_nothing() -> None:
    stage = Stage()
    for node in stage.nodes(4):
        stage.agent(node)
    stage.add_pod("p", "node-0")
    stage.fault("node-0")
    stage.run(2)
    asked = [0]
    preflight = stage.provider.preflight

    def counted(*arguments: object) -> object:
        asked[0] += 1
        return preflight(*arguments)  # type: ignore[arg-type]

    stage.kill(stage.actors["agent of node-0"])
    stage.provider.preflight = counted  # type: ignore[assignment, method-assign]
    stage.fault("node-1")
    stage.run(30)
    assert asked[0] == 0


def test_observing_costs_the_api_server_next_to_nothing_while_a_fault_lasts() -> None:
    stage = Stage()
    stage.nodes(4)
    stage.agent("node-0", on=False)
    stage.fault("node-0")
    stage.run(5)
    before = sum(count for (verb, _), count in stage.store.requests.items() if verb in ("get", "list"))
    stage.run(300)
    after = sum(count for (verb, _), count in stage.store.requests.items() if verb in ("get", "list"))
    assert after - before <= 20


def test_marks_left_by_a_lost_record_come_off_after_a_boot() -> None:
    stage = Stage()
    stage.nodes(4)
    stage.agent("node-0")
    stage.agent("node-1")
    stage.add_pod("stays", "node-0")
    stage.fault("node-0")
    stage.run(3)
    stage.store.request("DELETE", "/apis/noderecovery.dev/v1alpha1/noderecoveries/node-0")
    stage.run(70, step=1)
    stage.fault("node-0", "none")
    change_node(stage, "node-0", lambda node: node["status"]["nodeInfo"].update(bootID="m-0-boot-2"))
    stage.kill(stage.actors["agent of node-0"])
    stage.run(5)
    stage.agent("node-0", place="another pod")
    stage.run(10)
    taints = stage.node("node-0")["spec"].get("taints") or []
    assert TAINT not in [taint["key"] for taint in taints]
    assert not stage.node("node-0")["spec"].get("unschedulable")


def test_a_record_is_not_opened_by_copies_of_itself() -> None:
    """A fault that is closed again and again is remembered once: others are not pushed out of the memory."""
    stage = Stage()
    stage.nodes(4)
    actor = stage.agent("node-0")
    handed_over(stage)
    record = actor.agent._w.records.read("node-0")  # type: ignore[union-attr]
    assert record is not None
    again = replace(record, phase=Phase.WAITING)
    for _ in range(3):
        again = replace(close(again, stage.clock.now(), Event.GAVE_UP, "again"), phase=Phase.WAITING)
    assert len(again.acknowledged) == 1


def test_a_bug_of_the_provider_in_a_preflight_keeps_no_deadline_from_coming(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A cloud that fails for as long is handed over, and so is a provider that does not expect its answer."""
    stage = Stage()
    stage.nodes(4)
    agent = stage.agent("node-0")
    stage.add_pod("p", "node-0")
    stage.fault("node-0")
    stage.run(3)

    def bug(*_: object) -> None:
        raise KeyError("Result")

    stage.provider.preflight = bug  # type: ignore[assignment]
    stage.run(3600, step=10)
    record = stage.record("node-0")
    assert record is not None
    assert record.phase is Phase.HANDED_OVER
    assert "provider fake failed on a bug, see the log (KeyError)" in record.sentence
    assert (stage.gate().slots, stage.provider.calls) == ((), [])
    assert "node-0: a bug; provider fake is asked again" in logged(caplog)
    assert value(agent, "node_recovery_errors_total", kind="bug") > 1
