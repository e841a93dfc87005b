"""The agent's CustomResourceDefinitions: the clone's, or in an installed kit the copy that it holds."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

NAMES = ("noderecoveries.yaml", "recoverygates.yaml", "recoveryreports.yaml")
_PACKAGE = Path(__file__).resolve().parent
_FOLDERS = (_PACKAGE.parents[1] / "deploy" / "crds", _PACKAGE / "manifests")


def crd_files() -> tuple[Path, ...]:
    """Their files, for programs that read them by themselves."""
    folder = next(folder for folder in _FOLDERS if folder.is_dir())
    return tuple(folder / name for name in NAMES)


@functools.cache
def read_crds() -> tuple[dict[str, Any], ...]:
    """The objects. They are shared: copy one before you change it."""
    return tuple(yaml.safe_load(file.read_text(encoding="utf-8")) for file in crd_files())
