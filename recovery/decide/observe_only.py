"""What would be done if recovery were on? With ENABLE_RECOVERY=false that is only reported (law 7). PURE."""

from __future__ import annotations

from recovery.decide import brakes
from recovery.decide.assessment import Assessment
from recovery.decide.decision import REPEAT, Decision, hold, leave, until, wait
from recovery.decide.diagnosis import Diagnosis, healthy, name, why_reported
from recovery.decide.idle import still_handed_over
from recovery.decide.situation import Situation
from recovery.model import Phase, Step
from recovery.units import span


def observe_only(s: Situation, a: Assessment) -> Decision:
    """Recovery is off: report what would be done, or that a recovery under way is left as it is (law 7)."""
    why = brakes.off(s)
    if s.record is not None and s.record.phase.open:
        left = "the recovery of this node is left as it is, abandoned by switching recovery off"
        return hold(f"{why}: {left} ({s.record.sentence})", REPEAT, "abandoned")
    if not a.found:
        handed = s.record is not None and s.record.phase is Phase.HANDED_OVER
        return still_handed_over(s, s.record) if s.record and handed else leave(healthy(s))
    d = a.found[0]
    if not d.treat:
        sentence = f"{why}: would only report {name(d.fault)} ({why_reported(d)})"
        return hold(sentence, REPEAT, f"tell {d.fault.key}")
    steps = ", ".join(map(str, d.ladder))
    if s.now < d.due:
        return wait(
            f"{name(d.fault)}: tolerated for {span(d.after)} by rule {d.rule_name}", until(d.due, s.now)
        )
    if reason := brakes.first_reason((("x", brakes.excluded), ("c", brakes.foreign_claim)), s):
        return hold(f"{why}: would leave {name(d.fault)} alone: {reason[1]}", REPEAT, "would-hold")
    if s.machine_problem:
        return hold(f"{why}: would hand over {name(d.fault)}: {s.machine_problem}", REPEAT, "would-hand-over")
    what = f"would have {participle(d)} {s.node_name}: {name(d.fault)} (rule {d.rule_name}: {steps})"
    return hold(f"{what}, if budget and brake allow; {why}", REPEAT, f"would {d.fault.key}")


def participle(d: Diagnosis) -> str:
    """The strongest step of the ladder, as a participle: ``replaced``."""
    words = {
        Step.REPLACE: "replaced",
        Step.REDEPLOY: "redeployed",
        Step.REIMAGE: "reimaged",
        Step.REBOOT: "rebooted",
        Step.DRAIN: "drained",
        Step.CORDON: "cordoned",
        Step.TAINT: "tainted",
    }
    return next(words[x] for x in words if any(r.do is x for r in d.ladder))
