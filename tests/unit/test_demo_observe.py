"""The demo with recovery off: each promise is broken once, and seen to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from recovery_demo import report, run
from recovery_demo.ledger import Recovery
from recovery_demo.observe_story import Watched, writable
from recovery_demo.seen import EVENTS, REPORTS, Seen

NODE, DMA = "ip-10-0-1-5", "NeuronHasError_DMA_ERROR"
SENTENCE = f"would drain {NODE}; then replace: {DMA} (rule neuron-hardware)"


@dataclass
class Ending:
    """How the story ended: well, until a test spoils it."""

    ledger: Watched = field(default_factory=Watched)
    watched: Recovery = field(default_factory=lambda: Recovery(NODE, DMA, "i-1", sentence=SENTENCE))
    metrics: dict[str, float] = field(default_factory=lambda: {DMA: 1, "RecoveryAction(drain, observed)": 1})
    written: dict[str, int] = field(default_factory=lambda: {"noderecoveries": 0, "leases": 0})
    changed: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=lambda: [f"{NODE}  4s ago  would drain {NODE}; then replace"])
    drilled: list[str] = field(
        default_factory=lambda: ["node: would drain node; then replace: HBM (a drill)"]
    )
    replicas: int = 0

    def broken(self) -> list[str]:
        checks = report.only_said(
            self.ledger,
            self.watched,
            self.metrics,
            self.written,
            self.changed,
            self.reported,
            self.drilled,
            self.replicas,
        )
        return [check.promise for check in checks if not check.kept]


def test_where_nothing_was_done_every_promise_is_kept() -> None:
    assert Ending().broken() == []


@pytest.mark.parametrize(
    ("spoil", "promise"),
    [
        (lambda e: setattr(e.watched, "sentence", "would have replaced it"), "an Event says"),
        (lambda e: e.reported.clear(), "node-recovery report shows it"),
        (
            lambda e: setattr(e, "drilled", ["node: would drain node; then replace: HBM"]),
            "node-recovery explain says",
        ),
        (lambda e: e.changed.append(NODE), "no Node was cordoned"),
        (lambda e: e.ledger.touched.add(NODE), "no Node was cordoned"),
        (lambda e: e.written.update(leases=1), "no record was created"),
        (lambda e: setattr(e, "replicas", 8), "no pod was evicted"),
        (lambda e: e.ledger.calls.append(("SetInstanceHealth", "i-1")), "no call that changes anything"),
        (lambda e: e.metrics.pop(DMA), "CloudWatch has the fault"),
        (lambda e: e.metrics.update({"RecoveryAction(drain, started)": 1}), "CloudWatch has the fault"),
    ],
)
def test_a_promise_that_is_broken_is_seen(spoil: Callable[[Ending], Any], promise: str) -> None:
    ending = Ending()
    spoil(ending)
    (found,) = ending.broken()
    assert found.startswith(promise)


def test_the_ledger_notes_when_it_was_said_and_when_it_was_kept() -> None:
    ledger = Watched()
    ledger.expect(NODE, DMA, 1.0)
    event = {"reason": "WouldRecover", "message": SENTENCE, "involvedObject": {"name": NODE}}
    ledger.hear(Seen(2.0, EVENTS, event))
    ledger.hear(
        Seen(3.0, REPORTS, {"metadata": {"name": "fleet"}, "status": {"sightings": [{"node": NODE}]}})
    )
    found = ledger.recoveries[NODE]
    assert (found.times, found.sentence) == ({"fault": 1.0, "would": 2.0, "reported": 3.0}, SENTENCE)


def test_what_a_kubelet_writes_is_no_change_and_what_an_agent_could_is() -> None:
    node: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {}, "status": {"conditions": []}}
    before = writable(node)
    node["status"]["conditions"].append({"type": "Ready"})
    assert writable(node) == before
    node["metadata"]["annotations"] = {"noderecovery.dev/cordoned-by": "node-recovery"}
    assert writable(node) != before


@pytest.mark.parametrize(("cloud", "mode"), [("azure", "sidecar"), ("aws", "fleet")])
def test_it_is_of_sidecars_on_aws_alone(cloud: str, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.run(fast=True, keep=False, cloud=cloud, mode=mode, observe=True) == 2
    assert "OBSERVE=1 with CLOUD=aws, and without MODE" in capsys.readouterr().err
