"""A test fault on a Node: said to be one, refused where it could do harm, and over by itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked
from recovery_testkit.kubernetes import refused
from recovery_testkit.stage import Stage

from recovery.model import Phase
from tests.builders.policies import HEAD
from tests.stories.console import Said, Terminal, pod_of
from tests.stories.scenery import sentences
from tests.stories.scenes import NODES, calls, cast, marked, new_process, patch_node, phase
from tests.stories.test_conditions import COUNT_GOOD, writes

ROOT = Path(__file__).parents[2]
RULE = "{name: gpu, match: {type: GpuXid}, remedy: [{do: drain, within: 1m, then: force}, {do: replace}]}"
POLICY = f"{HEAD}sources: [conditions]\nlimits: {{cooldown: 0s}}\nrules: [{RULE}]\n".encode()
XID = ("inject", "node-0", "--fault", "GpuXidBad")
WOULD = "would drain node-0; then replace: GpuXidBad (a drill) (rule gpu)"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In front of a fleet that watches."""
    return at(cast(POLICY, on=False), monkeypatch)


def at(s: Stage, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    pod_of(s, "node-0")
    return Terminal(s, monkeypatch)


def conditions(s: Stage, node: str = "node-0") -> dict[str, dict[str, Any]]:
    return {c["type"]: c for c in s.node(node)["status"]["conditions"]}


def done(said: Said) -> str:
    assert (said.code, said.err) == (0, ""), said
    return said.out


def refused_with(said: Said, code: int = 1) -> str:
    assert (said.code, said.out) == (code, ""), said
    return said.err


# ---------------------------------------------------------------- what is said


def test_a_drill_says_what_it_is_who_made_it_and_when_it_ends(terminal: Terminal) -> None:
    s = terminal.stage
    others = set(conditions(s))
    assert "node-0 has the condition GpuXid=True (GpuXidBad) until " in done(terminal.run(*XID))
    made = conditions(s)["GpuXid"]
    assert (made["status"], made["reason"]) == ("True", "GpuXidBad")
    assert made["message"].startswith("a drill, not a fault: made by ada@laptop until 2026-")
    assert conditions(s).keys() == others | {"GpuXid"}, "those of others are as they were"


def test_the_sentence_and_explain_and_the_report_say_that_it_is_a_drill(terminal: Terminal) -> None:
    s = terminal.stage
    done(terminal.run(*XID))
    s.run(60)
    assert sentences(s)[-1].startswith(WOULD)
    out = done(terminal.run("explain", "node-0"))
    assert f"node-0: {WOULD}" in out
    assert "  Next: node-recovery inject node-0 --remove ends the drill; " in out
    assert "remedy drain, replace; a drill: it ends by itself, or by node-recovery inject --remove\n" in out
    assert "latched" not in out
    assert "conditions: the Node's condition GpuXid is True: a drill, not a fault: made by ada@laptop" in out
    assert "would drain node-0; then replace (a drill)" in done(terminal.run("report", "--since", "1h"))
    assert (calls(s), marked(s), s.record("node-0")) == ([], (False, False, False), None)


def test_nothing_but_the_condition_is_written_for_it(terminal: Terminal) -> None:
    s = terminal.stage
    before = len(s.store.history)
    done(terminal.run(*XID))
    assert {w.path for w in s.store.history[before:]} == {f"{NODES}/node-0/status"}


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    "reason", ["GpuXidBad", "GpuEccBad"], ids=["a log rule's, which latches", "a plugin's"]
)
def test_a_drill_that_is_taken_off_is_over_at_once(reason: str, terminal: Terminal) -> None:
    s = terminal.stage
    kind = ("--type", reason.removesuffix("Bad"))
    done(terminal.run("inject", "node-0", "--fault", reason, *kind))
    s.run(60)
    assert f"{reason} (a drill)" in sentences(s)[-1]
    out = done(terminal.run("inject", "node-0", "--remove"))
    assert out == f"node-0: the drill {kind[1]} is removed.\n"
    assert kind[1] not in conditions(s)
    s.run(60)
    assert sentences(s)[-1].startswith("healthy")
    assert "gone: its source took it back" in done(terminal.run("report", "--since", "1h"))


