"""node-problem-detector's container gets a token of its own account, and a new one before it ends."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from recovery_testkit.kubefaults import FaultyApi, lost_answer, lost_request, refused
from recovery_testkit.kubestatus import Response
from recovery_testkit.stage import Stage, StoreTransport

from recovery.agent import program as running
from recovery.agent.npd_token import give
from recovery.agent.program import Program
from recovery.config.settings import load_settings
from recovery.errors import SettingsError
from recovery.kube import transport as ways

ACCOUNT = "node-recovery-npd"
ASKED = "create", "serviceaccounts/token"
TOKENS = f"/api/v1/namespaces/default/serviceaccounts/{ACCOUNT}/token"
MINUTE = 60.0


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.nodes(1)
    return stage


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "mount").mkdir()
    return {
        "NODE_NAME": "node-0",
        "PROVIDER": "baremetal",
        "POD_NAMESPACE": "default",
        "NPD_ACCOUNT": ACCOUNT,
        "NPD_TOKEN_DIR": str(tmp_path / "mount"),
    }


@pytest.fixture
def mount(environ: dict[str, str]) -> Path:
    return Path(environ["NPD_TOKEN_DIR"])


@pytest.fixture
def way(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = tmp_path / "the-clusters-ca"
    ca.write_text("a certificate")

    class Way(StoreTransport):
        """The stage's API server, as the program finds it."""

        namespace = "default"
        ca_file = str(ca)

    for module in (running, ways):
        monkeypatch.setattr(module, "KubernetesTransport", lambda _: Way(stage.api, "program"))


@pytest.fixture
def start(stage: Stage, environ: dict[str, str], way: None) -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def program(**more: str) -> Program:
        given = environ | more
        started.append(Program(load_settings(given), given, stage.clock))
        return started[-1]

    yield program
    for each in started:
        each._instance_lock.close()


def claims(mount: Path) -> dict[str, Any]:
    middle = (mount / "token").read_text().split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))))


def requests(stage: Stage) -> int:
    return int(stage.store.requests[ASKED])


def fails(stage: Stage, how: Any, times: int = 1) -> None:
    assert isinstance(stage.api, FaultyApi)
    stage.api.fail_next(lambda asked: asked.path == TOKENS, how, times=times)


# ---------------------------------------------------------------- the agent


def test_it_is_a_token_of_that_account_on_this_node_beside_the_clusters_ca_for_root_alone(
    start: Callable[..., Program], mount: Path
) -> None:
    start().step()
    assert claims(mount)["sub"] == f"system:serviceaccount:default:{ACCOUNT}"
    assert claims(mount)["kubernetes.io"]["node"]["name"] == "node-0"
    assert (mount / "ca.crt").read_text() == "a certificate"
    assert {file.name: file.stat().st_mode & 0o777 for file in mount.iterdir()} == {
        "token": 0o600,
        "ca.crt": 0o600,
    }


def test_a_new_one_takes_its_place_after_four_of_its_six_hours(
    stage: Stage, start: Callable[..., Program], mount: Path
) -> None:
    program = start()
    program.step()
    first = claims(mount)["exp"]
    stage.clock.advance(215 * MINUTE)
    program.step()
    assert (requests(stage), claims(mount)["exp"]) == (1, first)
    stage.clock.advance(26 * MINUTE)
    program.step()
    assert requests(stage) == 2
    assert claims(mount)["exp"] == first + 241 * MINUTE


@pytest.mark.parametrize(
    ("life", "early", "late"),
    [(3600, 35, 41), (1, 5, 7), (10**12, 215, 241)],
    ids=["as an API server gives it that allows an hour", "for a moment", "for ever"],
)
def test_how_long_it_is_good_for_is_the_api_servers_word_within_reason(
    stage: Stage, start: Callable[..., Program], life: int, early: int, late: int
) -> None:
    def given(_: object, go: Callable[[], Response]) -> Response:
        answer = go()
        spec = {**answer.body["spec"], "expirationSeconds": life}
        return Response(answer.status, answer.headers, {**answer.body, "spec": spec})

    fails(stage, given, times=2)
    program = start()
    program.step()
    stage.clock.advance(early * MINUTE)
    program.step()
    assert requests(stage) == 1
    stage.clock.advance((late - early) * MINUTE)
    program.step()
    assert requests(stage) == 2


