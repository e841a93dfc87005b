"""A kubelet falls silent while the node controller is away: its Node says Ready, and its Lease tells."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, lost_request, refused
from recovery_testkit.stage import Stage

from recovery.agent.fleet import kubelet_leases
from recovery.model import Phase
from tests.stories.scenery import Cloud, judge, pass_time, records
from tests.stories.scenes import MERGE, calls, patch_node, phase, the_record
from tests.stories.test_conditions import policy
from tests.stories.test_one_controller import Group

NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
DEAD = policy("{type: Ready}", "{do: drain, within: 2m, then: force}, {do: replace}").replace(
    b"    remedy", b"    after: 3m\n    remedy"
)
KUBELET = "kubelet"
MINUTE = 60
HOUR = timedelta(hours=1)


class Kubelets(Group):
    """The group, and the kubelets of its machines. No node controller is at work: Ready is what they say."""

    def __init__(self, stage: Stage, *, writes: bool = True) -> None:
        super().__init__(stage)
        self.every = 5.0 * MINUTE
        self.mute: set[str] = set()
        self.leaseless: set[str] = set()
        self.writes = writes
        self.slow = timedelta(0)
        self._wrote: dict[str, float] = {}

    def act(self) -> None:
        super().act()
        for node in self.stage.store.request("GET", "/api/v1/nodes").body["items"]:
            name = node["metadata"]["name"]
            if name not in self.mute:
                self.renew(name)
                self._write(name)

    def renew(self, name: str) -> None:
        if name in self.leaseless:
            return
        at = f"{self.stage.clock.true_time():%Y-%m-%dT%H:%M:%S.%fZ}"
        body = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "renewTime": at}}
        kept = {"content_type": MERGE, "user_agent": KUBELET}
        if not self.stage.store.request("PATCH", f"{NODE_LEASES}/{name}", body=body, **kept).ok:
            assert self.stage.store.request("POST", NODE_LEASES, body=body, user_agent=KUBELET).ok

    def _write(self, name: str) -> None:
        now = self.stage.clock.monotonic()
        if self.writes and now - self._wrote.setdefault(name, now) >= self.every:
            self._wrote[name] = now
            at = f"{self.stage.clock.true_time() - self.slow:%Y-%m-%dT%H:%M:%SZ}"
            said = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at}
            patch_node(self.stage, name, {"status": {"conditions": [said]}}, "status", KUBELET)


def fleet(text: bytes = DEAD, *, count: int = 4, writes: bool = True) -> tuple[Stage, Kubelets]:
    s = Stage(text)
    s.nodes(count)
    s.fleet()
    s.run(5)
    return s, Kubelets(s, writes=writes)


def silent() -> tuple[Stage, Kubelets]:
    """The kubelet of node-0 writes nothing after its first two minutes."""
    s, kubelets = fleet()
    minutes(s, kubelets, 2)
    kubelets.mute.add("node-0")
    return s, kubelets


def minutes(s: Stage, kubelets: Cloud, count: float, until: Callable[[], bool] = lambda: False) -> None:
    pass_time(s, count * MINUTE, kubelets, until=until, step=5)


def is_in(s: Stage, expected: Phase) -> bool:
    return s.record("node-0") is not None and phase(s) is expected


def asked(s: Stage) -> list[str]:
    """Of which Nodes' kubelets the Lease was read."""
    found: list[str] = []

    def noted(a: Asked) -> bool:
        if a.method == "GET" and a.path.startswith(NODE_LEASES):
            found.append(a.path.rpartition("/")[2])
        return False

    s.api.fail_next(noted, lost_request)
    return found


def muted_at_a_look(s: Stage, kubelets: Kubelets) -> None:
    """No Lease is renewed after the next look at it."""

    def mute(a: Asked) -> bool:
        if a.method == "GET" and a.path.startswith(NODE_LEASES):
            kubelets.mute.add(a.path.rpartition("/")[2])
        return False

    s.api.fail_next(mute, lost_request)
    minutes(s, kubelets, 10, lambda: bool(kubelets.mute))
    s.api.heal()


def test_a_node_whose_kubelet_is_silent_is_replaced_though_it_says_ready() -> None:
    s, kubelets = silent()
    minutes(s, kubelets, 8)
    r = the_record(s)
    assert (r.phase, r.faults[0].reason) == (Phase.SUSPECT, "NodeStatusUnknown")
    assert "Ready is True, but its kubelet last wrote to the Node at " in r.faults[0].message
    assert r.faults[0].message.endswith(", and renews its Lease no more")
    minutes(s, kubelets, 30, lambda: is_in(s, Phase.RECOVERED))
    assert calls(s) == [("replace", "m-0")]
    judge(s)


