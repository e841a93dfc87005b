"""Who works on a record, and when an agent may be taken for dead."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.kubestore import KubernetesStore

from recovery.clock import ApiTime
from recovery.decide.situation import Role
from recovery.errors import ApiUnavailable, Conflict, NotFound
from recovery.store.lease import Identity, InstanceLock, Leases, identified, lease_name

NODE = "node-0"


class Cluster:
    """Leases in a store; ``lost`` loses the answer of the next write, ``down`` answers nothing."""

    namespace = "default"

    def __init__(self, store: KubernetesStore, clock: FakeClock) -> None:
        self.time = ApiTime(clock)
        self.lost = False
        self.down = False
        self._store = store

    def _ask(self, method: str, name: str = "", body: Any = None) -> dict[str, Any]:
        if self.down:
            raise ApiUnavailable("no answer")
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases" + (f"/{name}" if name else "")
        answer = self._store.request(method, path, body=body)
        if method != "GET" and self.lost:
            self.lost = False
            raise ApiUnavailable("no answer")
        if answer.status == 404:
            raise NotFound("there is none")
        if answer.status == 409:
            raise Conflict("somebody else wrote first")
        return dict(answer.body)

    def get_lease(self, name: str) -> dict[str, Any]:
        return self._ask("GET", name)

    def create_lease(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._ask("POST", "", body)

    def replace_lease(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._ask("PUT", body["metadata"]["name"], body)


@dataclass
class World:
    clock: FakeClock
    store: KubernetesStore
    cluster: Cluster

    def agent(self, node: str = NODE, place: str = "pod-1", alone: bool = False) -> Leases:
        return Leases(self.cluster, self.clock, Identity(node, place, alone=alone))

    def spec(self) -> dict[str, Any]:
        return dict(self.cluster.get_lease(lease_name(NODE))["spec"])

    def writes(self) -> int:
        return sum(1 for w in self.store.history if "leases" in w.path)


@pytest.fixture
def world() -> World:
    clock = FakeClock()
    store = KubernetesStore(now=clock.true_time)
    return World(clock, store, Cluster(store, clock))


def test_a_missing_lease_is_nobodys(world: World) -> None:
    found = world.agent().look(NODE)
    assert (found.holder, found.mine, found.stale) == ("", False, True)
    assert world.writes() == 0


def test_who_takes_it_has_it_and_others_see_it_held(world: World) -> None:
    mine, other = world.agent(), world.agent("node-1")
    assert mine.hold(NODE, Role.OWNER).mine
    assert mine.look(NODE).mine
    seen = other.look(NODE)
    assert (seen.mine, seen.stale) == (False, False)
    assert seen.holder.startswith("owner/node-0/pod-1/")
    assert not other.hold(NODE, Role.CONCLUDER).mine


def test_of_two_that_make_it_at_once_the_slower_one_is_told_so(world: World) -> None:
    mine, other = world.agent(), world.agent("node-1")
    ask = world.cluster.get_lease

    def not_there_yet(name: str) -> dict[str, Any]:
        world.cluster.get_lease = ask  # type: ignore[method-assign]
        other.hold(NODE, Role.CONCLUDER)
        raise NotFound("there is none")

    world.cluster.get_lease = not_there_yet  # type: ignore[method-assign]
    found = mine.hold(NODE, Role.OWNER)
    assert (found.holder, found.mine, found.stale) == ("one that took it first", False, False)


def test_it_is_sixty_seconds_long_and_renewed_every_fifteen(world: World) -> None:
    mine = world.agent()
    for _ in range(61):
        mine.hold(NODE, Role.OWNER)
        world.clock.advance(1)
    assert world.writes() == 5
    assert world.spec()["leaseDurationSeconds"] == 60


def test_a_lease_that_does_not_change_goes_stale_on_the_watchers_own_clock(world: World) -> None:
    world.agent().hold(NODE, Role.OWNER)
    other = world.agent("node-1")
    assert not other.look(NODE).stale
    world.clock.advance(59.9)
    assert not other.look(NODE).stale
    world.clock.advance(0.1)
    assert other.look(NODE).stale
    assert other.hold(NODE, Role.CONCLUDER).mine


def test_a_lease_that_changes_is_watched_from_the_beginning(world: World) -> None:
    mine, other = world.agent(), world.agent("node-1")
    mine.hold(NODE, Role.OWNER)
    other.look(NODE)
    world.clock.advance(40)
    mine.hold(NODE, Role.OWNER)
    other.look(NODE)
    world.clock.advance(40)
    assert not other.look(NODE).stale


@pytest.mark.parametrize("hours", [-30, 30])
def test_no_timestamp_is_believed(world: World, hours: int) -> None:
    mine, other = world.agent(), world.agent("node-1")
    world.clock.step(timedelta(hours=hours))
    mine.hold(NODE, Role.OWNER)
    world.clock.step(-timedelta(hours=hours))
    assert not other.look(NODE).stale
    world.clock.advance(60)
    assert other.look(NODE).stale


def test_a_watcher_that_starts_late_waits_the_whole_length(world: World) -> None:
    world.agent().hold(NODE, Role.OWNER)
    world.clock.advance(3600)
    assert not world.agent("node-1").look(NODE).stale


def test_who_could_not_renew_for_long_does_not_think_it_holds(world: World) -> None:
    mine = world.agent()
    mine.hold(NODE, Role.OWNER)
    world.clock.advance(54)
    assert not mine.held(NODE)
    assert not mine.look(NODE).mine


def test_a_taken_lease_is_lost_to_its_first_holder(world: World) -> None:
    mine, other = world.agent(), world.agent("node-1")
    mine.hold(NODE, Role.OWNER)
    other.look(NODE)
    world.clock.advance(60)
    assert other.hold(NODE, Role.CONCLUDER).mine
    assert world.spec()["leaseTransitions"] == 1
    late = world.agent("node-2").hold(NODE, Role.CONCLUDER)
    assert not late.mine


def test_of_two_that_take_a_stale_lease_one_gets_it(world: World) -> None:
    world.agent().hold(NODE, Role.OWNER)
    one, two = world.agent("node-1"), world.agent("node-2")
    one.look(NODE)
    two.look(NODE)
    world.clock.advance(60)
    assert one.hold(NODE, Role.CONCLUDER).mine
    assert not two.hold(NODE, Role.CONCLUDER).mine


def test_a_process_that_died_in_this_very_place_is_followed_at_once(world: World) -> None:
    world.agent().hold(NODE, Role.OWNER)
    assert world.agent(alone=True).look(NODE).stale


@pytest.mark.parametrize(("node", "place", "alone"), [(NODE, "pod-1", False), (NODE, "pod-2", True)])
def test_a_process_of_another_place_or_beside_a_living_one_waits(
    world: World, node: str, place: str, alone: bool
) -> None:
    world.agent().hold(NODE, Role.OWNER)
    assert not world.agent(node, place, alone).look(NODE).stale


def test_a_process_of_the_same_place_for_another_node_is_no_predecessor(world: World) -> None:
    world.agent().hold(NODE, Role.OWNER)
    assert not world.agent("node-1", "pod-1", alone=True).look(NODE).stale


def test_a_concluder_yields_to_the_nodes_own_agent(world: World) -> None:
    world.agent("node-1").hold(NODE, Role.CONCLUDER)
    assert world.agent(NODE, "pod-2").look(NODE).stale
    assert not world.agent("node-2").look(NODE).stale


def test_an_owner_yields_to_no_other_process_of_its_node(world: World) -> None:
    world.agent().hold(NODE, Role.OWNER)
    assert not world.agent(NODE, "pod-2").look(NODE).stale


def test_who_waits_for_the_agent_before_it_tells_of_a_fault_in_its_lease_once(world: World) -> None:
    world.agent().tell(NODE, "well", at_once=False)
    before, after = world.spec(), world.agent(NODE, "pod-2")
    after.tell(NODE, "well still", at_once=False)
    peer = world.agent("node-1")
    assert peer.word(NODE).text == "well"
    after.tell(NODE, "sick", at_once=True)
    assert world.spec() == before
    assert (peer.word(NODE).text, peer.word(NODE).again) == ("sick", True)
    after.tell(NODE, "sicker", at_once=True)
    assert peer.word(NODE).text == "sick"
    world.clock.advance(60)
    after.tell(NODE, "sicker", at_once=True)
    assert peer.word(NODE).text == "sicker"
    assert world.spec()["holderIdentity"] != before["holderIdentity"]


def told_and_looked_at(world: World) -> tuple[Leases, Leases]:
    """The agent of the node, which tells that all is well, and a peer that has looked once."""
    mine, peer = world.agent(), world.agent("node-1")
    mine.tell(NODE, "well", at_once=False)
    assert not peer.word(NODE).again
    return mine, peer


def test_a_word_that_was_renewed_since_the_last_look_a_moment_ago_is_heard(world: World) -> None:
    mine, peer = told_and_looked_at(world)
    world.clock.advance(16)
    mine.tell(NODE, "well", at_once=False)
    assert peer.word(NODE).again


def test_a_word_that_was_renewed_at_some_time_since_a_look_minutes_ago_is_not_heard_yet(world: World) -> None:
    mine, peer = told_and_looked_at(world)
    world.clock.advance(16)
    mine.tell(NODE, "well", at_once=False)  # and the agent dies
    world.clock.advance(200)
    assert not peer.word(NODE).again
    world.clock.advance(59)
    assert not peer.word(NODE).again


def test_a_word_in_a_lease_that_another_program_took_is_not_heard(world: World) -> None:
    _, peer = told_and_looked_at(world)
    lease = world.cluster.get_lease(lease_name(NODE))
    world.cluster.replace_lease({**lease, "spec": {**lease["spec"], "holderIdentity": "another program"}})
    assert (peer.word(NODE).text, peer.word(NODE).again) == ("well", False)
    world.clock.advance(120)
    assert peer.word(NODE).dead


def test_an_owner_that_renewed_a_moment_ago_asks_for_its_lease_only_where_it_has_to_know(
    world: World,
) -> None:
    mine = world.agent()
    mine.hold(NODE, Role.OWNER)
    robbed = world.cluster.get_lease(lease_name(NODE))
    robbed["spec"]["holderIdentity"] = "owner/node-0/another/process"
    world.cluster.replace_lease(robbed)
    assert mine.look(NODE).mine
    assert not mine.look(NODE, fresh=True).mine
    world.clock.advance(15)
    assert not mine.look(NODE).mine


def test_a_concluder_always_asks_whether_the_agent_is_back(world: World) -> None:
    concluder = world.agent("node-1")
    concluder.hold(NODE, Role.CONCLUDER)
    assert concluder.look(NODE).mine
    world.agent(NODE, "pod-2").hold(NODE, Role.OWNER)
    assert not concluder.look(NODE).mine


def test_what_is_let_go_of_may_be_taken_at_once(world: World) -> None:
    mine = world.agent()
    mine.hold(NODE, Role.OWNER)
    mine.release_all()
    assert world.spec()["holderIdentity"] == ""
    assert world.agent("node-1").hold(NODE, Role.CONCLUDER).mine


def test_only_what_is_held_is_let_go_of(world: World) -> None:
    world.agent().hold(NODE, Role.OWNER)
    before = world.writes()
    world.agent("node-1").release(NODE)
    assert world.writes() == before


def test_what_another_has_taken_since_is_not_let_go_of(world: World) -> None:
    mine, another = world.agent(), world.agent("node-1", "pod-2")
    mine.hold(NODE, Role.OWNER)
    another.look(NODE)
    world.clock.advance(61)
    assert another.hold(NODE, Role.CONCLUDER).mine
    before = world.spec()
    mine.release(NODE)
    assert world.spec() == before


def test_letting_go_changes_nothing_of_the_lease_that_was_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = world.agent()
    mine.hold(NODE, Role.OWNER)
    read = world.cluster.get_lease(lease_name(NODE))
    holder = read["spec"]["holderIdentity"]
    monkeypatch.setattr(world.cluster, "get_lease", lambda name: read)
    mine.release(NODE)
    assert read["spec"]["holderIdentity"] == holder != ""


def test_a_lease_is_held_from_the_moment_it_was_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others count from when the server wrote it, which may be long before its answer is here."""
    mine, create = world.agent(), world.cluster.create_lease

    def slowly(body: dict[str, Any]) -> dict[str, Any]:
        answer = create(body)
        world.clock.advance(50)
        return answer

    monkeypatch.setattr(world.cluster, "create_lease", slowly)
    mine.hold(NODE, Role.OWNER)
    assert mine.held(NODE)
    world.clock.advance(5)
    assert not mine.held(NODE)


