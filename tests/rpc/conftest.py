from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rpc.client.store import RemoteStore
from tests.rpc.served import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "store")
    yield served
    served.close()


@pytest.fixture
def client(served: Served) -> Iterator[RemoteStore]:
    with served.connect() as connected:
        yield connected
