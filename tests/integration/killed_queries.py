"""Queries of one Spark driver into one store, killed and resumed: two into two topics, and two into one.

All commit exactly once, in processes of their own, and wait for each other's locks. That none starves is looked for in
each driver: every query must finish a batch before the kill.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Final, NamedTuple

import logstore
from tests.integration.killed_stream import compare, fill
from tests.integration.spark_driver import Driver, WrongStreamError, progress
from tests.integration.stream_job import PAUSE, Copy, command

COPIES: Final = (Copy("a", "x"), Copy("a", "both"), Copy("b", "both"))
PARTITIONS: Final = 2
_BATCHES: Final = 12  # of each query
_MOST_DRIVERS: Final = 5
_LONGEST_S: Final = 0.5


class Queries(NamedTuple):
    """What came of it. ``cut``: by query, how many kills found it inside a batch; ``drivers``: how many were killed."""

    cut: dict[str, int]
    drivers: int
    aborted: int


def run_queries(folder: Path, seed: int, records: int) -> Queries:
    """``records`` in each of two topics, through all queries, until every query was cut inside a batch; the second
    driver dies while one query has decided a commit and the others may wait for its topics. ``WrongStreamError``."""
    dice = random.Random(seed)
    root = folder / "store"
    for topic in ("a", "b"):
        fill(root, topic, PARTITIONS, records)
    with logstore.open(root) as store:
        for topic in sorted({copy.target for copy in COPIES}):
            store.create_topic(topic, PARTITIONS)
    job = command(root, folder, max(1, records // _BATCHES), list(COPIES))
    cut = dict.fromkeys(map(str, COPIES), 0)
    drivers = 0
    while drivers < _MOST_DRIVERS and (drivers < 2 or not all(cut.values())):
        drivers += 1
        _kill_one(job, folder, drivers, dice)
        for copy in COPIES:
            cut[str(copy)] += progress(copy.checkpoint(folder)).inside
    last = Driver(job, folder / "last.err", {})
    try:
        if last.wait(*(copy.checkpoint(folder) for copy in COPIES)):
            raise WrongStreamError(f"seed {seed}: the last run failed: {last.errors()}")
    finally:
        last.kill(dice)
    return Queries(cut, drivers, compare(seed, root, list(COPIES)))


def _kill_one(job: list[str], folder: Path, number: int, dice: random.Random) -> None:
    """Once every query has finished a batch, or, the second time, at a decided commit after that."""
    before = {copy: progress(copy.checkpoint(folder)).noted for copy in COPIES}
    paused = folder / f"paused-{number}"
    # The query that is behind most of all reaches this batch only after one of its own.
    env = {PAUSE: f"decided:{max(before.values()) + 2}:{paused}"} if number == 2 else {}

    def all_went_on() -> bool:
        return all(progress(copy.checkpoint(folder)).noted > before[copy] for copy in COPIES)

    driver = Driver(job, folder / f"driver-{number}.err", env)
    try:
        if env:
            alive = driver.wait_for(paused.exists, "a decided commit")
        else:
            alive = driver.wait_for(all_went_on, f"a batch of each query after {before}")
        if not alive:
            raise WrongStreamError(f"driver {number} ended before its kill: {driver.errors()}")
        time.sleep(dice.random() * _LONGEST_S)
    finally:
        driver.kill(dice)
