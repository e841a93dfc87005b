"""What the CRDs' schema has no room for must not keep a fault from being recovered (laws 3 and 6)."""

from __future__ import annotations

import pytest
from recovery_testkit.stage import npd_page

from recovery.config.policy_file import parse_policy
from recovery.errors import SettingsError
from recovery.model import Phase
from recovery.signals.names import reason_name
from tests.builders.policies import HEAD, policy_file
from tests.stories.scenes import boot, calls, cast, new_process, patch_node, plugin_page

TREATED = [("replace", "m-0")]
MATCH = "match: {type: NeuronHealth}"
REMEDY = "remedy: [{do: drain}, {do: replace}]"


def stated(type_: str, reason: str) -> bytes:
    labels = f'reason="{reason}",type="{type_}"'
    return f'problem_counter{{reason="{reason}"}} 1\nproblem_gauge{{{labels}}} 1\n'.encode()


@pytest.mark.parametrize(
    ("type_", "reason"), [("PluginType", "R" * 1100), ("P" * 400, "R")], ids=["reason", "type"]
)
def test_a_fault_with_a_long_name_keeps_no_other_fault_of_its_node_from_being_recovered(
    type_: str, reason: str
) -> None:
    s = cast()
    s.pages["node-0"].body = npd_page("DMA_ERROR") + stated(type_, reason)
    s.run(60)
    assert calls(s) == TREATED


def test_a_condition_with_a_long_reason_is_recovered_or_a_persons() -> None:
    s = cast()
    long = {
        "type": "NeuronHealth",
        "status": "True",
        "reason": f"NeuronHasError_{'X' * 1100}_UNCORRECTABLE_ERROR",
    }
    ready = {"type": "Ready", "status": "True", "reason": "Kubelet"}
    patch_node(s, "node-0", {"status": {"conditions": [ready, long]}}, "status", "kubelet")
    s.run(60)
    assert s.record("node-0") is not None


def test_a_long_boot_id_keeps_no_fault_from_being_recovered() -> None:
    s = cast()
    boot(s, "node-0", "b" * 200)
    s.run(5)
    s.fault("node-0")
    s.run(60)
    assert calls(s) == TREATED


def test_two_long_reasons_are_two_faults_and_the_same_one_stays_one() -> None:
    s = cast(policy_file("{do: notify}", match="type: PluginType"))
    first, second = "R" * 1100 + "1", "R" * 1100 + "2"
    s.pages["node-0"].body = npd_page() + stated("PluginType", first)
    s.run(60)
    new_process(s, "node-0")
    s.run(60)
    record = s.record("node-0")
    assert record is not None
    assert [f.reason for f in (*record.faults, *record.acknowledged)][:1] == [reason_name(first)]
    s.pages["node-0"].body += stated("PluginType", second)
    s.run(60)
    record = s.record("node-0")
    assert record is not None
    assert {f.reason for f in (*record.faults, *record.acknowledged)} == {*map(reason_name, (first, second))}


def test_a_long_fault_that_its_source_takes_back_is_withdrawn() -> None:
    """Its name is where it was cleared, too, and it is on the page no more."""
    s = cast(policy_file(match="type: GpuNvlink", after="10m"))
    long = "GpuNvlinkBad" * 100

    def page(bad: bool) -> bytes:
        return npd_page() + plugin_page(bad, int(bad)).replace(b"GpuNvlinkBad", long.encode())

    s.pages["node-0"].body = page(bad=False)
    s.run(10)
    s.pages["node-0"].body = page(bad=True)
    s.run(60)
    record = s.record("node-0")
    assert record is not None
    assert (record.phase, record.faults[0].reason) == (Phase.SUSPECT, reason_name(long))
    s.pages["node-0"].body = page(bad=True).replace(b'"GpuNvlink"} 1', b'"GpuNvlink"} 0')
    s.run(60)
    record = s.record("node-0")
    assert record is not None
    assert record.phase is Phase.WITHDRAWN


def test_a_machine_whose_id_nobody_can_write_down_is_a_persons() -> None:
    s = cast(agents=0)
    s.add_node("node-9", "m-" + "9" * 2000)
    s.agent("node-9")
    s.run(5)
    s.fault("node-9")
    s.run(60)
    record = s.record("node-9")
    assert record is not None
    assert record.phase is Phase.HANDED_OVER
    assert calls(s) == []


@pytest.mark.parametrize(
    "text",
    [
        f"limits: {{cooldown: 0s}}\nrules: [{{name: {'a' * 300}, {MATCH}, {REMEDY}}}]\n",
        f"limits: {{cooldown: 0s}}\nrules: [{{name: a, {MATCH}, "
        f"remedy: [{'{do: notify}, ' * 64}{{do: replace}}]}}]\n",
        "limits: {cooldown: 0s, budgetPer: {"
        + ", ".join(f"example.org/{i}: 1" for i in range(70))
        + f"}}}}\nrules: [{{name: a, {MATCH}, {REMEDY}}}]\n",
    ],
    ids=["a rule's name", "a remedy's steps", "budgets per label"],
)
def test_a_policy_that_is_valid_can_be_carried_out(text: str) -> None:
    policy = f"{HEAD}{text}".encode()
    try:
        parse_policy(policy, "policy.yaml")
    except SettingsError:
        return  # a policy with more than fits is refused by name, which is as good
    s = cast(policy)
    s.fault("node-0")
    s.run(60)
    assert calls(s) == TREATED
