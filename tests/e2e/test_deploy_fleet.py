"""What the chart sends in fleet mode: `deploy/fleet` and, where it is wanted, a detector without an agent."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from fleet_site import uncomment
from test_deploy import (
    ALL_RIGHTS,
    CHART,
    CLUSTER,
    CONTROLLER,
    DEPLOY,
    FLEET,
    IDENTITY,
    IMAGE,
    LATER,
    NAMESPACE,
    Document,
    Tools,
    comparable,
    container,
    documents,
    one,
    pod,
    renamed,
    sound,
    workloads,
)

ALONE = FLEET + "  create: false\n"
"""No detector of ours: those that are there write conditions. ``npd`` is the last section of the file."""
DETECTOR = "node-problem-detector"
DETECTORS = "node-recovery-npd"
"""Its account."""
ROLE = "eks.amazonaws.com/role-arn"
IRSA = f'serviceAccount: {{annotations: {{{ROLE}: "arn:aws:iam::111122223333:role/r"}}}}\n'
AZURE = f"azure: {{clusterId: {CLUSTER}, region: eastus2, clientId: {IDENTITY}}}\n"
Rule = dict[str, list[str]]


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def controller(found: list[Document]) -> Document:
    return one(found, "Deployment", CONTROLLER)


def of_the_agents_namespace(found: list[Document]) -> list[Document]:
    return [d for d in found if d["metadata"].get("namespace") == NAMESPACE]


def in_any_order(listed: list[Any]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in listed)


def granted_to(found: list[Document], account: str) -> dict[tuple[str, str], list[Rule]]:
    """(kind of role, namespace) -> its rules, of all roles that are bound to ``account``."""
    rules: dict[tuple[str, str], list[Rule]] = {}
    for binding in found:
        if account not in {subject["name"] for subject in binding.get("subjects", ())}:
            continue
        place, named = binding["metadata"].get("namespace", ""), binding["roleRef"]
        (role,) = [
            d
            for d in found
            if (d["kind"], d["metadata"]["name"]) == (named["kind"], named["name"])
            and d["metadata"].get("namespace", "") == place
        ]
        rules.setdefault((role["kind"], place), []).extend(role["rules"])
    return rules


def test_the_chart_in_fleet_mode_is_the_kustomization_beside_the_sidecars_namespace(tools: Tools) -> None:
    ours, charts = (
        comparable(tools.kustomize(DEPLOY / "fleet")),
        dict(comparable(tools.template(ALONE, *ALL_RIGHTS))),
    )
    # Who goes over from sidecars has their Leases in the release's namespace.
    env = container(charts["Deployment", CONTROLLER, CONTROLLER])["env"]
    env.remove({"name": "AGENTS_NAMESPACE", "value": NAMESPACE})
    settings = charts["ConfigMap", CONTROLLER, "node-recovery"]["data"]
    assert settings.pop("CLOUDWATCH_NAMESPACE") == "NodeRecovery", "the program's default"
    assert ours.keys() == charts.keys()
    for which in ours:
        assert charts[which] == ours[which], which


def test_a_detector_changes_nothing_of_the_controller_but_where_it_may_run(tools: Tools) -> None:
    alone, found = comparable(tools.template(ALONE)), comparable(tools.template(FLEET))
    types = yaml.safe_load(FLEET)["npd"]["instanceTypes"]
    required = pod(found["Deployment", CONTROLLER, CONTROLLER])["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    (term,) = required["nodeSelectorTerms"]
    off = {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": types}
    term["matchExpressions"].remove(off)
    for which in alone:
        assert found[which] == alone[which], which
    assert {(kind, name) for kind, _, name in found.keys() - alone.keys()} == {
        ("ServiceAccount", DETECTORS),
        ("DaemonSet", DETECTOR),
        ("NetworkPolicy", DETECTOR),
        ("ConfigMap", "gpu-pack"),
        ("ClusterRole", "node-recovery-npd"),
        ("ClusterRoleBinding", "node-recovery-npd"),
        ("ValidatingAdmissionPolicy", "node-recovery-detector"),
        ("ValidatingAdmissionPolicyBinding", "node-recovery-detector"),
    }


def test_the_detector_is_the_one_of_deploy_npd_gpu(tools: Tools) -> None:
    """It runs alone, writes conditions, and shows its page to who may reach it."""
    theirs = comparable(documents(tools.kubectl("kustomize", DEPLOY / "npd-gpu")))
    ours = comparable(tools.template(FLEET))
    name = "gpu-problem-detector"
    shipped, charts = (
        container(found["DaemonSet", place, called], DETECTOR)
        for found, place, called in ((theirs, name, name), (ours, NAMESPACE, DETECTOR))
    )
    for listed in ("command", "env", "volumeMounts"):
        assert in_any_order(charts.pop(listed)) == in_any_order(shipped.pop(listed)), listed
    assert charts == shipped
    spec, others = (pod(d) for d in (ours["DaemonSet", NAMESPACE, DETECTOR], theirs["DaemonSet", name, name]))
    assert spec["volumes"] == others["volumes"]
    assert spec["tolerations"] == others["tolerations"]
    of_account = {
        which: found["ValidatingAdmissionPolicy", "", "node-recovery-detector"]["spec"]
        for which, found in (("ours", ours), ("theirs", theirs))
    }
    (theirs_is,), (ours_is,) = (of_account[which].pop("matchConditions") for which in ("theirs", "ours"))
    assert of_account["ours"] == of_account["theirs"]
    assert theirs_is["expression"].endswith(f'"system:serviceaccount:{name}:{name}"')
    assert ours_is["expression"].endswith(f'"system:serviceaccount:{NAMESPACE}:{DETECTORS}"')
    guard, other = ours["NetworkPolicy", NAMESPACE, DETECTOR], theirs["NetworkPolicy", name, name]
    assert guard["spec"]["ingress"] == other["spec"]["ingress"]
    labels = ours["DaemonSet", NAMESPACE, DETECTOR]["spec"]["template"]["metadata"]["labels"]
    assert guard["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert "app.kubernetes.io/name" in labels
    assert labels["app.kubernetes.io/name"] != "node-recovery", "the other policy is for agents' pods"


@pytest.mark.parametrize("more", ["", IRSA, AZURE], ids=["as it ships", "IRSA", "workload identity"])
@pytest.mark.parametrize("values", [FLEET, ALONE], ids=["with a detector", "without"])
def test_it_is_sound_and_helms_linter_has_nothing_to_say(tools: Tools, values: str, more: str) -> None:
    sound(tools.template(values + more), of_deployments=CONTROLLER)
    assert "0 chart(s) failed" in tools.helm(
        "lint", "--strict", CHART, *IMAGE, *LATER, "-f", tools.folder / "values.yaml"
    )


# ---------------------------------------------------------------- who may what, and who is who


def test_nothing_on_the_nodes_has_a_right_but_to_say_what_it_sees(tools: Tools) -> None:
    found = tools.template(FLEET)
    accounts = {
        d["metadata"]["name"]: d["metadata"]["namespace"] for d in found if d["kind"] == "ServiceAccount"
    }
    assert accounts == {DETECTORS: NAMESPACE, CONTROLLER: CONTROLLER}
    assert granted_to(found, DETECTORS) == {
        ("ClusterRole", ""): [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]},
        ]
    }
    (daemonset,) = [d for d in workloads(found) if d["kind"] == "DaemonSet"]
    assert [c["name"] for c in pod(daemonset)["containers"]] == [DETECTOR]
    assert pod(daemonset)["serviceAccountName"] == DETECTORS
    beside = one(tools.template(FLEET, "--set", "mode=sidecar"), "ClusterRoleBinding", DETECTORS)
    assert one(found, "ClusterRoleBinding", DETECTORS)["subjects"] == beside["subjects"], "in both modes"


def test_the_controller_has_the_rights_of_deploy_fleet(tools: Tools) -> None:
    shipped = granted_to(documents((DEPLOY / "fleet" / "rbac.yaml").read_text()), CONTROLLER)
    granted = granted_to(tools.template(FLEET, *ALL_RIGHTS), CONTROLLER)
    assert granted == shipped


def test_without_a_detector_the_releases_namespace_holds_nothing(tools: Tools) -> None:
    assert of_the_agents_namespace(tools.template(ALONE, *ALL_RIGHTS)) == []


@pytest.mark.parametrize(
    ("more", "annotations", "labelled", "grace"),
    [
        (IRSA, {ROLE: "arn:aws:iam::111122223333:role/r"}, False, 30),
        (AZURE, {"azure.workload.identity/client-id": IDENTITY}, True, 60),
    ],
    ids=["on AWS", "on Azure"],
)
def test_the_controller_alone_is_somebody_in_the_cloud(
    tools: Tools, more: str, annotations: dict[str, str], labelled: bool, grace: int
) -> None:
    found = tools.template(FLEET + more)
    assert one(found, "ServiceAccount", CONTROLLER)["metadata"]["annotations"] == annotations
    assert "annotations" not in one(found, "ServiceAccount", DETECTORS)["metadata"]
    identified = {
        d["metadata"]["name"]: "azure.workload.identity/use" in d["spec"]["template"]["metadata"]["labels"]
        for d in workloads(found)
    }
    assert identified == {CONTROLLER: labelled, DETECTOR: False}
    assert "azure" not in json.dumps(one(found, "DaemonSet", DETECTOR))
    assert pod(controller(found))["terminationGracePeriodSeconds"] == grace


def test_the_policies_bind_the_controllers_account_wherever_it_is(tools: Tools) -> None:
    found = tools.template(FLEET + "fleet: {namespace: apart}\ntaintKeys: [example.com/faulty]\n")
    policies = [
        d
        for d in found
        if d["kind"] == "ValidatingAdmissionPolicy" and d["metadata"]["name"] != "node-recovery-detector"
    ]
    assert len(policies) == 8
    for policy in policies:
        (condition,) = policy["spec"]["matchConditions"]
        account = f"system:serviceaccount:apart:{CONTROLLER}"
        assert condition["expression"] == f'request.userInfo.username == "{account}"'
    text = json.dumps(policies)
    assert f'object.metadata.name == \\"{CONTROLLER}\\"' in text, (
        "the Lease has the name that the program gives it"
    )
    assert '] + [\\"example.com/faulty\\"]' in text
    sound(found, of_deployments="apart")


def test_a_release_of_another_name_keeps_the_name_of_the_lease(tools: Tools) -> None:
    (tools.folder / "values.yaml").write_text(FLEET)
    words = (*IMAGE, *LATER, "--namespace", NAMESPACE, "-f", tools.folder / "values.yaml")
    found = documents(tools.helm("template", "mine", CHART, *words))
    sound(found, of_deployments=CONTROLLER)
    leases = one(found, "ValidatingAdmissionPolicy", "mine-fleet-leases")
    assert f'object.metadata.name == "{CONTROLLER}"' in json.dumps(leases).replace("\\", "")
    assert f"system:serviceaccount:{CONTROLLER}:mine-fleet" in json.dumps(leases)


# ---------------------------------------------------------------- the chart's own


def test_from_sidecars_and_back_the_detector_stays_where_it_is_and_all_else_changes(tools: Tools) -> None:
    """Helm deletes what the new mode does not name: the agents' rights and policies, and their concluder."""
    as_fleet = tools.template(FLEET, *ALL_RIGHTS)
    sidecars = tools.template(FLEET, *ALL_RIGHTS, "--set", "mode=sidecar")
    (before,), (after,) = ([d for d in found if d["kind"] == "DaemonSet"] for found in (sidecars, as_fleet))
    for immutable in ("name", "namespace"):
        assert before["metadata"][immutable] == after["metadata"][immutable]
    assert before["spec"]["selector"] == after["spec"]["selector"]
    gone = {(d["kind"], d["metadata"]["name"]) for d in sidecars} - {
        (d["kind"], d["metadata"]["name"]) for d in as_fleet
    }
    assert {
        ("ClusterRole", "node-recovery"),
        ("Role", "node-recovery"),
        ("Deployment", "node-recovery-concluder"),
        ("Namespace", "node-recovery-concluder"),
        ("ValidatingAdmissionPolicy", "node-recovery-nodes"),
    } <= gone
    said = {e["name"]: e.get("value") for e in container(controller(as_fleet))["env"]}
    assert said["AGENTS_NAMESPACE"] == before["metadata"]["namespace"], "where the sidecars' Leases are"


