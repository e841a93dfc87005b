"""The store of NodeRecovery records: reads them, and swaps them by compare-and-swap.

One cluster-scoped object for each node that was ever treated, named after the node. It has no status
subresource: one PUT with a resourceVersion writes all of it, atomically.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from recovery.errors import Conflict, Dropped, NotFound, Undecodable
from recovery.model import PHASE_LABEL, Phase, Record
from recovery.quick import replace
from recovery.store.codec import Unchanged, dropped
from recovery.store.record_codec import as_written, decode

MOST_WRITTEN = 10_000
"""For how many records it is remembered that nobody has written them since we did."""
WELL = tuple(phase.value for phase in Phase if not phase.sick)
NOT_SICK = f"{PHASE_LABEL} notin ({','.join(WELL)})"
"""A label selector. A record without the label, of an older program, is selected."""


class RecordObjects(Protocol):
    """The part of the cluster that the store of records needs."""

    def list_records(self, selector: str = "") -> Iterable[dict[str, Any]]: ...
    def get_record(self, node: str) -> dict[str, Any]: ...
    def create_record(self, body: dict[str, Any]) -> dict[str, Any]: ...
    def replace_record(self, body: dict[str, Any]) -> dict[str, Any]: ...
    def delete_record(self, name: str, uid: str, version: str) -> None: ...


class Records:
    """Reads and swaps records. Every write is a compare-and-swap: ``Conflict`` means read again.

    ``known``: what others have decoded that read the same ones. Those that count as sick are kept there.
    """

    def __init__(self, cluster: RecordObjects, known: Unchanged[Record] | None = None) -> None:
        self._cluster = cluster
        self._decode = known or Unchanged(decode)
        self._keeps = known is not None
        self._written: dict[str, str] = {}
        self._unstored: dict[str, Record] = {}

    def all(self) -> Iterator[Record | Undecodable]:
        """All records there are. In place of one that cannot be decoded, the error that says why.

        One page is in memory at a time. Raises ``Expired``: see ``paging.folded``.
        """
        return self._each("", keeps=False)

    def sick(self) -> Iterator[Record | Undecodable]:
        """Those that count as sick, and those whose label does not say that they do not."""
        return self._each(NOT_SICK, keeps=self._keeps)

    def with_labels(self) -> Iterator[tuple[Record, str]]:
        """All records that can be decoded, each with the phase that its label shows."""
        for obj in self._cluster.list_records():
            with contextlib.suppress(Undecodable):
                yield decode(obj), str((obj["metadata"].get("labels") or {}).get(PHASE_LABEL, ""))

    def readable(self) -> Iterator[Record]:
        """All records, to rebuild the gate from. Raises ``Undecodable``: one that cannot be decoded may hold
        a slot."""
        return map(decode, self._cluster.list_records())

    def _each(self, selector: str, *, keeps: bool) -> Iterator[Record | Undecodable]:
        for obj in self._cluster.list_records(selector):
            try:  # thousands are not worth remembering
                yield self._decode(obj) if keeps else self._decode.known(obj) or decode(obj)
            except Undecodable as error:
                error.name = str(obj["metadata"]["name"])
                yield error.with_traceback(None)  # who keeps it does not keep the object
            del obj  # or it would be in memory while the next page is read

    def read(self, node: str) -> Record | None:
        """The record of ``node``, or None. Raises ``Undecodable``."""
        try:
            return self._decode(self._cluster.get_record(node))
        except NotFound:
            return None

    def _was(self, record: Record) -> Mapping[str, Any]:
        """The very object that ``record`` was read from, with what others put on it (law 5)."""
        known = self._decode.last(record.node, record.resource_version)
        if known is not None:
            return known
        there = self._cluster.get_record(record.node)
        if str(there["metadata"].get("resourceVersion")) != record.resource_version:
            raise Conflict(f"NodeRecovery {record.node} was changed by another writer")
        return there

    def ours(self, record: Record) -> bool:
        """Whether ``record`` is as we wrote it: nobody else has since."""
        return self._written.get(record.node) == record.resource_version

    def stored_at_last(self, record: Record) -> bool:
        """Write once more what the API server has not stored as it was written, if ``record`` is what it made
        of that. Whether that was so; raises ``Dropped`` where it is not stored now, either."""
        written = self._unstored.get(record.node)
        if written is None or written.resource_version != record.resource_version:
            return False
        self.write(written)
        return True

    def remove(self, record: Record) -> None:
        """Delete ``record`` as it was read. ``Conflict``: it has changed, and stays."""
        self._cluster.delete_record(record.node, record.uid, record.resource_version)

    def write(self, record: Record) -> Record:
        """Create (no resourceVersion) or swap ``record``. Returns it with its new resourceVersion.

        Raises ``Dropped`` if the API server pruned a field: the next reader would not know of it.
        """
        record, body = as_written(record, self._was(record) if record.resource_version else None)
        write = self._cluster.replace_record if record.resource_version else self._cluster.create_record
        stored = write(body)
        meta = stored["metadata"]
        uid, version = str(meta["uid"]), str(meta["resourceVersion"])
        self._unstored.pop(record.node, None)
        if lost := dropped(body["status"], stored.get("status"), "status"):
            self._unstored[record.node] = replace(record, uid=uid, resource_version=version)
            raise Dropped(
                f"the API server dropped {lost} of NodeRecovery {record.node}: its CRDs are older than this "
                "program; kubectl apply -k deploy/crds"
            )
        if len(self._written) >= MOST_WRITTEN:
            self._written.clear()  # then it is found out anew who is at work on each
        self._written[record.node] = version
        return self._decode.keep(stored, replace(record, uid=uid, resource_version=version))
