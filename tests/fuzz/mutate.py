"""Turns one case into another: bytes as bytes, and JSON as a tree.

Most cases are near a real one: what is far from it is refused at the first look, and proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

LONGEST = 32 * 1024
"""Bytes of a case, so that what is slow is slow by its shape. The bounds themselves have cases of their own."""
WORDS = (
    b'"', b"'", b"\\", b"\n", b"\r\n", b"\0", b"\x1b[2J", b"\xff\xfe", b"\xef\xbb\xbf", "\u202e".encode(), "İ".encode(),
    b"\xed\xa0\x80", b"{", b"}", b"[", b"]", b":", b",", b"&a", b"*a", b"<<: *a", b"!!python/object:os.system", b"!!set",
    b"NaN", b"-Infinity", b"1e999", b"-0", b"null", b"true", b"{}", b"[]", b"%00", b"../..", b"//", b"#", b"?", b"@", b" ",
    b"9999-12-31T23:59:59Z", b"0001-01-01T00:00:00+23:59", b"2026-11-21T10:15:00", b"-1s", b"1e400s", b"nans", b"infs",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 255, 65536, 2**31, 2**31 - 1, -(2**31), 2**53 + 1, 2**63, 2**64, -(2**63), 10**30, 10**400, 0.5, -0.0, 1e308,
    float("inf"), float("-inf"), float("nan"), 5e-324, 86400, 999999999,
)  # fmt: skip
TEXTS: tuple[str, ...] = (
    "", " ", "\0", "\n", "\x1b]52;c;AAAA\x07", "\u202e", "a" * 64, "a" * 300, "x" * 5000, "..", ".", "/", "../../x", "null", "true",
    "*", "[", "]", "[!", "0", "-1", "1e5", "NaN", "\ud800", "ß", "İ", "٣", "😀", "2026-11-21T10:15:00Z", "9999-12-31T23:59:59.999999Z",
    "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "2026-02-30T00:00:00Z", "20261121T101500Z", "2026-W47-6T00:00:00+00:00", "600s",
    "-600s", "nans", "infs", "1e400s", "99999999999999s", "fleet", "node-0", "npd", "__class__", "%s%n", "{0}", "${x}", "<<",
)  # fmt: skip


def mutated(rng: Random, case: bytes, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One to four small changes. What is JSON is mostly changed as a tree."""
    tree = _tree(case) if rng.random() < 0.8 else None
    if tree is not None:
        with suppress(RecursionError):  # it is nested more deeply than it can be written: bytes then
            for _ in range(_few(rng)):
                tree = _changed(rng, tree, words)
            return _text(tree)[:LONGEST]
    for _ in range(_few(rng)):
        case = rng.choice(BYTES)(rng, case, others, words)
    return case[:LONGEST]


def _few(rng: Random) -> int:
    return rng.choice((1, 1, 1, 2, 2, 3, 4))


# ---------------------------------------------------------------- bytes


def _span(rng: Random, case: bytes) -> tuple[int, int]:
    """Part of it: mostly short, sometimes long, often a whole line."""
    begin = rng.randint(0, len(case))
    if rng.random() < 0.4:
        begin = case.rfind(b"\n", 0, begin) + 1
        end = case.find(b"\n", begin)
        return begin, len(case) if end < 0 else end + 1
    length = rng.choice((1, 1, 2, 4, 8, 16, 64, len(case)))
    return begin, min(begin + rng.randint(0, length), len(case))


def _flip(rng: Random, case: bytes, *_: Any) -> bytes:
    if not case:
        return b"\0"
    at = rng.randrange(len(case))
    return case[:at] + bytes([case[at] ^ 1 << rng.randrange(8)]) + case[at + 1 :]


def _cut(rng: Random, case: bytes, *_: Any) -> bytes:
    begin, end = _span(rng, case)
    return case[:begin] + case[end:]


def _end(rng: Random, case: bytes, *_: Any) -> bytes:
    return case[: rng.randint(0, len(case))]


