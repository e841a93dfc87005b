"""``python -m recovery_demo.aws_server``: moto's AWS over HTTP, in its own process. Prints its address."""

from __future__ import annotations

import signal
import sys
import threading

from recovery_testkit.aws import LocalAws


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with LocalAws() as aws:
        sys.stdout.write(f"{aws.url}\n")
        sys.stdout.flush()
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
