"""Policies, as they are parsed."""

from __future__ import annotations

import functools

from recovery.config.policy_file import parse_policy
from recovery.model import Policy, Rung, Step, Then
from tests.builders.times import MINUTE

RULES = """
  - name: neuron-hardware
    match: {type: NeuronHealth, reason: ["NeuronHasError_*_UNCORRECTABLE_ERROR", NeuronHasError_DMA_ERROR]}
    remedy:
      - {do: drain, within: 10m, then: force}
      - {do: replace, within: 30m}
    probation: 2m
"""
LADDER = (
    Rung(Step.DRAIN, 10 * MINUTE, Then.FORCE),
    Rung(Step.REPLACE, 30 * MINUTE),
)


@functools.cache
def policy(rules: str = RULES, limits: str = "{}", exclude: str = "[]") -> Policy:
    head = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
    text = f"{head}limits: {limits}\nexclude: {exclude}\nrules:{rules if rules.strip() else ' []'}\n"
    return parse_policy(text.encode(), "table").policy
