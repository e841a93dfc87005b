"""What doctor finds in clusters that lack one thing each, in the pod and from a laptop."""

from __future__ import annotations

import functools
import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from recovery_testkit.clock import FakeClock
from recovery_testkit.kubernetes import KubernetesStore, node_claim_crd

from recovery import cli
from recovery.config.policy_file import load_builtin
from recovery.console.doctor import samples
from recovery.console.doctor.cluster import missing
from recovery.errors import ApiUnavailable, SettingsError
from recovery.kube import rights
from recovery.kube.transport import Response
from recovery.model import GROUP, VERSION
from recovery.provider.protocol import Finding
from recovery.signals.scrape import PageReader
from tests.builders.http_server import AnsweringServer, answering
from tests.builders.manifests import CRDS, crd
from tests.builders.objects import Json, condition, gate_object, node_object, pod_object, record_object
from tests.builders.policies import HEAD
from tests.builders.stores import store_with_crds

PAGES = Path(__file__).parents[1] / "captures"
NODE, HOME = "worker-1", "neuron-healthcheck-system"
DMA = "NeuronHasError_DMA_ERROR"
LISTED = [["NeuronHealth", DMA], ["NeuronHealth", "NeuronHasError_HBM_UNCORRECTABLE_ERROR"]]
POD = f"{HOME}/npd-1"
APART, ELSEWHERE = "node-recovery-concluder", "infra-1"
"""Of the concluder: its namespace, and a node where no agent runs."""
PODS_THERE = f"kubectl get pods -A -o wide --field-selector spec.nodeName={NODE}"


@dataclass
class Door:
    """The way to the API server: passes on to a store, and refuses or says what a test wants."""

    store: KubernetesStore
    clock: FakeClock
    namespace: str = HOME
    answers: dict[str, Response] = field(default_factory=dict)  # by the end of the path, the query left out
    denied: set[tuple[str, str]] = field(default_factory=set)  # (verb, resource[/subresource])
    asked: list[Mapping[str, Any]] = field(default_factory=list)  # the specs of access reviews
    shut: bool = False
    policies: frozenset[str] = frozenset({"nodes", "noderecoveries", "recoverygates", "leases", "eviction"})
    taint_keys: frozenset[str] = frozenset({"noderecovery.dev/unhealthy", "aznhc"})
    ahead: timedelta = timedelta(0)

    def request(self, method: str, path: str, **options: Any) -> Response:
        if self.shut:
            raise ApiUnavailable("the API server did not answer: timed out")
        for end, answer in self.answers.items():
            if path.endswith(end):
                return answer
        if path.endswith("accessreviews"):
            return self._review(options["body"])
        if (options.get("query") or {}).get("dryRun"):
            return self._dry_run(path, options["body"])
        options.pop("read", None)  # it is for bytes, and what comes from memory has none
        found = self.store.request(method, path, **options)
        date = format_datetime((self.clock.now() + self.ahead).replace(microsecond=0), usegmt=True)
        return Response(found.status, {**found.headers, "Date": date}, found.body)

    def _dry_run(self, path: str, body: Mapping[str, Any]) -> Response:
        taints = (body.get("spec") or {}).get("taints") or []
        if taints and {t["key"] for t in taints} <= self.taint_keys:
            return Response(200, {}, {})
        if not any(f"/{plural}" in path for plural in self.policies):
            return Response(200, {}, {})
        return refusal(
            403, "it is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no"
        )

    def _review(self, review: Json) -> Response:
        self.asked.append(review["spec"])
        wanted = review["spec"]["resourceAttributes"]
        kind = f"{wanted['resource']}/{wanted['subresource']}".rstrip("/")
        return Response(201, {}, {**review, "status": {"allowed": (wanted["verb"], kind) not in self.denied}})


def refusal(status: int, message: str) -> Response:
    return Response(status, {}, {"kind": "Status", "message": message})


@dataclass
class Doctor:
    """Runs the command in a world that a test has spoiled."""

    door: Door
    environ: dict[str, str]
    monkeypatch: pytest.MonkeyPatch
    code: int = -1
    out: str = ""

    def __call__(self, *arguments: str) -> list[Finding]:
        """Every finding but the fine ones, after one run; the whole run is kept."""
        for name, value in self.environ.items():
            self.monkeypatch.setenv(name, value)
        runner = CliRunner()
        with runner.isolation() as (out, _, __):
            self.code = _code(["doctor", "--output", "json", *arguments])
        self.out = out.getvalue().decode()
        return [f for f in self.findings if f.ok is not True or f.remedy]

    @property
    def findings(self) -> list[Finding]:
        found = json.loads(self.out)["findings"]
        return [Finding(f["area"], f["ok"], f["sentence"], f["remedy"] or "") for f in found]

    def says(self, part: str) -> Finding:
        """The one finding that has ``part`` in its sentence."""
        (found,) = [f for f in self.findings if part in f.sentence]
        return found


def _code(arguments: list[str]) -> int:
    return cli.main(arguments)


def worker(
    *, provider_id: str = "", conditions: list[Json] | None = None, spec: Json | None = None, **more: Any
) -> Json:
    """A node of bare metal, its detector's condition fresh."""
    return node_object(
        NODE,
        spec={"providerID": provider_id, **(spec or {})},
        conditions=[condition(), beat()] if conditions is None else conditions,
        info={"systemUUID": "4c4c4544-0042-3010-8054-b7c04f4e4d32"},
        **more,
    )


