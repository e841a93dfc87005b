"""Seeds that say where they lean: towards one move, effect or brake, beside one disturbance.

    1 TTT DDD NNNNNN     10^12 + thing * 10^9 + disturbance * 10^6 + a number

Chance alone brings what is common together thousands of times, and what is rare never. A history of such a seed has
wave after wave of what leads to the thing, and the disturbance again and again. Thing and disturbance are counted
in the order of ``LEANS`` and ``ACTS``. What an earlier seed makes is as it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.search.acts import ACTS
from tests.search.field import FIELD, LATEST
from tests.search.machines import LOG_REASONS
from tests.search.policies import COUNTED, LATER, POLICIES, WIDE
from tests.search.script import Act, Scene, Script, lasting
from tests.search.signals import SOURCES

DIRECTED_FROM, THING, DISTURBANCE = 10**12, 10**9, 10**6
EVERY = (110.0, 150.0, 190.0)
"""Seconds between two waves."""
WAVES = (5, 7, 9)
BRIEF = 200.0
"""A disturbance is no longer than that, where it can be shorter: it would hold all that follows."""


@dataclass
class Wave:
    """One wave of a history: what it leads to happens to ``place``, from ``at`` on."""

    dice: random.Random
    scene: Scene
    place: int
    at: float
    acts: list[Act] = field(default_factory=list)

    def add(self, after: float, what: str, *args: Any, place: int | None = None) -> None:
        """``after``: seconds after the wave began. Without ``args`` the dice choose them."""
        kind = ACTS[what]
        where = (self.place if place is None else place) if kind.placed else -1
        at = round(max(1.0, self.at + after), 1)
        self.acts.append(Act(at, what, where, args or _chosen(self.dice, what)))

    def soon(self, least: float, most: float, what: str, *args: Any, place: int | None = None) -> None:
        self.add(self.dice.uniform(least, most), what, *args, place=place)

    def sick(self, after: float = 0.0, *cure: str, place: int | None = None) -> None:
        """A fault that some source of the scene states."""
        writer = _writer(self.scene)
        if writer == "conditions" or (_page(self.scene) and self.dice.random() < 0.5):
            self.add(after, "fault", self.dice.choice(LOG_REASONS), cure, place=place)
        else:
            self.add(after, "eks fault" if writer == "eks" else "marked", cure, place=place)

    def brief(self, after: float, *seconds: float) -> None:
        """A fault that its source takes back by itself."""
        long = self.dice.choice(seconds)
        if _writer(self.scene) == "conditions" or _page(self.scene):
            self.add(after, "flash", long)
        elif _writer(self.scene) == "eks":
            self.add(after, "eks fault", ("itself",))
            self.add(after + long, "writer starts anew")
        else:
            self.add(after, "marked", ("itself",))
            self.add(after + long, "mark taken off", 0.0)

    def drains(self) -> None:
        """No pod may be evicted, so that a drain takes long."""
        self.add(-3, "budget never allows", 120.0)


Leads = Callable[[Wave], None]


@dataclass(frozen=True)
class Lean:
    """What leads to a thing: a wave, the policies under which it does, and what the scene has to be."""

    leads: Leads
    policies: tuple[str, ...] = ()
    scene: Mapping[str, Any] = field(default_factory=dict)
    fleet: bool | None = None
    """Whether only replicas of the controller get there (True), or only agents on the node."""


def _writer(scene: Scene) -> str:
    return SOURCES[scene.sources].writer if scene.sources else "conditions"


def _page(scene: Scene) -> bool:
    return not scene.sources or SOURCES[scene.sources].page


def _chosen(dice: random.Random, what: str) -> tuple[Any, ...]:
    """Arguments of an act, a short one where there is one."""
    drawn = [Act(0.0, what, 0, ACTS[what].choose(dice)) for _ in range(12)]
    return next((a for a in drawn if lasting(a) <= BRIEF), min(drawn, key=lasting)).args


# ---------------------------------------------------------------- what leads where


def plain(w: Wave) -> None:
    w.sick(0.0, *w.dice.choice(((), ("reboot",))))


def flashes(w: Wave) -> None:
    w.brief(0.0, 30.0)


def _then(what: str, least: float, most: float, *args: Any) -> Leads:
    """A fault, and this so many seconds later."""

    def leads(w: Wave) -> None:
        w.sick()
        w.soon(least, most, what, *args)

    return leads


def _waits(what: str, *args: Any) -> Leads:
    """This happens while the node waits for its turn."""

    def leads(w: Wave) -> None:
        w.add(-4, w.dice.choice(("pause", "api throttles")) if w.dice.random() < 0.2 else "pause", 70.0)
        w.sick()
        w.soon(12, 50, what, *args)

    return leads


def _drains(what: str, *args: Any) -> Leads:
    """This happens while the node is drained."""

    def leads(w: Wave) -> None:
        w.drains()
        w.sick(0.0, *w.dice.choice(((), ("reboot",))))
        w.soon(15, 70, what, *args)

    return leads


def _proves(what: str, *args: Any) -> Leads:
    """This happens while the node is on probation."""

    def leads(w: Wave) -> None:
        w.sick(0.0, "reboot")
        for _ in range(2):
            w.soon(22, 75, what, *args)

    return leads


def waits_and_clears(w: Wave) -> None:
    w.add(-4, "pause", 90.0)
    w.brief(0.0, 30.0, 50.0)


def drains_and_clears(w: Wave) -> None:
    w.drains()
    w.brief(0.0, 40.0, 80.0)


def boots_often(w: Wave) -> None:
    w.add(-4, "pause", 160.0)
    w.sick()
    for after in (20, 50, 80, 110):
        w.add(after, "boots", 5.0)


def boots_in_probation(w: Wave) -> None:
    w.sick(0.0, "reboot")
    for after in (25, 45, 65, 85):
        w.soon(after, after + 8, "boots", 5.0)


def returns_without_a_slot(w: Wave) -> None:
    w.add(-4, "pause", 120.0)
    w.sick()
    w.soon(12, 30, "boots", 5.0)


def returns_before_a_remedy(w: Wave) -> None:
    w.sick()
    w.soon(8, 35, "boots", 5.0)


def clears_in_probation(w: Wave) -> None:
    w.add(-4, "pause", 120.0)
    w.brief(0.0, 25.0, 35.0)
    w.soon(12, 24, "boots", 5.0)


def only_told(w: Wave) -> None:
    w.sick()
    w.sick(40.0)
    w.brief(20.0, 30.0, 60.0)


def is_lost(w: Wave) -> None:
    """Its record is deleted while its replacement is under way; it is released, or boots and breaks again."""
    w.drains()
    w.sick()
    w.soon(10, 40, "record deleted")
    w.add(45, "crash", 1, False, 5.0)
    if w.dice.random() < 0.5:
        w.add(80, "boots", 5.0)
        w.sick(110)
    else:
        w.add(85, "released")


def recovers_and_breaks(w: Wave) -> None:
    w.sick(0.0, "reboot")
    w.sick(100.0, "reboot")


def clears_and_breaks(w: Wave) -> None:
    w.brief(0.0, 30.0)
    w.sick(75.0)


def is_released_and_breaks(w: Wave) -> None:
    w.sick(0.0, "reboot")
    w.soon(10, 30, "released")
    w.sick(60.0)
    w.add(70, "boots", 5.0)


def is_superseded_and_breaks(w: Wave) -> None:
    w.sick()
    w.soon(10, 30, "machine lost")
    for after in (70, 85, 100):
        w.sick(after)


def _with_slots(what: str) -> Leads:
    def leads(w: Wave) -> None:
        w.drains()
        w.sick()
        w.add(20, what, *(("slots",) if what == "gate edited" else ()))

    return leads


def is_taken_back(w: Wave) -> None:
    w.add(-2, "done late")
    w.sick()
    w.soon(15, 60, "released")


def is_restored_after_a_boot(w: Wave) -> None:
    """etcd is as it was before a boot, and who saw the boot has ended."""
    if w.scene.replicas:
        for seat in range(w.scene.replicas):
            w.add(0, "no agent", 120.0, place=seat)
        w.sick(100.0)
        w.sick(115.0)
    else:
        w.sick(-8)
        w.add(0, "boots", 5.0)
        w.soon(5.5, 8.5, "etcd restored", 20.0)


def a_clock_is_wrong(w: Wave) -> None:
    seat = w.place % w.scene.replicas if w.scene.replicas else w.place
    for other in range(w.scene.replicas):
        w.add(-8, "clock steps", w.dice.choice((40.0, 600.0)), 60.0, place=other)
    if not w.scene.replicas:
        w.add(-8, "clock steps", w.dice.choice((-600.0, -40.0, 40.0, 600.0)), 60.0, place=seat)
    w.sick()


def wears_the_group(w: Wave) -> None:
    w.sick(0.0, "reboot")
    w.sick(20.0, "reboot", place=(w.place + 1) % w.scene.nodes)
    w.sick(60.0, "reboot", place=(w.place + 2) % w.scene.nodes)


def an_heir_is_sick(w: Wave) -> None:
    for _ in range(2):
        w.add(-2, "new ones are sick")
    if w.dice.random() < 0.5:
        w.add(-2, "one too many")
    w.sick()
    w.sick(2.0, place=(w.place + 1) % w.scene.nodes)


def two_of_a_kind(w: Wave) -> None:
    w.sick()
    w.sick(1.5, place=(w.place + 2) % w.scene.nodes)
    w.sick(3.0, place=(w.place + 1) % w.scene.nodes)


def one_rack_is_sick(w: Wave) -> None:
    if _writer(w.scene) == "conditions":
        what, args = "fault", (w.dice.choice(LOG_REASONS), ())
    else:
        what, args = ("eks fault" if _writer(w.scene) == "eks" else "marked"), ((),)
    for place in range(w.scene.alike):
        w.add(0.4 * place, what, *args, place=place)


def the_group_lacks_one(w: Wave) -> None:
    w.add(-6, "group is short", 120.0)
    w.add(-5, "machine lost", place=(w.place + 1) % w.scene.nodes)
    w.sick()


def nothing_would_come(w: Wave) -> None:
    w.add(-5, "group cannot launch", 60.0)
    w.sick()


def a_trainer_is_there(w: Wave) -> None:
    for place in range(w.scene.nodes):
        w.add(-3, "a trainer runs", 120.0, place=place)
    w.sick()
    w.sick(10.0, place=(w.place + 1) % w.scene.nodes)


def a_window_is_waited_for(w: Wave) -> None:
    for place in range(w.scene.nodes):
        w.sick(30.0 * place, place=place)


def the_api_is_back(w: Wave) -> None:
    w.soon(-4, 6, "api away", w.dice.choice((5.0, 30.0)))
    w.sick()


REBOOTS = ("reboot, replace, wide", "drain, reboot, replace, wide")
TOLERATED = ("tolerated for a minute, wide",)
DRAINED = ("drain, replace, wide", "drain, hold, wide", "drain, reboot, replace, wide")
ONE_NAME = {"same_name": True}
TWO_PODS = {"pods": 2}

LEANS: dict[str, Lean] = {
    "move suspect confirmed": Lean(plain, TOLERATED),
    "move suspect cleared": Lean(flashes, TOLERATED),
    "move suspect rebooted": Lean(_then("boots", 8, 45, 5.0), TOLERATED),
    "move suspect otherMachine": Lean(_then("machine lost", 2, 12), TOLERATED, ONE_NAME),
    "move suspect gaveUp": Lean(only_told, ("notify",)),
    "move suspect released": Lean(_then("released", 8, 50), TOLERATED),
    "move waiting granted": Lean(plain),
    "move waiting cleared": Lean(waits_and_clears),
    "move waiting rebooted": Lean(_waits("boots", 5.0), DRAINED),
    "move waiting otherMachine": Lean(_waits("machine lost"), scene=ONE_NAME),
    "move waiting gaveUp": Lean(boots_often, ("three attempts",)),
    "move waiting released": Lean(_waits("released")),
    "move recovering evidence": Lean(plain, REBOOTS),
    "move recovering cleared": Lean(drains_and_clears, DRAINED, TWO_PODS),
    "move recovering rebooted": Lean(_drains("boots", 5.0), DRAINED, TWO_PODS),
    "move recovering otherMachine": Lean(_drains("machine lost"), DRAINED, {**ONE_NAME, **TWO_PODS}),
    "move recovering gaveUp": Lean(_drains("cloud refuses"), ("cordon, hand over, wide", *REBOOTS)),
    "move recovering released": Lean(_drains("released"), DRAINED, TWO_PODS),
    "move proving returned": Lean(plain, REBOOTS),
    "move proving requeued": Lean(returns_without_a_slot, REBOOTS),
    "move proving proved": Lean(plain, REBOOTS),
    "move proving cleared": Lean(clears_in_probation),
    "move proving suspected": Lean(returns_before_a_remedy, TOLERATED),
    "move proving rebooted": Lean(_proves("boots", 5.0), REBOOTS),
    "move proving otherMachine": Lean(_proves("machine lost"), REBOOTS, ONE_NAME),
    "move proving gaveUp": Lean(boots_in_probation, ("three attempts",)),
    "move proving released": Lean(_proves("released"), REBOOTS),
    "move handedOver fault": Lean(only_told, ("notify",)),
    "move handedOver released": Lean(_then("released", 30, 80), ("cordon, hand over, wide",)),
    "move handedOver cleared": Lean(only_told, ("notify",)),
    "move handedOver otherMachine": Lean(
        _then("machine lost", 30, 80), ("cordon, hand over, wide", "notify"), ONE_NAME
    ),
    "move lost released": Lean(is_lost, DRAINED, TWO_PODS),
    "move lost fault": Lean(is_lost, DRAINED, TWO_PODS),
    "move recovered fault": Lean(recovers_and_breaks, REBOOTS),
    "move withdrawn fault": Lean(clears_and_breaks, TOLERATED),
    "move superseded fault": Lean(is_superseded_and_breaks, (*TOLERATED, *DRAINED), ONE_NAME),
    "move released fault": Lean(is_released_and_breaks, REBOOTS),
    "effect WriteRecord": Lean(plain),
    "effect Join": Lean(plain),
    "effect TakeSlot": Lean(plain),
    "effect RestoreSlot": Lean(_with_slots("gate edited"), DRAINED, TWO_PODS),
    "effect FreeSlot": Lean(plain, REBOOTS),
    "effect ClaimReplacement": Lean(plain, ("drain, replace, wide", "replace at once, wide")),
    "effect Mark": Lean(plain),
    "effect Unmark": Lean(plain, REBOOTS),
    "effect Disown": Lean(_drains("taint changed"), ("a taint of its own",), TWO_PODS),
    "effect TellPods": Lean(plain, ("pods have time, wide",), TWO_PODS),
    "effect Evict": Lean(plain, DRAINED, TWO_PODS),
    "effect Submit": Lean(plain, REBOOTS),
    "effect Finish": Lean(plain, ("drain, replace, wide", "replace at once, wide"), {"shrinks": True}),
    "effect TakeBack": Lean(is_taken_back, ("replace at once, wide",)),
    "brake excluded": Lean(_drains("excluded", 60.0), DRAINED, TWO_PODS),
    "brake claimed": Lean(_drains("claimed", 60.0), DRAINED, TWO_PODS),
    "brake paused": Lean(_waits("pause", 30.0)),
    "brake window": Lean(a_window_is_waited_for, ("windows", "windows that stop"), {"nodes": 4}),
    "brake blocked": Lean(a_trainer_is_there, ("windows", "windows that stop"), {"nodes": 3}),
    "brake boot": Lean(is_restored_after_a_boot, DRAINED, {"kernel": True, "replicas": 1}),
    "brake back": Lean(the_api_is_back),
    "brake skewed": Lean(a_clock_is_wrong),
    "brake group-worn": Lean(wears_the_group, ("three attempts",), {"nodes": 4}),
    "brake heir": Lean(an_heir_is_sick, ("replace at once, wide", "drain, replace, wide"), {"nodes": 4}),
    "brake budget": Lean(two_of_a_kind, ("a budget per zone", "a budget per rule"), {"nodes": 5}),
    "brake cooldown": Lean(two_of_a_kind, ("three attempts",), {"nodes": 5}),
    "brake correlated": Lean(
        one_rack_is_sick, ("drain, replace, wide",), {"nodes": 15, "alike": 5}, fleet=True
    ),
    "brake brake": Lean(two_of_a_kind, ("a low brake",), {"nodes": 4}),
    "brake no-launch": Lean(nothing_would_come, ("drain, replace, wide", "drain, hold, wide"), TWO_PODS),
    "brake group-short": Lean(the_group_lacks_one, ("drain, replace, wide", "replace at once, wide")),
    "brake not-alone": Lean(
        two_of_a_kind, ("drain, replace, wide", "replace at once, wide"), {"shrinks": True, "nodes": 5}
    ),
}
"""By thing. A new one is put last: a seed counts them."""

PAIRS: dict[tuple[str, str], dict[str, Any]] = {
    ("effect TakeBack", "scaled in"): {"nodes": 7},  # a group of two machines is not scaled in any more
    ("move handedOver cleared", "taint changed"): {"policy": "told or drained"},
}
"""What the scene of a thing has to be beside one disturbance, where chance alone does not bring both."""

OF_PAGES = ("page away", "new ones are blind", "rubbish page", "many reasons")
"""What befalls node-problem-detector's page: there has to be who reads it."""
OF_REPLICAS = ("watches expire", "a replica in vain", "watches are late")
"""What only replicas of the controller notice: agents on nodes keep no watch, and have no Lease in common."""
WRITERS = {
    "eks fault": ("EKS", "EKS alone"),
    "marked": ("konduktor", "konduktor alone"),
    "mark taken off": ("konduktor", "konduktor alone"),
    "writer dies": ("npd, conditions", "conditions"),
    "writer starts anew": ("npd, conditions", "conditions"),
    "conditions removed": ("npd, conditions", "conditions"),
    "conditions unknown": ("npd, conditions", "conditions"),
}
"""The sources that these disturb: beside a page, and alone."""
NEEDS_A_FAULT = (
    "mark taken off", "second reason", "released", "person uncordons", "record edited", "record deleted",
    "taint changed", "our marks removed", "old taints back",
)  # fmt: skip
"""What finds something to disturb only on a node that is being recovered."""


