"""The story of bare metal in the demo's books, in its summing up, and in lines on the screen."""

from __future__ import annotations

import pytest
from recovery_demo import manifests, seen
from recovery_demo.metal_ledger import MetalLedger
from recovery_demo.narrator import KUBERNETES, KURED, Narrator
from recovery_demo.report import rebooted
from recovery_demo.seen import Seen

from tests.builders.objects import Json, event_object, gate_object, node_object, record_object

NODES = ("gpu-1", "gpu-2", "gpu-3")
UUID = "4c4c4544-0047-4a10-8051-b7c04f484433"
SENTINEL = "node-recovery: gpu-1 is to be rebooted: asked for by its agent, attempt a1b2c3"
HISTORY = ("suspect", "submitted", "evidence", "recovered", "suspect", "handedOver")
RETURNED = "handed over to a person: drained in 2 s; the remedy has no further step (reboot had not helped)"
TOLD = {manifests.CHECKPOINT: "requested", "noderecovery.dev/evict-after": "2026-01-01T00:00:30.000000Z"}
PROMISES = 12


def machine(name: str, boot: str = "boot-0", *, closed: bool = False, uid: str = "") -> Json:
    """Its Node, with what says that it is the same machine, and in which boot."""
    info = {"bootID": boot, "systemUUID": f"{UUID}-{name}"}
    return node_object(name, closed=closed, info=info, uid=uid or f"uid-{name}")


def trainer(name: str, on: str, *, notes: dict[str, str] | None = None, end: str = "") -> Json:
    """``end``: the moment of January 1 at which it ended; empty while it runs."""
    meta = {"name": name, "labels": {"app": manifests.APP}, "annotations": notes or {}}
    status: Json = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    if end:
        terminated = {"exitCode": manifests.CHECKPOINTED, "finishedAt": f"2026-01-01T{end}.000000Z"}
        status = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": terminated}}]}
    return {"metadata": meta, "spec": {"nodeName": on}, "status": status}


def job(name: str, on: str, ended: str = "") -> Json:
    conditions = [{"type": ended, "status": "True"}] if ended else []
    spec = {"template": {"spec": {"nodeName": on}}}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}


def record(phase: str, *events: str) -> Json:
    history = ((event, "drained in 4 s" if event == "rung" else event) for event in events)
    return record_object("gpu-1", phase, *history)


class Metal:
    """The story as it should be, in steps; each test leaves one out, or does it otherwise."""

    def __init__(self) -> None:
        self.ledger = MetalLedger()
        self.at = 0.0
        self.hear(seen.SIMULATOR, {"did": "began", "nodes": dict.fromkeys(NODES, "")})
        for number, name in enumerate(NODES, 1):
            self.hear(seen.NODES, machine(name))
            self.hear(seen.PODS, trainer(f"t-{number}", name))

    def hear(self, source: str, what: Json, gone: bool = False) -> None:
        """Objects get their resourceVersion in the order in which they are heard, if they have none."""
        self.at += 1.0
        if "metadata" in what:
            what["metadata"].setdefault("resourceVersion", str(int(self.at)))
        self.ledger.hear(Seen(self.at, source, what, gone))

    def begin(self) -> None:
        self.ledger.expect("gpu-1", "GpuCountBad", self.at)
        self.hear(seen.RECORDS, record("suspect", "suspect"))
        self.hear(seen.GATES, gate_object("gpu-1"))
        self.hear(seen.NODES, machine("gpu-1", closed=True))

    def checkpoint(self, notes: dict[str, str] = TOLD, end: str = "00:00:05") -> None:
        self.hear(seen.PODS, trainer("t-1", "gpu-1", notes=notes))
        self.hear(seen.PODS, trainer("t-1", "gpu-1", notes=notes, end=end))
        self.hear(seen.PODS, trainer("t-4", "gpu-2"))
        self.hear(seen.RECORDS, record("recovering", "suspect", "rung"))

    def kured(self, on: str = "gpu-1", text: str = SENTINEL) -> None:
        told = {"did": "sentinel", "node": on, "path": f"/run/{on}/reboot-required", "text": text}
        self.hear(seen.SIMULATOR, told)

    def boot(self, boot: str = "boot-1", uid: str = "") -> None:
        self.hear(seen.NODES, machine("gpu-1", boot, closed=True, uid=uid))

    def validate(self, on: str = "gpu-1", ended: str = "Complete") -> None:
        self.hear(seen.JOBS, job("v", on))
        self.hear(seen.JOBS, job("v", on, ended))

    def give_back(self, boot: str = "boot-1", uid: str = "") -> None:
        self.hear(seen.NODES, machine("gpu-1", boot, uid=uid))
        self.hear(seen.RECORDS, record("recovered", "suspect", "submitted", "recovered"))
        self.hear(seen.GATES, gate_object())

    def come_back(self, told: str = RETURNED, history: tuple[str, ...] = HISTORY) -> None:
        self.ledger.again("gpu-1", self.at)
        self.hear(seen.EVENTS, event_object("gpu-1", "HandedOver", told))
        self.hear(seen.RECORDS, record("handedOver", *history))

    def up_to_the_boot(self) -> None:
        self.begin()
        self.checkpoint()
        self.kured()
        self.boot()

    def all(self) -> None:
        self.up_to_the_boot()
        self.validate()
        self.give_back()
        self.come_back()

    def wrong(self) -> list[str]:
        checks = rebooted(self.ledger, 3, 3)
        assert len(checks) == PROMISES
        return [str(c) for c in checks if not c.kept]


