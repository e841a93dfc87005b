"""kured is asked by a file: the provider over a real directory, which counts, loses, delays and refuses."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from recovery_testkit.clock import FakeClock
from recovery_testkit.provider_kit import ActionKit

from providers.baremetal import create
from providers.baremetal.kured import IN_PROGRESS, Host, KuredProvider, filesystem_of, leave, make
from recovery.catalog import foreign_claim
from recovery.errors import Ambiguous, Refused, Retry, SettingsError
from recovery.model import Failed, Machine, NodeView, NotApplied, Reference, Running, Step, Unseen
from recovery.provider.protocol import Cancellable, ProviderContext
from recovery.short import LONGEST_ID

UUID = "4c4c4544-0047-4a10-8051-b7c04f484433"
BOOT, NEXT_BOOT = "0f0f0f0f-1111-4222-8333-444444444444", "1e1e1e1e-1111-4222-8333-444444444444"
TOKEN = "a1b2c3"  # noqa: S105 (an idempotency token)
UBUNTU = "*** System restart required ***\n"


class KuredWorld:
    """A node's /run, its boot ID, and what may go wrong between its agent and a file there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "run"
        self.folder.mkdir()
        self.sentinel = self.folder / "reboot-required"
        self.boot_file, self.mounts = folder / "boot_id", folder / "mountinfo"
        self.mounted_as("tmpfs")
        self.boots_as(BOOT)
        self.left = 0
        self.looks = 0
        self._next: OSError | None = None
        self._made = True
        self.me = "metal-1"
        self.provider = self.agent_of(self.me)

    def agent_of(self, node: str) -> KuredProvider:
        """An agent over the same files."""
        return KuredProvider(self.sentinel, node, Host(self._leave, self.boot_file, self.mounts))

    @property
    def node(self) -> NodeView:
        return NodeView("metal-1", "node-uid", "1", boot_id=BOOT, system_uuid=UUID)

    def mounted_as(self, kind: str) -> None:
        self.mounts.write_text(
            "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
            f"35 21 0:24 / {os.path.realpath(self.folder)} rw,nosuid shared:5 - {kind} {kind} rw\n"
        )

    def boots_as(self, boot: str) -> None:
        self.boot_file.write_text(f"{boot}\n")

    def reboots(self) -> None:
        """A reboot empties /run."""
        self.sentinel.unlink(missing_ok=True)
        self.boots_as(NEXT_BOOT)

    def _leave(self, path: Path, line: str) -> None:
        self.left += 1
        told, self._next = self._next, None
        if self._made:
            leave(path, line)
        self._made = True
        if told is not None:
            raise told

    def _fail(self, number: int, made: bool) -> None:
        self._next, self._made = OSError(number, os.strerror(number)), made

    def calls(self) -> int:
        return self.left

    def mutating_calls(self) -> int:
        return self.left

    def lose_answer(self) -> None:
        self._fail(errno.EIO, made=True)

    def delay(self) -> None:
        self._fail(errno.ETIMEDOUT, made=True)  # as a file system behind a network gives up

    def refuse(self, kind: str) -> None:
        number = {"throttled": errno.EMFILE, "denied": errno.EACCES, "broken": errno.EIO}[kind]
        self._fail(number, made=False)

    def remove_machine(self) -> None:
        """Its agent goes with it: a peer looks after the record."""
        self.provider._me = "metal-2"

    def finish_action(self, action: Step) -> Sequence[str]:
        self.reboots()
        return ()


@pytest.fixture
def world(tmp_path: Path) -> KuredWorld:
    return KuredWorld(tmp_path)


@pytest.fixture
def provider(world: KuredWorld) -> KuredProvider:
    return world.provider


@pytest.fixture
def machine(world: KuredWorld) -> Machine:
    return world.provider.identify(world.node)


class TestKured(ActionKit):
    actions = (Step.REBOOT,)
    rubbish = (
        "aws:///us-west-2a/i-0123456789abcdef0",
        "azure:///subscriptions/x",
        NodeView("metal-1", "u", "1", boot_id=BOOT),
        NodeView("metal-1", "u", "1", boot_id=BOOT, system_uuid="00000000-0000-0000-0000-000000000000"),
    )

    @pytest.fixture
    def world(self, tmp_path: Path) -> KuredWorld:
        return KuredWorld(tmp_path)

    @pytest.fixture
    def provider(self, world: KuredWorld) -> KuredProvider:
        return world.provider

    @pytest.fixture
    def node(self, world: KuredWorld) -> NodeView:
        return world.node


