"""Recoveries on a real control plane that is disturbed in every way that it allows. By one seed, printed.

``RECOVERIES`` is how many nodes break (200), ``SEED`` repeats a run's choices, ``MODE=fleet`` has replicas of
the controller in the place of agents on the nodes. What happens in between is up to the machine, so a seed
repeats what is done, and not always what comes of it. The independent judge of the search reads the audit
log, and what only the harness knows; the facts are kept in ``build/soak-SEED.jsonl``.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
from audit import ours
from fleet_site import GATE, RECORDS, infrastructure
from fleet_soak import DEAD, REBOOTED, REPLACED, FleetSoak
from kubelets import Container
from phases import table
from plane import Plane
from soak_site import SoakSite, figures
from weather import WEATHERS

from tests.search import facts
from tests.search.judge import judge

RECOVERIES = int(os.environ.get("RECOVERIES", "200"))
MODE = os.environ.get("MODE", "")
SIZE, BUDGET = 8, 4
OVER = ("recovered", "superseded", "withdrawn", "released")
A_PERSONS = ("handedOver", "lost")
MERGE = "application/merge-patch+json"
STUCK = 420.0
"""Seconds without an end of a recovery. Some are stopped for two minutes, and a pause may come on top."""
FIRST_WORD = 1.0
"""Seconds from an agent's start to its first word, on two idle cores."""
BUILD = Path(__file__).parents[2] / "build"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Chaos:
    """What is done to the control plane, the agents and the objects, by one seed."""

    def __init__(self, site: SoakSite, seed: int) -> None:
        self.site = site
        self.first_words: deque[float] = deque(maxlen=15)  # seconds, of the last agents that started
        self.chance = random.Random(seed)  # noqa: S311
        self.broken: dict[str, float] = {}  # node -> when
        self.begun = 0
        self.over: set[str] = set()
        self.kills: dict[tuple[str, int], float] = {}
        self.fair_at = self.saved_at = self.resumed_at = time.monotonic()
        self.people: dict[str, float] = {}
        self.now_and_then: tuple[tuple[float, Callable[[], None]], ...] = (
            (0.04, self.stops_one),
            (0.025, self.weather_turns),
            (0.02, self.kills_a_detector),
            (0.005, self.deletes_a_record),
            (0.01, self.edits_a_record),
            (0.008, self.deletes_a_lease),
            (0.003, self.deletes_the_gate),
            (0.003, self.empties_the_gate),
            (0.005, self.pauses),
            (0.001, self.changes_the_policy),
            (0.002, self.restores),
        )

    @property
    def pace(self) -> float:
        """How much more seldom things are disturbed than on two idle cores. Where others keep them busy,
        agents start slowly, and most would be killed before they work. It is the root of how much slower they
        start: half of a recovery is waiting, for Leases and probation, and takes no longer there."""
        slower = median(self.first_words) / FIRST_WORD if self.first_words else 1.0
        return float(max(1.0, slower) ** 0.5)

    # ------------------------------------------------------------ faults

    def breaks_one(self) -> None:
        if well := [node for node in self.site.well() if node not in self.broken]:
            node = self.chance.choice(well)
            self.breaks(node)
            self.broken[node] = time.monotonic()
            self.begun += 1

    def breaks(self, node: str) -> None:
        self.disturbs("SetInstanceHealth")
        self.site.breaks(node, self.chance.choice(["DMA_ERROR", "HBM_UNCORRECTABLE_ERROR"]))

    def disturbs(self, call: str) -> None:
        """What becomes of the next such call, now and then."""
        drawn = self.chance.random()
        if drawn < 0.2:
            self.site.proxy.lose_answer(call)
            self.site.done["cloud: answer lost"] += 1
        elif drawn < 0.3 and call == "SetInstanceHealth":
            self.site.proxy.fail(call, 400, "Throttling", "Rate exceeded")
            self.site.done["cloud: throttled"] += 1
        elif drawn < 0.4:
            self.site.proxy.reset(call)
            self.site.done["cloud: call lost"] += 1

    def ended(self) -> int:
        """Recovered, or superseded and so on; or its machine is gone, whatever became of its record."""
        records = self.site.records()
        for node in self.broken:
            if self.is_over(node, records.get(node, {}).get("phase")):
                self.over.add(node)
        return len(self.over)

    def is_over(self, node: str, phase: str | None) -> bool:
        return phase in OVER or (node not in self.site.alive and phase in (None, *A_PERSONS))

    def under_way(self) -> str:
        """Each that has not ended: node, phase, and for how long it has been broken."""
        records, now = self.site.records(), time.monotonic()
        left = {node: began for node, began in self.broken.items() if node not in self.over}
        return ", ".join(
            f"{node} {records.get(node, {}).get('phase', 'no record')} {now - began:.0f} s"
            for node, began in left.items()
        )

    def people_help(self) -> None:
        """What was left to people is done by them: a stuck agent is restarted, a machine is replaced."""
        records, now = self.site.records(), time.monotonic()
        for node, began in self.broken.items():
            phase = records.get(node, {}).get("phase")
            if node not in self.site.alive or now - max(began, self.people.get(node, 0.0)) < 40:
                continue
            if phase in A_PERSONS:
                self.site.replaces_by_hand(node)
            elif phase in (None, *OVER):  # its agent stopped: somebody took its record away, or gave it back
                self.site.person("an agent restarted by hand", node)
                self.restarts_agent(node)
            else:
                continue
            self.people[node] = now

    def restarts_agent(self, node: str) -> None:
        if self.site.kubelets.running(node):
            self.site.kill(self.site.kubelets.of(node))

    # ------------------------------------------------------------ disturbances

    def strikes(self) -> None:
        self.kills_some()
        self.site.go_on()
        self.site.detectors_again()
        now = time.monotonic()
        if now >= self.fair_at:
            self.site.fair()
        if now >= self.resumed_at:
            self.resumes()
        if now - self.saved_at > 20 and not self.site.weather.now:
            self.site.save()
            self.saved_at = now
        for share, what in self.now_and_then:
            if self.chance.random() < share:
                what()

    def kills_some(self) -> None:
        """Agents of sick nodes, each life having a length of its own; rarely another, or the concluder."""
        now = time.monotonic()
        first = not self.kills  # of those that it sees, nobody knows when they said their first word
        for container in self.site.kubelets.all():
            if not container.speaks:
                continue
            life = (container.pod, container.starts)
            if life not in self.kills:
                if not first:
                    self.first_words.append(now - container.began)
                self.kills[life] = now + self._life()
            end = self.kills[life]
            if (self.is_at_work(container) and now > end) or self.chance.random() < 0.004:
                self.site.kill(container)

    def is_at_work(self, container: Container) -> bool:
        """Whether it looks after a sick node."""
        return container.node in self.broken

    def _life(self) -> float:
        short = self.chance.random() < 0.4
        return self.pace * (self.chance.uniform(0, 5) if short else self.chance.uniform(5, 40))

    def stops_one(self) -> None:
        """Most for less than a Lease lasts or a little more, some for minutes."""
        running: list[Container] = [c for c in self.site.kubelets.all() if c.speaks]
        sick = [c for c in running if c.node in self.broken and c.node not in self.over]
        chosen = sick if sick and self.chance.random() < 0.7 else running
        if chosen:
            seconds = (
                self.chance.uniform(1, 20) if self.chance.random() < 0.9 else self.chance.uniform(60, 150)
            )
            self.site.stop_for(self.chance.choice(chosen), seconds)

    def kills_a_detector(self) -> None:
        self.site.detector_dies(self.chance.choice(sorted(self.site.alive)), self.chance.uniform(2, 20))

    def weather_turns(self) -> None:
        name = self.chance.choice(sorted(WEATHERS))
        self.site.weather.now = WEATHERS[name]
        self.fair_at = time.monotonic() + self.chance.uniform(2, 12)
        self.site.done[f"API: {name}"] += 1

    def _open(self) -> list[str]:
        found = [n for n, r in self.site.records().items() if r["phase"] not in (*OVER, *A_PERSONS)]
        return sorted(found)

    def deletes_a_record(self) -> None:
        if records := self._open():
            node = self.chance.choice(records)
            self.site.person("record deleted", node)
            self.site.plane.request("DELETE", f"{RECORDS}/{node}")

    def edits_a_record(self) -> None:
        if records := self._open():
            node = self.chance.choice(records)
            self.site.person("record edited", node)
            body = {"metadata": {"labels": {"team": "training"}}, "status": {"sentence": "looked at by ada"}}
            self.site.plane.request("PATCH", f"{RECORDS}/{node}", body=body, content_type=MERGE)

    def deletes_a_lease(self) -> None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.site.leases_in}/leases"
        if leases := [x["metadata"]["name"] for x in self.site.plane.get(path)["items"]]:
            name = self.chance.choice(sorted(leases))
            self.site.person("Lease deleted", name)
            self.site.plane.request("DELETE", f"{path}/{name}")

    def deletes_the_gate(self) -> None:
        self.site.person("gate deleted", "fleet")
        self.site.plane.request("DELETE", GATE)

    def empties_the_gate(self) -> None:
        self.site.person("gate emptied", "fleet")
        self.site.plane.request("PATCH", GATE, body={"status": None}, content_type=MERGE)

    def pauses(self) -> None:
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))
        pause = {"owner": "ada", "reason": "a network change", "until": until}
        self.site.person("pause", "fleet")
        self.site.plane.request("PATCH", GATE, body={"spec": {"pause": pause}}, content_type=MERGE)
        self.resumed_at = time.monotonic() + self.chance.uniform(3, 25)

    def resumes(self) -> None:
        if self.resumed_at:
            self.resumed_at = float("inf")
            self.site.plane.request("PATCH", GATE, body={"spec": {"pause": None}}, content_type=MERGE)

    def changes_the_policy(self) -> None:
        budget = self.chance.choice([2, 3, BUDGET])
        self.site.with_policy(self.site.rules.format(budget=budget, brake_per="{}"), budget)
        self.site.done["policy changed"] += 1

    def restores(self) -> None:
        self.site.restore()

    def calm(self) -> None:
        """Nothing is disturbed any more."""
        self.site.go_on(everybody=True)
        self.site.detectors_again(everybody=True)
        self.site.fair()
        self.resumed_at = 0.1
        self.resumes()
        self.site.note(facts.CALM, "")


