"""How often the pods of a node are listed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from recovery_testkit.clock import FakeClock

from recovery.agent.backoff import LONGEST_RETRY_AFTER
from recovery.agent.pods_look import PodsLook
from recovery.agent.world import World
from recovery.errors import TooManyRequests
from recovery.model import PodChoice, PodView


class Busy:
    """An API server that asks for a day of rest, once."""

    def __init__(self) -> None:
        self.asked = 0

    def list_pods(self, node: str) -> tuple[PodView, ...]:
        self.asked += 1
        if self.asked == 1:
            raise TooManyRequests("slow down", 429, 86400.0)
        return ()


def test_a_retry_after_of_a_day_keeps_no_page_unread_for_a_day() -> None:
    clock, cluster = FakeClock(), Busy()
    world = cast(World, SimpleNamespace(clock=clock, cluster=cluster))
    look = PodsLook(
        world, "node-0", {"dcgm": PodChoice(("gpu-operator",), ({"app": "dcgm"},), 9400)}, lambda: 9
    )
    look.find("dcgm", anew=True, sure=True)
    clock.advance(LONGEST_RETRY_AFTER - 1)
    look.find("dcgm", anew=True, sure=True)
    assert cluster.asked == 1
    clock.advance(2)
    look.find("dcgm", anew=True, sure=True)
    assert cluster.asked == 2
