"""Before a node is given back: a Job on it that must succeed, made by the agent and run by Kubernetes.

The reboot is kured's, which is played; what the Job's pod does is played too. All that makes the Job and its
pod, lets them onto a node that nothing else may land on, and says what they may be, is real.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from baremetal_site import ACCOUNT, MERGE, NAMESPACE, BareMetalSite, MetalPlane
from fleet_site import any_right
from history import THIEF

from recovery.kube.transport import Response

JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
CRON_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NAME = "node-validation"
CRON_JOB = f"""\
metadata: {{name: {NAME}}}
spec:
  suspend: true
  schedule: "@yearly"
  jobTemplate:
    spec:
      backoffLimit: 0
      template:
        spec:
          restartPolicy: Never
          containers:
            - {{name: all-reduce, image: nccl-tests, command: [all_reduce_perf, -e, 8G]}}
"""
RULE = f"""\
    validate: {{cronJob: {NAME}, within: 1m}}
"""


@pytest.fixture(scope="module")
def _metal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareMetalSite]:
    with (
        MetalPlane(tmp_path_factory.mktemp("plane")) as plane,
        BareMetalSite(plane, tmp_path_factory.mktemp("metal") / "site") as site,
    ):
        site.install("components/kured", "../../options/validation", rule=RULE)
        made = plane.request("POST", CRON_JOBS, body=yaml.safe_load(CRON_JOB))
        assert made.status == 201, made.body
        yield site


@pytest.fixture
def metal(_metal: BareMetalSite) -> BareMetalSite:
    _metal.clear()
    return _metal


def rebooted(site: BareMetalSite, sick: str) -> None:
    """A fault, and what kured does about it."""
    site.breaks(sick)
    site.until("kured is asked", site.sentinel(sick).exists)
    site.boots(sick)


def job(site: BareMetalSite) -> Any:
    """The one Job, without which nothing goes on."""
    site.until("the Job is made", lambda: site.plane.get(JOBS)["items"])
    (found,) = site.plane.get(JOBS)["items"]
    return found


def pod_of(site: BareMetalSite, name: str) -> Any:
    def running() -> list[Any]:
        items = site.plane.get(PODS, labelSelector=f"batch.kubernetes.io/job-name={name}")["items"]
        return [pod for pod in items if pod["status"]["phase"] == "Running"]

    site.until("its pod runs", running)
    (pod,) = running()
    return pod


def ends(site: BareMetalSite, pod: Any, phase: str, code: int) -> None:
    """The program in the pod has ended: its kubelet says so."""
    ended = {"name": "all-reduce", "image": "nccl-tests", "imageID": "", "ready": False, "restartCount": 0}
    state = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
    status = {"phase": phase, "containerStatuses": [{**ended, "state": state}]}
    path = f"{PODS}/{pod['metadata']['name']}/status"
    answer = site.plane.request("PATCH", path, body={"status": status}, content_type=MERGE, user="kubelet")
    assert answer.status == 200, answer.body


def test_a_node_comes_back_only_once_a_job_on_it_has_succeeded(metal: BareMetalSite) -> None:
    sick = "metal-0"
    metal.join(sick, "metal-1")
    rebooted(metal, sick)
    made = job(metal)
    assert made["spec"]["template"]["spec"]["nodeName"] == sick
    pod = pod_of(metal, made["metadata"]["name"])
    assert pod["spec"]["nodeName"] == sick
    assert metal.node(sick)["spec"]["unschedulable"]
    assert "noderecovery.dev/unhealthy" in metal.taints(sick)
    told = f"{sick} is being validated by Job {made['metadata']['name']}"
    metal.until("it is waited for", lambda: told in metal.log(sick))
    assert metal.phase(sick) == "proving"
    ends(metal, pod, "Succeeded", 0)
    sentence = metal.ends(sick, "recovered")
    assert "unschedulable" not in metal.node(sick)["spec"]
    assert metal.taints(sick) == []
    assert f"and passed Job {made['metadata']['name']}" in sentence
    metal.check_laws(sick, "kured")


def test_a_node_whose_job_fails_is_handed_over_and_stays_out(metal: BareMetalSite) -> None:
    sick = "metal-0"
    metal.join(sick, "metal-1")
    rebooted(metal, sick)
    made = job(metal)
    ends(metal, pod_of(metal, made["metadata"]["name"]), "Failed", 1)
    sentence = metal.ends(sick, "handedOver")
    assert f"the validation Job {made['metadata']['name']} failed: BackoffLimitExceeded" in sentence
    assert metal.node(sick)["spec"]["unschedulable"]
    assert "noderecovery.dev/unhealthy" in metal.taints(sick)
    metal.check_laws(sick, "kured")


# ---------------------------------------------------------------- the thief


def test_a_stolen_token_makes_the_validations_job_on_its_own_node_and_no_other(metal: BareMetalSite) -> None:
    metal.join("metal-0", "metal-1")
    token = metal.kubelets.of("metal-0").token

    def asks(body: Any, method: str = "POST", path: str = JOBS) -> Response:
        return metal.plane.request(method, path, body=body, bearer=token, agent=THIEF)

    with any_right(metal.plane, NAMESPACE, ACCOUNT, token):
        metal.until("the option works", lambda: asks(of_the_cron_job(metal, "metal-1")).status == 403)
        for what, change in FORGED.items():
            answer = asks(of_the_cron_job(metal, "metal-0", change))
            assert answer.status == 403, (what, answer.body)
            assert "an agent's Job" in answer.body["message"] or "own node only" in answer.body["message"]
        for name, value in {
            "labels": {"app.kubernetes.io/managed-by": "node-recovery", "kueue.x-k8s.io/queue-name": "mine"},
            "annotations": {"example.com/inject": "yes"},
            "finalizers": ["example.com/never"],
        }.items():
            forged = of_the_cron_job(metal, "metal-0")
            forged["metadata"][name] = value
            assert asks(forged).status == 403, name
        unlabelled = of_the_cron_job(metal, "metal-0", first_container(image="miner"))
        assert asks({**unlabelled, "metadata": {"generateName": "stolen-"}}).status == 403
        cron_job = metal.plane.get(f"{CRON_JOBS}/{NAME}")
        cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"] = "miner"
        assert asks(cron_job, "PUT", f"{CRON_JOBS}/{NAME}").status == 403
        del cron_job["metadata"]["resourceVersion"]
        assert asks({**cron_job, "metadata": {"name": "another"}}, path=CRON_JOBS).status == 403
        elsewhere = asks(of_the_cron_job(metal, "metal-0"), path=JOBS.replace(NAMESPACE, "default"))
        assert elsewhere.status == 422
        assert "no params found for policy binding with `Deny`" in elsewhere.body["message"]
    answer = asks(of_the_cron_job(metal, "metal-0"))
    assert answer.status == 201, answer.body


def test_nobody_elses_jobs_are_looked_at_by_the_option(metal: BareMetalSite) -> None:
    """Where a policy's parameter is missing, its binding refuses everybody whom it matches."""
    metal.join("metal-0")
    token = metal.kubelets.of("metal-0").token
    elsewhere = JOBS.replace(NAMESPACE, "default")

    def agents() -> int:
        body = of_the_cron_job(metal, "of-another")
        return metal.plane.request("POST", JOBS, body=body, bearer=token, agent=THIEF).status

    metal.until("the option works", lambda: agents() == 403)
    spec = of_the_cron_job(metal, "metal-0")["spec"]
    made = metal.plane.request("POST", elsewhere, body={"metadata": {"name": "mine"}, "spec": spec})
    assert made.status == 201, made.body
    cron_job = {"metadata": {"name": "mine"}, "spec": metal.plane.get(f"{CRON_JOBS}/{NAME}")["spec"]}
    made = metal.plane.request("POST", CRON_JOBS.replace(NAMESPACE, "default"), body=cron_job)
    assert made.status == 201, made.body


