"""Which cluster a command talks to: --context and --kubeconfig, as kubectl takes them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from recovery_testkit.clock import FakeClock

from recovery import cli
from recovery.errors import SettingsError
from recovery.kube.kubeconfig import USUAL, Place, Target, host, is_usual, place
from recovery.kube.transport import KubernetesTransport

CLUSTERS = 'clusters: [{name: a, cluster: {server: "https://dev:6443"}}, {name: b, cluster: {server: "https://prod"}}]'
TWO = f"""\
apiVersion: v1
kind: Config
current-context: dev
{CLUSTERS}
users: [{{name: u, user: {{token: t}}}}]
contexts:
  - {{name: dev, context: {{cluster: a, user: u}}}}
  - {{name: prod, context: {{cluster: b, user: u, namespace: guards}}}}
"""
DEV, PROD = Place("dev", "dev:6443"), Place("prod", "prod", "guards")
CLUSTER_COMMANDS = {"approve", "doctor", "explain", "pause", "release", "resume", "status"}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a kubeconfig; the first one is KUBECONFIG's."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def written(text: str = TWO, name: str = "config") -> Path:
        file = tmp_path / name
        file.write_text(text)
        if name == "config":
            monkeypatch.setenv("KUBECONFIG", str(file))
        return file

    return written


def test_without_options_it_is_the_current_context_of_the_kubeconfig(write: Write) -> None:
    write()
    assert place(USUAL) == DEV
    assert is_usual(USUAL, DEV)


def test_the_context_that_is_named_is_taken_with_its_server_and_namespace(write: Write) -> None:
    write()
    assert place(Target("prod")) == PROD
    made = KubernetesTransport(FakeClock(), Target("prod"))
    assert (made.place, made.namespace, made._client.configuration.host) == (PROD, "guards", "https://prod")
    assert not is_usual(Target("prod"), PROD)


def test_naming_the_current_context_is_nothing_unusual(write: Write) -> None:
    assert is_usual(Target("dev"), place(Target("dev", str(write()))))


def test_the_same_name_in_another_file_is_another_cluster(write: Write) -> None:
    write()
    other = Target(kubeconfig=str(write(TWO.replace("dev:6443", "elsewhere"), "other")))
    assert place(other) == Place("dev", "elsewhere")
    assert not is_usual(other, place(other))


def test_a_kubeconfig_that_is_named_goes_before_the_environments(write: Write) -> None:
    write("this is not read")
    file = write(TWO, "other")
    assert place(Target(kubeconfig=str(file))) == DEV
    assert KubernetesTransport(FakeClock(), Target(kubeconfig=str(file))).place == DEV


def test_a_pod_uses_its_own_account_unless_it_is_told_otherwise(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".kube").mkdir()
    file = write(TWO, ".kube/config")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert USUAL.in_cluster
    named = Target(kubeconfig=str(file))
    assert not named.in_cluster
    assert not is_usual(named, place(named))


def test_of_several_files_the_first_that_names_something_wins(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does kubectl; the Python client takes the current context of the last one."""
    first = write()
    second = write(TWO.replace("current-context: dev", "current-context: prod").replace("dev:6443", "x"), "b")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}:/nowhere")
    assert place(USUAL) == DEV
    assert KubernetesTransport(FakeClock()).place == DEV


def test_a_context_that_is_not_there_is_told_with_those_that_are(write: Write) -> None:
    file = write()
    with pytest.raises(SettingsError) as error:
        place(Target("prot"))
    assert str(error.value) == (
        f"--context: found 'prot', expected one of dev, prod ({file}); did you mean \"prod\"?"
    )


@pytest.mark.parametrize("command", sorted(CLUSTER_COMMANDS))
def test_every_command_refuses_a_context_that_is_not_there(command: str, write: Write) -> None:
    write()
    needs = {
        "approve": ["XID"],
        "explain": ["n"],
        "release": ["n"],
        "pause": ["--for=1h", "--reason=x"],
    }
    runner = CliRunner()
    with runner.isolation() as (out, err, _):
        code = cli.main([command, *needs.get(command, []), "--context", "prot"])
    said = out.getvalue().decode() + err.getvalue().decode()
    assert "--context: found 'prot', expected one of dev, prod" in said
    assert code == 2


def test_every_command_of_a_cluster_has_the_same_options() -> None:
    offered = {name: {o for p in c.params for o in p.opts} for name, c in cli.group.commands.items()}
    having = {name for name, options in offered.items() if "--context" in options}
    assert having >= CLUSTER_COMMANDS
    for name in having:
        assert {"--kubeconfig", "-o", "--output"} <= offered[name], name
        (output,) = (p for p in cli.group.commands[name].params if p.name == "output")
        assert isinstance(output.type, click.Choice)
        assert list(output.type.choices) == ["human", "wide", "json", "yaml"]


def test_a_kubeconfig_that_is_not_there_is_named_by_its_option(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--kubeconfig: .*/none cannot be used: there is no such file"):
        place(Target(kubeconfig=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TWO.replace("current-context: dev", ""), "it has no current-context"),
        (TWO.replace("name: dev", "nam: dev"), "contexts is no list of entries with a name"),
        (TWO.replace("{server", '{insecure-skip-tls-verify: "false", server'), "neither true nor false"),
        (TWO.replace(CLUSTERS, "clusters: {a: 1}"), "clusters is no list of entries with a name"),
    ],
)
def test_a_kubeconfig_that_is_broken_says_where(text: str, why: str, write: Write) -> None:
    write(text)
    with pytest.raises(SettingsError, match=why):
        place(USUAL)


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        ("https://a.example:6443/k8s/c-1", "a.example:6443"),
        ("https://user:secret@a.example", "a.example"),
        ("a.example", "a.example"),
        ("", "no server"),
    ],
)
def test_a_server_is_shown_without_secrets(server: str, shown: str) -> None:
    assert host(server) == shown


@pytest.mark.slow
def test_the_client_brings_no_validator_into_an_agent_though_one_is_installed(write: Write) -> None:
    code = (
        "import sys\n"
        "from recovery.clock import SystemClock\n"
        "from recovery.kube.kubeconfig import Target\n"
        "from recovery.kube.transport import KubernetesTransport\n"
        "KubernetesTransport(SystemClock(), Target(kubeconfig=sys.argv[1]))\n"
        "assert not {'kubernetes_validate', 'jsonschema'} & set(sys.modules)\n"
        "import kubernetes_validate"
    )
    run = [sys.executable, "-c", code, str(write())]
    assert subprocess.run(run, check=False).returncode == 0  # noqa: S603
