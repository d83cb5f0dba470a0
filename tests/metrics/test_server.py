"""GET /metrics: formats, other paths, a failed scrape, an address in use, a scraper that sends nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from urllib.error import HTTPError

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.registry import Collector

import logstore.metrics.server as module
from logstore.errors import StorageError, StoreClosedError
from logstore.metrics import MetricsServer


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("answer", "Of a test.", registry=registry).set(42)
    return registry


@pytest.fixture
def server(registry: CollectorRegistry) -> Iterator[MetricsServer]:
    server = MetricsServer(registry, "127.0.0.1", 0)
    yield server
    server.close()


def get(server: MetricsServer, path: str = "/metrics", accept: str = "") -> tuple[str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_both_formats(server: MetricsServer) -> None:
    kind, text = get(server)
    assert kind.startswith("text/plain")
    assert "\nanswer 42.0\n" in text
    kind, text = get(server, "/metrics?name=x", "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_what_is_not_there(server: MetricsServer) -> None:
    for path, data in (("/", None), ("/metrics/x", None), ("/metrics", b"posted")):
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", data, timeout=30)
        assert refused.value.code == (404 if data is None else 501)
        refused.value.close()


def test_a_scrape_that_fails_is_named_and_the_next_one_served(
    server: MetricsServer, registry: CollectorRegistry
) -> None:
    class Closed(Collector):
        def describe(self):  # type: ignore[no-untyped-def]
            return []

        def collect(self):  # type: ignore[no-untyped-def]
            raise StoreClosedError("the store is closed")

    closed = Closed()
    registry.register(closed)
    with pytest.raises(HTTPError, match="503: StoreClosedError") as refused:
        get(server)
    refused.value.close()
    registry.unregister(closed)
    assert "answer 42.0" in get(server)[1]


def test_an_address_in_use_is_named(server: MetricsServer, registry: CollectorRegistry) -> None:
    with pytest.raises(StorageError, match=f"127.0.0.1:{server.port}: Address already in use"):
        MetricsServer(registry, "127.0.0.1", server.port)


def test_a_scraper_that_sends_nothing_is_left(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module._Scrape, "timeout", 0.05)
    server = MetricsServer(registry, "127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        assert "answer 42.0" in get(server)[1]
        assert silent.recv(1) == b""
    server.close()


def test_without_the_package_the_extra_is_named() -> None:
    program = "import sys; sys.modules['prometheus_client'] = None; import logstore.metrics"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("logstore.errors.MissingExtraError: metrics need")
    assert "logstore-engine[metrics]" in done.stderr
