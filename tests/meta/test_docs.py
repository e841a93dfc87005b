"""The pages of the repository: what they point at is there, and what they say of the shipped files is so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from recovery.cli import group
from recovery.config.policy_file import load_policy
from recovery.decide.decision import EventReason
from recovery.model import GROUP, Phase, names

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs").glob("*.md"))
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(
        page
        for top in ("docs", "deploy", "iam", "testkit", "demo")
        for page in sorted((ROOT / top).rglob("*.md"))
    ),
]
TOPS = ("recovery", "providers", "testkit", "demo", "tests", "deploy", "iam", "bench", "docs", r"\.ci")
NAMING = [
    file
    for top in ("recovery", "providers", "testkit", "demo", "deploy", "iam")
    for file in sorted((ROOT / top).rglob("*"))
    if file.suffix in {".py", ".yaml", ".json", ".txt", ".tpl", ".tf", ".env"}
]
WRITTEN_BY_READERS = {ROOT / "docs" / "writing-a-provider.md": {"tests/test_rack.py"}}
"""Paths in the repository of who follows a guide."""
MOVING = (ROOT / "docs" / "moving-from-the-neuron-agent.md").read_text()


def guides() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)


def pages() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())


def links(page: Path) -> list[tuple[str, str]]:
    """(path, heading) of each link to a file; either may be empty."""
    return re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", page.read_text())


def headings(page: Path) -> list[str]:
    """As links name them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


@pages()
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert [path for path, _ in links(page) if not (page.parent / path).exists()] == []


@pages()
def test_every_link_to_another_site_is_a_whole_https_address(page: Path) -> None:
    away = re.findall(r"\]\(([a-z]+://[^)]*)\)", page.read_text())
    assert [
        url for url in away if not re.fullmatch(r"https://[\w-]+(\.[\w-]+)+(/[\w./%@#?=&+~-]*)?", url)
    ] == []


@guides()
def test_every_guide_is_two_clicks_from_the_readme(guide: Path) -> None:
    first = {ROOT / path for path, _ in links(ROOT / "README.md") if path.endswith(".md")}
    second = {(page.parent / path).resolve() for page in first for path, _ in links(page)}
    assert guide in first | second


def test_every_page_that_a_file_names_is_there() -> None:
    """In messages, comments and docstrings: ``docs/fleet.md``, or ``docs/fleet.md, Dead nodes``."""
    named = {
        (file, path, heading)
        for file in NAMING
        for line in file.read_text().splitlines()
        if "://" not in line
        for path, heading in re.findall(
            r"(?<![\w./-])((?:\.\./)*(?:docs|deploy|iam)/[\w./-]+\.md)(?:, ([A-Z][a-z]+(?: [a-z]+)*))?", line
        )
    }
    assert named
    for file, path, heading in named:
        page = (file.parent if path.startswith("..") else ROOT) / path
        assert page.exists(), f"{file}: {path}"
        titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
        assert not heading or any(title.startswith(heading) for title in titles), f"{file}: {path}, {heading}"


@pages()
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    paths = set(re.findall(rf"`((?:{'|'.join(TOPS)})/[\w./-]*)`", text)) - WRITTEN_BY_READERS.get(page, set())
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


@pages()
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    named = set(
        re.findall(
            r"`((?:recovery|providers|recovery_testkit|recovery_demo)(?:\.[a-z_]+)+)`", page.read_text()
        )
    )
    homes = {"recovery_testkit": "testkit", "recovery_demo": "demo"}
    files = {name: ROOT / homes.get(name.partition(".")[0], "") / name.replace(".", "/") for name in named}
    assert (
        sorted(name for name, at in files.items() if not (at.is_dir() or at.with_suffix(".py").exists()))
        == []
    )


@pages()
def test_every_heading_that_a_page_links_to_is_there(page: Path) -> None:
    for path, heading in links(page):
        if heading:
            assert heading in headings(page.parent / path if path else page), f"{path}#{heading}"


@pages()
def test_every_command_of_a_page_exists(page: Path) -> None:
    fences = re.findall(r"^ *```\w*\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", page.read_text())
    code = "\n".join(fences + inline)
    told = re.findall(r"(?:^ *|-- |/bin/)node-recovery ([a-z-]+)(?: ([a-z-]+))?", code, re.MULTILINE)
    for word, next_word in told:
        command = group.get_command(click.Context(group), word)
        assert command is not None, word
        assert not isinstance(command, click.Group) or next_word in command.commands, next_word


HEAD = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"


