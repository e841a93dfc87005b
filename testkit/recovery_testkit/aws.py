"""An AWS on this machine: moto's server, a launch template, Auto Scaling groups, and what a real group does.

moto stores an instance's health and does nothing about it: ``LocalAws.terminate`` and ``launch`` do what a
group does. moto runs in this process, so that a test can set what its API does not offer.
Needs node-recovery-testkit[aws].
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

ACCOUNT = "123456789012"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What an SDK needs in its environment to talk to moto, besides AWS_ENDPOINT_URL."""

_numbers = itertools.count(1)


class LocalAws:
    """moto, listening on a free port of the loopback interface."""

    def __init__(self, region: str = "us-west-2") -> None:
        # Two seconds saved at the first launch: no region's list of images is read.
        os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        from moto.server import ThreadedMotoServer

        read_modules_once()
        read_descriptions_once()
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line per request otherwise
        self.region = region
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._clients: dict[str, Any] = {}
        self._template = ""

    def start(self) -> LocalAws:
        self._server.start()
        return self

    def stop(self) -> None:
        for client in self._clients.values():
            client.close()
        self._server.stop()

    def __enter__(self) -> LocalAws:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._server.get_host_and_port()
        return str(host), int(port)

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.address)

    def client(self, service: str) -> Any:
        """A client of one's own, past any proxy."""
        if service not in self._clients:
            import botocore.session

            self._clients[service] = botocore.session.Session().create_client(
                service,
                region_name=self.region,
                endpoint_url=self.url,
                aws_access_key_id="testing",
                aws_secret_access_key="testing",  # noqa: S106 (moto's)
            )
        return self._clients[service]

    # ------------------------------------------------------------ groups

    def create_group(self, size: int = 2, zones: Sequence[str] = ("a", "b"), **settings: Any) -> str:
        """An Auto Scaling group with ``size`` instances in ``zones`` (letters). Returns its name."""
        name = f"workers-{next(_numbers)}"
        self.client("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=0,
            MaxSize=size + 5,
            DesiredCapacity=size,
            AvailabilityZones=[f"{self.region}{zone}" for zone in zones],
            LaunchTemplate={"LaunchTemplateName": self._launch_template()},
            **settings,
        )
        return name

    def _launch_template(self) -> str:
        if not self._template:
            self._template = f"workers-{next(_numbers)}"
            self.client("ec2").create_launch_template(
                LaunchTemplateName=self._template,
                LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "trn1.2xlarge"},
            )
        return self._template

    def members(self, group: str) -> list[dict[str, Any]]:
        """The group's instances as it describes them."""
        answer = self.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        found: list[dict[str, Any]] = answer["AutoScalingGroups"][0]["Instances"]
        return found

    def instances(self, group: str) -> list[str]:
        """The ids of the group's instances, sorted."""
        return sorted(str(m["InstanceId"]) for m in self.members(group))

    def zone(self, instance: str) -> str:
        """The availability zone of an instance in a group."""
        answer = self.client("autoscaling").describe_auto_scaling_instances(InstanceIds=[instance])
        return str(answer["AutoScalingInstances"][0]["AvailabilityZone"])

    def provider_id(self, instance: str) -> str:
        """The instance's providerID, as cloud-provider-aws writes it."""
        return f"aws:///{self.zone(instance)}/{instance}"

    def health(self, instance: str) -> str:
        """Healthy, Unhealthy, or an empty string if the instance is in no group."""
        answer = self.client("autoscaling").describe_auto_scaling_instances(InstanceIds=[instance])
        return next((str(i["HealthStatus"]) for i in answer["AutoScalingInstances"]), "")

    # ------------------------------------------------------------ what a real group does

    def terminate(self, instance: str) -> None:
        """Terminate the instance without replacement. moto's desired capacity drops until ``launch``."""
        self.client("autoscaling").terminate_instance_in_auto_scaling_group(
            InstanceId=instance, ShouldDecrementDesiredCapacity=True
        )

    def launch(self, group: str, count: int = 1) -> list[str]:
        """Launch ``count`` more, raising the desired capacity by as many. Returns the new ids."""
        before = set(self.instances(group))
        answer = self.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        desired = int(answer["AutoScalingGroups"][0]["DesiredCapacity"])
        self.client("autoscaling").set_desired_capacity(
            AutoScalingGroupName=group, DesiredCapacity=desired + count
        )
        return sorted(set(self.instances(group)) - before)

    def replace(self, instance: str, group: str) -> list[str]:
        """Terminate the instance and launch another, as a group does with an unhealthy one."""
        self.terminate(instance)
        return self.launch(group)

    def detach(self, instance: str, group: str) -> None:
        """Take the instance out of its group and leave it running, as a person does."""
        self.client("autoscaling").detach_instances(
            InstanceIds=[instance], AutoScalingGroupName=group, ShouldDecrementDesiredCapacity=True
        )

    # ------------------------------------------------------------ what moto's API cannot be asked for

    def set_lifecycle(self, instance: str, state: str) -> None:
        """Put the instance in any lifecycle state, straight in moto's memory."""
        for group in self._backend().autoscaling_groups.values():
            for member in group.instance_states:
                if member.instance.id == instance:
                    member.lifecycle_state = state

    def set_desired(self, group: str, desired: int) -> None:
        """Change what the group wants without launching or terminating anything."""
        self._backend().autoscaling_groups[group].desired_capacity = desired

    def _backend(self) -> Any:
        from moto.autoscaling.models import autoscaling_backends

        return autoscaling_backends[ACCOUNT][self.region]


@functools.cache
def read_modules_once() -> None:
    """Saves a fifth of the time of a request: moto's server looks through its own folders for each."""
    from moto import backends

    modules = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules


@functools.cache
def read_descriptions_once() -> None:
    """Let all clients of this process share the SDK's descriptions of services; they are megabytes."""
    from botocore.loaders import JSONFileLoader

    read = functools.cache(JSONFileLoader().load_file)
    JSONFileLoader.load_file = lambda self, path: read(path)


@functools.cache
def shared_aws() -> LocalAws:
    """One moto for the whole process, started when first asked for. Use a group of your own in it."""
    aws = LocalAws().start()
    atexit.register(aws.stop)
    return aws


@contextlib.contextmanager
def environment(url: str, region: str = "us-west-2") -> Iterator[None]:
    """Point every SDK of this process at ``url``. Afterwards the environment is as before."""
    wanted = {
        **CREDENTIALS,
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    before = {name: os.environ.get(name) for name in (*wanted, "AWS_PROFILE", "AWS_SESSION_TOKEN")}
    os.environ.pop("AWS_PROFILE", None)
    os.environ.pop("AWS_SESSION_TOKEN", None)
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
