"""``sync_together``: one sync of many logs; what it fails, it fails for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

import pytest

from logstore.errors import OutcomeUnknownError, UnknownTopicError
from logstore.log.replica_log import ReplicaLog
from logstore.log.sync_round import sync_together
from logstore.seams.faults import FaultKind
from logstore.seams.memory_crash import KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.logs import Desk, append, make_folder, records

COUNT = 4
FOLDERS = [f"/t-{number}" for number in range(COUNT)]


def opened(fs: MemoryFileSystem) -> list[ReplicaLog]:
    return [Desk(fs, folder=folder).open() for folder in FOLDERS]


def written(fs: MemoryFileSystem) -> list[ReplicaLog]:
    for folder in FOLDERS:
        make_folder(fs, folder)
    logs = opened(fs)
    for number, log in enumerate(logs):
        append(log, b"%d" % number)
    return logs


def values(logs: Sequence[ReplicaLog]) -> list[list[bytes | None]]:
    return [[record.value for record in records(log)] for log in logs]


def test_all_are_durable_by_one_call_of_the_file_system() -> None:
    fs = MemoryFileSystem()
    logs = written(fs)
    with mock.patch.object(fs, "sync_files", wraps=fs.sync_files) as call:
        assert sync_together(fs, logs) == [None] * COUNT
    ((files,), _) = call.call_args
    assert [file.path.rsplit("/", 1)[0] for file in files] == FOLDERS
    assert call.call_count == 1
    assert [log.flushed_offset for log in logs] == [1] * COUNT
    assert [log.high_watermark for log in logs] == [1] * COUNT
    after = opened(fs.crash(KeepNothing()))
    assert values(after) == [[b"%d" % number] for number in range(COUNT)]


def test_a_log_with_nothing_to_sync_is_passed_over() -> None:
    fs = MemoryFileSystem()
    logs = written(fs)
    logs[1].sync()
    syncs = logs[1].syncs
    assert sync_together(fs, logs) == [None] * COUNT
    assert sync_together(fs, logs) == [None] * COUNT
    assert [log.syncs for log in logs] == [1] * COUNT
    assert logs[1].syncs == syncs
    assert sync_together(fs, []) == []


@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.FAILED_SYNC])
@pytest.mark.parametrize("hit", [0, COUNT - 1])
def test_a_sync_that_fails_poisons_all_of_its_logs(kind: FaultKind, hit: int) -> None:
    fs = MemoryFileSystem()
    logs = written(fs)
    fs.faults.on("sync", kind, path_ends=f"t-{hit}/{0:020d}.log")
    errors = sync_together(fs, logs)
    assert [type(error) for error in errors] == [OutcomeUnknownError] * COUNT
    assert all(log.poisoned for log in logs)
    assert [log.flushed_offset for log in logs] == [0] * COUNT
    assert [log.high_watermark for log in logs] == [0] * COUNT
    again = sync_together(fs, logs)
    assert [type(error) for error in again] == [OutcomeUnknownError] * COUNT


def test_one_that_is_poisoned_already_leaves_the_others_alone() -> None:
    fs = MemoryFileSystem()
    logs = written(fs)
    fs.faults.on("sync", FaultKind.EIO, path_ends=f"t-2/{0:020d}.log")
    with pytest.raises(OutcomeUnknownError):
        logs[2].sync()
    errors = sync_together(fs, logs)
    assert [error is not None for error in errors] == [False, False, True, False]
    assert [log.flushed_offset for log in logs] == [1, 1, 0, 1]


def test_a_topic_that_is_deleted_meanwhile_is_in_no_doubt() -> None:
    fs = MemoryFileSystem()
    logs = written(fs)

    def deleted(files: Sequence[object]) -> None:
        del files
        logs[1].close(UnknownTopicError("t was deleted"))
        raise OSError(5, "the disk is gone")

    with mock.patch.object(fs, "sync_files", deleted):
        errors = sync_together(fs, logs)
    assert [type(error) for error in errors] == [
        OutcomeUnknownError,
        UnknownTopicError,
        OutcomeUnknownError,
        OutcomeUnknownError,
    ]


def test_records_that_come_during_a_sync_are_of_the_next_one() -> None:
    fs = MemoryFileSystem()
    logs = written(fs)
    sync_files = fs.sync_files

    def slow(files: Sequence[object]) -> None:
        append(logs[0], b"later")
        sync_files(files)  # type: ignore[arg-type]

    with mock.patch.object(fs, "sync_files", slow):
        assert sync_together(fs, logs) == [None] * COUNT
    assert [log.flushed_offset for log in logs] == [1] * COUNT
    assert logs[0].log_end_offset == 2
    assert sync_together(fs, logs) == [None] * COUNT
    assert logs[0].flushed_offset == 2


def test_a_sync_that_lies_loses_what_it_promised() -> None:
    """The twin tells a file system that says it synced, and did not, from one that did."""
    fs = MemoryFileSystem()
    logs = written(fs)
    with mock.patch.object(fs, "sync_files", return_value=None):
        assert sync_together(fs, logs) == [None] * COUNT
    assert [log.flushed_offset for log in logs] == [1] * COUNT
    assert values(opened(fs.crash(KeepNothing()))) == [[]] * COUNT
