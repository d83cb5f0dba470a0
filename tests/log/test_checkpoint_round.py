"""``checkpoint_together``: one checkpoint of many logs; what it fails, it fails for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from unittest import mock

import pytest

from logstore.errors import PartitionPoisonedError
from logstore.format.batch import encode_batch
from logstore.log.checkpoint_round import checkpoint_together
from logstore.log.replica_log import ReplicaLog
from logstore.seams.faults import FaultKind
from logstore.seams.fs import File
from logstore.seams.memory_crash import KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.logs import NOW_MS, Desk, append, checked, make_folder, values

COUNT = 3
FOLDERS = [f"/t-{number}" for number in range(COUNT)]
INDEXES = [f"{0:020d}.index", f"{0:020d}.timeindex"]


class Logs:
    """Logs beside each other, all of them written to; an index row for every batch."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        for folder in FOLDERS:
            make_folder(self.fs, folder)
        self.desks = [Desk(self.fs, folder=folder, index_interval_bytes=1) for folder in FOLDERS]
        self.logs = [desk.open() for desk in self.desks]
        for log in self.logs:
            append(log, b"a")
            append(log, b"b")

    def checkpoint(self) -> list[object]:
        return list(checkpoint_together(self.fs, self.logs))

    def points(self) -> list[int]:
        return [log.recovery_point for log in self.logs]

    def meanwhile(self, during: Callable[[], object]) -> mock._patch[object]:
        """While the indexes are synced."""
        sync_files = self.fs.sync_files

        def slow(files: Sequence[File]) -> None:
            if any(file.path.endswith("index") for file in files):
                during()
            sync_files(files)

        return mock.patch.object(self.fs, "sync_files", slow)


def snapshots(fs: MemoryFileSystem, folder: str) -> list[str]:
    return [name for name in fs.listdir(folder) if name.endswith(".snapshot")]


def produced(log: ReplicaLog, sequence: int, value: bytes) -> None:
    data = encode_batch(
        [(None, value)], now_ms=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    log.append(checked(data))


def test_logs_and_indexes_are_durable_by_a_call_each() -> None:
    made = Logs()
    with mock.patch.object(made.fs, "sync_files", wraps=made.fs.sync_files) as call:
        assert made.checkpoint() == [None] * COUNT
    names = [[file.path.rsplit("/", 1)[1] for file in files] for ((files,), _) in call.call_args_list]
    assert names == [[f"{0:020d}.log"] * COUNT, INDEXES * COUNT]
    assert made.points() == [2] * COUNT
    after = made.fs.crash(KeepNothing())
    for folder in FOLDERS:
        desk = Desk(after, folder=folder, index_interval_bytes=1)
        log = desk.open(recovery_point=2, same_boot=False)
        assert values(log) == [b"a", b"b"]
        assert len(desk.content(0, ".index")) == 8


def test_a_log_with_nothing_new_is_left_alone() -> None:
    made = Logs()
    made.checkpoint()
    append(made.logs[1], b"c")
    with mock.patch.object(made.fs, "sync_files", wraps=made.fs.sync_files) as call:
        assert made.checkpoint() == [None] * COUNT
    for (files,), _ in call.call_args_list:
        assert {file.path.rsplit("/", 1)[0] for file in files} == {FOLDERS[1]}
    assert made.points() == [2, 3, 2]


@pytest.mark.parametrize("hit", INDEXES)
def test_a_sync_of_indexes_that_fails_poisons_all_of_its_logs(hit: str) -> None:
    made = Logs()
    made.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=f"t-1/{hit}")
    assert [type(error) for error in made.checkpoint()] == [PartitionPoisonedError] * COUNT
    assert all(log.poisoned for log in made.logs)
    assert made.points() == [0] * COUNT
    assert [log.flushed_offset for log in made.logs] == [2] * COUNT


def test_one_that_is_poisoned_already_leaves_the_others_alone() -> None:
    made = Logs()
    made.fs.faults.on("sync", FaultKind.EIO, path_ends=f"t-1/{0:020d}.log")
    with pytest.raises(Exception, match="sync"):
        made.logs[1].sync()
    assert [error is None for error in made.checkpoint()] == [True, False, True]
    assert made.points() == [2, 0, 2]


