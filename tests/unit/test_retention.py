"""What a closed record is still needed for, and how it is deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock

from recovery.config.policy_file import parse_policy
from recovery.decide.retention import (
    LEAST,
    counts_on,
    expired,
    keeps_from_treatment,
    nothing_wrong,
    still_counts,
)
from recovery.errors import Conflict, Expired
from recovery.kube.cluster import Cluster
from recovery.kube.paging import TRIES, folded
from recovery.kube.transport import Response
from recovery.model import Evidence, Marks, Phase, Progress, Retention, Start, Validation, ValidationRun
from tests.builders.faults import edge, fault, problem, reading, silent
from tests.builders.nodes import node
from tests.builders.policies import HEAD, policy
from tests.builders.records import intent, record
from tests.builders.times import HOUR, MINUTE, NOW

LIMITS = policy().limits
OLD = {"phase_since": NOW - timedelta(days=31)}
NEEDED: dict[str, tuple[dict[str, Any], str | None]] = {
    "nothing": ({}, None),
    "open": ({"phase": Phase.WAITING}, "it is open"),
    "handed over": ({"phase": Phase.HANDED_OVER}, "a person has the node"),
    "marks": ({"marks": Marks(cordoned=True)}, "it names marks on its node"),
    "young": ({"phase_since": NOW - LEAST + MINUTE}, "it was closed within a day"),
    "a start": ({"starts": (Start(NOW - 23 * HOUR, "m-0", "DMA"),)}, "a limit counts its starts"),
    "an old start": ({"starts": (Start(NOW - 25 * HOUR, "m-0", "DMA"),)}, None),
    "the same incident": ({"recovered_at": NOW - HOUR}, "the same fault would be the same incident"),
    "another incident": ({"recovered_at": NOW - 2 * HOUR}, None),
    "a validation": (
        {"validate": Validation("c", HOUR), "validation": ValidationRun("j", NOW - MINUTE)},
        "its validation runs",
    ),
    "an old validation": (
        {"validate": Validation("c", HOUR), "validation": ValidationRun("j", NOW - 2 * HOUR)},
        None,
    ),
}


@pytest.mark.parametrize("row", NEEDED)
def test_what_a_record_is_needed_for_by_itself(row: str) -> None:
    changes, why = NEEDED[row]
    phase = changes.get("phase", Phase.RECOVERED)
    fields = {**OLD, **{k: v for k, v in changes.items() if k != "phase"}}
    assert still_counts(record(phase, **fields), LIMITS, NOW) == why


def test_a_record_expires_after_what_the_policy_says() -> None:
    for age, gone in ((30, False), (31, True)):
        made = record(Phase.RECOVERED, phase_since=NOW - timedelta(days=age))
        assert expired(made, LIMITS, NOW) is gone


def test_what_a_record_is_needed_for_on_its_node() -> None:
    done = record(Phase.RECOVERED, intent=intent())
    assert counts_on(done, node(), "m-0") is None, "it was proved"
    assert counts_on(done, node(), "") is not None
    assert counts_on(done, node(labels={"noderecovery.dev/exclude": "true"}), "m-0") == "its node is excluded"
    released = replace(done, phase=Phase.RELEASED)
    assert counts_on(released, node(), "m-0") == "what was asked of its machine may still come"
    assert counts_on(released, node(), "m-1") is None
    for settled in (Progress(taken_back=(1,)), Progress(evidence=Evidence(1, NOW, "gone"))):
        assert counts_on(replace(released, progress=settled), node(), "m-0") is None
    lost = record(Phase.LOST)
    assert counts_on(lost, node(boot_id="boot-1"), "m-0") is not None
    assert counts_on(lost, node(boot_id="boot-2"), "m-0") is None


def test_a_record_keeps_faults_of_its_machine_and_boot_from_being_treated() -> None:
    here = node(boot_id="boot-1")
    assert keeps_from_treatment(record(Phase.RELEASED, acknowledged=(fault(),)), here, "m-0")
    assert keeps_from_treatment(record(Phase.RELEASED, acknowledged_more="aB3dE9"), here, "m-0")
    for machine, boot in (("m-1", "boot-1"), ("m-0", "boot-2")):
        there = node(boot_id=boot)
        both = record(Phase.RELEASED, acknowledged=(fault(),), acknowledged_more="aB3dE9")
        assert not keeps_from_treatment(both, there, machine)


def test_nothing_is_wrong_only_where_everything_can_be_read() -> None:
    assert nothing_wrong((reading(),))
    assert nothing_wrong((reading(edge("OOMKilling", MINUTE)),)), "it happened, and is over"
    assert not nothing_wrong(())
    assert not nothing_wrong((reading(problem()),))
    assert not nothing_wrong((reading(), silent(NOW)))


def test_the_policy_says_how_long_records_are_kept() -> None:
    def kept(limits: str) -> Retention:
        return parse_policy(f"{HEAD}limits: {limits}\nrules: []\n".encode(), "p").policy.limits.records

    assert kept("{}") == Retention(timedelta(days=30), 5000)
    assert kept("{records: {keep: 24h}}") == Retention(timedelta(days=1), 5000)
    assert kept("{records: {max: 10}}") == Retention(timedelta(days=30), 10)


class Server:
    """Answers every request so."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.asked: list[tuple[str, str, Any]] = []

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> Response:
        self.asked.append((method, path, body))
        return Response(self.status, {}, {})


def test_a_record_is_deleted_by_uid_and_version() -> None:
    server = Server(200)
    Cluster(server, FakeClock(), "default").delete_record("n", "uid-1", "7")
    ((method, path, body),) = server.asked
    assert (method, path) == ("DELETE", "/apis/noderecovery.dev/v1alpha1/noderecoveries/n")
    assert body["preconditions"] == {"uid": "uid-1", "resourceVersion": "7"}
    with pytest.raises(Conflict):
        Cluster(Server(409), FakeClock(), "default").delete_record("n", "uid-1", "7")


def test_a_list_that_always_expires_is_an_error() -> None:
    server = Server(410)
    cluster = Cluster(server, FakeClock(), "default")
    with pytest.raises(Expired):
        folded(lambda: list(cluster.list_records()))
    assert len(server.asked) == TRIES
