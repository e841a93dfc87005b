"""What ``explain`` finds out about one node: the agent's own answer, the record, the Node and the gate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recovery.console.api import AgentPod, UserApi
from recovery.console.recoveries import check_installed, read_gate
from recovery.console.report import read_report
from recovery.decide.sightings import Sighting
from recovery.errors import ApiError, NotFound, Undecodable, UnknownNode
from recovery.model import Gate, NodeView, Record
from recovery.store import record_codec as records


@dataclass
class Facts:
    """All that could be found out about one node."""

    name: str
    now: datetime
    node: NodeView | None
    record: Record | None
    record_problem: str
    gate: Gate | None
    gate_problem: str
    pod: AgentPod | None
    agent: dict[str, Any] | None
    no_answer: str  # why the agent gave none
    seen: tuple[Sighting, ...]  # where it gave none: what is there by the report, with recovery off


def gather(api: UserApi, name: str) -> Facts:
    """Read everything; only the API server has to answer. Raises ``UnknownNode``, ``ApiError``."""
    node = _node(api, name)
    pod, agent, no_answer = ask_agent_of(api, name)
    record, problem = _record(api, name)  # after the agent, so that it is not the older of the two
    if node is None and record is None and not problem:
        raise UnknownNode(
            f"there is no Node {name}, and no record of one; kubectl get nodes and "
            "node-recovery status --all list what there is"
        )
    gate, gate_problem = read_gate(api)
    seen = _seen(api, name) if agent is None else ()
    return Facts(name, api.time.now(), node, record, problem, gate, gate_problem, pod, agent, no_answer, seen)


def _seen(api: UserApi, name: str) -> tuple[Sighting, ...]:
    found, _ = read_report(api)
    return tuple(x for x in (found.sightings if found else ()) if x.node == name and x.ended is None)


def _node(api: UserApi, name: str) -> NodeView | None:
    try:
        return api.get_node(name)
    except NotFound:
        return None


def _record(api: UserApi, name: str) -> tuple[Record | None, str]:
    try:
        return records.decode(api.get_record(name)), ""
    except Undecodable as error:
        return None, str(error)
    except NotFound:
        check_installed(api)
        return None, ""


Asked = tuple[AgentPod | None, dict[str, Any] | None, str]
"""Which pod was asked, what it said, and why it said nothing."""


def ask_agent_of(api: UserApi, name: str) -> Asked:
    """What looks after the node ``name``, an agent on it or a controller, and what that says of it."""
    try:
        pod = api.agent_pod(name)
        controllers = [] if pod else api.controllers()
    except ApiError as error:
        return None, None, f"its pod cannot be looked up: {error}"
    if controllers:
        return ask_controllers(api, name, controllers)
    if pod is None:
        return None, None, "no pod on the node has a container node-recovery"
    if not pod.running:
        return pod, None, f"pod {pod} does not run"
    return _ask(api, name, pod)


def ask_controllers(api: UserApi, name: str, pods: list[AgentPod]) -> Asked:
    """One replica leads, and answers; the others say why they do not."""
    answers = [_ask(api, name, pod) for pod in pods]
    led = next((a for a in answers if a[1] is not None), None)
    return led or (answers[0][0], None, "; ".join(why for *_, why in answers))


def _ask(api: UserApi, name: str, pod: AgentPod) -> Asked:
    try:
        answer = api.ask_agent(pod, name)
    except ApiError as error:
        return pod, None, f"pod {pod} does not answer: {error}"
    if not isinstance(answer, dict) or not isinstance(answer.get("decision"), dict):
        return pod, None, f"pod {pod} does not answer as an agent does"
    if answer.get("node") != name:
        return (
            pod,
            None,
            f"pod {pod} answers for node {answer.get('node')}, not for {name}: is NODE_NAME right?",
        )
    return pod, answer, ""
