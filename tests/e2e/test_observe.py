"""Observe-only rights on a real API server, by kustomize and by the chart: watched first, then turned on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fleet_site import ACCOUNT, DEPLOY, NAMESPACE, POLICY, Site, edit, uncomment
from plane import Plane
from test_deploy import CHART, CONCLUDER, CONTROLLER, IMAGE, run
from test_fleet_mode import LEASE, FleetSite
from test_fleet_mode import POLICY as FLEETS
from toolbox import program

from recovery import cli
from recovery.kube.rights import (
    CHECKPOINT,
    CONCLUDERS,
    CONTROLLERS,
    OBSERVERS,
    OBSERVING_CONTROLLERS,
    OWN,
    POWER,
    RIGHTS,
    VALIDATION,
    Right,
)

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REPORT = "/apis/noderecovery.dev/v1alpha1/recoveryreports/fleet"
ON = {"ENABLE_RECOVERY": "true", "LEASE_DURATION": "5s"}
READS = ("get", "list", "watch")
Install = Callable[[Site, str, dict[str, str]], None]
"""(site, installation, settings): as it ships but for the settings, with the rights that these need."""


def by_kustomize(site: Site, installation: str, settings: dict[str, str]) -> None:
    copy = site.folder / "deploy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(DEPLOY, copy)
    place = copy / installation
    if not settings:
        uncomment(place / "kustomization.yaml", "../observe")
    if installation == "eks-neuron":
        uncomment(place / "kustomization.yaml", "policy")
    policy = place / ("policy.yaml" if installation == "fleet" else "policy/policy.yaml")
    policy.write_text(policy_of(installation))
    edit(place / "settings.env", *(f"{name}={value}" for name, value in settings.items()))
    site.plane.apply(place)


def by_the_chart(site: Site, installation: str, settings: dict[str, str]) -> None:
    policy = site.folder / "policy.yaml"
    policy.write_text(policy_of(installation))
    said = [word for name, value in settings.items() for word in ("--set", f"settings.{name}={value}")]
    if installation == "fleet":
        said += ["-f", str(CHART / "values-fleet.yaml"), "--set", "npd.create=false"]
    place = ("--namespace", NAMESPACE, "--create-namespace", "--kubeconfig", site.plane.kubeconfig("admin"))
    words = (
        "upgrade",
        "--install",
        "node-recovery",
        CHART,
        *IMAGE,
        *place,
        "--set-file",
        f"policy={policy}",
        *said,
    )
    run(program("helm"), *words, home=site.folder)
    for plural in ("noderecoveries", "recoverygates"):
        site.plane.kubectl("wait", "--for=condition=Established", f"crd/{plural}.noderecovery.dev")


def policy_of(installation: str) -> str:
    return FLEETS if installation == "fleet" else POLICY.format(budget=1, brake_per="{}")


either_way = pytest.mark.parametrize(
    "install", [by_kustomize, by_the_chart], ids=["by kustomize", "by the chart"]
)


@contextmanager
def cluster(folder: Path, kind: type[Site]) -> Iterator[Any]:
    (folder / "plane").mkdir()
    with Plane(folder / "plane") as plane, kind(plane, folder / "site") as site:
        site.clear()
        yield site


def may(site: Site, user: str, right: Right, own: str) -> bool:
    """Whether the API server would let ``user`` do it."""
    place = own if right.namespace == OWN else right.namespace
    wanted = {"verb": right.verb, "group": right.group, "resource": right.resource, "namespace": place}
    wanted |= {"subresource": right.subresource} if right.subresource else {}
    _, _, namespace, _ = user.split(":")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    spec = {"user": user, "groups": groups, "resourceAttributes": wanted}
    answer = site.plane.request("POST", REVIEWS, body={"spec": spec})
    assert answer.status == 201, answer.body
    return bool(answer.body["status"]["allowed"])


def kinds(rights: tuple[Right, ...]) -> set[tuple[str, str]]:
    return {(r.verb, r.kind) for r in rights}


def only_observes(site: Site, user: str, own: str, table: tuple[Right, ...]) -> None:
    """It is granted ``table`` and nothing else that any part of the program ever asks for."""
    every = (*CONTROLLERS, *RIGHTS, *CONCLUDERS, *POWER, *CHECKPOINT, *VALIDATION)
    granted = {(r.verb, r.kind) for r in every if may(site, user, r, own)}
    assert granted == kinds(table)


def reported(site: Site) -> dict[str, str]:
    """What the report says would be done, by node."""
    return {x["node"]: x["would"] for x in sightings(site)}


def ended(site: Site) -> dict[str, str]:
    """How what it lists has ended, by node."""
    return {x["node"]: x.get("how", "") for x in sightings(site)}


def sightings(site: Site) -> list[dict[str, Any]]:
    answer = site.plane.request("GET", REPORT)
    found: list[dict[str, Any]] = answer.body["status"].get("sightings", []) if answer.status == 200 else []
    return found


def a_person_reads_it(site: Site, sick: str) -> None:
    """The commands of who watches, at a real API server."""
    there = ("--kubeconfig", str(site.plane.kubeconfig("admin")))

    def says(*words: str) -> str:
        done = CliRunner().invoke(cli.group, [*words, *there])
        assert done.exit_code == 0, done.output
        return done.output

    assert f"would drain {sick}; then replace; it is there now" in says("report", "--since", "1h")
    row = next(line for line in says("status").split("\n") if line.startswith(sick))
    assert row.split()[1:4] == ["observed", "neuron-hardware", "drain"]
    policy = site.folder / "typo.yaml"
    text = POLICY.format(budget=1, brake_per="{}")
    policy.write_text(text.replace("budgetPer: {}", "budgetPer: {zoen: 1}"))
    assert "zoen" in says("policy", "check", "--cluster", str(policy))


def nothing_was_refused_or_written(site: Site, user: str) -> None:
    """Nothing but what law 7 names."""
    asked = [r for r in site.audit.requests() if r.user == user]
    assert [(r.verb, r.path) for r in asked if r.status == 403] == []
    written = {r.resource for r in asked if r.verb not in READS} - {"tokenreviews", "serviceaccounts/token"}
    assert written == {"events", "recoveryreports"}
    assert site.records() == {}
    assert site.gate() == {}


def the_detector_writes_conditions_by_its_own_account(site: Site, node: str) -> None:
    """And the agent's, in the same pod, does not."""
    container = site.kubelets.of(node)
    token = (container.folder / "root" / "run" / "node-problem-detector" / "token").read_text()
    body = {"status": {"conditions": [{"type": "Tried", "status": "False"}]}}
    kind = "application/strategic-merge-patch+json"

    def states(bearer: str) -> int:
        path = f"/api/v1/nodes/{node}/status"
        return site.plane.request("PATCH", path, body=body, content_type=kind, bearer=bearer).status

    assert (states(token), states(container.token)) == (200, 403)


