"""Each switch of the search takes something out that is there, and its story is red then.

A switch that went stale with the program would make every history of the proof a bug, and find nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.search import without

pytestmark = pytest.mark.slow
TOO_SLOW = {"m15_told_for_ever"}
"""Its story takes two minutes without the mend: 10,000 writes."""
PLAYED = """
import sys, pytest
from tests.search import without
name, story = sys.argv[1:]
without.take_out(name)
sys.exit(pytest.main([story, "-x", "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider", "-q"]))
"""


@pytest.mark.parametrize("name", sorted({*without.names()} - TOO_SLOW))
def test_the_story_of_a_mend_is_red_without_it(name: str) -> None:
    story = without.load(name).STORY
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PLAYED, name, story],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    why = re.findall(r"(?m)^E +(\w+)", done.stdout)
    assert (done.returncode, why[:1]) in [(1, ["AssertionError"]), (1, ["assert"])], done.stdout[-3000:]
