"""Quick dataclasses: as frozen as others, and made the same."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from datetime import timedelta

import pytest

from recovery.quick import quick, replace


@dataclass(frozen=True, slots=True)
class Plain:
    name: str
    often: int = 3
    within: timedelta = timedelta(minutes=1)
    labels: Mapping[str, str] = field(default_factory=dict)


@quick
@dataclass(frozen=True, slots=True)
class Quick:
    name: str
    often: int = 3
    within: timedelta = timedelta(minutes=1)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def twice(self) -> int:
        return 2 * self.often


def test_it_is_made_as_any_other() -> None:
    for args, named in ((("a",), {}), (("a", 4), {"labels": {"x": "y"}}), ((), {"name": "b", "often": 0})):
        assert dataclasses.asdict(Quick(*args, **named)) == dataclasses.asdict(Plain(*args, **named))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        Quick()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'never'"):
        Quick("a", never=1)  # type: ignore[call-arg]


def test_each_has_its_own_default_that_is_made() -> None:
    assert Quick("a").labels is not Quick("a").labels


def test_it_is_frozen_and_of_its_own_class() -> None:
    for one in (Quick("a"), replace(Quick("b"), name="a"), dataclasses.replace(Quick("b"), name="a")):
        assert type(one) is Quick
        assert one == Quick("a")
        assert one.twice == 6
        with pytest.raises(FrozenInstanceError):
            one.name = "b"  # type: ignore[misc]
        with pytest.raises(AttributeError):
            object.__setattr__(one, "another", 1)


def test_what_is_changed_is_another_one() -> None:
    before = Quick("a", labels={"x": "y"})
    after = replace(before, often=9)
    assert (before.often, after.often) == (3, 9)
    assert after.labels is before.labels
    with pytest.raises((AttributeError, TypeError)):
        replace(before, never=1)


def test_other_dataclasses_are_changed_as_ever() -> None:
    assert replace(Plain("a"), often=1) == Plain("a", 1)


def test_it_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Quick("a", 7))) == Quick("a", 7)  # noqa: S301


def test_what_would_be_left_out_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Checked:
        name: str

        def __post_init__(self) -> None: ...

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        name: str

    for cls in (Checked, Named):
        with pytest.raises(AssertionError):
            quick(cls)
