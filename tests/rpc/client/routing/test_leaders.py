"""``Leaders``: which node a request goes to, while the metadata changes."""

from __future__ import annotations

from itertools import cycle
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from logstore.types import TopicPartition
from rpc.client.routing.brokers import NOBODY
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


class _Known:
    def __init__(self, leaders: tuple[int, ...]) -> None:
        self._leaders = leaders

    def topic(self, name: str) -> Any:
        assert name == "t"
        return SimpleNamespace(partitions=3, leaders=self._leaders, leader_epochs=(0,) * 3)


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


@pytest.mark.parametrize(
    ("leaders", "deposed"),
    [
        ((1, 1, 1), False),
        ((1, 2, 3), False),
        ((2, 2, 3), True),
        ((2, NOBODY, NOBODY), True),
        ((1, NOBODY, 2), False),
        ((NOBODY, NOBODY, NOBODY), False),
    ],
)
def test_a_node_that_leads_some_of_what_it_was_sent_is_waited_for(
    leaders: tuple[int, ...], deposed: bool
) -> None:
    """Where leaders of many partitions change one after the other no request to any of them would be answered."""
    brokers: Any = None
    metadata: Any = _Known(leaders)
    places = [TopicPartition("t", partition) for partition in range(3)]
    assert Leaders(brokers, metadata).is_deposed(1, places) == deposed