def beat(minutes_ago: float = 1) -> dict[str, str]:
    at = FakeClock().now() - timedelta(minutes=minutes_ago)
    return {
        "type": "NeuronHealth",
        "status": "False",
        "reason": "NeuronHasNoError",
        "lastHeartbeatTime": at.isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def agent_pod(phase: str = "Running") -> Json:
    ours = {"name": "node-recovery", "image": "i", "ports": [{"containerPort": 9108}]}
    spec = {"serviceAccountName": "agent"}
    return pod_object("npd-1", on=NODE, phase=phase, containers=[ours], spec=spec, namespace=HOME)


def concluder(node: str = ELSEWHERE, phase: str = "Running", **status: Any) -> Json:
    labels = {"app.kubernetes.io/name": "node-recovery", "app.kubernetes.io/component": "concluder"}
    ours = [{"name": "node-recovery", "image": "i"}]
    made = pod_object("c-1", on=node, namespace=APART, labels=labels, containers=ours)
    return {**made, "status": {"phase": phase, **status}}


def explained(**changes: Any) -> Json:
    """What the agent on the node answers when it is asked to explain."""
    reading = {
        "source": "npd",
        "at": FakeClock().now().isoformat(),
        "problems": [],
        "unknown": {},
        "listed": LISTED,
        **changes,
    }
    return {
        "agent": {"recovery": True, "policy": "built-in"},
        "decision": {"reason": "healthy: no confirmed problem"},
        "readings": [reading],
    }


EXPLAIN = "/proxy/api/v1/explain"
# What is installed and what is built in stay the same: looked up once, and not for each of a hundred runs.
INSTALLED, BUILT_IN = functools.cache(entry_points), functools.cache(load_builtin)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> KubernetesStore:
    store = store_with_crds(clock.now)
    for name in (HOME, APART):
        store.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return store


@pytest.fixture
def at_laptop(store: KubernetesStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """A healthy bare-metal node, its agent answering, and a person with a kubeconfig."""
    store.load(worker(), agent_pod(), concluder())
    door = Door(store, clock, answers={EXPLAIN: Response(200, {}, explained())})
    monkeypatch.setattr("recovery.console.doctor.cluster.KubernetesTransport", lambda *_: door)
    monkeypatch.setattr("recovery.console.doctor.command.SystemClock", lambda: clock)
    monkeypatch.setattr("recovery.provider.protocol.entry_points", INSTALLED)
    monkeypatch.setattr("recovery.config.settings.load_builtin", BUILT_IN)
    for name in ("NODE_NAME", "NPD_METRICS_URL", "POLICY_FILE", "PROVIDER", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return Doctor(door, {"KUBECONFIG": "/somewhere"}, monkeypatch)


@pytest.fixture(scope="module")
def detector() -> Iterator[Callable[[str], str]]:
    """Serves a text as node-problem-detector's page, and says where."""
    page = {"text": ""}

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page["text"].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()

    def serve(text: str) -> str:
        page["text"] = text
        return f"http://127.0.0.1:{server.server_address[1]}/metrics"

    yield serve
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def in_pod(at_laptop: Doctor, detector: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """The same node, from within its agent's pod."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    page = (PAGES / "neuron-dma-error" / "00-healthy.prom").read_text()
    at_laptop.environ = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "NODE_NAME": NODE,
        "POD_NAMESPACE": HOME,
        "NPD_METRICS_URL": detector(page),
    }
    return at_laptop


# ---------------------------------------------------------------- what a stolen token may do


def test_it_says_that_the_admission_policies_bind(in_pod: Doctor) -> None:
    in_pod()
    limited = (
        "admission policies limit what its token may do to its Node, records, the gate, Leases, evictions"
    )
    assert in_pod.says("admission policies").sentence == limited


@pytest.mark.parametrize(
    ("absent", "what"),
    [
        ("nodes", "its Node"),
        ("noderecoveries", "records"),
        ("recoverygates", "the gate"),
        ("leases", "Leases"),
        ("eviction", "evictions"),
    ],
)
def test_a_policy_that_does_not_bind_is_missing_and_it_says_what_to_install(
    in_pod: Doctor, absent: str, what: str
) -> None:
    in_pod.door.policies -= {absent}
    (found,) = in_pod()
    assert found.ok is False
    assert found.sentence.startswith(f"no admission policy limits this account for {what}: a stolen token")
    assert "deploy/rbac/admission.yaml" in found.remedy
    assert in_pod.code == 1


TAINTS = (
    "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
    "rules:\n  - name: a\n    match: {source: npd}\n"
    "    remedy: [{do: taint, key: aznhc, value: failed}, {do: taint, key: example.com/faulty}]\n"
)


def test_it_names_the_taints_of_the_policy_that_the_agent_may_not_set(in_pod: Doctor, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(TAINTS)
    in_pod.environ["POLICY_FILE"] = str(tmp_path / "policy.yaml")
    in_pod()
    found = in_pod.says("names the taint")
    assert (found.ok, found.area) == (False, "rights")
    assert found.sentence.startswith(
        "the policy names the taint example.com/faulty:NoSchedule, and the admission"
    )
    assert "in the chart: taintKeys" in found.remedy
    in_pod.door.taint_keys |= {"example.com/faulty"}
    in_pod()
    assert in_pod.says("the agent may set").sentence == (
        "the agent may set aznhc=failed:NoSchedule, example.com/faulty:NoSchedule, as the policy says"
    )


def test_a_refusal_by_rbac_says_nothing_about_the_policies(in_pod: Doctor) -> None:
    in_pod.door.answers["/leases"] = refusal(403, "leases is forbidden: User cannot create resource")
    (found,) = in_pod()
    assert (found.ok, found.area) == (None, "rights")
    assert found.sentence.startswith("whether a stolen token is limited, for Leases: ")


def test_from_a_laptop_nobody_tries_what_only_the_agents_account_is_refused(at_laptop: Doctor) -> None:
    at_laptop.door.policies = frozenset()
    assert at_laptop("--node", NODE) == []


# ---------------------------------------------------------------- all is well


def test_in_the_pod_of_a_healthy_node_nothing_is_missing(in_pod: Doctor) -> None:
    assert in_pod() == []
    assert in_pod.code == 0
    assert {f.area for f in in_pod.findings} == {
        *("settings", "cluster", "node", "rights", "concluder", "policy", "detector", "conditions"),
        *("sources", "baremetal"),
    }
    assert in_pod.says("its conditions on").sentence == f"its conditions on {NODE} were last renewed 60 s ago"
    assert in_pod.says("can report").sentence == "it can report what these rules act on: neuron-hardware"


def test_from_a_laptop_the_agent_tells_what_its_detector_lists(at_laptop: Doctor) -> None:
    assert at_laptop("--node", NODE) == []
    assert at_laptop.code == 0
    assert at_laptop.says(f"the agent {POD} answers").sentence.endswith("healthy: no confirmed problem")
    assert at_laptop.says("the agent reads").area == "detector"
    assert at_laptop.says("the agent's service account is").sentence.endswith(f"{HOME}/agent")


def test_people_see_lines_and_the_last_one_says_it_all(in_pod: Doctor) -> None:
    in_pod()  # sets the environment
    result = CliRunner().invoke(cli.group, ["doctor"])
    lines = result.output.splitlines()
    assert lines[0] == "settings"
    assert "  ✓ the API server answers (Kubernetes v1.36.0)" in lines
    assert lines[-1].startswith("recovery could work here: ")
    assert result.exit_code == 0


def test_nothing_is_written(in_pod: Doctor, store: KubernetesStore) -> None:
    before = len(store.history)
    in_pod()
    assert len(store.history) == before


def test_without_a_node_only_the_cluster_is_looked_at(at_laptop: Doctor) -> None:
    store = at_laptop.door.store
    store.load(node_claim_crd())
    at_laptop("--service-account", f"{HOME}/agent")
    unnamed = at_laptop.says("no node was named")
    assert unnamed.sentence == "no node was named, so only the cluster was looked at"
    assert (unnamed.ok, unnamed.remedy) == (
        None,
        "name one that should be recovered: node-recovery doctor --node NAME",
    )
    unasked = at_laptop.says("no provider was asked: whose machine to look at is not known")
    assert (unasked.ok, unasked.remedy) == (None, "name a node")
    assert not [f for f in at_laptop.findings if f.area == "detector"]


def test_a_provider_that_cannot_be_made_is_told_with_each_mistake_without_a_node_too(
    at_laptop: Doctor, tmp_path: Path
) -> None:
    (tmp_path / "inventory.yaml").write_text("machines: [{node: a, adress: https://a}]")
    inventory = {"BMC_INVENTORY": str(tmp_path / "inventory.yaml")}
    at_laptop.environ |= {"PROVIDER": "baremetal", "BAREMETAL_POWER": "redfish", **inventory}
    at_laptop("--service-account", f"{HOME}/agent")
    wrong = at_laptop.says('did you mean "address"?')
    assert (wrong.area, wrong.ok, wrong.remedy) == ("provider", False, "mend it, or no agent starts")
    assert not [f for f in at_laptop.findings if "no provider was asked" in f.sentence]


# ---------------------------------------------------------------- settings and policy


def test_every_wrong_setting_is_told_and_the_rest_is_looked_at_all_the_same(in_pod: Doctor) -> None:
    in_pod.environ |= {"ENABLE_RECOVERY": "yes", "POLL_INTERVAL": "1h"}
    in_pod.door.denied.add(("patch", "nodes"))
    assert [f.area for f in in_pod()] == ["settings", "settings", "rights"]
    assert in_pod.says("ENABLE_RECOVERY").sentence.endswith('found "yes", expected "true" or "false"')
    assert in_pod.code == 2
    assert in_pod.says("can report").ok


def test_a_webhook_without_a_url_is_told_and_one_with_it_is_not_repeated(
    in_pod: Doctor, tmp_path: Path
) -> None:
    in_pod.environ |= {"WEBHOOK_URL_FILE": str(tmp_path / "url"), "WEBHOOK_FORMAT": "slack"}
    (wrong,) = in_pod()
    assert wrong.sentence == "webhook: WEBHOOK_URL_FILE cannot be read: FileNotFoundError"
    (tmp_path / "url").write_text("https://hooks.example/hunter2")
    assert in_pod() == []
    assert in_pod.says("webhook").sentence == "webhook: its file holds a URL; slack is sent to it"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("true", "ENABLE_RECOVERY is true"),
        ("false", "ENABLE_RECOVERY is false: it only observes and reports"),
    ],
)
def test_whether_it_would_act_is_said(in_pod: Doctor, value: str, sentence: str) -> None:
    in_pod.environ["ENABLE_RECOVERY"] = value
    assert in_pod() == []
    assert in_pod.says(sentence).area == "settings"


def test_an_agent_that_only_watches_is_said_to(at_laptop: Doctor) -> None:
    answer = explained()
    answer["agent"]["recovery"] = False
    at_laptop.door.answers[EXPLAIN] = Response(200, {}, answer)
    assert at_laptop("--node", NODE) == []
    assert "ENABLE_RECOVERY=false: it only observes" in at_laptop.says(f"the agent {POD} answers").sentence


def test_a_sidecar_that_does_not_know_its_node_is_told_so(in_pod: Doctor) -> None:
    del in_pod.environ["NODE_NAME"]
    in_pod()
    missing = in_pod.says("NODE_NAME: missing")
    assert (missing.ok, missing.remedy) == (False, "`run` would end at once with exit code 2: fix it")
    assert in_pod.code == 2


def test_a_policy_with_mistakes_is_told_line_by_line(in_pod: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\nruels: []\n")
    in_pod.environ["POLICY_FILE"] = str(file)
    in_pod()
    assert in_pod.says('did you mean "rules"?').ok is False
    assert in_pod.says("not looked at further").ok is None
    assert in_pod.code == 2


def test_a_misspelt_variable_is_worth_a_word(in_pod: Doctor) -> None:
    in_pod.environ["POLL_INTERVALL"] = "1s"
    in_pod()
    remedy = in_pod.says("did you mean POLL_INTERVAL?").remedy
    assert remedy == "nothing stops for it, but it is probably not what was meant"
    assert in_pod.code == 0


def policy_of(tmp_path: Path, rules: str) -> str:
    file = tmp_path / "policy.yaml"
    file.write_text(f"apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\nrules:\n{rules}")
    return str(file)


def test_a_step_that_the_provider_cannot_do_is_told(in_pod: Doctor, tmp_path: Path) -> None:
    in_pod.environ["POLICY_FILE"] = policy_of(
        tmp_path, "  - {name: all, match: {type: NeuronHealth}, remedy: [{do: reboot}]}\n"
    )
    in_pod()
    found = in_pod.says('found "reboot", which provider baremetal cannot do')
    assert (found.ok, found.remedy) == (
        False,
        "node-recovery policy check FILE --provider NAME reports the same",
    )
    assert in_pod.code == 1


def test_what_the_built_in_policy_means_on_bare_metal_is_said_and_is_no_failure(in_pod: Doctor) -> None:
    in_pod()
    found = in_pod.says("provider baremetal cannot replace")
    assert found.ok
    assert found.sentence.endswith("the remedy is cordon, and then the node is handed over to a person")


def test_an_agent_with_another_policy_is_not_judged_by_the_one_that_is_here(at_laptop: Doctor) -> None:
    answer = explained()
    answer["agent"]["policy"] = "/etc/node-recovery/policy.yaml"
    at_laptop.door.answers[EXPLAIN] = Response(200, {}, answer)
    at_laptop("--node", NODE)
    found = at_laptop.says("runs with the policy /etc/node-recovery/policy.yaml")
    assert found.ok is None
    assert found.sentence.endswith("what is said below of rules is about built-in")
    assert found.remedy == "set POLICY_FILE to a copy of it, or run doctor in the agent's pod"


def test_the_built_in_policy_of_a_laptop_is_not_taken_for_the_agents(at_laptop: Doctor) -> None:
    at_laptop()
    found = at_laptop.says("which policy the agents run with is not known from here")
    assert found.ok is None
    assert found.remedy == "set POLICY_FILE to a copy of it, or run doctor in the agent's pod"


def test_that_nothing_runs_in_the_cluster_is_a_failure(at_laptop: Doctor) -> None:
    at_laptop()
    found = at_laptop.says("nobody looks after any node")
    assert (found.ok, at_laptop.code) == (False, 1)


# ---------------------------------------------------------------- the cluster


def test_an_api_server_that_is_silent_fails_and_nothing_more_is_asked_of_it(in_pod: Doctor) -> None:
    in_pod.door.shut = True
    in_pod()
    assert in_pod.code == 1
    silent = in_pod.says("the API server did not answer: timed out")
    assert (silent.ok, silent.remedy[:32]) == (False, "does `kubectl version` get an an")
    assert silent.remedy.endswith("In a pod a NetworkPolicy may be in the way")
    assert in_pod.says(f"{NODE} was not looked at: the API server did not answer").ok is None
    assert [f.sentence for f in in_pod.findings if f.area == "rights"] == [
        "not asked: the API server did not answer"
    ]
    assert in_pod.says("is node-problem-detector's page").ok  # the detector needs no API server


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(500, "the API server is in trouble: GET /version: 500"), (404, "what answers is no API server: GET")],
)
def test_an_answer_that_is_none_is_told_as_what_it_is(in_pod: Doctor, status: int, sentence: str) -> None:
    in_pod.door.answers["/version"] = refusal(status, "no")
    in_pod()
    assert in_pod.says(sentence).ok is False


@pytest.mark.parametrize(
    "answer", [{"kind": "List", "items": []}, {"gitVersion": None}, {"gitVersion": ["v1"]}]
)
def test_an_answer_without_a_version_is_no_api_servers(in_pod: Doctor, answer: dict[str, Any]) -> None:
    """Something answers every question: no check failed, because none could be asked."""
    in_pod.door.answers["/version"] = Response(200, {}, answer)
    in_pod()
    assert in_pod.code == 1
    found = in_pod.says("the answer to GET /version is not the API server's: it has no gitVersion")
    assert found.ok is False


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_are_not_accepted_are_told_as_that(in_pod: Doctor, status: int) -> None:
    in_pod.door.answers["/version"] = refusal(status, "Unauthorized")
    in_pod()
    found = in_pod.says("does not accept these credentials")
    assert found.ok is False
    assert found.remedy == (
        "log in again, or look at the service account's token; `kubectl auth whoami` shows who you are"
    )


def test_no_kubeconfig_is_told_with_what_to_set(at_laptop: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_config(*_: object) -> None:
        raise SettingsError(["KUBECONFIG: no configuration found"])

    monkeypatch.setattr("recovery.console.doctor.cluster.KubernetesTransport", no_config)
    at_laptop("--node", NODE)
    found = at_laptop.says("KUBECONFIG: ")
    assert (found.area, found.ok) == ("cluster", False)
    assert found.remedy == "set KUBECONFIG, or run this in the agent's pod"
    assert at_laptop.code == 1


def test_no_credentials_in_the_pod_are_the_pods_to_mend(
    in_pod: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_token(*_: object) -> None:
        raise SettingsError(["in-cluster credentials: Service token file does not exist."])

    monkeypatch.setattr("recovery.console.doctor.cluster.KubernetesTransport", no_token)
    in_pod()
    assert in_pod.says("in-cluster credentials: ").remedy.startswith("fix the pod's service account")


def test_a_clock_that_is_off_stops_recovery_where_it_is_the_nodes_own(in_pod: Doctor) -> None:
    in_pod.door.ahead = timedelta(minutes=2)
    in_pod()
    found = in_pod.says("with more than 30 s the agent starts nothing")
    assert found.ok is False
    assert found.remedy == "fix time synchronisation on this node (chronyc tracking, timedatectl)"


def test_a_laptops_clock_that_is_off_is_only_worth_a_word(at_laptop: Doctor) -> None:
    at_laptop.door.ahead = timedelta(minutes=2)
    at_laptop("--node", NODE)
    found = at_laptop.says("this is not the node, where more than 30 s would start nothing")
    assert (found.ok, found.remedy) == (True, "run doctor in the agent's pod to know the node's clock")


def test_crds_that_are_not_installed_are_told_with_the_command(in_pod: Doctor, clock: FakeClock) -> None:
    bare = KubernetesStore(now=clock.now)
    bare.load(worker())
    in_pod.door.store = bare
    in_pod()
    found = in_pod.says("not installed: nothing can be remembered")
    assert (found.ok, found.remedy) == (False, "kubectl apply -k deploy/crds")
    assert not [f for f in in_pod.findings if "paused" in f.sentence]


def test_one_crd_of_two_is_not_enough(in_pod: Doctor, clock: FakeClock) -> None:
    half = KubernetesStore(now=clock.now)
    half.load(worker())
    half.install_crd(crd("noderecoveries"))
    in_pod.door.store = half
    in_pod()
    found = in_pod.says("RecoveryGate of noderecovery.dev/v1alpha1: not installed")
    assert (found.ok, found.remedy) == (False, "kubectl apply -k deploy/crds")


def test_crds_of_another_version_are_told_with_both(in_pod: Doctor) -> None:
    in_pod.door.answers = {
        f"/apis/{GROUP}/{VERSION}": refusal(404, "not found"),
        f"/apis/{GROUP}": Response(200, {}, {"versions": [{"version": "v2"}]}),
    }
    in_pod()
    found = in_pod.says("are served as v2; this program uses v1alpha1")
    assert (found.ok, found.remedy) == (False, "kubectl apply -k deploy/crds")


def changed_crds(in_pod: Doctor, change: Callable[[Json], None]) -> None:
    for plural in CRDS:
        changed = crd(plural)
        change(changed["spec"]["versions"][0])
        in_pod.door.store.install_crd(changed)


def test_a_crd_that_would_drop_a_field_is_told_with_the_field(in_pod: Doctor) -> None:
    def older(version: Json) -> None:
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        status.pop("scopes", None)
        status.pop("census", None)

    changed_crds(in_pod, older)
    in_pod()
    found = in_pod.says("the CRDs are older than this program")
    assert found.ok is False
    assert found.sentence.endswith("drop NodeRecovery.status.scopes, RecoveryGate.status.census")
    assert found.remedy == "kubectl apply -k deploy/crds"


def test_a_status_subresource_would_swallow_what_an_agent_writes(in_pod: Doctor) -> None:
    changed_crds(in_pod, lambda version: version.update(subresources={"status": {}}))
    in_pod()
    found = in_pod.says("a status subresource is on, so what an agent writes would be dropped")
    assert (found.ok, found.remedy) == (False, "these are not our CRDs: kubectl apply -k deploy/crds")


def test_a_server_that_publishes_no_schemas_cannot_be_asked_for_fields(in_pod: Doctor) -> None:
    in_pod.door.answers[f"/openapi/v3/apis/{GROUP}/{VERSION}"] = refusal(404, "not found")
    in_pod()
    found = in_pod.says("whether the CRDs have every field that this version writes: GET /openapi/v3")
    assert (found.ok, found.remedy) == (None, "if in doubt, apply them again: kubectl apply -k deploy/crds")


@pytest.mark.parametrize("plural", CRDS)
def test_the_samples_have_every_field_that_is_shipped(plural: str) -> None:
    """So that none can be forgotten in them: the schema is laid over the samples, the other way round."""
    shipped = crd(plural)
    written = samples.full_objects()[shipped["spec"]["names"]["kind"]]
    schema = shipped["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert list(missing(schema, written)) == []
    assert list(absent(schema["properties"], written)) == []


def absent(properties: Mapping[str, Any], written: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, schema in properties.items():
        if name in ("apiVersion", "kind", "metadata"):
            continue
        if name not in written:
            yield f"{path}{name}"
            continue
        value, inner = written[name], schema.get("items", schema)
        if isinstance(value, list):
            value = value[0]
        yield from absent(inner.get("properties") or {}, value, f"{path}{name}.") if value else ()


def test_a_pause_is_told_with_who_and_until_when_and_is_no_failure(in_pod: Doctor, clock: FakeClock) -> None:
    until = (clock.now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    pause = {"owner": "ada", "reason": "incident 7", "until": until}
    in_pod.door.store.load(gate_object(spec={"pause": pause}))
    in_pod()
    found = in_pod.says("ada paused all recoveries")
    assert found.ok
    assert found.sentence.endswith("incident 7. Nothing is started meanwhile")
    assert found.remedy == "to go on: node-recovery resume"
    assert in_pod.code == 0


def test_a_gate_that_cannot_be_read_stops_everything(in_pod: Doctor) -> None:
    in_pod.door.store.load(gate_object(spec={}, version=7))
    in_pod()
    found = in_pod.says("the gate cannot be read, and nothing starts anywhere")
    assert found.ok is False
    assert found.remedy == (
        "look at it: kubectl get recoverygate fleet -o yaml; when it is deleted, agents rebuild it from the "
        "records"
    )


def test_a_record_that_cannot_be_read_fails_where_it_is_this_nodes(in_pod: Doctor) -> None:
    for name in (NODE, "worker-2"):
        since = "2026-11-21T00:00:00Z"
        in_pod.door.store.load(record_object(name, "recovering", version=7, phaseSince=since))
    in_pod()
    found = in_pod.says(f"the record of {NODE} cannot be read, so it is held and never touched: ")
    assert found.ok is False
    assert found.remedy == (
        f"look at it: kubectl get noderecovery {NODE} -o yaml; deleting it ends the recovery unproved"
    )
    assert in_pod.says("the record of worker-2 cannot be read").ok


def test_a_caller_who_may_not_see_records_is_told_so(in_pod: Doctor) -> None:
    in_pod.door.answers["/noderecoveries"] = refusal(403, "forbidden")
    in_pod()
    found = in_pod.says("pause and records: you have no right to ask (403)")
    assert (found.ok, found.remedy) == (None, "ask with rights to get and list noderecoveries")


# ---------------------------------------------------------------- the node


def replaced(doctor: Doctor, **changes: Any) -> None:
    """Another Node under the same name."""
    doctor.door.store.request("DELETE", f"/api/v1/nodes/{NODE}")
    doctor.door.store.load(worker(**changes))


def test_a_node_that_is_not_there_is_told(in_pod: Doctor) -> None:
    in_pod.door.store.request("DELETE", f"/api/v1/nodes/{NODE}")
    in_pod()
    found = in_pod.says(f"there is no Node {NODE}")
    assert found.ok is False
    assert found.remedy == "compare with kubectl get nodes; in the pod NODE_NAME comes from spec.nodeName"


def test_a_node_that_may_not_be_read_cannot_be_judged(in_pod: Doctor) -> None:
    in_pod.door.answers[f"/nodes/{NODE}"] = refusal(403, "forbidden")
    in_pod()
    assert in_pod.says(f"{NODE} could not be read: you have no right").ok is None


def test_a_node_that_is_not_ready_has_no_agent_to_rely_on(in_pod: Doctor) -> None:
    replaced(in_pod, conditions=[condition(status="False", reason="KubeletNotReady")])
    in_pod()
    found = in_pod.says("not Ready (condition Ready is False, KubeletNotReady): its agent cannot be relied")
    assert found.ok is False
    assert found.remedy == f"kubectl describe node {NODE}; replace it by hand if it is dead"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"provider_id": "gce://project/zone/vm"}, "whose cloud no provider here knows"),
        ({"provider_id": "aws:///nowhere/i-1"}, "expected was one of EC2's"),
        (
            {
                "provider_id": "aws:///us-west-2a/i-0123456789abcdef0",
                "labels": {"sagemaker.amazonaws.com/node-health-status": "Schedulable"},
            },
            "SageMaker HyperPod, which repairs its own nodes",
        ),
    ],
)
def test_a_machine_that_is_not_ours_is_told_with_whose_it_is(
    in_pod: Doctor, changes: Json, sentence: str
) -> None:
    replaced(in_pod, **changes)
    in_pod()
    found = in_pod.says(sentence)
    assert (found.ok, found.sentence[:32]) == (False, "no machine that can be recovered")
    assert found.remedy == (
        "whoever runs it has to repair it; if that is wrong, set PROVIDER, or the kubelet's provider ID"
    )
    assert in_pod.code == 1


def test_a_node_that_its_cloud_has_not_finished_is_told(in_pod: Doctor) -> None:
    taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
    replaced(in_pod, spec={"taints": [taint]})
    in_pod()
    found = in_pod.says("is not initialised by its cloud yet")
    assert (found.ok, found.remedy) == (False, "wait for the cloud controller manager, and ask again")


def test_another_remediators_claim_and_an_exclusion_are_meant_and_only_told(in_pod: Doctor) -> None:
    labels = {"dgxc.nvidia.com/nvsentinel-state": "draining", "noderecovery.dev/exclude": "true"}
    replaced(in_pod, labels=labels)
    assert [f.area for f in in_pod()] == ["node", "node"]
    claimed = in_pod.says("NVSentinel holds")
    assert claimed.sentence.endswith("node-recovery starts nothing on it meanwhile")
    assert claimed.remedy == (
        "let only one remediator act on a node: exclude it from the other, or from this one"
    )
    excluded = in_pod.says("excluded by its label")
    assert excluded.sentence.endswith(": nothing is started on it")
    assert excluded.remedy == (
        f"if that is not meant: kubectl label node {NODE} noderecovery.dev/exclude-, or fix the policy's "
        "exclude"
    )
    assert in_pod.code == 0


def test_a_node_without_an_agent_is_told(at_laptop: Doctor) -> None:
    at_laptop.door.store.request(
        "DELETE", f"/api/v1/namespaces/{HOME}/pods/npd-1", query={"gracePeriodSeconds": "0"}
    )
    at_laptop("--node", NODE)
    found = at_laptop.says("no pod there has a container named node-recovery: nobody looks after this node")
    assert found.ok is False
    assert found.remedy == f"{PODS_THERE}; look at the DaemonSet's node affinity and tolerations"


def test_an_agent_that_does_not_run_is_told(at_laptop: Doctor) -> None:
    at_laptop.door.store.request(
        "PUT", f"/api/v1/namespaces/{HOME}/pods/npd-1/status", body=_with_phase(at_laptop, "Pending")
    )
    at_laptop("--node", NODE)
    found = at_laptop.says(f"the agent's pod {POD} is not running")
    assert (found.ok, found.remedy) == (False, f"kubectl -n {HOME} describe pod npd-1")
    assert at_laptop.says("is not known: its page is on the node's loopback").ok is None


def _with_phase(doctor: Doctor, phase: str) -> Json:
    found = doctor.door.store.request("GET", f"/api/v1/namespaces/{HOME}/pods/npd-1").body
    return {**found, "status": {**found["status"], "phase": phase}}


def test_a_caller_who_may_not_list_pods_cannot_find_the_agent(at_laptop: Doctor) -> None:
    at_laptop.door.answers["/api/v1/pods"] = refusal(403, "forbidden")
    at_laptop("--node", NODE)
    found = at_laptop.says("whether an agent runs there: you have no right")
    assert (found.ok, found.remedy) == (None, PODS_THERE)
    unread = at_laptop.says("is not known: its page is on the node's loopback")
    assert unread.remedy == (
        "run doctor in the agent's pod: kubectl exec ... -c node-recovery -- node-recovery doctor"
    )


def test_an_agent_that_does_not_answer_could_not_be_asked(at_laptop: Doctor) -> None:
    at_laptop.door.answers[EXPLAIN] = refusal(503, "connection refused")
    at_laptop("--node", NODE)
    found = at_laptop.says(f"the agent {POD} could not be asked")
    assert found.ok is None
    assert found.remedy == (
        "your user needs create on serviceaccounts/token and get on pods/proxy; or read its log: "
        f"kubectl -n {HOME} logs npd-1 -c node-recovery"
    )
    lists = at_laptop.says("is not known: its page")
    assert f"kubectl exec -n {HOME} npd-1 -c node-recovery -- node-recovery doctor" in lists.remedy


# ---------------------------------------------------------------- rights


OURS = [right for right in rights.RIGHTS if right.group != rights.KARPENTER]


@pytest.mark.parametrize("right", OURS, ids=lambda r: f"{r.verb} {r.kind}")
def test_each_right_is_asked_and_its_lack_told_with_what_it_is_for(
    in_pod: Doctor, right: rights.Right
) -> None:
    kind = f"{right.resource}/{right.subresource}".rstrip("/")
    in_pod.door.denied.add((right.verb, kind))
    (found,) = in_pod()
    assert found.area == "rights"
    assert found.ok is not right.vital
    assert f"it may not {right.verb} {right.kind}" in found.sentence
    assert f"{right.verb} {right.why}" in found.sentence
    assert (
        f"bind the rules of deploy/rbac to it, then check: kubectl auth can-i {right.verb} {right.kind}"
        in (found.remedy)
    )
    assert in_pod.code == int(right.vital)


OPTIONS = """drain: {pods: [{match: {}, mode: wait, within: 5m, annotate: {a: b}}]}
rules:
  - {name: all, match: {type: NeuronHealth}, remedy: [{do: cordon}], validate: {cronJob: node-validation}}
"""


@pytest.mark.parametrize(
    ("denied", "kind", "option", "ok"),
    [
        (("patch", "pods"), "pods", "checkpoint", True),
        (("get", "cronjobs"), "cronjobs.batch", "validation", False),
        (("create", "jobs"), "jobs.batch", "validation", False),
    ],
)
def test_what_the_policy_asks_for_beside_is_asked_for_and_granted_by_its_option(
    in_pod: Doctor, tmp_path: Path, denied: tuple[str, str], kind: str, option: str, ok: bool
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n{OPTIONS}")
    in_pod.door.denied.add(denied)
    in_pod()
    assert not [f for f in in_pod.findings if "node-validation" in f.sentence or "annotate" in f.sentence]
    in_pod.environ["POLICY_FILE"] = str(file)
    in_pod()
    found = in_pod.says(f"it may not {denied[0]} {kind}")
    assert found.ok is ok
    assert f"bind the rules of deploy/options/{option} to it" in found.remedy


BEYOND = {
    (r.verb, f"{r.resource}/{r.subresource}".rstrip("/"))
    for r in rights.CONTROLLERS
    if (r.resource, r.verb) not in rights.SEEN_BY_CONTROLLERS
}
"""What nobody is granted who only observes."""


def test_observe_only_rights_are_enough_while_recovery_is_off(in_pod: Doctor) -> None:
    in_pod.environ["ENABLE_RECOVERY"] = "false"
    in_pod.door.denied |= BEYOND
    in_pod()
    assert in_pod.says("rights to observe and to report, and none to recover").ok
    assert not [f for f in in_pod.findings if f.area == "rights" and not f.ok]
    in_pod.door.denied.add(("get", "nodes"))
    in_pod()
    assert in_pod.says("it may not get nodes").ok is False


def test_observe_only_rights_are_told_as_missing_once_recovery_is_on(in_pod: Doctor) -> None:
    in_pod.environ["ENABLE_RECOVERY"] = "true"
    in_pod.door.denied |= BEYOND
    in_pod()
    assert in_pod.says("it may not patch nodes").ok is False


def test_from_a_laptop_observe_only_rights_are_seen_for_what_they_are(at_laptop: Doctor) -> None:
    at_laptop.door.denied |= BEYOND
    at_laptop("--node", NODE)
    assert at_laptop.says("rights to observe and to report, and none to recover").remedy
    assert not [f for f in at_laptop.findings if "it may not" in f.sentence]


KARPENTERS = {
    "provider_id": "aws:///us-west-2a/i-0123456789abcdef0",
    "labels": {"karpenter.sh/nodepool": "trn"},
}


def test_karpenters_rights_are_asked_for_karpenters_machines(
    in_pod: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.aws.asg.AwsProvider.examine", lambda *_, **__: [])
    replaced(in_pod, **KARPENTERS)
    in_pod.door.denied.add(("delete", "nodeclaims"))
    in_pod()
    assert in_pod.says("it may not delete nodeclaims.karpenter.sh").ok is False


def test_whether_karpenters_rights_are_needed_is_not_known_without_a_node(at_laptop: Doctor) -> None:
    at_laptop.door.answers["/serviceaccounts/agent"] = Response(200, {}, {})
    at_laptop.door.denied.add(("delete", "nodeclaims"))
    at_laptop("--service-account", f"{HOME}/agent")
    assert at_laptop.says("it may not delete nodeclaims.karpenter.sh").ok is None
    assert at_laptop.code == 0


def test_in_the_pod_it_asks_for_itself_in_its_own_namespace(in_pod: Doctor) -> None:
    in_pod()
    assert not [spec for spec in in_pod.door.asked if "user" in spec]
    leases = [s["resourceAttributes"] for s in in_pod.door.asked if "lease" in str(s)]
    assert {attributes["namespace"] for attributes in leases} == {HOME}
    events = [s["resourceAttributes"] for s in in_pod.door.asked if "event" in str(s)]
    assert {attributes["namespace"] for attributes in events} == {"default"}


def test_in_the_pod_it_asks_whether_it_may_give_the_detector_a_token(in_pod: Doctor) -> None:
    in_pod()
    assert "serviceaccounts" not in str(in_pod.door.asked), "its detector has none of it"
    in_pod.environ |= {"NPD_ACCOUNT": "node-recovery-npd", "NPD_TOKEN_DIR": "/run/npd"}
    in_pod()
    assert "no admission policy limits this account for node-problem-detector's tokens" in str(
        in_pod.findings
    )
    in_pod.door.policies |= {"serviceaccounts"}
    in_pod()
    assert "to its Node, records, the gate, Leases, evictions, node-problem-detector's tokens" in str(
        in_pod.findings
    )
    *_, asked = [s["resourceAttributes"] for s in in_pod.door.asked if "serviceaccounts" in str(s)]
    assert (asked["name"], asked["namespace"]) == ("node-recovery-npd", HOME)
    assert in_pod.says("serviceaccounts/token").ok is True
    in_pod.door.denied.add(("create", "serviceaccounts/token"))
    in_pod()
    found = in_pod.says("serviceaccounts/token")
    assert (in_pod.code, found.ok) == (0, True), "the node is recovered without its conditions"
    assert found.sentence == (
        f"it may not create serviceaccounts/token in namespace {HOME}, which it needs: create to give"
        " node-problem-detector a token of its own account (NPD_ACCOUNT)"
    )
    assert found.remedy.startswith(
        "bind the rules of deploy/npd-account to it, then check: kubectl auth can-i"
    )
    assert "create serviceaccounts/node-recovery-npd --subresource=token -n" in found.remedy


def test_from_a_laptop_it_asks_for_the_agents_account_and_its_groups(at_laptop: Doctor) -> None:
    at_laptop("--node", NODE)
    spec = at_laptop.door.asked[0]
    assert spec["user"] == f"system:serviceaccount:{HOME}:agent"
    assert set(spec["groups"]) == {
        "system:serviceaccounts",
        f"system:serviceaccounts:{HOME}",
        "system:authenticated",
    }


def test_an_account_that_is_not_there_is_told_once(at_laptop: Doctor) -> None:
    at_laptop("--node", NODE, "--service-account", "elsewhere/nobody")
    found = at_laptop.says("there is no service account elsewhere/nobody, so nobody's rights were asked for")
    assert found.ok is False
    assert found.remedy == (
        "name a node that has an agent (--node NODE), "
        "or the account itself (--service-account NAMESPACE/NAME)"
    )
    assert len([f for f in at_laptop.findings if f.area == "rights"]) == 1


def test_an_account_that_was_only_guessed_proves_nothing(at_laptop: Doctor) -> None:
    at_laptop()
    guessed = at_laptop.says(
        f"no agent's pod was looked at, and there is no account {HOME}/node-problem-detector"
    )
    assert guessed.ok is None
    assert "deploy/eks-neuron" not in guessed.remedy  # any other installation may be there


def test_who_may_not_look_at_accounts_asks_for_rights_all_the_same(at_laptop: Doctor) -> None:
    at_laptop.door.answers["/serviceaccounts/nobody"] = refusal(403, "forbidden")
    at_laptop("--node", NODE, "--service-account", "elsewhere/nobody")
    assert at_laptop.says("whether there is a service account elsewhere/nobody").ok is None
    assert at_laptop.says("it may list pods").ok


def test_who_may_not_ask_for_anothers_rights_gets_the_command_for_who_may(at_laptop: Doctor) -> None:
    at_laptop.door.answers["/subjectaccessreviews"] = refusal(403, "forbidden")
    at_laptop("--node", NODE)
    found = at_laptop.says("could not be asked")
    assert found.ok is None
    account = f"system:serviceaccount:{HOME}:agent"
    assert found.sentence == f"the rights of {account} could not be asked: you have no right to ask (403)"
    assert found.remedy == f"as an administrator: kubectl auth can-i --list --as={account}"
    assert at_laptop.code == 0


@pytest.mark.parametrize("wrong", ["nobody", "/nobody", "a/", "a/b/c"])
def test_a_service_account_is_named_with_its_namespace(wrong: str) -> None:
    result = CliRunner().invoke(cli.group, ["doctor", "--service-account", wrong])
    assert result.exit_code == 2
    assert f"found '{wrong}', expected NAMESPACE/NAME" in result.output


# ---------------------------------------------------------------- the detector


def test_a_detector_that_does_not_listen_is_told(in_pod: Doctor) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        in_pod.environ["NPD_METRICS_URL"] = f"http://127.0.0.1:{unused.getsockname()[1]}/metrics"
        in_pod()
    found = in_pod.says("node-problem-detector does not listen there")
    assert found.ok is False
    assert found.remedy == (
        "is node-problem-detector running in this pod, and do its --prometheus-address and --prometheus-port "
        "agree with NPD_METRICS_URL?"
    )


def test_a_page_of_another_node_is_refused(in_pod: Doctor) -> None:
    in_pod.environ["NPD_METRICS_URL"] = "http://10.9.9.9/metrics"
    in_pod()
    found = in_pod.says("leads to 10.9.9.9, which is neither loopback")
    assert found.ok is False
    assert found.remedy == "each sidecar reads the page of its own node: http://127.0.0.1:20257/metrics"


def test_a_page_that_is_not_a_detectors_is_told(in_pod: Doctor, detector: Callable[[str], str]) -> None:
    detector("up 1\n")
    in_pod()
    found = in_pod.says("this page is not node-problem-detector's")
    assert found.ok is False
    assert found.remedy == f"look at it: curl -s {in_pod.environ['NPD_METRICS_URL']} | grep ^problem_"


def test_a_page_with_a_broken_line_is_used_for_the_rest(
    in_pod: Doctor, detector: Callable[[str], str]
) -> None:
    page = (PAGES / "neuron-dma-error" / "00-healthy.prom").read_text()
    detector(f'{page}problem_gauge{{reason="R",type="T"}} NaN\n')
    in_pod()
    found = in_pod.says("part of it is unknown: the gauge of R (T)")
    assert (found.ok, found.remedy) == (
        True,
        f"curl -s {in_pod.environ['NPD_METRICS_URL']} | grep ^problem_",
    )
    assert in_pod.says("can report").ok


def test_a_page_given_by_hand_is_read_from_a_laptop_too(at_laptop: Doctor, in_pod: Doctor) -> None:
    """As when its port is forwarded."""
    url = in_pod.environ["NPD_METRICS_URL"]
    at_laptop.environ = {"KUBECONFIG": "/somewhere", "NPD_METRICS_URL": url}
    assert at_laptop("--node", NODE) == []
    assert at_laptop.says("is node-problem-detector's page").sentence.startswith(url)


def test_a_rule_with_reason_and_type_swapped_is_told_with_what_to_write(
    in_pod: Doctor, tmp_path: Path
) -> None:
    in_pod.environ["POLICY_FILE"] = policy_of(
        tmp_path, f"  - {{name: dma, match: {{type: {DMA}}}, remedy: [{{do: cordon}}]}}\n"
    )
    in_pod()
    found = in_pod.says("rule dma can never match here")
    assert found.ok is False
    assert found.remedy == f"write match: {{type: NeuronHealth, reason: {DMA}}}"
    assert in_pod.says("nothing would ever be recovered").ok is False


def test_a_detector_that_looks_for_nothing_of_the_policy_is_told(
    in_pod: Doctor, detector: Callable[[str], str]
) -> None:
    detector((PAGES / "gpu-count-plugin" / "01-good.prom").read_text())
    in_pod()
    found = in_pod.says(
        "no rule that does more than notify matches anything that node-problem-detector lists"
    )
    assert found.sentence.endswith("so nothing would ever be recovered")
    assert found.remedy == "write a rule for what it lists, or have it look for what the rules are about"
    assert found.ok is False
    unseen = in_pod.says("does not look for NeuronHasError_DMA_ERROR").remedy
    assert unseen.startswith("add it to the detector's configuration, if this node can have it (listed: ")
    assert "GpuCountGood" not in in_pod.out  # a healthy reason is no fault


def test_what_is_in_no_rule_is_listed(in_pod: Doctor, detector: Callable[[str], str]) -> None:
    page = (PAGES / "neuron-dma-error" / "00-healthy.prom").read_text()
    more = "".join(
        f'problem_gauge{{reason="Reason{i}",type="Own"}} 0\nproblem_counter{{reason="Reason{i}"}} 0\n'
        for i in range(9)
    )
    detector(f'{page}{more}problem_counter{{reason="OwnEvent"}} 0\n')
    in_pod()
    rest = in_pod.says("in no rule, so only reported").sentence
    assert rest.split(": ")[1].startswith("OwnEvent, Reason0 (Own), ")
    assert rest.endswith(" and 2 more")


def test_a_heartbeat_that_stopped_is_worth_a_word(in_pod: Doctor) -> None:
    replaced(in_pod, conditions=[condition(), beat(minutes_ago=40)])
    (found,) = in_pod()
    assert found.sentence.endswith(
        "40 min ago, though it does so every 5 min: it may not reach the API server"
    )
    assert found.remedy == ("its page is what counts here; kubectl logs of node-problem-detector says why")
    assert in_pod.code == 0


def test_conditions_that_nobody_keeps_on_the_node_are_no_matter(in_pod: Doctor) -> None:
    replaced(in_pod, conditions=[condition()])
    assert in_pod() == []


# ---------------------------------------------------------------- the Node's conditions


def hardware(minutes_ago: float = 1) -> Json:
    return beat(minutes_ago) | {"type": "AcceleratedHardwareReady", "reason": "NvidiaXID79Error"}


def only_conditions(doctor: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"{HEAD}sources: [conditions]\nrules: [{{name: a, match: {{}}}}]\n")
    doctor.environ["POLICY_FILE"] = str(file)


def test_the_nodes_conditions_are_named_with_what_is_never_taken_back(in_pod: Doctor) -> None:
    replaced(in_pod, conditions=[condition(), beat(), hardware(minutes_ago=2)])
    assert in_pod() == []
    assert in_pod.says("to go by").sentence == (
        f"{NODE} has 2 conditions to go by: AcceleratedHardwareReady, NeuronHealth; "
        "the newest was renewed 60 s ago"
    )
    ends = "never taken back by its writer; another boot or machine ends it"
    assert in_pod.says("never taken back").sentence == f"AcceleratedHardwareReady, NeuronHealth: {ends}"


def test_a_bad_condition_that_nobody_renews_is_worth_a_word(in_pod: Doctor) -> None:
    replaced(in_pod, conditions=[condition(), beat(), hardware(minutes_ago=40)])
    (found,) = in_pod()
    assert found.sentence == (
        "AcceleratedHardwareReady is False, but was last renewed 40 min ago: it counts as unknown"
    )
    assert found.remedy == "is its writer still running? after 15 min without a renewal it is not used"


def test_without_a_condition_to_go_by_and_no_page_nothing_would_be_recovered(
    in_pod: Doctor, tmp_path: Path
) -> None:
    only_conditions(in_pod, tmp_path)
    replaced(in_pod, conditions=[condition()])
    (found,) = in_pod()
    assert found.sentence == f"{NODE} has no condition about its hardware"
    assert found.remedy.startswith("nothing would ever be recovered: add npd to the policy's sources, or ")
    assert in_pod.code == 1
    assert "detector" not in {f.area for f in in_pod.findings}


STUCK = "is the agent stuck? look at its /healthz and its log"
ASK_IN_POD = f"ask in its pod: kubectl exec -n {HOME} npd-1 -c node-recovery -- node-recovery doctor"


@pytest.mark.parametrize(
    ("changes", "ok", "sentence"),
    [
        ({"unknown": {"*": "the page cannot be read: refused"}}, False, "the page cannot be read: refused"),
        ({"at": "2020-01-01T00:00:00Z"}, False, "the agent last looked at node-problem-detector"),
        ({"at": "yesterday"}, False, "the agent's last look at the detector has no time ('yesterday')"),
        ({"unknown": {"T": "T is unknown"}}, True, "part of it is unknown: T is unknown"),
        ({"source": "other"}, None, "is not known: its page is on the node's loopback"),
    ],
)
def test_what_the_agent_says_of_its_detector_is_passed_on(
    at_laptop: Doctor, changes: Json, ok: bool | None, sentence: str
) -> None:
    at_laptop.door.answers[EXPLAIN] = Response(200, {}, explained(**changes))
    at_laptop("--node", NODE)
    found = at_laptop.says(sentence)
    assert found.ok is ok
    assert found.remedy == (STUCK if "at" in changes else ASK_IN_POD)


@pytest.mark.parametrize("answer", [[], {}, {"readings": None}, {"readings": ["x"]}, {"readings": [{}]}])
def test_an_agent_of_another_version_may_answer_anything(at_laptop: Doctor, answer: Any) -> None:
    at_laptop.door.answers[EXPLAIN] = Response(200, {}, answer)
    at_laptop("--node", NODE)
    assert at_laptop.says("is not known: its page is on the node's loopback").ok is None


# ---------------------------------------------------------------- providers, and time


def test_a_provider_that_cannot_examine_itself_is_a_question(
    in_pod: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "providers.baremetal.base.BareMetalProvider.permissions", {"poll": frozenset({"bmc:Read"})}
    )
    in_pod()
    found = in_pod.says("provider baremetal cannot say what it lacks")
    assert (found.ok, found.remedy) == (None, "compare what it may do with bmc:Read")


def test_a_provider_that_was_named_is_asked_without_a_node(
    at_laptop: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Any, ...]] = []

    def examine(_: Any, machine: Any, steps: Any, own: bool) -> list[Finding]:
        seen.append((machine, sorted(steps), own))
        return [Finding("aws", False, "it lacks something", "do something")]

    monkeypatch.setattr("providers.aws.asg.AwsProvider.examine", examine)
    at_laptop.environ["PROVIDER"] = "aws"
    at_laptop("--service-account", f"{HOME}/agent")
    assert at_laptop.says("it lacks something").ok is False
    assert seen == [(None, ["replace"], False)]


def test_with_everything_out_of_reach_it_still_ends_soon(
    in_pod: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that accepts and says nothing: the slowest there is."""
    hasty = functools.partial(PageReader, deadline=0.1)
    monkeypatch.setattr("recovery.console.doctor.detector.PageReader", hasty)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        in_pod.environ["NPD_METRICS_URL"] = f"http://127.0.0.1:{mute.getsockname()[1]}/metrics"
        in_pod.door.shut = True
        began = time.monotonic()
        in_pod()
    assert time.monotonic() - began < 5
    assert in_pod.code == 1


@pytest.mark.slow(0.6)
def test_the_agent_carries_nothing_of_doctor() -> None:
    """It runs on every node, and its memory is counted."""
    code = "import sys, recovery.agent.program, providers.aws; print(*sys.modules)"
    loaded = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert "recovery.agent.program" in loaded
    ours = (
        "recovery.console.doctor",
        "recovery.kube.rights",
        "providers.aws.examine",
        "providers.aws.simulate",
    )
    assert [name for name in loaded if name.startswith(ours)] == []


# ---------------------------------------------------------------- the concluder


def instead(store: KubernetesStore, *pods: Json) -> None:
    """These in the place of the concluder that runs where it should."""
    now = {"gracePeriodSeconds": 0}
    store.request("DELETE", f"/api/v1/namespaces/{APART}/pods/c-1", body=now)
    store.load(*pods)


def test_a_concluder_on_a_node_without_an_agent_is_as_it_should_be(in_pod: Doctor) -> None:
    assert [f for f in in_pod() if f.area == "concluder"] == []
    assert in_pod.says("runs on infra-1, where no agent does").ok


def test_a_concluder_on_a_node_that_it_judges_is_worth_a_warning(
    in_pod: Doctor, store: KubernetesStore
) -> None:
    instead(store, concluder(NODE))
    (found,) = [f for f in in_pod() if f.area == "concluder"]
    assert found.sentence.startswith(
        f"the concluder {APART}/c-1 runs on {NODE}, which it judges (the agent {POD}"
    )
    assert "concluder.affinity" in found.remedy
    assert in_pod.code == 0, "recovery works"


def test_a_concluder_that_no_node_takes_is_told_with_the_schedulers_reason(
    in_pod: Doctor, store: KubernetesStore
) -> None:
    why = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector"
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    instead(store, concluder("", phase="Pending", conditions=[waits]))
    (found,) = [f for f in in_pod() if f.area == "concluder"]
    assert found.sentence == f"the concluder {APART}/c-1 is Pending: {why}"
    assert "if there are no others" in found.remedy


def test_a_concluder_that_does_not_run_is_told(in_pod: Doctor, store: KubernetesStore) -> None:
    instead(store, concluder(phase="Failed"))
    (found,) = [f for f in in_pod() if f.area == "concluder"]
    assert found.remedy == f"kubectl -n {APART} describe pod c-1"


def test_that_there_is_no_concluder_is_worth_a_word(in_pod: Doctor, store: KubernetesStore) -> None:
    instead(store)
    (found,) = [f for f in in_pod() if f.area == "concluder"]
    assert found.sentence.startswith("no concluder runs: ")
    assert in_pod.code == 0


def test_who_may_not_list_pods_is_not_told_that_there_is_none(at_laptop: Doctor) -> None:
    at_laptop.door.answers["/api/v1/pods"] = refusal(403, "pods is forbidden")
    (found,) = [f for f in at_laptop() if f.area == "concluder"]
    assert (found.ok, found.sentence) == (None, "whether a concluder runs: you have no right to ask (403)")


def test_a_concluders_own_pod_asks_for_its_own_rights_and_not_for_itself(in_pod: Doctor) -> None:
    del in_pod.environ["NODE_NAME"]
    in_pod.monkeypatch.delenv("NODE_NAME", raising=False)
    in_pod.environ |= {"RECOVERY_MODE": "concluder", "POD_NAMESPACE": APART, "AGENTS_NAMESPACE": HOME}
    found = in_pod()
    assert [f for f in found if f.area == "concluder"] == []
    asked = {(x["verb"], x["resource"], x["subresource"]) for x in wanted(in_pod)}
    assert not {("create", "pods", "eviction"), ("patch", "nodes", "")} & asked
    leases = [x["namespace"] for x in wanted(in_pod) if x["resource"] == "leases"]
    assert set(leases) == {HOME}, "those of the records are the agents'"


def wanted(doctor: Doctor) -> list[Json]:
    return [spec["resourceAttributes"] for spec in doctor.door.asked]


# ---------------------------------------------------------------- each source of the policy

SOURCES = "sources: [npd, conditions, autopilot, aznhc, konduktor, dcgm]\n"


def with_sources(doctor: Doctor, tmp_path: Path) -> None:
    rule = "rules: [{name: r, match: {type: NeuronHealth}, remedy: [{do: drain, within: 10m}]}]\n"
    policy = tmp_path / "policy.yaml"
    policy.write_text(HEAD + SOURCES + rule)
    doctor.environ["POLICY_FILE"] = str(policy)


def lines(doctor: Doctor) -> dict[str, Finding]:
    found = [f for f in doctor.findings if f.area == "sources"]
    return {f.sentence.partition(":")[0]: f for f in found}


def test_the_controllers_own_source_has_its_line_and_ends_no_other(in_pod: Doctor, tmp_path: Path) -> None:
    with_sources(in_pod, tmp_path)
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        policy.read_text().replace(SOURCES, "sources: [{prometheus: {rows: [npd]}}, konduktor]\n")
    )
    in_pod.environ |= {"RECOVERY_MODE": "fleet", "PROMETHEUS_URL": "http://prometheus.example:9090"}
    del in_pod.environ["NODE_NAME"]
    in_pod("--node", NODE)
    found = lines(in_pod)
    assert list(found) == ["prometheus", "konduktor"]
    said = found["prometheus"].sentence
    assert said.endswith("; it never takes back an alert, or a row whose latch is boot or proof")


def test_there_is_a_line_for_each_source_with_what_it_never_takes_back(
    in_pod: Doctor, tmp_path: Path
) -> None:
    with_sources(in_pod, tmp_path)
    in_pod()
    found = lines(in_pod)
    assert list(found) == ["npd", "conditions", "autopilot", "aznhc", "konduktor", "dcgm"]
    assert all("; it never takes back " in f.sentence for f in found.values())
    assert found["npd"].sentence.startswith("npd: read just now, states no fault; ")
    assert found["conditions"].sentence.startswith("conditions: read just now, states no fault; ")
    assert found["aznhc"].sentence == "aznhc: read just now, states no fault; it never takes back anything"
    assert found["dcgm"].sentence.startswith(
        "dcgm: there is no such pod on the node; it never takes back XIDs"
    )
    assert found["dcgm"].ok is True
    assert found["dcgm"].remedy.startswith("if there should be one: ")
    none = "autopilot: read just now by its marks, no faults; there is no such pod on the node; "
    assert found["autopilot"].sentence.startswith(none)


def exporter(doctor: Doctor, ip: str) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "u", "controller": True}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}}
    labels = {"app": "nvidia-dcgm-exporter"}
    pod = pod_object("dcgm-1", on=NODE, namespace="gpu-operator", labels=labels)
    pod["metadata"]["ownerReferences"] = [owner]
    doctor.door.store.load(namespace, {**pod, "status": {"phase": "Running", "podIP": ip}})


