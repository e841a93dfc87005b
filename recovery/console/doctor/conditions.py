"""What do the Node's own conditions say, who keeps them, and what of it is never taken back?"""

from __future__ import annotations

from collections.abc import Iterator

from recovery.catalog import polarity
from recovery.console.doctor.context import CheckContext
from recovery.console.output import ago
from recovery.model import Condition, Polarity
from recovery.provider.protocol import Finding
from recovery.signals.conditions import RENEWED
from recovery.units import span

AREA = "conditions"


def check(context: CheckContext) -> Iterator[Finding]:
    """The conditions that the agent would go by, of the Node that was named."""
    policy = context.settings.policy if context.settings is not None else None
    choice = policy.source("conditions") if policy is not None else None
    if policy is None or choice is None or context.node is None or context.api is None:
        return
    now = context.api.time.now()
    named = {rule.match.type for rule in policy.rules}
    stated = context.node.stated
    known = [(c, row) for c in stated if (row := polarity(c.type, choice.rows, named)) is not None]
    if not known:
        alone = policy.source("npd") is None
        yield Finding(
            AREA,
            not alone,
            f"{context.node.name} has no condition about its hardware",
            "nothing would ever be recovered: add npd to the policy's sources, or name your conditions in "
            "sources: [{conditions: {rows: [{type: ...}]}}]"
            if alone
            else "",
        )
        return
    beats = [c.heartbeat for c, _ in known if c.heartbeat is not None]
    newest = f"; the newest was renewed {ago(max(beats), now)}" if beats else ""
    count = f"{len(known)} condition{'s' if len(known) > 1 else ''}"
    yield Finding(AREA, True, f"{context.node.name} has {count} to go by: {_names(known)}{newest}")
    if kept := [(c, row) for c, row in known if not row.takes_back]:
        what = f"{_names(kept)}: never taken back by its writer; another boot or machine ends it"
        yield Finding(AREA, True, what)
    for c, row in known:
        if c.status == row.bad and c.heartbeat is not None and now - c.heartbeat > RENEWED:
            yield Finding(
                AREA,
                True,
                f"{c.type} is {c.status}, but was last renewed {ago(c.heartbeat, now)}: it counts as unknown",
                f"is its writer still running? after {span(RENEWED)} without a renewal it is not used",
            )


def _names(known: list[tuple[Condition, Polarity]]) -> str:
    return ", ".join(sorted(c.type for c, _ in known))
