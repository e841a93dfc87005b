"""Tells a webhook what people want to know: Slack's format, or JSON (docs/webhook.md).

The URL is a secret: with Slack, who knows it may post. It is read from its file for each message, since it is
rotated, and no log and no error names any part of it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult

from recovery.decide.decision import EventReason
from recovery.errors import Refused, Retry
from recovery.report.notice import MOST_WORDS, Notice
from recovery.report.post import PAUSE, Answer, post, usable
from recovery.units import moment
from recovery.visible import visible

log = logging.getLogger(__name__)

VERSION = 1
"""The version of the JSON body. It changes when a field gets another meaning or is removed, not when one is
added."""
LONGEST_URL = 4096
LINES = 20
"""The most notices in one message to Slack: those that came while the last one was being sent."""
SLACK_PAUSE = 1.0
"""Seconds between two messages: https://docs.slack.dev/apis/web-api/rate-limits (posting messages)."""
TRIES = 3
"""While the receiver does not answer, what comes after a message that failed is tried once."""
LONGEST_PAUSE = 30.0
"""Seconds: the longest ``Retry-After`` that is obeyed."""
STANDS = timedelta(minutes=10)
"""A notice that comes again sooner than this is a repetition: the Event of a hand-over comes each minute."""
AGAIN = timedelta(hours=24)
NOT_TAKEN, LONGEST, MOST_DOUBLED = timedelta(seconds=30), timedelta(minutes=15), 6
"""The first pause before a message is sent again that its receiver did not take; the longest; and how many
times it doubles."""
MOST_REMEMBERED = 10_000
TURNS = frozenset(
    {
        EventReason.FAULT_SEEN,
        EventReason.CONFIRMED,
        EventReason.RELEASED,
        EventReason.RECOVERED,
        EventReason.WITHDRAWN,
        EventReason.SUPERSEDED,
    }
)
"""What is told of a node after one of these is new. Not after one with a key: that a kernel event was counted
is no change of the node."""


