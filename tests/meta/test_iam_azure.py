"""What is shipped under ``iam/azure`` holds what the code declares, granted where it must be and no further.

The template is deployed on paper (``armtemplate``), and the README's commands in a shell whose ``az`` only
writes down what it is asked. Neither asks Azure.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml
from armtemplate import (
    SUBSCRIPTION,
    Deployment,
    Resource,
    TemplateError,
    asked_for,
    declared,
    templates,
)

from providers.azure.permissions import BY_ROUTE, CAPACITY, PERMISSIONS
from recovery.model import Step

ROOT = Path(__file__).parents[2]
IAM = ROOT / "iam" / "azure"
README = (IAM / "README.md").read_text()
ROLES = tuple(sorted(path.stem.removeprefix("role-") for path in IAM.glob("role-*.json")))
ROUTES = {
    "uniform": ("uniform", "uniform-replace", "capacity", "operations"),
    "flexible": ("flexible", "flexible-replace", "vm-reimage", "capacity", "operations"),
    "vm": ("vm", "vm-reimage", "operations"),
    "aks": ("aks", "aks-capacity", "aks-nodes"),
    "aks-compute": ("aks-compute", "operations"),
}
"""Which files together are what a route may need."""
METRICS = "3913510d-42f4-4e42-8a64-420c390055eb"
"""Monitoring Metrics Publisher: "Azure built-in roles for Monitor"."""
ACTION = re.compile(r"Microsoft\.(?:Compute|ContainerService)(?:/[A-Za-z]+)+/(?:read|write|delete|action)")
API_VERSIONS = {
    "Microsoft.Authorization/roleAssignments": "2022-04-01",
    "Microsoft.Authorization/roleDefinitions": "2022-04-01",
    "Microsoft.ManagedIdentity/userAssignedIdentities": "2023-01-31",
    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials": "2023-01-31",
    "Microsoft.Resources/deployments": "2022-09-01",
}

each_role = pytest.mark.parametrize("role", ROLES)


def role_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((IAM / f"role-{name}.json").read_text())
    return found


def actions_of(name: str) -> set[str]:
    return set(role_of(name)["Actions"])


# ---------------------------------------------------------------- roles


@pytest.mark.parametrize("route", ROUTES)
def test_the_roles_of_a_route_are_exactly_what_the_provider_declares_for_it(route: str) -> None:
    granted = [action for name in ROUTES[route] for action in role_of(name)["Actions"]]
    assert sorted(granted) == sorted(set[str]().union(*BY_ROUTE[route].values()))


def test_every_route_has_its_roles_and_every_role_its_route() -> None:
    assert set(ROUTES) == set(BY_ROUTE)
    assert {name for names in ROUTES.values() for name in names} == set(ROLES)


def test_what_is_declared_for_all_routes_is_what_is_declared_for_each() -> None:
    uses = {use for route in BY_ROUTE.values() for use in route}
    assert set(PERMISSIONS) == uses | {"monitor"}
    for use in uses:
        each = (route[use] for route in BY_ROUTE.values() if use in route)
        assert PERMISSIONS[use] == frozenset[str]().union(*each)


@pytest.mark.parametrize("route", CAPACITY)
def test_what_an_autoscaler_makes_needless_is_a_role_of_its_own(route: str) -> None:
    name = "aks-capacity" if route == "aks" else "capacity"
    assert actions_of(name) == CAPACITY[route]
    rest = actions_of("aks" if route == "aks" else f"{route}-replace")
    assert rest == BY_ROUTE[route][Step.REPLACE] - CAPACITY[route]


def test_what_is_reimaged_on_request_alone_is_a_role_of_its_own() -> None:
    assert actions_of("vm-reimage") == BY_ROUTE["flexible"][Step.REIMAGE] == BY_ROUTE["vm"][Step.REIMAGE]


@each_role
def test_a_role_has_the_form_that_az_takes(role: str) -> None:
    found = role_of(role)
    assert set(found) == {
        "Name",
        "IsCustom",
        "Description",
        "Actions",
        "NotActions",
        "DataActions",
        "NotDataActions",
        "AssignableScopes",
    }
    assert found["IsCustom"] is True
    assert found["NotActions"] == found["DataActions"] == found["NotDataActions"] == []
    assert found["AssignableScopes"] == ["/subscriptions/${SUBSCRIPTION}/resourceGroups/${RESOURCE_GROUP}"]
    assert found["Name"] == f"node-recovery-{role}-${{SUBSCRIPTION}}-${{RESOURCE_GROUP}}"
    assert found["Actions"] == sorted(set(found["Actions"]))
    assert all(ACTION.fullmatch(action) for action in found["Actions"]), "no wildcards"


@each_role
def test_no_role_acts_on_a_scale_set_as_a_whole_or_inside_a_machine(role: str) -> None:
    sets = "Microsoft.Compute/virtualMachineScaleSets/"
    for action in actions_of(role):
        last = action.removeprefix(sets)
        assert last == action or last.startswith("virtualMachines/") or last in ("read", "write")
        assert not re.search(r"runCommand|extensions|reimageAll|virtualMachines/write|simulate", action)


@pytest.mark.parametrize("role", ["uniform", "flexible", "vm", "aks-nodes", "aks-compute", "operations"])
def test_nothing_is_deleted_or_changed_by_the_roles_that_all_need(role: str) -> None:
    assert not [action for action in actions_of(role) if action.endswith(("/write", "/delete"))]


# ---------------------------------------------------------------- the template, as it stands

IDENTITY = json.loads((IAM / "identity.json").read_text())
GROUP, NODES, OTHER = "gpu", "MC_gpu_gpu-7_westeurope", "00000000-0000-0000-0000-00000000000b"
ISSUER = "https://westeurope.oic.prod-aks.azure.com/t/c/"
AKS = "/providers/Microsoft.ContainerService/managedClusters/gpu-7"
SETS = "/providers/Microsoft.Compute/virtualMachineScaleSets"


def group_id(name: str, subscription: str = SUBSCRIPTION) -> str:
    return f"/subscriptions/{subscription}/resourceGroups/{name}"


@pytest.mark.parametrize("template", list(templates(IDENTITY)), ids=["itself", "nodes", "cluster"])
def test_a_template_uses_what_it_declares_and_declares_what_it_uses(template: dict[str, Any]) -> None:
    assert asked_for(template) == declared(template)
    for given in template["parameters"].values():
        assert given["metadata"]["description"].endswith(".")


def test_every_resource_is_of_a_type_and_version_that_is_known() -> None:
    found = [(r["type"], r["apiVersion"]) for t in templates(IDENTITY) for r in t["resources"]]
    assert set(found) == set(API_VERSIONS.items())


def test_the_template_has_the_actions_of_the_role_files() -> None:
    assert {n: set(a) for n, a in IDENTITY["variables"]["actions"].items()} == {
        n: actions_of(n) for n in ROLES
    }


def test_every_role_can_be_asked_for_and_that_of_operations_comes_by_itself() -> None:
    on_nodes, on_cluster = (
        IDENTITY["parameters"][name]["allowedValues"] for name in ("nodeRoles", "clusterRoles")
    )
    assert sorted([*on_nodes, *on_cluster, "operations"]) == sorted(ROLES)
    of_sets, of_group = (IDENTITY["variables"][name] for name in ("ofScaleSets", "ofTheGroup"))
    assert sorted([*of_sets, *of_group]) == sorted(on_nodes)


def test_the_names_are_those_of_the_overlay_for_aks() -> None:
    overlay = ROOT / "deploy" / "aks-gpu"
    kustomization = yaml.safe_load((overlay / "agents" / "kustomization.yaml").read_text())
    pods = yaml.safe_load((overlay / "agents" / "daemonset.yaml").read_text())["spec"]["template"]["spec"]
    defaults = {name: given.get("defaultValue") for name, given in IDENTITY["parameters"].items()}
    assert defaults["namespace"] == kustomization["namespace"]
    assert defaults["serviceAccount"] == pods["serviceAccountName"]


# ---------------------------------------------------------------- the template, deployed on paper


def deployed(**given: Any) -> list[Resource]:
    return Deployment(IDENTITY, GROUP, given={"issuer": ISSUER, **given}).resources()


@dataclass(frozen=True)
class Grant:
    """A role and where it holds. ``role``: its name in ``iam/azure``, or a built-in role's ID."""

    role: str
    scope: str


