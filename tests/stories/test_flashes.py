"""A fault that shows for a moment only: how long it stays, and what ends it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from recovery_testkit.kubefaults import lost_request
from recovery_testkit.stage import Stage, npd_page

from recovery.decide.endings import close
from recovery.decide.lifecycle import Event
from recovery.errors import Unreadable
from recovery.model import Phase, Record
from recovery.store.lease import lease_name
from tests.builders.policies import HEAD
from tests.stories.scenery import sentences, writes
from tests.stories.scenes import (
    ALL_MARKS,
    NO_MARKS,
    boot,
    calls,
    cast,
    marked,
    new_process,
    pause,
    phase,
    remove_pod,
    resume,
    sayings,
    stubborn_pod,
    swap_record,
    the_record,
)

REBOOT = "{do: drain, within: 10m, then: force}, {do: reboot}, {do: replace}"
XID = "type: GpuXid, reason: GpuXidBad"
FANS = "type: Fans"


def rules(match: str = XID, remedy: str = REBOOT, **more: str) -> bytes:
    """One rule; ``more`` are its further fields."""
    fields = "".join(f"    {key}: {value}\n" for key, value in more.items())
    rule = f"  - name: flash\n    match: {{{match}}}\n{fields}    remedy: [{remedy}]\n"
    return f"{HEAD}limits: {{cooldown: 0s}}\nrules:\n{rule}".encode()


def plugin(shown: str = "", *, kind: str = "GpuXid", **counters: int) -> bytes:
    """A plugin's page with two reasons, of which one is shown at most."""
    lines = []
    for word in ("Bad", "Worse"):
        lines += [
            f'problem_counter{{reason="{kind}{word}"}} {counters.get(word, int(word == shown))}',
            f'problem_gauge{{reason="{kind}{word}",type="{kind}"}} {int(word == shown)}',
        ]
    return ("\n".join(lines) + f'\nproblem_gauge{{reason="{kind}Good",type="{kind}"}} 0\n').encode()


def stage(policy: bytes, kind: str = "GpuXid") -> Stage:
    s = cast(policy, agents=0)
    for node in ("node-0", "node-1"):
        s.pages[node].body = plugin(kind=kind)
        s.agent(node)
    s.run(40, step=1)
    return s


def flash(s: Stage, seconds: float = 60, kind: str = "GpuXid") -> None:
    """The check shows it in one of its runs, and passes in the next."""
    s.pages["node-0"].body = plugin("Bad", kind=kind)
    s.run(seconds, step=1)
    s.pages["node-0"].body = plugin(kind=kind, Bad=1)


def rebooted(s: Stage) -> bool:
    return calls(s)[:1] == [("reboot", "m-0")]


# ---------------------------------------------------------------- latch


def test_an_xid_of_one_interval_is_recovered_to_its_end() -> None:
    s = stage(rules())
    stubborn_pod(s)
    flash(s)
    s.run(120, step=1)
    assert (phase(s), marked(s), calls(s)) == (Phase.RECOVERING, ALL_MARKS, [])
    assert sentences(s)[-1].endswith(
        "its source shows it no longer; another machine ends it, a boot with its probation, or a validation "
        "that succeeds"
    )
    remove_pod(s)
    s.run(10)
    assert rebooted(s)
    boot(s, "node-0")
    s.run(150, step=1)
    assert (phase(s), marked(s), calls(s)) == (Phase.RECOVERED, NO_MARKS, [("reboot", "m-0")])


def test_an_xid_of_one_interval_is_treated_once_it_was_tolerated() -> None:
    s = stage(rules(after="3m"))
    flash(s)
    s.run(100, step=1)
    assert (phase(s), calls(s)) == (Phase.SUSPECT, [])
    s.run(40, step=1)
    assert rebooted(s)


