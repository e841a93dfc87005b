"""What is kept of faults that are seen while recovery is off."""

from __future__ import annotations

import contextlib
import json
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from recovery.decide.sightings import News, Report, Sighting, Would, folded, least_needed, trimmed, what
from recovery.errors import Undecodable
from recovery.model import Reading, Step
from recovery.store.sightings import MOST_BYTES, decode, encode, fitted
from tests.builders.faults import DMA, HANG, reading
from tests.builders.rubbish import RUBBISH, paths, with_rubbish
from tests.builders.sightings import sighting
from tests.builders.times import HOUR, MINUTE, NOW

EMPTY = Report(since=NOW)


FULL = Report(
    since=NOW,
    sightings=(
        sighting(),
        sighting(
            node="node-1", why="kured holds it", would=Would.LEAVE_ALONE, ended=NOW + HOUR, how="so", boot=""
        ),
    ),
    dropped=3,
    dropped_until=NOW,
    full_since=NOW,
)


def there(x: Sighting | None = None, *, after: timedelta = MINUTE, **changes: Any) -> News:
    """The fault is there: ``after`` its first moment."""
    x = replace(x or sighting(), seen=NOW + after)
    plain = News("node-0", x.seen, x, frozenset({x.key}), (reading(),), "m-0", "boot-1")
    return replace(plain, **changes)


def gone(after: timedelta = MINUTE, *, said: Reading | None = None, **changes: Any) -> News:
    """The fault is not there, by what its source says now."""
    plain = News("node-0", NOW + after, readings=(said or reading(),), machine="m-0", boot="boot-1")
    return replace(plain, **changes)


ONE = folded(EMPTY, there())

# ---------------------------------------------------------------- folding


def test_news_that_are_known_change_nothing() -> None:
    assert folded(ONE, there()) is ONE
    assert folded(ONE, there(after=59 * MINUTE)) is ONE


def test_once_an_hour_it_is_seen_again() -> None:
    later = folded(ONE, there(after=61 * MINUTE))
    assert later.sightings[0].seen == NOW + 61 * MINUTE
    assert later.sightings[0].times == 1


@pytest.mark.parametrize(
    ("news", "how"),
    [
        (gone(said=reading(cleared=frozenset({("NeuronHealth", DMA)}))), "its source took it back"),
        (gone(), "it is not stated any more"),
        (gone(boot="boot-2"), "the machine has booted"),
        (gone(machine="m-9"), "another machine has its name"),
        (gone(gone=True), "its Node is gone"),
        (gone(on=True), "recovery was switched on"),
    ],
)
def test_how_it_ended_is_said(news: News, how: str) -> None:
    first = folded(ONE, news).sightings[0]
    assert (first.ended, first.how) == (news.at, how)


@pytest.mark.parametrize(
    "said",
    [
        reading(unknown={"*": "no answer"}),
        reading(unknown={"NeuronHealth": "it contradicts itself"}),
        reading(silent={"NeuronHealth": "not yet said"}),
        replace(reading(), source="conditions"),
    ],
)
def test_unknown_is_no_end(said: Reading) -> None:
    assert folded(ONE, gone(said=said)) is ONE


def test_another_nodes_news_touch_nothing_of_this_one() -> None:
    assert folded(ONE, gone(node="node-1")) is ONE


def test_back_within_the_hour_it_is_the_same_once_more_and_keeps_its_first_moments() -> None:
    over = folded(ONE, gone(10 * MINUTE))
    back = folded(over, there(after=30 * MINUTE)).sightings
    assert [(x.times, x.since, x.due, x.ended) for x in back] == [(2, NOW, NOW, None)]
    later = folded(over, there(after=2 * HOUR)).sightings
    assert [x.times for x in later] == [1, 1]


def test_a_policy_that_changed_is_what_would_be_done_from_then_on() -> None:
    other = sighting(rule="other", steps=(Step.CORDON,))
    (x,) = folded(ONE, there(other)).sightings
    assert (x.rule, x.steps, x.since, x.times) == ("other", (Step.CORDON,), NOW, 1)


def test_a_second_fault_is_a_line_of_its_own_and_does_not_end_the_first() -> None:
    hang = sighting(reason=HANG)
    both = there(hang, present=frozenset({hang.key, sighting().key}))
    assert [(x.reason, x.ended) for x in folded(ONE, both).sightings] == [(DMA, None), (HANG, None)]


