"""What the answers of a Prometheus server mean for one node, from look to look."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from recovery.catalog import metric_rows
from recovery.model import Bound, Ends, Latch, MetricRow, Named, Reading
from recovery.signals.prometheus import Look, RowWord, State, observe
from recovery.signals.prometheus_answer import State as Is
from recovery.signals.prometheus_answer import Stated
from tests.builders.times import MINUTE, NOW, SECOND

HOLD = Ends(Latch.SOURCE, 10 * MINUTE)
IB = MetricRow("ib", "max by (node) (ib_dev)", "node", Bound(">", 0), Named("IbDev"), Named("IbDevBad"), HOLD)
(DCGM,) = metric_rows()["dcgm"]
(ALERTS,) = metric_rows()["alerts"]
(NPD,) = metric_rows()["npd"]
PAIR = ("IbDev", "IbDevBad")
GOOD, BAD = (Is.GOOD, "0"), (Is.BAD, "3")
GONE = (Is.UNKNOWN, "its series is gone")


class Watch:
    """One node, looked at every 15 s; each look's samples were scraped at that moment."""

    def __init__(self, row: MetricRow = IB, boot: str = "boot-1", pair: tuple[str, str] = PAIR) -> None:
        self.row, self.boot, self.pair = row, boot, pair
        self.at = NOW
        self.state = State()
        self.began: datetime | None = None
        self.word = RowWord(row, NOW)
        self.why = ""  # nothing counts

    def sees(self, *said: tuple[Is, str], wait: timedelta = 15 * SECOND, **changes: object) -> Reading:
        """Each is what one device says."""
        self.at += wait
        stated = [
            replaced(Stated(self.row, *self.pair, f"gpu={i}", *each, self.at), **changes)
            for i, each in enumerate(said)
        ]
        word = replace(self.word, at=self.at) if self.word.at is not None and not self.word.why else self.word
        self.state, reading = observe(
            self.state, Look(self.at, [word], stated, self.boot, self.began, self.why)
        )
        return reading


def replaced(s: Stated, **changes: object) -> Stated:
    return s._replace(**changes)  # type: ignore[arg-type]


def pairs(reading: Reading) -> list[tuple[str, str]]:
    return [(p.type, p.reason) for p in reading.problems]


def test_a_bad_value_is_a_fault_at_once_and_says_which_row_and_device_it_is() -> None:
    reading = Watch().sees(GOOD, BAD)
    (fault,) = reading.problems
    assert (fault.type, fault.reason, fault.device) == ("IbDev", "IbDevBad", "gpu=1")
    assert fault.message == "Prometheus, row ib: 3 (> 0 is the fault)"
    assert not fault.latched
    assert reading.unknown == {}
    assert reading.ends == {PAIR: HOLD}


def test_a_good_value_ends_it_once_it_was_scraped_twice_half_a_minute_apart() -> None:
    w = Watch()
    w.sees(BAD)
    first, second = w.sees(GOOD), w.sees(GOOD)
    assert pairs(first) == pairs(second) == [PAIR]
    assert "counts once it is scraped again" in first.unknown["IbDev"]
    assert not first.cleared | second.cleared
    third = w.sees(GOOD)
    assert (pairs(third), third.cleared, third.unknown) == ([], frozenset({PAIR}), {})


def test_the_same_sample_seen_again_is_no_second_one() -> None:
    w = Watch()
    w.sees(BAD)
    scraped = w.at + 15 * SECOND
    for _ in range(8):
        assert not w.sees(GOOD, at=scraped).cleared


def test_a_bad_value_in_between_begins_it_anew() -> None:
    w = Watch()
    w.sees(BAD)
    w.sees(GOOD)
    w.sees(BAD)
    assert not w.sees(GOOD).cleared | w.sees(GOOD).cleared
    assert w.sees(GOOD).cleared


def test_one_good_device_does_not_end_the_fault_of_another() -> None:
    w = Watch()
    w.sees(BAD, BAD)
    for _ in range(5):
        assert pairs(w.sees(GOOD, BAD)) == [PAIR]


def test_a_series_that_is_gone_is_unknown_and_ends_nothing() -> None:
    w = Watch()
    w.sees(BAD)
    for _ in range(5):
        reading = w.sees(GONE)
        assert pairs(reading) == [PAIR]
        assert reading.unknown == {"IbDev": "IbDevBad (gpu=0): its series is gone"}
        assert not reading.cleared
    assert reading.unknown_since == {"IbDev": NOW + 30 * SECOND}


