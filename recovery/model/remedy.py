"""The steps of a remedy, and what ends a fault."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from recovery.model.nodes import Taint


class Step(StrEnum):
    """What a rung of a remedy may do."""

    NOTIFY = "notify"
    CORDON = "cordon"
    TAINT = "taint"
    DRAIN = "drain"
    REBOOT = "reboot"
    REIMAGE = "reimage"
    REDEPLOY = "redeploy"
    REPLACE = "replace"

    @property
    def provider_action(self) -> bool:
        """Whether the machine's provider does it. Such a step is destructive and needs an intent."""
        return self in _PROVIDER_ACTIONS


_PROVIDER_ACTIONS = frozenset({Step.REBOOT, Step.REIMAGE, Step.REDEPLOY, Step.REPLACE})


class Latch(StrEnum):
    """What ends a fault that its source no longer states.

    *source*: the source's own rule for taking it back. *boot*: another boot or machine. *proof*: another
    machine, another boot with its probation, or a validation that succeeded.
    """

    SOURCE = "source"
    BOOT = "boot"
    PROOF = "proof"


class Then(StrEnum):
    """What follows when a drain misses its deadline.

    A reboot with ``force`` is one that the policy does not name (``decide.reboot_first``): where it is
    refused, the next step follows and not a person.
    """

    FORCE = "force"
    HAND_OVER = "handOver"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of a remedy's ladder. ``within``: how long it may take, counted from its first effect.

    ``taint``: the taint that a ``taint`` step sets beside ours, None where it names none.
    """

    do: Step
    within: timedelta
    then: Then = Then.HAND_OVER
    taint: Taint | None = None

    def __str__(self) -> str:
        return f"{self.do.value} {self.taint}" if self.taint else self.do.value
