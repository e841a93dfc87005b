"""What doctor finds on Azure: the real SDK against a local Resource Manager that lists what was granted."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recovery_testkit import arm_answers
from recovery_testkit.arm import CLIENT_ID, SUBSCRIPTION, Answer, FakeArm

from providers.azure.examine import AREA, ROLES, examine, granted
from providers.azure.options import options_of
from providers.azure.permissions import BY_ROUTE
from providers.azure.session import AzureSession, Limits
from providers.azure.vmss import AzureProvider
from recovery.clock import SystemClock
from recovery.model import Machine, NodeView, Step
from recovery.provider.protocol import Examiner, Finding

IAM = Path(__file__).parents[2] / "iam" / "azure"
METRICS = {"dataActions": ["Microsoft.Insights/Metrics/Write", "Microsoft.Insights/Telemetry/Write"]}
IN_PLACE = frozenset({Step.REBOOT, Step.REIMAGE, Step.REDEPLOY})
REPLACE = frozenset({Step.REPLACE})
ALL = IN_PLACE | REPLACE
NODES = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/nodes"
LIST = r"(?P<scope>/subscriptions/.+)/providers/Microsoft\.Authorization/permissions"


def role(name: str) -> dict[str, Any]:
    """What Azure lists for one of our roles."""
    return {"actions": json.loads((IAM / f"role-{name}.json").read_text())["Actions"]}


class Grants:
    """Role assignments, and the API that tells whoever asks what they come to, on a scope and below it."""

    def __init__(self) -> None:
        self.given: list[tuple[str, Mapping[str, Any]]] = []
        self.asked: list[str] = []
        self.pages = 1

    def give(self, scope: str, *roles: str | Mapping[str, Any]) -> None:
        self.given += [(scope.lower(), role(r) if isinstance(r, str) else r) for r in roles]

    def answer(self, _: object, call: arm_answers.Call) -> Answer:
        scope = call.parts["scope"].lower()
        assert call.query["api-version"] == "2022-04-01"
        self.asked.append(scope)
        held = [r for given, r in self.given if f"{scope}/".startswith(f"{given}/")]
        more = {"nextLink": f"{call.base}{call.path}?page=2"} if self.pages > 1 else {}
        return Answer(200, {"value": held, **more})


class World:
    """A scale set of two, one machine of it, and what the identity was granted."""

    def __init__(self, arm: FakeArm, grants: Grants, kind: str = "Uniform", **environ: str) -> None:
        self.arm, self.grants = arm, grants
        self.name = f"set-{len(arm.instances())}"
        self.set = arm.scale_set(self.name, size=2, orchestration=kind, ephemeral=True)  # type: ignore[arg-type]
        self.vm, self.other = arm.instances(self.set)
        self.environ = {**os.environ, **arm.environ(), **environ}
        self.labels: dict[str, str] = {}
        self.findings: list[Finding] = []
        arm.forget()

    def on_aks(self, allow: str = "", **more: bool) -> str:
        cluster = self.arm.managed_cluster(f"aks-{self.name}", pools={"gpu": self.set}, **more)
        self.environ |= {"AZURE_CLUSTER_ID": cluster, "AZURE_REGION": "westus3", "AZURE_ALLOW": allow}
        self.labels = {"kubernetes.azure.com/cluster": "MC_x", "kubernetes.azure.com/agentpool": "gpu"}
        return cluster

    def metrics(self) -> None:
        """A resource to tell of, and the right to."""
        self.environ |= {"AZURE_CLUSTER_ID": self.set, "AZURE_REGION": "westus3"}
        self.grants.give(self.set, METRICS)

    @property
    def machine(self) -> Machine:
        vm = self.vm
        node = NodeView(
            vm.computer_name, "u", "1", f"azure://{vm.id}", system_uuid=vm.vm_id, labels=self.labels
        )
        return self.provider().identify(node)

    def session(self) -> AzureSession:
        return AzureSession(SystemClock(), self.environ, Limits(connect=5.0, read=5.0))

    def provider(self) -> AzureProvider:
        return AzureProvider(self.session(), SystemClock(), options_of(self.environ))

    def examine(
        self, steps: frozenset[Step] = IN_PLACE, own: bool = True, machine: bool = True
    ) -> list[Finding]:
        """Every finding but the fine ones."""
        options, subject = options_of(self.environ), self.machine if machine else None
        found = examine(self.provider(), self.session(), options, subject, steps, own, self.environ)
        self.findings = list(found)
        assert {f.area for f in self.findings} == {AREA}
        return [f for f in self.findings if f.ok is not True or f.remedy]

    def says(self, part: str) -> Finding:
        (found,) = [f for f in self.findings if part in f.sentence]
        return found


@pytest.fixture(scope="module")
def arm() -> Iterator[FakeArm]:
    with FakeArm() as arm, pytest.MonkeyPatch.context() as patch:
        for name, value in arm.environ().items():
            patch.setenv(name, value)  # the SDK reads its own
        yield arm


@pytest.fixture
def grants(arm: FakeArm) -> Iterator[Grants]:
    grants = Grants()
    pattern = re.compile(LIST, re.IGNORECASE)
    entry = ("GET", pattern, "Microsoft.Authorization/permissions/read", grants.answer)
    arm_answers.ROUTES.append(entry)
    yield grants
    arm_answers.ROUTES.remove(entry)
    arm.permit()
    arm.refuse_tokens(0)
    arm.release()
    assert arm.mutating() == (), "doctor changes nothing"


@pytest.fixture
def world(arm: FakeArm, grants: Grants) -> World:
    world = World(arm, grants)
    world.metrics()
    return world


def give_all(world: World) -> None:
    """As ``iam/azure`` says for scale sets of one's own."""
    world.grants.give(world.set, "uniform", "uniform-replace", "capacity")
    world.grants.give(NODES, "operations")