class FleetChaos(Chaos):
    """As ``Chaos``, for two replicas of the controller. A node that was rebooted may break again."""

    site: FleetSoak

    def __init__(self, site: SoakSite, seed: int) -> None:
        super().__init__(site, seed)
        self.mended = 0
        self.now_and_then += ((0.02, self.breaks_watches),)

    def breaks(self, node: str) -> None:
        fault = self.chance.choices((REPLACED, REBOOTED, DEAD), (5, 3, 2))[0]
        self.disturbs("RebootInstances" if fault == REBOOTED else "SetInstanceHealth")
        self.site.done[f"fault: {fault[0]}"] += 1
        self.site.falls_sick(node, fault)

    def ended(self) -> int:
        super().ended()
        for node in [node for node in self.over if node in self.site.alive]:
            self.over.discard(node)
            del self.broken[node]
            self.mended += 1
        return len(self.over) + self.mended

    def is_over(self, node: str, phase: str | None) -> bool:
        """Its record may be the one of the time before, as long as its machine is sick."""
        return node not in self.site.sick and super().is_over(node, phase)

    def restarts_agent(self, node: str) -> None:
        """But for a node with marks of which no record is left: what it says of that is for people."""
        if self.site.is_marked(node):
            self.site.replaces_by_hand(node)
            return
        for replica in self.site.replicas():
            self.site.kill(replica)

    def is_at_work(self, container: Container) -> bool:
        return len(self.over) < len(self.broken)

    def _life(self) -> float:
        """Who is to lead has to see the Lease of a dead one unchanged for 15 s first."""
        short = self.chance.random() < 0.3
        return self.pace * (self.chance.uniform(0, 8) if short else self.chance.uniform(15, 70))

    def breaks_watches(self) -> None:
        self.site.weather.break_watches()
        self.site.done["watches broken"] += 1


