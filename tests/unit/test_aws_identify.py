"""Which nodes are EC2's, which region they are in, and whose they are."""

from __future__ import annotations

import socket
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from providers.aws import create
from providers.aws.identity import identify, own_region
from providers.aws.session import AwsSession
from recovery.clock import SystemClock
from recovery.errors import Refused, SettingsError
from recovery.provider.protocol import ProviderContext, load_provider
from tests.builders.nodes import node

ID = "i-0123456789abcdef0"
NODE = node("worker-1", provider_id=f"aws:///us-west-2a/{ID}")


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-west-2a", "us-west-2"),
        ("ap-southeast-3c", "ap-southeast-3"),
        ("us-gov-west-1b", "us-gov-west-1"),
        ("cn-northwest-1a", "cn-northwest-1"),
        ("us-isob-east-1a", "us-isob-east-1"),
        ("eusc-de-east-1a", "eusc-de-east-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-atl-2a", "us-east-1"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1"),
        ("eu-west-2-wl1-lon-wlz-1", "eu-west-2"),
    ],
)
def test_the_region_is_the_zones_parent(zone: str, region: str) -> None:
    machine = identify(replace(NODE, provider_id=f"aws:///{zone}/{ID}"), {})
    assert machine.id == ID
    assert machine.route == {"zone": zone, "region": region}


def test_the_region_in_the_environment_comes_first() -> None:
    assert identify(NODE, {"AWS_DEFAULT_REGION": "eu-west-1"}).route["region"] == "eu-west-1"
    both = {"AWS_REGION": "eu-west-3", "AWS_DEFAULT_REGION": "eu-west-1"}
    assert identify(NODE, both).route["region"] == "eu-west-3"
    assert identify(NODE, {"AWS_REGION": ""}).route["region"] == "us-west-2"


def test_a_machines_own_region_is_that_of_its_zone_whatever_the_environment_says() -> None:
    machine = identify(NODE, {"AWS_REGION": "eu-west-3"})
    assert own_region(machine) == "us-west-2"
    assert own_region(replace(machine, provider_id="")) == ""
    assert own_region(replace(machine, id="i-0fedcba9876543210")) == "", "it names another instance"


@pytest.mark.parametrize(
    "strange",
    [
        "",
        ID,
        f"aws://us-west-2a/{ID}",
        f"aws:////{ID}",
        f"aws:///us-west-2a/{ID}/",
        f"aws:///us-west-2a/{ID}\n",
        f" aws:///us-west-2a/{ID}",
        f"AWS:///us-west-2a/{ID}",
        f"aws:///us-west-2/{ID}",
        f"aws:///US-WEST-2A/{ID}",
        f"aws:///us-west-2a/x/{ID}",
        "aws:///us-west-2a/i-0123456789ABCDEF0",
        "aws:///us-west-2a/i-1234567",
        "aws:///us-west-2a/i-0123456789abcdef01",
        "aws:///us-west-2a/mi-0123456789abcdef0",
        "aws:///us-west-2a/i-0123456789abcdeg0",
        "aws:///us-west-2a/fargate-ip-10-0-0-1.us-west-2.compute.internal",
        "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v",
        "gce://project/us-central1-a/worker",
        "x" * 100_000,
    ],
)
def test_anything_else_is_refused_with_what_was_found_and_expected(strange: str) -> None:
    with pytest.raises(Refused) as refused:
        identify(replace(NODE, provider_id=strange), {})
    reason = refused.value.reason
    assert reason.startswith("node worker-1 has the providerID ")
    assert "expected was one of EC2's, like aws:///us-west-2a/" in reason
    assert len(reason) < 300
    assert "\n" not in reason


def test_the_old_short_instance_ids_are_known() -> None:
    assert identify(replace(NODE, provider_id="aws:///us-east-1a/i-0a1b2c3d"), {}).id == "i-0a1b2c3d"


@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        ({"eks.amazonaws.com/compute-type": "auto"}, "EKS Auto Mode, which repairs its own nodes"),
        (
            {"eks.amazonaws.com/compute-type": "fargate"},
            "AWS Fargate, which has no machine of one's own",
        ),
        (
            {"eks.amazonaws.com/compute-type": "hybrid"},
            "EKS Hybrid Nodes, whose machines are not EC2's",
        ),
        ({"sagemaker.amazonaws.com/node-health-status": "Schedulable"}, "SageMaker HyperPod"),
        ({"sagemaker.amazonaws.com/instance-group-name": "g"}, "SageMaker HyperPod"),
        ({"eks.amazonaws.com/compute-type": "auto", "karpenter.sh/nodepool": "system"}, "EKS Auto Mode"),
    ],
)
def test_nodes_with_an_owner_are_left_to_it(labels: dict[str, str], owner: str) -> None:
    with pytest.raises(Refused, match=f"node worker-1 belongs to {owner}"):
        identify(replace(NODE, labels=labels), {})


def test_a_managed_node_group_is_an_auto_scaling_group_like_any_other() -> None:
    labels = {"eks.amazonaws.com/nodegroup": "gpu", "eks.amazonaws.com/compute-type": "ec2"}
    assert identify(replace(NODE, labels=labels), {}).group == ""


def test_karpenters_nodes_lead_to_their_nodeclaim() -> None:
    node = replace(
        NODE,
        labels={"karpenter.sh/nodepool": "gpu"},
        owners=(("NodeClaim", "gpu-x7k2p", "claim-uid"),),
    )
    machine = identify(node, {})
    assert machine.group == "gpu"
    assert machine.route["nodeclaim"] == "gpu-x7k2p"
    assert machine.route["nodeclaim_uid"] == "claim-uid"


def test_when_the_node_was_created_is_kept_for_the_grace_period() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert identify(replace(NODE, created=at), {}).route["node_created"] == at.isoformat()


def test_the_provider_is_found_by_name_and_imports_no_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("boto3", "botocore")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(socket.socket, "connect", None)
    provider = load_provider("aws", ProviderContext(SystemClock(), {}))
    assert provider.name == "aws"
    assert provider.identify(NODE).id == ID
    assert "botocore" not in sys.modules


def test_an_sdk_that_cannot_be_imported_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> None:
        raise ImportError("botocore")

    session = AwsSession(SystemClock())
    monkeypatch.setattr(session, "_session", broken)
    with pytest.raises(SettingsError, match=r"PROVIDER=aws needs the AWS SDK: install node-recovery\[aws\]"):
        session.read("sts", "GetCallerIdentity", "us-west-2", "sts:GetCallerIdentity")


def test_a_missing_sdk_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"install node-recovery\[aws\]"):
        create(ProviderContext(SystemClock(), {}))
