"""The demo of a fleet: what the simulator makes of a machine that dies, of a condition, and of a kill."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recovery_demo import fleet_manifests, on_fleet, run
from recovery_demo.command import CLOUDS
from recovery_demo.fleet_manifests import DRIVER, HARDWARE
from recovery_demo.group import Member
from recovery_demo.on_fleet import OTHER_DRIVER, REPLICAS, OnFleet
from recovery_demo.sandbox import FLEET, OBSERVE
from recovery_demo.simulator import SITES
from recovery_testkit.kubernetes import KubernetesServer, KubernetesStore

from recovery.config.policy_file import check_for, parse_policy
from recovery.decide.correlated import CHANCE, Case, counted, shared, traits_of
from recovery.kube.views import node_view
from recovery.model import Step
from tests.builders.demo_sidecars import NO_CLOUD, Sidecar, arguments, pretended
from tests.builders.times import NOW

NAME = "ip-10-0-2-10"
PODS = "/api/v1/namespaces/training/pods"
Json = dict[str, Any]


class Members:
    """An Auto Scaling group; ``sick`` are those that are marked Unhealthy."""

    def __init__(self, size: int) -> None:
        self.ids = [f"i-{n}" for n in range(size)]
        self.sick: set[str] = set()

    def members(self) -> list[Member]:
        return [Member(i, "us-west-2a", healthy=i not in self.sick) for i in self.ids]

    def create(self, _: int) -> list[Member]:
        return self.members()

    def replace(self, instance: str) -> Member:
        self.ids[self.ids.index(instance)] = "i-new"
        return Member("i-new", "us-west-2a", healthy=True)


class Place(OnFleet):
    """The site with what the test needs to see of it."""

    processes: list[Sidecar]
    notices_after, boots_in = 0.0, 0.0

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__(asked)
        self.members = Members(asked.nodes)
        self._group = self.members  # type: ignore[assignment]

    def node(self, name: str = NAME) -> Json:
        return self._api.get(f"/api/v1/nodes/{name}")

    def nodes(self) -> list[Json]:
        return self._api.items("/api/v1/nodes")

    def pods(self, name: str = NAME) -> list[Json]:
        return self._api.items(PODS, fieldSelector=f"spec.nodeName={name}")

    def log(self, name: str) -> Path:
        return self._folder / "logs" / f"{name}.log"

    def look(self) -> None:
        """Look until nothing more is due: all waits are 0 here."""
        for _ in range(4):
            self._tick()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    started = pretended(monkeypatch, Sidecar)
    with KubernetesServer(KubernetesStore()) as server:
        found = Place(arguments(tmp_path, server.url, 40, **NO_CLOUD))
        found.processes = started
        try:
            found.begin()
            yield found
        finally:
            found.end()


def conditions(node: Json) -> dict[str, str]:
    return {c["type"]: c["status"] for c in node["status"]["conditions"]}


def printed(capsys: pytest.CaptureFixture[str]) -> list[Json]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_nothing_runs_on_the_nodes_and_one_replica_leads_before_the_other_starts(place: Place) -> None:
    place.look()
    assert [p.environment["RECOVERY_MODE"] for p in place.processes] == ["fleet"]
    assert "NODE_NAME" not in place.processes[0].environment
    place.log(REPLICAS[0]).write_text("INFO this replica leads\n")
    place.look()
    assert len(place.processes) == 2


def test_a_replica_is_told_of_when_it_says_that_it_is_ready(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(on_fleet, "ready_on", lambda log: 9108 if b"serving" in log else None)
    place.look()
    assert "ready" not in [x["did"] for x in printed(capsys)]
    place.log(REPLICAS[0]).write_text("serving\n")
    place.look()
    assert printed(capsys) == [{"did": "ready", "node": REPLICAS[0], "process": 4711}]


def test_a_replica_that_is_killed_is_not_started_again(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.log(REPLICAS[0]).write_text("this replica leads\n")
    place.look()
    place.do({"kill": REPLICAS[0]})
    place.look()
    assert [p.killed for p in place.processes] == [True, False]
    assert [x["did"] for x in printed(capsys)][-1] == "killed"


def test_a_replica_that_ends_by_itself_is_told_of(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.processes[0].killed = True
    place.look()
    assert printed(capsys)[-1] == {"did": "ended", "node": REPLICAS[0], "code": -9}


def test_of_a_machine_that_is_dead_the_node_controller_speaks(place: Place) -> None:
    place.do({"dies": NAME})
    node = place.node()
    assert conditions(node) == {"Ready": "Unknown", HARDWARE: "True"}
    assert {t["key"] for t in node["spec"]["taints"]} == {"node.kubernetes.io/unreachable"}
    assert place.pods()
    assert {c["status"] for p in place.pods() for c in p["status"]["conditions"]} == {"False"}


def test_a_condition_is_written_to_the_nodes_that_are_named_and_to_no_other(place: Place) -> None:
    names = [NAME, "ip-10-0-2-11"]
    place.do({"states": "NvidiaXID119Error", "nodes": names})
    bad = [n["metadata"]["name"] for n in place.nodes() if conditions(n)[HARDWARE] == "False"]
    assert bad == names
    assert conditions(place.node())["Ready"] == "True"


def test_a_machine_that_is_marked_is_replaced_by_one_with_the_old_driver(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"ip-10-0-2-{10 + OTHER_DRIVER[0]}"
    assert place.node(name)["metadata"]["labels"][DRIVER] == fleet_manifests.TRIED_ELSEWHERE
    place.members.sick = {f"i-{OTHER_DRIVER[0]}"}
    place.look()
    assert [x["did"] for x in printed(capsys)][-4:] == ["noticed", "terminated", "launched", "joined"]
    assert name not in [n["metadata"]["name"] for n in place.nodes()]
    assert place.node("ip-10-0-2-50")["metadata"]["labels"][DRIVER] == fleet_manifests.TRIED


def test_three_of_the_machines_with_the_other_driver_are_no_chance(place: Place) -> None:
    nodes = {n["metadata"]["name"]: node_view(n, whole=True) for n in place.nodes()}
    names = [f"ip-10-0-2-{10 + number}" for number in OTHER_DRIVER[:3]]
    cases = tuple(Case(name, NOW, traits_of(nodes[name])) for name in names)
    found = shared(cases, *counted(nodes.values()))
    assert found is not None
    assert found.trait == (DRIVER, fleet_manifests.TRIED_ELSEWHERE)
    assert found.chance < CHANCE


def test_its_policy_is_one_for_a_fleet() -> None:
    file = parse_policy(fleet_manifests.policy("2s").encode(), "policy.yaml")
    policy = file.policy
    assert check_for(file, frozenset(Step), "", "fleet") == []
    assert [rule.match.type for rule in policy.rules] == [HARDWARE, "Ready"]
    assert [source.name for source in policy.sources] == ["conditions"]


def test_every_cloud_that_the_command_takes_has_a_story_and_a_site_and_so_has_the_fleet() -> None:
    assert tuple(run.STORIES) == tuple(SITES) == (*CLOUDS, OBSERVE, FLEET)


def test_a_fleet_is_shown_on_aws_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.run(fast=True, keep=False, cloud="azure", mode="fleet") == run.USAGE
    assert capsys.readouterr().err == (
        "The demo of a fleet is on AWS: MODE=fleet with CLOUD=aws, or without CLOUD.\n"
    )


def test_a_mode_without_a_story_is_refused_with_those_that_have_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run.run(fast=True, keep=False, cloud="aws", mode="concluder") == run.USAGE
    assert capsys.readouterr().err == (
        "There is no demo of MODE=concluder. Try one of MODE=sidecar, MODE=fleet.\n"
    )
