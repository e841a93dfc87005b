"""The way to the API server: whose credentials are used, and what is said of an answer that is none."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3.exceptions
from click.testing import CliRunner
from kubernetes.config import incluster_config
from recovery_testkit.clock import FakeClock

from recovery import cli
from recovery.errors import ApiUnavailable, SettingsError, TooLong
from recovery.kube.transport import LAST_TIMEOUT, MAX_BODY, MAX_PAGE, READ_TIMEOUT, KubernetesTransport
from tests.builders.tls import certified

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: here, context: {cluster: c, user: u}}]
"""


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], Path]:
    """Writes KUBECONFIG, as a person outside of the cluster has it."""

    def write(content: str | bytes) -> Path:
        file = tmp_path / "kubeconfig"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        monkeypatch.setenv("KUBECONFIG", str(file))
        return file

    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return write


class Answer:
    """What urllib3 gives: a status, and a body that comes in pieces."""

    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012 - as urllib3's

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.closed = False

    def stream(self, size: int) -> Iterator[bytes]:
        return self._pieces

    def release_conn(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def transport(kubeconfig: Callable[[str], Path], answer: Callable[[], Any], clock: FakeClock) -> Any:
    kubeconfig(KUBECONFIG)
    made = KubernetesTransport(clock)

    class Pool:
        def request(self, *_: Any, **__: Any) -> Any:
            return answer()

    made._client.rest_client.pool_manager = Pool()
    return made


# ---------------------------------------------------------------- credentials

BROKEN: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "file is empty"),
    "a list": ("[]", "it is a list"),
    "a word": ("x", "it is a str"),
    "not YAML": ("a: [", "it is no YAML (line 1, column 5)"),
    "not text": (b"\xff\xfe\x00\x01", "it, or a file that it names, is no text (UnicodeDecodeError)"),
    "of another context": (
        KUBECONFIG.replace("context: here", "context: there"),
        "there is no context there",
    ),
    "with an authority that is not there": (
        KUBECONFIG.replace("{server", "{certificate-authority: /nowhere, server"),
        "File does not exist: /nowhere",
    ),
    "with a token's file that is not there": (
        KUBECONFIG.replace("user: {}", "user: {tokenFile: /nowhere}"),
        "No such file or directory: /nowhere",
    ),
    "with an authority that is no base64": (
        KUBECONFIG.replace("{server", "{certificate-authority-data: a, server"),
        "data in it is no base64",
    ),
    "of a cluster that is not there": (
        KUBECONFIG.replace("cluster: c,", "cluster: d,"),
        "its clusters have none of the name d",
    ),
}

SECRETS = {
    "an OIDC user without a token": (
        "{auth-provider: {name: oidc, config: {client-secret: S3CRET, refresh-token: S3CRET}}}",
        "the key id-token is missing (user/auth-provider/config)",
    ),
    "a program that fails": (
        "{auth-provider: {name: gcp, config: {cmd-path: 'false', cmd-args: S3CRET}}}",
        "what is in it cannot be read (ConfigException)",
    ),
    "what is no YAML": ("{token: *S3CRET}", "it is no YAML (line 5, column 33)"),
    "a token in place of its file": (f"{{tokenFile: {'S3CRET' * 40}}}", "No such file or directory;"),
    "a key in place of its file": (f"{{client-key: {'S3CRET' * 40}}}", "File does not exist;"),
    "a plugin that is not there": (
        "{exec: {apiVersion: v1, command: /nowhere, args: [S3CRET]}}",
        "its plugin gave no credentials: [Errno 2] No such file or directory: '/nowhere'",
    ),
    "a plugin that fails": (
        '{exec: {apiVersion: v1, command: sh, args: [-c, "echo log in >&2; exit 1", S3CRET]}}',
        "its plugin gave no credentials: exec: process returned 1. log in",
    ),
    "a plugin that answers with something else": (
        "{exec: {apiVersion: v1, command: echo, args: [S3CRET]}}",
        "its plugin gave no credentials: exec: failed to decode process output",
    ),
    "a plugin without a command": (
        "{exec: {apiVersion: v1, command: , args: [S3CRET]}}",
        "its plugin gave no credentials: its entry, or what it answers, cannot be read",
    ),
    "a token in two lines": (r'{token: "S3CRET\nS3CRET"}', "the token holds a line break, or another"),
    "a token beyond ASCII": ("{token: S3CRET\u2603}", "the token holds a line break, or another"),
    "an empty token": (r'{token: "\n"}', "the token is empty"),
}
"""A user of a kubeconfig -> what is said of it."""


