"""What a fleet asks of the API server: counted on real agents, and multiplied for the healthy ones."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from recovery_testkit.kubefaults import Asked, lost_request
from recovery_testkit.stage import Stage

from recovery.agent import pace
from recovery.agent.pace import Pace
from recovery.model import Gate, Phase
from recovery.signals import series
from recovery.store.lease import lease_name
from tests.builders.exporters import autopilot_page, dcgm_page
from tests.builders.objects import budget_object
from tests.builders.policies import policy_file
from tests.stories.scenery import change_gate, records, slots
from tests.stories.scenes import calls, cast, pause, phase, stubborn_pod
from tests.stories.test_crowds import LEASES, a_gate, has_an_agent, lists_of_nodes, queue_of, slot_of

FLEET = 5000
LIMITS = "cooldown: 0s, budgetPer: {}, brake: 100%, brakePer: {}, perGroup: {max: 500, within: 6h}"
DRAINS = "{do: drain, within: 2h, then: handOver}, {do: replace, within: 2h}"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents are told that they are 5,000. What it costs them to learn that is counted as well."""
    learn = Pace.learn

    def told(self: Pace, gate: Gate | None) -> None:
        learn(self, gate)
        self.population = FLEET

    monkeypatch.setattr(Pace, "learn", told)


def counted(s: Stage) -> Counter[str]:
    """How often each actor asks, from now on."""
    seen: Counter[str] = Counter()

    def look(asked: Asked) -> bool:
        seen[asked.user_agent] += 1
        return False

    s.api.fail_next(look, lost_request)
    return seen


def test_a_healthy_fleet_of_five_thousand_asks_less_than_twenty_times_a_second(large: None) -> None:
    s = cast(count=20, agents=20)
    seen = counted(s)
    hours = 6
    s.run(hours * 3600, step=20)
    each = sum(seen.values()) / 20 / (hours * 3600)
    print(f"healthy: {each * FLEET:.1f} requests a second")  # noqa: T201
    assert 0 < each * FLEET <= 20


