"""What doctor finds on AWS: the real SDK, through a proxy that refuses, against moto."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from recovery_testkit.aws import LocalAws, environment, shared_aws
from recovery_testkit.proxy import CountingProxy

from providers.aws import examine as examining
from providers.aws.asg import AwsProvider
from providers.aws.session import AwsSession, Limits
from providers.aws.simulate import simulated
from recovery.clock import SystemClock
from recovery.errors import Refused
from recovery.model import Machine, NodeView, Step
from recovery.provider.protocol import Examiner, Finding

BOTH = frozenset({Step.REPLACE, Step.REBOOT})
REPLACE = frozenset({Step.REPLACE})
REGION = {"AWS_REGION": "us-west-2"}
ALLOWED = "<EvalDecision>allowed</EvalDecision>"


class World:
    """A group of two, and the way to it."""

    def __init__(self, aws: LocalAws, proxy: CountingProxy, **settings: Any) -> None:
        self.aws, self.proxy = aws, proxy
        self.group = aws.create_group(2, **settings)
        self.instance = aws.instances(self.group)[0]
        node = NodeView("worker-1", "u", "1", aws.provider_id(self.instance))
        self.machine: Machine | None = provider().identify(node)
        self.findings: list[Finding] = []

    def examine(
        self, steps: frozenset[Step] = REPLACE, own: bool = True, environ: dict[str, str] = REGION
    ) -> list[Finding]:
        """Every finding but the fine ones."""
        self.findings = list(examining.examine(session(), environ, self.machine, steps, own))
        return [f for f in self.findings if f.ok is not True or f.remedy]

    def says(self, part: str) -> Finding:
        (found,) = [f for f in self.findings if part in f.sentence]
        return found

    def deny(self, action: str) -> None:
        self.proxy.fail(action, 403, "AccessDenied", "because no identity-based policy allows it", times=9)

    def simulator(self, result: str, times: int = 2) -> None:
        """moto has none: this is the shape of IAM's answer."""
        body = (
            '<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">'
            "<SimulatePrincipalPolicyResult><EvaluationResults><member><EvalActionName>a</EvalActionName>"
            f"{result}</member></EvaluationResults></SimulatePrincipalPolicyResult>"
            "</SimulatePrincipalPolicyResponse>"
        )
        self.proxy.answer("SimulatePrincipalPolicy", body.encode(), times=times)


@functools.cache
def session() -> AwsSession:
    return AwsSession(SystemClock(), Limits(connect=1.0, read=5.0, attempts=1))


def provider() -> AwsProvider:
    return AwsProvider(session(), SystemClock(), os.environ)


@pytest.fixture(scope="module")
def proxy() -> Iterator[CountingProxy]:
    with CountingProxy(shared_aws().address) as proxy, environment(proxy.url):
        yield proxy
    session.cache_clear()


@pytest.fixture(scope="module")
def shared(proxy: CountingProxy) -> World:
    return World(shared_aws(), proxy)


@pytest.fixture
def world(shared: World) -> World:
    """For what changes nothing at AWS."""
    shared.proxy.forget()
    shared.machine = provider().identify(
        NodeView("worker-1", "u", "1", shared.aws.provider_id(shared.instance))
    )
    return shared


@pytest.fixture
def own_world(proxy: CountingProxy) -> World:
    proxy.forget()
    return World(shared_aws(), proxy)


# ---------------------------------------------------------------- who, where


def test_a_machine_in_a_good_group_lacks_nothing_that_can_be_tried(world: World) -> None:
    world.simulator(ALLOWED)
    assert world.examine() == []
    assert world.says("AWS knows the agent as arn:aws:sts::123456789012:").ok
    assert world.says(f"{world.instance} is in group {world.group}: InService, healthy").ok
    assert world.says(f"group {world.group} has 2 in service of 2 (0 to 7)").ok
    assert world.says(f"group {world.group} would replace an instance marked unhealthy").ok
    assert world.says("autoscaling:SetInstanceHealth is permitted, says IAM's simulator").ok


