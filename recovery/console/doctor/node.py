"""Is the Node there and Ready, is its machine identified, and may node-recovery act on it?"""

from __future__ import annotations

from collections.abc import Iterator

from recovery.catalog import foreign_claim
from recovery.config.settings import Settings
from recovery.console.api import CONTAINER, AgentPod
from recovery.console.doctor.api import DoctorApi
from recovery.console.doctor.context import CheckContext, why_not
from recovery.console.node_facts import ask_controllers
from recovery.decide import brakes
from recovery.decide.situation import Situation
from recovery.errors import ApiError, NotFound
from recovery.model import EXCLUDE, NodeView
from recovery.provider.protocol import Finding, ProviderContext, load_provider
from recovery.provider.registry import Providers
from recovery.signals.kubelet import READY

AREA = "node"
OBSERVES = " (ENABLE_RECOVERY=false: it only observes)"


def check(context: CheckContext) -> Iterator[Finding]:
    """The Node, its machine and who else claims it; outside of the agent's pod also that pod."""
    if not context.node_name:
        yield Finding(
            AREA,
            None,
            "no node was named, so only the cluster was looked at",
            "name one that should be recovered: node-recovery doctor --node NAME",
        )
        if context.api is not None and not context.in_pod:
            yield from _which_mode(context, context.api)
        return
    if context.api is None:
        yield Finding(AREA, None, f"{context.node_name} was not looked at: the API server did not answer")
        return
    try:
        context.node = context.api.get_node(context.node_name)
    except NotFound:
        yield Finding(
            AREA,
            False,
            f"there is no Node {context.node_name}",
            "compare with kubectl get nodes; in the pod NODE_NAME comes from spec.nodeName",
        )
        return
    except ApiError as error:
        yield Finding(AREA, None, f"{context.node_name} could not be read: {why_not(error)}")
        return
    agent = [] if context.in_pod else list(_agent(context, context.api))
    yield _ready(context.node, context)
    if context.settings is not None:
        yield _machine(context, context.settings, context.node)
        yield from _exclusions(context.api, context.settings, context.node)
    yield from agent


def _ready(node: NodeView, context: CheckContext) -> Finding:
    if node.ready:
        return Finding(AREA, True, f"{node.name} is Ready")
    status, reason = node.conditions.get("Ready", ("missing", ""))
    why = f"{node.name} is not Ready (condition Ready is {status}{', ' + reason if reason else ''})"
    settings = context.settings
    if context.is_controller and settings is not None:
        named = [rule.name for rule in settings.policy.rules if rule.match.type == READY]
        if named:
            return Finding(AREA, True, f"{why}: rule {named[0]} is about that")
        return Finding(
            AREA, False, f"{why}, and no rule matches the type {READY}", "docs/fleet.md, Dead nodes"
        )
    if context.controllers:
        explain = f"node-recovery explain {node.name} says what the controller does about it"
        return Finding(AREA, True, why, f"{explain}; do not replace it by hand before you have read that")
    return Finding(
        AREA,
        False,
        f"{why}: its agent cannot be relied on, and a sidecar does not recover a node that is NotReady",
        f"kubectl describe node {node.name}; replace it by hand if it is dead",
    )


def _machine(context: CheckContext, settings: Settings, node: NodeView) -> Finding:
    given = ProviderContext(context.clock, context.environ)
    providers = Providers(settings.provider, lambda name: load_provider(name, given))
    context.identified = found = providers.identify(node)
    if found.wait:
        return Finding(AREA, False, found.wait, "wait for the cloud controller manager, and ask again")
    if found.machine is None or found.provider is None:
        return Finding(
            AREA,
            False,
            f"no machine that can be recovered: {found.problem}",
            "whoever runs it has to repair it; if that is wrong, set PROVIDER, or the kubelet's provider ID",
        )
    m = found.machine
    facts = [f"{key.replace('_', ' ')} {m.route[key]}" for key in ("zone", "nodepool") if m.route.get(key)]
    machine = ", ".join([f"machine {m.id} of provider {found.provider.name}", *facts])
    return Finding(AREA, True, f"{node.provider_id or 'no providerID'}: {machine}")


