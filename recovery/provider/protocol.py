"""What a provider is, and how one is found.

A provider knows its own machines and nothing else: it submits and reports. It never waits, never retries a
call that changes something, and knows no policy and no Kubernetes but ``Objects``. Built-in and foreign
providers are found the same way, by the entry point group ``node_recovery.providers``; only the chosen one is
imported.

Protocol (note 0002 in ``docs/decisions`` says why ``preflight`` is a method of its own): *identify* is pure;
*preflight* reads; *start* submits once and returns at once; *poll* reads. A provider may be more
than that: ``Routed`` where its machines differ in what can be done to them, ``Resumable`` where an action has
a second step, a ``PowerSensor`` where it can see that a machine is down, ``ListsMembers`` where it can list a
group, ``Cancellable`` where what was asked for may still be called off, ``TakesBack`` where it can say
whether it may still come long afterwards, an ``Examiner`` where ``node-recovery doctor`` can ask it what is
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from recovery.clock import Clock
from recovery.errors import Refused, SettingsError
from recovery.model import (
    ClusterDelete,
    GroupMembers,
    Machine,
    NodeView,
    Poll,
    Preflight,
    Reference,
    Rung,
    Step,
)
from recovery.provider.entries import entry_points
from recovery.provider.monitor import Monitor

ENTRY_POINTS = "node_recovery.providers"
MONITORS = "node_recovery.monitors"


Started = ClusterDelete | Reference | None
"""What ``Provider.start`` may return."""


class Provider(Protocol):
    """One cloud, or bare metal.

    Errors of all methods: ``Retry`` (nothing was submitted), ``Ambiguous`` (only from ``start``: something
    may have been), ``Refused`` (a person has to act). Anything else is a bug of the provider's.
    """

    name: str
    actions: frozenset[Step]
    """The steps it can do. A policy that asks for another is an error at start."""
    permissions: Mapping[str, frozenset[str]]
    """For each of preflight, poll and every action: the permissions it needs, in the cloud's own words."""
    default_remedy: tuple[Rung, ...]
    """What to do about a fault for which neither rule nor catalogue names a remedy."""
    call_timeout: float
    """Seconds after which a mutating call has surely ended, connecting included."""

    def identify(self, node: NodeView) -> Machine:
        """The machine behind a Node, from its providerID. Pure and strict: raises ``Refused``.

        Its ID, its group and each of at most ten words of ``route`` have at most 512 characters: a machine
        that a record has no room for is handed over to a person.
        """

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        """Whether ``action`` could be done now, and the reference to find it by. Changes nothing."""

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> Started:
        """Submit once and return at once.

        A ``ClusterDelete`` is carried out by the caller. A ``Reference`` takes the place of the one given: it
        says more, now that the action has begun.
        """

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        """How the action behind ``reference`` stands. Changes nothing."""


@dataclass(frozen=True)
class Abilities:
    """What can be done to one machine. Without ``software_remedy``, ``default_remedy`` is for software too.

    ``note`` says why no more can be done, if a setting would change that. ``out_of_band``: steps that a
    machine's own agent never starts: the controller does, or the concluder, once the machine is dead.
    """

    actions: frozenset[Step]
    default_remedy: tuple[Rung, ...]
    software_remedy: tuple[Rung, ...] = ()
    note: str = ""
    out_of_band: frozenset[Step] = frozenset()


@runtime_checkable
class Routed(Protocol):
    """A provider whose machines differ. Its ``actions`` are those of all of them together."""

    def abilities(self, machine: Machine) -> Abilities:
        """Pure."""


@runtime_checkable
class Resumable(Protocol):
    """A provider with an action whose ``poll`` may say ``Unfinished``."""

    def finish(self, machine: Machine, reference: Reference) -> None:
        """Do what is left. Any agent may call it, and repeatedly: the reference holds the wanted end state.

        Raises ``Retry`` (also if the answer was lost) or ``Refused``.
        """


@runtime_checkable
class OutOfBand(Protocol):
    """A provider with steps that would end the program that asks for them of its own machine."""

    out_of_band: frozenset[Step]


@runtime_checkable
class PowerSensor(Protocol):
    """A provider that can see whether a machine runs nothing: it is powered down, stopped or terminated."""

    def down(self, machine: Machine) -> str | None:
        """What proves that ``machine`` runs nothing any more, for a sentence; None if it may still run.

        Changes nothing. Raises ``Retry`` or ``Refused`` if it cannot be found out.
        """


@runtime_checkable
class Whereabouts(Protocol):
    """A provider that can tell whether a machine still exists, without an action of ours to go by."""

    def gone(self, machine: Machine) -> str | None:
        """What proves that ``machine`` does not exist any more, for a sentence; None if it may.

        Changes nothing. Raises ``Retry`` or ``Refused`` if it cannot be found out.
        """


@runtime_checkable
class ListsMembers(Protocol):
    """A provider that can list the machines of a group, those that are no Nodes of the cluster included."""

    def members(self, machines: Sequence[Machine]) -> Iterable[GroupMembers]:
        """Each group that one of ``machines`` is in, or was in when this was asked before, with its members.

        ``machines`` are those that are known: nobody needs to know when they were launched. Lists come in
        pages and have an end. Changes nothing. Raises ``Retry`` or ``Refused`` where nothing can be said;
        a single group that cannot be listed says so itself.
        """


