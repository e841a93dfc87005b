"""What is proved is proved by whoever looked (law 11)."""

from __future__ import annotations

from recovery_testkit.stage import Stage, npd_page

from tests.stories.scenery import pass_time, reboot, records
from tests.stories.scenes import REBOOTS


def test_an_agent_that_finds_its_node_on_probation_looks_on_for_the_whole_of_it_itself() -> None:
    """A peer wrote that the machine had booted, and nobody looked at the node's page since."""
    stage = Stage(REBOOTS)
    for name in stage.nodes(3):
        stage.agent(name)
    stage.run(0)
    stage.fault("node-0")
    pass_time(stage, 60, until=lambda: bool(stage.provider.calls))
    stage.kill(stage.actors["agent of node-0"])
    reboot(stage, "node-0")
    pass_time(stage, 300, until=lambda: records(stage) == {"node-0": "proving"})
    for peer in ("node-1", "node-2"):
        stage.kill(stage.actors[f"agent of {peer}"])
    stage.pages["node-0"].body = npd_page()
    pass_time(stage, 600)
    back = stage.agent("node-0", name="agent of node-0, again", alone=True)
    began = stage.clock.monotonic()
    pass_time(stage, 600, until=lambda: records(stage) == {"node-0": "recovered"}, step=1)
    assert back.sentences
    assert stage.clock.monotonic() - began >= 120, "two minutes of probation, seen by itself"
