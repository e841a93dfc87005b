"""Pages of node-problem-detector, as they are and as they should not be."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from recovery.signals.page import EDGES, MAX_LINE, MAX_SERIES, WHOLE, Page, parse

CAPTURES = sorted((Path(__file__).parents[1] / "captures").glob("*/*.prom"))
HEALTHY = (Path(__file__).parents[1] / "captures/full-page/00-healthy.prom").read_text()

FINE = 'problem_counter{reason="A"} 2\nproblem_gauge{reason="A",type="T"} 1\n'


def gauge(line: str) -> Page:
    """A page with one sound series of type T and the given line."""
    return parse(FINE + line + "\n")


@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_captured_page_is_read_whole(path: Path) -> None:
    text = path.read_text()
    page = parse(text)
    assert page.unknown == {}
    assert len(page.gauges) == len(re.findall(r"^problem_gauge\{", text, re.M))
    assert len(page.counters) == len(re.findall(r"^problem_counter\{", text, re.M))
    assert page.pairs == set(page.gauges)


@pytest.mark.parametrize(
    "line",
    [
        'problem_gauge{reason="R",type="X"} 1',
        'problem_gauge{type="X",reason="R"} 1',
        'problem_gauge{type="X",reason="R",} 1',
        'problem_gauge { node="n" , reason="R" , type="X" } 1',
        'problem_gauge{reason="R",type="X"} 1e0',
        'problem_gauge{reason="R",type="X"} 1 1700000000000',
        'problem_gauge{reason="R",type="X"}\t1',
        '  problem_gauge{reason="R",type="X"} 1  ',
        'problem_gauge{reason="R",type="X"} 1\r',
        '{"problem_gauge",reason="R",type="X"} 1',
        '# TYPE problem_gauge gauge\nproblem_gauge{reason="R",type="X"} 1',
        'problem_gauge{reason="R",type="X"} 1\nproblem_gauge{reason="R",type="X"} 1',
        'problem_gauge{reason="R",type="X"} 1\nproblem_gauge{reason="R",type="X",otel_scope_name="s"} 1.0',
    ],
)
def test_a_gauge_is_read_however_it_is_written(line: str) -> None:
    page = gauge(line)
    assert page.gauges == {("T", "A"): 1, ("X", "R"): 1}
    assert page.unknown == {}


@pytest.mark.parametrize(
    "line",
    [
        'problem_counter{reason="R"} 3',
        'problem_counter_total{reason="R"} 3',
        'problem_counter_total{reason="R",otel_scope_name="s"} 3.0',
        '# TYPE problem_counter counter\nproblem_counter{reason="R"} 3',
        '# TYPE problem_counter_total counter\nproblem_counter_total{reason="R"} 3',
        '# TYPE problem_counter counter\nproblem_counter_total{reason="R"} 3 # {trace_id="x"} 1',
        'problem_counter{reason="R"} 3\nproblem_counter_total{reason="R"} 3',
    ],
)
def test_a_counter_is_read_with_and_without_total(line: str) -> None:
    page = gauge(line)
    assert page.counters == {"A": 2, "R": 3}
    assert page.unknown == {}


def test_escaped_quotes_backslashes_commas_and_braces_in_labels_are_read() -> None:
    page = gauge(r'problem_gauge{reason="a \"b\", {c} \\ d",type="X"} 1')
    assert page.gauges[("X", r'a "b", {c} \ d')] == 1
    assert page.unknown == {}


def test_large_counts_are_written_with_an_exponent_and_read() -> None:
    assert gauge('problem_counter{reason="R"} 1.234567e+06').counters["R"] == 1_234_567


def test_a_page_with_windows_line_ends_is_read_alike() -> None:
    assert parse(HEALTHY.replace("\n", "\r\n")) == parse(HEALTHY)


@pytest.mark.parametrize("value", ["-1", "2", "0.5", "1e300"])
def test_a_gauge_that_no_detector_writes_makes_its_type_unknown_and_is_still_listed(value: str) -> None:
    page = gauge(f'problem_gauge{{reason="R",type="X"}} {value}')
    assert page.gauges == {("T", "A"): 1}
    assert ("X", "R") in page.pairs
    assert page.unknown == {"X": f"the gauge of R (X) is {float(value):g}, and neither 0 nor 1"}


def test_a_zero_with_a_sign_is_a_zero() -> None:
    assert gauge('problem_gauge{reason="R",type="X"} -0.0').gauges[("X", "R")] == 0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e999", "9" * 400])
def test_a_gauge_without_a_finite_value_makes_its_type_unknown_and_is_still_listed(value: str) -> None:
    page = gauge(f'problem_gauge{{reason="R",type="X"}} {value}')
    assert ("X", "R") not in page.gauges
    assert ("X", "R") in page.pairs
    assert page.unknown == {"X": "the gauge of R (X) is not a number"}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "9" * 400])
def test_a_count_that_is_none_makes_the_types_with_its_reason_unknown(value: str) -> None:
    page = parse(f'problem_gauge{{reason="A",type="T"}} 0\nproblem_counter{{reason="A"}} {value}\n')
    assert page.unknown == {"T": "the counter of A is not a count"}
    assert page.counters == {}


def test_a_count_that_is_none_and_has_no_gauge_makes_temporary_rules_unknown() -> None:
    assert list(gauge('problem_counter{reason="OOMKilling"} NaN').unknown) == [EDGES]


@pytest.mark.parametrize("second", ["0", "2", "NaN"])
def test_two_values_for_one_gauge_make_its_type_unknown(second: str) -> None:
    page = gauge(f'problem_gauge{{type="T",reason="A"}} {second}')
    assert "T" in page.unknown
    assert ("T", "A") not in page.gauges
    assert ("T", "A") in page.pairs


def test_two_values_for_one_counter_make_the_types_with_its_reason_unknown() -> None:
    page = gauge('problem_counter_total{reason="A"} 3')
    assert page.unknown == {"T": "the page gives the counter of A two different values"}
    assert page.counters == {}


@pytest.mark.parametrize(
    "line",
    [
        'problem_gauge{reason="R",type="X"} ',
        'problem_gauge{reason="R",type="X"}',
        'problem_gauge{reason="R",type="X"} on',
        'problem_gauge{reason="R",type="X"} 1_0',
        'problem_gauge{reason="R",type="X" 1',
        'problem_gauge{reason="R,type="X"} 1',
        'problem_gauge{reason=R,type="X"} 1',
        'problem_gauge{type="X"} 1',
        'problem_gauge{reason="",type="X"} 1',
        'problem_gauge{reason="R",reason="S",type="X"} 1',
        'problem_gauge{reason="R",type="X"} 1 2 3',
        'problem_gauge{reason="R",type="X"} 1 zz',
        'problem_gauge{reason="R\x00",type="X"} 1',
        'problem_gauge{reason="R\ufffd",type="X"} 1',
        'problem_gauge{reason="' + "R" * MAX_LINE + '",type="X"} 1',
    ],
)
def test_a_broken_gauge_makes_only_its_type_and_temporary_rules_unknown(line: str) -> None:
    page = gauge(line)
    known = "X" if len(line) < MAX_LINE else WHOLE
    assert set(page.unknown) == {known, EDGES}
    assert page.gauges == {("T", "A"): 1}


@pytest.mark.parametrize(
    "line",
    [
        "problem_gauge 1",
        'problem_gauge{reason="R",type="} 1',
        'problem_gauge{reason="R"} 1',
        "problem_gauge{",
    ],
)
def test_a_broken_gauge_whose_type_cannot_be_made_out_makes_the_source_unknown(line: str) -> None:
    page = gauge(line)
    assert WHOLE in page.unknown
    assert page.gauges == {("T", "A"): 1}


def test_a_broken_line_is_quoted_as_far_as_a_sentence_can_hold_it() -> None:
    line = 'problem_gauge{reason="R",type="X"} on'
    assert gauge(line).unknown["X"] == f"a line of problem_gauge is broken: {line!r}"
    line = 'problem_counter{reason="A"} ' + "9" * 200
    damaged = gauge(line + " zz").unknown["T"]
    assert damaged == f"a line of problem_counter is broken: {line[:119] + '…'!r}"


def test_two_lines_run_into_one_make_both_their_types_unknown() -> None:
    one, two = 'problem_gauge{reason="R",type="X"} 0', 'problem_gauge{reason="S",type="Y"} 1'
    for between in ("", " ", "\r", "\t"):
        page = gauge(one + between + two)
        assert {"X", "Y"} <= set(page.unknown), between
        assert page.gauges == {("T", "A"): 1}


@pytest.mark.parametrize(
    "line",
    [
        'problem_gauge{reason="R",typroblem_gauge{reason="S",type="X"} 1',
        'problem_gauge{reason="R",typroblem_gaugereason="S",type="X"} 1',
        'problem_gauge{reason="Rproblem_gauge{reason=S",type="X"} 1',
    ],
)
def test_a_line_that_begins_within_another_is_not_taken_for_a_series(line: str) -> None:
    page = gauge(line)
    assert page.gauges == {("T", "A"): 1}
    assert {"X", EDGES} <= set(page.unknown)


def test_a_broken_counter_makes_the_types_with_its_reason_unknown() -> None:
    assert set(gauge('problem_counter{reason="A"} x').unknown) == {"T"}
    assert set(gauge('problem_counter{reason="B"} x').unknown) == {EDGES}
    assert set(gauge('problem_counter{reason="} 1').unknown) == {WHOLE}
    assert set(gauge("problem_counter 1").unknown) == {WHOLE}


@pytest.mark.parametrize(
    "line",
    [
        "disk_io_time{device_name= 5",
        "}}}{{{ garbage",
        "# TYPE",
        "# TYPE problem_gauge",
        "# HELP problem_gauge {",
        "my_problem_gauge{ 1",
        'problem_gauge_other{reason="R",type="X"} zz',
        'host_uptime{note="problem_gauge"} 1',
        "\x00\x01\x02",
        "\ufffd",
    ],
)
def test_garbage_in_other_families_is_no_matter(line: str) -> None:
    assert gauge(line) == parse(FINE)


@pytest.mark.parametrize("text", ["# TYPE go_goroutines gauge\ngo_goroutines 7\n", "\n", "<html></html>\n"])
def test_another_programs_page_is_said_to_be_one(text: str) -> None:
    page = parse(text)
    assert page.complaints == (
        "this page is not node-problem-detector's: it has neither problem_gauge nor problem_counter",
    )
    assert list(page.unknown) == [WHOLE]


def test_an_empty_page_is_unknown() -> None:
    assert parse("").unknown == {WHOLE: "the page is empty"}


def test_a_page_of_temporary_rules_only_is_node_problem_detectors() -> None:
    assert parse('problem_counter{reason="OOMKilling"} 0\n').unknown == {}


def test_a_page_cut_anywhere_within_a_line_is_unknown_and_its_last_line_is_not_used() -> None:
    text = FINE + 'problem_gauge{reason="R",type="X"} 12'
    for end in range(len(FINE) + 1, len(text) + 1):
        page = parse(text[:end])
        assert page.unknown == {WHOLE: "the page ends in the middle of a line"}
        assert page.gauges == {("T", "A"): 1}


def test_a_page_with_endless_series_is_refused_as_a_whole() -> None:
    text = "".join(f'problem_gauge{{reason="R{i}",type="X"}} 1\n' for i in range(MAX_SERIES + 1))
    page = parse(text)
    assert page.unknown == {WHOLE: f"the page lists more than {MAX_SERIES} problem series"}
    assert page.gauges == {}


def test_a_type_named_like_the_whole_source_makes_the_whole_source_unknown() -> None:
    assert WHOLE in gauge('problem_gauge{reason="R",type="*"} 1').unknown


def test_a_complaint_quotes_a_long_line_in_short() -> None:
    page = gauge('problem_gauge{reason="' + "R" * 5000 + '",type="X"} zz')
    assert all(len(sentence) < 200 for sentence in page.complaints)


def _mutated(text: str, dice: random.Random) -> str:
    data = bytearray(text.encode())
    for _ in range(dice.choice((1, 1, 2, 5, 30))):
        at = dice.randrange(len(data) or 1)
        end = min(len(data), at + dice.choice((1, 1, 3, 40)))
        match dice.randrange(6):
            case 0:
                data[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end]
            case 3:
                data[at:at] = dice.choice(
                    (b'"', b"{", b"}", b"\\", b"\n", b"#", b",", b"=", b" ", b"NaN", b"\xff")
                )
            case 4:
                del data[at:]
            case _:
                other = dice.randrange(len(data) or 1)
                data[at:end] = data[other : other + end - at]
        data = data or bytearray(b"\n")
    return data.decode("utf-8", errors="replace")


@pytest.mark.parametrize("seed", range(6))
def test_no_mutation_of_a_page_raises_or_brings_a_name_that_is_not_on_it(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    texts = [path.read_text() for path in CAPTURES]
    for _ in range(150):
        text = _mutated(dice.choice(texts), dice)
        page = parse(text)
        plain = text.replace("\\\\", "\\").replace('\\"', '"').replace("\\n", "\n")
        for type_, reason in page.pairs:
            assert type_ in text or type_ in plain, f"seed {seed}"
            assert reason in text or reason in plain, f"seed {seed}"
        assert set(page.gauges) <= page.pairs


def test_a_series_behind_a_byte_order_mark_is_read_or_unknown_and_never_healthy() -> None:
    page = parse('\ufeffproblem_gauge{reason="A",type="T"} 1\nproblem_counter{reason="A"} 1\n')
    assert page.gauges.get(("T", "A")) == 1 or page.unknown
