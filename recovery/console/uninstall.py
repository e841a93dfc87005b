"""``node-recovery uninstall``: before the manifests are deleted, nothing of ours stays on any node.

It pauses, ends what is open as ``release`` does, and takes our marks off every Node that has them: also where
the record, or the CRDs, are gone. What cannot be ended yet is left as it is, and told (decision 0037).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from recovery.console.api import UserApi, connect_to_change
from recovery.console.leavings import Item, Seen, look, of_pods
from recovery.console.output import ask, for_programs, say, show
from recovery.console.pause import pause_all
from recovery.console.recoveries import retry_on_conflict
from recovery.console.release import end, unmark
from recovery.console.wanted_back import ask_agents, stands
from recovery.errors import ApiError, CannotRelease, Dropped, NodeRecoveryError
from recovery.kube.kubeconfig import Target
from recovery.units import span

PAUSE = timedelta(hours=24)
"""As long as the agents are kept from beginning anything. By then the manifests are to be deleted."""
REASON = "node-recovery is being uninstalled"
PASSES = 3
"""An agent in the middle of a cycle may set a mark right after it was taken off: it is looked again."""


@dataclass
class Result:
    """What was done, or with ``--dry-run`` would be, and what is left."""

    dry: bool
    pause: str = ""
    done: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        if self.left:
            count = "1 node is" if len(self.left) == 1 else f"{len(self.left)} nodes are"
            return f"{count} left: do not delete the manifests yet, and run this again"
        if self.dry and self.done:
            return "Nothing was changed. After this, nothing of node-recovery would be left on any node"
        return "Nothing of node-recovery is left on any node: its manifests may be deleted"


def uninstall(assume_yes: bool, dry: bool, target: Target, output: str) -> int:
    """Take our marks off every node, or say why not yet. Returns the exit code: 1 where something is left."""
    api = connect_to_change(target)
    seen = look(api)
    result = Result(dry, left=_kept(seen), notes=list(seen.notes))
    if dry:
        result.pause = f"All recoveries would be paused for {span(PAUSE)}" if seen.installed else ""
        result.done = {item.node: item.would for item in seen.items}
    else:
        if (seen.installed or seen.items) and not assume_yes:
            ask(f"{api.elsewhere}{_question(api, seen)}")
        try:
            _carry_out(api, seen, result)
        except (NodeRecoveryError, KeyboardInterrupt):
            for line in _so_far(result):
                say(line, err=True)
            raise
    _print(api, result, output)
    return 1 if result.left else 0


def _question(api: UserApi, seen: Seen) -> str:
    ended = sum(item.found is not None and not item.found.closed for item in seen.items)
    marked = sum(item.marked for item in seen.items)
    return (
        f"Uninstall from {api.place}: pause all recoveries, end {ended} of them, and take node-recovery's "
        f"cordons, taints and annotations off {marked} {'node' if marked == 1 else 'nodes'}?"
    )


def _carry_out(api: UserApi, seen: Seen, result: Result) -> None:
    owner = api.caller()
    if seen.installed:
        result.pause = retry_on_conflict(lambda: pause_all(api, PAUSE, REASON, owner))
    for _ in range(PASSES):
        seen = look(api)  # again, now that nothing more is begun
        result.left |= _kept(seen)
        todo = [item for item in seen.items if item.node not in result.left]
        if not todo:
            break
        result.left |= _take_back(api, todo, owner)
        for item in todo:
            if item.node not in result.left:
                _clear(api, item, owner, result)
    else:
        seen = look(api)
        result.left = {item.node: "it was marked again" for item in seen.items} | result.left | _kept(seen)
    result.done = {node: what for node, what in result.done.items() if node not in result.left}


def _take_back(api: UserApi, items: list[Item], owner: str) -> dict[str, str]:
    """Have agents take back what was asked of a provider and may still come. Those that are not, and why."""
    open_ones = (item.found for item in items if item.found is not None and not item.found.closed)
    standing = [found.record for found in open_ones if stands(found.record, found.node)]
    return ask_agents(api, standing, owner, REASON)


def _clear(api: UserApi, item: Item, owner: str, result: Result) -> None:
    try:
        if item.found is not None:
            end(api, item.found, f"ended by {owner}: {REASON}")
            result.notes += of_pods(api, item)
        node = retry_on_conflict(lambda: unmark(api, item.node)).node
    except (CannotRelease, ApiError, Dropped) as error:
        result.left[item.node] = str(error)
        return
    result.done.setdefault(item.node, item.done(node))


def _kept(seen: Seen) -> dict[str, str]:
    return {kept.node: kept.why for kept in seen.kept}


# ---------------------------------------------------------------- what is printed


def _print(api: UserApi, result: Result, output: str) -> None:
    if for_programs(output):
        show(_as_json(api, result), output)
        return
    for line in _lines(result):
        say(line)


def _so_far(result: Result) -> Iterator[str]:
    """What was done, also where it could not be ended: a pause that nobody knows of holds all recoveries."""
    if result.pause:
        yield result.pause
    for node, what in sorted(result.done.items()):
        yield f"{'would be cleared' if result.dry else 'cleared'}  {node}: {what}"


def _lines(result: Result) -> Iterator[str]:
    yield from _so_far(result)
    for node, why in sorted(result.left.items()):
        yield f"left  {node}: {why}"
    yield from (f"note  {note}" for note in result.notes)
    yield f"{result.sentence}."


def _as_json(api: UserApi, result: Result) -> dict[str, Any]:
    return {
        "cluster": api.as_json(),
        "dryRun": result.dry,
        "pause": result.pause or None,
        "cleared": [{"node": node, "sentence": what} for node, what in sorted(result.done.items())],
        "left": [{"node": node, "why": why} for node, why in sorted(result.left.items())],
        "notes": result.notes,
        "nothingLeft": not result.left and not (result.dry and result.done),
        "sentence": result.sentence,
    }