def begun(world: KuredWorld, machine: Machine) -> Reference:
    ready = world.provider.preflight(machine, Step.REBOOT)
    return world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)


# ---------------------------------------------------------------- the sentinel


def test_kureds_mark_on_a_node_that_it_was_asked_to_reboot_is_of_that_request(
    world: KuredWorld, machine: Machine
) -> None:
    reference = begun(world, machine)
    marked = replace(world.node, annotations={IN_PROGRESS: "2026-11-21T03:00:00Z"})
    assert foreign_claim(marked) is not None
    assert foreign_claim(marked, reference.by) is None


def test_the_sentinel_is_a_file_that_says_who_asked_and_kured_can_see_it(
    world: KuredWorld, machine: Machine
) -> None:
    begun(world, machine)
    found = world.sentinel.stat()
    assert stat.S_ISREG(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o644
    assert world.sentinel.read_text() == (
        "node-recovery: metal-1 is to be rebooted: asked for by its agent, attempt a1b2c3\n"
    )


def test_nothing_else_is_left_in_the_directory(world: KuredWorld, machine: Machine) -> None:
    begun(world, machine)
    assert [p.name for p in world.folder.iterdir()] == ["reboot-required"]


def test_a_sentinel_of_somebody_elses_stays_as_it_is_and_is_as_good_as_ours(
    world: KuredWorld, machine: Machine
) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.sentinel.write_text(UBUNTU)
    reference = world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.sentinel.read_text() == UBUNTU
    assert isinstance(world.provider.poll(machine, reference), Running)
    assert [p.name for p in world.folder.iterdir()] == ["reboot-required"]


def test_a_link_in_its_place_is_not_followed(world: KuredWorld, machine: Machine) -> None:
    elsewhere = world.folder.parent / "elsewhere"
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.sentinel.symlink_to(elsewhere)
    world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert not elsewhere.exists()


def test_a_full_file_system_is_known_before_kured_sees_a_file(
    world: KuredWorld, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Refused, match=r"kured was not asked: .*: No space left on device"):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert list(world.folder.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES, errno.EDQUOT, errno.EPERM])
def test_what_no_second_attempt_would_change_is_for_a_person(
    world: KuredWorld, machine: Machine, number: int
) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    world._fail(number, made=False)
    with pytest.raises(Refused, match=os.strerror(number)):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)


def test_the_real_file_system_refuses_with_the_same_sentence(world: KuredWorld, machine: Machine) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.folder.rmdir()
    with pytest.raises(Refused, match="cannot be made: No such file or directory"):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)


# ---------------------------------------------------------------- before it


def test_where_kured_was_asked_already_nothing_is_left_again(world: KuredWorld, machine: Machine) -> None:
    world.sentinel.write_text(UBUNTU)
    found = world.provider.preflight(machine, Step.REBOOT)
    assert found.adopt == f"kured has already been asked: {world.sentinel} is there"
    assert isinstance(world.provider.poll(machine, found.reference), Running)
    world.sentinel.unlink()
    assert isinstance(world.provider.poll(machine, found.reference), Failed)


def test_where_kured_says_that_it_is_at_work_it_is_not_asked(world: KuredWorld) -> None:
    node = replace(world.node, annotations={IN_PROGRESS: "2026-11-21T03:00:00Z"})
    machine = world.provider.identify(node)
    found = world.provider.preflight(machine, Step.REBOOT)
    assert "kured is at work on metal-1 already" in found.adopt
    assert isinstance(world.provider.poll(machine, found.reference), Running)
    assert world.left == 0


def test_the_annotation_is_the_one_that_every_agent_stands_back_from(world: KuredWorld) -> None:
    node = replace(world.node, annotations={IN_PROGRESS: "2026-11-21T03:00:00Z"})
    assert (foreign_claim(node) or "").startswith("kured holds metal-1")
    assert "kured" not in world.provider.identify(replace(node, annotations={IN_PROGRESS: ""})).route
    forged = world.provider.identify(replace(node, annotations={IN_PROGRESS: "x" * 5000}))
    assert len(forged.route["kured"]) <= LONGEST_ID, "a machine is not lost for what anybody may write"


def test_an_agent_asks_for_its_own_node_alone(world: KuredWorld, machine: Machine) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    for other, who in (("metal-2", "this is the agent of metal-2"), ("", "this is the agent of no node")):
        peer = world.agent_of(other)
        with pytest.raises(Refused, match=f"a file on metal-1, which only the agent there can leave; {who}"):
            peer.preflight(machine, Step.REBOOT)
        with pytest.raises(Refused, match=who):
            peer.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert world.left == 0


