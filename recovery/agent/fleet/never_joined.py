"""Asks the cloud once a minute which machines the groups of the fleet's Nodes have, and finds those that
never became a Node. That is one list for each group, however large the fleet is.

Nothing is started for such a machine: a record of it is handed over to a person at once (note 0041). What
cannot be had is unknown: nothing new is said then, and nothing that was said is taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta

from recovery.agent.fleet.nodes import Nodes
from recovery.clock import Clock
from recovery.errors import ApiError, Refused, Retry, SettingsError, Undecodable
from recovery.kube.cluster import Cluster
from recovery.kube.paging import folded
from recovery.model import GroupMembers, Machine, NodeView, Policy, Record
from recovery.provider.protocol import ListsMembers
from recovery.provider.registry import Providers
from recovery.report.metrics import Metrics
from recovery.signals import never_joined
from recovery.signals.never_joined import Spared, Unjoined, Verdict, Word, how_it_ended, judged, spared
from recovery.store.gate import Gates
from recovery.store.record import Records

log = logging.getLogger(__name__)

EVERY = 60.0
"""Seconds between two rounds."""
STALE = 3 * EVERY
"""How old an answer may be before it counts as unknown."""
MOST_OF_A_GROUP = 20
"""How many machines of one group get a record. If there are more, they have one cause, and more records would
not show it better."""
KEPT = 3600.0
"""For how many seconds it is remembered why a machine is not missing any more."""


def tolerated(policy: Policy) -> timedelta | None:
    """How long a machine may be no Node, by the rule that waits least; None where none speaks of that."""
    return min((rule.after for rule in policy.rules if rule.match.type == never_joined.TYPE), default=None)


class _Unknown(Exception):
    """Why nothing can be said in this round."""


class Roll:
    """One thread calls ``round``; any may ask what is known. ``after``: how long a machine may take to join.

    ``summon`` is told the record's name of each machine that never joined. ``whole``: the Nodes that
    are watched are all there are. ``on``: ENABLE_RECOVERY; without it there is no right to list records.
    """

    def __init__(
        self,
        cluster: Cluster,
        records: Records,
        gates: Gates,
        providers: Providers,
        nodes: Nodes,
        clock: Clock,
        after: timedelta,
        metrics: Metrics,
        summon: Callable[[str], None],
        *,
        whole: bool,
        on: bool,
    ) -> None:
        self._cluster = cluster
        self._records = records
        self._gates = gates
        self._providers = providers
        self._nodes = nodes
        self._clock = clock
        self._after = after
        self._metrics = metrics
        self._summon = summon
        self._whole = whole
        self._on = on
        self._found: dict[str, Unjoined] = {}
        self._ended: dict[str, tuple[float, str]] = {}
        self._on_record: dict[str, Machine] = {}
        self._read_at: float | None = None
        self._why = "the groups have not been listed yet"
        self._unlisted = False
        self._without_groups: list[str] = []
        self._said: dict[str, str] = {}

    # ------------------------------------------------------------ any thread

    def word(self, name: str) -> Word:
        """What is known of the machine with the record ``name``."""
        now = self._nodes.now()
        if self._read_at is None or self._clock.monotonic() - self._read_at > STALE:
            return Word(now, why=self._why or "the groups were last listed minutes ago")
        found, (_, ended) = self._found.get(name), self._ended.get(name, (0.0, ""))
        return Word(now, found, ended, "" if found or ended else "nothing is known of this machine")

    def node(self, name: str) -> NodeView | None:
        """What stands for the Node of a machine that has none; None for the name of a Node."""
        if not never_joined.is_name(name):
            return None
        if (found := self._found.get(name)) is not None:
            return found.node
        if (machine := self._on_record.get(name)) is not None:
            return Unjoined(name, machine, machine.group, self._nodes.now(), "").node
        return None

    # ------------------------------------------------------------ one thread

    def round(self) -> float:
        """List, compare, and tell. Never raises what the cloud or the API server cause. Seconds until the
        next one."""
        pause = EVERY
        try:
            self._once()
            self._why = ""
        except _Unknown as unknown:
            self._unknown(str(unknown))
        except (Retry, Refused, SettingsError, ApiError) as error:
            self._unknown(str(error))
            pause = max(EVERY, error.after.total_seconds()) if isinstance(error, Retry) else EVERY
        self._metrics.never_joined_unknown.set(bool(self._why) or self._unlisted)
        return pause

    def stands_down(self) -> None:
        """Another calls the roll now: what this one knew is shown no more."""
        if self._read_at is None and not self._said:
            return
        self._found, self._on_record, self._ended, self._said = {}, {}, {}, {}
        self._read_at, self._why = None, "the groups have not been listed yet"
        self._metrics.only(self._metrics.never_joined, {})
        self._metrics.never_joined_unknown.set(0)

    def _unknown(self, why: str) -> None:
        self._why = why
        self._say("*", f"whether machines never became a Node is not known: {why}")

    def _once(self) -> None:
        records = self._sick() if self._on else []
        self._on_record = {r.node: r.machine for r in records if never_joined.is_name(r.node)}
        groups = list(self._groups())
        # The Nodes are looked at after the machines: one that joins in between is no late one.
        nodes, gate = self._known(fresh=not self._whole), self._gates.read() if self._on else None
        waited_for = spared(records, gate.claimed if gate is not None else ())
        verdicts = self._judged(groups, nodes, waited_for)
        known = self._found.keys() | self._on_record.keys()
        if any(u.name not in known for v in verdicts for u in v.found):
            nodes = self._known(fresh=True)
            verdicts = self._judged(groups, nodes, waited_for)
        self._take(groups, nodes, waited_for, verdicts)

    def _judged(
        self, groups: Iterable[GroupMembers], nodes: never_joined.Nodes, waited_for: Spared
    ) -> list[Verdict]:
        return [judged(g, nodes, self._after, waited_for) for g in groups if not g.unknown]

    def _take(
        self,
        groups: list[GroupMembers],
        nodes: never_joined.Nodes,
        waited_for: Spared,
        verdicts: list[Verdict],
    ) -> None:
        now = self._clock.monotonic()
        found = {u.name: u for v in verdicts for u in self._of_group(v)}
        before = {name: u.machine for name, u in self._found.items()} | self._on_record
        for name, machine in before.items():
            if name in found:
                continue
            if ended := how_it_ended(machine, groups, nodes, waited_for):
                self._ended[name] = (now, ended)
                log.info("%s: %s", name, ended)
            elif name in self._found:
                found[name] = self._found[name]
        self._ended = {n: x for n, x in self._ended.items() if n not in found and now - x[0] <= KEPT}
        self._found, self._read_at = found, now
        self._tell(groups, verdicts)
        for name in found:  # a record of one that is none any more is the sweep's to find
            self._summon(name)

    def _of_group(self, verdict: Verdict) -> list[Unjoined]:
        """Those of which there is to be a record. Of a group without a Ready Node only those that have one:
        it may be another cluster's, or what is broken is not a machine."""
        known = [u for u in verdict.found if u.name in self._found or u.name in self._on_record]
        if verdict.alone:
            return known
        new = [u for u in verdict.found if u not in known]
        return known + new[: max(0, MOST_OF_A_GROUP - len(known))]

    def _tell(self, groups: list[GroupMembers], verdicts: list[Verdict]) -> None:
        counts: dict[tuple[str, ...], float] = {(v.group,): len(v.found) for v in verdicts if v.found}
        self._metrics.only(self._metrics.never_joined, counts)
        self._unlisted = any(g.unknown for g in groups)
        said = {g.group: f"group {g.group} cannot be listed: {g.unknown}" for g in groups if g.unknown}
        for v in verdicts:
            if v.found and v.alone:
                said[v.group] = (
                    f"group {v.group} has no Ready Node of this cluster, and {len(v.found)} machines that "
                    f"are no Nodes, {v.found[0].machine} among them: nothing is said of each"
                )
            elif len(v.found) > MOST_OF_A_GROUP:
                said[v.group] = f"group {v.group}: {len(v.found)} machines never became a Node"
        for name in self._without_groups:
            said[f"provider {name}"] = f"provider {name} has no groups that could be listed"
        for group in self._said.keys() - said.keys():
            del self._said[group]
        for group, text in said.items():
            self._say(group, text)

    def _say(self, what: str, text: str) -> None:
        """Log it once."""
        if self._said.get(what) != text:
            self._said[what] = text
            log.warning("%s", text)

    # ------------------------------------------------------------ what is asked

    def _sick(self) -> list[Record]:
        """The records that count. One that cannot be decoded may wait for any machine."""

        def listed() -> list[Record]:
            found = []
            for r in self._records.sick():
                if isinstance(r, Undecodable):
                    raise _Unknown(f"a record may wait for any machine: {r}")
                found.append(r)
            return found

        return folded(listed)

    def _groups(self) -> Iterable[GroupMembers]:
        """The groups of the Nodes that this controller looks after, and of the machines on records.

        A provider need not say when a machine was launched that is named to it, so one on a record would not
        be found again. Those that an earlier leader has found are named beforehand: from then on their groups
        are listed. They are named with the Nodes, or it would look up when each of those was launched.
        """
        joined = _by_provider(filter(None, (self._providers.identify(n).machine for n in self._nodes.all())))
        earlier = _by_provider(m for name, m in self._on_record.items() if name not in self._found)
        on_record = _by_provider(self._on_record.values())
        self._without_groups = []
        for name in sorted(joined.keys() | on_record.keys()):
            provider = self._providers.get(name)
            if not isinstance(provider, ListsMembers):
                self._without_groups.append(name)
                continue
            if name in earlier:
                list(provider.members([*joined.get(name, ()), *earlier[name]]))
            yield from provider.members(joined.get(name, ()))

    def _known(self, *, fresh: bool) -> never_joined.Nodes:
        """Whose machine is which Node. ``fresh``: asked of the API server, for the whole cluster."""

        def listed() -> never_joined.Nodes:
            found = never_joined.Nodes()
            for node in self._cluster.list_nodes() if fresh else self._nodes.all():
                found.add(node, self._providers.identify(node).machine)
            return found

        found = folded(listed)
        for node, at in self._nodes.went():
            found.add_gone(node, self._providers.identify(node).machine, at)
        if found.unclear:
            raise _Unknown(f"Node {found.unclear} has no providerID, so it may be any machine")
        return found


def _by_provider(machines: Iterable[Machine]) -> dict[str, list[Machine]]:
    """Those of which it is known whose they are."""
    found: dict[str, list[Machine]] = {}
    for machine in machines:
        if machine.provider:
            found.setdefault(machine.provider, []).append(machine)
    return found
