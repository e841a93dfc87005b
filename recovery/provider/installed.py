"""What the installed providers declare. Their declarations are imported, the providers are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

from recovery.provider.declaration import Declaration, Expected, Setting
from recovery.provider.entries import entry_points
from recovery.quick import replace

DECLARATIONS = "node_recovery.declarations"


@dataclass(frozen=True)
class Declared:
    """One provider's declaration. ``broken`` says why it is empty where it could not be read."""

    entry: EntryPoint
    declaration: Declaration
    broken: str = ""

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.entry.name

    def __str__(self) -> str:
        # Not before it is needed: the distribution's name is in a file that takes a millisecond to parse.
        distribution = self.entry.dist.name if self.entry.dist else "an unknown distribution"
        return f"{self.provider} (of {distribution})"


class Installed:
    """The declarations of all installed providers, in the order of their names."""

    def __init__(self, declared: tuple[Declared, ...]) -> None:
        self._declared = declared

    def settings(self) -> Iterator[Setting[Any]]:
        """Every setting of every provider."""
        for each in self._declared:
            yield from each.declaration.settings

    def check(self, environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """Every mistake in the variables that are set; by provider, why its variables were not checked."""
        mistakes: dict[str, None] = {}  # two providers may read one variable: one sentence
        broken = {each.provider: each.broken for each in self._declared if each.broken}
        for each in self._declared:
            for setting in each.declaration.settings:
                try:
                    mistakes |= dict.fromkeys(_mistakes(setting, environ))
                except Exception as error:
                    broken[each.provider] = _unusable(each, f"{setting.name}: {_text_of(error)}")
        return list(mistakes), broken

    def of_scheme(self, scheme: str) -> tuple[Declared, ...]:
        """The providers that declare ``scheme``; more than one is a conflict."""
        return tuple(each for each in self._declared if scheme in each.declaration.schemes)

    def conflicts(self) -> Iterator[str]:
        """A sentence for each scheme that more than one provider declares."""
        for scheme in sorted({s for each in self._declared for s in each.declaration.schemes}):
            if len(found := self.of_scheme(scheme)) > 1:
                yield conflict(scheme, found)


def installed() -> Installed:
    """Import and read the declarations. A broken one does not affect the others."""
    return Installed(tuple(map(_declared, sorted(entry_points(group=DECLARATIONS), key=lambda e: e.name))))


def conflict(scheme: str, providers: tuple[Declared, ...]) -> str:
    """The mistake that several providers declare ``scheme``."""
    machines = f"providerIDs {scheme}://..." if scheme else "Nodes without a providerID"
    names = " and ".join(map(str, providers))
    return (
        f'PROVIDER: found "auto", which cannot choose for {machines}: {names} declare them; expected the '
        "name of one, or only one of them installed"
    )


def _declared(entry: EntryPoint) -> Declared:
    empty = Declared(entry, Declaration())
    try:
        found = entry.load()
    except Exception as error:  # foreign code can raise anything when it is imported
        return replace(empty, broken=_unusable(empty, _text_of(error)))
    if not isinstance(found, Declaration):
        what = f"{entry.value} is of type {type(found).__name__}, expected a Declaration"
        return replace(empty, broken=_unusable(empty, what))
    return replace(empty, declaration=found)


def _mistakes(setting: Setting[Any], environ: Mapping[str, str]) -> Iterator[str]:
    if (text := environ.get(setting.name)) is None:
        return
    try:
        setting.check(text)
    except Expected as error:
        yield error.sentence(setting.name, text)


def _unusable(provider: Declared, why: str) -> str:
    return f"the declaration of provider {provider} cannot be used, so its settings are not checked: {why}"


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
