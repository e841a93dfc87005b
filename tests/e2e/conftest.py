"""One control plane and one site for the whole run; a fresh fleet for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for folder in ("e2e", "stories"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from fleet_site import Site  # noqa: E402
from plane import Plane  # noqa: E402


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with Plane(tmp_path_factory.mktemp("plane")) as found:
        yield found


@pytest.fixture(scope="session")
def _site(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(plane, tmp_path_factory.mktemp("site") / "site") as found:
        yield found


@pytest.fixture
def site(_site: Site) -> Iterator[Site]:
    """The site without a machine. Afterwards the laws are checked, by what was written and called alone."""
    _site.clear()
    yield _site
    _site.check_laws()
