"""``python -m recovery_demo.simulator``: what a cloud and the machines do, and nothing that an agent does.

It launches, terminates and boots machines, in a simulated cloud or as kured would, registers their Nodes,
serves the pages of their detectors, runs and kills their sidecars, and keeps a training job alive. Commands
come as JSON lines on standard input, what was done goes out as JSON lines on standard output:

    {"fault": "ip-10-0-1-5", "page": "dma-error"}
    {"reboot": "i-0123"}
    {"dies": "ip-10-0-2-10"}, {"states": "NvidiaXID79Error", "nodes": [...]}, {"kill": "controller-1"}
    {"did": "launched", "node": "ip-10-0-1-8", "instance": "i-0123", "instead": "ip-10-0-1-5"}

The end of standard input is the end of the demo: its sidecars are stopped.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from recovery_demo.on_aws import OnAws, Watching
from recovery_demo.on_aws_gpu import OnAwsGpu
from recovery_demo.on_azure import OnAzure
from recovery_demo.on_fleet import OnFleet
from recovery_demo.on_metal import OnMetal
from recovery_demo.sandbox import FLEET, OBSERVE
from recovery_demo.site import Site

SITES: dict[str, type[Site]] = {
    "aws": OnAws,
    "aws-gpu": OnAwsGpu,
    "azure": OnAzure,
    "baremetal": OnMetal,
    OBSERVE: Watching,
    FLEET: OnFleet,
}


def listen(commands: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        commands.put(json.loads(line))
    commands.put(None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m recovery_demo.simulator", description=__doc__)
    parser.add_argument("--cloud", choices=tuple(SITES), default="aws")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--kubernetes", required=True, help="the API's address")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--aws", default="", help="moto's address")
    parser.add_argument("--sidecar-aws", default="", help="the address the sidecars are given for AWS")
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--lease", default="60s")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--memory", type=Path, help="a folder on a tmpfs, for the machines' /run")
    asked = parser.parse_args()
    simulator = SITES[asked.cloud](asked)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: simulator.commands.put(None))
    threading.Thread(target=listen, args=(simulator.commands,), daemon=True).start()
    try:
        simulator.begin()
        simulator.run()
    finally:
        simulator.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
