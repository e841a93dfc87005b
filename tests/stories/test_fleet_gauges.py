"""How long recoveries took, and what the fleet may and does: each counted once, and the same by everybody."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from recovery_testkit.kubefaults import lost_answer
from recovery_testkit.stage import Stage, npd_page

from recovery.agent.fleet.leader import LEASE
from recovery.agent.peers import SWEEPER
from recovery.config.policy_file import load_builtin
from recovery.decide.history import confirmed_at
from recovery.model import Census, Gate, Outcome, Phase, Share, Start
from recovery.report.fleet_gauges import FleetGauges
from recovery.report.metrics import Metrics
from tests.builders.faults import DMA
from tests.builders.policies import policy_file
from tests.builders.records import record
from tests.builders.times import NOW
from tests.stories.scenery import GATE, pass_time, to_the_end
from tests.stories.scenes import (
    MERGE,
    NODES,
    PERSON,
    boot,
    braked,
    calls,
    cast,
    handed_over,
    label,
    new_process,
    pause,
    phase,
    resume,
    sayings,
    the_record,
    value,
)
from tests.stories.test_conditions import NEURON, policy, writes
from tests.stories.test_one_controller import LEASES, fleet

DURATION = "node_recovery_recovery_duration_seconds"


def took(s: Stage) -> dict[tuple[str, str], tuple[float, float]]:
    """(action, outcome) -> how many recoveries, and seconds: over all processes, dead ones included."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for actor in s.actors.values():
        for family in actor.metrics.registry.collect():
            for sample in family.samples:
                key = (sample.labels.get("action", ""), sample.labels.get("outcome", ""))
                count, total = found.get(key, (0.0, 0.0))
                if sample.name == f"{DURATION}_count":
                    found[key] = (count + sample.value, total)
                elif sample.name == f"{DURATION}_sum":
                    found[key] = (count, total + sample.value)
    return found


def all_say(s: Stage, name: str, **labels: str) -> set[float | None]:
    """What the living processes show; None: no such series."""
    return {
        actor.metrics.registry.get_sample_value(name, labels) for actor in s.actors.values() if actor.alive
    }


# ---------------------------------------------------------------- how long a recovery took


def test_a_recovery_is_counted_once_by_who_closed_its_record() -> None:
    s = cast()
    s.fault("node-0")
    s.run(5)
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.agent("node-9")
    s.run(260, step=1)
    assert phase(s) is Phase.RECOVERED
    ((key, (count, seconds)),) = took(s).items()
    assert (key, count) == (("replace", "recovered"), 1)
    confirmed = next(x.at for x in the_record(s).history if x.event == "confirmed")
    assert seconds == pytest.approx((the_record(s).phase_since - confirmed).total_seconds())
    assert 60 < seconds < 265


def test_a_restart_in_the_middle_counts_it_once_and_from_its_beginning() -> None:
    s = cast(policy_file("{do: reboot, within: 10m}"))
    s.fault("node-0")
    s.run(5)
    new_process(s, "node-0")
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(300, step=1)
    assert phase(s) is Phase.RECOVERED
    ((key, (count, seconds)),) = took(s).items()
    assert (key, count) == (("reboot", "recovered"), 1)
    assert seconds > 60


def test_a_hand_over_is_an_end_and_what_was_never_started_is_none() -> None:
    s = handed_over()
    ((key, (count, _)),) = took(s).items()
    assert (key, count) == (("cordon", "handedOver"), 1)
    s = cast(policy_file("{do: notify}"))
    s.fault("node-0")
    s.run(30)
    assert phase(s) is Phase.HANDED_OVER
    assert took(s) == {}


def test_a_controller_counts_it_once_among_its_replicas() -> None:
    s, cloud = fleet(replicas=2)
    writes(s, NEURON)
    to_the_end(s, cloud)
    assert phase(s) is Phase.RECOVERED
    assert [(key, count) for key, (count, _) in took(s).items()] == [(("replace", "recovered"), 1)]


def test_a_write_whose_answer_was_lost_is_not_counted_twice() -> None:
    s = cast(policy_file("{do: cordon}"))

    def closes(asked: Any) -> bool:
        return (
            asked.method == "PUT"
            and asked.path.endswith("/noderecoveries/node-0")
            and (asked.body["status"]["phase"] == "handedOver")
        )

    s.api.fail_next(closes, lost_answer)
    s.fault("node-0")
    s.run(30)
    assert phase(s) is Phase.HANDED_OVER
    assert took(s) == {}


@pytest.mark.parametrize(
    ("lines", "began"),
    [
        ([("confirmed", 1), ("started", 2)], 1),
        ([("started", 2)], 2),  # the line was cut off
        ([("confirmed", -90), ("recovered", -50), ("confirmed", 1), ("started", 2)], 1),
    ],
)
def test_a_recovery_begins_with_its_last_confirmed_fault(lines: list[tuple[str, int]], began: int) -> None:
    def at(minute: int) -> datetime:
        return NOW + timedelta(minutes=minute)

    history = tuple(Outcome(at(minute), 1, event, "") for event, minute in lines)
    made = record(Phase.PROVING, history=history, starts=(Start(at(-80), "m", ""), Start(at(2), "m", "")))
    assert confirmed_at(made) == at(began)
    assert confirmed_at(replace(made, phase=Phase.WAITING)) is None


