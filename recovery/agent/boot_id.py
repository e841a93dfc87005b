"""Reads the boot ID of the kernel that this process runs on."""

from __future__ import annotations

import logging
from pathlib import Path

log = logging.getLogger(__name__)

LONGEST = 128


class KernelBoot:
    """The boot ID in ``path``, read until it could be read once: it cannot change while a process lives."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found = ""
        self._said = False

    def __call__(self) -> str:
        """The boot ID; "" where the file cannot be read or has none."""
        if not self._found:
            self._found = self._read()
        return self._found

    def _read(self) -> str:
        try:
            with Path(self._path).open("rb") as file:
                text = file.read(LONGEST + 2).decode("ascii").strip()
        except (OSError, ValueError) as error:
            return self._none(f"{error}")
        return text if 0 < len(text) <= LONGEST and text.isprintable() else self._none("it has no boot ID")

    def _none(self, why: str) -> str:
        if not self._said:
            log.warning("BOOT_ID_FILE %s: %s; the Node's boot ID is used alone", self._path, why)
            self._said = True
        return ""