def test_a_group_that_could_not_launch_is_told_and_what_follows_from_it(world: World) -> None:
    """By the real clock: the failure is as young as the test."""
    begun = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    failed = (
        "<member><ActivityId>1</ActivityId><Description>Launching a new EC2 instance</Description>"
        f"<Cause>c</Cause><StartTime>{begun}</StartTime><StatusCode>Failed</StatusCode>"
        "<StatusMessage>InsufficientInstanceCapacity</StatusMessage></member>"
    )
    action = "DescribeScalingActivities"
    result = f"<{action}Result><Activities>{failed}</Activities></{action}Result>"
    world.proxy.answer(action, f"<{action}Response>{result}</{action}Response>".encode())
    world.simulator(ALLOWED)
    (found,) = world.examine()
    assert (found.ok, found.area) == (True, "aws")
    assert found.sentence.startswith(f"group {world.group} could not launch at ")
    assert found.sentence.endswith("Capacity): a machine is rebooted before it is replaced")


def test_a_reboot_that_no_rule_asks_for_may_lack_its_permission(world: World) -> None:
    world.deny("RebootInstances")
    world.simulator(ALLOWED)
    (found,) = world.examine()
    assert (found.ok, found.sentence[:30]) == (True, "AWS denied ec2:RebootInstances")
    assert found.sentence.endswith(": a machine whose group cannot launch would not be rebooted first")


def test_nothing_is_changed_whatever_is_asked(world: World) -> None:
    world.examine(BOTH)
    asked = {r.action for r in world.proxy.requests}
    assert not asked & {"SetInstanceHealth", "PutMetricData"}
    (reboot,) = [r for r in world.proxy.requests if r.action == "RebootInstances"]
    assert reboot.params["DryRun"] == "true"


def test_the_provider_is_an_examiner(world: World) -> None:
    found = provider()
    assert isinstance(found, Examiner)
    assert any("is in group" in f.sentence for f in found.examine(world.machine, REPLACE, True))


def test_without_good_credentials_nothing_works(world: World) -> None:
    world.proxy.fail("GetCallerIdentity", 403, "InvalidClientTokenId", "the token is invalid")
    (found,) = world.examine()
    assert found.ok is False
    assert found.sentence.startswith("AWS does not know the agent: sts:GetCallerIdentity was not done")
    assert found.remedy == "give its service account a role, by EKS Pod Identity or IRSA: see iam/aws"


def test_an_aws_that_is_out_of_reach_is_told_as_that(world: World) -> None:
    world.proxy.reset("GetCallerIdentity")
    (found,) = world.examine()
    assert found.ok is False
    assert found.sentence.startswith("AWS is out of reach: sts:GetCallerIdentity got no usable answer")
    assert found.remedy == (
        "a route, a VPC endpoint (autoscaling, sts, ec2, monitoring) or a NetworkPolicy may be missing"
    )


def test_what_a_laptop_lacks_says_nothing_of_the_agent(world: World) -> None:
    world.proxy.fail("GetCallerIdentity", 403, "InvalidClientTokenId", "the token is invalid")
    (found,) = world.examine(own=False)
    assert (found.ok, found.sentence[:18]) == (None, "AWS was not asked:")
    assert found.remedy == (
        "run doctor in the agent's pod, or with credentials of your own (aws sts get-caller-identity)"
    )


def test_a_laptop_asks_for_the_group_and_leaves_permissions_to_the_pod(world: World) -> None:
    world.deny("DescribeScalingActivities")
    (who, denied) = world.examine(own=False)
    assert (who.ok, who.sentence.partition(": AWS is asked as ")[0]) == (None, "what the agent may do")
    assert who.sentence.endswith(", with this shell's own credentials")
    assert who.remedy == "run doctor in the agent's pod to try the agent's"
    assert denied.ok is None
    assert world.says("would replace an instance marked unhealthy").ok
    assert world.proxy.count("SimulatePrincipalPolicy") == 0


def test_a_region_that_is_not_the_machines_is_told(world: World) -> None:
    assert world.machine is not None
    world.machine = replace(world.machine, route={**world.machine.route, "region": "eu-central-1"})
    world.examine(environ={"AWS_REGION": "eu-central-1"})
    found = world.says("AWS_REGION is eu-central-1, but the machine is in us-west-2")
    assert found.sentence.endswith(": it is looked for in the wrong place")
    assert (found.ok, found.remedy) == (False, "set AWS_REGION to the region of the node")


