"""A plugin whose check takes a minute, beside quick ones, and a detector that is restarted."""

from __future__ import annotations

from recovery_testkit.stage import Stage

from recovery.errors import Refused
from recovery.model import Phase
from tests.builders.policies import policy_file
from tests.stories.scenes import ALL_MARKS, calls, marked, phase, release_by_command, stubborn_pod, the_record


def page(bad: int, *, good: bool = True, count: int | None = None) -> bytes:
    """Two checks. ``good``: their healthy reasons are listed, as they are once any check has had a result.
    ``count``: how often the slow one was counted."""
    lines = [
        f'problem_counter{{reason="DcgmiHealthHasIssues"}} {bad if count is None else count}',
        'problem_counter{reason="GpuBusHasIssues"} 0',
        f'problem_gauge{{reason="DcgmiHealthHasIssues",type="DcgmiHealth"}} {bad}',
        'problem_gauge{reason="GpuBusHasIssues",type="GpuBus"} 0',
    ]
    if good:
        lines.append('problem_gauge{reason="DcgmiHealthHasNoIssues",type="DcgmiHealth"} 0')
        lines.append('problem_gauge{reason="GpuBusHasNoIssues",type="GpuBus"} 0')
    return ("\n".join(lines) + "\n").encode()


def site(remedy: str) -> Stage:
    s = Stage(policy_file(remedy, match="type: DcgmiHealth"))
    for name in s.nodes(4):
        s.pages[name].body = page(0)
        s.agent(name)
    s.run(10)
    return s


def restarted(s: Stage) -> None:
    """The quick check has run at once; the slow one has not for a minute, and then states what it finds."""
    found = s.pages["node-0"]
    found.error = OSError("refused")
    s.run(2)
    found.error, found.body = None, page(0, good=False)
    s.run(1)
    found.body = page(0)
    s.run(60)
    found.body = page(1)
    s.run(60)


def test_a_released_node_is_not_treated_for_what_its_slow_check_states_after_each_restart() -> None:
    s = site("{do: replace, within: 30m}")
    s.provider.preflight_error = Refused("not allowed")
    s.pages["node-0"].body = page(1)
    s.run(30)
    assert phase(s) is Phase.HANDED_OVER
    s.provider.preflight_error = None
    release_by_command(s)
    s.run(120)
    restarted(s)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


def test_a_drain_is_not_broken_off_while_the_slow_check_has_not_run() -> None:
    s = site("{do: drain, within: 30m}, {do: replace, within: 30m}")
    stubborn_pod(s)
    s.pages["node-0"].body = page(1)
    s.run(30)
    for _ in range(3):
        restarted(s)
    assert (phase(s), marked(s), len(the_record(s).starts)) == (Phase.RECOVERING, ALL_MARKS, 1)


def test_a_check_that_cannot_run_any_more_takes_no_fault_back() -> None:
    """Each of its runs comes to nothing (exit code 2): it is counted, and the gauge shows 0."""
    s = site("{do: drain, within: 30m}, {do: replace, within: 30m}")
    stubborn_pod(s)
    s.pages["node-0"].body = page(1)
    s.run(30)
    for count in range(2, 17):
        s.pages["node-0"].body = page(0, count=count)
        s.run(60)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    s.run(6 * 60)
    assert (phase(s), calls(s)) == (Phase.WITHDRAWN, [])
