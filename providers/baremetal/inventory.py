"""Where the BMC of a machine is: by the file BMC_INVENTORY, which is read again when it changes.

A machine that is not in it may be found by annotations of its Node. Whoever may write those could have the
credentials sent anywhere. So an annotation is followed only to an IP address in BMC_NETWORKS, and never
without verification.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import urlsplit

import yaml

from providers.baremetal.machine import (
    BMC_ADDRESS,
    BMC_CREDENTIALS,
    EXPECTED,
    PLAIN_NAME,
    Bmc,
    Credentials,
    address_of,
    canonical,
    credentials_in,
)
from providers.baremetal.settings import CREDENTIALS, INVENTORY, NETWORKS
from recovery.errors import Refused, Retry, SettingsError
from recovery.model import GROUP, VERSION, Machine
from recovery.provider.address import literal
from recovery.provider.bounded_yaml import TooMuch, compose

log = logging.getLogger(__name__)

LARGEST = 1024 * 1024  # bytes
MOST_VALUES = 100_000  # some ten for each machine
_HEAD = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "BMCInventory"}
_SWITCH = {"true": True, "false": False}
_FIELDS = ("systemUUID", "node", "address", "credentials", "verify")


@dataclass(frozen=True)
class Entry:
    """One machine of the file. ``uuid`` is canonical; it or ``node`` may be empty.

    With both, the line holds for this node with this machine alone.
    """

    line: int
    bmc: Bmc
    uuid: str = ""
    node: str = ""


class _Known:
    """The machines of the file. Each UUID and each node is there once, as ``parse`` sees to."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self._by_uuid = {e.uuid: e for e in entries if e.uuid}
        self._by_node = {e.node: e for e in entries if e.node}

    def about(self, node: str, unique: str) -> list[Entry]:
        """What it says of the node, and of the machine that it claims to be: two lines at most."""
        by_uuid, by_node = self._by_uuid.get(unique), self._by_node.get(node)
        found = [by_uuid] if by_uuid is by_node else [by_uuid, by_node]
        return sorted((e for e in found if e is not None), key=lambda e: e.line)


NONE = _Known(())


