"""Mistakes in a policy that only show between its fields.

They are looked for in the raw data, so that they are reported together with the mistakes of single fields,
which may be of any type here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from recovery.catalog import reasons_known_to
from recovery.config.policy_fields import comments
from recovery.config.yaml_lines import Document, Mistake, Path, dotted
from recovery.model import GROUP, LONGEST_RULE, Latch, PodMode, Step, asks_for_alerts
from recovery.signals import never_joined

Found = Iterator[tuple[Path, str]]
"""Where, and what is wrong there."""
_ONLY_WITH_WAIT = ("within", "annotate")
_WITHOUT_THEN = [step for step in Step if step is not Step.DRAIN]
_WITHOUT_TAINT = [step for step in Step if step is not Step.TAINT]
_WITHOUT_NOTIFY = [step for step in Step if step is not Step.NOTIFY]
_OF_TAINT = ("key", "value", "effect")


def contradictions(document: Document) -> Iterator[Mistake]:
    """Every contradiction, with its line."""
    policy = as_dict(document.data)
    rules = [as_dict(rule) for rule in as_list(policy.get("rules"))]
    pods = [as_dict(rule) for rule in as_list(as_dict(policy.get("drain")).get("pods"))]
    named = as_list(policy.get("sources"))
    sources = [as_dict(source) for source in named]
    of_rules = (_names, _budgets, _matches, _steps, _witnesses, _urgent, _without_a_node)
    found = (each for look in of_rules for each in look(rules))
    for path, text in (
        *found,
        *_pods(pods),
        *_sources_again(named),
        *_rows_again(sources),
        *_alerts(sources),
        *_comments_in_folded(document),
    ):
        yield Mistake(document.line(path), f"field {dotted(path)}: {text}")


def _names(rules: list[dict[str, Any]]) -> Found:
    """Events and records name a rule, so no two may have one name."""
    for r, name, first in _again(rule.get("name") for rule in rules):
        yield ("rules", r, "name"), f'found "{name}" again; rules[{first}] has that name'


def _budgets(rules: list[dict[str, Any]]) -> Found:
    """A slot of the budget keeps the name of its rule, and room there is short."""
    for r, rule in enumerate(rules):
        name = rule.get("name")
        if "budget" in rule and isinstance(name, str) and len(name) > LONGEST_RULE:
            yield ("rules", r, "name"), f"expected at most {LONGEST_RULE} characters in a rule with a budget"


def _matches(rules: list[dict[str, Any]]) -> Found:
    for r, rule in enumerate(rules):
        match = as_dict(rule.get("match"))
        if "times" not in match:
            continue
        if "type" in match:
            text = "given with times; what times counts has no type"
            yield ("rules", r, "match", "type"), text
        if "reason" not in match:
            yield ("rules", r, "match", "times"), "given without reason; name the reason to count"


def _steps(rules: list[dict[str, Any]]) -> Found:
    for r, rule in enumerate(rules):
        for s, rung in enumerate(as_list(rule.get("remedy"))):
            step = as_dict(rung).get("do")
            if "then" in as_dict(rung) and step in _WITHOUT_THEN:
                yield ("rules", r, "remedy", s, "then"), f"given on {step}; only drain has a then"
            yield from ((("rules", r, "remedy", s, field), text) for field, text in _of_taint(as_dict(rung)))
        yield from (
            (("rules", r, "remedy", s, "key"), text) for s, text in _set_twice(as_list(rule.get("remedy")))
        )


def _of_taint(rung: dict[str, Any]) -> Iterator[tuple[str, str]]:
    step = rung.get("do")
    for field in _OF_TAINT:
        if field in rung and step in _WITHOUT_TAINT:
            yield field, f"given on {step}; only taint has a {field}"
        elif field in rung and step == Step.TAINT and "key" not in rung:
            yield field, f"given without key; without one the step sets only {GROUP}/unhealthy"


def _set_twice(remedy: list[Any]) -> Iterator[tuple[int, str]]:
    """A Node has one taint of each key and effect."""
    first: dict[tuple[str, str], int] = {}
    for s, rung in enumerate(map(as_dict, remedy)):
        key, effect = rung.get("key"), rung.get("effect", "NoSchedule")
        if not (isinstance(key, str) and isinstance(effect, str)):
            continue
        if (before := first.setdefault((key, effect), s)) != s:
            yield s, f'found "{key}" with {effect} again; remedy[{before}] sets that taint'


def _witnesses(rules: list[dict[str, Any]]) -> Found:
    """A witness that has no word for any of the rule's faults would hold all of them for ever."""
    for r, rule in enumerate(rules):
        source = as_dict(rule.get("witness")).get("source")
        known = reasons_known_to(source) if isinstance(source, str) else ()
        wanted = as_dict(rule.get("match")).get("reason", "*")
        patterns = [x for x in (wanted if isinstance(wanted, list) else [wanted]) if isinstance(x, str)]
        if known and not any(fnmatchcase(reason, p) for reason in known for p in patterns):
            text = f'found "{source}", which cannot confirm any fault of this rule; it can confirm'
            yield ("rules", r, "witness", "source"), f"{text} {', '.join(known)}"


