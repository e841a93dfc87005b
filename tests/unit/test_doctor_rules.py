"""Which rules can never match what a detector lists, and what is said of them."""

from __future__ import annotations

import pytest

from recovery.console.doctor.rules import Listed, Miss, misses, unmatched
from recovery.model import NodeView, Policy
from tests.builders.nodes import node
from tests.builders.policies import policy

DMA, SRAM = "NeuronHasError_DMA_ERROR", "NeuronHasError_SRAM_UNCORRECTABLE_ERROR"
LISTED = Listed(
    {
        ("NeuronHealth", DMA),
        ("NeuronHealth", "NeuronHasError_HBM_UNCORRECTABLE_ERROR"),
        ("FabricDown", "LinkFlapping"),
        ("", "OOMKilling"),
    }
)
NODE = node(labels={"pool": "trn"})


def one(match: str, *, more: str = "remedy: [{do: replace}]") -> Policy:
    return policy(f"\n  - {{name: mine, match: {match}, {more}}}")


def missed(match: str, node: NodeView | None = NODE) -> list[Miss]:
    return list(misses(one(match), LISTED, node))


@pytest.mark.parametrize(
    "match",
    [
        "{type: NeuronHealth}",
        f"{{type: NeuronHealth, reason: {DMA}}}",
        f"{{reason: {DMA}}}",
        "{reason: NeuronHasError_*}",
        "{type: Neuron*, reason: '*_DMA_ERROR'}",
        "{reason: OOMKilling, times: {count: 3, within: 10m}}",
        "{reason: OOM*, times: {count: 3, within: 10m}}",
        "{}",
    ],
)
def test_a_rule_that_matches_something_listed_is_fine(match: str) -> None:
    assert missed(match) == []


@pytest.mark.parametrize(
    ("match", "why", "remedy"),
    [
        pytest.param(
            f"{{type: {DMA}}}",
            f"{DMA} is a reason of type NeuronHealth",
            f"write match: {{type: NeuronHealth, reason: {DMA}}}",
            id="a reason where its type belongs",
        ),
        pytest.param(
            f"{{type: {DMA}, reason: NeuronHealth}}",
            f"{DMA} is a reason of type NeuronHealth",
            f"write match: {{type: NeuronHealth, reason: {DMA}}}",
            id="both swapped",
        ),
        pytest.param(
            "{reason: NeuronHealth}",
            "NeuronHealth is a type, not a reason",
            "write match: {type: NeuronHealth}",
            id="a type where a reason belongs",
        ),
        pytest.param(
            f"{{type: FabricDown, reason: {DMA}}}",
            f"{DMA} is a reason of type NeuronHealth, not of FabricDown",
            f"write match: {{type: NeuronHealth, reason: {DMA}}}",
            id="another type's reason",
        ),
        pytest.param(
            "{reason: OOMKilling}",
            "OOMKilling is an event that is only counted, so a rule without times never sees it",
            "write match: {reason: OOMKilling, times: {count: 3, within: 10m}}",
            id="an event without times",
        ),
        pytest.param(
            "{reason: LinkFlapping, times: {count: 3, within: 10m}}",
            "LinkFlapping is a condition of type FabricDown, so a rule with times never sees it",
            "write match: {type: FabricDown, reason: LinkFlapping}",
            id="a condition with times",
        ),
        pytest.param(
            "{type: FabrikDown}",
            "it lists no type FabrikDown",
            "did you mean type: FabricDown?",
            id="a type misspelt",
        ),
        pytest.param(
            "{type: FabricDown, reason: LinkFlaping}",
            "it lists no reason LinkFlaping",
            "did you mean reason: LinkFlapping?",
            id="a reason misspelt",
        ),
        pytest.param(
            "{reason: OOMKiling, times: {count: 3, within: 10m}}",
            "it counts no OOMKiling",
            "did you mean reason: OOMKilling?",
            id="an event misspelt",
        ),
    ],
)
def test_a_slip_is_told_with_what_was_meant(match: str, why: str, remedy: str) -> None:
    (miss,) = missed(match)
    assert miss == Miss("mine", f"rule mine can never match here: {why}", remedy, slip=True)


def test_a_known_reason_that_is_not_looked_for_is_no_slip_however_near_another_is() -> None:
    (miss,) = missed(f"{{type: NeuronHealth, reason: {SRAM}}}")
    assert not miss.slip
    assert miss.sentence == f"rule mine: node-problem-detector here does not look for {SRAM} (NeuronHealth)"
    assert f"listed: {DMA}, NeuronHasError_HBM" in miss.remedy


def test_a_wildcard_that_matches_nothing_is_told_and_is_no_slip() -> None:
    (miss,) = missed("{reason: Gpu*}")
    assert not miss.slip
    assert "does not look for Gpu* of any type" in miss.sentence


def test_an_event_that_is_not_counted_is_told_with_those_that_are() -> None:
    (miss,) = missed("{reason: TaskHung, times: {count: 1, within: 10m}}")
    assert not miss.slip
    assert "(listed: OOMKilling)" in miss.remedy


def test_only_the_first_few_of_many_are_shown() -> None:
    many = Listed({("T", f"Reason{i}") for i in range(9)})
    (miss,) = misses(one("{type: T, reason: Elsewhere}"), many, NODE)
    assert miss.remedy.endswith("(listed: Reason0, Reason1, Reason2, Reason3, Reason4, Reason5, ...)")


def test_each_reason_of_a_rule_is_looked_at_by_itself() -> None:
    found = missed(f"{{type: NeuronHealth, reason: [{DMA}, {SRAM}, NeuronHasError_NC_UNCORRECTABLE_ERROR]}}")
    assert [SRAM in miss.sentence for miss in found] == [True, False]


def test_a_rule_for_other_nodes_is_left_alone() -> None:
    match = "{type: GpuCount, nodeLabels: {pool: gpu}}"
    assert missed(match) == []
    assert len(missed(match, node=None)) == 1  # whose node it is is not known


def test_what_the_agent_itself_reports_is_not_looked_for_on_the_page() -> None:
    assert missed("{type: SignalUnknown}") == []


def test_what_no_rule_and_no_catalogue_knows_is_listed() -> None:
    rest = unmatched(one("{type: NeuronHealth}"), LISTED, NODE)
    assert rest == [("FabricDown", "LinkFlapping")]  # OOMKilling is catalogued
