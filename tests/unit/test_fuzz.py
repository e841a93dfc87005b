"""The fuzz itself: it finds what is there to be found, by one seed the same, and makes it small."""

from __future__ import annotations

import ast
import json
import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.fuzz import engine
from tests.fuzz.engine import Called, Finding, Input, fuzz, pasted

EXAMPLES = [json.dumps({"name": "node-0", "attempt": 3, "rungs": ["drain", "replace"]}).encode()]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The engine listens to the log and to an alarm."""
    root = logging.getLogger()
    handlers, level, alarm = root.handlers, root.level, signal.getsignal(signal.SIGALRM)
    yield
    root.handlers, root.level = handlers, level
    signal.signal(signal.SIGALRM, alarm)


def found(feed: Callable[[bytes], None], cases: int = 3000, seed: int = 1) -> list[Finding]:
    return fuzz(Input("toy", feed, EXAMPLES), cases, seed, most=1).findings


def reads(case: bytes) -> dict[str, object]:
    with suppress(ValueError, RecursionError):
        told = json.loads(case)
        return told if isinstance(told, dict) else {}
    return {}


def test_what_raises_nothing_undeclared_is_passed() -> None:
    assert found(lambda case: None, 300) == []


def test_an_error_that_nobody_declared_is_found_and_made_small() -> None:
    def feed(case: bytes) -> None:
        if isinstance(reads(case).get("attempt"), list):
            raise TypeError("an attempt is a number")

    (f,) = found(feed)
    assert (f.kind, f.told) == ("crash", "TypeError: an attempt is a number")
    assert len(f.case) < len(EXAMPLES[0])
    with pytest.raises(TypeError):
        feed(f.case)


def test_a_case_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SECONDS", 0.02)
    monkeypatch.setattr(engine, "SHRINKING", 0.5)

    def feed(case: bytes) -> None:
        until = time.process_time() + (0.05 if "attempt" not in reads(case) else 0)
        while time.process_time() < until:
            pass

    assert found(feed)[0].kind == "hang"


def test_a_case_that_does_not_end_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "STUCK", 0.05)
    monkeypatch.setattr(engine, "SHRINKING", 0.2)

    def feed(case: bytes) -> None:
        while "name" not in reads(case):
            pass

    assert found(feed)[0].told == "did not end within 0.05 s"


def test_a_case_that_takes_too_much_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SHRINKING", 0.2)

    def feed(case: bytes) -> None:
        if "rungs" not in reads(case):
            bytearray(80 * 2**20)

    assert found(feed)[0].kind == "memory"


def test_a_call_that_must_not_be_is_found_though_everything_else_is_caught() -> None:
    def feed(case: bytes) -> None:
        with suppress(Exception):
            if reads(case).get("name") != "node-0":
                raise Called("another machine: m-7")

    assert (found(feed)[0].kind, found(feed)[0].where) == ("call", "another machine")


def test_what_the_program_logs_as_a_bug_is_a_bug() -> None:
    """An agent catches everything, and goes on."""

    def feed(case: bytes) -> None:
        try:
            str(reads(case)["name"])
        except KeyError:
            logging.getLogger("agent").exception("a bug")

    assert found(feed)[0].told == "KeyError: 'name'"


def test_one_seed_gives_the_same_cases_and_another_gives_others() -> None:
    def all_of(seed: int) -> list[bytes]:
        cases: list[bytes] = []
        found(cases.append, 200, seed)
        return cases

    assert all_of(7) == all_of(7) != all_of(8)


@pytest.mark.parametrize(
    "case", [b"", b"a", b"[" * 5000, b"x" + b"ab" * 40 + b"\n\0y", bytes(range(256)) * 2]
)
def test_a_case_is_printed_so_that_it_can_be_pasted_into_a_test(case: bytes) -> None:
    parts = [ast.parse(pasted(case), mode="eval")]
    assert eval(compile(parts[0], "case", "eval")) == case  # noqa: S307 (our own expression)
    assert len(pasted(b"[" * 5000)) < 20