def test_what_is_cut_meanwhile_is_not_said_to_be_durable() -> None:
    made = Logs()
    follower = made.desks[0].replica()
    made.logs[0] = follower

    def cut() -> None:
        follower.truncate_to(1)
        append(follower, b"c")
        follower.sync()

    with made.meanwhile(cut):
        append(follower, b"x")
        assert made.checkpoint() == [None] * COUNT
    assert made.points()[0] <= 1
    assert follower.segments.active is not None
    assert follower.segments.active.unsynced_indexes == {".index", ".timeindex"}
    assert made.checkpoint() == [None] * COUNT
    assert made.points() == [2] * COUNT


def test_rows_that_come_meanwhile_are_the_next_ones() -> None:
    made = Logs()

    def more() -> None:
        append(made.logs[0], b"c", at_ms=NOW_MS + 1)
        segment = made.logs[0].segments.active
        assert segment is not None
        segment.store_indexes()

    with made.meanwhile(more):
        assert made.checkpoint() == [None] * COUNT
    assert made.points() == [2] * COUNT
    segment = made.logs[0].segments.active
    assert segment is not None
    assert segment.unsynced_indexes == {".index", ".timeindex"}
    assert made.checkpoint() == [None] * COUNT
    assert segment.unsynced_indexes == set()


def test_a_log_that_is_just_being_synced_is_not_waited_for() -> None:
    made = Logs()
    with made.logs[0].syncing():
        checkpointed = checkpoint_together(made.fs, made.logs)
    assert checkpointed == [None] * COUNT
    assert made.points() == [0, 2, 2]


def test_a_roll_meanwhile_is_further_than_the_round() -> None:
    made = Logs()
    with made.meanwhile(made.logs[0].roll_idle):
        assert made.checkpoint() == [None] * COUNT
    assert made.points() == [2] * COUNT
    append(made.logs[0], b"c")
    assert made.checkpoint() == [None] * COUNT
    assert made.points() == [3, 2, 2]


def test_producers_that_did_little_get_no_snapshot() -> None:
    made = Logs()
    produced(made.logs[0], 0, b"few")
    made.checkpoint()
    assert snapshots(made.fs, FOLDERS[0]) == []
    produced(made.logs[0], 1, bytes(1 << 20))
    made.checkpoint()
    assert snapshots(made.fs, FOLDERS[0]) == [f"{4:020d}.snapshot"]
    produced(made.logs[0], 2, b"few")
    made.checkpoint()
    assert snapshots(made.fs, FOLDERS[0]) == [f"{4:020d}.snapshot"]
    opened = Desk(made.fs.crash(KeepNothing()), folder=FOLDERS[0]).open(recovery_point=5, same_boot=False)
    entry = opened.producers.entry(7)
    assert entry is not None
    assert entry.last_sequence == 2


def test_nothing_is_cut_while_a_snapshot_of_it_is_written() -> None:
    made = Logs()
    log = made.logs[0]
    produced(log, 0, bytes(1 << 20))
    held: list[bool] = []
    store = log.producers.store

    def watched(*given: object) -> None:
        held.append(log.syncing().locked())
        store(*given)  # type: ignore[arg-type]

    with mock.patch.object(log.producers, "store", watched):
        made.checkpoint()
        log.checkpoint()
    assert held == [True, True]


def test_a_round_that_is_interrupted_keeps_no_file_and_the_next_one_does_all() -> None:
    """Ctrl-C while the indexes are synced, as of a process that closes its store."""
    logs = Logs()
    interrupt = mock.Mock(side_effect=KeyboardInterrupt)
    with logs.meanwhile(interrupt), pytest.raises(KeyboardInterrupt):
        logs.checkpoint()
    assert [desk.pool._pinned for desk in logs.desks] == [0] * COUNT
    assert logs.points() == [0, 0, 0]
    assert logs.checkpoint() == [None] * COUNT
    assert logs.points() == [2, 2, 2]
