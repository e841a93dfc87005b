"""The cloud of a history: one group of machines, that does what it was asked, sooner or much later."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recovery_testkit.provider import FakeGroup, FakeProvider

from recovery.errors import Ambiguous, Refused, Retry
from recovery.model import Machine as Named
from recovery.model import NotApplied, Reference, Step
from recovery.provider.protocol import Started
from tests.search import facts
from tests.search.boundary import LostError, StatusError
from tests.search.facts import Asked, TakenBack
from tests.search.machines import Machine

if TYPE_CHECKING:
    from tests.search.world import World

LATE = 1200.0
SHOWS_AFTER = 150.0


class Cloud(FakeProvider):
    """A provider whose machines really boot and go. What agents ask of it arrives through the boundary."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.short = False
        self.throttled_until = 0.0
        self.calls_throttled_until = 0.0
        """Until when calls that change something are throttled, and reads are answered."""
        self.surplus = 0
        """So many times the group launches one machine more than it wants, and removes the first one again."""
        self.late = 0
        self.stuck: list[float] = []
        """How long each of the next machines that are asked to reboot does not come up."""
        self.refuse = 0
        self.hide: list[float] = []
        """For how long each of the next calls that are accepted does not show."""
        self.hidden: dict[str, float] = {}
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
        found = self._touch(lambda: FakeProvider.preflight(self, machine, action))
        return replace(found, adopt="") if self._hides(machine) else found

    def poll(self, machine: Named, reference: Reference) -> Any:
        self._throttle()
        if self._hides(machine):
            return self._touch(lambda: NotApplied(f"{machine.id} shows nothing of it"))
        return self._touch(lambda: FakeProvider.poll(self, machine, reference))

    def gone(self, machine: Named) -> str | None:
        self._throttle()
        return self._touch(lambda: FakeProvider.gone(self, machine))  # type: ignore[no-any-return]

    def take_back(self, machine: Named, reference: Reference) -> str:
        self._throttle()
        return self._touch(lambda: self._take_back(machine, reference))  # type: ignore[no-any-return]

    def _take_back(self, machine: Named, reference: Reference) -> str:
        was = len(self.taken_back)
        sentence = FakeProvider.take_back(self, machine, reference)
        if len(self.taken_back) > was:
            p = self.world.acting
            who, answer = p.actor.name if p else "", self._answer()
            self.world.facts.append(TakenBack(self.world.now, who, machine.id, reference.action, answer))
        return sentence

    def _hides(self, machine: Named) -> bool:
        """Whether nothing shows of what was accepted a moment ago."""
        return self.world.now < self.hidden.get(machine.id, 0.0) and not self.world.machines[machine.id].gone

    def _answer(self) -> str:
        return facts.LOST_AFTER if self.world.boundary.will_lose else facts.ACCEPTED

    def finish(self, machine: Named, reference: Reference) -> None:
        self._throttle()
        self._touch(lambda: self._finish(machine, reference))

    def _finish(self, machine: Named, reference: Reference) -> None:
        FakeProvider.finish(self, machine, reference)
        self._asked(machine, "finish", "", self._answer())
        if self.groups[machine.group].slow:
            self.world.later(SHOWS_AFTER, lambda: self._shows(machine.group))
        self.refill(reference.data["group"])

    def _shows(self, group: str) -> None:
        """The number that the group was told shows at last. Machines too many stay until they are removed."""
        self._settled(group, set())
        self.refill(group)

    def _settled(self, group: str, decided: set[str]) -> None:
        """The number shows, and it is ``decided`` which of these machines stay; of others it is not yet."""
        found = self.groups[group]
        open_still = found.provisional - decided
        self.settle(group)
        found.provisional |= open_still

    def start(self, machine: Named, action: Step, token: str, reference: Reference) -> Started:
        answer = [facts.LOST_BEFORE]

        def go() -> Started:
            if self.world.now < max(self.throttled_until, self.calls_throttled_until):
                answer[0] = facts.THROTTLED
                raise Retry("the cloud throttles: Rate exceeded")
            if self.refuse:
                self.refuse -= 1
                answer[0] = facts.REFUSED
                raise Refused("the cloud refuses: AccessDenied")
            answer[0] = facts.REFUSED
            begun = FakeProvider.start(self, machine, action, token, reference)
            answer[0] = self._answer()
            self._asked(machine, action.value, token, answer[0])
            if self.hide:
                self.hidden[machine.id] = self.world.now + self.hide.pop()
            self._carry_out(machine, action, token)
            return begun

        try:
            return self.world.boundary.touched(go, calling=True)  # type: ignore[no-any-return]
        except (LostError, StatusError) as error:
            raise Ambiguous(f"the cloud did not answer: {error}") from None
        finally:
            if answer[0] not in facts.APPLIED:
                self._asked(machine, action.value, token, answer[0])

    def _asked(self, machine: Named, action: str, token: str, answer: str) -> None:
        p = self.world.acting
        who = p.actor.name if p else ""
        self.world.facts.append(Asked(self.world.now, who, machine.id, action, token, answer))

    # ------------------------------------------------------------ what it does by itself

    def _carry_out(self, named: Named, action: Step, token: str) -> None:
        machine = self.world.machines[named.id]
        dice = self.world.dice("cloud", named.id, action, len(self.calls))
        seconds = dice.uniform(2, 10)
        if self.late:
            self.late -= 1
            seconds += LATE
        if action is Step.REBOOT:
            stuck = self.stuck.pop() if self.stuck else 0.0
            self.world.later(
                seconds,
                lambda: self.world.boot(machine, token, stuck or dice.uniform(6, 30), hangs=bool(stuck)),
            )
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
        seconds = self.world.dice("fill", group, place, len(self.waiting), self.world.now).uniform(1, 15)
        self.world.later(seconds, lambda: self.refill(group))

    def refill(self, group: str) -> None:
        """Launch machines while the group wants more than it has."""
        found: FakeGroup = self.groups[group]
        while self.waiting and not self.short and len(found.in_service) < found.desired:
            first = self.world.launch_machine(group, self.waiting.pop(0))
            if self.surplus:
                self.surplus -= 1
                self._one_more(found, first)

    def _one_more(self, group: FakeGroup, first: Machine) -> None:
        """The group launches another one beside ``first``, which it removes once it sees that both are there."""
        second = self.world.launch_machine(group.name, self.world.new_place())
        group.provisional |= {first.id, second.id}

        def settled() -> None:
            if not first.gone and not second.gone:
                self.world.terminate_machine(first, facts.SURPLUS, refill=False)
            self._settled(group.name, {first.id, second.id})
            self.refill(group.name)

        seconds = self.world.dice("surplus", first.id).uniform(90, 240)
        self.world.later(seconds, settled)
