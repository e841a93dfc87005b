"""Reads cases for a policy: what it should do about which faults, of which node, at which moment.

Mistakes are told as those of a policy are: each with file, line, field, what was found and what was expected.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from recovery.config import policy_sentence, yaml_lines
from recovery.config.policy_fields import (
    Action,
    Count,
    Duration,
    Flag,
    Given,
    Labels,
    Natural,
    SourceName,
    Text,
    WitnessAnswer,
    at_least_one,
)
from recovery.config.policy_file import PolicyFile, load_policy
from recovery.config.policy_lint import COUNTING
from recovery.config.policy_schema import Strict
from recovery.errors import SettingsError
from recovery.model import Says
from recovery.provider.protocol import provider_names
from recovery.units import parse_moment

YEARS = (1970, 2999)
"""Beyond those there may be no moment before or after one."""
BEGINS = datetime(2026, 1, 5, 12, tzinfo=UTC)
"""A Monday at noon."""


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        at = parse_moment(value if isinstance(value, str) else "")
    except ValueError:
        what = 'a moment with its time zone, such as "2026-01-05T12:00:00Z"'
        raise PydanticCustomError("expected", "{what}", {"what": what}) from None
    if not YEARS[0] <= at.year <= YEARS[1]:
        what = f"a moment of the years {YEARS[0]} to {YEARS[1]}"
        raise PydanticCustomError("expected", "{what}", {"what": what})
    return at


def _provider(value: Any) -> str:
    names = provider_names()
    if value in names:
        return str(value)
    raise PydanticCustomError("choice", "", {"choices": list(names)})


ProviderName = Annotated[str, BeforeValidator(_provider)]


class NodeModel(Strict):
    """The node with the faults."""

    name: Text = "node-1"
    labels: Labels = Field(default={})


class FleetModel(Strict):
    """The other nodes, as limits count them. They have the labels of the case's node. ``by``: the rule that
    they are out by; left out, they count in the budget of every rule."""

    nodes: Count = 100
    sick: Natural = 1
    out: Natural = 0
    by: Annotated[Text | None, Given] = Field(default=None, validate_default=False)


class FaultModel(Strict):
    """A fault. Moments count from the beginning of the case."""

    source: SourceName = "npd"
    type: Annotated[Text | None, Given] = Field(default=None, validate_default=False)
    reason: Text
    since: Duration = timedelta(0)
    until: Annotated[Duration | None, Given] = Field(default=None, validate_default=False)
    times: list[Duration] = Field(default=[])

    @model_validator(mode="after")
    def _level_or_edge(self) -> FaultModel:
        if (self.type is None) is not bool(self.times):
            what = "either a type, or the times of something that is only counted"
            raise PydanticCustomError("expected", "{what}", {"what": what})
        if self.times and self.source not in COUNTING:
            what = f"times only of a source that counts: {', '.join(COUNTING)}"
            raise PydanticCustomError("expected", "{what}", {"what": what})
        return self


class PodModel(Strict):
    """A pod that runs on the node."""

    namespace: Text = "default"
    labels: Labels = Field(default={})


class ExpectModel(Strict):
    """What should come of it. What is left out is not compared."""

    rule: Annotated[Text | None, Given] = Field(default=None, validate_default=False)
    steps: Annotated[list[Action] | None, Given] = Field(default=None, validate_default=False)
    held: Annotated[Text | None, Given] = Field(default=None, validate_default=False)
    starts: Annotated[Flag | None, Given] = Field(default=None, validate_default=False)

    @model_validator(mode="after")
    def _something(self) -> ExpectModel:
        if not self.model_fields_set:
            what = "at least one of rule, steps, held, starts"
            raise PydanticCustomError("expected", "{what}", {"what": what})
        return self


class CaseModel(Strict):
    """One case."""

    name: Text
    node: NodeModel = Field(default_factory=NodeModel)
    fleet: FleetModel = Field(default_factory=FleetModel)
    provider: Annotated[ProviderName | None, Given] = Field(default=None, validate_default=False)
    witness: WitnessAnswer = Field(default=Says.AGREES.value)
    begins: Annotated[datetime, BeforeValidator(_moment)] = BEGINS
    faults: list[FaultModel] = Field(default=[])
    alerts: list[Text] = Field(default=[])
    pods: list[PodModel] = Field(default=[])
    at: Duration = timedelta(0)
    expect: ExpectModel

    @property
    def now(self) -> datetime:
        """The moment that the case asks about."""
        return self.begins + self.at

    def moments(self, afters: Collection[timedelta]) -> list[datetime]:
        """All at which something changes, up to ``now``. ``afters``: how long rules tolerate a fault."""
        ends = (f.until for f in self.faults if f.until is not None)
        begins = {at for f in self.faults for at in (f.since, *f.times)}
        due = {at + after for at in begins for after in afters}
        return sorted(self.begins + at for at in {*begins, *ends, *due, self.at} if at <= self.at)


class CasesModel(Strict):
    """A file of cases beside a policy."""

    policy: Text
    provider: Annotated[ProviderName | None, Given] = Field(default=None, validate_default=False)
    tests: Annotated[list[CaseModel], at_least_one("at least one case")]


_MODELS: dict[str, type[Strict]] = {
    "": CasesModel,
    "tests": CaseModel,
    "node": NodeModel,
    "fleet": FleetModel,
    "faults": FaultModel,
    "pods": PodModel,
    "expect": ExpectModel,
}


@dataclass(frozen=True)
class Cases:
    """The cases of a file, and the policy that they are about."""

    policy: PolicyFile
    provider: str | None
    tests: tuple[CaseModel, ...]


def load_cases(path: str) -> Cases:
    """Read a file of cases, and its policy. Raises ``SettingsError`` with every mistake of the first that has
    any."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(yaml_lines.LARGEST + 1)
    except OSError as error:
        raise SettingsError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    document = yaml_lines.read(content)
    if isinstance(document.data, dict) and "rules" in document.data:
        raise SettingsError(
            [f"{path}: found a policy, expected a file of cases that names it (`policy: FILE`)"]
        )
    mistakes = list(document.mistakes)
    model = None
    if document.lines:
        try:
            model = CasesModel.model_validate(document.data)
        except ValidationError as error:
            wrong = error.errors(include_url=False)
            mistakes += [policy_sentence.sentence(document, one, _MODELS) for one in wrong]
    if mistakes or model is None:
        ordered = sorted(set(mistakes), key=lambda mistake: (mistake.line, mistake.text))
        raise SettingsError([mistake.at(path) for mistake in ordered])
    policy = load_policy(os.path.normpath(Path(path).parent / model.policy))
    return Cases(policy, model.provider, tuple(model.tests))
