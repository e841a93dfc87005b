"""The policies of ``iam/aws``, weighed by an engine that knows resources and conditions as IAM does.

The engine is @cloud-copilot/iam-simulate, pinned in ``tools/iam``: no AWS was asked. Each test gives it the
requests that AWS makes of our calls; what a request holds is the Service Authorization Reference's to say.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import unquote

import pytest
from recovery_testkit.aws import ACCOUNT, shared_aws
from toolbox import iam_simulator

from providers.aws.asg import AwsProvider

IAM = Path(__file__).parents[2] / "iam" / "aws"
POLICIES = ("policy.json", "policy-by-tag.json")
TRUSTS = ("trust-pod-identity.json", "trust-irsa.json")
DECLARED = sorted(set[str]().union(*AwsProvider.permissions.values()))
PARTITIONS = {"aws": "us-west-2", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
ALLOWED, DENIED = "Allowed", "ImplicitlyDenied"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class World:
    """Whose group, instance and metrics they are."""

    partition: str = "aws"
    region: str = "us-west-2"
    account: str = ACCOUNT
    cluster: str = "training"
    group: str = "trn1"
    metrics: str = "NeuronHealthCheck"
    namespace: str = "neuron-healthcheck-system"
    service_account: str = "node-problem-detector"
    issuer: str = "oidc.eks.us-west-2.amazonaws.com/id/EXAMPLE"

    def values(self) -> dict[str, str]:
        return {
            "PARTITION": self.partition,
            "REGION": self.region,
            "ACCOUNT": self.account,
            "CLUSTER": self.cluster,
            "GROUP": self.group,
            "METRIC_NAMESPACE": self.metrics,
            "NAMESPACE": self.namespace,
            "SERVICE_ACCOUNT": self.service_account,
            "OIDC_PROVIDER": self.issuer,
        }

    def document(self, name: str) -> Any:
        """The JSON file, filled in for this world."""
        return json.loads(Template((IAM / name).read_text()).substitute(self.values()))

    def arn(self, service: str, rest: str, region: str | None = None) -> str:
        where = self.region if region is None else region
        return f"arn:{self.partition}:{service}:{where}:{self.account}:{rest}"

    @property
    def role(self) -> str:
        return self.arn("iam", "role/node-recovery", region="")


OURS = World()


@dataclass(frozen=True)
class Request:
    action: str
    resource: str
    context: dict[str, str] = field(default_factory=dict)


def call(action: str, world: World = OURS) -> Request:
    """What IAM is asked when the provider makes this call on what is this world's."""
    tags = {f"aws:ResourceTag/kubernetes.io/cluster/{world.cluster}": "owned"} if world.cluster else {}
    uuid = "930d940e-891e-4781-a11a-7b0acd480f03"
    special = {
        "autoscaling:SetInstanceHealth": Request(
            action,
            world.arn("autoscaling", f"autoScalingGroup:{uuid}:autoScalingGroupName/{world.group}"),
            tags,
        ),
        "ec2:RebootInstances": Request(action, world.arn("ec2", "instance/i-0123456789abcdef0"), tags),
        "cloudwatch:PutMetricData": Request(action, "*", {"cloudwatch:namespace": world.metrics}),
    }
    return special.get(action, Request(action, "*"))


def weigh(simulations: Iterable[dict[str, Any]]) -> list[str]:
    """Allowed, ImplicitlyDenied or ExplicitlyDenied for each; anything else is a mistake in the test."""
    node, script = iam_simulator()
    done = subprocess.run(  # noqa: S603 (our own script)
        [node, script], input=json.dumps(list(simulations)), capture_output=True, text=True, check=True
    )
    verdicts: list[str] = json.loads(done.stdout)
    assert set(verdicts) <= {ALLOWED, DENIED, "ExplicitlyDenied"}, verdicts
    return verdicts


def simulation(policy: Any, request: Request, world: World = OURS) -> dict[str, Any]:
    """The agent asks, and its role has this policy. The role is in the account of what it asks for."""
    return {
        "request": {
            "principal": world.role,
            "action": request.action,
            "resource": {"resource": request.resource, "accountId": world.account},
            "contextVariables": request.context,
        },
        "identityPolicies": [{"name": "policy", "policy": policy}],
    }


# ---------------------------------------------------------------- what the agent may do


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_call_of_the_provider_is_allowed_on_what_is_ours(name: str, partition: str) -> None:
    world = World(partition, PARTITIONS[partition])
    policy = world.document(name)
    verdicts = weigh(simulation(policy, call(action, world), world) for action in DECLARED)
    assert dict(zip(DECLARED, verdicts, strict=True)) == dict.fromkeys(DECLARED, ALLOWED)


