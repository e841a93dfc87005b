"""The command ``node-recovery``. Exit codes: 0 done, 1 failure, 2 wrong settings or usage."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import click

from recovery.console import values
from recovery.console.options import cluster_command, output_option, yes_option
from recovery.console.output import say
from recovery.errors import ApiError, NodeRecoveryError, SettingsError
from recovery.kube.kubeconfig import Target
from recovery.model import Step

DONE, FAILURE, USAGE, INTERRUPTED = 0, 1, 2, 130
COMMANDS = "node_recovery.commands"
NAME, PLUGIN = "node-recovery", "kubectl-node_recovery"
"""The program's name, and that under which kubectl finds it: an underscore is a dash there."""
REFUSED = {
    401: "The cluster does not accept your credentials: log in again. kubectl auth whoami shows who you are.",
    403: "Your user lacks this right. An administrator can bind it to one of the ClusterRoles "
    "node-recovery-viewer, -operator and -explain; docs/commands.md lists the rights of each command.",
}
"""HTTP status of the API server's answer -> what to do about it."""
UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""How a write to standard output fails. The error of a file that is opened has the file's name."""
NO_DEMO = (
    "The demo is a distribution of its own, node-recovery-demo, and is not installed here. Run `make demo` "
    "in a clone of the repository, or install it from there: pip install . ./testkit ./demo"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A command may also end the process by ``SystemExit``."""
    try:
        given = None if argv is None else list(argv)
        code = group.main(
            given,
            _called(),
            complete_var="_NODE_RECOVERY_COMPLETE",
            standalone_mode=False,
            color=_colour(),  # of the context, in which all is printed
        )
        return _told(code if isinstance(code, int) else DONE)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SettingsError as error:
        return _complain(error.mistakes, USAGE)
    except NodeRecoveryError as error:
        return _complain([str(error), *_what_to_do(error)], FAILURE)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        _silence()  # the reader (head, less) has gone
        return FAILURE
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        _silence()
        return _untold(error.strerror or str(error))


def _told(code: int) -> int:
    """The exit code of a command that has printed what it had to say, or could not."""
    if sys.stdout is None:  # it was closed when the program started
        return _untold("it is closed", code or FAILURE)
    sys.stdout.flush()
    return code


def _untold(why: str, code: int = FAILURE) -> int:
    sentence = f"standard output takes nothing: {why}. What the command changed, if anything, is changed"
    return _complain([f"{sentence}; what it had to say is lost"], code)


def _silence() -> None:
    """Python flushes standard output once more when it exits, and would complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _colour() -> bool | None:
    """False where nobody wants colours; None: on a terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _called() -> str:
    """The name by which the user called it."""
    return "kubectl node-recovery" if Path(sys.argv[0]).stem == PLUGIN else NAME


def _what_to_do(error: NodeRecoveryError) -> list[str]:
    """What follows the API server's own words, where these do not say it."""
    advice = REFUSED.get(error.status) if isinstance(error, ApiError) else None
    return [advice] if advice else []


def _complain(sentences: Sequence[str], code: int) -> int:
    for sentence in sentences:
        say(sentence, err=True)
    return code


class _Commands(click.Group):
    """The commands of this program, and those of other distributions (entry points of the group
    ``node_recovery.commands``). They are imported when asked for, and cannot replace one of ours."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *(e.name for e in entry_points(group=COMMANDS))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (ours := super().get_command(ctx, cmd_name)) is not None:
            return ours
        for entry in entry_points(group=COMMANDS, name=cmd_name):
            return _foreign(entry)
        return _failing("demo", NO_DEMO, USAGE) if cmd_name == "demo" else None


def _foreign(entry: EntryPoint) -> click.Command:
    """The command of another distribution. If it cannot be imported, ``--help`` must work all the same."""
    try:
        command = entry.load()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        if isinstance(command, click.Command):
            return command
        problem = f"{entry.value} is no click.Command"
    beside = entry.dist.name if entry.dist is not None else entry.module
    sentence = f"{entry.name} cannot be imported from {beside} ({problem}); install {beside} again"
    return _failing(entry.name, sentence, FAILURE)


def _failing(name: str, sentence: str, code: int) -> click.Command:
    """A command that takes any arguments, prints ``sentence`` and ends with the exit code ``code``."""

    def fail(_: Sequence[str]) -> int:
        return _complain([f"Error: {sentence}"], code)

    anything = click.Argument(["_"], nargs=-1, type=click.UNPROCESSED)
    return click.Command(
        name,
        params=[anything],
        callback=fail,
        short_help=sentence,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
    )


@click.group(name=NAME, cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=NAME, prog_name=NAME, message="%(prog)s %(version)s")
def group() -> None:
    """Gets a broken accelerated node out of the way and a good one back.

    It reads what node-problem-detector says of a node, decides by a policy, and drains and replaces or
    reboots the node, or cordons it, within a budget that all agents share. It is configured by environment
    variables and a policy file. With ENABLE_RECOVERY=false, the default, it only says what it would do.

    \b
    node-recovery demo                      see it work, without a cluster (in a clone: make demo)
    node-recovery policy check FILE         is this policy right?
    node-recovery doctor                    what is missing for recovery to work here?
    node-recovery report --since 7d         what would have been done, with recovery off
    node-recovery explain NODE              why was this node replaced, or why not?
    node-recovery pause --for 2h --reason "upgrade of the network"
    ENABLE_RECOVERY=true node-recovery run  the agent, beside node-problem-detector
    """


@group.command()
def run() -> None:
    """Run the agent until it is stopped. Settings come from the environment."""
    from recovery.agent.program import run as run_agent

    sys.exit(run_agent(os.environ))


@group.command(name="npd-token")
def npd_token() -> None:
    """Write a token for node-problem-detector, and end: for the pod's init container.

    It is a token of the account NPD_ACCOUNT, for the Node NODE_NAME and for six hours. The agent (`run`)
    keeps it fresh. Without an answer in ten seconds it says why, writes a placeholder and ends with exit
    code 0: the agent goes on trying. Settings come from the environment.
    """
    import logging

    from recovery.agent.npd_token import give

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    give(os.environ)


# ---------------------------------------------------------------- for people


@group.command()
@click.option("--all", "every", is_flag=True, help="Closed records too.")
@cluster_command
def status(every: bool, target: Target, output: str) -> None:
    """What is being recovered, what waits, and what holds all of it.

    A line for each open record, each node in a person's hands, each whose open record somebody deleted, and,
    where recovery is off, each fault that is there now with what would be done about it. Then who has a slot
    of the budget, who waits for one, the pause, and the last count of sick nodes, which the brake uses.
    """
    from recovery.console.status import status as show

    show(every, target, output)


@group.command()
@click.option(
    "--since",
    "length",
    metavar="DURATION",
    default="7d",
    show_default=True,
    callback=values.days,
    help="How far back, such as 24h or 30d.",
)
@cluster_command
def report(length: timedelta, target: Target, output: str) -> None:
    """What was seen with ENABLE_RECOVERY=false, and what would have been done about it.

    A line for each fault of each machine: what would have been done, what would have held it, and whether it
    became well by itself. It is kept in the cluster, for as long as closed records are (30 days). What is
    done with recovery on is on the records: `status --all`.
    """
    from recovery.console.report import report as show

    show(length, target, output)


@group.command()
@click.argument("node", callback=values.node)
@cluster_command
def explain(node: str, target: Target, output: str) -> None:
    """Why was NODE replaced, or why not? In one sentence, and the facts under it.

    Asks the agent on the node through the API server, so it works with ENABLE_RECOVERY=false too; your user
    needs `list` on pods and clusterrolebindings for that, and in the agents' namespace `get` on pods/proxy
    and `create` on serviceaccounts/token. Without an answer it uses the record and the Node.
    """
    from recovery.console.explain import explain as show

    show(node, target, output)


@group.command()
@click.option(
    "--for", "length", metavar="DURATION", callback=values.duration, required=True, help="Such as 30m or 2h."
)
@click.option("--reason", required=True, callback=values.words, help="Why: everybody who asks will read it.")
@click.option(
    "--owner", default="", callback=values.words, help="Who; the default is your user name at the API server."
)
@yes_option
@cluster_command
def pause(length: timedelta, reason: str, owner: str, assume_yes: bool, target: Target, output: str) -> None:
    """Stop every destructive step that has not begun, on all nodes, for a while.

    It ends by itself. Observing, proving, uncordoning and cleaning up go on. A pause that ends later than
    yours is left as it is.
    """
    from recovery.console.pause import pause as do

    if not reason:
        raise click.BadParameter("found nothing, expected a few words", param_hint="--reason")
    do(length, reason, owner, assume_yes, target, output)


@group.command()
@click.argument("reason", callback=values.text)
@click.option(
    "--for",
    "length",
    metavar="DURATION",
    default="2h",
    show_default=True,
    callback=values.duration,
    help="For how long.",
)
@yes_option
@cluster_command
def approve(reason: str, length: timedelta, assume_yes: bool, target: Target, output: str) -> None:
    """Let recoveries for REASON start, although they are held as correlated.

    If a fault begins at the same time on machines that share a rack, an image or the like, it is held:
    recovering them one by one may repair none. `status` says what they share. Budget and brake still apply.
    """
    from recovery.console.approve import approve as do

    if not reason:
        raise click.BadParameter("found nothing, expected the reason of a fault", param_hint="REASON")
    do(reason, length, assume_yes, target, output)


@group.command()
@yes_option
@cluster_command
def resume(assume_yes: bool, target: Target, output: str) -> None:
    """End the pause."""
    from recovery.console.pause import resume as do

    do(assume_yes, target, output)


@group.command()
@click.argument("node", callback=values.node)
@click.option("--reason", default="", callback=values.words, help="Why, for the record.")
@yes_option
@cluster_command
def release(node: str, reason: str, assume_yes: bool, target: Target, output: str) -> None:
    """Give NODE back to service: one that is held, handed over or abandoned.

    Takes node-recovery's cordon and taint off, frees the place in the budget and closes the record. The same
    fault starts nothing again until the machine boots or is replaced, or it is stated anew. While what was
    asked of the cloud is under way, NODE is not released. What was handed over and may still come is taken
    back by an agent first; if that cannot be done, the release is refused.
    """
    from recovery.console.release import release as do

    do(node, reason, assume_yes, target, output)


@group.command()
@click.argument("node", callback=values.node)
@click.option(
    "--fault",
    "reason",
    metavar="REASON",
    default="",
    callback=values.text,
    help="The reason, as a rule matches it.",
)
@click.option(
    "--type",
    "type_",
    metavar="TYPE",
    default="",
    callback=values.text,
    help="The condition; the default is the catalogue's.",
)
@click.option(
    "--for",
    "length",
    metavar="DURATION",
    default="10m",
    show_default=True,
    callback=values.duration,
    help="Then it is over by itself; at most 15m.",
)
@click.option("--really", is_flag=True, help="Also where recovery is on, and would act on it.")
@click.option("--remove", "off", is_flag=True, help="Take the drill off NODE; with --type only that one.")
@yes_option
@cluster_command
def inject(
    node: str,
    reason: str,
    type_: str,
    length: timedelta,
    really: bool,
    off: bool,
    assume_yes: bool,
    target: Target,
    output: str,
) -> None:
    """Make a marked test fault on NODE: a drill, on any hardware.

    Writes a condition of the Node that says that it is a drill, who made it and when it ends. It needs the
    source `conditions`, which is on by default. It is refused if recovery is on for the node, or if that is
    not known. With recovery off, `explain` and `report` then show what would be done.
    """
    from recovery.console.inject import inject as do
    from recovery.console.inject import remove

    if off:
        remove(node, type_, assume_yes, target, output)
        return
    if not reason:
        raise click.BadParameter("found nothing, expected the reason of a fault", param_hint="--fault")
    do(node, reason, type_, length, really, assume_yes, target, output)


@group.command()
@click.argument("file", type=click.Path(), required=False, envvar="POLICY_FILE")
@click.option(
    "--prometheus",
    "url",
    metavar="URL",
    envvar="PROMETHEUS_URL",
    required=True,
    callback=values.server,
    help="The Prometheus server; the default is PROMETHEUS_URL.",
)
@values.file_option(
    "--token-file", "PROMETHEUS_TOKEN_FILE", "A bearer token for it; the default is {}.", values.token_file
)
@values.file_option(
    "--ca-file",
    "PROMETHEUS_CA_FILE",
    "Whom to trust for it; the default is {}, or the system's list.",
    values.ca_file,
)
@click.option(
    "--since",
    "length",
    metavar="DURATION",
    default="7d",
    show_default=True,
    callback=values.days,
    help="Such as 30d.",
)
@click.option(
    "--step",
    metavar="DURATION",
    default="1m",
    show_default=True,
    callback=values.duration,
    help="How often to look at what was recorded.",
)
@click.option("--provider", metavar="NAME", help="The provider whose default remedy a rule without one gets.")
@click.option(
    "--cluster",
    is_flag=True,
    help="Take the labels and addresses of nodes from your cluster (lists nodes).",
)
@cluster_command
def replay(
    file: str | None,
    url: str,
    token_file: str,
    ca_file: str,
    length: timedelta,
    step: timedelta,
    provider: str | None,
    cluster: bool,
    target: Target,
    output: str,
) -> None:
    """What would the policy FILE have done about what Prometheus has recorded?

    Asks Prometheus for the past of the policy's source `prometheus`, and of `npd` where its page is scraped.
    Each fault goes through the same core as in an agent, and is printed as by `report`. It changes nothing,
    and needs no agent. The default policy is that of POLICY_FILE, or the built-in one.
    """
    from recovery.config.policy_file import load_builtin, load_policy
    from recovery.console.replay import begun, nodes_of
    from recovery.console.replay import replay as do
    from recovery.console.unstarted import facts_of
    from recovery.signals.prometheus_http import PrometheusClient

    loaded = load_policy(file) if file else load_builtin()
    facts = facts_of(provider) if provider else None
    what = begun(loaded, length, step, facts, nodes_of(target) if cluster else None)
    do(what, PrometheusClient(url, token_file, ca_file, timeout=60.0), output)


@group.command()
@click.option("--dry-run", "dry", is_flag=True, help="Say what would be done, and change nothing.")
@yes_option
@cluster_command
def uninstall(dry: bool, assume_yes: bool, target: Target, output: str) -> int:
    """Remove node-recovery's marks from every node. Run it before its manifests are deleted.

    It pauses recovery for a day, so that no agent begins anything more, and ends open recoveries as `release`
    does. Then it removes node-recovery's own cordons, taints and annotations, and no others, even if records
    or CRDs are gone. It names what cannot be ended yet, such as a replacement under way: run it again later.
    The exit code is 1 if something is left. `resume` undoes the pause.
    """
    from recovery.console.uninstall import uninstall as do

    return do(assume_yes, dry, target, output)


@group.command()
@click.option(
    "--node",
    metavar="NAME",
    default="",
    callback=values.node_if_any,
    help="The node to look at; the default is NODE_NAME.",
)
@click.option(
    "--service-account",
    metavar="NAMESPACE/NAME",
    default="",
    callback=values.account,
    help="Whose rights to ask for; the default is the agent's own.",
)
@cluster_command
def doctor(node: str, service_account: str, target: Target, output: str) -> int:
    """What is missing for recovery to work here?

    Looks at settings, policy, node-problem-detector, the Node, the CRDs, the agent's rights, and at what the
    provider needs: its permissions in the cloud, the machine's group. Prints a line for each, and what to do
    if something is missing. It changes nothing. It sees most in the agent's pod:

    \b
    kubectl -n NAMESPACE exec POD -c node-recovery -- node-recovery doctor
    node-recovery doctor --node NAME   from a laptop

    Marks: a tick is fine, ! is fine with advice, a cross is missing, ? could not be asked. The exit code is 1
    if recovery could not work, and 2 if wrong settings are the reason.
    """
    from recovery.console.doctor.command import doctor as look

    return look(node, service_account, target, output)


@group.group()
def policy() -> None:
    """Check policy files, and describe them to other tools."""


@policy.command()
@click.argument("file", type=click.Path())
@click.option("--provider", metavar="NAME", help="Check also that this provider can do every step.")
@click.option(
    "--mode",
    type=click.Choice(["sidecar", "fleet", "concluder"]),
    default="sidecar",
    envvar="RECOVERY_MODE",
    help="Check it for this RECOVERY_MODE; the default is that of the environment, or sidecar.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Say also what in it limits nothing in your cluster (lists nodes and pods).",
)
@cluster_command
def check(file: str, provider: str | None, mode: str, output: str, cluster: bool, target: Target) -> None:
    """Say everything that is wrong with the policy FILE, or what is in it.

    Mistakes go to standard error, and the exit code is 2. Warnings do not change the exit code. With -o yaml
    or json the policy is printed with every default, as a policy file. What a rule leaves to the catalogue
    and the provider (remedy, hold, latch) differs by fault and stays out. With --cluster the warnings also
    name label keys that no node has, rules that no node can match, and deadlines of a drain that are shorter
    than its pods may take to end.
    """
    from recovery.config.policy_able import beyond_mode, beyond_provider
    from recovery.config.policy_file import load_policy, warnings_in
    from recovery.config.policy_print import printed

    actions, note = _able(provider, mode) if provider else (frozenset(Step), "")
    loaded = load_policy(
        file, lambda it: beyond_provider(it, actions, provider or "", note) + beyond_mode(it, mode)
    )
    for warning in (*loaded.warnings, *warnings_in(loaded, mode)):
        say(f"warning: {warning}", err=True)
    if cluster:
        from recovery.console.api import connect
        from recovery.console.policy_cluster import findings

        for finding in findings(connect(target), loaded, mode):
            say(f"warning: {finding}", err=True)
    if output in ("json", "yaml"):
        click.echo(printed(loaded.model, output))
        return
    rules, limits = len(loaded.policy.rules), loaded.policy.limits
    count = f"{rules} rule" if rules == 1 else f"{rules} rules"
    say(f"{file}: a valid policy: {count}, budget {limits.budget}, brake {limits.brake}")


@policy.command(name="test")
@click.argument("file", type=click.Path())
@output_option
def test_(file: str, output: str) -> int:
    """Run the cases in FILE: does the policy beside it do what they expect?

    Exit code 0: all passed, 1: some failed, 2: the file or its policy is wrong.
    """
    from recovery.console.policy_test import run as run_cases

    return run_cases(file, output)


def _able(provider: str, mode: str) -> tuple[frozenset[Step], str]:
    from recovery.clock import SystemClock
    from recovery.provider.protocol import ProviderContext, abilities_of, load_provider

    context = ProviderContext(SystemClock(), {**os.environ, "RECOVERY_MODE": mode})
    able = abilities_of(load_provider(provider, context), None)
    return able.actions, able.note


@policy.command()
def schema() -> None:
    """Print the JSON schema of policy files, for editors and CI."""
    from recovery.config.policy_file import schema as policy_schema

    click.echo(json.dumps(policy_schema(), indent=2, ensure_ascii=False))
