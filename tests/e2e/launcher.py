"""Starts the programs of the end-to-end tests, so that none outlives the test run.

The kernel sends a parent-death signal when the *thread* that started a process ends, not when the whole
parent does. One thread therefore starts everything here, and it ends with the test run.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from toolbox import Missing

_THREAD = ThreadPoolExecutor(1, thread_name_prefix="launcher")
atexit.register(_THREAD.shutdown, wait=False)


def bound_to_us(command: list[str]) -> list[str]:
    """``command``, to be killed when the thread that starts it ends. util-linux's, on Debian and Ubuntu."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise Missing("setpriv was not found on the PATH: install util-linux 2.33 or later")
    return [setpriv, "--pdeathsig", "KILL", "--", *command]


def launch(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start ``command``, made by ``bound_to_us``. It lives until somebody ends it, or the test run ends."""
    return _THREAD.submit(lambda: subprocess.Popen(command, **options)).result()  # noqa: S603