def run(site: SoakSite, chaos: Chaos, seed: int) -> None:
    began = progress = time.monotonic()
    site.seed(seed)
    site.with_policy(site.rules.format(budget=BUDGET, brake_per="{}"), BUDGET)
    site.group(SIZE)
    site.new_pods()
    done = 0
    while done < RECOVERIES:
        before, done = done, chaos.ended()
        progress = time.monotonic() if done > before else progress
        stood = time.monotonic() - progress
        assert stood < STUCK * chaos.pace, (
            f"nothing has ended for {stood:.0f} s: {chaos.under_way()}\n{site.told()}"
        )
        if done // 10 > before // 10:
            took, way = time.monotonic() - began, chaos.under_way()
            say(f"  {done} ended after {took:.0f} s, pace {chaos.pace:.1f}; under way: {way}")
            site.keep(file_of(seed))
        if chaos.begun < RECOVERIES and chaos.begun - done <= BUDGET:
            chaos.breaks_one()
        chaos.strikes()
        site.new_pods()
        chaos.people_help()
        time.sleep(chaos.pace * chaos.chance.uniform(0.1, 0.7))
    chaos.calm()
    site.until("every slot is free", lambda: not site.slots(), 120)
    site.note(facts.ENDED, "", because="settled")
    told(site, seed, time.monotonic() - began)
    asked = Counter(r.params["InstanceId"] for r in site.proxy.requests if r.action == "SetInstanceHealth")
    say(f"  calls of the cloud: {sum(asked.values())} for {len(asked)} machines")


