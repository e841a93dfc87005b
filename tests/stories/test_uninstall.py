"""Before the manifests are deleted: nothing of ours stays on any node, and nothing of others is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked
from recovery_testkit.kubernetes import lost_request, refused
from recovery_testkit.stage import Stage

from recovery.console import wanted_back
from recovery.errors import Refused
from recovery.model import Phase
from tests.builders.faults import DMA
from tests.builders.policies import policy_file
from tests.stories.console import Said, Terminal, pod_of
from tests.stories.scenes import (
    ALL_MARKS,
    BEFORE,
    GATES,
    MERGE,
    NO_MARKS,
    NODES,
    REBOOTS,
    RECORDS,
    at,
    boot,
    calls,
    cast,
    exclude,
    handed_over,
    marked,
    new_process,
    no_place,
    patch_node,
    phase,
    taints,
    the_record,
)
from tests.stories.test_named_taints import KEY, NOTE, OURS, STEP
from tests.stories.test_taken_back import never_came
from tests.stories.test_training import WORKERS, read_pod, train

Sit = Callable[[Stage], Terminal]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MINE = {"key": "mine", "value": "x", "effect": "NoSchedule"}
NOTHING_LEFT = "Nothing of node-recovery is left on any node: its manifests may be deleted.\n"


@pytest.fixture
def sit(monkeypatch: pytest.MonkeyPatch) -> Sit:
    """A terminal. While a command waits, the agents go on."""

    def made(stage: Stage) -> Terminal:
        monkeypatch.setattr(wanted_back, "sleep", lambda seconds: stage.run(seconds, step=1.0))
        return Terminal(stage, monkeypatch)

    return made


def delete(s: Stage, path: str) -> None:
    answer = s.store.request("DELETE", path, user_agent="a person")
    assert answer.status == 200, answer.body


def without_crds(s: Stage) -> None:
    """Somebody deleted the CRDs, and the records with them."""
    for actor in s.actors.values():
        s.kill(actor)
    for plural in ("noderecoveries", "recoverygates"):
        delete(s, f"{CRDS}/{plural}.noderecovery.dev")


def marks_of_ours(s: Stage) -> list[str]:
    """The names of all that any Node has of ours."""
    found = []
    for node in s.store.request("GET", NODES).body["items"]:
        notes = node["metadata"].get("annotations") or {}
        found += [key for key in notes if key.startswith("noderecovery.dev/")]
        found += [t["key"] for t in node["spec"].get("taints") or [] if t["key"].startswith("noderecovery")]
    return found


def gone(said: Said) -> str:
    assert (said.code, said.err) == (0, ""), said
    assert said.out.endswith(NOTHING_LEFT)
    return said.out


# ---------------------------------------------------------------- a recovery in every phase


@pytest.mark.parametrize("point", [*BEFORE, "proving"])
def test_a_recovery_ends_and_nothing_of_ours_is_left(point: str, sit: Sit) -> None:
    s = at(point)
    called = calls(s)
    out = gone(sit(s).run("uninstall", "--yes"))
    assert out.startswith("Paused until ")
    assert "cleared  node-0: " in out
    assert (phase(s), marked(s), marks_of_ours(s), no_place(s)) == (Phase.RELEASED, NO_MARKS, [], True)
    s.run(600)
    assert (marks_of_ours(s), calls(s)) == ([], called), "the agents that still run begin nothing"


def test_a_broken_node_that_takes_pods_again_is_named_with_what_keeps_it_out(sit: Sit) -> None:
    s = handed_over()
    out = gone(sit(s).run("uninstall", "--yes"))
    assert (
        f"cleared  node-0: handedOver for {DMA}; our marks are off. It takes pods again, and was not "
        "repaired: kubectl cordon node-0 keeps it out\n"
    ) in out
    assert (phase(s), marked(s)) == (Phase.RELEASED, NO_MARKS)


def test_a_second_run_finds_nothing(sit: Sit) -> None:
    s = at("draining")
    terminal = sit(s)
    gone(terminal.run("uninstall", "--yes"))
    out = gone(terminal.run("uninstall", "--yes"))
    assert "cleared" not in out
    assert "node-0" not in out


@pytest.mark.parametrize("action", ["replace", "reboot"])
def test_a_step_that_was_asked_for_is_left_with_its_marks_and_what_to_wait_for(action: str, sit: Sit) -> None:
    s = cast(policy_file(f"{{do: {action}, within: 10m}}"))
    s.fault("node-0")
    s.run(5)
    assert calls(s) == [(action, "m-0")]
    terminal = sit(s)
    said = terminal.run("uninstall", "--yes")
    assert said.code == 1
    assert (
        f"left  node-0: {action} of m-0 has been asked for and cannot be called back. Wait until" in said.out
    )
    assert said.out.endswith("1 node is left: do not delete the manifests yet, and run this again.\n")
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    assert s.gate().pause is not None, "nothing more is begun meanwhile"


def test_a_step_that_comes_to_nothing_is_waited_for_until_no_hour_and_ends_with_its_record(sit: Sit) -> None:
    """The deadline of a step stands still during a pause, that of the command itself, too."""
    s = cast(policy_file("{do: replace, within: 10m}"))
    s.fault("node-0")
    s.run(5)
    terminal = sit(s)
    dry, first = terminal.run("uninstall", "--dry-run"), terminal.run("uninstall", "--yes")
    s.run(1800)
    later = terminal.run("uninstall", "--yes")
    left = (
        "left  node-0: replace of m-0 has been asked for and cannot be called back. Wait until it is proved: "
        "node-recovery explain node-0. No deadline passes during the pause: if it comes to nothing, or no "
        "agent runs any more, look at the machine; once it is well or gone: kubectl delete noderecovery "
        "node-0\n"
    )
    assert all(left in said.out for said in (dry, first, later))
    assert (phase(s), marked(s)) == (Phase.RECOVERING, ALL_MARKS)
    delete(s, f"{RECORDS}/node-0")
    gone(terminal.run("uninstall", "--yes"))
    s.run(600)
    gone(terminal.run("uninstall", "--yes"))
    s.run(600)
    assert (marks_of_ours(s), calls(s)) == ([], [("replace", "m-0")])


def test_after_its_reboot_the_node_that_was_left_is_cleared(sit: Sit) -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(5)
    terminal = sit(s)
    assert terminal.run("uninstall", "--yes").code == 1
    boot(s, "node-0")
    s.run(5)
    gone(terminal.run("uninstall", "--yes"))
    assert (phase(s), marked(s)) == (Phase.RELEASED, NO_MARKS)


def test_what_never_came_is_taken_back_first(sit: Sit) -> None:
    s = never_came()
    said = sit(s).run("uninstall", "--yes")
    assert (said.code, said.out.endswith(NOTHING_LEFT)) == (0, True)
    assert "replace of m-0 was asked for and may still come" in said.err
    assert (phase(s), marked(s), s.provider.taken_back) == (Phase.RELEASED, NO_MARKS, ["m-0"])


def test_what_cannot_be_taken_back_is_left_with_its_marks(sit: Sit) -> None:
    s = never_came()
    s.provider.take_back_error = Refused("the group is terminating m-0: wait until it is gone")
    said = sit(s).run("uninstall", "--yes")
    assert said.code == 1
    assert "left  node-0: " in said.out
    assert "the group is terminating m-0: wait until it is gone" in said.out
    assert marked(s) == ALL_MARKS


def test_without_an_agent_that_answers_the_node_is_left_and_says_who_has_to_run(sit: Sit) -> None:
    s = never_came()
    new_process(s, "node-0", on=False)
    said = sit(s).run("uninstall", "--yes")
    assert (said.code, marked(s)) == (1, ALL_MARKS)
    assert "no agent has answered within 180 s" in said.out


def test_a_request_that_stands_is_taken_back_also_where_a_person_took_the_marks_off(sit: Sit) -> None:
    s = never_came()
    for actor in s.actors.values():
        s.kill(actor)
    notes = {"noderecovery.dev/cordoned-by": None}
    patch_node(
        s, "node-0", {"metadata": {"annotations": notes}, "spec": {"taints": None, "unschedulable": None}}
    )
    delete(s, f"{GATES}/fleet")
    said = sit(s).run("uninstall", "--yes")
    assert (said.code, "no agent has answered within 180 s" in said.out) == (1, True)


# ---------------------------------------------------------------- records and CRDs that are gone


def test_marks_without_a_record_come_off(sit: Sit) -> None:
    s = handed_over()
    for actor in s.actors.values():
        s.kill(actor)
    delete(s, f"{RECORDS}/node-0")
    out = gone(sit(s).run("uninstall", "--yes"))
    assert "cleared  node-0: marked by us, and without a record; our marks are off." in out
    assert marks_of_ours(s) == []


def test_a_deleted_record_that_an_agent_wrote_down_as_lost_is_cleared_too(sit: Sit) -> None:
    s = at("draining")
    delete(s, f"{RECORDS}/node-0")
    s.run(130)
    terminal = sit(s)
    lost = "cleared  node-0: lost, and what may have been asked of its provider may still come; our marks "
    assert f"would be {lost}come off\n" in terminal.run("uninstall", "--dry-run").out
    out = gone(terminal.run("uninstall", "--yes"))
    assert f"{lost}are off. It takes pods again, and was not repaired: kubectl cordon node-0 " in out
    assert (marks_of_ours(s), no_place(s)) == ([], True)


@pytest.mark.parametrize("scene", [handed_over, lambda: at("draining"), lambda: at("after the call")])
def test_marks_come_off_also_where_the_crds_are_gone(scene: Callable[[], Stage], sit: Sit) -> None:
    s = scene()
    without_crds(s)
    terminal = sit(s)
    out = gone(terminal.run("uninstall", "--yes"))
    assert not out.startswith("Paused")
    assert marks_of_ours(s) == []
    terminal.attended = False
    assert gone(terminal.run("uninstall")) == NOTHING_LEFT, "there is nothing to ask about"


def test_a_record_that_cannot_be_read_is_left_alone_with_its_marks(sit: Sit) -> None:
    s = handed_over()
    patch = {"status": {"version": 99}}
    assert s.store.request("PATCH", f"{RECORDS}/node-0", body=patch, content_type=MERGE).status == 200
    said = sit(s).run("uninstall", "--yes")
    assert (said.code, marked(s)) == (1, ALL_MARKS)
    assert "left  node-0: its record cannot be read, and it is not touched: " in said.out


def test_a_gate_that_cannot_be_read_stops_all_of_it(sit: Sit) -> None:
    s = handed_over()
    obj = s.store.request("GET", f"{GATES}/fleet").body
    obj["status"]["version"] = 99
    assert s.store.request("PUT", f"{GATES}/fleet", body=obj).ok
    before = len(s.store.history)
    said = sit(s).run("uninstall", "--yes")
    assert (said.code, said.out, len(s.store.history)) == (1, "", before)
    assert said.err.startswith("nothing was changed: the gate cannot be read: ")


# ---------------------------------------------------------------- marks of others stay


def test_foreign_cordons_and_taints_stay(sit: Sit) -> None:
    s = cast(policy_file("{do: cordon}"))
    for node in ("node-0", "node-1"):
        patch_node(s, node, {"spec": {"unschedulable": True, "taints": [MINE]}})
    s.fault("node-0")
    s.run(10)
    out = gone(sit(s).run("uninstall", "--yes"))
    assert "our marks are off; the cordon of somebody else stays\n" in out
    assert "kubectl cordon node-0" not in out
    for node in ("node-0", "node-1"):
        assert s.node(node)["spec"]["unschedulable"] is True
        assert [t["key"] for t in taints(s, node) if not t["key"].startswith("node.kubernetes.io")] == [
            "mine"
        ]
    assert "node-1" not in out


def test_a_node_without_marks_of_ours_is_not_written_to(sit: Sit) -> None:
    s = handed_over()
    patch_node(s, "node-3", {"spec": {"unschedulable": True, "taints": [MINE]}})
    before = len(s.store.history)
    gone(sit(s).run("uninstall", "--yes"))
    written = {w.path for w in s.store.history[before:] if w.path.startswith(NODES)}
    assert written == {f"{NODES}/node-0"}


def test_a_taint_that_a_remedy_named_comes_off_and_another_systems_of_the_same_key_stays(sit: Sit) -> None:
    s = cast(policy_file(STEP))
    patch_node(s, "node-1", {"spec": {"taints": [OURS]}})
    s.fault("node-0")
    s.run(10)
    assert [t["key"] for t in taints(s) if t["key"] == KEY] == [KEY]
    gone(sit(s).run("uninstall", "--yes"))
    assert (taints(s), taints(s, "node-1")) == ([], [OURS])
    assert NOTE not in (s.node("node-0")["metadata"].get("annotations") or {})


@pytest.mark.parametrize("by", ["node-recovery", None])
def test_the_out_of_service_taint_comes_off_where_we_set_it(by: str | None, sit: Sit) -> None:
    s = handed_over()
    without_crds(s)
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    notes = {"noderecovery.dev/out-of-service-by": by}
    patch_node(s, "node-1", {"spec": {"taints": [taint]}, "metadata": {"annotations": notes}})
    gone(sit(s).run("uninstall", "--yes"))
    assert taints(s, "node-1") == ([] if by else [taint])


def test_a_persons_exclude_label_stays_and_is_named(sit: Sit) -> None:
    s = cast()
    exclude(s, "node-2")
    out = gone(sit(s).run("uninstall", "--yes"))
    assert "note  1 node keeps the label noderecovery.dev/exclude, which a person set\n" in out
    assert s.node("node-2")["metadata"]["labels"]["noderecovery.dev/exclude"] == "true"


def test_a_drill_that_is_still_there_is_named_with_what_takes_it_off(sit: Sit) -> None:
    s = cast(on=False)
    terminal = sit(s)
    pod_of(s, "node-0")
    assert terminal.run("inject", "node-0", "--fault", "GpuXidBad").code == 0
    out = gone(terminal.run("uninstall", "--yes"))
    assert "note  node-0 has a drill: node-recovery inject node-0 --remove ends the drill\n" in out


def test_a_pod_that_was_told_when_it_would_be_evicted_is_told_no_more(sit: Sit) -> None:
    s = train(WORKERS, {"name": "w", "role": "worker"})
    s.run(30)
    notes = pod_notes(s)
    assert "noderecovery.dev/evict-after" in notes
    out = gone(sit(s).run("uninstall", "--yes"))
    assert "note  default/w is not evicted: its annotation noderecovery.dev/evict-after is off\n" in out
    assert pod_notes(s) == {key: notes[key] for key in notes if key != "noderecovery.dev/evict-after"}


def test_who_may_not_patch_pods_is_told_which_may_keep_it(sit: Sit) -> None:
    s = train(WORKERS, {"name": "w", "role": "worker"})
    s.run(30)
    for actor in s.actors.values():
        s.kill(actor)
    s.api.fail_next(
        lambda asked: asked.method == "PATCH" and "/pods/" in asked.path,
        refused(403, "Forbidden", "ada may not"),
    )
    out = gone(sit(s).run("uninstall", "--yes"))
    assert "note  pods on node-0 may keep the annotation noderecovery.dev/evict-after: " in out
    assert marks_of_ours(s) == []


def pod_notes(s: Stage) -> dict[str, str]:
    pod = read_pod(s, "w")
    assert pod is not None
    return dict(pod["metadata"]["annotations"])


# ---------------------------------------------------------------- asking, and looking first


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(sit: Sit) -> None:
    s = at("draining")
    before = len(s.store.history)
    said = sit(s).run("uninstall", "--dry-run")
    assert (said.code, len(s.store.history)) == (0, before)
    assert f"would be cleared  node-0: recovering for {DMA}; our marks come off\n" in said.out
    assert "All recoveries would be paused for 24 h" in said.out
    assert said.out.endswith(
        "Nothing was changed. After this, nothing of node-recovery would be left on any node.\n"
    )


def test_a_dry_run_names_what_would_be_left(sit: Sit) -> None:
    s = at("after the call")
    before = len(s.store.history)
    said = sit(s).run("uninstall", "--dry-run")
    assert (said.code, len(s.store.history)) == (1, before)
    assert "left  node-0: replace of m-0 has been asked for" in said.out


def test_it_asks_first_and_a_no_changes_nothing(sit: Sit) -> None:
    s = handed_over()
    before = len(s.store.history)
    terminal = sit(s)
    said = terminal.run("uninstall", answer="n\n")
    assert (said.code, len(s.store.history)) == (1, before)
    assert (
        "Uninstall from here (127.0.0.1:6443): pause all recoveries, end 1 of them, and take node-recovery's "
        "cordons, taints and annotations off 1 node? [y/N]"
    ) in said.err
    terminal.attended = False
    said = terminal.run("uninstall")
    assert (said.code, len(s.store.history)) == (2, before)


def test_where_somebodys_longer_pause_holds_already_it_does_not_begin_with_that_nothing_was_changed(
    sit: Sit,
) -> None:
    terminal = sit(handed_over())
    terminal.run("pause", "--for", "48h", "--reason", "upgrade", "--owner", "grace")
    said = terminal.run("uninstall", "--yes")
    assert said.out.startswith("Another pause stays, which ends no earlier: grace paused all recoveries ")
    assert "cleared  node-0: " in said.out
    assert "Nothing was changed" not in said.out


def test_it_pauses_before_it_takes_anything_off(sit: Sit) -> None:
    s = at("draining")
    before = len(s.store.history)
    sit(s).run("uninstall", "--yes")
    paths = [w.path for w in s.store.history[before:] if w.actor == "ada"]
    assert paths[0] == f"{GATES}/fleet"
    assert paths.index(f"{RECORDS}/node-0") < paths.index(f"{NODES}/node-0")


def test_a_mark_that_an_agent_sets_in_that_moment_comes_off_too(sit: Sit) -> None:
    """It had read the record before it was closed."""
    s = handed_over()
    for actor in s.actors.values():
        s.kill(actor)
    taint = {"key": "noderecovery.dev/unhealthy", "effect": "NoSchedule"}

    def marks_again(asked: Asked, go: Callable[[], Any]) -> Any:
        answer = go()
        patch_node(s, "node-0", {"spec": {"taints": [taint]}})
        return answer

    s.api.fail_next(lambda a: a.method == "PATCH" and a.path == f"{NODES}/node-0", marks_again, times=2)
    gone(sit(s).run("uninstall", "--yes"))
    assert marks_of_ours(s) == []


def test_a_run_that_was_cut_off_is_finished_by_the_next_one(sit: Sit) -> None:
    s = handed_over()
    for actor in s.actors.values():
        s.kill(actor)
    terminal = sit(s)
    s.api.fail_next(lambda a: a.method == "PATCH" and "/nodes/" in a.path, lost_request)
    said = terminal.run("uninstall", "--yes")
    assert (said.code, "left  node-0: " in said.out, phase(s)) == (1, True, Phase.RELEASED)
    gone(terminal.run("uninstall", "--yes"))
    assert marks_of_ours(s) == []


def test_for_programs_it_is_one_object(sit: Sit) -> None:
    s = at("draining")
    found = sit(s).run("uninstall", "--yes", "-o", "json").json
    assert (found["nothingLeft"], found["left"], [x["node"] for x in found["cleared"]]) == (
        True,
        [],
        ["node-0"],
    )
    found = sit(at("after the call")).run("uninstall", "--yes", "-o", "json").json
    assert (found["nothingLeft"], [x["node"] for x in found["left"]]) == (False, ["node-0"])


def test_the_record_says_who_ended_it_and_why(sit: Sit) -> None:
    s = handed_over()
    gone(sit(s).run("uninstall", "--yes"))
    assert the_record(s).sentence == "ended by ada@laptop: node-recovery is being uninstalled"


def test_one_that_breaks_off_says_that_all_recoveries_are_paused(sit: Sit) -> None:
    s = handed_over()
    terminal = sit(s)
    paused = False

    def after_the_pause(asked: Asked) -> bool:
        nonlocal paused
        paused |= (asked.method, asked.user_agent) == ("PUT", "ada")
        return paused and (asked.method, asked.user_agent) == ("GET", "ada")

    s.api.fail_next(after_the_pause, refused(403, "Forbidden", "ada may not"))
    said = terminal.run("uninstall", "--yes")
    assert (said.code, said.out, s.gate().pause is not None) == (1, "", True)
    first, second, *_ = said.err.splitlines()
    assert first.startswith("Paused until ")
    assert "403 ada may not" in second
