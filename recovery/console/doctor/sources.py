"""What does each source of the policy say of the node, is it reachable, what does it never take back?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recovery.catalog import polarity
from recovery.config.policy_able import SIDECARS_ONLY
from recovery.config.settings import Settings
from recovery.console.doctor.context import CheckContext, why_not
from recovery.console.output import ago
from recovery.errors import ApiError, Unreadable
from recovery.model import NodeView, Policy, Reading, SourceChoice
from recovery.provider.protocol import Finding
from recovery.signals import (
    autopilot,
    autopilot_gauge,
    aznhc,
    conditions,
    dcgm,
    device_counts,
    konduktor,
    loki,
    memory,
    page,
    prometheus,
)
from recovery.signals.marks import Said
from recovery.signals.pod_page import NONE, chosen, over_http, url_of
from recovery.signals.scrape import PageReader
from recovery.units import parse_moment

AREA = "sources"
NEVER: Mapping[str, str] = {
    memory.SOURCE: "what a log rule states",
    conditions.SOURCE: "what a log rule or EKS's monitoring agent states",
    autopilot.SOURCE: "EVICT, and a failed level 1 of DCGM",
    aznhc.SOURCE: "anything",
    konduktor.SOURCE: "anything",
    dcgm.SOURCE: "XIDs and remapped rows",
    device_counts.SOURCE: "anything while machines like it do not agree",
    prometheus.SOURCE: "an alert, or a row whose latch is boot or proof",
    loki.SOURCE: "anything",
}
SAID_ELSEWHERE = (memory.SOURCE, conditions.SOURCE)
"""Checks of their own say what is missing of these."""
IN_ITS_POD = "ask in its pod: kubectl exec ... -c node-recovery -- node-recovery doctor"
ON_RECORDS = "its faults stand on the records: node-recovery status"
RUNNING = "is the program that it reads running? until it can be read, calls because of its faults are held"
CHOSEN = "if there should be one: do the source's namespaces, selector and port fit? see docs/sources.md"
MARKS: Mapping[str, Callable[[NodeView], Said]] = {
    each.SOURCE: each.read for each in (autopilot, aznhc, konduktor)
}


@dataclass(frozen=True, slots=True)
class _Word:
    """What is known of a source. ``newest``: since when its newest fault is there, None where not known.
    ``unknown``: why nothing is known of all or some of it; ``missing``: that there is nothing to read."""

    read: str
    faults: int = 0
    newest: datetime | None = None
    unknown: str = ""
    missing: str = ""


def check(context: CheckContext) -> Iterator[Finding]:
    """One line for each source: from the agent's own view, or else by a look from here."""
    if context.settings is None or context.node is None or context.api is None:
        return
    now = context.api.time.now()
    for choice in context.settings.policy.sources:
        if context.is_controller and choice.name in SIDECARS_ONLY:
            continue
        word = _agents_word(context.agent_view, choice.name, now)
        word = word or _own_word(context, context.settings, context.node, choice)
        yield _finding(choice.name, word, now, ON_RECORDS if context.is_controller else IN_ITS_POD)


def _finding(name: str, word: _Word | None, now: datetime, elsewhere: str) -> Finding:
    never = f"it never takes back {NEVER[name]}"
    if name in SAID_ELSEWHERE and (word is None or word.unknown):
        sentence, ok, remedy = f"{name}: not known, see above; {never}", True, ""
    elif word is None:
        sentence, ok, remedy = f"{name}: what it says is not known from here; {never}", None, elsewhere
    elif word.unknown:
        sentence, ok, remedy = (
            f"{name}: {_said(word, now)}; not known: {word.unknown}; {never}",
            False,
            RUNNING,
        )
    elif word.missing:
        sentence, ok, remedy = f"{name}: {word.missing}; {never}", True, CHOSEN
    else:
        sentence, ok, remedy = f"{name}: {_said(word, now)}; {never}", True, ""
    return Finding(AREA, ok, sentence, remedy)


def _said(word: _Word, now: datetime) -> str:
    if not word.faults:
        return f"{word.read}, states no fault"
    since = f", the newest {ago(word.newest, now)}" if word.newest else ""
    return f"{word.read}, states {word.faults} fault{'s' if word.faults > 1 else ''}{since}"


