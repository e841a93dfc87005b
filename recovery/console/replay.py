"""``node-recovery replay``: what would a policy have done about what a Prometheus server has recorded?

Each node's recorded series go through the sources and the core that the agents run, moment by moment, with
recovery off. So it is read as ``node-recovery report`` is, for a time in which nobody had installed anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Protocol

from recovery.agent.fleet.names import NodeNames
from recovery.catalog import metric_rows
from recovery.clock import SystemClock
from recovery.config.policy_file import PolicyFile
from recovery.console.api import connect
from recovery.console.output import WIDE, for_programs, say, show
from recovery.console.report import sighting_as_json, told
from recovery.console.unstarted import unstarted
from recovery.decide.assessment import assess
from recovery.decide.sightings import SILENT, TAKEN_BACK, Report, Sighting, folded, news
from recovery.decide.windows import openings
from recovery.errors import NodeRecoveryError, SettingsError, Unreadable
from recovery.kube.kubeconfig import Target
from recovery.kube.paging import folded as pages
from recovery.model import Ends, Latch, MetricRow, NodeView, Policy, ProviderFacts, Reading
from recovery.quick import replace
from recovery.signals import prometheus
from recovery.signals.names import bounded
from recovery.signals.prometheus_past import Past, narrowed, runs_of
from recovery.units import moment, span

CHUNK = timedelta(hours=6)
"""Of the past, for one question."""
LEAST_STEP = timedelta(seconds=15)
NPD, PROMETHEUS = "npd", prometheus.SOURCE
RECORDED = (NPD, PROMETHEUS)
"""The sources of which a Prometheus server may have a record."""
CONFIRMED = (timedelta(seconds=30), timedelta(minutes=5))
"""A good value takes a fault back once it is so old: ``prometheus.TWICE``, and ``LOOKBACK``."""
GOOD_AGAIN = "its series was good again: after a boot, or a new start of its detector"
FIRES_NO_MORE, SERIES_GONE = "its alert fires no more", "its series is gone"
NOT_ASKED = "budget, brake, cooldown, blockers, a second witness and the cloud"


class Asks(Protocol):
    """A Prometheus server."""

    def ask_range(self, query: str, start: datetime, end: datetime, step: timedelta) -> list[Any]:
        """The series of a range query. Raises ``Unreadable``, nothing else."""


@dataclass(frozen=True)
class Replay:
    """What is replayed: a policy, from ``start`` to ``end``, looked at each ``step``."""

    file: PolicyFile
    start: datetime
    end: datetime
    step: timedelta
    provider: ProviderFacts | None = None
    nodes: Mapping[str, NodeView] | None = None

    @property
    def policy(self) -> Policy:
        return self.file.policy

    @cached_property
    def names(self) -> NodeNames:
        """The Nodes that there are now."""
        return NodeNames((self.nodes or {}).values())


def begun(
    file: PolicyFile,
    length: timedelta,
    step: timedelta,
    provider: ProviderFacts | None,
    nodes: Mapping[str, NodeView] | None,
) -> Replay:
    """A replay of the time of this ``length`` that ends now. Raises ``SettingsError``."""
    if not LEAST_STEP <= step <= CHUNK / 2 or step > length:
        expected = f"{span(LEAST_STEP)} to {span(CHUNK / 2)}, and no more than --since"
        raise SettingsError([f"--step: found {span(step)}, expected {expected}"])
    end = SystemClock().now().replace(microsecond=0)
    return Replay(file, end - length, end, step, provider, nodes)


def nodes_of(target: Target) -> Mapping[str, NodeView]:
    """The Nodes of the cluster, by name. Raises ``ApiError``."""
    api = connect(target)
    return pages(lambda: {node.name: node for node in api.list_nodes()})


def replay(what: Replay, server: Asks, output: str) -> None:
    """Print what would have been done. Raises ``SettingsError`` where the policy reads nothing that a server
    records, and ``NodeRecoveryError`` where the server does not answer."""
    if not rows_of(what.policy):
        expected = f"{' or '.join(RECORDED)}, which a Prometheus server may have recorded"
        raise SettingsError([f"{what.file.path}: field sources: expected {expected}"])
    pasts = recorded(what, server)
    seen = sorted(
        (x for name in sorted(pasts) for x in played(what, name, pasts[name])),
        key=lambda x: x.since,
        reverse=True,
    )
    if for_programs(output):
        show(_as_json(what, seen), output)
        return
    for line in _lines(what, seen, output == WIDE):
        say(line)


# ---------------------------------------------------------------- what was recorded


def rows_of(policy: Policy) -> list[tuple[str, MetricRow]]:
    """The rows to ask for, each with the source whose word it is.

    What the page of node-problem-detector shows is recorded where a Prometheus server scrapes it, too.
    """
    found = []
    for choice in policy.sources:
        if choice.name == NPD:
            found += [(NPD, row) for row in metric_rows()[NPD]]
        elif choice.name == PROMETHEUS:
            found += [(PROMETHEUS, row) for row in choice.metrics]
    return found


def recorded(what: Replay, server: Asks) -> Mapping[str, Mapping[str, Past]]:
    """What was recorded, by node and source, of all nodes that had a fault."""
    pasts: dict[str, dict[str, Past]] = {}
    for source, row in rows_of(what.policy):
        for start, end in _chunks(what):
            try:
                query = narrowed(row, end - start, what.step)
                found = list(runs_of(row, server.ask_range(query, start, end, what.step), what.step))
            except Unreadable as error:
                when = f"{start:%Y-%m-%d %H:%M}Z to {end:%Y-%m-%d %H:%M}Z"
                raise NodeRecoveryError(
                    f"the Prometheus server, row {row.name}, {when}: {error.reason}"
                ) from None
            for series, run in found:
                name = _node(what, series.node, series.instance)
                if name:
                    past = pasts.setdefault(name, {}).setdefault(source, Past(what.step))
                    past.add(row, run)
    return pasts


def _chunks(what: Replay) -> Iterator[tuple[datetime, datetime]]:
    start = what.start
    while start < what.end:
        end = min(start + CHUNK, what.end)
        yield start, end
        start = end + what.step


def _node(what: Replay, node: str, instance: str) -> str:
    """The Node's name. One that is gone, as a machine that was replaced is, goes by what its label says."""
    known, _ = what.names.node_of(node or instance, "a series")
    return known or node or instance.rpartition(":")[0] or instance