class Inventory:
    """BMC_INVENTORY, BMC_CREDENTIALS and BMC_NETWORKS. Raises ``SettingsError`` with every mistake."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.path = INVENTORY.of(environ)
        self.directory = CREDENTIALS.of(environ)
        self._read_last: tuple[tuple[int, ...], _Known | SettingsError] = ((), NONE)
        """The file's stamp, and what it says. One value: BMCs are looked at in threads of their own."""
        mistakes: list[str] = []
        try:
            self._networks = NETWORKS.of(environ)
        except SettingsError as error:
            mistakes += error.mistakes
        try:
            self.entries()
        except SettingsError as error:
            mistakes += error.mistakes
        if mistakes:
            raise SettingsError(mistakes)

    def entries(self) -> tuple[Entry, ...]:
        """The machines of the file as it is now. Raises ``SettingsError``."""
        return self._now().entries

    def _now(self) -> _Known:
        if not self.path:
            return NONE
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise SettingsError([f"{self.path}: cannot be read: {error.strerror or error}"]) from None
        stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
        last = self._read_last
        if stamp != last[0]:
            last = self._read_last = (stamp, self._read())
        if isinstance(last[1], SettingsError):
            raise last[1]
        return last[1]

    def _read(self) -> _Known | SettingsError:
        """What the file says, or what is wrong with it. Raises ``SettingsError`` where it cannot be read,
        which says nothing of the file and may pass: so it is not kept."""
        try:
            with open(self.path, "rb") as file:
                found = parse(file.read(LARGEST + 1), self.path)
        except OSError as error:
            raise SettingsError([f"{self.path}: cannot be read: {error.strerror or error}"]) from None
        except SettingsError as error:
            return error
        for entry in found:
            if not entry.bmc.verify:
                log.warning(
                    "%s:%d: verify: false: whoever answers at %s is taken for the BMC, and gets its password",
                    *(self.path, entry.line, entry.bmc.host),
                )
        return _Known(found)

    # ------------------------------------------------------------ whose BMC

    def find(self, machine: Machine) -> Bmc:
        """The BMC of ``machine``: by the file, else by the Node's annotations.

        Raises ``Retry`` for a file that is broken, which concerns all machines and will be mended; and
        ``Refused``.
        """
        node, unique = machine.route.get("node", ""), canonical(machine.id)
        try:
            mine = self._now().about(node, unique)
        except SettingsError as error:
            more = f" (and {len(error.mistakes) - 1} more)" if len(error.mistakes) > 1 else ""
            raise Retry(
                f"the inventory of BMCs is broken, and nothing is powered by guess: {error.mistakes[0]}{more}"
            ) from None
        if len(mine) > 1:
            lines = " and ".join(str(e.line) for e in mine)
            raise Refused(f"{self.path}: lines {lines} are both about {node}; expected was one machine of it")
        if not mine:
            return self._annotated(machine, node)
        (e,) = mine
        if e.uuid and e.node and (e.uuid, e.node) != (unique, node):
            raise Refused(
                f"{self.path}: line {e.line} is about the machine {e.uuid} as {e.node}; {node} claims to be "
                f"the machine {unique or 'without a UUID'}, and nobody's BMC is asked: correct the line, or "
                "find out why the Node says so"
            )
        return e.bmc

    def _annotated(self, machine: Machine, node: str) -> Bmc:
        address, credentials = machine.route.get("bmc", ""), machine.route.get("bmc_credentials", "")
        if not address:
            where = self.path or "BMC_INVENTORY, which is not set"
            raise Refused(
                f"nothing says where the BMC of {node} is: it is not in {where}, and the Node has no "
                f"annotation {BMC_ADDRESS}"
            )
        what = f"the annotation {BMC_ADDRESS} of {node} is not followed"
        if not self._networks:
            raise Refused(f"{what}: BMC_NETWORKS names no network that it may lead to")
        bmc = address_of(address)
        if isinstance(bmc, str):
            raise Refused(f"{what}: found {bmc}; {EXPECTED}")
        self._check_followed(bmc, what)
        if not PLAIN_NAME.fullmatch(credentials):
            raise Refused(
                f"{what}: found {credentials[:80]!r} in {BMC_CREDENTIALS}; expected the name of a directory "
                f"below {self.directory}"
            )
        return Bmc(bmc.origin, bmc.path, credentials)

    def _check_followed(self, bmc: Bmc, what: str) -> None:
        parts = urlsplit(bmc.origin)
        found = literal(parts.hostname or "")
        if parts.scheme != "https" or found is None:
            raise Refused(f"{what}: found {bmc.origin}; expected https:// and an IP address")
        if not any(found in network for network in self._networks):
            told = ", ".join(map(str, self._networks))
            raise Refused(f"{what}: found {found}, which is in none of BMC_NETWORKS ({told})")

    @property
    def is_broken(self) -> bool:
        """Whether it cannot be read, or has a mistake."""
        try:
            self.entries()
        except SettingsError:
            return True
        return False

    @property
    def follows(self) -> bool:
        """Whether an annotation may lead to a BMC."""
        return bool(self._networks)

    def credentials_for(self, bmc: Bmc) -> Credentials:
        """The credentials for ``bmc``, read now. Raises ``Retry`` or ``Refused``."""
        return credentials_in(self.directory / bmc.credentials)


# ---------------------------------------------------------------- the file


def parse(content: bytes, path: str) -> tuple[Entry, ...]:
    """The machines in the bytes of a file. Raises ``SettingsError`` with every mistake and its line."""
    reader = _Reader()
    found = tuple(reader.machines(content))
    if reader.mistakes:
        ordered = sorted(set(reader.mistakes))
        raise SettingsError(
            [f"{path}:{line}: {text}" if line else f"{path}: {text}" for line, text in ordered]
        )
    return found


class _Fields(dict[str, yaml.Node]):
    """The values of one mapping by their keys, and where it stands."""

    def __init__(self, node: yaml.Node, where: str) -> None:
        super().__init__()
        self.node, self.where = node, where

    def named(self, name: str) -> str:
        return f"{self.where}.{name}".removeprefix(".")