@pytest.mark.parametrize("latch", ["boot", "proof"])
@pytest.mark.parametrize("restarted", [False, True], ids=["the agent goes on", "the agent restarts"])
def test_a_rule_may_say_that_no_good_run_ends_a_fault(latch: str, restarted: bool) -> None:
    s = stage(rules(FANS, after="3m", latch=latch), "Fans")
    flash(s, kind="Fans")
    if restarted:
        new_process(s, "node-0")
    s.run(140, step=1)
    assert rebooted(s)


def test_a_rule_may_say_that_a_good_run_ends_a_fault_that_the_catalogue_latches() -> None:
    s = stage(rules(after="3m", latch="source"))
    flash(s)
    s.run(200, step=1)
    assert (phase(s), calls(s)) == (Phase.WITHDRAWN, [])


def test_without_a_word_of_rule_or_catalogue_a_plugins_good_run_ends_its_fault() -> None:
    s = stage(rules(FANS), "Fans")
    stubborn_pod(s)
    flash(s, kind="Fans")
    s.run(10)
    assert (phase(s), marked(s), calls(s)) == (Phase.WITHDRAWN, NO_MARKS, [])


def test_a_boot_that_nobody_asked_for_and_its_probation_end_a_latched_fault() -> None:
    s = stage(rules(after="30m"))
    flash(s)
    boot(s, "node-0")
    s.run(60, step=1)
    assert phase(s) is Phase.PROVING
    s.run(90, step=1)
    assert (phase(s), calls(s)) == (Phase.WITHDRAWN, [])


def test_a_latched_fault_that_comes_back_after_the_reboot_leads_to_the_next_step() -> None:
    s = stage(rules())
    flash(s, 2)
    s.run(10)
    assert rebooted(s)
    boot(s, "node-0")
    s.run(60, step=1)
    flash(s, 2)
    s.run(20)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


# ---------------------------------------------------------------- hold


def held(s: Stage) -> Record:
    """A fault that was shown for a minute, and that its rule holds."""
    flash(s, kind="Fans")
    s.run(10)
    return the_record(s)


def test_a_hold_keeps_a_fault_for_so_long_after_its_source_took_it_back() -> None:
    s = stage(rules(FANS, hold="5m"), "Fans")
    stubborn_pod(s)
    r = held(s)
    quiet = r.faults[0].quiet_since
    assert quiet is not None
    assert sentences(s)[-1].endswith(
        f"held until {quiet + timedelta(minutes=5):%H:%M:%SZ} since it was last stated"
    )
    s.run(280, step=5)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    s.run(30, step=5)
    assert (phase(s), marked(s), calls(s)) == (Phase.WITHDRAWN, NO_MARKS, [])


def test_a_fault_that_is_stated_again_is_held_anew() -> None:
    s = stage(rules(FANS, hold="5m", after="30m"), "Fans")
    held(s)
    s.run(200, step=5)
    flash(s, 30, "Fans")
    s.run(200, step=5)
    assert phase(s) is Phase.SUSPECT
    s.run(120, step=5)
    assert phase(s) is Phase.WITHDRAWN


def test_a_flapping_fault_is_treated_by_the_time_since_its_first_statement() -> None:
    s = stage(rules(FANS, hold="2m", after="5m"), "Fans")
    for _ in range(3):
        flash(s, 20, "Fans")
        s.run(60, step=1)
    assert phase(s) is Phase.SUSPECT
    flash(s, 20, "Fans")
    s.run(60, step=1)
    assert rebooted(s)


def test_a_hold_goes_on_over_an_agents_restart() -> None:
    s = stage(rules(FANS, hold="5m", after="30m"), "Fans")
    held(s)
    for _ in range(4):
        s.run(45, step=1)
        new_process(s, "node-0")
    s.run(60, step=1)
    assert phase(s) is Phase.SUSPECT
    s.run(70, step=1)
    assert phase(s) is Phase.WITHDRAWN


