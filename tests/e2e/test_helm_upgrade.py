"""From an earlier chart, and from sidecars to fleet mode and back: ``helm upgrade`` on a real API server."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from plane import Plane
from test_deploy import CHART, CONCLUDER, CONTROLLER, IMAGE, NAMESPACE, ROOT, run
from toolbox import program

RECORDS = "/apis/noderecovery.dev/v1alpha1/noderecoveries"
DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
DETECTOR = "node-problem-detector"


EARLIER = "6cf9989"
"""A commit whose chart has its CRDs in ``crds/``, where Helm never upgrades them."""


class Release:
    """The chart in a cluster that has no node: what is there, and nothing that runs."""

    chart = CHART

    def __init__(self, plane: Plane, home: Path) -> None:
        self.plane, self.home = plane, home

    def helm(self, verb: str, *words: str) -> str:
        place = ("--namespace", NAMESPACE, "--kubeconfig", self.plane.kubeconfig("admin"))
        return run(program("helm"), verb, "node-recovery", *words, *place, home=self.home)

    def upgrade(self, *words: str) -> str:
        """``helm upgrade``, once no namespace is being deleted: Helm cannot create anything there."""
        self.plane.until("no namespace is being deleted", lambda: not self.ending(), 60)
        return self.helm("upgrade", str(self.chart), "--install", "--create-namespace", *IMAGE, *words)

    def goes_over(self, mode: str) -> str:
        return self.upgrade("--reset-then-reuse-values", "--set", f"mode={mode}")

    def ending(self) -> list[str]:
        namespaces = self.plane.get("/api/v1/namespaces")["items"]
        return [n["metadata"]["name"] for n in namespaces if n["metadata"].get("deletionTimestamp")]

    def there(self, kind: str, name: str, namespace: str = "") -> bool:
        words = ("-n", namespace) if namespace else ()
        return bool(self.plane.kubectl("get", kind, name, *words, "--ignore-not-found", "-o", "name").strip())

    def containers(self) -> list[str]:
        pod = self.plane.get(f"{DAEMONSETS}/{DETECTOR}")["spec"]["template"]["spec"]
        return [c["name"] for c in pod["containers"]]


def record_of_before(plane: Plane, phase: str = "handedOver") -> dict[str, Any]:
    record: dict[str, Any] = {
        "apiVersion": "noderecovery.dev/v1alpha1",
        "kind": "NodeRecovery",
        "metadata": {"name": "of-before"},
        "status": {"version": 1, "machine": {"provider": "aws", "id": "i-1"}, "phase": phase},
    }
    record["status"]["phaseSince"] = "2026-11-21T10:15:00Z"
    made = plane.request("POST", RECORDS, body=record)
    assert made.status == 201, made.body
    return dict(made.body)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    folder = tmp_path_factory.mktemp("upgrade")
    (folder / "plane").mkdir()
    with Plane(folder / "plane") as plane:
        yield Release(plane, folder)


def test_helm_goes_over_and_back_and_the_records_stay(release: Release) -> None:
    plane = release.plane
    release.upgrade("--set", "settings.CLUSTER_NAME=training,settings.ENABLE_RECOVERY=true")
    plane.kubectl("wait", "--for=condition=Established", "crd/noderecoveries.noderecovery.dev")
    detector = plane.get(f"{DAEMONSETS}/{DETECTOR}")["metadata"]["uid"]
    made = record_of_before(plane)

    said = release.goes_over("fleet")
    assert "Mode fleet" in said
    assert release.containers() == [DETECTOR]
    assert release.there("deployment", CONTROLLER, CONTROLLER)
    settings = plane.get(f"/api/v1/namespaces/{CONTROLLER}/configmaps/node-recovery")["data"]
    assert (settings["CLUSTER_NAME"], settings["ENABLE_RECOVERY"]) == ("training", "true")
    for kind in ("clusterrole", "clusterrolebinding"):
        assert not release.there(kind, "node-recovery"), "the agents' rights"
    assert not release.there("validatingadmissionpolicy", "node-recovery-nodes")
    plane.until("the concluder's place is gone", lambda: not release.there("namespace", CONCLUDER), 60)

    assert "Mode sidecar" in release.goes_over("sidecar")
    assert sorted(release.containers()) == [DETECTOR, "node-recovery"]
    assert release.there("deployment", CONCLUDER, CONCLUDER)
    assert not release.there("clusterrole", CONTROLLER)
    plane.until("the controller's place is gone", lambda: not release.there("namespace", CONTROLLER), 60)

    assert plane.get(f"{DAEMONSETS}/{DETECTOR}")["metadata"]["uid"] == detector, "changed, and not made anew"
    assert plane.get(f"{RECORDS}/of-before")["metadata"]["uid"] == made["metadata"]["uid"]


def earlier(folder: Path, *more: str) -> Path:
    """The chart of ``EARLIER``, and ``more`` of its tree; skipped without the history of the repository."""
    asked = ("git", "-C", str(ROOT), "archive", EARLIER, "deploy/helm/node-recovery", *more)
    found = subprocess.run(asked, capture_output=True)  # noqa: S603
    if found.returncode:
        pytest.skip(f"no commit {EARLIER} here: git fetch --unshallow gets it")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as packed:
        packed.extractall(folder, filter="data")
    return folder / "deploy/helm/node-recovery"


def test_an_earlier_chart_is_upgraded_with_its_crds_and_its_open_records(tmp_path: Path) -> None:
    (tmp_path / "plane").mkdir()
    with Plane(tmp_path / "plane") as plane:
        release = Release(plane, tmp_path)
        release.chart = earlier(tmp_path)
        release.upgrade("--set", "settings.CLUSTER_NAME=training,settings.ENABLE_RECOVERY=true")
        plane.kubectl("wait", "--for=condition=Established", "crd/noderecoveries.noderecovery.dev")
        open_one = record_of_before(plane, "recovering")
        role = plane.get(f"{RIGHTS}/clusterroles/node-recovery")["rules"]

        release.chart = CHART
        with pytest.raises(AssertionError, match="Use --reset-then-reuse-values instead of --reuse-values"):
            release.upgrade("--reuse-values")
        with pytest.raises(
            AssertionError, match="belong to no release; an earlier chart or kubectl installed them"
        ) as refused:
            release.upgrade("--reset-then-reuse-values")
        steps = re.findall(r"^ +kubectl (.*)$", str(refused.value), re.MULTILINE)
        assert len(steps) == 2
        for step in steps:
            plane.kubectl(*step.split())
        release.upgrade("--reset-then-reuse-values")

        crd = plane.get(f"{CRDS}/noderecoveries.noderecovery.dev")
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        shipped = yaml.safe_load((CHART / "files/crds/noderecoveries.yaml").read_text())
        assert fields(crd) == fields(shipped), "the server would drop what the old schema does not name"
        kept = plane.get(f"{RECORDS}/of-before")
        assert kept["metadata"]["uid"] == open_one["metadata"]["uid"]
        assert kept["status"] == open_one["status"]
        now = plane.get(f"{RIGHTS}/clusterroles/node-recovery")["rules"]
        assert granted(role) <= granted(now), "a release that recovers keeps its rights"

        release.helm("rollback", "1")
        assert plane.get(f"{RECORDS}/of-before")["metadata"]["uid"] == open_one["metadata"]["uid"]


def fields(crd: dict[str, Any]) -> Any:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def granted(rules: list[dict[str, list[str]]]) -> set[tuple[str, str]]:
    return {(verb, kind) for rule in rules for verb in rule["verbs"] for kind in rule["resources"]}


@pytest.mark.parametrize(
    ("mode", "value", "kind", "name", "namespace"),
    [
        ("fleet", "fleet.createNamespace", "namespace", CONTROLLER, ""),
        ("sidecar", "concluder.createNamespace", "namespace", CONCLUDER, ""),
        ("sidecar", "serviceAccount.create", "serviceaccount", DETECTOR, NAMESPACE),
    ],
)
def test_what_pods_need_and_somebody_else_is_to_make_from_now_on_is_not_deleted_under_them(
    release: Release, mode: str, value: str, kind: str, name: str, namespace: str
) -> None:
    place = ("-n", namespace) if namespace else ()

    def there() -> str:
        what = "{.metadata.uid} {.metadata.deletionTimestamp}"
        return release.plane.kubectl("get", kind, name, *place, "-o", f"jsonpath={what}")

    release.upgrade("--set", f"mode={mode}")
    made = there()
    left = ("--set", f"mode={mode},{value}=false")
    with pytest.raises(AssertionError, match=f"{value}: false, but this release has made the ") as refused:
        release.upgrade(*left)
    (command,) = re.findall(r"kubectl (annotate .*)", str(refused.value))
    release.plane.kubectl(*command.split())
    release.upgrade(*left)
    assert there() == made
    release.plane.kubectl("annotate", kind, name, *place, "helm.sh/resource-policy-")  # as before
    release.upgrade("--set", f"mode={mode}")
