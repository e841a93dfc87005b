"""Who checks the laws is checked: a true recovery keeps them, the same with one thing changed does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import laws
from fleet_site import Site, broken, recovered_once
from history import Audit, Request

FOREIGN = {"key": "example.com/theirs", "effect": "NoSchedule"}


@dataclass
class Story:
    """What happened, as it may be changed."""

    requests: list[Request]
    calls: list[tuple[str, str]]
    budget: int = 1
    faulty: tuple[str, ...] = ()

    def change(self, which: Callable[[Request], bool], **changes: Any) -> None:
        """The first request of the agents' that is meant was another one."""
        at = next(i for i, r in enumerate(self.requests) if r.node and which(r))
        self.requests[at] = replace(self.requests[at], **changes)

    def drop(self, which: Callable[[Request], bool]) -> None:
        self.requests = [r for r in self.requests if not which(r)]

    def statuses(self, resource: str) -> list[dict[str, Any]]:
        return [r.object["status"] for r in self.requests if r.resource == resource and "spec" in r.object]


class Told(Audit):
    """An audit log as a story has it."""

    def __init__(self, story: Story, account: str) -> None:
        self.account = account
        self._story = story

    def requests(self) -> list[Request]:
        return self._story.requests


def on_node(r: Request) -> bool:
    return r.resource == "nodes" and r.verb == "patch"


def read(r: Request) -> bool:
    return r.verb == "get" and r.status == 200


def of_record(r: Request, *phases: str) -> bool:
    status = r.object.get("status")
    return r.resource == "noderecoveries" and isinstance(status, dict) and status.get("phase") in phases


def foreign_taint(story: Story) -> None:
    """It was there until our agent wrote to the node."""
    for r in story.requests:
        if on_node(r) and r.node:
            return
        if r.resource.startswith("nodes") and "spec" in r.object:
            r.object["spec"]["taints"] = [*(r.object["spec"].get("taints") or []), FOREIGN]


def no_slots(story: Story) -> None:
    for r in story.requests:
        if r.resource == "recoverygates" and isinstance(r.object.get("status"), dict):
            r.object["status"]["slots"] = []


def no_intent(story: Story) -> None:
    for r in story.requests:
        if of_record(r, "recovering", "proving", "recovered"):
            r.object["status"]["intent"] = None


def other_machine(story: Story) -> None:
    for r in story.requests:
        if r.resource.startswith("nodes") and "spec" in r.object:
            r.object["spec"]["providerID"] = "aws:///us-west-2a/i-0123456789abcdef0"


def two_claims(story: Story) -> None:
    for r in story.requests:
        claims = (r.object.get("status") or {}) if r.resource == "recoverygates" else {}
        if claims.get("replacementsClaimed"):
            claims["replacementsClaimed"] *= 2


BREAKS: dict[str, tuple[str, Callable[[Story], object]]] = {
    "a request is refused": ("refused", lambda s: s.change(on_node, status=403)),
    "the node is another's": ("the agent on", lambda s: s.change(on_node, node="another")),
    "a cache is asked": ("from a cache", lambda s: s.change(read, query={"resourceVersion": ["0"]})),
    "something is watched": ("is watched", lambda s: s.change(read, verb="watch")),
    "the cloud is asked twice": ("without an intent", lambda s: s.calls.append(s.calls[-1])),
    "no intent was written": ("without an intent", no_intent),
    "the machine is another one": ("is not its machine", other_machine),
    "there is no budget": ("are out in fleet", lambda s: setattr(s, "budget", 0)),
    "no slot is taken": ("no slot is held|without a slot", no_slots),
    "a foreign taint is gone": ("a foreign taint", foreign_taint),
    "a slot is freed too early": (
        "while its record was open",
        lambda s: s.drop(lambda r: of_record(r, "recovered")),
    ),
    "a machine is claimed twice": ("two machines' replacement", two_claims),
    "a fault is lost": ("left no record", lambda s: setattr(s, "faulty", ("another",))),
}


def test_each_law_is_missed_when_it_is_broken(site: Site) -> None:
    sick = broken(site)
    site.breaks(sick)
    recovered_once(site, sick)
    true = Story(site.audit.requests(), [("SetInstanceHealth", machine) for machine in site.marked()])

    assert judged(site, deepcopy(true)) == ""
    for what, (told, change) in BREAKS.items():
        story = deepcopy(true)
        change(story)
        assert re.search(told, judged(site, story)), f"{what}: {judged(site, story) or 'nobody noticed'}"


def judged(site: Site, story: Story) -> str:
    """What the checker says against a story, nothing if it is content."""
    audit = Told(story, site.audit.account)
    try:
        laws.check(audit, story.calls, budget=story.budget, allowed=set(), faulty=story.faulty, finished=True)
    except AssertionError as broken:
        return str(broken)
    return ""