class _Reader:
    """Walks over one document, and remembers what is wrong with it: (line, sentence)."""

    def __init__(self) -> None:
        self.mistakes: list[tuple[int, str]] = []
        self._first: dict[tuple[str, str], tuple[str, int]] = {}

    def machines(self, content: bytes) -> Iterator[Entry]:
        root = self._composed(content)
        fields = self._fields(root, "", (*_HEAD, "machines")) if root is not None else None
        if fields is None:
            return
        for name, wanted in _HEAD.items():
            found = self._text(fields, name)
            if found is not None and found != wanted:
                self._tell(fields[name], fields.named(name), f"found {_quoted(found)}, expected {wanted}")
        listed = fields.get("machines")
        if isinstance(listed, yaml.SequenceNode):
            for number, node in enumerate(listed.value):
                yield from self._machine(node, f"machines[{number}]")
        else:
            shown = f"found {_shown(listed)}, expected a list" if listed is not None else "missing"
            self._tell(listed or fields.node, "machines", shown)

    def _composed(self, content: bytes) -> yaml.Node | None:
        if len(content) > LARGEST:
            self.mistakes.append((0, f"larger than {LARGEST} bytes"))
            return None
        try:
            root = compose(content.decode("utf-8-sig"), MOST_VALUES)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            self.mistakes.append((line, f"not YAML: {error.problem}"))
            return None
        except TooMuch as error:
            self.mistakes.append((0, str(error)))
            return None
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
            self.mistakes.append((0, "not YAML, or not UTF-8 text"))
            return None
        if root is None:
            self.mistakes.append((0, "empty"))
        return root

    def _fields(self, node: yaml.Node, where: str, known: tuple[str, ...]) -> _Fields | None:
        """The fields of a mapping. Unknown and repeated ones are mistakes."""
        if not isinstance(node, yaml.MappingNode):
            self._tell(node, where, f"found {_shown(node)}, expected a mapping")
            return None
        found = _Fields(node, where)
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            if name not in known:
                near = get_close_matches(name, known, n=1, cutoff=0.6)
                hint = f'; did you mean "{near[0]}"?' if near else ""
                self._tell(key, found.named(name), f"unknown, expected one of {', '.join(known)}{hint}")
            elif name in found:
                self._tell(key, found.named(name), "given twice")
            else:
                found[name] = value
        return found

    def _machine(self, node: yaml.Node, where: str) -> Iterator[Entry]:
        fields, known = self._fields(node, where, _FIELDS), len(self.mistakes)
        if fields is None:
            return
        if not {"systemUUID", "node"} & fields.keys():
            self._tell(node, where, "expected systemUUID, or node, or both")
        uuid, name = self._uuid(fields), self._text(fields, "node", needed=False)
        bmc, credentials = self._address(fields), self._credentials(fields)
        verify = self._verify(fields)
        self._once(fields, "systemUUID", uuid)
        self._once(fields, "node", name)
        if bmc is not None and bmc.path:
            self._once(fields, "address", f"{bmc.origin}{bmc.path}")
        if len(self.mistakes) == known and bmc is not None and credentials is not None:
            line = node.start_mark.line + 1
            yield Entry(line, Bmc(bmc.origin, bmc.path, credentials, verify), uuid or "", name or "")

    def _uuid(self, fields: _Fields) -> str | None:
        text = self._text(fields, "systemUUID", needed=False)
        if text is None:
            return None
        unique = canonical(text)
        if not unique:
            what = "expected a machine's own UUID, as its Node has it in status.nodeInfo.systemUUID"
            self._tell(fields["systemUUID"], fields.named("systemUUID"), f"found {_quoted(text)}, {what}")
        return unique

    def _address(self, fields: _Fields) -> Bmc | None:
        text = self._text(fields, "address")
        found = address_of(text) if text is not None else None
        if isinstance(found, str):
            self._tell(fields["address"], fields.named("address"), f"found {found}; {EXPECTED}")
            return None
        return found

    def _credentials(self, fields: _Fields) -> str | None:
        name = self._text(fields, "credentials")
        if name is not None and not PLAIN_NAME.fullmatch(name):
            what = "expected the name of a directory below BMC_CREDENTIALS"
            self._tell(fields["credentials"], fields.named("credentials"), f"found {_quoted(name)}, {what}")
        return name

    def _verify(self, fields: _Fields) -> bool:
        node = fields.get("verify")
        if node is None:
            return True
        if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":bool") and node.value in _SWITCH:
            return _SWITCH[node.value]
        self._tell(node, fields.named("verify"), f"found {_shown(node)}, expected true or false")
        return True

    def _text(self, fields: _Fields, name: str, needed: bool = True) -> str | None:
        node = fields.get(name)
        if node is None:
            if needed:
                self._tell(fields.node, fields.named(name), "missing")
            return None
        if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":str") and node.value:
            return str(node.value)
        quote = (
            f"; quote it: {_quoted(node.value)}" if isinstance(node, yaml.ScalarNode) and node.value else ""
        )
        self._tell(node, fields.named(name), f"found {_shown(node)}, expected text{quote}")
        return None

    def _once(self, fields: _Fields, name: str, value: str | None) -> None:
        if not value:
            return
        here = (fields.named(name), fields[name].start_mark.line + 1)
        first = self._first.setdefault((name, value), here)
        if first != here:
            self._tell(fields[name], here[0], f"the same as {first[0]} on line {first[1]}")

    def _tell(self, node: yaml.Node, where: str, text: str) -> None:
        self.mistakes.append((node.start_mark.line + 1, f"field {where}: {text}" if where else text))


def _quoted(text: str) -> str:
    return json.dumps(text if len(text) <= 80 else text[:80] + "…", ensure_ascii=False)


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return _quoted(node.value) if node.value else "nothing"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
