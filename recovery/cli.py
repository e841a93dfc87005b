"""The command ``node-recovery``. Exit codes: 0 done, 1 failure, 2 wrong settings or usage."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

import click

from recovery.errors import NodeRecoveryError, SettingsError
from recovery.model import Step

DONE, FAILURE, USAGE, INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A command may also end the process by ``SystemExit``."""
    try:
        code = group.main(None if argv is None else list(argv), "node-recovery", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SettingsError as error:
        return _complain(error.mistakes, USAGE)
    except NodeRecoveryError as error:
        return _complain([str(error)], FAILURE)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # Who read the output has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE


def _complain(sentences: Sequence[str], code: int) -> int:
    for sentence in sentences:
        click.echo(sentence, err=True)
    return code


@click.group(name="node-recovery", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="node-recovery", prog_name="node-recovery", message="%(prog)s %(version)s")
def group() -> None:
    """Gets a broken accelerated node out of the way and a good one back.

    It reads what node-problem-detector says of a node, decides by a policy, and drains and replaces,
    reimages, redeploys or cordons the node within a budget that all agents share. Environment variables and
    a policy file tell it how; with ENABLE_RECOVERY=false, the default, it only says what it would do.

    \b
    node-recovery demo                      see it work, with nothing installed
    node-recovery policy check FILE         is this policy right?
    ENABLE_RECOVERY=true node-recovery run  the agent, beside node-problem-detector
    """


@group.command()
def run() -> None:
    """Run the agent until it is stopped. Settings come from the environment."""
    from recovery.run import run as run_agent

    sys.exit(run_agent(os.environ))


@group.command()
@click.option("--fast", is_flag=True, help="Shorten every wait, as CI wants it.")
@click.option("--keep", is_flag=True, help="Stay up afterwards, to look around with kubectl.")
@click.option(
    "--cloud",
    type=click.Choice(["aws", "azure", "baremetal"]),
    default="aws",
    show_default=True,
    help="Whose machines are pretended.",
)
def demo(fast: bool, keep: bool, cloud: str) -> None:
    """Break a pretended node and watch it come back, on this machine alone."""
    from recovery.demo import demo as run_demo

    sys.exit(run_demo(fast=fast, keep=keep, cloud=cloud))


@group.group()
def policy() -> None:
    """Check policy files, and describe them to other tools."""


@policy.command()
@click.argument("file", type=click.Path())
@click.option("--provider", metavar="NAME", help="Check also that this provider can do every step.")
def check(file: str, provider: str | None) -> None:
    """Say everything that is wrong with the policy FILE, or what is in it.

    Mistakes go to standard error, and the exit code is 2. Warnings do not change the exit code.
    """
    from recovery.policy_file import check_for, load_policy

    loaded = load_policy(file)
    actions = _actions_of(provider) if provider else frozenset(Step)
    if mistakes := check_for(loaded, actions, provider or "", mode="sidecar"):
        raise SettingsError(mistakes)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    rules, limits = len(loaded.policy.rules), loaded.policy.limits
    count = f"{rules} rule" if rules == 1 else f"{rules} rules"
    click.echo(f"{file}: a valid policy: {count}, budget {limits.budget}, brake {limits.brake}")


def _actions_of(provider: str) -> frozenset[Step]:
    from recovery.clock import SystemClock
    from recovery.provider import ProviderContext, load_provider

    return load_provider(provider, ProviderContext(SystemClock(), os.environ)).actions


@policy.command()
def schema() -> None:
    """Print the JSON schema of policy files, for editors and CI."""
    from recovery.policy_file import schema as policy_schema

    click.echo(json.dumps(policy_schema(), indent=2, ensure_ascii=False))
