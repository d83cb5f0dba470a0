from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.rpc.peers.world import PeerWorld
from tests.rpc.security.conftest import authority, stranger

__all__ = ["authority", "stranger"]


@pytest.fixture
def world_of() -> Iterator[Callable[..., PeerWorld]]:
    """Makes worlds, which are closed with the test."""
    made: list[PeerWorld] = []

    def make(count: int = 2, **settings: Any) -> PeerWorld:
        made.append(PeerWorld(count, **settings))
        return made[-1]

    yield make
    for world in made:
        world.close()
