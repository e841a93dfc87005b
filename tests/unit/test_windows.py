"""When a window is open, by the clocks of its zone, and what blocks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, time
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from recovery.decide import windows
from recovery.decide.assessment import assess
from recovery.decide.decision import EventReason, Verb, WriteRecord
from recovery.decide.needs import needed
from recovery.decide.own_node import decide
from recovery.decide.provider_step import not_now
from recovery.decide.situation import PodsLeft, Role, Situation
from recovery.model import (
    CORDONED_BY,
    TAINT,
    Alerts,
    Cause,
    Marks,
    Phase,
    PodView,
    Says,
    Statement,
    Step,
    Window,
)
from recovery.units import parse_moment
from tests.builders.faults import DMA, HBM, fault, problem, reading
from tests.builders.gates import gate, slot
from tests.builders.nodes import node
from tests.builders.policies import RULES, policy
from tests.builders.records import record
from tests.builders.situations import situation
from tests.builders.times import HOUR, MINUTE, NOW

WEEK, WORKDAYS = frozenset(range(7)), frozenset(range(5))
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
APIA = ZoneInfo("Pacific/Apia")


def window(opens: str, closes: str, zone: Any = UTC, days: frozenset[int] = WEEK) -> Window:
    return Window(days, time.fromisoformat(opens), time.fromisoformat(closes), zone)


def hours(w: Window, day: str, days: int = 2) -> list[str]:
    """When ``w`` opens and closes, in the days from noon of the day before this one (UTC), to the minute."""
    began = parse_moment(f"{day}T00:00:00Z") - 12 * HOUR
    was, found = windows.open_since([w], began) is not None, []
    for n in range(days * 24 * 60):
        at = began + n * MINUTE
        now = windows.open_since([w], at) is not None
        if now is not was:
            found.append(f"{'+' if now else '-'}{at:%a %H:%M}")
        was = now
    return found


# ---------------------------------------------------------------- windows

OFFICE = window("09:00", "17:00", BERLIN, WORKDAYS)
NIGHT = window("22:00", "06:00", BERLIN, frozenset({4}))


@pytest.mark.parametrize(
    ("w", "day", "opens_and_closes"),
    [
        (OFFICE, "2026-11-20", ["-Thu 16:00", "+Fri 08:00", "-Fri 16:00"]),  # Friday, and nothing on Saturday
        (OFFICE, "2026-07-16", ["-Wed 15:00", "+Thu 07:00", "-Thu 15:00", "+Fri 07:00"]),  # summer time
        (NIGHT, "2026-11-20", ["+Fri 21:00", "-Sat 05:00"]),  # the day is the one on which it begins
        (window("00:00", "00:00", UTC, frozenset({5})), "2026-11-21", ["+Sat 00:00", "-Sun 00:00"]),
        (window("23:30", "00:30"), "2026-11-20", ["+Thu 23:30", "-Fri 00:30", "+Fri 23:30", "-Sat 00:30"]),
    ],
    ids=["two zones apart", "summer", "over midnight", "24 hours", "begun the day before"],
)  # fmt: skip
def test_a_window_is_open_by_the_clocks_of_its_zone(w: Window, day: str, opens_and_closes: list[str]) -> None:
    assert hours(w, day) == opens_and_closes


SPRING, AUTUMN = "2027-03-28", "2026-10-25"
"""In Berlin clocks jump from 02:00 to 03:00 (01:00Z), and from 03:00 back to 02:00 (01:00Z)."""


@pytest.mark.parametrize(
    ("opens", "closes", "day", "found"),
    [
        ("01:00", "04:00", SPRING, ["+Sun 00:00", "-Sun 02:00"]),  # two hours long
        ("02:30", "04:00", SPRING, ["+Sun 01:00", "-Sun 02:00"]),  # opens as clocks jump past it
        ("01:00", "02:30", SPRING, ["+Sun 00:00", "-Sun 01:00"]),  # closes as clocks jump past it
        ("02:00", "03:00", SPRING, []),  # that hour does not come
        ("02:15", "02:45", SPRING, []),
        ("01:00", "04:00", AUTUMN, ["+Sat 23:00", "-Sun 03:00"]),  # four hours long
        ("01:00", "02:30", AUTUMN, ["+Sat 23:00", "-Sun 00:30"]),  # closes when they show it first
        ("02:30", "04:00", AUTUMN, ["+Sun 00:30", "-Sun 03:00"]),
        ("02:15", "02:45", AUTUMN, ["+Sun 00:15", "-Sun 00:45"]),  # and not twice
    ],
)
def test_the_nights_on_which_clocks_change(opens: str, closes: str, day: str, found: list[str]) -> None:
    w = window(opens, closes, BERLIN, frozenset({6}))
    assert hours(w, day, 1) == found


def test_a_day_that_a_zone_has_skipped_has_no_window() -> None:
    """Samoa had no 30 December 2011."""
    friday = window("09:00", "17:00", APIA, frozenset({4}))
    assert hours(friday, "2011-12-28", 4) == []
    assert hours(replace(friday, days=frozenset({3, 5})), "2011-12-30", 2) == [
        "+Thu 19:00",
        "-Fri 03:00",
        "+Fri 19:00",
        "-Sat 03:00",
    ]


def said(now: str, *all_windows: Window) -> str | None:
    return windows.closed(all_windows, parse_moment(now))


def test_the_sentence_says_when_it_opens_next_in_the_windows_own_zone() -> None:
    assert said("2026-11-21T03:00:00Z", OFFICE) == (
        "outside its windows: next opens Mon 2026-11-23 09:00 Europe/Berlin"
    )
    assert said("2026-11-23T07:59:59Z", OFFICE) is not None
    assert said("2026-11-23T08:00:00Z", OFFICE) is None


def test_of_several_windows_the_one_that_opens_first_is_named() -> None:
    new_york = window("01:00", "02:00", NEW_YORK)
    assert said("2026-11-21T05:00:00Z", OFFICE, new_york) == (
        "outside its windows: next opens Sat 2026-11-21 01:00 America/New_York"
    )
    assert said("2026-11-21T06:30:00Z", OFFICE, new_york) is None


def test_a_window_that_clocks_skip_opens_a_week_later() -> None:
    skipped = window("02:00", "03:00", BERLIN, frozenset({6}))
    assert said("2027-03-27T12:00:00Z", skipped) == (
        "outside its windows: next opens Sun 2027-04-04 02:00 Europe/Berlin"
    )


def test_without_windows_it_is_always_open() -> None:
    assert said("2026-11-21T03:00:00Z") is None


# ---------------------------------------------------------------- blockers

TRAIN = "blockers: [{pods: {namespaces: training, labels: {app: train*}}}]"
UPGRADE = 'blockers: [{alerts: ["ClusterUpgrade*", Backup]}]'


def pod(name: str = "t-0", **changes: Any) -> PodView:
    return replace(PodView("training", name, name, "Running", labels={"app": "trainer"}), **changes)


def held(limits: str, rules: str = RULES, **changes: Any) -> Situation:
    return situation(
        policy=policy(rules, limits=f"{{{limits}}}"), record=record(rule="neuron-hardware"), **changes
    )


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ((), None),
        ((pod(),), "blocked: pod training/t-0 runs on it"),
        ((pod(phase="Pending"),), "blocked: pod training/t-0 runs on it"),  # it is about to
        ((pod(phase="Unknown"),), "blocked: pod training/t-0 runs on it"),
        ((pod(phase="Succeeded"), pod(phase="Failed")), None),
        ((pod(deletion_timestamp=NOW + MINUTE),), "blocked: pod training/t-0 runs on it"),
        ((pod(deletion_timestamp=NOW - MINUTE),), None),  # nobody is going to report its end
        ((pod(owner_kind="DaemonSet"),), None),  # it would never end
        ((pod(namespace="web"), pod(labels={"app": "web"}), pod(labels={})), None),
        (
            tuple(pod(f"t-{n}") for n in range(5)),
            "blocked: pods training/t-0, training/t-1, training/t-2 and 2 more run on it",
        ),
        (None, "blocked: the pods on the node are not known"),
    ],
)  # fmt: skip
def test_pods_that_run_on_the_node_block(pods: tuple[PodView, ...] | None, why: str | None) -> None:
    assert windows.blocked(held(TRAIN, pods=pods)) == why


def test_pods_of_a_machine_that_surely_runs_nothing_block_nothing() -> None:
    assert windows.blocked(held(TRAIN, pods=(pod(),), down="it is powered off")) is None


def test_pods_that_cannot_be_listed_block_and_the_sentence_says_why() -> None:
    assert windows.blocked(held(TRAIN, pods_problem="they cannot be listed: forbidden")) == (
        "blocked: the pods on the node are not known: they cannot be listed: forbidden"
    )


def test_a_concluder_which_starts_nothing_is_not_kept_waiting_by_pods_that_it_does_not_read() -> None:
    s = held(TRAIN, role=Role.CONCLUDER)
    assert windows.blocked(s) is None


@pytest.mark.parametrize(
    ("firing", "unknown", "why"),
    [
        ((), "", None),
        (("Watchdog",), "", None),
        (("ClusterUpgradeRunning", "Watchdog"), "", "alert ClusterUpgradeRunning fires"),
        (("Backup", "ClusterUpgrade"), "", "alerts Backup, ClusterUpgrade fire"),
        ((), "no answer", "whether ClusterUpgrade* or Backup fires is not known: no answer"),
    ],
)  # fmt: skip
def test_alerts_that_fire_block_and_so_does_what_is_not_known(
    firing: tuple[str, ...], unknown: str, why: str | None
) -> None:
    found = windows.blocked(held(UPGRADE, alerts=Alerts(firing, unknown=unknown)))
    assert found == (f"blocked: {why}" if why else None)


def test_where_nobody_asks_for_alerts_nothing_is_known_of_them() -> None:
    assert str(windows.blocked(held(UPGRADE))).endswith("is not known: no Prometheus server is asked")


def test_a_concluder_which_starts_nothing_asks_for_no_alerts_and_is_not_kept_waiting() -> None:
    assert windows.blocked(held(UPGRADE, role=Role.CONCLUDER)) is None
    heard = Alerts(("Backup",), unknown="")
    assert windows.blocked(held(UPGRADE, role=Role.CONCLUDER, alerts=heard)) == "blocked: alert Backup fires"


def test_an_urgent_rule_waits_for_neither() -> None:
    rules = RULES + "    urgent: true\n"
    shut = "windows: [{days: mon, from: '09:00', to: '10:00'}]"
    assert windows.outside(held(shut)) is not None
    assert windows.outside(held(shut, rules)) is None
    assert windows.blocked(held(TRAIN, rules, pods=(pod(),))) is None


def test_a_rules_own_windows_take_the_place_of_those_of_the_limits() -> None:
    shut, now = (
        "windows: [{days: mon, from: '09:00', to: '10:00'}]",
        "windows: [{from: '03:00', to: '04:00'}]",
    )
    assert windows.outside(held(shut, f"{RULES}    {now}\n")) is None
    assert windows.outside(held(now, f"{RULES}    {shut}\n")) is not None
    assert windows.outside(held(shut, f"{RULES}    windows: []\n")) is None


def test_a_recovery_that_is_under_way_is_stopped_only_where_the_policy_says_so() -> None:
    shut = "windows: [{days: mon, from: '09:00', to: '10:00'}], " + TRAIN
    assert (windows.stopped_outside(held(shut)), windows.stopped_by_blocker(held(shut, pods=(pod(),)))) == (
        None,
        None,
    )
    stop = held(shut + ", underWay: stop", pods=(pod(),))
    assert (windows.stopped_outside(stop), windows.stopped_by_blocker(stop)) == (
        "outside its windows: next opens Mon 2026-11-23 09:00 UTC",
        "blocked: pod training/t-0 runs on it",
    )


def test_pods_are_read_only_where_a_blocker_goes_by_them_and_nothing_else_holds() -> None:
    shut = "windows: [{days: mon, from: '09:00', to: '10:00'}], "
    assert PodsLeft(evicting=False) in _next_needs(held(TRAIN))
    assert PodsLeft(evicting=False) not in _next_needs(held(""))
    assert PodsLeft(evicting=False) not in _next_needs(held(shut + TRAIN))
    assert PodsLeft(evicting=False) not in _next_needs(held(TRAIN, RULES + "    urgent: true\n"))


def _next_needs(s: Situation) -> list[object]:
    found: list[object] = []
    while (need := needed(s)) is not None:
        found.append(need)
        s = replace(s, read=(*s.read, need))
    return found


def test_in_observe_mode_the_sentence_says_that_it_would_wait() -> None:
    shut = "windows: [{days: mon, from: '09:00', to: '10:00'}]"
    d = decide(replace(held(shut), on=False, record=None))
    assert "would drain node-0" in d.reason
    assert (
        "but would wait: outside its windows: next opens Mon 2026-11-23 09:00 UTC; recovery is off"
        in d.reason
    )
    urgent = decide(replace(held(shut, RULES + "    urgent: true\n"), on=False, record=None))
    assert "if budget and brake allow" in urgent.reason


# ---------------------------------------------------------------- what time counts


def asked_for_a_witness(limits: str, **changes: Any) -> Situation:
    """The rule wants the counters to agree, and they do not. Its first step has ten minutes."""
    rules = RULES.replace("remedy:", "witness: {source: neuron-sysfs}\n    remedy:").replace(DMA, HBM)
    waits = record(rule="neuron-hardware", faults=(fault(HBM),), phase_since=NOW - 10 * HOUR)
    s = situation(
        policy=policy(rules, limits=f"{{{limits}}}"), record=waits, readings=(reading(problem(HBM)),)
    )
    return replace(s, witness_says=Statement(Says.DISAGREES, "no counter has changed"), **changes)


def test_the_patience_with_a_witness_begins_with_the_window() -> None:
    assert decide(asked_for_a_witness("")).report is not None  # ten hours: handed over
    d = decide(asked_for_a_witness("windows: [{from: '02:55', to: '04:00'}]"))
    assert (d.verb, d.key) == (Verb.HOLD, "witness")
    late = decide(asked_for_a_witness("windows: [{from: '02:50', to: '04:00'}]"))
    assert late.report is not None
    assert late.report.event is EventReason.HANDED_OVER


def test_time_in_which_something_blocked_does_not_count_against_a_witness() -> None:
    blocked = {Cause.BLOCKED: 10 * HOUR - 5 * MINUTE}
    d = decide(asked_for_a_witness("", held_before=blocked))
    assert (d.verb, d.key) == (Verb.HOLD, "witness")
    for limits, cause in ((TRAIN, Cause.BLOCKED), ("windows: [{from: '09:00', to: '10:00'}]", Cause.WINDOW)):
        s = held(limits, pods=(pod(),))
        told = decide(s).effect
        assert isinstance(told, WriteRecord)
        assert decide(replace(s, record=told.record)).held is cause  # the agent remembers how long


# ---------------------------------------------------------------- right before the call


def test_what_closes_or_blocks_right_before_the_call_stops_it_only_where_the_policy_says_so() -> None:
    shut = "windows: [{from: '02:00', to: '03:00'}]"
    for limits, pods in ((shut, ()), (TRAIN, (pod(),))):
        s = right_before_the_call(limits, pods)
        assert not_now(s, assess(s), Step.REPLACE) is None
        s = right_before_the_call(f"{limits}, underWay: stop", pods)
        kept = not_now(s, assess(s), Step.REPLACE)
        assert kept is not None
        assert kept.reason.startswith(
            ("replace is not asked for: outside", "replace is not asked for: blocked")
        )


def right_before_the_call(limits: str, pods: tuple[PodView, ...]) -> Situation:
    on_its_last_step = record(
        rule="neuron-hardware", phase=Phase.RECOVERING, rung=1, marks=Marks(cordoned=True, tainted=True)
    )
    taken = gate(slots=(slot("node-0", "record-0", "fleet"),))
    s = situation(policy=policy(limits=f"{{{limits}}}"), record=on_its_last_step, gate=taken, pods=pods)
    taint = (TAINT, "", "NoSchedule")
    return replace(
        s, node=node(unschedulable=True, taints=(taint,), annotations={CORDONED_BY: "node-recovery"})
    )
