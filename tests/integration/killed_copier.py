"""A job that reads, transforms and writes in transactions, killed at random times and started again: real processes.

    python -m tests.integration.killed_copier --records 100000 --kills 100 --start 0

runs seeds from ``--start`` on, each with a copy of its own of so many records, until so many kills have landed,
prints a line per seed, and ends with 1 at the first whose output is not its input, transformed, once and in order.
A kill counts only if it landed in the middle: the process was alive, had written something, and was not done.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import logstore
from logstore.types import TopicPartition

PATIENCE_S = 60.0
GROUP = ID = "copy"
_LONGEST_RUN_S = 0.25  # of a copier, from its first record on
_RECORD_BYTES = 20  # at least, in the output; no run gets further than half of a kill's share


class Copy(NamedTuple):
    """What came of one seed. ``aborted``: records of transactions that a kill cut short; ``finished``: kills after
    which a decided commit was finished by the next process."""

    seed: int
    records: int
    landed: int
    missed: int
    aborted: int
    finished: int


class WrongCopyError(AssertionError):
    """The message begins with the seed."""


def transformed(value: bytes) -> bytes:
    return value[::-1]


def copy(root: str, most: int) -> None:
    """The job: up to ``most`` records a transaction, until the end of the input."""
    with (
        logstore.open(root) as store,
        store.producer(transactional_id=ID) as producer,
        store.consumer("in", group=GROUP, until_end=True) as consumer,
    ):
        while records := consumer.poll(most, timeout_s=PATIENCE_S):
            with producer.transaction(rewind=consumer) as tx:
                for partition in {record.partition for record in records}:
                    rows = [(r.key, transformed(r.value or b"")) for r in records if r.partition == partition]
                    tx.send_many("out", rows, partition=partition)
                tx.send_offsets(consumer)


def run_copy(folder: Path, seed: int, records: int, kills: int) -> Copy:
    """Copy with up to ``kills`` landed kills. WrongCopyError."""
    dice = random.Random(seed)
    partitions = dice.choice((1, 2, 3))
    root = folder / "store"
    with logstore.open(root) as store:
        config = {"segment.bytes": str(dice.choice((50_000, 400_000, 4_000_000)))}
        store.create_topic("in", partitions)
        store.create_topic("out", partitions, config)
    _fill(root, 0, records)
    most = dice.choice((50, 200, 500))
    command = [
        sys.executable,
        "-m",
        "tests.integration.killed_copier",
        "--copy",
        str(root),
        "--most",
        str(most),
    ]
    landed = missed = finished = reached = 0
    longest_bytes = _RECORD_BYTES * records // (2 * kills)
    while landed < kills and missed < 2 * kills + 5:
        in_middle = _kill_one(command, root, dice, longest_bytes)
        decided = _is_decided(root)
        before, reached = reached, _committed(root)
        if reached < before:
            raise WrongCopyError(f"seed {seed}: {before} records were committed, now {reached}")
        counts = in_middle and reached < records
        landed, missed = landed + counts, missed + (not counts)
        finished += decided
        if reached == records and landed < kills:  # this process was held up, and the copier not
            _fill(root, records, 2 * records)
            records *= 2
    done = subprocess.run(command, capture_output=True, timeout=10 * PATIENCE_S, check=False)
    if done.returncode:
        raise WrongCopyError(f"seed {seed}: the last run failed: {done.stderr.decode()}")
    aborted = _compare(seed, root, partitions)
    return Copy(seed, records, landed, missed, aborted, finished)


def _fill(root: Path, first: int, end: int) -> None:
    with logstore.open(root) as store, store.producer() as producer:
        rows = [(b"%d" % (number % 7), b"record %d" % number) for number in range(first, end)]
        producer.send_many("in", rows).result()


def _kill_one(command: list[str], root: Path, dice: random.Random, longest_bytes: int) -> bool:
    """Start a copier and kill it at a random time; whether it had written something and was alive."""
    before = _size(root)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while _size(root) <= before and process.poll() is None:
            if time.monotonic() > deadline_s:
                raise WrongCopyError(f"{command}: nothing was written in {PATIENCE_S} s")
            time.sleep(0.001)
        share = dice.random()
        kill_at_s, kill_at_size = time.monotonic() + share * _LONGEST_RUN_S, before + share * longest_bytes
        while time.monotonic() < kill_at_s and _size(root) < kill_at_size and process.poll() is None:
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
    if process.returncode not in (0, -signal.SIGKILL):
        raise WrongCopyError(f"the copier failed: {errors.decode()}")
    return process.returncode == -signal.SIGKILL


def _size(root: Path) -> int:
    """Bytes of all segments of the output."""
    total = 0
    for folder in root.glob("out-*"):
        with os.scandir(folder) as entries:
            total += sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
    return total


def _is_decided(root: Path) -> bool:
    with logstore.open(root, mode="r") as store:
        return any(found.state == "PREPARE_COMMIT" for found in store.admin.list_transactions())


def _committed(root: Path) -> int:
    """Records of the input that the group has behind it, before anything was recovered."""
    with logstore.open(root, mode="r") as store:
        return sum(point.offset for point in store.committed_offsets(GROUP).values())


def _compare(seed: int, root: Path, partitions: int) -> int:
    """WrongCopyError unless the output is the input; records that are there and do not count."""
    uncounted = 0
    with logstore.open(root, mode="r") as store:
        points = store.committed_offsets(GROUP)
        for number in range(partitions):
            source, target = store.partition("in", number), store.partition("out", number)
            expected = [(record.key, transformed(record.value or b"")) for record in source.records(0)]
            found = [(record.key, record.value) for record in target.records(0, isolation="read_committed")]
            fault = difference(expected, found)
            if fault is not None:
                raise WrongCopyError(f"seed {seed}: partition {number}: {fault}")
            if expected and points[TopicPartition("in", number)].offset != len(expected):
                raise WrongCopyError(
                    f"seed {seed}: partition {number}: {points} is not the end {len(expected)}"
                )
            all_records = target.records(0, isolation="read_uncommitted")
            uncounted += sum(1 for _ in all_records) - len(found)
        if any(found.state not in ("COMPLETE_COMMIT", "EMPTY") for found in store.admin.list_transactions()):
            raise WrongCopyError(f"seed {seed}: {store.admin.list_transactions()} is not ended")
    return uncounted


def difference(
    expected: list[tuple[bytes | None, bytes]], found: list[tuple[bytes | None, bytes | None]]
) -> str | None:
    """Where the two part for the first time; None: they do not."""
    for at, (wanted, there) in enumerate(zip(expected, found, strict=False)):
        if wanted != there:
            return f"record {at} is {there}, {wanted} is due"
    if len(expected) != len(found):
        return f"{len(found)} records, {len(expected)} are due"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill copies at random and compare what they wrote.")
    parser.add_argument("--copy", help="be the job, on this store")
    parser.add_argument("--most", type=int, default=50, help="records of a transaction")
    parser.add_argument("--records", type=int, default=100_000, help="of one copy")
    parser.add_argument("--kills", type=int, default=1_000, help="kills that have to land")
    parser.add_argument("--per-seed", type=int, default=100, help="kills of one copy")
    parser.add_argument("--start", type=int, default=0, help="first seed")
    options = parser.parse_args()
    if options.copy:
        copy(options.copy, options.most)
        return 0
    landed, seed = 0, options.start
    while landed < options.kills:
        with tempfile.TemporaryDirectory() as folder:
            try:
                kills = min(options.per_seed, options.kills - landed)
                done = run_copy(Path(folder), seed, options.records, kills)
            except WrongCopyError as error:
                print("wrong:", error, flush=True)
                return 1
        landed, seed = landed + done.landed, seed + 1
        print(f"{done} landed so far: {landed}", flush=True)
    print(f"{landed} kills landed, seeds {options.start} to {seed - 1}: no difference found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
