"""Fleet mode: which replica of the controller leads, and does what it asks for all nodes answer?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

from recovery.agent.fleet.leader import LEASE, LENGTH
from recovery.agent.servers import loki_of, prometheus_of
from recovery.config.settings import Mode, Settings
from recovery.console.doctor.api import DoctorApi
from recovery.console.doctor.context import CheckContext, why_not
from recovery.console.output import ago
from recovery.errors import ApiError, NotFound, Unreadable
from recovery.model import LogChoice, MetricRow
from recovery.provider.protocol import Finding
from recovery.quick import replace
from recovery.signals.loki import SOURCE as LOKI
from recovery.signals.prometheus import SOURCE as PROMETHEUS
from recovery.signals.prometheus_answer import read, time_of
from recovery.signals.prometheus_http import PrometheusClient
from recovery.units import few

AREA, OF_SIDECARS = "controller", "blockers"
LATE = LENGTH + timedelta(seconds=5)
"""A Lease that was renewed longer ago should have another holder by now."""
LOG = "do the replicas run, and may they update the Lease? look at the log of their pods"
ANYTHING = "vector(1)"
"""A question that every Prometheus server answers."""
CLUSTERS = "count by (cluster) (up)"
"""What a server that stores the series of several clusters mostly tells them apart by."""
MOST_NAMED = 4


def check(context: CheckContext) -> Iterator[Finding]:
    """In the controller's pod; of a sidecar whether it hears of the alerts that block."""
    settings = context.settings
    if context.api is None or settings is None or not context.in_pod:
        return
    alerts = settings.policy.limits.goes_by_alerts
    if not context.is_controller:
        if alerts and settings.mode is Mode.SIDECAR:
            yield replace(_prometheus(settings, alerts), area=OF_SIDECARS)
        return
    yield _leader(context.api, settings)
    if alerts or settings.policy.source(PROMETHEUS) is not None:
        yield (answers := _prometheus(settings, alerts))
        client, source = prometheus_of(settings), settings.policy.source(PROMETHEUS)
        if answers.ok and client is not None and source is not None:
            yield from _rows(client, source.metrics, context.api.time.now())
            yield from _of_several_clusters(client, source.metrics)
    if (choice := settings.policy.source(LOKI)) is not None and choice.logs is not None:
        yield _loki(settings, choice.logs, context.api.time.now())


def _leader(api: DoctorApi, settings: Settings) -> Finding:
    if not settings.enable_recovery:
        return Finding(AREA, True, "ENABLE_RECOVERY is false: no replica leads, each observes by itself")
    name = f"{settings.pod_namespace}/{LEASE}"
    try:
        holder, renewed = api.lease(settings.pod_namespace, LEASE)
    except NotFound:
        return Finding(AREA, False, f"nobody leads: there is no Lease {name}", LOG)
    except ApiError as error:
        return Finding(AREA, None, f"which replica leads: {why_not(error)}")
    now = api.time.now()
    if not holder or renewed is None or now - renewed > LATE:
        return Finding(AREA, False, f"nobody leads: the Lease {name} {_stale(holder, renewed, now)}", LOG)
    return Finding(AREA, True, f"{holder} leads, and renewed the Lease {name} {ago(renewed, now)}")


def _stale(holder: str, renewed: datetime | None, now: datetime) -> str:
    if not holder:
        return "has no holder"
    return f"of {holder} was renewed {ago(renewed, now)}" if renewed else f"of {holder} was never renewed"


def _prometheus(settings: Settings, alerts: bool) -> Finding:
    client = prometheus_of(settings)
    if client is None:
        why = "the policy has the source prometheus, and PROMETHEUS_URL is not set"
        return Finding(AREA, False, why, "set it to the server's address")
    meanwhile = "what its rows would say is unknown meanwhile"
    if alerts:
        meanwhile = "no recovery starts meanwhile: whether alerts of limits.blockers fire is not known"
    return _answers("Prometheus", lambda: client.ask(ANYTHING), meanwhile)


def _rows(client: PrometheusClient, rows: Sequence[MetricRow], now: datetime) -> Iterator[Finding]:
    """What the server answers to each row: it may refuse one, or know nothing of what it asks."""
    for row in rows:
        named, finds = f"row {row.name}", f"no fault is found by {row.query}"
        try:
            found = read(row, answer := client.ask(row.query), None, now)
        except Unreadable as error:
            yield Finding(AREA, False, f"{named}: {error.reason}", finds)
            continue
        there = {x.node or x.instance for x in found} - {""}
        if there or row.of_alerts or not (answer or time_of(row.query)):  # it may have faults alone
            yield Finding(AREA, True, f"{named}: series of {len(there)} nodes or addresses")
        elif found:
            lacks = f"none of its {len(found)} series has the label {row.node}, nor instance"
            yield Finding(AREA, False, f"{named}: {lacks}", finds)
        elif answer:
            lacks = (
                f"none of its {len(answer)} series has the label {' and the label '.join(row.naming_labels)}"
            )
            yield Finding(AREA, False, f"{named}: {lacks}", finds)
        else:
            yield Finding(AREA, False, f"{named}: its query returns no series", finds)


def _of_several_clusters(client: PrometheusClient, rows: Sequence[MetricRow]) -> Iterator[Finding]:
    """The rows that ask for the nodes of all clusters, where the server has several: their Nodes may have one
    name."""
    of_all = list(dict.fromkeys(x.name for x in rows if "cluster" not in x.query))
    if not of_all:
        return
    try:
        found = client.ask(CLUSTERS)
    except Unreadable:
        return  # each row has its own finding
    clusters = sorted({str(x.get("metric", {}).get("cluster", "")) for x in found} - {""})
    if len(clusters) > 1:
        several = f"the server has {len(clusters)} clusters ({few(clusters, MOST_NAMED)})"
        why = "a Node of another cluster may have the name of one of yours: name your cluster in the query"
        yield Finding(AREA, False, f"{several}, and these rows ask for all: {few(of_all, MOST_NAMED)}", why)


def _loki(settings: Settings, logs: LogChoice, now: datetime) -> Finding:
    client = loki_of(settings)
    if client is None:
        why = "the policy has the source loki, and LOKI_URL is not set"
        return Finding(AREA, False, why, "set it to the server's address")
    end = int(now.timestamp()) * 10**9
    meanwhile = "no line is read meanwhile; no call is made for what lines stated"
    return _answers("Loki", lambda: client.ask(logs.selector, end - 10**9, end, 1), meanwhile)


def _answers(server: str, ask: Callable[[], object], meanwhile: str) -> Finding:
    try:
        ask()
    except Unreadable as error:
        return Finding(AREA, False, f"the {server} server does not answer: {error.reason}", meanwhile)
    return Finding(AREA, True, f"the {server} server answers")
