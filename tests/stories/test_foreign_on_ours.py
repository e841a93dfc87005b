"""What others put on our objects stays: gate, record and Lease are PUT as a whole (law 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from recovery_testkit.stage import Stage

from recovery.errors import Conflict
from recovery.model import Phase
from recovery.store.codec import Unchanged
from recovery.store.lease import lease_name
from recovery.store.record import Records
from tests.stories.scenery import GATE, RECORDS
from tests.stories.scenes import MERGE, PERSON, cast, phase, stubborn_pod

RECORD = f"{RECORDS}/node-0"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{lease_name('node-0')}"
FOREIGN: dict[str, Any] = {
    "labels": {"team": "ml"},
    "annotations": {"argocd.argoproj.io/tracking-id": "node-recovery"},
    "finalizers": ["example.com/keep"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-1"}],
}


OURS = {"noderecovery.dev/phase": "recovering"}


def put_on(s: Stage, path: str, metadata: dict[str, Any]) -> None:
    answer = s.store.request(
        "PATCH", path, body={"metadata": metadata}, content_type=MERGE, user_agent=PERSON
    )
    assert answer.status == 200, answer.body


def there(s: Stage, path: str) -> dict[str, Any]:
    metadata = s.store.request("GET", path).body["metadata"]
    return {key: metadata.get(key) for key in FOREIGN}


def writes(s: Stage, path: str, since: int) -> int:
    return sum(1 for w in s.store.history[since:] if w.path == path and w.actor != PERSON)


def in_the_middle() -> Stage:
    """node-0 is drained, and a pod keeps it."""
    s = cast()
    stubborn_pod(s)
    s.fault("node-0")
    s.run(5)
    assert phase(s) is Phase.RECOVERING
    return s


@pytest.mark.parametrize("path", [GATE, RECORD, LEASE], ids=["gate", "record", "Lease"])
@pytest.mark.parametrize("what", FOREIGN)
def test_what_somebody_puts_on_our_object_in_the_middle_of_a_recovery_stays(path: str, what: str) -> None:
    s = in_the_middle()
    put_on(s, path, {what: FOREIGN[what]})
    since = len(s.store.history)
    s.replace_machine("node-0", "m-0", "node-9", "m-9")
    s.store.request("DELETE", "/api/v1/namespaces/default/pods/train", body={"gracePeriodSeconds": 0})
    s.agent("node-9")
    s.run(400, step=1)
    assert writes(s, path, since) > 0, "it was not written, which shows nothing"
    found = there(s, path)[what]
    if isinstance(found, dict):  # beside what is ours
        found = {key: found.get(key) for key in FOREIGN[what]}
    assert found == FOREIGN[what]


def test_what_somebody_takes_off_again_does_not_come_back() -> None:
    s = in_the_middle()
    put_on(s, RECORD, {"labels": {"team": "ml"}})
    s.run(3)
    put_on(s, RECORD, {"labels": {"team": None}})
    since = len(s.store.history)
    s.store.request("DELETE", "/api/v1/namespaces/default/pods/train", body={"gracePeriodSeconds": 0})
    s.run(10)
    assert writes(s, RECORD, since) > 0
    assert there(s, RECORD)["labels"] == OURS


def test_a_record_whose_metadata_is_too_large_to_remember_is_read_again_before_it_is_written() -> None:
    s = in_the_middle()
    large = {"huge": "x" * 100_000}
    put_on(s, RECORD, {"annotations": large})
    s.store.request("DELETE", "/api/v1/namespaces/default/pods/train", body={"gracePeriodSeconds": 0})
    since = len(s.store.history)
    s.run(10)
    assert writes(s, RECORD, since) > 0
    assert there(s, RECORD)["annotations"] == large


def test_objects_are_remembered_up_to_a_number_and_a_size() -> None:
    """So that metadata of others costs an agent no more than a few MiB."""

    def named(name: str, annotation: str = "") -> dict[str, Any]:
        return {"metadata": {"name": name, "resourceVersion": "1", "annotations": {"a": annotation}}}

    decode: Callable[[Any], object] = dict
    most = 100
    kept = Unchanged(decode, most)
    for i in range(3 * most):
        kept(named(f"node-{i}"))
    assert sum(kept.last(f"node-{i}", "1") is not None for i in range(3 * most)) <= most
    kept(named("large", "x" * 100_000))
    assert kept.last("large", "1") is None


def test_an_object_that_comes_again_and_again_is_compared_word_by_word_once() -> None:
    """Those that count as sick are gone through before each start: of a crowd, this took the most time."""
    compared: list[object] = []

    class Status(dict[str, Any]):
        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return super().__eq__(other)

        __hash__ = None  # type: ignore[assignment]

    def obj() -> dict[str, Any]:
        return {"metadata": {"name": "node-0", "resourceVersion": "1"}, "status": Status(phase="waiting")}

    decode: Callable[[Any], object] = dict
    kept = Unchanged(decode, 10)
    decoded, watched = kept(obj()), obj()
    for _ in range(100):
        assert kept(watched) is decoded
    assert len(compared) == 1


def test_a_memory_that_is_full_forgets_nothing_for_a_new_version_of_what_it_knows() -> None:
    decode: Callable[[Any], object] = dict
    kept = Unchanged(decode, 10)
    for i in range(10):
        kept({"metadata": {"name": f"node-{i}", "resourceVersion": "1"}})
    kept({"metadata": {"name": "node-0", "resourceVersion": "2"}})
    assert all(kept.last(f"node-{i}", "1") is not None for i in range(1, 10))


def test_a_record_that_changed_meanwhile_is_not_written_with_what_it_had_then() -> None:
    s = in_the_middle()
    cluster = s.actors["agent of node-0"].agent._w.cluster  # type: ignore[union-attr]
    records = Records(cluster)
    read = records.read("node-0")
    assert read is not None
    put_on(s, RECORD, {"labels": {"team": "ml"}})
    with pytest.raises(Conflict):
        Records(cluster).write(read)
    assert there(s, RECORD)["labels"] == {**OURS, "team": "ml"}
