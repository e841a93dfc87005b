"""What NVIDIA's dcgm-exporter says of the GPUs of its node. Pure but for the source at the end.

Its page (https://github.com/NVIDIA/dcgm-exporter, etc/default-counters.csv and internal/pkg/collector):

- ``DCGM_FI_DEV_XID_ERRORS`` is the last XID of a GPU, and stays (issue 500). So only a change counts,
  and what the first page shows is the past. Of two XIDs between two pages it shows the second.
- ``DCGM_EXP_XID_ERRORS_COUNT``, off by default, counts each XID in a sliding window: it rises by no more than
  has happened. Where the page has it for a GPU, the former is not used.
- ``DCGM_FI_DEV_ROW_REMAP_FAILURE`` is not 0 once rows of memory could not be remapped: the GPU is to be
  replaced. ``DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS`` rises when a row is remapped, which takes a reboot.
- ``DCGM_EXP_GPU_HEALTH_STATUS``, off by default, is DCGM's own word for each of its watches: 0, 10 for a
  warning, 20 for a failure.
- ``DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION``, which has to be added to its list of counters, is the driver's own
  word of what helps. It may change within seconds, so it counts once it has stayed the same for a minute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recovery.model import Kind, Problem, Reading
from recovery.quick import replace
from recovery.signals import series
from recovery.signals.memory import EDGE_LIMIT, recent
from recovery.signals.own_node import EVIDENCE, devices
from recovery.signals.pod_page import FRESH_FOR, PodSource
from recovery.signals.series import Series

SOURCE = "dcgm"
XID, HEALTH, WARNING = "GpuXid", "GpuHealth", "GpuHealthWarning"
REMAP_FAILED, REMAP_PENDING = "GpuRowRemapFailed", "GpuRowRemapPending"
ACTIONS = {1: "Reset", 2: "Reboot", 4: "DrainAndReset", 6: "Reset", 7: "Reboot"}
"""NVML's nvmlDeviceGpuRecoveryAction_t: 6 resets the GPU's bus, 7 the whole system. The others do not concern
this machine alone, or are new."""
OTHER = "Other"
RECOVERY = tuple(f"GpuRecovery{name}" for name in ("Reset", "Reboot", "DrainAndReset", OTHER))
LAST_XID, XIDS = "DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT"
FAILURE, ROWS = "DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
STATUS, ACTION = "DCGM_EXP_GPU_HEALTH_STATUS", "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION"
OF: Mapping[str, tuple[str, ...]] = {
    LAST_XID: (XID,),
    XIDS: (XID,),
    FAILURE: (REMAP_FAILED,),
    ROWS: (REMAP_PENDING,),
    STATUS: (HEALTH,),
    ACTION: RECOVERY,
}
"""The types that each family can state. Where deploy/npd-gpu states the same, names are the same."""
TYPES = frozenset(type_ for types in OF.values() for type_ in types)
OF_THE_NODE = frozenset({46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158})
"""XIDs after which the GPU needs a reset, a reboot or another machine, by NVIDIA's catalogue of August 2026
(docs.nvidia.com/deploy/xid-errors) and EKS's node monitoring agent. All others, those of applications among
them, are counted like temporary rules: only a rule with ``times`` sees them."""
FAILED, WARNED = 20, 10
NO_WORD_OF_ITS_OWN = frozenset({"DCGM_FR_XID_ERROR", "DCGM_FR_IMEX_UNHEALTHY"})
"""Error codes with which a failed watch counts only as a warning. XIDs are reported by their number: one of
an application fails the watch of memory, too (NVSentinel issue 911). IMEX is not up on an idle node
(NVSentinel issue 1471)."""
ALL = "ALL"
"""The watch of the GPU as a whole: it fails for XID 79, say. It counts whatever its error code is."""
MOST_DIGITS, MOST_LETTERS = 4, 32
STAYS = timedelta(seconds=60)
"""A good status, or an action, counts once it has stayed for so long."""
NEVER = (
    "an XID, and rows that were or could not be remapped: the exporter shows less after each of its restarts"
)
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class State:
    """What must be remembered between two pages of one boot.

    ``last``: the last value of each series that counts by its changes. ``sound``: the families that could be
    read on a page. ``gpus``: those that each family has shown. ``bare``: whether the exporter has no line for
    the last XID of a GPU that has had none. ``watches``: those that each GPU has shown. ``held``: the faults.
    ``edges``: what was only counted. ``since``: since when each GPU's action, and each good watch, is what it
    is, or its line for the last XID is gone. ``actions``: the action of each GPU that has stayed. ``named``:
    the devices of each fault. ``unknown_since``: see ``Reading``. ``past``: an XID for which a GPU would need
    a reset, and which was there at the first look in this boot; "" for none.
    """

    boot_id: str = ""
    last: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    sound: frozenset[str] = frozenset()
    gpus: Mapping[str, frozenset[str]] = field(default_factory=dict)
    bare: bool = False
    watches: frozenset[tuple[str, str]] = frozenset()
    held: Mapping[Pair, Problem] = field(default_factory=dict)
    edges: Mapping[str, Problem] = field(default_factory=dict)
    since: Mapping[tuple[str, ...], datetime] = field(default_factory=dict)
    actions: Mapping[str, int] = field(default_factory=dict)
    named: Mapping[Pair, frozenset[str]] = field(default_factory=dict)
    unknown_since: Mapping[str, datetime] = field(default_factory=dict)
    past: str = ""


def observe(state: State, text: str, at: datetime, boot_id: str) -> tuple[State, Reading]:
    """What the page ``text``, read ``at``, says in this boot ("" where that is not known)."""
    if boot_id and boot_id != state.boot_id:
        state = State(boot_id=boot_id) if state.boot_id else replace(state, boot_id=boot_id)
    page = series.read(text, OF)
    why = page.broken.get("*") or ("" if page.series else "it has none of the series that are read of it")
    if why:
        return state, Reading(SOURCE, at, unknown={"*": why}, unknown_since={"*": at})
    return _Look(state, page, at).done()


class _Look:
    """One page, and the state before it."""

    def __init__(self, state: State, page: series.Read, at: datetime) -> None:
        self.state = state
        self.at = at
        self.unknown: dict[str, str] = {}
        self.sound = frozenset(OF) - page.broken.keys()
        for family, why in page.broken.items():
            self._not_known(family, why)
        self.silent: dict[str, str] = {}
        self.cleared: set[Pair] = set()
        self.of: dict[str, list[Series]] = defaultdict(list)
        for one in page.series:
            if one.name in self.sound:
                self.of[one.name] += [] if blank(one.value) else [one]
        self.gpus = {family: frozenset(map(_gpu, found)) for family, found in self.of.items()}
        self.there = frozenset[str]().union(*self.gpus.values())
        without = self.there - self.gpus.get(LAST_XID, frozenset()) - state.gpus.get(LAST_XID, frozenset())
        self.bare = state.bare or (bool(without) and LAST_XID in self.sound)
        self.watches = frozenset((_gpu(one), one.labels.get("health_watch", "")) for one in self.of[STATUS])
        self.last, self.since = dict(state.last), dict(state.since)
        self.held, self.named = dict(state.held), dict(state.named)
        self.edges, self.actions = dict(state.edges), dict(state.actions)
        self.past = state.past

    def done(self) -> tuple[State, Reading]:
        """The state after this page, and what it says."""
        self._missing()
        self._counted_xids()
        self._last_xids()
        self._remapped()
        self._health()
        self._recovery()
        fresh_until = self.at + FRESH_FOR
        held = {
            pair: p if pair[0] in self.unknown else replace(p, fresh_until=fresh_until)
            for pair, p in sorted(self.held.items())
        }
        edges = {r: replace(p, times=recent(p.times, self.at)) for r, p in sorted(self.edges.items())}
        edges = {r: p for r, p in edges.items() if p.times}
        since = {t: self.state.unknown_since.get(t, self.at) for t in self.unknown}
        known = {f: self.state.gpus.get(f, frozenset()) | now for f, now in self.gpus.items()}
        state = State(
            boot_id=self.state.boot_id,
            last=self.last,
            sound=self.state.sound | self.sound,
            gpus={**self.state.gpus, **known},
            bare=self.bare,
            watches=self.state.watches | self.watches,
            held=held,
            edges=edges,
            since=self.since,
            actions=self.actions,
            named=self.named,
            unknown_since=since,
            past=self.past,
        )
        reading = Reading(
            source=SOURCE,
            at=self.at,
            problems=(*held.values(), *edges.values()),
            unknown=self.unknown,
            unknown_since=since,
            cleared=frozenset(self.cleared),
            listed=frozenset({*held, *((type_, "") for family in self.of for type_ in OF[family])}),
            silent=self.silent,
            devices=self._devices(),
            early={XID: self.past} if self.past else {},
        )
        return state, reading

    def _devices(self) -> dict[Pair, frozenset[str]]:
        """The devices that the page shows, by type; none where it lacks the family. A GPU without an XID may
        have no line that says so."""
        shown = {family: frozenset(map(device, self.of[family])) for family in OF}
        of = {(type_, "*"): there for family, there in shown.items() for type_ in OF[family]}
        return {**of, (XID, "*"): frozenset[str]().union(*shown.values())}

    def _not_known(self, family: str, why: str) -> None:
        for type_ in OF[family]:
            self.unknown.setdefault(type_, why)

    def _missing(self) -> None:
        """Where a family no longer shows a GPU, its types are unknown. But not a type of which that GPU has a
        fault that only a boot ends: a GPU that has fallen off the bus is on no page."""
        for family, before in self.state.gpus.items():
            gone = before - self.gpus.get(family, frozenset())
            if family == LAST_XID and self.bare:
                gone -= self.there  # an exporter that was restarted has forgotten their XIDs
            for type_ in OF[family]:
                if lost := sorted(gpu for gpu in gone if not self._has_for_good(gpu, type_)):
                    self.unknown.setdefault(type_, f"{family} no longer shows {', '.join(lost)}")
        if lost_watches := sorted(self.state.watches - self.watches):
            gpu, watch = lost_watches[0]
            self._not_known(STATUS, f"{STATUS} no longer shows {watch[:40]!r} of {gpu}")

    def _has_for_good(self, gpu: str, type_: str) -> bool:
        """Whether ``gpu`` is known to have a fault of this type that only a boot ends."""
        latched = (pair for pair, p in self.held.items() if pair[0] == type_ and p.latched)
        names = (name for pair in latched for name in self.named.get(pair, ()))
        return any(f" {gpu} " in f" {name} " for name in names)  # index, UUID, PCI address

    # ------------------------------------------------------------ what counts by its change

    def _before(self, key: tuple[str, ...], value: float) -> float | None:
        """The value on the last page that had one; None on the first."""
        before = self.last.get(key)
        self.last[key] = value
        return before

    def _counted_xids(self) -> None:
        shown: dict[tuple[str, str], tuple[float, Series]] = {}
        for one in self.of[XIDS]:
            code = one.labels.get("xid", "")
            if code in ("", "0"):  # 0 is no XID
                continue
            of_gpu = (_gpu(one), code)
            if of_gpu not in shown or shown[of_gpu][0] < one.value:
                shown[of_gpu] = one.value, one
        self._xids(XIDS, shown)

    def _last_xids(self) -> None:
        shown = {(_gpu(one), f"{one.value:g}"): (1.0, one) for one in self.of[LAST_XID] if one.value}
        self._xids(LAST_XID, shown)
        may_forget = self.bare and LAST_XID in self.sound
        for gpu in {key[1] for key in self.last if key[0] == LAST_XID}:
            if not may_forget or gpu in self.gpus.get(LAST_XID, ()) or gpu not in self.there:
                self.since.pop((LAST_XID, gpu), None)
            elif self.at - self.since.setdefault((LAST_XID, gpu), self.at) >= STAYS:
                self._forget(LAST_XID, gpu)  # as the exporter has: the same XID is another one then

    def _forget(self, family: str, gpu: str) -> None:
        for key in [key for key in self.last if key[:2] == (family, gpu)]:
            del self.last[key]
        self.since.pop((family, gpu), None)

    def _xids(self, family: str, shown: Mapping[tuple[str, str], tuple[float, Series]]) -> None:
        """By GPU and XID: how often, and a line that says so. All parts of a GPU (MIG) may show what it has
        had, so it counts once.

        Some exporters have no line for a GPU before its first XID. So what a GPU shows that was on a page
        before, by whatever line, has happened since. But not where the family could be read on none of those
        pages; nor where it is new, and shows GPUs that had none: it was switched on, and its engine may
        remember what happened long before.
        """
        switched_on = family not in self.state.gpus and any(one.value == 0 for one in self.of[family])
        new = switched_on or family not in self.state.sound
        known = frozenset[str]() if new else frozenset[str]().union(*self.state.gpus.values())
        counted = self.gpus.get(XIDS, frozenset()) if family == LAST_XID else frozenset[str]()
        for (gpu, code), (count, one) in shown.items():
            before = self._before((family, gpu, code), count)
            if before is None and gpu in known:
                before = 0.0
            if before is not None and count > before and gpu not in counted:
                self._xid(code, one, count - before)
            if before is None and count and code.isdecimal() and int(code) in OF_THE_NODE:
                # The exporter began with this boot, too: a boot that is to be proved has not mended this GPU.
                self.past = self.past or f"{device(one)} has had XID {code} in this boot"
        there = self.gpus.get(family, frozenset())
        for key in [k for k in self.last if k[0] == family and k[1] in there and k[1:] not in shown]:
            del self.last[key]

    def _xid(self, code: str, one: Series, rise: float = 1) -> None:
        reason = f"GpuXid{code}"
        if not code.isdecimal() or len(code) > MOST_DIGITS:
            self.unknown.setdefault(XID, f"{one.name} gives {code[:20]!r} for an XID")
        elif int(code) in OF_THE_NODE:
            self._happened(XID, reason, one)
        else:
            old = self.edges.get(reason)
            edge = self._problem("", reason, one, old)
            times = (*(old.times if old else ()), *([self.at] * int(min(rise, EDGE_LIMIT))))
            self.edges[reason] = replace(edge, kind=Kind.EDGE, times=times, counter=self.at.timestamp())

    def _remapped(self) -> None:
        for one in self.of[FAILURE]:
            if one.value:
                pair = (REMAP_FAILED, REMAP_FAILED)
                problem = self._problem(*pair, one, self.held.get(pair))
                self.held[pair] = replace(problem, latched=True)
        for one in self.of[ROWS]:
            before = self._before(_key(one), one.value)
            if before is not None and one.value > before:
                self._happened(REMAP_PENDING, REMAP_PENDING, one)

    def _happened(self, type_: str, reason: str, one: Series) -> None:
        """What only a boot ends. Each time it happens is a statement of its own."""
        problem = self._problem(type_, reason, one, self.held.get((type_, reason)))
        self.held[(type_, reason)] = replace(problem, latched=True, life=self.at.isoformat(), stated=self.at)

    # ------------------------------------------------------------ what counts by its value

    def _health(self) -> None:
        bad: dict[str, list[Series]] = {WARNING: []} if self.of[STATUS] else {}
        for one in self.of[STATUS]:
            watch = one.labels.get("health_watch", "")
            if not (watch.isidentifier() and watch.isascii() and len(watch) <= MOST_LETTERS):
                self.unknown.setdefault(HEALTH, f"{STATUS} names a watch {watch[:40]!r}")
                continue
            found = bad.setdefault(f"GpuHealth{watch.title()}", [])
            own = watch == ALL or one.labels.get("health_error_code") not in NO_WORD_OF_ITS_OWN
            if one.value >= FAILED and own:
                found.append(one)
            elif one.value >= WARNED:
                bad[WARNING].append(one)
            elif one.value:
                self.unknown.setdefault(HEALTH, f"DCGM does not write such a status: {_evidence(one)}")
        for reason, lines in bad.items():
            self._level(HEALTH, reason, lines)

    def _level(self, type_: str, reason: str, lines: list[Series]) -> None:
        """A fault that is there while ``lines`` show it, and over once none did for a while."""
        pair = (type_, reason)
        if lines or type_ in self.unknown:
            self.since.pop(pair, None)
        if lines:
            self.named.pop(pair, None)  # of these devices and no others
            for one in lines:
                self.held[pair] = self._problem(*pair, one, self.held.get(pair))
        elif type_ not in self.unknown:
            since = self.since.setdefault(pair, self.at)
            if self.at - since >= STAYS:
                self.held.pop(pair, None)
                self.cleared.add(pair)
            else:
                self.silent[type_] = f"{reason} is good since {since:%H:%M:%SZ}, which counts after a minute"

    def _recovery(self) -> None:
        lines: dict[str, list[Series]] = {type_: [] for type_ in RECOVERY if self.of[ACTION]}
        for one in self.of[ACTION]:
            gpu, action = _gpu(one), int(one.value)
            key = (ACTION, gpu, str(action))
            for other in [k for k in self.since if k[:2] == key[:2] and k != key]:
                del self.since[other]
            since = self.since.setdefault(key, self.at)
            if self.at - since >= STAYS:
                self.actions[gpu] = action
            if self.actions.get(gpu, 0) != action:
                why = f"{ACTION} is {action} since {since:%H:%M:%SZ}, which counts after a minute"
                self.silent |= dict.fromkeys(RECOVERY, why)
            if settled := self.actions.get(gpu):
                lines[f"GpuRecovery{ACTIONS.get(settled, OTHER)}"].append(one)
        for type_, found in lines.items():
            self._level(type_, type_, found)

    def _problem(self, type_: str, reason: str, one: Series, old: Problem | None) -> Problem:
        """The problem that a line states, of its device and of those that are known to have it."""
        pair = (type_, reason)
        self.named[pair] = self.named.get(pair, frozenset()) | {device(one)}
        return Problem(
            source=SOURCE,
            type=type_,
            reason=reason,
            message=_evidence(one),
            since=old.since if old else self.at,
            fresh_until=self.at + FRESH_FOR,
            device=devices(self.named[pair]),
        )


def blank(value: float) -> bool:
    """DCGM's word for no value, of 32 or 64 bits. Old exporters print it."""
    return 0x7FFFFFF0 <= value <= 0x7FFFFFFF or value >= 0x7FFFFFFFFFFFFFF0