def _urgent(rules: list[dict[str, Any]]) -> Found:
    for r, rule in enumerate(rules):
        if rule.get("urgent") is True and "windows" in rule:
            yield (
                ("rules", r, "windows"),
                "given with urgent: true; urgent faults wait for no window",
            )


def _without_a_node(rules: list[dict[str, Any]]) -> Found:
    """A machine that never became a Node has no labels, and nothing is done to it (note 0041)."""
    for r, rule in enumerate(rules):
        match = as_dict(rule.get("match"))
        if match.get("type") != never_joined.TYPE:
            continue
        if "nodeLabels" in match:
            text = f"given with type {never_joined.TYPE}, but a machine that is no Node has no labels"
            yield ("rules", r, "match", "nodeLabels"), text
        for s, rung in enumerate(as_list(rule.get("remedy"))):
            if (step := as_dict(rung).get("do")) in _WITHOUT_NOTIFY:
                text = f'found "{step}"; expected only notify: a machine that never became a Node is only '
                text += "reported, because nothing else is known about it"
                yield ("rules", r, "remedy", s, "do"), text


def _sources_again(sources: list[Any]) -> Found:
    names = (x if isinstance(x, str) else next(iter(as_dict(x)), None) for x in sources)
    for i, name, first in _again(names):
        yield ("sources", i), f'found "{name}" again; sources[{first}] is that source'


def _rows_again(sources: list[dict[str, Any]]) -> Found:
    """Faults and metrics name a row of Prometheus, so no two may have one name."""
    for i, source in enumerate(sources):
        rows = as_list(as_dict(source.get("prometheus")).get("rows"))
        names = (row if isinstance(row, str) else as_dict(row).get("name") for row in rows)
        for r, name, first in _again(names):
            path: Path = ("sources", i, "prometheus", "rows", r)
            where = path if isinstance(rows[r], str) else (*path, "name")
            yield where, f'found "{name}" again; rows[{first}] has that name'


def _again(names: Iterable[Any]) -> Iterator[tuple[int, str, int]]:
    """Each name that was there before: its place, the name, and its first place."""
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if isinstance(name, str) and first.setdefault(name, i) != i:
            yield i, name, first[name]


def _comments_in_folded(document: Document) -> Found:
    """What stands behind a comment would not be asked: an ``unless`` that spares healthy nodes, say."""
    for path, lines in document.folded.items():
        if path[-1:] != ("query",):
            continue
        there = [_bare(line) for line in lines]
        if not all(any(_bare(x) in line for line in there) for x in comments(document.written[path])):
            yield path, "a comment goes on to its end, for YAML makes one line of it: write it after |"


def _bare(text: str) -> str:
    """Without what YAML adds or leaves out where a text is folded or in quotes."""
    return re.sub(r"[\s\\'\"]+", "", text)


def _alerts(sources: list[dict[str, Any]]) -> Found:
    """An alert's series is there only while it fires: there is no good value that could end its fault."""
    for i, source in enumerate(sources):
        for r, row in enumerate(map(as_dict, as_list(as_dict(source.get("prometheus")).get("rows")))):
            if row.get("latch") == Latch.SOURCE and asks_for_alerts(str(row.get("query"))):
                text = f'found "{Latch.SOURCE}" for alerts, whose going away proves nothing'
                text += "; expected boot or proof"
                yield ("sources", i, "prometheus", "rows", r, "latch"), text


def _pods(pods: list[dict[str, Any]]) -> Found:
    for p, rule in enumerate(pods):
        mode = rule.get("mode")
        if mode == PodMode.WAIT and "within" not in rule:
            text = "given without within; say how long these pods may take to finish"
            yield ("drain", "pods", p), text
        if mode in (PodMode.EVICT, PodMode.NEVER):
            for key in _ONLY_WITH_WAIT:
                if key in rule:
                    yield ("drain", "pods", p, key), f"given with mode {mode}; only wait has it"


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
