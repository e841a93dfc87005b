"""A node that is only in a file, or in the past: its situation before anything is known of a fault."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from recovery.clock import SystemClock
from recovery.decide.situation import Lease, Situation
from recovery.model import (
    Alerts,
    Gate,
    Machine,
    NodeView,
    Policy,
    ProviderFacts,
    Says,
    Statement,
)
from recovery.provider.protocol import ProviderContext, abilities_of, load_provider
from recovery.quick import replace

DAY = timedelta(days=1)


def facts_of(name: str) -> ProviderFacts:
    """What this provider can do. Raises ``SettingsError`` where there is none of this name."""
    provider = load_provider(name, ProviderContext(SystemClock(), os.environ))
    able = abilities_of(provider, None)
    return ProviderFacts(
        name, able.actions, able.default_remedy, provider.call_timeout, able.software_remedy, cloud=True
    )


def unstarted(
    now: datetime,
    name: str,
    labels: Mapping[str, str],
    policy: Policy,
    provider: ProviderFacts | None,
    machine: str,
    **more: Any,
) -> Situation:
    """A healthy node, a day old ``now``, with nothing in its way. ``more``: fields that are otherwise."""
    s = Situation(
        now=now,
        node_name=name,
        policy=policy,
        node=NodeView(
            name,
            "node",
            "1",
            boot_id="boot",
            labels=labels,
            conditions={"Ready": ("True", "")},
            created=now - DAY,
        ),
        machine=Machine(provider.name if provider else "none", machine, "", "group"),
        provider=provider,
        gate=Gate("gate", "1", "gate"),
        lease=Lease("nobody else's", mine=True, stale=False),
        settle=timedelta(0),
        witness_says=Statement(Says.AGREES, "not asked"),
        alerts=Alerts((), unknown=""),
    )
    return replace(s, **more)
