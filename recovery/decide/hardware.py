"""Is it the same hardware, even under another name and instance ID? Its serial numbers say so. PURE."""

from __future__ import annotations

from recovery.model import HARDWARE_ID, NOBODYS_UUIDS, NodeView, is_nobodys

MOST = 16
LONGEST = 48  # characters; a GPU UUID has 40, and the gate keeps the serials of 500 starts
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
"""What firmware reports where no serial was set. If they counted, all such machines would be one machine."""
PLACEHOLDER_UUIDS = (
    *("00000000", "ffffffff", "fefefefe", "01010101"),
    *(uuid[:19] for uuid in NOBODYS_UUIDS),
)
"""How those begin that firmware gives to many machines."""


def hardware(node: NodeView | None) -> tuple[str, ...]:
    """Serial numbers of the node's hardware: its system UUID, then those of its label and its annotation.

    Both are named ``noderecovery.dev/hardware-id`` and may hold several, separated by commas.
    """
    if node is None:
        return ()
    written = (where.get(HARDWARE_ID, "") for where in (node.labels, node.annotations))
    serials = [serial.strip() for text in written for serial in text.split(",")]
    uuid = node.system_uuid.strip().lower()
    if uuid and not uuid.startswith(PLACEHOLDER_UUIDS) and not is_nobodys(uuid):
        serials.insert(0, uuid)
    known = (serial[:LONGEST] for serial in serials if serial.lower() not in PLACEHOLDER_SERIALS)
    return tuple(dict.fromkeys(known))[:MOST]
