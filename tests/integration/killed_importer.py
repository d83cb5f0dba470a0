"""An import by name that is killed at random times and run again: ``logstore produce --name``, real processes.

    python -m tests.integration.killed_importer --kills 2000 --start 0

runs seeds from ``--start`` on, each with an import of its own, until so many kills have landed, prints a line per
seed, and ends with 1 at the first that is wrong. A kill counts only if it landed in the middle: the process was
alive, had appended something, and had not appended everything. Others are told apart, not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import logstore

PATIENCE_S = 60.0
_TOPIC = "imported"
# Of an importer, from its first record on: its kill is somewhere in there, however fast the machine is.
_LONGEST_RUN_S = 0.15
_LONGEST_RUN_BYTES = 300_000
_ROWS_PER_KILL = 9_000  # of some 50 bytes


class Import(NamedTuple):
    """What came of one seed."""

    seed: int
    rows: int
    landed: int  # kills in the middle of the import
    missed: int  # kills before the first record of a run, or after the last of all
    torn: int  # partitions that had bytes of a record batch cut off by recovery
    resumed: int  # rows that the last run found in


class WrongLogError(AssertionError):
    """The log does not hold the input once and in order; the message begins with the seed."""


def write_input(path: Path, rows: int, seed: int) -> list[tuple[bytes | None, bytes]]:
    """A kv file, a fifth of its rows without key; its rows as a log should hold them. A longer one of a
    seed begins as the shorter ones do."""
    dice = random.Random(seed)
    made: list[tuple[bytes | None, bytes]] = []
    for number in range(rows):
        key = b"" if dice.random() < 0.2 else b"N%d" % dice.randrange(500)
        made.append((key or None, b"row %d %s" % (number, b"." * dice.randrange(60))))
    path.write_bytes(b"".join(b"%s\t%s\n" % (key or b"", value) for key, value in made))
    return made


def run_import(folder: Path, seed: int, kills: int) -> Import:
    """Import with up to ``kills`` landed kills, fewer if too many miss. WrongLogError."""
    dice = random.Random(seed)
    partitions = dice.choice((2, 3, 4))
    store, source = folder / "store", folder / "input"
    with logstore.open(store) as opened:
        config = {"segment.bytes": str(dice.choice((20_000, 200_000, 4_000_000)))}
        opened.create_topic(_TOPIC, partitions, config)
    rows = write_input(source, _ROWS_PER_KILL * kills, seed)
    command = [sys.executable, "-m", "logstore.cli", "--path", str(store), "--json", "produce", _TOPIC]
    command += ["--name", "import", "--format", "kv", "--batch-bytes", str(dice.choice((1_500, 6_000)))]
    command += ["--compression", dice.choice(("none", "none", "gzip")), str(source)]
    landed = missed = reached = 0
    while landed < kills and missed < 2 * kills:
        died_in_it = _kill_one(command, store, dice)
        before, reached = reached, _records_in(store, partitions)
        if reached < before:
            raise WrongLogError(f"seed {seed}: {before} records were shown, now {reached}")
        mid = died_in_it and reached < len(rows)
        landed, missed = landed + mid, missed + (not mid)
        if reached == len(rows) and landed < kills:  # this process was held up, and the importer not
            rows = write_input(source, len(rows) + _ROWS_PER_KILL * kills, seed)
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        raise WrongLogError(f"seed {seed}: the last run failed: {done.stderr.decode()}")
    report = json.loads(done.stdout)
    if report["skipped"] < reached or report["records"] + report["skipped"] != len(rows):
        raise WrongLogError(f"seed {seed}: {reached} records were shown, and the last run says {report}")
    with logstore.open(store, mode="r") as opened:
        found = [
            [(record.key, record.value) for record in opened.partition(_TOPIC, number).records(0)]
            for number in range(partitions)
        ]
    fault = difference(rows, found)
    if fault is not None:
        raise WrongLogError(f"seed {seed}: {fault}")
    torn = sum(1 for _ in store.glob(f"{_TOPIC}-*/*.cut-*"))
    return Import(seed, len(rows), landed, missed, torn, report["skipped"])


def _kill_one(command: list[str], store: Path, dice: random.Random) -> bool:
    """Start an importer and kill it at a random time; whether it had appended something and was alive."""
    before = _size(store)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while _size(store) <= before and process.poll() is None:
            if time.monotonic() > deadline_s:
                raise WrongLogError(f"{command}: nothing was appended in {PATIENCE_S} s")
            time.sleep(0.001)
        share = dice.random()
        kill_at_s, kill_at_size = (
            time.monotonic() + share * _LONGEST_RUN_S,
            before + share * _LONGEST_RUN_BYTES,
        )
        while time.monotonic() < kill_at_s and _size(store) < kill_at_size and process.poll() is None:
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
    if process.returncode not in (0, -signal.SIGKILL):
        raise WrongLogError(f"the importer failed: {errors.decode()}")
    return process.returncode == -signal.SIGKILL and _size(store) > before


def _size(store: Path) -> int:
    """Bytes of all segments of the topic."""
    total = 0
    for folder in store.glob(f"{_TOPIC}-*"):
        with os.scandir(folder) as entries:
            total += sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
    return total


def _records_in(store: Path, partitions: int) -> int:
    """As a reader beside it sees them, before anything was recovered."""
    with logstore.open(store, mode="r") as opened:
        return sum(opened.partition(_TOPIC, number).high_watermark for number in range(partitions))


def difference(
    rows: list[tuple[bytes | None, bytes]], found: list[list[tuple[bytes | None, bytes]]]
) -> str | None:
    """What is wrong with a log, given by partition, that should hold ``rows``; None if nothing is.

    Each row once; those of one key in one partition and in the input's order; those without key in the input's
    order within each partition.
    """
    number_of = {value: number for number, (_, value) in enumerate(rows)}
    seen = [0] * len(rows)
    place_of: dict[bytes, int] = {}
    for partition, records in enumerate(found):
        newest: dict[bytes | None, int] = defaultdict(lambda: -1)
        for key, value in records:
            number = number_of.get(value)
            if number is None or rows[number][0] != key:
                return f"partition {partition} holds {key!r}={value!r}, which is not in the input"
            if number < newest[key]:
                return f"partition {partition}: row {number} of {key!r} comes after row {newest[key]}"
            newest[key] = number
            seen[number] += 1
            if key is not None and place_of.setdefault(key, partition) != partition:
                return f"{key!r} is in partitions {place_of[key]} and {partition}"
    wrong = [number for number, count in enumerate(seen) if count != 1]
    if wrong:
        return f"row {wrong[0]} is there {seen[wrong[0]]} times ({len(wrong)} rows are not there once)"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill imports at random and count what is in the log.")
    parser.add_argument("--kills", type=int, default=2000, help="kills that have to land")
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--per-seed", type=int, default=20, help="kills of one import")
    options = parser.parse_args()
    landed, seed = 0, options.start
    while landed < options.kills:
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = run_import(Path(folder), seed, min(options.per_seed, options.kills - landed))
            except WrongLogError as error:
                print("wrong:", error, flush=True)
                return 1
        landed, seed = landed + done.landed, seed + 1
        print(f"{done} landed so far: {landed}", flush=True)
    print(f"{landed} kills landed, seeds {options.start} to {seed - 1}: no difference found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