@pytest.mark.parametrize(("content", "why"), BROKEN.values(), ids=BROKEN)
def test_a_kubeconfig_that_cannot_be_used_is_one_sentence_and_no_traceback(
    content: str | bytes, why: str, kubeconfig: Callable[[str | bytes], Path]
) -> None:
    file = kubeconfig(content)
    runner = CliRunner()
    with runner.isolation() as (_, err, __):
        code = cli.main(["status"])
    (sentence,) = err.getvalue().decode().splitlines()
    assert sentence.startswith(f"KUBECONFIG: {file} cannot be used: ")
    assert why in sentence
    assert sentence.endswith("; expected a file that kubectl takes")
    assert code == 2


@pytest.mark.parametrize(
    "server", ["5", '"https://["', "https://u:S3CRET@h:99999", '"https://"', "h", "ftp://h", "https://h:0"]
)
def test_a_server_that_is_no_url_is_one_sentence_without_its_password(
    server: str, kubeconfig: Callable[[str], Path]
) -> None:
    file = kubeconfig(KUBECONFIG.replace('"https://127.0.0.1:1"', server))
    why = "the server of its cluster c is no URL such as https://HOST:PORT"
    with pytest.raises(SettingsError) as caught:
        KubernetesTransport(FakeClock())
    assert (
        str(caught.value) == f"KUBECONFIG: {file} cannot be used: {why}; expected a file that kubectl takes"
    )