def seed_of(thing: str, what: str, number: int) -> int:
    """The seed of this number that leans towards ``thing`` beside the disturbance ``what``."""
    return DIRECTED_FROM + list(LEANS).index(thing) * THING + list(ACTS).index(what) * DISTURBANCE + number


def leaning(seed: int) -> tuple[str, str]:
    """The thing and the disturbance that a seed leans towards."""
    rest = seed - DIRECTED_FROM
    things, whats = list(LEANS), list(ACTS)
    return things[rest // THING % len(things)], whats[rest % THING // DISTURBANCE % len(whats)]


def script_of(seed: int) -> Script:
    """The script of a seed from ``DIRECTED_FROM`` on."""
    thing, what = leaning(seed)
    dice = random.Random(f"{seed} directed")
    scene = replace(_scene(dice, LEANS[thing], what), **PAIRS.get((thing, what), {}))
    also = [lean for lean in LEANS.values() if _fits(lean, scene)]
    later = {*LATEST} if what in FIELD else {*FIELD, *LATEST}  # what an older seed makes stays
    known = [name for name in ACTS if what in LATEST or name not in later]
    others = [name for name in known if can_befall(name, scene)]
    others = dice.sample(others, dice.choice((0, 2, 4)))
    acts: list[Act] = []
    at, every = dice.uniform(12, 30), dice.choice(EVERY)
    for n in range(dice.choice(WAVES)):
        wave = Wave(dice, scene, n % scene.nodes, at)
        LEANS[thing].leads(wave)
        _disturb(wave, what, every)
        beside = Wave(dice, scene, (n + 1) % scene.nodes, at + dice.uniform(0, every / 2))
        if also and dice.random() < 0.7:
            dice.choice(also).leads(beside)
        if others:
            _disturb(beside, dice.choice(others), every)
        if dice.random() < 0.6:
            wave.add(every - 8, dice.choice(("released", "machine lost")))
        acts += [*wave.acts, *beside.acts]
        at += every
    return Script(seed, scene, tuple(sorted(acts, key=lambda a: (a.at, a.what, a.place))))


def _fits(lean: Lean, scene: Scene) -> bool:
    """Whether another thing may be reached in this scene, too."""
    asked = all(getattr(scene, name) == value for name, value in lean.scene.items())
    return asked and (not lean.policies or scene.policy in lean.policies) and lean.fleet is None


def can_befall(what: str, scene: Scene) -> bool:
    """Whether there is anything in this scene that the disturbance could be done to."""
    if what in OF_PAGES:
        return _page(scene)
    if what in OF_REPLICAS:
        return bool(scene.replicas)
    if what == "happens often":
        return scene.policy in COUNTED
    return what not in WRITERS or scene.sources in WRITERS[what]


def _disturb(wave: Wave, what: str, every: float) -> None:
    """The disturbance, on the wave's node or on another one, before what it leads to or in the middle of it."""
    for _ in range(wave.dice.choice((1, 1, 2))):
        after = wave.dice.uniform(5.0 if what in NEEDS_A_FAULT else -25.0, every / 2)
        here = what in NEEDS_A_FAULT or wave.dice.random() < 0.6
        place = wave.place if here else wave.dice.randrange(wave.scene.nodes)
        if what == "mark taken off":
            wave.add(2, "marked", (), place=place)
        wave.add(after, what, place=place)


def _scene(dice: random.Random, lean: Lean, what: str) -> Scene:
    fleet = what in OF_REPLICAS or (what not in OF_PAGES and dice.random() < 0.25)
    fleet = fleet if lean.fleet is None else lean.fleet
    beside, alone = WRITERS.get(what, ("", "conditions"))
    scene = Scene(
        nodes=dice.choice((2, 3, 3, 4)),
        policy=dice.choice(lean.policies or (*sorted(WIDE), *sorted({**POLICIES, **LATER}))),
        pods=dice.choice((0, 1, 1, 2)),
        concluder=not fleet and dice.random() < 0.3,
        same_name=dice.random() < 0.3,
        shrinks=dice.random() < 0.1,
        kernel=True,
        tells_start=dice.random() < 0.4,
        patient=True,
        sources=alone if fleet else beside,
        unhurried=True,
    )
    scene = replace(scene, **lean.scene)
    if what == "happens often":  # some policies count, and only the page has a counter
        scene, fleet = replace(scene, policy=dice.choice(sorted(COUNTED)), sources=""), False
    return replace(scene, replicas=(scene.replicas or dice.choice((1, 2))) if fleet else 0)
