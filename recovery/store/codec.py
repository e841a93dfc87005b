"""A strict reader for the fields of our objects, and what it needs around it. PURE."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from recovery.errors import Undecodable
from recovery.store.carried import small
from recovery.units import parse_moment

Decoded = TypeVar("Decoded")
Member = TypeVar("Member", bound=StrEnum)


_shown = reprlib.Repr()
"""A wrong value, as an error shows it: no more of it than a person reads."""
_shown.maxstring = _shown.maxother = 100


def dropped(sent: Any, kept: Any, path: str) -> str | None:
    """The path of a field with a value in ``sent`` that is missing in ``kept``; None if none is missing.

    The API server prunes what its CRD does not know.
    """
    if sent == kept:  # nearly always
        return None
    if isinstance(sent, Mapping):
        kept = kept if isinstance(kept, Mapping) else {}
        for key, value in sent.items():
            if value and key not in kept:
                return f"{path}.{key}"
            if found := dropped(value, kept.get(key), f"{path}.{key}"):
                return found
    if isinstance(sent, list) and isinstance(kept, list):
        pairs = enumerate(zip(sent, kept, strict=False))
        return next((lost for i, (a, b) in pairs if (lost := dropped(a, b, f"{path}[{i}]"))), None)
    return None


class Reader:
    """Reads fields of one JSON object and says which one is wrong: ``status.intent.attempt: ...``."""

    def __init__(self, data: Any, path: str) -> None:
        if not isinstance(data, dict | Mapping):  # an abstract class is slow to ask
            raise Undecodable(f"{path}: found {type(data).__name__}, expected an object")
        self._data = data
        self._path = path

    def _get(self, key: str, kinds: tuple[type, ...], default: Any) -> Any:
        value = self._data.get(key)
        if value is None:
            if default is ...:
                raise Undecodable(f"{self._path}.{key}: is missing")
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise Undecodable(f"{self._path}.{key}: found {_shown.repr(value)}, expected {kinds[0].__name__}")
        return value

    def text(self, key: str, default: Any = "") -> str:
        return str(self._get(key, (str,), default))

    def integer(self, key: str, default: Any = 0) -> int:
        """A count. A negative one would be read from the wrong end of a list."""
        value = int(self._get(key, (int,), default))
        if value < 0:
            raise Undecodable(f"{self._path}.{key}: found {value}, expected at least 0")
        return value

    def number(self, key: str) -> float | None:
        value = self._get(key, (float, int), None)
        try:
            return None if value is None else float(value)
        except OverflowError:
            raise Undecodable(f"{self._path}.{key}: found a number of more than 300 digits") from None

    def flag(self, key: str) -> bool:
        return bool(self._get(key, (bool,), False))

    def maybe_flag(self, key: str) -> bool | None:
        value = self._get(key, (bool,), None)
        return None if value is None else bool(value)

    def at(self, key: str) -> datetime:
        found = self.maybe_at(key)
        if found is None:
            raise Undecodable(f"{self._path}.{key}: is missing")
        return found

    def maybe_at(self, key: str) -> datetime | None:
        text = self._get(key, (str,), "")
        if not text:
            return None
        try:
            return parse_moment(text)
        except ValueError as error:
            raise Undecodable(
                f"{self._path}.{key}: found {_shown.repr(text)}, expected a moment ({str(error)[:100]})"
            ) from None

    def span(self, key: str) -> timedelta:
        text = self._get(key, (str,), "0s")
        try:
            if not text.endswith("s"):
                raise ValueError
            return timedelta(seconds=float(text[:-1]))
        except (ValueError, OverflowError):
            raise Undecodable(
                f"{self._path}.{key}: found {_shown.repr(text)}, expected seconds such as 600s"
            ) from None

    def member(self, key: str, kind: type[StrEnum]) -> Any:
        text = self.text(key, ...)
        try:
            return kind(text)
        except ValueError:
            known = ", ".join(str(x.value) for x in kind)
            raise Undecodable(
                f"{self._path}.{key}: found {_shown.repr(text)}, expected one of {known}"
            ) from None

    def members(self, key: str, kind: type[Member]) -> tuple[Member, ...]:
        known = {x.value: x for x in kind}
        texts = self.strings(key)
        if wrong := [x for x in texts if x not in known]:
            raise Undecodable(
                f"{self._path}.{key}: found {_shown.repr(wrong[0])}, expected any of {', '.join(known)}"
            )
        return tuple(known[x] for x in texts)

    def integers(self, key: str) -> tuple[int, ...]:
        found = self._get(key, (list,), [])
        return tuple(Reader({key: x}, f"{self._path}.{key}[{i}]").integer(key) for i, x in enumerate(found))

    def keys_of(self, kind: type[Member]) -> tuple[Member, ...]:
        """The keys of a map whose keys are all members of ``kind``."""
        known = {x.value: x for x in kind}
        if wrong := [str(x) for x in self._data if x not in known]:
            raise Undecodable(
                f"{self._path}: found {_shown.repr(wrong[0])}, expected any of {', '.join(known)}"
            )
        return tuple(known[x] for x in self._data)

    def strings(self, key: str) -> tuple[str, ...]:
        return tuple(str(x) for x in self._get(key, (list,), []))

    def mapping(self, key: str) -> dict[str, Any]:
        return dict(self._get(key, (dict,), {}))

    def child(self, key: str) -> Reader | None:
        value = self._data.get(key)
        return None if value is None else Reader(value, f"{self._path}.{key}")

    def children(self, key: str) -> Sequence[Reader]:
        items = self._get(key, (list,), [])
        return [Reader(item, f"{self._path}.{key}[{i}]") for i, item in enumerate(items)]


class Unchanged(Generic[Decoded]):
    """Decodes objects, and remembers ``most``: one that equals the last of its name is not decoded again."""

    def __init__(self, decode: Callable[[Any], Decoded], most: int = 100) -> None:
        self._decode = decode
        self._most = most
        self._last: dict[str, tuple[Mapping[str, Any], Decoded]] = {}

    def __call__(self, obj: Mapping[str, Any]) -> Decoded:
        decoded = self.known(obj)
        return self.keep(obj, self._decode(obj)) if decoded is None else decoded

    def known(self, obj: Mapping[str, Any]) -> Decoded | None:
        """What ``obj`` was decoded to, if it is the last one of its name."""
        name = _name(obj)
        last = self._last.get(name)
        if last is None:
            return None
        if last[0] is not obj:
            if last[0] != obj:
                return None
            # Of a thousand that are counted again and again, each is compared word by word only once.
            self._last[name] = obj, last[1]
        return last[1]

    def last(self, name: str, version: str) -> Mapping[str, Any] | None:
        """The last object of this name, if it was of this resourceVersion."""
        obj = self._last[name][0] if name in self._last else None
        found = obj is not None and str((obj.get("metadata") or {}).get("resourceVersion")) == version
        return obj if found else None

    def keep(self, obj: Mapping[str, Any], decoded: Decoded) -> Decoded:
        """Remember that ``obj`` means ``decoded``."""
        name = _name(obj)
        if len(self._last) >= self._most and name not in self._last:
            self._last.clear()
        if small(obj):
            self._last[name] = obj, decoded
        return decoded


def _name(obj: Mapping[str, Any]) -> str:
    return str((obj.get("metadata") or {}).get("name"))
