"""Is the Node there and ready, is the machine behind it understood, and is it ours to treat?"""

from __future__ import annotations

from collections.abc import Iterator

from recovery.catalog import foreign_claim
from recovery.config.settings import Settings
from recovery.console.api import CONTAINER, AgentPod
from recovery.console.doctor.context import Surgery, Visit, why_not
from recovery.decide import brakes
from recovery.decide.situation import Situation
from recovery.errors import ApiError, NotFound
from recovery.model import EXCLUDE, NodeView
from recovery.provider.protocol import Finding, ProviderContext, load_provider
from recovery.provider.registry import Providers

AREA = "node"


def look(visit: Visit) -> Iterator[Finding]:
    """The Node, its machine, who else claims it; outside of the pod also the pod that looks after it."""
    if not visit.node_name:
        yield Finding(
            AREA,
            None,
            "no node was named, so only the cluster was looked at",
            "name one that should be recovered: node-recovery doctor --node NAME",
        )
        return
    if visit.desk is None:
        yield Finding(AREA, None, f"{visit.node_name} was not looked at: the API server did not answer")
        return
    try:
        visit.node, visit.heartbeats = visit.desk.node_and_heartbeats(visit.node_name)
    except NotFound:
        yield Finding(
            AREA,
            False,
            f"there is no Node {visit.node_name}",
            "compare with kubectl get nodes; in the pod NODE_NAME comes from spec.nodeName",
        )
        return
    except ApiError as error:
        yield Finding(AREA, None, f"{visit.node_name} could not be read: {why_not(error)}")
        return
    yield _ready(visit.node)
    if visit.settings is not None:
        yield _machine(visit, visit.settings, visit.node)
        yield from _standing_back(visit.desk, visit.settings, visit.node)
    if not visit.inside:
        yield from _agent(visit, visit.desk)


def _ready(node: NodeView) -> Finding:
    if node.ready:
        return Finding(AREA, True, f"{node.name} is Ready")
    status, reason = node.conditions.get("Ready", ("missing", ""))
    return Finding(
        AREA,
        False,
        f"{node.name} is not Ready (condition Ready is {status}{', ' + reason if reason else ''}): its agent "
        "cannot be relied on, and a sidecar does not recover a node that is NotReady",
        f"kubectl describe node {node.name}; replace it by hand if it is dead",
    )


def _machine(visit: Visit, settings: Settings, node: NodeView) -> Finding:
    context = ProviderContext(visit.clock, visit.environ)
    visit.identified = found = Providers(settings.provider, lambda n: load_provider(n, context)).identify(
        node
    )
    if found.wait:
        return Finding(AREA, False, found.wait, "wait for the cloud controller manager, and ask again")
    if found.machine is None or found.provider is None:
        return Finding(
            AREA,
            False,
            f"no machine of ours: {found.problem}",
            "its own keeper has to repair it; if that is wrong, set PROVIDER, or the kubelet's provider ID",
        )
    m = found.machine
    facts = [f"{key.replace('_', ' ')} {m.route[key]}" for key in ("zone", "nodepool") if m.route.get(key)]
    told = ", ".join([f"machine {m.id} of provider {found.provider.name}", *facts])
    return Finding(AREA, True, f"{node.provider_id or 'no providerID'}: {told}")


def _standing_back(desk: Surgery, settings: Settings, node: NodeView) -> Iterator[Finding]:
    """Marks by which people or other programs keep recovery away: meant, so no failure."""
    here = Situation(desk.time.now(), node.name, settings.policy, node=node)
    if claim := foreign_claim(node):
        yield Finding(
            AREA,
            True,
            f"{claim}: node-recovery stands back from it meanwhile",
            "let only one remediator treat a node: exclude it from the other, or from this one",
        )
    if why := brakes.excluded(here):
        yield Finding(
            AREA,
            True,
            f"{why}: nothing is started on it",
            f"if that is not meant: kubectl label node {node.name} {EXCLUDE}-, or mend the policy's exclude",
        )


# ---------------------------------------------------------------- from outside of the pod


def _agent(visit: Visit, desk: Surgery) -> Iterator[Finding]:
    """The agent's pod, and what it says of itself."""
    where = f"kubectl get pods -A -o wide --field-selector spec.nodeName={visit.node_name}"
    try:
        visit.pod = desk.agent_pod(visit.node_name)
    except ApiError as error:
        yield Finding(AREA, None, f"whether an agent runs there: {why_not(error)}", where)
        return
    if visit.pod is None:
        yield Finding(
            AREA,
            False,
            f"no pod there has a container named {CONTAINER}: nobody looks after this node",
            f"{where}; look at the DaemonSet's node affinity and tolerations",
        )
    elif not visit.pod.running:
        yield Finding(
            AREA,
            False,
            f"the agent's pod {visit.pod} is not running",
            f"kubectl -n {visit.pod.namespace} describe pod {visit.pod.name}",
        )
    else:
        yield _asked(visit, desk, visit.pod)


def _asked(visit: Visit, desk: Surgery, pod: AgentPod) -> Finding:
    try:
        answer = desk.ask_agent(pod, "/api/v1/explain")
    except ApiError as error:
        return Finding(
            AREA,
            None,
            f"the agent {pod} could not be asked: {why_not(error)}",
            "your user needs get on pods/proxy; or read its log: "
            f"kubectl -n {pod.namespace} logs {pod.name} -c {CONTAINER}",
        )
    visit.told = answer if isinstance(answer, dict) else {}
    agent = visit.told.get("agent") or {}
    said = (visit.told.get("decision") or {}).get("reason") or "nothing"
    off = "" if agent.get("recovery") else " (ENABLE_RECOVERY=false: it only watches)"
    return Finding(AREA, True, f"the agent {pod} answers{off}; it says: {said}")
