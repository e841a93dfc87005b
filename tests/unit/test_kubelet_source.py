"""What a Node's condition Ready says of its machine, look by look."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from recovery.model import Condition
from recovery.quick import replace
from recovery.signals.kubelet import KubeletSource
from recovery.signals.own_node import Seen
from tests.builders.nodes import node
from tests.builders.times import MINUTE, NOW


@pytest.mark.parametrize(("uid", "held"), [("uid-node-0", 1), ("uid-of-the-next", 0)])
def test_what_a_dead_machine_left_behind_says_nothing_of_the_next_one_of_its_name(
    uid: str, held: int
) -> None:
    """A Node that is Ready again has to stay so for a minute. A new Node was never anything else."""
    dead = node(stated=(Condition("Ready", "Unknown", "NodeStatusUnknown", transition=NOW - MINUTE),))
    well = node(uid=uid, stated=(Condition("Ready", "True", "KubeletReady", transition=NOW),))
    looks = iter([Seen(dead, NOW, 2 * MINUTE), Seen(well, NOW + timedelta(seconds=2), 2 * MINUTE)])
    source = KubeletSource(lambda _: next(looks))
    assert [len(source.poll("").problems) for _ in range(2)] == [1, held]


@pytest.mark.parametrize(("boot", "held"), [("boot-1", 1), ("boot-2", 0)])
def test_a_node_that_is_ready_after_a_boot_is_not_what_it_was_before_it_nor_known_to_be_well(
    boot: str, held: int
) -> None:
    """With a short ``after`` each reboot of a dead machine was for nothing: its fault was back at once."""
    dead = node(
        boot_id="boot-1", stated=(Condition("Ready", "Unknown", "NodeStatusUnknown", transition=NOW),)
    )
    well = node(boot_id=boot, stated=(Condition("Ready", "True", "KubeletReady", transition=NOW),))
    looks = iter([Seen(dead, NOW, 2 * MINUTE), Seen(well, NOW + timedelta(seconds=2), 2 * MINUTE)])
    source = KubeletSource(lambda _: next(looks))
    assert len(source.poll("").problems) == 1
    found = source.poll("")
    assert len(found.problems) == held
    assert found.unconfirmed if not held else found.unknown
    assert not found.cleared


def test_who_comes_later_takes_nothing_back_until_the_node_was_ready_for_a_minute() -> None:
    """And holds nothing else up: what is good and too new is not unknown."""
    well = node(stated=(Condition("Ready", "True", "KubeletReady", transition=NOW),))
    looks = iter([Seen(replace(well), NOW + timedelta(seconds=s), 2 * MINUTE) for s in (0, 59, 60)])
    source = KubeletSource(lambda _: next(looks))
    read = [source.poll("") for _ in range(3)]
    assert [r.took_back("Ready", "KubeletNotReady") for r in read] == [False, False, True]
    assert ["Ready" in r.unconfirmed for r in read] == [True, True, False]
    assert all(not r.unknown and not r.silent for r in read)


@pytest.mark.parametrize(("status", "since"), [("False", NOW), ("Unknown", NOW - 60 * MINUTE)])
def test_what_a_kubelet_writes_by_a_clock_that_is_an_hour_slow_begins_when_it_is_seen(
    status: str, since: datetime
) -> None:
    """A machine that boots may have no right time yet. Unknown is written by a controller of the cluster."""
    down = node(stated=(Condition("Ready", status, "Kubelet", transition=NOW - 60 * MINUTE),))
    source = KubeletSource(lambda _: Seen(down, NOW, 2 * MINUTE))
    assert [p.since for p in source.poll("").problems] == [since]
