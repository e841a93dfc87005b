"""Our marks come on and off; others' stay as they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recovery.decide.marks import marked, out_of_service, out_of_service_patch, unmark_patch
from recovery.model import CORDONED_BY, OUT_OF_SERVICE, OUT_OF_SERVICE_BY, OWNER_OF_MARKS, TAINT
from tests.builders.nodes import node

NODE = node(taints=(("gpu", "yes", "NoSchedule"),))
DOWN = (OUT_OF_SERVICE, "nodeshutdown", "NoExecute")
OURS = replace(NODE, taints=(*NODE.taints, DOWN), annotations={OUT_OF_SERVICE_BY: OWNER_OF_MARKS})
THEIRS = replace(NODE, taints=(*NODE.taints, DOWN))


def taints(patch: dict[str, Any] | None) -> list[str]:
    assert patch is not None
    assert patch["metadata"]["resourceVersion"] == "7"
    return [taint["key"] for taint in patch["spec"]["taints"] or []]


def test_the_out_of_service_taint_is_put_on_beside_others_with_our_name_on_it() -> None:
    patch = out_of_service_patch(NODE, on=True)
    assert taints(patch) == ["gpu", OUT_OF_SERVICE]
    assert patch is not None
    assert patch["metadata"]["annotations"] == {OUT_OF_SERVICE_BY: OWNER_OF_MARKS}
    assert patch["spec"]["taints"][1] == {
        "key": OUT_OF_SERVICE,
        "value": "nodeshutdown",
        "effect": "NoExecute",
    }


def test_where_it_is_there_already_nothing_is_put_on() -> None:
    assert out_of_service_patch(THEIRS, on=True) is None
    assert out_of_service_patch(OURS, on=True) is None


def test_ours_comes_off_and_a_persons_does_not() -> None:
    assert (out_of_service(OURS), out_of_service(THEIRS)) == (True, False)
    assert taints(out_of_service_patch(OURS, on=False)) == ["gpu"]
    assert out_of_service_patch(THEIRS, on=False) is None


def test_with_all_marks_it_comes_off_too() -> None:
    cordoned = replace(
        OURS,
        unschedulable=True,
        taints=(*OURS.taints, (TAINT, "", "NoSchedule")),
        annotations={**OURS.annotations, CORDONED_BY: OWNER_OF_MARKS},
    )
    patch = unmark_patch(cordoned)
    assert taints(patch) == ["gpu"]
    assert patch is not None
    assert patch["spec"]["unschedulable"] is None
    assert patch["metadata"]["annotations"] == {CORDONED_BY: None, OUT_OF_SERVICE_BY: None}


def test_a_persons_stays_where_ours_come_off() -> None:
    theirs = replace(THEIRS, taints=(*THEIRS.taints, (TAINT, "", "NoSchedule")))
    assert taints(unmark_patch(theirs)) == ["gpu", OUT_OF_SERVICE]


def test_a_node_with_our_out_of_service_taint_alone_is_marked() -> None:
    assert marked(OURS)
    assert not marked(THEIRS)
