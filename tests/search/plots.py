"""Plots: a few disturbances whose order matters, as they come together in the field. Chance alone would need
thousands of histories to put them so close to each other. Each takes a moment and its places from the dice."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.search.acts import ACTS
from tests.search.machines import LOG_REASONS
from tests.search.script import Act, Scene, act

Dice = random.Random
Plot = Callable[[Dice, Scene], tuple[Scene, list[Act]]]
FOR_GOOD = ()


def _place(d: Dice, scene: Scene) -> int:
    return d.randrange(scene.nodes)


def _fault(d: Dice, at: float, place: int, *cure: str) -> Act:
    return act(round(at, 1), "fault", place, d.choice(LOG_REASONS), cure)


def _chosen(d: Dice, at: float, what: str, place: int = -1) -> Act:
    return Act(round(at, 1), what, place, ACTS[what].choose(d))


def blind_nodes(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """The pages of most nodes go away for long; then one of the others breaks."""
    scene = replace(scene, nodes=5, policy=d.choice(("a low brake", "drain, replace")))
    blind = d.sample(range(5), d.choice((2, 3, 4)))
    other = d.choice([i for i in range(5) if i not in blind])
    acts = [act(round(d.uniform(5, 20), 1), "page away", i, 1300.0) for i in blind]
    return scene, [*acts, _fault(d, d.uniform(700, 800), other)]


def a_new_life(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A fault is handed over and released; its detector starts anew, and the fault is stated again."""
    place = _place(d, scene)
    scene = replace(scene, policy="cordon, hand over", tells_start=d.random() < 0.3)
    acts = [_fault(d, 10, place), act(round(d.uniform(30, 55), 1), "released", place)]
    return scene, [*acts, act(round(d.uniform(60, 80), 1), "detector restarts", place)]


