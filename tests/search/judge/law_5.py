"""Law 5: what others have put on an object stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.search.facts import Wrote
from tests.search.judge.law import Law
from tests.search.judge.objects import (
    BY,
    GROUP,
    NOTHING,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_BY,
    TAINT,
    TAINTED,
    Json,
    as_text,
    claimed,
    cordoned,
    metadata,
    named,
    notes,
    spec,
    status,
    taints,
)
from tests.search.judge.recoveries import Call

OUR_NOTES = frozenset({BY, OUT_OF_SERVICE_BY, TAINTED})
KEPT = ("finalizers", "ownerReferences")


class Foreign(Law):
    """Every write of ours, before and after."""

    name = "law 5"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.made: set[str] = set()  # UIDs of objects that we created
        self.cordon_by: dict[str, tuple[bool, bool]] = {}  # node -> by us, with our annotation on it then
        self.checks: dict[str, Callable[[Wrote, Json, Json], None]] = {
            "Node": self._a_node,
            "Pod": self._a_pod,
            "RecoveryGate": self._a_gate,
        }

    def node(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        """Who made the node unschedulable. ``ours`` has been asked already."""
        if after is None or not cordoned(after):
            self.cordon_by.pop(w.name, None)
        elif not cordoned(before):
            ours = self.world.ours(w.actor) or (w.actor == "etcd" and BY in notes(after))
            self.cordon_by[w.name] = (ours, BY in notes(after))
        elif w.name not in self.cordon_by or w.actor == "etcd":  # whoever made another one since, it is gone
            self.cordon_by[w.name] = (BY in notes(after), BY in notes(after))
        elif BY in notes(after) and BY not in notes(before) and not self.world.ours(w.actor):
            self.cordon_by[w.name] = (True, True)  # given to us, so that we go on

    def ours(self, w: Wrote, before: Json | None, after: Json | None) -> None:
        if w.kind == "Event":
            return
        if w.verb == "create":
            if w.uid:
                self.made.add(w.uid)
            return
        if before is None:
            return
        if after is None or (metadata(after).get("deletionTimestamp") and w.verb == "delete"):
            self._gone(w, before)
            return
        self._metadata(w, before, after)
        if check := self.checks.get(w.kind):
            check(w, before, after)

    def _gone(self, w: Wrote, before: Json) -> None:
        mine = w.uid in self.made or str(metadata(before).get("uid")) in self.made
        if w.kind in ("NodeRecovery", "NodeClaim") or mine or w.name.startswith("nr-"):
            return
        self.breaks("deleted", w.name, f"{w.actor} deleted the {w.kind}", w)

    def _metadata(self, w: Wrote, before: Json, after: Json) -> None:
        """Labels, annotations, finalizers and owners of others."""
        one, other = metadata(before), metadata(after)
        for field in KEPT:
            gone = [x for x in one.get(field) or () if x not in (other.get(field) or ())]
            if gone:
                self._told(w, field, f"took {field} {gone} off")
        allowed = OUR_NOTES if w.kind == "Node" else frozenset()
        for field, skipped in (("labels", frozenset[str]()), ("annotations", allowed)):
            was, now = one.get(field) or NOTHING, other.get(field) or NOTHING
            if was is now or was == now:
                continue
            changed = [k for k in was if k not in skipped and was[k] != now.get(k)]
            if w.kind != "Node":
                changed = [k for k in changed if not k.startswith(GROUP)]
            if changed:
                self._told(w, field, f"changed or removed the {field} {changed}")
            added = [k for k in now if k not in was and k not in skipped]
            if added and w.kind == "Node":
                self._told(w, field, f"put the {field} {added} on")

    def _told(self, w: Wrote, kind: str, what: str) -> None:
        self.breaks(f"{w.kind} {kind}", w.name, f"{w.actor} {what}, of the {w.kind}", w.kind)

    def _a_node(self, w: Wrote, before: Json, after: Json) -> None:
        was, now = taints(before), taints(after)
        if mine := (named(after) - named(before)) & {*map(as_text, was)}:
            self._told(
                w, "taint called ours", f"called the taints {sorted(mine)} ours, which were there before"
            )
        remedys = named(before) | named(after)
        was, now = ([t for t in x if as_text(t) not in remedys] for x in (was, now))
        if was != now:
            ours = {TAINT}
            if OUT_OF_SERVICE_BY in notes(before) or OUT_OF_SERVICE_BY in notes(after):
                ours.add(OUT_OF_SERVICE)
            if lost := _without(was, now, ours):
                self._told(w, "taint removed", f"removed or changed the taints {lost}")
            if more := _without(now, was, ours):
                self._told(w, "taint added", f"added the taints {more}")
        if cordoned(before) and not cordoned(after):
            signed = BY in notes(before)
            by_us, noted = self.cordon_by.get(w.name, (signed, signed))
            if not by_us and not noted:
                self._told(w, "cordon", "removed a cordon that somebody else had made")
            elif BY not in notes(before):
                self._told(w, "cordon", f"removed a cordon without the annotation {BY}")
        elif cordoned(after) and not cordoned(before) and BY not in notes(after):
            self._told(w, "unsigned cordon", f"cordoned it without the annotation {BY}")
        one, other = dict(spec(before)), dict(spec(after))
        for field in ("taints", "unschedulable"):
            one.pop(field, None)
            other.pop(field, None)
        if one != other:
            self._told(w, "spec", "changed its spec")
        if status(before) != status(after):
            self._told(w, "status", "changed its status")

    def _a_pod(self, w: Wrote, before: Json, after: Json) -> None:
        if spec(before) != spec(after):
            self._told(w, "spec", "changed its spec")

    def _a_gate(self, w: Wrote, before: Json, after: Json) -> None:
        if spec(before).get("pause") != spec(after).get("pause"):
            self._told(w, "pause", "changed the pause")


def _without(these: Iterable[Json], those: Iterable[Json], ours: set[str]) -> list[str]:
    """The taints of ``these`` that are not ours and not, just so, among ``those``."""
    others = list(those)
    return [
        str(t.get("key"))
        for t in these
        if t.get("key") not in ours
        and not any(
            (t.get("key"), t.get("value"), t.get("effect")) == (o.get("key"), o.get("value"), o.get("effect"))
            for o in others
        )
    ]


class Claims(Law):
    """A node that another remediator has claimed is left to that one."""

    name = "law 5"

    def called(self, call: Call) -> None:
        r = call.intent.recovery if call.intent else None
        if r is not None:
            self._left_alone(r.node, call.intent.at if call.intent else call.asked.at, call.asked.action)

    def eviction(self, w: Wrote) -> None:
        node = str(spec(w.before).get("nodeName") or "")
        self._left_alone(node, w.at, f"the eviction of {w.name}")

    def _left_alone(self, node: str, at: float, what: str) -> None:
        since = self.world.claimed.get(node)
        if since is not None and at - since > self.bounds.in_flight:
            who = claimed(self.world.nodes.get(node))
            self.breaks(
                "claimed", node, f"{what} was asked, {at - since:.0f} s after {who} had claimed it", who
            )


LAWS = (Foreign, Claims)