def test_so_is_one_whose_clock_was_an_hour_fast() -> None:
    s, kubelets = fleet()
    kubelets.slow = -HOUR
    minutes(s, kubelets, 6)
    kubelets.mute.add("node-0")
    minutes(s, kubelets, 30, lambda: is_in(s, Phase.RECOVERED))
    assert calls(s) == [("replace", "m-0")]
    judge(s)


def test_the_silence_of_one_whose_clock_was_fast_is_not_over_once_its_last_word_is_past() -> None:
    s, kubelets = fleet(DEAD.replace(b"after: 3m", b"after: 2h"))
    kubelets.slow = -HOUR
    minutes(s, kubelets, 6)
    kubelets.mute.add("node-0")
    minutes(s, kubelets, 64)
    assert phase(s) is Phase.SUSPECT
    assert calls(s) == []


@pytest.mark.parametrize("writes", [False, True], ids=["Nodes seldom written to", "clocks an hour slow"])
def test_a_kubelet_that_renews_its_lease_is_not_silent_however_quiet_its_node_is(writes: bool) -> None:
    s, kubelets = fleet(writes=writes)
    kubelets.slow = HOUR
    found = asked(s)
    minutes(s, kubelets, 40)
    assert not records(s)
    assert found
    assert len(found) <= 4 * (40 / 5) * 2, "once in five minutes, and once more"
    judge(s)


def test_where_kubelets_write_in_time_no_lease_is_read() -> None:
    s, kubelets = fleet()
    found = asked(s)
    minutes(s, kubelets, 40)
    assert not found
    assert not records(s)


def test_where_no_rule_names_ready_no_lease_is_read() -> None:
    s, kubelets = fleet(policy(), writes=False)
    found = asked(s)
    minutes(s, kubelets, 20)
    assert not found
    assert not records(s)


def test_while_the_api_server_is_away_nobody_can_renew_and_nobody_is_silent() -> None:
    s, kubelets = fleet(writes=False)
    for _ in range(3):
        muted_at_a_look(s, kubelets)
        s.api.fail_next(lambda _: True, lost_request, times=10_000)
        minutes(s, kubelets, 3)
        s.api.heal()
        minutes(s, kubelets, 0.5)
        kubelets.mute.clear()
        minutes(s, kubelets, 1)
    assert not records(s)
    judge(s)


def test_a_controller_that_slept_meanwhile_sees_no_silence_either() -> None:
    s, kubelets = fleet(writes=False)
    for _ in range(3):
        muted_at_a_look(s, kubelets)
        s.actors["controller"].alive = False
        minutes(s, kubelets, 3)
        s.actors["controller"].alive = True
        minutes(s, kubelets, 0.5)
        kubelets.mute.clear()
        minutes(s, kubelets, 1)
    assert not records(s)
    judge(s)


def test_a_kubelet_that_is_back_before_anything_was_done_is_left_alone() -> None:
    s, kubelets = silent()
    minutes(s, kubelets, 15, lambda: s.record("node-0") is not None)
    kubelets.mute.clear()
    minutes(s, kubelets, 0.5)
    assert phase(s) is Phase.SUSPECT
    minutes(s, kubelets, 3)
    assert phase(s) is Phase.WITHDRAWN
    assert calls(s) == []
    judge(s)


def test_one_that_renews_its_lease_right_before_the_call_is_not_replaced() -> None:
    """The Lease is read once more before the call, whatever the last round has shown."""
    s, kubelets = silent()

    def is_back(a: Asked) -> bool:
        if a.method == "PATCH" and a.path == "/api/v1/nodes/node-0" and "node-0" in kubelets.mute:
            kubelets.mute.clear()
            kubelets.renew("node-0")
        return False

    s.api.fail_next(is_back, lost_request)
    minutes(s, kubelets, 15, lambda: is_in(s, Phase.WITHDRAWN))
    assert calls(s) == []
    judge(s)


def test_a_new_leader_does_not_know_yet_and_takes_nothing_back() -> None:
    s, kubelets = silent()
    minutes(s, kubelets, 15, lambda: s.record("node-0") is not None)
    s.kill(s.actors["controller"])
    s.fleet("next")
    minutes(s, kubelets, 1)
    assert phase(s) is Phase.SUSPECT
    minutes(s, kubelets, 30, lambda: is_in(s, Phase.RECOVERED))
    assert calls(s) == [("replace", "m-0")]
    judge(s)


def test_when_the_node_controller_is_back_it_is_the_same_fault() -> None:
    s, kubelets = silent()
    minutes(s, kubelets, 15, lambda: s.record("node-0") is not None)
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    patch_node(s, "node-0", {"status": {"conditions": [unknown]}}, "status", "node controller")
    minutes(s, kubelets, 30, lambda: is_in(s, Phase.RECOVERED))
    assert len(the_record(s).faults) == 1
    assert calls(s) == [("replace", "m-0")]