def test_one_device_of_which_nothing_is_known_keeps_the_type_unknown() -> None:
    assert Watch().sees(GOOD, GONE).unknown.keys() == {"IbDev"}
    reading = Watch().sees(BAD, GONE)
    assert (pairs(reading), reading.unknown) == ([PAIR], {})


def test_a_row_that_is_not_answered_is_unknown_since_then() -> None:
    w = Watch()
    w.sees(BAD)
    w.word = RowWord(IB, NOW, "no connection", NOW + 5 * SECOND)
    reading = w.sees(BAD)
    assert pairs(reading) == [PAIR]
    assert reading.unknown["*"] == "Prometheus, row ib: no connection"
    assert reading.unknown_since["*"] == NOW + 5 * SECOND
    assert reading.problems[0].fresh_until < w.at + MINUTE


def test_of_two_rows_the_silence_of_one_is_not_the_others() -> None:
    at = NOW
    silent, answered = RowWord(DCGM, at, "422", at), RowWord(IB, at)
    stated = [
        Stated(DCGM, "DcgmRowRemap", "DcgmRowRemapFailure", "gpu=0", Is.GOOD, "0", at),
        Stated(IB, *PAIR, "", Is.BAD, "1", at),
    ]
    _, reading = observe(State(), Look(at, [silent, answered], stated, "boot-1"))
    assert reading.unknown == {"DcgmRowRemap": "Prometheus, row dcgm: 422"}
    assert pairs(reading) == [PAIR]


def test_before_the_first_answer_nothing_is_known() -> None:
    w = Watch()
    w.word = RowWord(IB)
    assert w.sees().unknown == {"*": "Prometheus, row ib: not asked yet"}


def test_while_the_watch_of_nodes_is_silent_no_good_value_ends_anything() -> None:
    w = Watch()
    w.sees(BAD)
    w.why = "the watch of Nodes has been silent for 130 s"
    for _ in range(5):
        reading = w.sees(GOOD)
        assert (reading.cleared, reading.unknown["*"]) == (frozenset(), w.why)
    w.why = ""
    assert w.sees(GOOD).cleared == {PAIR}


def test_an_answer_that_nobody_renewed_for_a_minute_is_unknown() -> None:
    look = Look(NOW + 61 * SECOND, [RowWord(IB, NOW)], [Stated(IB, *PAIR, "", Is.GOOD, "0", NOW)], "b")
    assert "last answered at" in observe(State(), look)[1].unknown["*"]


def test_a_fault_is_not_of_the_boot_that_came_after_it() -> None:
    w = Watch()
    w.sees(BAD)
    w.boot, w.began = "boot-2", w.at + 60 * SECOND
    reading = w.sees(BAD, wait=MINUTE, at=w.at)
    assert pairs(reading) == []
    assert "not scraped yet since the node was booted" in reading.unknown["IbDev"]
    assert pairs(w.sees(BAD)) == [PAIR]


def test_what_only_other_hardware_mends_is_taken_back_by_no_value() -> None:
    w = Watch(DCGM, pair=("DcgmRowRemap", "DcgmRowRemapFailure"))
    w.sees(BAD)
    for _ in range(10):
        reading = w.sees(GOOD)
    (fault,) = reading.problems
    assert (fault.latched, reading.cleared, reading.unknown) == (True, frozenset(), {})
    assert reading.gone == {w.pair}
    assert fault.fresh_until > w.at


def test_an_alert_that_is_over_says_nothing_and_one_that_comes_again_is_news() -> None:
    w = Watch(ALERTS, pair=("GpuHot", "GpuHot"))
    w.sees(BAD)
    reading = w.sees()
    assert (pairs(reading), reading.unknown, reading.gone) == ([w.pair], {}, {w.pair})
    assert w.sees(BAD, begun=w.at).problems[0].stated is not None


def test_an_alert_that_went_on_over_a_boot_is_no_statement_of_it() -> None:
    w = Watch(ALERTS, pair=("GpuHot", "GpuHot"))
    began = w.at
    w.sees(BAD, begun=began)
    w.boot, w.began = "boot-2", w.at
    (fault,) = w.sees(BAD, begun=began).problems
    assert (fault.lasting, fault.stated) == (True, None)


def test_of_node_problem_detector_only_a_known_plugins_good_value_counts() -> None:
    for pair, back in ((("GpuCount", "GpuCountBad"), True), (("KernelDeadlock", "DockerHung"), False)):
        w = Watch(NPD, pair=pair)
        w.sees(BAD)
        w.sees(GOOD, wait=MINUTE)
        assert bool(w.sees(GOOD, wait=MINUTE).cleared) is back
