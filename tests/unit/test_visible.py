"""What others wrote is printed in one line, and no terminal and no log obeys it."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

import pytest
import yaml
from click.testing import CliRunner

from recovery.agent.program import Lines
from recovery.console import output
from recovery.report.notice import Notice, event_body
from recovery.visible import visible

CLIPBOARD = "\x1b]52;c;cm0gLXJmIC8=\x07"
FORGED = "x\n2026-01-01 00:00:00,000 INFO n1: recovered [key=proved]"


@pytest.mark.parametrize("plain", ["", "healthy: no confirmed problem", "Störung – 5 µs, 故障", "tab-less"])
def test_plain_text_stays_as_it_is(plain: str) -> None:
    assert visible(plain) == plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("a\r\x1b[2Kb", "a\\r\\x1b[2Kb"),
        (CLIPBOARD, "\\x1b]52;c;cm0gLXJmIC8=\\x07"),
        ("a\x9bb", "a\\x9bb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
        ("a\u200bb\xa0c", "a\\u200bb\\xa0c"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_line_keeps_our_colours_and_shows_all_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    output.say(output.styled("recovered", fg="green") + " \x1b[8mhidden" + CLIPBOARD + FORGED)
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert said.startswith("\x1b[32mrecovered\x1b[0m ")
    assert "\\x1b[8mhidden\\x1b]52;c;" in said


BLACK = "Bad\x1b[30mx\x1b[0m\x1b[1m"


@pytest.mark.parametrize("styled", [False, True])
def test_a_colour_that_others_wrote_is_shown_and_not_obeyed(
    styled: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Black on black hides what follows: the reason of a Node's condition is whatever its writer likes."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    output.say(output.styled(BLACK, bold=True) if styled else BLACK)
    said = capsys.readouterr().out.rstrip("\n")
    shown = visible(BLACK)
    assert said == (f"\x1b[1m{shown}\x1b[0m" if styled else shown)


def test_columns_stay_in_line_beside_what_is_shown() -> None:
    one, two = output.table(("A", "B"), [(BLACK, "b")])
    assert two.endswith("   b")
    assert one.index("B") == len(visible(BLACK)) + 3


def test_json_for_programs_has_nothing_that_a_terminal_obeys() -> None:
    hostile = {"sentence": "ü" + CLIPBOARD + "\x9b\u202e\n"}
    text = output.as_json(hostile)
    assert json.loads(text) == hostile
    assert "ü" in text
    assert all(c.isprintable() or c == "\n" for c in text)


def test_what_a_terminal_has_no_characters_for_is_escaped_and_ends_no_command() -> None:
    """A pipe on Windows, say; others wrote it to the cluster in theirs."""
    text = "Störung, 故障 💥"
    with CliRunner(charset="latin-1").isolation() as (out, _, _):
        output.say(text)
        output.show([text], output.JSON)
        output.show([text], output.YAML)
    said, *shown = out.getvalue().decode("latin-1").splitlines()
    assert said == "Störung, \\u6545\\u969c \\U0001f4a5"
    assert json.loads("".join(shown[:-1])) == yaml.safe_load(shown[-1]) == [text]


def logged(message: str, problem: Exception | None = None) -> str:
    found = (type(problem), problem, None) if problem else None
    record = logging.LogRecord("a", logging.INFO, "f", 1, "%s", (message,), found)
    return Lines("%(levelname)s %(message)s").format(record)


def test_a_message_forges_no_line_of_the_log() -> None:
    assert logged(f"n2: broken: {FORGED}").count("\n") == 0


def test_a_traceback_has_its_lines_and_the_message_in_it_is_shown() -> None:
    first, *rest = logged("failed", ValueError("a\x1b[2K")).split("\n")
    assert first == "INFO failed"
    assert rest == ["ValueError: a\\x1b[2K"]


def test_an_event_has_its_sentence_in_one_line() -> None:
    notice = Notice("n1", "uid", "Suspect", FORGED, True, datetime(2026, 1, 1, tzinfo=UTC))
    assert event_body("n1.1", notice)["message"] == FORGED.replace("\n", "\\n")
