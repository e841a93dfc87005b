"""What in a policy limits nothing is told by the Nodes and the pods that there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from recovery.agent.fleet.program import FleetProgram
from recovery.cli import main
from recovery.config.policy_file import PolicyFile, load_builtin, parse_policy
from recovery.config.policy_reach import of_nodes, of_own_node
from recovery.console.api import UserApi
from recovery.console.policy_cluster import findings
from recovery.model import NodeView
from tests.builders import nodes
from tests.builders.nodes import node

HEAD = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
FULL = """\
limits:
  budgetPer:
    rack: 1
    pool: {h100: 2, h10: 1, "*": 1}
  brakePer: {poool: {h100: 20%}}
  population: {labels: {poll: gpu*}}
exclude:
  - labels: {noderecovery.dev/exclude: "true"}
  - labels: {keep-out: "yes", pool: nobody}
rules:
  - name: a
    match: {nodeLabels: {pool: "a1*"}}
  - name: b
    match: {nodeLabels: {pool: "h1*"}}
"""
NODES = ({"pool": "h100", "rack": "1"}, {"pool": "t4"})


def parsed(text: str) -> PolicyFile:
    return parse_policy((HEAD + text).encode(), "p.yaml")


def test_each_limit_and_rule_that_no_node_meets_is_named_with_its_line() -> None:
    assert of_nodes(parsed(FULL), NODES) == [
        "p.yaml:6: field limits.budgetPer.pool.h10: no node has pool=h10, so it limits nothing",
        "p.yaml:7: field limits.brakePer.poool: no node has the label poool, so it limits nothing",
        "p.yaml:8: field limits.population: no node has poll=gpu*, so nothing is ever started",
        "p.yaml:11: field exclude[1].labels.keep-out: no node has the label keep-out, so it excludes nothing",
        "p.yaml:14: field rules[0].match.nodeLabels: no node has pool=a1*, so rule a matches nothing",
    ]


def test_what_a_policy_has_by_default_is_not_told_nor_is_a_cluster_without_nodes() -> None:
    assert of_nodes(parsed("rules: []\n"), [{}]) == []
    assert of_nodes(parsed(FULL), []) == []
    assert of_nodes(load_builtin(), [{}]) == of_own_node(load_builtin(), {}) == []


def test_all_is_well_where_every_part_meets_a_node() -> None:
    met = FULL.replace("poool", "pool").replace("poll", "pool").replace("gpu*", "h*").replace("h10:", "t4:")
    met = met.replace("keep-out", "rack").replace("a1*", "t*")
    assert of_nodes(parsed(met), NODES) == []


def test_a_share_of_a_large_fleet_that_is_more_than_may_be_out_is_told() -> None:
    file = parsed("limits: {budget: 10%, population: {labels: {pool: h*}}}\nrules: []\n")
    fleet = [*({"pool": "h100"},) * 520, *({"pool": "cpu"},) * 999]
    told = "10% of 520 nodes is 52, but at most 50 are out at a time; more needs fleet mode"
    assert of_nodes(file, fleet) == [f"p.yaml:3: field limits.budget: {told}"]
    assert of_nodes(file, fleet[20:]) == of_nodes(file, fleet, mode="fleet") == []


def test_a_brake_that_lost_its_percent_sign_and_so_never_holds_is_told() -> None:
    file = parsed("limits: {brake: 30, population: {labels: {pool: h*}}}\nrules: []\n")
    fleet = [*({"pool": "h100"},) * 30, *({"pool": "cpu"},) * 999]
    told = 'as many as 30 nodes may be sick, and 30 are counted, so it never holds; did you mean "30%"?'
    assert of_nodes(file, fleet) == of_nodes(file, fleet, mode="fleet")
    assert of_nodes(file, fleet) == [f"p.yaml:3: field limits.brake: {told}"]
    assert of_nodes(file, [{"pool": "h100"}, *fleet]) == []
    assert of_nodes(parsed("limits: {brake: 100%}\nrules: []\n"), fleet) == []


def test_one_node_shows_only_what_does_not_hold_for_itself() -> None:
    assert of_own_node(parsed(FULL), {"pool": "h100"}) == [
        "p.yaml:5: field limits.budgetPer.rack: this node has no label rack, so this limit does not apply",
        "p.yaml:7: field limits.brakePer.poool: this node has no label poool, so this limit does not apply",
        "p.yaml:8: field limits.population: this node does not have poll=gpu*, so percentages and the "
        "brake do not count it",
    ]
    assert of_own_node(parsed("rules: []\n"), {}) == []


def test_an_agent_says_at_its_start_which_drain_is_too_short_for_its_pods() -> None:
    slow = nodes.pod(grace=timedelta(minutes=14))
    (said,) = of_own_node(parsed(DRAINS), {"pool": "gpu"}, [nodes.pod(), slow])
    assert said.startswith(
        "p.yaml:6: field rules[0].remedy[0].within: 10 min, but pod default/train may take"
    )


# ---------------------------------------------------------------- a drain that is shorter than its pods


DRAINS = """\
drain: {pods: [{match: {namespaces: kept}, mode: never}]}
exclude: [{labels: {mine: "*"}}]
rules:
  - {name: a, match: {nodeLabels: {pool: gpu}}, remedy: [{do: drain, within: 10m}, {do: replace}]}
  - {name: b, match: {}, remedy: [{do: drain}]}
  - {name: c, match: {}}
