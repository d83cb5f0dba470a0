"""A close whose syncs fail: nothing may be shown as visible in `.live` that a crash could take back, and all that was
acknowledged stays."""

from __future__ import annotations

from contextlib import suppress

import pytest

from logstore.errors import LogStoreError
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore

ROOT = "/store"
SYNCED, UNSYNCED = 2, 3


def opened(fs: MemoryFileSystem, live: dict[int, LiveSlot]) -> LogStore:
    clock = ManualClock()
    return LogStore(
        ROOT,
        fs=fs,
        clock=clock,
        locks=MemoryLocks(LockTable(), clock=clock),
        live=MemoryLive(live),
        threads=False,
    )


def written(fs: MemoryFileSystem, live: dict[int, LiveSlot]) -> LogStore:
    store = opened(fs, live)
    store.create_topic("t", partitions=2)
    for partition in range(2):
        log = store.partition("t", partition)
        log.append([(None, b"synced")] * SYNCED)
        log.append([(None, b"not yet")] * UNSYNCED, acks=1)
    return store


@pytest.mark.parametrize("how", ["close", "release"])
@pytest.mark.parametrize("forever", [False, True])
def test_nothing_is_shown_past_what_was_synced(how: str, forever: bool) -> None:
    """Each sync of the close fails in turn, it alone or with all after it."""
    failed = -1
    while True:
        failed += 1
        live: dict[int, LiveSlot] = {}
        fs = MemoryFileSystem()
        store = written(fs, live)
        slots = [store._registry.catalogue.topic("t").live_slot(partition) for partition in range(2)]
        assert [live[slot].high_watermark for slot in slots] == [SYNCED, SYNCED]
        fs.faults.on("sync", FaultKind.FAILED_SYNC, skip=failed, forever=forever)
        with suppress(LogStoreError):
            store.close() if how == "close" else store.release("t")
        fired, _ = fs.faults.fired, fs.faults.clear()
        for crashed in fs.crash_states():
            survivor = opened(crashed, {})
            for partition, slot in enumerate(slots):
                end = survivor.partition("t", partition).log_end_offset
                assert SYNCED <= end <= SYNCED + UNSYNCED
                assert live[slot].high_watermark <= end, f"sync {failed}, partition {partition}"
            survivor.abandon()
        if not fired:
            break
    assert failed > 2, "syncs of both partitions and of the topic's state"
