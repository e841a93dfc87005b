"""One control plane and one site for the whole run; a fresh fleet for each test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

for folder in ("e2e", "stories"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from fleet_site import Site  # noqa: E402
from plane import Plane  # noqa: E402

GROUP = "the Auto Scaling group's part: played by these tests, through moto's API"
LONGEST = (
    *("pages", "kills", "faults", "storm", "baremetal", "azure", "obstacles"),
    *("leader_killed", "limits"),
    *("way_back", "training", "rights", "walkthrough", "admission", "written"),
)
TOLD = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A line for who reads the log of the run, printed at its end."""
    return request.config.stash.setdefault(TOLD, []).append


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker's lines go to who writes the log."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["told"] = session.config.stash.get(TOLD, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(TOLD, []).extend(getattr(node, "workeroutput", {}).get("told", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in dict.fromkeys(config.stash.get(TOLD, [])):  # each worker has a control plane of its own
        terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take minutes first, so that the others are done meanwhile."""
    names = [f"test_{name}.py" for name in LONGEST]
    items.sort(key=lambda item: names.index(item.path.name) if item.path.name in names else len(names))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with Plane(tmp_path_factory.mktemp("plane")) as found:
        yield found


@pytest.fixture(scope="session")
def _site(
    plane: Plane, tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]
) -> Iterator[Site]:
    with Site(plane, tmp_path_factory.mktemp("site") / "site") as found:
        tell("What ran between the kernel's line and the replaced instance:")
        for part in (*plane.described(), found.detectors.described(), "moto: the cloud", GROUP):
            tell(f"  {part}")
        yield found


@pytest.fixture
def site(_site: Site) -> Iterator[Site]:
    """The site without a machine. Afterwards the laws are checked, by what was written and called alone."""
    _site.clear()
    yield _site
    _site.check_laws()