def a_sick_start(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A plugin is sick already when its detector starts, and is released."""
    place = _place(d, scene)
    scene = replace(scene, policy=d.choice(("drain, replace", "cordon, hand over", "drain, hold")))
    acts = [act(5, "plugin fault", place, FOR_GOOD), act(8, "detector restarts", place)]
    acts += [act(9, "cloud refuses")] if d.random() < 0.7 else []
    acts += [act(round(d.uniform(40, 120), 1), "released", place)]
    return scene, [*acts, *([act(200, "lost pod", place, 1, False, 5.0)] if d.random() < 0.5 else [])]


def booted_and_restored(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A machine has booted, and etcd is restored to a moment before."""
    place = _place(d, scene)
    scene = replace(scene, policy="drain, reboot, replace", pods=d.choice((1, 2)), kernel=True)
    acts = [_fault(d, 10, place, *d.choice(((), ("reboot",))))]
    acts += [act(12, "pods never go", place, d.choice((60.0, 120.0)))] if d.random() < 0.6 else []
    acts += [act(round(d.uniform(20, 60), 1), "boots", place, 5.0)] if d.random() < 0.5 else []
    back = d.choice((20.0, 60.0))
    return scene, [*acts, act(round(d.uniform(50, 160), 1), "etcd restored", -1, back)]


def held_in_the_last_moment(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A pause or an exclusion comes while an agent is slow between its reads and its call."""
    place = _place(d, scene)
    scene = replace(scene, policy=d.choice(("replace at once", "drain, replace")), pods=d.choice((0, 1)))
    acts = [_fault(d, 10, place)]
    word = d.choice(("pause", "excluded"))
    return scene, [*acts, act(10.5, "said meanwhile", place, d.randint(10, 60), word, 400.0)]


def a_group_without_room(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A replacement never comes, a person releases the node, and the group finds room later."""
    place = _place(d, scene)
    scene = replace(scene, policy=d.choice(("drain, replace", "replace at once")), shrinks=False)
    acts = [_fault(d, 10, place), act(11, "group is short", -1, 2400.0)]
    late = d.uniform(640, 760) if d.random() < 0.7 else d.uniform(30, 300)
    return scene, [*acts, act(round(late, 1), "released", place)]


def another_budget(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """Several are out when the policy names other budgets; then one more of the same zone breaks."""
    scene = replace(scene, nodes=5, policy="drain, reboot, replace", pods=d.choice((0, 1)))
    places = d.sample((0, 2, 4), 3) if d.random() < 0.7 else d.sample(range(5), 3)
    acts = [_fault(d, 10 + 2 * i, place) for i, place in enumerate(places[:2])]
    at = d.uniform(14, 60)
    new = d.choice(("a budget per zone", "a budget per type", "a budget per type", "drain, replace"))
    acts += [act(round(at, 1), "policy", -1, new, 0.0)]
    return scene, [*acts, _fault(d, at + d.uniform(5, 40), places[2])]


def one_wrong_server(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """One API server is ahead while a fault is tolerated."""
    scene = replace(scene, policy="tolerated for a minute")
    ahead = act(round(d.uniform(5, 30), 1), "one server ahead", -1, d.choice((300.0, 3600.0)), 600.0)
    return scene, [ahead, _fault(d, d.uniform(31, 60), _place(d, scene))]


def a_flash(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A check shows a fault for one interval; the fault is there all the same."""
    scene = replace(scene, policy=d.choice(("drain, replace", "tolerated for a minute")))
    place = _place(d, scene)
    acts = [act(10, "xid flash", place, d.choice((30.0, 60.0)))]
    return scene, [
        *acts,
        *([_chosen(d, d.uniform(12, 60), "pods never go", place)] if d.random() < 0.5 else []),
    ]


def told_only(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """More faults than a record remembers, all of them only told."""
    return replace(scene, policy="notify"), [act(10, "many reasons", _place(d, scene), d.choice((25, 300)))]


def ghosts(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """Nodes that were handed over are ended by a person; the brake is low, and another one breaks."""
    scene = replace(scene, nodes=5, policy="a low brake, hand over", same_name=False)
    places = d.sample(range(5), 4)
    acts: list[Act] = []
    for i, place in enumerate(places[:3]):
        acts += [_fault(d, 10 + 60 * i, place), act(50 + 60 * i, "machine lost", place)]
    return scene, [*acts, _fault(d, 260, places[3])]


def a_record_is_deleted(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """Somebody deletes a record while its replacement is under way; another node waits."""
    scene = replace(scene, policy="drain, replace", pods=d.choice((0, 1)))
    one, other = d.sample(range(scene.nodes), 2)
    acts = [_fault(d, 10, one), _fault(d, 15, other), act(11, "group is short", -1, 900.0)]
    acts += [act(12, "no agent", one, 600.0)] if d.random() < 0.3 else []
    if d.random() < 0.3:  # the machine boots, and breaks again
        acts += [act(200, "crash", one, 1, False, 5.0), act(260, "boots", one, 5.0), _fault(d, 330, one)]
    return scene, [*acts, act(round(d.uniform(20, 60), 1), "record deleted", one)]


def scaled_meanwhile(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """The group is scaled in or is slow while a replacement is under way."""
    place = _place(d, scene)
    scene = replace(scene, nodes=5, policy="replace at once", shrinks=d.random() < 0.5, slow=d.random() < 0.7)
    acts = [_fault(d, 10, place)]
    at = round(d.uniform(12, 18), 1)
    return scene, [*acts, *([act(at, "scaled in", place)] if d.random() < 0.7 else [])]


def others_write_too(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """Others put labels, annotations and finalizers on records, gate and nodes during a recovery."""
    place = _place(d, scene)
    whats = ("record edited", "gate edited", "foreign marks")
    acts = [_chosen(d, d.uniform(11, 60), what, place if ACTS[what].placed else -1) for what in whats]
    return scene, [_fault(d, 10, place), *acts]


def again_and_again(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """One machine breaks again after each reboot, and the others break too."""
    scene = replace(scene, policy="three attempts", nodes=5, short_gate=d.random() < 0.7)
    place = _place(d, scene)
    acts = [_fault(d, 10 + 110 * i, place, "reboot") for i in range(4)]
    return scene, [*acts, *(_fault(d, 30 + 80 * i, (place + 1 + i) % 5, "reboot") for i in range(4))]


def a_call_goes_wrong(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """Something goes wrong right at the call that changes something."""
    policy = d.choice(("replace at once", "drain, replace", "drain, reboot, replace"))
    place = _place(d, scene)
    acts = [_fault(d, 10, place, *d.choice(((), ("reboot",)))), _chosen(d, 9, "call", place)]
    return replace(scene, policy=policy), [
        *acts,
        *([_chosen(d, 8, "cloud hides")] if d.random() < 0.3 else []),
    ]


def off_in_the_middle(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """Recovery is switched off while a node is being recovered."""
    place = _place(d, scene)
    acts = [_fault(d, 10, place), act(round(d.uniform(11, 90), 1), "off", place, d.choice((60.0, 400.0)))]
    acts += [_chosen(d, 9, "pods never go", place)] if d.random() < 0.5 else []
    policy = d.choice(("drain, replace", "drain, reboot, replace", "drain, hold"))
    return replace(scene, policy=policy, pods=d.choice((1, 2))), acts


def held_for_long(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A step is held for longer than it may take, before its first effect or in the middle of it."""
    place = _place(d, scene)
    policy = d.choice(("drain, replace", "drain, hold", "drain, reboot, replace"))
    acts = [_fault(d, 10, place)]
    word = d.choice(("pause", "pause", "claimed"))
    about = -1 if word == "pause" else place
    acts += [act(round(d.uniform(10.5, 30), 1), word, about, d.choice((200.0, 400.0)))]
    acts += [act(9, "budget never allows", -1, 120.0)] if d.random() < 0.4 else []
    return replace(scene, policy=policy, pods=d.choice((1, 2))), acts


def only_told_now(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """What was being treated is only told under a policy that changed; the fault is not cured."""
    place = _place(d, scene)
    scene = replace(scene, policy="drain, reboot, replace", pods=d.choice((0, 1)), concluder=False)
    changed = act(round(d.uniform(25, 60), 1), "policy", -1, "notify", d.choice((0.0, 5.0)))
    return scene, [_fault(d, 10, place), changed]


def a_long_life(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """One node has recovery after recovery, each with another fault: its record has much to remember."""
    place = _place(d, scene)
    scene = replace(scene, policy="drain, reboot, replace", pods=0, same_name=True)
    acts: list[Act] = []
    for i in range(d.randint(5, 9)):
        acts += [_fault(d, 10 + 150 * i, place, "reboot"), _fault(d, 12 + 150 * i, place, "reboot")]
        acts += [act(11 + 150 * i, "plugin fault", place, ("reboot",))]
    return scene, acts


def one_too_many(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A group makes one machine too many, and removes one of the two again."""
    scene = replace(scene, policy=d.choice(("replace at once", "drain, replace")), same_name=False)
    place = _place(d, scene)
    acts = [act(5, "one too many"), _fault(d, 10, place)]
    return scene, [*acts, *([_fault(d, d.uniform(60, 300), place)] if d.random() < 0.3 else [])]


def much_was_tried(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A reboot has not helped, the next step is throttled for many tries, and the fault goes by itself."""
    scene, place = replace(scene, policy="reboot, replace"), _place(d, scene)
    acts = [act(10, "flash", place, round(d.uniform(330, 430), 1))]
    acts += [act(at, "calls throttle", -1, 600.0) for at in (25, 220)]
    return scene, [*acts, *([act(200, "crash", place, 1, False, 15.0)] if d.random() < 0.3 else [])]


def a_blind_replacement(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """The page of the new node cannot be read, or its agent is gone or off."""
    scene, place = replace(scene, policy=d.choice(("replace at once", "drain, replace"))), _place(d, scene)
    what = d.choice(("new ones are blind", "new ones are blind", "no agent", "off"))
    more = act(9, what, -1, 700.0) if what.startswith("new") else act(50, what, place, 600.0)
    return scene, [_fault(d, 10, place), more]


PLOTS: tuple[Plot, ...] = (
    blind_nodes, a_new_life, a_sick_start, booted_and_restored, held_in_the_last_moment, a_group_without_room,
    another_budget, one_wrong_server, a_flash, told_only, ghosts, a_record_is_deleted, scaled_meanwhile,
    others_write_too, again_and_again, a_call_goes_wrong, off_in_the_middle, held_for_long, only_told_now,
    a_long_life, one_too_many, much_was_tried, a_blind_replacement,
)  # fmt: skip


# ---------------------------------------------------------------- plots that came later


def ghosts_alone(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """So many nodes were handed over, and their machines ended by a person, that they hold the brake if they
    count for ever. Then another one breaks."""
    scene = replace(scene, nodes=5, policy="a low brake, hand over", same_name=False, concluder=False)
    places = d.sample(range(5), 5)
    acts: list[Act] = []
    for i in range(5):
        acts += [_fault(d, 10 + 90 * i, places[i % 4]), act(50 + 90 * i, "machine lost", places[i % 4])]
    return scene, [*acts, _fault(d, 480, places[4])]


def _restored_and_anew(d: Dice, scene: Scene, slowest: tuple[float, ...]) -> tuple[Scene, list[Act]]:
    place = _place(d, scene)
    scene = replace(scene, policy="drain, reboot, replace", pods=d.choice((1, 2)), kernel=True)
    acts = [act(5, "budget never allows", -1, d.choice((50.0, 60.0, 70.0))), _fault(d, 10, place, "reboot")]
    at = d.uniform(90, 130)
    acts += [act(round(at, 1), "etcd restored", -1, d.choice((60.0, 80.0)), d.choice(slowest))]
    return scene, [*acts, act(round(at + 0.1, 1), "crash", place, 1, True, d.choice((1.0, 5.0)))]


def restored_and_anew(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """etcd is restored to a moment before a boot, the node's agent starts anew, and its kubelet is slow to say
    which boot it is."""
    return _restored_and_anew(d, scene, (30.0, 45.0))


def restored_for_long(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """The same, and the kubelet is silent for so long that its Node would not be Ready any more. An agent that
    can read its kernel knows all the same."""
    return _restored_and_anew(d, scene, (200.0,))


LATER_PLOTS: tuple[Plot, ...] = (ghosts_alone, restored_and_anew)
"""They have seeds of their own, so that what others make stays as it is."""
PROVING_PLOTS: tuple[Plot, ...] = (restored_for_long,)
"""Only the proof of the search has these. Others would find by them, again and again, what is known and open."""


# ---------------------------------------------------------------- sources beyond the page


def _source(d: Dice, scene: Scene, *names: str, policy: str = "") -> Scene:
    policy = policy or d.choice(
        ("drain, replace", "drain, reboot, replace", "reboot, replace", "drain, hold")
    )
    return replace(scene, sources=d.choice(names), policy=policy, kernel=True)


def an_old_condition(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A boot mends it, and who wrote the condition does not come up again for long."""
    place = _place(d, scene)
    scene = _source(d, scene, "EKS", "conditions", "npd, conditions", policy="drain, reboot, replace")
    what = ("eks fault",) if scene.sources == "EKS" else ("fault", d.choice(LOG_REASONS))
    acts = [act(10, what[0], place, *what[1:], ("reboot",))]
    acts += [act(round(d.uniform(11, 90), 1), "writer dies", place, d.choice((120.0, 700.0, 1300.0)))]
    acts += [_chosen(d, d.uniform(11, 60), "pods never go", place)] if d.random() < 0.3 else []
    return scene, [*acts, *([act(150, "lost pod", place, 1, False, 5.0)] if d.random() < 0.5 else [])]


def a_good_word_too_soon(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A detector starts anew while its fault is being dealt with, and writes that all is well before it looks."""
    place = _place(d, scene)
    scene = _source(d, scene, "conditions", "npd, conditions", "EKS")
    first = "eks fault" if scene.sources == "EKS" else d.choice(("fault", "plugin fault"))
    cause = (d.choice(LOG_REASONS), ()) if first == "fault" else ((),)
    acts = [act(10, first, place, *cause)]
    acts += [
        act(round(d.uniform(11, 90), 1), "writer starts anew", place) for _ in range(d.choice((1, 1, 2, 3)))
    ]
    return scene, [*acts, *([_chosen(d, 11, "pods never go", place)] if d.random() < 0.6 else [])]


def an_honest_plugin(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A plugin takes its fault back while the node waits, drains, or is on probation."""
    place = _place(d, scene)
    scene = _source(d, scene, "conditions", "npd, conditions")
    acts = [act(10, "flash", place, round(d.uniform(20, 400), 1))]
    acts += [_chosen(d, 11, "pods never go", place)] if d.random() < 0.6 else []
    befalls = ("writer dies", "conditions removed", "conditions unknown", "page away", "writer starts anew")
    return scene, [*acts, *(_chosen(d, d.uniform(11, 200), d.choice(befalls), place) for _ in range(2))]


def an_old_mark(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """A boot mends it, or does not, and the mark stays until a person takes it off."""
    place = _place(d, scene)
    scene = _source(d, scene, "konduktor")
    acts = [act(10, "marked", place, d.choice(((), ("reboot",))))]
    acts += [_chosen(d, d.uniform(20, 300), "mark taken off", place) for _ in range(d.choice((0, 1, 2)))]
    acts += [act(round(d.uniform(60, 300), 1), "boots", place, 5.0)] if d.random() < 0.5 else []
    acts += [act(round(d.uniform(60, 300), 1), "lost pod", place, 1, False, 5.0)] if d.random() < 0.5 else []
    return scene, [*acts, *([act(400, "marked", place, ())] if d.random() < 0.3 else [])]


def blind_and_marked(d: Dice, scene: Scene) -> tuple[Scene, list[Act]]:
    """One source cannot be read, and the other states a fault."""
    place = _place(d, scene)
    scene = _source(d, scene, "EKS", "konduktor", "npd, conditions")
    what = {"EKS": "eks fault", "konduktor": "marked"}.get(scene.sources, "plugin fault")
    acts = [
        act(10, "page away", place, d.choice((120.0, 700.0))),
        act(round(d.uniform(11, 90), 1), what, place, ()),
    ]
    return scene, [
        *acts,
        *([_chosen(d, d.uniform(11, 90), "conditions unknown", place)] if d.random() < 0.4 else []),
    ]


SOURCE_PLOTS: tuple[Plot, ...] = (
    an_old_condition, a_good_word_too_soon, an_honest_plugin, an_old_mark, blind_and_marked,
)  # fmt: skip
"""Not among the others, which a seed draws from."""
