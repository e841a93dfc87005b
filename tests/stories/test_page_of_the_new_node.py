"""A replacement is proved by its own detector's page. Until that can be read, the record says why not."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Page, Stage

from recovery.errors import Unreadable
from recovery.model import UNINITIALIZED, Phase
from recovery.store.lease import lease_name
from tests.builders.policies import policy_file
from tests.stories.scenery import Cloud, alive, change_gate, judge, pass_time, to_the_end
from tests.stories.scenes import (
    ALL_MARKS,
    calls,
    cast,
    events_of,
    marked,
    messages,
    patch_node,
    pause,
    phase,
    ready,
    the_record,
)
from tests.stories.test_crashes import LEASES

REFUSED = "the connection was refused: node-problem-detector does not listen there"
BLIND = f"node-100 (m-100) is Ready; node-problem-detector's page cannot be read: {REFUSED} (since "
WITHOUT = "); nothing is proved without that page"
GONE = "its agent, which could read its detector's page, has fallen silent"
ALONE = "no agent there reports a detector's page, so only its Node can prove it"
LONG = policy_file("{do: drain, within: 10m, then: force}, {do: replace, within: 60m}")


class NewGroup(Cloud):
    """A group whose new machines join with a page that cannot be read; or with no agent at all."""

    def __init__(self, stage: Stage, why: str = REFUSED, agent: bool = True) -> None:
        super().__init__(stage)
        self.agent, self.why = agent, why

    def _join(self, group: str, machine: str) -> None:
        name = machine.replace("m-", "node-")
        self.stage.pages[name] = Page(error=Unreadable(self.why) if self.why else None)
        if self.agent:
            super()._join(group, machine)
        else:
            self.stage.register(name, machine, group)


def broken(peers: int, *, concluder: bool = False, policy: bytes = LONG) -> Stage:
    """node-0 breaks; ``peers`` other nodes have agents."""
    s = Stage(policy)
    for i, name in enumerate(s.nodes(4)):
        if i <= peers:
            s.agent(name)
    if concluder:
        s.concluder()
    s.run(3)
    s.fault("node-0")
    return s


def joined(s: Stage, group: Cloud) -> None:
    """Until it is on the record that the new node is Ready, and a minute more."""

    def on_record() -> bool:
        r = s.record("node-0")
        return r is not None and "joined" in events_of(r)

    pass_time(s, 600, group, until=on_record, step=1)
    pass_time(s, 60, group, step=1)


def holder(s: Stage) -> str:
    """Who holds the Lease of node-0's record."""
    lease = s.store.request("GET", f"{LEASES}/{lease_name('node-0')}")
    return str(lease.body["spec"].get("holderIdentity")) if lease.ok else ""


WHO = pytest.mark.parametrize(
    ("peers", "concluder"), [(0, False), (2, False), (0, True)], ids=["itself", "peers", "a concluder"]
)


@WHO
def test_without_a_page_that_can_be_read_nothing_is_proved_and_the_record_says_so_from_the_first_minute(
    peers: int, concluder: bool
) -> None:
    s = broken(peers, concluder=concluder)
    group = NewGroup(s)
    joined(s, group)
    told = the_record(s).sentence
    assert told.startswith(BLIND)
    assert told.endswith(WITHOUT)
    pass_time(s, 400, group, step=5)
    assert phase(s) is Phase.PROVING
    assert the_record(s).sentence == told
    assert told in messages(s, "Joined")


@WHO
def test_a_page_that_can_be_read_at_last_is_what_proves_the_new_node(peers: int, concluder: bool) -> None:
    s = broken(peers, concluder=concluder)
    group = NewGroup(s)
    joined(s, group)
    s.pages["node-100"].error = None
    readable = s.clock.monotonic()
    pass_time(s, 300, group, until=lambda: not phase(s).open, step=1)
    assert (phase(s), the_record(s).sentence) == (
        Phase.RECOVERED,
        "proved: m-0 is gone and node-100 (m-100) was healthy for 2 min, by its own detector's page",
    )
    assert s.clock.monotonic() - readable >= 120
    to_the_end(s, group)
    judge(s, faulty=["node-0"], finished=True)


