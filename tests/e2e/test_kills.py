"""``kill -9`` of agents at random moments, and a cloud that loses answers. The seed is printed.

``RECOVERIES`` is how many nodes break (20), ``SEED`` repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable

from fleet_site import Site

RECOVERIES = int(os.environ.get("RECOVERIES", "20"))
SIZE, BUDGET = 8, 4


class Chaos:
    """Breaks nodes, kills agents and loses the cloud's answers, by one seed."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.chance = random.Random(seed)  # noqa: S311
        self.broken: list[str] = []
        self.kills = self.lost = 0
        self.ends: dict[tuple[str, int], float] = {}  # pod and its n-th start -> when it is to be killed

    def ended(self) -> int:
        """Recovered and proved; or superseded, where the replacement broke too before it was proved."""
        records = self.site.records()
        ends = ("recovered", "superseded")
        return sum(1 for node in self.broken if records.get(node, {}).get("phase") in ends)

    def well(self) -> list[str]:
        """Nodes that may break: their sidecars have looked at them."""
        kubelets, log = self.site.kubelets, self.site.log
        fresh = [n for n in list(self.site.instances) if n not in self.broken and kubelets.running(n)]
        return [n for n in fresh if "healthy" in log(n)]

    def breaks_one(self) -> None:
        if self.chance.random() < 0.2:
            self.site.proxy.lose_answer("SetInstanceHealth")
            self.lost += 1
        node = self.chance.choice(self.well())
        self.site.breaks(node, self.chance.choice(["DMA_ERROR", "HBM_UNCORRECTABLE_ERROR"]))
        self.broken.append(node)

    def kills_some(self) -> None:
        """Agents of sick nodes, each life having a length of its own; rarely another, or the concluder.

        A life is counted from the agent's first words: to be killed while Python imports proves nothing.
        Most are shorter than a step of a recovery, some are long: an agent has to get further than the one
        before it at some time, and a peer watches the intent of a dead agent for 40 s.
        """
        now = time.monotonic()
        for container in self.site.kubelets.all():
            if not container.speaks:
                continue
            life = (container.pod, container.starts)
            end = self.ends.setdefault(life, now + self._life())
            sick = container.node in self.broken and now > end
            if sick or self.chance.random() < 0.005:
                self.site.kubelets.kill(container)
                self.kills += 1

    def _life(self) -> float:
        """Seconds."""
        return self.chance.uniform(0, 5) if self.chance.random() < 0.6 else self.chance.uniform(5, 30)


def test_agents_killed_at_random_moments_recover_every_node_once(
    site: Site, tell: Callable[[str], None]
) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1_000_000))
    tell(f"Random kills: {RECOVERIES} recoveries, seed {seed}")
    site.recovering(BUDGET)
    site.group(SIZE)
    chaos = Chaos(site, seed)
    began = progress = time.monotonic()
    done = 0
    while done < RECOVERIES:
        before, done = done, chaos.ended()
        progress = time.monotonic() if done > before else progress
        stuck = time.monotonic() - progress > 180
        assert not stuck, f"seed {seed}: no recovery ended within three minutes\n{site.told()}"
        if len(chaos.broken) < RECOVERIES and len(chaos.broken) - done <= BUDGET and chaos.well():
            chaos.breaks_one()
        chaos.kills_some()
        time.sleep(chaos.chance.uniform(0.1, 0.9))
    site.until("every slot is free", lambda: not site.slots())
    asked = Counter(r.params["InstanceId"] for r in site.proxy.requests if r.action == "SetInstanceHealth")
    assert set(asked) == {site.instances[node] for node in chaos.broken}, f"seed {seed}"
    assert set(asked.values()) == {1}, f"seed {seed}: {asked}"
    site.check_laws(chaos.broken, finished=True)
    took = time.monotonic() - began
    tell(f"  all recovered in {took:.0f} s; {chaos.kills} kills, {chaos.lost} answers lost; the laws held")
