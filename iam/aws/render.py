"""Write again what is derived from the JSON beside this file: ``python iam/aws/render.py``.

``policy.json``, ``trust-pod-identity.json`` and ``trust-irsa.json`` are the source. From them come
``policy-by-tag.json`` and ``cloudformation.yaml``. Terraform reads the JSON as it is.

The template holds each document as text, because the name of a condition key ("aws:ResourceTag/.../CLUSTER")
can hold a parameter only there: CloudFormation substitutes in values, never in the names of a map.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import indent

HERE = Path(__file__).parent

PARAMETERS = {
    "PARTITION": "AWS::Partition",
    "REGION": "AWS::Region",
    "ACCOUNT": "AWS::AccountId",
    "CLUSTER": "ClusterName",
    "GROUP": "GroupName",
    "METRIC_NAMESPACE": "MetricNamespace",
    "NAMESPACE": "Namespace",
    "SERVICE_ACCOUNT": "ServiceAccount",
    "OIDC_PROVIDER": "OidcProvider",
}
"""Every placeholder of the JSON, and what CloudFormation calls it."""

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


def policy_by_tag() -> str:
    """The policy for all groups of a cluster: they are known by the tag that its instances have, too."""
    policy = json.loads((HERE / "policy.json").read_text())
    statements = {statement["Sid"]: statement for statement in policy["Statement"]}
    mark = statements["MarkUnhealthy"]
    mark["Resource"] = mark["Resource"].replace("${GROUP}", "*")
    mark["Condition"] = statements["Reboot"]["Condition"]
    return json.dumps(policy, indent=2) + "\n"


def cloudformation() -> str:
    """The template: each ``@name@`` of the frame below becomes that document, with CloudFormation's names."""
    documents = {
        "policy": (HERE / "policy.json").read_text(),
        "policy-by-tag": policy_by_tag(),
        "trust-pod-identity": (HERE / "trust-pod-identity.json").read_text(),
        "trust-irsa": (HERE / "trust-irsa.json").read_text(),
    }
    return re.sub(
        r"^( *)@([a-z-]+)@$", lambda at: _named(documents[at[2]], at[1]), _FRAME, flags=re.MULTILINE
    )


def _named(document: str, margin: str) -> str:
    """The document as text of the template: with CloudFormation's names, and indented."""
    named = _PLACEHOLDER.sub(lambda found: "${" + PARAMETERS[found[1]] + "}", document)
    return indent(named, margin).rstrip()


def rendered() -> dict[str, str]:
    """Every derived file by name, with the text it should have."""
    return {"policy-by-tag.json": policy_by_tag(), "cloudformation.yaml": cloudformation()}


def main() -> None:
    """Write the derived files."""
    for name, text in rendered().items():
        (HERE / name).write_text(text)


_FRAME = """\
# Made by render.py from the JSON beside it: change that, and run it again.
AWSTemplateFormatVersion: "2010-09-09"
Description: The IAM role of node-recovery on one EKS cluster, and the pods that may use it.

Parameters:
  ClusterName:
    Type: String
    Description: The cluster. Only instances tagged kubernetes.io/cluster/NAME=owned may be rebooted.
    AllowedPattern: "^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$"
  GroupName:
    Type: String
    Default: ""
    Description: >-
      The Auto Scaling group whose instances may be marked unhealthy; * and ? are wildcards. Empty: every
      group that is tagged kubernetes.io/cluster/NAME=owned.
    AllowedPattern: '^[^"\\\\]*$'
  MetricNamespace:
    Type: String
    Default: NodeRecovery
    Description: The CloudWatch namespace, as in CLOUDWATCH_NAMESPACE.
    AllowedPattern: "^[A-Za-z0-9._/#: -]{1,255}$"
  Namespace:
    Type: String
    Default: node-recovery
    Description: The agent's Kubernetes namespace.
    AllowedPattern: "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
  ServiceAccount:
    Type: String
    Default: node-recovery
    Description: The agent's Kubernetes service account.
    AllowedPattern: "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
  OidcProvider:
    Type: String
    Default: ""
    Description: >-
      For IAM roles for service accounts (IRSA): the cluster's OIDC issuer without https://. Empty: EKS Pod
      Identity.
    AllowedPattern: '^[^:"\\\\]*$'
    ConstraintDescription: the issuer is written without https://

Conditions:
  OneGroup: !Not [!Equals [!Ref GroupName, ""]]
  PodIdentity: !Equals [!Ref OidcProvider, ""]

Resources:
  Role:
    Type: AWS::IAM::Role
    Properties:
      Description: node-recovery's agent.
      AssumeRolePolicyDocument: !If
        - PodIdentity
        - !Sub |
            @trust-pod-identity@
        - !Sub |
            @trust-irsa@
      Policies:
        - PolicyName: node-recovery
          PolicyDocument: !If
            - OneGroup
            - !Sub |
                @policy@
            - !Sub |
                @policy-by-tag@

  Association:
    Type: AWS::EKS::PodIdentityAssociation
    Condition: PodIdentity
    Properties:
      ClusterName: !Ref ClusterName
      Namespace: !Ref Namespace
      ServiceAccount: !Ref ServiceAccount
      RoleArn: !GetAtt Role.Arn

  AssociationOfTheConcluder:
    Type: AWS::EKS::PodIdentityAssociation
    Condition: PodIdentity
    Properties:
      ClusterName: !Ref ClusterName
      Namespace: node-recovery-concluder
      ServiceAccount: node-recovery-concluder
      RoleArn: !GetAtt Role.Arn

Outputs:
  RoleArn:
    Description: For IRSA, the service account's annotation eks.amazonaws.com/role-arn.
    Value: !GetAtt Role.Arn
"""

if __name__ == "__main__":
    main()
