"""Is the machine that took another one's place proved: joined, and healthy through its probation? PURE."""

from __future__ import annotations

from datetime import timedelta

from recovery.decide.assessment import Assessment
from recovery.decide.budget import replacement_of
from recovery.decide.decision import (
    POLLED,
    ClaimReplacement,
    Decision,
    EventReason,
    Report,
    WriteRecord,
    act,
    wait,
)
from recovery.decide.diagnosis import Diagnosis, live, name
from recovery.decide.endings import end
from recovery.decide.history import HistoryEvent, note
from recovery.decide.in_flight import replaced_by
from recovery.decide.lifecycle import Event
from recovery.decide.proof import by_own_signals, not_watched, on_probation, only_told, succeeded, unproved
from recovery.decide.silence import EARLY_FOR, blind_to_what_was_treated, early_word
from recovery.decide.situation import PageThere, Situation
from recovery.model import UNINITIALIZED, Cause, Done, Kind, Record
from recovery.quick import replace
from recovery.units import span

GONE_FROM_ITS_GROUP = timedelta(seconds=60)
"""For how long each answer of the cloud has to show the group without the machine. One answer alone may be
older than the one before it."""
NO_PROOF = "; nothing is proved without that page"
NODE_ALONE = ", so only its Node can prove it"


def prove_replacement(s: Situation, a: Assessment, r: Record) -> Decision:
    new = r.replacement_machine
    if s.replacement is None:
        unjoined = f"{new} has not joined the cluster as a node"
        return replacement_gone_again(s, r) or another_claimed(s, r) or unproved(s, r, unjoined)
    joined = s.replacement.name
    who = f"{joined} ({new})"
    found = live(s, a.found) if s.replacement_is_me else ()
    if sick := s.replacement_record if joined != r.node else _for_good(found):
        # Its own record needs the slot that this one holds. Attempts are counted over both machines.
        why = f"{r.machine.id} is gone; {who} took its place and is sick too: {sick}"
        return end(s, r, Event.OTHER_MACHINE, why, Report(EventReason.SUPERSEDED, warning=True))
    if not s.replacement.ready:
        return unproved(s, r, f"{who} is not Ready")
    if s.replacement.has_taint(UNINITIALIZED):  # its own agent does not know its machine, and tells nothing
        return unproved(s, r, f"{who} is not initialised by its cloud yet")
    page = _page_there(s)
    if sick := _sick_there(s, found, page):
        return unproved(s, r, f"{who} is not healthy: {sick}")
    if s.replacement_is_me and (early := early_word(s, r)):
        why = f"{who} may not be healthy: {early}"
        return unproved(s, r, why, Cause.UNREADABLE, patience=EARLY_FOR)
    if s.replacement_is_me and (blind := blind_to_what_was_treated(s, r)):
        return unproved(s, r, f"{who} may not be healthy: {blind}", Cause.UNREADABLE)
    if joining := joined_or_blind(s, r, f"{who} is Ready", joined):
        return joining
    alone = by_node_alone(s)
    lasts = max(r.probation, s.tells_within) if alone else r.probation
    if s.now - r.phase_since < lasts:
        return on_probation(s, r, joined, lasts)
    if unwatched := not_watched(s, joined, lasts):
        return unwatched
    if page is not None and not page.heard and not page.silent:
        return wait(f"probation: the agent of {joined} has not told of its page again", POLLED, "unheard")
    by = f"by its Node alone: {alone}" if alone else by_own_signals(s, "by its own detector's page")
    by += only_told(s, a) if s.replacement_is_me else ""
    why = f"proved: {r.machine.id} is gone and {who} was healthy for {span(lasts)}, {by}"
    return end(s, r, Event.PROVED, why, succeeded(r))


def _sick_there(s: Situation, found: tuple[Diagnosis, ...], page: PageThere | None) -> str:
    """What makes the new node sick: by its signals, by its own agent's word, or by its Node; else ""."""
    if found:
        return name(found[0].fault)
    if page is not None and page.sick:
        return f"its own agent reports {page.sick}"
    return s.replacement_problem


def _for_good(found: tuple[Diagnosis, ...]) -> str:
    """The first of these faults that no source takes back: only another boot ends it. No probation succeeds
    in this boot, so the fault gets a record of its own. What is counted is one of these: that its window
    passes proves nothing."""
    return next((name(d.fault) for d in found if d.fault.latched or d.fault.kind is Kind.EDGE), "")


