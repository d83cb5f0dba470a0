"""The pytest plugin: fixtures ``logstore_store``, ``logstore_disk``, ``logstore_clock`` and ``logstore_broker``.

Nothing of the engine is imported before a test asks for it, and nothing of gRPC before one asks for a broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from logstore.store import LogStore
    from logstore.testing.clock import MovedClock
    from logstore.testing.disk import FaultyDisk

MARKER = "logstore(memory=False, **settings): how the fixture opens: `logstore_store` in memory, or with settings of"
BROKERS = "logstore.testing"
"""Entry points: ``broker`` gives a class of brokers for tests."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER} logstore.open(); `logstore_broker` with settings of the broker"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A broker takes some time to start, most of it for imports: the first one begins while tests still run."""
    if any("logstore_broker" in getattr(item, "fixturenames", ()) for item in items):
        found = _brokers()
        if found is not None:
            found.prepare()


def pytest_unconfigure() -> None:
    from sys import modules

    if "rpc.testing.broker" in modules:
        found = _brokers()
        if found is not None:
            found.end_spares()


@pytest.fixture
def logstore_disk() -> FaultyDisk:
    """The disk of ``logstore_store``: ``slow_s``, ``full``, ``broken``."""
    from logstore.testing.disk import FaultyDisk

    return FaultyDisk()


@pytest.fixture
def logstore_clock() -> MovedClock:
    """The clock of ``logstore_store``: ``advance(ms)``."""
    from logstore.testing.clock import MovedClock

    return MovedClock()


@pytest.fixture
def logstore_store(
    request: pytest.FixtureRequest, tmp_path: Path, logstore_disk: FaultyDisk, logstore_clock: MovedClock
) -> Iterator[LogStore]:
    """An empty store of the test's own, in a directory that goes with it; in memory with
    ``@pytest.mark.logstore(memory=True)``."""
    from logstore.store import LogStore

    settings: dict[str, Any] = {"clock": logstore_clock}
    marker = request.node.get_closest_marker("logstore")
    if marker is not None:
        settings.update(marker.kwargs)
    if settings.pop("memory", False):
        store = LogStore(":memory:", **settings)
    else:
        store = LogStore(tmp_path / "logstore", fs=logstore_disk, **settings)
    yield store
    logstore_disk.full = logstore_disk.broken = False
    store.close()


@pytest.fixture
def logstore_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A broker of the test's own: a process on a free port, with an empty store; see ``rpc.testing.broker``."""
    found = _brokers()
    if found is None:
        raise pytest.UsageError("logstore_broker needs gRPC: pip install 'logstore-engine[grpc]'")
    marker = request.node.get_closest_marker("logstore")
    broker = found(tmp_path / "logstore-broker", **({} if marker is None else marker.kwargs))
    yield broker
    broker.close()


def _brokers() -> Any:
    """The class of brokers for tests; None where gRPC is not installed."""
    for point in entry_points(group=BROKERS, name="broker"):
        try:
            return point.load()
        except ModuleNotFoundError:
            return None
    return None
