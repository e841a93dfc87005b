"""Reboots by kured, which is asked by a file on the node: the sentinel.

Facts, from kured's source (https://github.com/kubereboot/kured: cmd/kured/main.go, kured-ds.yaml; 1.20). It
looks for the file (``test -f``) once in ``--period``, an hour by default, and then waits for its window, its
blockers and its one lock for the cluster; it cordons, drains (by default as long as it takes) and reboots.
Once it has the lock it does not look at the file again. After the boot it uncordons only what was schedulable
before. With ``--annotate-nodes`` the Node bears ``weave.works/kured-reboot-in-progress`` from the moment the
file is seen in the window, before the lock; kured takes that off after a boot, and never else.

A reboot empties ``/run``, and so removes the sentinel. A sentinel on a disk would cause reboots for ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from providers.baremetal.base import BareMetalProvider, unable
from providers.baremetal.machine import LONGEST
from providers.baremetal.settings import SENTINEL
from recovery.errors import Ambiguous, NodeRecoveryError, Refused, Retry
from recovery.model import (
    Failed,
    Machine,
    NodeView,
    NotApplied,
    Poll,
    Preflight,
    Reference,
    Running,
    Step,
    Unseen,
)
from recovery.provider.protocol import Finding, ProviderContext

IN_PROGRESS = "weave.works/kured-reboot-in-progress"
MARK = "node-recovery:"
"""How a sentinel of ours begins."""
_OTHERS, _KURED = "somebody else", "kured"
_LATER = frozenset({errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_NEVER = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EXDEV),
        *(errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG),
    }
)


def leave(path: Path, line: str) -> None:
    """Make the file ``path`` with ``line`` in it, whole or not at all. Raises ``OSError``.

    ``FileExistsError``: somebody was there first. What cannot be written is thus known before kured sees it.
    """
    handle, name = tempfile.mkstemp(prefix=".node-recovery-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.link(name, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


@dataclass(frozen=True)
class Host:
    """The node, as its agent sees it."""

    leave: Callable[[Path, str], None] = leave
    boot_id: Path = Path("/proc/sys/kernel/random/boot_id")
    mounts: Path = Path("/proc/self/mountinfo")


class KuredProvider(BareMetalProvider):
    """The provider ``baremetal`` where kured reboots. Each agent asks for its own node, and for no other."""

    actions = frozenset({Step.REBOOT})
    note = ""
    permissions: Mapping[str, frozenset[str]] = {
        "preflight": frozenset({"KURED_SENTINEL:read"}),
        "poll": frozenset({"KURED_SENTINEL:read"}),
        Step.REBOOT: frozenset({"KURED_SENTINEL:write"}),
    }
    call_timeout = 5.0  # a file in memory

    def __init__(self, sentinel: Path, me: str, host: Host | None = None, *, afar: bool = False) -> None:
        self._path = sentinel
        self._me = me
        self._host = host or Host()
        self._afar = afar  # no agent runs on a node
        if afar:
            self.actions = frozenset()
            self.note = "kured is asked by a file on the node, where no agent runs in fleet mode"

    def identify(self, node: NodeView) -> Machine:
        """As on all bare metal. ``route``: also node, boot (the boot ID), kured (its annotation, if set)."""
        machine = super().identify(node)
        told = {
            "node": node.name,
            "boot": node.boot_id,
            "kured": node.annotations.get(IN_PROGRESS, "")[:LONGEST],
        }
        return replace(machine, route={**machine.route, **{k: v for k, v in told.items() if v}})

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        """Whether kured could be asked. ``adopt`` where it is at work already, whoever asked it."""
        if action not in self.actions:
            raise unable(machine, action)
        self._on_its_own_node(machine)
        data = {"machine": machine.id, "sentinel": str(self._path), "boot": self._this_boot(machine)}
        data["by"] = "kured"  # its mark on the Node is then of this request
        if self._asked():
            data["asked"] = _OTHERS
            return Preflight(
                Reference(self.name, action, data),
                adopt=f"kured has already been asked: {self._path} is there",
            )
        if since := machine.route.get("kured"):
            data["asked"] = _KURED
            return Preflight(
                Reference(self.name, action, data),
                adopt=f"kured is at work on {_node(machine)} already ({IN_PROGRESS}: {since})",
            )
        self._may_write()
        return Preflight(Reference(self.name, action, data))

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> Reference:
        """Write the sentinel. If there is one already, it serves as well, and stays its owner's."""
        if action not in self.actions:
            raise unable(machine, action)
        self._same(machine, reference)
        self._on_its_own_node(machine)
        if self._this_boot(machine) != reference.data.get("boot"):
            raise Retry(f"{_node(machine)} has booted since it was looked at: kured was not asked")
        asked = token
        line = f"{MARK} {self._me} is to be rebooted: asked for by its agent, attempt {token}\n"
        try:
            self._host.leave(self._path, line)
        except FileExistsError:
            asked = _OTHERS
        except OSError as error:
            raise _fate(self._path, error) from None
        return Reference(self.name, reference.action, {**reference.data, "asked": asked})

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        """Whether the sentinel is still there. That it has rebooted is proved by the boot ID, not here."""
        self._same(machine, reference)
        node = _node(machine)
        asked = reference.data.get("asked")
        unseen = Running if asked else Unseen
        if node != self._me:
            return unseen(f"only the agent of {node} sees {self._path}; a new boot ID is the proof")
        if self._boot() not in ("", reference.data.get("boot")):
            return Running(f"{node} has booted since kured was asked")
        if not os.path.isdir(self._path.parent):
            return unseen(f"{self._path.parent} is not there: whether kured is still asked cannot be seen")
        if self._asked():
            return Running(
                f"kured has been asked; it reboots {node} when its lock, its window and its blockers allow"
            )
        if asked == _KURED:
            return Running(f"kured has said that it reboots {node}")
        if asked:
            return Failed(f"somebody took {self._path} away: kured was called off")
        return NotApplied(f"{self._path} is not there, and {node} has not booted")

    def cancel(self, machine: Machine, reference: Reference) -> str | None:
        """Take our sentinel away, if it is there. ``Refused`` also says where that may have been too late."""
        self._same(machine, reference)
        node = _node(machine)
        if node != self._me:
            raise Refused(
                f"kured may still reboot {node}: only the agent there can take {self._path} away; rm it there"
            )
        try:
            if not _read(self._path).startswith(MARK):
                return None  # another one wants the reboot: it is theirs to call off
            os.unlink(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _LATER:
                raise Retry(f"{self._path} cannot be taken away: {error.strerror}") from None
            raise Refused(
                f"kured may still reboot {node}: {self._path} cannot be taken away ({error.strerror}); rm it"
            ) from None
        if since := machine.route.get("kured"):
            raise Refused(
                f"{self._path} was taken away, but kured may be at work already ({IN_PROGRESS}: {since}), "
                f"and then reboots {node} all the same: see its log"
            )
        return f"{self._path} was taken away, and kured had not taken it up"

    def examine(self, machine: Machine | None, steps: frozenset[Step], own: bool) -> Iterator[Finding]:
        """Where the sentinel would be, and whether it could be left there now."""
        yield Finding(self.name, True, f"power by kured, which is asked by {self._path}")
        if machine is None:
            return
        if self._afar:
            told = f"nobody can leave {self._path} on {_node(machine)}: in fleet mode no agent runs there"
            yield Finding(self.name, False, told, "set BAREMETAL_POWER to redfish or metal3, or use sidecars")
            return
        if Step.REBOOT not in steps:
            return
        if not own or _node(machine) != self._me:
            told = f"whether {self._path} can be left on {_node(machine)} shows only there"
            yield Finding(self.name, None, told, "run doctor in the agent's pod on that node")
            return
        try:
            there = self._asked()
            self._may_write()
        except Refused as error:
            yield Finding(self.name, False, error.reason, "see docs/baremetal.md")
        except Retry as error:
            yield Finding(self.name, None, error.reason)
        else:
            now = "it is there already: kured has been asked" if there else "it can be left"
            yield Finding(self.name, True, f"{self._path} is on a file system that a reboot empties; {now}")

    # ------------------------------------------------------------ questions

    def _on_its_own_node(self, machine: Machine) -> None:
        node = _node(machine)
        if not self._me or node != self._me:
            me = f"the agent of {self._me}" if self._me else "the agent of no node"
            raise Refused(
                f"kured is asked by a file on {node}, which only the agent there can leave; this is {me}"
            )

    def _same(self, machine: Machine, reference: Reference) -> None:
        """The path is never taken from a reference: a record may have been changed by somebody."""
        if (theirs := reference.data.get("machine")) != machine.id:
            raise Refused(f"the reference is one of machine {_quote(theirs)}, not of {machine}")
        if (theirs := reference.data.get("sentinel")) != str(self._path):
            raise Refused(
                f"kured was asked by {_quote(theirs)}, and KURED_SENTINEL is {self._path} now: look at both"
            )

    def _boot(self) -> str:
        """The boot ID of the kernel that this runs on; empty where it cannot be read."""
        try:
            return self._host.boot_id.read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            return ""

    def _this_boot(self, machine: Machine) -> str:
        """The boot ID, which must be the Node's: else that is another machine's, or of an earlier boot."""
        boot = self._boot()
        if not boot or boot != machine.route.get("boot"):
            told = machine.route.get("boot") or "none"
            raise Retry(
                f"the boot ID here is {boot or 'unknown'}, and {_node(machine)} says {told}: kured is not "
                "asked before they agree"
            )
        return boot

    def _asked(self) -> bool:
        """Whether kured would find its sentinel. Raises ``Retry``, and ``Refused`` where it never could."""
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise Retry(f"{self._path} cannot be looked at: {error.strerror}") from None
        if not stat.S_ISREG(found.st_mode):
            raise Refused(f"KURED_SENTINEL: {self._path} is no file, and kured looks for one: remove it")
        return True

    def _may_write(self) -> None:
        """Raises ``Refused``."""
        folder = self._path.parent
        if not os.path.isdir(folder):
            raise Refused(
                f"KURED_SENTINEL: the directory {folder} is not there; mount the node's own into the agent's "
                "container, as deploy/baremetal/components/kured does"
            )
        if (kind := filesystem_of(folder, self._host.mounts)) not in ("tmpfs", "ramfs"):
            raise Refused(
                f"KURED_SENTINEL: {folder} is on {kind or 'a file system that is not known'}, which a reboot "
                "does not empty: kured would reboot the node again and again; expected a tmpfs, such as the "
                "node's /run"
            )
        effective = os.access in os.supports_effective_ids
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=effective):
            raise Refused(
                f"KURED_SENTINEL: the user {os.geteuid()} may not write to {folder}, or it is mounted "
                f"read-only; on the node: chown {os.geteuid()} {folder}"
            )


