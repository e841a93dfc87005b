"""Processes of the shipped program, forked from a parent that has imported it once for all of them.

Twenty processes would spend most of their time on importing the same modules. Each is a process of its own
all the same, with the environment, the folder and the log it is given, and ``kill -9`` ends it as any other.
The parent (of ``multiprocessing``) has one thread, imports ``preload``, and ends with the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.stories.preload"])


def start(environ: Mapping[str, str], folder: Path, log: Path) -> ForkServerProcess:
    """``node-recovery run`` with this environment in ``folder``, writing to the end of ``log``."""
    process = _context.Process(target=_run, args=(dict(environ), folder, log), daemon=True)
    process.start()
    return process


def _run(environ: dict[str, str], folder: Path, log: Path) -> None:
    """In the new process: become what ``exec`` would have made of it."""
    from kubernetes.config import kube_config

    from recovery.cli import main

    os.environ.clear()
    os.environ.update(environ)
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = environ["KUBECONFIG"]  # it was read when this was imported
    os.chdir(folder)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(file, sys.stdout.fileno())
    os.dup2(file, sys.stderr.fileno())
    os.close(file)
    threading.Thread(target=_end_with_the_tests, daemon=True).start()
    sys.exit(main(["run"]))


def _end_with_the_tests() -> None:
    """Tests that are killed themselves cannot clean up."""
    tests = multiprocessing.parent_process()
    assert tests is not None
    tests.join()
    os._exit(1)