@pytest.fixture
def metal() -> Metal:
    return Metal()


def test_the_story_of_bare_metal_as_it_should_be(metal: Metal) -> None:
    metal.all()
    assert metal.wrong() == []
    assert metal.ledger.handed
    assert list(metal.ledger.recoveries["gpu-1"].times) == [
        "fault", "seen", "slot", "cordoned", "told", "ended", "drained",
        "sentinel", "rebooted", "validating", "passed", "given", "back", "handed",
    ]  # fmt: skip


def test_the_recovery_is_over_before_the_fault_comes_back_and_the_hand_over_is_not(metal: Metal) -> None:
    metal.up_to_the_boot()
    assert not metal.ledger.over
    metal.validate()
    metal.give_back()
    assert metal.ledger.over
    assert not metal.ledger.handed


def test_nothing_is_kept_on_bare_metal_when_nothing_happened(metal: Metal) -> None:
    assert len(metal.wrong()) == PROMISES


def test_a_trainer_that_was_not_told(metal: Metal) -> None:
    metal.begin()
    metal.checkpoint(notes={})
    metal.kured()
    metal.boot()
    metal.validate()
    metal.give_back()
    metal.come_back()
    (wrong,) = metal.wrong()
    assert wrong.endswith("t-1: not told, ended at 00:00:05")


def test_a_trainer_that_ended_too_late(metal: Metal) -> None:
    metal.begin()
    metal.checkpoint(end="00:00:31")
    metal.kured()
    metal.boot()
    metal.validate()
    metal.give_back()
    metal.come_back()
    (wrong,) = metal.wrong()
    assert wrong.endswith("t-1: told to end before 00:00:30, ended at 00:00:31")


@pytest.mark.parametrize("how", ["deletionTimestamp", "DisruptionTarget", "gone"])
def test_a_trainer_that_was_evicted(metal: Metal, how: str) -> None:
    metal.begin()
    pod = trainer("t-1", "gpu-1", notes=TOLD)
    if how == "deletionTimestamp":
        pod["metadata"][how] = "2026-01-01T00:00:31Z"
    if how == "DisruptionTarget":
        pod["status"]["conditions"].append({"type": how, "status": "True"})
    metal.hear(seen.PODS, pod, gone=how == "gone")
    metal.checkpoint()
    metal.kured()
    metal.boot()
    metal.validate()
    metal.give_back()
    metal.come_back()
    late, evicted = metal.wrong()
    assert late.endswith("ended at 00:00:05, evicted")
    assert evicted.endswith("evicted: t-1; 3 serve")