# ---------------------------------------------------------------- what the fleet may and does


def test_everybody_shows_the_same_of_the_fleet() -> None:
    s = cast(policy_file(limits="budget: 2, budgetPer: {topology.kubernetes.io/zone: 50%}"), agents=3)
    s.fault("node-0")
    s.run(65, step=1)
    assert all_say(s, "node_recovery_budget_used", scope="fleet") == {1}
    assert all_say(s, "node_recovery_budget_limit", scope="fleet") == {2}
    assert all_say(s, "node_recovery_budget_used", scope="topology.kubernetes.io/zone=a") == {1}
    assert all_say(s, "node_recovery_census_sick") == {1}
    assert all_say(s, "node_recovery_census_population") == {4}
    assert all_say(s, "node_recovery_paused") == {0}


def test_a_scope_that_nobody_is_out_of_is_shown_no_more() -> None:
    s = cast(policy_file(limits="budgetPer: {topology.kubernetes.io/zone: 1}"))
    s.fault("node-0")
    s.run(65, step=1)
    zone = "topology.kubernetes.io/zone=a"
    assert all_say(s, "node_recovery_budget_used", scope=zone) == {1}
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.agent("node-9")
    s.run(260, step=1)
    assert phase(s) is Phase.RECOVERED
    s.run(65, step=1)
    assert all_say(s, "node_recovery_budget_used", scope=zone) == {None}
    assert all_say(s, "node_recovery_budget_limit", scope=zone) == {None}
    assert all_say(s, "node_recovery_budget_used", scope="fleet") == {0}


def test_a_label_with_a_value_for_each_node_makes_no_scope() -> None:
    s = cast(policy_file(limits="budgetPer: {kubernetes.io/hostname: 1}"))
    label(s, "node-0", **{"kubernetes.io/hostname": "node-0"})
    s.fault("node-0")
    s.run(65, step=1)
    assert all_say(s, "node_recovery_budget_used", scope="fleet") == {1}
    assert all_say(s, "node_recovery_budget_used", scope="kubernetes.io/hostname=node-0") == {None}


def test_a_rule_with_a_budget_of_its_own_is_a_scope_at_any_time() -> None:
    rules = policy_file().replace(b"    probation: 2m", b"    budget: 3\n    probation: 2m")
    s = cast(rules)
    s.run(65, step=1)
    scope = "rule neuron-hardware"
    assert all_say(s, "node_recovery_budget_used", scope=scope) == {0}
    s.fault("node-0")
    s.run(65, step=1)
    assert all_say(s, "node_recovery_budget_used", scope=scope) == {1}
    assert all_say(s, "node_recovery_budget_limit", scope=scope) == {3}


def test_a_percentage_is_of_the_nodes_that_the_policy_counts() -> None:
    s = cast(policy_file(limits="budget: 50%, population: {labels: {accelerator: 'yes'}}"))
    s.run(65, step=1)
    assert all_say(s, "node_recovery_budget_limit", scope="fleet") == {None}, "nobody has counted those yet"
    for node in ("node-0", "node-1"):
        label(s, node, accelerator="yes")
    s.fault("node-0")
    s.run(65, step=1)
    assert all_say(s, "node_recovery_census_population") == {2}
    assert all_say(s, "node_recovery_budget_limit", scope="fleet") == {1}
    plain = cast(policy_file(limits="budget: 50%"))
    plain.run(65, step=1)
    assert all_say(plain, "node_recovery_budget_limit", scope="fleet") == {2}, "of all nodes"


def test_a_count_of_other_nodes_than_the_policys_is_none() -> None:
    metrics, policy = Metrics(), load_builtin().policy
    policy = replace(policy, limits=replace(policy.limits, budget=Share(percent=50.0)))
    gauges = FleetGauges(metrics, policy, 50)
    gauges.show(Gate("u", "1", "u", census=Census(NOW, 40, ("node-0",), of="others")), NOW, 0)
    shown = metrics.registry.get_sample_value("node_recovery_census_population")
    assert shown is not None
    assert math.isnan(shown)
    assert metrics.registry.get_sample_value("node_recovery_budget_limit", {"scope": "fleet"}) is None


def test_only_the_values_that_a_budget_names_are_scopes() -> None:
    per = (
        "{topology.kubernetes.io/zone: {b: 1}, node.kubernetes.io/instance-type: {trn1.32xlarge: 4, '*': 1}}"
    )
    s = cast(policy_file(limits=f"budgetPer: {per}"))
    s.fault("node-0")
    s.run(65, step=1)
    scope = "node.kubernetes.io/instance-type=trn1.32xlarge"
    assert all_say(s, "node_recovery_budget_limit", scope=scope) == {4}
    assert all_say(s, "node_recovery_budget_used", scope="topology.kubernetes.io/zone=a") == {None}


