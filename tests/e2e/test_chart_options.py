"""The chart's image, its CRDs, and what a platform team adds to everything that it installs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from test_deploy import (
    ALL_RIGHTS,
    CHART,
    CONCLUDER,
    CONTROLLER,
    DEPLOY,
    FLEET,
    NAMESPACE,
    Document,
    Tools,
    container,
    one,
    pod,
    sound,
    workloads,
)

DIGEST = f"sha256:{'a1' * 32}"
CRDS = "CustomResourceDefinition"


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def of_kind(found: list[Document], kind: str) -> list[Document]:
    return [d for d in found if d["kind"] == kind]


# ---------------------------------------------------------------- the image


@pytest.mark.parametrize(
    ("image", "pulled"),
    [
        ("{repository: registry.example.com/nr}", "registry.example.com/nr:0.1.0"),
        ("{repository: 'registry.example.com:5000/nr', tag: v2}", "registry.example.com:5000/nr:v2"),
        (f"{{repository: a/nr, digest: '{DIGEST}'}}", f"a/nr@{DIGEST}"),
        (f"{{repository: a/nr, tag: v2, digest: '{DIGEST}'}}", f"a/nr:v2@{DIGEST}"),
        (f"{{repository: a/nr, tag: 'v2@{DIGEST}'}}", f"a/nr:v2@{DIGEST}"),
    ],
)
def test_the_image_is_named_by_tag_or_digest_wherever_it_runs(tools: Tools, image: str, pulled: str) -> None:
    found = tools.template(f"image: {image}") + tools.template(f"mode: fleet\nimage: {image}")
    ours = [c for w in workloads(found) for c in pod(w)["containers"] if c["name"] == "node-recovery"]
    assert {c["image"] for c in ours} == {pulled}
    assert len(ours) == 3


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("{repository: ''}", "image.repository: missing, and no public registry has the image."),
        (
            "{repository: 'a/nr:v2'}",
            "image.repository: a/nr:v2: expected only a registry and a name, such as "
            "registry.example.com/node-recovery. Put a tag into image.tag, and a digest into image.digest",
        ),
        ("{repository: 'https://a/nr'}", "image.repository: https://a/nr: no kubelet can pull this"),
        ("{repository: REGISTRY/node-recovery}", "image.repository: REGISTRY/node-recovery: no kubelet can"),
        (
            "{repository: a/NR}",
            "image.repository: a/NR: no kubelet can pull this. Expected a registry without",
        ),
        ("{repository: a/nr, tag: ':v2'}", "image.tag: :v2: expected a tag, such as 0.1.0"),
        ("{repository: a/nr, digest: a1}", "image.digest: a1: expected sha256: and 64 characters"),
        (
            f"{{repository: a/nr, tag: 'v2@{DIGEST}', digest: '{DIGEST}'}}",
            "image.tag, image.digest: both contain a digest. Remove one of them",
        ),
    ],
)
def test_an_image_that_no_kubelet_could_pull_is_refused(tools: Tools, image: str, message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        tools.template(f"image: {image}")


def test_a_policys_file_name_in_the_place_of_its_text_is_refused(tools: Tools) -> None:
    message = 'policy: "policy.yaml": expected the text of a RecoveryPolicy. Use --set-file policy=FILE'
    with pytest.raises(AssertionError, match=re.escape(message)):
        tools.template("image: {repository: a/nr}\npolicy: policy.yaml")


# ---------------------------------------------------------------- CRDs


def test_the_crds_are_of_the_release_and_stay_when_it_goes(tools: Tools) -> None:
    found = of_kind(tools.template("{}"), CRDS)
    shipped = [yaml.safe_load(f.read_text()) for f in sorted((CHART / "files" / "crds").iterdir())]
    assert [d["spec"] for d in found] == [d["spec"] for d in shipped]
    assert {d["metadata"]["annotations"]["helm.sh/resource-policy"] for d in found} == {"keep"}
    for crd in of_kind(tools.template("crds: {keep: false}"), CRDS):
        assert "annotations" not in crd["metadata"]
    assert of_kind(tools.template("crds: {enabled: false}"), CRDS) == []


# ---------------------------------------------------------------- everywhere


@pytest.mark.parametrize("values", ["mode: sidecar\n", FLEET], ids=["sidecar", "fleet"])
def test_labels_of_ones_own_are_on_all_objects_and_pods_and_in_no_selector(tools: Tools, values: str) -> None:
    more = "labels: {team: ml}\npodLabels: {cost: gpu}\nmonitoring: {dashboard: {create: true}}\n"
    found = tools.template(values + more, *ALL_RIGHTS)
    policies = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    bare = [d for d in found if d["metadata"].get("labels", {}).get("team") != "ml"]
    assert {d["kind"] for d in bare} <= set(policies)
    for workload in workloads(found):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert (labels["team"], labels["cost"]) == ("ml", "gpu")
        assert workload["spec"]["selector"]["matchLabels"].keys() == {"app"}
    sound(found, of_deployments=CONTROLLER if values == FLEET else CONCLUDER)


@pytest.mark.parametrize("key", ["app", "app.kubernetes.io/name", "azure.workload.identity/use"])
def test_a_label_by_which_the_chart_finds_its_pods_is_its_own(tools: Tools, key: str) -> None:
    with pytest.raises(AssertionError, match=f"podLabels: {key} is the chart's own"):
        tools.template(f"podLabels: {{{key}: mine}}")


def test_where_each_pod_runs_and_how_it_is_rolled_out_can_be_said(tools: Tools) -> None:
    place = (
        "{tolerations: [{key: own, operator: Exists}], priorityClassName: mine, nodeSelector: {pool: a}, "
        "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}, updateStrategy: "
    )
    rolling = "{type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}}"
    found = tools.template(f"npd: {place}{{type: OnDelete}}}}\nconcluder: {place}{rolling}")
    found += of_kind(tools.template(f"mode: fleet\nfleet: {place}{rolling}"), "Deployment")
    assert len(workloads(found)) == 3
    for workload in workloads(found):
        spec = pod(workload)
        assert spec["tolerations"] == [{"key": "own", "operator": "Exists"}]
        assert (spec["priorityClassName"], spec["nodeSelector"]) == ("mine", {"pool": "a"})
        assert "requiredDuringSchedulingIgnoredDuringExecution" not in spec["affinity"]["nodeAffinity"]
    by_kind = {d["kind"]: d["spec"] for d in workloads(found)}
    assert by_kind["DaemonSet"]["updateStrategy"] == {"type": "OnDelete"}
    assert by_kind["Deployment"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1}


def test_disruption_budgets_are_made_where_they_are_asked_for(tools: Tools) -> None:
    kind = "PodDisruptionBudget"
    assert of_kind(tools.template("{}"), kind) == []
    values = "concluder: {podDisruptionBudget: {create: true, maxUnavailable: 0}}"
    made = one(tools.template(values), kind, CONCLUDER)
    assert made["metadata"]["namespace"] == CONCLUDER
    assert made["spec"]["maxUnavailable"] == 0
    assert made["spec"]["selector"]["matchLabels"] == {"app": CONCLUDER}
    off = "fleet: {podDisruptionBudget: {create: false}}\n"
    assert of_kind(tools.template(FLEET + off), kind) == []


# ---------------------------------------------------------------- people


def test_the_roles_for_people_are_those_of_deploy_users(tools: Tools) -> None:
    roles = list(yaml.safe_load_all((DEPLOY / "users" / "roles.yaml").read_text()))
    found = tools.template("{}")
    for role in roles:
        ours = one(found, "ClusterRole", role["metadata"]["name"])
        assert ours["rules"] == role["rules"]
        assert role["metadata"]["labels"].items() <= ours["metadata"]["labels"].items()
    bound = {d["roleRef"]["name"] for d in found if "roleRef" in d}
    assert not bound & {role["metadata"]["name"] for role in roles}, "nobody is bound to them"


def test_the_roles_for_people_can_be_left_out_or_kept_to_themselves(tools: Tools) -> None:
    names = {d["metadata"]["name"] for d in of_kind(tools.template("rbac: {users: false}"), "ClusterRole")}
    assert names == {"node-recovery", "node-recovery-npd"}
    alone = of_kind(tools.template("rbac: {aggregate: false}"), "ClusterRole")
    assert not [d for d in alone if "aggregate" in str(d["metadata"]["labels"])]
    assert names < {d["metadata"]["name"] for d in alone}


# ---------------------------------------------------------------- Prometheus and Grafana

WATCHED = "monitoring: {podMonitor: {create: true, labels: {release: p}}, prometheusRule: {create: true}}\n"


@pytest.mark.parametrize(
    ("values", "namespaces"),
    [("mode: sidecar\n", {NAMESPACE, CONCLUDER}), (FLEET, {CONTROLLER})],
    ids=["sidecar", "fleet"],
)
def test_every_pod_is_scraped_as_the_alerts_expect_it(
    tools: Tools, values: str, namespaces: set[str]
) -> None:
    found = tools.template(values + WATCHED)
    monitors = of_kind(found, "PodMonitor")
    assert {d["metadata"]["namespace"] for d in monitors} == namespaces
    page = (DEPLOY / "alarms" / "README.md").read_text()
    (told,) = [yaml.safe_load(b) for b in re.findall(r"(?s)```yaml\n(.*?)```", page) if "PodMonitor" in b]
    for monitor in monitors:
        assert monitor["metadata"]["labels"]["release"] == "p"
        monitor["spec"]["podMetricsEndpoints"][0].pop("interval")
        assert monitor["spec"] == told["spec"]
        chosen = monitor["spec"]["selector"]["matchLabels"]
        place = monitor["metadata"]["namespace"]
        pods = [w["spec"]["template"] for w in workloads(found) if w["metadata"]["namespace"] == place]
        assert all(chosen.items() <= p["metadata"]["labels"].items() for p in pods)
    for workload in workloads(found):
        if "node-recovery" in {c["name"] for c in pod(workload)["containers"]}:
            assert "metrics" in {port["name"] for port in container(workload)["ports"]}


def test_a_sidecar_beside_a_detector_that_was_there_is_scraped_whatever_its_pods_are_called(
    tools: Tools,
) -> None:
    theirs = "npd: {create: false}\nserviceAccount: {create: false}\n"
    found = of_kind(tools.template(theirs + WATCHED), "PodMonitor")
    monitors = {d["metadata"]["namespace"]: d["spec"] for d in found}
    container_name = "__meta_kubernetes_pod_container_name"
    keep = {"action": "keep", "sourceLabels": [container_name], "regex": "node-recovery"}
    assert monitors[NAMESPACE]["selector"] == {}
    assert keep in monitors[NAMESPACE]["podMetricsEndpoints"][0]["relabelings"]
    assert monitors[CONCLUDER]["selector"]["matchLabels"] == {"app.kubernetes.io/name": "node-recovery"}
    assert keep not in monitors[CONCLUDER]["podMetricsEndpoints"][0]["relabelings"]


def test_the_alerts_and_the_dashboard_are_those_of_deploy_alarms(tools: Tools) -> None:
    found = tools.template(WATCHED.replace("}}\n", "}, dashboard: {create: true}}\n"))
    (rule,) = of_kind(found, "PrometheusRule")
    alarms = DEPLOY / "alarms"
    assert rule["spec"] == yaml.safe_load((alarms / "prometheus/node-recovery.rules.yaml").read_text())
    board = one(found, "ConfigMap", "node-recovery-dashboard")
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    shown = (alarms / "grafana" / "node-recovery.json").read_text()
    assert yaml.safe_load(board["data"]["node-recovery.json"]) == yaml.safe_load(shown)
    assert not [d for d in tools.template("{}") if d["kind"] in ("PodMonitor", "PrometheusRule")]
