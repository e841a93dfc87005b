"""The files of ``iam/aws`` as a person applies them, against moto: its IAM checks documents as AWS's does.

Whether the result allows and denies what it should, and what CloudFormation and Terraform make of it, is
``tests/e2e/test_iam_policies.py``'s.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from string import Template
from typing import Any

import pytest
from recovery_testkit.aws import ACCOUNT, shared_aws

IAM = Path(__file__).parents[2] / "iam" / "aws"
POLICIES = ("policy.json", "policy-by-tag.json")
TRUSTS = ("trust-pod-identity.json", "trust-irsa.json")
FILLED = {
    "PARTITION": "aws",
    "REGION": "us-west-2",
    "ACCOUNT": ACCOUNT,
    "CLUSTER": "training",
    "GROUP": "trn1",
    "METRIC_NAMESPACE": "NeuronHealthCheck",
    "NAMESPACE": "neuron-healthcheck-system",
    "SERVICE_ACCOUNT": "node-problem-detector",
    "OIDC_PROVIDER": "oidc.eks.us-west-2.amazonaws.com/id/EXAMPLE",
}
_numbers = itertools.count(1)


def _name() -> str:
    return f"node-recovery-{next(_numbers)}"


def _filled(name: str) -> Any:
    return json.loads(Template((IAM / name).read_text()).substitute(FILLED))


@pytest.mark.parametrize("name", POLICIES)
def test_iam_refuses_a_policy_that_nobody_has_filled_in(name: str) -> None:
    iam = shared_aws().client("iam")
    with pytest.raises(iam.exceptions.MalformedPolicyDocumentException, match=r'Partition "\$\{PARTITION\}"'):
        iam.create_policy(PolicyName=_name(), PolicyDocument=(IAM / name).read_text())


@pytest.mark.parametrize("name", POLICIES)
def test_iam_takes_a_policy_that_is_filled_in(name: str) -> None:
    iam = shared_aws().client("iam")
    iam.create_policy(PolicyName=_name(), PolicyDocument=json.dumps(_filled(name)))


@pytest.mark.parametrize("name", TRUSTS)
def test_iam_takes_a_trust_policy_that_is_filled_in(name: str) -> None:
    iam = shared_aws().client("iam")
    iam.create_role(RoleName=_name(), AssumeRolePolicyDocument=json.dumps(_filled(name)))


# ---------------------------------------------------------------- the README's way to fill them in


def _fill(name: str, values: dict[str, str]) -> subprocess.CompletedProcess[str]:
    (function,) = re.findall(r"^fill\(\) \{\n.*?^\}$", (IAM / "README.md").read_text(), re.M | re.S)
    script = f"{function}\nfill {shlex.quote(str(IAM / name))}"
    return subprocess.run(  # noqa: S603 (our own README's line)
        ["/bin/sh", "-euc", script],
        env={"PATH": str(Path(sys.executable).parent)} | values,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", POLICIES + TRUSTS)
def test_the_line_of_the_readme_fills_in_every_placeholder(name: str) -> None:
    assert json.loads(_fill(name, FILLED).stdout) == _filled(name)


def test_the_line_of_the_readme_stops_at_a_value_that_is_not_there() -> None:
    done = _fill("policy.json", {key: value for key, value in FILLED.items() if key != "GROUP"})
    assert done.returncode != 0
    assert done.stdout == ""
    assert "GROUP" in done.stderr