MARK, REBOOT, TELL = "autoscaling:SetInstanceHealth", "ec2:RebootInstances", "cloudwatch:PutMetricData"
ELSEWHERE = {"region": "us-east-1"}, {"account": "999988887777"}
FOREIGN: list[tuple[str, str, dict[str, str]]] = [
    *(("policy.json", MARK, other) for other in ({"group": "trn2"}, {"group": "my-trn1"}, *ELSEWHERE)),
    *(("policy-by-tag.json", MARK, o) for o in ({"cluster": "staging"}, {"cluster": ""}, *ELSEWHERE)),
    *((p, REBOOT, o) for p in POLICIES for o in ({"cluster": "staging"}, {"cluster": ""}, *ELSEWHERE)),
    *((p, TELL, o) for p in POLICIES for o in ({"metrics": "AWS/EC2"}, {"metrics": "NodeRecovery"})),
]


def test_no_call_is_allowed_on_what_is_anothers() -> None:
    """Of each, one thing differs from ours. Where it is the account, the role asking is in that one, too."""
    worlds = [replace(OURS, **other) for _, _, other in FOREIGN]
    verdicts = weigh(
        simulation(OURS.document(name), call(action, world), world)
        for (name, action, _), world in zip(FOREIGN, worlds, strict=True)
    )
    assert [case for case, verdict in zip(FOREIGN, verdicts, strict=True) if verdict != DENIED] == []


def test_by_tag_another_group_of_the_same_cluster_may_be_marked() -> None:
    other = replace(OURS, group="trn2")
    assert weigh([simulation(OURS.document("policy-by-tag.json"), call(MARK, other))]) == [ALLOWED]


def without(policy: Any, action: str) -> Any:
    """The policy with one action dropped, and its statement if nothing is left of that."""
    kept = []
    for statement in policy["Statement"]:
        named = statement["Action"]
        actions = [a for a in ([named] if isinstance(named, str) else named) if a != action]
        if actions:
            kept.append(statement | {"Action": actions})
    return policy | {"Statement": kept}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("dropped", DECLARED)
def test_without_one_action_its_call_is_denied_and_every_other_is_not(name: str, dropped: str) -> None:
    policy = without(OURS.document(name), dropped)
    verdicts = weigh(simulation(policy, call(action)) for action in DECLARED)
    assert [a for a, verdict in zip(DECLARED, verdicts, strict=True) if verdict == DENIED] == [dropped]


def test_the_walkthroughs_way_of_granting_a_question_on_a_group_is_denied() -> None:
    """Why ours has "*": the question takes no resource, so that a grant on one never fits."""
    action = "autoscaling:DescribeAutoScalingInstances"
    group = call(MARK).resource
    policy = {"Statement": [{"Effect": "Allow", "Action": [action, MARK], "Resource": group}]}
    policy["Version"] = "2012-10-17"  # type: ignore[assignment]
    assert weigh([simulation(policy, call(action)), simulation(policy, call(MARK))]) == [DENIED, ALLOWED]


# ---------------------------------------------------------------- who may be the agent


def trust(document: Any, principal: str, action: str, context: dict[str, str]) -> dict[str, Any]:
    return {
        "request": {
            "principal": principal,
            "action": action,
            "resource": {"resource": OURS.role, "accountId": OURS.account},
            "contextVariables": context,
        },
        "resourcePolicy": document,
    }


CONCLUDER = "node-recovery-concluder"
"""The concluder's account, and the namespace of that."""


def session(world: World) -> dict[str, str]:
    """What EKS Pod Identity says of itself and the pod when it asks for a session."""
    return {
        "aws:SourceAccount": world.account,
        "aws:SourceArn": world.arn("eks", f"cluster/{world.cluster}"),
        "aws:RequestTag/kubernetes-namespace": world.namespace,
        "aws:RequestTag/kubernetes-service-account": world.service_account,
    }


@pytest.mark.parametrize("action", ["sts:AssumeRole", "sts:TagSession"])
def test_pod_identity_gives_the_role_to_our_service_accounts_alone(action: str) -> None:
    document, service = OURS.document("trust-pod-identity.json"), "pods.eks.amazonaws.com"
    ours = [OURS, replace(OURS, namespace=CONCLUDER, service_account=CONCLUDER)]
    asked = [trust(document, service, action, session(world)) for world in ours]
    assert weigh(asked) == [ALLOWED, ALLOWED]
    others = [
        replace(OURS, **other)
        for other in (
            {"namespace": "default"},
            {"service_account": "default"},
            {"namespace": CONCLUDER},
            {"service_account": CONCLUDER},
            {"cluster": "staging"},
            *ELSEWHERE,
        )
    ]
    untagged = {key: value for key, value in session(OURS).items() if "RequestTag" not in key}
    denied = [trust(document, service, action, session(world)) for world in others]
    denied.append(trust(document, service, action, untagged))  # an association without session tags
    denied.append(trust(document, "ec2.amazonaws.com", action, session(OURS)))
    assert weigh(denied) == [DENIED] * len(denied)


