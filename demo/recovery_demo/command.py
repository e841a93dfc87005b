"""The command ``node-recovery demo``: the agent's program finds it by its entry point."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

CLOUDS = ("aws", "aws-gpu", "azure", "baremetal")
SIDECAR = "sidecar"
MODES = (SIDECAR, "fleet")


def _one_of(*names: str) -> Callable[[click.Context, click.Parameter, str], str]:
    def check(_: click.Context, __: click.Parameter, value: str) -> str:
        if value not in names:
            raise click.BadParameter(f"found {value!r}, expected {', '.join(names[:-1])} or {names[-1]}")
        return value

    return check


@click.command()
@click.option("--fast", is_flag=True, help="Shorten every wait, as CI wants it.")
@click.option("--keep", is_flag=True, help="Stay up afterwards, to look around with kubectl.")
@click.option(
    "--cloud",
    metavar=f"[{'|'.join(CLOUDS)}]",
    callback=_one_of(*CLOUDS),
    default="aws",
    show_default=True,
    help="Whose machines are simulated: Neuron on AWS, GPUs on AWS, on Azure or on bare metal.",
)
@click.option(
    "--mode",
    metavar=f"[{'|'.join(MODES)}]",
    callback=_one_of(*MODES),
    default=SIDECAR,
    show_default=True,
    help="How node-recovery runs: an agent on each node, or one controller for forty GPU nodes on AWS.",
)
@click.option("--observe", is_flag=True, help="Recovery is off, as it ships: see what would be done.")
def demo(fast: bool, keep: bool, cloud: str, mode: str, observe: bool) -> None:
    """Break a simulated node and watch real agents recover it. All of it runs on this machine alone.

    In a clone, `make demo` installs what it needs and runs it.
    """
    from recovery_demo import demo as run_demo

    sys.exit(run_demo(fast=fast, keep=keep, cloud=cloud, mode=mode, observe=observe))