def test_a_trainer_that_went_on_nowhere_and_one_that_failed_besides(metal: Metal) -> None:
    metal.all()
    metal.hear(seen.PODS, trainer("t-4", "gpu-2", end="00:01:00"))
    (wrong,) = metal.wrong()
    assert wrong.endswith("evicted: none; 2 serve")
    metal.hear(seen.PODS, trainer("t-3", "gpu-3", end="00:01:00"))
    assert any(w.endswith("once there were 1") for w in metal.wrong())


def test_a_sentinel_too_many_one_elsewhere_one_of_somebody_else_and_none(metal: Metal) -> None:
    metal.all()
    metal.kured()
    assert len(metal.wrong()) == 1
    metal.ledger.sentinels = [("gpu-2", SENTINEL)]
    (wrong,) = metal.wrong()
    assert wrong.endswith(f"on gpu-2: {SENTINEL}")
    metal.ledger.sentinels = [("gpu-1", "*** System restart required ***")]
    assert len(metal.wrong()) == 1
    metal.ledger.sentinels = []
    (wrong,) = metal.wrong()
    assert wrong.endswith("it was not asked")


def test_a_sentinel_on_a_machine_without_a_story_is_counted_too(metal: Metal) -> None:
    metal.all()
    metal.kured(on="gpu-3")
    assert [on for on, _ in metal.ledger.sentinels] == ["gpu-1", "gpu-3"]
    assert len(metal.wrong()) == 1


def test_a_reboot_that_was_none(metal: Metal) -> None:
    metal.begin()
    metal.checkpoint()
    metal.kured()
    metal.validate()
    metal.give_back("boot-0")
    metal.come_back()
    (wrong,) = metal.wrong()
    assert wrong.endswith("the boot IDs were boot-0")


def test_a_boot_too_many(metal: Metal) -> None:
    metal.all()
    metal.hear(seen.NODES, machine("gpu-1", "boot-2"))
    (wrong,) = metal.wrong()
    assert wrong.endswith("the boot IDs were boot-0, boot-1, boot-2")


def test_a_node_that_is_another_and_one_that_is_another_machine(metal: Metal) -> None:
    metal.all()
    metal.hear(seen.NODES, machine("gpu-1", "boot-1", uid="uid-other"))
    (wrong,) = metal.wrong()
    assert wrong.endswith("the boot IDs were boot-0, boot-1, and it is another Node now")
    other = machine("gpu-1", "boot-1")
    other["status"]["nodeInfo"]["systemUUID"] = f"{UUID}-another"
    metal.hear(seen.NODES, other)
    (wrong,) = metal.wrong()
    assert wrong.endswith("and it is another Node now")


def test_a_validation_that_failed_one_on_another_node_and_none(metal: Metal) -> None:
    for how in ({"ended": "Failed"}, {"on": "gpu-2"}, None):
        metal = Metal()
        metal.up_to_the_boot()
        if how is not None:
            metal.validate(**how)
        metal.give_back()
        metal.come_back()
        (wrong,) = metal.wrong()
        assert wrong.startswith("a validation Job succeeded there")


def test_marks_that_came_off_before_the_job_had_succeeded(metal: Metal) -> None:
    metal.up_to_the_boot()
    metal.hear(seen.JOBS, job("v", "gpu-1"))
    metal.give_back()
    metal.hear(seen.JOBS, job("v", "gpu-1", "Complete"))
    metal.come_back()
    (wrong,) = metal.wrong()
    assert wrong.startswith("a validation Job succeeded there")


def test_a_taint_that_came_off_alone_before_the_job_had_succeeded(metal: Metal) -> None:
    metal.up_to_the_boot()
    half = machine("gpu-1", "boot-1", closed=True)
    half["spec"]["taints"] = []
    metal.hear(seen.NODES, half)
    metal.validate()
    metal.give_back()
    metal.come_back()
    assert len(metal.wrong()) == 1


def test_the_order_is_the_apis_and_not_that_of_two_watches(metal: Metal) -> None:
    metal.up_to_the_boot()
    metal.hear(seen.JOBS, job("v", "gpu-1"))
    ended, opened = job("v", "gpu-1", "Complete"), machine("gpu-1", "boot-1")
    ended["metadata"]["resourceVersion"], opened["metadata"]["resourceVersion"] = "500", "501"
    metal.hear(seen.NODES, opened)
    metal.hear(seen.JOBS, ended)
    metal.give_back()
    metal.come_back()
    assert metal.wrong() == []


