"""Metal3 is asked through the Kubernetes API: the provider over the real client and HTTP, and a server that
counts, loses, delays and refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.kubernetes import (
    Asked,
    FaultyApi,
    KubernetesServer,
    KubernetesStore,
    Response,
    Watch,
    lost_answer,
    lost_request,
    refused,
    server_error,
    throttled,
)
from recovery_testkit.metal3 import baremetal_host, baremetal_host_crd
from recovery_testkit.provider_kit import ActionKit

import recovery.kube.transport as transport
from providers.baremetal import create
from providers.baremetal.metal3 import Metal3Provider, make
from providers.baremetal.metal3_host import DETACHED, HOST, PAUSED, REBOOT
from providers.baremetal.metal3_host import Host as Metal3Host
from recovery.clock import SystemClock
from recovery.errors import Ambiguous, Refused, Retry
from recovery.kube.cluster import Cluster
from recovery.kube.provider_objects import ClusterObjects
from recovery.model import Failed, Gone, Machine, NodeView, NotApplied, Reference, Running, Step, Unseen
from recovery.provider.lacking import SURE
from recovery.provider.protocol import Cancellable, NoObjects, PowerSensor, ProviderContext
from recovery.short import LONGEST_ID, MOST_WORDS

UUID = "4c4c4544-0047-4a10-8051-b7c04f484433"
TOKEN = "a1b2c3"  # noqa: S105 (an idempotency token)
AT = "/apis/metal3.io/v1alpha1/namespaces/metal3/baremetalhosts/rack-1"
BY_ID = "metal3://metal3/rack-1/workers-abc"
OURS = {"mode": "hard", "by": "node-recovery", "attempt": TOKEN}
SLOW = 0.4
Sent = tuple[str, str, Any]
Effect = Callable[[Asked, Callable[[], Response]], Response]


class Counted:
    """An API that remembers what was sent to it: method, path, body."""

    def __init__(self, api: FaultyApi) -> None:
        self.api = api
        self.sent: list[Sent] = []

    def request(self, method: str, path: str, *, body: Any = None, **more: Any) -> Response:
        self.sent.append((method, path, body))
        return self.api.request(method, path, body=body, **more)

    def watch(self, path: str, query: Mapping[str, str] | None = None, *, user_agent: str = "") -> Watch:
        return self.api.watch(path, query, user_agent=user_agent)


class Metal3World:
    """A cluster with one host of Metal3's, and the way there."""

    def __init__(
        self, store: KubernetesStore, api: Counted, provider: Metal3Provider, hurry: Callable[[], None]
    ) -> None:
        self.store, self.api, self.provider, self.hurry = store, api, provider, hurry
        self.over = threading.Event()  # nobody waits for a late answer any more

    def host(self, **fields: Any) -> None:
        """There is the host ``rack-1``, as ``baremetal_host`` makes it, in place of the one before."""
        self.store.request("DELETE", AT)
        self.store.load(baremetal_host("rack-1", **{"consumer": "workers-abc", **fields}))

    def body(self) -> dict[str, Any]:
        return dict(self.store.request("GET", AT).body)

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.body()["metadata"].get("annotations") or {})

    def annotate(self, **annotations: str | None) -> None:
        """As somebody else."""
        named = {key.replace("__", "/").replace("_", "."): value for key, value in annotations.items()}
        patch = {"metadata": {"annotations": named}}
        kind = "application/merge-patch+json"
        assert self.store.request("PATCH", AT, body=patch, content_type=kind).ok

    def status(self, **fields: Any) -> None:
        """As Metal3's controller."""
        body = self.body()
        body["status"] = {**body["status"], **fields}
        assert self.store.request("PUT", f"{AT}/status", body=body).ok

    def controller_sees_it_off(self) -> None:
        """What ``manageHostPower`` does once the power is off: the annotation goes, and it is switched on."""
        self.status(poweredOn=False)
        self.annotate(reboot_metal3_io=None)
        self.status(poweredOn=True)

    def fault(
        self, effect: Callable[[Asked, Callable[[], Response]], Response], method: str = "PATCH"
    ) -> None:
        self.api.api.fail_next(lambda asked: asked.method == method, effect)

    def calls(self) -> int:
        return len(self.api.sent)

    def mutating_calls(self) -> int:
        return sum(1 for method, _, _ in self.api.sent if method != "GET")

    def lose_answer(self) -> None:
        self.fault(lost_answer)

    def delay(self) -> None:
        def late(_: Asked, go: Callable[[], Response]) -> Response:
            answer = go()
            self.over.wait(SLOW + 1)
            return answer

        self.hurry()
        self.fault(late)

    def refuse(self, kind: str) -> None:
        self.fault(
            {"throttled": throttled(), "denied": refused(403, "Forbidden"), "broken": server_error()}[kind]
        )

    def remove_machine(self) -> None:
        assert self.store.request("DELETE", AT).ok

    def finish_action(self, action: Step) -> Sequence[str]:
        self.controller_sees_it_off()
        return ()


