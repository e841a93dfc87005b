"""The fake Azure Resource Manager: what it answers, what it keeps, and what the real SDK makes of it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceResponseError,
)
from azure.identity import ManagedIdentityCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.containerservice import ContainerServiceClient
from recovery_testkit.arm import CLIENT_ID, SUBSCRIPTION, FakeArm, Instance

pytestmark = pytest.mark.slow

BEARER = {"Authorization": "Bearer fake-for:https://management.azure.com/"}
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/nodes"
VM = "/providers/Microsoft.Compute/virtualMachines"
VMSS = "/providers/Microsoft.Compute/virtualMachineScaleSets"
LOOSE: dict[str, Any] = {"enforce_https": False}


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class Clock:
    def __init__(self) -> None:
        self.time = 1_790_000_000.0

    def __call__(self) -> float:
        return self.time


Ask = Callable[..., Reply]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def arm(clock: Clock) -> Iterator[FakeArm]:
    with FakeArm(now=clock) as running:
        yield running


@pytest.fixture
def connection(arm: FakeArm) -> Iterator[http.client.HTTPConnection]:
    opened = http.client.HTTPConnection(arm.url.removeprefix("http://"), timeout=5)
    yield opened
    opened.close()


@pytest.fixture
def ask(connection: http.client.HTTPConnection) -> Ask:
    def asked(
        method: str, path: str, body: Any = None, /, version: str = "2026-04-01", **headers: str
    ) -> Reply:
        joined = f"{path}{'&' if '?' in path else '?'}api-version={version}" if version else path
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = None if body is None else json.dumps(body)
        connection.request(method, joined, sent, {**BEARER, **named})
        answer = connection.getresponse()
        raw = answer.read()
        return Reply(answer.status, dict(answer.getheaders()), json.loads(raw) if raw else None)

    return asked


@pytest.fixture
def workers(arm: FakeArm) -> str:
    return arm.scale_set("workers", size=3)


def address(link: str) -> str:
    """What to ask a server for, of a link that it gave; it has its api-version."""
    split = urlsplit(link)
    return f"{split.path}?{split.query}"


def status_of(ask: Ask, accepted: Reply) -> Reply:
    return ask("GET", address(accepted.headers["Azure-AsyncOperation"]), version="")


# ---------------------------------------------------------------- the wire


def test_a_connection_is_kept(ask: Ask, connection: http.client.HTTPConnection, workers: str) -> None:
    ask("GET", workers)
    first = connection.sock
    assert ask("GET", workers + "/virtualMachines").status == 200
    assert connection.sock is first


def test_nothing_is_answered_after_the_stop(ask: Ask, connection: http.client.HTTPConnection) -> None:
    with FakeArm() as other:
        kept = http.client.HTTPConnection(other.url.removeprefix("http://"), timeout=5)
        kept.request("GET", "/", headers=BEARER)
        kept.getresponse().read()
    with pytest.raises((http.client.HTTPException, OSError)):
        _ask_again(kept)
    kept.close()


def _ask_again(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/", headers=BEARER)
    connection.getresponse()


def test_a_server_that_was_never_started_can_be_stopped() -> None:
    FakeArm().stop()


def test_a_request_without_a_token_is_401(ask: Ask, workers: str) -> None:
    reply = ask("GET", workers, Authorization="Basic x")
    assert (reply.status, reply.code) == (401, "AuthenticationFailed")
    assert reply.headers["WWW-Authenticate"].startswith("Bearer ")


def test_a_token_for_somebody_else_is_401(ask: Ask, workers: str) -> None:
    reply = ask("GET", workers, Authorization="Bearer fake-for:https://monitoring.azure.com/")
    assert (reply.status, reply.code) == (401, "InvalidAuthenticationTokenAudience")


@pytest.mark.parametrize(
    "audience", ["https://management.azure.com", "https://management.usgovcloudapi.net/"]
)
def test_tokens_for_any_clouds_resource_manager_are_taken(ask: Ask, workers: str, audience: str) -> None:
    assert ask("GET", workers, Authorization=f"Bearer fake-for:{audience}").status == 200


def test_a_request_without_api_version_is_400(ask: Ask, workers: str) -> None:
    reply = ask("GET", workers, version="")
    assert (reply.status, reply.code) == (400, "MissingApiVersionParameter")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{GROUP.replace(SUBSCRIPTION, 'other')}{VM}/x", "SubscriptionNotFound"),
        (f"{GROUP.replace('nodes', 'none')}{VM}/x", "ResourceGroupNotFound"),
        (f"{GROUP}{VM}/x", "ResourceNotFound"),
        (f"{GROUP}{VMSS}/x", "ResourceNotFound"),
        (f"{GROUP}{VMSS}/workers/virtualMachines/9", "NotFound"),
        (f"{GROUP}/providers/Microsoft.ContainerService/managedClusters/x", "ResourceNotFound"),
        (f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/a/operations/x", "NotFound"),
    ],
)
def test_what_is_not_there_is_404_with_azures_code(ask: Ask, workers: str, path: str, code: str) -> None:
    reply = ask("GET", path)
    assert (reply.status, reply.code) == (404, code)


def test_paths_are_compared_without_case(ask: Ask, workers: str) -> None:
    assert ask("GET", workers.lower()).body["id"] == workers
    assert ask("POST", workers.upper() + "/VIRTUALMACHINES/0/RESTART").status == 202


def test_what_the_fake_does_not_know_is_a_loud_501(ask: Ask, workers: str) -> None:
    for method, path in (
        ("GET", "/subscriptions"),
        ("POST", f"{workers}/virtualMachines/0/runCommand"),
        ("GET", f"{workers}/virtualMachines?$filter=x"),
    ):
        assert ask(method, path).code == "NotImplemented", path
    assert ask("PATCH", workers, {"properties": {}}).code == "NotImplemented"


def test_a_body_that_is_no_object_is_400(ask: Ask, workers: str) -> None:
    assert ask("PATCH", workers, [1]).code == "InvalidRequestContent"


def test_the_clients_request_id_comes_back_when_it_asks_for_it(ask: Ask, workers: str) -> None:
    silent = ask("GET", workers, x_ms_client_request_id="mine")
    asked = ask("GET", workers, x_ms_client_request_id="mine", x_ms_return_client_request_id="true")
    assert "x-ms-client-request-id" not in silent.headers
    assert asked.headers["x-ms-client-request-id"] == "mine"
    assert silent.headers["x-ms-request-id"] != asked.headers["x-ms-request-id"]


def test_requests_are_recorded_without_the_token(ask: Ask, arm: FakeArm, workers: str, clock: Clock) -> None:
    ask("PATCH", workers, {"sku": {"capacity": 3}}, X_Note="hello")
    (request,) = arm.requests
    assert (request.method, request.path, request.at) == ("PATCH", workers, clock.time)
    assert request.query == {"api-version": "2026-04-01"}
    assert json.loads(request.body) == {"sku": {"capacity": 3}}
    assert (request.bearer, request.audience) == (True, "https://management.azure.com/")
    assert request.headers["x-note"] == "hello"
    assert "fake-for" not in repr(request)


def test_each_request_says_which_permission_it_needs(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.hold()
    accepted = ask("POST", f"{workers}/virtualMachines/0/poweroff")
    status_of(ask, accepted)
    ask("GET", f"{workers}/virtualMachines/0/instanceView")
    assert [r.action for r in arm.requests] == [
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/powerOff/action",
        "Microsoft.Compute/locations/operations/read",
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/instanceView/read",
    ]


# ---------------------------------------------------------------- Uniform scale sets


def test_a_scale_set_says_its_mode_and_capacity(ask: Ask, workers: str) -> None:
    body = ask("GET", workers).body
    assert body["sku"]["capacity"] == 3
    assert body["properties"]["orchestrationMode"] == "Uniform"
    assert body["properties"]["provisioningState"] == "Succeeded"


def test_instances_have_decimal_ids_and_vm_ids_of_their_own(ask: Ask, arm: FakeArm, workers: str) -> None:
    listed = ask("GET", workers + "/virtualMachines").body["value"]
    assert [i["instanceId"] for i in listed] == ["0", "1", "2"]
    assert [i["properties"]["vmId"] for i in listed] == [i.vm_id for i in arm.instances(workers)]
    assert len({i["properties"]["vmId"] for i in listed}) == 3


def test_computer_names_end_in_the_id_to_the_base_of_36(arm: FakeArm) -> None:
    many = arm.instances(arm.scale_set("GPU", size=37))
    assert [many[i].computer_name for i in (0, 10, 36)] == ["gpu000000", "gpu00000a", "gpu000010"]


def test_ids_come_back_with_the_resource_group_in_capitals(ask: Ask, workers: str) -> None:
    shown = ask("GET", workers + "/virtualMachines/1").body["id"]
    assert shown == f"{workers}/virtualMachines/1".replace("/nodes/", "/NODES/")
    assert ask("GET", shown).status == 200


def test_long_lists_come_in_pages(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.page_size = 2
    first = ask("GET", workers + "/virtualMachines?$expand=instanceView").body
    second = ask("GET", address(first["nextLink"]), version="").body
    assert [i["instanceId"] for i in first["value"] + second["value"]] == ["0", "1", "2"]
    assert "instanceView" in second["value"][0]["properties"]
    assert "nextLink" not in second


def test_the_instance_view_says_power_and_provisioning(ask: Ask, arm: FakeArm, workers: str) -> None:
    def codes() -> list[str]:
        return [s["code"] for s in ask("GET", f"{workers}/virtualMachines/0/instanceView").body["statuses"]]

    assert codes() == ["ProvisioningState/succeeded", "PowerState/running"]
    arm.hold()
    ask("POST", f"{workers}/virtualMachines/0/deallocate")
    assert codes() == ["ProvisioningState/updating", "PowerState/running"]
    arm.release()
    assert codes() == ["ProvisioningState/succeeded", "PowerState/deallocated"]


@pytest.mark.parametrize(
    ("verb", "moves", "new_disk"),
    [("restart", False, False), ("reimage", False, True), ("redeploy", True, False)],
)
def test_an_action_boots_its_machine_anew(
    ask: Ask, arm: FakeArm, workers: str, verb: str, moves: bool, new_disk: bool
) -> None:
    before = arm.instances(workers)
    arm.hold()
    assert ask("POST", f"{workers}/virtualMachines/1/{verb}").status == 202
    assert arm.instances(workers)[1].boot_id == before[1].boot_id
    assert arm.instances(workers)[1].provisioning == "Updating"
    arm.release()
    after = arm.instances(workers)
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1].boot_id != before[1].boot_id
    assert after[1].vm_id == before[1].vm_id
    assert (after[1].host != before[1].host) == moves
    assert (after[1].disks > before[1].disks) == new_disk
    assert after[1].provisioning == "Succeeded"


def test_a_second_operation_on_a_busy_machine_is_409(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.hold()
    ask("POST", f"{workers}/virtualMachines/1/restart")
    again = ask("POST", f"{workers}/virtualMachines/1/redeploy")
    deleted = ask("DELETE", f"{workers}/virtualMachines/1")
    assert (again.status, again.code) == (409, "OperationNotAllowed")
    assert (deleted.status, deleted.code) == (409, "Conflict")
    assert ask("POST", f"{workers}/virtualMachines/2/restart").status == 202
    assert arm.capacity(workers) == 3


def test_a_machine_that_is_being_deleted_takes_no_operation(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.hold()
    ask("DELETE", f"{workers}/virtualMachines/1")
    reply = ask("POST", f"{workers}/virtualMachines/1/restart")
    assert (reply.status, reply.code) == (409, "OperationNotAllowed")
    assert "marked for deletion" in reply.body["error"]["message"]


def test_only_a_running_machine_can_be_restarted(ask: Ask, arm: FakeArm, workers: str) -> None:
    machine = f"{workers}/virtualMachines/0"
    before = arm.instance(machine)
    arm.put(machine, power="deallocated")
    assert ask("POST", machine + "/restart").code == "OperationNotAllowed"
    ask("POST", machine + "/start")
    arm.finish()
    assert arm.instance(machine).power == "running"
    assert arm.instance(machine).host != before.host


def test_a_temporary_disk_is_only_of_an_ephemeral_machine(ask: Ask, arm: FakeArm, workers: str) -> None:
    reply = ask("POST", f"{workers}/virtualMachines/0/reimage", {"tempDisk": True})
    assert (reply.status, reply.code) == (400, "InvalidParameter")
    other = arm.scale_set("ephemeral", size=1, ephemeral=True)
    assert ask("POST", f"{other}/virtualMachines/0/reimage", {"tempDisk": True}).status == 202


def test_a_delete_lowers_the_capacity_when_it_is_accepted(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.hold()
    assert ask("DELETE", f"{workers}/virtualMachines/1").status == 202
    assert arm.capacity(workers) == 2
    assert arm.instances(workers)[1].provisioning == "Deleting"
    arm.release()
    assert [i.instance_id for i in arm.instances(workers)] == ["0", "2"]
    assert arm.scaled_in == 0


def test_a_freed_id_comes_back_with_another_vm_id(ask: Ask, arm: FakeArm, workers: str) -> None:
    machine = f"{workers}/virtualMachines/1"
    old = arm.instance(machine)
    ask("DELETE", machine)
    arm.finish()
    assert (
        ask("PATCH", workers, {"sku": {"capacity": 3}}).body["properties"]["provisioningState"] == "Updating"
    )
    assert arm.instance(machine).boot_id == ""
    arm.finish()
    new = arm.instance(machine)
    assert (new.id, new.provisioning, new.boots) == (old.id, "Succeeded", 1)
    assert new.vm_id != old.vm_id
    assert new.boot_id not in ("", old.boot_id)
    assert arm.capacity(workers) == 3


def test_a_lower_capacity_deletes_the_highest_ids_and_is_counted(
    ask: Ask, arm: FakeArm, workers: str
) -> None:
    assert ask("PATCH", workers, {"sku": {"capacity": 1}}).status == 200
    arm.finish()
    assert [i.instance_id for i in arm.instances(workers)] == ["0"]
    assert (arm.capacity(workers), arm.scaled_in) == (1, 2)


def test_a_capacity_that_is_no_number_is_400(ask: Ask, workers: str) -> None:
    assert ask("PATCH", workers, {"sku": {"capacity": "4"}}).code == "InvalidParameter"
    assert ask("PATCH", workers, {"sku": {"capacity": -1}}).code == "InvalidParameter"


def test_a_stale_etag_changes_nothing(ask: Ask, arm: FakeArm, workers: str) -> None:
    stale = ask("GET", workers).body["etag"]
    arm.remove(f"{workers}/virtualMachines/2")
    assert ask("PATCH", workers, {"sku": {"capacity": 3}}, If_Match=stale).code == "PreconditionFailed"
    assert arm.capacity(workers) == 2
    fresh = ask("GET", workers).body["etag"]
    assert ask("PATCH", workers, {"sku": {"capacity": 3}}, If_Match=fresh).status == 200


def test_an_instance_that_is_gone_is_400_to_an_action_and_204_to_a_delete(ask: Ask, workers: str) -> None:
    reply = ask("POST", f"{workers}/virtualMachines/9/restart")
    assert (reply.status, reply.code) == (400, "InvalidParameter")
    assert ask("DELETE", f"{workers}/virtualMachines/9").status == 204
    assert ask("POST", f"{workers}/virtualMachines/workers_1/restart").code == "InvalidParameter"


# ---------------------------------------------------------------- the danger


@pytest.mark.parametrize("verb", ["restart", "reimage", "redeploy"])
@pytest.mark.parametrize("body", [None, {}, {"instanceIds": []}, {"instanceIds": ["*"]}])
def test_a_scale_sets_action_without_ids_is_done_to_every_instance(
    ask: Ask, arm: FakeArm, workers: str, verb: str, body: Any
) -> None:
    assert ask("POST", f"{workers}/{verb}", body).status == 202
    arm.finish()
    assert [i.boots for i in arm.instances(workers)] == [2, 2, 2]
    assert arm.whole_set_calls == 1


def test_a_scale_sets_action_with_ids_is_done_to_those(ask: Ask, arm: FakeArm, workers: str) -> None:
    ask("POST", f"{workers}/restart", {"instanceIds": ["1"]})
    arm.finish()
    assert [i.boots for i in arm.instances(workers)] == [1, 2, 1]
    assert arm.whole_set_calls == 0
    assert ask("POST", f"{workers}/restart", {"instanceIds": ["9"]}).code == "InvalidParameter"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/delete"),
        ("DELETE", "/virtualMachines/%2A"),
        ("DELETE", "/virtualMachines/.."),
        ("DELETE", ""),
    ],
)
def test_every_way_to_delete_a_whole_scale_set_is_counted(
    ask: Ask, arm: FakeArm, workers: str, method: str, path: str
) -> None:
    assert ask(method, workers + path).status == 202
    arm.finish()
    assert arm.instances() == ()
    assert arm.whole_set_calls == 1


@pytest.mark.parametrize("instance", ["..", "%2e%2e", "*"])
def test_an_instance_id_that_is_no_number_may_mean_all_of_them(
    ask: Ask, arm: FakeArm, workers: str, instance: str
) -> None:
    assert ask("POST", f"{workers}/virtualMachines/{instance}/restart").status == 202
    arm.finish()
    assert [i.boots for i in arm.instances(workers)] == [2, 2, 2]
    assert arm.whole_set_calls == 1


# ---------------------------------------------------------------- Flexible scale sets and single machines


@pytest.fixture
def flexible(arm: FakeArm) -> str:
    return arm.scale_set("flex", size=2, orchestration="Flexible")


def test_flexible_members_are_virtual_machines(ask: Ask, arm: FakeArm, flexible: str) -> None:
    member = arm.instances(flexible)[0]
    assert member.id.startswith(f"{GROUP}{VM}/flex_")
    body = ask("GET", member.id + "?$expand=instanceView").body
    assert body["properties"]["vmId"] == member.vm_id
    assert body["properties"]["virtualMachineScaleSet"]["id"].lower() == flexible.lower()
    assert (
        body["properties"]["instanceView"]["statuses"]
        == ask("GET", member.id + "/instanceView").body["statuses"]
    )


def test_flexible_members_are_no_instances(ask: Ask, arm: FakeArm, flexible: str) -> None:
    assert ask("GET", flexible + "/virtualMachines").code == "BadRequest"
    assert ask("POST", flexible + "/virtualMachines/0/restart").code == "BadRequest"
    name = arm.instances(flexible)[0].name
    assert ask("GET", f"{flexible}/virtualMachines/{name}").code == "InvalidParameter"


def test_virtual_machines_are_listed_by_scale_set(
    ask: Ask, arm: FakeArm, flexible: str, workers: str
) -> None:
    arm.vm("alone")
    machines = GROUP + VM
    wanted = quote(f"'virtualMachineScaleSet/id' eq '{flexible.upper()}'")
    found = ask("GET", f"{machines}?$filter={wanted}").body["value"]
    assert {m["name"] for m in found} == {i.name for i in arm.instances(flexible)}
    assert len(ask("GET", machines).body["value"]) == 3
    assert ask("GET", f"{machines}?$filter=name").status == 400


@pytest.mark.parametrize(("verb", "moves"), [("restart", False), ("redeploy", True), ("reapply", False)])
def test_a_virtual_machine_is_acted_on_by_its_name(ask: Ask, arm: FakeArm, verb: str, moves: bool) -> None:
    machine = arm.vm("alone")
    before = arm.instance(machine)
    assert ask("POST", f"{machine}/{verb}").status == 202
    arm.finish()
    assert (arm.instance(machine).boot_id != before.boot_id) == (verb != "reapply")
    assert (arm.instance(machine).host != before.host) == moves


def test_only_an_ephemeral_virtual_machine_can_be_reimaged(ask: Ask, arm: FakeArm) -> None:
    assert ask("POST", arm.vm("durable") + "/reimage").code == "OperationNotAllowed"
    assert ask("POST", arm.vm("fleeting", ephemeral=True) + "/reimage").status == 202


def test_a_flexible_members_delete_lowers_the_capacity(ask: Ask, arm: FakeArm, flexible: str) -> None:
    member, other = arm.instances(flexible)
    arm.hold()
    assert ask("DELETE", member.id).status == 202
    assert arm.capacity(flexible) == 1
    arm.release()
    assert arm.instances(flexible) == (other,)
    assert ask("DELETE", member.id).status == 204
    assert arm.capacity(flexible) == 1


def test_a_single_virtual_machine_can_be_deleted(ask: Ask, arm: FakeArm) -> None:
    machine = arm.vm("alone")
    ask("DELETE", machine)
    arm.finish()
    assert ask("GET", machine).code == "ResourceNotFound"
    with pytest.raises(KeyError):
        arm.instance(machine)


# ---------------------------------------------------------------- managed clusters


@pytest.fixture
def pool(arm: FakeArm) -> str:
    machines = arm.scale_set("aks-gpu-12345678-vmss", size=3, resource_group="MC_east")
    return arm.managed_cluster("east", pools={"gpu": machines}) + "/agentPools/gpu"


def test_a_pool_shows_its_count_and_its_machines(ask: Ask, arm: FakeArm, pool: str) -> None:
    assert ask("GET", pool).body["properties"]["count"] == 3
    assert [p["name"] for p in ask("GET", pool.removesuffix("/gpu")).body["value"]] == ["gpu"]
    cluster = ask("GET", pool.removesuffix("/agentPools/gpu")).body
    assert cluster["properties"]["agentPoolProfiles"][0]["count"] == 3
    machines = ask("GET", pool + "/machines").body["value"]
    assert [m["name"] for m in machines] == [f"aks-gpu-12345678-vmss00000{n}" for n in range(3)]
    assert [m["properties"]["resourceId"] for m in machines] == [i.id for i in arm.instances()]
    assert ask("GET", f"{pool}/machines/{machines[1]['name']}").body == machines[1]
    assert ask("GET", f"{pool}/machines/none").status == 404
    assert ask("GET", pool + "2").status == 404


def test_deleted_machines_are_not_replaced(ask: Ask, arm: FakeArm, pool: str) -> None:
    arm.hold()
    names = {"machineNames": ["aks-gpu-12345678-vmss000001"]}
    accepted = ask("POST", pool + "/deleteMachines", names)
    assert accepted.status == 202
    assert (
        "/providers/Microsoft.ContainerService/locations/westus3/operations/"
        in accepted.headers["Azure-AsyncOperation"]
    )
    again = ask("POST", pool + "/deleteMachines", names)
    assert (again.status, again.code) == (409, "OperationNotAllowed")
    assert (
        ask("GET", pool).body["properties"] | {"count": 2, "provisioningState": "Updating"}
        == ask("GET", pool).body["properties"]
    )
    assert ask("GET", address(accepted.headers["Location"]), version="").status == 202
    arm.release()
    assert status_of(ask, accepted).body["status"] == "Succeeded"
    assert ask("GET", address(accepted.headers["Location"]), version="").status == 204
    assert [i.instance_id for i in arm.instances()] == ["0", "2"]
    assert ask("GET", pool).body["properties"]["count"] == 2


def test_a_pools_count_is_set_by_writing_it_back(ask: Ask, arm: FakeArm, pool: str) -> None:
    arm.remove(arm.instances()[1].id)
    read = ask("GET", pool).body
    read["properties"]["count"] = 3
    assert ask("PUT", pool, read, If_Match='"0"').code == "PreconditionFailed"
    arm.hold()
    assert ask("PUT", pool, read, If_Match=read["properties"]["eTag"]).status == 200
    assert ask("PUT", pool, read).code == "OperationNotAllowed"
    arm.release()
    assert {(i.instance_id, i.boots) for i in arm.instances()} == {("0", 1), ("1", 1), ("2", 1)}
    assert ask("PUT", pool, {"properties": {"count": 4}}).code == "PropertyChangeNotAllowed"
    read["properties"]["count"] = 2
    assert ask("PUT", pool, read).status == 200
    assert (arm.capacity(arm.instances()[0].scale_set), arm.scaled_in) == (2, 1)


@pytest.mark.parametrize("body", [None, {"machineNames": []}, {"machineNames": ["none"]}])
def test_a_deletion_has_to_name_machines_of_the_pool(ask: Ask, arm: FakeArm, pool: str, body: Any) -> None:
    assert ask("POST", pool + "/deleteMachines", body).code == "InvalidParameter"
    assert len(arm.instances()) == 3


# ---------------------------------------------------------------- operations


def test_an_operation_is_in_progress_until_its_time_is_up(
    ask: Ask, arm: FakeArm, workers: str, clock: Clock
) -> None:
    accepted = ask("POST", f"{workers}/virtualMachines/0/restart")
    assert status_of(ask, accepted).body["status"] == "InProgress"
    assert ask("GET", address(accepted.headers["Location"]), version="").status == 202
    clock.time += 0.2
    ended = status_of(ask, accepted).body
    assert (ended["status"], "endTime" in ended) == ("Succeeded", True)
    assert ask("GET", address(accepted.headers["Location"]), version="")[::2] == (200, None)
    assert arm.instances(workers)[0].boots == 2


def test_a_late_operation_is_accepted_and_its_boot_comes_late(
    ask: Ask, arm: FakeArm, workers: str, clock: Clock
) -> None:
    arm.late(1200)
    accepted = ask("POST", f"{workers}/virtualMachines/0/restart")
    clock.time += 1199
    assert status_of(ask, accepted).body["status"] == "InProgress"
    assert arm.instances(workers)[0].boots == 1
    clock.time += 1
    assert status_of(ask, accepted).body["status"] == "Succeeded"
    assert arm.instances(workers)[0].boots == 2


def test_a_failed_operation_comes_under_200_and_nothing_was_done(
    ask: Ask, arm: FakeArm, workers: str
) -> None:
    arm.fail_next("AllocationFailed", "There is no capacity.")
    accepted = ask("POST", f"{workers}/virtualMachines/0/redeploy")
    arm.finish()
    reply = status_of(ask, accepted)
    assert (reply.status, reply.body["status"], reply.code) == (200, "Failed", "AllocationFailed")
    assert (arm.instances(workers)[0].boots, arm.instances(workers)[0].provisioning) == (1, "Failed")
    assert ask("POST", f"{workers}/virtualMachines/0/redeploy").status == 202


def test_a_running_operation_can_be_made_to_fail(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.hold()
    accepted = ask("DELETE", f"{workers}/virtualMachines/0")
    arm.fail("InternalExecutionError", operation=arm.operations[0].id)
    assert status_of(ask, accepted).code == "InternalExecutionError"
    assert (len(arm.instances(workers)), arm.capacity(workers)) == (3, 3)


def test_success_may_be_hollow(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.hollow_next()
    accepted = ask("POST", f"{workers}/virtualMachines/0/restart")
    arm.finish()
    assert status_of(ask, accepted).body["status"] == "Succeeded"
    assert arm.instances(workers)[0].boots == 1


def test_operations_are_forgotten(ask: Ask, arm: FakeArm, workers: str) -> None:
    accepted = ask("POST", f"{workers}/virtualMachines/0/restart")
    arm.finish()
    arm.forget_operations()
    assert status_of(ask, accepted).status == 404


def test_an_operation_is_known_by_its_own_provider_and_location_only(
    ask: Ask, arm: FakeArm, workers: str
) -> None:
    accepted = ask("POST", f"{workers}/virtualMachines/0/restart")
    path = urlsplit(accepted.headers["Azure-AsyncOperation"]).path
    assert ask("GET", path).status == 200
    assert ask("GET", path.replace("westus3", "eastus")).status == 404
    assert ask("GET", path.replace("Microsoft.Compute", "Microsoft.ContainerService")).status == 404


def test_the_addresses_of_an_operation_are_long_and_signed(ask: Ask, arm: FakeArm, workers: str) -> None:
    accepted = ask("POST", f"{workers}/virtualMachines/0/restart")
    link = accepted.headers["Azure-AsyncOperation"]
    assert len(link) > 3000
    assert link.startswith(arm.url)
    arm.require_signatures()
    assert ask("GET", urlsplit(link).path).status == 403
    assert status_of(ask, accepted).status == 200


def test_a_client_can_be_asked_to_wait(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.retry_after = 7
    accepted = ask("POST", f"{workers}/virtualMachines/0/restart")
    assert accepted.headers["Retry-After"] == "7"
    assert status_of(ask, accepted).headers["Retry-After"] == "7"
    arm.finish()
    assert "Retry-After" not in status_of(ask, accepted).headers


# ---------------------------------------------------------------- rights


def test_the_status_of_an_operation_can_be_denied_alone(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.deny("operations/read")
    accepted = ask("POST", f"{workers}/virtualMachines/0/restart")
    refused = status_of(ask, accepted)
    assert (accepted.status, refused.status, refused.code) == (202, 403, "AuthorizationFailed")
    assert "'Microsoft.Compute/locations/operations/read'" in refused.body["error"]["message"]
    arm.permit()
    assert status_of(ask, accepted).status == 200


def test_a_denied_action_is_not_carried_out(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.deny("*/virtualmachines/*", code="DenyAssignmentAuthorizationFailed")
    assert ask("POST", f"{workers}/virtualMachines/0/restart").code == "DenyAssignmentAuthorizationFailed"
    assert arm.operations == ()
    assert ask("GET", workers).status == 200


def test_a_role_allows_what_it_lists(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.role = frozenset({"Microsoft.Compute/virtualMachineScaleSets/read"})
    assert ask("GET", workers).status == 200
    assert ask("PATCH", workers, {"sku": {"capacity": 9}}).status == 403
    assert arm.capacity(workers) == 3


# ---------------------------------------------------------------- faults


def test_a_lost_answer_was_carried_out(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.lose_answer()
    assert ask("GET", workers).status == 200
    with pytest.raises((http.client.HTTPException, OSError)):
        ask("POST", f"{workers}/virtualMachines/0/restart")
    arm.finish()
    assert arm.instances(workers)[0].boots == 2
    assert len(arm.mutating()) == 1
    assert ask("POST", f"{workers}/virtualMachines/0/restart").status == 202


def test_a_reset_request_was_not_carried_out(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.reset()
    with pytest.raises((http.client.HTTPException, OSError)):
        ask("POST", f"{workers}/virtualMachines/0/restart")
    assert arm.operations == ()
    assert len(arm.mutating()) == 1


def test_a_delayed_answer_was_carried_out_at_once(arm: FakeArm, workers: str) -> None:
    arm.delay(60)
    impatient = http.client.HTTPConnection(arm.url.removeprefix("http://"), timeout=0.1)
    impatient.request("POST", f"{workers}/virtualMachines/0/restart?api-version=1", headers=BEARER)
    with pytest.raises(TimeoutError):
        impatient.getresponse()
    impatient.close()
    assert [o.verb for o in arm.operations] == ["restart"]


def test_a_refused_request_was_not_carried_out(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.refuse(500, "InternalServerError", times=2)
    for _ in range(2):
        assert ask("POST", f"{workers}/virtualMachines/0/restart").status == 500
    assert arm.operations == ()
    assert ask("POST", f"{workers}/virtualMachines/0/restart").status == 202
    assert len(arm.mutating()) == arm.count("POST *") == 3


def test_throttling_says_how_long_to_wait_and_what_is_left(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.remaining = {"VMScaleSetVMActionsResource": 0, "VMScaleSetVMActionsSubscription": 1480}
    arm.refuse(429, retry_after=600)
    reply = ask("POST", f"{workers}/virtualMachines/0/restart")
    assert (reply.status, reply.headers["Retry-After"]) == (429, "600")
    assert reply.code == "OperationNotAllowed", "the code of a conflict too: only the status tells"
    assert reply.body["error"]["details"][0]["code"] == "TooManyRequests"
    assert reply.headers["x-ms-ratelimit-remaining-resource"] == (
        "Microsoft.Compute/VMScaleSetVMActionsResource;0,Microsoft.Compute/VMScaleSetVMActionsSubscription;1480"
    )


def test_a_fault_can_wait_for_one_kind_of_request(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.refuse(503, "ServerTimeout", on="GET */instanceView")
    assert ask("POST", f"{workers}/virtualMachines/0/restart").status == 202
    assert ask("GET", f"{workers}/virtualMachines/0").status == 200
    assert ask("GET", f"{workers}/virtualMachines/0/instanceView").status == 503
    assert ask("GET", f"{workers}/virtualMachines/0/instanceView").status == 200


def test_forgetting_drops_requests_and_faults(ask: Ask, arm: FakeArm, workers: str) -> None:
    arm.refuse(500)
    ask("GET", workers)
    arm.forget()
    assert arm.requests == ()
    assert ask("POST", f"{workers}/virtualMachines/0/restart").status == 202


def test_a_fault_of_the_fake_itself_is_told_at_the_end() -> None:
    broken = FakeArm().start()
    broken.page_size = "many"  # type: ignore[assignment]
    scale_set = broken.scale_set("workers", size=1)
    connection = http.client.HTTPConnection(broken.url.removeprefix("http://"), timeout=5)
    connection.request("GET", f"{scale_set}/virtualMachines?api-version=1", headers=BEARER)
    assert connection.getresponse().status == 500
    connection.close()
    with pytest.raises(AssertionError, match="TypeError"):
        broken.stop()


# ---------------------------------------------------------------- what befalls machines, and who is told


def test_azure_may_reboot_remove_and_launch_by_itself(arm: FakeArm, workers: str) -> None:
    first, second, _ = arm.instances(workers)
    arm.reboot(first.id)
    arm.remove(second.id)
    assert arm.instance(first.id).boot_id != first.boot_id
    assert arm.capacity(workers) == 2
    (new,) = arm.scale(workers, 3)
    assert new == second.id
    assert arm.instance(new).vm_id != second.vm_id
    assert arm.mutating() == ()


def test_a_machine_that_goes_under_an_operation_does_not_come_back(
    ask: Ask, arm: FakeArm, workers: str
) -> None:
    accepted = ask("POST", f"{workers}/virtualMachines/0/restart")
    arm.remove(f"{workers}/virtualMachines/0")
    arm.finish()
    assert status_of(ask, accepted).body["status"] == "Succeeded"
    assert len(arm.instances(workers)) == 2


def test_an_operation_on_a_machine_is_none_on_its_successor(ask: Ask, arm: FakeArm, workers: str) -> None:
    machine = f"{workers}/virtualMachines/0"
    ask("POST", machine + "/restart")
    arm.remove(machine)
    arm.scale(workers, 3)
    assert ask("POST", machine + "/reimage").status == 202
    arm.finish()
    assert (arm.instance(machine).boots, arm.instance(machine).disks) == (2, 2)


def test_what_is_made_again_begins_anew(ask: Ask, arm: FakeArm, workers: str) -> None:
    old = {i.vm_id for i in arm.instances(workers)}
    ask("DELETE", f"{workers}/virtualMachines/0")
    assert arm.scale_set("workers", size=2) == workers
    arm.finish()
    assert len(arm.instances(workers)) == arm.capacity(workers) == 2
    assert not old & {i.vm_id for i in arm.instances(workers)}


def test_a_machine_is_counted_out_once(ask: Ask, arm: FakeArm, workers: str) -> None:
    ask("DELETE", f"{workers}/virtualMachines/0")
    arm.remove(f"{workers}/virtualMachines/0")
    arm.finish()
    assert arm.capacity(workers) == len(arm.instances(workers)) == 2


def test_hooks_are_told_what_happens_in_its_order_and_outside_the_lock(ask: Ask, arm: FakeArm) -> None:
    told: list[tuple[str, str]] = []

    def hook(what: str) -> Callable[[str, Instance], None]:
        def tell(resource: str, machine: Instance) -> None:
            assert machine.id == resource
            assert ask("GET", GROUP + VM).status == 200
            told.append((what, f"{machine.instance_id}.{machine.boots}"))

        return tell

    arm.on_create(hook("create"))
    arm.on_boot(hook("boot"))
    arm.on_delete(hook("delete"))
    workers = arm.scale_set("workers", size=1)
    arm.hold()
    ask("POST", f"{workers}/virtualMachines/0/redeploy")
    arm.finish()
    ask("DELETE", f"{workers}/virtualMachines/0")
    arm.finish()
    assert told == [("create", "0.0"), ("boot", "0.1"), ("boot", "0.2"), ("delete", "0.2")]


def test_machines_boot_though_nobody_looks() -> None:
    with FakeArm(operation_seconds=0.01) as arm:
        workers = arm.scale_set("workers", size=1)
        booted = threading.Event()
        arm.on_boot(lambda *_: booted.set())
        connection = http.client.HTTPConnection(arm.url.removeprefix("http://"), timeout=5)
        connection.request("POST", f"{workers}/virtualMachines/0/restart?api-version=1", headers=BEARER)
        connection.getresponse().read()
        connection.close()
        assert booted.wait(5)


# ---------------------------------------------------------------- identity and metrics


def msi(arm: FakeArm, ask: Ask, **changes: str) -> Reply:
    environ = arm.environ()
    query = {"resource": "https://management.azure.com/", "client_id": CLIENT_ID, **changes}
    header = query.pop("header", environ["IDENTITY_HEADER"])
    path = (
        urlsplit(environ["IDENTITY_ENDPOINT"]).path
        + "?"
        + "&".join(f"{k}={v}" for k, v in query.items() if v)
    )
    return ask("GET", path, version=query.pop("version", "2019-08-01"), X_IDENTITY_HEADER=header)


def test_a_token_says_what_it_is_for(arm: FakeArm, ask: Ask) -> None:
    reply = msi(arm, ask)
    assert f"{reply.body['token_type']} {reply.body['access_token']}" == BEARER["Authorization"]
    assert int(reply.body["expires_on"]) > time.time() + 3600
    assert arm.tokens == {"https://management.azure.com/": 1}
    assert arm.mutating() == ()
    assert arm.environ()["IDENTITY_HEADER"] not in repr(arm.requests)


@pytest.mark.parametrize(
    "change", [{"header": "wrong"}, {"client_id": ""}, {"client_id": "x"}, {"resource": ""}]
)
def test_the_identity_has_to_be_asked_for_rightly(arm: FakeArm, ask: Ask, change: dict[str, str]) -> None:
    assert msi(arm, ask, **change).status == 400
    assert not arm.tokens


def test_tokens_can_be_refused(arm: FakeArm, ask: Ask) -> None:
    arm.refuse_tokens(500)
    assert msi(arm, ask).status == 500
    arm.refuse_tokens(0)
    assert msi(arm, ask).status == 200


def test_metrics_go_to_whoever_takes_them(arm: FakeArm, ask: Ask, workers: str) -> None:
    assert ask("POST", workers + "/metrics", {"time": "now"}).status == 404
    taken: list[tuple[str, str, bytes]] = []

    def take(path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        taken.append((path, headers["authorization"], body))
        return 429, {"Retry-After": "3"}, b"{}"

    arm.metrics = take
    reply = ask("POST", workers + "/metrics", {"time": "now"}, version="")
    assert (reply.status, reply.headers["Retry-After"]) == (429, "3")
    assert taken == [(workers + "/metrics", BEARER["Authorization"], b'{"time": "now"}')]
    assert arm.mutating() == ()
    assert arm.count("POST */metrics") == 2


# ---------------------------------------------------------------- the real SDK


@pytest.fixture
def credential(arm: FakeArm, monkeypatch: pytest.MonkeyPatch) -> Iterator[ManagedIdentityCredential]:
    for name, value in arm.environ().items():
        monkeypatch.setenv(name, value)
    with ManagedIdentityCredential(client_id=CLIENT_ID) as found:
        yield found


@pytest.fixture
def compute(arm: FakeArm, credential: ManagedIdentityCredential) -> Iterator[ComputeManagementClient]:
    with ComputeManagementClient(
        credential, SUBSCRIPTION, base_url=arm.url, retry_total=0, polling_interval=0.01
    ) as client:
        yield client


def test_the_sdk_reads_scale_sets_instances_and_views(
    arm: FakeArm, compute: ComputeManagementClient, workers: str
) -> None:
    arm.page_size = 2
    assert compute.virtual_machine_scale_sets.get("nodes", "workers", **LOOSE).sku.capacity == 3
    listed = list(compute.virtual_machine_scale_set_vms.list("nodes", "workers", **LOOSE))
    assert [i.vm_id for i in listed] == [i.vm_id for i in arm.instances(workers)]
    view = compute.virtual_machine_scale_set_vms.get_instance_view("nodes", "workers", "2", **LOOSE)
    assert [s.code for s in view.statuses] == ["ProvisioningState/succeeded", "PowerState/running"]
    assert arm.tokens == {"https://management.azure.com": 1}


def test_the_sdk_waits_for_an_operation(arm: FakeArm, compute: ComputeManagementClient, workers: str) -> None:
    arm.operation_seconds = 0
    compute.virtual_machine_scale_set_vms.begin_redeploy("nodes", "workers", "1", **LOOSE).result()
    assert [i.boots for i in arm.instances(workers)] == [1, 2, 1]
    assert len(arm.mutating()) == 1


def test_the_sdk_sees_a_failed_operation_under_200(
    arm: FakeArm, compute: ComputeManagementClient, workers: str
) -> None:
    arm.operation_seconds = 0
    arm.fail_next("AllocationFailed", "There is no capacity.")
    poller = compute.virtual_machine_scale_set_vms.begin_reimage("nodes", "workers", "1", **LOOSE)
    with pytest.raises(HttpResponseError) as raised:
        poller.result()
    assert raised.value.status_code == 200
    assert raised.value.error is not None
    assert raised.value.error.code == "AllocationFailed"


def test_the_sdk_loses_an_answer_and_the_restart_goes_on(
    arm: FakeArm, compute: ComputeManagementClient, workers: str
) -> None:
    arm.lose_answer()
    with pytest.raises(ServiceResponseError):
        compute.virtual_machine_scale_set_vms.begin_restart("nodes", "workers", "1", polling=False, **LOOSE)
    with pytest.raises(ResourceExistsError):
        compute.virtual_machine_scale_set_vms.begin_delete("nodes", "workers", "1", polling=False, **LOOSE)
    arm.finish()
    assert [i.boots for i in arm.instances(workers)] == [1, 2, 1]


def test_the_sdk_makes_one_attempt_when_it_is_throttled(
    arm: FakeArm, compute: ComputeManagementClient, workers: str
) -> None:
    arm.refuse(429, retry_after=600)
    with pytest.raises(HttpResponseError) as raised:
        compute.virtual_machine_scale_set_vms.begin_restart("nodes", "workers", "1", polling=False, **LOOSE)
    assert raised.value.status_code == 429
    assert raised.value.response is not None
    assert raised.value.response.headers["Retry-After"] == "600"
    assert len(arm.mutating()) == 1


def test_the_sdk_itself_turns_two_dots_into_every_instance(
    arm: FakeArm, compute: ComputeManagementClient, workers: str
) -> None:
    compute.virtual_machine_scale_set_vms.begin_restart("nodes", "workers", "..", polling=False, **LOOSE)
    assert arm.mutating()[0].path == workers + "/restart"
    arm.finish()
    assert [i.boots for i in arm.instances(workers)] == [2, 2, 2]
    compute.virtual_machine_scale_set_vms.begin_delete("nodes", "workers", "..", polling=False, **LOOSE)
    assert arm.mutating()[1].path.rstrip("/") == workers
    assert arm.whole_set_calls == 2


def test_the_sdk_deletes_an_instance_and_restores_the_capacity(
    arm: FakeArm, compute: ComputeManagementClient, workers: str
) -> None:
    arm.operation_seconds = 0
    old = arm.instances(workers)[1]
    compute.virtual_machine_scale_set_vms.begin_delete("nodes", "workers", "1", **LOOSE).result()
    with pytest.raises(ResourceNotFoundError):
        compute.virtual_machine_scale_set_vms.get("nodes", "workers", "1", **LOOSE)
    sku: Any = {"sku": {"capacity": 3}}
    compute.virtual_machine_scale_sets.begin_update("nodes", "workers", sku, **LOOSE).result()
    new = compute.virtual_machine_scale_set_vms.get("nodes", "workers", "1", **LOOSE)
    assert new.vm_id not in (old.vm_id, None)


def test_the_sdk_lists_and_deletes_flexible_members(
    arm: FakeArm, compute: ComputeManagementClient, flexible: str
) -> None:
    wanted = f"'virtualMachineScaleSet/id' eq '{flexible}'"
    first, _ = compute.virtual_machines.list("nodes", filter=wanted, expand="instanceView", **LOOSE)
    assert first.instance_view.statuses[1].code == "PowerState/running"
    compute.virtual_machines.begin_delete("nodes", first.name, polling=False, **LOOSE)
    assert arm.capacity(flexible) == 1


def test_the_sdk_deletes_machines_of_a_pool(
    arm: FakeArm, credential: ManagedIdentityCredential, pool: str
) -> None:
    arm.operation_seconds = 0
    with ContainerServiceClient(
        credential, SUBSCRIPTION, base_url=arm.url, retry_total=0, polling_interval=0.01
    ) as client:
        where = ("clusters", "east", "gpu")
        machines = [m.properties.resource_id for m in client.machines.list(*where, **LOOSE)]
        assert machines == [i.id for i in arm.instances()]
        names: Any = {"machineNames": ["aks-gpu-12345678-vmss000002"]}
        client.agent_pools.begin_delete_machines(*where, names, **LOOSE).result()
        assert client.agent_pools.get(*where, **LOOSE).count == 2
    assert len(arm.instances()) == 2
