"""Reboots by Redfish: the provider over sushy, against sushy-tools' emulator, and BMCs that misbehave."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from recovery_testkit.provider_kit import ActionKit
from recovery_testkit.proxy import CountingProxy
from recovery_testkit.redfish import PASSWORD, USERNAME, Certificate, Emulator, certify

from providers.baremetal.bmc import Limits
from providers.baremetal.inventory import Inventory
from providers.baremetal.redfish import RedfishProvider
from providers.baremetal.system import chosen
from recovery.clock import SystemClock
from recovery.errors import Ambiguous, NodeRecoveryError, Refused, Retry
from recovery.model import Gone, Machine, NodeView, NotApplied, Reference, Running, Step, Unfinished, Unseen
from recovery.provider.protocol import Examiner, OutOfBand, PowerSensor, Resumable, abilities_of

QUICK = Limits(connect=2.0, read=1.0, patience=60.0)
TOKEN = "token"  # noqa: S105 (an idempotency token)
MINE = "4c4c4544-0047-4a10-8051-b7c04f484433"
OTHER = "4c4c4544-0047-4a10-8051-b7c04f484434"
IS_OFF = "4c4c4544-0047-4a10-8051-b7c04f484435"
PATH = f"/redfish/v1/Systems/{MINE}"
SYSTEM, ANY_POST = f"GET {PATH}", "POST *"
NODE = NodeView("node-3", "node-uid", "1", boot_id="boot-1", system_uuid=MINE.upper())

pytestmark = pytest.mark.slow  # an emulator is a process


class SkippingClock(SystemClock):
    """A clock that can be put forward, past what the provider remembers."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class RedfishWorld:
    """An inventory, credentials, and a BMC behind a proxy that counts, loses and refuses."""

    def __init__(self, emulator: Emulator, proxy: CountingProxy, folder: Path) -> None:
        self.emulator, self.proxy, self.folder = emulator, proxy, folder
        self.clock = SkippingClock()
        self.environ = {
            "RECOVERY_MODE": "concluder",
            "BMC_INVENTORY": str(folder / "inventory.yaml"),
            "BMC_CREDENTIALS": str(folder / "bmc"),
        }
        self.credentials(USERNAME, PASSWORD)
        self.inventory(proxy.url)

    def credentials(self, username: str, password: str, authority: Path | None = None) -> None:
        rack = self.folder / "bmc" / "rack-1"
        rack.mkdir(parents=True, exist_ok=True)
        (rack / "username").write_text(username)
        (rack / "password").write_text(f"{password}\n")
        if authority is not None:
            (rack / "ca.crt").write_bytes(authority.read_bytes())

    def inventory(self, address: str, uuid: str = MINE, more: str = "") -> None:
        machine = f"{{systemUUID: {uuid}, address: '{address}', credentials: rack-1{more}}}"
        Path(self.environ["BMC_INVENTORY"]).write_text(
            f"apiVersion: noderecovery.dev/v1alpha1\nkind: BMCInventory\nmachines:\n  - {machine}\n"
        )

    def provider(self, limits: Limits = QUICK) -> RedfishProvider:
        return RedfishProvider(self.clock, self.environ, Inventory(self.environ), limits)

    def later(self) -> None:
        """What was asked a moment ago is asked again."""
        self.clock.ahead += 60

    def resets(self) -> list[str]:
        """The types of all resets that were asked for."""
        return [json.loads(r.body)["ResetType"] for r in self.proxy.requests if r.action.startswith("POST")]

    def answers(self, status: int, document: Any = None) -> None:
        """The BMC turns the next reset away, or takes it, without carrying it out."""
        body = json.dumps(document).encode() if document is not None else b""
        self.proxy.answer(ANY_POST, body, "application/json", status=status)

    def says(self, instead: str, new: str) -> None:
        """In all of its answers about the system."""
        self.proxy.edit(SYSTEM, instead, new, times=1000)

    def offers(self, *kinds: str) -> None:
        self.says(OFFERED, ",".join(f'"{kind}"' for kind in kinds))

    # ------------------------------------------------------------ as the kit asks

    def calls(self) -> int:
        return self.proxy.count()

    def mutating_calls(self) -> int:
        return self.proxy.count("POST *", "PATCH *", "PUT *", "DELETE *")

    def lose_answer(self) -> None:
        self.proxy.lose_answer(ANY_POST)

    def delay(self) -> None:
        self.proxy.delay(ANY_POST, QUICK.read + 0.5)

    def refuse(self, kind: str) -> None:
        self.answers({"throttled": 429, "denied": 403, "broken": 500}[kind], error("Base.1.0.GeneralError"))

    def remove_machine(self) -> None:
        self.emulator.change(MINE, uuid=OTHER)

    def finish_action(self, action: Step) -> Sequence[str]:
        self.emulator.release()
        self.later()
        return ()


OFFERED = """"On",
                "ForceOff",
                "GracefulShutdown",
                "GracefulRestart",
                "ForceRestart",
                "Nmi",
                "ForceOn\""""


