"""The laws, checked on what was written to the API server and what was asked of the cloud. Nothing else.

It reads the audit log and what reached the cloud's address, and shares no line with the agent.
What the history of objects must obey is in ``tests/stories/checker.py``; what is added here can be seen in an
audit log alone: who asked, with whose token, and what was refused.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

import checker
from history import OF_CONCLUDER, Audit, Request, Write
from plane import Plane

ANSWERS = {409, 429}
"""Refusals that are part of the work: another writer was first; a budget or the server says not now."""


def check(
    audit: Audit,
    calls: Iterable[tuple[str, str]],
    *,
    budget: int,
    allowed: set[int],
    budgets: Mapping[str, int] | None = None,
    faulty: Iterable[str] = (),
    finished: bool = False,
) -> None:
    """Raises ``AssertionError`` with the request that broke a law.

    ``calls`` are what was asked of the cloud: action and machine. ``budgets`` are those besides that of the
    fleet, by ``label=value``. ``allowed`` are refusals that the test provoked, by HTTP status.
    ``finished``: every record must have ended, every place be free, and ``faulty`` have records.
    """
    ours = audit.ours()
    refused(ours, allowed)
    own_node_only(ours)
    read_anew(ours)
    writes = audit.writes()
    checker.check(
        [for_checker(w) for w in writes],
        with_tokens(writes, calls),
        budget={"fleet": budget, **(budgets or {})},
        faulty=faulty,
        finished=finished,
    )


def catch_up(plane: Plane, audit: Audit) -> None:
    """Wait until the log has what is stored now: a line may be written after its answer was sent."""

    def stored() -> set[int]:
        found = (plane.request("GET", f"{OURS}/{plural}").body.get("items", []) for plural in PLURALS)
        return {int(item["metadata"]["resourceVersion"]) for items in found for item in items}

    with contextlib.suppress(AssertionError):  # then the laws say what is missing
        plane.until(
            "the audit log has caught up",
            lambda: stored() <= {w.resource_version for w in audit.writes()},
            10,
        )


OURS = "/apis/noderecovery.dev/v1alpha1"
PLURALS = ("noderecoveries", "recoverygates")


def refused(ours: list[Request], allowed: set[int]) -> None:
    """A refused request is a right that is missing, or one that is asked for in vain."""
    refusals = [r for r in ours if 400 <= r.status < 500 and r.status not in ANSWERS | allowed]
    bad = [r for r in refusals if not not_there(r)]
    assert not bad, "refused:\n" + "\n".join(
        f"{r.status} {r.verb} {r.resource} {r.name} of the pod on {r.node}: {r.message}" for r in bad[:10]
    )


def not_there(r: Request) -> bool:
    """An object that does not exist, or not any more: an answer."""
    return r.status == 404 and (r.verb == "get" or r.resource == "pods/eviction")


def own_node_only(ours: list[Request]) -> None:
    """Law 1: no agent touches another's node. What the concluder may, is said in ``test_baremetal``."""
    for r in ours:
        if r.user == OF_CONCLUDER:
            continue
        if r.resource.startswith("nodes") and r.verb not in ("get", "list"):
            assert r.name == r.node, f"{r.time} the agent on {r.node}: {r.verb} {r.resource} {r.name}"


def read_anew(ours: list[Request]) -> None:
    """No answer from a cache that may lag: nothing is read at a version of yesterday."""
    for r in ours:
        if r.verb in ("get", "list"):
            assert "resourceVersion" not in r.query, f"{r.verb} {r.path} may be answered from a cache"
        assert r.verb != "watch", f"{r.path} is watched"


def for_checker(write: Write) -> Write:
    """A Node as the checker reads it: with a spec, and the boot it is in."""
    obj = write.object
    if obj.get("kind") == "Node" and write.verb != "delete":
        obj.setdefault("spec", {})
        obj.setdefault("status", {}).setdefault("nodeInfo", {}).setdefault("bootID", "")
    return write


def with_tokens(writes: list[Write], calls: Iterable[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Each call with the intent it belongs to: the n-th of a machine to the n-th of its intents.

    The call carries no token of ours; more calls than intents have an empty one, which no intent has.
    """
    intents: dict[str, list[str]] = defaultdict(list)
    for write in writes:
        if write.object.get("kind") != "NodeRecovery" or write.verb == "delete":
            continue
        intent = write.object["status"].get("intent")
        if intent and intent["token"] not in intents[intent["machine"]]:
            intents[intent["machine"]].append(intent["token"])
    found = []
    for action, machine in calls:
        left = intents[machine]
        found.append((action, machine, left.pop(0) if left else ""))
    return found
