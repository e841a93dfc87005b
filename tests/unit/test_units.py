"""Durations and shares are written as people write them, and read back the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery.model import Share
from recovery.units import format_duration, hour, parse_bound, parse_duration, parse_share


@pytest.mark.parametrize(
    "text",
    ["", "s", "10", "1:30", "-1s", "1s1m", "1m1m", "1 m", "1d", "1e3s", "١s", "8785h", "60s\n", "\n60s"],
)
def test_other_words_are_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["0s", "1ms", "500ms", "1s", "1m30s", "10m", "1h30m", "24h", "1h1m1s1ms", "8784h"]
)
def test_a_duration_is_written_back_as_it_was(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


def test_a_duration_may_have_a_fraction() -> None:
    assert parse_duration("0.5s") == timedelta(milliseconds=500)
    assert format_duration(timedelta(seconds=90)) == "1m30s"


@pytest.mark.parametrize(
    ("value", "share"),
    [(0, Share(count=0)), (7, Share(count=7)), ("0%", Share(percent=0)), ("12.5%", Share(percent=12.5))],
)
def test_a_share_is_a_count_or_a_percentage(value: object, share: Share) -> None:
    assert parse_share(value) == share
    assert str(share) == str(value)


@pytest.mark.parametrize("value", [True, -1, 0.3, "1", "%", "-1%", "100.1%", "30 %", "30%\n", None, [1]])
def test_other_values_are_no_share(value: object) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_share(value)


@pytest.mark.parametrize("text", ["", "0", "> ", "=> 1", " > 1", "> 1 ", "> 1\n", "> 1e3"])
def test_other_words_are_no_bound(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_bound(text)


def test_a_moment_that_is_half_a_day_away_is_told_with_its_day() -> None:
    now = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
    assert hour(now + timedelta(hours=11), now) == "14:00:00Z"
    assert hour(now + timedelta(days=30), now) == "2026-12-21 03:00:00Z"
    assert hour(now - timedelta(hours=12), now) == "2026-11-20 15:00:00Z"
