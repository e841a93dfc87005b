"""What is missing on AWS, for ``node-recovery doctor``: who one is, the instance's group, each permission.

Imported by ``doctor`` alone. Nothing is changed: reads are tried, EC2's reboot with ``DryRun`` (EC2 API
reference, RebootInstances: DryRunOperation if it would be permitted, UnauthorizedOperation if not), and what
has no harmless form is asked of IAM's simulator (``simulate``). To mark a healthy instance Healthy is no
harmless form of SetInstanceHealth: it could undo another's mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from providers.aws.group import Group, group_of, no_launch
from providers.aws.lookup import activities, ec2_state, instance
from providers.aws.session import AwsSession, region_of
from providers.aws.settings import NAMESPACE
from providers.aws.simulate import POLICY, simulated
from recovery.errors import NodeRecoveryError, Refused, Retry, SettingsError
from recovery.model import Machine, Step
from recovery.provider.protocol import Finding

AREA = "aws"
REPLACE, REBOOT, TELL = "autoscaling:SetInstanceHealth", "ec2:RebootInstances", "cloudwatch:PutMetricData"

Answer = TypeVar("Answer")


def examine(
    session: AwsSession,
    environ: Mapping[str, str],
    machine: Machine | None,
    steps: frozenset[Step],
    own: bool,
) -> Iterator[Finding]:
    """Each thing that ``steps`` would need. ``session`` should be an impatient one; ``own``: see Examiner."""
    region = machine.route.get("region", "") if machine else region_of(environ)
    if not region:
        yield Finding(
            AREA, None, "no region is known, so AWS was not asked", "set AWS_REGION, or name a node"
        )
        return
    if machine is not None:
        yield from _region(environ, machine, region, own)
    try:
        who = session.read("sts", "GetCallerIdentity", region, "sts:GetCallerIdentity")
    except NodeRecoveryError as error:
        yield _nobody(error, own)
        return
    arn = str(who.get("Arn") or "")
    if own:
        yield Finding(AREA, True, f"AWS knows the agent as {arn}, in region {region}")
    else:
        yield Finding(
            AREA,
            None,
            f"what the agent may do: AWS is asked as {arn}, with this shell's own credentials",
            "run doctor in the agent's pod to try the agent's",
        )
    yield from _Examination(session, environ, machine, steps, region, arn, own).findings()


def _region(environ: Mapping[str, str], machine: Machine, region: str, own: bool) -> Iterator[Finding]:
    zone = machine.route.get("zone", "")
    if not zone.startswith(region):
        yield Finding(
            AREA,
            False if own else None,
            f"AWS_REGION is {region}, but the machine is in {zone}: it is looked for in the wrong place",
            "set AWS_REGION to the region of the node",
        )
    if own and not region_of(environ):
        yield Finding(
            AREA,
            True,
            f"AWS_REGION is not set: the node tells {region}, but no metric can be sent to CloudWatch",
            "set AWS_REGION in the agent's container",
        )


def _nobody(error: NodeRecoveryError, own: bool) -> Finding:
    """Without good credentials nothing works; an AWS that is out of reach says nothing about them."""
    if not own:
        return Finding(
            AREA,
            None,
            f"AWS was not asked: {error}",
            "run doctor in the agent's pod, or with credentials of your own (aws sts get-caller-identity)",
        )
    if isinstance(error, Refused) or "credentials" in str(error):
        return Finding(
            AREA,
            False,
            f"AWS does not know the agent: {error}",
            "give its service account a role, by EKS Pod Identity or IRSA: see iam/aws",
        )
    return Finding(
        AREA,
        False,
        f"AWS is out of reach: {error}",
        "a route, a VPC endpoint (autoscaling, sts, ec2, monitoring) or a NetworkPolicy may be missing",
    )


class _Examination:
    """With credentials that AWS accepts."""

    def __init__(
        self,
        session: AwsSession,
        environ: Mapping[str, str],
        machine: Machine | None,
        steps: frozenset[Step],
        region: str,
        arn: str,
        own: bool,
    ) -> None:
        self.session = session
        self.environ = environ
        self.machine = machine
        self.steps = steps
        self.region = region
        self.arn = arn
        self.own = own
        self.raw: Mapping[str, Any] = {}  # the group, as AWS describes it

    def findings(self) -> Iterator[Finding]:
        karpenter = self.machine is not None and "nodepool" in self.machine.route
        if self.machine is None:
            yield from self._describes()
        elif karpenter:
            yield _claim(self.machine)
        else:
            yield from self._group(self.machine)
        if not self.own:  # another's permissions are no answer
            return
        if Step.REPLACE in self.steps and not karpenter:
            yield self._replace()
        if Step.REBOOT in self.steps:
            yield self._reboot()
        elif Step.REPLACE in self.steps and not karpenter and self.machine is not None:
            yield _only_if_it_can(self._reboot())
        yield from self._metrics()

    def _ask(self, what: str, question: Callable[[], Answer]) -> tuple[Answer | None, Finding]:
        """The answer, and the finding that the permission is there, or not, or could not be tried."""
        try:
            return question(), Finding(AREA, True, f"{what} is permitted")
        except Refused as error:
            return None, Finding(AREA, False if self.own else None, error.reason, POLICY)
        except Retry as error:
            return None, Finding(AREA, None, error.reason, "ask again")

    def _read(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:
        return self.session.read(service, operation, self.region, f"{service}:{operation}", **params)

    def _describes(self) -> Iterator[Finding]:
        """Without a machine: whether one may ask at all."""
        for operation in (
            "DescribeAutoScalingInstances",
            "DescribeAutoScalingGroups",
            "DescribeScalingActivities",
        ):
            one = partial(self._read, "autoscaling", operation, MaxRecords=1)
            yield self._ask(f"autoscaling:{operation}", one)[1]

    # ------------------------------------------------------------ the group

    def _group(self, machine: Machine) -> Iterator[Finding]:
        found, finding = self._ask(
            "autoscaling:DescribeAutoScalingInstances", lambda: instance(self.session, machine, self.region)
        )
        yield finding
        if finding.ok and found is None:
            yield Finding(
                AREA,
                Step.REPLACE not in self.steps,
                f"{machine} is in no Auto Scaling group of {self.region}: nothing would take its place",
                "attach it to a group, or write a policy without replace",
            )
        if found is not None:
            name, member = found
            yield Finding(
                AREA, True, f"{machine} is in group {name}: {member.lifecycle}, {member.health.lower()}"
            )
            if member.protected:
                yield Finding(AREA, True, f"{machine} is protected from scale-in, which stops no replacement")
            yield from self._of_group(name)
        yield self._ask("ec2:DescribeInstances", lambda: ec2_state(self.session, machine, self.region))[1]

    def _of_group(self, name: str) -> Iterator[Finding]:
        answer, finding = self._ask(
            "autoscaling:DescribeAutoScalingGroups",
            lambda: self._read("autoscaling", "DescribeAutoScalingGroups", AutoScalingGroupNames=[name]),
        )
        yield finding
        history, finding = self._ask(
            "autoscaling:DescribeScalingActivities", lambda: activities(self.session, name, self.region)
        )
        yield finding
        if failed := no_launch(history or (), self.session.now()):
            yield Finding(
                AREA,
                True,
                f"group {name} {failed}: a machine is rebooted before it is replaced",
                f"aws autoscaling describe-scaling-activities --auto-scaling-group-name {name}",
            )
        if answer is None or not answer.get("AutoScalingGroups"):
            return
        self.raw = answer["AutoScalingGroups"][0]
        group = group_of(self.raw)
        yield _obstacle(group)
        yield from _capacity(group, self.raw)

    # ------------------------------------------------------------ permissions

    def _replace(self) -> Finding:
        arn = str(self.raw.get("AutoScalingGroupARN") or "")
        if not arn:
            return Finding(AREA, None, f"{REPLACE} is asked for a group, and none is known", POLICY)
        tags = {f"aws:ResourceTag/{t['Key']}": str(t.get("Value") or "") for t in self.raw.get("Tags") or ()}
        return simulated(AREA, partial(self._read, "iam"), self.arn, REPLACE, arn, tags)

    def _reboot(self) -> Finding:
        """EC2 says by an error that it would have been done, or that it would not."""
        if self.machine is None:
            return Finding(AREA, None, f"{REBOOT} is tried on a machine, and none was named", "name a node")
        try:
            self._read("ec2", "RebootInstances", InstanceIds=[self.machine.id], DryRun=True)
        except Refused as error:
            if "DryRunOperation" in error.reason:
                return Finding(AREA, True, f"{REBOOT} is permitted on {self.machine} (dry run)")
            return Finding(AREA, False, error.reason, POLICY)
        except Retry as error:
            return Finding(AREA, None, error.reason, "ask again")
        return Finding(AREA, None, f"{REBOOT}: AWS did not say what a dry run would have come to", POLICY)

    def _metrics(self) -> Iterator[Finding]:
        try:
            namespace = NAMESPACE.of(self.environ)
        except SettingsError as error:
            yield Finding(AREA, False, str(error), "set CLOUDWATCH_NAMESPACE")
            return
        context = {"cloudwatch:namespace": namespace}
        found = simulated(AREA, partial(self._read, "iam"), self.arn, TELL, "*", context)
        if found.ok is False:  # telling never blocks doing
            found = Finding(
                AREA, True, f"{found.sentence}: it recovers, and CloudWatch hears nothing", POLICY
            )
        yield found


def _only_if_it_can(found: Finding) -> Finding:
    """A reboot that no rule asks for: without it, a machine is replaced as before."""
    if found.ok is not False:
        return found
    why = "a machine whose group cannot launch would not be rebooted first"
    return Finding(found.area, True, f"{found.sentence}: {why}", found.remedy)


def _claim(machine: Machine) -> Finding:
    pool, name = machine.route["nodepool"], machine.route.get("nodeclaim", "")
    if name:
        return Finding(
            AREA, True, f"Karpenter made it for nodepool {pool}: it is replaced by deleting NodeClaim {name}"
        )
    return Finding(
        AREA,
        False,
        f"it is in Karpenter's nodepool {pool}, but no NodeClaim owns its Node: it cannot be replaced",
        f"kubectl get nodeclaims -l karpenter.sh/nodepool={pool}; the Node's ownerReferences name it",
    )


def _obstacle(group: Group) -> Finding:
    if obstacle := group.obstacle():
        resume = f"aws autoscaling resume-processes --auto-scaling-group-name {group.name}"
        by_hand = "what manages the group has to replace the machine, or a person"
        return Finding(AREA, False, obstacle, resume if group.suspended else by_hand)
    others = ", ".join(sorted(group.suspended))
    rest = f"; suspended, which keeps nothing from being replaced: {others}" if others else ""
    return Finding(AREA, True, f"group {group.name} would replace an instance marked unhealthy{rest}")


def _capacity(group: Group, raw: Mapping[str, Any]) -> Iterator[Finding]:
    """How many there are, and what decides when and from where the next one comes."""
    told = f"group {group.name} has {group.serving} in service of {group.desired}"
    told += f" ({raw.get('MinSize', 0)} to {raw.get('MaxSize', 0)})"
    if group.short_by:
        yield Finding(
            AREA,
            True,
            f"{told}: while it is short by {group.short_by}, a replacement waits",
            f"aws autoscaling describe-scaling-activities --auto-scaling-group-name {group.name}",
        )
    else:
        yield Finding(AREA, True, told)
    if warm := raw.get("WarmPoolSize"):
        yield Finding(AREA, True, f"group {group.name} has a warm pool of {warm}: replacements come from it")
    grace = f"grace period {group.grace} s: a younger instance is not replaced" if group.grace else "no grace"
    yield Finding(
        AREA, True, f"group {group.name}: health checks {raw.get('HealthCheckType', 'EC2')}, {grace}"
    )