def error(message_id: str, message: str = "A sentence of the BMC's.") -> dict[str, Any]:
    told = {"MessageId": message_id, "Message": message, "Severity": "Critical"}
    return {"error": {"code": "Base.1.0.GeneralError", "message": "See.", "@Message.ExtendedInfo": [told]}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    folder = tmp_path_factory.mktemp("bmc")
    with Emulator(folder, {MINE: "On", OTHER: "On", IS_OFF: "Off"}) as found:
        yield found


@pytest.fixture
def emulator(shared: Emulator) -> Emulator:
    shared.reset()
    return shared


@pytest.fixture
def world(emulator: Emulator, tmp_path: Path) -> Iterator[RedfishWorld]:
    with CountingProxy(("127.0.0.1", emulator.port)) as proxy:
        yield RedfishWorld(emulator, proxy, tmp_path)


@pytest.fixture
def provider(world: RedfishWorld) -> RedfishProvider:
    return world.provider()


@pytest.fixture
def machine(provider: RedfishProvider) -> Machine:
    return provider.identify(NODE)


class TestRedfish(ActionKit):
    actions = (Step.REBOOT,)
    rubbish = (
        "aws:///us-west-2a/i-0123456789abcdef0",
        "azure:///subscriptions/x",
        replace(NODE, system_uuid=""),
        replace(NODE, system_uuid="00000000-0000-0000-0000-000000000000"),
    )

    @pytest.fixture
    def world(self, emulator: Emulator, tmp_path: Path) -> Iterator[RedfishWorld]:
        with CountingProxy(("127.0.0.1", emulator.port)) as proxy:
            yield RedfishWorld(emulator, proxy, tmp_path)

    @pytest.fixture
    def provider(self, world: RedfishWorld) -> RedfishProvider:
        return world.provider()

    @pytest.fixture
    def node(self) -> NodeView:
        return NODE


class TestOffAndOn(TestRedfish):
    """A BMC that offers no restart at all."""

    @pytest.fixture
    def world(self, emulator: Emulator, tmp_path: Path) -> Iterator[RedfishWorld]:
        with CountingProxy(("127.0.0.1", emulator.port)) as proxy:
            world = RedfishWorld(emulator, proxy, tmp_path)
            world.offers("On", "ForceOff")
            yield world


def begun(provider: RedfishProvider, machine: Machine) -> Reference:
    return provider.start(machine, Step.REBOOT, TOKEN, provider.preflight(machine, Step.REBOOT).reference)


def test_it_is_what_the_core_looks_for(provider: RedfishProvider, machine: Machine) -> None:
    assert isinstance(provider, Resumable)
    assert isinstance(provider, OutOfBand)
    assert isinstance(provider, PowerSensor)
    assert isinstance(provider, Examiner)
    assert abilities_of(provider, machine).out_of_band == {Step.REBOOT}
    assert [rung.do for rung in provider.default_remedy] == [Step.CORDON]


# ---------------------------------------------------------------- never on its own node


@pytest.mark.parametrize("mode", [{"RECOVERY_MODE": "sidecar"}, {"RECOVERY_MODE": ""}])
def test_an_agent_never_switches_the_power_of_its_own_node(
    world: RedfishWorld, machine: Machine, mode: dict[str, str]
) -> None:
    ready = world.provider().preflight(machine, Step.REBOOT)
    asked = world.calls()
    world.environ |= {"NODE_NAME": "node-3", **mode}
    own = world.provider()
    told = "node-3 is this agent's own node: its power is never switched from itself; a peer does it once"
    with pytest.raises(Refused, match=told):
        own.preflight(machine, Step.REBOOT)
    with pytest.raises(Refused, match=told):
        own.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.calls() == asked


@pytest.mark.parametrize(
    "environ", [{"RECOVERY_MODE": "sidecar", "NODE_NAME": "node-4"}, {"NODE_NAME": "node-3"}]
)
def test_a_peer_or_a_concluder_that_happens_to_run_there_may(
    world: RedfishWorld, machine: Machine, environ: dict[str, str]
) -> None:
    world.environ |= environ
    begun(world.provider(), machine)
    assert world.mutating_calls() == 1


# ---------------------------------------------------------------- the same machine


def test_a_uuid_is_the_same_in_either_order_of_bytes(world: RedfishWorld, provider: RedfishProvider) -> None:
    swapped = str(UUID(bytes_le=UUID(MINE).bytes))
    assert swapped != MINE
    machine = provider.identify(replace(NODE, system_uuid=swapped))
    begun(provider, machine)
    assert world.resets() == ["ForceRestart"]


@pytest.mark.parametrize(
    ("states", "told"),
    [
        (OTHER, f"states the UUID {OTHER}, and the machine is {MINE}"),
        ("", f"states the UUID none, and the machine is {MINE}"),
        ("03000200-0400-0500-0006-000700080009", "states the UUID 03000200-"),
        ("not a UUID", "states the UUID not a UUID"),
    ],
)
def test_a_bmc_that_states_another_uuid_or_none_is_asked_for_nothing(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine, states: str, told: str
) -> None:
    ready = provider.preflight(machine, Step.REBOOT)
    world.emulator.change(MINE, uuid=states)
    world.inventory(f"{world.proxy.url}{PATH}")
    world.later()
    known = Refused if states == OTHER else Retry
    with pytest.raises(known, match=told):
        provider.preflight(machine, Step.REBOOT)
    world.later()
    with pytest.raises(Refused, match=told):
        provider.preflight(machine, Step.REBOOT)
    with pytest.raises(Refused, match=told):
        provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    with pytest.raises(Refused, match=told):
        provider.down(machine)
    assert world.mutating_calls() == 0


def test_a_machine_whose_uuid_is_none_is_no_match_for_a_bmc_without(
    world: RedfishWorld, provider: RedfishProvider
) -> None:
    world.emulator.change(MINE, uuid="To be filled by O.E.M.")
    Path(world.environ["BMC_INVENTORY"]).write_text(
        "apiVersion: noderecovery.dev/v1alpha1\nkind: BMCInventory\nmachines:\n"
        f"  - {{node: node-3, address: '{world.proxy.url}{PATH}', credentials: rack-1}}\n"
    )
    with pytest.raises(Refused, match=r"To be filled by O\.E\.M\. is no UUID"):
        provider.preflight(replace(provider.identify(NODE), id="To be filled by O.E.M."), Step.REBOOT)


# ---------------------------------------------------------------- which system of a BMC


def test_of_several_systems_the_one_with_the_machines_uuid_is_taken(
    provider: RedfishProvider, machine: Machine
) -> None:
    assert provider.preflight(machine, Step.REBOOT).reference.data["system"] == PATH


BOARD = "/redfish/v1/Systems/HGX_Baseboard_0"


def with_a_board(world: RedfishWorld, *systems: str) -> None:
    """The BMC of a GPU server: beside the host, it has the board with the GPUs."""
    members = {"Members": [{"@odata.id": path} for path in systems], "Members@odata.count": len(systems)}
    listed = json.dumps({"Id": "Systems", "Name": "Systems", **members}).encode()
    world.proxy.answer("GET /redfish/v1/Systems", listed, "application/json", times=9)


@pytest.mark.parametrize("status", [404, 500, 502, 503])
def test_a_board_that_gives_no_answer_keeps_its_host_from_nothing(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine, status: int
) -> None:
    with_a_board(world, BOARD, PATH)
    world.proxy.answer(f"GET {BOARD}", b"", status=status)
    begun(provider, machine)
    assert world.resets() == ["ForceRestart"]


def test_a_board_that_is_silent_keeps_its_host_from_nothing(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    with_a_board(world, BOARD, PATH)
    world.proxy.delay(f"GET {BOARD}", QUICK.read + 0.5)
    begun(provider, machine)
    assert world.resets() == ["ForceRestart"]


def test_where_a_system_gives_no_answer_none_is_said_to_be_the_machine(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    with_a_board(world, PATH, f"/redfish/v1/Systems/{OTHER}")
    world.proxy.answer(SYSTEM, b"", status=503)
    with pytest.raises(Retry, match="did not answer usably"):
        provider.preflight(machine, Step.REBOOT)


def test_a_host_that_is_busy_is_asked_again_also_where_its_board_is_never_there(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    with_a_board(world, BOARD, PATH)
    world.proxy.answer(f"GET {BOARD}", b"", status=404)
    world.proxy.answer(SYSTEM, b"", status=503)
    with pytest.raises(Retry, match="did not answer usably"):
        provider.preflight(machine, Step.REBOOT)


def test_an_address_with_a_path_is_asked_for_nothing_else(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.inventory(f"{world.proxy.url}{PATH}")
    begun(provider, machine)
    assert [r.action for r in world.proxy.requests] == [
        SYSTEM,
        SYSTEM,
        f"POST {PATH}/Actions/ComputerSystem.Reset",
    ]


def test_the_only_system_is_the_one_and_still_has_to_be_the_machine(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.emulator.reset(MINE)
    assert provider.preflight(machine, Step.REBOOT).reference.data["system"] == PATH
    world.emulator.reset(OTHER)
    world.later()
    with pytest.raises(Refused, match=f"states the UUID {OTHER}"):
        provider.preflight(machine, Step.REBOOT)


def test_where_no_system_is_the_machine_a_person_is_told(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.emulator.reset(OTHER, IS_OFF)
    for error in (Retry, Refused):
        with pytest.raises(error, match=f"has 2 systems, and none of them is {MINE}"):
            provider.preflight(machine, Step.REBOOT)
        world.later()


def test_a_path_that_the_bmc_does_not_know_is_refused(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.inventory(f"{world.proxy.url}/redfish/v1/Systems/None")
    for error in (Retry, Refused):
        with pytest.raises(error, match=r"refused a look at it \(HTTP 404\)"):
            provider.preflight(machine, Step.REBOOT)
        world.later()


def knows_nothing(world: RedfishWorld, how: str) -> None:
    """What a BMC says that is starting, in one answer."""
    if how == "no UUID":
        world.proxy.edit(SYSTEM, f'"UUID": "{MINE}"', '"UUID": null')
    elif how == "no system":
        none = {"@odata.id": "/redfish/v1/Systems", "Name": "Systems", "Members": []}
        world.proxy.answer("GET /redfish/v1/Systems", json.dumps(none).encode(), "application/json")
    else:
        world.proxy.answer(SYSTEM, b"{}", "application/json", status=404)


@pytest.mark.parametrize("how", ["no UUID", "no system", "404"])
def test_one_answer_of_a_bmc_that_is_starting_refuses_no_step(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine, how: str
) -> None:
    """It knows nobody and nothing for a while. That handed the node to a person at once."""
    knows_nothing(world, how)
    with pytest.raises(Retry, match="one that is starting knows nothing"):
        provider.preflight(machine, Step.REBOOT)
    ready = provider.preflight(machine, Step.REBOOT)
    if how != "no system":  # the path is known by now
        knows_nothing(world, how)
        with pytest.raises(Retry, match="one that is starting knows nothing"):
            provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
        assert world.mutating_calls() == 0
    provider.start(machine, Step.REBOOT, TOKEN, ready.reference)


def test_two_refusals_of_good_credentials_half_an_hour_apart_are_two_now_and_then(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked, world: RedfishWorld
) -> None:
    crooked.answers[PATH] = (401, {}, (b"{}",))
    for _ in range(2):
        with pytest.raises(Retry, match=r"\(HTTP 401\).*; asking again"):
            deceived.preflight(machine, Step.REBOOT)
        world.clock.ahead += 1800


def test_credentials_that_are_refused_now_and_then_are_tried_again(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    """Some BMCs answer 401 to credentials that are good. A person got the node."""
    good = crooked.answers[PATH]
    for _ in range(2):
        crooked.answers[PATH] = (401, {}, (b"{}",))
        with pytest.raises(Retry, match=r"\(HTTP 401\).*; asking again, for some refuse good credentials"):
            deceived.preflight(machine, Step.REBOOT)
        crooked.answers[PATH] = good
        ready = deceived.preflight(machine, Step.REBOOT)
        deceived._known.clear()
    crooked.answers[f"{PATH}/Reset"] = (401, {}, (b"{}",))
    with pytest.raises(Retry, match=r"did not permit the reset \(HTTP 401\).*; asking again"):
        deceived.start(machine, Step.REBOOT, TOKEN, ready.reference)
    crooked.answers[f"{PATH}/Reset"] = (204, {}, ())
    deceived.start(machine, Step.REBOOT, TOKEN, ready.reference)


def test_a_bmc_that_knows_nothing_for_a_minute_is_a_persons_business(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.emulator.change(MINE, uuid="")
    world.inventory(f"{world.proxy.url}{PATH}")
    for error in (Retry, Refused):
        with pytest.raises(error, match="states the UUID none"):
            provider.preflight(machine, Step.REBOOT)
        world.later()


# ---------------------------------------------------------------- which reset

ALL = (
    "PowerCycle",
    "ForceRestart",
    "ForceOff",
    "On",
    "ForceOn",
    "GracefulRestart",
    "GracefulShutdown",
    "Nmi",
)


@pytest.mark.parametrize(
    ("power", "offered", "reset"),
    [
        ("On", ALL, "PowerCycle"),
        ("On", ALL[1:], "ForceRestart"),
        ("On", ALL[2:], "ForceOff"),
        ("On", ("ForceOff", "ForceOn", "GracefulRestart"), "ForceOff"),
        ("On", ("ForceOff", "GracefulRestart"), "GracefulRestart"),
        ("On", ("ForceOff", "GracefulShutdown", "Nmi"), ""),
        ("", ("ForceOff", "On"), ""),
        ("", ALL, "PowerCycle"),
        ("Paused", ALL[1:], "ForceRestart"),
        ("Off", ALL, "On"),
        ("Off", ("ForceOn", "ForceRestart"), "ForceOn"),
        ("Off", ("PowerCycle", "ForceRestart"), ""),
        ("On", (), "ForceRestart"),
        ("Off", (), "On"),
    ],
)
def test_the_reset_is_the_first_that_fits_in_the_order_that_the_guide_states(
    power: str, offered: tuple[str, ...], reset: str
) -> None:
    assert chosen(power, frozenset(offered)) == reset


def test_a_machine_that_is_off_is_switched_on_and_no_more(world: RedfishWorld) -> None:
    provider = world.provider()
    world.inventory(world.proxy.url, IS_OFF)
    machine = provider.identify(replace(NODE, system_uuid=IS_OFF))
    reference = begun(provider, machine)
    assert world.resets() == ["On"]
    assert reference.data["power"] == "Off"
    world.finish_action(Step.REBOOT)
    assert isinstance(provider.poll(machine, reference), Running)
    assert provider.down(machine) is None


def test_what_the_bmc_offers_is_what_is_asked_for(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.offers("PowerCycle", "ForceRestart", "On")
    world.answers(204)
    begun(provider, machine)
    assert world.resets() == ["PowerCycle"]


def test_a_graceful_restart_is_the_last_resort_and_is_told(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.offers("GracefulRestart", "Nmi")
    ready = provider.preflight(machine, Step.REBOOT)
    assert ready.reference.data["reset"] == "GracefulRestart"
    assert ready.notes == ("only a graceful restart is offered, which a system that hangs ignores",)


def test_a_bmc_that_offers_no_reboot_is_refused_with_what_it_offers(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.offers("GracefulShutdown", "Nmi")
    with pytest.raises(
        Refused, match="offers no reset that makes a reboot of a machine that is On: Graceful"
    ):
        provider.preflight(machine, Step.REBOOT)


def test_a_machine_whose_power_is_changing_is_left_alone(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    ready = provider.preflight(machine, Step.REBOOT)
    world.emulator.change(MINE, power_state="PoweringOn")
    world.later()
    assert "its power is changing (PoweringOn)" in provider.preflight(machine, Step.REBOOT).not_yet
    with pytest.raises(Retry, match="says something else than a moment ago"):
        provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.mutating_calls() == 0


TWO_STEPS = {"target": f"{PATH}/Reset", "ResetType@Redfish.AllowableValues": ["ForceOff", "On"]}


@pytest.mark.parametrize("power", ["PoweringOn", "PoweringOff", None])
def test_a_bmc_without_a_restart_whose_machine_is_neither_on_nor_off_just_then_refuses_nothing(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked, power: str | None
) -> None:
    """It can be reset from on, and from off. One answer in between handed the node to a person."""
    crooked.system(action=TWO_STEPS, PowerState=power)
    with pytest.raises(Retry, match="its power is changing" if power else "says nothing of its power"):
        deceived.preflight(machine, Step.REBOOT)
    crooked.system(action=TWO_STEPS)
    assert deceived.preflight(machine, Step.REBOOT).reference.data["reset"] == "ForceOff"


def test_a_bmc_without_a_restart_that_never_says_whether_its_machine_is_on_is_a_persons_business(
    world: RedfishWorld, deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    crooked.system(action=TWO_STEPS, PowerState=None)
    for error in (Retry, Refused):
        with pytest.raises(error, match=r"says nothing of its power, .* offers: ForceOff, On"):
            deceived.preflight(machine, Step.REBOOT)
        world.later()


def test_a_machine_that_went_off_since_it_was_looked_at_is_looked_at_again(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    ready = provider.preflight(machine, Step.REBOOT)
    world.emulator.change(MINE, power_state="Off")
    with pytest.raises(Retry, match="looking again before a reset"):
        provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.mutating_calls() == 0


# ---------------------------------------------------------------- one request, whatever is answered


@pytest.mark.parametrize(
    ("status", "document", "expected"),
    [
        (200, {}, None),
        (202, {"@odata.id": "/redfish/v1/TaskService/Tasks/1"}, None),
        (204, None, None),
        (302, None, Ambiguous),
        (307, None, Ambiguous),
        (400, error("Base.1.0.ActionParameterNotSupported"), Refused),
        (400, error("iLO.2.14.InvalidOperationForSystemState"), Refused),  # sushy would ask again
        (400, error("Base.1.8.ResourceInUse"), Retry),
        (401, None, Retry),
        (403, error("Base.1.0.InsufficientPrivilege"), Refused),
        (404, None, Refused),
        (405, None, Refused),
        (408, None, Ambiguous),
        (409, None, Retry),
        (423, None, Retry),
        (429, None, Retry),
        (500, error("IDRAC.2.1.SYS518"), Ambiguous),  # and here
        (503, error("Base.1.0.ServiceTemporarilyUnavailable"), Ambiguous),
    ],
)
def test_one_reset_is_one_request_whatever_is_answered(
    world: RedfishWorld,
    provider: RedfishProvider,
    machine: Machine,
    status: int,
    document: Any,
    expected: type[NodeRecoveryError] | None,
) -> None:
    ready = provider.preflight(machine, Step.REBOOT)
    world.answers(status, document)
    if expected is None:
        assert provider.start(machine, Step.REBOOT, TOKEN, ready.reference).data["accepted"] is True
    else:
        with pytest.raises(expected) as raised:
            provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
        assert type(raised.value) is expected
        assert f"HTTP {status}" in str(raised.value)
        assert "the BMC of node-3 at 127.0.0.1:" in str(raised.value)
    assert world.resets() == ["ForceRestart"]


def test_a_connection_that_is_cut_is_no_proof_that_nothing_was_done(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    ready = provider.preflight(machine, Step.REBOOT)
    world.proxy.reset(ANY_POST)
    with pytest.raises(Ambiguous, match="may have reset it, its answer was lost"):
        provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.mutating_calls() == 1


def test_a_look_that_took_too_long_is_followed_by_no_reset(world: RedfishWorld, machine: Machine) -> None:
    class Stopped(SkippingClock):
        def boottime(self) -> float:
            self.ahead += 20  # the process was stopped between the two
            return super().boottime() + self.ahead

    world.clock = Stopped()
    provider = world.provider()
    ready = provider.preflight(machine, Step.REBOOT)
    with pytest.raises(Retry, match=r"was not sent: a look at the BMC of node-3 .* took more than 15 s"):
        provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.mutating_calls() == 0


# ---------------------------------------------------------------- a BMC that cannot be asked


def test_a_bmc_that_is_not_there_is_tried_again_later(world: RedfishWorld, machine: Machine) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        port = closed.server_address[1]
    world.inventory(f"http://127.0.0.1:{port}")
    provider = world.provider()
    ask: list[Callable[[], Any]] = [
        lambda: provider.preflight(machine, Step.REBOOT),
        lambda: provider.down(machine),
        lambda: provider.poll(machine, reference_to(machine)),
        lambda: provider.finish(machine, reference_to(machine, reset="ForceOff")),
        lambda: provider.start(machine, Step.REBOOT, TOKEN, reference_to(machine)),
    ]
    for asked in ask:
        with pytest.raises(Retry) as raised:
            asked()
        assert raised.value.reason.startswith(f"the BMC of node-3 at 127.0.0.1:{port} did not answer: ")
        assert "Connection refused" in raised.value.reason
        assert raised.value.after.total_seconds() == 15


def reference_to(machine: Machine, **more: Any) -> Reference:
    data = {"machine": machine.id, "system": PATH, "reset": "ForceRestart", "power": "On", **more}
    return Reference("baremetal", Step.REBOOT, data)


def test_a_reference_to_another_machine_or_action_reaches_no_bmc(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    mine = reference_to(machine)
    for strange in (
        reference_to(replace(machine, id=OTHER)),
        replace(mine, provider="azure"),
        replace(mine, action=Step.REPLACE),
    ):
        for use in (
            lambda strange=strange: provider.start(machine, Step.REBOOT, TOKEN, strange),
            lambda strange=strange: provider.poll(machine, strange),
            lambda strange=strange: provider.finish(machine, strange),
        ):
            with pytest.raises(Refused, match="the reference "):
                use()
    assert world.calls() == 0


def test_credentials_that_are_not_accepted_are_named_by_their_directory(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.credentials(USERNAME, "another password")
    with pytest.raises(Retry):
        provider.preflight(machine, Step.REBOOT)
    world.later()
    with pytest.raises(Refused) as raised:
        provider.preflight(machine, Step.REBOOT)
    assert "(HTTP 401)" in raised.value.reason
    assert str(world.folder / "bmc" / "rack-1") in raised.value.reason
    assert "another password" not in raised.value.reason


def test_credentials_are_read_anew_for_each_call(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.credentials(USERNAME, "another password")
    with pytest.raises(Retry):
        provider.preflight(machine, Step.REBOOT)
    world.credentials(USERNAME, PASSWORD)
    assert provider.preflight(machine, Step.REBOOT).not_yet == ""


def test_what_was_asked_a_moment_ago_is_not_asked_again(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    reference = begun(provider, machine)
    provider.poll(machine, reference)
    provider.preflight(machine, Step.REBOOT)
    asked = world.calls()
    for _ in range(10):
        provider.poll(machine, reference)
        provider.preflight(machine, Step.REBOOT)
    assert world.calls() == asked


def test_the_answer_to_one_question_is_none_to_another(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    reference = begun(provider, machine)
    world.emulator.change(MINE, power_state="Off")
    assert isinstance(provider.poll(machine, reference), Running)
    assert isinstance(
        provider.poll(machine, reference_to(machine, reset="ForceOff", accepted=True)), Unfinished
    )


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certify(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[Emulator]:
    with Emulator(tmp_path_factory.mktemp("tls"), {MINE: "On"}, certificate) as found:
        yield found


def test_a_bmc_of_the_authority_beside_its_credentials_is_trusted(
    world: RedfishWorld, secure: Emulator, certificate: Certificate
) -> None:
    world.inventory(secure.url)
    world.credentials(USERNAME, PASSWORD, certificate.authority)
    provider = world.provider()
    machine = provider.identify(NODE)
    begun(provider, machine)
    assert secure.pending(MINE) == "ForceRestart"
    assert len([r for r in secure.requests if r.startswith("POST")]) == 1


@pytest.mark.parametrize("authority", ["another", "none"])
def test_a_foreign_certificate_is_refused_before_any_credentials_are_sent(
    world: RedfishWorld, secure: Emulator, tmp_path: Path, authority: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = secure.requests
    world.inventory(secure.url)
    foreign = certify(tmp_path / "foreign").authority
    world.credentials(USERNAME, PASSWORD, foreign if authority == "another" else None)
    provider = world.provider()
    machine = provider.identify(NODE)
    for use in (
        lambda: provider.preflight(machine, Step.REBOOT),
        lambda: provider.start(machine, Step.REBOOT, TOKEN, reference_to(machine)),
    ):
        told = r"is not who it should be, by its certificate \((self-signed|unable to get local issuer) "
        with pytest.raises(Refused, match=told) as raised:
            use()
        assert str(world.folder / "bmc" / "rack-1" / "ca.crt") in raised.value.reason
    assert secure.requests == asked


def test_an_authority_from_the_environment_is_not_taken(
    world: RedfishWorld, secure: Emulator, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.authority))
    world.inventory(secure.url)
    with pytest.raises(Refused, match="is not who it should be"):
        world.provider().preflight(world.provider().identify(NODE), Step.REBOOT)


def test_verification_can_be_switched_off_for_one_machine_and_that_is_told(
    world: RedfishWorld, secure: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    world.inventory(secure.url, more=", verify: false")
    with caplog.at_level(logging.WARNING):
        provider = world.provider()
    assert "inventory.yaml:4: verify: false: whoever answers at 127.0.0.1:" in caplog.text
    ready = provider.preflight(provider.identify(NODE), Step.REBOOT)
    assert ready.notes == (
        f"the certificate of the BMC of node-3 at 127.0.0.1:{secure.port} is not verified",
    )


# ---------------------------------------------------------------- BMCs that misbehave


class Crooked(ThreadingHTTPServer):
    """Answers what it is told to: path -> status, headers, and pieces of a body (a float is a pause)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, Mapping[str, str], Sequence[bytes | float]]] = {}
        self.asked: list[tuple[str, str]] = []
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def system(self, path: str = PATH, **more: Any) -> None:
        action = {"target": f"{path}/Reset", "ResetType@Redfish.AllowableValues": ["ForceRestart", "On"]}
        actions = {"#ComputerSystem.Reset": more.pop("action", action)}
        self.document(path, {"Id": "1", "UUID": MINE, "PowerState": "On", "Actions": actions, **more})

    def document(self, path: str, content: Any, status: int = 200, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = (status, named, (json.dumps(content).encode(),))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients hang up here."""


class _Handler(BaseHTTPRequestHandler):
    server: Crooked

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((f"{self.command} {self.path}", self.headers.get("Authorization", "")))
        status, headers, pieces = self.server.answers.get(self.path, (404, {}, ()))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in pieces:
            if isinstance(piece, bytes):
                self.wfile.write(piece)
                self.wfile.flush()
            else:
                self.server.over.wait(piece)

    do_POST = do_CONNECT = do_GET  # noqa: N815 (named by http.server)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def served() -> Iterator[Crooked]:
    with Crooked() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def crooked() -> Iterator[Crooked]:
    yield from served()


@pytest.fixture
def thief() -> Iterator[Crooked]:
    """Who would like to have the credentials."""
    yield from served()


@pytest.fixture
def deceived(world: RedfishWorld, crooked: Crooked) -> RedfishProvider:
    """A provider whose BMC is the crooked one."""
    crooked.system()
    world.inventory(f"{crooked.url}{PATH}")
    return world.provider()


def test_the_crooked_bmc_is_a_good_one_until_it_is_told_otherwise(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    crooked.answers[f"{PATH}/Reset"] = (204, {}, ())
    begun(deceived, machine)
    assert [asked for asked, _ in crooked.asked].count(f"POST {PATH}/Reset") == 1


def test_a_task_that_the_bmc_makes_of_it_is_not_waited_for(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    crooked.document(f"{PATH}/Reset", {}, 202, Location="/redfish/v1/TaskService/Tasks/1", Retry_After="60")
    begun(deceived, machine)
    assert crooked.asked[-1][0] == f"POST {PATH}/Reset"


@pytest.mark.parametrize(
    "given", [("7", 7), ("99999999", 600), ("Fri, 31 Dec 1999 23:59:59 GMT", 15), ("²", 15)]
)
def test_a_bmc_that_is_busy_may_say_for_how_long(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked, given: tuple[str, int]
) -> None:
    crooked.document(f"{PATH}/Reset", {}, 429, Retry_After=given[0])
    with pytest.raises(Retry, match="is busy: the reset was not done") as raised:
        begun(deceived, machine)
    assert raised.value.after.total_seconds() == given[1]


def test_an_answer_in_chunks_is_read_and_bounded_too(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    (whole,) = crooked.answers[PATH][2]
    assert isinstance(whole, bytes)
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in (whole[:50], whole[50:])]
    crooked.answers[PATH] = (200, {"Transfer-Encoding": "chunked"}, [*chunks, b"0\r\n\r\n"])
    assert deceived.preflight(machine, Step.REBOOT).reference.data["reset"] == "ForceRestart"
    crooked.answers[PATH] = (
        200,
        {"Transfer-Encoding": "chunked"},
        [b"10000\r\n", b" " * 65536, b"\r\n"] * 20,
    )
    with pytest.raises(Retry, match="gave no usable answer"):
        world_later(deceived).preflight(machine, Step.REBOOT)


def test_a_system_whose_path_is_none_of_redfishs_is_refused_before_anything(
    world: RedfishWorld, machine: Machine, crooked: Crooked
) -> None:
    strange = "/redfish/v1/Systems/a%20b"
    crooked.system(strange)
    crooked.document("/redfish/v1/", {"Id": "r", "Systems": {"@odata.id": "/redfish/v1/Systems"}})
    crooked.document("/redfish/v1/Systems", {"Name": "s", "Members": [{"@odata.id": strange}]})
    world.inventory(crooked.url)
    with pytest.raises(Refused, match="which is no path of Redfish"):
        world.provider().preflight(machine, Step.REBOOT)


def test_where_the_action_has_its_values_elsewhere_they_are_read_there(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    info = f"{PATH}/ResetActionInfo"
    crooked.system(action={"target": f"{PATH}/Reset", "@Redfish.ActionInfo": info})
    values = [{"Name": "ResetType", "AllowableValues": ["PowerCycle", "On"]}]
    crooked.document(info, {"Id": "R", "Name": "R", "Parameters": values})
    assert deceived.preflight(machine, Step.REBOOT).reference.data["reset"] == "PowerCycle"


def test_where_the_action_has_its_values_where_nothing_is_the_usual_is_tried(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    """A dead node was handed to a person since its BMC "refused a look at it (HTTP 404)"."""
    info = {"@Redfish.ActionInfo": f"{PATH}/ResetActionInfo"}
    crooked.system(action={"target": f"{PATH}/Reset", **info})
    assert deceived.preflight(machine, Step.REBOOT).reference.data["reset"] == "ForceRestart"


def test_where_the_action_has_its_values_where_the_user_is_refused_he_is_asked_for_again(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    info = f"{PATH}/ResetActionInfo"
    crooked.system(action={"target": f"{PATH}/Reset", "@Redfish.ActionInfo": info})
    crooked.document(info, {}, status=401)
    with pytest.raises(Retry, match="asking again"):
        deceived.preflight(machine, Step.REBOOT)


def test_where_it_is_not_said_what_is_offered_the_usual_is_tried(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    crooked.system(action={"target": f"{PATH}/Reset"})
    assert deceived.preflight(machine, Step.REBOOT).reference.data["reset"] == "ForceRestart"


@pytest.mark.parametrize(
    "pieces",
    [
        (b"<html>", b"a page for people</html>"),
        (b"[]",),
        (b"null",),
        (b"",),
        (b"[" * 100_000,),
        (b'{"Id": "', b"x" * (1024 * 1024), b'"}'),
        (b'{"Id": "1", "UUID": "' + MINE.encode() + b'", "PowerState": "On", "Actions": "none"}',),
        (b'{"UUID": "' + MINE.encode() + b'"}',),
    ],
    ids=["html", "list", "null", "nothing", "deep", "long", "malformed", "half"],
)
def test_an_answer_that_is_none_is_tried_again_later(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked, pieces: Sequence[bytes]
) -> None:
    crooked.answers[PATH] = (200, {}, pieces)
    with pytest.raises(Retry, match=r"the BMC of node-3 at .* gave (no usable answer|an answer that cannot)"):
        deceived.preflight(machine, Step.REBOOT)


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    drops: list[bytes | float] = [0.2, b" "]
    crooked.answers[PATH] = (200, {}, [b"{", *drops * 100])
    begun = time.monotonic()
    with pytest.raises(Retry, match="gave no usable answer"):
        deceived.preflight(machine, Step.REBOOT)
    assert time.monotonic() - begun < QUICK.read + 1


def test_a_silent_bmc_is_not_waited_for(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    crooked.answers[PATH] = (200, {}, [20.0])
    begun = time.monotonic()
    with pytest.raises(Retry):
        deceived.preflight(machine, Step.REBOOT)
    assert time.monotonic() - begun < QUICK.read + 1


def test_a_redirect_within_the_bmc_is_followed_once(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    """HPE's answer a path without a slash at its end with one."""
    crooked.system(f"{PATH}/")
    crooked.document(PATH, {}, 308, Location=f"{PATH}/")
    assert deceived.preflight(machine, Step.REBOOT).reference.data["reset"] == "ForceRestart"
    crooked.document(f"{PATH}/", {}, 308, Location=PATH)
    with pytest.raises(Refused, match=r"refused a look at it \(HTTP 308\)"):
        world_later(deceived).preflight(machine, Step.REBOOT)


def world_later(provider: RedfishProvider) -> RedfishProvider:
    provider._clock.ahead += 60  # type: ignore[attr-defined]
    return provider


@pytest.mark.parametrize("where", ["{thief}/take", "//{host}/take", "http://user@{host}/take"])
def test_neither_a_redirect_nor_a_target_leads_to_another_host(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked, thief: Crooked, where: str
) -> None:
    elsewhere = where.format(thief=thief.url, host=thief.url.removeprefix("http://"))
    ready = deceived.preflight(machine, Step.REBOOT)
    crooked.document(f"{PATH}/Reset", {}, 307, Location=elsewhere)
    with pytest.raises(Ambiguous, match="HTTP 307"):
        deceived.start(machine, Step.REBOOT, TOKEN, ready.reference)
    crooked.system(action={"target": elsewhere, "ResetType@Redfish.AllowableValues": ["ForceRestart"]})
    with pytest.raises(Refused, match="names an address that is not its own: no credentials are sent there"):
        deceived.start(machine, Step.REBOOT, TOKEN, ready.reference)
    crooked.document(PATH, {}, 302, Location=elsewhere)
    with pytest.raises(Refused, match="names an address that is not its own"):
        world_later(deceived).preflight(machine, Step.REBOOT)
    assert thief.asked == []


def test_a_proxy_from_the_environment_is_not_used(
    deceived: RedfishProvider, machine: Machine, thief: Crooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, thief.url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert deceived.preflight(machine, Step.REBOOT).not_yet == ""
    assert thief.asked == []


def test_what_a_bmc_repeats_of_its_credentials_is_in_no_sentence(
    deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    ready = deceived.preflight(machine, Step.REBOOT)
    sent = crooked.asked[-1][1]
    assert sent.startswith("Basic ")
    told = error("Base.1.0.Refused", f"not with {PASSWORD} nor\n{sent} " + "x" * 1000)
    crooked.document(f"{PATH}/Reset", told, 400)
    with pytest.raises(Refused, match=r"Base\.1\.0\.Refused: not with ") as raised:
        deceived.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert PASSWORD not in raised.value.reason
    assert sent.split()[1] not in raised.value.reason
    assert "\n" not in raised.value.reason
    assert len(raised.value.reason) < 400
    assert PASSWORD not in repr(deceived._inventory.credentials_for(deceived._inventory.find(machine)))


# ---------------------------------------------------------------- a record that somebody changed


def test_a_reference_holds_neither_address_nor_credentials(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    reference = begun(provider, machine)
    assert dict(reference.data) == {
        "machine": MINE,
        "system": PATH,
        "reset": "ForceRestart",
        "power": "On",
        "accepted": True,
    }


def test_a_record_that_somebody_changed_sends_the_credentials_nowhere(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine, thief: Crooked
) -> None:
    reference = begun(provider, machine)
    host = thief.url.removeprefix("http://")
    for stolen in (f"{thief.url}{PATH}", f"//{host}{PATH}", f"@{host}/redfish/v1", "/redfish/../x", ".", ""):
        changed = Reference("baremetal", Step.REBOOT, {**reference.data, "system": stolen})
        for use in (
            lambda changed=changed: provider.poll(machine, changed),
            lambda changed=changed: provider.start(machine, Step.REBOOT, TOKEN, changed),
            lambda changed=changed: provider.finish(
                machine, replace(changed, data={**changed.data, "reset": "ForceOff"})
            ),
        ):
            with pytest.raises(Refused, match="which is no path of Redfish"):
                use()
    more = {"address": thief.url, "bmc": thief.url, "origin": thief.url, "credentials": "rack-2"}
    provider.poll(machine, Reference("baremetal", Step.REBOOT, {**reference.data, **more}))
    assert thief.asked == []
    assert world.mutating_calls() == 1


def test_a_record_cannot_ask_for_another_reset(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    for kind in ("Nmi", "ForceOff", "GracefulShutdown", "", None):
        with pytest.raises(Retry, match="says something else"):
            provider.start(machine, Step.REBOOT, TOKEN, reference_to(machine, reset=kind))
    assert world.mutating_calls() == 0


def test_a_record_cannot_name_another_machines_system(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    other = f"/redfish/v1/Systems/{OTHER}"
    with pytest.raises(Refused, match=f"states the UUID {OTHER}, and the machine is {MINE}"):
        provider.start(machine, Step.REBOOT, TOKEN, reference_to(machine, system=other))
    with pytest.raises(Refused, match=f"states the UUID {OTHER}"):
        provider.finish(machine, reference_to(machine, system=other, reset="ForceOff"))
    assert isinstance(provider.poll(machine, reference_to(machine, system=other)), Gone)
    assert world.mutating_calls() == 0


# ---------------------------------------------------------------- how a reset stands


def test_that_it_is_on_again_is_no_proof(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    reference = begun(provider, machine)
    off = provider.poll(machine, reference)
    assert isinstance(off, Running)
    assert "says that it is Off" in off.sentence
    world.finish_action(Step.REBOOT)
    on = provider.poll(machine, reference)
    assert isinstance(on, Running)
    assert on.sentence.endswith("says that it is on; a new boot ID is the proof")


BEFORE, SINCE = "2026-11-21T10:00:00+00:00", "2026-11-21T10:15:03+00:00"


@pytest.mark.parametrize(
    ("last", "progress", "accepted", "expected"),
    [
        (SINCE, "OSRunning", False, Running),
        (SINCE, "", True, Running),
        (BEFORE, "OSRunning", False, NotApplied),
        (BEFORE, "", False, Unseen),
        (BEFORE, "MemoryInitializationStarted", False, Unseen),
        (BEFORE, "OSRunning", True, Running),
        ("", "OSRunning", False, Unseen),
    ],
)
def test_a_bmc_that_knows_its_last_reset_tells_whether_this_one_was_carried_out(
    deceived: RedfishProvider,
    machine: Machine,
    crooked: Crooked,
    last: str,
    progress: str,
    accepted: bool,
    expected: type,
) -> None:
    crooked.system(LastResetTime=BEFORE)
    ready = deceived.preflight(machine, Step.REBOOT)
    assert ready.reference.data["last_reset"] == BEFORE
    shown: dict[str, Any] = {"BootProgress": {"LastState": progress}} if progress else {}
    crooked.system(LastResetTime=last, **shown)
    data = {**ready.reference.data, **({"accepted": True} if accepted else {})}
    found = deceived.poll(machine, Reference("baremetal", Step.REBOOT, data))
    assert type(found) is expected
    assert (f"and was reset at {SINCE}" in found.sentence) == (last == SINCE)  # type: ignore[union-attr]


def test_an_order_to_switch_on_that_had_no_effect_is_seen(world: RedfishWorld) -> None:
    provider = world.provider()
    world.inventory(world.proxy.url, IS_OFF)
    machine = provider.identify(replace(NODE, system_uuid=IS_OFF))
    ready = provider.preflight(machine, Step.REBOOT)
    world.proxy.reset(ANY_POST)
    with pytest.raises(Ambiguous):
        provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert isinstance(provider.poll(machine, ready.reference), NotApplied)


def test_another_machine_behind_the_bmc_means_that_this_one_is_gone(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    reference = begun(provider, machine)
    world.emulator.change(MINE, uuid=OTHER)
    found = provider.poll(machine, reference)
    assert isinstance(found, Gone)
    assert f"another machine is behind the BMC of node-3 at 127.0.0.1:{world.proxy.url[17:]}: {OTHER}" in (
        found.sentence
    )


def test_a_bmc_that_knows_nothing_for_a_while_is_asked_again(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    """It may be starting itself."""
    reference = begun(provider, machine)
    world.emulator.change(MINE, uuid="")
    with pytest.raises(Retry, match="states no UUID"):
        provider.poll(machine, reference)
    world.emulator.reset(OTHER)
    with pytest.raises(Retry, match=r"HTTP 404"):
        provider.poll(machine, reference)


# ---------------------------------------------------------------- off, and on again


@pytest.fixture
def off_and_on(world: RedfishWorld) -> RedfishProvider:
    world.offers("On", "ForceOff", "GracefulRestart")
    return world.provider()


def switched_off(world: RedfishWorld, provider: RedfishProvider, machine: Machine) -> Reference:
    reference = begun(provider, machine)
    world.emulator.release()
    world.emulator.hold()
    assert world.resets() == ["ForceOff"]
    return reference


def test_it_is_switched_on_only_once_it_is_off(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine
) -> None:
    reference = begun(off_and_on, machine)
    assert isinstance(off_and_on.poll(machine, reference), Running)
    off_and_on.finish(machine, reference)
    assert world.resets() == ["ForceOff"]
    world.finish_action(Step.REBOOT)
    found = off_and_on.poll(machine, reference)
    assert isinstance(found, Unfinished)
    assert "has switched it off, and is to switch it on again" in found.sentence
    off_and_on.finish(machine, reference)
    assert world.resets() == ["ForceOff", "On"]
    assert isinstance(off_and_on.poll(machine, reference), Running)


OFF_AND_ON = {"target": f"{PATH}/Reset", "ResetType@Redfish.AllowableValues": ["ForceOff", "On"]}


@pytest.mark.parametrize(
    ("before", "last", "accepted", "expected"),
    [
        (BEFORE, SINCE, False, Unfinished),
        (BEFORE, BEFORE, True, Unfinished),
        ("", "", True, Unfinished),
        (BEFORE, BEFORE, False, Unseen),
        (BEFORE, "", False, Unseen),
        ("", "", False, Unseen),
    ],
)
def test_a_machine_that_somebody_else_may_have_switched_off_is_not_switched_on(
    deceived: RedfishProvider,
    machine: Machine,
    crooked: Crooked,
    before: str,
    last: str,
    accepted: bool,
    expected: type,
) -> None:
    """The request was lost on its way, and a technician switched the machine off to work on it. That was told
    as done by the request, and the machine was switched on again."""
    crooked.system(LastResetTime=before, action=OFF_AND_ON)
    ready = deceived.preflight(machine, Step.REBOOT)
    assert ready.reference.data["reset"] == "ForceOff"
    crooked.system(LastResetTime=last, action=OFF_AND_ON, PowerState="Off")
    data = {**ready.reference.data, **({"accepted": True} if accepted else {})}
    reference = Reference("baremetal", Step.REBOOT, data)
    found = deceived.poll(machine, reference)
    assert type(found) is expected
    if expected is Unseen:
        assert found.sentence.endswith("says that it is off; by whom is not known")  # type: ignore[union-attr]
        deceived.finish(machine, reference)
        assert not [path for method, path in crooked.asked if method == "POST"]


def test_a_bmc_that_is_slow_to_switch_on_is_not_asked_all_the_time(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine
) -> None:
    reference = switched_off(world, off_and_on, machine)
    off_and_on.finish(machine, reference)
    with pytest.raises(Retry, match="was asked 0 s ago to switch it on, and says that it is off"):
        off_and_on.finish(machine, reference)
    assert world.resets() == ["ForceOff", "On"]
    world.later()
    off_and_on.finish(machine, reference)
    assert world.resets() == ["ForceOff", "On", "On"]


def test_whoever_comes_after_the_one_that_switched_off_switches_on(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine
) -> None:
    reference = switched_off(world, off_and_on, machine)
    another = world.provider()
    assert isinstance(another.poll(machine, reference), Unfinished)
    another.finish(machine, reference)
    assert world.resets() == ["ForceOff", "On"]


def test_a_lost_answer_to_switching_on_is_only_another_try(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine
) -> None:
    reference = switched_off(world, off_and_on, machine)
    world.lose_answer()
    with pytest.raises(Retry, match="its answer was lost"):
        off_and_on.finish(machine, reference)


def test_a_refusal_because_it_is_on_already_is_none(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine
) -> None:
    reference = switched_off(world, off_and_on, machine)
    world.answers(400, error("iLO.2.14.InvalidOperationForSystemState"))
    with pytest.raises(Refused, match="InvalidOperationForSystemState"):
        off_and_on.finish(machine, reference)
    world.later()
    on_meanwhile = world.proxy._state.rules[0]  # the first edit is of what the BMC offers
    change = on_meanwhile.edit
    assert change is not None
    looks = iter(["Off", "On"])
    on_meanwhile.edit = lambda body: change(body).replace(
        b'"PowerState": "Off"', f'"PowerState": "{next(looks)}"'.encode()
    )
    world.answers(400, error("iLO.2.14.InvalidOperationForSystemState"))
    off_and_on.finish(machine, reference)
    assert world.resets() == ["ForceOff", "On", "On"]


@pytest.mark.parametrize("how", ["no UUID", "404", "401"])
def test_one_answer_of_a_bmc_that_is_starting_leaves_no_machine_switched_off(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine, how: str
) -> None:
    reference = switched_off(world, off_and_on, machine)
    if how == "401":
        world.proxy.answer(SYSTEM, b"{}", "application/json", status=401)
    else:
        knows_nothing(world, how)
    rules = world.proxy._state.rules
    rules.insert(0, rules.pop())  # before the edit of what the BMC offers
    with pytest.raises(Retry):
        off_and_on.finish(machine, reference)
    assert world.resets() == ["ForceOff"]
    off_and_on.finish(machine, reference)
    assert world.resets() == ["ForceOff", "On"]


@pytest.mark.parametrize("how", ["broken", "another machine's line", "no line", "no Secret"])
def test_no_mistake_in_the_inventory_leaves_a_machine_switched_off(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine, how: str
) -> None:
    """It was handed over to a person then, switched off."""
    reference = switched_off(world, off_and_on, machine)
    file = Path(world.environ["BMC_INVENTORY"])
    (password,) = Path(world.environ["BMC_CREDENTIALS"]).glob("*/password")
    before = {path: path.read_text() for path in (file, password)}
    wrong = {"broken": "machines: []", "another machine's line": before[file].replace(MINE, OTHER)}
    if how == "no Secret":
        password.unlink()
    else:
        head, _, _ = before[file].partition("machines:")
        file.write_text(wrong.get(how, f"{head}machines: []"))
    with pytest.raises(Retry):
        off_and_on.finish(machine, reference)
    assert world.resets() == ["ForceOff"]
    for path, text in before.items():
        path.write_text(text)
    off_and_on.finish(machine, reference)
    assert world.resets() == ["ForceOff", "On"]


def test_a_bmc_that_refuses_to_switch_on_what_it_has_begun_to_is_behind(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine
) -> None:
    """It took the first order, and says still that it is off. A person got the machine as it booted."""
    reference = switched_off(world, off_and_on, machine)
    off_and_on.finish(machine, reference)
    world.later()
    world.answers(400, error("iLO.2.14.InvalidOperationForSystemState"))
    with pytest.raises(Retry, match="InvalidOperationForSystemState"):
        off_and_on.finish(machine, reference)


def test_one_refusal_of_good_credentials_leaves_no_machine_switched_off(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine
) -> None:
    reference = switched_off(world, off_and_on, machine)
    world.answers(401, None)
    with pytest.raises(Retry, match=r"did not permit the reset \(HTTP 401\)"):
        off_and_on.finish(machine, reference)
    world.later()
    off_and_on.finish(machine, reference)
    assert world.resets() == ["ForceOff", "On", "On"]


def test_an_order_to_switch_on_that_was_turned_away_is_none_that_it_took(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine
) -> None:
    """Else what it refuses after one 401 passed for an order that it has begun to carry out, until the step's
    deadline and a quarter of an hour: the machine is off, and nobody is told."""
    reference = switched_off(world, off_and_on, machine)
    world.answers(401, None)
    with pytest.raises(Retry, match=r"\(HTTP 401\).*; asking again"):
        off_and_on.finish(machine, reference)
    world.clock.ahead += 30
    world.answers(403, None)
    with pytest.raises(Refused, match=r"\(HTTP 403\)"):
        off_and_on.finish(machine, reference)


def test_credentials_that_every_order_to_switch_on_is_refused_for_are_a_persons(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine
) -> None:
    reference = switched_off(world, off_and_on, machine)
    for expected in (Retry, Retry, Refused):
        world.answers(401, None)
        with pytest.raises(expected, match=r"\(HTTP 401\)"):
            off_and_on.finish(machine, reference)
        world.clock.ahead += 30
    assert world.resets() == ["ForceOff", "On", "On", "On"]


def test_a_bmc_is_behind_for_five_minutes_after_the_order_that_it_took(
    world: RedfishWorld, off_and_on: RedfishProvider, machine: Machine
) -> None:
    reference = switched_off(world, off_and_on, machine)
    off_and_on.finish(machine, reference)
    for expected in (*[Retry] * 4, Refused):
        world.later()
        world.answers(400, error("iLO.2.14.InvalidOperationForSystemState"))
        with pytest.raises(expected, match="InvalidOperationForSystemState"):
            off_and_on.finish(machine, reference)


def test_what_has_no_second_step_is_not_finished(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    reference = begun(provider, machine)
    asked = world.calls()
    provider.finish(machine, reference)
    assert world.calls() == asked


# ---------------------------------------------------------------- a witness, and doctor


def test_a_bmc_is_a_witness_that_the_power_is_off(world: RedfishWorld, machine: Machine) -> None:
    provider = world.provider()
    assert provider.down(machine) is None
    world.emulator.change(MINE, power_state="PoweringOff")
    assert provider.down(machine) is None
    world.emulator.change(MINE, power_state="Off")
    assert provider.down(machine) == "its BMC says that the power is off"
    assert world.mutating_calls() == 0


HURRIED = Limits(connect=2.0, read=1.0, patience=0.0)
"""Nobody waits for the first answer."""


def looked(world: RedfishWorld, provider: RedfishProvider, later: float) -> None:
    """The look that nobody waited for has its answer, and time goes by."""
    for look in provider._looks._looks.values():
        assert look.done.wait(10)
    world.clock.ahead += later


def test_that_the_power_was_off_half_a_minute_ago_does_not_show_that_it_is(
    world: RedfishWorld, machine: Machine
) -> None:
    provider = world.provider(HURRIED)
    world.emulator.change(MINE, power_state="Off")
    with pytest.raises(Retry, match="has not answered yet"):
        provider.down(machine)
    looked(world, provider, 30)
    world.emulator.change(MINE, power_state="On")
    assert provider.down(machine) is None


def test_what_a_bmc_said_right_after_a_lost_answer_does_not_show_a_minute_later_that_it_had_no_effect(
    world: RedfishWorld, deceived: RedfishProvider, machine: Machine, crooked: Crooked
) -> None:
    """It was about to carry it out: a second reset would come in the midst of the boot."""
    runs: dict[str, Any] = {"BootProgress": {"LastState": "OSRunning"}}
    crooked.system(LastResetTime=BEFORE, **runs)
    reference = deceived.preflight(machine, Step.REBOOT).reference
    hurried = world.provider(HURRIED)
    with pytest.raises(Retry, match="has not answered yet"):
        hurried.poll(machine, reference)
    looked(world, hurried, 58)
    crooked.system(LastResetTime=SINCE)
    assert isinstance(hurried.poll(machine, reference), Running)


def test_what_the_bmc_at_another_address_says_is_no_word_of_the_one_that_the_inventory_names_now(
    world: RedfishWorld, machine: Machine, crooked: Crooked
) -> None:
    """A person has just corrected the line, while the wrong one was being asked."""
    crooked.system(UUID=OTHER)
    world.inventory(f"{crooked.url}{PATH}")
    provider = world.provider(HURRIED)
    with pytest.raises(Retry, match="has not answered yet"):
        provider.preflight(machine, Step.REBOOT)
    looked(world, provider, 1)
    world.inventory(world.proxy.url)
    with pytest.raises(Retry, match="has not answered yet"):
        provider.preflight(machine, Step.REBOOT)
    looked(world, provider, 1)
    assert provider.preflight(machine, Step.REBOOT).reference.data["reset"] == "ForceRestart"


def test_a_witness_of_another_machine_is_none(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.emulator.change(MINE, uuid=OTHER, power_state="Off")
    world.inventory(f"{world.proxy.url}{PATH}")
    with pytest.raises(Refused, match=f"states the UUID {OTHER}"):
        provider.down(machine)


def test_what_a_bmc_said_of_its_power_before_a_reset_is_not_what_it_says_after_it(
    world: RedfishWorld, machine: Machine
) -> None:
    """It had not answered yet when it was asked: who asks waits for none that may not answer."""
    provider = world.provider(replace(QUICK, patience=0.0))
    world.emulator.change(MINE, power_state="Off")
    asked = world.calls()
    with pytest.raises(Retry, match="was asked, and has not answered yet"):
        provider.down(machine)
    eventually(lambda: world.calls() == asked + 3)
    eventually(lambda: not looking())
    world.emulator.change(MINE, power_state="On")
    reference = world.provider().preflight(machine, Step.REBOOT).reference
    provider.start(machine, Step.REBOOT, TOKEN, reference)
    with pytest.raises(Retry, match="was asked, and has not answered yet"):
        provider.down(machine)


def looking() -> bool:
    return any(thread.name == "look at a BMC" for thread in threading.enumerate())


def eventually(true: Callable[[], bool]) -> None:
    """Within seconds, since a BMC is asked in a thread of its own."""
    until = time.monotonic() + 10
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


REBOOT = frozenset({Step.REBOOT})


def test_doctor_says_that_all_is_well(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    first, second = provider.examine(machine, REBOOT, own=True)
    assert (first.ok, second.ok) == (True, True)
    assert first.sentence.endswith("inventory.yaml: 1")
    assert second.sentence == (
        "the BMC of node-3 takes the credentials and states the UUID of the machine, which is On; its reboot "
        "would be ForceRestart"
    )
    assert world.mutating_calls() == 0


@pytest.mark.parametrize(("own", "ok"), [(True, False), (False, None)])
def test_doctor_says_what_is_missing(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine, own: bool, ok: bool | None
) -> None:
    world.credentials(USERNAME, "wrong")
    found = list(provider.examine(machine, REBOOT, own))[-1]
    assert found.ok is ok
    assert "(HTTP 401)" in found.sentence
    assert found.remedy


def test_doctor_asks_nobody_about_its_own_node(world: RedfishWorld, machine: Machine) -> None:
    world.environ |= {"RECOVERY_MODE": "sidecar", "NODE_NAME": "node-3"}
    found = list(world.provider().examine(machine, REBOOT, own=True))[-1]
    assert found.ok is True
    assert "a peer does it once the node is dead" in found.sentence
    assert world.calls() == 0


def test_doctor_shows_a_broken_inventory_and_a_bmc_that_does_not_answer(
    world: RedfishWorld, provider: RedfishProvider, machine: Machine
) -> None:
    world.proxy.reset("GET *", times=9)
    assert list(provider.examine(machine, REBOOT, own=True))[-1].ok is None
    Path(world.environ["BMC_INVENTORY"]).write_text("machines: []")
    found = list(provider.examine(machine, REBOOT, own=True))
    assert [(f.ok, f.sentence.partition("yaml")[2]) for f in found] == [
        (False, ":1: field apiVersion: missing"),
        (False, ":1: field kind: missing"),
    ]
    assert [f.ok for f in world_without(world).examine(None, REBOOT, own=True)] == [False]
    world.environ["RECOVERY_MODE"] = "sidecar"  # it needs none
    assert [f.ok for f in world.provider().examine(None, REBOOT, own=True)] == [True]


@pytest.mark.parametrize(("steps", "missing"), [(REBOOT, False), (frozenset[Step](), None)])
def test_doctor_where_bmcs_are_asked_looks_for_each_secret_without_a_node_too(
    world: RedfishWorld, steps: frozenset[Step], missing: bool | None
) -> None:
    world.environ["RECOVERY_MODE"] = "fleet"
    (found,) = world.provider().examine(None, steps, own=True)
    assert found.ok is True
    for file in Path(world.environ["BMC_CREDENTIALS"]).glob("*/password"):
        file.unlink()
    _, found = world.provider().examine(None, steps, own=True)
    assert found.ok is missing
    assert "password (No such file or directory): expected a Secret" in found.sentence
    (found,) = world_without(world).examine(None, steps, own=True)
    assert found.ok is missing
    assert found.sentence.endswith(
        "BMC_INVENTORY is not set, and BMC_NETWORKS names no network for annotations"
    )
    first, *_ = world.provider().examine(world.provider().identify(NODE), steps, own=True)
    assert first == found, "with a node as without"
    world.environ["BMC_NETWORKS"] = "10.0.7.0/24"
    (found,) = world.provider().examine(None, steps, own=True)
    assert found.ok is True
    assert world.calls() == 0


@pytest.mark.parametrize(("mode", "said"), [("fleet", True), ("concluder", True), ("sidecar", False)])
def test_whoever_asks_bmcs_and_knows_of_none_says_so_when_it_starts(
    world: RedfishWorld, caplog: pytest.LogCaptureFixture, mode: str, said: bool
) -> None:
    world.environ["RECOVERY_MODE"] = mode
    world.provider()
    assert not caplog.records
    world_without(world)
    assert ("BMC_INVENTORY is not set" in caplog.text) is said


def world_without(world: RedfishWorld) -> RedfishProvider:
    del world.environ["BMC_INVENTORY"]
    return world.provider()
