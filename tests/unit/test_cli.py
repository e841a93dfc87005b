"""The command line: what it prints where, and its exit codes 0, 1 and 2."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from recovery.cli import COMMANDS, NAME, PLUGIN, group, main
from recovery.console.output import say, styled
from recovery.errors import Refused, SettingsError

GOOD = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\nrules: [{name: a, match: {}}]\n"
BAD = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\nrules:\n  - {name: a, mach: {}}\n"


@pytest.fixture
def policy(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "policy.yaml"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a function in a module that others write."""

    def put(module: str, name: str, function: Callable[..., object]) -> None:
        fake = ModuleType(module)
        setattr(fake, name, function)
        monkeypatch.setitem(sys.modules, module, fake)

    return put


def command(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "recovery", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environ,
        check=False,
    )


def test_help_says_what_to_do_first() -> None:
    result = CliRunner().invoke(group, ["--help"])
    assert result.exit_code == 0
    for word in ("node-recovery demo", "policy check FILE", "ENABLE_RECOVERY", "run"):
        assert word in result.output


def paths(command: click.Command, *above: str) -> list[list[str]]:
    if not isinstance(command, click.Group):
        return [list(above)]
    return [list(above), *(p for name, child in command.commands.items() for p in paths(child, *above, name))]


@pytest.mark.parametrize("path", paths(group)[1:])
def test_every_command_explains_itself(path: list[str]) -> None:
    result = CliRunner().invoke(group, [*path, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: node-recovery {' '.join(path)}")


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("node-recovery 0.")


@pytest.mark.parametrize("called", ["kubectl-node_recovery", "C:\\bin/kubectl-node_recovery.exe"])
def test_as_a_plugin_of_kubectl_it_names_itself_as_it_is_typed(
    called: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [called])
    assert main(["release", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: kubectl node-recovery release [OPTIONS] NODE\n")


def test_kubectl_finds_it_under_the_name_that_is_installed() -> None:
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {NAME: "recovery.cli:main", PLUGIN: "recovery.cli:main"}


@pytest.mark.parametrize(
    ("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=str
)
def test_no_colour_is_printed_where_the_terminal_or_its_user_wants_none(
    environ: dict[str, str],
    coloured: bool,
    pretend: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("click._compat.isatty", lambda stream: True)
    pretend("recovery.console.status", "status", lambda *_: say(styled("handedOver", fg="red")))
    assert main(["status"]) == 0
    assert capsys.readouterr().out == ("\x1b[31mhandedOver\x1b[0m\n" if coloured else "handedOver\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("node-recovery un", {"uninstall"}),
        ("node-recovery status --con", {"--context"}),
        ("node-recovery status -o ", {"human", "wide", "json", "yaml"}),
    ],
)
def test_a_shell_is_told_how_a_command_goes_on(line: str, offered: set[str]) -> None:
    """As the function asks that ``_NODE_RECOVERY_COMPLETE=bash_source node-recovery`` writes."""
    words = {
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
        "_NODE_RECOVERY_COMPLETE": "bash_complete",
    }
    said = command(**words).stdout.split()
    assert {word.partition(",")[2] for word in said} == offered


def test_a_good_policy_is_summed_up(policy: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    path = policy(GOOD)
    assert main(["policy", "check", path]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}: a valid policy: 1 rule, budget 1, brake 30%\n"
    assert err == ""


def test_warnings_are_told_and_change_nothing(
    policy: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = policy(GOOD.replace("{name: a, match: {}}", ""))
    assert main(["policy", "check", path]) == 0
    out, err = capsys.readouterr()
    assert "a valid policy: 0 rules" in out
    assert err == f"warning: {path}:3: field rules: there are none, so every fault is only reported\n"


def test_every_mistake_of_a_policy_goes_to_standard_error(
    policy: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = policy(BAD)
    assert main(["policy", "check", path]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"{path}:4: field rules[0].mach: unknown, expected one of name, match, after, hold, latch, witness, "
        'budget, windows, urgent, remedy, probation, validate; did you mean "match"?',
        f"{path}:4: field rules[0].match: missing",
    ]


def test_a_mistake_of_a_policy_is_one_line_whatever_its_keys_are(
    policy: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    forged = GOOD.replace("match: {}", r'match: {}, "x\nx: a valid policy: \e[30m": {}')
    assert main(["policy", "check", policy(forged)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert r"x\nx: a valid policy: \x1b[30m" in line


def test_a_policy_is_checked_against_a_provider(
    policy: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = policy(GOOD.replace("match: {}", "match: {}, remedy: [{do: reimage}]"))
    assert main(["policy", "check", path, "--provider", "baremetal"]) == 2
    told = capsys.readouterr().err
    assert "which provider baremetal cannot do; its actions are none (BAREMETAL_POWER is none; set it" in told


def test_a_provider_that_is_not_installed_is_a_mistake(
    policy: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "check", policy(GOOD), "--provider", "none"]) == 2
    assert "PROVIDER=none: there is no such provider" in capsys.readouterr().err


def test_a_budget_that_sidecars_cannot_share_is_a_mistake(
    policy: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "check", policy(GOOD + "limits: {budget: 51}\n")]) == 2
    assert "expected at most 50 in sidecar mode" in capsys.readouterr().err


def test_what_provider_and_mode_cannot_do_is_told_beside_every_other_mistake(
    policy: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    remedy = "remedy: [{do: drian}, {do: reimage}, {do: [replace]}]"
    text = GOOD.replace("match: {}", f"match: {{}}, witness: dcgm, {remedy}")
    path = policy(text + "limits: {budget: 51, cooldown: 2x}\nsources: [npd, api, 7]\n")
    assert main(["policy", "check", path, "--provider", "aws"]) == 2
    told = capsys.readouterr().err
    for sentence in (
        'rules[0].remedy[0].do: found "drian"',
        'rules[0].remedy[1].do: found "reimage", which provider aws cannot do',
        "rules[0].remedy[2].do: ",
        "limits.budget: found 51, expected at most 50",
        'limits.cooldown: found "2x"',
        'sources[1]: found "api", which works only in fleet mode',
        "sources[2]: ",
    ):
        assert told.count(f"field {sentence}") == 1, sentence


def test_the_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["kind"]["const"] == "RecoveryPolicy"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["polcy"], "No such command 'polcy'"),
        (["policy", "check"], "Missing argument 'FILE'"),
        (["demo", "--cloud", "gcp"], "found 'gcp', expected aws, aws-gpu, azure or baremetal"),
        (["demo", "--mode", "fleets"], "found 'fleets', expected sidecar or fleet"),
        (["run", "--fast"], "No such option"),
        (["report", "--since", "1" * 5000 + "d"], "expected a duration such as 30m, 2h or 1h30m, up to 366"),
        (["report", "--since", "d"], "expected a duration such as 30m, 2h or 1h30m, up to 366"),
    ],
)
def test_wrong_usage_is_exit_code_two(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (SettingsError(["A: wrong", "B: wrong"]), 2, "A: wrong\nB: wrong\n"),
        (Refused("the machine's owner says no"), 1, "the machine's owner says no\n"),
        (KeyboardInterrupt(), 130, "\n"),
        (click.Abort(), 130, ""),
    ],
    ids=repr,
)
def test_an_error_is_a_sentence_and_an_exit_code(
    error: BaseException,
    code: int,
    told: str,
    pretend: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(environ: object) -> int:
        raise error

    pretend("recovery.agent.program", "run", run)
    assert main(["run"]) == code
    assert capsys.readouterr().err == told


def test_a_bug_is_not_hidden(pretend: Callable[..., None]) -> None:
    def run(environ: object) -> int:
        raise ZeroDivisionError

    pretend("recovery.agent.program", "run", run)
    with pytest.raises(ZeroDivisionError):
        main(["run"])


@pytest.mark.parametrize("code", [0, 1])
def test_the_agents_exit_code_is_the_commands(code: int, pretend: Callable[..., None]) -> None:
    seen: list[object] = []

    def run(environ: object) -> int:
        seen.append(environ)
        return code

    pretend("recovery.agent.program", "run", run)
    with pytest.raises(SystemExit) as ended:
        main(["run"])
    assert ended.value.code == code
    assert seen == [os.environ]


def test_the_demo_is_given_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def demo(**options: object) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr("recovery_demo.demo", demo)
    with pytest.raises(SystemExit):
        main(["demo", "--fast", "--cloud", "azure"])
    assert seen == [{"fast": True, "keep": False, "cloud": "azure", "mode": "sidecar", "observe": False}]


def test_the_command_of_the_demo_explains_itself_too() -> None:
    result = CliRunner().invoke(group, ["demo", "--help"])
    assert result.exit_code == 0
    assert result.output.startswith("Usage: node-recovery demo")


# ---------------------------------------------------------------- commands of other distributions

Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Let there be these commands of other distributions, and no more: their names, and where they are."""

    def install(**commands: str) -> None:
        entries = EntryPoints(EntryPoint(name, where, COMMANDS) for name, where in commands.items())
        monkeypatch.setattr("recovery.cli.entry_points", lambda **wanted: entries.select(**wanted))

    return install


def test_a_command_of_another_distribution_runs(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(other="recovery.cli:policy")
    assert main(["other", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["kind"]["const"] == "RecoveryPolicy"


@pytest.mark.parametrize("options", [[], ["--fast"], ["--cloud", "azure"], ["--help"]], ids=str)
def test_without_its_distribution_the_demo_says_how_to_get_it(
    options: list[str], install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install()
    assert main(["demo", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "Error: The demo is a distribution of its own, node-recovery-demo, and is not installed here. Run "
        "`make demo` in a clone of the repository, or install it from there: pip install . ./testkit ./demo\n"
    )


def test_a_demo_that_is_not_there_is_not_among_the_commands(install: Install) -> None:
    install()
    listed = CliRunner().invoke(group, ["--help"]).output.split("Commands:")[1]
    assert {line.split()[0] for line in listed.splitlines() if line.strip()} == set(group.commands)


BROKEN = {
    "no_such_module:command": "ModuleNotFoundError: No module named 'no_such_module'",
    "recovery.cli:none": "AttributeError: module 'recovery.cli' has no attribute 'none'",
    "recovery.cli:main": "recovery.cli:main is no click.Command",
}


@pytest.mark.parametrize(("where", "why"), BROKEN.items())
def test_a_foreign_command_that_cannot_be_imported_is_a_sentence(
    where: str, why: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(other=where)
    assert main(["other", "--fast", "x"]) == 1
    module = where.split(":")[0]
    assert capsys.readouterr().err == (
        f"Error: other cannot be imported from {module} ({why}); install {module} again\n"
    )


@pytest.mark.parametrize("where", BROKEN)
def test_a_foreign_command_that_cannot_be_imported_does_not_break_the_help(
    where: str, install: Install
) -> None:
    install(other=where)
    result = CliRunner().invoke(group, ["--help"], terminal_width=400)
    assert result.exit_code == 0
    (line,) = [line.strip() for line in result.output.splitlines() if line.strip().startswith("other")]
    assert "cannot be imported" in line


@pytest.mark.parametrize("name", ["run", "policy", "status"])
def test_a_foreign_command_cannot_replace_one_of_ours(name: str, install: Install) -> None:
    install(**{name: "no_such_module:command"})
    result = CliRunner().invoke(group, [name, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: node-recovery {name}")
    assert group.get_command(click.Context(group), name) is group.commands[name]


@pytest.mark.slow
def test_a_process_ends_with_zero_for_a_good_policy(policy: Callable[[str], str]) -> None:
    result = command("policy", "check", policy(GOOD))
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.slow
def test_a_process_ends_with_two_for_a_bad_policy(policy: Callable[[str], str]) -> None:
    result = command("policy", "check", policy(BAD))
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 2


@pytest.mark.slow
def test_a_reader_that_goes_away_is_met_with_silence() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "recovery", "policy", "schema"],
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)
    assert result.stderr == b""
    assert result.returncode in (1, -signal.SIGPIPE)


@pytest.mark.slow
def test_the_pure_core_needs_neither_click_nor_pydantic() -> None:
    program = (
        "import sys, recovery.model, recovery.errors, recovery.units, recovery.catalog\n"
        "import recovery.decide.own_node\n"
        "print(sorted({'click', 'pydantic', 'pydantic_settings', 'kubernetes'} & set(sys.modules)))"
    )
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout == "[]\n"


@pytest.mark.parametrize(
    "name", ["", "../../../api/v1/secrets", "a/status", "a?watch=1", "-a", "a b", "A", "a" * 254]
)
@pytest.mark.parametrize(
    "command",
    [["explain"], ["release", "--yes"], ["inject", "--fault", "GpuHang", "--yes"], ["doctor", "--node"]],
)
def test_what_can_be_no_name_of_a_node_is_refused_before_anything_is_asked(
    command: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be another path at the API server."""
    given = [*command, name] if command[0] == "doctor" else [*command, "--", name]
    if command[0] == "doctor" and not name:
        return  # no node: only the cluster is looked at
    assert main(given) == 2
    assert "expected the name of a Node" in capsys.readouterr().err


def test_an_address_that_is_none_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--prometheus", "prometheus"]) == 2
    assert "'--prometheus': expected an http:// or https:// URL" in capsys.readouterr().err
