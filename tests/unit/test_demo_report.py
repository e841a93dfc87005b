"""The demo's books and its summing up: what was seen, in, and what was promised and not kept, out."""

from __future__ import annotations

import io
from typing import Any

import pytest
from recovery_demo import manifests, seen
from recovery_demo.ledger import Ledger
from recovery_demo.narrator import Line, Narrator
from recovery_demo.report import moved, rebooted_first, replaced, table
from recovery_demo.screen import Screen
from recovery_demo.seen import Seen

from recovery.store.lease import lease_name
from tests.builders.objects import Json, event_object, gate_object, node_object, pod_object, record_object

NODES = {"n1": "i-1", "n2": "i-2", "n3": "i-3", "n4": "i-4"}
METRICS = {
    "DMA": 1.0,
    "HBM": 1.0,
    "RecoveryAction(replace, started)": 2.0,
    "RecoveryAction(replace, succeeded)": 2.0,
}

BUDGET_USED_UP = event_object("n2", "Held", "waiting: the budget of the fleet is used up: 1 of 1")


def leaving(name: str, on: str) -> Json:
    """A trainer that has been asked to go."""
    return trainer(name, on, deletionTimestamp="2026-01-01T00:00:00Z")


def trainer(name: str, on: str, *, ready: bool = True, **metadata: Any) -> Json:
    return pod_object(name, on=on, ready=ready, labels={"app": manifests.APP}, **metadata)


