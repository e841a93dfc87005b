"""Where Azure is, and the way there: addresses that a token may be sent to, whom to trust, and through what.

The Azure SDK goes over ``requests``, so what is asked without an SDK trusts and is routed as that does:
REQUESTS_CA_BUNDLE, else certifi's authorities; HTTPS_PROXY and NO_PROXY, which AKS sets in every pod of a
cluster with an HTTP proxy (AKS documentation, "HTTP proxy support").
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi
import urllib3

from recovery.errors import Refused, SettingsError

_EXPECTED = "expected https:// and a host, with a port at most (http:// on loopback only)"
_PRINTABLE = re.compile(r"[!-\[\]-~]*")  # ASCII without blanks and backslash
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


# ---------------------------------------------------------------- addresses


def checked_endpoint(value: str, name: str) -> str:
    """The address in setting ``name``, in lower case and without a slash at its end.

    A bearer token is sent there, hence https, and nothing that could lead elsewhere. Raises
    ``SettingsError``, which repeats no more of ``value`` than scheme, host and path.
    """
    if found := _unfit(value):
        raise SettingsError([f"{name}: found {found}; {_EXPECTED}"])
    parts = urlsplit(value)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _unfit(value: str) -> str:
    """What is wrong with the address; empty for nothing."""
    if not value:
        return "nothing"
    if not _PRINTABLE.fullmatch(value):
        return "a blank, or another character that no address holds"
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "what is no address"
    if "@" in parts.netloc:
        return "a user name or password"
    if "?" in value or "#" in value:
        return "a query or a fragment"
    if parts.scheme not in ("http", "https"):
        return f"{value[:80]!r}, which begins with neither"
    return _unfit_host(parts, host)


def _unfit_host(parts: SplitResult, host: str) -> str:
    if not (_HOST.fullmatch(host) or _address(host)) or parts.netloc.endswith(":"):
        return f"{parts.netloc[:80]!r} for a host"
    if parts.path not in ("", "/"):
        return f"the path {parts.path[:80]!r}"
    if parts.scheme == "http" and not is_loopback(host):
        return f"http://{host}, over which a token could be read by others"
    return ""


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine, by its name or address alone."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


# ---------------------------------------------------------------- the way there


def trust() -> ssl.SSLContext:
    """By whom Azure must be certified. To be made once and kept: it costs. Raises ``Refused``."""
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or certifi.where()
    try:
        if os.path.isdir(bundle):
            return ssl.create_default_context(capath=bundle)
        return ssl.create_default_context(cafile=bundle)
    except OSError as error:  # ssl.SSLError is one
        raise Refused(
            f"REQUESTS_CA_BUNDLE: found {bundle[:200]!r}, which cannot be used "
            f"({error.strerror or type(error).__name__}); expected a file or folder of certificates"
        ) from None


def pool_to(endpoint: str, trusted: ssl.SSLContext | None) -> urllib3.PoolManager:
    """Connections to a checked ``endpoint``, through a proxy where one is set. Raises ``Refused``."""
    proxy = _proxy(urlsplit(endpoint))
    if not proxy:
        return urllib3.PoolManager(ssl_context=trusted)
    try:
        auth = urllib3.util.parse_url(proxy).auth
        headers = urllib3.make_headers(proxy_basic_auth=unquote(auth)) if auth else None
        return urllib3.ProxyManager(proxy, proxy_headers=headers, ssl_context=trusted)
    except urllib3.exceptions.LocationValueError:  # its text would repeat a password
        raise Refused("HTTPS_PROXY: found no address of an HTTP proxy; expected http://HOST:PORT") from None


def _proxy(parts: SplitResult) -> str:
    """The proxy's address; empty for none."""
    host = parts.hostname or ""
    if parts.scheme != "https" or is_loopback(host) or proxy_bypass(host):
        return ""
    proxy = getproxies().get("https", "")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"
