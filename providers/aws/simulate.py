"""What IAM's policy simulator says of an action that has no harmless form.

IAM API reference, SimulatePrincipalPolicy: it takes the ARN of a role and not of its session, weighs the
policies of the role, its boundary and the organisation, and has to be told the values of condition keys. Few
roles may ask it, an agent's own hardly ever. What it answers was not tried on AWS itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from providers.aws.errors import brief
from recovery.errors import NodeRecoveryError
from recovery.provider.protocol import Finding

POLICY = "compare the agent's role with iam/aws/policy.json"
_SESSION = re.compile(r"arn:(?P<partition>[^:]+):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)/.*")


def simulated(
    area: str,
    iam: Callable[..., Mapping[str, Any]],
    arn: str,
    action: str,
    resource: str,
    context: Mapping[str, str],
) -> Finding:
    """Whether ``arn`` may do ``action`` on ``resource``. ``iam`` makes a call: (operation, **parameters)."""
    source = _role(arn)
    entries = [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
        for key, value in context.items()
    ]
    try:
        answer = iam(
            "SimulatePrincipalPolicy",
            PolicySourceArn=source,
            ActionNames=[action],
            ResourceArns=[resource],
            ContextEntries=entries,
        )
    except NodeRecoveryError:
        by_hand = f"aws iam simulate-principal-policy --policy-source-arn {source} --action-names {action}"
        by_hand += f" --resource-arns '{resource}'" if resource != "*" else ""
        told = f"{action} cannot be tried without doing it, and IAM's simulator did not answer"
        return Finding(area, None, told, f"{POLICY}; or as an administrator: {by_hand}")
    return _verdict(area, action, answer)


def _role(arn: str) -> str:
    """The role behind a session. A role's path is not in its sessions' ARN: such a one is not found."""
    found = _SESSION.fullmatch(arn)
    return f"arn:{found['partition']}:iam::{found['account']}:role/{found['role']}" if found else arn


def _verdict(area: str, action: str, answer: Mapping[str, Any]) -> Finding:
    result: Mapping[str, Any] = next(iter(answer.get("EvaluationResults") or ()), {})
    decision = str(result.get("EvalDecision") or "")
    if decision == "allowed":
        return Finding(area, True, f"{action} is permitted, says IAM's simulator")
    if missing := result.get("MissingContextValues"):
        keys = ", ".join(map(str, missing))
        return Finding(area, None, f"{action}: IAM's simulator would have to know {keys}", POLICY)
    told = f"{action} is not permitted, says IAM's simulator ({brief(decision)})"
    return Finding(area, False, told, POLICY)
