"""In which boot a machine is, by what its Node says from look to look."""

from __future__ import annotations

from datetime import datetime, timedelta

from recovery.agent.boots import BEHIND, Boots, first_seen
from recovery.model import Condition, NodeView
from tests.builders.times import MINUTE, NOW, SECOND


def node(boot: str, heard: datetime | None = NOW, machine: str = "m-0") -> NodeView:
    ready = Condition("Ready", "True", "KubeletReady", "", heard, None)
    return NodeView("node-0", "u", "1", machine, boot, stated=(ready,))


def after(*said: tuple[str, datetime | None], wait: timedelta = SECOND) -> Boots:
    """What is known after a Node said each boot, with the kubelet's heartbeat."""
    boots = first_seen(node(*said[0]), NOW)
    for i, (boot, heard) in enumerate(said[1:], 1):
        boots = boots.then(node(boot, heard), NOW + i * wait)
    return boots


def test_a_new_boot_is_one_that_was_not_seen_before() -> None:
    boots = after(("b1", NOW), ("b2", NOW + MINUTE))
    assert (boots.last, boots.before, boots.since) == ("b2", ("b1",), NOW + SECOND)


def test_no_machine_goes_back_to_a_boot_that_it_was_seen_in_before() -> None:
    boots = after(("b1", NOW), ("b2", NOW + MINUTE), ("b1", NOW + 2 * MINUTE))
    assert (boots.last, boots.since) == ("b2", NOW + SECOND)


def test_a_boot_that_a_kubelet_wrote_before_it_was_heard_last_is_doubted_for_a_while() -> None:
    restored = ("b1", NOW - MINUTE)
    assert after(("b2", NOW), restored).last == "b2"
    assert after(("b2", NOW), restored, restored, wait=BEHIND).last == "b1"  # its clock was set back


def test_what_the_kubelet_puts_right_ends_the_doubt() -> None:
    boots = after(("b2", NOW), ("b1", NOW - MINUTE), ("b2", NOW + MINUTE))
    assert (boots.last, boots.doubted, boots.heard) == ("b2", None, NOW + MINUTE)


def test_a_node_that_names_no_boot_changes_nothing() -> None:
    assert after(("b1", NOW), ("", NOW + MINUTE)).last == "b1"


def test_a_kubelet_that_writes_no_heartbeat_is_believed() -> None:
    assert after(("b1", None), ("b2", None)).last == "b2"


def test_another_machine_has_boots_of_its_own() -> None:
    boots = first_seen(node("b1"), NOW).then(node("b9", NOW - MINUTE, "m-9"), NOW)
    assert (boots.machine, boots.last, boots.before) == ("m-9", "b9", ())


def test_a_boot_of_another_machine_of_that_name_is_none_of_this_ones() -> None:
    """etcd was restored to before a machine was replaced: its successor's kubelet writes to the old Node."""
    boots = first_seen(node("b1"), NOW).then(node("b9", NOW + MINUTE, "m-9"), NOW + MINUTE)
    boots = boots.then(node("b1"), NOW + 2 * MINUTE).then(node("b1", NOW + MINUTE), NOW + 2 * MINUTE)
    restored = boots.then(node("b9", NOW + 3 * MINUTE), NOW + 3 * MINUTE)
    assert (restored.last, restored.of(node("b9")).boot_id) == ("b1", "b1")
    assert restored.then(node("b2", NOW + 4 * MINUTE), NOW + 4 * MINUTE).last == "b2"


def test_a_machine_that_comes_back_under_its_name_may_be_in_the_boot_that_it_was_in() -> None:
    """Two machines went by one name, and etcd was restored to before the first one's last boot."""
    boots = after(("b0", NOW), ("b1", NOW + SECOND)).then(node("b9", NOW + MINUTE, "m-9"), NOW + MINUTE)
    restored = boots.then(node("b0"), NOW + 2 * MINUTE)
    assert restored.then(node("b1", NOW + 3 * MINUTE), NOW + 3 * MINUTE).last == "b1"


def test_a_kubelet_is_unheard_until_it_writes_again() -> None:
    assert after(("b1", NOW), ("b1", NOW)).unheard
    assert not after(("b1", NOW), ("b1", NOW + MINUTE), ("b1", NOW + MINUTE)).unheard
    assert not after(("b1", NOW), ("b2", NOW + MINUTE)).unheard
    assert after(("b1", NOW), ("b1", NOW - MINUTE)).unheard