def test_a_release_that_fails_is_no_error(world: World) -> None:
    mine = world.agent()
    mine.hold(NODE, Role.OWNER)
    world.cluster.down = True
    mine.release(NODE)
    assert not mine.held(NODE)


def test_an_answer_that_was_lost_does_not_lock_us_out(world: World) -> None:
    mine = world.agent()
    world.cluster.lost = True
    with pytest.raises(ApiUnavailable):
        mine.hold(NODE, Role.OWNER)
    assert mine.hold(NODE, Role.OWNER).mine


def test_a_name_of_any_length_has_a_short_lease_of_its_own() -> None:
    long = "n" * 253
    assert len(lease_name(long)) == 19
    assert lease_name(long) != lease_name(long[:-1])


def test_one_process_at_a_time_has_the_place() -> None:
    first, second = InstanceLock(), InstanceLock()
    try:
        assert first.take("node-of-this-test")
        assert not second.take("node-of-this-test")
        assert second.take("another-node-of-this-test")
    finally:
        first.close()
        second.close()
    third = InstanceLock()
    assert third.take("node-of-this-test")
    third.close()


def test_of_two_processes_in_one_network_neither_takes_the_other_for_ended() -> None:
    """Two pods in a node's own network have one host name."""
    first, second = InstanceLock(), InstanceLock()
    try:
        a, b = identified("fleet", first, "two of us"), identified("fleet", second, "two of us")
        assert (a.alone, b.alone) == (True, False)
        assert not a.ended_in_this_pod(b.holder(Role.OWNER))
        assert not b.ended_in_this_pod(a.holder(Role.OWNER))
    finally:
        first.close()
        second.close()
    third = InstanceLock()
    try:
        assert identified("fleet", third, "two of us").ended_in_this_pod(a.holder(Role.OWNER))
    finally:
        third.close()


