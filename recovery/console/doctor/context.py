"""What the areas know when they begin, and what they find out for those that come after them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from recovery.clock import Clock
from recovery.config.settings import Settings
from recovery.console.api import AgentPod, Desk
from recovery.errors import ApiError
from recovery.kube.cluster import node_view
from recovery.kube.rights import Right
from recovery.model import GROUP, VERSION, NodeView
from recovery.provider.registry import Identified

HOME, ACCOUNT = "neuron-healthcheck-system", "node-problem-detector"
"""The namespace and service account of ``deploy/eks-neuron``."""
_REVIEWS = "/apis/authorization.k8s.io/v1"


class Surgery(Desk):
    """The API server, asked what only ``doctor`` asks. Each answer is for every user, but where said."""

    def server_version(self) -> str:
        return str(self._call("GET", "/version").get("gitVersion") or "of no version")

    def served(self) -> list[str]:
        """The resources of our group in the version we speak. ``NotFound`` where it is not served."""
        found = self._call("GET", f"/apis/{GROUP}/{VERSION}")
        return [str(entry["name"]) for entry in found.get("resources") or []]

    def versions(self) -> list[str]:
        """The versions of our group that are served."""
        found = self._call("GET", f"/apis/{GROUP}")
        return [str(entry["version"]) for entry in found.get("versions") or []]

    def schemas(self) -> Mapping[str, Any]:
        """The schemas of our kinds, by kind, as OpenAPI v3 (Kubernetes 1.27 and later) publishes them."""
        found = self._call("GET", f"/openapi/v3/apis/{GROUP}/{VERSION}")
        named = (found.get("components") or {}).get("schemas") or {}
        return {
            str(kind["kind"]): schema
            for schema in named.values()
            for kind in schema.get("x-kubernetes-group-version-kind") or []
        }

    def node_and_heartbeats(self, name: str) -> tuple[NodeView, dict[str, str]]:
        """The Node, and when each of its conditions was last renewed."""
        found = self._call("GET", f"/api/v1/nodes/{quote(name)}")
        conditions = (found.get("status") or {}).get("conditions") or []
        return node_view(found), {c["type"]: c.get("lastHeartbeatTime") or "" for c in conditions}

    def service_account(self, pod: AgentPod) -> str:
        """The service account of ``pod``. Needs ``get`` on pods."""
        where = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}"
        return str((self._call("GET", where).get("spec") or {}).get("serviceAccountName") or "default")

    def check_service_account(self, account: str) -> None:
        """Raises ``NotFound`` where NAMESPACE/NAME is not there. Needs ``get`` on serviceaccounts."""
        namespace, _, name = account.partition("/")
        self._call("GET", f"/api/v1/namespaces/{quote(namespace)}/serviceaccounts/{quote(name)}")

    def may(self, right: Right, namespace: str, account: str) -> bool:
        """Whether ``account`` (NAMESPACE/NAME, "" for whoever asks) has ``right``.

        Asking about another needs ``create`` on subjectaccessreviews.
        """
        kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
        wanted = {
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
            "verb": right.verb,
            "namespace": namespace,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "spec": {"resourceAttributes": wanted, **(_subject(account) if account else {})},
        }
        status = self._call("POST", f"{_REVIEWS}/{kind.lower()}s", body=review).get("status") or {}
        return bool(status.get("allowed"))


def _subject(account: str) -> dict[str, Any]:
    """Who a service account is to the authorizer: its name, and the groups it is in by itself."""
    namespace, _, name = account.partition("/")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}


@dataclass
class Visit:
    """One run of ``doctor``. What is None or empty has not been found, or could not be asked."""

    environ: Mapping[str, str]
    clock: Clock
    node_name: str = ""
    account: str = ""
    inside: bool = False  # in the agent's own pod: what is asked here, the agent would be told
    settings: Settings | None = None
    desk: Surgery | None = None
    node: NodeView | None = None
    heartbeats: dict[str, str] = field(default_factory=dict)
    identified: Identified = field(default_factory=Identified)
    pod: AgentPod | None = None
    told: dict[str, Any] = field(default_factory=dict)  # what the agent on the node says of itself

    @property
    def own_page(self) -> bool:
        """Whether the detector's page can be read from here: in its pod, or where its address was given."""
        if self.inside:
            return self.node_name == self.environ.get("NODE_NAME", "")
        return "NPD_METRICS_URL" in self.environ


def why_not(error: ApiError) -> str:
    """Why the API server did not answer a question, short for what everybody knows."""
    return "you have no right to ask (403)" if error.status == 403 else error.reason


def in_pod(environ: Mapping[str, str]) -> bool:
    """Whether this is a pod that speaks to the API server as itself."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and not environ.get("KUBECONFIG")


def visit_of(node: str, account: str, clock: Clock, environ: Mapping[str, str] = os.environ) -> Visit:
    """A visit that has found out nothing yet."""
    name = node or environ.get("NODE_NAME", "")
    return Visit(environ, clock, name, account, in_pod(environ))