def test_a_change_of_settings_or_policy_starts_the_controller_again_and_no_detector(tools: Tools) -> None:
    shipped = tools.template(FLEET)
    for words in (
        ("--set", "settings.ENABLE_RECOVERY=true"),
        ("--set-file", f"policy={DEPLOY / 'fleet/policy.yaml'}", "--set", "settings.CLUSTER_NAME=x"),
    ):
        found = tools.template(FLEET, *words)
        assert controller(found)["spec"]["template"] != controller(shipped)["spec"]["template"]
        assert one(found, "DaemonSet", DETECTOR) == one(shipped, "DaemonSet", DETECTOR)


def test_a_policy_of_ones_own_replaces_the_one_that_ships(tools: Tools, tmp_path: Path) -> None:
    mine = tmp_path / "policy.yaml"
    mine.write_text(
        "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\nsources: [conditions]\nrules: []\n"
    )
    data = one(tools.template(FLEET, "--set-file", f"policy={mine}"), "ConfigMap", "node-recovery-policy")[
        "data"
    ]
    assert yaml.safe_load(data["policy.yaml"]) == yaml.safe_load(mine.read_text())


@pytest.mark.parametrize(
    ("npd", "kept_off"),
    [
        ("{instanceTypes: [p5.48xlarge]}", [["node.kubernetes.io/instance-type"]]),
        ("{instanceTypes: [], nodeSelector: {pool: gpu}}", [["pool"]]),
        (
            "{instanceTypes: [a], nodeSelector: {pool: gpu}}",
            [["node.kubernetes.io/instance-type"], ["pool"]],
        ),
        ("{instanceTypes: []}", [[]]),
    ],
    ids=["types of instances", "a label", "either", "every node has a detector"],
)
def test_the_controller_stays_off_accelerators_and_off_the_detectors_nodes(
    tools: Tools, npd: str, kept_off: list[list[str]]
) -> None:
    place = pod(controller(tools.template(f"mode: fleet\nnpd: {npd}")))["affinity"]["nodeAffinity"]
    terms = place["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    labelled = ["nvidia.com/gpu.present", "aws.amazon.com/neuron.present"]
    assert [[e["key"] for e in term["matchExpressions"]] for term in terms] == [
        [*labelled, *keys] for keys in kept_off
    ], "any one of the terms will do"
    operators = {e["operator"] for term in terms for e in term["matchExpressions"]}
    assert operators <= {"DoesNotExist", "NotIn"}


def test_where_it_runs_what_it_resolves_by_and_its_secret_can_be_said(tools: Tools) -> None:
    mine = "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}"
    found = tools.template(
        FLEET + f"fleet: {{affinity: {mine}, nodeSelector: {{pool: system}}, tolerations: [{{key: own}}], "
        "dnsPolicy: ClusterFirst, dnsConfig: {nameservers: [10.0.0.2]}, secret: prometheus}\n",
        "--set",
        "settings.PROMETHEUS_URL=http://prometheus.monitoring.svc:9090",
    )
    spec = pod(controller(found))
    assert spec["affinity"] == yaml.safe_load(mine)
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"pool": "system"}, [{"key": "own"}])
    assert (spec["dnsPolicy"], spec["dnsConfig"]) == ("ClusterFirst", {"nameservers": ["10.0.0.2"]})
    mounts = {m["name"]: m["mountPath"] for m in container(controller(found))["volumeMounts"]}
    assert mounts["secret"] == "/var/run/secrets/node-recovery"  # noqa: S105
    assert {"name": "secret", "secret": {"secretName": "prometheus"}} in spec["volumes"]
    sound(found, of_deployments=CONTROLLER)


