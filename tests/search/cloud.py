"""The cloud of a history: one group of machines, that does what it was asked, sooner or much later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recovery_testkit.provider import FakeGroup, FakeProvider

from recovery.errors import Ambiguous, Refused, Retry
from recovery.model import Machine as Named
from recovery.model import Reference, Step
from recovery.provider.protocol import Started
from tests.search import facts
from tests.search.boundary import LostError, StatusError
from tests.search.facts import Asked
from tests.search.machines import Machine

if TYPE_CHECKING:
    from tests.search.world import World

LATE = 1200.0


class Cloud(FakeProvider):
    """A provider whose machines really boot and go. What agents ask of it arrives through the boundary."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.short = False
        self.throttled_until = 0.0
        self.late = 0
        self.refuse = 0
        self.waiting: list[int] = []
        """Places whose machine is gone and that have no new one."""

    def _touch(self, go: Any) -> Any:
        try:
            return self.world.boundary.touched(go)
        except LostError as error:
            raise Retry(f"the cloud did not answer: {error}") from None
        except StatusError as error:
            raise Retry(f"the cloud answered {error.status}") from None

    def _throttle(self) -> None:
        if self.world.now < self.throttled_until:
            raise Retry("the cloud throttles: Rate exceeded")

    # ------------------------------------------------------------ the protocol

    def preflight(self, machine: Named, action: Step) -> Any:
        self._throttle()
        return self._touch(lambda: FakeProvider.preflight(self, machine, action))

    def poll(self, machine: Named, reference: Reference) -> Any:
        self._throttle()
        return self._touch(lambda: FakeProvider.poll(self, machine, reference))

    def finish(self, machine: Named, reference: Reference) -> None:
        self._throttle()
        self._touch(lambda: FakeProvider.finish(self, machine, reference))
        self._asked(machine, "finish", "", facts.ACCEPTED)
        self.refill(reference.data["group"])

    def start(self, machine: Named, action: Step, token: str, reference: Reference) -> Started:
        answer = [facts.LOST_BEFORE]

        def go() -> Started:
            if self.world.now < self.throttled_until:
                answer[0] = facts.THROTTLED
                raise Retry("the cloud throttles: Rate exceeded")
            if self.refuse:
                self.refuse -= 1
                answer[0] = facts.REFUSED
                raise Refused("the cloud refuses: AccessDenied")
            answer[0] = facts.REFUSED
            begun = FakeProvider.start(self, machine, action, token, reference)
            answer[0] = facts.ACCEPTED
            self._asked(machine, action.value, token, facts.ACCEPTED)
            self._carry_out(machine, action, token)
            return begun

        try:
            return self.world.boundary.touched(go)  # type: ignore[no-any-return]
        except (LostError, StatusError) as error:
            raise Ambiguous(f"the cloud did not answer: {error}") from None
        finally:
            if answer[0] != facts.ACCEPTED:
                self._asked(machine, action.value, token, answer[0])

    def _asked(self, machine: Named, action: str, token: str, answer: str) -> None:
        p = self.world.acting
        who = p.actor.name if p else ""
        self.world.facts.append(Asked(self.world.now, who, machine.id, action, token, answer))

    # ------------------------------------------------------------ what it does by itself

    def _carry_out(self, named: Named, action: Step, token: str) -> None:
        machine = self.world.machines[named.id]
        dice = self.world.dice("cloud", named.id, action, len(self.calls))
        seconds = dice.uniform(2, 15)
        if self.late:
            self.late -= 1
            seconds += LATE
        if action is Step.REBOOT:
            self.world.later(seconds, lambda: self.world.boot(machine, token, dice.uniform(10, 50)))
        else:
            self.world.later(seconds, lambda: self._replace(machine, token))

    def _replace(self, machine: Machine, token: str) -> None:
        """An unhealthy machine goes once its group can launch another. One that is healthy again stays."""
        group = self.groups[machine.group]
        if machine.gone or machine.id not in group.unhealthy:
            return
        if self.short and not group.shrinks:
            self.world.later(30.0, lambda: self._replace(machine, token))
            return
        self.world.terminate_machine(machine, token)

    def leave(self, machine: Machine) -> None:
        self.terminate(machine.group, machine.id)
        self.groups[machine.group].unhealthy.discard(machine.id)

    def enter(self, machine: Machine) -> None:
        self.launch(machine.group, machine.id)

    def fill(self, group: str, place: int) -> None:
        """A place has lost its machine."""
        self.waiting.append(place)
        seconds = self.world.dice("fill", group, place, len(self.waiting), self.world.now).uniform(1, 30)
        self.world.later(seconds, lambda: self.refill(group))

    def refill(self, group: str) -> None:
        """Launch machines while the group wants more than it has."""
        found: FakeGroup = self.groups[group]
        while self.waiting and not self.short and len(found.in_service) < found.desired:
            self.world.launch_machine(group, self.waiting.pop(0))