def test_a_plugin_that_fails_beside_a_certificate_is_warned_of(
    kubeconfig: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certified(tmp_path)
    files = f"client-certificate: {tmp_path}/both.pem, client-key: {tmp_path}/both.pem"
    kubeconfig(KUBECONFIG.replace("user: {}", f"user: {{{files}, exec: {{command: /nowhere}}}}"))
    KubernetesTransport(FakeClock())
    assert caplog.messages == [
        "the kubeconfig's plugin failed: exec: malformed request. missing key 'apiVersion'"
    ]


NO_PAIR = "its client-certificate and client-key are no certificate with its key"


@pytest.mark.parametrize(
    ("cluster", "user", "why"),
    [
        ("certificate-authority: {both}", "client-certificate: {both}, client-key: {both}", ""),
        ("certificate-authority: {junk}", "", "its certificate-authority holds no certificate"),
        ("certificate-authority-data: eA==", "", "its certificate-authority holds no certificate"),
        ("tls-server-name: 5", "", "its tls-server-name is no text"),
        ("certificate-authority: {both}", "client-certificate: {junk}, client-key: {both}", NO_PAIR),
        ("certificate-authority: {both}", "client-certificate: {ca}", NO_PAIR),
    ],
)
def test_certificates_that_cannot_be_used_are_told_before_the_server_is_asked(
    cluster: str, user: str, why: str, kubeconfig: Callable[[str], Path], tmp_path: Path
) -> None:
    """It was told as that the API server does not answer."""
    certified(tmp_path)
    junk, both, ca = tmp_path / "junk", tmp_path / "both.pem", tmp_path / "ca.pem"
    junk.write_text("junk")
    cluster, user = (text.format(junk=junk, both=both, ca=ca) for text in (cluster, user))
    text = KUBECONFIG.replace("{server", f"{{{cluster}, server").replace("user: {}", f"user: {{{user}}}")
    file = kubeconfig(text)
    if not why:
        KubernetesTransport(FakeClock())
        return
    with pytest.raises(SettingsError) as caught:
        KubernetesTransport(FakeClock())
    assert str(caught.value).startswith(f"KUBECONFIG: {file} cannot be used: {why}")


@pytest.mark.parametrize(("user", "why"), SECRETS.values(), ids=SECRETS)
def test_what_is_said_of_a_broken_kubeconfig_holds_nothing_secret(
    user: str, why: str, kubeconfig: Callable[[str | bytes], Path]
) -> None:
    kubeconfig(KUBECONFIG.replace("user: {}", f"user: {user}"))
    runner = CliRunner()
    with runner.isolation() as (out, err, _):
        code = cli.main(["status"])
    (sentence,) = err.getvalue().decode().splitlines()
    assert why in sentence
    assert "S3CRET" not in sentence + out.getvalue().decode()
    assert code == 2


BAD_PROXIES = [
    "foo",
    "ftp://x",
    '"http://[::1"',
    "http://u:S3CRET@h:99999",
    "5",
    "[a]",
    "socks5://127.0.0.1:1080",
]
EXPECTED = "; expected http://HOST:PORT or https://HOST:PORT"


@pytest.mark.parametrize("proxy", BAD_PROXIES)
def test_a_proxy_that_cannot_be_used_is_one_sentence_and_no_traceback(
    proxy: str, kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    file = kubeconfig(KUBECONFIG.replace("{server", f"{{proxy-url: {proxy}, server"))
    with pytest.raises(SettingsError) as caught:
        KubernetesTransport(FakeClock())
    (sentence,) = caught.value.mistakes
    what = "a SOCKS proxy, for which PySocks is needed" if "socks" in proxy else "no address of a proxy"
    assert sentence.startswith(f"KUBECONFIG: {file} cannot be used: its proxy-url is {what}")
    assert sentence.endswith(EXPECTED)
    assert "S3CRET" not in sentence


@pytest.mark.parametrize("proxy", ["socks5://proxy.example:1080", "proxy.example:3128"])
def test_a_proxy_of_the_environment_is_named_by_its_variable_where_it_is_in_the_way(
    proxy: str, kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig(KUBECONFIG.replace("127.0.0.1:1", "there.example"))
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "here.example")
    with pytest.raises(SettingsError, match=r"^HTTPS_PROXY: it is ") as caught:
        KubernetesTransport(FakeClock())
    assert str(caught.value).endswith(EXPECTED)
    monkeypatch.setenv("NO_PROXY", "there.example")
    assert KubernetesTransport(FakeClock()).place.server == "there.example"


def test_a_proxy_that_does_not_answer_is_told_from_a_server_that_does_not(
    kubeconfig: Callable[[str], Path],
) -> None:
    def refused() -> Any:
        cause = OSError("Tunnel connection failed: 407")
        raise urllib3.exceptions.ProxyError("Unable to connect to proxy", cause)

    with pytest.raises(
        ApiUnavailable, match=r"did not answer: no way through the proxy: Tunnel connection failed"
    ):
        transport(kubeconfig, refused, FakeClock()).request("GET", "/version")


def test_without_any_configuration_the_place_where_kubectl_looks_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        SettingsError, match=r"KUBECONFIG: ~/\.kube/config cannot be used: there is no such file"
    ):
        KubernetesTransport(FakeClock())


def test_a_pod_without_a_service_accounts_token_is_told_what_to_mount(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    with pytest.raises(SettingsError) as caught:
        KubernetesTransport(FakeClock())
    assert str(caught.value).startswith("in-cluster credentials: Service token file does not exist")
    assert str(caught.value).endswith(
        "; expected a service account's token in this pod (automountServiceAccountToken)"
    )


def test_a_kubeconfig_that_verifies_nothing_is_warned_of_once(
    kubeconfig: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    kubeconfig(KUBECONFIG.replace("{server", "{insecure-skip-tls-verify: true, server"))
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        KubernetesTransport(FakeClock())
    assert [record.getMessage() for record in caplog.records] == [
        "the kubeconfig says not to verify the API server's certificate: anybody may answer for it"
    ]


# ---------------------------------------------------------------- answers that are none


@pytest.mark.parametrize(
    "error",
    [
        urllib3.exceptions.ReadTimeoutError(None, "", "read timed out"),  # type: ignore[arg-type]
        ConnectionResetError("read timed out"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_request_without_an_answer_says_why(kubeconfig: Callable[[str], Path], error: Exception) -> None:
    def silent() -> Any:
        raise error

    with pytest.raises(ApiUnavailable, match=r"the API server did not answer: .*read timed out"):
        transport(kubeconfig, silent, FakeClock()).request("GET", "/version")


def test_an_answer_of_any_length_is_not_read_to_its_end(kubeconfig: Callable[[str], Path]) -> None:
    piece, read = b"x" * (1024 * 1024), [0]

    def endless() -> Iterator[bytes]:
        while True:
            read[0] += 1
            yield piece

    with pytest.raises(ApiUnavailable, match=f"the API server's answer is longer than {MAX_BODY} bytes"):
        transport(kubeconfig, lambda: Answer(endless()), FakeClock()).request("GET", "/api/v1/nodes")
    assert read[0] == MAX_BODY // len(piece) + 1


def test_a_page_of_several_objects_is_given_up_sooner_and_its_connection_is_not_used_again(
    kubeconfig: Callable[[str], Path],
) -> None:
    def long() -> Answer:
        return Answer(iter([b'{"a": "', b"x" * MAX_PAGE, b'"}']))

    answer = long()
    made = transport(kubeconfig, lambda: answer, FakeClock())
    with pytest.raises(TooLong, match=f"the API server's answer is longer than {MAX_PAGE} bytes"):
        made.request("GET", "/api/v1/nodes", query={"limit": "2"})
    assert answer.closed
    for query in (None, {"limit": "1"}):
        one = transport(kubeconfig, long, FakeClock()).request("GET", "/api/v1/nodes", query=query)
        assert len(one.body["a"]) == MAX_PAGE, "one object is read, however large it is"


def test_an_answer_that_drips_is_given_up(kubeconfig: Callable[[str], Path]) -> None:
    clock = FakeClock()

    def dripping() -> Iterator[bytes]:
        for _ in range(1000):
            clock.advance(1)
            yield b"x"

    with pytest.raises(ApiUnavailable, match=f"the API server's answer took longer than {READ_TIMEOUT:g} s"):
        transport(kubeconfig, lambda: Answer(dripping()), clock).request("GET", "/api/v1/nodes")


def test_an_agent_that_stops_asks_a_server_that_does_not_answer_nothing_more(
    kubeconfig: Callable[[str], Path],
) -> None:
    """It has half a minute to end in, and one answer after the other would use that up."""
    kubeconfig(KUBECONFIG)
    made, silent, waited = KubernetesTransport(FakeClock()), [False], list[float]()

    class Pool:
        def request(self, *_: Any, timeout: urllib3.Timeout, **__: Any) -> Any:
            waited.append(timeout.read_timeout)  # type: ignore[arg-type]
            if silent[0]:
                raise ConnectionResetError("broken")
            return Answer(iter([b"{}"]))

    made._client.rest_client.pool_manager = Pool()  # type: ignore[assignment]

    def ask() -> None:
        made.request("GET", "/api/v1/nodes/node-0")

    def broken() -> None:
        with pytest.raises(ApiUnavailable, match="the API server did not answer: broken"):
            ask()

    silent[0] = True
    broken()
    broken()
    silent[0], stopping = False, [True]
    made.stopping = lambda: stopping[0]
    ask()
    ask()
    assert waited == [READ_TIMEOUT] * 2 + [LAST_TIMEOUT] * 2, "one that answers is asked as before"
    silent[0] = True
    broken()
    with pytest.raises(ApiUnavailable, match="the agent stops, and the API server did not answer"):
        ask()
    assert len(waited) == 5, "the last one was not sent"


def test_a_token_that_is_refused_is_read_anew_for_the_next_request(
    kubeconfig: Callable[[str], Path], tmp_path: Path
) -> None:
    """A kubelet renews it in its place; the client itself would go on with the old one."""
    token = tmp_path / "token"
    token.write_text("old")
    kubeconfig(KUBECONFIG.replace("user: {}", f"user: {{tokenFile: {token}}}"))
    made = KubernetesTransport(FakeClock())
    used: list[str] = []

    class Pool:
        def request(self, *_: Any, headers: dict[str, str], **__: Any) -> Any:
            used.append(headers["authorization"])
            answer = Answer(iter([b"{}"]))
            answer.status = 200 if used[-1] == "Bearer new" else 401
            return answer

    made._client.rest_client.pool_manager = Pool()  # type: ignore[assignment]
    token.write_text("new")
    statuses = [made.request("GET", "/api/v1/nodes").status for _ in range(2)]
    assert (statuses, used) == ([401, 200], ["Bearer old", "Bearer new"])


PLUGIN = """\
exec:
      apiVersion: client.authentication.k8s.io/v1
      interactiveMode: Never
      command: printf
      args: ['{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "t0ken\\\\n"}}']
"""


@pytest.mark.parametrize("way", ["tokenFile: {file}", "token: |\n      t0ken\n", PLUGIN, "in-cluster"])
def test_a_token_is_sent_without_the_newline_at_its_end(
    way: str, kubeconfig: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does kubectl. ``echo`` writes one behind each token."""
    file = tmp_path / "token"
    file.write_text("t0ken\n")
    if way == "in-cluster":
        serve_account(monkeypatch, tmp_path)
    else:
        user = f"users:\n- name: u\n  user:\n    {way.format(file=file) if '{file}' in way else way}"
        kubeconfig(KUBECONFIG.replace("users: [{name: u, user: {}}]", user))
    made, used = KubernetesTransport(FakeClock()), list[str]()

    class Pool:
        def request(self, *_: Any, headers: dict[str, str], **__: Any) -> Any:
            used.append(headers["authorization"])
            return Answer(iter([b"{}\n"]))

    made._client.rest_client.pool_manager = Pool()  # type: ignore[assignment]
    made.request("GET", "/version")
    list(made.stream("/api/v1/nodes", {}))
    assert [header.lower() for header in used] == ["bearer t0ken"] * 2


AS_VIEWER = """\
{as: viewer, as-uid: "7", as-groups: [readers, people], as-user-extra: {example.com/why: [look, learn]}}"""


def test_who_acts_as_another_in_kubectl_does_so_here(kubeconfig: Callable[[str], Path]) -> None:
    """Else a person who is careful, and looks at a cluster as one who may change nothing, changes it here."""
    kubeconfig(KUBECONFIG.replace("user: {}", f"user: {AS_VIEWER}"))
    made, used = KubernetesTransport(FakeClock()), list[Any]()

    class Pool:
        def request(self, *_: Any, headers: Any, **__: Any) -> Any:
            used.append([(k, v) for k, v in headers.items() if k.startswith("Impersonate-")])
            return Answer(iter([b"{}\n"]))

    made._client.rest_client.pool_manager = Pool()  # type: ignore[assignment]
    made.request("DELETE", "/api/v1/nodes/n")
    list(made.stream("/api/v1/nodes", {}))
    assert (
        used
        == [
            [
                ("Impersonate-User", "viewer"),
                ("Impersonate-Uid", "7"),
                ("Impersonate-Group", "readers"),
                ("Impersonate-Group", "people"),
                ("Impersonate-Extra-example.com%2Fwhy", "look"),
                ("Impersonate-Extra-example.com%2Fwhy", "learn"),
            ]
        ]
        * 2
    )


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("{as-groups: [readers]}", "as names none"),
        ("{as: 5}", "no plain text"),
        ('{as: "a\\nb"}', "no plain text"),
        ("{as: viewer, as-groups: readers}", "as-groups is no list"),
    ],
)
def test_an_impersonation_that_kubectl_would_not_take_is_refused(
    user: str, why: str, kubeconfig: Callable[[str], Path]
) -> None:
    kubeconfig(KUBECONFIG.replace("user: {}", f"user: {user}"))
    with pytest.raises(SettingsError, match=why):
        KubernetesTransport(FakeClock())


def serve_account(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """A pod whose service account's files are in ``directory``; it has no kubeconfig."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (directory / "ca.crt").write_text("x")
    (directory / "namespace").write_text("here")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(directory / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(directory / "ca.crt"))
    monkeypatch.setattr("recovery.kube.transport.NAMESPACE_FILE", str(directory / "namespace"))


@pytest.mark.parametrize("renewed", ["S3CRET\nS3CRET", "", None], ids=["broken", "empty", "gone"])
def test_a_token_that_can_no_longer_be_sent_is_no_answer_and_is_not_shown(
    renewed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known when it will be a token again: the agent goes on asking."""
    file = tmp_path / "token"
    file.write_text("t0ken")
    serve_account(monkeypatch, tmp_path)
    made = KubernetesTransport(FakeClock())
    monkeypatch.setattr(incluster_config, "datetime", SimpleNamespace(datetime=Later, timedelta=timedelta))
    if renewed is None:
        file.unlink()
    else:
        file.write_text(renewed)
    for ask in (lambda: made.request("GET", "/version"), lambda: list(made.stream("/version", {}))):
        with pytest.raises(ApiUnavailable, match="the API server was not asked: the credentials") as caught:
            ask()
        assert "S3CRET" not in str(caught.value)


class Later(datetime):
    """More than a minute after the token was read: the client reads it again."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(minutes=2)


def test_a_request_that_cannot_be_made_does_not_show_its_headers(kubeconfig: Callable[[str], Path]) -> None:
    def refuses() -> Any:
        raise ValueError("Invalid header value b'Bearer S3CRET'")

    made = transport(kubeconfig, refuses, FakeClock())
    for ask in (lambda: made.request("GET", "/version"), lambda: list(made.stream("/version", {}))):
        with pytest.raises(ApiUnavailable, match=r": ValueError$"):
            ask()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"7", b"<html>Sign in</html>", b"[" * 10_000], ids=lambda body: body[:9]
)
def test_a_success_that_is_no_object_is_not_the_api_servers(
    kubeconfig: Callable[[str], Path], body: bytes
) -> None:
    """A proxy in between answers so, too. It was taken for a bug of the agent's."""
    made = transport(kubeconfig, lambda: Answer(iter([body])), FakeClock())
    with pytest.raises(ApiUnavailable, match="the answer with status 200 is not the API server's"):
        made.request("GET", "/api/v1/nodes/node-0")
