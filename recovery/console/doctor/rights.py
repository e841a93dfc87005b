"""Was every right granted that an agent uses? Asked of the API server's own authorizer, for the agent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from recovery.console.doctor.context import ACCOUNT, HOME, Surgery, Visit, why_not
from recovery.errors import ApiError, NotFound
from recovery.kube.rights import KARPENTER, OWN, RIGHTS, Right, asked_by
from recovery.provider.protocol import Finding

AREA = "rights"
USER = "system:serviceaccount:"


def look(visit: Visit) -> Iterator[Finding]:
    """One finding for each kind of object; each verb is asked by itself."""
    if visit.desk is None:
        yield Finding(AREA, None, "not asked: the API server did not answer")
        return
    desk = visit.desk
    if visit.inside and not visit.account:
        asker = _Asker(desk, "", desk.caller(), desk.namespace)
        yield Finding(AREA, True, f"this pod is {asker.user}")
    else:
        account = _account(visit, desk)
        namespace, _, name = account.partition("/")
        asker = _Asker(desk, account, f"{USER}{namespace}:{name}", namespace)
        if visit.account or visit.pod is None:  # a pod's account is there
            try:
                desk.check_service_account(account)
            except NotFound:
                yield _no_account(account, guessed=not visit.account)
                return
            except ApiError as error:
                yield Finding(AREA, None, f"whether there is a service account {account}: {why_not(error)}")
            else:
                yield Finding(AREA, True, f"the service account {account} is there")
        else:
            yield Finding(AREA, True, f"the agent's service account is {account}")
    yield from asker.findings(_wanted(visit), certain=visit.identified.machine is not None)


def _account(visit: Visit, desk: Surgery) -> str:
    """NAMESPACE/NAME: as told, else that of the agent's pod, else the one that is shipped."""
    if visit.account:
        return visit.account
    if visit.pod is None:
        return f"{HOME}/{ACCOUNT}"
    try:
        return f"{visit.pod.namespace}/{desk.service_account(visit.pod)}"
    except ApiError:
        return f"{visit.pod.namespace}/{ACCOUNT}"


def _no_account(account: str, guessed: bool) -> Finding:
    """It has no rights: said once, and not for each of them."""
    return Finding(
        AREA,
        None if guessed else False,
        f"there is no service account {account}, so nobody's rights were asked for",
        "install deploy/eks-neuron, or say whose rights to ask for: --service-account NAMESPACE/NAME",
    )


def _wanted(visit: Visit) -> list[Right]:
    """All, but Karpenter's where it is known not to be one of its own; and what the policy asks for."""
    machine = visit.identified.machine
    karpenter = machine is None or "nodepool" in machine.route
    more = asked_by(visit.settings.policy) if visit.settings is not None else ()
    return [*(r for r in RIGHTS if karpenter or r.group != KARPENTER), *more]


class _Asker:
    """Asks for one user. ``account`` is empty for whoever runs this; ``namespace`` is the agent's own."""

    def __init__(self, desk: Surgery, account: str, user: str, namespace: str) -> None:
        self.desk = desk
        self.account = account
        self.user = user
        self.namespace = namespace

    def findings(self, rights: list[Right], certain: bool) -> Iterator[Finding]:
        """``certain``: it is known whose machine this is, and so whether Karpenter's rights are needed."""
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

    def _kind(self, rights: list[Right], certain: bool) -> Finding:
        where = self.namespace if rights[0].namespace == OWN else rights[0].namespace
        kind = rights[0].kind + (f" in namespace {where}" if where else "")
        denied = [r for r in rights if not self.desk.may(r, where, self.account)]
        if not denied:
            return Finding(AREA, True, f"it may {_verbs(rights)} {kind}")
        needed = "; ".join(f"{r.verb} {r.why}" for r in denied)
        sentence = f"it may not {_verbs(denied)} {kind}, which it needs: {needed}"
        return Finding(AREA, _gravity(denied, certain), sentence, self._grant(denied[0], where))

    def _grant(self, right: Right, namespace: str) -> str:
        where = f" -n {namespace}" if namespace else ""
        check = f"kubectl auth can-i {right.verb} {right.kind}{where} --as={self.user}"
        return f"bind the rules of {right.granted_by} to it, then check: {check}"


def _gravity(denied: list[Right], certain: bool) -> bool | None:
    """Without its Events an agent works; whether Karpenter's claims are needed only the machine tells."""
    if not any(r.vital for r in denied):
        return True
    return False if certain or denied[0].group != KARPENTER else None


def _verbs(rights: list[Right]) -> str:
    return ", ".join(r.verb for r in rights)
