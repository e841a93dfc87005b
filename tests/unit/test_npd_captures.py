"""Every captured page of every story in order, over real sockets: with one agent and a restarting one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from recovery.model import Kind, Reading
from recovery.signals.memory import SETTLE
from recovery.signals.npd import NpdSource
from recovery.signals.page import Pair
from recovery.signals.scrape import PageReader

CAPTURES = Path(__file__).parents[1] / "captures"
STORIES = sorted(path.name for path in CAPTURES.iterdir() if path.is_dir())
START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
POLL = timedelta(milliseconds=500)

NEURON = "NeuronHealth"
DMA = (NEURON, "NeuronHasError_DMA_ERROR")
HANG = (NEURON, "NeuronHasError_HANG_ON_COLLECTIVES")
HBM = (NEURON, "NeuronHasError_HBM_UNCORRECTABLE_ERROR")
SRAM_NC = (NEURON, "NeuronHasError_NC_UNCORRECTABLE_ERROR")
XID = ("GpuXid", "GpuXid79")
READ_ONLY = ("ReadonlyFilesystem", "FilesystemIsReadOnly")
GPU = ("GpuCount", "GpuCountBad")
IB = ("IbDev", "IbDevBad")


class Detector:
    """A server of one page at a time, as node-problem-detector's: HTTP/1.1, connections kept open."""

    def __init__(self) -> None:
        self.page = b""
        self.connections = 0
        detector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                detector.connections += 1
                super().setup()

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(detector.page)))
                self.end_headers()
                self.wfile.write(detector.page)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"


@pytest.fixture
def detector() -> Iterator[Detector]:
    detector = Detector()
    thread = threading.Thread(target=detector.server.serve_forever, kwargs={"poll_interval": 0.005})
    thread.start()
    yield detector
    detector.server.shutdown()
    thread.join()
    detector.server.server_close()


class FakeClock:
    """Moments set by hand; ``boottime`` moves with them."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def boottime(self) -> float:
        return self.seconds


class Agent:
    """One source on one detector. ``restart`` forgets everything."""

    def __init__(self, detector: Detector, clock: FakeClock) -> None:
        self.reader = PageReader(detector.url)
        self.source = NpdSource(self.reader.read, clock, clock.now, POLL)


class Replay:
    """Feeds a story's pages at the seconds they were captured, each polled ``polls`` times, 0.5 s apart."""

    def __init__(self, detector: Detector, story: str, restarting: bool = False, polls: int = 1) -> None:
        self.detector = detector
        self.folder = CAPTURES / story
        self.restarting = restarting
        self.polls = polls
        self.clock = FakeClock()
        self.agent = Agent(detector, self.clock)

    def run(self, boot_id: Callable[[str], str] = lambda _: "boot-1") -> dict[str, Reading]:
        """The last reading of each page by the page's name."""
        readings = {}
        for line in (self.folder / "TIMELINE.txt").read_text().splitlines():
            seconds, _, name = line.split()
            self.clock.seconds = float(seconds)
            if self.restarting:
                self.agent.reader.close()
                self.agent = Agent(self.detector, self.clock)
            self.detector.page = (self.folder / name).read_bytes()
            readings[name.partition("-")[0]] = self._poll(boot_id(name))
        self.agent.reader.close()
        return readings

    def _poll(self, boot_id: str) -> Reading:
        for _ in range(self.polls):
            reading = self.agent.source.poll(boot_id)
            self.clock.seconds += POLL.total_seconds()
        return reading


def levels(reading: Reading) -> set[Pair]:
    return {(p.type, p.reason) for p in reading.problems if p.kind is Kind.LEVEL}


def masked(reading: Reading) -> set[Pair]:
    return {(p.type, p.reason) for p in reading.problems if p.masked}


def edges(reading: Reading) -> dict[str, int]:
    return {p.reason: len(p.times) for p in reading.problems if p.kind is Kind.EDGE}


def both(readings: dict[str, Reading], truth: dict[str, set[Pair]]) -> None:
    assert {page: levels(reading) for page, reading in readings.items()} == truth


