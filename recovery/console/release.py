"""``node-recovery release NODE``: end the recovery of a node by hand and give it back to service."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from recovery.console.api import UserApi, connect_to_change
from recovery.console.output import ask, for_programs, say, show
from recovery.console.recoveries import check_installed, read_gate, retry_on_conflict
from recovery.console.stored import check_unmarked
from recovery.console.wanted_back import ask_an_agent, check_as_seen, describe_standing, stands
from recovery.decide import budget
from recovery.decide.budget import places
from recovery.decide.endings import close
from recovery.decide.lifecycle import TABLE, Event
from recovery.decide.marks import marked, of_no_record, unmark_patch
from recovery.errors import ApiError, CannotRelease, NotFound, NotInstalled, Undecodable
from recovery.kube.kubeconfig import Target
from recovery.model import CORDONED_BY, OWNER_OF_MARKS, Gate, Marks, NodeView, Phase, Record
from recovery.quick import replace
from recovery.report.notice import Notice, event_body, event_name
from recovery.store import gate as gates
from recovery.store import record_codec as records
from recovery.units import span


@dataclass
class Found:
    """A node's record, its Node, and the record UIDs under which it stands on the gate.

    ``out``: the machine whose slot was taken by a record that was deleted since; "" for none.
    """

    record: Record
    node: NodeView | None
    places: frozenset[str]
    out: str = ""

    @property
    def closed(self) -> bool:
        return (self.record.phase, Event.RELEASED) not in TABLE

    @property
    def leftovers(self) -> bool:
        """Marks or a place on the gate that a closed record left: a program was stopped in the middle."""
        return bool(self.places) or (self.node is not None and marked(self.node))


def release(node: str, reason: str, assume_yes: bool, target: Target, output: str) -> None:
    """Close the record of ``node`` as released, take our marks off, free its place. Asks first."""
    api = connect_to_change(target)
    if marked_without_a_record(api, node):
        ended, why = _release_marks(api, node, reason, assume_yes)
        _say(api, node, ended, why, output)
        return
    found = read(api, node)
    check(found)
    check_not_out(found)
    if not assume_yes:
        ask(f"{api.elsewhere}{describe(found, api)} Release it?")
    owner = api.caller()
    why = f"released by {owner}" + (f": {reason}" if reason else "")
    if not found.closed and stands(found.record, found.node):
        ask_an_agent(api, found.record, owner, reason)
    _say(api, node, end(api, found, why, as_seen=True), why, output)


def _say(api: UserApi, node: str, ended: Ended, why: str, output: str) -> None:
    sentence = f"{_outcome(node, ended)}: {why}."
    if for_programs(output):
        body = {"node": node, "released": True, "marksTakenOff": ended.marks, "sentence": sentence}
        show({"cluster": api.as_json(), **body}, output)
    else:
        say(sentence)


@dataclass
class Ended:
    """Whether the Node had marks of ours, and the Node as it was left; None where it is gone."""

    marks: bool
    node: NodeView | None


def marked_without_a_record(api: UserApi, node: str) -> bool:
    """Whether the Node has marks of ours, and no record says why. Raises ``CannotRelease`` where its record
    was deleted while its machine may be out: what was asked for may still come."""
    view = _node(api, node)
    if view is None or not marked(view) or _is_recorded(api, node):
        return False
    check_installed(api)
    gate, problem = read_gate(api)
    if problem:
        raise CannotRelease(f"nothing was changed: the gate cannot be read: {problem}")
    if gate is not None and any(name == node for name, _ in places(gate)):
        raise CannotRelease(
            f"nothing was changed: the record of {node} was deleted while it was open. An agent with "
            "ENABLE_RECOVERY=true writes it down as lost, in a minute or two: release it then"
        )
    return True


def _release_marks(api: UserApi, node: str, reason: str, assume_yes: bool) -> tuple[Ended, str]:
    """Take our marks off a Node without a record. There is none to remember the fault that they were for."""
    if not assume_yes:
        ask(f"{api.elsewhere}{of_no_record(node)}. Release it?")
    why = f"released by {api.caller()}" + (f": {reason}" if reason else "")

    def take_off() -> Ended:
        if not marked_without_a_record(api, node):
            raise CannotRelease(f"nothing was changed: {node} has a record by now, or its marks are off")
        return unmark(api, node)

    ended = retry_on_conflict(take_off)
    _post_event(api, node, ended.node.uid if ended.node is not None else "", why)
    return ended, why


def _is_recorded(api: UserApi, node: str) -> bool:
    try:
        api.get_record(node)
    except NotFound:
        return False
    return True


def unmark(api: UserApi, name: str) -> Ended:
    """Take our marks off the Node."""
    return _take_off(api, _node(api, name))


def _take_off(api: UserApi, node: NodeView | None) -> Ended:
    patch = unmark_patch(node) if node is not None else None
    if node is None or patch is None:
        return Ended(False, node)
    try:
        node = api.patch_node(node.name, patch)
        check_unmarked(node)
    except NotFound:
        node = None
    return Ended(True, node)


def end(api: UserApi, found: Found, why: str, *, as_seen: bool = False) -> Ended:
    """Close the record, take our marks off, free the place.

    Where something stands at the provider, an agent has been asked, and has closed the record. ``as_seen``:
    only what a person has seen of it: ``CannotRelease`` where it has ended by itself, or has other faults.
    """
    node, answered = found.record.node, stands(found.record, found.node)
    if not found.closed and not answered:
        retry_on_conflict(lambda: _close(api, found, why, as_seen))
    had_marks = found.node is not None and marked(found.node)
    try:
        ended = retry_on_conflict(lambda: _unmark(api, node, as_seen))
        retry_on_conflict(lambda: _free(api, node))
    except ApiError as error:
        raise _half_done(node, error) from None
    if not answered:  # else the agent has told it
        uid = found.node.uid if found.node else found.record.node_uid
        _post_event(api, found.record.node, uid, why)
    return Ended(ended.marks or had_marks, ended.node)  # the agent may have been quicker


def _half_done(node: str, error: ApiError) -> ApiError:
    left = f"the record of {node} is closed. Its marks, or its place in the budget, may be left"
    return ApiError(f"{error}; {left}: run the command again", error.status)


def _outcome(name: str, ended: Ended) -> str:
    node = ended.node
    if node is None:
        return f"{name} is released; its Node is not there"
    off = ", our marks are off" if ended.marks else ""
    if node.unschedulable and node.annotations.get(CORDONED_BY) != OWNER_OF_MARKS:
        return f"{name} is released{off}; somebody else's cordon stays (kubectl uncordon {name})"
    return f"{name} is back in service{off}"


def read(api: UserApi, node: str) -> Found:
    """Read record, Node and gate. Raises ``CannotRelease`` where there is no record, or it cannot be read."""
    try:
        record = records.decode(api.get_record(node))
    except NotFound:
        try:
            next(iter(api.list_records()), None)
        except NotFound:
            raise NotInstalled from None
        raise CannotRelease(
            f"there is nothing to release: {node} has no record; "
            "node-recovery status --all lists the nodes that do"
        ) from None
    except Undecodable as error:
        raise CannotRelease(
            f"nothing was changed: the record of {node} cannot be read: {error}. Look at it with "
            f"kubectl get noderecovery {node} -o yaml; deleting it ends the recovery unproved"
        ) from None
    gate, problem = read_gate(api)
    if problem:
        raise CannotRelease(f"nothing was changed: the gate cannot be read: {problem}")
    return found_of(record, _node(api, node), gate)


def found_of(record: Record, node: NodeView | None, gate: Gate | None) -> Found:
    """``record``, its Node, and where it stands on the gate."""
    if gate is None:
        return Found(record, node, frozenset())
    standing = frozenset(uid for name, uid in places(gate) if name == record.node)
    of_others = (x for x in gate.slots if x.node == record.node and x.record_uid != record.uid)
    out = next((x.machine or record.machine.id for x in of_others), "")
    return Found(record, node, standing, out)


def check(found: Found) -> None:
    """Raises ``CannotRelease`` where nothing is left to release, or a submitted step cannot be undone."""
    r = found.record
    if found.closed and not found.leftovers:
        raise CannotRelease(f"there is nothing to release: {r.node} is {r.phase.value}: {r.sentence}")
    if r.phase is Phase.RECOVERING and r.intent is not None and r.in_flight:
        raise CannotRelease(
            f"nothing was changed: {r.intent.action} of {r.intent.machine} has been asked for, and a release "
            "does not call it back. An agent with ENABLE_RECOVERY=true ends it, proved or in a person's "
            f"hands, at its deadline ({r.sentence})"
        )


def check_not_out(found: Found) -> None:
    """Raises ``CannotRelease`` while a deleted record's slot is taken: nobody knows what was asked for."""
    if found.out:
        raise CannotRelease(
            f"nothing was changed: the record of {found.record.node} was deleted while {found.out} was out, "
            "and what was asked of its provider may still come. It can be released once an agent with "
            "ENABLE_RECOVERY=true has found the machine as it was, or gone, and its slot is free: "
            f"node-recovery explain {found.record.node}"
        )


