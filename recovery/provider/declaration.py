"""What a provider declares: the settings it reads, and the providerIDs of its machines.

A declaration is found by the entry point group ``node_recovery.declarations``, under the provider's name. An
agent imports those of all installed providers when it starts: so their modules, and the packages around them,
import no SDK.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from recovery.errors import SettingsError

T = TypeVar("T")


class Expected(ValueError):
    """A value cannot be used. ``what`` is what was expected; raised by the check of a ``Setting``.

    ``found`` describes the value where it must not be repeated, because it may hold a secret.
    """

    def __init__(self, what: str, found: str = "") -> None:
        self.what = what
        self.found = found
        super().__init__(f"expected {what}")

    def sentence(self, name: str, text: str) -> str:
        """The mistake in variable ``name``, whose value is ``text``, for people."""
        if self.found:
            return f"{name}: found {self.found}; expected {self.what}"
        return mistake(name, text, str(self))


@dataclass(frozen=True)
class Setting(Generic[T]):
    """An environment variable that a provider reads.

    ``default`` is written as it would be in the environment. ``check`` turns the text into the value, or
    raises ``Expected``. It is the only rule for this variable, at the agent's start and in the provider.
    """

    name: str
    default: str
    description: str
    check: Callable[[str], T]

    def of(self, environ: Mapping[str, str]) -> T:
        """The value in ``environ``. Raises ``SettingsError``."""
        text = environ.get(self.name, self.default)
        try:
            return self.check(text)
        except Expected as error:
            raise SettingsError([error.sentence(self.name, text)]) from None


@dataclass(frozen=True)
class Declaration:
    """``schemes``: what its machines' providerIDs have before ``://``; "" is a Node without one."""

    settings: tuple[Setting[Any], ...] = ()
    schemes: tuple[str, ...] = ()


def check_all(settings: Iterable[Setting[Any]], environ: Mapping[str, str]) -> None:
    """Raise ``SettingsError`` with every mistake in the values of ``settings``."""
    mistakes: list[str] = []
    for setting in settings:
        try:
            setting.of(environ)
        except SettingsError as error:
            mistakes += error.mistakes
    if mistakes:
        raise SettingsError(mistakes)


def switch(text: str) -> bool:
    """``true`` or ``false``. Raises ``Expected``."""
    if text not in ("true", "false"):
        raise Expected('"true" or "false"')
    return text == "true"


def did_you_mean(text: str, choices: Iterable[str]) -> str:
    """The end of a sentence that names the choice most like ``text``; empty where none is."""
    near = get_close_matches(text.lower(), list(choices), n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else ""


def mistake(name: str, text: str, wanted: str) -> str:
    """The mistake in variable ``name``. ``text`` is its value, shown without a URL's user and password.

    A value that is no URL may be one that was mistyped, and a password may hold any character: so whatever
    stands before the last @ is left out, but for the scheme.
    """
    before, at, after = text.rpartition("@")
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/{1,3}", before)
    shown = f"{scheme[0] if scheme else ''}***{at}{after}" if at else text
    return f"{name}: found {json.dumps(shown, ensure_ascii=False)}, {wanted}"