def test_without_a_region_of_its_own_cloudwatch_hears_nothing(world: World) -> None:
    world.examine(environ={})
    found = world.says(
        "AWS_REGION is not set: the node tells us-west-2, but no metric can be sent to CloudWatch"
    )
    assert (found.ok, found.remedy) == (True, "set AWS_REGION in the agent's container")


# ---------------------------------------------------------------- without a machine


def test_without_a_machine_one_may_still_try_to_ask(world: World) -> None:
    world.machine = None
    world.deny("DescribeAutoScalingGroups")
    world.examine(BOTH)
    assert world.says("autoscaling:DescribeAutoScalingInstances is permitted").ok
    assert world.says("AWS denied autoscaling:DescribeAutoScalingGroups").ok is False
    assert world.says("autoscaling:SetInstanceHealth is asked for a group").ok is None
    reboot = world.says("ec2:RebootInstances is tried on a machine, and none was named")
    assert (reboot.ok, reboot.remedy) == (None, "name a node")


def test_without_a_machine_and_a_region_aws_is_not_asked(world: World) -> None:
    world.machine = None
    (found,) = world.examine(environ={})
    assert (found.ok, found.sentence) == (None, "no region is known, so AWS was not asked")
    assert found.remedy == "set AWS_REGION, or name a node"
    assert world.proxy.count() == 0


# ---------------------------------------------------------------- permissions


@pytest.mark.parametrize(
    "permission",
    [
        "autoscaling:DescribeAutoScalingInstances",
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeScalingActivities",
        "ec2:DescribeInstances",
        "ec2:RebootInstances",
    ],
)
def test_each_permission_that_is_not_there_is_told(world: World, permission: str) -> None:
    world.simulator(ALLOWED)
    world.deny(permission.partition(":")[2])
    denied = [f for f in world.examine(BOTH) if f.ok is False]
    assert [f.sentence.startswith(f"AWS denied {permission}") for f in denied] == [True]
    assert denied[0].remedy == "compare the agent's role with iam/aws/policy.json"


def test_a_read_that_is_throttled_could_not_be_tried(world: World) -> None:
    world.proxy.fail("DescribeScalingActivities", 400, "Throttling", "Rate exceeded")
    world.proxy.fail("RebootInstances", 503, "RequestLimitExceeded", "later")
    world.simulator(ALLOWED)
    assert [(f.ok, f.remedy) for f in world.examine(BOTH)] == [(None, "ask again")] * 2


def test_a_reboot_is_tried_by_a_dry_run(world: World) -> None:
    world.examine(BOTH)
    assert world.says(f"ec2:RebootInstances is permitted on {world.instance} (dry run)").ok


def test_a_dry_run_that_ends_without_a_word_is_no_answer(world: World) -> None:
    done = b"<RebootInstancesResponse><return>true</return></RebootInstancesResponse>"
    world.proxy.answer("RebootInstances", done)
    world.examine(BOTH)
    found = world.says("ec2:RebootInstances: AWS did not say what a dry run would have come to")
    assert (found.ok, found.remedy) == (None, "compare the agent's role with iam/aws/policy.json")


def test_what_cannot_be_tried_is_told_with_how_an_administrator_would_ask(world: World) -> None:
    unasked = world.examine()
    assert [f.ok for f in unasked] == [None, None]
    replacing = world.says("autoscaling:SetInstanceHealth cannot be tried without doing it")
    assert replacing.sentence.endswith(", and IAM's simulator did not answer")
    assert replacing.remedy.startswith(
        "compare the agent's role with iam/aws/policy.json; or as an administrator: "
        "aws iam simulate-principal-policy --policy-source-arn arn:aws:"
    )
    assert f"autoScalingGroupName/{world.group}'" in replacing.remedy
    assert "--resource-arns" not in world.says("cloudwatch:PutMetricData cannot be tried").remedy


