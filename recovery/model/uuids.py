"""System UUIDs that firmware gives to many machines, where nobody has set one."""

from __future__ import annotations

from uuid import UUID

NOBODYS_UUIDS = frozenset(
    str(order)
    for known in (
        "03000200-0400-0500-0006-000700080009",
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
        "01020304-0506-0708-090a-0b0c0d0e0f10",
        "10000000-0000-8000-0040-000000000000",
    )
    for order in (UUID(known), UUID(bytes=UUID(known).bytes_le))
)
"""Also with the first three fields swapped. One byte all through is none of a machine's own, either."""


def is_nobodys(uuid: str) -> bool:
    """Whether firmware gives this one, in lower case, to many machines."""
    digits = uuid.replace("-", "")
    return uuid in NOBODYS_UUIDS or digits == digits[:2] * 16
