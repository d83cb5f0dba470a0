"""Committed offsets of a deleted topic: gone in one step with the topic, whatever is killed; a new one's never."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from logstore.errors import UnknownTopicError
from logstore.groups.coordinator import GroupCoordinator
from logstore.groups.offset_values import SeenEnds
from logstore.partition.end_offset_cache import EndOffsetCache
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_crash import KeepNothing
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.transaction_world import World, Writer

OLD, LAST = TopicPartition("a", 0), TopicPartition("a", 1)
OTHER = TopicPartition("b", 0)


def filled(store: LogStore, count: int, partitions: int = 2) -> None:
    store.create_topic("a", partitions=partitions)
    store.partition("a", 0).append([(None, b"%d" % number) for number in range(count)])


def commit(store: LogStore, offset: int, place: TopicPartition = OLD, group: str = "g") -> None:
    store.commit_offsets(group, {place: OffsetAndMetadata(offset)})


def offsets(store: LogStore, group: str = "g") -> dict[TopicPartition, int]:
    return {place: point.offset for place, point in store.committed_offsets(group).items()}


def kept(store: LogStore) -> Mapping[TopicPartition, OffsetAndMetadata]:
    """What the log of offsets still says, whether it counts or not."""
    topic = store.backend.groups.topic(create=False)
    assert topic is not None
    return topic.look(lambda machine: machine.committed("g"))


def stored() -> tuple[World, LogStore]:
    world = World()
    store = world.process()
    filled(store, 5)
    store.create_topic("b")
    store.commit_offsets("g", {place: OffsetAndMetadata(0) for place in (LAST, OTHER)})
    commit(store, 5)
    return world, store


def killed_after(world: World, store: LogStore, power: bool) -> World:
    store.abandon()
    after = World(
        world.fs.crash(KeepNothing()) if power else world.fs.process_crash(),
        boot="boot-1" if power else "boot-0",
    )
    if not power:
        after._live.update(world._live)
    after.clock.advance(world.clock.wall_ms() - after.clock.wall_ms())
    return after


@pytest.mark.parametrize("power", [False, True])
def test_a_kill_anywhere_in_a_deletion_leaves_all_or_nothing(power: bool) -> None:
    world, store = stored()
    begun = world.fs.faults.calls
    store.delete_topic("a")
    total = world.fs.faults.calls - begun
    outcomes = set()
    for call in range(1, total + 1):
        world, store = stored()
        world.fs.faults.at(world.fs.faults.calls + call, FaultKind.CRASH)
        with pytest.raises(SimulatedCrash):
            store.delete_topic("a")
        after = killed_after(world, store, power)
        store = after.process()
        whole = "a" in store.list_topics()
        outcomes.add(whole)
        assert offsets(store) == ({OLD: 5, LAST: 0, OTHER: 0} if whole else {OTHER: 0})
        if not whole:
            filled(store, 8, partitions=1)
            assert offsets(store) == {OTHER: 0}
            with store.consumer("a", group="g", until_end=True) as consumer:
                assert [record.value for record in consumer] == [b"%d" % number for number in range(8)]
                consumer.commit()
            assert offsets(store) == {OLD: 8, OTHER: 0}
            again = after.process()
            assert offsets(again) == {OLD: 8, OTHER: 0}
            assert kept(again).keys() == {OLD, OTHER}
    assert outcomes == {False, True}


def test_what_a_killed_deletion_leaves_in_the_log_goes_with_what_expires() -> None:
    world, store = stored()
    world.fs.faults.on("remove", FaultKind.CRASH, path_ends=".deleting")
    with pytest.raises(SimulatedCrash):
        store.delete_topic("a")
    store = killed_after(world, store, power=False).process()
    assert kept(store).keys() == {OLD, LAST, OTHER}
    topic = store.backend.groups.topic(create=False)
    assert topic is not None
    store.backend.groups._manager.expire_offsets()
    assert kept(store).keys() == {OTHER}


def test_a_commit_in_a_topic_made_anew_outlives_the_end_of_the_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deleting process comes to the offsets when another has made the topic anew and committed there."""
    world, store = stored()
    other = world.process()
    forget = store.backend.groups.forget_topic

    def late(name: str) -> None:
        filled(other, 8)
        commit(other, 8)
        forget(name)

    monkeypatch.setattr(store.backend.groups, "forget_topic", late)
    store.delete_topic("a")
    assert offsets(store) == offsets(other) == {OLD: 8, OTHER: 0}
    assert kept(store).keys() == {OLD, OTHER}  # partition 1 of the old one is forgotten


