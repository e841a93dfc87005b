"""Whose token lets its bearer read what an agent thinks of its node."""

from __future__ import annotations

import threading
import time

import pytest

from recovery.errors import ApiError
from recovery.report import asked_by
from recovery.report.asked_by import AskedBy

ACCOUNT = "system:serviceaccount:guards:default"


class Reviews:
    """What the API server says whose tokens are, and what it was asked."""

    def __init__(self, user: str = ACCOUNT) -> None:
        self.user = user
        self.asked: list[tuple[str, str]] = []
        self.error: ApiError | None = None
        self.wait = threading.Event()
        self.wait.set()

    def __call__(self, token: str, audience: str) -> str:
        self.asked.append((token, audience))
        assert self.wait.wait(5)
        if self.error is not None:
            raise self.error
        return self.user


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_by, "PAUSE", 0.0)
    monkeypatch.setattr(asked_by, "TURN", 0.05)


def test_a_token_made_for_this_agent_in_its_own_namespace_is_answered() -> None:
    reviews = Reviews()
    assert AskedBy(reviews, "guards", "n1").refused("t") is None
    assert reviews.asked == [("t", "noderecovery.dev/explain/n1")]


def test_who_looks_after_many_nodes_is_asked_about_each_by_a_token_for_that_one() -> None:
    reviews = Reviews()
    assert AskedBy(reviews, "guards", "").refused("t", "n7") is None
    assert reviews.asked == [("t", "noderecovery.dev/explain/n7")]


def test_who_looks_after_one_node_answers_for_no_other() -> None:
    reviews = Reviews()
    AskedBy(reviews, "guards", "n1").refused("t", "n7")
    assert reviews.asked == [("t", "noderecovery.dev/explain/n1")]


@pytest.mark.parametrize(
    "user",
    [
        "",
        "system:anonymous",
        "system:serviceaccount:tenant:default",
        "system:serviceaccount:guards:builder",
        "system:serviceaccount:guards:default2",
    ],
)
def test_a_token_of_anybody_else_is_refused_and_not_told_whose_it_was(user: str) -> None:
    assert AskedBy(Reviews(user), "guards", "n1").refused("t") == (
        f"this token is not one of {ACCOUNT} for noderecovery.dev/explain/n1"
    )


def test_without_a_token_the_api_server_is_not_asked() -> None:
    reviews = Reviews()
    assert AskedBy(reviews, "guards", "n1").refused("") is not None
    assert reviews.asked == []


def test_while_the_api_server_is_away_nobody_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    reviews = Reviews()
    reviews.error = ApiError("POST /tokenreviews: 403 no", 403)
    why = "whose token this is cannot be found out: the agent's log says why"
    assert AskedBy(reviews, "guards", "n1").refused("t") == why
    assert [r.getMessage() for r in caplog.records] == [
        "somebody asks for explain, and it cannot be found out who: POST /tokenreviews: 403 no"
    ]


def test_the_api_server_is_asked_for_one_token_at_a_time() -> None:
    reviews = Reviews()
    reviews.wait.clear()
    door = AskedBy(reviews, "guards", "n1")
    first: list[str | None] = []
    one = threading.Thread(target=lambda: first.append(door.refused("one")))
    one.start()
    end = time.monotonic() + 5
    while not reviews.asked and time.monotonic() < end:
        pass
    assert door.refused("two") == "others are asking just now; ask again"
    reviews.wait.set()
    one.join()
    assert (first, len(reviews.asked)) == ([None], 1)
    assert door.refused("two") is None
