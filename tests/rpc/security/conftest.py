from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rpc.security.authority import Authority, Pair
from tests.rpc.security.secured import Secured


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nothing trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"), "strangers")


@pytest.fixture(scope="session")
def pair(authority: Authority) -> Pair:
    """The broker's."""
    return authority.issue_for_broker()


@pytest.fixture
def secured(tmp_path: Path, pair: Pair, authority: Authority) -> Iterator[Secured]:
    with Secured(tmp_path / "store", pair, authority) as served:
        yield served
