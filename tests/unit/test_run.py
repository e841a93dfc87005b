"""The program around the agent: what it checks at its start, and when the kubelet may restart it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from recovery_testkit.kubefaults import FaultyApi, lost_request, refused
from recovery_testkit.stage import Stage, StoreTransport

from recovery.agent import program as running
from recovery.agent.cycle import BUGS_TO_DIE
from recovery.agent.fleet import program as fleet
from recovery.agent.fleet.program import FleetProgram
from recovery.agent.program import Program, stuck
from recovery.config.settings import load_settings
from recovery.errors import SettingsError
from recovery.kube.transport import Response
from tests.builders.nodes import node
from tests.stories.test_clocks import dated
from tests.stories.test_conditions import writes

SIDECAR = {"NODE_NAME": "node-0", "PROVIDER": "baremetal", "POD_NAMESPACE": "default"}


LAST_CYCLE = "node_recovery_last_cycle_timestamp_seconds"


def sampled(program: Program | FleetProgram, name: str) -> float:
    """The sum of what this metric shows."""
    families = program.metrics.registry.collect()
    return sum(x.value for family in families for x in family.samples if x.name == name)


class Way(StoreTransport):
    """The stage's API server, as the program finds it."""

    namespace = "default"


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.nodes(1)
    return stage


@pytest.fixture
def start(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Program]]:
    monkeypatch.setattr(running, "KubernetesTransport", lambda _: Way(stage.api, "program"))
    started: list[Program] = []

    def program(**environ: str) -> Program:
        environ = SIDECAR | environ
        started.append(Program(load_settings(environ), environ, stage.clock))
        return started[-1]

    yield program
    for each in started:
        each._instance_lock.close()


# ---------------------------------------------------------------- checks at the start


def test_a_page_of_another_node_ends_the_program(start: Callable[..., Program]) -> None:
    with pytest.raises(SettingsError, match=r"leads to 10\.9\.9\.9, which is neither loopback nor"):
        start(NPD_METRICS_URL="http://10.9.9.9/metrics").check()


def test_a_policy_that_the_nodes_own_provider_cannot_carry_out_ends_the_program(
    stage: Stage, start: Callable[..., Program], tmp_path: Any
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
        "rules: [{name: a, match: {}, remedy: [{do: reboot}]}]\n"
    )
    with pytest.raises(SettingsError, match='found "reboot", which provider baremetal cannot do'):
        start(POLICY_FILE=str(file)).check()


