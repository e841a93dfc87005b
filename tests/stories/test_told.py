"""What is about to remove this very node is told before it is done, and telling blocks nothing (law 9)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from recovery_testkit.kubefaults import lost_request
from recovery_testkit.stage import Stage, npd_page

from recovery.errors import Retry
from recovery.model import Failed, Phase
from recovery.report.publish import FLUSH, Publisher
from tests.builders.faults import DMA
from tests.builders.policies import policy_file
from tests.stories.scenes import REBOOTS, boot, calls, cast, messages, phase, sayings


def merged(s: Stage) -> list[str]:
    """Events, metrics and calls of the stage in one log, as they happen from now on."""
    log: list[str] = []
    request, publish = s.api.request, s.told.publish

    def asked(method: str, path: str, **rest: Any) -> Any:
        answer = request(method, path, **rest)
        if method == "POST" and path.endswith("/events"):
            log.append(f"event {rest['body']['reason']}")
        if (
            method == "PUT"
            and path.endswith("/noderecoveries/node-0")
            and rest["body"]["status"].get("intent")
        ):
            log.append(f"intent {rest['body']['status']['intent']['state']}")
        return answer

    def sent(metrics: Any) -> None:
        log.extend(f"metric {m.dimensions.get('Outcome', m.name)}" for m in metrics)
        publish(metrics)

    s.api.request = asked  # type: ignore[method-assign]
    s.told.publish = sent  # type: ignore[method-assign]
    s.provider.before_call = lambda: log.append("call")
    return log


@pytest.mark.parametrize(("rules", "event"), [(policy_file(), "Replacing"), (REBOOTS, "Rebooting")])
def test_event_and_metrics_are_out_before_the_call(rules: bytes, event: str) -> None:
    s = cast(rules)
    log = merged(s)
    s.fault("node-0")
    s.run(5)
    before = log[: log.index("call")]
    assert {f"event {event}", f"metric {DMA}", "metric started"} <= set(before)
    sentence = messages(s, event)[0]
    assert sentence.endswith(f" of m-0 is requested from fake now: {DMA}")


def test_the_intent_is_the_last_write_before_the_call() -> None:
    s = cast()
    log = merged(s)
    s.fault("node-0")
    s.run(5)
    at = log.index("call")
    assert log[at - 1] == "intent written"
    assert log[at + 1 :].index("intent submitted") >= 0


def test_each_step_of_a_recovery_is_told_once() -> None:
    s = cast()
    s.fault("node-0")
    s.run(60)
    for event in (
        "FaultSeen",
        "Confirmed",
        "RecoveryStarted",
        "Cordoned",
        "NextStep",
        "Replacing",
        "Submitted",
    ):
        assert sayings(s, event) == 1, event


def test_every_outcome_of_a_recovery_is_a_metric() -> None:
    s = cast()
    s.fault("node-0")
    s.run(5)
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.agent("node-9")
    s.run(260, step=1)
    assert phase(s) is Phase.RECOVERED
    found = [m for m in s.told.metrics if m.name == "RecoveryAction"]
    assert [m.dimensions["Outcome"] for m in found] == ["observed", "started", "succeeded"]
    assert {m.dimensions["Action"] for m in found} == {"replace"}
    assert {m.dimensions["Provider"] for m in found} == {"fake"}


def test_a_monitor_that_fails_delays_no_call() -> None:
    s = cast()
    s.told.error = Retry("throttled")
    s.fault("node-0")
    s.run(2)
    assert calls(s) == [("replace", "m-0")]


def test_events_that_fail_delay_no_call() -> None:
    s = cast()
    s.api.fail_next(lambda asked: asked.path.endswith("/events"), lost_request, times=100)
    s.fault("node-0")
    s.run(2)
    assert calls(s) == [("replace", "m-0")]


def test_a_dead_monitor_is_waited_for_no_longer_than_five_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The call is made as soon as the wait is over, though the monitor has not answered yet."""
    s = cast()
    actor = s.actors["agent of node-0"]
    assert actor.agent is not None
    answering = threading.Event()
    waits: list[float] = []

    class Dead:
        name = "dead"

        def publish(self, metrics: Any) -> None:
            answering.wait(60)

    class Impatient(Publisher):
        def flush(self, seconds: float = FLUSH) -> bool:
            waits.append(seconds)
            return super().flush(0.02)

    publisher = Impatient(actor.agent._w.cluster, Dead, actor.metrics)
    for part in (actor.agent._reporter, actor.agent._executor, actor.sweeper):
        monkeypatch.setattr(part, "_publisher", publisher)
    s.fault("node-0")
    try:
        s.run(2)
        assert calls(s) == [("replace", "m-0")]
        assert waits == [5.0]
        said = [record.getMessage() for record in caplog.records]
        assert said == ["node-0: publishing takes long; going on without waiting"]
    finally:
        answering.set()


# ---------------------------------------------------------------- each outcome of an action


def outcomes(s: Stage) -> list[tuple[str, str]]:
    """Action and outcome of each data point of RecoveryAction."""
    told = (m.dimensions for m in s.told.metrics if m.name == "RecoveryAction")
    return [(x["Action"], x["Outcome"]) for x in told]


def test_a_reboot_that_does_not_come_has_failed() -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(700, step=2)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
    assert outcomes(s)[1:] == [("reboot", "started"), ("reboot", "failed"), ("replace", "started")]


def test_a_reboot_that_its_provider_calls_failed_has_failed() -> None:
    s = cast(REBOOTS)
    s.provider.poll = lambda *_: Failed("the host is broken")  # type: ignore[method-assign]
    s.fault("node-0")
    s.run(10)
    assert outcomes(s)[1:4] == [("reboot", "started"), ("reboot", "failed"), ("replace", "started")]


def test_a_reboot_after_which_the_fault_is_back_has_failed() -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(5)
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(40)
    s.fault("node-0")
    s.run(10)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
    assert outcomes(s)[1:] == [("reboot", "started"), ("reboot", "failed"), ("replace", "started")]
