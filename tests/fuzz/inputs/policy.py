"""A policy file."""

from __future__ import annotations

from contextlib import suppress
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any

import yaml

from recovery.config.policy_file import check_for, parse_policy
from recovery.errors import SettingsError
from tests.builders.policies import policy_file
from tests.fuzz.engine import Input
from tests.fuzz.mutate import NUMBERS, TEXTS, rubbish

WEIGHT = 0.7
ROOT = Path(__file__).parents[3]
WORDS = (
    b"rules", b"limits", b"match", b"remedy", b"drain", b"replace", b"do: ", b"within: ", b"then: force", b"after: 10m", b"30%", b"101%",
    b"reason: [", b"*", b"a[", b"exclude", b"pods", b"times: {count: 3, within: 10m}", b"latch: ", b"validate: ", b"hold: ", b"- ", b"  ",
)  # fmt: skip
FIELDS = (
    "apiVersion", "kind", "limits", "budget", "budgetPer", "brake", "brakePer", "cooldown", "attempts", "max", "within", "perGroup",
    "exclude", "labels", "rules", "name", "match", "type", "reason", "nodeLabels", "source", "times", "count", "after", "remedy", "do",
    "then", "probation", "validate", "cronJob", "hold", "latch", "drain", "force", "pods", "mode", "namespaces", "annotate", "records",
)  # fmt: skip


def feed(content: bytes) -> None:
    with suppress(SettingsError):
        check_for(parse_policy(content, "policy.yaml"), frozenset(), "aws", "sidecar")


def made(rng: Random) -> bytes:
    """A whole policy with something odd in some of its fields."""
    rule: dict[str, Any] = {
        "name": "r",
        "match": {"type": "T", "reason": rng.choice(("R", ["A*", "B"], _odd(rng)))},
        "after": rng.choice(("0s", "1h30m", _odd(rng))),
        "remedy": [{"do": rng.choice(("drain", "replace", "cordon", "notify"))}, _field(rng)],
    }
    for _ in range(rng.randint(0, 3)):
        rule.update(_field(rng))
    whole = {
        "apiVersion": "noderecovery.dev/v1alpha1",
        "kind": "RecoveryPolicy",
        "limits": _field(rng),
        "rules": [rule],
    }
    with suppress(yaml.YAMLError, UnicodeError):
        return yaml.safe_dump({**whole, **_field(rng)}, allow_unicode=True).encode()
    return b"rules: []"


def _field(rng: Random) -> dict[str, Any]:
    return {rng.choice(FIELDS): _odd(rng)}


def _odd(rng: Random) -> Any:
    if rng.random() < 0.5:
        return rng.choice((*TEXTS, "10m", "30%", "0%", "101%", "force", "drain", "1e9h", *NUMBERS))
    return {rng.choice(FIELDS): rubbish(rng)} if rng.random() < 0.5 else rubbish(rng)


def make() -> Input:
    builtin = resources.files("recovery.catalog").joinpath("default-policy.yaml").read_bytes()
    shipped = [path.read_bytes() for path in sorted((ROOT / "deploy").rglob("policy.yaml"))]
    anchors = b"a: &a [x, x]\nb: &b [*a, *a]\nrules: [*b]\n"
    bombs = b"a0: &a0 [x]\n" + b"".join(
        b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 30)
    )
    deep = [b"[" * 5000, b"{a: " * 5000, b"- " * 5000, b'{"a":' * 3000, b"rules: " + b"[" * 900 + b"]" * 900]
    large = [b"#" * (1024 * 1024 + 1), b"- x\n" * 15_000, b'"' + b"\\x41" * 60_000 + b'"']
    examples = [
        builtin,
        *shipped,
        policy_file(),
        policy_file("{do: cordon}", after="10m"),
        anchors,
        bombs,
        *deep,
        *large,
    ]
    modules = ("recovery.config.yaml_lines", "recovery.config.policy_file", "recovery.config.policy_fields")
    more = (
        "recovery.config.policy_contradictions",
        "recovery.config.policy_lint",
        "recovery.config.policy_sentence",
    )
    return Input("policy", feed, examples, made, WORDS, WEIGHT, modules + more)
