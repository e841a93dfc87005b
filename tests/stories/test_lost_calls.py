"""A call whose answer was lost, and that never had an effect: it is no step that was taken (law 2)."""

from __future__ import annotations

from datetime import timedelta

from recovery_testkit.stage import Stage

from recovery.errors import Ambiguous
from recovery.model import NotApplied, Phase
from tests.builders.policies import policy_file
from tests.stories.scenes import (
    NO_MARKS,
    boot,
    calls,
    cast,
    marked,
    messages,
    no_place,
    phase,
    plugin_page,
    record_sentences,
    the_record,
)

BACK = "GpuNvlinkBad was taken back by its own source"


def lost_call(remedy: str = "{do: replace, within: 30m}") -> Stage:
    """The request never arrived; a minute later its fault is over."""
    s = cast(policy_file(remedy, match="type: GpuNvlink"), plugin=True)

    def lose() -> None:
        s.provider.before_call = lambda: None
        raise Ambiguous("the connection was reset")

    s.provider.before_call = lose
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(8)
    assert the_record(s).progress.acted
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(200)
    return s


def outcomes(s: Stage) -> list[str]:
    return [dict(m.dimensions)["Outcome"] for m in s.told.metrics if m.name == "RecoveryAction"]


def test_a_fault_that_ends_after_it_is_withdrawn_and_no_success_is_told() -> None:
    s = lost_call()
    assert (phase(s), marked(s), calls(s), no_place(s)) == (Phase.WITHDRAWN, NO_MARKS, [], True)
    assert messages(s, "Withdrawn") == [f"{BACK} before anything destructive"]
    assert outcomes(s) == ["observed", "started", "failed", "withdrawn"]
    assert not messages(s, "Recovered")


def test_one_that_came_too_soon_is_none_that_was_made_either() -> None:
    """The provider accepted it within a grace period, and did nothing."""
    s = cast(policy_file("{do: replace, within: 30m}", match="type: GpuNvlink"), plugin=True)
    end = s.clock.now() + timedelta(minutes=40)
    s.provider.poll = lambda *_: NotApplied("healthy, in its grace period", end)  # type: ignore[method-assign]
    s.provider.after_call = lambda: [g.unhealthy.clear() for g in s.provider.groups.values()]
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(120)
    assert the_record(s).progress.submitted == ()
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(400)
    assert (phase(s), "succeeded" in outcomes(s)) == (Phase.WITHDRAWN, False)


def test_its_step_is_taken_when_the_fault_is_back() -> None:
    s = lost_call()
    s.pages["node-0"].body = plugin_page(True, 2)
    s.run(10)
    assert calls(s) == [("replace", "m-0")]
    assert "GpuNvlinkBad: rule neuron-hardware says replace" in record_sentences(s)


def test_what_was_done_before_it_is_proved_and_told_by_its_own_name() -> None:
    s = cast(policy_file("{do: reboot}, {do: replace}", match="type: GpuNvlink"), plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(8)

    def lose() -> None:
        raise Ambiguous("the connection was reset")

    s.provider.before_call = lose
    boot(s, "node-0")
    s.run(8)
    assert [x.action for x in the_record(s).progress.submitted] == ["reboot", "replace"]
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(300)
    assert (phase(s), calls(s)) == (Phase.RECOVERED, [("reboot", "m-0")])
    assert f"{BACK} after reboot" in record_sentences(s)
