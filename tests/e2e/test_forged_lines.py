"""Lines that any process can have the kernel write, read by a real node-problem-detector."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from detectors import DRIVER, Real, real

from tests.builders.kernel_lines import FORGED, forged

CODES = ("DMA_ERROR", "SRAM_UNCORRECTABLE_ERROR", "NC_UNCORRECTABLE_ERROR")
LAST = "HBM_UNCORRECTABLE_ERROR"


def counted(page: str) -> dict[str, float]:
    """How often each reason was stated."""
    found = re.findall(
        r'^problem_counter(?:_total)?\{reason="NeuronHasError_(\w+)"\} ([0-9.e+]+)$', page, re.MULTILINE
    )
    return {reason: float(count) for reason, count in found}


@pytest.mark.skipif(not real(), reason="NPD_BINARY names no node-problem-detector")
def test_a_real_detector_takes_no_forged_line_for_a_fault(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    detector = Real("forger", tmp_path)
    try:
        for line in FORGED.values():
            for code in CODES:
                detector.kernel(code, forged(line, f"NEURON_HW_ERR={code}"))
                detector.kernel(code, forged(line, f"kernel: NEURON_HW_ERR={code}"))
        detector.kernel(LAST, DRIVER.format(LAST, "i-1", "forger"))  # the driver's own, read after all others
        url, deadline, found = f"http://127.0.0.1:{detector.port}/metrics", time.monotonic() + 30, {}
        while found.get(LAST) != 1 and time.monotonic() < deadline:
            time.sleep(0.2)
            try:
                found = counted(urllib.request.urlopen(url, timeout=5).read().decode())
            except OSError:
                continue  # it is still starting
        assert set(CODES) <= found.keys()
        assert {reason: count for reason, count in found.items() if count} == {LAST: 1}
        tell(f"  {len(FORGED)} ways to forge a line, {len(CODES)} codes: a real detector states none of them")
    finally:
        detector.kill()
