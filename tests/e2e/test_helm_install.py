"""What ``helm install`` sees of a real cluster before it changes anything, and what its notes say."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml
from fleet_site import register
from plane import Plane
from test_deploy import CHART, DEPLOY, IMAGE, NAMESPACE, run
from toolbox import program

TYPE = "node.kubernetes.io/instance-type"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("install")
    more = {"kube-controller-manager": ["--controllers=clusterrole-aggregation-controller"]}
    with Plane(folder, more) as found:
        for name, type_ in (("trn-1", "trn1.32xlarge"), ("trn-2", "trn1.32xlarge"), ("cpu-1", "m7i.large")):
            register(found, name, name, f"aws:///a/i-{name}", {TYPE: type_, "pool": name[:3]}, "boot")
        yield found


def helm(plane: Plane, verb: str, release: str, *words: str, namespace: str = NAMESPACE) -> str:
    place = ("--namespace", namespace, "--kubeconfig", plane.kubeconfig("admin"))
    return run(program("helm"), verb, release, *words, *place, home=plane.folder)


def upgrade(plane: Plane, *words: str, release: str = "node-recovery", namespace: str = NAMESPACE) -> str:
    place = ("--install", "--create-namespace", *IMAGE)
    return helm(plane, "upgrade", release, str(CHART), *place, *words, namespace=namespace)


@pytest.fixture
def installed(plane: Plane) -> Iterator[str]:
    """What the notes say."""
    yield upgrade(plane)
    helm(plane, "uninstall", "node-recovery", "--wait")


def test_the_clusters_own_roles_get_what_belongs_to_them(plane: Plane, installed: str) -> None:
    def may(role: str) -> set[tuple[str, str]]:
        rules = plane.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")["rules"] or ()
        ours = [rule for rule in rules if "noderecovery.dev" in rule.get("apiGroups", ())]
        return {(verb, kind) for rule in ours for verb in rule["verbs"] for kind in rule["resources"]}

    looks = {("list", "noderecoveries"), ("get", "recoverygates"), ("get", "recoveryreports")}
    plane.until("a viewer may look", lambda: looks <= may("view"))
    plane.until("an administrator may pause", lambda: ("update", "recoverygates") in may("admin"))
    for role in ("view", "edit"):
        assert {verb for verb, _ in may(role)} == {"get", "list", "watch"}


def test_the_notes_name_the_nodes_that_match(plane: Plane, installed: str) -> None:
    assert "It looks after 2 of 3 Nodes: trn-1, trn-2\n" in installed
    for values, names in (
        ("npd.instanceTypes=null,npd.nodeSelector.pool=cpu", "1 of 3 Nodes: cpu-1"),
        ("npd.instanceTypes=null", "3 of 3 Nodes: cpu-1, trn-1, trn-2"),
    ):
        assert f"It looks after {names}\n" in upgrade(plane, "--set", values)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "3 of 3 Nodes: cpu-1, trn-1, trn-2"),
        ("pool=trn", "2 of 3 Nodes: trn-1, trn-2"),
        ("pool", "3 of 3 Nodes: cpu-1, trn-1, trn-2"),
        ("pool!=trn", "1 of 3 Nodes: cpu-1"),
        ("kubernetes.io/os==linux, pool=cpu", "1 of 3 Nodes: cpu-1"),
    ],
)
def test_in_fleet_mode_the_notes_name_those_of_its_selector(plane: Plane, selector: str, names: str) -> None:
    said = selector.replace(",", r"\,")
    notes = upgrade(plane, "--set", f"mode=fleet,settings.FLEET_SELECTOR={said}", "--dry-run=server")
    assert f"It looks after {names}\n" in notes


@pytest.mark.parametrize(
    "values",
    ["npd.instanceTypes={p5.48xlarge}", "mode=fleet,settings.FLEET_SELECTOR=!pool", "npd.nodeSelector.a=b"],
)
def test_that_no_node_matches_is_said_loudly(plane: Plane, values: str) -> None:
    notes = upgrade(plane, "--set", values, "--dry-run=server")
    assert "!!! NO NODE MATCHES: THIS RELEASE LOOKS AFTER NONE OF 3 NODES. !!!" in notes
    assert "NO NODE" not in upgrade(plane, "--set", f"{values},lookups=false", "--dry-run=server")


def test_a_daemonset_that_is_not_there_is_said_loudly(plane: Plane) -> None:
    notes = upgrade(plane, "--set", "npd.create=false,npd.name=other", "--dry-run=server")
    assert f"!!! THERE IS NO DAEMONSET other IN THE NAMESPACE {NAMESPACE}. !!!" in notes


def test_a_second_installation_is_refused_and_one_beside_it_in_its_namespace_is_not(
    plane: Plane, installed: str
) -> None:
    there = (
        "node-recovery is already installed in this cluster: "
        f"the release node-recovery in the namespace {NAMESPACE}"
    )
    with pytest.raises(AssertionError, match=there):
        upgrade(plane, release="mine", namespace="elsewhere")
    with pytest.raises(AssertionError, match=there):
        upgrade(plane, "--set", "mode=fleet", release="mine")
    beside = "npd.name=mine,serviceAccount.create=false,concluder.create=false"
    with pytest.raises(AssertionError, match=r"crds\.enabled: these CRDs belong to the release"):
        upgrade(plane, "--set", beside, release="mine")
    upgrade(plane, "--set", f"{beside},crds.enabled=false", release="mine")
    upgrade(plane)
    helm(plane, "uninstall", "mine")


def test_what_kubectl_applied_is_another_installation(plane: Plane) -> None:
    plane.kubectl("apply", "-f", str(DEPLOY / "rbac" / "clusterrolebinding.yaml"))
    try:
        with pytest.raises(
            AssertionError, match=r"what kubectl applied \(ClusterRoleBinding node-recovery\)"
        ):
            upgrade(plane, "--dry-run=server", release="mine")
    finally:
        plane.kubectl("delete", "clusterrolebinding", "node-recovery")


def test_what_a_hook_of_helms_has_left_is_no_installation(plane: Plane) -> None:
    """The binding of a `helm uninstall` that failed: Helm marks no object of a hook as its release's."""
    binding = yaml.safe_load((DEPLOY / "rbac" / "clusterrolebinding.yaml").read_text())
    binding["metadata"] |= {"name": "node-recovery-uninstall", "annotations": {"helm.sh/hook": "pre-delete"}}
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    assert plane.request("POST", bindings, body=binding).status == 201
    upgrade(plane, "--dry-run=server")
    plane.kubectl("delete", "clusterrolebinding", "node-recovery-uninstall")