@pytest.mark.parametrize("restarting", [False, True], ids=["one agent", "agent restarted between pages"])
@pytest.mark.parametrize("story", STORIES)
def test_no_captured_page_is_unreadable_or_names_an_unlisted_fault(
    detector: Detector, story: str, restarting: bool
) -> None:
    for reading in Replay(detector, story, restarting).run().values():
        assert reading.readable
        assert levels(reading) <= reading.listed


def test_pages_are_read_over_one_connection(detector: Detector) -> None:
    Replay(detector, "neuron-dma-error", polls=3).run()
    assert detector.connections == 1


@pytest.mark.parametrize("restarting", [False, True])
def test_a_neuron_dma_error_is_a_latched_fault_from_its_kernel_line_on(
    detector: Detector, restarting: bool
) -> None:
    readings = Replay(detector, "neuron-dma-error", restarting).run()
    both(readings, {"00": set(), "01": {DMA}, "02": {DMA}})
    assert all(p.latched and p.counter == 1 for r in readings.values() for p in r.problems)
    assert all(r.unknown == {} for r in readings.values())


def test_the_same_kernel_line_again_does_not_make_the_fault_younger(detector: Detector) -> None:
    readings = Replay(detector, "neuron-dma-error").run()
    assert readings["02"].problems[0].since == START + timedelta(seconds=2.6)


def test_hbm_is_still_a_fault_under_the_hang_and_after_the_detectors_restart(detector: Detector) -> None:
    readings = Replay(detector, "neuron-masking-and-restart").run()
    both(readings, {"00": set(), "01": {HBM}, "02": {HBM, HANG}, "03": {HBM, HANG}})
    assert masked(readings["02"]) == {HBM}
    assert masked(readings["03"]) == set()
    assert all(p.latched for p in readings["03"].problems)
    assert readings["03"].cleared == frozenset()
    assert readings["03"].unknown == {}


def test_a_restarted_agent_sees_hbm_under_the_hang_on_its_first_page(detector: Detector) -> None:
    readings = Replay(detector, "neuron-masking-and-restart", restarting=True).run()
    both(readings, {"00": set(), "01": {HBM}, "02": {HBM, HANG}, "03": set()})
    assert masked(readings["02"]) == {HBM}
    assert readings["03"].cleared == frozenset()


def test_neuron_faults_end_with_a_new_boot_id(detector: Detector) -> None:
    replay = Replay(detector, "neuron-masking-and-restart")
    readings = replay.run(lambda name: "boot-2" if name.startswith("03") else "boot-1")
    both(readings, {"00": set(), "01": {HBM}, "02": {HBM, HANG}, "03": set()})


def test_oom_kills_are_events_and_never_a_state_beside_xid_79_and_a_readonly_filesystem(
    detector: Detector,
) -> None:
    readings = Replay(detector, "kernel-and-xid").run()
    both(readings, {"00": set(), "01": set(), "02": {XID}, "03": {XID, READ_ONLY}})
    assert [edges(r) for r in readings.values()] == [
        {},
        {"OOMKilling": 3},
        {"OOMKilling": 3},
        {"OOMKilling": 3},
    ]
    assert readings["03"].problems[-1].times == (START + timedelta(seconds=3.2),) * 3


def test_a_restarted_agent_takes_old_oom_kills_for_its_baseline(detector: Detector) -> None:
    readings = Replay(detector, "kernel-and-xid", restarting=True).run()
    both(readings, {"00": set(), "01": set(), "02": {XID}, "03": {XID, READ_ONLY}})
    assert all(edges(r) == {} for r in readings.values())


def test_a_gpu_check_that_could_not_run_is_unknown_and_not_healthy(detector: Detector) -> None:
    readings = Replay(detector, "gpu-count-plugin").run()
    both(readings, {"00": set(), "01": set(), "02": {GPU}, "03": {GPU}, "04": {GPU}, "05": {GPU}})
    assert {page: set(r.unknown) for page, r in readings.items() if r.unknown} == {
        page: {"GpuCount"}
        for page in ("04", "05")  # what the next page shows may be from the same run
    }
    assert all(GPU not in readings[page].cleared for page in ("02", "03", "04", "05"))
    assert not any(p.latched for r in readings.values() for p in r.problems)


