"""A machine's BareMetalHost: which one it is, whether it is surely that machine's, and how it stands. Pure.

Facts, from https://github.com/metal3-io/baremetal-operator (apis/metal3.io/v1alpha1/baremetalhost_types.go,
internal/controller/metal3.io/baremetalhost_controller.go):

- Only hosts that are provisioned are rebooted. A host that is paused or detached is left alone.
- A host in a steady state is looked at once a minute, so ``status.poweredOn`` may be as old.
- ``status.hardware`` is what an inspection saw before the host was provisioned, and has no system UUID. The
  addresses there may be of another network than the Node's.

providerIDs: ``metal3://NAMESPACE/HOST/METAL3MACHINE``, and before it ``metal3://UID`` (metal3-io/
cluster-api-provider-metal3, baremetal/metal3machine_manager.go); ``baremetalhost:///NAMESPACE/HOST[/UID]``
(openshift/cluster-api-provider-baremetal). UID is that of the BareMetalHost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from recovery.errors import Refused
from recovery.model import GROUP, Machine, NodeView
from recovery.provider.protocol import ObjectRef

API_VERSION, PLURAL = "metal3.io/v1alpha1", "baremetalhosts"
HOST = f"{GROUP}/bare-metal-host"
"""A Node's annotation: namespace/name of its BareMetalHost, where the providerID does not say it."""
REBOOT = "reboot.metal3.io"
PAUSED, DETACHED = "baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached"
OWNER = "node-recovery"
STEADY = ("provisioned", "externally provisioned")
_MACHINES = ("Metal3Machine", "Machine")

_NAMESPACE = r"(?P<namespace>[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)"
_DNS = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_UID = r"(?P<uid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_KINDS = (
    re.compile(rf"metal3://{_NAMESPACE}/(?P<host>{_DNS})/(?P<consumer>{_DNS})"),
    re.compile(rf"metal3://{_UID}"),
    re.compile(rf"baremetalhost:///{_NAMESPACE}/(?P<host>{_DNS})(?:/{_UID})?"),
)
_ANNOTATED = re.compile(rf"{_NAMESPACE}/(?P<host>{_DNS})")


@dataclass(frozen=True)
class Host:
    """A BareMetalHost. ``name`` is namespace/name; ``unfit``, ``busy``, ``error``: sentences, or empty."""

    name: str
    body: Mapping[str, Any]

    @property
    def uid(self) -> str:
        return str(_at(self.body, "metadata", "uid") or "")

    @property
    def version(self) -> str:
        return str(_at(self.body, "metadata", "resourceVersion") or "")

    @property
    def annotations(self) -> Mapping[str, str]:
        return _at(self.body, "metadata", "annotations") or {}

    @property
    def asked(self) -> bool:
        return REBOOT in self.annotations

    @property
    def asked_by_us(self) -> bool:
        try:
            told = json.loads(self.annotations.get(REBOOT) or "{}")
        except (ValueError, RecursionError):
            return False
        return isinstance(told, dict) and told.get("by") == OWNER

    @property
    def consumer(self) -> str:
        return str(_at(self.body, "spec", "consumerRef", "name") or "")

    @property
    def addresses(self) -> list[str]:
        nics = _at(self.body, "status", "hardware", "nics")
        return addresses_of(str(_at(nic, "ip") or "") for nic in (nics if isinstance(nics, list) else ()))

    @property
    def power(self) -> str:
        on = _at(self.body, "status", "poweredOn")
        return ("on" if on else "off") if isinstance(on, bool) else "not known"

    @property
    def error(self) -> str:
        """What Metal3 says that it failed at; never empty while it says that it failed."""
        if _at(self.body, "status", "operationalStatus") != "error":
            return ""
        said = (str(_at(self.body, "status", key) or "") for key in ("errorMessage", "errorType"))
        told = next(filter(None, (" ".join(x.split()) for x in said)), "it does not say why")
        return told if len(told) <= 300 else told[:299] + "…"

    @property
    def unseen(self) -> str:
        """Why its state is not what Metal3 sees now."""
        for key in (PAUSED, DETACHED):
            if key in self.annotations:
                return f"BareMetalHost {self.name} has the annotation {key}: Metal3 leaves it alone"
        state = _at(self.body, "status", "provisioning", "state") or "nothing"
        if state not in STEADY:
            return f"BareMetalHost {self.name} is in the state {state}; expected {' or '.join(STEADY)}"
        return self.failing

    @property
    def failing(self) -> str:
        """That Metal3 fails at it, which it goes on trying."""
        return f"Metal3 cannot manage BareMetalHost {self.name}: {self.error}" if self.error else ""

    @property
    def unfit(self) -> str:
        """Why Metal3 would not reboot it."""
        if _at(self.body, "metadata", "deletionTimestamp"):
            return f"BareMetalHost {self.name} is being deleted"
        if _at(self.body, "spec", "online") is not True:
            return f"BareMetalHost {self.name} is to be off (spec.online)"
        return self.unseen

    @property
    def busy(self) -> str:
        """What is in the way, and will not be for ever."""
        held = sorted(key for key in self.annotations if key.startswith(f"{REBOOT}/"))
        if held:
            return f"somebody keeps the power of BareMetalHost {self.name} off (annotation {held[0]})"
        if _at(self.body, "status", "operationalStatus") == "servicing":
            return f"Metal3 is servicing BareMetalHost {self.name}"
        return ""