def grants(found: list[Resource]) -> set[Grant]:
    """Every assignment, by the role that was defined in the same resource group."""
    defined = {
        f"/subscriptions/{r.scope.split('/')[2]}/providers/{r.type}/{r.name}": r
        for r in found
        if r.type.endswith("/roleDefinitions")
    }
    given = list(_grants(found, defined))
    assert len(set(given)) == len(given)
    names = [r.name for r in found if r.type.endswith("/roleAssignments")]
    assert len(set(names)) == len(names), "each has a name of its own"
    return set(given)


def _grants(found: list[Resource], defined: dict[str, Resource]) -> Iterator[Grant]:
    used = set()
    for each in found:
        if not each.type.endswith("/roleAssignments"):
            continue
        assert each.properties["principalId"].endswith("userAssignedIdentities/node-recovery>")
        assert each.properties["principalType"] == "ServicePrincipal"
        role_id = each.properties["roleDefinitionId"]
        if role_id.endswith(METRICS):
            yield Grant("metrics", each.scope)
            continue
        role = defined[role_id]
        used.add(role_id)
        assert each.scope.startswith(role.properties["assignableScopes"][0]), "it could not be granted there"
        yield Grant(_role(role), each.scope)
    assert used == set(defined), "what is defined is granted"


def _role(found: Resource) -> str:
    """The name of a role that was defined, which must be as its file has it."""
    subscription, group = found.scope.split("/")[2], found.scope.split("/")[4]
    properties = found.properties
    ours = {
        Template(role_of(name)["Name"]).substitute(SUBSCRIPTION=subscription, RESOURCE_GROUP=group): name
        for name in ROLES
    }
    name = ours[properties["roleName"]]
    (permission,) = properties["permissions"]
    assert set(permission["actions"]) == actions_of(name)
    assert not permission["notActions"] + permission["dataActions"] + permission["notDataActions"]
    assert properties["assignableScopes"] == [group_id(group, subscription)]
    return name


