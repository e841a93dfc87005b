"""What only ``doctor`` asks of the API server: the served kinds and schemas, and access reviews."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from recovery.console.api import COMPONENT, OURS, AgentPod, UserApi, agent_pod
from recovery.kube import shapes
from recovery.kube.cluster import MERGE_PATCH
from recovery.kube.rights import Right
from recovery.model import GROUP, VERSION
from recovery.units import parse_moment

_REVIEWS = "/apis/authorization.k8s.io/v1"


class DoctorApi(UserApi):
    """Reads that only ``doctor`` makes. Every authenticated user may make them, except where said."""

    def server_version(self) -> str:
        """Raises ``ApiUnavailable`` where what answers gives none: every API server does."""
        version = self._call("GET", "/version").get("gitVersion")
        if not version or not isinstance(version, str):
            raise shapes.strange("GET /version", "it has no gitVersion")
        return version

    def served(self) -> list[str]:
        """The resources of our API group in our version. Raises ``NotFound`` where it is not served."""
        return _texts(self._call("GET", f"/apis/{GROUP}/{VERSION}"), "resources", "name")

    def dry_run(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        """Ask for a write that is not carried out. Raises ``ApiError`` where it would be refused."""
        kind = MERGE_PATCH if method == "PATCH" else None
        self._call(method, path, query={"dryRun": "All"}, body=body, content_type=kind)

    def versions(self) -> list[str]:
        """The versions of our API group that are served."""
        return _texts(self._call("GET", f"/apis/{GROUP}"), "versions", "version")

    def schemas(self) -> Mapping[str, Any]:
        """The schemas of our kinds, by kind, as OpenAPI v3 (Kubernetes 1.27 and later) publishes them."""
        found, what = self._call("GET", f"/openapi/v3/apis/{GROUP}/{VERSION}"), "the question for schemas"
        named = shapes.part_of(shapes.part_of(found, "components", what), "schemas", what)
        return {
            str(kind.get("kind")): schema
            for name in named
            for schema in (shapes.part_of(named, name, what),)
            for kind in schema.get("x-kubernetes-group-version-kind") or []
        }

    def lease(self, namespace: str, name: str) -> tuple[str, datetime | None]:
        """Who holds a Lease, "" for nobody, and when it was renewed; None where that is no time."""
        where = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases/{quote(name)}"
        spec = self._stored("GET", where).get("spec") or {}
        try:
            renewed = parse_moment(str(spec.get("renewTime")))
        except ValueError:
            renewed = None
        return str(spec.get("holderIdentity") or ""), renewed

    def concluders(self) -> list[Mapping[str, Any]]:
        """The concluder's pods, by the labels that they have in the manifests. Needs ``list`` on pods."""
        return list(self._pages("/api/v1/pods", {"labelSelector": f"{OURS},{COMPONENT}=concluder"}))

    def judged_by(self, node: str, concluder: str) -> str:
        """The pod on ``node`` that has the agent's container but ``concluder``; empty where none has."""
        for item in self._pages("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"}):
            pod = agent_pod(item)
            if pod is not None and str(pod) != concluder:
                return str(pod)
        return ""

    def service_account(self, pod: AgentPod) -> str:
        """The service account of ``pod``. Needs ``get`` on pods."""
        where = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}"
        return str((self._stored("GET", where).get("spec") or {}).get("serviceAccountName") or "default")

    def check_service_account(self, account: str) -> None:
        """Raises ``NotFound`` where NAMESPACE/NAME is not there. Needs ``get`` on serviceaccounts."""
        namespace, _, name = account.partition("/")
        self._stored("GET", f"/api/v1/namespaces/{quote(namespace)}/serviceaccounts/{quote(name)}")

    def may(self, right: Right, namespace: str, account: str) -> bool:
        """Whether ``account`` (NAMESPACE/NAME, "" for the caller) has ``right``: an access review.

        Reviewing somebody else's rights needs ``create`` on subjectaccessreviews.
        """
        kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
        wanted = {
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
            "verb": right.verb,
            "namespace": namespace,
        }
        wanted |= {"name": right.name} if right.name else {}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "spec": {"resourceAttributes": wanted, **(_subject(account) if account else {})},
        }
        what = f"a {kind}"
        status = shapes.part_of(
            self._call("POST", f"{_REVIEWS}/{kind.lower()}s", body=review), "status", what
        )
        if not isinstance(status.get("allowed"), bool):
            raise shapes.strange(what, "it does not say whether it is allowed")
        return bool(status["allowed"])


def _texts(found: Any, part: str, key: str) -> list[str]:
    """``key`` of each entry of the list ``part``."""
    entries = shapes.body_of(found, f"the question for {part}").get(part)
    if not isinstance(entries, list) or not all(isinstance(e, dict) and key in e for e in entries):
        raise shapes.strange(f"the question for {part}", f"it has no list of {part}")
    return [str(entry[key]) for entry in entries]


def _subject(account: str) -> dict[str, Any]:
    """A service account as the authorizer sees it: its user name, and the groups that every one is in."""
    namespace, _, name = account.partition("/")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
