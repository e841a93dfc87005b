"""One seed, one script."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.search import directed
from tests.search.acts import ACTS
from tests.search.field import FAULTS_OF, FIELD, LATEST, beside
from tests.search.plots import LATER_PLOTS, PLOTS, PROVING_PLOTS, SOURCE_PLOTS, Plot
from tests.search.policies import COUNTED, DEAD, LATER, POLICIES, WIDE
from tests.search.policies import FIELD as REWRITTEN
from tests.search.script import Act, Scene, Script, lasting
from tests.search.signals import OFF_THE_NODE, SOURCES

PLOTTED = 0.5
"""The share of histories that have a plot."""
ONLY: tuple[str, ...] = ()
"""Where not empty, each history has one of these plots."""
LONGEST = 900.0
"""Seconds in which disturbances begin."""
LONGEST_IN_WAVES = 200.0
"""Seconds that a disturbance may last in a history of waves: a longer one would hold all that follows."""
WAVES = (12, 18, 24)
BY_A_PERSON = ("released", "released", "machine lost")
"""What a person does after each wave, who has taken what was handed over."""


def scene_of(dice: random.Random) -> Scene:
    return Scene(
        nodes=dice.choice((2, 3, 4, 5)),
        policy=dice.choice(sorted(POLICIES)),
        pods=dice.choice((0, 1, 1, 2)),
        concluder=dice.random() < 0.3,
        same_name=dice.random() < 0.3,
        shrinks=dice.random() < 0.2,
        kernel=dice.random() < 0.8,
        tells_start=dice.random() < 0.4,
        patient=True,
        short_gate=dice.random() < 0.2,
    )


SOURCES_FROM = 10**9
"""From this seed on, every second history has a source beyond the page. What a smaller seed makes is as it was."""
FLEET_FROM = 2 * 10**9
"""From this seed on, replicas of the controller do the work."""
LATER_FROM = 10**10
"""From this seed on, a history is that of the seed which is so much smaller, under one of the later policies."""
LATER_PLOTS_FROM = 5 * 10**10
"""From this seed on, a history is that of the seed which is so much smaller, with one of the later plots."""
DENSE_FROM = 10**11
"""From this seed on, four of five histories are those of the seed which is so much smaller, with wave after wave
of faults and of the same disturbances."""
FIELD_FROM = 2 * 10**12
"""From this seed on, a history is that of the seed which is so much smaller, with what else clusters do around its
faults (``field.py``)."""
LATEST_FROM = 4 * 10**12
"""From this seed on, a history is that of the seed which is so much smaller, with what came later still."""
SHORT = 0.2
"""The share of them that stays as it is."""
BESIDE_THE_PAGE = ("EKS", "conditions", "konduktor", "npd, conditions")
DISTURBED: dict[str, tuple[str, ...]] = {
    "conditions": ("writer dies", "writer starts anew", "conditions removed", "conditions unknown", "boots"),
    "eks": ("writer dies", "writer starts anew", "conditions removed", "conditions unknown", "boots"),
    "konduktor": ("mark taken off", "boots", "node deleted", "lost pod"),
}
"""What happens to a source, by who writes it."""
OF_REPLICAS = (
    "watches expire",
    "a replica in vain",
    "leases deleted",
    "crash",
    "stop",
    "call",
    "clock steps",
)
"""What befalls replicas of the controller above all."""
ALONE = {"EKS": "EKS alone", "konduktor": "konduktor alone", "npd, conditions": "conditions"}
"""What remains of these sources where nobody reads a page."""
FAULTS = {"conditions": ("fault", "plugin fault", "flash"), "eks": ("eks fault",), "konduktor": ("marked",)}


def script_of(seed: int) -> Script:
    """The script of a seed: some faults, and up to a dozen other disturbances around them."""
    if seed >= LATEST_FROM:
        script = replace(script_of(seed - LATEST_FROM), seed=seed)
        return _with_the_latest(script, random.Random(f"{seed} latest"))
    if seed >= FIELD_FROM:
        script = replace(script_of(seed - FIELD_FROM), seed=seed)
        return _in_the_field(script, random.Random(f"{seed} field"))
    if seed >= directed.DIRECTED_FROM:
        return directed.script_of(seed)
    if seed >= DENSE_FROM:
        script = replace(script_of(seed - DENSE_FROM), seed=seed)
        dice = random.Random(f"{seed} dense")
        return script if dice.random() < SHORT else _in_waves(script, dice)
    if seed >= LATER_PLOTS_FROM:
        script = replace(script_of(seed - LATER_PLOTS_FROM), seed=seed)
        return _plotted(script, random.Random(f"{seed} later"), LATER_PLOTS)
    if seed >= LATER_FROM:
        script = script_of(seed - LATER_FROM)
        scene = replace(script.scene, policy=random.Random(f"{seed} later").choice(sorted(LATER)))
        return replace(script, seed=seed, scene=scene)
    script = _script_of(seed)
    if seed >= FLEET_FROM:
        return _in_fleet_mode(script, random.Random(f"{seed} fleet"))
    return script if seed < SOURCES_FROM else _with_source(script, random.Random(f"{seed} sources"))


def _in_the_field(script: Script, dice: random.Random) -> Script:
    """The same script, where a few kinds of what else clusters do come around its faults, again and again. Half of
    them are brief: one fault or two, and little beside."""
    scene = replace(script.scene, lives_on=dice.random() < 0.6)
    page = not scene.sources or SOURCES[scene.sources].page
    if dice.random() < 0.3:
        scene = replace(scene, policy=dice.choice(sorted(COUNTED if page else REWRITTEN)))
    names = [name for name in FIELD if directed.can_befall(name, scene)]
    few = dice.sample(names, dice.choice((1, 2, 2, 3)))
    few += ["happens often"] * len(few) * (scene.policy in COUNTED)
    if scene.replicas and random.Random(f"{script.seed} dead").random() < 0.3:
        scene = replace(scene, policy=next(iter(DEAD)))
        few += ["kubelet flaps", "machine hangs"]
    acts = script.acts
    if dice.random() < 0.5:
        scene = replace(scene, nodes=dice.choice((2, 2, 3)))
        acts = tuple(_brief_faults(dice, scene))
    faults = [a for a in acts if a.what in FAULTS_OF]
    count = dice.choice((2, 3, 4) if len(faults) < 3 else (3, 6, 10))
    more = (
        [beside(dice, dice.choice(few), dice.choice(faults), scene.nodes) for _ in range(count)]
        if faults
        else []
    )
    return replace(script, scene=scene, acts=_in_order([*acts, *more]))


def _with_the_latest(script: Script, dice: random.Random) -> Script:
    """The same script, where what came later still comes around one or two of its faults."""
    faults = [a for a in script.acts if a.what in FAULTS_OF]
    around = dice.choices(faults, k=dice.choice((1, 1, 2))) if faults else []
    more = [beside(dice, dice.choice(LATEST), fault, script.scene.nodes) for fault in around]
    return replace(script, acts=_in_order([*script.acts, *more]))


def _brief_faults(dice: random.Random, scene: Scene) -> list[Act]:
    """One fault or two, and perhaps one thing of the older kinds."""
    kinds = FAULTS[SOURCES[scene.sources].writer if scene.sources else "conditions"]
    acts = [
        Act(at, what, place, ACTS[what].choose(dice))
        for at, place in ((10.0, 0), (dice.choice((14.0, 60.0)), dice.randrange(scene.nodes)))[
            : dice.choice((1, 1, 2))
        ]
        for what in [dice.choice(kinds)]
    ]
    acts.append(Act(round(dice.uniform(150, 300), 1), "foreign marks", 0))  # the calm begins after the last
    older = _act(dice, dice.choice([n for n, k in ACTS.items() if k.weight]), scene, 90.0)
    return [*acts, *([older] if dice.random() < 0.4 and lasting(older) <= LONGEST_IN_WAVES else [])]


def _in_waves(script: Script, dice: random.Random) -> Script:
    """The same script, where faults come in waves, and some of what was disturbed before is disturbed again.

    A history costs as much before its first fault and after its last one, however many there are. Few nodes break
    again and again: in a larger fleet more agents only look on. What holds all recoveries for long is left out.
    """
    scene = replace(script.scene, nodes=dice.choice((2, 3, 3, 4)), unhurried=True)
    if f"{scene.policy}, wide" in WIDE and dice.random() < 0.85:
        scene = replace(scene, policy=f"{scene.policy}, wide")
    writer = SOURCES[scene.sources].writer if scene.sources else "conditions"
    page = not scene.sources or SOURCES[scene.sources].page
    kinds = (*FAULTS[writer], *(FAULTS["conditions"] if page else ()))
    brief = [a for a in script.acts if lasting(a) <= LONGEST_IN_WAVES]
    again = [a for a in brief if a.what not in kinds]
    at, every, acts = dice.uniform(5, 60), dice.choice((40.0, 60.0, 90.0)), brief
    for _ in range(dice.choice(WAVES)):
        for place in dice.sample(range(scene.nodes), dice.choice((1, 2, 2))):
            what = dice.choice(kinds)
            begins = round(at + dice.uniform(0, every / 2), 1)
            acts.append(Act(begins, what, place, ACTS[what].choose(dice)))
        if again and dice.random() < 0.7:
            acts.append(replace(dice.choice(again), at=round(at + dice.uniform(0, every), 1)))
        what = dice.choice(BY_A_PERSON)
        acts.append(Act(round(at + every - 1.0, 1), what, dice.randrange(scene.nodes)))
        at += every
    return replace(script, scene=scene, acts=_in_order(acts))


def _in_fleet_mode(script: Script, dice: random.Random) -> Script:
    """The same script, where two replicas of the controller, or one, go by what stands on the Nodes."""
    if dice.random() < PLOTTED:
        script = _plotted(script, dice)
    else:
        script = _befallen(script, dice, dice.choice(OFF_THE_NODE))
    name = ALONE.get(script.scene.sources, script.scene.sources)
    scene = replace(script.scene, sources=name, replicas=dice.choice((1, 2, 2, 2)), concluder=False)
    more = [_act(dice, what, scene, 300.0) for what in dice.choices(OF_REPLICAS, k=dice.choice((0, 0, 1, 3)))]
    return replace(script, scene=scene, acts=_in_order([*script.acts, *more]))


def _with_source(script: Script, dice: random.Random) -> Script:
    """The same script, where faults show elsewhere, too; with faults that only show there, and what befalls
    their source."""
    if dice.random() < 0.5:
        return script
    if dice.random() < PLOTTED:
        return _plotted(script, dice)
    return _befallen(script, dice, dice.choice(BESIDE_THE_PAGE))


def _plotted(script: Script, dice: random.Random, plots: tuple[Plot, ...] = SOURCE_PLOTS) -> Script:
    scene, plot = dice.choice(plots)(dice, script.scene)
    some = script.acts[:: dice.choice((2, 4, 100))]
    return replace(script, scene=scene, acts=_in_order([*plot, *some]))


def _befallen(script: Script, dice: random.Random, name: str) -> Script:
    writer = SOURCES[name].writer
    scene = replace(script.scene, sources=name, kernel=True)
    faults = dice.choices(FAULTS[writer], k=dice.choice((1, 1, 2, 4)))
    beside = dice.choices(DISTURBED[writer], k=dice.choice((0, 1, 2, 4)))
    long = dice.choice((60.0, 200.0, 500.0))
    more = [_act(dice, what, scene, long) for what in (*faults, *beside)]
    if dice.random() < 0.5:  # what befalls a source meets its fault
        place = dice.randrange(scene.nodes)
        more = [replace(a, place=place) for a in more]
    return replace(script, scene=scene, acts=_in_order([*script.acts, *more]))


def _script_of(seed: int) -> Script:
    dice = random.Random(seed)
    scene = scene_of(dice)
    if ONLY or dice.random() < PLOTTED:
        plots = [p for p in (*PLOTS, *LATER_PLOTS, *PROVING_PLOTS) if p.__name__ in ONLY] or PLOTS
        scene, plot = dice.choice(plots)(dice, scene)
        few = [
            _act(dice, what, scene, 300.0)
            for what in dice.choices(_some_of_all(dice), k=dice.choice((0, 0, 2, 5)))
        ]
        return Script(seed, scene, _in_order([*plot, *few, *_more_faults(dice, scene, plot)]))
    names = _some_of_all(dice)
    long = dice.choice((200.0, 500.0, LONGEST))
    count = dice.randint(3, 8) if dice.random() < 0.25 else dice.randint(8, 32)
    acts = [
        _act(dice, "fault" if i % 2 == 0 and dice.random() < 0.8 else dice.choice(names), scene, long)
        for i in range(count)
    ]
    return Script(seed, scene, _in_order(acts))


def _more_faults(dice: random.Random, scene: Scene, plot: list[Act]) -> list[Act]:
    """Faults after a plot, in half of the histories: what a plot has left behind shows in the next recoveries."""
    if dice.random() < 0.5:
        return []
    last = max(a.at for a in plot)
    acts = [_act(dice, "fault", scene, 300.0) for _ in range(dice.choice((2, 4, 8)))]
    return [replace(a, at=round(a.at + last, 1)) for a in acts]


def _in_order(acts: list[Act]) -> tuple[Act, ...]:
    return tuple(sorted(acts, key=lambda a: (a.at, a.what, a.place)))


def _some_of_all(dice: random.Random) -> list[str]:
    """What may happen in one history. A few kinds of disturbances, often, show more than all of them once: those
    that break a law together meet."""
    names = [name for name, kind in ACTS.items() for _ in range(kind.weight)]
    if dice.random() < 0.2:
        return names
    few = {dice.choice(names) for _ in range(dice.randint(2, 7))}
    return [name for name in names if name in few] + [name for name in ("fault", *few) if name in ACTS]


def _act(dice: random.Random, what: str, scene: Scene, long: float) -> Act:
    kind = ACTS[what]
    place = dice.randrange(scene.nodes) if kind.placed else -1
    return Act(round(dice.uniform(5, long), 1), what, place, kind.choose(dice))
