"""Was every right granted that an agent uses? Access reviews for the agent's service account answer it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from recovery.config.environment import Mode
from recovery.config.settings import Settings
from recovery.console.api import AgentPod
from recovery.console.doctor import fences
from recovery.console.doctor.api import DoctorApi
from recovery.console.doctor.context import CheckContext, why_not
from recovery.errors import ApiError, NotFound
from recovery.kube.rights import (
    CONCLUDERS,
    CONTROLLERS,
    KARPENTER,
    NPD_TOKEN,
    OBSERVERS,
    OBSERVING_CONTROLLERS,
    OWN,
    RIGHTS,
    Right,
    asked_by,
)
from recovery.provider.protocol import Finding
from recovery.quick import replace

AREA = "rights"
CHANGES = ("create", "update", "patch")
USER = "system:serviceaccount:"
NAMESPACE, ACCOUNT = "neuron-healthcheck-system", "node-problem-detector"
"""The namespace and service account of ``deploy/eks-neuron``, where no pod tells them."""
CONTROLLER = "node-recovery-fleet"
"""The service account of ``deploy/fleet``, where its pod cannot be read."""
ONLY_OBSERVES = (
    "it has the rights to observe and to report, and none to recover: enough with ENABLE_RECOVERY=false"
)
ALL_RIGHTS = (
    "before you turn recovery on: take deploy/observe out of the kustomization (in the chart: rbac.mode=auto)"
)

NAME_ONE = (
    "name a node that has an agent (--node NODE), or the account itself (--service-account NAMESPACE/NAME)"
)


def check(context: CheckContext) -> Iterator[Finding]:
    """One finding for each kind of object; each verb has an access review of its own."""
    if context.api is None:
        yield Finding(AREA, None, "not asked: the API server did not answer")
        return
    api = context.api
    if context.in_pod and not context.account:
        reviewer = _Reviewer(api, "", api.caller(), api.namespace)
        yield Finding(AREA, True, f"this pod is {reviewer.user}")
    else:
        account = _account(context, api)
        namespace, _, name = account.partition("/")
        reviewer = _Reviewer(api, account, f"{USER}{namespace}:{name}", namespace)
        if context.account or _pod(context) is None:  # a pod's account is there
            try:
                api.check_service_account(account)
            except NotFound:
                yield _no_account(account, guessed=not context.account)
                return
            except ApiError as error:
                yield Finding(AREA, None, f"whether there is a service account {account}: {why_not(error)}")
            else:
                why = (
                    ""
                    if context.account
                    else ". It was guessed: no pod of an agent or a controller was found"
                )
                yield Finding(AREA, True, f"the service account {account} is there{why}")
        else:
            whose = "the controller's" if context.controllers else "the agent's"
            yield Finding(AREA, True, f"{whose} service account is {account}")
    wanted = _wanted(context)
    observes = _may_be_off(context) and reviewer.only_observes(wanted)
    if observes:
        yield Finding(AREA, True, ONLY_OBSERVES, ALL_RIGHTS)
        wanted = list(OBSERVING_CONTROLLERS if context.in_fleet_mode else OBSERVERS)
    wanted += _for_the_detector(context)
    yield from reviewer.findings(wanted, certain=context.identified.machine is not None)
    if context.in_pod and not context.account and not context.is_controller and not observes:
        account = context.settings.npd_account if context.settings is not None else ""
        yield from fences.check(api, context.node_name, account)
        if context.node is not None and context.settings is not None:
            yield from fences.check_taints(api, context.node, context.settings.policy)


def _account(context: CheckContext, api: DoctorApi) -> str:
    """NAMESPACE/NAME: as given, else that of the pod that runs, else the one in the manifests."""
    if context.account:
        return context.account
    pod = _pod(context)
    if pod is None:
        return f"{NAMESPACE}/{ACCOUNT}"
    try:
        return f"{pod.namespace}/{api.service_account(pod)}"
    except ApiError:
        return f"{pod.namespace}/{CONTROLLER if context.controllers else ACCOUNT}"


def _pod(context: CheckContext) -> AgentPod | None:
    """The pod whose account's rights are asked for, where one was found."""
    return context.pod or context.controller or context.some_agent


def _no_account(account: str, guessed: bool) -> Finding:
    """Without a service account there are no rights: one finding, not one for each right."""
    if guessed:
        sentence = (
            f"nobody's rights were asked for: no agent's pod was looked at, and there is no account {account}"
        )
        return Finding(AREA, None, sentence, NAME_ONE)
    sentence = f"there is no service account {account}, so nobody's rights were asked for"
    return Finding(AREA, False, sentence, NAME_ONE)