"""


class Cluster:
    """What the caller may list."""

    def __init__(self, pods: tuple[dict[str, Any], ...], **labels: str) -> None:
        self.pods = pods
        self.labels = labels

    def list_nodes(self) -> Iterator[NodeView]:
        yield replace(node(), name="n", labels=self.labels)

    def all_pods(self, node: str = "") -> Iterator[dict[str, Any]]:
        yield from self.pods


def pod(name: str, minutes: int | None, owner: str = "Job", **more: Any) -> dict[str, Any]:
    grace = {} if minutes is None else {"terminationGracePeriodSeconds": minutes * 60}
    meta = {
        "name": name,
        "namespace": more.get("namespace", "ml"),
        "ownerReferences": [{"kind": owner, "controller": True}],
    }
    spec = {"nodeName": more.get("node", "n"), **grace}
    return {"metadata": meta, "spec": spec, "status": {"phase": more.get("phase", "Running")}}


def told(*pods: dict[str, Any], **labels: str) -> list[str]:
    return [x for x in findings(cast(UserApi, Cluster(pods, **labels)), parsed(DRAINS)) if ".within" in x]


def test_the_time_that_a_pod_has_to_end_by_itself_counts_before_its_grace_period() -> None:
    """It is evicted after that, and the drain was over before its grace period was: a person got the node."""
    waits = DRAINS.replace("mode: never", "mode: wait, within: 9m")
    slow = [
        nodes.pod(grace=timedelta(minutes=8)),
        nodes.pod("kept", namespace="kept", grace=timedelta(minutes=2)),
    ]
    assert of_own_node(parsed(waits), {"pool": "gpu"}, slow) == [
        "p.yaml:6: field rules[0].remedy[0].within: 10 min, but pod kept/kept may take 11 min to end "
        "(drain.pods[0] and terminationGracePeriodSeconds): the drain is over before such a pod is"
    ]


def test_a_drain_that_is_over_before_its_pods_are_is_told_with_the_slowest_of_them() -> None:
    slow = [pod("train-0", 12), pod("train-1", 14), pod("web", 1)]
    assert told(*slow, pool="gpu") == [
        "p.yaml:6: field rules[0].remedy[0].within: 10 min, but pod ml/train-1 may take 14 min to end "
        "(terminationGracePeriodSeconds): the drain is over before such a pod is"
    ]
    assert [x.split(":")[1] for x in told(pod("x", 20), pool="gpu")] == ["6", "7"]
    assert [x.split(":")[1] for x in told(pod("x", 20), pool="cpu")] == ["7"], "rule a is for other nodes"


@pytest.mark.parametrize(
    "item",
    [
        pod("daemon", 99, owner="DaemonSet"),
        pod("static", 99, owner="Node"),
        pod("over", 99, phase="Succeeded"),
        pod("kept", 99, namespace="kept"),
        pod("elsewhere", 99, node="another"),
        pod("by default", None),
        pod("quick", 10),
    ],
    ids=lambda item: item["metadata"]["name"],
)
def test_a_pod_that_no_drain_waits_for_in_vain_is_not_told(item: dict[str, Any]) -> None:
    assert told(item, pool="gpu") == []


def test_pods_on_a_node_that_is_excluded_are_not_told() -> None:
    assert told(pod("x", 99), pool="gpu", mine="yes") == []


def test_the_command_warns_of_it_and_the_policy_is_valid_all_the_same(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(HEAD + FULL)
    asked: list[Any] = []
    monkeypatch.setattr(
        "recovery.console.api.connect", lambda target: asked.append(target) or Cluster((), pool="h100")
    )
    assert main(["policy", "check", str(path)]) == 0
    assert not asked, "without --cluster nobody is asked"
    capsys.readouterr()
    assert main(["policy", "check", "--cluster", "--context", "prod", str(path)]) == 0
    out, err = capsys.readouterr()
    assert asked[0].context == "prod"
    assert "a valid policy" in out
    assert f"warning: {path}:5: field limits.budgetPer.rack: no node has the label rack" in err


# ---------------------------------------------------------------- at the start of an agent


def test_the_controller_says_it_once_when_it_knows_all_nodes(caplog: pytest.LogCaptureFixture) -> None:
    nodes = SimpleNamespace(in_sync=False, all=lambda: (replace(node(), labels=x) for x in NODES))
    settings = SimpleNamespace(fleet_selector="gpu=true", policy_file=parsed(FULL))
    program: Any = SimpleNamespace(
        _policy_looked_at=False,
        _beyond_all=list,
        replica=SimpleNamespace(nodes=nodes),
        _settings=settings,
    )
    FleetProgram._look_at_policy(program)
    assert not caplog.messages
    nodes.in_sync = True
    FleetProgram._look_at_policy(program)
    FleetProgram._look_at_policy(program)
    assert len(caplog.messages) == 5
    assert "no node of FLEET_SELECTOR has pool=h10" in caplog.messages[0]