def test_a_pod_that_is_there_and_does_not_answer_is_missing(in_pod: Doctor, tmp_path: Path) -> None:
    with_sources(in_pod, tmp_path)
    exporter(in_pod, "192.0.2.1")  # reserved for documentation: nobody answers
    in_pod()
    found = lines(in_pod)["dcgm"]
    assert found.ok is False
    assert "not known: the page of gpu-operator/dcgm-1 cannot be read: " in found.sentence
    assert in_pod.code == 1


def test_from_a_laptop_each_source_is_as_the_agent_has_read_it(at_laptop: Doctor, tmp_path: Path) -> None:
    with_sources(at_laptop, tmp_path)
    at = (FakeClock().now() - timedelta(seconds=20)).isoformat()
    fault = {
        "type": "GpuXid",
        "reason": "GpuXid79",
        "since": (FakeClock().now() - timedelta(minutes=4)).isoformat(),
    }
    answer = explained()
    answer["readings"] += [
        {"source": "dcgm", "at": at, "problems": [fault], "unknown": {}, "listed": []},
        {"source": "konduktor", "at": at, "problems": [], "unknown": {"Konduktor": "odd"}, "listed": []},
        {"source": "autopilot", "at": at, "problems": [], "unknown": {}, "listed": [],
         "silent": {"AutopilotPCIe": "there is no such pod on the node"}},
    ]  # fmt: skip
    at_laptop.door.answers[EXPLAIN] = Response(200, {}, answer)
    at_laptop("--node", NODE)
    found = lines(at_laptop)
    assert found["dcgm"].sentence.startswith("dcgm: read 20 s ago, states 1 fault, the newest 4 min ago; ")
    assert (found["konduktor"].ok, "not known: odd" in found["konduktor"].sentence) == (False, True)
    assert (found["autopilot"].ok, found["autopilot"].remedy != "") == (True, True)
    assert found["aznhc"].sentence.startswith("aznhc: read just now")