@pytest.mark.parametrize(
    "url",
    [
        "https://prometheus.example.com",
        "http://10.1.2.3:9090",
        "http://[fd00::1]:9090",
        "https://svc.example.com",
    ],
)
def test_a_server_that_the_nodes_can_find_needs_no_dns_of_the_cluster(tools: Tools, url: str) -> None:
    found = tools.template(FLEET, "--set", f"settings.PROMETHEUS_URL={url}")
    assert pod(controller(found))["dnsPolicy"] == "Default"


BMCS = "mode: fleet\nsettings: {PROVIDER: baremetal, BAREMETAL_POWER: redfish}\n"


def test_on_bare_metal_the_chart_is_the_kustomization_with_its_component(tools: Tools) -> None:
    part = DEPLOY / "fleet" / "components" / "redfish"
    place = tools.folder / "deploy"
    shutil.copytree(DEPLOY, place)
    uncomment(place / "fleet" / "kustomization.yaml", "components/redfish")
    ours = tools.kustomize(place / "fleet")
    charts = tools.template(
        ALONE + "fleet: {bmcCredentials: [bmc-rack-1]}\n",
        *ALL_RIGHTS,
        *("--set", "settings.PROVIDER=baremetal", "--set", "settings.BAREMETAL_POWER=redfish"),
        *("--set-file", f"fleet.bmcInventory={part / 'inventory.yaml'}"),
    )
    sound(charts, of_deployments=CONTROLLER)
    both = [controller(found) for found in (ours, charts)]
    for same in ("securityContext", "terminationGracePeriodSeconds"):
        assert pod(both[0])[same] == pod(both[1])[same], same
    envs = [{e["name"]: e.get("value") for e in container(each)["env"]} for each in both]
    mounts = [{m["mountPath"] for m in container(each)["volumeMounts"]} for each in both]
    secrets = [[v["secret"] for v in pod(each)["volumes"] if "secret" in v] for each in both]
    inventories = [
        [d["data"]["inventory.yaml"].strip() for d in found if "inventory.yaml" in d.get("data", {})]
        for found in (ours, charts)
    ]
    assert envs[0] == {k: v for k, v in envs[1].items() if k != "AGENTS_NAMESPACE"}
    assert mounts[0] == mounts[1]
    assert secrets[0] == secrets[1] != []
    assert inventories[0] == inventories[1] != []