# ---------------------------------------------------------------- the sentence


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (sighting(), "would drain node-0; then reboot; then replace"),
        (sighting(steps=(Step.CORDON,)), "would cordon node-0"),
        (
            sighting(steps=(Step.CORDON,), why="pod a/b runs on it; a drill"),
            "would cordon node-0, but would wait: pod a/b runs on it",
        ),
        (sighting(steps=(Step.CORDON,), why="a drill"), "would cordon node-0"),
        (
            sighting(would=Would.TOLERATE),
            "would drain node-0, but not yet: rule neuron-hardware tolerates it for a while",
        ),
        (
            sighting(would=Would.LEAVE_ALONE, why="kured holds it"),
            "would leave it alone: kured holds it",
        ),
        (sighting(would=Would.HAND_OVER, why="nobody's"), "would hand it over to a person: nobody's"),
        (
            sighting(would=Would.REPORT, steps=(), why="rule x: notify"),
            "would only report it: rule x: notify",
        ),
    ],
)
def test_the_first_step_comes_first(x: Sighting, sentence: str) -> None:
    assert what(x) == sentence


# ---------------------------------------------------------------- small


def many(count: int, **changes: Any) -> tuple[Sighting, ...]:
    return tuple(
        sighting(
            node=f"ip-10-0-{i // 250}-{i % 250}.eu-central-1.compute.internal",
            since=NOW + i * MINUTE,
            **changes,
        )
        for i in range(count)
    )


def test_there_is_room_for_two_hundred() -> None:
    report = replace(EMPTY, sightings=many(200, machine="i-0123456789abcdef0", boot="b" * 36))
    assert fitted(report, NOW) == report


def test_what_has_ended_goes_first_and_is_counted() -> None:
    over = many(300, ended=NOW + HOUR, how="its source took it back")
    report = replace(EMPTY, sightings=(*over, *many(100, reason=HANG)))
    kept = fitted(report, NOW)
    assert sum(x.ended is None for x in kept.sightings) == 100
    assert kept.dropped == len(report.sightings) - len(kept.sightings) > 0
    assert (kept.dropped_until, kept.full_since) == (NOW + HOUR, None)
    assert len(json.dumps(encode(kept)["status"], separators=(",", ":"))) <= MOST_BYTES


def test_agents_that_find_no_room_for_theirs_write_nothing() -> None:
    full = fitted(replace(EMPTY, sightings=many(1000)), NOW)
    assert full.full_since == NOW
    late = sighting(node="the-latest", since=NOW + 9000 * MINUTE)
    assert fitted(replace(full, sightings=(*full.sightings, late)), NOW + HOUR) == full
    shorter = replace(full, sightings=full.sightings[:10])
    assert fitted(shorter, NOW + HOUR).full_since is None


def test_what_would_only_be_reported_gives_way_to_what_would_be_recovered() -> None:
    told, treated = sighting(reason=HANG, would=Would.REPORT), sighting(since=NOW + HOUR)
    assert least_needed(replace(EMPTY, sightings=(treated, told))) == [told, treated]


def test_what_is_old_is_forgotten_and_what_nobody_looks_at_any_more() -> None:
    over = sighting(ended=NOW + HOUR)
    report = replace(EMPTY, sightings=(over, sighting(node="node-1")))
    assert trimmed(report, NOW + 24 * HOUR, 30 * 24 * HOUR) == report
    assert trimmed(report, NOW + 24 * HOUR, 24 * HOUR).sightings == (over,)


# ---------------------------------------------------------------- stored


def test_the_report_of_these_tests_fills_every_field() -> None:
    assert all(getattr(FULL, f.name) for f in fields(Report))
    assert all(any(getattr(x, f.name) for x in FULL.sightings) for f in fields(Sighting))


@pytest.mark.parametrize("report", [FULL, EMPTY])
def test_what_is_written_is_read(report: Report) -> None:
    assert decode(encode(report)) == report


def test_what_others_put_on_it_stays() -> None:
    was = encode(EMPTY) | {"metadata": {"name": "fleet", "labels": {"team": "a"}, "resourceVersion": "7"}}
    assert encode(FULL, was)["metadata"] == was["metadata"]


@pytest.mark.parametrize("path", list(paths(encode(FULL)["status"])), ids=str)
def test_rubbish_is_undecodable_or_read_and_never_a_bug(path: Any) -> None:
    for rubbish in RUBBISH:
        obj = encode(FULL)
        obj["status"] = with_rubbish(obj["status"], path, rubbish)
        with contextlib.suppress(Undecodable):
            decode(obj)


def test_one_of_a_later_version_is_not_guessed_at() -> None:
    obj = encode(EMPTY)
    obj["status"]["version"] = 2
    with pytest.raises(Undecodable, match="version 2; this program understands version 1"):
        decode(obj)
