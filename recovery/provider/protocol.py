"""What a provider is, and how one is found.

A provider knows its own machines and nothing else: it submits and reports. It never waits, never retries a
call that changes something, logs no policy and knows no Kubernetes. Built-in and foreign providers are found
the same way, by the entry point group ``node_recovery.providers``; only the chosen one is imported.

Protocol (note 0002 in ``docs/decisions`` says why ``preflight`` is a method of its own): *identify* is pure;
*preflight* reads; *start* submits once and returns at once; *poll* reads. A provider may be more
than that: ``Routed`` where its machines differ in what can be done to them, ``Resumable`` where an action has
a second step, a ``PowerSensor`` where it can see that a machine is down, ``Cancellable`` where what was asked
for may still be called off, an ``Examiner`` that tells ``node-recovery doctor`` what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from recovery.clock import Clock
from recovery.errors import Refused, SettingsError
from recovery.model import ClusterDelete, Machine, NodeView, Poll, Preflight, Reference, Rung, Step
from recovery.provider.entries import entry_points
from recovery.provider.monitor import Monitor

ENTRY_POINTS = "node_recovery.providers"
MONITORS = "node_recovery.monitors"


Started = ClusterDelete | Reference | None
"""What ``Provider.start`` may return."""


class Provider(Protocol):
    """One cloud, or bare metal.

    Errors of all methods: ``Retry`` (nothing was submitted), ``Ambiguous`` (only from ``start``: something
    may have been), ``Refused`` (a person has to). Anything else is a bug of the provider's.
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
        """The machine behind a Node, from its providerID. Pure and strict: raises ``Refused``."""

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        """Whether ``action`` could be done now, and how it would be found again. Changes nothing."""

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> Started:
        """Submit once and return at once.

        A ``ClusterDelete`` is the caller's to carry out. A ``Reference`` takes the place of the one given: it
        says more, now that the action has begun.
        """

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        """How the action behind ``reference`` stands. Changes nothing."""


@dataclass(frozen=True)
class Abilities:
    """What can be done to one machine. No ``software_remedy``: the default one is for software too.

    ``note`` says why there is not more, where a setting could change it. ``out_of_band``: steps that the
    agent of the very machine never starts; a peer does, once the machine is dead.
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
        """Do what is left. It may be done by anybody, and again: the reference holds the wanted end.

        Raises ``Retry`` (also where the answer was lost) or ``Refused``.
        """


@runtime_checkable
class OutOfBand(Protocol):
    """A provider with steps that would end the program that asks for them of its own machine."""

    out_of_band: frozenset[Step]


@runtime_checkable
class PowerSensor(Protocol):
    """A provider that can see whether a machine is powered down."""

    def down(self, machine: Machine) -> str | None:
        """By what it is seen that ``machine`` surely runs nothing any more; None where it may.

        Changes nothing. Raises ``Retry`` or ``Refused`` where it cannot be seen.
        """


@runtime_checkable
class Cancellable(Protocol):
    """A provider that leaves an order for somebody else, who may take it up much later."""

    def cancel(self, machine: Machine, reference: Reference) -> None:
        """Take the order back, if it is ours and still there. It may be done by anybody, and again.

        Raises ``Retry`` or ``Refused``.
        """


def abilities_of(provider: Provider, machine: Machine | None) -> Abilities:
    """What ``provider`` can do to ``machine``; without one, what it can do at all."""
    if machine is not None and isinstance(provider, Routed):
        return provider.abilities(machine)
    outside = provider.out_of_band if isinstance(provider, OutOfBand) else frozenset[Step]()
    return Abilities(provider.actions, provider.default_remedy, out_of_band=outside)


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
    """A provider that can say what it would lack. Only ``doctor`` asks; it may take a few seconds."""

    def examine(self, machine: Machine | None, steps: frozenset[Step], own: bool) -> Iterable[Finding]:
        """What ``steps`` would need for ``machine``, without one what can be said of none.

        ``own``: it is the agent's own credentials that are found here. Those of another say nothing of what
        the agent may do. Changes nothing; what cannot be asked is a finding with ``ok`` None.
        """


@dataclass(frozen=True)
class ObjectRef:
    """An object at the Kubernetes API. ``api_version`` is group and version, ``namespace`` may be empty."""

    api_version: str
    plural: str
    namespace: str
    name: str


class Objects(Protocol):
    """What a provider that delegates to another controller may do at the Kubernetes API, and no more.

    What it asks for has to be granted beside ``deploy/rbac``, by the one who switches it on.
    """

    def get(self, ref: ObjectRef) -> Mapping[str, Any] | None:
        """The object, or None where there is none. Raises ``Retry`` or ``Refused``."""

    def annotate(
        self, ref: ObjectRef, annotations: Mapping[str, str | None], *, uid: str, resource_version: str
    ) -> None:
        """Set these annotations, take off those that are None: one PATCH of the very object that was read.

        Raises ``Retry`` where somebody else wrote first or it was throttled, ``Ambiguous`` where the answer
        was lost, ``Refused`` otherwise.
        """


class NoObjects:
    """Where there is no cluster at hand."""

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
MonitorFactory = Callable[[ProviderContext], Monitor]


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
    """The monitor of the provider ``name``, or None where it has none (bare metal)."""
    for entry in entry_points(group=MONITORS):
        if entry.name == name:
            factory: MonitorFactory = entry.load()
            return factory(context)
    return None