def test_a_page_that_fails_in_the_middle_of_probation_begins_it_again() -> None:
    s = broken(2)
    group = NewGroup(s, why="")
    joined(s, group)
    s.pages["node-100"].error = Unreadable(REFUSED)
    pass_time(s, 300, group, step=1)
    assert phase(s) is Phase.PROVING
    assert the_record(s).sentence.startswith(BLIND)


def test_where_its_agent_has_fallen_silent_the_new_node_is_not_called_proved_by_its_page() -> None:
    s = broken(2)
    group = NewGroup(s, why="")
    joined(s, group)
    s.kill(alive(s, "node-100"))
    pass_time(s, 400, group, until=lambda: not phase(s).open, step=1)
    assert the_record(s).sentence == (
        "proved: m-0 is gone and node-100 (m-100) was healthy for 2 min, by its Node alone: "
        "its agent, which could read its detector's page, has fallen silent"
    )


def test_where_nobody_tells_of_the_page_any_more_probation_begins_again() -> None:
    """Its agent may be one that is about to tell of a fault: the Lease that it told it in was deleted."""
    s = broken(2)
    group = NewGroup(s, why="")
    joined(s, group)
    pass_time(s, 55, group, step=1)
    s.kill(alive(s, "node-100"))
    assert s.store.request("DELETE", f"{LEASES}/{lease_name('node-100')}").ok
    pass_time(s, 100, group, step=1)
    assert (phase(s), the_record(s).sentence) == (Phase.PROVING, f"node-100 (m-100) is Ready; {ALONE}")
    pass_time(s, 60, group, until=lambda: not phase(s).open, step=1)
    assert phase(s) is Phase.RECOVERED


def test_an_agent_that_waits_for_its_predecessors_lease_tells_in_it_of_a_fault() -> None:
    """The one before has been dead for so long that the new node is to be proved by its Node alone."""
    s = broken(2)
    group = NewGroup(s, why="")
    joined(s, group)
    s.kill(alive(s, "node-100"))
    pass_time(s, 300, group, until=lambda: GONE in the_record(s).sentence, step=1)
    assert the_record(s).sentence == f"node-100 (m-100) is Ready; {GONE}, so only its Node can prove it"
    pass_time(s, 100, group, step=1)
    s.fault("node-100")
    s.agent("node-100", name="the next one", place="another pod")
    pass_time(s, 600, group, until=lambda: not phase(s).open, step=1)
    assert phase(s) is Phase.SUPERSEDED
    assert "node-100 (m-100) took its place and is sick too" in the_record(s).sentence


def test_an_agent_that_falls_silent_over_a_page_that_it_cannot_read_leaves_nothing_proved() -> None:
    s = broken(2)
    group = NewGroup(s)
    joined(s, group)
    s.kill(alive(s, "node-100"))
    pass_time(s, 400, group, step=1)
    assert phase(s) is Phase.PROVING
    assert the_record(s).sentence.startswith(BLIND)


def test_a_page_that_stays_unreadable_is_the_new_nodes_own_fault_and_a_persons_to_mend() -> None:
    s = broken(2)
    group = NewGroup(s)
    joined(s, group)
    pass_time(s, 4000, group, until=lambda: not phase(s).open, step=15)
    assert phase(s) is Phase.SUPERSEDED
    assert "node-100 (m-100) took its place and is sick too" in the_record(s).sentence
    assert phase(s, "node-100") is Phase.HANDED_OVER
    assert (
        f"nothing is known from npd: node-problem-detector's page cannot be read: {REFUSED}"
        in the_record(s, "node-100").sentence
    )
    assert calls(s) == [("replace", "m-0")]


