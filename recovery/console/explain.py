"""``node-recovery explain NODE``: what is decided and why, in one sentence, and the facts under it.

The agent's own answer comes first: it has what it sees also with recovery off, when nothing is written. The
record comes second: where the agent does not answer, or where the record was written or deleted after the
agent last read it (while nothing changes, it reads once a minute).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from recovery.catalog import foreign_claim, lookup, polarity
from recovery.config.environment import Mode
from recovery.console.api import connect
from recovery.console.node_facts import Facts, gather
from recovery.console.output import ago, for_programs, phase, say, show, styled
from recovery.console.recoveries import gate_as_json
from recovery.console.report import silent, story
from recovery.console.status import (
    fault_of_record,
    gate_lines,
    record_as_json,
    sentence_of,
    stated,
    unanswered,
)
from recovery.decide.decision import Verb
from recovery.decide.marks import marked, of_no_record
from recovery.kube.kubeconfig import Target
from recovery.model import EXCLUDE, NodeView, Phase, Record, Taint
from recovery.units import hour, parse_moment, span

HISTORY = 6
OLD = timedelta(seconds=30)
"""From then on the sentence says how old it is."""
UNREADABLE = "unreadable"
EXCLUDED_BY = (("by its label", "excluded"), ("the policy excludes", "excluded by the policy"))
"""What the sentence says, and the hint. Neither helps a node that FLEET_SELECTOR leaves out."""
HINTS = {
    "off": "set ENABLE_RECOVERY=true to let it act",
    "drill": "node-recovery inject NODE --remove ends the drill",
    "paused": "node-recovery resume ends the pause",
    "window": "it starts by itself when the window opens; a rule with urgent: true does not wait",
    "blocked": "it starts by itself once nothing blocks; a rule with urgent: true does not wait",
    "boot": "it starts by itself once the kubelet has written to its Node; in fleet mode in a minute at most",
    "excluded": f"kubectl label node NODE {EXCLUDE}- includes it again",
    "excluded by the policy": "exclude in the policy says so: change it there, or the node's labels",
    "handedOver": "node-recovery release NODE returns it to service; a new machine ends this, too",
    "lost": "node-recovery release NODE returns it to service",
    "budget": "a place is free when one of those that are out is proved, handed over or released",
    "budget of 0": "the policy lets none start: a budget in it is 0",
    "brake": "it starts by itself when fewer nodes are sick, or when the policy allows more",
    "claimed": "the other remediator must remove its mark",
    "abandoned": "ENABLE_RECOVERY=true continues it; node-recovery release NODE closes it",
    "abandoned in flight": "ENABLE_RECOVERY=true continues it",
    "vanished": "restart the agent to start a new recovery",
    "vanished in fleet mode": "kubectl rollout restart the controller's Deployment to start a new recovery",
}


def explain(node: str, target: Target, output: str) -> None:
    """Print the sentence and the facts."""
    facts = gather(connect(target), node)
    if for_programs(output):
        show(_as_json(facts), output)
        return
    for line in _lines(facts):
        say(line)


# ---------------------------------------------------------------- the sentence


def sentence(f: Facts) -> str:
    """What is decided about the node, in one sentence."""
    if f.agent is not None and overtaken(f):
        return _since_it_looked(f, f.agent["decision"])
    if f.agent is not None:
        return str(f.agent["decision"].get("reason", ""))
    unsaid = f"its agent cannot be asked ({f.no_answer})"
    if f.record_problem:
        return f"the record cannot be read, and is not touched: {f.record_problem}; {unsaid}"
    if f.record is not None and (f.record.phase.sick or _lost(f)):
        return f"{_since(f.record)}: {sentence_of(f.record, f.now)}; {unsaid}"
    closed = f"{_since(f.record)}: {f.record.sentence}" if f.record else ""
    if f.seen:
        would = "; ".join(f"{x.reason}: {story(x, f.now)}" for x in f.seen)
        was = "was off then" if all(silent(x, f.now) for x in f.seen) else "is off"
        return f"{would}; recovery {was}, says the report; {unsaid}"
    if f.node is None:
        return closed or f"the Node is not there; {unsaid}"
    if f.record is None and marked(f.node):
        return f"{of_no_record(f.name)}; {unsaid}"
    last = f"; last {closed}" if closed else ""
    if problem := _condition(f.node):
        return f"{problem}, and nothing is recorded of it{last}; {unsaid}"
    return f"nothing is going on: no open record, and its Node shows no fault{last}; {unsaid}"


def _lost(f: Facts) -> bool:
    """Whether the record was deleted while it was open, and the machine has not booted since."""
    r = f.record
    return r is not None and r.phase is Phase.LOST and (f.node is None or f.node.boot_id == r.boot_id)


def _how_old(f: Facts) -> str:
    """Of a sentence that waits for something, such as the brake: the counts in it may have changed since."""
    d = f.agent["decision"] if f.agent is not None and not overtaken(f) else {}
    at = _moment(d.get("at"))
    if d.get("verb") not in (Verb.HOLD, Verb.WAIT) or at is None or f.now - at < OLD:
        return ""
    return f" (decided {ago(at, f.now)})"


def overtaken(f: Facts) -> bool:
    """Whether the record was written or deleted after the agent decided."""
    decision = f.agent["decision"] if f.agent is not None else {}
    if "record" not in decision:  # it did not read the record, or wrote it itself and reads it again at once
        return False
    return _as_decided_on(decision["record"]) != _as_it_is(f)


def _as_decided_on(seen: Any) -> object:
    if not isinstance(seen, dict):
        return None
    return UNREADABLE if "problem" in seen else (seen.get("uid"), seen.get("resourceVersion"))


def _as_it_is(f: Facts) -> object:
    if f.record_problem:
        return UNREADABLE
    return (f.record.uid, f.record.resource_version) if f.record else None


def _since_it_looked(f: Facts, decision: dict[str, Any]) -> str:
    again = _moment(decision.get("lookAgainAt"))
    due = again is None or again <= f.now  # the change may be the agent's own write
    unsaid = "its agent is looking again just now" if due else "the agent has not looked since"
    if f.record_problem:
        return f"the record cannot be read, and is not touched: {f.record_problem}; {unsaid}"
    if f.record is None:
        return f"its record was deleted; {unsaid}"
    return f"{_since(f.record)}: {sentence_of(f.record, f.now)}; {unsaid}"


def _since(r: Record) -> str:
    return f"{r.phase.value} since {r.phase_since:%Y-%m-%d %H:%M:%SZ}"


def _condition(node: NodeView) -> str:
    for kind, (state, reason) in node.conditions.items():
        known, row = polarity(kind, named=()), lookup(kind, reason)
        if known is not None and state == known.bad and (row is None or row.this_node):
            return f"its condition {kind} is {state} ({reason})"
    return "" if node.ready else "the Node is not Ready"


def changes(f: Facts) -> str:
    """When that is decided again, or what would change it."""
    d = f.agent["decision"] if f.agent is not None else {}
    again = _moment(d.get("lookAgainAt"))
    hint = _hint(f, d)
    parts = [hint.replace("NODE", f.name)] if hint else []
    if again is not None and again - f.now > timedelta(seconds=5):
        parts.append(f"it is decided again at {again:%H:%M:%SZ} at the latest, in {span(again - f.now)}")
    return "; ".join(parts)


def _hint(f: Facts, decision: dict[str, Any]) -> str:
    if f.agent is None or overtaken(f):
        handed = f.record is not None and f.record.phase is Phase.HANDED_OVER
        return HINTS["handedOver"] if handed else ""
    key = str(decision.get("key", ""))
    if not (f.agent.get("agent") or {}).get("recovery", True):
        return _hint_while_off(f, decision, key)
    if key == "vanished" and (f.agent.get("agent") or {}).get("mode") == Mode.FLEET:
        key = "vanished in fleet mode"
    reason = str(decision.get("reason", ""))
    if key == "excluded":
        key = next((hint for words, hint in EXCLUDED_BY if words in reason), "")
    if key == "brake" and "the brake is on" not in reason:
        return ""  # nobody could be counted: the sentence says what to do
    if key == "budget" and " of 0 may be out" in reason:
        key = "budget of 0"
    return HINTS.get(key, "")


def _hint_while_off(f: Facts, decision: dict[str, Any], key: str) -> str:
    """The switch is named where it would change something: not for what nothing would be done about."""
    if (
        key == "abandoned"
        and f.record is not None
        and f.record.phase is Phase.RECOVERING
        and f.record.in_flight
    ):
        return HINTS["abandoned in flight"]
    if key in ("abandoned", "handedOver"):
        return HINTS[key]
    if "(a drill)" in str(decision.get("reason", "")):
        return HINTS["drill"]
    waits = decision.get("verb") == Verb.WAIT and key != "no-node"
    return HINTS["off"] if key.startswith("would ") or waits else ""


def _moment(text: Any) -> datetime | None:
    try:
        return parse_moment(str(text))
    except ValueError:
        return None


# ---------------------------------------------------------------- the facts


def _as_json(f: Facts) -> dict[str, Any]:
    return {
        "node": f.name,
        "sentence": sentence(f),
        "changes": changes(f) or None,
        "agent": f.agent,
        "agentPod": str(f.pod) if f.pod else None,
        "agentProblem": f.no_answer or None,
        "record": record_as_json(f.record) if f.record else None,
        "recordProblem": f.record_problem or None,
        "gate": gate_as_json(f.gate) if f.gate else None,
        "gateProblem": f.gate_problem or None,
    }


def _lines(f: Facts) -> Iterator[str]:
    yield styled(f"{f.name}: {sentence(f)}{_how_old(f)}", bold=True)
    if what := changes(f):
        yield f"  Next: {what}."
    yield ""
    yield from _agent_lines(f)
    yield from _record_lines(f)
    yield from _node_lines(f)
    yield from gate_lines(f.gate, f.gate_problem, f.now, [f.record] if f.record else [])


def _agent_lines(f: Facts) -> Iterator[str]:
    if f.agent is None:
        yield f"Agent:   {styled('not asked', fg='yellow')}: {f.no_answer}"
        return
    a, d = f.agent.get("agent") or {}, f.agent["decision"]
    state = "on" if a.get("recovery") else "off, it only observes"
    at = _moment(d.get("at"))
    decided = f"; decided {ago(at, f.now)}" if at else ""
    yield f"Agent:   {f.pod}, version {a.get('version')}, recovery {state}, policy {a.get('policy')}{decided}"
    for reading in f.agent.get("readings") or []:
        yield from _reading_lines(reading, f)
    for fault in f.agent.get("faults") or []:
        yield f"Fault:   {_fault(fault, f.now)}"
        for said in fault.get("stated") or []:
            yield f"           {stated(said.get('source'), said.get('device'), said.get('evidence'))}"


def _reading_lines(reading: dict[str, Any], f: Facts) -> Iterator[str]:
    at = _moment(reading.get("at"))
    listed = len(reading.get("listed") or [])
    reasons = "reason" if listed == 1 else "reasons"
    read = ago(at, f.now) if at else "never"
    yield f"Signals: {reading.get('source')}, read {read}, can name {listed} {reasons}"
    for p in reading.get("problems") or []:
        yield f"           {_problem(p, f.now)}"
    for kind, why in (reading.get("unknown") or {}).items():
        since = _moment((reading.get("unknownSince") or {}).get(kind))
        what = "nothing is known" if kind == "*" else f"{kind} is unknown"
        yield styled(f"           {what} since {ago(since, f.now) if since else 'now'}: {why}", fg="yellow")

    for kind, why in (reading.get("silent") or {}).items():
        yield f"           no word{'' if kind == '*' else f' on {kind}'}: {why}"


def _problem(p: dict[str, Any], now: datetime) -> str:
    since = _moment(p.get("since"))
    what = " ".join(filter(None, (p.get("type"), p.get("reason"))))
    if p.get("kind") == "edge":
        times = len(p.get("times") or [])
        return f"{what}: seen {times} time{'s' if times != 1 else ''}"
    marks = [word for word in ("latched", "masked") if p.get(word)]
    extra = f" ({', '.join(marks)})" if marks else ""
    return f"{what} for {span(now - since)}{extra}" if since else f"{what}{extra}"


def _fault(fault: dict[str, Any], now: datetime) -> str:
    what = " ".join(filter(None, (fault.get("type"), fault.get("reason"))))
    rule = f"rule {fault['rule']}" if fault.get("rule") else "no rule"
    due = _moment(fault.get("due"))
    wait = f", tolerated until {hour(due, now)}" if due and due > now else ""
    ends = f"; {fault['ends']}" if fault.get("ends") else ""
    if fault.get("onlyTold"):
        return f"{what}: {rule}{wait}, only reported: {fault['onlyTold']}{ends}"
    return f"{what}: {rule}{wait}, remedy {', '.join(fault.get('remedy') or [])}{ends}"


def _record_lines(f: Facts) -> Iterator[str]:
    if f.record_problem:
        yield f"Record:  {styled('cannot be read', fg='red')}: {f.record_problem}"
        return
    r = f.record
    if r is None:
        yield "Record:  none"
        return
    step = f", step {r.step}" if r.step and r.phase.open else ""
    group = f" in group {r.machine.group}" if r.machine.group else ""
    yield (
        f"Record:  {phase(r.phase.value)} for {span(f.now - r.phase_since)}{step}, attempt {r.attempt}, "
        f"machine {r.machine.id}{group}"
    )
    # A closed record has room for few lines: what it was about may be in none of them.
    shown = {(x.get("type"), x.get("reason")) for x in (f.agent or {}).get("faults") or []}
    for fault in (x for x in r.faults if (x.type, x.reason) not in shown):
        yield f"           for {fault_of_record(fault)}"
    if asked := unanswered(r, f.now):
        yield f"           {styled(asked, fg='yellow')}"
    for line in r.history[-HISTORY:]:
        yield f"           {line.at:%Y-%m-%d %H:%M:%SZ}  {line.event}: {line.sentence}"
    if len(r.history) > HISTORY:
        yield f"           ({len(r.history) - HISTORY} earlier: kubectl get nr {f.name} -o yaml)"


def _node_lines(f: Facts) -> Iterator[str]:
    n = f.node
    if n is None:
        yield "Node:    not there"
        return
    marks = [str(Taint(*each)) for each in n.taints]
    parts = ["Ready" if n.ready else "not Ready", n.provider_id or "no providerID"]
    parts += ["cordoned"] if n.unschedulable else []
    parts += [f"taints {', '.join(marks)}"] if marks else []
    parts += [claim] if (claim := foreign_claim(n)) else []
    yield f"Node:    {'; '.join(parts)}"
