"""A policy was changed, and reads a source no longer that has stated a fault (law 6)."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import Stage, read_policy

from recovery.errors import Unreadable
from recovery.model import Phase
from tests.builders.policies import HEAD
from tests.stories.scenes import (
    NO_MARKS,
    boot,
    calls,
    cast,
    marked,
    new_process,
    no_place,
    pause,
    phase,
    plugin_page,
    resume,
    says,
    the_record,
)

RULES = """
  - {name: nvlink, match: {type: GpuNvlink}, after: AFTER, remedy: [{do: drain}, {do: replace}]}
"""
LOST = "GpuNvlinkBad was seen, and nothing is known of it since: npd is none of the sources that are read now"


def policy(sources: str, after: str) -> bytes:
    rules = RULES.replace("AFTER", after)
    return f"{HEAD}sources: [{sources}]\nlimits: {{cooldown: 0s}}\nrules:{rules}".encode()


def seen(when: str) -> Stage:
    """A plugin's fault is tolerated for a minute, or waits for the end of a pause."""
    s = cast(policy("npd, conditions", "0s" if when == "waiting" else "1m"), plugin=True)
    pause(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(8)
    assert phase(s) is Phase(when)
    return s


def reads_only(s: Stage, sources: str, when: str) -> None:
    s.policy = read_policy(policy(sources, "0s" if when == "waiting" else "1m"))
    for node in ("node-0", "node-1"):
        new_process(s, node)


@pytest.mark.parametrize("when", ["suspect", "waiting"])
def test_a_fault_whose_source_is_read_no_more_is_a_persons(when: str) -> None:
    s = seen(when)
    reads_only(s, "conditions", when)
    resume(s)
    s.run(90)
    assert (phase(s), calls(s), marked(s), no_place(s)) == (Phase.HANDED_OVER, [], NO_MARKS, True)
    assert the_record(s).sentence == LOST
    assert says(s, "HandedOver", LOST)


@pytest.mark.parametrize("when", ["suspect", "waiting"])
def test_a_source_that_is_read_and_silent_is_waited_for(when: str) -> None:
    s = seen(when)
    reads_only(s, "conditions, npd", when)
    s.pages["node-0"].error = Unreadable("connection refused")
    resume(s)
    s.run(90)
    assert phase(s) is Phase(when)
    s.pages["node-0"].error = None
    s.run(90)
    assert calls(s) == [("replace", "m-0")]


def test_a_proof_says_that_who_stated_the_fault_is_not_read_any_more() -> None:
    s = cast(policy("npd, conditions", "0s").replace(b"{do: drain}", b"{do: reboot}"), plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(8)
    assert calls(s) == [("reboot", "m-0")]
    s.policy = read_policy(policy("conditions", "0s"))
    new_process(s, "node-0")
    boot(s, "node-0")
    s.run(150)
    proved = "proved: node-0 was healthy for 2 min by its own signals"
    missing = "npd, which stated what was treated, is not read any more"
    assert (phase(s), the_record(s).sentence) == (Phase.RECOVERED, f"{proved}; but {missing}")
