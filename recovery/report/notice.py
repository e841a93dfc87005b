"""What a person is told of a node: an Event on it, and a message to whoever else is told of Events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from recovery.decide.diagnosis import name
from recovery.model import Record
from recovery.short import LONGEST_OBJECT, object_name
from recovery.units import moment
from recovery.visible import visible

COMPONENT = "node-recovery"
MOST_WORDS = 1024
"""Characters of a sentence that are told: as many as an Event's message may have."""


@dataclass(frozen=True)
class About:
    """Which fault a notice is about, the rule that treats it, and the step that is tried. Empty: unknown."""

    fault: str = ""
    rule: str = ""
    step: str = ""

    @classmethod
    def of(cls, record: Record | None) -> About:
        if record is None:
            return cls()
        fault = name(record.faults[0]) if record.faults else ""
        return cls(fault, record.rule, record.step.do.value if record.step is not None else "")


NOTHING = About()


@dataclass(frozen=True)
class Notice:
    """An Event on a Node.

    ``key``: that of the decision it repeats for as long as it stands, such as ``brake``; ``counted REASON``
    for a kernel event that was only counted; empty for what happened once. ``echo``: it repeats what another
    process told first.
    """

    node: str
    node_uid: str
    reason: str
    sentence: str
    warning: bool
    at: datetime
    key: str = ""
    about: About = NOTHING
    echo: bool = False

    @property
    def kind(self) -> str:
        """The key without the name of a fault."""
        return self.key.split(" ", 1)[0]


class Teller(Protocol):
    """Tells people of notices. Telling never delays a recovery: every call is bounded in time (law 9)."""

    name: str
    most: int
    """How many notices go into one message."""

    def wants(self, notice: Notice) -> bool:
        """Whether ``notice`` is to be told, asked once for each, from any thread."""

    def tell(self, notices: Sequence[Notice]) -> None:
        """Send one message. Raises ``Retry`` or ``Refused`` with a sentence that holds no secret."""


def event_name(node: str, unique: str) -> str:
    """The name of an Event on ``node``, which may itself be as long as a name may be."""
    return f"{object_name(node, LONGEST_OBJECT - len(unique) - 1)}.{unique}"


def event_body(name: str, n: Notice) -> dict[str, Any]:
    """A core/v1 Event on a Node, where ``kubectl describe node`` finds it."""
    at = moment(n.at)[:-8] + "Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": n.node, "uid": n.node_uid or n.node},
        "reason": n.reason,
        "message": visible(n.sentence)[:MOST_WORDS],
        "type": "Warning" if n.warning else "Normal",
        "source": {"component": COMPONENT, "host": n.node},
        "reportingComponent": COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