# ---------------------------------------------------------------- who, where


def test_with_the_roles_of_iam_azure_nothing_is_lacking(world: World) -> None:
    give_all(world)
    assert world.examine(ALL) == []
    assert world.says(f"there is a token for {world.arm.url}, as managed identity {CLIENT_ID}").ok
    vm = f"instance {world.vm.instance_id} of scale set {world.name}"
    assert world.says(f"redeploy of {vm} could be asked for").ok
    assert world.says("virtualMachines/delete").sentence.endswith(f" on {vm}")
    assert world.says(f"virtualMachineScaleSets/write on scale set {world.name}").ok
    assert world.says("Microsoft.Compute/locations/operations/read on resource group nodes").ok
    assert world.says(f"Microsoft.Insights/Metrics/Write on {world.name}").ok


def test_each_list_of_permissions_is_asked_for_once(world: World) -> None:
    world.examine(ALL)
    assert (
        len(world.grants.asked) == len(set(world.grants.asked)) + 1
    )  # the scale set's: also for the metrics


def test_the_provider_is_an_examiner(world: World) -> None:
    give_all(world)
    provider = world.provider()
    assert isinstance(provider, Examiner)
    assert any("could be asked for" in f.sentence for f in provider.examine(world.machine, IN_PLACE, True))


def test_without_a_token_nothing_works(world: World) -> None:
    world.arm.refuse_tokens()
    (found,) = world.examine()
    assert found.ok is False
    assert found.sentence.startswith("doctor's question was not sent, there is no token for Azure: ")
    assert found.remedy == (
        "iam/azure says how the pod gets an identity: the account's annotation, and the pod's label"
    )


def test_what_a_laptop_lacks_says_nothing_of_the_agent(world: World) -> None:
    world.arm.refuse_tokens()
    (found,) = world.examine(own=False)
    assert (found.ok, found.remedy) == (None, "run doctor in the agent's pod")
    assert found.sentence.startswith("Azure was not asked: ")


def test_a_laptop_looks_at_the_machine_and_leaves_permissions_to_the_pod(world: World) -> None:
    world.arm.deny("virtualMachines/read")
    who, denied = world.examine(frozenset({Step.REBOOT}), own=False)
    assert (who.ok, who.sentence.partition(": ")[0]) == (None, "what the agent may do")
    assert who.remedy == "run doctor in the agent's pod to try the agent's"
    assert (denied.ok, denied.remedy) == (None, ROLES)
    assert world.grants.asked == []


