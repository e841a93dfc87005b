"""Counts of devices as a source: what a Node has, beside what machines like it have."""

from __future__ import annotations

from datetime import timedelta

from recovery.decide.silence import EARLY_FOR
from recovery.model import Reading
from recovery.signals.device_counts import AFTER_A_BOOT, LASTS, Look, Norm, Norms, State, observe, short
from tests.builders.times import MINUTE, NOW, SECOND

GPU = "nvidia.com/gpu"
EIGHT: Norms = {GPU: Norm(8, 12, 13)}
NOBODY: Norms = {}
LONG_UP = timedelta(hours=1)


class Watch:
    """One node that has been up for long, looked at each minute."""

    def __init__(self, up: timedelta = LONG_UP) -> None:
        self.at, self.began, self.state, self.boot = NOW, NOW - up, State(), "b1"

    def sees(self, there: int, given: int | None = None, norms: Norms = EIGHT, times: int = 1) -> Reading:
        for _ in range(times):
            self.at += MINUTE
            devices = {GPU: (there, there if given is None else given)} if there else {}
            look = Look(self.at, self.boot, self.began, devices, norms, 90 * SECOND)
            self.state, reading = observe(self.state, look)
        return reading


def pairs(reading: Reading) -> list[tuple[str, str]]:
    return [(p.type, p.reason) for p in reading.problems]


MISSING = [("DeviceCount", "DevicesMissing")]
UNHEALTHY = [("DeviceAllocatable", "DevicesUnhealthy")]


def test_a_node_with_seven_of_eight_is_short_after_ten_minutes() -> None:
    w = Watch()
    assert pairs(w.sees(7, times=10)) == []
    (fault,) = w.sees(7).problems
    assert (fault.type, fault.reason, fault.device) == ("DeviceCount", "DevicesMissing", GPU)
    assert fault.message == "7 nvidia.com/gpu, and 12 of 13 machines like it have 8"
    assert fault.since == NOW + MINUTE
    assert not fault.latched


def test_a_node_without_any_has_no_plugin_which_is_another_matter() -> None:
    assert pairs(Watch().sees(0, times=11)) == [("DeviceCount", "DevicesAbsent")]


def test_devices_that_the_plugin_calls_unhealthy_are_a_fault_after_five_minutes() -> None:
    w = Watch()
    assert pairs(w.sees(8, 7, times=5)) == []
    (fault,) = w.sees(8, 7).problems
    assert (fault.type, fault.reason) == UNHEALTHY[0]
    assert fault.message == "the device plugin calls 1 of 8 nvidia.com/gpu unhealthy"


def test_after_a_boot_drivers_and_plugins_have_time() -> None:
    grace = int((AFTER_A_BOOT + LASTS["DeviceCount"]) / MINUTE)
    w = Watch(up=timedelta(0))
    assert pairs(w.sees(7, times=grace - 1)) == []
    assert pairs(w.sees(7)) == MISSING


def test_while_it_is_not_known_when_the_node_booted_nothing_counts() -> None:
    w = Watch()
    w.began = None  # type: ignore[assignment]
    assert pairs(w.sees(7, times=30)) == []


def test_a_count_that_is_right_again_ends_it_once_it_was_seen_twice() -> None:
    w = Watch()
    w.sees(7, times=11)
    once = w.sees(8)
    assert (pairs(once), ("DeviceCount", "*") in once.cleared) == (MISSING, False)
    assert "counts once it is seen again" in once.unknown["DeviceCount"]
    twice = w.sees(8)
    assert (pairs(twice), ("DeviceCount", "*") in twice.cleared) == ([], True)


def test_who_comes_later_is_not_sure_either_until_a_right_count_was_seen_twice() -> None:
    assert "DeviceCount" in Watch().sees(8).unconfirmed


def test_a_count_that_is_wrong_now_and_then_is_none_that_lasts() -> None:
    w = Watch()
    for _ in range(5):
        assert pairs(w.sees(7, times=8)) == []
        w.sees(8)


