"""Which cluster does a command talk to? A context of a kubeconfig, as kubectl chooses it, or the pod's own.

``--kubeconfig`` goes before KUBECONFIG, and that before ``~/.kube/config``. A pod without any of them uses
its service account.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recovery.errors import SettingsError

DEFAULT = "~/.kube/config"
IN_CLUSTER = "the pod's own cluster"


@dataclass(frozen=True)
class Target:
    """What the caller named. Both empty: the cluster that a plain kubectl would talk to."""

    context: str = ""
    kubeconfig: str = ""

    @property
    def path(self) -> str:
        """The kubeconfig file, or several with ``:`` between them, as KUBECONFIG may name them."""
        return self.kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT

    @property
    def in_cluster(self) -> bool:
        named = self.context or self.kubeconfig or os.environ.get("KUBECONFIG")
        return not named and "KUBERNETES_SERVICE_HOST" in os.environ

    @property
    def named_by(self) -> str:
        return "--kubeconfig" if self.kubeconfig else "KUBECONFIG"


USUAL = Target()


@dataclass(frozen=True)
class Place:
    """A cluster as people know it. ``server``: host and port of its API server."""

    context: str
    server: str
    namespace: str = "default"

    def __str__(self) -> str:
        return f"{self.context} ({self.server})"


def place(target: Target) -> Place:
    """What the kubeconfig says of ``target``. No credentials are read. Raises ``SettingsError``."""
    try:
        return _place(target, _merged(target.path))
    except SettingsError:
        raise
    except Exception as error:  # TypeError, YAMLError, UnicodeDecodeError ...: as the file is broken
        raise unusable(target, error) from None


def unusable(target: Target, error: object) -> SettingsError:
    why = " ".join(str(error).split())[:200]
    found = f"{target.named_by}: {target.path} cannot be used: {why}"
    return SettingsError([f"{found}; expected a file that kubectl takes"])


def is_usual(target: Target, chosen: Place) -> bool:
    """Whether a plain kubectl would talk to the same context of the same server."""
    if target == USUAL:
        return True
    if USUAL.in_cluster:
        return False
    try:
        usual = place(USUAL)
    except SettingsError:
        return False
    return (usual.context, usual.server) == (chosen.context, chosen.server)


def _place(target: Target, found: dict[str, Any]) -> Place:
    contexts, name = found["contexts"], target.context or found["current-context"]
    if target.context and name not in contexts:
        raise _unknown(target, sorted(contexts))
    if name not in contexts:
        raise ValueError(f"there is no context {name}" if name else "it has no current-context")
    context = contexts[name] or {}
    cluster = found["clusters"].get(context.get("cluster")) or {}
    return Place(name, host(str(cluster.get("server") or "")), str(context.get("namespace") or "default"))


def _merged(paths: str) -> dict[str, Any]:
    """Contexts and clusters by name. Of several files the first that names something wins, as for kubectl."""
    import yaml

    files = [file for each in paths.split(os.pathsep) if (file := Path(each).expanduser()).is_file()]
    if not files:
        raise ValueError("there is no such file")
    merged: dict[str, Any] = {"current-context": "", "contexts": {}, "clusters": {}}
    for file in files:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("the file is empty" if found is None else f"it is a {type(found).__name__}")
        merged["current-context"] = merged["current-context"] or str(found.get("current-context") or "")
        for kind, part in (("contexts", "context"), ("clusters", "cluster")):
            merged[kind] = _by_name(found.get(kind) or [], kind, part) | merged[kind]
    return merged


def _by_name(entries: Any, kind: str, part: str) -> dict[str, Any]:
    if not isinstance(entries, list) or not all(isinstance(e, dict) and e.get("name") for e in entries):
        raise ValueError(f"{kind} is no list of entries with a name")
    return {str(each["name"]): each.get(part) for each in entries}


def host(server: str) -> str:
    """Host and port of an address, without what may be a secret in it."""
    parts = urlsplit(server if "//" in server else f"//{server}")
    return parts.netloc.rpartition("@")[2] or "no server"


def _unknown(target: Target, contexts: list[str]) -> SettingsError:
    expected = f"expected one of {', '.join(contexts)}" if contexts else "it has no contexts"
    near = difflib.get_close_matches(target.context, contexts, 1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return SettingsError([f"--context: found {target.context!r}, {expected} ({target.path}){hint}"])
