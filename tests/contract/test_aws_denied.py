"""A permission that lacks: the call fails, and a person is told which one, on what, and what to do about it.

The proxy answers as AWS does, in the shape of each service's own protocol: the Auto Scaling and EC2 API
references, "Common errors"; CloudWatch's error is the JSON protocol's, which this SDK speaks to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from recovery_testkit.aws import LocalAws, environment, shared_aws
from recovery_testkit.proxy import CountingProxy

from providers.aws import create_monitor
from providers.aws.asg import AwsProvider
from providers.aws.session import AwsSession, Limits
from recovery.clock import SystemClock
from recovery.errors import Refused
from recovery.model import Machine, NodeView, Reference, Step
from recovery.provider.monitor import Metric
from recovery.provider.protocol import ProviderContext

ROLE = "arn:aws:sts::123456789012:assumed-role/node-recovery/pod"
DECLARED = sorted(set[str]().union(*AwsProvider.permissions.values()))


@dataclass
class Denied:
    """A world in which AWS denies one action and grants all others."""

    aws: LocalAws
    proxy: CountingProxy
    provider: AwsProvider
    machine: Machine
    group: str
    begun: Reference

    def deny(self, permission: str, because: str) -> None:
        service, action = permission.split(":")
        text = f"User: {ROLE} is not authorized to perform: {permission} on resource: arn:x {because}"
        if service == "ec2":
            self.proxy.answer(action, _ec2_error(text), status=403)
        elif service == "cloudwatch":
            self.proxy.answer(action, _json_error(text), "application/x-amz-json-1.0", status=403)
        else:
            self.proxy.fail(action, 403, "AccessDenied", text)

    def preflight(self, action: Step) -> Reference:
        return self.provider.preflight(self.machine, action).reference

    def replace(self) -> None:
        self.provider.start(self.machine, Step.REPLACE, "t", self.preflight(Step.REPLACE))

    def reboot(self) -> None:
        self.provider.start(self.machine, Step.REBOOT, "t", self.preflight(Step.REBOOT))

    def follow_reboot(self) -> None:
        self.provider.poll(self.machine, self.preflight(Step.REBOOT))

    def follow_replacement(self) -> None:
        self.aws.replace(self.machine.id, self.group)
        self.provider.poll(self.machine, self.begun)

    def publish(self) -> None:
        monitor = create_monitor(ProviderContext(SystemClock(), os.environ))
        monitor.publish([Metric("NeuronHasError_DMA_ERROR", 1.0, datetime.now(UTC), {})])


def _ec2_error(text: str) -> bytes:
    return (
        '<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error><Code>UnauthorizedOperation</Code>'
        f"<Message>You are not authorized to perform this operation. {text}. Encoded authorization failure "
        f"message: {'A1b2' * 60}</Message></Error></Errors><RequestID>0</RequestID></Response>"
    ).encode()


def _json_error(text: str) -> bytes:
    kind = "com.amazon.coral.service#AccessDeniedException"
    return json.dumps({"__type": kind, "Message": text}).encode()


CALLS: dict[str, tuple[Callable[[Denied], None], str]] = {
    "autoscaling:DescribeAutoScalingInstances": (Denied.replace, " for {machine}"),
    "autoscaling:DescribeAutoScalingGroups": (Denied.replace, " for group {group}"),
    "autoscaling:DescribeScalingActivities": (Denied.follow_replacement, " for group {group}"),
    "autoscaling:SetInstanceHealth": (Denied.replace, " on group {group} for {machine}"),
    "ec2:RebootInstances": (Denied.reboot, " for {machine}"),
    "ec2:DescribeInstances": (Denied.follow_reboot, " for {machine}"),
    "cloudwatch:PutMetricData": (Denied.publish, " in namespace NodeRecovery"),
}
"""By permission: what is done without it, and how its sentence names what it was wanted for."""


@pytest.fixture(scope="module")
def proxy() -> Iterator[CountingProxy]:
    with CountingProxy(shared_aws().address) as proxy, environment(proxy.url):
        yield proxy


@pytest.fixture(scope="module")
def session(proxy: CountingProxy) -> AwsSession:
    return AwsSession(SystemClock(), Limits(connect=1.0, read=5.0, attempts=1))


@pytest.fixture
def world(proxy: CountingProxy, session: AwsSession) -> Denied:
    proxy.forget()
    aws = shared_aws()
    group = aws.create_group(2)
    (instance, _) = aws.instances(group)
    provider = AwsProvider(session, SystemClock(), os.environ)
    machine = provider.identify(NodeView("worker-1", "node-uid", "1", aws.provider_id(instance)))
    begun = provider.preflight(machine, Step.REPLACE).reference
    proxy.forget()
    return Denied(aws, proxy, AwsProvider(session, SystemClock(), os.environ), machine, group, begun)


def _told(world: Denied, permission: str, because: str) -> str:
    call, _ = CALLS[permission]
    world.deny(permission, because)
    with pytest.raises(Refused) as refused:
        call(world)
    assert world.proxy.count(permission.partition(":")[2]) == 1, "a denied call is not repeated"
    return refused.value.reason


def test_every_declared_permission_has_its_turn_below() -> None:
    assert sorted(CALLS) == DECLARED


@pytest.mark.parametrize("permission", DECLARED)
def test_without_one_permission_its_call_fails_and_the_sentence_says_which_on_what_and_what_to_do(
    world: Denied, permission: str
) -> None:
    told = _told(world, permission, f"because no identity-based policy allows the {permission} action")
    wanted_for = CALLS[permission][1].format(machine=world.machine, group=world.group)
    assert told.startswith(
        f"AWS denied {permission}{wanted_for}: "
        "allow that to the agent's role, as iam/aws/policy.json does; AWS says "
    )
    assert f"is not authorized to perform: {permission}" in told
    assert "123456789012" not in told


@pytest.mark.parametrize("permission", ["autoscaling:SetInstanceHealth", "ec2:RebootInstances"])
def test_a_denial_that_no_grant_outweighs_does_not_send_anybody_to_grant(
    world: Denied, permission: str
) -> None:
    told = _told(world, permission, "with an explicit deny in a service control policy")
    assert "there is an explicit deny in a service control policy, and no grant outweighs that" in told
    assert "iam/aws" not in told


@pytest.mark.parametrize("kind", ["VPC endpoint policy", "service control policy", "permissions boundary"])
@pytest.mark.parametrize(
    ("because", "told"),
    [
        ("because no {} allows the x:Y action", "no {} allows it, and a grant to the agent's role does not"),
        ("with an explicit deny in a {}", "there is an explicit deny in a {}, and no grant outweighs that"),
    ],
)
def test_what_another_policy_than_the_roles_forbids_sends_nobody_to_grant(
    world: Denied, kind: str, because: str, told: str
) -> None:
    said = _told(world, "autoscaling:SetInstanceHealth", because.format(kind))
    assert told.format(kind) in said
    assert "iam/aws" not in said


def test_a_denied_mark_changed_nothing(world: Denied) -> None:
    _told(world, "autoscaling:SetInstanceHealth", "because no identity-based policy allows it")
    assert world.aws.health(world.machine.id).upper() == "HEALTHY"


def test_without_a_groups_history_a_machine_is_replaced_as_if_it_could_launch(world: Denied) -> None:
    world.deny("autoscaling:DescribeScalingActivities", "because no identity-based policy allows it")
    found = world.provider.preflight(world.machine, Step.REPLACE)
    assert (found.cannot_launch, found.loses_one) == ("", False)
    world.replace()
    assert world.aws.health(world.machine.id).upper() == "UNHEALTHY"
