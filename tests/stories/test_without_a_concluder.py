"""Records that the gate does not list, and whose agents are dead, in a fleet without a concluder.

About once an hour one of the agents, drawn by lot, looks through all records, and takes them up.
"""

from __future__ import annotations

from dataclasses import replace

from recovery_testkit.stage import Stage

from recovery.model import Phase, ReleaseRequest
from recovery.store.record_codec import encode
from tests.builders.nodes import MACHINE
from tests.builders.records import record
from tests.stories.scenery import change_gate, records
from tests.stories.scenes import cast


def fleet() -> Stage:
    """Two agents. One healthy node has a record that only reports, so that there is a gate."""
    s = cast(agents=2)
    s.fault("node-0", "HANG_ON_COLLECTIVES")
    census = {"at": "2026-11-21T03:00:00Z", "population": 2, "sick": [], "byLabel": {}}
    gate = {"apiVersion": "noderecovery.dev/v1alpha1", "kind": "RecoveryGate", "metadata": {"name": "fleet"}}
    (made,) = s.store.load({**gate, "spec": {}, "status": {"version": 1, "stamp": "", "census": census}})
    change_gate(s, lambda g: g["status"].update(stamp=made["metadata"]["uid"]))
    return s


def hours(s: Stage, count: int) -> None:
    for _ in range(count * 60):
        s.clock.advance(60)
        s.run(0)


def of_the_dead(s: Stage, phase: Phase, **changes: object) -> None:
    """A record of a node that is gone, with the agent that wrote it."""
    since = s.clock.true_time()
    gone = replace(MACHINE, id="m-gone")
    made = record(phase, node="gone", uid="", resource_version="", machine=gone, phase_since=since, **changes)
    s.store.load(encode(made))


def test_a_suspect_record_that_never_was_on_the_gate_ends_though_its_agent_is_dead() -> None:
    s = fleet()
    of_the_dead(s, Phase.SUSPECT)
    hours(s, 8)
    assert records(s)["gone"] == "superseded"


def test_a_release_of_a_node_in_a_persons_hands_is_answered_though_its_agent_is_dead() -> None:
    s = fleet()
    asked = ReleaseRequest("ada@laptop", s.clock.true_time(), "card reseated")
    of_the_dead(s, Phase.HANDED_OVER, release=asked)
    hours(s, 8)
    assert records(s)["gone"] in ("released", "superseded")