@pytest.mark.parametrize("part", ["baremetal", "metal3"])
def test_on_bare_metal_the_chart_renders_what_the_component_makes(tools: Tools, part: str) -> None:
    place = tools.folder / "deploy"
    shutil.copytree(DEPLOY, place)
    uncomment(place / "fleet" / "kustomization.yaml", f"components/{part}")
    ours = comparable(tools.kustomize(place / "fleet"))
    power = ("--set", "settings.BAREMETAL_POWER=metal3") if part == "metal3" else ()
    words = (*ALL_RIGHTS, "--set", "settings.PROVIDER=baremetal", *power)
    charts = comparable(tools.template(ALONE, *words))
    env = container(charts["Deployment", CONTROLLER, CONTROLLER])["env"]
    env.remove({"name": "AGENTS_NAMESPACE", "value": NAMESPACE})
    del charts["ConfigMap", CONTROLLER, "node-recovery"]["data"]["CLOUDWATCH_NAMESPACE"]
    assert ours.keys() == charts.keys()
    for which in ours:
        assert charts[which] == ours[which], which


def test_while_the_chart_only_observes_it_grants_nothing_of_metal3s(tools: Tools) -> None:
    found = tools.template(
        ALONE, "--set", "settings.PROVIDER=baremetal", "--set", "settings.BAREMETAL_POWER=metal3"
    )
    rules = [rule for each in granted_to(found, CONTROLLER).values() for rule in each]
    assert not [rule for rule in rules if "baremetalhosts" in rule["resources"]]


