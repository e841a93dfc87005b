"""Takes the CRDs of ``deploy/crds`` into the distribution, where ``recovery_testkit.crds`` finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Crds(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable installation reads them where they are; an sdist has them already."""
        crds = Path(self.root).parent / "deploy" / "crds"
        if version != "editable" and crds.is_dir():
            build_data["force_include"][str(crds)] = "recovery_testkit/crds"