def test_where_no_agent_runs_on_the_new_node_it_is_said_at_once_that_its_node_alone_has_to_prove_it() -> None:
    s = broken(2)
    group = NewGroup(s, agent=False)
    joined(s, group)
    assert the_record(s).sentence == f"node-100 (m-100) is Ready; {ALONE}"
    pass_time(s, 300, group, until=lambda: not phase(s).open, step=1)
    assert the_record(s).sentence == (
        "proved: m-0 is gone and node-100 (m-100) was healthy for 2 min, by its Node alone: "
        "no agent there reports a detector's page"
    )


def test_a_node_that_its_cloud_has_not_initialised_is_not_proved_though_it_is_ready() -> None:
    """Its own agent does not know yet which machine it is on, and tells nobody of its page."""
    s = broken(2)
    group = NewGroup(s, agent=False)
    joined(s, group)
    taint = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
    patch_node(s, "node-100", {"spec": {"taints": [taint]}})
    pass_time(s, 300, group, step=1)
    assert phase(s) is Phase.PROVING
    patch_node(s, "node-100", {"spec": {"taints": None}})
    pass_time(s, 110, group, step=1)
    assert phase(s) is Phase.PROVING
    pass_time(s, 100, group, until=lambda: not phase(s).open, step=1)
    assert phase(s) is Phase.RECOVERED


def test_a_short_probation_by_its_node_alone_lasts_until_an_agent_there_would_have_told() -> None:
    """It looks at the gate once a minute, and may see a fault that is on no record."""
    s = broken(2, policy=LONG.replace(b"probation: 2m", b"probation: 10s"))
    joined(s, NewGroup(s, agent=False))
    assert phase(s) is Phase.PROVING
    pass_time(s, 30, until=lambda: not phase(s).open, step=1)
    assert "was healthy for 75 s, by its Node alone" in the_record(s).sentence


def test_who_goes_on_with_it_watches_all_of_a_probation_by_the_node_alone() -> None:
    """Nobody had watched for two minutes, and the new node was not Ready meanwhile: that proves nothing."""
    s = broken(2, policy=LONG.replace(b"probation: 2m", b"probation: 10s"))
    joined(s, NewGroup(s, agent=False))
    for peer in ("node-1", "node-2"):
        s.kill(s.actors[f"agent of {peer}"])
    ready(s, "node-100", "Unknown")
    s.clock.advance(20)
    ready(s, "node-100", "True")
    s.agent("node-3")
    pass_time(s, 300, until=lambda: "node-3" in holder(s), step=1)
    watched = pass_time(s, 300, until=lambda: not phase(s).open, step=1)
    assert "was healthy for 75 s, by its Node alone" in the_record(s).sentence
    assert watched >= 75


def test_an_agent_tells_of_its_page_only_while_its_machine_is_to_be_proved() -> None:
    s = broken(2)
    group = NewGroup(s, why="")
    to_the_end(s, group)
    pass_time(s, 200, step=1)
    before = len(s.store.history)
    pass_time(s, 300, step=1)
    assert [w for w in s.store.history[before:] if "/leases/" in w.path] == []
    assert marked(s, "node-100") != ALL_MARKS


@pytest.mark.parametrize("named", [True, False], ids=["its Node is there", "its Node is gone"])
def test_a_new_machine_whose_node_is_gone_leaves_its_own_record_to_a_peer(named: bool) -> None:
    """It is to be proved, so its agent tells of its page in its Lease. Without a Node there is nothing to
    prove, and a peer needs that Lease to find out what became of the machine on its record."""
    s = cast(LONG, agents=2)
    pause(s)
    s.fault("node-0")
    s.run(10)
    assert phase(s) is Phase.WAITING
    claimed = [{"machine": "m-0", "insteadOf": "m-9"}]
    change_gate(s, lambda gate: gate["status"].update(replacementsClaimed=claimed))
    s.run(90, step=1)
    told = s.store.request("GET", f"{LEASES}/{lease_name('node-0')}").body
    assert "NeuronHasError" in str(told["metadata"]["annotations"])
    if not named:
        s.delete_node("node-0")
    s.run(300, step=1)
    assert phase(s) is (Phase.WAITING if named else Phase.SUPERSEDED)
