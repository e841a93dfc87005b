"""The story of observe mode: recovery is off, a node breaks, what would be done is said, and nothing is."""

from __future__ import annotations

import copy

from recovery_demo import report
from recovery_demo.ledger import Ledger, Recovery
from recovery_demo.sandbox import Sandbox
from recovery_demo.screen import Screen
from recovery_demo.seen import GATES, LEASES, NODES, RECORDS, REPORTS, Json, Seen
from recovery_demo.story import DMA, HBM, TOLD_WITHIN, Story

DRILL = HBM[0]
"""The reason of the drill. Nobody else writes its condition in this demo."""
OURS = (RECORDS, GATES, LEASES)
"""What agents write only where recovery is on."""


class Watched(Ledger):
    """Notes when what would be done was said, and when it was kept."""

    def hear(self, s: Seen) -> None:
        super().hear(s)
        if s.source == REPORTS:
            for x in s.status.get("sightings") or []:
                if r := self.recoveries.get(str(x["node"])):
                    r.reached("reported", s.at)

    def _event(self, s: Seen) -> None:
        super()._event(s)
        r = self.recoveries.get(str(s.what["involvedObject"]["name"]))
        if r is not None and s.what["reason"] == "WouldRecover":
            r.reached("would", s.at)
            r.sentence = str(s.what["message"])


class ObserveStory(Story):
    """As on AWS, and with ENABLE_RECOVERY=false, which is how it ships."""

    def __init__(self, sandbox: Sandbox, screen: Screen) -> None:
        super().__init__(sandbox, screen)
        self.ledger: Watched = Watched()
        self._before: dict[str, Json] = {}
        self.report: list[str] = []
        """What ``node-recovery report`` said."""
        self.drill: list[str] = []
        """What ``node-recovery explain`` said of the node with the drill."""

    def introduce(self) -> None:
        self.screen.say(
            "Recovery is off, as it ships. A node breaks, and node-recovery says what it would do."
        )
        self.screen.say()
        self.screen.paragraph(
            f"Real: {self.sandbox.pace.nodes} node-recovery sidecars with ENABLE_RECOVERY=false, processes "
            "of the shipped program; the commands node-recovery report, inject and explain; the Kubernetes "
            "client and the AWS SDK; pages captured from a real node-problem-detector. Simulated: the "
            "Kubernetes API (ours, over HTTP), AWS (moto, over HTTP), and machines and kubelets (one "
            "process, the simulator)."
        )
        self.screen.say()

    def tell(self) -> None:
        self._started()
        self._settle()
        self._before = self._nodes()
        broken, *_, healthy = self.ledger.first_nodes
        self._break(broken, *DMA)
        self._wait(lambda: self._said_of(broken), TOLD_WITHIN, "nothing says what would be done")
        self.report = self._terminal("report", "--since", "1h")
        self._say(healthy, "a person starts a drill on a healthy node; its agent looks twice a minute")
        self._terminal("inject", healthy, "--fault", DRILL)
        self.ledger.expect(healthy, DRILL, self.sandbox.now)
        self._wait(
            lambda: self._said_of(healthy), TOLD_WITHIN, "nothing says what would be done about a drill"
        )
        self.drill = self._terminal("explain", healthy)
        self._terminal("inject", healthy, "--remove")
        self._pass(self.sandbox.pace.pause)
        self._metrics = self.sandbox.metrics(self.namespace)

    def _said_of(self, node: str) -> bool:
        return self.ledger.recoveries[node].times.keys() >= {"would", "reported"}

    def _nodes(self) -> dict[str, Json]:
        """What of each Node an agent could write."""
        return {n["metadata"]["name"]: writable(n) for n in self.sandbox.api.items(NODES)}

    def shown(self) -> list[Recovery]:
        """Not the drill."""
        return super().shown()[:1]

    def checks(self) -> list[report.Check]:
        watched = self.shown()[0]
        written = {path.rpartition("/")[2]: len(self.sandbox.api.items(path)) for path in OURS}
        changed = [name for name, now in self._nodes().items() if now != self._before.get(name)]
        return report.only_said(
            self.ledger,
            watched,
            self._metrics,
            written,
            changed,
            self.report,
            self.drill,
            self.narrator.replicas,
        )

    def moral(self) -> str:
        return (
            "1 of 4 nodes is broken. node-recovery said what it would do, and did nothing: recovery is off."
        )

    def hints(self, node: str) -> list[str]:
        export, *rest = super().hints(node)
        command = rest[0].split(" status")[0]
        return [export, f"{command} report --since 1h", *rest]


def writable(node: Json) -> Json:
    """Spec, labels and annotations of a Node."""
    meta = node["metadata"]
    parts = {"spec": node.get("spec"), "labels": meta.get("labels"), "annotations": meta.get("annotations")}
    return copy.deepcopy(parts)
