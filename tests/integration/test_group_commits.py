"""Two processes commit offsets into one group store; one of them is killed in the middle, again and again."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from logstore.store import LogStore
from logstore.types import TopicPartition
from tests.worker_process import Worker

_ROUNDS = 40
_MORE_ROUNDS = 800  # of both, so that neither is through where the other, or this process, is held up
# Each process has a group of its own, and its own partitions of the group that both share.
_MINE = {"first": ("own0,shared", (0, 2)), "second": ("own1,shared", (1, 3))}


def _start(root: str, who: str, rounds: int) -> Worker:
    groups, partitions = _MINE[who]
    return Worker("commit_rounds", root, "t", groups, ",".join(map(str, partitions)), rounds)


def _note(acked: dict[str, int], line: str | None) -> None:
    if line is not None and line.startswith("acked"):
        _, group, offset = line.split()
        acked[group] = int(offset)


def _check(store: LogStore, who: str, acked: dict[str, int]) -> None:
    """Every acknowledged commit is there, at most the one that was in flight besides, and each in whole."""
    groups, partitions = _MINE[who]
    for group in groups.split(","):
        found = store.committed_offsets(group)
        offsets = {
            found[place].offset for number in partitions if (place := TopicPartition("t", number)) in found
        }
        if group in acked:
            assert len(offsets) == 1, (who, group, found)
            assert acked[group] <= offsets.pop() <= acked[group] + 1, (who, group, acked, found)


def _switches(root: str) -> int:
    """How often the log of commits goes from the one's own group to the other's."""
    with LogStore(root, "r") as store:
        keys = [record.key or b"" for record in store.partition("__consumer_offsets", 0).records(0)]
    owners = [b"own1" in key for key in keys if b"own" in key]
    return sum(mine != other for mine, other in pairwise(owners))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "kills"), [(5, 3), pytest.param(6, 60, marks=[pytest.mark.long, pytest.mark.timeout(600)])]
)
def test_no_acknowledged_commit_is_lost(tmp_path: Path, workers: list[Worker], seed: int, kills: int) -> None:
    dice = random.Random(seed)
    root = str(tmp_path / "store")
    rounds = _ROUNDS * kills + _MORE_ROUNDS
    with LogStore(root) as store:
        store.create_topic("t", 4)
        for partition in range(4):
            store.partition("t", partition).append([(None, b"x")] * rounds)
    workers.append(steady := _start(root, "second", rounds))
    acked: dict[str, int] = {}
    landed = 0
    for _ in range(kills):
        workers.append(killed := _start(root, "first", rounds))
        for _ in range(dice.randrange(3, 2 * _ROUNDS)):
            _note(acked, killed.next())
        killed.kill()
        while (line := killed.next()) is not None:
            _note(acked, line)
        landed += killed.process.returncode < 0 and min(acked.values()) < rounds
        with LogStore(root, "r") as beside:
            _check(beside, "first", acked)
    assert landed == kills
    workers.append(last := _start(root, "first", rounds))
    for worker in (last, steady):
        worker.expect("closed")
        assert worker.finish() == 0
    switches = _switches(root)
    print(f"seed {seed}: {landed} kills landed, the log goes from one process to the other {switches} times")
    assert switches > 4 * kills, "they committed by turns"
    for mode in ("r", "rw"):
        with LogStore(root, mode) as store:  # type: ignore[arg-type]
            for who, (groups, _) in _MINE.items():
                _check(store, who, dict.fromkeys(groups.split(","), rounds))