def test_which_kind_of_identity_it_is_is_told(world: World) -> None:
    session = world.session()
    session.token = lambda what, scope="": "a-token"  # type: ignore[method-assign]
    names = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")
    environ = dict.fromkeys(names, "given")
    found = next(iter(examine(world.provider(), session, options_of({}), None, IN_PLACE, True, environ)))
    assert found.sentence.endswith(", as workload identity given")


def test_without_a_machine_there_is_a_token_and_azure_monitor_to_look_at(world: World) -> None:
    assert world.examine(ALL, machine=False) == []
    assert [f.sentence.split()[1] for f in world.findings] == ["is", "identity"]
    assert world.arm.count("GET *virtualMachines*") == 0


# ---------------------------------------------------------------- the machine


def test_a_machine_that_may_not_be_read_is_told_with_where_the_role_is(world: World) -> None:
    world.arm.deny("virtualMachines/read")
    give_all(world)
    (found,) = world.examine(frozenset({Step.REDEPLOY}))
    assert (found.ok, found.remedy) == (False, ROLES)
    assert "Azure denied a look at instance" in found.sentence


def test_a_machine_that_another_has_taken_the_number_of_is_told(world: World) -> None:
    give_all(world)
    world.vm = replace(world.vm, vm_id="11111111-2222-3333-4444-555555555555")
    (found,) = world.examine(frozenset({Step.REBOOT}))
    assert found.ok is False
    assert "is another machine now" in found.sentence
    assert found.remedy == "if that stays so, leave reboot out of the policy"


def test_an_api_that_throttles_could_not_be_asked(world: World) -> None:
    give_all(world)
    world.arm.refuse(429, retry_after=1, on="GET */virtualMachines/*")
    found = world.examine(frozenset({Step.REBOOT}))[0]
    assert (found.ok, found.remedy) == (None, "ask again")
    assert "Azure throttles" in found.sentence


@pytest.mark.parametrize(
    ("state", "steps", "told"),
    [
        ("Updating", IN_PLACE, "would have to wait: instance {0} of scale set {1} is Updating"),
        (
            "Deleting",
            REPLACE,
            "would not be asked for: instance {0} of scale set {1} is already being deleted",
        ),
    ],
)
def test_what_is_under_way_is_told(world: World, state: str, steps: frozenset[Step], told: str) -> None:
    give_all(world)
    world.arm.put(world.vm.id, provisioning=state)
    assert world.examine(steps) == []
    wanted = told.format(world.vm.instance_id, world.name)
    assert sum(wanted in f.sentence for f in world.findings) == len(steps)


def test_a_scale_set_that_is_short_makes_a_replacement_wait(world: World) -> None:
    give_all(world)
    world.arm.put(world.other.id, provisioning="Creating")
    assert world.examine(REPLACE) == []
    assert world.says(f"would have to wait: nodes/{world.name} is short by 1").ok


def test_a_vm_that_stands_alone_has_no_replacement(world: World) -> None:
    world.vm = world.arm.instance(world.arm.vm(f"alone-{world.name}"))
    world.grants.give(NODES, "vm", "operations")
    found = world.examine(frozenset({Step.REDEPLOY, Step.REPLACE}))[0]
    assert found.ok is False
    assert "is in no scale set: nothing would take its place" in found.sentence
    assert world.says(f"redeploy of VM alone-{world.name} could be asked for").ok


def test_a_step_that_a_machine_cannot_have_is_told_and_not_tried(arm: FakeArm, grants: Grants) -> None:
    world = World(arm, grants, "Flexible")
    world.metrics()
    (found,) = world.examine(frozenset({Step.REIMAGE}))
    assert found.ok is True
    assert found.sentence == (
        f"VM {world.vm.name} cannot have reimage: a VM outside Uniform scale sets is reimaged only with "
        "AZURE_ALLOW=flexible-reimage"
    )
    assert found.remedy == "`run` ends at once where POLICY_FILE asks for it: leave it out"
    assert arm.count("GET *virtualMachines*") == 0


