"""The demo's processes: started so that none outlives it, however it ends, and stopped in order."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

ASK = signal.SIGTERM
PATIENCE = 5.0  # seconds a process may take to end by itself
_PR_SET_PDEATHSIG = 1
_PREFIX = "node-recovery-demo-"


class Ended(BaseException):
    """A signal that asks the demo to end. No ``Exception``, so that nothing on the way catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


def end_on_signals() -> None:
    """SIGINT, SIGTERM and SIGHUP raise ``Ended`` in the main thread."""

    def end(number: int, _: FrameType | None) -> None:
        raise Ended(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def ignore_signals() -> None:
    """From here on a second Ctrl-C does not interrupt the clean-up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _libc() -> ctypes.CDLL | None:
    """Loaded before any fork. None where there is no prctl: then only an orderly end cleans up."""
    if not sys.platform.startswith("linux"):
        return None
    return ctypes.CDLL(None, use_errno=True)


_LIBC = _libc()


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    pipes: bool = False,
    when_orphaned: signal.Signals = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """A process in a session of its own (Ctrl-C is for us alone), which the kernel ends when we die.

    Call it from the main thread: the kernel means the *thread* that started the process. Standard error goes
    to ``log``, and standard output too unless ``pipes``.
    """
    me = os.getpid()

    def before_exec() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(when_orphaned))
            if os.getppid() != me:
                os._exit(1)

    with log.open("ab") as file:
        return subprocess.Popen(  # noqa: S603 - our own commands
            command,
            env=dict(environment),
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else file,
            stderr=file,
            start_new_session=True,
            preexec_fn=before_exec,
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """``kill -9``, the whole session, and wait for the end."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def stop(processes: Sequence[subprocess.Popen[bytes]], patience: float = PATIENCE) -> None:
    """Ask all of them to end, and kill those that have not after ``patience`` seconds."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    end = time.monotonic() + patience
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, end - time.monotonic()))
        kill(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def make_folder() -> Path:
    """A temporary folder of this demo's own."""
    return Path(tempfile.mkdtemp(prefix=_PREFIX))


def remove_folder(folder: Path) -> None:
    """Only one that ``make_folder`` made."""
    assert folder.name.startswith(_PREFIX), folder
    shutil.rmtree(folder, ignore_errors=True)


def own_environment(folder: Path) -> dict[str, str]:
    """What every process of the demo gets, and no more: no setting or credential of the caller's."""
    kept = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "TZ")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PYTHONUNBUFFERED": "1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