def describe(found: Found, api: UserApi) -> str:
    """What is asked about: the node's state, and what a release would change."""
    r = found.record
    faults = ", ".join(dict.fromkeys(f.reason for f in r.faults)) or "no fault"
    state = f"{r.node} has been {r.phase.value} for {span(api.time.now() - r.phase_since)}: {r.sentence}."
    if found.closed:
        return f"{state} What was left of it, marks or a place in the budget, is cleared away."
    return (
        f"{state}{describe_standing(r, found.node)} "
        "A release removes our cordon and taint, frees its place in the budget, and remembers "
        f"{faults}: the same fault starts nothing again until the machine boots or is replaced, or it is "
        "stated anew."
    )


def _close(api: UserApi, found: Found, why: str, as_seen: bool) -> None:
    """Close the record. This write decides: an agent that is in the middle of a cycle gets a conflict."""
    node = found.record.node
    was = api.get_record(node)
    record = records.decode(was)
    if as_seen:
        check_as_seen(found.record, record)
    check(Found(record, None, frozenset({record.uid})))
    if stands(record, _node(api, node)):
        raise CannotRelease(f"nothing was changed: {node} is {record.phase.value} by now: {record.sentence}")
    if (record.phase, Event.RELEASED) in TABLE:
        api.replace_record(records.encode(close(record, api.time.now(), Event.RELEASED, why), was))


