"""Which provider a node's machine belongs to, asked anew for each decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from recovery.errors import Refused, SettingsError
from recovery.model import UNINITIALIZED, Machine, NodeView, ProviderFacts
from recovery.provider.installed import Installed, conflict, installed
from recovery.provider.protocol import Cancellable, PowerSensor, Provider, Whereabouts, abilities_of
from recovery.short import LONGEST_ID, MOST_WORDS

AUTO = "auto"


@dataclass(frozen=True)
class Identified:
    """The machine behind a Node, or why it is not known."""

    provider: Provider | None = None
    machine: Machine | None = None
    wait: str = ""
    problem: str = ""

    @property
    def facts(self) -> ProviderFacts | None:
        p = self.provider
        if p is None:
            return None
        able = abilities_of(p, self.machine)
        return ProviderFacts(
            p.name,
            able.actions,
            able.default_remedy,
            p.call_timeout,
            able.software_remedy,
            able.note,
            able.out_of_band,
            *_senses(type(p)),
        )


@cache  # a protocol is compared member by member, and this is asked in each cycle
def _senses(kind: type[Provider]) -> tuple[bool, ...]:
    return tuple(issubclass(kind, able) for able in (Cancellable, PowerSensor, Whereabouts))


class Providers:
    """Chooses and loads providers. ``configured`` is PROVIDER: a name, or ``auto``.

    With ``auto`` it is the provider that declares the scheme of the Node's providerID.
    """

    def __init__(
        self,
        configured: str,
        load: Callable[[str], Provider],
        declared: Callable[[], Installed] = installed,
    ) -> None:
        self._configured = configured
        self._load = load
        self._declared = cache(declared)
        self._loaded: dict[str, Provider] = {}

    def in_use(self) -> str:
        """The provider used last, or the configured one; empty while neither is known."""
        return next(reversed(self._loaded), "" if self._configured == AUTO else self._configured)

    def get(self, name: str) -> Provider:
        """The provider ``name``, imported when first asked for."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def identify(self, node: NodeView) -> Identified:
        """A cloud is never guessed: what is unclear is a ``wait``, or a ``problem`` for a person."""
        chosen = self._choose(node)
        if isinstance(chosen, Identified):
            return chosen
        try:
            provider = self.get(chosen)
        except SettingsError as error:
            return Identified(problem=str(error))
        try:
            machine = provider.identify(node)
        except Refused as error:
            return Identified(provider=provider, problem=error.reason)
        if problem := _too_long(node, machine):
            return Identified(provider=provider, problem=problem)
        return Identified(provider=provider, machine=machine)

    def _choose(self, node: NodeView) -> str | Identified:
        if node.has_taint(UNINITIALIZED):
            return Identified(wait=f"{node.name} is not initialised by its cloud yet (taint {UNINITIALIZED})")
        if self._configured != AUTO:
            return self._configured
        scheme, separator, _ = node.provider_id.partition("://")
        # "://x" and "x" have no scheme, and a Node with one of them is not without a providerID
        found = self._declared().of_scheme(scheme) if bool(scheme) is bool(separator) else ()
        if len(found) > 1:
            return Identified(problem=conflict(scheme, found))
        if found:
            return found[0].provider
        return Identified(
            problem=f"{node.name} has the providerID {node.provider_id!r}, whose cloud no provider here knows"
        )


def _too_long(node: NodeView, machine: Machine) -> str:
    """Why ``machine`` could not be written down, "" if it can be. Shortened, it would be another machine."""
    for what, text in (
        ("an ID", machine.id),
        ("a group", machine.group),
        *((f"a {key}", text) for key, text in machine.route.items()),
    ):
        if len(text) > LONGEST_ID:
            return (
                f"the machine of {node.name} has {what} of {len(text)} characters, and may have {LONGEST_ID}"
            )
    words = len(machine.route)
    return (
        f"the machine of {node.name} is found by {words} words, of {MOST_WORDS} at most"
        if words > MOST_WORDS
        else ""
    )
