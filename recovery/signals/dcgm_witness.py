"""The second witness ``dcgm``: the XIDs that dcgm-exporter shows.

DCGM has them from the driver itself, as events of NVML (dcgm_fields.h: DCGM_FI_DEV_XID_ERRORS), and not from
the kernel's log, where a pod may have words of its own. It shows the last XID of each GPU since it was
started, so none is no proof that there was none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from recovery.errors import ApiError, Unreadable
from recovery.model import PodChoice, PodView, Says, Statement
from recovery.signals import series
from recovery.signals.dcgm import LAST_XID, XIDS, blank, device
from recovery.signals.pod_page import NONE, Open, chosen, over_http, url_of
from recovery.signals.series import Series

NAME = "dcgm"
CODE = re.compile("GpuXid([0-9]{1,4})")
MOST_TOLD = 4


class DcgmWitness:
    """Reads the page of the exporter among ``pods``, those on the own node, that ``choice`` means."""

    def __init__(
        self, pods: Callable[[], Iterable[PodView]], choice: PodChoice, open_page: Open = over_http
    ) -> None:
        self._pods = pods
        self._choice = choice
        self._open = open_page

    def __call__(self, reasons: Iterable[str]) -> Statement:
        """What the exporter says of these ``reasons``. Takes as long as one page may take. Never raises."""
        try:
            found = chosen(self._pods(), self._choice)
        except ApiError as error:
            return Statement(Says.UNREADABLE, f"the pods of the node cannot be listed: {error}")
        if found.pod is None:
            return Statement(Says.ABSENT if found.why == NONE else Says.UNREADABLE, found.why)
        try:
            page = self._open(url_of(found.pod, self._choice.port), str(found.pod))()
        except Unreadable as error:
            why = f"the page of {found.pod} cannot be read: {error.reason}"
            return Statement(Says.UNREADABLE, why)
        return said(page.decode("utf-8", errors="replace"), reasons)


def said(page: str, reasons: Iterable[str]) -> Statement:
    """What the exporter's ``page`` says of ``reasons``, each of which names an XID. PURE."""
    codes = {int(found[1]) for reason in reasons if (found := CODE.match(reason))}
    read = series.read(page, (LAST_XID, XIDS))
    if read.broken:
        return Statement(Says.UNREADABLE, next(iter(read.broken.values())))
    shown = [one for one in read.series if not blank(one.value)]
    if not shown:
        return Statement(Says.ABSENT, f"it shows neither {LAST_XID} nor {XIDS}")
    if agree := [_told(one) for one in shown if _code(one) in codes]:
        return Statement(Says.AGREES, ", ".join(sorted(agree)[:MOST_TOLD]))
    wanted = " or ".join(map(str, sorted(codes)))
    if others := sorted(_told(one) for one in shown if _code(one)):
        # A later XID hides an earlier one.
        return Statement(Says.UNREADABLE, f"{others[0]}, which may have been {wanted} before")
    if all(one.name == XIDS for one in shown):
        why = f"it counts the XIDs of its last minutes alone, and {wanted} is not among them"
        return Statement(Says.UNREADABLE, why)
    return Statement(Says.DISAGREES, f"no GPU has had XID {wanted} since the exporter was started")


def _code(one: Series) -> int:
    """The XID that a line shows; 0 for none."""
    if one.name == LAST_XID:
        return int(one.value)
    code = one.labels.get("xid", "")
    return int(code) if one.value > 0 and code.isdecimal() and len(code) <= 4 else 0


def _told(one: Series) -> str:
    where = device(one).partition(" GPU-")[0] or "a GPU"
    if one.name == LAST_XID:
        return f"the last XID of {where} is {one.value:g}"
    return f"{where} has had XID {one.labels.get('xid')}"
