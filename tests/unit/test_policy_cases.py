"""Cases beside a policy go through the core that the agents run, and say where it does something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.cli import main

POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits: {budget: 2, brake: 10%, brakePer: {pool: 50%}}
rules:
  - name: slow
    match: {type: Slow*, nodeLabels: {pool: "gpu*"}}
    after: 5m
    budget: 1
    remedy: [{do: drain}, {do: replace}]
  - name: hangs
    match: {reason: TaskHung, times: {count: 3, within: 10m}}
    remedy: [{do: cordon}]
  - name: told
    match: {type: Told}
    remedy: [{do: notify}]
  - name: by-default
    match: {type: Default}
"""
WAITING = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits:
  windows: [{days: [mon], from: 09:00, to: 17:00, timeZone: Europe/Berlin}]
  blockers: [{alerts: Upgrade*}, {pods: {labels: {app: trainer}}}]
rules:
  - {name: a, match: {type: Soft}, remedy: [{do: drain}]}
  - {name: b, match: {type: Hard}, urgent: true, remedy: [{do: drain}]}
"""
SLOW = "faults: [{type: SlowDisk, reason: Bad}], node: {labels: {pool: gpu-a}}"
Played = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Played:
    """Runs one case, given without its name: the exit code and the lines."""
    (tmp_path / "policy.yaml").write_text(POLICY)

    def run(case: str = "", text: str = "") -> tuple[int, list[str]]:
        file = tmp_path / "cases.yaml"
        file.write_text(text or f"policy: policy.yaml\ntests:\n  - {{name: it, {case}}}\n")
        code = main(["policy", "test", str(file)])
        out, err = capsys.readouterr()
        return code, (out + err).replace(str(tmp_path) + "/", "").splitlines()

    return run


def test_programs_get_what_came_of_each_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    file = tmp_path / "cases.yaml"
    held = "{name: early, faults: [{type: SlowDisk, reason: Bad}], node: {labels: {pool: gpu-a}}, at: 4m"
    file.write_text(
        f"policy: policy.yaml\ntests:\n  - {held}, expect: {{held: tolerated}}}}\n"
        f"  - {held.replace('early', 'wrong')}, expect: {{starts: true}}}}\n"
    )
    assert main(["policy", "test", str(file), "-o", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    early, wrong = told["cases"]
    assert (told["passed"], told["failed"]) == (1, 1)
    assert (early["passed"], early["rule"], early["steps"], early["starts"], early["heldBy"]) == (
        True,
        "slow",
        ["drain", "replace"],
        False,
        "tolerated",
    )
    (difference,) = wrong["differs"]
    assert difference.startswith("starts: expected true, found false (tolerated: ")


@pytest.mark.parametrize(
    "case",
    [
        f"{SLOW}, at: 4m, expect: {{rule: slow, steps: [drain, replace], held: tolerated, starts: false}}",
        f"{SLOW}, at: 5m, expect: {{rule: slow, steps: [drain, replace], starts: true}}",
        f"{SLOW}, at: 5m, fleet: {{out: 1, by: told}}, expect: {{starts: true}}",
        f"{SLOW}, at: 5m, fleet: {{out: 1, by: slow}}, expect: {{held: '*the budget of rule slow is used*'}}",
        f"{SLOW}, at: 5m, fleet: {{out: 1}}, expect: {{held: '*the budget of rule slow is used*'}}",
        f"{SLOW}, at: 5m, fleet: {{out: 2}}, expect: {{held: budget}}",
        f"{SLOW}, at: 5m, fleet: {{sick: 10}}, expect: {{starts: true}}",
        f"{SLOW}, at: 5m, fleet: {{sick: 11}}, expect: {{held: '*the brake is on: 11 of 100*'}}",
        "faults: [{type: SlowDisk, reason: Bad}], at: 5m, expect: {rule: no rule, steps: [notify]}",
        "faults: [{type: Told, reason: Bad}], expect: {rule: told, steps: [notify], starts: false}",
        "faults: [], expect: {rule: no rule, steps: [], starts: false, held: '*no confirmed problem*'}",
        "faults: [{reason: TaskHung, times: [0s, 1m]}], at: 5m, expect: {rule: no rule, steps: []}",
        "faults: [{reason: TaskHung, times: [0s, 1m, 4m]}], at: 5m, expect: {rule: hangs, starts: true}",
        "faults: [{reason: TaskHung, times: [0s, 1m, 11m]}], at: 11m, expect: {rule: no rule}",
        "faults: [{type: Told, reason: Bad, since: 1m}], expect: {rule: no rule, steps: []}",
        "faults: [{source: dcgm, type: Told, reason: Bad}], expect: {rule: no rule, steps: []}",
        "faults: [{type: Default, reason: X}], expect: {steps: [notify]}",
        "faults: [{type: Default, reason: X}], provider: aws, expect: {steps: [drain, replace]}",
    ],
)
def test_a_case_passes_where_the_core_does_what_it_expects(played: Played, case: str) -> None:
    assert played(case) == (0, ["ok    it", "cases.yaml: 1 passed, 0 failed"])


def test_a_fault_that_goes_away_in_time_starts_nothing(played: Played) -> None:
    early = SLOW.replace("reason: Bad", "reason: Bad, until: 4m")
    assert played(f"{early}, at: 10m, expect: {{starts: false}}")[0] == 0
    late = SLOW.replace("reason: Bad", "reason: Bad, until: 6m")
    assert played(f"{late}, at: 10m, expect: {{starts: true}}")[0] == 0


def test_what_is_counted_is_tolerated_from_when_it_happened_often_enough(
    played: Played, tmp_path: Path
) -> None:
    tolerates = POLICY.replace("    remedy: [{do: cordon}]", "    after: 5m\n    remedy: [{do: cordon}]")
    (tmp_path / "policy.yaml").write_text(tolerates)
    counted = "faults: [{reason: TaskHung, times: [0s, 4m, 8m]}]"
    assert played(f"{counted}, at: 12m, expect: {{rule: hangs, starts: false, held: tolerated}}")[0] == 0
    assert played(f"{counted}, at: 13m, expect: {{rule: hangs, starts: true}}")[0] == 0


def test_what_differs_is_said_with_what_was_expected_and_found(played: Played) -> None:
    tolerated = "tolerated: Bad: tolerated for 5 min by rule slow, 4 min to go"
    case = f"{SLOW}, at: 1m, expect: {{rule: hangs, steps: [cordon], held: budget, starts: true}}"
    assert played(case) == (
        1,
        [
            "FAIL  it",
            "      rule: expected hangs, found slow",
            "      steps: expected cordon, found drain, replace",
            f"      held: expected budget, found {tolerated}",
            f"      starts: expected true, found false ({tolerated})",
            "cases.yaml: 0 passed, 1 failed",
        ],
    )
    assert played(f"{SLOW}, at: 5m, expect: {{held: '*'}}")[1][1] == (
        "      held: expected *, found nothing: the recovery starts"
    )


def test_one_failure_among_others_fails_the_file(played: Played) -> None:
    good = f"{{name: good, {SLOW}, expect: {{rule: slow}}}}"
    bad = f"{{name: bad, {SLOW}, expect: {{rule: told}}}}"
    code, lines = played(text=f"policy: policy.yaml\ntests: [{good}, {bad}]\n")
    assert (code, lines[0], lines[1], lines[-1]) == (
        1,
        "ok    good",
        "FAIL  bad",
        "cases.yaml: 1 passed, 1 failed",
    )


@pytest.mark.parametrize(
    ("case", "mistake"),
    [
        (
            "expect: {steps: [drian]}",
            '3: field tests[0].expect.steps[0]: found "drian", expected one of notify, cordon, taint, drain, '
            'reboot, reimage, redeploy, replace; did you mean "drain"?',
        ),
        (
            "expect: {}",
            "3: field tests[0].expect: found an empty mapping, expected at least one of rule, steps, held, "
            "starts",
        ),
        ("at: 5, expect: {rule: a}", "3: field tests[0].at: found 5, expected a duration such as 10s or 5m"),
        (
            "nod: {}, expect: {rule: a}",
            "3: field tests[0].nod: unknown, expected one of name, node, fleet, provider, witness, begins, "
            'faults, alerts, pods, at, expect; did you mean "node"?',
        ),
        (
            "faults: [{reason: X}], expect: {rule: a}",
            "3: field tests[0].faults[0]: found a mapping, expected either a type, or the times of something "
            "that is only counted",
        ),
        (
            "faults: [{source: conditions, reason: X, times: [0s]}], expect: {rule: a}",
            "3: field tests[0].faults[0]: found a mapping, expected times only of a source that counts: npd, "
            "dcgm, loki",
        ),
        (
            "begins: '9999-12-30T23:59:00Z', expect: {rule: a}",
            '3: field tests[0].begins: found "9999-12-30T23:59:00Z", expected a moment of the years '
            "1970 to 2999",
        ),
        (
            "begins: '0001-01-01T00:00:00Z', expect: {rule: a}",
            '3: field tests[0].begins: found "0001-01-01T00:00:00Z", expected a moment of the years '
            "1970 to 2999",
        ),
        (
            "provider: gcp, expect: {rule: a}",
            '3: field tests[0].provider: found "gcp", expected one of aws, azure, baremetal',
        ),
        (
            "begins: noon, expect: {rule: a}",
            '3: field tests[0].begins: found "noon", expected a moment with its time zone, such as '
            '"2026-01-05T12:00:00Z"',
        ),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_names_line_field_found_and_expected(
    played: Played, case: str, mistake: str
) -> None:
    assert played(case) == (2, [f"cases.yaml:{mistake}"])


def test_a_provider_of_all_cases_that_is_not_there_is_told_with_its_line(played: Played) -> None:
    told = played(text="policy: policy.yaml\nprovider: awss\ntests: [{name: a, expect: {rule: b}}]\n")
    sentence = 'found "awss", expected one of aws, azure, baremetal; did you mean "aws"?'
    assert told == (2, [f"cases.yaml:2: field provider: {sentence}"])


def test_a_mistake_in_the_policy_is_told_as_the_policys(played: Played, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY.replace("budget: 2", "budget: -2"))
    code, lines = played(f"{SLOW}, expect: {{rule: slow}}")
    assert code == 2
    assert lines[0].startswith("policy.yaml:3: field limits.budget: found -2, expected a count")


def test_a_policy_in_place_of_its_cases_is_told_as_that(played: Played) -> None:
    code, said = played(text=POLICY)
    assert code == 2
    assert said == ["cases.yaml: found a policy, expected a file of cases that names it (`policy: FILE`)"]


def test_a_file_or_a_policy_that_is_not_there_is_named(
    played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "test", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: cannot be read" in capsys.readouterr().err
    code, lines = played(text="policy: other.yaml\ntests: [{name: a, expect: {rule: b}}]\n")
    assert (code, lines) == (2, ["other.yaml: cannot be read: No such file or directory"])


@pytest.mark.parametrize(
    "case",
    [
        "begins: '2026-01-05T07:59:59Z', expect: {held: window}",
        "begins: '2026-01-05T07:59:59Z', at: 1s, expect: {starts: true}",
        "begins: '2026-01-05T16:00:00Z', expect: {held: '*next opens Mon 2026-01-12 09:00 Europe/Berlin'}",
        "alerts: [Watchdog], pods: [{labels: {app: web}}], expect: {starts: true}",
        "alerts: [UpgradeRunning], expect: {held: blocked}",
        "pods: [{namespace: ml, labels: {app: trainer}}], expect: {held: '*pod ml/pod-1 runs on it'}",
    ],
)
def test_a_case_says_at_which_hour_and_beside_which_alerts_and_pods(
    played: Played, case: str, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(WAITING)
    code, lines = played(f"faults: [{{type: Soft, reason: Bad}}], {case}")
    assert (code, lines[0]) == (0, "ok    it")
    urgent = case.split("expect")[0] + "expect: {rule: b, starts: true}"
    assert played(f"faults: [{{type: Hard, reason: Bad}}], {urgent}")[0] == 0
