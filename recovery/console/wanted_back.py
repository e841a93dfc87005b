"""Releasing a node whose provider may still do what it was asked for: an agent takes that back first.

A person at a terminal has no rights in the cloud. So the record says that the node is wanted back, and an
agent with those rights takes the request back, proves that by a read, and closes the record; or it refuses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from recovery.console.api import UserApi
from recovery.console.output import say
from recovery.console.recoveries import retry_on_conflict
from recovery.decide.diagnosis import name, told_apart
from recovery.decide.history import HistoryEvent
from recovery.decide.standing import standing, words
from recovery.errors import ApiUnavailable, CannotRelease, NotFound, TooManyRequests
from recovery.model import Fault, NodeView, Phase, Record, ReleaseRequest
from recovery.quick import replace
from recovery.store import record_codec as records

PATIENCE = 180.0
"""Seconds that the command waits for the answer. An agent looks at a closed record once a minute."""
LOOK_AGAIN = 2.0

sleep: Callable[[float], None] = time.sleep


def stands(r: Record, node: NodeView | None) -> bool:
    """Whether what was asked for may still happen to the record's machine. Without its Node, too: it may
    register again. Not where another machine goes by the name."""
    known = node.provider_id if node is not None else ""
    another = bool(known and r.machine.provider_id) and known != r.machine.provider_id
    return not another and bool(standing(r, node))


def describe_standing(r: Record, node: NodeView | None) -> str:
    if not stands(r, node):
        return ""
    return f" {words(standing(r, node))} was asked for and may still come: an agent takes that back first."


def check_as_seen(was: Record, now: Record) -> None:
    """Raises ``CannotRelease`` where ``now`` is not what a person was told of, when ``was`` was read.

    A release remembers all faults of a record, and so one that nobody has looked at would start nothing.
    """
    by_now = f"{now.node} is {now.phase.value} by now: {now.sentence}"
    if now.uid != was.uid or not (now.phase.sick or now.phase is was.phase):
        raise CannotRelease(f"nothing was changed: {by_now}")
    known = set(map(_what, was.faults))
    if new := [f for f in now.faults if _what(f) not in known]:
        names = ", ".join(map(name, told_apart(new)))
        raise CannotRelease(f"nothing was changed: {names} was seen since you were asked. {by_now}")


def _what(f: Fault) -> tuple[str, str, str, str]:
    """A fault, whoever states it. After a boot, or on another machine, it is another one."""
    return (f.type, f.reason, f.machine, f.boot_id)


def ask_an_agent(api: UserApi, r: Record, owner: str, reason: str) -> None:
    """Write down that the node is wanted back, and wait for the answer. Raises ``CannotRelease``."""
    for problem in ask_agents(api, [r], owner, reason, as_seen=True).values():
        raise CannotRelease(problem)


def ask_agents(
    api: UserApi, wanted: Sequence[Record], owner: str, reason: str, *, as_seen: bool = False
) -> dict[str, str]:
    """The same for several nodes, which are waited for together. Those that are not released, and why."""
    asked = ReleaseRequest(owner, api.time.now(), reason)
    for r in wanted:
        retry_on_conflict(partial(_ask, api, r, asked, as_seen))
        say(f"{words(standing(r, None))} was asked for and may still come.", err=True)
    if wanted:
        say(
            "Waiting for an agent to take it back (it looks at a record once a minute). The record keeps the "
            "request, whoever waits: the node is released once it is answered ...",
            err=True,
        )
    waiting, refused, waited = [r.node for r in wanted], dict[str, str](), 0.0
    while waiting and waited < PATIENCE:
        for node in tuple(waiting):
            try:
                answered = _answered(records.decode(api.get_record(node)), asked)
            except CannotRelease as error:
                answered, refused[node] = True, str(error)
            except NotFound:
                answered, refused[node] = True, f"{node} is not released: its record was deleted by now"
            except (ApiUnavailable, TooManyRequests):
                answered = False  # the request stands: it is asked again
            if answered:
                waiting.remove(node)
        if waiting:
            sleep(LOOK_AGAIN)
            waited += LOOK_AGAIN
    return refused | {node: _no_answer(node) for node in waiting}


def _no_answer(node: str) -> str:
    return (
        f"{node} is not released yet: no agent has answered within {PATIENCE:.0f} s. Is its agent, or the "
        "concluder, running with ENABLE_RECOVERY=true? The record keeps the request, and the node is "
        "released once it is answered: where neither runs, by another node's agent, which finds it within "
        f"some hours; see node-recovery explain {node}"
    )


def _ask(api: UserApi, r: Record, asked: ReleaseRequest, as_seen: bool) -> None:
    was = api.get_record(r.node)
    record = records.decode(was)
    if as_seen:
        check_as_seen(r, record)
    api.replace_record(records.encode(replace(record, release=asked), was))


def _answered(r: Record, asked: ReleaseRequest) -> bool:
    """Whether the node is released. Raises ``CannotRelease`` if it was refused."""
    if r.phase is Phase.RELEASED:
        return True
    if r.release is not None:
        return False
    refusals = [x for x in r.history if x.event == HistoryEvent.RELEASE_REFUSED and x.at >= asked.at]
    said = refusals[-1].sentence if refusals else f"it is {r.phase.value} by now: {r.sentence}"
    raise CannotRelease(f"{r.node} is not released: {said}")
