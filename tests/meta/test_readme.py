"""What the pages have from the code is what the code says. The README is short."""

from __future__ import annotations

import re
import runpy
from datetime import timedelta
from pathlib import Path

import pytest

from recovery.config.policy_file import load_policy
from recovery.decide.lifecycle import TABLE, Event
from recovery.model import Phase, Share, Step, Then

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
WORDS_AT_MOST = 900
RENDER = runpy.run_path(str(ROOT / "docs" / "render.py"))


@pytest.mark.parametrize("name", ["settings", "commands", "metrics", "held", "states"])
def test_what_the_pages_have_from_the_code_is_as_the_code_has_it(name: str) -> None:
    page = (DOCS / RENDER["PARTS"][name][0]).read_text()
    assert RENDER["rendered"](name, page) == page, "run: python docs/render.py"


def test_a_table_without_its_place_is_an_error() -> None:
    page = (DOCS / "metrics.md").read_text()
    with pytest.raises(ValueError, match=r"docs/metrics.md: found 0 places for metrics, expected 1"):
        RENDER["rendered"]("metrics", page.replace("<!-- end of metrics -->", ""))


def test_the_readme_is_read_in_five_minutes() -> None:
    """As ``wc -w`` counts, code and links included."""
    assert len(README.split()) <= WORDS_AT_MOST


def test_the_states_say_each_move_of_the_table_and_no_other() -> None:
    usual, *others = (line for line in RENDER["states"]() if "->" in line)
    words = usual.split()
    said = {
        (Phase(at), Event(by.strip("->"))): Phase(to)
        for at, by, to in zip(words[::2], words[1::2], words[2::2], strict=False)
    }
    groups = {"any open phase": [p for p in Phase if p.open], "any other": [p for p in Phase if not p.open]}
    for line in others:
        phase, _, moves = line.removeprefix("from ").partition(":")
        for event, to in re.findall(r"(\w+) -> (\w+)", moves):
            said |= dict.fromkeys([(Phase(p), Event(event)) for p in groups.get(phase) or [phase]], Phase(to))
    assert said == TABLE


def test_states_in_which_no_recovery_is_proved_are_an_error() -> None:
    less = {move: after for move, after in TABLE.items() if after is not Phase.RECOVERED}
    with pytest.raises(ValueError, match="no way leads from suspect to recovered"):
        list(RENDER["states"](less))


def test_the_page_on_the_layout_fits_on_a_screen_and_names_files_that_are_there() -> None:
    chapter = (DOCS / "code.md").read_text().partition("\n")[2]
    assert 0 < len(chapter.strip().splitlines()) <= 45
    picture = re.search(r"```text\n(.*?)```", chapter, re.DOTALL)
    assert picture is not None
    named = re.findall(r"\b[a-z]+/[a-z_]+\.py\b", picture[1])
    assert named
    assert [path for path in named if not (ROOT / "recovery" / path).exists()] == []


def test_no_word_of_the_readme_is_about_this_machine() -> None:
    assert not re.search(r"/(work|root|tmp|home)/", README)


def test_what_is_left_out_of_a_policy_is_as_the_page_says(tmp_path: Path) -> None:
    sample = re.search(r"```yaml\n(.*?)```", (DOCS / "policy.md").read_text(), re.DOTALL)
    assert sample is not None
    head = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
    files = {
        "shown": sample[1],
        "bare": f"{head}rules: []\n",
        "braked": f"{head}limits: {{brake: 10%}}\n"
        "rules: [{name: x, match: {}, remedy: [{do: drain}, {do: reboot}, {do: replace}]}]\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    shown, bare, braked = (load_policy(str(tmp_path / name)).policy for name in files)
    assert (bare.limits, bare.exclude) == (shown.limits, ())
    assert braked.limits.brake_per == {"node.kubernetes.io/instance-type": {"*": Share(percent=10)}}
    rule = braked.rules[0]
    assert (rule.match.type, rule.match.reasons) == ("*", ("*",))
    assert (rule.after, rule.probation) == (timedelta(0), timedelta(minutes=2))
    assert [(r.do, r.within.total_seconds() / 60, r.then) for r in rule.remedy or ()] == [
        (Step.DRAIN, 15, Then.HAND_OVER),
        (Step.REBOOT, 10, Then.HAND_OVER),
        (Step.REPLACE, 30, Then.HAND_OVER),
    ]
