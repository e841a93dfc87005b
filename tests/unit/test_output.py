"""What commands print for programs can be read by them, whatever is in it."""

from __future__ import annotations

import json

import pytest
import yaml

from recovery.console.output import as_json, as_yaml, ask
from recovery.errors import SettingsError

ODD = [
    {"sentence": "plain", "since": "2026-11-28T00:00:00Z", "none": None, "empty": [], "x": {}},
    {"sentence": "a: b - c # d", "yes": "true", "octal": "0o17", "long": "word " * 300},
    {"sentence": "ä 😀 \u202e \x85 \u2028 \t tab\nand a second line\n"},
]


@pytest.mark.parametrize("value", ODD)
def test_what_is_printed_as_json_or_yaml_is_read_back_as_it_was(value: object) -> None:
    assert json.loads(as_json(value)) == value
    assert yaml.safe_load(as_yaml(value)) == value


def test_a_sentence_with_half_a_surrogate_pair_is_printed_and_not_a_crash() -> None:
    text = as_yaml({"sentence": "cut here: \ud83d"})
    text.encode()
    assert text == r'sentence: "cut here: \uD83D"'


def test_where_standard_input_is_closed_there_is_nobody_to_ask_and_no_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(SettingsError, match="There is no terminal to ask at"):
        ask("Release it?")