PARTS = ("components/baremetal", "components/redfish", "components/metal3")
REVIEWS = {"tokenreviews", "subjectaccessreviews"}  # they store nothing


def overlaid(tools: Tools, part: str) -> list[Document]:
    return tools.overlay(f"resources: [BASE]\ncomponents: [BASE/{part}]\n", "fleet")


@pytest.mark.parametrize("part", PARTS)
def test_a_component_of_bare_metal_works_in_an_overlay_as_well(tools: Tools, part: str) -> None:
    place = tools.folder / "deploy"
    shutil.copytree(DEPLOY, place)
    uncomment(place / "fleet" / "kustomization.yaml", part)
    found = overlaid(tools, part)
    sound(found, of_deployments=CONTROLLER)
    assert comparable(found) == comparable(tools.kustomize(place / "fleet"))


def test_the_overlay_of_the_page_has_a_policy_and_an_inventory_of_its_own(tools: Tools) -> None:
    page = (DEPLOY.parent / "docs" / "baremetal.md").read_text()
    blocks = re.findall(r"(?ms)^```yaml\n(.*?)^```", page)
    (overlay,) = [x for x in blocks if "deploy/fleet/components/redfish" in x]
    (site,) = [x for x in blocks if "kind: Component" in x]
    place = tools.folder / "overlay" / "site"
    place.mkdir(parents=True)
    (place / "kustomization.yaml").write_text(site)
    mine = {"policy.yaml": "rules: []\n", "inventory.yaml": "machines: []\n"}
    for file, text in mine.items():
        (place / file).write_text(text)
    found = tools.overlay(overlay.replace("../node-recovery/deploy/", "BASE/../"), "fleet")
    sound(found, of_deployments=CONTROLLER)
    files = [d["data"] for d in found if d["kind"] == "ConfigMap" and mine.keys() & d["data"].keys()]
    assert {k: v for data in files for k, v in data.items()} == mine
    assert {v["secret"]["secretName"] for v in pod(controller(found))["volumes"] if "secret" in v} == {
        "bmc-rack-1",
        "bmc-rack-2",
    }


def test_metal3s_policy_follows_the_controller_into_another_namespace(tools: Tools) -> None:
    place = tools.folder / "deploy"
    shutil.copytree(DEPLOY, place)
    renamed(place, "fleet", CONTROLLER, "mine")
    mine = tools.folder / "overlay"
    mine.mkdir()
    text = "resources: [../deploy/fleet]\ncomponents: [../deploy/fleet/components/metal3]\n"
    (mine / "kustomization.yaml").write_text(text)
    policies = [d for d in tools.kustomize(mine) if d["kind"] == "ValidatingAdmissionPolicy"]
    whom = {p["metadata"]["name"]: p["spec"]["matchConditions"][0]["expression"] for p in policies}
    assert "node-recovery-fleet-hosts" in whom
    for name, expression in whom.items():
        assert f'"system:serviceaccount:mine:{CONTROLLER}"' in expression, name


@pytest.mark.parametrize("part", PARTS)
def test_observing_on_bare_metal_takes_the_rights_that_a_component_brings(tools: Tools, part: str) -> None:
    place = tools.folder / "deploy"
    shutil.copytree(DEPLOY, place)
    for each in (part, "../observe"):
        uncomment(place / "fleet" / "kustomization.yaml", each)
    rules = [
        rule for each in granted_to(tools.kustomize(place / "fleet"), CONTROLLER).values() for rule in each
    ]
    written = {
        resource
        for rule in rules
        for resource in rule["resources"]
        if set(rule["verbs"]) - {"get", "list", "watch"}
    }
    assert written - REVIEWS == {"events", "recoveryreports"}


SOURCES = "policy: |\n  sources: {}\n  rules: []\n"


