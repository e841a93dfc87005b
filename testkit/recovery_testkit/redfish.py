"""sushy-tools' emulator of BMCs, as a process of its own: ``sushy-emulator --fake``.

::

    with Emulator(folder, {"4c4c4544-0047-4a10-8051-b7c04f484433": "On"}) as emulator:
        ...                     # http://127.0.0.1:PORT/redfish/v1, as USERNAME with PASSWORD
        emulator.release()      # what was asked for is carried out at the next look

It is the real emulator with one change: its hardware takes 1 to 11 s at random, and here that time is set, so
that no test waits. The emulator's state is a file; ``Emulator`` reads and writes the same file.
"""

from __future__ import annotations

import datetime
import ipaddress
import pickle
import re
import sqlite3
import subprocess
import sysconfig
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

USERNAME, PASSWORD = "operator", "correct horse"
HELD, AT_ONCE = 3600, -1  # seconds that the hardware takes
_STARTED = 20.0  # seconds
_CONFIG = """
import pathlib, types
from sushy_tools.emulator.resources.systems import fakedriver

takes = pathlib.Path({takes!r})
fakedriver.random = types.SimpleNamespace(randint=lambda low, high: int(takes.read_text()))
SUSHY_EMULATOR_FAKE_SYSTEMS = []  # they are in its file, where it would add these again
SUSHY_EMULATOR_STATE_DIR = {folder!r}
SUSHY_EMULATOR_AUTH_FILE = {users!r}
SUSHY_EMULATOR_LISTEN_IP = "127.0.0.1"
SUSHY_EMULATOR_LISTEN_PORT = 0
SUSHY_EMULATOR_SSL_CERT = {certificate!r}
SUSHY_EMULATOR_SSL_KEY = {key!r}
"""


@dataclass(frozen=True)
class Certificate:
    """A server's certificate and key, and that of the authority that it is from: paths of PEM files."""

    certificate: Path
    key: Path
    authority: Path


class Emulator:
    """BMCs of ``systems``: UUID -> On or Off. What is asked of their power is held until ``release``."""

    def __init__(self, folder: Path, systems: Mapping[str, str], tls: Certificate | None = None) -> None:
        self._folder, self._given, self._tls = folder, dict(systems), tls
        self._log, self._takes = folder / "log", folder / "takes"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    def start(self) -> Emulator:
        import bcrypt

        self._folder.mkdir(parents=True, exist_ok=True)
        users, config = self._folder / "users", self._folder / "config.py"
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(rounds=4)).decode()
        users.write_text(f"{USERNAME}:{hashed}\n")
        with self._shared() as file:
            file.execute("create table cache (key blob primary key not null, value blob not null)")
        self.reset()
        given: dict[str, Any] = {
            "takes": str(self._takes),
            "folder": str(self._folder),
            "users": str(users),
            "certificate": str(self._tls.certificate) if self._tls else None,
            "key": str(self._tls.key) if self._tls else None,
        }
        config.write_text(_CONFIG.format(**given))
        command = [f"{sysconfig.get_path('scripts')}/sushy-emulator", "--fake", "--config", str(config)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
        self.port = self._listening()
        return self

    def _listening(self) -> int:
        """The port, which it says when it has it."""
        assert self._process is not None
        until = time.monotonic() + _STARTED
        while time.monotonic() < until and self._process.poll() is None:
            if found := re.search(r"Running on https?://127\.0\.0\.1:(\d+)", self._log.read_text()):
                return int(found[1])
            time.sleep(0.02)
        self.stop()
        raise RuntimeError(f"the emulator did not start: {self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Emulator:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ------------------------------------------------------------ what was asked

    @property
    def requests(self) -> tuple[str, ...]:
        """``POST /redfish/v1/...`` of every request that was answered, in order."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", self._log.read_text())  # it colours what is not 200
        return tuple(re.findall(r'"((?:GET|POST|PATCH|PUT|DELETE) \S+) HTTP', plain))

    # ------------------------------------------------------------ the hardware

    def hold(self) -> None:
        """From now on what is asked for is accepted, and not carried out."""
        self._takes.write_text(str(HELD))

    def release(self) -> None:
        """What was asked for, and what will be, is carried out at once."""
        self._takes.write_text(str(AT_ONCE))
        for uuid, system in self._state().items():
            if pending := system.get("pending_power"):
                self.change(uuid, pending_power={**pending, "apply_time": 0})

    def power(self, system: str) -> str:
        """As it is now, with nothing carried out by looking."""
        return str(self._state()[system]["power_state"])

    def pending(self, system: str) -> str:
        """What was asked for and is not carried out, empty for nothing."""
        return str((self._state()[system].get("pending_power") or {}).get("power_state", ""))

    def change(self, system: str, **values: Any) -> None:
        """Something of a system that is there, by the emulator's own names (``power_state``, ``uuid``)."""
        self._write({system: {**self._state()[system], **values}})

    def reset(self, *only: str) -> None:
        """All as it was at the start, and held; of the systems ``only`` these, where some are named."""
        self.hold()
        given = {uuid: _system(uuid, power) for uuid, power in self._given.items()}
        self._write({uuid: value for uuid, value in given.items() if not only or uuid in only}, only=True)

    # The file is that of ``sushy_tools.emulator.memoize.PersistentDict``, which leaves connections open.

    @contextmanager
    def _shared(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._folder / "fakedriver.sqlite")) as file, file:
            yield file

    def _state(self) -> dict[str, dict[str, Any]]:
        with self._shared() as file:
            rows = file.execute("select key, value from cache").fetchall()
        return {pickle.loads(key): pickle.loads(value) for key, value in rows}  # noqa: S301 (its own)

    def _write(self, systems: Mapping[str, dict[str, Any]], only: bool = False) -> None:
        with self._shared() as file:
            if only:
                file.execute("delete from cache")
            rows = [(pickle.dumps(uuid), pickle.dumps(value)) for uuid, value in systems.items()]
            file.executemany("insert or replace into cache values (?, ?)", rows)


def _system(uuid: str, power: str) -> dict[str, Any]:
    nics = [{"mac": "00:5c:52:31:3a:9c", "ip": "172.22.0.100"}]
    return {
        "uuid": uuid,
        "name": f"system-{uuid[-4:]}",
        "power_state": power,
        "external_notifier": False,
        "nics": nics,
    }


def certify(folder: Path) -> Certificate:
    """A new authority, and a server's certificate of it for 127.0.0.1, good for an hour."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("authority", "server")}
    names = {n: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"test {n}")]) for n in keys}
    # Python 3.13 and later take no certificate without these: RFC 5280, 4.2.1.
    theirs = keys["authority"].public_key()
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    more: dict[str, list[tuple[x509.ExtensionType, bool]]] = {
        "authority": [(x509.SubjectKeyIdentifier.from_public_key(theirs), False), (signs, True)],
        "server": [(x509.AuthorityKeyIdentifier.from_issuer_public_key(theirs), False), (here, False)],
    }
    made = {}
    for name, key in keys.items():
        builder = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["authority"])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=name == "authority", path_length=None), critical=True)
        )
        for extension, critical in more[name]:
            builder = builder.add_extension(extension, critical=critical)
        made[name] = builder.sign(keys["authority"], hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    found = Certificate(folder / "server.crt", folder / "server.key", folder / "ca.crt")
    found.certificate.write_bytes(made["server"].public_bytes(pem))
    found.authority.write_bytes(made["authority"].public_bytes(pem))
    shape = serialization.PrivateFormat.PKCS8
    found.key.write_bytes(keys["server"].private_bytes(pem, shape, plain))
    return found
