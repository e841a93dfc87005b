"""A test fault that a person has made on a Node (``node-recovery inject``): how its condition says so. PURE.

A drill is over at its end, or when its condition is gone or good: also where nothing ends a real fault of
its type but a boot. Its whole message has to be of this form. A line of a log that merely speaks of a drill
is none, or it could hide a fault. With recovery on, a drill counts as a fault only if it was made with
``--really``.
"""

from __future__ import annotations

import re
from datetime import datetime

from recovery.units import parse_moment

LONGEST_NAME = 100
_MESSAGE = (
    r"a drill, not a fault: made by (?P<by>.{1,100}) until (?P<until>\S+) "
    r"\(node-recovery inject(?P<really> --really)?\)"
)
_CONDITION = re.compile(_MESSAGE)
_EVIDENCE = re.compile(rf"the Node's condition \S+ is (True|False): {_MESSAGE}")


def message(by: str, until: datetime, really: bool) -> str:
    """The message of a drill's condition."""
    how = "node-recovery inject --really" if really else "node-recovery inject"
    who = " ".join(by.split())[:LONGEST_NAME] or "somebody"
    return f"a drill, not a fault: made by {who} until {until:%Y-%m-%dT%H:%M:%SZ} ({how})"


def ends(text: str) -> datetime | None:
    """When the drill with this message is over; None where it is none."""
    found = _CONDITION.fullmatch(text)
    try:
        return parse_moment(found["until"]) if found else None
    except ValueError:
        return None


def is_drill(evidence: str) -> bool:
    """Whether a fault with this message is a drill."""
    return _EVIDENCE.fullmatch(evidence) is not None


def is_to_be_watched(evidence: str) -> bool:
    """Whether it is a drill that is only for agents with recovery off."""
    found = _EVIDENCE.fullmatch(evidence)
    return found is not None and found["really"] is None