# ---------------------------------------------------------------- the past, played by the core


def played(what: Replay, name: str, pasts: Mapping[str, Past]) -> tuple[Sighting, ...]:
    """What an agent of this node would have seen, and would have done."""
    known = what.nodes.get(name) if what.nodes else None
    labels = known.labels if known else {}
    s = unstarted(what.start, name, labels, what.policy, what.provider, machine=name, on=False)
    states = {source: prometheus.State() for source in pasts}
    report = Report(what.start)
    for now in _moments(what, pasts):
        readings = []
        for source, past in pasts.items():
            stated = [x._replace(row=_taken_back(x.row)) for x in past.at(now)]
            words = [prometheus.RowWord(row, now) for row in {x.row for x in stated}]
            states[source], reading = prometheus.observe(states[source], prometheus.Look(now, words, stated))
            readings.append(bounded(_said_by(source, reading)))
        s = replace(s, now=now, readings=tuple(readings))
        report = folded(report, news(s, assess(s)))
    return tuple(_ended(what, x, pasts) for x in report.sightings)


def _taken_back(row: MetricRow) -> MetricRow:
    """``row`` with faults that a good value ends, or the end of an alert. Nobody records boots."""
    query = "" if row.of_alerts else row.query
    return replace(row, query=query, ends=Ends(Latch.SOURCE, row.ends.hold), plugins_only=False)


