"""The books of the demo of a fleet and its summing up: each test spoils one thing."""

from __future__ import annotations

from typing import Any

import pytest
from recovery_demo import seen
from recovery_demo.fleet_ledger import LEASE, FleetLedger
from recovery_demo.fleet_manifests import DRIVER
from recovery_demo.fleet_narrator import FleetNarrator
from recovery_demo.narrator import Line
from recovery_demo.report import one_controller, table
from recovery_demo.seen import Seen

from tests.builders.objects import Json, event_object, gate_object, node_object, record_object
from tests.unit.test_demo_report import leaving, trainer

NODES = {f"n{i}": f"i-{i}" for i in range(8)}
XID, GSP = "NvidiaXID79Error", "NvidiaXID119Error"
MANY = ["n2", "n3", "n4"]
SHARED = f"{GSP} is held: {GSP} has one cause on many machines: 3 of the 3 machines have {DRIVER}=580"
METRICS = {"NodeStatusUnknown": 1.0, XID: 1.0, GSP: 1.0, "RecoveryAction(replace, succeeded)": 5.0}
STATUS = [f"{node}   waiting   {SHARED}" for node in MANY]
APPROVED = {"approved": [{"reason": GSP, "by": "ada", "until": "2999-01-01T00:00:00Z"}]}


def lease(holder: str) -> Json:
    return {"metadata": {"name": LEASE}, "spec": {"holderIdentity": holder}}


class Fleet:
    """Five recoveries and a leader that is killed."""

    def __init__(self) -> None:
        self.ledger = FleetLedger()
        self.at = 0.0
        self.hear(seen.SIMULATOR, {"did": "began", "nodes": NODES})
        self.hear(seen.LEASES, lease("owner/fleet/pod/1"))
        for name in NODES:
            self.hear(seen.NODES, node_object(name))
            self.hear(seen.PODS, trainer(f"t-{name}", name))

    def hear(self, source: str, what: dict[str, Any], gone: bool = False) -> None:
        self.at += 1.0
        if "metadata" in what:
            what["metadata"]["resourceVersion"] = str(int(self.at))
        self.ledger.hear(Seen(self.at, source, what, gone))

    def start(self, node: str, reason: str, **gate: Json) -> None:
        """Until the provider has taken the call."""
        if node not in self.ledger.recoveries:
            self.ledger.expect(node, reason, self.at)
        self.hear(seen.GATES, gate_object(node, **gate))
        self.hear(seen.NODES, node_object(node, closed=True))
        self.hear(seen.PODS, leaving(f"t-{node}", node))
        self.hear(seen.PODS, trainer(f"t-{node}-again", "n7"))
        self.hear(seen.AWS, {"action": "SetInstanceHealth", "instance": NODES[node]})
        self.hear(seen.RECORDS, record_object(node, "recovering", intent={"state": "submitted"}))

    def end(self, node: str) -> None:
        self.hear(seen.NODES, node_object(node, closed=True), gone=True)
        self.hear(seen.PODS, leaving(f"t-{node}", node), gone=True)
        new = f"{node}-new"
        self.hear(seen.SIMULATOR, {"did": "launched", "node": new, "instance": "i-new", "instead": node})
        self.hear(seen.NODES, node_object(new))
        self.hear(seen.RECORDS, record_object(node, "recovered"))
        self.hear(seen.GATES, gate_object())

    def hold(self) -> None:
        for node in MANY:
            self.ledger.expect(node, GSP, self.at)
            self.hear(seen.RECORDS, record_object(node, "waiting", sentence=SHARED))

    def taken_over(self) -> None:
        self.start("n0", "NodeStatusUnknown")
        self.hear(seen.SIMULATOR, {"did": "killed", "node": "controller-1", "process": 7})
        self.at += 15.0
        self.hear(seen.LEASES, lease("owner/fleet/pod/2"))
        self.end("n0")
        self.start("n1", XID)
        self.end("n1")

    def let_go(self) -> None:
        for node in MANY:
            self.start(node, GSP, spec=APPROVED)
            self.end(node)

    def all(self) -> None:
        self.taken_over()
        self.hold()
        self.let_go()

    def wrong(self, metrics: dict[str, float] = METRICS, status: list[str] = STATUS) -> list[str]:
        return [str(c) for c in one_controller(self.ledger, metrics, 8, 8, MANY, status) if not c.kept]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_the_story_of_a_fleet_as_it_should_be(fleet: Fleet) -> None:
    fleet.all()
    assert fleet.wrong() == []
    assert fleet.ledger.over
    assert fleet.ledger.submitted == {"n0", "n1", *MANY}
    times = fleet.ledger.recoveries["n2"].times
    assert list(times) == [
        "fault",
        "seen",
        "held",
        "approved",
        "slot",
        "cordoned",
        "marked",
        "ready",
        "proved",
    ]
    assert any("approved by a person" in row for row in table([fleet.ledger.recoveries["n2"]]))


def test_nothing_is_kept_of_a_fleet_when_nothing_happened(fleet: Fleet) -> None:
    wrong = [str(c) for c in one_controller(fleet.ledger, {}, 8, 8, [], []) if not c.kept]
    assert len(wrong) == 9


