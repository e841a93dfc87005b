"""The way to Azure: whom to trust, and through which proxy.

The Azure SDK uses ``requests``. So requests without an SDK trust the same authorities and take the same
proxy: REQUESTS_CA_BUNDLE, else certifi's authorities; HTTPS_PROXY and NO_PROXY, which AKS sets in every pod
of a cluster with an HTTP proxy (AKS documentation, "HTTP proxy support").
"""

from __future__ import annotations

import os
import ssl
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi
import urllib3

from recovery.deadline import bound
from recovery.errors import Refused
from recovery.provider.address import is_loopback


def trust() -> ssl.SSLContext:
    """The certificate authorities to trust. Loading them is slow: keep the result. Raises ``Refused``."""
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
    """Connections to a checked ``endpoint``, through a proxy where one is set. Raises ``Refused``.

    A request's read time-out is that of its whole answer.
    """
    proxy = _proxy(urlsplit(endpoint))
    if not proxy:
        return bound(urllib3.PoolManager(ssl_context=trusted))
    try:
        auth = urllib3.util.parse_url(proxy).auth
        headers = urllib3.make_headers(proxy_basic_auth=unquote(auth)) if auth else None
        return bound(urllib3.ProxyManager(proxy, proxy_headers=headers, ssl_context=trusted))
    except urllib3.exceptions.LocationValueError:  # its text would repeat a password
        raise Refused("HTTPS_PROXY: found no address of an HTTP proxy; expected http://HOST:PORT") from None


def _proxy(parts: SplitResult) -> str:
    """The proxy's address; empty for none."""
    host = parts.hostname or ""
    if parts.scheme != "https" or is_loopback(host) or proxy_bypass(host):
        return ""
    proxy = getproxies().get("https", "")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"