def host_of(node: NodeView) -> dict[str, str]:
    """What a Node says of its BareMetalHost: host (its name), host_by, host_uid, consumer; or no_host."""
    told, has = node.annotations.get(HOST, ""), f"node {node.name} has the"
    kind = f"{has} providerID {quote(node.provider_id)}"
    matches = (pattern.fullmatch(node.provider_id) for pattern in _KINDS)
    found = next((match.groupdict() for match in matches if match), {})
    by_id = f"{found['namespace']}/{found['host']}" if found.get("host") else ""
    proof = {"host_uid": found.get("uid") or "", "consumer": found.get("consumer") or ""}
    if told and not _ANNOTATED.fullmatch(told):
        return {"no_host": f"{has} annotation {HOST}={quote(told)}; expected namespace/name"}
    if by_id and told not in ("", by_id):
        return {"no_host": f"{kind}, and the annotation {HOST}={told}: these are two hosts, correct one"}
    if by_id:
        return {"host": by_id, "host_by": "its providerID", **proof}
    if told:
        return {"host": told, "host_by": f"its annotation {HOST}", **proof}
    return {"no_host": f"{kind}, which names no BareMetalHost; annotate it with {HOST}=namespace/name"}


def same_machine(machine: Machine, host: Host) -> tuple[str, ...]:
    """Notes on the host, if it is surely the machine's own. Raises ``Refused``.

    Proof is the host's uid or its consumer, where the providerID has them; else an address in common.
    """
    route, notes = machine.route, list[str]()
    kind = _at(host.body, "spec", "consumerRef", "kind")
    if (uid := route.get("host_uid")) and uid != host.uid:
        raise Refused(
            f"BareMetalHost {host.name} has the uid {host.uid}, and {named(machine)} was made on {uid}"
        )
    consumer = route.get("consumer") if kind in ("Metal3Machine", None) else ""  # else it is lent on
    if consumer and consumer != host.consumer:
        raise Refused(
            f"BareMetalHost {host.name} is used by {host.consumer or 'nobody'}, and {named(machine)} is of "
            f"{consumer}"
        )
    ours, theirs = set(route.get("addresses", "").split(",")) - {""}, set(host.addresses)
    if theirs and not ours & theirs:
        told = (
            f"BareMetalHost {host.name} was inspected with the addresses {', '.join(sorted(theirs))}; "
            f"{named(machine)} has {', '.join(sorted(ours)) or 'none'}"
        )
        if not (uid or consumer):
            raise Refused(f"{told}: nothing proves that it is the same machine")
        notes.append(told)
    if not theirs and not (uid or consumer) and route.get("host_by") != "its providerID":
        raise Refused(
            f"BareMetalHost {host.name} has no hardware details with addresses: nothing proves that it is "
            f"{named(machine)}"
        )
    if kind in _MACHINES:
        notes.append(f"{kind} {host.consumer} uses it: a MachineHealthCheck may act on this machine as well")
    return tuple(notes)


def ref_of(machine: Machine) -> ObjectRef:
    """Where its host is. Raises ``Refused``."""
    found = _ANNOTATED.fullmatch(machine.route.get("host", ""))
    if found is None:
        raise Refused(machine.route.get("no_host") or f"{named(machine)} names no BareMetalHost")
    return ObjectRef(API_VERSION, PLURAL, found["namespace"], found["host"])


def addresses_of(told: Iterable[str]) -> list[str]:
    """The IP addresses among ``told``, as they are written by everybody else."""
    found = []
    for text in told:
        try:
            found.append(str(ip_address(text)))
        except ValueError:
            continue  # a host name
    return found


def _at(found: Any, *path: str) -> Any:
    """What is below ``found``; None where the way ends early."""
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def named(machine: Machine) -> str:
    """The machine's node, as sentences call it."""
    return f"node {machine.route.get('node') or machine.id}"


def quote(text: object) -> str:
    """Foreign text, short enough for a sentence."""
    told = str(text)
    return repr(told if len(told) <= 160 else told[:159] + "…")
