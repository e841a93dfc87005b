"""The second witness ``neuron-sysfs``: the error counters that the Neuron driver reads from its devices.

``neuron*/stats/hardware/*`` below ``ROOT``, a number in each (neuron_sysfs_metrics.c of the driver 2.24).
sysfs is in every container, read-only, and anybody may read it: nothing has to be mounted. What the driver
cannot read from a device it shows as 0, so 0 is never proof that a device is well.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from recovery.catalog import spoken_of
from recovery.model import Says, Statement

NAME = "neuron-sysfs"
ROOT = Path("/sys/devices/virtual/neuron_device")
DEADLINE = 5.0
"""Seconds: a device that hangs answers its driver late, or never."""
MOST_DEVICES = 64
LONGEST = 32  # bytes of one counter


class NeuronSysfs:
    """Reads the counters that say something of given reasons."""

    def __init__(self, root: Path = ROOT, deadline: float = DEADLINE) -> None:
        self._root = root
        self._deadline = deadline
        self._reading: threading.Thread | None = None

    def __call__(self, reasons: Iterable[str]) -> Statement:
        """What the counters say of these ``reasons``. Takes ``deadline`` seconds at most. Never raises."""
        if self._reading is not None and self._reading.is_alive():
            return Statement(Says.UNREADABLE, "the Neuron driver has not answered since it was last asked")
        counters = sorted({c for reason in reasons for c in spoken_of(NAME, reason)})
        answer: list[Statement] = []
        self._reading = threading.Thread(
            target=lambda: answer.append(self._read(counters)), name=NAME, daemon=True
        )
        self._reading.start()
        self._reading.join(self._deadline)
        late = f"the Neuron driver did not answer within {self._deadline:g} s"
        return answer[0] if answer else Statement(Says.UNREADABLE, late)

    def _read(self, counters: list[str]) -> Statement:
        try:
            devices = sorted(self._root.glob("neuron[0-9]*"))[:MOST_DEVICES]
        except OSError as error:
            return Statement(Says.UNREADABLE, f"{self._root} cannot be read: {error.strerror or error}")
        found = [(device.name, name, self._counter(device, name)) for device in devices for name in counters]
        high = [f"{name} of {device} is {n}" for device, name, n in found if isinstance(n, int) and n > 0]
        if high:
            return Statement(Says.AGREES, ", ".join(high[:4]))
        if all(n is None for _, _, n in found):
            return Statement(Says.ABSENT, f"no Neuron device here shows {' or '.join(counters)}")
        odd = [f"{name} of {device} {n}" for device, name, n in found if isinstance(n, str)]
        shown = {name for _, name, n in found if n is not None}
        odd += [f"{name} of {device} is gone" for device, name, n in found if n is None and name in shown]
        if odd:
            return Statement(Says.UNREADABLE, odd[0])
        where = f"all {len(devices)} devices" if len(devices) > 1 else devices[0].name
        return Statement(Says.DISAGREES, f"{' and '.join(sorted(shown))} of {where} is 0")

    def _counter(self, device: Path, name: str) -> int | str | None:
        """The counter; what is wrong with it; or None where this driver does not have it."""
        try:
            with (device / "stats" / "hardware" / name).open("rb") as file:
                text = file.read(LONGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"
        return int(text) if text.strip().isdigit() else f"is no number: {text!r}"
