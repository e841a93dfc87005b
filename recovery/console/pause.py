"""``node-recovery pause`` and ``resume``: no destructive step anywhere, for a while."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import click

from recovery.console.api import UserApi, connect_to_change
from recovery.console.output import ask, for_programs, say, show
from recovery.console.recoveries import check_installed, pause_as_json, retry_on_conflict
from recovery.console.status import pause_sentence
from recovery.errors import ApiError, Conflict, NotFound, NotInstalled
from recovery.kube.kubeconfig import Target
from recovery.model import Gate, Pause
from recovery.short import LONGEST_WORDS
from recovery.store import gate as gates
from recovery.store.gate import read_pause
from recovery.units import moment


def pause(length: timedelta, reason: str, owner: str, assume_yes: bool, target: Target, output: str) -> None:
    """Pause all recoveries for ``length``. A pause that ends later is left as it is."""
    api = connect_to_change(target)
    if api.elsewhere and not assume_yes:
        ask(f"{api.elsewhere}Pause all recoveries there?")
    owner = owner or api.caller()[:LONGEST_WORDS]
    _print(api, retry_on_conflict(lambda: pause_all(api, length, reason, owner)), output)


def resume(assume_yes: bool, target: Target, output: str) -> None:
    """End the pause. If somebody else made it, or it is in another cluster than usual, ask first."""
    api = connect_to_change(target)
    found = _gate(api)
    if found is None:
        check_installed(api)
    current = read_pause((found or {}).get("spec"))
    if found is None or current is None or not current.in_force(api.time.now()):
        if found is not None and current is not None:
            retry_on_conflict(lambda: _resume(api, current))  # remove the one that has expired
        _print(api, "Nothing was paused.", output)
        return
    if not assume_yes and (api.elsewhere or current.owner != api.caller()):
        ask(f"{api.elsewhere}{current.owner} paused all recoveries: {current.reason}. End it for everybody?")
    retry_on_conflict(lambda: _resume(api, current))
    _print(api, f"Recoveries go on: the pause of {current.owner} ({current.reason}) has ended.", output)


def pause_all(api: UserApi, length: timedelta, reason: str, owner: str) -> str:
    """Write the pause, unless one that ends later is in force. Raises ``Conflict``, ``NotInstalled``."""
    obj = _gate(api)
    if obj is None:
        obj = _create(api)
    now = api.time.now()
    until = (now + length).replace(microsecond=0)
    before = read_pause(obj.get("spec"))
    if before is not None and not before.in_force(now):
        before = None
    if before is not None and (before.until is None or before.until >= until):
        current = pause_sentence(Gate("", "", "", pause=before), now)
        stays = f"Another pause stays, which ends no earlier: {click.unstyle(current)}"
        return f"{stays}. If somebody ends it before, pause again."
    changed = copy.deepcopy(obj)
    ours = {"owner": owner, "reason": reason, "until": moment(until)}
    changed["spec"] = {**(changed.get("spec") or {}), "pause": ours}
    api.replace_gate(changed)
    instead = f" It replaces the pause of {before.owner} ({before.reason})." if before else ""
    return (
        f"Paused until {until:%Y-%m-%d %H:%M:%SZ} by {owner}: {reason}. No destructive step is started "
        f"anywhere; observing, proving and cleaning up go on.{instead}"
    )


def _resume(api: UserApi, asked_about: Pause) -> None:
    obj = _gate(api)
    if obj is None or "pause" not in (obj.get("spec") or {}):
        return
    if (now := read_pause(obj["spec"])) != asked_about:
        now_by = f"{now.owner} paused all recoveries: {now.reason}" if now else "it cannot be read"
        raise ApiError(f"nothing was changed: it is another pause by now: {now_by}")
    changed = copy.deepcopy(obj)
    del changed["spec"]["pause"]
    api.replace_gate(changed)


def _gate(api: UserApi) -> dict[str, Any] | None:
    try:
        return api.get_gate()
    except NotFound:
        return None


def _create(api: UserApi) -> dict[str, Any]:
    """Create an empty gate. Agents fill it from the records before they grant anything."""
    try:
        return api.create_gate(gates.encode(Gate(uid="", resource_version="", stamp=""), {}))
    except Conflict:
        return api.get_gate()
    except NotFound:
        raise NotInstalled from None


def _print(api: UserApi, sentence: str, output: str) -> None:
    if not for_programs(output):
        say(sentence)
        return
    obj = _gate(api) or {}
    found = Gate("", "", "", pause=read_pause(obj.get("spec")))
    show({"cluster": api.as_json(), "pause": pause_as_json(found), "sentence": sentence}, output)
