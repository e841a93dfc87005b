"""Makes a script that breaks a law as short as it can, and prints it as a story."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from tests.search.script import PLAIN, Act, Scene, Script

Breaks = Callable[[Script], bool]
"""Whether a script still shows what is looked for."""


def shrink(script: Script, breaks: Breaks, tries: int = 400) -> Script:
    """The shortest script found, by leaving out acts in halves, quarters, ..., then one by one; then a plainer
    scene and rounder moments. ``tries``: at most so many scripts are played."""
    left = [tries]

    def still(candidate: Script) -> bool:
        left[0] -= 1
        return left[0] >= 0 and breaks(candidate)

    before = None
    while before != script and left[0] > 0:
        before = script
        script = _fewer(script, still)
        script = _plainer(script, still)
        script = _rounder(script, still)
    return script


def _fewer(script: Script, still: Breaks) -> Script:
    size = max(1, len(script.acts) // 2)
    while True:
        start = 0
        while start < len(script.acts):
            shorter = script.without(set(range(start, start + size)))
            if len(shorter.acts) < len(script.acts) and still(shorter):
                script = shorter
            else:
                start += size
        if size == 1:
            return script
        size //= 2


def _plainer(script: Script, still: Breaks) -> Script:
    for field in Scene.__slots__:
        plain = getattr(PLAIN, field)
        if field == "sources" and script.scene.replicas:
            continue  # a controller reads no page: what only a page shows would be found lost for that alone
        if getattr(script.scene, field) != plain:
            candidate = replace(script, scene=replace(script.scene, **{field: plain}))
            if still(candidate):
                script = candidate
    return script


def _rounder(script: Script, still: Breaks) -> Script:
    for i, a in enumerate(script.acts):
        for at in (float(round(a.at, -1)), float(round(a.at))):
            if at != a.at and still(candidate := _with(script, i, replace(a, at=at))):
                script = candidate
                break
    return script


def _with(script: Script, i: int, a: Act) -> Script:
    acts = [*script.acts[:i], a, *script.acts[i + 1 :]]
    return replace(script, acts=tuple(sorted(acts, key=lambda x: x.at)))


def story(script: Script, sentence: str) -> str:
    """The script as a test for ``tests/stories``."""
    name = re.sub(r"[^a-z0-9]+", "_", sentence.lower()).strip("_")[:80].strip("_")
    acts = "".join(f"        {a},\n" for a in script.acts)
    return (
        f"def test_{name}() -> None:\n"
        f"    # {sentence}\n"
        f"    history = played(\n        {script.scene},\n{acts}        seed={script.seed},\n    )\n"
        "    assert judged(history) == []\n"
    )