def test_the_simulator_is_told_the_group_its_tags_and_the_namespace(world: World) -> None:
    world.simulator(ALLOWED)
    world.examine(environ={**REGION, "CLOUDWATCH_NAMESPACE": "Mine"})
    replacing, telling = (r.params for r in world.proxy.requests if r.action == "SimulatePrincipalPolicy")
    assert replacing["ActionNames.member.1"] == "autoscaling:SetInstanceHealth"
    assert replacing["ResourceArns.member.1"].endswith(f"autoScalingGroupName/{world.group}")
    assert telling["ContextEntries.member.1.ContextKeyName"] == "cloudwatch:namespace"
    assert telling["ContextEntries.member.1.ContextKeyValues.member.1"] == "Mine"


def test_what_the_simulator_denies_is_missing_but_telling_is_not_vital(world: World) -> None:
    world.simulator("<EvalDecision>implicitDeny</EvalDecision>")
    replacing, telling = world.examine()
    assert replacing.ok is False
    assert replacing.sentence == (
        "autoscaling:SetInstanceHealth is not permitted, says IAM's simulator (implicitDeny)"
    )
    assert telling.ok
    assert telling.sentence.endswith("it recovers, and CloudWatch hears nothing")


def test_a_simulator_that_lacks_the_value_of_a_condition_key_decides_nothing(world: World) -> None:
    missing = "<MissingContextValues><member>aws:SourceVpc</member></MissingContextValues>"
    world.simulator(f"<EvalDecision>implicitDeny</EvalDecision>{missing}")
    assert [f.ok for f in world.examine()] == [None, None]
    assert world.says("autoscaling:SetInstanceHealth: IAM's simulator would have to know aws:SourceVpc")


@pytest.mark.parametrize(
    ("caller", "asked"),
    [
        ("arn:aws:sts::123456789012:assumed-role/agent/i-1", "arn:aws:iam::123456789012:role/agent"),
        ("arn:aws-cn:sts::123456789012:assumed-role/a/b", "arn:aws-cn:iam::123456789012:role/a"),
        ("arn:aws:iam::123456789012:user/ada", "arn:aws:iam::123456789012:user/ada"),
    ],
)
def test_the_simulator_is_asked_of_the_role_behind_a_session(caller: str, asked: str) -> None:
    seen: list[object] = []

    def iam(_: str, **params: object) -> dict[str, object]:
        seen.append(params["PolicySourceArn"])
        raise Refused("no")

    simulated("aws", iam, caller, "a:B", "*", {})
    assert seen == [asked]


def test_a_namespace_that_cloudwatch_refuses_is_told(world: World) -> None:
    world.examine(environ={**REGION, "CLOUDWATCH_NAMESPACE": "AWS/EC2"})
    found = world.says(
        'CLOUDWATCH_NAMESPACE: found "AWS/EC2", expected a namespace of your own; AWS/ belongs to AWS'
    )
    assert (found.ok, found.remedy) == (False, "set CLOUDWATCH_NAMESPACE")


# ---------------------------------------------------------------- the group


def test_an_instance_in_no_group_has_nothing_to_take_its_place(own_world: World) -> None:
    own_world.aws.detach(own_world.instance, own_world.group)
    own_world.examine()
    found = own_world.says("is in no Auto Scaling group of us-west-2: nothing would take its place")
    assert (found.ok, found.remedy) == (False, "attach it to a group, or write a policy without replace")
    own_world.examine(frozenset({Step.REBOOT}))
    assert own_world.says("is in no Auto Scaling group of us-west-2").ok  # nobody wants to replace it


def test_a_suspended_process_that_decides_is_told_with_the_command(own_world: World) -> None:
    own_world.aws.client("autoscaling").suspend_processes(
        AutoScalingGroupName=own_world.group, ScalingProcesses=["ReplaceUnhealthy"]
    )
    own_world.examine()
    found = own_world.says(f"group {own_world.group} has ReplaceUnhealthy suspended")
    assert found.ok is False
    assert found.remedy == (f"aws autoscaling resume-processes --auto-scaling-group-name {own_world.group}")