# ---------------------------------------------------------------- in the controller's pod


FLEET = "node-recovery-fleet"


def lease(holder: str = "fleet/pod-a", seconds_ago: float = 3) -> Json:
    at = FakeClock().now() - timedelta(seconds=seconds_ago)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": FLEET, "namespace": FLEET},
        "spec": {"holderIdentity": holder, "renewTime": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"},
    }


@pytest.fixture
def in_controller(at_laptop: Doctor, store: KubernetesStore) -> Doctor:
    """A replica of the controller in its pod, which may do what it needs; another one leads."""
    store.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLEET}})
    store.load(lease())
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "RECOVERY_MODE": "fleet", "POD_NAMESPACE": FLEET}
    at_laptop.environ = {**environ, "ENABLE_RECOVERY": "true"}
    at_laptop.monkeypatch.delenv("KUBECONFIG", raising=False)
    return at_laptop


def test_in_a_controllers_pod_doctor_asks_for_the_controllers_rights_and_says_who_leads(
    in_controller: Doctor,
) -> None:
    in_controller()
    said = in_controller.says("leads")
    assert said.ok
    assert said.sentence == f"fleet/pod-a leads, and renewed the Lease {FLEET}/{FLEET} 3 s ago"
    asked = {
        (a["namespace"], a["verb"], a["resource"])
        for a in (spec["resourceAttributes"] for spec in in_controller.door.asked)
    }
    assert {(FLEET, "update", "leases"), ("", "watch", "nodes")} <= asked
    assert ("", "create", "tokenreviews") in asked
    assert not any(
        "no concluder" in f.sentence or "stolen token" in f.sentence for f in in_controller.findings
    )


