"""Which part of node-problem-detector states a condition type: a log rule or a plugin? PURE.

Only a plugin takes a fault back. The page shows that it is a plugin once it lists the plugin's healthy
reason. For known types the catalogue says it from the start. All others are treated as a log rule's: latched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from recovery.catalog import lookup
from recovery.model import Detector
from recovery.signals.page import Pair


def detectors(pairs: Iterable[Pair]) -> dict[str, Detector]:
    """The condition types among ``pairs`` of which the catalogue says what states them.

    Where it names both for the reasons of one type, the type counts as a log rule's, which takes nothing
    back.
    """
    found: dict[str, Detector] = {}
    for type_, reason in sorted(pairs):
        row = lookup(type_, reason)
        if row is not None and row.detector is not None and found.get(type_) is not Detector.LOG:
            found[type_] = row.detector
    return found


def plugins(uncounted: Iterable[Pair], known: Mapping[str, Detector]) -> frozenset[str]:
    """The types that plugins state: their healthy reason was listed, or the catalogue says so."""
    return frozenset(
        {type_ for type_, _ in uncounted} | {t for t, d in known.items() if d is Detector.PLUGIN}
    )
