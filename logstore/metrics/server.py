"""``MetricsServer``: ``GET /metrics`` over HTTP, from one thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final

from logstore.errors import LogStoreError, StorageError
from logstore.metrics.prometheus import CollectorRegistry, choose_encoder

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 5.0
"""How long the one thread waits for the next bytes of a scraper."""


class MetricsServer:
    """Serves from its making until ``close``, one scrape after the other. ``port``: 0 takes a free one.
    StorageError where the address cannot be listened on."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        try:
            self._server = _Server(registry, host, port)
        except OSError as error:
            raise StorageError(
                f"metrics cannot be served at {host}:{port}: {error.strerror or error}",
                hint="another process may use the port; port 0 takes any free one",
            ) from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="logstore-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """The scrape under way is answered. Safe to call again."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(HTTPServer):
    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        self.registry = registry
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Scrape)

    def handle_error(self, request: object, client_address: object) -> None:
        """A scraper that went away amid its answer."""
        del request
        logger.debug("a scrape by %s failed", client_address, exc_info=True)


class _Scrape(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE_S
    server_version = "logstore"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "metrics are at /metrics")
            return
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        try:
            body = encode(self.server.registry)
        except LogStoreError as error:
            logger.warning("a scrape failed: %s", error)
            self.send_error(503, f"{type(error).__name__}")
            return
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        logger.debug(format, *args)
