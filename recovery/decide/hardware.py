"""By what a machine that comes back under another name is known: serial numbers of its hardware. PURE."""

from __future__ import annotations

from recovery.model import HARDWARE_ID, NodeView

MOST = 16
LONGEST = 48  # a GPU UUID has 40; the gate keeps those of 500 starts
PLACEHOLDER_SERIALS = frozenset(
    {
        *(
            "",
            "0",
            "none",
            "na",
            "n/a",
            "null",
            "unknown",
            "not specified",
            "not applicable",
            "not available",
        ),
        *("to be filled by o.e.m.", "default string", "system serial number", "chassis serial number"),
        *("serial number", "0123456789", "123456789", "1234567890", "00000000", "xxxxxxxx", "oem"),
    }
)
"""What firmware says where nobody has set a number: every such machine would be the same one."""
PLACEHOLDER_UUIDS = ("00000000", "ffffffff", "03000200-0400-0500-0006-000700080009")


def hardware(node: NodeView | None) -> tuple[str, ...]:
    """Serial numbers of the node's hardware, in order: its system UUID, and those that are written on it.

    A label or annotation ``noderecovery.dev/hardware-id`` holds the latter, with commas between.
    """
    if node is None:
        return ()
    written = (where.get(HARDWARE_ID, "") for where in (node.labels, node.annotations))
    serials = [serial.strip() for text in written for serial in text.split(",")]
    uuid = node.system_uuid.strip().lower()
    if uuid and not uuid.startswith(PLACEHOLDER_UUIDS):
        serials.insert(0, uuid)
    known = (serial[:LONGEST] for serial in serials if serial.lower() not in PLACEHOLDER_SERIALS)
    return tuple(dict.fromkeys(known))[:MOST]