def test_by_default_it_grants_nothing() -> None:
    found = deployed()
    assert [r.type.rpartition("/")[2] for r in found] == [
        "userAssignedIdentities",
        "federatedIdentityCredentials",
        "federatedIdentityCredentials",
    ]


SUBJECTS = {
    "node-recovery": "gpu-healthcheck-system:node-recovery",
    "node-recovery-concluder": "node-recovery-concluder:node-recovery-concluder",
}


def test_two_service_accounts_of_one_cluster_may_be_the_identity() -> None:
    credentials = [r for r in deployed() if r.type.endswith("/federatedIdentityCredentials")]
    assert {r.name: r.properties for r in credentials} == {
        f"node-recovery/{name}": {
            "issuer": ISSUER,
            "subject": f"system:serviceaccount:{subject}",
            "audiences": ["api://AzureADTokenExchange"],
        }
        for name, subject in SUBJECTS.items()
    }


def test_the_credentials_are_made_one_after_the_other_as_azure_wants_it() -> None:
    of_agents, of_concluder = (
        r for r in IDENTITY["resources"] if r["type"].endswith("/federatedIdentityCredentials")
    )
    assert "federatedIdentityCredentials" not in of_agents["dependsOn"][0]
    assert "'node-recovery')" in of_concluder["dependsOn"][0]