def test_a_node_that_another_kernel_goes_by_is_not_asked_for(world: KuredWorld, machine: Machine) -> None:
    """NODE_NAME is only a word; the boot ID is what the Node and the kernel here must have in common."""
    ready = world.provider.preflight(machine, Step.REBOOT)
    for wrong in (NEXT_BOOT, ""):
        world.boots_as(wrong)
        with pytest.raises(Retry, match="kured is not asked before they agree"):
            world.provider.preflight(machine, Step.REBOOT)
        with pytest.raises(Retry):
            world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    unknown = world.provider.identify(replace(world.node, boot_id=""))
    world.boots_as("")
    with pytest.raises(Retry, match="the boot ID here is unknown, and metal-1 says none"):
        world.provider.preflight(unknown, Step.REBOOT)
    assert world.left == 0


def test_a_reference_is_good_for_no_other_step(world: KuredWorld, machine: Machine) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    with pytest.raises(Refused, match="a person has to replace it"):
        world.provider.start(machine, Step.REPLACE, TOKEN, ready.reference)
    assert world.left == 0


def test_a_machine_that_booted_after_the_look_is_not_asked_for(world: KuredWorld, machine: Machine) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.reboots()
    now = replace(machine, route={**machine.route, "boot": NEXT_BOOT})
    with pytest.raises(Retry, match="has booted since it was looked at"):
        world.provider.start(now, Step.REBOOT, TOKEN, ready.reference)
    assert not world.sentinel.exists()


def test_a_directory_that_is_not_mounted_is_named_with_what_to_do(
    world: KuredWorld, machine: Machine
) -> None:
    world.folder.rmdir()
    with pytest.raises(Refused) as refused:
        world.provider.preflight(machine, Step.REBOOT)
    assert refused.value.reason == (
        f"KURED_SENTINEL: the directory {world.folder} is not there; mount the node's own into the agent's "
        "container, as deploy/baremetal/components/kured does"
    )


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay"])
def test_a_sentinel_that_a_reboot_would_not_take_away_is_refused(
    world: KuredWorld, machine: Machine, kind: str
) -> None:
    """kured would find it after the boot, and reboot again."""
    world.mounted_as(kind)
    with pytest.raises(Refused, match=f"is on {kind}, which a reboot does not empty"):
        world.provider.preflight(machine, Step.REBOOT)


def test_a_file_system_that_cannot_be_told_is_refused(world: KuredWorld, machine: Machine) -> None:
    world.mounts.unlink()
    with pytest.raises(Refused, match="a file system that is not known, which a reboot does not empty"):
        world.provider.preflight(machine, Step.REBOOT)


def test_the_kernels_own_list_of_mounts_is_read() -> None:
    assert filesystem_of(Path("/proc/self"), Path("/proc/self/mountinfo")) == "proc"


def test_the_deepest_mount_counts_and_of_two_there_the_last(tmp_path: Path) -> None:
    here, mounts = os.path.realpath(tmp_path), tmp_path / "mountinfo"
    lines = [
        f"1 0 0:1 / {here}/a rw - tmpfs tmpfs rw",
        "2 0 0:1 / / rw - ext4 /dev/sda rw",
        f"3 0 0:1 / {here}/a/b rw master:1 - xfs /dev/sdb rw",
        f"4 0 0:1 / {here}/a/b rw - ramfs none rw",
        f"5 0 0:1 / {here}/a\\040b rw - btrfs none rw",
        "rubbish",
    ]
    mounts.write_text("\n".join(lines))
    for name in ("a/b", "a b", "ab"):
        (tmp_path / name).mkdir(parents=True)
    found = {name: filesystem_of(tmp_path / name, mounts) for name in ("a", "a/b", "a b", "ab")}
    assert found == {"a": "tmpfs", "a/b": "ramfs", "a b": "btrfs", "ab": "ext4"}


@contextmanager
def unprivileged() -> Iterator[int]:
    """As the agent's own user, whose number it gives: root may write anywhere."""
    if me := os.geteuid():
        yield me
        return
    os.seteuid(65532)
    try:
        yield 65532
    finally:
        os.seteuid(0)


def test_a_directory_that_belongs_to_root_is_named_with_what_to_do() -> None:
    with tempfile.TemporaryDirectory() as name:
        world = KuredWorld(Path(name))
        machine = world.provider.identify(world.node)
        Path(name).chmod(0o755)
        world.folder.chmod(0o555)
        with unprivileged() as me, pytest.raises(Refused) as refused:
            world.provider.preflight(machine, Step.REBOOT)
        assert refused.value.reason.endswith(f"mounted read-only; on the node: chown {me} {world.folder}")
        assert f"the user {me} may not write to {world.folder}" in refused.value.reason


