"""What would stay of node-recovery if it were deleted now: open records, and marks on Nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recovery.console.api import UserApi
from recovery.console.recoveries import Recoveries, read_recoveries
from recovery.console.release import Found, check, found_of
from recovery.console.wanted_back import stands
from recovery.decide.drain import EVICT_AFTER
from recovery.decide.drill import ends
from recovery.decide.marks import marked
from recovery.decide.standing import standing, words
from recovery.errors import ApiError, CannotRelease, Dropped, NotInstalled
from recovery.kube.paging import folded
from recovery.model import EXCLUDE, NodeView, Phase, Record


@dataclass(frozen=True)
class Item:
    """A node with something of ours. ``found``: its record; None where that is gone, or the CRDs are."""

    node: str
    view: NodeView | None
    found: Found | None = None

    @property
    def marked(self) -> bool:
        return self.view is not None and marked(self.view)

    @property
    def would(self) -> str:
        """What uninstalling would do about it."""
        taken_back = ""
        if self.found is not None and not self.found.closed and stands(self.found.record, self.found.node):
            asked = words(standing(self.found.record, self.found.node))
            taken_back = f", once an agent has taken back {asked}"
        return f"{self._was()}; {'our marks come off' if self.marked else 'it is closed'}{taken_back}"

    def done(self, now: NodeView | None) -> str:
        """What was done. ``now``: the Node as it was left."""
        what = f"{self._was()}; {'our marks are off' if self.marked else 'it is closed'}"
        if now is None:
            return f"{what}; its Node is not there"
        if now.unschedulable:
            return f"{what}; the cordon of somebody else stays"
        return f"{what}{self._unrepaired()}"

    def _was(self) -> str:
        if self.found is None:
            return "marked by us, and without a record"
        r = self.found.record
        faults = ", ".join(dict.fromkeys(f.reason for f in r.faults))
        asked = ", and what may have been asked of its provider may still come" if self.found.out else ""
        return f"{r.phase.value}{f' for {faults}' if faults else ''}{asked}"

    def _unrepaired(self) -> str:
        """A node that was out of service for a fault takes pods again. Somebody has to know."""
        out = (Phase.RECOVERING, Phase.HANDED_OVER, Phase.LOST)
        sick = self.found is None or self.found.record.phase in out
        if not (sick and self.marked):
            return ""
        return f". It takes pods again, and was not repaired: kubectl cordon {self.node} keeps it out"


@dataclass(frozen=True)
class Kept:
    """A node that cannot be cleared yet, and why."""

    node: str
    why: str


@dataclass(frozen=True)
class Seen:
    """``installed``: the CRDs are there. ``notes``: what stays because it is somebody else's."""

    installed: bool
    items: tuple[Item, ...]
    kept: tuple[Kept, ...]
    notes: tuple[str, ...]


def look(api: UserApi) -> Seen:
    """Every record and every Node. Raises ``ApiError``; ``CannotRelease`` where the gate is unreadable."""
    try:
        recoveries, installed = read_recoveries(api), True
    except NotInstalled:
        recoveries, installed = Recoveries((), {}, None), False
    if recoveries.gate_problem:
        raise CannotRelease(
            f"nothing was changed: the gate cannot be read: {recoveries.gate_problem}. Use the version "
            "of node-recovery that wrote it"
        )
    known = {r.node for r in recoveries.records} | set(recoveries.unreadable)
    views, notes = folded(lambda: _nodes(api, known))
    items, kept = [], []
    for found in _needed(recoveries, views):
        if problem := _cannot_end(found):
            kept.append(Kept(found.record.node, problem))
        else:
            items.append(Item(found.record.node, found.node, found))
    items += [Item(name, view) for name, view in views.items() if name not in known]
    kept += [Kept(node, _unreadable(node, why)) for node, why in recoveries.unreadable.items()]
    return Seen(installed, tuple(items), tuple(kept), notes)


def _nodes(api: UserApi, known: set[str]) -> tuple[dict[str, NodeView], tuple[str, ...]]:
    """The Nodes that have a record or marks of ours; and what stays on any Node."""
    found, excluded, drills = dict[str, NodeView](), [], []

    def look_at(view: NodeView) -> None:
        if EXCLUDE in view.labels:
            excluded.append(view.name)
        if any(ends(c.message) for c in view.stated):
            drills.append(
                f"{view.name} has a drill: node-recovery inject {view.name} --remove ends the drill"
            )
        if view.name in known or marked(view):
            found[view.name] = view

    api.nodes_of("", look_at)
    return found, (*_notes(len(excluded)), *drills)


def _needed(recoveries: Recoveries, views: dict[str, NodeView]) -> Iterator[Found]:
    """The records that are open, or have something outside of themselves: marks, a place, a request."""
    for record in recoveries.records:
        found = found_of(record, views.get(record.node), recoveries.gate)
        if record.phase.open or found.leftovers or (not found.closed and stands(record, found.node)):
            yield found


def _cannot_end(found: Found) -> str:
    """Why the recovery cannot be ended now: its step was asked for. Else empty."""
    try:
        check(found)
    except CannotRelease:
        return under_way(found.record)
    return ""


def under_way(r: Record) -> str:
    """What a recovery whose step was asked for has to be waited for, and what to do where nobody ends it. No
    hour is named: uninstalling pauses, and while a pause is in force the deadline of a step stands still."""
    assert r.intent is not None
    return (
        f"{r.intent.action} of {r.intent.machine} has been asked for and cannot be called back. Wait until "
        f"it is proved: node-recovery explain {r.node}. No deadline passes during the pause: if it comes to "
        f"nothing, or no agent runs any more, look at the machine; once it is well or gone: "
        f"kubectl delete noderecovery {r.node}"
    )


def _unreadable(node: str, why: str) -> str:
    return (
        f"its record cannot be read, and it is not touched: {why}. Use the version of node-recovery that "
        f"wrote it; or delete the record (kubectl delete noderecovery {node}), and run this again"
    )


def _notes(excluded: int) -> Iterator[str]:
    if excluded:
        count = "1 node keeps" if excluded == 1 else f"{excluded} nodes keep"
        yield f"{count} the label {EXCLUDE}, which a person set"


def of_pods(api: UserApi, item: Item) -> list[str]:
    """Pods that were told when they would be evicted, and are not: they are told so, or a person is."""
    if item.found is None or item.found.record.phase is not Phase.RECOVERING or item.view is None:
        return []
    try:
        told = [pod for pod in api.list_pods(item.node) if EVICT_AFTER in pod.annotations]
        for pod in told:
            api.unannotate_pod(pod, EVICT_AFTER)
    except (ApiError, Dropped) as error:
        return [f"pods on {item.node} may keep the annotation {EVICT_AFTER}: {error}"]
    return [f"{pod} is not evicted: its annotation {EVICT_AFTER} is off" for pod in told]
