"""The peers at their own best setting for each promise: SQLite, LMDB, RocksDB, and the bare system calls.

*Cached*: what was appended is in the page cache when the run ends (a killed process loses nothing, a power
loss may). *Durable*: each commit is on the disk when it returns.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeAlias

import lmdb
import rocksdict

from bench.harness import Run, Side

Rows: TypeAlias = Sequence[tuple[bytes | None, bytes]]

MAP_BYTES = 8 << 30  # LMDB's address space; pages that were not written take no room


def offset_key(offset: int) -> bytes:
    """Big-endian, so that key order is append order."""
    return offset.to_bytes(8, "big")


# --- opening, one way each ----------------------------------------------------------------------------


def open_sqlite(folder: str, *, durable: bool) -> sqlite3.Connection:
    database = sqlite3.connect(os.path.join(folder, "peer.db"), isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
    database.execute("PRAGMA cache_size=-65536")
    database.execute("CREATE TABLE log (offset INTEGER PRIMARY KEY, key BLOB, value BLOB)")
    return database


def open_lmdb(folder: str, *, durable: bool) -> Any:
    """``writemap`` measured slower here, for bulk appends as for single durable ones."""
    return lmdb.open(folder, map_size=MAP_BYTES, sync=durable, metasync=durable)


def open_rocksdb(folder: str) -> Any:
    """Raw bytes in and out; the write-ahead log stays on, as the promise asks."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(128 << 20)
    return rocksdict.Rdict(os.path.join(folder, "peer"), options)


# --- bulk appends, cached -----------------------------------------------------------------------------


def _chunks(rows: Rows, batch: int) -> list[Rows]:
    return [rows[start : start + batch] for start in range(0, len(rows), batch)]


def sqlite_append(rows: Rows, batch: int) -> Side:
    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        database = open_sqlite(folder, durable=False)
        chunks = _chunks(rows, batch)

        def run() -> int:
            for chunk in chunks:
                database.execute("BEGIN")
                database.executemany("INSERT INTO log (key, value) VALUES (?, ?)", chunk)
                database.execute("COMMIT")
            return len(rows)

        yield run
        database.close()

    return side


def _packed(rows: Rows) -> list[tuple[bytes, bytes]]:
    """Offset -> key and value in one: made before the clock starts, to the peer's advantage."""
    return [(offset_key(offset), (key or b"") + value) for offset, (key, value) in enumerate(rows)]


def lmdb_put(rows: Rows, batch: int) -> Side:
    """A ``put`` for each row, as most programs write it; ``lmdb_append`` hands a list to one call."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        environment = open_lmdb(folder, durable=False)
        packed = _packed(rows)
        chunks = [packed[start : start + batch] for start in range(0, len(packed), batch)]

        def run() -> int:
            for chunk in chunks:
                with environment.begin(write=True) as transaction:
                    put = transaction.put
                    for key, value in chunk:
                        put(key, value, append=True)
            return len(packed)

        yield run
        environment.close()

    return side


def lmdb_append(rows: Rows, batch: int) -> Side:
    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        environment = open_lmdb(folder, durable=False)
        packed = _packed(rows)
        chunks = [packed[start : start + batch] for start in range(0, len(packed), batch)]

        def run() -> int:
            for chunk in chunks:
                with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
                    cursor.putmulti(chunk, append=True)
            return len(packed)

        yield run
        environment.close()

    return side


def rocksdb_append(rows: Rows, batch: int) -> Side:
    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        database = open_rocksdb(folder)
        packed = _packed(rows)
        chunks = [packed[start : start + batch] for start in range(0, len(packed), batch)]

        def run() -> int:
            for chunk in chunks:
                writes = rocksdict.WriteBatch(raw_mode=True)
                for key, value in chunk:
                    writes.put(key, value)
                database.write(writes)
            return len(packed)

        yield run
        database.close()

    return side


def bare_writev(parts: Sequence[Sequence[bytes | memoryview]]) -> Side:
    """The same bytes through ``writev``, nothing else; units are bytes."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        file = os.open(os.path.join(folder, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def run() -> int:
            return sum(os.writev(file, part) for part in parts)

        yield run
        os.close(file)

    return side


# --- one record at a time, durable --------------------------------------------------------------------


@contextmanager
def bare_durable(folder: str, payload: bytes) -> Iterator[Callable[[], object]]:
    """Append and ``fdatasync``."""
    file = os.open(os.path.join(folder, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def call() -> None:
        os.write(file, payload)
        os.fdatasync(file)

    yield call
    os.close(file)


@contextmanager
def sqlite_durable(folder: str, value: bytes) -> Iterator[Callable[[], object]]:
    database = open_sqlite(folder, durable=True)

    def call() -> None:
        database.execute("INSERT INTO log (value) VALUES (?)", (value,))

    yield call
    database.close()


@contextmanager
def lmdb_durable(folder: str, value: bytes) -> Iterator[Callable[[], object]]:
    environment = open_lmdb(folder, durable=True)
    offsets = count()

    def call() -> None:
        with environment.begin(write=True) as transaction:
            transaction.put(offset_key(next(offsets)), value, append=True)

    yield call
    environment.close()


@contextmanager
def rocksdb_durable(folder: str, value: bytes) -> Iterator[Callable[[], object]]:
    database = open_rocksdb(folder)
    options = rocksdict.WriteOptions()
    options.sync = True
    offsets = count()

    def call() -> None:
        database.put(offset_key(next(offsets)), value, write_opt=options)

    yield call
    database.close()


# --- one record at a time, cached ---------------------------------------------------------------------


def sqlite_one_at_a_time(rows: Rows, batch: int) -> Side:
    """One INSERT a record, as a program that has them one by one; committed every ``batch``."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        database = open_sqlite(folder, durable=False)

        def run() -> int:
            execute = database.execute
            execute("BEGIN")
            for number, row in enumerate(rows, 1):
                execute("INSERT INTO log (key, value) VALUES (?, ?)", row)
                if number % batch == 0:
                    execute("COMMIT")
                    execute("BEGIN")
            execute("COMMIT")
            return len(rows)

        yield run
        database.close()

    return side


# --- scans --------------------------------------------------------------------------------------------


def sqlite_scan(rows: Rows) -> Side:
    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        database = open_sqlite(folder, durable=False)
        database.execute("BEGIN")
        database.executemany("INSERT INTO log (key, value) VALUES (?, ?)", rows)
        database.execute("COMMIT")

        def run() -> int:
            seen = 0
            cursor = database.execute("SELECT offset, key, value FROM log ORDER BY offset")
            while got := cursor.fetchmany(5000):
                seen += len(got)
            return seen

        yield run
        database.close()

    return side


def lmdb_scan(rows: Rows) -> Side:
    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        environment = open_lmdb(folder, durable=False)
        with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(_packed(rows), append=True)

        def run() -> int:
            seen = 0
            with environment.begin() as transaction, transaction.cursor() as cursor:
                for _key, _value in cursor:
                    seen += 1
            return seen

        yield run
        environment.close()

    return side


def rocksdb_scan(rows: Rows) -> Side:
    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        database = open_rocksdb(folder)
        writes = rocksdict.WriteBatch(raw_mode=True)
        for key, value in _packed(rows):
            writes.put(key, value)
        database.write(writes)

        def run() -> int:
            seen = 0
            for _key, _value in database.items():
                seen += 1
            return seen

        yield run
        database.close()

    return side
