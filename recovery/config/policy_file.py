"""Reads a RecoveryPolicy (YAML or JSON) and reports every mistake in it at once.

Each mistake is one sentence: ``FILE:LINE: field rules[2].remedy[0].do: found "drian", expected one of notify,
cordon, ...; did you mean "drain"?``. What is valid but probably not meant is a warning. Limits that are left
out have the values of the built-in policy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recovery.catalog import metric_rows
from recovery.config import policy_schema, policy_sentence, yaml_lines
from recovery.config.policy_contradictions import contradictions
from recovery.config.policy_lint import never_matched, warnings_about
from recovery.config.yaml_lines import Document, Mistake, dotted, line_of
from recovery.decide.situation import MOST_SLOTS
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
from recovery.signals import never_joined
from recovery.units import parse_duration

BUILT_IN = "built-in"
FLEET_ONLY, SIDECARS_ONLY = ("prometheus", "loki", "api"), ("npd", "dcgm")
"""Sources that one controller reads for all nodes."""
MOST_OUT = {"sidecar": MOST_SLOTS, "fleet": 200}
"""Nodes that may be out at a time, by RECOVERY_MODE, whatever a budget says. More agents that write one gate
mostly meet conflicts. One leader does not, and the admission policies admit so many slots."""


@dataclass(frozen=True)
class PolicyFile:
    """A policy, and where in its file each field stands (``lines``: ``rules[0].remedy[1].do`` -> 12)."""

    path: str
    policy: Policy
    warnings: tuple[str, ...]
    lines: Mapping[str, int] = field(repr=False)
    model: policy_schema.PolicyModel = field(repr=False)

    def mistake(self, where: str, text: str) -> str:
        """One sentence about a field, with its line or that of the nearest field around it."""
        return Mistake(line_of(where, self.lines), f"field {where}: {text}").at(self.path)


def load_policy(path: str | os.PathLike[str]) -> PolicyFile:
    """Read a file. Raises ``SettingsError`` with every mistake, also when the file cannot be read."""
    name = os.fspath(path)
    try:
        with Path(name).open("rb") as file:
            content = file.read(yaml_lines.LARGEST + 1)
    except OSError as error:
        raise SettingsError([f"{name}: cannot be read: {error.strerror or error}"]) from None
    return parse_policy(content, name)


def load_builtin() -> PolicyFile:
    """The policy that is used without POLICY_FILE."""
    content = resources.files("recovery.catalog").joinpath("default-policy.yaml").read_bytes()
    return parse_policy(content, BUILT_IN)


def parse_policy(content: bytes, path: str) -> PolicyFile:
    """Parse the bytes of a policy, named ``path`` in sentences and records. Raises ``SettingsError``."""
    document = yaml_lines.read(content)
    mistakes = list(document.mistakes)
    model = None
    if document.lines:  # there are none where the file is no YAML
        model, wrong = _validated(document)
        mistakes += [*wrong, *contradictions(document)]
    if mistakes or model is None:
        ordered = sorted(set(mistakes), key=lambda mistake: (mistake.line, mistake.text))
        raise SettingsError([mistake.at(path) for mistake in ordered])
    policy = _policy(model, path)
    lines = {dotted(where): line for where, line in document.lines.items()}
    return PolicyFile(path, policy, tuple(warnings_about(policy, lines, path)), lines, model)


def schema() -> dict[str, Any]:
    """The JSON schema of a policy, for editors and CI."""
    return policy_schema.schema()


def check_for(
    file: PolicyFile, actions: frozenset[Step], provider: str, mode: str, note: str = ""
) -> list[str]:
    """One sentence for each thing in this policy that ``provider`` or ``mode`` cannot do.

    ``note`` is the provider's own hint, where a setting would let it do more.
    """
    mistakes = []
    able = ", ".join(step for step in Step if step in actions and step.provider_action) or "none"
    for r, rule in enumerate(file.policy.rules):
        for s, rung in enumerate(rule.remedy or ()):
            if rung.do.provider_action and rung.do not in actions:
                text = f'found "{rung.do}", which provider {provider} cannot do; its actions are {able}'
                text += f" ({note})" if note else ""
                mistakes.append(file.mistake(f"rules[{r}].remedy[{s}].do", text))
    return mistakes + of_the_mode(file, mode)


def of_the_mode(file: PolicyFile, mode: str) -> list[str]:
    """One sentence for a budget that is too large in ``mode``, and for each source, witness or alert that
    nobody reads in it."""
    budget = file.policy.limits.budget
    most = MOST_OUT.get(mode)
    if most is not None and (budget.count or 0) > most:
        more = "; more needs fleet mode" if mode == "sidecar" else ""
        text = f"found {budget}, expected at most {most} in {mode} mode{more}"
        return [file.mistake("limits.budget", text), *_unread(file, mode)]
    return _unread(file, mode)


def warnings_in(file: PolicyFile, mode: str) -> list[str]:
    """One sentence for each rule that no source has faults for that is read in ``mode``, while the policy has
    one for it: a policy that names no sources is good for both modes."""
    read = [x for x in file.policy.sources if x.name not in _UNREAD.get(mode, {})]
    text = f"in {mode} mode no source is read that has such faults, so the rule never matches"
    return [
        file.mistake(f"rules[{i}]{field}", text)
        for i, rule in enumerate(file.policy.rules)
        if file.path != BUILT_IN and not any(never_matched(rule, file.policy.sources))
        for field, _ in never_matched(rule, read)
    ]


_UNREAD = {
    "sidecar": dict.fromkeys(FLEET_ONLY, "works only in fleet mode (RECOVERY_MODE=fleet)"),
    "fleet": dict.fromkeys(
        SIDECARS_ONLY, "is read on the node itself, and in fleet mode no agent runs there"
    ),
}


def _unread(file: PolicyFile, mode: str) -> list[str]:
    why = _UNREAD.get(mode, {})
    mistakes = [
        file.mistake(f"sources[{i}]", f'found "{s.name}", which {why[s.name]}')
        for i, s in enumerate(file.policy.sources)
        if s.name in why and f"sources[{i}]" in file.lines
    ]
    if mode != "fleet":
        mistakes += [
            file.mistake(
                f"rules[{i}].match.type",
                f'found "{never_joined.TYPE}", which only fleet mode (RECOVERY_MODE=fleet) looks for',
            )
            for i, rule in enumerate(file.policy.rules)
            if rule.match.type == never_joined.TYPE
        ]
    witnesses = [(i, rule.witness) for i, rule in enumerate(file.policy.rules) if mode == "fleet"]
    return mistakes + [
        file.mistake(
            f"rules[{i}].witness",
            f'found "{w.source}", which is read on the node itself; in fleet mode no agent runs there, '
            "so the rule would hold forever; set absent: act, or leave the witness out",
        )
        for i, w in witnesses
        if w is not None and w.absent is Absent.HOLD
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
