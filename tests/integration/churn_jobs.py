"""The two processes of ``test_follower``: who writes the topic and cleans it, and who reads it beside that.

python -m tests.integration.churn_jobs write|read ARGUMENTS
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator

from logstore.errors import LogStoreError, OffsetOutOfRangeError, SegmentVanishedError
from logstore.partition.partition_log import PartitionLog
from logstore.store import LogStore
from logstore.types import Record
from tests.integration.churn import ERASED, ERASED_BEFORE, Witness, row
from tests.workers import say, stop_asked

TOPIC = "churn"
PARTITIONS = 2
CONFIG = {
    "cleanup.policy": "compact,delete",
    "segment.bytes": "6000",
    "index.interval.bytes": "400",
    "retention.bytes": "60000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "100",
    "flush.ms": "10",
}
_BATCH = 12
_PAUSE_S = 0.004
_LOOK_EVERY_S = 0.05  # for what is to be cleaned, or retired


def look_often(store: LogStore) -> None:
    """The cleaner looks for dirt every 50 ms, also if it has just begun to wait for its usual interval."""
    cleaner = store._cleaning.cleaner
    cleaner._check_s = _LOOK_EVERY_S
    cleaner._next_check_s = 0.0


def write(root: str, seed: str, least_s: str) -> None:
    """Append until told to stop; say when, after so many seconds at least, everything has happened often enough."""
    stop = stop_asked()
    dice = random.Random(int(seed))
    with LogStore(root, retention_check_s=_LOOK_EVERY_S, cleaner_duty=0.5) as store:
        look_often(store)
        logs = [store.partition(TOPIC, partition) for partition in range(PARTITIONS)]
        ends = [0] * PARTITIONS
        begun_s, erased, told = time.monotonic(), 0, False
        while not stop.is_set():
            for partition, log in enumerate(logs):
                count = dice.randrange(1, _BATCH)
                rows = [
                    row(int(seed), partition, offset)
                    for offset in range(ends[partition], ends[partition] + count)
                ]
                at = log.append(rows, acks=dice.choice((1, 1, 1, "all"))).offset
                if at != ends[partition]:
                    say("wrong", f"partition {partition}: appended at {at}, {ends[partition]} was due")
                    return
                ends[partition] += count
            if not erased and min(ends) >= ERASED_BEFORE + 500:
                report = store.admin.erase_keys(TOPIC, ERASED)
                erased = report.records_removed
                say("erased", erased)
            cleanings = int(store.metrics()["logstore_cleanings_total"])
            enough = erased and cleanings >= 12 and min(log.log_start_offset for log in logs) > 0
            if not told and enough and time.monotonic() - begun_s >= float(least_s):
                say("enough")
                told = True
            time.sleep(_PAUSE_S)
        for log in logs:
            log.flush()
        starts = [log.log_start_offset for log in logs]
        cleanings = int(store.metrics()["logstore_cleanings_total"])
        say("done", json.dumps({"ends": ends, "starts": starts, "cleanings": cleanings, "erased": erased}))


class Reader:
    """Reads one partition as a consumer that goes on, and from anywhere as a log."""

    def __init__(self, store: LogStore, seed: int, partition: int) -> None:
        self.witness = Witness(seed, partition)
        self._log = store.partition(TOPIC, partition)
        self._place = (TOPIC, partition)
        self._consumer = store.consumer([self._place], fetch_max_wait_ms=50)
        self._position = 0

    def grow(self) -> int:
        end = self._log.high_watermark
        self.witness.grow(end)
        return end

    def follow(self) -> None:
        """What has come since, or the error that says what is gone."""
        try:
            records = self._consumer.poll(2_000, 0.02)
        except (OffsetOutOfRangeError, SegmentVanishedError) as error:
            self.grow()
            self._position = self._reported(error, self._position)
            self._consumer.seek(*self._place, self._position)
            return
        self.grow()  # after the read: what it passed over must have been replaced by then
        end = self._consumer.position(*self._place)
        self._position = self.witness.look(self._position, _plain(records), end)

    def jump(self, dice: random.Random) -> None:
        """From a random offset to the end of that moment, forwards or backwards."""
        bounds = self._log.bounds()
        start = dice.randrange(max(bounds.log_start_offset - 200, 0), bounds.high_watermark + 1)
        if start < bounds.log_start_offset and dice.random() < 0.5:
            start = bounds.log_start_offset
        end = min(bounds.high_watermark, start + dice.choice((50, 1_000, 10**9)))
        reverse = dice.random() < 0.3
        found: list[Record] = []
        try:
            for record in self._log.records(start, end, reverse=reverse):
                found.append(record)  # noqa: PERF402 - what came before an error counts
        except (OffsetOutOfRangeError, SegmentVanishedError) as error:
            self.grow()
            at = found[-1].offset + 1 if found else start
            if not reverse:
                self.witness.look(start, _plain(found), 0)
                self._reported(error, at)
            return
        self.grow()
        before = len(self.witness.faults)
        self.witness.look(start, _plain(found[::-1] if reverse else found), end)
        if len(self.witness.faults) > before:
            self.witness.faults.insert(
                before,
                f"read {'back from ' if reverse else ''}[{start}, {end}) of {bounds}, now {self._log.bounds()}: "
                f"{len(found)} records",
            )

    def _reported(self, error: OffsetOutOfRangeError | SegmentVanishedError, at: int) -> int:
        """Note the lost range; the first offset behind it."""
        if isinstance(error, SegmentVanishedError):
            return self.witness.lost(*error.lost)
        return self.witness.lost(at, error.log_start_offset)

    def at_end(self) -> bool:
        return self._position >= self._log.high_watermark

    def finish(self, log: PartitionLog) -> int:
        """The log at rest, opened anew, against what was written; how many keys it has."""
        self.grow()
        start = log.log_start_offset
        found = list(log.records(start))
        self.witness.look(start, _plain(found), log.high_watermark)
        if any(record.key in ERASED for record in found):
            self.witness.faults.append(f"{self._place}: records of an erased key are there")
        return self.witness.check_state(_plain(found), start)


def _plain(records: list[Record]) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    return ((record.offset, record.key, record.value) for record in records)


def _has_seen_enough(readers: list[Reader]) -> bool:
    """It was beside the cleanings, not ahead of all of them."""
    witnesses = [reader.witness for reader in readers]
    return sum(one.legal for one in witnesses) > 300 and sum(one.shown for one in witnesses) > 3_000


def read(root: str, seed: str) -> None:
    """Follow until told to stop, then to the end; say when enough was seen, and what, or the first faults."""
    stop = stop_asked()
    dice = random.Random(-int(seed))
    with LogStore(root, "r") as store:
        readers = [Reader(store, int(seed), partition) for partition in range(PARTITIONS)]
        say("ready")
        jumps, told = 0, False
        while not (stop.is_set() and all(reader.at_end() for reader in readers)):
            for reader in readers:
                reader.follow()
                if dice.random() < 0.15:
                    reader.jump(dice)
                    jumps += 1
                if reader.witness.faults:
                    say("wrong", reader.witness.faults[:3])
                    return
            if not told and jumps > 10 and _has_seen_enough(readers):
                say("enough")
                told = True
        # What was open before may go on showing erased records until it looks at the directory again.
        with LogStore(root, "r") as anew:
            keys = sum(reader.finish(anew.partition(TOPIC, at)) for at, reader in enumerate(readers))
        witnesses = [reader.witness for reader in readers]
        faults = [fault for witness in witnesses for fault in witness.faults]
        if faults:
            say("wrong", faults[:3])
            return
        counts = {
            "shown": sum(witness.shown for witness in witnesses),
            "legal": sum(witness.legal for witness in witnesses),
            "reported": sum(len(witness.reported) for witness in witnesses),
            "jumps": jumps,
            "keys": keys,
        }
        say("saw", json.dumps(counts))


JOBS: dict[str, Callable[..., None]] = {"write": write, "read": read}

if __name__ == "__main__":
    try:
        JOBS[sys.argv[1]](*sys.argv[2:])
    except LogStoreError as error:
        say("failed", type(error).__name__, error)
        raise