@pytest.fixture
def parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are counted, and the pages stay the same: to parse them each time would take minutes."""
    parse = functools.cache(lambda text: list(text_string_to_metric_families(text)))
    monkeypatch.setattr(series, "text_string_to_metric_families", parse)


@pytest.mark.parametrize("exporters", [20, 10, 0])
def test_pods_that_are_read_cost_a_healthy_fleet_next_to_nothing(
    exporters: int, large: None, parsed_once: None
) -> None:
    """On all nodes, on half of them as with CPU nodes beside, and on none."""
    s = cast(
        policy_file().replace(b"rules:", b"sources: [npd, conditions, dcgm, autopilot]\nrules:"), 20, agents=0
    )
    for number in range(exporters):
        node, labels = f"node-{number}", {"app": "nvidia-dcgm-exporter"}
        s.add_exporter(node, dcgm_page(), 9400, labels, ip=f"10.1.0.{number}")
        labels, name = {"app": "autopilot"}, "autopilot"
        page = autopilot_page(node)
        s.add_exporter(node, page, 8081, labels, name=name, namespace=name, ip=f"10.2.0.{number}")
    for node in list(s.pages):
        s.agent(node)
    s.run(4 * 3600, step=20)  # what a start costs is over
    seen = counted(s)
    hours = 6
    s.run(hours * 3600, step=20)
    each = sum(seen.values()) / 20 / (hours * 3600)
    print(f"exporters on {exporters} of 20: {each * FLEET:.1f} requests a second")  # noqa: T201
    assert 0 < each * FLEET <= 20


def open_records(budget: int) -> Stage:
    """A hundred sick nodes: those with a slot drain, or wait for their new machine; ten healthy ones."""
    s = cast(policy_file(DRAINS, f"{LIMITS}, budget: {budget}"), 110, agents=110)
    for number in range(0, 100, 2):
        s.add_pod(f"busy-{number}", f"node-{number}", app="busy")
    s.store.load(budget_object("busy", app="busy", maxUnavailable=0))
    for number in range(100):
        s.fault(f"node-{number}")
    for _ in range(60):
        s.run(2, step=1)
        if len(slots(s)) == budget:
            break
    s.run(10, step=1)
    assert len(slots(s)) == budget
    return s


def renew(s: Stage, node: str) -> None:
    """Its agent is alive for as long as the story lasts, and is counted no more."""
    path = f"{LEASES}/{lease_name(node)}"
    s.store.request("DELETE", path)
    has_an_agent(s, node)
    body = {"spec": {"renewTime": "2099-01-01T00:00:00.000000Z"}}
    s.store.request("PATCH", path, body=body, content_type="application/merge-patch+json")


@pytest.mark.parametrize("budget", [1, 50])
def test_with_a_hundred_open_records_it_asks_less_than_two_hundred_times_a_second(
    budget: int, large: None
) -> None:
    s = open_records(budget)
    seen = counted(s)
    seconds = 20
    s.run(seconds, step=1)
    sick = sum(seen[f"agent of node-{n}"] for n in range(100)) / seconds
    for number in range(100):
        s.kill(s.actors[f"agent of node-{number}"])
        renew(s, f"node-{number}")
    seen.clear()
    hour = 3600
    s.run(hour, step=30)
    healthy = sum(seen.values()) / 10 / hour
    total = sick + healthy * (FLEET - 100)
    print(f"budget {budget}: {total:.1f} a second, of which {sick:.1f} by those that are sick")  # noqa: T201
    assert sum(p in ("waiting", "recovering") for p in records(s).values()) == 100
    assert 0 < total <= 200


def test_the_record_of_a_dead_agent_is_found_in_two_minutes_in_any_fleet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred agents stand for 5,000: all rates are a fiftieth."""
    monkeypatch.setattr(pace, "GATE_READS", pace.GATE_READS / 50)
    monkeypatch.setattr(pace, "LEASE_READS", pace.LEASE_READS / 50)
    s = cast(policy_file(DRAINS, f"{LIMITS}, budget: 1"), 100, agents=0)
    for node in list(s.pages):
        s.agent(node).sweeper._chance = random.Random(node)  # noqa: S311
    s.run(600, step=10)
    stubborn_pod(s)
    s.fault("node-0")
    s.run(10)
    assert phase(s) is Phase.RECOVERING
    s.kill(s.actors["agent of node-0"])
    died = s.clock.monotonic()

    def taken() -> bool:
        found = [x.leases for x in s.actors.values() if x.alive]
        return any(leases.held("node-0") for leases in found)

    while not taken():
        s.run(1)
        assert s.clock.monotonic() - died < 150
    assert s.clock.monotonic() - died >= 60, "a Lease is not taken before it has run out"


def test_the_pace_is_learned_from_the_count_on_the_gate_or_from_a_list_of_one() -> None:
    s = cast(count=30, agents=1)
    found = s.actors["agent of node-0"].sweeper._pace
    assert (found.population, found.interval(), found.watched()) == (30, 60.0, 10)
    a_gate(s)
    at = s.clock.true_time().strftime("%Y-%m-%dT%H:%M:%SZ")
    census = {"at": at, "population": 5000, "sick": [], "byLabel": {}}
    change_gate(s, lambda gate: gate["status"].update(census=census))
    s.run(80)
    assert (found.population, found.interval(), found.watched()) == (5000, 500.0, 3)
    s.run(2 * 3600, step=10)
    assert (found.population, found.interval(), found.watched()) == (30, 60.0, 10)
    at = s.clock.true_time().strftime("%Y-%m-%dT%H:%M:%SZ")
    some = {**census, "at": at, "population": 60, "of": "x", "outside": {"sick": 0, "population": 4940}}
    change_gate(s, lambda gate: gate["status"].pop("census") and gate["status"].update(selectedCensus=some))
    s.run(80)
    assert found.population == 5000, "whoever is counted, all of them look"


# ---------------------------------------------------------------- counting is shared


def lists(s: Stage, seconds: float, step: float = 0.5) -> int:
    """How often all of them list all Nodes."""
    seen: list[Asked] = []

    def look(asked: Asked) -> bool:
        if lists_of_nodes(asked) and asked.user_agent.startswith("agent") and "limit" in asked.query:
            seen.append(asked)
        return False

    s.api.fail_next(look, lost_request)
    s.run(seconds, step=step)
    return len(seen)