def file_of(seed: int) -> Path:
    return BUILD / f"soak-{seed}.jsonl"


def told(site: SoakSite, seed: int, took: float) -> None:
    file = file_of(seed)
    history = site.keep(file)
    violations = judge(history, ours=ours)
    say(f"\nSoak: {RECOVERIES} recoveries, seed {seed}, in {took:.0f} s; the facts are in {file}")
    ends = Counter(f"ended {r['phase']}" for r in site.records().values())
    requests = Counter({f"requests {what}": often for what, often in site.weather.counted.items()})
    for what, often in sorted((site.done + requests + ends).items()):
        say(f"  {often:5}  {what}")
    say(table(history))
    say(f"  {len(violations)} violations: {figures(violations)}")
    assert not violations, "\n".join(map(str, violations[:20]))


@pytest.mark.skipif(MODE == "fleet", reason="MODE=fleet")
def test_the_laws_hold_while_a_real_control_plane_is_disturbed(plane: Plane, tmp_path: Path) -> None:
    with SoakSite(plane, tmp_path / "site") as site:
        infrastructure(plane)  # where the concluder runs
        soaked(site, Chaos)


@pytest.mark.skipif(MODE != "fleet", reason="MODE=fleet is not set")
def test_the_laws_hold_in_fleet_mode_while_a_real_control_plane_is_disturbed(
    plane: Plane, tmp_path: Path
) -> None:
    with FleetSoak(plane, tmp_path / "site") as site:
        infrastructure(plane)
        soaked(site, FleetChaos)


def soaked(site: SoakSite, chaos: type[Chaos]) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1_000_000))
    try:
        run(site, chaos(site, seed), seed)
    except BaseException:
        say(f"\nseed {seed}; the facts are in {file_of(seed)}")
        if hasattr(site, "log_of_writes"):
            site.keep(file_of(seed))
        raise
