"""What one page of node-problem-detector's ``/metrics`` says. Pure: text in, frozen ``Page`` out.

Facts of the page, from kubernetes/node-problem-detector (``pkg/problemmetrics/problem_metrics.go``,
``pkg/systemlogmonitor/log_monitor.go``, ``pkg/custompluginmonitor/custom_plugin_monitor.go``):

- ``problem_counter{reason}`` and ``problem_gauge{reason,type}``, written as whole numbers, never removed
  while the detector lives, no label that names the node. An OpenTelemetry build may write
  ``problem_counter_total``.
- At its start the detector lists every rule's counter, and every permanent rule's gauge, at 0.
- The healthy reason of a custom plugin has a gauge and never a counter.
- The detector's own exporter gives no ``process_start_time_seconds``. Other builds may.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.samples import Sample

from recovery.signals.series import MAX_LINE, MAX_SERIES, finite, samples, sound

Pair = tuple[str, str]
"""A condition type and a reason."""

WHOLE = "*"
"""The key in ``unknown`` for the source as a whole."""
EDGES = ""
"""The key in ``unknown`` for temporary rules, which have no type."""

_A_NAME = re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*")
_GAUGE = "problem_gauge"
_COUNTERS = ("problem_counter", "problem_counter_total")
_NAMES = (_GAUGE, _COUNTERS[0])
_NAME = re.compile(r"(?<![\w:])problem_(?:gauge|counter(?:_total)?)(?![\w:])")
_TYPE = re.compile(r'(?<!\w)type\s*=\s*"((?:[^"\\]|\\.)+)"')
_REASON = re.compile(r'(?<!\w)reason\s*=\s*"((?:[^"\\]|\\.)+)"')
_STARTED = re.compile(
    r"^process_start_time_seconds(?:\{[^}\n]*\})?[ \t]+([0-9.eE+]{1,40})[ \t]*$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Page:
    """What could be read, and what could not.

    ``gauges`` and ``counters`` hold finite values of undamaged series only. ``pairs`` holds every (type,
    reason) that an undamaged line names, with a usable value or without. ``unknown`` maps a type, ``EDGES``
    or ``WHOLE`` to a sentence about what could not be read. ``started``: when the detector's process began,
    as the page writes it, "" where it does not.
    """

    gauges: Mapping[Pair, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    pairs: frozenset[Pair] = frozenset()
    unknown: Mapping[str, str] = field(default_factory=dict)
    started: str = ""

    @property
    def complaints(self) -> tuple[str, ...]:
        """Each sentence about what could not be read, once."""
        return tuple(dict.fromkeys(self.unknown.values()))


def parse(text: str) -> Page:
    """Read a page in Prometheus text format. Raises nothing: what cannot be read is in ``Page.unknown``.

    Lines of other families are never looked at. A last line without its newline is not used, because a
    number may be cut in it. Values that the detector cannot have written (NaN, infinite, a negative count, a
    gauge of neither 0 nor 1) and series with two different values are unknown.
    """
    draft = _Draft()
    whole, _, rest = text.rpartition("\n")
    if rest.strip() or not text:
        draft.unknown[WHOLE] = "the page ends in the middle of a line" if text else "the page is empty"
    lines = _lines(whole)
    if len(lines) > MAX_SERIES:
        draft.unknown[WHOLE] = f"the page lists more than {MAX_SERIES} problem series"
        lines = []
    for line, sample in samples(lines):
        draft.take(line, sample)
    return draft.page(_started(whole))


def _started(text: str) -> str:
    """The start of the detector's process; "" where the page gives none, or more than one."""
    found = set(_STARTED.findall(text))
    return str(found.pop()) if len(found) == 1 else ""


def _lines(text: str) -> list[str]:
    """The lines that name a problem family, comments left out."""
    near = (line.strip() for line in text.split("\n") if "problem_" in line)
    return [line for line in near if not line.startswith("#") and _NAME.search(line)]


class _Draft:
    """A page while it is being read."""

    def __init__(self) -> None:
        self.gauges: dict[Pair, float] = {}
        self.counters: dict[str, float] = {}
        self.unknown: dict[str, str] = {}
        self.lost_counters: dict[str, str] = {}

    def take(self, line: str, sample: Sample | None) -> None:
        if sample is None:
            self._damaged(line)
        elif sample.name == _GAUGE or sample.name in _COUNTERS:
            self._series(line, sample) if sound(line, _NAMES) else self._damaged(line)
        elif not _A_NAME.fullmatch(sample.name):  # a byte order mark before it, for instance
            self._damaged(line)

    def page(self, started: str) -> Page:
        pairs = frozenset(self.gauges)
        if not (self.gauges or self.counters or self.lost_counters or self.unknown):
            self.unknown[WHOLE] = (
                "this page is not node-problem-detector's: it has neither problem_gauge nor problem_counter"
            )
        for reason, sentence in self.lost_counters.items():
            for type_ in {t for t, r in pairs if r == reason} or {EDGES}:
                self.unknown.setdefault(type_, sentence)
        return Page(
            gauges={pair: value for pair, value in self.gauges.items() if not math.isnan(value)},
            counters={r: v for r, v in self.counters.items() if r not in self.lost_counters},
            pairs=pairs,
            unknown=self.unknown,
            started=started,
        )

    def _series(self, line: str, sample: Sample) -> None:
        reason, type_ = sample.labels.get("reason", ""), sample.labels.get("type", "")
        if sample.name in _COUNTERS and reason:
            self._counter(reason, finite(sample))
        elif sample.name == _GAUGE and reason and type_ and type_ != WHOLE:
            self._gauge((type_, reason), finite(sample))
        else:
            self._damaged(line)

    def _gauge(self, pair: Pair, value: float) -> None:
        type_, reason = pair
        written = value in (0.0, 1.0)
        before = self.gauges.setdefault(pair, value if written else math.nan)
        if not written:
            what = "not a number" if math.isnan(value) else f"{value:g}, and neither 0 nor 1"
            self.unknown.setdefault(type_, f"the gauge of {reason} ({type_}) is {what}")
        elif before != value:
            self.unknown.setdefault(type_, f"the page gives {reason} ({type_}) two different values")
        if before != value:
            self.gauges[pair] = math.nan

    def _counter(self, reason: str, value: float) -> None:
        if math.isnan(value) or value < 0:
            self.lost_counters.setdefault(reason, f"the counter of {reason} is not a count")
        elif self.counters.setdefault(reason, value) != value:
            self.lost_counters.setdefault(
                reason, f"the page gives the counter of {reason} two different values"
            )

    def _damaged(self, line: str) -> None:
        """Name what a broken line was about: its types, its counter's reasons, else the whole source.

        A broken gauge also hides which reasons are temporary rules', because those are known by having none.
        """
        shown = line[:MAX_LINE]
        if _GAUGE in shown:
            types = [_unescaped(t) for t in _TYPE.findall(shown)] or [WHOLE]
            for type_ in (*types, EDGES):
                self.unknown.setdefault(type_, f"a line of problem_gauge is broken: {_quoted(line)}")
        if _COUNTERS[0] in shown:
            sentence = f"a line of problem_counter is broken: {_quoted(line)}"
            reasons = [_unescaped(r) for r in _REASON.findall(shown)]
            self.lost_counters.update({r: sentence for r in reasons if r not in self.lost_counters})
            if not reasons:
                self.unknown.setdefault(WHOLE, sentence)


def _unescaped(value: str) -> str:
    return value.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")


def _quoted(line: str) -> str:
    return repr(line if len(line) <= 120 else line[:119] + "…")