def _exclusions(api: DoctorApi, settings: Settings, node: NodeView) -> Iterator[Finding]:
    """Marks by which people or other remediators keep recovery away: intended, so not a failure."""
    here = Situation(api.time.now(), node.name, settings.policy, node=node)
    if claim := foreign_claim(node):
        yield Finding(
            AREA,
            True,
            f"{claim}: node-recovery starts nothing on it meanwhile",
            "let only one remediator act on a node: exclude it from the other, or from this one",
        )
    if why := brakes.excluded(here):
        yield Finding(
            AREA,
            True,
            f"{why}: nothing is started on it",
            f"if that is not meant: kubectl label node {node.name} {EXCLUDE}-, or fix the policy's exclude",
        )


# ---------------------------------------------------------------- from outside of the pod


def _agent(context: CheckContext, api: DoctorApi) -> Iterator[Finding]:
    """The agent's pod, and what it says of itself."""
    where = f"kubectl get pods -A -o wide --field-selector spec.nodeName={context.node_name}"
    try:
        context.pod = api.agent_pod(context.node_name)
        controllers = [] if context.pod else api.controllers()
    except ApiError as error:
        yield Finding(AREA, None, f"whether an agent runs there: {why_not(error)}", where)
        return
    if context.pod is None and controllers:
        context.controller = controllers[0]
        yield _ask_controllers(context, api, controllers)
    elif context.pod is None:
        yield Finding(
            AREA,
            False,
            f"no pod there has a container named {CONTAINER}: nobody looks after this node",
            f"{where}; look at the DaemonSet's node affinity and tolerations",
        )
    elif not context.pod.running:
        yield Finding(
            AREA,
            False,
            f"the agent's pod {context.pod} is not running",
            f"kubectl -n {context.pod.namespace} describe pod {context.pod.name}",
        )
    else:
        yield _ask(context, api, context.pod)


def _which_mode(context: CheckContext, api: DoctorApi) -> Iterator[Finding]:
    """Who looks after nodes here, by the pods that run: the rights to ask for are that one's."""
    try:
        context.some_agent = api.some_sidecar()
        controllers = [] if context.some_agent else api.controllers()
    except ApiError as error:
        yield Finding(AREA, None, f"whether sidecars or a controller run here: {why_not(error)}")
        return
    context.controller = controllers[0] if controllers else None
    if found := context.some_agent or context.controller:
        yield Finding(AREA, True, f"{'fleet' if controllers else 'sidecar'} mode: {found} runs")
    elif not context.account:  # who names one asks before anything is installed
        yield Finding(
            AREA,
            False,
            "nobody looks after any node: no pod of an agent or of a controller runs in this cluster",
            "install it (docs/install.md), or look why its pods do not run: kubectl get "
            "daemonsets,deployments -A -l app.kubernetes.io/name=node-recovery",
        )


def _ask_controllers(context: CheckContext, api: DoctorApi, pods: list[AgentPod]) -> Finding:
    pod, answer, why = ask_controllers(api, context.node_name, pods)
    if answer is None:
        return Finding(
            AREA,
            None,
            f"no sidecar runs there, and no replica of the controller answers for it: {why}",
            f"ask in its pod: kubectl -n {pods[0].namespace} exec {pods[0].name} -- node-recovery doctor "
            f"--node {context.node_name}",
        )
    context.agent_view = answer
    off = "" if (answer.get("agent") or {}).get("recovery") else OBSERVES
    said = answer["decision"].get("reason") or "nothing"
    return Finding(
        AREA, True, f"no sidecar runs there; the controller {pod} looks after it{off}; it says: {said}"
    )


def _ask(context: CheckContext, api: DoctorApi, pod: AgentPod) -> Finding:
    try:
        answer = api.ask_agent(pod, context.node_name)
    except ApiError as error:
        return Finding(
            AREA,
            None,
            f"the agent {pod} could not be asked: {why_not(error)}",
            "your user needs create on serviceaccounts/token and get on pods/proxy; or read its log: "
            f"kubectl -n {pod.namespace} logs {pod.name} -c {CONTAINER}",
        )
    context.agent_view = answer if isinstance(answer, dict) else {}
    agent = context.agent_view.get("agent") or {}
    said = (context.agent_view.get("decision") or {}).get("reason") or "nothing"
    off = "" if agent.get("recovery") else OBSERVES
    return Finding(AREA, True, f"the agent {pod} answers{off}; it says: {said}")