@pytest.mark.parametrize("limits", ["{blockers: [{alerts: Upgrade}]}", "{blockers: {}}", "{budget: 1}", "1"])
def test_a_policy_whose_alerts_can_be_asked_for_or_that_names_none_is_rendered(
    tools: Tools, limits: str
) -> None:
    """What is wrong with a policy otherwise is said by `policy check`, and by the agent's log."""
    url = "settings: {PROMETHEUS_URL: 'https://prometheus.example.com'}\n" if "alerts" in limits else ""
    assert tools.template(f"{url}policy: |\n  limits: {limits}\n  rules: []\n")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("mode: both", "at '/mode': value must be one of 'sidecar', 'fleet'"),
        (
            f"mode: fleet\nfleet: {{namespace: {NAMESPACE}}}",
            f"fleet.namespace: {NAMESPACE} is also the release's namespace, in which the privileged "
            "node-problem-detector runs. Name another namespace, or install the release into another one",
        ),
        (
            "mode: fleet\nnpd: {onNode: true, reservePort: true}",
            "npd.onNode: true, but fleet mode does not read the metrics page of a node's detector. It reads "
            "that detector's conditions without this value. Set npd.onNode=false, npd.reservePort=false and "
            "npd.create=false",
        ),
        ("mode: fleet\nnpd: {reservePort: true}", "at that port. Set npd.reservePort=false"),
        (
            "mode: fleet\nnpd: {extraArgs: [--enable-k8s-exporter=false]}",
            "npd.extraArgs: with --enable-k8s-exporter=false node-problem-detector writes no conditions, and "
            "fleet mode reads nothing else of it. Leave it out, or set mode=sidecar",
        ),
        (
            "mode: fleet\nnpd: {conditions: false}",
            "npd.conditions: false, but of node-problem-detector fleet mode reads only the conditions. Set "
            "npd.conditions=true, or mode=sidecar",
        ),
        (
            "mode: fleet\nsidecar: {extraEnv: [{name: LOG, value: '1'}]}",
            "sidecar.extraEnv: no sidecar runs in fleet mode. Leave it out, and put the program's variables "
            "into settings",
        ),
        ("mode: fleet\noptions: {checkpoint: true}", "Set options.checkpoint=false, or mode=sidecar"),
        (
            "mode: fleet\noptions: {validation: node-validation}",
            "Set options.validation to an empty name, or mode=sidecar",
        ),
        (
            "mode: fleet\nsettings: {NPD_METRICS_URL: 'http://127.0.0.1:1/'}",
            "settings.NPD_METRICS_URL: fleet mode does not read a detector's metrics page. Leave this "
            "setting out, or set mode=sidecar",
        ),
        (
            "mode: fleet\n" + SOURCES.format("[npd, conditions]"),
            "policy: the source npd is read on the node itself, and in fleet mode no agent runs there. Use "
            "sources: [conditions] in the policy, or set mode=sidecar",
        ),
        (
            "mode: fleet\n" + SOURCES.format("[{dcgm: {}}]"),
            "policy: the source dcgm is read on the node itself",
        ),
        (
            "mode: fleet\nsettings: {PROMETHEUS_URL: 'http://prometheus.monitoring.svc:9090'}",
            "settings.PROMETHEUS_URL: prometheus.monitoring.svc is a name that only the cluster's own DNS "
            "knows, and with fleet.dnsPolicy=Default the controller does not use that. Set "
            "fleet.dnsPolicy=ClusterFirst, or use an address that the nodes can resolve",
        ),
        (
            "mode: fleet\nsettings: {PROMETHEUS_URL: 'http://prometheus/'}",
            "settings.PROMETHEUS_URL: prometheus is a name that only the cluster's own DNS knows",
        ),
        *(
            (
                f"mode: fleet\nsettings: {{{name}_URL: 'https://u:p@server.example.com'}}",
                f"settings.{name}_URL: expected a URL without a user name and a password. "
                f"settings.{name}_TOKEN_FILE is for credentials",
            )
            for name in ("PROMETHEUS", "LOKI")
        ),
        (
            "mode: fleet\nnpd: {neuron: false}",
            "npd: node-problem-detector has nothing to watch. Set npd.neuron, npd.gpu, npd.logMonitors or "
            "npd.pluginMonitors",
        ),
        (
            "mode: fleet\nfleet: {dnsPolicy: None}",
            "at '/fleet/dnsPolicy': value must be one of 'Default', 'Clust",
        ),
        ("mode: fleet\nfleet: {replicas: 3}", "at '/fleet': additional properties 'replicas' not allowed"),
        (
            "settings: {FLEET_SELECTOR: pool=gpu}",
            "settings.FLEET_SELECTOR: sidecars do not read it. Set mode=fleet, or leave this setting out",
        ),
        (
            "settings: {LOKI_URL: 'https://loki.example.com'}",
            "settings.LOKI_URL: sidecars do not read it. Set mode=fleet, or leave this setting out",
        ),
        (
            "settings: {PROMETHEUS_URL: 'https://prometheus.example.com'}",
            "settings.PROMETHEUS_URL: sidecars read it only for alerts in the policy's limits.blockers, and "
            "there are none. Set mode=fleet, or leave this setting out",
        ),
        (
            "settings: {PROMETHEUS_URL: 'http://prometheus.monitoring.svc:9090'}\npolicy: |\n"
            "  limits: {blockers: [{alerts: Upgrade}]}\n  rules: []\n",
            "settings.PROMETHEUS_URL: prometheus.monitoring.svc is a name that only the cluster's own DNS "
            "knows, and sidecars do not use that. Use an address that the nodes can resolve",
        ),
        (
            "settings: {PROMETHEUS_TOKEN_FILE: /token}",
            "settings.PROMETHEUS_TOKEN_FILE: the chart mounts no such file into sidecars, since a token for "
            "all metrics would lie on each node. Set mode=fleet, or use a server that needs none",
        ),
        (
            "mode: fleet\nsettings: {LOKI_URL: 'http://loki-gateway.monitoring.svc'}",
            "settings.LOKI_URL: loki-gateway.monitoring.svc is a name that only the cluster's own DNS",
        ),
        ("settings: {LOKI_TENANT: gpus}", "settings.LOKI_TENANT: sidecars do not read it. Set mode=fleet"),
        (SOURCES.format("[conditions, loki]"), "policy: the source loki works only in fleet mode."),
        (SOURCES.format("[conditions, api]"), "policy: the source api works only in fleet mode."),
        (
            SOURCES.format("[conditions, {prometheus: {rows: [alerts]}}]"),
            "policy: the source prometheus works only in fleet mode. Set mode=fleet, or remove it from the "
            "policy's sources",
        ),
        (
            "policy: |\n  limits: {blockers: [{pods: {labels: {app: a}}}, {alerts: Upgrade}]}\n  rules: []\n",
            "policy: limits.blockers names alerts, but settings.PROMETHEUS_URL is missing",
        ),
        (BMCS, "fleet.bmcCredentials: missing, but settings.BAREMETAL_POWER is redfish, and no BMC answers"),
        (
            BMCS + "fleet: {bmcCredentials: [bmc-rack-1]}",
            "fleet.bmcInventory: missing, but settings.BAREMETAL_POWER is redfish, and nothing else",
        ),
        (
            BMCS + "fleet: {bmcCredentials: [bmc-rack-1], bmcInventory: inventory.yaml}",
            'fleet.bmcInventory: "inventory.yaml": expected the text of a BMCInventory. Use --set-file',
        ),
        (
            BMCS + "fleet: {bmcCredentials: [bmc-rack-1], bmcInventory: 'machines: [{credentials: rack-2}]'}",
            "fleet.bmcCredentials: rack-2 is missing, but fleet.bmcInventory names it. Add the name of",
        ),
        (
            BMCS.replace("redfish", "kured"),
            "settings.BAREMETAL_POWER: kured is asked by a file on the node, and in fleet mode no agent runs",
        ),
        (
            BMCS.replace("fleet", "sidecar") + "fleet: {bmcCredentials: [bmc-rack-1]}",
            "fleet.bmcInventory, fleet.bmcCredentials: nobody asks a BMC. Set mode=fleet and",
        ),
        (
            BMCS.replace("redfish", "redfish, BMC_INVENTORY: /x")
            + "fleet: {bmcCredentials: [bmc-rack-1], bmcInventory: 'machines: []'}",
            "settings.BMC_INVENTORY: in fleet mode the chart sets it. Set fleet.bmcInventory and",
        ),
    ],
)
def test_what_a_mode_cannot_do_is_refused_with_what_to_set_instead(
    tools: Tools, values: str, message: str
) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        tools.template(values)