def test_where_machines_no_longer_agree_nothing_is_known_and_nothing_ends() -> None:
    w = Watch()
    w.sees(7, times=11)
    for _ in range(5):
        reading = w.sees(7, norms=NOBODY)
        assert pairs(reading) == MISSING
        assert ("DeviceCount", "*") not in reading.cleared
        assert "no longer agree" in reading.unknown["DeviceCount"]


EFA = "vpc.amazonaws.com/efa"


def seen(devices: dict[str, tuple[int, int]], norms: Norms, minutes: int = 5) -> Reading:
    """A controller that has just come looks at a node for some minutes."""
    state = State()
    for minute in range(minutes):
        look = Look(NOW + minute * MINUTE, "b1", NOW - LONG_UP, devices, norms, 90 * SECOND)
        state, reading = observe(state, look)
    return reading


def test_what_machines_do_not_agree_about_is_no_right_count_because_of_what_they_do_agree_about() -> None:
    both = {GPU: (7, 7), EFA: (4, 4)}
    assert ("DeviceCount", "*") in seen(both, {GPU: Norm(7, 9, 9), EFA: Norm(4, 9, 9)}).cleared
    reading = seen(both, {GPU: None, EFA: Norm(4, 9, 9)})
    assert ("DeviceCount", "*") not in reading.cleared
    assert "DeviceCount" not in reading.unconfirmed


def test_a_plugin_that_reports_none_any_more_says_nothing_of_their_health() -> None:
    w = Watch()
    w.sees(8, 7, times=6)
    for _ in range(5):
        w.at += MINUTE
        look = Look(w.at, w.boot, w.began, {GPU: (0, 0), EFA: (4, 4)}, EIGHT, 90 * SECOND)
        w.state, reading = observe(w.state, look)
        assert UNHEALTHY[0] in pairs(reading)
        assert ("DeviceAllocatable", "*") not in reading.cleared


def test_none_where_machines_like_it_have_none_either_is_in_order() -> None:
    mig = {GPU: Norm(0, 9, 9), "nvidia.com/mig-1g.5gb": Norm(7, 9, 9)}
    there = {GPU: (0, 0), "nvidia.com/mig-1g.5gb": (7, 7)}
    assert ("DeviceAllocatable", "*") in seen(there, mig).cleared


def test_more_than_the_others_have_is_no_fault() -> None:
    assert pairs(Watch().sees(16, times=30)) == []


def test_another_boot_begins_anew() -> None:
    w = Watch()
    w.sees(7, times=11)
    w.boot, w.began = "b2", w.at
    reading = w.sees(7)
    assert (pairs(reading), reading.cleared) == ([], frozenset())


def test_what_is_looked_at_closer_is_what_is_wrong_now() -> None:
    assert short({GPU: (7, 7)}, EIGHT)
    assert short({}, EIGHT)
    assert short({GPU: (8, 7)}, NOBODY)
    assert not short({GPU: (8, 8)}, EIGHT)


def test_what_is_wrong_for_too_short_a_time_is_neither_stated_nor_unknown() -> None:
    reading = Watch().sees(7, times=10)
    assert (reading.problems, reading.unknown, reading.silent) == ((), {}, {})
    assert "which counts after 10 min" in reading.early["DeviceCount"]
    assert Watch().sees(8).early == {}


def test_what_is_unknown_is_so_since_it_was_first() -> None:
    w = Watch()
    w.sees(7, times=11)
    first = w.sees(7, norms=NOBODY)
    assert w.sees(7, norms=NOBODY, times=9).unknown_since == first.unknown_since == {"DeviceCount": first.at}
    again = w.sees(7)
    assert again.unknown_since == {"DeviceCount": again.at}
    assert w.sees(7, times=10).unknown_since == {}


def test_a_proof_waits_until_a_wrong_count_is_stated() -> None:
    assert max(LASTS.values()) + AFTER_A_BOOT <= EARLY_FOR
