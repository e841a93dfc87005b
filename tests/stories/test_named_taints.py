"""A taint that a remedy names: what we set is taken off again, and nothing else is (law 5)."""

from __future__ import annotations

from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, refused
from recovery_testkit.stage import Stage, npd_page

from recovery.model import Phase, Taint
from tests.builders.faults import DMA
from tests.builders.policies import HEAD, policy_file
from tests.stories.console import Terminal, pod_of
from tests.stories.scenery import Cloud, Reaper, judge, pass_time, to_the_end
from tests.stories.scenes import (
    NO_MARKS,
    TAINT,
    boot,
    calls,
    cast,
    dies_once_it_has_marked,
    marked,
    messages,
    new_process,
    patch_node,
    phase,
    plugin_page,
    rebooted_and_proved,
    record_sentences,
    remove_pod,
    sayings,
    stubborn_pod,
    taints,
    the_record,
)

KEY, NOTE = "trainy.konduktor.ai/faulty", "noderecovery.dev/taints"
OURS = {"key": KEY, "effect": "NoSchedule", "value": "true"}
TEXT = f"{KEY}=true:NoSchedule"
STEP = f'{{do: taint, key: {KEY}, value: "true"}}'
REST = "{do: drain, within: 10m, then: force}, {do: reboot, within: 10m}, {do: replace, within: 30m}"
REBOOTS = policy_file(f"{STEP}, {REST}")
PLUGINS = policy_file(f"{STEP}, {{do: drain, within: 10m}}, {{do: replace}}", match="type: GpuNvlink")
ONLY = policy_file(STEP)


def note(s: Stage, node: str = "node-0") -> str | None:
    found: str | None = (s.node(node)["metadata"].get("annotations") or {}).get(NOTE)
    return found


def put(s: Stage, *there: dict[str, Any]) -> None:
    """Somebody gives the node these taints, and no others."""
    patch_node(s, "node-0", {"spec": {"taints": list(there) or None}})


def without(s: Stage, key: str) -> list[dict[str, Any]]:
    return [t for t in taints(s) if t["key"] != key]


def draining(policy: bytes = REBOOTS) -> Stage:
    """The taint is set; a pod keeps the drain from its end."""
    s = cast(policy)
    stubborn_pod(s)
    s.fault("node-0")
    s.run(6)
    assert (the_record(s).marks.taints, the_record(s).rung) == ((Taint(KEY, "true", "NoSchedule"),), 1)
    return s


def test_it_is_set_beside_ours_written_down_and_taken_off_with_the_proof() -> None:
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(6)
    assert taints(s) == [TAINT, OURS]
    assert note(s) == TEXT
    assert the_record(s).marks.taints == (Taint(KEY, "true", "NoSchedule"),)
    assert any(f"tainted {TEXT} for {DMA}" in x for x in messages(s, "Cordoned"))
    assert any(f"recovery starts (taint {TEXT}, drain, reboot, replace)" in x for x in record_sentences(s))
    rebooted_and_proved(s)
    assert (taints(s), note(s), marked(s)) == ([], None, NO_MARKS)
    judge(s)


def test_ours_and_the_note_of_it_come_in_one_patch_and_go_in_one() -> None:
    """So that no moment is without the one or the other."""
    s = cast(REBOOTS)
    s.fault("node-0")
    s.run(6)
    rebooted_and_proved(s)
    nodes = [
        w.object for w in s.store.history if w.object.get("kind") == "Node" and w.path.endswith("node-0")
    ]
    both = [
        (
            KEY in {t["key"] for t in n["spec"].get("taints") or []},
            NOTE in (n["metadata"].get("annotations") or {}),
        )
        for n in nodes
    ]
    assert {*both} == {(False, False), (True, True)}


def test_with_another_effect_and_without_a_value() -> None:
    s = cast(policy_file("{do: taint, key: example.com/slow, effect: PreferNoSchedule}, {do: reboot}"))
    s.fault("node-0")
    s.run(6)
    assert {"key": "example.com/slow", "effect": "PreferNoSchedule"} in taints(s)
    assert note(s) == "example.com/slow:PreferNoSchedule"
    rebooted_and_proved(s)
    assert taints(s) == []


def test_two_of_one_remedy_come_one_after_the_other_and_go_together() -> None:
    s = cast(policy_file(f"{STEP}, {{do: taint, key: aznhc, value: failed}}, {REST}"))
    s.fault("node-0")
    s.run(8)
    assert note(s) == f"aznhc=failed:NoSchedule,{TEXT}"
    assert [t["key"] for t in taints(s)] == [TAINT["key"], KEY, "aznhc"]
    rebooted_and_proved(s)
    assert (taints(s), note(s)) == ([], None)
    judge(s)


