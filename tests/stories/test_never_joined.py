"""A machine that its group calls in service, and that never became a Node."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from recovery_testkit.stage import Stage

from recovery.errors import Refused, Retry
from recovery.model import Phase
from tests.stories.console import Terminal
from tests.stories.scenery import judge, pass_time, records
from tests.stories.scenes import calls, messages, ready, sayings, the_record, value
from tests.stories.test_conditions import policy
from tests.stories.test_one_controller import Group

MINUTE = 60
RULE = policy("{type: NeverJoined}", "{do: notify}")
LOST = "never-joined.m-9"


def fleet(text: bytes = RULE, count: int = 4, **more: object) -> tuple[Stage, Group]:
    """Nodes of a group that has one more machine, launched just now."""
    s = Stage(text)
    s.nodes(count)
    launch(s, "m-9")
    s.fleet(**more)  # type: ignore[arg-type]
    return s, Group(s)


def launch(s: Stage, machine: str, group: str = "workers") -> None:
    s.provider.launch(group, machine)
    s.provider.groups[group].desired += 1
    s.provider.groups[group].launched[machine] = s.clock.true_time()


def minutes(s: Stage, cloud: Group, count: float) -> None:
    pass_time(s, count * MINUTE, cloud, step=15)


def test_it_is_handed_over_after_a_quarter_of_an_hour_and_nothing_is_done_to_it() -> None:
    s, cloud = fleet()
    minutes(s, cloud, 14)
    assert s.record(LOST) is None
    minutes(s, cloud, 3)
    r = the_record(s, LOST)
    assert r.phase is Phase.HANDED_OVER
    assert "m-9 of group workers was launched at" in r.sentence
    assert "no Node of the cluster is this machine" in r.sentence
    assert calls(s) == []
    assert messages(s, "HandedOver", LOST)
    assert value(s.actors["controller"], "node_recovery_never_joined_machines", group="workers") == 1
    lasting = {"type": "NeverJoined", "reason": "NotRegistered"}
    assert value(s.actors["controller"], "node_recovery_faults", **lasting) == 1, (
        "it has no Node, and is none gone"
    )
    judge(s)


def test_one_that_joins_after_all_is_withdrawn_and_the_sentence_says_as_which_node() -> None:
    s, cloud = fleet()
    minutes(s, cloud, 17)
    s.register("node-9", "m-9")
    minutes(s, cloud, 3)
    r = the_record(s, LOST)
    assert (r.phase, r.sentence.rpartition(": ")[2]) == (Phase.WITHDRAWN, "it joined as node-9")
    assert value(s.actors["controller"], "node_recovery_never_joined_machines", group="workers") == 0
    judge(s)


def nothing_said(s: Stage, machine: str = "m-9") -> bool:
    return s.record(f"never-joined.{machine}") is None and not messages(
        s, "HandedOver", f"never-joined.{machine}"
    )


def _hidden(s: Stage, _: Group) -> None:
    """Its Node is there, and not among those that the controller looks after."""
    s.register("elsewhere", "m-9", pool="other")


def _not_in_service(s: Stage, _: Group) -> None:
    s.provider.groups["workers"].states["m-9"] = "Standby"


def _no_launch_time(s: Stage, _: Group) -> None:
    del s.provider.groups["workers"].launched["m-9"]


def _no_ready_node(s: Stage, _: Group) -> None:
    for i in range(4):
        ready(s, f"node-{i}", "Unknown")


def _unknown(s: Stage, _: Group) -> None:
    s.provider.groups["workers"].unlisted = "denied"


def _nameless(s: Stage, _: Group) -> None:
    """Some Node has no providerID yet: it may be this machine."""
    s.store.load({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "who-is-it"}, "spec": {}})


@pytest.mark.parametrize(
    "guard", [_hidden, _not_in_service, _no_launch_time, _no_ready_node, _unknown, _nameless]
)
def test_nothing_is_said_of_a_machine_that_may_be_in_order(guard: Callable[[Stage, Group], None]) -> None:
    s = Stage(RULE)
    for i in range(4):
        s.add_node(f"node-{i}", f"m-{i}", pool="ours")
    launch(s, "m-9")
    s.fleet(selector="pool=ours")
    cloud = Group(s)
    pass_time(s, 10, cloud, step=1)
    guard(s, cloud)
    minutes(s, cloud, 40)
    assert nothing_said(s)
    assert not [kind for kind, _ in s.events("never-joined.m-9")]


def test_one_that_joins_outside_of_the_selector_has_joined() -> None:
    s = Stage(RULE)
    for i in range(2):
        s.add_node(f"node-{i}", f"m-{i}", pool="ours")
    launch(s, "m-9")
    s.fleet(selector="pool=ours")
    cloud = Group(s)
    minutes(s, cloud, 17)
    assert not nothing_said(s)
    _hidden(s, cloud)
    minutes(s, cloud, 3)
    assert the_record(s, LOST).sentence.endswith("it joined as elsewhere")


def test_the_age_of_a_machine_is_by_the_clouds_own_clock() -> None:
    """A controller whose clock is ahead by an hour takes no machine that boots for one that never joined."""
    s, cloud = fleet()
    ahead = timedelta(hours=1)
    s.provider.groups["workers"].launched["m-9"] -= ahead
    s.provider.now = lambda: s.clock.true_time() - ahead
    minutes(s, cloud, 14)
    assert nothing_said(s)
    minutes(s, cloud, 3)
    assert not nothing_said(s)


def test_a_rule_for_everything_does_nothing_to_it_either() -> None:
    both = RULE.replace(
        b"rules:\n",
        b"rules:\n  - name: all\n    match: {reason: [NotRegistered]}\n    remedy: [{do: replace}]\n",
    )
    s, cloud = fleet(both)
    minutes(s, cloud, 60)
    assert the_record(s, LOST).phase is Phase.HANDED_OVER
    assert calls(s) == []
    judge(s)


def test_without_a_rule_that_names_it_the_cloud_is_not_asked() -> None:
    s, cloud = fleet(policy())
    minutes(s, cloud, 20)
    assert not [what for what, _ in s.provider.reads if what == "members"]
    assert nothing_said(s)


def test_the_cloud_is_asked_once_a_minute_and_by_the_replica_that_leads_alone() -> None:
    s, cloud = fleet()
    s.fleet("second")
    minutes(s, cloud, 10)
    assert 9 <= len([what for what, _ in s.provider.reads if what == "members"]) <= 12


def test_one_that_is_terminated_is_withdrawn() -> None:
    s, cloud = fleet()
    minutes(s, cloud, 17)
    s.provider.terminate("workers", "m-9")
    minutes(s, cloud, 3)
    assert the_record(s, LOST).phase is Phase.WITHDRAWN
    assert the_record(s, LOST).sentence.endswith("it is in none of the groups any more")


@pytest.mark.parametrize("trouble", ["denied", "no answer", "one group alone"])
def test_what_was_said_stands_while_the_cloud_does_not_answer(trouble: str) -> None:
    s, cloud = fleet()
    minutes(s, cloud, 17)
    if trouble == "one group alone":
        s.provider.groups["workers"].unlisted = "denied"
    else:
        s.provider.members_error = Refused("denied") if trouble == "denied" else Retry("no answer")
        s.provider.terminate("workers", "m-9")
    minutes(s, cloud, 40)
    assert the_record(s, LOST).phase is Phase.HANDED_OVER
    assert "SignalUnknown" not in the_record(s, LOST).sentence
    if trouble != "one group alone":
        assert value(s.actors["controller"], "node_recovery_never_joined_unknown") == 1


def test_a_person_who_releases_it_hears_no_more_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    s, cloud = fleet()
    minutes(s, cloud, 17)
    assert Terminal(s, monkeypatch).run("release", LOST, "--yes").code == 0
    minutes(s, cloud, 2)
    said = sayings(s, "HandedOver")
    minutes(s, cloud, 30)
    s.kill(s.actors["controller"])
    s.fleet("second")
    minutes(s, cloud, 30)
    assert the_record(s, LOST).phase is Phase.RELEASED
    assert sayings(s, "HandedOver") == said


def test_a_controller_that_takes_over_goes_on_with_it() -> None:
    s, cloud = fleet()
    minutes(s, cloud, 17)
    s.kill(s.actors["controller"])
    s.fleet("second")
    minutes(s, cloud, 90)
    assert the_record(s, LOST).phase is Phase.HANDED_OVER
    assert value(s.actors["second"], "node_recovery_never_joined_machines", group="workers") == 1
    s.register("node-9", "m-9")
    minutes(s, cloud, 3)
    assert the_record(s, LOST).sentence.endswith("it joined as node-9")


def test_a_controller_that_takes_over_asks_for_no_machine_that_is_a_node() -> None:
    s, cloud = fleet(count=6)
    s.provider.most_strangers = 5
    minutes(s, cloud, 17)
    s.kill(s.actors["controller"])
    s.fleet("second")
    minutes(s, cloud, 10)
    assert the_record(s, LOST).phase is Phase.HANDED_OVER
    assert value(s.actors["second"], "node_recovery_never_joined_machines", group="workers") == 1


def test_it_is_counted_for_as_long_as_it_lasts_and_is_one_of_the_twenty_of_its_group() -> None:
    s, cloud = fleet()
    for i in range(19):
        launch(s, f"m-{100 + i}")
    minutes(s, cloud, 17)
    for i in range(5):
        launch(s, f"m-{200 + i}")
    minutes(s, cloud, 20)
    assert len([r for r in records(s) if r.startswith("never-joined.")]) == 20
    assert value(s.actors["controller"], "node_recovery_never_joined_machines", group="workers") == 25


def test_a_controller_that_takes_over_finds_it_though_its_group_has_no_node_any_more() -> None:
    s, cloud = fleet(count=1)
    s.add_node("other-0", "n-0", group="others")
    minutes(s, cloud, 17)
    s.kill(s.actors["controller"])
    s.delete_node("node-0")
    s.provider.terminate("workers", "m-0")
    s.provider._asked_of.clear()
    s.fleet("second")
    minutes(s, cloud, 10)
    assert the_record(s, LOST).phase is Phase.HANDED_OVER
    assert value(s.actors["second"], "node_recovery_never_joined_machines", group="workers") == 1


def test_who_leads_no_more_shows_no_number() -> None:
    s, cloud = fleet()
    minutes(s, cloud, 17)
    first = s.actors["controller"]
    s.fleet("second")
    s.run(5)
    first.replica.leader.resign()
    first.replica.leader.campaign = lambda: 3600.0  # it stands for election no more
    minutes(s, cloud, 5)
    assert not first.replica.leader.leads
    name = "node_recovery_never_joined_machines"
    assert first.metrics.registry.get_sample_value(name, {"group": "workers"}) is None
    assert value(s.actors["second"], name, group="workers") == 1


def test_one_that_was_told_when_all_nodes_were_well_is_told_on_when_none_is() -> None:
    s, cloud = fleet()
    minutes(s, cloud, 17)
    for i in range(4):
        s.delete_node(f"node-{i}")
    minutes(s, cloud, 20)
    assert the_record(s, LOST).phase is Phase.HANDED_OVER


def test_where_most_of_a_group_never_joined_the_sentence_says_where_to_look() -> None:
    s, cloud = fleet(count=1)
    for i in range(30):
        launch(s, f"m-{100 + i}")
    minutes(s, cloud, 17)
    told = [r for r in records(s) if r.startswith("never-joined.")]
    assert len(told) == 20
    assert "31 of the group's 32 machines" in the_record(s, told[0]).sentence
    assert value(s.actors["controller"], "node_recovery_never_joined_machines", group="workers") == 31


def test_the_brake_is_not_pulled_by_them() -> None:
    """They say nothing of the nodes that are there: of those that fail one is replaced as ever."""
    rules = policy("{type: Ready}", "{do: replace}").replace(
        b"rules:\n",
        b"rules:\n  - name: joined\n    match: {type: NeverJoined}\n    remedy: [{do: notify}]\n",
    )
    s, cloud = fleet(rules, count=8)
    for i in range(10):
        launch(s, f"m-{100 + i}")
    minutes(s, cloud, 17)
    ready(s, "node-0", "Unknown")
    minutes(s, cloud, 10)
    assert calls(s) == [("replace", "m-0")]


def test_a_machine_that_takes_anothers_place_is_that_recoverys_business() -> None:
    rules = policy("{type: Ready}", "{do: replace, within: 2h}").replace(
        b"rules:\n",
        b"rules:\n  - name: joined\n    match: {type: NeverJoined}\n    remedy: [{do: notify}]\n",
    )
    s = Stage(rules)
    s.nodes(4)
    s.fleet()
    cloud = Slow(s)
    ready(s, "node-0", "Unknown")
    minutes(s, cloud, 60)
    assert calls(s) == [("replace", "m-0")]
    assert nothing_said(s, "m-100")


class Slow(Group):
    """A group whose new machines never join."""

    def _in_its_place(self, group: str, now: float) -> None:
        launch(self.stage, "m-100", group)
        self.stage.provider.groups[group].desired -= 1


def test_with_recovery_off_it_is_reported_and_no_record_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s, cloud = fleet(on=False)
    minutes(s, cloud, 40)
    assert s.record(LOST) is None
    lists = {x[1] for x in s.store.requests if x[0] == "list"}
    assert {x for x in lists if "nodes" not in x} <= {"noderecoveries"}, "what was begun, once a minute"
    assert any("would only report" in m and "m-9" in m for _, m in s.events(LOST))
    said = Terminal(s, monkeypatch).run("report", "--since", "1d")
    assert said.code == 0
    assert LOST in said.out


def test_status_and_explain_show_it_by_the_name_of_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    s, cloud = fleet()
    minutes(s, cloud, 17)
    terminal = Terminal(s, monkeypatch)
    assert LOST in terminal.run("status").out
    assert "m-9 of group workers" in terminal.run("explain", LOST).out


def test_a_group_that_alone_cannot_be_listed_is_shown_as_unknown() -> None:
    s, cloud = fleet()
    minutes(s, cloud, 2)
    s.provider.groups["workers"].unlisted = "AuthorizationFailed: may not list"
    minutes(s, cloud, 40)
    assert s.record(LOST) is None  # nothing can be known of it
    assert value(s.actors["controller"], "node_recovery_never_joined_unknown") == 1
    s.provider.groups["workers"].unlisted = ""
    minutes(s, cloud, 3)
    assert value(s.actors["controller"], "node_recovery_never_joined_unknown") == 0


def test_a_machine_whose_node_somebody_has_deleted_has_as_long_to_come_back() -> None:
    """A kubelet that is started anew registers it again."""
    s, cloud = fleet()
    s.provider.terminate("workers", "m-9")
    s.provider.groups["workers"].launched["m-1"] = s.clock.true_time() - timedelta(hours=1)
    minutes(s, cloud, 5)
    s.delete_node("node-1")
    minutes(s, cloud, 13)
    assert nothing_said(s, "m-1")
    s.register("node-1", "m-1")
    minutes(s, cloud, 10)
    s.delete_node("node-1")
    minutes(s, cloud, 13)
    assert nothing_said(s, "m-1")
    minutes(s, cloud, 5)
    assert the_record(s, "never-joined.m-1").phase is Phase.HANDED_OVER