def _said_by(source: str, reading: Reading) -> Reading:
    """``reading`` as the word of ``source``. That nothing was known for long is left out: a node is asked
    about only around its faults."""
    problems = tuple(replace(p, source=source) for p in reading.problems)
    return replace(reading, source=source, problems=problems, unknown_since={})


def _moments(what: Replay, pasts: Mapping[str, Past]) -> list[datetime]:
    """When to look: whenever a series changes, and when something is due after that."""
    after = {timedelta(0), *CONFIRMED}
    for rule in what.policy.rules:
        after |= {rule.after, *((rule.hold,) if rule.hold else ())}
    edges = {edge for past in pasts.values() for edge in past.edges()}
    found = {edge + later for edge in edges for later in after}
    found |= set(openings(what.policy, what.start, what.end))
    return sorted({at for at in found if what.start <= at < what.end} | {what.end})


def _ended(what: Replay, x: Sighting, pasts: Mapping[str, Past]) -> Sighting:
    """``x`` with what the series say of its end, where only a boot would have told an agent of it."""
    last = pasts[x.source].of((x.type, x.reason))
    if x.ended is not None:
        if x.how != TAKEN_BACK or not any(prometheus.latched(run.stated) for run in last):
            return x
        return replace(x, how=FIRES_NO_MORE if any(run.stated.row.of_alerts for run in last) else GOOD_AGAIN)
    gone = max(run.end for run in last)
    if what.end - gone > 2 * what.step + CONFIRMED[1]:
        return replace(x, seen=gone, ended=gone, how=SERIES_GONE)
    return replace(x, seen=what.end) if what.end - x.seen < SILENT else x


# ---------------------------------------------------------------- what is told


def at_once(seen: Sequence[Sighting], end: datetime) -> tuple[int, datetime | None]:
    """On how many nodes at most there was a fault to treat at one moment, and when that was first."""
    changes = []
    for x in seen:
        if x.due is not None:
            changes += [(x.due, 1, x.node), (x.ended or end, -1, x.node)]
    sick: dict[str, int] = {}
    most, when = 0, None
    for at, by, node in sorted(changes):
        sick[node] = sick.get(node, 0) + by
        if (now := sum(count > 0 for count in sick.values())) > most:
            most, when = now, at
    return most, when


def _lines(what: Replay, seen: Sequence[Sighting], wide: bool) -> Iterator[str]:
    when = f"{what.start:%Y-%m-%d %H:%M}Z to {what.end:%Y-%m-%d %H:%M}Z"
    yield f"Policy {what.policy.name}, by what Prometheus has recorded from {when}:"
    yield ""
    yield from told(seen, what.end, wide)
    limits = what.policy.limits
    most, at = at_once(seen, what.end)
    yield ""
    if at is not None:
        many = "1 node" if most == 1 else f"{most} nodes"
        yield (
            f"At most {many} had a fault to treat at one moment, at {at:%Y-%m-%d %H:%M}Z; limits.budget is "
            f"{limits.budget}, limits.brake {limits.brake}."
        )
    yield f"Not asked: {NOT_ASKED}."
    if left := [x.name for x in what.policy.sources if x.name not in RECORDED]:
        yield f"Not recorded, and left out: {', '.join(left)}."
    if what.nodes is None and any(rule.match.node_labels for rule in what.policy.rules):
        yield "The labels of nodes are not known, so rules that match by labels did not: use --cluster."


def _as_json(what: Replay, seen: Sequence[Sighting]) -> dict[str, Any]:
    most, when = at_once(seen, what.end)
    return {
        "policy": what.policy.name,
        "since": moment(what.start),
        "until": moment(what.end),
        "atOnce": {"nodes": most, "at": moment(when) if when else None},
        "notRecorded": [x.name for x in what.policy.sources if x.name not in RECORDED],
        "sightings": [sighting_as_json(x, what.end) for x in seen],
    }
