"""The roll that is called once a minute: what is asked, in which order, and of whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from recovery_testkit.stage import Stage, StoreTransport

from recovery.agent.fleet.never_joined import Roll
from recovery.agent.fleet.nodes import Nodes
from recovery.kube.cluster import Cluster
from recovery.model import Machine, NodeView
from recovery.provider.protocol import Provider
from recovery.provider.registry import Providers
from recovery.report.metrics import Metrics
from recovery.store.gate import Gates
from recovery.store.record import Records

MINUTE = timedelta(minutes=1)
RECORDS = "/apis/noderecovery.dev/v1alpha1/noderecoveries"


class Watch:
    """The Nodes as they were when somebody last looked."""

    def __init__(self, stage: Stage, cluster: Cluster) -> None:
        self._stage = stage
        self.known = list(cluster.list_nodes())

    def all(self) -> Iterator[NodeView]:
        return iter(self.known)

    def went(self) -> list[Any]:
        return []

    def now(self) -> Any:
        return self._stage.clock.true_time()


class Scene:
    """A machine that was launched an hour ago, and a Node beside it."""

    def __init__(self, *, whole: bool = True, provider: object = None) -> None:
        """``provider``: in place of one that lists its groups."""
        self.stage = s = Stage()
        s.add_node("node-0", "m-0")
        s.provider.launch("workers", "m-9")
        s.provider.groups["workers"].launched["m-9"] = s.clock.true_time() - 60 * MINUTE
        cluster = Cluster(StoreTransport(s.api, "roll"), s.clock, "default")
        records = Records(cluster)
        self.summoned: list[str] = []
        self.watch = Watch(s, cluster)
        self.roll = Roll(
            cluster,
            records,
            Gates(cluster, records.readable),
            Providers("fake", lambda _: cast(Provider, provider or s.provider)),
            cast(Nodes, self.watch),
            s.clock,
            15 * MINUTE,
            Metrics(),
            self.summoned.append,
            whole=whole,
            on=True,
        )

    @property
    def lists(self) -> int:
        return self.stage.store.requests["list", "nodes"]


def test_a_node_that_the_watch_does_not_show_yet_is_seen_right_before_something_is_said() -> None:
    scene = Scene()
    scene.stage.register("node-9", "m-9")
    scene.roll.round()
    assert scene.summoned == []


def test_one_that_was_told_already_costs_no_further_list_of_all_nodes() -> None:
    scene = Scene()
    before = scene.lists
    scene.roll.round()
    assert (scene.summoned, scene.lists - before) == (["never-joined.m-9"], 1)
    scene.roll.round()
    assert scene.lists - before == 1


def test_a_record_that_cannot_be_decoded_may_wait_for_any_machine() -> None:
    scene = Scene()
    body = {
        "apiVersion": "noderecovery.dev/v1alpha1",
        "kind": "NodeRecovery",
        "metadata": {"name": "node-7"},
        "status": {"version": 999, "phase": "suspect", "phaseSince": "2026-11-21T03:00:00Z"},
    }
    answer = scene.stage.store.request("POST", RECORDS, body=body)
    assert answer.ok, answer.body
    scene.roll.round()
    assert scene.summoned == []
    assert "a record may wait for any machine" in scene.roll.word("never-joined.m-9").why


def test_what_was_said_is_not_known_any_more_once_it_is_minutes_old() -> None:
    scene = Scene()
    scene.roll.round()
    assert scene.roll.word("never-joined.m-9").found is not None
    scene.stage.clock.advance(181)
    word = scene.roll.word("never-joined.m-9")
    assert (word.found, word.why) == (None, "the groups were last listed minutes ago")


def test_half_a_list_says_nothing_of_its_machines() -> None:
    scene = Scene()
    provider = scene.stage.provider
    whole = list(provider.members([Machine("fake", "m-0", "fake:///workers/m-0", "workers")]))
    provider.members = lambda _: iter([replace(whole[0], unknown="its second page was denied")])  # type: ignore[method-assign]
    scene.roll.round()
    assert scene.summoned == []


class _WithoutGroups:
    """A provider that knows its machines, and no groups of them: bare metal."""

    name = "metal"

    def identify(self, node: NodeView) -> Machine:
        return Machine("metal", node.name, node.provider_id)


def test_a_provider_without_groups_is_said_once_and_again_once_it_has_been_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(provider=_WithoutGroups())

    def said() -> list[str]:
        for _ in range(3):
            scene.roll.round()
        found = [r.getMessage() for r in caplog.records]
        caplog.clear()
        return found

    sentence = "provider metal has no groups that could be listed"
    assert said() == [sentence]
    assert said() == []
    known, scene.watch.known = scene.watch.known, []
    assert said() == []
    scene.watch.known = known
    assert said() == [sentence]