def test_a_pause_is_shown_and_its_end() -> None:
    s = cast()
    s.run(65, step=1)
    pause(s)
    s.run(65, step=1)
    assert all_say(s, "node_recovery_paused") == {1}
    pause(s, until="2020-01-01T00:00:00Z")
    s.run(65, step=1)
    assert all_say(s, "node_recovery_paused") == {0}, "one that has expired is none"
    pause(s)
    s.run(65, step=1)
    resume(s)
    s.run(65, step=1)
    assert all_say(s, "node_recovery_paused") == {0}


def test_what_the_brake_goes_by_is_shown() -> None:
    s = braked()
    s.run(65, step=1)
    assert all_say(s, "node_recovery_census_sick") == {3}
    assert all_say(s, "node_recovery_census_population") == {4}


def test_while_recovery_is_off_nothing_is_known_of_the_fleet() -> None:
    s = cast(on=False)
    s.run(65, step=1)
    (paused,) = all_say(s, "node_recovery_paused")
    assert paused is not None
    assert math.isnan(paused)
    assert all_say(s, "node_recovery_budget_used", scope="fleet") == {None}
    assert s.store.request("GET", GATE).status == 404


def another_takes_the_lead(s: Stage) -> None:
    taken = {
        "spec": {"holderIdentity": "another", "renewTime": f"{s.clock.true_time():%Y-%m-%dT%H:%M:%S.%fZ}"}
    }
    s.store.request("PATCH", f"{LEASES}/{LEASE}", body=taken, content_type=MERGE, user_agent=PERSON)
    s.run(8)
    assert not any(actor.replica.leader.leads for actor in s.actors.values())


def test_who_leads_no_more_shows_no_more_of_the_fleet() -> None:
    s, _ = fleet(policy("{type: NeuronHealth}", "{do: cordon}"))
    writes(s, NEURON)
    s.run(30)
    (actor,) = s.actors.values()
    assert value(actor, "node_recovery_open_handovers") == 1
    assert phase(s) is Phase.HANDED_OVER
    s.store.request("DELETE", "/api/v1/nodes/node-0", user_agent=PERSON)
    s.run(150, step=1)
    assert value(actor, "node_recovery_open_handovers") == 1
    assert value(actor, "node_recovery_budget_limit", scope="fleet") == 1
    actor.metrics.share(actor.metrics.open_handovers, 1, SWEEPER)  # one that it concluded itself
    another_takes_the_lead(s)
    assert value(actor, "node_recovery_open_handovers") == 0
    assert all_say(s, "node_recovery_budget_limit", scope="fleet") == {None}
    assert all_say(s, "node_recovery_budget_used", scope="fleet") == {None}
    assert all(x is not None and math.isnan(x) for x in all_say(s, "node_recovery_paused"))
    said = sayings(s, "HandedOver")
    s.run(200, step=1)
    assert actor.replica.leader.leads
    assert sayings(s, "HandedOver") > said + 1
    assert value(actor, "node_recovery_open_handovers") == 1
    assert all_say(s, "node_recovery_paused") == {0}


def test_who_leads_no_more_does_not_go_on_to_show_a_clock_that_was_off_then() -> None:
    """Who leads looks at it. A replica that does not would show it until it does: an alert for ever."""
    s, _ = fleet(policy("{type: NeuronHealth}", "{do: cordon}"))
    (actor,) = s.actors.values()
    actor.replica._time.outlier = timedelta(minutes=5)
    s.run(12)
    assert value(actor, "node_recovery_api_clock_outlier_seconds") == 300
    another_takes_the_lead(s)
    assert value(actor, "node_recovery_api_clock_outlier_seconds") == 0


def test_a_node_that_is_gone_has_no_fault_any_more_and_no_source_of_it_is_blind() -> None:
    """Its agent stays for ten minutes after the recovery. That is no alert, and no fault of now."""
    s, cloud = fleet(policy("{type: NeuronHealth}", "{do: replace}"))
    (actor,) = s.actors.values()
    unknown = ("node_recovery_signal_unknown", {"source": "conditions"})
    faults = ("node_recovery_faults", {"type": "NeuronHealth", "reason": DMA})
    writes(s, NEURON)
    pass_time(s, 10, cloud, until=lambda: bool(calls(s)), step=0.5)
    assert (value(actor, unknown[0], **unknown[1]), value(actor, faults[0], **faults[1])) == (0, 1)
    pass_time(s, 200, cloud, step=1)
    assert (phase(s), s.store.request("GET", f"{NODES}/node-0").status) == (Phase.RECOVERED, 404)
    assert (value(actor, unknown[0], **unknown[1]), value(actor, faults[0], **faults[1])) == (0, 0)
    told = sum(metric.name == DMA for metric in s.told.metrics)
    pass_time(s, 200, cloud, step=1)
    assert sum(metric.name == DMA for metric in s.told.metrics) == told


def test_a_process_says_which_version_it_is() -> None:
    from importlib.metadata import version

    metrics = Metrics()
    metrics.running(True)
    labels = {"version": version("node-recovery")}
    assert metrics.registry.get_sample_value("node_recovery_build_info", labels) == 1
    assert metrics.registry.get_sample_value("node_recovery_enabled") == 1