@runtime_checkable
class Cancellable(Protocol):
    """A provider that hands an order to another controller, which may carry it out much later."""

    def cancel(self, machine: Machine, reference: Reference) -> str | None:
        """Take the order back, if it is ours and still there. Any agent may call it, and more than once.

        Returns what proves that the order was still there and will not be carried out; None where nothing
        does. Raises ``Retry`` or ``Refused``.
        """


@runtime_checkable
class TakesBack(Protocol):
    """A provider that can take back what was accepted and never carried out, or say why it cannot.

    Without this, ``poll`` decides: only ``NotApplied``, ``Failed``, ``Gone`` and ``Done`` are proof.
    """

    def take_back(self, machine: Machine, reference: Reference) -> str | ClusterDelete:
        """Take the request back if it is ours and still stands. Any agent may call it, and more than once.

        Returns what proves, by a read made afterwards, that it will not be carried out any more. Where a
        deletion was asked for, returns its object, and the caller looks whether that is being deleted. Raises
        ``Retry`` (not proved yet) or ``Refused`` (it cannot be taken back): a sentence with the way out, for
        the person who wants the node back.
        """


def abilities_of(provider: Provider, machine: Machine | None) -> Abilities:
    """What ``provider`` can do to ``machine``; without one, what it can do at all."""
    if machine is not None and hasattr(provider, "abilities"):  # ``Routed``: this is asked in each cycle
        found: Abilities = provider.abilities(machine)
        return found
    outside: frozenset[Step] = getattr(provider, "out_of_band", frozenset())
    note: str = getattr(provider, "note", "")
    return Abilities(provider.actions, provider.default_remedy, note=note, out_of_band=outside)


@dataclass(frozen=True)
class Finding:
    """One thing that ``node-recovery doctor`` looked at.

    ``ok`` is None where it could not be asked. ``sentence`` says what was found and what that means,
    ``remedy`` what to do about it; a remedy beside ``ok`` is advice, and keeps nothing from working.
    """

    area: str
    ok: bool | None
    sentence: str
    remedy: str = ""


@runtime_checkable
class Examiner(Protocol):
    """A provider that can say what it lacks. Only ``doctor`` asks, and it may take a few seconds."""

    def examine(self, machine: Machine | None, steps: frozenset[Step], own: bool) -> Iterable[Finding]:
        """What ``steps`` need for ``machine``; without a machine, what can be said without one.

        ``own``: the credentials found here are the agent's own. Others say nothing of what the agent may do.
        Changes nothing. What cannot be asked is a finding with ``ok`` None.
        """


@runtime_checkable
class Listed(Protocol):
    """A provider that reaches a machine only where somebody has written down how. Only ``doctor`` asks."""

    def check_listed(self, machine: Machine) -> None:
        """Raises ``Refused`` or ``Retry`` where nobody has. The machine is not asked."""


@dataclass(frozen=True)
class ObjectRef:
    """An object at the Kubernetes API. ``api_version`` is group and version, ``namespace`` may be empty."""

    api_version: str
    plural: str
    namespace: str
    name: str


class Objects(Protocol):
    """What a provider that delegates to another controller may do at the Kubernetes API, and no more.

    The rights for that are not in ``deploy/rbac``: whoever switches such a provider on has to grant them.
    """

    def get(self, ref: ObjectRef) -> Mapping[str, Any] | None:
        """The object, or None where there is none. Raises ``Retry`` or ``Refused``."""

    def annotate(
        self, ref: ObjectRef, annotations: Mapping[str, str | None], *, uid: str, resource_version: str
    ) -> None:
        """Set these annotations, take off those that are None: one PATCH of the very object that was read.

        Raises ``Retry`` where another writer was first or it was throttled, ``Ambiguous`` where the answer
        was lost, ``Refused`` otherwise.
        """


class NoObjects:
    """For where there is no connection to a cluster: refuses everything."""

    def get(self, ref: ObjectRef) -> Mapping[str, Any] | None:
        """Always ``Refused``."""
        raise Refused(f"{ref.plural} {ref.name} cannot be read here: there is no connection to the cluster")

    def annotate(
        self, ref: ObjectRef, annotations: Mapping[str, str | None], *, uid: str, resource_version: str
    ) -> None:
        """Always ``Refused``."""
        self.get(ref)


@dataclass(frozen=True)
class ProviderContext:
    """What a provider's factory is given. Its own SDK reads its own environment variables."""

    clock: Clock
    environ: Mapping[str, str]
    objects: Objects = field(default_factory=NoObjects)


Factory = Callable[[ProviderContext], Provider]
MonitorFactory = Callable[[ProviderContext], Monitor | None]


def provider_names() -> tuple[str, ...]:
    """Names of all installed providers; nothing is imported."""
    return tuple(sorted({e.name for e in entry_points(group=ENTRY_POINTS)}))


def load_provider(name: str, context: ProviderContext) -> Provider:
    """Import and make the provider ``name``. Raises ``SettingsError`` that says what to install."""
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name == name:
            factory: Factory = entry.load()
            return factory(context)
    raise SettingsError(
        [f"PROVIDER={name}: there is no such provider; installed are {', '.join(provider_names())}"]
    )


def load_monitor(name: str, context: ProviderContext) -> Monitor | None:
    """The monitor of the provider ``name``, or None where it has none (bare metal), or nowhere to send to."""
    for entry in entry_points(group=MONITORS):
        if entry.name == name:
            factory: MonitorFactory = entry.load()
            return factory(context)
    return None