def test_on_an_older_kubernetes_it_says_what_is_lost_without_the_policies(tools: Tools) -> None:
    with pytest.raises(
        AssertionError, match=r"this is v1\.29\.0\. .* Then only RBAC limits the controller's token"
    ):
        tools.template(FLEET, "--kube-version", "1.29.0")
    found = tools.template(FLEET, "--kube-version", "1.29.0", "--set", "admissionPolicies=false")
    assert not [d for d in found if d["kind"].startswith("Validating")]


@pytest.mark.parametrize("section", ["mode", "fleet", "rbac", "crds", "monitoring"])
def test_reused_values_of_an_earlier_release_of_the_chart_are_refused(tools: Tools, section: str) -> None:
    """``--reuse-values`` takes them as they were, without what this release has added."""
    said = f"{section}: missing or null. .*null, leave it out. .* Use --reset-then-reuse-values"
    with pytest.raises(AssertionError, match=said):
        tools.template(f"{section}: null")


# ---------------------------------------------------------------- the notes


def notes(tools: Tools, values: str, *words: str) -> str:
    """NOTES.txt as Helm would print it: only an installation in a cluster shows it by itself."""
    copy = tools.folder / "chart"
    shutil.copytree(CHART, copy, dirs_exist_ok=True)
    shown = copy / "templates" / "shown.yaml"
    shown.write_text('notes: {{ include (print $.Template.BasePath "/NOTES.txt") . | toJson }}\n')
    (tools.folder / "values.yaml").write_text(values)
    place = ("--namespace", NAMESPACE, "-f", tools.folder / "values.yaml", *IMAGE, *LATER)
    found: dict[str, Any] = yaml.safe_load(
        tools.helm("template", "node-recovery", copy, "-s", "templates/shown.yaml", *place, *words)
    )
    return str(found["notes"])


