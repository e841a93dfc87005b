"""Which machines never became a Node, and what a policy may say about them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from recovery.config.policy_file import check_for, parse_policy
from recovery.errors import SettingsError
from recovery.model import Claim, GroupMembers, Machine, Member, NodeView, Phase, Step
from recovery.signals.never_joined import AFTER, Nodes, Spared, Word, judged, name_of, spared
from recovery.signals.never_joined import NeverJoinedSource as Source
from tests.builders.records import record

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
HEAD = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\nrules:\n  - name: a\n    "


def member(name: str, **more: object) -> Member:
    machine = Machine("aws", name, f"aws:///us-west-2a/{name}", "", {})
    return replace(Member(machine, True, "InService", NOW - timedelta(hours=1)), **more)  # type: ignore[arg-type]


NODE, LATE = member("i-0123456789abcdef0"), member("i-0aaaaaaaaaaaaaaa0")
GROUP = GroupMembers("trn1", NOW, (NODE, LATE))


def nodes(*members: Member, ready: bool = True, known: bool = True) -> Nodes:
    found = Nodes()
    for m in members:
        status = ("True" if ready else "Unknown", "")
        node = NodeView("n", "u", "1", m.machine.provider_id.upper(), conditions={"Ready": status})
        found.add(node, m.machine if known else None)
    return found


def test_one_that_is_in_service_for_long_enough_and_no_node_never_joined() -> None:
    verdict = judged(GROUP, nodes(NODE), AFTER, Spared())
    (found,) = verdict.found
    assert (found.machine, found.since, verdict.alone) == (LATE.machine, LATE.launched, False)
    assert found.said.startswith(
        "i-0aaaaaaaaaaaaaaa0 of group trn1 was launched at 2026-11-23 11:00:00Z, is InService, and no Node"
    )


@pytest.mark.parametrize(
    "late",
    [
        replace(LATE, in_service=False, state="Standby"),
        replace(LATE, launched=None),
        replace(LATE, launched=NOW - AFTER + timedelta(seconds=1)),
        NODE,
    ],
    ids=["not in service", "launched nobody knows when", "launched lately", "a Node"],
)
def test_one_that_may_be_in_order_did_not(late: Member) -> None:
    assert not judged(replace(GROUP, members=(NODE, late)), nodes(NODE), AFTER, Spared()).found


def test_a_node_is_known_by_its_provider_id_alone_where_nobody_can_say_which_machine_it_is() -> None:
    assert not judged(GROUP, nodes(NODE, LATE, known=False), AFTER, Spared()).found


def test_a_replacement_is_the_business_of_its_recovery() -> None:
    for those in (
        Spared(frozenset({LATE.machine.id})),
        Spared(since={"trn1": NOW - 2 * timedelta(hours=1)}),
        Spared(since={"": NOW - 2 * timedelta(hours=1)}),
    ):
        assert not judged(GROUP, nodes(NODE), AFTER, those).found
    for those in (Spared(since={"trn2": NOW - timedelta(hours=2)}), Spared(since={"trn1": NOW})):
        assert judged(GROUP, nodes(NODE), AFTER, those).found


def test_only_an_open_record_waits_for_a_machine() -> None:
    claim = Claim("m-3", "m-1")
    waits = replace(record(), machine=Machine("fake", "m-1"), replacement_machine="m-2")
    assert spared([waits], [claim]).machines == {"m-2", "m-3"}
    assert spared([replace(waits, phase=Phase.HANDED_OVER)], [claim]).machines == frozenset()
    assert spared([], [claim]).machines == frozenset()


def test_a_group_without_a_ready_node_is_alone() -> None:
    assert judged(GROUP, nodes(), AFTER, Spared()).alone
    assert judged(GROUP, nodes(NODE, ready=False), AFTER, Spared()).alone


@pytest.mark.parametrize(
    ("id", "name", "wanted"),
    [
        ("i-0123456789abcdef0", "", "never-joined.i-0123456789abcdef0"),
        ("1A2B3C4D-0000-0000-0000-000000000000", "Set_A_12", "never-joined.set-a-12.1a2b3c4d"),
        ("m" * 400, "", "never-joined." + "m" * 187),
        ("x", ".__.", "never-joined.x"),
    ],
)
def test_its_record_has_a_name_that_an_object_may_have(id: str, name: str, wanted: str) -> None:
    found = name_of(replace(LATE, machine=replace(LATE.machine, id=id), name=name))
    assert found == wanted
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", found)


def test_what_is_not_known_is_neither_a_fault_nor_its_end() -> None:
    reading = Source("never-joined.i-1", lambda _: Word(NOW, why="the cloud does not answer")).poll("")
    assert (reading.problems, reading.cleared) == ((), frozenset())
    assert reading.silent == {"NeverJoined": "the cloud does not answer"}


# ---------------------------------------------------------------- the policy


def mistakes(rule: str) -> str:
    with pytest.raises(SettingsError) as refused:
        parse_policy((HEAD + rule).encode(), "p.yaml")
    return str(refused.value)


@pytest.mark.parametrize("step", ["cordon", "drain", "replace", "reboot"])
def test_a_rule_that_would_do_more_than_tell_is_refused(step: str) -> None:
    said = mistakes(f"match: {{type: NeverJoined}}\n    remedy: [{{do: notify}}, {{do: {step}}}]\n")
    assert said.startswith(
        f'p.yaml:6: field rules[0].remedy[1].do: found "{step}"; expected only notify: a machine that never'
    )


def test_a_rule_that_asks_for_labels_is_refused() -> None:
    assert "has no labels" in mistakes("match: {type: NeverJoined, nodeLabels: {a: b}}\n")


def test_a_machine_has_a_quarter_of_an_hour_to_join_unless_the_rule_says_otherwise() -> None:
    for text, after in (
        ("match: {type: NeverJoined}\n", timedelta(minutes=15)),
        ("match: {type: NeverJoined}\n    after: 40m\n", timedelta(minutes=40)),
        ("match: {type: Ready}\n", timedelta(0)),
    ):
        file = parse_policy((HEAD + text).encode(), "p.yaml")
        assert file.policy.rules[0].after == after
        assert not file.warnings


def test_only_fleet_mode_looks_for_them() -> None:
    file = parse_policy((HEAD + "match: {type: NeverJoined}\n").encode(), "p.yaml")
    assert [m for m in check_for(file, frozenset(Step), "", "fleet") if "NeverJoined" in m] == []
    (said,) = [m for m in check_for(file, frozenset(Step), "", "sidecar") if "NeverJoined" in m]
    assert said.startswith('p.yaml:5: field rules[0].match.type: found "NeverJoined", which only fleet mode')
