"""Every right that an agent uses at the Kubernetes API, and what for: the one table.

``deploy/rbac`` grants it, ``deploy/observe`` what is left of it while nothing is recovered,
``deploy/options`` what only some policies need, and ``deploy/npd-account`` what an agent beside
node-problem-detector needs. ``doctor`` asks whether it was granted. A test compares the table and the
manifests with what ``cluster.py`` calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from recovery.model import GROUP, Policy
from recovery.quick import replace

EVERYWHERE = ""
"""In all namespaces, or a kind that has no namespace."""
EVENTS = "default"
"""Events about nodes, which have no namespace, are written here."""
OWN = "(the agent's own)"
"""The namespace that the agent's pod runs in."""


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one kind. ``vital``: nothing can be recovered without it."""

    group: str
    resource: str
    subresource: str
    verb: str
    namespace: str
    why: str
    vital: bool = True
    granted_by: str = "deploy/rbac"
    name: str = ""  # of the one object that it is for; "" for all

    @property
    def kind(self) -> str:
        """As kubectl and RBAC write it: ``pods/eviction``, ``leases.coordination.k8s.io``."""
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{name}.{self.group}" if self.group else name


KARPENTER = "karpenter.sh"
AUTHENTICATION = "authentication.k8s.io"
RIGHTS = (
    Right("", "nodes", "", "get", EVERYWHERE, "to know the machine behind its name"),
    Right("", "nodes", "", "list", EVERYWHERE, "to count the sick, for the brake"),
    Right("", "nodes", "", "patch", EVERYWHERE, "to cordon and taint, and to undo that"),
    Right("", "pods", "", "list", EVERYWHERE, "to see what a drain has left, and which pod is to be read"),
    Right("", "pods", "eviction", "create", EVERYWHERE, "to drain"),
    Right("", "events", "", "list", EVENTS, "to start nothing while AKS auto-repair is at work"),
    Right("", "events", "", "create", EVENTS, "to post Events, for kubectl describe node", vital=False),
    Right("", "events", "", "patch", EVENTS, "to count up an Event that repeats", vital=False),
    Right(GROUP, "noderecoveries", "", "get", EVERYWHERE, "to go on after a restart"),
    Right(GROUP, "noderecoveries", "", "list", EVERYWHERE, "to count the sick and rebuild the gate"),
    Right(GROUP, "noderecoveries", "", "create", EVERYWHERE, "to write down what it is about to do"),
    Right(GROUP, "noderecoveries", "", "update", EVERYWHERE, "to write down what came of it"),
    Right(GROUP, "noderecoveries", "", "delete", EVERYWHERE, "to remove old closed records", vital=False),
    Right(GROUP, "recoverygates", "", "get", EVERYWHERE, "to see the budget and the pause"),
    Right(GROUP, "recoverygates", "", "create", EVERYWHERE, "to make the gate, once"),
    Right(GROUP, "recoverygates", "", "update", EVERYWHERE, "to take its place in the budget"),
    Right(GROUP, "recoveryreports", "", "get", EVERYWHERE, "to go on with the report", vital=False),
    Right(GROUP, "recoveryreports", "", "create", EVERYWHERE, "to make the report, once", vital=False),
    Right(GROUP, "recoveryreports", "", "update", EVERYWHERE, "to keep what it would do", vital=False),
    Right("coordination.k8s.io", "leases", "", "get", OWN, "to see whether a peer is alive"),
    Right("coordination.k8s.io", "leases", "", "create", OWN, "to show that it is alive"),
    Right("coordination.k8s.io", "leases", "", "update", OWN, "to show that it is still alive"),
    Right(
        AUTHENTICATION, "tokenreviews", "", "create", EVERYWHERE, "to know who asks for explain", vital=False
    ),
    Right(KARPENTER, "nodeclaims", "", "get", EVERYWHERE, "to see that Karpenter's machine goes"),
    Right(KARPENTER, "nodeclaims", "", "delete", EVERYWHERE, "to replace a machine of Karpenter's"),
)
BY_AGENTS_ALONE = {
    ("nodes", "patch"),
    ("pods", "list"),
    ("pods", "create"),
    ("events", "list"),
    ("nodeclaims", "delete"),
    ("tokenreviews", "create"),
    ("recoveryreports", "get"),
    ("recoveryreports", "create"),
    ("recoveryreports", "update"),
}
CONCLUDERS = tuple(
    replace(r, granted_by="deploy/concluder") for r in RIGHTS if (r.resource, r.verb) not in BY_AGENTS_ALONE
)
"""What a concluder uses of these: it drains nothing and touches no Node. ``OWN`` is the agents' namespace."""
CONTROLLERS = (
    *(replace(r, granted_by="deploy/fleet") for r in RIGHTS),
    Right("", "nodes", "", "watch", EVERYWHERE, "to see every Node as it changes", granted_by="deploy/fleet"),
    Right("", "pods", "", "watch", EVERYWHERE, "to see pods fail (BlackHole)", granted_by="deploy/fleet"),
    Right(
        *("coordination.k8s.io", "leases", "", "get", EVERYWHERE),
        "to see whether a silent kubelet, or a sidecar, still renews its Lease",
        vital=False,
        granted_by="deploy/fleet",
    ),
    *(
        Right(GROUP, kind, "", verb, EVERYWHERE, "to read it only when it changes", False, "deploy/fleet")
        for kind, verb in (("noderecoveries", "watch"), ("recoverygates", "list"), ("recoverygates", "watch"))
    ),
)
"""What fleet mode's controller uses. ``OWN`` is its own namespace: its Lease is there."""
SEEN_BY_AGENTS = {
    ("nodes", "get"),
    ("pods", "list"),
    ("events", "create"),
    ("events", "patch"),
    ("noderecoveries", "get"),
    ("recoveryreports", "get"),
    ("recoveryreports", "create"),
    ("recoveryreports", "update"),
    ("tokenreviews", "create"),
}
SEEN_BY_CONTROLLERS = SEEN_BY_AGENTS | {
    ("nodes", "list"),
    ("nodes", "watch"),
    ("pods", "watch"),
    ("noderecoveries", "list"),
    ("leases", "get"),
}
OBSERVERS, OBSERVING_CONTROLLERS = (
    tuple(
        replace(r, granted_by="deploy/observe")
        for r in all_of_them
        if (r.resource, r.verb) in seen and r.namespace != OWN
    )
    for all_of_them, seen in ((RIGHTS, SEEN_BY_AGENTS), (CONTROLLERS, SEEN_BY_CONTROLLERS))
)
"""What agents and the controller use while ENABLE_RECOVERY is false; no concluder runs with so little."""
POWER = tuple(
    Right("", resource, "", verb, EVERYWHERE, why, granted_by="deploy/baremetal/components/power")
    for resource, verb, why in (
        ("nodes", "patch", "to have the stuck pods of a dead machine given up (out-of-service)"),
        ("pods", "list", "to see which pods are stuck"),
    )
)
"""What a concluder uses besides where it sees whether a machine is powered down."""
CHECKPOINT = (
    Right(
        "",
        "pods",
        "",
        "patch",
        EVERYWHERE,
        "to annotate pods before they are evicted (drain.pods[].annotate)",
        vital=False,
        granted_by="deploy/options/checkpoint",
    ),
)
VALIDATION = tuple(
    Right("batch", kind, "", verb, OWN, f"{why} (validate)", granted_by="deploy/options/validation")
    for kind, verb, why in (
        ("cronjobs", "get", "to make a validation Job of it"),
        ("jobs", "get", "to see whether it succeeded"),
        ("jobs", "create", "to validate a node before it is given back"),
    )
)
NPD_TOKEN = (
    Right(
        "",
        "serviceaccounts",
        "token",
        "create",
        OWN,
        "to give node-problem-detector a token of its own account (NPD_ACCOUNT)",
        vital=False,
        granted_by="deploy/npd-account",
    ),
)


def asked_by(policy: Policy) -> tuple[Right, ...]:
    """What ``policy`` needs beside ``RIGHTS``."""
    annotated = any(rule.annotate for rule in policy.drain.pods)
    validated = any(rule.validate for rule in policy.rules)
    return (*(CHECKPOINT if annotated else ()), *(VALIDATION if validated else ()))
