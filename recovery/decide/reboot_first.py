"""Is the machine rebooted before it is replaced, since its group cannot launch another? PURE.

A group that ends a machine and finds no capacity is short of it for hours or days, and a reboot costs minutes
and cures much (docs/decisions/0032).
"""

from __future__ import annotations

from datetime import timedelta

from recovery.decide.situation import Role, Situation
from recovery.model import Record, Rung, Step, Then

REBOOT = Rung(Step.REBOOT, timedelta(minutes=10), Then.FORCE)
BOOTS = frozenset({Step.REBOOT, Step.REIMAGE, Step.REDEPLOY})
"""Steps that boot the machine: after one of them a reboot is nothing new."""


def reboots_first(s: Situation, r: Record) -> bool:
    """Whether a reboot goes before the replacement that is the next thing asked of the provider."""
    found = s.preflight
    if found is None or not found.cannot_launch or found.adopt:
        return False
    nth = next((i for i, x in enumerate(r.ladder) if i >= r.rung and x.do.provider_action), None)
    if nth is None or r.ladder[nth].do is not Step.REPLACE or not _can_reboot(s):
        return False
    earlier = {*r.tried, *(x.do for x in r.ladder[:nth])}
    asked = {x.action for x in r.progress.submitted}
    return not earlier & BOOTS and not asked & {Step.REPLACE.value, ""}


def _can_reboot(s: Situation) -> bool:
    if s.role is not Role.OWNER or s.provider is None:
        return False
    return Step.REBOOT in s.provider.actions and not s.from_within(Step.REBOOT)


def with_reboot(ladder: tuple[Rung, ...], at: int) -> tuple[Rung, ...]:
    """``ladder`` with the reboot before its step number ``at``."""
    return (*ladder[:at], REBOOT, *ladder[at:])


def not_the_policys(rung: Rung) -> bool:
    """Whether the step was put in here. Where it cannot be done, the recovery goes on without it."""
    return rung.do is Step.REBOOT and rung.then is Then.FORCE
