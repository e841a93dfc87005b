"""The demo's processes: none outlives the demo, however it ends, and they are stopped in order."""

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

PATIENCE = 5.0  # seconds a process may take to end by itself
_PR_SET_PDEATHSIG = 1
_KEEP = "trap '' INT TERM HUP; read -r _; sleep 1; rm -rf -- \"$1\""  # a second for the others to end


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
) -> subprocess.Popen[bytes]:
    """Start a process in its own session, out of reach of Ctrl-C. The kernel kills it when the demo dies.

    Call it from the main thread: the kernel kills the process when the *thread* that started it ends.
    Standard error goes to ``log``, and standard output too unless ``pipes``.
    """
    me = os.getpid()

    def before_exec() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
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


class Folder:
    """A temporary folder. A shell waits for the end of the demo, however it comes, and deletes it.

    ``within``: the folder that it is made in; None is the system's for such.
    """

    def __init__(self, within: Path | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="node-recovery-demo-", dir=within))
        self._keeper = subprocess.Popen(  # noqa: S603 - our own command
            ["/bin/sh", "-c", _KEEP, "sh", str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        stop([self._keeper], patience=0.0)


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