def test_a_cluster_alone_is_told_metrics_of() -> None:
    cluster = group_id("clusters", OTHER) + AKS
    assert grants(deployed(clusterId=cluster)) == {Grant("metrics", cluster)}


def test_aks_is_asked_about_its_cluster_and_the_machines_are_looked_at_in_their_group() -> None:
    cluster = group_id(GROUP) + AKS
    found = deployed(
        clusterId=cluster,
        clusterRoles=["aks", "aks-capacity"],
        nodeRoles=["aks-nodes"],
        nodeResourceGroup=NODES,
    )
    assert grants(found) == {
        Grant("metrics", cluster),
        Grant("aks", cluster),
        Grant("aks-capacity", cluster),
        Grant("aks-nodes", group_id(NODES)),
    }


def test_the_compute_api_on_aks_is_granted_on_the_node_resource_group() -> None:
    found = deployed(nodeRoles=["aks-compute"], nodeResourceGroup=NODES)
    assert grants(found) == {
        Grant("aks-compute", group_id(NODES)),
        Grant("operations", group_id(NODES)),
    }


def test_uniform_scale_sets_that_are_named_are_the_only_ones() -> None:
    """But for an operation's status, whose address is below no scale set."""
    found = deployed(nodeRoles=["uniform", "uniform-replace", "capacity"], scaleSets=["a100", "h100"])
    assert grants(found) == {
        *(
            Grant(role, f"{group_id(GROUP)}{SETS}/{name}")
            for role in ("uniform", "uniform-replace", "capacity")
            for name in ("a100", "h100")
        ),
        Grant("operations", group_id(GROUP)),
    }


def test_without_names_it_is_all_of_the_group() -> None:
    found = deployed(nodeRoles=["uniform", "flexible"], nodeResourceGroup=NODES)
    assert grants(found) == {Grant(role, group_id(NODES)) for role in ("uniform", "flexible", "operations")}


def test_a_vm_of_a_flexible_scale_set_is_not_below_it() -> None:
    """So its roles hold for the group, also where scale sets are named."""
    found = deployed(nodeRoles=["flexible", "flexible-replace", "capacity"], scaleSets=["flex"])
    assert grants(found) == {
        Grant("flexible", group_id(GROUP)),
        Grant("flexible-replace", group_id(GROUP)),
        Grant("capacity", f"{group_id(GROUP)}{SETS}/flex"),
        Grant("operations", group_id(GROUP)),
    }


def test_deployed_again_it_has_the_same_names() -> None:
    """Whatever the case in which a person writes an ID: Azure tells no cases apart."""
    cluster = group_id(GROUP) + AKS
    first, again = (
        {r.name for r in deployed(clusterId=written, clusterRoles=["aks"])}
        for written in (cluster, cluster.replace("resourceGroups", "resourcegroups"))
    )
    assert first == again


@pytest.mark.parametrize(
    "wrong",
    [{"nodeRoles": ["everything"]}, {"clusterRoles": ["uniform"]}, {"issuer": ""}, {"scaleSets": "a100"}],
    ids=str,
)
def test_what_is_no_role_or_no_issuer_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TemplateError):
        deployed(**wrong)


# ---------------------------------------------------------------- the README beside them


def test_every_file_is_in_the_readmes_table_and_no_other() -> None:
    rows = re.findall(r"^\| `([\w-]+\.json)` \|", README, re.MULTILINE)
    assert sorted(rows) == sorted(path.name for path in IAM.glob("*.json"))


def test_every_permission_is_explained() -> None:
    rows = re.findall(r"^\| (`(?:Microsoft\.|\.\.\.).*?) \|", README, re.MULTILINE)
    told = [name.removeprefix("...") for row in rows for name in re.findall(r"`([^`]+)`", row)]
    for action in set[str]().union(*PERMISSIONS.values()):
        assert any(action == name or action.endswith(name) for name in told), action
    for name in told:
        assert any(action.endswith(name) for action in set[str]().union(*PERMISSIONS.values())), name


