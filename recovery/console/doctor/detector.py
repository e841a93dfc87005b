"""Does node-problem-detector answer, and can it report what the policy's rules are about?"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from datetime import timedelta
from typing import Any

from recovery.console.doctor import rules
from recovery.console.doctor.context import CheckContext
from recovery.console.output import ago
from recovery.errors import Unreadable
from recovery.model import NodeView
from recovery.provider.protocol import Finding
from recovery.signals.memory import SOURCE
from recovery.signals.npd import stale_after
from recovery.signals.page import EDGES, WHOLE, Page, Pair, parse
from recovery.signals.page_url import check_url
from recovery.signals.scrape import PageReader
from recovery.units import few, parse_moment

AREA = "detector"
HEARTBEAT = timedelta(minutes=5)
"""How often node-problem-detector renews its conditions: --k8s-exporter-heartbeat-period, and its default."""
_SHOWN = 8

PairsFound = Generator[Finding, None, frozenset[Pair] | None]
"""Yields findings; returns every pair that the detector lists, None where that is not known."""


def check(context: CheckContext) -> Iterator[Finding]:
    """In the agent's pod the page itself; from elsewhere what the agent has read of it."""
    if not context.node_name or context.in_fleet_mode:
        return  # a controller reads no page
    if context.settings is not None and context.settings.policy.source("npd") is None:
        return  # the policy does not read it
    if context.reads_page and context.settings is not None:
        pairs = yield from _page(context, context.settings.npd_metrics_url)
    else:
        pairs = yield from _from_agent(context)
    if context.node is not None and pairs is not None:
        yield from _heartbeat(context, context.node, pairs)
    if pairs is not None and context.settings is not None:
        yield from _rules(context, rules.Listed(pairs))


# ---------------------------------------------------------------- the page


def _page(context: CheckContext, url: str) -> PairsFound:
    addresses = context.node.addresses if context.node else ()
    if context.node is not None and (why := check_url(url, addresses)):
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
    """Every fault that it can report. A plugin's healthy reason has no counter, and is no fault."""
    gauged = {reason for _, reason in page.pairs}
    faults = {(t, r) for t, r in page.pairs if r in page.counters or not page.counters}
    return frozenset(faults | {(EDGES, r) for r in page.counters if r not in gauged})


def _count(pairs: frozenset[Pair], page: Page) -> str:
    types, events = len({t for t, _ in pairs}), len(page.counters.keys() - {r for _, r in pairs})
    return f"{_conditions(types)}, {events} {'event' if events == 1 else 'events'} that are only counted"


def _conditions(types: int) -> str:
    return f"{types} condition {'type' if types == 1 else 'types'}"


# ---------------------------------------------------------------- what the agent has read


def _from_agent(context: CheckContext) -> PairsFound:
    reading = next((r for r in _readings(context.agent_view) if r.get("source") == SOURCE), None)
    if reading is None:
        yield Finding(
            AREA,
            None,
            "what node-problem-detector lists is not known: its page is on the node's loopback, and the "
            "agent there did not report it",
            _inside(context),
        )
        return None
    unknown = reading.get("unknown") or {}
    if why := unknown.get(WHOLE):
        yield Finding(AREA, False, str(why), _inside(context))
        return None
    if old := _too_old(context, str(reading.get("at") or "")):
        yield Finding(AREA, False, old, "is the agent stuck? look at its /healthz and its log")
        return None
    pairs = frozenset((str(p[0]), str(p[1])) for p in reading.get("listed") or () if len(p) == 2)
    types = len({t for t, _ in pairs if t != EDGES})
    yield Finding(AREA, True, f"the agent reads node-problem-detector's page: {_conditions(types)}")
    for why in dict.fromkeys(map(str, unknown.values())):
        yield Finding(AREA, True, f"part of it is unknown: {why}", _inside(context))
    return pairs


def _readings(view: dict[str, Any]) -> list[dict[str, Any]]:
    found = view.get("readings")
    return [r for r in found if isinstance(r, dict)] if isinstance(found, list) else []


def _too_old(context: CheckContext, text: str) -> str:
    """Why the agent's reading is too old, else "". It may poll less often than is set in this shell."""
    if context.api is None or context.settings is None:
        return ""
    try:
        at, now = parse_moment(text), context.api.time.now()
    except ValueError:
        return f"the agent's last look at the detector has no time ({text!r})"
    most = max(stale_after(context.settings.poll_interval), timedelta(minutes=1))
    return f"the agent last looked at node-problem-detector {ago(at, now)}" if now - at > most else ""


def _inside(context: CheckContext) -> str:
    if context.pod is None:
        return "run doctor in the agent's pod: kubectl exec ... -c node-recovery -- node-recovery doctor"
    name = f"-n {context.pod.namespace} {context.pod.name}"
    return f"ask in its pod: kubectl exec {name} -c node-recovery -- node-recovery doctor"


# ---------------------------------------------------------------- heartbeat and rules


def _heartbeat(context: CheckContext, node: NodeView, pairs: frozenset[Pair]) -> Iterator[Finding]:
    """When the detector last renewed its conditions on the Node, where it keeps any there."""
    types = {t for t, _ in pairs}
    beats = [c.heartbeat for c in node.stated if c.type in types and c.heartbeat is not None]
    if not beats or context.api is None:
        return
    now, last = context.api.time.now(), max(beats)
    renewed = f"its conditions on {node.name} were last renewed {ago(last, now)}"
    if now - last <= 3 * HEARTBEAT:
        yield Finding(AREA, True, renewed)
        return
    every = f"{HEARTBEAT.total_seconds() / 60:.0f} min"
    yield Finding(
        AREA,
        True,
        f"{renewed}, though it does so every {every}: it may not reach the API server",
        "its page is what counts here; kubectl logs of node-problem-detector says why",
    )


def _rules(context: CheckContext, listed: rules.Listed) -> Iterator[Finding]:
    assert context.settings is not None
    policy, node = context.settings.policy, context.node
    found = list(rules.misses(policy, listed, node))
    for miss in found:
        yield Finding(AREA, not miss.slip, miss.sentence, miss.remedy)
    acting = [r for r in policy.rules if rules.acts(r) and rules.applies_to(r, node)]
    able = [r.name for r in acting if rules.matched(r.match, listed)]
    if not able:
        yield Finding(
            AREA,
            False,
            "no rule that does more than notify matches anything that node-problem-detector lists here, so "
            "nothing would ever be recovered",
            "write a rule for what it lists, or have it look for what the rules are about",
        )
    else:
        yield Finding(AREA, True, f"it can report what these rules act on: {', '.join(able)}")
    if rest := rules.unmatched(policy, listed, node):
        shown = few([f"{r} ({t})" if t else r for t, r in rest], _SHOWN)
        yield Finding(AREA, True, f"in no rule, so only reported: {shown}")
