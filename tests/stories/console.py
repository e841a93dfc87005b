"""A person at a terminal, in front of a stage: the real commands, the store as their API server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner
from recovery_testkit.kubeproxy import proxied
from recovery_testkit.stage import Actor, FleetActor, Stage, StoreTransport

from recovery import cli
from recovery.kube.kubeconfig import Place
from recovery.kube.transport import Response
from recovery.report.own_view import explanation
from tests.builders.objects import pod_object

PERSON = "ada"
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "npd", "uid": "u"}
ABOUT = {"version": "1.2.3", "mode": "sidecar", "recovery": True, "policy": "built-in", "provider": "auto"}


class Reach(StoreTransport):
    """The API server and its proxy of pods: the stage's agents answer as their HTTP servers would."""

    place = Place("here", "127.0.0.1:6443")
    namespace = "default"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.api, PERSON)
        self.stage = stage
        self.deaf: set[str] = set()

    def request(self, method: str, path: str, **options: Any) -> Any:
        asked = proxied(path)
        if asked is None:
            return super().request(method, path, **options)
        assert "headers" in options, "nobody is answered without a token"
        name = asked.pod.rsplit("/", 1)[-1]
        replica = self.stage.actors.get(name)
        if isinstance(replica, FleetActor) and replica.alive:
            return self._of_replica(replica, options["query"]["node"])
        node = asked.pod.rsplit("/", 1)[-1].removeprefix("npd-")
        actor = next(
            (a for a in reversed(self.stage.actors.values()) if a.node == node and a.alive and a.agent), None
        )
        if actor is None or node in self.deaf:
            message = "error trying to reach service: dial tcp 10.0.0.1:9108: connect: connection refused"
            return Response(503, {}, {"kind": "Status", "message": message})
        return Response(200, {}, self._answer(actor, asked.rest))

    def _of_replica(self, actor: FleetActor, node: str) -> Response:
        view = actor.replica.view(node)
        if isinstance(view, str):
            return Response(404, {}, {"kind": "Status", "message": view})
        about = {**ABOUT, "mode": "fleet"}
        return Response(200, {}, json.loads(json.dumps(explanation(view, node, about))))

    def _answer(self, actor: Actor, path: str) -> dict[str, Any]:
        assert path == "/api/v1/explain"
        assert actor.agent is not None
        about = {**ABOUT, "recovery": actor.sweeper._w.on}
        return json.loads(json.dumps(explanation(actor.agent.view, actor.node, about)))  # type: ignore[no-any-return]


@dataclass
class Said:
    """What came of a command. ``cluster``: which one it says that it changes, a line of standard error."""

    code: int
    out: str
    err: str
    cluster: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """Runs commands as a user would type them."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = stage
        self.reach = Reach(stage)
        self.attended = True
        monkeypatch.setattr("recovery.console.api.KubernetesTransport", lambda clock, target: self.reach)
        monkeypatch.setattr("recovery.console.api.SystemClock", lambda: stage.clock)
        monkeypatch.setattr("recovery.console.output.at_terminal", lambda: self.attended)
        monkeypatch.setattr("getpass.getuser", lambda: PERSON)
        monkeypatch.setattr("socket.gethostname", lambda: "laptop")

    def run(self, *arguments: str, answer: str = "") -> Said:
        """One command; ``answer`` is what is typed when it asks."""
        runner = CliRunner()
        with runner.isolation(input=answer) as (out, err, _):
            code = cli.main(arguments)
        cluster, said = "", err.getvalue().decode()
        if said.startswith("Cluster: "):
            cluster, _, said = said.partition("\n")
        return Said(code, out.getvalue().decode(), said, cluster)


def pod_of(stage: Stage, node: str, *, phase: str = "Running", port: int = 9108) -> None:
    """The DaemonSet's pod on ``node``, the agent's container in it."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "u", "controller": True}
    ours = {"name": "node-recovery", "ports": [{"containerPort": port}]}
    stage.store.load(
        pod_object(
            f"npd-{node}",
            on=node,
            phase=phase,
            containers=[{"name": "node-problem-detector"}, ours],
            ownerReferences=[owner],
        )
    )
