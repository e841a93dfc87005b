"""What an Auto Scaling group does, by moto's public API alone.

moto stores an instance's health and does nothing about it. A real group terminates an Unhealthy instance and
launches another in its place.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from recovery_testkit.aws import CREDENTIALS

REGION = "us-west-2"
ZONES = ("us-west-2a",)


@dataclass(frozen=True)
class Member:
    """An instance of the group."""

    id: str
    zone: str
    healthy: bool


def client(service: str, url: str) -> Any:
    """A client for moto, past the proxy and without anybody's credentials."""
    import botocore.session
    from botocore.config import Config

    os.environ.update(AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull)
    os.environ.pop("AWS_PROFILE", None)
    return botocore.session.Session().create_client(
        service,
        region_name=REGION,
        endpoint_url=url,
        config=Config(proxies={}),  # moto is here, whatever HTTP_PROXY says
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )


class Group:
    """The group and what it does."""

    def __init__(self, url: str, name: str, kind: str) -> None:
        """``kind``: the instance type."""
        self._name, self._kind = name, kind
        self._autoscaling = client("autoscaling", url)
        self._ec2 = client("ec2", url)

    def create(self, size: int) -> list[Member]:
        """A group of ``size`` instances, with a second of grace: moto takes 0 for 300."""
        self._ec2.create_launch_template(
            LaunchTemplateName=self._name,
            LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": self._kind},
        )
        self._autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=self._name,
            MinSize=size,
            MaxSize=size,
            DesiredCapacity=size,
            AvailabilityZones=list(ZONES),
            LaunchTemplate={"LaunchTemplateName": self._name},
            HealthCheckGracePeriod=1,
        )
        return self.members()

    def members(self) -> list[Member]:
        answer = self._autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[self._name])
        return [
            Member(
                str(i["InstanceId"]),
                str(i["AvailabilityZone"]),
                str(i["HealthStatus"]).lower() == "healthy",
            )
            for i in answer["AutoScalingGroups"][0]["Instances"]
        ]

    def replace(self, instance: str) -> Member:
        """Terminate the instance; the group launches another, which is returned."""
        before = {m.id for m in self.members()}
        self._autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=instance, ShouldDecrementDesiredCapacity=False
        )
        new = [m for m in self.members() if m.id not in before]
        assert len(new) == 1, f"the group launched {len(new)} instances in the place of {instance}"
        return new[0]