def test_irsa_gives_the_role_to_our_service_accounts_alone() -> None:
    """With an issuer whose condition keys the engine knows: EKS's it leaves out of the weighing."""
    world = replace(OURS, issuer="accounts.google.com")
    document, action = world.document("trust-irsa.json"), "sts:AssumeRoleWithWebIdentity"
    provider = world.arn("iam", f"oidc-provider/{world.issuer}", region="")
    subject = f"system:serviceaccount:{world.namespace}:{world.service_account}"

    def token(sub: str = subject, aud: str = "sts.amazonaws.com", by: str = provider) -> dict[str, Any]:
        keys = {f"{world.issuer}:sub": sub, f"{world.issuer}:aud": aud}
        return trust(document, by, action, keys)

    concluders = f"system:serviceaccount:{CONCLUDER}:{CONCLUDER}"
    assert weigh([token(), token(sub=concluders)]) == [ALLOWED, ALLOWED]
    denied = [
        token(sub=f"system:serviceaccount:{world.namespace}:default"),
        token(sub=f"system:serviceaccount:default:{world.service_account}"),
        token(sub=f"system:serviceaccount:{world.namespace}:{CONCLUDER}"),
        token(sub=subject + "-2"),
        token(aud="kubernetes"),
        token(by=world.arn("iam", "oidc-provider/www.amazon.com", region="")),
    ]
    assert weigh(denied) == [DENIED] * len(denied)


# ---------------------------------------------------------------- the same by other means


def deployed(**parameters: str) -> tuple[Any, Any]:
    """Deploy the template on moto. Returns the permissions and the trust of its role.

    All but its association, a kind of resource that moto does not know: that is cfn-lint's to check.
    """
    aws, name = shared_aws(), f"node-recovery-{next(_numbers)}"
    text = (IAM / "cloudformation.yaml").read_text()
    template, left_out = re.subn(r"^  Association:\n.*?^(?=\S)", "", text, flags=re.M | re.S)
    assert left_out == 1
    aws.client("cloudformation").create_stack(
        StackName=name,
        TemplateBody=template,
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
        Capabilities=["CAPABILITY_IAM"],
    )
    (stack,) = aws.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    (output,) = stack["Outputs"]
    assert output["OutputKey"] == "RoleArn"
    iam, role = aws.client("iam"), output["OutputValue"].rpartition("/")[2]
    (policy,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
    permissions = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
    return _read(permissions), _read(iam.get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"])


def _read(document: Any) -> Any:
    return json.loads(unquote(document)) if isinstance(document, str) else document


NEURON = {
    "ClusterName": OURS.cluster,
    "MetricNamespace": OURS.metrics,
    "Namespace": OURS.namespace,
    "ServiceAccount": OURS.service_account,
}


def test_cloudformation_makes_the_same_role_for_one_group_and_pod_identity() -> None:
    permissions, trusted = deployed(**NEURON, GroupName=OURS.group)
    assert permissions == OURS.document("policy.json")
    assert trusted == OURS.document("trust-pod-identity.json")


def test_cloudformation_makes_the_same_role_for_every_group_of_a_cluster_and_irsa() -> None:
    permissions, trusted = deployed(**NEURON, OidcProvider=OURS.issuer)
    assert permissions == OURS.document("policy-by-tag.json")
    assert trusted == OURS.document("trust-irsa.json")


def terraform(*arguments: str, cwd: Path, stdin: str = "") -> str:
    """What Terraform answers. It has no provider here: it formats and evaluates, and plans nothing."""
    found = shutil.which("terraform")
    if found is None:
        pytest.skip("terraform is not on the PATH, and is built by nobody here: its module is only parsed")
    done = subprocess.run(  # noqa: S603 (our own arguments)
        [found, *arguments], cwd=cwd, input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_terraforms_own_formatter_has_nothing_to_change() -> None:
    assert terraform("fmt", "-check", "-diff", cwd=IAM / "terraform") == ""


@pytest.mark.parametrize("name", POLICIES + TRUSTS)
def test_terraform_makes_the_same_of_the_json(name: str, tmp_path: Path) -> None:
    asked = f"jsondecode(templatefile({json.dumps(str(IAM / name))}, {json.dumps(OURS.values())}))"
    said = terraform("console", cwd=tmp_path, stdin=f"jsonencode({asked})\n")
    assert json.loads(json.loads(said)) == OURS.document(name)
