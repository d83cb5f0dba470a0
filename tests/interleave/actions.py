"""What the two threads do: each action is one call of the product, and notes what the call promised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from logstore.errors import LogStoreError
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.interleave.world import COMPACTED, DOOMED, PLACES, PLAIN, SPREAD, World, Written, read, require

DELIVERY_TIMEOUT_MS: Final = 400  # behind a topic of the other process, which does not let go in these runs
Action = Callable[[World, LogStore, str], None]


def append(world: World, store: LogStore, tag: str) -> None:
    place = PLACES[0]
    for number in range(2 if tag == "first" else 1):  # a later sync would cover what the one before forgot
        value = f"{tag}-append-{number}".encode()
        landed = store.partition(*place).append([(b"k", value)])
        world.facts.acked.append(Written(place, landed.offset, value))


def send(world: World, store: LogStore, tag: str) -> None:
    with store.producer(delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer:
        sent = []
        for number in range(4):
            place = PLACES[1 + number % 2]
            value = f"{tag}-send-{number}".encode()
            sent.append((place, value, producer.send(SPREAD, value, partition=place.partition)))
        for place, value, delivery in sent:
            world.facts.acked.append(Written(place, delivery.result(timeout_s=20).offset, value))


def transactional(store: LogStore, name: str) -> Any:
    return store.producer(
        transactional_id=name, transaction_timeout_ms=30_000, delivery_timeout_ms=DELIVERY_TIMEOUT_MS
    )


def commit_transaction(world: World, store: LogStore, tag: str) -> None:
    name = f"{tag}-commit"
    with store.producer(
        transactional_id=name, transaction_timeout_ms=30_000, delivery_timeout_ms=DELIVERY_TIMEOUT_MS
    ) as producer:
        producer.begin()
        values = set()
        for number, place in enumerate(PLACES):
            value = f"{name}-{number}".encode()
            values.add(value)
            producer.send(place.topic, value, partition=place.partition)
        world.facts.begun[name] = values
        producer.commit()
        world.facts.committed.add(name)


def abort_transaction(world: World, store: LogStore, tag: str) -> None:
    name = f"{tag}-abort"
    with store.producer(
        transactional_id=name, transaction_timeout_ms=30_000, delivery_timeout_ms=DELIVERY_TIMEOUT_MS
    ) as producer:
        producer.begin()
        world.facts.begun[name] = {f"{name}-{number}".encode() for number in range(2)}
        world.facts.aborted.add(name)
        for number, place in enumerate(PLACES[:2]):
            producer.send(place.topic, f"{name}-{number}".encode(), partition=place.partition)
        producer.flush()
        producer.abort()


def commit_prepared(world: World, store: LogStore, tag: str) -> None:
    """Two participants, and the coordinator that commits both with one record."""
    name = f"{tag}-prepared"
    values, handles = set(), []
    for number in range(2):
        with (
            store.producer(
                transactional_id=f"{name}-{number}",
                transaction_coordinator=name,
                transaction_timeout_ms=30_000,
                delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            ) as producer,
            producer.transaction() as tx,
        ):
            for place in PLACES[number : number + 2]:
                value = f"{name}-{number}-{place.topic}-{place.partition}".encode()
                values.add(value)
                tx.send(place.topic, value, partition=place.partition)
            handle = tx.prepare()
            assert handle is not None
            handles.append(handle)
    with store.producer(
        transactional_id=name, keep_prepared=True, delivery_timeout_ms=DELIVERY_TIMEOUT_MS
    ) as producer:
        producer.begin()
        world.facts.begun[name] = values
        producer.commit(prepared=handles)
        world.facts.committed.add(name)


def commit_offsets(world: World, store: LogStore, tag: str) -> None:
    group = f"{tag}-group"
    for offset in (1, 2):
        store.commit_offsets(group, {TopicPartition(PLAIN, 0): OffsetAndMetadata(offset)})
        world.facts.offsets[group] = offset


def trim(world: World, store: LogStore, tag: str) -> None:
    place = PLACES[0]
    world.facts.trimmed[place] = max(2, world.facts.trimmed.get(place, 0))
    store.delete_records(place.topic, {place.partition: 2})


def put(world: World, store: LogStore, tag: str) -> None:
    log = store.partition(COMPACTED, 0)
    for number in range(10, 13):
        key = f"{tag}-key".encode()
        log.append([(key, b"%d" % number), (b"filler", b"0" * 300)])
        world.facts.latest[key] = number


def compact(world: World, store: LogStore, tag: str) -> None:
    store.admin.compact(COMPACTED, roll=True)


def compact_offsets(world: World, store: LogStore, tag: str) -> None:
    store.admin.compact("__consumer_offsets", roll=True)


def create(world: World, store: LogStore, tag: str) -> None:
    name = f"{tag}-made"
    store.create_topic(name, partitions=2)
    world.facts.made.add(name)


def delete(world: World, store: LogStore, tag: str) -> None:
    world.facts.doomed = True
    store.delete_topic(DOOMED)
    world.facts.deleted = True


def look(world: World, store: LogStore, tag: str) -> None:
    if DOOMED not in store.list_topics():
        require(not store.committed_offsets("doomed"), "offsets in a topic that is deleted are shown")
    for place in PLACES:
        for offset, value in read(store, place).items():
            if offset >= world.facts.trimmed.get(place, 0):
                world.facts.seen.append(Written(place, offset, value))


def consume(world: World, store: LogStore, tag: str) -> None:
    """Join a group, read all, commit, leave."""
    with store.consumer([PLAIN], group=f"{tag}-members", until_end=True, on_reset="earliest") as consumer:
        last = -1
        for record in consumer:
            require(record.offset > last, f"{record.offset} came after {last}")
            last = record.offset
            world.facts.seen.append(Written(PLACES[0], record.offset, record.value or b""))
        if last >= 0:
            consumer.commit()
            world.facts.offsets[f"{tag}-members"] = last + 1


def append_expected(world: World, store: LogStore, tag: str) -> None:
    """On the condition that nothing comes between what was read and what is appended."""
    log = store.partition(*PLACES[0])
    end = log.high_watermark
    value = f"{tag}-expected".encode()
    landed = log.append([(b"k", value)], expected_offset=end)
    require(landed.offset == end, f"a conditional append at {end} landed at {landed.offset}")
    world.facts.acked.append(Written(PLACES[0], landed.offset, value))


def remake(world: World, store: LogStore, tag: str) -> None:
    """A new topic under the name of the deleted one, if that is free by now, and an offset committed in it."""
    store.create_topic(DOOMED)
    group = f"{tag}-remade"
    store.partition(DOOMED, 0).append([(None, group.encode())])
    store.commit_offsets(group, {TopicPartition(DOOMED, 0): OffsetAndMetadata(1)})
    world.facts.remade[group] = 1


def backup(world: World, store: LogStore, tag: str) -> None:
    facts = world.facts.now()
    facts.copies.clear()
    store.backup(f"/copies-{tag}")
    world.facts.copies.append((f"/copies-{tag}", facts))


def grow(world: World, store: LogStore, tag: str) -> None:
    store.admin.add_partitions(SPREAD, 3, allow_keyed=True)
    world.facts.partitions[SPREAD] = 3


def alter(world: World, store: LogStore, tag: str) -> None:
    value = str(60_000 + len(tag))
    store.admin.alter_topic(PLAIN, {"segment.ms": value})
    world.facts.settings[PLAIN, "segment.ms"] = value


def retain(world: World, store: LogStore, tag: str) -> None:
    """A pass of retention over a topic that keeps nothing but its active segment from now on."""
    place = PLACES[0]
    log = store.partition(*place)
    log.append([(b"k", f"{tag}-last".encode() + b"." * 600)])  # the segment before it is closed
    world.facts.trimmed[place] = 1 << 62
    store.admin.alter_topic(PLAIN, {"retention.bytes": "0"})
    store.step()


def release(world: World, store: LogStore, tag: str) -> None:
    for topic in (PLAIN, SPREAD):
        store.release(topic)


def housekeeping(world: World, store: LogStore, tag: str) -> None:
    store.step()


ACTIONS: Final[dict[str, Action]] = {
    action.__name__: action
    for action in (
        append,
        send,
        commit_transaction,
        abort_transaction,
        commit_prepared,
        commit_offsets,
        trim,
        put,
        compact,
        compact_offsets,
        create,
        delete,
        look,
        consume,
        release,
        housekeeping,
        append_expected,
        remake,
        backup,
        grow,
        alter,
        retain,
    )
}

FIRSTS: Final = tuple(name for name in ACTIONS if name != "remake")
"""Actions that can be the first one. A new topic is made only where another action has deleted the old one."""


def prepare(world: World) -> None:
    """Topics with some records in each, committed offsets, dirt to clean; both processes have seen them."""
    store = world.one
    small = {"segment.bytes": "1024", "index.interval.bytes": "1", "file.delete.delay.ms": "0"}
    store.create_topic(PLAIN, config=small)
    store.create_topic(SPREAD, partitions=2)
    store.create_topic(
        COMPACTED, config=small | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    )
    store.create_topic(DOOMED)
    for number in range(4):
        for place in PLACES:
            value = f"old-{number}-{place.topic}-{place.partition}".encode() + b"." * 300
            world.facts.acked.append(
                Written(place, store.partition(*place).append([(b"k", value)]).offset, value)
            )
        store.partition(COMPACTED, 0).append([(b"old", b"%d" % number), (b"filler", b"0" * 300)])
    world.facts.latest[b"old"] = 3
    store.partition(DOOMED, 0).append([(None, b"x")])
    store.commit_offsets("doomed", {TopicPartition(DOOMED, 0): OffsetAndMetadata(1)})
    for number in range(3):
        store.commit_offsets("before", {TopicPartition(PLAIN, 0): OffsetAndMetadata(number)})
    world.facts.offsets["before"] = 2
    warm = store.producer(transactional_id="warm")
    warm.close()


def acceptable(error: BaseException | None) -> bool:
    """None, or a named error: what the caller was not promised is not asked for later."""
    return error is None or isinstance(error, LogStoreError)