def _twice(rng: Random, case: bytes, *_: Any) -> bytes:
    begin, end = _span(rng, case)
    times = rng.choice((1, 1, 2, 3, 10, 100, 3000))
    return (case[:end] + case[begin:end] * times + case[end:])[:LONGEST]


def _elsewhere(rng: Random, case: bytes, *_: Any) -> bytes:
    begin, end = _span(rng, case)
    rest, at = case[:begin] + case[end:], rng.randint(0, len(case) - (end - begin))
    return rest[:at] + case[begin:end] + rest[at:]


def _word(rng: Random, case: bytes, _: Any, words: Sequence[bytes]) -> bytes:
    begin, end = _span(rng, case) if rng.random() < 0.5 else (rng.randint(0, len(case)),) * 2
    return case[:begin] + rng.choice((*words, *WORDS)) + case[end:]


def _number(rng: Random, case: bytes, *_: Any) -> bytes:
    places = [i for i, c in enumerate(case) if 48 <= c < 58]
    if not places:
        return case
    begin = end = rng.choice(places)
    while end < len(case) and 48 <= case[end] < 58:
        end += 1
    return case[:begin] + str(rng.choice(NUMBERS)).encode() + case[end:]


def _noise(rng: Random, case: bytes, *_: Any) -> bytes:
    at = rng.randint(0, len(case))
    return case[:at] + rng.randbytes(rng.choice((1, 2, 4, 32, 500))) + case[at:]


def _spliced(rng: Random, case: bytes, others: Sequence[bytes], _: Any) -> bytes:
    other = rng.choice(others) if others else case
    begin, end = _span(rng, other)
    at = rng.randint(0, len(case))
    return case[:at] + other[begin:end] + case[at:] if rng.random() < 0.5 else case[:at] + other[begin:]


BYTES: tuple[Callable[..., bytes], ...] = (
    _flip, _cut, _cut, _end, _twice, _elsewhere, _word, _word, _word, _number, _noise, _spliced, _spliced,
)  # fmt: skip


# ---------------------------------------------------------------- trees


def _tree(case: bytes) -> Any:
    if case[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(case)
    except (ValueError, RecursionError):
        return None


def _text(tree: Any) -> bytes:
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below it."""
    found: list[tuple[Any, Any]] = []
    left = [tree]
    while left:
        at = left.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ()
        for key in keys:
            found.append((at, key))
            left.append(at[key])
    return found


def _changed(rng: Random, tree: Any, words: Sequence[bytes]) -> Any:
    places = _places(tree)
    if not places or rng.random() < 0.01:
        return rubbish(rng, words)
    at, key = rng.choice(places)
    draw, value = rng.random(), at[key]
    if draw < 0.12:
        del at[key]
    elif draw < 0.2:
        other, there = rng.choice(places)
        if there in other if isinstance(other, dict) else there < len(other):
            at[key] = json.loads(_text(other[there]))
    elif draw < 0.26 and isinstance(at, dict):
        at[str(rng.choice((*TEXTS, *(w.decode("utf-8", "replace") for w in words))))] = at.pop(key)
    elif draw < 0.32 and isinstance(value, list) and 0 < len(_text(value)) < 2000:
        at[key] = (value * rng.choice((2, 3, 50)))[:2000]
    elif draw < 0.36:
        for _ in range(rng.choice((1, 2, 30, 400))):
            value = [value] if rng.random() < 0.5 else {"x": value}
        at[key] = value
    elif draw < 0.6 and isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        at[key] = rng.choice(BYTES)(rng, raw, (), words)[:20_000].decode("utf-8", "replace")
    elif draw < 0.7 and isinstance(value, int | float):
        at[key] = rng.choice(NUMBERS)
    else:
        at[key] = rubbish(rng, words)
    return tree


def rubbish(rng: Random, words: Sequence[bytes] = ()) -> Any:
    """A value of any type."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice((*TEXTS, *(w.decode("utf-8", "replace") for w in words)))
    if kind == 3:
        return rng.choice(NUMBERS)
    return rng.choice((None, True, False, [], {}, [None], {"x": 7}, [[]], [7], ["x"], {"": {}}))
