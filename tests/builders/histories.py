"""Histories made by hand, for the judge: a small fleet, a recovery brought to a point, one fact more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.search import facts
from tests.search.facts import Asked, Fact, Happened, Said, TakenBack, Wrote
from tests.search.judge import Violation, judge

AGENT = "agent of {}"
TAINT = {"key": "noderecovery.dev/unhealthy", "effect": "NoSchedule"}
BY = {"noderecovery.dev/cordoned-by": "node-recovery"}
LADDER = ({"do": "drain", "within": "600s", "then": "force"}, {"do": "replace", "within": "1800s"})
ZONE, TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
FAULT = {"type": "NeuronHealth", "reason": "NeuronHasError_DMA_ERROR"}


def agent(node: str) -> str:
    return AGENT.format(node)


class History:
    """Facts, one after the other. ``at`` is now; objects are as they were last written."""

    def __init__(self, nodes: int = 6, **limits: Any) -> None:
        self.at = 0.0
        self.facts: list[Fact] = []
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.happens(facts.BEGAN, "", wall="2026-11-21T03:00:00Z")
        self.policy(cooldown="0s", **limits)
        self.write("RecoveryGate", "fleet", {"status": {"stamp": "uid-fleet"}}, by="agent of node-0")
        for i in range(nodes):
            self.joins(f"m-{i}", f"node-{i}", zone="ab"[i % 2])

    # ------------------------------------------------------------ facts

    def after(self, seconds: float) -> History:
        self.at += seconds
        return self

    def happens(self, what: str, subject: str, **detail: Any) -> History:
        self.facts.append(Happened(self.at, what, subject, detail))
        return self

    def policy(self, of: str = "", remedy: tuple[Mapping[str, str], ...] = LADDER, **limits: Any) -> History:
        rules = [{"name": "hardware", "match": {"type": "NeuronHealth"}, "remedy": list(remedy)}]
        return self.happens(facts.POLICY, of, limits=limits, rules=rules)

    def write(self, kind: str, name: str, change: Mapping[str, Any], *, by: str, verb: str = "") -> History:
        """Create the object, or put ``change`` over it; None removes a key."""
        before = self.objects.get((kind, name))
        made = before or {"kind": kind, "metadata": {"name": name, "uid": f"uid-{name}"}}
        after = merged(made, change)
        self.objects[kind, name] = after
        self.facts.append(
            Wrote(
                self.at, by, verb or ("update" if before else "create"), kind, "", name,
                after["metadata"]["uid"], before, after,
            )
        )  # fmt: skip
        return self

    def delete(self, kind: str, name: str, *, by: str) -> History:
        before = self.objects.pop((kind, name))
        uid = before["metadata"]["uid"]
        self.facts.append(Wrote(self.at, by, "delete", kind, "", name, uid, before, None))
        return self

    def joins(self, machine: str, node: str, zone: str = "a", boot: str = "boot-1") -> History:
        labels = {ZONE: zone, TYPE: "trn1"}
        body = {
            "metadata": {"labels": labels},
            "spec": {"providerID": f"fake:///workers/{machine}"},
            "status": {
                "nodeInfo": {"bootID": f"{machine}-{boot}"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self.write("Node", node, body, by="kubelet")
        told = {"node": node, "group": "workers", "boot": f"{machine}-{boot}"}
        self.happens(facts.MACHINE_LAUNCHED, machine, **told)
        self.happens(facts.MACHINE_JOINED, machine, **told)
        return self.happens(facts.PROCESS, agent(node), state="started", node=node)

    def ready(self, node: str, status: str) -> History:
        return self.write(
            "Node", node, {"status": {"conditions": [{"type": "Ready", "status": status}]}}, by="kubelet"
        )

    def says(self, node: str, message: str = "it goes on", reason: str = "Draining") -> History:
        body = {"involvedObject": {"name": node}, "reason": reason, "message": message}
        return self.write("Event", f"{node}-{len(self.facts)}", body, by=agent(node))

    def logs(self, node: str, sentence: str) -> History:
        self.facts.append(Said(self.at, agent(node), node, "", sentence))
        return self

    def person(self, kind: str, name: str, change: Mapping[str, Any]) -> History:
        return self.write(kind, name, change, by="a person", verb="patch")

    def pause(self, until: str = "") -> History:
        pause = {"owner": "ada", "reason": "work", "until": until}
        return self.person("RecoveryGate", "fleet", {"spec": {"pause": pause}})

    def resume(self) -> History:
        return self.person("RecoveryGate", "fleet", {"spec": {"pause": None}})

    def exclude(self, node: str) -> History:
        return self.person("Node", node, {"metadata": {"labels": {"noderecovery.dev/exclude": "true"}}})

    def pod(self, name: str, node: str) -> History:
        return self.write(
            "Pod", name, {"spec": {"nodeName": node}, "status": {"phase": "Running"}}, by="load"
        )

    def evicts(self, pod: str, node: str) -> History:
        body = {"metadata": {"deletionTimestamp": "2026-11-21T03:00:00Z"}}
        return self.write("Pod", pod, body, by=agent(node), verb="evict")

    # ------------------------------------------------------------ a recovery, step by step

    def breaks(self, node: str, *, shown: bool = True, **more: Any) -> History:
        machine = self.machine(node)
        return self.happens(facts.FAULT_BEGAN, machine, **{**FAULT, "shown": shown, **more})

    def machine(self, node: str) -> str:
        return str(self.objects["Node", node]["spec"]["providerID"]).rpartition("/")[2]

    def record(self, node: str, phase: str, by: str = "", **more: Any) -> History:
        status = {
            "phase": phase,
            "phaseSince": f"{self.at}",
            "machine": {
                "id": self.machine(node) if ("Node", node) in self.objects else "",
                "group": "workers",
            },
            "faults": [FAULT],
            "ladder": list(LADDER),
            "probation": "120s",
            **more,
        }
        if ("NodeRecovery", node) in self.objects:
            status.pop("machine")
        return self.write("NodeRecovery", node, {"status": status}, by=by or agent(node))

    def slot(self, node: str, *, by: str = "") -> History:
        status = self.objects["RecoveryGate", "fleet"]["status"]
        slots = [*(status.get("slots") or ()), {"node": node, "recordUID": f"uid-{node}"}]
        starts = [*(status.get("starts") or ()), {"at": f"{self.at}", "node": node}]
        change = {"status": {"slots": slots, "starts": starts}}
        return self.write("RecoveryGate", "fleet", change, by=by or agent(node))

    def frees(self, node: str, *, by: str = "") -> History:
        status = self.objects["RecoveryGate", "fleet"]["status"]
        slots = [s for s in status.get("slots") or () if s["node"] != node]
        return self.write("RecoveryGate", "fleet", {"status": {"slots": slots}}, by=by or agent(node))

    def marks(self, node: str, *, by: str = "") -> History:
        change = {"metadata": {"annotations": BY}, "spec": {"unschedulable": True, "taints": [TAINT]}}
        return self.write("Node", node, change, by=by or agent(node), verb="patch")

    def unmarks(self, node: str, *, by: str = "") -> History:
        change = {
            "metadata": {"annotations": dict.fromkeys(BY)},
            "spec": {"unschedulable": None, "taints": None},
        }
        return self.write("Node", node, change, by=by or agent(node), verb="patch")

    def starts(self, node: str = "node-0") -> History:
        """A fault, a record, a slot, our marks; the drain begins."""
        self.breaks(node).after(1).record(node, "suspect").after(1).record(node, "waiting").after(1)
        self.slot(node).after(1).record(node, "recovering", rung=0).after(1).says(node).marks(node)
        return self.after(1).record(node, "recovering", rung=0, rungSince=f"{self.at}")

    def intends(
        self, node: str = "node-0", action: str = "replace", attempt: int = 1, **more: Any
    ) -> History:
        intent = {
            "action": action,
            "attempt": attempt,
            "token": f"{node}/{attempt}",
            "machine": self.machine(node),
            "bootID": f"{self.machine(node)}-boot-1",
            "state": "written",
            **more,
        }
        return self.record(node, "recovering", rung=1, rungSince=f"{self.at}", intent=intent)

    def calls(
        self, node: str = "node-0", action: str = "replace", attempt: int = 1, answer: str = "accepted",
        **more: Any,
    ) -> History:  # fmt: skip
        given = {"actor": agent(node), "machine": self.machine(node), "token": f"{node}/{attempt}", **more}
        self.facts.append(Asked(self.at, action=action, answer=answer, **given))
        return self

    def asks(self, node: str = "node-0", action: str = "replace", attempt: int = 1, **more: Any) -> History:
        return self.intends(node, action, attempt, **more).after(0.1).calls(node, action, attempt)

    def takes_back(self, node: str = "node-0", action: str = "replace") -> History:
        self.facts.append(TakenBack(self.at, agent(node), self.machine(node), action))
        return self

    def boots(self, node: str = "node-0", boot: str = "boot-2", by: str = "reboot") -> History:
        machine = self.machine(node)
        self.happens(facts.MACHINE_BOOTED, machine, boot=f"{machine}-{boot}", node=node, by=by)
        info = {"status": {"nodeInfo": {"bootID": f"{machine}-{boot}"}}}
        return self.write("Node", node, info, by="kubelet", verb="patch")

    def mended(self, node: str, by: str = "reboot", **more: Any) -> History:
        return self.happens(facts.FAULT_ENDED, self.machine(node), **FAULT, by=by, **more)

    def replaced(self, node: str = "node-0", new: str = "m-9") -> History:
        """The old machine goes, and another joins in its place."""
        self.happens(facts.MACHINE_GONE, self.machine(node), group="workers", node=node)
        self.delete("Node", node, by="cloud-controller")
        return self.after(20).joins(new, new.replace("m-", "node-"))

    def calm(self) -> History:
        return self.happens(facts.CALM, "")

    def ends(self, because: str = "settled") -> History:
        return self.happens(facts.ENDED, "", because=because)

    # ------------------------------------------------------------ the judge

    def found(self, ours: Callable[[str], bool] = lambda actor: actor.startswith("agent")) -> list[Violation]:
        return judge(self.facts, ours=ours)

    def kinds(self) -> list[tuple[str, str]]:
        """Law and kind of what the judge finds."""
        return [(v.law, v.kind) for v in self.found()]


def merged(old: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """``change`` put over ``old``, as a merge patch does; neither is changed."""
    made = dict(old)
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(made.get(key), Mapping):
            made[key] = merged(made[key], value)
        else:
            made[key] = dict(value) if isinstance(value, Mapping) else value
    return made
