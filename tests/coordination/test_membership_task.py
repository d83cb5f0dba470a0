"""Members of several processes that live, stop, die, and come back: step by step, on a clock moved by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from logstore.client.consumer.consumer import Consumer
from logstore.errors import GroupBusyError, MemberFencedError, UnknownMemberError
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.client.group_worlds import GroupWorld, drain, fill, numbers

Reader: TypeAlias = Consumer[bytes, bytes]
T0 = TopicPartition("t", 0)


@pytest.fixture
def world() -> Iterator[GroupWorld]:
    world = GroupWorld()
    yield world
    world.close()


def test_a_second_process_gets_its_share_once_the_first_gave_it_up(world: GroupWorld) -> None:
    store, other = world.first, world.process()
    one, two = world.consumer(store), world.consumer(other)
    assert (numbers(one), numbers(two)) == ([0, 1, 2, 3], [])
    two.poll(timeout_s=0)
    assert numbers(two) == []  # the first has not heard of it
    world.run(0.2, store)
    one.poll(timeout_s=0)
    assert numbers(one) == [0, 1]
    two.poll(timeout_s=0)
    assert numbers(two) == []
    world.run(0.2, other)
    two.poll(timeout_s=0)
    assert numbers(two) == [2, 3]
    two.close()
    world.run(0.2, store)
    one.poll(timeout_s=0)
    assert numbers(one) == [0, 1, 2, 3]


def shared(world: GroupWorld, **settings: Any) -> tuple[LogStore, LogStore, Reader, Reader]:
    store, other = world.first, world.process()
    one, two = world.consumer(store, **settings), world.consumer(other, **settings)
    for _ in range(2):
        world.run(0.2, store, other)
        one.poll(timeout_s=0)
        two.poll(timeout_s=0)
    assert (numbers(one), numbers(two)) == ([0, 1], [2, 3])
    return store, other, one, two


def test_a_killed_process_makes_way_at_once(world: GroupWorld) -> None:
    store, other, one, _ = shared(world)
    other.abandon()
    world.run(0.4, store)
    one.poll(timeout_s=0)
    assert numbers(one) == [0, 1, 2, 3]


def test_a_killed_process_makes_way_for_who_joins(world: GroupWorld) -> None:
    store, other, _, _ = shared(world)
    store.abandon()
    other.abandon()
    third = world.consumer(world.process())
    assert numbers(third) == [0, 1, 2, 3]


def test_a_stopped_process_is_dead_when_its_session_ends_and_its_commit_is_refused(world: GroupWorld) -> None:
    store, other, one, two = shared(world, session_timeout_ms=10_000, heartbeat_interval_ms=1_000)
    fill(store)
    lost: list[TopicPartition] = []
    two._hooks._on_lost = lost.extend
    assert len(two.poll(1, timeout_s=0)) == 1
    world.run(9, store)
    one.poll(timeout_s=0)
    assert numbers(one) == [0, 1]
    world.run(2, store)
    one.poll(timeout_s=0)
    assert numbers(one) == [0, 1, 2, 3]
    with pytest.raises(UnknownMemberError, match="has no member"):
        two.commit()
    assert world.first.committed_offsets("g") == {}
    two.poll(timeout_s=0)  # it hears of it, and joins again
    assert sorted(lost) == [("t", 2), ("t", 3)]
    for _ in range(2):
        world.run(0.2, store, other)
        one.poll(timeout_s=0)
        two.poll(timeout_s=0)
    assert sorted(numbers(one) + numbers(two)) == [0, 1, 2, 3]
    assert len(numbers(two)) == 2


def test_who_was_stopped_itself_judges_nobody_by_what_it_missed(world: GroupWorld) -> None:
    store, other, one, two = shared(world, session_timeout_ms=10_000, heartbeat_interval_ms=1_000)
    world.run(60)  # the whole machine's processes stand still
    store.step()
    other.step()
    world.run(5, store, other)
    one.poll(timeout_s=0)
    two.poll(timeout_s=0)
    assert (numbers(one), numbers(two)) == ([0, 1], [2, 3])


def test_a_consumer_that_does_not_poll_is_taken_out_and_comes_back(world: GroupWorld) -> None:
    fill(world.first)
    store, other, one, two = shared(world, max_poll_interval_ms=5_000)
    lost: list[TopicPartition] = []
    two._hooks._on_lost = lost.extend
    for _ in range(6):
        world.run(1, store, other)
        drain(one)
    one.poll(timeout_s=0)
    assert numbers(one) == [0, 1, 2, 3]
    with pytest.raises(UnknownMemberError, match="did not poll for 5000 ms"):
        two.commit({TopicPartition("t", 2): 0})
    two.poll(timeout_s=0)
    assert sorted(lost) == [("t", 2), ("t", 3)]
    two.close()


def test_a_static_member_comes_back_within_its_session_and_nothing_moves(world: GroupWorld) -> None:
    store, other = world.first, world.process()
    one, two = world.consumer(store, instance_id="a"), world.consumer(other, instance_id="b")
    for _ in range(2):
        world.run(0.2, store, other)
        one.poll(timeout_s=0)
        two.poll(timeout_s=0)
    (before,) = store.admin.list_groups()
    had = numbers(two)
    other.abandon()  # killed: a dynamic member's partitions would move
    world.run(20, store)
    one.poll(timeout_s=0)
    assert numbers(one) == [number for number in range(4) if number not in had]
    again = world.process()
    two = world.consumer(again, instance_id="b")
    assert numbers(two) == had
    (after,) = store.admin.list_groups()
    assert after.epoch == before.epoch
    two.close()
    world.run(44, store)
    one.poll(timeout_s=0)
    assert len(numbers(one)) == 2
    world.run(3, store)  # its session is over: good-bye was 47 s ago
    one.poll(timeout_s=0)
    assert numbers(one) == [0, 1, 2, 3]


def test_an_instance_id_has_one_holder(world: GroupWorld) -> None:
    store, other = world.first, world.process()
    lost: list[TopicPartition] = []
    one = world.consumer(store, instance_id="a", on_lost=lost.extend)
    two = world.consumer(other, instance_id="a")
    assert numbers(two) == [0, 1, 2, 3]
    with pytest.raises(MemberFencedError, match="instance_id 'a' was replaced by"):
        one.commit({T0: 0})
    for _ in range(2):
        with pytest.raises(MemberFencedError):
            one.poll(timeout_s=0)
    assert len(lost) == 4
    one.close()
    assert numbers(two) == [0, 1, 2, 3]


def test_after_a_reboot_nobody_of_before_is_alive(world: GroupWorld) -> None:
    store, other, _, _ = shared(world)
    store.abandon()
    other.abandon()
    world.beats.clear()
    assert world.process().admin.list_groups()[0].members == ()
    assert numbers(world.consumer(world.process())) == [0, 1, 2, 3]


def test_offsets_of_groups_without_members_expire(world: GroupWorld) -> None:
    store, day_s = world.first, 86_400
    fill(store)
    for group in ("old", "spark-sink-q"):
        store.commit_offsets(group, {T0: OffsetAndMetadata(1)})
    one = world.consumer(store, max_poll_interval_ms=2**31 - 1)
    one.commit({T0: 2})
    store.step()
    world.clock.advance(6 * day_s * 1000)
    store.step()
    assert set(store.committed_offsets("old")) == {T0}
    world.clock.advance(1 * day_s * 1000)
    store.step()
    assert store.committed_offsets("old") == {}
    assert [found.group for found in store.admin.list_groups()] == ["g", "spark-sink-q"]
    assert store.committed_offsets("g")[T0].offset == 2  # it has a member


def test_commits_from_outside_are_refused_while_there_are_members(world: GroupWorld) -> None:
    fill(world.first)
    other = world.process()
    world.consumer(world.first)
    pairs = other.consumer([("t", 0)], group="g")  # no member: it reads what it was told to
    assert len(drain(pairs)) == 5
    with pytest.raises(GroupBusyError, match="it has members"):
        pairs.commit()
    with pytest.raises(GroupBusyError):
        other.commit_offsets("g", {T0: OffsetAndMetadata(1)})
    with pytest.raises(GroupBusyError, match="has members"):
        other.admin.seek_group("g", "latest", topics="t", dry_run=True)
    world.first.abandon()
    pairs.commit()
    assert other.committed_offsets("g")[T0].offset == 5
