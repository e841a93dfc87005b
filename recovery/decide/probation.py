"""Is the node proved: healthy through its probation, by fresh signals? PURE.

Time alone proves nothing (law 11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

from recovery.decide import tried, validation
from recovery.decide.acknowledged import PROMETHEUS
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
    until,
    wait,
)
from recovery.decide.diagnosis import (
    PAGE,
    SIGNAL_UNKNOWN,
    Diagnosis,
    devices_of,
    live,
    name,
    not_by_its_own_rule,
    of_a_silent_device,
    read_no_more,
    silent_devices,
    stated,
    tolerated,
    why_reported,
)
from recovery.decide.drill import is_drill
from recovery.decide.endings import (
    LONGEST_PROOF,
    RESET,
    end,
    end_without_us,
    hand_over,
    marked_by,
    moved_to_rung,
)
from recovery.decide.history import HistoryEvent, note
from recovery.decide.in_flight import replaced_by
from recovery.decide.lifecycle import Event, move
from recovery.decide.situation import PageThere, Role, Situation
from recovery.decide.stated_since import as_counted_now
from recovery.model import UNINITIALIZED, Cause, Done, Evidence, Fault, Kind, MetricRow, Reading, Record, Step
from recovery.quick import replace
from recovery.units import few, span

MOST_NAMED = 3
CONDITIONS = "conditions"
READY = "Ready"
"""The condition of a Node that its kubelet writes, or a controller in its place."""
GONE_FROM_ITS_GROUP = timedelta(seconds=60)
"""For how long each answer of the cloud has to show the group without the machine. One answer alone may be
older than the one before it."""
ASKED_BEFORE = timedelta(seconds=90)
"""How long before a person would get a machine without a Node its provider is asked whether it is gone. One
answer may be an old one; those of a minute are not."""
EARLY_FOR = timedelta(minutes=20)
"""How long after a boot at most a source may wait before it states what is wrong: drivers and plugins come
up."""
NO_PROOF = "; nothing is proved without that page"
NODE_ALONE = ", so only its Node can prove it"


def prove(s: Situation, a: Assessment, r: Record) -> Decision:
    """The phase proving: the replacement, or else the same machine, has to stay healthy (law 11)."""
    if r.replacement_machine:
        return prove_replacement(s, a, r)
    if evidence := evidence_without_machine(r):
        return end(s, r, Event.PROVED, f"proved: {evidence.what}", succeeded(r))
    return prove_same_machine(s, a, r)


def evidence_without_machine(r: Record) -> Evidence | None:
    """The evidence of a replacement that leaves no machine to prove: only that the old one is gone."""
    evidence = r.progress.evidence
    if evidence is None or r.intent is None or not r.being_replaced:
        return None
    return evidence if evidence.attempt == r.intent.attempt else None


def succeeded(r: Record) -> Report:
    """The report of a success, with the action behind it: that of the intent, or the last one submitted."""
    last = r.progress.submitted[-1].action if r.progress.submitted else ""
    return Report(EventReason.RECOVERED, outcome="succeeded", action=r.intent.action if r.intent else last)


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
    if s.replacement_is_me and (early := _early_word(s, r)):
        why = f"{who} may not be healthy: {early}"
        return unproved(s, r, why, Cause.UNREADABLE, patience=EARLY_FOR)
    if s.replacement_is_me and (blind := _blind_to_what_was_treated(s, r)):
        return unproved(s, r, f"{who} may not be healthy: {blind}", Cause.UNREADABLE)
    if joining := joined_or_blind(s, r, f"{who} is Ready", joined):
        return joining
    alone = by_node_alone(s)
    lasts = max(r.probation, s.tells_within) if alone else r.probation
    if s.now - r.phase_since < lasts:
        return on_probation(s, r, joined, lasts)
    if unwatched := _unwatched(s, joined, lasts):
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


def by_own_signals(s: Situation, page: str) -> str:
    """By what a node was seen to be healthy: ``page``, where the policy reads one."""
    return page if s.policy.source("npd") is not None else "by its own signals"


def _page_there(s: Situation) -> PageThere | None:
    """The page of the new node. Only the agent there can read it: this one, or one that tells its peers."""
    if not (s.readings and s.replacement_is_me):
        return s.replacement_page
    blind = next((x for x in s.readings if not x.readable), None)
    return PageThere(blind.unknown["*"], blind.unknown_since.get("*", s.now)) if blind else PageThere()


def only_told(s: Situation, a: Assessment) -> str:
    """Which faults are there that the policy only reports; empty if there are none.

    They do not speak against the proof. They get a record of their own once this one is closed.
    """
    shown = [f"{name(d.fault)} ({why_reported(d)})" for d in stated(s, a.found)]
    return f", which shows {few(shown, MOST_NAMED)}" if shown else ""


def _not_heard(s: Situation, r: Record) -> str:
    """Which sources stated a fault that was treated, and are not read any more, where no other source stated
    the same fault; empty if there are none."""
    gone = _where_nobody_has_a_word(r, lambda f: f.source if read_no_more(s, f) else "")
    missing = dict.fromkeys(source for sources in gone for source in sources)
    if not missing:
        return ""
    return f"; but {', '.join(missing)}, which stated what was treated, is not read any more"


def on_probation(s: Situation, r: Record, who: str, lasts: timedelta) -> Decision:
    left = r.phase_since + lasts
    return wait(
        f"{who} is on probation for another {span(left - s.now)}", until(left, s.now, POLLED), "probation"
    )


def _blind_to_what_was_treated(s: Situation, r: Record) -> str:
    """Why it is not known whether a fault that was treated is still there; "" where it is known.

    It is not known while all sources that stated it are unknown: a condition is Unknown, say, or as it was
    before the boot. On the same machine a source that is silent in this boot does not count either: its pod
    is not there, or its series are gone, or those of the very device, or its check has not run. Where one
    shows other devices and not that one, it takes a source that tells devices apart to say otherwise. And a
    detector whose page says that a check has not run has written its good condition without one.
    """
    read = [(f, reading) for f in r.treated_faults if (reading := s.reading_of(f.source)) is not None]
    missed = {(f.type, f.reason) for f, reading in read if silent_devices(f, reading)}
    not_run = {(f.type, f.reason) for f, x in read if f.source == PAGE and _without_its_type(f, x)}

    def blind(f: Fault) -> str | None:
        reading = s.reading_of(f.source)
        if reading is None:
            return None
        why = reading.unknown.get(f.type, "")
        if why or r.replacement_machine:
            return why
        if (f.type, f.reason) in missed and devices_of(f, reading) is None:
            return None
        if (f.type, f.reason) in not_run and f.source == CONDITIONS:
            return None
        silent = reading.silent.get(f.type) or reading.silent.get("*", "")
        shown = _without_series(s, f, reading) or _without_its_device(f, reading)
        return silent or shown or _without_its_type(f, reading)

    return next((reasons[0] for reasons in _where_nobody_has_a_word(r, blind)), "")


def _where_nobody_has_a_word(r: Record, why: Callable[[Fault], str | None]) -> list[list[str]]:
    """For each treated fault (type and reason) on which none of its sources has a word: why each has none.

    ``why`` says it of one source; "": it has a word. None: that source does not count.
    """
    answers: dict[tuple[str, str], list[str]] = {}
    for f in r.treated_faults:
        if (answer := why(f)) is not None:
            answers.setdefault((f.type, f.reason), []).append(answer)
    return [of_all for of_all in answers.values() if all(of_all)]


def _without_series(s: Situation, f: Fault, reading: Reading) -> str:
    """That no series says anything of ``f`` since the boot, though one did before; else "".

    This process may not have seen that one. An alert has no series while it does not fire.
    """
    asked = s.policy.source(PROMETHEUS) if f.source == PROMETHEUS else None
    rows = _rows_of(f, asked.metrics) if asked is not None else []
    if not rows or any(row.of_alerts for row in rows):
        return ""
    if (f.type, f.reason) in reading.listed and not of_a_silent_device(f, reading):
        return ""
    where = f" ({f.device})" if f.device else ""
    named = rows[0].name
    return f"Prometheus, row {named}: no series says anything of {f.reason}{where} since the node was booted"


def _without_its_device(f: Fault, reading: Reading) -> str:
    """That the source says nothing of the device of ``f``; else "". The GPU may be gone for good, or its
    check has not run since the boot."""
    if (there := devices_of(f, reading)) is not None and not there:
        return f"{f.source} shows nothing of {f.reason} since the boot"
    missed = ", ".join(silent_devices(f, reading))
    return f"{f.source} shows other devices, but not {missed}" if missed else ""


def _without_its_type(f: Fault, reading: Reading) -> str:
    """That the detector has said nothing of the type of ``f`` in this boot; else "". Its page lists a
    plugin's healthy reason, which has no counter, from the first result on. A drill is taken off the Node."""
    if f.source not in (PAGE, CONDITIONS) or f.type in ("", SIGNAL_UNKNOWN) or is_drill(f.message):
        return ""
    reasons = {reason for type_, reason in reading.listed if type_ == f.type}
    if not reasons:
        return f"{f.source} shows nothing of {f.type} since the boot"
    if f.source == PAGE and not f.latched and reasons <= reading.counters.keys():
        return f"the check of {f.type} has had no result since the boot"
    return ""


