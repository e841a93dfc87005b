"""What is not needed is not read: neither the cloud nor the fleet is asked for what no decision goes by."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recovery.decide.situation import Counted, Role
from recovery.model import Machine, Phase, Preflight, Step
from tests.builders.policies import policy_file
from tests.stories.scenery import alive
from tests.stories.scenes import cast, phase
from tests.stories.test_power import REBOOT, Powered, dies


def test_while_the_clock_is_off_the_cloud_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    s = cast(agents=1)
    actor = alive(s, "node-0")
    assert actor.agent is not None
    monkeypatch.setattr(actor.agent._w.cluster.time, "skew", lambda: timedelta(minutes=1))
    asked: list[str] = []
    preflight = s.provider.preflight

    def counted(machine: Machine, action: Step) -> Preflight:
        asked.append(machine.id)
        return preflight(machine, action)

    monkeypatch.setattr(s.provider, "preflight", counted)
    s.fault("node-0")
    s.run(30)
    assert phase(s) is Phase.WAITING
    assert "this machine's clock is 60 s off" in actor.sentences[-1]
    assert asked == []


def test_a_concluder_that_may_switch_power_counts_nobody_for_a_record_that_only_waits() -> None:
    s = cast(policy_file(REBOOT, limits="budget: 0"), provider=Powered())
    concluder = s.concluder()
    s.fault("node-0")
    s.run(5)
    assert phase(s) is Phase.WAITING
    dies(s)
    looked = concluder.sweeper._observer.situation("node-0", Role.CONCLUDER)
    assert not any(isinstance(need, Counted) and not need.known for need in looked.read)