def test_an_offset_of_the_old_topic_is_never_committed_for_the_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic goes, and comes anew, between the look at its end and the decision."""
    world, store = stored()
    store.release("a")
    other = world.process()
    look = EndOffsetCache.of

    def slow(cache: EndOffsetCache, wanted: Mapping[TopicPartition, OffsetAndMetadata]) -> SeenEnds:
        seen = look(cache, wanted)
        with monkeypatch.context() as patch:
            patch.setattr(EndOffsetCache, "of", look)
            other.delete_topic("a")
            filled(other, 8)
            commit(other, 2)
        return seen

    for made_anew in (commit, lambda store, offset: transacted(store, offset).commit()):
        with monkeypatch.context() as patch:
            patch.setattr(EndOffsetCache, "of", slow)
            with pytest.raises(UnknownTopicError, match="'a' was deleted and made anew before offsets"):
                made_anew(store, 5)
        assert offsets(store) == {OLD: 2, OTHER: 0}


def transacted(store: LogStore, offset: int) -> Writer:
    writer = Writer(store)
    writer.begin()
    writer.lease.send_offsets("g", {OLD: OffsetAndMetadata(offset)})
    return writer


@pytest.mark.parametrize("commits_anew", [False, True])
def test_a_transaction_that_outlives_the_topic_commits_nothing_for_a_new_one(commits_anew: bool) -> None:
    world, store = stored()
    store.release("a")
    other = world.process()
    writer = transacted(store, 5)
    assert set(store.backend.unstable_offsets("g")) == {OLD}
    other.backend._registry.delete("a")  # and is killed: the log of offsets is as it was
    filled(other, 8)
    assert set(store.backend.unstable_offsets("g")) == set()
    if commits_anew:
        commit(other, 3)
    writer.commit()
    assert offsets(store) == offsets(other) == ({OLD: 3, OTHER: 0} if commits_anew else {OTHER: 0})


def test_offsets_of_older_versions_count_for_the_topic_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are bound to no topic. One that is made anew does not inherit them, also after a killed deletion."""
    world = World()
    store = world.process()
    filled(store, 5)
    with monkeypatch.context() as patch:
        patch.setattr(EndOffsetCache, "still", lambda *_: {})
        commit(store, 5)
    assert offsets(store) == {OLD: 5}
    store.backend._registry.delete("a")  # and is killed
    store.abandon()
    store = world.process()
    assert offsets(store) == {}
    filled(store, 8)
    assert offsets(store) == {}
    commit(store, 1)
    assert offsets(store) == {OLD: 1}


def test_a_look_for_what_is_lost_spares_what_is_pending_for_a_living_topic() -> None:
    """A tombstone would end the transaction's commit of that partition, too."""
    machine, ids = GroupCoordinator(), {"a": b"1" * 16}
    for key, value in machine.decide_commit("g", {OLD: OffsetAndMetadata(5)}, 1, topic_ids=ids).records:
        machine.replay(key, value)
    now = {"a": b"2" * 16}
    for key, value in machine.decide_commit("g", {OLD: OffsetAndMetadata(3)}, 1, topic_ids=now).records:
        machine.replay_pending(7, 0, key, value)
    assert machine.committed("g", now.get) == {}
    assert machine.pending("g", now.get) == {OLD: 7}
    assert machine.decide_delete_topic("a", now.get).records == ()
    assert machine.decide_expire_offsets(2, 10**9, now.get).records == ()
    machine.replay_marker(7, 1, True)
    assert machine.committed("g", now.get) == {OLD: OffsetAndMetadata(3)}
