"""People are told where they are, once, and a webhook that is dead delays nothing (law 9)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.model import Phase
from recovery.report.notice import Notice
from recovery.report.publish import FLUSH, Publisher
from tests.builders.faults import DMA
from tests.builders.policies import policy_file
from tests.builders.receiver import DEFAULT_EVENTS, Receiver, receiving
from tests.stories.scenery import to_the_end
from tests.stories.scenes import calls, cast, messages, phase, value
from tests.stories.test_conditions import NEURON, policy, writes
from tests.stories.test_one_controller import Group


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path) as made:
        yield made


def telling(receiver: Receiver, *rules: bytes, **options: Any) -> Stage:
    return cast(*rules, tellers=(receiver.webhook(events=DEFAULT_EVENTS),), **options)


def reasons(receiver: Receiver) -> list[str]:
    return [told["reason"] for told in receiver.told]


def test_a_recovery_is_told_from_its_start_to_its_proof(receiver: Receiver) -> None:
    s = telling(receiver)
    s.fault("node-0")
    s.run(5)
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.agent("node-9")
    s.run(260, step=1)
    assert phase(s) is Phase.RECOVERED
    assert reasons(receiver) == ["RecoveryStarted", "Replacing", "Recovered"]
    started, replacing, _ = receiver.told
    assert (started["node"], started["fault"], started["rule"]) == ("node-0", DMA, "neuron-hardware")
    assert (replacing["step"], replacing["cluster"]) == ("replace", "prod")
    assert replacing["sentence"] == messages(s, "Replacing")[0]


def test_what_is_about_to_remove_the_node_is_told_before_it_is_done(receiver: Receiver) -> None:
    s = telling(receiver)
    before: list[str] = []
    s.provider.before_call = lambda: before.extend(reasons(receiver))
    s.fault("node-0")
    s.run(5)
    assert before == ["RecoveryStarted", "Replacing"]


def test_a_hand_over_is_told_once_though_its_event_comes_each_minute(receiver: Receiver) -> None:
    s = telling(receiver, policy_file("{do: cordon}"))
    s.fault("node-0")
    s.run(610, step=1)
    assert phase(s) is Phase.HANDED_OVER
    assert reasons(receiver) == ["RecoveryStarted", "HandedOver"]


def test_a_hand_over_that_the_receiver_did_not_take_is_told_when_its_event_is_repeated(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = telling(receiver, policy_file("{do: cordon}"))
    away = True
    monkeypatch.setattr(receiver, "respond", lambda *_: (503, b"away") if away else (200, b"ok"))
    s.fault("node-0")
    s.run(90, step=1)
    assert phase(s) is Phase.HANDED_OVER
    away, before = False, len(receiver.told)
    s.run(600, step=1)
    assert reasons(receiver)[before:] == ["HandedOver"]


def test_a_receiver_that_takes_a_hand_over_and_answers_too_late_is_not_told_each_minute_for_ever(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = telling(receiver, policy_file("{do: cordon}"))
    monkeypatch.setattr(receiver, "respond", lambda *_: (504, b"late"))
    s.fault("node-0")
    s.run(60, step=1)
    before = len(receiver.told)
    s.run(2 * 3600, step=10)
    assert 8 <= reasons(receiver)[before:].count("HandedOver") <= 14


def test_a_hand_over_that_the_agent_has_told_is_not_told_by_the_concluder_as_well(receiver: Receiver) -> None:
    s = telling(receiver, policy_file("{do: cordon}"))
    s.tellers = (receiver.webhook(events=DEFAULT_EVENTS),)  # of another process
    s.concluder()
    s.fault("node-0")
    s.run(300, step=1)
    assert reasons(receiver) == ["RecoveryStarted", "HandedOver"]


def test_a_hand_over_of_a_dead_agent_is_told_by_who_concluded_it(receiver: Receiver) -> None:
    s = telling(receiver)
    s.tellers = (receiver.webhook(events=DEFAULT_EVENTS),)
    s.concluder()
    s.fault("node-0")
    s.run(5)
    s.kill(s.actors["agent of node-0"])
    s.run(4000, step=10)
    assert phase(s) is Phase.HANDED_OVER
    assert reasons(receiver) == ["RecoveryStarted", "Replacing", "HandedOver"]


def test_in_observe_mode_it_is_told_what_would_be_done(receiver: Receiver) -> None:
    s = telling(receiver, on=False)
    s.fault("node-0")
    s.run(3600, step=30)
    (told,) = receiver.told
    assert (told["reason"], told["fault"], told["rule"]) == ("WouldRecover", DMA, "neuron-hardware")
    assert told["step"] == "drain"
    assert (s.record("node-0"), calls(s)) == (None, [])


def test_the_brake_is_told_once_for_each_node(receiver: Receiver) -> None:
    s = telling(receiver, agents=3)
    for node in ("node-0", "node-1", "node-2"):
        s.fault(node)
    s.run(300, step=1)
    assert [(told["reason"], told["key"]) for told in receiver.told] == [("Held", "brake")] * 3


def test_a_controller_tells_the_same(receiver: Receiver) -> None:
    s = Stage(policy())
    s.tellers = (receiver.webhook(events=DEFAULT_EVENTS),)
    s.nodes(4)
    s.fleet()
    s.run(5)
    cloud = Group(s)
    writes(s, NEURON)
    to_the_end(s, cloud)
    assert phase(s) is Phase.RECOVERED
    assert reasons(receiver) == ["RecoveryStarted", "Replacing", "Recovered"]
    assert {told["node"] for told in receiver.told} == {"node-0"}


def test_a_receiver_that_fails_delays_no_call(receiver: Receiver) -> None:
    receiver.answer = (500, b"")
    s = telling(receiver)
    s.fault("node-0")
    s.run(2)
    assert calls(s) == [("replace", "m-0")]
    agent = s.actors["agent of node-0"]
    assert value(agent, "node_recovery_untold_total", sink="webhook") == 2


def test_a_dead_webhook_is_waited_for_no_longer_than_five_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The call is made as soon as the wait is over, though the webhook still hangs."""
    s = cast()
    actor = s.actors["agent of node-0"]
    assert actor.agent is not None
    answering = threading.Event()
    waits: list[float] = []

    class Dead:
        name, most = "webhook", 1

        def wants(self, notice: Notice) -> bool:
            return True

        def tell(self, notices: Sequence[Notice]) -> None:
            answering.wait(60)

    class Impatient(Publisher):
        def flush(self, seconds: float = FLUSH) -> bool:
            waits.append(seconds)
            return super().flush(0.02)

    publisher = Impatient(actor.agent._w.cluster, lambda: None, actor.metrics, tellers=(Dead(),))
    for part in (actor.agent._reporter, actor.agent._executor, actor.sweeper):
        monkeypatch.setattr(part, "_publisher", publisher)
    s.fault("node-0")
    try:
        s.run(2)
        assert calls(s) == [("replace", "m-0")]
        assert waits == [5.0]
        said = [record.getMessage() for record in caplog.records]
        assert said == ["node-0: publishing takes long; going on without waiting"]
        until = time.monotonic() + 10
        while not messages(s, "Submitted") and time.monotonic() < until:
            time.sleep(0.001)  # for the thread of the Events, which waits for no webhook
        assert messages(s, "Submitted")
    finally:
        answering.set()


def oom(count: int) -> bytes:
    return npd_page("DMA_ERROR") + f'problem_counter{{reason="OOMKilling"}} {count}\n'.encode()


def test_a_hand_over_is_told_once_though_containers_on_the_node_are_killed(receiver: Receiver) -> None:
    s = telling(receiver, policy_file("{do: cordon}"))
    s.pages["node-0"].body = npd_page() + b'problem_counter{reason="OOMKilling"} 0\n'
    s.run(5, step=1)
    s.pages["node-0"].body = oom(0)
    s.run(60, step=1)
    assert phase(s) is Phase.HANDED_OVER
    for count in range(1, 11):
        s.pages["node-0"].body = oom(count)
        s.run(300, step=1)
    assert phase(s) is Phase.HANDED_OVER
    assert reasons(receiver) == ["RecoveryStarted", "HandedOver"]