AZ = """#!/bin/sh
printf '%s\\n' "$*" >> "$LOG"
case "$*" in
  *"--query oidcIssuerProfile.issuerUrl"*) echo "$ISSUER_SEEN" ;;
  "aks show"*"--query id"*) echo "$CLUSTER_SEEN" ;;
  "vmss show"*) echo "$SET_SEEN" ;;
  *"--query nodeResourceGroup"*) echo "$NODES_SEEN" ;;
  *"--query principalId"*) echo "<principal>" ;;
  "account show"*) echo "$SUBSCRIPTION_SEEN" ;;
  "role definition create --role-definition"*) cat "$5" >> "$DEFINED" ;;
esac
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[dict[str, Any]]]:
    """What the README's commands, all of them in one shell, ask of ``az``; and the roles that they define."""
    folder = tmp_path_factory.mktemp("az")
    (folder / "az").write_text(AZ)
    (folder / "az").chmod(0o755)
    blocks = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    environ = {
        "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TMPDIR": str(folder),
        "LOG": str(folder / "log"),
        "DEFINED": str(folder / "roles"),
        "ISSUER_SEEN": ISSUER,
        "CLUSTER_SEEN": group_id(GROUP) + AKS,
        "SET_SEEN": f"{group_id(GROUP)}{SETS}/gpu-nodes",
        "NODES_SEEN": NODES,
        "SUBSCRIPTION_SEEN": SUBSCRIPTION,
    }
    subprocess.run(["bash", "-euc", "\n".join(blocks)], cwd=IAM, env=environ, check=True)  # noqa: S603, S607
    roles = json.loads("[" + re.sub(r"\}\s+\{", "},{", (folder / "roles").read_text()) + "]")
    return (folder / "log").read_text().splitlines(), roles


@pytest.mark.slow(1)
def test_the_commands_grant_what_the_template_does(
    commands: tuple[list[str], list[dict[str, Any]]],
) -> None:
    asked, roles = commands
    found = set()
    for line in asked:
        granted = re.search(r"role assignment create .* --role (.+) --scope (\S+)$", line)
        if granted is not None:
            assert "--assignee-object-id <principal> --assignee-principal-type ServicePrincipal" in line
            found.add((granted[1], granted[2]))
    cluster, sets = group_id(GROUP) + AKS, f"{group_id(GROUP)}{SETS}/gpu-nodes"
    by_template = grants(
        deployed(
            clusterId=cluster,
            clusterRoles=["aks", "aks-capacity"],
            nodeRoles=["aks-nodes"],
            nodeResourceGroup=NODES,
        )
    ) | grants(
        deployed(
            clusterId=sets, nodeRoles=["uniform", "uniform-replace", "capacity"], scaleSets=["gpu-nodes"]
        )
    )
    names = {role["Name"] for role in roles}
    assert found == {
        ("Monitoring Metrics Publisher", grant.scope)
        if grant.role == "metrics"
        else (f"node-recovery-{grant.role}-{SUBSCRIPTION}-{grant.scope.split('/')[4]}", grant.scope)
        for grant in by_template
    }
    assert {name for name, _ in found} - {"Monitoring Metrics Publisher"} == names
    for role in roles:
        group = NODES if NODES in role["Name"] else GROUP
        assert role["AssignableScopes"] == [group_id(group)]


@pytest.mark.slow(1)
def test_the_commands_have_the_parameters_that_the_template_has(
    commands: tuple[list[str], list[dict[str, Any]]],
) -> None:
    deployments = [line for line in commands[0] if line.startswith("deployment group create")]
    assert len(deployments) == 3
    for line in deployments:
        given = dict(x.split("=", 1) for x in line.partition("--parameters ")[2].split())
        value = {k: json.loads(v) if v.startswith("[") else v for k, v in given.items()}
        assert grants(deployed(**value))


