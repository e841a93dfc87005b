"""A policy was changed while a node waited for a slot: nothing starts that the new one does not call for."""

from __future__ import annotations

from datetime import timedelta

import pytest
from recovery_testkit.stage import Stage, read_policy

from recovery.errors import Unreadable
from recovery.model import Phase
from tests.builders.faults import DMA
from tests.builders.policies import HEAD, MATCH, REMEDY, policy_file
from tests.builders.times import MINUTE
from tests.stories.scenery import Cloud, judge, pass_time, sentences, to_the_end
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    calls,
    cast,
    label,
    marked,
    messages,
    new_process,
    no_place,
    pause,
    phase,
    plugin_page,
    remove_pod,
    resume,
    stubborn_pod,
    the_record,
)
from tests.stories.test_conditions import COUNT, COUNT_GOOD, renewed, writes

NO_RULE = f"{HEAD}rules: []\n".encode()
OTHERS = policy_file(match="type: SomethingElse")
RENAMED = policy_file().replace(b"neuron-hardware", b"neuron-devices")


def waits(policy: bytes, *, by: str = "pause") -> Stage:
    """node-0 waits for the end of a pause, or for a budget that lets nothing start."""
    s = cast(policy_file(limits="cooldown: 0s, budget: 0") if by == "budget" else policy)
    if by == "pause":
        pause(s)
    s.fault("node-0")
    s.run(8)
    assert phase(s) is Phase.WAITING
    return s


def goes_on_by(s: Stage, policy: bytes) -> None:
    s.policy = read_policy(policy)
    for node in ("node-0", "node-1"):
        new_process(s, node)
    s.run(10)
    resume(s)
    s.run(60)


@pytest.mark.parametrize("by", ["pause", "budget"])
@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (policy_file("{do: notify}"), "rule neuron-hardware: notify"),
        (NO_RULE, "no rule of the policy speaks of it"),
        (OTHERS, "no rule of the policy speaks of it"),
    ],
    ids=["it only notifies", "it has no rule", "its rule is about others"],
)
def test_what_the_new_policy_only_reports_is_not_recovered(policy: bytes, why: str, by: str) -> None:
    s = waits(policy_file(), by=by)
    goes_on_by(s, policy)
    assert (phase(s), calls(s), marked(s), no_place(s)) == (Phase.HANDED_OVER, [], NO_MARKS, True)
    assert the_record(s).sentence == f"{DMA}: {why}"
    assert messages(s, "HandedOver")[0] == f"{DMA}: {why}"
    assert [f.treated for f in the_record(s).faults] == [False]


def test_a_remedy_that_was_made_shorter_is_the_one_that_starts() -> None:
    s = waits(policy_file())
    goes_on_by(s, policy_file("{do: cordon}"))
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [], ALL_MARKS)
    said = f"{DMA}: rule neuron-hardware says cordon, by the policy as it is now"
    assert said in sentences(s)


def test_a_rule_that_was_put_before_it_chooses_the_steps() -> None:
    first = f"  - {{name: dma, match: {{reason: {DMA}}}, remedy: [{{do: reboot}}]}}\n"
    s = waits(policy_file())
    goes_on_by(s, policy_file().replace(b"rules:\n", f"rules:\n{first}".encode()))
    assert (the_record(s).rule, calls(s)) == ("dma", [("reboot", "m-0")])


def test_a_longer_time_of_tolerance_in_a_rule_that_was_changed_is_waited_for() -> None:
    s = waits(policy_file())
    goes_on_by(s, policy_file("{do: replace}", after="1h"))
    assert (phase(s), calls(s)) == (Phase.WAITING, [])
    assert f"{DMA}: tolerated for 60 min by rule neuron-hardware" in sentences(s)[-1]
    s.run(3600, step=5)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (policy_file().replace(b"probation: 2m", b"probation: 30m"), (None, 30 * MINUTE)),
        (policy_file(validate="{cronJob: burn}"), ("burn", 2 * MINUTE)),
    ],
    ids=["a longer probation", "a Job that validates it"],
)
def test_what_is_asked_before_a_node_is_given_back_is_as_the_policy_says_when_it_starts(
    policy: bytes, found: tuple[str | None, timedelta]
) -> None:
    s = waits(policy_file())
    goes_on_by(s, policy)
    r = the_record(s)
    assert (r.validate.cron_job if r.validate else None, r.probation) == found
    assert calls(s) == [("replace", "m-0")]


