"""Fetches what ``decide.needs`` asks for, one ``Need`` at a time, from the API server or the provider.

A refusal that the core can decide on becomes a field of the situation. Any other error ends the cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from recovery.agent import bugs, counting
from recovery.agent.complaint import complaint
from recovery.agent.memory import Down, Memory
from recovery.agent.paced import (
    about_call,
    about_step,
    answered,
    due,
    longest_before,
    longest_for,
    seen_before,
)
from recovery.agent.word import heard
from recovery.agent.world import World
from recovery.catalog import claim_by_events, event_claims, own_fault
from recovery.decide.budget import Past, bounded_census, labels_counted, longest_window
from recovery.decide.census import count
from recovery.decide.claims import named, rival
from recovery.decide.selector import identity, selects
from recovery.decide.situation import (
    ClaimsByEvent,
    Counted,
    FiringAlerts,
    GateMadeReady,
    HolderLabels,
    MachineLeft,
    Need,
    NewNode,
    PastStarts,
    PodsLeft,
    PowerState,
    Preflighted,
    Progressed,
    Role,
    Situation,
    ValidationJob,
    WitnessAsked,
)
from recovery.errors import (
    ApiError,
    ApiUnavailable,
    Conflict,
    Expired,
    NotFound,
    Refused,
    Retry,
    SettingsError,
    TooManyRequests,
    Undecodable,
)
from recovery.kube.paging import folded
from recovery.model import (
    Census,
    ClusterDelete,
    Deleting,
    Done,
    Machine,
    NodeView,
    NotApplied,
    Phase,
    Preflight,
    Record,
    Running,
    Says,
    Standing,
    Statement,
    Step,
    Unseen,
)
from recovery.provider.protocol import PowerSensor, Provider, Whereabouts, abilities_of
from recovery.provider.words import one_line
from recovery.quick import replace

TELLS_AFTER = 5
"""After so many renewals of its Lease, an agent of a small fleet has read the gate and told of its page."""
NODES_A_SECOND = 500
"""All Nodes are listed to find the one that a new machine became. The pause before the next list grows with
their number: ten seconds for 5,000 Nodes."""
PODS_BLIND = 300.0
"""For so many seconds it is not reported that the pods cannot be listed, while all else can be read."""
EVENTS_AGE = 30.0
"""Seconds for which other remediators' Events on a node are not read again; before a destructive call they
always are."""
PAST_AGE = 10.0
"""Seconds for which the earlier recoveries on all records are not read again."""
PAST_AGE_OF_OTHERS = 2.0
"""The same where one list serves several nodes: the gate may have no room for all that was started since."""
WHILE_PROVING = 30.0
"""Seconds, at most, for which it is not asked again whether the group has made up for a new machine."""
WITNESS_AGE = 10.0
"""Seconds for which a second witness is not asked again."""
DOWN_AGE = 15.0
"""Seconds for which it is not asked again whether the machine is down: a dead BMC takes long to time out."""
MAY_ANSWER = 60.0
"""Seconds without an answer, after which nothing shows any more that a machine is down."""
DOWN_UNSEEN = 240.0
"""The same, at most, after each try without an answer. Where a rack's BMCs are away, all its nodes would have
whoever asks wait for one time-out after the other."""


class Fetcher:
    """Answers each ``Need``."""

    def __init__(self, world: World) -> None:
        self._w = world
        self.without_node: set[str] = set()  # handed over, and without a Node when last counted

    def fetch(
        self, s: Situation, r: Record, need: Need, memory: Memory, *, me: str, fresh: bool
    ) -> Situation:
        """``s`` with what was needed. ``me`` and ``fresh`` are those of ``Observer.situation``."""
        match need:
            case GateMadeReady():
                return self._made_ready(s)
            case Progressed():
                found = self._unclaimed(s, r, self._poll(s, r, memory), memory)
                return self._without(replace(s, poll=found), r, memory)
            case NewNode():
                return self._new_node(s, r, memory, me, fresh)
            case ValidationJob():
                return self._job(s, r, memory)
            case PowerState():
                return self._with_power(s, memory)
            case PodsLeft(evicting):
                return self._pods(s, r, memory, evicting)
            case FiringAlerts():
                self._w.ask_for_alerts()
                return replace(s, alerts=self._w.alerts())
            case ClaimsByEvent():
                return replace(s, forbidden=self._claim_by_event(s, memory, fresh))
            case Preflighted(action):
                return self._preflight(s, r, action, memory, fresh)
            case WitnessAsked():
                return replace(s, witness_says=self._witness_says(need, memory, fresh))
            case Counted():
                census = self._census(s, need, memory, fresh)
                return replace(s, census=census, rivals=memory.rivals)
            case PastStarts():
                return replace(s, starts=tuple(self._past(s, memory).starts))
            case HolderLabels(nodes):
                return replace(s, holder_labels=self._labels(nodes, memory))
            case MachineLeft():
                return self._machine_left(s, r)

    def _made_ready(self, s: Situation) -> Situation:
        """A refusal is told as what is wrong with the gate: no other try may ever succeed."""
        try:
            return replace(s, gate=self._w.gates.ready(s.gate, s.now))
        except (ApiUnavailable, Conflict, Expired, TooManyRequests):
            return replace(s, gate=None)
        except ApiError as error:
            return replace(s, gate=None, gate_problem=error.reason)

    def _with_power(self, s: Situation, memory: Memory) -> Situation:
        found = self._down(s, memory)
        since = found.unseen_since
        unanswered = since is not None and self._w.clock.monotonic() - since < MAY_ANSWER
        return replace(s, down=found.says, may_be_down=unanswered)

    def _down(self, s: Situation, memory: Memory) -> Down:
        """What shows that the machine runs nothing; empty where nothing does, or it cannot be seen."""
        assert s.machine is not None
        assert s.provider is not None
        provider = self._w.providers.get(s.provider.name)
        assert isinstance(provider, PowerSensor)  # it declared it
        now, last = self._w.clock.monotonic(), memory.down
        if last is not None and now - last.at < last.pause:
            return last
        says, pause, unseen = "", DOWN_AGE, None
        try:
            with bugs.looking(self._w.survived, s.node_name, s.provider.name):
                says = provider.down(s.machine) or ""
        except (Retry, Refused) as error:  # not proved
            if isinstance(error, Retry):
                unseen = last.unseen_since if last is not None and last.unseen_since is not None else now
            if last is not None and now - last.at < 2 * DOWN_UNSEEN:  # else that was another time
                pause = min(2 * last.pause, DOWN_UNSEEN)
        # When it came: as in ``_preflight``.
        memory.down = Down(self._w.clock.monotonic(), says, pause, unseen)
        return memory.down

    def _machine_left(self, s: Situation, r: Record) -> Situation:
        """Whether the machine is gone, by its provider; if it is there, what is being done to it."""
        machine = s.machine or self._by_its_provider_id(r)
        if not machine.provider:
            unknown = "" if s.node is None else "the provider of its machine is not known"
            return replace(s, asked_of_cloud=unknown)
        try:
            provider = self._w.providers.get(machine.provider)
            with bugs.looking(self._w.survived, r.node, machine.provider):
                gone = provider.gone(machine) if isinstance(provider, Whereabouts) else None
        except (Retry, Refused, SettingsError) as error:
            return replace(s, asked_of_cloud=f"whether {machine} is gone cannot be seen: {error}")
        if gone:
            return replace(s, machine_gone=gone)
        return s if s.node is None else replace(s, asked_of_cloud=self._asked_of(r.node, provider, machine))

    def _by_its_provider_id(self, r: Record) -> Machine:
        """The machine of a record, also of one that somebody deleted when its Node was gone: what its slot
        keeps is known of it, and its Node had the machine's ID in its providerID, or as its system UUID."""
        m = r.machine
        if m.provider or not m.provider_id:
            return m
        node = NodeView(r.node, uid="", resource_version="", provider_id=m.provider_id, system_uuid=m.id)
        found = self._w.providers.identify(node).machine
        return found if found is not None and found.id == m.id else m

    def _asked_of(self, node: str, provider: Provider, machine: Machine) -> str:
        """What is under way for the machine, by a preflight of each step: that a step would be adopted."""
        for action in sorted(abilities_of(provider, machine).actions):
            try:
                with bugs.looking(self._w.survived, node, provider.name):
                    under_way = provider.preflight(machine, action).adopt
                if under_way:
                    return under_way
            except Refused:
                continue  # it cannot be done to this machine, so it is not being done
            except Retry as error:
                return f"what is asked of it cannot be seen: {error.reason}"
        return ""

    def _pods(self, s: Situation, r: Record, memory: Memory, evicting: bool) -> Situation:
        most, now = s.policy.drain.evictions_per_second, self._w.clock.monotonic()
        free = memory.evictions_free(most, now) if evicting else s.evictions_free
        try:
            pods = self._w.cluster.list_pods(r.node)
            memory.pods_blind_since = None
            return replace(s, pods=pods, evictions_free=free)
        except ApiError as error:
            memory.pods_blind_since = memory.pods_blind_since or now
            # An API server that is busy or away is asked again. It is no end of the drain, but where all else
            # is answered for long: one pod that cannot be decoded is enough for that.
            away = isinstance(error, ApiUnavailable) and now - memory.pods_blind_since < PODS_BLIND
            busy = isinstance(error, TooManyRequests)
            if away or busy:
                raise
            return replace(s, pods_problem=f"they cannot be listed: {error.reason}")

    def _job(self, s: Situation, r: Record, memory: Memory) -> Situation:
        """The validation Job on record, as it is now."""
        assert r.validation is not None
        try:
            job = self._w.cluster.get_job(r.validation.job)
            if job.succeeded is False and not job.unrun and (why := self._turned_away(r.validation.job)):
                job = replace(job, unrun=f"the kubelet did not admit its pod: {one_line(why)}")
            return replace(s, job=job)
        except NotFound:
            due = self._w.clock.monotonic() >= memory.job_again
            return replace(s, job_problem=memory.job_problem, job_due=due)
        except (ApiUnavailable, TooManyRequests):
            raise  # it is asked again: that says nothing of the Job
        except ApiError as error:
            why = f"Job {r.validation.job} cannot be read: {error.reason}"
            return replace(s, job_problem=why, job_due=False)

    def _turned_away(self, job: str) -> str:
        try:
            return self._w.cluster.turned_away(job)
        except (ApiUnavailable, TooManyRequests):
            raise
        except ApiError:
            return ""  # what its pods did is not known: that the Job has failed is

    def _claim_by_event(self, s: Situation, memory: Memory, fresh: bool) -> str:
        """Who else is at work on the node, by that remediator's own Events.

        Events that may not be read count as somebody at work: "nobody" must not be assumed.
        """
        now = self._w.clock.monotonic()
        if memory.claim is not None and not fresh and now - memory.claim[0] < EVENTS_AGE:
            return memory.claim[1]
        found = ""
        for remediator in event_claims():
            if s.node is None or s.machine is None or s.machine.provider != remediator.provider:
                continue
            try:
                events = self._w.cluster.list_node_events(s.node_name, remediator.source)
            except ApiUnavailable:
                raise
            except ApiError as error:
                found = found or f"whether {remediator.system} is at work here cannot be read: {error.reason}"
                continue
            found = found or claim_by_events(remediator, s.node, events, s.now) or ""
        memory.claim = (now, found)
        return found

    def _preflight(self, s: Situation, r: Record, action: Step, memory: Memory, fresh: bool) -> Situation:
        """Ask the provider about a destructive step, before anything is done to the node.

        ``fresh``, as right before the call: what it said a moment ago does not count.
        """
        assert s.provider is not None
        assert s.machine is not None
        provider = self._w.providers.get(s.provider.name)
        if action not in s.provider.actions:
            return replace(s, preflight_refused=f"provider {provider.name} cannot {action.value} {s.machine}")
        question, now = about_step(r, action), self._w.clock.monotonic()
        if not fresh and memory.preflight.good(question, now) and not due(s, memory.preflight.answer):
            return answered(s, memory.preflight, now)
        try:
            with bugs.looking(self._w.survived, s.node_name, provider.name):
                found: Preflight | Retry = provider.preflight(s.machine, action)
        except Refused as error:
            return replace(s, preflight_refused=error.reason)
        except Retry as error:
            found = error
        now = self._w.clock.monotonic()  # when it came: some take longer than they are good for
        longest = longest_before(found)
        memory.preflight = memory.preflight.then(question, found, seen_before(found), now, longest)
        memory.preflight = memory.preflight.as_long_as(found, now)
        return answered(s, memory.preflight, now)

    def _witness_says(self, need: WitnessAsked, memory: Memory, fresh: bool) -> Statement:
        """What the second witness says. Before a destructive call it is always asked anew."""
        now = self._w.clock.monotonic()
        known = memory.witness_said
        if known is not None and known[1] == need and not fresh and now - known[0] < WITNESS_AGE:
            return known[2]
        witness = self._w.witnesses.get(need.witness)
        unknown = Statement(Says.ABSENT, f"this agent cannot read {need.witness}")
        found = witness(need.reasons) if witness is not None else unknown
        memory.witness_said = (now, need, found)
        return found

    # ------------------------------------------------------------ the census

    def _census(self, s: Situation, need: Counted, memory: Memory, fresh: bool) -> Census | None:
        """The census that is asked for. Who is about to start counts by itself; others share one count."""
        latest = self._known_census(s, memory, need.age)
        if need.known:
            return latest
        if need.own:
            mine = memory.census
            return mine if mine and counting.good(mine, s, need.age) else self._counted(s, memory)
        if fresh or need.since is not None:
            old = latest is None or (need.since is not None and latest.at < need.since)
            return self._counted(s, memory) if fresh or old else latest
        newest = max(self._counts(s, memory), key=lambda census: census.at, default=None)
        if counting.my_turn(newest, newest is memory.census, s, need.age):
            return self._counted(s, memory)
        return latest

    def _counted(self, s: Situation, memory: Memory) -> Census:
        """Count, and note how long that took: the others wait for as long before they count themselves."""
        began = self._w.clock.monotonic()
        found = self._count(s, memory)
        memory.census = replace(found, seconds=int(self._w.clock.monotonic() - began))
        return memory.census

    def _count(self, s: Situation, memory: Memory) -> Census:
        """Count the sick now, over all Nodes and records. A record that cannot be decoded counts as sick."""
        memory.census, memory.rivals = folded(lambda: self._count_all(s))
        return memory.census

    def _count_all(self, s: Situation) -> tuple[Census, tuple[str, ...]]:
        """The count, over the records that may count as sick, and who else claims this node's machine.

        Thousands of records that are closed are not listed.
        """
        w, unknown = self._w, list[str]()
        handed: set[str] = set()
        records = list(self._sick(handed, unknown))
        now = w.cluster.time.now()
        rivals: list[str] = []
        if (known := w.cluster.all_known()) is not None:
            self.without_node = {name for name in handed if known.get(name) is None}
            rivals += known.rivals(s.node_name, s.machine) if s.machine is not None else []
            return bounded_census(known.census(records, now, unknown), self._scopes(s)), named(rivals)
        labels = {*s.policy.limits.brake_per, *s.policy.limits.budget_per}
        nodes = self._noting(s, handed, rivals, w.cluster.list_nodes())
        counted = count(nodes, records, own_fault, labels, now, unknown, s.policy.limits.population)
        self.without_node = handed
        return bounded_census(counted, self._scopes(s)), named(rivals)

    def _sick(self, handed: set[str], unknown: list[str]) -> Iterator[Record]:
        """The records that may count; those that cannot be decoded are named in ``unknown``."""
        for found in self._w.records.sick():
            if isinstance(found, Undecodable):
                unknown.append(found.name)
                continue
            if found.phase is Phase.HANDED_OVER:
                handed.add(found.node)
            yield found

    def _noting(
        self, s: Situation, handed: set[str], rivals: list[str], nodes: Iterable[NodeView]
    ) -> Iterator[NodeView]:
        """``nodes``, which are taken out of ``handed``: what is left there has no Node. Those that claim the
        machine of ``s`` as well are put into ``rivals``."""
        for node in nodes:
            handed.discard(node.name)
            if s.machine is not None and rival(node, s.node_name, s.machine):
                rivals.append(node.name)
            yield node

    def _past(self, s: Situation, memory: Memory) -> Past:
        """What the records tell of earlier recoveries, listed again after ``PAST_AGE``. (What was started
        since then is on the gate.)"""
        now = self._w.clock.monotonic()
        if memory.past is None or now - memory.past[0] >= PAST_AGE:
            # Of a process that starts all recoveries no other knows of a start that this one does not.
            age = PAST_AGE_OF_OTHERS if self._w.desk is None else PAST_AGE
            memory.past = self._w.past.known(self._w.clock, age, lambda: folded(lambda: self._all_past(s)))
        return memory.past[1]

    def _all_past(self, s: Situation) -> Past:
        past = Past(s.now - longest_window(s.policy.limits))
        for found in self._w.records.all():
            if not isinstance(found, Undecodable):
                past.add(found)
        return past

    def _labels(self, nodes: tuple[tuple[str, str], ...], memory: Memory) -> dict[str, Mapping[str, str]]:
        """The labels of these Nodes, where they still run on the machine that took the slot."""
        memory.labels = {known: memory.labels[known] for known in nodes if known in memory.labels}
        for name, machine in nodes:
            if (name, machine) in memory.labels:
                continue
            node = self._w.node(name)
            same = node is not None and (not machine or self._is(node, machine))
            memory.labels[name, machine] = node.labels if node is not None and same else None
        return {name: labels for (name, _), labels in memory.labels.items() if labels is not None}

    def _known_census(self, s: Situation, memory: Memory, age: timedelta) -> Census | None:
        """The latest count by this agent or another (on the gate), if one is no older than ``age``. One that
        took long is good for longer, but a later one says more: who counted may have been stopped meanwhile.
        """
        known = [c for c in self._counts(s, memory) if c.at <= s.now]
        if not any(counting.good(c, s, age) for c in known):
            return None
        return max(known, key=lambda census: census.at)

    def _counts(self, s: Situation, memory: Memory) -> list[Census]:
        """The counts that are there: our own, and the one on the gate. Not those under another policy."""
        return self._of_this_policy(s, memory.census, s.gate.census if s.gate else None)

    def latest_census(self, s: Situation) -> Census | None:
        """The census that ``s`` goes by, or the one on the gate, if that was made later."""
        if s.census is None or s.gate is None:
            return s.census
        later = (c for c in self._of_this_policy(s, s.gate.census) if s.census.at < c.at <= s.now)
        return next(later, s.census)

    def _of_this_policy(self, s: Situation, *known: Census | None) -> list[Census]:
        of, scopes = identity(s.policy.limits.population), self._scopes(s)
        return [c for c in known if c is not None and c.of == of and all(x in c.by_label for x in scopes)]

    def _scopes(self, s: Situation) -> list[str]:
        """The scopes (label=value) of this node that the budget or the brake is counted by."""
        labels = labels_counted(s)
        if not selects(s.policy.limits.population, labels):
            return []
        keys = {*s.policy.limits.brake_per, *s.policy.limits.budget_per}
        return [f"{key}={labels[key]}" for key in keys if key in labels]

    # ------------------------------------------------------------ after a call

    def _poll(self, s: Situation, r: Record, memory: Memory) -> Standing:
        """How the action on record stands. A provider that cannot say so leaves it to the rung's deadline."""
        assert r.intent is not None
        question, now = about_call(r.intent), self._w.clock.monotonic()
        if memory.poll.good(question, now):
            known: Standing = memory.poll.answer
            return known
        try:
            provider = self._w.providers.get(r.machine.provider)
            with bugs.looking(self._w.survived, r.node, provider.name):
                said = provider.poll(r.machine, r.intent.reference)
            if isinstance(said, Deleting):  # asked of the API server, each time
                return self._deleted(s, r, said.what)
            found: Standing = said
        except (Retry, Refused, SettingsError, ApiError) as error:
            found, now = Unseen(f"{r.intent.action}: {error}"), self._w.clock.monotonic()
            memory.poll = memory.poll.then(question, found, found, now, longest_for(r.intent, found))
            memory.poll = memory.poll.as_long_as(error, now)
            return found
        longest = longest_for(r.intent, found) if r.phase is not Phase.PROVING else WHILE_PROVING
        now = self._w.clock.monotonic()  # as in ``_preflight``
        memory.poll = memory.poll.then(question, found, found, now, longest)
        return found

    def _unclaimed(self, s: Situation, r: Record, found: Standing, memory: Memory) -> Standing:
        """``found`` without the new machines that another record names as its own.

        The gate keeps the latest claims only, so the records are asked before a new one is made.
        """
        if not isinstance(found, Done) or not found.complete or s.gate is None:
            return found
        claimed = {c.machine: c.instead_of for c in s.gate.claimed}
        settled = r.machine.id in claimed.values() and r.phase is not Phase.PROVING
        if settled or all(m in claimed for m in found.replacements):
            return found
        taken = self._past(s, memory).taken
        free = tuple(m for m in found.replacements if taken.get(m, r.machine.id) == r.machine.id)
        return replace(found, replacements=free)

    def _without(self, s: Situation, r: Record, memory: Memory) -> Situation:
        """Whether the group has made up for a new machine that has no Node, and since when."""
        new = r.replacement_machine
        if r.phase is not Phase.PROVING or not isinstance(s.poll, Done):
            return s
        if not s.poll.complete or new in s.poll.replacements:
            memory.unlisted = {}
            return s
        return replace(s, unlisted_for=memory.unlisted_for(new, self._w.clock.monotonic()))

    def _deleted(self, s: Situation, r: Record, what: ClusterDelete) -> Standing:
        """A replacement by deletion is done when both the deleted object and the Node are gone.

        One object that cannot be read, because of its kind's own webhook or a right that is missing, is no
        outage of the API server: ``_poll`` leaves it to the rung's deadline, as any look without an answer.
        """
        deleting = self._w.cluster.deleting(what)
        if deleting is not None:
            if not deleting:
                return NotApplied(f"{what} is there, and nobody deletes it")
            return Running(f"{what} is being deleted{f' by {what.by}' if what.by else ''}")
        if s.node is not None and (s.machine is None or s.machine.id == r.machine.id):
            return Running(f"{what} is gone, and Node {r.node} is not yet")
        return Done(f"Node {r.node} and {what} are gone", final=True)

    def _new_node(self, s: Situation, r: Record, memory: Memory, me: str, fresh: bool) -> Situation:
        """The Node that the new machine has registered, if there is one yet."""
        if fresh and r.replacement:
            self._w.cluster.forget(r.replacement)
        found = self._w.node(r.replacement) if r.replacement else None
        if found is None or not self._is(found, r.replacement_machine):
            found = self._seek(r.replacement_machine, memory)
        if found is None:
            unjoined = memory.unjoined_for(r.replacement_machine, self._w.clock.monotonic())
            return replace(s, unjoined_for=unjoined)
        memory.unjoined = memory.unlisted = {}
        machine, record = self._w.providers.identify(found).machine, self._own_record(found)
        mine = found.name == me and not s.outside  # of a Node outside of FLEET_SELECTOR no source is read
        return replace(
            s,
            replacement=found,
            replacement_is_me=mine,
            replacement_problem=complaint(s, found, machine, record),
            tells_within=timedelta(seconds=0 if s.afar else TELLS_AFTER * self._w.leases.renew_every),
            replacement_record=record.sentence if record is not None and record.phase.sick else "",
            replacement_page=heard(self._w.leases.word(found.name), r.replacement_machine)
            if s.role is Role.CONCLUDER or not mine
            else None,
            watched_for=memory.watched_for(found, self._w.clock.monotonic()),
        )

    def _seek(self, machine: str, memory: Memory) -> NodeView | None:
        """The Node of a machine, searched among all Nodes, less often the more there are."""
        now = self._w.clock.monotonic()
        if now < memory.seek_again:
            return None
        seen = 0
        for node in self._w.cluster.list_nodes():
            if self._is(node, machine):
                read = self._w.node(node.name)  # a watch may show one that has gone
                return read if read is not None and self._is(read, machine) else None
            seen += 1
        memory.seek_again = now + seen / NODES_A_SECOND
        return None

    def _own_record(self, node: NodeView) -> Record | None:
        """The new node's own record, where it is about its very machine."""
        record = self._w.records.read(node.name)
        return record if record is not None and self._is(node, record.machine.id) else None

    def _is(self, node: NodeView, machine: str) -> bool:
        """Whether ``node`` runs on the machine with this ID: by its Node, or by its provider."""
        if is_machine(node, machine):
            return True
        found = self._w.providers.identify(node).machine
        return found is not None and found.id == machine


def is_machine(node: NodeView, machine: str) -> bool:
    """Whether ``node`` runs on the machine with this ID, by its providerID or system UUID."""
    return bool(machine) and (
        node.provider_id.rsplit("/", 1)[-1].lower() == machine.lower()
        or node.system_uuid.lower() == machine.lower()
    )
