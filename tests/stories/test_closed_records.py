"""Closed records: how small they are, how long they are kept, and that nobody misses one that is removed."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.kubefaults import Asked, refused
from recovery_testkit.kubestatus import Response
from recovery_testkit.stage import QUICK, Stage, npd_page

from recovery.agent.retention import AT_ONCE
from recovery.catalog import own_fault
from recovery.decide.census import count
from recovery.decide.retention import LEAST
from recovery.kube.cluster import Cluster
from recovery.kube.transport import Response as Answer
from recovery.model import PHASE_LABEL, Marks, Phase, Record, Start, Validation, ValidationRun
from recovery.short import size
from recovery.store.compact import CLOSED, OPEN
from recovery.store.record import Records
from recovery.store.record_codec import encode
from tests.builders.faults import fault
from tests.builders.nodes import MACHINE
from tests.builders.policies import policy_file
from tests.builders.records import intent, record
from tests.builders.times import HOUR, MINUTE
from tests.stories.scenery import RECORDS, Cloud, change_gate, records, sentences, to_the_end
from tests.stories.scenes import (
    at,
    boot,
    calls,
    cast,
    exclude,
    handed_over,
    new_process,
    patch_node,
    phase,
    swap_record,
)

DAY = timedelta(days=1)
MONTH = 31 * DAY
KEPT = policy_file(limits="cooldown: 0s, budget: 0, records: {keep: 720h, max: 3}")


def later(s: Stage, by: timedelta) -> None:
    """So much time passes in which nobody acts; then everybody does, for a moment."""
    s.clock.advance(by.total_seconds())
    s.run(3)


def closed(
    s: Stage, name: str, ago: timedelta = MONTH, phase: Phase = Phase.RECOVERED, **changes: Any
) -> str:
    """A closed record of a node that is not there, of so long ago."""
    since = s.clock.true_time() - ago
    plain: dict[str, Any] = {"machine": replace(MACHINE, id=f"old-{name}"), "boot_id": "old-boot"}
    made = record(phase, node=name, uid="", resource_version="", phase_since=since, **{**plain, **changes})
    s.store.load(encode(made))
    return name


def hours(s: Stage, count: int = 2) -> None:
    """So many hours pass, a minute at a time."""
    for _ in range(count * 60):
        s.clock.advance(60)
        s.run(0)


def written(s: Stage) -> list[dict[str, Any]]:
    return [w.object for w in s.store.history if "/noderecoveries" in w.path and w.object]


def deleted(s: Stage) -> list[str]:
    return [
        w.path.rsplit("/", 1)[-1] for w in s.store.history if w.verb == "delete" and "noderecov" in w.path
    ]


# ---------------------------------------------------------------- how small


def test_the_records_of_a_group_of_a_thousand_machines_stay_small() -> None:
    s = cast(agents=2)
    group = s.provider.groups["workers"]
    group.in_service += [f"i-0{x:016x}" for x in range(1_000)]
    group.desired = len(group.in_service)
    cloud = Cloud(s)
    s.fault("node-0")
    to_the_end(s, cloud)
    assert records(s) == {"node-0": "recovered"}
    assert calls(s) == [("replace", "m-0")]
    for obj in written(s):
        status = {k: v for k, v in obj.items() if k != "metadata"}
        most = OPEN if Phase(obj["status"]["phase"]).open else CLOSED
        assert size(status) <= most, obj["status"]["phase"]


def many_reasons(shown: int) -> bytes:
    """A page with so many faults that no rule speaks of."""
    lines = [
        f'problem_counter{{reason="Odd{x}"}} 1\nproblem_gauge{{reason="Odd{x}",type="Kind{x}"}} 1'
        for x in range(shown)
    ]
    return ("\n".join(lines) + "\n").encode()


def test_two_hundred_faults_that_are_only_reported_are_reported_once() -> None:
    s = cast(agents=1)
    s.pages["node-0"].body = many_reasons(200)
    s.run(60)
    before = len(written(s))
    s.run(120)
    assert len(written(s)) - before <= 1
    new_process(s, "node-0")
    s.run(60)
    assert len(written(s)) - before <= 2
    assert size(written(s)[-1]["status"]) <= CLOSED


# ---------------------------------------------------------------- the node's own agent


def rebooted() -> Stage:
    """node-0 was rebooted and proved; its page says that nothing is wrong."""
    s = at("proving")
    s.run(130)
    assert phase(s) is Phase.RECOVERED
    return s


def test_an_agent_removes_its_own_record_after_thirty_days() -> None:
    s = rebooted()
    later(s, 29 * DAY)
    assert phase(s) is Phase.RECOVERED
    later(s, 2 * DAY)
    assert s.record("node-0") is None
    assert any("its record is removed: recovered for" in x for x in sentences(s))
    s.run(120)
    assert not any("deleted this node's record" in x for x in sentences(s))
    assert written(s)[-1]["status"]["phase"] == "recovered", "nobody made it again"


def test_a_new_fault_after_that_is_treated_as_any_other() -> None:
    s = rebooted()
    later(s, MONTH)
    assert s.record("node-0") is None
    s.fault("node-0")
    s.run(5)
    assert phase(s) is Phase.RECOVERING


def test_an_agent_that_starts_later_removes_it_as_well() -> None:
    s = rebooted()
    s.kill(s.actors["agent of node-0"])
    s.clock.advance(MONTH.total_seconds())
    new_process(s, "node-0")
    s.run(3)
    assert s.record("node-0") is None


def released() -> Stage:
    """node-0 was handed over and released. Its page shows the fault still: nothing but a boot clears it."""
    s = handed_over()
    was = s.record("node-0")
    assert was is not None
    swap_record(s, replace(was, phase=Phase.RELEASED, marks=Marks(), acknowledged=was.faults))
    s.run(5)
    assert phase(s) is Phase.RELEASED
    return s


def test_a_record_that_keeps_a_fault_from_being_treated_again_stays() -> None:
    s = released()
    s.concluder()
    for _ in range(3):
        later(s, MONTH)
        hours(s, 2)
    assert phase(s) is Phase.RELEASED
    assert calls(s) == []
    s.pages["node-0"].body = npd_page()
    boot(s, "node-0")
    new_process(s, "node-0")
    s.run(5)
    assert s.record("node-0") is None


def test_a_page_that_cannot_be_read_removes_nothing() -> None:
    s = rebooted()
    s.pages["node-0"].error = OSError("connection refused")
    s.run(5)
    later(s, MONTH)
    assert s.record("node-0") is not None


def test_a_record_in_a_persons_hands_stays() -> None:
    s = handed_over()
    s.concluder()
    later(s, 12 * MONTH)
    hours(s, 2)
    assert phase(s) is Phase.HANDED_OVER


def test_the_record_of_an_excluded_node_stays() -> None:
    s = rebooted()
    exclude(s)
    s.concluder()
    later(s, MONTH)
    hours(s, 2)
    assert phase(s) is Phase.RECOVERED


def test_an_agent_that_may_not_delete_says_so_and_goes_on() -> None:
    s = rebooted()
    s.api.fail_next(lambda a: a.method == "DELETE", refused(403, "Forbidden", "rights of before"), times=100)
    later(s, MONTH)
    s.run(60)
    assert any("its old record stays" in x for x in sentences(s))
    assert s.api.pending >= 98, "asked once an hour, not all the time"
    s.fault("node-0")
    s.run(5)
    assert phase(s) is Phase.RECOVERING


def test_off_removes_nothing() -> None:
    s = rebooted()
    for node in ("node-0", "node-1"):
        new_process(s, node, on=False)
    later(s, MONTH)
    hours(s, 2)
    assert phase(s) is Phase.RECOVERED


def test_an_agent_that_was_cut_off_for_a_month_does_not_miss_its_record() -> None:
    """Its open record was closed by a peer, and removed in order."""
    s = at("waiting")
    agent = s.actors["agent of node-0"]
    agent.alive = False
    was = s.record("node-0")
    assert was is not None
    change_gate(s, lambda g: g["status"].update(open=[], slots=[]))
    since = s.clock.true_time()
    swap_record(s, replace(was, phase=Phase.SUPERSEDED, phase_since=since, faults=()))
    s.concluder()
    s.clock.advance(MONTH.total_seconds())
    hours(s, 2)
    assert s.record("node-0") is None
    agent.alive = True
    s.run(5)
    assert not any("deleted this node's record" in x for x in agent.sentences)
    assert phase(s) is Phase.WAITING, "its fault is treated as a new one"


def test_an_agent_whose_open_record_is_deleted_by_somebody_still_stops() -> None:
    s = at("waiting")
    s.store.request("DELETE", f"{RECORDS}/node-0", user_agent="somebody")
    s.run(30)
    assert s.record("node-0") is None
    assert "somebody deleted this node's record" in sentences(s)[-1]


# ---------------------------------------------------------------- nodes that are gone


def attended(policy: bytes = QUICK) -> Stage:
    """Four nodes, and a concluder."""
    s = cast(policy, agents=0)
    s.concluder()
    return s


def test_the_concluder_removes_the_records_of_nodes_that_are_gone() -> None:
    s = attended()
    old = [closed(s, f"gone-{x}", phase=p) for x, p in enumerate(Phase) if not p.sick]
    young = closed(s, "young", ago=10 * DAY)
    hours(s)
    assert sorted(deleted(s)) == sorted(old)
    assert set(records(s)) == {young}


STAY: dict[str, dict[str, Any]] = {
    "a person has the node": {"phase": Phase.HANDED_OVER},
    "marks on record": {"marks": Marks(tainted=True)},
    "closed a moment ago": {"ago": HOUR},
}


@pytest.mark.parametrize("why", STAY)
def test_a_record_that_still_means_something_stays(why: str) -> None:
    s = attended(KEPT)
    closed(s, "kept", **STAY[why])
    for x in range(5):
        closed(s, f"gone-{x}", ago=MONTH - x * MINUTE)
    hours(s)
    assert set(records(s)) == {"kept"}


def test_a_record_stays_while_a_limit_counts_its_starts() -> None:
    s = attended(policy_file(limits="attempts: {max: 3, within: 2000h}"))
    now = s.clock.true_time()
    counted = closed(s, "counted", starts=(Start(now - 1900 * HOUR, "old-counted", "DMA"),))
    closed(s, "not-counted", starts=(Start(now - 2100 * HOUR, "old-not-counted", "DMA"),))
    hours(s)
    assert set(records(s)) == {counted}


def test_a_record_stays_while_its_validation_runs() -> None:
    s = attended(policy_file(limits="records: {keep: 24h}"))
    run = ValidationRun("nr-1", s.clock.true_time() - HOUR)
    runs = closed(s, "validated", ago=2 * DAY, validation=run, validate=Validation("burn-in", 10 * HOUR))
    hours(s)
    assert set(records(s)) == {runs}
    hours(s, 11)
    assert records(s) == {}


def test_a_record_with_a_place_on_the_gate_stays() -> None:
    s = rebooted()
    for actor in s.actors.values():
        s.kill(actor)
    s.delete_node("node-0")
    was = s.record("node-0")
    assert was is not None
    s.clock.advance(MONTH.total_seconds())
    line = {"node": "node-0", "recordUID": was.uid, "since": "2026-11-21T03:00:00Z"}
    change_gate(s, lambda g: g["status"].update(open=[line]))
    concluder = s.concluder()
    concluder.sweeper._remover._due = 0.0
    order = [w.path for w in s.store.history]
    s.run(0)
    new = [w.path for w in s.store.history][len(order) :]
    assert f"{RECORDS}/node-0" not in new, "first its place is freed"
    hours(s)
    assert records(s) == {}


NODES: dict[str, tuple[Callable[[Stage], None], dict[str, Any]]] = {
    "the node is excluded": (lambda s: exclude(s, "node-3"), {}),
    "the node bears our marks": (
        lambda s: patch_node(
            s, "node-3", {"spec": {"taints": [{"key": "noderecovery.dev/unhealthy", "effect": "NoSchedule"}]}}
        ),
        {},
    ),
    "a fault of this boot was dealt with": (
        lambda s: None,
        {"acknowledged": (fault(machine="m-3", boot_id="m-3-boot-1"),)},
    ),
    "a call may still have its effect": (
        lambda s: None,
        {"machine": replace(MACHINE, id="m-3"), "intent": intent(), "phase": Phase.RELEASED},
    ),
    "lost in this boot": (
        lambda s: None,
        {"machine": replace(MACHINE, id="m-3"), "boot_id": "m-3-boot-1", "phase": Phase.LOST},
    ),
}


@pytest.mark.parametrize("why", NODES)
def test_the_record_of_a_node_without_an_agent_stays_while_it_counts_there(why: str) -> None:
    s = attended()
    change, fields = NODES[why]
    change(s)
    closed(s, "node-3", **fields)
    hours(s)
    assert set(records(s)) == {"node-3"}


def test_the_record_of_a_node_without_an_agent_goes_once_it_has_booted() -> None:
    s = attended()
    closed(s, "node-3", acknowledged=(fault(machine="m-3", boot_id="an earlier boot"),))
    hours(s)
    assert records(s) == {}


def test_of_too_many_the_oldest_go_first_and_none_of_today() -> None:
    s = attended(KEPT)
    for x in range(6):
        closed(s, f"gone-{x}", ago=(10 - x) * DAY)
    for x in range(3):
        closed(s, f"today-{x}", ago=LEAST - 6 * HOUR)
    hours(s)
    assert deleted(s) == [f"gone-{x}" for x in range(6)]
    assert set(records(s)) == {"today-0", "today-1", "today-2"}


def test_more_than_a_few_are_removed_in_turns() -> None:
    s = attended()
    for x in range(3 * AT_ONCE):
        closed(s, f"gone-{x:03}")
    hours(s)
    assert records(s) == {}


def test_records_that_stay_do_not_keep_others_from_being_removed() -> None:
    s = attended()
    for x in range(AT_ONCE + 10):
        s.register(f"there-{x}", f"t-{x}")
        closed(
            s, f"there-{x}", ago=2 * MONTH, acknowledged=(fault(machine=f"t-{x}", boot_id=f"t-{x}-boot-1"),)
        )
    closed(s, "gone")
    hours(s, 4)
    assert deleted(s) == ["gone"]


def test_a_record_that_changes_meanwhile_stays() -> None:
    """Its node is back, and its agent writes the record between the list and the delete."""
    s = attended()
    closed(s, "gone")

    def first_somebody_writes(asked: Asked, go: Callable[[], Response]) -> Response:
        was = s.record("gone")
        assert was is not None
        swap_record(s, replace(was, phase=Phase.SUSPECT, phase_since=s.clock.true_time()))
        return go()

    s.api.fail_next(lambda a: a.method == "DELETE", first_somebody_writes)
    hours(s)
    assert s.api.pending == 0
    assert set(records(s)) == {"gone"}
    assert deleted(s) == []


def test_where_there_is_no_concluder_agents_do_it_by_lot() -> None:
    s = cast(agents=4)
    s.fault("node-0", "HANG_ON_COLLECTIVES")
    count_once(s)
    closed(s, "gone")
    for _ in range(24):
        hours(s, 1)
    assert deleted(s) == ["gone"]


def count_once(s: Stage) -> None:
    census = {"at": "2026-11-21T03:00:00Z", "population": 4, "sick": [], "byLabel": {}}
    gate = {"apiVersion": "noderecovery.dev/v1alpha1", "kind": "RecoveryGate", "metadata": {"name": "fleet"}}
    (made,) = s.store.load({**gate, "spec": {}, "status": {"version": 1, "stamp": "", "census": census}})
    change_gate(s, lambda g: g["status"].update(stamp=made["metadata"]["uid"]))


# ---------------------------------------------------------------- lists


def pages(asked: Asked) -> bool:
    return asked.method == "GET" and asked.path == RECORDS and "continue" in asked.query


def crowd(s: Stage, open_ones: int = 0, well: int = 250) -> None:
    """So many closed records, without a label, and of nodes that are gone."""
    for x in range(well + open_ones):
        kind = Phase.WAITING if x >= well else Phase.RECOVERED
        made = record(kind, node=f"n-{x:03}", uid="", resource_version="", phase_since=s.clock.true_time())
        body = encode(made)
        del body["metadata"]["labels"]
        s.store.load(body)


def test_a_list_that_expires_in_the_middle_starts_again() -> None:
    s = cast(agents=1)
    crowd(s, open_ones=3)
    s.api.fail_next(pages, refused(410, "Expired", "too old"), times=2)
    s.fault("node-0")
    s.run(5)
    assert s.api.pending == 0
    census = s.gate().census
    assert census is not None
    assert set(census.sick) == {"node-0", "n-250", "n-251", "n-252"}


def test_a_gate_is_rebuilt_from_a_list_that_expired_in_the_middle() -> None:
    s = cast(agents=1)
    crowd(s, open_ones=3)
    s.api.fail_next(pages, refused(410, "Expired", "too old"))
    s.fault("node-0")
    s.run(5)
    assert s.api.pending == 0
    assert {x.node for x in s.gate().open} >= {"n-250", "n-251", "n-252"}


def test_a_list_that_changes_while_it_is_read_is_no_error() -> None:
    s = cast(agents=1)
    crowd(s)

    def one_is_deleted(asked: Asked, go: Callable[[], Response]) -> Response:
        s.store.request("DELETE", f"{RECORDS}/n-200")
        closed(s, "n-new", ago=DAY)
        return go()

    s.api.fail_next(pages, one_is_deleted)
    s.fault("node-0")
    s.run(5)
    assert s.api.pending == 0
    assert phase(s) is Phase.RECOVERING


def test_closed_records_are_left_out_of_what_is_counted_all_the_time() -> None:
    s = cast(agents=1)
    for x in range(250):
        closed(s, f"n-{x:03}", ago=DAY)
    asked: list[Asked] = []
    s.api.fail_next(lambda a: a.path == RECORDS and a.method == "GET" and bool(asked.append(a)), refused(500))
    s.fault("node-0")
    s.run(5)
    assert phase(s) is Phase.RECOVERING
    counts = [a for a in asked if "labelSelector" in a.query]
    assert counts
    assert not [a for a in counts if "continue" in a.query], "one page holds all that are open"


def test_every_record_bears_its_phase_as_a_label() -> None:
    s = rebooted()
    assert written(s)
    for obj in written(s):
        assert obj["metadata"]["labels"][PHASE_LABEL] == obj["status"]["phase"]


def test_an_open_record_whose_label_says_closed_is_found_within_an_hour() -> None:
    """Somebody edited it by hand, and its agent is dead."""
    s = attended()
    made = record(Phase.WAITING, node="edited", uid="", resource_version="")
    body = encode(made)
    body["metadata"]["labels"] = {PHASE_LABEL: "recovered"}
    s.store.load(body)
    hours(s, 3)
    assert records(s) == {"edited": "superseded"}


# ---------------------------------------------------------------- memory


class Crowd:
    """An API server with so many closed records, made when their page is asked for."""

    def __init__(self, many: int) -> None:
        self.many = many
        self.asked = 0
        plain = record(Phase.RECOVERED, starts=(Start(record().phase_since, "m-0", "DMA"),) * 10)
        self.body = json.dumps(encode(plain)).replace("node-0", "NAME")

    def request(self, method: str, path: str, *, query: Any = None, **_: Any) -> Answer:
        self.asked += 1
        start, limit = int((query or {}).get("continue") or 0), int(query["limit"])
        items = [
            json.loads(self.body.replace("NAME", f"n-{x}"))
            for x in range(start, min(self.many, start + limit))
        ]
        more = start + limit < self.many
        metadata = {"continue": str(start + limit)} if more else {}
        for item in items:
            item["metadata"] |= {"uid": f"u-{item['metadata']['name']}", "resourceVersion": "1"}
        return Answer(200, {}, {"items": items, "metadata": metadata})


def memory_of(many: int) -> int:
    """The most bytes in use while so many closed records are counted. An older program left them without a
    label, so that each is listed."""
    crowd, clock = Crowd(many), FakeClock()
    known = Records(Cluster(crowd, clock, "default"))
    tracemalloc.start()
    census = count(
        [], (x for x in known.sick() if isinstance(x, Record)), own_fault, ["zone"], clock.true_time()
    )
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert census.sick == ()
    assert crowd.asked == many / 100
    return most


@pytest.mark.slow
def test_ten_times_as_many_closed_records_take_no_more_memory() -> None:
    """What ten thousand cost a process, measured with a real API server: bench/bench_records.py."""
    few, many = memory_of(100), memory_of(1_000)
    assert many <= few * 1.2
    assert many <= 10 * 1024 * 1024