def test_a_suspended_process_that_does_not_matter_is_named(own_world: World) -> None:
    own_world.aws.client("autoscaling").suspend_processes(
        AutoScalingGroupName=own_world.group, ScalingProcesses=["AZRebalance"]
    )
    own_world.examine()
    assert own_world.says("keeps nothing from being replaced: AZRebalance").ok


def test_a_group_that_is_short_makes_a_replacement_wait(own_world: World) -> None:
    own_world.aws.set_desired(own_world.group, 3)
    own_world.examine()
    found = own_world.says("while it is short by 1, a replacement waits")
    assert found.ok is True
    assert found.remedy == (
        f"aws autoscaling describe-scaling-activities --auto-scaling-group-name {own_world.group}"
    )


def test_a_group_that_another_service_manages_is_not_ours(world: World) -> None:
    operator = "<Operator><Managed>true</Managed><Principal>eks.amazonaws.com</Principal></Operator>"
    name = f"<AutoScalingGroupName>{world.group}</AutoScalingGroupName>"
    world.proxy.edit("DescribeAutoScalingGroups", name, name + operator)
    world.examine()
    found = world.says("is managed by eks.amazonaws.com")
    assert found.ok is False
    assert found.remedy == "what manages the group has to replace the machine, or a person"


def test_grace_health_checks_warm_pool_and_protection_are_told(proxy: CountingProxy) -> None:
    proxy.forget()
    world = World(
        shared_aws(),
        proxy,
        HealthCheckType="ELB",
        HealthCheckGracePeriod=300,
        NewInstancesProtectedFromScaleIn=True,
    )
    name = f"<AutoScalingGroupName>{world.group}</AutoScalingGroupName>"
    proxy.edit("DescribeAutoScalingGroups", name, f"{name}<WarmPoolSize>2</WarmPoolSize>")
    world.examine()
    assert world.says("health checks ELB, grace period 300 s: a younger instance is not replaced").ok
    assert world.says("has a warm pool of 2: replacements come from it").ok
    assert world.says("is protected from scale-in, which stops no replacement").ok


def test_a_group_that_vanished_meanwhile_has_nothing_to_tell(world: World) -> None:
    empty = (
        '<DescribeAutoScalingGroupsResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">'
        "<DescribeAutoScalingGroupsResult><AutoScalingGroups/></DescribeAutoScalingGroupsResult>"
        "</DescribeAutoScalingGroupsResponse>"
    )
    world.proxy.answer("DescribeAutoScalingGroups", empty.encode())
    world.examine()
    assert not [f for f in world.findings if "would replace" in f.sentence]
    assert world.says("autoscaling:SetInstanceHealth is asked for a group, and none is known").ok is None


# ---------------------------------------------------------------- Karpenter


@pytest.mark.parametrize(
    ("owners", "ok", "sentence", "remedy"),
    [
        (
            (("NodeClaim", "trn-x", "u"),),
            True,
            "Karpenter made it for nodepool trn: it is replaced by deleting NodeClaim trn-x",
            "",
        ),
        (
            (),
            False,
            "it is in Karpenter's nodepool trn, but no NodeClaim owns its Node: it cannot be replaced",
            "kubectl get nodeclaims -l karpenter.sh/nodepool=trn; the Node's ownerReferences name it",
        ),
    ],
)
def test_karpenters_machines_need_no_group(
    world: World, owners: tuple[tuple[str, str, str], ...], ok: bool, sentence: str, remedy: str
) -> None:
    provider_id = world.aws.provider_id(world.instance)
    node = NodeView("w", "u", "1", provider_id, labels={"karpenter.sh/nodepool": "trn"}, owners=owners)
    world.machine = provider().identify(node)
    world.examine(REPLACE)
    found = world.says(sentence)
    assert (found.ok, found.remedy) == (ok, remedy)
    assert world.proxy.count("DescribeAutoScalingInstances") == 0
    assert not [f for f in world.findings if "SetInstanceHealth" in f.sentence]


def test_every_declared_permission_is_named_in_some_finding(world: World) -> None:
    world.examine(BOTH)
    said = json.dumps([f.sentence for f in world.findings])
    declared = set[str]().union(*AwsProvider.permissions.values())
    assert [permission for permission in sorted(declared) if permission not in said] == []
