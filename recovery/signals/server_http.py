"""What asking a server has in common, whatever it is asked: a deadline, a bound in size, a token from a file.

The library ``requests`` by itself waits for ever, follows redirects, and takes proxies and passwords from the
environment. It is imported with the first question.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.deadline import adapter_class
from recovery.errors import NoAnswer, Unreadable

if TYPE_CHECKING:
    from requests import Response, Session

TIMEOUT = 10.0
"""Seconds for one question."""
MAX_BYTES = 32 * 1024 * 1024
"""Bytes of one answer, decompressed."""
LONGEST_TOKEN = 64 * 1024
LONGEST_WORD = 200
"""Characters that are shown of what a server says."""
_PIECE = 256 * 1024


def session(ca_file: str, keep: Callable[[Response, float], None]) -> Session:
    """A session without proxies, redirects and passwords of the environment.

    ``ca_file``: whom to trust; "" is the system's list. ``keep`` is given each answer, whose body is not read
    yet, and when it was asked for on the monotonic clock. It has to read the body.
    """
    from requests import Session
    from urllib3.exceptions import HTTPError

    class Bounded(Session):
        def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> Response:
            began = time.monotonic()
            try:
                response = super().request(
                    method, url, *args, **{**kwargs, "stream": True, "allow_redirects": False}
                )
            except HTTPError as error:  # requests lets some through, as for a name that no host can have
                raise NoAnswer(f"it cannot be asked: {type(error).__name__}") from None
            with response:
                keep(response, began)
            return response

    made = Bounded()
    for scheme in ("https://", "http://"):
        made.mount(scheme, adapter_class()())
    made.trust_env = False
    made.verify = ca_file or True
    return made


def headers(token_file: str, setting: str) -> dict[str, str]:
    """Those of a question. ``token_file``: of a bearer token, read each time, since it is rotated; "" for
    none. ``setting``: the variable that names it. Raises ``Unreadable``."""
    found = {"User-Agent": "node-recovery", "Accept": "application/json"}
    if token_file:
        found["Authorization"] = f"Bearer {_token(token_file, setting)}"
    return found


def body(response: Response, seconds: float, most: int = MAX_BYTES) -> bytes:
    """The whole body. Raises ``Unreadable`` where it has more than ``most`` bytes, or takes too long."""
    from urllib3.exceptions import HTTPError

    until, pieces, size = time.monotonic() + seconds, [], 0
    try:
        while piece := response.raw.read1(_PIECE, decode_content=True):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise Unreadable(f"the answer is longer than {most} bytes")
            if time.monotonic() > until:
                raise NoAnswer("no complete answer in time")
    except (HTTPError, OSError) as error:
        raise NoAnswer(f"the answer was cut: {type(error).__name__}") from None
    return b"".join(pieces)


def refusal(status: int, why: str) -> str:
    """An answer that is no success, as a sentence. ``why``: the server's own words, "" for none."""
    if 300 <= status < 400:
        why = "redirects are not followed"
    return f"the server answers {status}" + (f": {why[:LONGEST_WORD]}" if why else "")


def warned_of(answer: dict[str, Any]) -> str:
    """What the server says against its own answer; "" where it says nothing."""
    for name in ("warnings", "infos"):
        if told := answer.get(name):
            first = told[0] if isinstance(told, list) else told
            return f"the server says of its answer ({name}): {str(first)[:LONGEST_WORD]}"
    return ""


def said_in(body: bytes) -> str:
    """The error that a refusal names as Prometheus does; "" where it names none."""
    try:
        return str(json.loads(body)["error"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return ""


def said(error: Exception) -> str:
    """A foreign error as a sentence that stays the same while its cause does, and names no address."""
    from requests import ConnectionError as NotConnected
    from requests import Timeout
    from requests.exceptions import SSLError

    if isinstance(error, SSLError):
        return "its certificate is not trusted, or TLS failed"
    if isinstance(error, Timeout):
        return "it gave no answer in time"
    if isinstance(error, NotConnected):
        return "no connection"
    return type(error).__name__


def _token(path: str, setting: str) -> str:
    try:
        with Path(path).open("rb") as file:
            token = file.read(LONGEST_TOKEN).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise Unreadable(f"{setting} cannot be read: {type(error).__name__}") from None
    if not token or not token.isprintable() or " " in token:
        raise Unreadable(f"{setting} holds no token")
    return token