def test_where_what_it_waits_for_has_ended_and_the_rest_may_have_no_other_rule_takes_over() -> None:
    """Nobody has changed the policy, and one that cannot be read now chooses nothing."""
    nvlink = "  - {name: nvlink, match: {type: GpuNvlink}, remedy: [{do: drain}, {do: replace}]}\n"
    disk = "  - {name: plugin, match: {type: Disk}, remedy: [{do: reboot}]}\n"
    s = cast(f"{HEAD}sources: [npd, conditions]\nlimits: {{cooldown: 0s}}\nrules:\n{nvlink}{disk}".encode())
    pause(s)
    writes(s, COUNT)
    s.pages["node-0"].body = plugin_page(True, 1).replace(b"GpuNvlink", b"Disk")
    s.run(10)
    assert (phase(s), the_record(s).rule) == (Phase.WAITING, "nvlink")
    s.pages["node-0"].error = Unreadable("connection refused")
    renewed(s, 4, COUNT_GOOD)
    assert (phase(s), the_record(s).rule) == (Phase.WAITING, "nvlink")
    s.pages["node-0"].error = None
    s.run(10)
    assert the_record(s).rule == "plugin"
    assert "GpuNvlinkBad was taken back by its own source; DiskBad: rule plugin says reboot" in sentences(s)


def test_a_rule_that_was_only_renamed_is_the_same_rule() -> None:
    s = waits(policy_file())
    cloud = Cloud(s)
    goes_on_by(s, RENAMED)
    assert (the_record(s).rule, calls(s)) == ("neuron-devices", [("replace", "m-0")])
    to_the_end(s, cloud)
    assert phase(s) is Phase.RECOVERED
    judge(s)


def test_a_node_that_has_lost_the_label_of_its_rule_waits_until_it_has_it_again() -> None:
    """Whoever sets it may only be restarted. Handed over, the fault would be a person's for good."""
    s = cast(policy_file(match=f"{MATCH}, nodeLabels: {{pool: gpu}}"), agents=0)
    label(s, "node-0", pool="gpu")
    s.agent("node-0")
    s.run(3)
    pause(s)
    s.fault("node-0")
    s.run(8)
    assert phase(s) is Phase.WAITING
    label(s, "node-0", pool=None)
    s.run(120)
    resume(s)
    s.run(60)
    assert (phase(s), calls(s), marked(s)) == (Phase.WAITING, [], NO_MARKS)
    why = "rule neuron-hardware, by which it waits, is for nodes with pool=gpu"
    assert sentences(s)[-1] == f"{DMA}: waiting: {why}"
    label(s, "node-0", pool="gpu")
    s.run(60)
    assert calls(s) == [("replace", "m-0")]


def test_the_same_policy_in_another_process_writes_nothing_anew() -> None:
    s = waits(policy_file(f"{{do: taint, key: example.com/x, value: a}}, {REMEDY}"))
    before = len([w for w in s.store.history if "noderecoveries" in w.path])
    for node in ("node-0", "node-1"):
        new_process(s, node)
    s.run(60)
    assert len([w for w in s.store.history if "noderecoveries" in w.path]) == before


def test_what_has_started_goes_on_with_the_steps_that_it_began_with() -> None:
    s = cast(policy_file())
    stubborn_pod(s)
    s.fault("node-0")
    s.run(8)
    assert phase(s) is Phase.RECOVERING
    s.policy = read_policy(policy_file("{do: notify}"))
    new_process(s, "node-0")
    remove_pod(s)
    pass_time(s, 60)
    assert calls(s) == [("replace", "m-0")]