def test_a_kubelet_without_a_lease_is_not_known_to_be_silent() -> None:
    s, kubelets = fleet(writes=False)
    kubelets.leaseless = {f"node-{i}" for i in range(4)}
    minutes(s, kubelets, 20)
    assert not records(s)


def test_a_deleted_lease_ends_no_silence() -> None:
    s, kubelets = silent()
    minutes(s, kubelets, 15, lambda: s.record("node-0") is not None)
    s.store.request("DELETE", f"{NODE_LEASES}/node-0", user_agent="somebody")
    minutes(s, kubelets, 30, lambda: is_in(s, Phase.RECOVERED))
    assert calls(s) == [("replace", "m-0")]


def test_a_lease_that_the_server_cannot_read_hides_no_other_kubelets_silence() -> None:
    s, kubelets = fleet(writes=False)
    minutes(s, kubelets, 2)
    kubelets.mute.add("node-2")
    odd = f"{NODE_LEASES}/node-0"
    s.api.fail_next(lambda a: a.path == odd, refused(500, "InternalError", "cannot be decrypted"), times=9999)
    minutes(s, kubelets, 12)
    assert list(records(s)) == ["node-2"]


def test_nor_does_it_where_all_others_that_are_quiet_are_silent() -> None:
    s, kubelets = fleet()
    minutes(s, kubelets, 2)
    kubelets.mute |= {"node-0", "node-2"}
    odd = f"{NODE_LEASES}/node-0"
    s.api.fail_next(lambda a: a.path == odd, refused(500, "InternalError", "cannot be decrypted"), times=9999)
    minutes(s, kubelets, 15)
    assert list(records(s)) == ["node-2"]


def test_nor_do_as_many_as_end_a_round() -> None:
    s, kubelets = fleet(writes=False, count=5)
    minutes(s, kubelets, 2)
    kubelets.mute.add("node-4")
    odd = {f"{NODE_LEASES}/node-{n}" for n in range(kubelet_leases.MOST_REFUSED)}
    s.api.fail_next(lambda a: a.path in odd, refused(500, "InternalError", "cannot be decrypted"), times=9999)
    minutes(s, kubelets, 12)
    assert list(records(s)) == ["node-4"]


def test_of_more_than_are_looked_at_in_a_round_each_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelet_leases, "MOST", 2)
    s, kubelets = fleet(policy("{type: Ready}", "{do: notify}"), count=9)
    minutes(s, kubelets, 2)
    kubelets.mute |= {f"node-{i}" for i in range(9)}
    minutes(s, kubelets, 25)
    assert sorted(records(s)) == [f"node-{i}" for i in range(9)]


def test_where_all_are_silent_nothing_is_done_for_those_that_were_looked_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All their certificates have run out, say. Of the others nothing is known, so no brake counts them."""
    monkeypatch.setattr(kubelet_leases, "MOST", 2)
    limits = b"cooldown: 0s, budget: 5, budgetPer: {}, brake: 50%, brakePer: {}"
    s, kubelets = fleet(DEAD.replace(b"after: 3m", b"after: 1m").replace(b"cooldown: 0s", limits), count=12)
    minutes(s, kubelets, 2)
    kubelets.mute = {f"node-{i}" for i in range(12)}
    minutes(s, kubelets, 25)
    assert (calls(s), set(records(s).values()), len(records(s))) == ([], {"waiting"}, 12)


class _MeanwhileAtALease:
    """The connection of a controller that does other things before a kubelet's Lease is answered."""

    def __init__(self, transport: Any, meanwhile: Callable[[], None]) -> None:
        self._transport = transport
        self._meanwhile = meanwhile

    def request(self, method: str, path: str, **more: Any) -> Any:
        if path.startswith(NODE_LEASES):
            self._meanwhile()
        return self._transport.request(method, path, **more)


OFTEN = b"cooldown: 0s, budget: 5, budgetPer: {}, brake: 50%, brakePer: {}"


