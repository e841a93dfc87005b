"""What was asked of a provider and never came is taken back before the node goes back to service."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest
from recovery_testkit.stage import Stage, npd_page

from recovery.console import wanted_back
from recovery.errors import Refused, Retry
from recovery.model import Machine, Phase, Reference, ReleaseRequest
from recovery.quick import replace
from tests.builders.policies import policy_file
from tests.stories.checker import conclusions_are_allowed
from tests.stories.console import Terminal
from tests.stories.scenery import RECORDS, Cloud, judge, pass_time, records, sentences
from tests.stories.scenes import (
    ALL_MARKS,
    MERGE,
    NO_MARKS,
    PERSON,
    boot,
    calls,
    cast,
    marked,
    messages,
    new_process,
    patch_node,
    pause,
    phase,
    record_sentences,
    swap_record,
    the_record,
)

Sit = Callable[[Stage], Terminal]
PLUGIN_THEN_REBOOT = "{do: replace, within: 5m}, {do: reboot, within: 10m}"


@pytest.fixture
def sit(monkeypatch: pytest.MonkeyPatch) -> Sit:
    """A terminal. While a command waits, the agents go on."""

    def at(stage: Stage) -> Terminal:
        monkeypatch.setattr(wanted_back, "sleep", lambda seconds: stage.run(seconds, step=1.0))
        return Terminal(stage, monkeypatch)

    return at


def never_came(remedy: str = "{do: replace, within: 10m}") -> Stage:
    """A replacement was asked for; the group found no capacity; its step is over."""
    s = cast(policy_file(remedy), agents=1)
    s.fault("node-0")
    pass_time(s, 900, until=lambda: records(s).get("node-0") == "handedOver")
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [("replace", "m-0")], ALL_MARKS)
    assert s.provider.groups["workers"].unhealthy == {"m-0"}
    return s


def days_later(s: Stage) -> None:
    """The group finds capacity, and ends whatever is marked by then."""
    pass_time(s, 120, Cloud(s), step=5.0)


def test_a_release_takes_the_mark_back_and_the_group_ends_no_node_that_is_back_in_service(sit: Sit) -> None:
    s = never_came()
    said = sit(s).run("release", "node-0", "--yes", "--reason", "card reseated")
    assert (said.code, said.out) == (
        0,
        "node-0 is back in service, our marks are off: released by ada@laptop: card reseated.\n",
    )
    assert "replace of m-0 was asked for and may still come" in said.err
    assert (phase(s), marked(s), s.provider.taken_back) == (Phase.RELEASED, NO_MARKS, ["m-0"])
    assert "replace of m-0 is taken back: m-0 is healthy and in service in group workers" in record_sentences(
        s
    )
    assert messages(s, "Released") == ["released by ada@laptop: card reseated"]
    days_later(s)
    assert "m-0" in s.provider.groups["workers"].in_service
    judge(s, faulty=["node-0"])


def test_a_release_is_refused_with_the_reason_where_the_request_cannot_be_taken_back(sit: Sit) -> None:
    s = never_came()
    s.provider.take_back_error = Refused("the group is terminating m-0: wait until it is gone")
    said = sit(s).run("release", "node-0", "--yes")
    assert (said.code, said.out) == (1, "")
    assert said.err.endswith(
        "node-0 is not released: the release is refused: replace of m-0 may still come: "
        "the group is terminating m-0: wait until it is gone\n"
    )
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)
    assert the_record(s).release is None
    assert messages(s, "ReleaseRefused")
    s.provider.take_back_error = None
    assert sit(s).run("release", "node-0", "--yes").code == 0
    assert (phase(s), marked(s)) == (Phase.RELEASED, NO_MARKS)


def test_a_cloud_that_cannot_say_is_asked_for_five_minutes_and_then_the_release_is_refused(sit: Sit) -> None:
    s = never_came()
    s.provider.take_back_error = Retry("throttled", timedelta(seconds=5))
    said = sit(s).run("release", "node-0", "--yes")
    assert (said.code, phase(s), marked(s)) == (1, Phase.HANDED_OVER, ALL_MARKS)
    assert "node-0 is not released yet: no agent has answered within 180 s" in said.err
    s.run(400, step=1.0)
    assert record_sentences(s)[-1] == ("the release is refused: replace of m-0 may still come: throttled")
    assert (the_record(s).release, marked(s)) == (None, ALL_MARKS)


def test_an_agent_that_is_off_takes_nothing_back_and_the_node_stays_as_it_is(sit: Sit) -> None:
    s = never_came()
    new_process(s, "node-0", on=False)
    said = sit(s).run("release", "node-0", "--yes")
    assert (said.code, phase(s), marked(s)) == (1, Phase.HANDED_OVER, ALL_MARKS)
    assert "running with ENABLE_RECOVERY=true?" in said.err
    for command in (("status",), ("explain", "node-0")):
        told = sit(s).run(*command).out
        assert "ada@laptop asked for its release 3 min ago; no agent has answered yet" in told
    (record,) = sit(s).run("status", "-o", "json").json["records"]
    assert record["release"]["by"] == "ada@laptop"
    assert s.provider.taken_back == []


def test_the_concluder_takes_it_back_where_the_nodes_own_agent_is_gone(sit: Sit) -> None:
    s = never_came()
    s.kill(s.actors["agent of node-0"])
    concluder = s.concluder()
    assert sit(s).run("release", "node-0", "--yes").code == 0
    assert (phase(s), marked(s), s.provider.taken_back) == (Phase.RELEASED, NO_MARKS, ["m-0"])
    conclusions_are_allowed(s.store.history)
    looked: list[str] = []
    look = concluder.sweeper._one
    concluder.sweeper._one = lambda node, uid: looked.append(node) or look(node, uid)  # type: ignore[func-returns-value,method-assign]
    s.run(120, step=1.0)
    assert len(looked) <= 2, "it does not go on with a record that is closed"


def test_an_agent_that_dies_right_after_the_mark_came_off_is_followed_by_one_that_proves_it(sit: Sit) -> None:
    s = never_came()
    terminal = sit(s)
    s.kill(s.actors["agent of node-0"])
    terminal.run("release", "node-0", "--yes")
    s.provider.groups["workers"].unhealthy.clear()
    new_process(s, "node-0")
    s.run(10)
    assert (phase(s), marked(s)) == (Phase.RELEASED, NO_MARKS)


def test_a_reboot_that_may_come_late_keeps_its_node_until_it_has_booted(sit: Sit) -> None:
    s = cast(policy_file("{do: reboot, within: 10m}"), agents=1)
    s.fault("node-0")
    pass_time(s, 900, until=lambda: records(s).get("node-0") == "handedOver")
    said = sit(s).run("release", "node-0", "--yes")
    assert (said.code, marked(s)) == (1, ALL_MARKS)
    assert "a reboot of m-0 was accepted: reboot it, and release it then" in said.err
    boot(s, "node-0")
    s.run(70)
    assert sit(s).run("release", "node-0", "--yes").code == 0
    assert (phase(s), marked(s)) == (Phase.RELEASED, NO_MARKS)


def test_a_node_that_a_later_step_has_cured_is_given_back_once_the_earlier_request_is_taken_back() -> None:
    s = cast(policy_file(PLUGIN_THEN_REBOOT), agents=1)
    s.fault("node-0")
    pass_time(s, 600, until=lambda: len(s.provider.calls) == 2)
    assert calls(s) == [("replace", "m-0"), ("reboot", "m-0")]
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    pass_time(s, 400, until=lambda: phase(s) is Phase.RECOVERED)
    assert (phase(s), marked(s), s.provider.taken_back) == (Phase.RECOVERED, NO_MARKS, ["m-0"])
    days_later(s)
    assert "m-0" in s.provider.groups["workers"].in_service
    judge(s, faulty=["node-0"])


def test_a_node_whose_earlier_request_cannot_be_taken_back_stays_out_of_service() -> None:
    s = cast(policy_file(PLUGIN_THEN_REBOOT), agents=1)
    s.fault("node-0")
    pass_time(s, 600, until=lambda: len(s.provider.calls) == 2)
    s.provider.take_back_error = Refused("the group is terminating m-0")
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    pass_time(s, 400, until=lambda: records(s).get("node-0") == "handedOver")
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)
    assert the_record(s).sentence.endswith("but replace of m-0 may still come: the group is terminating m-0")


def test_a_machine_that_was_replaced_after_all_while_it_was_wanted_back_is_not_back_in_service(
    sit: Sit,
) -> None:
    s = never_came()
    s.provider.take_back_error = Retry("throttled", timedelta(seconds=5))
    sit(s).run("release", "node-0", "--yes")
    days_later(s)
    assert "m-0" not in s.provider.groups["workers"].in_service
    assert records(s)["node-0"] == "handedOver"
    assert not any("back in service" in x for x in record_sentences(s))


def test_a_policy_that_loses_the_step_meanwhile_does_not_lose_the_request(sit: Sit) -> None:
    s = never_came()
    for actor in s.actors.values():
        s.kill(actor)
    s.policy = cast(policy_file("{do: cordon}"), agents=0).policy
    new_process(s, "node-0")
    s.run(5)
    assert any("in a person's hands" in x for x in sentences(s))
    assert sit(s).run("release", "node-0", "--yes").code == 0
    assert s.provider.taken_back == ["m-0"]


def test_a_release_between_two_steps_takes_back_the_first_ones_request_also_during_a_pause(sit: Sit) -> None:
    s = cast(policy_file(PLUGIN_THEN_REBOOT), agents=1)
    s.fault("node-0")
    pass_time(s, 60, until=lambda: len(s.provider.calls) == 1)
    s.provider.preflight_error = Retry("throttled")
    pass_time(s, 400)
    pause(s)
    s.provider.preflight_error = None
    pass_time(s, 100)
    assert (phase(s), calls(s)) == (Phase.RECOVERING, [("replace", "m-0")])
    assert the_record(s).step == the_record(s).ladder[1]
    said = sit(s).run("release", "node-0", "--yes")
    assert (said.code, phase(s), marked(s)) == (0, Phase.RELEASED, NO_MARKS)
    assert s.provider.taken_back == ["m-0"]
    days_later(s)
    assert "m-0" in s.provider.groups["workers"].in_service


def test_before_it_asks_the_command_says_what_may_still_come(sit: Sit) -> None:
    s = never_came()
    said = sit(s).run("release", "node-0", answer="n\n")
    assert "replace of m-0 was asked for and may still come: an agent takes that back first" in said.err
    assert (said.code, the_record(s).release) == (1, None)


def test_who_looks_at_the_node_is_told_that_the_request_still_stands() -> None:
    s = never_came()
    s.run(5)
    assert sentences(s)[-1].endswith("; replace of m-0 may still come: a release takes it back first")


def test_the_request_is_on_record_across_restarts_and_in_the_version_that_older_agents_hold(sit: Sit) -> None:
    s = never_came()
    s.kill(s.actors["agent of node-0"])
    sit(s).run("release", "node-0", "--yes")
    body = s.store.request("GET", f"{RECORDS}/node-0").body
    assert body["status"]["version"] == 4
    assert body["status"]["release"]["by"] == "ada@laptop"
    new_process(s, "node-0")
    s.run(5)
    body = s.store.request("GET", f"{RECORDS}/node-0").body
    assert (body["status"]["version"], body["status"]["phase"]) == (1, "released")
    assert "release" not in body["status"]


def test_the_concluder_leaves_the_answer_to_an_agent_that_is_there(sit: Sit) -> None:
    """That one may be able to do more: only it can reach a file on its node."""
    s = never_came()
    s.concluder()
    assert sit(s).run("release", "node-0", "--yes").code == 0
    assert phase(s) is Phase.RELEASED
    assert any("replace of m-0 is taken back" in x for x in sentences(s))


def given_back_by_hand(s: Stage) -> None:
    """kubectl uncordon, and the taint taken off as well."""
    patch_node(s, "node-0", {"spec": {"unschedulable": None, "taints": None}})


def test_a_node_that_a_person_gives_back_by_hand_is_not_ended_by_the_group_later() -> None:
    s = never_came()
    given_back_by_hand(s)
    s.run(70, step=1.0)
    assert s.provider.taken_back == ["m-0"]
    assert phase(s) is Phase.HANDED_OVER
    days_later(s)
    assert "m-0" in s.provider.groups["workers"].in_service


def test_a_node_given_back_by_hand_whose_request_cannot_be_taken_back_says_so_every_minute() -> None:
    s = never_came()
    s.provider.take_back_error = Refused("the group is terminating m-0: wait until it is gone")
    given_back_by_hand(s)
    s.run(70, step=1.0)
    assert sentences(s)[-1].endswith(
        "; replace of m-0 may still come: the group is terminating m-0: wait until it is gone"
    )


def test_a_node_that_is_only_uncordoned_still_keeps_pods_away_and_may_be_replaced() -> None:
    s = never_came()
    patch_node(s, "node-0", {"spec": {"unschedulable": None}})
    s.run(70, step=1.0)
    assert s.provider.taken_back == []


def test_a_concluder_asks_a_cloud_that_cannot_say_no_more_often_than_it_wants_to_be_asked(sit: Sit) -> None:
    s = never_came()
    s.kill(s.actors["agent of node-0"])
    s.concluder()
    tried: list[float] = []

    def throttled(machine: Machine, reference: Reference) -> str:
        tried.append(s.clock.monotonic())
        raise Retry("throttled", timedelta(seconds=15))

    s.provider.take_back = throttled  # type: ignore[method-assign]
    sit(s).run("release", "node-0", "--yes")
    s.run(420, step=1.0)
    assert 10 <= len(tried) <= 22
    assert min(b - a for a, b in itertools.pairwise(tried)) >= 15
    assert the_record(s).release is None


def test_a_fault_that_came_back_in_a_boot_during_the_replacement_is_released_with_it(sit: Sit) -> None:
    s = cast(policy_file("{do: replace, within: 10m}"), agents=1)
    s.fault("node-0")
    s.run(10)
    assert calls(s) == [("replace", "m-0")]
    s.pages["node-0"].body = npd_page()
    new_process(s, "node-0")
    boot(s, "node-0")
    s.run(10)
    s.fault("node-0")
    pass_time(s, 900, until=lambda: records(s).get("node-0") == "handedOver")
    sit(s).run("release", "node-0", "--yes")
    s.run(60)
    assert (phase(s), calls(s)) == (Phase.RELEASED, [("replace", "m-0")])


def test_what_others_put_on_a_record_stays_when_a_release_asks_for_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = never_came()
    path = f"{RECORDS}/node-0"
    ours = {"annotations": {"example.com/ticket": "OPS-4711"}, "finalizers": ["example.com/archive"]}
    s.store.request("PATCH", path, body={"metadata": ours}, content_type=MERGE, user_agent=PERSON)
    monkeypatch.setattr(wanted_back, "sleep", lambda seconds: s.run(seconds, step=1.0))
    assert Terminal(s, monkeypatch).run("release", "node-0", "--yes").code == 0
    metadata = s.store.request("GET", path).body["metadata"]
    assert metadata.get("annotations") == {"example.com/ticket": "OPS-4711"}
    assert metadata.get("finalizers") == ["example.com/archive"]


@pytest.mark.parametrize("by", ["its own agent", "the concluder"])
def test_a_release_without_a_node_takes_the_mark_back_too_and_the_machine_may_register_again(
    sit: Sit, by: str
) -> None:
    s = never_came()
    if by == "the concluder":
        s.kill(s.actors["agent of node-0"])
        s.concluder()
    s.delete_node("node-0")
    s.run(30)
    said = sit(s).run("release", "node-0", "--yes")
    assert said.out == "node-0 is released; its Node is not there: released by ada@laptop.\n"
    assert "replace of m-0 was asked for and may still come" in said.err
    assert (phase(s), s.provider.taken_back) == (Phase.RELEASED, ["m-0"])
    s.register("node-0", "m-0")
    s.run(30)
    days_later(s)
    assert "m-0" in s.provider.groups["workers"].in_service


def test_a_release_without_a_node_is_refused_where_the_request_cannot_be_taken_back(sit: Sit) -> None:
    s = never_came()
    s.provider.take_back_error = Refused("m-0 is InService and unhealthy: look at the group")
    s.delete_node("node-0")
    s.run(30)
    said = sit(s).run("release", "node-0", "--yes")
    assert said.code == 1
    assert "m-0 is InService and unhealthy: look at the group" in said.err
    assert phase(s) is Phase.HANDED_OVER


def test_a_release_is_answered_though_the_provider_has_a_bug_in_taking_back() -> None:
    s = never_came()

    def bug(*_: object) -> str:
        raise KeyError("Result")

    s.provider.take_back = bug  # type: ignore[method-assign]
    swap_record(s, replace(the_record(s), release=ReleaseRequest("ada", s.clock.true_time(), "x")))
    s.run(3600, step=5)
    assert messages(s, "ReleaseRefused")
