"""Lists are read page by page, however large somebody has made the objects in them."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from recovery_testkit.clock import FakeClock

from recovery.errors import Expired, TooLong, Undecodable
from recovery.kube.cluster import NODE_PAGE, PAGE, Cluster
from recovery.kube.transport import MAX_PAGE, Response
from recovery.model import NodeView
from recovery.store.record import Records
from recovery.store.record_codec import encode
from tests.builders.records import record


class Shelf:
    """Answers lists as the API server does, and gives a page up that is too long to be read."""

    def __init__(self, sizes: list[int], make: Callable[[int, int], dict[str, Any]]) -> None:
        self._sizes, self._make = sizes, make
        self.limits: list[int] = []

    def request(self, method: str, path: str, *, query: dict[str, str], **_: Any) -> Response:
        limit, at = int(query["limit"]), int(query.get("continue") or 0)
        self.limits.append(limit)
        page = self._sizes[at : at + limit]
        if limit > 1 and sum(page) > MAX_PAGE:
            raise TooLong(f"the API server's answer is longer than {MAX_PAGE} bytes")
        items = [self._make(at + i, size) for i, size in enumerate(page)]
        left = at + limit < len(self._sizes)
        return Response(200, {}, {"items": items, "metadata": {"continue": str(at + limit) if left else ""}})


def cluster(shelf: Shelf) -> Cluster:
    return Cluster(shelf, FakeClock(), "default")


def blown_up(number: int, size: int) -> dict[str, Any]:
    """A record that takes ``size`` bytes as JSON."""
    made = json.loads(json.dumps(encode(record())))
    made["metadata"]["name"] = f"node-{number}"
    made["status"]["sentence"] = "x" * size
    return dict(made)


def names(found: Any) -> list[str]:
    return [item["metadata"]["name"] for item in found]


def test_a_list_of_common_size_is_read_by_whole_pages() -> None:
    shelf = Shelf([4096] * 250, blown_up)
    assert len(names(cluster(shelf).list_records())) == 250
    assert shelf.limits == [PAGE, PAGE, PAGE]


def test_a_page_that_is_too_long_is_asked_for_again_in_smaller_ones_and_nothing_is_left_out() -> None:
    sizes = [4096] * 90 + [1_360_000] * 30 + [4096] * 200
    shelf = Shelf(sizes, blown_up)
    assert names(cluster(shelf).list_records()) == [f"node-{i}" for i in range(len(sizes))]
    assert min(shelf.limits) == 1
    assert len(shelf.limits) < len(sizes) + 10


def test_one_object_that_is_too_long_even_alone_is_an_error_and_not_asked_for_for_ever() -> None:
    class Refusing(Shelf):
        def request(self, method: str, path: str, *, query: dict[str, str], **_: Any) -> Response:
            self.limits.append(int(query["limit"]))
            raise TooLong("the API server's answer is longer than it may be")

    shelf = Refusing([], blown_up)
    with pytest.raises(TooLong):
        names(cluster(shelf).list_records())
    assert shelf.limits == [100, 50, 25, 12, 6, 3, 1]


def a_node(number: int, _: int) -> dict[str, Any]:
    return {"metadata": {"name": f"node-{number}", "uid": f"u-{number}", "resourceVersion": "7"}}


def test_the_next_page_of_nodes_is_on_its_way_while_those_of_this_one_are_looked_at() -> None:
    asked = threading.Event()

    class Telling(Shelf):
        def request(self, method: str, path: str, *, query: dict[str, str], **more: Any) -> Response:
            answer = super().request(method, path, query=query, **more)
            if len(self.limits) == 2:
                asked.set()
            return answer

    shelf, found = Telling([0] * (2 * NODE_PAGE + 1), a_node), list[str]()

    def look_at(node: NodeView) -> None:
        assert asked.wait(10), "the second page is asked for only once the first one is done with"
        found.append(node.name)

    cluster(shelf).nodes_of("", look_at)
    assert found == [f"node-{i}" for i in range(2 * NODE_PAGE + 1)]
    assert shelf.limits == [NODE_PAGE] * 3


def test_an_error_of_a_page_that_was_asked_for_ahead_is_that_of_the_list() -> None:
    class Refusing(Shelf):
        def request(self, method: str, path: str, *, query: dict[str, str], **more: Any) -> Response:
            if "continue" in query:
                raise Expired("the list is too old", 410)
            return super().request(method, path, query=query, **more)

    found: list[NodeView] = []
    with pytest.raises(Expired):
        cluster(Refusing([0] * 300, a_node)).nodes_of("", found.append)
    assert len(found) == NODE_PAGE


def test_records_that_somebody_has_blown_up_take_the_memory_of_one_of_them() -> None:
    """Thirty of 1.36 MB made every list longer than its bound, and twenty took an agent's memory."""
    shelf = Shelf([1_360_000] * 30, blown_up)
    records = Records(cluster(shelf))
    tracemalloc.start()
    try:
        found = list(records.all())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [type(x) for x in found] == [Undecodable] * 30
    assert peak < 8 * 1024 * 1024
