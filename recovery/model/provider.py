"""What a provider says of its machines and of what it was asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from recovery.model.record import Reference
from recovery.model.remedy import Rung, Step
from recovery.quick import quick


@quick
@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """What a provider declares for this machine.

    ``software_remedy``: the default for a fault of software. ``out_of_band``: steps that the machine's
    own agent never starts. ``cancels``: a call can be cancelled. ``sees_power``: it can show that it runs
    nothing. ``cloud``: it can tell whether it exists.
    """

    name: str
    actions: frozenset[Step] = frozenset()
    default_remedy: tuple[Rung, ...] = ()
    call_timeout: float = 10.0
    software_remedy: tuple[Rung, ...] = ()
    note: str = ""
    out_of_band: frozenset[Step] = frozenset()
    cancels: bool = False
    sees_power: bool = False
    cloud: bool = False


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a provider found before an action: that it can be done, and how it would be found again.

    ``reference`` is known before the call, so that the intent can carry it. ``adopt``: the action is already
    under way; do not repeat it. ``short_by``: how many machines the group still lacks. ``not_yet``: why it
    would not be accepted now. ``not_before``: when it could first be accepted. ``alone``: only one machine of
    the group may be replaced at a time, since what the reference says of the group would be wrong for two.
    ``cannot_launch``: when and why the group could not launch a machine lately, by its own word, and nothing
    was launched since; empty where that is not so, or not known. ``loses_one``: were the machine ended now,
    the group would be without it for as long as that lasts.
    """

    reference: Reference
    group: str = ""
    short_by: int = 0
    adopt: str = ""
    not_before: datetime | None = None
    not_yet: str = ""
    alone: bool = False
    notes: tuple[str, ...] = ()
    cannot_launch: str = ""
    loses_one: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDelete:
    """The provider replaces this machine by the deletion of this object in the Kubernetes API.

    ``kind`` and ``by`` are for sentences: what it is, and who ends the machine once it is deleted.
    """

    api_version: str
    plural: str
    name: str
    uid: str
    kind: str = ""
    by: str = ""

    def __str__(self) -> str:
        return f"{self.kind or self.plural} {self.name}"


@dataclass(frozen=True, slots=True)
class Running:
    """It was accepted, and is not done yet. ``soon``: it may be done within seconds, so it is asked often."""

    sentence: str
    soon: bool = False


@dataclass(frozen=True, slots=True)
class Unseen:
    """Whether it was accepted, and how it stands, is not seen now: no answer, or one that does not tell.

    So it neither settles a call whose answer was lost, nor ends one that was accepted.
    """

    sentence: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """All is done but a last step. The reference names it, and it may be repeated."""

    sentence: str


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The provider shows no sign that the action was ever submitted.

    ``not_before``: it was asked for too soon, without an error, and could first succeed then.
    """

    sentence: str
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """It is done, and this is the evidence. (Of a reboot only the Node's new boot ID is.)

    ``replacements``: IDs of machines that are new, oldest first.

    A recovery claims the oldest one that is unclaimed. The younger ones are for recoveries that began later,
    to which the older ones are not new. Where the group wants ``fewer`` machines than when the action began,
    one of the recoveries finds none: nothing takes the place of its machine.
    """

    evidence: str
    replacements: tuple[str, ...] = ()
    complete: bool = True  # the group has as many machines in service as it wants
    fewer: bool = False
    final: bool = False  # no machine takes its place, so there is nothing more to prove


@dataclass(frozen=True, slots=True)
class Deleting:
    """It is done once this object is gone from the Kubernetes API, and the Node with it."""

    what: ClusterDelete


@dataclass(frozen=True, slots=True)
class Failed:
    """It failed for good. ``reason`` is for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The machine no longer exists."""

    sentence: str


Standing = Running | Unseen | Unfinished | NotApplied | Done | Failed | Gone
"""How an action stands."""
Poll = Standing | Deleting
"""What a provider's ``poll`` answers. The agent resolves ``Deleting`` to a ``Standing`` by itself."""
