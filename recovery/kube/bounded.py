"""Nodes as they are read, with IDs that there is room for on records. PURE.

Kubernetes limits the length neither of a providerID nor of what a kubelet writes as boot ID and system UUID.
All that reads Nodes goes through here, so an ID is the same one wherever it is compared.
"""

from __future__ import annotations

from recovery.kube import node_rows
from recovery.model import NodeView
from recovery.quick import replace
from recovery.short import LONGEST_BOOT, LONGEST_ID, identified


def view_of(row: node_rows.NodeRow, *, whole: bool) -> NodeView:
    """``whole``: with its conditions as they were written."""
    return bounded(node_rows.view_of(row, whole=whole))


def bounded(node: NodeView) -> NodeView:
    """``node``, whose IDs are as long as may be written down at most."""
    if (
        len(node.boot_id) <= LONGEST_BOOT
        and len(node.system_uuid) <= LONGEST_BOOT
        and len(node.provider_id) <= LONGEST_ID
    ):
        return node
    return replace(
        node,
        boot_id=identified(node.boot_id, LONGEST_BOOT),
        system_uuid=identified(node.system_uuid, LONGEST_BOOT),
        provider_id=identified(node.provider_id, LONGEST_ID),
    )
