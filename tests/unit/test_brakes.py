"""The safety questions: situation -> reason, their order, rounding."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.decide import brakes
from recovery.decide.assessment import assess
from recovery.decide.chosen_ladder import CORDON_ONLY
from recovery.decide.decision import Join, TakeSlot, Verb, WriteRecord
from recovery.decide.idle import given_back_by_hand
from recovery.decide.in_flight import has_new_boot
from recovery.decide.own_node import decide
from recovery.decide.situation import Lease, Situation
from recovery.decide.standing import standing, standing_now
from recovery.model import (
    Claim,
    Condition,
    Line,
    Marks,
    Pause,
    Phase,
    Preflight,
    Reference,
    Share,
    Slot,
    Step,
)
from recovery.store.gate import read_pause
from tests.builders.faults import HBM, fault
from tests.builders.gates import census, gate, slot, start
from tests.builders.nodes import MACHINE, TYPE, ZONE, node
from tests.builders.policies import policy
from tests.builders.records import intent, record
from tests.builders.situations import situation
from tests.builders.times import HOUR, MINUTE, NOW, SECOND


def paused(**changes: Any) -> Pause:
    return replace(Pause("ada", "a network change", NOW + HOUR), **changes)


def limits(text: str, **changes: Any) -> Situation:
    return situation(policy=policy(limits=text), **changes)


def newcomer(**changes: Any) -> Situation:
    """node-0 came a minute ago; node-1 of its group has been out for two, and has claimed nothing."""
    out = start(2 * MINUTE, node="node-1", machine="m-1")
    found = {"gate": gate(slots=(OTHERS_SLOT,), starts=(out,)), "node": node(created=NOW - MINUTE)} | changes
    return situation(**found)


def in_boot(kernel: str = "", heard: datetime | None = NOW, **changes: Any) -> Situation:
    """The Node says boot-1, as its kubelet wrote when it was ``heard``."""
    ready = Condition("Ready", "True", "KubeletReady", "", heartbeat=heard)
    return situation(node=node(stated=(ready,)), kernel_boot=kernel, **changes)


def idle_for(gap: timedelta) -> Lease:
    return Lease("me", mine=True, stale=False, idle=(NOW - gap, NOW))


# ---------------------------------------------------------------- each question

OUT = (start(2 * MINUTE, node="node-1", machine="m-1"),)
ATTEMPTS = tuple(start(x * HOUR, group="other") for x in (1, 2, 3))
IN_GROUP = tuple(start(x * HOUR, machine=f"m-{x}", node=f"n-{x}") for x in (1, 2, 3))
OTHERS_SLOT = slot("node-1", "record-1", "fleet")
TOO_MANY = census(4, 10)
SHORT = Preflight(Reference("fake", "replace"), "workers", short_by=1)
PAST = ", ".join(f"NeuronHasError_DMA_ERROR at 2026-11-21 {at}Z" for at in ("00:00", "01:00", "02:00"))
TABLE: dict[str, tuple[brakes.Question, Situation, str]] = {
    "off": (brakes.off, situation(on=False), "recovery is off (ENABLE_RECOVERY=false)"),
    "label": (
        brakes.excluded,
        situation(node=node(labels={"noderecovery.dev/exclude": "true"})),
        "the node is excluded by its label noderecovery.dev/exclude=true",
    ),
    "policy's exclusion": (
        brakes.excluded,
        situation(policy=policy(exclude="[{labels: {team: 'db*'}}]"), node=node(labels={"team": "db-1"})),
        "the policy excludes nodes with team=db*",
    ),
    "claim": (
        brakes.foreign_claim,
        situation(forbidden="NVSentinel holds node-0"),
        "NVSentinel holds node-0",
    ),
    "pause": (
        brakes.paused,
        situation(gate=gate(pause=paused())),
        "ada paused all recoveries until 2026-11-21 04:00:00Z: a network change",
    ),
    "pause without end": (
        brakes.paused,
        situation(gate=gate(pause=paused(until=None))),
        "ada paused all recoveries without an end: a network change",
    ),
    "undecodable gate": (
        brakes.paused,
        situation(gate=None, gate_problem="status.slots[0].node: is missing"),
        "the gate cannot be used: status.slots[0].node: is missing",
    ),
    "skew": (
        brakes.skewed,
        situation(skew=31 * SECOND),
        "this machine's clock is 31 s off the API server's; nothing is started above 30 s",
    ),
    "attempts": (
        brakes.attempts_used,
        situation(gate=gate(starts=ATTEMPTS)),
        f"3 recoveries of it within 24 h have not helped: {PAST}",
    ),
    "group": (
        brakes.group_worn,
        situation(gate=gate(starts=IN_GROUP)),
        "3 recoveries were started in group workers within 6 h; next after 06:00:00Z",
    ),
    "heir": (
        brakes.pending_replacement,
        newcomer(),
        "it may be the replacement of m-1 of node-1: waiting for that recovery to end",
    ),
    "budget": (
        brakes.budget,
        situation(gate=gate(slots=(OTHERS_SLOT,))),
        "the budget of the fleet is used up: 1 of 1 may be out (node-1)",
    ),
    "budget of a zone": (
        brakes.budget,
        limits("{budget: 5}", gate=gate(slots=(slot("node-1", "record-1", "fleet", f"{ZONE}=a"),))),
        f"the budget of {ZONE}=a is used up: 1 of 1 may be out (node-1)",
    ),
    "budget 0": (
        brakes.budget,
        limits("{budget: 0}"),
        "the budget of the fleet is used up: 0 of 0 may be out (none)",
    ),
    "budget 0%": (
        brakes.budget,
        limits("{budget: 0%}"),
        "the budget of the fleet is used up: 0 of 0 may be out (none)",
    ),
    "no gate": (brakes.budget, situation(gate=None), "the gate has not been read"),
    "cooldown": (
        brakes.cooldown,
        situation(gate=gate(last_start=NOW - MINUTE)),
        "the last recovery started at 02:59:00Z; the next may start in 60 s (cooldown)",
    ),
    "brake": (
        brakes.brake,
        situation(census=TOO_MANY),
        "the brake is on: 4 of 10 nodes in the fleet are sick or unknown, more than 30% (3)",
    ),
    "census missing": (
        brakes.brake,
        situation(census=None),
        "nothing is known yet of how many nodes are sick",
    ),
    "census without the node's own kind": (
        brakes.brake,
        situation(node=node(labels={TYPE: "trn2.48xlarge", ZONE: "a"})),
        f"nothing is known of how many nodes with {TYPE}=trn2.48xlarge are sick",
    ),
    "a kernel younger than its Node": (
        brakes.boot_unknown,
        in_boot("boot-2", heard=NOW - MINUTE, kernel_began=NOW - 20 * SECOND),
        "the kubelet last wrote to the Node at 02:59:00Z, and this kernel booted at 02:59:40Z: "
        "which boot the machine is in is known once the kubelet writes again",
    ),
    "a controller that starts after nobody was at work": (
        brakes.boot_unknown,
        in_boot(afar=True, unheard_since=NOW - SECOND, lease=idle_for(HOUR)),
        "nobody was at work for 60 min, and the kubelet has not written since: "
        "which boot the machine is in is known once it does",
    ),
    "the API server is just back": (
        brakes.just_back,
        situation(back_for=15 * SECOND),
        "the API server was away: waiting another 30 s for what other agents report",
    ),
    "short group": (brakes.group_short, situation(preflight=SHORT), "group workers is short by 1"),
}


@pytest.mark.parametrize("row", TABLE)
def test_a_question_answers_with_its_reason(row: str) -> None:
    question, s, reason = TABLE[row]
    assert question(s) == reason


@pytest.mark.parametrize("row", TABLE)
def test_a_question_has_no_reason_where_nothing_is_in_the_way(row: str) -> None:
    assert TABLE[row][0](situation()) is None


# ---------------------------------------------------------------- edges of each question

NO_REASON: dict[str, tuple[brakes.Question, Situation]] = {
    "label with another value": (
        brakes.excluded,
        situation(node=node(labels={"noderecovery.dev/exclude": "false"})),
    ),
    "one of two excluding labels": (
        brakes.excluded,
        situation(policy=policy(exclude="[{labels: {a: x, b: y}}]"), node=node(labels={"a": "x"})),
    ),
    "pause over": (brakes.paused, situation(gate=gate(pause=paused(until=NOW)))),
    "skew of 30 s": (brakes.skewed, situation(skew=30 * SECOND)),
    "attempts long ago": (
        brakes.attempts_used,
        situation(gate=gate(starts=tuple(start(x * HOUR) for x in (1, 2, 25)))),
    ),
    "attempts of others": (
        brakes.attempts_used,
        situation(gate=gate(starts=tuple(start(HOUR, machine=f"m-{x}") for x in (1, 2, 3)))),
    ),
    "starts in another group": (
        brakes.group_worn,
        situation(gate=gate(starts=tuple(start(HOUR, group="b", machine=f"m-{x}") for x in (1, 2, 3)))),
    ),
    "starts in the group long ago": (
        brakes.group_worn,
        situation(gate=gate(starts=tuple(start(x * HOUR) for x in (1, 2, 7)))),
    ),
    "no group": (
        brakes.group_worn,
        situation(
            preflight=None,
            record=record(machine=replace(MACHINE, group="")),
            gate=gate(starts=tuple(start(HOUR, group="") for _ in range(3))),
        ),
    ),
    "older than the start": (brakes.pending_replacement, newcomer(node=node(created=NOW - HOUR))),
    "of unknown age": (brakes.pending_replacement, newcomer(node=node())),
    "claimed already": (
        brakes.pending_replacement,
        newcomer(gate=gate(slots=(OTHERS_SLOT,), starts=OUT, claimed=(Claim("m-0", "m-2"),))),
    ),
    "the other has its replacement": (
        brakes.pending_replacement,
        newcomer(gate=gate(slots=(OTHERS_SLOT,), starts=OUT, claimed=(Claim("m-9", "m-1"),))),
    ),
    "the other has ended": (brakes.pending_replacement, newcomer(gate=gate(starts=OUT))),
    "the other's group": (
        brakes.pending_replacement,
        newcomer(gate=gate(slots=(OTHERS_SLOT,), starts=(replace(OUT[0], group="b"),))),
    ),
    "the other was never started": (brakes.pending_replacement, newcomer(gate=gate(slots=(OTHERS_SLOT,)))),
    "other zone's slot": (
        brakes.budget,
        limits("{budget: 5}", gate=gate(slots=(slot("n", "r", "fleet", f"{ZONE}=b"),))),
    ),
    "cooldown over": (brakes.cooldown, situation(gate=gate(last_start=NOW - 2 * MINUTE))),
    "as many sick as allowed": (brakes.brake, situation(census=census(3, 10))),
    "short, and adopted": (brakes.group_short, situation(preflight=replace(SHORT, adopt="it is unhealthy"))),
}


@pytest.mark.parametrize("row", NO_REASON)
def test_a_question_has_no_reason_just_inside_its_edge(row: str) -> None:
    question, s = NO_REASON[row]
    assert question(s) is None


def test_a_start_in_the_future_counts_as_now() -> None:
    late = replace(start(HOUR), at=NOW + 5 * HOUR)
    assert brakes.attempts_used(situation(gate=gate(starts=(late, late, late))))
    assert brakes.group_worn(situation(gate=gate(starts=(late, late, late))))


def test_a_last_start_in_the_future_holds_for_one_cooldown_and_no_longer() -> None:
    s = situation(gate=gate(last_start=NOW + 5 * HOUR))
    assert (
        brakes.cooldown(s) == "the last recovery started at 03:00:00Z; the next may start in 2 min (cooldown)"
    )


def test_a_replacement_with_the_same_fault_continues_its_predecessors_attempts() -> None:
    chain = (Claim("m-0", "m-8"), Claim("m-8", "m-9"))
    starts = (start(HOUR), start(2 * HOUR, machine="m-8"), start(3 * HOUR, machine="m-9"))
    s = situation(gate=gate(starts=starts, claimed=chain))
    told = "3 recoveries of it and its predecessors (m-0, m-8, m-9) within 24 h have not helped"
    assert brakes.attempts_used(s) == f"{told}: {PAST}"


def test_a_replacement_with_another_fault_begins_its_own_attempts() -> None:
    starts = tuple(start(HOUR, machine="m-8") for _ in range(3))
    s = situation(
        gate=gate(starts=starts, claimed=(Claim("m-0", "m-8"),)), record=record(faults=(fault(HBM),))
    )
    assert brakes.attempts_used(s) is None


def test_a_ring_of_claims_ends() -> None:
    ring = (Claim("m-0", "m-8"), Claim("m-8", "m-0"))
    assert brakes.attempts_used(situation(gate=gate(starts=(start(HOUR),), claimed=ring))) is None


# ---------------------------------------------------------------- pauses as people write them

PAUSES = [
    ({}, None),
    ({"pause": None}, None),
    ({"pause": {"owner": "ada", "reason": "x", "until": "2026-11-21T02:59:59Z"}}, None),
    (
        {"pause": {"owner": "ada", "reason": "x", "until": "2026-11-21T03:00:01Z"}},
        "until 2026-11-21 03:00:01Z: x",
    ),
    (
        {"pause": {"owner": "ada", "reason": "x", "until": "2026-11-21T05:00:00+01:00"}},
        "until 2026-11-21 04:00",
    ),
    (
        {"pause": {"owner": "ada", "reason": "x", "until": "2026-11-21T03:30:00"}},
        "cannot be read, which counts",
    ),
    ({"pause": {"owner": "ada", "reason": "x", "until": "tomorrow"}}, "its end 'tomorrow' cannot be read"),
    ({"pause": {"owner": "ada", "reason": "x", "until": 7}}, "its end 7 cannot be read"),
    ({"pause": {"until": "0001-01-01T00:00:00+23:59"}}, "cannot be read, which counts as paused"),
    ({"pause": {}}, "somebody paused all recoveries without an end: no reason given"),
    ({"pause": "yes"}, "spec.pause cannot be read ('yes'), which counts as paused"),
    ({"pause": []}, "spec.pause cannot be read ([]), which counts as paused"),
    ({"pause": False}, "spec.pause cannot be read (False), which counts as paused"),
    ({"pause": {"owner": "ada", "reason": "x", "until": ""}}, "without an end: x"),
]


@pytest.mark.parametrize(("spec", "reason"), PAUSES)
def test_a_pause_that_is_over_is_none_and_one_that_cannot_be_read_holds(
    spec: Any, reason: str | None
) -> None:
    answer = brakes.paused(situation(gate=gate(pause=read_pause(spec))))
    assert answer is None if reason is None else reason in str(answer)


# ---------------------------------------------------------------- rounding


@pytest.mark.parametrize(
    ("share", "population", "allowed"),
    [
        (Share(count=0), 100, 0),
        (Share(count=3), 100, 3),
        (Share(count=3), None, 3),
        (Share(count=51), 100, 50),
        (Share(count=5000), None, 50),
        (Share(percent=0.0), 100, 0),
        (Share(percent=0.0), None, 0),
        (Share(percent=1.0), 10, 1),
        (Share(percent=10.0), 19, 1),
        (Share(percent=10.0), 20, 2),
        (Share(percent=33.0), 10, 3),
        (Share(percent=100.0), 7, 7),
        (Share(percent=100.0), 1000, 50),
        (Share(percent=10.0), 0, 1),
        (Share(percent=10.0), None, None),
        (Share(percent=16.1), 1000, 50),
        (Share(percent=1.1), 3000, 33),
    ],
)
def test_a_budget_rounds_down_to_at_least_one_and_never_beyond_fifty(
    share: Share, population: int | None, allowed: int | None
) -> None:
    assert brakes.budget_allows(share, population) == allowed


@pytest.mark.parametrize(
    ("share", "population", "allowed"),
    [
        (Share(percent=30.0), 1, 1),
        (Share(percent=30.0), 3, 1),
        (Share(percent=30.0), 4, 2),
        (Share(percent=30.0), 10, 3),
        (Share(percent=30.0), 11, 4),
        (Share(percent=0.0), 10, 0),
        (Share(percent=0.1), 10, 1),
        (Share(percent=1.1), 3000, 33),
        (Share(count=0), 10, 0),
        (Share(count=5), 10, 5),
    ],
)
def test_a_brake_rounds_up_to_at_least_one_and_a_brake_of_nothing_is_none(
    share: Share, population: int, allowed: int
) -> None:
    assert brakes.brake_allows(share, population) == allowed


def test_a_percentage_that_is_not_counted_yet_hides_no_other_budget() -> None:
    s = limits(
        f"{{budget: 50%, budgetPer: {{{ZONE}: 1}}}}",
        census=None,
        gate=gate(slots=(slot("node-1", "record-1", "fleet", f"{ZONE}=a"),)),
    )
    assert brakes.budget(s) == f"the budget of {ZONE}=a is used up: 1 of 1 may be out (node-1)"


# ---------------------------------------------------------------- the brake per label


def test_left_out_the_brake_also_weighs_nodes_of_the_same_instance_type() -> None:
    many_healthy = census(2, 100, **{f"{TYPE}=trn1.32xlarge": (2, 3)})
    assert brakes.brake(situation(census=many_healthy)) == (
        f"the brake is on: 2 of 3 nodes with {TYPE}=trn1.32xlarge are sick or unknown, more than 30% (1)"
    )


def test_left_out_the_brake_per_instance_type_has_the_brakes_share() -> None:
    parsed = policy(limits="{brake: 12%}").limits
    assert parsed.brake_per == {TYPE: {"*": Share(percent=12.0)}}


def test_a_node_without_the_label_is_weighed_in_the_fleet_alone() -> None:
    many_healthy = census(2, 100, **{f"{TYPE}=trn1.32xlarge": (2, 3)})
    assert brakes.brake(situation(census=many_healthy, node=node(labels={}))) is None


def test_limits_left_out_are_those_of_the_example() -> None:
    assert (
        policy().limits
        == policy(
            limits="{budget: 1, budgetPer: {topology.kubernetes.io/zone: 1}, brake: 30%, cooldown: 2m,"
            " brakePer: {node.kubernetes.io/instance-type: 30%}, attempts: {max: 3, within: 24h},"
            " perGroup: {max: 3, within: 6h}}"
        ).limits
    )


# ---------------------------------------------------------------- order

BLOCKED = "blockers: [{pods: {labels: {app: train}}}]}"
SHUT = "{windows: [{days: sat, from: '04:00', to: '05:00'}], "
OPEN = "{windows: [{days: sat, from: '03:00', to: '05:00'}], "
LAYERS: list[tuple[str, dict[str, Any]]] = [
    ("excluded", {"node": node(labels={"noderecovery.dev/exclude": "true", TYPE: "trn1.32xlarge"})}),
    ("claimed", {"forbidden": "NVSentinel holds node-0"}),
    ("paused", {"pause": paused()}),
    ("window", {"policy": policy(limits=SHUT + BLOCKED)}),
    ("blocked", {"policy": policy(limits=OPEN + BLOCKED)}),
    ("attempts", {"starts": ATTEMPTS}),
    ("budget", {"slots": (OTHERS_SLOT,)}),
    ("cooldown", {"last_start": NOW - SECOND}),
    ("brake", {"census": TOO_MANY}),
    ("group-short", {"preflight": SHORT}),
]


def stacked(layers: list[tuple[str, dict[str, Any]]]) -> Situation:
    """One situation with all of these in the way."""
    world: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for _, changes in layers:
        for key, value in changes.items():
            in_gate = key in ("pause", "starts", "slots", "last_start")
            (shared if in_gate else world).setdefault(key, value)
    return situation(gate=gate(**shared), **world)


@pytest.mark.parametrize("first", range(len(LAYERS)))
def test_of_all_that_is_in_the_way_the_first_question_speaks(first: int) -> None:
    d = decide(stacked(LAYERS[first:]))
    name = LAYERS[first][0]
    if name == "excluded":
        assert d.report is not None
        assert d.report.event == "Withdrawn"
    elif name == "attempts":
        assert d.report is not None
        assert d.report.event == "HandedOver"
    elif name in ("window", "blocked"):  # the first time it is said on the record
        assert isinstance(d.effect, WriteRecord)
        assert d.effect.record.history[-1].event == name
    else:
        assert (d.verb, d.key) == (Verb.HOLD, name)


def test_off_speaks_before_all_others() -> None:
    assert decide(replace(stacked(LAYERS), on=False)).key == "abandoned"


def test_with_nothing_in_the_way_the_slot_is_taken() -> None:
    assert isinstance(decide(situation()).effect, TakeSlot)


BOOT_KNOWN: dict[str, Situation] = {
    "the same boot": in_boot("boot-1", heard=NOW - MINUTE, kernel_began=NOW - SECOND),
    "the kubelet has written since": in_boot("boot-2", heard=NOW, kernel_began=NOW - SECOND),
    "the kernel is believed": in_boot("b", NOW - MINUTE, kernel_began=NOW - SECOND, node_behind="is behind"),
    "no heartbeat": situation(kernel_boot="boot-2", kernel_began=NOW),
    "it was followed at once": in_boot(afar=True, unheard_since=NOW, lease=idle_for(20 * SECOND)),
    "the kubelet was heard": in_boot(afar=True, unheard_since=None, lease=idle_for(HOUR)),
    "it had time to write": in_boot(afar=True, unheard_since=NOW - MINUTE, lease=idle_for(HOUR)),
    "there was no Lease": in_boot(afar=True, unheard_since=NOW, lease=idle_for(480_000 * HOUR)),
}


@pytest.mark.parametrize("row", BOOT_KNOWN)
def test_the_boot_is_known(row: str) -> None:
    assert brakes.boot_unknown(BOOT_KNOWN[row]) is None


@pytest.mark.parametrize(
    ("heard", "watched", "proves"),
    [
        pytest.param(-MINUTE, SECOND, False, id="its kubelet last wrote before the call"),
        pytest.param(SECOND, SECOND, True, id="its kubelet has written since the call"),
        pytest.param(-MINUTE, MINUTE, True, id="a living kubelet would have put it right by now"),
        pytest.param(-MINUTE, None, True, id="its kubelet was heard"),
    ],
)
def test_a_controller_that_has_just_come_takes_no_old_word_of_a_boot_for_the_proof_of_a_reboot(
    heard: timedelta, watched: timedelta | None, proves: bool
) -> None:
    """etcd was restored to before the last boot, and the machine has ended: nobody puts its Node right."""
    asked = intent(action="reboot")
    r = record(Phase.RECOVERING, intent=replace(asked, boot_id="boot-2"))
    since = None if watched is None else NOW - watched
    s = in_boot(heard=asked.at + heard, afar=True, unheard_since=since, record=r)
    assert has_new_boot(s, r) is proves
    assert bool(standing_now(s, r)) is not proves
    handed_over = replace(r, phase=Phase.HANDED_OVER, marks=Marks(cordoned=True))
    assert (given_back_by_hand(s, assess(s), handed_over) is None) is proves


@pytest.mark.parametrize(
    ("s", "known"),
    [
        (in_boot("boot-2", NOW - MINUTE, kernel_began=NOW - SECOND), False),
        (in_boot(afar=True, unheard_since=NOW, lease=idle_for(HOUR)), False),
        *((s, True) for s in BOOT_KNOWN.values()),
    ],
    ids=["a kernel that is younger", "a leader after a gap", *BOOT_KNOWN],
)
def test_what_a_node_says_while_its_boot_is_not_known_is_no_proof_of_a_reboot(
    s: Situation, known: bool
) -> None:
    asked = replace(intent(action="reboot"), at=NOW - HOUR, boot_id="boot-0")
    r = record(Phase.RECOVERING, intent=asked)
    assert (has_new_boot(s, r), standing_now(s, r)) == ((True, ()) if known else (False, (asked,)))


@pytest.mark.parametrize(("heard", "stands"), [(-SECOND, True), (SECOND, False), (None, False)])
def test_who_reads_a_node_once_takes_a_word_from_before_the_call_for_no_proof_of_a_reboot(
    heard: timedelta | None, stands: bool
) -> None:
    """The command that releases a node asks an agent then."""
    asked = intent(action="reboot")
    r = record(Phase.HANDED_OVER, intent=replace(asked, boot_id="boot-2"))
    s = in_boot(heard=None if heard is None else asked.at + heard)
    assert bool(standing(r, s.node)) is stands


def test_a_running_recovery_is_stopped_by_these_questions_and_no_others() -> None:
    assert [key for key, _ in brakes.GOING_ON] == [
        "off",
        "excluded",
        "claimed",
        "paused",
        "window",
        "blocked",
        "boot",
        "correlated",
        "brake",
    ]


def test_before_a_start_these_questions_are_asked_in_this_order() -> None:
    assert [key for key, _ in brakes.STARTING] == [
        *("off", "excluded", "claimed", "paused", "window", "blocked"),
        *("boot", "back", "skewed", "group-worn", "heir", "correlated", "budget", "cooldown", "brake"),
        *("no-launch", "group-short", "not-alone"),
    ]
    assert [key for key, _ in brakes.UNASKED] == [
        *("off", "excluded", "claimed", "paused", "window", "blocked"),
        *("boot", "back", "skewed", "budget", "cooldown"),
    ]


def test_the_first_reason_is_none_where_no_question_has_one() -> None:
    assert brakes.first_reason(brakes.STARTING, situation()) is None


def test_a_slot_of_the_own_record_counts_like_any_other() -> None:
    out = gate(slots=(Slot("node-0", "record-0", 1, ("fleet",), datetime(2026, 1, 1, tzinfo=UTC)),))
    assert "1 of 1" in str(brakes.budget(situation(gate=out)))


# ---------------------------------------------------------------- whose turn it is

FREE = "{budget: 9, budgetPer: {}, cooldown: 0s}"


def behind(ahead: int, text: str = FREE, **changes: Any) -> Situation:
    """node-0 waits, and so many came before it."""
    lines = tuple(Line(f"node-{n}", f"record-{n}", NOW - HOUR) for n in range(ahead, 0, -1))
    mine = Line("node-0", "record-0", NOW - HOUR)
    later = Line("node-99", "record-99", NOW - HOUR)
    slots = changes.pop("slots", ())
    return limits(text, gate=gate(open=(*lines, mine, later), slots=slots), **changes)


TURNS: dict[str, tuple[Situation, str | None]] = {
    "first in the queue": (behind(0, "{budget: 1, cooldown: 1h}"), None),
    "one ahead, room for one": (behind(1, "{budget: 1, budgetPer: {}, cooldown: 0s}"), "node-1"),
    "one ahead, room for both": (behind(1), None),
    "one ahead, one start at a time": (behind(1, "{budget: 9, budgetPer: {}, cooldown: 1s}"), "node-1"),
    "one ahead, and the zone has room for one": (behind(1, "{budget: 9, cooldown: 0s}"), "node-1"),
    "two ahead, room for all": (behind(2), "node-2"),
    "two ahead that are out already": (
        behind(2, slots=(slot("node-1", "record-1"), slot("node-2", "record-2"))),
        None,
    ),
    "room for all, as far as a percentage is known": (
        behind(1, "{budget: 50%, budgetPer: {}, cooldown: 0s}"),
        None,
    ),
    "a percentage of what nobody has counted": (
        behind(1, "{budget: 50%, budgetPer: {}, cooldown: 0s}", census=None),
        "node-1",
    ),
    "four ahead, of which the first did not move": (
        behind(4, turn_waited=brakes.TURN + 4 * brakes.STAGGER),
        None,
    ),
    "four ahead, of which the first may still move": (
        behind(4, turn_waited=brakes.TURN + 3 * brakes.STAGGER),
        "node-4",
    ),
}


@pytest.mark.parametrize("row", TURNS)
def test_a_slot_is_taken_in_the_order_of_the_queue_where_that_matters(row: str) -> None:
    s, first = TURNS[row]
    assert brakes.turn(s) == (f"{first} is ahead in the queue" if first else None)


def test_a_census_of_other_nodes_than_the_policy_counts_is_none() -> None:
    counted = replace(census(), of='{"pool":"gpu"}')
    assert brakes.brake(situation(census=counted)) == "nothing is known yet of how many nodes are sick"
    assert brakes.brake(situation(census=replace(counted, of=""))) is None


@pytest.mark.parametrize(
    ("budget", "population", "few"),
    [
        (Share(count=20), 1000, True),
        (Share(count=21), 1000, False),
        (Share(percent=2.0), 1000, True),
        (Share(percent=3.0), 1000, False),
    ],
)
def test_slots_keep_providerids_where_few_nodes_may_be_out(budget: Share, population: int, few: bool) -> None:
    shares = replace(policy().limits, budget=budget, budget_per={})
    s = situation(policy=replace(policy(), limits=shares), census=census(1, population))
    assert brakes.few_out(s) is few
    taken = decide(s).effect
    assert isinstance(taken, TakeSlot)
    assert bool(taken.slot.provider_id) is few


@pytest.mark.parametrize(("others", "effect"), [(39, TakeSlot), (40, Join)])
def test_one_that_is_only_marked_joins_the_queue_once_so_many_are_out(
    others: int, effect: type[TakeSlot | Join]
) -> None:
    """The gate has room for some 70 at once: of the rest it has to be known who is next."""
    out = tuple(slot(f"node-{i}", f"record-{i}", "fleet") for i in range(1, 1 + others))
    shares = replace(policy().limits, budget=Share(count=1000), budget_per={})
    s = situation(
        policy=replace(policy(), limits=shares),
        gate=gate(open=(), slots=out),
        record=record(ladder=CORDON_ONLY, tried=(Step.DRAIN, Step.REPLACE)),
        afar=True,
    )
    assert isinstance(decide(s).effect, effect)
