"""One checkpoint of many logs: their segments are made durable by one sync, their indexes by another one.

A checkpoint of each by itself takes three to six syncs, every few seconds: of a thousand logs more than a disk does in
that time. A round waits for no log's sync lock while it holds another's (``sync_round.py``): what a log that is just
being synced has got since is left to the next round.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from logstore.errors import LogStoreError
from logstore.log.sync_round import sync_held
from logstore.log.synced_log import BegunCheckpoint, SyncedLog
from logstore.seams.fs import FileSystem

_AT_ONCE: Final = 64
"""Logs, each of which keeps up to three files open."""
_Errors = dict[SyncedLog, LogStoreError]


def checkpoint_together(fs: FileSystem, logs: Sequence[SyncedLog]) -> list[LogStoreError | None]:
    """``SyncedLog.checkpoint`` of each, all of whose files are on ``fs``, but for snapshots of producers that did
    little since their last one; None, or its error, in the order of ``logs``. None comes twice."""
    errors: _Errors = {}
    for start in range(0, len(logs), _AT_ONCE):
        some = logs[start : start + _AT_ONCE]
        _sync_logs(fs, some, errors)
        _sync_indexes(fs, _sound(some, errors), errors)
        for log in _sound(some, errors):
            try:
                log.checkpoint_producers()
            except LogStoreError as error:
                errors[log] = error
    return [errors.get(log) for log in logs]


def _sound(logs: Sequence[SyncedLog], errors: _Errors) -> list[SyncedLog]:
    return [log for log in logs if log not in errors]


def _sync_logs(fs: FileSystem, logs: Sequence[SyncedLog], errors: _Errors) -> None:
    with ExitStack() as locks:
        held: list[SyncedLog] = []
        for log in logs:
            lock = log.syncing()
            if lock.acquire(blocking=False):
                locks.callback(lock.release)
                held.append(log)
        for log, failure in zip(held, sync_held(fs, held), strict=True):
            if failure is not None:
                errors[log] = failure


def _sync_indexes(fs: FileSystem, logs: Sequence[SyncedLog], errors: _Errors) -> None:
    begun: list[tuple[SyncedLog, BegunCheckpoint]] = []
    try:
        for log in logs:
            try:
                one = log.begin_checkpoint()
            except LogStoreError as error:
                errors[log] = error
                continue
            if one is not None:
                begun.append((log, one))
        failure = _synced(fs, begun)
        while begun:
            log, one = begun.pop()
            if failure is None:
                log.end_checkpoint(one)
            else:
                errors[log] = log.failed_checkpoint(one, failure)
    finally:
        for (
            log,
            one,
        ) in begun:  # what an interrupt has cut short is of no log's checkpoint, and keeps no file open
            log.drop_checkpoint(one)


def _synced(fs: FileSystem, begun: Sequence[tuple[SyncedLog, BegunCheckpoint]]) -> OSError | None:
    try:
        fs.sync_files([index.file for _, one in begun for index in one.indexes])
    except OSError as error:
        return error
    return None
