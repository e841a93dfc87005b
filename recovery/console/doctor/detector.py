"""Does node-problem-detector speak, and does it ever say what the policy's rules are about?"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from datetime import datetime, timedelta
from typing import Any

from recovery.console.doctor import rules
from recovery.console.doctor.context import Visit
from recovery.console.output import ago
from recovery.model import NodeView
from recovery.provider.protocol import Finding
from recovery.signals.npd import stale_after
from recovery.signals.page import EDGES, WHOLE, Page, Pair, parse
from recovery.signals.scrape import PageReader, Unreadable, check_url
from recovery.signals.tracker import SOURCE
from recovery.units import parse_moment

AREA = "detector"
HEARTBEAT = timedelta(minutes=5)
"""How often node-problem-detector renews its conditions: --k8s-exporter-heartbeat-period, and its default."""
_SHOWN = 8

Asking = Generator[Finding, None, frozenset[Pair] | None]
"""Yields findings, and returns all that the detector lists, None where that is not known."""


def look(visit: Visit) -> Iterator[Finding]:
    """The page itself in the pod; from elsewhere what the agent there has read of it."""
    if not visit.node_name:
        return
    if visit.own_page and visit.settings is not None:
        pairs = yield from _page(visit, visit.settings.npd_metrics_url)
    else:
        pairs = yield from _from_agent(visit)
    if visit.node is not None and pairs is not None:
        yield from _heartbeat(visit, visit.node, pairs)
    if pairs is not None and visit.settings is not None:
        yield from _rules(visit, rules.Listed(pairs))


# ---------------------------------------------------------------- the page


def _page(visit: Visit, url: str) -> Asking:
    addresses = visit.node.addresses if visit.node else ()
    if visit.node is not None and (why := check_url(url, addresses)):
        yield Finding(
            AREA, False, why, "each sidecar reads the page of its own node: http://127.0.0.1:20257/metrics"
        )
        return None
    try:
        body = PageReader(url).read()
    except Unreadable as error:
        yield Finding(
            AREA,
            False,
            f"{url} cannot be read: {error.reason}",
            "is node-problem-detector running in this pod, and do its --prometheus-address and "
            "--prometheus-port agree with NPD_METRICS_URL?",
        )
        return None
    page = parse(body.decode("utf-8", errors="replace"))
    if WHOLE in page.unknown:
        yield Finding(
            AREA, False, f"{url}: {page.unknown[WHOLE]}", f"look at it: curl -s {url} | grep ^problem_"
        )
        return None
    yield Finding(AREA, True, f"{url} is node-problem-detector's page: {_count(page.pairs, page)}")
    for sentence in page.complaints:
        yield Finding(AREA, True, f"part of it is unknown: {sentence}", f"curl -s {url} | grep ^problem_")
    return _listed(page)


def _listed(page: Page) -> frozenset[Pair]:
    """All that it can report. A plugin's healthy reason has no counter, and is no fault."""
    gauged = {reason for _, reason in page.pairs}
    faults = {(t, r) for t, r in page.pairs if r in page.counters or not page.counters}
    return frozenset(faults | {(EDGES, r) for r in page.counters if r not in gauged})


def _count(pairs: frozenset[Pair], page: Page) -> str:
    types, events = len({t for t, _ in pairs}), len(page.counters.keys() - {r for _, r in pairs})
    return f"{_conditions(types)}, {events} {'event' if events == 1 else 'events'} that are only counted"


def _conditions(types: int) -> str:
    return f"{types} condition {'type' if types == 1 else 'types'}"


# ---------------------------------------------------------------- what the agent has read


