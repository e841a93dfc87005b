"""How soon a peer ends what a dead agent left open: once its Lease has run out, and then without pauses."""

from __future__ import annotations

from datetime import timedelta

from recovery_testkit.stage import Stage

from recovery.agent.peers import Sweeper
from recovery.model import Phase


def dead_in_the_middle() -> Stage:
    """n-0 is marked, its machine goes with its agent, and another joins in its place; n-1 looks on."""
    stage = Stage()
    first, second, *_ = stage.nodes(4)
    stage.agent(first)
    stage.agent(second)
    stage.fault(first)
    stage.run(5)
    assert stage.provider.calls, "the machine was not asked for"
    stage.replace_machine(first, "m-0", "node-new", "m-new")
    return stage


def test_after_an_effect_a_peer_goes_on_at_once() -> None:
    stage = dead_in_the_middle()
    stage.run(200)
    record = stage.record("node-0")
    assert record is not None
    assert record.phase is not Phase.RECOVERING
    at = {line.event: line.at for line in record.history}
    assert at["joined"] - at["evidence"] <= timedelta(seconds=0.5)


def test_an_idle_peer_looks_around_once_in_the_length_of_a_lease() -> None:
    stage = Stage()
    actor = stage.agent(stage.nodes(4)[0])
    old = actor.sweeper
    sweeper = Sweeper(old._w, old._observer, old._executor, old._publisher, old._metrics, "node-0", idle=10.0)
    assert 8.0 <= sweeper.sweep() <= 12.0
    assert 48.0 <= old.sweep() <= 72.0