@pytest.mark.parametrize(
    ("there", "sentence"),
    [
        (lease(seconds_ago=60), "of fleet/pod-a was renewed 60 s ago"),
        (lease(holder=""), "has no holder"),
    ],
)
def test_a_lease_that_nobody_renews_is_no_leader(
    in_controller: Doctor, store: KubernetesStore, there: Json, sentence: str
) -> None:
    assert store.request("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{FLEET}/leases/{FLEET}").ok
    store.load(there)
    in_controller()
    said = in_controller.says("nobody leads")
    assert (said.ok, sentence in said.sentence, in_controller.code) == (False, True, 1)


def test_a_controller_has_to_see_whose_lease_is_renewed(in_controller: Doctor) -> None:
    in_controller.door.denied = {("get", "leases")}
    in_controller()
    why = "to see whether a silent kubelet, or a sidecar, still renews its Lease"
    (said,) = [f for f in in_controller.findings if why in f.sentence]
    assert "deploy/fleet" in said.remedy


def test_of_a_dead_node_the_controller_says_whether_a_rule_is_about_it(
    in_controller: Doctor, store: KubernetesStore
) -> None:
    body = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    kind = "application/merge-patch+json"
    assert store.request("PATCH", f"/api/v1/nodes/{NODE}/status", body=body, content_type=kind).ok
    in_controller("--node", NODE)
    assert in_controller.says("no rule matches the type Ready").ok is False


