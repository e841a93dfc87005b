"""What the gauge of IBM Autopilot's daemon on the own node says. Pure but for the source at the end.

By https://github.com/IBM/autopilot (pkg/utils/prometheus.go, pkg/healthcheck): one gauge,
``autopilot_health_checks``, by check (``health``), node and device. Most checks set it to 1 where something
is wrong; ``pciebw`` is a bandwidth. They run when the daemon starts and once an hour then:

- ``pciebw``: low is bad, and so is a link that is in use while it is measured. The policy has to wait
  (``after``) for a second run.
- ``dcgm``: 1 is bad, and 0 says nothing: the daemon writes 0 with every change of its Node.
- ``gpumem`` is set to 1 and to 0 in the same run, and ``ping`` is about other nodes. Both are left out.
- A check that cannot run leaves its value as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from recovery.model import Problem, Reading
from recovery.quick import replace
from recovery.signals import series
from recovery.signals.autopilot import SOURCE
from recovery.signals.marks import MarksSource
from recovery.signals.own_node import EVIDENCE, devices
from recovery.signals.pod_page import FRESH_FOR, PodSource
from recovery.signals.series import Series

FAMILY = "autopilot_health_checks"
PCIE = "AutopilotPCIe"
OF = {
    "pciebw": (PCIE, "LowPCIeBandwidth"),
    "remapped": ("AutopilotRemap", "RowRemapPending"),
    "power-slowdown": ("AutopilotPower", "HwSlowdown"),
    "dcgm": ("AutopilotDcgm", "DcgmLevel1"),
    "pvc": ("AutopilotPvc", "PvcFailed"),
}
"""The type and reason of each check."""
TYPES = frozenset(type_ for type_, _ in OF.values())
PROVES_NOTHING = frozenset({"dcgm"})
"""Checks whose good value takes nothing back."""
ONE_RUN = timedelta(hours=1)
"""How often Autopilot measures, by its chart."""
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class State:
    """What must be remembered between two pages of one boot. ``seen``: the devices that each check has shown.
    ``held``: the faults. ``unknown_since``: see ``Reading``."""

    boot_id: str = ""
    seen: Mapping[str, frozenset[str]] = field(default_factory=dict)
    held: Mapping[Pair, Problem] = field(default_factory=dict)
    unknown_since: Mapping[str, datetime] = field(default_factory=dict)


def observe(
    state: State, text: str, at: datetime, boot_id: str, node: str, slow: float
) -> tuple[State, Reading]:
    """What the page ``text``, read ``at``, says of ``node``. ``slow``: GB/s, at which a link is."""
    if boot_id and boot_id != state.boot_id:
        state = State(boot_id=boot_id) if state.boot_id else replace(state, boot_id=boot_id)
    page = series.read(text, {FAMILY})
    others = sorted({one.labels.get("node", "") for one in page.series} - {node})
    why = page.broken.get("*") or page.broken.get(FAMILY) or ("" if page.series else f"it has no {FAMILY}")
    if others:
        why = f"it is about the node {others[0][:80]!r}"
    if why:
        return state, Reading(SOURCE, at, unknown={"*": why}, unknown_since={"*": at})
    found: dict[str, list[Series]] = defaultdict(list)
    for one in page.series:
        found[one.labels.get("health", "")].append(one)
    held, unknown, cleared, seen = dict(state.held), {}, set(), dict(state.seen)
    spoken: dict[Pair, frozenset[str]] = {}
    for check, pair in OF.items():
        lines = found.get(check, [])
        shown = frozenset(one.labels.get("deviceid", "") for one in lines)
        bad, strange = _judged(check, lines, slow)
        if gone := state.seen.get(check, frozenset()) - shown:
            strange = f"the gauge no longer shows {check} of {', '.join(sorted(gone)) or 'the node'}"
        if strange:
            unknown[pair[0]] = strange
        if bad:
            held[pair] = _problem(check, pair, bad, held.get(pair), at)
        elif lines and not strange and check not in PROVES_NOTHING:
            held.pop(pair, None)
            cleared.add(pair)
        seen[check] = seen.get(check, frozenset()) | shown
        spoken[pair] = frozenset(_device(one) for one in lines)
    held = {
        pair: p if pair[0] in unknown else replace(p, fresh_until=at + FRESH_FOR) for pair, p in held.items()
    }
    since = {type_: state.unknown_since.get(type_, at) for type_ in unknown}
    reading = Reading(
        source=SOURCE,
        at=at,
        problems=tuple(p for _, p in sorted(held.items())),
        unknown=unknown,
        unknown_since=since,
        cleared=frozenset(cleared),
        listed=frozenset({*held, *((OF[check][0], "") for check in found.keys() & OF.keys())}),
        devices=spoken,
    )
    return replace(state, held=held, seen=seen, unknown_since=since), reading


def _judged(check: str, lines: list[Series], slow: float) -> tuple[list[Series], str]:
    """The lines that say that something is wrong, and what is strange about the others."""
    if check == "pciebw":
        strange = [one for one in lines if one.value < 0]
        return [one for one in lines if 0 <= one.value <= slow], _strange(strange)
    return [one for one in lines if one.value == 1], _strange([x for x in lines if x.value not in (0, 1)])


def _strange(lines: list[Series]) -> str:
    return f"the gauge has a value that Autopilot does not write: {_evidence(lines[0])}" if lines else ""


def _problem(check: str, pair: Pair, bad: list[Series], old: Problem | None, at: datetime) -> Problem:
    return Problem(
        source=SOURCE,
        type=pair[0],
        reason=pair[1],
        message=_evidence(bad[0]),
        since=old.since if old else at,
        fresh_until=at + FRESH_FOR,
        latched=check in PROVES_NOTHING,
        device=devices(map(_device, bad)),
    )


def _device(one: Series) -> str:
    index = one.labels.get("deviceid", "")
    return f"GPU {index}" if index else ""


def _evidence(one: Series) -> str:
    labels = ",".join(f'{key}="{one.labels.get(key, "")[:60]}"' for key in ("health", "deviceid"))
    return f"{FAMILY}{{{labels}}} {one.value:g}"[:EVIDENCE]


class GaugeSource(PodSource):
    """The gauge of Autopilot's daemon on this node. ``slow``: see ``observe``."""

    _about = tuple(sorted(TYPES))

    def __init__(self, *args: Any, slow: float) -> None:
        super().__init__(*args)
        self._slow = slow
        self._state = State()

    def _observe(self, text: str, at: datetime, boot_id: str) -> tuple[object, Reading]:
        return observe(self._state, text, at, boot_id, self._node, self._slow)

    def _remembered(self) -> Iterable[Problem]:
        return tuple(self._state.held.values())


class AutopilotSource:
    """All that Autopilot says of this node, by its marks and by its gauge. Neither is judged by the other."""

    name = SOURCE

    def __init__(self, marks: MarksSource, gauge: GaugeSource) -> None:
        self._poll: tuple[Callable[[str, float | None], Reading], ...] = (marks.poll, gauge.poll)

    def poll(self, boot_id: str, within: float | None = None) -> Reading:
        """What is known now of both."""
        marks, gauge = (poll(boot_id, within) for poll in self._poll)
        return Reading(
            source=SOURCE,
            at=min(marks.at, gauge.at),
            problems=(*marks.problems, *gauge.problems),
            unknown={**marks.unknown, **gauge.unknown},
            unknown_since={**marks.unknown_since, **gauge.unknown_since},
            cleared=marks.cleared | gauge.cleared,
            listed=marks.listed | gauge.listed,
            gone=marks.gone | gauge.gone,
            silent={**marks.silent, **gauge.silent},
            devices=gauge.devices,
            node=marks.node,
        )
