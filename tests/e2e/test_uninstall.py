"""``node-recovery uninstall`` amid a recovery, with the rights of the chart's hook and no more."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from fleet_site import DEPLOY, NAMESPACE, RECORDS, Site, training
from plane import Plane
from test_deploy import CHART, IMAGE, LATER, run
from test_helm_upgrade import Release
from test_upgrade_in_flight import Versions
from toolbox import program

from recovery import cli

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
ON = ("--set", "settings.ENABLE_RECOVERY=true")
ACCOUNT = "node-recovery-uninstall"
FOREIGN = {"key": "mine", "value": "x", "effect": "NoSchedule"}


def hook(home: Path, *words: str) -> list[Json]:
    """What Helm makes before it deletes the release."""
    place = ("--namespace", NAMESPACE, *IMAGE, *LATER, *words)
    text = run(program("helm"), "template", "node-recovery", CHART, *place, home=home)
    found = [d for d in yaml.safe_load_all(text) if d]
    return [d for d in found if "helm.sh/hook" in (d["metadata"].get("annotations") or {})]


def as_the_hook(site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on commands have the account of the hook, as it is while the hook runs."""
    parts = [d for d in hook(folder, *ON) if d["kind"] != "Job"]
    file = folder / "hook.yaml"
    file.write_text(yaml.safe_dump_all(parts))
    site.plane.kubectl("apply", "-f", str(file))
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    made = site.plane.request("POST", path, body={"spec": {}})
    assert made.status == 201, made.body
    config = folder / "hook.kubeconfig"
    config.write_text(yaml.safe_dump(site.plane._kubeconfig(made.body["status"]["token"])))
    monkeypatch.setenv("KUBECONFIG", str(config))


def uninstalled() -> tuple[int, Json]:
    with CliRunner().isolation() as (out, err, _):
        code = cli.main(["uninstall", "--yes", "-o", "json"])
    assert out.getvalue(), err.getvalue()
    return code, json.loads(out.getvalue())


def of_ours(site: Site) -> list[str]:
    """Every mark of ours on any node."""
    found = []
    for node in site.plane.get("/api/v1/nodes")["items"]:
        notes = node["metadata"].get("annotations") or {}
        keys = [*notes, *(t["key"] for t in node["spec"].get("taints") or [])]
        found += [f"{node['metadata']['name']}: {key}" for key in keys if "noderecovery.dev" in key]
    return found


