"""The policy that is shipped holds what the code declares, each on the narrowest resource AWS allows.

Which actions take a resource, and which conditions: the AWS Service Authorization Reference. That the
declared permissions are those that are called is the contract tests' business.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from providers.aws.asg import AwsProvider
from providers.aws.cloudwatch import DEFAULT_NAMESPACE

POLICY = Path(__file__).parents[2] / "iam" / "aws" / "policy.json"
RESOURCES = {
    "autoscaling:SetInstanceHealth": "arn:aws:autoscaling:",
    "ec2:RebootInstances": "arn:aws:ec2:",
}
"""The declared actions that may be granted on a resource; AWS denies the others on anything but "*"."""


def _statements() -> list[dict[str, Any]]:
    policy = json.loads(POLICY.read_text())
    assert policy["Version"] == "2012-10-17"
    found: list[dict[str, Any]] = policy["Statement"]
    return found


def _actions(statement: dict[str, Any]) -> list[str]:
    named = statement["Action"]
    return [named] if isinstance(named, str) else named


def test_the_policy_grants_exactly_what_the_provider_declares() -> None:
    declared = set[str]().union(*AwsProvider.permissions.values())
    granted = [action for statement in _statements() for action in _actions(statement)]
    assert sorted(granted) == sorted(declared)


def test_every_statement_allows_and_has_a_name() -> None:
    names = [statement["Sid"] for statement in _statements()]
    assert len(set(names)) == len(names)
    assert {statement["Effect"] for statement in _statements()} == {"Allow"}


@pytest.mark.parametrize("action", sorted(set[str]().union(*AwsProvider.permissions.values())))
def test_each_action_is_granted_on_what_aws_can_restrict_it_to(action: str) -> None:
    (statement,) = [s for s in _statements() if action in _actions(s)]
    if action in RESOURCES:
        assert statement["Resource"].startswith(RESOURCES[action])
    else:
        assert statement["Resource"] == "*"


def test_changing_and_asking_are_never_in_one_statement() -> None:
    for statement in _statements():
        asking = {":Describe" in action for action in _actions(statement)}
        assert len(asking) == 1


def test_metrics_go_only_to_the_default_namespace() -> None:
    (statement,) = [s for s in _statements() if "cloudwatch:PutMetricData" in _actions(s)]
    assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": DEFAULT_NAMESPACE}}
