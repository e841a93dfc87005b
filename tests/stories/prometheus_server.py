"""A Prometheus server in this process, over real HTTP: instant queries of the shapes that the ready-made rows
have.

It answers as the real one does: the last sample of each series, unless it is older than the lookback, under
the moment of the query; ``timestamp()`` gives the samples' own time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from recovery_testkit.clock import FakeClock

from recovery.signals.prometheus_http import PrometheusClient
from tests.builders.http_server import AnsweringServer, answering

Labels = Mapping[str, str]
_PICK: Mapping[str, Callable[[list[str]], str]] = {
    "min": lambda values: min(values, key=float),
    "max": lambda values: max(values, key=float),
    "count": lambda values: str(len(values)),
}
_TIME = re.compile(r"timestamp\((.*)\)")
_BY = re.compile(r"(min|max|count) by \(([^()]*)\) \((.*)\)")
_SELECTOR = re.compile(r"(\w+)(?:\{(.*)\})?")
_EQUAL = re.compile(r'(\w+)="([^"]*)"')


class Server(AnsweringServer):
    """``samples``: the last sample of each series, (metric, labels) -> (value, when), by the stage's clock.

    ``more``: fields that are sent beside the data.
    ``scrapes``: whether time makes new samples of the same values.
    """

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], tuple[str, float]] = {}
        self.more: dict[str, Any] = {}
        self.scrapes = True

    def put(self, metric: str, value: float | str, *, ago: float = 0.0, **labels: str) -> None:
        self.samples[metric, frozenset(labels.items())] = (str(value), self._now() - ago)

    def drop(self, metric: str, **labels: str) -> None:
        for name, found in list(self.samples):
            if name == metric and frozenset(labels.items()) <= found:
                del self.samples[name, found]

    def client(self, **more: Any) -> PrometheusClient:
        return PrometheusClient(self.url, **more)

    def _now(self) -> float:
        return self.clock.true_time().timestamp()

    def respond(self, path: str, asked: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, bytes]:
        at, lookback = float(asked.get("time", self._now())), float(asked["lookback_delta"].rstrip("s"))
        result = [
            {"metric": dict(labels), "value": [at, value]}
            for labels, value in self._evaluate(asked["query"], at, lookback)
        ]
        data = {"resultType": "vector", "result": result}
        return 200, json.dumps({"status": "success", "data": data, **self.more}).encode()

    def _evaluate(self, query: str, at: float, lookback: float) -> list[tuple[dict[str, str], str]]:
        if found := _BY.fullmatch(query):
            by = [label.strip() for label in found[2].split(",")]
            groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
            for labels, value in self._evaluate(found[3], at, lookback):
                groups.setdefault(tuple((k, labels[k]) for k in by if k in labels), []).append(value)
            return [(dict(group), _PICK[found[1]](values)) for group, values in groups.items()]
        if found := _TIME.fullmatch(query):
            return [(labels, str(when)) for labels, _, when in self._select(found[1], at, lookback)]
        return [(labels, value) for labels, value, _ in self._select(query, at, lookback, named=True)]

    def _select(
        self, query: str, at: float, lookback: float, named: bool = False
    ) -> Iterator[tuple[dict[str, str], str, float]]:
        found = _SELECTOR.fullmatch(query)
        assert found is not None, query
        wanted = dict(_EQUAL.findall(found[2] or ""))
        for (metric, labels), (value, when) in self.samples.items():
            stamp = at - (at - when) % 15 if self.scrapes else when
            if metric == found[1] and wanted.items() <= labels and at - stamp <= lookback:
                name = {"__name__": metric} if named else {}
                yield {**name, **dict(labels)}, value, stamp


@contextmanager
def serving(clock: FakeClock) -> Iterator[Server]:
    """A server that answers until the end of the block."""
    made = Server(clock)
    with answering(made):
        yield made
