"""What makes the search quick changes no history, and hides no program that changes what it has read."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from recovery_testkit.kubestore import KubernetesStore

from recovery.kube import cluster
from tests.search import play
from tests.search.once import decoded_once
from tests.search.seeds import DENSE_FROM, FLEET_FROM, script_of
from tests.search.world import CHECKED_EVERY, World

SEEDS = (17, FLEET_FROM + 17, DENSE_FROM + 7001)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_is_the_same_where_everybody_gets_copies_and_decodes_them_anew(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = play.play(script_of(seed)).digest()
    copies = property(lambda store: False, lambda store, to: None)
    monkeypatch.setattr(KubernetesStore, "shares", copies, raising=False)
    monkeypatch.setattr(play, "decoded_once", nullcontext)
    assert play.play(script_of(seed)).digest() == quick


def test_who_changes_what_it_has_read_is_found() -> None:
    w = World(script_of(CHECKED_EVERY).scene, CHECKED_EVERY)
    w.unchanged()
    w.store.request("GET", "/api/v1/nodes/node-0").body["spec"]["unschedulable"] = True
    with pytest.raises(AssertionError, match="somebody changed what was read"):
        w.unchanged()


def test_each_read_of_a_node_is_a_look_of_its_own() -> None:
    """Sources go by how often a Node was looked at."""
    w = World(script_of(1).scene, 1)
    node = w.store.request("GET", "/api/v1/nodes/node-0").body
    with decoded_once():
        first, second = cluster.node_view(node), cluster.node_view(node)
    assert first == second
    assert first is not second
