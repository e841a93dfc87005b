"""The policies that ship for NVIDIA GPUs treat what the GPU pack states, and reboot before they replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery import catalog
from recovery.cli import main
from recovery.config.policy_file import load_policy
from recovery.decide.diagnosis import diagnosed
from recovery.model import CatalogueRow, Step
from tests.builders.faults import fault
from tests.builders.situations import situation

DEPLOY = Path(__file__).parents[2] / "deploy"
POLICIES = {name: DEPLOY / name / "policy" / "policy.yaml" for name in ("eks-gpu", "aks-gpu")} | {
    "fleet": DEPLOY / "fleet" / "policy.yaml"
}
PACK = (DEPLOY / "npd-gpu" / "README.md").read_text()


def stated_by_the_pack() -> list[CatalogueRow]:
    """The catalogue's rows of conditions that the pack's README names."""
    return [r for r in catalog.faults() if r.type and f"`{r.type}`" in PACK and f"`{r.reason}`" in PACK]


@pytest.mark.parametrize("name", POLICIES)
def test_each_condition_of_the_pack_is_treated_as_its_row_says(name: str) -> None:
    policy = load_policy(str(POLICIES[name])).policy
    rows = stated_by_the_pack()
    assert len(rows) > 12
    for row in rows:
        told = row.remedy is not None and {r.do for r in row.remedy} == {Step.NOTIFY}
        d = diagnosed(fault(type=row.type, reason=row.reason), situation(policy=policy))
        assert d.treat is not told, (row.type, row.reason, d.rule_name)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("code", ["GpuXid79", "GpuXid48", "GpuXid119", "GpuXid149Local", "SXid12020"])
def test_a_code_that_the_driver_states_of_its_own_device_is_rebooted_before_it_is_replaced(
    name: str, code: str
) -> None:
    policy = load_policy(str(POLICIES[name])).policy
    type_ = "NvSwitch" if code.startswith("SXid") else "GpuXid"
    steps = [r.do for r in diagnosed(fault(type=type_, reason=code), situation(policy=policy)).ladder]
    assert steps.index(Step.REBOOT) < steps.index(Step.REPLACE)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("code", ["GpuXid13", "GpuXid31", "GpuXid45", "GpuXid145"])
def test_an_applications_or_a_victims_code_alone_takes_no_node_out(name: str, code: str) -> None:
    policy = load_policy(str(POLICIES[name])).policy
    d = diagnosed(fault(type="GpuXid", reason=code), situation(policy=policy))
    assert not d.treat


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("**/policy_test.yaml")), ids=lambda path: path.parts[-4])
def test_the_cases_beside_a_policy_pass(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "test", str(path)]) == 0, capsys.readouterr().out


def test_there_are_cases_beside_a_policy() -> None:
    assert list(DEPLOY.glob("**/policy_test.yaml"))
