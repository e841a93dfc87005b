"""Item 13 without its mend: records grow without a bound, and stay for ever."""

from __future__ import annotations

from collections.abc import Callable

import recovery_testkit.provider

import recovery.agent.retention
import recovery.decide.own_node
import recovery.store.record_codec

STORY = "tests/stories/test_closed_records.py::test_the_records_of_a_group_of_a_thousand_machines_stay_small"
PLOTS = ("a_long_life",)


def take_out(put: Callable[[object, str, object], None]) -> None:
    put(recovery.store.record_codec, "fitted", lambda record, encode: record)
    put(recovery_testkit.provider, "pack", lambda machines: sorted(machines))
    put(recovery.decide.own_node, "out_of_date", lambda s, a, r: None)
    put(recovery.agent.retention.Remover, "turn", lambda self, gate: None)
