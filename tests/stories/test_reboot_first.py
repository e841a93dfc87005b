"""A machine whose group cannot launch another is rebooted before it is replaced."""

from __future__ import annotations

import functools

import pytest
from recovery_testkit.provider import FakeProvider
from recovery_testkit.stage import Stage

from recovery.errors import Refused
from recovery.model import Phase, Step, Then
from tests.builders.policies import policy_file
from tests.stories.scenery import Cloud, Reaper, judge, pass_time, records
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    REBOOTS,
    boot,
    calls,
    cast,
    marked,
    no_place,
    npd_page,
    phase,
    record_sentences,
    remove_pod,
    says,
    stubborn_pod,
    the_record,
)
from tests.stories.test_power import Powered

FAULT = "NeuronHasError_DMA_ERROR"
FULL = "group workers could not launch at 12:03Z (InsufficientInstanceCapacity)"
ONLY_REPLACE = policy_file("{do: replace, within: 30m}")
KEPT = f"{FULL}: the machine is kept until the group has launched one"


def without_capacity(policy: bytes | None = None, provider: FakeProvider | None = None) -> Stage:
    s = cast(*(() if policy is None else (policy,)), provider=provider)
    s.provider.groups["workers"].cannot_launch = FULL
    return s


def steps(s: Stage) -> list[Step]:
    return [rung.do for rung in the_record(s).ladder]


def comes_up(s: Stage, *, healthy: bool) -> None:
    """The machine boots; its detector starts with it, and sees the fault again or not."""
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    if healthy:
        s.run(5)
        assert phase(s) is Phase.PROVING
        return
    s.run(5)
    s.fault("node-0")
    s.run(10)


def rebooted(policy: bytes | None = None) -> Stage:
    s = without_capacity(policy)
    s.fault("node-0")
    s.run(6)
    assert calls(s) == [("reboot", "m-0")]
    return s


def test_a_reboot_is_put_before_the_replacement_and_cures_the_machine() -> None:
    s = rebooted()
    assert steps(s) == [Step.DRAIN, Step.REBOOT, Step.REPLACE]
    why = f"{FAULT}: replace is put off, {FULL}: next: reboot, before it is replaced"
    assert why in record_sentences(s)
    assert says(s, "NextStep", why)
    comes_up(s, healthy=True)
    s.run(130)
    assert (phase(s), calls(s), marked(s), no_place(s)) == (
        Phase.RECOVERED,
        [("reboot", "m-0")],
        NO_MARKS,
        True,
    )


def test_where_only_somebody_outside_of_the_machine_may_reboot_it_nobody_inside_does() -> None:
    s = without_capacity(provider=Powered())
    s.fault("node-0")
    s.run(6)
    assert (steps(s), calls(s)) == ([Step.DRAIN, Step.REPLACE], []), "the replacement waits"


def test_a_fault_that_comes_back_has_the_machine_replaced_once_there_is_capacity() -> None:
    s = rebooted()
    s.provider.groups["workers"].cannot_launch = ""
    comes_up(s, healthy=False)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
    assert steps(s) == [Step.DRAIN, Step.REBOOT, Step.REPLACE]


def test_a_machine_that_a_reboot_does_not_cure_is_kept_while_there_is_no_capacity_and_that_is_said() -> None:
    s = rebooted()
    comes_up(s, healthy=False)
    s.run(45 * 60, step=5)
    assert (phase(s), calls(s), marked(s)) == (Phase.RECOVERING, [("reboot", "m-0")], ALL_MARKS)
    assert says(s, "Held", f"{FAULT}: replace: {KEPT}")
    told = s.actors["agent of node-0"].sentences[-1]
    assert told.startswith(f"{FAULT}: replace: {KEPT}; replace: ")
    assert "by its group" in told
    s.provider.groups["workers"].cannot_launch = ""
    s.run(15)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_a_group_that_launches_first_may_wait_by_itself() -> None:
    """It keeps the machine until it has another, and asks for one meanwhile."""
    s = rebooted()
    s.provider.groups["workers"].launches_first = True
    comes_up(s, healthy=False)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_a_group_that_is_short_for_want_of_capacity_does_not_hold_up_the_reboot() -> None:
    s = without_capacity()
    s.provider.groups["workers"].desired += 1
    s.fault("node-0")
    s.run(6)
    assert calls(s) == [("reboot", "m-0")]


def test_a_group_that_is_short_and_can_launch_is_waited_for_as_before() -> None:
    s = cast()
    s.provider.groups["workers"].desired += 1
    s.fault("node-0")
    s.run(30)
    assert (phase(s), calls(s)) == (Phase.WAITING, [])


def test_capacity_that_runs_out_during_the_drain_counts_and_capacity_that_comes_does_too() -> None:
    s = cast()
    stubborn_pod(s)
    s.fault("node-0")
    s.run(5)
    s.provider.groups["workers"].cannot_launch = FULL
    remove_pod(s)
    s.run(4)
    assert calls(s) == [("reboot", "m-0")]

    s = without_capacity()
    stubborn_pod(s)
    s.fault("node-0")
    s.run(5)
    s.provider.groups["workers"].cannot_launch = ""
    remove_pod(s)
    s.run(4)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize("launches_first", [False, True])
def test_capacity_that_runs_out_right_before_the_call_is_seen_by_the_last_look(launches_first: bool) -> None:
    s = cast()
    provider = s.provider
    provider.groups["workers"].launches_first = launches_first
    asked, preflight = [0], provider.preflight

    def runs_out(machine, action):  # type: ignore[no-untyped-def]
        asked[0] += the_record(s).rung == 1 and phase(s) is Phase.RECOVERING
        provider.groups["workers"].cannot_launch = FULL if asked[0] > 1 else ""
        return preflight(machine, action)

    provider.preflight = runs_out  # type: ignore[method-assign]
    s.fault("node-0")
    s.run(8)
    assert asked[0] > 1
    assert calls(s) == [("reboot", "m-0")]