def test_no_page_is_read_by_the_clock_of_one_api_server_that_is_wrong(
    stage: Stage, start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one that answers is five minutes behind: all that a rule tolerates would be over at once."""
    answered = itertools.count()

    def request(way: Way, *args: Any, **more: Any) -> Response:
        off = timedelta(minutes=5) if next(answered) == 0 else timedelta(0)
        return dated(StoreTransport.request(way, *args, **more), stage.clock.true_time() - off)

    monkeypatch.setattr(Way, "request", request)
    program = start()
    program.check()
    assert abs(program.cluster.time.now() - stage.clock.true_time()) < timedelta(seconds=2)


def test_an_api_server_that_does_not_answer_yet_is_waited_for_and_said_once(
    stage: Stage,
    start: Callable[..., Program],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert isinstance(stage.api, FaultyApi)
    stage.api.fail_next(lambda asked: asked.path.endswith("/nodes/node-0"), lost_request, times=3)
    program = start()
    monkeypatch.setattr(program._stop, "wait", lambda seconds: stage.clock.advance(seconds))
    with caplog.at_level(logging.WARNING):
        program.check()
    (said,) = caplog.records
    assert said.getMessage().startswith("waiting for Node node-0: ")
    assert stage.api.pending == 0


def test_an_address_that_is_taken_is_told_with_what_to_do(start: Callable[..., Program]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = load_settings(SIDECAR | {"METRICS_ADDRESS": f"127.0.0.1:{port}"})
        with pytest.raises(SettingsError) as caught:
            running._serve(settings, start())
    assert str(caught.value) == (
        f"METRICS_ADDRESS: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "expected one that is free on this host, or nothing for off"
    )


def test_an_address_that_is_no_name_is_told_like_one_that_is_taken(start: Callable[..., Program]) -> None:
    settings = replace(load_settings(SIDECAR), metrics_address=("a..b", 0))
    with pytest.raises(SettingsError, match=r"METRICS_ADDRESS: cannot listen on a\.\.b:0: "):
        running._serve(settings, start())


# ---------------------------------------------------------------- ready, and alive


def test_a_program_that_has_read_nothing_yet_is_not_ready_and_says_so(
    stage: Stage, start: Callable[..., Program]
) -> None:
    program = start()
    assert program.ready() == "not yet: nothing has been read yet"
    stage.api.fail_next(lambda _: True, lost_request, times=2)  # the conditions' read is one
    program.step()
    assert str(program.ready()).startswith("not yet: the API server: ")
    stage.clock.advance(5)
    program.step()
    assert program.ready() is None


def test_ten_cycles_that_failed_on_a_bug_may_be_ended_by_the_kubelet(start: Callable[..., Program]) -> None:
    program = start()
    assert program.agent is not None
    program.agent.bugs = BUGS_TO_DIE - 1
    assert program.healthy() is None
    program.agent.bugs = BUGS_TO_DIE
    assert program.healthy() == "10 cycles in a row have failed on a bug"


def test_a_program_whose_loop_hangs_is_not_healthy(stage: Stage, start: Callable[..., Program]) -> None:
    program = start()
    stage.clock.advance(120)
    assert program.healthy() == "the main loop has finished no round for 120 s"


def test_a_loop_that_came_round_a_minute_ago_is_alive() -> None:
    assert stuck(60, timedelta(seconds=0.5)) is None


def test_a_loop_that_has_not_come_round_for_two_minutes_is_stuck() -> None:
    assert stuck(120, timedelta(seconds=0.5)) == "the main loop has finished no round for 120 s"


def test_a_loop_that_is_told_to_pause_for_five_minutes_is_not_stuck_meanwhile() -> None:
    assert stuck(310, timedelta(minutes=5)) is None
    assert stuck(400, timedelta(minutes=5)) == "the main loop has finished no round for 400 s"


def test_a_loop_that_pauses_for_long_comes_round_in_time_to_renew_the_lease_of_an_open_record(
    stage: Stage, start: Callable[..., Program], tmp_path: Any
) -> None:
    """Else its peers take a living agent for dead."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\nsources: [conditions]\n"
        "rules: [{name: a, match: {type: NeuronHealth}, after: 30m, remedy: [{do: cordon}]}]\n"
    )
    program = start(ENABLE_RECOVERY="true", POLL_INTERVAL="5m", LEASE_DURATION="60s", POLICY_FILE=str(file))
    assert program.agent is not None
    writes(stage, ("NeuronHealth", "True", "NeuronHasError_DMA_ERROR"))
    pauses = []
    for _ in range(30):
        pauses.append(program.step())
        stage.clock.advance(pauses[-1])
    assert "tolerated for 30 min by rule a" in program.agent.last.reason
    assert max(pauses[5:]) <= 15
    assert sum(pauses[5:]) > 5 * len(pauses[5:]), "and no sooner than it has to"