def test_a_namespace_that_would_refuse_a_privileged_detector_is_named_with_what_to_do(plane: Plane) -> None:
    plane.kubectl("create", "namespace", "strict")
    plane.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=baseline")
    with pytest.raises(
        AssertionError, match="the namespace strict enforces Pod Security baseline"
    ) as refused:
        upgrade(plane, "--dry-run=server", namespace="strict")
    (way_out,) = re.findall(r"kubectl (label --overwrite namespace .*?=privileged)", str(refused.value))
    alone = ("--set", "crds.enabled=false", "--dry-run=server")
    upgrade(plane, "--set", "npd.create=false", *alone, namespace="strict")
    plane.kubectl(*way_out.split())
    assert "STATUS" in upgrade(plane, *alone, namespace="strict")


def test_records_outlive_the_release_and_its_next_installation(plane: Plane) -> None:
    upgrade(plane)
    crd = ("get", "crd", "noderecoveries.noderecovery.dev", "-o", "jsonpath={.metadata.uid}")
    before = plane.kubectl(*crd)
    helm(plane, "uninstall", "node-recovery", "--wait")
    assert plane.kubectl(*crd) == before
    upgrade(plane)
    helm(plane, "uninstall", "node-recovery", "--wait")
    assert plane.kubectl(*crd) == before


def test_crds_that_a_release_of_another_name_left_are_handed_over_by_the_one_command_that_is_said(
    plane: Plane,
) -> None:
    names = [file.stem for file in (CHART / "files" / "crds").iterdir()]
    upgrade(plane)
    helm(plane, "uninstall", "node-recovery", "--wait")
    plane.read(names)
    plane.kubectl("delete", "crd", *(f"{name}.noderecovery.dev" for name in names))
    upgrade(plane, release="first")
    helm(plane, "uninstall", "first", "--wait")
    with pytest.raises(AssertionError, match="belong to the release first") as refused:
        upgrade(plane)
    (all_of_them,) = re.findall(r"kubectl (annotate .*)", str(refused.value))
    assert all(name in all_of_them for name in names)
    plane.kubectl(*all_of_them.split())
    upgrade(plane)
    helm(plane, "uninstall", "node-recovery", "--wait")
