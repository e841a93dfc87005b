"""Fleet mode: a machine that its cloud has stopped holds no pod and no volume back."""

from __future__ import annotations

import pytest
from recovery_testkit.kubefaults import refused
from recovery_testkit.provider import FakeProvider
from recovery_testkit.stage import Stage

from recovery.errors import Retry
from recovery.model import Machine, Phase
from tests.stories.scenery import judge, to_the_end
from tests.stories.scenes import calls, exclude, pause, phase, ready, says, stubborn_pod
from tests.stories.test_conditions import policy
from tests.stories.test_one_controller import Group
from tests.stories.test_power import OUT_OF_SERVICE, given_up, stuck, tainted, taints

DEAD = policy("{type: Ready}", "{do: drain, within: 30m}, {do: replace}")


class Stopping(FakeProvider):
    """A cloud that tells which machines it has stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: set[str] = set()
        self.unseen = False

    def down(self, machine: Machine) -> str | None:
        if self.unseen:
            raise Retry("the cloud did not answer")
        return f"the cloud says that {machine} is stopped" if machine.id in self.stopped else None


def dead_in_its_drain(stopped: str = "m-0") -> tuple[Stage, Stopping]:
    """A node whose kubelet is dead, with one pod that no eviction is allowed for and that is then deleted."""
    s = Stage(DEAD)
    s.provider = provider = Stopping()
    s.nodes(4)
    s.fleet("controller")
    s.run(5)
    stubborn_pod(s)
    s.store.stop_kubelet("node-0")
    ready(s, "node-0", "Unknown")
    s.run(10)
    assert phase(s) is Phase.RECOVERING
    provider.stopped = {stopped}
    return s, provider


def test_pods_that_are_stuck_on_a_stopped_machine_are_given_up_and_the_replacement_goes_on() -> None:
    s, _ = dead_in_its_drain()
    s.run(60)
    assert OUT_OF_SERVICE not in taints(s), "no pod is stuck yet"
    stuck(s)
    s.run(60)
    assert (OUT_OF_SERVICE in taints(s), tainted(s)) == (True, 1)
    assert says(s, "OutOfService", "node-0: the cloud says that m-0 is stopped; 1 of its pods are stuck")
    assert calls(s) == [("replace", "m-0")], "the drain does not wait for it"
    to_the_end(s, Group(s))
    assert phase(s) is Phase.RECOVERED
    judge(s)


def test_once_they_are_gone_the_taint_comes_off() -> None:
    s, _ = dead_in_its_drain()
    s.api.fail_next(lambda a: "evict" in a.path, refused(429, "TooManyRequests"), times=10**6)
    s.add_pod("other", "node-0")
    stuck(s)
    s.run(60)
    assert OUT_OF_SERVICE in taints(s)
    given_up(s)
    s.run(60)
    assert (OUT_OF_SERVICE in taints(s), tainted(s)) == (False, 1)


def test_a_machine_that_runs_again_loses_the_taint_though_its_pod_is_still_there() -> None:
    s, provider = dead_in_its_drain()
    pause(s)
    stuck(s)
    assert OUT_OF_SERVICE not in taints(s), "somebody said hands off"
    provider.stopped.clear()
    ready(s, "node-0", "True")
    s.run(120)
    assert OUT_OF_SERVICE not in taints(s)


@pytest.mark.parametrize(
    "why", ["it runs", "another one is stopped", "the cloud does not answer", "it is Ready", "excluded"]
)
def test_without_proof_and_leave_no_pods_are_given_up(why: str) -> None:
    s, provider = dead_in_its_drain(stopped="m-1" if why == "another one is stopped" else "m-0")
    if why == "it runs":
        provider.stopped.clear()
    provider.unseen = why == "the cloud does not answer"
    if why == "it is Ready":
        ready(s, "node-0", "True")
    if why == "excluded":
        exclude(s)
    stuck(s)
    s.run(4 * 60)
    assert tainted(s) == 0


@pytest.mark.parametrize("status", [403, 500])
def test_a_stopped_machine_whose_pods_cannot_be_listed_is_a_persons_in_the_end(status: int) -> None:
    """One pod that cannot be decoded is enough. Whether some are stuck on it is not known then."""
    s, _ = dead_in_its_drain()
    listed = lambda a: a.method == "GET" and a.path.startswith("/api/v1/pods")  # noqa: E731
    s.api.fail_next(listed, refused(status, "InternalError", "cannot decode object"), times=10**6)
    s.run(45 * 60, step=2)
    assert (phase(s), calls(s), tainted(s)) == (Phase.HANDED_OVER, [], 0)


def test_the_taint_stays_while_nobody_knows_whether_pods_are_stuck() -> None:
    s, _ = dead_in_its_drain()
    s.api.fail_next(lambda a: "evict" in a.path, refused(429, "TooManyRequests"), times=10**6)
    s.add_pod("other", "node-0")
    stuck(s)
    s.run(60)
    assert OUT_OF_SERVICE in taints(s)
    listed = lambda a: a.method == "GET" and a.path.startswith("/api/v1/pods")  # noqa: E731
    s.api.fail_next(listed, refused(403, "Forbidden", "no right to list pods"), times=10**6)
    s.run(60)
    assert OUT_OF_SERVICE in taints(s)