def test_where_all_are_silent_the_first_of_a_round_is_not_replaced_before_the_round_is_over() -> None:
    """To read a hundred Leases takes a second, or twenty: long enough to replace the first one's machine."""
    s = Stage(
        policy("{type: Ready}", "{do: replace}")
        .replace(b"    remedy", b"    after: 1m\n    remedy")
        .replace(b"cooldown: 0s", OFTEN)
    )
    s.nodes(12)
    reads: list[float] = []

    def meanwhile() -> None:
        if len(reads) == 4 * 12 - 6:  # half of those whose Leases are found unchanged for a minute are read
            controller = s.actors["controller"]
            threads = controller._threads
            controller._threads = {name: x for name, x in threads.items() if name != "leases"}
            for _ in range(10):
                s.clock.advance(0.5)
                controller.turn()
            controller._threads = threads
        reads.append(s.clock.monotonic())

    s.wrap = lambda transport: _MeanwhileAtALease(transport, meanwhile)
    s.fleet()
    s.run(5)
    kubelets = Kubelets(s)
    minutes(s, kubelets, 2)
    kubelets.mute = {f"node-{i}" for i in range(12)}
    minutes(s, kubelets, 12)
    assert len(reads) > 4 * 12
    assert (calls(s), set(records(s).values()), len(records(s))) == ([], {"waiting"}, 12)


def test_where_all_are_silent_nothing_is_done_for_those_that_were_quiet_first() -> None:
    """Each wrote to its Node at a time of its own, and all renewed their Leases for the last time at once."""
    s, kubelets = fleet(DEAD.replace(b"after: 3m", b"after: 1m").replace(b"cooldown: 0s", OFTEN), count=12)
    now = s.clock.monotonic()
    kubelets._wrote = {f"node-{i}": now - i * 25 for i in range(12)}
    minutes(s, kubelets, 6)
    kubelets.mute = {f"node-{i}" for i in range(12)}
    minutes(s, kubelets, 15)
    assert (calls(s), set(records(s).values()), len(records(s))) == ([], {"waiting"}, 12)


SOON = DEAD.replace(b"after: 3m", b"after: 1m").replace(b"cooldown: 0s", OFTEN)


def spread(count: int, apart: float, text: bytes = SOON) -> tuple[Stage, Kubelets]:
    """A fleet whose kubelets wrote to their Nodes so many seconds one after another."""
    s, kubelets = fleet(text, count=count)
    now = s.clock.monotonic()
    kubelets._wrote = {f"node-{i}": now - i * apart for i in range(count)}
    return s, kubelets


def test_where_all_are_silent_nothing_is_done_for_the_first_while_no_other_is_quiet_yet() -> None:
    """In a small fleet more than a minute may lie between the last words of two kubelets."""
    s, kubelets = spread(4, 75)
    minutes(s, kubelets, 6)
    kubelets.mute = {f"node-{i}" for i in range(4)}
    minutes(s, kubelets, 15)
    assert (calls(s), set(records(s).values()), len(records(s))) == ([], {"waiting"}, 4)


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("apart", [25, 75])
def test_where_more_are_silent_than_the_brake_allows_none_is_replaced_before_all_can_be_counted(
    apart: float, first: int
) -> None:
    """A rack of five has lost its network. Those whose kubelets wrote first were replaced as if they were
    alone, until the Nodes of enough others showed it."""
    text = SOON.replace(b"brake: 50%", b"brake: 30%").replace(b"within: 2m", b"within: 20s")
    s, kubelets = spread(12, apart, text)
    minutes(s, kubelets, 6)
    kubelets.mute = {f"node-{i}" for i in range(first, first + 5)}
    minutes(s, kubelets, 25)
    assert (calls(s), set(records(s).values()), len(records(s))) == ([], {"waiting"}, 5)


def test_that_others_were_alive_minutes_ago_does_not_show_that_they_are() -> None:
    """Kubelets that seldom write are asked once in five minutes whether they are alive."""
    s, kubelets = spread(12, 75)
    kubelets.every = 15 * MINUTE
    minutes(s, kubelets, 31)
    kubelets.mute = {f"node-{i}" for i in range(12)}
    minutes(s, kubelets, 20)
    assert (calls(s), set(records(s).values()), len(records(s))) == ([], {"waiting"}, 12)


def test_one_whose_lease_was_read_because_of_another_is_found_once_it_is_quiet() -> None:
    s, kubelets = spread(8, 75, policy("{type: Ready}", "{do: notify}"))
    minutes(s, kubelets, 6)
    kubelets.mute = {"node-1", "node-3"}
    minutes(s, kubelets, 12)
    assert sorted(records(s)) == ["node-1", "node-3"]


def test_kubelets_that_renew_no_lease_and_write_to_their_nodes_hide_no_dead_one() -> None:
    s, kubelets = spread(8, 30, policy("{type: Ready}", "{do: notify}"))
    minutes(s, kubelets, 2)
    kubelets.leaseless = {f"node-{i}" for i in range(6)}  # their Leases stay as they are
    minutes(s, kubelets, 10)
    assert not records(s)
    kubelets.mute = {"node-6"}
    minutes(s, kubelets, 20)
    assert [f.reason for f in the_record(s, "node-6").faults] == ["NodeStatusUnknown"]