@pytest.mark.parametrize(
    ("module", "made", "mode"), [(running, Program, "sidecar"), (fleet, FleetProgram, "fleet")]
)
def test_what_asks_the_api_server_knows_when_the_agent_stops(
    module: Any,
    made: type[Program] | type[FleetProgram],
    mode: str,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways: list[Any] = []

    def way(_: object) -> Way:
        ways.append(Way(stage.api, "program"))
        return ways[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(module, "KubernetesTransport", way)
    environ = SIDECAR | {"RECOVERY_MODE": mode}
    program = made(load_settings(environ), environ, stage.clock)
    try:
        assert not ways[0].stopping()
        program.stop()
        assert ways[0].stopping()
    finally:
        program._instance_lock.close()


def test_a_password_in_the_pages_url_is_in_no_line_of_the_log(
    stage: Stage, start: Callable[..., Program], caplog: pytest.LogCaptureFixture
) -> None:
    url = "http://ada:very-secret@127.0.0.1:20257/metrics"
    with caplog.at_level(logging.INFO), pytest.raises(SettingsError) as refused:
        running._introduce(load_settings(SIDECAR | {"NPD_METRICS_URL": url}))
    assert "very-secret" not in caplog.text + str(refused.value)


@pytest.mark.parametrize(
    ("environ", "read"),
    [
        ({}, "; page http://127.0.0.1:20257/metrics every 500ms"),
        ({"RECOVERY_MODE": "fleet"}, ""),
        ({"RECOVERY_MODE": "concluder"}, ""),
    ],
)
def test_the_first_line_of_the_log_names_the_page_where_one_is_read(
    environ: dict[str, str], read: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        running._introduce(load_settings(SIDECAR | environ))
    (said,) = caplog.messages
    assert said.endswith(f"; provider baremetal{read}")


def test_a_sidecar_whose_policy_does_not_read_the_page_names_none(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\nsources: [conditions]\nrules: []\n"
    )
    with caplog.at_level(logging.INFO):
        running._introduce(load_settings(SIDECAR | {"POLICY_FILE": str(file)}))
    assert caplog.messages[-1].endswith("; provider baremetal")


# ---------------------------------------------------------------- what the provider cannot do, in fleet mode

REBOOTS = (
    "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
    "rules: [{name: a, match: {}, remedy: [{do: reboot}]}]\n"
)


@pytest.fixture
def controller(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> Iterator[Callable[[str], FleetProgram]]:
    """A controller with this PROVIDER, and a policy that reboots."""
    monkeypatch.setattr(fleet, "KubernetesTransport", lambda _: Way(stage.api, "program"))
    file = tmp_path / "policy.yaml"
    file.write_text(REBOOTS)
    started: list[FleetProgram] = []

    def program(provider: str) -> FleetProgram:
        environ = {"RECOVERY_MODE": "fleet", "PROVIDER": provider, "POLICY_FILE": str(file)}
        started.append(FleetProgram(load_settings(environ), environ, stage.clock))
        return started[-1]

    yield program
    for each in started:
        each._instance_lock.close()


def test_a_policy_that_the_chosen_provider_cannot_carry_out_ends_the_controller(
    controller: Callable[[str], FleetProgram],
) -> None:
    with pytest.raises(SettingsError, match='found "reboot", which provider baremetal cannot do'):
        controller("baremetal").run()


def test_a_step_that_no_nodes_provider_can_carry_out_is_told_once_all_nodes_are_known(
    controller: Callable[[str], FleetProgram], caplog: pytest.LogCaptureFixture
) -> None:
    program = controller("auto")
    program.check()
    metal, cloud = node(provider_id=""), node(provider_id="aws:///us-west-2a/i-0123456789abcdef0")
    known = SimpleNamespace(in_sync=True, all=lambda: [metal])
    program.replica.nodes = known  # type: ignore[assignment]
    program._look_at_policy()
    assert 'found "reboot", which provider baremetal cannot do' in caplog.text
    caplog.clear()
    program._policy_looked_at, known.all = False, lambda: [metal, cloud]
    program._look_at_policy()
    assert "cannot do" not in caplog.text


def test_the_controllers_events_wait_while_one_of_its_threads_looks_after_a_node(
    controller: Callable[[str], FleetProgram],
) -> None:
    program = controller("auto")
    assert not program._publisher._busy()
    program.replica.controllers[-1].busy = True
    assert program._publisher._busy()


def test_a_budget_that_is_too_large_for_sidecars_needs_no_node_to_be_refused(tmp_path: Any) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(REBOOTS + "limits: {budget: 51}\n")
    with pytest.raises(SettingsError, match="expected at most 50 in sidecar mode; more needs fleet mode"):
        load_settings(SIDECAR | {"POLICY_FILE": str(file)})
    load_settings({"RECOVERY_MODE": "fleet", "POLICY_FILE": str(file)})
    file.write_text(REBOOTS + "limits: {budget: 50}\n")
    load_settings(SIDECAR | {"POLICY_FILE": str(file)})


def test_a_concluder_that_is_refused_everything_says_so(
    stage: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "KubernetesTransport", lambda _: Way(stage.api, "program"))
    forbidden = refused(403, "Forbidden", "recoverygates is forbidden")
    stage.api.fail_next(lambda asked: True, forbidden, times=10**6)
    environ = {"RECOVERY_MODE": "concluder", "PROVIDER": "baremetal", "ENABLE_RECOVERY": "true"}
    program = Program(load_settings(environ), environ, stage.clock)
    with caplog.at_level(logging.WARNING), contextlib.closing(program._instance_lock):
        for _ in range(720):
            stage.clock.advance(max(program.step(), 0.5))
    assert caplog.messages[0].startswith("open records are not looked at: GET /apis/noderecovery.dev/")
    assert len(caplog.messages) < 10
    assert sampled(program, "node_recovery_errors_total") > 1
    assert stage.clock.now().timestamp() - sampled(program, LAST_CYCLE) > 180


def test_a_controller_that_cannot_list_the_nodes_has_looked_at_none(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "KubernetesTransport", lambda _: Way(stage.api, "program"))
    environ = {"RECOVERY_MODE": "fleet"}
    program = FleetProgram(load_settings(environ), environ, stage.clock)
    rounds = iter(range(60))

    def wait(_: float) -> None:
        stage.clock.advance(60)
        if next(rounds, None) is None:
            program.stop()

    monkeypatch.setattr(program._stop, "wait", wait)
    with contextlib.closing(program._instance_lock):
        program._sweep()  # an hour, in which no Node is listed
    assert program.ready() is not None
    assert stage.clock.now().timestamp() - sampled(program, LAST_CYCLE) > 180
