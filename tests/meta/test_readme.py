"""What the README has from the code is what the code says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
RENDER = runpy.run_path(str(ROOT / "docs" / "render.py"))


def test_settings_commands_and_metrics_are_as_the_code_has_them() -> None:
    assert RENDER["rendered"](README) == README, "run: python docs/render.py"


def test_a_table_without_its_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="found 0 places for metrics, expected 1"):
        RENDER["rendered"](README.replace("<!-- end of metrics -->", ""))


def test_no_word_of_the_readme_is_about_this_machine() -> None:
    assert not re.search(r"/(work|root|tmp|home)/", README)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