def _rows_of(f: Fault, rows: Sequence[MetricRow]) -> Sequence[MetricRow]:
    """The rows by which ``f`` was stated: those of the name that it has. If the policy has none of that name
    any more, those that may state it: they may have been renamed."""
    may = [x for x in rows if x.type.text in ("", f.type) and x.reason.text in ("", f.reason)]
    named, exact = [x for x in rows if x.name == f.life], [x for x in may if x.type.text]
    return named or exact or may


def _of_before_the_boot(s: Situation, r: Record, d: Diagnosis) -> str:
    """Why ``d`` may be of the time before the boot: the query that states it looks back to that; else "".

    Who saw the boot takes such a value for none. A controller that was started since has only the record.
    """
    asked = s.policy.source(PROMETHEUS) if d.fault.source == PROMETHEUS else None
    p = r.progress
    seen = [x for x in (p.evidence and p.evidence.at, p.proving_since if p.boots else None) if x]
    if asked is None or not seen:
        return ""
    # What held the proof has moved these moments on; without this, the wait for that value would begin anew.
    held = sum((x.time for x in p.held if x.cause is Cause.UNREADABLE), timedelta(0))
    by = {x.life for reading in s.readings for x in reading.problems if x.key == d.fault.key}
    back = max((row.looks_back for row in asked.metrics if row.name in by), default=timedelta(0))
    if s.now - max(seen) + held >= back:
        return ""
    return f"{name(d.fault)}: its query looks back {span(back)}, to before the node was booted"