def test_a_call_too_many_is_told_with_its_instance(fleet: Fleet) -> None:
    fleet.all()
    fleet.hear(seen.AWS, {"action": "SetInstanceHealth", "instance": "i-0"})
    (wrong,) = fleet.wrong()
    assert "it was asked for SetInstanceHealth of i-0, SetInstanceHealth of i-0, " in wrong


def test_a_leader_that_nobody_followed(fleet: Fleet) -> None:
    fleet.start("n0", "NodeStatusUnknown")
    fleet.hear(seen.SIMULATOR, {"did": "killed", "node": "controller-1", "process": 7})
    fleet.end("n0")
    assert any("1 held the Lease" in w for w in fleet.wrong())


def test_a_leader_that_was_killed_when_all_was_over(fleet: Fleet) -> None:
    fleet.start("n0", "NodeStatusUnknown")
    fleet.end("n0")
    fleet.hear(seen.SIMULATOR, {"did": "killed", "node": "controller-1", "process": 7})
    fleet.hear(seen.LEASES, lease("owner/fleet/pod/2"))
    fleet.start("n1", XID)
    fleet.end("n1")
    fleet.hold()
    fleet.let_go()
    (wrong,) = fleet.wrong()
    assert wrong.startswith("the leader was killed in the middle of a recovery")


def test_a_trainer_on_a_dead_machine_that_ended_after_all(fleet: Fleet) -> None:
    fleet.hear(seen.PODS, leaving("t-n0", "n0"), gone=True)
    fleet.ledger.left_behind["n0"] = []
    fleet.all()
    (wrong,) = fleet.wrong()
    assert wrong.endswith("it was gone before the call")


def test_a_held_node_that_was_cordoned_before_a_person_let_it_go(fleet: Fleet) -> None:
    fleet.taken_over()
    fleet.hold()
    fleet.hear(seen.NODES, node_object("n3", closed=True))
    fleet.let_go()
    (wrong,) = fleet.wrong()
    assert wrong.endswith("approved their fault: cordon of n3")


def test_a_held_node_that_was_called_for_before_a_person_let_it_go(fleet: Fleet) -> None:
    fleet.taken_over()
    fleet.hold()
    fleet.start("n3", GSP)
    fleet.end("n3")
    for node in ("n2", "n4"):
        fleet.start(node, GSP, spec=APPROVED)
        fleet.end(node)
    (wrong,) = fleet.wrong()
    assert wrong.endswith("slot of n3, cordon of n3, SetInstanceHealth of n3")


def test_a_watch_that_lags_makes_nothing_too_early(fleet: Fleet) -> None:
    fleet.taken_over()
    fleet.hold()
    approval = gate_object(spec=APPROVED)
    approval["metadata"]["resourceVersion"] = str(int(fleet.at) + 1)
    fleet.at += 1.0
    fleet.hear(seen.NODES, node_object("n3", closed=True))
    fleet.ledger.hear(Seen(fleet.at, seen.GATES, approval))
    fleet.let_go()
    assert fleet.wrong() == []


def test_one_that_was_not_held_and_one_that_status_does_not_show(fleet: Fleet) -> None:
    fleet.taken_over()
    fleet.hold()
    del fleet.ledger.held["n4"]
    fleet.let_go()
    first, second = fleet.wrong(status=STATUS[1:])
    assert first.endswith("held: n2, n3; the driver is named for n2, n3")
    assert second == "node-recovery status showed it: it did not for n2"


def test_more_nodes_out_than_the_budget_has(fleet: Fleet) -> None:
    fleet.all()
    fleet.hear(seen.GATES, gate_object(*(f"x{i}" for i in range(5))))
    (wrong,) = fleet.wrong()
    assert wrong.endswith("5 slots, 1 nodes")


# ---------------------------------------------------------------- lines


def test_who_leads_now_is_told_with_its_process() -> None:
    narrator = FleetNarrator("10s")
    narrator.hear(Seen(0.0, seen.LEASES, lease("owner/fleet/pod/1")))
    for number, name in enumerate(("controller-1", "controller-2")):
        narrator.hear(Seen(0.0, seen.SIMULATOR, {"did": "ready", "node": name, "process": number}))
    narrator.begin()
    assert narrator.hear(Seen(1.0, seen.LEASES, lease("owner/fleet/pod/1"))) == []
    assert (
        len(narrator.hear(Seen(1.0, seen.SIMULATOR, {"did": "killed", "node": "controller-1", "process": 0})))
        == 1
    )
    (line,) = narrator.hear(Seen(2.0, seen.LEASES, lease("owner/fleet/pod/2")))
    text = f"the Lease {LEASE} has run out: controller-2 (process 1) leads now"
    assert line == Line(2.0, "node-recovery", "controller-2", text, strong=True)
    assert narrator.hear(Seen(3.0, seen.LEASES, lease(""))) == []


def test_what_holds_a_node_is_told_once() -> None:
    narrator = FleetNarrator("10s")

    def heard(reason: str, message: str) -> int:
        return len(narrator.hear(Seen(1.0, seen.EVENTS, event_object("n1", reason, message))))

    assert heard("Held", SHARED) == 1
    assert heard("Waiting", f"{GSP}: waiting: {SHARED.partition(': ')[2]}") == 0
    assert heard("NextStep", "drained in 2 s") == 1
