"""``node-recovery pause`` and ``resume``: no destructive step anywhere, for a while."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import click

from recovery.console.api import Desk, connect
from recovery.console.output import JSON, as_json, ask
from recovery.console.recoveries import NotInstalled, pause_as_json, swap
from recovery.console.status import pause_sentence
from recovery.errors import Conflict, NotFound
from recovery.model import Gate
from recovery.store import gate as gates
from recovery.store.gate import read_pause
from recovery.units import moment


def pause(length: timedelta, reason: str, owner: str, output: str) -> None:
    """Pause everything for ``length``. A pause that ends later anyway is left as it is."""
    desk = connect()
    owner = owner or desk.caller()
    _say(desk, swap(lambda: _pause(desk, length, reason, owner)), output)


def resume(assume_yes: bool, output: str) -> None:
    """End the pause, whoever made it; another's is asked about first."""
    desk = connect()
    found = _gate(desk)
    current = read_pause((found or {}).get("spec"))
    if found is None or current is None or not current.in_force(desk.time.now()):
        if found is not None and current is not None:
            swap(lambda: _resume(desk))  # an old one is cleared away
        _say(desk, "Nothing was paused.", output)
        return
    if current.owner != desk.caller() and not assume_yes:
        ask(f"{current.owner} paused all recoveries: {current.reason}. End it for everybody?")
    swap(lambda: _resume(desk))
    _say(desk, f"Recoveries go on: the pause of {current.owner} ({current.reason}) has ended.", output)


def _pause(desk: Desk, length: timedelta, reason: str, owner: str) -> str:
    obj = _gate(desk)
    if obj is None:
        obj = _make(desk)
    now = desk.time.now()
    until = (now + length).replace(microsecond=0)
    before = read_pause(obj.get("spec"))
    if before is not None and not before.in_force(now):
        before = None
    if before is not None and (before.until is None or before.until >= until):
        told = pause_sentence(Gate("", "", "", pause=before), now)
        return f"Nothing was changed: {click.unstyle(told)}. That ends no earlier than yours would."
    changed = copy.deepcopy(obj)
    ours = {"owner": owner, "reason": reason, "until": moment(until)}
    changed["spec"] = {**(changed.get("spec") or {}), "pause": ours}
    desk.replace_gate(changed)
    instead = f" It takes the place of {before.owner}'s ({before.reason})." if before else ""
    return (
        f"Paused until {until:%Y-%m-%d %H:%M:%SZ} by {owner}: {reason}. No destructive step is started "
        f"anywhere; observing, proving and cleaning up go on.{instead}"
    )


def _resume(desk: Desk) -> None:
    obj = _gate(desk)
    if obj is None or "pause" not in (obj.get("spec") or {}):
        return
    changed = copy.deepcopy(obj)
    del changed["spec"]["pause"]
    desk.replace_gate(changed)


def _gate(desk: Desk) -> dict[str, Any] | None:
    try:
        return desk.get_gate()
    except NotFound:
        return None


def _make(desk: Desk) -> dict[str, Any]:
    """An empty gate: agents fill it from the records before anything is granted."""
    try:
        return desk.create_gate(gates.encode(Gate(uid="", resource_version="", stamp=""), {}))
    except Conflict:
        return desk.get_gate()
    except NotFound:
        raise NotInstalled from None


def _say(desk: Desk, sentence: str, output: str) -> None:
    if output != JSON:
        click.echo(sentence)
        return
    obj = _gate(desk) or {}
    found = Gate("", "", "", pause=read_pause(obj.get("spec")))
    click.echo(as_json({"pause": pause_as_json(found), "sentence": sentence}))