def test_who_holds_it_renews_it_without_reading_it(world: World) -> None:
    agent = world.agent()
    agent.hold(NODE, Role.OWNER)
    asked = dict(world.store.requests)
    for _ in range(3):
        world.clock.advance(15)
        assert agent.hold(NODE, Role.OWNER).mine
    more = {key: n - asked.get(key, 0) for key, n in world.store.requests.items() if n != asked.get(key)}
    assert more == {("update", "leases"): 3}


def test_what_a_person_wrote_on_it_meanwhile_stays(world: World) -> None:
    agent = world.agent()
    agent.hold(NODE, Role.OWNER)
    theirs = world.cluster.get_lease(lease_name(NODE))
    theirs["metadata"]["labels"] = {"kept": "by-hand"}
    world.cluster.replace_lease(theirs)
    world.clock.advance(15)
    assert agent.hold(NODE, Role.OWNER).mine
    assert world.cluster.get_lease(lease_name(NODE))["metadata"]["labels"] == {"kept": "by-hand"}


def test_one_that_somebody_deleted_is_made_again(world: World) -> None:
    agent = world.agent()
    agent.hold(NODE, Role.OWNER)
    path = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{lease_name(NODE)}"
    assert world.store.request("DELETE", path).ok
    world.clock.advance(15)
    assert agent.hold(NODE, Role.OWNER).mine
    assert agent.look(NODE, fresh=True).mine


def test_after_a_lost_answer_it_is_read_before_it_is_renewed(world: World) -> None:
    agent = world.agent()
    agent.hold(NODE, Role.OWNER)
    world.clock.advance(15)
    world.cluster.lost = True
    with pytest.raises(ApiUnavailable):
        agent.hold(NODE, Role.OWNER)
    reads = world.store.requests["get", "leases"]
    assert agent.hold(NODE, Role.OWNER).mine
    assert world.store.requests["get", "leases"] == reads + 1
