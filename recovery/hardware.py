"""By what a machine that comes back under another name is known: serial numbers of its hardware. PURE."""

from __future__ import annotations

from recovery.model import HARDWARE_ID, NodeView

MOST = 32
LONGEST = 128
_NOBODYS = frozenset({"", "none", "unknown", "n/a", "to be filled by o.e.m.", "default string", "0123456789"})
"""What firmware says where nobody has set a number: every such machine would be the same one."""
_NOBODYS_UUIDS = ("00000000", "ffffffff", "03000200-0400-0500-0006-000700080009")


def hardware(node: NodeView | None) -> tuple[str, ...]:
    """Serial numbers of the node's hardware, in order: its system UUID, and those that are written on it.

    A label or annotation ``noderecovery.dev/hardware-id`` holds the latter, with commas between.
    """
    if node is None:
        return ()
    written = (where.get(HARDWARE_ID, "") for where in (node.labels, node.annotations))
    serials = [serial.strip() for text in written for serial in text.split(",")]
    uuid = node.system_uuid.strip().lower()
    if uuid and not uuid.startswith(_NOBODYS_UUIDS):
        serials.insert(0, uuid)
    known = (serial[:LONGEST] for serial in serials if serial.lower() not in _NOBODYS)
    return tuple(dict.fromkeys(known))[:MOST]
