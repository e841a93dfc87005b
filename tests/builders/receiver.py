"""The receiver of a webhook, over real HTTP, and a webhook that tells it."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recovery.config.environment import Variables
from recovery.report.webhook import Webhook
from tests.builders.http_server import AnsweringServer, answering

SECRET = "/services/T0SECRET/B0SECRET/XXhunter2XX"  # noqa: S105 - where it must not be found
DEFAULT_EVENTS = Variables.read({"NODE_NAME": "n"}).WEBHOOK_EVENTS


class Receiver(AnsweringServer):
    """``pauses``: what the webhook would have slept, in seconds."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = folder / "url"
        self.pauses: list[float] = []

    def respond(self, path: str, asked: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, bytes]:
        return 200, b"ok"

    @property
    def told(self) -> list[Any]:
        return [json.loads(body) for body in self.bodies]

    def webhook(self, slack: bool = False, events: tuple[str, ...] = ("*",), ca_file: str = "") -> Webhook:
        """Time stands still for it."""
        return Webhook(
            str(self.file),
            slack,
            events,
            "prod",
            ca_file,
            sleep=self.pauses.append,
            monotonic=lambda: 100.0,
        )


@contextmanager
def receiving(folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    made = Receiver(folder)
    with answering(made, tls):
        made.file.write_text(f"{made.url}{SECRET}\n")
        yield made