def test_a_prometheus_server_that_does_not_answer_is_said(in_controller: Doctor, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(HEAD + "sources: [{prometheus: {rows: [dcgm]}}]\nrules: []\n")
    in_controller.environ |= {"POLICY_FILE": str(policy), "PROMETHEUS_URL": "http://127.0.0.1:9"}
    in_controller("--node", NODE)
    assert in_controller.says("the Prometheus server does not answer").ok is False
    assert in_controller.says("prometheus: what it says is not known").remedy == (
        "its faults stand on the records: node-recovery status"
    )


class Asked(AnsweringServer):
    """A Prometheus server that knows ``up`` of two nodes, and ``total`` of none."""

    def respond(self, path: str, asked: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, bytes]:
        query = asked["query"]
        if query == "up ! 1":
            return 400, b'{"status": "error", "error": "parse error: unexpected character"}'
        known = {"up": [{"node": "a"}, {"instance": "10.0.0.1:9400"}], "total": [{}]}
        series = [{"metric": labels, "value": [1.0, "1"]} for labels in known.get(query, [])]
        data = {"resultType": "vector", "result": series}
        return 200, json.dumps({"status": "success", "data": data}).encode()


def test_each_row_of_the_policy_is_asked_of_the_prometheus_server(
    in_controller: Doctor, tmp_path: Path
) -> None:
    """A server that answers may know nothing of what a row asks, or not understand it."""
    row = "{{name: {0}, query: '{1}', node: node, bad: \"{2}\", type: T, reason: R}}"
    asked = {"well": "up", "torn": "up ! 1", "misspelt": "upp", "nobodys": "total", "bad-alone": "upp > 0"}
    rows = [row.format(name, query, "> 0") for name, query in asked.items()]
    rows.append(rows[0].replace("name: well", "name: untyped").replace("type: T", "type: {label: kind}"))
    rows.append(
        rows[0].replace("name: well", "name: unreasoned").replace("reason: R", "reason: {label: why}")
    )
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"{HEAD}sources: [{{prometheus: {{rows: [alerts, {', '.join(rows)}]}}}}]\nrules: []\n")
    server = Asked()
    with answering(server):
        in_controller.environ |= {"POLICY_FILE": str(policy), "PROMETHEUS_URL": server.url}
        in_controller("--node", NODE)
    found = {f.sentence: f.ok for f in in_controller.findings if f.sentence.startswith("row ")}
    assert found == {
        "row alerts: series of 0 nodes or addresses": True,
        "row well: series of 2 nodes or addresses": True,
        "row torn: the server answers 400: parse error: unexpected character": False,
        "row misspelt: its query returns no series": False,
        "row nobodys: none of its 1 series has the label node, nor instance": False,
        "row bad-alone: series of 0 nodes or addresses": True,
        "row untyped: none of its 2 series has the label kind": False,
        "row unreasoned: none of its 2 series has the label why": False,
    }