def joined_or_blind(s: Situation, r: Record, is_ready: str, joined: str) -> Decision | None:
    """Write down that the new node is Ready, and by what it can be proved. None: probation goes on.

    It is written again, and probation begins again, when the node's page cannot be read any more, when its
    agent falls silent, and when the page can be read again. After a silence there may be a fault to tell of.
    """
    blind, alone = blind_there(s), by_node_alone(s)
    if blind or alone:
        is_ready += f"; {blind}{NO_PROOF}" if blind else f"; {alone}{NODE_ALONE}"
    readable_now = r.sentence.endswith((NO_PROOF, NODE_ALONE)) and not alone
    alone_now = bool(alone) and not r.sentence.endswith(NODE_ALONE)
    if r.replacement != joined or (r.sentence != is_ready and (blind or alone_now or readable_now)):
        noted = note(r, s.now, HistoryEvent.JOINED, is_ready)
        changed = replace(noted, replacement=joined, phase_since=s.now)
        return act(WriteRecord(changed), is_ready, Report(EventReason.JOINED, warning=bool(blind)))
    return unproved(s, r, is_ready) if blind else None


def replacement_gone_again(s: Situation, r: Record) -> Decision | None:
    """The replacement joined, got sick and is gone as well: its own record says what becomes of it."""
    new = r.replacement_machine
    start = next((x for x in s.gate.starts if x.machine == new), None) if s.gate is not None else None
    if start is None:
        return None
    sick = f"{start.node} ({new}) took its place and was sick too: {start.reason}"
    why = f"{r.machine.id} is gone; {sick}; what becomes of it is on the record of {start.node}"
    return end(s, r, Event.OTHER_MACHINE, why, Report(EventReason.SUPERSEDED, warning=True))


def another_claimed(s: Situation, r: Record) -> Decision | None:
    """The replacement is no Node, and its group is complete without it: it died, and another was launched.

    That one is claimed, by compare-and-swap as the first one was, and has to be proved in its turn. The proof
    keeps its deadline, so that a group whose machines die one after the other ends with a person.
    """
    if s.gate is None or s.gate_problem:
        return None
    new, mine = r.replacement_machine, replacement_of(s.gate, r.machine.id)
    if mine not in ("", new):
        why = f"{new} never joined, and {mine} took its place"
        noted = note(replaced_by(r, mine), s.now, HistoryEvent.EVIDENCE, why)
        changed = replace(noted, replacement="", phase_since=s.now)
        return act(WriteRecord(changed), f"{why}; probation begins", Report(EventReason.PROVING))
    if s.unlisted_for < GONE_FROM_ITS_GROUP or not isinstance(s.poll, Done):
        return None
    taken = {new, *(c.machine for c in s.gate.claimed)}
    free = next((m for m in s.poll.replacements if m not in taken), "")
    if not free:
        return None
    why = f"{new} has not joined, and its group has {free} in its place: that is claimed"
    return act(ClaimReplacement(free, r.machine.id), why)


def blind_there(s: Situation) -> str:
    """Why the new node's own page shows nothing, as its agent tells it; empty where it can be read, or where
    nobody tells. Nothing is proved meanwhile (law 11)."""
    page = _page_there(s)
    if page is None or not page.unreadable:
        return ""
    since = f" (since {page.since:%Y-%m-%d %H:%M:%SZ})" if page.since else ""
    return f"{page.unreadable}{since}"


def by_node_alone(s: Situation) -> str:
    """Why nothing but its Node can prove the replacement; empty where its own page can."""
    page = _page_there(s)
    if page is None and s.outside:
        return "it is none of FLEET_SELECTOR"
    if page is None:
        return "no agent there reports a detector's page"
    return "its agent, which could read its detector's page, has fallen silent" if page.silent else ""


def _page_there(s: Situation) -> PageThere | None:
    """The page of the new node. Only the agent there can read it: this one, or one that tells its peers."""
    if not (s.readings and s.replacement_is_me):
        return s.replacement_page
    blind = next((x for x in s.readings if not x.readable), None)
    return PageThere(blind.unknown["*"], blind.unknown_since.get("*", s.now)) if blind else PageThere()