def _from_agent(visit: Visit) -> Asking:
    reading = next((r for r in _readings(visit.told) if r.get("source") == SOURCE), None)
    if reading is None:
        yield Finding(
            AREA,
            None,
            "what node-problem-detector lists is not known: its page is on the node's loopback, and the "
            "agent there did not tell",
            _inside(visit),
        )
        return None
    unknown = reading.get("unknown") or {}
    if why := unknown.get(WHOLE):
        yield Finding(AREA, False, str(why), _inside(visit))
        return None
    if old := _too_old(visit, str(reading.get("at") or "")):
        yield Finding(AREA, False, old, "is the agent stuck? its /healthz tells; look at its log")
        return None
    pairs = frozenset((str(p[0]), str(p[1])) for p in reading.get("listed") or () if len(p) == 2)
    types = len({t for t, _ in pairs if t != EDGES})
    yield Finding(AREA, True, f"the agent reads node-problem-detector's page: {_conditions(types)}")
    for why in dict.fromkeys(map(str, unknown.values())):
        yield Finding(AREA, True, f"part of it is unknown: {why}", _inside(visit))
    return pairs


def _readings(told: dict[str, Any]) -> list[dict[str, Any]]:
    found = told.get("readings")
    return [r for r in found if isinstance(r, dict)] if isinstance(found, list) else []


def _too_old(visit: Visit, text: str) -> str:
    """Whether the agent itself is behind. It may ask less often than this shell's settings say."""
    if visit.desk is None or visit.settings is None:
        return ""
    try:
        at, now = parse_moment(text), visit.desk.time.now()
    except ValueError:
        return f"the agent's last look at the detector has no time ({text!r})"
    most = max(stale_after(visit.settings.poll_interval), timedelta(minutes=1))
    return f"the agent last looked at node-problem-detector {ago(at, now)}" if now - at > most else ""


def _inside(visit: Visit) -> str:
    if visit.pod is None:
        return "run doctor in the agent's pod: kubectl exec ... -c node-recovery -- node-recovery doctor"
    name = f"-n {visit.pod.namespace} {visit.pod.name}"
    return f"ask in its pod: kubectl exec {name} -c node-recovery -- node-recovery doctor"


# ---------------------------------------------------------------- heartbeat and rules


def _heartbeat(visit: Visit, node: NodeView, pairs: frozenset[Pair]) -> Iterator[Finding]:
    """When the detector last renewed its conditions on the Node, where it keeps any there."""
    types = {t for t, _ in pairs} & visit.heartbeats.keys()
    beats = [at for t in types if (at := _moment(visit.heartbeats[t])) is not None]
    if not beats or visit.desk is None:
        return
    now, last = visit.desk.time.now(), max(beats)
    told = f"its conditions on {node.name} were last renewed {ago(last, now)}"
    if now - last <= 3 * HEARTBEAT:
        yield Finding(AREA, True, told)
        return
    every = f"{HEARTBEAT.total_seconds() / 60:.0f} min"
    yield Finding(
        AREA,
        True,
        f"{told}, though it does so every {every}: it may not reach the API server",
        "its page is what counts here; kubectl logs of node-problem-detector tells why",
    )


def _moment(text: str) -> datetime | None:
    try:
        return parse_moment(text)
    except ValueError:
        return None


def _rules(visit: Visit, listed: rules.Listed) -> Iterator[Finding]:
    assert visit.settings is not None
    policy, node = visit.settings.policy, visit.node
    found = list(rules.misses(policy, listed, node))
    for miss in found:
        yield Finding(AREA, not miss.slip, miss.sentence, miss.remedy)
    acting = [r for r in policy.rules if rules.acts(r) and rules.speaks_of(r, node)]
    able = [r.name for r in acting if rules.matched(r.match, listed)]
    if not able:
        yield Finding(
            AREA,
            False,
            "no rule that does more than tell is about anything that node-problem-detector lists here, so "
            "nothing would ever be recovered",
            "write a rule for what it lists, or have it look for what the rules are about",
        )
    else:
        yield Finding(AREA, True, f"it can report what these rules act on: {', '.join(able)}")
    if rest := rules.unmatched(policy, listed, node):
        shown = ", ".join(f"{r} ({t})" if t else r for t, r in rest[:_SHOWN])
        more = f" and {len(rest) - _SHOWN} more" if len(rest) > _SHOWN else ""
        yield Finding(AREA, True, f"in no rule, and so only told: {shown}{more}")
