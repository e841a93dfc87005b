"""What is wrong with settings, in the sentences that people read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from recovery.errors import SettingsError


def mistakes(check: Callable[[Mapping[str, str]], Any], **environ: str) -> list[str]:
    """All that ``check`` has to say against an environment; that it says nothing is a failure."""
    with pytest.raises(SettingsError) as caught:
        check(environ)
    return list(caught.value.mistakes)
