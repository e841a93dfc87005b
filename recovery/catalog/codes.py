"""What do the codes of NVIDIA's driver in the kernel's log mean? The answers are data, in ``xids.yaml``.

``deploy/npd-gpu/rules.py`` makes node-problem-detector's rules of them, ``faults`` has a row for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

GPU, SWITCH = "GpuXid", "NvSwitch"
"""The condition types of what asks for something."""
TOLD = "told"
OTHERS = {
    "GpuXidOther": "An XID that xids.yaml has no row for.",
    "SXidFatal": "An NVSwitch error that calls itself fatal, by whatever code.",
    "SXidNonFatal": "An NVSwitch error that calls itself not fatal.",
}
"""The reasons of what has no row of its own, so that no code goes unheard; and what they are."""


@dataclass(frozen=True, slots=True)
class Code:
    """One code, or some of its sub-codes. ``speaks_of``: the file's ``class``. ``date``: its source's.

    ``nonfatal``: of lines that say that it is not fatal. ``fatal_only``: only of those that say it is.
    """

    reason: str
    number: int
    subs: tuple[int, ...]
    speaks_of: str
    follows: str
    why: str
    differs: str
    source: str
    date: str
    nonfatal: bool = False
    fatal_only: bool = False

    @property
    def type(self) -> str:
        """Its condition's type; "" where it is only told, which has a counter and no condition."""
        if self.follows == TOLD:
            return ""
        return GPU if self.reason.startswith(GPU) else SWITCH

    @property
    def this_node(self) -> bool:
        """Whether it accuses the node whose kernel wrote it."""
        return self.speaks_of not in ("app", "victim")


@cache
def xids() -> tuple[Code, ...]:
    """The codes of a GPU."""
    source, file = _source("nvidia"), _file()
    return tuple(
        Code(
            reason=f"{GPU}{row['code']}{row.get('sub', '')}",
            number=row["code"],
            subs=tuple(row.get("subs", ())),
            speaks_of=row["class"],
            follows=row["follows"],
            why=row["why"],
            differs=row.get("differs", ""),
            source=source[0],
            date=source[1],
            nonfatal=row.get("nonfatal", False),
        )
        for row in file["xids"]
    )


@cache
def sxids() -> tuple[Code, ...]:
    """The codes of an NVSwitch that are fatal or can be."""
    url, date = _source("fabric")
    return tuple(
        Code(
            reason=f"SXid{number}",
            number=number,
            subs=(),
            speaks_of="link",
            follows=row["follows"],
            why=row["why"],
            differs="",
            source=url,
            date=date,
            fatal_only=not row.get("always", False),
        )
        for row in _file()["sxids"]
        for number in row["codes"]
    )


def rows() -> list[dict[str, Any]]:
    """A row of the catalogue for each code, in the form of ``faults.yaml``."""
    known = [
        {
            "type": code.type,
            "reason": code.reason,
            "remedy": _file()["remedies"][code.follows],
            "thisNode": code.this_node,
            "why": f"{_named(code)}: {code.why}",
            "source": code.source,
            **({"detector": "log"} if code.type else {}),
        }
        for code in (*xids(), *sxids())
    ]
    others = [
        {
            "type": "",
            "reason": reason,
            "remedy": _file()["remedies"][TOLD],
            "thisNode": True,
            "why": why,
            "source": _source("nvidia" if reason.startswith(GPU) else "fabric")[0],
        }
        for reason, why in OTHERS.items()
    ]
    return known + others


def _named(code: Code) -> str:
    return f"{'XID' if code.reason.startswith(GPU) else 'SXid'} {code.number}"


def _source(name: str) -> tuple[str, str]:
    source = _file()["sources"][name]
    return source["url"], source["date"].isoformat()


@cache
def _file() -> dict[str, Any]:
    found: dict[str, Any] = data("xids.yaml")
    return found


def data(name: str) -> Any:
    """What a file of this package says. libyaml, where PyYAML was built with it, saves a tenth of a second of
    every start."""
    text = resources.files("recovery.catalog").joinpath(name).read_text("utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
