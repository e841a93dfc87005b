"""Takes the agent's CRDs into the distribution, where ``recovery_testkit.crds`` finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Crds(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable installation reads them where they are; an sdist has them already."""
        folder = Path(self.root).parent / "deploy" / "crds"
        if version != "editable" and folder.is_dir():
            for name in ("noderecoveries.yaml", "recoverygates.yaml", "recoveryreports.yaml"):
                build_data["force_include"][str(folder / name)] = f"recovery_testkit/manifests/{name}"
