"""``node-recovery inject NODE``: a marked test fault, a condition of the Node, and its removal.

The condition says that it is a drill, whose, and until when. It is refused where it could do harm, or where
that cannot be known: with recovery on, beside a condition that somebody else writes, and for the kubelet's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from recovery.catalog import faults, polarity
from recovery.config.policy_sentence import did_you_mean
from recovery.console.api import UserApi, connect_to_change
from recovery.console.node_facts import ask_agent_of
from recovery.console.output import ask, for_programs, say, show
from recovery.console.recoveries import retry_on_conflict
from recovery.decide.drill import ends, message
from recovery.errors import NotFound, SettingsError, UnknownNode, WouldHarm
from recovery.kube.kubeconfig import Target
from recovery.model import ConditionRow
from recovery.signals.conditions import RENEWED
from recovery.units import moment, span

KUBELETS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
"""Kubernetes itself taints a node by these, and evicts its pods."""
Json = dict[str, Any]


def inject(
    node: str,
    reason: str,
    type_: str,
    length: timedelta,
    really: bool,
    assume_yes: bool,
    target: Target,
    output: str,
) -> None:
    """Make the fault ``reason`` on ``node``. Raises ``SettingsError``, ``WouldHarm``, ``UnknownNode``."""
    kind = type_ or type_of(reason)
    if length > RENEWED:
        most = f"expected at most {span(RENEWED)}: an older condition says nothing"
        raise SettingsError([f"--for: found {span(length)}, {most}"])
    api = connect_to_change(target)
    refuse_type(kind, really)
    _conditions(api, node)  # a mistyped name is told as that
    by_policy = _refuse_where_it_acts(api, node, really)
    known = polarity(kind, by_policy)
    if api.elsewhere and not assume_yes:
        ask(f"{api.elsewhere}Make the test fault {reason} on {node} there?")
    until = (api.time.now() + length).replace(microsecond=0)
    status = known.bad if known is not None else "True"
    made = _condition(kind, status, reason, message(api.caller(), until, really), api.time.now())
    retry_on_conflict(lambda: _add(api, node, made))
    end = f"{until:%Y-%m-%d %H:%M:%SZ}"
    sentence = (
        f"{node} has the condition {kind}={made['status']} ({reason}) until {end}, marked as a drill. See "
        f"node-recovery explain {node}; node-recovery inject {node} --remove ends the drill"
    )
    if known is None:
        sentence += (
            f". The catalogue has no condition {kind}: agents read it only where the policy's sources have a "
            "row for it (docs/sources.md, Conditions)"
        )
    found = {"node": node, "type": kind, "reason": reason, "status": made["status"], "until": moment(until)}
    _print(api, {**found, "sentence": sentence}, output)


def remove(node: str, type_: str, assume_yes: bool, target: Target, output: str) -> None:
    """Take the drills off ``node``: that of ``type_``, or all. Conditions of others stay."""
    api = connect_to_change(target)
    if api.elsewhere and not assume_yes:
        ask(f"{api.elsewhere}Remove the drills from {node} there?")
    gone = retry_on_conflict(lambda: _take_off(api, node, type_))
    what = f"the drill {', '.join(gone)} is removed" if gone else "there is no drill on it"
    _print(api, {"node": node, "removed": gone, "sentence": f"{node}: {what}"}, output)


def _print(api: UserApi, found: Json, output: str) -> None:
    if for_programs(output):
        show({"cluster": api.as_json(), **found}, output)
    else:
        say(f"{found['sentence']}.")


# ---------------------------------------------------------------- what is refused


def type_of(reason: str) -> str:
    """The condition type that the catalogue has for ``reason``. Raises ``SettingsError`` without just one."""
    found = sorted({row.type for row in faults() if row.reason == reason and row.type and polarity(row.type)})
    if len(found) == 1:
        return found[0]
    if found:
        raise SettingsError([f"--type: missing for {reason}: expected one of {', '.join(found)}"])
    near = did_you_mean(reason, sorted({row.reason for row in faults() if row.type and polarity(row.type)}))
    raise SettingsError(
        [f"--type: missing for {reason}: the catalogue has no condition for that reason{near}"]
    )


def refuse_type(kind: str, really: bool) -> None:
    """Raises ``WouldHarm`` for conditions by which somebody else acts."""
    row = polarity(kind)
    if kind in KUBELETS:
        raise WouldHarm(
            f"{kind} is the kubelet's own condition, and Kubernetes taints the node and evicts its pods "
            "because of it. Use another --type that a rule matches"
        )
    if row is not None and row.first and not really:
        after = f" after {span(row.first_after)}" if row.first_after else ""
        raise WouldHarm(
            f"{row.first} may act on {kind}{after}, as on a real fault. Use --really to make it anyway"
        )


def _refuse_where_it_acts(api: UserApi, node: str, really: bool) -> tuple[ConditionRow, ...]:
    """What the agent's policy says of conditions, as far as it answers.

    Raises ``WouldHarm`` where recovery is on for the node, or that cannot be known.
    """
    pod, answer, no_answer = ask_agent_of(api, node)
    if really:
        return _by_policy(answer)
    if answer is None:
        raise WouldHarm(
            f"whether recovery is on for {node} cannot be known: {no_answer}. With it on, a test fault "
            "gets the node drained, and its machine rebooted or replaced. Use --really to make it anyway"
        )
    if (answer.get("agent") or {}).get("recovery", True):
        raise WouldHarm(
            f"recovery is on for {node} (pod {pod}): a test fault is treated like a real one. The node is "
            "drained, and its machine rebooted or replaced. Use --really to make it anyway"
        )
    return _by_policy(answer)


def _by_policy(answer: Json | None) -> tuple[ConditionRow, ...]:
    """An agent of an earlier version does not say."""
    return tuple(ConditionRow(type_, bad) for type_, bad in (answer or {}).get("conditions") or ())


# ---------------------------------------------------------------- the condition


def _condition(kind: str, status: str, reason: str, said: str, now: datetime) -> Json:
    at = moment(now.replace(microsecond=0))
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": said,
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }


def _conditions(api: UserApi, node: str) -> tuple[str, list[Json]]:
    try:
        return api.conditions_of(node)
    except NotFound:
        raise UnknownNode(f"there is no Node {node}; compare with kubectl get nodes") from None


def _add(api: UserApi, node: str, made: Json) -> None:
    version, conditions = _conditions(api, node)
    there = next((c for c in conditions if c["type"] == made["type"]), None)
    if there is not None and not is_ours(there):
        raise WouldHarm(
            f"{node} has the condition {made['type']}={there.get('status')} already, and somebody else "
            "writes it: a drill would overwrite it. Use another --type that a rule matches"
        )
    api.replace_conditions(node, version, [*_others(conditions, made["type"]), made])


def _take_off(api: UserApi, node: str, type_: str) -> list[str]:
    version, conditions = _conditions(api, node)
    gone = [c["type"] for c in conditions if is_ours(c) and type_ in ("", c["type"])]
    if gone:
        api.replace_conditions(node, version, _others(conditions, *gone))
    return gone


def _others(conditions: Sequence[Json], *types: str) -> list[Json]:
    return [c for c in conditions if c["type"] not in types]


def is_ours(condition: Json) -> bool:
    """Whether it is a drill by its message."""
    return ends(str(condition.get("message") or "")) is not None