def test_no_hold_ends_while_its_source_cannot_be_read() -> None:
    s = stage(rules(FANS, hold="5m", after="1h"), "Fans")
    held(s)
    s.pages["node-0"].error = Unreadable("connection refused")
    s.run(420, step=5)
    assert phase(s) is Phase.SUSPECT
    s.pages["node-0"].error = None
    s.run(10)
    assert phase(s) is Phase.WITHDRAWN


def test_a_held_fault_that_is_only_reported_is_reported_once_however_often_it_flashes() -> None:
    s = stage(rules(FANS, "{do: notify}", hold="10m"), "Fans")
    for _ in range(5):
        flash(s, 20, "Fans")
        s.run(60, step=1)
    assert phase(s) is Phase.HANDED_OVER
    assert sayings(s, "FaultSeen") == 1
    s.run(620, step=5)
    assert phase(s) is Phase.WITHDRAWN


# ---------------------------------------------------------------- the time of a type


def test_a_page_that_flips_between_two_reasons_of_a_type_is_tolerated_once() -> None:
    s = stage(rules(FANS, after="3m"), "Fans")
    shown = {"Bad": 0, "Worse": 0}
    for i in range(17):
        word = ("Bad", "Worse")[i % 2]
        shown[word] += 1
        s.pages["node-0"].body = plugin(word, kind="Fans", **shown)
        s.run(10)
    assert (phase(s), calls(s)) == (Phase.SUSPECT, [])
    s.run(15)
    assert rebooted(s)


def test_a_reason_that_is_treated_counts_from_the_first_statement_of_its_type() -> None:
    s = stage(rules("type: Fans, reason: FansWorse", after="3m"), "Fans")
    s.pages["node-0"].body = plugin("Bad", kind="Fans")
    s.run(5)
    assert phase(s) is Phase.HANDED_OVER  # no rule speaks of it
    s.run(60, step=1)
    s.pages["node-0"].body = plugin("Worse", kind="Fans", Bad=1, Worse=1)
    s.run(100, step=1)
    assert (phase(s), calls(s)) == (Phase.SUSPECT, [])  # that one is dealt with: it began nothing
    s.run(90, step=1)
    assert rebooted(s)


# ---------------------------------------------------------------- what was seen is not lost


def test_a_flash_while_the_api_server_is_away_is_treated_when_it_is_back() -> None:
    s = stage(rules())
    s.api.fail_next(lambda asked: True, lost_request, times=100_000)
    flash(s)
    s.run(20)
    assert s.record("node-0") is None
    s.api.heal()
    s.run(90)  # others are given time to tell what they saw (law 10)
    assert rebooted(s)


def test_a_flash_that_its_source_may_take_back_is_no_fault_when_the_api_server_is_back() -> None:
    s = stage(rules(FANS), "Fans")
    s.api.fail_next(lambda asked: True, lost_request, times=100_000)
    flash(s, kind="Fans")
    s.run(20)
    s.api.heal()
    s.run(30)
    assert s.record("node-0") is None


def unreachable(s: Stage) -> None:
    s.api.fail_next(lambda asked: True, lost_request, times=100_000)


def release(s: Stage) -> None:
    """By the command, on another machine: the API server is away for the node's agent alone."""
    swap_record(s, close(the_record(s), s.clock.true_time(), Event.RELEASED, "released by ada: looked at"))
    s.run(5, step=1)


def waits_for_a_person() -> Stage:
    """A fault whose node waits, as somebody has paused all."""
    s = stage(rules())
    pause(s)
    s.pages["node-0"].body = plugin("Bad")
    s.run(20, step=1)
    assert phase(s) is Phase.WAITING
    return s


def takes_back(s: Stage, seconds: float = 20) -> None:
    s.pages["node-0"].body = plugin(Bad=1)
    s.run(seconds, step=1)


def back_at_the_api_server(s: Stage) -> None:
    s.api.heal()
    resume(s)
    s.run(120, step=1)


