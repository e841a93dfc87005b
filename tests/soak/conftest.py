"""One control plane and one site, with an audit log that holds what the judge reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for folder in ("e2e", "stories", "soak"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from fleet_site import infrastructure  # noqa: E402
from plane import PARTS, Plane  # noqa: E402
from soak_site import SoakSite  # noqa: E402


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SoakSite]:
    audited = [f"--audit-policy-file={PARTS / 'audit-policy-soak.yaml'}"]
    with (
        Plane(tmp_path, {"kube-apiserver": audited}) as plane,
        SoakSite(plane, tmp_path / "site") as found,
    ):
        infrastructure(plane)  # where the concluder runs
        yield found
