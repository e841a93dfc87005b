"""One question to AWS for all nodes that wait at the same time.

A process that looks after several nodes, as the concluder does, would ask for each of them. Here it asks once
for all that it asked for lately. Each answer serves a node once: one that asks again gets a new one.
Between processes nothing is shared: there each asks ever more seldom (``recovery.agent.paced``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from providers.aws import lookup
from providers.aws.group import Activity, Group, Member
from providers.aws.session import AwsSession
from recovery.clock import Clock
from recovery.errors import Refused, Retry
from recovery.model import Machine
from recovery.provider.lacking import Lacking

AGE = 5.0
"""Seconds for which what was asked for another node serves this one."""
MOST = 50
"""Instances that DescribeAutoScalingInstances answers for at once (its API reference)."""
LATELY = 60.0
"""Seconds for which an instance that was asked for is asked for with the others."""

HINT = 30.0
"""Seconds for which what a group did lately serves all its nodes: it decides how to begin, and no more."""
LONGEST_HINT = 3600.0
"""The same where AWS does not answer: a failed launch may matter for that long."""

STOPPED = ("stopping", "stopped")
Found = tuple[str, Member] | None


@dataclass
class _Answer:
    at: float
    value: Any
    served: set[str] = field(default_factory=set)


class Shared:
    """Reads for ``poll``, and hints. What is asked right before a call goes past it."""

    def __init__(self, session: AwsSession, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._wanted: dict[tuple[str, str], float] = {}
        self._instances: dict[tuple[str, str], _Answer] = {}
        self._others: dict[tuple[str, str, str], _Answer] = {}
        self._lately: dict[tuple[str, str], _Answer] = {}
        self._asked_at: dict[tuple[str, str], float] = {}
        self._lacking = Lacking(clock)

    def instance(self, machine: Machine, where: str) -> Found:
        """As ``lookup.instance``, for all that were asked for lately."""
        now = self._clock.monotonic()
        known = self._instances.pop((where, machine.id), None)
        if known is not None and now - known.at <= AGE:
            self._wanted[where, machine.id] = now
            value: Found = known.value
            return value
        others = self._asked_lately(where, machine.id, now)
        found = lookup.instances(self._session, machine, others, where)
        now = self._clock.monotonic()  # when it came: some take longer than they are good for
        self._wanted[where, machine.id] = now
        for other in others:
            self._instances[where, other] = _Answer(now, found.get(other))
        return found.get(machine.id)

    def _asked_lately(self, where: str, me: str, now: float) -> list[str]:
        self._wanted = {key: at for key, at in self._wanted.items() if now - at <= LATELY}
        self._instances = {key: x for key, x in self._instances.items() if now - x.at <= AGE}
        return [x for region, x in self._wanted if region == where and x != me][: MOST - 1]

    def group(self, machine: Machine, name: str, where: str) -> Group | None:
        """As ``lookup.group``."""
        ask = lambda: lookup.group(self._session, machine, name, where)  # noqa: E731
        found: Group | None = self._once_each(machine, ("group", where, name), ask)
        return found

    def activities(self, machine: Machine, name: str, where: str) -> tuple[Activity, ...]:
        """As ``lookup.activities``."""
        ask = lambda: lookup.activities(self._session, name, where)  # noqa: E731
        found: tuple[Activity, ...] = self._once_each(machine, ("activities", where, name), ask)
        return found

    def lately(self, name: str, where: str) -> tuple[Activity, ...]:
        """What the group ``name`` did lately, for a preflight; what was known before, or nothing, where AWS
        denies that or does not answer. It keeps nobody from what can be done without it."""
        now, key = self._clock.monotonic(), (where, name)
        self._lately = {k: x for k, x in self._lately.items() if now - x.at <= LONGEST_HINT}
        self._asked_at = {k: at for k, at in self._asked_at.items() if now - at <= HINT}
        if key not in self._asked_at:
            self._asked_at[key] = now
            with contextlib.suppress(Refused, Retry):
                self._lately[key] = _Answer(now, lookup.activities(self._session, name, where))
        known = self._lately.get(key)
        return known.value if known is not None else ()

    def lacks(self, where: str, name: str, so: bool) -> bool:
        """Whether each answer of a minute lacked ``name`` in that region, as this one (``so``)."""
        return self._lacking.surely((where, name), lacks=so)

    def state(self, machine: Machine, where: str) -> str:
        """As ``lookup.ec2_state``: EC2 answers an unknown ID with an error, so each is asked for alone."""
        return lookup.ec2_state(self._session, machine, where)

    def sure_state(self, machine: Machine, where: str) -> str | None:
        """The same, but "" only once each answer of a minute did not know it. None before that: one answer
        may be older than the instance."""
        state = self.state(machine, where)
        unknown = self.lacks(where, f"{machine} at EC2", state == "")
        return state if state or unknown else None

    def stopped(self, machine: Machine, where: str, state: str) -> bool:
        """Whether each answer of a minute said that it is stopped, or stopping, as ``state`` does: one may be
        from before somebody has started it again."""
        return self.lacks(where, f"{machine} running", state in STOPPED)

    def taken_out(self, machine: Machine, where: str, use: str, so: bool) -> bool:
        """Whether each answer of a minute, for this ``use``, said that somebody has taken it out of service,
        as this one (``so``): one may be from before it was brought back."""
        return self.lacks(where, f"{machine} in its place, for {use}", so)

    def _once_each(self, machine: Machine, key: tuple[str, str, str], ask: Callable[[], Any]) -> Any:
        now = self._clock.monotonic()
        known = self._others.get(key)
        if known is None or now - known.at > AGE or machine.id in known.served:
            self._others = {k: x for k, x in self._others.items() if now - x.at <= AGE}
            answer = ask()
            known = self._others[key] = _Answer(self._clock.monotonic(), answer)
        known.served.add(machine.id)
        return known.value
