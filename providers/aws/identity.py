"""Which machine is behind a Node, and whose it is. Pure: nothing is asked.

The providerID of EC2 nodes is written by cloud-provider-aws (``pkg/providers/v1/instances.go``) and by
Karpenter as ``aws:///<zone>/<instance id>``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from providers.aws.session import region_of
from recovery.errors import Refused
from recovery.model import Machine, NodeView

NODEPOOL = "karpenter.sh/nodepool"
COMPUTE_TYPE = "eks.amazonaws.com/compute-type"
_OWNERS = {
    "auto": "EKS Auto Mode, which repairs its own nodes",
    "fargate": "AWS Fargate, which has no machine of one's own",
    "hybrid": "EKS Hybrid Nodes, whose machines are not EC2's",
}
_HYPERPOD = "sagemaker.amazonaws.com/"

# us-west-2a, us-gov-west-1b, us-isob-east-1a, eusc-de-east-1a; Local Zones us-west-2-lax-1a; Wavelength
# us-east-1-wl1-bos-wlz-1: a zone begins with its parent region, and that ends at the first number.
_ZONE = r"(?P<region>[a-z]{2,8}(?:-[a-z]{2,12}){1,3}-[0-9]{1,2})(?:[a-z]|(?:-[a-z0-9]{1,12}){1,5})"
_PROVIDER_ID = re.compile(rf"aws:///(?P<zone>{_ZONE})/(?P<instance>i-[0-9a-f]{{8,17}})")


def identify(node: NodeView, environ: Mapping[str, str]) -> Machine:
    """The EC2 instance behind ``node``. Raises ``Refused``.

    ``route``: zone, region, node_created (ISO), and for Karpenter's nodes nodepool, nodeclaim, nodeclaim_uid.
    """
    found = _PROVIDER_ID.fullmatch(node.provider_id)
    _stand_back(node)
    if found is None:
        raise Refused(
            f"node {node.name} has the providerID {_quote(node.provider_id)}; expected was one of EC2's, "
            "like aws:///us-west-2a/i-0123456789abcdef0"
        )
    route = {"zone": found["zone"], "region": region_of(environ, found["region"])}
    if node.created is not None:
        route["node_created"] = node.created.isoformat()
    route.update(_karpenter(node))
    return Machine("aws", found["instance"], node.provider_id, route.get("nodepool", ""), route)


def own_region(machine: Machine) -> str:
    """The region of the zone that its providerID names, not that of AWS_REGION; "" where it names none.

    An instance ID belongs to one region. Only there does it prove anything that AWS does not know it.
    """
    found = _PROVIDER_ID.fullmatch(machine.provider_id)
    return found["region"] if found is not None and found["instance"] == machine.id else ""


def _stand_back(node: NodeView) -> None:
    """Raise ``Refused`` if another repairs this node."""
    owner = _OWNERS.get(node.labels.get(COMPUTE_TYPE, ""))
    if owner is None and any(label.startswith(_HYPERPOD) for label in node.labels):
        owner = "SageMaker HyperPod, which repairs its own nodes"
    if owner is not None:
        raise Refused(f"node {node.name} belongs to {owner}")


def _karpenter(node: NodeView) -> dict[str, str]:
    if NODEPOOL not in node.labels:
        return {}
    route = {"nodepool": node.labels[NODEPOOL]}
    for kind, name, uid in node.owners:
        if kind == "NodeClaim":
            route |= {"nodeclaim": name, "nodeclaim_uid": uid}
    return route


def _quote(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