class Webhook:
    """``events``: patterns of ``REASON`` or ``REASON:KEY``. ``url_file``: a file with the URL."""

    name = "webhook"

    def __init__(
        self,
        url_file: str,
        slack: bool,
        events: Sequence[str],
        cluster: str,
        ca_file: str = "",
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most = LINES if slack else 1
        self._url_file = url_file
        self._slack = slack
        self._events = tuple(events)
        self._cluster = cluster
        self._ca_file = ca_file
        self._sleep = sleep
        self._monotonic = monotonic
        self._told: dict[tuple[str, str, str], tuple[datetime, datetime]] = {}
        self._not_taken: dict[tuple[str, str, str], int] = {}
        self._lock = threading.Lock()
        self._failing = False
        self._next = 0.0

    # ------------------------------------------------------------ which notices

    def wants(self, notice: Notice) -> bool:
        """Those that WEBHOOK_EVENTS names, each once, and again each day while it stands."""
        with self._lock:
            if notice.reason in TURNS and not notice.key:
                self._told = {key: when for key, when in self._told.items() if key[0] != notice.node}
            names = (notice.reason, f"{notice.reason}:{notice.kind}")
            if not any(fnmatchcase(each, pattern) for each in names for pattern in self._events):
                return False
            return self._is_new(notice)

    def _is_new(self, n: Notice) -> bool:
        key = _told_as(n)
        told, seen = self._told.pop(key, (None, None))
        times = self._not_taken.get(key, 0)
        again = min(NOT_TAKEN * 2 ** (times - 1), LONGEST) if times else AGAIN
        new = told is None or seen is None or n.at - seen >= STANDS or n.at - told >= again
        self._told[key] = (n.at if new or told is None else told, n.at)
        if len(self._told) > MOST_REMEMBERED:
            self._told.pop(next(iter(self._told)))
        return new

    # ------------------------------------------------------------ telling them

    def tell(self, notices: Sequence[Notice]) -> None:
        """Send one message, in a few tries. Raises ``Retry`` or ``Refused`` when none of them succeeded.

        Then it is sent again when its Event is repeated, as that of a hand-over is each minute (law 6). The
        pauses grow, since a receiver that only answers too late may have taken it each time.
        """
        keys = {_told_as(n) for n in notices}
        try:
            self._send(notices)
        except BaseException:
            with self._lock:
                times = {key: min(self._not_taken.get(key, 0) + 1, MOST_DOUBLED) for key in keys}
                self._not_taken = {k: x for k, x in self._not_taken.items() if k in self._told} | times
            raise
        with self._lock:
            for key in keys:
                self._not_taken.pop(key, None)

    def _send(self, notices: Sequence[Notice]) -> None:
        body = json.dumps(
            slack_body(notices, self._cluster) if self._slack else body_of(notices[0], self._cluster)
        )
        headers = {"Content-Type": "application/json", "User-Agent": "node-recovery"}
        tries = 1 if self._failing else TRIES
        self._failing = True
        for left in reversed(range(tries)):
            url = self._url()
            self._keep_pace()
            try:
                answer = post(url, headers, body.encode(), self._ca_file)
                self._judge(answer, url)
                self._failing = False
                return
            except Retry as error:
                if not left:
                    raise
                self._sleep(min(error.after.total_seconds(), LONGEST_PAUSE))

    def problem(self) -> str:
        """Why the file is of no use now; "" where it is."""
        try:
            self._url()
        except Refused as error:
            return error.reason
        return ""

    def _url(self) -> SplitResult:
        try:
            with Path(self._url_file).open("rb") as file:
                text = file.read(LONGEST_URL).decode("ascii").strip()
        except (OSError, ValueError) as error:
            raise Refused(f"WEBHOOK_URL_FILE cannot be read: {type(error).__name__}") from None
        try:
            return usable(text)
        except ValueError as error:
            raise Refused(f"WEBHOOK_URL_FILE: the file holds no URL to be used; expected {error}") from None

    def _keep_pace(self) -> None:
        if not self._slack:
            return
        if (left := self._next - self._monotonic()) > 0:
            self._sleep(left)
        self._next = self._monotonic() + SLACK_PAUSE

    def _judge(self, answer: Answer, url: SplitResult) -> None:
        """Raises ``Retry`` for what may succeed when it is sent again, ``Refused`` for what will not."""
        if 200 <= answer.status < 300:
            return
        if 300 <= answer.status < 400:
            raise Refused(f"the receiver redirects ({answer.status}), and the URL is not given to another")
        why = f"the receiver answers {answer.status}"
        if answer.status in (408, 425, 429) or answer.status >= 500:
            raise Retry(why, PAUSE if answer.retry_after is None else timedelta(seconds=answer.retry_after))
        raise Refused(f"{why}{self._words(answer, url)}")

    def _words(self, answer: Answer, url: SplitResult) -> str:
        """Slack's own word for an error, such as no_service. Nothing else: many repeat the URL's path."""
        word = answer.body.decode("ascii", "replace")
        known = self._slack and re.fullmatch("[a-z_]{3,40}", word) and word not in url.geturl()
        return f": {word}" if known else ""


def _told_as(n: Notice) -> tuple[str, str, str]:
    """The same for two notices of which the second only repeats the first."""
    what = "" if n.reason == EventReason.HANDED_OVER else n.key or n.sentence
    return n.node, n.reason, what


# ---------------------------------------------------------------- the two formats


def body_of(n: Notice, cluster: str) -> dict[str, Any]:
    """One notice as JSON. The same notice has the same ``id``: a message may arrive twice."""
    at = moment(n.at)
    told = {
        "cluster": cluster,
        "node": n.node,
        "reason": n.reason,
        "warning": n.warning,
        "sentence": visible(n.sentence)[:MOST_WORDS],
        "at": at,
        "fault": n.about.fault,
        "rule": n.about.rule,
        "step": n.about.step,
        "key": n.kind,
    }
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    return {"version": VERSION, "id": digest[:32], **told}


def slack_body(notices: Sequence[Notice], cluster: str) -> dict[str, Any]:
    """A line for each notice. A node that says a link gets no preview of it."""
    return {
        "text": "\n".join(_line(n, cluster) for n in notices),
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _line(n: Notice, cluster: str) -> str:
    sentence = visible(n.sentence)[:MOST_WORDS]
    return f"*{_plain(n.reason)}* {_plain(n.node)} ({_plain(cluster)}): {_plain(sentence)}"


def _plain(text: str) -> str:
    """``text`` with nothing in it that calls anybody: https://docs.slack.dev/messaging/formatting-message-text

    Slack obeys ``<!channel>``. Others that take its format obey a plain ``@channel``, hence a space of no
    width behind each @.
    """
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", "@\u200b")
