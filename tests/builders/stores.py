"""An API server in memory that has this program's CRDs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from recovery_testkit.kubestore import KubernetesStore

from tests.builders.manifests import CRDS, crd
from tests.builders.times import NOW


def store_with_crds(now: Callable[[], datetime] = lambda: NOW) -> KubernetesStore:
    made = KubernetesStore(now=now)
    for plural in CRDS:
        made.install_crd(crd(plural))
    return made
