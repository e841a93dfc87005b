"""What the record remembers is not acted on by memory alone: another process of the agent has no word on it.

The process before it held the fault as unknown: its condition was taken off, its series was gone, machines
like it no longer agreed. The one that follows has never seen the fault, and its source says nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.stories.prometheus_server import Server, serving
from tests.stories.scenery import change_node, judge, pass_time, to_the_end
from tests.stories.scenes import (
    MERGE,
    another_leader,
    calls,
    controller,
    new_process,
    pause,
    phase,
    plugin_page,
    ready,
    record_sentences,
    remove_pod,
    resume,
    stubborn_pod,
    the_record,
)
from tests.stories.test_conditions import COUNT, COUNT_GOOD, EKS, policy, writes
from tests.stories.test_fleet_prometheus import scene
from tests.stories.test_one_controller import Group
from tests.stories.test_short_counts import COUNTS, GPU, MINUTES, has

WORDLESS = "has said nothing of"


def why(s: Stage, node: str = "node-0") -> str:
    """What the controller says of the node now."""
    view = controller(s).replica.view(node)
    assert not isinstance(view, str), view
    return view.decision.reason


def no_longer_there(s: Stage, type_: str, node: str = "node-0") -> None:
    """Its writer takes the condition off the Node."""

    def change(obj: dict[str, object]) -> None:
        status: dict[str, list[dict[str, str]]] = obj["status"]  # type: ignore[assignment]
        status["conditions"] = [c for c in status["conditions"] if c["type"] != type_]

    change_node(s, node, change)


def waiting_behind_a_pause(condition: tuple[str, str, str] = COUNT, text: bytes = b"") -> tuple[Stage, Group]:
    s = Stage(text or policy())
    s.nodes(6)
    s.fleet()
    s.run(5)
    cloud = Group(s)
    pause(s)
    writes(s, condition)
    pass_time(s, 60, cloud, step=5)
    assert phase(s) is Phase.WAITING
    return s, cloud


def test_a_new_leader_does_nothing_for_a_condition_that_is_off_the_node_and_tells_a_person_in_time() -> None:
    s, cloud = waiting_behind_a_pause()
    no_longer_there(s, COUNT[0])
    pass_time(s, 60, cloud, step=5)
    another_leader(s)
    pass_time(s, 20, cloud, step=5)
    resume(s)
    pass_time(s, 8 * MINUTES, cloud, step=10)
    assert (calls(s), phase(s)) == ([], Phase.WAITING)
    assert WORDLESS in why(s)
    pass_time(s, 3 * MINUTES, cloud, step=10)
    assert (calls(s), phase(s)) == ([], Phase.HANDED_OVER)
    assert WORDLESS in record_sentences(s)[-1]
    judge(s)


def without_a_word_of_a_new_leaders() -> tuple[Stage, Group]:
    """The condition is off the Node, and another leader goes on after the pause."""
    s, cloud = waiting_behind_a_pause()
    no_longer_there(s, COUNT[0])
    another_leader(s)
    resume(s)
    pass_time(s, 30, cloud, step=5)
    return s, cloud


def test_a_condition_that_is_written_again_is_acted_on_at_once() -> None:
    s, cloud = without_a_word_of_a_new_leaders()
    assert calls(s) == []
    writes(s, COUNT)
    to_the_end(s, cloud)
    assert (calls(s), phase(s)) == ([("replace", "m-0")], Phase.RECOVERED)
    judge(s)


def test_a_good_condition_that_a_new_leader_sees_twice_ends_the_record() -> None:
    s, cloud = without_a_word_of_a_new_leaders()
    for _ in range(3):
        writes(s, COUNT_GOOD)
        pass_time(s, 60, cloud, step=5)
    assert (calls(s), phase(s)) == ([], Phase.WITHDRAWN)


def test_what_no_source_takes_back_is_on_the_record_for_a_new_leader_too() -> None:
    s, cloud = waiting_behind_a_pause(EKS)
    another_leader(s)
    no_longer_there(s, EKS[0])
    resume(s)
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]


def test_a_new_leader_in_the_middle_of_a_drain_asks_for_nothing_until_the_deadline_hands_over() -> None:
    remedy = "{do: drain, within: 30m, then: force}, {do: replace, within: 15m}"
    s = Stage(policy("{}", remedy))
    s.nodes(6)
    stubborn_pod(s)
    s.fleet()
    s.run(5)
    cloud = Group(s)
    writes(s, COUNT)
    pass_time(s, 60, cloud, step=5)
    assert phase(s) is Phase.RECOVERING
    no_longer_there(s, COUNT[0])
    another_leader(s)
    pass_time(s, 20, cloud, step=5)
    remove_pod(s)
    pass_time(s, 12 * MINUTES, cloud, step=10)
    assert (calls(s), phase(s)) == ([], Phase.RECOVERING)
    assert "replace waits for a fresh signal" in why(s)
    pass_time(s, 5 * MINUTES, cloud, step=10)
    assert (calls(s), phase(s)) == ([], Phase.HANDED_OVER)
    assert WORDLESS in the_record(s).sentence


def test_a_sidecar_that_is_started_anew_does_nothing_for_a_condition_that_is_off_its_node() -> None:
    s = Stage(policy())
    s.nodes(4)
    s.agent("node-0")
    s.run(5)
    pause(s)
    writes(s, COUNT)
    s.run(60, step=5)
    assert phase(s) is Phase.WAITING
    no_longer_there(s, COUNT[0])
    new_process(s, "node-0")
    s.run(10)
    resume(s)
    s.run(5 * MINUTES, step=5)
    assert (calls(s), phase(s)) == ([], Phase.WAITING)
    writes(s, COUNT)
    s.run(60, step=5)
    assert calls(s) == [("replace", "m-0")]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(FakeClock()) as made:
        yield made


def test_a_new_leader_does_nothing_for_a_series_that_is_gone(server: Server) -> None:
    w = scene(server)
    w.server.put("ib_dev", 3, node="node-0")
    pause(w.s)
    pass_time(w.s, 60, w.cloud, step=5)
    w.server.drop("ib_dev", node="node-0")  # its exporter is restarted
    pass_time(w.s, 60, w.cloud, step=5)
    another_leader(w.s)
    pass_time(w.s, 60, w.cloud, step=5)
    resume(w.s)
    pass_time(w.s, 120, w.cloud, step=5)
    assert (calls(w.s), phase(w.s)) == ([], Phase.WAITING)
    w.server.put("ib_dev", 3, node="node-0")
    to_the_end(w.s, w.cloud)
    assert calls(w.s) == [("replace", "m-0")]


def short_of_one() -> tuple[Stage, Group]:
    """Of six machines node-0 has a GPU less, which waits behind a pause."""
    s = Stage(COUNTS)
    for name, there in zip(s.nodes(6), (7, 8, 8, 8, 8, 8), strict=True):
        has(s, name, there)
    s.fleet()
    s.run(5)
    cloud = Group(s)
    pause(s)
    pass_time(s, 23 * MINUTES, cloud, step=10)
    assert phase(s) is Phase.WAITING
    return s, cloud


def shared_out_otherwise(s: Stage) -> None:
    for i, there in enumerate((16, 16, 8, 8, 4), start=1):
        has(s, f"node-{i}", there)


def moved_to_another_api(s: Stage) -> None:
    body = {"status": {"capacity": {GPU: None}, "allocatable": {GPU: None}}}
    for i in range(6):
        assert s.store.request("PATCH", f"/api/v1/nodes/node-{i}/status", body=body, content_type=MERGE).ok


@pytest.mark.parametrize("change", [shared_out_otherwise, moved_to_another_api])
@pytest.mark.parametrize("leader", [another_leader, lambda s: None], ids=["another leader", "the same"])
def test_a_count_of_which_machines_no_longer_agree_is_a_persons(
    change: Callable[[Stage], None], leader: Callable[[Stage], None]
) -> None:
    s, cloud = short_of_one()
    change(s)
    pass_time(s, 60, cloud, step=5)
    leader(s)
    resume(s)
    pass_time(s, 5 * MINUTES, cloud, step=10)
    assert (calls(s), phase(s)) == ([], Phase.WAITING)
    pass_time(s, 6 * MINUTES, cloud, step=10)
    assert (calls(s), phase(s)) == ([], Phase.HANDED_OVER)


def test_a_count_that_is_still_short_is_word_enough_for_a_new_leader() -> None:
    s, cloud = short_of_one()
    another_leader(s)
    resume(s)
    pass_time(s, 2 * MINUTES, cloud, step=5)
    assert calls(s) == [("replace", "m-0")]


def test_a_sidecar_that_is_started_anew_waits_for_the_word_of_a_plugin_that_has_not_run_yet() -> None:
    s = Stage(policy().replace(b"[conditions]", b"[npd]"))
    s.nodes(4)
    s.agent("node-0")
    s.pages["node-0"].body = plugin_page(bad=False, count=0)
    s.run(5)
    pause(s)
    s.pages["node-0"].body = plugin_page(bad=True, count=1)
    s.run(60, step=5)
    assert phase(s) is Phase.WAITING
    its_detector_starts_as_well = b'problem_gauge{reason="GpuNvlinkBad",type="GpuNvlink"} 0\n'
    s.pages["node-0"].body = its_detector_starts_as_well
    new_process(s, "node-0")
    resume(s)
    s.run(120, step=5)
    assert (calls(s), phase(s)) == ([], Phase.WAITING)
    s.pages["node-0"].body = plugin_page(bad=True, count=0)
    s.run(60, step=5)
    assert calls(s) == [("replace", "m-0")]


@pytest.mark.parametrize("stays", [False, True], ids=["it is not Ready again", "it stays Ready"])
def test_a_new_leader_knows_no_better_than_the_last_one_that_a_node_is_back(stays: bool) -> None:
    s = Stage(policy("{type: Ready}"))
    s.nodes(6)
    s.fleet()
    s.run(5)
    cloud = Group(s)
    pause(s)
    ready(s, "node-0", "False")
    pass_time(s, 60, cloud, step=5)
    assert phase(s) is Phase.WAITING
    ready(s, "node-0", "True")
    s.run(2)
    another_leader(s)
    resume(s)
    s.run(30, step=2)
    assert (calls(s), phase(s)) == ([], Phase.WAITING)
    assert "counts once it has been for a minute" in why(s)
    if not stays:
        ready(s, "node-0", "False")
    to_the_end(s, cloud)
    after = ([], Phase.WITHDRAWN) if stays else ([("replace", "m-0")], Phase.RECOVERED)
    assert (calls(s), phase(s)) == after
