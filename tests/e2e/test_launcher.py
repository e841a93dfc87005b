"""What the end-to-end tests start lives for as long as they do, whichever thread asked for it."""

from __future__ import annotations

import subprocess
import threading
import time

from launcher import bound_to_us, launch


def test_a_program_outlives_the_thread_that_asked_for_it() -> None:
    started: list[subprocess.Popen[bytes]] = []

    def ask() -> None:
        started.append(launch(bound_to_us(["sh", "-c", "echo; exec sleep 60"]), stdout=subprocess.PIPE))
        assert started[0].stdout is not None
        started[0].stdout.readline()  # from now on it is bound: the end of its thread would be its own

    asks = threading.Thread(target=ask)
    asks.start()
    asks.join()
    with started[0] as program:
        time.sleep(0.3)
        assert program.poll() is None
        program.kill()