def of_the_cron_job(site: BareMetalSite, node: str, change: Callable[[Any], None] | None = None) -> Any:
    """As ``kubectl create job --from`` makes it, on ``node``; ``change`` is made to its spec."""
    spec = copy.deepcopy(site.plane.get(f"{CRON_JOBS}/{NAME}")["spec"]["jobTemplate"]["spec"])
    spec["template"]["spec"]["nodeName"] = node
    spec.setdefault("backoffLimit", 0)
    if change is not None:
        change(spec)
    labels = {"app.kubernetes.io/managed-by": "node-recovery"}  # as the agent labels its own
    return {"metadata": {"generateName": "stolen-", "labels": labels}, "spec": spec}


def pod_spec(**changes: Any) -> Callable[[Any], None]:
    return lambda spec: spec["template"]["spec"].update(changes)


def first_container(**changes: Any) -> Callable[[Any], None]:
    return lambda spec: spec["template"]["spec"]["containers"][0].update(changes)


FORGED: dict[str, Callable[[Any], None]] = {
    "no node": lambda spec: spec["template"]["spec"].pop("nodeName"),
    "another image": first_container(image="miner"),
    "another command": first_container(command=["sh"]),
    "a privileged container": first_container(securityContext={"privileged": True}),
    "one more container": lambda spec: spec["template"]["spec"]["containers"].append(
        {"name": "more", "image": "miner"}
    ),
    "an init container": pod_spec(initContainers=[{"name": "first", "image": "miner"}]),
    "the node's file system": pod_spec(volumes=[{"name": "root", "hostPath": {"path": "/"}}]),
    "the node's network": pod_spec(hostNetwork=True),
    "the node's processes": pod_spec(hostPID=True),
    "another account": pod_spec(serviceAccountName="node-recovery"),
    "many pods": lambda spec: spec.update(parallelism=9, completions=9),
    "many tries": lambda spec: spec.update(backoffLimit=99),
    "labels of its pods": lambda spec: pod_metadata(spec, labels={"app": "another"}),
    "annotations of its pods": lambda spec: pod_metadata(spec, annotations={"example.com/inject": "yes"}),
    "finalizers of its pods": lambda spec: pod_metadata(spec, finalizers=["example.com/never"]),
    "names of hosts": pod_spec(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["registry.example"]}]),
    "a resolver": pod_spec(dnsPolicy="None", dnsConfig={"nameservers": ["10.0.0.1"]}),
    "a priority": pod_spec(priorityClassName="system-node-critical"),
    "another scheduler": pod_spec(schedulerName="mine"),
    "more tolerations": pod_spec(tolerations=[{"operator": "Exists"}]),
}


def pod_metadata(spec: Any, **changes: Any) -> None:
    spec["template"].setdefault("metadata", {}).update(changes)


def test_the_expressions_of_the_option_pass_the_servers_own_check_of_types(metal: BareMetalSite) -> None:
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    for name in ("node-recovery-jobs", "node-recovery-validation"):

        def checked(path: str = f"{policies}/{name}") -> Any:
            return metal.plane.get(path).get("status", {}).get("typeChecking")

        metal.until("it is checked", lambda: checked() is not None)
        assert checked().get("expressionWarnings", []) == [], name