def filesystem_of(folder: Path, mounts: Path) -> str:
    """The type of the file system that ``folder`` is on, by proc(5)'s mountinfo; empty where unknown."""
    real, best, kind = os.path.realpath(folder), "", ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        ours, _, theirs = line.partition(" - ")
        fields = ours.split(" ")
        if len(fields) < 5 or not theirs:
            continue
        point = fields[4].replace("\\040", " ")
        if os.path.commonpath([real, point]) == point and len(point) >= len(best):
            best, kind = point, theirs.split(" ")[0]
    return kind


def _fate(path: Path, error: OSError) -> NodeRecoveryError:
    """What became of a sentinel that could not be left."""
    if error.errno in _LATER:
        return Retry(f"kured was not asked: {path} cannot be made now: {error.strerror}")
    if error.errno in _NEVER:
        return Refused(f"kured was not asked: {path} cannot be made: {error.strerror}")
    return Ambiguous(f"whether kured was asked is not known: {path}: {error.strerror}")


def _read(path: Path) -> str:
    """The beginning of a file. Neither a link nor a pipe in its place is followed or waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        return file.read(256).decode("utf-8", "replace")


def _node(machine: Machine) -> str:
    return machine.route.get("node", "") or f"the node of {machine}"


def _quote(text: object) -> str:
    told = str(text)
    return repr(told if len(told) <= 80 else told[:79] + "…")


def make(context: ProviderContext) -> KuredProvider:
    """The provider for this agent's node. In fleet mode no agent runs on a node, so this can do nothing.
    Raises ``SettingsError``."""
    afar = context.environ.get("RECOVERY_MODE") == "fleet"
    return KuredProvider(SENTINEL.of(context.environ), context.environ.get("NODE_NAME", ""), afar=afar)
