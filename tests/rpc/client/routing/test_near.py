"""Which replica a reader is sent to, step by step: the time is a number."""

from __future__ import annotations

from logstore.types import TopicPartition
from rpc.client.routing.near import NearReplicas

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_replica_is_read_for_a_while() -> None:
    now_s = [0.0]
    near = NearReplicas("a", lambda: now_s[0])
    assert near.of(PLACE) is None
    assert near.rack_for(PLACE) == "a"
    near.prefer(PLACE, 2)
    assert (near.of(PLACE), near.of(OTHER)) == (2, None)
    assert near.rack_for(PLACE) == "a"
    now_s[0] = 61.0
    assert near.of(PLACE) is None
    assert near.rack_for(PLACE) == "a"


def test_after_a_failure_the_leader_is_read_and_names_none() -> None:
    now_s = [0.0]
    near = NearReplicas("a", lambda: now_s[0])
    near.prefer(PLACE, 2)
    assert not near.give_up(PLACE, 3)
    assert near.of(PLACE) == 2
    assert near.give_up(PLACE, 2)
    assert near.of(PLACE) is None
    assert near.rack_for(PLACE) == ""
    assert near.rack_for(OTHER) == "a"
    assert not near.give_up(PLACE, 2)
    now_s[0] = 6.0
    assert near.rack_for(PLACE) == "a"
