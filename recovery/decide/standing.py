"""What was asked of a provider, and may still be carried out? PURE.

A call that was accepted stands until it is carried out, or until a read at the provider has shown that it
never will be. A group that finds capacity after days still ends the machine that it was asked to replace,
with the pods that run on it by then. So a node goes back to service only once nothing stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from recovery.decide.boot import heard_before, written_before
from recovery.decide.decision import Decision, TakeBack, act
from recovery.decide.situation import Situation
from recovery.model import Intent, NodeView, Phase, Record
from recovery.quick import replace

MOST_LEFT = 5
LONGEST_NAME = 512
"""Characters. A longer text in a reference is no name, but the packed machines of a large group."""
LONGEST_TAKE_BACK = timedelta(minutes=5)
"""How long it is tried to take a request back, before the node is kept for a person."""


def standing(r: Record, node: NodeView | None) -> tuple[Intent, ...]:
    """The calls on record that may still be carried out, oldest first. ``node``: the Node as it is now.

    For who has not watched it: etcd may have been restored, and a boot from before the call proves nothing.
    """
    came = (x for x in _asked(r) if node is not None and _came(x, r, node) and not heard_before(node, x.at))
    return _without(_asked(r), came)


def standing_now(s: Situation, r: Record) -> tuple[Intent, ...]:
    """The same, for an agent, which may have watched the Node and may know its kernel."""
    node = s.node
    came = (x for x in _asked(r) if node is not None and _came(x, r, node) and not written_before(s, x.at))
    return _without(_asked(r), came)


def _asked(r: Record) -> tuple[Intent, ...]:
    current = (r.intent,) if r.intent is not None and r.in_flight and not _has_evidence(r) else ()
    return tuple(x for x in (*r.progress.left, *current) if x.attempt not in r.progress.taken_back)


def _without(asked: tuple[Intent, ...], came: Iterable[Intent]) -> tuple[Intent, ...]:
    attempts = {x.attempt for x in came}
    return tuple(x for x in asked if x.attempt not in attempts)


def _has_evidence(r: Record) -> bool:
    """Whether the call on the record had its effect: a record in probation has seen the evidence."""
    evidence = r.progress.evidence
    seen = evidence is not None and r.intent is not None and evidence.attempt == r.intent.attempt
    return seen or r.phase is Phase.PROVING


def _came(asked: Intent, r: Record, node: NodeView) -> bool:
    """Whether a call that boots the machine was carried out: its Node shows another boot since."""
    if asked.replaces or r.replacement_machine:
        return False
    return asked.booted_since(node)


def left_behind(r: Record) -> Record:
    """``r`` without its intent. A call that may still be carried out is remembered in its progress."""
    if r.intent is None or not r.in_flight or _has_evidence(r):
        return replace(r, intent=None)
    reference = r.intent.reference
    plain = {k: v for k, v in reference.data.items() if _plain(v)}
    asked = replace(r.intent, reference=replace(reference, data=plain))
    kept = tuple(x for x in r.progress.left if x.attempt != asked.attempt)
    return replace(r, intent=None, progress=replace(r.progress, left=(*kept, asked)[-MOST_LEFT:]))


def _plain(value: object) -> bool:
    """Whether it may be needed to take a request back. The machines that a group had are not."""
    return not isinstance(value, list | tuple | dict) and len(str(value)) <= LONGEST_NAME


def words(asked: tuple[Intent, ...]) -> str:
    return " and ".join(dict.fromkeys(f"{x.action} of {x.machine}" for x in asked))


def late(r: Record, now: datetime) -> bool:
    """Whether a request was not taken back for as long as that is tried."""
    since = r.progress.taking_back
    return since is not None and now - since >= LONGEST_TAKE_BACK


def before_service(s: Situation, r: Record) -> Decision | None:
    """What is to be taken back before the node of ``r`` goes back to service; None if nothing stands.

    A node that a person wants back may have no Node, or one that does not tell its machine. It may register
    again at any time, so the record says which machine it is about.
    """
    asked = standing_now(s, r)
    machine = r.machine if s.machine is None and r.release is not None else s.machine
    if not asked or machine is None or machine.id != r.machine.id:
        return None
    return act(TakeBack(), f"{words(asked)} was asked for and never came: it is taken back first")
