"""``Deliveries``: when a node counts as behind with another one's messages."""

from __future__ import annotations

from replication.deliveries import Deliveries

NOBODY: frozenset[int] = frozenset()


def test_a_delivery_over_a_whole_tick_is_behind() -> None:
    deliveries = Deliveries(10)
    assert deliveries.look(1.0) == NOBODY
    deliveries.begin(2, 1.05)
    assert deliveries.look(1.1) == NOBODY, "half of the time since the last look"
    assert deliveries.look(1.2) == {2}
    deliveries.end(2, 1.29)
    assert deliveries.look(1.3) == {2}, "nine tenths of it"
    assert deliveries.look(1.4) == NOBODY


def test_many_short_deliveries_are_behind_if_nothing_lies_between_them() -> None:
    deliveries = Deliveries(10)
    deliveries.look(0.0)
    for number in range(100):
        deliveries.begin(2, number / 1000)
        deliveries.end(2, (number + 0.95) / 1000)
        deliveries.begin(3, number / 1000)
        deliveries.end(3, (number + 0.5) / 1000)
    assert deliveries.look(0.1) == {2}


def test_two_streams_of_one_node_count_once() -> None:
    deliveries = Deliveries(10)
    deliveries.look(0.0)
    deliveries.begin(2, 0.0)
    deliveries.begin(2, 0.1)
    deliveries.end(2, 0.5)
    deliveries.end(2, 0.6)
    assert deliveries.look(1.0) == NOBODY
    deliveries.begin(2, 1.0)
    deliveries.begin(2, 1.1)
    deliveries.end(2, 1.2)
    assert deliveries.look(2.0) == {2}


def test_a_node_is_waited_for_only_so_long() -> None:
    deliveries = Deliveries(3)
    deliveries.look(0.0)
    deliveries.begin(2, 0.0)
    assert [deliveries.look(number) for number in (1.0, 2.0, 3.0, 4.0, 5.0)] == [
        {2},
        {2},
        {2},
        NOBODY,
        NOBODY,
    ]
    deliveries.end(2, 5.1)
    assert deliveries.look(6.0) == NOBODY
    deliveries.begin(2, 6.0)
    assert deliveries.look(7.0) == {2}, "it has caught up in between"


def test_two_looks_at_one_time_say_nothing() -> None:
    deliveries = Deliveries(3)
    deliveries.begin(2, 0.0)
    deliveries.look(1.0)
    assert deliveries.look(1.0) == NOBODY