@pytest.mark.parametrize("body", [{}, {"status": {"token": ""}, "spec": {"expirationSeconds": 3600}}])
def test_an_answer_that_is_no_token_leaves_the_old_one_in_its_place(
    stage: Stage, start: Callable[..., Program], mount: Path, body: dict[str, Any]
) -> None:
    (mount / "token").write_text("the old one")
    fails(stage, lambda _, __: Response(200, {}, body))
    start().step()
    assert (mount / "token").read_text() == "the old one"


def test_a_node_that_is_made_anew_under_its_name_gets_a_token_of_its_own(
    stage: Stage, start: Callable[..., Program], mount: Path
) -> None:
    program = start()
    program.step()
    before = claims(mount)["kubernetes.io"]["node"]["uid"]
    node = stage.node("node-0")
    stage.store.request("DELETE", "/api/v1/nodes/node-0")
    del node["metadata"]["uid"], node["metadata"]["resourceVersion"]
    stage.store.load(node)
    for _ in range(60):
        stage.clock.advance(10)
        program.step()
    assert claims(mount)["kubernetes.io"]["node"]["uid"] == stage.node("node-0")["metadata"]["uid"] != before
    assert requests(stage) == 2


def test_while_the_api_server_is_away_the_old_one_stays_and_that_is_said_once(
    stage: Stage, start: Callable[..., Program], mount: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = start()
    program.step()
    first = claims(mount)["exp"]
    fails(stage, lost_request, times=4)
    stage.clock.advance(300 * MINUTE)
    with caplog.at_level(logging.INFO):
        for _ in range(4 * 60):
            program.step()
            stage.clock.advance(1)
    assert claims(mount)["exp"] > first
    assert requests(stage) == 2, "and no more often than was needed"
    said, then = [r.getMessage() for r in caplog.records if r.name.endswith("npd_token")]
    assert said == (
        f"node-0: no new token for node-problem-detector: POST {TOKENS}: connection reset before the request"
        " was read. Without one it writes no conditions and no Events. The agent tries again"
    )
    assert then == "node-0: node-problem-detector has a new token"


def test_an_api_server_that_does_not_answer_is_asked_ever_more_seldom(
    stage: Stage, start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def lost(*words: Any) -> Any:
        asked.append(stage.clock.monotonic())
        return lost_request(*words)

    fails(stage, lost, times=1000)
    program = start()
    for _ in range(600):
        program.step()
        stage.clock.advance(1)
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert 10 < len(asked) < 30
    assert max(gaps) <= 61
    assert min(gaps[6:]) >= 30


def test_a_lost_answer_leaves_the_old_one_in_its_place(
    stage: Stage, start: Callable[..., Program], mount: Path
) -> None:
    fails(stage, lost_answer)
    program = start()
    program.step()
    assert [file.name for file in mount.iterdir()] == ["ca.crt"]
    stage.clock.advance(3)
    program.step()
    assert claims(mount)["kubernetes.io"]["node"]["name"] == "node-0"


def test_without_the_setting_no_token_is_asked_for(
    stage: Stage, start: Callable[..., Program], mount: Path
) -> None:
    start(NPD_ACCOUNT="").step()
    assert requests(stage) == 0
    assert list(mount.iterdir()) == []


def test_a_directory_that_is_not_there_ends_no_agent_and_asks_for_nothing(
    stage: Stage, start: Callable[..., Program], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = start(NPD_TOKEN_DIR=str(tmp_path / "forgotten"))
    with caplog.at_level(logging.WARNING):
        program.step()
    assert program.ready() is None
    assert "No such file or directory" in caplog.text
    assert requests(stage) == 0


def test_no_token_is_in_the_log(
    start: Callable[..., Program], mount: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        start().step()
    assert (mount / "token").read_text() not in caplog.text


# ---------------------------------------------------------------- the init container


def test_the_first_one_is_there_before_either_container_starts(
    stage: Stage, environ: dict[str, str], mount: Path, way: None
) -> None:
    assert give(environ, stage.clock, stage.clock.advance) == ""
    assert claims(mount)["kubernetes.io"]["node"]["name"] == "node-0"


def test_a_mistake_in_the_agents_other_settings_keeps_no_node_from_its_detector(
    stage: Stage, environ: dict[str, str], mount: Path, way: None
) -> None:
    wrong = environ | {"POLICY_FILE": "/not/there", "POLL_INTERVAL": "soon"}
    with pytest.raises(SettingsError):
        load_settings(wrong)
    assert give(wrong, stage.clock, stage.clock.advance) == ""
    assert (mount / "token").exists()


def test_an_api_server_that_is_away_for_a_moment_is_asked_again(
    stage: Stage, environ: dict[str, str], mount: Path, way: None
) -> None:
    fails(stage, lost_request, times=2)
    assert give(environ, stage.clock, stage.clock.advance) == ""
    assert (mount / "token").exists()


def test_after_ten_seconds_it_says_why_and_keeps_nobody_from_starting(
    stage: Stage, environ: dict[str, str], mount: Path, way: None, caplog: pytest.LogCaptureFixture
) -> None:
    fails(stage, lost_request, times=1000)
    before = stage.clock.monotonic()
    why = give(environ, stage.clock, stage.clock.advance)
    assert why.startswith("no new token for node-problem-detector: ")
    assert 10 <= stage.clock.monotonic() - before < 11
    assert len(caplog.records) == 1
    # Without a file node-problem-detector would end at once.
    assert (mount / "token").read_text() == "none yet"
    assert (mount / "ca.crt").read_text() == "a certificate"


def test_it_puts_nothing_in_the_place_of_a_token_that_is_there(
    stage: Stage, environ: dict[str, str], mount: Path, way: None
) -> None:
    (mount / "token").write_text("an earlier one")
    fails(stage, lost_request, times=1000)
    assert give(environ, stage.clock, stage.clock.advance)
    assert (mount / "token").read_text() == "an earlier one"


def test_where_nothing_can_be_written_it_keeps_no_agent_from_starting(
    stage: Stage, environ: dict[str, str], tmp_path: Path, way: None
) -> None:
    gone = environ | {"NPD_TOKEN_DIR": str(tmp_path / "forgotten")}
    assert "No such file or directory" in give(gone, stage.clock, stage.clock.advance)


def test_the_agent_replaces_it_when_it_can_and_a_metric_says_that_it_cannot(
    stage: Stage, start: Callable[..., Program], mount: Path
) -> None:
    (mount / "token").write_text("none yet")
    fails(stage, lost_request, times=2)
    program = start()
    told = []
    for _ in range(10):
        program.step()
        told.append(program.metrics.errors.labels("npd_token")._value.get())
        stage.clock.advance(2)
    assert (told[0], told[-1]) == (1, 2)
    assert claims(mount)["kubernetes.io"]["node"]["name"] == "node-0"


def test_a_kubernetes_that_binds_no_token_to_a_node_is_told_with_the_way_out(
    stage: Stage, environ: dict[str, str], way: None
) -> None:
    words = "cannot bind token to object of type Node"
    fails(stage, refused(400, message=words), times=1000)
    assert give(environ, stage.clock, stage.clock.advance).endswith(
        f"400 {words}. Kubernetes 1.31 or later binds a token to a Node. On an older one leave"
        " node-problem-detector without a token: deploy/options/npd-without-token, in the chart"
        " npd.conditions=false"
    )


def test_what_is_missing_is_named(environ: dict[str, str], way: None) -> None:
    with pytest.raises(SettingsError) as caught:
        give(environ | {"NPD_ACCOUNT": ""})
    assert caught.value.mistakes == ("NPD_ACCOUNT: missing",)
    with pytest.raises(SettingsError, match="NPD_TOKEN_DIR: missing, and NPD_ACCOUNT needs it"):
        load_settings(environ | {"NPD_TOKEN_DIR": ""})
    with pytest.raises(SettingsError) as caught:
        give(environ | {"NPD_ACCOUNT": "No Account"})
    assert caught.value.mistakes == (
        'NPD_ACCOUNT: found "No Account", expected the name of a service account',
    )