@either_way
def test_sidecars_with_observe_only_rights_say_what_they_would_do_and_recover_once_they_are_turned_on(
    tmp_path: Path, install: Install, tell: Callable[[str], None]
) -> None:
    user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    concluder = f"system:serviceaccount:{CONCLUDER}:{CONCLUDER}"
    with cluster(tmp_path, Site) as site:
        install(site, "eks-neuron", {})
        sick, _ = site.group(2)
        site.breaks(sick)
        site.until("it says so", lambda: f"{sick}: would " in site.log(sick))
        site.until("it is on the report", lambda: reported(site) == {sick: "recover"})
        a_person_reads_it(site, sick)
        nothing_was_refused_or_written(site, user)
        only_observes(site, user, NAMESPACE, OBSERVERS)
        only_observes(site, concluder, NAMESPACE, ())
        assert site.kubelets.concluders() == []
        the_detector_writes_conditions_by_its_own_account(site, sick)
        used = {(r.verb, r.resource) for r in site.audit.requests() if r.user == user}
        tell(f"observe-only rights of a sidecar: {len(used)} of {len(OBSERVERS)} were used here")

        install(site, "eks-neuron", ON)
        site.until("the report has ended", lambda: ended(site) == {sick: "recovery was switched on"})
        site.until("it is recovered", lambda: site.phase(sick) == "recovered", 180)
        site.until("a concluder runs", site.kubelets.concluder)

        install(site, "eks-neuron", {})
        only_observes(site, user, NAMESPACE, OBSERVERS)
        only_observes(site, concluder, NAMESPACE, ())


@either_way
def test_the_controller_with_observe_only_rights_says_what_it_would_do_and_recovers_once_it_is_turned_on(
    tmp_path: Path, install: Install
) -> None:
    user = f"system:serviceaccount:{CONTROLLER}:{CONTROLLER}"
    with cluster(tmp_path, FleetSite) as fleet:
        fleet.lawless = True
        install(fleet, "fleet", {})
        fleet.until("one replica runs", lambda: len(fleet.replicas()) == 1)
        fleet.until("it knows the Nodes", lambda: "are listed" in fleet.logs())
        fleet.ready = lambda *_: None
        sick, _ = fleet.group(2)
        fleet.states(sick, "NeuronHealth", "True", "NeuronHasError_DMA_ERROR")
        fleet.until("it says so", lambda: f"{sick}: would " in fleet.logs())
        fleet.until("it is on the report", lambda: reported(fleet) == {sick: "recover"})
        nothing_was_refused_or_written(fleet, user)
        only_observes(fleet, user, CONTROLLER, OBSERVING_CONTROLLERS)
        assert fleet.plane.request("GET", LEASE).status == 404

        install(fleet, "fleet", {"ENABLE_RECOVERY": "true"})
        fleet.states(sick, "NeuronHealth", "True", "NeuronHasError_DMA_ERROR")  # as a detector renews it
        fleet.until("it is recovered", lambda: fleet.phase(sick) == "recovered", 180)
        fleet.until("a second replica runs", lambda: len(fleet.replicas()) == 2)

        install(fleet, "fleet", {})
        only_observes(fleet, user, CONTROLLER, OBSERVING_CONTROLLERS)
