"""What every provider must do, as tests: subclass, say how to get one, and run pytest.

``ProviderKit`` is for all providers; ``ActionKit`` adds what holds for each action a provider can do, and
use it as soon as there is one. A subclass gives three fixtures (``provider``, ``node``, ``world``)
and two class attributes::

    class TestMyProvider(ActionKit):
        actions = (Step.REBOOT, Step.REPLACE)
        rubbish = ("", "aws:///us-west-2a/i-1", "https://example.com")

        @pytest.fixture
        def world(self) -> FarEnd: ...        # a local server, with something that counts calls in front
        @pytest.fixture
        def provider(self, world) -> Provider: ...
        @pytest.fixture
        def node(self, world) -> NodeView: ...  # a healthy node with a machine of this provider

Test the real provider with the real SDK; only the server at the far end is a local one. Give the provider
short timeouts: one test, marked ``slow``, waits for them.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import pytest

from recovery.errors import Ambiguous, NodeRecoveryError, Refused, Retry
from recovery.model import (
    Done,
    Failed,
    Gone,
    Machine,
    NodeView,
    NotApplied,
    Preflight,
    Reference,
    Running,
    Step,
    Unfinished,
    Unseen,
)
from recovery.provider.protocol import ListsMembers, Provider, Resumable, TakesBack

TOKEN = "kit-token"  # noqa: S105 (an idempotency token)
PROVIDER_STEPS = frozenset(step for step in Step if step.provider_action)


class FarEnd(Protocol):
    """The far end, and what may go wrong on the way there."""

    def calls(self) -> int:
        """All requests that reached the far end or the way there."""

    def mutating_calls(self) -> int:
        """Those that change something, whether answered or not."""

    def lose_answer(self) -> None:
        """The next mutating call is carried out, and its answer lost."""

    def delay(self) -> None:
        """The next mutating call is carried out, and answered later than the provider waits."""

    def refuse(self, kind: str) -> None:
        """The next mutating call is turned away: ``throttled``, ``denied``, or ``broken`` (a 500)."""

    def remove_machine(self) -> None:
        """The machine is terminated, and nothing has come in its place."""

    def finish_action(self, action: Step) -> Sequence[str]:
        """Carry what was accepted to its end. Returns the ids of new machines."""


class ProviderKit:
    """For every provider, also one that can do nothing."""

    actions: ClassVar[Sequence[Step]] = ()
    rubbish: ClassVar[Sequence[str | NodeView]] = ()
    """ProviderIDs, or whole nodes, that are not this provider's."""

    @pytest.fixture
    def machine(self, provider: Provider, node: NodeView) -> Machine:
        return provider.identify(node)

    def test_the_same_node_is_always_the_same_machine_and_nothing_is_asked(
        self, provider: Provider, node: NodeView, world: FarEnd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = world.calls()
        monkeypatch.setattr(socket.socket, "connect", _no_network)
        machine = provider.identify(node)
        assert machine == provider.identify(node)
        assert machine.id
        assert machine.provider == provider.name
        assert json.loads(json.dumps(dict(machine.route))) == dict(machine.route)
        assert world.calls() == before

    def test_what_is_not_its_own_is_refused_by_name(self, provider: Provider, node: NodeView) -> None:
        assert self.rubbish, "give some providerIDs that are not this provider's"
        for strange in self.rubbish:
            other = replace(node, provider_id=strange) if isinstance(strange, str) else strange
            with pytest.raises(Refused) as refused:
                provider.identify(other)
            assert other.name in refused.value.reason, strange

    def test_the_kit_runs_for_every_action_that_is_declared(self, provider: Provider) -> None:
        assert provider.actions == frozenset(self.actions)
        assert provider.actions <= PROVIDER_STEPS
        assert not provider.actions or isinstance(self, ActionKit), "use ActionKit"

    def test_permissions_are_declared_for_both_reads_and_for_every_action(self, provider: Provider) -> None:
        for use in ("preflight", "poll", *provider.actions):
            assert use in provider.permissions, use
        for action in provider.actions:
            assert provider.permissions[action], f"{action} surely needs a permission"

    def test_the_default_remedy_asks_only_for_what_can_be_done(self, provider: Provider) -> None:
        assert provider.default_remedy
        for rung in provider.default_remedy:
            assert not rung.do.provider_action or rung.do in provider.actions
            assert rung.within.total_seconds() > 0

    def test_a_call_is_bounded_in_time(self, provider: Provider) -> None:
        assert 0 < provider.call_timeout <= 60

    def test_an_action_that_is_not_declared_is_refused_and_nothing_is_called(
        self, provider: Provider, machine: Machine, world: FarEnd
    ) -> None:
        before = world.calls()
        for action in PROVIDER_STEPS - provider.actions:
            with pytest.raises(Refused):
                provider.preflight(machine, action)
            with pytest.raises(Refused):
                provider.start(machine, action, TOKEN, Reference(provider.name, action))
        assert world.calls() == before


class ActionKit(ProviderKit):
    """For every provider that can do something, once for each of its ``actions``."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "action" in metafunc.fixturenames:
            metafunc.parametrize("action", list(self.actions), ids=str)

    @pytest.fixture
    def ready(self, provider: Provider, machine: Machine, action: Step) -> Preflight:
        """The preflight of a healthy machine: nothing stands in the way."""
        found = provider.preflight(machine, action)
        assert not found.adopt
        assert not found.not_yet
        assert found.short_by == 0
        return found

    # ------------------------------------------------------------ preflight

    def test_preflight_changes_nothing_and_says_how_the_action_will_be_found_again(
        self, provider: Provider, action: Step, ready: Preflight, world: FarEnd
    ) -> None:
        assert world.mutating_calls() == 0
        assert (ready.reference.provider, ready.reference.action) == (provider.name, action)
        assert _through_json(ready.reference) == ready.reference

    # ------------------------------------------------------------ start: one call, always

    def test_start_makes_one_mutating_call_and_the_action_is_then_seen(
        self, provider: Provider, machine: Machine, action: Step, ready: Preflight, world: FarEnd
    ) -> None:
        reference = _begun(provider, machine, action, ready)
        assert world.mutating_calls() == 1
        assert isinstance(provider.poll(machine, reference), Running | Done)
        assert world.mutating_calls() == 1

    def test_a_lost_answer_is_ambiguous_and_nothing_is_called_twice(
        self, provider: Provider, machine: Machine, action: Step, ready: Preflight, world: FarEnd
    ) -> None:
        world.lose_answer()
        with pytest.raises(Ambiguous):
            provider.start(machine, action, TOKEN, ready.reference)
        found = provider.poll(machine, ready.reference)  # a reboot may leave no trace but the new boot
        assert isinstance(found, Running | Done if action is Step.REPLACE else Running | Done | Unseen)
        assert world.mutating_calls() == 1

    @pytest.mark.slow
    def test_an_answer_that_comes_too_late_is_ambiguous_and_nothing_is_called_twice(
        self, provider: Provider, machine: Machine, action: Step, ready: Preflight, world: FarEnd
    ) -> None:
        world.delay()
        begun = time.monotonic()
        with pytest.raises(Ambiguous):
            provider.start(machine, action, TOKEN, ready.reference)
        assert time.monotonic() - begun <= provider.call_timeout
        assert isinstance(provider.poll(machine, ready.reference), Running | Done | NotApplied | Unseen)
        assert world.mutating_calls() == 1

    @pytest.mark.parametrize(
        ("kind", "expected"), [("throttled", Retry), ("denied", Refused), ("broken", Ambiguous)]
    )
    def test_a_call_that_is_turned_away_is_not_made_again(
        self,
        provider: Provider,
        machine: Machine,
        action: Step,
        ready: Preflight,
        world: FarEnd,
        kind: str,
        expected: type[NodeRecoveryError],
    ) -> None:
        world.refuse(kind)
        with pytest.raises(expected) as raised:
            provider.start(machine, action, TOKEN, ready.reference)
        assert type(raised.value) is expected
        assert len(str(raised.value)) > 20, "an error is a sentence for people"
        assert world.mutating_calls() == 1
        assert not isinstance(provider.poll(machine, ready.reference), Done | Gone | Failed)

    def test_a_reference_to_another_machine_never_leaves_the_house(
        self, provider: Provider, machine: Machine, action: Step, ready: Preflight, world: FarEnd
    ) -> None:
        other = replace(machine, id=machine.id[:-1] + ("1" if machine.id[-1] != "1" else "2"))
        with pytest.raises(Refused):
            provider.start(other, action, TOKEN, ready.reference)
        assert world.mutating_calls() == 0

    # ------------------------------------------------------------ taking it back

    def test_what_was_never_asked_for_is_taken_back_without_a_change(
        self, provider: Provider, machine: Machine, ready: Preflight, world: FarEnd
    ) -> None:
        """Proved by a read; or refused, with a sentence, where the far end does not show what is to come."""
        if not isinstance(provider, TakesBack):
            return  # what ``poll`` says decides then
        try:
            said = str(provider.take_back(machine, ready.reference))
        except Refused as refused:
            said = refused.reason
        assert len(said) > 20, "what is said is a sentence for people"
        assert world.mutating_calls() == 0

    # ------------------------------------------------------------ poll

    def test_poll_changes_nothing(
        self, provider: Provider, machine: Machine, ready: Preflight, world: FarEnd
    ) -> None:
        seen = [type(provider.poll(machine, ready.reference)) for _ in range(2)]
        assert seen[0] is seen[1]
        assert seen[0] in (NotApplied, Running, Unseen)
        assert world.mutating_calls() == 0

    def test_a_machine_that_is_gone_is_neither_done_nor_as_if_nothing_had_been(
        self, provider: Provider, machine: Machine, action: Step, ready: Preflight, world: FarEnd
    ) -> None:
        reference = _begun(provider, machine, action, ready)
        world.remove_machine()
        found = provider.poll(machine, reference)
        if isinstance(found, Done):  # whoever removed it had the group want fewer: nothing takes its place
            assert found.fewer
            assert not found.replacements
        else:
            assert isinstance(found, Gone | Running | Unseen | Failed | Unfinished)

    def test_an_action_that_is_finished_names_only_new_machines(
        self, provider: Provider, machine: Machine, action: Step, ready: Preflight, world: FarEnd
    ) -> None:
        reference = _begun(provider, machine, action, ready)
        new = world.finish_action(action)
        outcome, calls = provider.poll(machine, reference), 1
        if isinstance(outcome, Unfinished):
            assert isinstance(provider, Resumable)
            for _ in range(2):  # any agent that sees it may finish it, more than once
                provider.finish(machine, reference)
            assert world.mutating_calls() == 2, "what is done already is not asked for again"
            new = world.finish_action(action)
            outcome, calls = provider.poll(machine, reference), 2
        if action is Step.REPLACE:
            assert isinstance(outcome, Done)
            assert set(outcome.replacements) == set(new)
            assert machine.id not in outcome.replacements
            assert outcome.complete
        else:
            assert isinstance(outcome, Done | Running)  # a boot is proved by the Node's boot ID
        assert world.mutating_calls() == calls


class Groups(FarEnd, Protocol):
    """A far end whose machines are in groups."""

    def launch_member(self) -> str:
        """The group of the node's machine has one more, which is no Node. Returns its ID."""

    def take_out(self, machine: str) -> None:
        """The group counts on this one no more, and the machine is still there."""


class MembersKit:
    """For every provider that ``ListsMembers``, beside its other kit, with the same fixtures."""

    @pytest.fixture
    def lists(self, provider: Provider) -> ListsMembers:
        assert isinstance(provider, ListsMembers)
        return provider

    @pytest.fixture
    def known(self, provider: Provider, node: NodeView) -> Machine:
        return provider.identify(node)

    def test_a_machine_that_is_no_node_is_listed_with_its_launch_and_as_identify_would_name_it(
        self, lists: ListsMembers, provider: Provider, known: Machine, node: NodeView, world: Groups
    ) -> None:
        new = world.launch_member()
        (group,) = lists.members([known])
        assert not group.unknown
        found = {m.machine.id: m for m in group.members}
        assert {known.id, new} <= found.keys()
        assert found[new].in_service
        launched = found[new].launched
        assert launched is not None
        assert -2 <= (group.at - launched).total_seconds() <= 600, "by one clock: the far end's"
        joined = replace(node, provider_id=found[new].machine.provider_id, system_uuid=new)
        assert provider.identify(joined).id == new

    def test_what_a_group_does_not_count_on_is_not_in_service(
        self, lists: ListsMembers, known: Machine, world: Groups
    ) -> None:
        new = world.launch_member()
        world.take_out(new)
        (group,) = lists.members([known])
        in_service = {m.machine.id: m.in_service for m in group.members}
        assert (in_service[new], in_service[known.id]) == (False, True)

    def test_a_list_changes_nothing_and_a_group_that_was_seen_is_listed_without_its_nodes(
        self, lists: ListsMembers, known: Machine, world: Groups
    ) -> None:
        before = [group.group for group in lists.members([known])]
        assert [group.group for group in lists.members([])] == before
        assert len(before) == 1
        assert world.mutating_calls() == 0


def _begun(provider: Provider, machine: Machine, action: Step, ready: Preflight) -> Reference:
    """Start it. Returns the reference as the record gives it back."""
    begun = provider.start(machine, action, TOKEN, ready.reference)
    assert not isinstance(begun, Reference) or (begun.provider, begun.action) == (provider.name, action)
    return _through_json(begun if isinstance(begun, Reference) else ready.reference)


def _through_json(reference: Reference) -> Reference:
    """A reference as the record gives it back."""
    data = json.loads(json.dumps([reference.provider, reference.action, dict(reference.data)]))
    return Reference(*data)


def _no_network(*_: Any) -> None:
    raise AssertionError("identify must be pure, and it opened a connection")
