"""Offsets of groups that nobody uses any more go, whoever has the store open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from logstore.coordination.offset_expiry import EXPIRY_S
from logstore.coordination.runtime import CoordinatorRuntime
from logstore.errors import TopicLockedError
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.client.group_worlds import GroupWorld

RETENTION_S = 3000.0
PLACE = TopicPartition("t", 0)


@pytest.fixture
def world() -> Iterator[GroupWorld]:
    made = GroupWorld()
    yield made
    made.close()


def bystander(world: GroupWorld) -> LogStore:
    """A process that never asks for groups."""
    store = world.process()
    store._context.offsets_retention_s = RETENTION_S
    return store


def commit(store: LogStore, *groups: str) -> None:
    for group in groups:
        store.commit_offsets(group, {PLACE: OffsetAndMetadata(0)})


def groups(store: LogStore) -> list[str]:
    return sorted(row.group for row in store.admin.list_groups())


def pass_time(world: GroupWorld, seconds: float, *stores: LogStore) -> None:
    """In steps of ten seconds, each store doing all that is due."""
    for _ in range(int(seconds / 10)):
        world.clock.advance(10_000)
        for store in stores:
            work(store)


def work(store: LogStore) -> None:
    while (wait := store._housekeeper.step()) is not None and wait <= 0.001:
        pass


def test_a_process_without_members_forgets_them_and_what_it_read_for_it(world: GroupWorld) -> None:
    commit(world.first, "old")
    store = bystander(world)
    pass_time(world, RETENTION_S - 100, store)
    commit(world.first, "new")
    assert groups(world.first) == ["new", "old"]
    pass_time(world, 100 + EXPIRY_S, store)
    assert groups(world.first) == ["new"]
    assert store._backend.groups._topic is None
    assert store._backend.groups.expiry._topic is None
    pass_time(world, RETENTION_S + EXPIRY_S, store)
    assert groups(world.first) == []


def test_without_a_topic_of_offsets_and_in_a_read_only_store_nothing_is_due(world: GroupWorld) -> None:
    assert world.first._backend.groups.expiry.step() is None
    commit(world.first, "g")
    assert world.first._backend.groups.expiry.step() == EXPIRY_S
    world.first._context.read_only = True
    assert world.first._backend.groups.expiry.step() is None
    world.first._context.read_only = False


def test_members_look_for_themselves(world: GroupWorld) -> None:
    with world.consumer(world.first) as consumer:
        consumer.poll(timeout_s=0)
        world.first._context.offsets_retention_s = RETENTION_S
        commit(world.first, "old")
        calls: list[Any] = []
        world.first._backend.groups.expiry._take_lock = lambda: bool(calls.append(1))  # type: ignore[method-assign]
        pass_time(world, 2 * EXPIRY_S, world.first)
        assert calls == []


def test_one_process_looks_at_a_time(world: GroupWorld) -> None:
    commit(world.first, "old")
    one, other = bystander(world), bystander(world)
    expiry = one._backend.groups.expiry
    pieces = CoordinatorRuntime.follow_some
    world.clock.advance(round(RETENTION_S * 1000))
    assert expiry.step() == EXPIRY_S, "the first look is as far away as any"
    assert other._backend.groups.expiry.step() == EXPIRY_S
    world.clock.advance(round(EXPIRY_S * 1000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoordinatorRuntime, "follow_some", lambda topic: pieces(topic) and False)
        assert expiry.step() == 0.001, "there is more to read"
        assert other._backend.groups.expiry.step() == EXPIRY_S, "it leaves it to the other"
        assert expiry.step() == 0.001
    assert groups(world.first) == ["old"]
    assert expiry.step() == EXPIRY_S
    assert groups(world.first) == []


def test_a_busy_topic_is_left_alone_until_the_next_look(world: GroupWorld) -> None:
    commit(world.first, "old")
    store = bystander(world)
    work(store)
    world.clock.advance(round((RETENTION_S + EXPIRY_S) * 1000))
    slot = world.first._registry.entry("__consumer_offsets").lock_slot
    world.first._context.locks.acquire(slot, 0, "the test")
    before_s = world.clock.monotonic_s()
    work(store)
    assert world.clock.monotonic_s() - before_s < 1, "its patience is short"
    world.first._context.locks.release(slot)
    assert groups(world.first) == ["old"]
    pass_time(world, EXPIRY_S, store)
    assert groups(world.first) == []


def test_an_error_ends_the_look_and_the_lock_is_free(world: GroupWorld) -> None:
    commit(world.first, "old")
    store = bystander(world)
    expiry = store._backend.groups.expiry
    expiry.step()
    world.clock.advance(round(EXPIRY_S * 1000))

    def refuse(_topic: Any) -> bool:
        raise TopicLockedError("refused")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoordinatorRuntime, "follow_some", refuse)
        with pytest.raises(TopicLockedError, match="refused"):
            expiry.step()
    assert expiry.step() == EXPIRY_S
    give_back = expiry._try_lock()
    assert give_back is not None
    give_back()
