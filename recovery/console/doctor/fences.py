"""Do the admission policies bind this pod's account? Dry runs that they have to refuse answer it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from recovery.console.doctor.api import DoctorApi
from recovery.decide.marks import mark_patch, not_on
from recovery.errors import ApiError, Conflict, Fenced, NotFound
from recovery.model import GROUP, VERSION, Marks, NodeView, Policy
from recovery.provider.protocol import Finding

AREA = "rights"
BY_POLICY = "ValidatingAdmissionPolicy"
"""What the API server calls it when a policy refused (k8s.io/apiserver, plugin/policy/validating)."""
INSTALL = (
    "apply deploy/rbac/admission.yaml (Kubernetes 1.30 or later; in the chart: admissionPolicies). Where "
    "that is done, it names another account: see deploy/README.md on another namespace"
)
ADD_KEY = (
    "add its key to the variable taintKeys of the policy node-recovery-nodes (in the chart: taintKeys); "
    "docs/security.md says how"
)
LABELS = {f"{GROUP}/doctor": "tried"}
"""Nobody's: no agent may put it on anything."""


def check(api: DoctorApi, node: str, npd_account: str = "") -> Iterator[Finding]:
    """One finding. ``node``: the agent's own, "" for a concluder. ``npd_account``: the one that it asks for
    tokens of, "" where it does not. Nothing is changed."""
    bound: list[str] = []
    for what, method, path, body in (*_forbidden(api.namespace, node), *_token(api.namespace, npd_account)):
        try:
            refused = _refused(api, method, path, body)
        except ApiError as error:
            yield Finding(AREA, None, f"whether a stolen token is limited, for {what}: {error.reason}")
            return
        if not refused:
            why = f"no admission policy limits this account for {what}: a stolen token works for every node"
            yield Finding(AREA, False, why, INSTALL)
            return
        bound.append(what)
    yield Finding(AREA, True, f"admission policies limit what its token may do to {', '.join(bound)}")


def check_taints(api: DoctorApi, node: NodeView, policy: Policy) -> Iterator[Finding]:
    """A finding for each taint that a step of ``policy`` names and the agent may not set. Nothing is changed.

    One that is on the Node already cannot be tried there.
    """
    rungs = [rung for rule in policy.rules for rung in rule.remedy or ()]
    named = dict.fromkeys(rung.taint for rung in rungs if rung.taint is not None)
    tried = not_on(node, named)
    missing = False
    for taint in tried:
        patch = mark_patch(node, Marks(taints=(taint,)))
        assert patch is not None
        del patch["metadata"]["resourceVersion"]
        try:
            refused = _refused(api, "PATCH", f"/api/v1/nodes/{quote(node.name)}", patch)
        except ApiError as error:
            yield Finding(AREA, None, f"whether the agent may set the taint {taint}: {error.reason}")
            return
        if refused:
            missing = True
            why = f"the policy names the taint {taint}, and the admission policies let no agent set it"
            yield Finding(AREA, False, f"{why}: its step goes on without it", ADD_KEY)
    if tried and not missing:
        yield Finding(AREA, True, f"the agent may set {', '.join(map(str, tried))}, as the policy says")


def _refused(api: DoctorApi, method: str, path: str, body: dict[str, Any]) -> bool:
    """Whether a policy refuses the request. Raises ``ApiError`` where something else does."""
    try:
        api.dry_run(method, path, body)
    except (Conflict, NotFound):
        return False  # it is there already, or not: that is asked after the policies
    except Fenced:
        return True
    except ApiError as error:
        if BY_POLICY not in error.reason:
            raise
        return True
    return False


def _forbidden(namespace: str, node: str) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """What it is about, and a request: to set a label that no agent may set, or to evict one of ours."""
    ours = f"/apis/{GROUP}/{VERSION}"
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"
    if node:
        yield "its Node", "PATCH", f"/api/v1/nodes/{quote(node)}", {"metadata": {"labels": LABELS}}
    lost = {"version": 1, "phase": "lost", "phaseSince": "2026-01-01T00:00:00Z"}
    yield "records", "POST", f"{ours}/noderecoveries", _made("NodeRecovery", "doctor", lost)
    yield "the gate", "POST", f"{ours}/recoverygates", _made("RecoveryGate", "fleet", {"version": 1})
    yield "Leases", "POST", leases, {"metadata": {"name": "doctor", "labels": LABELS}, "spec": {}}
    if node:  # a concluder has no right to evict
        pod = f"/api/v1/namespaces/{quote(namespace)}/pods/doctor/eviction"
        meta = {"name": "doctor", "namespace": namespace}
        yield "evictions", "POST", pod, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}


def _token(namespace: str, account: str) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """A request for a token that is bound to no Node."""
    if account:
        path = f"/api/v1/namespaces/{quote(namespace)}/serviceaccounts/{quote(account, safe='')}/token"
        yield "node-problem-detector's tokens", "POST", path, {"spec": {}}


def _made(kind: str, name: str, status: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": LABELS}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "status": status}
