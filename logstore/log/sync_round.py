"""One sync of many logs: their files are made durable together (``FileSystem.sync_files``).

What fails fails for all of them: of none it is known what the disk has, and each is poisoned as after a failed sync of
its own. The sync locks of all are held meanwhile, so a log is in one round at a time; whoever holds one of these locks
waits for no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from logstore.errors import LogStoreError
from logstore.log.synced_log import BegunSync, SyncedLog
from logstore.seams.fs import FileSystem


def sync_together(fs: FileSystem, logs: Sequence[SyncedLog]) -> list[LogStoreError | None]:
    """``SyncedLog.sync`` of each, all of whose files are on ``fs``; None, or its error, in the order of ``logs``. None
    comes twice."""
    with ExitStack() as locks:
        for log in logs:
            locks.enter_context(log.syncing())
        return sync_held(fs, logs)


def sync_held(fs: FileSystem, logs: Sequence[SyncedLog]) -> list[LogStoreError | None]:
    """``sync_together`` of logs whose sync locks are held."""
    errors: list[LogStoreError | None] = [None] * len(logs)
    begun: list[tuple[int, BegunSync]] = []
    for number, log in enumerate(logs):
        try:
            one = log.begin_sync()
        except LogStoreError as error:
            errors[number] = error
            continue
        if one is None:
            continue
        if one.file is None:
            errors[number] = _sync_alone(log, one)
        else:
            begun.append((number, one))
    _sync_files(fs, logs, begun, errors)
    return errors


def _sync_alone(log: SyncedLog, one: BegunSync) -> LogStoreError | None:
    """A log that does not keep its file open."""
    try:
        one.segment.sync()
    except OSError as error:
        return log.failed_sync(one, error)
    log.end_sync(one)
    return None


def _sync_files(
    fs: FileSystem,
    logs: Sequence[SyncedLog],
    begun: Sequence[tuple[int, BegunSync]],
    errors: list[LogStoreError | None],
) -> None:
    try:
        fs.sync_files([one.file for _, one in begun if one.file is not None])
    except OSError as error:
        for number, one in begun:
            errors[number] = logs[number].failed_sync(one, error)
    else:
        for number, one in begun:
            logs[number].end_sync(one)
