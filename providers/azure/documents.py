"""Metrics as Azure Monitor takes them: documents, and the requests that hold them.

One request holds many metrics, a JSON document on each line: the REST API reference, "Metrics - Custom -
Create", takes ``application/x-ndjson`` beside ``application/json``; it says that a document is of one metric
and one moment, with a series for each combination of dimensions. Telegraf's ``azure_monitor`` output sends
the same way. Points of one metric, one minute and the same dimensions are one document, for Azure Monitor
stores minutes.

Limits: the Azure Monitor documentation, "Custom metrics in Azure Monitor (preview)" (10 dimensions, 256
characters), and MicrosoftDocs/azure-docs#70193 (4 MB).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Any

from recovery.provider.monitor import Metric

DIMENSIONS = 10
CHARACTERS = 256
LARGEST = 4_000_000  # bytes of a request


def lines_of(metrics: Sequence[Metric], namespace: str) -> tuple[list[bytes], str]:
    """A document on a line for each that is fit, and why the first of the others is not."""
    lines: list[bytes] = []
    refusal = ""
    for group in _groups(metrics):
        problem = _unfit(group)
        refusal = refusal or problem
        if not problem:
            lines.append(json.dumps(_document(group, namespace), allow_nan=False).encode() + b"\n")
    return lines, refusal


def _groups(metrics: Sequence[Metric]) -> list[list[Metric]]:
    """Points of one metric, one minute and the same dimensions together, in the order in which they came."""
    groups: dict[tuple[object, ...], list[Metric]] = {}
    for m in metrics:
        minute = m.at.astimezone(UTC).replace(second=0, microsecond=0)
        groups.setdefault((m.name, minute, *sorted(m.dimensions.items())), []).append(m)
    return list(groups.values())


def _unfit(group: Sequence[Metric]) -> str:
    """Why Azure Monitor would not take these points; empty if it would."""
    m = group[0]
    total = sum(x.value for x in group)
    if not math.isfinite(total):
        return f"metric {m.name[:40]} has the value {total}, which Azure Monitor does not take"
    if not 1 <= len(m.name) <= CHARACTERS:
        return f"metric {m.name[:40]!r} has a name of {len(m.name)} characters, not 1-{CHARACTERS}"
    if len(m.dimensions) > DIMENSIONS:
        return f"metric {m.name} has {len(m.dimensions)} dimensions, not at most {DIMENSIONS}"
    for name, value in m.dimensions.items():
        if not 1 <= len(name) <= CHARACTERS or len(value) > CHARACTERS:
            longest = max(len(name), len(value))
            return (
                f"metric {m.name} has a dimension {name[:40]!r} with a name or value of {longest} "
                f"characters, not 1-{CHARACTERS}"
            )
    return ""


def _document(group: Sequence[Metric], namespace: str) -> dict[str, Any]:
    values = [float(m.value) for m in group]
    series: dict[str, Any] = {
        "min": min(values),
        "max": max(values),
        "sum": sum(values),
        "count": len(values),
    }
    base: dict[str, Any] = {"metric": group[0].name, "namespace": namespace, "series": [series]}
    if dimensions := sorted(group[0].dimensions.items()):
        base["dimNames"] = [name for name, _ in dimensions]
        series["dimValues"] = [value or "none" for _, value in dimensions]  # as CloudWatch gets them
    at = min(m.at for m in group).astimezone(UTC)
    return {"time": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z", "data": {"baseData": base}}


def bodies_of(lines: Sequence[bytes]) -> Iterator[bytes]:
    """The lines in requests of at most 4 MB. One line never comes near that: 64 KB at most."""
    body = b""
    for line in lines:
        if body and len(body) + len(line) > LARGEST:
            yield body
            body = b""
        body += line
    yield body
