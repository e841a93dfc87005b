"""What doctor prints, how it ends, and that nothing makes it wait."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import click
import pytest

from recovery.clock import SystemClock
from recovery.console.doctor.context import CheckContext
from recovery.console.doctor.printer import Printer, exit_code, last_sentence, mark, report_as_json
from recovery.console.doctor.runner import Check, run_checks
from recovery.errors import Refused
from recovery.provider.protocol import Finding

GOOD = Finding("cluster", True, "the API server answers")
ADVICE = Finding("cluster", True, "ada paused all recoveries", "node-recovery resume")
MISSING = Finding("rights", False, "it may not patch nodes", "bind the rules")
UNASKED = Finding("aws", None, "AWS was not asked")
WRONG = Finding("settings", False, "NODE_NAME: missing")


def printed(encoding: str, *findings: Finding) -> list[str]:
    printer = Printer(encoding)
    return [click.unstyle(line) for finding in findings for line in printer.lines(finding)]


def test_each_finding_has_its_mark_under_the_name_of_its_area() -> None:
    assert printed("utf-8", GOOD, ADVICE, MISSING, UNASKED) == [
        "cluster",
        "  ✓ the API server answers",
        "  ! ada paused all recoveries",
        "    → node-recovery resume",
        "rights",
        "  ✗ it may not patch nodes",
        "    → bind the rules",
        "aws",
        "  ? AWS was not asked",
    ]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no-such-encoding"])
def test_a_terminal_without_such_marks_gets_plain_ones(encoding: str) -> None:
    assert printed(encoding, GOOD, ADVICE, MISSING, UNASKED) == [
        "cluster",
        "  ok the API server answers",
        "  !  ada paused all recoveries",
        "     -> node-recovery resume",
        "rights",
        "  x  it may not patch nodes",
        "     -> bind the rules",
        "aws",
        "  ?  AWS was not asked",
    ]


def test_a_terminal_that_cannot_write_a_word_of_others_gets_a_question_mark_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Printer("ascii").print(Finding("cluster", True, "paused: größere Wartung…"))
    assert "gr??ere Wartung?" in capsys.readouterr().out


def test_marks_are_coloured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    colours = ["\x1b[32m✓", "\x1b[33m!", "\x1b[31m✗", "\x1b[33m?"]
    for finding, colour in zip((GOOD, ADVICE, MISSING, UNASKED), colours, strict=True):
        Printer("utf-8").print(finding)
        assert colour in capsys.readouterr().out


def test_long_sentences_are_folded_and_commands_stay_whole() -> None:
    command = "kubectl auth can-i patch nodes --as=system:serviceaccount:" + "n" * 90
    lines = printed("utf-8", Finding("rights", False, "it may not. " * 20, f"then check: {command}"))
    assert max(len(line) for line in lines if "nnn" not in line) <= 110
    assert all(line.startswith("    ") for line in lines[2:])
    assert any(line.strip() == command.split()[-1] for line in lines)


@pytest.mark.parametrize(
    ("findings", "code", "sentence"),
    [
        ([GOOD, GOOD], 0, "recovery could work here: 2 checks"),
        ([GOOD, ADVICE], 0, "recovery could work here: 2 checks, 1 with advice"),
        ([GOOD, UNASKED], 0, "recovery could work here: 2 checks, 1 could not be asked"),
        ([GOOD, MISSING], 1, "recovery could not work here: 1 of 2 checks failed"),
        (
            [GOOD, MISSING, ADVICE, UNASKED],
            1,
            "recovery could not work here: 1 of 4 checks failed, 1 with advice, 1 could not be asked",
        ),
        ([WRONG, MISSING], 2, "recovery could not work here: 2 of 2 checks failed"),
    ],
)
def test_it_ends_with_one_sentence_and_an_exit_code(
    findings: list[Finding], code: int, sentence: str
) -> None:
    assert (exit_code(findings), last_sentence(findings)) == (code, sentence)
    assert report_as_json(findings)["works"] is (code == 0)


def test_programs_get_null_for_what_could_not_be_asked() -> None:
    found = report_as_json([UNASKED, MISSING])["findings"]
    assert found[0] == {"area": "aws", "ok": None, "sentence": "AWS was not asked", "remedy": None}
    assert (found[1]["ok"], found[1]["remedy"], mark(MISSING)) == (False, "bind the rules", "✗")


# ---------------------------------------------------------------- running the checks


CONTEXT = CheckContext({}, SystemClock())


def test_findings_are_passed_on_as_they_come() -> None:
    go_on = threading.Event()

    def look(_: CheckContext) -> Iterator[Finding]:
        yield GOOD
        assert go_on.wait(10)
        yield MISSING

    found = run_checks(CONTEXT, [Check("cluster", look)])
    assert next(found) == GOOD
    go_on.set()
    assert list(found) == [MISSING]


def test_a_check_that_hangs_costs_its_own_answers_and_no_others() -> None:
    release = threading.Event()

    def hang(_: CheckContext) -> Iterator[Finding]:
        yield GOOD
        release.wait(30)

    began = time.monotonic()
    checks = [Check("cluster", hang, seconds=0.05), Check("rights", lambda _: [MISSING])]
    found = list(run_checks(CONTEXT, checks))
    release.set()
    assert time.monotonic() - began < 5
    assert [f.ok for f in found] == [True, None, False]
    assert found[1].sentence == "no answer within 0.05 s: the rest of it was not asked"


def test_when_all_the_time_is_used_up_the_rest_is_not_asked() -> None:
    release = threading.Event()

    def hang(_: CheckContext) -> Iterator[Finding]:
        release.wait(30)
        yield GOOD

    found = list(run_checks(CONTEXT, [Check("a", hang), Check("b", lambda _: [GOOD])], total=0.05))
    release.set()
    assert [(f.area, f.ok) for f in found] == [("a", None), ("b", None)]
    assert found[1].sentence == "not asked: what came before it took all the time there is"


def test_an_error_ends_one_check_and_a_bug_is_named_as_one() -> None:
    def refused(_: CheckContext) -> Iterator[Finding]:
        yield GOOD
        raise Refused("the API server said no")

    def broken(_: CheckContext) -> Iterator[Finding]:
        raise KeyError("kind")
        yield GOOD

    found = list(run_checks(CONTEXT, [Check("a", refused), Check("b", broken), Check("c", lambda _: [GOOD])]))
    assert found[1] == Finding("a", None, "the rest of it was not asked: the API server said no")
    assert (found[2].ok, found[2].remedy) == (False, "please report this bug")
    assert found[2].sentence == "the doctor itself failed here: KeyError: 'kind'"
    assert found[3] == GOOD
