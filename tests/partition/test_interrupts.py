"""A KeyboardInterrupt at any call of the file system, and the same store used on: appended to, read, cleaned, closed.

What was acknowledged stays, no invariant breaks, and the files are in order afterwards. A partition may refuse to go
on (``PartitionPoisonedError``) until its topic was released.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from logstore.errors import PartitionPoisonedError
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.seams.clock import ManualClock
from logstore.seams.faults import Operation
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore

KEYS, ROUNDS = 5, 9
Log = list[tuple[int, bytes | None, bytes | None]]


def opened(fs: MemoryFileSystem) -> LogStore:
    return LogStore("/s", fs=fs, clock=ManualClock(), threads=False)


def filled(policy: str) -> tuple[MemoryFileSystem, LogStore]:
    fs = MemoryFileSystem()
    store = opened(fs)
    config = {"cleanup.policy": policy, "segment.bytes": "1024", "retention.bytes": "1500"}
    store.create_topic("t", config=config)
    for number in range(ROUNDS):
        append(store, number)
    return fs, store


def append(store: LogStore, number: int, count: int = KEYS) -> int:
    rows = [(b"k%d" % key, b"%d" % number + bytes(30)) for key in range(count)]
    return store.partition("t", 0).append(rows).offset


def content(store: LogStore) -> Log:
    log = store.partition("t", 0)
    return [(record.offset, record.key, record.value) for record in log.records(log.log_start_offset)]


def append_rolling(store: LogStore) -> None:
    for number in range(100, 104):
        append(store, number)


def append_many(store: LogStore) -> None:
    append(store, 100, 40)


ACTIONS: dict[str, tuple[str, Callable[[LogStore], object]]] = {
    "append": ("delete", append_rolling),
    "append in batches": ("delete", append_many),
    "retention": ("delete", lambda store: store.maintain()),
    "trim": ("delete", lambda store: store.admin.delete_records("t", 20)),
    "release": ("delete", lambda store: store.release("t")),
    "close": ("delete", lambda store: store.close()),
    "maintain": ("compact", lambda store: store.maintain()),
    "compact": ("compact", lambda store: store.admin.compact("t", roll=True)),
    "close after compact": ("compact", lambda store: store.close()),
    "erase": ("compact", lambda store: store.admin.erase_keys("t", [b"k1"])),
}


def interrupt(fs: MemoryFileSystem, at: int, action: Callable[[], object]) -> bool:
    """Whether the action came to its call ``at``, which was interrupted."""
    calls = 0

    def observe(_: Operation) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt

    fs.faults.observer = observe
    try:
        action()
    except KeyboardInterrupt:
        pass
    finally:
        fs.faults.observer = None
    return calls >= at


def check_kept(name: str, before: Log, now: Log) -> None:
    """``now`` has all of ``before`` that the action may not remove."""
    assert [row[0] for row in now] == sorted({row[0] for row in now})
    values = {row[0]: row for row in before}
    assert all(values.get(row[0], row) == row for row in now)
    kept = [row[1:] for row in before]
    if name in ("compact", "maintain", "close after compact", "erase"):
        newest = {key: value for key, value in kept if name != "erase" or key != b"k1"}
        assert newest.items() <= {key: value for _, key, value in now}.items()
    elif name in ("retention", "trim", "close"):
        assert now, "the active segment stays"
        assert [row for row in before if row[0] >= now[0][0]] == now[: len(before)] or len(now) >= 5
    else:
        assert now[: len(before)] == before


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ACTIONS)
def test_the_same_store_goes_on(name: str, stride: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "logstore")
    policy, action = ACTIONS[name]
    at, more = 2 - stride, True
    failures = []
    while more:
        at += stride
        fs, store = filled(policy)
        before = content(store)
        more = interrupt(fs, at, lambda: action(store))  # noqa: B023 - called at once
        try:
            go_on(name, fs, store, before)
        except Exception as error:  # noqa: BLE001 - told together below
            failures.append(f"call {at}: {error!r}")
    assert at > 5, "the action makes some calls"
    assert failures == []


def go_on(name: str, fs: MemoryFileSystem, store: LogStore, before: Log) -> None:
    if store._context.closed or "close" in name:
        store.close()
        store = opened(fs)
    check_kept(name, before, content(store))
    try:
        offset = append(store, 500)
    except PartitionPoisonedError:
        store.release("t")
        check_kept(name, before, content(store))
        offset = append(store, 500)
    assert content(store)[-KEYS:] == [(offset + n, b"k%d" % n, b"500" + bytes(30)) for n in range(KEYS)]
    append(store, 501)
    if ACTIONS[name][0] == "compact":
        store.admin.compact("t", roll=True)
    kept = content(store)
    store.close()
    check_files(fs)
    with opened(fs) as again:
        found = content(again)
        assert found == kept[-len(found) :]  # to close a store is to retain, too
    check_files(fs)


def check_files(fs: MemoryFileSystem) -> None:
    faults = [
        fault for fault in verify_store(fs, "/s", ManualClock().boot_id(), Totals()) if not fault.warning
    ]
    assert faults == []