def test_the_notes_say_what_was_installed_and_what_is_next(tools: Tools) -> None:
    said = notes(tools, FLEET)
    assert "Its accounts have no right to change a Node or to evict a pod." in said
    assert "identity in the cloud" not in said, "who only watches needs none"
    said += notes(tools, FLEET, "--set", "settings.ENABLE_RECOVERY=true")
    assert f"the Deployment {CONTROLLER}/{CONTROLLER}" in said
    assert f"the DaemonSet {NAMESPACE}/{DETECTOR} runs node-problem-detector alone" in said
    assert f"system:serviceaccount:{CONTROLLER}:{CONTROLLER}" in said
    assert "--set settings.ENABLE_RECOVERY=true" in said
    assert "-c node-recovery" not in said, "no sidecar has a log"


@pytest.mark.parametrize("values", [FLEET, "{}"], ids=["fleet", "sidecar"])
def test_the_notes_say_what_a_cluster_without_a_name_is_called(tools: Tools, values: str) -> None:
    told = 'Metrics and a webhook call this cluster "default".'
    assert told in notes(tools, values)
    assert told in notes(tools, values, "--set", "settings.CLUSTER_NAME=")
    assert told not in notes(tools, values, "--set", "settings.CLUSTER_NAME=training")


def test_the_notes_name_the_sidecar_that_a_patch_may_have_left(tools: Tools) -> None:
    assert "take it out" in notes(tools, ALONE, "--is-upgrade")
    assert "take it out" not in notes(tools, ALONE)
    assert "take it out" not in notes(tools, FLEET, "--is-upgrade")


def test_the_notes_ask_for_no_identity_that_was_given(tools: Tools) -> None:
    for given in (IRSA, AZURE):
        said = notes(tools, FLEET + given, "--set", "settings.ENABLE_RECOVERY=true")
        assert "identity in the cloud" not in said


def test_the_notes_of_sidecars_are_as_they_were(tools: Tools) -> None:
    said = notes(tools, "{}")
    assert f"in the pods of the DaemonSet {NAMESPACE}/{DETECTOR}" in said
    assert "-c node-recovery" in said
    assert "fleet" not in said


# ---------------------------------------------------------------- what the docs have one write


def blocks_of(page: str, word: str) -> str:
    """The one example in YAML on ``page`` that has ``word`` in it."""
    text = (DEPLOY.parent / page).read_text()
    (found,) = [b for b in re.findall(r"(?ms)^ *```yaml\n(.*?)^ *```$", text) if word in b]
    return textwrap.dedent(found)


def test_the_patch_for_the_clusters_dns_is_what_the_chart_makes_of_its_values(tools: Tools) -> None:
    patch = blocks_of("docs/fleet.md", "dnsPolicy")
    patched = pod(controller(tools.overlay("resources: [BASE]\n" + patch, over="fleet")))
    config = json.dumps({"dnsPolicy": patched["dnsPolicy"], "dnsConfig": patched["dnsConfig"]})
    charts = pod(controller(tools.template(FLEET + f"fleet: {config}\n")))
    assert (patched["dnsPolicy"], patched["dnsConfig"]) == (charts["dnsPolicy"], charts["dnsConfig"])
    assert patched["dnsPolicy"] == "ClusterFirst"


def test_the_overlay_for_going_over_names_the_sidecars_namespace_as_the_chart_does(tools: Tools) -> None:
    overlay = blocks_of("deploy/README.md", "AGENTS_NAMESPACE, value")
    patched = container(
        controller(tools.overlay(overlay.replace("../node-recovery/deploy/fleet", "BASE"), over="fleet"))
    )
    charts = container(controller(tools.template(FLEET)))
    assert patched["env"] == charts["env"]
