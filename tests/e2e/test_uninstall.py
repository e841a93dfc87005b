"""``node-recovery uninstall`` amid a recovery, with the rights of the chart's hook and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from fleet_site import NAMESPACE, Site, training
from plane import Plane
from test_deploy import CHART, IMAGE, LATER, run
from test_helm_upgrade import Release
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


JOB = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{ACCOUNT}"
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
def release(tmp_path: Path) -> Iterator[Release]:
    """The chart with recovery on, and a Node that it has marked."""
    (tmp_path / "plane").mkdir()
    with Plane(tmp_path / "plane") as plane:
        made = Release(plane, tmp_path)
        made.upgrade(*ON)
        plane.kubectl("wait", "--for=condition=Established", "crd/noderecoveries.noderecovery.dev")
        plane.request("POST", "/api/v1/nodes", body=MARKED)
        yield made


def hook_job(plane: Plane) -> str:
    """The UID of the hook's Job while it has not ended."""
    found = plane.request("GET", JOB)
    ended = found.status != 200 or (found.body.get("status") or {}).get("conditions")
    return "" if ended else str(found.body["metadata"]["uid"])


def ends(plane: Plane, *conditions: str) -> None:
    """The hook's pod has run: what the Job controller writes then, which does not run here."""
    plane.until("the hook's Job is there", lambda: hook_job(plane))
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    status: Json = {"startTime": at, "conditions": [{"type": c, "status": "True"} for c in conditions]}
    if "Complete" in conditions:
        status |= {"completionTime": at, "succeeded": 1}
    answer = plane.request("PATCH", f"{JOB}/status", body={"status": status}, content_type=MERGE)
    assert answer.status == 200, answer.body


def test_helm_deletes_nothing_before_the_marks_are_off_and_leaves_no_right_behind(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = release.plane
    with ThreadPoolExecutor(1) as pool:
        helm = pool.submit(release.helm, "uninstall", "--timeout", "90s")
        ends(plane, "FailureTarget", "Failed")  # something is left
        with pytest.raises(AssertionError, match="job node-recovery-uninstall failed"):
            helm.result()
        assert release.there("daemonset", "node-problem-detector", NAMESPACE), "nothing is deleted"

        helm = pool.submit(release.helm, "uninstall", "--timeout", "90s")
        plane.until("the hook of now is there", lambda: hook_job(plane))
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}"
        token = plane.request("POST", f"{account}/token", body={"spec": {}}).body["status"]["token"]
        config = tmp_path / "hook.kubeconfig"
        config.write_text(yaml.safe_dump(plane._kubeconfig(token)))
        monkeypatch.setenv("KUBECONFIG", str(config))
        code, found = uninstalled()
        ends(plane, "SuccessCriteriaMet", "Complete")
        helm.result()
    assert (code, found["nothingLeft"], [x["node"] for x in found["cleared"]]) == (0, True, ["broken"])
    node = plane.get("/api/v1/nodes/broken")
    assert not node["spec"].get("unschedulable")
    assert not [t for t in node["spec"].get("taints") or [] if "noderecovery" in t["key"]]
    assert not node["metadata"].get("annotations")
    assert not release.there("daemonset", "node-problem-detector", NAMESPACE)
    assert not release.there("clusterrole", ACCOUNT)
    assert not release.there("serviceaccount", ACCOUNT, NAMESPACE)