# ---------------------------------------------------------------- what the agent has read


def _agents_word(view: Mapping[str, Any], name: str, now: datetime) -> _Word | None:
    found = view.get("readings")
    listed = found if isinstance(found, list) else []
    reading = next((r for r in listed if isinstance(r, dict) and r.get("source") == name), None)
    if reading is None:
        return None
    problems = [p for p in reading.get("problems") or () if isinstance(p, dict)]
    begun = [at for p in problems if (at := _moment(p.get("since"))) is not None]
    at = _moment(reading.get("at"))
    return _Word(
        read=f"read {ago(at, now)}" if at else "read",
        faults=len(problems),
        newest=max(begun, default=None),
        unknown=next((str(why) for why in (reading.get("unknown") or {}).values()), ""),
        missing=next((str(why) for why in (reading.get("silent") or {}).values() if why == NONE), ""),
    )


def _moment(text: object) -> datetime | None:
    try:
        return parse_moment(str(text))
    except ValueError:
        return None


# ---------------------------------------------------------------- a look from here


def _own_word(
    context: CheckContext, settings: Settings, node: NodeView, choice: SourceChoice
) -> _Word | None:
    if choice.name == memory.SOURCE:
        return _page(settings.npd_metrics_url) if context.reads_page else None
    if choice.name == conditions.SOURCE:
        return _conditions(settings.policy, node, choice)
    marks = _marks(MARKS[choice.name](node)) if choice.name in MARKS else None
    if choice.pod is None or not context.in_pod:
        return marks
    pod = _pod(context, node, choice)
    return pod if marks is None else _both(marks, pod)


def _page(url: str) -> _Word:
    try:
        found = page.parse(PageReader(url).read().decode("utf-8", errors="replace"))
    except Unreadable as error:
        return _Word("not read", unknown=error.reason)
    unknown = found.unknown.get(page.WHOLE, "")
    return _Word("read just now", sum(map(bool, found.gauges.values())), unknown=unknown)


def _conditions(policy: Policy, node: NodeView, choice: SourceChoice) -> _Word:
    named = {rule.match.type for rule in policy.rules}
    rows = [(c, row) for c in node.stated if (row := polarity(c.type, choice.rows, named)) is not None]
    bad = [c.transition for c, row in rows if c.status == row.bad]
    return _Word("read just now", len(bad), max((at for at in bad if at), default=None))


def _marks(said: Said) -> _Word:
    return _Word("read just now", len(said.marks), unknown=next(iter(said.unknown.values()), ""))


def _pod(context: CheckContext, node: NodeView, choice: SourceChoice) -> _Word:
    assert context.api is not None
    assert choice.pod is not None
    try:
        found = chosen(context.api.list_pods(node.name), choice.pod)
    except ApiError as error:
        return _Word("not read", unknown=f"the pods of the node: {why_not(error)}")
    if found.pod is None:
        return (
            _Word("not read", missing=found.why)
            if found.why == NONE
            else _Word("not read", unknown=found.why)
        )
    try:
        body = over_http(url_of(found.pod, choice.pod.port), str(found.pod))()
    except Unreadable as error:
        return _Word("not read", unknown=f"the page of {found.pod} cannot be read: {error.reason}")
    reading = _observed(choice, body.decode("utf-8", errors="replace"), context.api.time.now(), node.name)
    return _Word(
        f"read just now in {found.pod}", len(reading.problems), unknown="; ".join(reading.unknown.values())
    )


def _observed(choice: SourceChoice, text: str, at: datetime, node: str) -> Reading:
    if choice.name == dcgm.SOURCE:
        return dcgm.observe(dcgm.State(), text, at, "")[1]
    return autopilot_gauge.observe(autopilot_gauge.State(), text, at, "", node, choice.slow_pcie)[1]


def _both(marks: _Word, pod: _Word) -> _Word:
    """What is said by marks and by a pod; that there is no pod is no fault of the marks."""
    missing = (
        f"{marks.read} by its marks, {marks.faults or 'no'} faults; {pod.missing}" if pod.missing else ""
    )
    unknown = "; ".join(filter(None, (marks.unknown, pod.unknown)))
    return _Word(pod.read, marks.faults + pod.faults, unknown=unknown, missing=missing)
