"""What a policy asks for that the chosen provider, or the mode, cannot do.

It is looked for in the raw data, as contradictions are, so that it is reported together with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recovery.config.policy_contradictions import Found, as_dict, as_list
from recovery.config.yaml_lines import Document, Mistake, dotted
from recovery.decide.situation import MOST_SLOTS
from recovery.model import Absent, Step
from recovery.signals import never_joined
from recovery.units import parse_share

FLEET_ONLY, SIDECARS_ONLY = ("prometheus", "loki", "api"), ("npd", "dcgm")
"""Sources that one controller reads for all nodes."""
MOST_OUT = {"sidecar": MOST_SLOTS, "fleet": 200}
"""Nodes that may be out at a time, by RECOVERY_MODE, whatever a budget says. More agents that write one gate
mostly meet conflicts. One leader does not, and the admission policies admit so many slots."""
UNREAD = {
    "sidecar": dict.fromkeys(FLEET_ONLY, "works only in fleet mode (RECOVERY_MODE=fleet)"),
    "fleet": dict.fromkeys(
        SIDECARS_ONLY, "is read on the node itself, and in fleet mode no agent runs there"
    ),
}
"""Why a source is not read, by RECOVERY_MODE."""


def beyond_provider(document: Document, actions: frozenset[Step], provider: str, note: str) -> list[Mistake]:
    """Each step that ``provider`` does not have. ``note`` is its own hint, where a setting would let it do
    more."""
    able = ", ".join(step for step in Step if step in actions and step.provider_action) or "none"
    lacking = {step.value for step in Step if step.provider_action and step not in actions}
    hint = f" ({note})" if note else ""
    return _mistakes(
        document,
        (
            (
                ("rules", r, "remedy", s, "do"),
                f'found "{step}", which provider {provider} cannot do; its actions are {able}{hint}',
            )
            for r, rule in enumerate(_rules(document))
            for s, rung in enumerate(as_list(rule.get("remedy")))
            if isinstance(step := as_dict(rung).get("do"), str) and step in lacking
        ),
    )


def beyond_mode(document: Document, mode: str) -> list[Mistake]:
    """A budget that is too large in ``mode``, and each source and witness that nobody reads in it."""
    looks = (_budget, _sources, _never_joined, _witnesses)
    return _mistakes(document, (each for look in looks for each in look(document, mode)))


def _budget(document: Document, mode: str) -> Found:
    budget, most = as_dict(as_dict(document.data).get("limits")).get("budget"), MOST_OUT.get(mode)
    try:
        count = parse_share(budget).count or 0
    except ValueError:
        return  # its own mistake
    if most is not None and count > most:
        more = "; more needs fleet mode" if mode == "sidecar" else ""
        yield ("limits", "budget"), f"found {count}, expected at most {most} in {mode} mode{more}"


def _sources(document: Document, mode: str) -> Found:
    why = UNREAD.get(mode, {})
    for i, source in enumerate(as_list(as_dict(document.data).get("sources"))):
        name = source if isinstance(source, str) else next(iter(as_dict(source)), None)
        if isinstance(name, str) and name in why:
            yield ("sources", i), f'found "{name}", which {why[name]}'


def _never_joined(document: Document, mode: str) -> Found:
    if mode == "fleet":
        return
    for r, rule in enumerate(_rules(document)):
        if as_dict(rule.get("match")).get("type") == never_joined.TYPE:
            text = f'found "{never_joined.TYPE}", which only fleet mode (RECOVERY_MODE=fleet) looks for'
            yield ("rules", r, "match", "type"), text


def _witnesses(document: Document, mode: str) -> Found:
    if mode != "fleet":
        return
    for r, rule in enumerate(_rules(document)):
        witness = as_dict(rule.get("witness"))
        if isinstance(witness.get("source"), str) and witness.get("absent", Absent.HOLD) == Absent.HOLD:
            yield (
                ("rules", r, "witness"),
                f'found "{witness["source"]}", which is read on the node itself; in fleet mode no agent runs '
                "there, so the rule would hold forever; set absent: act, or leave the witness out",
            )


def _rules(document: Document) -> list[dict[str, Any]]:
    return [as_dict(rule) for rule in as_list(as_dict(document.data).get("rules"))]


def _mistakes(document: Document, found: Iterator[tuple[tuple[str | int, ...], str]]) -> list[Mistake]:
    return [Mistake(document.line(path), f"field {dotted(path)}: {text}") for path, text in found]
