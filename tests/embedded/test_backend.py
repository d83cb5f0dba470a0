"""The embedded backend: produce in order with one error a batch, fetches that wait and wake, offsets, groups."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore.api.cancellation import CancelHandle
from logstore.api.groups import GroupMembership, JoinRequest
from logstore.api.records import FetchRequest, FetchResult, ProduceItem
from logstore.embedded.backend import EmbeddedBackend
from logstore.errors import (
    CorruptBatchError,
    DataLossError,
    DiskFullError,
    GroupBusyError,
    InvalidArgumentError,
    InvalidGroupError,
    InvalidRecordError,
    InvalidTimestampError,
    LogStoreError,
    OffsetMismatchError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    StoreClosedError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.format.batch import decode_batches, encode_batch, encode_with_header
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.client.records import until

ROOT = "/store"
NOW_MS = 1_700_000_000_000
PATIENCE_S = 60.0


def batch(*found: bytes, at_ms: int = NOW_MS) -> bytes:
    return encode_batch([(None, value) for value in found], now_ms=at_ms)


def item(partition: int, *found: bytes, topic: str = "t", at_ms: int = NOW_MS) -> ProduceItem:
    return ProduceItem(topic, partition, batch(*found, at_ms=at_ms))


def test_a_batch_with_its_header_is_stored_as_one_without() -> None:
    store = LogStore(ROOT, fs=MemoryFileSystem(), clock=ManualClock(NOW_MS), threads=False)
    store.create_topic("t", partitions=2)
    store.create_topic("c", config={"cleanup.policy": "compact"})
    data, header = encode_with_header([(None, b"a"), (None, b"b")], NOW_MS)
    items = [ProduceItem("t", 0, data, header), ProduceItem("t", 1, data), ProduceItem("c", 0, data, header)]
    first, second, refused = store.backend.produce(items, "all", 5)
    assert first == second
    assert store.partition("t", 0).read(0) == store.partition("t", 1).read(0)
    assert isinstance(refused.error, InvalidRecordError)  # the topic's rules hold for it all the same


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[LogStore]:
    store = LogStore(ROOT, fs=fs, clock=ManualClock(NOW_MS), threads=False)
    store.create_topic("t", partitions=3)
    yield store
    store.close()


@pytest.fixture
def backend(store: LogStore) -> EmbeddedBackend:
    return store.backend


def fetch(backend: EmbeddedBackend, *requests: FetchRequest, **settings: Any) -> list[FetchResult]:
    known: dict[str, Any] = {
        "isolation": "read_committed",
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_wait_s": 0,
    }
    return backend.fetch(requests, **(known | settings))


def values(result: FetchResult) -> list[bytes]:
    return [record.value for record in decode_batches(bytes(result.batches), result.topic, result.partition)]


def at(
    partition: int, offset: int = 0, *, epoch: int = -1, max_bytes: int = 1 << 20, topic: str = "t"
) -> FetchRequest:
    return FetchRequest(topic, partition, offset, epoch, max_bytes)


# --- metadata ---------------------------------------------------------------------------------------


def test_metadata(backend: EmbeddedBackend) -> None:
    version = backend.metadata_version()
    made = backend.create_topic(
        "u", 2, {"compression.type": "zstd", "segment.bytes": "2048", "partitioner": "crc32"}
    )
    assert (made.name, made.partitions, made.partitioner, made.compression) == ("u", 2, "crc32", "zstd")
    assert made.max_message_bytes == 2048  # what a batch may have: a segment holds at least one
    assert backend.metadata_version() > version
    assert backend.topic("u") == made
    assert set(backend.topics()) == {"t", "u"}
    with pytest.raises(UnknownTopicError):
        backend.topic("none")


# --- produce ----------------------------------------------------------------------------------------


def test_each_batch_gets_its_offset_and_one_sync_a_partition(
    backend: EmbeddedBackend, fs: MemoryFileSystem
) -> None:
    syncs: list[str] = []
    fs.faults.observer = lambda op: (
        syncs.append(op.path) if op.name == "sync" and op.path.endswith("0.log") else None
    )
    found = backend.produce([item(0, b"a"), item(1, b"b", b"c"), item(0, b"d"), item(1, b"e")], "all", 5)
    assert [(result.base_offset, result.append_time_ms, result.error) for result in found] == [
        (0, -1, None),
        (0, -1, None),
        (1, -1, None),
        (2, -1, None),
    ]
    assert len(syncs) == 2


@pytest.mark.parametrize(("acks", "offsets", "high"), [("all", [0, 1], 2), (1, [0, 1], 0), (0, [-1, -1], 0)])
def test_acks(backend: EmbeddedBackend, store: LogStore, acks: Any, offsets: list[int], high: int) -> None:
    found = backend.produce([item(0, b"a"), item(0, b"b")], acks, 5)
    assert [result.base_offset for result in found] == offsets
    assert store.partition("t", 0).high_watermark == high
    with pytest.raises(InvalidArgumentError, match="acks='none'"):
        backend.produce([item(0, b"a")], "none", 5)  # type: ignore[arg-type]


def test_an_error_is_of_its_batch_and_of_what_is_behind_it_in_its_partition(
    backend: EmbeddedBackend, store: LogStore
) -> None:
    found = backend.produce(
        [
            item(0, b"a"),
            item(0, b"too new", at_ms=NOW_MS * 2),
            item(1, b"fine"),
            item(0, b"behind it"),
            item(7, b"x"),
            item(0, b"x", topic="none"),
            ProduceItem("t", 2, b"\x00" * 61 + b"\x02"),
        ],
        "all",
        5,
    )
    kinds = [type(result.error) if result.error else None for result in found]
    assert kinds[:6] == [
        None,
        InvalidTimestampError,
        None,
        InvalidTimestampError,
        UnknownPartitionError,
        UnknownTopicError,
    ]
    assert isinstance(found[6].error, LogStoreError)
    assert [result.base_offset for result in found] == [0, -1, 0, -1, -1, -1, -1]
    assert [record.value for record in store.partition("t", 0).records(0)] == [b"a"]


def encoded(partition: int, *found: bytes, topic: str = "t", at_ms: int = NOW_MS) -> ProduceItem:
    """As a producer of this process has it: with its header."""
    data, header = encode_with_header([(None, value) for value in found], at_ms)
    return ProduceItem(topic, partition, data, header)


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_a_run_of_a_producers_batches_goes_in_up_to_the_first_error(
    backend: EmbeddedBackend, store: LogStore, acks: Any
) -> None:
    run = [
        encoded(0, b"a", b"b"),
        encoded(0, b"c"),
        encoded(0, b"late", at_ms=NOW_MS * 2),
        encoded(0, b"behind"),
    ]
    found = backend.produce([*run, encoded(1, b"fine"), encoded(1, b"too"), encoded(0, b"x")], acks, 5)
    kinds = [type(result.error) if result.error else None for result in found]
    assert kinds == [
        None,
        None,
        InvalidTimestampError,
        InvalidTimestampError,
        None,
        None,
        InvalidTimestampError,
    ]
    offsets = [-1] * 7 if acks == 0 else [0, 2, -1, -1, 0, 1, -1]
    assert [result.base_offset for result in found] == offsets
    store.partition("t", 0).flush()
    assert [record.value for record in store.partition("t", 0).records(0)] == [b"a", b"b", b"c"]
    assert store._registry.get("t")._users == 0
    gone = backend.produce([encoded(7, b"a"), encoded(7, b"b"), encoded(0, b"x", topic="none")] * 2, acks, 5)
    assert all(isinstance(result.error, UnknownPartitionError | UnknownTopicError) for result in gone)


def test_a_run_with_an_expected_offset_is_held_to_it(backend: EmbeddedBackend) -> None:
    first, second = encoded(0, b"a"), encoded(0, b"b")
    found = backend.produce([first, second._replace(expected_offset=5)], 1, 5)
    assert found[0].base_offset == 0
    assert isinstance(found[1].error, OffsetMismatchError)


def test_log_append_time_is_told(backend: EmbeddedBackend) -> None:
    backend.create_topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
    (found,) = backend.produce([item(0, b"a", topic="stamped", at_ms=5)], 1, 5)
    assert found.append_time_ms == NOW_MS


def test_a_failed_sync_reaches_exactly_its_partition(backend: EmbeddedBackend, fs: MemoryFileSystem) -> None:
    backend.produce([item(0, b"a"), item(1, b"a")], "all", 5)
    fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends="t-1/" + f"{0:020d}.log")
    found = backend.produce([item(0, b"b"), item(1, b"b"), item(2, b"b")], "all", 5)
    assert [type(result.error) for result in found] == [type(None), OutcomeUnknownError, type(None)]
    assert [result.base_offset for result in found] == [1, -1, 0]


def test_a_full_disk_and_then_room(backend: EmbeddedBackend, fs: MemoryFileSystem) -> None:
    backend.produce([item(0, b"a")], "all", 5)
    fs.capacity_bytes = fs._used + 100
    found = backend.produce([item(0, b"b" * 500), item(0, b"c")], "all", 5)
    assert [type(result.error) for result in found] == [DiskFullError, DiskFullError]
    fs.capacity_bytes = None
    assert backend.produce([item(0, b"b"), item(0, b"c")], "all", 5)[1].base_offset == 2


# --- fetch ------------------------------------------------------------------------------------------


def test_fetch_gives_one_result_per_request_in_order(backend: EmbeddedBackend) -> None:
    backend.produce([item(0, b"a", b"b"), item(1, b"c")], "all", 5)
    found = fetch(backend, at(1), at(0, 1), at(2), at(0, 2))
    assert [(result.partition, result.next_offset) for result in found] == [(1, 1), (0, 2), (2, 0), (0, 2)]
    assert [values(result) for result in found] == [[b"c"], [b"a", b"b"], [], []]
    assert [result.high_watermark for result in found] == [1, 2, 0, 2]


def test_limits_are_soft_for_the_first_batch_and_hold_for_the_rest(backend: EmbeddedBackend) -> None:
    big = batch(b"x" * 1_000)
    backend.produce([ProduceItem("t", 0, big), ProduceItem("t", 0, big), ProduceItem("t", 1, big)], "all", 5)
    found = fetch(backend, at(0, max_bytes=10), at(1, max_bytes=10))
    assert [len(result.batches) for result in found] == [len(big), len(big)]
    found = fetch(backend, at(0), at(1), max_bytes=100)
    assert [len(result.batches) for result in found] == [len(big), 0]
    assert [result.next_offset for result in found] == [1, 0]
    assert len(fetch(backend, at(0), max_bytes=2 * len(big))[0].batches) == 2 * len(big)


def test_errors_come_with_their_partition_and_at_once(backend: EmbeddedBackend) -> None:
    backend.produce([item(0, b"a")], "all", 5)
    found = fetch(backend, at(0, 9), at(0), at(5), at(0, topic="none"), at(0, 9, epoch=0), max_wait_s=60)
    kinds = [type(result.error) if result.error is not None else None for result in found]
    assert kinds == [OffsetOutOfRangeError, None, UnknownPartitionError, UnknownTopicError, DataLossError]
    assert found[0].next_offset == 9


def test_damage_is_an_error_of_its_partition(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with LogStore(root) as store:
        store.create_topic("t", partitions=2, config={"segment.bytes": "1024", "tail.cache.bytes": "0"})
        for partition in (0, 1):
            for _ in range(3):
                store.partition("t", partition).append([(None, b"x" * 600)])
    path = root / "t-0" / f"{0:020d}.log"
    path.write_bytes(b"\xff" * 100)
    with LogStore(root, "r") as store:
        found = fetch(store.backend, at(0), at(1))
        assert isinstance(found[0].error, CorruptBatchError)
        assert str(path) in str(found[0].error) or "t-0" in str(found[0].error)
        assert values(found[1]) == [b"x" * 600]


def test_a_waiting_fetch_is_woken_by_an_append_and_not_by_polling() -> None:
    with LogStore(":memory:") as store:
        store.create_topic("t", partitions=2)
        store.partition("t", 0).append([(None, b"first")])
        backend = store.backend
        answers: list[tuple[float, list[bytes]]] = []
        collects = 0
        collect = backend.collect

        def counted(*arguments: Any) -> Any:
            nonlocal collects
            collects += 1
            return collect(*arguments)

        backend.collect = counted  # type: ignore[assignment, method-assign]

        def wait() -> None:
            (result,) = fetch(backend, at(0, 1), max_wait_s=PATIENCE_S)
            answers.append((time.monotonic(), values(result)))

        thread = threading.Thread(target=wait)
        thread.start()
        log = store._registry.get("t").owned_log(0)
        assert log is not None
        deadline = time.monotonic() + PATIENCE_S
        while not log._waiters:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(0.05)
        assert collects <= 3
        store.partition("t", 0).append([(None, b"second")])
        appended = time.monotonic()
        thread.join(PATIENCE_S)
        assert answers[0][1] == [b"second"]
        assert answers[0][0] - appended < PATIENCE_S / 2
        assert not log._waiters


def test_it_waits_until_there_are_enough_bytes_or_the_time_is_over() -> None:
    with LogStore(":memory:") as store:
        store.create_topic("t")
        store.partition("t", 0).append([(None, b"x" * 100)])
        started = time.monotonic()
        (found,) = fetch(store.backend, at(0), min_bytes=5_000, max_wait_s=0.15)
        assert 0.14 < time.monotonic() - started < PATIENCE_S
        assert values(found) == [b"x" * 100]  # what there is
        threading.Timer(0.05, lambda: store.partition("t", 0).append([(None, b"y" * 6_000)])).start()
        (found,) = fetch(store.backend, at(0), min_bytes=5_000, max_wait_s=PATIENCE_S)
        assert len(values(found)) == 2


def test_a_cancelled_fetch_answers_at_once_also_if_that_was_before() -> None:
    with LogStore(":memory:") as store:
        store.create_topic("t")
        store.partition("t", 0).append([(None, b"x")])
        for early in (True, False):
            handle = CancelHandle()
            started = time.monotonic()
            if early:
                handle.cancel()
            else:
                threading.Timer(0.05, handle.cancel).start()
            (found,) = fetch(store.backend, at(0, 1), max_wait_s=PATIENCE_S, cancel=handle)
            assert time.monotonic() - started < PATIENCE_S / 2
            assert values(found) == []
            assert handle.cancelled


def test_a_fetch_waits_for_a_topic_that_another_store_writes() -> None:
    fs, table, live, clock = MemoryFileSystem(), LockTable(), dict[int, LiveSlot](), ManualClock(NOW_MS)

    def opened() -> LogStore:
        locks = MemoryLocks(table)
        return LogStore(ROOT, fs=fs, locks=locks, live=MemoryLive(live), threads=False)

    writer, reader = opened(), opened()
    writer.create_topic("t")
    threading.Timer(0.1, lambda: writer.partition("t", 0).append([(None, b"from there")])).start()
    (found,) = fetch(reader.backend, at(0), max_wait_s=PATIENCE_S)
    assert values(found) == [b"from there"]
    assert clock.wall_ms() == NOW_MS
    reader.close()
    writer.close()


def test_closing_the_store_ends_a_waiting_fetch() -> None:
    store = LogStore(":memory:")
    store.create_topic("t", partitions=2)
    store.partition("t", 0).append([(None, b"x")])
    for requests in ([at(0, 1)], [at(0, 1), at(1)]):
        if store._context.closed:
            store = LogStore(":memory:")
            store.create_topic("t", partitions=2)
            store.partition("t", 0).append([(None, b"x")])
        errors: list[BaseException] = []

        def wait(
            store: LogStore = store,
            requests: list[FetchRequest] = requests,
            errors: list[BaseException] = errors,
        ) -> None:
            try:
                fetch(store.backend, *requests, max_wait_s=2 * PATIENCE_S)
            except LogStoreError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        log = store._registry.get("t").owned_log(0)
        assert log is not None
        deadline = time.monotonic() + PATIENCE_S
        while not log._waiters:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        store.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert isinstance(errors[0], StoreClosedError)


def test_many_waiters_and_many_appends_no_wakeup_is_lost() -> None:
    with LogStore(":memory:") as store:
        store.create_topic("t", config={"segment.bytes": "3000"})
        store.partition("t", 0).append([(None, b"0")])
        total = 150
        failures: list[object] = []

        def follow() -> None:
            offset = 1
            while offset < total:
                started = time.monotonic()
                (found,) = fetch(store.backend, at(0, offset), max_wait_s=PATIENCE_S)
                if time.monotonic() - started > PATIENCE_S / 2 or found.error is not None:
                    failures.append((offset, found))
                    return
                offset = found.next_offset

        threads = [threading.Thread(target=follow) for _ in range(5)]
        for thread in threads:
            thread.start()
        for number in range(1, total):
            store.partition("t", 0).append([(None, b"%d" % number)], acks="all" if number % 2 else 1)
            if number % 10 == 0:
                time.sleep(0.002)
        for thread in threads:
            thread.join(2 * PATIENCE_S)
            assert not thread.is_alive()
        assert failures == []


# --- offsets ----------------------------------------------------------------------------------------


def test_list_offsets(backend: EmbeddedBackend) -> None:
    place, empty = TopicPartition("t", 0), TopicPartition("t", 1)
    for number in (5, 3, 9, 4):
        backend.produce([item(0, b"%d" % number, at_ms=NOW_MS + number)], "all", 5)
    backend.produce([item(0, b"unsynced", at_ms=NOW_MS + 20)], 1, 5)

    def listed(spec: Any) -> dict[TopicPartition, tuple[int | None, int]]:
        found = backend.list_offsets([place, empty], spec, "read_committed")
        return {where: (answer.offset, answer.timestamp_ms) for where, answer in found.items()}

    assert listed("earliest") == {place: (0, -1), empty: (0, -1)}
    assert listed("latest") == {place: (4, -1), empty: (0, -1)}
    assert listed("max_timestamp") == {place: (2, NOW_MS + 9), empty: (None, -1)}
    assert listed(NOW_MS + 4) == {place: (0, NOW_MS + 5), empty: (None, -1)}
    assert listed(NOW_MS + 6) == {place: (2, NOW_MS + 9), empty: (None, -1)}
    assert listed(NOW_MS + 10) == {place: (None, -1), empty: (None, -1)}
    with pytest.raises(InvalidArgumentError, match="offset spec 'newest' is not known"):
        backend.list_offsets([place], "newest", "read_committed")  # type: ignore[arg-type]
    with pytest.raises(UnknownPartitionError):
        backend.list_offsets([place, TopicPartition("t", 9)], "latest", "read_committed")


def test_offsets_are_listed_of_partitions_that_another_store_just_added(tmp_path: Path) -> None:
    with LogStore(tmp_path) as writer, LogStore(tmp_path) as store:
        writer.create_topic("t")
        place = TopicPartition("t", 0)
        writer.partition("t", 0).append([(None, b"x")] * 3)
        with store.consumer("t") as consumer:
            assert consumer.end_offsets([place]) == {place: 3}
            writer.admin.add_partitions("t", 3)
            added = [place, TopicPartition("t", 2), TopicPartition("t", 1)]
            assert consumer.end_offsets(added) == dict(zip(added, (3, 0, 0), strict=True))
            writer.delete_topic("t")
            with pytest.raises(UnknownTopicError):
                consumer.end_offsets(added)


# --- groups -----------------------------------------------------------------------------------------


def test_commits_are_kept_and_bounded_by_the_end(backend: EmbeddedBackend) -> None:
    place = TopicPartition("t", 0)
    backend.produce([item(0, b"a", b"b", b"c")], "all", 5)
    assert backend.committed_offsets("g") == {}
    assert backend.list_groups() == []
    backend.commit_offsets("g", {place: OffsetAndMetadata(2, 0, "note")})
    backend.commit_offsets("h", {place: OffsetAndMetadata(3)})
    assert backend.committed_offsets("g") == {place: OffsetAndMetadata(2, 0, "note")}
    with pytest.raises(LogStoreError, match="4"):
        backend.commit_offsets("g", {place: OffsetAndMetadata(4)})
    with pytest.raises(UnknownPartitionError):
        backend.commit_offsets("g", {TopicPartition("t", 9): OffsetAndMetadata(0)})
    for name in ("", "x" * 250):
        with pytest.raises(InvalidGroupError):
            backend.commit_offsets(name, {place: OffsetAndMetadata(1)})
    assert [(found.group, found.members) for found in backend.list_groups()] == [("g", ()), ("h", ())]


def join(store_backend: EmbeddedBackend, group: str, **request: Any) -> GroupMembership:
    return store_backend.join_group(group, JoinRequest(topics=frozenset({"t"}), **request))


def test_members_of_a_group_are_shown_and_keep_it(backend: EmbeddedBackend) -> None:
    backend.produce([item(0, b"a")], "all", 5)
    backend.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1)})
    one, two, other = join(backend, "g"), join(backend, "g", instance_id="two"), join(backend, "h")
    found, _ = backend.list_groups()
    assert found.state == "reconciling"
    assert {member.member_id for member in found.members} == {one.member_id, two.member_id}
    assert all(member.client.startswith("pid ") for member in found.members)
    with pytest.raises(GroupBusyError, match="cannot delete group 'g': it has members: ") as caught:
        backend.delete_group("g")
    assert caught.value.retriable
    with pytest.raises(GroupBusyError, match="cannot commit without being a member"):
        backend.commit_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)})
    one.leave()
    one.leave()  # again is fine
    assert one.view() is None
    two.leave()
    other.leave()
    with pytest.raises(GroupBusyError):
        backend.delete_group("g")  # a static member's place is kept
    join(backend, "g", instance_id="two")  # who comes back within its session has it again
    (found, _) = backend.list_groups()
    assert [(member.instance_id, member.left) for member in found.members] == [("two", False)]
    backend.delete_group("h")
    for name in ("h", "never"):
        with pytest.raises(UnknownGroupError, match=f"no group '{name}'"):
            backend.delete_group(name)
    with pytest.raises(InvalidGroupError):
        join(backend, "")


def test_groups_of_a_real_directory(tmp_path: Path) -> None:
    with LogStore(tmp_path / "store") as first, LogStore(tmp_path / "store") as second:
        first.create_topic("t", 2)
        one, two = join(first.backend, "g"), join(second.backend, "g")
        until(lambda: bool(one.view() and one.view().revoking), "the first hears of the second")
        view = one.view()
        assert view is not None
        one.sync(view.assigned, view.epoch)
        until(lambda: bool(two.view() and two.view().assigned), "the second is given its part")
        assert [len(group.members) for group in second.admin.list_groups()] == [2]
        one.leave()
        until(lambda: two.view() is not None and len(two.view().assigned) == 2, "all is the second's")
        two.leave()
        assert (tmp_path / "store" / ".heartbeats").exists()
