"""Feeds cases to one input, watches over each, and makes what fails small.

A case is bytes. It is a real one changed a little, or one made by the input's grammar. Some are traced: one that
reaches a line that none reached before is kept, and changed further. The same seed gives the same cases.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

from tests.fuzz import mutate

SECONDS = 1.0
"""A case that takes longer hangs."""
STUCK = 10.0
"""It is broken off then."""
MIB = 64
"""A case that takes more memory takes too much."""
TRACED, LATER = 20, 200
"""Every so many cases one is traced, which takes ten times as long: among the first thousands, and later."""
FIRST = 5000
BATCH = 100
"""Cases after which memory is looked at anew."""
KEPT, SMALL = 2000, 16 * 1024
"""So many cases are kept to be changed further, and none larger than this many bytes."""
SHRINKING = 20.0
ROOT = Path(__file__).resolve().parents[2]
_RESET, _SIZES, _SCHEDULED = (Path("/proc/self") / name for name in ("clear_refs", "statm", "schedstat"))
OURS = tuple(str(ROOT / name) + os.sep for name in ("recovery", "providers"))


class Called(BaseException):
    """Something was asked of a provider, or written, that nobody may ask for because of this case."""


class Stuck(BaseException):
    """Raised in a case that takes too long."""


@dataclass
class Input:
    """What strangers write. ``feed`` takes a case to where it comes in, and lets declared errors pass.

    ``made``: a case by its grammar. ``words``: what means something there. ``weight``: its share of all cases.
    """

    name: str
    feed: Callable[[bytes], None]
    examples: Sequence[bytes]
    made: Callable[[Random], bytes] | None = None
    words: Sequence[bytes] = ()
    weight: float = 1.0
    modules: tuple[str, ...] = ()
    """Of whose lines it is told how many were reached."""


@dataclass
class Finding:
    """A case that fails, and how. ``kind`` and ``where`` are the same for the same fault."""

    kind: str
    where: str
    told: str
    case: bytes


@dataclass
class Result:
    name: str
    cases: int = 0
    seconds: float = 0.0
    worst: float = 0.0
    mib: float = 0.0
    lines: tuple[int, int] = (0, 0)
    findings: list[Finding] = field(default_factory=list)


def fuzz(it: Input, cases: int, seed: int, most: int = 5) -> Result:
    """Feed ``cases`` cases, those of the examples first. Ends early after ``most`` faults."""
    watch, result, began = Watch(it), Result(it.name), time.monotonic()
    corpus = [case for case in it.examples if len(case) <= mutate.LONGEST]
    for n in range(cases):
        rng = Random(f"{seed} {it.name} {n}")
        case = it.examples[n] if n < len(it.examples) else _case(it, rng, corpus)
        traced = n % (TRACED if n < FIRST else LATER) == 0 or n < len(it.examples)
        if found := watch.run(case, traced):
            if all((found.kind, found.where) != (x.kind, x.where) for x in result.findings):
                result.findings.append(shrunk(watch, found))
            if len(result.findings) >= most or found.kind == "hang":  # those after it would take as long
                break
        elif watch.new and n >= len(it.examples) and len(corpus) < KEPT and len(case) <= SMALL:
            corpus.append(case)
        result.cases = n + 1
    result.seconds, result.worst = time.monotonic() - began, watch.worst
    result.mib, result.lines = watch.grown, watch.reached(it.modules)
    return result


def _case(it: Input, rng: Random, corpus: Sequence[bytes]) -> bytes:
    """Half of the mutations are of what was kept last: it is the least known."""
    if it.made is not None and rng.random() < 0.3:
        made = it.made(rng)
        return made if rng.random() < 0.5 else mutate.mutated(rng, made, corpus, it.words)
    late = corpus[-20:] if rng.random() < 0.5 else corpus
    return mutate.mutated(rng, rng.choice(late), corpus, it.words)


# ---------------------------------------------------------------- one case, watched


class Watch:
    """Runs cases, and sees what they take."""

    def __init__(self, it: Input) -> None:
        self._it = it
        self._seen: set[tuple[CodeType, int]] = set()
        self._run, self._base, self._high = 0, 0.0, 0.0
        self.new, self.worst, self.grown = False, 0.0, 0.0
        self._heard = Heard()
        signal.signal(signal.SIGALRM, _stuck)

    def run(self, case: bytes, traced: bool = False) -> Finding | None:
        """What is wrong with a case; None for nothing."""
        self.new = False
        if _peak() > self._high or self._run % BATCH == 0:  # what made the case is not the case
            self._base, self._high = _resident(), _peak()
        self._run += 1
        began = time.perf_counter()
        found = self._once(case, traced)
        took = time.perf_counter() - began
        if found is None and took > SECONDS:  # the machine may have been busy: three times is no chance
            took = min(self._timed(case) for _ in range(3))
            if took > SECONDS:
                found = Finding("hang", "", f"took {took:.1f} s", case)
        if not traced and found is None:
            self.worst = max(self.worst, took)
        grown = _peak() - self._base
        if found is None and grown > MIB:  # of all since the last look: is it of this one?
            self._base = _resident()
            self._once(case, False)
            grown = _peak() - self._base
            if grown > MIB:
                found = Finding("memory", "", f"took {grown:.0f} MiB", case)
        self.grown = max(self.grown, grown)
        return found

    def _timed(self, case: bytes) -> float:
        began = _now()
        self._once(case, False)
        return _now() - began

    def _once(self, case: bytes, traced: bool) -> Finding | None:
        self._heard.error = None
        signal.setitimer(signal.ITIMER_REAL, STUCK)
        if traced:
            sys.settrace(self._trace)
            threading.settrace(self._trace)  # of the threads that serve this case
        try:
            self._it.feed(case)
        except Stuck as error:
            return Finding("hang", _where(error), f"did not end within {STUCK:g} s", case)
        except Called as error:
            return Finding("call", str(error).partition(":")[0], str(error), case)
        except Exception as error:
            return _crash(error, case)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            signal.setitimer(signal.ITIMER_REAL, 0)
        return _crash(self._heard.error, case) if self._heard.error else None

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        at = (frame.f_code, frame.f_lineno)
        if at not in self._seen:
            self._seen.add(at)
            self.new = True
        return self._line

    def reached(self, modules: Sequence[str]) -> tuple[int, int]:
        """How many lines inside of functions were reached, of how many. Few cases may import no provider."""
        files = {import_module(name).__file__ for name in modules}
        lines = {(c.co_filename, n) for path in files if path for c in _codes(path) for n in _lines(c)}
        seen = {(code.co_filename, line) for code, line in self._seen}
        return len(lines & seen), len(lines)


class Heard(logging.Handler):
    """What the program itself logs as a bug. All else that it says of a case is not listened to."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.error: BaseException | None = None
        root = logging.getLogger()
        root.handlers, root.level = [self], logging.ERROR

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.error = record.exc_info[1]


