"""What agents write in histories of the search passes the rights and the admission policies that ship.

The policies name what each account may write, field by field. What one of them does not know is refused, and
the recovery stands still. So each kind of write, of some thirty histories, is sent to a real API server.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from history import CONCLUDER
from plane import Plane
from test_deploy import CONTROLLER, DEPLOY, NAMESPACE

from recovery.kube.transport import Response
from tests.search.__main__ import failed_seeds
from tests.search.facts import Wrote
from tests.search.play import play
from tests.search.seeds import script_of

Json = dict[str, Any]
EACH = 5
"""One of so many histories that ever broke a law is played: they are the oddest ones."""
OURS = "/apis/noderecovery.dev/v1alpha1"
PATHS = {
    "Node": "/api/v1/nodes",
    "NodeRecovery": f"{OURS}/noderecoveries",
    "RecoveryGate": f"{OURS}/recoverygates",
    "RecoveryReport": f"{OURS}/recoveryreports",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
}
ACCOUNTS = {"agent": (NAMESPACE, "node-problem-detector"), **{x: (x, x) for x in (CONCLUDER, CONTROLLER)}}
OF_NODE = "Impersonate-Extra-" + quote("authentication.kubernetes.io/node-name", safe="")
MERGE = "application/merge-patch+json"
MADE_BY_THE_SERVER = (
    *("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"),
)
ALWAYS_NEW = frozenset({*MADE_BY_THE_SERVER, "renewTime", "sentence", "history", "phaseSince"})


@dataclass(frozen=True)
class Write:
    """A write of a history. ``node``: of whose pod the token is that its writer has."""

    seed: int
    account: str
    node: str
    wrote: Wrote

    @property
    def shape(self) -> object:
        """What the policies tell writes apart by."""
        w = self.wrote
        last = ((w.after or {}).get("status") or {}).get("history") or [{}]
        whose = self.node and ("own" if self.node == w.name else "another's")
        return (
            *(self.account, whose, w.verb, w.kind, phase(w.before), phase(w.after)),
            *(last[-1].get("event"), frozenset(changed(w.before or {}, w.after or {}))),
        )

    def __str__(self) -> str:
        w = self.wrote
        fields = ", ".join(sorted(changed(w.before or {}, w.after or {})))
        return f"seed {self.seed}, {self.account} {self.node}: {w.verb} {w.kind} {w.name} ({fields})"


def phase(obj: Json | None) -> str:
    return str(((obj or {}).get("status") or {}).get("phase", ""))


def changed(before: Json, after: Json, deep: int = 3) -> Iterator[str]:
    for key in before.keys() | after.keys():
        a, b = before.get(key), after.get(key)
        if a == b or key in ALWAYS_NEW:
            continue
        if deep and isinstance(a, dict) and isinstance(b, dict):
            yield from (f"{key}.{more}" for more in changed(a, b, deep - 1))
        else:
            yield f"{key}{'' if key in before and key in after else '+' if key in after else '-'}"


def writes() -> Iterator[Write]:
    """One of each shape."""
    seen = set()
    for seed in failed_seeds()[::EACH]:
        for fact in play(script_of(seed)).facts:
            if not isinstance(fact, Wrote) or fact.dry or fact.status != 200 or fact.kind not in PATHS:
                continue
            if (who := account_of(fact.actor)) and (found := Write(seed, *who, fact)).shape not in seen:
                seen.add(found.shape)
                yield found


def account_of(actor: str) -> tuple[str, str] | None:
    """Whose account has an actor of the search, and on which node its pod is known to be."""
    if actor.startswith("agent of "):
        return "agent", actor.removeprefix("agent of ").partition(",")[0]
    role = actor.partition("-")[0].partition(" ")[0]
    return {"concluder": (CONCLUDER, ""), "controller": (CONTROLLER, "")}.get(role)


class Server:
    """The real API server, with what is stored made as it was before each write."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane

    def asks(self, w: Write, method: str, path: str, body: Any, content_type: str | None = None) -> Response:
        namespace, account = ACCOUNTS[w.account]
        user = {
            "Impersonate-User": f"system:serviceaccount:{namespace}:{account}",
            "Impersonate-Group": "system:serviceaccounts",
            **({OF_NODE: w.node} if w.node else {}),
        }
        dry = {"dryRun": "All"}
        return self.plane.request(method, path, query=dry, body=body, content_type=content_type, headers=user)

    def refuses_a_label(self, w: Write) -> bool:
        label = {"metadata": {"labels": {"a": "b"}}}
        return self.asks(w, "PATCH", f"{PATHS['Node']}/{w.wrote.name}", label, MERGE).status == 403

    def sends(self, w: Write) -> Response | None:
        """The write anew, as a dry run. None: nothing of it is left."""
        fact, path = w.wrote, self.path_of(w)
        place = f"{path}/{fact.name}"
        self.plane.request("DELETE", place, query={"gracePeriodSeconds": "0"})
        if fact.verb == "create" and phase(fact.after) == "lost":
            return self.sends_lost(w, path)
        was = self.made(path, fact.before, w) if fact.before is not None else None
        if fact.after is None:
            return self.asks(w, "DELETE", place, None)
        if was is None:
            return self.asks(w, "POST", path, bare(fact.after, w))
        if fact.kind == "Node":
            patch = merge_patch(fact.before or {}, fact.after)
            patch.setdefault("metadata", {})["resourceVersion"] = was["metadata"]["resourceVersion"]
            return self.asks(w, "PATCH", place, patch, MERGE) if len(patch) > 1 else None
        return self.asks(w, "PUT", place, renamed(bare(fact.after, w), fact.after, was))

    def path_of(self, w: Write) -> str:
        lease_of_a_record = w.wrote.name.startswith("nr-") and w.account != CONTROLLER
        return PATHS[w.wrote.kind].format(NAMESPACE if lease_of_a_record else ACCOUNTS[w.account][0])

    def made(self, path: str, was: Json, w: Write) -> Json:
        """``was``, made by an administrator."""
        body = bare(was, w)
        done = self.plane.request("POST", path, body=body)
        assert done.status == 201, f"{w}: {done.body.get('message')}"
        found: Json = done.body
        if w.wrote.kind in ("Node", "RecoveryGate"):  # taints of ours, and the gate's own UID
            kept = {"spec": body.get("spec", {})} if w.wrote.kind == "Node" else {}
            found = renamed({**body, **kept}, was, found)
            done = self.plane.request("PUT", f"{path}/{w.wrote.name}", body=found)
            assert done.status == 200, f"{w}: {done.body.get('message')}"
            found = done.body
        return found

    def sends_lost(self, w: Write, path: str) -> Response:
        """Others make the record anew that somebody deleted, by the slot that its node has on the gate."""
        gate = f"{PATHS['RecoveryGate']}/fleet"
        slot = {"node": w.wrote.name, "recordUID": "gone", "attempt": 0, "scopes": ["fleet"]}
        slot["since"] = "2026-11-21T10:15:00Z"
        body: Json = {"apiVersion": "noderecovery.dev/v1alpha1", "kind": "RecoveryGate"}
        body |= {"metadata": {"name": "fleet"}, "status": {"version": 1, "slots": [slot]}}
        self.plane.request("DELETE", gate)
        assert self.plane.request("POST", PATHS["RecoveryGate"], body=body).status == 201
        # The API server's policies see the gate a moment later. Until then it is the one before (403), or
        # none, and a policy without its parameter answers 422.
        end = time.monotonic() + 10
        while True:
            answer = self.asks(w, "POST", path, bare(w.wrote.after or {}, w))
            if answer.status not in (403, 422) or time.monotonic() > end:
                return answer
            time.sleep(0.2)


