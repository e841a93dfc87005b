"""Which Node is it that a label of another system names?"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from recovery.model import NodeView

LONGEST_SHOWN = 80


class NodeNames:
    """The names and addresses of ``nodes``."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self._names: set[str] = set()
        self._at: dict[str, set[str]] = {}
        for node in nodes:
            self._names.add(node.name)
            for host in filter(None, map(_host, node.addresses)):  # a Node may have an address without text
                self._at.setdefault(host, set()).add(node.name)

    def node_of(self, place: str, what: str) -> tuple[str, str]:
        """The name of the one Node that ``place`` names, or whose address it is; or "" and why there is none.
        ``what``: has the label, as people read it."""
        if place in self._names:
            return place, ""
        found = self._at.get(_host(place), set())
        if len(found) == 1:
            return next(iter(found)), ""
        shown = "".join(c for c in place if c.isprintable())[:LONGEST_SHOWN]
        if not shown:
            return "", f"{what} names no node"
        return "", f"{shown} is " + (
            "the address of several Nodes" if found else "no Node, and no Node's address"
        )


def _host(place: str) -> str:
    """The host of ``host``, ``host:port``, ``[v6]:port`` or a bare IPv6 address, in one form."""
    host = place.rpartition(":")[0] if place.count(":") == 1 or place.startswith("[") else place
    if place.startswith("[") and place.endswith("]"):
        host = place
    host = host.strip("[]").lower()
    try:
        return str(ip_address(host))
    except ValueError:
        return host
