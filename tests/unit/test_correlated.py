"""What machines with one fault share: Fisher's exact test, and what is left to the brake."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from math import comb, log

import pytest

from recovery.decide.correlated import CHANCE, Case, Trait, shared, together, traits_of
from recovery.signals.systems import LABELS
from tests.builders.nodes import node
from tests.builders.times import NOW

RACK: Trait = ("rack", "r7")


def cases(count: int, *traits: Trait) -> tuple[Case, ...]:
    return tuple(Case(f"m-{i}", NOW, frozenset(traits)) for i in range(count))


def test_three_machines_of_one_rack_among_forty_have_one_cause() -> None:
    found = shared(cases(3, RACK), {RACK: 10}, 400)
    assert found is not None
    assert found.chance == pytest.approx(120 / 10586800)  # 10 over 3, of 400 over 3
    assert str(found) == ("3 of the 3 machines have rack=r7, as 10 of 400 do (by chance: 1e-05)")


@pytest.mark.parametrize(
    ("found", "have", "population"),
    [
        (cases(2, RACK), {RACK: 2}, 400),  # two may be chance
        (cases(3, RACK), {RACK: 5}, 10),  # so may three of a small fleet
        (cases(9, RACK), {RACK: 200}, 400),  # half of the fleet: the brake's business
        (cases(40, RACK), {RACK: 400}, 400),  # what all share says nothing
        (cases(3), {}, 400),  # they share nothing
    ],
)
def test_what_is_held_by_nobody_or_by_the_brake(
    found: tuple[Case, ...], have: dict[Trait, int], population: int
) -> None:
    assert shared(found, have, population) is None


def test_of_several_things_that_they_share_the_least_likely_is_named() -> None:
    image: Trait = ("image", "ami-2")
    found = shared(cases(4, RACK, image), {RACK: 40, image: 5}, 400)
    assert found is not None
    assert found.trait == image
    assert found.chance < CHANCE


def test_only_faults_that_began_within_ten_minutes_belong_together() -> None:
    me, *others = cases(3, RACK)
    late = Case("m-9", NOW + timedelta(minutes=11), frozenset({RACK}))
    assert {c.machine for c in together(me, [*others, late])} == {"m-0", "m-1", "m-2"}


@pytest.mark.parametrize(
    ("sick_with", "sick", "all_with", "population"),
    [(3, 3, 10, 400), (5, 9, 40, 400), (30, 100, 500, 5000), (100, 100, 100, 5000), (90, 1000, 800, 50000)],
)
def test_the_test_is_fishers_exact_one(sick_with: int, sick: int, all_with: int, population: int) -> None:
    those = cases(sick_with, RACK)
    others = tuple(Case(f"o-{i}", NOW, frozenset()) for i in range(sick - sick_with))
    found = shared(those + others, {RACK: all_with}, population)
    ways = sum(
        comb(all_with, k) * comb(population - all_with, sick - k)
        for k in range(sick_with, min(sick, all_with) + 1)
    )
    exact = Fraction(ways, comb(population, sick))
    assert found is not None
    assert found.log_chance == pytest.approx(log(exact.numerator) - log(exact.denominator), abs=1e-8)


def test_what_is_less_likely_than_any_number_says_is_told_so() -> None:
    found = shared(cases(1000, RACK), {RACK: 1000}, 50000)
    assert str(found).endswith("have rack=r7, as 1000 of 50000 do (by chance: less than 1e-300)")


@pytest.mark.parametrize(
    "label",
    [
        *("nvidia.com/gpu.count", "nvidia.com/mig-1g.5gb.count", "beta.amd.com/gpu.device-id.74b5"),
        *("metricsexporter.amd.com.gpu.0.state", "dgxc.nvidia.com/nvsentinel-state"),
        *sorted(LABELS),
    ],
)
def test_what_a_fault_changes_on_a_node_is_no_cause_of_it(label: str) -> None:
    found = traits_of(node(labels={label: "1", "rack": "r7"}), LABELS)
    assert ("rack", "r7") in found
    assert label not in {name for name, _ in found}


def test_what_a_machine_is_may_be_a_cause() -> None:
    labels = {
        "nvidia.com/gpu.product": "H100",
        "beta.amd.com/gpu.family": "AI",
        "nvidia.com/gpu.clique": "1.2",
    }
    assert {name for name, _ in traits_of(node(labels=labels))} >= set(labels)
