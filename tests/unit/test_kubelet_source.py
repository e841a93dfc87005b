"""What a Node's condition Ready says of its machine, look by look."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recovery.model import Condition
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