# ---------------------------------------------------------------- permissions


@pytest.mark.parametrize("action", sorted(frozenset().union(*(BY_ROUTE["uniform"][s] for s in ALL))))
def test_each_action_that_was_not_granted_is_told(world: World, action: str) -> None:
    everything = sorted(frozenset().union(*BY_ROUTE["uniform"].values()) - {action})
    world.grants.give(NODES, {"actions": everything})
    (found,) = world.examine(ALL)
    assert (found.ok, found.remedy) == (False, ROLES)
    assert found.sentence.startswith(f"the identity may not use {action} on ")


def test_the_status_of_operations_is_looked_up_on_the_resource_group_and_is_not_vital(world: World) -> None:
    world.grants.give(world.set, "uniform", "operations")
    (found,) = world.examine()
    assert (found.ok, found.remedy) == (True, ROLES)
    assert found.sentence == (
        "the identity may not use Microsoft.Compute/locations/operations/read on resource group nodes: how "
        "an operation stands is then unknown, until the node boots or the step's deadline"
    )


def test_a_flexible_set_is_looked_up_by_what_its_vm_says(arm: FakeArm, grants: Grants) -> None:
    world = World(arm, grants, "Flexible", AZURE_ALLOW="flexible-reimage")
    world.metrics()
    grants.give(NODES, "flexible", "flexible-replace", "vm-reimage", "operations")
    grants.give(world.set, "capacity")
    assert world.examine(ALL) == []
    assert world.says(f"virtualMachineScaleSets/write on scale set {world.name}").ok


def test_where_an_autoscaler_is_declared_the_capacity_needs_no_permission(world: World) -> None:
    world.grants.give(world.set, "uniform", "uniform-replace")
    world.grants.give(NODES, "operations")
    (missing,) = world.examine(REPLACE)
    assert "may not use Microsoft.Compute/virtualMachineScaleSets/write on scale set" in missing.sentence
    world.environ["AZURE_AUTOSCALER"] = "true"
    assert world.examine(REPLACE) == []


def test_a_list_that_is_denied_is_no_finding_against_the_agent_and_is_asked_for_once(world: World) -> None:
    world.arm.deny("permissions/read")
    (found,) = world.examine(ALL)
    assert found.ok is None
    assert found.sentence.startswith(
        f"what the identity may do on instance {world.vm.instance_id} of scale set"
    )
    assert "Azure denied a list of one's own permissions" in found.sentence
    assert found.remedy == f"as an administrator, {ROLES}"
    assert world.arm.count("GET */permissions") == 1


def test_a_list_that_broke_off_says_nothing_of_the_others(world: World) -> None:
    give_all(world)
    world.arm.refuse(503, on="GET */permissions")
    (found,) = world.examine(ALL)
    assert found.ok is None
    assert world.says(f"virtualMachineScaleSets/write on scale set {world.name}").ok


def test_a_list_of_several_pages_decides_nothing_by_its_first(world: World) -> None:
    world.grants.pages = 2
    found = world.examine(frozenset({Step.REBOOT}))
    assert {f.ok for f in found} == {None}
    assert all(f.sentence.endswith(", by the first page of a longer list") for f in found)


@pytest.mark.parametrize(
    ("permissions", "allowed"),
    [
        ([], False),
        ([{"actions": ["*"]}], True),
        ([{"actions": ["microsoft.compute/*/RESTART/action"]}], True),
        ([{"actions": ["*"], "notActions": ["Microsoft.Compute/*"]}], False),
        ([{"actions": ["*"], "notActions": ["*/restart/action"]}, {"actions": ["*/restart/action"]}], True),
        ([{"actions": ["*/read"], "dataActions": ["*"]}], False),
        ([{"actions": None}], False),
    ],
)
def test_a_role_takes_back_what_it_gave_itself_and_nothing_of_another(
    permissions: list[dict[str, Any]], allowed: bool
) -> None:
    assert granted("Microsoft.Compute/virtualMachines/restart/action", permissions) is allowed


