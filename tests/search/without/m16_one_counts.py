"""Item 16 without its mend: everybody that is held on a step or under the brake lists the whole fleet."""

from __future__ import annotations

from collections.abc import Callable

import recovery.agent.counting
import recovery.decide.needs

STORY = (
    "tests/stories/test_api_budget.py::test_where_a_list_takes_longer_than_ten_seconds_not_everybody_lists"
)


def take_out(put: Callable[[object, str, object], None]) -> None:
    def by_age(census: object, mine: bool, s: object, age: object) -> bool:
        return census is None or not recovery.agent.counting.good(census, s, age)  # type: ignore[arg-type]

    put(recovery.agent.counting, "my_turn", by_age)
    put(recovery.agent.counting, "good", lambda census, s, age: s.now - age <= census.at <= s.now)
    put(recovery.decide.needs, "held_as_counted", lambda s: False)
