"""Which notices a webhook is told: those asked for, and each once."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recovery.report import webhook
from recovery.report.notice import Notice
from recovery.report.webhook import Webhook
from tests.builders.receiver import DEFAULT_EVENTS
from tests.builders.times import NOW

DAY = timedelta(hours=24)
MINUTE = timedelta(minutes=1)


def teller(*events: str) -> Webhook:
    return Webhook("nowhere", False, events or DEFAULT_EVENTS, "prod")


def notice(reason: str, at: datetime = NOW, node: str = "node-0", **more: Any) -> Notice:
    return Notice(node, "", reason, more.pop("sentence", "a sentence"), True, at, **more)


@pytest.mark.parametrize(
    ("reason", "key", "wanted"),
    [
        ("HandedOver", "", True),
        ("WouldRecover", "would x", True),
        ("Replacing", "", True),
        ("Held", "brake", True),
        ("Held", "correlated", True),
        ("Held", "budget", False),
        ("Held", "", False),
        ("Waiting", "brake", False),
        ("Failed", "api", False),
        ("Cordoned", "", False),
    ],
)
def test_by_default_people_are_told_what_they_should_know(reason: str, key: str, wanted: bool) -> None:
    assert teller().wants(notice(reason, key=key)) is wanted


def test_patterns_choose() -> None:
    assert teller("*").wants(notice("Cordoned"))
    assert teller("Re*ing").wants(notice("Rebooting"))
    assert not teller("Re*ing").wants(notice("Recovered"))
    assert teller("Held").wants(notice("Held", key="budget"))
    assert teller("Held:b*").wants(notice("Held", key="budget"))
    assert not teller("Held:b*").wants(notice("Held", key="paused"))


def told(one: Webhook, reason: str, length: timedelta, **more: Any) -> int:
    """How often of an Event that comes each minute."""
    return sum(one.wants(notice(reason, NOW + MINUTE * n, **more)) for n in range(int(length / MINUTE)))


def test_what_is_repeated_each_minute_is_told_once_a_day() -> None:
    assert told(teller(), "HandedOver", DAY) == 1
    assert told(teller(), "HandedOver", 3 * DAY) == 3
    assert told(teller("Held"), "Held", DAY, key="brake") == 1


def test_a_hand_over_whose_sentence_changes_is_one() -> None:
    one = teller()
    assert one.wants(notice("HandedOver", sentence="it was refused"))
    assert not one.wants(
        notice("HandedOver", key="handedOver", sentence="in a person's hands: it was refused")
    )
    assert one.wants(notice("HandedOver", node="node-1"))


def test_what_holds_is_told_for_each_reason() -> None:
    one = teller("Held")
    assert [one.wants(notice("Held", key=key)) for key in ("brake", "paused", "brake")] == [True, True, False]


@pytest.mark.parametrize("turn", ["Released", "Recovered", "FaultSeen", "Withdrawn", "Superseded"])
def test_a_hand_over_after_a_turn_is_another(turn: str) -> None:
    one = teller()
    assert one.wants(notice("HandedOver"))
    one.wants(notice(turn, node="node-1"))
    assert not one.wants(notice("HandedOver"))
    one.wants(notice(turn))
    assert one.wants(notice("HandedOver"))


def test_what_comes_back_after_a_while_is_told_again() -> None:
    one = teller()
    assert one.wants(notice("WouldRecover", key="would x"))
    assert not one.wants(notice("WouldRecover", NOW + 9 * MINUTE, key="would x"))
    assert one.wants(notice("WouldRecover", NOW + 19 * MINUTE, key="would x"))


def test_what_happened_twice_with_other_words_is_told_twice() -> None:
    one = teller()
    sentences = ("reboot of m-0", "reboot of m-1", "reboot of m-0")
    assert [one.wants(notice("Rebooting", sentence=x)) for x in sentences] == [True, True, False]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "MOST_REMEMBERED", 10)
    one = teller()
    for n in range(100):
        assert one.wants(notice("HandedOver", node=f"node-{n}"))
    assert len(one._told) == 10
    assert not one.wants(notice("HandedOver", node="node-99"))


@pytest.mark.slow
def test_without_a_webhook_nothing_of_it_is_imported() -> None:
    code = (
        "import sys, recovery.agent.program, recovery.agent.fleet.program\n"
        "from recovery.agent.tellers import tellers_of\n"
        "from recovery.config.settings import load_settings\n"
        "assert tellers_of(load_settings({'NODE_NAME': 'n'})) == ()\n"
        "sys.exit(any(m in sys.modules for m in ('recovery.report.webhook', 'recovery.report.post')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603


def test_a_url_that_is_not_there_is_logged_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from recovery.agent.tellers import tellers_of
    from recovery.config.settings import load_settings

    (made,) = tellers_of(load_settings({"NODE_NAME": "n", "WEBHOOK_URL_FILE": str(tmp_path / "url")}))
    assert made.name == "webhook"
    assert [r.getMessage() for r in caplog.records] == [
        "webhook: WEBHOOK_URL_FILE cannot be read: FileNotFoundError"
    ]