@pytest.mark.parametrize("clusters", [["prod"], ["prod", "dev"], [""], []])
def test_rows_that_ask_for_the_nodes_of_several_clusters_are_told(
    in_controller: Doctor, tmp_path: Path, clusters: list[str]
) -> None:
    """A Node of another cluster may have the name of one of this, and its fault would take that one out."""
    own = "{name: own, query: 'up{cluster=\"prod\"}', node: node, bad: '> 0', type: T, reason: R}"
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"{HEAD}sources: [{{prometheus: {{rows: [npd, alerts, {own}]}}}}]\nrules: []\n")
    series = [{"metric": {"cluster": name} if name else {}, "value": [1.0, "1"]} for name in clusters]
    server = Asked()
    server.answer = (
        200,
        json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}}).encode(),
    )
    with answering(server):
        in_controller.environ |= {"POLICY_FILE": str(policy), "PROMETHEUS_URL": server.url}
        in_controller("--node", NODE)
    told = [f.sentence for f in in_controller.findings if "clusters" in f.sentence]
    several = "the server has 2 clusters (dev, prod), and these rows ask for all: npd, alerts"
    assert told == ([several] if len(clusters) > 1 else [])


def test_from_a_laptop_a_node_without_a_sidecar_is_the_controllers(
    at_laptop: Doctor, store: KubernetesStore
) -> None:
    assert store.request("DELETE", f"/api/v1/namespaces/{HOME}/pods/npd-1", body={"gracePeriodSeconds": 0}).ok
    labels = {"app.kubernetes.io/name": "node-recovery", "app.kubernetes.io/component": "fleet"}
    store.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLEET}})
    ours = [{"name": "node-recovery", "image": "i"}]
    spec = {"serviceAccountName": "gpus-fleet"}
    store.load(pod_object("c-9", on=ELSEWHERE, namespace=FLEET, labels=labels, containers=ours, spec=spec))
    at_laptop.door.answers[EXPLAIN] = Response(200, {}, {**explained(), "node": NODE})
    at_laptop("--node", NODE)
    said = at_laptop.says(
        f"the controller {FLEET}/c-9 looks after it; it says: healthy: no confirmed problem"
    )
    assert said.ok
    assert not [f for f in at_laptop.findings if "concluder" in f.sentence or f.area == "detector"]
    assert at_laptop.says("the controller's service account is").sentence.endswith(f"{FLEET}/gpus-fleet")

    at_laptop.door.answers[EXPLAIN] = refusal(404, "this replica does not lead")
    at_laptop("--node", NODE)
    nobody = at_laptop.says("no replica of the controller answers for it")
    assert (nobody.ok, "this replica does not lead" in nobody.sentence) == (None, True)