def _early_word(s: Situation, r: Record) -> str:
    """What is wrong as before, but not yet for long enough in this boot to be stated; "" where nothing is.

    Soon it is stated and calls for the next step, or it is over.
    """
    treated = ((f, s.reading_of(f.source)) for f in r.treated_faults)
    return next((why for f, x in treated if x is not None and (why := x.early.get(f.type))), "")


def _unwatched(s: Situation, who: str, lasts: timedelta) -> Decision | None:
    """This process has not watched the whole probation. Time that nobody watched proves nothing (law 11).

    A peer may have begun the probation, or this agent before a restart; or the machine booted meanwhile.
    ``lasts``: how long it is, which may be longer than its rule says.
    """
    if s.watched_for is None or s.watched_for >= lasts:
        return None
    left = lasts - s.watched_for
    return wait(f"{who} is on probation for another {span(left)}", min(left, POLLED), "probation")


def unproved(
    s: Situation, r: Record, why: str, held: Cause | None = None, patience: timedelta = timedelta(0)
) -> Decision:
    """Not healthy now: probation begins again. Past the deadline a person has it.

    ``held``: nothing can be proved meanwhile. That has an end of its own, as long as the proof may take.
    ``patience``: how long a fault may be there before anything is done about it.
    """
    began, allowed = _time_to_prove(r)
    if _proof_is_late(s, r, [(began, allowed), *_proof_deadlines(s, r, patience)], held):
        what = r.intent.action if r.intent else "the machine"
        late = f"{what} was not proved within {span(allowed)}: {why}"
        return replace(hand_over(s, r, late), held=held)
    known = held is not None and (r.progress.holding is not None or tried.known(s, held))
    unjoined = bool(r.replacement_machine) and not r.replacement  # that it joined is written, and begins it
    if s.now - r.phase_since >= RESET and not (known or unjoined):
        again = act(WriteRecord(replace(r, phase_since=s.now)), f"probation begins again: {why}")
        return replace(again, held=held)
    return wait(f"probation: {why}", POLLED, f"unproved {why}", held=held)


