"""What the end-to-end tests start lives for as long as they do, whichever thread asked for it."""

from __future__ import annotations

import threading
import time

from launcher import bound_to_us, launch


def test_a_program_outlives_the_thread_that_asked_for_it() -> None:
    started = []
    asks = threading.Thread(target=lambda: started.append(launch(bound_to_us(["sleep", "60"]))))
    asks.start()
    asks.join()
    (program,) = started
    time.sleep(0.3)  # the kernel's signal would have come with the thread's end
    assert program.poll() is None
    program.kill()
    program.wait()