def test_of_two_rules_the_one_that_chose_the_remedy_names_the_taint() -> None:
    rules = "".join(
        f"  - name: {name}\n    match: {{type: {kind}}}\n    remedy: [{{do: taint, key: {key}}}, {REST}]\n"
        for name, kind, key in (("first", "NeuronHealth", KEY), ("second", "GpuNvlink", "aznhc"))
    )
    s = cast(f"{HEAD}limits: {{cooldown: 0s}}\nrules:\n{rules}".encode())
    stubborn_pod(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(6)
    assert note(s) == "aznhc:NoSchedule"
    s.pages["node-0"].body = plugin_page(True, 1) + npd_page("DMA_ERROR")
    s.run(10)
    assert note(s) == "aznhc:NoSchedule", "a later fault changes no ladder"
    assert KEY not in {t["key"] for t in taints(s)}


# ---------------------------------------------------------------- others' marks


@pytest.mark.parametrize("value", ["true", "by-hand"])
def test_one_that_was_there_before_is_not_ours_and_stays(value: str) -> None:
    s = cast(REBOOTS)
    theirs = {**OURS, "value": value}
    put(s, theirs)
    s.fault("node-0")
    s.run(6)
    assert (taints(s), note(s)) == ([theirs, TAINT], None)
    assert the_record(s).marks.taints == ()
    assert any("was there already, and is left as it is" in x for x in record_sentences(s))
    assert calls(s) == [("reboot", "m-0")]
    rebooted_and_proved(s)
    assert taints(s) == [theirs]
    judge(s)


def test_with_another_effect_theirs_is_another_taint() -> None:
    s = cast(REBOOTS)
    theirs = {**OURS, "effect": "PreferNoSchedule"}
    put(s, theirs)
    s.fault("node-0")
    s.run(6)
    assert taints(s) == [theirs, TAINT, OURS]
    rebooted_and_proved(s)
    assert taints(s) == [theirs]


def test_one_that_another_sets_between_our_read_and_our_patch_is_theirs() -> None:
    s = cast(REBOOTS)

    def meanwhile(asked: Asked, go: Any) -> Any:
        put(s, OURS)
        return go()

    s.api.fail_next(lambda a: a.method == "PATCH" and a.path == "/api/v1/nodes/node-0", meanwhile)
    s.fault("node-0")
    s.run(8)
    assert s.api.pending == 0
    assert (taints(s), note(s)) == ([OURS, TAINT], None)
    rebooted_and_proved(s)
    assert taints(s) == [OURS]


def test_a_node_from_which_somebody_took_it_off_is_held_until_it_is_back() -> None:
    s = draining()
    put(s, *without(s, KEY))
    remove_pod(s)
    s.run(30)
    assert calls(s) == []
    (sentence,) = messages(s, "Held")
    assert sentence.startswith(
        f"{DMA}: drain: somebody took the taint {TEXT} off node-0; exclude or release it"
    )
    put(s, *taints(s), OURS)
    s.run(5)
    assert calls(s) == [("reboot", "m-0")]
    rebooted_and_proved(s)
    assert taints(s) == []


def test_one_whose_value_somebody_changed_is_theirs_and_stays() -> None:
    s = draining()
    theirs = {**OURS, "value": "looked-at-by-ada"}
    put(s, *without(s, KEY), theirs)
    s.run(3)
    assert (note(s), the_record(s).marks.taints) == (None, ())
    remove_pod(s)
    s.run(5)
    assert calls(s) == [("reboot", "m-0")], "the node is kept free of new pods, as the step wanted"
    rebooted_and_proved(s)
    assert taints(s) == [theirs]
    judge(s)


def test_of_two_the_one_that_nobody_changed_stays_ours() -> None:
    s = cast(policy_file(f"{STEP}, {{do: taint, key: aznhc, value: failed}}, {REST}"))
    stubborn_pod(s)
    s.fault("node-0")
    s.run(8)
    theirs = {**OURS, "value": "looked-at-by-ada"}
    put(s, *without(s, KEY), theirs)
    s.run(3)
    assert note(s) == "aznhc=failed:NoSchedule"
    remove_pod(s)
    s.run(5)
    rebooted_and_proved(s)
    assert (taints(s), note(s)) == ([theirs], None)


def test_one_whose_note_somebody_took_off_is_theirs_and_stays() -> None:
    s = draining()
    patch_node(s, "node-0", {"metadata": {"annotations": {NOTE: None}}})
    remove_pod(s)
    s.run(8)
    assert calls(s) == [("reboot", "m-0")]
    rebooted_and_proved(s)
    assert taints(s) == [OURS]


def test_handed_over_what_a_person_took_off_is_not_ours_when_another_sets_it_again() -> None:
    s = cast(ONLY)
    s.fault("node-0")
    s.run(10)
    assert (phase(s), taints(s)) == (Phase.HANDED_OVER, [TAINT, OURS])
    put(s, TAINT)
    s.run(120, step=5)
    assert (note(s), the_record(s).marks.taints) == (None, ())
    put(s, TAINT, OURS)
    s.run(120, step=5)
    assert (taints(s), note(s), the_record(s).marks.taints) == ([TAINT, OURS], None, ())


# ---------------------------------------------------------------- the ends of a recovery


def test_it_is_taken_off_when_the_fault_is_withdrawn() -> None:
    s = cast(PLUGINS, plugin=True)
    put(s, {**OURS, "key": "gpu"})
    stubborn_pod(s)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(6)
    assert note(s) == TEXT
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(6)
    assert phase(s) is Phase.WITHDRAWN
    assert ([t["key"] for t in taints(s)], note(s)) == (["gpu"], None)
    judge(s)


def test_it_stays_while_a_person_has_the_node() -> None:
    s = cast(ONLY)
    s.fault("node-0")
    s.run(600, step=5)
    assert (phase(s), taints(s), note(s)) == (Phase.HANDED_OVER, [TAINT, OURS], TEXT)
    assert f"node-0 is tainted, with {TEXT} as well" in the_record(s).sentence


def test_the_new_node_of_a_replaced_machine_has_none() -> None:
    s = cast(policy_file(f"{STEP}, {{do: drain}}, {{do: replace}}"))
    s.fault("node-0")
    cloud = Cloud(s)
    to_the_end(s, cloud)
    assert calls(s) == [("replace", "m-0")]
    assert not any(KEY in str(s.node(n)) for n in ("node-1", "node-2", "node-3", "node-100"))
    judge(s)


def test_a_node_that_is_registered_again_gets_it_again() -> None:
    s = draining()
    s.delete_node("node-0")
    s.register("node-0", "m-0", "workers")
    s.run(10)
    assert (note(s), OURS in taints(s)) == (TEXT, True)


# ---------------------------------------------------------------- crashes


def begin(at: int | None = None, side: str = "") -> tuple[Stage, Cloud, Reaper]:
    stage = Stage(
        policy_file(f"{STEP}, {{do: drain, within: 10m, then: force}}, {{do: reboot, within: 10m}}")
    )
    reaper = Reaper(stage, "agent of node-0".__eq__, at, side)
    for name in stage.nodes(3):
        stage.agent(name)
    stage.run(0)
    put(stage, {**OURS, "key": "gpu"})
    stage.fault("node-0")
    return stage, Cloud(stage), reaper


def rebooted_when_asked(stage: Stage) -> None:
    record = stage.record("node-0")
    asked = bool(calls(stage)) or (record is not None and record.intent is not None)
    if asked and stage.node("node-0")["status"]["nodeInfo"]["bootID"] != "m-0-boot-2":
        boot(stage, "node-0")
        stage.pages["node-0"].body = npd_page()


def played(stage: Stage) -> None:
    for _ in range(60):
        pass_time(stage, 5)
        rebooted_when_asked(stage)


def boundaries() -> list[str]:
    stage, _, reaper = begin()
    played(stage)
    assert phase(stage) is Phase.RECOVERED
    return ["0 before", *(f"{n} after" for n in range(len(reaper.seen)))]


@pytest.mark.parametrize("point", boundaries())
def test_a_crash_at_any_boundary_leaves_neither_ours_behind_nor_takes_theirs(point: str) -> None:
    number, side = point.split()
    stage, cloud, reaper = begin(int(number), side)
    pass_time(stage, 900, cloud, until=lambda: (rebooted_when_asked(stage), reaper.fired)[1])
    assert reaper.fired
    stage.agent("node-0", name="agent of node-0, again", alone=True)
    played(stage)
    assert phase(stage) is Phase.RECOVERED
    assert ([t["key"] for t in taints(stage)], note(stage), marked(stage)) == (["gpu"], None, NO_MARKS)
    judge(stage, faulty=["node-0"])


def test_a_taint_set_before_a_crash_is_known_as_ours_after_it() -> None:
    s = cast(ONLY)
    dies_once_it_has_marked(s)
    s.fault("node-0")
    s.run(3)
    assert (note(s), the_record(s).marks.taints) == (TEXT, ())
    new_process(s, "node-0")
    s.run(6)
    assert the_record(s).marks.taints == (Taint(KEY, "true", "NoSchedule"),)


# ---------------------------------------------------------------- what is ours states nothing


@pytest.mark.parametrize(
    ("source", "step"), [("konduktor", STEP), ("aznhc", "{do: taint, key: aznhc, value: failed}")]
)
def test_what_we_set_is_no_statement_of_the_system_whose_mark_it_is(source: str, step: str) -> None:
    rules = (
        f"  - name: marked\n    match: {{source: {source}}}\n    remedy: [{{do: replace}}]\n"
        f"  - name: neuron\n    match: {{type: NeuronHealth}}\n    remedy: [{step}, {{do: reboot}}]\n"
    )
    s = cast(f"{HEAD}sources: [npd, {source}]\nlimits: {{cooldown: 0s}}\nrules:\n{rules}".encode())
    s.fault("node-0")
    s.run(60)
    assert note(s) is not None
    assert {f.source for f in the_record(s).faults} == {"npd"}
    rebooted_and_proved(s)
    s.run(600, step=5)
    assert (calls(s), sayings(s, "FaultSeen")) == ([("reboot", "m-0")], 1)


def test_what_we_set_is_no_claim_of_the_system_whose_mark_it_is() -> None:
    s = cast(policy_file(f"{{do: taint, key: amd-gpu-unhealthy}}, {REST}"))
    s.fault("node-0")
    s.run(8)
    assert calls(s) == [("reboot", "m-0")]
    assert messages(s, "Held") == []


def test_one_with_another_value_is_the_other_systems_statement() -> None:
    rules = (
        "  - name: marked\n    match: {source: konduktor}\n    remedy: [{do: notify}]\n"
        f"  - name: neuron\n    match: {{type: NeuronHealth}}\n    remedy: [{STEP}, {REST}]\n"
    )
    s = draining(f"{HEAD}sources: [npd, konduktor]\nlimits: {{cooldown: 0s}}\nrules:\n{rules}".encode())
    put(s, *without(s, KEY), {**OURS, "value": "again"})
    s.run(60)
    assert [f.message for f in the_record(s).faults if f.source == "konduktor"] == [
        f"taint {KEY}=again:NoSchedule"
    ]


# ---------------------------------------------------------------- where it may not be set


def test_where_it_may_not_be_set_the_recovery_goes_on_without_it_and_says_so() -> None:
    s = cast(REBOOTS)

    def with_it(asked: Asked) -> bool:
        return asked.method == "PATCH" and asked.path == "/api/v1/nodes/node-0" and KEY in str(asked.body)

    why = "ValidatingAdmissionPolicy 'node-recovery-nodes' denied request"
    s.api.fail_next(with_it, refused(403, "Forbidden", why), times=100)
    s.fault("node-0")
    s.run(8)
    assert (calls(s), taints(s)) == ([("reboot", "m-0")], [TAINT])
    told = [x for x in record_sentences(s) if f"but not {TEXT}" in x]
    assert told, record_sentences(s)
    assert "denied request" in told[0]
    rebooted_and_proved(s)
    assert taints(s) == []


# ---------------------------------------------------------------- a person's release


@pytest.mark.parametrize("value", ["", "looked-at-by-ada"])
def test_a_release_takes_ours_off_and_leaves_what_a_person_changed(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    s = cast(ONLY)
    s.fault("node-0")
    s.run(10)
    assert (phase(s), note(s)) == (Phase.HANDED_OVER, TEXT)
    theirs = [{**OURS, "value": value}] if value else []
    put(s, *without(s, KEY), *(theirs or [OURS]))
    said = Terminal(s, monkeypatch).run("release", "node-0", "--yes")
    assert said.code == 0
    assert (taints(s), note(s), the_record(s).marks.taints) == (theirs, None, ())
    s.run(120, step=5)
    assert (phase(s), taints(s)) == (Phase.RELEASED, theirs)


def test_explain_says_which_taint_the_step_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    s = draining()
    pod_of(s, "node-0")
    said = Terminal(s, monkeypatch).run("explain", "node-0")
    assert f"remedy taint {TEXT}, drain, reboot, replace" in said.out
    assert f"taints noderecovery.dev/unhealthy:NoSchedule, {TEXT}" in said.out
