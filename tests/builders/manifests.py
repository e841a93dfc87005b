"""What is in deploy/: documents, a workload's pod and containers, the environment of a running one."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
OURS = "node-recovery"
DEPLOY = Path(__file__).parents[2] / "deploy"
CRDS = ("noderecoveries", "recoverygates", "recoveryreports")


def documents(path: Path) -> list[Manifest]:
    return [found for found in yaml.safe_load_all(path.read_text()) if found]


def manifest(path: Path) -> Manifest:
    """The only document of a file."""
    (found,) = documents(path)
    return found


@functools.cache
def _crd(plural: str) -> Manifest:
    return manifest(DEPLOY / "crds" / f"{plural}.yaml")


def crd(plural: str) -> Manifest:
    """As it is shipped; a copy, to be spoiled."""
    return copy.deepcopy(_crd(plural))


def pod_spec(workload: Manifest) -> Manifest:
    spec: Manifest = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Manifest, name: str = OURS) -> Manifest:
    (found,) = [c for c in pod_spec(workload)["containers"] if c["name"] == name]
    return dict(found)


def where_it_runs(workload: Manifest) -> list[Manifest]:
    """The expressions that a node has to match, all of them."""
    affinity = pod_spec(workload)["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return list(term["matchExpressions"])


def settings_of(path: Path) -> dict[str, str]:
    """What a file of settings makes of the shared ConfigMap."""
    lines = path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def environment_of(ours: Manifest, settings: Mapping[str, str], fields: Mapping[str, str]) -> dict[str, str]:
    """The variables of a running container. As a kubelet does, $(NAME) is what came before it in ``env``.

    ``fields``: what the kubelet knows, as ``spec.nodeName``.
    """
    found: dict[str, str] = {}
    for entry in ours.get("env", []):
        value = entry.get("value") or fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        found[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda m: found.get(m[1], m[0]), value)
    return dict(settings) | found