def _crash(error: BaseException, case: bytes) -> Finding:
    told = f"{type(error).__name__}: {error}"[:300]
    return Finding("crash", f"{type(error).__name__} {_where(error)}", told, case)


def _stuck(*_: Any) -> None:
    raise Stuck


def _where(error: BaseException) -> str:
    """The innermost line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f.filename.startswith(OURS)] or frames[-1:]
    return f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else ""


def _now() -> float:
    """Seconds, without those in which this process could have run and the machine was busy with others."""
    waited = int(_SCHEDULED.read_text().split()[1]) / 1e9 if _SCHEDULED.exists() else 0.0
    return time.perf_counter() - waited


def _resident() -> float:
    """MiB of memory now. From here on the peak is that of what follows."""
    _RESET.write_text("5")
    return int(_SIZES.read_text().split()[1]) * resource.getpagesize() / 2**20


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _codes(path: str) -> list[CodeType]:
    """All functions of a file."""
    left, found = [compile(Path(path).read_text(), path, "exec")], []
    while left:
        code = left.pop()
        inner = [x for x in code.co_consts if isinstance(x, CodeType)]
        left += inner
        if code.co_name != "<module>" and code.co_flags & 1:  # CO_OPTIMIZED: a function, not a class
            found.append(code)
    return found


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}


# ---------------------------------------------------------------- small enough for a test


def shrunk(watch: Watch, found: Finding) -> Finding:
    """The same fault by less: without parts of it, and with parts of it plain."""
    until, best = time.monotonic() + SHRINKING, found
    size = max(len(best.case) // 2, 1)
    while size and time.monotonic() < until:
        at = 0
        while at < len(best.case) and time.monotonic() < until:
            less = best.case[:at] + best.case[at + size :]
            again = watch.run(less)
            if again is not None and (again.kind, again.where) == (found.kind, found.where):
                best = again
            else:
                at += size
        size //= 2
    return best


_RUN = re.compile(rb"(.{1,16}?)\1{19,}", re.DOTALL)


def pasted(case: bytes) -> str:
    """A case as an expression of Python's, with long repetitions as such."""
    parts, at = [], 0
    for run in _RUN.finditer(case):
        if run.start() > at:
            parts.append(repr(case[at : run.start()]))
        parts.append(f"{run[1]!r} * {len(run[0]) // len(run[1])}")
        at = run.end()
    return " + ".join([*parts, *([repr(case[at:])] if at < len(case) or not parts else [])])