def _unmark(api: UserApi, node: str, as_seen: bool) -> Ended:
    """Take our cordon and taints off the Node, then off the record. ``as_seen``: not those of a recovery that
    has begun since. The Node is read before its record, so what is on it belongs to no later one."""
    view = _node(api, node)
    was = api.get_record(node)
    record = records.decode(was)
    if as_seen and record.phase.sick:
        raise CannotRelease(
            f"the record of {node} was closed, and is {record.phase.value} again by now: {record.sentence}. "
            f"Its marks stay on the Node. If that recovery is to end as well: node-recovery release {node}"
        )
    ended = _take_off(api, view)
    if record.marks and not record.phase.open:
        api.replace_record(records.encode(replace(record, marks=Marks()), was))
    return ended


def _free(api: UserApi, node: str) -> None:
    """Take the node off the gate, unless its record was opened again meanwhile."""
    obj = None
    try:
        obj = api.get_gate()
    except NotFound:
        return
    gate = gates.decode(obj)
    record = records.decode(api.get_record(node))
    changed = gate
    for name, uid in places(gate):
        if name == node and not (record.phase.open and record.uid == uid):
            changed = budget.free(changed, node, uid)
    if changed is not gate:
        api.replace_gate(gates.encode(budget.bounded(changed), obj.get("spec") or {}, obj))


def _node(api: UserApi, node: str) -> NodeView | None:
    try:
        return api.get_node(node)
    except NotFound:
        return None


def _post_event(api: UserApi, node: str, uid: str, why: str) -> None:
    """Post an Event on the Node. The release stands also where the caller may not write Events."""
    notice = Notice(node, uid, "Released", why, False, api.time.now())
    try:
        api.create_event(event_body(event_name(node, uuid.uuid4().hex[:16]), notice))
    except ApiError as error:
        say(f"(no Event was written: {error})", err=True)
