"""Policies: as people write them, and as they are parsed."""

from __future__ import annotations

import functools

from recovery.config.policy_file import parse_policy
from recovery.model import Policy, Rung, Step, Then
from tests.builders.times import MINUTE

HEAD = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
MATCH = 'type: NeuronHealth, reason: ["NeuronHasError_*_UNCORRECTABLE_ERROR", NeuronHasError_DMA_ERROR]'
REMEDY = "{do: drain, within: 10m, then: force}, {do: replace, within: 30m}"
RULES = f"""
  - name: neuron-hardware
    match: {{{MATCH}}}
    remedy: [{REMEDY}]
    probation: 2m
"""
LADDER = (
    Rung(Step.DRAIN, 10 * MINUTE, Then.FORCE),
    Rung(Step.REPLACE, 30 * MINUTE),
)


@functools.cache
def policy(rules: str = RULES, limits: str = "{}", exclude: str = "[]") -> Policy:
    """Parsed; without ``rules`` it has none."""
    text = f"{HEAD}limits: {limits}\nexclude: {exclude}\nrules:{rules if rules.strip() else ' []'}\n"
    return parse_policy(text.encode(), "table").policy


def policy_file(
    remedy: str = "",
    limits: str = "cooldown: 0s",
    *,
    match: str = MATCH,
    after: str = "0s",
    validate: str = "",
    witness: str = "",
) -> bytes:
    """A file with one rule, for the Neuron device's own faults unless ``match`` says otherwise."""
    rule = f"  - name: neuron-hardware\n    match: {{{match}}}\n    after: {after}\n"
    treated = f"    remedy: [{remedy or REMEDY}]\n    probation: 2m\n"
    proved = f"    validate: {validate}\n" if validate else ""
    agreed = f"    witness: {{{witness}}}\n" if witness else ""
    return f"{HEAD}limits: {{{limits}}}\nrules:\n{rule}{treated}{proved}{agreed}".encode()
