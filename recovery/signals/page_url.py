"""Whether a URL leads to this node's own page: only loopback and the Node's own addresses do."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Iterable
from urllib.parse import urlsplit


def resolve(name: str) -> list[str]:
    """All addresses of a host name, as the system resolves it. Raises OSError."""
    return sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})


def check_url(
    url: str, node_addresses: Collection[str], resolver: Callable[[str], Iterable[str]] = resolve
) -> str | None:
    """Why this URL may not be read as this node's page, or None.

    ``node_addresses`` are the Node's addresses of any type. Names among them are ignored: what counts is the
    address that a name resolves to.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        return f"NPD_METRICS_URL {url!r} is no URL: {error}"
    if parts.scheme not in ("http", "https"):
        return f"NPD_METRICS_URL {url!r} must begin with http:// or https://"
    if not host:
        return f"NPD_METRICS_URL {url!r} names no host"
    if parts.username is not None:
        return "NPD_METRICS_URL must not hold a user name or password"
    return _check_host(host, addresses_of(node_addresses), resolver)


def _check_host(host: str, own: frozenset[str], resolver: Callable[[str], Iterable[str]]) -> str | None:
    if _plain(host) is None:
        try:
            found = list(resolver(host))
        except (OSError, UnicodeError) as error:
            return f"the host {host} of NPD_METRICS_URL does not resolve: {error}"
    else:
        found = [host]
    foreign = [address for address in found if not is_own(address, own)]
    if found and not foreign:
        return None
    what = f"{host} ({', '.join(foreign)})" if foreign and foreign != [host] else host
    return f"NPD_METRICS_URL leads to {what}, which is neither loopback nor one of this node's own addresses"


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address without its zone, an IPv4-mapped IPv6 address as IPv4; None for what is no IP address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def addresses_of(addresses: Collection[str]) -> frozenset[str]:
    """The IP addresses among a Node's addresses, in the form that ``is_own`` compares."""
    return frozenset(str(plain) for a in addresses if (plain := _plain(a)) is not None)


def is_own(address: str, own: frozenset[str]) -> bool:
    """Whether an IP address is loopback or one of ``own``."""
    plain = _plain(address)
    return plain is not None and (plain.is_loopback or str(plain) in own)
