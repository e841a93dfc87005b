"""Addresses that a secret may be sent to: a scheme, a host, and nothing that could lead elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

NO_SCHEME = "neither http:// nor https:// at its beginning"
_PRINTABLE = r"[!-\[\]-~]*"  # ASCII without blanks and backslash
_HOST = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"


@dataclass(frozen=True)
class Address:
    """``origin`` is scheme, host and port in lower case; ``path`` is as it was given, "" for "/"."""

    origin: str
    host: str
    path: str

    @property
    def readable(self) -> bool:
        """Whether others could read what is sent there: http, and not to this machine."""
        return self.origin.startswith("http:") and not is_loopback(self.host)


def parsed(text: str) -> Address | str:
    """The address, or what is wrong with it, without a password that may be in it.

    It is ``NO_SCHEME`` if the text has none. Which path is valid, and whether the address may be
    ``readable``, is for the provider to say.
    """
    if not text:
        return "nothing"
    if not re.fullmatch(_PRINTABLE, text):
        return "a blank, or another character that no address holds"
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "what is no address"
    if "@" in parts.netloc:
        return "a user name or password"
    if "?" in text or "#" in text:
        return "a query or a fragment"
    if parts.scheme not in ("http", "https"):
        return NO_SCHEME
    if not (re.fullmatch(_HOST, host) or literal(host)) or parts.netloc.endswith(":"):
        return f"{parts.netloc[:80]!r} for a host"
    path = "" if parts.path == "/" else parts.path
    return Address(f"{parts.scheme}://{parts.netloc}".lower(), host, path)


def is_at(url: str, origin: str) -> bool:
    """Whether ``url`` leads to ``origin``, an ``Address``'s. A server may name the port that its scheme has
    anyway where it says how to go on, or leave it out."""
    port = ":443" if origin.startswith("https:") else ":80"
    host = origin.removesuffix(port)
    return url.lower().startswith((f"{host}/", f"{host}{port}/"))


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine, by its name or address alone."""
    found = literal(host)
    return host == "localhost" or (found is not None and found.is_loopback)


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """The IP address that ``host`` is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None
