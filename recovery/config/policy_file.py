"""Reads a RecoveryPolicy (YAML or JSON) and reports every mistake in it at once.

Each mistake is one sentence: ``FILE:LINE: field rules[2].remedy[0].do: found "drian", expected one of notify,
cordon, ...; did you mean "drain"?``. What is valid but probably not meant is a warning. Limits that are left
out have the values of the built-in policy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recovery.catalog import metric_rows
from recovery.config import policy_schema, policy_sentence, yaml_lines
from recovery.config.policy_able import UNREAD, beyond_mode, beyond_provider
from recovery.config.policy_contradictions import contradictions
from recovery.config.policy_lint import never_matched, warnings_about
from recovery.config.yaml_lines import Document, Mistake, dotted, line_of
from recovery.errors import SettingsError
from recovery.model import (
    DAYS,
    EVERY_OTHER,
    Absent,
    Blocker,
    ConditionRow,
    DrainPolicy,
    Ends,
    Latch,
    Limits,
    LogChoice,
    Match,
    MetricRow,
    PodChoice,
    PodMode,
    PodRule,
    Pods,
    Policy,
    Rate,
    Retention,
    Rule,
    Rung,
    SourceChoice,
    Step,
    Taint,
    Then,
    UnderWay,
    Validation,
    Window,
    Witness,
)
from recovery.units import parse_duration

BUILT_IN = "built-in"
Check = Callable[[Document], list[Mistake]]
"""What else is wrong with a policy: for a provider, or in a mode."""


@dataclass(frozen=True)
class PolicyFile:
    """A policy, and where in its file each field stands (``lines``: ``rules[0].remedy[1].do`` -> 12)."""

    path: str
    policy: Policy
    warnings: tuple[str, ...]
    lines: Mapping[str, int] = field(repr=False)
    model: policy_schema.PolicyModel = field(repr=False)
    document: Document = field(repr=False)

    def mistake(self, where: str, text: str) -> str:
        """One sentence about a field, with its line or that of the nearest field around it."""
        return Mistake(line_of(where, self.lines), f"field {where}: {text}").at(self.path)


def load_policy(path: str | os.PathLike[str], check: Check | None = None) -> PolicyFile:
    """Read a file. Raises ``SettingsError`` with every mistake, those that ``check`` finds among them; also
    when the file cannot be read."""
    name = os.fspath(path)
    try:
        with Path(name).open("rb") as file:
            content = file.read(yaml_lines.LARGEST + 1)
    except OSError as error:
        raise SettingsError([f"{name}: cannot be read: {error.strerror or error}"]) from None
    return parse_policy(content, name, check)


def load_builtin() -> PolicyFile:
    """The policy that is used without POLICY_FILE."""
    content = resources.files("recovery.catalog").joinpath("default-policy.yaml").read_bytes()
    return parse_policy(content, BUILT_IN)


def parse_policy(content: bytes, path: str, check: Check | None = None) -> PolicyFile:
    """Parse the bytes of a policy, named ``path`` in sentences and records. Raises ``SettingsError``."""
    document = yaml_lines.read(content)
    mistakes = list(document.mistakes)
    model = None
    if document.lines:  # there are none where the file is no YAML
        model, wrong = _validated(document)
        mistakes += [*wrong, *contradictions(document), *(check(document) if check else ())]
    if mistakes or model is None:
        ordered = sorted(set(mistakes), key=lambda mistake: (mistake.line, mistake.text))
        raise SettingsError([mistake.at(path) for mistake in ordered])
    policy = _policy(model, path)
    lines = {dotted(where): line for where, line in document.lines.items()}
    return PolicyFile(path, policy, tuple(warnings_about(policy, lines, path)), lines, model, document)


def schema() -> dict[str, Any]:
    """The JSON schema of a policy, for editors and CI."""
    return policy_schema.schema()


def check_for(
    file: PolicyFile, actions: frozenset[Step], provider: str, mode: str, note: str = ""
) -> list[str]:
    """One sentence for each thing in this policy that ``provider`` or ``mode`` cannot do.

    ``note`` is the provider's own hint, where a setting would let it do more.
    """
    beyond = beyond_provider(file.document, actions, provider, note)
    return [mistake.at(file.path) for mistake in (*beyond, *beyond_mode(file.document, mode))]


def warnings_in(file: PolicyFile, mode: str) -> list[str]:
    """One sentence for each rule that no source has faults for that is read in ``mode``, while the policy has
    one for it: a policy that names no sources is good for both modes."""
    read = [x for x in file.policy.sources if x.name not in UNREAD.get(mode, {})]
    text = f"in {mode} mode no source is read that has such faults, so the rule never matches"
    return [
        file.mistake(f"rules[{i}]{field}", text)
        for i, rule in enumerate(file.policy.rules)
        if file.path != BUILT_IN and not any(never_matched(rule, file.policy.sources))
        for field, _ in never_matched(rule, read)
    ]


def _validated(document: Document) -> tuple[policy_schema.PolicyModel | None, list[Mistake]]:
    try:
        return policy_schema.PolicyModel.model_validate(document.data), []
    except ValidationError as error:
        return None, [policy_sentence.sentence(document, one) for one in error.errors(include_url=False)]


# ---------------------------------------------------------------- from the checked file to the model


def _policy(model: policy_schema.PolicyModel, path: str) -> Policy:
    return Policy(
        limits=_limits(model.limits),
        rules=tuple(_rule(rule) for rule in model.rules),
        exclude=tuple(dict(entry.labels) for entry in model.exclude),
        name=path,
        drain=_drain(model.drain),
        sources=tuple(map(_source, model.sources)),
    )


def _source(model: policy_schema.SourceModel) -> SourceChoice:
    rows = model.conditions.rows if model.conditions else ()
    asked = model.prometheus.rows if model.prometheus else ()
    pod = None
    if one := model.dcgm or model.autopilot:
        known = policy_schema.DCGM_SELECTORS if model.dcgm else policy_schema.AUTOPILOT_SELECTORS
        selectors = known if one.selector is None else (one.selector,)
        pod = PodChoice(tuple(one.namespaces), selectors, one.port)
    return SourceChoice(
        next(iter(model.model_fields_set)),
        tuple(ConditionRow(row.type, row.bad, row.takes_back) for row in rows),
        pod,
        model.autopilot.pcie_bandwidth if model.autopilot else 0.0,
        tuple(row for each in asked for row in _metric_rows(each)),
        LogChoice(model.loki.selector, model.loki.node) if model.loki else None,
    )


def exporter(policy: Policy) -> PodChoice:
    """Which pod of a node is dcgm-exporter's: as the policy's source says, else as that would by itself."""
    chosen = policy.source("dcgm") or _source(policy_schema.SourceModel(dcgm=policy_schema.DcgmModel()))
    assert chosen.pod is not None
    return chosen.pod


def _metric_rows(row: policy_schema.MetricModel | str) -> tuple[MetricRow, ...]:
    if isinstance(row, str):
        return metric_rows()[row]
    ends = Ends(Latch(row.latch) if row.latch else None, row.hold)
    return (MetricRow(row.name, row.query, row.node, row.bad, row.type, row.reason, ends),)


def _drain(model: policy_schema.DrainModel) -> DrainPolicy:
    return DrainPolicy(
        force=model.force,
        delete_emptydir_data=model.delete_emptydir_data,
        evictions_per_second=model.evictions_per_second,
        pods=tuple(
            PodRule(
                mode=PodMode(rule.mode),
                namespaces=tuple(rule.match.namespaces),
                labels=dict(rule.match.labels),
                within=rule.within or timedelta(0),
                annotate=dict(rule.annotate),
            )
            for rule in model.pods
        ),
    )


def _limits(model: policy_schema.LimitsModel) -> Limits:
    brake_per = model.brake_per
    if brake_per is None:  # many healthy CPU nodes must not hide a sick GPU pool
        brake_per = {policy_schema.BRAKED_BY_DEFAULT: {EVERY_OTHER: model.brake}}
    return Limits(
        budget=model.budget,
        budget_per=dict(model.budget_per),
        brake=model.brake,
        brake_per=dict(brake_per),
        cooldown=model.cooldown,
        attempts=Rate(model.attempts.max, model.attempts.within),
        per_group=Rate(model.per_group.max, model.per_group.within),
        same_incident=model.same_incident,
        records=Retention(model.records.keep, model.records.max),
        windows=_windows(model.windows),
        blockers=tuple(map(_blocker, model.blockers)),
        under_way=UnderWay(model.under_way),
        population=dict(model.population.labels) if model.population else {},
    )


def _windows(models: list[policy_schema.WindowModel]) -> tuple[Window, ...]:
    return tuple(Window(frozenset(map(DAYS.index, x.days)), x.opens, x.closes, x.time_zone) for x in models)


def _blocker(model: policy_schema.BlockerModel) -> Blocker:
    if model.pods is not None:
        return Blocker(pods=Pods(tuple(model.pods.namespaces), dict(model.pods.labels)))
    return Blocker(alerts=tuple(model.alerts or ()))


def _rule(model: policy_schema.RuleModel) -> Rule:
    times = model.match.times
    match = Match(
        type=model.match.type,
        reasons=tuple(model.match.reason),
        node_labels=dict(model.match.node_labels),
        times=Rate(times.count, times.within) if times else None,
        source=model.match.source or "",
    )
    remedy = None if model.remedy is None else tuple(_rung(rung) for rung in model.remedy)
    check = model.validation
    validate = Validation(check.cron_job, check.within) if check else None
    latch = Latch(model.latch) if model.latch else None
    second = model.witness
    witness = Witness(second.source, Absent(second.absent)) if second else None
    return Rule(
        name=model.name,
        match=match,
        after=model.tolerated,
        remedy=remedy,
        probation=model.probation,
        validate=validate,
        hold=model.hold,
        latch=latch,
        witness=witness,
        budget=model.budget,
        windows=None if model.windows is None else _windows(model.windows),
        urgent=model.urgent,
    )


def _rung(model: policy_schema.RungModel) -> Rung:
    step = Step(model.do)
    within = model.within or parse_duration(policy_schema.WITHIN[step])
    taint = Taint(model.key, model.value, model.effect) if model.key else None
    return Rung(step, within, Then(model.then), taint)