def bare(obj: Json, w: Write) -> Json:
    """``obj`` without what an API server writes."""
    found = copy.deepcopy(obj)
    for field in MADE_BY_THE_SERVER:
        found["metadata"].pop(field, None)
    if w.wrote.kind == "Node":
        found.pop("status", None)
    if w.wrote.kind == "Lease":
        found["metadata"].pop("namespace", None)
    return found


def renamed(body: Json, old: Json, real: Json) -> Json:
    """``body`` as an object of the real server: of its version, and with its UID wherever ``old`` has one."""
    text = json.dumps(body).replace(str(old["metadata"].get("uid")), real["metadata"]["uid"])
    found: Json = json.loads(text)
    found["metadata"] |= {key: real["metadata"][key] for key in ("uid", "resourceVersion")}
    return found


def merge_patch(before: Json, after: Json) -> Json:
    """What a patch of a Node changed."""
    found: Json = {}
    for parts in (("metadata", "labels"), ("metadata", "annotations"), ("spec",)):
        was, now = (of(before, parts), of(after, parts))
        if news := {key: now.get(key) for key in was.keys() | now.keys() if was.get(key) != now.get(key)}:
            place = found.setdefault(parts[0], {})
            place.update({parts[1]: news} if len(parts) > 1 else news)
    return found


def of(obj: Json, path: tuple[str, ...]) -> Mapping[str, Any]:
    for key in path:
        obj = obj.get(key) or {}
    return obj


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("written")
    with Plane(folder) as plane:
        for place in ("eks-neuron", "fleet"):
            plane.apply(DEPLOY / place)
        for part in ("kube-controller-manager", "kwok"):
            plane.freeze(part)  # so that what is stored stays as it was put there
        found = Server(plane)
        fact = Wrote(0.0, "", "patch", "Node", "", "a")
        assert plane.request("POST", "/api/v1/nodes", body={"metadata": {"name": "a"}}).status == 201
        for account, node in (("agent", "b"), (CONCLUDER, ""), (CONTROLLER, "")):
            forged = Write(0, account, node, fact)
            plane.until(f"the policies limit {account}", partial(found.refuses_a_label, forged))
        plane.request("DELETE", "/api/v1/nodes/a")
        yield found


def test_what_agents_write_is_let_pass_by_the_shipped_rights_and_policies(
    server: Server, tell: Callable[[str], None]
) -> None:
    refused, passed = [], 0
    for w in writes():
        answer = server.sends(w)
        if answer is not None and answer.status not in (200, 201):
            refused.append(f"{w}: {answer.status} {answer.body.get('message')}")
        passed += answer is not None
    assert not refused, "\n".join(refused)
    assert passed > 300
    tell(f"rights and admission policies: {passed} kinds of writes of the search's histories pass")
