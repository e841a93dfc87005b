"""The command ``node-recovery demo``: the agent's program finds it by its entry point."""

from __future__ import annotations

import sys

import click


def _cloud(_: click.Context, __: click.Parameter, value: str) -> str:
    if value not in ("aws", "azure", "baremetal"):
        raise click.BadParameter(f"found {value!r}, expected aws, azure or baremetal")
    return value


@click.command()
@click.option("--fast", is_flag=True, help="Shorten every wait, as CI wants it.")
@click.option("--keep", is_flag=True, help="Stay up afterwards, to look around with kubectl.")
@click.option(
    "--cloud",
    metavar="[aws|azure|baremetal]",
    callback=_cloud,
    default="aws",
    show_default=True,
    help="Whose machines are simulated.",
)
def demo(fast: bool, keep: bool, cloud: str) -> None:
    """Break a simulated node and watch real agents recover it. All of it runs on this machine alone.

    In a clone, `make demo` installs what it needs and runs it.
    """
    from recovery_demo import demo as run_demo

    sys.exit(run_demo(fast=fast, keep=keep, cloud=cloud))
