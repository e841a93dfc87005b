"""Did the API server store what a command wrote? A command must not say that it was done where it was not.

An API server with older CRDs prunes what they do not know, and answers 200 with the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from recovery.decide.marks import unmark_patch
from recovery.errors import Dropped
from recovery.model import NodeView

Json = Mapping[str, Any]


def check_stored(part: str, sent: Json, answer: Json) -> None:
    """Raises ``Dropped`` if ``part`` (spec, or status) of one of our objects is not as it was written.

    Also where it still has a field that was taken off.
    """
    wanted, found = sent.get(part) or {}, answer.get(part) or {}
    what = f"{sent.get('kind') or 'the object'} {sent['metadata']['name']}"
    if lost := missing(wanted, found, part):
        raise Dropped(f"the API server did not store {lost} of {what}{_advice()}")
    if kept := sorted(key for key, value in found.items() if value and key not in wanted):
        raise Dropped(f"the API server has not taken {part}.{kept[0]} off {what}{_advice()}")


def _advice() -> str:
    return (
        ": nobody will act on it. Are the CRDs in the cluster older than this program? Apply those of "
        f"version {version('node-recovery')} (kubectl apply -k deploy/crds), and run the command again"
    )


def missing(sent: Any, kept: Any, path: str) -> str:
    """The path of the first thing in ``sent`` that ``kept`` has not, or has otherwise; "" where it has all.

    What is empty may be left out.
    """
    if isinstance(sent, Mapping):
        found = kept if isinstance(kept, Mapping) else {}
        pruned = (f"{path}.{key}" for key, value in sent.items() if value and key not in found)
        return next(pruned, "") or _first(
            missing(value, found.get(key), f"{path}.{key}") for key, value in sent.items()
        )
    if isinstance(sent, list):
        items = kept if isinstance(kept, list) else []
        if len(items) != len(sent):
            return path
        return _first(missing(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(sent, items, strict=True)))
    return "" if sent == kept or (not sent and not kept) else path


def _first(found: Iterable[str]) -> str:
    return next(filter(None, found), "")


def check_conditions(node: str, sent: Sequence[Json], answer: Sequence[Json]) -> None:
    """Raises ``Dropped`` if a Node's conditions are others than were written. Times may be rounded."""
    wanted, found = _told(sent), _told(answer)
    if differing := sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)):
        kept = "is still there" if differing[0] not in wanted else "was not stored as it was written"
        raise Dropped(f"the condition {differing[0]} of Node {node} {kept}, though the API server said yes")


def _told(conditions: Sequence[Json]) -> dict[str, tuple[str, ...]]:
    parts = ("status", "reason", "message")
    return {str(c["type"]): tuple(str(c.get(part) or "") for part in parts) for c in conditions}


def check_unmarked(node: NodeView) -> None:
    """Raises ``Dropped`` if ``node``, as the API server has it now, still has marks of ours."""
    if unmark_patch(node) is not None:
        raise Dropped(
            f"our marks are still on Node {node.name}, though the API server said that they were taken off; "
            f"compare with kubectl get node {node.name} -o yaml"
        )