def _wanted(context: CheckContext) -> list[Right]:
    """All rights and those the policy needs; without Karpenter's where the machine is not Karpenter's."""
    if context.in_pod and not context.account and _concludes(context):
        return list(CONCLUDERS)
    if context.controllers and not context.account:
        return list(CONTROLLERS)
    if context.is_controller and not context.account and context.settings is not None:
        return [*_of_controller(context.settings), *asked_by(context.settings.policy)]
    machine = context.identified.machine
    karpenter = machine is None or "nodepool" in machine.route
    more = asked_by(context.settings.policy) if context.settings is not None else ()
    return [*(r for r in RIGHTS if karpenter or r.group != KARPENTER), *more]


def _for_the_detector(context: CheckContext) -> list[Right]:
    """What an agent needs that keeps tokens for node-problem-detector. Outside its pod that is not seen."""
    if not context.in_pod or context.account or context.settings is None or not context.settings.npd_account:
        return []
    return [replace(right, name=context.settings.npd_account) for right in NPD_TOKEN]


def _may_be_off(context: CheckContext) -> bool:
    """Whether an agent or controller may be off there. Outside its pod its settings are not seen."""
    if not context.in_pod or context.settings is None:
        return True
    return not context.settings.enable_recovery and not _concludes(context)


def _of_controller(settings: Settings) -> Iterator[Right]:
    """Its own Lease is in its own namespace."""
    for right in CONTROLLERS:
        yield replace(right, namespace=settings.pod_namespace) if right.namespace == OWN else right


def _concludes(context: CheckContext) -> bool:
    return context.settings is not None and context.settings.mode is Mode.CONCLUDER


class _Reviewer:
    """Access reviews for one user. ``account`` is "" for the caller; ``namespace`` is the agent's own."""

    def __init__(self, api: DoctorApi, account: str, user: str, namespace: str) -> None:
        self.api = api
        self.account = account
        self.user = user
        self.namespace = namespace

    def findings(self, rights: list[Right], certain: bool) -> Iterator[Finding]:
        """``certain``: the machine is identified, so it is known whether Karpenter's rights are needed."""
        for _, some in groupby(rights, key=lambda r: (r.kind, r.namespace)):
            try:
                yield self._kind(list(some), certain)
            except ApiError as error:
                yield Finding(
                    AREA,
                    None,
                    f"the rights of {self.user} could not be asked: {why_not(error)}",
                    f"as an administrator: kubectl auth can-i --list --as={self.user}",
                )
                return

    def only_observes(self, rights: list[Right]) -> bool:
        """Whether it has no right to change a Node or the gate. False where that cannot be asked."""
        changing = [r for r in rights if r.resource in ("nodes", "recoverygates") and r.verb in CHANGES]
        try:
            return not any(self.api.may(r, "", self.account) for r in changing)
        except ApiError:
            return False

    def _kind(self, rights: list[Right], certain: bool) -> Finding:
        where = self.namespace if rights[0].namespace == OWN else rights[0].namespace
        kind = rights[0].kind + (f" in namespace {where}" if where else "")
        denied = [r for r in rights if not self.api.may(r, where, self.account)]
        if not denied:
            return Finding(AREA, True, f"it may {_verbs(rights)} {kind}")
        needed = "; ".join(f"{r.verb} {r.why}" for r in denied)
        sentence = f"it may not {_verbs(denied)} {kind}, which it needs: {needed}"
        return Finding(AREA, _gravity(denied, certain), sentence, self._grant(denied[0], where))

    def _grant(self, right: Right, namespace: str) -> str:
        where = f" -n {namespace}" if namespace else ""
        kind = (
            f"{right.resource}/{right.name} --subresource={right.subresource}" if right.name else right.kind
        )
        check = f"kubectl auth can-i {right.verb} {kind}{where} --as={self.user}"
        return f"bind the rules of {right.granted_by} to it, then check: {check}"


def _gravity(denied: list[Right], certain: bool) -> bool | None:
    """An agent works without Events. Whether it needs Karpenter's rights depends on the machine."""
    if not any(r.vital for r in denied):
        return True
    return False if certain or denied[0].group != KARPENTER else None


def _verbs(rights: list[Right]) -> str:
    return ", ".join(r.verb for r in rights)
