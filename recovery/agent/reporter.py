"""What an agent reports of its cycles: the log line, Events and metrics, each when it is due."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from datetime import datetime

from recovery.clock import Clock
from recovery.decide.assessment import Assessment
from recovery.decide.decision import REPEAT, Decision, EventReason, Evict, Verb, WriteRecord
from recovery.decide.diagnosis import name
from recovery.decide.imagined import leading
from recovery.decide.situation import Situation
from recovery.model import Kind, Problem, Reading, Step
from recovery.report.metrics import Metrics
from recovery.report.notice import NOTHING, About, Notice
from recovery.report.publish import Publisher

log = logging.getLogger(__name__)

REPEATED = frozenset({"undecodable", "handedOver", "abandoned", "vanished", "lost", "deleted", "marked"})
"""Keys of decisions whose Event is sent again every minute, until somebody acts on it."""
UNSAID = "handed-in"
"""The key of the shortest wait. Only its outcome is logged, since threads wait for each other's log lines."""
QUIET_WAITS = frozenset({"settle", "turn", "conflict", "lease", UNSAID})
"""Keys of short waits that make no Event."""
KEPT = ("fault ", "held ", "happened ")
"""Keys that begin so are repeated by themselves, whatever else is sent."""
SHOWN_FOR = 300.0
"""Seconds for which what a temporary rule counted is a fault in the metric, so that it is scraped."""
EVENT_OF = {"handedOver": EventReason.HANDED_OVER, "abandoned": EventReason.ABANDONED_BY_SWITCH_OFF}