def test_a_ladder_that_has_a_reboot_already_is_not_changed() -> None:
    s = rebooted(REBOOTS)
    assert steps(s) == [Step.DRAIN, Step.REBOOT, Step.REPLACE]
    assert the_record(s).ladder[1].then is Then.HAND_OVER
    comes_up(s, healthy=False)
    s.run(60)
    assert (steps(s), calls(s)) == ([Step.DRAIN, Step.REBOOT, Step.REPLACE], [("reboot", "m-0")])


def test_an_incident_in_which_a_reboot_did_not_help_gets_no_second_one() -> None:
    s = rebooted()
    comes_up(s, healthy=True)
    s.run(130)
    assert phase(s) is Phase.RECOVERED
    s.fault("node-0")
    s.run(60)
    assert (the_record(s).tried, steps(s)) == ((Step.REBOOT,), [Step.DRAIN, Step.REPLACE])
    assert (phase(s), calls(s), marked(s)) == (Phase.RECOVERING, [("reboot", "m-0")], ALL_MARKS)
    assert says(s, "Held", f"{FAULT}: replace: {KEPT}")
    s.provider.groups["workers"].cannot_launch = ""
    s.run(20)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


class CannotReboot(FakeProvider):
    actions = frozenset({Step.REPLACE})


def test_a_machine_that_cannot_be_rebooted_waits_for_capacity_out_of_service() -> None:
    s = without_capacity(provider=CannotReboot())
    s.fault("node-0")
    s.run(60)
    assert (phase(s), calls(s), marked(s)) == (Phase.RECOVERING, [], ALL_MARKS)
    assert says(s, "Held", f"{FAULT}: replace: {KEPT}")


@pytest.mark.parametrize("when", ["preflight", "call"])
def test_a_reboot_that_is_refused_and_that_no_policy_asked_for_is_passed_over(when: str) -> None:
    """As where the agent's role has no right to it: nothing is worse than before."""
    s = without_capacity()
    s.provider.groups["workers"].launches_first = True
    provider, denied = s.provider, Refused("AWS denied ec2:RebootInstances")
    first = provider.preflight if when == "preflight" else provider.start

    def refuses(machine, action, *more):  # type: ignore[no-untyped-def]
        if action is Step.REBOOT:
            raise denied
        return first(machine, action, *more)

    setattr(provider, "preflight" if when == "preflight" else "start", refuses)
    s.fault("node-0")
    s.run(8)
    assert calls(s) == [("replace", "m-0")]
    assert any(x.startswith("AWS denied ec2:RebootInstances; next: replace") for x in record_sentences(s))


def test_a_reboot_that_the_policy_asked_for_and_that_is_refused_is_a_persons_business() -> None:
    s = without_capacity(REBOOTS)
    s.provider.start_error = Refused("AWS denied ec2:RebootInstances")
    s.fault("node-0")
    s.run(8)
    assert phase(s) is Phase.HANDED_OVER


# ---------------------------------------------------------------- a crash at every boundary


def owner(actor: str) -> bool:
    return actor == "agent of node-0"


def begin(at: int | None = None, side: str = "") -> tuple[Stage, Cloud, Reaper]:
    stage = Stage()
    reaper = Reaper(stage, owner, at, side)
    for name in stage.nodes(3):
        stage.agent(name)
    stage.run(0)
    stage.provider.groups["workers"].cannot_launch = FULL
    stage.fault("node-0")
    return stage, Cloud(stage), reaper


def boots_when_asked(stage: Stage) -> None:
    """The machine comes up once it was asked to; the fault is gone."""
    if "m-0" in stage.provider.rebooting:
        stage.provider.rebooting.discard("m-0")
        boot(stage, "node-0")
        stage.pages["node-0"].body = npd_page()


def goes_on(stage: Stage, cloud: Cloud, reaper: Reaper | None = None) -> None:
    """Until the reaper has struck, where there is one."""
    fired = lambda: reaper is not None and reaper.fired  # noqa: E731
    for _ in range(75):
        boots_when_asked(stage)
        pass_time(stage, 10, cloud, until=fired)


@functools.cache
def boundaries() -> tuple[str, ...]:
    stage, cloud, reaper = begin()
    goes_on(stage, cloud, reaper)
    assert records(stage) == {"node-0": "recovered"}
    return tuple(reaper.seen)


def points() -> list[tuple[int, str]]:
    return [(0, "before"), *((n, "after") for n in range(len(boundaries())))]


@pytest.mark.parametrize("point", points())
def test_an_agent_killed_at_any_boundary_reboots_the_machine_once_and_puts_one_reboot_in(
    point: tuple[int, str],
) -> None:
    stage, cloud, reaper = begin(*point)
    goes_on(stage, cloud, reaper)
    assert reaper.fired
    stage.agent("node-0", name="agent of node-0, again", alone=True)
    goes_on(stage, cloud)
    unasked = not calls(stage)  # it died between intent and call, which is never repeated
    if unasked:
        assert phase(stage) is Phase.RECOVERING
        stage.provider.groups["workers"].cannot_launch = ""
        goes_on(stage, cloud)
    judge(stage, faulty=["node-0"])
    assert records(stage) == {"node-0": "recovered"}
    assert calls(stage) == [("replace" if unasked else "reboot", "m-0")]
    assert [x.do for x in the_record(stage).ladder] == [Step.DRAIN, Step.REBOOT, Step.REPLACE]