def _gpu(one: Series) -> str:
    return one.labels.get("UUID") or one.labels.get("uuid") or f"GPU {one.labels.get('gpu', '?')}"


def _key(one: Series) -> tuple[str, ...]:
    """The series. A part of a GPU (MIG) has one of its own. The pod that uses it comes and goes."""
    return (one.name, _gpu(one), one.labels.get("GPU_I_ID", ""))


def device(one: Series) -> str:
    index, uuid = one.labels.get("gpu", ""), one.labels.get("UUID") or one.labels.get("uuid") or ""
    return " ".join(filter(None, (f"GPU {index}" if index else "", uuid, one.labels.get("pci_bus_id", ""))))


def _evidence(one: Series) -> str:
    shown = ("gpu", "pci_bus_id", "xid", "health_watch", "health_error_code")
    labels = ",".join(f'{key}="{one.labels[key][:60]}"' for key in shown if key in one.labels)
    return f"{one.name}{{{labels}}} {one.value:g}"[:EVIDENCE]


class DcgmSource(PodSource):
    """This node's dcgm-exporter."""

    _state = State()

    def _observe(self, text: str, at: datetime, boot_id: str) -> tuple[object, Reading]:
        return observe(self._state, text, at, boot_id)

    def _remembered(self) -> Iterable[Problem]:
        return (*self._state.held.values(), *self._state.edges.values())
