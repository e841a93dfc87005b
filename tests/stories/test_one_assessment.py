"""What a situation means is worked out once a cycle; once more, of a world read anew, right before a call."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from recovery_testkit.stage import Actor

from recovery.agent.peers import Sweeper
from recovery.decide import assessment
from recovery.decide.decision import Decision
from recovery.model import Phase
from tests.stories.scenery import Cloud, alive, pass_time
from tests.stories.scenes import REBOOTS, boot, calls, cast, phase

Row = tuple[str, int, int]
"""A cycle that looked at the world: the key of its decision, assessments, diagnoses."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a situation was assessed, and diagnosed, whoever asked for it."""
    found: Counter[str] = Counter()

    def counted(name: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def asks(*args: Any) -> Any:
            found[name] += 1
            return does(*args)

        return asks

    for name, does in {"assess": assessment.assess, "diagnose": assessment.diagnose}.items():
        for module in [m for n, m in sys.modules.items() if n.startswith("recovery.")]:
            if vars(module).get(name) is does:
                monkeypatch.setattr(module, name, counted(name, does))
    return found


def noted(actor: Actor, asked: Counter[str]) -> list[Row]:
    """The cycles of an agent from now on, but for those that had no reason to look."""
    agent, rows, looked = actor.agent, list[Row](), Counter[str]()
    assert agent is not None
    cycle, look = agent.cycle, agent._look

    def looks(readings: Any) -> Decision:
        looked["looks"] += 1
        return look(readings)

    def cycles() -> Decision:
        before, seen = Counter(asked), looked["looks"]
        d = cycle()
        row = (d.key, asked["assess"] - before["assess"], asked["diagnose"] - before["diagnose"])
        if looked["looks"] > seen:
            rows.append(row)
        else:
            assert row[1:] == (0, 0)
        return d

    agent.cycle, agent._look = cycles, looks  # type: ignore[method-assign]
    return rows


def test_a_cycle_makes_one_assessment_and_a_call_one_more(asked: Counter[str]) -> None:
    s = cast(REBOOTS)
    rows = noted(alive(s, "node-0"), asked)
    s.fault("node-0")
    s.run(5)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    s.fault("node-0")  # it is still there: the next step
    s.run(10)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
    assert {"WriteRecord", "TakeSlot", "Mark", "Submit", "settle"} <= {key for key, _, _ in rows}
    assert {row for row in rows if row[0] != "Submit"} == {
        (key, 1, 1) for key, _, _ in rows if key != "Submit"
    }
    assert [row for row in rows if row[0] == "Submit"] == [("Submit", 2, 2)] * 2


def test_a_peers_look_makes_one_assessment_and_the_proof_one_more(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look, rows = Sweeper._one, list[tuple[int, int]]()

    def one(sweeper: Sweeper, node: str, uid: str) -> float:
        before = Counter(asked)
        pause = look(sweeper, node, uid)
        rows.append((asked["assess"] - before["assess"], asked["diagnose"] - before["diagnose"]))
        return pause

    monkeypatch.setattr(Sweeper, "_one", one)
    s = cast()
    s.fault("node-0")
    s.run(5)
    s.kill(alive(s, "node-0"))
    pass_time(s, 600, Cloud(s), until=lambda: phase(s) is Phase.RECOVERED)
    assert phase(s) is Phase.RECOVERED
    assert set(rows) == {(0, 0), (1, 1), (2, 2)}  # the first is a Lease that is not stale yet
    assert rows.count((2, 2)) == 1, "what proves is read once more before the record is closed"