def test_a_gpu_fault_clears_after_three_zeros_of_a_check_that_runs_again(detector: Detector) -> None:
    replay = Replay(detector, "gpu-count-plugin")
    replay.run()
    replay.agent = agent = Agent(detector, replay.clock)
    for page, polls in (("03-still-bad", 1), ("04-unknown-looks-healthy", 1), ("05-good-again", 2)):
        detector.page = (replay.folder / f"{page}.prom").read_bytes()
        replay.clock.seconds += SETTLE.total_seconds() if page == "05-good-again" else 0
        for _ in range(polls):
            reading = agent.source.poll("boot-1")
            assert levels(reading) == {GPU}
    reading = agent.source.poll("boot-1")
    agent.reader.close()
    assert levels(reading) == set()
    assert GPU in reading.cleared


def test_an_agent_restarted_between_the_gpu_pages_acts_only_on_a_live_gauge(detector: Detector) -> None:
    readings = Replay(detector, "gpu-count-plugin", restarting=True).run()
    both(readings, {"00": set(), "01": set(), "02": {GPU}, "03": {GPU}, "04": set(), "05": set()})
    assert all(r.cleared == frozenset() for r in readings.values())


@pytest.mark.parametrize("restarting", [False, True])
def test_of_a_full_page_exactly_its_two_faults_are_told(detector: Detector, restarting: bool) -> None:
    readings = Replay(detector, "full-page", restarting).run()
    both(readings, {"00": set(), "01": {IB, SRAM_NC}})
    latched = {(p.type, p.reason): p.latched for p in readings["01"].problems}
    assert latched == {IB: False, SRAM_NC: True}


# ---------------------------------------------------------------- damage


def _damaged(text: bytes, dice: random.Random) -> bytes:
    """Lines lost, doubled, swapped, cut or merged: damage that changes no digit of a line it leaves whole."""
    lines = text.splitlines(keepends=True)
    for _ in range(dice.choice((1, 1, 3, 10))):
        at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
        match dice.randrange(6):
            case 0:
                lines[at] = b""
            case 1:
                lines.insert(other, lines[at])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = lines[at].rstrip(b"\n")
            case 4:
                lines[at] = lines[at][: dice.randrange(len(lines[at]) + 1)]
            case _:
                lines[at] = lines[at].replace(dice.choice((b'"', b"{", b"}", b"=", b",", b" ")), b"", 1)
    return b"".join(lines)


class Feed:
    """A source fed from memory, half a second apart."""

    def __init__(self) -> None:
        self.page = b""
        self.clock = FakeClock()
        self.source = NpdSource(lambda: self.page, self.clock, self.clock.now, POLL)

    def __call__(self, page: bytes) -> Reading:
        self.page = page
        self.clock.seconds += POLL.total_seconds()
        return self.source.poll("boot-1")


@pytest.mark.parametrize("seed", range(4))
def test_no_damage_to_healthy_pages_makes_a_fault(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    healthy = [path.read_bytes() for path in CAPTURES.glob("*/00-*.prom")]
    for page in healthy:
        feed = Feed()
        for _ in range(30):
            reading = feed(dice.choice((page, _damaged(page, dice))))
            assert reading.problems == (), f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
def test_no_damage_to_a_faulty_page_takes_a_latched_fault_back_or_clears_anything_of_its_type(
    seed: int,
) -> None:
    dice = random.Random(seed)  # noqa: S311
    page = (CAPTURES / "neuron-masking-and-restart/02-hang-masks-hbm.prom").read_bytes()
    feed = Feed()
    feed(page)
    for _ in range(150):
        reading = feed(dice.choice((page, _damaged(page, dice))))
        assert levels(reading) == {HBM, HANG}, f"seed {seed}"
        assert all(p.latched and p.since == START + POLL for p in reading.problems), f"seed {seed}"
        assert reading.cleared == frozenset(), f"seed {seed}"