def policies(guide: Path) -> Iterator[str]:
    """Each policy on the page, and each part of one made whole."""
    for block in re.findall(r"^```yaml\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL):
        if block.startswith(HEAD):
            yield block
        elif re.match(r"(?:sources|limits|drain|rules|exclude):", block):
            yield f"{HEAD}{block}" if "\nrules:" in f"\n{block}" else f"{HEAD}{block}rules: []\n"
        elif block.startswith("  - name:"):
            yield f"{HEAD}rules:\n{block}"


def test_every_policy_of_a_guide_is_one_that_the_program_takes(tmp_path: Path) -> None:
    shown = [(guide, text) for guide in GUIDES for text in policies(guide)]
    assert {guide.name for guide, _ in shown} >= {"policy.md", "sources.md", "eks-auto-repair.md"}
    for guide, text in shown:
        file = tmp_path / guide.name
        file.write_text(text)
        load_policy(str(file))  # SettingsError names page, line and field


@guides()
def test_no_guide_is_about_this_machine(guide: Path) -> None:
    assert not re.search(r"/(work|root|tmp|home)/", guide.read_text())


def test_the_permissions_that_the_move_needs_are_those_of_the_shipped_policy() -> None:
    policy = json.loads((ROOT / "iam" / "aws" / "policy.json").read_text())
    named = [statement["Action"] for statement in policy["Statement"]]
    shipped = {action for one in named for action in ([one] if isinstance(one, str) else one)}
    rows = re.findall(r"^\| (`[a-z0-9]+:.*?) \|", MOVING, re.MULTILINE)
    told = set[str]()
    for row in rows:
        for action in re.findall(r"`([^`]+)`", row):
            told.add(action if ":" in action else f"autoscaling:{action}")
    assert told == shipped


def test_the_names_that_stay_are_the_shipped_ones() -> None:
    folder = ROOT / "deploy" / "eks-neuron"
    kustomization = yaml.safe_load((folder / "agents" / "kustomization.yaml").read_text())
    daemonset = yaml.safe_load((folder / "agents" / "daemonset.yaml").read_text())
    settings = (folder / "settings.env").read_text().splitlines()
    containers = {c["name"]: c for c in daemonset["spec"]["template"]["spec"]["containers"]}
    assert kustomization["namespace"] == "neuron-healthcheck-system"
    assert daemonset["metadata"]["name"] == "node-problem-detector"
    assert {"ENABLE_RECOVERY=false", "CLOUDWATCH_NAMESPACE=NeuronHealthCheck"} <= set(settings)
    assert (
        f"{containers['node-problem-detector']['image'].partition('@')[0].rpartition(':')[2]} or later"
        in MOVING
    )
    assert "node-recovery" in containers
    for name in ("neuron-healthcheck-system", "node-problem-detector", "NeuronHealthCheck"):
        assert f"`{name}`" in MOVING


def test_the_reasons_that_stay_are_those_that_the_shipped_detector_knows() -> None:
    file = ROOT / "deploy" / "eks-neuron" / "agents" / "neuron-monitor.json"
    rules = json.loads(file.read_text())["rules"]
    told = {
        "DMA_ERROR",
        "HANG_ON_COLLECTIVES",
        *(f"{part}_UNCORRECTABLE_ERROR" for part in ("SRAM", "HBM", "NC")),
    }
    assert {rule["reason"] for rule in rules} == {f"NeuronHasError_{code}" for code in told}


def test_every_law_that_is_named_is_in_the_list() -> None:
    laws = (ROOT / "docs" / "laws.md").read_text()
    assert re.findall(r"^(\d+)\. \*\*", laws, re.MULTILINE) == [str(n) for n in range(1, 12)]
    places = [p for top in ("recovery", "providers", "tests", "docs") for p in (ROOT / top).rglob("*.py")]
    told = "\n".join(p.read_text() for p in [*places, *(ROOT / "docs").rglob("*.md")])
    named = {
        int(n)
        for group in re.findall(r"\b[Ll]aws? (\d+(?:(?:, | and )\d+)*)", told)
        for n in re.findall(r"\d+", group)
    }
    assert named == set(range(1, 12))


def test_every_reason_of_an_event_is_explained() -> None:
    chapter = (ROOT / "docs" / "metrics.md").read_text().partition("\n## Events\n")[2]
    cells = re.findall(r"^\| (`.*?`) \|", chapter, re.MULTILINE)
    assert sorted(name for cell in cells for name in re.findall(r"`(\w+)`", cell)) == sorted(EventReason)


def test_every_phase_of_a_record_is_explained() -> None:
    chapter = (ROOT / "docs" / "words.md").read_text().partition("\n## The phases of a record\n")[2]
    assert sorted(re.findall(r"^\| `(\w+)` \|", chapter, re.MULTILINE)) == sorted(Phase)


def test_every_label_annotation_and_taint_of_ours_is_explained() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    chapter = page.partition("\n## Labels, annotations and taints\n")[2]
    ours = [name for name in vars(names).values() if str(name).startswith(f"{GROUP}/")]
    assert {name.removeprefix(f"{GROUP}/") for name in ours} <= set(re.findall(r"`([a-z-]+)", chapter))
