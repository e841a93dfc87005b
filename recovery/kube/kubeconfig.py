"""Which cluster does a command talk to? A context of a kubeconfig, as kubectl chooses it, or the pod's own.

``--kubeconfig`` goes before KUBECONFIG, and that before ``~/.kube/config``. A pod without any of them uses
its service account.
"""

from __future__ import annotations

import binascii
import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from recovery.errors import SettingsError

DEFAULT = "~/.kube/config"
IN_CLUSTER = "the pod's own cluster"
NO_FILE = "File does not exist"
NO_KEY = re.compile(r"Invalid kube-config file\. Expected key ([\w-]+) in ")
NO_ENTRY = re.compile(r"Invalid kube-config file\. Expected object with name (\S+) in .*/(\w+) list")
"""How the client library says it."""
LONGEST_NAME = 100
"""Characters of a part of a file's name that is shown."""


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
    """A cluster as people know it. ``server``: host and port of its API server. ``as_whom``: headers that
    say as whom its user acts."""

    context: str
    server: str
    namespace: str = "default"
    as_whom: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.context} ({self.server})"


def place(target: Target) -> Place:
    """What the kubeconfig says of ``target``. No credentials are used. Raises ``SettingsError``."""
    try:
        return _place(target, _merged(target.path))
    except SettingsError:
        raise
    except Exception as error:  # TypeError, YAMLError, UnicodeDecodeError ...: as the file is broken
        raise unusable(target, error) from None


class Broken(ValueError):
    """What is wrong with a kubeconfig or a token, in words of ours: nothing secret is in them."""


def unusable(target: Target, error: Exception) -> SettingsError:
    found = f"{target.named_by}: {target.path} cannot be used: {harmless(error)}"
    return SettingsError([f"{found}; expected a file that kubectl takes"])


def harmless(error: Exception) -> str:
    """What of an error is known to hold no secret of the file.

    The client library puts whole entries of users into its errors, with their tokens and passwords. YAML's
    have the line that they are about.
    """
    text = " ".join(str(error).split())
    if isinstance(error, Broken):
        return text[:200]
    if isinstance(error, UnicodeError):
        return f"it, or a file that it names, is no text ({type(error).__name__})"
    if isinstance(error, OSError):
        return _of_file(error.strerror or type(error).__name__, str(error.filename or ""))
    if text.startswith(NO_FILE):
        return _of_file(NO_FILE, text.removeprefix(NO_FILE).lstrip(": "))
    if isinstance(error, binascii.Error):
        return "data in it is no base64"
    if unnamed := NO_ENTRY.fullmatch(text):
        return f"its {unnamed[2]} have none of the name {unnamed[1]}"
    if missing := NO_KEY.match(text):
        where = text.rpartition("}")[2].strip("/")  # behind the entry itself there are the names of its parts
        return f"the key {missing[1]} is missing" + (f" ({where})" if "}" in text else "")
    if (mark := getattr(error, "problem_mark", None)) is not None:
        return f"it is no YAML (line {mark.line + 1}, column {mark.column + 1})"
    return f"what is in it cannot be read ({type(error).__name__})"


def _of_file(what: str, name: str) -> str:
    """A longer name is more likely a key or a token, written where the name of its file belongs."""
    longest = max(map(len, name.split("/")))
    return f"{what}: {name}" if 0 < longest <= LONGEST_NAME else what


def sendable(authorization: str) -> str:
    """This value of the header Authorization as it can be sent. Raises ``Broken``, which does not show it.

    Who writes a token's file with ``echo``, or a block in YAML, ends it in a newline, and so do plugins.
    """
    scheme, _, token = authorization.strip().partition(" ")
    token = token.strip()
    if not token:
        raise Broken("the token is empty")
    if not (token.isascii() and token.isprintable()):
        raise Broken("the token holds a line break, or another character that no token has")
    return f"{scheme} {token}"


def _impersonated(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The headers that say as whom ``user`` acts (``as`` and so on). Mostly there are none.

    The client library reads no such field. Who looks at a cluster as somebody who may change nothing would
    change it here, with all rights of their own, and under that name. Raises ``Broken``.
    """
    name, uid, groups, extra = (user.get(k) for k in ("as", "as-uid", "as-groups", "as-user-extra"))
    if not name:
        if uid or groups or extra:
            raise Broken("its user acts with the UID, groups or extra of another, and as names none")
        return ()
    headers = [("Impersonate-User", name), *([("Impersonate-Uid", uid)] if uid else [])]
    if not isinstance(groups or [], list) or not isinstance(extra or {}, dict):
        raise Broken("as-groups is no list, or as-user-extra no mapping")
    headers += [("Impersonate-Group", group) for group in groups or []]
    for key, values in (extra or {}).items():
        header = f"Impersonate-Extra-{quote(str(key), safe='')}"
        headers += [(header, value) for value in (values if isinstance(values, list) else [values])]
    if not all(isinstance(v, str) and v.isascii() and v.isprintable() for _, v in headers):
        raise Broken("what is in as, as-uid, as-groups or as-user-extra of its user is no plain text")
    return tuple(headers)


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
        raise Broken(f"there is no context {name}" if name else "it has no current-context")
    context = contexts[name] or {}
    cluster = found["clusters"].get(context.get("cluster")) or {}
    server = cluster.get("server") or ""
    if server and not _is_url(server):
        raise Broken(
            f"the server of its cluster {context.get('cluster')} is no URL such as https://HOST:PORT"
        )
    unverified = cluster.get("insecure-skip-tls-verify")
    if unverified is not None and not isinstance(unverified, bool):  # the client takes "false" for yes
        raise Broken("its insecure-skip-tls-verify is neither true nor false")
    user = found["users"].get(str(context.get("user"))) or {}
    namespace = str(context.get("namespace") or "default")
    return Place(name, host(server), namespace, _impersonated(user))


def _is_url(server: object) -> bool:
    """The client takes others for the name of a host, and shows a password in what it cannot read."""
    try:
        parts = urlsplit(server) if isinstance(server, str) else urlsplit("")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _merged(paths: str) -> dict[str, Any]:
    """Contexts, clusters and users by name. Of several files the first that names something wins, as for
    kubectl."""
    import yaml

    files = [file for each in paths.split(os.pathsep) if (file := Path(each).expanduser()).is_file()]
    if not files:
        raise Broken("there is no such file")
    kinds = (("contexts", "context"), ("clusters", "cluster"), ("users", "user"))
    merged: dict[str, Any] = {"current-context": "", **{kind: {} for kind, _ in kinds}}
    for file in files:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise Broken("the file is empty" if found is None else f"it is a {type(found).__name__}")
        merged["current-context"] = merged["current-context"] or str(found.get("current-context") or "")
        for kind, part in kinds:
            merged[kind] = _by_name(found.get(kind) or [], kind, part) | merged[kind]
    return merged


def _by_name(entries: Any, kind: str, part: str) -> dict[str, Any]:
    if not isinstance(entries, list) or not all(isinstance(e, dict) and e.get("name") for e in entries):
        raise Broken(f"{kind} is no list of entries with a name")
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
