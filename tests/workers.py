"""What the tests of several processes run in the others: ``python -m tests.workers JOB ARGUMENTS``.

Each job prints one line per thing that its parent waits for, and ends when told to on standard input, or when
it is done.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from logstore.api.records import FetchRequest
from logstore.errors import LogStoreError, ProducerBusyError
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition


def say(*words: object) -> None:
    print(*words, flush=True)


def stop_asked() -> threading.Event:
    """Set when standard input ends."""
    event = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        event.set()

    threading.Thread(target=wait, daemon=True).start()
    return event


def write(root: str, topic: str, count: str, batch: str) -> None:
    """Append ``count`` numbered records, ``batch`` at a time, acks by turns; say each durable end."""
    with LogStore(root) as store:
        log = store.partition(topic, 0)
        number = 0
        while number < int(count):
            rows = [(None, b"%s %d" % (topic.encode(), n)) for n in range(number, number + int(batch))]
            number += int(batch)
            durable = number % (4 * int(batch)) == 0 or number >= int(count)
            log.append(rows, acks="all" if durable else 1)
            if durable:
                say("durable", number)
    say("closed")


def write_until_killed(root: str, topic: str) -> None:
    """Append records of 2 KiB one after the other, acks="all"; say each offset once it is acknowledged."""
    store = LogStore(root)
    log = store.partition(topic, 0)
    say("ready", log.log_end_offset)
    while True:
        number = log.log_end_offset
        placed = log.append([(None, b"%d " % number + b"." * 2_000)])
        say("acked", placed.offset)


def follow(root: str, topic: str, count: str) -> None:
    """Read from the start beside the writer until ``count`` records are seen: each once, in order, none past
    the high watermark."""
    with LogStore(root, "r") as store:
        say("ready")
        offset, waits = 0, 0
        while offset < int(count):
            (found,) = store.backend.fetch(
                [FetchRequest(topic, 0, offset, -1, 1 << 16)],
                isolation="read_committed",
                min_bytes=1,
                max_bytes=1 << 16,
                max_wait_s=5.0,
            )
            if found.error is not None:
                raise found.error
            if not len(found.batches):
                waits += 1
                if waits > 6:
                    say("stuck at", offset, found.high_watermark)
                    return
                continue
            for record in store.partition(topic, 0).records(offset, found.next_offset):
                if (record.offset, record.value) != (offset, b"%s %d" % (topic.encode(), offset)):
                    say("wrong", record)
                    return
                offset += 1
            if offset > found.high_watermark:
                say("past the high watermark", offset, found.high_watermark)
                return
        say("all", offset)


def own(root: str, topic: str) -> None:
    """Hold the topic until told to stop."""
    stop = stop_asked()
    with LogStore(root) as store:
        store.partition(topic, 0).append([(None, b"mine")])
        store.pin(topic)
        say("owned")
        stop.wait(600)
    say("closed")


def obey(root: str, topic: str) -> None:
    """Own the topic, and say when a setting of it changes here."""
    stop = stop_asked()
    with LogStore(root) as store:
        store.partition(topic, 0).append([(None, b"mine")])
        store.pin(topic)
        held = store._registry.get(topic)
        say("owned")
        while not stop.wait(0.02):
            if held.config.max_message_bytes != 1_048_588:
                say("changed", held.config.max_message_bytes, store.partition(topic, 1).log_end_offset)
                return


def commit(root: str, topic: str, group: str, count: str) -> None:
    """Commit the offsets 1, 2, ... ``count`` for a group."""
    with LogStore(root) as store:
        say("ready")
        for offset in range(1, int(count) + 1):
            place = TopicPartition(topic, 0)
            store.commit_offsets(group, {place: OffsetAndMetadata(offset, 0, f"by {group}")})
    say("closed")


def commit_until_killed(root: str, topic: str, group: str, last: str) -> None:
    """Commit the offsets 1, 2, ... ``last`` for a group, and the last one again and again."""
    with LogStore(root) as store:
        say("ready")
        offset = 0
        while True:
            offset = min(offset + 1, int(last))
            store.commit_offsets(
                group, {TopicPartition(topic, 0): OffsetAndMetadata(offset, 0, f"by {group}")}
            )


def commit_rounds(root: str, topic: str, groups: str, partitions: str, rounds: str) -> None:
    """Commit the offset of each round for all these partitions at once, group by group; go on where the groups
    are. Say each commit once it is acknowledged."""
    places = [TopicPartition(topic, int(number)) for number in partitions.split(",")]
    with LogStore(root) as store:
        known = {group: store.committed_offsets(group).get(places[0]) for group in groups.split(",")}
        begin = min(0 if point is None else point.offset for point in known.values())
        for offset in range(begin + 1, int(rounds) + 1):
            for group in known:
                store.commit_offsets(group, dict.fromkeys(places, OffsetAndMetadata(offset)))
                say("acked", group, offset)
                time.sleep(0.003)  # a consumer's work: who commits without a pause leaves others no gap
    say("closed")


def send_by_name(root: str, topic: str, name: str) -> None:
    """Wait for the producer's name, then send numbered records for ever; say how many are acknowledged."""
    with LogStore(root) as store:
        producer = None
        told = False
        while producer is None:
            try:
                producer = store.producer(name=name, linger_ms=0)
            except ProducerBusyError as error:
                if not told:
                    say("busy", error)
                told = True
                time.sleep(0.01)
        number = producer.last_sequence(topic, 0)
        say("ready", number)
        while True:
            rows = [(None, b"%d" % n) for n in range(number, number + 3)]
            producer.send_many(topic, rows).result(30)
            number += 3
            say("acked", number)
            time.sleep(0.002)


def take_turns(root: str, first: str, second: str, count: str) -> None:
    """Append to two topics by turns, giving them up in between, so that another can do the same."""
    with LogStore(root, lock_timeout_s=30) as store:
        for number in range(int(count)):
            for topic in (first, second):
                store.partition(topic, 0).append([(None, b"%d" % number)])
                store.release(topic)
    say("closed")


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job
    for job in (
        write,
        write_until_killed,
        follow,
        own,
        obey,
        commit,
        commit_until_killed,
        commit_rounds,
        send_by_name,
        take_turns,
    )
}

if __name__ == "__main__":
    try:
        JOBS[sys.argv[1]](*sys.argv[2:])
    except LogStoreError as error:
        say("failed", type(error).__name__, error)
        raise
