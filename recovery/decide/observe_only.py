"""What would be done if recovery were on? With ENABLE_RECOVERY=false that is only reported (law 7). PURE."""

from __future__ import annotations

from recovery.decide import brakes
from recovery.decide.assessment import Assessment
from recovery.decide.decision import REPEAT, Decision, hold, leave, until, wait
from recovery.decide.diagnosis import healthy, name
from recovery.decide.drill import is_drill
from recovery.decide.idle import still_handed_over
from recovery.decide.imagined import leading
from recovery.decide.orphan import while_off
from recovery.decide.sightings import Would, held, seen, steps_of
from recovery.decide.situation import Situation
from recovery.model import Phase
from recovery.units import span


def observe_only(s: Situation, a: Assessment) -> Decision:
    """Recovery is off: report what would be done, or that a recovery under way is left as it is (law 7)."""
    why = brakes.off(s)
    if s.record is not None and s.record.phase.open:
        return while_off(s.record)
    x = seen(s, a)
    if x is None:
        handed = s.record is not None and s.record.phase is Phase.HANDED_OVER
        return still_handed_over(s, s.record) if s.record and handed else leave(healthy(s))
    d = leading(s, a)
    fault = f"{name(d.fault)} (a drill)" if is_drill(d.fault.message) else name(d.fault)
    if s.node is None:
        return wait(f"{why}: {fault} was seen, and the Node is not there", key="no-node")
    if x.would is Would.REPORT:
        return hold(f"{why}: would only report {fault} ({x.why})", REPEAT, f"tell {d.fault.key}")
    if x.would is Would.TOLERATE:
        return wait(f"{fault}: tolerated for {span(d.after)} by rule {d.rule_name}", until(d.due, s.now))
    if x.would is Would.LEAVE_ALONE:
        return hold(f"{why}: would leave {fault} alone: {x.why}", REPEAT, "would-hold")
    if x.would is Would.HAND_OVER:
        return hold(f"{why}: would hand over {fault}: {x.why}", REPEAT, "would-hand-over")
    when = f"but would wait: {held(x)}" if held(x) else "if budget and brake allow"
    sentence = f"{steps_of(x)}: {fault} (rule {d.rule_name}), {when}; {why}"
    return hold(sentence, REPEAT, f"would {d.fault.key}")