def test_a_hand_over_that_does_not_say_what_was_tried(metal: Metal) -> None:
    metal.up_to_the_boot()
    metal.validate()
    metal.give_back()
    metal.come_back(told="handed over to a person: something else")
    (wrong,) = metal.wrong()
    assert wrong.endswith("handed over to a person: something else")


def test_a_record_that_has_forgotten_the_recovery(metal: Metal) -> None:
    metal.up_to_the_boot()
    metal.validate()
    metal.give_back()
    metal.come_back(history=("suspect", "handedOver"))
    (wrong,) = metal.wrong()
    assert wrong.endswith("suspect, handedOver")


def test_a_place_that_is_still_held_and_a_neighbour_that_was_touched(metal: Metal) -> None:
    metal.all()
    metal.hear(seen.GATES, gate_object("gpu-1"))
    assert not metal.ledger.handed
    (wrong,) = metal.wrong()
    assert wrong.endswith("held by gpu-1")
    metal.hear(seen.GATES, gate_object())
    metal.hear(seen.NODES, machine("gpu-3", closed=True))
    (wrong,) = metal.wrong()
    assert wrong.endswith("touched: gpu-3")


# ---------------------------------------------------------------- lines


def test_a_trainer_is_told_once_that_it_was_told_and_then_that_it_ended() -> None:
    narrator = Narrator("10s")
    narrator.hear(Seen(0.0, seen.PODS, trainer("t-1", "gpu-1")))
    narrator.begin()
    (line,) = narrator.hear(Seen(1.0, seen.PODS, trainer("t-1", "gpu-1", notes=TOLD)))
    assert (line.who, line.node) == (KUBERNETES, "gpu-1")
    assert line.text.startswith("t-1 is annotated example.com/checkpoint: requested, noderecovery.dev/evict")
    assert narrator.hear(Seen(1.1, seen.PODS, trainer("t-1", "gpu-1", notes=TOLD))) == []
    over = trainer("t-1", "gpu-1", notes=TOLD, end="00:00:05")
    (line,) = narrator.hear(Seen(2.0, seen.PODS, over))
    assert line.text == "t-1 has written its checkpoint and ended by itself: 0 of 1 trainers serve"
    assert narrator.hear(Seen(2.1, seen.PODS, over)) == []


def test_a_trainer_that_is_evicted_after_all_is_said_to_be() -> None:
    narrator = Narrator("10s")
    narrator.hear(Seen(0.0, seen.PODS, trainer("t-1", "gpu-1")))
    narrator.begin()
    leaving = trainer("t-1", "gpu-1", notes=TOLD)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:31Z"
    (line,) = narrator.hear(Seen(1.0, seen.PODS, leaving))
    assert line.text == "t-1 is evicted: 0 of 1 trainers serve"


@pytest.mark.parametrize("ended", ["Complete", "Failed"])
def test_a_validation_job_is_told_when_it_is_made_and_when_it_has_ended(ended: str) -> None:
    narrator = Narrator("10s")
    (made,) = narrator.hear(Seen(1.0, seen.JOBS, job("v", "gpu-1")))
    assert (made.node, made.text) == ("gpu-1", "Job v is created, for this node only")
    assert narrator.hear(Seen(1.5, seen.JOBS, job("v", "gpu-1"))) == []
    (over,) = narrator.hear(Seen(2.0, seen.JOBS, job("v", "gpu-1", ended)))
    assert over.text == f"Job v is {ended}"
    assert narrator.hear(Seen(2.5, seen.JOBS, job("v", "gpu-1", ended))) == []


def test_kured_says_which_file_it_has_found_and_what_is_in_it() -> None:
    narrator = Narrator("10s")
    narrator.begin()
    told = {"did": "sentinel", "node": "gpu-1", "path": "/run/reboot-required", "text": SENTINEL}
    (line,) = narrator.hear(Seen(1.0, seen.SIMULATOR, told))
    assert (line.who, line.node, line.strong) == (KURED, "gpu-1", True)
    assert line.text.startswith(f'finds /run/reboot-required, which says "{SENTINEL}"')
