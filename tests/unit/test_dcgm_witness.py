"""dcgm-exporter as a second witness of an XID."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from recovery.config.policy_file import exporter, load_builtin, parse_policy
from recovery.errors import ApiUnavailable, Unreadable
from recovery.model import PodView, Says, Statement
from recovery.signals.dcgm_witness import DcgmWitness, said
from tests.builders.exporters import dcgm_line
from tests.builders.policies import HEAD

LAST, COUNT = "DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT"
NOTHING = tuple(dcgm_line(LAST, gpu, 0) for gpu in range(8))
CHOICE = exporter(load_builtin().policy)
POD = PodView(
    "gpu-operator",
    "exporter-1",
    "u",
    "Running",
    owner_kind="DaemonSet",
    labels={"app": "nvidia-dcgm-exporter"},
    ip="10.1.0.7",
)


def page(*lines: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in lines)


def of(*lines: str, reason: str = "GpuXid79") -> Statement:
    return said(page(*lines), [reason])


def test_the_same_xid_agrees_and_says_of_which_gpu() -> None:
    assert of(*NOTHING[:5], dcgm_line(LAST, 5, 79)) == Statement(Says.AGREES, "the last XID of GPU 5 is 79")


def test_a_counted_xid_agrees_though_a_later_one_hides_it() -> None:
    found = of(dcgm_line(LAST, 3, 31), dcgm_line(COUNT, 3, 1, xid="79", window_size_in_ms="300000"))
    assert found == Statement(Says.AGREES, "GPU 3 has had XID 79")


def test_where_no_gpu_has_had_any_the_kernels_line_stands_alone() -> None:
    found = of(*NOTHING)
    assert found.says is Says.DISAGREES
    assert found.sentence == "no GPU has had XID 79 since the exporter was started"


def test_another_xid_may_hide_the_one_that_is_asked_for() -> None:
    found = of(*NOTHING[:3], dcgm_line(LAST, 3, 31))
    assert found == Statement(Says.UNREADABLE, "the last XID of GPU 3 is 31, which may have been 79 before")


def test_a_count_of_nothing_is_no_xid() -> None:
    assert of(*NOTHING, dcgm_line(COUNT, 3, 0, xid="79")).says is Says.DISAGREES


def test_a_count_of_the_last_minutes_alone_does_not_say_that_there_was_none_before() -> None:
    """dcgm-exporter counts in a window, of five minutes by default. A drain may take longer."""
    found = of(*(dcgm_line(COUNT, gpu, 0, window_size_in_ms="300000") for gpu in range(8)))
    assert found == Statement(
        Says.UNREADABLE, "it counts the XIDs of its last minutes alone, and 79 is not among them"
    )


@pytest.mark.parametrize("value", ["2147483632", "9223372036854775794"])
def test_dcgms_word_for_no_value_is_none(value: str) -> None:
    assert of(dcgm_line(LAST, 0, value)).says is Says.ABSENT


def test_a_page_without_xids_is_no_witness() -> None:
    assert of(dcgm_line("DCGM_FI_DEV_GPU_TEMP", 0, 40)).says is Says.ABSENT


@pytest.mark.parametrize("text", ["", "DCGM_FI_DEV_XID_ERRORS{", f'{LAST}{{gpu="0"}} oops\n'])
def test_a_broken_page_is_unknown(text: str) -> None:
    assert said(text, ["GpuXid79"]).says is Says.UNREADABLE


def test_what_a_reason_says_beside_its_code_does_not_matter() -> None:
    assert of(dcgm_line(LAST, 0, 149), reason="GpuXid149Local").says is Says.AGREES


# ---------------------------------------------------------------- whose page it is


def asked(pods: Iterable[PodView], body: bytes | Exception = b"") -> Statement:
    opened: list[str] = []

    def open_page(url: str, who: str) -> object:
        opened.append(url)

        def read() -> bytes:
            if isinstance(body, Exception):
                raise body
            return body

        return read

    found = DcgmWitness(lambda: pods, CHOICE, open_page)(["GpuXid79"])  # type: ignore[arg-type]
    assert opened in ([], ["http://10.1.0.7:9400/metrics"])
    return found


def test_the_exporter_on_the_node_is_asked() -> None:
    assert asked([POD], page(dcgm_line(LAST, 0, 79)).encode()).says is Says.AGREES


def test_without_an_exporter_there_is_no_witness() -> None:
    assert asked([]).says is Says.ABSENT


def test_a_page_that_cannot_be_read_confirms_nothing() -> None:
    found = asked([POD], Unreadable("it did not answer within 3 s"))
    assert found.says is Says.UNREADABLE
    assert "gpu-operator/exporter-1" in found.sentence


def test_while_the_api_server_is_away_nothing_is_confirmed() -> None:
    def away() -> Iterable[PodView]:
        raise ApiUnavailable("connection refused")

    assert DcgmWitness(away, CHOICE)(["GpuXid79"]).says is Says.UNREADABLE


def test_the_policys_source_says_which_pod_it_is() -> None:
    text = HEAD + "sources: [{dcgm: {namespaces: [monitoring], port: 9500}}]\nrules: []\n"
    found = exporter(parse_policy(text.encode(), "p").policy)
    assert (found.namespaces, found.port) == (("monitoring",), 9500)