class Story:
    """Two recoveries, as they should be; each test spoils one thing."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.at = 0.0
        self.hear(seen.SIMULATOR, {"did": "began", "nodes": NODES})
        for name in NODES:
            self.hear(seen.NODES, node_object(name))
            self.hear(seen.PODS, trainer(f"t-{name}", name))

    def hear(self, source: str, what: dict[str, Any], gone: bool = False) -> None:
        self.at += 1.0
        self.ledger.hear(Seen(self.at, source, what, gone))

    def recover(self, old: str, reason: str, new: str, by: str = "n3") -> None:
        self.ledger.expect(old, reason, self.at)
        self.hear(seen.RECORDS, record_object(old, "suspect"))
        self.hear(seen.GATES, gate_object(old))
        self.hear(seen.NODES, node_object(old, closed=True))
        self.hear(seen.PODS, leaving(f"t-{old}", old))
        self.hear(seen.EVENTS, event_object(old, "Waiting", "t: The disruption budget trainer needs 3"))
        self.hear(seen.PODS, trainer(f"t-{old}-again", "n3"))
        self.hear(seen.RECORDS, record_object(old, "recovering", ("rung", "drained in 5 s; next: replace")))
        self.hear(seen.AWS, {"action": "SetInstanceHealth", "instance": NODES[old]})
        self.hear(seen.SIMULATOR, {"did": "terminated", "node": old, "instance": NODES[old], "process": 7})
        self.hear(seen.NODES, node_object(old, closed=True), gone=True)
        self.hear(seen.SIMULATOR, {"did": "launched", "node": new, "instance": "i-new", "instead": old})
        self.hear(seen.NODES, node_object(new))
        holder = {"metadata": {"name": lease_name(old)}, "spec": {"holderIdentity": f"concluder/{by}/p/t"}}
        self.hear(seen.LEASES, holder)
        self.hear(seen.RECORDS, record_object(old, "recovered", ("rung", "drained in 5 s; next: replace")))
        self.hear(seen.GATES, gate_object())

    def both(self) -> None:
        self.hear(seen.EVENTS, BUDGET_USED_UP)
        self.recover("n1", "DMA", "n5")
        self.recover("n2", "HBM", "n6")

    def wrong(self, metrics: dict[str, float] = METRICS) -> list[str]:
        return [str(c) for c in replaced(self.ledger, metrics, 4, 4) if not c.kept]


@pytest.fixture
def story() -> Story:
    return Story()


def test_the_story_as_it_should_be(story: Story) -> None:
    story.both()
    assert story.wrong() == []
    assert story.ledger.over
    first = next(iter(story.ledger.recoveries.values()))
    assert list(first.times) == [
        "fault", "seen", "slot", "cordoned", "drained", "marked", "terminated", "ready", "proved",
    ]  # fmt: skip


def test_nothing_is_kept_when_nothing_happened(story: Story) -> None:
    assert len(story.wrong({})) == 7


def test_a_call_too_many(story: Story) -> None:
    story.both()
    story.hear(seen.AWS, {"action": "SetInstanceHealth", "instance": "i-1"})
    (wrong,) = story.wrong()
    assert "it was called for i-1, i-2, i-1, not for i-1, i-2" in wrong


def test_two_slots_at_once(story: Story) -> None:
    story.both()
    story.hear(seen.GATES, gate_object("n1", "n2"))
    assert not story.ledger.over
    assert any("2 slots" in w for w in story.wrong())


def test_a_budget_of_pods_that_was_violated(story: Story) -> None:
    story.both()
    story.hear(seen.PODS, leaving("t-n3", "n3"))
    story.hear(seen.PODS, trainer("t-n4", "n4"), gone=True)
    assert story.wrong() == [
        "the disruption budget was never violated: at least 3 of 4 trainers served: once there were 2"
    ]


def test_a_node_that_was_touched_and_one_that_stays_cordoned(story: Story) -> None:
    story.both()
    story.hear(seen.NODES, node_object("n4", closed=True))
    assert story.wrong() == [
        "4 nodes are Ready, and none is cordoned or tainted: 3 of 4 are",
        "the other 2 nodes were never touched: touched: n4",
    ]


def test_an_agent_that_concluded_its_own_record_is_no_peer(story: Story) -> None:
    story.hear(seen.EVENTS, BUDGET_USED_UP)
    story.recover("n1", "DMA", "n5", by="n1")
    story.recover("n2", "HBM", "n6")
    (wrong,) = story.wrong()
    assert "n1 by n1" in wrong


def test_a_metric_that_is_missing(story: Story) -> None:
    story.both()
    (wrong,) = story.wrong({**METRICS, "RecoveryAction(replace, succeeded)": 1.0})
    assert wrong.endswith("missing: RecoveryAction(replace, succeeded)")


def test_the_table_counts_from_the_fault_and_from_the_phase_before(story: Story) -> None:
    story.recover("n1", "DMA", "n5")
    rows = table(story.ledger.recoveries.values())
    assert rows[0].split() == ["n1"]
    assert rows[2].split()[-2:] == ["0.0", "s"]
    assert rows[3].split()[-3:] == ["1.0", "s", "(+1.0)"]
    assert not any("handed over" in row for row in rows)


# ---------------------------------------------------------------- on Azure

SCALE_SET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/workers"


def booted(name: str, boot: str, *, closed: bool = True, off: bool = False) -> dict[str, Any]:
    found = node_object(name, closed=closed)
    found["metadata"]["uid"] = f"uid-{name}"
    found["spec"]["providerID"] = f"azure://{SCALE_SET}/virtualMachines/0"
    ready = "Unknown" if off else "True"
    found["status"] = {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"bootID": boot}}
    return found


def point(metric: str, *dimensions: str, subject: str = SCALE_SET) -> dict[str, Any]:
    about = {"namespace": "NodeRecovery", "subject": subject}
    return {"metric": metric, "value": 1.0, "dimensions": list(dimensions), **about}


class Moving(Story):
    """A reimage that does not help, and a redeploy that does; each test spoils one thing."""

    def begin(self) -> None:
        self.hear(seen.NODES, booted("n1", "boot-1", closed=False))
        self.ledger.expect("n1", "GpuCountBad", self.at)
        self.hear(seen.SIMULATOR, {"did": "fault", "node": "n1", "page": "bad", "host": 1})
        self.hear(seen.RECORDS, record_object("n1", "suspect"))
        self.metrics(point("GpuCountBad"))
        self.hear(seen.GATES, gate_object("n1"))
        self.hear(seen.NODES, booted("n1", "boot-1"))
        self.hear(seen.PODS, leaving("t-n1", "n1"))
        self.hear(seen.EVENTS, event_object("n1", "Waiting", "t: The disruption budget trainer needs 3"))
        self.hear(seen.PODS, trainer("t-again", "n3"))
        self.hear(seen.RECORDS, record_object("n1", "recovering", ("rung", "drained in 5 s; next: reimage")))

    def metrics(self, *points: dict[str, Any]) -> None:
        self.hear(seen.SIMULATOR, {"did": "metrics", "points": list(points)})

    def act(self, verb: str, host: int, boot: str, *, cured: bool) -> None:
        self.metrics(point("GpuCountBad"), point("RecoveryAction", verb, "started"))
        self.hear(seen.SIMULATOR, {"did": "asked", "node": "n1", "verb": verb, "line": f"POST /0/{verb}"})
        self.hear(seen.NODES, booted("n1", "boot-1", off=True))
        self.hear(seen.SIMULATOR, {"did": "booted", "node": "n1", "host": host})
        self.hear(seen.NODES, booted("n1", boot))
        self.hear(seen.SIMULATOR, {"did": "checked", "node": "n1", "host": host, "bad": not cured})

    def come_back(self) -> None:
        self.hear(seen.EVENTS, event_object("n1", "FaultReturned", "GpuCountBad came back in probation"))

    def end(self) -> None:
        self.hear(seen.NODES, booted("n1", "boot-3", closed=False))
        self.hear(seen.RECORDS, record_object("n1", "recovered"))
        self.hear(seen.GATES, gate_object())
        self.metrics(point("RecoveryAction", "redeploy", "succeeded"))

    def all(self) -> None:
        self.begin()
        self.act("reimage", 1, "boot-2", cured=False)
        self.come_back()
        self.act("redeploy", 5, "boot-3", cured=True)
        self.end()

    def wrong_here(self) -> list[str]:
        return [str(c) for c in moved(self.ledger, 4, 4) if not c.kept]


@pytest.fixture
def moving() -> Moving:
    return Moving()


def test_the_story_of_azure_as_it_should_be(moving: Moving) -> None:
    moving.all()
    assert moving.wrong_here() == []
    assert moving.ledger.over
    assert list(moving.ledger.recoveries["n1"].times) == [
        "fault", "seen", "slot", "cordoned", "drained",
        "reimage", "booted", "again", "redeploy", "moved", "healed",
    ]  # fmt: skip


def test_nothing_is_kept_on_azure_when_nothing_happened(moving: Moving) -> None:
    assert len(moving.wrong_here()) == 10


def test_a_redeploy_too_many_and_a_call_that_names_no_machine(moving: Moving) -> None:
    moving.all()
    moving.hear(seen.SIMULATOR, {"did": "asked", "node": "", "verb": "reimage", "line": "POST /reimage"})
    (wrong,) = moving.wrong_here()
    assert wrong.endswith("it was asked for reimage of n1, redeploy of n1, reimage of no machine")


def test_a_redeploy_that_stays_on_its_host(moving: Moving) -> None:
    moving.begin()
    moving.act("reimage", 1, "boot-2", cured=False)
    moving.come_back()
    moving.act("redeploy", 1, "boot-3", cured=True)
    moving.end()
    (wrong,) = moving.wrong_here()
    assert wrong.endswith("it was on the hosts 1, 1, 1")


def test_a_boot_that_was_none_and_a_node_that_is_another(moving: Moving) -> None:
    moving.begin()
    moving.act("reimage", 1, "boot-1", cured=False)
    moving.come_back()
    moving.act("redeploy", 5, "boot-3", cured=True)
    moving.end()
    other = booted("n1", "boot-3", closed=False)
    other["metadata"]["uid"] = "uid-other"
    moving.hear(seen.NODES, other)
    (wrong,) = moving.wrong_here()
    assert wrong.endswith("the boot IDs were boot-1, boot-3, and it is another Node now")


def test_metrics_of_a_machine_are_no_metrics_of_the_scale_set(moving: Moving) -> None:
    moving.all()
    moving.metrics(point("GpuCountBad", subject=f"{SCALE_SET}/virtualMachines/0"))
    (wrong,) = moving.wrong_here()
    assert wrong.startswith("they are metrics of the scale set")


# ---------------------------------------------------------------- a GPU on AWS

XID_METRICS = {
    "GpuXid79": 1.0,
    "RecoveryAction(reboot, started)": 1.0,
    "RecoveryAction(replace, started)": 1.0,
    "RecoveryAction(replace, succeeded)": 1.0,
}


class Xid(Story):
    """A reboot that does not help, and then a replacement; each test spoils one thing."""

    def all(self, *, hidden: bool = True, boot: str = "boot-2", waits: float = 5.0, again: int = 0) -> None:
        self.hear(seen.NODES, booted("n1", "boot-1", closed=False))
        self.ledger.expect("n1", "GpuXid79", self.at)
        self.hear(seen.RECORDS, record_object("n1", "suspect"))
        if hidden:
            self.hear(seen.SIMULATOR, {"did": "restarted", "node": "n1"})
        self.at += waits
        self.hear(seen.GATES, gate_object("n1"))
        self.hear(seen.NODES, booted("n1", "boot-1"))
        self.hear(seen.PODS, leaving("t-n1", "n1"))
        self.hear(seen.EVENTS, event_object("n1", "Waiting", "t: The disruption budget trainer needs 3"))
        self.hear(seen.PODS, trainer("t-again", "n3"))
        self.hear(seen.RECORDS, record_object("n1", "recovering", ("rung", "drained in 5 s; next: reboot")))
        for _ in range(1 + again):
            self.hear(seen.AWS, {"action": "RebootInstances", "instance": "i-1"})
        self.hear(seen.NODES, booted("n1", "boot-1", off=True))
        self.hear(seen.NODES, booted("n1", boot))
        self.hear(seen.SIMULATOR, {"did": "again", "node": "n1", "page": "xid-79"})
        self.hear(seen.EVENTS, event_object("n1", "FaultReturned", "GpuXid79 came back in probation"))
        self.hear(seen.AWS, {"action": "SetInstanceHealth", "instance": "i-1"})
        self.hear(seen.SIMULATOR, {"did": "terminated", "node": "n1", "instance": "i-1", "process": 7})
        self.hear(seen.NODES, booted("n1", boot), gone=True)
        self.hear(seen.SIMULATOR, {"did": "launched", "node": "n5", "instance": "i-new", "instead": "n1"})
        self.hear(seen.NODES, node_object("n5"))
        holder = {"metadata": {"name": lease_name("n1")}, "spec": {"holderIdentity": "concluder/n3/p/t"}}
        self.hear(seen.LEASES, holder)
        self.hear(seen.RECORDS, record_object("n1", "recovered"))
        self.hear(seen.GATES, gate_object())

    def wrong_here(self, metrics: dict[str, float] = XID_METRICS) -> list[str]:
        return [str(c) for c in rebooted_first(self.ledger, metrics, 4, 4, 5.0) if not c.kept]


@pytest.fixture
def xid() -> Xid:
    return Xid()


def test_the_story_of_an_xid_as_it_should_be(xid: Xid) -> None:
    xid.all()
    assert xid.wrong_here() == []
    assert xid.ledger.over
    assert list(xid.ledger.recoveries["n1"].times) == [
        "fault", "seen", "hidden", "slot", "cordoned", "drained",
        "reboot", "booted", "again", "marked", "terminated", "ready", "proved",
    ]  # fmt: skip


def test_nothing_is_kept_of_an_xid_when_nothing_happened(xid: Xid) -> None:
    assert len(xid.wrong_here({})) == 11


def test_a_node_that_was_cordoned_too_soon(xid: Xid) -> None:
    xid.all(waits=0.0)
    (wrong,) = xid.wrong_here()
    assert wrong == "nothing was done to the node before its XID was 5 s old: it was cordoned after 4.0 s"


def test_an_xid_that_the_page_still_showed_proves_less(xid: Xid) -> None:
    xid.all(hidden=False)
    (wrong,) = xid.wrong_here()
    assert wrong.endswith("the page still showed it")


def test_a_second_reboot(xid: Xid) -> None:
    xid.all(again=1)
    (wrong,) = xid.wrong_here()
    assert wrong.endswith(
        "it was asked for RebootInstances of i-1, RebootInstances of i-1, SetInstanceHealth of i-1"
    )


def test_a_reboot_that_was_none(xid: Xid) -> None:
    xid.all(boot="boot-1")
    (wrong,) = xid.wrong_here()
    assert wrong.endswith("the boot IDs were boot-1")


def test_a_call_that_reaches_aws_is_told_by_its_name() -> None:
    narrator = Narrator("10s")
    (line,) = narrator.hear(Seen(1.0, seen.AWS, {"action": "RebootInstances", "instance": "i-1"}))
    assert line.text == "received RebootInstances for i-1"


# ---------------------------------------------------------------- lines


def test_an_event_is_told_once_and_in_its_own_words() -> None:
    narrator = Narrator("10s")
    said = narrator.hear(Seen(1.0, seen.EVENTS, event_object("n1", "FaultSeen", "DMA was seen")))
    assert said == [Line(1.0, "node-recovery", "n1", "DMA was seen", strong=True)]
    assert (
        narrator.hear(Seen(2.0, seen.EVENTS, event_object("n1", "FaultSeen", "DMA was seen", count=2))) == []
    )


def test_what_says_again_what_was_just_said_is_not_told() -> None:
    narrator = Narrator("10s")

    def heard(about: str, reason: str, message: str) -> int:
        return len(narrator.hear(Seen(1.0, seen.EVENTS, event_object(about, reason, message))))

    assert heard("n1", "Draining", "draining, 1 pod left") == 1
    assert heard("n1", "Waiting", "DMA: draining, 1 pod left; it waits") == 0
    assert heard("n2", "Draining", "draining, 1 pod left") == 1
    assert heard("n1", "NextStep", "drained in 5 s") == 1
    assert heard("n1", "Draining", "draining, 1 pod left") == 1


def test_a_lease_that_passes_to_a_peer_names_the_process() -> None:
    narrator = Narrator("10s")
    narrator.hear(Seen(0.0, seen.NODES, node_object("n1")))
    narrator.hear(Seen(0.0, seen.SIMULATOR, {"did": "ready", "node": "n3", "process": 42}))
    spec = {"holderIdentity": "concluder/n3/p/t"}
    lease = {"metadata": {"name": lease_name("n1")}, "spec": spec}
    (line,) = narrator.hear(Seen(9.0, seen.LEASES, lease))
    assert line.node == "n1"
    assert "the sidecar of n3 (process 42) takes the record" in line.text
    assert narrator.hear(Seen(9.5, seen.LEASES, lease)) == []


def test_lines_are_wrapped_under_themselves_and_plain_where_nobody_sees_colour() -> None:
    out = io.StringIO()
    Screen(out).line(Line(12.34, "node-recovery", "n1", "word " * 40, strong=True))
    first, second, *_ = out.getvalue().splitlines()
    assert first.startswith(" 12.3 s  node-recovery  n1")
    assert "\033" not in out.getvalue()
    assert first.index("word") == second.index("word")


def test_what_reaches_azure_is_told_in_short() -> None:
    narrator = Narrator("10s")
    narrator.begin()
    path = f"{SCALE_SET}/virtualMachines/0/reimage"
    asked = {"did": "asked", "node": "n1", "verb": "reimage", "line": f"POST {path}"}
    (line,) = narrator.hear(Seen(1.0, seen.SIMULATOR, asked))
    assert (line.who, line.node, line.text) == (
        "azure (fake)",
        "n1",
        "received POST workers/virtualMachines/0/reimage",
    )
    points = [point("GpuCountBad"), point("RecoveryAction", "reimage", "started")]
    (line,) = narrator.hear(Seen(2.0, seen.SIMULATOR, {"did": "metrics", "points": points}))
    assert line.text == "Azure Monitor received GpuCountBad = 1, RecoveryAction(reimage, started) = 1"


def test_a_node_that_goes_and_comes_back_is_told_with_its_boot() -> None:
    narrator = Narrator("10s")
    assert narrator.hear(Seen(0.0, seen.NODES, booted("n1", "boot-1", closed=False))) == []
    (off,) = narrator.hear(Seen(1.0, seen.NODES, booted("n1", "boot-1", closed=False, off=True)))
    (back,) = narrator.hear(Seen(2.0, seen.NODES, booted("n1", "boot-2", closed=False)))
    assert (off.text, back.text) == ("Node is NotReady", "Node is Ready; its boot ID is boot-2 now")


def test_an_agent_that_comes_back_from_a_peer_is_told() -> None:
    narrator = Narrator("10s")
    narrator.hear(Seen(0.0, seen.NODES, node_object("n1")))

    def held(by: str) -> list[Line]:
        lease = {"metadata": {"name": lease_name("n1")}, "spec": {"holderIdentity": by}}
        return narrator.hear(Seen(1.0, seen.LEASES, lease))

    assert held("owner/n1/p/t") == []
    assert len(held("concluder/n3/p/t")) == 1
    (line,) = held("owner/n1/p/u")
    assert (line.node, line.text) == ("n1", "its own agent is back, and the peer gives way to it")
    assert held("owner/n1/p/u") == []
