"""Which pods a drain waits for, asks for and tells of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from making import NOW, SECOND

from recovery.drain import remaining, stays, to_evict, told
from recovery.model import PodView

TRAIN = PodView("default", "train", "uid-1", "Running", "ReplicaSet")
LEAVING = replace(TRAIN, name="leaving", deletion_timestamp=NOW + SECOND)
PAST = replace(TRAIN, name="past", deletion_timestamp=NOW - SECOND)
PODS: dict[str, tuple[PodView, bool]] = {
    "running": (TRAIN, False),
    "pending": (replace(TRAIN, phase="Pending"), False),
    "without an owner": (replace(TRAIN, owner_kind=""), False),
    "of a job": (replace(TRAIN, owner_kind="Job"), False),
    "of a stateful set": (replace(TRAIN, owner_kind="StatefulSet"), False),
    "of a daemon set": (replace(TRAIN, owner_kind="DaemonSet"), True),
    "mirror": (replace(TRAIN, mirror=True, owner_kind="Node"), True),
    "succeeded": (replace(TRAIN, phase="Succeeded"), True),
    "failed": (replace(TRAIN, phase="Failed"), True),
    "unknown": (replace(TRAIN, phase="Unknown"), False),
}


@pytest.mark.parametrize("row", PODS)
def test_daemon_set_mirror_and_finished_pods_stay_and_others_leave(row: str) -> None:
    pod, left_alone = PODS[row]
    assert stays(pod) is left_alone
    assert bool(remaining([pod], NOW)) is not left_alone


def test_an_evicted_pod_past_its_own_grace_blocks_no_longer() -> None:
    assert remaining([LEAVING, PAST], NOW) == (LEAVING,)


def test_a_pod_on_its_way_out_is_not_asked_for_again() -> None:
    assert to_evict([TRAIN, LEAVING], {}) == (TRAIN,)


def test_a_pod_that_was_refused_a_moment_ago_is_not_asked_for_again() -> None:
    assert to_evict([TRAIN], {"default/train": "not now"}) == ()


@pytest.mark.parametrize(
    ("left", "refused", "sentence"),
    [
        ((), {}, "0 pods left"),
        ((TRAIN,), {}, "1 pod left"),
        ((TRAIN, LEAVING), {}, "2 pods left; default/leaving is terminating"),
        (
            (LEAVING, TRAIN),
            {"default/train": "budget web allows none"},
            "2 pods left; default/train may not go yet: budget web allows none",
        ),
        ((TRAIN,), {"default/other": "budget web allows none"}, "1 pod left"),
    ],
)
def test_the_state_of_a_drain_names_a_pod_and_what_keeps_it(
    left: tuple[PodView, ...], refused: dict[str, str], sentence: str
) -> None:
    assert told(left, refused) == sentence
