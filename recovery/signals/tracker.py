"""Follows node-problem-detector from page to page. Pure: frozen state in, (state, Reading) out.

What the detector does (kubernetes/node-problem-detector, in ``pkg/``: ``problemmetrics/problem_metrics.go``,
``systemlogmonitor/log_monitor.go``, ``custompluginmonitor/custom_plugin_monitor.go``):

- It counts first and sets the gauge then. It writes 0 before it writes 1, also for a fault that goes on. So a
  single page may show either half of a change.
- A log rule's gauge falls only when another reason of its type takes its place, or at a restart.
- The gauge of a plugin that fails to run ("Unknown") falls to 0, exactly as when it finds nothing. With a
  temporary rule beside it, its counter rises all the same.
- A plugin's healthy reason is listed from the first result of its configuration that is no fault. Until then
  its type looks like a log rule's, and its faults are latched like one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from recovery.model import Problem, Reading
from recovery.quick import replace
from recovery.signals.compare import Comparison
from recovery.signals.memory import SOURCE, State, gone, known_long, listed, problems, settled
from recovery.signals.page import WHOLE, Page, Pair


def observe(
    state: State, page: Page, at: datetime, boot_id: str, fresh_for: timedelta
) -> tuple[State, Reading]:
    """A page was read: ``at`` is the moment the read began, ``fresh_for`` how long it may be relied on.

    ``boot_id`` is the node's, "" where it is not known; another one forgets everything that was latched or
    counted.
    """
    state = _booted(state, boot_id)
    if state.reading is not None and state.steady is page:
        held = _fresh(state, at + fresh_for)
        told = problems(replace(state, held=held)) if held else ()
        reading = replace(state.reading, at=at, problems=told, gone=gone(state, at))
        return replace(state, held=held, reading=reading), reading
    comparison = Comparison(state, page, at, at + fresh_for)
    following = comparison.following()
    reading = comparison.reading(following)
    steady = page if _steady(state, following, reading, at, at + fresh_for) else None
    return replace(following, reading=reading, steady=steady), reading


def missed(
    state: State, why: str, at: datetime, age: timedelta | None, boot_id: str, fresh_for: timedelta
) -> tuple[State, Reading]:
    """No page could be read. ``age`` is that of the last page, None if there was none.

    The last reading stands while its page is fresh; then the source is unknown, and its faults stay listed.
    """
    state = _booted(state, boot_id)
    since = state.missing_since or at
    state = replace(state, missing_since=since, gap=True, zeros={}, said=(), steady=None)
    last = state.reading
    if last is not None and age is not None and age <= fresh_for:
        return state, last
    unknown = {**(last.unknown if last else {}), WHOLE: f"node-problem-detector's page cannot be read: {why}"}
    unknown_since = {key: state.unknown_since.get(key, since) for key in unknown}
    reading = Reading(
        source=SOURCE,
        at=at,
        problems=problems(state),
        unknown=unknown,
        unknown_since=unknown_since,
        listed=listed(state),
        gone=last.gone if last else frozenset(),
    )
    return replace(state, unknown_since=unknown_since), reading


def _steady(state: State, following: State, reading: Reading, at: datetime, until: datetime) -> bool:
    """Whether the same page, read again, would change nothing but the reading's moment, and until when its
    faults may be relied on.

    It must have left the state as it was. Then the passing of time matters only to events, to what is unknown
    and to a restart that has not settled. A detector shows the same page all day, so this saves time.
    """
    if following.edges or reading.unknown or not settled(state, at):
        return False
    if following.uncounted and not known_long(state, at):
        return False
    if any(p.fresh_until != until for p in following.held.values()):
        return False
    as_it_was = replace(state, held=_fresh(state, until))
    return replace(following, reading=state.reading, said=state.said, steady=state.steady) == as_it_was


def _fresh(state: State, until: datetime) -> Mapping[Pair, Problem]:
    """The faults that are held, relied on ``until`` then."""
    return {pair: replace(p, fresh_until=until) for pair, p in state.held.items()}


def _booted(state: State, boot_id: str) -> State:
    """The state of this boot: another boot ID forgets everything, an unknown one ("") nothing."""
    if not boot_id or boot_id == state.boot_id:
        return state
    if state.boot_id:
        return State(boot_id=boot_id)
    return replace(state, boot_id=boot_id)