class Reporter:
    """Reports for one node's agent: what repeats only once, or once a minute."""

    def __init__(self, node: str, clock: Clock, publisher: Publisher, metrics: Metrics) -> None:
        self.node = node
        self.node_uid = ""
        self._clock = clock
        self._publisher = publisher
        self._metrics = metrics
        self._sent_at: dict[str, float] = {}
        self._last_counted: dict[tuple[str, str, str], datetime] = {}
        self._shown_since: dict[tuple[str, str, str], float] = {}
        self._logged = ""
        self._repeated = ""  # what the last decision says again and again

    @property
    def repeats_in(self) -> float:
        """Seconds until what the last decision says is to be said again. Infinite where it is said once."""
        last = self._sent_at.get(self._repeated)
        if last is None:
            return math.inf
        return max(last + REPEAT.total_seconds() - self._clock.monotonic(), 0.0)

    def decision(self, s: Situation, a: Assessment, d: Decision) -> None:
        """Report the decision of a cycle."""
        self._repeated = ""
        self._gauges(s, d)
        self._held(s, d)
        if d.before is not None:
            self._log(d.before)
        self._log(d)
        if d.effect is not None and d.report is not None and d.report.event is EventReason.HANDED_OVER:
            self._sent_at[f"{EventReason.HANDED_OVER} handedOver"] = self._clock.monotonic()
        if d.effect is not None or d.verb is Verb.LEAVE:
            return  # effects are reported by the executor
        if d.verb is Verb.WAIT and d.key in QUIET_WAITS:
            return
        reason = _event_of(s, d)
        told, again = f"{reason} {d.key}", d.key in REPEATED
        self._repeated = told if again else ""
        if not self._due(told, repeat=again):
            return
        if reason is EventReason.WOULD_RECOVER and d.key.startswith("would ") and a.found:
            first = leading(s, a)
            step = next(r.do for r in first.ladder if r.do is not Step.NOTIFY)
            self._metrics.would_act.labels(first.rule_name, step.value).inc()
        self._event(reason, d, d.verb is Verb.HOLD, s.now, _about(s, a))

    def failure(self, d: Decision, now: datetime) -> None:
        """Report a cycle that failed, in the log and as an Event. Not each minute: where the API server was
        away, all agents would send at once what they had kept."""
        self._log(d, logging.WARNING)
        if self._due(f"failed {d.key}"):
            self._event(EventReason.FAILED, d, True, now)

    def faults(self, readings: Iterable[Reading], at: datetime, *, gone: bool = False) -> None:
        """Publish faults while they last, in observe mode too: alarms need data points. ``gone``: the Node is
        no more, so none lasts, and no source has to say anything of it."""
        readings = tuple(readings)
        for r in readings:
            unknown = 0 if r.readable or gone else 1
            self._metrics.share(self._metrics.signal_unknown, unknown, self.node, r.source)
        readings = () if gone else readings
        for p in (p for r in readings for p in r.problems):
            if p.kind is Kind.EDGE:
                self._happened(p, at)
            elif self._due(f"fault {p.type} {p.reason}", repeat=True):
                self._publisher.fault(p.reason, at)
        stated = [(p.type, p.reason) for r in readings for p in r.problems if self._is_there(p)]
        self._metrics.these(self._metrics.faults, stated, self.node)

    def _happened(self, p: Problem, at: datetime) -> None:
        """Publish what a temporary rule has counted, each time that it happens; but its Event, which people
        read, at most once a minute."""
        if not p.times or self._last_counted.get(p.key) == p.times[-1]:
            return
        self._last_counted[p.key], self._shown_since[p.key] = p.times[-1], self._clock.monotonic()
        self._publisher.fault(p.reason, at)
        if self._due(f"happened {p.reason}", repeat=True):
            sentence = f"{p.message}: reported, and nothing is done unless a rule counts how often (times)"
            seen = EventReason.FAULT_SEEN.value
            about = About(p.reason)
            told = Notice(self.node, self.node_uid, seen, sentence, True, at, f"counted {p.reason}", about)
            self._publisher.event(told)

    def _is_there(self, p: Problem) -> bool:
        """Whether the node has that fault now. An edge is over once it is counted. It is remembered for a
        day, but must not look like a fault that lasts for a day."""
        if p.kind is not Kind.EDGE:
            return True
        since = self._shown_since.get(p.key)
        return since is not None and self._clock.monotonic() - since < SHOWN_FOR

    def _event(
        self, reason: EventReason, d: Decision, warning: bool, at: datetime, about: About = NOTHING
    ) -> None:
        told = Notice(self.node, self.node_uid, reason.value, d.reason, warning, at, d.key, about)
        self._publisher.event(told)

    def _due(self, key: str, repeat: bool = False) -> bool:
        """Whether ``key`` is to be sent now: once until another is sent, or every minute with ``repeat``.

        A minute after it was due, not after it was sent: alarms count by minutes, and none is to be left out.
        """
        now, every = self._clock.monotonic(), REPEAT.total_seconds()
        last = self._sent_at.get(key)
        if last is not None and (not repeat or now - last < every):
            return False
        if not repeat:
            self._sent_at = {k: v for k, v in self._sent_at.items() if k.startswith(KEPT)}
        elif last is None:  # what was not repeated for so long is over, or will be due at once
            self._sent_at = {
                k: v for k, v in self._sent_at.items() if now - v < 2 * every or not k.startswith(KEPT)
            }
        self._sent_at[key] = last + every if last is not None and now - last < 2 * every else now
        return True

    def _held(self, s: Situation, d: Decision) -> None:
        """Publish what holds a recovery while it lasts, as faults are: above all the brake (law 10).

        In observe mode nothing is held, though decisions may have the verb.
        """
        kind = _kind(d)
        if d.verb is not Verb.HOLD or kind.startswith(("would", "tell")):
            return
        if self._due(f"held {kind}", repeat=True):
            self._publisher.held(kind, s.now)

    def _gauges(self, s: Situation, d: Decision) -> None:
        m = self._metrics
        record = s.record
        m.one_of(m.phase, record.phase.value if record is not None and record.phase.sick else "", self.node)
        if not _goes_on(s, d):
            m.one_of(m.held, _kind(d) if d.verb is Verb.HOLD else "", self.node)
        m.share(m.open_handovers, 1 if d.key == "handedOver" else 0, self.node)
        m.share(m.abandoned, 1 if d.key == "abandoned" else 0, self.node)

    def _log(self, d: Decision, level: int = logging.INFO) -> None:
        """Log the sentence of the cycle when it changes, with the key that machines look for."""
        line = d.reason if d.effect is not None else f"{d.verb} {d.key}"
        if line != self._logged and d.key != UNSAID:
            self._logged = line
            log.log(level, "%s: %s [key=%s]", self.node, d.reason, d.key)


def _goes_on(s: Situation, d: Decision) -> bool:
    """Whether ``d`` ends nothing that holds the step: an eviction that is asked for again in a late drain, or
    the write of how long the step was held."""
    if isinstance(d.effect, Evict):
        return True
    r, new = s.record, d.effect.record if isinstance(d.effect, WriteRecord) else None
    return r is not None and new is not None and (new.phase, new.rung) == (r.phase, r.rung)


def _event_of(s: Situation, d: Decision) -> EventReason:
    if (reason := EVENT_OF.get(d.key)) is not None:
        return reason
    if not s.on and d.key.startswith("would"):
        return EventReason.WOULD_RECOVER
    return EventReason.HELD if d.verb is Verb.HOLD else EventReason.WAITING


def _about(s: Situation, a: Assessment) -> About:
    """What the decision is about: the record's recovery, or the fault that would begin one."""
    if (s.record is not None and s.record.phase.sick) or not a.found:
        return About.of(s.record)
    first = leading(s, a)
    return About(name(first.fault), first.rule_name, first.ladder[0].do.value if first.ladder else "")


def _kind(d: Decision) -> str:
    """The key without the name of a fault: a metric's label must not have a value for each fault."""
    return d.key.split(" ", 1)[0]