@pytest.mark.parametrize(("mode", "whose"), [("fleet", "controller"), ("sidecar", "agent")])
def test_without_a_node_the_rights_are_those_of_who_runs(
    at_laptop: Doctor, store: KubernetesStore, mode: str, whose: str
) -> None:
    labels = {"app.kubernetes.io/name": "node-recovery", "app.kubernetes.io/component": mode}
    store.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLEET}})
    ours, spec = [{"name": "node-recovery", "image": "i"}], {"serviceAccountName": "gpus"}
    store.load(pod_object("x", on=ELSEWHERE, namespace=FLEET, labels=labels, containers=ours, spec=spec))
    at_laptop()
    assert at_laptop.says(f"{mode} mode: {FLEET}/x runs").ok
    assert at_laptop.says(f"the {whose}'s service account is").sentence.endswith(f"{FLEET}/gpus")
    asked = {(x["resourceAttributes"]["resource"], x["user"]) for x in at_laptop.door.asked}
    assert {user for _, user in asked} == {f"system:serviceaccount:{FLEET}:gpus"}


def test_a_dead_node_that_the_controller_may_be_replacing_is_not_to_be_replaced_by_hand(
    at_laptop: Doctor, store: KubernetesStore
) -> None:
    assert store.request("DELETE", f"/api/v1/namespaces/{HOME}/pods/npd-1", body={"gracePeriodSeconds": 0}).ok
    body = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    kind = "application/merge-patch+json"
    assert store.request("PATCH", f"/api/v1/nodes/{NODE}/status", body=body, content_type=kind).ok
    labels = {"app.kubernetes.io/name": "node-recovery", "app.kubernetes.io/component": "fleet"}
    store.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLEET}})
    ours = [{"name": "node-recovery", "image": "i"}]
    store.load(pod_object("c-9", on=ELSEWHERE, namespace=FLEET, labels=labels, containers=ours))
    at_laptop("--node", NODE)
    said = at_laptop.says("is not Ready")
    assert f"node-recovery explain {NODE}" in said.remedy
    assert "do not replace it by hand" in said.remedy


def test_a_sidecar_that_cannot_ask_for_the_alerts_that_block_is_told(in_pod: Doctor, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(HEAD + "limits: {blockers: [{alerts: ClusterUpgrade*}]}\nrules: []\n")
    in_pod.environ |= {"POLICY_FILE": str(policy), "PROMETHEUS_URL": "http://127.0.0.1:9"}
    in_pod()
    said = in_pod.says("the Prometheus server does not answer")
    assert (said.area, said.ok) == ("blockers", False)
    assert "no recovery starts meanwhile" in said.remedy


def test_a_loki_server_that_does_not_answer_is_said(in_controller: Doctor, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(HEAD + "sources: [conditions, loki]\nrules: []\n")
    in_controller.environ |= {"POLICY_FILE": str(policy), "LOKI_URL": "http://127.0.0.1:9"}
    in_controller("--node", NODE)
    assert in_controller.says("the Loki server does not answer").ok is False


# ---------------------------------------------------------------- what in the policy limits nothing


def test_a_label_of_the_policy_that_no_node_has_is_worth_a_word(in_pod: Doctor, tmp_path: Path) -> None:
    written = tmp_path / "policy.yaml"
    head = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
    written.write_text(f"{head}limits: {{budgetPer: {{rak: 1}}}}\nrules: []\n")
    in_pod.environ["POLICY_FILE"] = str(written)
    in_pod()
    found = in_pod.says("limits.budgetPer.rak")
    assert (found.ok, found.sentence) == (
        True,
        f"{written}:3: field limits.budgetPer.rak: no node has the label rak, so it limits nothing",
    )
    assert "kubectl get nodes --show-labels" in found.remedy


REBOOTS = "rules: [{name: r, match: {type: Ready}, after: 10m, remedy: [{do: reboot, within: 30m}]}]\n"
UNIQUE = "4c4c4544-0042-3010-8054-b7c04f4e4d32"


def with_bmcs(doctor: Doctor, tmp_path: Path, *machines: str, policy: str = REBOOTS) -> None:
    """BMCs are asked by Redfish; ``machines`` are the lines of the inventory."""
    kind = "apiVersion: noderecovery.dev/v1alpha1\nkind: "
    (tmp_path / "policy.yaml").write_text(f"{kind}RecoveryPolicy\nsources: [conditions]\n{policy}")
    (tmp_path / "bmcs.yaml").write_text(f"{kind}BMCInventory\nmachines: [{', '.join(machines)}]\n")
    (tmp_path / "rack").mkdir()
    for file in ("username", "password"):
        (tmp_path / "rack" / file).write_text("x")
    doctor.environ |= {
        "PROVIDER": "baremetal",
        "BAREMETAL_POWER": "redfish",
        "BMC_INVENTORY": str(tmp_path / "bmcs.yaml"),
        "BMC_CREDENTIALS": str(tmp_path),
        "POLICY_FILE": str(tmp_path / "policy.yaml"),
    }


def bmc_of(number: int, **more: str) -> str:
    return json.dumps({**more, "address": f"https://10.0.7.{number}", "credentials": "rack"})


def test_doctor_names_the_nodes_that_the_inventory_of_bmcs_lacks_before_one_dies(
    in_controller: Doctor, store: KubernetesStore, tmp_path: Path
) -> None:
    with_bmcs(in_controller, tmp_path, bmc_of(1, systemUUID=UNIQUE, node=NODE), bmc_of(2, node="other"))
    in_controller()
    assert in_controller.says("it can reach the machines of all nodes (1)").ok
    for number in range(6):
        unique = f"4c4c4544-0042-3010-8054-00000000000{number}"
        labels = {"noderecovery.dev/exclude": "true"} if number == 5 else {}
        store.load(node_object(f"gpu-{number}", info={"systemUUID": unique}, labels=labels))
    in_controller()
    found = in_controller.says("it cannot reboot")
    assert found.sentence == (
        "it cannot reboot 5 of 6 nodes: gpu-0, gpu-1, gpu-2, gpu-3 and 1 more; of gpu-0: nothing says where "
        f"the BMC of gpu-0 is: it is not in {tmp_path}/bmcs.yaml, and the Node has no annotation "
        "noderecovery.dev/bmc-address"
    )
    assert (found.ok, in_controller.code) == (False, 1)
    in_controller.environ["FLEET_SELECTOR"] = "kubernetes.io/hostname=" + NODE
    in_controller()
    assert "it cannot reboot" not in in_controller.out


def test_where_no_rule_reboots_or_nobody_asks_bmcs_the_inventory_may_lack_any_node(
    in_controller: Doctor, tmp_path: Path
) -> None:
    drains = REBOOTS.replace("{do: reboot, within: 30m}", "{do: drain, within: 30m}")
    with_bmcs(in_controller, tmp_path, policy=drains)
    in_controller()
    assert "it cannot reboot" not in in_controller.out
    (tmp_path / "policy.yaml").write_text((tmp_path / "policy.yaml").read_text().replace("drain", "reboot"))
    in_controller()
    assert in_controller.says("it cannot reboot").sentence.startswith("it cannot reboot 1 of 1 nodes")
    in_controller.environ |= {"RECOVERY_MODE": "sidecar", "NODE_NAME": NODE}
    in_controller()
    assert "it cannot reboot" not in in_controller.out


def test_doctor_names_the_nodes_of_which_metal3_has_no_host(in_controller: Doctor, tmp_path: Path) -> None:
    with_bmcs(in_controller, tmp_path)
    in_controller.environ["BAREMETAL_POWER"] = "metal3"
    in_controller()
    found = in_controller.says("it cannot reboot 1 of 1 nodes")
    assert "BareMetalHost" in found.sentence
