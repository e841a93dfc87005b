"""What a cloud's errors say, made fit for a sentence."""

from __future__ import annotations

import re
import time

import pytest

from providers.azure.errors import brief
from recovery.provider.words import LOOKED_AT, one_line

KEY = (re.compile(r"key=\w{20,}"), "(a key)")


@pytest.mark.parametrize("text", ["a" * 200_000, "a" * 100_000 + "\xf6", '"vm":{' * 30_000, "a " * 100_000])
def test_no_text_takes_long_however_long_it_is(text: str) -> None:
    """Twenty thousand letters took 5.6 s, and the time grew with their square."""
    began = time.process_time()
    assert len(brief(text)) <= 200
    assert time.process_time() - began < 1


def test_half_a_secret_at_the_end_of_what_is_looked_at_is_not_shown() -> None:
    blanks = " " * (LOOKED_AT - 10)
    assert one_line(f"no: {blanks}key=" + "a" * 500, [KEY]) == "no: …"
    assert one_line("a" * (LOOKED_AT + 1), [KEY]) == "(left out)"
