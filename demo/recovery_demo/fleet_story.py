"""The story of a fleet: one controller, a machine that dies, one that shows a condition, and a fault with one
cause on many machines."""

from __future__ import annotations

from recovery_demo import fleet_manifests, report
from recovery_demo.fleet_ledger import FleetLedger
from recovery_demo.fleet_manifests import SILENT, TRIED_ELSEWHERE
from recovery_demo.fleet_narrator import FleetNarrator
from recovery_demo.ledger import Recovery
from recovery_demo.on_fleet import OTHER_DRIVER, REPLICAS
from recovery_demo.sandbox import Sandbox
from recovery_demo.screen import Screen
from recovery_demo.story import STARTED_WITHIN, TOLD_WITHIN, WORD, Story

XID = "NvidiaXID79Error"
GSP = "NvidiaXID119Error"
DEAD, STATED = 0, 20
"""The places in the group of the machine that dies, and of the one that shows a condition by itself."""
HELD_FOR = 1.0  # seconds for which nothing happens after all are held


class FleetStory(Story):
    """Forty GPU nodes, a controller of two replicas, and nothing of node-recovery on the nodes."""

    namespace = "NodeRecovery"
    agent = "replica"

    def __init__(self, sandbox: Sandbox, screen: Screen) -> None:
        super().__init__(sandbox, screen)
        self.ledger: FleetLedger = FleetLedger()
        self.narrator = FleetNarrator(sandbox.pace.lease)
        self.status: list[str] = []
        """What ``node-recovery status`` said while the fault was held."""

    def introduce(self) -> None:
        pace = self.sandbox.pace
        self.screen.say("One controller looks after a fleet. Nothing of it runs on the nodes.")
        self.screen.say()
        self.screen.paragraph(
            f"Real: {len(REPLICAS)} replicas of the controller (processes of the shipped program with "
            "RECOVERY_MODE=fleet); the commands node-recovery status and approve; the Kubernetes client "
            f"and the AWS SDK they use. Simulated: the Kubernetes API with {pace.nodes} Nodes (ours, over "
            "HTTP), AWS (moto, over HTTP), and machines, the node controller, EKS's node monitoring agent "
            "and Auto Scaling (one process, the simulator)."
        )
        self.screen.paragraph(
            f"Shortened for the demo: probation {pace.probation} (default 2m), no cooldown (2m). Its policy "
            f"tolerates a Node that is not Ready for {fleet_manifests.DEAD_AFTER} (10m) and a condition for "
            f"{fleet_manifests.STATED_AFTER} (1m), and allows {fleet_manifests.BUDGET} nodes out of service "
            "at a time. The leader's Lease is not shortened: 15 s."
        )
        self.screen.say()

    def tell(self) -> None:
        self._started()
        self._settle()
        self._a_machine_dies()
        self._the_leader_is_killed()
        self._a_condition_shows()
        self._wait(lambda: self.ledger.led_again is not None, TOLD_WITHIN, "no other replica took the Lease")
        self._one_cause_on_many()
        self._a_person_looks_and_lets_go()
        self._wait(lambda: self.ledger.over, TOLD_WITHIN, "not every recovery has ended")
        self._pass(1.0)
        self._metrics = self.sandbox.metrics(self.namespace)

    # ------------------------------------------------------------ its chapters

    def _started(self) -> None:
        ready = self.ledger.ready_sidecars
        self._wait(lambda: len(ready) >= len(REPLICAS), STARTED_WITHIN, "not every replica was ready")

    def _settle(self) -> None:
        self.narrator.begin()
        leader, other = REPLICAS
        processes = self.narrator.processes
        self._say("", f"{len(self.ledger.first_nodes)} nodes are healthy, with a trainer on each")
        self._say(
            "",
            f"{leader} (process {processes[leader]}) leads, {other} (process {processes[other]}) watches",
        )
        self._pass(self.sandbox.pace.pause)

    def _a_machine_dies(self) -> None:
        node = self.ledger.first_nodes[DEAD]
        self.ledger.expect(node, SILENT, self.sandbox.now)
        self._say(node, "its machine dies silently", strong=True)
        self.sandbox.order(dies=node)
        self._wait(lambda: node in self.ledger.submitted, TOLD_WITHIN, "AWS was not asked to replace it")

    def _the_leader_is_killed(self) -> None:
        self.sandbox.order(kill=REPLICAS[0])
        self._wait(lambda: self.ledger.killed is not None, WORD, "the leader was not killed")

    def _a_condition_shows(self) -> None:
        self._states(XID, [self.ledger.first_nodes[STATED]], "while nobody leads")

    def _one_cause_on_many(self) -> None:
        """Three of the four machines with the other driver, in the same moment."""
        nodes = [self.ledger.first_nodes[place] for place in OTHER_DRIVER[:3]]
        self._states(GSP, nodes, f"on three machines at once, of the four with driver {TRIED_ELSEWHERE}")
        self._wait(
            lambda: set(nodes) <= set(self.ledger.held), TOLD_WITHIN, f"{GSP} was not held on all three"
        )
        self._pass(HELD_FOR)

    def _states(self, reason: str, nodes: list[str], how: str) -> None:
        for node in nodes:
            self.ledger.expect(node, reason, self.sandbox.now)
        self._say(
            ", ".join(nodes) if len(nodes) == 1 else "",
            f"the condition {fleet_manifests.HARDWARE} is False, {reason}, {how}",
            strong=True,
        )
        self.sandbox.order(states=reason, nodes=nodes)

    def _a_person_looks_and_lets_go(self) -> None:
        self.status = self._terminal("status")
        self._say("", "a person sees what they share, puts the group back on the old driver, and approves")
        self._terminal("approve", GSP, "--for", "10m")

    # ------------------------------------------------------------ the end

    def logs(self) -> tuple[str, ...]:
        return (*REPLICAS, "simulator")

    def shown(self) -> list[Recovery]:
        """The first of those with one cause stands for all."""
        return super().shown()[:3]

    def checks(self) -> list[report.Check]:
        nodes = self.sandbox.pace.nodes
        many = [r.node for r in self.ledger.recoveries.values() if r.reason == GSP]
        return report.one_controller(
            self.ledger, self._metrics, nodes, self.narrator.replicas, many, self.status
        )

    def hints(self, node: str) -> list[str]:
        """Without ``doctor``, which looks at a node with an agent."""
        return [line for line in super().hints(node) if " doctor " not in line]

    def moral(self) -> str:
        nodes = self.sandbox.pace.nodes
        return (
            f"5 of {nodes} nodes were replaced, each once, although the leader was killed in between. Three "
            "of them waited for a person, because their fault had one cause."
        )
