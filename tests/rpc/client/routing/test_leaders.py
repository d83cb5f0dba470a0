"""``Leaders``: which node a request goes to, while the metadata changes."""

from __future__ import annotations

from itertools import cycle
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from rpc.client.routing.leaders import Leaders


class _Batch(NamedTuple):
    topic: str
    partition: int


class _Moving:
    """Metadata in which every partition has another leader at each look."""

    def __init__(self, nodes: list[int]) -> None:
        self._nodes = cycle(nodes)

    def topic(self, name: str) -> Any:
        assert name == "t"
        return SimpleNamespace(partitions=3, leaders=(next(self._nodes),) * 3, leader_epochs=(0,) * 3)


@pytest.mark.parametrize("nodes", [[1, 2], [1, 2, 3], [3, -1]])
def test_a_request_never_tears_a_partition_apart(nodes: list[int]) -> None:
    """Its batches would race each other at two nodes, and the later ones could be in first."""
    wanted = [_Batch("t", number % 3) for number in range(30)]
    brokers: Any = None
    metadata: Any = _Moving(nodes)
    parts = Leaders(brokers, metadata).split(wanted)
    nodes_of: dict[int, set[int]] = {}
    for node, places in parts.items():
        assert places == sorted(places)
        for place in places:
            nodes_of.setdefault(wanted[place].partition, set()).add(node)
    assert all(len(found) == 1 for found in nodes_of.values())
    assert sorted(place for places in parts.values() for place in places) == list(range(30))