def _time_to_prove(r: Record) -> tuple[datetime, timedelta]:
    """Since when the proof is waited for, and how long it may take."""
    if r.progress.acted and r.rung_since is not None:
        return r.rung_since, r.step.within if r.step else LONGEST_PROOF
    return r.progress.proving_since or r.phase_since, LONGEST_PROOF


def proof_of_nobody_is_late(s: Situation, r: Record) -> bool:
    """Whether a machine without a Node and without an agent would be a person's soon. It may be gone."""
    nobody = s.role is Role.CONCLUDER and s.node is None and not r.replacement_machine
    if not nobody or evidence_without_machine(r):
        return False
    soon = replace(s, now=s.now + ASKED_BEFORE)
    return _proof_is_late(soon, r, [_time_to_prove(r), *_proof_deadlines(soon, r)], Cause.AGENT)


def _proof_is_late(
    s: Situation, r: Record, deadlines: list[tuple[datetime, timedelta]], held: Cause | None
) -> bool:
    if held is None:
        return all(tried.over(s, r, since, within) for since, within in deadlines)
    longest = max(since + within for since, within in deadlines) - min(since for since, _ in deadlines)
    return tried.held_by(s, r, held) >= longest


def _proof_deadlines(
    s: Situation, r: Record, patience: timedelta = timedelta(0)
) -> Iterator[tuple[datetime, timedelta]]:
    """Deadlines of what comes after the evidence: two probations, a fault's tolerance, the validation Job.

    The step's own deadline may pass while they run.
    """
    if r.progress.evidence is not None:
        yield r.progress.evidence.at, max(2 * r.probation, patience + r.probation)
    if r.validation is not None and r.validate is not None:
        yield validation.since(s, r.validation), r.validate.within


def prove_same_machine(s: Situation, a: Assessment, r: Record) -> Decision:
    if s.role is Role.CONCLUDER:
        if s.machine_gone:
            why = f"{s.machine_gone}, and its Node {r.node} is gone: nothing is left to prove"
            return end(s, r, Event.OTHER_MACHINE, why, Report(EventReason.SUPERSEDED))
        return unproved(s, r, f"nobody looks after {r.node} to prove it", Cause.AGENT)
    assert s.node is not None
    found = live(s, a.found)
    if there := tuple(d for d in found if not _of_before_the_boot(s, r, d)):
        return _fault_there(s, a, r, there)
    if not s.node.ready:
        return unproved(s, r, f"{r.node} is not Ready")
    for reading in s.readings:
        if not reading.readable:
            return unproved(s, r, reading.unknown["*"], Cause.UNREADABLE)
    if early := _early_word(s, r):
        return unproved(s, r, early, Cause.UNREADABLE, patience=EARLY_FOR)
    before = _of_before_the_boot(s, r, found[0]) if found else ""
    if blind := before or _blind_to_what_was_treated(s, r):
        return unproved(s, r, blind, Cause.UNREADABLE)
    if s.now - r.phase_since < r.probation:
        return on_probation(s, r, r.node, r.probation)
    if unwatched := _unwatched(s, r.node, r.probation):
        return unwatched
    by = by_own_signals(s, "on its own page")
    healthy = f"{r.node} was healthy for {span(r.probation)} {by}{only_told(s, a)}{_not_heard(s, r)}"
    if r.progress.acted:
        if unknown := validation.impossible(s, r):
            return hand_over(s, r, unknown)
        if failed := validation.failure(s, r):
            return fault_returned(s, a, r, failed)
        if more := validation.pending(s, r):
            return more
        healthy += f", and passed Job {r.validation.job}" if r.validation else ""
        return end(s, r, Event.PROVED, f"proved: {healthy}", succeeded(r))
    why = f"withdrawn: after a boot that was not asked for, {healthy}"
    return end_without_us(s, r, why)


