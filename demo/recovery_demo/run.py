"""The demo from beginning to end: starts the sandbox, runs the story, prints the summary, and cleans up."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from importlib.util import find_spec

from recovery_demo import processes, report
from recovery_demo.command import CLOUDS, MODES, SIDECAR
from recovery_demo.fleet_story import FleetStory
from recovery_demo.gpu_story import GpuStory
from recovery_demo.metal_story import BareMetalStory
from recovery_demo.observe_story import ObserveStory
from recovery_demo.on_metal import memory
from recovery_demo.sandbox import FLEET, IN_MOTO, OBSERVE, Broken, Pace, Sandbox, tail
from recovery_demo.screen import BOLD, DIM, GREEN, RED, Screen
from recovery_demo.story import AzureStory, Story

DONE, FAILURE, USAGE = 0, 1, 2
SLOW, FAST = Pace("10s", "5s", pause=2.0), Pace("6s", "2s", pause=1.0, after="5s")
LEASES = {"aws-gpu": "10s", "baremetal": "10s"}
"""Longer where no Lease should expire: the machine is soon back, and its own agent goes on, not a peer."""
NODES = {FLEET: 40}
STORIES: dict[str, type[Story]] = {
    "aws": Story,
    "aws-gpu": GpuStory,
    "azure": AzureStory,
    "baremetal": BareMetalStory,
    OBSERVE: ObserveStory,
    FLEET: FleetStory,
}


def run(*, fast: bool, keep: bool, cloud: str, mode: str = SIDECAR, observe: bool = False) -> int:
    """See ``recovery_demo.demo``."""
    if reason := _unable(cloud, mode, observe):
        sys.stderr.write(reason + "\n")
        return USAGE
    pace = FAST if fast else SLOW
    story = FLEET if mode == FLEET else OBSERVE if observe else cloud
    pace = replace(pace, lease=LEASES.get(story, pace.lease), nodes=NODES.get(story, pace.nodes))
    screen = Screen()
    processes.end_on_signals()
    sandbox: Sandbox | None = None
    try:
        sandbox = Sandbox(story, pace, time.monotonic(), memory() if cloud == "baremetal" else None)
        return _run(sandbox, STORIES[story](sandbox, screen), screen, keep)
    except processes.Ended as ended:
        screen.say()
        screen.say("Stopped. Clearing away ...")
        return ended.code
    finally:
        processes.ignore_signals()
        if sandbox is not None:
            sandbox.close()


def _unable(cloud: str, mode: str, observe: bool = False) -> str:
    """Why there can be no demo of this cloud and mode here, or nothing."""
    if observe and (cloud, mode) != (CLOUDS[0], SIDECAR):
        return f"The demo with recovery off is on AWS: OBSERVE=1 with CLOUD={CLOUDS[0]}, and without MODE."
    if cloud not in CLOUDS:
        return f"There is no demo of {cloud}. Try one of {', '.join(f'CLOUD={name}' for name in CLOUDS)}."
    if mode not in MODES:
        return f"There is no demo of MODE={mode}. Try one of {', '.join(f'MODE={name}' for name in MODES)}."
    if mode == FLEET and cloud != CLOUDS[0]:
        return f"The demo of a fleet is on AWS: MODE=fleet with CLOUD={CLOUDS[0]}, or without CLOUD."
    if cloud in IN_MOTO and not _installed("moto"):
        return "The demo of AWS needs moto: pip install -e './testkit[aws]' in a clone, or run `make demo`."
    if cloud == "azure" and not (_installed("azure.identity") and _installed("azure.mgmt.compute")):
        return "The demo of Azure needs its SDK: pip install -e '.[azure]' in a clone, or run `make demo`."
    if cloud == "baremetal" and memory() is None:
        return (
            "The demo of bare metal needs a Linux whose /dev/shm is a tmpfs that this user may write to: the "
            "file by which kured is asked has to be in memory, or it would outlive the reboot."
        )
    return ""


def _installed(module: str) -> bool:
    """Whether it could be imported. Only the packages above it are imported to find out."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _run(sandbox: Sandbox, story: Story, screen: Screen, keep: bool) -> int:
    code = DONE
    try:
        story.introduce()
        sandbox.start()
        story.tell()
        code = _sum_up(story, screen)
    except Broken as broken:
        code = FAILURE
        _complain(sandbox, screen, str(broken), broken.logs)
    if keep:
        _stay(sandbox, story, screen)
    return code


def _sum_up(story: Story, screen: Screen) -> int:
    screen.say()
    screen.say(screen.paint("How long each phase took, since the fault (and since the line above):", BOLD))
    screen.say()
    screen.lines("  " + row for row in report.table(story.shown(), story.ledger.phases))
    screen.say()
    checks = story.checks()
    for check in checks:
        mark = screen.paint("✓", GREEN) if check.kept else screen.paint("✗", RED, BOLD)
        screen.say(f"  {mark} {check}")
    screen.say()
    wrong = [check for check in checks if not check.kept]
    if wrong:
        raise Broken(f"the story did not end as told: {wrong[0]}", *story.logs())
    screen.say(screen.paint(story.moral(), BOLD))
    return DONE


def _complain(sandbox: Sandbox, screen: Screen, sentence: str, logs: tuple[str, ...]) -> None:
    """Print what went wrong, and the ends of the logs that may say why."""
    screen.say()
    for name in dict.fromkeys(logs):
        lines = tail(sandbox.log(name))
        if lines:
            screen.say(screen.paint(f"--- the end of the log of {name}", BOLD))
            screen.lines(f"    {line}" for line in lines)
    screen.say()
    screen.say(screen.paint(f"FAILED after {sandbox.now:.0f} s: {sentence}", RED, BOLD))


def _stay(sandbox: Sandbox, story: Story, screen: Screen) -> None:
    """KEEP=1: print what happens until Ctrl-C."""
    first = next(iter(story.ledger.recoveries), "NODE")
    screen.say()
    screen.say("Everything stays up until Ctrl-C. In another terminal:")
    screen.say()
    screen.lines(f"  {command}" for command in story.hints(first))
    screen.say()
    screen.say(screen.paint(f"  Logs of all processes: {sandbox.folder / 'logs'}", DIM))
    screen.say()
    try:
        story.listen()
    except processes.Ended:
        screen.say("Clearing away ...")