def test_what_was_taken_back_is_new_when_it_comes_again_though_nothing_could_be_written_meanwhile() -> None:
    s = waits_for_a_person()
    unreachable(s)
    takes_back(s)
    release(s)
    s.pages["node-0"].body = plugin("Bad", Bad=2)
    s.run(20, step=1)
    assert phase(s) is Phase.RELEASED
    back_at_the_api_server(s)
    assert rebooted(s)


def test_it_is_new_though_it_was_taken_back_before_nothing_could_be_written() -> None:
    s = waits_for_a_person()
    takes_back(s)
    unreachable(s)
    release(s)
    s.pages["node-0"].body = plugin("Bad", Bad=2)
    s.run(20, step=1)
    back_at_the_api_server(s)
    assert rebooted(s)


def test_it_is_new_though_it_is_over_when_the_api_server_is_back() -> None:
    s = waits_for_a_person()
    unreachable(s)
    takes_back(s)
    release(s)
    flash(s)
    s.run(20, step=1)
    back_at_the_api_server(s)
    assert rebooted(s)


@pytest.mark.parametrize("why", ["its answer is lost", "another holds the Lease"])
def test_that_a_source_took_it_back_is_written_later_where_it_could_not_be_written_at_once(why: str) -> None:
    """An agent that is started anew knows only what is written."""
    s = waits_for_a_person()
    release(s)
    resume(s)
    s.run(70, step=1)
    if why == "its answer is lost":
        s.api.fail_next(writes("noderecoveries", "PUT"), lost_request)
    else:
        held_by_another(s)
    takes_back(s, 90)
    s.pages["node-0"].body = plugin("Bad", Bad=2)
    new_process(s, "node-0")
    s.run(90, step=1)
    assert rebooted(s)


def held_by_another(s: Stage) -> None:
    """For a minute: it has died, and renews nothing."""
    body = {"metadata": {"name": lease_name("node-0"), "namespace": "default"}}
    spec = {"holderIdentity": "owner/node-0/elsewhere/1234", "leaseDurationSeconds": 60}
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    s.store.request("DELETE", f"{leases}/{lease_name('node-0')}")
    assert s.store.request("POST", leases, body={**body, "spec": spec}).ok


def test_what_was_stated_again_before_a_person_released_the_node_starts_nothing() -> None:
    s = waits_for_a_person()
    unreachable(s)
    takes_back(s)
    s.pages["node-0"].body = plugin("Bad", Bad=2)
    s.run(20, step=1)
    release(s)
    back_at_the_api_server(s)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [])


def test_what_was_released_is_new_when_it_comes_again_beside_another_fault() -> None:
    """The record is open for the other one, which is taken back later."""
    s = stage(rules("type: Gpu*", after="3m", latch="source"))
    both = plugin("Bad") + plugin("Bad", kind="GpuFans")
    s.pages["node-0"].body = plugin("Bad") + plugin(kind="GpuFans")
    s.run(10, step=1)
    assert phase(s) is Phase.SUSPECT
    release(s)
    s.run(10, step=1)
    s.pages["node-0"].body = both
    s.run(10, step=1)
    assert phase(s) is Phase.SUSPECT
    s.pages["node-0"].body = plugin(Bad=1) + plugin("Bad", kind="GpuFans")
    s.run(10, step=1)
    s.pages["node-0"].body = plugin("Bad", Bad=2) + plugin("Bad", kind="GpuFans")
    s.run(10, step=1)
    s.pages["node-0"].body = plugin("Bad", Bad=2) + plugin(kind="GpuFans", Bad=1)
    s.run(240, step=1)
    assert rebooted(s)


def test_npds_permanent_rules_keep_their_meaning() -> None:
    s = cast()
    stubborn_pod(s)
    s.fault("node-0")
    s.run(10)
    s.pages["node-0"].body = npd_page()
    s.run(120, step=1)
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