@pytest.mark.slow(1)
def test_the_commands_make_the_credentials_of_the_template(
    commands: tuple[list[str], list[dict[str, Any]]],
) -> None:
    lines = [x for x in commands[0] if x.startswith("identity federated-credential create")]
    for line, (name, subject) in zip(lines, SUBJECTS.items(), strict=True):
        assert f" --name {name} " in line
        assert f"--subject system:serviceaccount:{subject} " in line
        assert line.endswith("--audiences api://AzureADTokenExchange")
        assert " --issuer https://oidc.example.com/gpu-7/ " in line


def test_fill_names_what_has_no_value() -> None:
    fill = re.search(r"^fill\(\) \{\n.*?^\}$", README, re.DOTALL | re.MULTILINE)
    assert fill is not None
    done = subprocess.run(  # noqa: S603
        ["bash", "-c", f"{fill[0]}\nfill role-vm.json"],  # noqa: S607
        cwd=IAM,
        env={"PATH": os.environ["PATH"], "SUBSCRIPTION": SUBSCRIPTION, "RESOURCE_GROUP": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "role-vm.json: RESOURCE_GROUP has no value: export it, and run this again\n"


# ---------------------------------------------------------------- the reader of templates


def paper(value: Any, **more: Any) -> Any:
    """What an output of a small template is."""
    template = {
        "$schema": IDENTITY["$schema"],
        "contentVersion": "1.0.0.0",
        "parameters": {"a": {"type": "string", "defaultValue": "x"}, "n": {"type": "int", "defaultValue": 2}},
        "variables": {"list": ["b", "a"], "again": "[concat(variables('list')[0], parameters('a'))]"},
        "resources": [],
        "outputs": {"o": {"type": "string", "value": value}},
        **more,
    }
    return Deployment(template, GROUP).outputs()["o"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        ("[[plain]", "[[plain]"),
        ("[concat('it''s ', parameters('a'))]", "it's x"),
        ("[variables('again')]", "bx"),
        ("[intersection(createArray('a', 'c'), variables('list'))]", ["a"]),
        ("[split('a/b', '/')[1]]", "b"),
        ("[resourceId('A.B/c/d', 'x', 'y')]", f"{group_id(GROUP)}/providers/A.B/c/x/d/y"),
        ("[if(empty(''), mul(parameters('n'), 3), 0)]", 6),
        ("[createObject('k', 1).k]", 1),
    ],
)
def test_an_expression_has_its_value(value: str, expected: object) -> None:
    assert paper(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "[parameters('b')]",
        "[variables('a')]",
        "[frobnicate()]",
        "[concat('a']",
        "[concat('a',)]",
        "[parameters('a') parameters('a')]",
        "[concat(createArray('a'), 'b')]",
        "[concat(&)]",
    ],
)
def test_an_expression_that_azure_would_refuse_is_refused(value: str) -> None:
    with pytest.raises(TemplateError):
        paper(value)


@pytest.mark.parametrize(
    "broken",
    [
        {"parameters": {"a": {"type": "int", "defaultValue": "x"}}},
        {"parameters": {"a": {"type": "string"}}},
        {"surprise": 1},
        {"$schema": "https://example.com"},
    ],
    ids=str,
)
def test_a_template_that_azure_would_refuse_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(TemplateError):
        paper("plain", **broken)


def test_a_resource_that_waits_for_none_is_refused() -> None:
    lone = {"type": "A.B/c", "apiVersion": "1", "name": "n", "dependsOn": ["[resourceId('A.B/c', 'other')]"]}
    with pytest.raises(TemplateError, match="waits for what is not there"):
        Deployment({**IDENTITY, "resources": [lone]}, GROUP, given={"issuer": ISSUER}).resources()
