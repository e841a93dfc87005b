"""Something else answers for the API server, with status 200: the agents get through it as an outage."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, FaultyApi
from recovery_testkit.kubestatus import Response
from recovery_testkit.stage import QUICK, Stage

from tests.stories.scenes import calls, cast, controller

GARBLED: tuple[dict[str, Any], ...] = (
    {},
    {"items": []},
    {"items": [{}]},
    {"items": [None]},
    {"metadata": {}},
    {"metadata": {}, "items": [{"metadata": {}}]},
    {"metadata": {"name": "node-0"}},
    {"kind": "Status", "status": "Success"},
)


def answers(s: Stage, body: dict[str, Any], method: str = "", times: int = 40) -> None:
    """The next requests are answered with ``body``, and nothing is done about them."""

    def effect(asked: Asked, go: Callable[[], Response]) -> Response:
        return Response(200, {}, copy.deepcopy(body))

    assert isinstance(s.api, FaultyApi)
    s.api.fail_next(
        lambda asked: asked.method != "WATCH" and method in ("", asked.method), effect, times=times
    )


def bugs(s: Stage) -> list[str]:
    return [x for actor in s.actors.values() for x in getattr(actor, "sentences", ()) if "a bug" in x]


@pytest.mark.parametrize("body", GARBLED, ids=str)
@pytest.mark.parametrize("method", ["", "GET", "PUT", "PATCH", "POST"])
def test_a_recovery_goes_on_once_the_api_server_answers_itself(
    body: dict[str, Any], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    s = cast()
    s.fault("node-0")
    s.run(3)
    answers(s, body, method)
    s.run(120)
    assert isinstance(s.api, FaultyApi)
    s.api.heal()
    s.run(180)
    assert (calls(s), bugs(s)) == ([("replace", "m-0")], [])
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("body", GARBLED, ids=str)
def test_a_controller_sees_its_nodes_again_once_the_api_server_answers_itself(
    body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    s = Stage(QUICK)
    s.nodes(4)
    answers(s, body)
    s.fleet()
    s.run(120)
    assert isinstance(s.api, FaultyApi)
    s.api.heal()
    s.run(120)
    assert controller(s).replica.nodes.in_sync
    assert len(controller(s).replica.nodes) == 4
    assert (bugs(s), "Traceback" in caplog.text) == ([], False)
