"""One question to AWS for all nodes that wait at the same time, also where AWS is slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from recovery_testkit.clock import FakeClock

from providers.aws import lookup
from providers.aws.session import AwsSession
from providers.aws.shared import AGE, Shared
from recovery.model import Machine

MACHINES = tuple(Machine("aws", f"i-{i}", f"aws:///us-west-2a/i-{i}", "group") for i in range(5))
WHERE = "us-west-2"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> tuple[Shared, list[str]]:
    """What is shared where each answer takes longer than it is good for; and what AWS was asked."""
    clock, found = FakeClock(), list[str]()

    def slow(what: str, answer: Callable[[], Any]) -> Callable[..., Any]:
        def ask(*_: object) -> Any:
            found.append(what)
            clock.advance(AGE + 1)
            return answer()

        return ask

    monkeypatch.setattr(lookup, "instances", slow("instances", dict))
    monkeypatch.setattr(lookup, "group", slow("group", lambda: None))
    return Shared(cast("AwsSession", None), clock), found


def test_an_answer_that_took_long_serves_the_other_instances_all_the_same(
    asked: tuple[Shared, list[str]],
) -> None:
    shared, found = asked
    for machine in MACHINES:
        shared.instance(machine, WHERE)
    found.clear()
    for machine in MACHINES:
        shared.instance(machine, WHERE)
    assert found == ["instances"]


def test_so_does_one_about_their_group(asked: tuple[Shared, list[str]]) -> None:
    shared, found = asked
    for machine in MACHINES:
        shared.group(machine, "group", WHERE)
    assert found == ["group"]
    shared.group(MACHINES[0], "group", WHERE)
    assert found == ["group", "group"], "one that asks again gets a new one"
