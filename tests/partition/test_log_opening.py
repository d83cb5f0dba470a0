"""First writes to many partitions at a time: what they sync, and what a crash anywhere in them leaves."""

from __future__ import annotations

import random

import pytest

from logstore.api.records import ProduceItem
from logstore.format.batch import encode_batch
from logstore.partition.fan_out import MANY
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_crash import Chooser, KeepAll, KeepNothing, RandomChooser
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore

ROOT = "/store"


def opened(fs: MemoryFileSystem, boot: int = 0) -> LogStore:
    return LogStore(ROOT, fs=fs, clock=ManualClock(boot_id=f"boot-{boot}"), threads=False)


def produce(store: LogStore, partitions: int) -> list[int]:
    """A record into each; those whose record was acknowledged as durable."""
    batch = encode_batch([(None, b"x")], now_ms=1_000)
    items = [ProduceItem("t", partition, batch) for partition in range(partitions)]
    results = store.backend.produce(items, "all", 10.0)
    assert not [result.error for result in results if result.error is not None]
    return [item.partition for item, result in zip(items, results, strict=True) if result.error is None]


def test_first_writes_sync_the_root_once_and_a_close_syncs_no_empty_index() -> None:
    fs = MemoryFileSystem()
    store = opened(fs)
    store.create_topic("t", partitions=MANY)
    fs.faults.tracing = True
    assert len(produce(store, MANY)) == MANY
    synced = [call.path for call in fs.faults.trace if call.name == "sync_dir"]
    assert synced.count(ROOT) == 1
    assert synced.count(f"{ROOT}/t-0") >= 2  # its metadata before its log
    fs.faults.trace.clear()
    store.close()
    synced = [call.path for call in fs.faults.trace if call.name == "sync"]
    assert not [path for path in synced if path.endswith(".index")]  # no row in any of them
    fs = fs.crash(KeepNothing())
    store = opened(fs, boot=1)
    assert store.recovery_report == ()
    assert [next(iter(store.partition("t", n).records(0))).value for n in range(MANY)] == [b"x"] * MANY
    assert store.recovery_report == ()
    store.close()


def test_rows_of_an_index_are_durable_after_a_close() -> None:
    fs = MemoryFileSystem()
    store = opened(fs)
    store.create_topic("t", config={"index.interval.bytes": "1"})
    for _ in range(4):
        store.partition("t", 0).append([(None, b"x" * 100)])
    store.close()
    before = fs.open(f"{ROOT}/t-0/{0:020d}.index", "r").size()
    assert before > 0
    fs = fs.crash(KeepNothing())
    assert fs.open(f"{ROOT}/t-0/{0:020d}.index", "r").size() == before


@pytest.mark.parametrize(
    "choose", [KeepNothing(), KeepAll(), RandomChooser(random.Random(7))], ids=["nothing", "all", "some"]
)
def test_a_crash_anywhere_in_first_writes_leaves_what_was_acknowledged_and_all_writable(
    choose: Chooser,
) -> None:
    def attempt(call: int) -> bool:
        """False: the writes end before that many calls."""
        fs = MemoryFileSystem()
        store = opened(fs)
        store.create_topic("t", partitions=MANY)
        fs.faults.at(fs.faults.calls + call, FaultKind.CRASH)
        acknowledged: list[int] = []
        try:
            acknowledged = produce(store, MANY)
            store.close()
        except SimulatedCrash:
            store.abandon()
        else:
            return False
        store = opened(fs.crash(choose), boot=1)
        assert len(produce(store, MANY)) == MANY
        for partition in range(MANY):
            found = [record.value for record in store.partition("t", partition).records(0)]
            assert found in ([b"x"], [b"x", b"x"])
            assert len(found) == 2 or partition not in acknowledged
        store.close()
        return True

    call = 1
    while attempt(call):
        call += 37  # prime to the calls that a partition takes, so that each of them is met at some partition
    assert call > 100