@pytest.mark.parametrize("latch", ["latch: proof", "latch: boot", "hold: 10m", "hold: 10m, latch: proof"])
def test_what_latches_or_holds_a_real_fault_does_not_hold_a_drill(
    latch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = at(cast(POLICY.replace(b"remedy:", f"{latch}, remedy:".encode()), on=False), monkeypatch)
    s = terminal.stage
    done(terminal.run(*XID))
    s.run(60)
    assert sentences(s)[-1].startswith(WOULD)
    done(terminal.run("inject", "node-0", "--remove"))
    s.run(60)
    assert sentences(s)[-1].startswith("healthy")


def test_a_drill_that_nobody_takes_off_is_over_at_its_end(terminal: Terminal) -> None:
    s = terminal.stage
    done(terminal.run(*XID, "--for", "5m"))
    s.run(280)
    assert sentences(s)[-1].startswith(WOULD)
    s.run(60)
    assert sentences(s)[-1].startswith("healthy")
    assert "GpuXid" in conditions(s), "it is still there, and says nothing"


def test_a_drill_that_its_types_own_writer_overwrites_is_over(terminal: Terminal) -> None:
    s = terminal.stage
    done(terminal.run(*XID))
    s.run(60)
    writes(s, ("GpuXid", "False", "GpuXidGood"))
    s.run(60)
    assert sentences(s)[-1].startswith("healthy")


def test_a_real_fault_in_its_place_is_none(terminal: Terminal) -> None:
    s = terminal.stage
    done(terminal.run(*XID))
    s.run(60)
    writes(
        s,
        (
            "GpuXid",
            "True",
            "GpuXidBad",
            "NVRM: Xid 79: a drill, not a fault: made by x until 2020-01-01T00:00:00Z (node-recovery inject)",
        ),
    )
    s.run(60)
    assert sentences(s)[-1].startswith("would drain node-0; then replace: GpuXidBad (rule gpu)")


def test_removing_takes_no_condition_of_others(terminal: Terminal) -> None:
    s = terminal.stage
    writes(s, COUNT_GOOD)
    before = conditions(s)
    assert done(terminal.run("inject", "node-0", "--remove")) == "node-0: there is no drill on it.\n"
    done(terminal.run(*XID))
    done(terminal.run("inject", "node-0", "--remove", "--type", "GpuNvlink"))
    assert conditions(s).keys() == before.keys() | {"GpuXid"}
    done(terminal.run("inject", "node-0", "--remove", "--type", "GpuXid"))
    assert conditions(s) == before


def test_a_drill_is_made_longer_by_another_one(terminal: Terminal) -> None:
    s = terminal.stage
    done(terminal.run(*XID, "--for", "1m"))
    s.run(30)
    done(terminal.run(*XID, "--for", "10m"))
    s.run(300)
    assert sentences(s)[-1].startswith(WOULD)


# ---------------------------------------------------------------- what is refused


def test_it_is_refused_where_recovery_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    s = cast(POLICY)
    terminal = at(s, monkeypatch)
    before = len(s.store.history)
    said = refused_with(terminal.run(*XID))
    assert said.startswith("recovery is on for node-0 (pod default/npd-node-0): a test fault is treated like")
    assert len(s.store.history) == before
    done(terminal.run(*XID, "--really"))
    s.run(60)
    assert calls(s) == [("replace", "m-0")], "it was really wanted"


@pytest.mark.parametrize("why", ["no pod", "it does not answer", "it may not be asked"])
def test_it_is_refused_where_that_cannot_be_known(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s = cast(POLICY, on=False)
    terminal = Terminal(s, monkeypatch) if why == "no pod" else at(s, monkeypatch)
    if why == "it does not answer":
        terminal.reach.deaf.add("node-0")
    if why == "it may not be asked":
        s.api.fail_next(lambda asked: "/pods" in asked.path, refused(403, "Forbidden", "ada may not"))
    said = refused_with(terminal.run(*XID))
    assert said.startswith("whether recovery is on for node-0 cannot be known: ")
    assert "GpuXid" not in conditions(s)


def test_a_drill_of_while_it_was_off_is_nothing_once_recovery_is_on(terminal: Terminal) -> None:
    """Somebody switches it on in those ten minutes: a healthy machine would be replaced."""
    s = terminal.stage
    done(terminal.run(*XID))
    s.run(30)
    new_process(s, "node-0", on=True)
    s.run(120)
    assert sentences(s)[-1].startswith("healthy")
    done(terminal.run("inject", "node-0", "--remove"))
    s.run(120)
    assert (calls(s), marked(s), s.record("node-0")) == ([], (False, False, False), None)
    assert sentences(s)[-1].startswith("healthy")


@pytest.mark.parametrize("kind", ["Ready", "MemoryPressure", "DiskPressure", "NetworkUnavailable"])
def test_the_kubelets_own_conditions_are_refused_in_any_case(kind: str, terminal: Terminal) -> None:
    before = conditions(terminal.stage)
    said = refused_with(terminal.run(*XID, "--type", kind, "--really"))
    assert said.startswith(f"{kind} is the kubelet's own condition")
    assert conditions(terminal.stage) == before


def test_a_condition_that_another_remediator_acts_on_is_refused(terminal: Terminal) -> None:
    said = refused_with(terminal.run(*XID, "--type", "AcceleratedHardwareReady"))
    assert said.startswith(
        "Karpenter's and EKS's node repair may act on AcceleratedHardwareReady after 10 min"
    )
    done(terminal.run(*XID, "--type", "AcceleratedHardwareReady", "--really"))
    assert conditions(terminal.stage)["AcceleratedHardwareReady"]["status"] == "False", "its bad status"


@pytest.mark.parametrize("status", ["True", "False"])
def test_a_condition_that_somebody_else_writes_is_refused(status: str, terminal: Terminal) -> None:
    s = terminal.stage
    writes(s, ("GpuXid", status, "GpuXidBad"))
    said = refused_with(terminal.run(*XID, "--really"))
    assert f"node-0 has the condition GpuXid={status} already, and somebody else writes it" in said
    assert conditions(s)["GpuXid"]["message"] == "found"


def test_a_reason_without_a_type_of_its_own_needs_one(terminal: Terminal) -> None:
    said = refused_with(terminal.run("inject", "node-0", "--fault", "MyOwn"), 2)
    assert said == "--type: missing for MyOwn: the catalogue has no condition for that reason\n"
    said = refused_with(terminal.run("inject", "node-0", "--fault", "NeuronHasError_HANG_ON_COLLECTIVES"), 2)
    assert said.endswith("expected one of NeuronCollectives, NeuronHealth\n")


def test_a_type_that_no_agent_reads_by_itself_is_said(terminal: Terminal) -> None:
    said = done(terminal.run(*XID, "--type", "MyOwn"))
    assert "agents read it only where the policy's sources have a row for it" in said
    assert "agents read it only" not in done(terminal.run(*XID))


DRILLS = [
    (policy, *re.findall(r"--type (\w+) --fault (\w+)", drill))
    for policies, drill in re.findall(
        r"^\| (.*) \| `(--type .*)` \|$", (ROOT / "docs" / "commands.md").read_text(), re.MULTILINE
    )
    for policy in re.findall(r"`([\w-]+)`", policies)
]


@pytest.mark.parametrize(("policy", "drill"), DRILLS)
def test_the_drills_of_the_page_are_treated_by_the_policies_that_ship(
    policy: str, drill: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [f for f in (ROOT / "deploy" / policy).rglob("policy.yaml") if "RecoveryPolicy" in f.read_text()]
    assert files
    for file in files:
        provider = "baremetal" if "baremetal" in file.parts else "azure" if policy == "aks-gpu" else "aws"
        fault = {"source": "conditions", "type": drill[0], "reason": drill[1]}
        case = {"name": "a drill", "faults": [fault], "at": "10m", "expect": {"starts": True}}
        cases = tmp_path / "policy_test.yaml"
        cases.write_text(json.dumps({"policy": str(file), "provider": provider, "tests": [case]}))
        done(Terminal(cast(), monkeypatch).run("policy", "test", str(cases)))


def test_it_lasts_no_longer_than_a_condition_that_is_not_renewed_counts(terminal: Terminal) -> None:
    said = refused_with(terminal.run(*XID, "--for", "1h"), 2)
    assert said == "--for: found 60 min, expected at most 15 min: an older condition says nothing\n"


def test_without_a_fault_or_a_node_it_says_so(terminal: Terminal) -> None:
    assert "expected the reason of a fault" in refused_with(terminal.run("inject", "node-0"), 2)
    nobody = "there is no Node none; compare with kubectl get nodes\n"
    assert refused_with(terminal.run("inject", "none", "--remove")) == nobody
    assert refused_with(terminal.run("inject", "none", "--fault", "GpuXidBad")) == nobody


def test_a_mistyped_reason_is_told_the_nearest_one(terminal: Terminal) -> None:
    said = refused_with(terminal.run("inject", "node-0", "--fault", "NeuronHasError_DMA_EROR"), 2)
    assert said.endswith('did you mean "NeuronHasError_DMA_ERROR"?\n')


def test_a_kubelet_that_writes_in_between_loses_nothing(terminal: Terminal) -> None:
    s = terminal.stage

    def kubelet(asked: Asked, go: Any) -> Any:
        patch_node(s, "node-0", {"status": {"nodeInfo": {"kubeletVersion": "v9"}}}, "status", "kubelet")
        return go()

    s.api.fail_next(lambda asked: asked.method == "PATCH", kubelet)
    done(terminal.run(*XID))
    assert s.node("node-0")["status"]["nodeInfo"]["kubeletVersion"] == "v9"
    assert "GpuXid" in conditions(s)


def test_another_cluster_is_asked_about(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recovery.console.api.is_usual", lambda target, place: False)
    said = terminal.run(*XID, answer="n\n")
    assert (said.code, "Make the test fault GpuXidBad on node-0 there?" in said.err) == (1, True)
    assert "GpuXid" not in conditions(terminal.stage)


def test_a_real_recovery_of_a_drill_is_closed_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    s = cast(POLICY.replace(b"{do: drain, within: 1m, then: force}, {do: replace}", b"{do: cordon}"))
    terminal = at(s, monkeypatch)
    done(terminal.run(*XID, "--really"))
    s.run(30)
    assert phase(s) is Phase.HANDED_OVER
    assert "a drill, not a fault" in done(terminal.run("status"))
    done(terminal.run("release", "node-0", "--yes"))
    assert marked(s) == (False, False, False)


@pytest.mark.parametrize(
    ("row", "kind", "status"),
    [
        ('{type: "Acme*", bad: "False"}', "AcmeFans", "False"),
        ("{type: Acme*, takesBack: false}", "AcmeFans", "True"),
        ('{type: GpuXid, bad: "False"}', "GpuXid", "False"),
    ],
)
@pytest.mark.parametrize("really", [(), ("--really",)], ids=["", "really"])
def test_a_drill_has_the_status_that_is_bad_by_the_policy_of_the_nodes_agent(
    row: str, kind: str, status: str, really: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = POLICY.replace(b"[conditions]", f"[{{conditions: {{rows: [{row}]}}}}]".encode())
    terminal = at(cast(own.replace(b"type: GpuXid", f"type: {kind}".encode()), on=False), monkeypatch)
    s = terminal.stage
    s.run(5)
    said = done(terminal.run(*XID, "--type", kind, *really))
    assert f"node-0 has the condition {kind}={status} (GpuXidBad) until " in said
    assert "agents read it only where" not in said
    s.run(60)
    assert sentences(s)[-1].startswith(WOULD if not really else "would drain node-0; then replace: GpuXidBad")
