"""A control plane with an audit log that holds what the judge reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for folder in ("e2e", "stories", "soak"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from plane import PARTS, Plane  # noqa: E402


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    audited = [f"--audit-policy-file={PARTS / 'audit-policy-soak.yaml'}"]
    with Plane(tmp_path, {"kube-apiserver": audited}) as found:
        yield found
