"""An HTTP server behind the API server's certificate, whose clients are killed at any moment."""

from __future__ import annotations

import ssl
from http.server import ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler
from typing import Any


def of_the_api_server(folder: Path) -> ssl.SSLContext:
    """A server's side of TLS with the API server's certificate, which is in ``folder``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "apiserver.crt", folder / "apiserver.key")
    return context


class TlsServer(ThreadingHTTPServer):
    """Listens on a free port of the loopback interface. ``context`` None: without TLS."""

    def __init__(self, handler: type[BaseRequestHandler], context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._context = context

    def get_request(self) -> tuple[Any, Any]:
        """The next connection. Of a client that was killed while it waited here, ``wrap_socket`` raises, and
        leaves a socket open that nobody has: so that is asked first."""
        plain, address = super().get_request()
        try:
            plain.getpeername()
        except OSError:
            plain.close()
            raise
        if self._context is None:
            return plain, address
        return self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), address
