"""What is done to a fleet in one history: a scene, and the disturbances in the order of their moments.

A script is all that a history depends on. It is made from a seed, played by ``play``, shortened by ``shrink``,
and written as Python, so that it can stand in a story.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Act:
    """One disturbance. ``at``: seconds since the beginning. ``what``: a name in ``acts.ACTS``.

    ``place``: on whose node; a place keeps its number when its machine is replaced. -1: it is about no node.
    ``args``: the act's own, by position.
    """

    at: float
    what: str
    place: int = -1
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        parts = [
            f"{self.at:g}",
            repr(self.what),
            *([str(self.place)] if self.place >= 0 or self.args else []),
        ]
        return f"act({', '.join([*parts, *(repr(x) for x in self.args)])})"


def act(at: float, what: str, place: int = -1, *args: Any) -> Act:
    """An ``Act`` as it is written in a story."""
    return Act(float(at), what, place, args)


@dataclass(frozen=True, slots=True)
class Scene:
    """The fleet before anything happens to it.

    ``policy``: a name of ``policies.policy_of``. ``pods``: on each node. ``concluder``: whether there is one.
    ``same_name``: a new machine joins under its predecessor's name, as in a scale set or on bare metal.
    ``shrinks``: the group loses a place with each machine that is deleted, until it is set back.
    ``kernel``: agents can read the boot ID of their own kernel. ``tells_start``: a detector's page says when its
    process began. ``slow``: the number that a group was told shows minutes later. ``patient``: an agent that sees
    nothing new waits ever longer, up to twelve seconds, until something changes. ``short_gate``: the gate keeps the
    last two starts, as if many others had been in between. ``sources``: a name in ``signals.SOURCES``, where faults
    show elsewhere than on node-problem-detector's page alone. ``replicas``: of the controller; 0: each node has an
    agent of its own. ``unhurried``: replicas of the controller have half as many rounds.
    ``alike``: so many of the first nodes are in one rack, which no other is in.
    ``lives_on``: no process is started anew when the calm begins, so what one of them has forgotten shows.
    """

    nodes: int = 4
    policy: str = "drain, replace"
    pods: int = 1
    concluder: bool = False
    same_name: bool = False
    shrinks: bool = False
    kernel: bool = True
    tells_start: bool = False
    slow: bool = False
    patient: bool = False
    short_gate: bool = False
    sources: str = ""
    replicas: int = 0
    unhurried: bool = False
    alike: int = 0
    lives_on: bool = False

    def __str__(self) -> str:
        given = [
            f"{name}={getattr(self, name)!r}"
            for name in self.__slots__
            if getattr(self, name) != getattr(PLAIN, name, None)
        ]
        return f"Scene({', '.join(given)})"


PLAIN = Scene()
TAIL = 240.0
"""So many seconds after the last act began, the calm begins at the latest."""


@dataclass(frozen=True, slots=True)
class Script:
    """One history before it is played. ``seed`` also feeds what the world does by itself: how long a machine
    takes to boot, which pod goes first."""

    seed: int
    scene: Scene
    acts: tuple[Act, ...]

    @property
    def calm_at(self) -> float:
        """When the disturbance is over: what lasts is not waited for without end."""
        last = max((a.at for a in self.acts), default=0.0)
        return min(max((a.at + lasting(a) for a in self.acts), default=0.0), last + TAIL) + 1.0

    def without(self, gone: set[int]) -> Script:
        """This script without the acts of these numbers."""
        return replace(self, acts=tuple(a for i, a in enumerate(self.acts) if i not in gone))


def lasting(a: Act) -> float:
    """For how many seconds an act lasts, by its last argument; 0 for one that is over at once."""
    from tests.search.acts import ACTS  # the acts know the world, which knows scripts

    return float(a.args[-1]) if ACTS[a.what].lasts and a.args else 0.0
