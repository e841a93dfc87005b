"""What IBM's Autopilot writes on the Node: the label of the GPUs' health, and how DCGM's level 3 ended.

By https://github.com/IBM/autopilot (autopilot-daemon/gpu-dcgm/entrypoint.py, pkg/utils/nodelabels.go):

- ``gpuhealth`` is PASS, WARN, EVICT or TESTING. The hourly pass writes PASS or WARN over it, so that EVICT
  which goes away was not taken back. TESTING is a claim of the node (``catalog/claims.yaml``).
- ``dcgm.level.3`` is ERR_ or PASS_ with the time of the run; its annotation has the tests that failed, as
  ``test.gpu.gpu``, and ``testNoGPUid`` for one of no GPU. Nothing stands between two of them, though its
  documentation has a comma there. Where it was told which tests count: ``group.category.test:gpu,words,;``. A
  PASS_ overwrites the ERR_ of a run before, so that it is the later one: it takes that fault back.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from recovery.model import NodeView
from recovery.signals.marks import Mark, Said

SOURCE = "autopilot"
HEALTH, LEVEL_3 = "AutopilotHealth", "AutopilotDcgm3"
TYPES = frozenset({HEALTH, LEVEL_3})
WARN, EVICT = "AutopilotWarn", "AutopilotEvict"
_HEALTH_LABEL = "autopilot.ibm.com/gpuhealth"
_LEVEL_3_LABEL = "autopilot.ibm.com/dcgm.level.3"
LABELS = (_HEALTH_LABEL, _LEVEL_3_LABEL)
_OUTPUT = "autopilot.ibm.com/dcgm.level.3.output"
_STAMP = re.compile(r"(ERR|PASS)_\d{4}-\d{2}-\d{2}_\d{2}\.\d{2}(?:\.\d{2})?\.?UTC")
_TEST = re.compile(r"[a-z][a-z0-9_-]*")
_OF_NO_GPU = "NoGPUid"
LONGEST_TEST = 41
LONGEST = 16 * 1024
MOST_TESTS = 10


def read(node: NodeView) -> Said:
    """The faults that labels and annotation state."""
    health, level_3 = _health(node), _level_3(node)
    return Said(
        (*health.marks, *level_3.marks),
        {**health.unknown, **level_3.unknown},
        health.passed | level_3.passed,
    )


def _health(node: NodeView) -> Said:
    value = node.labels.get(_HEALTH_LABEL, "")
    reason = {"WARN": WARN, "EVICT": EVICT}.get(value)
    if reason is not None:
        return Said((Mark(HEALTH, reason, f"label {_HEALTH_LABEL}={value}", value),))
    if value == "PASS":
        return Said(passed=frozenset({(HEALTH, WARN)}))
    return Said(unknown={HEALTH: f"label {_HEALTH_LABEL} is {value!r}"}) if value else Said()


def _level_3(node: NodeView) -> Said:
    value = node.labels.get(_LEVEL_3_LABEL, "")
    if not value:
        return Said()
    stamp = _STAMP.fullmatch(value)
    if stamp is None:
        return Said(unknown={LEVEL_3: f"label {_LEVEL_3_LABEL} is {value[:80]!r}"})
    if stamp[1] == "PASS":
        return Said(passed=frozenset({(LEVEL_3, "*")}))
    output = node.annotations.get(_OUTPUT, "")[:LONGEST]
    tests = _tests(output) or ("unnamed",)
    said = f"DCGM level 3 failed ({value}): {output or 'no test is named'}"
    ran = _ran(value)
    return Said(tuple(Mark(LEVEL_3, f"Dcgm3_{test}", said, f"{value}{output}", ran) for test in tests))


def _ran(stamp: str) -> datetime | None:
    """When the run was, by its stamp; None where that is no moment."""
    year, month, day, hour, minute, second = (*map(int, re.findall(r"\d+", stamp)), 0)[:6]
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def _tests(output: str) -> tuple[str, ...]:
    """The names of the tests that failed, in either format."""
    if ":" in output:
        heads = (part.partition(":")[0].rpartition(".")[2].strip() for part in output.lower().split(";"))
        names = [head for head in heads if _TEST.fullmatch(head)]
    else:
        names = _TEST.findall(output.replace(_OF_NO_GPU, ".").lower())
    return tuple(dict.fromkeys(x for x in names if 1 < len(x) <= LONGEST_TEST))[:MOST_TESTS]
