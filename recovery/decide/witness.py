"""Does a second witness agree that the machine is broken? PURE.

Any pod has words of its own in the kernel's log (docs/decisions/0024). So a rule may name a witness
that reads something else. Until that agrees, nothing is done to the node, not even a cordon.
"""

from __future__ import annotations

from recovery.catalog import spoken_of
from recovery.decide.diagnosis import rule_of, speaks_of
from recovery.decide.situation import Role, Situation, WitnessAsked
from recovery.model import Absent, Record, Says, Step, Witness


def asked_about(s: Situation, r: Record) -> WitnessAsked | None:
    """What the second witness is to be asked; None where the rule wants none, or it knows nothing of it."""
    witness, reasons = questioned(s, r) or (None, ())
    known = tuple(x for x in reasons if witness and spoken_of(witness.source, x))
    return WitnessAsked(witness.source, known) if witness and known else None


def questioned(s: Situation, r: Record) -> tuple[Witness, tuple[str, ...]] | None:
    """The witness of the rule that treats ``r``, and the faults of that rule; None where it names none.

    Only the node's own agent can ask. A concluder goes on with what was begun, and so was confirmed.
    """
    rule = rule_of(s, r)
    if rule is None or rule.witness is None or s.role is not Role.OWNER:
        return None
    if not any(x.do is Step.DRAIN or x.do.provider_action for x in r.ladder):
        return None
    reasons = tuple(dict.fromkeys(f.reason for f in r.faults if speaks_of(rule, f)))
    return (rule.witness, reasons) if reasons else None  # else the rule was edited since


def unconfirmed(s: Situation, r: Record) -> str | None:
    """Why nothing destructive may be done yet; None where the witness agrees, or is not asked."""
    asked = questioned(s, r)
    if asked is None:
        return None
    witness, reasons = asked
    unknown = [x for x in reasons if not spoken_of(witness.source, x)]
    if unknown and witness.absent is Absent.ACT:
        return None
    if len(unknown) == len(reasons):
        return f"{witness.source} cannot confirm {', '.join(unknown)}, and rule {r.rule} waits for that"
    t = s.witness_says
    if t is None:
        return f"{witness.source} has not been asked yet"
    if t.says is Says.AGREES or (t.says is Says.ABSENT and witness.absent is Absent.ACT):
        return None
    if t.says is Says.DISAGREES:
        return f"{r.faults[0].source} and {witness.source} disagree: {t.sentence}"
    return f"{witness.source} cannot confirm it: {t.sentence}"


def both(s: Situation, r: Record) -> str:
    """That two witnesses agree, for a sentence that goes on after it; else empty."""
    asked = questioned(s, r)
    if asked is None or s.witness_says is None or s.witness_says.says is not Says.AGREES:
        return ""
    return f"; {r.faults[0].source} and {asked[0].source} agree: {s.witness_says.sentence}"
