"""What ``kubectl get`` prints of our kinds fits a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

CRDS = Path(__file__).parents[2] / "deploy" / "crds"
WIDTH, GAP = 100, 3
WIDEST = {
    "Phase": "recovering",
    "Since": "3h12m",
    "Fault": "NeuronHasError_HBM_UNCORRECTABLE_ERROR",
    "Paused by": "arn:aws:iam::111122223333:user/ada",
    "Until": "2026-11-23T19:00:00Z",
    "Last start": "3h12m",
    "Age": "3h12m",
}
"""What is usual and long in each column."""


def columns(plural: str) -> list[dict[str, Any]]:
    (version,) = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())["spec"]["versions"]
    return list(version["additionalPrinterColumns"])


@pytest.mark.parametrize(
    ("plural", "name"), [("noderecoveries", "ip-10-0-153-201.ec2.internal"), ("recoverygates", "fleet")]
)
def test_the_columns_that_are_always_there_fit_a_terminal(plural: str, name: str) -> None:
    shown = [c["name"] for c in columns(plural) if not c.get("priority")]
    assert len(name) + sum(GAP + max(len(column), len(WIDEST[column])) for column in shown) <= WIDTH


@pytest.mark.parametrize(("plural", "column"), [("noderecoveries", "Sentence"), ("recoverygates", "Reason")])
def test_a_sentence_is_in_the_wide_table_and_last(plural: str, column: str) -> None:
    last = columns(plural)[-1]
    assert (last["name"], last["priority"]) == (column, 1)
