"""``node-recovery approve``: let a correlated fault go, though many machines that have it share something."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

from recovery.console.api import UserApi, connect_to_change
from recovery.console.output import ask, for_programs, say, show
from recovery.console.recoveries import approval_as_json, gate_is_gone, read_recoveries, retry_on_conflict
from recovery.errors import ApiError, NotFound, NotInstalled
from recovery.kube.kubeconfig import Target
from recovery.model import Approval
from recovery.short import LONGEST_WORDS
from recovery.signals.names import reason_name
from recovery.store.gate import read_approvals

NO_GATE = "nothing was approved: there is no RecoveryGate yet, so no recovery waits or is held as correlated"
GATE_GONE = (
    "nothing was approved: there is no RecoveryGate now, though recoveries are open. Agents make it "
    "again from the records within a minute: run the command again then"
)
MOST = 20
"""So many other approvals are kept on the gate beside a new one: those written last."""


def approve(reason: str, length: timedelta, assume_yes: bool, target: Target, output: str) -> None:
    """Let recoveries for ``reason`` start for ``length``."""
    reason = reason_name(reason)  # as records have it, whoever copied it from a page
    api = connect_to_change(target)
    if api.elsewhere and not assume_yes:
        ask(f"{api.elsewhere}Let recoveries for {reason} start there?")
    sentence = retry_on_conflict(lambda: _approve(api, reason, length)) + _unheard_of(api, reason)
    if for_programs(output):
        found = read_approvals(_gate(api).get("spec"))
        approved = list(map(approval_as_json, found))
        show({"cluster": api.as_json(), "approved": approved, "sentence": sentence}, output)
        return
    say(sentence)


def _approve(api: UserApi, reason: str, length: timedelta) -> str:
    obj = _gate(api)
    now, by = api.time.now(), api.caller()[:LONGEST_WORDS]
    mine = Approval(reason, by, (now + length).replace(microsecond=0))
    in_force = [a for a in read_approvals(obj.get("spec")) if a.until > now]
    others = [a for a in in_force if a.reason != reason]
    changed = copy.deepcopy(obj)
    approved = [approval_as_json(a) for a in (*others[-MOST:], mine)]
    changed["spec"] = {**(changed.get("spec") or {}), "approved": approved}
    api.replace_gate(changed)
    before = next((a for a in in_force if a.reason == reason), None)
    instead = f" It replaces that of {before.by}, until {_end(before)}." if before else ""
    what = f"{by} approved {reason} until {_end(mine)}"
    return f"{what}: its recoveries may start, within budget and brake.{instead}"


def _end(a: Approval) -> str:
    return f"{a.until:%Y-%m-%d %H:%M:%SZ}"


def _unheard_of(api: UserApi, reason: str) -> str:
    """A reason is easily mistyped, and nothing else would show it. Who may not list records is not told."""
    try:
        records = read_recoveries(api).records
    except (ApiError, NotInstalled):
        return ""
    waiting = {f.reason for r in records if r.phase.open for f in r.faults}
    if reason in waiting:
        return ""
    known = f", only for {', '.join(sorted(waiting))}" if waiting else ""
    return f" No recovery is open for {reason} now{known}."


def _gate(api: UserApi) -> dict[str, Any]:
    try:
        return api.get_gate()
    except NotFound:
        gone = gate_is_gone(read_recoveries(api).records)
        raise NotFound(GATE_GONE if gone else NO_GATE) from None
