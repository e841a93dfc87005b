"""One POST to a URL that is a secret: bounded in time and size, and no error names the URL.

Redirects are not followed: they would take the secret elsewhere. HTTPS_PROXY and NO_PROXY are obeyed; a proxy
learns the host and nothing else.
"""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from recovery.errors import Refused, Retry, Unreadable
from recovery.signals.bounded_http import BoundedSocket, Budget, dial

PAUSE = timedelta(seconds=1)
"""Before the next try, where the receiver says nothing else."""
SECONDS = 5.0
"""For one POST: connecting, sending, and the beginning of the answer."""
MOST_ANSWER = 16 * 1024
"""Bytes of headers and body that are read of an answer."""
MOST_BODY = 1024


@dataclass(frozen=True)
class Answer:
    """``retry_after``: seconds. ``body``: its beginning, which may repeat the URL: never for a log."""

    status: int
    retry_after: float | None
    body: bytes


def usable(text: str) -> SplitResult:
    """The URL, https or on this host. Raises ``ValueError``, whose text is what to expect, never the URL."""
    wanted = "one https:// URL, without a user name (http:// only for this host)"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ValueError(wanted) from None
    sound = (
        text.isascii()
        and text.isprintable()
        and " " not in text
        and parts.hostname
        and "@" not in parts.netloc
    )
    if not sound or parts.scheme not in ("https", "http"):
        raise ValueError(wanted)
    if parts.scheme == "http" and not _loopback(parts.hostname or ""):
        raise ValueError(wanted)
    return parts


def post(url: SplitResult, headers: Mapping[str, str], body: bytes, ca_file: str = "") -> Answer:
    """Send ``body`` once. ``ca_file``: whom to trust; "" is the system's list.

    Raises ``Retry`` where there is no answer. It may have arrived all the same.
    """
    budget = Budget(SECONDS, MOST_ANSWER)
    try:
        sock = _connected(url, budget, ca_file)
        try:
            return _exchange(url, headers, body, BoundedSocket(sock, budget))
        finally:
            sock.close()
    except (Retry, Refused):
        raise
    except ssl.SSLCertVerificationError:
        raise _no_answer("the receiver's certificate is not trusted") from None
    except Unreadable as error:
        raise _no_answer(f"the receiver: {error.reason}") from None
    except TimeoutError:
        raise _no_answer(f"the receiver gave no answer within {SECONDS:g} s") from None
    except Exception as error:  # the text of some, such as InvalidURL, holds the secret
        what = type(error).__name__
        raise _no_answer(f"the receiver could not be reached, or gave no answer: {what}") from None


def _exchange(url: SplitResult, headers: Mapping[str, str], body: bytes, sock: BoundedSocket) -> Answer:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    connection.sock = cast("socket.socket", sock)
    connection.request("POST", target, body=body, headers=dict(headers))
    with connection.getresponse() as answer:
        after = answer.headers.get("Retry-After", "")
        seconds = float(after) if after.isascii() and after.isdigit() and len(after) < 10 else None
        return Answer(answer.status, seconds, answer.read(MOST_BODY))


def _connected(url: SplitResult, budget: Budget, ca_file: str) -> socket.socket:
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    if url.scheme == "http":
        return dial(host, port, budget)
    proxy = getproxies_environment().get("https", "")
    if proxy and not proxy_bypass(host):
        sock = _through(proxy, host, port, budget)
    else:
        sock = dial(host, port, budget)
    try:
        sock.settimeout(budget.left())
        return ssl.create_default_context(cafile=ca_file or None).wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


def _through(proxy: str, host: str, port: int, budget: Budget) -> socket.socket:
    """A connection to the receiver through an HTTP proxy."""
    at = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if at.scheme != "http" or not at.hostname:
        raise Refused("HTTPS_PROXY: found no address of an HTTP proxy; expected http://HOST:PORT")
    sock = dial(at.hostname, at.port or 80, budget)
    try:
        there = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {there} HTTP/1.1", f"Host: {there}"]
        if at.username:
            user = f"{unquote(at.username)}:{unquote(at.password or '')}".encode()
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(user).decode()}")
        bounded = BoundedSocket(sock, budget)
        bounded.sendall("\r\n".join([*lines, "", ""]).encode())
        with http.client.HTTPResponse(cast("socket.socket", bounded), method="CONNECT") as answer:
            answer.begin()
        if answer.status != http.client.OK:
            raise _no_answer(f"HTTPS_PROXY: the proxy answers {answer.status}")
    except BaseException:
        sock.close()
        raise
    return sock


def _no_answer(why: str) -> Retry:
    return Retry(why, PAUSE)


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