def test_what_is_no_file_would_never_be_found_by_kured(world: KuredWorld, machine: Machine) -> None:
    world.sentinel.mkdir()
    with pytest.raises(Refused, match="is no file, and kured looks for one"):
        world.provider.preflight(machine, Step.REBOOT)


# ---------------------------------------------------------------- what became of it


def test_while_the_sentinel_is_there_kured_has_its_time(world: KuredWorld, machine: Machine) -> None:
    told = world.provider.poll(machine, begun(world, machine))
    assert isinstance(told, Running)
    assert "kured has been asked" in told.sentence


def test_a_reboot_takes_the_sentinel_away_and_the_boot_is_told(world: KuredWorld, machine: Machine) -> None:
    reference = begun(world, machine)
    world.reboots()
    assert world.provider.poll(machine, reference) == Running("metal-1 has booted since kured was asked")


def test_a_sentinel_that_goes_without_a_reboot_was_taken_away(world: KuredWorld, machine: Machine) -> None:
    reference = begun(world, machine)
    world.sentinel.unlink()
    assert world.provider.poll(machine, reference) == Failed(
        f"somebody took {world.sentinel} away: kured was called off"
    )


def test_a_sentinel_that_was_never_left_had_no_effect(world: KuredWorld, machine: Machine) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.refuse("broken")
    with pytest.raises(Ambiguous, match="whether kured was asked is not known"):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    assert isinstance(world.provider.poll(machine, ready.reference), NotApplied)


def test_a_directory_that_went_away_says_nothing_of_kured(world: KuredWorld, machine: Machine) -> None:
    reference = begun(world, machine)
    world.sentinel.unlink()
    world.folder.rmdir()
    told = world.provider.poll(machine, reference)
    assert isinstance(told, Running)
    assert "cannot be seen" in told.sentence


def test_a_peer_sees_no_file_of_another_node(world: KuredWorld, machine: Machine) -> None:
    reference = begun(world, machine)
    world.sentinel.unlink()
    for peer in ("metal-2", ""):
        told = world.agent_of(peer).poll(machine, reference)
        assert isinstance(told, Running)
        assert "only the agent of metal-1 sees" in told.sentence


def test_what_cannot_be_seen_of_a_request_that_may_not_have_been_left_stays_unknown(
    world: KuredWorld, machine: Machine
) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    assert isinstance(world.agent_of("metal-2").poll(machine, ready.reference), Unseen)
    world.folder.rmdir()
    assert isinstance(world.provider.poll(machine, ready.reference), Unseen)


# ---------------------------------------------------------------- a record that somebody changed


def test_a_record_that_names_another_file_makes_nobody_read_write_or_delete_it(
    world: KuredWorld, machine: Machine
) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    victim = world.folder.parent / "victim"
    victim.write_text("node-recovery: mine\n")
    for path in (victim, world.folder / ".." / "victim", world.folder / "made"):
        stolen = replace(ready.reference, data={**ready.reference.data, "sentinel": str(path)})
        with pytest.raises(Refused, match="and KURED_SENTINEL is"):
            world.provider.start(machine, Step.REBOOT, TOKEN, stolen)
        with pytest.raises(Refused, match="and KURED_SENTINEL is"):
            world.provider.poll(machine, stolen)
        with pytest.raises(Refused, match="and KURED_SENTINEL is"):
            world.provider.cancel(machine, stolen)
    assert victim.exists()
    assert list(world.folder.iterdir()) == []


def test_a_record_of_another_machine_is_not_followed_either(world: KuredWorld, machine: Machine) -> None:
    reference = begun(world, machine)
    other = replace(machine, id=machine.id[:-1] + "0")
    for do in (world.provider.poll, world.provider.cancel):
        with pytest.raises(Refused, match="the reference is one of machine"):
            do(other, reference)
    assert world.sentinel.exists()


# ---------------------------------------------------------------- called off


def test_what_was_asked_for_is_taken_back_and_again(world: KuredWorld, machine: Machine) -> None:
    assert isinstance(world.provider, Cancellable)
    reference = begun(world, machine)
    for _ in range(2):
        world.provider.cancel(machine, reference)
        assert not world.sentinel.exists()