def test_in_the_middle_of_a_drain_nothing_of_ours_is_left_and_foreign_cordons_stay(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.lawless = True  # a sick node is given back, by a person
    site.recovering(budget=2)
    sick, later, kept = site.group(3)
    training(site.plane, replicas=6, most_out=0)
    foreign = {"spec": {"unschedulable": True, "taints": [FOREIGN]}}
    site.plane.request("PATCH", f"/api/v1/nodes/{kept}", body=foreign, content_type=MERGE)
    site.breaks(sick)
    site.until("it is drained", lambda: any(sick in mark for mark in of_ours(site)))
    as_the_hook(site, tmp_path, monkeypatch)

    code, found = uninstalled()

    assert (code, found["nothingLeft"], found["left"]) == (0, True, [])
    assert [x["node"] for x in found["cleared"]] == [sick]
    assert (of_ours(site), site.phase(sick), site.slots()) == ([], "released", [])
    assert not site.plane.get(f"/api/v1/nodes/{sick}")["spec"].get("unschedulable")
    spec = site.plane.get(f"/api/v1/nodes/{kept}")["spec"]
    assert spec["unschedulable"]
    assert FOREIGN in spec["taints"]

    site.breaks(later)  # the agents still run; the budget has a place for it
    site.until("its fault is on record", lambda: site.phase(later) == "waiting")
    assert (of_ours(site), site.marked()) == ([], []), "a pause keeps them from beginning anything"
    code, found = uninstalled()
    assert (code, found["nothingLeft"], of_ours(site)) == (0, True, [])
    assert site.phase(later) == "released"


def test_a_replacement_that_was_asked_for_is_left_until_it_is_proved(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.recovering()
    nodes = site.group(3)
    sick = next(iter(nodes))
    groups = list(site.groups)
    site.groups.clear()  # nobody terminates anything for the moment
    site.breaks(sick)
    site.until("the group is asked", site.marked)
    site.until("it is on record", lambda: site.phase(sick) == "recovering")
    as_the_hook(site, tmp_path, monkeypatch)

    code, found = uninstalled()

    assert (code, found["nothingLeft"]) == (1, False)
    ((left),) = found["left"]
    assert left["node"] == sick
    assert left["why"].startswith(f"replace of {nodes[sick]} has been asked for and cannot be called back.")
    assert {mark.partition(":")[0] for mark in of_ours(site)} == {sick}, "its marks stay"

    site.groups += groups
    site.until("it is proved", lambda: site.phase(sick) == "recovered", 120)
    code, found = uninstalled()
    assert (code, found["nothingLeft"], of_ours(site)) == (0, True, [])


def test_the_hook_may_do_nothing_that_the_command_does_not_do(tmp_path: Path) -> None:
    (role,) = [d for d in hook(tmp_path, *ON) if d["kind"] == "ClusterRole"]
    rights = {(verb, kind) for r in role["rules"] for kind in r["resources"] for verb in r["verbs"]}
    assert rights == {
        *((verb, "nodes") for verb in ("get", "list", "patch")),
        *((verb, "noderecoveries") for verb in ("get", "list", "update")),
        *((verb, "recoverygates") for verb in ("get", "create", "update")),
    }
    (job,) = [d for d in hook(tmp_path, *ON) if d["kind"] == "Job"]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["uninstall", "--yes"]
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == ACCOUNT


@pytest.mark.parametrize("mode", ["sidecar", "fleet"])
def test_the_hook_stays_off_the_nodes_that_are_looked_after(mode: str, tmp_path: Path) -> None:
    """Its token may patch every Node, and no admission policy limits it."""
    words = (*ON, "--set", f"mode={mode}")
    (job,) = [d for d in hook(tmp_path, *words) if d["kind"] == "Job"]
    text = run(program("helm"), "template", "node-recovery", CHART, *IMAGE, *LATER, *words, home=tmp_path)
    (deployment,) = [d for d in yaml.safe_load_all(text) if d and d["kind"] == "Deployment"]
    theirs, its = (d["spec"]["template"]["spec"] for d in (deployment, job))
    assert {k: its.get(k) for k in ("affinity", "nodeSelector", "tolerations")} == {
        k: theirs.get(k) for k in ("affinity", "nodeSelector", "tolerations")
    }
    assert its["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]


@pytest.mark.parametrize(
    "words",
    [(), (*ON, "--set", "uninstallHook.enabled=false"), (*ON, "--set", "concluder.create=false")],
    ids=["it only observes", "switched off", "beside another release"],
)
def test_there_is_no_hook_where_it_has_nothing_to_do_or_is_not_wanted(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    assert hook(tmp_path, *words) == []


# ---------------------------------------------------------------- Helm runs it


HANDED_OVER = {
    "version": 1,
    "machine": {"provider": "aws", "id": "i-1"},
    "phase": "handedOver",
    "phaseSince": "2026-11-21T10:15:00Z",
}
MARKED = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "broken", "annotations": {"noderecovery.dev/cordoned-by": "node-recovery"}},
    "spec": {
        "unschedulable": True,
        "taints": [{"key": "noderecovery.dev/unhealthy", "effect": "NoSchedule"}],
    },
}


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Versions]:
    """By the chart, on a control plane that runs Jobs."""
    (tmp_path / "plane").mkdir()
    more = {"kube-controller-manager": ["--controllers=job"]}
    with Plane(tmp_path / "plane", more) as plane, Versions(plane, tmp_path / "site") as found:
        found.lawless = True  # sick nodes are given back
        found.clear()
        found.goes_to(None)
        yield found


def test_helm_deletes_nothing_while_a_step_is_under_way_and_leaves_nothing_after_it(
    installed: Versions, tell: Callable[[str], None]
) -> None:
    """The hook's pod runs: its own command, with its account's token. Its Job's status is Kubernetes' own."""
    site, release = installed, Release(installed.plane, installed.folder)
    asked, drained, waits = site.begins_three()
    machine = site.instances[asked]

    with pytest.raises(AssertionError, match=f"job {ACCOUNT} failed"):
        release.helm("uninstall")

    (refused,) = site.kubelets.hooks()
    assert f"replace of {machine} has been asked for and cannot be called back" in refused.log.read_text()
    assert [site.phase(n) for n in (asked, drained, waits)] == ["recovering", "released", "released"]
    assert {mark.partition(":")[0] for mark in of_ours(site)} == {asked}
    assert release.there("daemonset", "node-problem-detector", NAMESPACE), "nothing is deleted"
    assert not rights_of_the_hook(release), "nothing that may patch each Node stays behind a refusal"

    site.lets_go_on()
    site.until("it is proved", lambda: site.phase(asked) == "recovered", 240)
    release.helm("uninstall")

    _, done = site.kubelets.hooks()
    assert "Nothing of node-recovery is left on any node" in done.log.read_text()
    assert (of_ours(site), site.marked()) == ([], [machine])
    assert not release.there("daemonset", "node-problem-detector", NAMESPACE)
    assert not rights_of_the_hook(release)
    tell("helm uninstall amid recoveries: the hook's pod ran, refused, and ran again; no mark on any node")


# ---------------------------------------------------------------- kubectl delete


PAGES = ("eks-neuron", "eks-gpu", "aks-gpu", "baremetal", "fleet")
"""The folders that the pages have people apply."""
KINDS = ("noderecoveries", "recoverygates", "recoveryreports")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A cluster without a node, in which nothing of ours runs."""
    with Plane(tmp_path_factory.mktemp("pages")) as found:
        yield found


def everything(plane: Plane) -> set[str]:
    """Each object of the cluster, but for those that controllers make by themselves."""
    kinds = plane.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    by_themselves = ("events", "leases", "ipaddresses", "apiservices")
    wanted = ",".join(k for k in kinds if k.partition(".")[0] not in by_themselves)
    return set(plane.kubectl("get", wanted, "--all-namespaces", "-o", "name").split())


def applied(plane: Plane, page: str) -> None:
    """A page's folder, a Node with our marks, and its record."""
    plane.apply(DEPLOY / page)
    assert plane.request("POST", "/api/v1/nodes", body=MARKED).status == 201
    record = {"apiVersion": "noderecovery.dev/v1alpha1", "kind": "NodeRecovery", "status": HANDED_OVER}
    made = plane.request("POST", RECORDS, body={**record, "metadata": {"name": "broken"}})
    assert made.status == 201, made.body
    plane.read(KINDS)


def marked(plane: Plane) -> list[str]:
    """Our marks on the Node, its cordon among them."""
    node = plane.get("/api/v1/nodes/broken")
    found = [key for key in node["metadata"].get("annotations") or {} if "noderecovery.dev" in key]
    found += [t["key"] for t in node["spec"].get("taints") or [] if "noderecovery.dev" in t["key"]]
    return found + (["cordon"] if node["spec"].get("unschedulable") else [])


@pytest.mark.parametrize(("page", "careful"), [*((page, False) for page in PAGES), ("eks-neuron", True)])
def test_deleting_what_a_page_applied_leaves_nothing_but_the_marks_that_nobody_took_off(
    bare: Plane, page: str, careful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends, and nothing of it outlives it: no namespace that hangs, no policy, no right, no CRD."""
    monkeypatch.setenv("KUBECONFIG", str(bare.kubeconfig("admin")))
    before = everything(bare)
    applied(bare, page)
    if careful:
        code, found = uninstalled()
        assert (code, found["nothingLeft"]) == (0, True)

    bare.kubectl("delete", "-k", str(DEPLOY / page), "--timeout=100s")

    assert everything(bare) - before == {"node/broken"}
    if not careful:  # it takes no pods, and nobody is left to say why
        assert marked(bare) == ["noderecovery.dev/cordoned-by", "noderecovery.dev/unhealthy", "cordon"]
        code, found = uninstalled()
        assert (code, found["nothingLeft"], [x["node"] for x in found["cleared"]]) == (0, True, ["broken"])
    assert marked(bare) == []
    bare.kubectl("delete", "node", "broken")


def test_the_command_of_the_page_that_keeps_the_records_keeps_them_and_nothing_else(bare: Plane) -> None:
    page = (DEPLOY / "README.md").read_text().partition("## Uninstall")[2]
    (command,) = re.findall(r"kubectl (delete namespace,clusterrole,.*?)\n *```", page, re.DOTALL)
    before = everything(bare)
    applied(bare, "aks-gpu")

    bare.kubectl(*shlex.split(command.replace("\\\n", "")))

    crds = {f"customresourcedefinition.apiextensions.k8s.io/{kind}.noderecovery.dev" for kind in KINDS}
    kept = crds | {"noderecovery.noderecovery.dev/broken", "node/broken"}
    assert everything(bare) - before == kept
    bare.kubectl("delete", *crds, "node/broken")  # and the record goes with its CRD


def rights_of_the_hook(release: Release) -> list[str]:
    kinds = (("clusterrole", ""), ("clusterrolebinding", ""), ("serviceaccount", NAMESPACE))
    return [kind for kind, namespace in kinds if release.there(kind, ACCOUNT, namespace)]