def _fault_there(s: Situation, a: Assessment, r: Record, found: tuple[Diagnosis, ...]) -> Decision:
    """A fault is there in probation, so nothing is proved. What its rule tolerates is tolerated here, too.

    A new fault calls for the next step only where its own remedy has that step, and its own rule asks no
    second witness.
    """
    due = [d for d in found if _due(s, r, d) <= s.now]
    if not due:
        d = min(found, key=lambda d: _due(s, r, d))
        return unproved(s, r, tolerated(d, _due(s, r, d) - s.now), patience=d.after)
    known = {(f.type, f.reason) for f in r.treated_faults}
    again = next((d for d in due if (d.fault.type, d.fault.reason) in known), None)
    d, on_record = again or due[0], again is not None  # what is back goes by the ladder, which is frozen
    why = f"{name(d.fault)} {'came back' if on_record else 'showed'} in probation"
    but = "" if on_record or d.rule_name == r.rule else _not_by_its_own_rule(r, d)
    return fault_returned(s, a, r, why, f"{why}; {but}" if but else "")


def _not_by_its_own_rule(r: Record, d: Diagnosis) -> str:
    """Why the rule of ``d`` does not call for the next step of ``r``; empty if it does, or there is none."""
    drained = any(x.do is Step.DRAIN for x in r.ladder[: r.rung + 1])  # then one more of them asks nothing
    ahead = (x.do for x in r.ladder[r.rung + 1 :] if not (drained and x.do is Step.DRAIN))
    step = next(ahead, None) if r.in_flight else None
    return not_by_its_own_rule(d, step) if step is not None else ""


def _due(s: Situation, r: Record, d: Diagnosis) -> datetime:
    """Until when ``d`` is tolerated. The Node was Ready once after the step, so a time in which it is not
    Ready begins anew."""
    if d.fault.type != READY or r.progress.evidence is None:
        return d.due
    now = [p.since for x in s.readings for p in x.problems if p.type == READY]
    return max([d.due, r.progress.evidence.at + d.after, *(since + d.after for since in now)])


def _still_there(s: Situation, a: Assessment, r: Record) -> tuple[Fault, ...]:
    """Which faults have returned. A boot has ended those that no source has stated since.

    If they were kept, they would be latched in the new boot. A repaired machine would be replaced for them
    once the other faults are gone.
    """
    stated = tuple(d.fault for d in live(s, a.found))
    if not stated or s.node is None:
        return r.faults
    keys = {f.key for f in stated}
    kept = tuple(f for f in r.faults if f.key in keys or f.boot_id == s.node.boot_id)
    return kept or stated


def fault_returned(s: Situation, a: Assessment, r: Record, why: str, no_more: str = "") -> Decision:
    """Not cured: the next rung if this one's call was made, else the same rung again.

    ``no_more``: why a person has to go on instead. In both cases the record names what is there now.
    """
    used = r.in_flight
    back = tuple(
        replace(f, cleared=False, boot_id=s.node.boot_id if s.node else f.boot_id)
        for f in _still_there(s, a, r)
    )
    r = as_counted_now(s, replace(r, faults=back))  # what a release is about: as it is stated now
    if no_more:
        return hand_over(s, r, no_more)
    if used and r.rung + 1 >= len(r.ladder):
        return hand_over(s, r, f"{why}, and the remedy has no further step")
    # A node that is out goes on, though its slot is not seen: the gate cannot be read, or somebody edited it.
    # In the queue it would pass for one to which nothing was done.
    out = used or bool(a.slot) or r.progress.acted or marked_by(s, r)
    event = Event.RETURNED if out else Event.REQUEUED
    if not r.ladder or not (out or r.rung):
        event = Event.SUSPECTED  # nothing was begun: what is there now is tolerated as its own rule says
        r = replace(r, ladder=())
    noted = note(r, s.now, HistoryEvent.RETURNED, why)
    changed = replace(
        moved_to_rung(noted, r.rung + 1 if used else r.rung, s.now),
        phase=move(r.phase, event),
        phase_since=s.now,
        validation=None,
    )
    if not out:
        changed = replace(changed, progress=replace(changed.progress, step_since=None))
    report = Report(EventReason.FAULT_RETURNED, warning=True)
    if used and r.intent is not None:
        report = replace(report, outcome="failed", action=r.intent.action)
    return act(WriteRecord(changed), why, report)