def test_an_order_whose_answer_was_lost_is_taken_back_too(world: KuredWorld, machine: Machine) -> None:
    ready = world.provider.preflight(machine, Step.REBOOT)
    world.lose_answer()
    with pytest.raises(Ambiguous):
        world.provider.start(machine, Step.REBOOT, TOKEN, ready.reference)
    world.provider.cancel(machine, ready.reference)
    assert not world.sentinel.exists()


def test_somebody_elses_sentinel_is_theirs_to_call_off(world: KuredWorld, machine: Machine) -> None:
    world.sentinel.write_text(UBUNTU)
    reference = world.provider.preflight(machine, Step.REBOOT).reference
    world.provider.cancel(machine, reference)
    assert world.sentinel.read_text() == UBUNTU


def test_a_sentinel_that_a_package_wrote_over_is_not_ours_any_more(
    world: KuredWorld, machine: Machine
) -> None:
    reference = begun(world, machine)
    world.sentinel.write_text(UBUNTU)
    world.provider.cancel(machine, reference)
    assert world.sentinel.exists()


def test_neither_a_link_nor_a_pipe_in_its_place_is_waited_for(world: KuredWorld, machine: Machine) -> None:
    reference = begun(world, machine)
    mine = world.folder.parent / "mine"
    mine.write_text("node-recovery: mine\n")
    world.sentinel.unlink()
    world.sentinel.symlink_to(mine)
    with pytest.raises(Refused, match="cannot be taken away"):
        world.provider.cancel(machine, reference)
    assert mine.exists()
    world.sentinel.unlink()
    os.mkfifo(world.sentinel)
    world.provider.cancel(machine, reference)
    assert world.sentinel.exists()


def test_a_peer_says_what_a_person_has_to_do(world: KuredWorld, machine: Machine) -> None:
    reference = begun(world, machine)
    with pytest.raises(Refused, match="kured may still reboot metal-1: only the agent there can take"):
        world.agent_of("metal-2").cancel(machine, reference)
    assert world.sentinel.exists()


def test_where_kured_has_begun_a_person_is_told_that_it_may_be_too_late(
    world: KuredWorld, machine: Machine
) -> None:
    reference = begun(world, machine)
    seen = world.provider.identify(replace(world.node, annotations={IN_PROGRESS: "2026-11-21T03:00:00Z"}))
    with pytest.raises(Refused, match="was taken away, but kured may be at work already"):
        world.provider.cancel(seen, reference)
    assert not world.sentinel.exists()
    world.provider.cancel(seen, reference)  # said once: there is nothing left to take away


@pytest.mark.parametrize(("number", "expected"), [(errno.EBUSY, Retry), (errno.EROFS, Refused)])
def test_a_sentinel_that_cannot_be_taken_away_is_told(
    world: KuredWorld,
    machine: Machine,
    number: int,
    expected: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reference = begun(world, machine)

    def fail(_: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "unlink", fail)
    with pytest.raises(expected, match="cannot be taken away"):
        world.provider.cancel(machine, reference)


def test_doctor_sends_nobody_to_an_agent_that_fleet_mode_has_not() -> None:
    provider = make(ProviderContext(FakeClock(), {"RECOVERY_MODE": "fleet"}))
    machine = provider.identify(NodeView("metal-1", "node-uid", "1", boot_id=BOOT, system_uuid=UUID))
    _, found = provider.examine(machine, frozenset({Step.REBOOT}), own=True)
    told = "nobody can leave /var/run/reboot-required on metal-1: in fleet mode no agent runs there"
    assert (found.ok, found.sentence) == (False, told)


# ---------------------------------------------------------------- settings


def context(**environ: str) -> ProviderContext:
    return ProviderContext(FakeClock(), environ)


def test_the_path_is_kureds_own_unless_it_is_set() -> None:
    assert str(make(context())._path) == "/var/run/reboot-required"
    assert str(make(context(KURED_SENTINEL="/run/x/y"))._path) == "/run/x/y"


@pytest.mark.parametrize("path", ["reboot-required", "/run/", "/run/../etc/x", "./x"])
def test_a_path_that_is_none_is_a_mistake_at_the_start(path: str) -> None:
    with pytest.raises(SettingsError, match=r"KURED_SENTINEL: found .*, expected the absolute path of a"):
        make(context(KURED_SENTINEL=path))


def test_it_is_what_the_setting_chooses() -> None:
    made = create(context(BAREMETAL_POWER="kured", NODE_NAME="metal-1"))
    assert isinstance(made, KuredProvider)
    assert made._me == "metal-1"
    assert [rung.do for rung in made.default_remedy] == [Step.CORDON]
