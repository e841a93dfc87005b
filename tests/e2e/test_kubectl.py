"""kubectl against the in-memory Kubernetes API."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recovery_testkit.kubernetes import KubernetesServer, KubernetesStore
from toolbox import program

from tests.builders.objects import node_object

Json = dict[str, Any]


THING = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "noderecoveries.noderecovery.dev"},
    "spec": {
        "group": "noderecovery.dev",
        "scope": "Cluster",
        "names": {
            "plural": "noderecoveries",
            "singular": "noderecovery",
            "kind": "NodeRecovery",
            "shortNames": ["nr"],
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "additionalPrinterColumns": [
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "status": {"type": "object", "properties": {"phase": {"type": "string"}}}
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def store() -> KubernetesStore:
    return KubernetesStore()


@pytest.fixture
def server(store: KubernetesStore) -> Iterator[KubernetesServer]:
    with KubernetesServer(store) as running:
        yield running


@pytest.fixture
def kubectl(server: KubernetesServer, store: KubernetesStore, tmp_path: Path) -> Callable[..., str]:
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path)}
    store.install_crd(THING)
    record = {"apiVersion": "noderecovery.dev/v1alpha1", "kind": "NodeRecovery", "metadata": {"name": "n1"}}
    store.load(node_object(), {**record, "status": {"phase": "suspect"}})

    def run(*arguments: str) -> str:
        command = [str(program("kubectl")), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)  # noqa: S603
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_kubectl_shows_nodes_and_records(kubectl: Callable[..., str]) -> None:
    shown = kubectl("get", "nodes")
    assert shown.split()[:5] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert shown.split()[5:7] == ["n1", "Ready"]
    assert kubectl("get", "nr").split() == ["NAME", "PHASE", "n1", "suspect"]
    assert "KubeletReady" in kubectl("describe", "node", "n1")
    assert "suspect" in kubectl("describe", "nr", "n1")
    assert kubectl("get", "nr", "n1", "-o", "jsonpath={.status.phase}") == "suspect"


def test_kubectl_marks_nodes(kubectl: Callable[..., str], store: KubernetesStore) -> None:
    kubectl("cordon", "n1")
    assert "SchedulingDisabled" in kubectl("get", "node", "n1")
    kubectl("taint", "node", "n1", "example.org/a=b:NoSchedule")
    kubectl("label", "node", "n1", "example.org/l=v")
    kubectl("annotate", "node", "n1", "example.org/a=some words")
    held = store.request("GET", "/api/v1/nodes/n1").body
    assert held["spec"] == {
        "unschedulable": True,
        "taints": [{"key": "example.org/a", "value": "b", "effect": "NoSchedule"}],
    }
    assert held["metadata"]["labels"] == {"example.org/l": "v"}
    kubectl("taint", "node", "n1", "example.org/a-")
    kubectl("uncordon", "n1")
    kubectl("label", "node", "n1", "example.org/l-")
    held = store.request("GET", "/api/v1/nodes/n1").body
    assert held["spec"] == {}
    assert "labels" not in held["metadata"]


def test_kubectl_drains_and_deletes(kubectl: Callable[..., str], store: KubernetesStore) -> None:
    spec = {"nodeName": "n1", "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "i"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": spec}
    store.load({**body, "status": {"phase": "Running"}})
    assert "pod/p evicted" in kubectl("drain", "n1", "--force", "--timeout=30s")
    assert store.requests["create", "pods/eviction"] == 1
    kubectl("delete", "nr", "n1")
    kubectl("delete", "node", "n1")
    assert store.request("GET", "/api/v1/nodes").body["items"] == []


def test_it_is_a_plugin_of_kubectl(tmp_path: Path) -> None:
    """kubectl runs ``kubectl-node_recovery`` for ``kubectl node-recovery``."""
    plugin = tmp_path / "kubectl-node_recovery"
    plugin.write_text(f"#!{sys.executable}\nimport sys\nfrom recovery.cli import main\nsys.exit(main())\n")
    plugin.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    asked = [str(program("kubectl")), "node-recovery", "status", "--help"]
    done = subprocess.run(asked, env=environ, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    assert done.stdout.startswith("Usage: kubectl node-recovery status [OPTIONS]")