# ---------------------------------------------------------------- AKS


def test_on_aks_a_policy_that_asks_for_nothing_lacks_nothing(world: World) -> None:
    world.grants.give(world.on_aks(), METRICS)
    assert world.examine(frozenset()) == []
    assert world.says("AKS supports only that it deletes a machine itself").ok
    assert world.arm.count("GET *virtualMachines*") == 0


def test_on_aks_what_is_not_allowed_is_told_with_what_would_allow_it(world: World) -> None:
    world.grants.give(world.on_aks(), METRICS)
    (found,) = world.examine(frozenset({Step.REDEPLOY, Step.REPLACE}))
    assert found.ok is True
    assert "cannot have redeploy, replace: AKS supports only" in found.sentence
    assert "AZURE_ALLOW=aks-replace" in found.sentence
    assert "AZURE_ALLOW=aks-compute" in found.sentence


def test_on_aks_the_cluster_is_asked_for_and_the_pools_count_is_a_right_of_its_own(world: World) -> None:
    cluster = world.on_aks("aks-replace")
    world.grants.give(cluster, "aks", METRICS)
    (found,) = world.examine(REPLACE)
    assert found.sentence == (
        "the identity may not use Microsoft.ContainerService/managedClusters/agentPools/write on AKS cluster "
        f"aks-{world.name}"
    )
    world.grants.give(cluster, "aks-capacity")
    assert world.examine(REPLACE) == []
    assert world.says("agentPools/deleteMachines/action").ok
    assert not any(scope.startswith(NODES.lower()) for scope in world.grants.asked)


def test_a_pool_with_its_own_autoscaler_is_not_set_back(world: World) -> None:
    cluster = world.on_aks("aks-replace", autoscaler=True)
    world.grants.give(cluster, "aks", METRICS)
    assert world.examine(REPLACE) == []


def test_the_compute_api_on_aks_is_told_to_be_outside_of_the_support_policy(world: World) -> None:
    world.grants.give(world.on_aks("aks-compute"), METRICS)
    world.grants.give(NODES, "aks-compute", "operations")
    (found,) = world.examine()
    assert found.ok is True
    assert found.sentence.startswith("AZURE_ALLOW has aks-compute: AKS's support policy covers no change")
    assert found.remedy == "leave it out, unless that is accepted: see docs/azure.md"


# ---------------------------------------------------------------- Azure Monitor


@pytest.mark.parametrize(
    ("unset", "told"),
    [
        (("AZURE_REGION",), "AZURE_REGION not set"),
        (("AZURE_CLUSTER_ID", "AZURE_REGION"), "AZURE_CLUSTER_ID and AZURE_REGION not set"),
    ],
)
def test_without_a_resource_and_its_region_azure_monitor_hears_nothing(
    world: World, unset: tuple[str, ...], told: str
) -> None:
    give_all(world)
    for name in unset:
        del world.environ[name]
    (found,) = world.examine(ALL)
    assert found.ok is True
    assert found.sentence == f"{told}: it recovers, and Azure Monitor hears nothing"
    assert found.remedy == "set both, or have Prometheus read the agents' own pages"


def test_telling_is_not_vital(world: World) -> None:
    give_all(world)
    world.grants.given = [(scope, held) for scope, held in world.grants.given if held is not METRICS]
    (found,) = world.examine(ALL)
    assert (found.ok, found.remedy) == (True, ROLES)
    assert found.sentence == (
        f"the identity may not use Microsoft.Insights/Metrics/Write on {world.name}: it recovers, and Azure "
        "Monitor hears nothing"
    )


def test_an_address_that_no_token_may_be_sent_to_is_told(world: World) -> None:
    give_all(world)
    world.environ["AZURE_MONITOR_ENDPOINT"] = "http://metrics.example.com"
    (found,) = world.examine(ALL)
    assert (found.ok, found.remedy) == (False, "mend the setting")
    assert found.sentence.startswith(
        'AZURE_MONITOR_ENDPOINT: found "http://metrics.example.com", expected https://'
    )
