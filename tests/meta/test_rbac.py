"""What ``deploy/rbac`` grants, ``rights.py`` lists and ``cluster.py`` asks for are the same verbs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from recovery_testkit.clock import FakeClock

from recovery.kube.cluster import Cluster
from recovery.kube.rights import (
    CHECKPOINT,
    CONCLUDERS,
    CONTROLLERS,
    NPD_TOKEN,
    OBSERVERS,
    OBSERVING_CONTROLLERS,
    OWN,
    POWER,
    RIGHTS,
    VALIDATION,
    Right,
)
from recovery.kube.transport import Response
from recovery.model import ClusterDelete
from tests.builders.nodes import pod
from tests.builders.times import NOW

RBAC = Path(__file__).resolve().parents[2] / "deploy" / "rbac"
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
CLAIM = ClusterDelete("karpenter.sh/v1", "nodeclaims", "claim", "uid")
CALLS: dict[str, tuple[Any, ...]] = {
    "get_node": ("n",),
    "list_nodes": (),
    "count_nodes": (),
    "is_selected": ("n", "pool=gpu"),
    "nodes_of": ("", lambda _: None),
    "patch_node": ("n", {}),
    "list_pods": ("n",),
    "turned_away": ("j",),
    "pods_lately": ("n",),
    "failed_pods_version": (),
    "running_elsewhere": ("default", {"uid"}, "node", NOW),
    "nodes_running": ("ns", "l", "v"),
    "evict": (pod(),),
    "get_record": ("n",),
    "list_records": (),
    "named_of": ("/apis/noderecovery.dev/v1alpha1/noderecoveries", {}),
    "create_record": ({"metadata": {"name": "n"}},),
    "replace_record": ({"metadata": {"name": "n"}},),
    "delete_record": ("n", "uid", "7"),
    "get_gate": (),
    "create_gate": ({},),
    "replace_gate": ({},),
    "get_report": (),
    "create_report": ({},),
    "replace_report": ({},),
    "get_lease": ("l",),
    "create_lease": ({"metadata": {"name": "l"}},),
    "replace_lease": ({"metadata": {"name": "l"}},),
    "create_event": ({},),
    "list_node_events": ("n", "aks-auto-repair"),
    "list_reboots": (),
    "patch_event": ("e", {}),
    "deleting": (CLAIM,),
    "delete": (CLAIM,),
    "whose": ("token", "audience"),
}
POD = pod()
NPD_ACCOUNT: dict[str, tuple[Any, ...]] = {"node_token": ("an-account", "n")}
"""What deploy/npd-account grants."""
OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "checkpoint": {"annotate_pod": (POD, {})},
    "validation": {"get_cron_job": ("c",), "get_job": ("j",), "create_job": ({},)},
}
"""What a field of the policy asks for, and which of deploy/options grants it."""
WRITTEN_BY_OBSERVERS = {
    *(("create", "events"), ("patch", "events"), ("create", "tokenreviews")),
    *(("create", "recoveryreports"), ("update", "recoveryreports")),
}
"""All of law 7, and the question whose token somebody brings, which leaves nothing behind."""
NO_CALLS = {"read_since", "ours_read_since", "forget", "forget_record", "all_known"}
"""They ask the API server for nothing."""
DELEGATED = {"get_object", "patch_object"}
"""On objects that a provider names: granted by whoever switches that on, in deploy/baremetal."""


class Recorder:
    """Answers everything, and remembers as RBAC would see it: (verb, group, resource, namespaced)."""

    def __init__(self) -> None:
        self.asked: set[tuple[str, str, str]] = set()

    def request(self, method: str, path: str, **_: Any) -> Response:
        core = re.fullmatch(r"/api/v1(?:/namespaces/[^/]+)?/(?P<rest>.+)", path)
        other = re.fullmatch(r"/apis/(?P<group>[^/]+)/[^/]+(?:/namespaces/[^/]+)?/(?P<rest>.+)", path)
        found = core or other
        assert found is not None, path
        group = "" if core else other["group"] if other else ""
        resource, *names = found["rest"].split("/")
        verb = "list" if method == "GET" and not names else VERBS[method]
        if len(names) > 1:
            resource = f"{resource}/{names[1]}"
        self.asked.add((verb, group, resource))
        meta = {"name": "n", "uid": "uid", "resourceVersion": "1"}
        answer = {"kind": "Status", "metadata": meta, "items": []}
        more = {"status": {"token": "t"}, "spec": {"expirationSeconds": 1}} if "token" in resource else {}
        return Response(200, {}, answer | more)


@pytest.fixture
def asked() -> set[tuple[str, str, str]]:
    return asked_by(CALLS)


def asked_by(calls: Mapping[str, tuple[Any, ...]]) -> set[tuple[str, str, str]]:
    recorder = Recorder()
    cluster = Cluster(recorder, FakeClock(), "default")
    for name, arguments in calls.items():
        found = getattr(cluster, name)(*arguments)
        if inspect.isgenerator(found):
            list(found)
    return recorder.asked


def granted() -> set[tuple[str, str, str]]:
    rules: set[tuple[str, str, str]] = set()
    for file in ("clusterrole.yaml", "role.yaml"):
        for document in yaml.safe_load_all((RBAC / file).read_text()):
            rules |= set(expanded(document["rules"]))
    return rules


def expanded(rules: list[Mapping[str, list[str]]]) -> list[tuple[str, str, str]]:
    return [
        (verb, group, resource)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]


def test_every_public_call_of_the_cluster_is_weighed_here() -> None:
    public = {n for n, _ in inspect.getmembers(Cluster, inspect.isfunction) if not n.startswith("_")}
    weighed = (
        set(CALLS) | set(NPD_ACCOUNT) | DELEGATED | {call for calls in OPTIONS.values() for call in calls}
    )
    assert public - NO_CALLS == weighed


def test_each_verb_that_the_program_uses_is_granted_and_none_other(asked: set[tuple[str, str, str]]) -> None:
    assert granted() == asked


def test_the_table_that_doctor_asks_by_lists_each_of_them_once(asked: set[tuple[str, str, str]]) -> None:
    listed = [(r.verb, r.group, f"{r.resource}/{r.subresource}".rstrip("/")) for r in RIGHTS]
    assert len(set(listed)) == len(listed)
    assert set(listed) == asked


def test_what_is_needed_in_the_agents_own_namespace_alone_is_granted_there_alone() -> None:
    (role,) = yaml.safe_load_all((RBAC / "role.yaml").read_text())
    own = {(r.verb, r.group, r.resource) for r in RIGHTS if r.namespace == OWN}
    assert set(expanded(role["rules"])) == own


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_grants_what_its_field_of_the_policy_asks_for_and_none_other(option: str) -> None:
    documents = yaml.safe_load_all((RBAC.parent / "options" / option / "rbac.yaml").read_text())
    rules = [rule for d in documents if d["kind"] in ("Role", "ClusterRole") for rule in d["rules"]]
    assert set(expanded(rules)) == asked_by(OPTIONS[option])
    table = [r for r in (*CHECKPOINT, *VALIDATION) if r.granted_by == f"deploy/options/{option}"]
    assert {(r.verb, r.group, r.resource) for r in table} == asked_by(OPTIONS[option])


def test_for_the_detectors_account_an_agent_is_granted_its_token_alone() -> None:
    role, _ = yaml.safe_load_all((RBAC.parent / "npd-account" / "rbac.yaml").read_text())
    assert set(expanded(role["rules"])) == asked_by(NPD_ACCOUNT)
    assert {(r.verb, r.group, f"{r.resource}/{r.subresource}") for r in NPD_TOKEN} == asked_by(NPD_ACCOUNT)
    assert {r.namespace for r in NPD_TOKEN} == {OWN}


def test_the_controller_is_granted_what_it_uses_and_nothing_else() -> None:
    documents = yaml.safe_load_all((RBAC.parent / "fleet" / "rbac.yaml").read_text())
    rules = {d["kind"]: set(expanded(d["rules"])) for d in documents if "rules" in d}
    used: dict[bool, set[tuple[str, str, str]]] = {True: set(), False: set()}
    for r in CONTROLLERS:
        used[r.namespace == OWN].add((r.verb, r.group, f"{r.resource}/{r.subresource}".rstrip("/")))
    assert rules == {"ClusterRole": used[False], "Role": used[True]}


def test_no_rule_is_written_with_a_wildcard() -> None:
    assert not [rule for rule in granted() if "*" in rule]


def rules_in(file: str) -> set[tuple[str, str, str]]:
    found = yaml.safe_load_all((RBAC.parent / file).read_text())
    return {right for d in found if d["kind"] == "ClusterRole" for right in expanded(d["rules"])}


def test_the_concluder_is_granted_what_it_uses_and_nothing_on_nodes_or_pods_but_to_look() -> None:
    listed = {(r.verb, r.group, f"{r.resource}/{r.subresource}".rstrip("/")) for r in CONCLUDERS}
    leases = {(r.verb, r.group, r.resource) for r in RIGHTS if r.namespace == OWN}
    assert rules_in("concluder/rbac.yaml") == listed - leases
    assert leases <= listed, "in the agents' namespace, by the agents' Role"
    assert {(verb, kind) for verb, group, kind in listed if group == ""} == {
        *(("get", "nodes"), ("list", "nodes")),
        *(("create", "events"), ("patch", "events")),
    }


def test_power_grants_two_rights_more() -> None:
    assert rules_in("baremetal/components/power/rbac.yaml") == {(r.verb, r.group, r.resource) for r in POWER}


@pytest.mark.parametrize(
    ("file", "table"), [("agents.yaml", OBSERVERS), ("controller.yaml", OBSERVING_CONTROLLERS)]
)
def test_who_only_observes_is_granted_what_the_table_lists_and_nothing_that_changes_a_node_or_a_pod(
    file: str, table: tuple[Right, ...]
) -> None:
    (patch,) = yaml.safe_load((RBAC.parent / "observe" / file).read_text())
    granted = expanded(patch["value"])
    assert sorted(granted) == sorted((r.verb, r.group, r.resource) for r in table)
    changing = {(verb, kind) for verb, _, kind in granted if verb not in ("get", "list", "watch")}
    assert changing == WRITTEN_BY_OBSERVERS


WITHOUT = {
    *(("get", kind) for kind in ("pods", "serviceaccounts", "leases")),
    *(("create", "subjectaccessreviews"), ("patch", "pods"), ("patch", "nodes/status")),
}
"""Of administrators: ``doctor`` marks what it may not ask, ``uninstall`` works without, and whoever may
``inject`` a fault may accuse any node."""


def test_the_roles_for_people_are_enough_for_every_command_that_the_docs_list() -> None:
    page = (RBAC.parents[1] / "docs" / "commands.md").read_text()
    _, section = page.split("## Which rights each command needs")
    roles = yaml.safe_load_all((RBAC.parent / "users" / "roles.yaml").read_text())
    rules = {d["metadata"]["name"]: d["rules"] for d in roles}
    every = [*rules["node-recovery-operator"], *rules["node-recovery-explain"]]
    granted = {(verb, kind) for verb, _, kind in expanded(every)}
    needed = {
        (verb, kind)
        for verbs, kinds in re.findall(r"((?:`[a-z]+`,? )+)([a-z/]+(?: and [a-z]+)?)", section)
        for verb in re.findall(r"`([a-z]+)`", verbs)
        for kind in kinds.split(" and ")
    }
    asked = {n for n in needed if n[0] in ("get", "list", "create", "update", "patch")}
    assert len(asked) > 12
    assert asked - granted == WITHOUT