NODE = NodeView("metal-1", "node-uid", "1", BY_ID, system_uuid=UUID, addresses=("10.0.0.7", "metal-1"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KubernetesStore, Counted]]:
    store = KubernetesStore()
    store.load(baremetal_host_crd())
    store.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "metal3"}})
    api = Counted(FaultyApi(store))
    with KubernetesServer(store, api=api) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path_factory.mktemp("kube") / "config")))
        patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        yield store, api


class RunningClock(SystemClock):
    """A clock that can be put forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.fixture(scope="module")
def objects(served: tuple[KubernetesStore, Counted]) -> ClusterObjects:
    clock = SystemClock()
    return ClusterObjects(Cluster(transport.KubernetesTransport(clock), clock, "default"))


@pytest.fixture
def world(
    served: tuple[KubernetesStore, Counted], objects: ClusterObjects, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Metal3World]:
    store, api = served

    def hurry() -> None:
        monkeypatch.setattr(transport, "READ_TIMEOUT", SLOW)

    world = Metal3World(store, api, Metal3Provider(objects, RunningClock()), hurry)
    world.host(addresses=["10.0.0.7"])
    api.sent.clear()
    yield world
    world.over.set()
    api.api.heal()


@pytest.fixture
def provider(world: Metal3World) -> Metal3Provider:
    return world.provider


@pytest.fixture
def machine(world: Metal3World) -> Machine:
    return world.provider.identify(NODE)


class TestMetal3(ActionKit):
    actions = (Step.REBOOT,)
    rubbish = (
        "aws:///us-west-2a/i-0123456789abcdef0",
        "azure:///subscriptions/x",
        replace(NODE, system_uuid=""),
        replace(NODE, system_uuid="00000000-0000-0000-0000-000000000000"),
    )

    @pytest.fixture
    def world(self, world: Metal3World) -> Metal3World:
        return world

    @pytest.fixture
    def provider(self, world: Metal3World) -> Metal3Provider:
        return world.provider

    @pytest.fixture
    def node(self) -> NodeView:
        return NODE


def begun(world: Metal3World, machine: Machine) -> Reference:
    ready = world.provider.preflight(machine, Step.REBOOT)
    return world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)


def a_minute_later(world: Metal3World) -> None:
    assert isinstance(world.provider._clock, RunningClock)
    world.provider._clock.ahead += SURE


def reason(world: Metal3World, node: NodeView = NODE) -> str:
    """Why Metal3 is not asked."""
    with pytest.raises(Refused) as told:
        world.provider.preflight(world.provider.identify(node), Step.REBOOT)
    assert world.mutating_calls() == 0
    return told.value.reason


# ---------------------------------------------------------------- what is asked


def test_one_patch_asks_for_a_hard_reboot_of_the_very_host_that_was_looked_at(
    world: Metal3World, machine: Machine
) -> None:
    before = world.body()["metadata"]
    begun(world, machine)
    (patch,) = [body for method, path, body in world.api.sent if (method, path) == ("PATCH", AT)]
    meta = patch["metadata"]
    assert patch.keys() == {"metadata"}
    assert (meta["uid"], meta["resourceVersion"]) == (before["uid"], before["resourceVersion"])
    assert meta["annotations"].keys() == {REBOOT}
    assert json.loads(world.annotations[REBOOT]) == OURS


def test_the_host_is_never_held_off(world: Metal3World, machine: Machine) -> None:
    begun(world, machine)
    assert not [key for key in world.annotations if key.startswith(f"{REBOOT}/")]


def test_the_longest_call_ends_within_its_bound() -> None:
    assert Metal3Provider.call_timeout >= 2 * (transport.CONNECT_TIMEOUT + 10.0)


def test_a_look_that_took_too_long_is_followed_by_no_request(world: Metal3World, machine: Machine) -> None:
    class Stopped(SystemClock):
        ahead = 0.0

        def boottime(self) -> float:
            self.ahead += 20  # the process was stopped between the two
            return super().boottime() + self.ahead

    ready = world.provider.preflight(machine, Step.REBOOT)
    world.provider._clock = Stopped()
    with pytest.raises(Retry, match=r"was not sent: a look at BareMetalHost metal3/rack-1 took .* 15 s"):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.mutating_calls() == 0


def test_where_somebody_has_asked_for_it_already_nothing_is_written(
    world: Metal3World, machine: Machine
) -> None:
    world.annotate(reboot_metal3_io="")
    found = world.provider.preflight(machine, Step.REBOOT)
    assert found.adopt == "Metal3 has already been asked to reboot BareMetalHost metal3/rack-1"
    assert isinstance(world.provider.poll(machine, found.reference), Running)
    assert world.mutating_calls() == 0


@pytest.mark.parametrize("key", [PAUSED, DETACHED])
def test_an_order_to_a_host_that_metal3_leaves_alone_is_not_adopted(
    world: Metal3World, machine: Machine, key: str
) -> None:
    """Nothing would come of it: it was waited for until the deadline, and nobody was told why."""
    world.host(annotations={key: "", REBOOT: ""})
    with pytest.raises(Refused, match=f"has the annotation {key}: Metal3 leaves it alone"):
        world.provider.preflight(machine, Step.REBOOT)
    assert world.mutating_calls() == 0


def test_where_somebody_asked_for_it_after_the_look_nothing_is_written(
    world: Metal3World, machine: Machine
) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.annotate(reboot_metal3_io="")
    world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.mutating_calls() == 0
    assert world.annotations[REBOOT] == ""


def test_a_reference_is_good_for_no_other_step(world: Metal3World, machine: Machine) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    with pytest.raises(Refused, match="a person has to replace it"):
        world.provider.start(machine, Step.REPLACE, TOKEN, ready.reference)
    assert world.mutating_calls() == 0


def test_where_somebody_wrote_between_the_second_look_and_the_patch_nothing_is_asked_for(
    world: Metal3World, machine: Machine
) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)

    def overtaken(_: Asked, go: Callable[[], Response]) -> Response:
        world.status(errorCount=1)
        return go()

    world.fault(overtaken)
    with pytest.raises(Retry, match="it was changed meanwhile"):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert REBOOT not in world.annotations


def test_a_host_that_was_made_anew_under_its_name_is_not_rebooted(
    world: Metal3World, machine: Machine
) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.host(addresses=["10.0.0.7"])
    with pytest.raises(Refused, match="is another object now: nothing was asked for"):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert isinstance(world.provider.poll(machine, ready.reference), Gone)
    assert world.mutating_calls() == 0


def test_a_right_that_is_missing_is_named_with_where_it_is_granted(
    world: Metal3World, machine: Machine
) -> None:
    world.fault(refused(403, "Forbidden", "baremetalhosts is forbidden"), method="GET")
    granted = r"\(the component metal3 of deploy/baremetal or deploy/fleet grants it\)"
    with pytest.raises(Refused, match=rf"cannot be read: .* {granted}"):
        world.provider.preflight(machine, Step.REBOOT)
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.refuse("denied")
    with pytest.raises(Refused, match=r"was not annotated: .* grants it\)"):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)


def test_a_server_that_does_not_answer_is_asked_later(world: Metal3World, machine: Machine) -> None:
    world.fault(lost_request, method="GET")
    with pytest.raises(Retry):
        world.provider.preflight(machine, Step.REBOOT)


# ---------------------------------------------------------------- whether Metal3 would do it


@pytest.mark.parametrize("state", ["available", "provisioning", "deprovisioning", "", None])
def test_only_a_provisioned_host_is_rebooted(world: Metal3World, state: str | None) -> None:
    world.host(provisioning={"state": state})
    told = reason(world)
    assert f"is in the state {state or 'nothing'}; expected provisioned or externally provisioned" in told


def test_a_host_that_was_provisioned_by_something_else_is_rebooted_too(
    world: Metal3World, machine: Machine
) -> None:
    world.host(provisioning={"state": "externally provisioned"})
    begun(world, machine)
    assert REBOOT in world.annotations


def test_a_host_that_is_to_be_off_is_left_off(world: Metal3World) -> None:
    world.host(online=False)
    assert reason(world) == "BareMetalHost metal3/rack-1 is to be off (spec.online)"


def test_a_host_that_is_being_deleted_is_left_alone(world: Metal3World) -> None:
    body = world.body()
    body["metadata"]["finalizers"] = ["baremetalhost.metal3.io"]
    assert world.store.request("PUT", AT, body=body).ok
    world.remove_machine()
    assert reason(world) == "BareMetalHost metal3/rack-1 is being deleted"
    body = world.body()
    body["metadata"]["finalizers"] = []
    assert world.store.request("PUT", AT, body=body).ok


@pytest.mark.parametrize("key", [PAUSED, DETACHED])
def test_a_host_that_metal3_leaves_alone_is_not_waited_for(world: Metal3World, key: str) -> None:
    world.host(annotations={key: ""})
    assert reason(world) == f"BareMetalHost metal3/rack-1 has the annotation {key}: Metal3 leaves it alone"


def test_a_host_that_metal3_cannot_manage_is_refused_in_its_words(world: Metal3World) -> None:
    world.host(operationalStatus="error", errorMessage="BMC  did not\nanswer " + "x" * 900)
    with pytest.raises(Retry, match="Metal3 goes on trying"):
        world.provider.preflight(world.provider.identify(NODE), Step.REBOOT)
    a_minute_later(world)
    told = reason(world)
    assert told.startswith("Metal3 cannot manage BareMetalHost metal3/rack-1: BMC did not answer xxx")
    assert len(told) < 400


def test_a_host_that_is_kept_off_by_somebody_is_waited_for(world: Metal3World, machine: Machine) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.annotate(reboot_metal3_io__capm3="")
    kept = "somebody keeps the power of BareMetalHost metal3/rack-1 off (annotation reboot.metal3.io/capm3)"
    assert world.provider.preflight(machine, Step.REBOOT).not_yet == kept
    with pytest.raises(Retry, match="Metal3 was not asked: somebody keeps the power"):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.mutating_calls() == 0


def test_a_host_in_servicing_is_waited_for(world: Metal3World, machine: Machine) -> None:
    world.status(operationalStatus="servicing")
    assert world.provider.preflight(machine, Step.REBOOT).not_yet.startswith("Metal3 is servicing")


def test_a_host_that_became_unfit_after_the_look_is_not_rebooted(
    world: Metal3World, machine: Machine
) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.status(provisioning={"state": "deprovisioning"})
    with pytest.raises(Refused, match="is in the state deprovisioning"):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.mutating_calls() == 0


def test_whoever_else_may_act_on_the_machine_is_noted(world: Metal3World, machine: Machine) -> None:
    assert world.provider.preflight(machine, Step.REBOOT).notes == (
        "Metal3Machine workers-abc uses it: a MachineHealthCheck may act on this machine as well",
    )


# ---------------------------------------------------------------- which host


def test_a_node_is_on_the_host_that_its_provider_id_names(world: Metal3World) -> None:
    route = world.provider.identify(NODE).route
    assert route["host"] == "metal3/rack-1"
    assert route["consumer"] == "workers-abc"
    assert route["addresses"] == "10.0.0.7"


def test_a_machine_of_many_addresses_can_still_be_written_down(world: Metal3World) -> None:
    many = tuple(f"2001:db8:1111:2222:3333:4444:5555:{i:x}" for i in range(0xF000, 0xF040))
    route = world.provider.identify(replace(NODE, addresses=many)).route
    assert all(len(text) <= LONGEST_ID for text in route.values())
    assert len(route) <= MOST_WORDS


def test_an_old_provider_id_needs_the_annotation_and_its_uid_is_proof(world: Metal3World) -> None:
    uid = world.body()["metadata"]["uid"]
    old = replace(NODE, provider_id=f"metal3://{uid}", addresses=())
    assert reason(world, old) == (
        f"node metal-1 has the providerID 'metal3://{uid}', which names no BareMetalHost; annotate it with "
        "noderecovery.dev/bare-metal-host=namespace/name"
    )
    told = replace(old, annotations={HOST: "metal3/rack-1"})
    begun(world, world.provider.identify(told))
    assert REBOOT in world.annotations


def test_an_old_provider_id_of_another_host_is_refused(world: Metal3World) -> None:
    uid = world.body()["metadata"]["uid"]
    other = ("0" if uid[0] != "0" else "1") + uid[1:]
    told = replace(NODE, provider_id=f"metal3://{other}", annotations={HOST: "metal3/rack-1"})
    assert reason(world, told) == (
        f"BareMetalHost metal3/rack-1 has the uid {uid}, and node metal-1 was made on {other}"
    )


@pytest.mark.parametrize("tail", ["", "/UID"])
def test_openshifts_provider_id_names_the_host_too(world: Metal3World, tail: str) -> None:
    uid = world.body()["metadata"]["uid"]
    node = replace(NODE, provider_id=f"baremetalhost:///metal3/rack-1{tail.replace('UID', uid)}")
    begun(world, world.provider.identify(node))
    assert REBOOT in world.annotations


def test_a_provider_id_that_names_the_host_needs_no_inspection(world: Metal3World) -> None:
    world.host()
    begun(world, world.provider.identify(replace(NODE, provider_id="baremetalhost:///metal3/rack-1")))
    assert REBOOT in world.annotations


def test_a_node_without_either_needs_the_annotation(world: Metal3World) -> None:
    bare = replace(NODE, provider_id="")
    assert "names no BareMetalHost; annotate it with noderecovery.dev/bare-metal-host" in reason(world, bare)
    begun(world, world.provider.identify(replace(bare, annotations={HOST: "metal3/rack-1"})))
    assert REBOOT in world.annotations


def test_a_provider_id_and_an_annotation_that_differ_are_for_a_person(world: Metal3World) -> None:
    told = reason(world, replace(NODE, annotations={HOST: "metal3/rack-2"}))
    assert BY_ID in told
    assert "metal3/rack-2: these are two hosts, correct one" in told


@pytest.mark.parametrize(
    "text", ["rack-1", "metal3/", "/rack-1", "metal3/../x", "metal3/rack-1/status", "a/b?x", "A/B", "a/b\n"]
)
def test_an_annotation_that_is_no_name_is_quoted_and_not_asked_for(world: Metal3World, text: str) -> None:
    told = reason(world, replace(NODE, provider_id="", annotations={HOST: text}))
    assert told == f"node metal-1 has the annotation {HOST}={text!r}; expected namespace/name"
    assert world.calls() == 0


@pytest.mark.parametrize(
    "strange",
    ["metal3://metal3/rack-1", "metal3://metal3/../x", "metal3://metal3/rack-1/a/b", "tinkerbell://x/y"],
)
def test_a_provider_id_that_is_none_of_metal3s_names_no_host(world: Metal3World, strange: str) -> None:
    assert "names no BareMetalHost" in reason(world, replace(NODE, provider_id=strange))
    assert world.calls() == 0


def test_a_host_that_is_not_in_this_cluster_is_told(world: Metal3World) -> None:
    world.remove_machine()
    assert reason(world) == (
        "there is no BareMetalHost metal3/rack-1 in this cluster, which node metal-1 names by its "
        "providerID; one in another cluster cannot be reached from here"
    )


# ---------------------------------------------------------------- the same machine


@pytest.mark.parametrize(("consumer", "who"), [("workers-xyz", "workers-xyz"), ("", "nobody")])
def test_a_host_that_was_given_to_another_machine_is_not_rebooted(
    world: Metal3World, machine: Machine, consumer: str, who: str
) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    body = world.body()
    body["spec"].pop("consumerRef")
    if consumer:
        body["spec"]["consumerRef"] = {"kind": "Metal3Machine", "name": consumer}
    assert world.store.request("PUT", AT, body=body).ok
    with pytest.raises(Refused, match=f"is used by {who}, and node metal-1 is of workers-abc"):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.mutating_calls() == 0


ANNOTATED = replace(NODE, provider_id="", annotations={HOST: "metal3/rack-1"})


def test_a_host_with_none_of_the_nodes_addresses_is_refused_with_both(world: Metal3World) -> None:
    world.host(addresses=["10.0.0.8", "fe80::1"])
    assert reason(world, ANNOTATED) == (
        "BareMetalHost metal3/rack-1 was inspected with the addresses 10.0.0.8, fe80::1; node metal-1 has "
        "10.0.0.7: nothing proves that it is the same machine"
    )


def test_an_address_is_the_same_however_it_is_written(world: Metal3World) -> None:
    world.host(addresses=["FD00:0:0::7"])
    begun(world, world.provider.identify(replace(ANNOTATED, addresses=("fd00::7",))))
    assert REBOOT in world.annotations


def test_an_annotation_alone_is_no_proof(world: Metal3World) -> None:
    world.host()
    assert "has no hardware details with addresses: nothing proves that it is node metal-1" in reason(
        world, ANNOTATED
    )


def test_what_the_provider_id_proves_needs_no_address_and_the_difference_is_noted(
    world: Metal3World, machine: Machine
) -> None:
    """An inspection may have seen the machine on another network."""
    world.host()
    assert len(world.provider.preflight(machine, Step.REBOOT).notes) == 1
    world.host(addresses=["172.22.0.83"])
    noted, _ = world.provider.preflight(machine, Step.REBOOT).notes
    assert noted.endswith("was inspected with the addresses 172.22.0.83; node metal-1 has 10.0.0.7")


# ---------------------------------------------------------------- what became of it


def test_the_annotation_is_followed_and_its_end_proves_nothing(world: Metal3World, machine: Machine) -> None:
    reference = begun(world, machine)
    assert world.provider.poll(machine, reference) == Running(
        "Metal3 has been asked to reboot BareMetalHost metal3/rack-1; its power is on"
    )
    world.controller_sees_it_off()
    told = world.provider.poll(machine, reference)
    assert isinstance(told, Running)
    assert told.sentence.endswith("(its power is on); a new boot ID is the proof")


def test_an_order_that_never_arrived_has_left_no_trace(world: Metal3World, machine: Machine) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.fault(lost_request)
    with pytest.raises(Ambiguous):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert isinstance(world.provider.poll(machine, ready.reference), NotApplied)
    world.status(errorCount=1)
    found = world.provider.poll(machine, ready.reference)
    assert isinstance(found, Unseen), "now it could have been there, and that is no sign that it was"
    assert (
        "has taken up the reboot of BareMetalHost metal3/rack-1, or was never asked for it" in found.sentence
    )


def test_what_metal3_cannot_do_is_told_in_its_words(world: Metal3World, machine: Machine) -> None:
    reference = begun(world, machine)
    world.status(operationalStatus="error", errorMessage="power off failed: BMC busy")
    assert world.provider.poll(machine, reference) == Running(
        "Metal3 has been asked to reboot BareMetalHost metal3/rack-1; its power is on, "
        "but Metal3 cannot manage BareMetalHost metal3/rack-1: power off failed: BMC busy"
    )
    a_minute_later(world)
    assert world.provider.poll(machine, reference) == Failed(
        "Metal3 says of BareMetalHost metal3/rack-1: power off failed: BMC busy"
    )


def test_a_host_that_metal3_leaves_alone_is_not_said_to_be_tried_again(world: Metal3World) -> None:
    """Metal3 had an error of it, and somebody has paused it since."""
    world.status(operationalStatus="error", errorMessage="BMC busy")
    world.annotate(**{PAUSED: ""})
    with pytest.raises(Refused, match=r"has the annotation .*paused: Metal3 leaves it alone$"):
        world.provider.preflight(world.provider.identify(NODE), Step.REBOOT)


def test_two_errors_of_metal3_half_an_hour_apart_are_none_that_lasts(
    world: Metal3World, machine: Machine
) -> None:
    """The first one was shown as the machine was being rebooted, after which nobody looked any more."""
    reference = begun(world, machine)
    world.status(operationalStatus="error", errorMessage="BMC busy")
    assert isinstance(world.provider.poll(machine, reference), Running)
    for _ in range(30):
        a_minute_later(world)
    world.annotate(reboot_metal3_io=None)
    for _ in range(2):
        with pytest.raises(Retry, match="BMC busy; asking again"):
            world.provider.preflight(machine, Step.REBOOT)
    a_minute_later(world)
    with pytest.raises(Refused, match="BMC busy"):
        world.provider.preflight(machine, Step.REBOOT)


def test_an_error_that_metal3_gets_over_ends_nothing(world: Metal3World, machine: Machine) -> None:
    """It tries again by itself, seconds later. One look at its error had a person get the node, or called the
    reboot off that it carried out."""
    for _ in range(2):
        world.status(operationalStatus="error", errorMessage="BMC busy")
        with pytest.raises(Retry, match="BMC busy; asking again"):
            world.provider.preflight(machine, Step.REBOOT)
        a_minute_later(world)
        world.status(operationalStatus="OK", errorMessage="")
        ready = world.provider.preflight(machine, Step.REBOOT).reference
    world.status(operationalStatus="error", errorMessage="BMC busy")
    with pytest.raises(Retry, match="BMC busy; asking again"):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready)
    world.status(operationalStatus="OK", errorMessage="")
    reference = begun(world, machine)
    for _ in range(2):
        world.status(operationalStatus="error", errorMessage="BMC busy")
        assert isinstance(world.provider.poll(machine, reference), Running)
        a_minute_later(world)
        world.status(operationalStatus="OK", errorMessage="")
        assert isinstance(world.provider.poll(machine, reference), Running)
    world.annotate(reboot_metal3_io=None)
    world.status(operationalStatus="error", errorMessage="BMC busy", poweredOn=False)
    told = world.provider.poll(machine, reference)
    assert isinstance(told, Running), "it is to be switched on again"
    assert "its power is off, and it says BMC busy" in told.sentence


def test_what_metal3_cannot_do_without_a_word_has_failed_as_well(
    world: Metal3World, machine: Machine
) -> None:
    reference = begun(world, machine)
    world.status(operationalStatus="error", errorMessage=" ", errorType="power management error")
    assert isinstance(world.provider.poll(machine, reference), Running)
    a_minute_later(world)
    assert world.provider.poll(machine, reference) == Failed(
        "Metal3 says of BareMetalHost metal3/rack-1: power management error"
    )
    world.status(operationalStatus="error", errorMessage=None, errorType="")
    assert world.provider.poll(machine, reference) == Failed(
        "Metal3 says of BareMetalHost metal3/rack-1: it does not say why"
    )


@pytest.mark.parametrize("key", [PAUSED, DETACHED])
def test_a_host_that_is_taken_from_metal3_after_it_was_asked_says_what_is_waited_for(
    world: Metal3World, machine: Machine, key: str
) -> None:
    reference = begun(world, machine)
    world.annotate(**{key.replace(".", "_").replace("/", "__"): ""})
    told = world.provider.poll(machine, reference)
    assert isinstance(told, Running)
    assert told.sentence.endswith(
        f"but BareMetalHost metal3/rack-1 has the annotation {key}: Metal3 leaves it alone"
    )


def test_a_record_that_names_another_host_makes_nobody_read_or_write_it(
    world: Metal3World, machine: Machine
) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    asked = world.calls()
    for stolen in ({"name": "rack-2"}, {"namespace": "kube-system"}, {"name": "../x"}, {"machine": "x"}):
        changed = replace(ready.reference, data={**ready.reference.data, **stolen})
        with pytest.raises(Refused, match="the reference is one of"):
            world.provider.start(machine, Step.REBOOT, TOKEN, changed)
        for do in (world.provider.poll, world.provider.cancel):
            with pytest.raises(Refused, match="the reference is one of"):
                do(machine, changed)
    assert world.calls() == asked


# ---------------------------------------------------------------- called off


def test_what_was_asked_for_is_taken_back_and_again(world: Metal3World, machine: Machine) -> None:
    assert isinstance(world.provider, Cancellable)
    reference = begun(world, machine)
    for _ in range(2):
        world.provider.cancel(machine, reference)
    assert REBOOT not in world.annotations
    assert world.mutating_calls() == 2, "what is gone already is not taken off again"


@pytest.mark.parametrize("value", ["", '{"mode":"hard"}', "[]", "{", '{"by":"somebody"}'])
def test_somebody_elses_order_is_theirs_to_call_off(world: Metal3World, machine: Machine, value: str) -> None:
    world.annotate(reboot_metal3_io=value)
    reference = world.provider.preflight(machine, Step.REBOOT).reference
    world.provider.cancel(machine, reference)
    assert world.annotations[REBOOT] == value
    assert world.mutating_calls() == 0


def test_a_host_that_is_gone_or_another_has_nothing_to_call_off(world: Metal3World, machine: Machine) -> None:
    reference = begun(world, machine)
    order = world.annotations[REBOOT]
    world.host(annotations={REBOOT: order})
    world.provider.cancel(machine, reference)
    assert world.annotations[REBOOT] == order
    world.remove_machine()
    world.provider.cancel(machine, reference)


def test_an_answer_that_is_lost_is_asked_for_again(world: Metal3World, machine: Machine) -> None:
    reference = begun(world, machine)
    world.lose_answer()
    with pytest.raises(Retry):
        world.provider.cancel(machine, reference)
    world.provider.cancel(machine, reference)
    assert REBOOT not in world.annotations


# ---------------------------------------------------------------- whether it is down


def test_a_power_that_is_off_is_seen(world: Metal3World, machine: Machine) -> None:
    assert isinstance(world.provider, PowerSensor)
    assert world.provider.down(machine) is None
    world.status(poweredOn=False)
    assert world.provider.down(machine) == "Metal3 says that the power of BareMetalHost metal3/rack-1 is off"
    assert world.mutating_calls() == 0


@pytest.mark.parametrize(
    "status",
    [
        {"operationalStatus": "error", "errorMessage": "BMC did not answer"},
        {"provisioning": {"state": "registering"}},
        {"poweredOn": None},
        {"poweredOn": "false"},
    ],
    ids=repr,
)
def test_what_metal3_does_not_look_at_is_no_evidence(
    world: Metal3World, machine: Machine, status: dict[str, Any]
) -> None:
    """``poweredOn`` is false before anything was looked at."""
    world.status(**{"poweredOn": False, **status})
    assert world.provider.down(machine) is None


@pytest.mark.parametrize("key", [PAUSED, DETACHED])
def test_a_host_that_metal3_leaves_alone_is_no_evidence(
    world: Metal3World, machine: Machine, key: str
) -> None:
    world.host(annotations={key: ""}, poweredOn=False)
    assert world.provider.down(machine) is None


def test_another_machines_power_is_no_evidence(world: Metal3World) -> None:
    world.host(poweredOn=False, consumer="workers-xyz")
    with pytest.raises(Refused, match="is used by workers-xyz"):
        world.provider.down(world.provider.identify(NODE))


# ---------------------------------------------------------------- how it is made


def test_it_is_what_the_setting_chooses() -> None:
    made = create(ProviderContext(FakeClock(), {"BAREMETAL_POWER": "metal3"}))
    assert isinstance(made, Metal3Provider)
    assert [rung.do for rung in made.default_remedy] == [Step.CORDON]


def test_without_a_cluster_at_hand_that_is_said() -> None:
    made = make(ProviderContext(FakeClock(), {}, NoObjects()))
    with pytest.raises(Refused, match="there is no connection to the cluster"):
        made.preflight(made.identify(NODE), Step.REBOOT)


@pytest.mark.parametrize("told", [{}, [], "true", 1, None])
def test_a_power_that_is_no_flag_is_not_known(told: Any) -> None:
    assert Metal3Host("metal3/rack-1", baremetal_host("rack-1", poweredOn=told)).power == "not known"


def test_an_annotation_that_is_nested_too_deeply_is_somebody_elses(
    world: Metal3World, machine: Machine
) -> None:
    world.annotate(reboot_metal3_io="[" * 20_000)
    reference = world.provider.preflight(machine, Step.REBOOT).reference
    assert world.provider.cancel(machine, reference) is None
    assert world.annotations[REBOOT] == "[" * 20_000