def held_on_the_rung(agents: int) -> Stage:
    """So many are about to be replaced, but their group has a machine too few."""
    s = cast(policy_file("{do: drain, within: 2h}, {do: replace, within: 2h}", f"{LIMITS}, budget: 20"), 12)
    for number in range(agents):
        s.agent(f"node-{number}")
        s.add_pod(f"busy-{number}", f"node-{number}", app="busy")
    s.store.load(budget_object("busy", app="busy", maxUnavailable=0))
    s.run(3)
    for number in range(agents):
        s.fault(f"node-{number}")
    s.run(20)
    assert len(slots(s)) == agents
    s.provider.groups["workers"].desired += 1
    for number in range(agents):
        path = f"/api/v1/namespaces/default/pods/busy-{number}"
        s.store.request("DELETE", path, body={"gracePeriodSeconds": 0})
    s.run(5)
    assert calls(s) == []
    return s


@pytest.mark.parametrize("agents", [2, 8])
def test_of_those_held_on_a_providers_step_one_counts_for_all(agents: int) -> None:
    s = held_on_the_rung(agents)
    assert 8 <= lists(s, 120) <= 18


@pytest.mark.parametrize("sick", [4, 8])
def test_under_the_brake_the_fleet_is_counted_every_ten_seconds_however_many_wait(sick: int) -> None:
    limits = "cooldown: 0s, budget: 20, budgetPer: {}, brake: 1, brakePer: {}"
    s = cast(policy_file("{do: replace, within: 2h}", limits), 20, agents=sick)
    for number in range(sick):
        s.fault(f"node-{number}")
    s.run(20)
    assert calls(s) == []
    assert 8 <= lists(s, 120) <= 14


def test_while_all_is_paused_nobody_counts() -> None:
    s = held_on_the_rung(4)
    pause(s)
    s.run(5)
    assert lists(s, 120) == 0


def test_where_a_list_takes_longer_than_ten_seconds_not_everybody_lists() -> None:
    s = held_on_the_rung(8)
    listed: list[str] = []

    def slowly(asked: Asked, go: Callable[[], Any]) -> Any:
        listed.append(asked.user_agent)
        s.clock.advance(15)
        return go()

    s.api.fail_next(lambda a: lists_of_nodes(a) and a.user_agent.startswith("agent"), slowly, times=10**6)
    began = s.clock.monotonic()
    s.run(600)
    rounds = (s.clock.monotonic() - began) / 22.5  # 15 s for the list, and 7.5 s until the next one
    assert 5 <= len(listed) <= rounds + 3


def test_when_the_one_that_counts_is_gone_another_does() -> None:
    s = held_on_the_rung(8)
    seen: Counter[str] = Counter()

    def look(asked: Asked) -> bool:
        if lists_of_nodes(asked) and asked.user_agent.startswith("agent"):
            seen[asked.user_agent] += 1
        return False

    s.api.fail_next(look, lost_request)
    s.run(40)
    first = seen.most_common(1)[0][0]
    s.kill(s.actors[first])
    seen.clear()
    s.run(60)
    assert 3 <= sum(seen.values()) <= 12
    assert first not in seen


def test_of_many_slots_each_of_the_next_ten_watches_a_few(large: None) -> None:
    s = cast(policy_file(DRAINS, f"{LIMITS}, budget: 50"), 12, agents=12)
    a_gate(s)
    queue_of(s, 0)
    others = [slot_of(f"other-{n}") for n in range(50)]
    for n in range(50):
        has_an_agent(s, f"other-{n}")
    change_gate(s, lambda gate: gate["status"].update(slots=others))
    for n in range(12):
        s.fault(f"node-{n}")
    s.run(20)
    looked: Counter[str] = Counter()

    def look(asked: Asked) -> bool:
        if asked.method == "GET" and "/leases/" in asked.path:
            looked[asked.user_agent] += 1
        return False

    s.api.fail_next(look, lost_request)
    s.run(60)
    assert max(looked.values()) <= 12 * 32 + 10, "four stand in the queue, beside fifty slots"
    assert sum(looked.values()) >= 5 * 25 * 8
